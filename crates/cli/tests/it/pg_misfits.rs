//! Goal: what is not what it should be in a sealed instance is told and not passed over: a pipe or
//! a directory in the place of a file, a directory whose file system is not mounted.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use crate::instance;

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use instance::{Place, run};

fn put_pipe(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status().unwrap();
    assert!(made.success());
}

#[test]
fn what_takes_the_place_of_a_file_is_told() {
    let place = Place::with_instance();
    let verify: &[&str] = &["verify", "data"];
    let plaintext: &[&str] = &["pg", "status", "-D", "data", "--plaintext"];
    let rotate: &[&str] = &["pg", "rotate", "-D", "data"];
    place.strongroom(verify).succeeded();
    for name in [
        "pg_xact/0000",
        "global/pg_filenode.map",
        "pg_twophase/00000001",
    ] {
        let path = place.path("data").join(name);
        let kept = fs::read(&path).ok();
        drop(fs::remove_file(&path));
        fs::create_dir(&path).unwrap();
        for arguments in [verify, plaintext, rotate] {
            place.strongroom(arguments).ended_with(6, "SR-7002");
        }
        fs::remove_dir(&path).unwrap();
        put_pipe(&path);
        for arguments in [verify, plaintext, rotate] {
            place.strongroom(arguments).ended_with(6, "SR-7002");
        }
        fs::remove_file(&path).unwrap();
        if let Some(bytes) = kept {
            place.overwrite(&format!("data/{name}"), &bytes);
            instance::give_unchanged(&path);
        }
    }

    // The disk of a tablespace, or of the log, is not mounted.
    let tablespace = place.path("data/pg_tblspc/16999");
    symlink(place.path("not-mounted"), &tablespace).unwrap();
    for arguments in [verify, plaintext, rotate] {
        let said = place.strongroom(arguments).ended_with(6, "SR-7002");
        assert!(said.contains("mount it"), "{said}");
    }
    fs::remove_file(&tablespace).unwrap();
    place.strongroom(verify).succeeded();
}

/// The instance's owner could make a command of root's wait for ever.
#[test]
fn a_named_pipe_in_the_place_of_a_file_is_not_waited_for() {
    let place = Place::with_instance();
    for name in [
        "global/pg_control",
        "PG_VERSION",
        "postmaster.pid",
        "strongroom.header",
    ] {
        let path = place.path("data").join(name);
        let kept = fs::read(&path).ok();
        drop(fs::remove_file(&path));
        put_pipe(&path);
        for arguments in [
            &["verify", "data"][..],
            &["pg", "status", "-D", "data"],
            &["pg", "controldata", "-D", "data"],
            &["pg", "start", "-D", "data", "-l", "log", "-t", "5"],
            &["pg", "decrypt", "-D", "data"],
            &["pg", "rotate", "-D", "data"],
            &["inspect", "data"],
        ] {
            ends(&place, arguments, name);
        }
        fs::remove_file(&path).unwrap();
        if let Some(bytes) = kept {
            place.overwrite(&format!("data/{name}"), &bytes);
            instance::give_unchanged(&path);
        }
    }
}

/// Runs a command of which only that it ends is of interest.
#[track_caller]
fn ends(place: &Place, arguments: &[&str], pipe: &str) {
    let mut command = place.command(arguments);
    // A group of its own: what the command has started ends with it.
    command.stdin(Stdio::null()).process_group(0);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        let waits = begun.elapsed() > Duration::from_secs(60);
        if waits {
            let group = format!("-{}", child.id());
            run(Command::new("kill").args(["-KILL", "--", &group]));
        }
        assert!(!waits, "{arguments:?} waits for {pipe}");
        sleep(Duration::from_millis(20));
    }
}
