//! Goal: whatever moment a writing process is killed at, afterwards every transaction that was
//! acknowledged is there, every other one is there as a whole or not at all, and nothing has to be
//! repaired by hand.
//!
//! Method: a worker commits numbered transactions (see `ledger`) and says each number after COMMIT.
//! It is killed with SIGKILL, either after a random time or before its n-th changing system call
//! (of a write, half may be done). The database is then opened, checked, verified page by page, and
//! the next worker goes on with it. The same for a rekey and for encrypting and decrypting.
//! `STRONGROOM_KILLS` sets the kills per mode, `STRONGROOM_SEED` repeats a run.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]
#![expect(
    clippy::print_stdout,
    clippy::use_debug,
    reason = "seeds and counts are for whoever runs it"
)]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rusqlite::Connection;
use strongroom_sqlite::{OpenOptions, open, ops};
use strongroom_testing::intercept::Torn;
use strongroom_testing::ledger::{self, Shape};
use strongroom_testing::random::{Random, seed, times};
use strongroom_testing::setup::Room;

const WORKER: &str = env!("CARGO_BIN_EXE_worker");

/// What a worker said before it ended.
struct Said {
    lines: Vec<String>,
    killed: bool,
}

impl Said {
    fn last_number(&self) -> Option<i64> {
        self.lines.iter().rev().find_map(|line| line.parse().ok())
    }

    fn calls(&self) -> Option<u64> {
        self.lines.last()?.rsplit_once("calls ")?.1.parse().ok()
    }
}

/// Runs a worker; kills it `after` it has said "ready", if it has not ended by then.
fn run(arguments: &[String], after: Option<Duration>) -> Said {
    let mut child = Command::new(WORKER)
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let ready = lines.next().map(Result::unwrap);
    if let Some(after) = after {
        assert_eq!(ready.as_deref(), Some("ready"), "{}", errors(&mut child));
        std::thread::sleep(after);
        child.kill().unwrap();
    }
    let lines: Vec<String> = lines.map_while(Result::ok).collect();
    let wrong = errors(&mut child);
    let status = child.wait().unwrap();
    let killed = status.code().is_none();
    assert!(killed || status.success(), "worker {arguments:?}: {wrong}");
    Said { lines, killed }
}

fn errors(child: &mut std::process::Child) -> String {
    let mut text = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut text).unwrap();
    text
}

fn shape(journal: &str, synchronous: &str, auto_vacuum: u64) -> Shape {
    Shape {
        journal: journal.to_owned(),
        synchronous: synchronous.to_owned(),
        auto_vacuum: auto_vacuum.to_string(),
        freshness: false,
    }
}

/// The shapes of databases that keep freshness: every journal that a kill leaves.
fn fresh_shapes(synchronous: &str) -> impl Iterator<Item = Shape> {
    let shapes = [("DELETE", 0), ("TRUNCATE", 2), ("PERSIST", 1), ("WAL", 0)];
    shapes.into_iter().map(move |(journal, auto_vacuum)| Shape {
        freshness: true,
        ..shape(journal, synchronous, auto_vacuum)
    })
}

fn ledger_arguments(room: &Room, shape: &Shape, seed: u64) -> Vec<String> {
    vec![
        "ledger".to_owned(),
        format!("db={}", room.at("a.db").display()),
        format!("key={}", room.at("keys/first").display()),
        format!("journal={}", shape.journal),
        format!("synchronous={}", shape.synchronous),
        format!("auto_vacuum={}", shape.auto_vacuum),
        format!("freshness={}", u64::from(shape.freshness)),
        format!("seed={seed}"),
    ]
}

/// Opens `name`, with `other` attached if there is one, and checks both: the last transaction.
fn check(room: &Room, name: &str, other: Option<&str>, when: &str, torn: bool) -> i64 {
    let connection = open(&room.at(name), &room.options("first")).unwrap();
    let last = ledger::check(&connection, "main").expect(when);
    if let Some(other) = other {
        connection
            .execute("ATTACH ?1 AS other", [room.sealed_uri(other, "")])
            .unwrap();
        assert_eq!(
            ledger::check(&connection, "other").expect(when),
            last,
            "{when}: both or neither"
        );
    }
    drop(connection);
    settle(room, name, torn);
    verify(room, name, "first", when);
    last
}

/// What a write that was cut in two may leave, and what ends it. A journal whose header was being
/// written was not yet in force, and the next transaction replaces it; one anchor of the two is
/// replaced with the next log; a page that was free before the transaction has no old content that
/// SQLite would restore, until it is used again. All of them fail to authenticate until then. The
/// pages in use were read by `integrity_check`.
fn settle(room: &Room, name: &str, torn: bool) {
    let report = ops::verify(&room.at(name), &room.options("first"), &mut |_, _| {}).unwrap();
    let passing = |bad: &ops::BadUnit| match bad.kind {
        ops::UnitKind::JournalSlot => bad.index <= 1,
        ops::UnitKind::Page | ops::UnitKind::Anchor => torn,
        _ => false,
    };
    if report.bad.is_empty() || !report.bad.iter().all(passing) {
        return;
    }
    let connection = open(&room.at(name), &room.options("first")).unwrap();
    if report.bad.iter().any(|bad| bad.kind == ops::UnitKind::Page) {
        // Uses every free page once, without reading it.
        let sql = "CREATE TABLE filler AS SELECT zeroblob(
                       (SELECT freelist_count+1 FROM pragma_freelist_count) * (SELECT page_size FROM pragma_page_size)) b;
                   DROP TABLE filler";
        connection.execute_batch(sql).unwrap();
    }
    connection.pragma_update(None, "user_version", 1).unwrap();
}

fn verify(room: &Room, name: &str, key: &str, when: &str) {
    let report = ops::verify(&room.at(name), &room.options(key), &mut |_, _| {}).unwrap();
    assert!(report.bad.is_empty(), "{when}: {name}: {:?}", report.bad);
    assert!(
        report.pages_ok > 0 && report.pages_ok == report.pages,
        "{when}: {name}: {report:?}"
    );
    match report.freshness {
        ops::Freshness::NotKept | ops::Freshness::Holds { .. } => {}
        // After a transaction that took free pages and was rolled back: never with a log.
        ops::Freshness::Unknown => {
            let connection = open(&room.at(name), &room.options(key)).unwrap();
            let mode: String = connection
                .query_row("PRAGMA journal_mode", [], |row| row.get(0))
                .unwrap();
            assert_ne!(mode, "wal", "{when}: {name}");
            drop(connection);
            ops::settle(&room.at(name), &room.options(key)).unwrap();
            let settled = freshness(room, name, key);
            assert!(matches!(settled, ops::Freshness::Holds { .. }), "{when}");
        }
        other => unreachable!("{when}: {name}: {other:?}"),
    }
}

fn freshness(room: &Room, name: &str, key: &str) -> ops::Freshness {
    let report = ops::verify(&room.at(name), &room.options(key), &mut |_, _| {});
    report.unwrap().freshness
}

/// Whether the first database does.
fn keeps_freshness(room: &Room, key: &str) -> bool {
    freshness(room, "a.db", key) != ops::Freshness::NotKept
}

/// Kills a worker at random times, `kills` times, on one database.
fn kill_at_random(label: &str, shape: &Shape, both: bool, kills: u64) {
    let seed = seed();
    println!("{label} {shape:?}: STRONGROOM_SEED={seed}, {kills} kills");
    let mut random = Random::new(seed);
    let room = Room::new(&mut random).unwrap();
    let mut arguments = ledger_arguments(&room, shape, seed);
    if both {
        arguments.push(format!("other={}", room.at("b.db").display()));
    }
    let (mut acknowledged, mut in_midst) = (0, 0);
    for kill in 0..kills {
        let mut arguments = arguments.clone();
        arguments.push(format!("mapped={}", kill % 2));
        let said = run(
            &arguments,
            Some(Duration::from_micros(200 + random.below(200_000))),
        );
        assert!(said.killed, "without a limit it ends by being killed only");
        acknowledged = said.last_number().unwrap_or(acknowledged);
        in_midst += u64::from(has_leftovers(room.path()));
        let (when, torn) = (format!("seed {seed}, kill {kill}"), false);
        // Recovery begins with either of the two databases.
        let (first, second) = if kill % 2 == 0 {
            ("a.db", "b.db")
        } else {
            ("b.db", "a.db")
        };
        let last = match both {
            true => check(&room, first, Some(second), &when, torn),
            false => check(&room, "a.db", None, &when, torn),
        };
        let committed = [acknowledged, acknowledged + 1];
        assert!(
            committed.contains(&last),
            "seed {seed}, kill {kill}: said {acknowledged}, found {last}"
        );
        acknowledged = last;
    }
    println!(
        "{label} {shape:?}: {acknowledged} transactions, {in_midst} of {kills} kills left a journal or log"
    );
    assert_eq!(keeps_freshness(&room, "first"), shape.freshness);
    assert!(acknowledged > 0, "nothing was ever committed");
    assert!(in_midst > 0, "no kill hit a transaction");
}

fn has_leftovers(directory: &Path) -> bool {
    let entries = std::fs::read_dir(directory).unwrap().map(Result::unwrap);
    entries
        .filter(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            name.ends_with("-journal") || name.ends_with("-wal")
        })
        .any(|entry| entry.metadata().unwrap().len() > 0)
}

fn kills(default: u64) -> u64 {
    times("STRONGROOM_KILLS", default)
}

#[test]
fn random_kills_delete() {
    for synchronous in ["FULL", "NORMAL"] {
        kill_at_random("random", &shape("DELETE", synchronous, 0), false, kills(20));
    }
}

#[test]
fn random_kills_truncate() {
    for synchronous in ["FULL", "NORMAL"] {
        kill_at_random(
            "random",
            &shape("TRUNCATE", synchronous, 0),
            false,
            kills(20),
        );
    }
}

#[test]
fn random_kills_persist() {
    for synchronous in ["FULL", "NORMAL"] {
        kill_at_random(
            "random",
            &shape("PERSIST", synchronous, 0),
            false,
            kills(20),
        );
    }
}

#[test]
fn random_kills_without_a_count() {
    for journal in ["DELETE", "TRUNCATE", "PERSIST"] {
        kill_at_random("random", &shape(journal, "OFF", 0), false, kills(20));
    }
}

#[test]
fn random_kills_wal() {
    for synchronous in ["FULL", "NORMAL", "OFF"] {
        kill_at_random("random", &shape("WAL", synchronous, 0), false, kills(20));
    }
}

#[test]
fn random_kills_with_freshness() {
    for synchronous in ["NORMAL", "OFF"] {
        for shape in fresh_shapes(synchronous) {
            kill_at_random("freshness", &shape, false, kills(10));
        }
    }
    for shape in fresh_shapes("FULL").take(3) {
        kill_at_random("freshness of two", &shape, true, kills(10));
    }
}

#[test]
fn random_kills_auto_vacuum() {
    for journal in ["DELETE", "WAL", "PERSIST"] {
        for auto_vacuum in [1, 2] {
            kill_at_random(
                "auto_vacuum",
                &shape(journal, "NORMAL", auto_vacuum),
                false,
                kills(10),
            );
        }
    }
}

#[test]
fn random_kills_two_databases() {
    for journal in ["DELETE", "TRUNCATE", "PERSIST"] {
        kill_at_random("two databases", &shape(journal, "FULL", 0), true, kills(20));
    }
}

/// Dies before every `stride`th changing system call of a fixed sequence of transactions, each time
/// from the start; of a write so much as `torn` says is done.
fn kill_at_each_call(shape: &Shape, both: bool, deaths: u64, torn: Option<Torn>) {
    let seed = seed();
    let mut random = Random::new(seed);
    let complete = {
        let room = Room::new(&mut random).unwrap();
        let mut arguments = each_call_arguments(&room, shape, both, seed);
        if let Some(torn) = torn {
            arguments.push(format!("torn={}", torn as u64));
        }
        run(&arguments, None)
    };
    let calls = complete.calls().unwrap();
    let least = if torn.is_some() { 0 } else { 20 };
    assert!(calls > least && !complete.killed);
    let stride = (calls / deaths).max(1);
    println!("each call {shape:?}: STRONGROOM_SEED={seed}, {calls} calls, every {stride}th");
    let mut at = 1 + random.below(stride);
    while at <= calls {
        let room = Room::new(&mut random).unwrap();
        let mut arguments = each_call_arguments(&room, shape, both, seed);
        arguments.push(format!("die_at={at}"));
        let torn = torn.unwrap_or_else(|| Torn::of(random.below(2)));
        arguments.push(format!("torn={}", torn as u64));
        let said = run(&arguments, None);
        assert!(
            said.killed,
            "seed {seed}: call {at} of {calls} was not reached"
        );
        let acknowledged = said.last_number().unwrap_or(0);
        let (when, torn) = (
            format!("seed {seed}, call {at}, {torn:?}"),
            torn == Torn::Half,
        );
        let last = match (both, at.is_multiple_of(3)) {
            (true, true) => check(&room, "b.db", Some("a.db"), &when, torn),
            (true, false) => check(&room, "a.db", Some("b.db"), &when, torn),
            (false, _) => check(&room, "a.db", None, &when, torn),
        };
        let committed = [acknowledged, acknowledged + 1];
        assert!(
            committed.contains(&last),
            "seed {seed}, call {at}: said {acknowledged}, found {last}"
        );
        assert_eq!(keeps_freshness(&room, "first"), shape.freshness, "{when}");
        at += stride;
    }
}

fn each_call_arguments(room: &Room, shape: &Shape, both: bool, seed: u64) -> Vec<String> {
    let mut arguments = ledger_arguments(room, shape, seed);
    arguments.push("limit=4".to_owned());
    if both {
        arguments.push(format!("other={}", room.at("b.db").display()));
    }
    arguments
}

#[test]
fn death_before_each_call() {
    for (journal, auto_vacuum) in [("DELETE", 0), ("TRUNCATE", 2), ("PERSIST", 1), ("WAL", 0)] {
        for synchronous in ["NORMAL", "OFF"] {
            let shape = shape(journal, synchronous, auto_vacuum);
            kill_at_each_call(&shape, false, kills(50), None);
        }
    }
    for shape in fresh_shapes("NORMAL") {
        kill_at_each_call(&shape, false, kills(50), None);
    }
}

/// A slot of the journal that is written again may be cut by the kill where it crosses a page of
/// the file. With a count such a slot holds nothing that is needed yet; without one
/// (`synchronous=OFF`) it may.
#[test]
fn death_at_a_page_of_a_journal_without_a_count() {
    for journal in ["DELETE", "TRUNCATE", "PERSIST"] {
        let shape = shape(journal, "OFF", 0);
        for _ in 0..2 {
            kill_at_each_call(&shape, false, kills(40), Some(Torn::AtPage));
        }
    }
}

#[test]
fn death_before_each_call_two_databases() {
    // With synchronous=OFF, SQLite writes no super-journal and promises nothing for both.
    for (journal, synchronous) in [
        ("DELETE", "FULL"),
        ("PERSIST", "NORMAL"),
        ("TRUNCATE", "FULL"),
    ] {
        kill_at_each_call(&shape(journal, synchronous, 0), true, kills(50), None);
    }
}

/// Some transactions' worth of content, so that a rekey or copy has something to do. Returns the
/// last number.
fn fill(connection: &Connection, journal: &str, transactions: i64) -> i64 {
    ledger::prepare(connection, "main", &shape(journal, "OFF", 0)).unwrap();
    for n in 1..=transactions {
        ledger::transact(connection, &["main"], 7, n).unwrap();
    }
    transactions
}

#[test]
fn kills_during_rekey() {
    let seed = seed();
    println!("rekey: STRONGROOM_SEED={seed}");
    let mut random = Random::new(seed);
    for (journal, freshness) in [
        ("DELETE", false),
        ("WAL", false),
        ("DELETE", true),
        ("WAL", true),
    ] {
        let room = Room::new(&mut random).unwrap();
        let path = room.at("a.db");
        let options = OpenOptions {
            freshness,
            ..room.options("first")
        };
        let last = fill(&open(&path, &options).unwrap(), journal, 30);
        let (mut old, mut new) = ("first", "second");
        let mut calls = 400;
        let mut interrupted = 0;
        for round in 0..kills(12) {
            // One to three kills in a row, then the rekey is let through.
            for _ in 0..=random.below(3) {
                let mut arguments = rekey_arguments(&room, old, new);
                let by_time = round % 2 == 0;
                if !by_time {
                    arguments.push(format!("die_at={}", 1 + random.below(calls)));
                }
                let after = Duration::from_micros(random.below(40_000));
                let said = run(&arguments, by_time.then_some(after));
                interrupted += u64::from(said.killed);
                assert_one_key_opens(&room, old, new, last);
                if said.lines.last().is_some_and(|line| line == "refused") {
                    assert!(
                        open(&path, &room.options(new)).is_ok(),
                        "refused, so it was finished"
                    );
                }
            }
            if let Some(finished) = finish_rekey(&room, old, new) {
                calls = finished.calls().unwrap_or(calls).max(20);
            }
            let refused = open(&path, &room.options(old)).unwrap_err();
            assert_eq!(
                refused.code().number,
                2002,
                "the old key opens nothing any more"
            );
            let connection = open(&path, &room.options(new)).unwrap();
            assert_eq!(ledger::check(&connection, "main").unwrap(), last);
            drop(connection);
            verify(&room, "a.db", new, "after a rekey");
            assert_eq!(keeps_freshness(&room, new), freshness);
            std::mem::swap(&mut old, &mut new);
        }
        println!("rekey {journal}, freshness {freshness}: {interrupted} interruptions");
        assert!(interrupted > 0);
    }
}

fn rekey_arguments(room: &Room, old: &str, new: &str) -> Vec<String> {
    vec![
        "rekey".to_owned(),
        format!("db={}", room.at("a.db").display()),
        format!("key={}", room.at("keys").join(old).display()),
        format!("new={}", room.at("keys").join(new).display()),
    ]
}

/// After a kill the contents are there, under the old key or under the new one.
fn assert_one_key_opens(room: &Room, old: &str, new: &str, last: i64) {
    let path = room.at("a.db");
    let connection = open(&path, &room.options(old))
        .or_else(|_| open(&path, &room.options(new)))
        .unwrap();
    assert_eq!(ledger::check(&connection, "main").unwrap(), last);
}

/// The same rekey again goes through, or says that the old key opens nothing because it had been
/// done.
fn finish_rekey(room: &Room, old: &str, new: &str) -> Option<Said> {
    match open(&room.at("a.db"), &room.options(old)) {
        Err(error) if error.code().number == 2002 => {
            let new_key = room.options(new).key;
            let again = ops::rekey(
                &room.at("a.db"),
                &room.options(old),
                new_key.as_ref(),
                false,
                &mut |_, _| {},
            );
            match again {
                Ok(report) => assert!(
                    report.resumed,
                    "only a begun rekey accepts the new key alone"
                ),
                Err(error) => assert_eq!(error.code().number, 2002),
            }
            None
        }
        other => {
            drop(other.unwrap());
            let said = run(&rekey_arguments(room, old, new), None);
            assert!(!said.killed);
            Some(said)
        }
    }
}

#[test]
fn kills_during_encrypt_and_decrypt() {
    let seed = seed();
    println!("copies: STRONGROOM_SEED={seed}");
    let mut random = Random::new(seed);
    let room = Room::new(&mut random).unwrap();
    let plain =
        Connection::open_with_flags(room.plain_uri("plain.db"), rusqlite::OpenFlags::default())
            .unwrap();
    let last = fill(&plain, "DELETE", 40);
    drop(plain);
    ops::encrypt(
        &room.at("plain.db"),
        &room.at("sealed.db"),
        &room.options("first"),
        &mut |_, _| {},
    )
    .unwrap();
    for (task, from, to) in [
        ("encrypt", "plain.db", "out1.db"),
        ("decrypt", "sealed.db", "out2.db"),
    ] {
        let source = std::fs::read(room.at(from)).unwrap();
        let (mut whole, mut none) = (0, 0);
        let mut calls = 0;
        for kill in 0..=kills(24) {
            let mut arguments = copy_arguments(&room, task, from, to);
            if kill > 0 {
                arguments.push(format!("die_at={}", 1 + random.below(calls + 3)));
            }
            let said = run(&arguments, None);
            if kill == 0 {
                calls = said.calls().unwrap();
                assert!(!said.killed && calls > 10, "{calls} {:?}", said.lines);
            }
            if room.at(to).exists() {
                whole += 1;
                assert_eq!(check_copy(&room, task, to), last);
                std::fs::remove_file(room.at(to)).unwrap();
            } else {
                none += 1;
                assert!(said.killed);
            }
            assert_eq!(
                std::fs::read(room.at(from)).unwrap(),
                source,
                "{task} changed its source"
            );
        }
        println!("{task}: {calls} calls; {none} kills left no output, {whole} runs a whole one");
        assert!(none > 0 && whole > 0);
    }
}

fn copy_arguments(room: &Room, task: &str, from: &str, to: &str) -> Vec<String> {
    vec![
        task.to_owned(),
        format!("from={}", room.at(from).display()),
        format!("to={}", room.at(to).display()),
        format!("key={}", room.at("keys/first").display()),
    ]
}

fn check_copy(room: &Room, task: &str, name: &str) -> i64 {
    let connection = match task {
        "encrypt" => open(&room.at(name), &room.options("first")).unwrap(),
        _ => Connection::open_with_flags(room.plain_uri(name), rusqlite::OpenFlags::default())
            .unwrap(),
    };
    let last = ledger::check(&connection, "main").unwrap();
    drop(connection);
    if task == "encrypt" {
        verify(room, name, "first", task);
    }
    last
}
