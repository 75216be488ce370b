//! Databases that another product has encrypted, recognised without a key: `SQLCipher`, `SQLite3`
//! Multiple Ciphers, SEE.
//!
//! A page of theirs is noise. Some of their formats leave bytes of SQLite's header in clear, which
//! tells more; of the others only the length and the noise speak, so that the answer is a guess.
//!
//! Must not: call a file what it only may be.

/// First bytes of a plain database (SQLite file format, section 1.3).
const MAGIC: &[u8] = b"SQLite format 3\0";
/// Bytes of SQLite's header that are always zero ("reserved for expansion").
const EXPANSION: std::ops::Range<usize> = 72..92;
/// Bytes 21 to 23 of SQLite's header: fixed fractions.
const FRACTIONS: [u8; 3] = [64, 32, 32];
/// How much of a file is looked at, in bytes.
pub const SAMPLE: usize = 65_536;
/// Fewer bytes say too little of whether they are noise.
const SAMPLE_MIN: usize = 1024;
/// Chi-square over 256 values, 255 degrees of freedom: one random sample in 10^7 is above.
const NOISE: f64 = 400.0;

/// What a file may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// By which product it may be encrypted.
    pub product: &'static str,
    /// Its page size in bytes; a guess unless `certain`.
    pub page_size: u32,
    /// Bytes of SQLite's header are in clear: it is a database, and an encrypted one.
    pub certain: bool,
}

impl Foreign {
    /// In words.
    #[must_use]
    pub fn describe(&self) -> String {
        let (product, size) = (self.product, self.page_size);
        match self.certain {
            true => format!("a database encrypted by {product}, pages of {size} bytes"),
            false => format!(
                "likely a database encrypted by {product}: noise from the first byte on, and a length that fits pages of {size} bytes"
            ),
        }
    }
}

/// Looks at the beginning of a file of `size` bytes: its first [`SAMPLE`] bytes, or all. `None` for
/// what is not recognised, and for plain databases. The caller has made sure that it is no other
/// format that is known.
#[must_use]
pub fn recognise(head: &[u8], size: u64) -> Option<Foreign> {
    let head = head.get(..SAMPLE).unwrap_or(head);
    let fixed = head.get(21..24) == Some(&FRACTIONS);
    let named = head.get(16..18).and_then(page_size);
    if head.starts_with(MAGIC) {
        let expansion = head.get(EXPANSION)?;
        let encrypted = expansion.iter().any(|byte| *byte != 0);
        return encrypted.then_some(Foreign {
            product: "SQLCipher, with a part of its header in clear",
            page_size: named?,
            certain: true,
        });
    }
    let versions = head
        .get(18..20)
        .is_some_and(|versions| versions.iter().all(|version| matches!(version, 1 | 2)));
    if let (true, true, Some(page_size)) = (fixed, versions, named)
        && size.is_multiple_of(u64::from(page_size))
    {
        return Some(Foreign {
            product: "SQLite3 Multiple Ciphers, or SQLite's SEE",
            page_size,
            certain: true,
        });
    }
    // SQLCipher 4 has pages of 4096 bytes unless it is told otherwise, before it had 1024.
    let fits = [4096, 1024, 512].into_iter();
    let page_size = fits
        .into_iter()
        .find(|page| size > 0 && size.is_multiple_of(u64::from(*page)))?;
    is_noise(head).then_some(Foreign {
        product: "SQLCipher or SQLite3 Multiple Ciphers",
        page_size,
        certain: false,
    })
}

/// Big-endian; 1 is 65536 (SQLite file format, section 1.3.2).
fn page_size(bytes: &[u8]) -> Option<u32> {
    let number = match u32::from(*bytes.first()?) * 256 + u32::from(*bytes.get(1)?) {
        1 => 65_536,
        number => number,
    };
    (number.is_power_of_two() && (512..=65_536).contains(&number)).then_some(number)
}

fn is_noise(head: &[u8]) -> bool {
    if head.len() < SAMPLE_MIN {
        return false;
    }
    let mut counts = [0_u32; 256];
    for byte in head {
        counts[usize::from(*byte)] += 1;
    }
    let expected = head.len() as f64 / 256.0;
    let squares = counts
        .iter()
        .map(|count| (f64::from(*count) - expected).powi(2));
    squares.sum::<f64>() / expected < NOISE
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes as even as random ones, always the same.
    fn noise(len: usize) -> Vec<u8> {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[3]
        };
        std::iter::repeat_with(next).take(len).collect()
    }

    #[test]
    fn plain_and_other_files_are_not_taken_for_encrypted_ones() {
        let mut plain = vec![0; 8192];
        plain[..16].copy_from_slice(MAGIC);
        plain[16..24].copy_from_slice(&[16, 0, 1, 1, 0, 64, 32, 32]);
        assert_eq!(recognise(&plain, 8192), None);
        assert_eq!(recognise(b"text, text, text", 16), None);
        assert_eq!(recognise(&[b'a'; 4096], 4096), None);
        assert_eq!(recognise(&[], 0), None);
        // A length that fits no page, and too little to tell.
        assert_eq!(recognise(&noise(5000), 5000), None);
        assert_eq!(recognise(&noise(512), 512), None);
        // An encrypted one whose header is in clear in part is no plain one.
        plain[24..100].copy_from_slice(&noise(76));
        assert!(recognise(&plain, 8192).unwrap().certain);
    }

    #[test]
    fn noise_of_whole_pages_may_be_a_database() {
        let found = recognise(&noise(8192), 8192).unwrap();
        assert_eq!((found.page_size, found.certain), (4096, false));
        assert_eq!(recognise(&noise(3072), 3072).unwrap().page_size, 1024);
        let mut clear = noise(2048);
        clear[16..24].copy_from_slice(&[4, 0, 1, 1, 32, 64, 32, 32]);
        let found = recognise(&clear, 2048).unwrap();
        assert_eq!((found.page_size, found.certain), (1024, true));
    }
}
