//! Replaces the functions of SQLite that open a database.
//!
//! Each is a few instructions that add the caller's address as one more argument: a process can
//! have several SQLite libraries, and the address identifies the right one.
//!
//! Must not: change the arguments or the result of a call that SQLite answers.
#![expect(
    unsafe_code,
    reason = "C symbols, and calls through what is behind them"
)]

use std::ffi::{c_char, c_int, c_void};

use crate::install::{self, Sqlite};

/// `SQLITE_ERROR`, the result when a database is not opened because the extension is not loaded.
const SQLITE_ERROR: c_int = 1;

/// Declares an exported function: its name, the register for the caller's address, and the function
/// to which it jumps.
macro_rules! entry {
    ($name:ident, $register:literal, $goes_on:ident) => {
        /// As the function of SQLite of this name.
        ///
        /// # Safety
        /// As that function's.
        // SAFETY: the symbol is meant to stand before SQLite's.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() -> c_int {
            #[cfg(target_arch = "x86_64")]
            std::arch::naked_asm!(
                concat!("mov ", $register, ", [rsp]"),
                "jmp {goes_on}",
                goes_on = sym $goes_on
            );
            #[cfg(target_arch = "aarch64")]
            std::arch::naked_asm!(
                concat!("mov ", $register, ", x30"),
                "b {goes_on}",
                goes_on = sym $goes_on
            );
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod entries {
    use super::*;
    entry!(sqlite3_open, "rdx", open);
    entry!(sqlite3_open16, "rdx", open16);
    entry!(sqlite3_open_v2, "r8", open_v2);
}

#[cfg(target_arch = "aarch64")]
mod entries {
    use super::*;
    entry!(sqlite3_open, "x2", open);
    entry!(sqlite3_open16, "x2", open16);
    entry!(sqlite3_open_v2, "x4", open_v2);
}

/// Returns the SQLite to which the code at `caller` is linked, after loading the extension into it.
/// If that is not possible, the reason is reported, `out` gets a null connection, and the result is
/// `None`.
fn sqlite_for(out: *mut *mut c_void, caller: *const c_void) -> Option<Sqlite> {
    let found = install::sqlite_of(caller);
    if found.is_none() && !out.is_null() {
        // SAFETY: the caller's place for the connection.
        unsafe { out.write(std::ptr::null_mut()) };
    }
    found
}

/// Opens a connection with the caller's SQLite, for `sqlite3_open`, and returns SQLite's result.
/// `SQLITE_ERROR`, with a null connection, when the extension cannot be loaded into it.
unsafe extern "C" fn open(
    name: *const c_char,
    out: *mut *mut c_void,
    caller: *const c_void,
) -> c_int {
    match sqlite_for(out, caller) {
        // SAFETY: the caller's own arguments.
        Some(sqlite) => unsafe { (sqlite.open)(name, out) },
        None => SQLITE_ERROR,
    }
}

/// Opens a connection with the caller's SQLite, for `sqlite3_open16`, and returns SQLite's result.
/// `SQLITE_ERROR`, with a null connection, when the extension cannot be loaded into it.
unsafe extern "C" fn open16(
    name: *const c_void,
    out: *mut *mut c_void,
    caller: *const c_void,
) -> c_int {
    match sqlite_for(out, caller) {
        // SAFETY: the caller's own arguments.
        Some(sqlite) => unsafe { (sqlite.open16)(name, out) },
        None => SQLITE_ERROR,
    }
}

/// Opens a connection with the caller's SQLite, for `sqlite3_open_v2`, and returns SQLite's result.
/// `SQLITE_ERROR`, with a null connection, when the extension cannot be loaded into it.
unsafe extern "C" fn open_v2(
    name: *const c_char,
    out: *mut *mut c_void,
    flags: c_int,
    vfs: *const c_char,
    caller: *const c_void,
) -> c_int {
    match sqlite_for(out, caller) {
        // SAFETY: the caller's own arguments.
        Some(sqlite) => unsafe { (sqlite.open_v2)(name, out, flags, vfs) },
        None => SQLITE_ERROR,
    }
}
