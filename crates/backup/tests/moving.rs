//! Goal: whoever may change a tree while it is backed up, or a directory while a set is restored
//! into it, leads neither out of it.
//! Method: what is exchanged is exchanged from within the run, when it tells its progress, and by a
//! thread that does nothing else.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

#[path = "it/common/mod.rs"]
mod common;

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use common::forged::{cluster, directory, file, forged, space};
use common::{Place, key, made, options, put, restored, verified};
use rustix::fs::{CWD, Mode, OFlags, RenameFlags, mkdirat, openat, rename, renameat_with};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use strongroom_backup::{
    Compression, CreateOptions, DirectorySource, RestoreOptions, SqliteSource, create, open_set,
    restore, wal_fetch, wal_push,
};
use strongroom_crypto::sha256;
use strongroom_format::backup::set_layout;
use strongroom_format::code;
use strongroom_sqlite::OpenOptions;
use strongroom_testing_support::disk::SmallDisk;

const SECRET: &[u8] = b"CANARY-91b3 that lies outside of the tree";

#[test]
fn a_directory_that_is_exchanged_while_it_is_read_is_still_the_one_that_was_found() {
    let place = Place::new();
    for name in ["tree/d/sub", "tree/e", "secret"] {
        fs::create_dir_all(place.at(name)).unwrap();
    }
    put(&place.at("tree/d/a"), b"first");
    put(&place.at("tree/d/b"), b"inside");
    put(&place.at("tree/d/gone"), b"gone");
    put(&place.at("tree/e/never"), b"never");
    put(&place.at("secret/b"), SECRET);
    let mut moved = false;
    let mut source = DirectorySource::new(&place.at("tree"));
    let made = create(&place.medium(), &mut source, &options(None), &mut |_| {
        if !std::mem::replace(&mut moved, true) {
            fs::remove_file(place.at("tree/d/gone")).unwrap();
            rename(place.at("tree/d"), place.at("elsewhere")).unwrap();
            std::os::unix::fs::symlink(place.at("secret"), place.at("tree/d")).unwrap();
            fs::remove_dir_all(place.at("tree/e")).unwrap();
        }
    })
    .unwrap();
    let removed = |name: &str| {
        let name = place.at(name);
        format!("{}: removed while the directory was read", name.display())
    };
    assert_eq!(made.left_out, [removed("tree/d/gone"), removed("tree/e")]);
    restored(&place.medium(), None, None, &place.at("out")).unwrap();
    assert_eq!(fs::read(place.at("out/d/b")).unwrap(), b"inside");
    assert!(place.at("out/d/sub").is_dir());
    assert!(!place.at("out/e").exists());
}

#[test]
fn a_tree_that_is_too_deep_does_not_stop_a_backup() {
    let place = Place::new();
    fs::create_dir(place.at("tree")).unwrap();
    put(&place.at("tree/beside"), b"beside");
    let mut within = OwnedFd::from(File::open(place.at("tree")).unwrap());
    // As long as a path can be, and two levels more.
    for _ in 0..2050 {
        mkdirat(&within, "a", Mode::RWXU).unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        within = openat(&within, "a", flags, Mode::empty()).unwrap();
    }
    // What a process has unless somebody changed it.
    let limit = getrlimit(Resource::Nofile);
    let usual = Rlimit {
        current: Some(1024),
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, usual).unwrap();
    let made = made(&place.medium(), &place.at("tree"), &options(None)).unwrap();
    assert_eq!(made.left_out.len(), 1, "{:?}", made.left_out);
    restored(&place.medium(), None, None, &place.at("out")).unwrap();
    assert_eq!(fs::read(place.at("out/beside")).unwrap(), b"beside");
    let levels = |name: &str| {
        let mut within = OwnedFd::from(File::open(place.at(name)).unwrap());
        let mut levels = 0;
        while let Ok(below) = openat(&within, "a", OFlags::RDONLY, Mode::empty()) {
            within = below;
            levels += 1;
        }
        levels
    };
    let room = limit.maximum.unwrap_or(u64::MAX);
    assert_eq!(levels("out"), room.saturating_sub(256).min(2048));
}

#[test]
fn nobody_leads_a_backup_out_of_its_tree() {
    let place = Place::new();
    fs::create_dir_all(place.at("tree/d")).unwrap();
    fs::create_dir_all(place.at("secret")).unwrap();
    put(&place.at("tree/d/f"), b"inside");
    put(&place.at("tree/f"), b"inside");
    put(&place.at("secret/f"), SECRET);
    std::os::unix::fs::symlink(place.at("secret"), place.at("directory")).unwrap();
    std::os::unix::fs::symlink(place.at("secret/f"), place.at("file")).unwrap();
    let plain = CreateOptions {
        compression: Compression::None,
        ..options(None)
    };
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                for (one, other) in [("tree/d", "directory"), ("tree/f", "file")] {
                    let (one, other) = (place.at(one), place.at(other));
                    renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
                }
            }
        });
        for _ in 0..60 {
            made(&place.medium(), &place.at("tree"), &plain).unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
    for entry in fs::read_dir(place.at("medium/data")).unwrap() {
        let bytes = fs::read(entry.unwrap().path()).unwrap();
        let found = bytes.windows(SECRET.len()).any(|bytes| bytes == SECRET);
        assert!(!found, "the backup has left its tree");
    }
}

fn to(place: &Place, spaces: &str) -> RestoreOptions {
    RestoreOptions {
        to: place.at("out"),
        tablespaces: Some(place.at(spaces)),
        threads: 1,
        recovery: None,
        kept: strongroom_backup::Kept::default(),
        sealing: None,
        delta: None,
        stop: None,
    }
}

#[test]
fn a_tablespace_that_is_exchanged_while_it_is_filled_leads_nowhere() {
    let place = Place::new();
    let more = vec![
        directory("pg_tblspc"),
        space("pg_tblspc/16400"),
        file("pg_tblspc/16400/a", b"first"),
        directory("pg_tblspc/16400/sub"),
        file("pg_tblspc/16400/sub/b", b"second"),
    ];
    forged(&place, cluster(more)).unwrap();
    for name in ["spaces", "victim"] {
        fs::create_dir(place.at(name)).unwrap();
    }
    let medium = place.medium();
    let set = open_set(&medium, None, None).unwrap();
    let mut moved = false;
    let failed = restore(&set, &to(&place, "spaces"), &mut |_| {
        let made = place.at("spaces/16400");
        if !moved && made.join("a").exists() {
            moved = true;
            rename(&made, place.at("spaces/moved")).unwrap();
            std::os::unix::fs::symlink(place.at("victim"), &made).unwrap();
        }
    })
    .unwrap_err();
    assert!(moved);
    assert_eq!(failed.code(), &code::RESTORE_EXCHANGED, "{failed}");
    assert_eq!(fs::read_dir(place.at("victim")).unwrap().count(), 0);
    assert_eq!(fs::read(place.at("spaces/moved/sub/b")).unwrap(), b"second");
    assert!(!place.at("out").exists());
    let left: Vec<_> = fs::read_dir(place.at(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .filter(|name| name.to_string_lossy().ends_with(".partial"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn space_is_counted_where_it_is_needed() {
    static CONTENT: [u8; 3_000_000] = [0x11; 3_000_000];
    let place = Place::new();
    let Some(_small) = SmallDisk::mount(&place.at("small"), 1024) else {
        return;
    };
    let more = vec![
        directory("pg_tblspc"),
        space("pg_tblspc/16400"),
        file("pg_tblspc/16400/data", &CONTENT),
    ];
    forged(&place, cluster(more)).unwrap();
    let medium = place.medium();
    let set = open_set(&medium, None, None).unwrap();
    let mut began = false;
    let mut options = to(&place, "small/spaces");
    options.to = place.at("small/out");
    let refused = restore(&set, &options, &mut |_| began = true).unwrap_err();
    assert_eq!(refused.code(), &code::IO, "{refused}");
    assert!(!began);
    assert_eq!(fs::read_dir(place.at("small")).unwrap().count(), 0);
    // Most of it goes elsewhere.
    options.tablespaces = Some(place.at("spaces"));
    restore(&set, &options, &mut |_| {}).unwrap();
    assert_eq!(fs::read(place.at("spaces/16400/data")).unwrap(), CONTENT);
    assert!(place.at("small/out/global/pg_control").exists());
}

/// Gives the head of an archived file that is not sealed another length, and its seal.
fn stated(path: &Path, from: &str, to: &str) {
    assert_eq!(from.len(), to.len());
    let mut bytes = fs::read(path).unwrap();
    let named = |length: &str| format!("\"backup_size_bytes\":{length}").into_bytes();
    let (old, new) = (named(from), named(to));
    let found = bytes.windows(old.len()).position(|bytes| bytes == old);
    let at = found.unwrap();
    bytes[at..at + new.len()].copy_from_slice(&new);
    let length = u32::from_le_bytes(bytes[12..16].try_into().unwrap());
    let end = set_layout::SIZE + usize::try_from(length).unwrap();
    let seal = sha256(&[&bytes[..32], &bytes[set_layout::SIZE..end]]);
    bytes[32..64].copy_from_slice(&seal);
    put(path, &bytes);
}

#[test]
fn no_more_of_an_archived_file_is_handed_out_than_its_head_says() {
    let place = Place::new();
    let medium = place.medium();
    made(&medium, &place.tree(10), &options(None)).unwrap();
    let name = "000000010000000000000001";
    let path = place.at("medium/wal").join(name);
    wal_push(&medium, name, &vec![0; 3_000_000], &options(None)).unwrap();
    assert_eq!(wal_fetch(&medium, name, None).unwrap().len(), 3_000_000);
    for (from, to) in [("3000000", "2999999"), ("2999999", "3000001")] {
        stated(&path, from, to);
        let refused = wal_fetch(&medium, name, None).unwrap_err();
        assert_eq!(refused.code(), &code::STREAM, "{to}");
    }
    stated(&path, "3000001", "3000000");
    assert!(wal_fetch(&medium, name, None).is_ok());
}

#[test]
fn what_killed_runs_left_goes_after_a_day() {
    let place = Place::new();
    let opener = key();
    let tree = place.tree(10);
    made(&place.medium(), &tree, &options(Some(&opener))).unwrap();
    let old = SystemTime::now() - Duration::from_secs(25 * 3600);
    let names = [".x.tmp", "sets/.x.tmp", "wal/.x.tmp", "data/.x.tmp"];
    for name in names {
        let path = place.at("medium").join(name);
        File::create(&path).unwrap().set_modified(old).unwrap();
        put(&path.with_file_name(".new.tmp"), b"");
    }
    made(&place.medium(), &tree, &options(Some(&opener))).unwrap();
    for name in names {
        let path = place.at("medium").join(name);
        assert!(!path.exists(), "{name}");
        assert!(path.with_file_name(".new.tmp").exists(), "{name}");
    }
    verified(&place.medium(), Some(1), Some(&opener)).unwrap();

    let database = place.at("db");
    let usual = || OpenOptions {
        create: true,
        ..OpenOptions::default()
    };
    let open = strongroom_sqlite::open(&database, &usual()).unwrap();
    open.execute_batch("CREATE TABLE t(x); INSERT INTO t VALUES (1)")
        .unwrap();
    let copy = place.at(".0123456789abcdef0123456789abcdef.backup");
    File::create(&copy).unwrap().set_modified(old).unwrap();
    let mut source = SqliteSource::new(&database, usual());
    let sealed = options(Some(&opener));
    let mut seen = 0;
    create(&place.medium(), &mut source, &sealed, &mut |_| {
        // The copy that is read has no name any more.
        let entries = fs::read_dir(place.at("")).unwrap();
        let copies = entries.filter(|entry| {
            let name = entry.as_ref().unwrap().file_name();
            name.to_string_lossy().ends_with(".backup")
        });
        assert_eq!(copies.count(), 0);
        seen += 1;
    })
    .unwrap();
    assert!(seen > 0);
    assert!(!copy.exists());
}
