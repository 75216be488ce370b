//! Goal: archives and backups bring a sealed instance back: to a point in time, and with pgBackRest.
//!
//! Method: real servers with a real archive command. The archive is what the shield's instance writes: sealed; the
//! instance that is restored takes over the data key (`--copy-key-from`). pgBackRest's backups and restores run under the
//! shield, so its repository holds what is unsealed, to be encrypted by pgBackRest; its archive is sealed, because segments
//! come and go as they are.
#![expect(
    clippy::too_many_lines,
    reason = "a scenario is read from top to bottom"
)]

use std::path::Path;
use std::time::Duration;

use strongroom_testing::random::{Random, seed};
use strongroom_testing_postgres::instance::{Guard, Instance, patiently};
use strongroom_testing_postgres::programs::Programs;
use strongroom_testing_postgres::room::{Room, checked};
use strongroom_testing_postgres::scan::Found;

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
        Guard::Sealed {
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
        Guard::Sealed {
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

/// The settings of one pgBackRest stanza with two instances' paths.
fn stanza(room: &Room, data: &Path, port: u16) -> String {
    let at = |name: &str| room.at(name).display().to_string();
    format!(
        "[global]\nrepo1-path={}\nlog-path={}\nlock-path={}\nspool-path={}\nlog-level-console=warn\nstart-fast=y\n\
         compress-level=1\nrepo1-retention-full=2\n[main]\npg1-path={}\npg1-port={port}\npg1-socket-path={}\n\
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
    let guard = Guard::Sealed {
        key: key.clone(),
        cipher: "aes-256-xts",
    };
    let a = Instance::create(&room, &programs, "a", guard.clone());
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
    // Sealed segments have no header that pgBackRest knows, and it must not look for the control file.
    let of_push = room.at("push.conf");
    let text = stanza(&room, a.data(), a.port());
    let text: String = text
        .lines()
        .filter(|line| !line.starts_with("pg1-"))
        .map(|line| format!("{line}\n"))
        .collect();
    room.put(&of_push, text.as_bytes());
    a.configure(&format!(
        "archive_mode = on\narchive_command = '{} --config={} --stanza=main --no-archive-header-check archive-push \
         \"$PWD/%p\"'\n",
        pgbackrest.display(),
        of_push.display()
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

    let b = Instance::named(&room, &programs, "b", guard);
    let mut header = b.strongroom("initdb");
    header
        .arg("--header-only")
        .arg("-D")
        .arg(b.data())
        .arg("--copy-key-from")
        .arg(a.data());
    checked(header.arg("--key-file").arg(&key));
    room.put(&of_b, stanza(&room, b.data(), b.port()).as_bytes());
    // It has to know the control file; the segment itself is not touched.
    let get = format!(
        "env STRONGROOM_SHIELD_LIB={} {} pg run -D {} -- {} --config={} --stanza=main archive-get %f \"%p\"",
        room.library().display(),
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
    b.start();
    let promoted = || {
        b.try_sql("select pg_is_in_recovery()")
            .is_ok_and(|told| told == "f")
    };
    assert!(patiently(Duration::from_secs(30), promoted), "{}", b.said());
    assert_eq!(b.sql(ALL), wanted);
    b.stop();
    b.check_checksums();
    let needles = [String::from(CANARY)];
    let found = Found::search(&[b.data().to_owned()], &needles, &needles);
    assert!(found.hits.is_empty(), "{:?}", found.hits);
}
