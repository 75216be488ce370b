//! Treatment S: a header of 4096 bytes that holds a random nonce, then the file's bytes under
//! AES-256 in counter mode.
//!
//! For files that are appended to at any byte, or written by several processes at once: a stored
//! byte depends on the nonce and its own offset only, so a write reads nothing, and two writers do
//! not interfere.
//!
//! Invariants, beside P1, P2 and D6:
//! - **S1** The first writer that finds the file empty writes the header, under a lock; no other
//!   byte is written before. It is not written again until the file is truncated to zero, which
//!   removes the header; the next one has a new nonce.
//! - **S2** A descriptor caches the nonce until it finds the file empty or reaches its end. So a
//!   file that is truncated and written again while another process has it open decrypts to noise
//!   there. PostgreSQL does so only when no process has the file open, or opens it again.
//! - **S3** No offset is written twice with different bytes under one nonce. The callers guarantee
//!   this: PostgreSQL appends to these files, or truncates them first; the redo of a mapping writes
//!   the same bytes again.
//!
//! Holes: a gap before a write beyond the end reads as arbitrary bytes, not as zeros, until it is
//! written. Filling it would overwrite bytes that another process, which reserved that range, is
//! about to write. `pg_stat_statements` makes such holes for a moment and reads no text that was
//! not written; other files of this treatment are only appended to. Growth by ftruncate is filled
//! with zeros.
//!
//! Must not: allocate, or be used for data that must be authenticated.
#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::expect_used
)]

use std::os::fd::RawFd;

use strongroom_crypto::{CtrKey, random16};
use strongroom_format::postgres::stream::{
    STREAM_HEADER, STREAM_PREFIX, StreamHeader, stream_logical, stream_physical,
};

use crate::damage;
use crate::fault::Fault;
use crate::header_cache;
use crate::layout::FileLayout;
use crate::real::{Errno, LockKind, Real};
use crate::scratch;
use crate::sealed_file::SealedFile;
use crate::writer_lock::WriterLock;

/// Reads at most `into.len()` bytes at `offset` and decrypts them; returns how many, 0 at the end.
/// The bytes are not authenticated. See [`crate::file_io::read_at`].
///
/// # Errors
/// The kernel's; EIO, and a line on standard error, when the header is damaged.
pub fn read_at(
    real: &Real,
    fd: RawFd,
    file: &SealedFile<'_>,
    into: &mut [u8],
    offset: u64,
) -> Result<usize, Errno> {
    let target = Target { real, fd, file };
    damage::into_errno(real, fd, file, target.read(into, offset))
}

/// Encrypts `from` and writes it at `offset`; returns how many bytes were written. Writes the
/// header of an empty file first, under the writers' lock. Does not sync. See
/// [`crate::file_io::write_at`].
///
/// # Errors
/// The kernel's; EIO, and a line on standard error, when the header is damaged.
pub fn write_at(
    real: &Real,
    fd: RawFd,
    file: &SealedFile<'_>,
    from: &[u8],
    offset: u64,
) -> Result<usize, Errno> {
    if from.is_empty() {
        return Ok(0);
    }
    let target = Target { real, fd, file };
    let outcome = target
        .header_for_writing()
        .and_then(|header| target.write(&header, from, offset));
    damage::into_errno(real, fd, file, outcome)
}

/// Encrypts `from` and writes it at the end. Returns the offset, and the number of bytes written.
/// Does not sync.
///
/// Appends by several writers do not overlap, except under the temporary key: the spilled changes
/// of a replication slot have one writer, the slot's owner. The lock would be a sixth of the cost
/// of spilling.
///
/// # Errors
/// The kernel's; EIO, and a line on standard error, when the header is damaged.
pub fn append(
    real: &Real,
    fd: RawFd,
    file: &SealedFile<'_>,
    from: &[u8],
) -> Result<(u64, usize), Errno> {
    let target = Target { real, fd, file };
    let _lock = match file.layout {
        FileLayout::TemporaryStream => None,
        _ => Some(WriterLock::acquire(real, fd, LockKind::Exclusive)?),
    };
    let end = stream_logical(real.file_size(fd)?);
    if end == 0 {
        header_cache::clear(file.cache);
    }
    let header = match file.layout {
        FileLayout::TemporaryStream => target.header_for_writing(),
        _ => target.header_or_create(),
    };
    let outcome = header.and_then(|header| Ok((end, target.write(&header, from, end)?)));
    damage::into_errno(real, fd, file, outcome)
}

/// Returns the logical size in bytes.
///
/// # Errors
/// The kernel's.
pub fn size(real: &Real, fd: RawFd, _file: &SealedFile<'_>) -> Result<u64, Errno> {
    Ok(stream_logical(real.file_size(fd)?))
}

/// Returns the logical size of a file whose physical size is `physical`, in bytes.
#[must_use]
pub const fn logical_size(physical: u64) -> u64 {
    stream_logical(physical)
}

/// Sets the logical size to `size` bytes; what is added is zeros. 0 also removes the header. See
/// [`crate::file_io::truncate`].
///
/// # Errors
/// The kernel's; EIO, and a line on standard error, when the header is damaged and the file is
/// extended.
pub fn truncate(real: &Real, fd: RawFd, file: &SealedFile<'_>, size: u64) -> Result<(), Errno> {
    if size == 0 {
        // S1: the header goes too.
        header_cache::clear(file.cache);
        return real.ftruncate(fd, 0);
    }
    let old = stream_logical(real.file_size(fd)?);
    if size <= old {
        return real.ftruncate(fd, stream_physical(size).ok_or(Errno(libc::EFBIG))?);
    }
    let target = Target { real, fd, file };
    damage::into_errno(real, fd, file, target.fill(old, size))
}

/// An open stream.
struct Target<'a> {
    real: &'a Real,
    fd: RawFd,
    file: &'a SealedFile<'a>,
}

impl Target<'_> {
    /// Reads once and decrypts; returns the number of bytes, 0 from an empty file or at the end.
    /// `Fault::Damaged` when the header is malformed; the kernel's errors.
    fn read(&self, into: &mut [u8], offset: u64) -> Result<usize, Fault> {
        let Some(header) = self.header()? else {
            return Ok(0);
        };
        let at = stream_physical(offset).ok_or(Errno(libc::EINVAL))?;
        let count = self.real.pread(self.fd, into, at)?;
        if count == 0 {
            header_cache::clear(self.file.cache);
        }
        let read = into.get_mut(..count).ok_or(Fault::Damaged)?;
        self.key().apply_at(&header.nonce, offset, read);
        Ok(count)
    }

    /// Encrypts and writes at most [`scratch::LEN`] bytes of `from` with one pwrite. Returns how
    /// many were written. EFBIG beyond the longest file; the kernel's errors.
    fn write(&self, header: &StreamHeader, from: &[u8], offset: u64) -> Result<usize, Fault> {
        let at = stream_physical(offset).ok_or(Errno(libc::EFBIG))?;
        let from = from.get(..scratch::LEN).unwrap_or(from);
        scratch::with(|_, buffer| {
            let sealed = buffer.get_mut(..from.len()).ok_or(Fault::Damaged)?;
            sealed.copy_from_slice(from);
            self.key().apply_at(&header.nonce, offset, sealed);
            Ok(self.real.pwrite(self.fd, sealed, at)?)
        })?
    }

    /// Writes encrypted zeros from `old`, the end of the file, to `size`. ENOSPC when the kernel
    /// takes nothing.
    fn fill(&self, old: u64, size: u64) -> Result<(), Fault> {
        const ZEROS: [u8; 4096] = [0; 4096];
        let header = self.header_for_writing()?;
        let mut at = old;
        while at < size {
            let piece = usize::try_from(size.saturating_sub(at)).unwrap_or(ZEROS.len());
            let zeros = ZEROS.get(..piece.min(ZEROS.len())).unwrap_or(&ZEROS);
            match self.write(&header, zeros, at)? {
                0 => return Err(Fault::Os(Errno(libc::ENOSPC))),
                count => at = at.saturating_add(u64::try_from(count).unwrap_or(0)),
            }
        }
        Ok(())
    }

    /// Returns the header, from the descriptor's cache or the file; `None` when the file is empty.
    /// `Fault::Damaged` when it is malformed.
    fn header(&self) -> Result<Option<StreamHeader>, Fault> {
        if let Some(nonce) = header_cache::load(self.file.cache) {
            return Ok(Some(StreamHeader { nonce }));
        }
        let mut bytes = [0; STREAM_PREFIX];
        let count = self.real.pread_full(self.fd, &mut bytes, 0)?;
        if count == 0 {
            return Ok(None);
        }
        // A file shorter than a header was not written by the shield.
        let read = bytes.get(..count).unwrap_or_default();
        let header = StreamHeader::parse(read).ok_or(Fault::Damaged)?;
        header_cache::store(self.file.cache, &header.nonce);
        Ok(Some(header))
    }

    /// Returns the header. If the file has none yet, waits for the writers' lock and writes one
    /// with a random nonce. `Fault::Damaged` when it is malformed; EIO without random bytes; the
    /// kernel's errors.
    fn header_for_writing(&self) -> Result<StreamHeader, Fault> {
        if let Some(header) = self.header()? {
            return Ok(header);
        }
        let _lock = WriterLock::acquire(self.real, self.fd, LockKind::Exclusive)?;
        self.header_or_create()
    }

    /// Returns the header; if the file has none, writes one with a random nonce, or leaves the file
    /// empty if that fails. The caller holds the lock. `Fault::Damaged` when it is malformed; EIO
    /// without random bytes; the kernel's errors.
    fn header_or_create(&self) -> Result<StreamHeader, Fault> {
        if let Some(header) = self.header()? {
            return Ok(header);
        }
        let nonce = random16().map_err(|_| Fault::Os(Errno(libc::EIO)))?;
        let header = StreamHeader { nonce };
        let len = usize::try_from(STREAM_HEADER).map_err(|_| Fault::Damaged)?;
        scratch::with(|_, buffer| {
            let bytes = buffer.get_mut(..len).ok_or(Fault::Damaged)?;
            bytes.fill(0);
            let prefix = bytes.get_mut(..STREAM_PREFIX).ok_or(Fault::Damaged)?;
            prefix.copy_from_slice(&header.prefix());
            if let Err(errno) = self.real.pwrite_full(self.fd, bytes, 0) {
                // Best effort: leave an empty file, not half a header. The first
                // failure is reported.
                let _left = self.real.ftruncate(self.fd, 0);
                return Err(Fault::Os(errno));
            }
            Ok(header)
        })?
    }

    /// Returns the key of this stream. Temporary files have one that is drawn at each start of the
    /// server.
    fn key(&self) -> &CtrKey {
        let this_boot = self.file.layout == FileLayout::TemporaryStream;
        self.file.instance.keys.stream(this_boot)
    }
}
