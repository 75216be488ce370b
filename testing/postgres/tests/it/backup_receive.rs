//! Goal: a receiver brings all of a server's log onto a medium, byte for byte and without a gap,
//! whatever ends it or the server; what it has told the server to be flushed is there for recovery;
//! nothing of it is in plaintext.
//!
//! Method: real servers under load, the real command, kill -9, SIGTERM, promotion of a standby, and
//! recovery from the medium alone.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test that panics has failed, and its files need not outlive a power cut"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use strongroom_testing::random::{Random, seed};
use strongroom_testing_postgres::instance::{Instance, Protection};
use strongroom_testing_postgres::programs::Programs;
use strongroom_testing_postgres::room::Room;
use strongroom_testing_postgres::scan::Found;
use strongroom_testing_support::process::{checked, refused, until};

const CANARY: &str = "CANARYreceived";
const SETTINGS: &str = "wal_level = replica\nwal_keep_size = 512MB\n";

struct Work<'a> {
    room: &'a Room,
    programs: Programs,
    server: Instance<'a>,
    key: PathBuf,
}

/// A receiver, killed when the test is over.
struct Receiver(Child);

impl Drop for Receiver {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl Receiver {
    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// SIGTERM, and the exit code.
    fn terminate(&mut self) -> Option<i32> {
        checked(Command::new("kill").args(["-TERM", &self.0.id().to_string()]));
        self.0.wait().unwrap().code()
    }
}

impl<'a> Work<'a> {
    /// A server and a medium with a set of it.
    fn new(room: &'a Room, settings: &str) -> Self {
        let programs = Programs::installed();
        let server = Instance::create(room, &programs, "server", Protection::Plain);
        server.configure(settings);
        server.start();
        server.sql("create table t (n bigint, filler text)");
        let key = room.key("main", &mut Random::new(seed()));
        let work = Self {
            room,
            programs,
            server,
            key,
        };
        let address = work.server.address();
        checked(
            work.backup("create")
                .arg(address)
                .arg("--to")
                .arg(work.medium()),
        );
        work
    }

    fn medium(&self) -> PathBuf {
        self.room.at("medium")
    }

    fn backup(&self, verb: &str) -> Command {
        let mut command = self.room.backup();
        command.arg(verb).arg("--key-file").arg(&self.key);
        command
    }

    fn receive(&self, from: &Instance<'_>, options: &[&str]) -> Command {
        let mut command = self.backup("wal-receive");
        command.arg(from.address()).arg("--to").arg(self.medium());
        command.args(options);
        command
    }

    fn receiver(&self, options: &[&str]) -> Receiver {
        let mut command = self.receive(&self.server, options);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Receiver(command.spawn().unwrap())
    }

    fn insert(&self, rows: u32) {
        self.server.sql(&format!(
            "insert into t select n, repeat('{CANARY}', 20) from generate_series(1, {rows}) n"
        ));
    }

    fn archived(&self) -> Vec<String> {
        let entries = fs::read_dir(self.medium().join("wal")).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.retain(|name| !name.starts_with('.'));
        names.sort();
        names
    }

    fn segments(&self) -> Vec<String> {
        let mut names = self.archived();
        names.retain(|name| name.len() == 24);
        names
    }

    fn fetched(&self, name: &str) -> Vec<u8> {
        let out = self.room.at(&format!("out-{name}"));
        checked(
            self.backup("wal-fetch")
                .arg(name)
                .arg(&out)
                .arg("--from")
                .arg(self.medium()),
        );
        let bytes = fs::read(&out).unwrap();
        fs::remove_file(&out).unwrap();
        bytes
    }

    /// Every archived segment is the server's, and none is missing between the first and the last.
    fn compare(&self, server: &Instance<'_>, timeline: &str) {
        let names = self.segments();
        let of: Vec<&String> = names
            .iter()
            .filter(|name| name.starts_with(timeline))
            .collect();
        for name in &of {
            let there = fs::read(server.data().join("pg_wal").join(name));
            assert!(there.unwrap() == self.fetched(name), "{name}");
        }
        let numbers: BTreeSet<u64> = of
            .iter()
            .map(|name| u64::from_str_radix(name.get(16..).unwrap(), 16).unwrap())
            .collect();
        let (first, last) = (numbers.first().unwrap(), numbers.last().unwrap());
        assert_eq!(numbers.len() as u64, last - first + 1, "{numbers:?}");
    }

    /// A cluster that was recovered from the medium as far as it goes.
    fn recovered(&self, name: &str) -> String {
        let mut restore = self.backup("restore");
        restore
            .arg(self.medium())
            .arg("--to")
            .arg(self.room.at(name));
        checked(restore.arg("--until-end"));
        let restored = Instance::named(self.room, &self.programs, name, Protection::Plain);
        restored.configure("archive_mode = off\n");
        restored.start();
        until("recovered", || {
            restored.sql("select pg_is_in_recovery()") == "f"
        });
        let said = restored.sql("select count(*) from t");
        restored.stop();
        said
    }
}

/// Whether the server has heard that all of its log is flushed.
fn has_all(server: &Instance<'_>) -> bool {
    let answer = server.sql(
        "select coalesce(bool_and(flush_lsn >= pg_current_wal_flush_lsn()), false) from pg_stat_replication",
    );
    answer == "t"
}

#[test]
fn a_killed_receiver_goes_on_without_a_gap() {
    let room = Room::new("receive");
    let work = Work::new(&room, SETTINGS);
    let slot = ["--slot", "vault", "--create-slot"];
    for kill in 0..4 {
        let receiver = work.receiver(&slot);
        work.insert(30_000);
        if kill % 2 == 0 {
            until("some log is archived", || !work.archived().is_empty());
        } else {
            until("all log is flushed", || has_all(&work.server));
        }
        receiver.kill();
    }
    work.server.sql("select pg_switch_wal()");
    let mut receiver = work.receiver(&slot);
    until("all log is flushed", || has_all(&work.server));
    work.insert(7);
    until("all log is flushed", || has_all(&work.server));
    assert_eq!(receiver.terminate(), Some(0));
    work.compare(&work.server, "00000001");
    // What the last segment has is in pieces, which are of that segment only.
    let pieces: Vec<String> = work
        .archived()
        .into_iter()
        .filter(|name| name.ends_with(".piece"))
        .collect();
    assert!(!pieces.is_empty());
    let last = work.segments().pop().unwrap();
    assert!(
        pieces
            .iter()
            .all(|piece| piece.get(..24).unwrap() > last.as_str()),
        "{pieces:?}"
    );
    let found = Found::search(&[work.medium()], &[], &[String::from(CANARY)]);
    assert!(found.hits.is_empty(), "{:?}", found.hits);
    let verified = checked(work.backup("verify").arg(work.medium()));
    assert!(verified.contains("none is missing"), "{verified}");
    // The server is gone: what it had told its users to be committed is on the medium.
    work.server.kill();
    assert_eq!(work.recovered("restored"), "120007");
    // With the pieces lost, recovery ends with the segment before.
    for piece in pieces {
        fs::remove_file(work.medium().join("wal").join(piece)).unwrap();
    }
    assert_eq!(work.recovered("shorter"), "120000");
}

#[test]
fn a_commit_waits_for_the_medium() {
    let room = Room::new("synchronous");
    let work = Work::new(&room, SETTINGS);
    work.server
        .configure("synchronous_standby_names = 'vault'\n");
    let mut command = work.backup("wal-receive");
    command.arg(format!("{} application_name=vault", work.server.address()));
    command.arg("--to").arg(work.medium());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let receiver = Receiver(command.spawn().unwrap());
    until("the receiver is there", || {
        work.server.sql("select count(*) from pg_stat_replication") == "1"
    });
    work.server.sql("select pg_reload_conf()");
    until("it is synchronous", || {
        work.server
            .sql("select sync_state from pg_stat_replication")
            == "sync"
    });
    for _ in 0..100 {
        work.insert(1);
    }
    // No other moment than this: whatever was committed is there.
    receiver.kill();
    work.server.kill();
    assert_eq!(work.recovered("restored"), "100");
    let pieces = work.archived().len();
    assert!(pieces <= 70, "{pieces} files for 100 commits");
}

#[test]
fn the_archive_may_be_written_by_both() {
    let room = Room::new("both");
    let work = Work::new(&room, SETTINGS);
    let push = format!(
        "{} --keyring {} backup wal-push \"%p\" --to {} --key-file {}",
        room.at("bin/strongroom").display(),
        room.at("keyring").display(),
        work.medium().display(),
        work.key.display()
    );
    work.server.stop();
    work.server
        .configure(&format!("archive_mode = on\narchive_command = '{push}'\n"));
    work.server.start();
    let mut receiver = work.receiver(&[]);
    for _ in 0..5 {
        work.insert(20_000);
        work.server.sql("select pg_switch_wal()");
    }
    until("all log is flushed", || has_all(&work.server));
    let last = work.server.sql("select pg_walfile_name(pg_switch_wal())");
    until("archived", || {
        work.server
            .sql("select coalesce(last_archived_wal, '') from pg_stat_archiver")
            >= last
    });
    assert_eq!(
        work.server.sql("select failed_count from pg_stat_archiver"),
        "0"
    );
    assert_eq!(receiver.terminate(), Some(0));
    work.compare(&work.server, "00000001");
    // A segment that is lost is told, and recovery does not end before it as if that were the end.
    let lost = work.segments().into_iter().rev().nth(1).unwrap();
    fs::remove_file(work.medium().join("wal").join(&lost)).unwrap();
    let told = refused(work.backup("verify").arg(work.medium()));
    assert!(told.contains("SR-7130") && told.contains(&lost), "{told}");
    let json = refused(work.backup("verify").arg("--json").arg(work.medium()));
    assert!(
        json.contains("\"ok\": false") || json.contains("\"ok\":false"),
        "{json}"
    );
}

#[test]
fn a_receiver_follows_a_server_that_was_promoted() {
    let room = Room::new("promoted");
    let work = Work::new(&room, SETTINGS);
    let standby = Instance::named(&room, &work.programs, "standby", Protection::Plain);
    let mut basebackup = work.server.client("pg_basebackup");
    checked(
        basebackup
            .arg("-D")
            .arg(standby.data())
            .args(["-R", "-c", "fast"]),
    );
    standby.start();
    // The log of the first set is not on the standby.
    let mut create = work.backup("create");
    create.arg(work.server.address()).arg("--to");
    checked(create.arg(work.medium()));
    work.insert(20_000);
    let receive = |options: &[&str]| {
        let mut command = work.receive(&standby, options);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Receiver(command.spawn().unwrap())
    };
    let mut receiver = receive(&[]);
    work.insert(30_000);
    until("some log is archived", || !work.archived().is_empty());
    until("replayed", || {
        standby.sql("select count(*) from t") == "50000"
    });
    work.server.stop();
    standby.promote();
    standby.sql(
        "insert into t select n, 'new' from generate_series(1, 30000) n; select pg_switch_wal()",
    );
    standby.sql("insert into t select n, 'new' from generate_series(1, 5) n");
    until("all log is flushed", || has_all(&standby));
    assert_eq!(receiver.terminate(), Some(0));
    let names = work.archived();
    assert!(
        names.contains(&String::from("00000002.history")),
        "{names:?}"
    );
    work.compare(&standby, "00000002");
    // The log of both is followed, by the history of the second.
    let verified = checked(work.backup("verify").arg(work.medium()));
    assert!(
        verified.contains("up to 00000002") && verified.contains("none is missing"),
        "{verified}"
    );
    let mut second = work.segments().into_iter();
    let first = second.find(|name| name.starts_with("00000002")).unwrap();
    let (path, away) = (work.medium().join("wal").join(&first), room.at("away"));
    fs::rename(&path, &away).unwrap();
    let told = refused(work.backup("verify").arg(work.medium()));
    assert!(told.contains("SR-7130") && told.contains(&first), "{told}");
    fs::rename(&away, &path).unwrap();
    let history = work.medium().join("wal/00000002.history");
    fs::rename(&history, &away).unwrap();
    let verified = checked(work.backup("verify").arg(work.medium()));
    assert!(
        verified.contains("not checked: log of the timelines after 1"),
        "{verified}"
    );
    fs::rename(&away, &history).unwrap();
    standby.kill();
    assert_eq!(work.recovered("restored"), "80005");
}

#[test]
fn what_cannot_be_received_is_told() {
    let room = Room::new("refused");
    let work = Work::new(&room, SETTINGS);
    let told = |command: &mut Command, code: &str| {
        let said = refused(command);
        assert!(said.contains(code), "{code}: {said}");
    };
    told(
        &mut work.receive(&work.server, &["--no-retry", "--slot", "none"]),
        "SR-7166",
    );
    told(
        &mut work.receive(&work.server, &["--slot", "none"]),
        "SR-7166",
    );
    let mut absent = work.backup("wal-receive");
    absent
        .arg(work.server.address())
        .arg("--to")
        .arg(room.at("nowhere"));
    told(&mut absent, "SR-7101");
    let mut plain = room.backup();
    plain
        .arg("wal-receive")
        .arg(work.server.address())
        .arg("--no-encryption");
    told(plain.arg("--to").arg(work.medium()), "SR-7104");
    // Up to a position, then of another cluster.
    work.insert(1000);
    let until = work.server.sql("select pg_current_wal_lsn()");
    checked(&mut work.receive(&work.server, &["--until-lsn", &until]));
    assert_eq!(
        work.archived()
            .iter()
            .filter(|name| name.ends_with(".piece"))
            .count(),
        1
    );
    // What is merely listed does not count: it is looked at, and made durable, first.
    let piece = work.archived().pop().unwrap();
    let path = work.medium().join("wal").join(piece);
    let whole = fs::read(&path).unwrap();
    room.put(&path, whole.split_last().unwrap().1);
    told(&mut work.receive(&work.server, &["--no-retry"]), "SR-7110");
    room.put(&path, &whole);
    let other = Instance::create(&room, &work.programs, "other", Protection::Plain);
    other.start();
    told(&mut work.receive(&other, &[]), "SR-7165");
    work.server.stop();
    told(&mut work.receive(&work.server, &["--no-retry"]), "SR-7166");
    // The log that comes next is gone: a gap is told, not made.
    work.server
        .configure("wal_keep_size = 0\nmax_wal_size = 32MB\nmin_wal_size = 32MB\n");
    work.server.start();
    for _ in 0..6 {
        work.insert(60_000);
        work.server.sql("select pg_switch_wal(); checkpoint");
    }
    let before = work.archived();
    told(&mut work.receive(&work.server, &[]), "SR-7166");
    assert_eq!(work.archived(), before);
}
