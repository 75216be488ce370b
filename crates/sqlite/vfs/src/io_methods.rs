//! The operations of an open file, which every kind of file implements.
//!
//! Must not: touch a raw pointer, except to hand a file control's argument on.

use std::ffi::{c_int, c_void};

use crate::lower::LowerFile;
use crate::sqlite_code::SqliteResult;

/// The operations that SQLite calls on an open file. The defaults pass everything to the file below.
pub(crate) trait IoMethods: Send {
    /// The file below.
    fn lower(&self) -> LowerFile;

    /// Reads; see [`LowerFile::read`] for short reads.
    fn read(&mut self, out: &mut [u8], at: u64) -> SqliteResult<()> {
        self.lower().read(out, at)
    }

    /// Writes.
    fn write(&mut self, data: &[u8], at: u64) -> SqliteResult<()> {
        self.lower().write(data, at)
    }

    /// Truncates to SQLite's size.
    fn truncate(&mut self, size: u64) -> SqliteResult<()> {
        self.lower().truncate(size)
    }

    /// Makes what was written durable.
    fn sync(&mut self, flags: c_int) -> SqliteResult<()> {
        self.lower().sync(flags)
    }

    /// Size as SQLite is to see it.
    fn size(&mut self) -> SqliteResult<u64> {
        self.lower().size()
    }

    /// Takes a lock.
    fn lock(&mut self, level: c_int) -> SqliteResult<()> {
        self.lower().lock(level)
    }

    /// Gives a lock back.
    fn unlock(&mut self, level: c_int) -> SqliteResult<()> {
        self.lower().unlock(level)
    }

    /// A file control that the C side has not answered itself.
    fn file_control(&mut self, op: c_int, argument: *mut c_void) -> SqliteResult<()> {
        self.lower().file_control(op, argument)
    }

    /// `SQLITE_IOCAP_*`.
    fn device_characteristics(&self) -> c_int {
        self.lower().device_characteristics()
    }

    /// A lock in shared memory is about to be taken or given back: which, and `SQLITE_SHM_*`.
    fn shm_lock_changes(&mut self, _first: c_int, _flags: c_int) {}

    /// What is still buffered goes down before the file is closed.
    fn before_close(&mut self) -> SqliteResult<()> {
        Ok(())
    }
}

/// A file that the guard has nothing to do with: a plain database's journal, for one.
pub(crate) struct PassThrough(pub LowerFile);

impl IoMethods for PassThrough {
    fn lower(&self) -> LowerFile {
        self.0
    }
}
