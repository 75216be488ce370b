//! Goal: what PostgreSQL keeps in containers and streams survives restarts and kills, and holds no
//! plaintext.
//!
//! Method: a real server under the preload library: prepared transactions, replication slots,
//! logical decoding that spills, rewritten catalogs, statistics, texts of statements, base backups
//! written through streams.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use crate::support;

use std::fs;
use std::time::Duration;

use strongroom_format::header::Cipher;
use support::{Place, Server, check, files, has, holding, library, named, program};

const OPTIONS: &str = "-c wal_level=logical -c max_prepared_transactions=5 -c logical_decoding_work_mem=64kB \
     -c shared_preload_libraries=pg_stat_statements -c log_min_messages=fatal -c log_min_error_statement=panic";

fn magic(path: &std::path::Path) -> String {
    let bytes = fs::read(path).unwrap();
    String::from_utf8_lossy(bytes.get(..24).unwrap_or(&bytes)).into_owned()
}

#[test]
fn prepared_transactions_and_slots_survive_kills() {
    let place = Place::new();
    let server = Server::create(&place, place.sealed("data", Cipher::Aes256Xts), OPTIONS);
    server.start();
    server.sql(
        "create table t (a int, b text);
         select pg_create_physical_replication_slot('canary_physical', true);
         select pg_create_logical_replication_slot('canary_logical', 'test_decoding');
         begin; insert into t values (1, 'canary row'); prepare transaction 'canary one';
         begin; insert into t select g, repeat('canary', 500) from generate_series(1, 300) g;
         savepoint s; create table u (a int); prepare transaction 'canary two';
         checkpoint;",
    );
    let state = named(&server.data.join("pg_twophase"), "0").unwrap();
    assert!(magic(&state).contains("STRONGROOM PG CONTAINER"));
    // What SQL functions see is what the server wrote.
    let (size, length) = server
        .sql("select (pg_stat_file('pg_twophase/' || f)).size, length(pg_read_binary_file('pg_twophase/' || f)) \
              from pg_ls_dir('pg_twophase') f limit 1")
        .split_once('|')
        .map(|(size, length)| (size.to_owned(), length.to_owned()))
        .unwrap();
    assert_eq!(size, length);
    assert!(fs::metadata(&state).unwrap().len() > size.parse().unwrap());
    for _ in 0..2 {
        server.kill();
        server.start();
        let found = server.sql("select gid from pg_prepared_xacts order by 1");
        assert_eq!(found, "canary one\ncanary two");
    }
    assert_eq!(
        holding(&server.data.join("pg_twophase"), "canary"),
        Vec::<std::path::PathBuf>::new()
    );
    server.sql("commit prepared 'canary one'; rollback prepared 'canary two'; checkpoint;");
    server.stop();
    assert!(holding(&server.data, "canary row").is_empty());
    server.start();
    assert_eq!(server.sql("select b from t"), "canary row");
    let slots = server.sql("select slot_name, slot_type from pg_replication_slots order by 1");
    assert_eq!(slots, "canary_logical|logical\ncanary_physical|physical");
    let slot = server.data.join("pg_replslot/canary_logical/state");
    assert!(magic(&slot).contains("STRONGROOM PG CONTAINER"));
    assert_eq!(
        server.sql("select pg_drop_replication_slot(slot_name) from pg_replication_slots"),
        "\n".trim()
    );
    assert!(!slot.exists());
}

#[test]
fn logical_decoding_spills_sealed_and_decodes_right() {
    const ROWS: usize = 30_000;
    let place = Place::new();
    let server = Server::create(&place, place.sealed("data", Cipher::Aes128Xts), OPTIONS);
    server.start();
    server.sql(&format!(
        "create table t (a int, b text);
         select pg_create_logical_replication_slot('s', 'test_decoding');
         begin; insert into t select g, 'canary ' || g || repeat('x', g % 97) from generate_series(1, {ROWS}) g;
         savepoint one; insert into t values (0, 'canary of a part'); commit;
         vacuum full pg_class; vacuum full pg_attribute;
         create table after (a int); insert into after values (7);
         checkpoint;"
    ));
    let mapping = named(&server.data.join("pg_logical/mappings"), "map-").unwrap();
    assert!(magic(&mapping).contains("STRONGROOM PG STREAM"));
    let spilled = std::thread::scope(|scope| {
        let decoding = scope.spawn(|| {
            server.sql("select count(*) from pg_logical_slot_peek_changes('s', null, null, 'include-xids', '0')")
        });
        let mut seen = false;
        while !decoding.is_finished() {
            let spill = named(&server.data.join("pg_replslot/s"), "xid-");
            let bytes = spill
                .and_then(|spill| fs::read(spill).ok())
                .unwrap_or_default();
            seen |= bytes.len() > 5000;
            assert!(!bytes.windows(6).any(|window| window == b"canary"));
            std::thread::sleep(Duration::from_millis(2));
        }
        decoding.join().unwrap();
        seen
    });
    assert!(spilled, "the transaction was meant to spill");
    server.kill();
    server.start();
    let changes = server
        .sql("select data from pg_logical_slot_get_changes('s', null, null, 'include-xids', '0')");
    let rows: Vec<&str> = changes
        .lines()
        .filter(|line| line.starts_with("table public.t:"))
        .collect();
    assert_eq!(rows.len(), ROWS + 1);
    for (number, row) in rows.iter().take(ROWS).enumerate() {
        let number = number + 1;
        let expected = format!("'canary {number}{}'", "x".repeat(number % 97));
        assert!(row.ends_with(&expected), "row {number}: {row}");
    }
    assert!(changes.contains("table public.after: INSERT: a[integer]:7"));
    assert!(holding(&server.data, "canary").is_empty());
}

#[test]
fn statistics_and_texts_of_statements_are_kept_sealed() {
    let place = Place::new();
    let options = format!("{OPTIONS} -c pg_stat_statements.max=100");
    let server = Server::create(&place, place.sealed("data", Cipher::Aes128Xts), &options);
    server.start();
    server.sql("create extension pg_stat_statements; create table t as select g from generate_series(1, 77) g;");
    server.sql("select 'x' as \"a canary\"; select pg_stat_force_next_flush();");
    // Several backends append texts, until one of them collects the garbage.
    let statements = |from: usize| -> String {
        (from..from + 250)
            .map(|n| {
                format!(
                    "select {} as \"canary {n}\";",
                    vec!["1"; n % 600 + 1].join(",")
                )
            })
            .collect()
    };
    let texts = server.data.join("pg_stat_tmp/pgss_query_texts.stat");
    let mut largest = 0;
    let mut shrunk = false;
    std::thread::scope(|scope| {
        let server = &server;
        let work: Vec<_> = (0..4)
            .map(|part| scope.spawn(move || server.sql(&statements(part * 150))))
            .collect();
        while !work.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            let size = fs::metadata(&texts).map_or(0, |about| about.len());
            shrunk |= size + 20_000 < largest;
            largest = largest.max(size);
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    assert!(
        shrunk,
        "the texts were meant to be collected; they had {largest} bytes"
    );
    assert!(magic(&texts).contains("STRONGROOM PG STREAM"));
    // A statement whose entry was thrown out while it ran is kept with its constants.
    let right = "select count(*) > 50, bool_and(query ~ '^select (\\$?[0-9]+,?)+ as \"canary [0-9]+\"$') \
                 from pg_stat_statements where query like '%as \"canary %'";
    assert_eq!(server.sql(right), "t|t");
    server.stop();
    for file in ["pg_stat/pgstat.stat", "pg_stat/pg_stat_statements.stat"] {
        assert!(
            magic(&server.data.join(file)).contains("STRONGROOM PG CONTAINER"),
            "{file}"
        );
    }
    assert!(holding(&server.data, "canary").is_empty());
    server.start();
    assert_eq!(server.sql(right), "t|t");
    assert_eq!(
        server.sql("select n_tup_ins from pg_stat_user_tables where relname = 't'"),
        "77"
    );
    server.sql("select pg_stat_statements_reset()");
    assert_eq!(
        server.sql("select count(*) from pg_stat_statements where query like '%canary%'"),
        "0"
    );
    // A server that was killed forgets statistics, as it does without the shield.
    server.kill();
    server.start();
    assert_eq!(
        server.sql("select n_tup_ins from pg_stat_user_tables where relname = 't'"),
        "0"
    );
}

#[test]
fn statistics_that_are_damaged_are_forgotten_and_reported() {
    let place = Place::new();
    let server = Server::create(&place, place.sealed("data", Cipher::Aes128Xts), OPTIONS);
    server.start();
    server.sql("create table t as select g from generate_series(1, 77) g;");
    server.stop();
    let statistics = server.data.join("pg_stat/pgstat.stat");
    let mut bytes = fs::read(&statistics).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::File::create(&statistics)
        .and_then(|mut file| std::io::Write::write_all(&mut file, &bytes))
        .unwrap();
    server.start();
    assert_eq!(server.sql("select count(*) from t"), "77");
    let log = fs::read_to_string(server.data.with_extension("log")).unwrap();
    assert!(
        log.contains("SR-7001") && log.contains("pg_stat/pgstat.stat"),
        "{log}"
    );
}

#[test]
fn databases_are_made_by_both_strategies() {
    let place = Place::new();
    let server = Server::create(&place, place.sealed("data", Cipher::Aes128Xts), OPTIONS);
    server.start();
    server.sql("create database original");
    let in_database = |name: &str, statements: &str| {
        let mut command = server.psql();
        command.args(["-d", name, "-c", statements]);
        check(command.output().unwrap()).trim_end().to_owned()
    };
    in_database(
        "original",
        "create table t as select g, 'canary '||g as b from generate_series(1, 5000) g",
    );
    in_database("original", "create unlogged table u as select 1 as a");
    in_database("original", "vacuum full pg_class");
    for strategy in ["wal_log", "file_copy"] {
        server.sql(&format!(
            "create database {strategy}_copy template original strategy {strategy}"
        ));
        assert_eq!(
            in_database(&format!("{strategy}_copy"), "select sum(g), min(b) from t"),
            "12502500|canary 1"
        );
    }
    server.kill();
    server.start();
    for name in ["original", "wal_log_copy", "file_copy_copy"] {
        assert_eq!(
            in_database(name, "select sum(g), min(b) from t"),
            "12502500|canary 1"
        );
    }
    server.stop();
    assert!(holding(&server.data, "canary").is_empty());
    checksums_are_right(&server);
}

fn checksums_are_right(server: &Server) {
    if has("pg_checksums") {
        let mut command = server.tool("pg_checksums");
        check(command.arg("--check").arg(&server.data).output().unwrap());
    }
}

/// `pg_basebackup` writes relations through streams of the C library.
#[test]
fn a_base_backup_goes_to_a_sealed_directory_and_to_a_plain_one() {
    if !has("pg_basebackup") {
        return;
    }
    let place = Place::new();
    let server = Server::create(&place, place.sealed("data", Cipher::Aes128Xts), OPTIONS);
    server.start();
    server.sql(
        "create table t as select g, 'canary ' || g as b from generate_series(1, 20000) g; create index on t (b);
         select pg_create_logical_replication_slot('s', 'test_decoding'); vacuum full pg_class; checkpoint;",
    );
    for target in [
        place.sealed("other", Cipher::Aes256Xts),
        place.plain("plain"),
    ] {
        let copy = Server::of(&place, target, OPTIONS);
        let mut backup = copy.tool("pg_basebackup");
        backup
            .args(server.connection())
            .arg("-D")
            .arg(&copy.data)
            .args(["-c", "fast", "-X", "stream"]);
        check(backup.output().unwrap());
        check(
            copy.tool("pg_verifybackup")
                .arg(&copy.data)
                .output()
                .unwrap(),
        );
        copy.start();
        assert_eq!(
            copy.sql("select sum(g), max(b) from t where b like 'canary%'"),
            "200010000|canary 9999"
        );
        copy.sql("insert into t values (1, 'canary late')");
        copy.stop();
        checksums_are_right(&copy);
        let sealed = copy.data.join("strongroom.header").exists();
        assert_eq!(holding(&copy.data, "canary").is_empty(), sealed);
        assert!(files(&copy.data).len() > 900);
    }
}

/// Exported snapshots are plain files that are read through streams, with fstat on fileno.
#[test]
fn a_snapshot_is_exported_and_imported() {
    let place = Place::new();
    let server = Server::create(&place, place.sealed("data", Cipher::Aes128Xts), OPTIONS);
    server.start();
    server.sql("create table t as select 1 as a");
    let mut holder = server.psql();
    holder
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped());
    let mut holder = holder.spawn().unwrap();
    let mut input = holder.stdin.take().unwrap();
    std::io::Write::write_all(
        &mut input,
        b"begin isolation level repeatable read; select pg_export_snapshot();\n",
    )
    .unwrap();
    let mut line = String::new();
    let mut output = std::io::BufReader::new(holder.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut output, &mut line).unwrap();
    server.sql("insert into t values (2)");
    let snapshot = line.trim();
    let seen = server.sql(&format!(
        "begin isolation level repeatable read; set transaction snapshot '{snapshot}'; select count(*) from t; commit"
    ));
    assert_eq!(seen, "1");
    drop(input);
    assert!(holder.wait().unwrap().success());
}

/// From 17 on the server keeps summaries of the log, and its names for prepared transactions are
/// longer.
#[test]
fn summaries_of_the_log_are_sealed() {
    let place = Place::new();
    let server = Server::create(&place, place.sealed("data", Cipher::Aes128Xts), OPTIONS);
    server.start();
    let version: u32 = server.sql("show server_version_num").parse().unwrap();
    if version < 170_000 {
        return;
    }
    server.sql(
        "alter system set summarize_wal = on; select pg_reload_conf();
         create table t as select g from generate_series(1, 10000) g; checkpoint; insert into t values (1); checkpoint;",
    );
    let end = std::time::Instant::now() + Duration::from_secs(30);
    let summary = loop {
        let found = named(&server.data.join("pg_wal/summaries"), "0");
        if let Some(path) = found.filter(|path| path.metadata().is_ok_and(|about| about.len() > 0))
        {
            break path;
        }
        assert!(std::time::Instant::now() < end, "no summary was written");
        server.sql("insert into t values (2); checkpoint;");
        std::thread::sleep(Duration::from_millis(200));
    };
    assert!(magic(&summary).contains("STRONGROOM PG CONTAINER"));
    server.kill();
    server.start();
    let blocks = "select count(*) > 0 from pg_available_wal_summaries() s, \
                  pg_wal_summary_contents(s.tli, s.start_lsn, s.end_lsn) c";
    assert_eq!(server.sql(blocks), "t");
}

/// By a program under the shield: what would not open under its new name keeps the old one.
#[test]
fn a_rename_to_another_name_is_refused() {
    let place = Place::new();
    let server = Server::create(&place, place.sealed("data", Cipher::Aes256Xts), OPTIONS);
    server.start();
    server.sql(
        "select pg_create_physical_replication_slot('a', true);
         select pg_create_physical_replication_slot('b', true);",
    );
    server.stop();
    let slots = server.data.join("pg_replslot");
    let state = |slot: &str| fs::read(slots.join(slot).join("state")).unwrap();
    let before = [state("a"), state("b")];
    let renamed = |from: &str, to: &str| {
        // perl calls rename(2) and nothing else.
        let mut perl = program("env");
        perl.arg(format!("LD_PRELOAD={}", library().display()))
            .arg("STRONGROOM_SHIELD_ALL=1")
            .arg(format!("STRONGROOM_PG_ROOTS={}", server.data.display()))
            .args(["perl", "-e", "rename($ARGV[0], $ARGV[1]) or die $!"])
            .arg(slots.join(from))
            .arg(slots.join(to));
        perl.current_dir(place.path()).output().unwrap()
    };
    for (from, to) in [("a/state", "b/state"), ("a", "c")] {
        let output = renamed(from, to);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{from} -> {to}");
        assert!(told.contains("SR-7040"), "{told}");
        assert!(told.to_lowercase().contains("cross-device"), "{told}");
    }
    assert_eq!([state("a"), state("b")], before);
    // As PostgreSQL does it.
    assert!(renamed("a", "a.tmp").status.success());
    assert!(renamed("a.tmp", "a").status.success());
    server.start();
    let slots = server.sql("select slot_name from pg_replication_slots order by 1");
    assert_eq!(slots, "a\nb");
    server.stop();
}
