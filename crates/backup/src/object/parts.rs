//! The lengths of the parts of an upload: 10 000 of them must suffice, and a short family must take
//! little memory.
//!
//! Must not: depend on anything but a part's number.

/// Bytes of the first parts; a multiple of a segment's piece, above the 5 MiB that S3 asks for.
pub(super) const PART_MIN: u64 = 8 << 20;
/// Parts that an upload may have (Amazon S3, "Multipart upload limits").
pub(super) const PARTS_MAX: u64 = 10_000;

/// The length of part `number`, counted from 0; `None` after the last possible part.
pub(super) fn part_bytes(number: u64) -> Option<u64> {
    (number < PARTS_MAX).then(|| PART_MIN << (number / 1000).saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_grow_and_end() {
        assert_eq!(part_bytes(0), Some(8 << 20));
        assert_eq!(part_bytes(1999), Some(8 << 20));
        assert_eq!(part_bytes(2000), Some(16 << 20));
        assert_eq!(part_bytes(9999), Some(2 << 30));
        assert_eq!(part_bytes(10_000), None);
        let all: u64 = (0..PARTS_MAX).filter_map(part_bytes).sum();
        assert_eq!(all, 4000 << 30);
    }
}
