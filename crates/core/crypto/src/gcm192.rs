//! AES-192-GCM through libcrypto, one message at a time: ring has no AES of this length.
//!
//! Standard: NIST SP 800-38D with 96-bit nonces and 128-bit tags.
//!
//! Invariants: as in `aead.rs`; the key schedule lives in locked memory for the length of the call.
//!
//! Must not: be used for small messages: the key schedule, made for each, would cost most of the
//! time.

use crate::error::{CryptoError, OpenError};
use crate::harden::wipe_stack;
use crate::libcrypto::{Context, Direction};
use crate::secret::SecretKey;

/// Bytes of an AES-192 key.
const KEY_LEN: usize = 24;

/// Encrypts in place under the first 24 bytes of `key`, and returns the tag over `in_out` and
/// `aad`. The caller must never use a nonce twice with a key. Errors, after each of which the
/// contents of `in_out` are undefined: [`CryptoError::TooLong`] above 2 GiB;
/// [`CryptoError::OutOfLockedMemory`] without memory for keys; [`CryptoError::Library`] when the
/// library fails.
pub(crate) fn seal(
    key: &SecretKey,
    nonce: &[u8; 12],
    aad: &[u8],
    in_out: &mut [u8],
) -> Result<[u8; 16], CryptoError> {
    let (key, _) = key.expose().split_at(KEY_LEN);
    let sealed = Context::gcm_192(key, nonce, Direction::Encrypt).and_then(|mut context| {
        context.add_associated_data(aad)?;
        context.apply_in_place(in_out)?;
        context.finish_with_tag()
    });
    wipe_stack();
    sealed
}

/// Verifies the tag over `in_out` and `aad`, and decrypts in place under the first 24 bytes of
/// `key`. Errors: [`OpenError`] for a wrong tag and for every other failure; `in_out` may then
/// contain plaintext, and the caller wipes it.
pub(crate) fn open(
    key: &SecretKey,
    nonce: &[u8; 12],
    aad: &[u8],
    in_out: &mut [u8],
    tag: &[u8; 16],
) -> Result<(), OpenError> {
    let (key, _) = key.expose().split_at(KEY_LEN);
    let opened = Context::gcm_192(key, nonce, Direction::Decrypt).and_then(|mut context| {
        context.add_associated_data(aad)?;
        context.apply_in_place(in_out)?;
        context.finish_and_verify(tag)
    });
    wipe_stack();
    opened.map_err(|_| OpenError)
}
