//! Goal: the log of a sealed instance, archived and brought back by the words of
//! docs/guides/backup.md, recovers what a plain server's does, and a sealed instance is handed
//! nothing in clear.
//!
//! Method: real servers under the library, the real command as their archive and restore command,
//! without the library there.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use crate::instance;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use instance::{OTHER, Place, Run};

const GUIDE: &str = include_str!("../../../../docs/guides/backup.md");

/// The command of the guide that begins so, with the paths of this place.
fn of_guide(place: &Place, begins: &str) -> String {
    let line = GUIDE
        .lines()
        .map(str::trim)
        .find(|line| line.starts_with(begins));
    let line = line.unwrap().split("   #").next().unwrap();
    let path = |name: &str| place.path(name).display().to_string();
    let binary = place.binary().display().to_string();
    let paths = [
        ("/etc/strongroom/keyring", path("keyring")),
        ("/etc/strongroom/root.key", path("root.key")),
        ("/etc/strongroom/backup.key", path("root.key")),
        ("/mnt/backups", path("medium")),
        ("/srv/restored", path("restored")),
        ("host=/run/postgresql", place.connection()),
    ];
    let filled = paths
        .iter()
        .fold(line.to_owned(), |line, (from, to)| line.replace(from, to));
    filled.replace("strongroom --keyring", &format!("{binary} --keyring"))
}

/// Runs a line of `strongroom` by the shell, as the server's user.
fn shell(place: &Place, line: &str) -> Run {
    let mut command = place.program("sh");
    command
        .env("STRONGROOM", place.binary())
        .env("STRONGROOM_KEYRING", place.path("keyring"))
        .env("XDG_STATE_HOME", place.path("state"))
        .args(["-c", &line.replacen("strongroom ", "\"$STRONGROOM\" ", 1)]);
    instance::run(&mut command)
}

/// Runs a command of the guide.
fn guide(place: &Place, begins: &str) -> Run {
    shell(place, &of_guide(place, begins))
}

/// A keyring with a certificate, a sealed server that archives as the guide says, and a set of it.
fn archiving() -> Place {
    let place = Place::with_instance();
    place.write("root.key", OTHER);
    fs::set_permissions(place.path("root.key"), fs::Permissions::from_mode(0o600)).unwrap();
    guide(&place, "strongroom keyring init").succeeded();
    guide(&place, "strongroom cert create vault").succeeded();
    let archive = of_guide(&place, "archive_command = ");
    let mut settings = fs::read_to_string(place.path("data/postgresql.conf")).unwrap();
    // What was archived stays in pg_wal, to be looked at.
    settings.push_str(&format!(
        "archive_mode = on\nwal_keep_size = 256MB\n{archive}\n"
    ));
    place.write("data/postgresql.conf", &settings);
    place.start(&[]).succeeded();
    guide(&place, "strongroom backup create \"host=").succeeded();
    place
}

/// Ends the present segment and waits for the archive to have it.
fn archived(place: &Place) -> String {
    let segment = place.sql("select pg_walfile_name(pg_switch_wal())");
    place.until("archived", || {
        place.sql("select coalesce(max(last_archived_wal), '') from pg_stat_archiver") >= segment
    });
    segment
}

/// Starts another directory on the port of the place, after its own server was stopped.
fn start(place: &Place, data: &str) -> Run {
    let options = place.options();
    let log = place.path("log").display().to_string();
    let arguments = ["start", "-w", "-D", data, "-l", &log, "-o", &options];
    place.plain("pg_ctl", &arguments)
}

#[test]
fn a_sealed_instance_is_recovered_to_a_time_by_the_words_of_the_guide() {
    let place = archiving();
    place.sql("create table t as select n, 'canary row' as v from generate_series(1, 1000) n");
    place.sql("select pg_sleep(1.1)");
    let time = place.sql("select now()");
    place.sql("select pg_sleep(1.1)");
    place.sql("insert into t select n from generate_series(1, 1000) n");
    let segment = archived(&place);
    place.stop();
    assert!(!place.holds("medium", b"canary row"));
    // What the medium has is the log as every server reads it.
    let verified = guide(&place, "strongroom backup verify /mnt/backups").succeeded();
    assert!(
        verified.contains("none is missing\n  checked: the pages of "),
        "{verified}"
    );
    let restore = of_guide(
        &place,
        "strongroom backup restore /mnt/backups --to /srv/restored --until-time",
    );
    let (until_there, _) = restore.split_once('\'').unwrap();
    shell(&place, &format!("{until_there}'{time}'")).succeeded();
    let mut settings = fs::read_to_string(place.path("restored/postgresql.auto.conf")).unwrap();
    settings.push_str("archive_mode = off\n");
    place.write("restored/postgresql.auto.conf", &settings);
    start(&place, "restored").succeeded();
    place.until("recovered", || {
        place.sql("select pg_is_in_recovery()") == "f"
    });
    assert_eq!(place.sql("select count(*) from t"), "1000");
    place
        .plain("pg_ctl", &["stop", "-D", "restored", "-m", "fast"])
        .succeeded();
    // A segment that an earlier build archived as it lay in the instance is told.
    let sealed = fs::read(place.path("data/pg_wal").join(&segment)).unwrap();
    place.overwrite(&segment, &sealed);
    let push = format!("backup wal-push {segment} --to medium --certificate vault");
    let keyring = place.path("keyring").display().to_string();
    let mut words = vec!["--keyring", &keyring];
    words.extend(push.split(' '));
    place.strongroom(&words).ended_with(6, "SR-7173");
}

/// A sealed standby, or a copy that is recovered sealed: its shield refuses log in clear, and needs
/// no leave.
#[test]
fn a_sealed_instance_is_handed_its_log_sealed() {
    let place = archiving();
    place.sql("create table t as select n from generate_series(1, 1000) n");
    place.stop();
    let copied = place
        .program("cp")
        .args(["-a", "data", "copy"])
        .status()
        .unwrap();
    assert!(copied.success());
    place.start(&[]).succeeded();
    place.sql("insert into t select n from generate_series(1, 500) n");
    let segment = archived(&place);
    place.stop();
    let setting = of_guide(&place, "restore_command = ");
    let fetch = setting.split('\'').nth(1).unwrap();
    // By hand first: nothing of it is in clear, and it is not what another name's would be.
    let fetched = fetch
        .replace("%f", &segment)
        .replace("%p", "copy/pg_wal/RECOVERYXLOG");
    instance::run(place.program("sh").args(["-c", &fetched])).succeeded();
    let handed = fs::read(place.path("copy/pg_wal/RECOVERYXLOG")).unwrap();
    let own = fs::read(place.path("data/pg_wal").join(&segment)).unwrap();
    assert!(
        handed == own,
        "sealed for this instance as the instance has it"
    );
    let mut settings = fs::read_to_string(place.path("copy/postgresql.conf")).unwrap();
    settings.push_str(&format!("archive_mode = off\n{setting}\n"));
    place.write("copy/postgresql.conf", &settings);
    place.write("copy/recovery.signal", "");
    let options = place.options();
    let mut command = place.command(&[
        "pg", "start", "-D", "copy", "-l", "log", "--", "-o", &options,
    ]);
    command.env("STRONGROOM_PG_PLAIN_ARCHIVE", "refuse");
    let started = instance::run(&mut command);
    assert_eq!(started.code, 0, "{} {}", started.err, place.log());
    place.until("recovered", || {
        place.sql("select pg_is_in_recovery()") == "f"
    });
    assert_eq!(place.sql("select count(*) from t"), "1500");
    place.strongroom(&["pg", "stop", "-D", "copy"]).succeeded();
    assert!(!place.log().contains("SR-7023"), "{}", place.log());
}

/// The key of the instance is not where the archive command finds it: nothing is archived, and that
/// is told.
#[test]
fn without_the_instances_key_nothing_is_archived() {
    let place = archiving();
    let segment = archived(&place);
    place.stop();
    fs::remove_file(place.path("data/strongroom.conf")).unwrap();
    let keyring = place.path("keyring").display().to_string();
    let file = format!("data/pg_wal/{segment}");
    let push = |file: &str| {
        let to = ["--to", "medium", "--certificate", "vault"];
        place.strongroom(
            &[
                &["--keyring", &keyring, "backup", "wal-push", file][..],
                &to,
            ]
            .concat(),
        )
    };
    push(&file).ended_with(3, "SR-2001");
    place.write(
        "data/strongroom.conf",
        &format!("key_file = {}\n", place.path("other").display()),
    );
    push(&file).ended_with(3, "SR-2002");
    place.write(
        "data/strongroom.conf",
        &format!("key_file = {}\n", place.path("key").display()),
    );
    push(&file).succeeded();
}
