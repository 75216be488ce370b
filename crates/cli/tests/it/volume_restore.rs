//! Goal: a header that was lost comes back from its backup, and nothing else is lost by that.
//! Method: the real command on plain files; headers destroyed in parts and whole, backups damaged,
//! of other volumes and of other times; strace(1) kills the command at each write.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use crate::common;

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::process::Command;

use common::{Place, Run, noise};

const HEADER: usize = 16 << 20;
/// Length of one copy of the header.
const COPY: usize = 16 << 10;

/// A volume `v` with a recovery key and noise for data, and a backup `h` of its header.
fn made() -> Place {
    let place = Place::new();
    place.with_key();
    create(&place, "v", "recovery");
    place
        .run(&["volume", "backup", "v", "--out", "h"])
        .succeeded();
    place
}

fn create(place: &Place, name: &str, recovery: &str) {
    let words = ["volume", "create", name, "--key-id", "app", "--size", "18M"];
    let recovery = ["--recovery-out", recovery];
    place.run(&[&words[..], &recovery].concat()).succeeded();
    put(place, name, HEADER, &noise(2 << 20, 5));
}

fn put(place: &Place, name: &str, at: usize, bytes: &[u8]) {
    let file = fs::File::options()
        .write(true)
        .open(place.path(name))
        .unwrap();
    file.write_all_at(bytes, at as u64).unwrap();
}

fn restore(place: &Place, more: &[&str]) -> Run {
    let usual = ["volume", "restore", "v", "--from", "h"];
    place.run(&[&usual[..], more].concat())
}

fn opens(place: &Place) -> bool {
    let recovery = ["--recovery-file", "recovery"];
    let test = ["volume", "open", "v", "--test"];
    place.run(&test).code == 0 && place.run(&[&test[..], &recovery].concat()).code == 0
}

fn uuid(place: &Place, name: &str) -> String {
    let status = place.run(&["volume", "status", name, "--json"]).json();
    status["uuid"].as_str().unwrap().to_owned()
}

/// The command fails so, and nothing of the device has changed.
#[track_caller]
fn refused(place: &Place, more: &[&str], exit: i32, sr: &str) -> String {
    let before = place.read("v");
    let told = restore(place, more).failed(exit, sr);
    assert!(place.read("v") == before, "the device has changed");
    told
}

#[test]
fn whatever_of_a_header_is_destroyed_comes_back() {
    let place = made();
    let good = place.read("v");
    let zeros = |len: usize| vec![0; len];
    let slots = 2 * COPY + 4096;
    for (what, at, bytes) in [
        ("both copies", 0, zeros(2 * COPY)),
        ("the texts of both copies", 4096, noise(2 * COPY - 4096, 1)),
        ("all of it", 0, noise(HEADER, 3)),
        ("a key slot", slots, noise(4096, 4)),
        ("every key slot", 2 * COPY, zeros(HEADER - 2 * COPY)),
        ("one bit of the first", 5000, vec![good[5000] ^ 1]),
    ] {
        put(&place, "v", at, &bytes);
        restore(&place, &[]).succeeded();
        assert!(opens(&place), "{what}");
        assert!(
            place.read("v") == good,
            "{what}: header and data are as they were"
        );
    }
    // What opens it is tried in memory; what does not, changes nothing.
    put(&place, "v", 0, &zeros(2 * COPY));
    place.write("wrong", "a passphrase");
    refused(&place, &["--passphrase-file", "wrong"], 3, "SR-2002");
    let run = restore(&place, &["--recovery-file", "recovery", "--json"]);
    let told = run.json();
    run.succeeded();
    assert_eq!((&told["slot"], &told["bytes"]), (&1.into(), &HEADER.into()));
    // The key is not to be had now: what was checked is put back where nothing is lost by it.
    let without = || {
        let mut without = place.command();
        without.args(["volume", "restore", "v", "--from", "h"]);
        let output = without.env_remove("ROOT").output().unwrap();
        (output.status, String::from_utf8(output.stderr).unwrap())
    };
    let (status, said) = without();
    assert!(
        !status.success() && said.contains("whose header is whole"),
        "{said}"
    );
    put(&place, "v", 0, &zeros(2 * COPY));
    let (status, said) = without();
    assert!(
        status.success() && said.contains("was not opened with its key"),
        "{said}"
    );
    assert!(place.read("v") == good);
}

#[test]
fn a_backup_of_another_volume_goes_only_where_the_one_that_is_lost_was_named() {
    let place = made();
    create(&place, "w", "recovery-w");
    let (ours, theirs) = (uuid(&place, "v"), uuid(&place, "w"));
    let of_v = place.read("h");
    fs::remove_file(place.path("h")).unwrap();
    place
        .run(&["volume", "backup", "w", "--out", "h"])
        .succeeded();
    let told = refused(&place, &[], 6, "SR-8353");
    assert!(told.contains(&ours) && told.contains(&theirs), "{told}");
    refused(&place, &["--overwrite"], 6, "SR-8353");
    refused(&place, &["--confirm", &theirs], 6, "SR-8353");
    // What is left of a header says too whose it was, in either copy.
    let good = place.read("v");
    for at in [4096, 0] {
        put(&place, "v", at, &vec![0xa5; COPY - at]);
        put(&place, "v", COPY + 4096, &vec![0xa5; COPY - 4096]);
        let told = refused(&place, &[], 6, "SR-8353");
        assert!(told.contains(&ours), "{told}");
    }
    place.write("v", good);
    restore(&place, &["--confirm", &ours]).succeeded();
    assert_eq!(uuid(&place, "v"), theirs);
    // And back.
    place.write("h", of_v);
    restore(&place, &["--confirm", &theirs.to_uppercase()]).succeeded();
    assert!(opens(&place));
}

#[test]
fn a_backup_that_is_damaged_cut_off_or_something_else_is_refused() {
    let place = made();
    let good = place.read("h");
    let changed = |places: &[usize]| {
        let mut bytes = good.clone();
        for at in places {
            bytes[*at] ^= 1;
        }
        bytes
    };
    let mut longer = good.clone();
    longer.extend_from_slice(&[0; 4096]);
    let bad: [(&str, Vec<u8>); 8] = [
        ("both texts", changed(&[5000, COPY + 5000])),
        ("both checksums", changed(&[450, COPY + 450])),
        ("both magics", changed(&[0, COPY])),
        ("cut in the key slots", good[..HEADER / 2].to_vec()),
        ("cut in the header", good[..5000].to_vec()),
        ("nothing", Vec::new()),
        ("noise", noise(HEADER, 6)),
        ("more than a header", longer),
    ];
    for (what, bytes) in bad {
        place.write("h", bytes);
        let told = refused(&place, &[], 4, "SR-8354");
        assert!(told.contains("h:"), "{what}: {told}");
    }
    // Key slots have no checksum: that they are damaged shows when they are opened.
    place.write("h", changed(&[2 * COPY + 4096]));
    refused(&place, &[], 3, "SR-2002");
    place
        .run(&["volume", "restore", "v", "--from", "absent"])
        .failed(2, "SR-1006");
    // One copy stands for the other.
    for at in [5000, COPY + 5000] {
        put(&place, "v", 0, &vec![0; 2 * COPY]);
        place.write("h", changed(&[at]));
        let run = restore(&place, &[]);
        assert!(run.err.contains("SR-8309"), "{}", run.err);
        run.succeeded();
        assert!(opens(&place), "{at}");
    }
}

#[test]
fn a_backup_from_before_the_volume_key_was_changed_would_lose_the_data() {
    let place = made();
    // Another version of the key, other slots: the volume key is the same.
    place
        .run(&["volume", "rotate", "v", "--slots-only"])
        .succeeded();
    restore(&place, &[]).succeeded();
    assert!(opens(&place));
    let rotate = ["volume", "rotate", "v", "--recovery-file", "recovery"];
    place.run(&rotate).succeeded();
    let told = refused(&place, &[], 6, "SR-8353");
    assert!(told.contains("volume key was changed"), "{told}");
    assert!(opens(&place));
    let ours = uuid(&place, "v");
    restore(&place, &["--confirm", &ours]).succeeded();
}

#[test]
fn what_was_made_over_a_volume_and_what_is_in_use_stays() {
    let place = made();
    let made = Command::new("mkfs.ext4")
        .arg("-qF")
        .arg(place.path("v"))
        .status();
    assert!(made.unwrap().success());
    let told = refused(&place, &[], 6, "SR-8353");
    assert!(
        told.contains("ext") && told.contains("--overwrite"),
        "{told}"
    );
    restore(&place, &["--overwrite"]).succeeded();
    assert!(opens(&place));
    // As `volume attach` and cryptsetup lock it.
    let mut lock = Command::new("flock");
    let plain = place.command();
    lock.arg("--exclusive")
        .arg(place.path("v"))
        .arg(plain.get_program())
        .args(["volume", "restore", "v", "--from", "h"])
        .current_dir(place.path(""))
        .env("STRONGROOM_KEYRING", "keyring")
        .env("ROOT", common::ROOT);
    let output = lock.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("error[SR-8320]"), "{said}");
    let file = fs::File::options()
        .write(true)
        .open(place.path("v"))
        .unwrap();
    file.set_len(HEADER as u64).unwrap();
    refused(&place, &[], 2, "SR-8326");
}

#[test]
fn killed_at_any_write_it_leaves_no_header_or_the_whole_one_and_the_same_command_finishes() {
    let place = made();
    let good = place.read("v");
    let mut states = [0, 0];
    // strace counts each call by itself.
    for group in ["pwrite64", "fsync"] {
        for at in 1.. {
            put(&place, "v", 0, &noise(2 * COPY, 8));
            if !killed(&place, group, at) {
                assert!(place.read("v") == good, "{group} {at}");
                break;
            }
            let whole = place.read("v") == good;
            states[usize::from(whole)] += 1;
            // The second copy is there before the first one, and all that it speaks of before both.
            if place.run(&["volume", "status", "v"]).code == 0 {
                assert!(opens(&place), "{group} {at}");
            }
            restore(&place, &[]).succeeded();
            assert!(place.read("v") == good, "{group} {at}");
        }
    }
    assert!(states[0] > 5 && states[1] > 0, "{states:?}");
}

/// Runs the command until its call number `at` of this sort; whether it came so far.
fn killed(place: &Place, group: &str, at: u32) -> bool {
    place.killed_at(
        &["-f"],
        group,
        at,
        &["volume", "restore", "v", "--from", "h"],
    )
}
