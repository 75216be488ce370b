//! An open file of any kind. The C entry points in `methods` call nothing else.
//!
//! Must not: know more of a kind of file than its type.

use std::ffi::{c_int, c_void};

use crate::io_methods::{IoMethods, PassThrough};
use crate::journal::JournalFile;
use crate::lower::LowerFile;
use crate::main_file::MainFile;
use crate::plain::{PlainFile, PlainLog};
use crate::sqlite_code::SqliteResult;
use crate::super_journal::{SuperReader, SuperWriter};
use crate::temp::TempFile;
use crate::wal::WalFile;

/// An open file.
pub(crate) enum OpenFile {
    /// A sealed database, or one that is to become sealed.
    Main(Box<MainFile>),
    /// A plain database.
    Plain(PlainFile),
    /// The write-ahead log of a plain database.
    PlainLog(PlainLog),
    /// The write-ahead log of a sealed database.
    Log(Box<WalFile>),
    /// The rollback journal of a sealed database.
    Journal(JournalFile),
    /// A temporary file.
    Temporary(TempFile),
    /// A super-journal that is being written.
    SuperWriter(SuperWriter),
    /// A super-journal, or a journal read as one.
    SuperReader(SuperReader),
    /// A file that the VFS does not change, such as the journal of a plain database.
    PassThrough(PassThrough),
}

/// Calls the same method of whichever file it is.
macro_rules! dispatch {
    ($self:ident, $file:ident => $call:expr) => {
        match $self {
            OpenFile::Main($file) => $call,
            OpenFile::Plain($file) => $call,
            OpenFile::PlainLog($file) => $call,
            OpenFile::Log($file) => $call,
            OpenFile::Journal($file) => $call,
            OpenFile::Temporary($file) => $call,
            OpenFile::SuperWriter($file) => $call,
            OpenFile::SuperReader($file) => $call,
            OpenFile::PassThrough($file) => $call,
        }
    };
}

impl OpenFile {
    /// Returns the file if it is a sealed database, or one that is to become sealed; else `None`.
    pub(crate) fn as_main(&mut self) -> Option<&mut MainFile> {
        match self {
            Self::Main(file) => Some(file),
            _ => None,
        }
    }

    /// Returns the file if it is a plain database; else `None`.
    pub(crate) fn as_plain(&mut self) -> Option<&mut PlainFile> {
        match self {
            Self::Plain(file) => Some(file),
            _ => None,
        }
    }
}

impl IoMethods for OpenFile {
    /// Returns the file below, whatever the file's kind.
    fn lower(&self) -> LowerFile {
        dispatch!(self, file => file.lower())
    }

    /// Reads at `at`, by the method of the file's kind. Past the end, `out` is zero and the result
    /// `SQLITE_IOERR_SHORT_READ`.
    fn read(&mut self, out: &mut [u8], at: u64) -> SqliteResult<()> {
        dispatch!(self, file => file.read(out, at))
    }

    /// Writes or buffers `data` at `at`, by the method of the file's kind.
    fn write(&mut self, data: &[u8], at: u64) -> SqliteResult<()> {
        dispatch!(self, file => file.write(data, at))
    }

    /// Truncates the file to `size` bytes, by the method of the file's kind.
    fn truncate(&mut self, size: u64) -> SqliteResult<()> {
        dispatch!(self, file => file.truncate(size))
    }

    /// Writes what is buffered and syncs the file, by the method of the file's kind.
    fn sync(&mut self, flags: c_int) -> SqliteResult<()> {
        dispatch!(self, file => file.sync(flags))
    }

    /// Returns the size that SQLite sees, in bytes, by the method of the file's kind.
    fn size(&mut self) -> SqliteResult<u64> {
        dispatch!(self, file => file.size())
    }

    /// Takes a lock of SQLite's `level`, by the method of the file's kind.
    fn lock(&mut self, level: c_int) -> SqliteResult<()> {
        dispatch!(self, file => file.lock(level))
    }

    /// Lowers the lock to SQLite's `level`, by the method of the file's kind.
    fn unlock(&mut self, level: c_int) -> SqliteResult<()> {
        dispatch!(self, file => file.unlock(level))
    }

    /// Answers a file control, by the method of the file's kind.
    fn file_control(&mut self, op: c_int, argument: *mut c_void) -> SqliteResult<()> {
        dispatch!(self, file => file.file_control(op, argument))
    }

    /// Returns the flags `SQLITE_IOCAP_*`, by the method of the file's kind.
    fn device_characteristics(&self) -> c_int {
        dispatch!(self, file => file.device_characteristics())
    }

    /// Tells the file that a lock in shared memory is about to be taken or released.
    fn shm_lock_changes(&mut self, first: c_int, flags: c_int) {
        dispatch!(self, file => file.shm_lock_changes(first, flags));
    }

    /// Writes what is still buffered, by the method of the file's kind. The file is not closed
    /// here.
    fn before_close(&mut self) -> SqliteResult<()> {
        dispatch!(self, file => file.before_close())
    }
}
