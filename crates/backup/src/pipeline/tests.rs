//! Goal: what comes out of families is what went in, or an error. Method: real keys, families in
//! memory; every truncation, every flipped bit, segments and families exchanged, taken from other
//! sets, left out, repeated.

#![expect(
    clippy::unwrap_in_result,
    reason = "what a test cannot set up, it cannot test"
)]

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use strongroom_crypto::SecretKey;
use strongroom_format::backup::{FAMILIES_MAX, SegmentHead, family_layout, segment_layout};
use strongroom_format::code;
use strongroom_keyring::Opener;

use super::read::{self, Origin};
use super::write::{self, Settings, Target};
use super::{PIECE, pieces};
use crate::family::{FamilyPrefix, FamilyWriter};
use crate::head::FamilyEnd;
use crate::set::{Cipher, SetKeys};
use crate::store::Upload;
use crate::{Error, Result};

#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Upload for Memory {
    fn finish(self: Box<Self>) -> io::Result<()> {
        Ok(())
    }
}

fn sealed(cipher: Cipher) -> SetKeys {
    let opener = Opener::raw(SecretKey::generate().unwrap());
    SetKeys::sealed(cipher, &[opener.recipient().unwrap()]).unwrap()
}

fn all_set_keys() -> [SetKeys; 5] {
    [
        sealed(Cipher::Aes256),
        sealed(Cipher::Aes192),
        sealed(Cipher::Aes128),
        sealed(Cipher::TripleDes),
        SetKeys::plain().unwrap(),
    ]
}

/// Deterministic bytes: noise in the first half of each piece, runs in the second, so that both
/// kinds of segments occur.
fn content(length: usize) -> Vec<u8> {
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let byte = |at: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        if at % (2 * PIECE) < PIECE {
            seed.to_le_bytes()[0]
        } else {
            (at as u64 >> 12).to_le_bytes()[0]
        }
    };
    (0..length).map(byte).collect()
}

fn written(
    set_keys: &SetKeys,
    families: u16,
    settings: Settings,
    stream: &[u8],
) -> Result<(Vec<Vec<u8>>, Vec<FamilyEnd>)> {
    let places: Vec<Memory> = (0..families).map(|_| Memory::default()).collect();
    let mut targets = Vec::new();
    for (family, place) in (0..).zip(&places) {
        let key = set_keys.new_family(family, families)?;
        let out: Box<dyn Upload> = Box::new(place.clone());
        let writer = FamilyWriter::begin(vec![(String::new(), out)], &key, false)?;
        targets.push(Target { key, writer });
    }
    let ((), ends) = write::run(targets, settings, |pieces| {
        // Pieces of the stream come in any lengths.
        stream.chunks(777_777).try_for_each(|part| pieces.put(part))
    })?;
    let bytes = places.iter().map(|place| place.0.lock().unwrap().clone());
    Ok((bytes.collect(), ends))
}

fn opened(
    set_keys: &SetKeys,
    families: &[Vec<u8>],
    threads: usize,
) -> Result<(Vec<u8>, Vec<FamilyEnd>)> {
    let count = u16::try_from(families.len()).unwrap();
    let mut origins = Vec::new();
    for (family, bytes) in (0..).zip(families) {
        let unkeyed = FamilyPrefix::read(Box::new(io::Cursor::new(bytes.clone())), family)?;
        let key = set_keys.family(&unkeyed.header, family, count)?;
        let reader = unkeyed.with_key(&key, false);
        origins.push(Origin { key, reader });
    }
    read::run(origins, threads, |stream| {
        let mut out = Vec::new();
        while let Some(piece) = stream.next_piece()? {
            out.extend_from_slice(piece);
        }
        Ok(out)
    })
}

const QUICK: Settings = Settings {
    threads: 2,
    level: Some(1),
};

#[track_caller]
fn refused(set_keys: &SetKeys, families: &[Vec<u8>], what: &str) -> Error {
    let Err(error) = opened(set_keys, families, 2) else {
        panic!("accepted: {what}");
    };
    let damage = [&code::SEGMENT, &code::FAMILY_SHORT, &code::NEWER_FORMAT];
    assert!(damage.contains(&error.code()), "{what}: {error}");
    error
}

#[test]
fn what_went_in_comes_out() {
    for set_keys in all_set_keys() {
        for length in [0, 1, PIECE - 1, PIECE, PIECE + 1, 5 * PIECE + 17] {
            let stream = content(length);
            for families in [1, 2, 7] {
                for settings in [
                    QUICK,
                    Settings {
                        threads: 5,
                        level: None,
                    },
                ] {
                    let (bytes, ends) = written(&set_keys, families, settings, &stream).unwrap();
                    let (out, found) = opened(&set_keys, &bytes, settings.threads).unwrap();
                    assert!(out == stream, "{length} bytes in {families} families");
                    assert_eq!(found, ends);
                    let total: u32 = ends.iter().map(|end| end.segments).sum();
                    let expected = length.div_ceil(PIECE) + usize::from(families);
                    assert_eq!(usize::try_from(total).unwrap(), expected);
                    for (end, bytes) in ends.iter().zip(&bytes) {
                        assert_eq!(end.length_bytes, bytes.len() as u64);
                    }
                }
            }
        }
    }
}

#[test]
fn the_most_families_work_and_none_is_the_same_twice() {
    let set_keys = sealed(Cipher::Aes256);
    let stream = content(3 * PIECE);
    let (bytes, _) = written(&set_keys, FAMILIES_MAX, QUICK, &stream).unwrap();
    assert!(opened(&set_keys, &bytes, 1).unwrap().0 == stream);
    let (again, _) = written(&set_keys, FAMILIES_MAX, QUICK, &stream).unwrap();
    // Another key for each writing: not one segment is the same.
    for (one, other) in bytes.iter().zip(&again) {
        assert_ne!(one[family_layout::SIZE..], other[family_layout::SIZE..]);
    }
}

#[test]
fn every_truncation_is_refused() {
    for set_keys in all_set_keys() {
        let (bytes, _) = written(&set_keys, 2, QUICK, &content(5_000)).unwrap();
        for family in 0..bytes.len() {
            for length in 0..bytes[family].len() {
                let mut cut = bytes.clone();
                cut[family].truncate(length);
                refused(&set_keys, &cut, &format!("family {family} cut to {length}"));
            }
            let mut longer = bytes.clone();
            longer[family].push(0);
            refused(&set_keys, &longer, "a byte more");
        }
    }
}

#[test]
fn every_flipped_bit_is_refused() {
    for set_keys in all_set_keys() {
        let (bytes, _) = written(&set_keys, 2, QUICK, &content(1_500)).unwrap();
        for family in 0..bytes.len() {
            for at in 0..bytes[family].len() {
                for bit in [0, 3, 7] {
                    let mut changed = bytes.clone();
                    changed[family][at] ^= 1 << bit;
                    refused(
                        &set_keys,
                        &changed,
                        &format!("family {family}, byte {at}, bit {bit}"),
                    );
                }
            }
        }
    }
}

/// The segments of a family, each with head and trailer.
fn segments(bytes: &[u8], trailer: usize) -> Vec<Vec<u8>> {
    let mut rest = &bytes[family_layout::SIZE..];
    let mut out = Vec::new();
    while !rest.is_empty() {
        let head = SegmentHead::parse(rest).unwrap();
        let length = segment_layout::SIZE + usize::try_from(head.length).unwrap() + trailer;
        let (segment, more) = rest.split_at(length);
        out.push(segment.to_vec());
        rest = more;
    }
    out
}

fn joined(bytes: &[u8], segments: &[Vec<u8>]) -> Vec<u8> {
    [&bytes[..family_layout::SIZE], &segments.concat()].concat()
}

#[test]
fn segments_do_not_move() {
    for set_keys in all_set_keys() {
        let trailer = match set_keys.number() {
            0 => 32,
            7 => 40,
            _ => 16,
        };
        // All pieces are equal, so a segment differs from another only by where it belongs.
        let stream = vec![7; 8 * PIECE];
        let (bytes, _) = written(&set_keys, 2, QUICK, &stream).unwrap();
        let parts: Vec<Vec<Vec<u8>>> = bytes.iter().map(|bytes| segments(bytes, trailer)).collect();
        assert_eq!(parts[0].len(), 5);
        let with_first = |first: Vec<Vec<u8>>| vec![joined(&bytes[0], &first), bytes[1].clone()];
        for a in 0..4 {
            for b in 0..a {
                let mut swapped = parts[0].clone();
                swapped.swap(a, b);
                refused(&set_keys, &with_first(swapped), "exchanged in one family");
            }
            let mut missing = parts[0].clone();
            missing.remove(a);
            refused(&set_keys, &with_first(missing), "left out");
            let mut twice = parts[0].clone();
            twice.insert(a, parts[0][a].clone());
            refused(&set_keys, &with_first(twice), "repeated");
            let mut other = parts[0].clone();
            other[a] = parts[1][a].clone();
            refused(&set_keys, &with_first(other), "from the other family");
        }
        let shorter = [parts[0][..3].to_vec(), parts[0][4..].to_vec()].concat();
        refused(
            &set_keys,
            &with_first(shorter),
            "cut before a whole segment, with the end",
        );
        refused(
            &set_keys,
            &with_first(parts[0][..4].to_vec()),
            "cut after a whole segment",
        );
        let mut early = parts.clone();
        early[0].remove(3);
        early[1].remove(3);
        let both = [joined(&bytes[0], &early[0]), joined(&bytes[1], &early[1])];
        refused(&set_keys, &both, "the last piece of both families");
    }
}

#[test]
fn families_are_of_one_set_and_in_their_places() {
    for set_keys in all_set_keys() {
        let stream = content(4 * PIECE);
        let (bytes, _) = written(&set_keys, 2, QUICK, &stream).unwrap();
        let (again, _) = written(&set_keys, 2, QUICK, &stream).unwrap();
        refused(
            &set_keys,
            &[bytes[1].clone(), bytes[0].clone()],
            "exchanged",
        );
        refused(
            &set_keys,
            &[bytes[0].clone(), bytes[0].clone()],
            "the same twice",
        );
        refused(&set_keys, &[bytes[0].clone()], "one of two");
        let other = sealed(Cipher::Aes256);
        refused(&other, &bytes, "of another set");
        if set_keys.number() != 0 {
            // The same set written again has other keys: its segments do not fit.
            let header = &bytes[0][..family_layout::SIZE];
            let spliced = [header, &again[0][family_layout::SIZE..]].concat();
            refused(&set_keys, &[spliced, bytes[1].clone()], "another writing");
        }
    }
}

#[test]
fn a_failing_source_or_medium_ends_the_pipeline_with_its_own_error() {
    struct Full(usize);
    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self
                .0
                .checked_sub(bytes.len())
                .ok_or(io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    impl Upload for Full {
        fn finish(self: Box<Self>) -> io::Result<()> {
            Ok(())
        }
    }
    let set_keys = sealed(Cipher::Aes256);
    let target = |out: Box<dyn Upload>| {
        let key = set_keys.new_family(0, 1).unwrap();
        let writer = FamilyWriter::begin(vec![(String::from("here"), out)], &key, false).unwrap();
        vec![Target { key, writer }]
    };
    let stream = content(64 * PIECE);
    for settings in [
        QUICK,
        Settings {
            threads: 1,
            level: None,
        },
    ] {
        let full: Box<dyn Upload> = Box::new(Full(3 * PIECE));
        let error = write::run(target(full), settings, |pieces| pieces.put(&stream)).unwrap_err();
        assert_eq!(error.code(), &code::IO);
        assert!(error.detail().starts_with("here"), "{error}");
        let memory = Memory::default();
        let failing: Box<dyn Upload> = Box::new(memory.clone());
        let error = write::run(target(failing), settings, |pieces| {
            pieces.put(&stream[..10 * PIECE])?;
            Err::<(), Error>(Error::new(&code::BACKUP_SOURCE, "gone"))
        })
        .unwrap_err();
        assert_eq!(error.code(), &code::BACKUP_SOURCE);
        // What was written is not a whole family.
        let bytes = memory.0.lock().unwrap().clone();
        if bytes.len() >= family_layout::SIZE {
            refused(&set_keys, &[bytes], "the family of a failed source");
        }
    }
}

#[test]
fn a_consumer_that_stops_ends_the_pipeline() {
    let set_keys = sealed(Cipher::Aes256);
    let (bytes, _) = written(&set_keys, 1, QUICK, &content(64 * PIECE)).unwrap();
    let unkeyed = || FamilyPrefix::read(Box::new(io::Cursor::new(bytes[0].clone())), 0).unwrap();
    let origin = || {
        let unkeyed = unkeyed();
        let key = set_keys.family(&unkeyed.header, 0, 1).unwrap();
        let reader = unkeyed.with_key(&key, false);
        vec![Origin { key, reader }]
    };
    let stopped = read::run(origin(), 2, |stream| {
        stream.next_piece()?;
        Err::<(), Error>(Error::new(&code::IO, "enough"))
    });
    assert_eq!(stopped.unwrap_err().code(), &code::IO);
    // Leaving the rest unread is not success.
    let left = read::run(origin(), 2, |stream| stream.next_piece().map(drop));
    assert_eq!(left.unwrap_err().code(), &code::STREAM);
    assert!(pieces(2) == 8);
}
