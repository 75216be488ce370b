//! The relay before a real PostgreSQL without the extension: whatever a client does, it sees
//! through the proxy what it sees without.
//!
//! Method: the same programs, drivers and scripts, once directly and once through the proxy, and
//! equal output.
#![expect(
    clippy::unwrap_used,
    reason = "a test that panics has failed, which is what it is for"
)]
#![expect(clippy::tests_outside_test_module, reason = "an integration test")]

use crate::support;

use std::time::{Duration, Instant};

use postgres::{Client, NoTls, SimpleQueryMessage};
use strongroom_columns_proxy::proxy::{Address, Config, PlaintextConstants};
use support::{Server, client, config, psql, started};

const SCRIPT: &str = r"
CREATE TABLE t (id int PRIMARY KEY, name text, n numeric);
INSERT INTO t SELECT i, 'name ' || i, i / 7.0 FROM generate_series(1, 500) i;
SELECT * FROM t WHERE id < 5 ORDER BY id;
SELECT id, name FROM t WHERE name = 'name 7' \gdesc
BEGIN; UPDATE t SET name = 'x' WHERE id = 1; SELECT name FROM t WHERE id = 1; ROLLBACK;
SELECT 1/0;
SELEC 1;
SELECT name FROM t WHERE id = 1;
BEGIN; SELECT 1/0; SELECT 2; COMMIT;
SELECT 1 \; SELECT 2 \; SELECT 1/0 \; SELECT 3;
INSERT INTO t VALUES (1000, 'a', 1) \; INSERT INTO t VALUES (1000, 'b', 2);
SELECT count(*) FROM t;
COPY t FROM STDIN;
2000	copied	1.5
2001	\N	2.5
\.
COPY (SELECT * FROM t WHERE id >= 2000 ORDER BY id) TO STDOUT WITH (FORMAT csv, HEADER);
COPY t FROM STDIN;
bad
\.
SELECT count(*) FROM t;
PREPARE s(int) AS SELECT name FROM t WHERE id = $1; EXECUTE s(7); DEALLOCATE s;
DECLARE c CURSOR WITH HOLD FOR SELECT id FROM t ORDER BY id; FETCH 3 FROM c; FETCH 2 FROM c; CLOSE c;
SET DateStyle TO 'German'; SELECT date '2020-02-03'; SHOW DateStyle;
DO $$ BEGIN RAISE NOTICE 'hello'; END $$;
LISTEN l; NOTIFY l, 'payload';
EXPLAIN (COSTS OFF) SELECT * FROM t WHERE id = 5;
\bind_is_no_command
;
SELECT repeat('x', 100000) = repeat('x', 100000), length(string_agg(name, ',')) FROM t;
";

#[test]
fn psql_sees_no_difference() {
    let server = Server::start("scram-sha-256");
    let port = server.proxy();
    let without = |text: &str| {
        text.lines()
            .filter(|line| !line.contains("PID"))
            .collect::<Vec<_>>()
            .join("\n")
    };
    let direct = psql(server.directory(), 5432, SCRIPT);
    let reset = psql(server.directory(), 5432, "DROP TABLE t;");
    assert!(!reset.contains("ERROR"), "{reset}");
    let proxied = psql(server.directory(), port, SCRIPT);
    assert!(
        direct.contains("division by zero")
            && direct.contains("copied")
            && direct.lines().count() > 100,
        "{direct}"
    );
    assert_eq!(without(&direct), without(&proxied));
}

#[test]
fn every_way_to_authenticate_passes_through() {
    for auth in ["trust", "password", "md5", "scram-sha-256"] {
        let server = Server::start(auth);
        let port = server.proxy();
        assert!(
            psql(server.directory(), port, "SELECT 'welcome';").contains("welcome"),
            "{auth}"
        );
        let mut wrong = client("psql", server.directory(), port);
        let output = wrong
            .env("PGPASSWORD", "wrong")
            .args(["-X", "-c", "SELECT 'welcome'"])
            .output()
            .unwrap();
        assert_eq!(output.status.success(), auth == "trust", "{auth}");
    }
}

fn connect(server: &Server, port: u16) -> Client {
    let host = server.directory().display();
    Client::connect(
        &format!("host={host} port={port} user=postgres dbname=postgres password=secret"),
        NoTls,
    )
    .unwrap()
}

#[test]
fn a_driver_works_with_prepared_statements_portals_and_copy() {
    let server = Server::start("trust");
    let mut sql = connect(&server, server.proxy());
    sql.batch_execute("CREATE TABLE t (id int, name text, big bytea)")
        .unwrap();
    let insert = sql.prepare("INSERT INTO t VALUES ($1, $2, $3)").unwrap();
    let big = vec![7_u8; 3_000_000];
    for id in 0..50_i32 {
        sql.execute(&insert, &[&id, &format!("name {id}"), &&big[..100]])
            .unwrap();
    }
    sql.execute(&insert, &[&999_i32, &None::<String>, &&big[..]])
        .unwrap();
    let row = sql
        .query_one("SELECT name, big FROM t WHERE id = $1", &[&999_i32])
        .unwrap();
    assert_eq!(
        (
            row.get::<_, Option<String>>(0),
            row.get::<_, Vec<u8>>(1).len()
        ),
        (None, big.len())
    );
    // Portals with a limit of rows.
    let mut transaction = sql.transaction().unwrap();
    let portal = transaction
        .bind("SELECT id FROM t WHERE id < 50 ORDER BY id", &[])
        .unwrap();
    let mut seen = Vec::new();
    loop {
        let rows = transaction.query_portal(&portal, 7).unwrap();
        if rows.is_empty() {
            break;
        }
        seen.extend(rows.iter().map(|row| row.get::<_, i32>(0)));
    }
    assert_eq!(seen, (0..50).collect::<Vec<_>>());
    transaction.commit().unwrap();
    // An error leaves the connection usable, inside and outside a transaction.
    assert!(sql.query("SELECT 1 / $1", &[&0_i32]).is_err());
    assert!(sql.query("SELECT nothing FROM t", &[]).is_err());
    let mut transaction = sql.transaction().unwrap();
    assert!(transaction.execute("SELECT 1 / 0", &[]).is_err());
    assert!(
        transaction.execute("SELECT 1", &[]).is_err(),
        "the transaction has failed"
    );
    transaction.rollback().unwrap();
    // COPY both ways.
    let mut copy = sql.copy_in("COPY t (id, name) FROM STDIN").unwrap();
    for id in 2000..4000 {
        std::io::Write::write_all(&mut copy, format!("{id}\tcopied {id}\n").as_bytes()).unwrap();
    }
    assert_eq!(copy.finish().unwrap(), 2000);
    let mut text = String::new();
    std::io::Read::read_to_string(
        &mut sql
            .copy_out("COPY (SELECT name FROM t WHERE id >= 2000) TO STDOUT")
            .unwrap(),
        &mut text,
    )
    .unwrap();
    assert_eq!(text.lines().count(), 2000);
    let failing = sql.copy_in("COPY t (id, name) FROM STDIN").unwrap();
    drop(failing);
    let messages = sql.simple_query("SELECT 1; SELECT 2").unwrap();
    let rows = messages
        .iter()
        .filter(|message| matches!(message, SimpleQueryMessage::Row(_)))
        .count();
    assert_eq!(rows, 2);
}

#[test]
fn cancel_requests_reach_the_server() {
    let server = Server::start("trust");
    let mut sql = connect(&server, server.proxy());
    let token = sql.cancel_token();
    let begun = Instant::now();
    let canceller = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        token.cancel_query(NoTls).unwrap();
    });
    let error = sql.batch_execute("SELECT pg_sleep(60)").unwrap_err();
    canceller.join().unwrap();
    assert_eq!(error.code().unwrap().code(), "57014");
    assert!(begun.elapsed() < Duration::from_secs(30));
    assert!(sql.query_one("SELECT 1", &[]).is_ok());
}

#[test]
fn only_a_replication_connection_is_refused_as_one() {
    let server = Server::start("trust");
    let port = server.proxy();
    for (value, is_let_in) in [("false", true), ("OFF", true), ("0", true), ("true", false)] {
        let output = client("psql", server.directory(), port)
            .args(["-X", "-c", "SELECT 'welcome'", "-d"])
            .arg(format!("dbname=postgres replication={value}"))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout).contains("welcome");
        assert_eq!(said, is_let_in, "{value}: {output:?}");
    }
}

/// When all connections are taken a statement has to be cancelled more than ever.
#[test]
fn a_cancel_request_passes_where_no_connection_does() {
    let server = Server::start("trust");
    let config = Config {
        connections_max: 1,
        ..config(Address::Unix(server.socket()), PlaintextConstants::Refuse)
    };
    let port = started(config, server.directory());
    let mut sql = connect(&server, port);
    let token = sql.cancel_token();
    let canceller = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        token.cancel_query(NoTls)
    });
    let error = sql.batch_execute("SELECT pg_sleep(5)").unwrap_err();
    canceller.join().unwrap().unwrap();
    assert_eq!(error.code().unwrap().code(), "57014");
}

#[test]
fn pgbench_runs_in_every_mode_and_a_hundred_connections_stay_open() {
    let server = Server::start("trust");
    let port = server.proxy();
    let output = client("pgbench", server.directory(), port)
        .args(["-i", "-s", "1", "-q"])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    for mode in ["simple", "extended", "prepared"] {
        let mut bench = client("pgbench", server.directory(), port);
        let output = bench
            .args(["-n", "-M", mode, "-c", "8", "-j", "2", "-t", "50"])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success() && text.contains("400/400"),
            "{mode}: {text} {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let sums =
        "SELECT sum(abalance) = (SELECT sum(delta) FROM pgbench_history) FROM pgbench_accounts";
    let mut open: Vec<Client> = (0..90).map(|_| connect(&server, port)).collect();
    for sql in &mut open {
        assert!(sql.query_one(sums, &[]).unwrap().get::<_, bool>(0));
    }
}

#[test]
fn a_client_that_goes_away_takes_its_backend_with_it() {
    let server = Server::start("trust");
    let port = server.proxy();
    let mut watcher = connect(&server, 5432);
    let backends = |watcher: &mut Client| -> i64 {
        let row = watcher.query_one(
            "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'",
            &[],
        );
        row.unwrap().get(0)
    };
    let before = backends(&mut watcher);
    let open: Vec<Client> = (0..5).map(|_| connect(&server, port)).collect();
    assert_eq!(backends(&mut watcher), before + 5);
    drop(open);
    let begun = Instant::now();
    while backends(&mut watcher) != before {
        assert!(begun.elapsed() < Duration::from_secs(20), "backends stay");
        std::thread::sleep(Duration::from_millis(50));
    }
}
