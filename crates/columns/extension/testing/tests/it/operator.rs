//! Goal: an operator, a role without rights or a zone that does not answer can neither stop the log
//! from being read nor hold the server up; a rewrite page by page keeps a table's values together
//! whatever crashes (lifecycle).
//!
//! Method: server, zone and proxy, all real; the zone is stopped with SIGSTOP where it must not
//! answer.

use std::process::Command;
use std::time::{Duration, Instant};

use strongroom_columns_testing::Server;
use strongroom_columns_testing::owner::Owner;

fn begin() -> (Owner, Server) {
    let mut owner = Owner::new();
    owner.start_zone();
    let server = Server::start(&owner.zone_socket(), "");
    assert_eq!(server.rows("create extension strongroom_columns"), "");
    owner.start_proxy_deriving(server.socket());
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
        "create table t (id int primary key, v enc_int4(ordered)) using strongroom; create index on t (v);
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

    // A rewrite that aborts leaves everything as it was, and what follows is in the same partition
    // still.
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

/// Without a session values of two columns, constants and results cannot be put into one column,
/// where they could be compared.
#[test]
fn columns_and_constants_cannot_be_put_side_by_side() {
    let (owner, server) = begin();
    drop(owner.rows(
        "create table emp (id int primary key, salary enc_int4(ordered), bonus enc_int4) using strongroom;
         insert into emp values (1, 4711, 37), (2, 42, 4711), (3, 99, 1)",
    ));
    drop(server.rows("create table probe (src text, v enc_int4(ordered)) using strongroom"));
    drop(server.rows("insert into probe select 'salary', salary from emp"));
    let refused = |sql: &str| {
        let said = server.run(sql);
        assert!(
            said.messages.contains("SR-8006"),
            "{sql}: {}",
            said.messages
        );
    };
    refused("insert into probe select 'bonus', bonus from emp");
    refused("update probe set v = (select bonus from emp where id = 2)");
    refused("update emp set salary = bonus");
    // As envelopes it is no other: a dump of one column, a dump of another, a constant that was
    // seen in the log.
    let envelope = |sql: &str| {
        let text = server.rows(sql);
        assert!(text.starts_with("sr1:"), "{text}");
        text
    };
    let salary = envelope("select salary from emp where id = 1");
    let bonus = envelope("select bonus from emp where id = 1");
    drop(server.rows(&format!("insert into probe values ('dump', '{salary}')")));
    refused(&format!("insert into probe values ('dump', '{bonus}')"));
    refused(&format!("update emp set salary = '{bonus}' where id = 2"));
    let fresh = "create table fresh (v enc_int4) using strongroom";
    drop(server.rows(fresh));
    drop(server.rows(&format!("insert into fresh values ('{bonus}')")));
    refused(&format!("insert into fresh values ('{salary}')"));
    // What was taken from one column only can be ordered, as by an index on it.
    assert_eq!(
        server.rows("select count(*) from (select v from probe order by v) s"),
        "4"
    );
    assert_eq!(
        owner.rows("select salary from emp order by id"),
        "4711\n42\n99"
    );
    // The owner may.
    drop(owner.rows("insert into probe select 'bonus', bonus from emp; update emp set bonus = salary where id = 3"));
    assert_eq!(
        owner.rows("select src, v from probe order by v, src"),
        "bonus|1\nbonus|37\nsalary|42\nsalary|99\nbonus|4711\ndump|4711\nsalary|4711"
    );
}

/// Its rows would have identifiers of values that go with the other one's rows.
#[test]
fn a_database_with_confidential_tables_is_no_template() {
    let (owner, server) = begin();
    let refused = |sql: &str, message: &str| {
        let said = server.run(sql);
        assert!(
            said.messages.contains("0A000") && said.messages.contains(message),
            "{sql}: {}",
            said.messages
        );
    };
    for sql in [
        "create database empty",
        "create database copy template empty",
    ] {
        assert_eq!(server.run(sql).messages, "", "{sql}");
    }
    assert_eq!(
        server
            .run("create database bare template template0")
            .messages,
        ""
    );
    let made = owner.run("create table t (a enc_int4) using strongroom; insert into t values (1)");
    assert!(!made.messages.contains("ERROR"), "{}", made.messages);
    let named = server.rows("select current_database()");
    // From another database, because a template must not be in use.
    let copy = format!("create database again template {named}");
    let elsewhere = server.run(&format!("\\connect empty\n{copy}"));
    assert!(
        elsewhere.messages.contains("cannot be a template"),
        "{}",
        elsewhere.messages
    );
    refused(
        "\\connect template1\ncreate extension strongroom_columns; create table t (a enc_int4) using strongroom",
        "template1 cannot have confidential tables",
    );
    let dropped = owner.run("drop table t");
    assert!(!dropped.messages.contains("ERROR"), "{}", dropped.messages);
    let since = Instant::now();
    let copied = loop {
        let said = server.run(&format!("\\connect empty\n{copy}"));
        if !said.messages.contains("ERROR") || since.elapsed() > Duration::from_secs(30) {
            break said;
        }
        std::thread::sleep(Duration::from_millis(200));
    };
    assert!(!copied.messages.contains("ERROR"), "{}", copied.messages);
}
