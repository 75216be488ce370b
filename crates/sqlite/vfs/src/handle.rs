//! The object that SQLite holds for an open file. It begins with the method table, as SQLite
//! demands; then comes our state, then the file below, all in one allocation of `szOsFile` bytes
//! that SQLite makes.
//!
//! Invariants:
//! H1. `open` is non-null from a successful open until close, and only SQLite's serialised calls
//!     reach it.
//! H2. A panic inside a call becomes `SQLITE_IOERR`, and the handle returns nothing but
//!     `SQLITE_IOERR` afterwards.
//!
//! Must not: be created anywhere but in `vfs::open`.
#![expect(unsafe_code, reason = "memory that SQLite allocates")]

use std::panic::{AssertUnwindSafe, catch_unwind};

use strongroom_format::code;

use crate::ffi::{SQLITE_IOERR, sqlite3_file};
use crate::lower::LowerFile;
use crate::methods::{are_ours, over};
use crate::open_file::OpenFile;
use crate::report::report;
use crate::sqlite_code::{SqliteCode, SqliteResult};

/// An open file, and whether it can still be used.
pub(crate) struct HandleState {
    /// The file; replaced when `PRAGMA key` turns an empty plain file into a sealed one.
    pub file: OpenFile,
    poisoned: bool,
}

/// SQLite's view of the file. See the module comment.
#[repr(C)]
pub(crate) struct Handle {
    base: sqlite3_file,
    open: *mut HandleState,
}

/// Offset of the file below within the allocation.
pub(crate) const LOWER_OFFSET: usize = size_of::<Handle>();

/// Returns the address of the file below, inside the allocation of `file`.
///
/// # Safety
/// `file` was allocated with at least `LOWER_OFFSET` bytes before the file below.
pub(crate) unsafe fn lower_file_of(file: *mut sqlite3_file) -> *mut sqlite3_file {
    // SAFETY: within the allocation, by the caller's word.
    unsafe { file.cast::<u8>().add(LOWER_OFFSET) }.cast::<sqlite3_file>()
}

/// Turns `file` into an open file of this VFS: puts `opened` on the heap and sets the method table.
///
/// # Safety
/// `file` is the allocation that SQLite gave to `xOpen`, and the file below in it is open.
///
/// # Errors
/// `SQLITE_IOERR` when the file below is not open.
pub(crate) unsafe fn install(file: *mut sqlite3_file, opened: OpenFile) -> SqliteResult<()> {
    // SAFETY: the caller's word.
    let methods = unsafe { LowerFile::new(lower_file_of(file)) }.methods()?;
    let methods = over(methods);
    let open = Box::into_raw(Box::new(HandleState {
        file: opened,
        poisoned: false,
    }));
    let handle = file.cast::<Handle>();
    // SAFETY: the allocation has room for a `Handle`; nothing in it has a destructor.
    unsafe {
        handle.write(Handle {
            base: sqlite3_file {
                methods: std::ptr::from_ref(methods),
            },
            open,
        });
    };
    Ok(())
}

/// Whether `file` is open and was opened by this VFS. False for null.
#[must_use]
pub(crate) fn is_ours(file: *mut sqlite3_file) -> bool {
    if file.is_null() {
        return false;
    }
    // SAFETY: SQLite only hands out files that it has allocated; `pMethods` is their first field.
    let methods = unsafe { (*file).methods };
    are_ours(methods)
}

/// Whether `file`, which SQLite has given, is not open, as for a database in memory, and for a
/// temporary one that still fits into memory. False for null.
#[must_use]
pub(crate) fn is_closed(file: *mut sqlite3_file) -> bool {
    // SAFETY: SQLite only hands out files that it has allocated; `pMethods` is their first field,
    // and null unless the file is open.
    !file.is_null() && unsafe { (*file).methods }.is_null()
}

/// Runs `call` on the file's state. A panic becomes SR-9001, which is reported, and every later
/// call on the file then fails (H2). `SQLITE_IOERR` for a file that this VFS did not open, or that
/// has failed so.
pub(crate) fn with<T>(
    file: *mut sqlite3_file,
    call: impl FnOnce(&mut HandleState) -> SqliteResult<T>,
) -> SqliteResult<T> {
    if !is_ours(file) {
        return Err(SqliteCode(SQLITE_IOERR));
    }
    // SAFETY: the method table says that this is a `Handle`.
    let open = unsafe { (*file.cast::<Handle>()).open };
    // SAFETY: H1.
    let Some(open) = (unsafe { open.as_mut() }) else {
        return Err(SqliteCode(SQLITE_IOERR));
    };
    if open.poisoned {
        return Err(SqliteCode(SQLITE_IOERR));
    }
    match catch_unwind(AssertUnwindSafe(|| call(open))) {
        Ok(result) => result,
        Err(_) => {
            // SAFETY: H1; the reference that was moved into the closure is gone.
            if let Some(open) = unsafe { (*file.cast::<Handle>()).open.as_mut() } {
                open.poisoned = true;
            }
            Err(report(&code::BUG, "a file operation panicked"))
        }
    }
}

/// Takes the state out of the handle, drops it, and marks the handle as closed. The file below
/// stays open. A panic is only reported.
///
/// # Safety
/// Called once, from `xClose`.
pub(crate) unsafe fn uninstall(file: *mut sqlite3_file) {
    let handle = file.cast::<Handle>();
    // SAFETY: called from `xClose` of a file of ours.
    let open = unsafe { std::mem::replace(&mut (*handle).open, std::ptr::null_mut()) };
    if !open.is_null() {
        // SAFETY: made by `Box::into_raw` in `install`, and taken out just now.
        let open = unsafe { Box::from_raw(open) };
        // A destructor that panics must not unwind into SQLite.
        if catch_unwind(AssertUnwindSafe(|| drop(open))).is_err() {
            report(&code::BUG, "closing a file panicked");
        }
    }
    // SAFETY: as above; a null method table tells SQLite that the file is closed.
    unsafe { (*handle).base.methods = std::ptr::null() };
}
