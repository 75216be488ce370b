//! Goal: `pg_dump` and `pg_restore` take a whole database with confidential columns along, through
//! the proxy with its values and beside it as envelopes.
//!
//! Method: server, zone and proxy, all real; PostgreSQL's own programs. A database is dumped in
//! every format, dropped and restored, and has to have the same rows, indexes, views and functions.

use std::path::Path;
use std::process::Command;

use strongroom_columns_testing::owner::{Owner, start_all};
use strongroom_columns_testing::{Server, installed};

const SCHEMA: &str = "create table staff (id int primary key, name enc_text(ordered), pay enc_numeric(10,2), born enc_date, ok enc_bool, mail enc_text(equality), city enc_text default 'Paris', note text default 'x', doc enc_jsonb) using strongroom;
    create index staff_name on staff (name);
    create unique index staff_mail on staff (mail enc_text_equality_ops);
    insert into staff (id, name, pay, born, ok, mail, doc) values (1, 'canary Ada', 10.5, '1815-12-10', true, 'ada@example.org', '{\"b\":[1.0,null],\"a\":\"\\n\"}'), (2, 'Alan', 11, null, false, 'alan@example.org', '[]'), (3, null, null, null, null, null, null);
    create table parted (id int, v enc_text) partition by range (id);
    create table part_1 partition of parted for values from (0) to (100) using strongroom;
    insert into parted values (5, 'five');
    create view seen as select id, name from staff where ok is not null;
    create function latest() returns enc_text language sql as 'select max(name) from staff';
    create materialized view kept using strongroom as select id, pay from staff";
const GONE: &str =
    "drop materialized view kept; drop function latest; drop view seen; drop table parted, staff;
    drop extension strongroom_columns";
const LOOKS: &[(&str, &str)] = &[
    (
        "select * from staff order by id",
        "1|canary Ada|10.50|1815-12-10|t|ada@example.org|Paris|x|{\"a\": \"\\n\", \"b\": [1.0, null]}\n2|Alan|11.00||f|alan@example.org|Paris|x|[]\n3||||||Paris|x|",
    ),
    ("select * from parted", "5|five"),
    ("select name from seen order by id", "canary Ada\nAlan"),
    ("select latest()", "canary Ada"),
    ("select pay from kept where id = 2", "11.00"),
    (
        "select count(*) from pg_indexes where indexname = 'staff_name'",
        "1",
    ),
    (
        "set enable_seqscan = off; select id from staff where mail = 'alan@example.org'",
        "2",
    ),
    (
        "select count(*) from pg_indexes where indexdef like 'CREATE UNIQUE%(mail %enc_text_equality_ops)'",
        "1",
    ),
];

/// Runs one of PostgreSQL's programs on the database `postgres` at the socket in `host`.
fn run(name: &str, host: &Path, arguments: &[&str]) {
    let mut command = Command::new(installed(name));
    command.args(["--username=postgres", "--host"]).arg(host);
    let done = command.args(arguments).output().expect("it can be run");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{name} {arguments:?}: {said}");
}

fn make() -> (Owner, Server) {
    let (owner, server) = start_all("");
    let said = owner.run(SCHEMA);
    assert!(!said.messages.contains("ERROR"), "{}", said.messages);
    (owner, server)
}

/// Looks at everything through the proxy, over new connections.
fn look(owner: &Owner, how: &str) {
    for (sql, expected) in LOOKS {
        assert_eq!(owner.rows(sql), *expected, "{how}: {sql}");
    }
}

#[test]
fn a_dump_through_the_proxy_has_the_values() {
    let (owner, server) = make();
    // Only who has a session can evaluate it.
    let _check = owner.rows("alter table staff add constraint abroad check (city <> 'Rome')");
    let proxy = owner.proxy_directory();
    for (format, more) in [("p", ""), ("p", "--inserts"), ("c", ""), ("d", "--jobs=2")] {
        let file = owner.path(&format!("dump-{format}{more}"));
        let file = file.to_str().expect("a path in UTF-8");
        let out = format!("--file={file}");
        let format_option = format!("--format={format}");
        let mut arguments = vec![&*format_option, &*out];
        arguments.extend(Some(more).filter(|more| !more.is_empty()));
        arguments.push("postgres");
        run("pg_dump", &proxy, &arguments);
        if format == "p" {
            let text = std::fs::read_to_string(file).expect("the dump");
            assert!(text.contains("canary Ada"), "{format}{more}: values");
        }
        let said = server.run(GONE);
        assert!(!said.messages.contains("ERROR"), "{}", said.messages);
        match (format, more) {
            ("p", _) => run(
                "psql",
                &proxy,
                &["--set=ON_ERROR_STOP=1", "--quiet", "--file", file],
            ),
            (_, "") => run("pg_restore", &proxy, &["--dbname=postgres", file]),
            _ => run(
                "pg_restore",
                &proxy,
                &["--jobs=2", "--dbname=postgres", file],
            ),
        }
        look(&owner, &format!("{format} {more}"));
        let said = owner.run("insert into staff (id, city) values (4, 'Rome')");
        assert!(
            said.messages.contains("abroad"),
            "{format} {more}: {}",
            said.messages
        );
    }
}

#[test]
fn a_dump_beside_the_proxy_has_envelopes() {
    let (owner, server) = make();
    let host = server.socket();
    let file = owner.path("dump");
    // The server's user writes nowhere that the owner's directory is.
    let file = file.to_str().expect("a path in UTF-8");
    run("pg_dump", host, &["--format=c", "--file", file, "postgres"]);
    let dump = std::fs::read(file).expect("the dump");
    let has_canary = dump.windows(6).any(|window| window == b"canary");
    assert!(!has_canary, "a value in the dump");
    let said = server.run(GONE);
    assert!(!said.messages.contains("ERROR"), "{}", said.messages);
    run("pg_restore", host, &["--dbname=postgres", file]);
    look(&owner, "beside the proxy");
    // Through the proxy its values are refused with the reason, and none is sealed twice.
    let envelope = server.rows("select name from staff limit 1");
    let said = owner.run(&format!(
        "create table again (a enc_text) using strongroom; insert into again values ('{envelope}')"
    ));
    assert!(
        said.messages.contains("beside the proxy"),
        "{}",
        said.messages
    );
    assert_eq!(owner.rows("select count(*) from again"), "0");
}
