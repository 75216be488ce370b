//! Goal: the programs for the log work on a sealed instance and on its archive: `pg_waldump`,
//! `pg_receivewal`, `pg_archivecleanup`, `pg_resetwal`, under `strongroom pg run`; and what is
//! archived on a newer version brings it back.
//!
//! Method: a sealed server with a real archive command. An archive lies outside of every data
//! directory, where nothing is taken for sealed: a directory with nothing but the header of the
//! instance and a link `pg_wal` to the archive gives it a place. The same directory receives a log
//! by `pg_receivewal`, sealed as it comes.
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
use strongroom_testing_postgres::scan::{Found, files_of};
use strongroom_testing_support::process::{checked, patiently, refused};

const CANARY: &str = "CANARYarchive";
const ALL: &str = "select count(*), sum(hashtext(x)) from t";

/// A sealed instance with an archive, and the archive.
fn archived<'a>(
    room: &'a Room,
    programs: &Programs,
    random: &mut Random,
) -> (Instance<'a>, PathBuf) {
    let protection = Protection::Sealed {
        key: room.key("a", random),
        cipher: "aes-256-xts",
    };
    let a = Instance::create(room, programs, "a", protection);
    let archive = room.directory("archive");
    a.configure(&format!(
        "archive_mode = on\narchive_command = 'cp %p {}/%f'\n",
        archive.display()
    ));
    a.start();
    a.sql("create table t (x text)");
    (a, archive)
}

/// Rows, in a segment of their own when the next one is begun; what the table then holds, and the
/// segment's name.
fn add(instance: &Instance<'_>, label: &str) -> (String, String) {
    instance.sql(&format!(
        "insert into t select '{CANARY}{label}' || i from generate_series(1, 5000) i;
         select pg_logical_emit_message(true, 'p', '{CANARY}{label}')"
    ));
    (
        instance.sql(ALL),
        instance.sql("select pg_walfile_name(pg_current_wal_lsn() - 1)"),
    )
}

/// Begins the next segment and waits until `name` is in the archive.
fn switch(instance: &Instance<'_>, name: &str) {
    instance.sql("select pg_switch_wal()");
    let done = || {
        instance.sql(&format!(
            "select last_archived_wal >= '{name}' from pg_stat_archiver"
        )) == "t"
    };
    assert!(
        patiently(Duration::from_secs(60), done),
        "{name} is not archived"
    );
}

/// A directory with the data key of `of` and nothing else.
fn header_only<'a>(room: &'a Room, of: &Instance<'_>, name: &str) -> Instance<'a> {
    let protection = Protection::Sealed {
        key: room.at("a.key"),
        cipher: "aes-256-xts",
    };
    let instance = Instance::named(room, of.programs(), name, protection);
    let mut header = instance.strongroom("initdb");
    header.arg("--header-only").arg("-D").arg(instance.data());
    header.arg("--copy-key-from").arg(of.data());
    checked(header.arg("--key-file").arg(room.at("a.key")));
    instance
}

/// `strongroom pg run -D ... -- PROGRAM ...`
fn run(on: &Instance<'_>, program: &str, arguments: &[&str]) -> std::process::Command {
    let mut command = on.strongroom("run");
    command.arg("-D").arg(on.data()).arg("--").arg(program);
    command.args(arguments);
    command
}

fn readable(path: &Path) -> bool {
    let needles = [String::from(CANARY)];
    let found = Found::search(&[path.to_owned()], &needles, &needles);
    assert!(found.bytes > 0, "{} holds nothing", path.display());
    !found.hits.is_empty()
}

#[test]
fn the_programs_for_the_log_work_on_a_sealed_archive() {
    let room = Room::new("archive");
    let (a, archive) = archived(&room, &Programs::installed(), &mut Random::new(seed()));
    let (_, first) = add(&a, "first");
    switch(&a, &first);
    let here = a.data().join("pg_wal").join(&first);
    let there = archive.join(&first);
    let [here, there] = [&here, &there].map(|path| path.display().to_string());

    // In the data directory; and outside of it, where it is refused and not misread.
    let dumped = checked(&mut run(&a, "pg_waldump", &[&here]));
    assert!(
        dumped.contains("LOGICAL_MESSAGE") || dumped.contains("LogicalMessage"),
        "{dumped}"
    );
    let said = refused(&mut run(&a, "pg_waldump", &[&there]));
    assert!(!said.contains("rmgr:"), "{said}");

    // With the header beside it.
    let look = header_only(&room, &a, "look");
    std::os::unix::fs::symlink(&archive, look.data().join("pg_wal")).expect("a link");
    let segment = look
        .data()
        .join("pg_wal")
        .join(&first)
        .display()
        .to_string();
    assert_eq!(checked(&mut run(&look, "pg_waldump", &[&segment])), dumped);
    let place = look.data().join("pg_wal").display().to_string();
    let by_place = checked(&mut run(&look, "pg_waldump", &["-p", &place, &first]));
    assert_eq!(by_place, dumped);

    // Received over a connection into such a directory, it is sealed and equal.
    let received = header_only(&room, &a, "received");
    let into = room.directory("received/pg_wal");
    let (_, second) = add(&a, "second");
    // It ends when it has received more than that.
    let end = a.sql("select pg_current_wal_lsn() - 1");
    let target = into.display().to_string();
    let mut receive = run(
        &received,
        "pg_receivewal",
        &[
            "-D",
            &target,
            "-d",
            &a.address(),
            "--no-loop",
            "--endpos",
            &end,
        ],
    );
    checked(&mut receive);
    assert!(!readable(&into), "received in clear");
    assert!(into.join(format!("{second}.partial")).exists());
    switch(&a, &second);
    // It goes on where it was, and finishes the segment.
    let end = a.sql("select pg_current_wal_lsn() - 1");
    let mut receive = run(
        &received,
        "pg_receivewal",
        &[
            "-D",
            &target,
            "-d",
            &a.address(),
            "--no-loop",
            "--endpos",
            &end,
        ],
    );
    checked(&mut receive);
    let whole = checked(&mut run(&received, "pg_waldump", &["-p", &target, &second]));
    assert!(whole.contains("Heap"), "{whole}");
    assert_eq!(
        whole,
        checked(&mut run(&look, "pg_waldump", &["-p", &place, &second]))
    );

    // Only names matter to pg_archivecleanup; it works on either side of the shield.
    checked(&mut run(&look, "pg_archivecleanup", &[&place, &second]));
    let mut left = files_of(&archive);
    left.retain(|name| name.len() == 24);
    assert_eq!(left.first(), Some(&second), "{left:?}");
    assert!(!readable(&archive), "archived in clear");
}

#[test]
fn a_log_is_reset_under_the_shield_only() {
    let mut random = Random::new(seed());
    let room = Room::new("resetwal");
    let (a, _) = archived(&room, &Programs::installed(), &mut random);
    let (rows, segment) = add(&a, "kept");
    a.sql("checkpoint");
    a.stop();
    let control = || std::fs::read(a.data().join("global/pg_control")).expect("pg_control");
    let before = control();
    let data = a.data().display().to_string();
    // Without the shield it sees noise, says so, and changes nothing.
    let said = refused(
        room.command(&a.programs().path("pg_resetwal"))
            .args(["-D", &data]),
    );
    assert!(said.contains("pg_control"), "{said}");
    assert!(control() == before, "an unshielded pg_resetwal wrote");

    let dry = checked(&mut run(&a, "pg_resetwal", &["-n", "-D", &data]));
    assert!(dry.contains("Current pg_control values"), "{dry}");
    assert!(control() == before, "a dry run wrote");
    checked(&mut run(&a, "pg_resetwal", &["-D", &data]));
    let logs = files_of(&a.data().join("pg_wal"));
    assert!(
        !logs.contains(&segment) && logs.iter().any(|name| name.len() == 24),
        "{logs:?}"
    );
    assert!(control() != before);
    a.start();
    assert_eq!(a.sql(ALL), rows);
    // After a kill it takes force, and loses what was only in the log.
    a.sql("checkpoint");
    a.kill();
    std::fs::remove_file(a.data().join("postmaster.pid")).expect("left by the killed server");
    let said = refused(&mut run(&a, "pg_resetwal", &["-D", &data]));
    assert!(said.contains("not shut down cleanly"), "{said}");
    checked(&mut run(&a, "pg_resetwal", &["-f", "-D", &data]));
    a.start();
    assert_eq!(a.sql(ALL), rows);
    a.stop();
    a.check_checksums();
    assert!(
        !readable(&a.data().join("pg_wal")),
        "the new log is in clear"
    );
}

#[test]
fn a_point_in_time_is_recovered_on_a_newer_version() {
    let mut random = Random::new(seed());
    let room = Room::new("archive18");
    let Some(programs) = Programs::newer(&room) else {
        return;
    };
    let (a, archive) = archived(&room, &programs, &mut random);
    let b = header_only(&room, &a, "b");
    let mut backup = b.program("pg_basebackup");
    backup.arg("-D").arg(b.data());
    checked(backup.args(["-d", &a.address(), "-c", "fast", "-X", "none"]));
    let (wanted, segment) = add(&a, "wanted");
    a.sql("select pg_create_restore_point('here')");
    switch(&a, &segment);
    let (_, late) = add(&a, "too late");
    switch(&a, &late);
    a.stop();
    assert!(!readable(&archive), "archived in clear");
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
    assert!(patiently(Duration::from_secs(60), promoted), "{}", b.said());
    assert_eq!(b.sql(ALL), wanted);
    b.kill();
    b.start();
    assert_eq!(b.sql(ALL), wanted);
    b.stop();
    b.check_checksums();
}
