//! Goal: where a server's log parts into two histories, its zone follows the server's, or says that
//! it cannot: no value of the one is ever shown in the other.
//!
//! Method: a standby is promoted while the former primary goes on; the former primary is rewound
//! (`pg_rewind`) and follows, with the store that fits, and with its own, which does not; it is
//! promoted in turn. A zone that lives on while its server is put back to an earlier time.

use std::time::{Duration, Instant};

use strongroom_columns_testing::Server;
use strongroom_columns_testing::owner::{Owner, start_all};

const SETTINGS: &str = "wal_level = replica\nmax_wal_senders = 6\nhot_standby = on\nwal_log_hints = on\nwal_keep_size = 512MB\nautovacuum = off";
/// What a zone with its key and its owner's keyring is.
const ZONE: [&str; 4] = ["zone", "keyring", "root.key", "zone.key"];
/// A standby goes on behind a promotion.
const LATEST: &str = "recovery_target_timeline = 'latest'";
const ASK: &str = "select id, n, note from t order by id";

/// A primary and a standby that were promoted apart: each has rows that the other has not. The
/// primary's zone has made its own durable.
fn parted() -> (Owner, Server, Owner, Server) {
    let (owner, server) = start_all(SETTINGS);
    drop(owner.rows(
        "create table t (id int primary key, n enc_int8(ordered), note enc_text) using strongroom; create index on t (n);
         insert into t select g, 1, 'shared' from generate_series(1, 20) g",
    ));
    server.restart_with_checkpoint();
    owner.wait_for("select sum(n) from t", "20");
    let mut other = Owner::with_files_of(&owner, &ZONE);
    let standby = server.base_backup();
    server.copy_log_to(&standby);
    other.start_zone();
    standby.follow(&server, &other.zone_socket(), LATEST);
    other.start_proxy(standby.socket());
    drop(owner.rows("insert into t values (100, 7, 'last shared')"));
    let shared = owner.rows(ASK);
    other.wait_for_log(ASK, &shared, &standby);
    drop(standby.rows("select pg_promote()"));
    // The same numbers of rows on both sides, other values.
    for (side, name) in [(&owner, "old"), (&other, "new")] {
        side.wait_for("update t set n = n where id = 100 returning id", "100");
        drop(side.rows(&format!(
            "insert into t select g, 5, '{name}' from generate_series(200, 230) g;
             update t set note = note || '-{name}' where id <= 10"
        )));
    }
    server.stop();
    server.start_again();
    owner.wait_for("select count(note) from t where note = 'old'", "31");
    // The new history is the longer one: positions alone do not tell them apart.
    for _ in 0..3 {
        drop(standby.rows(
            "select pg_switch_wal(); create table more (a int); drop table more; checkpoint",
        ));
    }
    (owner, server, other, standby)
}

#[test]
fn a_former_primary_is_rewound_and_follows_with_a_store_that_fits() {
    let (mut owner, server, other, primary) = parted();
    let expected = other.rows(ASK);
    assert!(expected.contains("new") && !expected.contains("old"));
    server.stop();
    server.rewind_to(&primary);
    // Its own store has what never came about in this history. First it lives on, then it is
    // started anew.
    server.follow(&primary, &owner.zone_socket(), LATEST);
    server.wait_in_log("(SR-8030)");
    owner.kill_zone();
    server.stop();
    drop(std::fs::remove_file(server.log()));
    owner.start_zone();
    server.start_again();
    server.wait_in_log("different histories (SR-8030)");
    let answer = server.run(ASK);
    assert!(
        answer.messages.contains("57P03"),
        "{}{}",
        answer.rows,
        answer.messages
    );
    assert_eq!(
        server.rows("select count(*) from t"),
        "52",
        "plain columns follow"
    );
    // The store of the zone whose server it follows.
    owner.kill_zone();
    owner.take_files_of(&other, &["zone"]);
    owner.start_zone();
    owner.start_proxy(server.socket());
    owner.wait_for_log(ASK, &expected, &server);
    drop(other.rows("update t set note = note || '+' where id < 5"));
    let expected = other.rows(ASK);
    owner.wait_for_log(ASK, &expected, &server);
    let by_index = "set enable_seqscan = off; select count(*) from t where n = 5";
    assert_eq!(owner.rows(by_index), "31");
    // And back: it takes over, a third history.
    drop(other);
    primary.kill();
    drop(server.rows("select pg_promote()"));
    owner.wait_for("insert into t values (900, 9, 'third') on conflict (id) do nothing; select note from t where n = 9", "third");
    owner.kill_zone();
    server.kill();
    owner.start_zone();
    server.start_again();
    owner.wait_for(ASK, &format!("{expected}\n900|9|third"));
}

/// The zone's last checkpoint in order is at the position of the one that the worker had asked for,
/// which is before the time that the server is put back to; what it holds is of a later one.
#[test]
fn a_store_that_holds_more_than_its_position_says_is_refused_by_an_earlier_server() {
    let archive = tempfile::Builder::new().prefix("archive-").tempdir();
    let archive = archive.expect("a directory");
    strongroom_columns_testing::open_to_all(archive.path());
    let settings = format!(
        "{SETTINGS}\nstrongroom.checkpoint_interval = 1h\nstrongroom.sweep_interval = 0\narchive_mode = on\narchive_command = 'cp %p {}/%f'",
        archive.path().display()
    );
    let (mut owner, server) = start_all(&settings);
    drop(owner.rows("create table t (id int primary key, n enc_int8, note enc_text) using strongroom; insert into t values (1, 1, 'kept')"));
    server.restart_with_checkpoint();
    owner.wait_for("select n from t", "1");
    let earlier = Owner::with_files_of(&owner, &ZONE);
    let backup = server.base_backup();
    server.copy_log_to(&backup);
    drop(owner.rows("create table before (a int)"));
    let target = server.rows("select pg_current_wal_insert_lsn()");
    drop(owner.rows("create table later (a int)"));
    drop(owner.rows("drop table t; select pg_switch_wal()"));
    owner.stop_zone();
    server.stop();
    backup.configure(&format!(
        "archive_mode = off\nrestore_command = 'cp {}/%f %p'\nrecovery_target_lsn = '{target}'\nrecovery_target_action = promote\n",
        archive.path().display()
    ));
    backup.make_signal_file("recovery.signal");
    owner.start_zone();
    backup.start_again();
    backup.wait_in_log("different histories (SR-8030)");
    owner.kill_zone();
    owner.take_files_of(&earlier, &["zone"]);
    owner.start_zone();
    owner.start_proxy(backup.socket());
    owner.wait_for_log(ASK, "1|1|kept", &backup);
}

/// A zone that lives on while its server's files are put back to an earlier time has values of what
/// was undone, and lacks what was freed.
#[test]
fn a_zone_that_lives_on_while_its_server_goes_back_is_refused() {
    let archive = tempfile::Builder::new().prefix("archive-").tempdir();
    let archive = archive.expect("a directory");
    strongroom_columns_testing::open_to_all(archive.path());
    let settings = format!(
        "{SETTINGS}\narchive_mode = on\narchive_command = 'cp %p {}/%f'",
        archive.path().display()
    );
    let (mut owner, server) = start_all(&settings);
    drop(owner.rows("create table t (id int primary key, n enc_int8, note enc_text) using strongroom; insert into t values (1, 1, 'first')"));
    server.stop();
    server.start_again();
    owner.wait_for("select n from t", "1");
    let earlier = Owner::with_files_of(&owner, &ZONE);
    let backup = server.base_backup();
    server.copy_log_to(&backup);
    drop(owner.rows("insert into t values (2, 2, 'second')"));
    let target = server.rows("select pg_current_wal_insert_lsn()");
    drop(owner.rows("insert into t values (3, 3, 'third'); select pg_switch_wal()"));
    server.stop();
    backup.configure(&format!(
        "archive_mode = off\nrestore_command = 'cp {}/%f %p'\nrecovery_target_lsn = '{target}'\nrecovery_target_action = promote\n",
        archive.path().display()
    ));
    backup.make_signal_file("recovery.signal");
    backup.start_again();
    owner.start_proxy(backup.socket());
    let refused = |what: &str| {
        let begun = Instant::now();
        loop {
            let answer = backup.run("insert into t select 10, n, note from t where id = 1");
            if answer.messages.contains(what) {
                return;
            }
            assert!(
                answer.messages.contains("ERROR"),
                "{} was not refused",
                answer.rows
            );
            assert!(
                begun.elapsed() < Duration::from_secs(30),
                "{}",
                answer.messages
            );
            std::thread::sleep(Duration::from_millis(200));
        }
    };
    refused("(SR-8030)");
    // Started anew it finds that its checkpoint is of what was undone, if it is; the store of the
    // backup's time is right.
    owner.kill_zone();
    owner.take_files_of(&earlier, &["zone"]);
    owner.start_zone();
    owner.wait_for_log(ASK, "1|1|first\n2|2|second", &backup);
    owner.wait_for(
        "insert into t values (3, 33, 'another third') returning id",
        "3",
    );
    assert_eq!(owner.rows(ASK), "1|1|first\n2|2|second\n3|33|another third");
}
