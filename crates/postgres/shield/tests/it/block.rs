//! Block files through the core: random writes, reads and truncations beside a plain file, and what
//! is stored.
//!
//! Method: one operation after the other on the sealed file and on a vector of bytes, which must
//! agree at every step. Deterministic: the random numbers come from a fixed seed, printed with a
//! failure.
#![expect(
    unsafe_code,
    reason = "a kernel that transfers less is made of C functions"
)]
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a test that panics has failed, which is what it is for"
)]

use std::ffi::CString;
use std::ffi::{c_int, c_void};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};

use strongroom_crypto::SecretKey;
use strongroom_format::header::Cipher;
use strongroom_keyring::{NewObject, Object, Opener};
use strongroom_postgres_shield::file_io;
use strongroom_postgres_shield::instance::Instance;
use strongroom_postgres_shield::keys::Keys;
use strongroom_postgres_shield::layout::{BlockKey, FileLayout};
use strongroom_postgres_shield::real::{Real, Symbols};
use strongroom_postgres_shield::sealed_file::{FileCache, SealedFile};

const BLOCK: usize = 8192;

struct Sealed<'a> {
    real: Real,
    fd: RawFd,
    instance: &'a Instance,
    layout: FileLayout,
    key: BlockKey,
    cache: FileCache,
    path: std::path::PathBuf,
    _directory: tempfile::TempDir,
}

fn instance(cipher: Cipher) -> Instance {
    let opener = Opener::raw(SecretKey::generate().unwrap());
    let object =
        Object::create(&NewObject::instance(cipher), &opener.recipient().unwrap()).unwrap();
    Instance::of_keys(Keys::open(&object, 1).unwrap())
}

impl<'a> Sealed<'a> {
    fn new(instance: &'a Instance, layout: FileLayout, key: BlockKey) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let real = Real::linked();
        let name = CString::new(path.to_str().unwrap()).unwrap();
        let fd = real
            .open(&name, libc::O_RDWR | libc::O_CREAT, 0o600)
            .unwrap();
        Self {
            real,
            fd,
            instance,
            layout,
            key,
            cache: [const { AtomicU64::new(0) }; 4],
            path,
            _directory: directory,
        }
    }

    fn file(&self) -> SealedFile<'_> {
        let mut tweak = [9; 16];
        // As all tweaks are: a free byte for the mark of tails, the first block's number.
        tweak[11..].fill(0);
        SealedFile {
            instance: self.instance,
            layout: self.layout,
            key: self.key,
            tweak,
            cache: &self.cache,
        }
    }

    fn write(&self, from: &[u8], at: usize) {
        let at = u64::try_from(at).unwrap();
        let count = file_io::write_at(&self.real, self.fd, &self.file(), from, at).unwrap();
        assert_eq!(count, from.len());
    }

    fn read(&self, len: usize, at: usize) -> Vec<u8> {
        let mut into = vec![0xa5; len];
        let at = u64::try_from(at).unwrap();
        let count = file_io::read_at(&self.real, self.fd, &self.file(), &mut into, at).unwrap();
        into.truncate(count);
        into
    }

    fn truncate(&self, size: usize) {
        let size = u64::try_from(size).unwrap();
        file_io::truncate(&self.real, self.fd, &self.file(), size).unwrap();
    }

    fn stored(&self) -> Vec<u8> {
        std::fs::read(&self.path).unwrap()
    }
}

impl Drop for Sealed<'_> {
    fn drop(&mut self) {
        self.real.close(self.fd).unwrap();
    }
}

/// A small generator: the tests need many numbers, not good ones.
struct Random(u64);

impl Random {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(below).unwrap()).unwrap()
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        // Zeros often: they have rules of their own.
        let zero = self.next(4) == 0;
        (0..len)
            .map(|_| {
                if zero {
                    0
                } else {
                    u8::try_from(self.next(256)).unwrap()
                }
            })
            .collect()
    }

    fn offset(&mut self, limit: usize) -> usize {
        let at = self.next(limit);
        match self.next(3) {
            0 => at,
            1 => at / 16 * 16,
            _ => at / BLOCK * BLOCK,
        }
    }
}

#[test]
fn a_file_of_any_length_behaves_as_a_plain_one() {
    for (seed, layout, key) in [
        (1, FileLayout::Temporary, BlockKey::Temporary),
        (2, FileLayout::Block, BlockKey::Map),
        (3, FileLayout::NewLog, BlockKey::Wal),
        (4, FileLayout::Temporary, BlockKey::Temporary),
    ] {
        let cipher = if seed % 2 == 0 {
            Cipher::Aes128Xts
        } else {
            Cipher::Aes256Xts
        };
        let instance = instance(cipher);
        let sealed = Sealed::new(&instance, layout, key);
        let mut random = Random(0x9e37_79b9_7f4a_7c15 + seed);
        let mut plain: Vec<u8> = Vec::new();
        for step in 0..4000 {
            let context = format!("seed {seed}, step {step}, {layout:?}");
            match random.next(10) {
                0 => {
                    let size = random.offset(5 * BLOCK);
                    sealed.truncate(size);
                    plain.resize(size, 0);
                }
                1..=5 => {
                    let at = random.offset(5 * BLOCK);
                    let limit = if random.next(4) == 0 { 3 * BLOCK } else { 100 };
                    let len = 1 + random.next(limit);
                    let bytes = random.bytes(len);
                    sealed.write(&bytes, at);
                    plain.resize(plain.len().max(at + len), 0);
                    plain[at..at + len].copy_from_slice(&bytes);
                }
                _ => {
                    let at = random.offset(6 * BLOCK);
                    let len = 1 + random.next(3 * BLOCK);
                    let end = plain.len().min(at + len);
                    let expected = plain.get(at..end).unwrap_or_default();
                    assert_eq!(sealed.read(len, at), expected, "{context}");
                }
            }
            assert_eq!(sealed.stored().len(), plain.len(), "{context}");
        }
        assert_eq!(sealed.read(8 * BLOCK, 0), plain);
    }
}

#[test]
fn whole_units_of_any_class_behave_as_a_plain_file() {
    let instance = instance(Cipher::Aes128Xts);
    for key in [
        BlockKey::Relation,
        BlockKey::Wal,
        BlockKey::Slru,
        BlockKey::Control,
    ] {
        let sealed = Sealed::new(&instance, FileLayout::Block, key);
        let mut random = Random(0x1234_5678_9abc_def1 + u64::from(key.number()));
        let mut plain = vec![0; 4 * BLOCK];
        sealed.truncate(plain.len());
        for step in 0..3000 {
            // At any byte within the file, as a standby writes its log; beyond its end by blocks,
            // with holes.
            let (at, len) = if random.next(8) == 0 {
                (random.next(12) * BLOCK, (1 + random.next(3)) * BLOCK)
            } else {
                let at = random.offset(plain.len() - 1);
                (at, 1 + random.next((plain.len() - at).min(2 * BLOCK)))
            };
            let bytes = random.bytes(len);
            sealed.write(&bytes, at);
            plain.resize(plain.len().max(at + len), 0);
            plain[at..at + len].copy_from_slice(&bytes);
            let from = random.offset(plain.len());
            let len = 1 + random.next(2 * BLOCK);
            let end = plain.len().min(from + len);
            assert_eq!(
                sealed.read(len, from),
                plain[from..end],
                "{key:?}, step {step}"
            );
        }
        assert_eq!(sealed.read(plain.len(), 0), plain);
    }
}

#[test]
fn a_write_touches_only_the_units_it_covers() {
    let instance = instance(Cipher::Aes256Xts);
    let sealed = Sealed::new(&instance, FileLayout::Block, BlockKey::Wal);
    let mut random = Random(77);
    sealed.write(&vec![1; 3 * BLOCK], 0);
    for _ in 0..500 {
        let at = random.next(3 * BLOCK - 200);
        let len = 1 + random.next(200);
        let before = sealed.stored();
        sealed.write(&random.bytes(len), at);
        let after = sealed.stored();
        let (from, to) = (at / 16 * 16, (at + len).next_multiple_of(16));
        assert_eq!(before[..from], after[..from]);
        assert_eq!(before[to..], after[to..]);
    }
}

#[test]
fn a_write_into_zeros_touches_only_the_sectors_it_covers() {
    let instance = instance(Cipher::Aes256Xts);
    let mut random = Random(78);
    for _ in 0..200 {
        let sealed = Sealed::new(&instance, FileLayout::Block, BlockKey::Wal);
        sealed.truncate(3 * BLOCK);
        let at = random.next(3 * BLOCK - 2000);
        let len = 1 + random.next(2000);
        sealed.write(&vec![3; len], at);
        let after = sealed.stored();
        let (from, to) = (at / 512 * 512, (at + len).next_multiple_of(512));
        assert!(after[..from].iter().all(|byte| *byte == 0), "{at}, {len}");
        assert!(after[to..].iter().all(|byte| *byte == 0), "{at}, {len}");
    }
}

#[test]
fn nothing_but_whole_zero_blocks_is_stored_as_it_is() {
    let instance = instance(Cipher::Aes128Xts);
    let sealed = Sealed::new(&instance, FileLayout::Block, BlockKey::Relation);
    sealed.write(&vec![0; 2 * BLOCK], 0);
    assert!(sealed.stored().iter().all(|byte| *byte == 0));
    let mut page = vec![0; BLOCK];
    page[0] = 1;
    sealed.write(&page, BLOCK);
    let stored = sealed.stored();
    assert!(stored[..BLOCK].iter().all(|byte| *byte == 0));
    assert!(
        stored[BLOCK..]
            .chunks(16)
            .all(|unit| unit.iter().any(|byte| *byte != 0))
    );
    assert_eq!(sealed.read(2 * BLOCK, 0)[BLOCK..], page);
    // A hole within a block reads as zeros beside what was sealed.
    sealed.write(&[7; 16], 4 * BLOCK + 4096);
    let read = sealed.read(BLOCK, 4 * BLOCK);
    assert_eq!(read.len(), 4096 + 16, "the file ends there");
    assert!(read[..4096].iter().all(|byte| *byte == 0) && read[4096..] == [7; 16]);
}

#[test]
fn a_new_log_keeps_its_zero_units_and_a_block_none() {
    let instance = instance(Cipher::Aes128Xts);
    let mut page = vec![0; BLOCK];
    page[100] = 1;
    for (layout, zero_units) in [(FileLayout::NewLog, 511), (FileLayout::Block, 0)] {
        let sealed = Sealed::new(&instance, layout, BlockKey::Wal);
        sealed.write(&page, 0);
        let stored = sealed.stored();
        let zero = stored
            .chunks(16)
            .filter(|unit| unit.iter().all(|byte| *byte == 0));
        assert_eq!(zero.count(), zero_units, "{layout:?}");
        assert_eq!(sealed.read(BLOCK, 0), page);
    }
}

#[test]
fn equal_pages_at_different_places_do_not_look_alike() {
    let instance = instance(Cipher::Aes128Xts);
    let keys = [
        BlockKey::Relation,
        BlockKey::Wal,
        BlockKey::Slru,
        BlockKey::Control,
        BlockKey::Map,
    ];
    let mut seen = std::collections::BTreeSet::new();
    for key in keys {
        let sealed = Sealed::new(&instance, FileLayout::Block, key);
        sealed.write(&vec![3; 2 * BLOCK], 0);
        for block in sealed.stored().chunks(BLOCK) {
            assert!(seen.insert(block.to_vec()), "{key:?}");
        }
    }
}

#[test]
fn a_block_whose_last_part_is_missing_is_read_in_whole_units() {
    let instance = instance(Cipher::Aes128Xts);
    let sealed = Sealed::new(&instance, FileLayout::Block, BlockKey::Relation);
    sealed.write(&vec![5; BLOCK], 0);
    sealed.real.ftruncate(sealed.fd, 1000).unwrap();
    assert_eq!(sealed.read(BLOCK, 0), vec![5; 992]);
    assert_eq!(sealed.read(BLOCK, 992), Vec::<u8>::new());
}

/// Most bytes that the kernel transfers at once, for [`cut_short`].
static MOST: AtomicUsize = AtomicUsize::new(usize::MAX);

fn most(len: usize) -> usize {
    len.min(MOST.load(Ordering::Relaxed))
}

/// A kernel that transfers less than it was asked for, at any byte.
fn cut_short() -> Real {
    unsafe extern "C" fn pread(fd: c_int, into: *mut c_void, len: usize, at: i64) -> isize {
        // SAFETY: the core's arguments, less of the buffer.
        unsafe { libc::pread(fd, into, most(len), at) }
    }
    unsafe extern "C" fn pwrite(fd: c_int, from: *const c_void, len: usize, at: i64) -> isize {
        // SAFETY: as above.
        unsafe { libc::pwrite(fd, from, most(len), at) }
    }
    let linked = Real::linked().symbols();
    // SAFETY: both behave as the C library's, which may transfer less too.
    unsafe {
        Real::new(Symbols {
            pread,
            pwrite,
            ..linked
        })
    }
}

#[test]
fn transfers_that_the_kernel_cuts_short_are_reported_so_and_can_be_continued() {
    let instance = instance(Cipher::Aes128Xts);
    let mut random = Random(99);
    for (layout, key, byte) in [
        (FileLayout::Block, BlockKey::Wal, 1),
        (FileLayout::Temporary, BlockKey::Temporary, 1),
        (FileLayout::Block, BlockKey::Wal, 0),
        (FileLayout::Temporary, BlockKey::Temporary, 0),
    ] {
        for _ in 0..300 {
            let mut sealed = Sealed::new(&instance, layout, key);
            // Of zeros: nothing is sealed yet.
            sealed.write(&vec![byte; 2 * BLOCK], 0);
            sealed.real = cut_short();
            let (at, len) = (random.next(BLOCK), 1 + random.next(BLOCK));
            let bytes = random.bytes(len);
            // As PostgreSQL does: what was not written is written again from there on.
            let mut done = 0;
            while done < len {
                MOST.store(17 + random.next(600), Ordering::Relaxed);
                let offset = u64::try_from(at + done).unwrap();
                let rest = &bytes[done..];
                let count =
                    file_io::write_at(&sealed.real, sealed.fd, &sealed.file(), rest, offset);
                let count = count.unwrap();
                assert!(count > 0 && count <= rest.len());
                assert!(count == rest.len() || (at + done + count).is_multiple_of(16));
                done += count;
            }
            let mut read = Vec::new();
            while read.len() < len {
                MOST.store(1 + random.next(600), Ordering::Relaxed);
                let piece = sealed.read(len - read.len(), at + read.len());
                assert!(!piece.is_empty(), "the file has not ended");
                read.extend(piece);
            }
            MOST.store(usize::MAX, Ordering::Relaxed);
            assert_eq!(read, bytes, "{layout:?} at {at}, {len} bytes");
            assert_eq!(sealed.read(at, 0), vec![byte; at]);
            let end = at + len;
            assert_eq!(sealed.read(2 * BLOCK, end), vec![byte; 2 * BLOCK - end]);
        }
    }
}

#[test]
fn a_transfer_of_the_largest_piece_fits_at_any_offset() {
    let instance = instance(Cipher::Aes128Xts);
    let sealed = Sealed::new(&instance, FileLayout::Temporary, BlockKey::Temporary);
    let bytes = Random(5).bytes(strongroom_postgres_shield::scratch::LEN);
    for at in [0, 1, 15, 16, 8191, 8193, 70_000] {
        sealed.write(&bytes, at);
        assert_eq!(sealed.read(bytes.len(), at), bytes, "at {at}");
    }
}

/// A page as it is while somebody sets hint bits in it: each byte is the old one or the new one,
/// and changes at any time.
struct Shared {
    bytes: Vec<AtomicU8>,
    old: Vec<u8>,
    new: Vec<u8>,
}

impl Shared {
    fn new(random: &mut Random, len: usize) -> Self {
        let old = random.bytes(len);
        let new: Vec<u8> = old.iter().map(|byte| byte ^ 0xff).collect();
        let bytes = old.iter().copied().map(AtomicU8::new).collect();
        Self { bytes, old, new }
    }

    /// Changes byte after byte, to and fro, until it is told to stop.
    fn keep_changing(&self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            for side in [&self.new, &self.old] {
                for (byte, value) in self.bytes.iter().zip(side) {
                    byte.store(*value, Ordering::Relaxed);
                }
            }
        }
    }
}

#[test]
fn a_page_that_changes_while_it_is_written_is_stored_byte_by_byte_as_it_was_at_some_time() {
    let instance = instance(Cipher::Aes256Xts);
    let mut random = Random(0x5eed);
    let mut mixed = 0_u32;
    for (key, at, len) in [
        (BlockKey::Relation, 0, BLOCK),
        (BlockKey::Relation, 0, 4 * BLOCK),
        // At any byte: as the log is written.
        (BlockKey::Wal, 1001, 2 * BLOCK + 3),
    ] {
        let sealed = Sealed::new(&instance, FileLayout::Block, key);
        sealed.truncate(8 * BLOCK);
        let shared = Shared::new(&mut random, len);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| shared.keep_changing(&stop));
            let begun = std::time::Instant::now();
            let mut rounds = 0;
            // Until writes have met changes, which a loaded machine lets happen when it likes.
            while rounds < 200 || (mixed < 20 && begun.elapsed().as_secs() < 60) {
                rounds += 1;
                // SAFETY: the atomics are bytes, alive for the whole scope. That others write to
                // them meanwhile is what a server does, and what is tested.
                let bytes =
                    unsafe { std::slice::from_raw_parts(shared.bytes.as_ptr().cast::<u8>(), len) };
                sealed.write(bytes, at);
                let read = sealed.read(len, at);
                let olds = read.iter().zip(&shared.old).filter(|(a, b)| a == b).count();
                let news = read.iter().zip(&shared.new).filter(|(a, b)| a == b).count();
                if olds + news != len {
                    stop.store(true, Ordering::Relaxed);
                }
                assert_eq!(olds + news, len, "{key:?}: noise after {rounds} writes");
                mixed += u32::from(olds > 0 && news > 0);
            }
            stop.store(true, Ordering::Relaxed);
        });
        // Nothing of it was changed by the write: it is all of one of the two sides, where the
        // thread stopped.
        for (byte, (old, new)) in shared.bytes.iter().zip(shared.old.iter().zip(&shared.new)) {
            let byte = byte.load(Ordering::Relaxed);
            assert!(byte == *old || byte == *new);
        }
    }
    assert!(mixed > 0, "no write met a change");
}

/// How often the kernel was asked about the file, for [`asked`].
static ASKED: AtomicUsize = AtomicUsize::new(0);

/// A kernel that counts.
fn asked() -> Real {
    unsafe extern "C" fn fstat(fd: c_int, about: *mut libc::stat) -> c_int {
        ASKED.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the core's arguments.
        unsafe { libc::fstat(fd, about) }
    }
    let linked = Real::linked().symbols();
    // SAFETY: behaves as the C library's.
    unsafe { Real::new(Symbols { fstat, ..linked }) }
}

#[test]
fn a_spill_asks_for_no_sizes() {
    let instance = instance(Cipher::Aes128Xts);
    let mut sealed = Sealed::new(&instance, FileLayout::Temporary, BlockKey::Temporary);
    sealed.real = asked();
    let mut random = Random(3);
    let mut plain = Vec::new();
    // As a spill is written: blocks one after the other, a short one when it is read in between,
    // and some again.
    for step in 0..50 {
        let len = if step % 10 == 9 { 1003 } else { BLOCK };
        let bytes = random.bytes(len);
        sealed.write(&bytes, plain.len());
        plain.extend_from_slice(&bytes);
        if step % 7 == 6 {
            sealed.write(&bytes, 0);
            plain[..len].copy_from_slice(&bytes);
        }
    }
    assert_eq!(ASKED.load(Ordering::Relaxed), 0);
    // Beyond its end it is asked for, and after it was cut short.
    plain.resize(plain.len() + 500, 0);
    sealed.write(b"beyond", plain.len());
    plain.extend_from_slice(b"beyond");
    assert!(ASKED.swap(0, Ordering::Relaxed) > 0);
    sealed.truncate(1003);
    plain.truncate(1003);
    ASKED.store(0, Ordering::Relaxed);
    plain.resize(4000, 0);
    sealed.write(b"beyond", plain.len());
    plain.extend_from_slice(b"beyond");
    assert!(ASKED.load(Ordering::Relaxed) > 0);
    assert_eq!(sealed.read(plain.len() + 1, 0).len(), plain.len());
    let mut at = 0;
    for piece in plain.chunks(BLOCK) {
        assert_eq!(sealed.read(piece.len(), at), piece);
        at += piece.len();
    }
}
