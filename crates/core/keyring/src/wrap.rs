//! Key wrapping: one key sealed under another with AES-256-GCM, bound to its place by associated
//! data.
//!
//! Must not: be used for anything but keys; leave an unwrapped key outside locked memory.

use strongroom_crypto::{GcmKey, SecretKey};
use strongroom_format::aad::{AssociatedData, Role, aad_layout};
use strongroom_format::header::{Cipher, WrappedKey};

use crate::error::Error;

/// Returns the associated data of a wrapped key, without its position: cipher 1, no unit size
/// (docs/spec/header.md, "Associated data").
pub(crate) fn key_aad(role: Role, epoch: u32, object_id: [u8; 16]) -> AssociatedData {
    AssociatedData {
        role,
        cipher: Cipher::Aes256Gcm.number(),
        unit_size: 0,
        epoch,
        object_id,
    }
}

/// Encrypts `key` under the key `under` with AES-256-GCM. `nonce` must never have been used with
/// `under`: callers take it from [`crate::fresh`]. Errors: SR-5001 when there is no memory for
/// keys.
pub(crate) fn wrap(
    under: &SecretKey,
    nonce: [u8; 12],
    aad: &[u8; aad_layout::SIZE],
    key: &SecretKey,
) -> Result<WrappedKey, Error> {
    // Overwritten with the ciphertext by `seal`, or wiped when that fails.
    let mut bytes = zeroize::Zeroizing::new(*key.expose());
    let tag = GcmKey::new(under)?.seal(&nonce, aad, bytes.as_mut_slice())?;
    Ok(WrappedKey {
        nonce,
        key: *bytes,
        tag,
    })
}

/// Decrypts a wrapped key. `None` when it does not authenticate. Errors: SR-5001 when there is no
/// memory for keys.
pub(crate) fn unwrap(
    under: &SecretKey,
    aad: &[u8; aad_layout::SIZE],
    wrapped: &WrappedKey,
) -> Result<Option<SecretKey>, Error> {
    let mut bytes = wrapped.key;
    let opened = GcmKey::new(under)?.open(&wrapped.nonce, aad, &mut bytes, &wrapped.tag);
    // `take` wipes the stack copy; after a failed opening it holds no plaintext.
    match opened {
        Ok(()) => Ok(Some(SecretKey::take(&mut bytes)?)),
        Err(_) => Ok(None),
    }
}
