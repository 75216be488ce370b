//! Reads and writes an open sealed file at logical offsets, whatever its layout.
//!
//! Each function only selects the implementation: [`block`], [`stream`], [`container`] or
//! `status_files`.
//!
//! Invariants: P1 to P6 (docs/internals/shield.md). No operation moves the kernel's file offset,
//! buffers bytes, or changes the caller's buffer. Buffers are never longer than
//! [`crate::scratch::LEN`]: the exported C functions split larger requests.
//!
//! Must not: know a path or a C type.

use std::os::fd::RawFd;

use crate::layout::FileLayout;
use crate::real::{Errno, Real};
use crate::sealed_file::SealedFile;
use crate::{block, container, status_files, stream};

/// Reads at most `into.len()` bytes at the logical `offset`, decrypted, and returns how many. 0 at
/// the end of the file.
///
/// # Errors
/// The kernel's; EIO, and a line on standard error, when the bytes are not authentic.
pub fn read_at(
    real: &Real,
    fd: RawFd,
    file: &SealedFile<'_>,
    into: &mut [u8],
    offset: u64,
) -> Result<usize, Errno> {
    match file.layout {
        FileLayout::Block | FileLayout::Temporary | FileLayout::NewLog => {
            block::read_at(real, fd, file, into, offset)
        }
        FileLayout::Stream | FileLayout::TemporaryStream => {
            stream::read_at(real, fd, file, into, offset)
        }
        FileLayout::Container => container::read_at(real, fd, file, into, offset),
    }
}

/// Seals `from` and writes it at the logical `offset`, which may lie beyond the end, and returns
/// how many bytes were written. Does not sync.
///
/// # Errors
/// The kernel's; EIO, and a line on standard error, when what is stored there is damaged.
pub fn write_at(
    real: &Real,
    fd: RawFd,
    file: &SealedFile<'_>,
    from: &[u8],
    offset: u64,
) -> Result<usize, Errno> {
    match file.layout {
        FileLayout::Block if file.seals_zeros() => {
            status_files::write_at(real, fd, file, from, offset)
        }
        FileLayout::Block | FileLayout::Temporary | FileLayout::NewLog => {
            block::write_at(real, fd, file, from, offset)
        }
        FileLayout::Stream | FileLayout::TemporaryStream => {
            stream::write_at(real, fd, file, from, offset)
        }
        FileLayout::Container => container::write_at(real, fd, file, from, offset),
    }
}

/// Seals `from` and writes it at the end (`O_APPEND`). Returns the offset at which it was written,
/// and the number of bytes. Does not sync.
///
/// Two processes that append at the same time must not overwrite each other: streams and containers
/// lock; block files, which PostgreSQL never appends to in this way, do not.
///
/// # Errors
/// The kernel's; EIO, and a line on standard error, when what is stored there is damaged.
pub fn append(
    real: &Real,
    fd: RawFd,
    file: &SealedFile<'_>,
    from: &[u8],
) -> Result<(u64, usize), Errno> {
    match file.layout {
        FileLayout::Stream | FileLayout::TemporaryStream => stream::append(real, fd, file, from),
        FileLayout::Container => container::append(real, fd, file, from),
        FileLayout::Block | FileLayout::Temporary | FileLayout::NewLog => {
            let end = real.file_size(fd)?;
            Ok((end, write_at(real, fd, file, from, end)?))
        }
    }
}

/// Returns the logical size in bytes.
///
/// # Errors
/// The kernel's.
pub fn size(real: &Real, fd: RawFd, file: &SealedFile<'_>) -> Result<u64, Errno> {
    match file.layout {
        FileLayout::Block | FileLayout::Temporary | FileLayout::NewLog => real.file_size(fd),
        FileLayout::Stream | FileLayout::TemporaryStream => stream::size(real, fd, file),
        FileLayout::Container => container::size(real, fd, file),
    }
}

/// Sets the logical size to `size` bytes. What is added reads as zeros.
///
/// # Errors
/// The kernel's; EIO, and a line on standard error, when what is stored there is damaged.
pub fn truncate(real: &Real, fd: RawFd, file: &SealedFile<'_>, size: u64) -> Result<(), Errno> {
    match file.layout {
        FileLayout::Block if file.seals_zeros() => status_files::truncate(real, fd, file, size),
        FileLayout::Block | FileLayout::Temporary | FileLayout::NewLog => {
            block::truncate(real, fd, file, size)
        }
        FileLayout::Stream | FileLayout::TemporaryStream => stream::truncate(real, fd, file, size),
        FileLayout::Container => container::truncate(real, fd, file, size),
    }
}

/// Returns the logical size of a file that is not open, from its physical size; `stat` by path
/// needs it.
#[must_use]
pub fn size_of_closed(layout: FileLayout, physical: u64) -> u64 {
    match layout {
        FileLayout::Block | FileLayout::Temporary | FileLayout::NewLog => physical,
        FileLayout::Stream | FileLayout::TemporaryStream => stream::logical_size(physical),
        FileLayout::Container => container::logical_size(physical),
    }
}
