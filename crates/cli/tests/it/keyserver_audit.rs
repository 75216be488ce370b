//! The audit log leaves the store: archives that are checked without a server, kills at each write,
//! and the alarm.
//!
//! Method: the real command against the real server; kills are strace's, at each call that changes
//! a file or makes it durable.

#![expect(
    clippy::unwrap_used,
    reason = "a test that panics has failed, which is what it is for"
)]

use crate::common;

use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use common::{Place, Run, keyserver};
use strongroom_testing_support::keyserver::KeyServer;
use strongroom_testing_support::process::until;

/// A server's files; of its log two rows stay in the store.
fn made(place: &Place) -> KeyServer {
    let server = keyserver::made(place, "srv");
    let config = String::from_utf8(place.read("srv/server.toml")).unwrap();
    let changed = config.replace(
        "[audit]\nkeep_days = 90\nkeep_rows = 1000000\n",
        "[audit]\narchive = \"archive\"\nkeep_days = 0\nkeep_rows = 2\n",
    );
    assert_ne!(changed, config);
    place.write("srv/server.toml", changed);
    server
}

fn admin(place: &Place, words: &[&str]) -> Run {
    place.run(&[&["keyserver"], words, &["--node", "srv/admin.toml"]].concat())
}

fn archives(place: &Place) -> Vec<String> {
    let Ok(found) = std::fs::read_dir(place.path("srv/archive")) else {
        return Vec::new();
    };
    let paths = found.map(|entry| entry.unwrap().path());
    let mut names: Vec<String> = paths
        .filter(|path: &PathBuf| path.extension().is_some_and(|end| end == "jsonl"))
        .map(|path| path.to_str().unwrap().to_owned())
        .collect();
    names.sort();
    names
}

/// Checks all archives, with `more` arguments: again when the server, which archives by itself too,
/// has made one meanwhile that was not named.
fn verify(place: &Place, more: &[&str]) -> Run {
    let fixed = ["keyserver", "audit", "verify"];
    let authority = ["--authority", "srv/authority.pem"];
    loop {
        let all = archives(place);
        let named: Vec<&str> = all.iter().map(String::as_str).collect();
        let run = place.run(&[&fixed[..], &authority, more, &named].concat());
        if archives(place) == all {
            return run;
        }
    }
}

#[test]
fn archives_are_checked_without_the_server_and_the_server_goes_on_after_them() {
    let place = Place::new();
    let mut server = made(&place);
    server.start(|| place.command());
    for n in 0..8 {
        admin(&place, &["create", &format!("k{n}")]).succeeded();
    }
    let told = admin(&place, &["audit", "archive"]).succeeded();
    assert!(told.starts_with("archived rows "), "{told}");
    let log = admin(&place, &["audit"]).succeeded();
    assert!(
        log.contains(" archive audit-") && !log.contains(" init "),
        "{log}"
    );
    let whole = admin(&place, &["audit", "--verify"]).succeeded();
    assert!(
        whole.contains("are in archives, of which the last is audit-"),
        "{whole}"
    );
    let told = admin(&place, &["audit", "archive", "--json"]).json();
    assert!(told["archives"].is_array(), "{told}");
    let told = verify(&place, &["--node", "srv/admin.toml"]).succeeded();
    assert!(
        told.contains("the server's rows go on from there"),
        "{told}"
    );
    // The log that is shown and the archives together are every row.
    let last = archives(&place).pop().unwrap();
    drop(server);
    let told = verify(&place, &["--json"]).json();
    assert_eq!(told["first"], 1, "{told}");
    // One that was changed, one that is missing, another server's authority.
    let text = std::fs::read_to_string(&last).unwrap();
    place.write("changed", text.replacen("\"actor\":\"", "\"actor\":\"x", 1));
    let authority = ["--authority", "srv/authority.pem"];
    let checked = |words: &[&str]| place.run(&[&["keyserver", "audit", "verify"], words].concat());
    checked(&[&authority[..], &["changed"]].concat()).failed(4, "SR-8436");
    let all = archives(&place);
    if let [first, .., last] = all.as_slice()
        && all.len() > 2
    {
        checked(&[&authority[..], &[first, last]].concat()).failed(4, "SR-8436");
    }
    let init = [
        "keyserver",
        "init",
        "--store",
        "other/keys.db",
        "--name",
        "127.0.0.1",
        "--root-provider",
        "env:ROOT",
    ];
    place.run(&init).succeeded();
    checked(&["--authority", "other/authority.pem", &last]).failed(4, "SR-8436");
    checked(&[&authority[..], &["nothing"]].concat()).failed(2, "SR-1006");
}

#[test]
fn a_server_that_is_killed_at_any_write_loses_no_row() {
    let place = Place::new();
    let mut server = made(&place);
    server.start(|| place.command());
    server.stop();
    let (mut kills, mut archived) = (0, 0);
    // Each start writes a row, and so makes an archive. The calls are those that name a file or
    // make one durable; strace counts them for each thread. Who is not killed is told to end.
    let group = "renameat2,rename,linkat,fsync,fdatasync,unlink,unlinkat";
    for at in 1..=40 {
        let mut strace = Command::new("strace");
        strace
            .args(["-f", "-qq", "-o", "/dev/null", "-e"])
            .arg(format!("trace={group}"))
            .arg(format!("--inject={group}:signal=KILL:when={at}"))
            .args(["timeout", "5"]);
        let words = ["keyserver", "run", "--config", "srv/server.toml"];
        let mut killed = place.under(strace, &words);
        let status = killed.stderr(Stdio::null()).status().unwrap();
        if status.code() == Some(124) {
            break;
        }
        assert_eq!(status.signal(), Some(9), "call {at}: {status}");
        kills += 1;
        archived = archives(&place).len();
        if archived > 0 {
            verify(&place, &[]).succeeded();
        }
    }
    // Some were killed after an archive had its name, and others before.
    assert!(
        kills >= 5 && archived > 0 && archived < kills,
        "{archived} archives, {kills} kills"
    );
    server.start(|| place.command());
    admin(&place, &["audit", "archive"]).succeeded();
    let told = verify(&place, &["--node", "srv/admin.toml"]).succeeded();
    assert!(told.contains("whole: rows 1 to "), "{told}");
    admin(&place, &["audit", "--verify"]).succeeded();
}

#[test]
fn a_server_says_that_its_store_is_filling_up() {
    let place = Place::new();
    let mut server = made(&place);
    let config = String::from_utf8(place.read("srv/server.toml")).unwrap();
    let changed = config.replace("free_mib = 1024", "free_mib = 900000000");
    assert_ne!(changed, config);
    place.write("srv/server.toml", changed);
    server.start(|| place.command());
    until("it says so", || server.log().contains("SR-8474"));
    let status = admin(&place, &["status"]);
    assert!(status.err.contains("SR-8474"), "{}", status.err);
    assert!(
        status.err.contains("MiB free, fewer than 900000000"),
        "{}",
        status.err
    );
    assert!(status.succeeded().contains("audit log: "));
}
