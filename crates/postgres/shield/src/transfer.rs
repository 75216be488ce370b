//! Reads and writes of any length, in pieces that fit the buffers, at an offset or at the file
//! position.
//!
//! Invariants: D4, the kernel's offset is the logical one, and advances by the bytes transferred;
//! P6, the returned count is what was transferred; an error after some bytes is returned as a short
//! count, as the kernel does.
//!
//! Must not: allocate.
#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::expect_used
)]

use std::os::fd::RawFd;

use crate::descriptors::OpenFile;
use crate::file_io;
use crate::layout::FileLayout;
use crate::real::{Errno, Real};
use crate::scratch::LEN;

/// Longest transfer, as the kernel limits it (read(2)).
const TRANSFER_MAX: usize = 0x7fff_f000;

/// Does what pread(2) does on a sealed file: reads and opens up to `into.len()` bytes at `offset`,
/// in pieces, and returns how many. An error after some bytes becomes a short count.
///
/// # Errors
/// The kernel's; EBADF when the file was opened for writing only; EIO when the first bytes are
/// damaged.
pub fn read_at(
    real: &Real,
    fd: RawFd,
    open: &OpenFile,
    into: &mut [u8],
    offset: u64,
) -> Result<usize, Errno> {
    if open.write_only {
        return Err(Errno(libc::EBADF));
    }
    let limit = into.len().min(TRANSFER_MAX);
    let mut done = 0_usize;
    for piece in into.get_mut(..limit).unwrap_or_default().chunks_mut(LEN) {
        let at = add_offset(offset, done)?;
        match file_io::read_at(real, fd, &open.file, piece, at) {
            Ok(count) => {
                done = done.saturating_add(count);
                if count < piece.len() {
                    break;
                }
            }
            Err(_) if done > 0 => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(done)
}

/// Does what pwrite(2) does on a sealed file, in pieces, and returns the number of bytes; with
/// `O_APPEND` it writes at the file's end, as Linux does. An error after some bytes becomes a short
/// count.
///
/// # Errors
/// The kernel's; EIO when what is stored there is damaged.
pub fn write_at(
    real: &Real,
    fd: RawFd,
    open: &OpenFile,
    from: &[u8],
    offset: u64,
) -> Result<usize, Errno> {
    write_from(real, fd, open, from, offset).map(|(count, _)| count)
}

/// Writes at `offset`, or at the end in append mode, in pieces. Returns the number of bytes, and
/// the offset after the last one. An error after some bytes becomes a short count.
fn write_from(
    real: &Real,
    fd: RawFd,
    open: &OpenFile,
    from: &[u8],
    offset: u64,
) -> Result<(usize, u64), Errno> {
    let limit = from.len().min(TRANSFER_MAX);
    let (mut done, mut end) = (0_usize, offset);
    for piece in from.get(..limit).unwrap_or_default().chunks(LEN) {
        let landed = if open.append {
            file_io::append(real, fd, &open.file, piece)
        } else {
            file_io::write_at(real, fd, &open.file, piece, end).map(|count| (end, count))
        };
        match landed {
            Ok((at, count)) => {
                done = done.saturating_add(count);
                end = add_offset(at, count)?;
                if count < piece.len() {
                    break;
                }
            }
            Err(_) if done > 0 => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok((done, end))
}

/// Does what read(2) does on a sealed file: reads at the file position and advances it. Returns the
/// number of bytes.
///
/// # Errors
/// The kernel's; EBADF when the file was opened for writing only; EIO when the first bytes are
/// damaged.
pub fn read(real: &Real, fd: RawFd, open: &OpenFile, into: &mut [u8]) -> Result<usize, Errno> {
    let offset = real.lseek(fd, 0, libc::SEEK_CUR)?;
    let count = read_at(real, fd, open, into, offset)?;
    set_position(real, fd, offset, count)?;
    Ok(count)
}

/// Does what write(2) does on a sealed file: writes at the file position, or at the end with
/// `O_APPEND`, and advances it. Returns the number of bytes.
///
/// # Errors
/// The kernel's; EIO when what is stored there is damaged.
pub fn write(real: &Real, fd: RawFd, open: &OpenFile, from: &[u8]) -> Result<usize, Errno> {
    // With O_APPEND the position before the write does not matter, unless there is nothing to
    // write.
    let offset = if open.append && !from.is_empty() {
        0
    } else {
        real.lseek(fd, 0, libc::SEEK_CUR)?
    };
    let (count, end) = write_from(real, fd, open, from, offset)?;
    set_position(real, fd, end, 0)?;
    Ok(count)
}

/// Does what lseek(2) does on a sealed file, by its logical size: sets the file position, and
/// returns it. The whole file counts as data for `SEEK_DATA` and `SEEK_HOLE`, unless its layout has
/// no header.
///
/// # Errors
/// The kernel's; EOVERFLOW, ENXIO and EINVAL as lseek(2) gives them.
pub fn seek(
    real: &Real,
    fd: RawFd,
    open: &OpenFile,
    offset: i64,
    whence: libc::c_int,
) -> Result<u64, Errno> {
    if open.file.layout.is_headerless() || matches!(whence, libc::SEEK_SET | libc::SEEK_CUR) {
        return real.lseek(fd, offset, whence);
    }
    let size = file_io::size(real, fd, &open.file)?;
    let size_signed = i64::try_from(size).map_err(|_| Errno(libc::EOVERFLOW))?;
    let target = match whence {
        libc::SEEK_END => size_signed
            .checked_add(offset)
            .ok_or(Errno(libc::EOVERFLOW))?,
        // The whole file counts as data: a container has no holes, and those of a stream are not
        // reported.
        libc::SEEK_DATA | libc::SEEK_HOLE if offset < 0 || offset >= size_signed => {
            return Err(Errno(libc::ENXIO));
        }
        libc::SEEK_DATA => offset,
        libc::SEEK_HOLE => size_signed,
        _ => return Err(Errno(libc::EINVAL)),
    };
    real.lseek(fd, target, libc::SEEK_SET)
}

/// Whether stored bytes of one file mean the same contents in the other: both are block files with
/// the same address and keys. False for streams and containers, which have headers, so that their
/// bytes cannot be copied in parts.
#[must_use]
pub fn same_bytes(from: &OpenFile, to: &OpenFile) -> bool {
    let (from, to) = (&from.file, &to.file);
    from.layout == FileLayout::Block
        && (from.layout, from.key, from.tweak) == (to.layout, to.key, to.tweak)
        && from.instance.identity == to.instance.identity
}

/// Sets the kernel's file position to `offset + count`. EOVERFLOW or EFBIG when that is too large;
/// the kernel's error, such as ESPIPE.
fn set_position(real: &Real, fd: RawFd, offset: u64, count: usize) -> Result<(), Errno> {
    let target = i64::try_from(add_offset(offset, count)?).map_err(|_| Errno(libc::EOVERFLOW))?;
    real.lseek(fd, target, libc::SEEK_SET).map(|_| ())
}

/// Returns the sum; EOVERFLOW or EFBIG when it does not fit.
fn add_offset(offset: u64, count: usize) -> Result<u64, Errno> {
    let count = u64::try_from(count).map_err(|_| Errno(libc::EOVERFLOW))?;
    offset.checked_add(count).ok_or(Errno(libc::EFBIG))
}
