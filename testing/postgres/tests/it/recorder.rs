//! Goal: no file call of PostgreSQL's on the data directory passes the shield by.
//!
//! Method: a server under strace(1) makes, uses and leaves files of as many classes as it has;
//! strace records each system call on a file and the stack that led to it. The code that called the
//! C library must be the shield (see `trace`). The same record of a plain server has to show that
//! PostgreSQL's own code is found, for each kind of file.
#![expect(
    clippy::print_stdout,
    reason = "counts are for whoever runs it, and what escaped for whoever looks for it"
)]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use strongroom_testing::random::{Random, seed};
use strongroom_testing_postgres::instance::{Instance, Protection};
use strongroom_testing_postgres::programs::Programs;
use strongroom_testing_postgres::room::Room;
use strongroom_testing_postgres::trace::{self, Call};
use strongroom_testing_support::process::patiently;

const SETTINGS: &str = "shared_buffers = 1MB\nwork_mem = 64kB\ntemp_buffers = 800kB\nwal_level = logical\n\
    logical_decoding_work_mem = 64kB\nautovacuum = off\nshared_preload_libraries = 'pg_stat_statements'\n\
    max_prepared_transactions = 5\nmax_files_per_process = 64\n";

/// Each statement makes or uses another kind of file. Small: a call that is recorded with its stack
/// takes milliseconds.
const WORKLOAD: &str = "
    create table t as select i, md5(i::text) as x from generate_series(1, 1500) i; create index on t (x);
    select count(*) from (select x from t order by x offset 3) s;
    create temp table tt as select * from t limit 200; select count(*) from tt;
    create unlogged table u as select * from tt; vacuum u;
    begin; insert into t values (1, 'x'); prepare transaction 'p'; checkpoint; commit prepared 'p';
    create extension pg_stat_statements; select count(*) from pg_stat_statements;
    select pg_notify('c', 'n'); select lo_from_bytea(1, 'x');
    select pg_create_logical_replication_slot('slot', 'test_decoding');
    insert into t select i, repeat(md5(i::text), 40) from generate_series(1, 70) i; checkpoint;
    select count(*) from pg_logical_slot_get_changes('slot', null, null);
    vacuum full tt; truncate t; select pg_switch_wal();
    alter system set work_mem = '1MB'; select pg_reload_conf(); select pg_stat_file('PG_VERSION');
    begin isolation level repeatable read; select pg_export_snapshot(); commit;
    checkpoint; drop table u;";

/// Thousands of calls more, for who has minutes: `STRONGROOM_RECORD=full`.
const MORE: &str = "create database d strategy file_copy; create database e strategy wal_log; drop database d; \
    create tablespace s location ''; alter database e set tablespace s; cluster t using t_x_idx;";

/// Runs a server under strace and gives the calls it made on its files.
fn record(
    room: &Room,
    programs: &Programs,
    name: &str,
    protection: Protection,
    library: Option<&Path>,
) -> Vec<Call> {
    let instance = Instance::create(room, programs, name, protection);
    instance.configure(SETTINGS);
    let traces = room.directory(&format!("{name}-traces"));
    let mut server = Command::new(instance.programs().path("postgres"));
    server
        .arg("-D")
        .arg(instance.data())
        .arg("-k")
        .arg(room.path());
    server.args([
        "-p",
        &instance.port().to_string(),
        "-c",
        "listen_addresses=",
    ]);
    let words = trace::traced(&server, &traces, library);
    let mut strace = room.command(Path::new(&words[0]));
    strace.args(&words[1..]);
    let mut strace = strace
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("strace is installed");
    assert!(
        patiently(Duration::from_secs(90), || instance
            .try_sql("select 1")
            .is_ok()),
        "{}",
        instance.said()
    );
    let full = std::env::var("STRONGROOM_RECORD").is_ok_and(|text| text == "full");
    let more = if full { MORE } else { "" };
    instance.sql(&format!(
        "set statement_timeout = 0; set allow_in_place_tablespaces = on; {WORKLOAD} {more}"
    ));
    instance.stop();
    assert!(
        strace.wait().is_ok_and(|status| status.success()),
        "strace failed"
    );
    trace::calls(&traces, instance.data())
}

/// Kinds of files that the workload must touch.
const KINDS: &[&str] = &[
    "base/",
    "global/pg_control",
    "pg_filenode.map",
    "pg_internal.init",
    "pg_wal/0",
    "pg_wal/xlogtemp",
    "pg_xact/",
    "pg_twophase/",
    "pg_replslot/slot/state",
    ".spill",
    "pg_logical/snapshots/",
    "pgsql_tmp",
    "pg_stat/pgstat.stat",
    "pgss_query_texts.stat",
    "pg_stat/pg_stat_statements.stat",
    "pg_snapshots/",
    "postgresql.auto.conf",
    "PG_VERSION",
];

#[test]
fn every_file_call_comes_through_the_shield() {
    compare(&traced("recorder"), &Programs::installed());
}

#[test]
fn every_file_call_of_a_newer_version_comes_through_the_shield() {
    let room = traced("recorder18");
    if let Some(programs) = Programs::newer(&room) {
        compare(&room, &programs);
    }
}

/// A room with the library that strace can follow.
fn traced(name: &str) -> Room {
    let mut room = Room::new(name);
    room.trace_library();
    room
}

fn compare(room: &Room, programs: &Programs) {
    let mut random = Random::new(seed());
    let key = room.key("main", &mut random);
    let protection = Protection::Sealed {
        key,
        cipher: "aes-256-xts",
    };
    let (sealed, plain) = std::thread::scope(|scope| {
        let plain = scope.spawn(|| record(room, programs, "plain", Protection::Plain, None));
        let sealed = record(room, programs, "sealed", protection, Some(room.library()));
        (sealed, plain.join().expect("the plain record"))
    });
    println!(
        "sealed: {} calls, plain: {} calls",
        sealed.len(),
        plain.len()
    );
    for kind in KINDS {
        let found = plain
            .iter()
            .filter(|call| call.path.contains(kind) && !call.shielded)
            .count();
        assert!(found > 0, "the recorder is blind for {kind}");
        assert!(
            sealed.iter().any(|call| call.path.contains(kind)),
            "the sealed server used no {kind}"
        );
    }
    let mut escaped: BTreeMap<&str, Vec<&Call>> = BTreeMap::new();
    for call in sealed.iter().filter(|call| call.escaped()) {
        escaped.entry(&call.name).or_default().push(call);
    }
    for (name, calls) in &escaped {
        println!("{name}: {} calls, such as {}", calls.len(), calls[0].shown);
    }
    assert!(escaped.is_empty(), "calls that the shield did not see");
}
