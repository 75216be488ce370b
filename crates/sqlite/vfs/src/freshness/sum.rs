//! The sum of which a freshness digest consists. docs/spec/sqlite.md, "Freshness".
//!
//! Must not: read a page.

/// A sum of pages' contributions: four numbers modulo 2^64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DigestSum([u64; 4]);

impl DigestSum {
    /// Reads a sum from the 32 bytes of a digest, or of the MAC of a page: four little-endian
    /// numbers.
    pub(crate) fn of(bytes: &[u8; 32]) -> Self {
        let mut out = [0; 4];
        for (number, bytes) in out.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *number = u64::from_le_bytes(*bytes);
        }
        Self(out)
    }

    /// Returns the sum as the 32 bytes of a digest, four little-endian numbers.
    pub(crate) fn to_bytes(self) -> [u8; 32] {
        let mut out = [0; 32];
        for (bytes, number) in out.as_chunks_mut::<8>().0.iter_mut().zip(self.0) {
            *bytes = number.to_le_bytes();
        }
        out
    }

    /// Returns the sum of both, each of the four numbers modulo 2^64.
    pub(crate) fn plus(self, other: Self) -> Self {
        let mut out = self;
        for (number, more) in out.0.iter_mut().zip(other.0) {
            *number = number.wrapping_add(more);
        }
        out
    }

    /// Returns the sum without `other`, each of the four numbers modulo 2^64.
    pub(crate) fn minus(self, other: Self) -> Self {
        let mut out = self;
        for (number, less) in out.0.iter_mut().zip(other.0) {
            *number = number.wrapping_sub(less);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_does_not_depend_on_order_and_what_was_added_can_be_taken_away() {
        let [a, b, c] = [[0xff; 32], [0x80; 32], [3; 32]].map(|bytes| DigestSum::of(&bytes));
        let all = a.plus(b).plus(c);
        assert_eq!(c.plus(a).plus(b), all);
        assert_eq!(all.minus(b), a.plus(c));
        assert_eq!(all.minus(a).minus(b).minus(c), DigestSum::default());
        assert_eq!(DigestSum::of(&all.to_bytes()), all);
        // No carry from one number to the next: the spec's addition.
        assert_eq!(
            a.plus(a).to_bytes()[..9],
            [0xfe, 255, 255, 255, 255, 255, 255, 255, 0xfe]
        );
    }
}
