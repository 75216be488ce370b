//! The life of a keyring and its keys on the command line.
//!
//! Method: the real binary with an environment provider; JSON shapes member by member.

use crate::common;

use std::os::unix::fs::PermissionsExt as _;

use common::{Place, members};

const OTHER: &str = "ff0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1eff";

#[test]
fn from_init_to_retirement() {
    let place = Place::new();
    let out = place
        .run(&["keyring", "init", "--provider", "env:ROOT"])
        .succeeded();
    assert_eq!(out, "keyring keyring\n");
    let mode = std::fs::metadata(place.path("keyring"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    place
        .run(&["keyring", "init", "--provider", "env:ROOT"])
        .failed(6, "SR-2015");

    let run = place.run(&["key", "create", "app"]);
    assert_eq!(run.out, "key app version 1\n");
    assert!(run.err.starts_with("warning[SR-2022]: "), "{}", run.err);
    assert!(run.err.contains("strongroom keyring export"), "{}", run.err);
    assert_eq!(run.code, 0);
    place.run(&["key", "create", "app"]).failed(6, "SR-2014");
    place
        .run(&["key", "create", "no/slash"])
        .failed(2, "SR-2013");
    place.run(&["key", "rotate", "nobody"]).failed(3, "SR-2003");
    assert_eq!(
        place.run(&["key", "rotate", "app"]).succeeded(),
        "key app version 2\n"
    );
    assert_eq!(
        place.run(&["key", "retire", "app"]).succeeded(),
        "key app retired\n"
    );

    let list = place.run(&["key", "list", "--json"]).json();
    assert_eq!(members(&list), ["keys"]);
    let keys = list["keys"].as_array().unwrap();
    assert_eq!(keys.len(), 2);
    let shape = ["created", "created_unix_s", "name", "state", "version"];
    assert_eq!(members(&keys[0]), shape);
    assert_eq!(
        (&keys[1]["name"], &keys[1]["version"]),
        (&"app".into(), &2.into())
    );
    assert!(keys.iter().all(|key| key["state"] == "retired"));
    let text = place.run(&["key", "list"]).succeeded();
    assert_eq!(text.lines().count(), 3);
    assert!(text.starts_with("NAME  VERSION  STATE    CREATED\napp   1        retired  20"));
}

#[test]
fn status_needs_no_root_key() {
    let place = Place::new();
    place.with_key();
    let mut command = place.command();
    command
        .env_remove("ROOT")
        .args(["keyring", "status", "--json"]);
    let output = command.output().unwrap();
    assert!(output.status.success());
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let shape = [
        "certificates",
        "created",
        "created_unix_s",
        "exported",
        "generation",
        "keys",
        "object_id",
        "path",
        "provider",
        "provider_argument",
    ];
    assert_eq!(members(&status), shape);
    assert_eq!(
        (&status["provider"], &status["provider_argument"]),
        (&"env".into(), &"ROOT".into())
    );
    assert_eq!(status["exported"], false);
    assert_eq!(status["keys"].as_array().unwrap().len(), 1);
    let text = place.run(&["keyring", "status"]).succeeded();
    assert!(text.contains("\nprovider:   env:ROOT\n"), "{text}");
    assert!(text.ends_with("\nexported:   no\n"), "{text}");

    let mut command = place.command();
    command.env_remove("ROOT").args(["key", "create", "b"]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .starts_with("error[SR-2008]: ")
    );
}

#[test]
fn which_keyring_is_used() {
    let place = Place::new();
    place.with_key();
    place
        .run(&[
            "keyring",
            "init",
            "--keyring",
            "second",
            "--provider",
            "env:ROOT",
        ])
        .succeeded();
    let count = |arguments: &[&str]| {
        let list = place
            .run(&[&["key", "list", "--json"], arguments].concat())
            .json();
        list["keys"].as_array().map(Vec::len)
    };
    assert_eq!(count(&[]), Some(1));
    assert_eq!(count(&["--keyring", "second"]), Some(0));
    place
        .run(&["--keyring", "third", "key", "list"])
        .failed(3, "SR-2004");
    // Without the variable, and with an empty one: the default path.
    let mut command = place.command();
    command
        .env("STRONGROOM_KEYRING", "")
        .args(["keyring", "init", "--provider", "env:ROOT"]);
    assert!(command.output().unwrap().status.success());
    assert!(place.path("data/strongroom/keyring").exists());
}

#[test]
fn export_and_import_carry_the_keys() {
    let place = Place::new();
    place.with_key();
    place.write("safe.key", OTHER);
    place
        .run(&["keyring", "export", "--out", "e"])
        .failed(2, "SR-2044");
    let out = place
        .run(&["keyring", "export", "--out", "e", "--key-file", "safe.key"])
        .succeeded();
    assert_eq!(out, "exported 1 key versions to e\n");
    place
        .run(&["keyring", "export", "--out", "e", "--key-file", "safe.key"])
        .failed(6, "SR-1002");
    assert_eq!(
        place.run(&["keyring", "status", "--json"]).json()["exported"],
        true
    );
    // A new key is in no export.
    place.run(&["key", "create", "late"]).succeeded();
    assert_eq!(
        place.run(&["keyring", "status", "--json"]).json()["exported"],
        false
    );

    let to = |arguments: &[&str]| place.run(&[arguments, &["--keyring", "other"]].concat());
    to(&["keyring", "init", "--provider", "env:ROOT"]).succeeded();
    to(&["keyring", "import", "e", "--key-env", "ROOT"]).failed(3, "SR-2002");
    to(&["keyring", "import", "gone", "--key-env", "ROOT"]).failed(2, "SR-1006");
    let import = ["keyring", "import", "e", "--key-file", "safe.key"];
    let out = to(&import).succeeded();
    assert_eq!(
        out,
        "added app version 1 (active)\n1 added, 0 there already\n"
    );
    assert_eq!(to(&import).succeeded(), "0 added, 1 there already\n");
    // The same name and version with another key.
    let to = |arguments: &[&str]| place.run(&[arguments, &["--keyring", "third"]].concat());
    to(&["keyring", "init", "--provider", "env:ROOT"]).succeeded();
    to(&["key", "create", "app"]).succeeded();
    to(&import).failed(6, "SR-2021");
}

#[test]
fn the_root_key_can_be_changed() {
    let place = Place::new();
    place.with_key();
    place.write("new.key", OTHER);
    let run = place.run(&["keyring", "rotate-root"]);
    assert!(
        run.err
            .contains("note: the provider delivered the same root key"),
        "{}",
        run.err
    );
    run.succeeded();
    let run = place.run(&["keyring", "rotate-root", "--provider", "file:new.key"]);
    assert_eq!(run.err, "");
    assert_eq!(run.succeeded(), "root rotated keyring\n");
    place.run(&["key", "create", "after"]).succeeded();
    place.write("new.key", common::ROOT);
    place.run(&["key", "create", "more"]).failed(3, "SR-2006");
    place
        .run(&["keyring", "rotate-root", "--provider", "rot13:x"])
        .failed(2, "SR-2020");
}

#[test]
fn verify_opens_a_keyring_and_finds_damage() {
    let place = Place::new();
    place.with_key();
    let run = place.run(&["verify", "keyring", "--json"]);
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
    ];
    assert_eq!(members(&report), shape);
    assert_eq!(
        (&report["kind"], &report["ok"]),
        (&"keyring".into(), &true.into())
    );
    assert_eq!(report["checked"][0]["count"], 1);
    assert!(!report["not_checked"].as_array().unwrap().is_empty());
    run.succeeded();

    let mut bytes = place.read("keyring");
    let last = bytes.len() - 40;
    bytes[last] ^= 1;
    place.write("damaged", bytes);
    let run = place.run(&["verify", "damaged", "--json"]);
    assert_eq!(run.json()["error"]["code"], "SR-2005");
    run.failed(4, "SR-2005");
    place.write("plain", "just text, and more of it");
    place.run(&["verify", "plain"]).failed(4, "SR-3001");
    place.run(&["verify", "gone"]).failed(2, "SR-1006");
}

#[test]
fn no_secret_is_shown() {
    let place = Place::new();
    place.with_key();
    let outputs = [
        place.run(&["keyring", "status"]),
        place.run(&["key", "list"]),
        place.run(&["inspect", "keyring"]),
        place.run(&["verify", "keyring"]),
        place.run(&[
            "keyring",
            "init",
            "--keyring",
            "k2",
            "--provider",
            common::ROOT,
        ]),
        place.run(&[
            "keyring",
            "init",
            "--keyring",
            "k2",
            "--provider",
            "command:exit 3",
        ]),
    ];
    for run in outputs {
        let shown = format!("{}{}", run.out, run.err);
        assert!(!shown.contains(&common::ROOT[..16]), "{shown}");
    }
}

#[test]
fn an_export_that_nobody_could_open_is_not_made() {
    let place = Place::new();
    place.with_key();
    let export = |more: &[&str]| place.run(&[&["keyring", "export", "--out"][..], more].concat());
    // A key of the keyring would be lost with it.
    let told = export(&["e", "--key-id", "app"]).failed(2, "SR-2044");
    assert!(told.contains("--ask"), "{told}");
    let told = export(&["no/e", "--key-env", "ROOT"]).failed(2, "SR-1006");
    assert!(told.contains("the directory no"), "{told}");
    place
        .run(&["keyring", "import", "e", "--key-id", "app"])
        .failed(2, "SR-2044");
    let mut hasty = place.command();
    hasty.env("STRONGROOM_KEY_COMMAND_TIMEOUT", "abc");
    hasty.args(["keyring", "export", "--out", "e", "--key-command", "echo x"]);
    let output = hasty.output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("error[SR-2043]") && told.contains("1 to 3600"));
    assert!(!place.path("e").exists());
}

/// A key file counts to its last byte, binary or not, up to 64 KiB; a longer one is refused and
/// not cut.
#[test]
fn a_key_file_counts_whole_or_is_refused() {
    let place = Place::new();
    place.with_key();
    for (length, name) in [(33, "short"), (1025, "beyond"), (64 * 1024, "longest")] {
        let mut bytes = common::noise(length, 7);
        place.write("key", &bytes);
        place
            .run(&["keyring", "export", "--out", name, "--key-file", "key"])
            .succeeded();
        let import = ["keyring", "import", name, "--key-file", "key"];
        place.run(&import).succeeded();
        // Another last byte, which is no line end in either.
        *bytes.last_mut().unwrap() ^= 0x80;
        assert!(!bytes.ends_with(b"\n"));
        place.write("key", &bytes);
        place.run(&import).failed(3, "SR-2002");
    }
    place.write("key", common::noise(64 * 1024 + 2, 7));
    place
        .run(&["keyring", "export", "--out", "e", "--key-file", "key"])
        .failed(3, "SR-2011");
    assert!(!place.path("e").exists());
}

/// The sealing VFS asks the keyring while it opens a database, and the user does not see SQLite's
/// log.
#[test]
fn an_older_keyring_is_told_of_by_commands_that_open_databases() {
    let place = Place::new();
    place.with_key();
    let older = place.read("keyring");
    place.plain_database("plain.db", 10);
    let key = ["--key-id", "app"];
    let encrypt = ["sqlite", "encrypt", "plain.db", "sealed.db"];
    place.run(&[&encrypt, &key[..]].concat()).succeeded();
    place.run(&["key", "create", "another"]).succeeded();
    place.write("keyring", &older);
    for command in [
        &["sqlite", "shell", "sealed.db", "-c", "select 1"][..],
        &["verify", "sealed.db"],
        &["sqlite", "decrypt", "sealed.db", "opened.db"],
    ] {
        let done = place.run(&[command, &key[..]].concat());
        assert_eq!(done.code, 0, "{command:?}: {}", done.err);
        let said = done.err.matches("SR-2040").count();
        assert_eq!(said, 1, "{command:?}: {}", done.err);
    }
}
