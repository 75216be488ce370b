//! The text that a user gives DuckDB as `ENCRYPTION_KEY`, and the key that DuckDB derives from it.
//!
//! The rule is DuckDB's (`src/common/encryption_key_manager.cpp`, `src/common/types/blob.cpp`),
//! compared with DuckDB itself by `crates/cli/tests/it/duckdb_keys.rs`: the text is cast to a BLOB,
//! which resolves `\xHH`; the bytes are decoded as Base64 if they decode, else taken as they are;
//! the key is SHA-256 of the database's identifier and these.
//!
//! Must not: guess. A text that DuckDB refuses, or that it treats differently by version, is
//! refused.

use base64ct::{Base64, Base64Unpadded, Encoding as _};
use strongroom_crypto::{SecretBytes, SecretKey, hkdf, sha256_key};
use strongroom_format::code;
use strongroom_format::hex::hex_digit;
use strongroom_keyring::Error;

/// Longest key text in bytes: the limit of the command's key sources.
const TEXT_MAX: usize = 65_536;
/// Label for deriving a DuckDB key from a key of the keyring.
const KEYRING_INFO: &[u8] = b"strongroom/v1/duckdb-key";
/// Key material of this length cannot be guessed.
const STRONG: usize = 32;

/// The bytes that DuckDB hashes: the text of a key, with its escapes resolved, and decoded.
pub struct KeyText {
    material: SecretBytes,
}

impl KeyText {
    /// Takes the text between the quotes in `ENCRYPTION_KEY '...'`, and does to it what DuckDB
    /// does.
    ///
    /// # Errors
    /// SR-2205 for a text that DuckDB does not take, or takes differently by version: empty or over
    /// 64 KiB, not ASCII, a backslash that does not begin `\xHH`, a zero byte (write it as `\x00`);
    /// SR-5001 when there is no memory for keys.
    pub fn new(text: &SecretBytes) -> Result<Self, Error> {
        if text.is_empty() || text.len() > TEXT_MAX {
            return Err(refused("it is empty or too long"));
        }
        let resolved = resolve(text.as_slice())?;
        let material = decoded(resolved.as_slice())?.unwrap_or(resolved);
        Ok(Self { material })
    }

    /// Returns the text for a key of the keyring, which is given to DuckDB: Base64 of 32 bytes that
    /// HKDF-SHA-256 derives from it.
    ///
    /// # Errors
    /// SR-5001 when there is no memory for keys.
    pub fn text_of_keyring_key(key: &SecretKey) -> Result<SecretBytes, Error> {
        let derived = hkdf(key, &[], KEYRING_INFO)?;
        encode(derived.expose())
    }

    /// Returns the key text for a key of the keyring, as [`KeyText::new`] of
    /// [`KeyText::text_of_keyring_key`].
    ///
    /// # Errors
    /// SR-5001 when there is no memory for keys.
    pub fn of_keyring_key(key: &SecretKey) -> Result<Self, Error> {
        Self::new(&Self::text_of_keyring_key(key)?)
    }

    /// Returns whether the key is short enough to be guessed (below 32 bytes): DuckDB hashes it
    /// only once, so every guess is cheap.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.material.len() < STRONG
    }

    /// Derives the key of the database with this identifier: SHA-256 of the identifier and the
    /// text's bytes. SR-5001 when there is no memory for keys.
    pub(crate) fn derive(&self, identifier: &[u8; 16]) -> Result<SecretKey, Error> {
        Ok(sha256_key(identifier, &self.material)?)
    }
}

/// Returns the error SR-2205 for a key text that is not accepted.
fn refused(why: &str) -> Error {
    Error::new(&code::DUCKDB_KEY_TEXT, why)
}

/// Does what DuckDB's cast of a VARCHAR to a BLOB does: replaces each `\xHH` by its byte. SR-2205
/// for a text that the cast refuses.
fn resolve(text: &[u8]) -> Result<SecretBytes, Error> {
    let mut resolved = SecretBytes::with_capacity(text.len())?;
    let mut len = 0;
    let mut rest = text;
    while let Some((&first, tail)) = rest.split_first() {
        let (byte, tail) = match (first, tail) {
            (b'\\', [b'x', high, low, tail @ ..]) => {
                let digits = hex_digit(*high).zip(hex_digit(*low));
                let (high, low) = digits.ok_or_else(|| refused(ESCAPE))?;
                ((high << 4) | low, tail)
            }
            (b'\\', _) => return Err(refused(ESCAPE)),
            (0, _) => return Err(refused("it holds a zero byte; write it as \\x00")),
            (0x80.., _) => {
                return Err(refused(
                    "it holds a character that is not ASCII; write its bytes as \\xHH",
                ));
            }
            (byte, tail) => (byte, tail),
        };
        if let Some(place) = resolved.as_mut_slice().get_mut(len) {
            *place = byte;
        }
        len += 1;
        rest = tail;
    }
    resolved.truncate(len);
    Ok(resolved)
}

const ESCAPE: &str = "a backslash in it does not begin \\xHH with two hexadecimal digits";

/// Decodes Base64 as DuckDB does. `None` when DuckDB's decoder refuses the text, and the bytes are
/// used as they are.
///
/// The decoder is laxer than RFC 4648: `=` may be in the last two positions whatever the other one
/// is, and bits after the last byte may have any value. So `=` is read as the digit of zero here,
/// and what it would have decoded to is cut off.
fn decoded(text: &[u8]) -> Result<Option<SecretBytes>, Error> {
    let Some((_, [third, fourth])) = text.split_last_chunk::<2>() else {
        return Ok(None);
    };
    if !text.len().is_multiple_of(4) {
        return Ok(None);
    }
    let cut_off = match (third, fourth) {
        (b'=', _) => 2,
        (_, b'=') => 1,
        _ => 0,
    };
    let mut digits = SecretBytes::with_capacity(text.len())?;
    digits.as_mut_slice().copy_from_slice(text);
    for digit in digits.as_mut_slice().iter_mut().rev().take(2) {
        if *digit == b'=' {
            *digit = b'A';
        }
    }
    let mut decoded = SecretBytes::with_capacity(text.len() / 4 * 3)?;
    if Base64Unpadded::decode(digits.as_slice(), decoded.as_mut_slice()).is_err() {
        return Ok(None);
    }
    decoded.truncate(text.len() / 4 * 3 - cut_off);
    Ok(Some(decoded))
}

/// Encodes a key in Base64, 44 letters in locked memory. SR-5001 when there is no memory for keys.
fn encode(key: &[u8; 32]) -> Result<SecretBytes, Error> {
    let mut text = SecretBytes::with_capacity(44)?;
    Base64::encode(key, text.as_mut_slice())
        .map_err(|_| Error::new(&code::BUG, "the length of a key in Base64"))?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn material(text: &[u8]) -> Option<Vec<u8>> {
        let text = SecretBytes::take(&mut text.to_vec()).unwrap();
        let key = KeyText::new(&text);
        match key {
            Ok(key) => Some(key.material.as_slice().to_vec()),
            Err(error) => {
                assert_eq!(error.code(), &code::DUCKDB_KEY_TEXT);
                None
            }
        }
    }

    #[test]
    fn texts_become_what_duckdb_makes_of_them() {
        // Each of these was seen in DuckDB 1.4.4, 1.5.5 and 2.0.0; the command's tests ask DuckDB
        // again.
        let known: [(&[u8], &[u8]); 14] = [
            (b"asdf", &[0x6a, 0xc7, 0x5f]),
            (b"abcde", b"abcde"),
            (b"ab==", b"i"),
            (b"ab=c", b"i"),
            (b"abc=", &[0x69, 0xb7]),
            (b"abd=", &[0x69, 0xb7]),
            (b"a=bc", b"a=bc"),
            (b"====", b"===="),
            (b"abcd====", b"abcd===="),
            (b"ab==abcd", b"ab==abcd"),
            (b"abc-", b"abc-"),
            (b"abcd\n", b"abcd\n"),
            (b"\\x61bcd", &[0x69, 0xb7, 0x1d]),
            (b"\\xfF\\x00", &[0xff, 0]),
        ];
        for (text, expected) in known {
            assert_eq!(material(text).as_deref(), Some(expected), "{text:?}");
        }
    }

    #[test]
    fn what_duckdb_refuses_is_refused() {
        for text in [
            &b""[..],
            b"\\",
            b"a\\q",
            b"\\x4",
            b"\\xg0",
            b"a\0b",
            "é".as_bytes(),
            &[0xff],
        ] {
            assert_eq!(material(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_key_of_the_keyring_decodes_to_what_was_encoded() {
        for byte in [0, 1, 0xfb, 0xff] {
            let text = encode(&[byte; 32]).unwrap();
            assert_eq!(text.len(), 44);
            assert_eq!(material(text.as_slice()), Some(vec![byte; 32]));
        }
        let key = SecretKey::generate().unwrap();
        let one = KeyText::of_keyring_key(&key).unwrap();
        assert!(!one.is_short());
        assert_ne!(
            one.material.as_slice(),
            key.expose(),
            "never the key itself"
        );
    }
}
