//! How a sealed database comes to be: its header, put into an empty file so that a crash never leaves half of one.
//! docs/spec/sqlite.md, "Write ordering", 1.
//!
//! Invariant M7: the header's first sector, which has the magic, is written when the rest of it is durable. A file of
//! which that sector is missing, or zeros, and which is no longer than a header, is still empty: nothing was ever in it.
//!
//! Must not: touch a file that has a page.

use strongroom_format::header::HEADER_LEN;
use strongroom_format::layout::is_zero;

use crate::ffi::SQLITE_SYNC_FULL;
use crate::lower::{Lower, RcResult};

/// What a disk writes as a whole (docs/spec/sqlite.md, "Media assumptions", 2).
const SECTOR: usize = 512;

/// Whether a file of `size` bytes that begins with `header` is one whose making was cut short, or is going on.
pub(crate) fn unfinished(size: u64, header: &[u8]) -> bool {
    size > 0
        && size <= HEADER_LEN as u64
        && header.get(..SECTOR.min(header.len())).is_some_and(is_zero)
}

/// Whether there is more than the beginning of a header in the file.
pub(crate) fn is_there(lower: Lower) -> RcResult<bool> {
    let size = lower.size()?;
    if size == 0 {
        return Ok(false);
    }
    let mut first = [0; SECTOR];
    lower.read_whole(&mut first, 0)?;
    Ok(!unfinished(size, &first))
}

/// Writes the header of a new database, durably (M3, M7). On failure the file is empty again, if it can be.
pub(crate) fn write_header(lower: Lower, header: &[u8]) -> RcResult<()> {
    let (first, rest) = header.split_at(SECTOR);
    let written = lower
        .write(rest, SECTOR as u64)
        .and_then(|()| lower.sync(SQLITE_SYNC_FULL))
        .and_then(|()| lower.write(first, 0))
        .and_then(|()| lower.sync(SQLITE_SYNC_FULL));
    // A full disk: the file was empty, and is again.
    written.or_else(|rc| lower.truncate(0).and(Err(rc)))
}
