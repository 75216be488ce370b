//! Goal: `verify --restore-test` passes a set only if PostgreSQL itself finds its cluster sound; it
//! says what it has not checked, and leaves neither server nor files, whatever ends it.
//!
//! Method: real servers and PostgreSQL's own programs, a cluster with an index that does not fit
//! its table, servers that do not start, settings that would lead a server elsewhere, a signal in
//! the middle.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use strongroom_testing::random::{Random, seed};
use strongroom_testing_postgres::instance::{Instance, Protection};
use strongroom_testing_postgres::packages;
use strongroom_testing_postgres::programs::Programs;
use strongroom_testing_postgres::room::Room;
use strongroom_testing_support::account::give;
use strongroom_testing_support::process::{checked, refused};

struct Work<'a> {
    room: &'a Room,
    programs: Programs,
    server: Instance<'a>,
    key: PathBuf,
}

impl<'a> Work<'a> {
    fn new(room: &'a Room, programs: Programs) -> Self {
        let server = Instance::create(room, &programs, "server", Protection::Plain);
        server.start();
        server.sql(
            "create table t as select n from generate_series(1, 12345) n; create index on t (n)",
        );
        drop(room.directory("scratch"));
        Self {
            room,
            programs,
            server,
            key: room.key("main", &mut Random::new(seed())),
        }
    }

    fn create(&self, options: &[&str]) {
        let mut create = self.room.backup();
        create.arg("create").arg(self.server.address());
        create.arg("--to").arg(self.room.at("medium"));
        checked(create.arg("--key-file").arg(&self.key).args(options));
    }

    fn with_options(&self, mut command: Command, bin: &Path, options: &[&str]) -> Command {
        command.arg("verify").arg(self.room.at("medium"));
        command.arg("--key-file").arg(&self.key);
        command.arg("--restore-test").arg("--bindir").arg(bin);
        command
            .arg("--scratch")
            .arg(self.room.at("scratch"))
            .args(options);
        command
    }

    fn drill(&self, options: &[&str]) -> Command {
        self.with_options(self.room.backup(), self.programs.directory(), options)
    }

    fn nothing_is_left(&self) {
        let left = fs::read_dir(self.room.at("scratch")).unwrap().count();
        assert_eq!(left, 0);
    }
}

#[test]
fn a_sound_cluster_passes() {
    let room = Room::new("drill");
    let work = Work::new(&room, Programs::installed());
    // Settings that another place has no use for, or that keep a server from starting; and work
    // that recovery has to know. An archiver works in the data directory: nobody but the restored
    // server's is below the place of the test.
    let never = room.at("never");
    work.server.sql("alter system set archive_mode = on");
    work.server.sql(&format!(
        "alter system set archive_command = 'case \"$PWD\" in */strongroom-*) touch {};; esac'",
        never.display()
    ));
    work.server.stop();
    work.server.start();
    work.server.sql(
        "alter system set shared_preload_libraries = 'no_such_library'; alter system set ssl_cert_file = '/nowhere';
         alter system set port = 1;",
    );
    // A subscription that is enabled: its workers would go to the publisher.
    work.server.sql(
        "create subscription s connection 'host=/nowhere dbname=x' publication p with (connect = false, slot_name = 's')",
    );
    work.server.sql("alter subscription s enable");
    work.server
        .sql("begin; insert into t values (0); prepare transaction 'open'");
    // The last: of a database's own settings a file's word would count less.
    work.server
        .sql("alter database postgres set session_preload_libraries = 'no_such_library'");
    work.create(&[]);
    let said = checked(&mut work.drill(&[
        "--query",
        "select pg_switch_wal() is not null;
         select 'followers', count(*) from pg_stat_activity where backend_type like 'logical replication%';
         select 'rows', count(*) from t",
    ]));
    assert!(said.contains("answer: followers|0"), "{said}");
    assert!(!never.exists());
    for expected in [
        "restore test: passed",
        "recovered by PostgreSQL",
        "by pg_amcheck",
        "by pg_checksums",
        "answer: rows|12345",
        "not checked: the cluster's own settings",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    work.nothing_is_left();
    let json = checked(&mut work.drill(&["--json"]));
    assert!(
        json.contains("\"restore_test\"") && json.contains("no query was given"),
        "{json}"
    );
    // Root restores, and does not run the server.
    let mut root = Command::new(room.at("bin/strongroom"));
    root.env("STRONGROOM_KEYRING", room.at("keyring"))
        .arg("backup");
    let query = "select pg_read_file('/proc/self/status') !~ 'Uid:\\s+0';
        copy (select 1) to program 'for name in out err log settings/x; do if ln -s /tmp/x ../$name; then exit 1; fi; done; true'";
    let said =
        checked(&mut work.with_options(root, work.programs.directory(), &["--query", query]));
    assert!(said.contains("answer: t"), "{said}");
    work.nothing_is_left();
}

#[test]
fn what_fails_is_told_and_nothing_is_left() {
    let room = Room::new("unsound");
    let work = Work::new(&room, Programs::installed());
    work.server.sql(
        "create function f(n int) returns int immutable language sql as 'select n';
         create index odd on t (f(n));
         create or replace function f(n int) returns int immutable language sql as 'select n + 1'",
    );
    work.create(&[]);
    let told = |command: &mut Command, words: &[&str]| {
        let said = refused(command);
        for word in words {
            assert!(said.contains(word), "{word}: {said}");
        }
        work.nothing_is_left();
    };
    told(&mut work.drill(&[]), &["SR-7163", "pg_amcheck", "odd"]);
    work.server.sql("drop index odd");
    work.create(&[]);
    told(
        &mut work.drill(&["--query", "select 1/0"]),
        &["SR-7163", "psql", "division by zero"],
    );
    // What a query found before it failed stays out of the error.
    let said = refused(&mut work.drill(&["--query", "select 'a sec' || 'ret'; select 1/0"]));
    assert!(!said.contains("a secret"), "{said}");
    told(
        &mut work.drill(&["--superuser", "nobody"]),
        &["SR-7163", "nobody"],
    );
    told(&mut work.drill(&["--bindir", "/nowhere"]), &["SR-1001"]);
    // A server that does not start.
    let liar = room.directory("liar");
    let real = work.programs.path("postgres").display().to_string();
    let script = format!(
        "#!/bin/sh\ncase \"$1\" in --version|-V) exec {real} \"$@\";; esac\necho 'FATAL: not today' >&2\nexit 1\n"
    );
    room.put(&liar.join("postgres"), script.as_bytes());
    fs::copy(work.programs.path("pg_ctl"), liar.join("pg_ctl")).unwrap();
    for name in ["postgres", "pg_ctl"] {
        give(&liar.join(name), 0o755);
    }
    told(
        &mut work.with_options(room.backup(), &liar, &[]),
        &["SR-7163", "not today"],
    );
    // Not of a cluster.
    let mut files = room.backup();
    files
        .arg("create")
        .arg(&liar)
        .arg("--to")
        .arg(room.at("medium"));
    checked(files.arg("--key-file").arg(&work.key));
    told(&mut work.drill(&[]), &["SR-1001"]);
}

#[test]
fn a_signal_ends_it_without_a_trace() {
    let room = Room::new("signal");
    let work = Work::new(&room, Programs::installed());
    work.create(&[]);
    let mut drill = work.drill(&["--query", "select pg_sleep(600)"]);
    let mut child = drill
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    let place = loop {
        let found = fs::read_dir(room.at("scratch")).unwrap().flatten().next();
        let place = found.map(|entry| entry.path());
        if let Some(place) = place.filter(|place| place.join("data/postmaster.pid").exists()) {
            break place;
        }
        assert!(begun.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(50));
    };
    let postmaster = fs::read_to_string(place.join("data/postmaster.pid")).unwrap();
    let postmaster = postmaster.lines().next().unwrap().to_owned();
    std::thread::sleep(Duration::from_secs(1));
    checked(Command::new("kill").args(["-TERM", &child.id().to_string()]));
    assert_eq!(child.wait().unwrap().code(), Some(5));
    assert!(begun.elapsed() < Duration::from_secs(90));
    work.nothing_is_left();
    // It has removed its files before it ends, and whoever inherited it has to see that it did.
    let state = Path::new("/proc").join(postmaster).join("stat");
    let runs = || fs::read_to_string(&state).is_ok_and(|state| !state.contains(") Z "));
    while runs() {
        assert!(
            begun.elapsed() < Duration::from_secs(90),
            "the server runs on"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Sends SIGTERM once something in the place is there; what is never there before the end.
fn stopped_at(work: &Work<'_>, mut drill: Command, at: &str, never: &str) {
    let scratch = work.room.at("scratch");
    let mut child = drill
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    let names = || -> Vec<String> {
        let places = fs::read_dir(&scratch).unwrap().flatten();
        let entries = places.filter_map(|place| fs::read_dir(place.path()).ok());
        let names = entries.flat_map(|entries| entries.flatten());
        names
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect()
    };
    while !names().iter().any(|name| name.starts_with(at)) {
        assert!(begun.elapsed() < Duration::from_secs(60), "{at}");
        std::thread::sleep(Duration::from_millis(2));
    }
    checked(Command::new("kill").args(["-TERM", &child.id().to_string()]));
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        assert!(!names().iter().any(|name| name == never), "{never}");
        assert!(begun.elapsed() < Duration::from_secs(90), "{at}");
        std::thread::sleep(Duration::from_millis(2));
    };
    assert_eq!(status.code(), Some(5));
    work.nothing_is_left();
}

#[test]
fn a_signal_ends_the_restore_and_the_start_too() {
    let room = Room::new("early");
    let work = Work::new(&room, Programs::installed());
    work.create(&[]);
    stopped_at(&work, work.drill(&[]), ".data.", "data");
    // A server that never gets ready.
    let slow = room.directory("slow");
    let real = work.programs.path("postgres").display().to_string();
    let script = format!(
        "#!/bin/sh\ncase \"$1\" in --version|-V) exec {real} \"$@\";; esac\nexec sleep 600\n"
    );
    room.put(&slow.join("postgres"), script.as_bytes());
    give(&slow.join("postgres"), 0o755);
    let drill = work.with_options(room.backup(), &slow, &[]);
    stopped_at(&work, drill, "run", "none");
}

#[test]
fn a_chain_is_tested_whole() {
    let room = Room::new("drilled-chain");
    let Some(programs) = packages::complete(&room) else {
        return;
    };
    let work = Work::new(&room, programs);
    work.server
        .sql("alter system set summarize_wal = on; select pg_reload_conf()");
    std::thread::sleep(Duration::from_secs(1));
    work.create(&[]);
    work.server
        .sql("insert into t select n from generate_series(1, 55) n");
    work.create(&["--incremental"]);
    let said = checked(&mut work.drill(&["--query", "select count(*) from t"]));
    assert_eq!(said.matches(": good").count(), 2, "{said}");
    assert!(
        said.contains("answer: 12400") && said.contains("by pg_amcheck"),
        "{said}"
    );
    work.nothing_is_left();
}

#[test]
fn what_cannot_be_checked_is_said() {
    let room = Room::new("few");
    let Some(programs) = packages::server(&room, 18) else {
        return;
    };
    let work = Work::new(&room, programs);
    work.create(&[]);
    let said = checked(&mut work.drill(&[]));
    for lacking in [
        "pg_amcheck is not installed",
        "pg_checksums is not installed",
    ] {
        assert!(said.contains(lacking), "{said}");
    }
    let said = refused(&mut work.drill(&["--query", "select 1"]));
    assert!(said.contains("SR-7164"), "{said}");
    work.nothing_is_left();
}
