//! Goal: damage is found and named, and does no more: a flipped bit in a relation is a checksum
//! error of PostgreSQL's for that page, one in the control file keeps the server from starting, one
//! in the log ends recovery before it and never passes for a record, and a header of another
//! instance opens nothing. Nothing is changed by a refusal.
//!
//! Method: bits are flipped in the files of a stopped server; then it is started and asked.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use strongroom_testing::random::{Random, seed};
use strongroom_testing_postgres::instance::{Instance, Protection};
use strongroom_testing_postgres::programs::Programs;
use strongroom_testing_postgres::room::Room;
use strongroom_testing_postgres::scan::files_of;
use strongroom_testing_support::process::refused;

fn flip(path: &Path, at: u64) {
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .expect("a file");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("a byte");
    file.write_all_at(&[byte[0] ^ 0x10], at).expect("a byte");
}

/// Every file with its bytes; the server's own lock file and log aside.
fn snapshot(data: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = files_of(data)
        .into_iter()
        .filter(|path| !path.starts_with("postmaster."));
    files
        .map(|path| {
            (
                path.clone(),
                std::fs::read(data.join(&path)).expect("a file"),
            )
        })
        .collect()
}

fn assert_unchanged(data: &Path, before: &BTreeMap<String, Vec<u8>>) {
    let after = snapshot(data);
    let names = |of: &BTreeMap<String, Vec<u8>>| of.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(before), names(&after), "files");
    for (path, bytes) in before {
        assert!(
            after[path] == *bytes,
            "{path} was changed by a start that was refused"
        );
    }
}

fn instance<'a>(room: &'a Room, name: &str, random: &mut Random) -> Instance<'a> {
    let key = room.key(name, random);
    let protection = Protection::Sealed {
        key,
        cipher: "aes-256-xts",
    };
    let instance = Instance::create(room, &Programs::installed(), name, protection);
    instance.configure("shared_buffers = 2MB\nautovacuum = off\n");
    instance
}

#[test]
fn a_flipped_bit_in_a_relation_is_a_checksum_error_of_that_page() {
    let mut random = Random::new(seed());
    let room = Room::new("damage");
    let instance = instance(&room, "a", &mut random);
    instance.start();
    instance.sql("create table t as select i, md5(i::text) as x from generate_series(1, 20000) i; create index on t (i)");
    let path = instance.sql("select pg_relation_filepath('t')");
    let file = instance.data().join(&path);
    // The last in the page's header: noise in place of its log position.
    for at in [8192 * 3 + 4000, 8192 * 5 + 8191, 8192 * 9 + 3] {
        instance.stop();
        let good = std::fs::read(&file).expect("a relation");
        flip(&file, at);
        let mut check = instance.program("pg_checksums");
        let said = refused(check.arg("--check").arg("-D").arg(instance.data()));
        assert!(said.contains("Bad checksums:  1"), "{said}");
        instance.start();
        let page = at / 8192;
        let error = instance
            .try_sql("select count(x) from t")
            .expect_err("a damaged page");
        assert!(
            error.contains(&format!("invalid page in block {page} of relation")),
            "{error}"
        );
        let rest = instance.sql(&format!("select count(x) from t where ctid < '({page},0)'"));
        assert!(rest.parse::<u64>().is_ok_and(|rows| rows > 100), "{rest}");
        instance.stop();
        room.put(&file, &good);
        instance.start();
        assert_eq!(instance.sql("select count(x) from t"), "20000");
    }
    // Transaction status has no checksum in PostgreSQL either; the server must survive it.
    instance.stop();
    let status = instance.data().join("pg_xact/0000");
    let good = std::fs::read(&status).expect("transaction status");
    flip(&status, 64);
    drop(
        instance
            .try_start()
            .map(|()| instance.try_sql("select count(x) from t")),
    );
    instance.kill();
    room.put(&status, &good);
    instance.start();
    assert_eq!(instance.sql("select count(x) from t"), "20000");
}

#[test]
fn a_damaged_control_file_or_header_keeps_the_server_down() {
    let mut random = Random::new(seed());
    let room = Room::new("control");
    let (a, b) = (
        instance(&room, "a", &mut random),
        instance(&room, "b", &mut random),
    );
    a.start();
    a.sql("create table t as select i from generate_series(1, 1000) i");
    a.stop();
    for (path, at) in [
        ("global/pg_control", 5),
        ("global/pg_control", 200),
        ("strongroom.header", 300),
    ] {
        let file = a.data().join(path);
        let good = std::fs::read(&file).expect("a file");
        flip(&file, at);
        let before = snapshot(a.data());
        let said = a.start_refused();
        assert!(!said.is_empty(), "{path} at {at}");
        assert_unchanged(a.data(), &before);
        room.put(&file, &good);
    }
    // Of another instance, whose key is known; and of another instance with its key.
    let header = |instance: &Instance<'_>| instance.data().join("strongroom.header");
    let own = std::fs::read(header(&a)).expect("a header");
    let other = std::fs::read(header(&b)).expect("a header");
    for with_its_key in [false, true] {
        room.put(&header(&a), &other);
        let configuration = a.data().join("strongroom.conf");
        let own_configuration = std::fs::read(&configuration).expect("a configuration");
        if with_its_key {
            let others = std::fs::read(b.data().join("strongroom.conf")).expect("a configuration");
            room.put(&configuration, &others);
        }
        let before = snapshot(a.data());
        let said = a.start_refused();
        assert!(
            said.contains("SR-") || said.contains("control file"),
            "{said}"
        );
        assert_unchanged(a.data(), &before);
        room.put(&header(&a), &own);
        room.put(&configuration, &own_configuration);
    }
    // Without the shield, PostgreSQL itself refuses.
    let before = snapshot(a.data());
    let mut bare = room.command(&a.programs().path("postgres"));
    bare.arg("-D")
        .arg(a.data())
        .args(["-c", "listen_addresses=", "-k"])
        .arg(room.path());
    let said = refused(&mut bare);
    let named = ["PG_CONTROL_VERSION", "incorrect checksum in control file"];
    assert!(named.iter().any(|words| said.contains(words)), "{said}");
    assert_unchanged(a.data(), &before);
    a.start();
    assert_eq!(a.sql("select count(*) from t"), "1000");
}

#[test]
fn a_damaged_log_ends_recovery_before_the_damage() {
    let mut random = Random::new(seed());
    let room = Room::new("log");
    let instance = instance(&room, "a", &mut random);
    instance.configure("full_page_writes = on\ncheckpoint_timeout = 1h\n");
    instance.start();
    instance.sql("create table t (i int, x text); checkpoint");
    for number in 0..400 {
        if u32::is_multiple_of(number, 40) {
            // Sessions of their own: each commit is in the log.
            instance.sql(&format!(
                "insert into t select {number}, md5(i::text) from generate_series(1, 200) i"
            ));
        }
    }
    let position = instance.sql("select pg_walfile_name(pg_current_wal_lsn()), (pg_walfile_name_offset(pg_current_wal_lsn())).file_offset");
    let (segment, end) = position.split_once('|').expect("two columns");
    let end: u64 = end.parse().expect("an offset");
    instance.kill();
    // Somewhere in what has to be replayed.
    flip(&instance.data().join("pg_wal").join(segment), end - 60_000);
    instance.start();
    let rows: u64 = instance
        .sql("select count(*) from t")
        .parse()
        .expect("a number");
    assert!(
        rows < 2000 && rows.is_multiple_of(200),
        "{rows} rows: whole transactions, and not the last ones"
    );
    instance.check_structure("postgres");
    instance.stop();
    instance.check_checksums();
}
