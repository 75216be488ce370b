//! Connections to SQLite's own VFS, as unlike the VFS's as they can be while their results stay
//! comparable.
#![expect(
    unsafe_code,
    reason = "sqlite3_file_control has no safe form in rusqlite"
)]

use std::ffi::{CStr, c_int};

use rusqlite::{Connection, ffi};

/// Makes the empty database `schema` of `connection` reserve 32 bytes per page, as a sealed one
/// does, so that page counts, free lists and page numbers are the same in both.
///
/// # Errors
/// When SQLite refuses.
pub fn reserve(connection: &Connection, schema: &CStr) -> rusqlite::Result<()> {
    let mut bytes: c_int = 32;
    // SAFETY: the connection is open for the time of the call, and the operation takes a pointer to
    // an int.
    let rc = unsafe {
        ffi::sqlite3_file_control(
            connection.handle(),
            schema.as_ptr(),
            ffi::SQLITE_FCNTL_RESERVE_BYTES,
            (&raw mut bytes).cast(),
        )
    };
    if rc == ffi::SQLITE_OK {
        Ok(())
    } else {
        Err(rusqlite::Error::SqliteFailure(ffi::Error::new(rc), None))
    }
}
