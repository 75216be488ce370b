//! `PRAGMA mmap_size`: pages come from a mapping of the sealed file, and are judged as ever,
//! whoever changes, cuts or lengthens the file.

use std::path::Path;

use rusqlite::Connection;
use strongroom_sqlite::{Cipher, explain, ops};

use crate::support::{
    OTHER, PAGE, RAW, bytes, connect, given, make, options, page, patch, put, run,
};

/// A connection that maps, with next to no cache, so that every scan reads the file.
fn mapping(path: &Path) -> Connection {
    let connection = connect(path);
    run(
        &connection,
        "PRAGMA mmap_size=1000000000; PRAGMA cache_size=4",
    );
    connection
}

fn sum(connection: &Connection) -> rusqlite::Result<(i64, i64)> {
    let sql = "SELECT count(*), sum(length(b)) FROM t NOT INDEXED";
    connection.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)))
}

/// The statement that adds rows `first` to 3000.
fn rows_from(first: u32) -> String {
    format!(
        "WITH RECURSIVE n(x) AS (SELECT {first} UNION ALL SELECT x+1 FROM n WHERE x<3000)
         INSERT INTO t SELECT x, hex(randomblob(60)) FROM n"
    )
}

/// Bytes of the file that are mapped, by whomever.
fn mapped_bytes(path: &Path) -> u64 {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let name = path.canonicalize().unwrap().display().to_string();
    let lengths = maps
        .lines()
        .filter(|line| line.ends_with(&name))
        .map(|line| {
            let (first, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
            let at = |text| u64::from_str_radix(text, 16).unwrap();
            at(end) - at(first)
        });
    lengths.sum()
}

fn is_mapped(path: &Path) -> bool {
    mapped_bytes(path) > 0
}

fn length(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().len()
}

#[test]
fn a_file_is_mapped_where_it_was_asked_for_and_shows_the_same() {
    let directory = tempfile::tempdir().unwrap();
    for cipher in [Cipher::Aes256Gcm, Cipher::Aes256Ctr] {
        let path = directory.path().join(format!("{}.db", cipher.name()));
        make(&path, cipher, 3000);
        let plain = connect(&path);
        let expected = sum(&plain).unwrap();
        assert!(!is_mapped(&path), "nobody asked for it");
        let mapped = mapping(&path);
        assert_eq!(sum(&mapped).unwrap(), expected);
        assert!(is_mapped(&path));
        run(&mapped, "PRAGMA mmap_size=0");
        assert_eq!(sum(&mapped).unwrap(), expected);
        assert!(!is_mapped(&path));
        // Less than the file: the rest is read.
        run(&mapped, &format!("PRAGMA mmap_size={}", 40 * PAGE));
        assert_eq!(sum(&mapped).unwrap(), expected);
        assert!(is_mapped(&path));
    }
}

#[test]
fn a_page_that_is_changed_under_the_mapping_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.db");
    make(&path, Cipher::Aes256Gcm, 3000);
    let mapped = mapping(&path);
    // So that all pages are the table's, and a scan reads them.
    run(&mapped, "DROP INDEX i; VACUUM");
    let expected = sum(&mapped).unwrap();
    assert!(is_mapped(&path));
    let good = bytes(&path);
    for number in [9, 50, 200] {
        let at = page(number).start + 100;
        patch(&path, at as u64, &[good[at] ^ 1]);
        let error = explain(sum(&mapped).unwrap_err());
        assert_eq!(error.code().number, 4001, "{error}");
        assert!(error.to_string().contains(&format!("page {number}")));
        patch(&path, at as u64, &[good[at]]);
        assert_eq!(sum(&mapped).unwrap(), expected);
    }
    // A page from elsewhere.
    patch(&path, page(50).start as u64, &good[page(51)]);
    let error = explain(sum(&mapped).unwrap_err());
    assert_eq!(error.code().number, 4001, "{error}");
    drop(mapped);
    put(&path, &good);
    assert_eq!(sum(&mapping(&path)).unwrap(), expected);
}

#[test]
fn a_mapping_follows_a_file_that_others_cut_and_lengthen() {
    let directory = tempfile::tempdir().unwrap();
    for mode in ["DELETE", "TRUNCATE", "PERSIST", "WAL"] {
        let path = directory.path().join(format!("{mode}.db"));
        make(&path, Cipher::Aes256Gcm, 3000);
        let other = connect(&path);
        run(&other, &format!("PRAGMA journal_mode={mode}"));
        let mapped = mapping(&path);
        assert_eq!(sum(&mapped).unwrap().0, 3000, "{mode}");
        for round in 0..4 {
            run(
                &other,
                "DELETE FROM t WHERE a>40; VACUUM; PRAGMA wal_checkpoint(TRUNCATE)",
            );
            let cut = length(&path);
            assert!(cut < 40 * PAGE as u64, "{mode}: it was cut");
            assert_eq!(
                sum(&mapped).unwrap(),
                sum(&other).unwrap(),
                "{mode}, {round}"
            );
            // Whole pages of memory: what was mapped of the longer file is not any more.
            assert!(mapped_bytes(&path) <= cut.next_multiple_of(4096), "{mode}");
            run(
                &other,
                &format!("{}; PRAGMA wal_checkpoint(TRUNCATE)", rows_from(41)),
            );
            assert_eq!(
                sum(&mapped).unwrap(),
                sum(&other).unwrap(),
                "{mode}, {round}"
            );
            assert!(is_mapped(&path));
            // And what the mapping connection writes itself.
            run(&mapped, "UPDATE t SET b=b||'x' WHERE a%3=0");
            run(&mapped, "BEGIN; DELETE FROM t; ROLLBACK");
            assert_eq!(
                sum(&mapped).unwrap(),
                sum(&other).unwrap(),
                "{mode}, {round}"
            );
        }
        run(&mapped, "DELETE FROM t WHERE a>40; VACUUM");
        assert_eq!(sum(&mapped).unwrap().0, 40);
    }
}

#[test]
fn a_rekey_goes_on_under_a_mapping() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.db");
    make(&path, Cipher::Aes256Gcm, 3000);
    let mapped = mapping(&path);
    let expected = sum(&mapped).unwrap();
    assert!(is_mapped(&path));
    let new = given(OTHER);
    ops::rekey(&path, &options(RAW), Some(&new), false, &mut |_, _| {}).unwrap();
    assert_eq!(sum(&mapped).unwrap(), expected);
    run(&mapped, "UPDATE t SET b=b||'x'");
    let report = ops::verify(&path, &options(OTHER), &mut |_, _| {}).unwrap();
    assert!(report.bad.is_empty(), "{:?}", report.bad);
}

/// What a mapping must not be read behind is the end of a file that a checkpoint has cut: no change
/// of the log tells the connection.
#[test]
fn a_checkpoint_of_somebody_else_cuts_the_file_under_a_mapping() {
    let directory = tempfile::tempdir().unwrap();
    for freshness in [true, false] {
        let path = directory.path().join(format!("{freshness}.db"));
        let options = strongroom_sqlite::OpenOptions {
            freshness,
            ..options(RAW)
        };
        let first = strongroom_sqlite::open(&path, &options).unwrap();
        run(
            &first,
            "PRAGMA journal_mode=WAL; CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT); CREATE INDEX i ON t(b)",
        );
        run(&first, &rows_from(1));
        first.close().unwrap();
        let (mapped, other) = (mapping(&path), connect(&path));
        assert_eq!(sum(&mapped).unwrap().0, 3000);
        assert_eq!(is_mapped(&path), !freshness);
        let before = length(&path);
        run(&mapped, "DELETE FROM t WHERE a>40; VACUUM");
        run(&other, "PRAGMA wal_checkpoint(PASSIVE)");
        assert!(length(&path) < before / 10);
        run(&mapped, &rows_from(41));
        assert_eq!(sum(&mapped).unwrap(), sum(&other).unwrap());
        drop((mapped, other));
        let report = ops::verify(&path, &options, &mut |_, _| {}).unwrap();
        assert!(report.bad.is_empty(), "{:?}", report.bad);
        let holds = matches!(report.freshness, ops::Freshness::Holds { .. });
        assert_eq!(holds, freshness, "{:?}", report.freshness);
    }
}

#[test]
fn a_connection_that_writes_maps_what_it_has_written() {
    let directory = tempfile::tempdir().unwrap();
    for mode in ["DELETE", "WAL"] {
        let path = directory.path().join(format!("{mode}.db"));
        make(&path, Cipher::Aes256Gcm, 3);
        let mapped = mapping(&path);
        run(&mapped, &format!("PRAGMA journal_mode={mode}"));
        sum(&mapped).unwrap();
        run(
            &mapped,
            &format!("{}; PRAGMA wal_checkpoint(TRUNCATE)", rows_from(4)),
        );
        assert_eq!(sum(&mapped).unwrap().0, 3000);
        let (length, mapped) = (length(&path), mapped_bytes(&path));
        assert!(mapped + 4096 >= length, "{mode}: {mapped} of {length}");
    }
}
