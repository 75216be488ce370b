//! Goal: `strongroom backup restore --sealed` makes an instance of which nothing was in clear on a
//! disk at any time, on which a real server starts, recovers to a time from the archive, and has
//! its tablespaces; killed anywhere, it leaves nothing in clear.
//!
//! Method: a row that is found in the bytes of a restore in clear, looked for in all that a sealed
//! restore wrote: in its system calls by strace(1), in every file of the place after each kill, and
//! after a server has run on it.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use crate::instance;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;

use instance::{OTHER, Place, Run};

const MARK: &str = "canary row that is looked for";
const SEALED: [&str; 3] = ["--sealed", "--instance-key-file", "other"];

/// A sealed server with an archive and a tablespace, marked rows in both, and a set of it.
fn place() -> Place {
    let place = Place::with_instance();
    place.write("medium.key", OTHER);
    let mode = fs::Permissions::from_mode(0o600);
    fs::set_permissions(place.path("medium.key"), mode).unwrap();
    for name in ["space", "tmp"] {
        fs::create_dir(place.path(name)).unwrap();
        instance::give_unchanged(&place.path(name));
    }
    let mut settings = fs::read_to_string(place.path("data/postgresql.conf")).unwrap();
    settings.push_str(&format!(
        "archive_mode = on\narchive_command = '{} backup wal-push \"%p\" --to {} --key-file {}'\n",
        place.binary().display(),
        place.path("medium").display(),
        place.path("medium.key").display()
    ));
    place.write("data/postgresql.conf", &settings);
    place.start(&[]).succeeded();
    let space = place.path("space").display().to_string();
    place.sql(&format!("create tablespace beside location '{space}'"));
    let rows = format!("as select n, '{MARK}' as v from generate_series(1, 3000) n");
    place.sql(&format!("create table here {rows}"));
    place.sql(&format!("create table there tablespace beside {rows}"));
    let source = place.connection();
    let to = ["--to", "medium", "--key-file", "medium.key"];
    place
        .strongroom(&[&["backup", "create", &source][..], &to].concat())
        .succeeded();
    place
}

fn restore<'a>(to: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let first = ["backup", "restore", "medium", "--key-file", "medium.key"];
    [&first[..], &["--to", to], more].concat()
}

/// The command under strace, as PostgreSQL's user, with a directory for temporary files of its own.
/// The command's memory is closed to its own user: only root's strace sees what is written.
fn traced(place: &Place, options: &[&str], arguments: &[&str]) -> Command {
    let mut command = Command::new("strace");
    if instance::is_root() {
        command.args(["-u", "postgres"]);
    }
    command
        .current_dir(place.path("."))
        .env("HOME", place.path("."))
        .env("TMPDIR", place.path("tmp"))
        .args(["-f", "-qq"])
        .args(options)
        .arg(place.binary())
        .args(arguments);
    command
}

/// Starts the restored instance by the command, with the key that its own configuration names.
fn start(place: &Place) -> Run {
    let options = place.options();
    let words = ["pg", "start", "-D", "restored", "-l", "log", "--"];
    let mut command = place.command(&[&words[..], &["-o", &options]].concat());
    command.env("STRONGROOM_PG_PLAIN_ARCHIVE", "refuse");
    instance::run(&mut command)
}

#[test]
fn a_sealed_restore_writes_nothing_in_clear_and_recovers_to_a_time() {
    let place = place();
    place.sql("select pg_sleep(1.1)");
    let time = place.sql("select now()");
    place.sql("select pg_sleep(1.1)");
    place.sql(&format!(
        "insert into here select n, '{MARK}' from generate_series(1, 500) n"
    ));
    let segment = place.sql("select pg_walfile_name(pg_switch_wal())");
    place.until("archived", || {
        place.sql("select coalesce(max(last_archived_wal), '') from pg_stat_archiver") >= segment
    });
    place.stop();
    let calls = [
        "-s",
        "300000",
        "-e",
        "trace=write,pwrite64,writev,pwritev",
        "-o",
    ];
    // In clear: the notice comes, and the method finds what it looks for.
    let options = [&calls[..], &["clear.calls"]].concat();
    let clear = instance::run(&mut traced(&place, &options, &restore("clear", &[])));
    assert_eq!(clear.code, 0, "{}", clear.err);
    assert!(
        clear.err.contains("will lie in clear in clear") && clear.err.contains("--sealed"),
        "{}",
        clear.err
    );
    assert!(place.holds("clear", MARK.as_bytes()));
    drop(fs::copy(
        place.path("clear.calls"),
        "/tmp/backup-clear.calls",
    ));
    assert!(place.holds("clear.calls", MARK.as_bytes()));
    for gone in ["clear", "clear.tablespaces"] {
        fs::remove_dir_all(place.path(gone)).unwrap();
    }
    fs::remove_file(place.path("clear.calls")).unwrap();

    let arguments = restore(
        "restored",
        &[&SEALED[..], &["--until-time", &time]].concat(),
    );
    let options = [&calls[..], &["sealed.calls"]].concat();
    let sealed = instance::run(&mut traced(&place, &options, &arguments));
    assert_eq!(sealed.code, 0, "{}", sealed.err);
    assert!(!sealed.err.contains("in clear"), "{}", sealed.err);
    assert!(!place.holds(".", MARK.as_bytes()));
    assert!(!place.path("restored/backup_manifest").exists());
    // The old key opens nothing of it.
    let wrong = place.strongroom(&["pg", "controldata", "-D", "restored", "--key-file", "key"]);
    assert!(wrong.err.contains("SR-2002"), "{}{}", wrong.out, wrong.err);

    let mut settings = fs::read_to_string(place.path("restored/postgresql.auto.conf")).unwrap();
    settings.push_str("archive_mode = off\n");
    place.write("restored/postgresql.auto.conf", &settings);
    let started = start(&place);
    assert_eq!(started.code, 0, "{} {}", started.err, place.log());
    place.until("recovered", || {
        place.sql("select pg_is_in_recovery()") == "f"
    });
    let count = format!("select count(*) filter (where v = '{MARK}') from ");
    assert_eq!(place.sql(&format!("{count}here")), "3000");
    assert_eq!(place.sql(&format!("{count}there")), "3000");
    place.sql(&format!("insert into there values (0, '{MARK}')"));
    place
        .strongroom(&["pg", "stop", "-D", "restored"])
        .succeeded();
    assert!(!place.log().contains("SR-7023"), "{}", place.log());
    assert!(!place.holds(".", MARK.as_bytes()));
    // All pages have their checksums, and all containers open.
    place.strongroom(&["verify", "restored"]).succeeded();
}

#[test]
fn a_sealed_restore_that_is_killed_leaves_nothing_in_clear() {
    let place = place();
    place.stop();
    let arguments = restore("restored", &SEALED);
    let groups = [
        ("write,pwrite64", &[2_u32, 40, 200, 700][..]),
        ("ftruncate,fchmod,renameat,rename,mkdirat", &[5, 400, 900]),
        ("syncfs", &[1, 2, 3, 4]),
    ];
    let mut kills = 0;
    for (group, calls) in groups {
        for call in calls {
            let inject = format!("--inject={group}:signal=KILL:when={call}");
            let options = ["-o", "/dev/null", "-e", &format!("trace={group}"), &inject];
            let status = traced(&place, &options, &arguments).output().unwrap();
            let killed = status.status.signal() == Some(9);
            let err = String::from_utf8_lossy(&status.stderr);
            assert!(killed || status.status.success(), "{group} {call}: {err}");
            kills += u32::from(killed);
            assert!(!place.holds(".", MARK.as_bytes()), "{group} {call}");
            for gone in ["restored", "restored.tablespaces"] {
                drop(fs::remove_dir_all(place.path(gone)));
            }
        }
    }
    assert!(kills >= 6, "only {kills} kills");
    // What was left beside it is in nobody's way.
    place.strongroom(&arguments).succeeded();
    let started = start(&place);
    assert_eq!(started.code, 0, "{} {}", started.err, place.log());
    assert_eq!(place.sql("select count(*) from there"), "3000");
    place
        .strongroom(&["pg", "stop", "-D", "restored"])
        .succeeded();
}

#[test]
fn a_sealed_restore_needs_a_key_and_a_cluster() {
    let place = Place::new();
    place.write("medium.key", OTHER);
    fs::create_dir(place.path("tree")).unwrap();
    instance::give_unchanged(&place.path("tree"));
    place.write("tree/file", "a file");
    let create = ["backup", "create", "tree", "--to", "medium", "--key-file"];
    place
        .strongroom(&[&create[..], &["medium.key"]].concat())
        .succeeded();
    place
        .strongroom(&restore("restored", &["--sealed"]))
        .ended_with(2, "SR-2041");
    let key_alone = place.strongroom(&restore("restored", &SEALED[1..]));
    assert_eq!(key_alone.code, 2, "{}", key_alone.err);
    place
        .strongroom(&restore("restored", &SEALED))
        .ended_with(2, "SR-1001");
    assert!(!place.path("restored").exists());
    // Nothing is said of a directory that lies in clear as its source did.
    let run = place.strongroom(&restore("restored", &[]));
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(!run.err.contains("in clear"), "{}", run.err);
}
