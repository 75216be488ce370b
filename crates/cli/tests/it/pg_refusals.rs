//! Goal: with a wrong key or none, a damaged header, or anything else that is not as it must be,
//! nothing starts, nothing is changed, and one error says why.
//!
//! Method: an instance is spoilt in one way after another; each time every byte of the data
//! directory is compared before and after, for `strongroom pg start` and for a start with nothing
//! but the library.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use crate::instance;

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use strongroom_format::header::header_layout;

use instance::{OTHER, Place, Run, bindir, give_unchanged, is_root, run};

const HEADER: &str = "data/strongroom.header";

/// What a start must end with.
struct Refusal {
    exit: i32,
    code: &'static str,
}

const fn refusal(exit: i32, code: &'static str) -> Refusal {
    Refusal { exit, code }
}

/// Neither way of starting changes anything; both name the code, the library in one line of the
/// server's log.
#[track_caller]
fn refused(place: &Place, expected: &Refusal) {
    let before = place.everything("data");
    place.start(&[]).ended_with(expected.exit, expected.code);
    unattended_refused(place, expected.code);
    assert!(
        before == place.everything("data"),
        "{}: something was changed",
        expected.code
    );
}

#[track_caller]
fn unattended_refused(place: &Place, code: &str) {
    drop(fs::remove_file(place.path("log")));
    let started = place.start_unattended();
    assert_eq!(started.code, 1, "{}{}", started.out, started.err);
    let log = place.log();
    // A key command that fails may say so in a line of its own before.
    let own: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("strongroom: "))
        .collect();
    assert_eq!(own.len(), 1, "{log}");
    assert!(
        own[0].starts_with(&format!("strongroom: {code}: ")),
        "{log}"
    );
    assert!(
        !log.contains("LOG:"),
        "the server came as far as its own log: {log}"
    );
}

fn configured(place: &Place, line: &str) {
    place.write("data/strongroom.conf", &format!("{line}\n"));
}

#[test]
fn keys_that_are_wrong_missing_or_not_to_be_had() {
    let place = Place::with_instance();
    configured(&place, "key_file = /nonexistent/key");
    refused(&place, &refusal(3, "SR-2007"));
    configured(
        &place,
        &format!("key_file = {}", place.path("other").display()),
    );
    refused(&place, &refusal(3, "SR-2002"));
    configured(&place, "# nothing");
    refused(&place, &refusal(3, "SR-2001"));
    configured(&place, "key_env = NOT_SET_ANYWHERE");
    refused(&place, &refusal(3, "SR-2008"));
    configured(&place, "key_command = exit 3");
    refused(&place, &refusal(3, "SR-2009"));
    configured(&place, "key_command = printf ''");
    refused(&place, &refusal(3, "SR-2011"));
    configured(&place, "key_command = head -c 100000 /dev/urandom");
    refused(&place, &refusal(3, "SR-2011"));
    configured(&place, "key_command = echo encryptionkey=0123");
    refused(&place, &refusal(3, "SR-2011"));
    configured(&place, "key_command = echo not the key at all");
    refused(&place, &refusal(3, "SR-2002"));
    configured(&place, "key_fiel = /k");
    refused(&place, &refusal(2, "SR-7007"));
    configured(&place, "key_file = /k\nkey_env = K");
    refused(&place, &refusal(2, "SR-2019"));
    configured(&place, "key_id = app\nkeyring = /nonexistent");
    refused(&place, &refusal(3, "SR-2004"));
    // And the right one still starts it.
    configured(
        &place,
        &format!("key_file = {}", place.path("key").display()),
    );
    place.start_unattended().succeeded();
    place.stop();
}

#[test]
fn a_key_command_that_hangs_is_given_up() {
    let place = Place::with_instance();
    configured(&place, "key_command = sleep 600");
    let before = place.everything("data");
    let begun = Instant::now();
    let hasty = |command: &mut Command| run(command.env("STRONGROOM_KEY_COMMAND_TIMEOUT", "1"));
    hasty(&mut place.command(&["pg", "start", "-D", "data", "-l", "log"])).ended_with(3, "SR-2010");
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert!(before == place.everything("data"));
}

#[test]
fn options_are_tried_before_the_configuration() {
    let place = Place::with_instance();
    let before = place.everything("data");
    place
        .start(&["--key-file", "other"])
        .ended_with(3, "SR-2002");
    place
        .start(&["--key-file", "nowhere"])
        .ended_with(3, "SR-2007");
    let wrong = |arguments: &[&str]| run(place.command(arguments).env("PGENCRYPTIONKEY", OTHER));
    wrong(&["pg", "start", "-D", "data"]).ended_with(3, "SR-2002");
    wrong(&["pg", "controldata", "-D", "data"]).ended_with(3, "SR-2002");
    wrong(&["pg", "run", "-D", "data", "--", "true"]).ended_with(3, "SR-2002");
    wrong(&["pg", "rotate", "-D", "data"]).ended_with(3, "SR-2002");
    wrong(&["pg", "decrypt", "-D", "data"]).ended_with(3, "SR-2002");
    assert!(before == place.everything("data"));
}

#[test]
fn headers_that_are_missing_damaged_or_of_another_instance() {
    let place = Place::with_instance();
    let path = place.path(HEADER);
    let good = fs::read(&path).unwrap();
    let spoilt = |bytes: &[u8], expected: &Refusal| {
        place.overwrite(HEADER, bytes);
        refused(&place, expected);
    };
    spoilt(&good[..1000], &refusal(4, "SR-3006"));
    spoilt(b"", &refusal(4, "SR-3006"));
    for at in [40, 200, 1000, 3000] {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        spoilt(&bytes, &refusal(4, "SR-3003"));
    }
    let mut newer = good.clone();
    newer[header_layout::VERSION.offset] = 2;
    spoilt(&newer, &refusal(4, "SR-3002"));
    spoilt(&[7; 4096], &refusal(4, "SR-3001"));

    // Another instance's header, under another key and under the same one.
    place
        .strongroom(&[
            "pg",
            "initdb",
            "-D",
            "b",
            "--header-only",
            "--key-file",
            "other",
        ])
        .succeeded();
    place
        .strongroom(&[
            "pg",
            "initdb",
            "-D",
            "c",
            "--header-only",
            "--key-file",
            "key",
        ])
        .succeeded();
    let header_of = |data: &str| fs::read(place.path(data).join("strongroom.header")).unwrap();
    spoilt(&header_of("b"), &refusal(3, "SR-2002"));
    place.overwrite(HEADER, &header_of("c"));
    let before = place.everything("data");
    place.start(&[]).ended_with(4, "SR-7001");
    assert_ne!(place.start_unattended().code, 0);
    assert!(before == place.everything("data"), "nothing was changed");

    // No header: the command says so; without a word about a key the library must take it for a
    // plain one, and PostgreSQL then finds a control file that it cannot read.
    fs::remove_file(&path).unwrap();
    let before = place.everything("data");
    place.start(&[]).ended_with(6, "SR-7004");
    assert_ne!(place.start_unattended().code, 0);
    assert!(before == place.everything("data"));
    place.overwrite(HEADER, &good);
    place.start(&[]).succeeded();
    place.stop();
}

#[test]
fn without_the_shield_postgresql_itself_refuses() {
    let place = Place::with_instance();
    let before = place.everything("data");
    let started = place.plain(
        "pg_ctl",
        &[
            "start",
            "-w",
            "-D",
            "data",
            "-l",
            "log",
            "-o",
            &place.options(),
        ],
    );
    assert_ne!(started.code, 0);
    assert!(place.log().contains("FATAL:"), "{}", place.log());
    assert!(before == place.everything("data"));
}

#[test]
fn initdb_keeps_nothing_of_what_failed() {
    let place = Place::new();
    let initdb = |arguments: &[&str]| {
        place.strongroom(&[&["pg", "initdb", "-D", "a/b"], arguments].concat())
    };
    initdb(&[]).ended_with(2, "SR-2041");
    initdb(&["--key-file", "nowhere"]).ended_with(3, "SR-2007");
    initdb(&["--key-command", "exit 1"]).ended_with(3, "SR-2009");
    initdb(&["--key-file", "key", "--", "--locale=nonsense"]).ended_with(5, "SR-7018");
    initdb(&["--key-file", "key", "--", "--no-clean", "--locale=nonsense"])
        .ended_with(5, "SR-7018");
    initdb(&["--key-file", "key", "--bindir", "/nonexistent"]).ended_with(2, "SR-7016");
    initdb(&["--key-file", "key", "--", "-D", "elsewhere"]).ended_with(2, "SR-1001");
    initdb(&["--key-file", "key", "--header-only", "--", "-k"]).ended_with(2, "SR-1001");
    initdb(&["--key-command", " cat key"]).ended_with(2, "SR-2019");
    let mut without = place.command(&["pg", "initdb", "-D", "a/b", "--key-file", "key"]);
    run(without.env("STRONGROOM_SHIELD_LIB", "/nonexistent.so")).ended_with(2, "SR-7017");
    // A file that is there but is no library: initdb runs without the shield, and finds the
    // directory not empty.
    let mut useless = place.command(&["pg", "initdb", "-D", "a/b", "--key-file", "key"]);
    run(useless.env("STRONGROOM_SHIELD_LIB", place.path("key"))).ended_with(5, "SR-7018");
    assert!(
        !place.path("a").exists(),
        "directories that were made are removed"
    );

    fs::create_dir(place.path("a")).unwrap();
    give_unchanged(&place.path("a"));
    fs::create_dir(place.path("a/b")).unwrap();
    give_unchanged(&place.path("a/b"));
    initdb(&["--key-file", "key", "--", "--locale=nonsense"]).ended_with(5, "SR-7018");
    assert_eq!(
        fs::read_dir(place.path("a/b")).unwrap().count(),
        0,
        "one that was there stays, empty"
    );
    place.write("a/b/somebodys file", "kept");
    initdb(&["--key-file", "key"]).ended_with(6, "SR-1002");
    assert_eq!(fs::read(place.path("a/b/somebodys file")).unwrap(), b"kept");
    place
        .strongroom(&[
            "pg",
            "initdb",
            "-D",
            "sealed",
            "--header-only",
            "--key-file",
            "key",
        ])
        .succeeded();
    let again = ["pg", "initdb", "-D", "sealed", "--key-file", "other"];
    place.strongroom(&again).ended_with(6, "SR-7012");
}

#[test]
fn directories_that_are_none() {
    let place = Place::new();
    place
        .strongroom(&["pg", "start", "-D", "nowhere"])
        .ended_with(2, "SR-1006");
    place
        .strongroom(&["pg", "start", "-D", "key"])
        .ended_with(2, "SR-7011");
    place.strongroom(&["pg", "start"]).ended_with(2, "SR-1001");
    fs::create_dir(place.path("empty")).unwrap();
    for verb in [
        "start",
        "stop",
        "status",
        "controldata",
        "encrypt",
        "decrypt",
        "rotate",
        "service",
    ] {
        place
            .strongroom(&["pg", verb, "-D", "empty"])
            .ended_with(2, "SR-7011");
    }
    place
        .strongroom(&["pg", "run", "-D", "empty", "--", "true"])
        .ended_with(6, "SR-7004");
}

/// In a mount namespace of its own, so that nothing is left mounted.
#[test]
fn on_a_read_only_file_system_nothing_starts_and_the_reason_is_told() {
    if !is_root() {
        return;
    }
    let place = Place::with_instance();
    let before = place.everything("data");
    let data = place.path("data").display().to_string();
    let read_only = |arguments: &[&str]| -> Run {
        let mut command = Command::new("unshare");
        command.args(["-m", "/bin/sh", "-c"]);
        // Only root mounts.
        let script = format!(
            "mount --bind {data} {data} && mount -o remount,bind,ro {data} && exec runuser -u postgres -- \"$@\""
        );
        command.arg(script).arg("sh");
        command.arg(place.binary()).args(arguments);
        command.current_dir(place.path(""));
        run(&mut command)
    };
    let options = place.options();
    read_only(&[
        "pg", "start", "-D", &data, "-l", "log", "--", "-o", &options,
    ])
    .ended_with(5, "SR-7018");
    assert!(
        place.log().contains("Read-only file system"),
        "{}",
        place.log()
    );
    read_only(&["pg", "rotate", "-D", &data]).ended_with(5, "SR-5001");
    read_only(&["pg", "rotate", "-D", &data, "--slots-only"]).ended_with(5, "SR-5001");
    read_only(&["pg", "decrypt", "-D", &data]).ended_with(5, "SR-5001");
    read_only(&["pg", "controldata", "-D", &data]).succeeded();
    assert!(before == place.everything("data"));
    let new = format!("{data}/new");
    read_only(&["pg", "initdb", "-D", &new, "--key-file", "key"]).ended_with(5, "SR-5001");
}

/// A directory of programs in which one stands for PostgreSQL's own: a script, in which REAL is the
/// real directory.
fn programs_with(place: &Place, name: &str, script: &str) -> String {
    let (directory, real) = (place.path("bin"), bindir());
    drop(fs::remove_dir_all(&directory));
    fs::create_dir(&directory).unwrap();
    for program in ["postgres", "initdb", "pg_controldata"] {
        std::os::unix::fs::symlink(real.join(program), directory.join(program)).unwrap();
    }
    fs::remove_file(directory.join(name)).unwrap();
    let text = script.replace("REAL", &real.display().to_string());
    place.write(&format!("bin/{name}"), &format!("#!/bin/sh\n{text}\n"));
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(directory.join(name), executable).unwrap();
    directory.display().to_string()
}

#[test]
fn an_instance_of_another_make_or_outside_the_shield_is_not_kept() {
    let place = Place::new();
    let run_with = |bin: &str| {
        place.strongroom(&[
            "pg",
            "initdb",
            "-D",
            "data",
            "--key-file",
            "key",
            "--bindir",
            bin,
            "--",
            "--no-sync",
        ])
    };
    for (line, other) in [
        ("Database block size", "16384"),
        ("Blocks per segment of large relation", "65536"),
    ] {
        let script = format!("REAL/pg_controldata \"$@\" | sed 's/^\\({line}: *\\).*/\\1{other}/'");
        let bin = programs_with(&place, "pg_controldata", &script);
        let told = run_with(&bin).ended_with(6, "SR-7010");
        assert!(
            told.contains(&format!("{line}: {other} instead of")),
            "{told}"
        );
        assert!(!place.path("data").exists());
    }
    // An initdb that the library does not get into, on a directory that it believes to be empty.
    let script = "unset LD_PRELOAD; mkdir aside; mv \"$2\"/strongroom.* aside; REAL/initdb \"$@\"; mv aside/* \"$2\"";
    let bin = programs_with(&place, "initdb", script);
    run_with(&bin).ended_with(70, "SR-7021");
    assert!(!place.path("data").exists());
}
