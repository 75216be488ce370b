//! The operations of an open file, which every kind of file implements.
//!
//! Must not: touch a raw pointer, except to hand a file control's argument on.

use std::ffi::{c_int, c_void};

use crate::lower::LowerFile;
use crate::sqlite_code::SqliteResult;

/// The operations that SQLite calls on an open file. The defaults pass everything to the file
/// below.
pub(crate) trait IoMethods: Send {
    /// Returns the file below.
    fn lower(&self) -> LowerFile;

    /// Reads `out.len()` bytes at `at`, as SQLite sees the file. Past its end, `out` is zero and
    /// the result `SQLITE_IOERR_SHORT_READ`. By default reads from the file below.
    fn read(&mut self, out: &mut [u8], at: u64) -> SqliteResult<()> {
        self.lower().read(out, at)
    }

    /// Writes `data` at `at`, as SQLite sees the file. May only buffer it. Does not sync. By
    /// default writes to the file below. The error is the result code that SQLite gets.
    fn write(&mut self, data: &[u8], at: u64) -> SqliteResult<()> {
        self.lower().write(data, at)
    }

    /// Truncates the file to `size` bytes, as SQLite sees it. Does not sync. By default truncates
    /// the file below. The error is the result code that SQLite gets.
    fn truncate(&mut self, size: u64) -> SqliteResult<()> {
        self.lower().truncate(size)
    }

    /// Makes everything that was written durable; `flags` are SQLite's. By default syncs the file
    /// below. The error is the result code that SQLite gets.
    fn sync(&mut self, flags: c_int) -> SqliteResult<()> {
        self.lower().sync(flags)
    }

    /// Returns the size that SQLite sees, in bytes. By default the size of the file below. The
    /// error is the result code that SQLite gets.
    fn size(&mut self) -> SqliteResult<u64> {
        self.lower().size()
    }

    /// Takes a lock of SQLite's `level`. Does not wait: `SQLITE_BUSY` if another connection's lock
    /// conflicts. By default passes the call to the file below.
    fn lock(&mut self, level: c_int) -> SqliteResult<()> {
        self.lower().lock(level)
    }

    /// Lowers the lock to SQLite's `level`; 0 releases it. By default passes the call to the file
    /// below. The error is the result code that SQLite gets.
    fn unlock(&mut self, level: c_int) -> SqliteResult<()> {
        self.lower().unlock(level)
    }

    /// Answers a file control that the C entry points do not answer themselves. `SQLITE_NOTFOUND`
    /// if it is not known. By default passes it to the file below.
    fn file_control(&mut self, op: c_int, argument: *mut c_void) -> SqliteResult<()> {
        self.lower().file_control(op, argument)
    }

    /// Returns the flags `SQLITE_IOCAP_*`. By default the flags of the file below.
    fn device_characteristics(&self) -> c_int {
        self.lower().device_characteristics()
    }

    /// Tells the file that a lock in shared memory is about to be taken or released: the number of
    /// the first lock, and the flags `SQLITE_SHM_*`. Takes no lock itself. By default does nothing.
    fn shm_lock_changes(&mut self, _first: c_int, _flags: c_int) {}

    /// Writes what is still buffered. Called once, before the file is closed. An error is returned
    /// by the close, which happens all the same. By default does nothing.
    fn before_close(&mut self) -> SqliteResult<()> {
        Ok(())
    }
}

/// A file that the VFS does not change, such as the journal of a plain database.
pub(crate) struct PassThrough(pub LowerFile);

impl IoMethods for PassThrough {
    /// Returns the file below, to which everything is passed unchanged.
    fn lower(&self) -> LowerFile {
        self.0
    }
}
