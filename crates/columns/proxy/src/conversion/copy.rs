//! The rows: each value comes through the proxy and goes back into the new column.
//!
//! Invariants: a row that another session has locked is passed over, never waited for, so that this
//! command is part of no deadlock; a row is locked from when its value is read until it is written.
//! Must not: print or keep a value.

use strongroom_format::code;
use strongroom_keyring::Error;
use strongroom_postgres_wire::client::{Answer, Error as ServerError, StatementClient};

use super::database::{AttemptError, Database, refusal, server_error};
use super::table::{Table, field};
use crate::server::identifier;

/// Blocks of the table that are looked at together.
const BLOCKS: u64 = 64;
/// Rows of one transaction.
const ROWS: usize = 200;
/// Fewer rows left than this, and the rest is done under the lock of the swap.
const FEW: u64 = 1000;
/// Passes after which the rest is done under the lock whatever is left: writers are as fast as this
/// command then.
const PASSES: u32 = 20;
/// OIDs below this are PostgreSQL's own types (access/transam.h).
const FIRST_NORMAL: u32 = 16384;

const READ: &str = "strongroom_read";
const WRITE: &str = "strongroom_write";

/// Checks that the connection leads to the proxy, and prepares the two statements that
/// [`copy_batch`] executes. Fails with SR-8121 if values would come as envelopes: then it leads to
/// the server; and with SR-8122 or SR-5001 if a statement fails.
pub(super) fn check_proxy_and_prepare(
    database: &mut Database<'_>,
    table: &Table,
) -> Result<(), Error> {
    let (old, new) = (
        identifier(&table.column.name),
        identifier(&table.new_column()),
    );
    let sql = format!(
        "SELECT x.{old}, x.{new} FROM ONLY {} x LIMIT 0",
        table.qualified()
    );
    let answer = database.run(&sql)?;
    if answer.types.len() != 2 || answer.types.iter().any(|oid| *oid >= FIRST_NORMAL) {
        return Err(refusal(
            "this connection shows envelopes: connect to the data owner's proxy, not to the server",
        ));
    }
    let qualified = table.qualified();
    let read = format!(
        "SELECT x.ctid, x.{old} FROM ONLY {qualified} x WHERE x.ctid >= $1::tid AND x.ctid < $2::tid \
         AND x.{old} IS NOT NULL AND x.{new} IS NULL LIMIT {ROWS} FOR NO KEY UPDATE SKIP LOCKED"
    );
    let prepare = |database: &mut Database<'_>, name: &str, sql: &str| {
        let prepared = database.connection.prepare(name, sql);
        prepared.map_err(|error| server_error(&error))
    };
    prepare(database, READ, &read)?;
    // The proxy replaces the parameter by a value of the new column's type.
    let write = format!("UPDATE ONLY {qualified} AS x SET {new} = $1 WHERE x.ctid = $2::tid");
    prepare(database, WRITE, &write)?;
    Ok(())
}

/// Converts rows, each pass in many transactions, until a pass has converted fewer than [`FEW`] or
/// [`PASSES`] are done. Rows that other sessions have locked are passed over. Fails as
/// [`Database::retry_until_locked`] does; what was converted stays converted.
pub(super) fn copy_rows(database: &mut Database<'_>, table: &Table) -> Result<(), Error> {
    for pass in 1..=PASSES {
        let converted = convert_pass(database, &table.oid)?;
        if converted > 0 {
            database.note(&format!("pass {pass}: {converted} rows converted"));
        }
        if converted < FEW {
            return Ok(());
        }
    }
    Ok(())
}

/// Goes through the table of this OID once and converts the rows that no other session has locked,
/// one transaction for each batch; returns how many. A batch that meets a lock or a deadlock is
/// tried again after a pause. Fails as [`Database::retry_until_locked`] does.
fn convert_pass(database: &mut Database<'_>, oid: &str) -> Result<u64, Error> {
    let mut converted = 0_u64;
    let mut from = 0_u64;
    let end = block_count(&mut database.connection, oid).map_err(|error| server_error(&error))?;
    while from < end {
        let mut count = 0;
        database.retry_until_locked(|connection| {
            count = copy_batch(connection, from, BLOCKS)?;
            Ok(())
        })?;
        converted = converted.saturating_add(count);
        if usize::try_from(count).is_ok_and(|count| count < ROWS) {
            from = from.saturating_add(BLOCKS);
        }
    }
    Ok(converted)
}

/// Converts every row that is left, in the transaction under way, which must have locked writers
/// out; returns how many. Fails as [`copy_batch`] does.
pub(super) fn copy_rest(
    connection: &mut StatementClient,
    table: &Table,
) -> Result<u64, AttemptError> {
    let mut converted = 0_u64;
    let mut from = 0_u64;
    let end = block_count(connection, &table.oid)?;
    while from < end {
        let count = copy_batch(connection, from, BLOCKS)?;
        converted = converted.saturating_add(count);
        if usize::try_from(count).is_ok_and(|count| count < ROWS) {
            from = from.saturating_add(BLOCKS);
        }
    }
    Ok(converted)
}

/// Asks the server how many blocks the table of this OID has now.
fn block_count(connection: &mut StatementClient, oid: &str) -> Result<u64, ServerError> {
    let sql = format!(
        "SELECT pg_catalog.pg_relation_size({oid}) / pg_catalog.current_setting('block_size')::int8"
    );
    let answer = connection.run(&sql)?;
    let count = answer
        .rows
        .first()
        .and_then(|row| field(row, 0).parse().ok());
    count.ok_or_else(|| ServerError::protocol("the size of a table is no number"))
}

/// Converts at most [`ROWS`] rows of a range of blocks, in the transaction under way, and returns
/// how many. Fails with the server's error, or with SR-9001 if fewer rows were written than were
/// locked.
fn copy_batch(
    connection: &mut StatementClient,
    from: u64,
    blocks: u64,
) -> Result<u64, AttemptError> {
    let to = from.saturating_add(blocks);
    let range = vec![Some(format!("({from},0)")), Some(format!("({to},0)"))];
    let Answer { rows, .. } = connection.execute_each(READ, &[range])?;
    if rows.is_empty() {
        return Ok(0);
    }
    let count = rows.len() as u64;
    let mut changes = Vec::with_capacity(rows.len());
    for row in rows {
        let [place, value] =
            <[_; 2]>::try_from(row).map_err(|_| ServerError::protocol("a row of another width"))?;
        changes.push(vec![value, place]);
    }
    let written = connection.execute_each(WRITE, &changes)?.written;
    if written != count {
        let what = format!("{count} rows were locked and {written} written");
        return Err(AttemptError::Refused(Error::new(&code::BUG, what)));
    }
    Ok(count)
}

/// Checks that no row has a value in one of the two columns only; otherwise fails with SR-8121.
/// Fails with the server's error if the check itself fails.
pub(super) fn check_complete(
    connection: &mut StatementClient,
    table: &Table,
) -> Result<(), AttemptError> {
    let (old, new) = (
        identifier(&table.column.name),
        identifier(&table.new_column()),
    );
    let sql = format!(
        "SELECT FROM ONLY {} x WHERE (x.{old} IS NULL) <> (x.{new} IS NULL) LIMIT 1",
        table.qualified()
    );
    if connection.run(&sql)?.rows.is_empty() {
        return Ok(());
    }
    Err(AttemptError::Refused(unconverted()))
}

/// Makes the error (SR-8121) for rows that have a value in one of the columns only.
fn unconverted() -> Error {
    refusal("rows are left that have a value in one of the columns only: run the command again")
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use strongroom_postgres_wire::client::{Config, Socket};
    use strongroom_postgres_wire::{Message, append, read, read_startup};

    use super::*;

    /// More attempts than the server endures.
    const ENDURED: usize = 1000;

    fn message(tag: u8, body: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        append(&mut out, tag, body);
        out
    }

    /// A server whose tables have one block, and where every batch of rows meets this error. Counts
    /// these, and goes away when there are too many.
    fn serve(mut socket: UnixStream, error: &[u8]) -> usize {
        let (complete, ready) = (message(b'C', b"SELECT 0\0"), message(b'Z', b"I"));
        let row = message(b'D', b"\0\x01\0\0\0\x011");
        let error = message(b'E', error);
        read_startup(&mut socket).unwrap();
        let accepted = [message(b'R', &[0; 4]), ready.clone()].concat();
        socket.write_all(&accepted).unwrap();
        let mut met = 0;
        while let Ok(Some(Message { tag, body })) = read(&mut socket) {
            let answer = match tag {
                b'Q' if body.starts_with(b"SELECT") => [&row[..], &complete, &ready].concat(),
                b'Q' => [&complete[..], &ready].concat(),
                b'S' => {
                    met += 1;
                    [&error[..], &ready].concat()
                }
                _ => continue,
            };
            if met > ENDURED || socket.write_all(&answer).is_err() {
                break;
            }
        }
        met
    }

    /// What becomes of a conversion all of whose batches meet this error; how many did.
    fn met(error: &'static [u8]) -> (Error, usize) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let server = std::thread::spawn(move || serve(theirs, error));
        let config = Config::without_tls("owner", "shop", None);
        let connection = StatementClient::on_socket(Socket::Local(ours), &config).unwrap();
        let mut notes = 0;
        let mut note = |_: &str| notes += 1;
        let mut database = Database::new(connection, &mut note);
        database.pause = Duration::ZERO;
        let error = convert_pass(&mut database, "16384").unwrap_err();
        drop(database);
        let met = server.join().unwrap();
        assert!((2..ENDURED).contains(&met), "{met}");
        assert!(notes == met || notes + 1 == met, "{notes} {met}");
        (error, met)
    }

    #[test]
    fn a_batch_that_always_meets_a_lock_is_given_up() {
        let (error, _) = met(b"SERROR\0VERROR\0C40P01\0Mdeadlock detected\0\0");
        assert_eq!(error.code(), &code::COLUMN_CONVERT, "{error}");
    }

    /// The proxy may not know yet what a conversion that was killed has left.
    #[test]
    fn a_batch_whose_column_is_not_named_is_tried_for_longer_than_the_proxy_waits() {
        let (error, met) = met(b"SERROR\0VERROR\0C42501\0Mnot for this column (SR-8031)\0\0");
        assert_eq!(error.code(), &code::COLUMN_SERVER, "{error}");
        assert!(
            super::super::database::PAUSE * u32::try_from(met).unwrap()
                > crate::relations::LEFT_LIMIT
        );
    }
}
