//! Looking at bytes as somebody without a key would: how random are they, is a known text in them?
//!
//! Must not: be told what the bytes are.

/// Shannon entropy in bits per byte: 8 for evenly distributed bytes. 0 for no bytes.
#[must_use]
pub fn entropy(bytes: &[u8]) -> f64 {
    let mut counts = [0_u64; 256];
    for &byte in bytes {
        counts[usize::from(byte)] += 1;
    }
    let all = bytes.len() as f64;
    let share = |count: &u64| *count as f64 / all;
    let bits: f64 = counts
        .iter()
        .filter(|count| **count > 0)
        .map(share)
        .map(|p| -p * p.log2())
        .sum();
    bits.max(0.0)
}

/// How often `needle` stands in `bytes`; 0 for an empty one.
#[must_use]
pub fn occurrences(bytes: &[u8], needle: &[u8]) -> usize {
    let Some(&first) = needle.first() else {
        return 0;
    };
    let mut count = 0;
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|&byte| byte == first) {
        rest = rest.get(at..).unwrap_or_default();
        count += usize::from(rest.starts_with(needle));
        rest = rest.get(1..).unwrap_or_default();
    }
    count
}

/// Whether any of `needles` stands in `bytes`.
#[must_use]
pub fn holds_any(bytes: &[u8], needles: &[&str]) -> bool {
    needles
        .iter()
        .any(|needle| occurrences(bytes, needle.as_bytes()) > 0)
}

#[cfg(test)]
mod tests {
    use super::{entropy, holds_any, occurrences};

    #[test]
    fn entropy_of_known_distributions() {
        assert!(entropy(b"").abs() < 1e-9);
        assert!(entropy(&[7; 1000]).abs() < 1e-9);
        assert!((entropy(b"abababab") - 1.0).abs() < 1e-9);
        let even: Vec<u8> = (0..=255).collect();
        assert!((entropy(&even) - 8.0).abs() < 1e-9);
    }

    #[test]
    fn needles_are_found_wherever_they_stand() {
        assert_eq!(occurrences(b"aab ab b", b"ab"), 2);
        assert_eq!(occurrences(b"aaa", b"aa"), 2);
        assert_eq!(occurrences(b"xx", b"xxx"), 0);
        assert_eq!(occurrences(b"xx", b""), 0);
        assert!(holds_any(b"the end", &["no", "end"]) && !holds_any(b"the end", &["no"]));
    }
}
