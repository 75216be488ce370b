//! Goal: incremental sets of PostgreSQL 17 and later are restored with those that they build on, to
//! what the server had; no part of a chain can be lost, exchanged or expired without that being
//! told.
//!
//! Method: a server of 18 from packages with all its programs, the real command, restored clusters
//! that are started and compared.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test that panics has failed, and its files need not outlive a power cut"
)]

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use strongroom_testing::random::{Random, seed};
use strongroom_testing_postgres::instance::{Instance, Protection};
use strongroom_testing_postgres::packages;
use strongroom_testing_postgres::programs::Programs;
use strongroom_testing_postgres::room::Room;
use strongroom_testing_support::account::give;
use strongroom_testing_support::process::{checked, refused};

const LOOK: &str = "select count(*), md5(string_agg(t, '' order by i)) from a; \
    select count(*), md5(string_agg(t, '' order by i)) from still; select count(*) from elsewhere";
const SETTINGS: &str = "summarize_wal = on\nwal_level = replica\n";

struct Work<'a> {
    room: &'a Room,
    programs: Programs,
    server: Instance<'a>,
    key: PathBuf,
}

impl<'a> Work<'a> {
    /// A server with rows, and a tablespace; no set yet.
    fn new(room: &'a Room, settings: &str) -> Option<Self> {
        let programs = packages::complete(room)?;
        let server = Instance::create(room, &programs, "server", Protection::Plain);
        server.configure(settings);
        server.start();
        let space = room.directory("space");
        server.sql(&format!(
            "create tablespace beside location '{}'",
            space.display()
        ));
        server.sql(
            "create table a as select i, repeat(md5(i::text), 20) as t from generate_series(1, 20000) i;
             create table still as select i, md5(i::text) as t from generate_series(1, 20000) i;
             create table elsewhere tablespace beside as select i, md5(i::text) as t from generate_series(1, 20000) i;",
        );
        Some(Self {
            room,
            programs,
            server,
            key: room.key("main", &mut Random::new(seed())),
        })
    }

    fn medium(&self) -> PathBuf {
        self.room.at("medium")
    }

    /// `strongroom backup VERB`, with the key.
    fn backup(&self, verb: &str) -> Command {
        let mut command = self.room.backup();
        command.arg(verb).arg("--key-file").arg(&self.key);
        command
    }

    fn create(&self, options: &[&str]) -> Command {
        let mut command = self.backup("create");
        command.arg(self.server.address()).arg("--to");
        command.arg(self.medium()).args(options);
        command
    }

    fn restore(&self, to: &str, options: &[&str]) -> Command {
        let mut command = self.backup("restore");
        command.arg(self.medium()).arg("--to").arg(self.room.at(to));
        command.arg("--bindir").arg(self.programs.directory());
        command.args(options);
        command
    }

    /// What a server on the restored directory says.
    fn asked(&self, name: &str) -> String {
        let restored = Instance::named(self.room, &self.programs, name, Protection::Plain);
        restored.configure("archive_mode = off\n");
        restored.start();
        let said = restored.sql(LOOK);
        restored.stop();
        restored.check_checksums();
        said
    }
}

/// Everything beside the medium and the server that a restore may have left.
fn names(room: &Room) -> Vec<String> {
    let entries = fs::read_dir(room.path()).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn exchange(path: &Path, with: &Path) {
    let beside = path.with_extension("away");
    fs::rename(path, &beside).unwrap();
    fs::rename(with, path).unwrap();
    fs::rename(&beside, with).unwrap();
}

#[test]
fn a_chain_is_restored_to_what_the_server_had() {
    let room = Room::new("chain");
    let Some(work) = Work::new(&room, SETTINGS) else {
        return;
    };
    checked(&mut work.create(&[]));
    let first = work.server.sql(LOOK);
    work.server
        .sql("update a set t = 'changed' || i where i % 1000 = 0; insert into elsewhere select * from elsewhere limit 10");
    checked(&mut work.create(&["--incremental"]));
    let second = work.server.sql(LOOK);
    work.server
        .sql("delete from a where i > 15000; vacuum a; create table new as select * from still");
    let made = checked(&mut work.create(&["--incremental", "--json"]));
    assert!(made.contains("\"base_set_id\""), "{made}");
    let third = work.server.sql(LOOK);
    assert!(first != second && second != third);
    let header = checked(room.backup().arg("header").arg(work.medium()));
    assert_eq!(header.matches("builds on ").count(), 2, "{header}");
    let verified = checked(work.backup("verify").arg(work.medium()));
    assert_eq!(verified.matches(": good").count(), 3, "{verified}");

    let before = names(&room);
    checked(&mut work.restore("third", &[]));
    checked(&mut work.restore("second", &["--set", "2"]));
    checked(&mut work.restore("first", &["--set", "1"]));
    let mut after = names(&room);
    after.retain(|name| !before.contains(name));
    let expected =
        ["first", "second", "third"].map(|name| [name.to_owned(), format!("{name}.tablespaces")]);
    assert_eq!(after, expected.concat(), "nothing else is left");
    assert_eq!(work.asked("third"), third);
    assert_eq!(work.asked("second"), second);
    assert_eq!(work.asked("first"), first);
    // The restored servers wrote to tablespaces of their own.
    assert_eq!(work.server.sql(LOOK), third);
    // On a set that is named: a second branch.
    checked(&mut work.create(&["--incremental", "--base", "1"]));
    checked(&mut work.restore("branch", &[]));
    assert_eq!(work.asked("branch"), third);
}

/// Whether a file below a directory holds these bytes.
fn holds(directory: &Path, wanted: &[u8]) -> bool {
    let mut left = vec![directory.to_path_buf()];
    while let Some(path) = left.pop() {
        let about = fs::symlink_metadata(&path).unwrap();
        if about.is_dir() {
            let below = fs::read_dir(&path).unwrap();
            left.extend(below.map(|entry| entry.unwrap().path()));
        } else if about.is_file() {
            let bytes = fs::read(&path).unwrap();
            if bytes.windows(wanted.len()).any(|part| part == wanted) {
                return true;
            }
        }
    }
    false
}

/// Without `pg_combinebackup`, which would write in clear: the sets are written over each other,
/// sealed. Relations grow, shrink, are truncated, appear and go between them, and so does a
/// tablespace.
#[test]
fn a_sealed_chain_is_what_the_server_had() {
    let room = Room::new("chain-sealed");
    let Some(work) = Work::new(&room, SETTINGS) else {
        return;
    };
    let other = room.directory("leaving");
    work.server.sql(&format!(
        "create tablespace leaving location '{}'",
        other.display()
    ));
    work.server.sql(
        "create table gone tablespace leaving as select * from still;
         create table cut as select * from a; create table grown as select * from still;",
    );
    checked(&mut work.create(&[]));
    work.server.sql(
        "update a set t = 'changed-marked-' || i where i % 1000 = 0;
         insert into elsewhere select * from elsewhere limit 10;
         delete from cut where i > 100; vacuum cut;
         insert into grown select * from a;",
    );
    checked(&mut work.create(&["--incremental"]));
    work.server.sql(
        "delete from a where i > 15000; vacuum a; create table new as select * from still;
         truncate grown; insert into grown select * from still limit 500;
         insert into cut select * from a limit 5000; drop table gone;",
    );
    work.server.sql("drop tablespace leaving");
    checked(&mut work.create(&["--incremental"]));
    let look = format!(
        "{LOOK}; select count(*), md5(string_agg(t, '' order by i, t)) from cut;
         select count(*), md5(string_agg(t, '' order by i, t)) from grown; select count(*) from new"
    );
    let there = work.server.sql(&look);
    let key = room.key("instance", &mut Random::new(seed()));
    let mut restore = work.backup("restore");
    restore
        .arg(work.medium())
        .arg("--to")
        .arg(room.at("sealed"));
    // A directory without programs: none are needed.
    let nowhere = room.directory("nowhere");
    restore.arg("--bindir").arg(&nowhere);
    restore.args(["--sealed", "--instance-key-file"]).arg(&key);
    checked(&mut restore);
    for place in ["sealed", "sealed.tablespaces"] {
        assert!(!holds(&room.at(place), b"changed-marked-"), "{place}");
    }
    let spaces = fs::read_dir(room.at("sealed.tablespaces")).unwrap();
    assert_eq!(spaces.count(), 1, "the one that was dropped is not there");
    let protection = Protection::Sealed {
        key,
        cipher: "aes-256-xts",
    };
    let restored = Instance::named(&room, &work.programs, "sealed", protection);
    restored.configure("archive_mode = off\n");
    restored.start();
    assert_eq!(restored.sql(&look), there);
    restored.stop();
    restored.check_checksums();
    assert!(holds(&room.at("server"), b"changed-marked-"));
}

#[test]
fn tablespaces_of_a_chain_go_to_another_file_system() {
    let room = Room::new("apart");
    let Some(work) = Work::new(&room, SETTINGS) else {
        return;
    };
    let memory = tempfile::Builder::new()
        .prefix("sr-apart-")
        .tempdir_in("/dev/shm");
    let Ok(memory) = memory else { return };
    let device = |path: &Path| fs::metadata(path).unwrap().dev();
    if device(memory.path()) == device(room.path()) {
        return;
    }
    give(memory.path(), 0o700);
    checked(&mut work.create(&[]));
    work.server
        .sql("update a set t = 'changed' || i where i % 1000 = 0; insert into elsewhere select * from elsewhere limit 10");
    checked(&mut work.create(&["--incremental"]));
    let spaces = memory.path().join("spaces");
    let spaces = spaces.to_str().unwrap();
    checked(&mut work.restore("restored", &["--tablespaces", spaces]));
    assert_eq!(work.asked("restored"), work.server.sql(LOOK));
}

#[test]
fn no_set_that_another_needs_expires() {
    let room = Room::new("expire");
    let Some(work) = Work::new(&room, SETTINGS) else {
        return;
    };
    checked(&mut work.create(&[]));
    checked(&mut work.create(&["--incremental"]));
    checked(&mut work.create(&["--incremental"]));
    let expire = || {
        checked(
            room.backup()
                .arg("expire")
                .arg(work.medium())
                .args(["--keep", "1"]),
        )
    };
    assert!(expire().contains("removed 0 sets"));
    checked(&mut work.create(&[]));
    checked(&mut work.create(&["--incremental"]));
    let removed = expire();
    for set in 1..=3 {
        assert!(
            removed.contains(&format!("removed set {set}\n")),
            "{removed}"
        );
    }
    assert!(removed.contains("removed 3 sets"), "{removed}");
    let manifests = fs::read_dir(work.medium().join("data")).unwrap();
    let manifests = manifests.filter(|entry| {
        entry
            .as_ref()
            .unwrap()
            .path()
            .extension()
            .is_some_and(|end| end == "manifest")
    });
    assert_eq!(manifests.count(), 2);
    checked(&mut work.restore("restored", &[]));
    assert_eq!(work.asked("restored"), work.server.sql(LOOK));
    // All of them, and never the base alone.
    checked(&mut work.create(&["--init"]));
    let header = checked(room.backup().arg("header").arg(work.medium()));
    assert_eq!(header.matches("\nset ").count(), 1, "{header}");
}

#[test]
fn a_broken_chain_is_told_and_leaves_nothing() {
    let room = Room::new("broken");
    let Some(work) = Work::new(&room, SETTINGS) else {
        return;
    };
    checked(&mut work.create(&[]));
    work.server.sql("update a set t = 'x' where i < 10");
    checked(&mut work.create(&["--incremental"]));
    let head = |position: u32| work.medium().join(format!("sets/{position:08}"));
    let before = names(&room);
    let told = |code: &str| {
        let said = refused(&mut work.restore("restored", &[]));
        assert!(said.contains(code), "{code}: {said}");
        assert_eq!(names(&room), before, "{code}");
    };
    let away = room.at("medium/head-away");
    fs::rename(head(1), &away).unwrap();
    told("SR-7161");
    let said = refused(work.backup("verify").arg(work.medium()));
    assert!(said.contains("SR-7161"), "{said}");
    let said = refused(&mut work.create(&["--incremental", "--base", "1"]));
    assert!(said.contains("SR-7107"), "{said}");
    fs::rename(&away, head(1)).unwrap();
    // A head in another's place.
    exchange(&head(1), &head(2));
    let said = refused(&mut work.restore("restored", &["--set", "1"]));
    assert!(said.contains("SR-7106"), "{said}");
    exchange(&head(1), &head(2));
    // The manifest, changed, and exchanged for the other set's.
    let manifest = |position: u32| {
        let json = checked(room.backup().args(["header", "--json"]).arg(work.medium()));
        let sets: Vec<&str> = json.split("\"set_id\":").skip(1).collect();
        let at = usize::try_from(position - 1).unwrap();
        let id: String = sets[at]
            .chars()
            .filter(char::is_ascii_hexdigit)
            .take(32)
            .collect();
        work.medium().join(format!("data/{id}.manifest"))
    };
    let (one, two) = (manifest(1), manifest(2));
    exchange(&one, &two);
    let said = refused(&mut work.create(&["--incremental", "--base", "1"]));
    assert!(said.contains("SR-7109"), "{said}");
    exchange(&one, &two);
    let mut bytes = fs::read(&two).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    room.put(&two, &bytes);
    for command in [
        &mut work.create(&["--incremental"]),
        work.backup("verify").arg(work.medium()),
    ] {
        let said = refused(command);
        assert!(said.contains("SR-7109"), "{said}");
    }
    programs_that_fail_are_told(&work);
}

/// Those of the server, but for one that fails.
fn programs_that_fail_are_told(work: &Work<'_>) {
    let room = work.room;
    let liar = room.directory("liar");
    let postgres = work.programs.path("postgres").display().to_string();
    let script = |name: &str, text: &str| {
        room.put(&liar.join(name), text.as_bytes());
        give(&liar.join(name), 0o755);
    };
    script("postgres", &format!("#!/bin/sh\nexec {postgres} \"$@\"\n"));
    script(
        "pg_combinebackup",
        "#!/bin/sh\necho 'no room left' >&2\nexit 1\n",
    );
    let names_before = names(room);
    let mut restore = work.backup("restore");
    restore
        .arg(work.medium())
        .arg("--to")
        .arg(room.at("restored"));
    let said = refused(restore.arg("--bindir").arg(&liar));
    assert!(
        said.contains("SR-7162") && said.contains("no room left"),
        "{said}"
    );
    assert_eq!(names(room), names_before);
}

#[test]
fn what_cannot_be_built_on_is_refused() {
    let room = Room::new("refused");
    let Some(work) = Work::new(&room, "summarize_wal = off\n") else {
        return;
    };
    let told = |command: &mut Command, code: &str| {
        let said = refused(command);
        assert!(said.contains(code), "{code}: {said}");
    };
    let medium = work.medium();
    checked(
        work.backup("create")
            .arg(work.programs.directory().join("..").join("share"))
            .arg("--to")
            .arg(&medium),
    );
    told(&mut work.create(&["--incremental"]), "SR-7160");
    checked(&mut work.create(&[]));
    told(
        &mut work.create(&["--incremental", "--base", "1"]),
        "SR-7160",
    );
    told(&mut work.create(&["--incremental"]), "SR-7160");
    told(&mut work.create(&["--incremental", "--init"]), "SR-1001");
    // Summaries that begin after the base do not reach back to it.
    let listed = checked(room.backup().arg("header").arg(&medium));
    assert_eq!(listed.matches("\nset ").count(), 2, "{listed}");
    let installed = Programs::installed();
    if installed.major() < 17 {
        let old = Instance::create(&room, &installed, "old", Protection::Plain);
        old.start();
        let create = |options: &[&str]| {
            let mut create = work.backup("create");
            create
                .arg(old.address())
                .arg("--to")
                .arg(room.at("old-medium"))
                .args(options);
            create
        };
        checked(&mut create(&[]));
        told(&mut create(&["--incremental"]), "SR-7160");
    }
}
