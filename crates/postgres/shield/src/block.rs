//! Treatments B, W and T: AES-XTS in data units of 8192 bytes from the start of the file, read and
//! written at any byte.
//!
//! A file is a sequence of 16-byte units. A transfer is widened to whole units: the bytes of the
//! first and last unit that are outside of it are read first and written back unchanged (P5). Where
//! a sector holds stored zeros, the whole sector is written (`zeros.rs`). A file whose length is
//! not a multiple of 16 ends in a *tail*, which is combined with a keystream of its own
//! (docs/spec/postgres.md, "Short tails").
//!
//! Invariants: P1 to P6. No state is kept between calls, except the known length of a temporary
//! file (P7).
//!
//! Must not: allocate, lock, or write a byte outside of the units that the caller's bytes are in,
//! other than zeros of the same sector.
#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::expect_used
)]

mod write;

use std::os::fd::RawFd;
use std::sync::atomic::Ordering;

use strongroom_crypto::XtsKey;
use strongroom_format::postgres::tail;

use crate::damage;
use crate::fault::Fault;
use crate::layout::FileLayout;
use crate::new_log;
use crate::real::{Errno, Real};
use crate::scratch::{self, BUFFER};
use crate::sealed_file::SealedFile;
use crate::zeros::{self, SECTOR, SECTOR_U64, Zeros, is_zero};
use write::{Span, Write};

/// Length in bytes of an XTS data unit, which is a block of PostgreSQL.
const BLOCK: usize = 8192;
/// The same, for offsets in a file.
const BLOCK_U64: u64 = 8192;
/// Length in bytes of the smallest part that is sealed by itself.
const UNIT: usize = 16;
/// The same, for offsets in a file.
const UNIT_U64: u64 = 16;

const EIO: Errno = Errno(libc::EIO);
const EINVAL: Errno = Errno(libc::EINVAL);

/// Reads at most `into.len()` bytes at `offset` and decrypts them; returns how many. 0 at the end
/// of the file; only whole units of 16 bytes where the file cannot end within one. See
/// [`crate::file_io::read_at`].
///
/// # Errors
/// The kernel's; EIO, and a line on standard error, for stored zeros where the file may have none;
/// ENOMEM without buffers; EINVAL or EFBIG for a transfer that is too long or too far.
pub fn read_at(
    real: &Real,
    fd: RawFd,
    file: &SealedFile<'_>,
    into: &mut [u8],
    offset: u64,
) -> Result<usize, Errno> {
    if into.is_empty() {
        return real.pread(fd, into, offset);
    }
    scratch::with(|plain, cipher| {
        let span = Span::of(offset, into.len())?;
        // Whole sectors, because whether a unit of zeros is stored or sealed depends on its sector.
        let len = span.len.checked_next_multiple_of(file.zeros().part());
        let len = len.ok_or(EINVAL)?;
        let stored = cipher.get_mut(..len).ok_or(EINVAL)?;
        // Read in full, because a short read would be taken for the file's end, and in the middle
        // of a unit for its tail.
        let count = real.pread_full(fd, stored, span.base)?;
        let stored = stored.get(..count).ok_or(EIO)?;
        if span.skip == 0 && len == into.len() {
            let opened = decrypt_blocks(file, span.first_block, stored, into);
            damage::into_errno(real, fd, file, opened)?;
            return Ok(readable_len(file, count, into.len()));
        }
        let opened = decrypt_blocks(file, span.first_block, stored, plain);
        damage::into_errno(real, fd, file, opened)?;
        let end = readable_len(file, count, span.skip.saturating_add(into.len()));
        let wanted = plain.get(span.skip..end).unwrap_or_default();
        copy(into, 0, wanted)?;
        Ok(wanted.len())
    })
    .map_err(|_| Errno(libc::ENOMEM))?
}

/// Returns where the bytes that a read may return end, counted from the first block's start:
/// `count` bytes were read, and the caller wants bytes up to `end`. A short read counts in whole
/// units, unless the file may end within a unit.
fn readable_len(file: &SealedFile<'_>, count: usize, end: usize) -> usize {
    if count >= end || may_end_anywhere(file) {
        return count.min(end);
    }
    count.saturating_sub(count.checked_rem(UNIT).unwrap_or(0))
}

/// Whether the file may end within a unit of 16 bytes.
fn may_end_anywhere(file: &SealedFile<'_>) -> bool {
    file.key.has_tails() || file.layout == FileLayout::NewLog
}

/// Encrypts `from` and writes it at `offset`, and returns how many bytes were written. Other bytes
/// of the first and last unit are read and written back. A gap after the file's end becomes zeros.
/// Does not sync. See [`crate::file_io::write_at`].
///
/// # Errors
/// The kernel's; EIO, and a line on standard error, for stored zeros where the file may have none;
/// ENOMEM without buffers.
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
    if !is_within_known_length(file, offset) {
        complete_tail_before(real, fd, file, offset)?;
    }
    let count = scratch::with(|plain, cipher| {
        let write = Write {
            real,
            fd,
            file,
            span: Span::of(offset, from.len())?,
        };
        copy(plain, write.span.skip, from)?;
        let end = write.fill_edges(from.len(), plain, cipher)?;
        let units = write.cover_zero_sectors(write.span.units_from..end, plain)?;
        encrypt_blocks(file, write.span.first_block, plain, units.clone(), cipher)?;
        write.store(from.len(), units, cipher)
    })
    .map_err(|_| Errno(libc::ENOMEM))??;
    note_known_length(file, offset, count);
    Ok(count)
}

/// Whether a temporary file is known to be at least `offset` bytes long, so that a write there
/// leaves no hole and the kernel need not be asked for its length. False for other files.
fn is_within_known_length(file: &SealedFile<'_>, offset: u64) -> bool {
    let [reach, ..] = file.cache;
    file.layout == FileLayout::Temporary && offset <= reach.load(Ordering::Relaxed)
}

/// Notes in the descriptor's cache that a temporary file has `count` bytes at `offset`. Does
/// nothing for other files.
fn note_known_length(file: &SealedFile<'_>, offset: u64, count: usize) {
    if file.layout == FileLayout::Temporary {
        let [reach, ..] = file.cache;
        let end = offset.saturating_add(u64::try_from(count).unwrap_or(0));
        // If another thread stores a smaller value, the length is only asked for once more.
        if end > reach.load(Ordering::Relaxed) {
            reach.store(end, Ordering::Relaxed);
        }
    }
}

/// Sets the size to `size` bytes. What is added reads as zeros. A unit that is cut within, or
/// completed, is written again. See [`crate::file_io::truncate`].
///
/// # Errors
/// The kernel's; EIO, and a line on standard error, for stored zeros where the file may have none.
pub fn truncate(real: &Real, fd: RawFd, file: &SealedFile<'_>, size: u64) -> Result<(), Errno> {
    if file.layout == FileLayout::Temporary {
        let [reach, ..] = file.cache;
        reach.store(0, Ordering::Relaxed);
    }
    let odd = size.checked_rem(UNIT_U64) != Some(0);
    if !odd && !may_end_anywhere(file) {
        seal_rest_of_sector(real, fd, file, size)?;
        return real.ftruncate(fd, size);
    }
    let old = real.file_size(fd)?;
    let mut unit = [0_u8; UNIT];
    if size > old {
        let kept = read_unit(real, fd, file, &mut unit, unit_start(old))?;
        real.ftruncate(fd, unit_start(old))?;
        let whole = usize::try_from(size.saturating_sub(unit_start(old)).min(UNIT_U64));
        let whole = whole.map_err(|_| EINVAL)?;
        if kept > 0 {
            write_all(
                real,
                fd,
                file,
                unit.get(..whole).ok_or(EIO)?,
                unit_start(old),
            )?;
        }
        let below = unit_start(size);
        seal_rest_of_sector(real, fd, file, below)?;
        real.ftruncate(fd, below.max(real.file_size(fd)?))?;
        if odd && real.file_size(fd)? < size {
            let tail_len = usize::try_from(size.saturating_sub(below)).map_err(|_| EINVAL)?;
            let zeros = [0_u8; UNIT];
            write_all(real, fd, file, zeros.get(..tail_len).ok_or(EIO)?, below)?;
        }
        return Ok(());
    }
    if !odd || size == old {
        return real.ftruncate(fd, size);
    }
    read_unit(real, fd, file, &mut unit, unit_start(size))?;
    let tail_len = usize::try_from(size.saturating_sub(unit_start(size))).map_err(|_| EINVAL)?;
    real.ftruncate(fd, unit_start(size))?;
    let tail = unit.get(..tail_len).ok_or(EIO)?;
    write_all(real, fd, file, tail, unit_start(size))
}

/// Returns the offset of the 16-byte unit that contains the byte at `offset`.
pub(crate) fn unit_start(offset: u64) -> u64 {
    offset.saturating_sub(offset.checked_rem(UNIT_U64).unwrap_or(0))
}

/// Writes sealed zeros from the file's end to the end of its last sector, or to `size`, before the
/// file is extended to `size`, because zeros can be stored for whole sectors only. Does nothing for
/// files whose zeros do not count by sectors. The kernel's errors, and ENOSPC when it takes
/// nothing.
fn seal_rest_of_sector(
    real: &Real,
    fd: RawFd,
    file: &SealedFile<'_>,
    size: u64,
) -> Result<(), Errno> {
    if file.zeros() != Zeros::BySector {
        return Ok(());
    }
    let old = real.file_size(fd)?;
    let from = unit_start(old);
    let sector_end = from.checked_next_multiple_of(SECTOR_U64).ok_or(EINVAL)?;
    let to = size.min(sector_end);
    if to <= from {
        return Ok(());
    }
    let zeros = [0_u8; SECTOR];
    let len = usize::try_from(to.saturating_sub(from)).map_err(|_| EINVAL)?;
    write_all(real, fd, file, zeros.get(..len).ok_or(EINVAL)?, from)
}

/// Before a write at `offset`, beyond the file's end: completes the tail to a whole unit, and seals
/// zeros to the end of its sector. The hole after that is stored as zeros. Does nothing for files
/// that cannot end within a unit. The kernel's errors; EIO for stored zeros where the file may have
/// none.
fn complete_tail_before(
    real: &Real,
    fd: RawFd,
    file: &SealedFile<'_>,
    offset: u64,
) -> Result<(), Errno> {
    if !may_end_anywhere(file) {
        return Ok(());
    }
    let size = real.file_size(fd)?;
    let part = u64::try_from(file.zeros().part()).map_err(|_| EINVAL)?;
    let mended = size.checked_next_multiple_of(part).ok_or(EINVAL)?;
    let mended = mended.min(unit_start(offset));
    if mended <= size {
        return Ok(());
    }
    truncate(real, fd, file, mended)
}

/// Reads and decrypts the unit (16 bytes) at `at`; returns how many of its bytes the file has. The
/// kernel's errors; EIO for stored zeros where the file may have none.
fn read_unit(
    real: &Real,
    fd: RawFd,
    file: &SealedFile<'_>,
    unit: &mut [u8; UNIT],
    at: u64,
) -> Result<usize, Errno> {
    read_at(real, fd, file, unit, at)
}

/// Encrypts and writes all of `from` at `offset`, with as many writes as necessary. Does not sync.
///
/// # Errors
/// The kernel's; ENOSPC when it takes nothing and does not say why; EIO for stored zeros where the
/// file may have none.
pub(crate) fn write_all(
    real: &Real,
    fd: RawFd,
    file: &SealedFile<'_>,
    from: &[u8],
    offset: u64,
) -> Result<(), Errno> {
    let mut written = 0_usize;
    while let Some(rest) = from.get(written..).filter(|rest| !rest.is_empty()) {
        let at = offset.saturating_add(u64::try_from(written).unwrap_or(u64::MAX));
        match write_at(real, fd, file, rest, at)? {
            0 => return Err(Errno(libc::ENOSPC)),
            count => written = written.saturating_add(count),
        }
    }
    Ok(())
}

/// Decrypts `stored`, which was read from the start of block `first_block`, into `plain`, also a
/// tail shorter than a unit. `Fault::Damaged` for zeros in a file that may not have any.
fn decrypt_blocks(
    file: &SealedFile<'_>,
    first_block: u32,
    stored: &[u8],
    plain: &mut [u8],
) -> Result<(), Fault> {
    for (number, (from, to)) in stored
        .chunks(BLOCK)
        .zip(plain.chunks_mut(BLOCK))
        .enumerate()
    {
        let tweak = tweak(file, first_block, number)?;
        let whole = from
            .len()
            .saturating_sub(from.len().checked_rem(UNIT).unwrap_or(0));
        let (units, rest) = from.split_at_checked(whole).ok_or(EINVAL)?;
        let (open, tail) = to.split_at_mut_checked(whole).ok_or(EINVAL)?;
        if !units.is_empty() {
            decrypt_units(file, &tweak, units, open)?;
        }
        if !rest.is_empty() {
            let tail = tail.get_mut(..rest.len()).ok_or(EINVAL)?;
            tail.copy_from_slice(rest);
            let unit = u32::try_from(whole.checked_div(UNIT).unwrap_or(0)).map_err(|_| EINVAL)?;
            apply_tail_keystream(file, tweak, unit, tail)?;
        }
    }
    Ok(())
}

/// Decrypts units of one block, from its first unit. Stored zeros stay zeros where they count as
/// such; `Fault::Damaged` where the file may not have any.
fn decrypt_units(
    file: &SealedFile<'_>,
    tweak: &[u8; 16],
    from: &[u8],
    to: &mut [u8],
) -> Result<(), Fault> {
    if is_zero(from) {
        to.fill(0);
        return match file.zeros() {
            Zeros::Refused => Err(Fault::Damaged),
            Zeros::ByUnit | Zeros::BySector => Ok(()),
        };
    }
    key(file).decrypt(tweak, from, to).map_err(|_| EIO)?;
    zeros::restore_zeros(file.zeros(), from, to)
}

/// Encrypts `plain[range]` into `cipher[range]`. `range` begins at a unit, in the first block, and
/// ends at a unit or at the file's end, within a unit. The bytes before it in its first block do
/// not matter. Writes nothing to the file. EINVAL or EFBIG when the range or the block's number
/// does not fit.
fn encrypt_blocks(
    file: &SealedFile<'_>,
    first_block: u32,
    plain: &[u8; BUFFER],
    range: std::ops::Range<usize>,
    cipher: &mut [u8; BUFFER],
) -> Result<(), Errno> {
    let whole_end = range
        .end
        .saturating_sub(range.end.checked_rem(UNIT).unwrap_or(0));
    let units = plain.get(..whole_end).ok_or(EINVAL)?;
    let blocks = units.chunks(BLOCK).zip(cipher.chunks_mut(BLOCK));
    for (number, (from, to)) in blocks.enumerate() {
        let to = to.get_mut(..from.len()).ok_or(EINVAL)?;
        // Only the first block can begin before the range.
        let start = if number == 0 {
            range.start.min(from.len())
        } else {
            0
        };
        encrypt_units(file, &tweak(file, first_block, number)?, from, to, start)?;
    }
    if whole_end < range.end {
        let tail_plain = plain.get(whole_end..range.end).ok_or(EINVAL)?;
        let tail = cipher.get_mut(whole_end..range.end).ok_or(EINVAL)?;
        tail.copy_from_slice(tail_plain);
        let block = whole_end.checked_div(BLOCK).ok_or(EINVAL)?;
        let unit = whole_end
            .checked_rem(BLOCK)
            .and_then(|at| at.checked_div(UNIT));
        let unit = u32::try_from(unit.ok_or(EINVAL)?).map_err(|_| EINVAL)?;
        apply_tail_keystream(file, tweak(file, first_block, block)?, unit, tail)?;
    }
    Ok(())
}

/// Encrypts units of one block, from its first unit; those before `start` are not used. A block of
/// zeros becomes zeros, except in transaction status files; in a new log file each unit of zeros
/// does, and other bytes are noted as written. EIO only when the cipher refuses the length.
fn encrypt_units(
    file: &SealedFile<'_>,
    tweak: &[u8; 16],
    from: &[u8],
    to: &mut [u8],
    start: usize,
) -> Result<(), Errno> {
    if from.is_empty() || start == from.len() {
        return Ok(());
    }
    if start == 0 && from.len() == BLOCK && !file.seals_zeros() && is_zero(from) {
        to.fill(0);
        return Ok(());
    }
    key(file).encrypt(tweak, from, to).map_err(|_| EIO)?;
    if file.layout == FileLayout::NewLog {
        new_log::note_written();
        for (from, to) in from.chunks_exact(UNIT).zip(to.chunks_exact_mut(UNIT)) {
            if is_zero(from) {
                to.fill(0);
            }
        }
    }
    Ok(())
}

/// Encrypts or decrypts the tail of a file, shorter than a unit (16 bytes), in place with its
/// keystream. `unit` is the number of the tail's unit in the block, from 0. EINVAL for a tail that
/// is too long.
fn apply_tail_keystream(
    file: &SealedFile<'_>,
    tweak: [u8; 16],
    unit: u32,
    in_out: &mut [u8],
) -> Result<(), Errno> {
    if in_out.is_empty() {
        return Ok(());
    }
    let (tweak, block) = tail(tweak, unit, in_out.len()).ok_or(EINVAL)?;
    let mut stream = [0_u8; UNIT];
    key(file)
        .encrypt(&tweak, &block, &mut stream)
        .map_err(|_| EIO)?;
    for (byte, stream) in in_out.iter_mut().zip(stream) {
        *byte ^= stream;
    }
    Ok(())
}

/// Returns the XTS key of the file.
fn key<'a>(file: &SealedFile<'a>) -> &'a XtsKey {
    file.instance.keys.block(file.key)
}

/// Computes the tweak of block `first + further` of this file. EFBIG when the block's number does
/// not fit.
fn tweak(file: &SealedFile<'_>, first: u32, further: usize) -> Result<[u8; 16], Errno> {
    let [rest @ .., a, b, c, d] = file.tweak;
    let further = u32::try_from(further).map_err(|_| EINVAL)?;
    let block = u32::from_le_bytes([a, b, c, d])
        .checked_add(first)
        .and_then(|block| block.checked_add(further))
        .ok_or(Errno(libc::EFBIG))?;
    let [a, b, c, d] = block.to_le_bytes();
    let mut out = [0; 16];
    for (to, from) in out.iter_mut().zip(rest.into_iter().chain([a, b, c, d])) {
        *to = from;
    }
    Ok(out)
}

/// Copies `from` to `into` at `at`; EINVAL when it does not fit.
fn copy(into: &mut [u8], at: usize, from: &[u8]) -> Result<(), Errno> {
    let target = into
        .get_mut(at..)
        .and_then(|rest| rest.get_mut(..from.len()));
    target.ok_or(EINVAL)?.copy_from_slice(from);
    Ok(())
}
