//! Goal: what holds on the distribution's PostgreSQL holds on 17 and 18, whose ways to the disk are
//! others: vectored reads and writes of up to a megabyte, files extended by `posix_fallocate`,
//! reads done by worker processes, direct I/O, files copied by `copy_file_range`, summaries of the
//! log and incremental backups.
//!
//! Method: servers from package registries (see `packages`), sealed, filled by statements that take
//! those ways, killed, recovered, compared with what was put in, checked by amcheck, and searched
//! for a string that was put in. What the new binaries import from the C library is looked up in
//! the shield's own lists.
#![expect(
    clippy::print_stdout,
    reason = "seeds and versions are for whoever runs it"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use strongroom_testing::random::{Random, seed};
use strongroom_testing_postgres::instance::{Instance, Protection};
use strongroom_testing_postgres::packages;
use strongroom_testing_postgres::programs::Programs;
use strongroom_testing_postgres::room::Room;
use strongroom_testing_postgres::scan::{Found, files_of};
use strongroom_testing_support::account::give;
use strongroom_testing_support::process::{checked, refused};

const CANARY: &str = "CANARYnewer";

/// Little shared memory, so that pages go to the disk and come back.
const SETTINGS: &str = "shared_buffers = 8MB\nwork_mem = 256kB\nwal_level = logical\nparallel_setup_cost = 0\n\
    parallel_tuple_cost = 0\nmin_parallel_table_scan_size = 0\nmax_parallel_workers_per_gather = 3\nautovacuum = off\n";

fn protection(room: &Room, cipher: &'static str) -> Protection {
    let seed = seed();
    println!("STRONGROOM_SEED={seed}");
    let key = room.key("main", &mut Random::new(seed));
    Protection::Sealed { key, cipher }
}

/// A new instance. `strongroom pg initdb` would ask `pg_controldata`, which the packages of servers
/// alone do not have.
fn create<'a>(
    room: &'a Room,
    programs: &Programs,
    name: &str,
    cipher: &'static str,
) -> Instance<'a> {
    let instance = Instance::named(room, programs, name, protection(room, cipher));
    instance.prepare();
    let mut initdb = instance.program("initdb");
    initdb.args([
        "-k",
        "-U",
        "postgres",
        "-A",
        "trust",
        "-E",
        "UTF8",
        "--locale=C",
        "--no-sync",
        "-D",
    ]);
    checked(initdb.arg(instance.data()));
    instance.configure("fsync = off\nlog_min_messages = warning\n");
    instance
}

/// Tables, indexes and copies of a database.
fn fill(instance: &Instance<'_>) {
    instance.sql(&format!(
        "create table a as select i, repeat('{CANARY}' || i, 20) as t from generate_series(1, 40000) i;
         create index on a (t);
         create unlogged table u as select * from a limit 1000;
         create database copied strategy file_copy template postgres;
         create database logged strategy wal_log template copied;
         select pg_logical_emit_message(true, 'p', '{CANARY}');"
    ));
}

const LOOK: &str = "select count(*), md5(string_agg(t, '' order by i)) from a";

/// Rows as they must be, read in every order and through spilled sorts and hashes.
fn look(instance: &Instance<'_>, put_in: &str) {
    for database in ["postgres", "copied", "logged"] {
        assert_eq!(instance.sql_in(database, LOOK), put_in, "{database}");
    }
    let counts = instance.sql(
        "select count(*) from (select t from a order by md5(t)) x;
         set enable_mergejoin = off; set enable_nestloop = off;
         select count(*) from a join a b using (t);
         select count(*) from (select distinct t from a) x;",
    );
    assert_eq!(counts, "40000\n40000\n40000");
}

/// The core of the tests on one server: fill, compare, kill, recover, compare, stop, search.
fn core(room: &Room, programs: &Programs, name: &str, settings: &str) {
    println!("PostgreSQL {}: {settings}", programs.major());
    let instance = create(room, programs, name, "aes-256-xts");
    instance.configure(SETTINGS);
    instance.configure(settings);
    instance.start();
    fill(&instance);
    let put_in = instance.sql(LOOK);
    assert!(put_in.starts_with("40000|"), "{put_in}");
    look(&instance, &put_in);
    instance
        .sql("begin; insert into a select i, 'x' from generate_series(70001, 80000) i; rollback");
    instance.kill();
    let search = || Found::search(&[instance.data().to_owned()], &[], &[String::from(CANARY)]);
    assert!(search().hits.is_empty(), "{:?}", search().hits);
    instance.start();
    look(&instance, &put_in);
    instance.sql("vacuum full a; vacuum (freeze) a; checkpoint");
    look(&instance, &put_in);
    for database in ["postgres", "copied", "logged"] {
        instance.check_structure(database);
    }
    instance.stop();
    assert!(search().hits.is_empty(), "{:?}", search().hits);
    instance.start();
    look(&instance, &put_in);
    instance.stop();
}

#[test]
fn a_server_of_version_17() {
    let room = Room::new("17");
    let Some(programs) = packages::server(&room, 17) else {
        return;
    };
    assert_eq!(programs.major(), 17);
    core(
        &room,
        &programs,
        "plain-io",
        "io_combine_limit = 256kB\nsummarize_wal = on\n",
    );
    core(
        &room,
        &programs,
        "direct",
        "debug_io_direct = 'data,wal,wal_init'\n",
    );
}

#[test]
fn a_server_of_version_18() {
    let room = Room::new("18");
    let Some(programs) = packages::server(&room, 18) else {
        return;
    };
    assert_eq!(programs.major(), 18);
    let most = "io_max_combine_limit = 1MB\nio_combine_limit = 1MB\n";
    core(
        &room,
        &programs,
        "workers",
        &format!("{most}io_method = worker\nfile_copy_method = clone\n"),
    );
    core(
        &room,
        &programs,
        "sync",
        &format!("{most}io_method = sync\ndebug_io_direct = 'data,wal,wal_init'\n"),
    );
}

/// A server of 16, the one version between the distribution's and those above.
#[test]
fn a_server_of_version_16() {
    let room = Room::new("16");
    let Some(programs) = packages::programs(&room, 16) else {
        return;
    };
    assert_eq!(programs.major(), 16);
    let instance = Instance::create(&room, &programs, "data", protection(&room, "aes-128-xts"));
    instance.configure(SETTINGS);
    instance.start();
    fill(&instance);
    let put_in = instance.sql(LOOK);
    look(&instance, &put_in);
    instance.kill();
    instance.start();
    look(&instance, &put_in);
    instance.stop();
    instance.check_checksums();
}

/// Runs a program under the shield with further sealed directories, which it finds by its
/// arguments.
fn shielded(instance: &Instance<'_>, program: &str, arguments: &[&str]) -> String {
    checked(instance.program(program).args(arguments))
}

/// An empty directory with a header and a key of its own.
fn another<'a>(
    room: &'a Room,
    programs: &Programs,
    name: &str,
    random: &mut Random,
) -> Instance<'a> {
    let key = room.key(name, random);
    let cipher = "aes-128-xts";
    let instance = Instance::named(room, programs, name, Protection::Sealed { key, cipher });
    instance.prepare();
    instance
}

/// A full backup, and an increment after some changes.
fn back_up(room: &Room, server: &Instance<'_>, full: &str, increment: &str) {
    let (host, port) = (room.path().display().to_string(), server.port().to_string());
    let backup = ["-h", &host, "-p", &port, "-c", "fast", "--no-sync", "-D"];
    shielded(server, "pg_basebackup", &[&backup[..], &[full]].concat());
    server.sql("update a set t = t || 'changed' where i % 500 = 0; create table later as select * from a limit 100");
    let manifest = format!("--incremental={full}/backup_manifest");
    shielded(
        server,
        "pg_basebackup",
        &[&backup[..], &[increment, &manifest]].concat(),
    );
}

/// `pg_walsummary` reads what the server wrote about its log, under the shield only.
fn summaries_are_sealed(room: &Room, server: &Instance<'_>) {
    let summaries = server.data().join("pg_wal/summaries");
    let some = files_of(&summaries);
    let summary = summaries.join(some.first().expect("a summary of the log"));
    let told = shielded(server, "pg_walsummary", &[&summary.display().to_string()]);
    assert!(told.contains("REL "), "{told}");
    let unsealed = refused(
        room.command(&server.programs().path("pg_walsummary"))
            .arg(&summary),
    );
    assert!(!unsealed.contains("REL "), "{unsealed}");
}

#[test]
fn incremental_backups_are_sealed_and_combined_under_keys_of_their_own() {
    let room = Room::new("incremental");
    let Some(programs) = packages::programs(&room, 18) else {
        return;
    };
    let mut random = Random::new(seed());
    let server = Instance::create(&room, &programs, "server", protection(&room, "aes-256-xts"));
    server.configure("summarize_wal = on\nwal_level = replica\n");
    server.start();
    server.sql(&format!(
        "create table a as select i, repeat('{CANARY}' || i, 20) as t from generate_series(1, 20000) i;
         create table still as select i, '{CANARY}' || i as t from generate_series(1, 20000) i;"
    ));
    let [full, increment, combined] =
        ["full", "increment", "combined"].map(|name| another(&room, &programs, name, &mut random));
    let [to_full, to_increment, to_combined] =
        [&full, &increment, &combined].map(|it| it.data().display().to_string());
    back_up(&room, &server, &to_full, &to_increment);
    let parts = files_of(increment.data());
    let parts = parts
        .iter()
        .filter(|path| path.contains("/INCREMENTAL."))
        .count();
    assert!(parts > 100, "{parts} files are increments");
    summaries_are_sealed(&room, &server);
    // What cannot be linked, because each directory has a key of its own, is refused and leaves
    // nothing.
    let said = refused(server.program("pg_combinebackup").args([
        &to_full,
        &to_increment,
        "-o",
        &to_combined,
        "--link",
    ]));
    assert!(said.contains("Invalid cross-device link"), "{said}");
    assert_eq!(
        files_of(combined.data()),
        ["strongroom.conf", "strongroom.header"]
    );
    shielded(
        &server,
        "pg_combinebackup",
        &[
            &to_full,
            &to_increment,
            "-o",
            &to_combined,
            "--copy-file-range",
            "--no-sync",
        ],
    );
    combined.configure("archive_mode = off\n");
    combined.start();
    let wanted = [
        LOOK,
        "select count(*), md5(string_agg(t, '' order by i)) from still",
        "select count(*) from later",
    ];
    for statement in wanted {
        assert_eq!(
            combined.sql(statement),
            server.sql(statement),
            "{statement}"
        );
    }
    combined.stop();
    combined.check_checksums();
    server.stop();
    let everything: Vec<PathBuf> = [&server, &full, &increment, &combined]
        .map(|it| it.data().to_owned())
        .into();
    let found = Found::search(&everything, &[], &[String::from(CANARY)]);
    assert!(found.hits.is_empty(), "{:?}", found.hits);
}

/// Names that `nm` prints.
fn names(option: &str, file: &Path) -> BTreeSet<String> {
    let listed = Command::new("nm")
        .args(["-D", option])
        .arg(file)
        .output()
        .expect("nm can be started");
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    text.lines()
        .filter_map(|line| line.split_whitespace().last())
        .map(String::from)
        .collect()
}

/// The programs and modules of one version.
fn binaries(programs: &Programs) -> Vec<PathBuf> {
    let bin = programs.directory();
    let modules = bin.with_file_name("lib").join("postgresql");
    let entries = [bin, &modules]
        .into_iter()
        .flat_map(|directory| fs::read_dir(directory).into_iter().flatten());
    entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.is_file())
        .collect()
}

#[test]
fn every_function_that_newer_binaries_import_has_been_thought_about() {
    let room = Room::new("imports");
    let found = [
        packages::server(&room, 17),
        packages::server(&room, 18),
        packages::programs(&room, 16),
        packages::programs(&room, 18),
    ];
    let exported = names("--defined-only", room.library());
    let passed = include_str!("../../../../crates/postgres/preload/tests/it/coverage/passed.txt");
    let other = include_str!("../../../../crates/postgres/preload/tests/it/coverage/other.txt");
    let lines = |text: &'static str| text.lines().filter(|line| !line.starts_with('#'));
    let passed: BTreeSet<&str> = lines(passed)
        .filter_map(|line| line.split_once(": "))
        .map(|(name, _)| name)
        .collect();
    let other: BTreeSet<&str> = lines(other).flat_map(str::split_whitespace).collect();
    let mut unknown = BTreeSet::new();
    for programs in found.iter().flatten() {
        let mut seen = BTreeSet::new();
        for file in binaries(programs) {
            for name in names("--undefined-only", &file) {
                let Some((name, _)) = name.split_once("@GLIBC_") else {
                    continue;
                };
                let known =
                    exported.contains(name) || passed.contains(name) || other.contains(name);
                if !known {
                    unknown.insert(format!("{name} ({})", file.display()));
                }
                seen.insert(String::from(name));
            }
        }
        println!("PostgreSQL {}: {} functions", programs.major(), seen.len());
        assert!(seen.contains("preadv") || programs.major() < 17, "{seen:?}");
        assert!(seen.contains("pwritev") && seen.len() > 150, "{seen:?}");
    }
    assert!(unknown.is_empty(), "on no list: {unknown:#?}");
}

/// A ring of `io_uring` carries requests that no C function does. No binary at hand is built with
/// liburing, so a program that calls it as PostgreSQL does stands in; its library says by its exit
/// code that it was reached.
#[test]
fn rings_are_refused_and_nothing_else_is() {
    let room = Room::new("rings");
    let instance = Instance::create(
        &room,
        &Programs::installed(),
        "data",
        protection(&room, "aes-128-xts"),
    );
    let (library, program) = (room.at("libring.so"), room.at("ring"));
    room.put(&room.at("library.c"), b"int io_uring_queue_init_mem(unsigned e, void *r, void *p, void *m, unsigned long n) { return 77; }\n");
    room.put(
        &room.at("program.c"),
        b"int io_uring_queue_init_mem(unsigned, void *, void *, void *, unsigned long);\n\
          int main(void) { return -io_uring_queue_init_mem(8, 0, 0, 0, 0); }\n",
    );
    checked(
        Command::new("cc")
            .args(["-shared", "-fPIC", "-o"])
            .arg(&library)
            .arg(room.at("library.c")),
    );
    let mut link = Command::new("cc");
    checked(
        link.arg("-o")
            .arg(&program)
            .arg(room.at("program.c"))
            .arg(&library)
            .arg("-Wl,-rpath,$ORIGIN"),
    );
    give(&library, 0o755);
    give(&program, 0o755);
    let run = |command: &mut Command| command.output().expect("a program");
    let mut sealed = instance.shielded(room.command(&program));
    let sealed = run(sealed
        .env("STRONGROOM_SHIELD_ALL", "1")
        .env("STRONGROOM_PG_ROOTS", instance.data()));
    assert_eq!(sealed.status.code(), Some(1), "EPERM");
    let said = String::from_utf8_lossy(&sealed.stderr).into_owned();
    assert!(
        said.contains("SR-7002") && said.contains("io_uring"),
        "{said}"
    );
    let mut other = instance.shielded(room.command(&program));
    assert_eq!(
        run(&mut other).status.code(),
        Some(256 - 77),
        "a program without an instance"
    );
}
