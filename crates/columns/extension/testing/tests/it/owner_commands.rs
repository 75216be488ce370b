//! Goal: what the owner and the operator do beside SQL: the status, logging in, values in clear by
//! right.
//!
//! Method: the real command against a real server.

use std::path::Path;

use strongroom_columns_testing::Server;
use strongroom_columns_testing::owner::Owner;
use strongroom_columns_testing::setup::{address, messages, start_all_with};

#[test]
fn the_status_has_figures_and_no_values() {
    let (owner, server) = start_all_with(&[], &[]);
    drop(owner.rows(
        "create table staff (id int, name enc_text) using strongroom;
        insert into staff values (1, 'canary-lovelace'), (2, 'canary-turing');
        select id from staff where name = 'canary-turing'",
    ));
    let status = |json: bool| {
        let mut command = owner.columns();
        command.arg("status").arg("--server");
        command.arg(address(server.socket()));
        if json {
            command.arg("--json");
        }
        let output = command.output().expect("the command can be run");
        assert!(output.status.success(), "{}", messages(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let (text, json) = (status(false), status(true));
    for line in ["partitions   1", "values       2", "TICKET"] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert!(text.contains("staff"), "{text}");
    assert!(!text.contains("canary") && !json.contains("canary"));
    let told = |name: &str| json.contains(name);
    assert!(
        told("\"table\": \"staff\"") && told("\"truths\": 2"),
        "{json}"
    );
    // A user that is not pg_monitor's learns nothing.
    drop(server.rows("create role nobody login"));
    let mut command = owner.columns();
    command.args(["status", "--user", "nobody", "--server"]);
    let output = command.arg(address(server.socket())).output();
    let output = output.expect("the command can be run");
    assert_eq!(output.status.code(), Some(6), "{}", messages(&output));
}

#[test]
fn a_password_is_proved_and_not_sent() {
    let server = Server::start(
        Path::new("/nowhere"),
        "password_encryption = 'scram-sha-256'",
    );
    drop(server.rows(
        "create extension strongroom_columns; create role clerk login in role pg_monitor password 'open, sesame: a password longer than a hash has bytes, grüße';
        set password_encryption = 'md5'; create role old login password 'x'",
    ));
    let rules = "local all clerk scram-sha-256\nlocal all old md5\nlocal all all trust\n";
    let path = server.data().join("pg_hba.conf");
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(path)
        .expect("the server's rules");
    std::io::Write::write_all(&mut file, rules.as_bytes()).expect("the rules are written");
    drop(server.rows("select pg_reload_conf(), pg_sleep(0.5)"));
    let owner = Owner::new();
    let ask = |user: &str, password: &str| {
        let file = owner.path("password");
        let mut made = std::fs::File::create(&file).expect("a file of our own");
        std::io::Write::write_all(&mut made, password.as_bytes()).expect("a file of our own");
        let mut command = owner.columns();
        command.args(["status", "--user", user, "--password-file"]);
        command.arg(file).arg("--server");
        let output = command.arg(address(server.socket())).output();
        messages(&output.expect("the command can be run"))
    };
    let right = "open, sesame: a password longer than a hash has bytes, grüße\n";
    // Behind the login there is no zone.
    assert!(
        ask("clerk", right).contains("SQLSTATE 08001"),
        "{}",
        ask("clerk", right)
    );
    let wrong = ask("clerk", "open, sesame");
    assert!(wrong.contains("SQLSTATE 28P01"), "{wrong}");
    let old = ask("old", "x");
    assert!(old.contains("use scram-sha-256"), "{old}");
}

const CLEAR: &[(&str, &str)] = &[
    ("enc_bool", "true"),
    ("enc_int4", "-2147483648"),
    ("enc_int8", "9007199254740993"),
    ("enc_float8", "-0.1"),
    ("enc_numeric", "12345678901234567890.10"),
    ("enc_text", "grüße, O'Brien \\"),
    ("enc_bytea", "\\x00ff"),
    ("enc_date", "1815-12-10"),
    ("enc_timestamp", "infinity"),
    ("enc_timestamptz", "2020-02-29 23:59:59.999999+00"),
    ("enc_interval", "1 mon 2 days 03:04:05.5"),
    ("enc_uuid", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    ("enc_time", "24:00:00"),
    ("enc_jsonb", "{\"a\": [1.50, null]}"),
];

#[test]
fn values_in_clear_take_a_right_of_their_own() {
    let (mut owner, server) = start_all_with(&[], &[]);
    drop(owner.rows(
        "create table t (id int, v enc_int4, s enc_text) using strongroom; insert into t values (1, 42, 'x'), (2, 43, null);
        create table plain (id int, v int, s text); insert into plain values (3, 44, 'y')",
    ));
    let out = "select id, strongroom_columns.declassify(v), strongroom_columns.declassify(s) from t order by id";
    let into = "insert into t select id, strongroom_columns.classify(v), strongroom_columns.classify(s) from plain";
    let probe = "select t.id from t, plain where t.v < strongroom_columns.classify(plain.v)";
    for sql in [out, into, probe] {
        for said in [owner.run(sql), server.run(sql)] {
            assert!(
                said.messages.contains("SR-8006"),
                "{sql}: {}",
                said.messages
            );
            assert_eq!(said.rows, "");
        }
    }
    owner.start_proxy_with(server.socket(), &["--declassify"]);
    assert_eq!(owner.rows(out), "1|42|x\n2|43|");
    drop(owner.rows(into));
    assert_eq!(owner.rows("select id, v, s from t where id = 3"), "3|44|y");
    assert_eq!(owner.rows(probe), "1\n2");
    assert_eq!(
        owner.rows("select id from t where strongroom_columns.declassify(v) > 42 order by id"),
        "2\n3"
    );
    // Without a session of the owner's nobody has the right, whatever the last one had.
    assert!(server.run(out).messages.contains("SR-8006"));
    for (confidential, value) in CLEAR {
        let plain = &confidential[4..];
        let value = value.replace('\'', "''");
        let sql = format!(
            "set timezone = 'UTC'; select strongroom_columns.declassify(strongroom_columns.classify('{value}'::{plain})) is not distinct from '{value}'::{plain}"
        );
        assert_eq!(owner.rows(&sql), "t", "{confidential}");
    }
    // Explicit only.
    for sql in [
        "insert into plain select id, v, s from t",
        "update t set v = (select v from plain)",
        "create table other as select id from plain where v = (select v from t limit 1)",
    ] {
        let said = server.run(sql);
        let refused = ["42804", "42883"]
            .iter()
            .any(|state| said.messages.contains(state));
        assert!(refused, "{sql}: {}", said.messages);
    }
    let contexts = "select count(*), count(*) filter (where castcontext <> 'e') from pg_cast c join pg_type t on t.oid = c.castsource
        join pg_type u on u.oid = c.casttarget where t.typname like 'enc\\_%' <> (u.typname like 'enc\\_%')";
    let both_ways = 2 * CLEAR.len();
    assert_eq!(server.rows(contexts), format!("{both_ways}|0"));
}

/// The operator starts the same program with a key file and a directory of their own, and has the
/// owner's next connection led to it: its attestation is as good as that of the owner's zone.
#[test]
fn a_zone_of_somebody_else_gets_no_keys() {
    let (mut owner, server) = start_all_with(&[], &[]);
    // The first zone is taken as it is; a restart before there are values changes nothing.
    drop(owner.rows("create table staff (id int, name enc_text) using strongroom"));
    owner.kill_zone();
    owner.start_zone();
    let recovering = "select strongroom_columns.status()->'store'->>'recovering'";
    server.wait_for(recovering, "false");
    drop(owner.rows("insert into staff values (1, 'Ada')"));
    assert_eq!(owner.rows("select name from staff"), "Ada");
    let mut operator = Owner::new();
    operator.start_zone();
    let socket = operator.zone_socket();
    let lead = format!(
        "alter role postgres set strongroom.zone = '{}'",
        socket.display()
    );
    drop(server.rows(&lead));
    let said = owner.run("select 1");
    assert!(said.messages.contains("--new-zone"), "{}", said.messages);
    // Nor does a proxy that is started anew release them.
    owner.start_proxy(server.socket());
    let said = owner.run("select 1");
    assert!(said.messages.contains("--new-zone"), "{}", said.messages);
    let status = server.rows("select strongroom_columns.status()");
    assert!(status.contains("\"sessions\":0,\"keys\":0"), "{status}");
    drop(server.rows("alter role postgres reset strongroom.zone"));
    assert_eq!(owner.rows("select name from staff"), "Ada");
    // The owner may mean it.
    drop(server.rows(&lead));
    owner.start_proxy_with(server.socket(), &["--new-zone"]);
    assert_eq!(owner.rows("select 1"), "1");
}
