//! The workloads: each makes ready outside the clock, works under it, and returns what its peers must return too.
//!
//! Must not: let one round's work change another's: updates set a value of their own, loads go to new files.

use rusqlite::Connection;
use rusqlite::types::Value;
use strongroom_benches::Failure;
use strongroom_benches::report::Line;
use strongroom_benches::stats::{Numbers, timed};
use strongroom_benches::tpch::{self, QUERIES, Table, answer};
use strongroom_benches::variant::Variant;

use crate::setup::Databases;
use crate::{Options, order};

/// Rows read by key in one round.
const POINT_READS: u32 = 20_000;
/// Rows updated in one round of a workload with one transaction.
const UPDATES: u32 = 5_000;

/// Statements whose temporary files hold tens of megabytes: sorted runs that are written and merged in order, and a
/// transient index that is written and read at random.
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
enum Work {
    Query(&'static str),
    PointReads { one_transaction: bool },
    Updates(Updates),
    Load { table: &'static Table, rows: Vec<Vec<Value>> },
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

/// A workload and its rounds.
pub(crate) struct Workload {
    pub(crate) line: Line,
    work: Work,
    /// Rows of lineitem.
    rows: i64,
}

/// Every workload, in the table's order.
pub(crate) fn all(databases: &Databases, options: &Options) -> Result<Vec<Workload>, Failure> {
    let connection = databases.open(Variant::Stock)?;
    let rows = connection.query_row("SELECT max(rowid) FROM lineitem", [], |row| row.get(0))?;
    let mut all = vec![Workload::new(
        Line::new("Reading", "full scan of lineitem", 1, ""),
        Work::Query("SELECT count(*), sum(l_quantity), sum(length(l_comment)) FROM lineitem NOT INDEXED"),
    )];
    for (name, one_transaction) in [("point reads, a transaction each", false), ("point reads, one transaction", true)] {
        let line = Line::new("Reading", name, POINT_READS, "read");
        all.push(Workload::new(line, Work::PointReads { one_transaction }));
    }
    for query in QUERIES {
        let line = Line::new("TPC-H queries", format!("{} {}", query.name, query.title), 1, "");
        all.push(Workload::new(line, Work::Query(query.sql)));
    }
    for (name, sql) in SPILLS {
        all.push(Workload::new(Line::new("Temporary files", name, 1, ""), Work::Query(sql)));
    }
    all.extend(updates());
    let table = tpch::table("lineitem").ok_or("no lineitem")?;
    let rows_to_load = tpch::rows(table, options.scale / 5.0)?.collect::<Result<Vec<_>, _>>()?;
    let count = u32::try_from(rows_to_load.len())?;
    all.push(Workload::new(
        Line::new("Writing", "bulk load of lineitem at a fifth of the scale, two indexes", count, "row"),
        Work::Load { table, rows: rows_to_load },
    ));
    for workload in &mut all {
        workload.rows = rows;
    }
    Ok(all)
}

fn updates() -> impl Iterator<Item = Workload> {
    let kinds = [
        ("WAL, synchronous=NORMAL, a transaction each", "wal", "NORMAL", 2000, false),
        ("WAL, synchronous=FULL, a transaction each", "wal", "FULL", 200, false),
        ("WAL, synchronous=NORMAL, one transaction", "wal", "NORMAL", UPDATES, true),
        ("rollback journal, synchronous=FULL, a transaction each", "delete", "FULL", 100, false),
        ("rollback journal, synchronous=OFF, a transaction each", "delete", "OFF", 2000, false),
        ("rollback journal, synchronous=FULL, one transaction", "delete", "FULL", UPDATES, true),
    ];
    kinds.into_iter().zip(1..).map(|((name, journal, synchronous, count, one_transaction), number)| {
        let line = Line::new("Writing", format!("updates, {name}"), count, "update");
        Workload::new(line, Work::Updates(Updates { journal, synchronous, count, one_transaction, number }))
    })
}

impl Workload {
    fn new(line: Line, work: Work) -> Self {
        Self { line, work, rows: 0 }
    }

    /// One round on all peers.
    pub(crate) fn round(&mut self, databases: &Databases, round: u32) -> Result<(), Failure> {
        let mut first: Option<tpch::Answer> = None;
        for variant in order(round) {
            let (duration, result) = self.once(databases, variant, round)?;
            self.line.push(variant, duration);
            match &first {
                Some(first) if *first != result => {
                    return Err(format!("{}: {} returned something else", self.line.name, variant.name()).into());
                }
                Some(_) => {}
                None => first = Some(result),
            }
        }
        Ok(())
    }

    fn once(
        &self,
        databases: &Databases,
        variant: Variant,
        round: u32,
    ) -> Result<(std::time::Duration, tpch::Answer), Failure> {
        match &self.work {
            Work::Query(sql) => {
                let connection = databases.open(variant)?;
                timed(|| answer(&connection, sql))
            }
            Work::PointReads { one_transaction } => {
                let connection = databases.open(variant)?;
                let (duration, sum) = timed(|| point_reads(&connection, *one_transaction, self.rows, round))?;
                Ok((duration, answer(&connection, &format!("SELECT {sum}"))?))
            }
            Work::Updates(how) => {
                let connection = databases.open(variant)?;
                connection.pragma_update(None, "journal_mode", how.journal)?;
                connection.pragma_update(None, "synchronous", how.synchronous)?;
                let (duration, ()) = timed(|| update(&connection, *how, self.rows, round))?;
                let changed = answer(&connection, "SELECT sum(l_tax) FROM lineitem NOT INDEXED")?;
                connection.pragma_update(None, "journal_mode", "delete")?;
                Ok((duration, changed))
            }
            Work::Load { table, rows } => load(databases, variant, table, rows),
        }
    }
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

/// Sets a column of random rows to a value that no row has: SQLite does not write a page that an update leaves as it
/// was. In WAL mode the log is checkpointed under the clock as well.
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
        let busy: i64 = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
        if busy != 0 {
            return Err("the checkpoint did not finish".into());
        }
    }
    Ok(())
}

/// Loads rows into a new database.
fn load(
    databases: &Databases,
    variant: Variant,
    table: &'static Table,
    rows: &[Vec<Value>],
) -> Result<(std::time::Duration, tpch::Answer), Failure> {
    let path = databases.path("load.db");
    let connection = databases.open_at(variant, &path)?;
    let (duration, ()) = timed(|| {
        tpch::create(&connection)?;
        connection.execute_batch("BEGIN")?;
        tpch::insert(&connection, table, rows)?;
        tpch::finish(&connection, table)?;
        Ok(connection.execute_batch("COMMIT")?)
    })?;
    let sums = answer(&connection, "SELECT count(*), sum(l_extendedprice), max(l_comment) FROM lineitem")?;
    drop(connection);
    std::fs::remove_file(path)?;
    Ok((duration, sums))
}
