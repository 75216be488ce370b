//! The beginning of a database as SQLite sees it before a key can be known.
//!
//! Must not: depend on anything that is sealed.

/// Returns the first 100 bytes of a database as SQLite is to see them before a key can be known:
/// the magic, the page size and the reserved bytes; the rest is zero.
pub(crate) fn synthetic_header(page_size: u32) -> [u8; 100] {
    let mut out = [0; 100];
    out[..16].copy_from_slice(b"SQLite format 3\0");
    // SQLite's own format: 65536 is written as 1, the other sizes as a big-endian number.
    let size = u16::try_from(page_size).unwrap_or(1);
    out[16] = u8::try_from(size >> 8).unwrap_or(0);
    out[17] = u8::try_from(size & 0xff).unwrap_or(0);
    out[18..24].copy_from_slice(&[1, 1, 32, 64, 32, 32]);
    out
}
