//! Writes the header of a new database into an empty file, so that a crash never leaves half of
//! one. docs/spec/sqlite.md, "Write ordering", 1.
//!
//! Invariant M7: the header's magic is written when the rest of the header is durable. A file that
//! is no longer than a header, and whose magic is missing or incomplete, counts as empty: it never
//! had a page.
//!
//! Must not: change a file that has a page.

use strongroom_format::FORMAT_VERSION;
use strongroom_format::header::{HEADER_LEN, MAGIC, ObjectKind};

use crate::ffi::SQLITE_SYNC_FULL;
use crate::lower::LowerFile;
use crate::sqlite_code::SqliteResult;

/// The examined part of the file: one sector, which a disk writes completely or not at all.
const SECTOR: usize = 512;

/// Whether a file of `size` bytes that begins with `header` is one in which the creation of a
/// header was interrupted, or is under way, so that it counts as empty. `header` has at least one
/// sector, with zeros after the file's end. False for an empty file, for one longer than a header,
/// and for another program's file that only happens to begin with zeros.
pub(crate) fn is_unfinished(size: u64, header: &[u8]) -> bool {
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    let sector = header.get(..SECTOR.min(size)).unwrap_or_default();
    let (magic, rest) = sector.split_at(sector.len().min(MAGIC.len()));
    let begun = MAGIC.iter().zip(magic);
    let begun = begun.take_while(|(byte, there)| byte == there).count();
    let is_zero = |bytes: &[u8]| bytes.iter().all(|&byte| byte == 0);
    let [version, kind] = [FORMAT_VERSION, ObjectKind::Sqlite.number()].map(u16::to_le_bytes);
    let expected = [version, kind].concat();
    let named = rest.get(..rest.len().min(expected.len()));
    (1..=HEADER_LEN).contains(&size)
        && begun < MAGIC.len()
        && is_zero(magic.get(begun..).unwrap_or_default())
        && (is_zero(rest) || named.is_some_and(|named| expected.starts_with(named)))
}

/// Whether the file has a complete header or other content. False if it is empty, or has only the
/// beginning of a header. Fails as the file below does.
pub(crate) fn has_header(lower: LowerFile) -> SqliteResult<bool> {
    let size = lower.size()?;
    if size == 0 {
        return Ok(false);
    }
    let mut first = [0; SECTOR];
    lower.read_whole(&mut first, 0)?;
    Ok(!is_unfinished(size, &first))
}

/// Writes the header of a new database at the beginning of the file, and syncs it: first without
/// its magic, then the magic (M3, M7). If that fails, truncates the file to 0 bytes and returns the
/// error.
pub(crate) fn write_header(lower: LowerFile, header: &[u8]) -> SqliteResult<()> {
    let mut unnamed = header.to_vec();
    unnamed[..MAGIC.len()].fill(0);
    let written = lower
        .write(&unnamed, 0)
        .and_then(|()| lower.sync(SQLITE_SYNC_FULL))
        .and_then(|()| lower.write(&header[..MAGIC.len()], 0))
        .and_then(|()| lower.sync(SQLITE_SYNC_FULL));
    // On a full disk, for example. The file was empty, and becomes empty again.
    written.or_else(|rc| lower.truncate(0).and(Err(rc)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the creation of a file was interrupted.
    fn begins_unfinished(file: &[u8]) -> bool {
        let mut first = [0; SECTOR];
        let len = file.len().min(SECTOR);
        first[..len].copy_from_slice(&file[..len]);
        is_unfinished(file.len() as u64, &first)
    }

    #[test]
    fn a_header_is_unfinished_wherever_its_writing_ended_and_nothing_else_is() {
        let mut header = vec![0xa5; HEADER_LEN];
        header[..MAGIC.len()].fill(0);
        header[16..18].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        header[18..20].copy_from_slice(&ObjectKind::Sqlite.number().to_le_bytes());
        for len in 1..=HEADER_LEN {
            assert!(begins_unfinished(&header[..len]), "{len} bytes");
        }
        // Its last byte is zero: all but that is all of it.
        for len in 0..MAGIC.len() - 1 {
            let mut begun = header.clone();
            begun[..len].copy_from_slice(&MAGIC[..len]);
            assert!(begins_unfinished(&begun), "{len} bytes of the magic");
        }
        let mut torn = header.clone();
        torn[..SECTOR].fill(0);
        assert!(begins_unfinished(&torn) && begins_unfinished(&[0; HEADER_LEN]));

        let mut finished = header.clone();
        finished[..MAGIC.len()].copy_from_slice(&MAGIC);
        let mut longer = header.clone();
        longer.push(0);
        let mut other = header.clone();
        other[18] ^= 1;
        let mut named = header;
        named[3] = 7;
        for file in [finished, longer, other, named] {
            assert!(!begins_unfinished(&file));
        }
        assert!(!begins_unfinished(b"") && !begins_unfinished(b"SQLite format 3\0"));
        let mut somebodys = vec![0; 100];
        somebodys[40] = 1;
        assert!(!begins_unfinished(&somebodys));
    }
}
