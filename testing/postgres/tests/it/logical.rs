//! Goal: logical replication between instances of different seals: rows, large transactions that
//! are spilled on one side and streamed into temporary files on the other, subtransactions that are
//! rolled back, restarts on both sides.
//!
//! Method: a publisher and a subscriber under keys of their own, and a plain subscriber; tables are
//! compared.
#![expect(
    clippy::too_many_lines,
    reason = "a scenario is read from top to bottom"
)]

use std::time::Duration;

use strongroom_testing::random::{Random, seed};
use strongroom_testing_postgres::instance::{Instance, Protection};
use strongroom_testing_postgres::programs::Programs;
use strongroom_testing_postgres::room::Room;
use strongroom_testing_postgres::scan::files_of;
use strongroom_testing_support::process::patiently;

const SETTINGS: &str = "wal_level = logical\nlogical_decoding_work_mem = 64kB\nwork_mem = 64kB\nshared_buffers = 4MB\n\
    wal_retrieve_retry_interval = 200ms\n";
const ALL: &str = "select count(*), sum(hashtext(x)), sum(i) from t";

fn arrives(publisher: &Instance<'_>, subscriber: &Instance<'_>) {
    let wanted = publisher.sql(ALL);
    let told = || subscriber.try_sql(ALL);
    let arrived = patiently(Duration::from_secs(40), || {
        told().is_ok_and(|told| told == wanted)
    });
    assert!(arrived, "{wanted} published, {:?} arrived", told());
}

#[test]
fn changes_arrive_whatever_either_side_is_sealed_with() {
    arrive(&Room::new("logical"), &Programs::installed());
}

#[test]
fn changes_arrive_between_servers_of_a_newer_version() {
    let room = Room::new("logical18");
    if let Some(programs) = Programs::newer(&room) {
        arrive(&room, &programs);
    }
}

fn arrive(room: &Room, programs: &Programs) {
    let mut random = Random::new(seed());
    let protection = |name: &str, random: &mut Random| Protection::Sealed {
        key: room.key(name, random),
        cipher: "aes-256-xts",
    };
    let publisher = Instance::create(
        room,
        programs,
        "publisher",
        protection("publisher", &mut random),
    );
    let sealed = Instance::create(room, programs, "sealed", protection("sealed", &mut random));
    let plain = Instance::create(room, programs, "plain", Protection::Plain);
    for instance in [&publisher, &sealed, &plain] {
        instance.configure(SETTINGS);
        instance.start();
        instance.sql("create table t (i int primary key, x text, big text); alter table t replica identity full");
    }
    publisher.sql("insert into t select i, md5(i::text), 'b' from generate_series(1, 2000) i; create publication p for table t");
    for (name, subscriber) in [("sealed", &sealed), ("plain", &plain)] {
        subscriber.sql(&format!(
            "create subscription {name} connection '{} dbname=postgres' publication p with (streaming = on)",
            publisher.address()
        ));
        arrives(&publisher, subscriber);
    }
    // Streamed while it runs: the subscriber keeps it in files, and cuts what a savepoint takes
    // back.
    let mut session = publisher.session();
    session.ask("begin; insert into t select i, md5(i::text), repeat('s', 200) from generate_series(10001, 18000) i;
        savepoint a; insert into t select i, md5(i::text), repeat('r', 200) from generate_series(20001, 26000) i;
        rollback to a; savepoint b; update t set x = x || 'u' where i % 3 = 0; release b; delete from t where i % 7 = 0;");
    let fileset = || {
        files_of(sealed.data())
            .iter()
            .any(|path| path.contains(".fileset/"))
    };
    let streamed = patiently(Duration::from_secs(20), fileset);
    session.ask("commit;");
    assert!(streamed, "the subscriber never kept a transaction in files");
    arrives(&publisher, &sealed);
    arrives(&publisher, &plain);

    // Spilled on the publisher's side, in the middle of a restart of either.
    sealed.sql("alter subscription sealed set (streaming = off)");
    let mut session = publisher.session();
    session.ask("begin; insert into t select i, md5(i::text), repeat('s', 200) from generate_series(30001, 40000) i;");
    let spilled = || {
        files_of(publisher.data())
            .iter()
            .any(|path| path.ends_with(".spill"))
    };
    assert!(
        patiently(Duration::from_secs(20), spilled),
        "nothing was spilled"
    );
    sealed.kill();
    sealed.start();
    session.ask("commit;");
    arrives(&publisher, &sealed);
    publisher.sql("update t set x = 'after' where i < 500; vacuum full t");
    publisher.kill();
    publisher.start();
    publisher.sql("update t set x = 'and again' where i < 300");
    arrives(&publisher, &sealed);
    arrives(&publisher, &plain);
    let removed = patiently(Duration::from_secs(20), || !spilled());
    assert!(removed, "spilled changes are left behind");

    // Catalogs that are rewritten while a decoder holds an old snapshot leave mappings.
    publisher.sql("select pg_create_logical_replication_slot('old', 'test_decoding')");
    publisher.sql("create table decoded (i int); insert into decoded values (1); vacuum full pg_class; vacuum full pg_attribute;
        alter table decoded add x text default 'd'; insert into decoded values (2); checkpoint");
    let mapped = files_of(publisher.data())
        .iter()
        .any(|path| path.contains("pg_logical/mappings/map-"));
    assert!(mapped, "no mapping was made");
    publisher.kill();
    publisher.start();
    let decoded = publisher.sql("select data from pg_logical_slot_get_changes('old', null, null) where data like '%decoded%'");
    assert!(
        decoded.contains("i[integer]:1") && decoded.contains("x[text]:'d'"),
        "{decoded}"
    );
    for instance in [&publisher, &sealed] {
        instance.check_structure("postgres");
        instance.stop();
        instance.check_checksums();
    }
}
