//! What sealed files answer when SQLite asks what the device can do, or controls the file.
//!
//! Must not: do I/O of its own.

use std::ffi::{c_int, c_void};

use crate::ffi::{
    IOCAP_ATOMIC_ANY, SQLITE_FCNTL_CHUNK_SIZE, SQLITE_FCNTL_SIZE_HINT, SQLITE_IOCAP_BATCH_ATOMIC,
    SQLITE_IOCAP_POWERSAFE_OVERWRITE, SQLITE_IOCAP_SAFE_APPEND, SQLITE_IOCAP_SUBPAGE_READ,
};
use crate::lower::LowerFile;
use crate::sqlite_code::SqliteResult;

/// Answers a file control of a sealed file: ignores SQLite's announcements of a size and a chunk
/// size, and passes all else to the file below, whose result it returns. The announced sizes are
/// not those of the sealed file, and extending the file with zeros would make units that were never
/// sealed.
pub(crate) fn sealed_control(
    lower: LowerFile,
    op: c_int,
    argument: *mut c_void,
) -> SqliteResult<()> {
    match op {
        SQLITE_FCNTL_SIZE_HINT | SQLITE_FCNTL_CHUNK_SIZE => Ok(()),
        _ => lower.file_control(op, argument),
    }
}

/// Returns the device characteristics of sealed files, from those of the file below
/// (`SQLITE_IOCAP_*`). A sealed unit is not an atomic unit of the device, an append is not safe
/// before the file's size is durable, and part of a page cannot be authenticated. A power loss
/// during a write to one unit does not damage its neighbours.
pub(crate) fn sealed_characteristics(lower: c_int) -> c_int {
    let cleared = IOCAP_ATOMIC_ANY
        | SQLITE_IOCAP_SAFE_APPEND
        | SQLITE_IOCAP_BATCH_ATOMIC
        | SQLITE_IOCAP_SUBPAGE_READ;
    (lower & !cleared) | SQLITE_IOCAP_POWERSAFE_OVERWRITE
}
