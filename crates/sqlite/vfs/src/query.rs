//! Reading single numbers from a connection.
//!
//! Must not: execute text that a user wrote.
#![expect(unsafe_code, reason = "calls SQLite")]

use std::ffi::CString;

use crate::api::api;
use crate::ffi::{SQLITE_ROW, sqlite3, sqlite3_stmt};

/// Executes `sql` as far as its first row, and returns the first column as a number. `None` if the
/// statement is not valid or gives no row.
#[must_use]
pub(crate) fn number(connection: *mut sqlite3, sql: &str) -> Option<i64> {
    let api = api()?;
    let sql = CString::new(sql).ok()?;
    let mut statement: *mut sqlite3_stmt = std::ptr::null_mut();
    // SAFETY: an open connection; the text ends with a zero byte.
    unsafe {
        (api.prepare_v2)(
            connection,
            sql.as_ptr(),
            -1,
            &raw mut statement,
            std::ptr::null_mut(),
        )
    };
    if statement.is_null() {
        return None;
    }
    // SAFETY: a statement made just now.
    let row = unsafe { (api.step)(statement) } == SQLITE_ROW;
    // SAFETY: as above; read only when there is a row.
    let value = row.then(|| unsafe { (api.column_int64)(statement, 0) });
    // SAFETY: made above, finalised once.
    unsafe { (api.finalize)(statement) };
    value
}

/// Executes `PRAGMA schema.name` and returns its number; `None` if it gives none. `schema` is
/// already an SQL identifier.
#[must_use]
pub(crate) fn pragma_number(connection: *mut sqlite3, schema: &str, name: &str) -> Option<i64> {
    number(connection, &format!("PRAGMA {schema}.{name}"))
}

/// Returns a schema's name as a quoted SQL identifier.
pub(crate) fn quote_identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
