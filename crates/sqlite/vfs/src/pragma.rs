//! PRAGMA key, PRAGMA rekey and PRAGMA `cipher_integrity_check`, as users of other products know
//! them, and PRAGMA `page_size`, which a sealed database can follow only into a copy.
//!
//! The value of PRAGMA key is part of the SQL text: `strongroom_key()` with a bound parameter is
//! safer.
//! Must not: put the value into a message.
#![expect(unsafe_code, reason = "SQLite's array of strings")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Arc;

use strongroom_crypto::SecretBytes;
use strongroom_format::code;
use strongroom_format::header::Cipher;
use strongroom_keyring::{KeySource, Opener, SourceContext};

use crate::connection;
use crate::connection::schema_of_file;
use crate::connection_list;
use crate::ffi::{SQLITE_ERROR, SQLITE_NOTFOUND, SQLITE_OK, sqlite3_file};
use crate::foreign_words;
use crate::handle::with;
use crate::integrity;
use crate::io_methods::IoMethods as _;
use crate::key_options;
use crate::main_file::MainFile;
use crate::new_database::NewDatabase;
use crate::open_file::OpenFile;
use crate::query;
use crate::rekey;
use crate::report::{last_text, report, report_error};
use crate::seal::crypto_error;
use crate::sqlite_code::{SqliteCode, SqliteResult, result_code};
use crate::sqlite_text::sqlite_string;

/// Answers a PRAGMA that SQLite gives to the file with `SQLITE_FCNTL_PRAGMA`: `key`, `rekey` and
/// `cipher_integrity_check` are executed, and pragmas of other products refused as SR-2280. All
/// others go to the file; `page_size` also changes a database that is still to be created. Writes
/// the answer or the error's text into `argument`. Returns `SQLITE_OK`, `SQLITE_ERROR` after an
/// error, or `SQLITE_NOTFOUND` where SQLite is to handle the pragma itself.
///
/// # Safety
/// `argument` is SQLite's array: result, name, value or null.
pub(crate) unsafe fn answer_pragma(file: *mut sqlite3_file, argument: *mut c_void) -> c_int {
    let array = argument.cast::<*mut c_char>();
    // SAFETY: the array has three entries.
    let name = unsafe { array.add(1).read() };
    // SAFETY: as above.
    let value = unsafe { array.add(2).read() };
    if name.is_null() {
        return SQLITE_NOTFOUND;
    }
    // SAFETY: SQLite's text.
    let name = unsafe { CStr::from_ptr(name) }
        .to_string_lossy()
        .to_ascii_lowercase();
    let value = if value.is_null() {
        None
    } else {
        // SAFETY: SQLite's text, which lives until this call returns.
        Some(unsafe { CStr::from_ptr(value) }.to_bytes())
    };
    let instead = foreign_words::advice_for_pragma(&name, value.is_some());
    let answer = match (name.as_str(), value) {
        _ if instead.is_some() => Err(report(&code::FOREIGN_WORD, instead.unwrap_or_default())),
        ("key", Some(value)) => set_key(file, value).map(Some),
        ("rekey", Some(value)) => rekey_with(file, value).map(Some),
        ("cipher_integrity_check", _) => integrity::check(file),
        (name, value) => {
            if let ("page_size", Some(value)) = (name, value)
                && let Err(failed) = set_page_size(file, value)
            {
                return failed.0;
            }
            return result_code(with(file, |open| {
                open.file
                    .file_control(crate::ffi::SQLITE_FCNTL_PRAGMA, argument)
            }));
        }
    };
    let (text, result) = match answer {
        Ok(Some(text)) => (text, SQLITE_OK),
        // SQLite then handles the pragma itself: it does not know it, and returns no row. (OK
        // without a text makes a column without a name, which Python takes for a lack of memory.)
        Ok(None) => return SQLITE_NOTFOUND,
        Err(SqliteCode(code)) => {
            // A pragma is the only place where SQLite shows our own text.
            (
                last_text().unwrap_or_else(|| format!("error {code}")),
                SQLITE_ERROR,
            )
        }
    };
    // SAFETY: the first entry is the place for the result, which SQLite frees.
    unsafe { array.write(sqlite_string(&text)) };
    result
}

/// Makes an opener of the value of `PRAGMA key` or `rekey`: of a raw key, if the value has the form
/// of one, otherwise of a passphrase. `creating`: as in [`SourceContext`]. SR-2011 if the value is
/// empty, too long, or a raw key of another length.
fn opener_from_value(value: &[u8], creating: bool) -> SqliteResult<Arc<Opener>> {
    let mut copy = value.to_vec();
    let given =
        SecretBytes::take(&mut copy).map_err(|error| report_error(&crypto_error(&error)))?;
    let context = SourceContext {
        keyring: None,
        creating,
        prompt: String::new(),
    };
    KeySource::Given(given)
        .opener(&context)
        .map(Arc::new)
        .map_err(|error| report_error(&error))
}

/// Answers `PRAGMA page_size` on a sealed database that is still to be created: makes it anew with
/// this size. Does nothing to other databases, or for a size that SQLite ignores too. SQLite then
/// also notes the size itself. SR-2012 if the key is retired meanwhile; SR-5001 if no data key can
/// be made.
fn set_page_size(file: *mut sqlite3_file, value: &[u8]) -> SqliteResult<()> {
    let size = std::str::from_utf8(value)
        .ok()
        .and_then(|text| text.trim().parse().ok());
    let Some(size) = size.and_then(key_options::valid_page_size) else {
        return Ok(()); // SQLite ignores such a size too.
    };
    with(file, |open| match open.file.as_main() {
        Some(main) => main.set_page_size(size),
        None => Ok(()),
    })
}

/// `PRAGMA key`: opens a sealed database with the key, or makes an empty plain one sealed. Returns
/// "ok". SR-2002 for a wrong key, SR-2019 if the sealed database is new and has a key already; see
/// [`seal_empty`] for plain ones.
fn set_key(file: *mut sqlite3_file, value: &[u8]) -> SqliteResult<String> {
    let is_sealed = with(file, |open| Ok(open.file.as_main().is_some()))?;
    if is_sealed {
        return with(file, |open| {
            let Some(main) = open.file.as_main() else {
                return Err(report(&code::BUG, "not sealed"));
            };
            let opener = opener_from_value(value, !main.has_header())?;
            if main.has_header() {
                main.open_header(&opener)?;
            } else {
                return Err(report(&code::KEY_OPTION, "the database has a key already"));
            }
            Ok("ok".to_owned())
        });
    }
    seal_empty(file, value)
}

/// Turns an empty plain database into a sealed one with the key `value`, with AES-256-GCM. Makes
/// SQLite reserve the bytes, since it has not laid out the database yet; the header is written with
/// the first page. Returns "ok". SR-6006 if the database is not empty, SR-2019 within a
/// transaction, SR-6001 if SQLite does not reserve the bytes.
fn seal_empty(file: *mut sqlite3_file, value: &[u8]) -> SqliteResult<String> {
    let (path, empty) = with(file, |open| {
        let size = open.file.size()?;
        let Some(plain) = open.file.as_plain() else {
            return Err(report(&code::BUG, "not a database"));
        };
        Ok((plain.path().to_owned(), size == 0))
    })?;
    if !empty {
        return Err(report(&code::KEY_ON_PLAIN, path));
    }
    let place = connection_list::connection_of(file)
        .and_then(|connection| Some((connection, schema_of_file(connection, file)?)));
    let Some((connection, schema)) = place else {
        return Err(report(&code::BUG, "PRAGMA key without connection"));
    };
    let page_size = query::pragma_number(connection, &schema, "page_size").unwrap_or(4096);
    if connection::in_transaction(connection) {
        // SQLite has laid out page 1 already, without the reserved bytes.
        return Err(report(&code::KEY_OPTION, "PRAGMA key within a transaction"));
    }
    let opener = opener_from_value(value, true)?;
    if connection::reserve_page_bytes(connection, &schema).is_none() {
        return Err(report(&code::RESERVE, path));
    }
    with(file, |open| {
        let page_size = u32::try_from(page_size).unwrap_or(4096);
        let wanted = NewDatabase {
            cipher: Cipher::Aes256Gcm,
            page_size,
            freshness: false,
        };
        let lower = open.file.lower();
        let main = MainFile::create(lower, path, wanted, opener, false)?;
        open.file = OpenFile::Main(Box::new(main));
        Ok("ok".to_owned())
    })
}

/// `PRAGMA rekey`: gives the database a new data key, which the key `value` opens, and seals every
/// page again. Returns a text with the number of pages and the key epoch. A rekey that was
/// interrupted is finished first, for its own key; if `value` does not open the database then,
/// everything is done again for `value`. SR-2011 for a malformed value; SR-6010 if other
/// connections prevent it from finishing (the database stays usable: call it again); SR-1005 within
/// a transaction; SR-3001 if the database is not sealed.
fn rekey_with(file: *mut sqlite3_file, value: &[u8]) -> SqliteResult<String> {
    let place = connection_list::connection_of(file)
        .and_then(|connection| Some((connection, schema_of_file(connection, file)?)));
    let Some((connection, schema)) = place else {
        return Err(report(&code::BUG, "PRAGMA rekey without connection"));
    };
    let opener = opener_from_value(value, true)?;
    let report = rekey(connection, &schema, Some(&opener), &mut |_, _| {})
        .map_err(|error| report_error(&error))?;
    Ok(format!(
        "ok: {} pages sealed again, key epoch {}",
        report.pages, report.epoch
    ))
}
