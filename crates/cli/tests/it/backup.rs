//! `strongroom backup` from the command line: what users type, what they read, what scripts get.
//!
//! Method: the real binary on real files; the formats themselves are tested in crates/backup.

use crate::common;

use std::fs;

use common::{Place, create, members};

/// A tree, and a keyring with a key.
fn place() -> Place {
    Place::with_tree("first file CANARY-55d0")
}

#[test]
fn back_up_list_verify_restore() {
    let place = place();
    let run = place.run(&create("nightly", &["--key-id", "app"]));
    assert!(run.err.contains("warning[SR-2022]"), "{}", run.err);
    assert!(
        run.succeeded()
            .starts_with("set 1: 2 files, 3000022 bytes, ")
    );
    place
        .run(&["keyring", "export", "--out", "export", "--key-env", "ROOT"])
        .succeeded();
    let run = place.run(&create(
        "again",
        &["--key-id", "app", "--algorithm", "aes-128"],
    ));
    assert_eq!(run.err, "");
    assert!(run.succeeded().starts_with("set 2: "));

    headers_are_listed(&place);
    let good = place.run(&[
        "backup", "verify", "medium", "--set", "1", "--key-id", "app",
    ]);
    let good = good.succeeded();
    assert!(
        good.starts_with("set 1: 4 segments, 2 files, 3000022 bytes: good\n"),
        "{good}"
    );
    assert!(good.contains("not checked: "));
    let json = place
        .run(&["backup", "verify", "medium", "--key-id", "app", "--json"])
        .json();
    assert_eq!(
        members(&json),
        [
            "builds_on",
            "error",
            "files",
            "missing_log",
            "not_checked",
            "ok",
            "position",
            "restore_test",
            "segments",
            "set",
            "signed_by",
            "size_bytes",
            "wrong_log"
        ]
    );

    let restored = place.run(&[
        "backup", "restore", "medium", "--to", "out", "--key-id", "app",
    ]);
    assert_eq!(
        restored.succeeded(),
        "restored set 2 to out: 2 files, 3000022 bytes\n"
    );
    assert_eq!(place.read("out/one"), place.read("tree/one"));
    assert_eq!(place.read("out/sub/two"), place.read("tree/sub/two"));
    place
        .run(&[
            "backup", "restore", "medium", "--to", "out", "--key-id", "app",
        ])
        .failed(6, "SR-7113");
}

/// Without a key and without a keyring.
fn headers_are_listed(place: &Place) {
    let text = place.run(&["backup", "header", "medium"]).succeeded();
    // A source that was named by a relative path is the directory that it led to.
    let tree = fs::canonicalize(place.path("tree")).expect("the tree is there");
    let source = format!("  source           {}\n", tree.display());
    for part in [
        "set 1: files, nightly\n",
        "set 2: files, again\n",
        &source,
        "  KeyAlgorithm     aes-256\n",
        "  KeyAlgorithm     aes-128\n",
        "  opened by        keyring key app version 1\n",
        "nothing of this is authenticated",
    ] {
        assert!(text.contains(part), "{part} not in {text}");
    }
    // A header needs no keyring.
    let nowhere = ["--keyring", "nowhere", "backup"];
    let json = place
        .run(&[&nowhere[..], &["header", "medium", "--json"]].concat())
        .json();
    assert_eq!(
        members(&json),
        ["error", "medium", "path", "sets", "unreadable"]
    );
    assert_eq!(json["medium"]["protection"], "sealed");
    let set = &json["sets"][0];
    assert_eq!(set["position"], 1);
    assert_eq!(set["name"], "nightly");
    assert_eq!(set["backup_size_bytes"], 3_000_022);
    assert_eq!(set["encryptors"][0]["encryptor_type"], "keyring");
    assert_eq!(set["encryptors"][0]["key_id"], "app");
    place
        .run(&[&nowhere[..], &["verify", "medium", "--key-id", "app"]].concat())
        .failed(3, "SR-2004");
}

#[test]
fn what_is_refused_is_refused_before_anything_is_done() {
    let place = place();
    place.run(&create("x", &[])).failed(2, "SR-2041");
    for within in ["tree/medium", "tree/sub/deeper/medium"] {
        place
            .run(&[
                "backup", "create", "tree", "--to", within, "--key-id", "app",
            ])
            .failed(2, "SR-1003");
    }
    place
        .run(&[
            "backup", "create", "nothing", "--to", "medium", "--key-id", "app",
        ])
        .failed(2, "SR-1006");
    place
        .run(&[
            "backup", "create", "tree/one", "--to", "medium", "--key-id", "app",
        ])
        .failed(5, "SR-7114");
    place
        .run(&create("x", &["--key-id", "unknown"]))
        .failed(3, "SR-2003");
    let password = "host=/nowhere user=u password=hunter2";
    let run = place.run(&[
        "backup", "create", password, "--to", "medium", "--key-id", "app",
    ]);
    assert!(!run.failed(2, "SR-1001").contains("hunter2"));
    let nobody = "host=/nowhere/at/all user=u";
    place
        .run(&[
            "backup", "create", nobody, "--to", "medium", "--key-id", "app",
        ])
        .failed(5, "SR-7115");
    assert!(!place.path("medium").exists());
    place
        .run(&["backup", "header", "medium"])
        .failed(2, "SR-7101");
    let json = place.run(&["backup", "header", "medium", "--json"]).json();
    assert_eq!(json["error"]["code"], "SR-7101");
    place
        .run(&[
            "backup", "create", "tree", "--to", "tree", "--key-id", "app",
        ])
        .failed(6, "SR-7103");
}

#[test]
fn a_medium_in_clear_warns_and_does_not_mix() {
    let place = place();
    let run = place.run(&create("x", &["--no-encryption"]));
    assert!(run.err.contains("warning[SR-7119]"), "{}", run.err);
    run.succeeded();
    let refused = place
        .run(&create("x", &["--key-id", "app"]))
        .failed(6, "SR-7105");
    assert!(refused.contains("--format") && refused.contains("another medium"));
    let text = place.run(&["backup", "header", "medium"]).succeeded();
    assert!(text.contains("  KeyAlgorithm     none\n"));
    // A key that is named expects a seal.
    for verb in [
        &["verify", "medium"][..],
        &["restore", "medium", "--to", "out"],
    ] {
        place
            .run(&[&["backup"], verb, &["--key-id", "app"]].concat())
            .failed(4, "SR-7126");
    }
    place.write("00000002.history", "1\t0/3000000\tno recovery target\n");
    place
        .run(&[
            "backup",
            "wal-push",
            "00000002.history",
            "--to",
            "medium",
            "--no-encryption",
        ])
        .succeeded();
    let fetch = [
        "backup",
        "wal-fetch",
        "00000002.history",
        "fetched",
        "--from",
        "medium",
    ];
    assert_eq!(
        place.run(&[&fetch[..], &["--key-id", "app"]].concat()).code,
        196
    );
    place.run(&fetch).succeeded();
    place
        .run(&["backup", "restore", "medium", "--to", "out"])
        .succeeded();
    fs::remove_file(place.path("medium/wal/00000002.history")).unwrap();
    place
        .run(&create("x", &["--key-id", "app", "--format"]))
        .succeeded();
    place
        .run(&create("x", &["--no-encryption"]))
        .failed(6, "SR-7104");
    place
        .run(&["backup", "verify", "medium"])
        .failed(3, "SR-2001");
    place
        .run(&["backup", "verify", "medium", "--key-id", "app"])
        .succeeded();
}

#[test]
fn damage_is_found_and_nothing_is_left_of_the_restore() {
    let place = place();
    place.run(&create("x", &["--key-id", "app"])).succeeded();
    let family = fs::read_dir(place.path("medium/data"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let mut bytes = fs::read(&family).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    place.write(
        family
            .strip_prefix(place.path(""))
            .unwrap()
            .to_str()
            .unwrap(),
        &bytes,
    );
    place
        .run(&["backup", "verify", "medium", "--key-id", "app"])
        .failed(4, "SR-7109");
    let before = place.names();
    place
        .run(&[
            "backup", "restore", "medium", "--to", "out", "--key-id", "app",
        ])
        .failed(4, "SR-7109");
    assert_eq!(place.names(), before);
    // Another key is not damage.
    place.run(&["key", "create", "other"]).succeeded();
    place
        .run(&["backup", "verify", "medium", "--key-id", "other"])
        .failed(3, "SR-2002");
}

#[test]
fn databases_come_back_as_they_were() {
    let place = place();
    place.plain_database("plain.db", 2000);
    place
        .run(&[
            "sqlite",
            "encrypt",
            "plain.db",
            "sealed.db",
            "--key-id",
            "app",
        ])
        .succeeded();
    let before = place.names();
    let plain = [
        "backup", "create", "plain.db", "--to", "medium", "--key-id", "app",
    ];
    place.run(&plain).succeeded();
    let sealed = [
        "backup",
        "create",
        "sealed.db",
        "--to",
        "medium",
        "--key-id",
        "app",
    ];
    // The key that is named is for the set.
    let refused = place.run(&sealed).failed(3, "SR-2290");
    assert!(refused.contains("--source-key-id"), "{refused}");
    place
        .run(&[&sealed[..], &["--source-key-id", "app"]].concat())
        .succeeded();
    // The copies are gone; there is a catalogue beside the keyring.
    let after: Vec<String> = place
        .names()
        .into_iter()
        .filter(|name| !["medium", "keyring.history"].contains(&name.as_str()))
        .collect();
    assert_eq!(after, before);
    let json = place.run(&["backup", "header", "medium", "--json"]).json();
    assert_eq!(json["sets"][0]["kind"], "sqlite");
    assert_eq!(json["sets"][0]["sqlite"]["sealed_source"], false);
    assert_eq!(json["sets"][1]["sqlite"]["sealed_source"], true);
    for set in ["1", "2"] {
        let to = format!("out{set}");
        place
            .run(&[
                "backup", "restore", "medium", "--set", set, "--to", &to, "--key-id", "app",
            ])
            .succeeded();
    }
    let count = ["-c", "SELECT count(*), max(name) FROM t", "--mode", "csv"];
    let plain = place.run(&[&["sqlite", "shell", "out1/plain.db"], &count[..]].concat());
    let expected = place
        .run(&[&["sqlite", "shell", "plain.db"], &count[..]].concat())
        .succeeded();
    assert_eq!(plain.succeeded(), expected);
    let restored = place.read("out2/sealed.db");
    assert!(!restored.windows(11).any(|window| window == b"secret name"));
    place
        .run(&["verify", "out2/sealed.db", "--key-id", "app"])
        .succeeded();
    let sealed = [
        &["sqlite", "shell", "out2/sealed.db", "--key-id", "app"],
        &count[..],
    ]
    .concat();
    assert_eq!(place.run(&sealed).succeeded(), expected);
}

#[test]
fn keys_change_without_touching_the_data() {
    let place = place();
    place.run(&["key", "create", "new"]).succeeded();
    place.run(&["key", "create", "third"]).succeeded();
    place.run(&create("a", &["--key-id", "app"])).succeeded();
    place.run(&create("b", &["--key-id", "app"])).succeeded();
    place.write("00000002.history", "1\t0/3000000\tno recovery target\n");
    let push = [
        "backup",
        "wal-push",
        "00000002.history",
        "--to",
        "medium",
        "--key-id",
        "app",
    ];
    place.run(&push).succeeded();
    let families = || {
        let entries = fs::read_dir(place.path("medium/data")).unwrap();
        let mut all: Vec<Vec<u8>> = entries
            .map(|entry| fs::read(entry.unwrap().path()).unwrap())
            .collect();
        all.sort();
        all
    };
    let before = families();
    let rewrap = [
        "backup",
        "rewrap",
        "medium",
        "--key-id",
        "app",
        "--new-key-id",
    ];
    let one = place
        .run(&[&rewrap[..], &["third", "--set", "2"]].concat())
        .succeeded();
    assert_eq!(one, "rewrapped set 2\n");
    let run = place.run(&[&rewrap[..], &["new"]].concat());
    assert_eq!(run.out, "rewrapped 1 sets and 1 files of the log\n");
    assert!(
        run.failed(3, "SR-2002")
            .contains("note: set 2 is sealed for another key")
    );
    assert_eq!(families(), before);
    for (set, key, other) in [("1", "new", "app"), ("2", "third", "app")] {
        place
            .run(&["backup", "verify", "medium", "--set", set, "--key-id", key])
            .succeeded();
        place
            .run(&[
                "backup", "verify", "medium", "--set", set, "--key-id", other,
            ])
            .failed(3, "SR-2002");
    }
    the_log_has_the_new_key(&place, &push);
}

/// Archived under `app`, and rewrapped for `new`.
fn the_log_has_the_new_key(place: &Place, push: &[&str]) {
    let fetch = [
        "backup",
        "wal-fetch",
        "00000002.history",
        "out",
        "--from",
        "medium",
        "--key-id",
    ];
    assert_eq!(place.run(&[&fetch[..], &["app"]].concat()).code, 195);
    place.run(&[&fetch[..], &["new"]].concat()).succeeded();
    assert_eq!(place.read("out"), place.read("00000002.history"));
    // Absent is something else than a medium that is not there.
    let absent = |from: &str| {
        let arguments = [
            "backup",
            "wal-fetch",
            "00000003.history",
            "out",
            "--from",
            from,
        ];
        place
            .run(&[&arguments[..], &["--key-id", "new"]].concat())
            .code
    };
    assert_eq!((absent("medium"), absent("not-mounted")), (1, 194));
    // The same file again is known without the key that it is sealed for now.
    place.run(push).succeeded();
    place.run(&[&fetch[..], &["new"]].concat()).succeeded();
}

#[test]
fn expiry_keeps_what_it_must() {
    let place = place();
    place
        .run(&create("kept", &["--key-id", "app", "--retain-days", "1"]))
        .succeeded();
    for name in ["a", "b", "c"] {
        place.run(&create(name, &["--key-id", "app"])).succeeded();
    }
    let expire = ["backup", "expire", "medium", "--keep", "1"];
    let told = place
        .run(&[&expire[..], &["--dry-run"]].concat())
        .succeeded();
    assert_eq!(
        told,
        "would remove set 2\nwould remove set 3\nwould remove 2 sets and 0 files of the log\n"
    );
    assert_eq!(fs::read_dir(place.path("medium/data")).unwrap().count(), 4);
    let told = place.run(&expire).succeeded();
    assert_eq!(
        told,
        "removed set 2\nremoved set 3\nremoved 2 sets and 0 files of the log\n"
    );
    assert_eq!(fs::read_dir(place.path("medium/data")).unwrap().count(), 2);
    for set in ["1", "4"] {
        place
            .run(&[
                "backup", "verify", "medium", "--set", set, "--key-id", "app",
            ])
            .succeeded();
    }
    // With a head that cannot be read nothing is removed.
    place.run(&create("d", &["--key-id", "app"])).succeeded();
    place.write("medium/sets/00000004", "no head");
    place.run(&expire).failed(4, "SR-7106");
    assert_eq!(fs::read_dir(place.path("medium/data")).unwrap().count(), 3);
}

#[test]
fn certificates_write_what_their_host_cannot_read() {
    let place = place();
    place.run(&["cert", "create", "office"]).succeeded();
    let run = place.run(&create("x", &["--certificate", "office"]));
    assert!(run.err.contains("warning[SR-2033]"), "{}", run.err);
    run.succeeded();
    place
        .run(&create(
            "y",
            &["--certificate", "office", "--key-id", "app"],
        ))
        .succeeded();
    let json = place.run(&["backup", "header", "medium", "--json"]).json();
    assert_eq!(
        json["sets"][0]["encryptors"][0]["encryptor_type"],
        "certificate"
    );
    assert_eq!(json["sets"][1]["encryptors"][1]["key_id"], "app");
    // No key is named: the keyring's private keys open it. Who made it they cannot tell.
    let verify = |set: &str, more: &[&str]| {
        place
            .run(&[&["backup", "verify", "medium", "--set", set], more].concat())
            .succeeded()
    };
    let anyone = "  not checked: who made the set: anyone who has the public certificate";
    assert!(verify("1", &[]).contains(anyone));
    assert!(verify("2", &[]).contains(anyone));
    assert!(!verify("2", &["--key-id", "app"]).contains("who made the set"));
    place
        .run(&["backup", "restore", "medium", "--set", "1", "--to", "out"])
        .succeeded();
    assert_eq!(place.read("out/one"), place.read("tree/one"));
    place
        .run(&[
            "cert",
            "export",
            "office",
            "--public",
            "--out",
            "office.pem",
        ])
        .succeeded();
    // Another host, which has the certificate alone.
    let host = ["--keyring", "host"];
    let there = |arguments: &[&str]| place.run(&[&host[..], arguments].concat());
    there(&["keyring", "init", "--provider", "env:ROOT"]).succeeded();
    there(&["cert", "import", "office.pem"]).succeeded();
    there(&create("z", &["--certificate", "office"])).succeeded();
    there(&["backup", "verify", "medium", "--set", "3"]).failed(3, "SR-2032");
    place
        .run(&["backup", "verify", "medium", "--set", "3"])
        .succeeded();
}

#[test]
fn usage_errors_exit_with_2() {
    let place = Place::new();
    let cases: &[&[&str]] = &[
        &["backup"],
        &["backup", "create", "a"],
        &[
            "backup",
            "create",
            "a",
            "--to",
            "b",
            "--no-encryption",
            "--key-id",
            "k",
        ],
        &[
            "backup",
            "create",
            "a",
            "--to",
            "b",
            "--key-id",
            "k",
            "--algorithm",
            "rot13",
        ],
        &[
            "backup",
            "create",
            "a",
            "--to",
            "b",
            "--key-id",
            "k",
            "--compression",
            "zstd:20",
        ],
        &[
            "backup", "create", "a", "--to", "b", "--key-id", "k", "--init", "--append",
        ],
        &[
            "backup",
            "create",
            "a",
            "--to",
            "b",
            "--key-id",
            "k",
            "--stripes",
            "65",
        ],
        &["backup", "restore", "a"],
    ];
    for arguments in cases {
        place.run(arguments).failed(2, "SR-1001");
    }
    assert!(place.names().is_empty());
}
