//! Layout of a stream: a header of 4096 bytes, then the file's bytes under AES-256 in counter mode
//! by offset.
//!
//! A byte of the file depends on the nonce, its own offset and nothing else: several processes may
//! write different parts at the same time, and no write reads first. Specified in
//! docs/spec/postgres.md. Must not: encrypt anything.

use crate::FORMAT_VERSION;
use crate::layout::{array, layout, put, u16_at, zero_at};

/// Length of a stream's header, in bytes. The file's first byte stands after it.
pub const STREAM_HEADER: u64 = stream_layout::SIZE as u64;
/// Bytes at the start of the header that a reader needs.
pub const STREAM_PREFIX: usize = 64;
/// First bytes of a stream.
pub const STREAM_MAGIC: [u8; 32] = *b"\x89STRONGROOM PG STREAM\r\n\x1a\n\0\0\0\0\0\0\0";

layout! {
    /// Layout of a stream's header.
    stream_layout, 4096, {
        MAGIC @ 0, 32;
        VERSION @ 32, 2;
        RESERVED @ 34, 14;
        NONCE @ 48, 16;
        PADDING @ 64, 4032;
    }
}

/// The header of a stream. Nothing authenticates it, as nothing authenticates the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamHeader {
    /// The counter block of the file's first 16 bytes, drawn at random when the file is made and
    /// each time it is emptied. The counter block of the n-th 16 bytes is this plus n, as 128-bit
    /// big-endian numbers that wrap.
    pub nonce: [u8; 16],
}

impl StreamHeader {
    /// Reads a header from its first [`STREAM_PREFIX`] bytes or more. `None` unless they have the
    /// magic, the known version, and zeros in reserved bytes and padding, which is checked only as
    /// far as it is in `bytes`.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let magic: [u8; 32] = array(bytes, stream_layout::MAGIC)?;
        let sound = magic == STREAM_MAGIC
            && u16_at(bytes, stream_layout::VERSION)? == FORMAT_VERSION
            && zero_at(bytes, stream_layout::RESERVED)
            && bytes
                .iter()
                .take(stream_layout::SIZE)
                .skip(STREAM_PREFIX)
                .all(|&byte| byte == 0);
        let nonce = array(bytes, stream_layout::NONCE)?;
        sound.then_some(Self { nonce })
    }

    /// The first [`STREAM_PREFIX`] bytes; the rest of the header is zero.
    #[must_use]
    pub fn prefix(&self) -> [u8; STREAM_PREFIX] {
        let mut out = [0; STREAM_PREFIX];
        let fields = [
            put(&mut out, stream_layout::MAGIC, &STREAM_MAGIC),
            put(
                &mut out,
                stream_layout::VERSION,
                &FORMAT_VERSION.to_le_bytes(),
            ),
            put(&mut out, stream_layout::NONCE, &self.nonce),
        ];
        // Lengths are constants of the table above; a mismatch is a programming error found by any
        // test.
        assert!(fields.iter().all(Option::is_some), "stream header layout");
        out
    }
}

/// The physical offset of the byte at the logical `offset`, in bytes. `None` when no file is that
/// long.
#[must_use]
pub const fn stream_physical(offset: u64) -> Option<u64> {
    offset.checked_add(STREAM_HEADER)
}

/// The logical size of a stream of `physical` bytes. One without a whole header is empty.
#[must_use]
pub const fn stream_logical(physical: u64) -> u64 {
    physical.saturating_sub(STREAM_HEADER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_canonical_or_refused() {
        let header = StreamHeader { nonce: [7; 16] };
        let mut whole = [0_u8; 4096];
        whole[..STREAM_PREFIX].copy_from_slice(&header.prefix());
        assert_eq!(StreamHeader::parse(&whole), Some(header));
        assert_eq!(StreamHeader::parse(&whole[..64]), Some(header));
        assert_eq!(StreamHeader::parse(&whole[..63]), None);
        for at in (0..48).chain([64, 4095]) {
            whole[at] ^= 1;
            assert_eq!(StreamHeader::parse(&whole), None, "byte {at}");
            whole[at] ^= 1;
        }
    }
}
