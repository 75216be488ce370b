//! The lock that excludes the writers of one file from each other.
//!
//! Must not: be taken for a read or write of a relation, the write-ahead log or a temporary file.
#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::expect_used
)]

use std::os::fd::RawFd;

use crate::real::{Errno, LockKind, Real};

/// Offset of the byte that is locked: no file has it, so that no lock of the program covers it.
const LOCKED_BYTE: i64 = 1 << 62;

/// The lock of a file's writers, released when dropped. It belongs to the open file description:
/// processes that opened the file separately exclude one another.
pub(crate) struct WriterLock<'a> {
    real: &'a Real,
    fd: RawFd,
}

impl<'a> WriterLock<'a> {
    /// Takes the lock, shared or exclusive, and waits for it. The kernel's error when the file
    /// system has no locks, or the descriptor may not write.
    pub(crate) fn acquire(real: &'a Real, fd: RawFd, kind: LockKind) -> Result<Self, Errno> {
        real.lock(fd, kind, LOCKED_BYTE, 1)?;
        Ok(Self { real, fd })
    }
}

impl Drop for WriterLock<'_> {
    /// Releases the lock.
    fn drop(&mut self) {
        // Releasing a lock that is held cannot fail.
        let _given_back = self.real.lock(self.fd, LockKind::None, LOCKED_BYTE, 1);
    }
}
