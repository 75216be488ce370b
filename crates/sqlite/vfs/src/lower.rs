//! The file below: a safe interface to a `sqlite3_file` of the VFS below ours.
//!
//! Invariants:
//! L1. A `LowerFile` is made only from a file that the VFS below has opened, and is not used after
//!     `close`. The handle that owns the file ensures this; copies of a `LowerFile` held elsewhere
//!     (a log's view of its database) are dropped before, because SQLite closes logs and journals
//!     before the database they belong to.
//! L2. Only the file's length says where the file ends. A read that returns fewer bytes is an
//!     error, never the end of the file: it would be taken for a database without a first page, a
//!     log without frames, or an absent journal.
//! L3. Mapped memory can change during a read, so it is copied once, between `xFetch` and
//!     `xUnfetch`, and only the copy is examined.
//! L4. Once a page was fetched, the VFS below serves all reads from the mapping, and a read beyond
//!     the end of the file kills the process. So there is a mapping only while SQLite itself reads
//!     pages that its snapshot has; the VFS's own reads beyond page 1 find no mapping.
//!
//! Must not: know anything of encryption.
#![expect(unsafe_code, reason = "calls methods of a C object")]

use std::ffi::{c_int, c_void};

use crate::ffi::{
    SQLITE_IOERR, SQLITE_IOERR_READ, SQLITE_IOERR_SHORT_READ, SQLITE_NOTFOUND, sqlite3_file,
    sqlite3_io_methods,
};
use crate::sqlite_code::{SqliteCode, SqliteResult, check};

type Fetch = unsafe extern "C" fn(*mut sqlite3_file, i64, c_int, *mut *mut c_void) -> c_int;
type Unfetch = unsafe extern "C" fn(*mut sqlite3_file, i64, *mut c_void) -> c_int;

/// The file below. See L1.
#[derive(Clone, Copy)]
pub(crate) struct LowerFile {
    file: *mut sqlite3_file,
}

// SAFETY: SQLite serialises the use of one connection's files; nothing in `LowerFile` is bound to a
// thread.
unsafe impl Send for LowerFile {}

impl LowerFile {
    /// Wraps an opened file.
    ///
    /// # Safety
    /// `file` points to a `sqlite3_file` that was opened successfully and outlives every use (L1).
    #[must_use]
    pub(crate) unsafe fn new(file: *mut sqlite3_file) -> Self {
        Self { file }
    }

    /// The C object.
    #[must_use]
    pub(crate) fn as_ptr(self) -> *mut sqlite3_file {
        self.file
    }

    /// The method table of the file below.
    pub(crate) fn methods(self) -> SqliteResult<&'static sqlite3_io_methods> {
        // SAFETY: L1: the file is open.
        let methods = unsafe { (*self.file).methods };
        // SAFETY: method tables are static in every VFS; a null pointer means that the file is
        // closed.
        unsafe { methods.as_ref() }.ok_or(SqliteCode(SQLITE_IOERR))
    }

    /// Reads at `at`. Bytes past the end of the file are zero and the result is then
    /// `SQLITE_IOERR_SHORT_READ`.
    pub(crate) fn read(self, out: &mut [u8], at: u64) -> SqliteResult<()> {
        let call = self.methods()?.read.ok_or(SqliteCode(SQLITE_IOERR))?;
        let (amount, offset) = (amount(out.len())?, offset(at)?);
        // SAFETY: `out` is writable for `amount` bytes.
        check(unsafe { call(self.file, out.as_mut_ptr().cast::<c_void>(), amount, offset) })
    }

    /// As [`Self::read`], but returns whether all bytes were there instead of failing on a short
    /// read. A short read although the file is long enough is an error (L2).
    pub(crate) fn read_whole(self, out: &mut [u8], at: u64) -> SqliteResult<bool> {
        let end = at.saturating_add(out.len() as u64);
        for _ in 0..2 {
            match self.read(out, at) {
                Ok(()) => return Ok(true),
                Err(SqliteCode(SQLITE_IOERR_SHORT_READ)) if self.size()? < end => return Ok(false),
                // Another process may have extended the file meanwhile: read once more.
                Err(SqliteCode(SQLITE_IOERR_SHORT_READ)) => {}
                Err(rc) => return Err(rc),
            }
        }
        Err(SqliteCode(SQLITE_IOERR_READ))
    }

    /// Copies from a mapping of the file, which the VFS below has where `PRAGMA mmap_size` asks for
    /// it. Returns false when there is none, and the bytes are to be read.
    ///
    /// An I/O error of the disk then ends the process (SIGBUS), as with SQLite's own mappings.
    pub(crate) fn copy_mapped(self, out: &mut [u8], at: u64) -> SqliteResult<bool> {
        let Some((fetch, unfetch)) = self.mapping()? else {
            return Ok(false);
        };
        let (amount, offset) = (amount(out.len())?, offset(at)?);
        let mut from = std::ptr::null_mut();
        // SAFETY: `from` is writable.
        check(unsafe { fetch(self.file, offset, amount, &raw mut from) })?;
        if from.is_null() {
            return Ok(false);
        }
        // SAFETY: L3: `amount` bytes are mapped at `from` until they are given back.
        unsafe { std::ptr::copy_nonoverlapping(from.cast::<u8>(), out.as_mut_ptr(), out.len()) };
        // SAFETY: what was fetched is given back once.
        check(unsafe { unfetch(self.file, offset, from) })?;
        Ok(true)
    }

    /// Drops the mapping, because another connection may have truncated the file.
    pub(crate) fn unmap(self) -> SqliteResult<()> {
        match self.mapping()? {
            // SAFETY: nothing is fetched; without a page, this call is about the mapping as a
            // whole.
            Some((_, unfetch)) => check(unsafe { unfetch(self.file, 0, std::ptr::null_mut()) }),
            None => Ok(()),
        }
    }

    /// The two methods that map pages of the file. `None` when the VFS below does not have them.
    fn mapping(self) -> SqliteResult<Option<(Fetch, Unfetch)>> {
        let methods = self.methods()?;
        // Older tables end before these two.
        Ok(match methods.version {
            3.. => methods.fetch.zip(methods.unfetch),
            _ => None,
        })
    }

    /// Writes at `at`.
    pub(crate) fn write(self, data: &[u8], at: u64) -> SqliteResult<()> {
        let call = self.methods()?.write.ok_or(SqliteCode(SQLITE_IOERR))?;
        let (amount, offset) = (amount(data.len())?, offset(at)?);
        // SAFETY: `data` is readable for `amount` bytes.
        check(unsafe { call(self.file, data.as_ptr().cast::<c_void>(), amount, offset) })
    }

    /// Truncates to `size` bytes.
    pub(crate) fn truncate(self, size: u64) -> SqliteResult<()> {
        let call = self.methods()?.truncate.ok_or(SqliteCode(SQLITE_IOERR))?;
        let size = offset(size)?;
        // SAFETY: L1.
        check(unsafe { call(self.file, size) })
    }

    /// Makes what was written durable; `flags` are SQLite's.
    pub(crate) fn sync(self, flags: c_int) -> SqliteResult<()> {
        let call = self.methods()?.sync.ok_or(SqliteCode(SQLITE_IOERR))?;
        // SAFETY: L1.
        check(unsafe { call(self.file, flags) })
    }

    /// Size in bytes.
    pub(crate) fn size(self) -> SqliteResult<u64> {
        let call = self.methods()?.file_size.ok_or(SqliteCode(SQLITE_IOERR))?;
        let mut size = 0_i64;
        // SAFETY: `size` is writable.
        check(unsafe { call(self.file, &raw mut size) })?;
        u64::try_from(size).map_err(|_| SqliteCode(SQLITE_IOERR))
    }

    /// Takes a lock of SQLite's `level`.
    pub(crate) fn lock(self, level: c_int) -> SqliteResult<()> {
        let call = self.methods()?.lock.ok_or(SqliteCode(SQLITE_IOERR))?;
        // SAFETY: L1.
        check(unsafe { call(self.file, level) })
    }

    /// Goes back to a lower lock.
    pub(crate) fn unlock(self, level: c_int) -> SqliteResult<()> {
        let call = self.methods()?.unlock.ok_or(SqliteCode(SQLITE_IOERR))?;
        // SAFETY: L1.
        check(unsafe { call(self.file, level) })
    }

    /// Whether some connection holds a reserved lock.
    pub(crate) fn check_reserved_lock(self) -> SqliteResult<c_int> {
        let call = self
            .methods()?
            .check_reserved_lock
            .ok_or(SqliteCode(SQLITE_IOERR))?;
        let mut held = 0;
        // SAFETY: `held` is writable.
        check(unsafe { call(self.file, &raw mut held) })?;
        Ok(held)
    }

    /// Passes a file control down.
    pub(crate) fn file_control(self, op: c_int, argument: *mut c_void) -> SqliteResult<()> {
        let call = self
            .methods()?
            .file_control
            .ok_or(SqliteCode(SQLITE_NOTFOUND))?;
        // SAFETY: `argument` came from SQLite together with `op`.
        check(unsafe { call(self.file, op, argument) })
    }

    /// Sector size in bytes.
    #[must_use]
    pub(crate) fn sector_size(self) -> c_int {
        let call = self.methods().ok().and_then(|methods| methods.sector_size);
        // SAFETY: L1.
        call.map_or(4096, |call| unsafe { call(self.file) })
    }

    /// `SQLITE_IOCAP_*` of the device.
    #[must_use]
    pub(crate) fn device_characteristics(self) -> c_int {
        let call = self
            .methods()
            .ok()
            .and_then(|methods| methods.device_characteristics);
        // SAFETY: L1.
        call.map_or(0, |call| unsafe { call(self.file) })
    }

    /// Closes the file. It must not be used afterwards.
    pub(crate) fn close(self) -> SqliteResult<()> {
        let call = self.methods()?.close.ok_or(SqliteCode(SQLITE_IOERR))?;
        // SAFETY: L1; the owner calls this once.
        check(unsafe { call(self.file) })
    }

    /// The method table, for the shared-memory calls that are passed on unchanged. Older tables end
    /// before them.
    pub(crate) fn shared_memory(self) -> SqliteResult<&'static sqlite3_io_methods> {
        let methods = self.methods()?;
        match methods.version {
            2.. => Ok(methods),
            _ => Err(SqliteCode(SQLITE_IOERR)),
        }
    }
}

/// A length for SQLite's interface; an error of reading when it does not fit.
fn amount(len: usize) -> SqliteResult<c_int> {
    c_int::try_from(len).map_err(|_| SqliteCode(SQLITE_IOERR_READ))
}

/// An offset for SQLite's interface; an error when it does not fit.
fn offset(at: u64) -> SqliteResult<i64> {
    i64::try_from(at).map_err(|_| SqliteCode(SQLITE_IOERR))
}
