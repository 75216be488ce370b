//! Goal: what DuckDB wrote is understood, and no change of it makes a parser panic. Method: the
//! fuzz target's own corpus, which three versions of DuckDB wrote; every truncation, and every
//! change of a byte that is looked at.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::fs;
use std::path::Path;

use strongroom_format::duckdb::{
    Cipher, DUCKDB_HEADER_LEN, DatabaseHeader, EncryptionVersion, HeaderState, MainHeader, Refusal,
    WalHead, WalVersion, fuzz,
};

fn corpus(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/corpus/duckdb");
    fs::read(folder.join(name)).unwrap()
}

#[test]
fn headers_of_real_databases_are_understood() {
    for (name, version, storage, library) in [
        ("main-0", EncryptionVersion::V0, 67, "v1.4.4"),
        ("main-1", EncryptionVersion::V1, 68, "v2.0.0"),
    ] {
        let header = MainHeader::parse(&corpus(name)).unwrap();
        assert_eq!(header.state(), HeaderState::Whole);
        let format = header.supported_format().unwrap();
        assert_eq!((format.cipher, format.version), (Cipher::Gcm, version));
        assert_eq!(header.storage_version(), storage);
        assert_eq!(header.library(), library);
        let marked = header.in_state(true);
        assert_eq!(marked.state(), HeaderState::Rekeying);
        assert!(marked.in_state(false) == header);
    }
    let header = DatabaseHeader::parse(&corpus("database")).unwrap();
    assert!(header.block_size_is_known());
    assert_eq!((header.iteration, header.serialization), (5, 69));
}

#[test]
fn logs_of_real_databases_are_understood() {
    for name in ["wal-1.4", "wal-2.0"] {
        let head = WalHead::parse(&corpus(name)).unwrap();
        assert_eq!(head.version, WalVersion::Encrypted);
        assert!(head.identifier.is_some() && head.iteration.is_some());
    }
}

#[test]
fn every_value_that_is_not_known_is_refused() {
    let bytes = corpus("main-1");
    // Offset, values that are known.
    let fields: [(usize, &[u8]); 8] = [
        (12, &[67, 68]),
        (20, &[1]),
        (28, &[0]),
        (116, &[1]),
        (117, &[0]),
        (118, &[1, 2]),
        (119, &[0, 1]),
        (120, &[32]),
    ];
    for (at, known) in fields {
        for value in 0..=u8::MAX {
            let mut changed = bytes.clone();
            changed[at] = value;
            let gate = MainHeader::parse(&changed).unwrap().supported_format();
            assert_eq!(gate.is_ok(), known.contains(&value), "{at}: {value}");
            if at == 20 && value & 1 == 0 {
                assert_eq!(gate, Err(Refusal::Plain));
            }
        }
    }
}

#[test]
fn no_change_makes_a_parser_panic() {
    for name in ["main-0", "main-1", "wal-1.4", "wal-2.0", "database"] {
        let bytes = corpus(name);
        for end in (0..bytes.len()).filter(|end| end % 97 == 0 || *end < 200) {
            fuzz(&bytes[..end]);
        }
        for at in 0..bytes.len().min(200) {
            for change in [1, 0x80, 0xff] {
                let mut changed = bytes.clone();
                changed[at] ^= change;
                fuzz(&changed);
            }
        }
        fuzz(&bytes);
    }
    assert!(MainHeader::parse(&corpus("main-1")[..DUCKDB_HEADER_LEN - 1]).is_none());
}
