//! A plain column becomes a confidential one, or the other way, while the table is used.
//!
//! The new column is beside the old one until every row has both; then it takes the old one's place
//! in one transaction. The value goes to this process and back through the data owner's proxy,
//! which encrypts or decrypts it.
//!
//! Invariants C1 to C4 of docs/internals/columns.md. All state is the table's own, the new column
//! and its trigger, so after any interruption a second run continues the first.
//!
//! Must not: put a value into a note or an error.

mod copy;
mod database;
mod indexes;
mod plan;
mod swap;
mod table;

use strongroom_format::columns::Class;
use strongroom_keyring::Error;

pub use self::database::server_error;
use self::database::{Database, refusal};
use self::plan::Plan;
pub use self::table::Direction;
use self::table::Table;
use crate::server::StatementClient;

/// What is converted, and how.
#[derive(Clone, Debug)]
pub struct ConversionOptions {
    /// The table, as SQL names it.
    pub table: String,
    /// The column, as the catalog names it.
    pub column: String,
    /// Whether a table of another access method is rewritten, locked for readers and writers.
    pub rewrite: bool,
    /// What the server may learn of the order of the new column's values.
    pub class: Class,
    /// Seconds for which a lock is waited for before another attempt.
    pub lock_timeout_s: u32,
}

/// The first half of an advisory lock's number: "SRCV".
const LOCK_CLASS: i32 = 0x5352_4356;
const LOCK_TRIES: u32 = 600;
const LOCK_PAUSE: std::time::Duration = std::time::Duration::from_millis(100);

/// Converts the column, or continues a conversion that was interrupted. `connection` leads to the
/// data owner's proxy. `note` gets what the user should know. A column that is so already is left
/// as it is. At the end the table is locked, the old column dropped, and the new one, which is the
/// table's last, gets its name.
///
/// # Errors
/// SR-8121 when the column cannot be converted, or not now: another session converts one of the
/// table, or others hold locks on it all the time. SR-8122 for what the server refuses; SR-5001 for
/// a failure of the connection. What was converted stays converted.
pub fn convert(
    connection: StatementClient,
    options: &ConversionOptions,
    direction: Direction,
    note: &mut dyn FnMut(&str),
) -> Result<(), Error> {
    let mut database = Database::new(connection, note);
    let (mut table, superuser) = open_table(&mut database, options)?;
    if table.is_done(direction) {
        database.note("the column is so already: nothing to be done");
        return Ok(());
    }
    let plan = Plan::of(&mut database, &table, direction, options.class, superuser)?;
    for note in &plan.notes {
        database.note(note);
    }
    if direction == Direction::Confidential && table.access_method != "strongroom" {
        change_access_method(&mut database, &mut table, options.rewrite)?;
    }
    swap::begin(&mut database, &table, &plan)?;
    copy::check_proxy_and_prepare(&mut database, &table)?;
    copy::copy_rows(&mut database, &table)?;
    indexes::build(&mut database, &table, &plan)?;
    swap::finish(&mut database, &table, &plan)?;
    note_result(&mut database, &table, direction);
    Ok(())
}

/// Gives up a conversion that was begun: drops the new column and its trigger; the old column stays
/// as it is. Without a conversion under way it does nothing but say so.
///
/// # Errors
/// As [`convert`].
pub fn abandon(
    connection: StatementClient,
    options: &ConversionOptions,
    note: &mut dyn FnMut(&str),
) -> Result<(), Error> {
    let mut database = Database::new(connection, note);
    let (table, _) = open_table(&mut database, options)?;
    swap::abandon(&mut database, &table)
}

/// Prepares the session, takes the lock of the table's conversions, and limits the search path to
/// `pg_catalog`. Returns the table, and whether the user is a superuser. Fails with SR-8121 if the
/// table cannot be converted or another session converts it.
fn open_table(
    database: &mut Database<'_>,
    options: &ConversionOptions,
) -> Result<(Table, bool), Error> {
    let superuser = prepare_session(database, options.lock_timeout_s)?;
    let found = Table::read(database, &options.table, &options.column)?;
    lock_table_conversions(database, &found)?;
    // As it is now: the session that had the lock may just have changed it.
    let table = Table::read(database, &options.table, &options.column)?;
    // From here on every name is qualified.
    database.run("SET search_path = pg_catalog")?;
    Ok((table, superuser))
}

/// Rewrites the table for the access method `strongroom`, with readers and writers locked out.
/// Fails with SR-8121, and changes nothing, unless `rewrite` is set; otherwise as
/// [`Database::retry_until_locked`] does.
fn change_access_method(
    database: &mut Database<'_>,
    table: &mut Table,
    rewrite: bool,
) -> Result<(), Error> {
    if !rewrite {
        return Err(refusal(format!(
            "{} uses the access method {}, and confidential columns need strongroom: --rewrite changes that, \
             with readers and writers locked out while the table is rewritten",
            table.qualified(),
            table.access_method
        )));
    }
    database.note("rewriting the table for the access method strongroom");
    let change = format!(
        "ALTER TABLE {} SET ACCESS METHOD strongroom",
        table.qualified()
    );
    database.retry_until_locked(|connection| Ok(connection.run(&change).map(drop)?))?;
    "strongroom".clone_into(&mut table.access_method);
    Ok(())
}

/// Sets the session's settings; `lock_timeout` is in seconds. Returns whether the user is a
/// superuser; for one, the application's triggers are switched off in this session. Fails with
/// SR-8122 or SR-5001.
fn prepare_session(database: &mut Database<'_>, lock_timeout: u32) -> Result<bool, Error> {
    database.run(&format!(
        "SET lock_timeout = '{lock_timeout}s'; SET statement_timeout = 0; SET DateStyle = 'ISO'; SET IntervalStyle = 'postgres'; \
         SET TimeZone = 'UTC'; SET extra_float_digits = 1; SET bytea_output = 'hex'; SET row_security = off; SET synchronous_commit = off"
    ))?;
    let answer = database.run("SHOW is_superuser")?;
    let superuser = answer.rows == [[Some("on".to_owned())]];
    if superuser {
        // Triggers of the application concern changes of the application's; the conversion's own
        // one fires always.
        database.run("SET session_replication_role = replica")?;
    }
    Ok(superuser)
}

/// Takes the advisory lock of the table's conversions, for the rest of the session. Waits up to a
/// minute, because a session whose command was killed has it until the server has finished its
/// statement; then fails with SR-8121. Fails with SR-8122 or SR-5001 if a statement fails.
fn lock_table_conversions(database: &mut Database<'_>, table: &Table) -> Result<(), Error> {
    // An OID has 32 bits without a sign, the lock's number has one.
    let number = table.oid.parse().map(u32::cast_signed).unwrap_or(0);
    let sql = format!("SELECT pg_catalog.pg_try_advisory_lock({LOCK_CLASS}, {number})");
    for _ in 0..LOCK_TRIES {
        if database.run(&sql)?.rows == [[Some("t".to_owned())]] {
            return Ok(());
        }
        std::thread::sleep(LOCK_PAUSE);
    }
    Err(refusal("another session converts a column of this table"))
}

/// Tells the user that the column was converted, and where old values still are.
fn note_result(database: &mut Database<'_>, table: &Table, direction: Direction) {
    let (name, column) = (table.qualified(), &table.column.name);
    database.note(&format!(
        "converted: {name}, column {column}; it is now the table's last column"
    ));
    if direction == Direction::Confidential {
        database.note(&format!(
            "the old values are still in dead rows: VACUUM (FULL, ANALYZE) {name} removes them, with readers and writers locked out"
        ));
        database.note(
            "older than this command, and not reached by it: WAL and its archive, backups, replicas' files, free space of the disk. Make a \
             new base backup and remove the old ones with their WAL",
        );
    }
}
