//! Goal: a set that someone else made harms nobody who restores it. Method: sets that this program
//! would never make, made by a source that lies about its kind.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use crate::common;

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use common::forged::{cluster, directory, file, forged, link, member};
use common::{Place, key, made, options, put, verified};
use strongroom_backup::{
    Error, Kept, Kind, LocalStore, Owners, RestoreOptions, Result, open_set, restore, wal_fetch,
    wal_push,
};
use strongroom_format::backup::MemberKind;
use strongroom_format::code;

fn recovering(place: &Place) -> RestoreOptions {
    RestoreOptions {
        to: place.at("out"),
        tablespaces: None,
        threads: 1,
        recovery: Some(String::from("# settings\n")),
        kept: Kept::default(),
        sealing: None,
        delta: None,
        stop: None,
    }
}

fn restored(place: &Place, options: &RestoreOptions) -> Result<()> {
    let medium = place.medium();
    let set = open_set(&medium, None, None)?;
    restore(&set, options, &mut |_| {}).map(drop)
}

#[track_caller]
fn refused(done: Result<()>, with: &'static code::Code) {
    let error: Error = done.unwrap_err();
    assert_eq!(error.code(), with, "{error}");
}

#[test]
fn a_link_in_a_cluster_leads_nowhere() {
    for name in ["recovery.signal", "postgresql.auto.conf", "pg_wal", "any"] {
        let place = Place::new();
        let victim = place.at("victim");
        put(&victim, b"untouched");
        let before = fs::metadata(&victim).unwrap();
        forged(&place, cluster(vec![link(name, &victim)])).unwrap();
        refused(restored(&place, &recovering(&place)), &code::STREAM);
        refused(
            verified(&place.medium(), None, None).map(drop),
            &code::STREAM,
        );
        let after = fs::metadata(&victim).unwrap();
        assert_eq!(fs::read(&victim).unwrap(), b"untouched");
        assert_eq!((after.uid(), after.mode()), (before.uid(), before.mode()));
        assert!(!place.at("out").exists());
    }
}

#[test]
fn no_set_of_a_cluster_or_a_database_is_made_with_a_link() {
    for kind in [Kind::Postgres, Kind::Sqlite] {
        let place = Place::new();
        let mut source = cluster(vec![link("pg_wal", Path::new("/elsewhere"))]);
        (source.said, source.described) = (kind, kind);
        refused(forged(&place, source).map(drop), &code::BACKUP_SOURCE);
    }
}

#[test]
fn settings_are_added_to_regular_files_of_clusters_only() {
    let place = Place::new();
    // Files that say that they are of a cluster, with a link where settings would go.
    let mut source = cluster(vec![link("recovery.signal", &place.at("victim"))]);
    source.described = Kind::Files;
    forged(&place, source).unwrap();
    refused(restored(&place, &recovering(&place)), &code::USAGE);
    for unfit in ["recovery.signal", "postgresql.auto.conf"] {
        let place = Place::new();
        forged(&place, cluster(vec![directory(unfit)])).unwrap();
        refused(restored(&place, &recovering(&place)), &code::STREAM);
        assert!(!place.at("out").exists());
    }
    let place = Place::new();
    let settings = file("postgresql.auto.conf", b"old = 1\n");
    forged(&place, cluster(vec![settings])).unwrap();
    restored(&place, &recovering(&place)).unwrap();
    let written = fs::read(place.at("out/postgresql.auto.conf")).unwrap();
    assert_eq!(written, b"old = 1\n# settings\n");
    let signal = fs::metadata(place.at("out/recovery.signal")).unwrap();
    let version = fs::metadata(place.at("out/PG_VERSION")).unwrap();
    assert_eq!(signal.uid(), version.uid());
    assert_eq!(signal.permissions().mode() & 0o777, 0o600);
}

/// Puts what lies on one medium in the place of what lies on another, the medium's own head apart.
fn replaced(place: &Place, by: &Path) {
    for directory in ["sets", "data", "wal"] {
        let to = place.at("medium").join(directory);
        fs::remove_dir_all(&to).unwrap();
        fs::create_dir(&to).unwrap();
        for entry in fs::read_dir(by.join(directory)).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

#[test]
fn a_sealed_set_cannot_be_exchanged_for_one_in_clear() {
    const NAME: &str = "00000002.history";
    let place = Place::new();
    let tree = place.tree(100);
    let opener = key();
    let sealed = options(Some(&opener));
    made(&place.medium(), &tree, &sealed).unwrap();
    wal_push(&place.medium(), NAME, b"true", &sealed).unwrap();
    let other = LocalStore::new(&place.at("other"));
    made(&other, &tree, &options(None)).unwrap();
    wal_push(&other, NAME, b"forged", &options(None)).unwrap();
    let theirs = fs::read(place.at("other/medium.json")).unwrap();
    replaced(&place, &place.at("other"));
    let restored = |opener| common::restored(&place.medium(), Some(1), opener, &place.at("out"));
    let all_refused = |opener| {
        refused(restored(opener).map(drop), &code::SET_NOT_SEALED);
        let verified = verified(&place.medium(), Some(1), opener);
        refused(verified.map(drop), &code::SET_NOT_SEALED);
        let fetched = wal_fetch(&place.medium(), NAME, opener);
        refused(fetched.map(drop), &code::SET_NOT_SEALED);
        assert!(!place.at("out").exists());
    };
    all_refused(None);
    all_refused(Some(&opener));
    // With its head, the medium is another one: a key still never opens what is not sealed.
    put(&place.at("medium/medium.json"), &theirs);
    all_refused(Some(&opener));
    restored(None).unwrap();
    assert_eq!(wal_fetch(&place.medium(), NAME, None).unwrap(), b"forged");
}

/// The modes and owners of what `wanted` names in `place`.
fn seen(place: &Path, wanted: impl Fn(&str) -> bool) -> Vec<(PathBuf, u32, u32)> {
    let entries = fs::read_dir(place).unwrap().map(|entry| entry.unwrap());
    let wanted = entries.filter(|entry| wanted(&entry.file_name().to_string_lossy()));
    let seen = wanted.map(|entry| {
        let about = entry.metadata().unwrap();
        (entry.path(), about.mode() & 0o7777, about.uid())
    });
    seen.collect()
}

#[test]
fn nobody_else_reaches_a_restore_before_it_is_done() {
    let place = Place::new();
    let mut open = directory("sub");
    open.0.mode = 0o777;
    let mut root = directory(".");
    root.0.mode = 0o755;
    let mut space = member(MemberKind::Tablespace, "pg_tblspc/16400");
    space.target = b"/elsewhere".to_vec();
    let more = vec![
        root.clone(),
        directory("pg_tblspc"),
        (space, &b""[..]),
        file("pg_tblspc/16400/data", b"data"),
        open,
        file("sub/file", b"content"),
        root,
    ];
    forged(&place, cluster(more)).unwrap();
    let me = fs::metadata(place.at("")).unwrap().uid();
    let options = RestoreOptions {
        tablespaces: Some(place.at("new/spaces")),
        ..recovering(&place)
    };
    let medium = place.medium();
    let set = open_set(&medium, None, None).unwrap();
    let mut looked = 0;
    let mut spaces_looked = 0;
    restore(&set, &options, &mut |_| {
        for (path, mode, owner) in seen(&place.at(""), |name| name.ends_with(".partial")) {
            assert_eq!((mode, owner), (0o700, me), "{}", path.display());
            looked += 1;
        }
        if place.at("new").exists() {
            let both = [
                seen(&place.at("new"), |_| true),
                seen(&place.at("new/spaces"), |_| true),
            ];
            for (path, mode, owner) in both.concat() {
                assert_eq!((mode, owner), (0o700, me), "{}", path.display());
                spaces_looked += 1;
            }
        }
    })
    .unwrap();
    assert!(
        looked >= 4 && spaces_looked >= 4,
        "{looked} {spaces_looked}"
    );
    for (path, mode) in [
        ("out", 0o755),
        ("out/sub", 0o777),
        ("new/spaces/16400", 0o700),
    ] {
        let about = fs::metadata(place.at(path)).unwrap();
        assert_eq!((about.mode() & 0o7777, about.uid()), (mode, me), "{path}");
    }
    assert_eq!(fs::metadata(place.at("new/spaces")).unwrap().uid(), me);
    assert_eq!(
        fs::read(place.at("out/pg_tblspc/16400/data")).unwrap(),
        b"data"
    );
}

#[test]
fn owners_and_special_bits_of_a_set_are_taken_over_only_when_asked() {
    let place = Place::new();
    let me = fs::metadata(place.at("")).unwrap().uid();
    let mut program = file("program", b"#!/bin/sh");
    program.0.mode = 0o6755;
    let mut sub = directory("sub");
    sub.0.mode = 0o3775;
    forged(&place, cluster(vec![program, sub])).unwrap();
    let given = Owners::Given { user: 7, group: 9 };
    // The set's owner is 54321, and anybody could have made it.
    for (name, kept, owner, modes) in [
        ("a", Kept::default(), me, [0o755, 0o775]),
        ("b", kept(Owners::OfSet, false), 54_321, [0o755, 0o775]),
        ("c", kept(Owners::Mine, true), me, [0o6755, 0o3775]),
        ("d", kept(Owners::OfSet, true), 54_321, [0o6755, 0o3775]),
        ("e", kept(given, false), 7, [0o755, 0o775]),
    ] {
        let options = RestoreOptions {
            to: place.at(name),
            kept,
            ..recovering(&place)
        };
        restored(&place, &options).unwrap();
        // Only root can do anything of this.
        let (owner, modes) = match me {
            0 => (owner, modes),
            me => (me, [0o755, 0o775]),
        };
        for (path, mode) in ["program", "sub"].into_iter().zip(modes) {
            let about = fs::metadata(place.at(name).join(path)).unwrap();
            let seen = (about.mode() & 0o7777, about.uid());
            assert_eq!(seen, (mode, owner), "{name}/{path}");
        }
    }
}

const fn kept(owners: Owners, special_bits: bool) -> Kept {
    Kept {
        owners,
        special_bits,
    }
}

#[test]
fn a_directory_of_tablespaces_that_is_there_keeps_its_owner() {
    let place = Place::new();
    let mut space = member(MemberKind::Tablespace, "pg_tblspc/16400");
    space.target = b"/elsewhere".to_vec();
    let more = vec![directory("pg_tblspc"), (space, &b""[..])];
    forged(&place, cluster(more)).unwrap();
    fs::create_dir(place.at("spaces")).unwrap();
    let before = fs::metadata(place.at("spaces")).unwrap();
    let options = RestoreOptions {
        tablespaces: Some(place.at("spaces")),
        ..recovering(&place)
    };
    restored(&place, &options).unwrap();
    let after = fs::metadata(place.at("spaces")).unwrap();
    assert_eq!((after.uid(), after.mode()), (before.uid(), before.mode()));
    // One that was made for a restore that fails goes with it.
    let place = Place::new();
    let mut space = member(MemberKind::Tablespace, "pg_tblspc/16400");
    space.target = b"/elsewhere".to_vec();
    let more = vec![
        directory("pg_tblspc"),
        (space, &b""[..]),
        link("x", Path::new("y")),
    ];
    forged(&place, cluster(more)).unwrap();
    refused(restored(&place, &recovering(&place)), &code::STREAM);
    assert!(!place.at("out.tablespaces").exists());
}

#[test]
fn a_set_of_a_standby_recovers_to_where_it_is_told() {
    let place = Place::new();
    forged(&place, cluster(vec![file("standby.signal", b"")])).unwrap();
    restored(&place, &recovering(&place)).unwrap();
    assert!(place.at("out/recovery.signal").exists());
    assert!(!place.at("out/standby.signal").exists());
    // As it was, it is a standby.
    let as_it_was = RestoreOptions {
        to: place.at("standby"),
        recovery: None,
        sealing: None,
        delta: None,
        stop: None,
        ..recovering(&place)
    };
    restored(&place, &as_it_was).unwrap();
    assert!(place.at("standby/standby.signal").exists());
}

#[test]
fn no_more_is_restored_than_the_head_says() {
    static ZEROS: [u8; 3_000_000] = [0; 3_000_000];
    const STATED: u64 = 200_000;
    let place = Place::new();
    let mut source = cluster(vec![file("bomb", &ZEROS), file("another", b"")]);
    source.bytes = Some(STATED);
    forged(&place, source).unwrap();
    let medium = place.medium();
    let set = open_set(&medium, None, None).unwrap();
    let mut most = 0;
    let done = restore(&set, &recovering(&place), &mut |bytes| {
        most = most.max(bytes);
    });
    refused(done.map(drop), &code::STREAM);
    assert!(most > 0 && most <= STATED, "{most}");
    assert!(!place.at("out").exists());
}

#[test]
fn a_control_file_that_is_named_twice_is_refused() {
    for name in ["global/pg_control", "base"] {
        let place = Place::new();
        forged(&place, cluster(vec![file("base", b""), file(name, b"2")])).unwrap();
        refused(restored(&place, &recovering(&place)), &code::STREAM);
        assert!(!place.at("out").exists());
    }
}
