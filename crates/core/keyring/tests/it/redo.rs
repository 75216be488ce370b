//! Rewriting a header in place: the files as each kill point would leave them.

use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use strongroom_keyring::durable::replace;
use strongroom_keyring::redo::{newest_header, redo_path, rewrite_header};
use strongroom_keyring::{Object, Opener};

use crate::{code, files_in, new_object, open, raw, recipient};

/// A database of one page, its object before and after a rekey was begun, and the opener.
struct Scene {
    directory: tempfile::TempDir,
    path: PathBuf,
    old: Object,
    new: Object,
    opener: Opener,
}

fn scene() -> Scene {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("x.db");
    let opener = raw(1);
    let old = new_object(&opener);
    let new = old.rekey_begun(&[]).expect("a rekey");
    let mut bytes = old.initial_bytes();
    bytes.resize(8192, 0xaa);
    replace(&path, &bytes, 0o640).expect("a file");
    Scene {
        directory,
        path,
        old,
        new,
        opener,
    }
}

fn opened(scene: &Scene) -> Object {
    let bytes = std::fs::read(&scene.path).expect("a file");
    let header = newest_header(&scene.path, &bytes[..4096]);
    assert_eq!(header.len(), 4096);
    let object = open(&header, &scene.opener).expect("a header that opens");
    assert_eq!(object.anchor(&header).expect("an anchor").sequence, 1);
    object
}

fn put_in_place(path: &Path, header: &[u8]) {
    let mut bytes = std::fs::read(path).expect("a file");
    bytes[..header.len()].copy_from_slice(header);
    replace(path, &bytes, 0o640).expect("a file");
}

#[test]
fn a_rewrite_changes_the_fixed_part_only_and_removes_the_redo_copy() {
    let scene = scene();
    let before = std::fs::read(&scene.path).unwrap();
    let file = File::options()
        .read(true)
        .write(true)
        .open(&scene.path)
        .unwrap();
    rewrite_header(&scene.path, &file, &scene.new).unwrap();
    let after = std::fs::read(&scene.path).unwrap();
    assert_eq!(after[..3072], scene.new.header_bytes());
    assert_eq!(after[3072..], before[3072..]);
    assert_eq!(files_in(scene.directory.path()), ["x.db"]);
    assert_eq!(opened(&scene).epoch(), 2);
}

#[test]
fn killed_before_the_redo_copy_is_there() {
    assert_eq!(opened(&scene()).epoch(), 1);
}

#[test]
fn killed_after_the_redo_copy_was_made() {
    let scene = scene();
    replace(&redo_path(&scene.path), &scene.new.header_bytes(), 0o600).unwrap();
    assert_eq!(opened(&scene).epoch(), 2);
}

#[test]
fn killed_while_the_header_was_written() {
    let (old_len, step) = (3072, 64);
    let scene = scene();
    replace(&redo_path(&scene.path), &scene.new.header_bytes(), 0o600).unwrap();
    let (old, new) = (scene.old.header_bytes(), scene.new.header_bytes());
    for cut in (0..=old_len).step_by(step) {
        // Written from the front, and from the back: the kernel promises no order.
        put_in_place(&scene.path, &[&new[..cut], &old[cut..]].concat());
        assert_eq!(opened(&scene).epoch(), 2, "cut at {cut}");
        put_in_place(&scene.path, &[&old[..cut], &new[cut..]].concat());
        assert_eq!(opened(&scene).epoch(), 2, "cut at {cut}, back first");
    }
}

#[test]
fn killed_before_the_redo_copy_was_removed() {
    let scene = scene();
    put_in_place(&scene.path, &scene.new.header_bytes());
    replace(&redo_path(&scene.path), &scene.new.header_bytes(), 0o600).unwrap();
    assert_eq!(opened(&scene).epoch(), 2);
    // A leftover never undoes a newer header, and the next rewrite takes it away.
    let later = scene.new.rewrapped(&[&recipient(&scene.opener)]).unwrap();
    put_in_place(&scene.path, &later.header_bytes());
    assert_eq!(opened(&scene).header().sequence, 3);
    let file = File::options()
        .read(true)
        .write(true)
        .open(&scene.path)
        .unwrap();
    rewrite_header(
        &scene.path,
        &file,
        &later.rewrapped(&[&recipient(&scene.opener)]).unwrap(),
    )
    .unwrap();
    assert_eq!(opened(&scene).header().sequence, 4);
    assert_eq!(files_in(scene.directory.path()), ["x.db"]);
}

#[test]
fn what_is_not_this_objects_newer_header_is_ignored() {
    let scene = scene();
    let in_place = std::fs::read(&scene.path).unwrap()[..4096].to_vec();
    let new = scene.new.header_bytes();
    let foreign = new_object(&scene.opener)
        .rekey_begun(&[])
        .unwrap()
        .header_bytes();
    let mut damaged = new.clone();
    damaged[2000] ^= 1;
    let (short, long) = (&new[..3071], [new.as_slice(), b"x"].concat());
    for redo in [
        foreign.as_slice(),
        &damaged,
        short,
        &long,
        b"",
        &scene.old.header_bytes(),
    ] {
        replace(&redo_path(&scene.path), redo, 0o600).unwrap();
        assert_eq!(newest_header(&scene.path, &in_place), in_place);
    }
    replace(&redo_path(&scene.path), &new, 0o600).unwrap();
    let plain = [b"SQLite format 3\0".as_slice(), &[0; 4080]].concat();
    let mut newer_version = in_place.clone();
    newer_version[16] = 2;
    for other in [plain.as_slice(), &newer_version, b"", &in_place[..3000]] {
        assert_eq!(newest_header(&scene.path, other), other);
    }
}

#[test]
fn a_forged_redo_copy_fails_its_mac() {
    let scene = scene();
    let mut forged = scene.new.header_bytes();
    forged[45] ^= 1;
    replace(
        &redo_path(&scene.path),
        &crate::with_checksum(forged),
        0o600,
    )
    .unwrap();
    let bytes = std::fs::read(&scene.path).unwrap();
    let header = newest_header(&scene.path, &bytes[..4096]);
    assert_eq!(code(open(&header, &scene.opener)), 3004);
}

#[test]
fn a_failed_rewrite_leaves_an_object_that_opens() {
    let scene = scene();
    let read_only = File::open(&scene.path).unwrap();
    assert_eq!(
        code(rewrite_header(&scene.path, &read_only, &scene.new)),
        5001
    );
    let redo = redo_path(&scene.path);
    assert_eq!(
        redo.metadata().unwrap().permissions().mode() & 0o777,
        0o640,
        "as the file"
    );
    assert_eq!(
        opened(&scene).epoch(),
        2,
        "the redo copy was durable by then"
    );
}
