//! Goal: a full disk is told as one, leaves nothing behind, and harms no older set. Method: a small
//! file system that has less and less room, so that each step in turn is the one that finds none.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use crate::common;

use std::fs;
use std::path::Path;

use common::forged::{cluster, file, forged};
use common::{Place, key, made, options, verified};
use strongroom_backup::{
    Compression, CreateOptions, Error, LocalStore, Mode, RestoreOptions, open_set, restore,
    rewrap_set, wal_fetch, wal_push,
};
use strongroom_format::code;
use strongroom_testing_support::disk::SmallDisk;

/// Bytes that the file system has left, from none to what a set of the tree below needs.
const LEFT: [u64; 10] = [
    0, 4096, 8192, 12_288, 20_480, 65_536, 262_144, 524_288, 1_000_000, 1_100_000,
];

#[track_caller]
fn full(error: &Error) {
    assert_eq!(error.code(), &code::IO, "{error}");
    assert!(error.detail().contains("No space left"), "{error}");
}

/// Every object of the medium, temporary files too.
fn objects(medium: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for directory in ["", "sets", "data", "wal"] {
        for entry in fs::read_dir(medium.join(directory)).unwrap() {
            let name = entry.unwrap().file_name();
            names.push(format!("{directory}/{}", name.display()));
        }
    }
    names.sort();
    names
}

#[test]
fn a_set_or_archived_file_that_does_not_fit_is_not_there() {
    let place = Place::new();
    let Some(disk) = SmallDisk::mount(&place.at("disk"), 4096) else {
        return;
    };
    let medium_at = place.at("disk/medium");
    let medium = LocalStore::new(&medium_at);
    let tree = place.tree(1_000_000);
    let opener = key();
    let options = CreateOptions {
        compression: Compression::None,
        ..options(Some(&opener))
    };
    let (old, new) = ("000000010000000000000001", "000000010000000000000002");
    let small = place.at("small");
    fs::create_dir(&small).unwrap();
    made(&medium, &small, &options).unwrap();
    wal_push(&medium, old, b"old", &options).unwrap();
    let before = objects(&medium_at);
    let mut failures = 0;
    for left in LEFT {
        disk.fill_but(left);
        for mode in [Mode::Append, Mode::Init, Mode::Format] {
            let options = CreateOptions {
                mode,
                recipients: vec![opener.recipient().unwrap()],
                ..common::options(None)
            };
            let options = CreateOptions {
                compression: Compression::None,
                ..options
            };
            let failed = made(&medium, &tree, &options).unwrap_err();
            full(&failed);
            failures += 1;
            assert_eq!(objects(&medium_at), before, "{left} {mode:?}");
        }
        let content = common::noise(2_000_000);
        full(&wal_push(&medium, new, &content, &options).unwrap_err());
        assert_eq!(objects(&medium_at), before, "{left}");
        verified(&medium, Some(1), Some(&opener)).unwrap();
        assert_eq!(wal_fetch(&medium, old, Some(&opener)).unwrap(), b"old");
        disk.clear();
    }
    assert_eq!(failures, LEFT.len() * 3);
    // A head that does not fit leaves the old one.
    disk.fill_but(0);
    let other = key();
    let others = strongroom_backup::Others::Refuse;
    full(&rewrap_set(&medium, 1, &opener, &[&other.recipient().unwrap()], others).unwrap_err());
    assert_eq!(objects(&medium_at), before);
    verified(&medium, Some(1), Some(&opener)).unwrap();
    disk.clear();
    made(&medium, &small, &options).unwrap();
    assert!(wal_push(&medium, new, b"new", &options).unwrap());
    verified(&medium, None, Some(&opener)).unwrap();
}

#[test]
fn a_place_that_fills_up_has_no_half_restored_cluster() {
    static CONTENT: [u8; 1_500_000] = [0x77; 1_500_000];
    let place = Place::new();
    let Some(disk) = SmallDisk::mount(&place.at("disk"), 4096) else {
        return;
    };
    forged(&place, cluster(vec![file("base", &CONTENT)])).unwrap();
    let medium = place.medium();
    let set = open_set(&medium, None, None).unwrap();
    let options = RestoreOptions {
        to: place.at("disk/out"),
        tablespaces: None,
        threads: 1,
        recovery: Some(String::from("# settings\n")),
        kept: strongroom_backup::Kept::default(),
        sealing: None,
        delta: None,
        stop: None,
    };
    for left in [0, 4096, 500_000, 1_499_136] {
        let mut filled = false;
        let failed = restore(&set, &options, &mut |_| {
            // There was room when it was looked for.
            if !std::mem::replace(&mut filled, true) {
                disk.fill_but(left);
            }
        });
        full(&failed.unwrap_err());
        let names: Vec<_> = fs::read_dir(place.at("disk"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(names, [".filler"], "{left}");
        disk.clear();
    }
    restore(&set, &options, &mut |_| {}).unwrap();
    assert!(place.at("disk/out/global/pg_control").exists());
}
