//! Goal: with `synchronous_commit = off` too, after a crash at any moment every identifier that the
//! server can show has its value: in rows, by every index, of committed, rolled back and open
//! transactions.
//!
//! Method: rounds of some tens of milliseconds of load on one small table that is vacuumed and
//! swept meanwhile; then the server, the zone, or both are killed. Each row's columns say the same
//! thing, so a value of another row or time is seen. `STRONGROOM_CRASH_ROUNDS` is how many rounds,
//! of some 0.6 s each; `STRONGROOM_SEED` repeats the choices.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use strongroom_benches_oltp::wire::Client;
use strongroom_columns_testing::owner::{Owner, start_all};
use strongroom_columns_testing::{Server, print_line, seed};

const WRITERS: u32 = 3;
const ROWS: u32 = 150;
const PATIENCE: Duration = Duration::from_secs(60);
const SETTINGS: &str = "synchronous_commit = off\nwal_writer_delay = 10ms\nautovacuum = off\nstrongroom.sweep_interval = 1\nstrongroom.sweep_delay = 0
    strongroom.checkpoint_interval = 10ms\ncheckpoint_timeout = 30s\nmax_connections = 40\nmax_worker_processes = 12";

/// One small transaction, or one that does not end well. What the server says does not matter.
fn act(client: &mut Client, random: &mut fastrand::Rng, writer: u32) -> bool {
    let id = random.u32(0..ROWS) * WRITERS + writer;
    let number = random.u32(1..1_000_000);
    let values = format!("{number}, 'value-{number}'");
    let put = format!(
        "insert into t values ({id}, 0, {values}) on conflict (id) do update set n = {number}, note = 'value-{number}'"
    );
    let sql = match random.u32(0..10) {
        0..=3 => put,
        4 => format!(
            "begin; {put}; delete from t where id = {}; commit",
            id + WRITERS
        ),
        5 => format!("begin; {put}; rollback"),
        6 => format!(
            "begin; {put}; savepoint a; update t set n = 5, note = 'value-5' where id = {id}; rollback to a; commit"
        ),
        7 => format!(
            "update t set plain = plain + 1 where id between {id} and {}",
            id + 20
        ),
        8 => format!(
            "delete from t where id % {WRITERS} = {writer} and id between {id} and {}",
            id + 10
        ),
        // Left open: the crash finds it.
        _ => format!(
            "begin; {put}; insert into t values ({}, 0, {values}) on conflict do nothing",
            id + 1_000_000
        ),
    };
    let done = client.query(&sql);
    if client.in_transaction() && random.bool() {
        return client.query("rollback").is_ok();
    }
    done.is_ok() || client.query("rollback").is_ok()
}

fn load(owner: &Owner, writer: u32, seed: u64, stop: &AtomicBool) {
    let mut random = fastrand::Rng::with_seed(seed);
    let Ok(mut client) = owner.connect() else {
        return;
    };
    while !stop.load(Ordering::Relaxed) && act(&mut client, &mut random, writer) {}
}

struct Scene {
    owner: Owner,
    server: Server,
    random: fastrand::Rng,
}

impl Scene {
    fn round(&mut self) {
        let stop = AtomicBool::new(false);
        let seeds: Vec<u64> = (0..WRITERS).map(|_| self.random.u64(..)).collect();
        let time = Duration::from_micros(self.random.u64(1000..150_000));
        let (owner, server, random) = (&mut self.owner, &self.server, &mut self.random);
        let connected: Vec<_> = std::thread::scope(|scope| {
            let shared: &Owner = owner;
            let stop = &stop;
            let writers: Vec<_> = (0..)
                .zip(seeds)
                .map(|(writer, seed)| scope.spawn(move || load(shared, writer, seed, stop)))
                .collect();
            if random.u32(0..4) == 0 {
                drop(server.run("vacuum t"));
            }
            std::thread::sleep(time);
            // The server first: a zone that is killed under an open scope could not be started
            // again here.
            server.kill();
            stop.store(true, Ordering::Relaxed);
            writers
                .into_iter()
                .map(|writer| writer.join().is_ok())
                .collect()
        });
        assert!(connected.into_iter().all(|sound| sound));
        if random.u32(0..3) == 0 {
            owner.kill_zone();
            owner.start_zone();
        }
        server.start_again();
        self.check();
    }

    /// Every value of every row, by scan and by each index.
    fn check(&self) {
        let begun = Instant::now();
        let rows = loop {
            let answer = self.owner.run("select id, n, note from t order by id");
            if !answer.messages.contains("ERROR") && !answer.messages.contains("FATAL") {
                break answer.rows;
            }
            let soon = [
                "57P03",
                "08006",
                "08001",
                "28000",
                "no session",
                "starting up",
            ];
            assert!(
                soon.iter().any(|state| answer.messages.contains(state))
                    && begun.elapsed() < PATIENCE,
                "{}{}",
                answer.messages,
                self.server.log_tail()
            );
            std::thread::sleep(Duration::from_millis(20));
        };
        let mut count = 0;
        for row in rows.lines() {
            let mut fields = row.split('|').skip(1);
            let (number, note) = (fields.next(), fields.next());
            assert_eq!(
                note,
                number.map(|number| format!("value-{number}")).as_deref(),
                "{row}"
            );
            count += 1;
        }
        // All entries of the indexes are compared on the way, those of what was rolled back too.
        let by_index = self.owner.rows(
            "set enable_seqscan = off; set enable_bitmapscan = off; set enable_sort = off;
             select count(*) from (select n from t order by n) s; select count(*) from (select note from t order by note) s;
             select count(*) from t where n between 1 and 1000000; select count(*) from t where note >= 'value-' and note < 'value:'",
        );
        assert_eq!(
            by_index,
            [count; 4].map(|count: u32| count.to_string()).join("\n")
        );
    }
}

#[test]
fn crashes_at_random_moments_leave_no_identifier_without_its_value() {
    let seed = seed();
    let given = std::env::var("STRONGROOM_CRASH_ROUNDS").ok();
    let rounds: u32 = given.and_then(|given| given.parse().ok()).unwrap_or(25);
    let (owner, server) = start_all(SETTINGS);
    drop(owner.rows(
        "create table t (id int primary key, plain int, n enc_int8(ordered), note enc_text(ordered)) using strongroom;
         create index on t (n); create index on t (note)",
    ));
    let mut scene = Scene {
        owner,
        server,
        random: fastrand::Rng::with_seed(seed),
    };
    for round in 0..rounds {
        scene.round();
        if round % 100 == 99 {
            print_line(&format!("{} rounds, seed {seed}", round + 1));
        }
    }
    assert_ne!(
        scene.owner.rows("select count(*) from t"),
        "0",
        "nothing was ever committed"
    );
}
