//! Goal: zeros that somebody writes into the files of an instance read as zeros only where the
//! rules for zeros allow it (docs/spec/postgres.md): never in transaction status files, and by
//! whole sectors elsewhere. What PostgreSQL writes is read back whatever the order of its writes,
//! also in files of an instance from before these rules.
//!
//! Method: what is stored is looked at after each operation and, with several writers, all the
//! time; it is changed as somebody with the disk would change it.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, which is what it is for"
)]

use crate::sealed;

use std::ffi::CString;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use sealed::instance;
use strongroom_postgres_shield::file_io;
use strongroom_postgres_shield::instance::Instance;
use strongroom_postgres_shield::layout::{BlockKey, FileLayout};
use strongroom_postgres_shield::real::{Errno, Real};
use strongroom_postgres_shield::sealed_file::{FileCache, SealedFile};

const PAGE: usize = 8192;
const EIO: Errno = Errno(libc::EIO);
const EFBIG: Errno = Errno(libc::EFBIG);

/// An instance whose header was made before zeros were sealed.
fn older_instance() -> Instance {
    sealed::of_vector("postgres-stored-zeros")
}

/// One open descriptor of a file.
struct Sealed<'a> {
    real: Real,
    fd: RawFd,
    instance: &'a Instance,
    key: BlockKey,
    cache: FileCache,
}

impl<'a> Sealed<'a> {
    fn new(instance: &'a Instance, key: BlockKey, path: &Path) -> Self {
        let real = Real::linked();
        let name = CString::new(path.as_os_str().as_bytes()).unwrap();
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_CLOEXEC;
        let fd = real.open(&name, flags, 0o600).unwrap();
        Self {
            real,
            fd,
            instance,
            key,
            // The last word: nothing is told on standard error.
            cache: [0, 0, 0, 1].map(AtomicU64::new),
        }
    }

    fn file(&self) -> SealedFile<'_> {
        let mut tweak = [9; 16];
        tweak[11..].fill(0);
        SealedFile {
            instance: self.instance,
            layout: FileLayout::Block,
            key: self.key,
            tweak,
            cache: &self.cache,
        }
    }

    fn write(&self, from: &[u8], at: usize) -> Result<usize, Errno> {
        file_io::write_at(&self.real, self.fd, &self.file(), from, offset(at))
    }

    fn read(&self, len: usize, at: usize) -> Result<Vec<u8>, Errno> {
        let mut into = vec![0xa5; len];
        let count = file_io::read_at(&self.real, self.fd, &self.file(), &mut into, offset(at))?;
        into.truncate(count);
        Ok(into)
    }

    fn truncate(&self, size: usize) -> Result<(), Errno> {
        file_io::truncate(&self.real, self.fd, &self.file(), offset(size))
    }
}

impl Drop for Sealed<'_> {
    fn drop(&mut self) {
        self.real.close(self.fd).unwrap();
    }
}

fn offset(at: usize) -> u64 {
    u64::try_from(at).unwrap()
}

/// Changes a file and, in the same way, the bytes that it should read as.
type RenameStep<'a> = &'a dyn Fn(&mut Vec<u8>);

/// How many whole units of zeros the file holds.
fn zero_units(path: &Path) -> usize {
    let stored = std::fs::read(path).unwrap();
    let zero = |unit: &&[u8]| unit.iter().all(|&byte| byte == 0);
    stored.chunks_exact(16).filter(zero).count()
}

#[test]
fn nothing_is_stored_as_zeros() {
    let instance = instance();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("0000");
    let sealed = Sealed::new(&instance, BlockKey::Slru, &path);
    let mut model = vec![0; 2 * PAGE];
    assert_eq!(sealed.write(&model, 0), Ok(2 * PAGE));
    // A page beyond the end, bytes within a page beyond the end, a longer file, a shorter one, and
    // one of an odd length.
    let steps: [RenameStep<'_>; 6] = [
        &|model| {
            model.resize(5 * PAGE, 0);
            model.extend([7; PAGE]);
            assert_eq!(sealed.write(&[7; PAGE], 5 * PAGE), Ok(PAGE));
        },
        &|model| {
            model.resize(8 * PAGE + 4099, 0);
            model.extend([8; 45]);
            assert_eq!(sealed.write(&[8; 45], 8 * PAGE + 4099), Ok(45));
        },
        &|model| {
            model.resize(12 * PAGE, 0);
            assert_eq!(sealed.truncate(12 * PAGE), Ok(()));
        },
        &|model| {
            model.truncate(3 * PAGE);
            assert_eq!(sealed.truncate(3 * PAGE), Ok(()));
        },
        &|model| {
            model.resize(3 * PAGE + 112, 0);
            assert_eq!(sealed.truncate(3 * PAGE + 112), Ok(()));
        },
        &|model| {
            model.resize(32 * PAGE, 0);
            assert_eq!(sealed.truncate(32 * PAGE), Ok(()));
        },
    ];
    for (number, step) in steps.iter().enumerate() {
        step(&mut model);
        assert_eq!(zero_units(&path), 0, "step {number}");
        let mut read = Vec::new();
        while let Some(piece) =
            Some(sealed.read(PAGE, read.len()).unwrap()).filter(|p| !p.is_empty())
        {
            read.extend(piece);
        }
        assert!(read == model[..model.len() / 16 * 16], "step {number}");
    }
    // In other block files a page of zeros stays as it is.
    let relation = directory.path().join("16384");
    let other = Sealed::new(&instance, BlockKey::Relation, &relation);
    assert_eq!(other.write(&[0; PAGE], PAGE), Ok(PAGE));
    assert_eq!(zero_units(&relation), 2 * PAGE / 16);
}

#[test]
fn a_gap_is_not_filled_without_end() {
    let instance = instance();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("0000");
    let sealed = Sealed::new(&instance, BlockKey::Slru, &path);
    assert_eq!(sealed.write(&[1; PAGE], 33 * PAGE), Err(EFBIG));
    assert_eq!(sealed.truncate(1 << 40), Err(EFBIG));
    assert_eq!(sealed.write(&[1; PAGE], usize::MAX >> 1), Err(EFBIG));
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
    // Whoever writes one page after the other may go on.
    for page in 0..34 {
        assert_eq!(sealed.write(&[1; PAGE], page * PAGE), Ok(PAGE));
    }
}

#[test]
fn zeros_that_somebody_wrote_are_an_error() {
    let (newer, older) = (instance(), older_instance());
    let directory = tempfile::tempdir().unwrap();
    for (name, instance, key, refuses) in [
        ("status", &newer, BlockKey::Slru, true),
        ("status of an older one", &older, BlockKey::Slru, false),
    ] {
        let path = directory.path().join(name);
        let sealed = Sealed::new(instance, key, &path);
        sealed.write(&[5; 2 * PAGE], 0).unwrap();
        let raw = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        let good = std::fs::read(&path).unwrap();
        for (what, from, to) in [
            ("first unit", 0, 16),
            ("a unit in the middle", 4000, 4016),
            ("last unit", 2 * PAGE - 16, 2 * PAGE),
            ("a page", PAGE, 2 * PAGE),
            ("everything", 0, 2 * PAGE),
        ] {
            let zeros = vec![0; to - from];
            raw.write_all_at(&zeros, u64::try_from(from).unwrap())
                .unwrap();
            let page = from / PAGE * PAGE;
            let expected = if refuses { Err(EIO) } else { Ok(()) };
            let read = sealed.read(PAGE, page).map(|page_read| {
                assert!(page_read[from - page..][..16] == [0; 16]);
            });
            assert_eq!(read, expected, "{name}: {what}");
            // The other bytes of a unit cannot be kept when they are not known.
            let written = sealed.write(&[1], from).map(|_| ());
            assert_eq!(written, expected, "{name}: one byte into {what}");
            raw.write_all_at(&good, 0).unwrap();
            assert!(sealed.read(2 * PAGE, 0) == Ok(vec![5; 2 * PAGE]));
        }
        // A file that was made longer past the shield.
        raw.set_len(u64::try_from(3 * PAGE).unwrap()).unwrap();
        let read = sealed.read(PAGE, 2 * PAGE).map(|_| ());
        assert_eq!(
            read,
            if refuses { Err(EIO) } else { Ok(()) },
            "{name}: longer"
        );
        // A page that is written whole makes it good.
        sealed.write(&[6; PAGE], 2 * PAGE).unwrap();
        assert!(sealed.read(PAGE, 2 * PAGE) == Ok(vec![6; PAGE]));
    }
}

const SECTOR: usize = 512;

#[test]
fn zeros_in_a_relation_count_by_whole_sectors() {
    let (newer, older) = (instance(), older_instance());
    let directory = tempfile::tempdir().unwrap();
    for (name, instance, by_units) in [("newer", &newer, false), ("older", &older, true)] {
        let path = directory.path().join(name);
        let sealed = Sealed::new(instance, BlockKey::Relation, &path);
        sealed.write(&[5; 2 * PAGE], 0).unwrap();
        let raw = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        let good = std::fs::read(&path).unwrap();
        for (from, to) in [
            (0, 16),
            (4096, 4112),
            (512, 1008),
            (528, 1024),
            (1000, 2200),
            (PAGE - 16, PAGE + 16),
            (2 * PAGE - 512, 2 * PAGE),
            (0, PAGE),
            (1024, 2 * PAGE),
        ] {
            let at = u64::try_from(from).unwrap();
            raw.write_all_at(&vec![0; to - from], at).unwrap();
            // In pieces of any length, which must agree with each other.
            for piece in [2 * PAGE, 1000, 512, 16, 7] {
                let mut read = Vec::new();
                while read.len() < 2 * PAGE {
                    read.extend(sealed.read(piece, read.len()).unwrap());
                }
                for (number, unit) in read.chunks(16).enumerate() {
                    let within = number * 16;
                    let covered = from <= within && within + 16 <= to;
                    let sector = within / SECTOR * SECTOR;
                    let counts = by_units || (from <= sector && sector + SECTOR <= to);
                    let expected = match (covered, counts) {
                        (true, true) => Some([0; 16]),
                        (false, _) if within + 16 <= from || to <= within => Some([5; 16]),
                        // Noise.
                        _ => None,
                    };
                    let context = format!("{name}: {from} to {to}, unit at {within}");
                    match expected {
                        Some(expected) => assert_eq!(unit, expected, "{context}"),
                        None => assert!(unit != [0; 16] && unit != [5; 16], "{context}"),
                    }
                }
            }
            raw.write_all_at(&good, 0).unwrap();
        }
    }
}

/// A write of some bytes into a sector of zeros seals the sector whole, and its neighbours stay as
/// they are.
#[test]
fn a_sector_of_zeros_is_sealed_whole_when_a_part_of_it_is_written() {
    let instance = instance();
    let directory = tempfile::tempdir().unwrap();
    for (number, key) in [BlockKey::Relation, BlockKey::Wal, BlockKey::Map]
        .into_iter()
        .enumerate()
    {
        let path = directory.path().join(number.to_string());
        for (from, to) in [
            (0, 1),
            (100, 101),
            (500, 530),
            (511, 1025),
            (PAGE - 1, PAGE + 1),
        ] {
            let sealed = Sealed::new(&instance, key, &path);
            sealed.truncate(0).unwrap();
            sealed.truncate(3 * PAGE).unwrap();
            sealed.write(&vec![9; to - from], from).unwrap();
            let stored = std::fs::read(&path).unwrap();
            for (number, sector) in stored.chunks(SECTOR).enumerate() {
                let begin = number * SECTOR;
                let touched = begin < to && from < begin + SECTOR;
                let zero = |unit: &&[u8]| unit.iter().all(|&byte| byte == 0);
                let units = sector.chunks(16).filter(zero).count();
                let expected = if touched { 0 } else { SECTOR / 16 };
                assert_eq!(units, expected, "{key:?}: {from} to {to}, sector {number}");
            }
            let mut model = vec![0; 3 * PAGE];
            model[from..to].fill(9);
            assert!(sealed.read(3 * PAGE, 0) == Ok(model));
        }
    }
}

/// What an earlier version stored, zeros in single units, is read and written as before.
#[test]
fn files_of_an_older_instance_keep_their_zeros_whatever_is_written() {
    let instance = older_instance();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("16384");
    let sealed = Sealed::new(&instance, BlockKey::Wal, &path);
    sealed.write(&[5; 2 * PAGE], 0).unwrap();
    let mut model = vec![5; 2 * PAGE];
    let raw = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    for at in (0..2 * PAGE).step_by(48) {
        let end = (at + 16).min(2 * PAGE);
        raw.write_all_at(&[0; 16][..end - at], u64::try_from(at).unwrap())
            .unwrap();
        model[at..end].fill(0);
    }
    for (at, len) in [(3, 5), (17, 200), (500, 30), (PAGE - 3, 6), (9000, 4000)] {
        sealed.write(&vec![6; len], at).unwrap();
        model[at..at + len].fill(6);
        assert!(sealed.read(2 * PAGE, 0) == Ok(model.clone()), "{at}");
    }
}

/// Pages of one file are written in an order that leaves gaps, by threads with descriptors of their
/// own, as PostgreSQL's processes have them, while others read what is stored.
#[test]
fn pages_that_are_written_at_the_same_time_are_all_there_and_no_gap_is_seen() {
    const PAGES: usize = 32;
    const THREADS: usize = 4;
    let instance = instance();
    let directory = tempfile::tempdir().unwrap();
    for round in 0..40_usize {
        let path = directory.path().join(format!("{round:04X}"));
        drop(Sealed::new(&instance, BlockKey::Slru, &path));
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let watcher = scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    assert_eq!(zero_units(&path), 0);
                }
            });
            let writers: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let (instance, path) = (&instance, &path);
                    scope.spawn(move || {
                        for step in 0..PAGES / THREADS {
                            // Multiplication by a number that is odd visits each page once.
                            let page = ((thread * PAGES / THREADS + step) * 13 + round) % PAGES;
                            let sealed = Sealed::new(instance, BlockKey::Slru, path);
                            let byte = u8::try_from(page + 1).unwrap();
                            sealed.write(&[byte; PAGE], page * PAGE).unwrap();
                        }
                    })
                })
                .collect();
            for writer in writers {
                writer.join().unwrap();
            }
            done.store(true, Ordering::Relaxed);
            watcher.join().unwrap();
        });
        let sealed = Sealed::new(&instance, BlockKey::Slru, &path);
        for page in 0..PAGES {
            let expected = vec![u8::try_from(page + 1).unwrap(); PAGE];
            assert!(
                sealed.read(PAGE, page * PAGE) == Ok(expected),
                "round {round}, page {page}"
            );
        }
    }
}
