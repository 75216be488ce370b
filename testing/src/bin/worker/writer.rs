//! Processes that write until they are done or killed, and say what they have committed.
//!
//! Must not: say a number before SQLite has said that it is committed.

use std::path::Path;

use rusqlite::Connection;
use strongroom_sqlite::{OpenOptions, ops};
use strongroom_testing::{bank as money, intercept, ledger as book};

use crate::{Failure, Given, say};

/// Opens `db`, and attaches `other` if it is given.
fn open(given: &Given) -> Result<Connection, Failure> {
    let connection = strongroom_sqlite::open(&given.path("db")?, &given.options("key")?)?;
    if given.number("mapped")? != 0 {
        connection.execute_batch("PRAGMA mmap_size=268435456")?;
    }
    if let Ok(other) = given.text("other") {
        let (key, freshness) = (given.text("key")?, given.number("freshness")?);
        let uri = format!("file:{other}?key_file={key}&freshness={freshness}");
        connection.execute("ATTACH ?1 AS other", [uri])?;
    }
    Ok(connection)
}

/// Commits numbered transactions from the last one on, `limit` of them or without end.
pub(crate) fn ledger(given: &Given) -> Result<(), Failure> {
    intercept::install().map_err(|rc| format!("system calls: {rc}"))?;
    let connection = open(given)?;
    let shape = book::Shape {
        journal: given.text("journal")?.to_owned(),
        synchronous: given.text("synchronous")?.to_owned(),
        auto_vacuum: given.text("auto_vacuum")?.to_owned(),
        freshness: given.number("freshness")? != 0,
    };
    let schemas = book::schemas(given.text("other").is_ok());
    for schema in schemas {
        book::prepare(&connection, schema, &shape)?;
    }
    let (seed, limit) = (given.number("seed")?, given.number("limit")?);
    let first = book::last(&connection, "main")?;
    let torn = intercept::Torn::of(given.number("torn")?);
    intercept::die_at(given.number("die_at")?, torn);
    say("ready")?;
    let mut n = first;
    while limit == 0 || n < first + limit.cast_signed() {
        n += 1;
        book::transact(&connection, schemas, seed, n)?;
        say(&n.to_string())?;
        if shape.auto_vacuum == "2" && n % 5 == 0 {
            connection.execute_batch("PRAGMA incremental_vacuum(20)")?;
        }
        if n % 17 == 0 {
            connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")?;
        }
    }
    drop(connection);
    say(&format!("calls {}", intercept::calls()))?;
    Ok(())
}

/// Transfers money.
pub(crate) fn bank(given: &Given) -> Result<(), Failure> {
    let connection = open(given)?;
    let id = u32::try_from(given.number("id")?)?;
    money::work(
        &connection,
        id,
        given.number("rounds")?,
        given.number("seed")?,
    )?;
    Ok(())
}

/// Looks until the file `stop` is there; opens the database anew every now and then.
pub(crate) fn watch(given: &Given) -> Result<(), Failure> {
    let mut looks = 0;
    let mut connection = open(given)?;
    loop {
        let last = Path::new(given.text("stop")?).exists();
        money::look(&connection)?;
        looks += 1;
        if last {
            break;
        }
        if looks % 20 == 0 {
            connection = open(given)?;
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    say(&looks.to_string())?;
    Ok(())
}

/// Gives the database a new data key, from `key` to `new`.
pub(crate) fn rekey(given: &Given) -> Result<(), Failure> {
    intercept::install().map_err(|rc| format!("system calls: {rc}"))?;
    intercept::die_at(given.number("die_at")?, intercept::Torn::Not);
    say("ready")?;
    let new = given.options("new")?.key;
    let outcome = ops::rekey(
        &given.path("db")?,
        &given.options("key")?,
        new.as_ref(),
        false,
        &mut |_, _| {},
    );
    let report = match outcome {
        // What a finished rekey answers when it is asked for again.
        Err(error) if error.code().number == 2002 => return Ok(say("refused")?),
        other => other?,
    };
    say(&format!(
        "done {} calls {}",
        report.epoch,
        intercept::calls()
    ))?;
    Ok(())
}

/// Seals the plain database `from` as `to`.
pub(crate) fn encrypt(given: &Given) -> Result<(), Failure> {
    copy(given, ops::encrypt)
}

/// Writes the sealed database `from` as the plain `to`.
pub(crate) fn decrypt(given: &Given) -> Result<(), Failure> {
    copy(given, ops::decrypt)
}

type Copy = fn(
    &Path,
    &Path,
    &OpenOptions,
    &mut dyn FnMut(u64, u64),
) -> Result<ops::Report, strongroom_sqlite::Error>;

fn copy(given: &Given, operation: Copy) -> Result<(), Failure> {
    intercept::install().map_err(|rc| format!("system calls: {rc}"))?;
    intercept::die_at(given.number("die_at")?, intercept::Torn::Not);
    say("ready")?;
    operation(
        &given.path("from")?,
        &given.path("to")?,
        &given.options("key")?,
        &mut |_, _| {},
    )?;
    say(&format!("done 1 calls {}", intercept::calls()))?;
    Ok(())
}
