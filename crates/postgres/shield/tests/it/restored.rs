//! Goal: what the restore command brings back becomes a segment of the log only when it is that
//! segment, under this instance's key; one in clear is sealed first. Anything else recovery would
//! take for the end of the log.
//!
//! Method: a segment is sealed for its name, and offered under its name, another's, under another
//! instance's keys, cut short, and in clear: whole, of another instance, of another version,
//! linked, refused, and with each write failing in turn.
#![expect(unsafe_code, reason = "a write that fails is a C function")]
#![expect(
    clippy::unwrap_used,
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    reason = "a test that panics has failed"
)]

use std::ffi::{CString, c_int, c_void};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use strongroom_crypto::SecretKey;
use strongroom_format::header::Cipher;
use strongroom_keyring::{NewObject, Object, Opener};
use strongroom_postgres_shield::instance::Instance;
use strongroom_postgres_shield::real::{Errno, Real, Symbols};
use strongroom_postgres_shield::rename::{self, RenameStep};
use strongroom_postgres_shield::resolve::{Resolved, Seal, resolve};
use strongroom_postgres_shield::restored::{PlainSegments, Refusal, RestoredAs, check_restored};
use strongroom_postgres_shield::sealed_file::FileCache;
use strongroom_postgres_shield::{block, open_instances};

const SEGMENT_SIZE: u32 = 1 << 20;
const LOG: u64 = 2;
const WITHIN: u64 = 0xa3;
const NAME: &str = "0000000100000002000000A3";
const SYSTEM: u64 = 0x6f12_0b15_77c3_9a01;

fn data_directory(place: &Path, name: &str) -> PathBuf {
    let directory = place.join(name);
    fs::create_dir_all(directory.join("pg_wal")).unwrap();
    fs::create_dir_all(directory.join("global")).unwrap();
    let opener = || Opener::raw(SecretKey::take(&mut [7; 32]).unwrap());
    let object = Object::create(
        &NewObject::instance(Cipher::Aes128Xts),
        &opener().recipient().unwrap(),
    )
    .unwrap();
    put(
        &directory.join("strongroom.header"),
        &object.initial_bytes(),
    );
    put(&directory.join("PG_VERSION"), b"15\n");
    let instance = Instance::open(&directory, &[], &opener()).unwrap();
    assert!(open_instances::add(instance).is_ok());
    let control = directory.join("global/pg_control");
    let mut contents = vec![0; 8192];
    contents[..8].copy_from_slice(&SYSTEM.to_le_bytes());
    sealed(&seal(&control), &contents, &control);
    directory
}

fn put(path: &Path, bytes: &[u8]) {
    fs::File::create(path)
        .and_then(|mut file| std::io::Write::write_all(&mut file, bytes))
        .unwrap();
}

/// The segment, as PostgreSQL 15 writes it: with contents of all kinds, and zeros after them.
fn segment() -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(SEGMENT_SIZE).unwrap()];
    bytes[0..2].copy_from_slice(&0xd110_u16.to_le_bytes());
    bytes[2..4].copy_from_slice(&2_u16.to_le_bytes());
    bytes[4..8].copy_from_slice(&1_u32.to_le_bytes());
    let address = (LOG << 32) + WITHIN * u64::from(SEGMENT_SIZE);
    bytes[8..16].copy_from_slice(&address.to_le_bytes());
    bytes[24..32].copy_from_slice(&SYSTEM.to_le_bytes());
    bytes[32..36].copy_from_slice(&SEGMENT_SIZE.to_le_bytes());
    bytes[36..40].copy_from_slice(&8192_u32.to_le_bytes());
    for (number, byte) in (0_u32..).zip(&mut bytes[48..600_001]) {
        // A block of zeros among them.
        if number / 8192 != 5 && number / 8192 != 6 {
            *byte = number.wrapping_mul(2_654_435_761).to_le_bytes()[3];
        }
    }
    bytes
}

fn resolved(path: &Path) -> Resolved {
    resolve(b"/", path.as_os_str().as_bytes()).unwrap()
}

fn seal(path: &Path) -> Seal {
    let sealed = match resolved(path) {
        Resolved::Sealed(seal) => Some(seal),
        _ => None,
    };
    sealed.unwrap()
}

fn name(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

fn sealed(seal: &Seal, bytes: &[u8], path: &Path) {
    put(path, b"");
    let cache: FileCache = [const { AtomicU64::new(0) }; 4];
    let real = Real::linked();
    let fd = real.open(&name(path), libc::O_RDWR, 0).unwrap();
    let file = seal.file(&cache).unwrap();
    let mut at = 0;
    for piece in bytes.chunks(65_536) {
        let count = block::write_at(&real, fd, &file, piece, at).unwrap();
        assert_eq!(count, piece.len());
        at += 65_536;
    }
    real.close(fd).unwrap();
}

/// The file as the server would read it under this seal.
fn opened(seal: &Seal, path: &Path) -> Vec<u8> {
    let cache: FileCache = [const { AtomicU64::new(0) }; 4];
    let real = Real::linked();
    let fd = real.open(&name(path), libc::O_RDONLY, 0).unwrap();
    let file = seal.file(&cache).unwrap();
    let mut all = Vec::new();
    loop {
        let mut piece = vec![0; 65_536];
        let at = u64::try_from(all.len()).unwrap();
        let count = block::read_at(&real, fd, &file, &mut piece, at).unwrap();
        if count == 0 {
            break;
        }
        all.extend_from_slice(&piece[..count]);
    }
    real.close(fd).unwrap();
    all
}

/// Instances stay open until the process ends, and there is room for a few.
struct Stage {
    data: PathBuf,
    other: PathBuf,
    _place: tempfile::TempDir,
}

fn stage() -> &'static Stage {
    static STAGE: OnceLock<Stage> = OnceLock::new();
    STAGE.get_or_init(|| {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().canonicalize().unwrap();
        Stage {
            data: data_directory(&place, "data"),
            other: data_directory(&place, "other"),
            _place: directory,
        }
    })
}

/// A file as the restore command makes it. Tests run at the same time, each with a file of its own;
/// the name plays no part once the step is known.
fn restored(test: &str) -> PathBuf {
    stage().data.join(format!("pg_wal/RECOVERYXLOG.{test}"))
}

fn target() -> Seal {
    seal(&stage().data.join("pg_wal").join(NAME))
}

fn admitted(path: &Path, to: &Seal) -> Result<RestoredAs, Refusal> {
    check_restored(&Real::linked(), &name(path), to, PlainSegments::Sealed)
}

#[test]
fn a_sealed_segment_is_installed_under_its_own_name_only() {
    let (data, other) = (&stage().data, &stage().other);
    assert_eq!(
        rename::rename_step(
            &resolved(&data.join("pg_wal/RECOVERYXLOG")),
            &Resolved::Sealed(target())
        ),
        RenameStep::CheckRestored(target())
    );
    let path = restored("sealed");
    let refused = Err(Refusal::NotTheSegment);
    sealed(&target(), &segment(), &path);
    assert_eq!(admitted(&path, &target()), Ok(RestoredAs::Unchanged));
    let of_other_name = seal(&data.join("pg_wal/0000000100000002000000A4"));
    assert_eq!(admitted(&path, &of_other_name), refused);
    let of_other_timeline = seal(&data.join("pg_wal/0000000200000002000000A3"));
    assert_eq!(admitted(&path, &of_other_timeline), refused);

    sealed(&of_other_name, &segment(), &path);
    assert_eq!(
        admitted(&path, &of_other_name),
        refused,
        "another segment's contents under its seal"
    );
    sealed(&seal(&other.join("pg_wal").join(NAME)), &segment(), &path);
    assert_eq!(
        admitted(&path, &target()),
        refused,
        "another instance's keys"
    );
    sealed(&target(), &segment()[..32], &path);
    assert_eq!(admitted(&path, &target()), refused, "cut short");
    put(&path, &[0; 8192]);
    assert_eq!(
        admitted(&path, &target()),
        Ok(RestoredAs::Unchanged),
        "PostgreSQL sees for itself that these are zeros"
    );
}

#[test]
fn a_segment_in_clear_is_sealed() {
    let path = restored("clear");
    put(&path, &segment());
    assert_eq!(admitted(&path, &target()), Ok(RestoredAs::SealedNow));
    assert!(opened(&target(), &path) == segment(), "it reads as it was");
    let stored = fs::read(&path).unwrap();
    for (number, (stored, clear)) in stored.chunks(16).zip(segment().chunks(16)).enumerate() {
        let is_zero = clear.iter().all(|byte| *byte == 0);
        assert!(is_zero || stored != clear, "unit {number} is in clear");
    }
    assert_eq!(admitted(&path, &target()), Ok(RestoredAs::Unchanged));
}

#[test]
fn what_is_not_a_segment_of_this_instance_is_refused_and_left_as_it_is() {
    let path = restored("refused");
    let data = &stage().data;
    let refused = |bytes: &[u8], to: &Seal, why: Refusal| {
        put(&path, bytes);
        assert_eq!(admitted(&path, to), Err(why));
        assert!(fs::read(&path).unwrap() == bytes, "{why:?}");
    };
    let of_other_name = seal(&data.join("pg_wal/0000000100000002000000A4"));
    refused(&segment(), &of_other_name, Refusal::NotTheSegment);
    refused(&segment()[..8192], &target(), Refusal::NotTheSegment);
    refused(&segment()[..32], &target(), Refusal::NotTheSegment);
    refused(b"", &target(), Refusal::NotTheSegment);
    refused(&[0x55; 8192], &target(), Refusal::NotTheSegment);
    let mut longer = segment();
    longer.extend_from_slice(&[0; 8192]);
    refused(&longer, &target(), Refusal::NotTheSegment);
    let mut of_other_version = segment();
    of_other_version[0] = 0x13;
    refused(&of_other_version, &target(), Refusal::AnotherInstance);
    let mut of_other_system = segment();
    of_other_system[31] ^= 1;
    refused(&of_other_system, &target(), Refusal::AnotherInstance);

    put(&path, &segment());
    let strictly = check_restored(
        &Real::linked(),
        &name(&path),
        &target(),
        PlainSegments::Refused,
    );
    assert_eq!(strictly, Err(Refusal::PlainSegments));
    assert!(fs::read(&path).unwrap() == segment());
    assert_eq!(Refusal::PlainSegments.errno(), Errno(libc::EIO));
    sealed(&target(), &segment(), &path);
    let strictly = check_restored(
        &Real::linked(),
        &name(&path),
        &target(),
        PlainSegments::Refused,
    );
    assert_eq!(
        strictly,
        Ok(RestoredAs::Unchanged),
        "sealed ones stay welcome"
    );
}

#[test]
fn a_file_of_the_archive_itself_is_not_written() {
    let archived = stage().data.join("../archived");
    put(&archived, &segment());
    let (hard, soft) = (restored("hard"), restored("soft"));
    fs::hard_link(&archived, &hard).unwrap();
    assert_eq!(admitted(&hard, &target()), Err(Refusal::Linked));
    fs::remove_file(&hard).unwrap();
    std::os::unix::fs::symlink(&archived, &soft).unwrap();
    assert_eq!(admitted(&soft, &target()), Err(Refusal::Linked));
    assert!(fs::read(&archived).unwrap() == segment());
}

/// Writes that succeed before one fails.
static LEFT: AtomicUsize = AtomicUsize::new(usize::MAX);

fn failing() -> Real {
    unsafe extern "C" fn pwrite(fd: c_int, from: *const c_void, len: usize, at: i64) -> isize {
        let left = LEFT.load(Ordering::Relaxed);
        if left == 0 {
            // SAFETY: the thread's own variable.
            unsafe { *libc::__errno_location() = libc::ENOSPC };
            return -1;
        }
        LEFT.store(left - 1, Ordering::Relaxed);
        // SAFETY: the core's arguments.
        unsafe { libc::pwrite(fd, from, len, at) }
    }
    let linked = Real::linked().symbols();
    // SAFETY: behaves as the C library's does on a full disk.
    unsafe { Real::new(Symbols { pwrite, ..linked }) }
}

#[test]
fn what_is_left_when_sealing_stops_halfway_is_no_segment() {
    let path = restored("halfway");
    for writes in 0.. {
        put(&path, &segment());
        LEFT.store(writes, Ordering::Relaxed);
        let outcome = check_restored(&failing(), &name(&path), &target(), PlainSegments::Sealed);
        if outcome == Ok(RestoredAs::SealedNow) {
            assert!(writes > 3, "in several writes: {writes}");
            assert!(opened(&target(), &path) == segment());
            return;
        }
        assert_eq!(outcome, Err(Refusal::Kernel(Errno(libc::ENOSPC))));
        if writes == 0 {
            assert!(fs::read(&path).unwrap() == segment(), "untouched");
        } else {
            let again = admitted(&path, &target());
            assert_eq!(again, Err(Refusal::NotTheSegment), "after {writes} writes");
        }
    }
}
