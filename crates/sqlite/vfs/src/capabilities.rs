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

/// A file control of a sealed file. Sizes that SQLite announces are not the file's, and extending the file with zeros
/// would make units that were never sealed.
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

/// Device characteristics for sealed files: a sealed unit is not a device's atomic unit, an append is not safe before
/// its size is, and part of a page cannot be authenticated; a seal unit does survive a power loss in its neighbour.
pub(crate) fn sealed_characteristics(lower: c_int) -> c_int {
    let cleared = IOCAP_ATOMIC_ANY
        | SQLITE_IOCAP_SAFE_APPEND
        | SQLITE_IOCAP_BATCH_ATOMIC
        | SQLITE_IOCAP_SUBPAGE_READ;
    (lower & !cleared) | SQLITE_IOCAP_POWERSAFE_OVERWRITE
}
