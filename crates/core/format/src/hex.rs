//! Hexadecimal digits: one spelling of each byte.
//!
//! Must not: return a secret as text, which is not wiped: [`write_hex`] writes into memory of the
//! caller's.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

/// Bytes as hexadecimal digits in lower case.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    let mut digits = vec![0; bytes.len().saturating_mul(2)];
    write_hex(bytes, &mut digits);
    digits.into_iter().map(char::from).collect()
}

/// Writes bytes as hexadecimal digits in lower case to the beginning of `digits`, two for each
/// byte. Stops where either of them ends. Uses no table and no branch, whose timing would reveal a
/// secret.
pub fn write_hex(bytes: &[u8], digits: &mut [u8]) {
    for (pair, byte) in digits.chunks_exact_mut(2).zip(bytes) {
        for (digit, value) in pair.iter_mut().zip([byte >> 4, byte & 0xf]) {
            // 1 for the values from 10 on, else 0.
            let is_letter = 9_u8.wrapping_sub(value) >> 7;
            let letters = is_letter.wrapping_mul(b'a'.wrapping_sub(b'9').wrapping_sub(1));
            *digit = value.wrapping_add(b'0').wrapping_add(letters);
        }
    }
}

/// The bytes of hexadecimal digits in lower case. `None` for anything else: each byte has one
/// spelling.
#[must_use]
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let value = |digit: u8| hex_digit(digit).filter(|_| !digit.is_ascii_uppercase());
    rest.is_empty().then_some(())?;
    pairs
        .iter()
        .map(|[high, low]| Some(value(*high)? << 4 | value(*low)?))
        .collect()
}

/// The value of a hexadecimal digit in lower or upper case; `None` for any other byte.
#[must_use]
pub const fn hex_digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => digit.checked_sub(b'0'),
        b'a'..=b'f' => Some(digit.wrapping_sub(b'a').wrapping_add(10)),
        b'A'..=b'F' => Some(digit.wrapping_sub(b'A').wrapping_add(10)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_one_spelling() {
        for byte in 0..=u8::MAX {
            let digits = hex(&[byte]);
            assert_eq!(digits, alloc::format!("{byte:02x}"));
            assert_eq!(from_hex(&digits), Some(vec![byte]));
        }
        for text in ["0", "AB", "0g", "é", " 0", "+1"] {
            assert_eq!(from_hex(text), None, "{text}");
        }
        assert_eq!(from_hex(""), Some(Vec::new()));
    }

    #[test]
    fn digits_of_both_cases_have_values() {
        for (digit, value) in [(b'0', 0), (b'9', 9), (b'a', 10), (b'F', 15)] {
            assert_eq!(hex_digit(digit), Some(value));
        }
        for other in [b'/', b':', b'@', b'G', b'`', b'g', b'\0', 0xff] {
            assert_eq!(hex_digit(other), None);
        }
    }
}
