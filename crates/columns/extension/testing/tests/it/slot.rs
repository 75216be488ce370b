//! Goal: the log that a zone has not made durable stays for as long as the zone is away; when it is
//! lost after all, that is said and nothing is served that lacks it; and with the log brought back
//! from an archive everything is there.
//!
//! Method: a zone that is away while plain tables fill many segments of the log; a limit on what
//! slots may hold back.

use std::time::{Duration, Instant};

use strongroom_columns_testing::owner::{Owner, start_all};
use strongroom_columns_testing::{Server, open_to_all};

const ROWS: u32 = 300;
const ASK: &str = "select count(*), sum(n), count(distinct note) from t";

fn expected() -> String {
    format!("{ROWS}|{}|1", ROWS * 2)
}

/// A server whose zone ended before it had made anything durable of the table.
fn scene(settings: &str) -> (Owner, Server) {
    let (mut owner, server) = start_all(&format!(
        "min_wal_size = 32MB\nmax_wal_size = 48MB\nautovacuum = off\n{settings}"
    ));
    drop(owner.rows(&format!(
        "create table t (id int primary key, n enc_int8, note enc_text) using strongroom;
         insert into t select g, 2, 'kept' from generate_series(1, {ROWS}) g"
    )));
    owner.kill_zone();
    (owner, server)
}

/// Fills so many segments of the log, with plain rows.
fn fill(server: &Server, segments: u32) {
    drop(server.rows("create table if not exists plain (a int, b text)"));
    for _ in 0..segments {
        drop(server.rows(
            "insert into plain select g, repeat('x', 500) from generate_series(1, 2000) g; truncate plain;
             select pg_switch_wal(); checkpoint",
        ));
    }
}

fn slot(server: &Server) -> String {
    server.rows("select wal_status, restart_lsn is null from pg_replication_slots where slot_name = 'strongroom_columns'")
}

#[test]
fn the_log_stays_while_the_zone_is_away() {
    let (mut owner, server) = scene("");
    fill(&server, 12);
    let held = server.rows("select count(*) from pg_ls_waldir()");
    assert!(
        held.parse::<u32>().is_ok_and(|held| held >= 12),
        "{held} segments"
    );
    assert_eq!(slot(&server), "extended|f");
    // Confidential values are away, everything else works; and the server may be started meanwhile.
    let answer = server.run("select * from t limit 1");
    assert!(answer.messages.contains("08001"), "{}", answer.messages);
    server.crash_and_start();
    owner.start_zone();
    owner.wait_for_log(ASK, &expected(), &server);
    drop(owner.rows("update t set n = n + 1 where id <= 10"));
    // Once the zone's store has it, the log may go. The worker makes a checkpoint when the log has
    // grown.
    let begun = Instant::now();
    fill(&server, 6);
    while server
        .rows("select count(*) from pg_ls_waldir()")
        .parse::<u32>()
        .is_ok_and(|held| held > 10)
    {
        assert!(
            begun.elapsed() < Duration::from_secs(100),
            "the log is held for ever: {}",
            slot(&server)
        );
        std::thread::sleep(Duration::from_secs(1));
        drop(server.rows("checkpoint"));
    }
    owner.kill_zone();
    server.kill();
    owner.start_zone();
    server.start_again();
    owner.wait_for_log(ASK, &format!("{ROWS}|{}|1", ROWS * 2 + 10), &server);
}

#[test]
fn a_log_that_was_lost_is_an_alarm_and_no_silent_loss() {
    let archive = tempfile::Builder::new().prefix("archive-").tempdir();
    let archive = archive.expect("a directory");
    open_to_all(archive.path());
    let (mut owner, server) = scene(&format!(
        "max_slot_wal_keep_size = 64MB\narchive_mode = on\narchive_command = 'cp %p {}/%f'",
        archive.path().display()
    ));
    fill(&server, 14);
    assert_eq!(slot(&server), "lost|t");
    owner.start_zone();
    let begun = Instant::now();
    while !server.log_text().contains("has lost its log") {
        assert!(
            begun.elapsed() < Duration::from_secs(30),
            "{}",
            server.log_tail()
        );
        std::thread::sleep(Duration::from_millis(100));
    }
    let refused = || {
        for sql in [
            ASK,
            "insert into t select 1000, n, note from t where id = 1",
        ] {
            let answer = server.run(sql);
            assert!(
                answer.messages.contains("57P03"),
                "{}{}",
                answer.rows,
                answer.messages
            );
        }
    };
    refused();
    // A new slot alone does not make up for it.
    let drop_slot = "select pg_drop_replication_slot('strongroom_columns')";
    drop(server.rows(drop_slot));
    let begun = Instant::now();
    while !server.log_text().contains("has already been removed") {
        assert!(
            begun.elapsed() < Duration::from_secs(30),
            "{}",
            server.log_tail()
        );
        std::thread::sleep(Duration::from_millis(100));
    }
    refused();
    // The segments come back from the archive.
    let sql = format!(
        "cp --no-clobber {}/0* {}/",
        archive.path().display(),
        server.data().join("pg_wal").display()
    );
    let copied = std::process::Command::new("sh")
        .args([
            "-c",
            &format!(
                "{sql} && chown -R --reference={0} {0}/pg_wal",
                server.data().display()
            ),
        ])
        .status();
    assert!(copied.is_ok_and(|status| status.success()));
    owner.wait_for_log(ASK, &expected(), &server);
    assert_eq!(slot(&server).split('|').nth(1), Some("f"));
}

/// A zone that is started where the disk with its store is not mounted makes a new store, which
/// must not take the place of the one with the values.
#[test]
fn a_new_store_does_not_take_the_place_of_another_one() {
    let (mut owner, server) = start_all("strongroom.checkpoint_interval = 10ms");
    drop(owner.rows(&format!(
        "create table t (id int primary key, n enc_int8, note enc_text) using strongroom;
         insert into t select g, 2, 'kept' from generate_series(1, {ROWS}) g"
    )));
    // A store has had a position in the log. What follows is in the log only.
    let position = "select confirmed_flush_lsn is null from pg_replication_slots";
    owner.wait_for(position, "f");
    drop(
        server.rows(
            "alter system set strongroom.checkpoint_interval = '1h'; select pg_reload_conf()",
        ),
    );
    drop(owner.rows("update t set n = n + 1 where id <= 10"));
    owner.kill_zone();
    let (store, aside) = (owner.path("zone"), owner.path("aside"));
    #[expect(
        clippy::disallowed_methods,
        reason = "a directory of a test need not last"
    )]
    let moves = |from: &std::path::Path, to: &std::path::Path| {
        std::fs::rename(from, to).expect("a directory of our own");
    };
    moves(&store, &aside);
    let before = slot_position(&server);
    owner.start_zone();
    server.wait_in_log("this server has had another one (SR-8030)");
    let answer = server.run(ASK);
    assert!(answer.messages.contains("57P03"), "{}", answer.messages);
    assert_eq!(slot_position(&server), before, "the log is kept");
    owner.kill_zone();
    std::fs::remove_dir_all(&store).expect("a directory of our own");
    moves(&aside, &store);
    owner.start_zone();
    owner.wait_for_log(ASK, &format!("{ROWS}|{}|1", ROWS * 2 + 10), &server);
    // Somebody who means it.
    owner.kill_zone();
    std::fs::remove_dir_all(&store).expect("a directory of our own");
    let drop_slot = "select pg_drop_replication_slot('strongroom_columns')";
    server.wait_for("select active from pg_replication_slots", "f");
    drop(server.rows(drop_slot));
    owner.start_zone();
    server.wait_for(
        "select strongroom_columns.status()::json->'store'->>'recovering'",
        "false",
    );
    owner.start_proxy_with(server.socket(), &["--new-zone"]);
    let other = "create table other (n enc_int8) using strongroom; insert into other values (7); select max(n) from other";
    assert_eq!(owner.rows(other), "7");
}

fn slot_position(server: &Server) -> String {
    server
        .rows("select restart_lsn from pg_replication_slots where slot_name = 'strongroom_columns'")
}
