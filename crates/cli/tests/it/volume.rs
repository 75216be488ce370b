//! Goal: volumes are LUKS2 that cryptsetup(8) reads, open with what they were made for and with
//! nothing else, and are never made over something. Method: the real command on plain files, which
//! needs no device-mapper; cryptsetup as the second implementation.
//!
//! What the kernel maps is tested in the virtual machine: docs/internals/testing-volumes.md.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use crate::common;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use common::{Place, noise};

const RECOVERY: &str = "recovery";

fn place() -> Place {
    let place = Place::new();
    place.with_key();
    place
}

fn create<'a>(file: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let usual = ["volume", "create", file, "--key-id", "app"];
    [&usual[..], more].concat()
}

/// A volume `v` of 24 MiB, with a recovery key.
fn made() -> Place {
    let place = place();
    place
        .run(&create("v", &["--size", "24M", "--recovery-out", RECOVERY]))
        .succeeded();
    place
}

/// Whether cryptsetup opens `file` with the passphrase in `key`.
fn cryptsetup_opens(place: &Place, file: &str, key: &str) -> bool {
    let ran = Command::new("cryptsetup")
        .args(["open", "--test-passphrase", "--type", "luks2", "--key-file"])
        .arg(place.path(key))
        .arg(place.path(file))
        .output()
        .unwrap();
    ran.status.success()
}

fn cryptsetup(place: &Place, arguments: &[&str]) -> String {
    let ran = Command::new("cryptsetup")
        .args(arguments)
        .current_dir(place.path(""))
        .output()
        .unwrap();
    let err = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{arguments:?}: {err}");
    String::from_utf8(ran.stdout).unwrap()
}

fn opens(place: &Place, file: &str, more: &[&str]) -> bool {
    let usual = ["volume", "open", file, "--test"];
    place.run(&[&usual[..], more].concat()).code == 0
}

/// libcryptsetup has the system's libcrypto; ours is linked in. Neither may use the other's
/// functions.
#[test]
fn the_command_exports_no_symbol_of_its_libcrypto() {
    let nm = Command::new("nm")
        .args(["-D", "--defined-only", env!("CARGO_BIN_EXE_strongroom")])
        .output()
        .unwrap();
    assert!(nm.status.success());
    let text = String::from_utf8(nm.stdout).unwrap();
    let names = text
        .lines()
        .filter_map(|line| line.split_whitespace().last());
    let prefixes = [
        "EVP_", "CRYPTO_", "OPENSSL_", "ERR_", "OSSL_", "AES_", "BIO_", "RAND_", "sqlite3_",
    ];
    let bad: Vec<&str> = names
        .filter(|name| prefixes.iter().any(|prefix| name.starts_with(prefix)))
        .collect();
    assert!(bad.is_empty(), "{} symbols: {:?}", bad.len(), bad.first());
    let needed = Command::new("ldd")
        .arg(env!("CARGO_BIN_EXE_strongroom"))
        .output()
        .unwrap();
    let needed = String::from_utf8(needed.stdout).unwrap();
    assert!(needed.contains("libcryptsetup.so.12"), "{needed}");
}

#[test]
fn cryptsetup_reads_what_is_made() {
    let place = place();
    let run = place.run(&create(
        "v",
        &[
            "--size",
            "24M",
            "--label",
            "data-7",
            "--recovery-out",
            RECOVERY,
            "--json",
        ],
    ));
    let made = run.json();
    run.succeeded();
    assert_eq!(made["key_id"], "app");
    assert_eq!(made["recovery_key"], true);
    let mode = fs::metadata(place.path(RECOVERY))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let mode = fs::metadata(place.path("v")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    assert!(cryptsetup_opens(&place, "v", RECOVERY));
    let dump = cryptsetup(&place, &["luksDump", "v"]);
    for line in [
        "Label:         \tdata-7",
        "cipher: aes-xts-plain64",
        "offset: 16777216 [bytes]",
        "0: strongroom",
        "1: systemd-recovery",
        "pbkdf2",
        "argon2id",
    ] {
        assert!(dump.contains(line), "{line:?} not in {dump}");
    }
    let token = cryptsetup(&place, &["token", "export", "--token-id", "0", "v"]);
    let token: serde_json::Value = serde_json::from_str(&token).unwrap();
    assert_eq!(token["object_id"], made["object_id"]);
    assert_eq!(
        (&token["key_id"], &token["key_version"]),
        (&"app".into(), &"1".into())
    );
    assert_eq!(
        (&token["provider"], &token["version"]),
        (&"keyring".into(), &1.into())
    );

    and_so_do_we(&place, &made);
}

fn and_so_do_we(place: &Place, made: &serde_json::Value) {
    assert!(opens(place, "v", &[]));
    assert!(opens(place, "v", &["--recovery-file", RECOVERY]));
    let status = place.run(&["volume", "status", "v", "--json"]).json();
    assert_eq!(status["uuid"], made["uuid"]);
    let kinds: Vec<_> = status["slots"]
        .as_array()
        .unwrap()
        .iter()
        .map(|slot| slot["kind"].clone())
        .collect();
    assert_eq!(kinds, ["strongroom", "recovery"]);
    assert_eq!(
        (&status["reencrypting"], &status["mapping"]),
        (&false.into(), &serde_json::Value::Null)
    );
    let listed = place.run(&["volume", "list", "v", "--json"]).json();
    let found = listed["volumes"]
        .as_array()
        .unwrap()
        .iter()
        .any(|volume| volume["uuid"] == made["uuid"]);
    assert!(found, "{listed}");
    // Nothing of the key, and nothing under another name, is left beside it.
    let mut names = place.names();
    names.retain(|name| name != "key-for-cryptsetup" && !name.starts_with("keyring"));
    assert_eq!(names, [RECOVERY, "v"]);
}

#[test]
fn what_cryptsetup_made_opens_and_takes_a_key() {
    let place = place();
    fs::File::create(place.path("v"))
        .unwrap()
        .set_len(24 << 20)
        .unwrap();
    place.write("pass", "of a person");
    let format = [
        "luksFormat",
        "-q",
        "--type",
        "luks2",
        "--pbkdf",
        "argon2id",
        "--pbkdf-memory",
        "32768",
        "--pbkdf-force-iterations",
        "4",
        "--key-file",
        "pass",
        "v",
    ];
    cryptsetup(&place, &format);
    place
        .run(&["volume", "open", "v", "--test"])
        .failed(4, "SR-8323");
    assert!(opens(&place, "v", &["--passphrase-file", "pass"]));
    let enroll = [
        "volume",
        "enroll",
        "v",
        "keyring",
        "--key-id",
        "app",
        "--passphrase-file",
        "pass",
    ];
    place.run(&enroll).succeeded();
    assert!(opens(&place, "v", &[]));
    assert!(cryptsetup_opens(&place, "v", "pass"));
    place.run(&["key", "create", "other"]).succeeded();
    // Another key: the token names it, and the slot that is not named stays until it is removed.
    let enroll = ["volume", "enroll", "v", "keyring", "--key-id", "other"];
    place.run(&enroll).succeeded();
    let status = place.run(&["volume", "status", "v", "--json"]).json();
    assert_eq!(status["key_id"], "other");
    assert!(opens(&place, "v", &[]));
}

#[test]
fn nothing_is_made_over_something() {
    let place = place();
    let refused = |file: &str, sr: &str, exit: i32, more: &[&str]| {
        let before = fs::read(place.path(file)).unwrap_or_default();
        let mut more = more.to_vec();
        more.push("--no-recovery");
        place.run(&create(file, &more)).failed(exit, sr);
        assert_eq!(
            fs::read(place.path(file)).unwrap_or_default(),
            before,
            "{file}"
        );
    };
    let image = fs::File::create(place.path("ext4")).unwrap();
    image.set_len(32 << 20).unwrap();
    let made = Command::new("mkfs.ext4")
        .args(["-q"])
        .arg(place.path("ext4"))
        .status();
    assert!(made.unwrap().success());
    refused("ext4", "SR-8321", 6, &[]);
    place.plain_database("db", 10);
    refused("db", "SR-8326", 2, &[]);
    fs::File::create(place.path("small"))
        .unwrap()
        .set_len(16 << 20)
        .unwrap();
    refused("small", "SR-8326", 2, &[]);
    refused("absent", "SR-1006", 2, &[]);
    refused("ext4", "SR-1002", 6, &["--size", "24M"]);
    refused("new", "SR-8337", 2, &["--size", "24M", "--label", "a/b"]);
    refused(
        "new",
        "SR-8326",
        2,
        &["--size", "24M", "--sector-size", "600"],
    );
    assert!(!place.path("new").exists());
    // No terminal, and nowhere else for the recovery key: nothing is made, no key either.
    let mut setsid = Command::new("setsid");
    let plain = place.command();
    setsid.arg("-w").arg(plain.get_program()).args([
        "volume", "create", "new", "--key-id", "fresh", "--size", "24M",
    ]);
    setsid
        .current_dir(place.path(""))
        .env("STRONGROOM_KEYRING", "keyring")
        .env("ROOT", common::ROOT);
    assert_eq!(
        setsid
            .stdin(std::process::Stdio::null())
            .status()
            .unwrap()
            .code(),
        Some(2)
    );
    assert!(!place.path("new").exists());
    let keys = place.run(&["key", "list"]).succeeded();
    assert!(!keys.contains("fresh"), "{keys}");

    place
        .run(&create("ext4", &["--overwrite", "--no-recovery"]))
        .succeeded();
    assert!(opens(&place, "ext4", &[]));
    let blkid = Command::new("blkid")
        .args(["-p"])
        .arg(place.path("ext4"))
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&blkid.stdout).contains("crypto_LUKS"));
    refused("ext4", "SR-8321", 6, &[]);
}

/// A disk that was in use: what it held lies below the new volume until that is said, or it is
/// overwritten.
#[test]
fn what_a_device_held_before_is_told_of_or_overwritten() {
    let place = place();
    let old = b"card 4929 1234 5678 9012;".repeat(1 << 20);
    let made = |more: &[&str]| {
        place.write("disk", &old[..24 << 20]);
        let more = [&["--no-recovery", "--json"], more].concat();
        let run = place.run(&create("disk", &more));
        let left = run.json()["old_data_left"].as_bool().unwrap();
        let told = run.err.contains("SR-8341");
        run.succeeded();
        assert!(opens(&place, "disk", &[]));
        let there = place.read("disk");
        let found = there.windows(9).any(|bytes| bytes == b"4929 1234");
        (left, told, found)
    };
    assert_eq!(made(&[]), (true, true, true));
    assert_eq!(made(&["--wipe"]), (false, false, false));
    // Zeros were never anything.
    place.write("disk", vec![0; 24 << 20]);
    let run = place.run(&create("disk", &["--no-recovery", "--json"]));
    assert_eq!(run.json()["old_data_left"], false);
    assert!(!run.err.contains("SR-8341"));
}

#[test]
fn wrong_keys_and_damaged_headers_are_told_apart() {
    let place = made();
    place.write(
        "wrong",
        "cccccccc-cccccccc-cccccccc-cccccccc-cccccccc-cccccccc-cccccccc-cccccccc\n",
    );
    let open = |more: &[&str]| place.run(&[&["volume", "open", "v", "--test"][..], more].concat());
    open(&["--recovery-file", "wrong"]).failed(3, "SR-2002");
    open(&["--passphrase-file", "wrong"]).failed(3, "SR-2002");
    place.write("short", "cccc");
    open(&["--recovery-file", "short"]).failed(3, "SR-8361");
    let other = Place::new();
    other.with_key();
    let mut foreign = place.command();
    foreign.env("STRONGROOM_KEYRING", other.path("keyring"));
    let run = foreign
        .args(["volume", "open", "v", "--test"])
        .output()
        .unwrap();
    assert_eq!(run.status.code(), Some(3));

    // The first header damaged: the second serves. Both: refused.
    let good = place.read("v");
    let mut one = good.clone();
    one[100] ^= 1;
    place.write("v", &one);
    open(&[]).succeeded();
    let mut both = good;
    both[5000] ^= 1;
    both[16_384 + 5000] ^= 1;
    place.write("v", &both);
    open(&[]).failed(4, "SR-8322");
    place.write("v", noise(24 << 20, 7));
    open(&[]).failed(4, "SR-8322");
}

#[test]
fn openers_come_and_go_and_the_last_ones_stay() {
    let place = made();
    place.write("pass", "a passphrase\n");
    // cryptsetup takes a file as it is, with the end of its line.
    place.write("bare", "a passphrase");
    place.write("second", "another");
    let enroll = |what: &str, more: &[&str]| {
        place.run(&[&["volume", "enroll", "v", what][..], more].concat())
    };
    let unenroll = |which: &str, more: &[&str]| {
        place.run(&[&["volume", "unenroll", "v", which][..], more].concat())
    };
    enroll("passphrase", &["--new-passphrase-file", "pass"]).succeeded();
    assert!(
        opens(&place, "v", &["--passphrase-file", "pass"]) && cryptsetup_opens(&place, "v", "bare")
    );
    enroll(
        "passphrase",
        &[
            "--new-passphrase-file",
            "second",
            "--passphrase-file",
            "wrong",
        ],
    )
    .failed(3, "SR-2007");
    unenroll("recovery", &[]).failed(6, "SR-8325");
    enroll("recovery", &["--recovery-out", "recovery-2"]).succeeded();
    unenroll("1", &[]).succeeded();
    assert!(!opens(&place, "v", &["--recovery-file", RECOVERY]));
    assert!(opens(&place, "v", &["--recovery-file", "recovery-2"]));
    unenroll("recovery", &[]).failed(6, "SR-8325");
    unenroll("recovery", &["--force"]).succeeded();
    unenroll("recovery", &["--force"]).failed(2, "SR-8330");
    unenroll("passphrase", &[]).succeeded();
    unenroll("0", &["--force"]).failed(6, "SR-8325");
    assert!(opens(&place, "v", &[]));
    let dump = cryptsetup(&place, &["luksDump", "v"]);
    assert!(!dump.contains("systemd-recovery"), "{dump}");
}

#[test]
fn without_device_mapper_it_says_so() {
    if common::has_device_mapper() {
        eprintln!("this host has device-mapper; what is mapped is tested in the virtual machine");
        return;
    }
    let place = made();
    place
        .run(&["volume", "open", "v", "x"])
        .failed(5, "SR-8327");
    place
        .run(&["volume", "open", "v", "a/b"])
        .failed(2, "SR-8337");
    place.run(&["volume", "close", "x"]).failed(2, "SR-1006");
    place.run(&["volume", "swap", "v"]).failed(6, "SR-8321");
    place.write(
        "table",
        "[[volume]]\nname = \"x\"\ndevice = \"v\"\nopeners = [\"keyring\", \"passphrase\"]\n",
    );
    let unlock = [
        "volume",
        "unlock",
        "--no-prompt",
        "--table",
        "table",
        "--json",
    ];
    let run = place.run(&unlock);
    let json = run.json();
    assert_eq!(json["error"]["code"], "SR-8336");
    let entry = &json["entries"][0];
    assert_eq!(
        (
            &entry["unlocked"],
            entry["failures"].as_array().unwrap().len()
        ),
        (&false.into(), 2)
    );
    run.failed(3, "SR-8336");
    place.write("table", "[[volume]]\nname = \"x\"\ndevice = \"absent\"\ndevice_timeout_seconds = 1\nopeners = [\"keyring\"]\n");
    place.run(&unlock).failed(3, "SR-8336");
    place.write("table", "[[volume]]\nname = \"x\"\n");
    place.run(&unlock).failed(2, "SR-8335");
}

/// A comparison has no numbers to tell, and is one JSON object all the same.
#[test]
fn a_comparison_of_trees_is_json_when_it_is_asked_for() {
    let place = Place::new();
    for tree in ["from", "to"] {
        fs::create_dir(place.path(tree)).unwrap();
        place.write(&format!("{tree}/file"), "text");
        for name in ["file", ""] {
            let entry = fs::File::open(place.path(tree).join(name)).unwrap();
            entry.set_modified(std::time::UNIX_EPOCH).unwrap();
        }
    }
    let compare = ["volume", "migrate", "from", "to", "--compare"];
    assert_eq!(place.run(&compare).succeeded(), "alike\n");
    let json = [&compare[..], &["--json"]].concat();
    let run = place.run(&json);
    assert_eq!(run.json(), serde_json::json!({"alike": true}));
    run.succeeded();
    place.write("to/file", "other");
    let run = place.run(&json);
    assert_eq!(run.json()["error"]["code"], "SR-8334");
    run.failed(4, "SR-8334");
}

/// As the system starts, with a keyring that does not answer: its file is a pipe that nobody writes
/// to.
#[test]
fn a_keyring_that_hangs_does_not_hold_the_start_up() {
    let place = made();
    place.write(
        "table",
        "[[volume]]\nname = \"x\"\ndevice = \"v\"\nopeners = [\"keyring\"]\ntimeout_seconds = 1\n",
    );
    let unlock = |keyring: &str| {
        let began = std::time::Instant::now();
        let all = [
            "--keyring",
            keyring,
            "volume",
            "unlock",
            "--no-prompt",
            "--table",
            "table",
            "--json",
        ];
        let run = place.run(&all);
        assert!(began.elapsed() < std::time::Duration::from_secs(20));
        let why = run.json()["entries"][0]["failures"][0].to_string();
        run.failed(3, "SR-8336");
        why
    };
    let fifo = Command::new("mkfifo").arg(place.path("pipe")).status();
    assert!(fifo.unwrap().success());
    let why = unlock("pipe");
    assert!(why.contains("did not deliver it within 1 s"), "{why}");
}

/// Before, the advice was --key-file, --key-env and --key-command, which the command does not have.
#[test]
fn what_create_lacks_is_named_by_its_own_options() {
    let place = place();
    let mut session = Command::new("setsid");
    session.arg("--wait");
    let options = create("v", &["--size", "24M"]);
    let output = place.under(session, &options).output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("error[SR-8357]"), "{told}");
    let help = place.run(&["volume", "create", "--help"]).succeeded();
    let named: Vec<&str> = told
        .split([' ', ';', ',', '`'])
        .filter(|word| word.starts_with("--"))
        .collect();
    assert_eq!(named, ["--recovery-out", "--no-recovery"], "{told}");
    assert!(named.iter().all(|option| help.contains(option)), "{help}");
    assert!(!place.path("v").exists());
    let told = place
        .run(&create("absent", &["--recovery-out", RECOVERY]))
        .failed(2, "SR-1006");
    assert!(told.contains("--size SIZE"), "{told}");
    assert!(!place.path(RECOVERY).exists());
    // A failure after the key was shown leaves nothing that a second attempt meets.
    let unknown = ["--size", "24M", "--cipher", "no-such-cipher"];
    let unknown = create("v", &[&unknown[..], &["--recovery-out", RECOVERY]].concat());
    assert_ne!(place.run(&unknown).code, 0);
    assert!(!place.path("v").exists() && !place.path(RECOVERY).exists());
    place
        .run(&create("v", &["--size", "24M", "--recovery-out", RECOVERY]))
        .succeeded();
}

#[test]
fn what_is_no_volume_is_told_as_that() {
    let place = Place::new();
    place.write("short", "no volume");
    place.write("zeros", vec![0; 24 << 20]);
    fs::create_dir(place.path("directory")).unwrap();
    for path in ["short", "zeros", "directory"] {
        for verb in ["status", "repair"] {
            let told = place.run(&["volume", verb, path]).failed(4, "SR-8322");
            assert!(!told.contains("os error"), "{verb} {path}: {told}");
        }
    }
    place
        .run(&["volume", "status", "none"])
        .failed(2, "SR-1006");
}

#[test]
fn shredded_is_noise() {
    let place = made();
    let uuid = place.run(&["volume", "status", "v", "--json"]).json()["uuid"]
        .as_str()
        .unwrap()
        .to_owned();
    let shred = |uuid: &str| place.run(&["volume", "shred", "v", "--confirm", uuid, "--json"]);
    let told = shred("x").failed(6, "SR-8359");
    assert!(told.contains(&uuid), "{told}");
    assert!(opens(&place, "v", &[]));
    let run = shred(&uuid);
    let record = run.json();
    run.succeeded();
    assert_eq!(record["uuid"], uuid.as_str());
    assert_eq!(record["slots_destroyed"], serde_json::json!([0, 1]));
    assert_eq!(record["overwritten_bytes"], 16 << 20);
    assert_eq!(record["key_destroyed"], false);
    assert_eq!(record["key_state"], "kept");
    assert!(record["remains"].as_array().unwrap().len() >= 3);
    let head = &place.read("v")[..16 << 20];
    let longest = head
        .split(|byte| *byte != 0)
        .map(<[u8]>::len)
        .max()
        .unwrap();
    assert!(longest < 8, "{longest} zeros in a row");
    place.run(&["volume", "status", "v"]).failed(4, "SR-8322");
    assert!(!cryptsetup_opens(&place, "v", RECOVERY));
}
