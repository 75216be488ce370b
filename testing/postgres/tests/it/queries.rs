//! Goal: whatever leaves memory and comes back comes back as it was: parallel plans, sorts and
//! hashes that spill, cursors that go backwards over a spill, merge joins that restore a mark,
//! temporary tables, texts of statements.
//!
//! Method: the same statements with the same data on a sealed and on a plain instance with very
//! little memory; the answers have to be equal. `pg_stat_database` has to say that something was
//! spilled.

use strongroom_testing::random::{Random, seed};
use strongroom_testing_postgres::instance::{Instance, Protection};
use strongroom_testing_postgres::programs::Programs;
use strongroom_testing_postgres::room::Room;

const SETTINGS: &str = "shared_buffers = 2MB\nwork_mem = 64kB\ntemp_buffers = 800kB\nautovacuum = off\n\
    min_parallel_table_scan_size = 0\nmin_parallel_index_scan_size = 0\nparallel_setup_cost = 0\n\
    parallel_tuple_cost = 0\nmax_parallel_workers_per_gather = 3\nmax_parallel_maintenance_workers = 3\n\
    shared_preload_libraries = 'pg_stat_statements'\njit = off\n";

const SETUP: &str = "
    create extension pg_stat_statements;
    create table a as select i, i * 7919 % 10007 as j, md5(i::text) as x, repeat(md5(i::text), 1 + i % 9) as y
        from generate_series(1, 30000) i;
    create table b as select i, i * 31 % 5003 as j, md5((i * 3)::text) as z from generate_series(1, 20000) i;
    alter table a set (parallel_workers = 3); alter table b set (parallel_workers = 3);
    analyze;
    create index on a (j); create index on b (x_of(z));";

const FUNCTION: &str =
    "create function x_of(text) returns text language sql immutable as 'select substr($1, 3, 20)';";

/// One session each; what they print is compared.
const QUERIES: &[(&str, &str)] = &[
    ("sort", "select md5(string_agg(x, ',' order by y desc, i)) from a; select i from a order by y, i offset 29990;"),
    ("distinct", "select count(*), sum(hashtext(y)) from (select distinct y from a) s;"),
    ("hash aggregate", "set enable_sort = off; select count(*), sum(n) from (select x, count(*) n from a group by x) s;"),
    ("hash join", "set enable_mergejoin = off; set enable_nestloop = off; set enable_parallel_hash = off;
        select count(*), sum(hashtext(a.y || b.z)) from a join b using (j);"),
    ("parallel hash join", "set enable_mergejoin = off; set enable_nestloop = off;
        select count(*), sum(hashtext(a.y || b.z)) from a join b using (j);"),
    ("merge join with marks", "set enable_hashjoin = off; set enable_nestloop = off;
        select count(*), sum(hashtext(l.y || r.y)) from (select j % 300 as k, y from a where i < 6000) l
            join (select j % 300 as k, y from a where i < 6000) r using (k);"),
    ("recursive", "with recursive r(i, t) as (select 1, repeat('r', 200) union all
        select i + 1, md5(t) || repeat('r', 200) from r where i < 8000) select count(*), sum(hashtext(t)) from r;"),
    ("window", "select sum(hashtext(x || coalesce(l, ''))) from (select x, lag(y, 900) over (order by i) l from a) s;
        select sum(c) from (select sum(j) over (order by i rows between 900 preceding and current row) c from a where i < 9000) s;"),
    ("scroll cursor backwards", "begin; declare c scroll cursor for select i, y from a order by x;
        move forward 20000 from c; fetch 3 from c; move backward 15000 from c; fetch 3 from c; move last from c;
        fetch prior from c; fetch absolute 777 from c; fetch relative -300 from c; fetch first from c; fetch backward 2 from c;
        move forward all in c; fetch backward 5 from c; commit;"),
    ("cursor over a materialised join", "begin; declare c scroll cursor for
        select a.i, b.z from a join b on a.j = b.j where a.i % 3 = 0;
        move 9000 in c; move backward 8000 in c; select 1; move absolute 500 in c; commit;"),
    ("held cursor", "begin; declare c scroll cursor with hold for select i, y from a order by j, i; commit;
        fetch absolute 25000 from c; fetch backward 3 from c; fetch absolute 10 from c; fetch absolute -5 from c; close c;"),
    ("temporary table", "create temp table t as select * from a; create index on t (x); update t set y = y || 'u' where i % 2 = 0;
        delete from t where i % 5 = 0; vacuum t; select count(*), sum(hashtext(y)) from t;
        truncate t; insert into t select * from a where i < 100; select count(*), sum(hashtext(y)) from t;"),
    ("parallel index build", "create index p on a (x, y); set enable_seqscan = off; select count(*) from a where x > '8';
        reindex index p; select count(*) from a where x < '8'; drop index p;"),
    ("parallel scan", "select count(*), sum(length(y)), max(x) from a; set force_parallel_mode = on; select sum(i) from b;"),
    ("cluster and rewrite", "create table r as select * from a; create index ri on r (x); cluster r using ri;
        alter table r alter i type bigint; vacuum full r; select count(*), sum(i), sum(hashtext(y)) from r; drop table r;"),
    ("set operations", "select count(*) from (select x from a except all select z from b) s;
        select count(*), sum(hashtext(x)) from (select x from a intersect select z from b) s;"),
    ("bitmap", "set enable_seqscan = off; set enable_indexscan = off; set work_mem = '64kB';
        select count(*), sum(hashtext(y)) from a where j between 100 and 9000;"),
    ("gin and gist", "create table g as select i, array[i % 7, i % 11, i % 13] as v, point(i % 101, i % 97) as p from a;
        create index on g using gin (v); create index on g using gist (p); create index on g using brin (i);
        create index on g using hash (i); create index on g using spgist (p);
        insert into g select i + 30000, v, p from g; set enable_seqscan = off;
        select count(*) from g where v @> array[3, 4]; select count(*) from g where p <@ box '(3,3),(30,40)';
        select count(*) from g where i = 777; vacuum g; drop table g;"),
    ("large objects", "select count(lo_from_bytea(1000 + i, decode(repeat(md5(i::text), 400), 'hex'))) from generate_series(1, 40) i;
        select sum(hashtext(encode(lo_get(1000 + i), 'hex'))) from generate_series(1, 40) i;
        select count(lo_put(1000 + i, 3001, 'changed')) from generate_series(1, 40) i;
        select sum(hashtext(encode(lo_get(1000 + i), 'hex'))) from generate_series(1, 40) i;"),
];

#[test]
fn answers_are_those_of_a_plain_instance() {
    let mut random = Random::new(seed());
    let room = Room::new("queries");
    let programs = Programs::installed();
    let key = room.key("main", &mut random);
    let sealed = Instance::create(
        &room,
        &programs,
        "sealed",
        Protection::Sealed {
            key,
            cipher: "aes-256-xts",
        },
    );
    let plain = Instance::create(&room, &programs, "plain", Protection::Plain);
    for instance in [&sealed, &plain] {
        instance.configure(SETTINGS);
        instance.start();
        instance.sql(FUNCTION);
        instance.sql(SETUP);
    }
    for (name, statements) in QUERIES {
        let answers = std::thread::scope(|scope| {
            let of_plain = scope.spawn(|| plain.sql(statements));
            (
                sealed.sql(statements),
                of_plain.join().expect("the plain answer"),
            )
        });
        assert_eq!(answers.0, answers.1, "{name}");
        assert!(!answers.0.is_empty(), "{name}");
    }
    let spilled = "select temp_files > 50, temp_bytes > 10000000 from pg_stat_database where datname = 'postgres'";
    sealed.sql("select pg_stat_force_next_flush()");
    assert_eq!(sealed.sql(spilled), "t|t");

    // The texts of statements survive a stop; after a kill they begin anew, as they do without the
    // shield.
    let known = "select count(*) from pg_stat_statements where query like '%intersect select z%' and calls = 1";
    assert_eq!(sealed.sql(known), "1");
    sealed.stop();
    sealed.start();
    assert_eq!(sealed.sql(known), "1", "statements are kept over a restart");
    let statistics = sealed.sql("select n_tup_ins from pg_stat_user_tables where relname = 'a'");
    assert_eq!(statistics, "30000", "statistics are kept over a restart");
    sealed.kill();
    sealed.start();
    assert_eq!(sealed.sql(known), plain_after_kill(&plain, known));
    // A client that has left while its backend was told to end is nobody's fault.
    let said = sealed.said();
    let failed = |line: &str| line.contains("could not") && !line.contains("data to client");
    assert!(!said.lines().any(failed), "{said}");
    sealed.check_structure("postgres");
    sealed.stop();
    sealed.check_checksums();
}

fn plain_after_kill(plain: &Instance<'_>, known: &str) -> String {
    plain.kill();
    plain.start();
    plain.sql(known)
}
