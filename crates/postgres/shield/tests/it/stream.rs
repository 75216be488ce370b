//! Goal: streams behave like plain files for those that PostgreSQL uses them for: several writers,
//! any byte, no holes.
//!
//! Method: real files, a plain model beside them, several processes, the cipher computed a second
//! time here.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use crate::sealed;

use std::path::Path;

use sealed::{Dice, Handle, instance, model_write, put};
use strongroom_postgres_shield::instance::Instance;
use strongroom_postgres_shield::layout::FileLayout;
use strongroom_postgres_shield::real::Errno;

const EIO: Errno = Errno(libc::EIO);
const HEADER: usize = 4096;

fn open<'a>(instance: &'a Instance, path: &Path) -> Handle<'a> {
    Handle::create(instance, FileLayout::Stream, path)
}

fn physical(path: &Path) -> usize {
    usize::try_from(path.metadata().unwrap().len()).unwrap()
}

#[test]
fn random_work_gives_what_a_plain_file_gives() {
    let instance = instance();
    let directory = sealed::directory();
    for (seed, layout) in (1..=20).zip(
        [FileLayout::Stream, FileLayout::TemporaryStream]
            .into_iter()
            .cycle(),
    ) {
        let path = directory.path().join(format!("f{seed}"));
        let mut dice = Dice(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        let mut model: Vec<u8> = Vec::new();
        let mut handle = Handle::create(&instance, layout, &path);
        for step in 0..200 {
            let context = format!("seed {seed}, step {step}");
            match dice.below(8) {
                0..=2 => {
                    let limit = [1, 30, 5000, 20_000][dice.below(4)];
                    let len = dice.below(limit) + 1;
                    let from = dice.bytes(len);
                    let offset = dice.below(model.len() + 1);
                    assert_eq!(handle.write_at(&from, offset as u64), Ok(len), "{context}");
                    model_write(&mut model, &from, offset);
                }
                3 => {
                    let len = dice.below(600) + 1;
                    let from = dice.bytes(len);
                    let end = model.len();
                    assert_eq!(handle.append(&from), Ok((end as u64, len)), "{context}");
                    model.extend_from_slice(&from);
                }
                4 => {
                    let size = dice.below(model.len() + 5000);
                    handle.truncate(size as u64).unwrap();
                    model.resize(size, 0);
                }
                5 => handle = Handle::create(&instance, layout, &path),
                _ => {
                    let offset = dice.below(model.len() + 100);
                    let mut into = vec![0xee; dice.below(9000) + 1];
                    let count = handle.read_at(&mut into, offset as u64).unwrap();
                    let tail = model.get(offset..).unwrap_or_default();
                    let expected = &tail[..tail.len().min(into.len())];
                    assert_eq!(&into[..count], expected, "{context}");
                    assert!(into[count..].iter().all(|byte| *byte == 0xee), "{context}");
                }
            }
            assert_eq!(handle.size(), model.len() as u64, "{context}");
        }
        assert_eq!(handle.read_all().unwrap(), model, "seed {seed}");
    }
}

#[test]
fn every_length_and_every_offset() {
    let instance = instance();
    let directory = sealed::directory();
    let path = directory.path().join("f");
    let all = Dice(5).bytes(9000);
    let handle = open(&instance, &path);
    for len in 1..=9000 {
        assert_eq!(handle.append(&all[len - 1..len]), Ok((len as u64 - 1, 1)));
        assert_eq!(physical(&path), HEADER + len);
    }
    for offset in 0..9000 {
        let mut into = [0; 50];
        let count = handle.read_at(&mut into, offset as u64).unwrap();
        assert_eq!(into[..count], all[offset..(offset + 50).min(9000)]);
    }
    for size in (0..=9000).rev().step_by(7) {
        handle.truncate(size as u64).unwrap();
        assert_eq!(handle.read_all().unwrap(), &all[..size]);
    }
}

/// As docs/spec/postgres.md says it: the block after the n-th 16 bytes is the nonce plus n,
/// big-endian.
#[test]
#[expect(
    clippy::big_endian_bytes,
    reason = "NIST SP 800-38A counts in big-endian"
)]
fn the_bytes_are_those_of_the_specification() {
    let instance = instance();
    let directory = sealed::directory();
    let path = directory.path().join("f");
    let plain = Dice(6).bytes(1000);
    open(&instance, &path).write_at(&plain, 0).unwrap();
    let stored = std::fs::read(&path).unwrap();
    assert_eq!(stored.len(), HEADER + 1000);
    assert_eq!(&stored[..24], b"\x89STRONGROOM PG STREAM\r\n\x1a");
    assert!(stored[64..HEADER].iter().all(|byte| *byte == 0));
    let nonce = u128::from_be_bytes(stored[48..64].try_into().unwrap());
    let key = instance.keys.stream(false);
    for (number, (sealed, plain)) in stored[HEADER..]
        .chunks(16)
        .zip(plain.chunks(16))
        .enumerate()
    {
        let mut bytes = sealed.to_vec();
        let block = nonce.wrapping_add(u128::try_from(number).unwrap());
        key.apply(&block.to_be_bytes(), &mut bytes);
        assert_eq!(bytes, plain);
    }
}

#[test]
fn emptying_draws_a_new_nonce() {
    let instance = instance();
    let directory = sealed::directory();
    let path = directory.path().join("f");
    let plain = b"a canary in a stream".repeat(100);
    let mut seen: Vec<Vec<u8>> = Vec::new();
    for round in 0..20 {
        let handle = if round % 2 == 0 {
            let handle = open(&instance, &path);
            handle.truncate(0).unwrap();
            handle
        } else {
            let flags = libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC;
            Handle::open(&instance, FileLayout::Stream, &path, flags)
        };
        assert_eq!((handle.size(), physical(&path)), (0, 0));
        handle.write_at(&plain, 0).unwrap();
        let stored = std::fs::read(&path).unwrap();
        assert!(!stored.windows(8).any(|window| window == b"a canary"));
        assert!(seen.iter().all(|other| other[48..64] != stored[48..64]));
        assert!(
            seen.iter()
                .all(|other| other[HEADER..HEADER + 16] != stored[HEADER..HEADER + 16])
        );
        seen.push(stored);
    }
}

/// The race for the header: all start with an empty file, each writes its own records.
#[test]
fn several_processes_write_their_own_places() {
    const PROCESSES: usize = 4;
    const RECORD: usize = 37;
    const RECORDS: usize = 400;
    const ROUNDS: usize = 8;
    let record = |part: usize, number: usize| format!("<{part}:{number:->33}>").into_bytes();
    if let Some((part, directory)) = sealed::this_part() {
        let instance = sealed::instance_of(&directory);
        for round in 0..ROUNDS {
            let handle = open(&instance, &directory.join(format!("f{round}")));
            for number in 0..RECORDS {
                let at = (number * PROCESSES + part) * RECORD;
                assert_eq!(
                    handle.write_at(&record(part, number), at as u64),
                    Ok(RECORD)
                );
            }
        }
        return;
    }
    let directory = sealed::directory();
    sealed::found(directory.path());
    let name = "stream::several_processes_write_their_own_places";
    sealed::all_succeed(
        (0..PROCESSES)
            .map(|part| sealed::part(name, directory.path(), part))
            .collect(),
    );
    let instance = sealed::instance_of(directory.path());
    for round in 0..ROUNDS {
        let all = open(&instance, &directory.path().join(format!("f{round}")))
            .read_all()
            .unwrap();
        assert_eq!(all.len(), PROCESSES * RECORDS * RECORD);
        for (place, found) in all.chunks(RECORD).enumerate() {
            assert_eq!(found, record(place % PROCESSES, place / PROCESSES));
        }
    }
}

#[test]
fn several_processes_append_whole_records() {
    const PROCESSES: usize = 4;
    const RECORDS: usize = 500;
    if let Some((part, directory)) = sealed::this_part() {
        let instance = sealed::instance_of(&directory);
        let handle = open(&instance, &directory.join("log"));
        for record in 0..RECORDS {
            let text = format!("<{part}:{record}:{}>", "r".repeat(record % 53));
            assert_eq!(handle.append(text.as_bytes()).unwrap().1, text.len());
        }
        return;
    }
    let directory = sealed::directory();
    sealed::found(directory.path());
    let name = "stream::several_processes_append_whole_records";
    sealed::all_succeed(
        (0..PROCESSES)
            .map(|part| sealed::part(name, directory.path(), part))
            .collect(),
    );
    let instance = sealed::instance_of(directory.path());
    let all = open(&instance, &directory.path().join("log"))
        .read_all()
        .unwrap();
    let all = String::from_utf8(all).unwrap();
    let mut next = [0; PROCESSES];
    for record in all.split_terminator('>') {
        let (part, rest) = record.strip_prefix('<').unwrap().split_once(':').unwrap();
        let (number, filling) = rest.split_once(':').unwrap();
        let part: usize = part.parse().unwrap();
        assert_eq!(number.parse::<usize>().unwrap(), next[part]);
        assert_eq!(filling, "r".repeat(next[part] % 53));
        next[part] += 1;
    }
    assert_eq!(next, [RECORDS; PROCESSES]);
}

#[test]
fn a_damaged_header_is_an_error_and_emptying_mends_it() {
    let instance = instance();
    let directory = sealed::directory();
    let path = directory.path().join("f");
    open(&instance, &path).write_at(b"some text", 0).unwrap();
    let whole = std::fs::read(&path).unwrap();
    for at in 0..48 {
        let mut changed = whole.clone();
        changed[at] ^= 4;
        put(&path, &changed);
        let handle = open(&instance, &path);
        assert_eq!(handle.read_all(), Err(EIO), "byte {at}");
        assert_eq!(handle.write_at(b"x", 0), Err(EIO), "byte {at}");
        assert_eq!(
            std::fs::read(&path).unwrap(),
            changed,
            "nothing is written to it"
        );
    }
    put(&path, &vec![0; 5000]);
    assert_eq!(
        open(&instance, &path).read_all(),
        Err(EIO),
        "a header that was lost"
    );
    for cut in [1, 47, 63] {
        put(&path, &whole[..cut]);
        assert_eq!(open(&instance, &path).read_all(), Err(EIO));
    }
    let handle = open(&instance, &path);
    handle.truncate(0).unwrap();
    handle.write_at(b"new text", 0).unwrap();
    assert_eq!(handle.read_all().unwrap(), b"new text");
}

#[test]
fn a_hole_has_the_right_size_and_leaves_its_neighbours_alone() {
    let instance = instance();
    let directory = sealed::directory();
    let handle = open(&instance, &directory.path().join("f"));
    handle.write_at(b"left", 0).unwrap();
    handle.write_at(b"right", 1001).unwrap();
    assert_eq!(handle.size(), 1006);
    let all = handle.read_all().unwrap();
    assert_eq!((&all[..4], &all[1001..]), (&b"left"[..], &b"right"[..]));
    handle.write_at(&[b'm'; 997], 4).unwrap();
    let all = handle.read_all().unwrap();
    assert!(all.starts_with(b"leftmmm") && all.ends_with(b"mmmright"));
}

#[test]
fn a_full_disk_leaves_no_half_header_and_tells_what_was_written() {
    let instance = instance();
    let directory = sealed::directory();
    let path = directory.path().join("f");
    let plain = Dice(8).bytes(5000);
    for room in (0..10_000).step_by(131) {
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC;
        let handle = Handle::open(&instance, FileLayout::Stream, &path, flags);
        sealed::fill_up_after(room);
        let outcome = handle.write_at(&plain, 0);
        sealed::heal();
        if room <= HEADER {
            assert_eq!(outcome, Err(Errno(libc::ENOSPC)), "room {room}");
            assert!(matches!(physical(&path), 0 | HEADER));
        } else {
            assert_eq!(outcome, Ok((room - HEADER).min(5000)));
        }
        let written = outcome.unwrap_or(0);
        assert_eq!(handle.read_all().unwrap(), &plain[..written]);
    }
}

#[test]
fn another_boot_cannot_read_what_this_one_wrote() {
    let directory = sealed::directory();
    sealed::found(directory.path());
    let path = directory.path().join("spill");
    let plain = b"rows of a transaction".repeat(50);
    let before = sealed::instance_of(directory.path());
    Handle::create(&before, FileLayout::TemporaryStream, &path)
        .write_at(&plain, 0)
        .unwrap();
    let after = sealed::instance_of(directory.path());
    let seen = Handle::create(&after, FileLayout::TemporaryStream, &path)
        .read_all()
        .unwrap();
    assert_eq!(seen.len(), plain.len());
    assert!(!seen.windows(5).any(|window| window == b"trans"));
    let persistent = directory.path().join("map");
    open(&before, &persistent).write_at(&plain, 0).unwrap();
    assert_eq!(open(&after, &persistent).read_all().unwrap(), plain);
}
