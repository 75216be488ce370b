//! The write-ahead log: frames flipped, swapped, doubled and replayed; older, foreign and shortened
//! logs.
//!
//! Each transaction t writes its number into every row of one table and adds a row to another. What
//! is served must be the state after some transaction, whole: a prefix of what was committed.

use std::path::{Path, PathBuf};

use rusqlite::Connection;
use strongroom_format::header::Anchor;
use strongroom_format::sqlite::WalGeometry;
use strongroom_sqlite::ops::{self, UnitKind};
use strongroom_sqlite::{Error, OpenOptions, explain, open};
use tempfile::TempDir;

use crate::support::{PAGE, RAW, Snapshot, beside, bytes, connect, number, options, patch, run};

const GEOMETRY: WalGeometry = WalGeometry {
    page_size: PAGE as u32,
};
const ROWS: i64 = 40;

struct Bench {
    directory: TempDir,
    connection: Connection,
}

impl Bench {
    /// A database in write-ahead mode whose log holds transactions 1 to `transactions`.
    fn new(transactions: i64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let connection = connect(&directory.path().join("w.db"));
        run(
            &connection,
            "PRAGMA journal_mode=wal; PRAGMA wal_autocheckpoint=0; PRAGMA cache_size=10",
        );
        run(
            &connection,
            "CREATE TABLE v(a INTEGER PRIMARY KEY, t INTEGER, pad TEXT); CREATE TABLE log(t)",
        );
        run(
            &connection,
            &format!(
                "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n WHERE x<{ROWS})
                 INSERT INTO v SELECT x, 0, hex(randomblob(60)) FROM n; PRAGMA wal_checkpoint(truncate)"
            ),
        );
        let bench = Self {
            directory,
            connection,
        };
        for t in 1..=transactions {
            bench.transaction(t);
        }
        bench
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("w.db")
    }

    /// Where a changed copy is put.
    fn copy(&self) -> PathBuf {
        self.directory.path().join("copy.db")
    }

    fn transaction(&self, t: i64) {
        run(
            &self.connection,
            &format!("BEGIN; UPDATE v SET t={t}; INSERT INTO log VALUES({t}); COMMIT"),
        );
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot::take(&self.path())
    }
}

/// The transaction whose state is served; panics when the state is none.
fn state(connection: &Connection) -> rusqlite::Result<i64> {
    let query = "SELECT min(t), max(t), count(*), (SELECT count(*) FROM log), (SELECT ifnull(max(t), 0) FROM log),
                 (SELECT count(DISTINCT t) FROM log) FROM v";
    let numbers: Vec<i64> = connection.query_row(query, [], |row| {
        (0..6).map(|index| row.get(index)).collect()
    })?;
    let t = numbers[0];
    assert_eq!(
        numbers,
        [t, t, ROWS, t, t, t],
        "rows that were never committed together"
    );
    let check: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
    assert_eq!(check, "ok");
    Ok(t)
}

fn served(path: &Path) -> Result<i64, Error> {
    let connection = open(
        path,
        &OpenOptions {
            create: false,
            page_size: 0,
            ..options(RAW)
        },
    )?;
    state(&connection).map_err(explain)
}

fn frame(index: usize) -> std::ops::Range<usize> {
    GEOMETRY.frame_offset(index as u64) as usize..GEOMETRY.frame_offset(index as u64 + 1) as usize
}

fn frames(wal: &[u8]) -> usize {
    (0..)
        .take_while(|&index| frame(index).end <= wal.len())
        .count()
}

/// Places the snapshot with a changed log and looks at what is served.
fn served_with(bench: &Bench, good: &Snapshot, wal: Option<Vec<u8>>) -> Result<i64, Error> {
    Snapshot {
        main: good.main.clone(),
        wal,
        journal: None,
    }
    .place(&bench.copy());
    served(&bench.copy())
}

#[test]
fn a_flipped_frame_ends_the_log() {
    let bench = Bench::new(6);
    let good = bench.snapshot();
    let wal = good.wal.clone().unwrap();
    let count = frames(&wal);
    assert_eq!(served_with(&bench, &good, Some(wal.clone())).unwrap(), 6);
    let mut lowest = 6;
    for index in 0..count {
        for within in [0, 13, 30, 700, frame(0).len() - 1] {
            let mut damaged = wal.clone();
            damaged[frame(index).start + within] ^= 4;
            Snapshot {
                main: good.main.clone(),
                wal: Some(damaged.clone()),
                journal: None,
            }
            .place(&bench.copy());
            let report = ops::verify(&bench.copy(), &options(RAW), &mut |_, _| {}).unwrap();
            if index + 1 < count {
                let bad: Vec<_> = report
                    .bad
                    .iter()
                    .map(|bad| (bad.kind, bad.index, bad.code.number))
                    .collect();
                assert_eq!(bad, [(UnitKind::WalFrame, index as u64 + 1, 4003)]);
            } else {
                assert!(
                    report.not_checked.iter().any(|line| line.contains("frame")),
                    "{:?}",
                    report.not_checked
                );
            }
            let t = served(&bench.copy()).unwrap();
            assert!(t < 6, "frame {index}: all of it is served");
            lowest = lowest.min(t);
        }
    }
    assert_eq!(lowest, 0);
}

#[test]
fn swapped_doubled_and_removed_frames_end_the_log() {
    let bench = Bench::new(6);
    let good = bench.snapshot();
    let wal = good.wal.clone().unwrap();
    let count = frames(&wal);
    for index in 0..count - 1 {
        let mut swapped = wal.clone();
        swapped[frame(index)].copy_from_slice(&wal[frame(index + 1)]);
        swapped[frame(index + 1)].copy_from_slice(&wal[frame(index)]);
        let mut doubled = wal.clone();
        doubled[frame(index + 1)].copy_from_slice(&wal[frame(index)]);
        let mut removed = wal.clone();
        removed.drain(frame(index));
        let mut inserted = wal.clone();
        inserted.splice(
            frame(index).start..frame(index).start,
            wal[frame(index + 1)].to_vec(),
        );
        let mut zeroed = wal.clone();
        zeroed[frame(index)].fill(0);
        for changed in [swapped, doubled, removed, inserted, zeroed] {
            let t = served_with(&bench, &good, Some(changed)).unwrap();
            assert!(t < 6, "frame {index}");
        }
    }
    // A copy of the last, committing frame behind itself adds nothing.
    let mut longer = wal.clone();
    longer.extend_from_slice(&wal[frame(count - 1)]);
    assert_eq!(served_with(&bench, &good, Some(longer)).unwrap(), 6);
}

#[test]
fn a_log_cut_anywhere_serves_a_prefix() {
    let bench = Bench::new(5);
    let good = bench.snapshot();
    let wal = good.wal.clone().unwrap();
    let near =
        |length: usize| (0..=frames(&wal)).any(|index| frame(index).start.abs_diff(length) < 3);
    let mut last = 0;
    for length in (0..=wal.len()).filter(|&length| length < 300 || length % 97 == 0 || near(length))
    {
        let t = served_with(&bench, &good, Some(wal[..length].to_vec())).unwrap();
        assert!(t >= last, "length {length}: {t} after {last}");
        last = t;
    }
    assert_eq!(last, 5);
    assert_eq!(served_with(&bench, &good, None).unwrap(), 0);
}

#[test]
fn a_damaged_head_of_the_log_empties_it_or_is_an_error() {
    let bench = Bench::new(3);
    let good = bench.snapshot();
    let wal = good.wal.clone().unwrap();
    for offset in 0..frame(0).start {
        let mut damaged = wal.clone();
        damaged[offset] ^= 1 << (offset % 8);
        let outcome = served_with(&bench, &good, Some(damaged));
        match outcome {
            Ok(t) => assert_eq!(t, 0, "offset {offset}"),
            Err(error) => assert!(
                [4003, 4006].contains(&error.code().number),
                "offset {offset}: {error}"
            ),
        }
    }
}

#[test]
fn an_older_log_is_ignored_after_a_checkpoint() {
    let bench = Bench::new(4);
    let old = bench.snapshot().wal.unwrap();
    run(&bench.connection, "PRAGMA wal_checkpoint(truncate)");
    bench.transaction(5);
    bench.transaction(6);
    // The older log in place of the newer one: transactions 5 and 6 are cut off, 1 to 4 are in the
    // database.
    let now = bench.snapshot();
    assert_eq!(served_with(&bench, &now, Some(old.clone())).unwrap(), 4);
    // Frames of the older log among those of the newer one.
    let newer = now.wal.clone().unwrap();
    for index in 0..frames(&newer).min(frames(&old)) {
        let mut mixed = newer.clone();
        mixed[frame(index)].copy_from_slice(&old[frame(index)]);
        let t = served_with(&bench, &now, Some(mixed)).unwrap();
        assert!((4..6).contains(&t), "frame {index}: {t}");
        let mut spliced = newer.clone();
        spliced.truncate(frame(index).start);
        spliced.extend_from_slice(&old[frame(index).start..]);
        let t = served_with(&bench, &now, Some(spliced)).unwrap();
        assert!((4..6).contains(&t), "spliced at frame {index}: {t}");
    }
    // Put back over a checkpointed database, it is ignored; and what is written afterwards is
    // there.
    run(&bench.connection, "PRAGMA wal_checkpoint(truncate)");
    let now = bench.snapshot();
    assert_eq!(served_with(&bench, &now, Some(old.clone())).unwrap(), 6);
    let copy = connect(&bench.copy());
    run(&copy, "UPDATE v SET t=7; INSERT INTO log VALUES(7)");
    assert_eq!(state(&copy).unwrap(), 7);
    // And after the database left write-ahead mode.
    run(&bench.connection, "PRAGMA journal_mode=delete");
    bench.transaction(7);
    let now = bench.snapshot();
    assert_eq!(served_with(&bench, &now, Some(old)).unwrap(), 7);
}

#[test]
fn a_log_of_another_database_is_ignored() {
    let bench = Bench::new(4);
    let other = Bench::new(2);
    let good = bench.snapshot();
    let foreign = other.snapshot().wal.unwrap();
    assert_eq!(
        served_with(&bench, &good, Some(foreign.clone())).unwrap(),
        0
    );
    // Its frames behind our head, and the other way round.
    let ours = good.wal.clone().unwrap();
    let mut mixed = ours[..frame(0).start].to_vec();
    mixed.extend_from_slice(&foreign[frame(0).start..]);
    assert_eq!(served_with(&bench, &good, Some(mixed)).unwrap(), 0);
    // The plaintext log of an unsealed database.
    let plain = bench.directory.path().join("plain.db");
    let unsealed = open(
        &plain,
        &OpenOptions {
            create: true,
            page_size: PAGE as u32,
            ..OpenOptions::default()
        },
    )
    .unwrap();
    run(
        &unsealed,
        "PRAGMA journal_mode=wal; CREATE TABLE t(x); INSERT INTO t VALUES(1)",
    );
    assert_eq!(
        served_with(&bench, &good, Some(bytes(&beside(&plain, "-wal")))).unwrap(),
        0
    );
}

#[test]
fn a_reader_with_the_frame_in_its_snapshot_gets_an_error() {
    for index in 0..3 {
        let bench = Bench::new(3);
        let wal = beside(&bench.path(), "-wal");
        let reader = connect(&bench.path());
        run(&reader, "PRAGMA cache_size=1; BEGIN");
        let log: i64 = reader
            .query_row("SELECT count(*) FROM log", [], |row| row.get(0))
            .unwrap();
        assert_eq!(log, 3);
        let last = frames(&bytes(&wal)) - 1 - index;
        let at = frame(last).start as u64 + 100;
        let good = bytes(&wal);
        patch(&wal, at, &[good[frame(last).start + 100] ^ 1]);
        let found = state(&reader).map_err(explain);
        assert_eq!(number(&found), 4003, "frame {last}");
        // A checkpoint does not copy it into the database either.
        let checkpoint = bench
            .connection
            .query_row("PRAGMA wal_checkpoint(passive)", [], |_| Ok(()))
            .map_err(explain);
        assert_eq!(number(&checkpoint), 4003, "frame {last}");
        // Mended, it is all there.
        patch(&wal, at, &[good[frame(last).start + 100]]);
        assert!(reader.is_autocommit(), "an I/O error ends the transaction");
        assert_eq!(state(&reader).unwrap(), 3);
    }
}

#[test]
fn frames_moved_under_a_live_reader_are_an_error() {
    let bench = Bench::new(3);
    let wal = beside(&bench.path(), "-wal");
    let good = bytes(&wal);
    let count = frames(&good);
    for (to, from) in [
        (count - 1, count - 2),
        (count - 2, count - 1),
        (0, count - 1),
        (count - 1, 0),
    ] {
        patch(&wal, frame(to).start as u64, &good[frame(from)]);
        let reader = connect(&bench.path());
        let found = state(&reader).map_err(explain);
        assert!(
            [0, 4003].contains(&number(&found)),
            "frame {to}: SR-{}",
            number(&found)
        );
        assert!(found.is_err() || found.unwrap() == 3);
        drop(reader);
        patch(&wal, 0, &good);
    }
    assert_eq!(state(&bench.connection).unwrap(), 3);
}

/// One damaged anchor costs nothing that was committed: the other one names an older log, so the
/// newer one must not be dropped for it in silence.
#[test]
fn a_damaged_anchor_does_not_drop_the_log_in_silence() {
    let bench = Bench::new(2);
    run(&bench.connection, "PRAGMA wal_checkpoint(truncate)");
    bench.transaction(3);
    bench.transaction(4);
    let good = bench.snapshot();
    let mut outcomes = Vec::new();
    for start in [Anchor::offset(0), Anchor::offset(1)] {
        let mut damaged = good.main.clone();
        damaged[start + 20] ^= 1;
        Snapshot {
            main: damaged,
            wal: good.wal.clone(),
            journal: None,
        }
        .place(&bench.copy());
        let report = ops::verify(&bench.copy(), &options(RAW), &mut |_, _| {}).unwrap();
        let said = !report.bad.is_empty()
            || report
                .not_checked
                .iter()
                .any(|line| line.contains("anchor") || line.contains("4006"));
        outcomes.push((said, served(&bench.copy())));
    }
    for (said, outcome) in &outcomes {
        match outcome {
            Ok(4) => {}
            Ok(t) => assert!(*said && *t == 2, "the log was dropped in silence: {t}"),
            Err(error) => assert!([3010, 4006].contains(&error.code().number), "{error}"),
        }
    }
}

/// What an attacker with older copies can do, and no tag can tell: an older anchor together with
/// the log that it names is an older state of the database's end, mixed with the pages that were
/// checkpointed since.
#[test]
fn an_older_anchor_with_its_log_is_the_limit_of_what_is_found() {
    let bench = Bench::new(2);
    let old = bench.snapshot();
    run(&bench.connection, "PRAGMA wal_checkpoint(truncate)");
    bench.transaction(3);
    run(&bench.connection, "PRAGMA wal_checkpoint(truncate)");
    let mut main = bench.snapshot().main;
    main[3072..4096].copy_from_slice(&old.main[3072..4096]);
    Snapshot {
        main,
        wal: old.wal,
        journal: None,
    }
    .place(&bench.copy());
    // The pages that transaction 2 wrote are all those that transaction 3 wrote: the older state
    // comes back whole here.
    assert_eq!(served(&bench.copy()).unwrap(), 2);
    let report = ops::verify(&bench.copy(), &options(RAW), &mut |_, _| {}).unwrap();
    assert!(
        report
            .not_checked
            .iter()
            .any(|line| line.starts_with("freshness"))
    );
}

/// The limit inside one log: a rolled-back transaction leaves frames that SQLite writes over, and
/// an older copy of one, in its own place, carries a valid tag. Recovery is not fooled, because the
/// log's running checksum does not fit. A reader that has the frame in its index reads the page
/// alone and cannot tell; like an older copy of a page of the database, this needs somebody who
/// kept the bytes and writes to the file while it is in use.
#[test]
fn an_overwritten_frame_put_back_does_not_fool_recovery() {
    let bench = Bench::new(1);
    let wal = beside(&bench.path(), "-wal");
    let start = frames(&bytes(&wal));
    run(
        &bench.connection,
        "PRAGMA cache_size=1; BEGIN; INSERT INTO log VALUES(99); UPDATE v SET t=99",
    );
    let spilled = bytes(&wal);
    assert!(frames(&spilled) > start + 1, "nothing was spilled");
    run(&bench.connection, "ROLLBACK");
    bench.transaction(2);
    let good = bytes(&wal);
    let mut tried = 0;
    for index in start..frames(&good).min(frames(&spilled)) {
        if good[frame(index)] == spilled[frame(index)] {
            continue;
        }
        let mut mixed = good.clone();
        mixed[frame(index)].copy_from_slice(&spilled[frame(index)]);
        assert_eq!(
            served_with(&bench, &bench.snapshot(), Some(mixed)).unwrap(),
            1,
            "frame {index}"
        );
        tried += 1;
    }
    assert!(tried > 2);
}
