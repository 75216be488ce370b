//! Goal: zeros that somebody writes into the files of a stopped instance do not undo transactions
//! unnoticed; a real server never meets zeros of its own there; and whoever has no data checksums
//! is told.
//!
//! Method: a real PostgreSQL, whose transaction status files are looked at while it uses up
//! transaction numbers, is killed and recovers, and is copied; then the files are changed as
//! somebody with the disk would.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that panics has failed"
)]

use crate::instance;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use instance::{Place, bindir};
use strongroom_testing_support::process;

/// Directories of transaction status files.
const DIRECTORIES: [&str; 7] = [
    "pg_xact",
    "pg_multixact/offsets",
    "pg_multixact/members",
    "pg_subtrans",
    "pg_commit_ts",
    "pg_notify",
    "pg_serial",
];

/// Transaction status files of a data directory, with the number of their units of zeros.
fn zero_units(data: &Path) -> BTreeMap<PathBuf, usize> {
    let mut found = BTreeMap::new();
    for directory in DIRECTORIES {
        for entry in fs::read_dir(data.join(directory)).into_iter().flatten() {
            let path = entry.unwrap().path();
            // The server removes files.
            let Ok(bytes) = fs::read(&path) else {
                continue;
            };
            let zero = |unit: &&[u8]| unit.iter().all(|&byte| byte == 0);
            let count = bytes.chunks_exact(16).filter(zero).count();
            found.insert(path, count);
        }
    }
    found
}

#[track_caller]
fn check_no_zeros(data: &Path) {
    for (path, count) in zero_units(data) {
        assert_eq!(count, 0, "{}", path.display());
    }
}

/// Sets a flag at its end, also when a test fails: a scope of threads ends only when all of them
/// do.
struct SetAtDrop<'a>(&'a AtomicBool);

impl Drop for SetAtDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Uses up transaction numbers, subtransactions, multixacts and notifications, over many pages.
const WORK: &str = "
    create table if not exists work (i int primary key, v int);
    insert into work select i, 0 from generate_series(1, 50) i on conflict do nothing;
    do $$ begin
        for n in 1 .. 40000 loop
            begin
                update work set v = n where i = n % 50;
                if n % 7 = 0 then raise exception 'back'; end if;
            exception when raise_exception then null;
            end;
        end loop;
    end $$;
    select count(pg_notify('channel', repeat(i::text, 300))) from generate_series(1, 300) i;
    checkpoint";

#[test]
fn a_real_server_stores_no_zeros_and_recovers_without_them() {
    let place = Place::with_instance();
    let settings = "fsync = off\ncheckpoint_timeout = 30s\nmax_connections = 30\ntrack_commit_timestamp = on\n";
    let path = place.path("data/postgresql.conf");
    let before = fs::read_to_string(&path).unwrap();
    place.overwrite(
        "data/postgresql.conf",
        format!("{before}{settings}").as_bytes(),
    );
    place.start(&[]).succeeded();
    let data = place.path("data");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let until_the_end = SetAtDrop(&done);
        let watcher = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                check_no_zeros(&data);
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let workers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    place.sql(
                        "listen channel; set statement_timeout = 0; create temp table t (i int)",
                    )
                })
            })
            .collect();
        for worker in workers {
            worker.join().unwrap();
        }
        for _ in 0..3 {
            place.sql(WORK);
        }
        drop(until_the_end);
        watcher.join().unwrap();
    });
    check_no_zeros(&data);
    let pages: u64 = zero_units(&data)
        .keys()
        .filter(|path| !path.starts_with(data.join("pg_multixact")))
        .map(|path| fs::metadata(path).unwrap().len() / 8192)
        .sum();
    assert!(pages >= 20, "the work reached {pages} pages only");
    let expected = place.sql("select count(*), sum(v), pg_current_xact_id() > '100000' from work");
    assert!(expected.ends_with('t'), "{expected}");

    // Killed between two checkpoints, with work that only the log has.
    place.sql("update work set v = v + 1");
    let pid = place.pid("data").unwrap();
    process::signal("-KILL", &[pid]);
    // PostgreSQL takes a process that waits to be collected for a running one.
    process::until("it is collected", || process::status(pid).is_none());
    place.start(&[]).succeeded();
    check_no_zeros(&data);
    let sum = place.sql("select sum(v) from work");
    let before: Vec<&str> = expected.split('|').collect();
    let added = before[1].parse::<i64>().unwrap() + 50;
    assert_eq!(sum, added.to_string());
    place.stop();
    check_no_zeros(&data);
    place
        .strongroom(&["verify", "data", "--key-file", "key"])
        .succeeded();
}

/// Runs `change` on the stopped instance, and gives back the bytes afterwards.
fn with_changed(place: &Place, name: &str, offset: u64, zeros: usize, test: impl FnOnce()) {
    let path = place.path(name);
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    let mut good = vec![0; zeros];
    file.read_exact_at(&mut good, offset).unwrap();
    file.write_all_at(&vec![0; zeros], offset).unwrap();
    test();
    file.write_all_at(&good, offset).unwrap();
}

#[test]
fn zeros_in_a_transaction_status_file_do_not_undo_transactions() {
    let place = Place::with_instance();
    place.start(&[]).succeeded();
    place.sql("create table t as select i from generate_series(1, 157) i");
    place.sql("vacuum (freeze) pg_class");
    place.sql("create table u as select i from generate_series(1, 10) i");
    place.sql("update u set i = i + 100; checkpoint");
    let unit = "select pg_current_xact_id()::text::bigint / 64";
    let unit: u64 = place.sql(unit).parse().unwrap();
    place.stop();
    let verified = ["verify", "data", "--key-file", "key", "--json"];
    place.strongroom(&verified).succeeded();

    // One unit of 16 bytes holds 64 transactions; a page all of them. Reading either is an error,
    // at the start or later.
    for (offset, zeros) in [(unit * 16, 16), (0, 8192)] {
        with_changed(&place, "data/pg_xact/0000", offset, zeros, || {
            drop(fs::remove_file(place.path("log")));
            let told = place.strongroom(&verified).ended_with(4, "SR-7029");
            assert!(told.contains("pg_xact/0000"), "{told}");
            let started = place.start(&[]);
            assert_ne!(started.code, 0, "the server took zeros: {}", started.out);
            let log = place.log();
            assert!(
                log.contains("SR-7029") && log.contains("pg_xact/0000"),
                "{log}"
            );
        });
    }
    place.start(&[]).succeeded();
    assert_eq!(place.sql("select count(*) from t"), "157");
    assert_eq!(place.sql("select min(i), count(*) from u"), "101|10");
    place.stop();
}

/// `strongroom pg status` of the instance.
fn status(place: &Place, arguments: &[&str]) -> instance::Run {
    place.strongroom(&[&["pg", "status", "-D", "data"], arguments].concat())
}

/// Turns data checksums on or off.
fn checksums(place: &Place, action: &str) {
    let program = bindir().join("pg_checksums");
    let program = program.to_str().unwrap();
    place
        .strongroom(&[
            "pg", "run", "-D", "data", "--", program, action, "-D", "data",
        ])
        .succeeded();
}

#[test]
fn status_says_whether_data_checksums_are_on_and_warns_when_they_are_off() {
    let place = Place::with_instance();
    let shown = status(&place, &[]);
    assert!(!shown.err.contains("SR-7030"), "{}", shown.err);
    let shown = shown.succeeded();
    assert!(
        line_of(&shown, "data checksums").ends_with(" on"),
        "{shown}"
    );
    let zeros = line_of(&shown, "zeros in transaction status");
    assert!(zeros.ends_with("found when they are read"), "{shown}");
    let exchanged = line_of(&shown, "exchanged small files");
    assert!(exchanged.ends_with("found when they are read"), "{shown}");
    checksums(&place, "--disable");
    let shown = status(&place, &[]);
    assert!(shown.err.contains("warning[SR-7030]"), "{}", shown.err);
    assert!(line_of(&shown.succeeded(), "data checksums").ends_with(" off"));
    let json = status(&place, &["--json", "--key-file", "key"]).succeeded();
    assert!(
        json.contains("\"data_checksums\": false") || json.contains("\"data_checksums\":false"),
        "{json}"
    );
    status(&place, &["--key-file", "other"]).ended_with(3, "SR-2002");
    // A key that only a command has is not fetched for this.
    place.overwrite(
        "data/strongroom.conf",
        b"key_command = touch /nonexistent; cat key\n",
    );
    let shown = status(&place, &[]);
    assert!(!shown.err.contains("SR-7030"), "{}", shown.err);
    assert!(line_of(&shown.succeeded(), "data checksums").ends_with("not known without the key"));
}

#[test]
fn what_makes_a_sealed_instance_warns_when_data_checksums_are_off() {
    let place = Place::with_instance();
    checksums(&place, "--disable");
    let opened = ["pg", "decrypt", "-D", "data", "--key-file", "key"];
    place.strongroom(&opened).succeeded();
    let shown = status(&place, &[]);
    assert!(shown.err.contains("warning[SR-7030]"), "{}", shown.err);
    shown.succeeded();
    let sealed = place.strongroom(&["pg", "encrypt", "-D", "data", "--key-file", "key"]);
    assert!(sealed.err.contains("warning[SR-7030]"), "{}", sealed.err);
    sealed.succeeded();
    checksums(&place, "--enable");
    assert!(line_of(&status(&place, &[]).succeeded(), "data checksums").ends_with(" on"));

    // PostgreSQL's own default, which differs between versions: what initdb says agrees with what
    // was made.
    let initdb = "pg initdb -D new --key-file key -- --no-sync";
    let made = place.strongroom(&initdb.split(' ').collect::<Vec<_>>());
    let warned = made.err.contains("warning[SR-7030]");
    made.succeeded();
    let shown = place.strongroom(&["pg", "status", "-D", "new"]).succeeded();
    let expected = if warned { " off" } else { " on" };
    assert!(
        line_of(&shown, "data checksums").ends_with(expected),
        "{shown}"
    );
}

#[test]
fn a_key_command_runs_once_when_an_instance_is_sealed() {
    let place = Place::with_instance();
    let opened = ["pg", "decrypt", "-D", "data", "--key-file", "key"];
    place.strongroom(&opened).succeeded();
    let (key, runs) = (place.path("key"), place.path("runs"));
    fs::File::create(&runs).unwrap();
    instance::give_unchanged(&runs);
    let command = format!("echo >> {}; cat {}", runs.display(), key.display());
    let sealed = ["pg", "encrypt", "-D", "data", "--key-command", &command];
    place.strongroom(&sealed).succeeded();
    assert_eq!(fs::read_to_string(&runs).unwrap(), "\n");
}

/// The line of a table that begins with `name`.
#[track_caller]
fn line_of<'text>(table: &'text str, name: &str) -> &'text str {
    let line = table.lines().find(|line| line.starts_with(name));
    assert!(line.is_some(), "{name}: {table}");
    line.unwrap_or_default().trim_end()
}
