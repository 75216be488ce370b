//! The C interface of a remote file, which takes the place of a file of the VFS below.
//!
//! Invariants: D1. A panic inside a call becomes `SQLITE_IOERR`.
//! Must not: decide anything.
#![expect(unsafe_code, reason = "an object that is called as a C object")]

use std::ffi::{c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use strongroom_format::code;
use strongroom_keyring::Error;

use super::client::RemoteFile;
use crate::ffi::{
    SQLITE_IOCAP_IMMUTABLE, SQLITE_IOERR, SQLITE_IOERR_SHORT_READ, SQLITE_NOTFOUND, SQLITE_OK,
    SQLITE_OPEN_MAIN_DB, SQLITE_OPEN_READONLY, SQLITE_READONLY, sqlite3_file, sqlite3_io_methods,
};
use crate::lower::LowerFile;
use crate::report::{report, report_error};
use crate::sqlite_code::{SqliteCode, SqliteResult, result_code};
use crate::sqlite_text::{self, uri_parameter};

/// The object in SQLite's allocation. The VFS asks SQLite to allocate enough for it.
#[repr(C)]
pub(crate) struct RemoteHandle {
    base: sqlite3_file,
    file: *mut Box<dyn RemoteFile>,
}

static METHODS: sqlite3_io_methods = sqlite3_io_methods {
    version: 1,
    close: Some(close),
    read: Some(read),
    write: Some(write),
    truncate: Some(truncate),
    sync: Some(sync),
    file_size: Some(file_size),
    lock: Some(lock),
    unlock: Some(lock),
    check_reserved_lock: Some(check_reserved_lock),
    file_control: Some(file_control),
    sector_size: Some(sector_size),
    device_characteristics: Some(device_characteristics),
    shm_map: None,
    shm_lock: None,
    shm_barrier: None,
    shm_unmap: None,
    fetch: None,
    unfetch: None,
};

/// Returns the value of the parameter `key` in the URI that SQLite opens; `None` if it has none.
pub(super) fn parameter(name: *const c_char, key: &str) -> Option<String> {
    // SAFETY: `name` is the file name that SQLite's core gave to xOpen for a main database, as the
    // function demands.
    unsafe { uri_parameter(name, key) }
}

/// Returns the name by which SQLite knows the database, for messages.
pub(super) fn label(name: *const c_char) -> String {
    // SAFETY: SQLite's file name.
    unsafe { sqlite_text::text_of(name.cast()) }
}

/// Makes the memory at `place` the remote file, which `close` frees. Tells SQLite in `out_flags`,
/// unless it is null, that the database is read only.
pub(super) fn install(
    place: *mut sqlite3_file,
    remote: Box<dyn RemoteFile>,
    out_flags: *mut c_int,
) {
    let file = Box::into_raw(Box::new(remote));
    // SAFETY: the allocation of the file below has room for it (`vfs::register`), and nothing in it
    // has a destructor.
    unsafe {
        place.cast::<RemoteHandle>().write(RemoteHandle {
            base: sqlite3_file {
                methods: &raw const METHODS,
            },
            file,
        });
    }
    if !out_flags.is_null() {
        // SAFETY: SQLite's place for the flags.
        unsafe { out_flags.write(SQLITE_OPEN_MAIN_DB | SQLITE_OPEN_READONLY) };
    }
}

/// Whether the file below is a remote file, which [`install`] has put there.
pub(crate) fn is_remote(lower: LowerFile) -> bool {
    is_ours(lower.as_ptr())
}

/// Whether the file is one that [`install`] made.
fn is_ours(file: *mut sqlite3_file) -> bool {
    // SAFETY: an allocated file; `pMethods` is its first field.
    std::ptr::eq(unsafe { (*file).methods }, &raw const METHODS)
}

/// Calls `call` on the remote file in the place of the file below, and reports its error.
/// `SQLITE_IOERR` if the file is not a remote one.
pub(super) fn with<T>(
    lower: LowerFile,
    call: impl FnOnce(&mut dyn RemoteFile) -> Result<T, Error>,
) -> SqliteResult<T> {
    inside(lower.as_ptr(), |remote| {
        call(remote).map_err(|error| report_error(&error))
    })
}

/// Calls `call` on a remote file. A panic is reported as SR-9001 and becomes an error.
/// `SQLITE_IOERR` if the file is not a remote one, or is closed.
fn inside<T>(
    file: *mut sqlite3_file,
    call: impl FnOnce(&mut dyn RemoteFile) -> SqliteResult<T>,
) -> SqliteResult<T> {
    if !is_ours(file) {
        return Err(SqliteCode(SQLITE_IOERR));
    }
    // SAFETY: the method table says that this is a `RemoteHandle`; its box lives until `close`, and
    // SQLite serialises calls.
    let remote = unsafe { (*file.cast::<RemoteHandle>()).file.as_mut() };
    let Some(remote) = remote else {
        return Err(SqliteCode(SQLITE_IOERR));
    };
    catch_unwind(AssertUnwindSafe(|| call(remote.as_mut())))
        .unwrap_or_else(|_| Err(report(&code::BUG, "reading a remote file panicked")))
}

/// `xClose`: closes the file, which ends its connection to the server. Always returns `SQLITE_OK`;
/// a panic is only reported.
unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    let handle = file.cast::<RemoteHandle>();
    // SAFETY: called once, for a file that `install` made.
    let remote = unsafe { std::mem::replace(&mut (*handle).file, std::ptr::null_mut()) };
    if !remote.is_null() {
        // SAFETY: made by `Box::into_raw` in `install`, and taken out just now.
        let remote = unsafe { Box::from_raw(remote) };
        if catch_unwind(AssertUnwindSafe(|| drop(remote))).is_err() {
            report(&code::BUG, "closing a remote file panicked");
        }
    }
    // SAFETY: as above; no table: closed.
    unsafe { (*handle).base.methods = std::ptr::null() };
    SQLITE_OK
}

/// `xRead`: reads from the server or the cache. Bytes after the end of the file are zero, and the
/// result is then `SQLITE_IOERR_SHORT_READ`. After an error, which is reported, `out` is zero.
unsafe extern "C" fn read(
    file: *mut sqlite3_file,
    out: *mut c_void,
    amount: c_int,
    offset: i64,
) -> c_int {
    let (Ok(len), Ok(at)) = (usize::try_from(amount), u64::try_from(offset)) else {
        return SQLITE_IOERR;
    };
    // SAFETY: the caller (`LowerFile::read`) gives a buffer of `amount` initialised bytes.
    let out = unsafe { std::slice::from_raw_parts_mut(out.cast::<u8>(), len) };
    result_code(inside(file, |remote| {
        let there = remote.size().saturating_sub(at).min(len as u64);
        let there = usize::try_from(there).map_err(|_| SqliteCode(SQLITE_IOERR))?;
        let (wanted, beyond) = out.split_at_mut(there);
        beyond.fill(0);
        if !wanted.is_empty()
            && let Err(error) = remote.read(wanted, at)
        {
            wanted.fill(0);
            return Err(report_error(&error));
        }
        match beyond.is_empty() {
            true => Ok(()),
            false => Err(SqliteCode(SQLITE_IOERR_SHORT_READ)),
        }
    }))
}

/// `xWrite`: refuses with `SQLITE_READONLY`, because a remote file is never written.
unsafe extern "C" fn write(
    _file: *mut sqlite3_file,
    _data: *const c_void,
    _amount: c_int,
    _offset: i64,
) -> c_int {
    SQLITE_READONLY
}

/// `xTruncate`: refuses with `SQLITE_READONLY`, because a remote file is never written.
unsafe extern "C" fn truncate(_file: *mut sqlite3_file, _size: i64) -> c_int {
    SQLITE_READONLY
}

/// `xSync`: does nothing, and succeeds.
unsafe extern "C" fn sync(_file: *mut sqlite3_file, _flags: c_int) -> c_int {
    SQLITE_OK
}

/// `xFileSize`: writes the file's length in bytes, which was fixed at the open, into `size`.
unsafe extern "C" fn file_size(file: *mut sqlite3_file, size: *mut i64) -> c_int {
    result_code(inside(file, |remote| {
        let bytes = i64::try_from(remote.size()).map_err(|_| SqliteCode(SQLITE_IOERR))?;
        // SAFETY: the caller gives a place for the result.
        unsafe { size.write(bytes) };
        Ok(())
    }))
}

/// `xLock` and `xUnlock`: does nothing, and succeeds, because the file does not change.
unsafe extern "C" fn lock(_file: *mut sqlite3_file, _level: c_int) -> c_int {
    SQLITE_OK
}

/// `xCheckReservedLock`: writes 0 into `held`, because no process can write a remote file.
unsafe extern "C" fn check_reserved_lock(_file: *mut sqlite3_file, held: *mut c_int) -> c_int {
    // SAFETY: the caller gives a place for the result.
    unsafe { held.write(0) };
    SQLITE_OK
}

/// `xFileControl`: returns `SQLITE_NOTFOUND` for every operation.
unsafe extern "C" fn file_control(
    _file: *mut sqlite3_file,
    _op: c_int,
    _argument: *mut c_void,
) -> c_int {
    SQLITE_NOTFOUND
}

/// `xSectorSize`: returns 4096.
unsafe extern "C" fn sector_size(_file: *mut sqlite3_file) -> c_int {
    4096
}

/// `xDeviceCharacteristics`: says that the file is immutable, so that SQLite neither locks it nor
/// looks for a log or journal.
unsafe extern "C" fn device_characteristics(_file: *mut sqlite3_file) -> c_int {
    SQLITE_IOCAP_IMMUTABLE
}
