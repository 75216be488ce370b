//! Goal: an existing instance can be sealed, its keys changed, and opened again for good, and
//! nothing is lost; what was interrupted is completed by the same command.
//!
//! Method: a real server before and after each step; kill -9 in the middle; canaries in every byte
//! of the directory.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use crate::instance;

use std::fs;
use std::io::{Read as _, Seek as _};
use std::process::{Command, Stdio};
use std::time::Duration;

use instance::{Place, is_root, run};
use strongroom_testing_support::process::{children, signal, status};

const ROWS: &str = "select count(*) from t where v = 'canary row ' || i";

/// A plain instance `data` with a table of canaries and a tablespace, stopped.
fn plain() -> Place {
    let place = Place::new();
    place
        .plain("initdb", &["-D", "data", "-k", "--no-sync"])
        .succeeded();
    start_plain(&place);
    fs::create_dir(place.path("space")).unwrap();
    instance::give_unchanged(&place.path("space"));
    let space = place.path("space").display().to_string();
    place.sql(&format!("create tablespace s location '{space}'"));
    place.sql(
        "create table t as select i, 'canary row ' || i as v from generate_series(1, 20000) i",
    );
    place.sql("create table u tablespace s as select * from t; create index on t (v); checkpoint");
    place.stop();
    place
}

fn start_plain(place: &Place) {
    place
        .plain(
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
        )
        .succeeded();
}

fn has_canaries(place: &Place) -> bool {
    place.holds("data", b"canary row") || place.holds("space", b"canary row")
}

#[test]
fn sealed_rotated_and_opened_again() {
    let place = plain();
    assert!(has_canaries(&place), "the scan finds what is there");
    let sealed = place.strongroom(&[
        "pg",
        "encrypt",
        "-D",
        "data",
        "--key-file",
        "key",
        "--threads",
        "2",
    ]);
    assert!(sealed.err.contains("warning[SR-7019]"), "{}", sealed.err);
    assert!(sealed.succeeded().starts_with("sealed data: "));
    assert!(!has_canaries(&place));
    place.start_unattended().succeeded();
    assert_eq!(place.sql(ROWS), "20000");
    place.sql("insert into t select i, 'canary row ' || i from generate_series(20001, 20100) i");
    place.stop();

    let status = || {
        place
            .strongroom(&["pg", "status", "-D", "data"])
            .succeeded()
    };
    let before = status();
    let rotate = ["pg", "rotate", "-D", "data", "--new-key-file", "other"];
    assert!(
        place
            .strongroom(&rotate)
            .succeeded()
            .starts_with("rotated data: ")
    );
    let after = status();
    assert!(
        before.contains("/1\n") && after.contains("/2\n"),
        "{before}{after}"
    );
    assert!(
        after.contains("/other\n"),
        "the configuration names the new key: {after}"
    );
    place.start(&["--key-file", "key"]).ended_with(3, "SR-2002");
    place.start_unattended().succeeded();
    assert_eq!(place.sql(ROWS), "20100");
    place.stop();

    assert!(
        place
            .strongroom(&["pg", "decrypt", "-D", "data"])
            .succeeded()
            .starts_with("plaintext data: ")
    );
    for name in ["strongroom.header", "strongroom.conf", "strongroom.convert"] {
        assert!(!place.path("data").join(name).exists(), "{name}");
    }
    start_plain(&place);
    assert_eq!(place.sql(ROWS), "20100");
    assert_eq!(place.sql("select count(*) from u"), "20000");
    place.stop();
    place
        .plain("pg_checksums", &["--check", "-D", "data"])
        .succeeded();
}

#[test]
fn who_may_open_it_changes_while_the_server_runs() {
    let place = Place::with_instance();
    place.start(&[]).succeeded();
    let header = || fs::read(place.path("data/strongroom.header")).unwrap();
    let former = header();
    let rotate = ["pg", "rotate", "-D", "data", "--slots-only"];
    let by = |options: &[&str]| place.strongroom(&[&rotate[..], options].concat());
    by(&["--key-file", "other", "--new-key-file", "key"]).ended_with(3, "SR-2002");
    assert_eq!(former, header());
    by(&["--new-key-file", "nowhere"]).ended_with(3, "SR-2007");
    assert_eq!(former, header());
    let told = by(&["--new-key-file", "other"]).succeeded();
    assert!(
        told.starts_with("rewrapped data: raw key, fingerprint ") && told.ends_with("/1\n"),
        "{told}"
    );
    assert_eq!(place.sql("select 1"), "1");
    place.stop();
    place.start(&["--key-file", "key"]).ended_with(3, "SR-2002");
    place.start_unattended().succeeded();
    place.stop();
    by(&[]).succeeded();
    by(&["--new-key-command", "echo a passphrase"]).succeeded();
    let status = place
        .strongroom(&["pg", "status", "-D", "data"])
        .succeeded();
    assert!(
        status.contains("passphrase") && status.contains("command"),
        "{status}"
    );
    place.start_unattended().succeeded();
    place.stop();
}

#[test]
fn what_must_not_be_converted_is_not() {
    let place = plain();
    let encrypt =
        |options: &[&str]| place.strongroom(&[&["pg", "encrypt", "-D", "data"], options].concat());
    let before = place.everything("data");
    encrypt(&[]).ended_with(2, "SR-2041");
    encrypt(&["--key-file", "nowhere"]).ended_with(3, "SR-2007");
    place
        .strongroom(&["pg", "decrypt", "-D", "data"])
        .ended_with(6, "SR-7004");
    place
        .strongroom(&["pg", "rotate", "-D", "data"])
        .ended_with(6, "SR-7004");
    assert!(before == place.everything("data"));

    start_plain(&place);
    encrypt(&["--key-file", "key"]).ended_with(6, "SR-7008");
    let pid = place.pid("data").unwrap();
    signal("-QUIT", &[pid]);
    place.until("it ends", || {
        place.pid("data").is_none() || status(pid).is_none()
    });
    let before = place.everything("data");
    encrypt(&["--key-file", "key"]).ended_with(6, "SR-7009");
    assert!(
        before == place.everything("data"),
        "neither header nor configuration is left"
    );
    start_plain(&place);
    place.stop();

    encrypt(&["--key-file", "key"]).succeeded();
    encrypt(&["--key-file", "key"]).ended_with(6, "SR-7012");
    place.start(&[]).succeeded();
    place
        .strongroom(&["pg", "decrypt", "-D", "data"])
        .ended_with(6, "SR-7008");
    place
        .strongroom(&["pg", "rotate", "-D", "data"])
        .ended_with(6, "SR-7008");
    place.stop();
}

/// Runs a command, kills it after ever longer times until it is quick enough, and repeats it.
/// `is_done` is asked after each kill: one that comes just after the work must not let the command
/// do it again. Returns how often it was killed.
fn killed_until_done(place: &Place, arguments: &[&str], is_done: impl Fn() -> bool) -> u32 {
    let mut patience = Duration::from_millis(40);
    for killed in 0..100 {
        let mut said = tempfile::tempfile().unwrap();
        let mut child = place
            .command(arguments)
            .stdout(Stdio::null())
            .stderr(said.try_clone().unwrap())
            .spawn()
            .unwrap();
        std::thread::sleep(patience);
        patience = patience.mul_f32(1.3);
        if let Some(status) = child.try_wait().unwrap() {
            let mut text = String::new();
            said.rewind().unwrap();
            said.read_to_string(&mut text).unwrap();
            assert!(
                status.success(),
                "{arguments:?} ended with {status}: {text}"
            );
            return killed;
        }
        end(child.id());
        child.wait().unwrap();
        if is_done() {
            return killed + 1;
        }
    }
    unreachable!("it never ends");
}

/// Ends a process and what it has started, and waits for them. Each is stopped before its children
/// are listed: one that is about to start another would leave that one behind.
fn end(process: u32) {
    let mut all = vec![process];
    let mut next = 0;
    while let Some(process) = all.get(next).copied() {
        signal("-STOP", &[process]);
        let runs = || status(process).is_some_and(|(_, state)| !"TZX".contains(state));
        while runs() {
            std::thread::sleep(Duration::from_millis(1));
        }
        all.extend(children(process));
        next += 1;
    }
    signal("-KILL", &all);
    for process in all {
        instance::wait_until_gone(process);
    }
}

/// Between the state of a conversion and the header there is nothing that tells a sealed instance.
#[test]
fn a_conversion_that_was_killed_before_its_header_keeps_a_server_from_starting() {
    let place = plain();
    let state = "strongroom-convert 1 encrypt 00112233445566778899aabbccddeeff\n";
    place.write("data/strongroom.convert", state);
    instance::give_unchanged(&place.path("data/strongroom.convert"));
    assert_ne!(place.start_unattended().code, 0);
    assert!(place.log().contains("SR-7003"), "{}", place.log());
    place
        .strongroom(&["pg", "encrypt", "-D", "data", "--key-file", "key"])
        .succeeded();
    rotates_and_opens(&place);
}

#[test]
fn a_conversion_that_was_killed_is_completed_by_the_same_command() {
    let place = plain();
    let exists = |name: &str| place.path("data").join(name).exists();
    let unfinished = || exists("strongroom.convert");
    let status = || {
        place
            .strongroom(&["pg", "status", "-D", "data"])
            .succeeded()
    };
    let refuses_to_start = || {
        if unfinished() {
            place.start(&["--key-file", "key"]).ended_with(6, "SR-7003");
            assert!(status().contains("begun and not finished"), "{}", status());
            assert_ne!(
                place.start_unattended().code,
                0,
                "no server starts on half an instance"
            );
        }
    };
    let encrypt = [
        "pg",
        "encrypt",
        "-D",
        "data",
        "--key-file",
        "key",
        "--threads",
        "1",
    ];
    let killed = killed_until_done(&place, &encrypt, || {
        refuses_to_start();
        !unfinished() && exists("strongroom.header")
    });
    assert!(killed > 0, "nothing was interrupted");
    assert!(!unfinished() && !has_canaries(&place));
    rotates_and_opens(&place);
}

/// The same command, repeated after a kill at any point, finds one of the two keys.
fn rotates_and_opens(place: &Place) {
    let exists = |name: &str| place.path("data").join(name).exists();
    let unfinished = || exists("strongroom.convert");
    let status = || {
        place
            .strongroom(&["pg", "status", "-D", "data"])
            .succeeded()
    };
    let rotate = [
        "pg",
        "rotate",
        "-D",
        "data",
        "--key-file",
        "key",
        "--new-key-file",
        "other",
        "--threads",
        "1",
    ];
    killed_until_done(place, &rotate, || {
        !unfinished() && status().contains("/2\n")
    });
    assert!(status().contains("/2\n"), "{}", status());
    place.start_unattended().succeeded();
    assert_eq!(place.sql(ROWS), "20000");
    place.stop();
    let decrypt = [
        "pg",
        "decrypt",
        "-D",
        "data",
        "--key-file",
        "other",
        "--threads",
        "1",
    ];
    killed_until_done(place, &decrypt, || {
        !unfinished() && !exists("strongroom.header")
    });
    assert!(!exists("strongroom.header") && !exists("strongroom.conf"));
    start_plain(place);
    assert_eq!(place.sql(ROWS), "20000");
    place.stop();
}

#[test]
fn what_root_converts_still_belongs_to_its_owner() {
    if !is_root() {
        return;
    }
    let place = plain();
    let root = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_strongroom"));
        run(command.args(arguments).current_dir(place.path("")))
    };
    root(&["pg", "encrypt", "-D", "data", "--key-file", "key"]).succeeded();
    place.start_unattended().succeeded();
    assert_eq!(place.sql(ROWS), "20000");
    place.stop();
    root(&["pg", "rotate", "-D", "data", "--new-key-file", "other"]).succeeded();
    place.start_unattended().succeeded();
    place.stop();
    root(&["pg", "decrypt", "-D", "data"]).succeeded();
    start_plain(&place);
    assert_eq!(place.sql(ROWS), "20000");
    place.stop();
}
