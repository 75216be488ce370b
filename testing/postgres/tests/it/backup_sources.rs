//! Goal: sets of every kind of server are restored to what it had: a standby, an instance under the
//! shield, a relation of more than one file; a server that is promoted, stopped or cut off in the
//! middle is an error with a code, and no set.
//!
//! Method: real servers, the real command; sources and restored instances plain and sealed, in all
//! combinations.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use strongroom_testing::random::{Random, seed};
use strongroom_testing_postgres::instance::{Instance, Protection};
use strongroom_testing_postgres::programs::Programs;
use strongroom_testing_postgres::room::Room;
use strongroom_testing_postgres::scan::Found;
use strongroom_testing_support::process::{checked, until};

const CANARY: &str = "CANARYsource";
const LOOK: &str = "select count(*), md5(string_agg(t, '' order by i)) from a";

struct Work<'a> {
    room: &'a Room,
    programs: Programs,
    key: PathBuf,
}

impl<'a> Work<'a> {
    fn new(room: &'a Room) -> Self {
        Self {
            room,
            programs: Programs::installed(),
            key: room.key("backup", &mut Random::new(seed())),
        }
    }

    fn filled(&self, name: &str, protection: Protection, rows: u32) -> Instance<'a> {
        let server = Instance::create(self.room, &self.programs, name, protection);
        server.start();
        server.sql(&format!(
            "create table a as select i, repeat('{CANARY}' || i, 5) as t from generate_series(1, {rows}) i;
             create index on a (i)"
        ));
        server
    }

    fn create(&self, from: &Instance<'_>, medium: &str) -> Command {
        let mut create = self.room.backup();
        create.arg("create").arg(from.address());
        create.arg("--to").arg(self.room.at(medium));
        create.arg("--key-file").arg(&self.key);
        create
    }

    fn restored(&self, medium: &str, name: &str) -> Instance<'a> {
        let mut restore = self.room.backup();
        restore.arg("restore").arg(self.room.at(medium));
        restore.arg("--to").arg(self.room.at(name));
        checked(restore.arg("--key-file").arg(&self.key));
        let restored = Instance::named(self.room, &self.programs, name, Protection::Plain);
        restored.configure("archive_mode = off\n");
        restored.start();
        restored
    }

    fn sets(&self, medium: &str) -> usize {
        let sets = fs::read_dir(self.room.at(medium).join("sets"));
        sets.map_or(0, Iterator::count)
    }
}

/// A backup that stands still in the middle of the cluster's files, until it is told to go on.
fn waiting(work: &Work<'_>, server: &Instance<'_>, medium: &str) -> Child {
    let mut create = work.create(server, medium);
    create.args(["--compression", "zstd:19", "--threads", "1"]);
    let child = create.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let child = child.unwrap();
    let phase = "select coalesce(max(phase), '') from pg_stat_progress_basebackup";
    let streaming = "streaming database files";
    until("the backup has begun", || server.sql(phase) == streaming);
    signal(&child, "-STOP");
    assert_eq!(server.sql(phase), streaming, "it is not over");
    child
}

fn signal(child: &Child, signal: &str) {
    checked(Command::new("kill").args([signal, &child.id().to_string()]));
}

/// Lets it go on to its end.
fn ended(child: Child) -> (Option<i32>, String) {
    signal(&child, "-CONT");
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), said)
}

#[test]
fn sealed_and_plain_instances_are_backed_up_and_restored() {
    let room = Room::new("combinations");
    let work = Work::new(&room);
    let key = room.key("instance", &mut Random::new(seed()));
    let sealed = || Protection::Sealed {
        key: key.clone(),
        cipher: "aes-256-xts",
    };
    for (from, protection) in [("plain", Protection::Plain), ("sealed", sealed())] {
        let server = work.filled(from, protection, 20_000);
        let medium = format!("medium-{from}");
        checked(&mut work.create(&server, &medium));
        let wanted = server.sql(LOOK);
        server.stop();
        let found = Found::search(&[room.at(&medium)], &[], &[String::from(CANARY)]);
        assert!(found.hits.is_empty(), "{:?}", found.hits);
        let to_plain = work.restored(&medium, &format!("{from}-to-plain"));
        assert_eq!(to_plain.sql(LOOK), wanted, "{from} to plain");
        to_plain.check_structure("postgres");
        to_plain.stop();
        to_plain.check_checksums();
        // Sealed in place, once it was recovered.
        let name = format!("{from}-to-sealed");
        work.restored(&medium, &name).stop();
        let to_sealed = Instance::named(&room, &work.programs, &name, sealed());
        let mut encrypt = to_sealed.strongroom("encrypt");
        encrypt.arg("-D").arg(to_sealed.data());
        checked(encrypt.arg("--key-file").arg(&key));
        to_sealed.start();
        assert_eq!(to_sealed.sql(LOOK), wanted, "{from} to sealed");
        to_sealed.stop();
        let found = Found::search(&[to_sealed.data().to_owned()], &[], &[String::from(CANARY)]);
        assert!(found.hits.is_empty(), "{:?}", found.hits);
    }
}

#[test]
fn a_standby_is_a_source() {
    let room = Room::new("standby");
    let work = Work::new(&room);
    let primary = work.filled("primary", Protection::Plain, 50_000);
    let standby = Instance::named(&room, &work.programs, "standby", Protection::Plain);
    let mut basebackup = primary.client("pg_basebackup");
    checked(
        basebackup
            .arg("-D")
            .arg(standby.data())
            .args(["-R", "-c", "fast"]),
    );
    standby.start();
    primary.sql("insert into a select i, 'later' from generate_series(1, 1000) i");
    let wanted = primary.sql(LOOK);
    until("replayed", || standby.sql(LOOK) == wanted);
    checked(&mut work.create(&standby, "medium"));
    let mut verify = room.backup();
    verify
        .arg("verify")
        .arg(room.at("medium"))
        .arg("--key-file")
        .arg(&work.key);
    let told = checked(verify.args(["--restore-test", "--query", LOOK]));
    assert!(told.contains(&wanted), "{told}");

    // Promoted while a backup of it is taken.
    let child = waiting(&work, &standby, "medium");
    standby.promote();
    let (exit, said) = ended(child);
    assert_eq!(exit, Some(5), "{said}");
    assert!(said.contains("SR-7115"), "{said}");
    assert_eq!(work.sets("medium"), 1);
}

#[test]
fn a_server_that_stops_or_is_cut_off_leaves_no_set() {
    let room = Room::new("stops");
    let work = Work::new(&room);
    let server = work.filled("server", Protection::Plain, 200_000);
    for end in ["stop", "terminate", "kill"] {
        let child = waiting(&work, &server, "medium");
        match end {
            "stop" => server.stop(),
            "terminate" => {
                server.sql("select pg_terminate_backend(pid) from pg_stat_progress_basebackup");
            }
            _ => server.kill(),
        }
        let (exit, said) = ended(child);
        assert_eq!(exit, Some(5), "{end}: {said}");
        assert!(said.contains("SR-7115"), "{end}: {said}");
        assert_eq!(work.sets("medium"), 0, "{end}");
        if end != "terminate" {
            server.start();
        }
    }
    checked(&mut work.create(&server, "medium"));
    assert_eq!(work.sets("medium"), 1);
}

/// A gigabyte is where PostgreSQL begins another file of a relation.
#[test]
fn a_relation_of_two_files_is_restored() {
    let room = Room::new("gigabyte");
    let work = Work::new(&room);
    let server = work.filled("server", Protection::Plain, 1000);
    server.sql(
        "create table wide (n int, filler text) with (fillfactor = 10);
         alter table wide alter filler set storage plain;
         insert into wide select n, repeat('f', 700) from generate_series(1, 135000) n",
    );
    let path = server.sql("select pg_relation_filepath('wide')");
    let second = format!("{path}.1");
    server.sql("checkpoint");
    let about = |file: &str| fs::metadata(server.data().join(file)).unwrap().len();
    assert_eq!(about(&path), 1 << 30);
    assert!(about(&second) > 0);
    let look = "select count(*), sum(n), sum(length(filler)) from wide";
    let wanted = server.sql(look);
    checked(&mut work.create(&server, "medium"));
    server.stop();
    let restored = work.restored("medium", "restored");
    assert_eq!(restored.sql(look), wanted);
    restored.stop();
    restored.check_checksums();
}
