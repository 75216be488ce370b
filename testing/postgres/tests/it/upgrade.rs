//! Goal: `pg_upgrade` takes a sealed instance to a newer version in every mode: with the data key
//! of the old instance in all of them, with another one wherever files are copied. What cannot be
//! done, and a key that is not the right one, is refused before anything is changed.
//!
//! Method: one old instance of the distribution's version with tables, indexes, large objects,
//! subtransactions, multixacts and a tablespace; copies of it are upgraded to 16 and 18 (see
//! `packages`) under `strongroom pg run`, and compared with what the old server said. The old
//! `pg_xact` must have been read right: rows of aborted subtransactions would come back otherwise.
#![expect(
    clippy::print_stdout,
    reason = "seeds and modes are for whoever runs it"
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use strongroom_testing::random::{Random, seed};
use strongroom_testing_postgres::instance::{Instance, Protection};
use strongroom_testing_postgres::packages;
use strongroom_testing_postgres::programs::Programs;
use strongroom_testing_postgres::room::Room;
use strongroom_testing_postgres::scan::{Found, files_of};
use strongroom_testing_support::process::{checked, refused};

const CANARY: &str = "CANARYupgrade";

/// What is asked before and after.
const QUESTIONS: &[&str] = &[
    "select count(*), md5(string_agg(t, '' order by i)) from a",
    "select count(*), md5(string_agg(t, '' order by i)) from big",
    "select count(*), md5(string_agg(t, '' order by i)) from outside",
    "select count(*), sum(i) from m",
    "select convert_from(lo_get(4711), 'UTF8')",
    "set enable_seqscan = off; select count(*) from a where i between 100 and 200",
    "select count(*), md5(string_agg(datname, ',' order by datname)) from pg_database",
];

/// The old instance, its tablespace, and what it answers.
struct Old<'a> {
    instance: Instance<'a>,
    space: PathBuf,
    answers: Vec<String>,
}

fn answers(instance: &Instance<'_>) -> Vec<String> {
    QUESTIONS
        .iter()
        .map(|question| instance.sql(question))
        .collect()
}

fn old<'a>(room: &'a Room, random: &mut Random) -> Old<'a> {
    let key = room.key("old", random);
    let protection = Protection::Sealed {
        key,
        cipher: "aes-256-xts",
    };
    let instance = Instance::create(room, &Programs::installed(), "old", protection);
    let space = room.directory("space");
    instance.start();
    instance.sql(&format!(
        "create table a as select i, repeat('{CANARY}' || i, 20) as t from generate_series(1, 20000) i;
         create index on a (t); create index on a (i);
         create table big (i int, t text); alter table big alter t set storage external;
         insert into big select i, repeat('{CANARY}' || i, 1000) from generate_series(1, 50) i;
         select lo_from_bytea(4711, '{CANARY}');
         delete from a where i % 10 = 0;
         begin; update a set t = t || 'x' where i = 1; savepoint s; update a set t = t || 'y' where i = 2;
         rollback to s; commit;
         create table m (i int primary key); insert into m select generate_series(1, 100);
         begin; select count(*) from (select * from m for share) x; savepoint s;
         update m set i = i + 1000 where i < 10; commit;
         create database another"
    ));
    instance.sql(&format!(
        "create tablespace ts location '{}'",
        space.display()
    ));
    instance.sql(&format!(
        "create table outside tablespace ts as select i, '{CANARY}' || i as t from generate_series(1, 5000) i"
    ));
    let answers = answers(&instance);
    instance.stop();
    // What each upgrade begins with.
    for (from, to) in [(instance.data(), "old.kept"), (&space, "space.kept")] {
        checked(Command::new("cp").arg("-a").arg(from).arg(room.at(to)));
    }
    Old {
        instance,
        space,
        answers,
    }
}

/// Puts the old instance and the tablespace back as they were.
fn restore(room: &Room, old: &Old<'_>) {
    for (to, from) in [
        (old.instance.data(), "old.kept"),
        (&old.space, "space.kept"),
    ] {
        fs::remove_dir_all(to).expect("a directory");
        checked(Command::new("cp").arg("-a").arg(room.at(from)).arg(to));
    }
}

/// Every byte of a directory.
fn state(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let read = |path: String| {
        (
            path.clone(),
            fs::read(directory.join(path)).unwrap_or_default(),
        )
    };
    files_of(directory).into_iter().map(read).collect()
}

/// A new instance with the old one's data key, or with another one.
fn new<'a>(
    room: &'a Room,
    programs: &Programs,
    name: &str,
    old: &Old<'_>,
    key: Option<PathBuf>,
) -> Instance<'a> {
    // How it is sealed is in its header.
    let protection = Protection::Sealed {
        key: room.at("old.key"),
        cipher: "aes-256-xts",
    };
    let instance = Instance::named(room, programs, name, protection);
    let mut initdb = instance.strongroom("initdb");
    initdb.arg("-D").arg(instance.data());
    match key {
        Some(key) => initdb.arg("--key-file").arg(key),
        None => initdb.arg("--copy-key-from").arg(old.instance.data()),
    };
    initdb.args([
        "--",
        "-k",
        "-U",
        "postgres",
        "-A",
        "trust",
        "-E",
        "UTF8",
        "--locale=C",
        "--no-sync",
    ]);
    checked(&mut initdb);
    instance.configure("fsync = off\nlog_min_messages = warning\n");
    instance
}

/// `strongroom pg run ... pg_upgrade`, in a directory of its own.
fn upgrading(room: &Room, old: &Old<'_>, new: &Instance<'_>, mode: &str) -> Command {
    let mut command = new.strongroom("run");
    command
        .arg("-D")
        .arg(old.instance.data())
        .arg("-D")
        .arg(new.data())
        .arg("--");
    command
        .arg(new.programs().path("pg_upgrade"))
        .arg(mode)
        .args(["--no-sync", "-U", "postgres"]);
    command
        .arg("-b")
        .arg(old.instance.programs().directory())
        .arg("-B")
        .arg(new.programs().directory());
    command
        .arg("-d")
        .arg(old.instance.data())
        .arg("-D")
        .arg(new.data());
    command.arg("-s").arg(room.path());
    command
}

/// The ends of what `pg_upgrade` left for whoever looks for the cause.
fn logs(data: &Path) -> String {
    let runs = fs::read_dir(data.join("pg_upgrade_output.d"));
    let logs = runs.into_iter().flatten().flatten();
    let logs = logs.filter_map(|run| fs::read_dir(run.path().join("log")).ok());
    let mut told = String::new();
    for log in logs.flatten().flatten() {
        let text = fs::read_to_string(log.path()).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let end = lines.len().saturating_sub(8);
        told += &format!("{}:\n{}\n", log.path().display(), lines[end..].join("\n"));
    }
    told
}

/// Upgrades, compares, searches.
fn upgraded(room: &Room, old: &Old<'_>, new: &Instance<'_>, mode: &str) {
    let start = std::time::Instant::now();
    let output = upgrading(room, old, new, mode)
        .output()
        .expect("pg_upgrade");
    assert!(
        output.status.success(),
        "{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        logs(new.data())
    );
    new.start();
    assert_eq!(answers(new), old.answers, "{mode}");
    new.sql("insert into a values (-1, 'new'); vacuum freeze");
    new.stop();
    new.check_checksums();
    let places = [
        new.data().to_owned(),
        old.instance.data().to_owned(),
        old.space.clone(),
    ];
    let found = Found::search(&places, &[], &[String::from(CANARY)]);
    assert!(found.hits.is_empty(), "{:?}", found.hits);
    println!(
        "{} {mode}: {} s",
        new.programs().major(),
        start.elapsed().as_secs()
    );
}

/// Whether PostgreSQL's own `pg_upgrade` can take an instance of the installed server to
/// `programs`. Minor releases of late give every column an option, `pg_attver`, which servers from
/// before do not know: nobody can be upgraded to those.
fn is_possible(room: &Room, programs: &Programs) -> bool {
    let asked = |programs: &Programs, name: &str, sql: &str| {
        let instance = Instance::create(room, programs, name, Protection::Plain);
        instance.start();
        let answer = instance.sql(sql);
        instance.stop();
        answer
    };
    let has = "create table x (i int);
        select count(*) > 0 from pg_attribute where attrelid = 'x'::regclass and attoptions::text like '%pg_attver%'";
    let takes = "create table x (i int);
        do $$ begin alter table x alter i set (pg_attver = 1); exception when others then create table no (); end $$;
        select to_regclass('no') is null";
    let possible = !asked(&Programs::installed(), "has", has).ends_with('t')
        || asked(programs, "takes", takes).ends_with('t');
    if !possible {
        println!(
            "skipped: the PostgreSQL to upgrade to is older than the installed one's minor release, whose columns it does not know"
        );
    }
    possible
}

#[test]
fn an_instance_is_upgraded_to_18_in_every_mode() {
    let seed = seed();
    println!("STRONGROOM_SEED={seed}");
    let mut random = Random::new(seed);
    let room = Room::new("upgrade");
    let Some(programs) = packages::programs(&room, 18) else {
        return;
    };
    if !is_possible(&room, &programs) {
        return;
    }
    let old = old(&room, &mut random);
    let other = room.key("other", &mut random);
    for (name, mode, key) in [
        ("copied", "--copy", None),
        ("linked", "--link", None),
        ("swapped", "--swap", None),
        ("resealed", "--copy", Some(&other)),
        ("reranged", "--copy-file-range", Some(&other)),
    ] {
        let new = new(&room, &programs, name, &old, key.cloned());
        upgraded(&room, &old, &new, mode);
        restore(&room, &old);
    }
}

#[test]
fn an_instance_is_upgraded_to_16() {
    let mut random = Random::new(seed());
    let room = Room::new("upgrade16");
    let Some(programs) = packages::programs(&room, 16) else {
        return;
    };
    if Programs::installed().major() > 16 {
        return println!(
            "skipped: PostgreSQL {} is newer than 16",
            Programs::installed().major()
        );
    }
    if !is_possible(&room, &programs) {
        return;
    }
    let old = old(&room, &mut random);
    let linked = new(&room, &programs, "linked", &old, None);
    upgraded(&room, &old, &linked, "--link");
    restore(&room, &old);
    let copied = new(
        &room,
        &programs,
        "copied",
        &old,
        Some(room.key("other", &mut random)),
    );
    upgraded(&room, &old, &copied, "--copy");
}

#[test]
fn a_plain_instance_becomes_a_sealed_one() {
    let mut random = Random::new(seed());
    let room = Room::new("upgradeplain");
    let Some(programs) = packages::programs(&room, 18) else {
        return;
    };
    if !is_possible(&room, &programs) {
        return;
    }
    let plain = Instance::create(&room, &Programs::installed(), "plain", Protection::Plain);
    plain.start();
    plain.sql(&format!(
        "create table a as select i, '{CANARY}' || i as t from generate_series(1, 5000) i"
    ));
    let asked = "select count(*), md5(string_agg(t, '' order by i)) from a";
    let wanted = plain.sql(asked);
    plain.stop();
    let protection = Protection::Sealed {
        key: room.key("sealed", &mut random),
        cipher: "aes-256-xts",
    };
    let sealed = Instance::create(&room, &programs, "sealed", protection);
    let mut upgrade = sealed.strongroom("run");
    upgrade.arg("-D").arg(sealed.data()).arg("--");
    upgrade.arg(programs.path("pg_upgrade"));
    upgrade.args(["--copy", "--no-sync", "-U", "postgres", "-b"]);
    upgrade.arg(plain.programs().directory()).arg("-B");
    upgrade
        .arg(programs.directory())
        .arg("-d")
        .arg(plain.data());
    checked(
        upgrade
            .arg("-D")
            .arg(sealed.data())
            .arg("-s")
            .arg(room.path()),
    );
    sealed.start();
    assert_eq!(sealed.sql(asked), wanted);
    sealed.stop();
    sealed.check_checksums();
    let search = |data: &Path| Found::search(&[data.to_owned()], &[], &[String::from(CANARY)]);
    assert!(
        search(sealed.data()).hits.is_empty(),
        "{:?}",
        search(sealed.data()).hits
    );
    assert!(!search(plain.data()).hits.is_empty(), "the search is blind");
    plain.start();
    assert_eq!(plain.sql(asked), wanted, "the old instance was changed");
}

#[test]
fn what_would_mix_keys_is_refused_and_changes_nothing() {
    let mut random = Random::new(seed());
    let room = Room::new("upgraderefused");
    let Some(programs) = packages::programs(&room, 18) else {
        return;
    };
    let old = old(&room, &mut random);
    let before = state(old.instance.data());
    let other = room.key("other", &mut random);
    for mode in ["--link", "--swap"] {
        let new = new(&room, &programs, &mode[2..], &old, Some(other.clone()));
        let said = refused(&mut upgrading(&room, &old, &new, mode));
        assert!(
            said.contains("could not create hard link") && said.contains("cross-device"),
            "{said}"
        );
    }
    old.instance.start();
    assert_eq!(answers(&old.instance), old.answers);
    old.instance.stop();
    restore(&room, &old);

    // The old instance's key is not the one that its configuration names.
    let new = new(&room, &programs, "wrong", &old, None);
    let fresh = state(new.data());
    let wrong = format!("key_file = {}\n", other.display());
    room.put(
        &old.instance.data().join("strongroom.conf"),
        wrong.as_bytes(),
    );
    let said = refused(&mut upgrading(&room, &old, &new, "--copy"));
    assert!(said.contains("SR-2002"), "{said}");
    let mut after = state(old.instance.data());
    after.insert(
        String::from("strongroom.conf"),
        before["strongroom.conf"].clone(),
    );
    assert!(after == before, "the old instance was changed");
    assert!(state(new.data()) == fresh, "the new instance was changed");
}
