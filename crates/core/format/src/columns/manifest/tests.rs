//! Tests of the manifest's layouts: what is written is read again, and everything else is refused.

use super::*;
use alloc::vec;

#[test]
fn a_head_is_canonical_or_refused() {
    let head = ManifestHead {
        version: MANIFEST_VERSION,
        counter: 3,
        length: 8,
        nonce: [1; 12],
        tag: [2; 16],
    };
    let mut file = vec![0; 72];
    file[..64].copy_from_slice(&head.to_bytes());
    assert_eq!(ManifestHead::parse(&file), Ok(head));
    let malformed = Err(ManifestError::Malformed);
    assert_eq!(ManifestHead::parse(&file[..71]), malformed);
    let before = ManifestHead {
        version: MANIFEST_VERSION_OLDEST,
        ..head
    };
    file[..64].copy_from_slice(&before.to_bytes());
    assert_eq!(ManifestHead::parse(&file), Ok(before));
    let bound = |head: ManifestHead| head.associated_data([7; 16], 1);
    assert_ne!(bound(before), bound(head), "the version is authenticated");
    for at in [0, 10, 15, 24, 60, 63] {
        let mut bad = file.clone();
        bad[at] ^= 0x40;
        assert_eq!(ManifestHead::parse(&bad), malformed, "byte {at}");
    }
}

#[test]
fn another_version_is_told_before_anything_else_is_looked_at() {
    let of = |version: u16| {
        // Only the magic and the version are as this code knows them.
        let mut file = [0xff; manifest_layout::SIZE];
        file[..8].copy_from_slice(&MANIFEST_MAGIC);
        file[8..10].copy_from_slice(&version.to_le_bytes());
        file
    };
    let parse = |version| ManifestHead::parse(&of(version)).unwrap_err();
    assert_eq!(parse(0), ManifestError::Malformed);
    assert_eq!(parse(1), ManifestError::Older(1));
    assert_eq!(parse(MANIFEST_VERSION_OLDEST), ManifestError::Malformed);
    assert_eq!(parse(MANIFEST_VERSION), ManifestError::Malformed);
    let newer = MANIFEST_VERSION + 1;
    assert_eq!(parse(newer), ManifestError::Newer(newer));
    assert_eq!(parse(u16::MAX), ManifestError::Newer(u16::MAX));
    // Even of a file that ends behind the version, but not of another file.
    let short = &of(newer)[..10];
    assert_eq!(ManifestHead::parse(short), Err(ManifestError::Newer(newer)));
    let mut other = of(newer);
    other[0] ^= 1;
    assert_eq!(ManifestHead::parse(&other), Err(ManifestError::Malformed));
}

#[test]
fn a_column_s_key_comes_back() {
    let column = ColumnKeyEntry {
        column: 7,
        key_id: [8; 16],
        lineage: Lineage::of_column(77, crate::columns::Class::Ordered),
    };
    let client = ColumnKeyEntry {
        lineage: Lineage::CLIENT,
        ..column
    };
    assert!(ColumnKeyEntry::parse(&client.to_bytes()).is_none());
    assert!(ColumnKeyEntry::parse(&column.to_bytes()) == Some((column, &[][..])));
    assert!(ColumnKeyEntry::parse(&column.to_bytes()[1..]).is_none());
}

#[test]
fn a_kept_key_comes_back() {
    let mut bytes = vec![3; 16];
    bytes.extend_from_slice(&[4; 32]);
    bytes.push(5);
    let (kept, rest) = KeptKey::parse(&bytes).unwrap();
    assert_eq!((kept.id, *kept.key, rest), ([3; 16], [4; 32], &[5][..]));
    assert!(KeptKey::parse(&bytes[..47]).is_none());
}

#[test]
fn a_partition_s_entry_comes_back() {
    let relation = Relation {
        tablespace: 1,
        database: 2,
        filenode: 3,
    };
    let open = PartitionEntry {
        partition: 5,
        relation: Some(relation),
        first_extent: 1,
        reserved_to: 65,
        extents: 2,
        stamp: 9,
        key: [3; 32],
        column_keys: 3,
    };
    assert!(PartitionEntry::parse(&open.to_bytes()) == Some((open, &[][..])));
    let dropped = PartitionEntry {
        relation: None,
        extents: 0,
        key: [0; 32],
        column_keys: 0,
        ..open
    };
    assert!(PartitionEntry::parse(&dropped.to_bytes()) == Some((dropped, &[][..])));
    let odd = PartitionEntry {
        key: [1; 32],
        ..dropped
    };
    assert!(PartitionEntry::parse(&odd.to_bytes()).is_none());
}

#[test]
fn entries_of_a_partition_and_behind_it_come_back() {
    let extent = ExtentEntry {
        extent: 4,
        column: 1,
        kind: Kind::Text,
        present: 5,
        gone: 2,
    };
    assert_eq!(
        ExtentEntry::parse(&extent.to_bytes()),
        Some((extent, &[][..]))
    );
    let both = ExtentEntry { gone: 1, ..extent };
    assert_eq!(ExtentEntry::parse(&both.to_bytes()), None);
}

#[test]
fn blocks_chains_and_held_values_come_back() {
    let block = BlockEntry {
        place: 2048,
        length: 77,
        version: 8,
        tag: [4; 16],
        values: 1024,
    };
    assert_eq!(BlockEntry::parse(&block.to_bytes()), Some((block, &[][..])));
    let crooked = BlockEntry {
        place: 2049,
        ..block
    };
    assert_eq!(BlockEntry::parse(&crooked.to_bytes()), None);
    let overfull = BlockEntry {
        values: 1025,
        ..block
    };
    assert_eq!(BlockEntry::parse(&overfull.to_bytes()), None);
    let chain = ChainEntry {
        incarnation: [6; 16],
        ring: 1,
        number: 2,
        tag: [7; 16],
    };
    assert_eq!(ChainEntry::parse(&chain.to_bytes()), Some((chain, &[][..])));
    let fid = Fid::permanent(1, 2, 3, 4).unwrap();
    let held = QuarantineEntry { sweep: 3, fid };
    assert_eq!(
        QuarantineEntry::parse(&held.to_bytes()),
        Some((held, &[][..]))
    );
}

#[test]
fn a_body_comes_back() {
    let body = ManifestBody {
        position: 1,
        stamp: 2,
        sweep: 3,
        block_version: 4,
        floor: 5,
        partitions: 6,
        chains: 7,
        keys: 9,
        quarantine: 8,
        timeline: 10,
        former_keys: 11,
        ledgers: 12,
        redo_from: 2,
        reached: 13,
        reached_timeline: 14,
        moved: 15,
    };
    let mut bytes = body.to_bytes();
    let parsed = ManifestBody::parse(&bytes, MANIFEST_VERSION);
    assert_eq!(parsed, Some((body, &[][..])));
    // Version 4 ended sixteen bytes earlier, version 2 another eight.
    let before = ManifestBody {
        reached: 0,
        reached_timeline: 0,
        moved: 0,
        ..body
    };
    let parsed = ManifestBody::parse(&bytes[..72], 4);
    assert_eq!(parsed, Some((before, &[][..])));
    let before = ManifestBody {
        ledgers: 0,
        redo_from: 0,
        ..before
    };
    let parsed = ManifestBody::parse(&bytes[..64], MANIFEST_VERSION_OLDEST);
    assert_eq!(parsed, Some((before, &[][..])));
    assert_eq!(ManifestBody::parse(&bytes[..87], MANIFEST_VERSION), None);
    assert_eq!(
        ManifestBody::parse(&bytes[..72], 3),
        None,
        "zero in version 3"
    );
    bytes[69] = 1;
    assert_eq!(ManifestBody::parse(&bytes, MANIFEST_VERSION), None);
    bytes[68..70].fill(0);
    let parsed = ManifestBody::parse(&bytes[..72], 3);
    let before = ManifestBody {
        ledgers: 12,
        ..before
    };
    assert_eq!(parsed, Some((before, &[][..])));
    bytes[72..80].fill(0);
    assert_eq!(
        ManifestBody::parse(&bytes, MANIFEST_VERSION),
        None,
        "a timeline of nothing"
    );
}

#[test]
fn a_moved_partition_comes_back() {
    let moved = MovedEntry {
        partition: 7,
        relation: Relation {
            tablespace: 1,
            database: 0,
            filenode: 3,
        },
    };
    let bytes = moved.to_bytes();
    assert_eq!(MovedEntry::parse(&bytes), Some((moved, &[][..])));
    assert_eq!(MovedEntry::parse(&bytes[..13]), None);
    for (at, byte) in [(0, 0), (1, 0x80), (2, 0)] {
        let mut bad = bytes;
        bad[at] = byte;
        assert_eq!(MovedEntry::parse(&bad), None, "{at}");
    }
}

#[test]
fn a_ledger_comes_back() {
    let ledger = LedgerEntry {
        key_id: [1; 16],
        lines: 2,
        period: 3,
        truths: 4,
        outputs: crate::columns::channel::LIMITLESS,
        begun: 5,
        spent_truths: 6,
        spent_outputs: 7,
    };
    let bytes = ledger.to_bytes();
    assert_eq!(LedgerEntry::parse(&bytes), Some((ledger, &[][..])));
    assert!(ledger.is_limited());
    let mut bad = bytes;
    bad[20] = 1;
    assert_eq!(LedgerEntry::parse(&bad), None);
    assert_eq!(LedgerEntry::parse(&bytes[..71]), None);
}

#[test]
fn a_line_of_a_ledger_is_canonical_or_refused() {
    let line = |asker| LedgerLine {
        asker,
        seen: 1,
        truths: 2,
        checks: 3,
        outputs: 4,
        declassified: 5,
    };
    let longest = "ä".repeat(31) + "x";
    for asker in [
        Asker::NoSession,
        Asker::Named("payroll@shop"),
        Asker::Named(&longest),
        Asker::Others,
    ] {
        let line = line(asker);
        let bytes = line.to_bytes();
        assert_eq!(LedgerLine::parse(&bytes), Some((line, &[][..])));
        assert_eq!(LedgerLine::parse(&bytes[..111]), None);
    }
    let bytes = line(Asker::Named("ab")).to_bytes();
    // Another asker, a longer and a shorter name, one that is no text or has a control character,
    // bytes behind it.
    for (at, value) in [
        (0, 0),
        (0, 3),
        (1, 3),
        (1, 1),
        (1, 65),
        (2, 1),
        (8, 0xff),
        (8, 7),
        (71, 1),
    ] {
        let mut bad = bytes;
        bad[at] = value;
        assert_eq!(LedgerLine::parse(&bad), None, "byte {at} is {value}");
    }
    for name in ["", "line\nbreak", &"x".repeat(64)] {
        let bytes = line(Asker::Named(name)).to_bytes();
        let read = LedgerLine::parse(&bytes).map(|(line, _)| line.asker);
        assert_ne!(read, Some(Asker::Named(name)));
    }
}
