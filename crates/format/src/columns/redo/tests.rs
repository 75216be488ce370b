//! Tests of redo records' layouts: what is written is read again, and everything else is refused.

use super::*;
use alloc::vec;
use alloc::vec::Vec;

fn every_entry() -> Vec<Entry<'static>> {
    let fid = Fid::permanent(3, 9, 77, 500).unwrap();
    let relation = Relation {
        tablespace: 1663,
        database: 5,
        filenode: 16_384,
    };
    let change = PartitionChange {
        partition: 3,
        relation,
        first_extent: 64,
        stamp: 12,
    };
    let gone = PartitionChange {
        relation: Relation::NONE,
        ..change
    };
    vec![
        Entry::Word {
            fid,
            column: 4,
            kind: Kind::Int8,
            word: *b"12345678",
        },
        Entry::Bytes {
            fid,
            column: 5,
            kind: Kind::Text,
            bytes: b"forty-two bytes, or so",
        },
        Entry::Bytes {
            fid,
            column: 5,
            kind: Kind::Text,
            bytes: b"",
        },
        Entry::Freed(fid),
        Entry::Swept(8, fid),
        Entry::Opened(change),
        Entry::Dropped(gone),
        Entry::Rehomed(change),
    ]
}

#[test]
fn entries_come_back_and_a_cut_one_does_not() {
    let mut all = Vec::new();
    for entry in every_entry() {
        let before = all.len();
        entry.write(&mut |piece| all.extend_from_slice(piece));
        assert_eq!(all.len() - before, entry.encoded_len());
        for cut in before..all.len() {
            assert!(Entry::parse(&all[before..cut]).is_none());
        }
    }
    let mut rest = all.as_slice();
    for entry in every_entry() {
        let (found, tail) = Entry::parse(rest).unwrap();
        assert!(found == entry);
        rest = tail;
    }
    assert!(rest.is_empty());
}

#[test]
fn what_no_zone_writes_is_refused() {
    for (number, at, byte) in [
        (3, 8, 0x80),
        (3, 0, 8),
        (5, 1, 1),
        (6, 4, 1),
        (0, 1, 12),
        (5, 3, 0x80),
    ] {
        let mut bytes = Vec::new();
        every_entry()[number].write(&mut |piece| bytes.extend_from_slice(piece));
        assert!(Entry::parse(&bytes).is_some());
        bytes[at] = byte;
        assert!(Entry::parse(&bytes).is_none(), "{number} {at}");
    }
}

#[test]
fn a_head_is_canonical_or_refused() {
    let head = RedoHead {
        length: 32,
        incarnation: [7; 16],
        number: 5,
        tag: [9; 16],
    };
    let mut record = vec![0; 80];
    record[..48].copy_from_slice(&head.to_bytes());
    assert_eq!(RedoHead::parse(&record), Some(head));
    assert_eq!(RedoHead::parse(&record[..79]), None);
    for (at, byte) in [(0, 2), (1, 1), (4, 31), (4, 33), (24, 0)] {
        let mut bad = record.clone();
        bad[at] = byte;
        assert_eq!(RedoHead::parse(&bad), None, "byte {at}");
    }
    let link = Link {
        ring: 3,
        previous: 4,
        previous_tag: [1; 16],
    };
    assert_eq!(Link::parse(&link.to_bytes()), Some((link, &[][..])));
    let mut none = link.to_bytes();
    none[8] = 0;
    assert_eq!(Link::parse(&none), None, "no record before, but a tag");
}
