//! Secrets as hexadecimal digits, in locked memory.

use strongroom_crypto::{SecretBytes, SecretKey};
use strongroom_format::hex::{hex_digit, write_hex};
use zeroize::Zeroizing;

use crate::error::Error;

/// Writes secret bytes as hexadecimal digits in lower case into locked memory.
///
/// # Errors
/// SR-5001 when there is no memory for keys.
pub fn secret_hex(bytes: &[u8]) -> Result<SecretBytes, Error> {
    let mut digits = SecretBytes::with_capacity(bytes.len().saturating_mul(2))?;
    write_hex(bytes, digits.as_mut_slice());
    Ok(digits)
}

/// Reads the key that 64 hexadecimal digits spell, in either case. `None` for anything else.
/// Errors: SR-5001 when there is no memory for keys.
pub(crate) fn key_from_hex(digits: &[u8]) -> Result<Option<SecretKey>, Error> {
    let mut key = Zeroizing::new([0; 32]);
    let (pairs, rest) = digits.as_chunks::<2>();
    if pairs.len() != key.len() || !rest.is_empty() {
        return Ok(None);
    }
    for (byte, [high, low]) in key.iter_mut().zip(pairs) {
        let Some((high, low)) = hex_digit(*high).zip(hex_digit(*low)) else {
            return Ok(None);
        };
        *byte = high << 4 | low;
    }
    Ok(Some(SecretKey::take(&mut key)?))
}
