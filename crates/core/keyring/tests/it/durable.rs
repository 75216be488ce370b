//! Durable files: replaced whole, never overwritten by `create_new`, no litter.

use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;

use strongroom_keyring::durable::{create_new, publish, replace};

use crate::files_in;

#[test]
fn replace_creates_replaces_and_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    replace(&path, b"one", 0o640).unwrap();
    replace(&path, b"second", 0o600).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"second");
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(files_in(directory.path()), ["file"]);
}

#[test]
fn the_mode_does_not_depend_on_the_umask() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    replace(&path, b"", 0o666).unwrap();
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o666);
}

#[test]
fn failures_leave_the_old_file_and_no_temporary_one() {
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("directory");
    std::fs::create_dir(&target).unwrap();
    replace(&target.join("inside"), b"x", 0o600).unwrap();
    assert!(
        replace(&target, b"x", 0o600).is_err(),
        "a directory is not replaced"
    );
    assert_eq!(files_in(directory.path()), ["directory"]);
    assert!(replace(&directory.path().join("absent/file"), b"x", 0o600).is_err());
    let path = directory.path().join("file");
    replace(&path, b"old", 0o600).unwrap();
    assert_eq!(
        create_new(&path, b"new", 0o600).unwrap_err().kind(),
        ErrorKind::AlreadyExists
    );
    assert_eq!(std::fs::read(&path).unwrap(), b"old");
    assert_eq!(files_in(directory.path()), ["directory", "file"]);
}

#[test]
fn create_new_never_overwrites_even_a_dangling_link() {
    let directory = tempfile::tempdir().unwrap();
    let link = directory.path().join("link");
    std::os::unix::fs::symlink("nowhere", &link).unwrap();
    assert_eq!(
        create_new(&link, b"x", 0o600).unwrap_err().kind(),
        ErrorKind::AlreadyExists
    );
    let path = directory.path().join("new");
    create_new(&path, b"x", 0o600).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"x");
    assert_eq!(files_in(directory.path()), ["link", "new"]);
}

#[test]
fn of_many_creators_exactly_one_wins() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let create = |byte: u8| create_new(&path, &[byte; 4096], 0o600).is_ok();
    let winners: Vec<u8> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|byte| scope.spawn(move || create(byte).then_some(byte)))
            .collect();
        threads
            .into_iter()
            .filter_map(|thread| thread.join().unwrap())
            .collect()
    });
    assert_eq!(winners.len(), 1);
    assert_eq!(std::fs::read(&path).unwrap(), [winners[0]; 4096]);
    assert_eq!(files_in(directory.path()), ["file"]);
}

#[test]
fn publish_moves_and_never_overwrites() {
    let directory = tempfile::tempdir().unwrap();
    let (temp, target) = (
        directory.path().join("temp"),
        directory.path().join("target"),
    );
    create_new(&temp, b"x", 0o600).unwrap();
    publish(&temp, &target).unwrap();
    assert_eq!(files_in(directory.path()), ["target"]);
    create_new(&temp, b"y", 0o600).unwrap();
    assert_eq!(
        publish(&temp, &target).unwrap_err().kind(),
        ErrorKind::AlreadyExists
    );
    assert_eq!(std::fs::read(&target).unwrap(), b"x");
    assert_eq!(
        files_in(directory.path()),
        ["target", "temp"],
        "the caller's file is kept"
    );
}
