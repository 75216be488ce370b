//! Goal: a cluster is restored over its own directory, to its set or to a point behind it, with
//! most of its files kept; a directory of another cluster, or one on which a server runs, is
//! refused; a restore that is killed leaves a cluster that starts.
//!
//! Method: real servers that archive by `wal-push`; the restored ones are started and asked, and
//! PostgreSQL's own programs check them.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use strongroom_testing::random::{Random, seed};
use strongroom_testing_postgres::instance::{Instance, Protection};
use strongroom_testing_postgres::programs::Programs;
use strongroom_testing_postgres::room::Room;
use strongroom_testing_support::process::{checked, patiently, refused};

const COUNT: &str = "select count(*) from t";

fn backup(room: &Room, key: &Path, verb: &str) -> Command {
    let mut command = room.backup();
    command.arg(verb).arg("--key-file").arg(key);
    command
}

fn over(room: &Room, key: &Path, to: &Path, options: &[&str]) -> Command {
    let mut command = backup(room, key, "restore");
    command.arg(room.at("medium")).arg("--to").arg(to);
    command.arg("--delta").args(options);
    command
}

/// A server with a set, and 100 rows and two tables' worth of files more than the set has.
fn with_set<'a>(room: &'a Room, key: &Path) -> Instance<'a> {
    let server = Instance::create(room, &Programs::installed(), "server", Protection::Plain);
    server.configure("archive_mode = on\narchive_command = 'true'\n");
    server.start();
    server.sql("create table t as select n from generate_series(1, 100) n");
    let mut create = backup(room, key, "create");
    create.arg(server.address()).arg("--to");
    checked(create.arg(room.at("medium")));
    server.sql(&format!(
        "alter system set archive_command = $$STRONGROOM_KEYRING={} {} backup wal-push \"%p\" --to {} --key-file {}$$",
        room.at("keyring").display(),
        room.at("bin/strongroom").display(),
        room.at("medium").display(),
        key.display(),
    ));
    server.sql("select pg_reload_conf()");
    server.sql("insert into t select n from generate_series(1, 100) n; create table u (n int)");
    server
}

/// Runs `command` under strace(1), which kills it at the `at`th of the system calls `calls` of one
/// of its threads. False when it succeeded before it came so far.
fn killed_at(room: &Room, command: &Command, calls: &str, at: u32) -> bool {
    let mut strace = room.command(Path::new("strace"));
    strace
        .args(["-f", "-qq", "-o", "/dev/null", "-e"])
        .arg(format!("trace={calls}"))
        .arg(format!("--inject={calls}:signal=KILL:when={at}"))
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => strace.env(name, value),
            None => strace.env_remove(name),
        };
    }
    let ended = strace.output().unwrap();
    let killed = ended.status.signal() == Some(9);
    assert!(killed || ended.status.success(), "{calls} {at}: {ended:?}");
    killed
}

fn keep(said: &str) -> u32 {
    let count = said.split("bytes; ").nth(1).unwrap();
    count.split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn a_cluster_is_restored_over_its_own_directory() {
    let room = Room::new("delta");
    let key: PathBuf = room.key("main", &mut Random::new(seed()));
    let server = with_set(&room, &key);
    let data = server.data().to_path_buf();

    let said = refused(&mut over(&room, &key, &data, &["--force"]));
    assert!(
        said.contains("SR-7176") && said.contains("a server runs"),
        "{said}"
    );
    let last = server.sql("select pg_walfile_name(pg_current_wal_lsn() - 1)");
    server.sql("select pg_switch_wal()");
    let object = room.at("medium/wal").join(&last);
    assert!(
        patiently(Duration::from_secs(60), || object.exists()),
        "{last}"
    );
    server.stop();

    // To the end of the set; most of a cluster's files never change.
    let said = checked(&mut over(&room, &key, &data, &[]));
    assert!(keep(&said) > 500, "{said}");
    server.start();
    assert_eq!(server.sql(COUNT), "100");
    server.stop();
    server.check_checksums();

    // To the end of the archive.
    let said = checked(&mut over(&room, &key, &data, &["--until-end"]));
    assert!(keep(&said) > 500, "{said}");
    server.start();
    let recovered = || server.sql("select pg_is_in_recovery()") == "f";
    assert!(patiently(Duration::from_secs(60), recovered));
    assert_eq!(server.sql(COUNT), "200");
    server.check_structure("postgres");
    server.stop();
}

#[test]
fn other_directories_are_refused() {
    let room = Room::new("delta-wrong");
    let key: PathBuf = room.key("main", &mut Random::new(seed()));
    let server = with_set(&room, &key);
    server.stop();
    let other = Instance::create(&room, &Programs::installed(), "other", Protection::Plain);
    other.start();
    other.sql("create table precious as select 1 as n");
    other.stop();
    let said = refused(&mut over(&room, &key, other.data(), &[]));
    assert!(
        said.contains("SR-7176") && said.contains("it belongs to the cluster "),
        "{said}"
    );
    other.start();
    assert_eq!(other.sql("select n from precious"), "1");
    other.stop();
    let home = room.directory("home");
    room.put(&home.join("thesis"), b"years of work");
    let said = refused(&mut over(&room, &key, &home, &[]));
    assert!(
        said.contains("SR-7176") && said.contains("not known to be"),
        "{said}"
    );
    assert!(home.join("thesis").exists());
    // Without the option as before.
    let mut plain = backup(&room, &key, "restore");
    plain.arg(room.at("medium")).arg("--to").arg(server.data());
    assert!(refused(&mut plain).contains("SR-7113"));
}

#[test]
fn a_killed_restore_leaves_a_cluster_that_starts_and_can_be_run_again() {
    let room = Room::new("delta-killed");
    let key: PathBuf = room.key("main", &mut Random::new(seed()));
    let server = with_set(&room, &key);
    let data = server.data().to_path_buf();
    server.stop();
    let mut kills = 0;
    for (calls, first) in [("%file", 32), ("write", 32), ("rename,renameat2", 1)] {
        let mut at = first;
        loop {
            let killed = killed_at(
                &room,
                &over(&room, &key, &data, &["--threads", "1"]),
                calls,
                at,
            );
            // The old cluster or the new one.
            server.start();
            let rows = server.sql(COUNT);
            assert!(rows == "200" || rows == "100", "{calls} {at}: {rows}");
            server.sql(
                "insert into t select n from generate_series(1, 200 - (select count(*) from t)) n",
            );
            server.stop();
            if !killed {
                break;
            }
            kills += 1;
            at *= 2;
        }
    }
    assert!(kills >= 10, "{kills}");
    checked(&mut over(&room, &key, &data, &[]));
    server.start();
    assert_eq!(server.sql(COUNT), "100");
    server.stop();
    let entries = std::fs::read_dir(room.path()).unwrap().flatten();
    let mut names = entries.map(|entry| entry.file_name());
    assert!(!names.any(|name| name.to_string_lossy().ends_with(".partial")));
}
