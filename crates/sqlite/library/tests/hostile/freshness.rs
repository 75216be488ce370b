//! A database that keeps freshness: older copies of pages, of anchors, of the log and of the whole
//! file.

use std::path::Path;

use rusqlite::Connection;
use strongroom_sqlite::ops::{self, Freshness};
use strongroom_sqlite::{Cipher, OpenOptions, open};

use crate::support::{
    HEADER, PAGE, RAW, Snapshot, beside, bytes, clear, connect, options, page, put, run,
};

/// How the database is written.
const MODES: [&str; 5] = ["DELETE", "TRUNCATE", "PERSIST", "MEMORY", "WAL"];

fn fresh_options(cipher: Cipher) -> OpenOptions {
    OpenOptions {
        freshness: true,
        cipher,
        ..options(RAW)
    }
}

/// A database with rows, an index, a long row and free pages; in the journal mode.
fn make(path: &Path, cipher: Cipher, mode: &str) -> Connection {
    let connection = open(path, &fresh_options(cipher)).unwrap();
    run(
        &connection,
        &format!(
            "PRAGMA journal_mode={mode};
             CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT); CREATE INDEX i ON t(b);
             CREATE TABLE gone(x); CREATE TABLE long(x);
             WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n WHERE x<400)
             INSERT INTO t SELECT x, printf('%d-%s', x, hex(randomblob(60))) FROM n;
             INSERT INTO gone SELECT b FROM t; INSERT INTO long VALUES(zeroblob(9000));
             DELETE FROM gone;"
        ),
    );
    connection
}

/// Every page that can be written is: rows, both trees, the long row, and the free pages by a table
/// that comes and goes.
fn change_all(connection: &Connection) {
    run(
        connection,
        "UPDATE t SET b=printf('%d-%s', a, hex(randomblob(60))); UPDATE long SET x=randomblob(9000);
         CREATE TABLE more AS SELECT b FROM t; DROP TABLE more; PRAGMA user_version=7",
    );
}

fn freshness(path: &Path) -> Freshness {
    let report = ops::verify(path, &options(RAW), &mut |_, _| {}).unwrap();
    assert!(report.bad.is_empty(), "{:?}", report.bad);
    report.freshness
}

fn root(path: &Path) -> [u8; 32] {
    match freshness(path) {
        Freshness::Holds { root, .. } => root,
        other => panic!("{other:?}"),
    }
}

#[test]
fn one_page_put_back_is_found_whatever_it_holds_and_in_every_journal_mode() {
    let directory = tempfile::tempdir().unwrap();
    for mode in MODES {
        let path = directory.path().join(format!("{mode}.db"));
        make(&path, Cipher::Aes256Gcm, mode).close().unwrap();
        let old = bytes(&path);
        let first = root(&path);
        let connection = connect(&path);
        change_all(&connection);
        connection.close().unwrap();
        let new = bytes(&path);
        assert_ne!(root(&path), first, "{mode}");
        let pages = (new.len().min(old.len()) - HEADER) / PAGE;
        let changed: Vec<usize> = (1..=pages)
            .filter(|&n| old[page(n)] != new[page(n)])
            .collect();
        assert!(changed.len() > 60 && changed[0] == 1, "{mode}: {changed:?}");
        for number in changed {
            let mut stale = new.clone();
            stale[page(number)].copy_from_slice(&old[page(number)]);
            put(&path, &stale);
            assert_eq!(freshness(&path), Freshness::Stale, "{mode}: page {number}");
        }
        // All but the header: an older file under the newest digest; and the older anchors under
        // the newest pages.
        let mixed = [&new[..HEADER], &old[HEADER..]].concat();
        put(&path, &mixed);
        assert_eq!(freshness(&path), Freshness::Stale, "{mode}");
        let mixed = [&old[..HEADER], &new[HEADER..]].concat();
        put(&path, &mixed);
        assert_eq!(freshness(&path), Freshness::Stale, "{mode}");
        // The whole older file is what it was: only its root tells.
        put(&path, &old);
        assert_eq!(root(&path), first, "{mode}");
        put(&path, &new);
        assert!(matches!(freshness(&path), Freshness::Holds { .. }));
    }
}

#[test]
fn a_page_put_back_is_found_after_the_application_has_written_it_and_the_newer_one_was_put_back() {
    let directory = tempfile::tempdir().unwrap();
    for (mode, cipher) in [
        ("DELETE", Cipher::Aes256Gcm),
        ("WAL", Cipher::Aes256Gcm),
        ("PERSIST", Cipher::Aes256Ctr),
    ] {
        let path = directory.path().join(format!("{mode}.db"));
        let connection = make(&path, cipher, mode);
        // With the index, SQLite itself may notice.
        run(&connection, "DROP INDEX i; VACUUM");
        connection.close().unwrap();
        let old = bytes(&path);
        let connection = connect(&path);
        run(
            &connection,
            "UPDATE t SET b=b||'x' WHERE a BETWEEN 20 AND 40",
        );
        connection.close().unwrap();
        let new = bytes(&path);
        let number = (2..(new.len() - HEADER) / PAGE)
            .find(|&n| old[page(n)] != new[page(n)])
            .unwrap();
        for put_back in [true, false] {
            let mut stale = new.clone();
            stale[page(number)].copy_from_slice(&old[page(number)]);
            put(&path, &stale);
            let connection = connect(&path);
            run(&connection, "PRAGMA integrity_check; UPDATE t SET b=b||'y'");
            connection.close().unwrap();
            assert_eq!(freshness(&path), Freshness::Stale, "{mode}");
            if put_back {
                let mut after = bytes(&path);
                after[page(number)].copy_from_slice(&new[page(number)]);
                put(&path, &after);
                assert_eq!(freshness(&path), Freshness::Stale, "{mode}");
            }
        }
    }
}

#[test]
fn two_older_pages_and_two_that_are_exchanged_are_found() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("two.db");
    make(&path, Cipher::Aes256Gcm, "DELETE").close().unwrap();
    let old = bytes(&path);
    let connection = connect(&path);
    change_all(&connection);
    connection.close().unwrap();
    let new = bytes(&path);
    let changed: Vec<usize> = (2..(old.len().min(new.len()) - HEADER) / PAGE)
        .filter(|&n| old[page(n)] != new[page(n)])
        .collect();
    for pair in changed.windows(2) {
        let mut stale = new.clone();
        for &number in pair {
            stale[page(number)].copy_from_slice(&old[page(number)]);
        }
        put(&path, &stale);
        assert_eq!(freshness(&path), Freshness::Stale);
    }
    // A file that was cut at a page.
    put(&path, &new[..new.len() - PAGE]);
    let report = ops::verify(&path, &options(RAW), &mut |_, _| {}).unwrap();
    assert_eq!(report.freshness, Freshness::Stale);
}

#[test]
fn older_anchors_are_found_and_the_digest_cannot_be_left_out() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.db");
    let connection = make(&path, Cipher::Aes256Gcm, "DELETE");
    let mut headers = vec![bytes(&path)[..HEADER].to_vec()];
    for number in 0..4 {
        run(
            &connection,
            &format!("UPDATE t SET b='{number}' WHERE a=200"),
        );
        headers.push(bytes(&path)[..HEADER].to_vec());
    }
    connection.close().unwrap();
    let new = bytes(&path);
    let newest = headers.pop().unwrap();
    assert_eq!(new[..HEADER], newest);
    for header in headers {
        for sector in [3072..3584, 3584..4096] {
            let mut changed = new.clone();
            changed[sector.clone()].copy_from_slice(&header[sector.clone()]);
            put(&path, &changed);
            let report = ops::verify(&path, &options(RAW), &mut |_, _| {}).unwrap();
            // The other sector is the newest, or has just been made so.
            let newest_is_there = changed[..HEADER] == newest[..];
            let other = if sector.start == 3072 { 3584 } else { 3072 };
            let sequence = |at: usize| u64::from_le_bytes(new[at..at + 8].try_into().unwrap());
            let is_old = sequence(sector.start) < sequence(other);
            let holds = matches!(report.freshness, Freshness::Holds { .. });
            assert_eq!(holds, newest_is_there || is_old);
        }
        let mut changed = new.clone();
        changed[3072..4096].copy_from_slice(&header[3072..4096]);
        put(&path, &changed);
        let report = ops::verify(&path, &options(RAW), &mut |_, _| {}).unwrap();
        assert_eq!(report.freshness, Freshness::Stale);
    }
    // Bit 0 of FEATURES is under the header's MAC.
    let mut changed = new;
    changed[80] = 0;
    put(&path, &changed);
    assert!(open(&path, &options(RAW)).is_err());
}

#[test]
fn a_log_that_is_cut_or_gone_after_a_checkpoint_is_found_and_commits_alone_are_told_of() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("w.db");
    let connection = make(&path, Cipher::Aes256Gcm, "WAL");
    run(
        &connection,
        "PRAGMA wal_checkpoint(TRUNCATE); PRAGMA wal_autocheckpoint=0",
    );
    let checkpointed = root(&path);
    change_all(&connection);
    assert!(
        matches!(freshness(&path), Freshness::Holds { log: true, root } if root == checkpointed)
    );
    // A reader keeps the next checkpoint from being complete; pages of the log's first part are in
    // the file then.
    let reader = connect(&path);
    run(&reader, "BEGIN; SELECT * FROM t LIMIT 1");
    run(
        &connection,
        "UPDATE t SET b='later' WHERE a<50; PRAGMA wal_checkpoint(PASSIVE)",
    );
    let part = Snapshot::take(&path);
    assert!(matches!(
        freshness(&path),
        Freshness::Holds { log: true, .. }
    ));
    run(&reader, "COMMIT");
    drop(reader);
    run(&connection, "PRAGMA wal_checkpoint(PASSIVE)");
    let whole = Snapshot::take(&path);
    assert!(matches!(
        freshness(&path),
        Freshness::Holds { log: true, .. }
    ));
    connection.close().unwrap();
    assert!(matches!(
        freshness(&path),
        Freshness::Holds { log: false, .. }
    ));
    let end = Freshness::Holds {
        root: root(&path),
        log: false,
    };
    copies_without_their_log(&directory.path().join("c.db"), &part, &whole, end);
}

/// Copies of a database from the middle of a checkpoint, and from its end, without the log that
/// belongs to them.
fn copies_without_their_log(copy: &Path, part: &Snapshot, whole: &Snapshot, end: Freshness) {
    for (snapshot, without) in [(part, Freshness::Stale), (whole, end)] {
        snapshot.place(copy);
        assert!(matches!(
            freshness(copy),
            Freshness::Holds { log: true, .. }
        ));
        std::fs::remove_file(beside(copy, "-wal")).unwrap();
        assert_eq!(freshness(copy), without);
        // Cut within its first transaction, it holds nothing either.
        snapshot.place(copy);
        let log = bytes(&beside(copy, "-wal"));
        put(&beside(copy, "-wal"), &log[..204 + 20 * (PAGE + 52)]);
        assert_eq!(freshness(copy), without);
        clear(copy);
    }
    // The next user of a copy whose checkpoint was cut short makes it anew.
    part.place(copy);
    let connection = connect(copy);
    run(
        &connection,
        "UPDATE t SET b='again' WHERE a=3; PRAGMA wal_checkpoint(TRUNCATE)",
    );
    assert!(matches!(
        freshness(copy),
        Freshness::Holds { log: false, .. }
    ));
    drop(connection);
}

#[test]
fn every_way_to_write_a_database_keeps_its_digest() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("m.db");
    let connection = make(&path, Cipher::Aes256Gcm, "DELETE");
    let holds = |what: &str| {
        assert!(
            matches!(freshness(&path), Freshness::Holds { .. }),
            "{what}: {:?}",
            freshness(&path)
        );
    };
    for sql in [
        "PRAGMA journal_mode=WAL; UPDATE t SET b=b||'1'",
        "PRAGMA journal_mode=DELETE; UPDATE t SET b=b||'2'",
        "PRAGMA auto_vacuum=INCREMENTAL; VACUUM",
        "DELETE FROM t WHERE a%3=0; PRAGMA incremental_vacuum(5)",
        "PRAGMA journal_mode=WAL; DELETE FROM t WHERE a%5=0; PRAGMA incremental_vacuum; PRAGMA wal_checkpoint",
        "VACUUM; PRAGMA wal_checkpoint(TRUNCATE)",
        "PRAGMA journal_mode=TRUNCATE; BEGIN; UPDATE t SET b=b||'3'; ROLLBACK",
        "PRAGMA cache_size=3; BEGIN; UPDATE t SET b=b||b; DELETE FROM t WHERE a<90; ROLLBACK",
        "BEGIN; UPDATE t SET b=b||'x'; SAVEPOINT s; DELETE FROM t WHERE a<50; ROLLBACK TO s; COMMIT",
        "PRAGMA journal_mode=MEMORY; UPDATE t SET b=b||'4'; BEGIN; UPDATE t SET b=b||b; ROLLBACK",
        "PRAGMA journal_mode=OFF; UPDATE t SET b=b||'5'",
        "PRAGMA synchronous=OFF; PRAGMA journal_mode=PERSIST; UPDATE t SET b=b||'6'; DROP TABLE long",
        "CREATE TABLE again AS SELECT * FROM t; DROP TABLE again; VACUUM",
    ] {
        run(&connection, sql);
        holds(sql);
    }
    // Nobody else reads it while a connection has it to itself.
    run(
        &connection,
        "PRAGMA synchronous=FULL; PRAGMA locking_mode=EXCLUSIVE; UPDATE t SET b=b||'7'; UPDATE t SET b=b||'8'",
    );
    run(
        &connection,
        "PRAGMA journal_mode=WAL; UPDATE t SET b=b||'9'",
    );
    connection.close().unwrap();
    holds("exclusive");
    ops::rekey(&path, &options(RAW), None, false, &mut |_, _| {}).unwrap();
    holds("rekey");
    let copy = directory.path().join("copy.db");
    ops::copy_online(&path, &copy, &options(RAW), &mut |_, _| {}).unwrap();
    assert_ne!(root(&copy), root(&path), "an object of its own");
}

#[test]
fn connections_that_write_in_turn_go_on_with_each_others_digest() {
    let directory = tempfile::tempdir().unwrap();
    for mode in MODES {
        let path = directory.path().join(format!("{mode}.db"));
        let first = make(&path, Cipher::Aes256Gcm, mode);
        let second = connect(&path);
        run(&second, &format!("PRAGMA journal_mode={mode}"));
        for round in 0..12 {
            let writer = if round % 3 == 0 { &first } else { &second };
            let work = match round % 4 {
                0 => "UPDATE t SET b=b||'x' WHERE a%7=0",
                1 => "BEGIN; CREATE TABLE u AS SELECT b FROM t; DROP TABLE u; COMMIT",
                2 => "BEGIN; DELETE FROM t WHERE a<200; UPDATE long SET x=1; ROLLBACK",
                _ => "DELETE FROM t WHERE a=(SELECT min(a) FROM t); VACUUM",
            };
            run(writer, work);
            let found = freshness(&path);
            assert!(
                matches!(found, Freshness::Holds { .. }),
                "{mode}, round {round}: {found:?}"
            );
        }
        first.close().unwrap();
        run(&second, "UPDATE t SET b='last'");
        second.close().unwrap();
        let found = freshness(&path);
        assert!(
            matches!(found, Freshness::Holds { log: false, .. }),
            "{mode}: {found:?}"
        );
    }
}

#[test]
fn the_backup_api_writes_into_a_database_that_keeps_freshness() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    for (from, to) in [("DELETE", "DELETE"), ("WAL", "PERSIST"), ("DELETE", "WAL")] {
        let (source, target) = (at(&format!("{from}-{to}.s")), at(&format!("{from}-{to}.t")));
        let reading = make(&source, Cipher::Aes256Gcm, from);
        change_all(&reading);
        let mut writing = make(&target, Cipher::Aes256Gcm, to);
        let before = root(&target);
        let backup = rusqlite::backup::Backup::new(&reading, &mut writing).unwrap();
        let mut steps = 0;
        while backup.step(5).unwrap() == rusqlite::backup::StepResult::More {
            steps += 1;
            if steps == 3 {
                // What changes behind the copied part is copied again by SQLite itself.
                run(&reading, "UPDATE t SET b='during' WHERE a<30");
            }
        }
        drop(backup);
        assert!(steps > 3);
        writing.close().unwrap();
        let after = root(&target);
        assert_ne!(after, before);
        let copied = connect(&target);
        let during: i64 = copied
            .query_row("SELECT count(*) FROM t WHERE b='during'", [], |row| {
                row.get(0)
            })
            .unwrap();
        assert_eq!(during, 29);
        reading.close().unwrap();
        assert!(matches!(
            freshness(&source),
            Freshness::Holds { log: false, .. }
        ));
    }
}

#[test]
fn settle_takes_what_is_there_and_says_nothing_else_before() {
    let directory = tempfile::tempdir().unwrap();
    for mode in ["DELETE", "WAL"] {
        let path = directory.path().join(format!("{mode}.db"));
        let connection = make(&path, Cipher::Aes256Gcm, mode);
        run(&connection, "DROP INDEX i");
        connection.close().unwrap();
        let old = bytes(&path);
        let connection = connect(&path);
        run(&connection, "UPDATE t SET b='n' WHERE a=300");
        connection.close().unwrap();
        let mut stale = bytes(&path);
        let number = (2..(old.len() - HEADER) / PAGE)
            .find(|&n| old[page(n)] != stale[page(n)])
            .unwrap();
        stale[page(number)].copy_from_slice(&old[page(number)]);
        put(&path, &stale);
        assert_eq!(freshness(&path), Freshness::Stale);
        let settled = ops::settle(&path, &options(RAW)).unwrap();
        assert_eq!(root(&path), settled);
        let connection = connect(&path);
        change_all(&connection);
        connection.close().unwrap();
        assert_ne!(root(&path), settled);
    }
    let path = directory.path().join("without.db");
    crate::support::make(&path, Cipher::Aes256Gcm, 10);
    assert_eq!(freshness(&path), Freshness::NotKept);
    let refused = ops::settle(&path, &options(RAW));
    assert_eq!(crate::support::number(&refused), 4014);
}
