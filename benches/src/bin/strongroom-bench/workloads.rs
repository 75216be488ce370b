//! The workloads: each makes ready outside the clock, works under it, and returns what its peers
//! must return too.
//!
//! Must not: let one round's work change another's: updates set a value of their own, loads go to
//! new files.

use std::time::Duration;

use rusqlite::Connection;
use strongroom_benches::Failure;
use strongroom_benches::report::Line;
use strongroom_benches::stats::{Numbers, timed};
use strongroom_benches::tpch::{self, Answer, QUERIES, answer};
use strongroom_benches::variant::Variant;

use crate::latency;
use crate::options::Options;
use crate::setup::Place;

/// Rows read by key in one round.
const POINT_READS: u32 = 20_000;
/// Rows updated in one round of a workload with one transaction.
const UPDATES: u32 = 5_000;

/// Statements whose temporary files hold tens of megabytes: sorted runs that are written and merged
/// in order, and a transient index that is written and read at random.
const SPILLS: [(&str, &str); 2] = [
    (
        "sort of lineitem",
        "SELECT max(n) FROM (SELECT row_number() OVER (ORDER BY l_comment, l_partkey) AS n, * FROM lineitem)",
    ),
    (
        "distinct rows of a quarter of lineitem",
        "SELECT count(*) FROM (SELECT DISTINCT l_comment, l_partkey, l_orderkey, l_linenumber FROM lineitem
         WHERE l_orderkey < (SELECT max(l_orderkey) / 4 FROM lineitem))",
    ),
];

/// What a workload does.
#[derive(Clone, Copy)]
enum Work {
    Query(&'static str),
    PointReads { one_transaction: bool },
    Updates(Updates),
    Load,
    Open { by_keyring: bool },
}

/// How rows are updated.
#[derive(Clone, Copy)]
struct Updates {
    journal: &'static str,
    synchronous: &'static str,
    count: u32,
    one_transaction: bool,
    /// Which of these workloads it is: part of the value that is set.
    number: u32,
}

/// A workload.
#[derive(Clone, Copy)]
pub(crate) struct Workload {
    group: &'static str,
    pub(crate) name: &'static str,
    title: &'static str,
    work: Work,
}

/// Every workload, in the table's order.
pub(crate) fn all() -> Vec<Workload> {
    let of = |group, name, work| Workload {
        group,
        name,
        title: "",
        work,
    };
    let scan = "SELECT count(*), sum(l_quantity), sum(length(l_comment)) FROM lineitem NOT INDEXED";
    let mut all = vec![
        of("Reading", "full scan of lineitem", Work::Query(scan)),
        of(
            "Reading",
            "point reads, a transaction each",
            Work::PointReads {
                one_transaction: false,
            },
        ),
        of(
            "Reading",
            "point reads, one transaction",
            Work::PointReads {
                one_transaction: true,
            },
        ),
    ];
    all.extend(QUERIES.iter().map(|query| Workload {
        group: "TPC-H queries",
        name: query.name,
        title: query.title,
        work: Work::Query(query.sql),
    }));
    all.extend(SPILLS.map(|(name, sql)| of("Temporary files", name, Work::Query(sql))));
    all.extend(UPDATE_KINDS.iter().zip(1..).map(|(kind, number)| {
        let (name, journal, synchronous, count, one_transaction) = *kind;
        of(
            "Writing",
            name,
            Work::Updates(Updates {
                journal,
                synchronous,
                count,
                one_transaction,
                number,
            }),
        )
    }));
    all.push(of(
        "Writing",
        "bulk load of lineitem at a fifth of the scale, two indexes",
        Work::Load,
    ));
    all.push(of(
        "Opening",
        "open, key from a file",
        Work::Open { by_keyring: false },
    ));
    all.push(of(
        "Opening",
        "open, key from a keyring",
        Work::Open { by_keyring: true },
    ));
    all
}

/// The workload of that name.
pub(crate) fn named(name: &str) -> Result<Workload, Failure> {
    all()
        .into_iter()
        .find(|workload| workload.name == name)
        .ok_or_else(|| format!("no workload {name}").into())
}

/// Name, journal mode, synchronous, updates, all in one transaction.
const UPDATE_KINDS: [(&str, &str, &str, u32, bool); 6] = [
    (
        "updates, WAL, synchronous=NORMAL, a transaction each",
        "wal",
        "NORMAL",
        2000,
        false,
    ),
    (
        "updates, WAL, synchronous=FULL, a transaction each",
        "wal",
        "FULL",
        200,
        false,
    ),
    (
        "updates, WAL, synchronous=NORMAL, one transaction",
        "wal",
        "NORMAL",
        UPDATES,
        true,
    ),
    (
        "updates, rollback journal, synchronous=FULL, a transaction each",
        "delete",
        "FULL",
        100,
        false,
    ),
    (
        "updates, rollback journal, synchronous=OFF, a transaction each",
        "delete",
        "OFF",
        2000,
        false,
    ),
    (
        "updates, rollback journal, synchronous=FULL, one transaction",
        "delete",
        "FULL",
        UPDATES,
        true,
    ),
];

impl Workload {
    /// Its line of the table, without rounds.
    pub(crate) fn line(&self) -> Line {
        let (operations, operation) = match self.work {
            Work::Query(_) | Work::Load | Work::Open { .. } => (1, ""),
            Work::PointReads { .. } => (POINT_READS, "read"),
            Work::Updates(how) => (how.count, "update"),
        };
        let name = format!("{} {}", self.name, self.title);
        Line::new(self.group, name.trim_end(), operations, operation)
    }

    /// One round of one peer: how long it took, and what its peers must return too.
    pub(crate) fn once(
        &self,
        place: &Place,
        variant: Variant,
        round: u32,
        options: &Options,
    ) -> Result<(Duration, Answer), Failure> {
        match self.work {
            Work::Query(sql) => {
                let connection = place.open(variant)?;
                timed(|| answer(&connection, sql))
            }
            Work::PointReads { one_transaction } => {
                let connection = place.open(variant)?;
                let rows = rows(&connection)?;
                let (duration, sum) =
                    timed(|| point_reads(&connection, one_transaction, rows, round))?;
                Ok((duration, answer(&connection, &format!("SELECT {sum}"))?))
            }
            Work::Updates(how) => {
                let connection = place.open(variant)?;
                let rows = rows(&connection)?;
                connection.pragma_update(None, "journal_mode", how.journal)?;
                connection.pragma_update(None, "synchronous", how.synchronous)?;
                let (duration, ()) = timed(|| update(&connection, how, rows, round))?;
                let changed = answer(&connection, "SELECT sum(l_tax) FROM lineitem NOT INDEXED")?;
                connection.pragma_update(None, "journal_mode", "delete")?;
                Ok((duration, changed))
            }
            Work::Load => load(place, variant, options.scale / 5.0),
            Work::Open { by_keyring } => latency::measure(place, variant, by_keyring),
        }
    }
}

/// Rows of lineitem.
fn rows(connection: &Connection) -> Result<i64, Failure> {
    Ok(connection.query_row("SELECT max(rowid) FROM lineitem", [], |row| row.get(0))?)
}

/// Reads random rows by rowid; returns the sum of their quantities.
fn point_reads(connection: &Connection, one: bool, rows: i64, round: u32) -> Result<i64, Failure> {
    let mut numbers = Numbers::new(u64::from(round));
    let mut statement = connection.prepare("SELECT l_quantity FROM lineitem WHERE rowid = ?1")?;
    if one {
        connection.execute_batch("BEGIN")?;
    }
    let mut sum = 0;
    for _ in 0..POINT_READS {
        sum += statement.query_row([numbers.up_to(rows)], |row| row.get::<_, i64>(0))?;
    }
    if one {
        connection.execute_batch("COMMIT")?;
    }
    Ok(sum)
}

/// Sets a column of random rows to a value that no row has: SQLite does not write a page that an
/// update leaves as it was. In WAL mode the log is checkpointed under the clock as well.
fn update(connection: &Connection, how: Updates, rows: i64, round: u32) -> Result<(), Failure> {
    let mut numbers = Numbers::new(u64::from(round));
    let mut statement = connection.prepare("UPDATE lineitem SET l_tax = ?2 WHERE rowid = ?1")?;
    let tax = f64::from(how.number) + f64::from(round) / 1024.0;
    if how.one_transaction {
        connection.execute_batch("BEGIN IMMEDIATE")?;
    }
    for _ in 0..how.count {
        statement.execute((numbers.up_to(rows), tax))?;
    }
    if how.one_transaction {
        connection.execute_batch("COMMIT")?;
    }
    if how.journal == "wal" {
        let busy: i64 =
            connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
        if busy != 0 {
            return Err("the checkpoint did not finish".into());
        }
    }
    Ok(())
}

/// Loads rows, generated before the clock starts, into a new database.
fn load(place: &Place, variant: Variant, scale: f64) -> Result<(Duration, Answer), Failure> {
    let table = tpch::table("lineitem").ok_or("no lineitem")?;
    let rows = tpch::rows(table, scale)?.collect::<Result<Vec<_>, _>>()?;
    let path = place.path("load.db");
    let connection = place.open_at(variant, &path)?;
    let (duration, ()) = timed(|| {
        tpch::create(&connection)?;
        connection.execute_batch("BEGIN")?;
        tpch::insert(&connection, table, &rows)?;
        tpch::finish(&connection, table)?;
        Ok(connection.execute_batch("COMMIT")?)
    })?;
    let sums = answer(
        &connection,
        "SELECT count(*), sum(l_extendedprice), max(l_comment) FROM lineitem",
    )?;
    drop(connection);
    std::fs::remove_file(path)?;
    Ok((duration, sums))
}
