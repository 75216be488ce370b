//! AES-256-GCM with nonces of 128 bits, through libcrypto: ring has 96 bits only. For DuckDB's
//! format, which has such nonces.
//!
//! Standard: NIST SP 800-38D, section 7.1, step 2: the first counter block is the GHASH of such a
//! nonce.
//!
//! Invariants: as in `aead.rs`; key schedules and the hash key live in locked memory.
//!
//! Must not: be chosen for a format of Strongroom's own.

use zeroize::Zeroize;

use crate::error::{CryptoError, OpenError};
use crate::harden::wipe_stack;
use crate::libcrypto::{Context, Direction};
use crate::secret::SecretKey;

/// An AES-256-GCM key for nonces of 16 bytes, expanded.
pub struct GcmIv16Key {
    encrypt: Context,
    decrypt: Context,
}

impl GcmIv16Key {
    /// Expands `key` for both directions, and wipes the stack.
    ///
    /// # Errors
    /// [`CryptoError::OutOfLockedMemory`] without memory for keys; [`CryptoError::Library`] if
    /// libcrypto fails or cannot be set up.
    pub fn new(key: &SecretKey) -> Result<Self, CryptoError> {
        let expand = |direction| Context::gcm_256_iv16(key.expose(), direction);
        let expanded = expand(Direction::Encrypt).and_then(|encrypt| {
            expand(Direction::Decrypt).map(|decrypt| Self { encrypt, decrypt })
        });
        wipe_stack();
        expanded
    }

    /// Encrypts `in_out` in place and returns the tag; there is no associated data.
    ///
    /// **The caller's duty:** never use one nonce twice under one key; see `GcmKey::seal`.
    ///
    /// # Errors
    /// [`CryptoError::TooLong`] above 2 GiB; [`CryptoError::OutOfLockedMemory`] without memory for
    /// keys; [`CryptoError::Library`] if libcrypto fails. The contents of `in_out` are then
    /// undefined.
    pub fn seal(&self, nonce: &[u8; 16], in_out: &mut [u8]) -> Result<[u8; 16], CryptoError> {
        let sealed = self.encrypt.try_clone().and_then(|mut context| {
            context.begin(nonce)?;
            context.apply_in_place(in_out)?;
            context.finish_with_tag()
        });
        wipe_stack();
        sealed
    }

    /// Verifies `tag` over `in_out`, and decrypts `in_out` in place.
    ///
    /// # Errors
    /// [`OpenError`] if anything differs from what was sealed; `in_out` is then all zeros.
    pub fn open(
        &self,
        nonce: &[u8; 16],
        in_out: &mut [u8],
        tag: &[u8; 16],
    ) -> Result<(), OpenError> {
        let opened = self.decrypt.try_clone().and_then(|mut context| {
            context.begin(nonce)?;
            context.apply_in_place(in_out)?;
            context.finish_and_verify(tag)
        });
        wipe_stack();
        opened.map_err(|_| {
            in_out.zeroize();
            OpenError
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opens_what_it_sealed_and_nothing_else() {
        let key = GcmIv16Key::new(&SecretKey::generate().unwrap()).unwrap();
        for len in [0, 1, 15, 16, 17, 4056, 262_112] {
            let plain: Vec<u8> = (0..=250).cycle().take(len).collect();
            let mut sealed = plain.clone();
            let tag = key.seal(&[3; 16], &mut sealed).unwrap();
            let mut opened = sealed.clone();
            key.open(&[3; 16], &mut opened, &tag).unwrap();
            assert_eq!(opened, plain, "length {len}");
            for (nonce, tag) in [([4; 16], tag), ([3; 16], [0; 16])] {
                let mut opened = sealed.clone();
                assert_eq!(key.open(&nonce, &mut opened, &tag), Err(OpenError));
                assert!(opened.iter().all(|byte| *byte == 0), "length {len}");
            }
            if let Some(last) = len.checked_sub(1) {
                let mut opened = sealed;
                opened[last] ^= 1;
                assert_eq!(key.open(&[3; 16], &mut opened, &tag), Err(OpenError));
            }
        }
    }

    /// One key serves many messages: nothing of one is left for the next.
    #[test]
    fn messages_do_not_depend_on_those_before() {
        let key = GcmIv16Key::new(&SecretKey::generate().unwrap()).unwrap();
        let seal = |nonce: u8| {
            let mut bytes = [9; 100];
            let tag = key.seal(&[nonce; 16], &mut bytes).unwrap();
            (bytes, tag)
        };
        let first = seal(1);
        assert!(seal(2) != first);
        assert!(seal(1) == first);
    }
}
