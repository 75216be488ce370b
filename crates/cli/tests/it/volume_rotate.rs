//! Goal: keys of a volume change while its data stay what they are, and whatever stops the change,
//! the volume opens and the same command finishes. Method: cryptsetup(8) encrypts known bytes in
//! place, on plain files, and our own reader of LUKS2 takes them out again; strace(1) kills the
//! command at calls that write.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use crate::common;

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use common::{Place, noise};
use strongroom_crypto::SecretBytes;
use strongroom_luks2::{Slots, unlock};

/// Bytes of data in the volumes.
const DATA: usize = 2 << 20;

fn cryptsetup(place: &Place, arguments: &[&str]) {
    let ran = Command::new("cryptsetup")
        .args(arguments)
        .current_dir(place.path(""))
        .output()
        .unwrap();
    let err = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{arguments:?}: {err}");
}

/// A volume `v` with known data, a passphrase in `pass`, the key `app`, and a recovery key in
/// `recovery`.
fn place() -> Place {
    let place = Place::new();
    place.with_key();
    place.write("pass", "of a person");
    let mut plain = noise(DATA, 42);
    plain.resize(DATA + (32 << 20), 0);
    place.write("v", &plain);
    let encrypt = [
        "reencrypt",
        "-q",
        "--encrypt",
        "--type",
        "luks2",
        "--reduce-device-size",
        "32M",
        "--force-offline-reencrypt",
        "--pbkdf",
        "pbkdf2",
        "--pbkdf-force-iterations",
        "1001",
        "--key-file",
        "pass",
        "v",
    ];
    cryptsetup(&place, &encrypt);
    // What is behind the known bytes only costs time.
    let file = fs::OpenOptions::new()
        .write(true)
        .open(place.path("v"))
        .unwrap();
    file.set_len((16 << 20) + DATA as u64).unwrap();
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
    place
        .run(&[
            "volume",
            "enroll",
            "v",
            "recovery",
            "--recovery-out",
            "recovery",
        ])
        .succeeded();
    place
}

/// The data, read with the recovery key by the implementation of LUKS2 that does without
/// libcryptsetup.
fn data(place: &Place) -> Vec<u8> {
    let mut recovery = place.read("recovery");
    recovery.truncate(71);
    let recovery = SecretBytes::take(&mut recovery).unwrap();
    let file = strongroom_luks2::open_locked(&place.path("v"), true).unwrap();
    let found = strongroom_luks2::read(&file).unwrap();
    let key = unlock(&file, &found.header, &recovery, &Slots::default()).unwrap();
    let volume = strongroom_luks2::Volume::open(file, &found, &key, true).unwrap();
    let mut plain = vec![0; DATA];
    let mut at = 0;
    while at < DATA {
        at += volume.read(&mut plain[at..], at as u64).unwrap();
    }
    plain
}

fn slot_of(place: &Place, kind: &str) -> String {
    let status = place.run(&["volume", "status", "v", "--json"]).json();
    let slots = status["slots"].as_array().unwrap();
    let slot = slots.iter().find(|slot| slot["kind"] == kind).unwrap();
    slot["slot"].to_string()
}

fn copied(place: &Place, from: &str, to: &str) {
    let copy = Command::new("cp")
        .args(["-a", "--sparse=always"])
        .arg(place.path(from))
        .arg(place.path(to))
        .status();
    assert!(copy.unwrap().success());
}

fn opens(place: &Place, more: &[&str]) -> bool {
    let usual = ["volume", "open", "v", "--test"];
    place.run(&[&usual[..], more].concat()).code == 0
}

const SLOTS_ONLY: &[&str] = &["volume", "rotate", "v", "--slots-only"];
const WHOLE: &[&str] = &[
    "volume",
    "rotate",
    "v",
    "--recovery-file",
    "recovery",
    "--passphrase-file",
    "pass",
];

#[test]
fn another_key_for_the_slot() {
    let place = place();
    let before = place.read("v");
    let said = place.run(SLOTS_ONLY).succeeded();
    assert!(
        said.contains("key version 2 opens the volume, version 1 no longer"),
        "{said}"
    );
    let after = place.read("v");
    let offset = place.run(&["volume", "status", "v", "--json"]).json()["data_offset"]
        .as_u64()
        .unwrap();
    let offset = usize::try_from(offset).unwrap();
    assert!(before[offset..] == after[offset..], "data changed");
    assert!(opens(&place, &[]) && opens(&place, &["--recovery-file", "recovery"]));
    let status = place.run(&["volume", "status", "v", "--json"]).json();
    assert_eq!(
        (
            &status["key_version"],
            status["slots"].as_array().unwrap().len()
        ),
        (&2.into(), 3)
    );
}

#[test]
fn another_volume_key() {
    let place = place();
    assert!(data(&place) == noise(DATA, 42), "the fixture");
    let before = place.read("v");
    place.run(&["volume", "rotate", "v"]).failed(2, "SR-8338");
    place
        .run(&["volume", "rotate", "v", "--recovery-file", "recovery"])
        .failed(2, "SR-8338");
    assert!(place.read("v") == before, "a refusal changed something");
    place.run(WHOLE).succeeded();
    let after = place.read("v");
    let offset = place.run(&["volume", "status", "v", "--json"]).json()["data_offset"]
        .as_u64()
        .unwrap();
    let offset = usize::try_from(offset).unwrap();
    assert!(
        before[offset..offset + 4096] != after[offset..offset + 4096],
        "the same ciphertext"
    );
    assert!(
        opens(&place, &[])
            && opens(&place, &["--recovery-file", "recovery"])
            && opens(&place, &["--passphrase-file", "pass"])
    );
    assert!(data(&place) == noise(DATA, 42), "data are lost");
    // The header from before no longer opens the data that are there now: its key is another one.
    let status = place.run(&["volume", "status", "v", "--json"]).json();
    assert_eq!(status["slots"].as_array().unwrap().len(), 3);
    assert_eq!(status["reencrypting"], false);
    // A new recovery key, and the passphrase given up.
    let slot = slot_of(&place, "passphrase");
    let again = [
        "volume",
        "rotate",
        "v",
        "--new-recovery",
        "--recovery-out",
        "recovery-2",
        "--drop",
        &slot,
    ];
    place.run(&again).succeeded();
    assert!(opens(&place, &[]) && opens(&place, &["--recovery-file", "recovery-2"]));
    assert!(
        !opens(&place, &["--recovery-file", "recovery"])
            && !opens(&place, &["--passphrase-file", "pass"])
    );
    copied(&place, "recovery-2", "recovery");
    assert!(data(&place) == noise(DATA, 42), "data are lost");
}

/// Runs the command until its call `at` of this group; false when it ended before.
fn killed(place: &Place, group: &str, at: u32, arguments: &[&str]) -> bool {
    place.killed_at(&["-f"], group, at, arguments)
}

/// How many calls of the group a whole run makes.
fn calls(place: &Place, group: &str, arguments: &[&str]) -> u32 {
    let mut strace = Command::new("strace");
    strace
        .args(["-f", "-qq", "-o"])
        .arg(place.path("calls"))
        .arg("-e")
        .arg(format!("trace={group}"));
    let output = place.under(strace, arguments).output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8_lossy(&place.read("calls")).into_owned();
    u32::try_from(text.lines().count()).unwrap()
}

const WRITES: &str = "?write,?pwrite64,?writev,?pwritev";
const SYNCS: &str = "?fsync,?fdatasync,?rename,?renameat,?renameat2,?unlink";

/// Points to kill at: at most `most`, evenly over all calls, with the last ones all.
fn points(calls: u32, most: u32) -> BTreeSet<u32> {
    let even = (0..most).map(|at| 1 + at * calls / most);
    even.chain(calls.saturating_sub(5)..=calls)
        .filter(|at| *at > 0)
        .collect()
}

fn start_again(place: &Place, files: &[&str]) {
    for file in files {
        copied(place, &format!("{file}.before"), file);
    }
}

#[test]
fn killed_while_the_slots_key_changes() {
    let place = place();
    // The keyring goes back with its lock file, which knows the newest one.
    let files = ["v", "keyring", "keyring.lock"];
    for file in files {
        copied(&place, file, &format!("{file}.before"));
    }
    let mut kills = 0;
    for group in [WRITES, SYNCS] {
        start_again(&place, &files);
        let calls = calls(&place, group, SLOTS_ONLY);
        for at in points(calls, 5) {
            start_again(&place, &files);
            if killed(&place, group, at, SLOTS_ONLY) {
                kills += 1;
            }
            let place_of = format!("{group} {at} of {calls}");
            assert!(opens(&place, &[]), "{place_of}");
            place.run(SLOTS_ONLY).succeeded();
            assert!(opens(&place, &[]), "{place_of}");
            let status = place.run(&["volume", "status", "v", "--json"]).json();
            let slots = status["slots"].as_array().unwrap().len();
            assert!(status["key_version"].as_u64() >= Some(2), "{place_of}");
            assert_eq!(slots, 3, "{place_of}: {status}");
        }
    }
    assert!(opens(&place, &["--recovery-file", "recovery"]));
    assert!(kills > 10, "{kills}");
}

/// The key opens it, but near the end, where `repair` mends it and opening it would; the same
/// command finishes, too.
fn finishes(place: &Place, at: &str) -> bool {
    let mended = !opens(place, &[]);
    copied(place, "v", "v.killed");
    if mended {
        let repaired = place.run(&["volume", "repair", "v"]);
        assert_eq!(repaired.code, 0, "{at}: {}", repaired.err);
        place.run(&["volume", "repair", "v"]).failed(6, "SR-8331");
        assert!(
            data(place) == noise(DATA, 42),
            "{at}: data are lost by repair"
        );
        copied(place, "v.killed", "v");
    }
    let run = place.run(WHOLE);
    assert_eq!(run.code, 0, "{at}: {}", run.err);
    assert!(
        opens(place, &[]) && opens(place, &["--passphrase-file", "pass"]),
        "{at}"
    );
    let status = place.run(&["volume", "status", "v", "--json"]).json();
    assert_eq!(
        (
            &status["reencrypting"],
            status["slots"].as_array().unwrap().len()
        ),
        (&false.into(), 3),
        "{at}: {status}"
    );
    assert!(data(place) == noise(DATA, 42), "{at}: data are lost");
    mended
}

fn killed_while_the_volume_key_changes(points: impl Fn(u32) -> BTreeSet<u32>) {
    let place = place();
    copied(&place, "v", "v.before");
    let calls = calls(&place, WRITES, WHOLE);
    let (mut kills, mut mended) = (0, 0);
    let points = points(calls);
    for at in &points {
        start_again(&place, &["v"]);
        kills += u32::from(killed(&place, WRITES, *at, WHOLE));
        mended += u32::from(finishes(&place, &format!("write {at} of {calls}")));
    }
    assert!(kills >= 4, "{kills} of {points:?}");
    assert!(mended > 0, "the end was not hit: {calls} writes");
}

/// While data move; when all have moved; when some of the old key's slots are gone; when all are.
#[test]
fn killed_at_some_writes_while_the_volume_key_changes() {
    killed_while_the_volume_key_changes(|calls| {
        [59, 62, 68, 80, 93]
            .map(|percent| calls * percent / 100)
            .into()
    });
}

#[test]
#[ignore = "minutes; run by `make test-volume`"]
fn killed_at_every_write_while_the_volume_key_changes() {
    killed_while_the_volume_key_changes(|calls| (1..=calls).collect());
}

#[test]
fn killed_while_a_volume_is_made() {
    let place = Place::new();
    place.with_key();
    fs::File::create(place.path("v"))
        .unwrap()
        .set_len(20 << 20)
        .unwrap();
    let create = ["volume", "create", "v", "--key-id", "app", "--no-recovery"];
    copied(&place, "v", "v.before");
    let mut whole = 0;
    for group in ["?pwrite64,?ftruncate", "?fsync,?fdatasync"] {
        start_again(&place, &["v"]);
        let calls = calls(&place, group, &create);
        for at in points(calls, 6) {
            start_again(&place, &["v"]);
            killed(&place, group, at, &create);
            let status = place.run(&["volume", "status", "v"]);
            if status.code == 0 {
                // A volume that is there is whole.
                assert!(opens(&place, &[]), "{group} {at}");
                whole += 1;
            } else {
                status.failed(4, "SR-8322");
                let again = place.run(&create);
                assert_eq!(again.code, 0, "{group} {at}: {}", again.err);
            }
        }
    }
    assert!(whole > 0);
    // A new file has its name when it is complete.
    let create = [
        "volume",
        "create",
        "new",
        "--key-id",
        "app",
        "--no-recovery",
        "--size",
        "20M",
    ];
    for at in [1, 2, 3] {
        drop(fs::remove_file(place.path("new")));
        if killed(&place, "?fsync", at, &create) {
            assert!(
                !place.path("new").exists()
                    || place.run(&["volume", "open", "new", "--test"]).code == 0
            );
        }
    }
}
