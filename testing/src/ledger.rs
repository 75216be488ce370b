//! The transactions of the kill tests, and the check that all that were acknowledged are there and
//! nothing else is.
//!
//! Invariants of a database between transactions, which [`check`] verifies:
//! L1. `log` holds the numbers 1 to the last one, without a gap.
//! L2. Each of the last [`KEPT`] transactions has in `item` exactly the rows, of exactly the total
//!     length, that its log entry names; there are no other items: not of older, of rolled back, or
//!     of unfinished transactions.
//! L3. The accounts add up to zero.
//!
//! Must not: depend on time or on anything but the numbers given.

use rusqlite::{Connection, params};

use crate::random::Random;

/// How many transactions keep their items.
pub const KEPT: i64 = 12;
const ACCOUNTS: u64 = 40;

/// How a database is set up and written.
#[derive(Clone, Debug)]
pub struct Shape {
    /// `PRAGMA journal_mode`.
    pub journal: String,
    /// `PRAGMA synchronous`.
    pub synchronous: String,
    /// `PRAGMA auto_vacuum`.
    pub auto_vacuum: String,
    /// The VFS keeps freshness.
    pub freshness: bool,
}

/// The schemas that a transaction writes: the database alone, or with the one attached as `other`.
#[must_use]
pub const fn schemas(both: bool) -> &'static [&'static str] {
    if both { &["main", "other"] } else { &["main"] }
}

/// Sets the connection up, and creates the tables of `schema` if they are not there.
///
/// # Errors
/// SQLite's.
pub fn prepare(connection: &Connection, schema: &str, shape: &Shape) -> rusqlite::Result<()> {
    let Shape {
        journal,
        synchronous,
        auto_vacuum,
        freshness: _,
    } = shape;
    create(connection, schema, auto_vacuum)?;
    connection.execute_batch(&format!(
        "PRAGMA {schema}.journal_mode={journal};
         PRAGMA {schema}.synchronous={synchronous};
         PRAGMA {schema}.cache_size=8;
         PRAGMA cache_spill=1;"
    ))
}

fn create(connection: &Connection, schema: &str, auto_vacuum: &str) -> rusqlite::Result<()> {
    connection.execute_batch(&format!(
        "PRAGMA {schema}.auto_vacuum={auto_vacuum};
         BEGIN;
         CREATE TABLE IF NOT EXISTS {schema}.log(n INTEGER PRIMARY KEY, rows INT, bytes INT);
         CREATE TABLE IF NOT EXISTS {schema}.item(n INT, i INT, body TEXT, PRIMARY KEY(n, i)) WITHOUT ROWID;
         CREATE INDEX IF NOT EXISTS {schema}.item_body ON item(body);
         CREATE TABLE IF NOT EXISTS {schema}.account(id INTEGER PRIMARY KEY, v INT);
         WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c WHERE x<{ACCOUNTS})
         INSERT OR IGNORE INTO {schema}.account SELECT x, 0 FROM c;
         COMMIT;"
    ))?;
    let number = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0);
    let in_force = connection.query_row(&format!("PRAGMA {schema}.auto_vacuum"), [], number)?;
    if in_force.to_string() == auto_vacuum {
        return Ok(());
    }
    connection.execute_batch(&format!(
        "PRAGMA {schema}.auto_vacuum={auto_vacuum}; VACUUM {schema}"
    ))
}

/// The number of the last transaction in `schema`.
///
/// # Errors
/// SQLite's.
pub fn last(connection: &Connection, schema: &str) -> rusqlite::Result<i64> {
    connection.query_row(
        &format!("SELECT coalesce(max(n),0) FROM {schema}.log"),
        [],
        |row| row.get(0),
    )
}

/// Commits transaction `n` in all of `schemas`, after a rolled back one every now and then.
///
/// # Errors
/// SQLite's.
pub fn transact(
    connection: &Connection,
    schemas: &[&str],
    seed: u64,
    n: i64,
) -> rusqlite::Result<()> {
    let mut random = Random::new(seed ^ n.unsigned_abs().wrapping_mul(0x1000_0001));
    if random.once_in(4) {
        connection.execute_batch("BEGIN IMMEDIATE")?;
        for schema in schemas {
            write(connection, schema, &mut random, -n)?;
        }
        connection.execute_batch("ROLLBACK")?;
    }
    connection.execute_batch("BEGIN IMMEDIATE")?;
    for schema in schemas {
        write(connection, schema, &mut random, n)?;
    }
    connection.execute_batch("COMMIT")
}

fn write(
    connection: &Connection,
    schema: &str,
    random: &mut Random,
    n: i64,
) -> rusqlite::Result<()> {
    let sql = format!("INSERT INTO {schema}.item VALUES(?1, ?2, ?3)");
    let mut insert = connection.prepare_cached(&sql)?;
    let rows = 5 + random.below(40);
    let mut bytes = 0;
    for i in 0..rows {
        let longest = if random.once_in(10) { 9000 } else { 900 };
        let len = 20 + random.below(longest);
        let body = random.text(usize::try_from(len).unwrap_or(20));
        bytes += len;
        insert.execute(params![n, i.cast_signed(), body])?;
    }
    if random.once_in(3) {
        // A statement that is undone within the transaction.
        connection.execute_batch(&format!(
            "SAVEPOINT s; UPDATE {schema}.item SET body=body||'undone'; DELETE FROM {schema}.log; ROLLBACK TO s; RELEASE s"
        ))?;
    }
    connection.execute(
        &format!("DELETE FROM {schema}.item WHERE n>0 AND n<=?1-{KEPT}"),
        [n.abs()],
    )?;
    let amount = random.below(1000).cast_signed();
    let (from, to) = (
        1 + random.below(ACCOUNTS).cast_signed(),
        1 + random.below(ACCOUNTS).cast_signed(),
    );
    connection.execute(
        &format!("UPDATE {schema}.account SET v=v-?1 WHERE id=?2"),
        [amount, from],
    )?;
    connection.execute(
        &format!("UPDATE {schema}.account SET v=v+?1 WHERE id=?2"),
        [amount, to],
    )?;
    let log = format!("INSERT INTO {schema}.log VALUES(?1, ?2, ?3)");
    connection.execute(&log, params![n, rows.cast_signed(), bytes.cast_signed()])?;
    Ok(())
}

/// Verifies L1 to L3 and SQLite's own `integrity_check`; returns the last transaction's number.
///
/// # Errors
/// What is wrong, in words.
pub fn check(connection: &Connection, schema: &str) -> Result<i64, String> {
    let number = |sql: &str| -> Result<i64, String> {
        let sql = sql
            .replace("{schema}", schema)
            .replace("{KEPT}", &KEPT.to_string());
        connection
            .query_row(&sql, [], |row| row.get(0))
            .map_err(|error| format!("{sql}: {error}"))
    };
    let last = number("SELECT coalesce(max(n),0) FROM {schema}.log")?;
    let expect = |sql: &str, expected: i64| -> Result<(), String> {
        let found = number(sql)?;
        if found == expected {
            Ok(())
        } else {
            Err(format!("after {last}: {sql} is {found}, not {expected}"))
        }
    };
    expect("SELECT count(*) FROM {schema}.log", last)?;
    expect("SELECT coalesce(min(n),1) FROM {schema}.log", 1)?;
    expect("SELECT sum(v) FROM {schema}.account", 0)?;
    expect(
        "SELECT count(*) FROM {schema}.log l WHERE n>(SELECT max(n) FROM {schema}.log)-{KEPT} AND (rows, bytes) IS NOT
         (SELECT count(*), sum(length(body)) FROM {schema}.item i WHERE i.n=l.n)",
        0,
    )?;
    expect(
        "SELECT count(*) FROM {schema}.item WHERE n<=(SELECT max(n) FROM {schema}.log)-{KEPT}
         OR n NOT IN (SELECT n FROM {schema}.log)",
        0,
    )?;
    let sql = format!("PRAGMA {schema}.integrity_check");
    let integrity: String = connection
        .query_row(&sql, [], |row| row.get(0))
        .map_err(|error| format!("{sql}: {error}"))?;
    if integrity == "ok" {
        Ok(last)
    } else {
        Err(format!("after {last}: {integrity}"))
    }
}
