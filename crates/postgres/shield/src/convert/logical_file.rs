//! A file on one side of a conversion, plain or sealed under one epoch's keys, with the same
//! functions for both.
//!
//! Must not: seal anything itself; [`crate::file_io`] does, so that the server reads what is
//! written here.

use std::fs::File as OsFile;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::AtomicU64;

use crate::file_io;
use crate::instance::Instance;
use crate::real::Real;
use crate::resolve::Seal;
use crate::sealed_file::{FileCache, SealedFile};

/// How a file is stored.
#[derive(Clone, Copy)]
pub(super) enum Side<'a> {
    /// In clear.
    Plain,
    /// Sealed under this instance's keys.
    Sealed(&'a Instance),
}

/// An open file of one side. Offsets and sizes are PostgreSQL's, in bytes.
pub(super) struct LogicalFile<'a> {
    real: Real,
    file: &'a OsFile,
    sealed: Option<(&'a Instance, Seal)>,
    cache: FileCache,
}

impl<'a> LogicalFile<'a> {
    /// Wraps the open `file` as a file of this side; on the sealed side it is sealed as `seal`
    /// says. Damage of it is not reported on standard error.
    pub(super) fn new(file: &'a OsFile, side: Side<'a>, seal: &Seal) -> Self {
        Self {
            real: Real::linked(),
            file,
            sealed: match side {
                Side::Plain => None,
                Side::Sealed(instance) => Some((instance, *seal)),
            },
            // The last word is set, so that damage is reported by the caller's error, not on
            // standard error.
            cache: [0, 0, 0, 1].map(AtomicU64::new),
        }
    }

    /// Returns the size in bytes as PostgreSQL sees it. The system's errors.
    pub(super) fn size(&self) -> io::Result<u64> {
        let fd = self.file.as_raw_fd();
        Ok(match self.state() {
            None => self.real.file_size(fd)?,
            Some(file) => file_io::size(&self.real, fd, &file)?,
        })
    }

    /// Reads from `offset` on, decrypted, until `into` is full or the file ends; returns the number
    /// of bytes. EIO when the file is damaged.
    pub(super) fn read(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let fd = self.file.as_raw_fd();
        let Some(file) = self.state() else {
            return Ok(self.real.pread_full(fd, into, offset)?);
        };
        let mut filled = 0_usize;
        while let Some(rest) = into.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match file_io::read_at(&self.real, fd, &file, rest, offset_after(offset, filled))? {
                0 => break,
                count => filled = filled.saturating_add(count),
            }
        }
        Ok(filled)
    }

    /// Writes all of `from` at `offset`, sealed on the sealed side. Does not sync. The system's
    /// errors; EIO when what is stored there is damaged.
    pub(super) fn write(&self, from: &[u8], offset: u64) -> io::Result<()> {
        let fd = self.file.as_raw_fd();
        let Some(file) = self.state() else {
            return Ok(self.real.pwrite_full(fd, from, offset)?);
        };
        let mut written = 0_usize;
        while let Some(rest) = from.get(written..).filter(|rest| !rest.is_empty()) {
            match file_io::write_at(&self.real, fd, &file, rest, offset_after(offset, written))? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                count => written = written.saturating_add(count),
            }
        }
        Ok(())
    }

    /// Makes the file this long; what is added reads as zeros. The system's errors; EIO when the
    /// file is damaged.
    pub(super) fn set_size(&self, size: u64) -> io::Result<()> {
        let fd = self.file.as_raw_fd();
        match self.state() {
            None => self.real.ftruncate(fd, size)?,
            Some(file) => file_io::truncate(&self.real, fd, &file, size)?,
        }
        Ok(())
    }

    /// Returns the sealed file for [`file_io`]; `None` on the plain side.
    fn state(&self) -> Option<SealedFile<'_>> {
        self.sealed.as_ref().map(|(instance, seal)| SealedFile {
            instance,
            layout: seal.layout,
            key: seal.key,
            tweak: seal.tweak,
            cache: &self.cache,
        })
    }
}

/// Returns `offset + by`; the largest number if that does not fit.
fn offset_after(offset: u64, by: usize) -> u64 {
    offset.saturating_add(u64::try_from(by).unwrap_or(u64::MAX))
}
