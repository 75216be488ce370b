//! Goal: a restore over a directory leaves what the set says and nothing else, keeps files that are
//! as they were, and changes nothing before everything is authentic and whole: killed at any moment
//! it leaves the old directory or the new one. A directory that is not the set's, or is in use, is
//! refused.
//!
//! Method: real trees that are changed in every way; a set that is damaged at its very end; strace,
//! which kills a restore at each call that writes, names, links, removes or makes durable.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test that panics has failed, and its files need not outlive a power cut"
)]

use crate::common;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use common::forged::{cluster, directory, file, forged};
use common::{PLACE, Place, killed_at, made, noise, options, picture, put};
use strongroom_backup::{
    Delta, Error, Kept, LocalStore, RestoreOptions, Restored, open_set, restore,
};

/// The directory that a child restores over, if it is not `tree`.
const TO: &str = "STRONGROOM_TEST_DELTA_TO";
/// Calls at which a restore is killed, one group after the other; their names differ between
/// architectures.
const GROUPS: [&str; 4] = [
    "?write,?pwrite64",
    "?fsync,?fdatasync,?syncfs",
    "?rename,?renameat,?renameat2,?mkdir,?mkdirat,?linkat,?symlinkat",
    "?unlink,?unlinkat,?rmdir,?utimensat",
];
/// No group has so many.
const MOST: u32 = 400;

fn over(place: &Place, to: &Path, force: bool) -> Result<Restored, Error> {
    over_while(place, to, force, &mut |_| {})
}

/// As `over`; `during` is called while it goes on, with how many bytes have come.
fn over_while(
    place: &Place,
    to: &Path,
    force: bool,
    during: &mut dyn FnMut(u64),
) -> Result<Restored, Error> {
    let medium = place.medium();
    let options = RestoreOptions {
        to: to.to_path_buf(),
        tablespaces: None,
        threads: 1,
        recovery: None,
        kept: Kept::default(),
        sealing: None,
        delta: Some(Delta {
            force,
            apart: vec![place.at("medium")],
        }),
        stop: None,
    };
    restore(&open_set(&medium, None, None)?, &options, during)
}

/// Changes a tree in every way that a restore has to undo.
fn change(root: &Path) {
    put(&root.join("noise"), &noise(40));
    let mut longer = fs::read(root.join("sub/deeper/small")).unwrap();
    longer.extend_from_slice(b" and more");
    put(&root.join("sub/deeper/small"), &longer);
    fs::remove_file(root.join("nothing")).unwrap();
    put(&root.join("new"), b"not of the set");
    fs::create_dir(root.join("more")).unwrap();
    put(&root.join("more/below"), b"not of the set either");
    fs::remove_file(root.join("link")).unwrap();
    fs::create_dir(root.join("link")).unwrap();
    fs::remove_dir(root.join("empty")).unwrap();
    symlink("/etc", root.join("empty")).unwrap();
    let looser = fs::Permissions::from_mode(0o666);
    fs::set_permissions(root.join("sub/name \u{e9}\n"), looser).unwrap();
}

fn inode(path: PathBuf) -> u64 {
    fs::symlink_metadata(path).unwrap().ino()
}

/// Without times: those of files that are kept are set before the exchange, and those of
/// directories change with what is in them.
fn content(root: &Path) -> BTreeMap<PathBuf, (String, Vec<u8>, u32)> {
    let all = picture(root).into_iter();
    all.map(|(path, (sort, content, mode, _))| (path, (sort, content, mode)))
        .collect()
}

fn left_over(place: &Place) -> usize {
    let entries = fs::read_dir(place.at("")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name());
    names
        .filter(|name| name.to_string_lossy().ends_with(".partial"))
        .count()
}

#[test]
fn what_is_as_it_was_is_kept_and_all_else_is_replaced_or_removed() {
    let place = Place::new();
    let tree = place.tree(3_000_000);
    made(&place.medium(), &tree, &options(None)).unwrap();
    let before = picture(&tree);
    change(&tree);
    let zeros = inode(tree.join("zeros"));
    let changed = inode(tree.join("noise"));
    let looser = inode(tree.join("sub/name \u{e9}\n"));
    let restored = over(&place, &tree, false).unwrap();
    assert_eq!(picture(&tree), before);
    assert_eq!(inode(tree.join("zeros")), zeros);
    assert_ne!(inode(tree.join("noise")), changed);
    assert_ne!(inode(tree.join("sub/name \u{e9}\n")), looser);
    // zeros, not-\xff-utf8
    assert_eq!((restored.kept, restored.left), (2, None));
    assert_eq!(left_over(&place), 0);
    // All of it is kept the second time; also where there is no directory, or an empty one.
    assert_eq!(over(&place, &tree, false).unwrap().kept, restored.files);
    assert_eq!(picture(&tree), before);
    for to in ["absent", "void"] {
        if to == "void" {
            fs::create_dir(place.at(to)).unwrap();
        }
        assert_eq!(over(&place, &place.at(to), false).unwrap().kept, 0);
        assert_eq!(picture(&place.at(to)), before);
    }
}

/// A file that has another name would change with it; one that differs late is copied up to there.
#[test]
fn files_with_other_names_and_late_differences_are_written_anew() {
    let place = Place::new();
    let tree = place.tree(3_000_000);
    made(&place.medium(), &tree, &options(None)).unwrap();
    let before = picture(&tree);
    fs::hard_link(tree.join("zeros"), place.at("other")).unwrap();
    let mut late = fs::read(tree.join("noise")).unwrap();
    *late.last_mut().unwrap() ^= 1;
    put(&tree.join("noise"), &late);
    over(&place, &tree, false).unwrap();
    assert_eq!(picture(&tree), before);
    assert_ne!(inode(tree.join("zeros")), inode(place.at("other")));
}

#[test]
fn a_set_that_is_damaged_at_its_end_changes_nothing() {
    let place = Place::new();
    let tree = place.tree(3_000_000);
    made(&place.medium(), &tree, &options(None)).unwrap();
    change(&tree);
    let before = content(&tree);
    let family = fs::read_dir(place.at("medium/data")).unwrap();
    let family = family.map(|entry| entry.unwrap().path()).next().unwrap();
    let mut bytes = fs::read(&family).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    put(&family, &bytes);
    let error = over(&place, &tree, false).unwrap_err();
    assert_eq!(error.code().number, 7109);
    assert_eq!(content(&tree), before);
    assert_eq!(left_over(&place), 0);
}

#[test]
fn what_is_not_the_sets_or_is_in_use_is_refused() {
    let place = Place::new();
    let tree = place.tree(1000);
    made(&place.medium(), &tree, &options(None)).unwrap();
    let refused = |to: &Path, force: bool, why: &str| {
        let before = content(to);
        let error = over(&place, to, force).unwrap_err();
        assert_eq!(error.code().number, 7176, "{error:?}");
        assert!(error.detail().contains(why), "{}", error.detail());
        assert_eq!(content(to), before);
        assert_eq!(left_over(&place), 0);
    };
    // A directory that the user did not mean: only with force.
    let other = place.at("other");
    fs::create_dir(&other).unwrap();
    put(&other.join("thesis"), b"years of work");
    refused(&other, false, "--force does so");
    // One that has the medium in it, in any case.
    refused(&place.at(""), true, "would be removed");
    symlink(&tree, place.at("by-link")).unwrap();
    refused(&place.at("by-link"), true, "a link is not followed");
    refused(&other.join("thesis"), true, "not a directory");
    // Another restore that has not ended.
    let held = fs::File::open(&tree).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
    refused(&tree, true, "another restore is at work on it");
    drop(held);
    // A server that runs: this process.
    let pid = format!("{}\n/somewhere\n", std::process::id());
    put(&tree.join("postmaster.pid"), pid.as_bytes());
    refused(&tree, true, "a server runs on it");
    put(&tree.join("postmaster.pid"), b"");
    refused(&tree, true, "a server runs on it");
    // It was killed: no process has this number (PID_MAX_LIMIT is 2^22).
    put(&tree.join("postmaster.pid"), b"99999999\n");
    over(&place, &tree, false).unwrap();
    over(&place, &other, true).unwrap();
    assert_eq!(content(&other), content(&tree));
}

/// Of a cluster: by its control file, and links are not replaced.
#[test]
fn a_directory_that_is_no_cluster_of_the_sets_is_refused() {
    let place = Place::new();
    forged(
        &place,
        cluster(vec![directory("base"), file("base/1", b"one")]),
    )
    .unwrap();
    let out = place.at("out");
    over(&place, &out, false).unwrap();
    let error = over(&place, &out, false).unwrap_err();
    assert!(error.detail().contains("no control file"), "{error:?}");
    assert_eq!(over(&place, &out, true).unwrap().kept, 2);
    symlink("/elsewhere", out.join("pg_wal")).unwrap();
    let error = over(&place, &out, true).unwrap_err();
    assert!(error.detail().contains("pg_wal is a link"), "{error:?}");
    fs::remove_file(out.join("pg_wal")).unwrap();
    put(&out.join("strongroom.header"), b"sealed");
    let error = over(&place, &out, true).unwrap_err();
    assert!(error.detail().contains("a sealed instance"), "{error:?}");
}

/// A relative path of what the set was made of is stored as an absolute one; the directory that is
/// restored over may be named by a dot, and be the working directory.
#[test]
fn the_directory_may_be_named_by_relative_paths() {
    let place = Place::new();
    let tree = place.tree(1000);
    symlink(&tree, place.at("by-link")).unwrap();
    made(&place.medium(), &place.at("by-link"), &options(None)).unwrap();
    let before = picture(&tree);
    change(&tree);
    over(&place, &tree, false).unwrap();
    assert_eq!(picture(&tree), before);
    change(&tree);
    let mut child = Command::new(std::env::current_exe().unwrap());
    child
        .args([
            "--ignored",
            "--exact",
            "delta::child",
            "--test-threads",
            "1",
        ])
        .env(PLACE, place.at(""))
        .env(TO, ".")
        .current_dir(&tree);
    let ended = child.output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(picture(&tree), before);
}

/// A program that has a file of the directory open, and writes to it when it has been compared.
#[test]
fn a_file_that_changes_while_it_is_kept_ends_the_restore() {
    let place = Place::new();
    let tree = place.at("tree");
    fs::create_dir(&tree).unwrap();
    // The last one is what makes the restore go on after `a` has got its second name.
    for (name, bytes) in [("a", 1000), ("other", 3_000_000)] {
        put(&tree.join(name), &noise(bytes));
    }
    made(&place.medium(), &tree, &options(None)).unwrap();
    let kept = tree.join("a");
    let original = fs::read(&kept).unwrap();
    let times = fs::metadata(&kept).unwrap().modified().unwrap();
    for (times_are_set_back, times_are_the_sets) in [(false, true), (true, true), (false, false)] {
        put(&kept, &original);
        put(&tree.join("other"), &noise(10));
        let file = fs::OpenOptions::new().write(true).open(&kept).unwrap();
        if times_are_the_sets {
            file.set_modified(times).unwrap();
        }
        let mut wrote = 0;
        let ended = over_while(&place, &tree, false, &mut |_| {
            if wrote == 0 && file.metadata().unwrap().nlink() == 2 {
                file.write_at(b"written meanwhile", 10).unwrap();
                wrote += 1;
                if times_are_set_back {
                    file.set_modified(times).unwrap();
                }
            }
        });
        assert_eq!(wrote, 1);
        let error = ended.unwrap_err();
        assert_eq!(error.code().number, 7176, "{error:?}");
        assert!(error.detail().contains("a: "), "{}", error.detail());
        let now = fs::read(&kept).unwrap();
        assert_eq!(&now[10..27], b"written meanwhile");
        assert_eq!(fs::read(tree.join("other")).unwrap(), noise(10));
        assert_eq!(fs::metadata(&kept).unwrap().nlink(), 1);
        assert_eq!(left_over(&place), 0);
    }
}

/// In a mount namespace of its own, so that no mount outlives the test.
#[test]
fn what_is_mounted_below_the_directory_stays() {
    let unshared = |command: &str| {
        let mut unshare = Command::new("unshare");
        unshare
            .args(["--mount", "--propagation", "private"])
            .arg(command);
        unshare
    };
    let place = Place::new();
    fs::create_dir(place.at("a")).unwrap();
    fs::create_dir(place.at("b")).unwrap();
    let mut tried = unshared("mount");
    tried.arg("--bind").arg(place.at("a")).arg(place.at("b"));
    if !tried.status().is_ok_and(|status| status.success()) {
        println!("skipped: this user may not mount anything");
        return;
    }
    let ended = unshared(std::env::current_exe().unwrap().to_str().unwrap())
        .args([
            "--ignored",
            "--exact",
            "delta::mounts",
            "--test-threads",
            "1",
        ])
        .env(PLACE, place.at(""))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert!(ended.status.success(), "{said}");
    assert!(said.contains("1 passed"), "{said}");
}

fn bind(what: &Path, to: &Path) {
    let mut mount = Command::new("mount");
    assert!(
        mount
            .arg("--bind")
            .arg(what)
            .arg(to)
            .status()
            .unwrap()
            .success()
    );
}

fn unmount(path: &Path) {
    assert!(Command::new("umount").arg(path).status().unwrap().success());
}

/// Not a test of its own: it mounts directories.
#[test]
#[ignore = "run by the other test, in a mount namespace"]
fn mounts() {
    if std::env::var_os(PLACE).is_none() {
        return;
    }
    let place = Place::new();
    let tree = place.tree(3_000_000);
    made(&place.medium(), &tree, &options(None)).unwrap();
    change(&tree);
    let before = content(&tree);
    let precious = place.at("precious");
    fs::create_dir(&precious).unwrap();
    put(&precious.join("thesis"), b"years of work");
    let refused = |why: &str, during: &mut dyn FnMut(u64)| {
        let error = over_while(&place, &tree, true, during).unwrap_err();
        assert_eq!(error.code().number, 7176, "{error:?}");
        assert!(error.detail().contains(why), "{}", error.detail());
        assert!(precious.join("thesis").exists());
    };

    // In it, a directory and a file, from the beginning and later.
    let inside = tree.join("more");
    bind(&precious, &inside);
    refused(
        "more is in another file system, or mounted there",
        &mut |_| {},
    );
    unmount(&inside);
    bind(&precious.join("thesis"), &tree.join("new"));
    refused(
        "new is in another file system, or mounted there",
        &mut |_| {},
    );
    unmount(&tree.join("new"));
    let mut mounted = false;
    refused(
        "more is in another file system, or mounted there",
        &mut |_| {
            if !mounted {
                bind(&precious, &inside);
                mounted = true;
            }
        },
    );
    assert!(mounted);
    unmount(&inside);
    assert_eq!(content(&tree), before);
    assert_eq!(left_over(&place), 0);

    // The directory itself, full and empty.
    bind(&tree, &tree);
    refused("a mount point", &mut |_| {});
    unmount(&tree);
    let void = place.at("void");
    fs::create_dir(&void).unwrap();
    bind(&void, &void);
    let error = over(&place, &void, true).unwrap_err();
    assert!(error.detail().contains("a mount point"), "{error:?}");
    unmount(&void);

    // In what a killed restore has left: it goes, but for what is mounted.
    let left = place.at(".tree.00112233445566778899aabbccddeeff.partial");
    fs::create_dir_all(left.join("sub/mounted")).unwrap();
    put(&left.join("sub/file"), b"of the restore");
    bind(&precious, &left.join("sub/mounted"));
    refused("something may be mounted in it", &mut |_| {});
    assert!(!left.join("sub/file").exists());
    unmount(&left.join("sub/mounted"));

    over(&place, &tree, false).unwrap();
    assert_eq!(left_over(&place), 0);
    assert!(precious.join("thesis").exists());
}

/// Not a test of its own: what is killed.
#[test]
#[ignore = "run by the other test, under strace"]
fn child() {
    let Some(place) = std::env::var_os(PLACE).map(PathBuf::from) else {
        return;
    };
    let medium = LocalStore::new(&place.join("medium"));
    let set = open_set(&medium, None, None).unwrap();
    let options = RestoreOptions {
        to: std::env::var_os(TO).map_or_else(|| place.join("tree"), PathBuf::from),
        tablespaces: None,
        threads: 1,
        recovery: None,
        kept: Kept::default(),
        sealing: None,
        delta: Some(Delta::default()),
        stop: None,
    };
    restore(&set, &options, &mut |_| {}).unwrap();
}

#[test]
fn a_killed_restore_leaves_the_old_directory_or_the_new_one() {
    let place = Place::new();
    let tree = place.tree(200_000);
    made(&place.medium(), &tree, &options(None)).unwrap();
    let new = content(&tree);
    change(&tree);
    let old = content(&tree);
    fs::rename(&tree, place.at("old")).unwrap();
    let (mut kills, mut before, mut after, mut finished) = (0, 0, 0, 0);
    for group in GROUPS {
        for at in 1..MOST {
            let mut copy = Command::new("cp");
            copy.arg("-a").arg(place.at("old")).arg(&tree);
            assert!(copy.status().unwrap().success());
            let killed = killed_at("delta::child", &place, group, at);
            let found = content(&tree);
            assert!(found == old || found == new, "{group}, call {at}");
            before += u32::from(found == old);
            after += u32::from(found == new);
            // Again: what the killed one has left is cleared away.
            over(&place, &tree, false).unwrap();
            assert_eq!(content(&tree), new, "{group}, call {at}");
            assert_eq!(left_over(&place), 0, "{group}, call {at}");
            fs::remove_dir_all(&tree).unwrap();
            if killed {
                kills += 1;
            } else {
                finished += 1;
                break;
            }
        }
    }
    assert_eq!(finished, GROUPS.len(), "every group came to its end");
    assert!(
        kills > 20 && before > 15 && after > 5,
        "{kills} {before} {after}"
    );
}
