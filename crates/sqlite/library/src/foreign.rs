//! Recognises, without a key, databases that another product has encrypted: `SQLCipher`, `SQLite3`
//! Multiple Ciphers, SEE.
//!
//! Their pages are indistinguishable from random bytes. Some formats leave bytes of SQLite's header
//! in clear, which is conclusive. For the others there are only the length and the randomness, so
//! that the result is a guess.
//!
//! Must not: present a guess as certain.

/// First bytes of a plain database (SQLite file format, section 1.3).
const MAGIC: &[u8] = b"SQLite format 3\0";
/// Bytes of SQLite's header that are always zero ("reserved for expansion").
const EXPANSION: std::ops::Range<usize> = 72..92;
/// Bytes 21 to 23 of SQLite's header: fixed fractions.
const FRACTIONS: [u8; 3] = [64, 32, 32];
/// How much of a file is examined, in bytes.
pub const SAMPLE: usize = 65_536;
/// With fewer bytes, randomness cannot be judged.
const SAMPLE_MIN: usize = 1024;
/// Chi-square over 256 values, 255 degrees of freedom: one random sample in 10^7 is above.
const NOISE: f64 = 400.0;

/// The first bytes of files of other formats whose contents look random, because they are
/// compressed or encrypted: offset and bytes.
const OTHER_FORMATS: [(usize, &[u8]); 34] = [
    (0, b"PK\x03\x04"),            // zip, and what is made of it
    (0, b"PK\x05\x06"),            // an empty one
    (0, b"PK\x07\x08"),            // one in parts
    (0, b"\x1f\x8b\x08"),          // gzip
    (0, b"BZh"),                   // bzip2
    (0, b"\xfd7zXZ\0"),            // xz
    (0, b"\x28\xb5\x2f\xfd"),      // zstd
    (0, b"\x04\x22\x4d\x18"),      // lz4
    (0, b"7z\xbc\xaf\x27\x1c"),    // 7-Zip
    (0, b"Rar!\x1a\x07"),          // RAR
    (0, b"!<arch>\n"),             // ar, Debian's packages
    (0, b"\xed\xab\xee\xdb"),      // RPM
    (257, b"ustar"),               // tar
    (0, b"\x89PNG\r\n\x1a\n"),     // PNG
    (0, b"\xff\xd8\xff"),          // JPEG
    (0, b"GIF8"),                  // GIF
    (0, b"RIFF"),                  // WebP, WAV, AVI
    (0, b"OggS"),                  // Ogg
    (0, b"fLaC"),                  // FLAC
    (0, b"ID3"),                   // MP3
    (0, b"\x1a\x45\xdf\xa3"),      // Matroska, WebM
    (4, b"ftyp"),                  // MP4, HEIC, AVIF
    (0, b"%PDF-"),                 // PDF
    (0, b"\x7fELF"),               // ELF
    (0, b"MZ"),                    // programs of Windows
    (0, b"LUKS\xba\xbe"),          // LUKS
    (0, b"age-encryption.org/v1"), // age
    (0, b"-----BEGIN "),           // PEM, and OpenPGP as text
    (0, b"Salted__"),              // openssl enc
    (0, b"\x8c\x0d\x04"),          // gpg --symmetric
    (0, b"\x85\x01\x0c\x03"),      // gpg --encrypt, RSA of 2048 bits
    (0, b"\x85\x01\x8c\x03"),      // and of 3072 bits
    (0, b"\x85\x02\x0c\x03"),      // and of 4096 bits
    (0, b"\x84\x5e\x03"),          // and Curve25519
];

/// A file that another product may have encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// The product.
    pub product: &'static str,
    /// Its page size in bytes; a guess unless `certain`.
    pub page_size: u32,
    /// Bytes of SQLite's header are in clear: it is a database, and an encrypted one.
    pub certain: bool,
}

impl Foreign {
    /// Returns a description for users, which says whether it is a guess.
    #[must_use]
    pub fn describe(&self) -> String {
        let (product, size) = (self.product, self.page_size);
        match self.certain {
            true => format!("a database encrypted by {product}, pages of {size} bytes"),
            false => format!(
                "possibly a database encrypted by {product}, which is a guess: random bytes from the \
                 first on, no other format that is known, and a length that fits pages of {size} bytes"
            ),
        }
    }
}

/// Says which other product has encrypted a file of `size` bytes, by its first [`SAMPLE`] bytes, or
/// all. `None` for a file that is not recognised, for plain databases, and for other formats that
/// are known by their first bytes. The caller ensures that the file has none of Strongroom's own
/// formats.
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
    // SQLCipher 4 has pages of 4096 bytes by default; earlier versions had 1024.
    let fits = [4096, 1024, 512].into_iter();
    let page_size = fits
        .into_iter()
        .find(|page| size > 0 && size.is_multiple_of(u64::from(*page)))?;
    (!is_other_format(head) && is_noise(head)).then_some(Foreign {
        product: "SQLCipher or SQLite3 Multiple Ciphers",
        page_size,
        certain: false,
    })
}

/// Reads a page size from two big-endian bytes, in which 1 means 65536 (SQLite file format, section
/// 1.3.2). `None` if SQLite does not allow the size.
fn page_size(bytes: &[u8]) -> Option<u32> {
    let number = match u32::from(*bytes.first()?) * 256 + u32::from(*bytes.get(1)?) {
        1 => 65_536,
        number => number,
    };
    (number.is_power_of_two() && (512..=65_536).contains(&number)).then_some(number)
}

/// Whether the file begins like one of another format. An encrypted database begins with random
/// bytes, so one in ten thousand is taken for a file of another format.
fn is_other_format(head: &[u8]) -> bool {
    OTHER_FORMATS.iter().any(|(at, magic)| {
        head.get(*at..)
            .is_some_and(|bytes| bytes.starts_with(magic))
    })
}

/// Whether the bytes are distributed as ciphertext is, by a chi-squared test. False for too few
/// bytes.
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
    fn other_formats_are_known_by_their_first_bytes() {
        for (at, magic) in OTHER_FORMATS {
            let mut other = noise(8192);
            other[at..at + magic.len()].copy_from_slice(magic);
            assert_eq!(recognise(&other, 8192), None, "{}", magic.escape_ascii());
            other[at] ^= 0x80;
            assert!(recognise(&other, 8192).is_some());
        }
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
