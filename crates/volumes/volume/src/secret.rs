//! Passphrases of key slots: derived from key material, and recovery keys in a form that people can
//! type. Keys that are derived beside them.
//!
//! Forms: `docs/spec/volume.md`. Must not: leave a secret outside locked memory.

use strongroom_crypto::{SecretBytes, SecretKey, fill_random, hkdf, hkdf_bytes};
use strongroom_format::code;
use strongroom_keyring::Error;
use zeroize::Zeroize as _;

/// HKDF label of slots' passphrases.
const SLOT_INFO: &[u8] = b"strongroom/v1/volume-slot";
/// HKDF label of the passphrases that a TPM's key makes.
const TPM_INFO: &[u8] = b"strongroom/v1/volume-tpm";
/// HKDF label of the key that header backups are sealed under.
const ESCROW_INFO: &[u8] = b"strongroom/v1/volume-escrow";
/// HKDF label of the key that a kept passphrase is sealed under.
const KEPT_INFO: &[u8] = b"strongroom/v1/volume-kept";
/// A slot's passphrase made from key material, in bytes.
pub const SLOT_SECRET_LEN: usize = 64;

/// Bytes of a recovery key.
const RECOVERY_LEN: usize = 32;
/// The 16 digits of a recovery key, which are in the same place on all common keyboards (as
/// systemd's).
const RECOVERY_DIGITS: &[u8; 16] = b"cbdefghijklnrtuv";
/// Digits in a group, and number of groups.
const GROUP: usize = 8;
const GROUPS: usize = RECOVERY_LEN * 2 / GROUP;
/// Length with the dashes between groups.
const RECOVERY_TEXT_LEN: usize = GROUPS * GROUP + GROUPS - 1;

/// Derives the passphrase of a key slot of the volume `object_id` from key material, as 64 raw
/// bytes.
///
/// # Errors
/// SR-5001 when there is no memory for keys.
pub fn slot_secret(material: &SecretKey, object_id: &[u8; 16]) -> Result<SecretBytes, Error> {
    Ok(hkdf_bytes(material, object_id, SLOT_INFO, SLOT_SECRET_LEN)?)
}

/// Derives the passphrase of a key slot from the key that a TPM sealed, as 64 raw bytes.
///
/// # Errors
/// SR-5001 when there is no memory for keys.
pub fn tpm_secret(sealed: &SecretKey, salt: &[u8; 16]) -> Result<SecretBytes, Error> {
    Ok(hkdf_bytes(sealed, salt, TPM_INFO, SLOT_SECRET_LEN)?)
}

/// Derives the key that header backups of the volume `object_id` are sealed under.
///
/// # Errors
/// SR-5001 when there is no memory for keys.
pub fn escrow_key(material: &SecretKey, object_id: &[u8; 16]) -> Result<SecretKey, Error> {
    Ok(hkdf(material, object_id, ESCROW_INFO)?)
}

/// Derives the key that a kept passphrase of the volume `object_id` is sealed under from the key
/// that a TPM sealed.
///
/// # Errors
/// SR-5001 when there is no memory for keys.
pub fn kept_key(sealed: &SecretKey, object_id: &[u8; 16]) -> Result<SecretKey, Error> {
    Ok(hkdf(sealed, object_id, KEPT_INFO)?)
}

/// Returns a new random recovery key of 256 bits, as text: eight groups of eight letters with
/// dashes between. The text is the passphrase.
///
/// # Errors
/// SR-5001 when there is no memory, or the system has no random bytes.
pub fn new_recovery_key() -> Result<SecretBytes, Error> {
    let mut random = SecretBytes::with_capacity(RECOVERY_LEN)?;
    fill_random(random.as_mut_slice())?;
    let mut text = SecretBytes::with_capacity(RECOVERY_TEXT_LEN)?;
    let mut digits = random
        .as_slice()
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .map(|digit| {
            RECOVERY_DIGITS
                .get(usize::from(digit))
                .copied()
                .unwrap_or(b'c')
        });
    for (place, out) in text.as_mut_slice().iter_mut().enumerate() {
        *out = if place % (GROUP + 1) == GROUP {
            b'-'
        } else {
            digits.next().unwrap_or(b'c')
        };
    }
    Ok(text)
}

/// Turns a typed recovery key into the form in which it is a passphrase. Dashes and white space may
/// be missing or anywhere; capital letters count as small ones.
///
/// # Errors
/// SR-8361 when it does not have 64 of the 16 letters.
pub fn recovery_key(typed: &SecretBytes) -> Result<SecretBytes, Error> {
    let bad = || {
        Error::new(
            &code::VOLUME_RECOVERY_KEY,
            "it does not consist of 64 of these letters",
        )
    };
    let mut text = SecretBytes::with_capacity(RECOVERY_TEXT_LEN)?;
    text.as_mut_slice().fill(b'-');
    let mut count = 0;
    for byte in typed.as_slice() {
        let mut byte = byte.to_ascii_lowercase();
        if byte == b'-' || byte.is_ascii_whitespace() {
            continue;
        }
        let place = count + count / GROUP;
        let slot = text.as_mut_slice().get_mut(place).ok_or_else(bad)?;
        if !RECOVERY_DIGITS.contains(&byte) {
            return Err(bad());
        }
        *slot = byte;
        byte.zeroize();
        count += 1;
    }
    if count == RECOVERY_LEN * 2 {
        Ok(text)
    } else {
        Err(bad())
    }
}

/// Returns a new random volume key of `len` bytes. Its two halves differ, as IEEE 1619 and FIPS
/// 140-3 (IG C.I) ask for XTS.
///
/// # Errors
/// SR-5001 when there is no memory, or the system has no random bytes.
pub fn new_volume_key(len: usize) -> Result<SecretBytes, Error> {
    loop {
        let mut key = SecretBytes::with_capacity(len)?;
        fill_random(key.as_mut_slice())?;
        let (first, second) = key.as_slice().split_at(len / 2);
        if len == 0 || first != second {
            return Ok(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(text: &str) -> SecretBytes {
        SecretBytes::take(&mut text.as_bytes().to_vec()).unwrap()
    }

    #[test]
    fn recovery_keys_read_back_however_they_are_typed() {
        let key = new_recovery_key().unwrap();
        let text = std::str::from_utf8(key.as_slice()).unwrap().to_owned();
        assert_eq!(text.len(), 71);
        assert!(text.split('-').all(|group| group.len() == 8));
        let forms = [
            text.clone(),
            text.to_uppercase(),
            text.replace('-', ""),
            text.replace('-', " ") + "\n",
        ];
        for form in forms {
            assert_eq!(
                recovery_key(&typed(&form)).unwrap().as_slice(),
                key.as_slice()
            );
        }
        for wrong in [
            "",
            &text[1..],
            &format!("{text}c"),
            &text.replacen('-', "a", 1),
        ] {
            assert_eq!(
                recovery_key(&typed(wrong)).err().unwrap().code(),
                &code::VOLUME_RECOVERY_KEY
            );
        }
        assert_ne!(new_recovery_key().unwrap().as_slice(), key.as_slice());
    }

    #[test]
    fn secrets_of_slots_depend_on_key_and_volume() {
        // Computed by a second implementation of RFC 5869: ikm 32 bytes of 1, salt 16 bytes of 2.
        let known = "1fcfcc168f3370e4c7c24c6da99738b2be9dab80f3a8d14338bc44637a7e23c5\
                     af46b83430f2d661aa5155eb7789c0deb42ab968aa6550e6d1046a64cf6424bf";
        let key = |byte| SecretKey::take(&mut [byte; 32]).unwrap();
        let one = slot_secret(&key(1), &[2; 16]).unwrap();
        assert_eq!(strongroom_format::hex::hex(one.as_slice()), known);
        assert_ne!(
            one.as_slice(),
            slot_secret(&key(2), &[2; 16]).unwrap().as_slice()
        );
        assert_ne!(
            one.as_slice(),
            slot_secret(&key(1), &[3; 16]).unwrap().as_slice()
        );
        assert_ne!(
            &one.as_slice()[..32],
            escrow_key(&key(1), &[2; 16]).unwrap().expose()
        );
    }

    #[test]
    fn volume_keys_have_two_different_halves() {
        let key = new_volume_key(64).unwrap();
        let (first, second) = key.as_slice().split_at(32);
        assert_ne!(first, second);
    }
}
