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
        Entry::Word {
            fid,
            column: 5,
            kind: Kind::Text,
            word: *b"12345678",
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
        (4, 8, 0x80),
        (4, 0, 8),
        (6, 1, 1),
        (7, 4, 1),
        (0, 1, u8::try_from(Kind::ALL.len() + 1).unwrap()),
        (6, 3, 0x80),
        // Columns 0 and 1796.
        (0, 2, 0),
        (0, 3, 7),
        // Padding that is not zero, at both ends.
        (1, 38, 1),
        (1, 47, 1),
        (2, 16, 1),
        (3, 31, 1),
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
        version: REDO_VERSION,
        length: 32,
        incarnation: [7; 16],
        number: 5,
        tag: [9; 16],
        nonce: [8; 12],
    };
    let mut record = vec![0; 92];
    record[..60].copy_from_slice(&head.to_bytes());
    assert_eq!(RedoHead::parse(&record), Some(head));
    assert_eq!(RedoHead::parse(&record[..91]), None);
    let run = |number| RedoHead { number, ..head }.key_number();
    assert_eq!([1, 65_535, 65_536, 131_071].map(run), [0, 0, 1, 1]);
    let newer = RedoHead {
        version: REDO_VERSION + 1,
        ..head
    };
    let mut later = record.clone();
    later[0] = REDO_VERSION + 1;
    assert_eq!(RedoHead::parse(&later), Some(newer));
    assert!(newer.is_newer() && !head.is_newer());
    assert_eq!(newer.to_bytes(), later[..60]);
    let first = RedoHead { version: 1, ..head };
    let bound = first.associated_data([1; 16], 1);
    let second = RedoHead { version: 2, ..head };
    let bound_later = second.associated_data([1; 16], 1);
    assert_eq!(bound[8..12], [0; 4]);
    assert_eq!(bound_later[8..12], [1, 0, 0, 0]);
    assert_eq!(bound_later[12..], bound[12..]);
    for (at, byte) in [(0, 0), (1, 1), (4, 31), (4, 33), (24, 0)] {
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

#[test]
fn a_value_takes_as_much_room_as_others_of_its_envelope_s_length() {
    let fid = Fid::permanent(3, 9, 77, 500).unwrap();
    let long = [7; 64];
    for kind in [Kind::Text, Kind::Bytea, Kind::Numeric] {
        let word = Entry::Word {
            fid,
            column: 5,
            kind,
            word: [0; 8],
        };
        let of = |length: usize| {
            let bytes = &long[..length];
            let entry = Entry::Bytes {
                fid,
                column: 5,
                kind,
                bytes,
            };
            entry.encoded_len()
        };
        for length in 0..48 {
            assert_eq!(of(length), word.encoded_len() + length / 16 * 16);
        }
    }
    let fixed = Entry::Word {
        fid,
        column: 5,
        kind: Kind::Int8,
        word: [0; 8],
    };
    assert_eq!(fixed.encoded_len(), 20);
}
