//! Goal: defaults and checks of confidential columns have constants, which the server never sees.
//!
//! Method: server, zone and proxy, all real. Tables are made and altered as migrations do it, rows
//! written with and without values, and the server's catalog and log searched for the constants.

use strongroom_columns_testing::owner::start_all;

const TABLE: &str = "create table staff (id int, name enc_text default 'canary-name', pay enc_numeric(10,2) default 1234.5 check (pay > 1000.25),
        age enc_int4 default 41 + 1, born enc_date default '2000-02-29', at enc_timestamp default '2000-02-29 12:00',
        share enc_float8 default 0.5, big enc_int8 default 5000000000, raw enc_bytea default '\\x0102', ok enc_bool default false,
        note text default 'plain') using strongroom";

#[test]
fn constants_of_definitions_are_sealed() {
    let (owner, server) = start_all("log_statement = all");
    let _made = owner.rows(TABLE);
    let _row = owner.rows("insert into staff (id) values (1)");
    let row =
        "1|canary-name|1234.50|42|2000-02-29|2000-02-29 12:00:00|0.5|5000000000|\\x0102|f|plain";
    assert_eq!(owner.rows("select * from staff"), row);
    let said = owner.run("insert into staff (id, pay) values (2, 1000.25)");
    assert!(said.messages.contains("23514"), "{}", said.messages);
    let said = owner.run(
        "alter table staff add constraint grown check (age >= 18);
        insert into staff (id, age) values (3, 17)",
    );
    assert!(said.messages.contains("grown"), "{}", said.messages);
    let _set = owner.rows("alter table staff alter name set default 'canary-other'");
    let _row = owner.rows("insert into staff (id, age) values (4, 18)");
    let rows = "1|canary-name\n4|canary-other";
    assert_eq!(owner.rows("select id, name from staff order by id"), rows);
    // Without a session the server has envelopes, and cannot evaluate the check.
    let kept = "select string_agg(pg_get_expr(adbin, adrelid), ' ') from pg_attrdef where adrelid = 'staff'::regclass";
    let kept = server.rows(kept);
    assert!(kept.contains("enc_text_constant('sr1:"), "{kept}");
    assert!(
        !kept.contains("canary") && !kept.contains("1234.5"),
        "{kept}"
    );
    let said = server.run("insert into staff (id) values (5)");
    assert!(said.messages.contains("SR-8006"), "{}", said.messages);
    assert!(
        !server.log_text().contains("canary"),
        "a constant in the log"
    );
}

#[test]
fn what_is_no_envelope_of_the_type_is_no_constant() {
    let (owner, server) = start_all("");
    let _made = owner.rows("create table staff (name enc_text default 'canary') using strongroom; insert into staff default values");
    let kept = server.rows(
        "select pg_get_expr(adbin, adrelid) from pg_attrdef where adrelid = 'staff'::regclass",
    );
    let envelope = kept.split('\'').nth(1).expect("an envelope").to_owned();
    let opened = |function: &str, text: &str| {
        server.run(&format!(
            "select strongroom_columns.{function}('{text}') is null"
        ))
    };
    let said = opened("enc_text_constant", &envelope);
    assert_eq!(said.rows, "f", "{}", said.messages);
    let (middle, end) = (envelope.len() / 2, envelope.len());
    let other = if &envelope[middle..=middle] == "A" {
        "B"
    } else {
        "A"
    };
    let flipped = format!("{}{other}{}", &envelope[..middle], &envelope[middle + 1..]);
    for (function, text, state) in [
        ("enc_text_constant", flipped.as_str(), "22P03"),
        ("enc_text_constant", &envelope[..end - 4], "22P0"),
        ("enc_text_constant", &envelope[..12], "22P02"),
        ("enc_text_constant", "canary", "22P02"),
        ("enc_int4_constant", envelope.as_str(), "42804"),
    ] {
        let said = opened(function, text);
        assert!(
            said.messages.contains(state),
            "{function}({text}): {}",
            said.messages
        );
        let shown = said
            .messages
            .lines()
            .any(|line| line.starts_with("ERROR") && line.contains("canary"));
        assert!(!shown, "a text in an error");
    }
}

#[test]
fn migrations_add_columns_with_defaults() {
    let (owner, server) = start_all("");
    let made = "create table plain (id int); insert into plain values (1), (2);
        create table staff (id int, name enc_text) using strongroom; insert into staff values (1, 'a'), (2, 'b')";
    let _made = owner.rows(made);
    // As Django writes it, in one transaction and text.
    let migration = "begin; alter table staff add column active enc_bool default true not null;
        alter table staff alter column active drop default; commit";
    let said = owner.run(migration);
    assert!(!said.messages.contains("ERROR"), "{}", said.messages);
    assert_eq!(
        owner.rows("select name, active from staff order by id"),
        "a|t\nb|t"
    );
    let said = owner.run("insert into staff values (3, 'c')");
    assert!(said.messages.contains("23502"), "{}", said.messages);
    // Each row has a value of its own, also after the zone and the server were started again.
    let _changed = owner.rows("update staff set active = false where id = 1");
    server.stop();
    server.start_again();
    assert_eq!(
        owner.rows("select name, active from staff order by id"),
        "a|f\nb|t"
    );
    // A parameter, and the time at which a row is written, cannot be kept.
    for refused in [
        "alter table staff add column seen enc_timestamptz default now()",
        "alter table staff add column key enc_text(ordered) default lower('CANARY')",
    ] {
        let said = owner.run(refused);
        assert!(
            said.messages.contains("SR-81"),
            "{refused}: {}",
            said.messages
        );
    }
}

/// Comparable columns have defaults too.
#[test]
fn comparable_columns_have_defaults() {
    let (owner, server) = start_all("log_statement = all");
    let _made = owner.rows(
        "create table staff (id int primary key, grade enc_int4(ordered) default 4711, mail enc_text(equality) default 'canary',
             pay enc_numeric(8, 2, ordered) default 1.005) using strongroom;
         create index on staff (grade); create unique index on staff (pay);
         insert into staff (id) values (1);
         insert into staff values (2, 5000, 'other', 2), (3, 3, 'canary', 3)",
    );
    assert_eq!(
        owner.rows("select * from staff order by grade"),
        "3|3|canary|3.00\n1|4711|canary|1.01\n2|5000|other|2.00"
    );
    assert_eq!(
        server.rows("select id from staff order by grade"),
        "3\n1\n2"
    );
    owner.fails("insert into staff (id) values (4)", "23505");
    // A migration adds one to a table with rows.
    let _migrated = owner.rows(
        "begin; alter table staff add column rank enc_int8(ordered) default 8 not null; commit;
         insert into staff (id, pay) values (4, 4);
         alter table staff alter rank set default 9;
         insert into staff (id, pay) values (5, 5);
         insert into staff (id, pay, rank) values (6, 6, 7)",
    );
    assert_eq!(
        owner.rows("select id, rank from staff order by rank, id"),
        "6|7\n1|8\n2|8\n3|8\n4|8\n5|9"
    );
    // Parts have their table's default, and one of their own.
    let _parts = owner.rows(
        "create table p (k int, v enc_int4(ordered) default 5) partition by list (k);
         create table p1 partition of p for values in (1) using strongroom;
         create table p2 partition of p (v default 6) for values in (2) using strongroom;
         insert into p (k) values (1), (2); insert into p2 (k) values (2)",
    );
    assert_eq!(
        owner.rows("select k, v from p order by k, v"),
        "1|5\n2|5\n2|6"
    );
    // The default of one column is no value of another one.
    let default = "select pg_get_expr(adbin, adrelid) from pg_attrdef where adrelid = 'staff'::regclass and adnum = 2";
    let default = server.rows(default);
    let _moved = server.rows(&format!(
        "alter table staff alter rank set default {default}::enc_int8"
    ));
    owner.fails("insert into staff (id, pay) values (7, 7)", "SR-8031");
    assert!(
        !server.log_text().contains("canary"),
        "a constant in the log"
    );
}

/// PostgreSQL keeps what a stable expression gives in the catalog, for all rows that there are.
#[test]
fn a_default_that_the_catalog_would_keep_is_refused() {
    let (owner, server) = start_all("");
    let _made = owner.rows(
        "create table staff (id int, name enc_text, pay enc_int4) using strongroom; insert into staff values (1, 'canary', 7), (2, 'other', 8);
         create table u (id int) using strongroom; insert into u values (1), (2)",
    );
    let _functions = server.rows(
        "create function a_stored_name() returns enc_text language sql stable as 'select name from staff where id = 1';
         create function no_name() returns enc_text language sql stable as 'select null::enc_text';
         create function a_new_name() returns enc_text language sql volatile as 'select name from staff where id = 1'",
    );
    server.fails(
        "alter table u add column name enc_text default a_stored_name()",
        "computed once for all rows",
    );
    let kept = "select count(*) from pg_attribute where attrelid in ('u'::regclass, 'staff'::regclass) and atthasmissing";
    assert_eq!(server.rows(kept), "0");
    // What is computed for each row, or for none, is stored as every value is.
    for added in [
        "alter table u add column a enc_text default a_new_name()",
        "alter table u add column b enc_text default no_name()",
        "alter table u add column c enc_text; alter table u alter c set default a_stored_name()",
        "alter table u add column d int default 5",
        "create table w (id int, name enc_text default a_stored_name()) using strongroom",
    ] {
        let said = server.run(added);
        assert!(
            !said.messages.contains("ERROR"),
            "{added}: {}",
            said.messages
        );
    }
    let _added = owner.rows("alter table u add column name enc_text default 'constant'");
    let _gone = owner.rows("drop table staff cascade");
    let rows = "select id, a, b is null, c is null, d, name from u order by id";
    assert_eq!(
        owner.rows(rows),
        "1|canary|t|t|5|constant\n2|canary|t|t|5|constant"
    );
}
