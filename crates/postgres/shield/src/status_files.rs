//! Writes transaction status files (SLRU files): seals their zeros, and fills gaps.
//!
//! In these files zeros have a meaning: a transaction of status zero never committed. So that
//! nobody who can write to the disk undoes transactions by writing zeros, zeros are sealed like
//! other bytes, and what is stored as zeros is damage (docs/spec/postgres.md, "Zeros"). PostgreSQL
//! may write a later page before an earlier one (`src/backend/access/transam/slru.c`), and a base
//! backup may read the file then. A writer therefore fills the gap between the file's end and its
//! own first byte with sealed zeros.
//!
//! Invariants: P4. A writer that extends such a file holds the writers' lock from before it asks
//! for the length until its bytes are written (P8). A write within the file needs no lock, because
//! files only become longer while a server runs, so that no gap is filled where it writes.
//!
//! Must not: be used for other block files, in which a hole reads as zeros.
#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::expect_used
)]

use std::os::fd::RawFd;

use crate::block;
use crate::real::{Errno, LockKind, Real};
use crate::sealed_file::SealedFile;
use crate::writer_lock::WriterLock;

/// Bytes of zeros that are sealed at a time: a page.
const PAGE: usize = 8192;
/// Length of the longest file that PostgreSQL makes here, in bytes: 32 pages
/// (`SLRU_PAGES_PER_SEGMENT`, slru.h).
const LENGTH_MAX: u64 = 32 * 8192;

/// Seals `from` and writes it at `offset`, and returns how many bytes were written. Beyond the
/// file's end, first fills the gap with sealed zeros, under the writers' lock, so that no hole is
/// left. Does not sync. See [`crate::file_io::write_at`].
///
/// # Errors
/// The kernel's; EFBIG for a gap that would make the file longer than PostgreSQL makes such files.
pub(crate) fn write_at(
    real: &Real,
    fd: RawFd,
    file: &SealedFile<'_>,
    from: &[u8],
    offset: u64,
) -> Result<usize, Errno> {
    let end = u64::try_from(from.len()).ok();
    let end = end.and_then(|len| offset.checked_add(len));
    if end.ok_or(Errno(libc::EFBIG))? <= real.file_size(fd)? {
        return block::write_at(real, fd, file, from, offset);
    }
    let _lock = WriterLock::acquire(real, fd, LockKind::Exclusive)?;
    fill(real, fd, file, offset)?;
    block::write_at(real, fd, file, from, offset)
}

/// Sets the size; what is added is sealed zeros. Waits for the writers' lock.
///
/// # Errors
/// The kernel's; EFBIG for more than PostgreSQL's longest such file.
pub(crate) fn truncate(
    real: &Real,
    fd: RawFd,
    file: &SealedFile<'_>,
    size: u64,
) -> Result<(), Errno> {
    let _lock = WriterLock::acquire(real, fd, LockKind::Exclusive)?;
    if size <= real.file_size(fd)? {
        return block::truncate(real, fd, file, size);
    }
    fill(real, fd, file, size)
}

/// Writes sealed zeros from the file's end to `end`; does nothing if the file is as long. Does not
/// sync. EFBIG when `end` is beyond any file of PostgreSQL's here. The caller holds the lock.
fn fill(real: &Real, fd: RawFd, file: &SealedFile<'_>, end: u64) -> Result<(), Errno> {
    let size = real.file_size(fd)?;
    if end <= size {
        return Ok(());
    }
    if end > LENGTH_MAX {
        return Err(Errno(libc::EFBIG));
    }
    // A torn unit at the end is replaced: it was never readable.
    let mut at = block::unit_start(size);
    while at < end {
        let len = usize::try_from(end.saturating_sub(at)).map_or(PAGE, |left| left.min(PAGE));
        let zeros = [0_u8; PAGE];
        let zeros = zeros.get(..len).ok_or(Errno(libc::EINVAL))?;
        block::write_all(real, fd, file, zeros, at)?;
        at = at.saturating_add(u64::try_from(len).unwrap_or(u64::MAX));
    }
    Ok(())
}
