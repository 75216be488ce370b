//! Goal: the owner of a key sees what the server was told under it, by whose connections, and what
//! they limit stays limited whatever connects, and whatever is killed.
//!
//! Method: the real command against a real server; many connections, a zone that is killed.

use std::process::Output;

use strongroom_columns_testing::Server;
use strongroom_columns_testing::owner::{Owner, start_all};
use strongroom_columns_testing::setup::{address, messages};

/// Runs the command with these options.
fn run_ledger(owner: &Owner, server: &Server, options: &[&str]) -> Output {
    let mut command = owner.columns();
    command.args(["ledger", "--key-id", "columns"]);
    command.args(["--accept-process-attestation", "--server"]);
    command.arg(address(server.socket())).args(options);
    command.output().expect("the command can be run")
}

/// Runs the command with these options and returns what it prints.
fn ledger(owner: &Owner, server: &Server, options: &[&str]) -> String {
    let output = run_ledger(owner, server, options);
    assert!(output.status.success(), "{}", messages(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// How many answers the lines of a ledger have together.
fn answers(ledger: &str) -> u64 {
    let lines = ledger.lines().skip(2);
    let counts = lines.map(|line| {
        let fields = line.split("  ").filter(|field| !field.is_empty());
        let count = fields.map(str::trim).nth(2);
        let count = count.and_then(|count| count.parse::<u64>().ok());
        count.expect("a line with a count of answers")
    });
    counts.sum()
}

const STAFF: &str = "create table staff (id int, salary enc_int4) using strongroom;
    insert into staff values (1, 1000), (2, 2000), (3, 3000), (4, 4000)";

/// Asks by a new connection; whether it was told.
fn is_told(owner: &Owner) -> bool {
    let output = owner.run("select count(*) from staff where salary > 2500");
    let refused = output.messages.contains("ERROR");
    assert_eq!(
        refused,
        output.messages.contains("SR-8007"),
        "{}",
        output.messages
    );
    !refused
}

#[test]
fn the_owner_sees_who_was_told_and_limits_it_for_good() {
    let (mut owner, server) = start_all("");
    drop(owner.rows(STAFF));
    assert!(is_told(&owner));
    let text = ledger(&owner, &server, &[]);
    let before = answers(&text);
    assert!(before >= 4, "{text}");
    assert!(text.starts_with("key columns, version 1 ("), "{text}");
    assert!(
        text.contains("no limit") && text.contains("@postgres"),
        "{text}"
    );
    assert!(
        text.contains("columns ledger"),
        "the owner's own sessions: {text}"
    );

    // A limit of all connections together, each of which is a new session under a new ticket.
    let text = ledger(&owner, &server, &["--answers", "40"]);
    assert!(text.contains("0 of 40 answers since"), "{text}");
    let told = (0..40).take_while(|_| is_told(&owner)).count();
    assert!((1..=10).contains(&told), "{told} times");
    let spent = answers(&ledger(&owner, &server, &[])) - before;
    assert!(spent <= 40, "{spent}");

    // Nor does a zone that is killed forget it.
    owner.kill_zone();
    owner.start_zone();
    server.wait_for(
        "select (strongroom_columns.status()::json->'store'->>'recovering')",
        "false",
    );
    assert!(!is_told(&owner), "after a kill");
    let after = ledger(&owner, &server, &["--json"]);
    assert!(after.contains("\"answers\": 40"), "{after}");

    drop(ledger(&owner, &server, &["--no-limit"]));
    assert!(is_told(&owner));
    let text = ledger(
        &owner,
        &server,
        &["--answers", "100000", "--period", "3600"],
    );
    assert!(text.contains(" of 100000 answers in 3600 s from"), "{text}");
    assert!(is_told(&owner));
}

#[test]
fn nobody_else_sees_or_limits_it() {
    let (owner, server) = start_all("");
    drop(owner.rows(STAFF));
    assert!(is_told(&owner));
    // Somebody with a key of their own, and the server's superuser by name.
    let stranger = Owner::new();
    let text = ledger(&stranger, &server, &[]);
    assert!(text.contains("nothing was told"), "{text}");
    drop(ledger(
        &stranger,
        &server,
        &["--answers", "0", "--outputs", "0"],
    ));
    assert!(is_told(&owner), "another key's limit");
    assert!(answers(&ledger(&owner, &server, &[])) >= 8);
    // The status has no names.
    let status = server.rows("select strongroom_columns.status()");
    assert!(!status.contains("@postgres"), "{status}");
}

#[test]
fn values_that_leave_are_limited() {
    let (owner, server) = start_all("");
    drop(owner.rows(STAFF));
    drop(ledger(&owner, &server, &["--outputs", "4"]));
    assert_eq!(
        owner.rows("select salary from staff order by id").trim(),
        "1000\n2000\n3000\n4000"
    );
    let output = owner.run("select salary from staff where id = 1");
    assert!(output.messages.contains("SR-8007"), "{}", output.messages);
    let text = ledger(&owner, &server, &[]);
    assert!(text.contains("4 of 4 values"), "{text}");
    // Monitoring is told by the exit code, and sees the ledgers all the same.
    let output = run_ledger(&owner, &server, &["--require-left", "10", "--json"]);
    assert_eq!(output.status.code(), Some(6), "{}", messages(&output));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains("SR-8130") && text.contains("\"lines\""),
        "{text}"
    );
    drop(ledger(
        &owner,
        &server,
        &["--outputs", "40", "--require-left", "100"],
    ));
    // What is wrong with the options is said before anything is asked.
    for (options, told) in [
        (&["--period", "60"][..], "--period needs"),
        (&["--no-limit", "--answers", "5"][..], "cannot be used with"),
        (&["--answers", "many"][..], "invalid value"),
        (&["--require-left", "0"][..], "invalid value"),
    ] {
        let mut command = owner.columns();
        command.args([
            "ledger",
            "--key-id",
            "columns",
            "--server",
            "/nowhere/at/all",
        ]);
        let output = command
            .args(options)
            .output()
            .expect("the command can be run");
        assert_eq!(output.status.code(), Some(2), "{}", messages(&output));
        assert!(messages(&output).contains(told), "{}", messages(&output));
    }
}
