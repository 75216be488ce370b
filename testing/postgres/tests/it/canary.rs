//! Goal: nothing that is put into a sealed instance can be read in any file it leaves, whether it
//! runs, was killed or was stopped; and the search is not blind.
//!
//! Method: a string of its own is put into each surface (see `surfaces`): relations, log, spills,
//! queues, statistics. Every byte of the data directory, of a tablespace and of the archive is
//! searched while the server runs, while a parallel sort has its files open, after SIGKILL, after
//! recovery, and after a clean stop. The same search of a plain instance, made by the same steps,
//! has to find each string in the kind of file that the surface is about.
#![expect(
    clippy::print_stdout,
    reason = "seeds and counts are for whoever runs it"
)]

use strongroom_testing::random::{Random, seed};
use strongroom_testing_postgres::instance::{Instance, Protection};
use strongroom_testing_postgres::programs::Programs;
use strongroom_testing_postgres::room::Room;
use strongroom_testing_postgres::scan::Found;
use strongroom_testing_postgres::surfaces::{Filled, SETTINGS};

/// Fills an instance and searches it in each of its states.
fn look(
    room: &Room,
    programs: &Programs,
    name: &str,
    protection: Protection,
    random: &mut Random,
) -> (Filled, Found) {
    let instance = Instance::create(room, programs, name, protection);
    let archive = room.directory(&format!("{name}-archive"));
    let tablespace = room.directory(&format!("{name}-space"));
    instance.configure(SETTINGS);
    instance.configure(&format!(
        "archive_mode = on\narchive_command = 'cp %p {}/%f'\n",
        archive.display()
    ));
    if programs.has_module("pg_stat_statements") {
        instance.configure("shared_preload_libraries = 'pg_stat_statements'\n");
    }
    instance.start();
    let mut filled = Filled::fill(&instance, &tablespace, random);
    let more = [archive];
    let mut found = filled.search(&instance, &more);
    found.merge(filled.search_shared(&instance, &more));
    instance.kill();
    found.merge(filled.search(&instance, &more));
    filled.release();
    instance.start();
    found.merge(filled.search(&instance, &more));
    assert_eq!(
        instance.sql("select count(*), sum(length(big)) > 1000000 from t"),
        "1500|t"
    );
    instance.sql("select pg_switch_wal()");
    instance.stop();
    found.merge(filled.search(&instance, &more));
    instance.check_checksums();
    (filled, found)
}

fn canary(room: &Room, programs: &Programs, cipher: &'static str) {
    let seed = seed();
    println!("PostgreSQL {}, STRONGROOM_SEED={seed}", programs.major());
    let mut random = Random::new(seed);
    let key = room.key("main", &mut random);
    let sealed = Protection::Sealed { key, cipher };
    let (filled, found) = look(room, programs, "sealed", sealed, &mut random);
    println!(
        "sealed: {} bytes in {} files",
        found.bytes,
        found.files_seen.len()
    );
    assert!(found.hits.is_empty(), "in clear: {:#?}", found.hits);
    assert!(filled.surfaces() > 15);

    let (filled, found) = look(room, programs, "plain", Protection::Plain, &mut random);
    println!("plain: {} surfaces", filled.surfaces());
    let blind = filled.not_found(&found);
    assert!(blind.is_empty(), "the search is blind for {blind:#?}");
}

#[test]
fn nothing_is_readable_in_a_sealed_instance() {
    let room = Room::new("canary");
    canary(&room, &Programs::installed(), "aes-256-xts");
}

#[test]
fn nothing_is_readable_in_a_sealed_instance_of_a_newer_version() {
    let room = Room::new("canary18");
    if let Some(programs) = Programs::newer(&room) {
        canary(&room, &programs, "aes-128-xts");
    }
}
