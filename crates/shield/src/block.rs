//! Treatments B, W and T: AES-XTS in data units of 8192 bytes from the start of the file, read and written at any byte.
//!
//! A file is a row of 16-byte units. A transfer is widened to whole units; what of the edge units lies outside it is
//! read first and written back as it was, within the same units (P5). A file whose length is no multiple of 16 ends in a
//! *tail*, which is combined with a keystream of its own (docs/spec/postgres.md, "Short tails").
//!
//! Invariants: P1 to P6. Keys and tweaks are those of the open file; nothing is remembered between calls, but how far a
//! temporary file is known to reach (P7).
//!
//! Must not: allocate, lock, or write a byte outside the units that the caller's bytes lie in.
#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::expect_used
)]

use std::os::fd::RawFd;
use std::sync::atomic::Ordering;

use strongroom_crypto::XtsKey;
use strongroom_format::postgres::tail;

use crate::body::{Body, File};
use crate::install::note_new_log_written;
use crate::real::{Errno, Real};
use crate::scratch::{self, BUFFER};

/// Bytes of an XTS data unit, which is a block of PostgreSQL.
const BLOCK: usize = 8192;
/// The same, for offsets in a file.
const BLOCK_U64: u64 = 8192;
/// Bytes of the smallest part that is sealed by itself.
const UNIT: usize = 16;
/// The same, for offsets in a file.
const UNIT_U64: u64 = 16;

const EIO: Errno = Errno(libc::EIO);
const EINVAL: Errno = Errno(libc::EINVAL);

/// Reads at most `into.len()` bytes at `offset`; see [`crate::body::read_at`].
///
/// # Errors
/// The kernel's.
pub fn read_at(
    real: &Real,
    fd: RawFd,
    file: &File<'_>,
    into: &mut [u8],
    offset: u64,
) -> Result<usize, Errno> {
    if into.is_empty() {
        return real.pread(fd, into, offset);
    }
    scratch::with(|plain, cipher| {
        let span = Span::of(offset, into.len())?;
        let stored = cipher.get_mut(..span.len).ok_or(EINVAL)?;
        // In full: less than this would be the file's end, and in a unit's middle its tail.
        let count = real.pread_full(fd, stored, span.base)?;
        let stored = stored.get(..count).ok_or(EIO)?;
        if span.skip == 0 && span.len == into.len() {
            open(file, span.first_block, stored, into)?;
            return Ok(readable(file, count, into.len()));
        }
        open(file, span.first_block, stored, plain)?;
        let end = readable(file, count, span.skip.saturating_add(into.len()));
        let wanted = plain.get(span.skip..end).unwrap_or_default();
        copy(into, 0, wanted)?;
        Ok(wanted.len())
    })
    .map_err(|_| Errno(libc::ENOMEM))?
}

/// How far what was read goes: `count` bytes came, `end` were asked for, both from the first block's start. Where the
/// file may not end within a unit, what comes short of `end` counts in whole units (P6).
fn readable(file: &File<'_>, count: usize, end: usize) -> usize {
    if count >= end || may_end_anywhere(file) {
        return count.min(end);
    }
    count.saturating_sub(count.checked_rem(UNIT).unwrap_or(0))
}

fn may_end_anywhere(file: &File<'_>) -> bool {
    file.key.has_tails() || file.body == Body::NewLog
}

/// Writes `from` at `offset`; see [`crate::body::write_at`].
///
/// # Errors
/// The kernel's.
pub fn write_at(
    real: &Real,
    fd: RawFd,
    file: &File<'_>,
    from: &[u8],
    offset: u64,
) -> Result<usize, Errno> {
    if from.is_empty() {
        return Ok(0);
    }
    if !is_known_to_reach(file, offset) {
        mend_tail_before(real, fd, file, offset)?;
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
        let start = write.span.units_from;
        seal(file, write.span.first_block, plain, start..end, cipher)?;
        write.store(from.len(), start..end, cipher)
    })
    .map_err(|_| Errno(libc::ENOMEM))??;
    note_reach(file, offset, count);
    Ok(count)
}

/// Whether a temporary file was seen to be this long, so that a write there leaves no hole (P7): the kernel is not asked
/// for each of a spill's writes.
fn is_known_to_reach(file: &File<'_>, offset: u64) -> bool {
    let [reach, ..] = file.memory;
    file.body == Body::Temporary && offset <= reach.load(Ordering::Relaxed)
}

fn note_reach(file: &File<'_>, offset: u64, count: usize) {
    if file.body == Body::Temporary {
        let [reach, ..] = file.memory;
        let end = offset.saturating_add(u64::try_from(count).unwrap_or(0));
        // One that another thread of this process takes back to less is only asked for again.
        if end > reach.load(Ordering::Relaxed) {
            reach.store(end, Ordering::Relaxed);
        }
    }
}

/// Sets the size; see [`crate::body::truncate`].
///
/// # Errors
/// The kernel's.
pub fn truncate(real: &Real, fd: RawFd, file: &File<'_>, size: u64) -> Result<(), Errno> {
    if file.body == Body::Temporary {
        let [reach, ..] = file.memory;
        reach.store(0, Ordering::Relaxed);
    }
    let odd = size.checked_rem(UNIT_U64) != Some(0);
    if !odd && !may_end_anywhere(file) {
        return real.ftruncate(fd, size);
    }
    let old = real.file_size(fd)?;
    let unit_start = |end: u64| end.saturating_sub(end.checked_rem(UNIT_U64).unwrap_or(0));
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

/// A write beyond a tail leaves a hole after it: the tail becomes a whole unit first, filled up with zeros.
fn mend_tail_before(real: &Real, fd: RawFd, file: &File<'_>, offset: u64) -> Result<(), Errno> {
    if !may_end_anywhere(file) {
        return Ok(());
    }
    let size = real.file_size(fd)?;
    let next_unit = size.checked_next_multiple_of(UNIT_U64).ok_or(EINVAL)?;
    if size == next_unit || offset < next_unit {
        return Ok(());
    }
    truncate(real, fd, file, next_unit)
}

fn read_unit(
    real: &Real,
    fd: RawFd,
    file: &File<'_>,
    unit: &mut [u8; UNIT],
    at: u64,
) -> Result<usize, Errno> {
    read_at(real, fd, file, unit, at)
}

fn write_all(
    real: &Real,
    fd: RawFd,
    file: &File<'_>,
    from: &[u8],
    offset: u64,
) -> Result<(), Errno> {
    match write_at(real, fd, file, from, offset)? {
        count if count == from.len() => Ok(()),
        _ => Err(Errno(libc::ENOSPC)),
    }
}

/// Where a transfer lies among blocks and units. Offsets in a buffer count from `base`.
#[derive(Clone, Copy)]
struct Span {
    /// Number of the block in which the transfer begins, in this file.
    first_block: u32,
    /// Where that block begins in the file.
    base: u64,
    /// The transfer's first byte, from `base`.
    skip: usize,
    /// The first byte of the transfer's first unit, from `base`.
    units_from: usize,
    /// End of the transfer's last unit, from `base`.
    len: usize,
}

impl Span {
    fn of(offset: u64, len: usize) -> Result<Self, Errno> {
        let block = offset.checked_div(BLOCK_U64).ok_or(EINVAL)?;
        let base = block.checked_mul(BLOCK_U64).ok_or(EINVAL)?;
        let skip = usize::try_from(offset.saturating_sub(base)).map_err(|_| EINVAL)?;
        let end = skip.checked_add(len).ok_or(EINVAL)?;
        let widened = end.checked_next_multiple_of(UNIT).ok_or(EINVAL)?;
        if widened > BUFFER {
            return Err(EINVAL);
        }
        Ok(Self {
            first_block: u32::try_from(block).map_err(|_| Errno(libc::EFBIG))?,
            base,
            skip,
            units_from: skip.saturating_sub(skip.checked_rem(UNIT).unwrap_or(0)),
            len: widened,
        })
    }

    fn at(&self, within: usize) -> u64 {
        self.base
            .saturating_add(u64::try_from(within).unwrap_or(u64::MAX))
    }
}

struct Write<'a> {
    real: &'a Real,
    fd: RawFd,
    file: &'a File<'a>,
    span: Span,
}

impl Write<'_> {
    /// Fills what the transfer leaves of its first and last unit with what is stored there. Gives the end of what is to
    /// be written, from `base`: a unit's end, unless the file ends before it.
    fn fill_edges(
        &self,
        len: usize,
        plain: &mut [u8; BUFFER],
        cipher: &mut [u8; BUFFER],
    ) -> Result<usize, Errno> {
        let Span { skip, .. } = self.span;
        let end = skip.saturating_add(len);
        let (head, last) = (self.span.units_from, self.span.len.saturating_sub(UNIT));
        if head < skip {
            let mut unit = [0_u8; UNIT];
            let kept = self.stored_unit(head, &mut unit, cipher)?;
            // Between the end of the file and the transfer there are zeros, as in any hole.
            let before = skip.saturating_sub(head);
            copy(plain, head, unit.get(..before).ok_or(EIO)?)?;
            if head == last {
                return self.finish_last(end, kept, &unit, plain);
            }
        }
        if end == self.span.len {
            return Ok(end);
        }
        let mut unit = [0_u8; UNIT];
        let kept = self.stored_unit(last, &mut unit, cipher)?;
        self.finish_last(end, kept, &unit, plain)
    }

    /// `kept`: bytes that the file has of the last unit, decrypted in `unit`.
    fn finish_last(
        &self,
        end: usize,
        kept: usize,
        unit: &[u8; UNIT],
        plain: &mut [u8; BUFFER],
    ) -> Result<usize, Errno> {
        let last = self.span.len.saturating_sub(UNIT);
        let used = end.saturating_sub(last);
        if kept > used {
            copy(plain, end, unit.get(used..kept).ok_or(EIO)?)?;
            return Ok(last.saturating_add(kept));
        }
        Ok(end)
    }

    /// The unit at `within` from `base`: how many bytes of it the file has, decrypted; the others are zeros.
    fn stored_unit(
        &self,
        within: usize,
        unit: &mut [u8; UNIT],
        cipher: &mut [u8; BUFFER],
    ) -> Result<usize, Errno> {
        let mut stored = [0_u8; UNIT];
        let count = self
            .real
            .pread_full(self.fd, &mut stored, self.span.at(within))?;
        let block = within.checked_div(BLOCK).ok_or(EINVAL)?;
        let in_block = within.checked_rem(BLOCK).ok_or(EINVAL)?;
        let tweak = self.span_tweak(block)?;
        let number = u32::try_from(in_block.checked_div(UNIT).ok_or(EINVAL)?);
        if count < UNIT {
            let tail = stored.get_mut(..count).ok_or(EIO)?;
            tail_keystream(self.file, tweak, number.map_err(|_| EINVAL)?, tail)?;
            *unit = [0; UNIT];
            unit.get_mut(..count).ok_or(EIO)?.copy_from_slice(tail);
            return Ok(count);
        }
        if stored == [0; UNIT] {
            *unit = stored;
            return Ok(UNIT);
        }
        // XTS steps its tweak from the start of the data unit: what stands before does not matter, its length does.
        let (front, back) = cipher.split_at_mut(BLOCK);
        let through = in_block.checked_add(UNIT).ok_or(EINVAL)?;
        let input = front.get_mut(..through).ok_or(EINVAL)?;
        input
            .get_mut(in_block..)
            .ok_or(EINVAL)?
            .copy_from_slice(&stored);
        let output = back.get_mut(..through).ok_or(EINVAL)?;
        key(self.file)
            .decrypt(&tweak, input, output)
            .map_err(|_| EIO)?;
        unit.copy_from_slice(output.get(in_block..).ok_or(EINVAL)?);
        Ok(UNIT)
    }

    fn span_tweak(&self, block: usize) -> Result<[u8; 16], Errno> {
        tweak(self.file, self.span.first_block, block)
    }

    /// Hands the units over to the kernel and counts how many of the caller's bytes it took.
    fn store(
        &self,
        len: usize,
        units: std::ops::Range<usize>,
        cipher: &[u8; BUFFER],
    ) -> Result<usize, Errno> {
        let stored = cipher.get(units.clone()).ok_or(EINVAL)?;
        let count = self
            .real
            .pwrite(self.fd, stored, self.span.at(units.start))?;
        let unit_end = count
            .checked_next_multiple_of(UNIT)
            .map_or(stored.len(), |end| end.min(stored.len()));
        let torn = stored.get(count..unit_end).unwrap_or_default();
        // A unit of which a part is new is noise, and with it the neighbours' bytes in it: it is finished, if it can be.
        let at = self.span.at(units.start.saturating_add(count));
        let reached = match self.real.pwrite_full(self.fd, torn, at) {
            Ok(()) => unit_end,
            Err(_) => count.saturating_sub(count.checked_rem(UNIT).unwrap_or(0)),
        };
        if reached == stored.len() {
            return Ok(len);
        }
        let reached = units.start.saturating_add(reached);
        Ok(reached.saturating_sub(self.span.skip).min(len))
    }
}

/// Decrypts what was read from the start of block `first_block` on.
fn open(file: &File<'_>, first_block: u32, stored: &[u8], plain: &mut [u8]) -> Result<(), Errno> {
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
            open_units(key(file), &tweak, units, open)?;
        }
        if !rest.is_empty() {
            let tail = tail.get_mut(..rest.len()).ok_or(EINVAL)?;
            tail.copy_from_slice(rest);
            let unit = u32::try_from(whole.checked_div(UNIT).unwrap_or(0)).map_err(|_| EINVAL)?;
            tail_keystream(file, tweak, unit, tail)?;
        }
    }
    Ok(())
}

/// Decrypts units of one block, from its first on (P4).
fn open_units(key: &XtsKey, tweak: &[u8; 16], from: &[u8], to: &mut [u8]) -> Result<(), Errno> {
    if is_zero(from) {
        to.fill(0);
        return Ok(());
    }
    key.decrypt(tweak, from, to).map_err(|_| EIO)?;
    if may_hold_zero_unit(from) {
        for (from, to) in from.chunks_exact(UNIT).zip(to.chunks_exact_mut(UNIT)) {
            if is_zero(from) {
                to.fill(0);
            }
        }
    }
    Ok(())
}

/// Encrypts `plain[range]` into `cipher[range]`; `range` begins at a unit and ends at a unit or at the file's end. What
/// stands before it in its first block does not matter.
fn seal(
    file: &File<'_>,
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
        seal_units(file, &tweak(file, first_block, number)?, from, to, start)?;
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
        tail_keystream(file, tweak(file, first_block, block)?, unit, tail)?;
    }
    Ok(())
}

/// Encrypts units of one block, from its first on; those before `start` are not of interest (P4).
fn seal_units(
    file: &File<'_>,
    tweak: &[u8; 16],
    from: &[u8],
    to: &mut [u8],
    start: usize,
) -> Result<(), Errno> {
    if from.is_empty() || start == from.len() {
        return Ok(());
    }
    if start == 0 && from.len() == BLOCK && is_zero(from) {
        to.fill(0);
        return Ok(());
    }
    key(file).encrypt(tweak, from, to).map_err(|_| EIO)?;
    if file.body == Body::NewLog {
        note_new_log_written();
        for (from, to) in from.chunks_exact(UNIT).zip(to.chunks_exact_mut(UNIT)) {
            if is_zero(from) {
                to.fill(0);
            }
        }
    }
    Ok(())
}

/// Combines a tail with its keystream, either way. `unit` is its number in the block.
fn tail_keystream(
    file: &File<'_>,
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

fn key<'a>(file: &File<'a>) -> &'a XtsKey {
    file.instance.keys.block(file.key)
}

/// The tweak of the block that is `further` after block `first` of this file.
fn tweak(file: &File<'_>, first: u32, further: usize) -> Result<[u8; 16], Errno> {
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

fn copy(into: &mut [u8], at: usize, from: &[u8]) -> Result<(), Errno> {
    let target = into
        .get_mut(at..)
        .and_then(|rest| rest.get_mut(..from.len()));
    target.ok_or(EINVAL)?.copy_from_slice(from);
    Ok(())
}

/// Whether all bytes are zero. Of a block that is not, the first line or the first stretch says so.
fn is_zero(bytes: &[u8]) -> bool {
    let (lines, rest) = bytes.as_chunks::<LINE>();
    let first = lines.first().is_none_or(|line| *line == [0; LINE]);
    first
        && lines.chunks(STRETCH).all(|stretch| {
            // An array of bytes, so that the compiler uses vectors.
            let mut any = [0_u8; LINE];
            for line in stretch {
                for (any, byte) in any.iter_mut().zip(line) {
                    *any |= byte;
                }
            }
            any == [0; LINE]
        })
        && rest.iter().all(|byte| *byte == 0)
}

/// Whether some aligned group of four bytes is zero: of ciphertext that is true for one block in two million, and then
/// the units are looked at one by one.
fn may_hold_zero_unit(bytes: &[u8]) -> bool {
    let (lines, rest) = bytes.as_chunks::<LINE>();
    let mut found = [0_u32; LINE / 4];
    for line in lines {
        let (words, _) = line.as_chunks::<4>();
        for (found, word) in found.iter_mut().zip(words) {
            *found |= u32::from(u32::from_le_bytes(*word) == 0);
        }
    }
    found != [0; LINE / 4] || rest.as_chunks::<4>().0.contains(&[0; 4])
}

/// Bytes that are looked at together.
const LINE: usize = 64;
/// Lines between two looks at the result.
const STRETCH: usize = 16;
