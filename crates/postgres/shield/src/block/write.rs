//! One write to a block file: which units it covers, and which other bytes are written with them.
//!
//! Invariants: P1, P3 to P6.
//!
//! Must not: allocate, lock, or write a byte outside the units that the caller's bytes lie in,
//! other than zeros of the same sector.
#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::expect_used
)]

use std::os::fd::RawFd;

use super::{BLOCK, BLOCK_U64, EINVAL, EIO, UNIT, apply_tail_keystream, copy, key, tweak};
use crate::damage;
use crate::fault::Fault;
use crate::real::{Errno, Real};
use crate::scratch::BUFFER;
use crate::sealed_file::SealedFile;
use crate::zeros::{SECTOR, Sector, Zeros};

/// The blocks and units that a transfer covers. Offsets in a buffer count from `base`.
#[derive(Clone, Copy)]
pub(super) struct Span {
    /// Number of the block in which the transfer begins, in this file.
    pub(super) first_block: u32,
    /// Where that block begins in the file.
    pub(super) base: u64,
    /// The transfer's first byte, from `base`.
    pub(super) skip: usize,
    /// The first byte of the transfer's first unit, from `base`.
    pub(super) units_from: usize,
    /// End of the transfer's last unit, from `base`.
    pub(super) len: usize,
}

impl Span {
    /// Computes the span of `len` bytes at `offset`. EINVAL when it does not fit a buffer, EFBIG
    /// when the block's number does not fit 32 bits.
    pub(super) fn of(offset: u64, len: usize) -> Result<Self, Errno> {
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

    /// Returns the offset in the file of the byte `within` from `base`.
    fn at(&self, within: usize) -> u64 {
        self.base
            .saturating_add(u64::try_from(within).unwrap_or(u64::MAX))
    }
}

/// A write of the caller's bytes to a block file.
pub(super) struct Write<'a> {
    pub(super) real: &'a Real,
    pub(super) fd: RawFd,
    pub(super) file: &'a SealedFile<'a>,
    pub(super) span: Span,
}

impl Write<'_> {
    /// Fills the parts of the first and last unit that the transfer does not cover with the stored
    /// bytes, which it reads and decrypts into `plain`. `len` is the transfer's length. Returns the
    /// end of the bytes to be written, counted from `base`: a unit's end, unless the file ends
    /// before it. The kernel's errors; EIO for stored zeros in a file that may not have any.
    pub(super) fn fill_edges(
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
            // Between the end of the file and the transfer the unit has zeros, as any hole.
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

    /// Fills the end of the last unit in `plain`. `kept` is how many bytes of it the file has;
    /// `unit` holds them decrypted. Returns the end of the bytes to be written, counted from
    /// `base`. EIO only when these do not fit the buffers.
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

    /// Reads and decrypts the unit at `within` from `base` into `unit`, and returns how many bytes
    /// of it the file has; the others are set to zero. EIO for stored zeros in a file that may not
    /// have any.
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
            apply_tail_keystream(self.file, tweak, number.map_err(|_| EINVAL)?, tail)?;
            *unit = [0; UNIT];
            unit.get_mut(..count).ok_or(EIO)?.copy_from_slice(tail);
            return Ok(count);
        }
        if stored == [0; UNIT] && self.is_stored_zero(within)? {
            *unit = stored;
            return Ok(UNIT);
        }
        // XTS advances its tweak from the start of the data unit: the length of the bytes before
        // the unit matters, their values do not.
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

    /// Whether the unit at `within` from `base`, which is stored as zeros, reads as zeros. EIO, and
    /// a line on standard error, in a file that may not have any.
    fn is_stored_zero(&self, within: usize) -> Result<bool, Errno> {
        match self.file.zeros() {
            Zeros::ByUnit => Ok(true),
            Zeros::Refused => {
                damage::into_errno(self.real, self.fd, self.file, Err(Fault::Damaged))
                    .map(|()| true)
            }
            Zeros::BySector => Ok(self.sector_at(within)?.is_zero()),
        }
    }

    /// Reads the stored sector that the byte at `within` from `base` belongs to. The kernel's
    /// errors.
    fn sector_at(&self, within: usize) -> Result<Sector, Errno> {
        let start = within.saturating_sub(within.checked_rem(SECTOR).unwrap_or(0));
        Sector::read(self.real, self.fd, self.span.at(start), start)
    }

    /// Widens `units` so that no sector is written in part in which zeros are stored, or in which
    /// the file ends before the transfer: the other zeros of such a sector are sealed with it, and
    /// are put into `plain`. Returns the range to be written, counted from `base`. Reads the
    /// sectors at both ends. The kernel's errors.
    pub(super) fn cover_zero_sectors(
        &self,
        units: std::ops::Range<usize>,
        plain: &mut [u8; BUFFER],
    ) -> Result<std::ops::Range<usize>, Errno> {
        if self.file.zeros() != Zeros::BySector {
            return Ok(units);
        }
        let (mut start, mut end) = (units.start, units.end);
        if start.checked_rem(SECTOR) != Some(0) {
            let sector = self.sector_at(start)?;
            start = match sector.is_zero() {
                true => sector.start,
                false => sector.end.min(start),
            };
            let before = plain.get_mut(start..units.start).ok_or(EINVAL)?;
            before.fill(0);
        }
        // An end within a unit is the file's end, and nothing follows.
        if end.checked_rem(SECTOR) != Some(0) && end.checked_rem(UNIT) == Some(0) {
            let sector = self.sector_at(end)?;
            if sector.is_zero() && sector.end > end {
                end = sector.end;
                let after = plain.get_mut(units.end..end).ok_or(EINVAL)?;
                after.fill(0);
            }
        }
        Ok(start..end)
    }

    /// Computes the tweak of the block `block`, counted from the span's first one. EFBIG when the
    /// block's number does not fit 32 bits.
    fn span_tweak(&self, block: usize) -> Result<[u8; 16], Errno> {
        tweak(self.file, self.span.first_block, block)
    }

    /// Writes the encrypted units, and returns how many of the caller's `len` bytes were written.
    /// After a short write, the unit or sector that was written in part is completed, if possible;
    /// an error of that only makes the count smaller.
    pub(super) fn store(
        &self,
        len: usize,
        units: std::ops::Range<usize>,
        cipher: &[u8; BUFFER],
    ) -> Result<usize, Errno> {
        let stored = cipher.get(units.clone()).ok_or(EINVAL)?;
        let count = self
            .real
            .pwrite(self.fd, stored, self.span.at(units.start))?;
        // A unit that is written in part decrypts to noise, and so do stored zeros in a sector that
        // is written in part. Both are completed, if possible.
        let came_to = units.start.saturating_add(count);
        let finished = came_to
            .checked_next_multiple_of(self.file.zeros().part())
            .map_or(stored.len(), |end| {
                end.saturating_sub(units.start).min(stored.len())
            });
        let torn = stored.get(count..finished).unwrap_or_default();
        let at = self.span.at(came_to);
        let reached = match self.real.pwrite_full(self.fd, torn, at) {
            Ok(()) => finished,
            Err(_) => count.saturating_sub(count.checked_rem(UNIT).unwrap_or(0)),
        };
        if reached == stored.len() {
            return Ok(len);
        }
        let reached = units.start.saturating_add(reached);
        Ok(reached.saturating_sub(self.span.skip).min(len))
    }
}
