//! SQLite's result codes as a Rust error.
//!
//! Must not: choose a code. `report` knows which code an error of ours has.

use std::ffi::c_int;

use crate::ffi::SQLITE_OK;

/// A SQLite result code other than `SQLITE_OK`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SqliteCode(pub c_int);

/// What a method of a VFS or of an open file returns.
pub(crate) type SqliteResult<T> = Result<T, SqliteCode>;

/// Turns a C result into a `Result`: `SQLITE_OK` becomes `Ok`, any other code the error.
pub(crate) fn check(rc: c_int) -> SqliteResult<()> {
    if rc == SQLITE_OK {
        Ok(())
    } else {
        Err(SqliteCode(rc))
    }
}

/// Turns a `Result` into a C result: `SQLITE_OK`, or the error's code.
pub(crate) fn result_code(result: SqliteResult<()>) -> c_int {
    match result {
        Ok(()) => SQLITE_OK,
        Err(SqliteCode(rc)) => rc,
    }
}
