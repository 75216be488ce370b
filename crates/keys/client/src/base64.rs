//! Base64 (RFC 4648, section 4) of 32 bytes, read into locked memory. Anything that is not the one
//! spelling of 32 bytes is refused.
//!
//! Invariant N5. Must not: leave a copy of what it reads.

use strongroom_crypto::{CryptoError, SecretBytes, SecretKey};
use zeroize::Zeroize as _;

/// Bytes of a key.
const LEN: usize = 32;

/// Characters of a key: 43, and one `=`.
const TEXT_LEN: usize = 44;

/// The 32 bytes that `text` spells. `None`: it does not.
///
/// # Errors
/// The host has no locked memory left.
pub(crate) fn key(text: &[u8]) -> Result<Option<SecretKey>, CryptoError> {
    let mut room = SecretBytes::with_capacity(LEN + 1)?;
    if text.len() != TEXT_LEN {
        return Ok(None);
    }
    let (digits, padding) = text.split_at(TEXT_LEN - 1);
    if padding != b"=" {
        return Ok(None);
    }
    let mut out = room.as_mut_slice().iter_mut();
    let mut bits: u32 = 0;
    let mut count = 0_u32;
    for digit in digits {
        let Some(value) = sextet(*digit) else {
            bits.zeroize();
            return Ok(None);
        };
        bits = (bits << 6) | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            let [byte, ..] = (bits >> count).to_le_bytes();
            bits &= (1 << count) - 1;
            if let Some(place) = out.next() {
                *place = byte;
            }
        }
    }
    // 43 digits are 258 bits: two are left, and have to be zero.
    let canonical = bits == 0;
    bits.zeroize();
    let exact: Option<&mut [u8; LEN]> = room.as_mut_slice().first_chunk_mut();
    match (canonical, exact) {
        (true, Some(bytes)) => SecretKey::take(bytes).map(Some),
        _ => Ok(None),
    }
}

fn sextet(digit: u8) -> Option<u8> {
    Some(match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_spelling_of_32_bytes() {
        let all = key(b"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=").unwrap();
        let expected: Vec<u8> = (0..32).collect();
        assert_eq!(all.unwrap().expose().as_slice(), expected);
        let ones = key(b"//////////////////////////////////////////8=").unwrap();
        assert_eq!(ones.unwrap().expose(), &[255; 32]);
        for text in [
            "",
            "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8",
            "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh9=",
            "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8A",
            "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHg==",
            "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n",
            "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8g",
            "A_ECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
            "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gIQ==",
        ] {
            assert!(key(text.as_bytes()).unwrap().is_none(), "{text}");
        }
    }
}
