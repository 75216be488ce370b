//! `SELECT * FROM strongroom_databases()`: the databases that are attached to this connection, and
//! whether they are sealed.
//!
//! Columns: name, path, encrypted (0 or 1), cipher, `key_id` (a keyring key's name and version, or
//! the kind of the slot that opened), `page_size`, `seals` (an estimate of the pages sealed under
//! the data key; NULL where the cipher sets no limit).
//!
//! Must not: show anything that is not in the file's clear header.
#![expect(unsafe_code, reason = "a virtual table of SQLite's")]

use std::ffi::{c_char, c_int, c_void};

use strongroom_format::code;
use strongroom_format::slot::SlotKind;
use strongroom_keyring::Error;

use crate::api::api;
use crate::connection::{file_of_schema, schemas};
use crate::ffi::{
    SQLITE_NOMEM, SQLITE_OK, sqlite3, sqlite3_context, sqlite3_index_info, sqlite3_module,
    sqlite3_value, sqlite3_vtab, sqlite3_vtab_cursor,
};
use crate::handle::{is_ours, with};
use crate::query::{pragma_number, quote_identifier};
use crate::report::registration_error;
use crate::sql_result::{result, result_long, result_number};

const DECLARATION: &std::ffi::CStr =
    c"CREATE TABLE x(name TEXT, path TEXT, encrypted INTEGER, cipher TEXT, key_id TEXT, page_size INTEGER, seals INTEGER)";

static MODULE: sqlite3_module = sqlite3_module {
    version: 0,
    create: None,
    connect: Some(connect),
    best_index: Some(best_index),
    disconnect: Some(disconnect),
    destroy: None,
    open: Some(open),
    close: Some(close),
    filter: Some(filter),
    next: Some(next),
    eof: Some(eof),
    column: Some(column),
    rowid: Some(rowid),
    rest: [None; 12],
};

#[repr(C)]
struct Table {
    base: sqlite3_vtab,
    connection: *mut sqlite3,
}

struct Row {
    name: String,
    path: String,
    cipher: Option<String>,
    key_id: Option<String>,
    page_size: Option<i64>,
    seals: Option<i64>,
}

#[repr(C)]
struct Cursor {
    base: sqlite3_vtab_cursor,
    rows: Vec<Row>,
    at: usize,
}

/// Registers the table-valued function `strongroom_databases` with `connection`. SR-5002 when
/// SQLite has no memory, SR-9001 when it refuses.
pub(crate) fn install(connection: *mut sqlite3) -> Result<(), Error> {
    let Some(api) = api() else {
        return Err(Error::new(&code::BUG, "not initialised"));
    };
    // SAFETY: static name and module.
    let rc = unsafe {
        (api.create_module_v2)(
            connection,
            c"strongroom_databases".as_ptr(),
            &raw const MODULE,
            std::ptr::null_mut(),
            None,
        )
    };
    if rc == SQLITE_OK {
        Ok(())
    } else {
        Err(registration_error("sqlite3_create_module", rc))
    }
}

/// Describes every database that is attached to the connection, in SQLite's order. A sealed
/// database that no key has opened has the cipher `locked`, and a plain one has none.
fn rows(connection: *mut sqlite3) -> Vec<Row> {
    let describe = |(name, path): (String, String)| {
        let page_size = pragma_number(connection, &quote_identifier(&name), "page_size");
        let sealed = file_of_schema(connection, &name)
            .filter(|file| is_ours(*file))
            .and_then(|file| {
                with(file, |open| {
                    Ok(open.file.as_main().map(|main| {
                        let opened = main.opened_header();
                        let cipher =
                            opened.map(|opened| opened.object.header().cipher.name().to_owned());
                        let key = opened.map(|opened| key_id(opened.object.opened_by()));
                        let seals = main.sealed().and_then(|sealed| sealed.seals(main.lower()));
                        (cipher, key, seals.map(saturating))
                    }))
                })
                .ok()
                .flatten()
            });
        match sealed {
            Some((cipher, key_id, seals)) => {
                let cipher = Some(cipher.unwrap_or_else(|| "locked".to_owned()));
                Row {
                    name,
                    path,
                    cipher,
                    key_id,
                    page_size,
                    seals,
                }
            }
            None => Row {
                name,
                path,
                cipher: None,
                key_id: None,
                page_size,
                seals: None,
            },
        }
    };
    schemas(connection).into_iter().map(describe).collect()
}

/// Converts a number to SQL's signed 64 bits; one that does not fit becomes the largest.
fn saturating(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Returns the name of a key slot for users: `id:version` for a key of the keyring, else the slot's
/// kind.
pub(crate) fn key_id(kind: &SlotKind) -> String {
    match kind {
        SlotKind::Keyring { id, version } => format!("{id}:{version}"),
        other => other.name().to_owned(),
    }
}

/// `xConnect`: declares the table's columns and allocates the table. `SQLITE_NOMEM` if SQLite's
/// functions are not known.
unsafe extern "C" fn connect(
    connection: *mut sqlite3,
    _data: *mut c_void,
    _count: c_int,
    _arguments: *const *const c_char,
    out: *mut *mut sqlite3_vtab,
    _error: *mut *mut c_char,
) -> c_int {
    let Some(api) = api() else {
        return SQLITE_NOMEM;
    };
    // SAFETY: SQLite is connecting this table.
    let rc = unsafe { (api.declare_vtab)(connection, DECLARATION.as_ptr()) };
    if rc == SQLITE_OK {
        let base = sqlite3_vtab {
            module: &raw const MODULE,
            references: 0,
            error_message: std::ptr::null_mut(),
        };
        let table = Box::into_raw(Box::new(Table { base, connection }));
        // SAFETY: SQLite gives a place for the table.
        unsafe { out.write(table.cast::<sqlite3_vtab>()) };
    }
    rc
}

/// `xDisconnect`: frees the table.
unsafe extern "C" fn disconnect(table: *mut sqlite3_vtab) -> c_int {
    // SAFETY: made by `connect`.
    drop(unsafe { Box::from_raw(table.cast::<Table>()) });
    SQLITE_OK
}

/// `xBestIndex`: offers a full scan of small cost, and no index.
unsafe extern "C" fn best_index(_table: *mut sqlite3_vtab, info: *mut sqlite3_index_info) -> c_int {
    // SAFETY: SQLite's structure, whose first fields are those declared.
    unsafe { (*info).estimated_cost = 10.0 };
    SQLITE_OK
}

/// `xOpen`: allocates a cursor without rows.
unsafe extern "C" fn open(_table: *mut sqlite3_vtab, out: *mut *mut sqlite3_vtab_cursor) -> c_int {
    let base = sqlite3_vtab_cursor {
        vtab: std::ptr::null_mut(),
    };
    let cursor = Box::into_raw(Box::new(Cursor {
        base,
        rows: Vec::new(),
        at: 0,
    }));
    // SAFETY: SQLite gives a place for the cursor.
    unsafe { out.write(cursor.cast::<sqlite3_vtab_cursor>()) };
    SQLITE_OK
}

/// `xClose`: frees the cursor and its rows.
unsafe extern "C" fn close(cursor: *mut sqlite3_vtab_cursor) -> c_int {
    // SAFETY: made by `open`.
    drop(unsafe { Box::from_raw(cursor.cast::<Cursor>()) });
    SQLITE_OK
}

/// `xFilter`: begins a scan, and reads all rows into the cursor. After a panic the table is empty.
/// Always returns `SQLITE_OK`.
unsafe extern "C" fn filter(
    cursor: *mut sqlite3_vtab_cursor,
    _number: c_int,
    _text: *const c_char,
    _count: c_int,
    _arguments: *mut *mut sqlite3_value,
) -> c_int {
    // SAFETY: made by `open`; SQLite has set its table.
    let cursor = unsafe { &mut *cursor.cast::<Cursor>() };
    // SAFETY: made by `connect`.
    let connection = unsafe { (*cursor.base.vtab.cast::<Table>()).connection };
    let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| rows(connection)));
    cursor.rows = found.unwrap_or_default();
    cursor.at = 0;
    SQLITE_OK
}

/// `xNext`: moves the cursor to the next row.
unsafe extern "C" fn next(cursor: *mut sqlite3_vtab_cursor) -> c_int {
    // SAFETY: made by `open`.
    unsafe { (*cursor.cast::<Cursor>()).at += 1 };
    SQLITE_OK
}

/// `xEof`: returns 1 when the cursor is past the last row, else 0.
unsafe extern "C" fn eof(cursor: *mut sqlite3_vtab_cursor) -> c_int {
    // SAFETY: made by `open`.
    let cursor = unsafe { &*cursor.cast::<Cursor>() };
    c_int::from(cursor.at >= cursor.rows.len())
}

/// `xColumn`: gives the value of column `index` in the cursor's row: name, path, encrypted (0 or
/// 1), cipher, `key_id`, `page_size` in bytes and `seals` (an estimate of the pages that were
/// sealed under the data key), in this order. A plain database has NULL for cipher, `key_id` and
/// `seals`; one that no key has opened has the cipher `locked`. Always returns `SQLITE_OK`.
unsafe extern "C" fn column(
    cursor: *mut sqlite3_vtab_cursor,
    context: *mut sqlite3_context,
    index: c_int,
) -> c_int {
    // SAFETY: made by `open`.
    let cursor = unsafe { &*cursor.cast::<Cursor>() };
    let Some(row) = cursor.rows.get(cursor.at) else {
        return SQLITE_OK;
    };
    match index {
        0 => result(context, Some(&row.name)),
        1 => result(context, Some(&row.path)),
        2 => result_number(context, i32::from(row.cipher.is_some())),
        3 => result(context, row.cipher.as_deref()),
        4 => result(context, row.key_id.as_deref()),
        5 => result_long(context, row.page_size),
        _ => result_long(context, row.seals),
    }
    SQLITE_OK
}

/// `xRowid`: gives the number of the cursor's row, from 0.
unsafe extern "C" fn rowid(cursor: *mut sqlite3_vtab_cursor, out: *mut i64) -> c_int {
    // SAFETY: made by `open`; SQLite gives a place for the number.
    unsafe { out.write(i64::try_from((*cursor.cast::<Cursor>()).at).unwrap_or(0)) };
    SQLITE_OK
}
