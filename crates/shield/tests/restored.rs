//! Goal: what the restore command brings back becomes a segment of the log only when it is that segment, under this
//! instance's key. Otherwise recovery would take it for the end of the log.
//!
//! Method: the head of a segment is sealed for its name, and offered under its name, another's, in clear, under another
//! instance's keys, and cut short.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

use strongroom_crypto::SecretKey;
use strongroom_format::header::Cipher;
use strongroom_keyring::{NewObject, Object, Opener};
use strongroom_shield::body::Memory;
use strongroom_shield::install::{self, Step};
use strongroom_shield::instance::Instance;
use strongroom_shield::place::{Ruling, Seal, rule};
use strongroom_shield::real::{Errno, Real};
use strongroom_shield::{block, roots};

const SEGMENT_SIZE: u32 = 16 << 20;
const LOG: u64 = 2;
const WITHIN: u64 = 0xa3;
const NAME: &str = "0000000100000002000000A3";

fn data_directory(place: &Path, name: &str) -> PathBuf {
    let directory = place.join(name);
    fs::create_dir_all(directory.join("pg_wal")).unwrap();
    let opener = || Opener::raw(SecretKey::take(&mut [7; 32]).unwrap());
    let object = Object::create(&NewObject::instance(Cipher::Aes128Xts), &opener()).unwrap();
    put(
        &directory.join("strongroom.header"),
        &object.initial_bytes(),
    );
    let instance = Instance::open(&directory, &[], &opener()).unwrap();
    assert!(roots::add(instance).is_ok());
    directory
}

fn put(path: &Path, bytes: &[u8]) {
    fs::File::create(path)
        .and_then(|mut file| std::io::Write::write_all(&mut file, bytes))
        .unwrap();
}

/// The first page of the segment, as PostgreSQL 15 writes it.
fn page() -> Vec<u8> {
    let mut page = vec![0; 8192];
    page[0..2].copy_from_slice(&0xd110_u16.to_le_bytes());
    page[2..4].copy_from_slice(&2_u16.to_le_bytes());
    page[4..8].copy_from_slice(&1_u32.to_le_bytes());
    let address = (LOG << 32) + WITHIN * u64::from(SEGMENT_SIZE);
    page[8..16].copy_from_slice(&address.to_le_bytes());
    page[32..36].copy_from_slice(&SEGMENT_SIZE.to_le_bytes());
    page[36..40].copy_from_slice(&8192_u32.to_le_bytes());
    page
}

fn ruling(path: &Path) -> Ruling {
    rule(b"/", path.as_os_str().as_bytes()).unwrap()
}

fn seal(path: &Path) -> Seal {
    let sealed = match ruling(path) {
        Ruling::Sealed(seal) => Some(seal),
        _ => None,
    };
    sealed.unwrap()
}

fn sealed(seal: &Seal, page: &[u8], path: &Path) {
    put(path, b"");
    let name = CString::new(path.as_os_str().as_bytes()).unwrap();
    let memory: Memory = [const { AtomicU64::new(0) }; 4];
    let real = Real::linked();
    let fd = real.open(&name, libc::O_RDWR, 0).unwrap();
    let count = block::write_at(&real, fd, &seal.file(&memory).unwrap(), page, 0).unwrap();
    real.close(fd).unwrap();
    assert_eq!(count, page.len());
}

#[test]
fn only_the_segment_itself_is_installed() {
    let place = tempfile::tempdir().unwrap();
    let place = place.path().canonicalize().unwrap();
    let (data, other) = (
        data_directory(&place, "data"),
        data_directory(&place, "other"),
    );
    let restored = data.join("pg_wal/RECOVERYXLOG");
    let name = CString::new(restored.as_os_str().as_bytes()).unwrap();
    let target = seal(&data.join("pg_wal").join(NAME));
    assert_eq!(
        install::step(&ruling(&restored), &Ruling::Sealed(target)),
        Step::CheckRestored(target)
    );
    let check = |seal: &Seal| install::check_restored(&Real::linked(), &name, seal);
    let refused = Err(Errno(libc::EIO));

    sealed(&target, &page(), &restored);
    assert_eq!(check(&target), Ok(()));
    let of_other_name = seal(&data.join("pg_wal/0000000100000002000000A4"));
    assert_eq!(check(&of_other_name), refused);
    let of_other_timeline = seal(&data.join("pg_wal/0000000200000002000000A3"));
    assert_eq!(check(&of_other_timeline), refused);

    sealed(&of_other_name, &page(), &restored);
    assert_eq!(
        check(&of_other_name),
        refused,
        "another segment's contents under its seal"
    );
    sealed(&seal(&other.join("pg_wal").join(NAME)), &page(), &restored);
    assert_eq!(check(&target), refused, "another instance's keys");
    put(&restored, &page());
    assert_eq!(check(&target), refused, "in clear");
    sealed(&target, &page()[..32], &restored);
    assert_eq!(check(&target), refused, "cut short");
    put(&restored, &[0; 8192]);
    assert_eq!(
        check(&target),
        Ok(()),
        "PostgreSQL sees for itself that these are zeros"
    );
}
