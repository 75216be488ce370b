//! Goal: a small sealed file that is put in the place of another one is an error that names the
//! file, to the server and to `strongroom verify`, which finds it without a server; and whatever
//! PostgreSQL itself renames and copies opens, also after SIGKILL at any moment.
//!
//! Method: the files of a stopped server are exchanged as somebody with the disk would do it; then
//! it is verified and started. In the other test sessions make, rename and remove such files until
//! the server is killed, again and again; each time every file is opened.
#![expect(
    clippy::print_stdout,
    reason = "seeds and counts are for whoever runs it"
)]

use std::fs;
use std::path::Path;
use std::time::Duration;

use strongroom_testing::random::{Random, seed, times};
use strongroom_testing_postgres::crash;
use strongroom_testing_postgres::instance::{Instance, Protection};
use strongroom_testing_postgres::programs::Programs;
use strongroom_testing_postgres::room::Room;
use strongroom_testing_postgres::scan::files_of;
use strongroom_testing_support::process::{checked, patiently, refused};

const SETTINGS: &str = "wal_level = logical\nshared_buffers = 4MB\nautovacuum = off\nmax_replication_slots = 20\n\
    shared_preload_libraries = 'pg_stat_statements'\n";

fn instance<'a>(room: &'a Room, programs: &Programs, random: &mut Random) -> Instance<'a> {
    let key = room.key("a", random);
    let protection = Protection::Sealed {
        key,
        cipher: "aes-256-xts",
    };
    let instance = Instance::create(room, programs, "a", protection);
    instance.configure(SETTINGS);
    if programs.major() >= 17 {
        instance.configure("summarize_wal = on\n");
    }
    instance
}

/// `strongroom verify`, which needs no server.
fn verify(room: &Room, instance: &Instance<'_>) -> std::process::Command {
    let mut command = room.command(&room.at("bin/strongroom"));
    command.arg("verify").arg(instance.data());
    command
}

/// Exchanges what is in two files.
fn exchange(room: &Room, data: &Path, one: &str, other: &str) {
    let [first, second] = [one, other].map(|path| data.join(path));
    let [of_first, of_second] = [&first, &second].map(|path| fs::read(path).expect("a file"));
    room.put(&first, &of_second);
    room.put(&second, &of_first);
}

/// The files whose paths begin and end so.
fn paths(instance: &Instance<'_>, begin: &str, end: &str) -> Vec<String> {
    let mut found = files_of(instance.data());
    found.retain(|path| path.starts_with(begin) && path.ends_with(end));
    found.sort();
    found
}

/// Two slots, two prepared transactions, two databases with saved catalogs; each as files.
fn fill(instance: &Instance<'_>) {
    instance.start();
    instance.sql("create extension pg_stat_statements; create table t (i int)");
    instance.sql("create database first; create database second");
    for database in ["first", "second"] {
        // The first connection saves the descriptors of catalogs.
        instance.sql_in(database, "select count(*) from pg_class");
    }
    // The slots first: one waits for transactions that are open when it is made.
    for slot in ["first", "second"] {
        instance.sql(&format!(
            "select pg_create_logical_replication_slot('{slot}', 'test_decoding')"
        ));
        instance.sql("insert into t values (1); checkpoint");
    }
    for gid in ["first", "second"] {
        instance.sql(&format!(
            "begin; insert into t values (2); prepare transaction '{gid}'"
        ));
    }
    instance.sql("checkpoint");
    instance.stop();
}

#[test]
fn a_file_in_the_place_of_another_is_an_error() {
    in_the_place_of_another(&Room::new("names"), &Programs::installed());
}

#[test]
fn a_file_in_the_place_of_another_is_an_error_to_a_newer_version() {
    let room = Room::new("names18");
    if let Some(programs) = Programs::newer(&room) {
        in_the_place_of_another(&room, &programs);
    }
}

fn in_the_place_of_another(room: &Room, programs: &Programs) {
    let mut random = Random::new(seed());
    let instance = instance(room, programs, &mut random);
    fill(&instance);
    let good = checked(&mut verify(room, &instance));
    assert!(good.contains("container"), "{good}");
    let two = |begin: &str, end: &str| -> (String, String) {
        let found = paths(&instance, begin, end);
        assert!(found.len() > 1, "{begin}*{end}: {found:?}");
        (found[0].clone(), found[1].clone())
    };
    let slots = two("pg_replslot/", "/state");
    let prepared = two("pg_twophase/", "");
    let mut pairs = vec![
        slots.clone(),
        prepared.clone(),
        two("base/", "pg_internal.init"),
        two("pg_stat/", ".stat"),
        (slots.0.clone(), prepared.0.clone()),
    ];
    if programs.major() >= 17 {
        pairs.push(two("pg_wal/summaries/", ".summary"));
    }
    let snapshots = paths(&instance, "pg_logical/snapshots/", ".snap");
    if let [one, other, ..] = snapshots.as_slice() {
        pairs.push((one.clone(), other.clone()));
    }
    for (one, other) in &pairs {
        exchange(room, instance.data(), one, other);
        let told = refused(&mut verify(room, &instance));
        assert!(told.contains("SR-7001"), "{told}");
        assert!(told.contains(one) && told.contains(other), "{told}");
        exchange(room, instance.data(), one, other);
        checked(&mut verify(room, &instance));
    }
    // What the server cannot do without keeps it from starting, and it says which file.
    for (one, other) in [slots, prepared] {
        exchange(room, instance.data(), &one, &other);
        let told = instance.start_refused();
        assert!(told.contains("SR-7001"), "{told}");
        assert!(told.contains(&one) || told.contains(&other), "{told}");
        exchange(room, instance.data(), &one, &other);
    }
    instance.start();
    let there = "select count(*) from pg_prepared_xacts union all select count(*) from pg_replication_slots";
    assert_eq!(instance.sql(there), "2\n2");
    instance.stop();
    if programs.major() >= 17 {
        between_two_names(room, &instance);
    }
    older_copies(room, &instance, &paths(&instance, "pg_twophase/", "")[0]);
    another_databases_map(room, &instance);
}

/// What a kill leaves between the sealing of `temp.summary` for its new name and its rename is in
/// nobody's way: not the checker's, not the server's, not a conversion's.
fn between_two_names(room: &Room, instance: &Instance<'_>) {
    let temporary = instance.data().join("pg_wal/summaries/temp.summary");
    let summary = &paths(instance, "pg_wal/summaries/", ".summary")[0];
    let sealed = fs::read(instance.data().join(summary)).expect("a summary");
    room.put(&temporary, &sealed);
    checked(&mut verify(room, instance));
    checked(instance.strongroom("rotate").arg("-D").arg(instance.data()));
    assert!(!temporary.exists(), "a conversion removes it");
    room.put(&temporary, &sealed);
    instance.start();
    let count = || paths(instance, "pg_wal/summaries/0", ".summary").len();
    let before = count();
    instance.sql("insert into t values (3); select pg_switch_wal(); checkpoint");
    let summarised = patiently(Duration::from_secs(30), || count() > before);
    assert!(summarised, "the server goes on to summarise the log");
    instance.stop();
    checked(&mut verify(room, instance));
}

/// An older copy of the same file opens: that is not found, as SECURITY.md says.
fn older_copies(room: &Room, instance: &Instance<'_>, path: &str) {
    let file = instance.data().join(path);
    let copy = fs::read(&file).expect("a file");
    instance.start();
    instance.sql("checkpoint");
    instance.stop();
    room.put(&file, &copy);
    checked(&mut verify(room, instance));
    instance.start();
    instance.sql("rollback prepared 'first'; rollback prepared 'second'");
    instance.stop();
}

/// The relation map is a block file, whose tweak has the database in it.
fn another_databases_map(room: &Room, instance: &Instance<'_>) {
    instance.start();
    let oid = |name: &str| {
        instance.sql(&format!(
            "select oid from pg_database where datname = '{name}'"
        ))
    };
    let map = |oid: &str| format!("base/{oid}/pg_filenode.map");
    let (first, second) = (map(&oid("first")), map(&oid("second")));
    instance.stop();
    exchange(room, instance.data(), &first, &second);
    instance.start();
    let mut psql = instance.client("psql");
    let told = refused(psql.args(["-d", "first", "-c", "select 1"]));
    assert!(told.contains("relation mapping file"), "{told}");
    instance.stop();
    exchange(room, instance.data(), &first, &second);
    instance.start();
    assert_eq!(instance.sql_in("first", "select 1"), "1");
    instance.stop();
}

#[test]
fn what_the_server_renames_and_copies_opens_after_every_kill() {
    renames(&Room::new("renames"), &Programs::installed(), 6);
}

#[test]
fn what_a_newer_server_renames_and_copies_opens_after_every_kill() {
    let room = Room::new("renames18");
    if let Some(programs) = Programs::newer(&room) {
        renames(&room, &programs, 3);
    }
}

/// Each makes, renames, copies or removes containers.
const WORK: [&str; 5] = [
    "select pg_create_logical_replication_slot('s1', 'test_decoding');
     select count(*) from pg_logical_slot_get_changes('s1', null, null); select pg_drop_replication_slot('s1')",
    "select pg_create_physical_replication_slot('s2', true); select pg_drop_replication_slot('s2')",
    "begin; insert into t values (1); prepare transaction 'p1'; checkpoint; commit prepared 'p1'",
    "create database d1 strategy file_copy; drop database d1",
    "vacuum full pg_class; select count(*) from pg_attribute",
];

fn renames(room: &Room, programs: &Programs, kills: u64) {
    let seed = seed();
    println!("STRONGROOM_SEED={seed}");
    let mut random = Random::new(seed);
    let instance = instance(room, programs, &mut random);
    instance.start();
    instance.sql("create table t (i int)");
    for kill in 0..times("STRONGROOM_KILLS", kills) {
        let mut sessions: Vec<_> = WORK
            .iter()
            .map(|work| {
                let mut session = instance.session();
                let again = format!("{work};\ncheckpoint;\n").repeat(100);
                drop(session.send(&again));
                session
            })
            .collect();
        crash::pause(&mut random, Duration::from_millis(1500));
        instance.kill();
        sessions.clear();
        let told = checked(&mut verify(room, &instance));
        assert!(told.contains("container"), "{told}");
        instance.start();
        instance.sql("select pg_drop_replication_slot(slot_name) from pg_replication_slots");
        for gid in instance.sql("select gid from pg_prepared_xacts").lines() {
            instance.sql(&format!("rollback prepared '{gid}'"));
        }
        instance.sql("drop database if exists d1");
        println!("kill {kill}: every file opens");
    }
    tablespaces(room, &instance);
    instance.stop();
    checked(&mut verify(room, &instance));
    instance.check_checksums();
}

/// Databases are copied by either strategy and moved between tablespaces, with what lies in their
/// directories.
fn tablespaces(room: &Room, instance: &Instance<'_>) {
    let location = room.directory("space");
    instance.sql(&format!(
        "create tablespace space location '{}'",
        location.display()
    ));
    instance.sql("create database logged strategy wal_log");
    instance.sql("create database copied strategy file_copy");
    for database in ["logged", "copied"] {
        instance.sql_in(database, "create table here as select 7 as i");
        instance.sql(&format!("alter database {database} set tablespace space"));
        assert_eq!(instance.sql_in(database, "select i from here"), "7");
        let saved = paths(instance, "pg_tblspc/", "pg_internal.init");
        assert!(!saved.is_empty(), "catalogs are saved in the tablespace");
        instance.sql(&format!(
            "create database of_{database} template {database} strategy file_copy"
        ));
        instance.sql(&format!(
            "alter database {database} set tablespace pg_default"
        ));
        assert_eq!(instance.sql_in(database, "select i from here"), "7");
        let copy = format!("of_{database}");
        assert_eq!(instance.sql_in(&copy, "select i from here"), "7");
    }
    instance.kill();
    checked(&mut verify(room, instance));
    instance.start();
    assert_eq!(instance.sql_in("of_copied", "select i from here"), "7");
}
