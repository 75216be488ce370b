//! Goal: every file that a real PostgreSQL makes, while it runs and after it has stopped, falls
//! into a class of the grammar, the right one, and none into the class of the unknown.
//!
//! Method: an instance of the installed PostgreSQL runs a workload that makes every kind of file; a
//! watcher lists the data directory over and over, because many files live for milliseconds. What a
//! name should be is stated here a second time, by shell-like patterns, so that the grammar is not
//! its own judge.

use crate::common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{Instance, files_of, like};
use strongroom_postgres_shield::classify::{Class, classify};

/// First match decides. `#` is a run of decimal digits, `%` a run of upper-case hexadecimal ones,
/// `*` anything but a slash.
const EXPECTED: &[(&str, Class)] = &[
    ("base/#/t#_#", Class::TemporaryRelation),
    ("base/#/t#_#_*", Class::TemporaryRelation),
    ("base/#/#", Class::Relation),
    ("base/#/#.#", Class::Relation),
    ("base/#/#_fsm", Class::Relation),
    ("base/#/#_vm", Class::Relation),
    ("base/#/#_init", Class::Relation),
    ("base/#/PG_VERSION", Class::Bookkeeping),
    ("base/#/pg_filenode.map*", Class::RelationMap),
    ("base/#/pg_internal.init*", Class::RelcacheInit),
    ("base/pgsql_tmp/pgsql_tmp#.#", Class::BufFile),
    ("base/pgsql_tmp/pgsql_tmp#.#.fileset/*", Class::Fileset),
    ("global/#", Class::Relation),
    ("global/#_fsm", Class::Relation),
    ("global/#_vm", Class::Relation),
    ("global/pg_control", Class::Control),
    ("global/pg_filenode.map*", Class::RelationMap),
    ("global/pg_internal.init*", Class::RelcacheInit),
    ("pg_tblspc/#/PG_#_#/#/#", Class::Relation),
    ("pg_tblspc/#/PG_#_#/#/#_*", Class::Relation),
    ("pg_tblspc/#/PG_#_#/#/t#_#", Class::TemporaryRelation),
    ("pg_tblspc/#/PG_#_#/#/PG_VERSION", Class::Bookkeeping),
    ("pg_tblspc/#/PG_#_#/#/pg_filenode.map*", Class::RelationMap),
    (
        "pg_tblspc/#/PG_#_#/#/pg_internal.init*",
        Class::RelcacheInit,
    ),
    ("pg_tblspc/#/PG_#_#/pgsql_tmp/pgsql_tmp#.#", Class::BufFile),
    (
        "pg_tblspc/#/PG_#_#/pgsql_tmp/pgsql_tmp#.#.fileset/*",
        Class::Fileset,
    ),
    ("pg_wal/xlogtemp.#", Class::WalTemp),
    ("pg_wal/archive_status/*", Class::ArchiveStatus),
    ("pg_wal/summaries/*", Class::WalSummary),
    ("pg_wal/%.history", Class::TimelineHistory),
    ("pg_wal/%.%.backup", Class::BackupHistory),
    ("pg_wal/%", Class::Wal),
    ("pg_xact/%", Class::Slru),
    ("pg_multixact/*/%", Class::Slru),
    ("pg_subtrans/%", Class::Slru),
    ("pg_commit_ts/%", Class::Slru),
    ("pg_notify/%", Class::Slru),
    ("pg_serial/%", Class::Slru),
    ("pg_twophase/%", Class::TwoPhase),
    ("pg_twophase/%.tmp", Class::TwoPhase),
    ("pg_replslot/*/state*", Class::SlotState),
    ("pg_replslot/*/xid-#-lsn-%-%.spill", Class::Spill),
    ("pg_logical/snapshots/*", Class::Snapbuild),
    ("pg_logical/mappings/map-*", Class::RewriteMapping),
    ("pg_logical/replorigin_checkpoint*", Class::Origins),
    ("pg_stat_tmp/pgss_query_texts.stat", Class::QueryTexts),
    ("pg_stat/*", Class::Statistics),
    ("pg_snapshots/*", Class::ExportedSnapshot),
    ("autoprewarm.blocks*", Class::Prewarm),
    ("log/*", Class::ServerLog),
    ("*.conf", Class::Configuration),
    ("*.conf.tmp", Class::Configuration),
    ("PG_VERSION", Class::Bookkeeping),
    ("postmaster.*", Class::Bookkeeping),
    ("backup_label*", Class::Bookkeeping),
    ("current_logfiles*", Class::Bookkeeping),
    (".s.PGSQL.*", Class::Bookkeeping),
];

/// Classes that the workload must have been seen to make, or the test would prove less than it
/// says.
const SEEN: &[Class] = &[
    Class::Relation,
    Class::TemporaryRelation,
    Class::Wal,
    Class::BackupHistory,
    Class::ArchiveStatus,
    Class::Slru,
    Class::Control,
    Class::RelationMap,
    Class::RelcacheInit,
    Class::TwoPhase,
    Class::SlotState,
    Class::Spill,
    Class::Snapbuild,
    Class::RewriteMapping,
    Class::Origins,
    Class::BufFile,
    Class::Fileset,
    Class::Statistics,
    Class::QueryTexts,
    Class::Prewarm,
    Class::ExportedSnapshot,
    Class::ServerLog,
    Class::Configuration,
    Class::Bookkeeping,
];

#[test]
fn every_file_of_a_real_instance_is_known() {
    let instance = Instance::create("classify");
    instance.configure(
        "shared_preload_libraries = 'pg_stat_statements,pg_prewarm'\n\
         logging_collector = on\nwal_level = logical\nmax_prepared_transactions = 4\n\
         archive_mode = on\narchive_command = 'true'\ntrack_commit_timestamp = on\n\
         work_mem = '64kB'\nlogical_decoding_work_mem = '64kB'\nshared_buffers = '4MB'\n\
         temp_buffers = '800kB'\nmin_parallel_table_scan_size = 0\nparallel_setup_cost = 0\n\
         parallel_tuple_cost = 0\nunix_socket_directories = '.'\nmax_wal_size = '64MB'\n",
    );
    let summarizes = instance.major() >= 17;
    if summarizes {
        instance.configure("summarize_wal = on\n");
    }
    let done = AtomicBool::new(false);
    let mut seen = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut seen = BTreeSet::new();
            while !done.load(Ordering::Relaxed) {
                seen.extend(files_of(instance.data()));
                std::thread::sleep(Duration::from_millis(2));
            }
            seen
        });
        // Also when the workload fails: the scope waits for the watcher.
        let _end = OnDrop(&done);
        instance.start();
        workload(&instance);
        instance.stop();
        done.store(true, Ordering::Relaxed);
        watcher.join().unwrap()
    });
    seen.extend(files_of(instance.data()));
    let mut classes: BTreeMap<Class, u32> = BTreeMap::new();
    for path in &seen {
        let class = classify(path.as_bytes()).class;
        assert_ne!(class, Class::Unknown, "{path} is not in the grammar");
        let expected = EXPECTED.iter().find(|(pattern, _)| like(pattern, path));
        let (_, expected) = expected.unwrap_or_else(|| panic!("{path} is not expected here"));
        assert_eq!(class, *expected, "{path}");
        *classes.entry(class).or_default() += 1;
    }
    let of_version = summarizes.then_some(&Class::WalSummary);
    for class in SEEN.iter().chain(of_version) {
        assert!(
            classes.contains_key(class),
            "the workload made no {class:?}: {classes:?}"
        );
    }
}

struct OnDrop<'flag>(&'flag AtomicBool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn workload(instance: &Instance) {
    let space = instance.tablespace("space");
    instance.sql(&format!("CREATE TABLESPACE space LOCATION '{space}'"));
    instance.sql("CREATE EXTENSION pg_stat_statements");
    instance.sql("SELECT pg_create_logical_replication_slot('a_slot', 'test_decoding')");
    instance.sql("SELECT pg_replication_origin_create('somewhere')");
    instance.sql(
        "SELECT pg_replication_origin_session_setup('somewhere'); BEGIN; \
         SELECT pg_replication_origin_xact_setup('0/1', now()); CREATE TABLE o(i int); COMMIT",
    );
    instance.sql(
        "CREATE TABLE t AS SELECT i, repeat('x', 100) || i AS s FROM generate_series(1, 60000) i; \
         CREATE UNLOGGED TABLE u AS SELECT * FROM t LIMIT 100; \
         CREATE TABLE ts TABLESPACE space AS SELECT * FROM t LIMIT 1000; ANALYZE",
    );
    instance.sql("VACUUM t; VACUUM FULL pg_class; VACUUM FULL pg_attribute");
    instance
        .sql("CREATE DATABASE copied STRATEGY file_copy; CREATE DATABASE logged TABLESPACE space");
    instance.sql("BEGIN; INSERT INTO o VALUES (0); PREPARE TRANSACTION 'a'; CHECKPOINT");
    instance.sql(
        "CREATE TEMP TABLE tt AS SELECT * FROM t; SELECT count(*) FROM tt; \
         SET enable_hashjoin = on; SELECT count(*) FROM t a JOIN t b USING (s); \
         SELECT count(*) FROM (SELECT * FROM t ORDER BY s OFFSET 50000) x; \
         CREATE INDEX ON t (s); SET temp_tablespaces = 'space'; \
         SELECT count(*) FROM (SELECT * FROM t ORDER BY s DESC OFFSET 50000) x",
    );
    instance.sql(
        "BEGIN; LISTEN c; NOTIFY c, 'payload'; COMMIT; \
         BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_export_snapshot(); SELECT pg_sleep(1); COMMIT",
    );
    instance.sql("SELECT count(*) FROM pg_logical_slot_get_changes('a_slot', NULL, NULL)");
    instance.sql("SELECT pg_backup_start('b', true); SELECT * FROM pg_backup_stop(false)");
    instance.sql("SELECT pg_switch_wal(); CHECKPOINT");
    instance.kill_and_restart();
    instance.sql("SELECT count(*) FROM t; CHECKPOINT");
}
