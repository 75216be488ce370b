//! SQLite's own numbers: four bytes, the most significant first (SQLite file format, section 1.2).
//!
//! Must not: read a number of ours, whose least significant byte is the first.

/// Reads the big-endian 32-bit number at byte `at`. `None` when the bytes end before it does.
#[expect(clippy::big_endian_bytes, reason = "SQLite's own format")]
pub(crate) fn be_u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk::<4>()?;
    Some(u32::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::be_u32_at;

    #[test]
    fn four_bytes_are_a_number_and_three_are_none() {
        let bytes = [0, 1, 2, 3, 4, 5];
        assert_eq!(be_u32_at(&bytes, 1), Some(0x0102_0304));
        assert_eq!(be_u32_at(&bytes, 2), Some(0x0203_0405));
        for at in [3, 6, 7, usize::MAX] {
            assert_eq!(be_u32_at(&bytes, at), None);
        }
    }
}
