//! Goal: nodes that ask the zone about many rows at once return what row-by-row execution returns:
//! the same rows in the same order, the same digits, the same errors.
//!
//! Method: server, zone and proxy, all real. Each statement is run with the nodes and without them,
//! on tables of some thousand rows with NULLs, equal values and dead rows, and the plan has to have
//! the nodes.

use std::fmt::Write as _;

use strongroom_columns_testing::Server;
use strongroom_columns_testing::owner::{Owner, start_all};

/// Rows of the larger table: several batches.
const ROWS: u32 = 3000;

/// A table with columns of several kinds, and a small one that it is joined with.
fn fill(owner: &Owner) {
    let _made = owner.rows(
        "create table sale (id int, shop int, state enc_text, amount enc_numeric, price enc_numeric,
             day enc_date, number enc_int4, note enc_text, weight enc_float8) using strongroom;
         create table shop (id int, name enc_text) using strongroom;
         insert into shop values (0, 'North'), (1, 'South'), (2, null)",
    );
    let mut seed = 5_u64;
    let mut draw = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % below
    };
    for first in (0..ROWS).step_by(500) {
        let mut rows = String::new();
        for id in first..first + 500 {
            let comma = if id == first { "" } else { ", " };
            let or_null = |is_null: bool, value: String| {
                if is_null { "null".to_owned() } else { value }
            };
            let state = or_null(
                draw(17) == 0,
                format!(
                    "'{}'",
                    ["A", "N", "R", "long state of seven"][usize::try_from(draw(4)).unwrap_or(0)]
                ),
            );
            let amount = or_null(draw(13) == 0, format!("{}", draw(50)));
            let price = format!("{}.{:02}", draw(100_000), draw(100));
            let day = format!("'2024-{:02}-{:02}'", 1 + draw(12), 1 + draw(28));
            let number = or_null(
                draw(11) == 0,
                format!("{}", i64::try_from(draw(20)).unwrap_or(0) - 5),
            );
            let note = or_null(draw(7) == 0, format!("'note {} of {}'", draw(30), draw(3)));
            let weight = format!("{}.5", draw(9));
            write!(
                rows,
                "{comma}({id}, {}, {state}, {amount}, {price}, {day}, {number}, {note}, {weight})",
                id % 4
            )
            .expect("a string takes everything");
        }
        let _filled = owner.rows(&format!("insert into sale values {rows}"));
    }
    let _changed = owner.rows(
        "create function notes_call(int) returns boolean language plpgsql cost 1000 as
             $$ begin raise notice 'called for %', $1; return true; end $$;
         delete from sale where id % 10 = 3; update sale set number = 7 where id % 50 = 1; analyze sale",
    );
}

/// Statements whose plans have a node for a scan, an aggregation or both.
const STATEMENTS: &[&str] = &[
    "select id from sale where amount > 25 and day <= date '2024-06-30'",
    "select id, amount from sale where shop = 1 and (amount < 3 or number = 7)",
    "select id from sale where not (state = 'A' or state is null) and id < 2000",
    "select id from sale where note like '%of 1' and state in ('N', 'R')",
    "select id from sale where price * (1 - amount / 100) > 40000",
    "select id from sale where amount + number > 30 or note is null",
    "select id from sale where number between -2 and 2 order by id desc limit 7",
    "select ctid, tableoid::regclass, id from sale where number = 7 and shop = 2",
    "select count(*) from sale where weight > 4.5",
    "select count(*), count(amount), count(shop), sum(amount), avg(price), min(day), max(note) from sale",
    "select sum(amount), max(day), count(*) from sale where false",
    "select state, sum(case when number > 3 or number < 0 then 1 else 0 end), count(distinct shop),
            count(case when amount > 20 then 1 end), sum(shop), min(id), max(id) filter (where number = 7)
     from sale group by state order by state",
    "select count(distinct id), sum(case when day < date '2024-03-01' then shop when number is null then 7 end),
            min(shop) filter (where note is null and number > 100) from sale where amount > 0",
    "select name, count(distinct sale.id), sum(case when state = 'A' then 1 when state = 'N' then null else 2 end)
     from sale join shop on shop.id = shop group by name order by name",
    "select shop, day, count(distinct number % 3), count(distinct id) from sale group by shop, day order by shop, day",
    "select sum(case when amount > 0 then id else 2000000000 end) from sale",
    "select count(*) filter (where state = 'A' and amount > 3) from sale",
    "select sum(amount) filter (where state = 'A'), count(*) filter (where number > 0), sum(number) from sale",
    "select state, count(*), sum(amount), sum(price * (1 - amount / 100)), avg(amount), min(note) from sale
         where day <= date '2024-09-01' group by state order by state",
    "select state, number, count(*), max(price) from sale group by state, number order by 3, 1, 2",
    "select shop, count(*), sum(price) from sale group by shop having sum(price) > 1000 order by shop",
    "select shop % 2, state, sum(weight), avg(weight), stddev(number) from sale group by 1, 2 order by 1, 2",
    "select extract(month from day), sum(price) from sale group by 1 order by 2",
    "select shop.name, count(*), sum(amount) from sale join shop on shop.id = sale.shop
         where sale.amount > 10 group by shop.name order by 2",
    "select case when number > 3 then amount else price end from sale where id < 300 and number is not null",
    "select sum(case when state = 'A' then amount else 0 end), sum(case when state = 'A' then 1 else 0 end) from sale",
    "select max(case when number > 3 then amount when number < 0 then price end) from sale",
    "select distinct state from sale order by state",
    "select id from sale where amount > (select avg(amount) from sale) and shop = 3 order by id",
    "select shop, sum(amount) from sale group by shop having sum(amount) > (select 40 * max(amount) from sale) order by shop",
    "select id from sale where number = any (array[1, 2, null]) and not number = all (array[2, 2])",
    "select id from sale where number not in (1, 2, 3) and shop = 1",
    "select s.id from sale s where exists (select 1 from shop where shop.id = s.shop and name = 'South') and s.number = 5",
    "select upper(state) || '!', sum(number) from sale where length(note) > 11 group by 1 order by 2, 1",
    // More operations between two batches than the ring has entries.
    "select sum(a), max(b), min(c), max(d), max(e), sum(f) from (select amount + 1 as a, amount * 2 as b,
         number + 1 as c, price * 2 as d, price - 1 as e, price + amount + number as f from sale offset 0) x",
    "with x as (select state, sum(amount) as total from sale group by state) select count(*) from x where total > 10",
];

/// Statements whose rows fail: with the nodes and without them, by the same error.
const FAILING: &[&str] = &[
    "select id from sale where 1000 / number > 5",
    "select sum(1000 / number) from sale",
    "select state, sum(1000 / number) from sale group by state",
    "select id from sale where note like 'note\\'",
    "select sum(amount) from sale group by number having 1 / (min(number) - 7) > 0",
    "select count(*) from sale where number * 2000000000 > 0",
];

/// Statements that are planned with sorted aggregations where hashed ones are off.
const SORTED: &[&str] = &[
    "select number, count(*), sum(amount), max(note) from sale group by number order by number",
    "select number, count(*) from sale group by number order by number desc",
    "select number, count(*) from sale group by number order by number nulls first",
    "select state, shop, sum(price) from sale group by state, shop order by state desc nulls last, shop desc",
    "select shop, count(*) from sale where amount > 5 group by shop having sum(amount) > 3000 order by shop",
    "select extract(month from day), number, sum(amount) from sale group by 1, 2 order by 1, 2 desc",
    "select note, min(day) from sale group by note having max(number) > 9 and count(*) > 2 order by note",
    "select sum(number) from sale group by id having sum(number) > 12 order by id",
];

/// Statements that are planned with index scans and nested loops where the others are off.
const INDEXED: &[&str] = &[
    "select id from sale where id between 100 and 2900 and amount > 25 and number <> 3",
    "select id, price * 2, ctid, tableoid::regclass, sale is null from sale where id > 1500 and state = 'A' and shop = 1",
    "select count(*) from sale where id < 2500 and note like '%of 1'",
    "select amount + 1 from sale where id between 500 and 1500 and number = 7 order by id desc limit 9",
    "select a.id, b.amount, b.price - a.price from sale a join sale b on b.id = a.id + 7
         where b.amount > 20 and a.shop = 2 and a.number > 0",
    "select shop.name, s.id from shop join sale s on s.shop = shop.id where s.amount > 47",
    "select shop.name, count(*), sum(s.amount) from shop join sale s on s.shop = shop.id
         where s.state in ('A', 'N') and s.day > date '2024-05-05' group by shop.name order by 2, 3",
    "select a.id, b.id, c.id from sale a join sale b on b.id = a.id * 2 join sale c on c.id = b.id + 1
         where a.id < 700 and b.number > 2 and c.amount < 30",
    "select a.id, b.id from sale a left join sale b on b.id = a.id + 1 and b.number > 10 where a.shop = 3",
    "select a.id from sale a where a.shop = 1 and exists (select 1 from sale b where b.id = a.id + 2 and b.amount > 25)",
    "select a.id from sale a where a.shop = 1 and not exists (select 1 from sale b where b.id = a.id + 1 and b.number > 8)",
    "select a.id, (select sum(b.amount) from sale b where b.id between a.id and a.id + 9 and b.number > 3)
         from sale a where a.id % 100 = 0 order by a.id",
    "select a.id, (select max(b.id) from sale b where b.id < a.id and b.number > a.number) from sale a where a.id < 90",
    "select s.id from shop, lateral (select id from sale where shop = shop.id and amount > 40 order by id limit 3) s",
    "select a.id, b.n from sale a join lateral (select id, case when number > 5 then price else amount end as n
         from sale where id = a.id + 10 and state = 'R') b on true where a.shop = 0",
    "select a.id from sale a join sale b on b.id = a.id and b.price > a.price - 1 where a.number = 5 and b.shop = 1",
    "select a.id from sale a join sale b on b.id = a.id + 1 where b.price > (select avg(price) from sale) and a.shop = 2",
    "with recursive r(id) as (select 1 union all select s.id from r join sale s on s.id = r.id * 2 and s.price > 100)
         select id from r",
];

/// Statements in which what excludes a failing row comes first, or that end before it.
const GUARDED: &[&str] = &[
    "select count(*) from sale where number <> 0 and 1000 / number > 100",
    "select count(*) from sale where number = 0 or 1000 / number > 100",
    "select sum(case when number = 0 then 0 else 1000 / number end) from sale",
    "select sum(1000 / number) filter (where number <> 0), count(1000 / number) filter (where number > 0) from sale",
    "select sum(case when 1000 / number > 100 then 1 else 0 end) filter (where number <> 0) from sale",
    "select id from sale where number <> 0 and coalesce(1000 / number, 0) > 200 order by id",
    "select id from sale where number > 5 and notes_call(id) and shop = 2 order by id",
    "select number from sale group by number having count(*) > 100000 and 1 / (min(number) - 7) > 0",
    "select number, count(*) from sale group by number having sum(amount) > 100 and count(*) > 5 order by number",
    "select id from sale where shop = 99 and amount > (select amount from sale)",
    "select id from sale where number > 100 and amount > (select amount from sale)",
    "select sum(number) from sale where number > 100 group by shop having sum(number) > (select number from sale)",
    "select count(*) from sale where case when number > 100 then amount > (select amount from sale) else number = 3 end",
    "select state, grouping(state), count(*) from sale group by state order by state",
    "select id from sale where number > 0 and 1000 / number > 5 limit 3",
];

/// Statements with sorted aggregations where hashed ones are off, of which not all groups are read:
/// the others fail.
const ENDED: &[&str] = &[
    "select note, min(day) from sale group by note having max(number) > 9 and count(*) > 2 order by note limit 5",
    "select number, sum(1000 / number) from sale group by number order by number desc nulls last limit 2",
    "select id from sale where 1000 / (id - 300) > -100000 and number > 3 limit 1",
    "select * from (select number, sum(1000 / number) from sale group by number order by number desc nulls last) g
         join (select name from shop where id > 100) h on h.name = g.number::enc_text",
    "select exists (select sum(1000 / (number + 0)) from sale group by number order by number desc nulls first)",
];

/// Runs a statement with the nodes or without them.
fn run(owner: &Owner, nodes: bool, statement: &str) -> (String, String) {
    let setting = if nodes { "on" } else { "off" };
    let said = owner.run(&format!("set strongroom.batches = {setting}; {statement}"));
    (said.rows, said.messages)
}

/// Runs a statement without the nodes and with them, which has to be the same, and no error;
/// returns its rows.
#[track_caller]
fn alike(owner: &Owner, statement: &str) -> String {
    let without = run(owner, false, statement);
    assert_eq!(run(owner, true, statement), without, "{statement}");
    assert!(!without.1.contains("ERROR"), "{statement}: {without:?}");
    without.0
}

/// The names of this extension's nodes in a statement's plan.
fn nodes(owner: &Owner, statement: &str) -> Vec<&'static str> {
    let plan = owner.rows(&format!("explain (costs off) {statement}"));
    let known = [
        "Strongroom Scan",
        "Strongroom Filter",
        "Strongroom Aggregate",
    ];
    known
        .into_iter()
        .filter(|node| plan.contains(node))
        .collect()
}

/// Server, zone and proxy, with the tables.
fn start() -> (Owner, Server) {
    let started = start_all("");
    fill(&started.0);
    started
}

#[test]
fn nodes_return_what_row_by_row_execution_returns() {
    let (owner, _server) = start();
    let mut with_nodes = 0;
    for statement in STATEMENTS.iter().chain(GUARDED) {
        let (rows, messages) = run(&owner, false, statement);
        assert_eq!(
            run(&owner, true, statement),
            (rows.clone(), messages.clone()),
            "{statement}"
        );
        assert!(!messages.contains("ERROR"), "{statement}: {messages}");
        with_nodes += usize::from(!nodes(&owner, statement).is_empty());
    }
    let all = STATEMENTS.len() + GUARDED.len();
    assert!(with_nodes + 3 >= all, "{with_nodes} of {all} have a node");
    for statement in ENDED {
        let planned = format!("set enable_hashagg = off; {statement}");
        let _rows = alike(&owner, &planned);
    }
    for statement in SORTED {
        let planned = format!("set enable_hashagg = off; {statement}");
        let without = run(&owner, false, &planned);
        assert_eq!(run(&owner, true, &planned), without, "{statement}");
        assert!(!without.0.is_empty(), "{statement}");
        let plan = owner.rows(&format!(
            "set enable_hashagg = off; explain (costs off) {statement}"
        ));
        assert!(plan.contains("Strongroom Aggregate"), "{statement}: {plan}");
        // Groups are sorted, and not rows; an index may have them in order.
        let sorted = plan.matches("Sort").count();
        assert!(
            plan.contains("Group Order: sorted") || sorted <= 1,
            "{plan}"
        );
    }
    for statement in FAILING {
        let (rows, messages) = run(&owner, false, statement);
        assert!(messages.contains("ERROR"), "{statement}: {rows}");
        assert_eq!(
            run(&owner, true, statement),
            (rows, messages),
            "{statement}"
        );
        assert!(!nodes(&owner, statement).is_empty(), "{statement}");
    }
}

/// Conditions of index scans and bitmap scans, of their own and on the inner side of joins.
#[test]
fn filters_above_scans_and_joins_return_the_same_rows() {
    let (owner, _server) = start();
    let _made = owner.rows("create index on sale (id); create index on sale (shop); analyze sale");
    let base = "set enable_seqscan = off; set enable_hashjoin = off; set enable_mergejoin = off;
                set enable_material = off;";
    let mut with_nodes = 0;
    for more in [
        "",
        "set enable_indexscan = off;",
        "set enable_memoize = off;",
    ] {
        for statement in INDEXED {
            let planned = format!("{base}{more} {statement}");
            let (rows, messages) = run(&owner, false, &planned);
            assert!(!messages.contains("ERROR"), "{statement}: {messages}");
            assert!(!rows.is_empty(), "{statement}");
            assert_eq!(run(&owner, true, &planned), (rows, messages), "{statement}");
            let plan = owner.rows(&format!("{base}{more} explain (costs off) {statement}"));
            with_nodes += usize::from(plan.contains("Strongroom Filter"));
        }
    }
    let all = 3 * INDEXED.len();
    assert!(with_nodes * 2 > all, "{with_nodes} of {all} have a filter");
    // A filter on the inner side of a join is above it, so that it asks about many rows together.
    let joined = INDEXED
        .iter()
        .find(|statement| statement.contains("a.shop = 2 and a.number"));
    let plan = owner.rows(&format!(
        "{base} set strongroom.batches = on; explain (analyze, costs off, timing off) {}",
        joined.expect("the statement is there")
    ));
    let (filter, join) = (plan.find("Strongroom Filter"), plan.find("Nested Loop"));
    assert!(filter.is_some() && filter < join, "{plan}");
    // A merge join goes back to a row of its inner side.
    let merged = "set enable_hashjoin = off; set enable_nestloop = off; set enable_seqscan = off;
         set enable_sort = off; set enable_material = off;";
    let statement = "select a.id, b.id from sale a join sale b on a.shop = b.shop
         where a.number = 7 and b.number = 9 and a.id < 900 and b.id < 900";
    let without = run(&owner, false, &format!("{merged} {statement}"));
    assert!(
        !without.0.is_empty() && !without.1.contains("ERROR"),
        "{without:?}"
    );
    assert_eq!(run(&owner, true, &format!("{merged} {statement}")), without);
}

#[test]
fn nodes_are_begun_again_held_and_explained() {
    let (owner, _server) = start();
    let plan = owner.rows(
        "explain (analyze, costs off, timing off, summary off) select state, count(*) from sale
         where amount > 25 and id < 2500 group by state",
    );
    for part in [
        "Custom Scan (Strongroom Aggregate)",
        "Zone Group Key: state",
        "Custom Scan (Strongroom Scan) on sale",
        "Filter: (id < 2500)",
        "Zone Filter: (amount > ",
        "Batches: ",
    ] {
        assert!(plan.contains(part), "{part}: {plan}");
    }
    let scripts = [
        // A cursor that is read in parts, and one that outlives its transaction.
        "begin; declare c cursor for select id from sale where amount > 45;
         fetch 3 from c; fetch 70 from c; fetch 2 from c; close c; commit",
        "begin; declare c cursor with hold for select state, sum(amount) from sale group by state
         order by state; fetch 1 from c; commit; fetch 2 from c; close c",
        // A statement that is prepared, with parameters, and whose plan is kept.
        "prepare p(int) as select count(*), sum(amount) from sale where shop = $1 and number > 3;
         execute p(1); execute p(2); execute p(3); execute p(1); execute p(2); execute p(3);
         execute p(0)",
        "prepare q(numeric) as select count(*) from sale where amount > $1;
         execute q(10); execute q(20); execute q(30); execute q(40); execute q(10); execute q(20);
         execute q(null)",
        // Functions that run statements of their own for each row, and that catch their errors.
        "select id, (select count(*) from sale b where b.number = 5 and b.shop = a.shop)
             from sale a where a.number = 5 and a.id < 700 order by id",
        "begin; savepoint a; select sum(1000 / number) from sale; rollback to a;
         select sum(number) from sale where amount > 3; commit",
        "select a.id, b.id from sale a, sale b where a.number = 5 and b.number = 6 and a.id < 90
             and b.id < 90 order by 1, 2",
        "begin; delete from sale where shop = 0; select count(*) from sale where amount > 5; rollback",
    ];
    for script in scripts {
        let without = run(&owner, false, script);
        assert_eq!(run(&owner, true, script), without, "{script}");
    }
}

#[test]
fn plans_that_write_or_lock_are_left_alone() {
    let (owner, _server) = start();
    for statement in [
        "select id from sale where amount > 25 for update",
        "update sale set shop = 5 where amount > 45",
        "delete from sale where amount > 45",
    ] {
        assert!(nodes(&owner, statement).is_empty(), "{statement}");
    }
    let counted = "select count(*) from sale where amount > 45 and shop = 5";
    let _updated = owner.rows("update sale set shop = 5 where amount > 45");
    assert_eq!(
        owner.rows(counted),
        owner.rows("select count(*) from sale where amount > 45")
    );
}

/// What happens when depends on the order in which conditions and results are evaluated.
#[test]
fn effects_come_in_the_order_of_the_rows() {
    let (owner, _server) = start();
    let _made = owner.rows("create sequence s; create sequence t");
    for statement in [
        "select nextval('s'); select id, nextval('s') from sale where currval('s') < 5 and number > 3",
        "select id from sale where nextval('t') > 0 and number > 3 limit 1; select currval('t') < 60",
    ] {
        let again = format!("select setval('s', 1, false), setval('t', 1, false); {statement}");
        let _rows = alike(&owner, &again);
    }
}

/// A cursor that was not told whether to scroll goes back if its plan can.
#[test]
fn cursors_go_back_as_they_did() {
    let (owner, _server) = start();
    for query in [
        "select id from sale where number = 5",
        "select id from sale where number = 5 order by id",
        "select id from (select id, number from sale offset 0) x where number = 5",
    ] {
        let statement = format!(
            "begin; declare c cursor for {query}; fetch 3 from c; fetch backward 1 from c;
             fetch 2 from c; commit"
        );
        let _rows = alike(&owner, &statement);
    }
}

/// Many small aggregations in one statement take no more of the zone's memory than their results.
#[test]
fn many_aggregations_in_one_statement() {
    let (owner, _server) = start();
    let statement = "do $$ declare n enc_numeric; begin
         for i in 1..9000 loop select sum(amount) into n from shop, sale where shop.id = sale.shop and sale.id = i; end loop;
         for i in 1..20 loop perform state, count(*) from sale where id < 100 group by state; end loop;
         perform sum(amount) from sale; end $$; select 'done'";
    assert_eq!(run(&owner, true, statement).0, "done");
}

/// Numbers in clear are grouped and ordered by their types' own operators and widths.
#[test]
fn keys_in_clear_are_compared_as_their_types_are() {
    let (owner, _server) = start();
    let _made = owner.rows(
        "create table o (k oid, n smallint, v enc_int4) using strongroom;
         insert into o values (1, -3, 1), (3000000000, 2, 2), (3000000000, -3, 3), (1, 2, null);
         analyze o",
    );
    for statement in [
        "set enable_hashagg = off; select k, sum(v) from o group by k order by k",
        "set enable_sort = off; select (k::text::oid), n, sum(v) from o group by 1, 2 order by 1, 2",
        "set enable_hashagg = off; select n, sum(v), max(n) from o group by n order by n desc",
        "select sum(n), min(n), count(distinct k) from o where v > 0",
    ] {
        let _rows = alike(&owner, statement);
    }
}

/// What a sort below an aggregation, or a condition below a join, has done besides is not lost with
/// it.
#[test]
fn what_is_replaced_has_done_no_more() {
    let (owner, _server) = start();
    let _made = owner.rows(
        "create table o (k int, s enc_text(ordered), x int, filler text) using strongroom;
         insert into o select id, 'A', 10, repeat('x', 300) from sale;
         insert into o select id, 'other', 20, '' from sale;
         create unique index on o (k, s) include (filler); create index on o (k); analyze o",
    );
    for statement in [
        // The subplan's result is kept by the sort.
        "set enable_hashagg = off; select shop, sum(amount) from (select shop, amount, number from sale
             where id > (select min(id) + 5 from shop) order by shop) s group by shop",
        "set enable_hashagg = off; select shop, sum(number) from (select shop, amount, number from sale
             where amount > (select avg(amount) from sale) order by shop) s group by shop",
        // Only with the condition is there one row for each of the other side.
        "set enable_seqscan = off; set enable_hashjoin = off; set enable_mergejoin = off; set enable_bitmapscan = off;
             select sale.id, o.x from sale join o on o.k = sale.id where o.s = 'other' and sale.id < 200 order by 1",
        "set enable_seqscan = off; set enable_hashjoin = off; set enable_mergejoin = off; set enable_bitmapscan = off;
             select sale.id from sale where id in (select k from o where s = 'other') and sale.id < 200 order by 1",
        "select count(distinct case when number > 5 then k else 3000000000::oid end) from sale,
             (select 3000000000::oid as k offset 0) x",
    ] {
        let rows = alike(&owner, statement);
        assert!(!rows.is_empty(), "{statement}");
    }
}

/// A scan does not pin so many pages that a session has no buffers left.
#[test]
fn a_sparse_scan_leaves_buffers_to_others() {
    let (owner, _server) = start();
    let statement = "set temp_buffers = '800kB';
         create temp table sparse (id int, pad char(200), v enc_int4) using strongroom;
         insert into sparse select id, 'x', number from sale, generate_series(1, 8);
         select count(*) from sparse where id % 40 = 0 and v > 0";
    let _rows = alike(&owner, statement);
}
