//! Goal: archives and backups bring a sealed instance back: to a point in time, and with
//! pgBackRest.
//!
//! Method: real servers, archived in each way of the guide. A sealed archive is what a program
//! outside of the shield copies; the instance that replays it takes over the data key
//! (`--copy-key-from`). An archive in clear is what a program under the shield, the server itself
//! or a receiver writes; it is replayed into an instance with another data key. pgBackRest runs
//! under the shield in all that it does, and encrypts its repository itself.
#![expect(
    clippy::too_many_lines,
    reason = "a scenario is read from top to bottom"
)]

use std::path::{Path, PathBuf};
use std::time::Duration;

use strongroom_testing::random::{Random, seed};
use strongroom_testing_postgres::instance::{Instance, Protection};
use strongroom_testing_postgres::programs::Programs;
use strongroom_testing_postgres::room::Room;
use strongroom_testing_postgres::scan::Found;
use strongroom_testing_support::process::{checked, patiently};

const CANARY: &str = "archived_canary_";
const ALL: &str = "select count(*), sum(hashtext(x)) from t";

fn add(instance: &Instance<'_>, label: &str) -> String {
    instance.sql(&format!(
        "insert into t select '{CANARY}{label}' || i from generate_series(1, 5000) i"
    ));
    instance.sql(ALL)
}

#[test]
fn a_point_in_time_is_recovered_from_a_sealed_archive() {
    let mut random = Random::new(seed());
    let room = Room::new("pitr");
    let programs = Programs::installed();
    let key = room.key("a", &mut random);
    let a = Instance::create(
        &room,
        &programs,
        "a",
        Protection::Sealed {
            key: key.clone(),
            cipher: "aes-256-xts",
        },
    );
    let archive = room.directory("archive");
    a.configure(&format!(
        "archive_mode = on\narchive_command = 'cp %p {}/%f'\n",
        archive.display()
    ));
    a.start();
    a.sql("create table t (x text)");
    add(&a, "before");
    let b = Instance::named(
        &room,
        &programs,
        "b",
        Protection::Sealed {
            key: key.clone(),
            cipher: "aes-256-xts",
        },
    );
    let mut header = b.strongroom("initdb");
    header
        .arg("--header-only")
        .arg("-D")
        .arg(b.data())
        .arg("--copy-key-from")
        .arg(a.data());
    checked(header.arg("--key-file").arg(&key));
    let mut backup = b.program("pg_basebackup");
    checked(
        backup
            .arg("-D")
            .arg(b.data())
            .args(["-d", &a.address(), "-c", "fast", "-X", "none"]),
    );
    let wanted = add(&a, "wanted");
    a.sql("select pg_create_restore_point('here'); select pg_switch_wal()");
    add(&a, "too late");
    a.sql("select pg_switch_wal()");
    let archived = || a.sql("select archived_count >= 3 from pg_stat_archiver") == "t";
    assert!(
        patiently(Duration::from_secs(20), archived),
        "nothing is archived"
    );
    a.stop();

    let needles = [String::from(CANARY)];
    let found = Found::search(std::slice::from_ref(&archive), &needles, &needles);
    assert!(
        found.hits.is_empty() && found.bytes > 32 << 20,
        "the archive in clear: {:?}",
        found.hits
    );
    room.put(&b.data().join("recovery.signal"), b"");
    b.configure(&format!(
        "archive_mode = off\nrestore_command = 'cp {}/%f %p'\nrecovery_target_name = 'here'\n\
         recovery_target_action = promote\n",
        archive.display()
    ));
    b.start();
    let promoted = || {
        b.try_sql("select pg_is_in_recovery()")
            .is_ok_and(|told| told == "f")
    };
    assert!(patiently(Duration::from_secs(30), promoted), "{}", b.said());
    assert_eq!(b.sql(ALL), wanted);
    // A new timeline, whose history was an xlogtemp file; and it crashes and recovers on it.
    assert!(b.data().join("pg_wal/00000002.history").exists());
    let text = std::fs::read_to_string(b.data().join("pg_wal/00000002.history"));
    assert!(text.expect("a history in clear").contains("here"));
    let more = add(&b, "on the new timeline");
    b.kill();
    b.start();
    assert_eq!(b.sql(ALL), more);
    b.stop();
    b.check_checksums();
}

/// A new instance with a data key of its own, filled from a base backup without any of the log.
fn from_backup<'a>(room: &'a Room, of: &Instance<'_>, random: &mut Random) -> Instance<'a> {
    let protection = Protection::Sealed {
        key: room.key("b", random),
        cipher: "aes-128-xts",
    };
    let b = Instance::named(room, of.programs(), "b", protection);
    b.prepare();
    let mut backup = b.program("pg_basebackup");
    checked(
        backup
            .arg("-D")
            .arg(b.data())
            .args(["-d", &of.address(), "-c", "fast", "-X", "none"]),
    );
    b
}

/// Archives in clear are replayed only where the administrator says so.
const ACCEPTED: [(&str, &str); 1] = [("STRONGROOM_PG_PLAIN_ARCHIVE", "accept")];

/// Has the instance replay an archive to its end.
fn recover(room: &Room, b: &Instance<'_>, restore_command: &str) {
    let signal = b.data().join("recovery.signal");
    if !signal.exists() {
        room.put(&signal, b"");
    }
    b.configure(&format!(
        "archive_mode = off\nrestore_command = '{restore_command}'\n"
    ));
    b.start_with(&ACCEPTED);
    let promoted = || {
        b.try_sql("select pg_is_in_recovery()")
            .is_ok_and(|told| told == "f")
    };
    assert!(
        patiently(Duration::from_secs(120), promoted),
        "{}",
        b.said()
    );
}

/// Searches directories for what was put into the tables.
fn search(places: &[PathBuf]) -> Found {
    let needles = [String::from(CANARY)];
    Found::search(places, &needles, &needles)
}

/// An archive that holds the log in clear, in `directory`, is replayed into an instance with
/// another data key; nothing of it is in clear there.
fn replays(room: &Room, b: &Instance<'_>, directory: &Path, restore_command: &str, wanted: &str) {
    let archived = search(&[directory.to_owned()]);
    assert!(!archived.hits.is_empty(), "this archive is in clear");
    // What a killed server may have left of a segment.
    let left = b.data().join("pg_wal/RECOVERYXLOG");
    // It may be a link by now.
    drop(std::fs::remove_file(&left));
    room.put(&left, &[0xff; 10_000]);
    recover(room, b, restore_command);
    assert_eq!(b.sql(ALL), wanted);
    let told = b.said();
    assert_eq!(told.matches("in clear and was sealed").count(), 1, "{told}");
    b.kill();
    b.start();
    assert_eq!(b.sql(ALL), wanted);
    b.stop();
    b.check_checksums();
    let found = search(&[b.data().to_owned()]);
    assert!(found.hits.is_empty(), "{:?}", found.hits);
    let again = search(&[directory.to_owned()]);
    assert_eq!(again.hits, archived.hits, "the archive is as it was");
}

#[test]
fn an_archive_in_clear_by_pg_run_is_replayed_or_refused() {
    let mut random = Random::new(seed());
    let room = Room::new("plain-archive");
    let a = primary(&room, &mut random);
    let archive = room.directory("archive");
    a.configure(&format!(
        "archive_mode = on\narchive_command = '{} pg run -D {} -- cp %p {}/%f'\n",
        room.at("bin/strongroom").display(),
        a.data().display(),
        archive.display()
    ));
    a.start();
    a.sql("create table t (x text)");
    let b = from_backup(&room, &a, &mut random);
    add(&a, "one");
    a.sql("select pg_switch_wal()");
    let wanted = add(&a, "two");
    a.sql("select pg_switch_wal()");
    let archived = || a.sql("select archived_count >= 4 from pg_stat_archiver") == "t";
    assert!(patiently(Duration::from_secs(60), archived), "{}", a.said());
    a.stop();
    let restore = format!("cp {}/%f %p", archive.display());
    // What somebody puts into an archive in clear is refused, unless the administrator says that it
    // is taken.
    room.put(&b.data().join("recovery.signal"), b"");
    b.configure(&format!(
        "archive_mode = off\nrestore_command = '{restore}'\n"
    ));
    for variables in [&[][..], &[("STRONGROOM_PG_PLAIN_ARCHIVE", "Accept")]] {
        let told = b.start_refused_with(variables);
        assert!(told.contains("SR-7023"), "{told}");
    }
    // A link is the archive's own file, and is not written.
    b.configure(&format!(
        "restore_command = 'ln -s {}/%f %p'\n",
        archive.display()
    ));
    let told = b.start_refused_with(&ACCEPTED);
    assert!(told.contains("SR-7023"), "{told}");
    replays(&room, &b, &archive, &restore, &wanted);
}

#[test]
fn an_archive_in_clear_by_pg_receivewal_is_replayed() {
    let mut random = Random::new(seed());
    let room = Room::new("receivewal");
    let a = primary(&room, &mut random);
    let archive = room.directory("archive");
    // What the receiver has not seen yet is kept for it.
    a.configure("wal_keep_size = 256MB\n");
    a.start();
    a.sql("create table t (x text)");
    let mut receiver = a.client("pg_receivewal");
    receiver
        .arg("-D")
        .arg(&archive)
        .args(["--no-loop", "-U", "postgres"]);
    let mut receiver = receiver.spawn().expect("pg_receivewal");
    let receiving = || std::fs::read_dir(&archive).is_ok_and(|all| all.count() > 0);
    assert!(
        patiently(Duration::from_secs(60), receiving),
        "nothing is received"
    );
    let b = from_backup(&room, &a, &mut random);
    add(&a, "one");
    a.sql("select pg_switch_wal()");
    let wanted = add(&a, "the last segment is not complete");
    // A server that is stopped sends all that it has first.
    a.stop();
    receiver.wait().expect("pg_receivewal ends");
    let partial = |name: &std::ffi::OsStr| name.to_string_lossy().ends_with(".partial");
    let mut names = std::fs::read_dir(&archive).expect("the archive");
    assert!(names.any(|entry| entry.is_ok_and(|entry| partial(&entry.file_name()))));
    let at = archive.display();
    let restore = format!("cp {at}/%f %p || cp {at}/%f.partial %p");
    replays(&room, &b, &archive, &restore, &wanted);
}

#[test]
fn an_archive_in_clear_by_basic_archive_is_replayed() {
    let mut random = Random::new(seed());
    let room = Room::new("basic-archive");
    let a = primary(&room, &mut random);
    if !a.programs().has_module("basic_archive") {
        return println!("skipped: basic_archive is not installed");
    }
    let archive = room.directory("archive");
    a.configure(&format!(
        "archive_mode = on\narchive_library = basic_archive\nbasic_archive.archive_directory = '{}'\n",
        archive.display()
    ));
    a.start();
    a.sql("create table t (x text)");
    let b = from_backup(&room, &a, &mut random);
    let wanted = add(&a, "one");
    a.sql("select pg_switch_wal()");
    let archived = || a.sql("select archived_count >= 2 from pg_stat_archiver") == "t";
    assert!(patiently(Duration::from_secs(60), archived), "{}", a.said());
    a.stop();
    let restore = format!("cp {}/%f %p", archive.display());
    replays(&room, &b, &archive, &restore, &wanted);
}

/// The instance whose log is archived.
fn primary<'a>(room: &'a Room, random: &mut Random) -> Instance<'a> {
    let protection = Protection::Sealed {
        key: room.key("a", random),
        cipher: "aes-256-xts",
    };
    Instance::create(room, &Programs::installed(), "a", protection)
}

/// The settings of one pgBackRest stanza with two instances' paths.
fn stanza(room: &Room, data: &Path, port: u16) -> String {
    let at = |name: &str| room.at(name).display().to_string();
    format!(
        "[global]\nrepo1-path={}\nlog-path={}\nlock-path={}\nspool-path={}\nlog-level-console=warn\nstart-fast=y\n\
         compress-level=1\nrepo1-retention-full=2\nrepo1-cipher-type=aes-256-cbc\nrepo1-cipher-pass=a passphrase of this test\n[main]\npg1-path={}\npg1-port={port}\npg1-socket-path={}\n\
         pg1-user=postgres\n",
        at("repo"),
        at("brlog"),
        at("brlock"),
        at("brspool"),
        data.display(),
        room.path().display()
    )
}

#[test]
fn pgbackrest_works_under_the_shield() {
    let Some(pgbackrest) = ["/usr/bin/pgbackrest"]
        .map(Path::new)
        .into_iter()
        .find(|path| path.exists())
    else {
        return println!("skipped: pgBackRest is not installed");
    };
    let mut random = Random::new(seed());
    let room = Room::new("pgbackrest");
    let programs = Programs::installed();
    let key = room.key("a", &mut random);
    let protection = Protection::Sealed {
        key,
        cipher: "aes-256-xts",
    };
    let a = Instance::create(&room, &programs, "a", protection);
    for name in ["repo", "brlog", "brlock", "brspool"] {
        drop(room.directory(name));
    }
    let (of_a, of_b) = (room.at("a.conf"), room.at("b.conf"));
    room.put(&of_a, stanza(&room, a.data(), a.port()).as_bytes());
    let shielded = |instance: &Instance<'_>, configuration: &Path, words: &[&str]| {
        let mut command = instance.strongroom("run");
        command
            .arg("-D")
            .arg(instance.data())
            .arg("--")
            .arg(pgbackrest);
        command
            .arg(format!("--config={}", configuration.display()))
            .arg("--stanza=main")
            .args(words);
        checked(&mut command)
    };
    a.configure(&format!(
        "archive_mode = on\narchive_command = '{} pg run -D {} -- {} --config={} --stanza=main archive-push %p'\n",
        room.at("bin/strongroom").display(),
        a.data().display(),
        pgbackrest.display(),
        of_a.display()
    ));
    a.start();
    a.sql("create table t (x text)");
    add(&a, "before");
    shielded(&a, &of_a, &["stanza-create"]);
    shielded(&a, &of_a, &["--type=full", "backup"]);
    add(&a, "incremental");
    shielded(&a, &of_a, &["--type=incr", "backup"]);
    let wanted = add(&a, "archived only");
    a.sql("select pg_switch_wal()");
    shielded(&a, &of_a, &["check"]);
    a.stop();

    let protection = Protection::Sealed {
        key: room.key("b", &mut random),
        cipher: "aes-128-xts",
    };
    let b = Instance::named(&room, &programs, "b", protection);
    b.prepare();
    room.put(&of_b, stanza(&room, b.data(), b.port()).as_bytes());
    let get = format!(
        "{} pg run -D {} -- {} --config={} --stanza=main archive-get %f \"%p\"",
        room.at("bin/strongroom").display(),
        b.data().display(),
        pgbackrest.display(),
        of_b.display()
    );
    shielded(
        &b,
        &of_b,
        &[
            "--archive-mode=off",
            &format!("--recovery-option=restore_command={get}"),
            "restore",
        ],
    );
    // What pgBackRest hands over is in clear.
    b.start_with(&ACCEPTED);
    let promoted = || {
        b.try_sql("select pg_is_in_recovery()")
            .is_ok_and(|told| told == "f")
    };
    assert!(patiently(Duration::from_secs(30), promoted), "{}", b.said());
    assert_eq!(b.sql(ALL), wanted);
    b.stop();
    b.check_checksums();
    let needles = [String::from(CANARY)];
    let places = [b.data().to_owned(), room.at("repo")];
    let found = Found::search(&places, &needles, &needles);
    assert!(found.hits.is_empty(), "{:?}", found.hits);
}
