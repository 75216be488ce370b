//! The tail of a page: the bytes at its end that SQLite leaves zero and that hold, in the file, the
//! page's nonce, tag and key epoch. docs/spec/sqlite.md, "Database file".
//!
//! Must not: decide whether a page is authentic.

use strongroom_format::layout::array;
use strongroom_format::sqlite::{page_offset, tail_layout};

use crate::lower::LowerFile;
use crate::sqlite_code::SqliteResult;

/// Length of a page's tail in bytes.
pub(crate) const TAIL: usize = tail_layout::SIZE;

/// A page's tail as it is in the file.
pub(crate) type Tail = [u8; TAIL];

/// Splits a page's tail (its last 32 bytes) into nonce, tag and epoch. `None` if it is too short.
pub(crate) fn parse_tail(tail: &[u8]) -> Option<([u8; 12], [u8; 16], u32)> {
    Some((
        array(tail, tail_layout::NONCE)?,
        array(tail, tail_layout::TAG)?,
        u32::from_le_bytes(array(tail, tail_layout::EPOCH)?),
    ))
}

/// Reads the tail of page `number` (its last 32 bytes: nonce, tag, epoch) from the file as it is
/// now; zero bytes when the file ends before the page does. Fails as the file below does.
pub(crate) fn tail_on_disk(lower: LowerFile, number: u64, page_size: u32) -> SqliteResult<Tail> {
    let mut tail = Tail::default();
    let end = page_offset(number.saturating_add(1), page_size);
    let at = end.saturating_sub(tail.len() as u64);
    if !lower.read_whole(&mut tail, at)? {
        tail = Tail::default();
    }
    Ok(tail)
}
