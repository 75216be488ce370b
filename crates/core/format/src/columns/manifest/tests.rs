//! Tests of the manifest's layouts: what is written is read again, and everything else is refused.

use super::*;
use alloc::vec;

#[test]
fn a_head_is_canonical_or_refused() {
    let head = ManifestHead {
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
    assert_eq!(parse(MANIFEST_VERSION), ManifestError::Malformed);
    assert_eq!(parse(3), ManifestError::Newer(3));
    assert_eq!(parse(u16::MAX), ManifestError::Newer(u16::MAX));
    // Even of a file that ends behind the version, but not of another file.
    let short = &of(3)[..10];
    assert_eq!(ManifestHead::parse(short), Err(ManifestError::Newer(3)));
    let mut other = of(3);
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
    };
    assert_eq!(ManifestBody::parse(&body.to_bytes()), Some((body, &[][..])));
}
