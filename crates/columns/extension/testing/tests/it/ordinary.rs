//! Goal: what ordinary programs write works through the proxy: statements that touch nothing
//! confidential do what they do without it, and those that do can have arrays and the time.
//!
//! Method: server, zone and proxy, all real. Scripts on plain tables, through the proxy and at the
//! server, with the same output; statements on confidential columns with their results; and no text
//! of a refused statement in the server's log.

use strongroom_columns_testing::Server;
use strongroom_columns_testing::owner::{Owner, start_all};

use crate::alike;

/// Scripts that touch nothing confidential, in a database that has confidential tables. Each leaves
/// nothing behind.
const PLAIN: &[&str] = &[
    "do $$ declare n int := 5; begin for i in 1..n loop raise notice 'row %', i; end loop; end $$",
    "create function f(a int default 5) returns int language sql as 'select a + 1'; select f(), f(7); drop function f(int)",
    "create function f() returns text language plpgsql as $$ begin execute 'create temp table x as select ''a'' as b'; return (select b || 'c' from x); end $$;
     select f(); drop function f(); drop table x",
    "create table r (a int, b text); create rule w as on insert to r where new.a > 5 do instead nothing;
     insert into r values (5, 'x'), (6, 'y'); select * from r; drop table r",
    "create domain positive as int check (value > 0); select 5::positive; select (-5)::positive; drop domain positive",
    "create table g (a int, b int generated always as (a * 2) stored, c text default 'none', check (a < 100));
     insert into g (a) values (5); insert into g (a) values (500); table g; drop table g",
    "prepare s(int) as select $1 + 1; execute s(41); deallocate s; execute s(41)",
    "prepare s as select 'x' as y; create table e as execute s; table e; drop table e; deallocate s",
    "create table t1 (a int); create publication u for table t1 where (a > 5); drop publication u; drop table t1",
    "create function tr() returns trigger language plpgsql as $$ begin new.a := new.a + 1; return new; end $$;
     create table t1 (a int); create trigger g before insert on t1 for each row execute function tr();
     insert into t1 values (1); table t1; drop table t1; drop function tr()",
    "create view w as select 'x' as a, 5 as b; select * from w where a = 'x'; drop view w",
    "create sequence q start 5; select nextval('q'), setval('q', 50); drop sequence q",
    "select * from nowhere where a = 'x'",
    "selec 'x'",
    "select 'x' frm y",
    "select 1 / 0",
    "begin; savepoint a; create table t1 (a text); rollback to a; insert into t1 values ('x'); rollback",
    "declare c cursor with hold for select n from generate_series(1, 5) n; fetch 2 from c; move 1 in c; fetch all from c; close c",
    "create type mood as enum ('sad', 'ok'); create table t1 (m mood); insert into t1 values ('sad'); select * from t1 where m = 'sad'; drop table t1; drop type mood",
    "create type pair as (a int, b text); select (row(1, 'x')::pair).b; drop type pair",
    "select * from unnest(array[1, 2], array['a', 'b']) with ordinality; select array_agg(n) from generate_series(1, 3) n",
    "select to_char(timestamp '2024-02-29 12:00', 'YYYY'), now() = now(), current_date = current_date, extract(year from date '2024-02-29')",
    "set standard_conforming_strings = on; select 'a\\b'",
    "copy (values (1, 'a'), (2, 'b')) to stdout with (format csv, force_quote *)",
    "explain (costs off) select 1 where 'a' = 'b'",
    "create temp table t1 (a int); comment on table t1 is 'x'; insert into t1 select n from generate_series(1, 3) n; select sum(a) from t1; drop table t1",
];

#[test]
fn plain_statements_do_what_they_do_at_the_server() {
    let (owner, server) = start_all("log_statement = all");
    let _made = owner.rows(
        "create table staff (id int, name enc_text, pay enc_int4) using strongroom;
         insert into staff values (1, 'canary-name', 5)",
    );
    for script in PLAIN {
        let direct = server.run(script);
        let through = owner.run(script);
        assert_eq!(
            (through.rows, through.messages),
            (direct.rows, direct.messages),
            "{script}"
        );
    }
    for script in [
        "do $$ begin update staff set name = 'canary-do'; end $$",
        "create function f() returns int language sql as $$ select 1 from staff where name = 'canary-f' $$",
        "do $$ begin execute 'update ' || 'staff set name = ''canary-do'''; end $$",
        "create rule w as on update to staff do also select 'canary-rule'",
        "update staff set name = 'canary-syntax' whre id = 1",
        "prepare s(text) as update staff set name = $1; execute s('canary-prepared')",
        "create function h(enc_text) returns int language sql as 'select 1'\\; select h('canary-h')",
        "begin\\; drop table staff\\; create table staff (id int, name text)\\; rollback\\; update staff set name = 'canary-back'",
        "set standard_conforming_strings = off\\; insert into staff values (2, 'a\\'', 5) -- canary-string'",
    ] {
        let said = owner.run(script);
        assert!(!said.rows.contains("canary"), "{script}: {}", said.rows);
    }
    assert_eq!(
        owner.rows("select count(*), max(name) from staff"),
        "1|canary-back",
        "after the rollback the table is the confidential one again"
    );
    let log = std::fs::read_to_string(server.log()).expect("the server's log");
    assert!(!log.contains("canary"), "a text in the log");
}

#[test]
fn arrays_and_the_time_meet_confidential_columns() {
    let (owner, server) = start_all("timezone = 'Europe/Rome'");
    let _made = owner.rows(
        "create table staff (id int, name enc_text, pay enc_int4, at enc_timestamptz, born enc_date, seen enc_timestamp) using strongroom",
    );
    let insert =
        "insert into staff (id, name, pay) select * from unnest($1::int[], $2::text[], $3::int[])";
    let mut client = owner.connect().expect("a connection");
    let values = [
        Some("{1,2,3}"),
        Some("{a,\"b c\",NULL}"),
        Some("{10,20,30}"),
    ];
    let done = client.execute(insert, &values).expect("an array each");
    assert_eq!(done.changed(), 3);
    let conditions = [
        ("name = any($1)", "{a,c}", "1"),
        ("name = any($1::text[])", "{a,\"b c\"}", "2"),
        ("pay <> all($1::int[])", "{10,11}", "2"),
        ("id = any($1::int[])", "{1,2}", "2"),
        ("pay in (select u from unnest($1::int[]) u)", "{30,20}", "2"),
    ];
    alike::counts(&mut client, "staff", &conditions);
    what_constants_and_the_clock_find(&owner, &server);
}

/// Constants that are arrays, and functions that tell the time, on the rows of the test.
fn what_constants_and_the_clock_find(owner: &Owner, server: &Server) {
    for (sql, expected) in [
        (
            "select count(*) from staff where name = any('{a,\"b c\"}')",
            "2",
        ),
        (
            "select count(*) from staff where name = any('{a}'::varchar[])",
            "1",
        ),
        (
            "select count(*) from staff where pay = any(array[10, 30])",
            "2",
        ),
        (
            "select array_agg(name order by id) from staff",
            "{a,\"b c\",NULL}",
        ),
        (
            "update staff set at = now(), born = current_date, seen = localtimestamp",
            "",
        ),
        (
            "select count(*) from staff where at <= now() and at > now() - interval '1 hour'",
            "3",
        ),
        (
            "select count(*) from staff where born >= current_date - 1",
            "3",
        ),
        (
            "select count(*) from staff where seen > localtimestamp - interval '1 hour' and seen <= localtimestamp",
            "3",
        ),
        (
            "select count(*) from staff where at < statement_timestamp() - interval '1 day'",
            "0",
        ),
    ] {
        assert_eq!(owner.rows(sql), expected, "{sql}");
    }
    what_time_zones_find(owner);
    // What the server's clock says of the same moment, in the session's time zone.
    let shown = owner.rows("select at, seen, born from staff where id = 1");
    let parts: Vec<&str> = shown.split('|').collect();
    assert!(
        parts[0].starts_with(parts[1].get(..19).unwrap_or("none")),
        "{shown}"
    );
    let near = format!(
        "select abs(extract(epoch from now() - '{}'::timestamptz)) < 60, '{}'::date in (current_date, current_date - 1)",
        parts[0], parts[2]
    );
    assert_eq!(server.rows(&near), "t|t");
    // One time for a transaction, as at the server.
    let same = "begin; update staff set at = now() where id = 1; select pg_sleep(0.01);
         update staff set at = now() where id = 2; commit; select count(distinct at) from staff where id < 3";
    assert!(
        owner.rows(same).ends_with('1'),
        "two times in one transaction"
    );
}

#[test]
fn regular_expressions_are_searched_for() {
    let (owner, _server) = start_all("");
    let _made = owner.rows(
        "create table staff (id int, name enc_text) using strongroom;
         insert into staff values (1, 'Ada Lovelace'), (2, 'alan turing'), (3, 'Grace')",
    );
    for (condition, expected) in [
        ("name ~ '^A'", "1"),
        ("name ~* '^a'", "1,2"),
        ("name !~ '\\mT|e$'", "2"),
        ("name !~* '[[:space:]]'", "3"),
        ("name::varchar ~ '^[^ ]+$' or id = 2", "2,3"),
    ] {
        let sql =
            format!("select string_agg(id::text, ',' order by id) from staff where {condition}");
        assert_eq!(owner.rows(&sql), expected, "{condition}");
    }
    for (condition, state) in [("name ~ '(a'", "2201B"), ("name ~ '(a)\\1'", "0A000")] {
        let said = owner.run(&format!("select id from staff where {condition}"));
        assert!(
            said.messages.contains(state),
            "{condition}: {}",
            said.messages
        );
    }
}

/// Time zones that a statement names, on the rows of the test.
fn what_time_zones_find(owner: &Owner) {
    for (sql, expected) in [
        (
            "insert into staff (id, at, seen) values (9, '2024-07-01 22:30:00+00', '2024-07-01 22:30:00')",
            "",
        ),
        (
            "select at at time zone 'Asia/Kolkata', seen at time zone 'Asia/Kolkata' from staff where id = 9",
            "2024-07-02 04:00:00|2024-07-01 19:00:00+02",
        ),
        (
            "select date_trunc('day', at, 'UTC'), (at at time zone 'America/New_York')::date, ascii('\u{e9}' || id) from staff where id = 9",
            "2024-07-01 02:00:00+02|2024-07-01|233",
        ),
        (
            "select count(*) from staff where id = 9 and extract(hour from at at time zone 'Asia/Kolkata') = 4",
            "1",
        ),
        (
            "select count(*) from staff where seen < now() at time zone 'Asia/Kolkata'",
            "4",
        ),
        ("delete from staff where id = 9", ""),
    ] {
        assert_eq!(owner.rows(sql), expected, "{sql}");
    }
}

#[test]
fn a_connection_that_makes_the_extension_has_a_session() {
    let (owner, server) = start_all("");
    let _gone = server.rows("drop extension strongroom_columns cascade");
    let mut client = owner.connect().expect("a connection");
    for sql in [
        "create extension strongroom_columns",
        "create table staff (id int, name enc_text(ordered)) using strongroom",
        "insert into staff values (1, 'a')",
    ] {
        let _done = client.query(sql).expect(sql);
    }
    assert_eq!(owner.rows("select name || 'b' from staff"), "ab");
}

#[test]
fn other_connections_know_what_one_has_made_confidential() {
    let (owner, server) = start_all("log_statement = all");
    let _made = owner.rows("create table later (id int, note text) using strongroom");
    let mut other = owner.connect().expect("a connection");
    let insert = "insert into later values (1, 'canary-told')";
    let _plain = other.query("select count(*) from later").expect("a count");
    let mut one = owner.connect().expect("a connection");
    let change = "begin; alter table later drop note, add note enc_text; commit";
    let _changed = one.query(change).expect("a change");
    let mut within = owner.connect().expect("a connection");
    let _begun = within.query("begin; select 1").expect("a transaction");
    let mut setting = owner.connect().expect("a connection");
    let _begun = setting.query("begin;").expect("a transaction");
    let change = "alter table later rename note to notes; alter table later add note enc_text";
    let _changed = one.query(change).expect("a change");
    // The catalog is not read before it, which would be a query of the transaction.
    let first = "-- the first\nset transaction isolation level serializable;";
    let _set = setting
        .query(first)
        .expect("a transaction's first statement");
    let second = "insert into later (id, note) values (2, 'canary-within'); commit";
    let _inserted = within.query(second).expect("a row");
    let back = "delete from later where id = 2; alter table later drop note; alter table later rename notes to note";
    let _back = one.query(back).expect("a change");
    // The first connection sends nothing more.
    let _inserted = other.query(insert).expect("a row");
    assert_eq!(owner.rows("select * from later"), "1|canary-told");
    let log = std::fs::read_to_string(server.log()).expect("the server's log");
    assert!(!log.contains("canary"), "a text in the log");
}
