//! Goal: files that PostgreSQL copies, moves, splits and truncates keep their contents: databases
//! made in both ways, tablespaces, relations of more than a segment, prepared transactions, over
//! clean and unclean restarts.
//!
//! Method: a digest of every table before and after; the server is stopped, killed and started
//! between.
#![expect(
    clippy::too_many_lines,
    reason = "a scenario is read from top to bottom"
)]

use strongroom_testing::random::{Random, seed};
use strongroom_testing_postgres::instance::{Instance, Protection};
use strongroom_testing_postgres::programs::Programs;
use strongroom_testing_postgres::room::Room;

const DIGEST: &str = "select count(*), sum(hashtext(x)), sum(length(big)) from t";
const MAKE: &str = "create table t (i serial primary key, x text, big text); alter table t alter big set storage external;
    insert into t (x, big) select md5(i::text), repeat(md5(i::text), 100) from generate_series(1, 3000) i;
    create index on t (x);";

fn sealed<'a>(
    room: &'a Room,
    programs: &Programs,
    name: &str,
    random: &mut Random,
) -> Instance<'a> {
    let key = room.key(name, random);
    let protection = Protection::Sealed {
        key,
        cipher: "aes-256-xts",
    };
    Instance::create(room, programs, name, protection)
}

#[test]
fn databases_and_tablespaces_keep_their_contents() {
    databases_and_tablespaces(&Room::new("storage"), &Programs::installed());
}

/// With prepared transactions, in one test: the room of a newer version is a copy of two packages.
#[test]
fn a_newer_version_keeps_databases_tablespaces_and_prepared_transactions() {
    let room = Room::new("storage18");
    if let Some(programs) = Programs::newer(&room) {
        databases_and_tablespaces(&room, &programs);
        prepared_transactions(&room, &programs);
    }
}

fn databases_and_tablespaces(room: &Room, programs: &Programs) {
    let mut random = Random::new(seed());
    let instance = sealed(room, programs, "storage", &mut random);
    instance.configure("allow_in_place_tablespaces = on\nshared_buffers = 2MB\n");
    instance.start();
    let (one, two) = (room.directory("one"), room.directory("two"));
    instance.sql(&format!(
        "create tablespace one location '{}'",
        one.display()
    ));
    instance.sql(&format!(
        "create tablespace two location '{}'",
        two.display()
    ));
    instance.sql("set allow_in_place_tablespaces = on; create tablespace inplace location ''");
    instance.sql("create database source");
    let digest = |database: &str| instance.sql_in(database, DIGEST);
    instance.sql_in("source", MAKE);
    let wanted = digest("source");
    let databases = [
        ("copied", "strategy file_copy"),
        ("logged", "strategy wal_log"),
        ("elsewhere", "strategy file_copy tablespace one"),
        ("elsewhere2", "strategy wal_log tablespace two"),
        ("inplace", "strategy file_copy tablespace inplace"),
    ];
    for (name, how) in databases {
        instance.sql(&format!("create database {name} template source {how}"));
        assert_eq!(digest(name), wanted, "{name}");
    }
    let all = |note: &str| {
        for (name, _) in databases {
            assert_eq!(digest(name), wanted, "{name}, {note}");
        }
    };
    instance.kill();
    instance.start();
    all("after a kill");
    // Moved, twice as a whole and table by table.
    instance.sql("alter database copied set tablespace one");
    instance.sql("alter database elsewhere set tablespace inplace");
    instance.sql_in(
        "logged",
        "alter table t set tablespace two; alter index t_pkey set tablespace inplace",
    );
    instance.sql_in(
        "elsewhere2",
        "alter table all in tablespace two set tablespace one",
    );
    all("moved");
    instance.kill();
    instance.start();
    all("moved, after a kill");
    for (name, _) in databases {
        instance.sql_in(
            name,
            "update t set x = x || 'u' where i % 2 = 0; delete from t where i > 2900",
        );
        instance.sql_in(
            name,
            "vacuum full t; reindex table t; truncate t restart identity",
        );
        instance.sql_in(
            name,
            "insert into t (x, big) select md5(i::text), repeat(md5(i::text), 100) \
            from generate_series(1, 3000) i",
        );
    }
    all("written again");
    instance.sql("drop database copied; drop database inplace");
    instance.stop();
    instance.check_checksums();
    instance.start();
    instance.check_structure("elsewhere2");
    instance.check_structure("logged");
}

#[test]
fn prepared_transactions_survive_restarts() {
    prepared_transactions(&Room::new("prepared"), &Programs::installed());
}

fn prepared_transactions(room: &Room, programs: &Programs) {
    let mut random = Random::new(seed());
    let instance = sealed(room, programs, "prepared", &mut random);
    instance.start();
    instance.sql(MAKE);
    for number in 1..=6 {
        // Subtransactions and locks make the state longer than one record.
        instance.sql(&format!(
            "begin; savepoint s; insert into t (x) select 'p{number}' from generate_series(1, 10); release s;
             create table made{number} as select * from t limit 5; prepare transaction 'p{number}'"
        ));
        match number {
            2 => instance.sql("checkpoint"),
            4 => {
                instance.kill();
                instance.start();
                String::new()
            }
            _ => String::new(),
        };
    }
    instance.sql("checkpoint");
    instance.sql("rollback prepared 'p1'; commit prepared 'p2'");
    instance.stop();
    instance.start();
    assert_eq!(instance.sql("select count(*) from pg_prepared_xacts"), "4");
    instance.sql("commit prepared 'p3'");
    instance.kill();
    instance.start();
    instance.sql("rollback prepared 'p4'; commit prepared 'p5'; commit prepared 'p6'");
    let told = instance.sql("select x, count(*) from t where x like 'p%' group by x order by x");
    assert_eq!(told, "p2|10\np3|10\np5|10\np6|10");
    assert_eq!(
        instance.sql("select count(*) from pg_class where relname like 'made%'"),
        "4"
    );
    instance.stop();
    instance.check_checksums();
}

#[test]
fn a_relation_of_more_than_a_gigabyte_keeps_its_rows() {
    let mut random = Random::new(seed());
    let room = Room::new("large");
    let instance = sealed(&room, &Programs::installed(), "large", &mut random);
    // Without a log of it: the pages go to the disk once.
    instance.configure(
        "wal_level = minimal\nmax_wal_senders = 0\nshared_buffers = 16MB\nautovacuum = off\n",
    );
    instance.start();
    instance.sql(
        "set statement_timeout = 0;
         create table large (i int, x text); alter table large alter x set storage plain;
         begin; truncate large; insert into large select i, rpad(i::text, 8000, 'x') from generate_series(1, 133000) i; commit;",
    );
    let path = instance.sql("select pg_relation_filepath('large')");
    let second = instance.data().join(format!("{path}.1"));
    assert!(
        second.metadata().is_ok_and(|about| about.len() > 8 << 20),
        "a second segment"
    );
    // At the edge of the segments, and in the second one.
    instance.sql("update large set x = rpad('changed' || i, 8000, 'y') where ctid in ('(131071,1)', '(131072,1)', '(132000,1)')");
    instance.kill();
    instance.start();
    let rows = instance.sql(
        "set statement_timeout = 0; select count(*), sum(i), count(*) filter (where x = rpad(i::text, 8000, 'x')),
         count(*) filter (where x = rpad('changed' || i, 8000, 'y')) from large",
    );
    assert_eq!(rows, "133000|8844566500|132997|3");
    // Cut in the first segment, so that the second is emptied.
    instance.sql("delete from large where ctid >= '(131000,0)'; vacuum (truncate) large");
    assert_eq!(
        instance.sql("select pg_relation_size('large') / 8192"),
        "131000"
    );
    instance.kill();
    instance.start();
    assert_eq!(
        instance.sql("select count(*), max(i) from large where ctid >= '(130990,0)'"),
        "10|131000"
    );
}
