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
        "delete from sale where id % 10 = 3; update sale set number = 7 where id % 50 = 1; analyze sale",
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
    "select note, min(weight) from sale group by note having max(price) > 90000 and count(*) > 2 order by note limit 5",
    "select sum(number) from sale group by id having sum(number) > 12 order by id",
];

/// Statements in which what excludes a failing row comes first, or that end before it.
const GUARDED: &[&str] = &[
    "select count(*) from sale where number <> 0 and 1000 / number > 100",
    "select count(*) from sale where number = 0 or 1000 / number > 100",
    "select sum(case when number = 0 then 0 else 1000 / number end) from sale",
    "select id from sale where number > 0 and 1000 / number > 5 limit 3",
];

/// Runs a statement with the nodes or without them.
fn run(owner: &Owner, nodes: bool, statement: &str) -> (String, String) {
    let setting = if nodes { "on" } else { "off" };
    let said = owner.run(&format!("set strongroom.batches = {setting}; {statement}"));
    (said.rows, said.messages)
}

/// The names of this extension's nodes in a statement's plan.
fn nodes(owner: &Owner, statement: &str) -> Vec<&'static str> {
    let plan = owner.rows(&format!("explain (costs off) {statement}"));
    let known = ["Strongroom Scan", "Strongroom Aggregate"];
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
