//! The one call of SQLite's C interface that the safe bindings lack: whether text ends a statement.
//!
//! Must not: hold on to pointers; the call reads its argument and returns.
#![expect(unsafe_code, reason = "sqlite3_complete has no safe binding")]

use std::ffi::CString;

/// Returns whether `sql` ends with a complete statement. False for text with a NUL byte, or without
/// memory.
pub(crate) fn is_complete(sql: &str) -> bool {
    let Ok(sql) = CString::new(sql) else {
        return false;
    };
    // SAFETY: `sql` is NUL-terminated and outlives the call; sqlite3_complete only reads it.
    let answer = unsafe { rusqlite::ffi::sqlite3_complete(sql.as_ptr()) };
    // 1 is complete; 0 is not; anything else is an error code (out of memory).
    answer == 1
}
