//! Goal: the worker that sweeps by itself frees garbage, in every database, under load, and nothing
//! else; and comes back to it after a restart of the zone.
//!
//! Method: nobody calls `strongroom_columns.sweep` here. The worker's interval is a second; garbage
//! is made, and what the store counts must come down to what the rows have within a time, while
//! readers find every row by its index and writers go on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use strongroom_columns_testing::Server;
use strongroom_columns_testing::owner::{Owner, start_all_deriving};

const PATIENCE: Duration = Duration::from_secs(90);
const ROWS: u64 = 4000;

fn begin() -> (Owner, Server) {
    start_all_deriving(
        "autovacuum = off\nstrongroom.sweep_interval = 1\nstrongroom.sweep_delay = 0\nmax_worker_processes = 12",
    )
}

/// A table with so many rows, `code` being `id`.
fn fill(owner: &Owner, table: &str) {
    drop(owner.rows(&format!(
        "create table {table} (id int primary key, note int, code enc_int4(ordered)) using strongroom;
         insert into {table} select g, 0, 0 from generate_series(1, {ROWS}) g;
         update {table} set code = code + 1; create index on {table} (code)"
    )));
    // `id` without a constant of each row's: doubled.
    let mut step = 1;
    while step < ROWS {
        drop(owner.rows(&format!(
            "update {table} set code = code + {step} where ((id - 1) / {step}) % 2 = 1"
        )));
        step *= 2;
    }
}

/// Values in the store, and in quarantine.
fn counts(server: &Server) -> (u64, u64) {
    let sql = "select s->'store'->>'values', s->'store'->>'quarantine' from strongroom_columns.status() s";
    let rows = server.rows(sql);
    let (values, held) = rows.split_once('|').expect("two fields");
    let number = |text: &str| text.parse().expect("a number");
    (number(values), number(held))
}

/// Waits until the store has at most so many values.
fn wait_until_at_most(server: &Server, most: u64) {
    let begun = Instant::now();
    loop {
        let (values, held) = counts(server);
        if values <= most {
            return;
        }
        assert!(
            begun.elapsed() < PATIENCE,
            "{values} values, {held} in quarantine\n{}",
            server.log_tail()
        );
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Every row of a table has its code, by scan and by index.
fn check(owner: &Owner, table: &str) {
    let wrong = owner.rows(&format!("select id, code from {table} order by id"));
    let differs = wrong.lines().find(|row| {
        let (id, code) = row.split_once('|').expect("two fields");
        id != code
    });
    assert_eq!(differs, None, "{table}");
    let by_index = owner.rows(&format!(
        "set enable_seqscan = off; set enable_bitmapscan = off;
         select count(*) from (select code from {table} where code > 0 order by code) s"
    ));
    assert_eq!(
        by_index,
        owner.rows(&format!("select count(*) from {table}")),
        "{table}"
    );
}

#[test]
fn garbage_goes_by_itself_and_values_stay() {
    let (owner, server) = begin();
    fill(&owner, "t");
    // All that the updates left behind.
    assert!(counts(&server).0 > 2 * ROWS);
    drop(server.rows("vacuum t; reindex table t; analyze t"));
    wait_until_at_most(&server, ROWS);
    assert_eq!(counts(&server), (ROWS, 0));
    check(&owner, "t");
    drop(owner.rows(&format!("delete from t where id > {}", ROWS / 2)));
    drop(server.rows("vacuum t; reindex table t; analyze t"));
    wait_until_at_most(&server, ROWS / 2);
    assert_eq!(counts(&server), (ROWS / 2, 0));
    check(&owner, "t");
}

#[test]
fn every_database_is_swept() {
    let (owner, server) = begin();
    fill(&owner, "t");
    drop(server.rows("create database second"));
    drop(server.rows("\\connect second\ncreate extension strongroom_columns"));
    drop(owner.rows(&format!(
        "\\connect second\ncreate table t (id int primary key, code enc_int4) using strongroom;
         insert into t select g, 5 from generate_series(1, {ROWS}) g; delete from t where id > {}",
        ROWS / 4
    )));
    for database in ["postgres", "second"] {
        drop(server.rows(&format!(
            "\\connect {database}\nvacuum t; reindex table t; analyze t"
        )));
    }
    wait_until_at_most(&server, ROWS + ROWS / 4);
    check(&owner, "t");
    assert_eq!(
        owner.rows("\\connect second\nselect count(*), sum(code) from t"),
        format!("{}|{}", ROWS / 4, 5 * ROWS / 4)
    );
}

#[test]
fn garbage_goes_under_load_and_no_value_with_it() {
    let (owner, server) = begin();
    fill(&owner, "t");
    fill(&owner, "other");
    let over = AtomicBool::new(false);
    let (begun, mut swept) = (Instant::now(), false);
    std::thread::scope(|scope| {
        for part in 0..2 {
            let (owner, over) = (&owner, &over);
            scope.spawn(move || {
                let mut round = 0;
                while !over.load(Ordering::Relaxed) {
                    round += 1;
                    // Comes back to where it was, so that readers can tell: between the two nobody
                    // sees anything.
                    let sql = format!(
                        "begin; update t set code = code + 100000 where id % 2 = {part} and id % 3 = {round} % 3;
                         update t set code = code - 100000 where id % 2 = {part} and id % 3 = {round} % 3; commit;
                         update other set note = note + 1 where id % 2 = {part} and id % 5 = {round} % 5;
                         set enable_seqscan = off; select count(*) from t where code between 1 and {ROWS} and id % 2 = {part};"
                    );
                    assert_eq!(owner.rows(&sql).trim(), (ROWS / 2).to_string());
                }
            });
        }
        while begun.elapsed() < Duration::from_secs(25) {
            drop(server.rows("vacuum t; vacuum other; analyze t"));
            swept |= counts(&server).1 > 0;
            std::thread::sleep(Duration::from_millis(100));
        }
        over.store(true, Ordering::Relaxed);
    });
    assert!(swept, "nothing was ever in quarantine: nobody swept");
    check(&owner, "t");
    check(&owner, "other");
    drop(server.rows(
        "vacuum t; reindex table t; analyze t; vacuum other; reindex table other; analyze other",
    ));
    // Less than a fifth of a table's values is not worth a sweep.
    wait_until_at_most(&server, 2 * (ROWS + ROWS / 4));
    check(&owner, "t");
    check(&owner, "other");
}

/// What was in quarantine when the zone ended is found again (L7), and a table that nobody may lock
/// is left for later.
#[test]
fn the_worker_goes_on_after_a_restart_of_the_zone_and_behind_a_lock() {
    let (mut owner, server) = begin();
    fill(&owner, "t");
    drop(server.rows("vacuum t; reindex table t; analyze t"));
    owner.kill_zone();
    std::thread::sleep(Duration::from_secs(3));
    owner.start_zone();
    wait_until_back(&owner);
    wait_until_at_most(&server, ROWS);
    check(&owner, "t");
    every(&server, 0);
    drop(owner.rows(&format!("delete from t where id > {}", ROWS / 2)));
    drop(server.rows("vacuum t; reindex table t; analyze t"));
    std::thread::scope(|scope| {
        let holding = scope.spawn(|| {
            server.run(
                "begin; lock table t in share update exclusive mode; select pg_sleep(6);
                 select s->'store'->>'values' from strongroom_columns.status() s; commit",
            )
        });
        std::thread::sleep(Duration::from_secs(1));
        every(&server, 1);
        let held = holding.join().expect("no panic");
        assert_eq!(held.rows.trim(), ROWS.to_string(), "{}", held.messages);
    });
    wait_until_at_most(&server, ROWS / 2);
    check(&owner, "t");
}

/// Has the worker look every so many seconds; 0: never.
fn every(server: &Server, seconds: u32) {
    server.configure(&format!("strongroom.sweep_interval = {seconds}\n"));
    drop(server.rows("select pg_reload_conf(); select pg_sleep(1.5)"));
}

fn wait_until_back(owner: &Owner) {
    owner.wait_for("select count(*) from t where code > 0", &ROWS.to_string());
}
