//! Gives a database in use a new data key. The rekey is begun in the header, every page is sealed
//! again through SQLite's own transactions, and the rekey is finished in the header.
//! docs/internals/rekey.md.
//!
//! Invariants:
//! R1. From the header's "begun" to its "finished" both keys open pages, and every write uses the
//!     new one.
//! R2. A transaction of SQLite's seals a page again, so a crash at any point leaves the page whole
//!     under one of the keys.
//! R3. The old key is erased from the header only when, under the write lock and with an empty log,
//!     no page of the file names its epoch; pages after the database's end were cut off.
//!
//! Must not: write a page itself, or open the file by path (closing it would drop SQLite's locks).

use std::path::Path;
use std::sync::Arc;

use strongroom_format::code::{self, Class};
use strongroom_format::header::ObjectKind;
use strongroom_format::layout::u32_at;
use strongroom_format::sqlite::{lock_byte_page, page_offset, tail_layout};
use strongroom_keyring::{Error, Object, Opener, Recipient, redo};

use crate::connection::{execute, file_of_schema};
use crate::ffi::{SQLITE_SYNC_FULL, sqlite3};
use crate::handle::with;
use crate::io_methods::IoMethods as _;
use crate::lower::LowerFile;
use crate::main_file::MainFile;
use crate::page_tail::TAIL;
use crate::query;
use crate::query::{pragma_number, quote_identifier};
use crate::report::take_last;
use crate::sealed::OpenedHeader;
use crate::sqlite_code::SqliteCode;
use crate::wal::log_length;

/// Pages per transaction of the sweep: enough to be fast, and few enough for other connections to
/// write in between.
const BATCH: u64 = 512;
/// How often finishing is tried before other connections are reported to prevent it.
const FINISH_TRIES: u32 = 20;

/// The result of a rekey.
#[derive(Clone, Copy, Debug)]
pub struct RekeyReport {
    /// Pages sealed again by this call.
    pub pages: u64,
    /// The key epoch now in force.
    pub epoch: u32,
    /// This call finished a rekey that was begun earlier.
    pub resumed: bool,
}

/// Gives the database of `schema` a new data key, which `new` opens, or else the slot with which it
/// was opened, and seals every page again. A rekey that was begun and not finished is finished
/// first; if `new` does not open the database after that, because the interrupted rekey was for
/// another key, everything is done once more for `new`. `progress` gets the number of pages done
/// and of all pages.
///
/// # Errors
/// SR-6010 when other connections prevent it from finishing (call it again), SR-1005 within a
/// transaction, SR-3001 when the database is not sealed, SR-2012 for a retired key, and those of
/// reading and writing. The database is usable in every case: with the old key before the first
/// change of the header, and with the new one after it.
pub fn rekey(
    connection: *mut sqlite3,
    schema: &str,
    new: Option<&Opener>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<RekeyReport, Error> {
    let recipient = new.map(Opener::recipient).transpose()?;
    let mut report = begin_or_resume(connection, schema, recipient.as_ref(), progress)?;
    if let Some(new) = new
        && report.resumed
        && !opens(connection, schema, new)?
    {
        let again = begin_or_resume(connection, schema, recipient.as_ref(), progress)?;
        report.pages += again.pages;
        report.epoch = again.epoch;
    }
    Ok(report)
}

/// Begins a rekey in the header, for `recipient` or for the slot in use, seals every page again,
/// and finishes it in the header. If a rekey is under way already, finishes that one instead, for
/// the recipient that it was begun for: `recipient` is passed over, and `resumed` in the report is
/// true. Fails as [`rekey`] does.
fn begin_or_resume(
    connection: *mut sqlite3,
    schema: &str,
    recipient: Option<&Recipient>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<RekeyReport, Error> {
    let resumed = in_write_transaction(connection, schema, |main, _| {
        // A torn page of the free list would stop the sweep, which reads every page.
        main.reseal_torn_leaves(|_| true).map_err(rc_error)?;
        let opened = reload_opened_header(main)?;
        if opened.object.previous_epoch().is_some() {
            return Ok(true);
        }
        let recipients: Vec<&Recipient> = recipient.into_iter().collect();
        replace_header(main, opened.object.rekey_begun(&recipients)?)?;
        Ok(false)
    })?;
    let pages = sweep(connection, schema, progress)?;
    let epoch = finish(connection, schema)?;
    Ok(RekeyReport {
        pages,
        epoch,
        resumed,
    })
}

/// Whether `opener` opens the header that is in force. For a passphrase this runs Argon2id. The
/// errors are those of reading the header, and SR-5001 without memory for the key.
fn opens(connection: *mut sqlite3, schema: &str, opener: &Opener) -> Result<bool, Error> {
    let header = with_main(connection, schema, |main| {
        Ok(reload_opened_header(main)?.object.header_bytes())
    })?;
    match Object::open(&header, ObjectKind::Sqlite, opener) {
        Ok(_) => Ok(true),
        Err(error) if error.code().class == Class::Key => Ok(false),
        Err(error) => Err(error),
    }
}

/// Gives the same data key to `recipient` alone: rewrites the key slots in the header, durably, and
/// no page. Other slots are gone.
///
/// # Errors
/// SR-6010 when the database is locked, SR-1005 within a transaction, SR-3001 when it is not
/// sealed, SR-2012 for a retired key, and those of reading and writing.
pub fn rewrap(connection: *mut sqlite3, schema: &str, recipient: &Recipient) -> Result<(), Error> {
    in_write_transaction(connection, schema, |main, _| {
        let opened = reload_opened_header(main)?;
        replace_header(main, opened.object.rewrapped(&[recipient])?)
    })
}

/// Runs `work` on the sealed database of `schema` while the connection holds SQLite's write lock
/// and has changed nothing, then rolls SQLite's transaction back, also after an error. `work` gets
/// the number of pages of the database, `None` if it is not known. SR-6010 if the database is
/// locked, SR-1005 within a transaction, SR-3001 if it is not sealed.
pub(crate) fn in_write_transaction<T>(
    connection: *mut sqlite3,
    schema: &str,
    work: impl FnOnce(&mut MainFile, Option<u64>) -> Result<T, Error>,
) -> Result<T, Error> {
    let sql = |text: &str| execute(connection, text).map_err(|message| sql_error(&message));
    // This begins with a read of the one database: BEGIN IMMEDIATE alone would lock every attached
    // database.
    sql("BEGIN")?;
    let result = lock_schema(connection, schema).and_then(|()| {
        // No other connection can change its length now.
        let pages = pragma_number(connection, &quote_identifier(schema), "page_count");
        let pages = pages.and_then(|pages| u64::try_from(pages).ok());
        with_main(connection, schema, |main| work(main, pages))
    });
    // Nothing was written through SQLite; ending the transaction releases the lock.
    sql("ROLLBACK")?;
    result
}

/// Takes the write lock of one schema, by writing a value that it has already. SR-6010 if another
/// connection has it.
fn lock_schema(connection: *mut sqlite3, schema: &str) -> Result<(), Error> {
    let name = quote_identifier(schema);
    let version = pragma_number(connection, &name, "user_version").unwrap_or(0);
    execute(connection, &format!("PRAGMA {name}.user_version={version}"))
        .map_err(|message| sql_error(&message))
}

/// Reads the header from the file again, since another process may have changed it, and returns it.
/// SR-2001 if no key has opened the database.
pub(crate) fn reload_opened_header(main: &mut MainFile) -> Result<Arc<OpenedHeader>, Error> {
    main.reload_header().map_err(rc_error)?;
    main.opened_header()
        .cloned()
        .ok_or_else(|| Error::new(&code::NO_KEY, ""))
}

/// Writes the header of `object` durably, through SQLite's own file object and with a redo copy
/// beside the database, which is removed afterwards. Then puts it into force for all connections of
/// this process. SR-2001 if no key has opened the database; SR-5001 if a file cannot be written.
fn replace_header(main: &mut MainFile, object: Object) -> Result<(), Error> {
    let lower = main.lower();
    let path = main.path().to_owned();
    redo::rewrite_header_through(Path::new(&path), &object, &mut |bytes| {
        lower
            .write(bytes, 0)
            .and_then(|()| lower.sync(SQLITE_SYNC_FULL))
            .map_err(rc_error)
    })?;
    let Some(sealed) = main.sealed() else {
        return Err(Error::new(&code::NO_KEY, path));
    };
    // The new header is passed on rather than read back: the keys that the old header retains may
    // not open it.
    sealed.replace_header(Arc::new(OpenedHeader::new(object)?));
    main.reload_header().map_err(rc_error)
}

/// Seals again every page that still names an older epoch, 512 pages in a transaction, or all with
/// VACUUM where SQLite has no `sqlite_dbpage`. Returns their number. `progress` gets pages done and
/// pages in all. Errors are those of reading and writing the pages, such as SR-6010 or SR-4001.
fn sweep(
    connection: *mut sqlite3,
    schema: &str,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<u64, Error> {
    let name = quote_identifier(schema);
    let count =
        |what| pragma_number(connection, &name, what).and_then(|pages| u64::try_from(pages).ok());
    let total = count("page_count").unwrap_or(0);
    if !has_page_table(connection) {
        // VACUUM writes every page in one transaction.
        execute(connection, &format!("VACUUM {name}")).map_err(|message| sql_error(&message))?;
        let total = count("page_count").unwrap_or(total);
        progress(total, total);
        return Ok(total);
    }
    let mut done = 0;
    let mut first = 1;
    while first <= total {
        let last = first.saturating_add(BATCH - 1).min(total);
        let stale = stale_pages(connection, schema, first, last)?;
        if stale > 0 {
            rewrite(connection, schema, first, last)?;
            done += stale;
        }
        progress(last, total);
        first = last + 1;
    }
    Ok(done)
}

/// Whether this SQLite has `sqlite_dbpage`, through which single pages can be written in a
/// transaction.
fn has_page_table(connection: *mut sqlite3) -> bool {
    query::number(
        connection,
        "SELECT count(*) FROM pragma_module_list WHERE name='sqlite_dbpage'",
    ) == Some(1)
}

/// Writes the pages `first..=last` unchanged through SQLite, in one transaction, so that they are
/// sealed under the current key. Errors are those of reading and writing the pages, such as SR-6010
/// or SR-4001.
fn rewrite(connection: *mut sqlite3, schema: &str, first: u64, last: u64) -> Result<(), Error> {
    let page_size = page_size(connection, schema)?;
    let skip = lock_byte_page(page_size);
    let schema = schema.replace('\'', "''");
    let sql = format!(
        "UPDATE sqlite_dbpage SET data=data WHERE schema='{schema}' AND pgno BETWEEN {first} AND {last} AND pgno<>{skip}"
    );
    execute(connection, &sql).map_err(|message| sql_error(&message))
}

/// Returns the page size of a schema's database in bytes. SR-3001 when it is not sealed.
fn page_size(connection: *mut sqlite3, schema: &str) -> Result<u32, Error> {
    with_main(connection, schema, |main| Ok(main.page_size()))
}

/// Calls `work` on the sealed database of a schema. SR-3001 when the database is not sealed,
/// SR-9001 when there is no such schema.
fn with_main<T>(
    connection: *mut sqlite3,
    schema: &str,
    work: impl FnOnce(&mut MainFile) -> Result<T, Error>,
) -> Result<T, Error> {
    let file = file_of_schema(connection, schema)
        .ok_or_else(|| Error::new(&code::BUG, "no such schema"))?;
    let mut outcome = Err(Error::new(&code::NOT_SEALED, schema));
    with(file, |open| {
        if let Some(main) = open.file.as_main() {
            outcome = work(main);
        }
        Ok(())
    })
    .map_err(rc_error)?;
    outcome
}

/// Returns the number of pages of `first..=last` that name an older epoch in the file itself. Reads
/// the header again first. SR-3001 when the database is not sealed.
fn stale_pages(
    connection: *mut sqlite3,
    schema: &str,
    first: u64,
    last: u64,
) -> Result<u64, Error> {
    with_main(connection, schema, |main| {
        let opened = reload_opened_header(main)?;
        count_stale(
            main.lower(),
            opened.object.epoch(),
            main.page_size(),
            first,
            last,
        )
    })
}

/// Counts the pages of `first..=last` in the file that are not sealed in `epoch`, without a lock.
/// Pages that are not in the file, and the page of SQLite's lock bytes, do not count. Drops the
/// file's mapping. SR-5001 if it cannot be read.
fn count_stale(
    lower: LowerFile,
    epoch: u32,
    page_size: u32,
    first: u64,
    last: u64,
) -> Result<u64, Error> {
    // L4: no lock is held here.
    lower.unmap().map_err(rc_error)?;
    let mut stale = 0;
    let mut tail = [0; TAIL];
    for page in first..=last {
        let at = page_offset(page + 1, page_size) - TAIL as u64;
        let whole = lower.read_whole(&mut tail, at).map_err(rc_error)?;
        let known = u32_at(&tail, tail_layout::EPOCH) == Some(epoch);
        // A page that is only in the log so far, and the lock-byte page, are not in the file.
        if whole && !known && page != lock_byte_page(page_size) {
            stale += 1;
        }
    }
    Ok(stale)
}

/// Finishes the rekey: when no page is left under the old key, removes that key from the header
/// (R3). Makes a TRUNCATE checkpoint first, and seals remaining pages again; tries 20 times, 50 ms
/// apart, then SR-6010. Returns the epoch in force.
fn finish(connection: *mut sqlite3, schema: &str) -> Result<u32, Error> {
    let name = quote_identifier(schema);
    for _ in 0..FINISH_TRIES {
        // In rollback mode this does nothing.
        execute(
            connection,
            &format!("PRAGMA {name}.wal_checkpoint(TRUNCATE)"),
        )
        .map_err(|message| sql_error(&message))?;
        let finished = in_write_transaction(connection, schema, |main, count| {
            let opened = reload_opened_header(main)?;
            if opened.object.previous_epoch().is_none() {
                return Ok(Some(opened.object.epoch()));
            }
            let log = log_length(main.path())?;
            if let (Some(count), 0) = (count, log) {
                truncate_after(main, count)?;
            }
            let stale = count_stale(
                main.lower(),
                opened.object.epoch(),
                main.page_size(),
                1,
                pages_in_file(main)?,
            )?;
            if log > 0 || stale > 0 {
                return Ok(None);
            }
            rewrite_anchors(main, &opened)?;
            replace_header(main, opened.object.rekey_finished()?)?;
            Ok(Some(opened.object.epoch()))
        })?;
        if let Some(epoch) = finished {
            return Ok(epoch);
        }
        sweep(connection, schema, &mut |_, _| {})?;
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    Err(Error::new(
        &code::BUSY,
        "the rekey is begun; other connections keep it from being finished",
    ))
}

/// Returns the number of whole pages in the file. SR-5001 if its size is not known.
fn pages_in_file(main: &MainFile) -> Result<u64, Error> {
    let size = main.lower().size().map_err(rc_error)?;
    Ok(size.saturating_sub(page_offset(1, main.page_size())) / u64::from(main.page_size()))
}

/// Truncates the file to `count` pages, if it has more and `count` is not 0: a failed transaction
/// may have left pages after the database's end. SQLite may read one before it writes it when the
/// database grows again, and it could not be opened any more. Called under the write lock, with an
/// empty log.
fn truncate_after(main: &mut MainFile, count: u64) -> Result<(), Error> {
    if count > 0 && pages_in_file(main)? > count {
        let end = count.saturating_mul(u64::from(main.page_size()));
        main.truncate(end).map_err(rc_error)?;
    }
    Ok(())
}

/// Writes both anchors under the current epoch, before the older key is erased. With freshness they
/// then name no log. Panics if no rekey is under way. SR-2001 if no key has opened the database;
/// SR-5001 if they cannot be written.
fn rewrite_anchors(main: &MainFile, opened: &OpenedHeader) -> Result<(), Error> {
    let Some(sealed) = main.sealed() else {
        return Err(Error::new(&code::NO_KEY, ""));
    };
    assert!(
        opened.object.previous_epoch().is_some(),
        "only a rekey under way is finished"
    );
    let generation = match opened.object.header().freshness {
        // The log is empty, but a power cut may bring it back. Its tails would be of an epoch whose
        // key is gone.
        true => [0; 16],
        false => {
            let anchor = sealed.anchor(main.lower()).map_err(rc_error)?;
            anchor.wal_generation
        }
    };
    sealed
        .set_generation(main.lower(), generation)
        .map_err(rc_error)
}

/// Makes the error for a statement that failed with SQLite's `message`: the error of ours that was
/// reported last on this thread, which is then forgotten; else SR-6010 if the message says
/// "locked", and SR-1005 if not.
pub(crate) fn sql_error(message: &str) -> Error {
    match take_last() {
        Some((code, detail)) => Error::new(code, detail),
        None if message.contains("locked") => Error::new(&code::BUSY, message),
        None => Error::new(&code::SQL, message),
    }
}

/// Makes the error for a result code: the error that was reported last on this thread, which is
/// then forgotten, or SR-5001 with the code if there is none.
pub(crate) fn rc_error(rc: SqliteCode) -> Error {
    match take_last() {
        Some((code, detail)) => Error::new(code, detail),
        None => Error::new(&code::IO, format!("SQLite result code {}", rc.0)),
    }
}
