//! Goal: after SIGKILL at any moment, of the whole server or of one of its processes, and after the
//! disk was full, no acknowledged transaction is lost, none is there by halves, and no page is
//! damaged.
//!
//! Method: clients record outside of the server what was acknowledged to them (see `crash`). The
//! server is killed again and again while they work, with checkpoints, VACUUM and index builds
//! going on; each time it recovers and all invariants are checked. In the end `pg_checksums` and
//! amcheck look at every page. `STRONGROOM_KILLS` sets the number of kills, `STRONGROOM_SEED`
//! repeats their order (not the instant).
#![expect(
    clippy::print_stdout,
    reason = "seeds and counts are for whoever runs it"
)]

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use strongroom_testing::random::{Random, seed, times};
use strongroom_testing_postgres::crash::{self, Clients, Record};
use strongroom_testing_postgres::instance::{Instance, Protection};
use strongroom_testing_postgres::programs::Programs;
use strongroom_testing_postgres::room::Room;
use strongroom_testing_support::account::give;
use strongroom_testing_support::process::{children, signal};

/// Little memory and frequent checkpoints: pages are written while they change.
const SETTINGS: &str = "shared_buffers = 2MB\ncheckpoint_timeout = 30s\nmax_wal_size = 48MB\nmin_wal_size = 32MB\n\
    bgwriter_delay = 10ms\nautovacuum_naptime = 1s\nautovacuum_vacuum_threshold = 200\nwal_init_zero = on\n";

fn records(count: usize) -> Vec<Arc<Record>> {
    (0..count).map(|_| Arc::new(Record::default())).collect()
}

/// Something heavy beside the clients, which may be cut off anywhere.
fn disturb(instance: &Instance<'_>, random: &mut Random) {
    let statements = [
        "checkpoint",
        "vacuum account",
        "create index concurrently extra on ledger (note); drop index extra",
        "create table copied as select * from account; drop table copied",
        "cluster account using account_pkey",
        "select pg_switch_wal()",
    ];
    let mut session = instance.session();
    drop(session.send(&format!("{};", random.one_of(&statements))));
    crash::pause(random, Duration::from_millis(150));
}

fn kills(room: &Room, programs: &Programs, cipher: &'static str, kills: u64) {
    let seed = seed();
    println!("PostgreSQL {}, STRONGROOM_SEED={seed}", programs.major());
    let mut random = Random::new(seed);
    let key = room.key("main", &mut random);
    let instance = Instance::create(room, programs, "sealed", Protection::Sealed { key, cipher });
    instance.configure(SETTINGS);
    instance.start();
    crash::prepare(&instance);
    let records = records(3);
    for kill in 0..kills {
        let clients = Clients::start(&instance, &records, &mut random);
        crash::pause(&mut random, Duration::from_millis(900));
        disturb(&instance, &mut random);
        if kill % 3 == 2 {
            // One process only: the postmaster ends the others, and recovers by itself.
            let all = instance.postmaster().map(children).unwrap_or_default();
            signal("-KILL", &[random.one_of(&all)]);
            clients.stop();
            instance.wait_ready();
        } else {
            instance.kill();
            clients.stop();
            instance.start();
        }
        let there = crash::check(&instance, &records);
        println!("kill {kill}: {there} transactions, all there");
    }
    // What an interrupted CREATE INDEX CONCURRENTLY leaves is no damage.
    instance.sql("drop index if exists extra; reindex table ledger");
    if programs.has_module("amcheck") {
        instance.check_structure("postgres");
    }
    instance.stop();
    instance.check_checksums();
}

#[test]
fn no_transaction_is_lost_by_a_kill() {
    kills(
        &Room::new("crash"),
        &Programs::installed(),
        "aes-256-xts",
        times("STRONGROOM_KILLS", 9),
    );
}

#[test]
fn no_transaction_is_lost_by_a_kill_of_a_newer_version() {
    let room = Room::new("crash18");
    if let Some(programs) = Programs::newer(&room) {
        kills(
            &room,
            &programs,
            "aes-128-xts",
            times("STRONGROOM_KILLS", 6),
        );
    }
}

/// A file system of its own, so that it can be full. Mounting needs root; without it the test is
/// skipped.
struct Small<'a> {
    room: &'a Room,
}

impl<'a> Small<'a> {
    fn mount(room: &'a Room, megabytes: u64) -> Option<Self> {
        let at = room.directory("small");
        let mut mount = Command::new("mount");
        let options = format!("size={megabytes}m");
        mount
            .args(["-t", "tmpfs", "-o", &options, "strongroom-test"])
            .arg(&at);
        if !mount.status().is_ok_and(|status| status.success()) {
            return None;
        }
        give(&at, 0o755);
        Some(Self { room })
    }
}

impl Drop for Small<'_> {
    fn drop(&mut self) {
        drop(Command::new("umount").arg(self.room.at("small")).status());
    }
}

#[test]
fn nothing_is_lost_when_the_disk_is_full() {
    let seed = seed();
    println!("STRONGROOM_SEED={seed}");
    let mut random = Random::new(seed);
    let room = Room::new("full");
    let Some(_small) = Small::mount(&room, 220) else {
        return println!("skipped: a file system of its own cannot be mounted here");
    };
    let key = room.key("main", &mut random);
    let protection = Protection::Sealed {
        key,
        cipher: "aes-256-xts",
    };
    let instance = Instance::create(&room, &Programs::installed(), "small/sealed", protection);
    instance.configure(SETTINGS);
    instance.start();
    crash::prepare(&instance);
    let records = records(3);
    for round in 0..times("STRONGROOM_FULL", 4) {
        // What remains differs from round to round, so that it is another write that fails.
        let ballast = room.at("small/ballast");
        let clients = Clients::start(&instance, &records, &mut random);
        let fill = format!(
            "head -c {} /dev/zero > {}",
            40_000_000 + random.below(200_000_000),
            ballast.display()
        );
        drop(
            Command::new("sh")
                .args(["-c", &fill])
                .stderr(std::process::Stdio::null())
                .status(),
        );
        // Fails with "No space left on device", in the relation or in the log.
        for _ in 0..3 {
            drop(instance.try_sql(
                "create table if not exists grow (x text); \
                insert into grow select repeat(md5(i::text), 20) from generate_series(1, 200000) i",
            ));
        }
        crash::pause(&mut random, Duration::from_millis(300));
        if round % 2 == 0 {
            instance.kill();
        }
        clients.stop();
        std::fs::remove_file(&ballast).expect("the ballast");
        if instance.processes().is_empty() {
            instance.start();
        } else {
            instance.wait_ready();
        }
        let there = crash::check(&instance, &records);
        println!("round {round}: {there} transactions, all there");
        instance.sql("drop table if exists grow; checkpoint");
    }
    assert!(
        instance.said().contains("No space left on device"),
        "the disk was never full"
    );
    instance.check_structure("postgres");
    // An extension that was cut short leaves half a block at the end of its file, which PostgreSQL
    // passes over and pg_checksums does not: rewritten, each file ends in a whole one.
    instance.sql("vacuum full");
    instance.stop();
    instance.check_checksums();
}
