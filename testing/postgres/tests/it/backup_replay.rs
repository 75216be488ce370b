//! Goal: `verify --restore-test` replays the archived log to its end, says how far it came, and
//! fails where a recovery would end too early or stop.
//!
//! Method: a real server that archives by `wal-push`, real restored servers, and archives from
//! which a segment was taken, in which one was damaged, or into which a segment was put whose
//! records PostgreSQL does not accept although every page is in its place.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use strongroom_testing::random::{Random, seed};
use strongroom_testing_postgres::instance::{Instance, Protection};
use strongroom_testing_postgres::programs::Programs;
use strongroom_testing_postgres::room::Room;
use strongroom_testing_support::process::{checked, patiently, refused};

const COUNT: &str = "select 'rows', count(*) from t";
/// Bytes of a page of the log.
const PAGE: usize = 8192;

/// A server that archives, and a set of it on a medium.
struct Work<'a> {
    room: &'a Room,
    programs: Programs,
    server: Instance<'a>,
    key: PathBuf,
}

impl<'a> Work<'a> {
    fn new(room: &'a Room) -> Self {
        let programs = Programs::installed();
        let server = Instance::create(room, &programs, "server", Protection::Plain);
        let key = room.key("main", &mut Random::new(seed()));
        drop(room.directory("scratch"));
        server.configure("archive_mode = on\narchive_command = 'true'\n");
        server.start();
        server.sql("create table t as select n from generate_series(1, 100) n");
        let work = Self {
            room,
            programs,
            server,
            key,
        };
        let mut create = work.backup("create");
        create.arg(work.server.address()).arg("--to");
        checked(create.arg(room.at("medium")));
        // Not before: a server that cannot archive waits a minute before it tries again, and the
        // backup for it.
        work.server.sql(&format!(
            "alter system set archive_command = $$STRONGROOM_KEYRING={} {} backup wal-push \"%p\" --to {} --key-file {}$$",
            room.at("keyring").display(),
            room.at("bin/strongroom").display(),
            room.at("medium").display(),
            work.key.display(),
        ));
        work.server.sql("select pg_reload_conf()");
        work
    }

    fn backup(&self, verb: &str) -> Command {
        let mut command = self.room.backup();
        command.arg(verb).arg("--key-file").arg(&self.key);
        command
    }

    /// Adds rows to the table in a segment of their own, and waits until it is archived. Its name.
    fn add(&self, rows: u32) -> String {
        self.server.sql(&format!(
            "insert into t select n from generate_series(1, {rows}) n"
        ));
        let name = self
            .server
            .sql("select pg_walfile_name(pg_current_wal_lsn() - 1)");
        self.server.sql("select pg_switch_wal()");
        let object = self.room.at("medium/wal").join(&name);
        assert!(
            patiently(Duration::from_secs(60), || object.exists()),
            "{name}"
        );
        name
    }

    fn with_options(&self, mut command: Command, options: &[&str]) -> Command {
        command.arg("verify").arg(self.room.at("medium"));
        command.arg("--key-file").arg(&self.key);
        command.arg("--restore-test").arg("--bindir");
        command.arg(self.programs.directory());
        command.arg("--scratch").arg(self.room.at("scratch"));
        command.args(options);
        command
    }

    fn drill(&self, options: &[&str]) -> Command {
        self.with_options(self.room.backup(), options)
    }

    fn archived(&self, name: &str) -> PathBuf {
        self.room.at("medium/wal").join(name)
    }

    fn nothing_is_left(&self) {
        let left = fs::read_dir(self.room.at("scratch")).unwrap().count();
        assert_eq!(left, 0);
    }

    /// The restore test fails with this code and these words.
    fn fails(&self, words: &[&str]) {
        let said = refused(&mut self.drill(&["--query", COUNT]));
        for word in words {
            assert!(said.contains(word), "{word}: {said}");
        }
        self.nothing_is_left();
    }
}

#[test]
fn the_archived_log_is_replayed_to_its_end() {
    let room = Room::new("replay");
    let work = Work::new(&room);
    let first = work.add(1000);
    let last = work.add(20_000);
    assert!(first < last);
    let said = checked(&mut work.drill(&["--query", COUNT]));
    assert!(said.contains("answer: rows|21100"), "{said}");
    assert!(
        said.contains("to the end of the archived log: the last record is at ")
            && said.contains("the last transaction ended at "),
        "{said}"
    );
    work.nothing_is_left();
    // The position is that of the server, in the last archived segment.
    let json = checked(&mut work.drill(&["--json"]));
    let at = json.split("\"lsn\":").nth(1).unwrap();
    let lsn = at.split('"').nth(1).unwrap();
    let name = work.server.sql(&format!("select pg_walfile_name('{lsn}')"));
    assert_eq!(name, last, "{json}");
    // Root has the key and the medium; the server it starts has neither.
    let mut root = Command::new(room.at("bin/strongroom"));
    root.env("STRONGROOM_KEYRING", room.at("keyring"))
        .arg("backup");
    let said = checked(&mut work.with_options(root, &["--query", COUNT]));
    assert!(said.contains("answer: rows|21100"), "{said}");
    work.nothing_is_left();
}

/// PostgreSQL asks for the same file more than once, and answers to former requests may lie there.
#[test]
fn a_log_of_many_segments_is_replayed_every_time() {
    let room = Room::new("many");
    let work = Work::new(&room);
    // In which order two requests are found depends on the names of the segments.
    for run in 1..=6 {
        work.add(100);
        let mut drill = work.drill(&["--query", COUNT]);
        let mut child = drill.stdout(Stdio::piped()).spawn().unwrap();
        // This process does not run all the time, so that requests wait for it in their directory.
        let ended = patiently(Duration::from_secs(60), || {
            if child.try_wait().unwrap().is_some() {
                return true;
            }
            signal(&child, "-STOP");
            std::thread::sleep(Duration::from_millis(60));
            signal(&child, "-CONT");
            false
        });
        if !ended {
            signal(&child, "-TERM");
        }
        let output = child.wait_with_output().unwrap();
        assert!(ended, "run {run} did not end");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "run {run}: {said}");
        assert!(
            said.contains(&format!("answer: rows|{}", 100 * (run + 1))),
            "run {run}: {said}"
        );
        work.nothing_is_left();
    }
}

fn signal(child: &Child, signal: &str) {
    let mut kill = Command::new("kill");
    kill.arg(signal).arg(child.id().to_string());
    assert!(kill.status().unwrap().success());
}

#[test]
fn a_log_that_does_not_go_to_its_end_is_found() {
    let room = Room::new("short");
    let work = Work::new(&room);
    let names: Vec<String> = (0..4).map(|_| work.add(3000)).collect();
    let [.., second, third, _] = names.as_slice() else {
        panic!("{names:?}");
    };
    let keep = |name: &str| fs::read(work.archived(name)).unwrap();
    let (of_second, of_third) = (keep(second), keep(third));

    // A segment that is missing, and one of which a bit has changed.
    fs::remove_file(work.archived(second)).unwrap();
    work.fails(&["SR-7130", second]);
    let mut damaged = of_second.clone();
    let middle = damaged.len() - 100;
    damaged[middle] ^= 1;
    room.put(&work.archived(second), &damaged);
    work.fails(&["SR-7109", second]);
    room.put(&work.archived(second), &of_second);

    // A segment of which every page is in its place, with a record whose checksum is wrong:
    // PostgreSQL takes that for the end of the log, and starts all the same.
    let plain = room.directory("plain").join(third);
    let mut fetch = work.backup("wal-fetch");
    fetch.arg(third).arg(&plain).arg("--from");
    checked(fetch.arg(room.at("medium")));
    let mut content = fs::read(&plain).unwrap();
    content[PAGE + 1000] ^= 0x55;
    room.put(&plain, &content);
    fs::remove_file(work.archived(third)).unwrap();
    let mut push = work.backup("wal-push");
    checked(push.arg(&plain).arg("--to").arg(room.at("medium")));
    checked(work.backup("verify").arg(room.at("medium")));
    work.fails(&["SR-7175", "the last record of the archive"]);
    fs::remove_file(work.archived(third)).unwrap();
    room.put(&work.archived(third), &of_third);

    let said = checked(&mut work.drill(&["--query", COUNT]));
    assert!(said.contains("answer: rows|12100"), "{said}");
    work.nothing_is_left();
}

/// A segment of another server's log under the name that recovery asks for next.
#[test]
fn log_of_another_cluster_is_found() {
    let room = Room::new("stranger");
    let work = Work::new(&room);
    let name = work.add(1000);
    let other = Instance::create(&room, &work.programs, "other", Protection::Plain);
    other.configure("wal_keep_size = 512MB\n");
    other.start();
    other.sql("create table u (n int)");
    let mut written = String::new();
    while written < name {
        other.sql("select pg_switch_wal(); insert into u values (1)");
        written = other.sql("select pg_walfile_name(pg_current_wal_lsn() - 1)");
    }
    other.sql("select pg_switch_wal()");
    fs::remove_file(work.archived(&name)).unwrap();
    let mut push = work.backup("wal-push");
    push.arg(other.data().join("pg_wal").join(&name))
        .arg("--to");
    checked(push.arg(room.at("medium")));
    work.fails(&["SR-7175"]);
}
