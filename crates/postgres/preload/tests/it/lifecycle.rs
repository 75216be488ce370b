//! Goal: a stock PostgreSQL runs on a sealed instance as on a plain one, and nothing of what it
//! stores can be read.
//!
//! Method: one workload through every class of file that holds user data, on a sealed and on a
//! plain instance: the answers must be equal, the known strings must be found in every place of the
//! plain one and nowhere in the sealed one, while the server runs, after it was killed, and after
//! it was stopped.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use crate::support;

use std::path::PathBuf;

use strongroom_format::header::Cipher;
use support::{Place, Server, check, holding, program};

const OPTIONS: &str = "-c max_prepared_transactions=5 -c shared_buffers=2MB -c temp_buffers=800kB \
     -c log_min_messages=fatal -c log_min_error_statement=panic";

const WORKLOAD: &str = "
    set work_mem = '64kB'; set hash_mem_multiplier = 1; set max_parallel_workers_per_gather = 0;
    create table t as select g as id, 'CanaryRow' || g as a, repeat('CanaryToast' || g, 300) as b
        from generate_series(1, 3000) g;
    alter table t alter b set storage external;
    update t set b = b || 'x' where id % 3 = 0;
    create index on t (a);
    create unlogged table u as select 'CanaryUnlogged' || g as a from generate_series(1, 2000) g;
    create temp table w as select 'CanaryTemp' || g as a, g as id from generate_series(1, 40000) g;
    select md5(string_agg(a, '' order by a desc)) from w;
    select count(*), sum(x.id) from w x join w y on x.a = y.a;
    with recursive r(n, s) as (select 1, 'CanaryCte'::text union all select n + 1, s from r where n < 20000)
        select count(*), max(n) from r;
    begin;
    declare c scroll cursor for select a, row_number() over (order by a) from w;
    move 30000 from c;
    fetch backward 3 from c;
    move backward 20000 from c;
    fetch 2 from c;
    commit;
    select md5(string_agg(a || b, '' order by id)) from t;
    delete from t where id % 7 = 0;
    vacuum full t;
    cluster t using t_a_idx;
    select lo_from_bytea(0, 'CanaryLargeObject') > 0;
    select count(pg_notify('c', repeat('CanaryNotify', 500) || g)) from generate_series(1, 200) g;
    checkpoint;";

/// With workers: files that several processes share.
const PARALLEL: &str = "
    set work_mem = '64kB'; set max_parallel_workers_per_gather = 2; set parallel_setup_cost = 0;
    set parallel_tuple_cost = 0; set min_parallel_table_scan_size = 0; set enable_mergejoin = off;
    create table p as select g as id, 'CanaryParallel' || g as a from generate_series(1, 60000) g;
    analyze p;
    select count(*), sum(x.id) from p x join p y on x.a = y.a;
    set maintenance_work_mem = '1MB'; set min_parallel_index_scan_size = 0;
    alter table p set (parallel_workers = 2);
    create index on p (a);
    select count(*) from p where a between 'CanaryParallel2' and 'CanaryParallel3';";

/// Names by which the strings can be told apart in what a plain instance stores.
const CANARIES: &[&str] = &[
    "CanaryRow",
    "CanaryToast",
    "CanaryUnlogged",
    "CanaryNotify",
    "CanaryLargeObject",
    "CanaryParallel",
];

fn run(place: &Place, data: PathBuf) -> (Server, Vec<String>) {
    let server = Server::create(place, data, OPTIONS);
    server.start();
    let mut answers = vec![server.sql(WORKLOAD), server.sql(PARALLEL)];
    for strategy in ["file_copy", "wal_log"] {
        server.sql(&format!(
            "create database copy_{strategy} template template1 strategy {strategy}"
        ));
    }
    answers.push(server.sql("select count(*) from pg_class where relkind = 'i'"));
    (server, answers)
}

#[test]
fn a_sealed_instance_answers_as_a_plain_one_and_stores_nothing_readable() {
    let place = Place::new();
    let (plain, expected) = run(&place, place.plain("plain"));
    for canary in CANARIES {
        assert!(
            !holding(&plain.data, canary).is_empty(),
            "{canary} is not in the plain instance"
        );
    }
    plain.stop();
    for (name, cipher) in [("first", Cipher::Aes128Xts), ("second", Cipher::Aes256Xts)] {
        let (sealed, answers) = run(&place, place.sealed(name, cipher));
        assert_eq!(answers, expected, "{name}");
        assert_eq!(
            holding(&sealed.data, "Canary"),
            Vec::<PathBuf>::new(),
            "running"
        );
        sealed.kill();
        assert_eq!(
            holding(&sealed.data, "Canary"),
            Vec::<PathBuf>::new(),
            "killed"
        );
        sealed.start();
        let again = "select md5(string_agg(a, '' order by id)) from t; select count(*) from u";
        let rows = sealed.sql(again);
        assert!(
            rows.ends_with("\n0"),
            "an unlogged table is empty after a crash: {rows}"
        );
        sealed.sql("create extension amcheck; select bt_index_check(oid, true) from pg_class where relkind = 'i' and relam = 403");
        sealed.stop();
        assert_eq!(
            holding(&sealed.data, "Canary"),
            Vec::<PathBuf>::new(),
            "stopped"
        );
        let beside = |name| {
            support::binary(name)
                .parent()
                .map(std::path::Path::to_owned)
        };
        // Some packages of servers come without it, and another version's does not read this
        // control file.
        if beside("pg_checksums") == beside("postgres") {
            let mut checksums = sealed.tool("pg_checksums");
            let report = checksums.arg("-c").arg("-D").arg(&sealed.data).output();
            let report = check(report.unwrap());
            assert!(report.contains("Bad checksums:  0"), "{report}");
        }
    }
}

#[test]
fn without_the_shield_postgresql_itself_refuses_a_sealed_instance() {
    let place = Place::new();
    let server = Server::create(&place, place.sealed("data", Cipher::Aes128Xts), OPTIONS);
    server.start();
    server.sql("create table t as select 1 as a");
    server.stop();
    let before = state(&server);
    let mut postgres = program(support::binary("postgres"));
    let output = postgres.arg("-D").arg(&server.data).output().unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("FATAL") && !said.contains("redo"), "{said}");
    assert_eq!(state(&server), before, "a refused start changes nothing");
    server.start();
    assert_eq!(server.sql("select a from t"), "1");
    server.stop();
}

/// Every file with its length and contents.
fn state(server: &Server) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all: Vec<_> = support::files(&server.data)
        .into_iter()
        .map(|path| (path.clone(), std::fs::read(path).unwrap()))
        // The server's own start leaves its options behind.
        .filter(|(path, _)| !path.ends_with("postmaster.opts"))
        .collect();
    all.sort();
    all
}

#[test]
fn a_link_into_the_instance_leads_to_the_same_files() {
    let place = Place::new();
    let server = Server::create(&place, place.sealed("data", Cipher::Aes128Xts), OPTIONS);
    server.start();
    // A spelling of the directory that the server was not started with, and a link to one file.
    let alias = place.path().join("alias");
    std::os::unix::fs::symlink(&server.data, &alias).unwrap();
    let link = place.path().join("link");
    std::os::unix::fs::symlink(server.data.join("out.txt"), &link).unwrap();
    let (alias, link) = (alias.display(), link.display());
    server.sql(&format!(
        "copy (select 'CanaryAlias' from generate_series(1, 500)) to '{alias}/out.txt';"
    ));
    assert!(holding(&server.data, "CanaryAlias").is_empty());
    let read = format!(
        "select length(pg_read_file('out.txt')), length(pg_read_file('{alias}/out.txt')),
                length(pg_read_file('{link}')), (pg_stat_file('{alias}/out.txt')).size,
                (pg_stat_file('{link}')).size"
    );
    assert_eq!(server.sql(&read), "6000|6000|6000|6000|6000");
    server.sql(&format!("copy (select 'CanaryLink') to '{link}'"));
    assert!(holding(&server.data, "CanaryLink").is_empty());
    assert_eq!(server.sql("select pg_read_file('out.txt')"), "CanaryLink");
    let header = format!("select pg_read_file('{alias}/strongroom.header', 0, 10, true) is null");
    assert_eq!(server.sql(&header), "t", "hidden under any name");
    server.stop();
}
