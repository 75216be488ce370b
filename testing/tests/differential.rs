//! Goal: a sealed database behaves as SQLite does: same results, same errors, same page counts, in
//! one process and in several.
//!
//! Method: seeded random SQL (see `workload`), each statement executed on a plain database on
//! SQLite's own VFS and on a sealed one, everything compared. The plain one reserves the same 32
//! bytes per page, so that even the number of pages and of free pages must agree. The same
//! statements again on the distribution's SQLite with the extension. Then several processes, of
//! both kinds of SQLite, in one database: a constant sum, exact counts. `STRONGROOM_SEED` repeats a
//! run, `STRONGROOM_WORKLOADS` sets how many are run.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]
#![expect(
    clippy::print_stdout,
    reason = "seeds and counts are for whoever runs it"
)]

use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rusqlite::backup::Backup;
use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags};
use strongroom_sqlite::{OpenOptions, open, ops};
use strongroom_testing::random::{Random, seed, times};
use strongroom_testing::setup::{Room, extension, python};
use strongroom_testing::workload::Workload;
use strongroom_testing::{bank, stock};

const STATEMENTS: usize = 300;
const PAGE_SIZES: &[u32] = &[512, 1024, 4096, 4096, 8192, 65536];
const CIPHERS: &[&str] = &["gcm", "gcm", "ctr"];

type Rows = Vec<Vec<Value>>;

/// The rows, or extended code and message.
fn execute(connection: &Connection, sql: &str) -> Result<Rows, (i32, String)> {
    let failed = |error: rusqlite::Error| match error {
        rusqlite::Error::SqliteFailure(code, text) => {
            (code.extended_code, text.unwrap_or_default())
        }
        rusqlite::Error::SqlInputError { error, msg, .. } => (error.extended_code, msg),
        other => (-1, other.to_string()),
    };
    let mut statement = connection.prepare(sql).map_err(failed)?;
    let columns = statement.column_count();
    let mut rows = statement.query([]).map_err(failed)?;
    let mut all = Vec::new();
    while let Some(row) = rows.next().map_err(failed)? {
        all.push(
            (0..columns)
                .map(|column| row.get(column).unwrap())
                .collect(),
        );
    }
    Ok(all)
}

fn open_uri(uri: &str) -> Connection {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_URI;
    Connection::open_with_flags(uri, flags).unwrap()
}

/// A plain and a sealed database that get the same statements.
struct Pair {
    room: Room,
    plain: Connection,
    sealed: Connection,
    parameters: String,
}

impl Pair {
    fn new(random: &mut Random) -> Self {
        strongroom_sqlite::register().unwrap();
        let room = Room::new(random).unwrap();
        let page_size = random.one_of(PAGE_SIZES);
        let parameters = format!("&page_size={page_size}&cipher={}", random.one_of(CIPHERS));
        let plain = open_uri(&room.plain_uri("plain.db"));
        plain.pragma_update(None, "page_size", page_size).unwrap();
        stock::reserve(&plain, c"main").unwrap();
        let sealed = open_uri(&room.sealed_uri("sealed.db", &parameters));
        Self {
            room,
            plain,
            sealed,
            parameters,
        }
    }

    fn both(&self, sql: &str) -> Result<Rows, (i32, String)> {
        let (for_plain, for_sealed) = statements(&self.room, &self.parameters, sql);
        let expected = execute(&self.plain, &for_plain);
        let found = execute(&self.sealed, &for_sealed);
        assert_eq!(found, expected, "{}: {sql}", self.parameters);
        expected
    }

    fn all_tables(&self) {
        let Ok(tables) =
            self.both("SELECT name FROM sqlite_schema WHERE type='table' ORDER BY name")
        else {
            return;
        };
        for table in tables {
            let [Value::Text(name)] = table.as_slice() else {
                continue;
            };
            if name != "words" {
                self.both(&format!("SELECT * FROM \"{name}\"")).unwrap();
            }
        }
    }
}

/// The statement for the plain and for the sealed database.
fn statements(room: &Room, parameters: &str, sql: &str) -> (String, String) {
    let plain = sql.replace("$other$", &room.plain_uri("other-plain.db"));
    let sealed = sql.replace("$other$", &room.sealed_uri("other-sealed.db", parameters));
    (plain, sealed)
}

fn one_workload(seed: u64) {
    let mut random = Random::new(seed);
    let pair = Pair::new(&mut random);
    let mut workload = Workload::new(seed, true);
    for sql in workload.beginning() {
        pair.both(&sql).unwrap();
    }
    let (mut done, mut failed) = (0, 0);
    for _ in 0..STATEMENTS {
        match pair.both(&workload.statement()) {
            Ok(_) => done += 1,
            Err(_) => failed += 1,
        }
    }
    pair.both("ROLLBACK").ok();
    pair.all_tables();
    pair.both("PRAGMA page_count").unwrap();
    assert_eq!(
        pair.both("PRAGMA integrity_check").unwrap(),
        [[Value::Text("ok".to_owned())]]
    );
    assert!(
        done > STATEMENTS / 3 && failed > 0,
        "{done} done, {failed} failed"
    );
    back_up(&pair);
    let Pair {
        room,
        plain,
        sealed,
        parameters,
    } = pair;
    drop((plain, sealed));
    reopened(room, parameters);
}

/// A copy by the backup API under another key has the same contents.
fn back_up(pair: &Pair) {
    let mut options = pair.room.options("second");
    options.page_size = u32::try_from(
        pair.sealed
            .pragma_query_value(None, "page_size", |row| row.get::<_, i64>(0))
            .unwrap(),
    )
    .unwrap();
    let mut copy = open(&pair.room.at("copy.db"), &options).unwrap();
    Backup::new(&pair.sealed, &mut copy)
        .unwrap()
        .run_to_completion(37, Duration::ZERO, None)
        .unwrap();
    for sql in [
        "SELECT * FROM t0",
        "SELECT * FROM t1",
        "SELECT * FROM sqlite_schema",
        "PRAGMA integrity_check",
    ] {
        assert_eq!(
            execute(&copy, sql).unwrap(),
            execute(&pair.sealed, sql).unwrap(),
            "{sql}"
        );
    }
}

fn reopened(room: Room, parameters: String) {
    let report = ops::verify(
        &room.at("sealed.db"),
        &room.options("first"),
        &mut |_, _| {},
    )
    .unwrap();
    assert!(report.bad.is_empty(), "{:?}", report.bad);
    let plain = open_uri(&room.plain_uri("plain.db"));
    let sealed = open_uri(&room.sealed_uri("sealed.db", ""));
    let pair = Pair {
        room,
        plain,
        sealed,
        parameters,
    };
    pair.all_tables();
    assert_eq!(
        pair.both("PRAGMA integrity_check").unwrap(),
        [[Value::Text("ok".to_owned())]]
    );
}

#[test]
fn the_same_statements_on_the_bundled_sqlite() {
    let first = seed();
    for seed in first..first + times("STRONGROOM_WORKLOADS", 16) {
        println!("STRONGROOM_SEED={seed} STRONGROOM_WORKLOADS=1");
        one_workload(seed);
    }
}

#[test]
fn the_same_statements_on_the_distributions_sqlite() {
    let first = seed();
    for seed in first..first + times("STRONGROOM_WORKLOADS", 16) {
        println!("STRONGROOM_SEED={seed} STRONGROOM_WORKLOADS=1");
        let mut random = Random::new(seed);
        let room = Room::new(&mut random).unwrap();
        let parameters = format!(
            "&page_size={}&cipher={}",
            random.one_of(PAGE_SIZES),
            random.one_of(CIPHERS)
        );
        let mut workload = Workload::new(seed, false);
        let mut all = workload.beginning();
        all.extend((0..STATEMENTS).map(|_| workload.statement()));
        all.extend(
            [
                "ROLLBACK",
                "PRAGMA integrity_check",
                "SELECT * FROM t0",
                "SELECT * FROM t1",
            ]
            .map(str::to_owned),
        );
        let mut child = Command::new(python())
            .arg(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/drivers/differential.py"
            ))
            .arg(extension())
            .args([
                room.plain_uri("plain.db"),
                room.sealed_uri("sealed.db", &parameters),
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        let lines = all.iter().map(|sql| {
            let (plain, sealed) = statements(&room, &parameters, sql);
            format!("{plain}\t{sealed}\n")
        });
        // A driver that found a difference reads no more; its own words follow.
        let written = input.write_all(lines.collect::<String>().as_bytes());
        drop((written, input));
        let output = child.wait_with_output().unwrap();
        let (out, error) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        assert!(output.status.success(), "seed {seed} {parameters}: {error}");
        assert_eq!(
            out.split_whitespace().next(),
            Some(all.len().to_string().as_str()),
            "{out}"
        );
    }
}

const ROUNDS: u64 = 60;
const WORKERS: u32 = 4;

/// A worker process on the bundled SQLite.
fn start(room: &Room, task: &str, more: &[String]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_worker"))
        .arg(task)
        .arg(format!("db={}", room.at("a.db").display()))
        .arg(format!("key={}", room.at("keys/first").display()))
        .args(more)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// A worker process on the distribution's SQLite.
fn start_stock(room: &Room, id: u32, seed: u64) -> Child {
    Command::new(python())
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/drivers/bank.py"))
        .arg(extension())
        .arg(room.sealed_uri("a.db", ""))
        .args([id.to_string(), ROUNDS.to_string(), seed.to_string()])
        .spawn()
        .unwrap()
}

/// Workers 1 to 3 of the bundled SQLite and worker 4 of the distribution's, with two onlookers.
fn several_processes(journal: &str, freshness: bool) {
    let seed = seed();
    println!("{journal}, freshness {freshness}: STRONGROOM_SEED={seed}");
    let room = Room::new(&mut Random::new(seed)).unwrap();
    let options = OpenOptions {
        freshness,
        ..room.options("first")
    };
    let connection = open(&room.at("a.db"), &options).unwrap();
    bank::create(&connection, journal, WORKERS).unwrap();
    let stop = vec![
        format!("stop={}", room.at("stop").display()),
        "mapped=1".to_owned(),
    ];
    let onlookers: Vec<Child> = (0..2).map(|_| start(&room, "watch", &stop)).collect();
    let round = |id| {
        vec![
            format!("id={id}"),
            format!("rounds={ROUNDS}"),
            format!("seed={seed}"),
            format!("mapped={}", id % 2),
        ]
    };
    let mut workers: Vec<Child> = (1..WORKERS)
        .map(|id| start(&room, "bank", &round(id)))
        .collect();
    workers.push(start_stock(&room, WORKERS, seed));
    for mut worker in workers {
        assert!(
            worker.wait().unwrap().success(),
            "{journal}: a worker failed"
        );
    }
    room.put("stop", b"").unwrap();
    for onlooker in onlookers {
        let output = onlooker.wait_with_output().unwrap();
        assert!(
            output.status.success(),
            "{journal}: an onlooker saw what it must not"
        );
        let looks: u64 = String::from_utf8_lossy(&output.stdout)
            .trim()
            .parse()
            .unwrap();
        assert!(looks > 1, "an onlooker got in only when all was over");
    }
    nothing_is_lost(&room, connection, journal, freshness);
}

fn nothing_is_lost(room: &Room, connection: Connection, journal: &str, freshness: bool) {
    bank::look(&connection).unwrap();
    for id in 1..=WORKERS {
        let count = execute(&connection, &format!("SELECT c FROM counter WHERE id={id}")).unwrap();
        assert_eq!(
            count,
            [[Value::Integer(ROUNDS.cast_signed())]],
            "{journal}: worker {id}"
        );
    }
    let integrity = execute(&connection, "PRAGMA integrity_check").unwrap();
    assert_eq!(integrity, [[Value::Text("ok".to_owned())]]);
    drop(connection);
    let report = ops::verify(&room.at("a.db"), &room.options("first"), &mut |_, _| {}).unwrap();
    assert!(report.bad.is_empty(), "{:?}", report.bad);
    // Each worker went on with the digest that another one had left.
    match report.freshness {
        ops::Freshness::Holds { log: false, .. } => assert!(freshness),
        other => assert!(!freshness && other == ops::Freshness::NotKept, "{other:?}"),
    }
}

#[test]
fn several_processes_wal() {
    several_processes("wal", false);
    several_processes("wal", true);
}

#[test]
fn several_processes_rollback() {
    for journal in ["delete", "truncate", "persist"] {
        several_processes(journal, false);
        several_processes(journal, true);
    }
}
