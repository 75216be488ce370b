//! Goal: the estimate of how many pages were sealed under a data key (docs/spec/header.md, "Limits
//! of use") is right, is kept by whatever is done with the database, and is told of once it is
//! high.
//!
//! Method: nothing is made to count. Databases with pages of 512 bytes are written with true nonces
//! until a page is counted, which one in 65536 is; the bounds are such that chance breaks a test
//! once in 10^12 runs or less. High estimates are put into an anchor with the database's key.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that panics has failed"
)]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use strongroom_crypto::{SecretBytes, SecretKey};
use strongroom_format::header::{
    Anchor, HEADER_LEN, ObjectKind, SEALS_LIMIT, SEALS_STEP, SEALS_WARN,
};
use strongroom_keyring::{Object, Opener};
use strongroom_sqlite::{Cipher, KeySource, OpenOptions, explain, open, ops, take_warnings};

/// The raw key of every database here.
const KEY: &str = "1111111111111111111111111111111111111111111111111111111111111111";
/// Of the value that is written again and again: some 8000 pages.
const BYTES: u32 = 4_000_000;
/// So often is it written before chance is ruled out: no page of two million would be counted once
/// in 10^13 runs.
const TIMES: u32 = 250;
/// What a child process is told: the database's path, and how often it is to write.
const CHILD: &str = "STRONGROOM_TEST_SEALS";

/// The warnings are the process's: tests that make one, or look for one, take turns.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    drop(take_warnings());
    turn
}

fn options() -> OpenOptions {
    OpenOptions {
        key: Some(KeySource::Given(
            SecretBytes::take(&mut KEY.as_bytes().to_vec()).unwrap(),
        )),
        create: true,
        page_size: 512,
        ..OpenOptions::default()
    }
}

fn connect(path: &Path) -> Connection {
    let connection = open(path, &options()).unwrap();
    connection.busy_timeout(Duration::from_secs(60)).unwrap();
    connection
}

fn run(connection: &Connection, sql: &str) {
    if let Err(error) = connection.execute_batch(sql) {
        panic!("{sql}: {}", explain(error));
    }
}

/// A database whose one value is to be written again and again.
fn make(path: &Path, mode: &str, freshness: bool) -> Connection {
    let options = OpenOptions {
        freshness,
        ..options()
    };
    let connection = open(path, &options).unwrap();
    let mode = format!("PRAGMA journal_mode={mode}; PRAGMA wal_autocheckpoint=0");
    run(&connection, &mode);
    run(
        &connection,
        "CREATE TABLE t(b BLOB); INSERT INTO t VALUES(zeroblob(1))",
    );
    connection
}

fn write(connection: &Connection) {
    let sql = format!("PRAGMA cache_size=40; UPDATE t SET b=randomblob({BYTES})");
    run(connection, &sql);
}

/// The estimate, as the connection shows it.
fn seals(connection: &Connection) -> Option<u64> {
    let shown: Option<i64> = connection
        .query_row(
            "SELECT seals FROM strongroom_databases() WHERE name='main'",
            [],
            |row| row.get(0),
        )
        .unwrap();
    shown.map(|seals| u64::try_from(seals).unwrap())
}

/// Does it until another page is counted, and gives the estimate, which does not fall meanwhile.
fn until_counted(connection: &Connection, mut act: impl FnMut()) -> u64 {
    let before = seals(connection).unwrap();
    for _ in 0..TIMES {
        act();
        let now = seals(connection).unwrap();
        assert!(
            now >= before && now.is_multiple_of(SEALS_STEP),
            "{now} after {before}"
        );
        if now > before {
            return now;
        }
    }
    panic!("of two million pages none was counted");
}

fn object(path: &Path) -> (Object, Vec<u8>) {
    let opener = Opener::raw(SecretKey::take(&mut [0x11; 32]).unwrap());
    let mut header = std::fs::read(path).unwrap();
    header.truncate(HEADER_LEN);
    let object = Object::open(&header, ObjectKind::Sqlite, &opener).unwrap();
    (object, header)
}

/// The anchor in force of a database that no connection of this process has open.
fn anchor(path: &Path) -> Anchor {
    let (object, header) = object(path);
    object.anchor(&header).unwrap()
}

fn patch(path: &Path, at: u64, bytes: &[u8]) {
    use std::os::unix::fs::FileExt as _;
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(bytes, at).unwrap();
}

/// Journal modes, each without freshness and with it.
const WAYS: [(&str, bool); 4] = [
    ("DELETE", false),
    ("DELETE", true),
    ("WAL", false),
    ("WAL", true),
];

/// Puts an estimate into both anchors, under the database's key.
fn pretend(path: &Path, seals: u64) {
    let (object, header) = object(path);
    let old = object.anchor(&header).unwrap();
    for sequence in [old.sequence + 1, old.sequence + 2] {
        let keeps = object.header().freshness;
        let state = keeps.then(|| object.fresh_state(&old).unwrap());
        let anchor = object.seal_anchor(sequence, old.wal_generation, state.as_ref(), seals);
        let at = Anchor::offset(sequence) as u64;
        patch(path, at, &anchor.unwrap().to_bytes());
    }
}

/// The code of the warning that was given since it was last asked for.
fn warned() -> Option<u16> {
    take_warnings().last().map(|(code, _)| code.number)
}

/// Verifies the database, and gives what that says of its seals.
fn verified(path: &Path) -> Option<u64> {
    let report = ops::verify(path, &options(), &mut |_, _| {}).unwrap();
    assert!(report.bad.is_empty(), "{:?}", report.bad);
    assert_ne!(report.freshness, ops::Freshness::Stale);
    report.seals
}

#[test]
fn the_estimate_is_that_of_the_pages_sealed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("some.db");
    let connection = make(&path, "DELETE", false);
    run(&connection, "PRAGMA synchronous=OFF");
    assert_eq!(seals(&connection), Some(0), "a new database");
    let mut pages = 0;
    // Some 160 times 8000 pages and a few more: 20 are to be counted, and 8 standard deviations are
    // 36.
    for _ in 0..160 {
        write(&connection);
        let count: u32 = connection
            .query_row("PRAGMA page_count", [], |row| row.get(0))
            .unwrap();
        pages += u64::from(count);
    }
    let (expected, found) = (pages / SEALS_STEP, seals(&connection).unwrap() / SEALS_STEP);
    assert!(expected >= 18, "{pages} pages");
    assert!(
        (1..=expected + 40).contains(&found),
        "{found} instead of {expected}"
    );
}

#[test]
fn the_line_is_crossed_by_writing_and_told_of_once() {
    let _turn = turn();
    for (mode, freshness) in WAYS {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("line.db");
        drop(make(&path, mode, freshness));
        pretend(&path, SEALS_WARN - SEALS_STEP);
        let connection = connect(&path);
        assert_eq!(warned(), None, "{mode}: below the line");
        let now = until_counted(&connection, || {
            write(&connection);
            run(&connection, "PRAGMA wal_checkpoint(TRUNCATE)");
        });
        assert!(now >= SEALS_WARN, "{mode}");
        assert_eq!(warned(), Some(6012), "{mode}: the one that crosses it");
        drop(connection);
        drop(connect(&path));
        assert_eq!(warned(), None, "{mode}: once in a process");
        assert_eq!(verified(&path), Some(now), "{mode}");
        // Another process, whose name for the file is another here, warns as it opens it.
        let other = directory.path().join("copy.db");
        std::fs::copy(&path, &other).unwrap();
        drop(connect(&other));
        assert_eq!(warned(), Some(6012), "{mode}: the next to open it");
        // Nothing is refused behind the limit, and the warning is another one.
        pretend(&other, SEALS_LIMIT);
        let connection = connect(&other);
        assert_eq!(warned(), Some(6013), "{mode}");
        write(&connection);
        pretend_is_kept(&connection, SEALS_LIMIT);
        // The end of the numbers.
        drop(connection);
        pretend(&other, u64::MAX);
        let connection = connect(&other);
        write(&connection);
        run(&connection, "PRAGMA wal_checkpoint(TRUNCATE)");
        drop(connection);
        assert_eq!(verified(&other), Some(u64::MAX), "{mode}");
    }
}

fn pretend_is_kept(connection: &Connection, least: u64) {
    run(connection, "PRAGMA wal_checkpoint(TRUNCATE)");
    assert!(seals(connection).unwrap() >= least);
}

#[test]
fn it_is_kept_by_whatever_is_done_and_begins_anew_with_the_data_key() {
    let _turn = turn();
    for (mode, freshness) in [
        ("DELETE", false),
        ("PERSIST", true),
        ("WAL", false),
        ("WAL", true),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kept.db");
        drop(make(&path, mode, freshness));
        let high = 3 * SEALS_WARN;
        pretend(&path, high);
        let connection = connect(&path);
        let steps = [
            "UPDATE t SET b=randomblob(300000)",
            "PRAGMA wal_checkpoint(PASSIVE)",
            "PRAGMA cache_size=20; BEGIN; UPDATE t SET b=randomblob(300000); ROLLBACK",
            "PRAGMA wal_checkpoint(TRUNCATE); UPDATE t SET b=randomblob(300000)",
            "PRAGMA wal_checkpoint(RESTART); UPDATE t SET b=randomblob(3000)",
            "VACUUM",
            "PRAGMA journal_mode=DELETE; UPDATE t SET b=randomblob(300000)",
            "PRAGMA journal_mode=WAL; UPDATE t SET b=randomblob(300000)",
            "PRAGMA locking_mode=EXCLUSIVE; UPDATE t SET b=randomblob(300000); PRAGMA wal_checkpoint(TRUNCATE)",
            "PRAGMA locking_mode=NORMAL; SELECT count(*) FROM t; PRAGMA journal_mode=DELETE",
        ];
        let mut least = high;
        for step in steps {
            run(&connection, step);
            let now = seals(&connection).unwrap();
            assert!(
                (least..high + 40 * SEALS_STEP).contains(&now),
                "{mode}: {now} after {step}"
            );
            least = now;
        }
        drop(connection);
        assert_eq!(seals(&connect(&path)), Some(least), "{mode}: opened again");
        assert_eq!(verified(&path), Some(least), "{mode}");
        drop(take_warnings());
        // A new data key has sealed the pages of the database, some hundred, and no more.
        let same = options().key;
        ops::rekey(&path, &options(), same.as_ref(), true, &mut |_, _| {}).unwrap();
        assert_eq!(verified(&path), Some(least), "{mode}: the same data key");
        ops::rekey(&path, &options(), None, false, &mut |_, _| {}).unwrap();
        let anew = verified(&path).unwrap();
        assert!(anew <= 10 * SEALS_STEP, "{mode}: {anew}");
        drop(take_warnings());
        drop(connect(&path));
        assert_eq!(warned(), None, "{mode}: nothing to tell of");
    }
}

#[test]
fn what_a_transaction_has_sealed_counts_when_it_is_rolled_back() {
    let directory = tempfile::tempdir().unwrap();
    for freshness in [false, true] {
        let path = directory.path().join(format!("back{freshness}.db"));
        let connection = make(&path, "DELETE", freshness);
        write(&connection);
        let now = until_counted(&connection, || {
            run(&connection, "BEGIN");
            write(&connection);
            run(&connection, "ROLLBACK");
        });
        drop(connection);
        assert_eq!(verified(&path), Some(now));
    }
}

#[test]
fn nothing_counts_under_a_cipher_without_a_limit() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ctr.db");
    let options = OpenOptions {
        cipher: Cipher::Aes256Ctr,
        ..options()
    };
    let connection = open(&path, &options).unwrap();
    run(
        &connection,
        "CREATE TABLE t(b BLOB); INSERT INTO t VALUES(zeroblob(1))",
    );
    write(&connection);
    assert_eq!(seals(&connection), None);
}

/// Somebody without the key can lower the estimate to one that was (an anchor that was put back),
/// and not raise it.
#[test]
fn what_somebody_without_the_key_can_do_to_it() {
    let _turn = turn();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("changed.db");
    drop(make(&path, "DELETE", false));
    pretend(&path, SEALS_WARN);
    let older = std::fs::read(&path).unwrap();
    pretend(&path, 2 * SEALS_WARN);
    let newer = anchor(&path);
    let at = |sequence: u64| Anchor::offset(sequence) as u64 + 200;
    for bit in 0..64 {
        // The newer of the two: the other one is in force.
        let byte = (2 * SEALS_WARN).to_le_bytes()[bit / 8] ^ (1 << (bit % 8));
        patch(&path, at(newer.sequence) + bit as u64 / 8, &[byte]);
        assert_eq!(anchor(&path).sequence, newer.sequence - 1, "bit {bit}");
        patch(
            &path,
            Anchor::offset(newer.sequence) as u64,
            &newer.to_bytes(),
        );
    }
    // Both: nobody is told of a number that is not authentic, and verify names the anchors.
    for sequence in [newer.sequence, newer.sequence - 1] {
        patch(&path, at(sequence), &u64::MAX.to_le_bytes());
    }
    let connection = connect(&path);
    assert_eq!((warned(), seals(&connection)), (None, None));
    // Nor does a page that cannot be counted fail, where no journal needs an anchor.
    run(
        &connection,
        "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF",
    );
    for _ in 0..30 {
        write(&connection);
    }
    drop(connection);
    let report = ops::verify(&path, &options(), &mut |_, _| {}).unwrap();
    assert_eq!((report.bad.len(), report.seals), (2, None));
    // An older pair of anchors is authentic.
    patch(&path, 3072, &older[3072..HEADER_LEN]);
    assert_eq!(verified(&path), Some(SEALS_WARN));
}

/// This test's own program, as another process: see [`in_another_process`].
fn child(test: &str, path: &Path, times: u32) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, format!("{times} {}", path.display()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Not a test: what the children do. Each says how much of the estimate is its own.
#[test]
fn in_another_process() {
    let Ok(told) = std::env::var(CHILD) else {
        return;
    };
    let (times, path) = told.split_once(' ').unwrap();
    let path = PathBuf::from(path);
    let opened = (0..100).find_map(|_| open(&path, &options()).ok());
    let connection = opened.unwrap();
    connection.busy_timeout(Duration::from_secs(120)).unwrap();
    let mut own = 0;
    for _ in 0..times.parse().unwrap() {
        // Nobody else writes between the two looks, so the difference is this one's.
        run(&connection, "BEGIN EXCLUSIVE");
        let before = seals(&connection).unwrap();
        write(&connection);
        own += seals(&connection).unwrap() - before;
        run(&connection, "COMMIT");
        run(&connection, "PRAGMA wal_checkpoint(PASSIVE)");
        // The other one gets its turn.
        std::thread::sleep(Duration::from_millis(5));
    }
    println!("own {own}");
}

#[test]
fn a_process_that_is_killed_loses_nothing() {
    for (mode, freshness) in WAYS {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("killed.db");
        drop(make(&path, mode, freshness));
        let mut writer = child("in_another_process", &path, 10_000);
        let began = Instant::now();
        let mut counted = 0;
        while counted < 2 * SEALS_STEP {
            assert!(began.elapsed() < Duration::from_secs(300), "{mode}");
            assert!(writer.try_wait().unwrap().is_none(), "{mode}: it ended");
            std::thread::sleep(Duration::from_millis(20));
            let now = anchor(&path).seals;
            assert!(now >= counted, "{mode}: {now} after {counted}");
            counted = now;
        }
        writer.kill().unwrap();
        writer.wait().unwrap();
        let left = anchor(&path).seals;
        assert!(left >= counted, "{mode}");
        let connection = connect(&path);
        // What was to be rolled back, or copied from the log, is counted too.
        run(
            &connection,
            "SELECT count(*) FROM t; PRAGMA integrity_check",
        );
        assert!(seals(&connection).unwrap() >= left, "{mode}");
        drop(connection);
        assert!(verified(&path).unwrap() >= left, "{mode}");
    }
}

#[test]
fn two_processes_lose_none_of_each_other() {
    for freshness in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("two.db");
        drop(make(&path, "DELETE", freshness));
        let writers = [(), ()].map(|()| child("in_another_process", &path, 60));
        let own = writers.map(|writer| {
            let output = writer.wait_with_output().unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            assert!(output.status.success(), "{text}");
            let own = text
                .lines()
                .find_map(|line| line.strip_prefix("own "))
                .unwrap();
            own.parse::<u64>().unwrap()
        });
        // The last pages of a transaction are written as it ends, when nobody looks.
        let all = verified(&path).unwrap();
        println!("{own:?} of {all}");
        assert!(all > 0 && all >= own[0] + own[1], "{own:?} of {all}");
    }
}
