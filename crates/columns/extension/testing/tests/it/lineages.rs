//! Goal: what may be learned of a column without its owner's session is what its type says, and
//! nothing that an operator does decides what the owner's values are compared with.
//!
//! Method: server, zone and proxy, all real; the operator is a superuser at the server. Each attack
//! was one that worked, or is one of its kind.

use strongroom_columns_testing::Server;
use strongroom_columns_testing::owner::{Owner, start_all};

/// A table with an opaque and an ordered column.
fn staff() -> (Owner, Server) {
    let (owner, server) = start_all("");
    let _made = owner.rows(
        "create table staff (id int primary key, sick enc_bool, salary enc_int4, grade enc_int4(ordered)) using strongroom;
         insert into staff values (1, true, 4711, 3), (2, false, 42, 9), (3, true, 99, 5)",
    );
    (owner, server)
}

#[test]
fn an_opaque_column_says_nothing_without_a_session() {
    let (owner, server) = staff();
    for column in ["sick", "salary"] {
        for sql in [
            format!("select id from staff order by {column}"),
            format!("select a.id from staff a join staff b on a.{column} < b.{column}"),
            format!("select count(distinct {column}) from staff"),
            format!("select count(*) from staff group by {column}"),
            // Copies into tables of the operator's own are as opaque as the column.
            format!(
                "create temp table mine using strongroom as select {column} from staff; select count(*) from mine group by {column}"
            ),
        ] {
            server.fails(&sql, "SR-8006");
        }
        server.fails(
            &format!("create index on staff ({column})"),
            "an index on an opaque column is not offered",
        );
        server.fails(
            &format!("alter table staff add unique ({column})"),
            "an index on an opaque column is not offered",
        );
    }
    // Nor do they become ordered by what the operator says of them.
    server.fails(
        "alter table staff alter salary type enc_int4(ordered)",
        "the class of a column cannot be changed where it is",
    );
    server.fails(
        "create table b (v enc_bool(ordered)) using strongroom",
        "a confidential boolean cannot be ordered",
    );
    // By hand in the catalog, with an index that is made of nothing.
    let _forced = server.rows(
        "set allow_system_table_mods = on;
         update pg_attribute set atttypmod = 536870912 where attrelid = 'staff'::regclass and attname = 'salary'",
    );
    server.fails("create index on staff (salary)", "SR-8006");
    let _back = server.rows(
        "update pg_attribute set atttypmod = -1 where attrelid = 'staff'::regclass and attname = 'salary'",
    );
    // What needs no comparison works: copies, dumps, VACUUM, rewrites; ANALYZE goes on without.
    let _kept = server.rows("vacuum full staff; vacuum staff; analyze staff");
    assert_eq!(
        owner.rows("select sick, salary from staff order by salary"),
        "f|42\nt|99\nt|4711"
    );
    assert_eq!(
        server.rows("select id from staff order by grade"),
        "1\n3\n2"
    );
    let _index =
        server.rows("create index on staff (grade); reindex table staff; vacuum full staff");
    assert_eq!(owner.rows("select id from staff where grade = 5"), "3");
}

/// An operator puts copies of values that they know into the table that the owner fills next.
#[test]
fn known_values_are_not_put_beside_the_owner_s() {
    let (owner, server) = staff();
    let _known = owner.rows(
        "create table item (id int, quantity enc_int4(ordered)) using strongroom;
         insert into item values (1, 10), (2, 20), (3, 30)",
    );
    for graft in [
        "create table pay (id int, v enc_int4(ordered)) using strongroom; insert into pay select id, quantity from item",
        "truncate pay; insert into pay select id, quantity from item",
        "drop table pay; create table pay (id int, v enc_int4(ordered)) using strongroom; alter table item rename to held; alter table pay rename to item; insert into item select id, quantity from held; alter table item rename to pay; alter table held rename to item",
    ] {
        let _grafted = server.rows(graft);
        owner.fails("insert into pay values (4, 17)", "SR-8031");
        owner.fails("update pay set v = 17 where id = 1", "SR-8031");
        owner.fails("copy pay from stdin;\n4\t17\n\\.\n", "SR-8031");
        assert_eq!(server.rows("select count(*) from pay"), "3", "{graft}");
    }
    // What was there before is taken away, and the owner goes on.
    let _emptied = server.rows("truncate pay");
    let _filled = owner.rows("insert into pay values (4, 17), (5, 4)");
    server.fails("insert into pay select id, quantity from item", "SR-8006");
    assert_eq!(server.rows("select id from pay order by v"), "5\n4");
    // The values of another column, as they stand in a dump.
    let envelope = server.rows("select quantity from item where id = 1");
    server.fails(
        &format!("insert into pay values (6, '{envelope}')"),
        "SR-8006",
    );
}

/// A trigger of the operator's computes in the owner's session, and stores what it has computed.
#[test]
fn what_a_trigger_computes_is_no_ruler() {
    let (owner, server) = staff();
    let _trap = server.rows(
        "create table ruler (v enc_int4(ordered), w enc_int4) using strongroom;
         create function trap() returns trigger language plpgsql as $$
         begin insert into ruler (v) select salary / salary + salary - salary from staff limit 1; return new; end $$;
         create trigger trap after insert on staff for each row execute function trap()",
    );
    owner.fails("insert into staff values (4, false, 1, 1)", "SR-8031");
    assert_eq!(server.rows("select count(*) from ruler"), "0");
    // Neither in a column that has values, nor with a constant that was meant for another one.
    for body in [
        "update staff set grade = grade + grade where id = 1",
        "update staff set grade = new.salary where id = 1",
        "insert into ruler (v) values (new.salary)",
    ] {
        let _trap = server.rows(&format!(
            "create or replace function trap() returns trigger language plpgsql as $$ begin {body}; return new; end $$;
             truncate ruler"
        ));
        owner.fails("insert into staff values (4, false, 1, 1)", "SR-8031");
    }
    // In an opaque column it is compared by nobody without a session.
    let _trap = server.rows(
        "create or replace function trap() returns trigger language plpgsql as $$
         begin insert into ruler (w) values (new.salary), (new.salary + new.salary); return new; end $$",
    );
    let _stored = owner.rows("insert into staff values (4, false, 7, 1)");
    server.fails("select 1 from ruler order by w", "SR-8006");
    assert_eq!(owner.rows("select w from ruler order by w"), "7\n14");
}

/// The shapes in which applications store: all of them name the column.
#[test]
fn ordered_columns_take_what_applications_store() {
    let (owner, server) = start_all("");
    let _made = owner.rows(
        "create table t (id int primary key, n enc_numeric(8, 2, ordered), b enc_int8(ordered), s enc_text(ordered), d enc_date(ordered)) using strongroom;
         create unique index on t (s); create index on t (n); create index on t (b, d);
         insert into t values (1, 5, 6, 'one', '2026-01-01'), (2, 7.255, 3000000000, 'two', '2025-01-01');
         insert into t select 3, 1.5, 2, 'three', date '2024-01-01';
         insert into t (id, s) values (1, 'uno') on conflict (id) do update set s = excluded.s, b = 9;
         update t set n = coalesce(null, 4.999), s = case when id = 2 then 'due' else s end where id = 2;
         copy t from stdin;\n4\t8.125\t1\tfour\t2023-01-01\n\\.\n",
    );
    assert_eq!(
        owner.rows("select id, n, b, s, d from t order by n"),
        "3|1.50|2|three|2024-01-01\n1|5.00|9|uno|2026-01-01\n2|5.00|3000000000|due|2025-01-01\n4|8.13|1|four|2023-01-01"
    );
    owner.fails("insert into t values (5, 1234567.5)", "22003");
    owner.fails("insert into t (id, s) values (5, 'four')", "23505");
    owner.fails("update t set n = n + 1", "SR-8031");
    owner.fails("insert into t (id, b) select 6, b + 1 from t", "SR-8031");
    // A table that is filled from an ordered column has its order; copies go on without a session.
    let _archive = owner.rows(
        "create table archive (id int, s enc_text(ordered)) using strongroom; insert into archive select id, s from t",
    );
    assert_eq!(
        server.rows("select id from archive order by s"),
        "2\n4\n3\n1"
    );
    owner.fails("insert into archive values (9, 'nine')", "SR-8031");
    // Partitions are named by their table, temporary tables by themselves.
    let _parts = owner.rows(
        "create table p (k int, v enc_int4(ordered)) partition by list (k);
         create table p1 partition of p for values in (1) using strongroom;
         create table p2 partition of p for values in (2) using strongroom;
         create index on p (v);
         insert into p values (1, 5), (2, 6); insert into p1 values (1, 4); update p set v = 7 where v = 5;
         update p2 set v = 8; update p set k = 1 where k = 2",
    );
    assert_eq!(owner.rows("select k, v from p order by v"), "1|4\n1|7\n1|8");
    let temporary =
        "create temp table w (v enc_int4(ordered)) using strongroom; create index on w (v);
         insert into w values (3), (1); insert into pg_temp.w values (2)";
    assert_eq!(
        owner.rows(&format!("{temporary}; select v from w order by v")),
        "1\n2\n3"
    );
}

/// Names change: the owner says what a column was called, to proxies that run.
#[test]
fn a_renamed_column_is_known_by_its_former_name() {
    let (owner, server) = staff();
    let pins = |arguments: &[&str]| {
        let status = owner.columns().arg("pins").args(arguments).status();
        assert!(status.is_ok_and(|status| status.success()), "{arguments:?}");
    };
    let _renamed = owner.rows("alter table staff rename grade to level");
    let change = "update staff set level = 1 where id = 1";
    owner.fails(change, "SR-8031");
    pins(&["--adopt", "public.staff.level=public.staff.grade"]);
    let _stored = owner.rows(&format!(
        "{change}; insert into staff (id, level) values (4, 2)"
    ));
    assert_eq!(
        server.rows("select id from staff order by level"),
        "1\n4\n3\n2"
    );
    let shown = owner.columns().arg("pins").output().expect("it can be run");
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(
        shown.contains("public.staff.level  has the lineage of postgres.public.staff.grade"),
        "{shown}"
    );
    // Back again, and to a table of another name.
    let _renamed =
        owner.rows("alter table staff rename level to grade; alter table staff rename to people");
    let _seen = owner.rows("select count(*) from people");
    pins(&["--adopt", "public.people.grade=public.staff.grade"]);
    let _stored = owner.rows("insert into people (id, grade) values (5, 4)");
    // A table that is filled with another one's values and takes its place has them under its name.
    let _swapped = owner.rows(
        "create table copy (like people) using strongroom; insert into copy select * from people;
         drop table people; alter table copy rename to staff;
         insert into staff (id, grade) values (6, 6)",
    );
    assert_eq!(
        server.rows("select id from staff order by grade"),
        "1\n4\n5\n3\n6\n2"
    );
}

/// Names change past the proxy: the owner says what a column was called.
#[test]
fn a_renamed_column_is_adopted() {
    let (mut owner, server) = staff();
    let _renamed = server.rows("alter table staff rename grade to level");
    let change = "update staff set level = 1 where id = 1";
    owner.fails(change, "SR-8107");
    let forgotten = owner
        .columns()
        .args(["pins", "--forget", "public.staff"])
        .status();
    assert!(forgotten.is_ok_and(|status| status.success()));
    owner.fails(change, "SR-8031");
    owner.start_proxy_with(
        server.socket(),
        &["--adopt", "public.staff.level=public.staff.grade"],
    );
    let _stored = owner.rows(
        "update staff set level = 1 where id = 1; insert into staff (id, level) values (4, 2)",
    );
    assert_eq!(
        server.rows("select id from staff order by level"),
        "1\n4\n3\n2"
    );
    // A pinned column is what its owner says, whatever the catalog says.
    owner.start_proxy_with(server.socket(), &["--pin", "public.staff.level"]);
    owner.fails("select 1", "SR-8106");
    owner.start_proxy_with(
        server.socket(),
        &[
            "--pin",
            "public.staff.level:ordered",
            "--pin",
            "public.staff.salary",
        ],
    );
    assert_eq!(owner.rows("select count(level) from staff"), "4");
}

/// What a dump restores without a session is the owner's column, and takes the owner's values.
#[test]
fn a_restored_table_goes_on() {
    let (owner, server) = staff();
    let copied = server.rows("copy staff to stdout");
    let _restored = server.rows(&format!(
        "drop table staff; create table staff (id int, sick enc_bool, salary enc_int4, grade enc_int4(ordered)) using strongroom;
         copy staff from stdin;\n{copied}\n\\.\n"
    ));
    let _more =
        owner.rows("insert into staff values (4, true, 1, 1); create index on staff (grade)");
    assert_eq!(
        owner.rows("select id, salary, grade from staff order by grade"),
        "4|1|1\n1|4711|3\n3|99|5\n2|42|9"
    );
}
