//! Goal: no server starts on what a killed restore leaves, unless it is whole. Method: this program
//! runs itself under strace(1), which kills it at each call in turn that writes, names or makes
//! durable; the set is a cluster's, with a tablespace.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use crate::common;

use std::fs;
use std::path::{Path, PathBuf};

use common::forged::{cluster, directory, file, forged, space};
use common::{PLACE, Place, killed_at};
use strongroom_backup::{LocalStore, RestoreOptions, open_set, restore};

/// Calls that are counted together, as strace counts them: each thread's by themselves.
const GROUPS: [&str; 3] = [
    "?write,?pwrite64",
    "?fsync,?fdatasync,?syncfs",
    "?rename,?renameat,?renameat2,?mkdir,?mkdirat,?symlinkat,?symlink,?fchmod,?chmod,?fchmodat,?fchown,?fchownat,?utimensat",
];
/// No group has so many.
const MOST: u32 = 400;

static LARGE: [u8; 2_500_000] = [0x42; 2_500_000];

/// What `wanted` names below the place.
fn named(place: &Place, wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let entries = fs::read_dir(place.at("")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .filter(|path| wanted(&path.file_name().unwrap().to_string_lossy()))
        .collect()
}

#[expect(clippy::print_stdout, reason = "which file it was")]
fn is_whole(cluster: &Path, spaces: &Path) -> bool {
    let same = |path: PathBuf, content: &[u8]| {
        let same = fs::read(&path).is_ok_and(|read| read == content);
        if !same {
            println!("{} is not what it was", path.display());
        }
        same
    };
    same(cluster.join("global/pg_control"), b"control")
        && same(cluster.join("base"), &LARGE)
        && same(cluster.join("sub/small"), b"small")
        && same(cluster.join("recovery.signal"), b"")
        && same(cluster.join("postgresql.auto.conf"), b"# settings\n")
        && same(spaces.join("16400/data"), b"data")
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
        to: place.join("out"),
        tablespaces: None,
        threads: 1,
        recovery: Some(String::from("# settings\n")),
        kept: strongroom_backup::Kept::default(),
        sealing: None,
        delta: None,
        stop: None,
    };
    restore(&set, &options, &mut |_| {}).unwrap();
}

#[test]
fn a_killed_restore_leaves_nothing_that_starts() {
    let place = Place::new();
    let more = vec![
        directory("pg_tblspc"),
        space("pg_tblspc/16400"),
        file("pg_tblspc/16400/data", b"data"),
        file("base", &LARGE),
        directory("sub"),
        file("sub/small", b"small"),
        directory("."),
    ];
    forged(&place, cluster(more)).unwrap();
    let (mut kills, mut partials, mut finished) = (0, 0, 0);
    for group in GROUPS {
        for at in 1..MOST {
            let killed = killed_at("kill_restore::child", &place, group, at);
            let (out, spaces) = (place.at("out"), place.at("out.tablespaces"));
            let here = || format!("{group}, call {at}");
            // The name is there only for what is whole, whatever came after.
            if out.exists() {
                assert!(is_whole(&out, &spaces), "{}", here());
            }
            for partial in named(&place, |name| name.ends_with(".partial")) {
                partials += 1;
                let starts = partial.join("global/pg_control").exists();
                assert!(!starts || is_whole(&partial, &spaces), "{}", here());
                fs::remove_dir_all(partial).unwrap();
            }
            for made in [&out, &spaces] {
                if made.exists() {
                    fs::remove_dir_all(made).unwrap();
                }
            }
            if killed {
                kills += 1;
            } else {
                finished += 1;
                break;
            }
        }
    }
    assert_eq!(finished, GROUPS.len(), "every group came to its end");
    assert!(kills > 40 && partials > 20, "{kills} {partials}");
}
