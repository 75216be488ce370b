//! A file in memory, as a VFS below would open it.
//!
//! Must not: outlive its [`LowerFile`]s; the caller keeps it until then.
#![expect(unsafe_code, reason = "called with raw pointers, like a VFS")]

use std::ffi::{c_int, c_void};

use crate::ffi::{SQLITE_IOERR_SHORT_READ, SQLITE_OK, sqlite3_file, sqlite3_io_methods};
use crate::lower::LowerFile;

/// Longest file: what a fuzzer chooses must not fill the memory.
const LONGEST: usize = 1 << 20;

/// A file. In a box, because it is known by its address.
#[repr(C)]
pub(super) struct MemoryFile {
    base: sqlite3_file,
    bytes: Vec<u8>,
}

static METHODS: sqlite3_io_methods = sqlite3_io_methods {
    version: 1,
    close: None,
    read: Some(read),
    write: Some(write),
    truncate: Some(truncate),
    sync: Some(sync),
    file_size: Some(size),
    lock: None,
    unlock: None,
    check_reserved_lock: None,
    file_control: None,
    sector_size: None,
    device_characteristics: None,
    shm_map: None,
    shm_lock: None,
    shm_barrier: None,
    shm_unmap: None,
    fetch: None,
    unfetch: None,
};

impl MemoryFile {
    /// A file of these bytes.
    pub(super) fn new(bytes: Vec<u8>) -> Box<Self> {
        Box::new(Self {
            base: sqlite3_file {
                methods: &raw const METHODS,
            },
            bytes,
        })
    }

    /// The file as [`LowerFile`] takes it.
    pub(super) fn lower(&mut self) -> LowerFile {
        // SAFETY: `repr(C)`, so that the file begins with its base; the caller keeps it.
        unsafe { LowerFile::new((&raw mut *self).cast::<sqlite3_file>()) }
    }
}

fn of<'a>(file: *mut sqlite3_file) -> &'a mut Vec<u8> {
    // SAFETY: the table is only in files that `new` made, and calls come one at a time.
    unsafe { &mut (*file.cast::<MemoryFile>()).bytes }
}

fn index(value: i64) -> usize {
    usize::try_from(value).unwrap_or(0)
}

unsafe extern "C" fn read(
    file: *mut sqlite3_file,
    out: *mut c_void,
    amount: c_int,
    offset: i64,
) -> c_int {
    let len = index(amount.into());
    // SAFETY: `LowerFile::read` gives a buffer of `amount` bytes.
    let out = unsafe { std::slice::from_raw_parts_mut(out.cast::<u8>(), len) };
    out.fill(0);
    let there = of(file).get(index(offset)..).unwrap_or_default();
    let take = there.len().min(len);
    out[..take].copy_from_slice(&there[..take]);
    if take < len {
        SQLITE_IOERR_SHORT_READ
    } else {
        SQLITE_OK
    }
}

unsafe extern "C" fn write(
    file: *mut sqlite3_file,
    data: *const c_void,
    amount: c_int,
    offset: i64,
) -> c_int {
    // SAFETY: `LowerFile::write` gives `amount` bytes.
    let data = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), index(amount.into())) };
    let at = index(offset);
    let end = at.saturating_add(data.len());
    if end > LONGEST {
        return crate::ffi::SQLITE_IOERR_WRITE;
    }
    let bytes = of(file);
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[at..end].copy_from_slice(data);
    SQLITE_OK
}

unsafe extern "C" fn truncate(file: *mut sqlite3_file, size: i64) -> c_int {
    // As an unlimited disk would, but for the memory.
    of(file).resize(index(size).min(LONGEST), 0);
    SQLITE_OK
}

unsafe extern "C" fn sync(_file: *mut sqlite3_file, _flags: c_int) -> c_int {
    SQLITE_OK
}

unsafe extern "C" fn size(file: *mut sqlite3_file, out: *mut i64) -> c_int {
    let len = i64::try_from(of(file).len()).unwrap_or(0);
    // SAFETY: `LowerFile::size` gives a place for the result.
    unsafe { out.write(len) };
    SQLITE_OK
}
