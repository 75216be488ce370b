//! Goal: a column of class equality has unique and other indexes that need no session, answers
//! queries of its owner like every other column, and shows the server which of its values are
//! equal, but no order.
//!
//! Method: server, zone and proxy, all real; answers are compared with those of plain tables.

use strongroom_columns_testing::Server;
use strongroom_columns_testing::owner::{Owner, start_all};

/// A table of people with an e-mail address that is unique.
fn people() -> (Owner, Server) {
    let (owner, server) = start_all("");
    let _made = owner.rows(
        "create table people (id int primary key, tenant int, email enc_text(equality), badge enc_numeric(8, 2, equality)) using strongroom;
         create unique index people_email on people (email enc_text_equality_ops);
         create index people_badge on people (tenant, badge enc_numeric_equality_ops)",
    );
    let rows: Vec<String> = (1..=200)
        .map(|n| format!("({n}, {}, 'p{n:03}@example.org', {}.50)", n % 3, n % 10))
        .collect();
    let _filled = owner.rows(&format!("insert into people values {}", rows.join(", ")));
    (owner, server)
}

#[test]
fn an_index_finds_equal_values_and_keeps_them_unique() {
    let (owner, server) = people();
    let by_index = "set enable_seqscan = off; set enable_bitmapscan = off;";
    for (sql, rows) in [
        (
            "select id from people where email = 'p042@example.org'",
            "42",
        ),
        (
            "select id from people where email = 'nobody@example.org'",
            "",
        ),
        (
            "select id from people where email in ('p007@example.org', 'p150@example.org', 'x') order by id",
            "7\n150",
        ),
        (
            "select count(*) from people where tenant = 1 and badge = 4.5",
            "7",
        ),
        (
            "select count(*) from people where tenant = 1 and badge = 4.500",
            "7",
        ),
    ] {
        let plan = owner.rows(&format!("{by_index} explain (costs off) {sql}"));
        assert!(plan.contains("using people_"), "{sql}: {plan}");
        assert_eq!(owner.rows(&format!("{by_index} {sql}")), rows, "{sql}");
    }
    owner.fails(
        "insert into people values (300, 1, 'p042@example.org', 1)",
        "duplicate key value violates unique constraint",
    );
    let upsert = "insert into people values (301, 9, 'p042@example.org', 1)
        on conflict (email) do update set tenant = excluded.tenant";
    let _updated = owner.rows(upsert);
    assert_eq!(
        owner.rows("select id, tenant, email from people where tenant = 9"),
        "42|9|p042@example.org"
    );
    let _moved = owner.rows("update people set email = 'ada@example.org' where id = 1");
    assert_eq!(
        owner.rows(&format!(
            "{by_index} select id from people where email = 'ada@example.org'"
        )),
        "1"
    );
    // Without a session the server rebuilds, cleans and checks the indexes.
    let _kept = server.rows(
        "delete from people where id between 50 and 60; vacuum people; reindex table people; vacuum full people; analyze people;
         cluster people using people_email; create extension amcheck; select bt_index_check('people_email', true)",
    );
    assert_eq!(
        owner.rows(&format!(
            "{by_index} select id from people where email = 'p150@example.org'"
        )),
        "150"
    );
}

/// Ways to have the planner choose indexes, sorts and each kind of join.
const PLANNING: &[&str] = &[
    "set enable_seqscan = off; set enable_hashjoin = off; set enable_sort = off; set enable_hashagg = off;",
    "set enable_seqscan = off; set enable_hashjoin = off; set enable_nestloop = off;",
    "set enable_hashjoin = off; set enable_mergejoin = off; set enable_seqscan = off;",
    "",
];

/// Statements whose plans could take the index's order for the order of values, with their rows.
const SORTED: &[(&str, &str)] = &[
    (
        "select min(email), max(email) from people",
        "p001@example.org|p200@example.org",
    ),
    (
        "select count(*) from people where email < 'p010@example.org'",
        "9",
    ),
    (
        "select count(*) from people where email > 'p190@example.org'",
        "10",
    ),
    (
        "select count(*), count(distinct p.email) from people p join visits v on p.email = v.person",
        "100|50",
    ),
    (
        "select p.id, v.day from people p join visits v on p.email = v.person where v.day in (3, 77) order by 2",
        "4|3\n28|77",
    ),
    (
        "select count(*) from people p left join visits v on p.email = v.person where v.day is null",
        "150",
    ),
    (
        "select count(*) from (select distinct person from visits) d",
        "50",
    ),
    (
        "select tenant, count(*) from people where tenant > 0 and badge = 3.5 group by tenant order by tenant",
        "1|7\n2|6",
    ),
    (
        "select email from people where email in ('p003@example.org', 'p001@example.org', 'p002@example.org') order by email desc",
        "p003@example.org\np002@example.org\np001@example.org",
    ),
];

#[test]
fn no_plan_takes_the_keyed_order_for_another() {
    let (owner, _server) = people();
    let _plain = owner.rows(
        "create table visits (person enc_text(equality), badge enc_numeric(8, 2), day int) using strongroom;
         create index visits_person on visits (person enc_text_equality_ops)",
    );
    let rows: Vec<String> = (1..=100)
        .map(|n| format!("('p{:03}@example.org', {}.50, {n})", n % 50 + 1, n % 10))
        .collect();
    let _filled = owner.rows(&format!("insert into visits values {}", rows.join(", ")));
    let emails: Vec<String> = (1..=200).map(|n| format!("p{n:03}@example.org")).collect();
    for planning in PLANNING {
        let sorted = owner.rows(&format!(
            "{planning} select email from people order by email"
        ));
        assert_eq!(sorted, emails.join("\n"), "{planning}");
        for (sql, rows) in SORTED {
            assert_eq!(
                owner.rows(&format!("{planning} {sql}")),
                *rows,
                "{planning} {sql}"
            );
        }
    }
}

/// What the operator asks without a session.
#[test]
fn without_a_session_the_server_learns_which_values_are_equal() {
    let (owner, server) = people();
    for sql in [
        "select id from people order by email",
        "select a.id from people a join people b on a.email < b.email",
        "select a.id from people a join people b on a.badge = b.badge",
        "select min(email) from people",
        "select badge, count(*) from people group by badge",
        "select count(distinct badge) from people",
        "select a.id from people a join people b on a.email like b.email",
        "select * from people where row(email, id) > row(email, 0) order by email",
    ] {
        server.fails(sql, "SR-8006");
    }
    // Operators that the server may define itself get at no more than the keyed order.
    let _made = server.rows(
        "create function keyed(enc_text, enc_text) returns int as 'strongroom_columns', 'strongroom_keyed_cmp' language c immutable strict;
         create function less(enc_text, enc_text) returns boolean as $$ select enc_text_keyed_cmp($1, $2) < 0 $$ language sql immutable",
    );
    let order = "select id from people a order by (select count(*) from people b where less(b.email, a.email))";
    let found = server.rows(order);
    let ids: Vec<u32> = found
        .lines()
        .map(|id| id.parse().unwrap_or_default())
        .collect();
    assert_eq!(ids.len(), 200);
    assert!(!ids.is_sorted() && !ids.iter().rev().is_sorted());
    let runs = ids
        .windows(2)
        .filter(|pair| pair.first() < pair.last())
        .count();
    assert!((60..140).contains(&runs), "{runs} of 199 neighbours ascend");
    assert_eq!(
        server.rows("select count(*) from people a join people b on enc_numeric_keyed_cmp(a.badge, b.badge) = 0 where a.id < 11 and b.id < 21"),
        "20"
    );
    // Not between columns, and not with what the server chooses.
    let _two = owner.rows(
        "create table guests (email enc_text(equality), note enc_text) using strongroom; insert into guests values ('p001@example.org', 'p001@example.org')",
    );
    for sql in [
        "select enc_text_keyed_cmp(g.email, p.email) from guests g, people p",
        "select enc_text_keyed_cmp(g.note, g.note) from guests g, people p where enc_text_keyed_cmp(g.note, p.email) = 0",
        "insert into people select 900, 1, note from guests",
        "insert into people select 900, 1, email from guests",
    ] {
        server.fails(sql, "SR-8006");
    }
    owner.fails(
        "insert into people select 900, 1, note from guests",
        "SR-8031",
    );
    owner.fails(
        "update people set email = email || 'x' where id = 1",
        "SR-8031",
    );
}

/// The elements of an array are of several columns, which have no order in common.
#[test]
fn an_array_of_several_columns_finds_each_row_once() {
    let (owner, _server) = people();
    let names = |from: u32| {
        let names = (from..from + 40).map(|n| format!("('p{n:03}@example.org')"));
        names.collect::<Vec<String>>().join(", ")
    };
    let _made = owner.rows(&format!(
        "create table guests (email enc_text(equality)) using strongroom; create table visits (person enc_text(equality)) using strongroom;
         insert into guests values {}; insert into visits values {}",
        names(1),
        names(11)
    ));
    for planning in PLANNING {
        let found = owner.rows(&format!(
            "{planning} select count(*), count(distinct id) from people where email = any (array(select email from guests union all select person from visits))"
        ));
        assert_eq!(found, "50|50", "{planning}");
    }
}

/// ANALYZE learns how many values there are, and not which is less.
#[test]
fn statistics_need_no_session() {
    let (_owner, server) = people();
    let ask = "select attname, n_distinct from pg_stats where tablename = 'people' and attname in ('email', 'badge') order by attname";
    let _analyzed = server.rows("analyze people");
    assert_eq!(server.rows(ask), "badge|10\nemail|-1");
}

/// The same rows, whether the answers for a page are asked together or one by one.
#[test]
fn equality_without_a_session_is_answered_in_every_plan() {
    let (_owner, server) = people();
    for planning in [
        "set enable_hashjoin = off; set enable_mergejoin = off; set enable_indexscan = off; set enable_bitmapscan = off;",
        "set enable_hashjoin = off; set enable_mergejoin = off;",
    ] {
        let found = server.rows(&format!(
            "{planning} select count(*) from people a join people b on a.email = b.email and a.id < 20"
        ));
        assert_eq!(found, "19", "{planning}");
    }
}

#[test]
fn definitions_that_show_more_are_refused() {
    let (owner, server) = people();
    for (sql, message) in [
        ("create index on people (email)", "needs the operator class"),
        (
            "alter table people add unique (email)",
            "needs the operator class",
        ),
        (
            "create table t (v enc_text(equality) primary key) using strongroom",
            "needs the operator class",
        ),
        (
            "create index on people using hash (email)",
            "a hash index on a confidential column is not offered",
        ),
        (
            "create table b (v enc_bool(equality)) using strongroom",
            "cannot have the class equality",
        ),
        (
            "create table t (v enc_text(equality) unique) using strongroom",
            "needs the operator class",
        ),
        (
            "create table t (v enc_text) using strongroom; create index on t (v enc_text_equality_ops)",
            "an index on an opaque column is not offered",
        ),
        (
            "alter table people alter email type enc_text(ordered)",
            "the class of a column cannot be changed",
        ),
        (
            "alter table people alter email type enc_text",
            "the class of a column cannot be changed",
        ),
        (
            "create table t (v enc_text(equality, ordered)) using strongroom",
            "invalid type modifier",
        ),
    ] {
        server.fails(sql, message);
    }
    // By hand in the catalog: the column says ordered, and its values do not.
    let _forced = server.rows(
        "set allow_system_table_mods = on;
         update pg_attribute set atttypmod = 536870912 where attrelid = 'people'::regclass and attname = 'email'",
    );
    server.fails("create index on people (email)", "SR-8006");
    assert_eq!(
        owner.rows("select format_type(atttypid, atttypmod) from pg_attribute where attname = 'badge' and attrelid = 'people'::regclass"),
        "enc_numeric(8,2,equality)"
    );
}

/// Expressions, which could have identifiers of two columns, or in an order that is not theirs.
#[test]
fn no_index_is_on_an_expression() {
    let (owner, server) = start_all("");
    let _two = owner.rows("create table pair (a enc_text(equality), b enc_text(equality), o enc_text) using strongroom");
    for expression in [
        "(coalesce(a, b)) enc_text_equality_ops",
        "(coalesce(a, a)) enc_text_equality_ops",
        "(coalesce(a, a))",
        "(coalesce(o, o))",
        "(case when o is null then a else a end)",
        "(array[a])",
        "(a = b)",
        "(pair)",
        "(pair.*)",
        "(pair is null)",
    ] {
        let message = "an index on an expression with a confidential column is not offered";
        server.fails(&format!("create index on pair ({expression})"), message);
        server.fails(
            &format!("create index on pair ({expression}) where a is not null"),
            message,
        );
    }
    for method in ["hash", "gin"] {
        let sql = format!("create index on pair using {method} ((array[a]))");
        server.fails(&sql, "an index on an expression with a confidential column");
    }
    let _null = server.rows("create index on pair (a enc_text_equality_ops) where o is not null");
}

/// A dump without a session, its restoration, and foreign keys.
#[test]
fn dumps_and_foreign_keys_keep_their_indexes() {
    let (owner, server) = people();
    let _made = owner.rows(
        "create table claims (person enc_text(equality) references people (email), amount int) using strongroom;
         insert into claims values ('p005@example.org', 3)",
    );
    owner.fails(
        "insert into claims values ('nobody@example.org', 3)",
        "violates foreign key constraint",
    );
    owner.fails(
        "delete from people where id = 5",
        "violates foreign key constraint",
    );
    let definition = "select indexdef from pg_indexes where indexname = 'people_email'";
    assert!(server.rows(definition).contains("enc_text_equality_ops"));
}
