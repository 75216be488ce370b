//! Goal: many connections work, idle ones cost nothing, and whoever is in the middle of something
//! when the zone goes gets an error and goes on.
//!
//! Method: connections through the proxy; processor time of zone and server while 200 of them do
//! nothing; the zone is killed in the middle of a query, of a COPY, and before a commit.

use std::time::{Duration, Instant};

use strongroom_benches_oltp::wire::Client;
use strongroom_columns_testing::must;
use strongroom_columns_testing::owner::{Owner, start_all};
use strongroom_columns_testing::processes::processor_ticks;

const IDLE: usize = 200;
const BUSY: usize = 40;

fn value(client: &mut Client, sql: &str) -> String {
    let rows = must(client.rows(sql), sql);
    let first = rows
        .into_iter()
        .next()
        .and_then(|row| row.into_iter().next());
    first.flatten().unwrap_or_default()
}

#[test]
fn many_connections_work_and_idle_ones_cost_nothing() {
    let (owner, server) =
        start_all("max_connections = 280\nshared_buffers = 16MB\nautovacuum = off");
    let _made = owner.rows("create table t (id int primary key, a enc_int4) using strongroom; insert into t select g, 1 from generate_series(1, 20) g");
    let connect = || owner.connect().expect("a connection");
    let mut idle: Vec<Client> = (0..IDLE).map(|_| connect()).collect();
    for client in &mut idle {
        assert_eq!(value(client, "select sum(a) from t where a = 1"), "20");
    }
    let busy: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..BUSY)
            .map(|number| {
                scope.spawn(move || {
                    let mut client = connect();
                    let mut last = String::new();
                    for round in 0..5 {
                        let sql = format!("insert into t values ({}, {number}); select sum(a) from t where a = {number} and id > 100", 1000 + number * 10 + round);
                        last = value(&mut client, &sql);
                    }
                    last
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .collect()
    });
    for (number, sum) in busy.iter().enumerate() {
        assert_eq!(*sum, (number * 5).to_string());
    }
    // Two seconds in which nobody asks for anything.
    std::thread::sleep(Duration::from_secs(1));
    let zone = owner.zone_process().expect("the zone runs");
    let proxy = owner.proxy_process().expect("the proxy runs");
    let all = || {
        let server: u64 = server
            .processes()
            .iter()
            .map(|(process, _)| processor_ticks(*process))
            .sum();
        [processor_ticks(zone), processor_ticks(proxy), server]
    };
    let before = all();
    std::thread::sleep(Duration::from_secs(2));
    let used: Vec<u64> = all()
        .iter()
        .zip(before)
        .map(|(now, before)| now.saturating_sub(before))
        .collect();
    // Hundredths of a second. The proxy asks for the catalog every ten seconds only when it is
    // asked for something.
    assert!(
        used.iter().all(|ticks| *ticks <= 10),
        "zone, proxy, server: {used:?}"
    );
    for client in &mut idle {
        assert_eq!(
            value(client, "select count(*) from t where a = 1 and id < 100"),
            "20"
        );
    }
}

/// Asks over this connection until the proxy has opened a session for it, as it tries once a
/// second.
fn wait_for_session(client: &mut Client, sql: &str, expected: &str) {
    let begun = Instant::now();
    loop {
        let failure = match client.rows(sql) {
            Ok(rows) => {
                assert_eq!(rows, [[Some(expected.to_owned())]], "{sql}");
                return;
            }
            Err(failure) => failure,
        };
        let soon = matches!(failure.state(), Some("42501" | "08006" | "57P03"));
        assert!(soon && begun.elapsed().as_secs() < 10, "{sql}: {failure}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn the_end_of_the_zone_is_an_error_and_no_more() {
    let (mut owner, server) = start_all("");
    let _made = owner.rows("create table t (id int primary key, a enc_int4(ordered)) using strongroom; insert into t select g, 1 from generate_series(1, 2000) g");
    let postmaster = server.postmaster();
    let begin = |sql: &'static str, owner: &Owner| {
        let mut client = owner.connect().expect("a connection");
        std::thread::spawn(move || {
            let done = client.query(sql).map(drop);
            (client, done)
        })
    };
    let lost = |state: Option<&str>| matches!(state, Some("08001" | "08006" | "57P03"));
    for sql in [
        "select count(x.a + y.a) from t x, t y",
        "insert into t select g, 7 from generate_series(10000, 300000) g",
        "create index on t (a, id, a, id, a)",
    ] {
        let running = begin(sql, &owner);
        std::thread::sleep(Duration::from_millis(700));
        owner.kill_zone();
        let (mut client, done) = running.join().expect("no panic");
        if let Err(failure) = done {
            assert!(lost(failure.state()), "{sql}: {failure}");
        }
        // Plain columns go on without a zone, on the same connection.
        assert_eq!(value(&mut client, "select min(id) from t"), "1", "{sql}");
        owner.start_zone();
        owner.wait_for("select sum(a) from t where id <= 2000", "2000");
        // And with one the connection has its session again, by itself.
        wait_for_session(&mut client, "select sum(a) from t where id <= 2000", "2000");
    }
    let mut client = owner.connect().expect("a connection");
    // In a transaction: after the loss it can be rolled back, or committed when all of it was
    // before the loss.
    let _done = client
        .query("begin; insert into t values (5000, 8)")
        .expect("a row is inserted");
    owner.kill_zone();
    let committed = client.query("commit");
    if let Err(failure) = &committed {
        assert!(lost(failure.state()), "{failure}");
    }
    owner.start_zone();
    let expected = if committed.is_ok() { "8" } else { "" };
    owner.wait_for("select sum(a) from t where id = 5000", expected);
    // In the middle of a COPY.
    let mut client = owner.connect().expect("a connection");
    let lines = (0..3000).map(|number| {
        if number == 2500 {
            owner.kill_zone();
        }
        format!("{}\t3\n", 20_000_000 + number)
    });
    let copied = client.copy_in("copy t from stdin", lines);
    if let Err(failure) = &copied {
        assert!(lost(failure.state()), "{failure}");
    }
    owner.start_zone();
    let there = if copied.is_ok() { "3000" } else { "0" };
    owner.wait_for("select count(a + 0) from t where id >= 20000000", there);
    assert_eq!(
        server.postmaster(),
        postmaster,
        "the server was never restarted"
    );
    assert!(
        !server.log_tail().contains("terminated by signal"),
        "a backend crashed"
    );
}

/// Whoever has another key gets an error of the protocol, and no half of a row before it.
#[test]
fn what_does_not_open_is_an_error_of_the_protocol() {
    let (owner, server) = start_all("");
    let _made = owner.rows(
        "create table secrets (id int, v enc_text) using strongroom; insert into secrets values (1, 'one'), (2, 'two')",
    );
    let mut other = Owner::new();
    other.start_proxy(server.socket());
    let said = other.run("select id, v from secrets order by id");
    assert_eq!(said.rows, "");
    for (part, there) in [("22P03", true), ("FATAL", true), ("synchronization", false)] {
        assert_eq!(said.messages.contains(part), there, "{}", said.messages);
    }
    assert_eq!(
        owner.rows("select id, v from secrets order by id"),
        "1|one\n2|two"
    );
}
