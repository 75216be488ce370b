//! The rollback journal: hot ones that were changed, cut, exchanged or put back.
//!
//! A transaction that has spilled stands half in the database and half in the journal; only the
//! journal makes it whole. So a journal that is there but not authentic must stop everything: no
//! row is served, and nothing is deleted.

use std::path::{Path, PathBuf};

use strongroom_format::journal::{
    JOURNAL_HEAD, JOURNAL_SHADOW, JOURNAL_SLOT, journal_slot_offset, journal_slots,
};
use strongroom_sqlite::ops::{self, UnitKind};
use strongroom_sqlite::{Cipher, open};
use tempfile::TempDir;

use crate::support::{RAW, Snapshot, beside, bytes, connect, make, number, options, rows, run};

struct Hot {
    directory: TempDir,
    /// As it stood in the middle of the transaction.
    middle: Snapshot,
    /// What was committed before it.
    expected: Vec<(i64, String)>,
}

impl Hot {
    /// A database of 150 rows with a transaction under way whose pages are all in the file, as
    /// between the first and the last sync of a commit: a journal of one segment.
    fn new(mode: &str) -> Self {
        Self::with(mode, 2000)
    }

    /// The same with a cache of `cache` pages: a small one makes SQLite spill, with a segment for
    /// each spill.
    fn with(mode: &str, cache: u32) -> Self {
        Self::set(mode, cache, "")
    }

    /// With more pragmas.
    fn set(mode: &str, cache: u32, more: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("j.db");
        make(&path, Cipher::Aes256Gcm, 150);
        let expected = rows(&path).unwrap();
        let connection = connect(&path);
        run(
            &connection,
            &format!("PRAGMA journal_mode={mode}; PRAGMA cache_size={cache}; {more}"),
        );
        run(&connection, "BEGIN; UPDATE t SET b='changed '||a");
        connection.cache_flush().unwrap();
        let middle = Snapshot::take(&path);
        run(&connection, "ROLLBACK");
        drop(connection);
        assert!(
            middle
                .journal
                .as_ref()
                .is_some_and(|journal| slots(journal) > 20)
        );
        Self {
            directory,
            middle,
            expected,
        }
    }

    fn copy(&self) -> PathBuf {
        self.directory.path().join("copy.db")
    }

    fn place(&self, journal: Option<Vec<u8>>) -> PathBuf {
        Snapshot {
            main: self.middle.main.clone(),
            wal: None,
            journal,
        }
        .place(&self.copy());
        self.copy()
    }

    fn journal(&self) -> Vec<u8> {
        self.middle.journal.clone().unwrap()
    }
}

fn slots(journal: &[u8]) -> usize {
    journal_slots(journal.len() as u64) as usize
}

fn slot(index: usize) -> usize {
    journal_slot_offset(index as u64) as usize
}

#[test]
fn a_hot_journal_rolls_back() {
    for (mode, cache) in [
        ("delete", 2000),
        ("truncate", 2000),
        ("persist", 2000),
        ("delete", 3),
        ("persist", 5),
    ] {
        let hot = Hot::with(mode, cache);
        let path = hot.place(Some(hot.journal()));
        assert_eq!(rows(&path).unwrap(), hot.expected, "{mode}");
        assert!(
            ops::verify(&path, &options(RAW), &mut |_, _| {})
                .unwrap()
                .bad
                .is_empty()
        );
    }
}

#[test]
fn a_flipped_record_stops_everything() {
    let hot = Hot::new("delete");
    let count = slots(&hot.journal());
    for index in 1..count {
        let mut damaged = hot.journal();
        damaged[slot(index) + (index * 37) % JOURNAL_SLOT as usize] ^= 2;
        let path = hot.place(Some(damaged.clone()));
        let report = ops::verify(&path, &options(RAW), &mut |_, _| {}).unwrap();
        let found: Vec<_> = report
            .bad
            .iter()
            .map(|bad| (bad.kind, bad.index, bad.code.number))
            .collect();
        if index + 1 < count {
            assert_eq!(found, [(UnitKind::JournalSlot, index as u64 + 1, 4004)]);
        } else {
            assert!(
                report
                    .not_checked
                    .iter()
                    .any(|line| line.contains("journal slot")),
                "{:?}",
                report.not_checked
            );
        }
        let outcome = rows(&path);
        if let (true, Ok(found)) = (index + 1 == count, &outcome) {
            // The header of a segment to come, which no record follows.
            assert_eq!(*found, hot.expected);
            continue;
        }
        assert_eq!(number(&outcome), 4004, "slot {index}");
        assert_eq!(
            bytes(&beside(&path, "-journal")),
            damaged,
            "slot {index}: the journal was changed or deleted"
        );
        // Nor can anyone write.
        let written = open(&path, &options(RAW)).and_then(|connection| {
            connection
                .execute_batch("INSERT INTO t(b) VALUES('x')")
                .map_err(strongroom_sqlite::explain)
        });
        assert_eq!(number(&written), 4004, "slot {index}");
    }
}

/// The journal's head stands twice; the slot of the first header is not, and must not pass for "no
/// journal".
#[test]
fn a_damaged_head_of_a_hot_journal_does_not_pass_for_none() {
    let hot = Hot::new("delete");
    let mut wrong = Vec::new();
    for offset in (0..slot(1)).step_by(9) {
        let mut damaged = hot.journal();
        damaged[offset] ^= 1 << (offset % 8);
        let path = hot.place(Some(damaged));
        match rows_or_panic(&path) {
            Some(Ok(found)) if found == hot.expected => {}
            Some(Err(error)) if [4004, 4007].contains(&error.code().number) => {}
            other => wrong.push((
                offset,
                other.map(|outcome| outcome.map_or_else(|e| e.code().number, |_| 0)),
            )),
        }
    }
    assert!(
        wrong.is_empty(),
        "offsets where half a transaction was served: {wrong:?}"
    );
}

/// As `rows`; `None` when what is served is not even whole.
fn rows_or_panic(path: &Path) -> Option<Result<Vec<(i64, String)>, strongroom_sqlite::Error>> {
    std::panic::catch_unwind(|| rows(path)).ok()
}

#[test]
fn a_shortened_hot_journal_stops_everything() {
    let hot = Hot::new("delete");
    let journal = hot.journal();
    // The last slot is the header of a segment to come, which no record follows.
    let records = slot(slots(&journal) - 1);
    let cut_to_the_head = (JOURNAL_HEAD..slot(1)).step_by(61);
    for length in cut_to_the_head
        .chain((slot(1)..records).step_by(331))
        .chain([records - 1])
    {
        let path = hot.place(Some(journal[..length].to_vec()));
        let outcome = rows_or_panic(&path);
        let found = outcome.map(|outcome| number(&outcome));
        assert_eq!(
            found,
            Some(4004),
            "length {length}: half a transaction was served"
        );
    }
}

/// As above, with many segments: a cut or a flip at the head of a later one must not pass for the
/// journal's end.
#[test]
fn a_damaged_later_segment_does_not_pass_for_the_end() {
    let hot = Hot::with("delete", 3);
    let journal = hot.journal();
    let mut wrong = Vec::new();
    for index in 1..slots(&journal) {
        let mut damaged = journal.clone();
        damaged[slot(index) + 100] ^= 2;
        for changed in [damaged, journal[..slot(index)].to_vec()] {
            match rows_or_panic(&hot.place(Some(changed))) {
                Some(Ok(found)) if found == hot.expected => {}
                Some(Err(error)) if error.code().number == 4004 => {}
                _ => wrong.push(index),
            }
        }
    }
    wrong.dedup();
    assert!(
        wrong.is_empty(),
        "slots where half a transaction was served: {wrong:?}"
    );
}

/// In PERSIST mode a longer, older journal stands behind the records of the one in use. A rollback
/// ends where its own journal does, and needs no second one by recovery.
#[test]
fn a_rollback_over_an_older_longer_journal_is_complete() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("j.db");
    make(&path, Cipher::Aes256Gcm, 150);
    let connection = connect(&path);
    run(&connection, "PRAGMA journal_mode=persist");
    run(
        &connection,
        "CREATE TABLE p(a INTEGER PRIMARY KEY, b); INSERT INTO p SELECT a, zeroblob(3000) FROM t",
    );
    run(&connection, "UPDATE p SET b=zeroblob(3001)");
    // A row a page. After a segment's header, and after 64 records of 4104 bytes, the own journal
    // ends where a chunk does, and the next chunk is the older journal's.
    for pages in [0, 62, 63, 64, 65, 66] {
        run(
            &connection,
            "BEGIN; UPDATE p SET b=zeroblob(3002) WHERE a=149",
        );
        connection.cache_flush().unwrap();
        run(
            &connection,
            &format!("UPDATE p SET b=zeroblob(3002) WHERE a<={pages}"),
        );
        run(&connection, "ROLLBACK");
        let journal = bytes(&beside(&path, "-journal"));
        let other = connect(&path);
        let whole: i64 = other
            .query_row("SELECT sum(length(b)) FROM p", [], |row| row.get(0))
            .unwrap();
        assert_eq!(whole, 150 * 3001, "{pages} pages");
        let left = bytes(&beside(&path, "-journal"));
        assert!(left == journal, "{pages} pages: it was played back again");
    }
}

#[test]
fn a_journal_of_an_earlier_transaction_is_refused() {
    let hot = Hot::new("delete");
    let path = hot.directory.path().join("j.db");
    // The same file goes on: other transactions.
    let connection = connect(&path);
    run(&connection, "INSERT INTO t(b) VALUES('later')");
    drop(connection);
    let later = bytes(&path);
    let expected = rows(&path).unwrap();
    Snapshot {
        main: later.clone(),
        wal: None,
        journal: hot.middle.journal.clone(),
    }
    .place(&hot.copy());
    let outcome = rows(&hot.copy());
    assert_eq!(number(&outcome), 4007);
    assert_eq!(
        bytes(&hot.copy()),
        later,
        "an older journal was played back"
    );
    assert_eq!(bytes(&beside(&hot.copy(), "-journal")), hot.journal());
    Snapshot {
        main: later,
        wal: None,
        journal: None,
    }
    .place(&hot.copy());
    assert_eq!(rows(&hot.copy()).unwrap(), expected);
}

/// Slots of two journals of one database do not mix: each has a key of its own.
#[test]
fn slots_of_another_journal_are_not_accepted() {
    let hot = Hot::new("delete");
    let other = Hot::new("delete");
    let (ours, theirs) = (hot.journal(), other.journal());
    for index in [1, 5, slots(&ours) / 2] {
        let mut mixed = ours.clone();
        mixed[slot(index)..slot(index + 1)].copy_from_slice(&theirs[slot(index)..slot(index + 1)]);
        assert_eq!(number(&rows(&hot.place(Some(mixed)))), 4004, "slot {index}");
        let mut swapped = ours.clone();
        swapped[slot(index)..slot(index + 1)]
            .copy_from_slice(&ours[slot(index + 1)..slot(index + 2)]);
        assert_eq!(
            number(&rows(&hot.place(Some(swapped)))),
            4004,
            "slot {index} swapped"
        );
    }
}

/// The whole journal of another database, over one that is at rest: it is not ours, and changes
/// nothing.
#[test]
fn a_journal_of_another_database_changes_nothing() {
    let hot = Hot::new("delete");
    let other = Hot::new("delete");
    let path = hot.directory.path().join("j.db");
    let at_rest = bytes(&path);
    Snapshot {
        main: at_rest.clone(),
        wal: None,
        journal: Some(other.journal()),
    }
    .place(&hot.copy());
    match rows(&hot.copy()) {
        Ok(found) => assert_eq!(found, hot.expected),
        Err(error) => assert!([4004, 4007].contains(&error.code().number), "{error}"),
    }
    assert_eq!(bytes(&hot.copy()), at_rest);
    // A plaintext journal, made by an SQLite without the sealing VFS, likewise.
    let mut plain = vec![
        0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7, 0, 0, 0, 1, 1, 2, 3, 4, 0, 0, 0, 1, 0, 0,
        2, 0, 0, 0, 4, 0,
    ];
    plain.resize(512 + 4 + 1024 + 4, 0);
    Snapshot {
        main: at_rest.clone(),
        wal: None,
        journal: Some(plain),
    }
    .place(&hot.copy());
    match rows(&hot.copy()) {
        Ok(found) => assert_eq!(found, hot.expected),
        Err(error) => assert!([4004, 4007].contains(&error.code().number), "{error}"),
    }
    assert_eq!(bytes(&hot.copy()), at_rest);
}

/// In PERSIST mode the journal of the last transaction stays. Its header put back as it was makes
/// it hot again.
#[test]
fn a_persisting_journal_made_hot_again_is_refused_or_restores_a_committed_state() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("j.db");
    make(&path, Cipher::Aes256Gcm, 150);
    let mut states = vec![rows(&path).unwrap()];
    let connection = connect(&path);
    run(
        &connection,
        "PRAGMA journal_mode=persist; PRAGMA cache_size=3",
    );
    run(&connection, "BEGIN; UPDATE t SET b='changed '||a");
    let hot = bytes(&beside(&path, "-journal"));
    run(&connection, "COMMIT");
    drop(connection);
    states.push(rows(&path).unwrap());
    let committed = Snapshot::take(&path);
    let mut journal = committed.journal.clone().unwrap();
    journal[..slot(1)].copy_from_slice(&hot[..slot(1)]);
    Snapshot {
        main: committed.main,
        wal: None,
        journal: Some(journal),
    }
    .place(&path);
    match rows(&path) {
        // The state before the last transaction, whole: an older state, as the whole file put back
        // would be.
        Ok(found) => assert!(states.contains(&found)),
        Err(error) => assert!([4004, 4007].contains(&error.code().number), "{error}"),
    }
}

/// Without a count (`synchronous=OFF`) a slot may be found cut in two; its former version is in the
/// shadow then, and nothing else there is taken for it.
#[test]
fn a_cut_slot_of_a_journal_without_a_count_is_taken_from_the_shadow() {
    const MIDDLE: usize = 30;
    let hot = Hot::set("delete", 3, "PRAGMA synchronous=OFF");
    let whole = hot.journal();
    assert!(slots(&whole) > 2 * MIDDLE);
    let former = |index: usize| whole[slot(index)..slot(index + 1)].to_vec();
    let with_shadow = |index: usize, former: &[u8]| {
        let mut journal = whole.clone();
        journal[slot(MIDDLE) + 100..slot(MIDDLE + 1)].fill(0x5a);
        let shadow = [&(index as u64).to_le_bytes(), former].concat();
        journal[JOURNAL_SHADOW..JOURNAL_SHADOW + shadow.len()].copy_from_slice(&shadow);
        hot.place(Some(journal))
    };
    let path = with_shadow(MIDDLE, &former(MIDDLE));
    let report = ops::verify(&path, &options(RAW), &mut |_, _| {}).unwrap();
    assert!(
        !report
            .bad
            .iter()
            .any(|bad| bad.kind == UnitKind::JournalSlot),
        "{:?}",
        report.bad
    );
    assert_eq!(rows(&path).unwrap(), hot.expected);

    let mut flipped = former(MIDDLE);
    flipped[200] ^= 1;
    for (index, former) in [
        (MIDDLE + 1, former(MIDDLE)),
        (MIDDLE, former(MIDDLE - 1)),
        (MIDDLE, flipped),
    ] {
        let path = with_shadow(index, &former);
        let found = rows_or_panic(&path).and_then(Result::ok);
        assert_ne!(found, Some(hot.expected.clone()), "the slot was needed");
    }
}
