//! How a sealed database comes to be: its header, put into an empty file so that a crash never leaves half of one.
//! docs/spec/sqlite.md, "Write ordering", 1.
//!
//! Invariant M7: the header's magic is written when the rest of it is durable. A file that is no longer than a header, and
//! whose magic is not there yet, or in part, is still empty: nothing was ever in it.
//!
//! Must not: touch a file that has a page.

use strongroom_format::header::{HEADER_LEN, MAGIC};

use crate::ffi::SQLITE_SYNC_FULL;
use crate::lower::{Lower, RcResult};

/// Whether a file of `size` bytes that begins with `header` is one whose making was cut short, or is going on.
pub(crate) fn unfinished(size: u64, header: &[u8]) -> bool {
    let begun = MAGIC
        .iter()
        .zip(header)
        .take_while(|(magic, byte)| magic == byte)
        .count();
    let rest = header.get(begun..MAGIC.len()).unwrap_or_default();
    size > 0
        && size <= HEADER_LEN as u64
        && begun < MAGIC.len()
        && rest.iter().all(|&byte| byte == 0)
}

/// Whether there is more than the beginning of a header in the file.
pub(crate) fn is_there(lower: Lower) -> RcResult<bool> {
    let size = lower.size()?;
    if size == 0 {
        return Ok(false);
    }
    let mut first = [0; MAGIC.len()];
    lower.read_whole(&mut first, 0)?;
    Ok(!unfinished(size, &first))
}

/// Writes the header of a new database, durably (M3, M7). On failure the file is empty again, if it can be.
pub(crate) fn write_header(lower: Lower, header: &[u8]) -> RcResult<()> {
    let mut unnamed = header.to_vec();
    unnamed[..MAGIC.len()].fill(0);
    let written = lower
        .write(&unnamed, 0)
        .and_then(|()| lower.sync(SQLITE_SYNC_FULL))
        .and_then(|()| lower.write(&header[..MAGIC.len()], 0))
        .and_then(|()| lower.sync(SQLITE_SYNC_FULL));
    // A full disk: the file was empty, and is again.
    written.or_else(|rc| lower.truncate(0).and(Err(rc)))
}
