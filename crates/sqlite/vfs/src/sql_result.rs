//! Results of SQL functions and values of a virtual table's columns.
//!
//! Must not: give SQLite a pointer to memory of ours; texts are copied.
#![expect(unsafe_code, reason = "calls SQLite")]

use std::ffi::CString;

use crate::api::api;
use crate::ffi::{destructor, sqlite3_context};

/// Returns `SQLITE_TRANSIENT`, the destructor value by which SQLite copies the text.
fn transient() -> destructor {
    // SAFETY: SQLite compares the value and never calls it.
    unsafe { std::mem::transmute::<isize, destructor>(-1) }
}

/// Makes a text, which SQLite copies, or NULL the result of a function or the value of a column. A
/// text with a zero byte becomes NULL.
pub(crate) fn result(context: *mut sqlite3_context, text: Option<&str>) {
    let Some(api) = api() else { return };
    match text.and_then(|text| CString::new(text).ok()) {
        // SAFETY: a context that SQLite gave; the text is copied.
        Some(text) => unsafe { (api.result_text)(context, text.as_ptr(), -1, transient()) },
        // SAFETY: as above.
        None => unsafe { (api.result_null)(context) },
    }
}

/// Makes a number the result of a function or the value of a column.
pub(crate) fn result_number(context: *mut sqlite3_context, number: i32) {
    if let Some(api) = api() {
        // SAFETY: a context that SQLite gave.
        unsafe { (api.result_int)(context, number) };
    }
}

/// Makes a number, or NULL, the result of a function or the value of a column.
pub(crate) fn result_long(context: *mut sqlite3_context, number: Option<i64>) {
    let Some(number) = number else {
        return result(context, None);
    };
    if let Some(api) = api() {
        // SAFETY: a context that SQLite gave.
        unsafe { (api.result_int64)(context, number) };
    }
}
