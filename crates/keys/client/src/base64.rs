//! A key of 32 bytes in base64 (RFC 4648, section 4), decoded into locked memory. Anything but the
//! one canonical encoding of 32 bytes is refused.
//!
//! Invariant N5. Must not: leave a copy of what it reads.

use base64ct::{Base64, Encoding as _};
use strongroom_crypto::{CryptoError, SecretBytes, SecretKey};

/// Decodes the base64 of a key of 32 bytes into locked memory. `None` for any text that is not the
/// one canonical encoding of exactly 32 bytes.
///
/// # Errors
/// [`CryptoError::OutOfLockedMemory`] if the host has no locked memory left.
pub(crate) fn decode_key(text: &[u8]) -> Result<Option<SecretKey>, CryptoError> {
    let mut decoded = SecretBytes::with_capacity(32)?;
    let length = Base64::decode(text, decoded.as_mut_slice()).map(<[u8]>::len);
    match decoded.as_mut_slice().first_chunk_mut::<32>() {
        Some(bytes) if length == Ok(32) => SecretKey::take(bytes).map(Some),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_spelling_of_32_bytes() {
        let all = decode_key(b"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=").unwrap();
        let expected: Vec<u8> = (0..32).collect();
        assert_eq!(all.unwrap().expose().as_slice(), expected);
        let ones = decode_key(b"//////////////////////////////////////////8=").unwrap();
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
            assert!(decode_key(text.as_bytes()).unwrap().is_none(), "{text}");
        }
    }
}
