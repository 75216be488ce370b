//! Pages flipped, moved, exchanged, cut off and put back; noise instead of pages.

use std::path::Path;

use strongroom_crypto::fill_random;
use strongroom_sqlite::ops::{self, UnitKind};
use strongroom_sqlite::{Cipher, open};

use crate::support::{
    HEADER, OTHER, PAGE, RAW, bad, bytes, connect, given, make, number, options, page, put, rows,
    rows_with, run,
};

fn pages_of(file: &[u8]) -> usize {
    (file.len() - HEADER) / PAGE
}

/// A scan of everything ends with an error, or serves exactly what was committed.
fn assert_error_or(path: &Path, expected: &[(i64, String)], code: u16, what: &str) {
    match rows(path) {
        Ok(found) => assert_eq!(found, expected, "{what}"),
        Err(error) => assert_eq!(error.code().number, code, "{what}: {error}"),
    }
}

#[test]
fn every_flipped_page_is_found_and_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("p.db");
    make(&path, Cipher::Aes256Gcm, 120);
    let good = bytes(&path);
    let count = pages_of(&good);
    assert!(count > 20);
    for number in 1..=count {
        for within in [
            0,
            24,
            500,
            PAGE - 32,
            PAGE - 20,
            PAGE - 17,
            PAGE - 4,
            PAGE - 1,
        ] {
            let mut damaged = good.clone();
            damaged[page(number).start + within] ^= 0x20;
            put(&path, &damaged);
            assert_eq!(
                crate::support::number(&rows(&path)),
                4001,
                "page {number}, byte {within}"
            );
            assert_eq!(
                bad(&path),
                [(UnitKind::Page, number as u64, 4001)],
                "page {number}, byte {within}"
            );
        }
    }
    // A zeroed page, one of ones, and noise.
    for filling in [0_u8, 0xff] {
        let mut damaged = good.clone();
        damaged[page(3)].fill(filling);
        put(&path, &damaged);
        assert_eq!(bad(&path), [(UnitKind::Page, 3, 4001)]);
        assert_eq!(number(&rows(&path)), 4001);
    }
}

#[test]
fn swapped_and_foreign_pages_are_found() {
    let directory = tempfile::tempdir().unwrap();
    let (path, other) = (directory.path().join("p.db"), directory.path().join("q.db"));
    make(&path, Cipher::Aes256Gcm, 120);
    let good = bytes(&path);
    let count = pages_of(&good);
    for (first, second) in (1..count)
        .map(|n| (n, n + 1))
        .chain([(1, count), (2, count / 2)])
    {
        let mut damaged = good.clone();
        damaged[page(first)].copy_from_slice(&good[page(second)]);
        damaged[page(second)].copy_from_slice(&good[page(first)]);
        put(&path, &damaged);
        assert_eq!(number(&rows(&path)), 4001, "pages {first} and {second}");
        let expected = [
            (UnitKind::Page, first as u64, 4001),
            (UnitKind::Page, second as u64, 4001),
        ];
        assert_eq!(bad(&path), expected);
    }
    // The same rows in another file under the same key: another object, so another data key and
    // another place.
    make(&other, Cipher::Aes256Gcm, 120);
    let foreign = bytes(&other);
    for number in [1, 2, count] {
        let mut damaged = good.clone();
        damaged[page(number)].copy_from_slice(&foreign[page(number)]);
        put(&path, &damaged);
        assert_eq!(
            crate::support::number(&rows(&path)),
            4001,
            "page {number} of another file"
        );
        assert_eq!(bad(&path), [(UnitKind::Page, number as u64, 4001)]);
    }
    // The other file's header in front of these pages: its key opens, its pages are not.
    let mut damaged = good;
    damaged[..HEADER].copy_from_slice(&foreign[..HEADER]);
    put(&path, &damaged);
    assert_eq!(number(&rows(&path)), 4001);
    assert_eq!(bad(&path).len(), count);
}

/// What is not found, and is said: an older copy of a page, in its own place, carries a valid tag.
#[test]
fn an_older_copy_of_a_page_is_accepted_and_verify_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("p.db");
    make(&path, Cipher::Aes256Gcm, 20);
    let old = bytes(&path);
    run(
        &connect(&path),
        "DROP INDEX i; UPDATE t SET b='new' WHERE a=1",
    );
    let new = bytes(&path);
    let changed: Vec<usize> = (2..=pages_of(&new))
        .filter(|&n| old[page(n)] != new[page(n)])
        .collect();
    assert!(!changed.is_empty());
    let mut stale = new;
    for number in changed {
        stale[page(number)].copy_from_slice(&old[page(number)]);
    }
    put(&path, &stale);
    let first = |path: &Path| -> String {
        connect(path)
            .query_row("SELECT b FROM t WHERE a=1", [], |row| row.get(0))
            .unwrap()
    };
    assert!(first(&path).starts_with("1-"), "the older row is served");
    let report = ops::verify(&path, &options(RAW), &mut |_, _| {}).unwrap();
    assert!(report.bad.is_empty());
    assert!(
        report
            .not_checked
            .iter()
            .any(|line| line.starts_with("freshness")),
        "{:?}",
        report.not_checked
    );
    // The whole file put back is the same to the sealing VFS.
    put(&path, &old);
    assert!(rows(&path).is_ok());
}

#[test]
fn a_page_of_a_key_that_was_replaced_is_not_accepted() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("p.db");
    make(&path, Cipher::Aes256Gcm, 120);
    let old = bytes(&path);
    ops::rekey(&path, &options(RAW), None, false, &mut |_, _| {}).unwrap();
    ops::rekey(
        &path,
        &options(RAW),
        Some(&given(OTHER)),
        false,
        &mut |_, _| {},
    )
    .unwrap();
    let new = bytes(&path);
    assert!(rows_with(&path, OTHER).is_ok());
    for number in [1, 2, pages_of(&new)] {
        let mut stale = new.clone();
        stale[page(number)].copy_from_slice(&old[page(number)]);
        put(&path, &stale);
        assert_eq!(
            crate::support::number(&rows_with(&path, OTHER)),
            4008,
            "page {number}"
        );
        // An epoch that is yet to come is not "unknown": it is forged.
        stale[page(number)].copy_from_slice(&new[page(number)]);
        stale[page(number).end - 4] = 200;
        put(&path, &stale);
        assert_eq!(
            crate::support::number(&rows_with(&path, OTHER)),
            4001,
            "page {number}"
        );
    }
    // The old header in front of the new pages.
    let mut mixed = new;
    mixed[..HEADER].copy_from_slice(&old[..HEADER]);
    put(&path, &mixed);
    assert!([4001, 4008].contains(&number(&rows(&path))));
}

#[test]
fn a_file_cut_anywhere_in_its_last_page_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("p.db");
    make(&path, Cipher::Aes256Gcm, 60);
    let good = bytes(&path);
    let last = pages_of(&good);
    for length in page(last).start..good.len() {
        put(&path, &good[..length]);
        let outcome = rows(&path);
        if length == page(last).start {
            // Every page that is left is whole: SQLite itself sees that page 1 counts more of them.
            assert!(outcome.is_err());
        } else {
            assert_eq!(number(&outcome), 4002, "length {length}");
        }
        let found = bad(&path);
        assert!(!found.is_empty(), "length {length}");
        assert!(
            found
                .iter()
                .all(|bad| *bad == (UnitKind::Page, last as u64, 4002)),
            "length {length}: {found:?}"
        );
    }
}

#[test]
fn noise_never_crashes_either_cipher() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("p.db");
    for cipher in [Cipher::Aes256Gcm, Cipher::Aes256Ctr] {
        make(&path, cipher, 120);
        let good = bytes(&path);
        let expected = rows(&path).unwrap();
        for round in 0..60_usize {
            let mut damaged = good.clone();
            let number = 1 + round % pages_of(&good);
            let whole = page(number);
            // Noise in the page but not in its tail: AES-256-CTR has nothing to tell it by.
            let range = if round % 2 == 0 {
                whole.clone()
            } else {
                whole.start..whole.end - 32
            };
            fill_random(&mut damaged[range]).unwrap();
            put(&path, &damaged);
            if cipher == Cipher::Aes256Gcm {
                assert_error_or(&path, &expected, 4001, "noise");
            } else if let Ok(connection) = open(&path, &options(RAW)) {
                // Whatever SQLite makes of it: an error, or rows that nobody vouches for. Not a
                // crash.
                for sql in [
                    "PRAGMA integrity_check",
                    "SELECT * FROM t ORDER BY b",
                    "DELETE FROM t",
                    "VACUUM",
                ] {
                    drop(connection.prepare(sql).and_then(|mut statement| {
                        let mut rows = statement.query([])?;
                        while rows.next()?.is_some() {}
                        Ok(())
                    }));
                }
            }
        }
        crate::support::clear(&path);
    }
}

/// The page that holds SQLite's lock bytes, at 64 KiB pages page 16385: reached and passed by a
/// file of 1 GiB.
#[test]
#[ignore = "writes a file of more than 1 GiB"]
fn a_file_beyond_the_lock_bytes_works() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("big.db");
    let big = strongroom_sqlite::OpenOptions {
        page_size: 65536,
        ..options(RAW)
    };
    let connection = open(&path, &big).unwrap();
    run(
        &connection,
        "PRAGMA synchronous=off; CREATE TABLE t(a INTEGER PRIMARY KEY, b BLOB)",
    );
    for _ in 0..11 {
        run(
            &connection,
            "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n WHERE x<100)
             INSERT INTO t(b) SELECT zeroblob(1000000) FROM n",
        );
    }
    run(
        &connection,
        "CREATE TABLE after(x); INSERT INTO after VALUES('behind the lock bytes')",
    );
    let size = std::fs::metadata(&path).unwrap().len();
    assert!(size > 0x4000_0000 + 3 * 65536, "{size}");
    let check: String = connection
        .query_row("PRAGMA quick_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(check, "ok");
    drop(connection);
    let report = ops::verify(&path, &options(RAW), &mut |_, _| {}).unwrap();
    assert!(report.bad.is_empty(), "{:?}", report.bad.first());
    assert!(
        report.not_checked.iter().any(|line| line.contains("16385")),
        "{:?}",
        report.not_checked
    );
    assert_eq!(report.pages_ok + 1, report.pages);
    ops::rekey(
        &path,
        &options(RAW),
        Some(&given(OTHER)),
        false,
        &mut |_, _| {},
    )
    .unwrap();
    let connection = open(&path, &options(OTHER)).unwrap();
    let text: String = connection
        .query_row("SELECT x FROM after", [], |row| row.get(0))
        .unwrap();
    assert_eq!(text, "behind the lock bytes");
    let sum: i64 = connection
        .query_row("SELECT sum(length(b)) FROM t", [], |row| row.get(0))
        .unwrap();
    assert_eq!(sum, 1_100_000_000);
}

/// SQLite does not journal what a page of the free list held when it takes the page into use: a
/// write of it that was cut in two, and rolled back, left a page at which a rekey stopped for ever,
/// and which verify called damaged.
#[test]
fn a_torn_page_of_the_free_list_is_no_damage() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("p.db");
    make(&path, Cipher::Aes256Gcm, 400);
    let connection = connect(&path);
    run(&connection, "DELETE FROM t WHERE a BETWEEN 20 AND 380");
    drop(connection);
    let expected = rows(&path).unwrap();
    let good = bytes(&path);
    let mut torn = good.clone();
    let (mut free, mut used) = (0, 0);
    for number in 2..=pages_of(&good) {
        let mut damaged = good.clone();
        damaged[page(number).start + 500] ^= 1;
        put(&path, &damaged);
        let report = ops::verify(&path, &options(RAW), &mut |_, _| {}).unwrap();
        if report.notes.is_empty() {
            assert_eq!(bad(&path), [(UnitKind::Page, number as u64, 4001)]);
            used += 1;
        } else {
            assert!(report.bad.is_empty() && report.notes[0].contains(&format!("page {number}:")));
            assert_eq!(rows(&path).unwrap(), expected);
            torn[page(number).start + 500] ^= 1;
            free += 1;
        }
    }
    assert!(free > 20 && used > 5, "{free} and {used}");
    // A page in use beside them is still damage.
    let mut damaged = torn.clone();
    damaged[page(2).start] ^= 1;
    put(&path, &damaged);
    assert_eq!(bad(&path), [(UnitKind::Page, 2, 4001)]);
    put(&path, &torn);
    let vacuum = connect(&path).execute_batch("VACUUM");
    assert!(vacuum.is_err(), "VACUUM reads them");
    ops::rekey(&path, &options(RAW), None, false, &mut |_, _| {}).unwrap();
    let report = ops::verify(&path, &options(RAW), &mut |_, _| {}).unwrap();
    assert!(report.bad.is_empty() && report.notes.is_empty());
    assert_eq!(rows(&path).unwrap(), expected);
    run(&connect(&path), "VACUUM");
    assert_eq!(rows(&path).unwrap(), expected);
}
