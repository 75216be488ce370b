//! Loading the tables.
//!
//! Invariant: several connections get every batch in turn, so that a change of the machine's speed
//! meets all of them.
//! Must not: set a pragma: how durable and with how much memory is the caller's choice.

use std::time::{Duration, Instant};

use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

use crate::Failure;
use crate::tpch::{Kind, TABLES, Table, rows};

/// Rows generated at a time.
const BATCH: usize = 20_000;

/// Makes the tables, empty and without their indexes.
///
/// # Errors
/// SQLite's.
pub fn create(connection: &Connection) -> Result<(), Failure> {
    for table in TABLES {
        let columns: Vec<String> = table
            .columns
            .iter()
            .enumerate()
            .map(|(index, (name, kind))| {
                let key = if index == 0 && table.key {
                    " PRIMARY KEY"
                } else {
                    ""
                };
                format!("{name} {}{key} NOT NULL", declared(*kind))
            })
            .collect();
        connection.execute_batch(&format!(
            "CREATE TABLE {}({})",
            table.name,
            columns.join(", ")
        ))?;
    }
    Ok(())
}

fn declared(kind: Kind) -> &'static str {
    match kind {
        Kind::Integer => "INTEGER",
        Kind::Decimal => "REAL",
        Kind::Text => "TEXT",
    }
}

/// Inserts `batch`, within a transaction of the caller's.
///
/// # Errors
/// SQLite's.
pub fn insert(connection: &Connection, table: &Table, batch: &[Vec<Value>]) -> Result<(), Failure> {
    let places = vec!["?"; table.columns.len()].join(", ");
    let mut statement =
        connection.prepare_cached(&format!("INSERT INTO {} VALUES ({places})", table.name))?;
    for row in batch {
        statement.execute(params_from_iter(row))?;
    }
    Ok(())
}

/// Makes the indexes of `table`.
///
/// # Errors
/// SQLite's.
pub fn finish(connection: &Connection, table: &Table) -> Result<(), Failure> {
    for (number, columns) in table.indexes.iter().enumerate() {
        let name = format!("{}_{}", table.name, number + 1);
        connection.execute_batch(&format!("CREATE INDEX {name} ON {}({columns})", table.name))?;
    }
    Ok(())
}

/// Loads all tables at `scale` into each of `connections`, which get the same rows. Says how long
/// each connection worked, without the time that the rows took to generate.
///
/// # Errors
/// SQLite's, or the VFS's.
pub fn load(connections: &[&Connection], scale: f64) -> Result<Vec<Duration>, Failure> {
    let mut spent = vec![Duration::ZERO; connections.len()];
    each(connections, &mut spent, create)?;
    for table in TABLES {
        each(connections, &mut spent, |connection| {
            Ok(connection.execute_batch("BEGIN")?)
        })?;
        let mut rows = rows(table, scale)?;
        loop {
            let batch = rows.by_ref().take(BATCH).collect::<Result<Vec<_>, _>>()?;
            if batch.is_empty() {
                break;
            }
            each(connections, &mut spent, |connection| {
                insert(connection, table, &batch)
            })?;
        }
        each(connections, &mut spent, |connection| {
            finish(connection, table)?;
            Ok(connection.execute_batch("COMMIT")?)
        })?;
    }
    // The planner sees the same figures everywhere, so it makes the same plans.
    each(connections, &mut spent, |connection| {
        Ok(connection.execute_batch("ANALYZE")?)
    })?;
    Ok(spent)
}

fn each(
    connections: &[&Connection],
    spent: &mut [Duration],
    work: impl Fn(&Connection) -> Result<(), Failure>,
) -> Result<(), Failure> {
    for (connection, spent) in connections.iter().zip(spent) {
        let begin = Instant::now();
        work(connection)?;
        *spent += begin.elapsed();
    }
    Ok(())
}
