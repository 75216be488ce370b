//! AES-256-GCM with separate tags, in place.
//!
//! Standard: NIST SP 800-38D with 96-bit nonces and 128-bit tags; no other size is offered.
//!
//! Invariants:
//! - C8: after a failed opening the buffer holds zeros, never plaintext nobody vouches for.
//! - The expanded key and the GHASH table live in locked memory; they are as good as the key.
//!
//! Must not: choose nonces or count messages. That is the duty of whoever owns the key.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, Tag, UnboundKey};
use zeroize::Zeroize;

use crate::error::{CryptoError, OpenError};
use crate::harden::wipe_stack;
use crate::secret::{Locked, SecretKey};

/// Longest message in bytes: 2^39 - 256 bits (NIST SP 800-38D, section 5.2.1.1).
const MESSAGE_LEN_MAX: u64 = (1 << 36) - 32;

/// An AES-256-GCM key, expanded. Make it once per file or epoch and keep it.
pub struct GcmKey(Locked<LessSafeKey>);

impl GcmKey {
    /// Expands `key`.
    ///
    /// # Errors
    /// [`CryptoError::OutOfLockedMemory`].
    pub fn new(key: &SecretKey) -> Result<Self, CryptoError> {
        let expanded = expand(key);
        wipe_stack();
        expanded.map(Self)
    }

    /// Encrypts `in_out` in place and returns the tag over it and `aad`.
    ///
    /// **The caller's duty:** never use one nonce twice under one key. Two messages under one
    /// nonce reveal the difference of the plaintexts and the key that authenticates. Take nonces
    /// from [`crate::nonce12`], and change the key before 2^32 messages (NIST SP 800-38D, 8.3).
    ///
    /// # Errors
    /// [`CryptoError::TooLong`] for a message of 64 GiB or more; `in_out` is then unchanged.
    pub fn seal(
        &self,
        nonce: &[u8; 12],
        aad: &[u8],
        in_out: &mut [u8],
    ) -> Result<[u8; 16], CryptoError> {
        if u64::try_from(in_out.len()).map_or(true, |len| len > MESSAGE_LEN_MAX) {
            return Err(CryptoError::TooLong);
        }
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let tag = self
            .0
            .seal_in_place_separate_tag(nonce, Aad::from(aad), in_out)
            .map_err(|_| CryptoError::TooLong)?;
        tag.as_ref().try_into().map_err(|_| CryptoError::TooLong)
    }

    /// Verifies `tag` over `in_out` and `aad`, and decrypts `in_out` in place.
    ///
    /// # Errors
    /// [`OpenError`] if anything differs from what was sealed; `in_out` is then all zeros.
    pub fn open(
        &self,
        nonce: &[u8; 12],
        aad: &[u8],
        in_out: &mut [u8],
        tag: &[u8; 16],
    ) -> Result<(), OpenError> {
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let opened = self
            .0
            .open_in_place_separate_tag(nonce, Aad::from(aad), Tag::from(*tag), in_out, 0..)
            .is_ok();
        if opened {
            return Ok(());
        }
        // The library decrypts while it authenticates. It wipes on a wrong tag today; C8 must not
        // depend on that, nor on its other refusals.
        in_out.zeroize();
        Err(OpenError)
    }
}

/// Not inlined, so that [`wipe_stack`] reaches the copies of the key its frames leave behind.
#[inline(never)]
fn expand(key: &SecretKey) -> Result<Locked<LessSafeKey>, CryptoError> {
    let unbound = UnboundKey::new(&AES_256_GCM, key.expose()).map_err(|_| CryptoError::TooLong)?;
    Locked::new(LessSafeKey::new(unbound))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(len: usize) -> (GcmKey, Vec<u8>, Vec<u8>, [u8; 16]) {
        let key = GcmKey::new(&SecretKey::generate().unwrap()).unwrap();
        let plain: Vec<u8> = (0..=250).cycle().take(len).collect();
        let mut bytes = plain.clone();
        let tag = key.seal(&[1; 12], b"place", &mut bytes).unwrap();
        (key, plain, bytes, tag)
    }

    #[test]
    fn opens_what_it_sealed_at_every_kernel_boundary() {
        for len in [
            0, 1, 15, 16, 17, 95, 96, 97, 127, 128, 255, 256, 257, 4063, 4096, 65_537,
        ] {
            let (key, plain, mut bytes, tag) = sealed(len);
            assert!(len < 16 || bytes != plain);
            key.open(&[1; 12], b"place", &mut bytes, &tag).unwrap();
            assert_eq!(bytes, plain, "length {len}");
        }
    }

    #[test]
    fn a_failed_opening_leaves_zeros() {
        for len in [1, 16, 300, 4096] {
            let (key, _, bytes, tag) = sealed(len);
            let refused = |nonce: [u8; 12], aad: &[u8], mut bytes: Vec<u8>, tag: [u8; 16]| {
                assert_eq!(key.open(&nonce, aad, &mut bytes, &tag), Err(OpenError));
                assert!(bytes.iter().all(|byte| *byte == 0), "length {len}");
            };
            refused([2; 12], b"place", bytes.clone(), tag);
            refused([1; 12], b"elsewhere", bytes.clone(), tag);
            refused([1; 12], b"", bytes.clone(), tag);
            for at in [0, len / 2, len - 1] {
                let mut changed = bytes.clone();
                changed[at] ^= 0x80;
                refused([1; 12], b"place", changed, tag);
            }
            refused([1; 12], b"place", bytes[..len - 1].to_vec(), tag);
        }
    }

    #[test]
    fn every_bit_of_the_tag_counts() {
        let (key, _, bytes, tag) = sealed(64);
        for bit in 0..128 {
            let mut changed = tag;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(
                key.open(&[1; 12], b"place", &mut bytes.clone(), &changed),
                Err(OpenError),
                "bit {bit}"
            );
        }
    }

    #[test]
    fn another_key_is_refused() {
        let (_, _, mut bytes, tag) = sealed(64);
        let other = GcmKey::new(&SecretKey::generate().unwrap()).unwrap();
        assert_eq!(
            other.open(&[1; 12], b"place", &mut bytes, &tag),
            Err(OpenError)
        );
    }
}
