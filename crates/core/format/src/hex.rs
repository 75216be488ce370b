//! Hexadecimal digits: one spelling of each byte.
//!
//! Must not: be used for a secret: the digits are an ordinary string.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Bytes as hexadecimal digits in lower case.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of hexadecimal digits in lower case. `None` for anything else: each byte has one
/// spelling.
#[must_use]
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if digits.len().checked_rem(2) != Some(0) {
        return None;
    }
    digits
        .chunks_exact(2)
        .map(|pair| {
            let (high, low) = (pair.first()?, pair.last()?);
            Some(nibble(*high)? << 4 | nibble(*low)?)
        })
        .collect()
}

/// The value of a hexadecimal digit. `None` for a capital letter too: one value has one text.
fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => digit.checked_sub(b'0'),
        b'a'..=b'f' => digit.checked_sub(b'a')?.checked_add(10),
        _ => None,
    }
}
