//! `libstrongroom_sqlite.so`: the VFS as a loadable extension for an unmodified SQLite, such as the
//! distribution's `sqlite3` shell and Python's `sqlite3` module.
//!
//! Must not: contain anything but the two names under which SQLite looks for an entry point.
#![expect(unsafe_code, reason = "symbols that SQLite looks up")]

use std::ffi::{c_char, c_int, c_void};

use strongroom_sqlite_vfs::{entry_point, sqlite3, take_default_from_environment, to_stderr};

/// The entry point that SQLite derives from the file's name. Turns reports on standard error on,
/// unless `STRONGROOM_LOG=off`, reads the program's default key from the environment, registers the
/// client for remote databases, and then installs the VFS and the SQL functions (`entry_point`).
/// Returns `SQLITE_OK_LOAD_PERMANENTLY`, or `SQLITE_NOMEM` or `SQLITE_ERROR` after a failure, whose
/// text it puts into `error`, in memory that SQLite frees.
///
/// # Safety
/// Called by SQLite with its own arguments.
// SAFETY: no other symbol of this name exists in a process that loads the extension once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_strongroomsqlite_init(
    connection: *mut sqlite3,
    error: *mut *mut c_char,
    routines: *const c_void,
) -> c_int {
    // SQLite's interface carries no text, so the extension reports errors on standard error.
    to_stderr(std::env::var_os("STRONGROOM_LOG").is_none_or(|value| value != "off"));
    take_default_from_environment();
    #[cfg(feature = "http")]
    strongroom_sqlite_http::register();
    // SAFETY: SQLite's own arguments.
    unsafe { entry_point(connection, error, routines) }
}

/// The entry point that SQLite looks for whatever the file's name is, so that the file may be
/// renamed. Does what [`sqlite3_strongroomsqlite_init`] does: sets up reports on standard error and
/// the default key, and installs the VFS and the SQL functions. Returns as it does:
/// `SQLITE_OK_LOAD_PERMANENTLY`, or SQLite's code of an error, whose text it puts into `error`.
///
/// # Safety
/// As [`sqlite3_strongroomsqlite_init`].
// SAFETY: resolved by SQLite through this library's own handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_extension_init(
    connection: *mut sqlite3,
    error: *mut *mut c_char,
    routines: *const c_void,
) -> c_int {
    // SAFETY: the same function under its other name.
    unsafe { sqlite3_strongroomsqlite_init(connection, error, routines) }
}
