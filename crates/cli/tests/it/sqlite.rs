//! Sealed databases on the command line: encrypt, decrypt, rekey, verify, inspect and the shell on
//! them.
//!
//! Method: the real binary; files are searched for their plaintext and damaged byte by byte.

use crate::common;

use common::{Place, decoded, members};

const SECRET: &[u8] = b"secret name 77";

/// A keyring with the key `app`, a plain database `plain.db` and a sealed copy `sealed.db`.
fn sealed(arguments: &[&str]) -> Place {
    let place = Place::new();
    place.with_key();
    place.plain_database("plain.db", 3000);
    let encrypt = ["sqlite", "encrypt", "plain.db", "sealed.db"];
    place.run(&[&encrypt, arguments].concat()).succeeded();
    place
}

fn holds(place: &Place, name: &str, text: &[u8]) -> bool {
    place
        .read(name)
        .windows(text.len())
        .any(|window| window == text)
}

const COUNT: [&str; 2] = ["-c", "SELECT count(*) AS n, max(name) AS m FROM t"];
const COUNTED: &str = "n    | m\n-----+----------------\n3000 | secret name 999\n";

#[track_caller]
fn opens(place: &Place, name: &str, key: &[&str]) {
    let out = place
        .run(&[&["sqlite", "shell", name], key, &COUNT].concat())
        .succeeded();
    let squeezed: String = out.chars().filter(|c| *c != ' ').collect();
    assert_eq!(squeezed.replace('-', ""), COUNTED.replace([' ', '-'], ""));
}

#[test]
fn there_and_back() {
    let place = sealed(&["--key-id", "app"]);
    assert!(holds(&place, "plain.db", SECRET));
    assert!(!holds(&place, "sealed.db", SECRET));
    opens(&place, "sealed.db", &["--key-id", "app"]);
    let out = place
        .run(&[
            "sqlite",
            "decrypt",
            "sealed.db",
            "back.db",
            "--key-id",
            "app",
        ])
        .succeeded();
    assert!(out.starts_with("plaintext back.db: "), "{out}");
    let dump = |name| {
        place
            .run(&["sqlite", "shell", name, "-c", ".dump"])
            .succeeded()
    };
    assert_eq!(dump("plain.db"), dump("back.db"));
    let expected = [
        "back.db",
        "keyring",
        "keyring.lock",
        "plain.db",
        "sealed.db",
    ];
    assert_eq!(place.names(), expected);
}

#[test]
fn a_copy_under_way_is_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = Place::new();
    place.with_key();
    place.plain_database("plain.db", 500_000);
    place
        .run(&["sqlite", "encrypt", "plain.db", "s.db", "--key-id", "app"])
        .succeeded();
    let mut command = place.command();
    command.args(["sqlite", "decrypt", "s.db", "out.db", "--key-id", "app"]);
    let mut child = command.stdout(std::process::Stdio::null()).spawn().unwrap();
    let mut modes = Vec::new();
    while child.try_wait().unwrap().is_none() {
        for name in place
            .names()
            .iter()
            .filter(|name| name.starts_with(".out.db."))
        {
            // It may be gone by now.
            if let Ok(about) = std::fs::metadata(place.path(name)) {
                let under_way = !place.path("out.db").exists();
                modes.push((under_way, about.permissions().mode() & 0o777));
            }
        }
    }
    assert!(modes.contains(&(true, 0o600)), "{modes:?}");
    // Just before it gets its name it gets its source's permissions.
    let mode_of = |name| {
        std::fs::metadata(place.path(name))
            .unwrap()
            .permissions()
            .mode()
            & 0o777
    };
    let last = mode_of("s.db");
    assert_eq!(mode_of("out.db"), last);
    assert!(
        modes.iter().all(|(_, mode)| [0o600, last].contains(mode)),
        "{modes:?}"
    );
}

#[test]
fn every_key_option_seals_and_opens() {
    let raw = "aa".repeat(32);
    for (right, wrong) in [
        (["--key-id", "app"], ["--key-env", "PASS"]),
        (["--key-env", "PASS"], ["--key-id", "app"]),
        (["--key-file", "raw.key"], ["--key-env", "ROOT"]),
        (
            ["--key-command", "cat raw.key"],
            ["--key-command", "echo other"],
        ),
    ] {
        let place = Place::new();
        place.write("raw.key", &raw);
        place.with_key();
        place.plain_database("plain.db", 3000);
        let run = |words: &[&str], key: &[&str]| {
            let mut command = place.command();
            command.env("PASS", "correct horse").args(words).args(key);
            let output = command.output().ok()?;
            let err = String::from_utf8(output.stderr).ok()?;
            Some((output.status.code()?, err))
        };
        let sealing = run(&["sqlite", "encrypt", "plain.db", "s.db"], &right);
        assert_eq!(sealing.map(|(code, _)| code), Some(0), "{right:?}");
        let opening = run(
            &["sqlite", "shell", "s.db", "-c", "SELECT * FROM t"],
            &right,
        );
        assert_eq!(opening, Some((0, String::new())), "{right:?}");
        let refused = run(
            &["sqlite", "shell", "s.db", "-c", "SELECT * FROM t"],
            &wrong,
        );
        assert!(
            refused
                .as_ref()
                .is_some_and(|(code, err)| *code == 3 && err.contains("SR-2002")),
            "{wrong:?}: {refused:?}"
        );
        let verified = run(&["verify", "s.db"], &right);
        assert_eq!(verified, Some((0, String::new())), "{right:?}");
    }
}

#[test]
fn what_is_in_the_way_or_not_there() {
    let place = sealed(&["--key-id", "app"]);
    let key = ["--key-id", "app"];
    let run = |words: &[&str]| place.run(&[words, &key].concat());
    run(&["sqlite", "encrypt", "plain.db", "sealed.db"]).failed(6, "SR-1002");
    run(&["sqlite", "encrypt", "plain.db", "plain.db"]).failed(2, "SR-1003");
    run(&["sqlite", "encrypt", "gone.db", "new.db"]).failed(2, "SR-1006");
    run(&["sqlite", "decrypt", "sealed.db", "plain.db"]).failed(6, "SR-1002");
    run(&["sqlite", "decrypt", "sealed.db", "sealed.db"]).failed(2, "SR-1003");
    run(&["sqlite", "decrypt", "plain.db", "new.db"]).failed(4, "SR-3001");
    run(&["sqlite", "rekey", "plain.db"]).failed(4, "SR-3001");
    run(&["sqlite", "rekey", "gone.db"]).failed(2, "SR-1006");
    run(&["verify", "plain.db"]).failed(4, "SR-3001");
    run(&["sqlite", "encrypt", "sealed.db", "new.db"]).failed(6, "SR-3011");
    place.write("noise", common::noise(9000, 5));
    assert_ne!(run(&["sqlite", "encrypt", "noise", "new.db"]).code, 0);
    place
        .run(&["sqlite", "encrypt", "plain.db", "new.db"])
        .failed(2, "SR-2041");
    place
        .run(&["sqlite", "decrypt", "sealed.db", "new.db"])
        .failed(3, "SR-2001");
    place
        .run(&["sqlite", "rekey", "sealed.db"])
        .failed(3, "SR-2001");
    place.run(&["verify", "sealed.db"]).failed(3, "SR-2001");
    run(&["sqlite", "rekey", "sealed.db", "--slots-only"]).failed(2, "SR-2019");
    place
        .run(&["sqlite", "shell", "sealed.db", "-c", "SELECT 1"])
        .failed(3, "SR-2001");
    run(&["sqlite", "shell", "plain.db", "-c", "SELECT * FROM t"]).failed(6, "SR-3008");
    let expected = ["keyring", "keyring.lock", "noise", "plain.db", "sealed.db"];
    assert_eq!(place.names(), expected);
}

#[test]
fn inspect_shows_a_sealed_database() {
    let place = sealed(&["--key-id", "app", "--page-size", "8192"]);
    let object = place
        .run(&["inspect", "sealed.db", "--json", "--png", "s.png"])
        .json();
    assert_eq!(object["kind"], "sealed-sqlite");
    let header = &object["header"];
    assert_eq!(header["page_size"], 8192);
    assert_eq!(header["page_reserve"], 32);
    assert_eq!(header["cipher"], "aes-256-gcm");
    let slot = &header["slots"][0];
    assert_eq!(
        (&slot["kind"], &slot["key_id"]),
        (&"keyring".into(), &"app".into())
    );
    assert_eq!(slot["key_version"], 1);
    assert!(!header["anchors"].as_array().is_none_or(Vec::is_empty));
    let body = object["body_entropy_bits_per_byte"].as_f64();
    assert!(body.is_some_and(|bits| bits > 7.99), "{body:?}");
    assert_eq!(object["body_offset_bytes"], 4096);
    let (width, _, _) = decoded(&place.path("s.png"));
    assert_eq!(object["png"]["width"], width);
    let text = place.run(&["inspect", "sealed.db"]).succeeded();
    assert!(
        text.contains("slot 0:     keyring key app, version 1\n"),
        "{text}"
    );
}

#[test]
fn ctr_is_offered_with_a_warning() {
    let place = Place::new();
    place.with_key();
    place.plain_database("plain.db", 3000);
    let run = place.run(&[
        "sqlite", "encrypt", "plain.db", "c.db", "--key-id", "app", "--cipher", "ctr",
    ]);
    assert!(run.err.contains("warning[SR-6008]: "), "{}", run.err);
    run.succeeded();
    opens(&place, "c.db", &["--key-id", "app"]);
    assert_eq!(
        place.run(&["inspect", "c.db", "--json"]).json()["header"]["cipher"],
        "aes-256-ctr"
    );
}

#[test]
fn verify_finds_a_sealed_database_authentic() {
    let place = sealed(&["--key-id", "app"]);
    let run = place.run(&VERIFY);
    let report = run.json();
    let shape = [
        "bad",
        "checked",
        "cipher",
        "error",
        "kind",
        "not_checked",
        "ok",
        "path",
        "rekey_under_way",
        "seals",
        "seals_limit",
    ];
    assert_eq!(members(&report), shape);
    assert_eq!(
        (&report["ok"], &report["kind"]),
        (&true.into(), &"sqlite".into())
    );
    let pages = &report["checked"][0];
    assert_eq!(members(pages), ["count", "good", "kind"]);
    assert_eq!(pages["kind"], "page");
    assert!(pages["count"].as_u64().is_some_and(|count| count > 5));
    assert_eq!(pages["count"], pages["good"]);
    run.succeeded();
}

/// An older page, an older file by its root, and what is to be done about either.
#[test]
fn freshness_finds_an_older_page_and_its_root_an_older_file() {
    let place = sealed(&["--key-id", "app", "--freshness"]);
    let first = place.run(&VERIFY).json();
    assert_eq!(first["freshness"], "holds");
    let root = first["root"].as_str().unwrap_or_default().to_owned();
    assert_eq!(root.len(), 64);
    let verify = |arguments: &[&str]| place.run(&[&VERIFY[..4], arguments].concat());
    assert!(verify(&["--expect", &root]).succeeded().contains(&root));
    let older = place.read("sealed.db");
    let update = "UPDATE t SET name='changed' WHERE id=1500";
    let shell = ["sqlite", "shell", "sealed.db", "--key-id", "app"];
    place
        .run(&[&shell[..], &["-c", update]].concat())
        .succeeded();
    verify(&["--expect", &root]).failed(4, "SR-4013");

    let newer = place.read("sealed.db");
    let page = |number: usize| number * 4096..(number + 1) * 4096;
    let changed = (2..newer.len() / 4096).find(|&n| older[page(n)] != newer[page(n)]);
    let mut mixed = newer;
    if let Some(number) = changed {
        mixed[page(number)].copy_from_slice(&older[page(number)]);
    }
    place.write("sealed.db", &mixed);
    let stale = place.run(&VERIFY);
    assert_eq!(stale.json()["freshness"], "stale");
    stale.failed(4, "SR-4012");
    let settled = verify(&["--settle"]).succeeded();
    assert!(settled.contains("made anew"), "{settled}");
    verify(&[]).succeeded();
    verify(&["--settle", "--expect", &root]).failed(2, "SR-1001");
    verify(&["--expect", "12"]).failed(2, "SR-1001");

    let without = sealed(&["--key-id", "app"]);
    let run = without.run(&["verify", "sealed.db", "--key-id", "app", "--settle"]);
    run.failed(2, "SR-4014");
}

const VERIFY: [&str; 5] = ["verify", "sealed.db", "--key-id", "app", "--json"];

#[test]
fn damaged_pages_are_named_and_never_shown() {
    let place = sealed(&["--key-id", "app"]);
    let mut bytes = place.read("sealed.db");
    bytes[4096 + 2 * 4096 + 100] ^= 1; // page 3
    bytes[4096 + 5 * 4096 - 1] ^= 1; // page 5, its last byte
    place.write("sealed.db", &bytes);
    let run = place.run(&VERIFY);
    let report = run.json();
    assert_eq!(report["ok"], false);
    let bad = report["bad"].as_array().map(|bad| {
        let found = bad
            .iter()
            .map(|unit| (unit["index"].as_u64(), unit["offset_bytes"].as_u64()));
        found.collect::<Vec<_>>()
    });
    assert_eq!(
        bad,
        Some(vec![(Some(3), Some(12_288)), (Some(5), Some(20_480))])
    );
    assert_eq!(
        members(&report["bad"][0]),
        ["code", "index", "kind", "offset_bytes"]
    );
    assert_eq!(report["bad"][0]["code"], "SR-4001");
    assert_eq!(report["error"]["code"], "SR-4001");
    assert_eq!(run.code, 4);
    let run = place.run(&["verify", "sealed.db", "--key-id", "app"]);
    assert!(
        run.out.contains("  BAD page 3 at byte 12288: SR-4001\n"),
        "{}",
        run.out
    );
    assert!(run.out.contains("  not checked: "), "{}", run.out);
    run.failed(4, "SR-4001");
    // Reading it says the same, and no rows of the damaged page are shown.
    place
        .run(&[
            "sqlite",
            "shell",
            "sealed.db",
            "--key-id",
            "app",
            "-c",
            "SELECT sum(length(name)) FROM t",
        ])
        .failed(4, "SR-4001");
    let decrypt = [
        "sqlite",
        "decrypt",
        "sealed.db",
        "out.db",
        "--key-id",
        "app",
    ];
    place.run(&decrypt).failed(4, "SR-4001");
    assert!(!place.names().iter().any(|name| name.contains("out.db")));
}

#[test]
fn a_damaged_header_is_told_apart_from_damaged_pages() {
    let place = sealed(&["--key-id", "app"]);
    let good = place.read("sealed.db");
    let mut bytes = good.clone();
    bytes[45] ^= 1;
    place.write("sealed.db", &bytes);
    let run = place.run(&VERIFY);
    assert_eq!(members(&run.json()), ["error"]);
    run.failed(4, "SR-3003");
    place.write("sealed.db", &good[..4000]);
    place.run(&VERIFY).failed(4, "SR-3006");
}

#[test]
fn rekey_changes_the_key() {
    let place = sealed(&["--key-id", "app"]);
    place.write("new.key", "bb".repeat(32));
    place.run(&["key", "create", "other"]).succeeded();
    let before = place.read("sealed.db");
    let rekey = ["sqlite", "rekey", "sealed.db", "--key-id", "app"];

    let out = place.run(&rekey).succeeded();
    assert!(out.contains("key epoch 2"), "{out}");
    assert!(place.read("sealed.db") != before);
    opens(&place, "sealed.db", &["--key-id", "app"]);

    place
        .run(&[&rekey[..], &["--new-key-id", "other"]].concat())
        .succeeded();
    opens(&place, "sealed.db", &["--key-id", "other"]);
    place
        .run(
            &[
                &["sqlite", "shell", "sealed.db", "--key-id", "app"][..],
                &COUNT,
            ]
            .concat(),
        )
        .failed(3, "SR-2002");

    let body = place.read("sealed.db").split_off(4096);
    let slots = [
        "sqlite",
        "rekey",
        "sealed.db",
        "--key-id",
        "other",
        "--new-key-file",
        "new.key",
        "--slots-only",
    ];
    assert_eq!(place.run(&slots).succeeded(), "rewrapped sealed.db\n");
    assert!(place.read("sealed.db").split_off(4096) == body);
    opens(&place, "sealed.db", &["--key-file", "new.key"]);
    place
        .run(&["verify", "sealed.db", "--key-file", "new.key"])
        .succeeded();
}

#[test]
fn the_shell_makes_a_sealed_database() {
    let place = Place::new();
    place.with_key();
    let shell = ["sqlite", "shell", "new.db", "--key-id", "app"];
    let sql = "CREATE TABLE t(x); INSERT INTO t VALUES ('plaintext canary'); SELECT * FROM t";
    let out = place.run(&[&shell[..], &["-c", sql]].concat()).succeeded();
    assert_eq!(out, "x\n----------------\nplaintext canary\n");
    assert!(!holds(&place, "new.db", b"canary"));
    assert_eq!(
        place.run(&["inspect", "new.db", "--json"]).json()["kind"],
        "sealed-sqlite"
    );
    place
        .run(&[&shell[..], &["--read-only", "-c", "DELETE FROM t"]].concat())
        .failed(5, "SR-5001");
    let out = place.run(&[
        "sqlite",
        "shell",
        "file:new.db?key_id=app",
        "-c",
        "SELECT x FROM t",
    ]);
    assert_eq!(out.succeeded(), "x\n----------------\nplaintext canary\n");
    let wrong = place.run(&[
        "sqlite",
        "shell",
        "file:new.db?key_env=ROOT",
        "-c",
        "SELECT 1",
    ]);
    wrong.failed(3, "SR-2002");
    place
        .run(&[
            "sqlite",
            "shell",
            "file:new.db",
            "--key-id",
            "app",
            "-c",
            "SELECT 1",
        ])
        .failed(2, "SR-2019");
}

#[test]
fn a_uri_uses_the_keyring_that_was_named() {
    let place = Place::new();
    let named = ["--keyring", "other.keyring"];
    place
        .run(&[&["keyring", "init", "--provider", "env:ROOT"][..], &named].concat())
        .succeeded();
    place
        .run(&[&["key", "create", "app"][..], &named].concat())
        .succeeded();
    let make = [
        "sqlite",
        "shell",
        "a.db",
        "--key-id",
        "app",
        "-c",
        "CREATE TABLE t(x)",
    ];
    place.run(&[&make[..], &named].concat()).succeeded();
    place.run(&make).failed(3, "SR-2004");
    let uri =
        |uri: &str| place.run(&[&["sqlite", "shell", uri, "-c", ".tables"][..], &named].concat());
    uri("file:a.db?key_id=app").failed(2, "SR-2019");
    assert_eq!(
        uri("file:a.db?key_id=app&keyring=other.keyring").succeeded(),
        "t\n"
    );
}

#[test]
fn no_plaintext_beside_a_sealed_database() {
    let place = Place::new();
    place.with_key();
    let sql = "PRAGMA journal_mode = wal; CREATE TABLE t(x); \
               INSERT INTO t VALUES ('plaintext canary'); BEGIN; UPDATE t SET x = x || '!';";
    let shell = ["sqlite", "shell", "new.db", "--key-id", "app", "-c"];
    // Left with a transaction open: what is on disk then must be sealed as well.
    place.run(&[&shell[..], &[sql]].concat()).succeeded();
    for name in place.names() {
        assert!(!holds(&place, &name, b"canary"), "{name}");
    }
}

/// A decryption that was stopped by Ctrl-C once left its plaintext behind under a temporary name.
#[test]
fn stopped_copy_leaves_nothing_behind() {
    let place = Place::new();
    place.with_key();
    place.plain_database("plain.db", 1_500_000);
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
    let mut command = place.command();
    command.args([
        "sqlite",
        "decrypt",
        "sealed.db",
        "out.db",
        "--key-id",
        "app",
    ]);
    let mut child = command.stderr(std::process::Stdio::null()).spawn().unwrap();
    // Until the copy has begun.
    let part = || {
        place
            .names()
            .into_iter()
            .find(|name| name.ends_with(".part"))
    };
    let begun = loop {
        if let Some(name) = part() {
            break name;
        }
        assert!(
            child.try_wait().unwrap().is_none(),
            "it ended before it was seen"
        );
        std::thread::yield_now();
    };
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(place.path(&begun)).unwrap().permissions(),
    );
    assert_eq!(
        mode & 0o077,
        0,
        "nobody else may read a decryption under way"
    );
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert!(!child.wait().unwrap().success());
    assert_eq!(place.names(), before);
}
