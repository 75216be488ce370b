//! Goal: an operator, a role without rights or a zone that does not answer can neither stop the log from being read nor hold the server up;
//! a rewrite page by page keeps a table's values together whatever crashes (lifecycle).
//!
//! Method: server, zone and proxy, all real; the zone is stopped with SIGSTOP where it must not answer.

use std::process::Command;
use std::time::{Duration, Instant};

use strongroom_columns_testing::Server;
use strongroom_columns_testing::owner::Owner;

fn begin() -> (Owner, Server) {
    let mut owner = Owner::new();
    owner.start_zone();
    let server = Server::start(&owner.zone_socket(), "");
    assert_eq!(server.rows("create extension strongroom_columns"), "");
    owner.start_proxy(server.socket());
    (owner, server)
}

/// Asks until the answer is this one: the log is being read for a while after a start.
fn until(owner: &Owner, sql: &str, expected: &str) {
    let begun = Instant::now();
    loop {
        let said = owner.run(sql);
        if said.rows == expected && !said.messages.contains("ERROR") {
            return;
        }
        assert!(
            begun.elapsed().as_secs() < 60,
            "{sql}: {} {}",
            said.rows,
            said.messages
        );
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn messages_of_others_in_the_log_are_passed_over() {
    let (mut owner, server) = begin();
    drop(owner.rows(
        "create table t (id int, v enc_text) using strongroom; insert into t values (1, 'one')",
    ));
    let forge = "create role nobody login; set role nobody;
        select pg_logical_emit_message(false, 'strongroom', 'hello') is not null;
        select pg_logical_emit_message(true, 'strongroom', repeat('x', 3000000)) is not null;
        select pg_logical_emit_message(false, 'strongroom', decode(repeat('00', 200), 'hex')) is not null";
    assert_eq!(server.rows(forge), "t\nt\nt");
    drop(owner.rows("insert into t values (2, 'two')"));
    owner.kill_zone();
    owner.start_zone();
    until(&owner, "select v from t order by id", "one\ntwo");
    let log = std::fs::read_to_string(server.log()).expect("the server's log");
    assert!(
        log.contains("a message named strongroom that the zone did not write"),
        "{log}"
    );
}

#[test]
fn a_rewrite_page_by_page_keeps_a_table_in_one_partition() {
    let (mut owner, server) = begin();
    let rows: Vec<String> = (1..=200)
        .map(|n| format!("({n}, {})", n * 7 % 100))
        .collect();
    drop(owner.rows(&format!(
        "create table t (id int primary key, v enc_int4) using strongroom; create index on t (v);
         insert into t values {}",
        rows.join(", ")
    )));
    let ask = "select count(*), sum(v), min(v), max(v) from t";
    let expected = owner.rows(ask);
    drop(server.rows("vacuum full t"));
    owner.kill_zone();
    server.crash_and_start();
    owner.start_zone();
    until(&owner, ask, &expected);
    drop(owner.rows("insert into t values (201, 5); delete from t where id = 201"));
    // Without a session: values of two partitions could not be compared.
    drop(server.rows("reindex table t"));
    assert_eq!(
        server.rows("select count(*) from (select v from t order by v) s"),
        "200"
    );

    // A rewrite that aborts leaves everything as it was, and what follows is in the same partition still.
    drop(server.rows("begin; cluster t using t_pkey; rollback"));
    let said = server.run("begin; cluster t using t_pkey; prepare transaction 'p'");
    assert!(
        said.messages.contains("cannot be prepared"),
        "{}",
        said.messages
    );
    let broken = "create table u (id int primary key deferrable initially deferred);
        begin; cluster t using t_pkey; insert into u values (1), (1); commit";
    assert!(server.run(broken).messages.contains("23505"));
    drop(owner.rows("insert into t values (202, 6); delete from t where id = 202"));
    drop(server.rows("reindex table t; cluster t using t_pkey; reindex table t"));
    assert_eq!(owner.rows(ask), expected);
}

#[test]
fn statistics_of_expressions_are_refused() {
    let (owner, server) = begin();
    drop(owner.rows("create table t (id int, v enc_int4) using strongroom"));
    for sql in [
        "create statistics s (mcv) on (coalesce(v, v)), id from t",
        "create statistics s on (v + v) from t",
        "create statistics s on (v is null), (case when id > 1 then v end) from t",
    ] {
        let said = server.run(sql);
        assert!(said.messages.contains("0A000"), "{sql}: {}", said.messages);
    }
    drop(server.rows("create statistics s on (id + 1), (id % 2) from t; analyze t"));
}

#[test]
fn a_zone_that_does_not_answer_holds_neither_the_end_of_transactions_nor_a_shutdown_up() {
    let (owner, server) = begin();
    let tables: String = (0..6)
        .map(|n| {
            format!(
                "create table t{n} (v enc_int4) using strongroom; insert into t{n} select null;"
            )
        })
        .collect();
    drop(
        owner
            .rows("create table first (v enc_int4) using strongroom; insert into first values (1)"),
    );
    let begun = Instant::now();
    let script = format!(
        "begin; {tables} \\! kill -STOP {}\nrollback;",
        owner.zone_pid()
    );
    let said = server.run(&script);
    let waited = begun.elapsed();
    let stopped = Instant::now();
    let stop = server.stop_fast(Duration::from_secs(30));
    let signal = Command::new("kill")
        .args(["-CONT", &owner.zone_pid().to_string()])
        .status();
    assert!(signal.is_ok_and(|status| status.success()));
    assert!(!said.messages.contains("PANIC"), "{}", said.messages);
    assert!(
        waited < Duration::from_secs(9),
        "a ROLLBACK of six tables: {waited:?}"
    );
    assert!(stop, "a fast shutdown: {:?}", stopped.elapsed());
}
