//! A file as this crate uses it: reads and writes at places, made durable when asked. A trait, so that tests can stand for a disk
//! that fails and a power supply that ends.
//!
//! Must not: lose an error of a sync.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// An open file.
pub(crate) trait Disk: Sync {
    /// Fills `bytes` from `offset` on.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;
    /// Writes all of `bytes` from `offset` on.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Makes all that was written durable.
    fn sync(&self) -> io::Result<()>;
    /// Length in bytes.
    fn len(&self) -> io::Result<u64>;
}

impl Disk for File {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_exact_at(bytes, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        self.metadata().map(|about| about.len())
    }
}

/// A database, and the place for the rekey's file beside it.
pub(crate) trait Site: Sync {
    /// The database.
    fn database(&self) -> &dyn Disk;
    /// Makes the rekey's file, empty and durable; what was there before is gone.
    fn create_undo(&self) -> io::Result<Box<dyn Disk>>;
    /// The rekey's file, if there is one.
    fn open_undo(&self) -> io::Result<Option<Box<dyn Disk>>>;
    /// Removes the rekey's file, durably.
    fn remove_undo(&self) -> io::Result<()>;
}
