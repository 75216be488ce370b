//! The header, byte by byte: flipped, flipped by somebody who mends the checksum, cut short,
//! anchors damaged.

use strongroom_crypto::sha256;
use strongroom_format::header::{CHECKSUM_COVERS, Header, HeaderError, header_layout};
use strongroom_format::layout::Field;
use strongroom_sqlite::{Cipher, OpenOptions, open, ops};

use crate::support::{
    HEADER, PAGE, RAW, Snapshot, bad, bytes, connect, make, number, options, put, rows, run,
};

fn field_of(offset: usize) -> Field {
    let holds = |field: &&Field| (field.offset..field.offset + field.len).contains(&offset);
    *header_layout::FIELDS.iter().find(holds).unwrap()
}

#[test]
fn every_flipped_byte_of_the_header_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("h.db");
    make(&path, Cipher::Aes256Gcm, 20);
    let good = bytes(&path);
    for offset in 0..3072 {
        let mut damaged = good.clone();
        damaged[offset] ^= 1 << (offset % 8);
        put(&path, &damaged);
        let found = number(&rows(&path));
        let expected = match field_of(offset).name {
            "MAGIC" => 3001,
            "VERSION" if matches!(Header::parse(&damaged), Err(HeaderError::Newer(_))) => 3002,
            _ => 3003,
        };
        assert_eq!(
            found,
            expected,
            "offset {offset}, field {}",
            field_of(offset).name
        );
        // The structure is looked at before the key is: the answer is the same without one.
        let keyless = open(
            &path,
            &OpenOptions {
                page_size: 0,
                ..OpenOptions::default()
            },
        );
        assert_eq!(number(&keyless), expected, "without a key, offset {offset}");
        assert_eq!(bytes(&path), damaged, "the damaged file was changed");
    }
}

#[test]
fn every_forged_byte_of_the_header_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("h.db");
    make(&path, Cipher::Aes256Gcm, 20);
    let good = bytes(&path);
    for offset in 16..CHECKSUM_COVERS {
        let mut forged = good.clone();
        forged[offset] ^= 1 << (offset % 8);
        let checksum = sha256(&[&forged[..CHECKSUM_COVERS]]);
        forged[CHECKSUM_COVERS..CHECKSUM_COVERS + 32].copy_from_slice(&checksum);
        put(&path, &forged);
        let found = number(&rows(&path));
        let name = field_of(offset).name;
        let allowed: &[u16] = match name {
            "VERSION" => &[3002, 3003],
            "KIND" => &[3003, 3007],
            // A slot that does not open, a canary of another key, and the parts that these are
            // bound to.
            "SLOTS" => &[2002, 3003, 3004],
            "OBJECT_ID" | "EPOCH" => &[2002, 3003],
            "CANARY" | "MAC" | "CREATED" | "SEQUENCE" => &[3004],
            _ => &[3003, 3004],
        };
        assert!(
            allowed.contains(&found),
            "offset {offset}, field {name}: SR-{found}"
        );
    }
}

/// A change of cipher, of page size or of a slot by someone without the key.
#[test]
fn a_downgraded_cipher_is_a_forged_header() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("h.db");
    make(&path, Cipher::Aes256Gcm, 20);
    let good = bytes(&path);
    for (field, value) in [
        (header_layout::CIPHER, [2, 0]),
        (header_layout::UNIT_SIZE, [0, 2]),
    ] {
        let mut forged = good.clone();
        forged[field.offset..field.offset + 2].copy_from_slice(&value);
        let checksum = sha256(&[&forged[..CHECKSUM_COVERS]]);
        forged[CHECKSUM_COVERS..CHECKSUM_COVERS + 32].copy_from_slice(&checksum);
        put(&path, &forged);
        assert_eq!(number(&rows(&path)), 3004, "{}", field.name);
    }
}

#[test]
fn a_newer_format_version_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("h.db");
    make(&path, Cipher::Aes256Gcm, 20);
    let mut newer = bytes(&path);
    newer[header_layout::VERSION.offset] = 2;
    put(&path, &newer);
    let outcome = open(&path, &options(RAW));
    assert_eq!(number(&outcome), 3002);
    assert!(outcome.unwrap_err().detail().contains("version 2"));
}

#[test]
fn one_damaged_anchor_is_survived_and_two_are_not() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("h.db");
    make(&path, Cipher::Aes256Gcm, 20);
    run(&connect(&path), "DELETE FROM t WHERE a=2");
    let good = Snapshot::take(&path);
    let expected = rows(&path).unwrap();
    for (anchor, start) in [(1, 3072), (2, 3584)] {
        for within in (0..512).step_by(7) {
            let mut damaged = good.main.clone();
            damaged[start + within] ^= 0x10;
            Snapshot {
                main: damaged,
                wal: None,
                journal: None,
            }
            .place(&path);
            assert_eq!(
                rows(&path).unwrap(),
                expected,
                "anchor at {start}, byte {within}"
            );
            let named: Vec<_> = bad(&path)
                .into_iter()
                .map(|(_, index, code)| (index, code))
                .collect();
            assert_eq!(named, [(anchor, 3010)], "anchor at {start}, byte {within}");
            let connection = open(&path, &options(RAW)).unwrap();
            connection
                .execute_batch("INSERT INTO t(b) VALUES('x'); DELETE FROM t WHERE b='x'")
                .unwrap();
        }
    }
    for (first, second) in [(0, 0), (8, 16), (480, 500), (100, 300)] {
        let mut damaged = good.main.clone();
        damaged[3072 + first] ^= 1;
        damaged[3584 + second] ^= 1;
        put(&path, &damaged);
        let outcome = open(&path, &options(RAW)).map(|connection| {
            connection
                .execute_batch("INSERT INTO t(b) VALUES('x')")
                .map_err(strongroom_sqlite::explain)
        });
        let found = match &outcome {
            Ok(written) => number(written),
            Err(error) => error.code().number,
        };
        assert_eq!(found, 3010, "both anchors");
        drop(outcome);
        let named: Vec<_> = bad(&path)
            .into_iter()
            .map(|(_, index, code)| (index, code))
            .collect();
        assert_eq!(named, [(1, 3010), (2, 3010)]);
        assert_eq!(bytes(&path), damaged, "written in spite of the anchors");
    }
}

#[test]
fn a_file_cut_anywhere_in_its_header_or_first_page_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("h.db");
    make(&path, Cipher::Aes256Gcm, 20);
    let good = bytes(&path);
    for length in 1..HEADER + PAGE {
        put(&path, &good[..length]);
        let outcome = rows(&path);
        let expected: &[u16] = match length {
            // SQLite takes a file of one byte for an empty one (os_unix.c, unixFileSize).
            1 => &[1005],
            // A part of the magic and nothing else: a creation that was cut short, and begins anew.
            ..15 => &[1005],
            // The last byte of the magic is zero, as a missing one is taken to be.
            15..HEADER => &[3006],
            // A header and no page: what creating leaves. The database is new, and has no such
            // table.
            HEADER => &[1005],
            _ => &[4002],
        };
        let found = number(&outcome);
        assert!(
            expected.contains(&found),
            "length {length}: SR-{found} {:?}",
            outcome.err().map(|e| e.to_string())
        );
        assert_eq!(bytes(&path).len(), length, "the file was changed");
        if length > HEADER {
            let report = ops::verify(&path, &options(RAW), &mut |_, _| {}).unwrap();
            assert_eq!(
                report.bad.last().unwrap().code.number,
                4002,
                "length {length}"
            );
        }
    }
}

#[test]
fn a_header_alone_opens_with_its_key_only() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("h.db");
    make(&path, Cipher::Aes256Gcm, 20);
    put(&path, &bytes(&path)[..HEADER]);
    assert_eq!(number(&open(&path, &OpenOptions::default())), 2001);
    assert_eq!(number(&open(&path, &options(crate::support::OTHER))), 2002);
}
