//! Which chunks a write touches, and their positions in a buffer and in the file. Arithmetic only.
//!
//! Invariants: F2: an image is one contiguous part of the file, from the first chunk that changes
//! (or from the header of a new file) to the last one.
//!
//! Must not: read, write, or seal.
#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::expect_used
)]

use std::ops::Range;

use strongroom_crypto::random16;
use strongroom_format::postgres::container::{
    CONTAINER_CHUNK, CONTAINER_HEADER, CONTAINER_OVERHEAD, CONTAINER_SEALED, ContainerHeader,
    chunk_offset,
};

use crate::fault::Fault;
use crate::real::Errno;

/// Bytes of the file in a chunk that is not the last.
pub(super) const CHUNK: u64 = CONTAINER_CHUNK as u64;
/// Bytes of a sealed chunk before its data.
pub(super) const NONCE: usize = 12;

/// What a writer knows of the file while it holds the lock.
pub(super) struct State {
    /// Length of the stored file in bytes.
    pub(super) physical: u64,
    /// Length in bytes as the program sees it.
    pub(super) logical: u64,
    /// `None` while the file is empty.
    pub(super) header: Option<ContainerHeader>,
}

/// The bytes to be written.
#[derive(Clone, Copy)]
pub(super) enum Source<'a> {
    Bytes(&'a [u8]),
    Zeros(usize),
}

impl Source<'_> {
    /// Returns the number of bytes.
    pub(super) const fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Zeros(count) => *count,
        }
    }

    /// Copies the bytes at `range` to `to`, of the same length; [`Source::Zeros`] gives zeros.
    /// [`Fault::Damaged`] when the lengths differ or `range` ends beyond the bytes.
    pub(super) fn put(&self, range: Range<usize>, to: &mut [u8]) -> Result<(), Fault> {
        match self {
            Self::Zeros(_) => to.fill(0),
            Self::Bytes(bytes) => {
                let from = bytes.get(range).filter(|from| from.len() == to.len());
                to.copy_from_slice(from.ok_or(Fault::Damaged)?);
            }
        }
        Ok(())
    }
}

/// The chunks that one write touches, and their positions in the buffer that holds their new bytes.
pub(super) struct Image {
    pub(super) header: ContainerHeader,
    /// Bytes of a new file's header before the first chunk.
    pub(super) lead: usize,
    /// Numbers of the chunks, both inclusive.
    pub(super) first: u64,
    pub(super) last: u64,
    /// Logical size of the file after the write.
    pub(super) logical: u64,
    /// Total length in bytes.
    pub(super) len: usize,
    /// Their offset in the file.
    pub(super) start: u64,
}

impl Image {
    /// Computes the image of a write of `offset..end` to a file in `state`; `offset` is not beyond
    /// its end. For an empty file, draws a random file id, and `bound` says whether the file is
    /// bound to its name. EIO when there are no random bytes; `Fault::Damaged` when a length does
    /// not fit.
    pub(super) fn new(state: &State, offset: u64, end: u64, bound: bool) -> Result<Self, Fault> {
        let lead = if state.header.is_some() {
            0
        } else {
            CONTAINER_HEADER
        };
        let header = match state.header {
            Some(header) => header,
            None => ContainerHeader {
                file_id: random16().map_err(|_| Fault::Os(Errno(libc::EIO)))?,
                bound,
            },
        };
        let logical = end.max(state.logical);
        let first = offset / CHUNK;
        // A write that reaches the end replaces the last chunk, which may be empty.
        let last = if end >= state.logical {
            end / CHUNK
        } else {
            end.saturating_sub(1) / CHUNK
        };
        let mut image = Self {
            header,
            lead,
            first,
            last,
            logical,
            len: 0,
            start: if lead > 0 { 0 } else { offset_of(first)? },
        };
        image.len = image.unit(last)?.end;
        Ok(image)
    }

    /// Computes the image of chunks `first` to `last`, both inclusive, of a file of `logical` bytes
    /// that are only read.
    pub(super) const fn of_read(
        header: ContainerHeader,
        first: u64,
        last: u64,
        logical: u64,
    ) -> Self {
        Self {
            header,
            lead: 0,
            first,
            last,
            logical,
            len: 0,
            start: 0,
        }
    }

    /// Returns the range of chunk `index` in the buffer. `Fault::Damaged` when it does not fit.
    pub(super) fn unit(&self, index: u64) -> Result<Range<usize>, Fault> {
        let before = to_usize(index.saturating_sub(self.first))?.checked_mul(CONTAINER_SEALED);
        let start = before.and_then(|before| before.checked_add(self.lead));
        let start = start.ok_or(Fault::Damaged)?;
        let end = start.checked_add(sealed_len(self.logical, index)?);
        Ok(start..end.ok_or(Fault::Damaged)?)
    }
}

/// Returns the length of chunk `index` of a file of `logical` bytes, as it is stored, in bytes.
/// `Fault::Damaged` only when it does not fit.
pub(super) fn sealed_len(logical: u64, index: u64) -> Result<usize, Fault> {
    let held = logical
        .saturating_sub(index.saturating_mul(CHUNK))
        .min(CHUNK);
    let len = to_usize(held)?.checked_add(CONTAINER_OVERHEAD);
    len.ok_or(Fault::Damaged)
}

/// The bytes that a chunk and a transfer share: as a range of the chunk's data, and of the
/// transfer.
type Shared = (Range<usize>, Range<usize>);

/// Returns the bytes that a chunk of `holds` bytes at `begins` shares with a transfer of `len`
/// bytes at `offset`. Two empty ranges if they share none. `Fault::Damaged` only when a length does
/// not fit.
pub(super) fn overlap(begins: u64, holds: usize, offset: u64, len: usize) -> Result<Shared, Fault> {
    let from = begins.max(offset);
    let to = begins
        .saturating_add(to_u64(holds))
        .min(offset.saturating_add(to_u64(len)))
        .max(from);
    let within = |origin: u64| {
        let start = to_usize(from.saturating_sub(origin))?;
        Ok::<_, Fault>(start..to_usize(to.saturating_sub(origin))?)
    };
    let chunk = within(begins)?;
    if chunk.is_empty() {
        return Ok((0..0, 0..0));
    }
    Ok((chunk, within(offset)?))
}

/// Converts a range of a chunk's data to the range of the same bytes in its sealed form.
/// `Fault::Damaged` if that does not fit.
pub(super) fn sealed_range(data: Range<usize>) -> Result<Range<usize>, Fault> {
    let shift = |at: usize| at.checked_add(NONCE).ok_or(Fault::Damaged);
    Ok(shift(data.start)?..shift(data.end)?)
}

/// Returns the offset in the file at which chunk `index` begins. EFBIG when there is none.
pub(super) fn offset_of(index: u64) -> Result<u64, Fault> {
    chunk_offset(index).ok_or(Fault::Os(Errno(libc::EFBIG)))
}

/// Converts a number. EFBIG when it does not fit.
pub(super) fn to_usize(value: u64) -> Result<usize, Fault> {
    usize::try_from(value).map_err(|_| Fault::Os(Errno(libc::EFBIG)))
}

/// Converts a number; one that does not fit becomes the largest.
pub(super) fn to_u64(value: usize) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}
