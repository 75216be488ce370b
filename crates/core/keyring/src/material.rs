//! The one rule that turns the bytes that a user gave into a raw key or a passphrase, for every
//! source.
//!
//! 1. Exactly 32 bytes that end in a newline and are not UTF-8 are a raw key. (Without this step
//!    one random key in 256 would lose its last byte to step 2.)
//! 2. One trailing newline, `\n` or `\r\n`, is dropped. Nothing, or more than 64 KiB, is SR-2011.
//! 3. 64 hexadecimal digits, alone, after `encryptionkey=`, or as `x'...'`, are a raw key. Anything
//!    else that begins with `encryptionkey=`, or is `x'...'` around hexadecimal digits only, is
//!    SR-2011: a key cut short must not become a passphrase.
//! 4. Exactly 32 bytes that are not UTF-8 are a raw key.
//! 5. Everything else is a passphrase.
//!
//! Until this rule was changed, step 4 took all 32 bytes that were not printable ASCII for a raw
//! key: sixteen Cyrillic letters were used without Argon2id. Such a passphrase still opens the raw
//! slots that were made with it then (`Opener::passphrase_or_raw`), with the warning SR-2038, and
//! makes passphrase slots only. 32 random bytes are UTF-8 once in 2^26 keys; such a key is now a
//! passphrase, which is as strong.
//!
//! Must not: leave a copy of the bytes outside locked memory.

use strongroom_crypto::{SecretBytes, SecretKey};
use strongroom_format::code;

use crate::error::Error;
use crate::opener::Opener;
use crate::secret_hex::key_from_hex;

/// Most bytes of key material that any source may deliver.
pub(crate) const MATERIAL_MAX: usize = 64 * 1024;

const PREFIX: &[u8] = b"encryptionkey=";

/// Makes an opener of key material by the rule at the head of this file: a raw key or a passphrase.
/// Errors: SR-2011 for material that is empty, too long, or a hexadecimal key without exactly 64
/// digits; SR-5001 when there is no memory for keys.
pub(crate) fn interpret(material: &SecretBytes) -> Result<Opener, Error> {
    let whole = material.as_slice();
    if whole.len() == 32 && whole.ends_with(b"\n") && std::str::from_utf8(whole).is_err() {
        return raw_from(whole);
    }
    let bytes = without_newline(whole);
    if bytes.is_empty() {
        return Err(malformed("empty"));
    }
    if bytes.len() > MATERIAL_MAX {
        return Err(malformed("longer than 64 KiB"));
    }
    if let Some(key) = key_in_hex(bytes)? {
        return Ok(Opener::raw(key));
    }
    if is_raw(bytes) {
        return raw_from(bytes);
    }
    let mut passphrase = SecretBytes::with_capacity(bytes.len())?;
    passphrase.as_mut_slice().copy_from_slice(bytes);
    if bytes.len() == 32 && !bytes.iter().all(|byte| matches!(byte, b' '..=b'~')) {
        return Ok(Opener::passphrase_or_raw(passphrase, key_from(bytes)?));
    }
    Ok(Opener::passphrase(passphrase))
}

/// Whether `bytes`, without the newline, are a raw key: 32 bytes that are not UTF-8.
pub(crate) fn is_raw(bytes: &[u8]) -> bool {
    bytes.len() == 32 && std::str::from_utf8(bytes).is_err()
}

/// Makes the error SR-2011 with this detail, which must not hold the material.
fn malformed(detail: &str) -> Error {
    Error::new(&code::KEY_MALFORMED, detail)
}

/// Returns the bytes without one `\n` or `\r\n` at the end.
pub(crate) fn without_newline(bytes: &[u8]) -> &[u8] {
    bytes
        .strip_suffix(b"\r\n")
        .or_else(|| bytes.strip_suffix(b"\n"))
        .unwrap_or(bytes)
}

/// Parses a key in one of the three hexadecimal forms: digits alone, after `encryptionkey=`, or as
/// `x'...'`. `None` when the bytes have none of them. Errors: SR-2011 for anything but 64 digits
/// after `encryptionkey=`, and for digits of another number in `x'...'`; SR-5001 when there is no
/// memory for keys.
fn key_in_hex(bytes: &[u8]) -> Result<Option<SecretKey>, Error> {
    let all_hex = |digits: &[u8]| digits.iter().all(u8::is_ascii_hexdigit);
    let quoted = bytes
        .strip_prefix(b"x'")
        .or_else(|| bytes.strip_prefix(b"X'"))
        .and_then(|rest| rest.strip_suffix(b"'"))
        .filter(|digits| all_hex(digits));
    match bytes.strip_prefix(PREFIX).or(quoted) {
        Some(digits) => match key_from_hex(digits)? {
            Some(key) => Ok(Some(key)),
            None => Err(malformed("a hexadecimal key must have 64 digits")),
        },
        None => key_from_hex(bytes),
    }
}

/// Makes an opener of a raw key. Errors: SR-2011 unless there are 32 bytes; SR-5001 when there is
/// no memory for keys.
fn raw_from(bytes: &[u8]) -> Result<Opener, Error> {
    key_from(bytes).map(Opener::raw)
}

/// Copies 32 bytes into locked memory as a key. Errors: SR-2011 for another length; SR-5001 when
/// there is no memory for keys.
fn key_from(bytes: &[u8]) -> Result<SecretKey, Error> {
    let mut key = [0; 32];
    if bytes.len() != key.len() {
        return Err(malformed("a raw key must have 32 bytes"));
    }
    key.copy_from_slice(bytes);
    Ok(SecretKey::take(&mut key)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191A1B1C1D1E1F";

    fn secret(bytes: &[u8]) -> SecretBytes {
        SecretBytes::take(&mut bytes.to_vec()).unwrap()
    }

    fn kind(bytes: &[u8]) -> Result<&'static str, u16> {
        interpret(&secret(bytes))
            .map(|opener| opener.kind_name())
            .map_err(|error| error.code().number)
    }

    fn raw_bytes(bytes: &[u8]) -> [u8; 32] {
        *interpret(&secret(bytes))
            .unwrap()
            .raw_key()
            .expect("a raw key")
            .expose()
    }

    #[test]
    fn every_hexadecimal_form_gives_the_same_key() {
        let expected: [u8; 32] = std::array::from_fn(|at| u8::try_from(at).unwrap());
        let lower = HEX.to_lowercase();
        for text in [HEX, lower.as_str()] {
            for form in [
                text.to_owned(),
                format!("{text}\n"),
                format!("{text}\r\n"),
                format!("encryptionkey={text}\n"),
                format!("x'{text}'"),
                format!("X'{text}'"),
            ] {
                assert_eq!(raw_bytes(form.as_bytes()), expected, "{form:?}");
            }
        }
    }

    #[test]
    fn raw_bytes_and_passphrases_are_told_apart() {
        let mut binary = [b'a'; 32];
        binary[7] = 0xff;
        assert_eq!(kind(&binary), Ok("raw"));
        assert_eq!(raw_bytes(&[binary.as_slice(), b"\n"].concat()), binary);
        binary[31] = b'\n';
        assert_eq!(raw_bytes(&binary), binary, "a raw key may end in a newline");

        assert_eq!(kind(&[b'a'; 32]), Ok("passphrase"));
        assert_eq!(
            kind(&[[b'a'; 31].as_slice(), b"\n"].concat()),
            Ok("passphrase")
        );
        assert_eq!(kind(&[0xff; 31]), Ok("passphrase"));
        assert_eq!(kind(&[0xff; 33]), Ok("passphrase"));
        assert_eq!(kind(&HEX.as_bytes()[1..]), Ok("passphrase"));
        assert_eq!(kind(format!("{HEX}0").as_bytes()), Ok("passphrase"));
        assert_eq!(kind(format!("{}g", &HEX[1..]).as_bytes()), Ok("passphrase"));
        assert_eq!(kind(b"x'not hex'"), Ok("passphrase"));
        assert_eq!(
            kind(b"\n\n"),
            Ok("passphrase"),
            "only one newline is dropped"
        );
    }

    /// Sixteen letters of two bytes each, in four scripts: they were taken for raw keys once.
    #[test]
    fn text_of_32_bytes_is_a_passphrase_in_every_script() {
        for letters in [
            "\u{43f}\u{430}\u{440}\u{43e}\u{43b}\u{44c}\u{43f}\u{430}\u{440}\u{43e}\u{43b}\u{44c}\u{430}\u{431}\u{432}\u{433}",
            "\u{3b1}\u{3b2}\u{3b3}\u{3b4}\u{3b5}\u{3b6}\u{3b7}\u{3b8}\u{3b9}\u{3ba}\u{3bb}\u{3bc}\u{3bd}\u{3be}\u{3bf}\u{3c0}",
            "\u{5d0}\u{5d1}\u{5d2}\u{5d3}\u{5d4}\u{5d5}\u{5d6}\u{5d7}\u{5d8}\u{5d9}\u{5da}\u{5db}\u{5dc}\u{5dd}\u{5de}\u{5df}",
            "a tab\tmakes this thirty-two byte",
        ] {
            assert_eq!(letters.len(), 32, "{letters}");
            assert_eq!(kind(letters.as_bytes()), Ok("passphrase"), "{letters}");
            assert_eq!(kind(format!("{letters}\n").as_bytes()), Ok("passphrase"));
        }
    }

    #[test]
    fn malformed_material_is_refused() {
        for bytes in [
            b"".as_slice(),
            b"\n",
            b"\r\n",
            b"encryptionkey=",
            b"x''",
            b"x'00'",
        ] {
            assert_eq!(kind(bytes), Err(2011), "{bytes:?}");
        }
        assert_eq!(
            kind(format!("encryptionkey={}", &HEX[1..]).as_bytes()),
            Err(2011)
        );
        assert_eq!(kind(format!("encryptionkey={HEX}0").as_bytes()), Err(2011));
        assert_eq!(
            kind(format!("encryptionkey={}g", &HEX[1..]).as_bytes()),
            Err(2011)
        );
        assert_eq!(kind(&vec![b'a'; MATERIAL_MAX]), Ok("passphrase"));
    }
}
