//! What calls on a file lead to above the files: pragmas, and the connections that files belong to.
//!
//! Files know neither; the VFS sets the functions once, before SQLite can open a file.
//!
//! Must not: do anything but hold the functions.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use crate::ffi::sqlite3_file;

/// Functions for file controls that concern more than the file.
pub(crate) struct Hooks {
    /// Answers `SQLITE_FCNTL_PRAGMA`. The argument is SQLite's array of strings.
    pub pragma: unsafe fn(*mut sqlite3_file, *mut c_void) -> c_int,
    /// SQLite has said, with `SQLITE_FCNTL_PDB`, which connection a file belongs to. The argument
    /// points to the connection.
    pub check_attached: unsafe fn(*mut sqlite3_file, *mut c_void),
}

static HOOKS: OnceLock<Hooks> = OnceLock::new();

/// Sets the functions for the whole process, once. A second call is ignored.
pub(crate) fn set_hooks(hooks: Hooks) {
    HOOKS.get_or_init(|| hooks);
}

/// Returns the functions. `None` before [`set_hooks`].
pub(crate) fn hooks() -> Option<&'static Hooks> {
    HOOKS.get()
}
