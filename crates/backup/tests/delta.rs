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

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::forged::{cluster, directory, file, forged};
use common::{Place, made, noise, options, picture, put};
use strongroom_backup::{
    Delta, Error, Kept, LocalStore, RestoreOptions, Restored, open_set, restore,
};

const PLACE: &str = "STRONGROOM_TEST_DELTA_PLACE";
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
    restore(&open_set(&medium, None, None)?, &options, &mut |_| {})
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
    refused(&other, false, "--force insists");
    // One that has the medium in it, in any case.
    refused(&place.at(""), true, "would be removed");
    symlink(&tree, place.at("by-link")).unwrap();
    refused(&place.at("by-link"), true, "a link is not followed");
    refused(&other.join("thesis"), true, "not a directory");
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
        to: place.join("tree"),
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
            let mut strace = Command::new("strace");
            strace
                .args(["-f", "-qq", "-o", "/dev/null", "-e"])
                .arg(format!("trace={group}"))
                .arg(format!("--inject={group}:signal=KILL:when={at}"))
                .arg(std::env::current_exe().unwrap())
                .args(["--ignored", "--exact", "child", "--test-threads", "1"])
                .env(PLACE, place.at(""));
            let ended = strace.output().unwrap().status;
            let killed = ended.signal() == Some(9);
            assert!(killed || ended.success(), "{group} {at}: {ended}");
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
