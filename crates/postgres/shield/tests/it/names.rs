//! Goal: a container that is put in the place of another one does not open, whatever its class, and
//! neither does one of the older version, which is not bound to a name; in an instance that was
//! made before names were bound, everything is as it was.
//!
//! Method: containers are written through the treatment under the names of their paths; then their
//! files are exchanged as somebody with the disk would do it. The two instances of the known-answer
//! vectors have the same keys and differ in the header's bit alone.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]
#![expect(
    clippy::indexing_slicing,
    reason = "tests index what they have just made"
)]

use crate::sealed;

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use sealed::{Handle, directory, instance, of_vector};
use strongroom_postgres_shield::classify::classify;
use strongroom_postgres_shield::container;
use strongroom_postgres_shield::container_name;
use strongroom_postgres_shield::instance::Instance;
use strongroom_postgres_shield::layout::FileLayout;
use strongroom_postgres_shield::real::{Errno, Real};

const EIO: Errno = Errno(libc::EIO);

/// Pairs of files of one class each, and of two.
const PAIRS: [(&str, &str); 10] = [
    ("pg_replslot/a/state", "pg_replslot/b/state"),
    ("pg_twophase/0000030A", "pg_twophase/0000030B"),
    (
        "pg_logical/snapshots/0-15A3.snap",
        "pg_logical/snapshots/0-15A4.snap",
    ),
    ("base/5/pg_internal.init", "base/6/pg_internal.init"),
    ("base/5/INCREMENTAL.16384", "base/5/INCREMENTAL.16385"),
    ("pg_stat/pgstat.stat", "pg_stat/pg_stat_statements.stat"),
    (
        "pg_wal/summaries/0000000100000000010000280000000001000100.summary",
        "pg_wal/summaries/0000000100000000010001000000000001000200.summary",
    ),
    ("pg_logical/replorigin_checkpoint", "autoprewarm.blocks"),
    ("pg_twophase/0000030A", "pg_replslot/a/state"),
    ("pg_stat/pgstat.stat", "an_extension/its.file"),
];

/// The file that stands for `path` of an instance.
fn at(directory: &Path, path: &str) -> PathBuf {
    directory.join(path.replace('/', "-"))
}

fn open<'a>(instance: &'a Instance, file: &Path, path: &str) -> Handle<'a> {
    let mut handle = Handle::create(instance, FileLayout::Container, file);
    handle.name = container_name::name_digest(classify(path.as_bytes()).class, path.as_bytes());
    handle
}

fn write(instance: &Instance, file: &Path, path: &str, content: &[u8]) {
    let written = open(instance, file, path).write_at(content, 0).unwrap();
    assert_eq!(written, content.len());
}

fn read(instance: &Instance, file: &Path, path: &str) -> Result<Vec<u8>, Errno> {
    open(instance, file, path).read_all()
}

#[test]
fn a_container_in_the_place_of_another_does_not_open() {
    let place = directory();
    let instance = instance();
    for (one, other) in PAIRS {
        let (first, second) = (at(place.path(), one), at(place.path(), other));
        let contents = [vec![1; 200], vec![2; 9000]];
        write(&instance, &first, one, &contents[0]);
        write(&instance, &second, other, &contents[1]);
        let exchange = || {
            let [of_first, of_second] = [&first, &second].map(|path| fs::read(path).unwrap());
            sealed::put(&first, &of_second);
            sealed::put(&second, &of_first);
        };
        exchange();
        assert_eq!(read(&instance, &first, one), Err(EIO), "{one}");
        assert_eq!(read(&instance, &second, other), Err(EIO), "{other}");
        // Nor is it written to: what is there would be lost.
        let appended = open(&instance, &first, one).append(b"x");
        assert_eq!(appended, Err(EIO), "{one}");
        exchange();
        assert_eq!(read(&instance, &first, one).unwrap(), contents[0]);
        assert_eq!(read(&instance, &second, other).unwrap(), contents[1]);
        fs::remove_file(&first).unwrap();
        fs::remove_file(&second).unwrap();
    }
}

/// Not found, as SECURITY.md says.
#[test]
fn an_older_copy_of_the_same_file_opens() {
    let place = directory();
    let instance = instance();
    let path = "pg_replslot/a/state";
    let file = at(place.path(), path);
    write(&instance, &file, path, b"older");
    let older = fs::read(&file).unwrap();
    open(&instance, &file, path).truncate(0).unwrap();
    write(&instance, &file, path, b"newer");
    assert_eq!(read(&instance, &file, path).unwrap(), b"newer");
    sealed::put(&file, &older);
    assert_eq!(read(&instance, &file, path).unwrap(), b"older");
}

#[test]
fn the_older_version_is_refused_where_names_are_bound() {
    let place = directory();
    let bound = of_vector("postgres-aes-256-xts-raw");
    assert!(bound.keys.names_are_bound());
    let path = "pg_replslot/a/state";
    let file = at(place.path(), path);
    for older in ["postgres-unbound-names", "postgres-stored-zeros"] {
        let older = of_vector(older);
        assert!(!older.keys.names_are_bound());
        write(&older, &file, path, b"not bound");
        assert_eq!(fs::read(&file).unwrap()[32], 1, "its version");
        assert_eq!(read(&older, &file, path).unwrap(), b"not bound");
        assert_eq!(read(&bound, &file, path), Err(EIO));
        let appended = open(&bound, &file, path).append(b"x");
        assert_eq!(appended, Err(EIO));
        // The same with the newer version's number, and the other way round.
        let mut bytes = fs::read(&file).unwrap();
        bytes[32] = 2;
        sealed::put(&file, &bytes);
        assert_eq!(read(&bound, &file, path), Err(EIO));
        fs::remove_file(&file).unwrap();
        write(&bound, &file, path, b"bound");
        assert_eq!(fs::read(&file).unwrap()[32], 2, "its version");
        assert_eq!(read(&bound, &file, path).unwrap(), b"bound");
        assert_eq!(read(&older, &file, path), Err(EIO));
        fs::remove_file(&file).unwrap();
    }
}

#[test]
fn an_instance_from_before_names_were_bound_does_not_bind_them() {
    let place = directory();
    let older = of_vector("postgres-unbound-names");
    let (one, other) = ("pg_replslot/a/state", "pg_replslot/b/state");
    let file = at(place.path(), one);
    write(&older, &file, one, b"of a");
    assert_eq!(read(&older, &file, other).unwrap(), b"of a");
}

/// `temp.summary` gets the name that it is renamed to first; whatever its length.
#[test]
fn a_container_is_sealed_for_its_new_name() {
    let place = directory();
    let instance = instance();
    let (temporary, last) = ("pg_wal/summaries/temp.summary", PAIRS[6].0);
    for len in [0, 1, 4095, 4096, 4097, 30_000] {
        let file = at(place.path(), temporary);
        let content: Vec<u8> = (0..len).map(|at: u32| at.to_le_bytes()[0]).collect();
        write(&instance, &file, temporary, &content);
        let before = fs::read(&file).unwrap();
        let name = CString::new(file.as_os_str().as_bytes()).unwrap();
        let real = Real::linked();
        let flags = libc::O_RDWR | libc::O_CLOEXEC;
        let fd = real.open(&name, flags, 0).unwrap();
        let (from, to) = (
            open(&instance, &file, temporary),
            open(&instance, &file, last),
        );
        container::rebind(&real, fd, &from.file(), &to.file()).unwrap();
        assert_eq!(read(&instance, &file, last).unwrap(), content, "{len}");
        if len > 0 {
            assert_eq!(read(&instance, &file, temporary), Err(EIO));
            let after = fs::read(&file).unwrap();
            assert_eq!(after.len(), before.len());
            assert_ne!(after[64..76], before[64..76], "the nonce is a new one");
            // It does not open under its first name any more.
            let again = container::rebind(&real, fd, &from.file(), &to.file());
            assert_eq!(again, Err(EIO));
        }
        real.close(fd).unwrap();
        fs::remove_file(&file).unwrap();
    }
}
