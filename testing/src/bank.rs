//! Several processes moving money in one database while others look: whatever they see adds up.
//!
//! Must not: retry a statement by hand; SQLite's busy handler has to be enough.

use std::time::Duration;

use rusqlite::Connection;

use crate::random::Random;

/// What all accounts hold together, always.
pub const TOTAL: i64 = 30_000;
const ACCOUNTS: u64 = 300;
const BUSY: Duration = Duration::from_secs(60);

/// Creates the accounts, and one counter for each of `workers`.
///
/// # Errors
/// SQLite's.
pub fn create(connection: &Connection, journal: &str, workers: u32) -> rusqlite::Result<()> {
    connection.execute_batch(&format!(
        "PRAGMA journal_mode={journal};
         BEGIN;
         CREATE TABLE account(id INTEGER PRIMARY KEY, v INT, note TEXT);
         CREATE INDEX account_v ON account(v);
         CREATE TABLE counter(id INTEGER PRIMARY KEY, c INT);
         WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n WHERE x<{ACCOUNTS})
         INSERT INTO account SELECT x, {TOTAL}/{ACCOUNTS}, printf('%.*c', 200, 'n') FROM n;
         WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n WHERE x<{workers})
         INSERT INTO counter SELECT x, 0 FROM n;
         COMMIT;"
    ))
}

/// Makes `rounds` transfers as worker `id`, each in a transaction of its own that also counts.
///
/// # Errors
/// SQLite's.
pub fn work(connection: &Connection, id: u32, rounds: u64, seed: u64) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY)?;
    let mut random = Random::new(seed ^ u64::from(id));
    for _ in 0..rounds {
        connection.execute_batch("BEGIN IMMEDIATE")?;
        let amount = random.below(50).cast_signed();
        for sign in [-1, 1] {
            let account = 1 + random.below(ACCOUNTS).cast_signed();
            connection.execute(
                "UPDATE account SET v=v+?1 WHERE id=?2",
                [sign * amount, account],
            )?;
        }
        if random.once_in(5) {
            // Moves a row, so that pages split and merge.
            let account = 1 + random.below(ACCOUNTS).cast_signed();
            connection.execute(
                "UPDATE account SET note=printf('%.*c', ?1, 'm') WHERE id=?2",
                [random.below(1500).cast_signed(), account],
            )?;
        }
        connection.execute("UPDATE counter SET c=c+1 WHERE id=?1", [id])?;
        connection.execute_batch("COMMIT")?;
        // SQLite's locks are not fair: without a pause the onlookers of a rollback journal may
        // never get in.
        std::thread::sleep(Duration::from_millis(3));
    }
    Ok(())
}

/// Looks once: the accounts by table, by index and by number, in one read transaction.
///
/// # Errors
/// SQLite's, or what did not add up.
pub fn look(connection: &Connection) -> Result<(), String> {
    connection
        .busy_timeout(BUSY)
        .map_err(|error| error.to_string())?;
    let sql = "SELECT (SELECT sum(v) FROM account NOT INDEXED), (SELECT sum(v) FROM account INDEXED BY account_v),
               (SELECT count(*) FROM account)";
    let seen: (i64, i64, i64) = connection
        .query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .map_err(|error| error.to_string())?;
    if seen == (TOTAL, TOTAL, ACCOUNTS.cast_signed()) {
        Ok(())
    } else {
        Err(format!("saw {seen:?}"))
    }
}
