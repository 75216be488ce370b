//! The workloads: the same lines for every engine's driver.
//!
//! Must not: let one round's work change another's: updates set a value of their own, loads go to
//! new files.

use strongroom_benches::Failure;
use strongroom_benches::tpch::QUERIES;

use crate::Options;
use crate::driver::{self, Crowd, Done, Script};
use crate::engine::{Engine, Key};
use crate::setup::{Place, one_line};

const SCAN: &str =
    "SELECT count(*), sum(l_quantity), sum(length(l_comment)) FROM lineitem NOT INDEXED";
const READ: &str = "SELECT l_quantity FROM lineitem WHERE rowid = ?1";
/// More than any file of the table's; the common settings map nothing.
const MAPPED: &str = "sql PRAGMA mmap_size=1073741824\n";
const UPDATE: &str = "UPDATE lineitem SET l_tax = ?2 WHERE rowid = ?1";

/// What a workload does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// One statement; the file is dropped from the system's cache before.
    Query { sql: &'static str, cold: bool },
    /// Random rows by rowid.
    Reads { count: u32, one: bool },
    /// Random rows updated.
    Updates {
        journal: &'static str,
        synchronous: &'static str,
        count: u32,
        one: bool,
    },
    /// A table and two indexes, from the plain source.
    Load,
    /// Open, read the schema, close.
    Open(Key),
    /// Bytes of heap and locked memory that a connection holds that has read something.
    Memory,
    /// Several processes that read at once.
    Readers { processes: u32, scan: bool },
}

/// A workload.
#[derive(Clone, Copy)]
pub(crate) struct Workload {
    pub(crate) group: &'static str,
    pub(crate) name: &'static str,
    pub(crate) work: Work,
    /// With a `PRAGMA mmap_size` that covers the file, which no other workload has.
    mapped: bool,
}

const fn workload(group: &'static str, name: &'static str, work: Work) -> Workload {
    Workload {
        group,
        name,
        work,
        mapped: false,
    }
}

const fn mapped(name: &'static str, work: Work) -> Workload {
    Workload {
        mapped: true,
        ..workload("Reading, `PRAGMA mmap_size`", name, work)
    }
}

const fn updates(journal: &'static str, synchronous: &'static str, count: u32, one: bool) -> Work {
    Work::Updates {
        journal,
        synchronous,
        count,
        one,
    }
}

/// Every workload, in the table's order.
pub(crate) fn all() -> Vec<Workload> {
    let scan = |cold| Work::Query { sql: SCAN, cold };
    let reads = |one| Work::Reads { count: 20_000, one };
    let mut all = vec![
        workload("Reading", "full scan of lineitem, cold", scan(true)),
        workload("Reading", "full scan of lineitem, warm", scan(false)),
        workload("Reading", "point reads, a transaction each", reads(false)),
        workload("Reading", "point reads, one transaction", reads(true)),
        mapped("full scan of lineitem, mapped", scan(false)),
        mapped("point reads, a transaction each, mapped", reads(false)),
        mapped("point reads, one transaction, mapped", reads(true)),
    ];
    all.extend(QUERIES.iter().map(|query| {
        let work = Work::Query {
            sql: query.sql,
            cold: false,
        };
        workload("TPC-H queries", query.name, work)
    }));
    all.extend(WRITING);
    all.extend(OPENING);
    for (processes, reads, scans) in READERS {
        let of = |name, scan| workload("Processes", name, Work::Readers { processes, scan });
        all.extend([of(reads, false), of(scans, true)]);
    }
    all
}

const WRITING: [Workload; 6] = [
    workload(
        "Writing",
        "updates, WAL, synchronous=NORMAL, a transaction each",
        updates("wal", "NORMAL", 2000, false),
    ),
    workload(
        "Writing",
        "updates, WAL, synchronous=NORMAL, one transaction",
        updates("wal", "NORMAL", 5000, true),
    ),
    workload(
        "Writing",
        "updates, rollback journal, synchronous=FULL, a transaction each",
        updates("delete", "FULL", 100, false),
    ),
    workload(
        "Writing",
        "updates, rollback journal, synchronous=OFF, a transaction each",
        updates("delete", "OFF", 2000, false),
    ),
    workload(
        "Writing",
        "updates, rollback journal, synchronous=OFF, one transaction",
        updates("delete", "OFF", 5000, true),
    ),
    workload("Writing", "bulk load of lineitem, two indexes", Work::Load),
];

const OPENING: [Workload; 4] = [
    workload("Opening", "open, raw key", Work::Open(Key::Raw)),
    workload(
        "Opening",
        "open, key of a keyring",
        Work::Open(Key::Keyring),
    ),
    workload("Opening", "open, passphrase", Work::Open(Key::Passphrase)),
    workload(
        "Memory",
        "heap and locked memory of a connection",
        Work::Memory,
    ),
];

const READERS: [(u32, &str, &str); 3] = [
    (1, "point reads, 1 process", "scan, 1 process"),
    (
        2,
        "point reads, 2 processes at once",
        "scan, 2 processes at once",
    ),
    (
        4,
        "point reads, 4 processes at once",
        "scan, 4 processes at once",
    ),
];

/// Those of which instructions are counted too.
pub(crate) const COUNTED: [Workload; 4] = [
    workload(
        "",
        "full scan of lineitem",
        Work::Query {
            sql: SCAN,
            cold: false,
        },
    ),
    workload(
        "",
        "point reads, one transaction",
        Work::Reads {
            count: 5000,
            one: true,
        },
    ),
    workload(
        "",
        "updates, WAL, a transaction each",
        updates("wal", "NORMAL", 1000, false),
    ),
    workload(
        "",
        "updates, rollback journal, a transaction each",
        updates("delete", "OFF", 1000, false),
    ),
];

impl Workload {
    /// Operations of one round, and what one is called; figures are shown for one.
    pub(crate) const fn operations(&self) -> (u32, &'static str) {
        match self.work {
            Work::Reads { count, .. } => (count, "read"),
            Work::Updates { count, .. } => (count, "update"),
            Work::Readers {
                scan: false,
                processes,
            } => (READS_EACH * processes, "read"),
            _ => (1, ""),
        }
    }

    /// Whether the figure is bytes.
    pub(crate) fn is_bytes(&self) -> bool {
        self.work == Work::Memory
    }

    /// Whether `engine` takes part.
    pub(crate) fn is_for(&self, engine: Engine) -> bool {
        match self.work {
            Work::Open(Key::Raw) => true,
            Work::Open(key) => engine.opens_with(key),
            _ => true,
        }
    }

    /// One round of one engine.
    pub(crate) fn once(
        &self,
        place: &Place,
        engine: Engine,
        round: u32,
        options: &Options,
    ) -> Result<Done, Failure> {
        if let Work::Readers { processes, scan } = self.work {
            return readers(place, engine, processes, scan, round, options.rows);
        }
        let script = self.script(place, engine, round, options.rows)?;
        let done = driver::run(&place.program(engine), &script)?;
        if self.work == Work::Load {
            std::fs::remove_file(place.path("load.db"))?;
        }
        Ok(done)
    }

    /// What the driver is told. `rows`: of lineitem.
    pub(crate) fn script(
        &self,
        place: &Place,
        engine: Engine,
        round: u32,
        rows: u32,
    ) -> Result<Script, Failure> {
        let mut script = Script::default();
        let kind = |one| if one { "one" } else { "each" };
        match self.work {
            Work::Query { sql, cold } => {
                if cold {
                    script.before = format!("cold {}\n", place.database(engine).display());
                }
                script.before.push_str(&place.opened(engine)?);
                script.measured = vec![format!("time {}", one_line(sql))];
            }
            Work::Reads { count, one } => {
                script.before = place.opened(engine)?;
                script.measured =
                    vec![format!("reads {count} {round} {rows} {} {READ}", kind(one))];
            }
            Work::Updates {
                journal,
                synchronous,
                count,
                one,
            } => {
                let modes = format!(
                    "sql PRAGMA journal_mode={journal}\nsql PRAGMA synchronous={synchronous}\n"
                );
                script.before = place.opened(engine)? + &modes;
                let value = self.value(round);
                script.measured = vec![format!(
                    "updates {count} {round} {rows} {} {value} {UPDATE}",
                    kind(one)
                )];
                if journal == "wal" {
                    script
                        .measured
                        .push("time PRAGMA wal_checkpoint(TRUNCATE)".to_owned());
                }
                script.compared =
                    vec!["time SELECT sum(l_tax) FROM lineitem NOT INDEXED".to_owned()];
                script.after = "sql PRAGMA journal_mode=delete\n".to_owned();
            }
            Work::Load => script = load(place, engine, rows)?,
            Work::Open(key) => {
                script.before = opening(place, engine, key)?;
                let count = if key == Key::Passphrase { 3 } else { 100 };
                script.measured = vec![format!("opens {count} SELECT count(*) FROM sqlite_schema")];
            }
            Work::Memory => {
                script.before = engine.prelude(place, &place.database(engine), Key::Raw)?;
                script.measured = vec!["hold 20 SELECT count(*) FROM region".to_owned()];
            }
            Work::Readers { .. } => return Err("several processes have several scripts".into()),
        }
        if self.mapped {
            script.before.push_str(MAPPED);
        }
        Ok(script)
    }

    /// What updates set: another value in each workload and round, for SQLite writes no page that
    /// stays as it was.
    fn value(&self, round: u32) -> f64 {
        let number = self
            .name
            .bytes()
            .fold(0_u32, |sum, byte| (sum * 31 + u32::from(byte)) % 997);
        f64::from(number) + f64::from(round) / 1024.0
    }
}

/// A fifth of lineitem into a new database.
fn load(place: &Place, engine: Engine, rows: u32) -> Result<Script, Failure> {
    let table = "INSERT INTO lineitem SELECT * FROM src.lineitem WHERE rowid <=";
    let opened = place.opened_at(engine, &place.path("load.db"))?;
    let before = format!(
        "{opened}{}sql CREATE TABLE lineitem AS SELECT * FROM src.lineitem WHERE 0\n",
        place.attach()
    );
    Ok(Script {
        before,
        measured: vec![
            "time BEGIN".to_owned(),
            format!("time {table} {}", rows / 5),
            "time CREATE INDEX one ON lineitem(l_orderkey, l_linenumber)".to_owned(),
            "time CREATE INDEX two ON lineitem(l_shipdate)".to_owned(),
            "time COMMIT".to_owned(),
        ],
        compared: vec![
            "time SELECT count(*), sum(l_extendedprice), max(l_comment) FROM lineitem".to_owned(),
        ],
        after: String::new(),
    })
}

/// A small database with that sort of key; made when it is first asked for.
fn opening(place: &Place, engine: Engine, key: Key) -> Result<String, Failure> {
    let name = match key {
        Key::Raw => "raw",
        Key::Keyring => "keyring",
        Key::Passphrase => "passphrase",
    };
    let path = place.path(&format!("small-{name}-{}.db", engine.name()));
    let prelude = engine.prelude(place, &path, key)?;
    if !path.exists() {
        let make = format!("{prelude}open\nsql CREATE TABLE t(a PRIMARY KEY, b)\nclose\n");
        driver::prepare(&place.program(engine), &make)?;
    }
    Ok(prelude)
}

const READS_EACH: u32 = 10_000;

fn readers(
    place: &Place,
    engine: Engine,
    processes: u32,
    scan: bool,
    round: u32,
    rows: u32,
) -> Result<Done, Failure> {
    let mut scripts = Vec::new();
    for number in 0..processes {
        let line = if scan {
            format!("time {SCAN}")
        } else {
            format!(
                "reads {READS_EACH} {} {rows} each {READ}",
                round * 16 + number
            )
        };
        scripts.push(Script {
            before: place.opened(engine)?,
            measured: vec![line],
            ..Script::default()
        });
    }
    Crowd::start(&place.program(engine), &scripts)?.go(&scripts)
}
