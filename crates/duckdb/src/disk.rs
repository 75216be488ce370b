//! The file operations that this crate uses: reads and writes at offsets, and sync. They are a
//! trait, so that tests can simulate a failing disk and a power cut.
//!
//! Must not: ignore an error of a sync.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// An open file.
pub(crate) trait Disk: Sync {
    /// Fills `bytes` from `offset` on; `UnexpectedEof` when the file ends before.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;
    /// Writes all of `bytes` from `offset` on. They are durable after [`Disk::sync`].
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Makes all that was written durable.
    fn sync(&self) -> io::Result<()>;
    /// Returns the length in bytes.
    fn len(&self) -> io::Result<u64>;
}

impl Disk for File {
    /// Fills `bytes` from `offset` on; `UnexpectedEof` when the file ends before.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_exact_at(bytes, offset)
    }

    /// Writes all of `bytes` from `offset` on, without a sync.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    /// Makes the file's data durable (fdatasync).
    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    /// Returns the length in bytes.
    fn len(&self) -> io::Result<u64> {
        self.metadata().map(|about| about.len())
    }
}

/// A database, and the file that a rekey keeps beside it: the rekey's plan and the old bytes of the
/// blocks that are being rewritten, with which an interrupted rekey is finished.
pub(crate) trait RekeyStorage: Sync {
    /// Returns the database.
    fn database(&self) -> &dyn Disk;
    /// Creates the rekey's file, empty and durable, in place of an older one.
    fn create_undo(&self) -> io::Result<Box<dyn Disk>>;
    /// Opens the rekey's file for reading and writing. `None` when there is none.
    fn open_undo(&self) -> io::Result<Option<Box<dyn Disk>>>;
    /// Removes the rekey's file (its plan, and old bytes of blocks), durably, when the rekey is
    /// finished. An error when there is none.
    fn remove_undo(&self) -> io::Result<()>;
}
