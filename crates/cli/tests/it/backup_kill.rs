//! Goal: whatever ends a command, the medium holds whole sets, the older ones open, and the next
//! command goes on. Method: strace(1) kills the real command at each call in turn that writes,
//! names, removes or makes durable; after each, the medium is used.
//!
//! strace counts the calls of each thread by themselves. So the main thread, which does all but
//! write families, is swept alone first; then all threads together, for those that write families.
//! Every kind of call is swept alone.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use crate::common;

use std::fs;
use std::process::Command;

use common::Place;

const GROUPS: [&str; 4] = [
    "?write,?pwrite64,?ftruncate",
    "?fsync,?fdatasync,?syncfs",
    "?rename,?renameat,?renameat2,?link,?linkat,?unlink,?unlinkat",
    "?mkdir,?mkdirat,?chmod,?fchmod,?fchmodat,?fchown,?fchownat,?utimensat",
];
/// No group of any command here has so many.
const MOST: u32 = 300;
const SEGMENT: &str = "000000010000000000000001";

/// A keyring with two keys, a tree, a database, and a medium with one set and one archived file.
fn place() -> Place {
    let place = Place::new();
    place.with_key();
    place.run(&["key", "create", "other"]).succeeded();
    fs::create_dir_all(place.path("tree/sub")).unwrap();
    place.write("tree/one", "first");
    place.write("tree/sub/two", vec![7; 1_500_000]);
    place.plain_database("db", 100);
    place.write(SEGMENT, common::segment(SEGMENT, "a segment"));
    place.run(&create("tree", &[])).succeeded();
    push(&place, "00000002.history");
    copied(&place, "medium", "before");
    place
}

fn create<'a>(source: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let usual = [
        "backup",
        "create",
        source,
        "--to",
        "medium",
        "--key-id",
        "app",
        "--threads",
        "1",
    ];
    [&usual[..], more].concat()
}

fn push(place: &Place, name: &str) {
    place.write(name, "1\t0/3000000\tno recovery target\n");
    place
        .run(&[
            "backup", "wal-push", name, "--to", "medium", "--key-id", "app",
        ])
        .succeeded();
}

fn copied(place: &Place, from: &str, to: &str) {
    let to = place.path(to);
    if to.exists() {
        fs::remove_dir_all(&to).unwrap();
    }
    let copy = Command::new("cp")
        .arg("-a")
        .arg(place.path(from))
        .arg(&to)
        .status();
    assert!(copy.unwrap().success());
}

/// Kills the command at each call; `after` gets what to say where it fails. Returns how often it
/// was killed.
fn swept(place: &Place, arguments: &[&str], after: &dyn Fn(&str)) -> u32 {
    let mut kills = 0;
    for threads in [&[][..], &["-f"]] {
        for group in GROUPS {
            let finished = (1..MOST).find(|at| {
                copied(place, "before", "medium");
                let killed = place.killed_at(threads, group, *at, arguments);
                let who = if threads.is_empty() { "main" } else { "any" };
                after(&format!(
                    "{arguments:?}, call {at} of {group}, {who} thread"
                ));
                kills += u32::from(killed);
                !killed
            });
            assert!(finished.is_some(), "{group} came to no end");
        }
    }
    kills
}

#[track_caller]
fn good(place: &Place, set: &str, key: &str, at: &str) {
    let run = place.run(&["backup", "verify", "medium", "--set", set, "--key-id", key]);
    assert_eq!(run.code, 0, "{at}: {}", run.err);
}

/// Every set is whole, the next backup is made, and it leaves no family without a set.
#[track_caller]
fn goes_on(place: &Place, at: &str) {
    let header = place.run(&["backup", "header", "medium"]);
    assert_eq!(header.code, 0, "{at}: {}", header.err);
    let made = place.run(&create("tree/sub", &[]));
    assert_eq!(made.code, 0, "{at}: {}", made.err);
    let listed = place.run(&["backup", "header", "medium", "--json"]).json();
    let sets = listed["sets"].as_array().unwrap();
    for set in sets {
        good(place, &set["position"].to_string(), "app", at);
    }
    let families = fs::read_dir(place.path("medium/data")).unwrap().count();
    assert_eq!(families, sets.len(), "{at}: orphans");
}

#[test]
fn a_backup_of_a_directory() {
    let place = place();
    let kills = swept(&place, &create("tree", &[]), &|at| {
        good(&place, "1", "app", at);
        goes_on(&place, at);
        // The catalogue is written by the same command.
        let history = place.run(&["backup", "history", "--last", "1"]);
        assert_eq!(history.code, 0, "{at}: {}", history.err);
    });
    assert!(kills > 20, "{kills}");
}

#[test]
fn a_backup_of_a_database() {
    let place = place();
    let kills = swept(&place, &create("db", &[]), &|at| {
        good(&place, "1", "app", at);
        goes_on(&place, at);
        let left = fs::File::open(place.path("db")).unwrap();
        assert!(left.metadata().unwrap().len() > 0);
        let rows = rusqlite::Connection::open(place.path("db")).unwrap();
        let rows: i64 = rows
            .query_row("SELECT count(*) FROM t", [], |row| row.get(0))
            .unwrap();
        assert_eq!(rows, 100, "{at}");
    });
    assert!(kills > 30, "{kills}");
}

#[test]
fn a_medium_that_is_begun_anew() {
    let place = place();
    fs::remove_dir_all(place.path("medium/wal")).unwrap();
    fs::create_dir(place.path("medium/wal")).unwrap();
    copied(&place, "medium", "before");
    let kills = swept(&place, &create("tree", &["--format"]), &|at| {
        // The old set or the new one, but one of them.
        let newest = place.run(&["backup", "verify", "medium", "--key-id", "app"]);
        assert_eq!(newest.code, 0, "{at}: {}", newest.err);
        let made = place.run(&create("tree/sub", &[]));
        assert_eq!(made.code, 0, "{at}: {}", made.err);
        let newest = place.run(&["backup", "verify", "medium", "--key-id", "app"]);
        assert_eq!(newest.code, 0, "{at}: {}", newest.err);
    });
    assert!(kills > 20, "{kills}");
}

#[test]
fn other_keys() {
    let place = place();
    place.run(&create("tree/sub", &[])).succeeded();
    copied(&place, "medium", "before");
    let rewrap = [
        "backup",
        "rewrap",
        "medium",
        "--key-id",
        "app",
        "--new-key-id",
        "other",
    ];
    let kills = swept(&place, &rewrap, &|at| {
        // Running it again goes on: what has the new key is named, the rest gets it.
        let again = place.run(&rewrap);
        assert!([0, 3].contains(&again.code), "{at}: {}", again.err);
        for set in ["1", "2"] {
            good(&place, set, "other", at);
        }
        let fetched = place.run(&[
            "backup",
            "wal-fetch",
            "00000002.history",
            "fetched",
            "--from",
            "medium",
            "--key-id",
            "other",
        ]);
        assert_eq!(fetched.code, 0, "{at}: {}", fetched.err);
    });
    assert!(kills > 10, "{kills}");
}

#[test]
fn an_archived_file() {
    let place = place();
    let archive = [
        "backup", "wal-push", SEGMENT, "--to", "medium", "--key-id", "app",
    ];
    let kills = swept(&place, &archive, &|at| {
        let again = place.run(&archive);
        assert_eq!(again.code, 0, "{at}: {}", again.err);
        let fetched = place.run(&[
            "backup",
            "wal-fetch",
            SEGMENT,
            "fetched",
            "--from",
            "medium",
            "--key-id",
            "app",
        ]);
        assert_eq!(fetched.code, 0, "{at}: {}", fetched.err);
        let segment = common::segment(SEGMENT, "a segment");
        assert!(place.read("fetched") == segment, "{at}");
        good(&place, "1", "app", at);
    });
    assert!(kills > 3, "{kills}");
}

#[test]
fn a_restore() {
    let place = place();
    let restore = [
        "backup",
        "restore",
        "medium",
        "--to",
        "out",
        "--key-id",
        "app",
        "--threads",
        "1",
    ];
    let kills = swept(&place, &restore, &|at| {
        let out = place.path("out");
        if out.exists() {
            assert_eq!(place.read("out/one"), place.read("tree/one"), "{at}");
            assert_eq!(
                place.read("out/sub/two"),
                place.read("tree/sub/two"),
                "{at}"
            );
            fs::remove_dir_all(out).unwrap();
        }
        for name in place.names() {
            if name.ends_with(".partial") {
                fs::remove_dir_all(place.path(&name)).unwrap();
            }
        }
        good(&place, "1", "app", at);
    });
    assert!(kills > 10, "{kills}");
    place.run(&restore).succeeded();
}
