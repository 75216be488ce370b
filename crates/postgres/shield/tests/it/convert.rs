//! Goal: a stopped instance of a real PostgreSQL is sealed, opened again and given a new key, in
//! place; whatever happens to the converting process meanwhile, the instance ends up whole.
//!
//! Method: an instance with every kind of file that outlives a server (tablespaces, a log directory
//! elsewhere, prepared transactions, slots, statistics, files of nobody's) is compared with itself
//! after the way there and back, byte for byte, with modes and times. Converting processes are
//! killed at random points, each killed process being this test binary started again.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use crate::common;
mod kill;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{Instance, files_of};
use kill::killed;
use strongroom_crypto::{SecretKey, sha256};
use strongroom_format::header::{Cipher, ObjectKind};
use strongroom_keyring::{Error, Object, Opener, Recipient};
use strongroom_postgres_shield::classify::{Class, classify};
use strongroom_postgres_shield::convert::{
    Action, Options, Report, decrypt, encrypt, rewrap, rotate, unfinished,
};
use strongroom_postgres_shield::table::{Treatment, treatment};
use strongroom_testing_support::process;

const CANARY: &[u8] = b"CANARY-7f3a";

fn opener(seed: u8) -> Opener {
    Opener::raw(SecretKey::take(&mut [seed; 32]).unwrap())
}

fn recipient(seed: u8) -> Recipient {
    opener(seed).recipient().unwrap()
}

fn options() -> Options<'static> {
    Options {
        threads: 0,
        progress: &|_| {},
    }
}

fn seal(instance: &Instance) -> Result<Report, Error> {
    encrypt(&instance.data(), Cipher::Aes128Xts, &opener(1), &options())
}

fn open(instance: &Instance) -> Result<Report, Error> {
    decrypt(&instance.data(), &opener(1), &options())
}

fn code<T>(outcome: Result<T, Error>) -> u16 {
    outcome.err().map_or(0, |error| error.code().number)
}

/// A stopped instance with everything in it, and its log directory elsewhere.
fn furnished(name: &str) -> Instance {
    let instance = Instance::create(name);
    instance.configure(
        "shared_preload_libraries = 'pg_stat_statements,pg_prewarm'\nwal_level = logical\n\
         max_prepared_transactions = 4\ntrack_commit_timestamp = on\nmax_wal_size = '64MB'\n\
         autovacuum = off\n",
    );
    instance.start();
    let space = instance.tablespace("space");
    instance.sql(&format!("CREATE TABLESPACE space LOCATION '{space}'"));
    instance.sql(
        "CREATE EXTENSION pg_stat_statements; CREATE TABLE o (i int); \
         SELECT pg_create_logical_replication_slot('a_slot', 'test_decoding'); \
         SELECT pg_replication_origin_create('somewhere')",
    );
    instance.sql(
        "CREATE TABLE t AS SELECT i, 'CANARY-7f3a ' || i AS s FROM generate_series(1, 40000) i; \
         CREATE INDEX ON t (s); CREATE TABLE ts TABLESPACE space AS SELECT * FROM t LIMIT 9000; \
         CREATE UNLOGGED TABLE u AS SELECT * FROM t LIMIT 500; CREATE INDEX ON u (s); \
         SELECT count(*) AS \"CANARY-7f3a\" FROM t WHERE s > 'CANARY-7f3a 3'; VACUUM t",
    );
    instance
        .sql("CREATE DATABASE copied STRATEGY file_copy; CREATE DATABASE other TABLESPACE space");
    instance.sql("BEGIN; INSERT INTO o VALUES (0); PREPARE TRANSACTION 'CANARY-7f3a'; CHECKPOINT");
    instance.sql("VACUUM FULL pg_class; SELECT pg_switch_wal(); CHECKPOINT");
    instance.stop();
    let data = instance.data();
    let moved = instance.directory().join("wal");
    let mut copy = Command::new("cp");
    copy.arg("-a").arg(data.join("pg_wal")).arg(&moved);
    assert!(copy.status().unwrap().success());
    fs::remove_dir_all(data.join("pg_wal")).unwrap();
    symlink(&moved, data.join("pg_wal")).unwrap();
    for (path, bytes) in [
        ("extension.data", [CANARY; 900].concat()),
        ("conf.d.bak", CANARY.to_vec()),
        (
            "pg_logical/mappings/map-5-4e3-0_15D7348-2d3-2d4",
            [CANARY; 777].concat(),
        ),
        ("base/pgsql_tmp/pgsql_tmp1.0", CANARY.to_vec()),
        ("base/pgsql_tmp/pgsql_tmp1.1.fileset/x.0", CANARY.to_vec()),
        ("pg_wal/xlogtemp.4711", CANARY.to_vec()),
        ("pg_replslot/a_slot/xid-1-lsn-0-1.spill", CANARY.to_vec()),
        ("pg_stat_tmp/pgss_query_texts.stat", CANARY.to_vec()),
        ("base/5/t3_16999", CANARY.to_vec()),
    ] {
        let path = data.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        put(&path, &bytes);
    }
    // A relation with holes.
    let sparse = fs::File::create(data.join("base/5/99999")).unwrap();
    sparse.set_len(40 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, &[3; 8192], 20 << 20).unwrap();
    instance
}

fn put(path: &Path, bytes: &[u8]) {
    use std::io::Write;
    fs::File::create(path).unwrap().write_all(bytes).unwrap();
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    digest: [u8; 32],
    len: u64,
    mode: u32,
    owner: (u32, u32),
    modified: (i64, i64),
}

fn known(path: &Path) -> Known {
    let about = fs::metadata(path).unwrap();
    Known {
        digest: sha256(&[&fs::read(path).unwrap()]),
        len: about.len(),
        mode: about.mode(),
        owner: (about.uid(), about.gid()),
        modified: (about.mtime(), about.mtime_nsec()),
    }
}

/// Every file that a conversion keeps.
fn snapshot(instance: &Instance) -> BTreeMap<String, Known> {
    let data = instance.data();
    let kept = |path: &String| {
        let class = classify(path.as_bytes()).class;
        let temporary = matches!(class, Class::TemporaryRelation | Class::WalTemp);
        !temporary && !treatment(class).dies_with_the_server()
    };
    let files = files_of(&data).into_iter().filter(kept);
    files
        .map(|path| (path.clone(), known(&data.join(path))))
        .collect()
}

/// Files that hold the canary, by a program that is made for searching.
fn with_canary(instance: &Instance) -> Vec<String> {
    let data = instance.data();
    let mut search = Command::new("grep");
    search
        .args(["-RlaF", "--devices=skip", "-e"])
        .arg(OsStr::from_bytes(CANARY))
        .arg(".");
    let output = search.current_dir(&data).output().unwrap();
    assert!(
        output.status.code().is_some_and(|code| code < 2),
        "grep failed"
    );
    let found = String::from_utf8(output.stdout).unwrap();
    found
        .lines()
        .map(|path| path.trim_start_matches("./").to_owned())
        .collect()
}

fn is_sealed(path: &str) -> bool {
    treatment(classify(path.as_bytes()).class).is_sealed()
}

fn is_zero(path: &Path) -> bool {
    fs::read(path).unwrap().iter().all(|byte| *byte == 0)
}

fn checksums(instance: &Instance) -> String {
    let mut command = instance.program("pg_checksums");
    let output = command
        .arg("-c")
        .arg("-D")
        .arg(instance.data())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

fn remove_odd_relation(instance: &Instance) {
    fs::remove_file(instance.data().join("base/5/99999")).unwrap();
}

/// What is sealed has other bytes; modes, owners, times and holes are as before.
fn outside_is_the_same(
    data: &Path,
    before: &BTreeMap<String, Known>,
    sealed: &BTreeMap<String, Known>,
) {
    for (path, known) in before {
        let now = &sealed[path];
        let changes = is_sealed(path) && !is_zero(&data.join(path));
        assert_eq!(now.digest != known.digest, changes, "{path}");
        let outside = |known: &Known| (known.mode, known.owner, known.modified);
        assert_eq!(outside(now), outside(known), "{path}");
    }
    let sparse = fs::metadata(data.join("base/5/99999")).unwrap();
    assert!(
        sparse.len() == 40 << 20 && sparse.blocks() * 512 < 1 << 20,
        "holes stay holes"
    );
    let header = fs::metadata(data.join("strongroom.header")).unwrap();
    let directory = fs::metadata(data).unwrap();
    assert_eq!(
        (header.uid(), header.mode() & 0o777),
        (directory.uid(), 0o600)
    );
}

#[test]
fn there_and_back_is_byte_for_byte_the_same() {
    let instance = furnished("convert");
    let data = instance.data();
    let before = snapshot(&instance);
    let plain_canaries = with_canary(&instance);
    for class in [
        Class::Relation,
        Class::Wal,
        Class::TwoPhase,
        Class::Statistics,
        Class::Unknown,
    ] {
        let found = plain_canaries
            .iter()
            .any(|path| classify(path.as_bytes()).class == class);
        assert!(found, "the canary is in no {class:?}: {plain_canaries:?}");
    }

    let done = AtomicU64::new(0);
    let progress = |progress: strongroom_postgres_shield::convert::Progress| {
        assert!(progress.bytes <= progress.bytes_total);
        done.fetch_add(1, Ordering::Relaxed);
    };
    let options = Options {
        threads: 3,
        progress: &progress,
    };
    let report = encrypt(&data, Cipher::Aes256Xts, &opener(1), &options).unwrap();
    assert!(
        !report.resumed && report.converted > 900 && report.removed == 6,
        "{report:?}"
    );
    assert!(done.load(Ordering::Relaxed) > report.converted);
    assert_eq!(unfinished(&data).unwrap(), None);
    assert!(!data.join("strongroom.convert").exists());
    assert_eq!(with_canary(&instance), Vec::<String>::new());
    let sealed = snapshot(&instance);
    outside_is_the_same(&data, &before, &sealed);

    assert_eq!(code(seal(&instance)), 7012);
    let refused = instance.try_start().unwrap_err();
    assert!(
        refused.contains("FATAL"),
        "a server without the shield: {refused}"
    );
    assert_eq!(snapshot(&instance), sealed, "and it changed nothing");

    let report = open(&instance).unwrap();
    assert!(!report.resumed && report.converted > 900);
    assert_eq!(snapshot(&instance), before);
    remove_odd_relation(&instance);
    assert!(checksums(&instance).contains("Bad checksums:  0"));
    instance.start();
    assert_eq!(
        instance.sql("SELECT count(*), max(s) FROM t").trim(),
        "40000|CANARY-7f3a 9999"
    );
    assert_eq!(instance.sql("SELECT count(*) FROM ts").trim(), "9000");
    assert_eq!(
        instance
            .sql("COMMIT PREPARED 'CANARY-7f3a'; SELECT count(*) FROM o")
            .trim(),
        "1"
    );
    instance.stop();
}

#[test]
fn a_rotated_instance_has_another_key_and_the_same_contents() {
    let instance = furnished("rotate");
    let data = instance.data();
    let before = snapshot(&instance);
    seal(&instance).unwrap();
    let old = snapshot(&instance);
    let old_header = fs::read(data.join("strongroom.header")).unwrap();
    assert_eq!(code(rotate(&data, &opener(2), &[], &options())), 2002);
    assert_eq!(snapshot(&instance), old, "a wrong key changes nothing");

    let report = rotate(&data, &opener(1), &[], &options()).unwrap();
    assert!(report.converted > 900, "{report:?}");
    let header = fs::read(data.join("strongroom.header")).unwrap();
    let object = Object::open(&header, ObjectKind::Postgres, &opener(1)).unwrap();
    assert_eq!((object.epoch(), object.previous_epoch()), (2, None));
    let now = snapshot(&instance);
    for (path, known) in &old {
        let changes = is_sealed(path) && !is_zero(&data.join(path));
        let changes = changes || path.starts_with("strongroom");
        assert_eq!(now[path].digest != known.digest, changes, "{path}");
    }

    // The old header, put back, opens; but nothing is under its key any more.
    put(&data.join("strongroom.header"), &old_header);
    assert_eq!(code(open(&instance)), 7001);
    put(&data.join("strongroom.header"), &header);

    // Other openers, with the data key and without it.
    rotate(&data, &opener(1), &[&opener(3)], &options()).unwrap();
    assert_eq!(code(open(&instance)), 2002);
    let sealed = snapshot(&instance);
    rewrap(&data, &opener(3), &[&recipient(4), &recipient(1)]).unwrap();
    let mut rewrapped = snapshot(&instance);
    rewrapped.insert(
        "strongroom.header".into(),
        sealed["strongroom.header"].clone(),
    );
    assert_eq!(rewrapped, sealed, "slots only");
    open(&instance).unwrap();
    assert_eq!(snapshot(&instance), before);
}

#[test]
fn what_cannot_be_converted_is_refused_and_left_alone() {
    let instance = Instance::create("refused");
    let data = instance.data();
    assert_eq!(code(open(&instance)), 7004, "not sealed");
    assert_eq!(code(rotate(&data, &opener(1), &[], &options())), 7004);
    assert_eq!(code(rewrap(&data, &opener(1), &[&recipient(2)])), 7004);
    assert_eq!(
        code(decrypt(instance.directory(), &opener(1), &options())),
        7011
    );

    instance.start();
    assert_eq!(code(seal(&instance)), 7008, "running");
    let pid = fs::read_to_string(data.join("postmaster.pid")).unwrap();
    let pid = pid.lines().next().unwrap().parse().unwrap();
    process::signal("-KILL", &[pid]);
    process::until("it is collected", || process::status(pid).is_none());
    std::thread::sleep(Duration::from_millis(300));
    let crashed = snapshot(&instance);
    assert_eq!(code(seal(&instance)), 7009, "crashed");
    assert_eq!(snapshot(&instance), crashed);
    instance.start();
    instance.stop();

    let before = snapshot(&instance);
    let unchanged = |what: &str| assert_eq!(snapshot(&instance), before, "{what}");
    let relation = data.join("base/5/1259");
    let aside = data.join("../aside");
    fs::copy(&relation, &aside).unwrap();
    let odd = data.join("base/5/77777");
    put(&odd, &[1; 8195]);
    assert_eq!(code(seal(&instance)), 7002, "odd length");
    fs::remove_file(&odd).unwrap();
    symlink(&aside, &odd).unwrap();
    assert_eq!(code(seal(&instance)), 7002, "a link");
    fs::remove_file(&odd).unwrap();
    unchanged("links and odd lengths");

    let version = fs::read(data.join("PG_VERSION")).unwrap();
    for bad in ["14\n", "19\n", "", "x"] {
        put(&data.join("PG_VERSION"), bad.as_bytes());
        assert_eq!(code(seal(&instance)), 7011, "{bad:?}");
    }
    put(&data.join("PG_VERSION"), &version);
    let control = data.join("global/pg_control");
    let good = fs::read(&control).unwrap();
    let mut bad = good.clone();
    bad[40] ^= 1;
    put(&control, &bad);
    assert_eq!(code(seal(&instance)), 7011, "damaged control file");
    put(&control, &good);
    assert!(!data.join("strongroom.header").exists() && !data.join("strongroom.convert").exists());
}

/// A conversion that passed over what is away would leave it in clear, or under a key that is gone.
#[test]
fn parts_of_an_instance_that_are_away_are_refused() {
    let instance = furnished("away");
    let data = instance.data();
    seal(&instance).unwrap();
    let sealed = snapshot(&instance);
    open(&instance).unwrap();
    let plain = snapshot(&instance);
    let tablespace = fs::read_dir(data.join("pg_tblspc")).unwrap().next();
    let link = tablespace.unwrap().unwrap().path();
    let space = fs::read_link(&link).unwrap();
    let away = data.with_file_name("away");
    let refused = |what: &str| {
        assert_eq!(code(seal(&instance)), 7002, "{what}");
        assert!(!data.join("strongroom.header").exists(), "{what}");
    };

    // The disk of a tablespace is not mounted: its directory is missing, then empty.
    move_aside(&space, &away);
    refused("a tablespace that is missing");
    fs::create_dir(&space).unwrap();
    refused("a tablespace that is empty");
    fs::remove_dir(&space).unwrap();
    move_aside(&away, &space);

    // The same of directories of the instance, by a link and without one; and of single files.
    for name in [
        "pg_wal",
        "pg_xact",
        "base",
        "base/1",
        "base/1/1259",
        "pg_twophase",
    ] {
        let path = data.join(name);
        move_aside(&path, &away);
        symlink(data.join("nowhere"), &path).unwrap();
        refused(name);
        fs::remove_file(&path).unwrap();
        if ["pg_wal", "pg_xact", "base"].contains(&name) {
            fs::create_dir(&path).unwrap();
            refused(name);
            fs::remove_dir(&path).unwrap();
        }
        move_aside(&away, &path);
    }
    for name in ["base/1/1259", "pg_xact/0000", "pg_stat/pgstat.stat"] {
        let path = data.join(name);
        move_aside(&path, &away);
        for kind in [rustix::fs::FileType::Fifo, rustix::fs::FileType::Socket] {
            rustix::fs::mknodat(rustix::fs::CWD, &path, kind, rustix::fs::Mode::RUSR, 0).unwrap();
            refused(name);
            fs::remove_file(&path).unwrap();
        }
        fs::create_dir(&path).unwrap();
        refused(name);
        fs::remove_dir(&path).unwrap();
        move_aside(&away, &path);
    }
    assert_eq!(snapshot(&instance), plain);

    // What is sealed is neither decrypted, rotated nor verified in part.
    seal(&instance).unwrap();
    assert_eq!(snapshot(&instance).len(), sealed.len());
    move_aside(&space, &away);
    assert_eq!(code(open(&instance)), 7002);
    let rotated = rotate(&data, &opener(1), &[&opener(2)], &options());
    assert_eq!(code(rotated), 7002);
    move_aside(&away, &space);
    open(&instance).unwrap();
    assert_eq!(snapshot(&instance), plain);
}

#[expect(
    clippy::disallowed_methods,
    reason = "a file system comes and goes, as by an administrator"
)]
fn move_aside(from: &Path, to: &Path) {
    fs::rename(from, to).unwrap();
}

#[test]
fn a_conversion_that_runs_out_of_room_is_completed_when_there_is_some() {
    let instance = furnished("room");
    let data = instance.data();
    let before = snapshot(&instance);
    // No file may grow beyond 4 MiB: the largest cannot be written. Their writers are told, not
    // killed.
    for action in ["encrypt", "rotate", "decrypt"] {
        let limited = Command::new("sh")
            .args([
                "-c",
                "trap '' XFSZ; ulimit -f 8192; exec \"$0\" --exact convert::kill::child",
            ])
            .arg(std::env::current_exe().unwrap())
            .env("SR_TEST_ACTION", action)
            .env("SR_TEST_DATA", &data)
            .output()
            .unwrap();
        assert!(!limited.status.success(), "{action} within 4 MiB");
        let told = String::from_utf8_lossy(&limited.stderr).into_owned()
            + &String::from_utf8_lossy(&limited.stdout);
        assert!(told.contains("File too large"), "{told}");
        assert!(unfinished(&data).unwrap().is_some());
        let left = files_of(&data);
        assert!(
            !left.iter().any(|path| path.ends_with(".strongroom-tmp")),
            "{left:?}"
        );
        assert!(killed(action, &data, None));
    }
    assert_eq!(snapshot(&instance), before);
}

#[test]
fn one_conversion_at_a_time() {
    let instance = Instance::create("busy");
    let before = snapshot(&instance);
    let mut other = Command::new("flock")
        .arg("--no-fork")
        .arg(instance.data())
        .args(["sh", "-c", "echo held; exec sleep 60"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = [0; 5];
    std::io::Read::read_exact(other.stdout.as_mut().unwrap(), &mut line).unwrap();
    assert_eq!(code(seal(&instance)), 7003);
    assert_eq!(snapshot(&instance), before);
    other.kill().unwrap();
    other.wait().unwrap();
}

#[test]
fn unfinished_conversions_are_recognised_for_what_they_are() {
    let instance = Instance::create("state");
    let data = instance.data();
    let state = data.join("strongroom.convert");
    let title = |action: Action, id: &str| format!("strongroom-convert 1 {} {id}\n", action.name());
    let nobody = "00000000000000000000000000000000";

    // Killed between state and header: begun anew.
    put(&state, title(Action::Encrypt, nobody).as_bytes());
    assert_eq!(code(open(&instance)), 7003, "another action");
    seal(&instance).unwrap();

    // Somebody else's state, and damage, are refused; a torn last line is not.
    let sealed = snapshot(&instance);
    put(&state, title(Action::Decrypt, nobody).as_bytes());
    assert_eq!(code(open(&instance)), 7013);
    put(&state, b"strongroom-convert 1 decrypt\n");
    assert_eq!(code(open(&instance)), 7013);
    assert_eq!(code(unfinished(&data)), 7013);
    fs::remove_file(&state).unwrap();
    assert_eq!(snapshot(&instance), sealed);
    let header = fs::read(data.join("strongroom.header")).unwrap();
    let id: String = header[24..40]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    put(
        &state,
        format!("{}123 61", title(Action::Rotate, &id)).as_bytes(),
    );
    assert_eq!(code(open(&instance)), 7003);
    assert_eq!(code(rewrap(&data, &opener(1), &[&recipient(2)])), 7003);
    rotate(&data, &opener(1), &[], &options()).unwrap();

    // A container that does not open stops a decryption; without it, the same command goes on.
    let container = data.join("pg_stat/pgstat.stat");
    let mut bad = fs::read(&container).unwrap();
    bad[200] ^= 1;
    put(&container, &bad);
    let failed = open(&instance).unwrap_err();
    assert_eq!(failed.code().number, 7001);
    assert!(failed.detail().contains("pgstat.stat"), "{failed}");
    assert_eq!(unfinished(&data).unwrap(), Some(Action::Decrypt));
    fs::remove_file(&container).unwrap();
    let report = open(&instance).unwrap();
    assert!(report.resumed && report.converted_before > 0, "{report:?}");

    // Killed between the header's end and the state's.
    let control = fs::metadata(data.join("global/pg_control")).unwrap().ino();
    let path: String = b"global/pg_control"
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    put(
        &state,
        format!("{}{control} {path}\n", title(Action::Decrypt, &id)).as_bytes(),
    );
    assert!(open(&instance).unwrap().resumed);
    assert!(!state.exists());
    instance.start();
    assert_eq!(instance.sql("SELECT 1").trim(), "1");
    instance.stop();
}

#[test]
fn the_treatments_of_the_table_are_those_that_are_converted() {
    let kept = |treatment: Treatment| treatment.is_sealed() && !treatment.dies_with_the_server();
    assert!(kept(treatment(Class::Relation)) && kept(treatment(Class::Unknown)));
    assert!(!kept(treatment(Class::Configuration)) && !kept(treatment(Class::BufFile)));
}
