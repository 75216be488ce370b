//! Goal: containers behave like plain files, and no damage, cut, full disk or kill yields wrong
//! bytes.
//!
//! Method: real files, a plain model beside them, a disk that fills up or dies after any number of
//! bytes.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use crate::sealed;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use sealed::{Dice, Handle, instance, model_write, of_vector, put};
use strongroom_format::postgres::container::{chunk_offset, container_physical};
use strongroom_postgres_shield::instance::Instance;
use strongroom_postgres_shield::layout::FileLayout;
use strongroom_postgres_shield::real::Errno;

const EIO: Errno = Errno(libc::EIO);

/// Instances whose containers are of each version: bound to their names, and not.
fn of_each_version() -> [Instance; 2] {
    let instances = [instance(), of_vector("postgres-unbound-names")];
    let bound = instances.each_ref().map(|it| it.keys.names_are_bound());
    assert_eq!(bound, [true, false]);
    instances
}

fn open<'a>(instance: &'a Instance, path: &Path) -> Handle<'a> {
    Handle::create(instance, FileLayout::Container, path)
}

fn physical(path: &Path) -> u64 {
    path.metadata().unwrap().len()
}

fn sealed_with(instance: &Instance, path: &Path, bytes: &[u8]) -> Vec<u8> {
    let handle = Handle::open(
        instance,
        FileLayout::Container,
        path,
        libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC,
    );
    assert_eq!(handle.write_at(bytes, 0).unwrap_or(0), bytes.len());
    std::fs::read(path).unwrap()
}

#[test]
fn random_work_gives_what_a_plain_file_gives() {
    let instance = instance();
    let directory = sealed::directory();
    for seed in 1..=20 {
        let path = directory.path().join(format!("f{seed}"));
        let mut dice = Dice(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        let mut model: Vec<u8> = Vec::new();
        let mut handle = open(&instance, &path);
        for step in 0..150 {
            let context = format!("seed {seed}, step {step}");
            match dice.below(8) {
                0..=2 => {
                    // A length of every size class, at a place that is often beyond the end.
                    let limit = [1, 30, 5000, 20_000][dice.below(4)];
                    let len = dice.below(limit) + 1;
                    let from = dice.bytes(len);
                    let offset = dice.below(model.len() + 3000);
                    let offset = if dice.below(3) == 0 {
                        offset & !4095
                    } else {
                        offset
                    };
                    assert_eq!(handle.write_at(&from, offset as u64), Ok(len), "{context}");
                    model_write(&mut model, &from, offset);
                }
                3 => {
                    let len = dice.below(6000);
                    let from = dice.bytes(len);
                    let end = model.len();
                    assert_eq!(handle.append(&from), Ok((end as u64, len)), "{context}");
                    model.extend_from_slice(&from);
                }
                4 => {
                    let size = dice.below(model.len() + 5000);
                    let size = if dice.below(3) == 0 {
                        size & !4095
                    } else {
                        size
                    };
                    handle.truncate(size as u64).unwrap();
                    model.resize(size, 0);
                }
                5 => handle = open(&instance, &path),
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
            assert_eq!(
                Some(physical(&path)),
                container_physical(model.len() as u64)
            );
        }
        assert_eq!(handle.read_all().unwrap(), model, "seed {seed}");
    }
}

#[test]
fn every_length_is_written_grown_and_cut() {
    let instance = instance();
    let directory = sealed::directory();
    let path = directory.path().join("f");
    let all = Dice(5).bytes(9001);
    for len in 0..=9000 {
        sealed_with(&instance, &path, &all[..len]);
        let handle = open(&instance, &path);
        assert_eq!(handle.size(), len as u64);
        assert_eq!(handle.read_all().unwrap(), &all[..len], "length {len}");
        if len % 4096 < 40 || len % 4096 > 4060 || len % 97 == 0 {
            assert_eq!(handle.read_from(0, 1000).unwrap(), &all[..len]);
            assert_eq!(handle.append(&all[len..=len]), Ok((len as u64, 1)));
            assert_eq!(handle.read_all().unwrap(), &all[..=len]);
            for cut in [len, len.saturating_sub(1), len / 2, len & !4095, 1] {
                handle.truncate(cut as u64).unwrap();
                let mut expected = all[..=len].to_vec();
                expected.resize(cut, 0);
                assert_eq!(handle.read_all().unwrap(), expected, "{len} cut to {cut}");
                assert_eq!(handle.write_at(&all[..=len], 0), Ok(len + 1));
            }
        }
    }
}

#[test]
fn an_empty_file_stays_empty() {
    let instance = instance();
    let directory = sealed::directory();
    let path = directory.path().join("marker");
    let handle = open(&instance, &path);
    assert_eq!(handle.size(), 0);
    assert_eq!(handle.read_all().unwrap(), b"");
    assert_eq!(handle.write_at(b"", 0), Ok(0));
    handle.truncate(0).unwrap();
    assert_eq!(physical(&path), 0);
    handle.write_at(b"x", 0).unwrap();
    handle.truncate(0).unwrap();
    assert_eq!(physical(&path), 0);
    assert_eq!(handle.read_all().unwrap(), b"");
}

#[test]
fn what_is_written_twice_looks_different_and_never_like_itself() {
    let instance = instance();
    let directory = sealed::directory();
    let path = directory.path().join("f");
    let plain = b"a canary in a container".repeat(500);
    let first = sealed_with(&instance, &path, &plain);
    let handle = open(&instance, &path);
    handle.write_at(&plain, 0).unwrap();
    let second = std::fs::read(&path).unwrap();
    assert_eq!(
        first[..64],
        second[..64],
        "the identity stays while the file is not emptied"
    );
    for (one, other) in first[64..].chunks(4124).zip(second[64..].chunks(4124)) {
        assert_ne!(one[..12], other[..12], "a nonce serves once");
        assert_ne!(one[12..28], other[12..28]);
    }
    handle.truncate(0).unwrap();
    handle.write_at(&plain, 0).unwrap();
    let third = std::fs::read(&path).unwrap();
    assert_ne!(first[..64], third[..64], "an emptied file is another file");
    for stored in [first, second, third] {
        assert!(!stored.windows(8).any(|window| window == b"a canary"));
    }
}

/// Every read of a damaged file is an error or right; the whole file is an error.
fn assert_damaged(instance: &Instance, path: &Path, plain: &[u8], what: &str) {
    let handle = open(instance, path);
    assert_eq!(handle.read_all(), Err(EIO), "{what}");
    let mut found = false;
    let end = plain.len().max(usize::try_from(handle.size()).unwrap());
    for begin in (0..end.max(1)).step_by(4096) {
        let mut into = vec![0; 4096];
        match handle.read_at(&mut into, begin as u64) {
            Ok(count) => assert_eq!(into[..count], plain[begin..begin + count], "{what}"),
            Err(errno) => {
                assert_eq!(errno, EIO, "{what}");
                found = true;
            }
        }
    }
    assert!(found, "{what}: no chunk was refused");
}

#[test]
fn a_changed_bit_is_found() {
    for instance in of_each_version() {
        change_bits(&instance);
    }
}

fn change_bits(instance: &Instance) {
    let directory = sealed::directory();
    let path = directory.path().join("f");
    let all = Dice(9).bytes(9000);
    for len in [1, 700, 4095, 4096, 4097, 8192, 9000] {
        let whole = sealed_with(instance, &path, &all[..len]);
        let near = |at: usize| at < 130 || whole.len() - at < 90 || (4100..4260).contains(&at);
        for at in (0..whole.len()).filter(|at| near(*at) || at % 61 == 0) {
            let mut changed = whole.clone();
            changed[at] ^= 1 << (at % 8);
            put(&path, &changed);
            assert_damaged(
                instance,
                &path,
                &all[..len],
                &format!("{len} bytes, byte {at}"),
            );
        }
    }
}

#[test]
fn a_cut_is_found_at_every_length() {
    for instance in of_each_version() {
        cut_everywhere(&instance);
    }
}

fn cut_everywhere(instance: &Instance) {
    let directory = sealed::directory();
    let path = directory.path().join("f");
    let all = Dice(10).bytes(9000);
    for len in [100, 4096, 8192, 9000] {
        let whole = sealed_with(instance, &path, &all[..len]);
        for cut in 1..whole.len() {
            put(&path, &whole[..cut]);
            let handle = open(instance, &path);
            assert_eq!(handle.read_all(), Err(EIO), "{len} bytes cut to {cut}");
            assert!(handle.size() <= len as u64);
            // Neither does an append make it look whole.
            if cut % 101 == 0 || cut == 64 + 4124 {
                assert_eq!(handle.append(b"x"), Err(EIO));
                // What is cut off by the program itself needs no end; what is kept is authentic.
                match handle.truncate(1) {
                    Ok(()) => assert_eq!(handle.read_all().unwrap(), &all[..1]),
                    Err(errno) => assert_eq!(errno, EIO),
                }
            }
        }
        // A forged last chunk after a cut at a chunk's end.
        for forged in [28, 29, 1000] {
            let mut cut = whole[..whole.len().min(64 + 4124)].to_vec();
            cut.extend(std::iter::repeat_n(0x5a, forged));
            put(&path, &cut);
            assert_damaged(instance, &path, &all[..len], "forged end");
            let handle = open(instance, &path);
            assert_eq!(handle.append(b"x"), Err(EIO));
            let mut into = [0; 4096];
            assert_eq!(handle.read_at(&mut into[..4095], 0).is_ok(), len >= 4096);
            assert_eq!(handle.read_at(&mut into, 8192), Err(EIO), "at the end too");
        }
    }
}

#[test]
fn chunks_belong_to_their_file_and_place() {
    for instance in of_each_version() {
        move_chunks(&instance);
    }
}

fn move_chunks(instance: &Instance) {
    let directory = sealed::directory();
    let path = directory.path().join("f");
    let all = Dice(11).bytes(12_288 + 100);
    let whole = sealed_with(instance, &path, &all);
    let other = sealed_with(instance, &directory.path().join("g"), &all);
    let chunk = |index: u64| {
        let start = usize::try_from(chunk_offset(index).unwrap()).unwrap();
        start..(start + 4124).min(whole.len())
    };
    let mut swapped = whole.clone();
    swapped[chunk(0)].copy_from_slice(&whole[chunk(1)]);
    swapped[chunk(1)].copy_from_slice(&whole[chunk(0)]);
    put(&path, &swapped);
    assert_damaged(instance, &path, &all, "two chunks swapped");
    for index in 0..4 {
        let mut foreign = whole.clone();
        foreign[chunk(index)].copy_from_slice(&other[chunk(index)]);
        put(&path, &foreign);
        assert_damaged(instance, &path, &all, "another file's chunk");
    }
    let mut headed = whole.clone();
    headed[..64].copy_from_slice(&other[..64]);
    put(&path, &headed);
    assert_damaged(instance, &path, &all, "another file's header");
    let mut shorter = whole.clone();
    shorter.drain(chunk(1));
    put(&path, &shorter);
    assert_damaged(instance, &path, &all, "a chunk taken out");
    put(&path, &whole);
    let stranger = sealed::instance();
    assert_eq!(open(&stranger, &path).read_all(), Err(EIO), "another key");
    assert_eq!(
        open(instance, &path).read_all().unwrap(),
        all,
        "and nothing was written"
    );
}

/// Files as they are before a write, and the write: offset and length.
const WRITES: &[(usize, usize, usize)] = &[
    (0, 0, 50),
    (0, 0, 9000),
    (0, 5000, 100),
    (3000, 3000, 200),
    (3000, 3000, 9000),
    (3000, 1000, 9000),
    (4096, 4096, 4096),
    (5000, 4000, 200),
    (9000, 100, 5000),
    (3000, 9000, 10),
];

#[test]
fn a_full_disk_leaves_a_whole_file() {
    let instance = instance();
    let directory = sealed::directory();
    let path = directory.path().join("f");
    let (before, after) = (Dice(12).bytes(20_000), Dice(13).bytes(20_000));
    for &(size, offset, len) in WRITES {
        for room in (0..20_000).filter(|room| room % 89 == 0 || room % 4124 < 80) {
            sealed_with(&instance, &path, &before[..size]);
            let handle = open(&instance, &path);
            sealed::fill_up_after(room);
            let outcome = handle.write_at(&after[..len], offset as u64);
            sealed::heal();
            let mut model = before[..size].to_vec();
            match outcome {
                Ok(count) => {
                    assert!(count > 0 && count <= len);
                    model_write(&mut model, &after[..count], offset);
                }
                Err(errno) => assert_eq!(errno, Errno(libc::ENOSPC)),
            }
            let context = format!("{size}+{len}@{offset}, room {room}: {outcome:?}");
            assert_eq!(handle.read_all(), Ok(model), "{context}");
            if room > 19_000 {
                assert_eq!(outcome, Ok(len), "{context}");
                break;
            }
        }
    }
}

#[test]
fn a_kill_at_any_byte_gives_no_wrong_data() {
    let instance = instance();
    let directory = sealed::directory();
    let path = directory.path().join("f");
    let (before, after) = (Dice(14).bytes(20_000), Dice(15).bytes(20_000));
    for &(size, offset, len) in WRITES {
        let mut new = before[..size].to_vec();
        model_write(&mut new, &after[..len], offset);
        let mut outcomes = [0, 0];
        for room in (1..20_000).filter(|room| room % 97 == 0 || room % 4124 < 70) {
            sealed_with(&instance, &path, &before[..size]);
            sealed::die_after(room);
            let outcome = open(&instance, &path).write_at(&after[..len], offset as u64);
            sealed::heal();
            let handle = open(&instance, &path);
            for begin in (0..new.len()).step_by(2048) {
                let mut into = vec![0; 2048];
                match handle.read_at(&mut into, begin as u64) {
                    Ok(count) => {
                        outcomes[0] += 1;
                        for (at, byte) in (begin..).zip(&into[..count]) {
                            let known = before[..size].get(at) == Some(byte) || new[at] == *byte;
                            assert!(known, "{size}+{len}@{offset}, dead after {room}, byte {at}");
                        }
                    }
                    Err(errno) => {
                        outcomes[1] += 1;
                        assert_eq!(errno, EIO);
                    }
                }
            }
            // The way on for PostgreSQL, which makes such files anew.
            let again = Handle::open(
                &instance,
                FileLayout::Container,
                &path,
                libc::O_RDWR | libc::O_TRUNC,
            );
            assert_eq!(again.write_at(&new, 0), Ok(new.len()));
            assert_eq!(again.read_all().as_deref(), Ok(new.as_slice()));
            if outcome.is_ok() {
                break;
            }
        }
        assert!(
            outcomes[0] > 0 && outcomes[1] > 0,
            "both happened: {outcomes:?}"
        );
    }
}

#[test]
fn readers_see_whole_records_while_one_appends() {
    let instance = instance();
    let directory = sealed::directory();
    let path = directory.path().join("f");
    let all = Dice(16).bytes(2_000_000);
    open(&instance, &path);
    let done = AtomicBool::new(false);
    let reads = [AtomicUsize::new(0), AtomicUsize::new(0)];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let handle = open(&instance, &path);
            let mut at = 0;
            let mut dice = Dice(17);
            let mut waits = 0;
            while at < all.len() {
                let end = (at + dice.below(3000) + 1).min(all.len());
                assert_eq!(handle.append(&all[at..end]), Ok((at as u64, end - at)));
                at = end;
                // However seldom a busy machine runs the readers, each one reads at ten lengths
                // of the file and more.
                if at * 10 / all.len() > waits {
                    waits += 1;
                    for reader in &reads {
                        let (before, begun) = (reader.load(Ordering::Acquire), Instant::now());
                        while reader.load(Ordering::Acquire) == before {
                            assert!(begun.elapsed().as_secs() < 60, "a reader has ended");
                            std::thread::yield_now();
                        }
                    }
                }
            }
            done.store(true, Ordering::Release);
        });
        for reads in &reads {
            let (instance, path, all, done) = (&instance, &path, &all, &done);
            scope.spawn(move || {
                let handle = open(instance, path);
                loop {
                    let last = done.load(Ordering::Acquire);
                    let begin = usize::try_from(handle.size() / 2).unwrap();
                    let seen = handle.read_from(begin as u64, 8192);
                    let seen = seen.expect("a write under way is not damage");
                    assert!(all[begin..].starts_with(&seen));
                    reads.fetch_add(1, Ordering::Release);
                    if last {
                        return;
                    }
                }
            });
        }
    });
    assert_eq!(open(&instance, &path).read_all().unwrap(), all);
}

#[test]
fn a_file_that_is_made_anew_again_and_again_is_never_damage() {
    let instance = instance();
    let directory = sealed::directory();
    let path = directory.path().join("f");
    let all = Dice(18).bytes(10_000);
    open(&instance, &path);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..3000 {
                sealed_with(&instance, &path, &all[..(round * 37) % 10_000]);
            }
            done.store(true, Ordering::Release);
        });
        scope.spawn(|| {
            let handle = open(&instance, &path);
            while !done.load(Ordering::Acquire) {
                let mut into = vec![0; 10_000];
                let count = handle.read_at(&mut into, 0).expect("not damage");
                assert_eq!(into[..count], all[..count]);
            }
        });
    });
}

#[test]
fn several_processes_append_whole_records() {
    const PROCESSES: usize = 4;
    const RECORDS: usize = 300;
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
    let name = "container::several_processes_append_whole_records";
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
        assert_eq!(number.parse::<usize>().unwrap(), next[part], "in order");
        assert_eq!(filling, "r".repeat(next[part] % 53));
        next[part] += 1;
    }
    assert_eq!(next, [RECORDS; PROCESSES]);
}

#[test]
fn refusals_are_those_of_a_plain_file() {
    let instance = instance();
    let directory = sealed::directory();
    let path = directory.path().join("f");
    sealed_with(&instance, &path, b"text");
    let reader = Handle::open(&instance, FileLayout::Container, &path, libc::O_RDONLY);
    assert_eq!(reader.write_at(b"x", 0), Err(Errno(libc::EBADF)));
    assert_eq!(reader.truncate(1), Err(Errno(libc::EINVAL)));
    let writer = open(&instance, &path);
    assert_eq!(writer.write_at(b"x", u64::MAX), Err(Errno(libc::EFBIG)));
    assert_eq!(writer.truncate(1 << 62), Err(Errno(libc::EFBIG)));
    assert_eq!(reader.read_at(&mut [0; 9], u64::MAX), Ok(0));
    assert_eq!(reader.read_all().unwrap(), b"text");
}
