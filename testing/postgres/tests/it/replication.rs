//! Goal: instances replicate whatever each of them is sealed with: base backups to a sealed and to
//! a plain replica, streaming, synchronous, promotion, and `pg_rewind` back, from a running and
//! from a stopped source.
//!
//! Method: real servers, each under a key of its own; what a replica shows is compared with the
//! primary row by row, and the files of sealed replicas are searched for what the plain one shows.
#![expect(
    clippy::too_many_lines,
    reason = "a scenario is read from top to bottom"
)]

use std::time::Duration;

use strongroom_testing::random::{Random, seed};
use strongroom_testing_postgres::instance::{Instance, Protection};
use strongroom_testing_postgres::programs::Programs;
use strongroom_testing_postgres::room::Room;
use strongroom_testing_postgres::scan::Found;
use strongroom_testing_support::process::{checked, patiently, refused};

const CANARY: &str = "replicated_canary_";
const ALL: &str = "select count(*), sum(hashtext(x)), max(length(big)) from t";

fn backup(primary: &Instance<'_>, replica: &Instance<'_>, more: &[&str]) {
    replica.prepare();
    let mut program = replica.program("pg_basebackup");
    program
        .arg("-D")
        .arg(replica.data())
        .args(["-d", &primary.address(), "-c", "fast"]);
    checked(program.args(more));
}

fn same(primary: &Instance<'_>, replica: &Instance<'_>) {
    let wanted = primary.sql(ALL);
    let arrived = patiently(Duration::from_secs(30), || {
        replica.try_sql(ALL).is_ok_and(|told| told == wanted)
    });
    assert!(
        arrived,
        "{wanted} on the primary, {:?} on the replica",
        replica.try_sql(ALL)
    );
}

fn add(instance: &Instance<'_>, label: &str) {
    instance.sql(&format!(
        "insert into t select '{CANARY}{label}' || i, repeat(md5(i::text), 30) from generate_series(1, 3000) i"
    ));
}

fn readable(instance: &Instance<'_>) -> bool {
    let needles = [String::from(CANARY)];
    let found = Found::search(&[instance.data().to_owned()], &needles, &needles);
    !found.hits.is_empty()
}

#[test]
fn replicas_of_any_seal_follow_a_sealed_primary() {
    follow(&Room::new("replication"), &Programs::installed());
}

#[test]
fn replicas_of_a_newer_version_follow_a_sealed_primary() {
    let room = Room::new("replication18");
    if let Some(programs) = Programs::newer(&room) {
        follow(&room, &programs);
    }
}

fn follow(room: &Room, programs: &Programs) {
    let mut random = Random::new(seed());
    let protection = |name: &str, cipher, random: &mut Random| Protection::Sealed {
        key: room.key(name, random),
        cipher,
    };
    let a = Instance::create(
        room,
        programs,
        "a",
        protection("a", "aes-256-xts", &mut random),
    );
    a.configure("wal_keep_size = 256MB\nwal_log_hints = on\n");
    a.start();
    a.sql("create table t (x text, big text); alter table t alter big set storage external");
    add(&a, "first");

    let b = Instance::named(
        room,
        programs,
        "b",
        protection("b", "aes-128-xts", &mut random),
    );
    let plain = Instance::named(room, programs, "plain", Protection::Plain);
    backup(&a, &b, &["-R", "-X", "stream", "-C", "-S", "b"]);
    backup(&a, &plain, &["-R", "-X", "fetch"]);
    b.configure("cluster_name = 'b'\n");
    plain.configure("cluster_name = 'plain'\n");
    b.start();
    plain.start();
    // Both have applied it when COMMIT returns.
    a.sql("alter system set synchronous_standby_names = '2 (b, plain)'; alter system set synchronous_commit = \
        remote_apply; select pg_reload_conf()");
    let connected =
        || a.sql("select count(*) from pg_stat_replication where sync_state = 'sync'") == "2";
    assert!(
        patiently(Duration::from_secs(30), connected),
        "{}",
        b.said()
    );
    add(&a, "synchronous");
    for replica in [&b, &plain] {
        assert_eq!(replica.sql(ALL), a.sql(ALL), "applied when COMMIT returned");
    }
    // A replica that is killed follows on.
    b.kill();
    plain.stop();
    a.sql("alter system reset synchronous_standby_names; select pg_reload_conf()");
    add(&a, "while away");
    b.start();
    same(&a, &b);
    plain.start();
    same(&a, &plain);
    plain.stop();
    plain.check_checksums();

    // Promotion; the old primary writes on and has to be rewound.
    b.promote();
    add(&b, "new primary");
    add(&a, "lost branch");
    a.sql("create table lost as select * from t; checkpoint");
    b.sql("checkpoint");
    a.stop();
    let mut rewind = a.program("pg_rewind");
    let source = format!("{} dbname=postgres", b.address());
    checked(
        rewind
            .arg("-D")
            .arg(a.data())
            .args(["--source-server", &source, "-R"]),
    );
    // The configuration is the source's now; port and directory come from the command line.
    a.start();
    same(&b, &a);
    assert!(a.try_sql("select * from lost").is_err());

    // And back, from a stopped source: two instances in one program, each with its key.
    a.promote();
    add(&a, "again");
    add(&b, "lost again");
    a.sql("checkpoint");
    a.stop();
    b.stop();
    let mut rewind = b.program("pg_rewind");
    rewind
        .arg("-D")
        .arg(b.data())
        .arg("--source-pgdata")
        .arg(a.data());
    checked(&mut rewind);
    a.start();
    room.put(&b.data().join("standby.signal"), b"");
    b.configure(&format!(
        "primary_conninfo = '{}'\nprimary_slot_name = ''\n",
        a.address()
    ));
    b.start();
    same(&a, &b);
    a.check_structure("postgres");
    for instance in [&a, &b] {
        instance.stop();
        instance.check_checksums();
        assert!(!readable(instance), "in clear");
    }
    assert!(readable(&plain), "the search is blind");
}

#[test]
fn a_base_backup_is_verified_and_needs_the_shield() {
    let mut random = Random::new(seed());
    let room = Room::new("backup");
    let programs = Programs::installed();
    let protection = |name: &str, random: &mut Random| Protection::Sealed {
        key: room.key(name, random),
        cipher: "aes-256-xts",
    };
    let a = Instance::create(&room, &programs, "a", protection("a", &mut random));
    a.start();
    let space = room.directory("space");
    a.sql(&format!(
        "create tablespace s location '{}'",
        space.display()
    ));
    a.sql(
        "create table t (x text, big text) tablespace s; create unlogged table u as select 1 as x",
    );
    add(&a, "backup");
    let b = Instance::named(&room, &programs, "b", protection("b", &mut random));
    let moved = room.directory("moved");
    let mapping = format!(
        "--tablespace-mapping={}={}",
        space.display(),
        moved.display()
    );
    backup(
        &a,
        &b,
        &[&mapping, "-X", "stream", "--manifest-checksums=SHA256"],
    );
    let mut verify = b.program("pg_verifybackup");
    checked(verify.arg(b.data()));
    let mut blind = room.command(&programs.path("pg_verifybackup"));
    let said = refused(blind.arg("-n").arg(b.data()));
    assert!(
        said.contains("checksum mismatch") || said.contains("has size"),
        "{said}"
    );
    b.start();
    assert_eq!(b.sql(ALL), a.sql(ALL));
    assert_eq!(b.sql("select count(*) from u"), "0");
    // The same rows, under keys of their own: no block is alike.
    let path = a.sql("select pg_relation_filepath('t')");
    b.sql("checkpoint");
    a.sql("checkpoint");
    let read =
        |instance: &Instance<'_>| std::fs::read(instance.data().join(&path)).expect("a relation");
    let (left, right) = (read(&a), read(&b));
    assert!(left.len() > 100_000);
    let alike = left
        .chunks(16)
        .zip(right.chunks(16))
        .filter(|(l, r)| l == r && l.iter().any(|byte| *byte != 0));
    assert_eq!(alike.count(), 0, "units alike under different keys");
    b.stop();
    b.check_checksums();
}
