//! `volume attach`, `volume detach` and `inspect` of volumes, by the real binary.
//!
//! Method: volumes made by cryptsetup and by `volume create`; the process that serves is killed;
//! headers are damaged.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use crate::common;

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::process::{Command, Stdio};

use common::{Place, noise};

const PASS: &str = "correct horse";

/// A volume with `PASS`, cheap to open, made by cryptsetup.
fn volume(place: &Place, name: &str, options: &[&str]) {
    place.write("pass", PASS);
    File::create(place.path(name))
        .unwrap()
        .set_len(20 << 20)
        .unwrap();
    let done = Command::new("cryptsetup")
        .args([
            "luksFormat",
            "-q",
            "--type",
            "luks2",
            "--pbkdf",
            "pbkdf2",
            "--pbkdf-force-iterations",
            "1000",
        ])
        .args(options)
        .args(["--key-file", "pass", name])
        .current_dir(place.path("."))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
}

/// Detaches at the end, whatever happened.
struct Attached<'a>(&'a Place);

impl Drop for Attached<'_> {
    fn drop(&mut self) {
        drop(self.0.command().args(["volume", "detach", "mnt"]).output());
    }
}

#[test]
fn a_volume_is_attached_written_detached_and_attached_again() {
    let place = Place::new();
    volume(&place, "v.img", &[]);
    std::fs::create_dir(place.path("mnt")).unwrap();
    let _attached = Attached(&place);
    let attach = [
        "volume",
        "attach",
        "--passphrase-file",
        "pass",
        "--",
        "v.img",
        "mnt",
    ];
    let shown = place.run(&attach).succeeded();
    assert_eq!(shown.trim(), "mnt/volume");
    let file = OpenOptions::new()
        .write(true)
        .open(place.path("mnt/volume"))
        .unwrap();
    file.write_all_at(b"written through the command", 12_345)
        .unwrap();
    file.sync_all().unwrap();
    // In use, twice over, and in no other place.
    place.run(&["volume", "detach", "mnt"]).failed(6, "SR-8308");
    place.run(&attach).failed(2, "SR-8310");
    std::fs::create_dir(place.path("other")).unwrap();
    let second = [
        "volume",
        "attach",
        "v.img",
        "other",
        "--passphrase-file",
        "pass",
    ];
    place.run(&second).failed(6, "SR-8308");
    drop(file);
    place.run(&["volume", "detach", "mnt"]).succeeded();
    place.run(&["volume", "detach", "mnt"]).failed(2, "SR-8310");
    let sealed = place.read("v.img");
    let clear = b"written through the command";
    assert!(!sealed.windows(clear.len()).any(|window| window == clear));

    place
        .run(&[
            "volume",
            "attach",
            "v.img",
            "mnt",
            "--passphrase-file",
            "pass",
            "--read-only",
        ])
        .succeeded();
    let there = std::fs::read(place.path("mnt/volume")).unwrap();
    assert!(there[12_345..].starts_with(clear));
    assert!(
        OpenOptions::new()
            .write(true)
            .open(place.path("mnt/volume"))
            .is_err()
    );
    place.run(&["volume", "detach", "mnt"]).succeeded();
}

/// What would change or read an image, on one that is attached.
const VERBS: [&[&str]; 11] = [
    &[
        "volume",
        "create",
        "v.img",
        "--key-id",
        "app",
        "--no-recovery",
        "--overwrite",
    ],
    &[
        "volume",
        "create",
        "v.img",
        "--key-id",
        "app",
        "--no-recovery",
        "--overwrite",
        "--wipe",
    ],
    &[
        "volume",
        "shred",
        "v.img",
        "--confirm",
        "00000000-0000-0000-0000-000000000000",
    ],
    &["volume", "rotate", "v.img"],
    &["volume", "repair", "v.img"],
    &[
        "volume",
        "enroll",
        "v.img",
        "recovery",
        "--recovery-out",
        "r",
    ],
    &["volume", "status", "v.img"],
    &["volume", "open", "--test", "v.img"],
    &["volume", "backup", "v.img", "--out", "header"],
    &["volume", "attach", "v.img", "mnt"],
    &["volume", "unenroll", "v.img", "recovery"],
];

/// Whatever is asked for, an image that is attached is not changed, and no command waits for it
/// without limit.
#[test]
fn an_attached_image_is_not_destroyed_and_nothing_hangs_on_it() {
    let place = Place::new();
    place.with_key();
    let create = [
        "volume",
        "create",
        "v.img",
        "--key-id",
        "app",
        "--provider",
        "keyring",
    ];
    let made = [&create[..], &["--size", "24M", "--no-recovery"]].concat();
    place.run(&made).succeeded();
    std::fs::create_dir(place.path("mnt")).unwrap();
    let _attached = Attached(&place);
    place.run(&["volume", "attach", "v.img", "mnt"]).succeeded();
    let file = OpenOptions::new()
        .write(true)
        .open(place.path("mnt/volume"))
        .unwrap();
    file.write_all_at(b"a file system", 0).unwrap();
    file.sync_all().unwrap();
    let before = place.read("v.img");
    let mountpoint = place.path("mnt").canonicalize().unwrap();
    place.write("new.pass", "another passphrase");
    for verb in VERBS {
        let begun = std::time::Instant::now();
        let ended = place.run(verb);
        // Five seconds of waiting, and time for a busy machine.
        assert!(
            begun.elapsed().as_secs() < 60,
            "{verb:?} took {:?}",
            begun.elapsed()
        );
        assert_ne!(ended.code, 0, "{verb:?}: {}", ended.out);
        if verb[1] != "attach" {
            assert!(ended.err.contains("SR-8320"), "{verb:?}: {}", ended.err);
            assert!(
                ended.err.contains("process "),
                "{verb:?} names it: {}",
                ended.err
            );
            // What ends it can be typed as it is shown.
            let detach = format!("`strongroom volume detach {}`", mountpoint.display());
            assert!(ended.err.contains(&detach), "{verb:?}: {}", ended.err);
        }
        assert!(place.read("v.img") == before, "{verb:?} changed the image");
    }
    drop(file);
    place.run(&["volume", "detach", "mnt"]).succeeded();
    place.run(&["volume", "status", "v.img"]).succeeded();
}

#[test]
fn a_process_that_was_killed_leaves_a_mount_that_detaches() {
    let place = Place::new();
    volume(&place, "v.img", &[]);
    std::fs::create_dir(place.path("mnt")).unwrap();
    let _attached = Attached(&place);
    let words = [
        "volume",
        "attach",
        "v.img",
        "mnt",
        "--passphrase-file",
        "pass",
        "--foreground",
    ];
    let mut serving = place.command().args(words).spawn().unwrap();
    let begun = std::time::Instant::now();
    while !place.path("mnt/volume").exists() {
        assert!(begun.elapsed().as_secs() < 120, "nothing was attached");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let file = OpenOptions::new()
        .write(true)
        .open(place.path("mnt/volume"))
        .unwrap();
    file.write_all_at(b"synced", 0).unwrap();
    file.sync_all().unwrap();
    serving.kill().unwrap();
    serving.wait().unwrap();
    drop(file);
    place.run(&["volume", "detach", "mnt"]).succeeded();
    place
        .run(&[
            "volume",
            "attach",
            "v.img",
            "mnt",
            "--passphrase-file",
            "pass",
        ])
        .succeeded();
    assert!(
        std::fs::read(place.path("mnt/volume"))
            .unwrap()
            .starts_with(b"synced")
    );
}

#[test]
fn what_cannot_be_attached_is_refused_by_name() {
    let place = Place::new();
    volume(&place, "v.img", &[]);
    std::fs::create_dir(place.path("mnt")).unwrap();
    std::fs::create_dir(place.path("full")).unwrap();
    place.write("full/file", "x");
    place.write("wrong", "wrong");
    place.write("plain", noise(1 << 20, 3));
    let attach = |volume: &str, at: &str, pass: &str| {
        place.run(&["volume", "attach", volume, at, "--passphrase-file", pass])
    };
    let _attached = Attached(&place);
    attach("v.img", "mnt", "wrong").failed(3, "SR-8306");
    attach("v.img", "full", "pass").failed(2, "SR-8310");
    attach("v.img", "nowhere", "pass").failed(2, "SR-8310");
    attach("plain", "mnt", "pass").failed(4, "SR-8300");
    attach("missing", "mnt", "pass").failed(2, "SR-1006");
    place
        .run(&["volume", "attach", "v.img", "mnt"])
        .failed(3, "SR-2001");
    // One copy damaged: attached for reading only, and not repaired.
    let mut image = place.read("v.img");
    image[4200] ^= 1;
    place.write("one.img", &image);
    let run = attach("one.img", "mnt", "pass");
    assert!(run.err.contains("SR-8309"), "{}", run.err);
    run.succeeded();
    assert!(
        OpenOptions::new()
            .write(true)
            .open(place.path("mnt/volume"))
            .is_err()
    );
    place.run(&["volume", "detach", "mnt"]).succeeded();
    assert!(place.read("one.img") == image);
    image[4200 + (16 << 10)] ^= 1;
    place.write("two.img", &image);
    attach("two.img", "mnt", "pass").failed(4, "SR-8302");
    assert!(
        std::fs::read_dir(place.path("mnt"))
            .unwrap()
            .next()
            .is_none()
    );
}

/// The key that a token names, of the keyring.
#[test]
fn a_volume_of_volume_create_attaches_by_its_token() {
    let place = Place::new();
    place.with_key();
    let words = [
        "volume",
        "create",
        "v.img",
        "--size",
        "20M",
        "--key-id",
        "app",
        "--provider",
        "keyring",
        "--recovery-out",
        "recovery",
    ];
    place.run(&words).succeeded();
    std::fs::create_dir(place.path("mnt")).unwrap();
    let _attached = Attached(&place);
    place
        .run(&["volume", "attach", "v.img", "mnt", "--provider", "keyring"])
        .succeeded();
    let file = OpenOptions::new()
        .write(true)
        .open(place.path("mnt/volume"))
        .unwrap();
    file.write_all_at(b"by token", 4096).unwrap();
    drop(file);
    place.run(&["volume", "detach", "mnt"]).succeeded();
    place
        .run(&[
            "volume",
            "attach",
            "v.img",
            "mnt",
            "--recovery-file",
            "recovery",
        ])
        .succeeded();
    assert!(std::fs::read(place.path("mnt/volume")).unwrap()[4096..].starts_with(b"by token"));
    place.run(&["volume", "detach", "mnt"]).succeeded();
    let object = place.run(&["inspect", "v.img", "--json"]).json();
    let token = object["luks"]["tokens"]
        .as_array()
        .unwrap()
        .iter()
        .find(|token| token["kind"] == "strongroom");
    let token = token.unwrap();
    assert_eq!(token["key_id"], "app");
    assert_eq!(token["provider"], "keyring");
    assert_eq!(token["object_id"].as_str().unwrap().len(), 32);
}

#[test]
fn inspect_says_who_may_open_a_volume() {
    let place = Place::new();
    volume(
        &place,
        "v.img",
        &["--label", "the label", "--sector-size", "512"],
    );
    let object = place.run(&["inspect", "v.img", "--json"]).json();
    assert_eq!(object["kind"], "luks2");
    let luks = &object["luks"];
    assert_eq!(luks["label"], "the label");
    assert_eq!(luks["segments"][0]["cipher"], "aes-xts-plain64");
    assert_eq!(luks["segments"][0]["sector_size"], 512);
    assert_eq!(luks["slots"][0]["opener"], "passphrase");
    assert_eq!(luks["slots"][0]["kdf"], "pbkdf2-sha256, 1000 iterations");
    assert_eq!(luks["used"], "primary");
    assert_eq!(luks["reencryption"], false);
    let text = place.run(&["inspect", "v.img"]).succeeded();
    for expected in [
        "encrypted volume (LUKS2)",
        "the label",
        "aes-xts-plain64, sectors of 512 bytes",
        "slot 0:",
    ] {
        assert!(text.contains(expected), "{expected} not in: {text}");
    }
    let token = r#"{"type":"somebody-else","keyslots":["0"]}"#;
    place.write("token", token);
    cryptsetup(
        &place,
        &["token", "import", "--json-file", "token", "v.img"],
    );
    cryptsetup(
        &place,
        &[
            "reencrypt",
            "-q",
            "--init-only",
            "--pbkdf",
            "pbkdf2",
            "--pbkdf-force-iterations",
            "1000",
            "--key-file",
            "pass",
            "v.img",
        ],
    );
    let luks = place.run(&["inspect", "v.img", "--json"]).json()["luks"].clone();
    assert_eq!(luks["reencryption"], true);
    assert_eq!(luks["requirements"][0], "online-reencrypt-v2");
    assert_eq!(luks["slots"][0]["opener"], "somebody-else");
    std::fs::create_dir(place.path("mnt")).unwrap();
    place
        .run(&[
            "volume",
            "attach",
            "v.img",
            "mnt",
            "--passphrase-file",
            "pass",
        ])
        .failed(6, "SR-8304");
}

/// Both copies gone: what is left is noise, and that is all that can be said.
#[test]
fn inspect_says_no_more_of_noise_than_it_can_know() {
    let place = Place::new();
    volume(&place, "v.img", &[]);
    let mut image = place.read("v.img");
    image[5000] ^= 1;
    image[5000 + (16 << 10)] ^= 1;
    place.write("damaged.img", &image);
    place.run(&["inspect", "damaged.img"]).failed(4, "SR-8302");
    place.write("shredded.img", noise(8 << 20, 9));
    let object = place.run(&["inspect", "shredded.img", "--json"]).json();
    assert_eq!(
        (&object["kind"], &object["uniform"]),
        (&"unknown".into(), &true.into())
    );
    let text = place.run(&["inspect", "shredded.img"]).succeeded();
    assert!(text.contains("nobody can tell by what"), "{text}");
    let compressed_like: Vec<u8> = noise(1 << 20, 4)
        .iter()
        .map(|byte| byte & 0xfe | byte >> 7 & byte)
        .collect();
    place.write("uneven", compressed_like);
    let object = place.run(&["inspect", "uneven", "--json"]).json();
    assert_eq!(object["uniform"], false);
}

fn cryptsetup(place: &Place, words: &[&str]) {
    let mut command = Command::new("cryptsetup");
    command
        .args(words)
        .current_dir(place.path("."))
        .stdin(Stdio::null());
    let done = command.output().unwrap();
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
}
