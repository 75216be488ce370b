//! The catalogue of backups: what it holds, who makes it, that it is sealed, and that no backup
//! fails by it.
//!
//! Method: the real binary, its output, and the catalogue's bytes.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use crate::common;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use common::{Place, members};
use serde_json::Value;

const CANARY: &str = "CANARY-6a0d";

fn place() -> Place {
    let place = Place::new();
    place.with_key();
    place
        .run(&["keyring", "export", "--out", "export", "--key-env", "ROOT"])
        .succeeded();
    fs::create_dir_all(place.path("tree-CANARY-6a0d")).unwrap();
    place.write("tree-CANARY-6a0d/file", "content");
    place
}

fn create<'a>(medium: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let usual = ["backup", "create", "tree-CANARY-6a0d", "--to", medium];
    [&usual[..], more].concat()
}

fn runs(place: &Place, more: &[&str]) -> Vec<Value> {
    let all = [&["backup", "history", "--json"], more].concat();
    let json = place.run(&all).json();
    json["runs"].as_array().unwrap().clone()
}

fn told(run: &Value) -> (String, String, Value) {
    let text = |name: &str| run[name].as_str().unwrap().to_owned();
    let set = run["set"]["position"].clone();
    (text("operation"), text("outcome"), set)
}

#[test]
fn every_run_is_noted_with_how_it_ended() {
    let place = place();
    place.run(&["backup", "history"]).failed(2, "SR-7152");
    let key = ["--key-id", "app"];
    let named = [&key[..], &["--name", "CANARY-6a0d"]].concat();
    let run = place.run(&create("medium", &named));
    assert_eq!(run.err, "");
    run.succeeded();
    place.run(&create("medium", &key)).succeeded();
    place
        .run(&create("medium", &["--no-encryption"]))
        .failed(6, "SR-7104");
    let medium = ["medium", "--key-id", "app"];
    let of = |verb: &'static str, more: &[&'static str]| {
        place.run(&[&["backup", verb][..], &medium, more].concat())
    };
    of("verify", &["--set", "1"]).succeeded();
    of("verify", &["--set", "9"]).failed(2, "SR-7107");
    of("restore", &["--to", "out"]).succeeded();
    of("restore", &["--to", "out"]).failed(6, "SR-7113");
    of("rewrap", &["--new-key-id", "app"]).succeeded();
    place
        .run(&["backup", "expire", "medium", "--keep", "1", "--dry-run"])
        .succeeded();
    place
        .run(&["backup", "expire", "medium", "--keep", "1"])
        .succeeded();
    place
        .run(&create("medium", &["--key-id", "app", "--no-history"]))
        .succeeded();

    let all = runs(&place, &[]);
    let expected = [
        ("create", "done", Some(1)),
        ("create", "done", Some(2)),
        ("create", "SR-7104", None),
        ("verify", "done", Some(1)),
        ("verify", "SR-7107", None),
        ("restore", "done", Some(2)),
        ("restore", "SR-7113", Some(2)),
        ("rewrap", "done", None),
        ("expire", "done", None),
    ];
    let expected =
        expected.map(|(run, outcome, set)| (run.to_owned(), outcome.to_owned(), Value::from(set)));
    assert_eq!(all.iter().map(told).collect::<Vec<_>>(), expected);
    first_set(&place, &all[0]);
    assert_eq!(all[5]["detail"], place.path("out").to_str().unwrap());
    assert_eq!(all[8]["detail"], "sets 1; 0 files of the log");
    assert_eq!(runs(&place, &["--last", "2"]), all[7..]);
    assert_eq!(runs(&place, &["--medium", "medium"]), all);
    assert_eq!(runs(&place, &["--medium", "elsewhere"]), [Value::Null; 0]);
    let text = place.run(&["backup", "history"]).succeeded();
    assert_eq!(text.lines().count(), 10, "{text}");
    assert!(text.contains("  SR-7104  "), "{text}");
}

fn first_set(place: &Place, run: &Value) {
    let listed = place
        .run(&[
            "backup",
            "verify",
            "medium",
            "--no-history",
            "--set",
            "2",
            "--key-id",
            "app",
            "--json",
        ])
        .json();
    assert_eq!(
        members(run),
        [
            "begun",
            "begun_unix_s",
            "detail",
            "ended",
            "ended_unix_s",
            "medium",
            "operation",
            "outcome",
            "set",
            "source"
        ]
    );
    let set = &run["set"];
    assert_eq!(
        members(set),
        [
            "backup_size_bytes",
            "base_set_id",
            "compressed_size_bytes",
            "encryptor",
            "end_lsn",
            "expires_unix_s",
            "files",
            "finished_unix_s",
            "key_algorithm",
            "kind",
            "machine_name",
            "medium_id",
            "name",
            "position",
            "set_id",
            "software",
            "start_lsn",
            "started_unix_s",
            "system_identifier",
            "timeline",
            "user_name"
        ]
    );
    assert_eq!(run["medium"], place.path("medium").to_str().unwrap());
    assert_eq!(
        run["source"],
        place.path("tree-CANARY-6a0d").to_str().unwrap()
    );
    assert_eq!(set["name"], CANARY);
    assert_eq!(set["encryptor"], "keyring key app version 1");
    assert_eq!(set["key_algorithm"], "aes-256");
    assert_eq!(set["medium_id"], listed["set"]["medium_id"]);
    assert_eq!(set["backup_size_bytes"], 7);
}

#[test]
fn the_catalogue_is_sealed_and_its_owners() {
    let place = place();
    let noted = create("medium", &["--key-id", "app", "--name", CANARY]);
    place.run(&noted).succeeded();
    let about = fs::metadata(place.path("keyring.history")).unwrap();
    assert_eq!(about.permissions().mode() & 0o777, 0o600);
    for name in place.names() {
        if name.starts_with("keyring") || name.starts_with('.') {
            let bytes = place.read(&name);
            for clear in [CANARY, "operation", "SQLite format"] {
                let found = bytes
                    .windows(clear.len())
                    .any(|part| part == clear.as_bytes());
                assert!(!found, "{clear} in {name}");
            }
        }
    }
    place
        .run(&["verify", "keyring.history", "--key-id", "app"])
        .succeeded();
    // Only who has the keyring reads it.
    let run = place.run(&[
        "--keyring",
        "nowhere",
        "backup",
        "history",
        "--catalogue",
        "keyring.history",
    ]);
    run.failed(3, "SR-2004");
}

#[test]
fn a_host_without_a_key_has_none_until_one_is_made() {
    let place = place();
    place
        .run(&create("plain", &["--no-encryption"]))
        .succeeded();
    assert!(!place.path("keyring.history").exists());
    let made = runs(&place, &["--key-id", "app"]);
    assert_eq!(made, [Value::Null; 0]);
    place
        .run(&create("plain", &["--no-encryption"]))
        .succeeded();
    let all = runs(&place, &[]);
    assert_eq!(told(&all[0]), ("create".into(), "done".into(), 2.into()));
    assert_eq!(all[0]["set"]["encryptor"], "");
    assert_eq!(all[0]["set"]["key_algorithm"], "none");
    // Without a keyring nothing is said of a catalogue.
    let nowhere = [
        &["--keyring", "nowhere"][..],
        &create("plain", &["--no-encryption"]),
    ]
    .concat();
    let run = place.run(&nowhere);
    assert!(!run.err.contains("SR-715"), "{}", run.err);
    run.succeeded();
}

#[test]
fn a_lost_catalogue_comes_back_from_the_medium() {
    let place = place();
    for medium in ["one", "one", "two"] {
        place.run(&create(medium, &["--key-id", "app"])).succeeded();
    }
    let before = runs(&place, &[]);
    fs::remove_file(place.path("keyring.history")).unwrap();
    let scan = ["backup", "history", "--scan", "one", "--json"];
    place.run(&scan).failed(2, "SR-7152");
    let json = place
        .run(&[&scan[..], &["--key-id", "app"]].concat())
        .json();
    assert_eq!(json["scanned"], 2);
    let scanned = runs(&place, &["--scan", "two"]);
    assert_eq!(scanned.len(), 3);
    for (found, made) in scanned.iter().zip(&before) {
        assert_eq!(found["operation"], "scan");
        assert_eq!(found["set"], made["set"]);
        assert_eq!(found["source"], made["source"]);
        assert_eq!(found["medium"], made["medium"]);
    }
    let again = place.run(&scan).json();
    assert_eq!(again["scanned"], 0);
    assert_eq!(runs(&place, &[]).len(), 3);
}

#[test]
fn runs_at_the_same_time_are_all_noted() {
    let place = place();
    let media = ["a", "b", "c", "d", "e", "f"];
    std::thread::scope(|scope| {
        for medium in media {
            let place = &place;
            scope.spawn(move || {
                let run = place.run(&create(medium, &["--key-id", "app"]));
                assert_eq!(run.err, "");
                run.succeeded();
            });
        }
    });
    let mut noted: Vec<String> = runs(&place, &[])
        .iter()
        .map(|run| run["medium"].as_str().unwrap().to_owned())
        .collect();
    noted.sort();
    let expected = media.map(|name| place.path(name).display().to_string());
    assert_eq!(noted, expected);
    let left: Vec<String> = place.names();
    let left: Vec<&String> = left.iter().filter(|name| name.ends_with(".part")).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn no_backup_fails_by_its_catalogue() {
    let place = place();
    place.write("keyring.history", "not a database");
    fs::create_dir(place.path("directory")).unwrap();
    for catalogue in ["keyring.history", "directory", "no/such/place"] {
        let named = create("medium", &["--key-id", "app", "--catalogue", catalogue]);
        let run = place.run(&named);
        assert!(run.err.contains("warning[SR-7151]"), "{}", run.err);
        run.succeeded();
    }
    assert_eq!(place.read("keyring.history"), b"not a database");
    place.run(&["backup", "history"]).failed(4, "SR-3001");
    // The error is the run's own, and so is the exit code.
    let run = place.run(&create("medium", &["--no-encryption"]));
    assert!(run.err.contains("warning[SR-7151]"), "{}", run.err);
    run.failed(6, "SR-7104");
}
