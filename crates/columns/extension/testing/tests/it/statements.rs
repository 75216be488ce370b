//! Goal: every way in which PostgreSQL writes, moves, copies and rebuilds rows leaves values that
//! are right, and stay right when zone and server lose their memory and what the rows were copied
//! from is gone.
//!
//! Method: statements through the proxy beside what they must leave. After each group the sources
//! are dropped, zone and server are killed, and the values are read again: a table that kept
//! identifiers of another one would now have none.

use strongroom_benches_oltp::wire::Client;
use strongroom_columns_testing::Server;
use strongroom_columns_testing::owner::{Owner, start_all};

/// Loses all memory of zone and server.
fn restart(owner: &mut Owner, server: &Server) {
    owner.kill_zone();
    server.kill();
    owner.start_zone();
    server.start_again();
}

fn state(said: &str) -> Option<&str> {
    let (_, rest) = said.split_once("ERROR:  ")?;
    rest.get(..5)
}

/// SQL, a question, and its answer.
const WRITES: &[(&str, &str, &str)] = &[
    (
        "update t set a = 77; update t set b = 'constant'",
        "select count(*), min(a), max(a), min(b), max(b) from t",
        "100|77|77|constant|constant",
    ),
    (
        "create table many (id int, a enc_int4, b enc_text) using strongroom; insert into many select id, 5, 'same' from t",
        "select count(*), sum(a), min(b), max(b) from many",
        "100|500|same|same",
    ),
    (
        "set default_table_access_method = strongroom; create table ctas as select id, a, b from s; select id, b into into_ from s",
        "select sum(a), max(b), (select max(b) from into_), (select count(*) from into_) from ctas",
        "5050|row 99|row 99|100",
    ),
    (
        "set default_table_access_method = strongroom; create materialized view mv as select id, a + a as double from s; refresh materialized view mv",
        "select sum(double) from mv",
        "10100",
    ),
    (
        "create table altered (id int, a enc_int4) using strongroom; insert into altered select id, a from s;
         alter table altered alter a type enc_int8, add column c enc_text; update altered set c = 'new' where id < 3",
        "select sum(a), count(c), max(c) from altered",
        "5050|2|new",
    ),
    (
        "create table parts (id int, a enc_int4) partition by range (id);
         create table low partition of parts for values from (0) to (51) using strongroom;
         create table high partition of parts for values from (51) to (1000) using strongroom;
         insert into parts select id, a from s; update parts set id = id + 50 where id = 50",
        "select sum(a), (select sum(a) from low), (select sum(a) from high) from parts",
        "5050|1225|3825",
    ),
    (
        "create table conflict (id int primary key, a enc_int4, b enc_text) using strongroom; insert into conflict select id, a, b from s where id < 5;
         insert into conflict select id, a, b from s on conflict (id) do update set a = conflict.a + excluded.a",
        "select count(*), sum(a), max(b) from conflict",
        "100|5060|row 99",
    ),
    (
        "create table shared (id int primary key, a enc_int4, n int) using strongroom; insert into shared select id, a, 0 from s;
         update shared set n = 1; update shared set n = 2; vacuum shared; update shared set n = 3 where id % 2 = 0; vacuum shared",
        "select sum(a), sum(n) from shared",
        "5050|250",
    ),
    (
        "create table cut (id int, a enc_int4) using strongroom; insert into cut select id, a from s; truncate cut; insert into cut values (1, 9);
         begin; truncate cut; insert into cut values (2, 10); rollback;
         begin; insert into cut values (3, 11); savepoint x; truncate cut; rollback to x; commit",
        "select count(*), sum(a) from cut",
        "2|20",
    ),
    (
        "create unlogged table logged (id int, a enc_int4) using strongroom; insert into logged select id, a from s; alter table logged set logged",
        "select sum(a) from logged",
        "5050",
    ),
];

#[test]
fn every_way_to_write_leaves_values_that_stay() {
    let (mut owner, server) = start_all("");
    let _made = owner.rows(
        "create table s (id int primary key, a enc_int4, b enc_text) using strongroom;
         create table t (id int primary key, a enc_int4, b enc_text) using strongroom",
    );
    let rows: Vec<String> = (1..=100)
        .map(|id| format!("({id}, {id}, 'row {id:02}')"))
        .collect();
    for table in ["s", "t"] {
        let _made = owner.rows(&format!("insert into {table} values {}", rows.join(",")));
    }
    for (sql, question, answer) in WRITES {
        let _done = owner.rows(sql);
        assert_eq!(owner.rows(question), *answer, "{sql}");
    }
    // What they were copied from goes, with its partition.
    let _gone = owner.rows("drop materialized view mv; drop table s, t; vacuum; checkpoint");
    restart(&mut owner, &server);
    for (sql, question, answer) in WRITES {
        if !question.contains("from t") && !question.contains("mv") {
            owner.wait_for(question, answer);
            let _same = sql;
        }
    }
}

/// Index builds in every form, each followed by look-ups.
const BUILDS: &[&str] = &[
    "create index i_plain on t (a)",
    "create unique index i_unique on t (b)",
    "create index concurrently i_concurrent on t (a, b)",
    "set max_parallel_maintenance_workers = 2; set min_parallel_table_scan_size = 0; create index i_parallel on t (b, a)",
    "reindex table t",
    "reindex table concurrently t",
    "cluster t using i_plain",
    "vacuum full t",
    "alter table t set tablespace pg_default",
    "vacuum t",
    "analyze t",
];

#[test]
fn every_index_build_finds_every_row() {
    let (mut owner, server) = start_all("max_parallel_workers = 4");
    let _made = owner.rows("create table t (id int, a enc_int4(ordered), b enc_text(ordered), primary key (a)) using strongroom");
    let rows: Vec<String> = (1..=1000)
        .map(|id| format!("({id}, {}, 'row {id:04}')", (id * 37) % 1009))
        .collect();
    let _made = owner.rows(&format!(
        "insert into t values {}; delete from t where id % 10 = 0",
        rows.join(",")
    ));
    let ask = "set enable_seqscan = off; select id from t where a = 74; select count(*) from t where b between 'row 0100' and 'row 0199';
        select id from t where b = 'row 0777'";
    for sql in BUILDS {
        let _built = owner.rows(sql);
        assert_eq!(owner.rows(ask), "2\n90\n777", "{sql}");
    }
    // An operator without any client maintains the table, also behind a zone that was started
    // again.
    restart(&mut owner, &server);
    owner.wait_for(ask, "2\n90\n777");
    owner.kill_proxy();
    let _built = server.rows("reindex table t; vacuum full t; create index on t (b) where id > 5; analyze t; cluster t using i_unique");
    owner.start_proxy(server.socket());
    assert_eq!(owner.rows(ask), "2\n90\n777");
    let twice = owner.run("insert into t values (5000, 74, 'new')");
    assert_eq!(state(&twice.messages), Some("23505"), "{}", twice.messages);
}

#[test]
fn statistics_hold_no_identifiers() {
    let (owner, server) = start_all("");
    let _made = owner.rows("create table t (id int, a enc_int4, b enc_text) using strongroom");
    let rows: Vec<String> = (1..=2000)
        .map(|id| format!("({id}, {}, 'v{}')", id % 7, id % 3))
        .collect();
    let _made = owner.rows(&format!(
        "insert into t values {}; analyze t",
        rows.join(",")
    ));
    let kept = server.rows(
        "select s.staattnum, s.stadistinct, s.stavalues1 is null and s.stavalues2 is null and s.stavalues3 is null and s.stavalues4 is null
             and s.stavalues5 is null from pg_statistic s where s.starelid = 't'::regclass and s.staattnum > 1 order by 1",
    );
    assert_eq!(kept, "2|7|t\n3|3|t");
}

#[test]
fn computing_is_exact_and_its_errors_are_postgresqls() {
    let (owner, _server) = start_all("");
    let _made = owner.rows(
        "create table t (id int, a enc_int4, l enc_int8, n enc_numeric) using strongroom;
         insert into t values (1, 0, 9007199254740993, 0.1), (2, 2, 9007199254740993, 0.2), (3, 4, 1, 16777217)",
    );
    let ask = "select avg(a), sum(l), avg(l), sum(n) from t";
    assert_eq!(
        owner.rows(ask),
        "2.0000000000000000|18014398509481987|6004799503160662.3333|16777217.3"
    );
    let mut client = owner.connect().expect("a connection");
    for (sql, expected) in [
        ("select id / 0 from t", "22012"),
        ("select a / (a - a) from t", "22012"),
        ("select 1 from t where a / (a - a) > 1", "22012"),
        ("select sum(a / (a - a)) from t", "22012"),
        ("select a + 2147483647 from t", "22003"),
        (
            "select a * a * a * a * a * a * a * a * a * a * a * a * a * a * a * a * 4 from t where id = 3",
            "22003",
        ),
        (
            "insert into t (id, a) select 9, a / (a - a) from t",
            "22012",
        ),
        ("update t set a = 1 / a", "22012"),
    ] {
        let failed = client.query(sql).expect_err(sql);
        assert_eq!(failed.state(), Some(expected), "{sql}: {failed}");
    }
    // The connection is as good as before, and what failed left nothing.
    assert_eq!(
        client
            .rows("select count(*) from t")
            .expect("the table is read"),
        [[Some("3".to_owned())]]
    );
    // A statement that computes for long ends when it is told to.
    let long = "set statement_timeout = '1s'; select count(x.a + y.a + z.a + v.a) from t x, t y, t z, t v, generate_series(1, 200000)";
    let failed = client.query(long).expect_err(long);
    assert_eq!(failed.state(), Some("57014"), "{failed}");
}

#[test]
fn statements_that_are_kept_are_right_each_time() {
    let (owner, _server) = start_all("");
    let _made = owner.rows(
        "create table t (id int, a enc_int4, b enc_text) using strongroom; insert into t values (1, 1, 'one'), (2, 2, 'two'), (3, 3, 'three')",
    );
    let mut client = owner.connect().expect("a connection");
    let between = [
        "select sum(a) from t",
        "discard plans",
        "select 1 / 0",
        "discard temp",
        "analyze t",
        "begin; select a + 5 from t; rollback",
        "set work_mem = '8MB'",
    ];
    let literal = "select id, b || '!' from t where a > 1 and b <> 'three'";
    let bound = "select id from t where a = $1 or b = $2 order by id";
    for round in 0..30_usize {
        let expect =
            |client: &mut Client, sql: &str, parameters: &[Option<&str>], rows: &[&[&str]]| {
                let found = client
                    .execute(sql, parameters)
                    .unwrap_or_else(|failure| panic!("{sql}, round {round}: {failure}"));
                let rows: Vec<Vec<Option<String>>> = rows
                    .iter()
                    .map(|row| row.iter().map(|field| Some((*field).to_owned())).collect())
                    .collect();
                assert_eq!(found.rows, rows, "{sql}, round {round}");
            };
        expect(&mut client, literal, &[], &[&["2", "two!"]]);
        expect(
            &mut client,
            bound,
            &[Some("1"), Some("three")],
            &[&["1"], &["3"]],
        );
        if let Some(sql) = between.get(round % between.len()) {
            let _between = client.query(sql);
        }
    }
}

#[test]
fn a_copy_is_promoted_in_batches() {
    let (owner, server) = start_all("");
    let _made = owner.rows("create table t (id int, a enc_int4, b enc_text) using strongroom");
    let count = 10_000_u32;
    let begin = server.rows("select pg_current_wal_insert_lsn()");
    let mut client = owner.connect().expect("a connection");
    let lines = (0..count).map(|id| format!("{id}\t{id}\tvalue {id}\n"));
    let copied = client
        .copy_in("copy t from stdin", lines)
        .expect("the rows are copied");
    assert_eq!(copied, u64::from(count));
    let end = server.rows("select pg_switch_wal()");
    let records = server.redo_records(&begin, &end);
    // PostgreSQL buffers up to 1000 rows, or 64 KiB of their text.
    assert!(
        records > 0 && records <= count / 100,
        "{records} records for {count} rows"
    );
    let sums = owner.rows("select count(*), sum(a), max(b) from t");
    assert_eq!(sums, "10000|49995000|value 9999");
}
