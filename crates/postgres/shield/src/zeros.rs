//! How the zeros of block files are stored (docs/spec/postgres.md, "Zeros").
//!
//! PostgreSQL extends files with zeros and with holes, and expects to read zeros there. So zeros
//! are stored as zeros where nothing else was written. An attacker who can write to the disk can
//! store zeros too; two rules limit what that achieves: transaction status files hold no stored
//! zeros at all, and in other files zeros count only as whole sectors.
//!
//! Invariant: P4.
#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::expect_used
)]

use std::os::fd::RawFd;

pub(crate) use strongroom_format::postgres::SECTOR;
use strongroom_format::postgres::XTS_UNIT as UNIT;

use crate::fault::Fault;
use crate::real::{Errno, Real};

/// Bytes of a sector, for offsets in a file.
pub(crate) const SECTOR_U64: u64 = SECTOR as u64;

/// Which stored zeros read as zeros. Others are decrypted like other bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Zeros {
    /// In every unit of 16 bytes: files of an instance whose header does not have
    /// `FEATURE_SEALED_ZEROS`, and log files that have no name yet.
    ByUnit,
    /// In aligned sectors of 512 bytes (or the part of one at the file's end) that are all zeros.
    BySector,
    /// Nowhere: a unit of zeros is damage. Transaction status files.
    Refused,
}

impl Zeros {
    /// Returns the length in bytes of the smallest part that is written as a whole: a sector or a
    /// unit.
    pub(crate) const fn part(self) -> usize {
        match self {
            Self::BySector => SECTOR,
            Self::ByUnit | Self::Refused => UNIT,
        }
    }
}

/// Sets `plain`, which was decrypted from `stored`, to zeros where `stored` holds zeros that count.
/// Both begin at the start of a sector. Only sets bytes in memory.
///
/// # Errors
/// [`Fault::Damaged`] for stored zeros in a file that may not have any.
pub(crate) fn restore_zeros(zeros: Zeros, stored: &[u8], plain: &mut [u8]) -> Result<(), Fault> {
    if zeros != Zeros::BySector && !may_hold_zero_unit(stored) {
        return Ok(());
    }
    let part = zeros.part();
    for (from, to) in stored.chunks(part).zip(plain.chunks_mut(part)) {
        if is_zero(from) {
            if zeros == Zeros::Refused {
                return Err(Fault::Damaged);
            }
            to.fill(0);
        }
    }
    Ok(())
}

/// A stored sector, without a last unit that is incomplete.
pub(crate) struct Sector {
    stored: [u8; SECTOR],
    /// Its start, relative to an origin that the caller chooses.
    pub(crate) start: usize,
    /// Its end, or that of the file's last whole unit.
    pub(crate) end: usize,
}

impl Sector {
    /// Reads the stored sector at `offset` of the file. `start` is its position by the caller's own
    /// origin.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn read(real: &Real, fd: RawFd, offset: u64, start: usize) -> Result<Self, Errno> {
        let mut stored = [0; SECTOR];
        let count = real.pread_full(fd, &mut stored, offset)?;
        let whole = count.saturating_sub(count.checked_rem(UNIT).unwrap_or(0));
        Ok(Self {
            stored,
            start,
            end: start.saturating_add(whole),
        })
    }

    /// Whether it holds only zeros, or is empty, as after the end of the file.
    pub(crate) fn is_zero(&self) -> bool {
        let len = self.end.saturating_sub(self.start);
        self.stored.get(..len).is_none_or(is_zero)
    }
}

/// Whether all bytes are zero. Ends early for most blocks that are not.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    let (lines, rest) = bytes.as_chunks::<LINE>();
    let first = lines.first().is_none_or(|line| *line == [0; LINE]);
    first
        && lines.chunks(LINES_AT_ONCE).all(|stretch| {
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

/// Whether some group of four bytes, aligned to the start of `bytes`, is zero. If not, no unit of
/// 16 bytes is zero. This is a cheap first check: it is true for one block of ciphertext in two
/// million, and only then are the units compared one by one.
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

/// Bytes that are compared together.
const LINE: usize = 64;
/// Lines that are compared before the result is checked.
const LINES_AT_ONCE: usize = 16;
