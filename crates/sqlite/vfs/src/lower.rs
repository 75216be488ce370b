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
    /// Wraps an opened file. Takes no ownership: the file is closed only by [`Self::close`].
    ///
    /// # Safety
    /// `file` points to a `sqlite3_file` that was opened successfully and outlives every use (L1).
    #[must_use]
    pub(crate) unsafe fn new(file: *mut sqlite3_file) -> Self {
        Self { file }
    }

    /// Returns the pointer to SQLite's C object of the file.
    #[must_use]
    pub(crate) fn as_ptr(self) -> *mut sqlite3_file {
        self.file
    }

    /// Returns the method table of the file below. `SQLITE_IOERR` if it has none, that is, if the
    /// file is not open.
    pub(crate) fn methods(self) -> SqliteResult<&'static sqlite3_io_methods> {
        // SAFETY: L1: the file is open.
        let methods = unsafe { (*self.file).methods };
        // SAFETY: method tables are static in every VFS; a null pointer means that the file is
        // closed.
        unsafe { methods.as_ref() }.ok_or(SqliteCode(SQLITE_IOERR))
    }

    /// Reads `out.len()` bytes at `at`. Where the file is shorter, the missing bytes are zero and
    /// the result is `SQLITE_IOERR_SHORT_READ`. Other errors are those of the VFS below, and
    /// `SQLITE_IOERR` or `SQLITE_IOERR_READ` when the file is not open, or offset or length is too
    /// large for SQLite.
    pub(crate) fn read(self, out: &mut [u8], at: u64) -> SqliteResult<()> {
        let call = self.methods()?.read.ok_or(SqliteCode(SQLITE_IOERR))?;
        let (amount, offset) = (amount(out.len())?, offset(at)?);
        // SAFETY: `out` is writable for `amount` bytes.
        check(unsafe { call(self.file, out.as_mut_ptr().cast::<c_void>(), amount, offset) })
    }

    /// Reads `out.len()` bytes at `at`, and returns whether all of them were there; false, with
    /// zeros for the missing ones, if the file is shorter. `SQLITE_IOERR_READ` if a second try is
    /// also short although the file is long enough (L2).
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

    /// Copies `out.len()` bytes at `at` from a memory mapping of the file, which the VFS below has
    /// where `PRAGMA mmap_size` asks for it. Returns false, with `out` unchanged, when there is no
    /// mapping of these bytes, so that the caller must read them. An I/O error of the disk ends the
    /// process (SIGBUS), as with SQLite's own mappings.
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

    /// Drops the file's memory mapping, because another connection may have truncated the file.
    /// Does nothing if the VFS below cannot map files. Fails as the VFS below does.
    pub(crate) fn unmap(self) -> SqliteResult<()> {
        match self.mapping()? {
            // SAFETY: nothing is fetched; without a page, this call is about the mapping as a
            // whole.
            Some((_, unfetch)) => check(unsafe { unfetch(self.file, 0, std::ptr::null_mut()) }),
            None => Ok(()),
        }
    }

    /// Returns the VFS's two methods `xFetch` and `xUnfetch`. `None` when the VFS below does not
    /// have them; `SQLITE_IOERR` when the file is not open.
    fn mapping(self) -> SqliteResult<Option<(Fetch, Unfetch)>> {
        let methods = self.methods()?;
        // Older tables end before these two.
        Ok(match methods.version {
            3.. => methods.fetch.zip(methods.unfetch),
            _ => None,
        })
    }

    /// Writes `data` at `at`. Does not sync. Errors are those of the VFS below.
    pub(crate) fn write(self, data: &[u8], at: u64) -> SqliteResult<()> {
        let call = self.methods()?.write.ok_or(SqliteCode(SQLITE_IOERR))?;
        let (amount, offset) = (amount(data.len())?, offset(at)?);
        // SAFETY: `data` is readable for `amount` bytes.
        check(unsafe { call(self.file, data.as_ptr().cast::<c_void>(), amount, offset) })
    }

    /// Truncates the file to `size` bytes. Does not sync. Fails as the VFS below does.
    pub(crate) fn truncate(self, size: u64) -> SqliteResult<()> {
        let call = self.methods()?.truncate.ok_or(SqliteCode(SQLITE_IOERR))?;
        let size = offset(size)?;
        // SAFETY: L1.
        check(unsafe { call(self.file, size) })
    }

    /// Makes what was written durable. `flags` are SQLite's (`SQLITE_SYNC_NORMAL` and so on). Fails
    /// as the VFS below does.
    pub(crate) fn sync(self, flags: c_int) -> SqliteResult<()> {
        let call = self.methods()?.sync.ok_or(SqliteCode(SQLITE_IOERR))?;
        // SAFETY: L1.
        check(unsafe { call(self.file, flags) })
    }

    /// Returns the file's size in bytes, as the VFS below gives it. Fails as the VFS below does.
    pub(crate) fn size(self) -> SqliteResult<u64> {
        let call = self.methods()?.file_size.ok_or(SqliteCode(SQLITE_IOERR))?;
        let mut size = 0_i64;
        // SAFETY: `size` is writable.
        check(unsafe { call(self.file, &raw mut size) })?;
        u64::try_from(size).map_err(|_| SqliteCode(SQLITE_IOERR))
    }

    /// Takes a lock of SQLite's `level` (`SQLITE_LOCK_SHARED` and so on). `SQLITE_BUSY` if another
    /// connection holds a lock that conflicts; this does not wait.
    pub(crate) fn lock(self, level: c_int) -> SqliteResult<()> {
        let call = self.methods()?.lock.ok_or(SqliteCode(SQLITE_IOERR))?;
        // SAFETY: L1.
        check(unsafe { call(self.file, level) })
    }

    /// Lowers the lock to SQLite's `level`; 0 releases it. Fails as the VFS below does.
    pub(crate) fn unlock(self, level: c_int) -> SqliteResult<()> {
        let call = self.methods()?.unlock.ok_or(SqliteCode(SQLITE_IOERR))?;
        // SAFETY: L1.
        check(unsafe { call(self.file, level) })
    }

    /// Returns a number other than 0 if some connection, this one included, holds a reserved lock
    /// or a higher one, and 0 if none does. Fails as the VFS below does.
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

    /// Passes the file control `op` with its `argument` to the file below. `SQLITE_NOTFOUND` if the
    /// VFS below does not know it.
    pub(crate) fn file_control(self, op: c_int, argument: *mut c_void) -> SqliteResult<()> {
        let call = self
            .methods()?
            .file_control
            .ok_or(SqliteCode(SQLITE_NOTFOUND))?;
        // SAFETY: `argument` came from SQLite together with `op`.
        check(unsafe { call(self.file, op, argument) })
    }

    /// Returns the sector size of the file below in bytes; 4096 if it does not say.
    #[must_use]
    pub(crate) fn sector_size(self) -> c_int {
        let call = self.methods().ok().and_then(|methods| methods.sector_size);
        // SAFETY: L1.
        call.map_or(4096, |call| unsafe { call(self.file) })
    }

    /// Returns the flags `SQLITE_IOCAP_*` of the file below; 0 if it does not say.
    #[must_use]
    pub(crate) fn device_characteristics(self) -> c_int {
        let call = self
            .methods()
            .ok()
            .and_then(|methods| methods.device_characteristics);
        // SAFETY: L1.
        call.map_or(0, |call| unsafe { call(self.file) })
    }

    /// Closes the file below. No copy of this `LowerFile` may be used afterwards, even after an
    /// error. Fails as the VFS below does.
    pub(crate) fn close(self) -> SqliteResult<()> {
        let call = self.methods()?.close.ok_or(SqliteCode(SQLITE_IOERR))?;
        // SAFETY: L1; the owner calls this once.
        check(unsafe { call(self.file) })
    }

    /// Returns the method table, for the shared-memory calls that are passed on unchanged.
    /// `SQLITE_IOERR` if the file is not open, or if its table is of version 1, which ends before
    /// these methods.
    pub(crate) fn shared_memory(self) -> SqliteResult<&'static sqlite3_io_methods> {
        let methods = self.methods()?;
        match methods.version {
            2.. => Ok(methods),
            _ => Err(SqliteCode(SQLITE_IOERR)),
        }
    }
}

/// Converts a length for SQLite's interface. `SQLITE_IOERR_READ` when it does not fit into an int.
fn amount(len: usize) -> SqliteResult<c_int> {
    c_int::try_from(len).map_err(|_| SqliteCode(SQLITE_IOERR_READ))
}

/// Converts an offset for SQLite's interface. `SQLITE_IOERR` when it does not fit into 63 bits.
fn offset(at: u64) -> SqliteResult<i64> {
    i64::try_from(at).map_err(|_| SqliteCode(SQLITE_IOERR))
}
