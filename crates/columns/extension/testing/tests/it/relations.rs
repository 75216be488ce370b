//! Goal: which column a constant goes into by its place is what the owner's proxy has learned, not
//! what the server says now.
//!
//! Method: server, zone and proxy, all real. The operator exchanges columns past the proxy; the
//! owner changes tables through it, in every way in which applications do.

use std::time::Duration;

use strongroom_columns_testing::Server;
use strongroom_columns_testing::owner::{Owner, start_all};
use strongroom_testing_support::process::patiently;

/// Runs `strongroom columns pins` with these arguments, and returns what it prints.
#[track_caller]
fn pins(owner: &Owner, arguments: &[&str]) -> String {
    let mut command = owner.columns();
    let done = command.arg("pins").args(arguments).output();
    let done = done.expect("the command can be run");
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    String::from_utf8_lossy(&done.stdout).into_owned()
}

/// What the operator does, the statements with which the owner would show a text in clear, and what
/// the proxy says of it.
const EXCHANGES: &[(&str, &str)] = &[
    (
        "alter table t rename body to x; alter table t rename city to body; alter table t rename x to city",
        "column 2 of public.t was \"body\" (enc_text), and is \"city\" (enc_text)",
    ),
    (
        "alter table t drop body, add body text",
        "column 2 of public.t was \"body\" (enc_text), and is \"city\" (plain)",
    ),
    (
        "alter table t rename to held; create table t (id int, body text, city text)",
        "column 2 of public.t was \"body\" (enc_text), and is \"body\" (plain)",
    ),
    (
        "alter table t rename to held; create view t as select id, city as body, body as city from held",
        "column 2 of public.t was \"body\" (enc_text), and is \"body\" (plain)",
    ),
];

#[test]
fn columns_that_are_exchanged_past_the_proxy_get_nothing() {
    let (owner, server) = start_all("log_statement = all");
    let made = "create table t (id int, body enc_text, city text) using strongroom;
         insert into t values (1, 'canary-body', 'Rome')";
    let _made = owner.rows(made);
    for (exchange, why) in EXCHANGES {
        let _exchanged = server.rows(exchange);
        for sql in [
            "insert into t values (2, 'canary-body', 'Rome')",
            "insert into t (id, body, city) values (2, 'canary-body', 'Rome')",
            "insert into t select 2, 'canary-body', 'Rome'",
            "update t set body = 'canary-body'",
            "copy t from stdin;\n2\tcanary-body\tRome\n\\.\n",
            "select * from t as f(a, b, c) where b = 'canary-body'",
        ] {
            owner.fails(sql, "SR-8107");
            owner.fails(sql, why);
        }
        // Its owner looks, takes it as it is, and makes it what it was.
        let shown = pins(&owner, &[]);
        assert!(
            shown.contains(" public.t ") && shown.contains(" id plain, body enc_text, city plain"),
            "{shown}"
        );
        // It is a view or a table now.
        for drop in ["drop view t", "drop table t", "drop table if exists held"] {
            let _dropped = server.run(drop);
        }
        assert_eq!(pins(&owner, &["--forget", "public.t"]), "");
        let _again = owner.rows(made);
    }
    let log = std::fs::read_to_string(server.log()).expect("the server's log");
    assert!(!log.contains("canary"), "a text in the log");
    what_has_the_name_of_one_that_is_gone(&owner, &server);
    what_a_function_is_given(&owner, &server);
    let log = std::fs::read_to_string(server.log()).expect("the server's log");
    assert!(!log.contains("canary"), "a text in the log");
    // What is not asked about can be anything.
    let _plain = server.rows("create table u (a int); alter table u rename a to b");
    assert_eq!(owner.rows("select count(*) from u"), "0");
    let refused = owner
        .columns()
        .args(["pins", "--forget", "public.never"])
        .output();
    assert!(refused.is_ok_and(|refused| refused.status.code() == Some(2)));
}

/// The operator takes the table away, and a relation in another schema is found by its name.
fn what_has_the_name_of_one_that_is_gone(owner: &Owner, server: &Server) {
    let insert = "insert into t values (2, 'canary-body', 'Rome')";
    let others = [
        "create table other.t (id int, body text, city text)",
        "create view other.t as select id, city as body, body as city from held",
    ];
    for other in others {
        let away = "create schema other; alter table t rename to held;
             alter database postgres set search_path to public, other";
        let _away = server.rows(&format!("{away}; {other}"));
        owner.fails(insert, "SR-8107");
        owner.fails(
            insert,
            "public.t is gone, and another relation has its name",
        );
        let back = "drop schema other cascade; alter table held rename to t;
             alter database postgres reset search_path";
        let _back = server.rows(back);
        // The view has a confidential column, and was learned.
        if other.contains("view") {
            assert_eq!(pins(owner, &["--forget", "other.t"]), "");
        }
        let _stored = owner.rows("insert into t values (3, 'canary-body', 'Rome')");
    }
    // The same with a temporary table, in the session that has made it.
    let mut session = owner.connect().expect("a connection");
    for sql in [
        "create temp table draft (body enc_text) using strongroom",
        "insert into draft values ('canary-body')",
    ] {
        let _done = session.query(sql).expect(sql);
    }
    let schema =
        server.rows("select relnamespace::regnamespace from pg_class where relname = 'draft'");
    let _exchanged = server.rows(&format!(
        "drop table {schema}.draft; create table draft (body text)"
    ));
    // For some 10 seconds the proxy relies on what it has read of the catalog: until then the name
    // is the temporary table's, whose constants are confidential.
    let refused = patiently(Duration::from_secs(20), || {
        let said = session.query("insert into draft values ('canary-body')");
        said.is_err_and(|error| format!("{error:?}").contains("SR-8107"))
    });
    assert!(refused, "the name is refused");
}

/// The operator replaces a function with confidential arguments by one with plain ones.
fn what_a_function_is_given(owner: &Owner, server: &Server) {
    let confidential = "create function note(enc_text) returns int language sql as 'select 1'";
    let plain = "create function note(text) returns int language sql as 'select length($1)'";
    let _made = server.rows(confidential);
    assert_eq!(owner.rows("select note('canary-body')"), "1");
    let _replaced = server.rows(&format!("drop function note(enc_text); {plain}"));
    // It is given the text of an envelope.
    assert_ne!(owner.run("select note('canary-body')").rows.trim(), "11");
    assert!(pins(owner, &[]).contains(" note() "));
    assert_eq!(pins(owner, &["--forget", "note()"]), "");
    assert_eq!(owner.rows("select note('plain')"), "5");
    // What is dropped through the proxy needs no word.
    let _made = server.rows(&format!("drop function note(text); {confidential}"));
    assert_eq!(owner.rows("select note('canary-body')"), "1");
    let _dropped = owner.rows("drop function note(enc_text)");
    let _made = server.rows(plain);
    assert_eq!(owner.rows("select note('plain')"), "5");
}

#[test]
fn what_its_owner_changes_is_learned() {
    let (owner, server) = start_all("");
    let _made = owner.rows(
        "create table t (id int primary key, body enc_text, city text) using strongroom;
         insert into t values (1, 'one', 'Rome');
         alter table t drop city, add born enc_date;
         insert into t values (2, 'two', '2000-01-01');
         alter table t rename body to title;
         update t set title = 'zwei' where id = 2",
    );
    assert_eq!(
        owner.rows("select title, born from t order by id"),
        "one|\nzwei|2000-01-01"
    );
    // A change that is taken back, and one that another connection does not see yet.
    let mut one = owner.connect().expect("a connection");
    for sql in [
        "begin",
        "alter table t drop title",
        "insert into t values (3, '2001-01-01')",
    ] {
        let _done = one.query(sql).expect("a change");
    }
    let _elsewhere =
        owner.rows("create table u (a enc_int4) using strongroom; insert into u values (1)");
    let _undone = one.query("rollback").expect("its end");
    let _stored = one
        .query("insert into t values (3, 'three', '2001-01-01')")
        .expect("a row");
    assert_eq!(owner.rows("select count(title) from t"), "3");
    // Another table of the name, made by its owner.
    let _again = owner.rows(
        "drop table t; create table t (a enc_int4, b int) using strongroom; insert into t values (5, 6)",
    );
    assert_eq!(owner.rows("select a, b from t"), "5|6");
    // New columns behind the others, by whomever; and tables that are new.
    let _more = server.rows(
        "alter table t add c enc_text, add d int; create table w (a enc_int4) using strongroom",
    );
    let _stored = owner.rows("insert into t values (7, 8, 'nine', 10); insert into w values (1)");
    // Views, partitions, temporary tables.
    let _views = owner.rows(
        "create view v as select a, b from t; insert into v values (1, 2);
         create or replace view v as select a, b, c from t; drop view v; create view v as select b, a from t;
         insert into v values (3, 4);
         create table p (k int, x enc_int4) partition by list (k);
         create table p1 partition of p default using strongroom;
         insert into p values (1, 2);
         alter table p drop x, add y enc_text; insert into p values (1, 'y'); insert into p1 values (2, 'z');
         create temp table draft (b enc_text) using strongroom; insert into draft values ('temporary')",
    );
    let _other = owner.rows("create temp table draft (c int, b enc_text) using strongroom; insert into draft values (1, 'other')");
    assert_eq!(owner.rows("select y from p order by k"), "\ny\nz");
}
