//! HMAC-SHA-256 and SHA-256 over messages given in parts.
//!
//! Standards: FIPS 198-1 and RFC 2104; FIPS 180-4.
//!
//! Invariants: the keyed hash states live in locked memory (whoever has them can forge tags);
//! comparison takes the same time wherever the tags differ.
//!
//! Must not: separate parts. The parts are concatenated; a caller whose parts vary in length must
//! encode the lengths.

use std::hint::black_box;

use ring::{digest, hmac};

use crate::error::CryptoError;
use crate::harden::{wipe_stack, wipe_stack_short};
use crate::secret::{Locked, SecretBytes, SecretKey};

/// An HMAC-SHA-256 key.
pub struct MacKey(Locked<hmac::Key>);

impl MacKey {
    /// Computes the two keyed hash states of `key`, in locked memory.
    ///
    /// # Errors
    /// [`CryptoError::OutOfLockedMemory`] if no memory for keys can be mapped.
    pub fn new(key: &SecretKey) -> Result<Self, CryptoError> {
        Self::from_bytes(key.expose())
    }

    /// Computes the two keyed hash states of a password, which is the key in RFC 5802 (SCRAM), in
    /// locked memory.
    ///
    /// # Errors
    /// [`CryptoError::OutOfLockedMemory`] if no memory for keys can be mapped.
    pub fn of_password(password: &SecretBytes) -> Result<Self, CryptoError> {
        Self::from_bytes(password.as_slice())
    }

    /// Computes the two keyed hash states of a key of any length, in locked memory, and wipes the
    /// stack. Errors: [`CryptoError::OutOfLockedMemory`] if no memory for keys can be mapped.
    pub(crate) fn from_bytes(key: &[u8]) -> Result<Self, CryptoError> {
        let states = absorb(key);
        wipe_stack();
        states.map(Self)
    }

    /// Computes the tag over the concatenation of `parts`.
    #[must_use]
    pub fn mac(&self, parts: &[&[u8]]) -> [u8; 32] {
        let tag = authenticate(&self.0, parts);
        wipe_stack_short();
        tag
    }

    /// Whether `tag` is the tag over the concatenation of `parts`. Compares in constant time.
    #[must_use]
    pub fn verify(&self, parts: &[&[u8]], tag: &[u8; 32]) -> bool {
        equal_in_constant_time(&self.mac(parts), tag)
    }
}

/// Computes the SHA-256 digest of the concatenation of `parts`.
#[must_use]
pub fn sha256(parts: &[&[u8]]) -> [u8; 32] {
    let mut context = digest::Context::new(&digest::SHA256);
    for part in parts {
        context.update(part);
    }
    array_of(context.finish().as_ref())
}

/// Derives a key as DuckDB does: SHA-256 of `salt` and `secret`, one after the other. Nothing slows
/// down guessing; use [`crate::hkdf`] or [`crate::argon2id`] for Strongroom's own keys.
///
/// # Errors
/// [`CryptoError::OutOfLockedMemory`] if no memory for keys can be mapped.
pub fn sha256_key(salt: &[u8], secret: &SecretBytes) -> Result<SecretKey, CryptoError> {
    let key = SecretKey::filled_by(|cell| {
        hash_into(cell, salt, secret.as_slice());
        Ok(())
    });
    wipe_stack();
    key
}

/// SHA-256 of a message that comes in pieces.
pub struct Sha256(digest::Context);

impl Sha256 {
    /// Makes the state before the first piece.
    #[must_use]
    pub fn new() -> Self {
        Self(digest::Context::new(&digest::SHA256))
    }

    /// Adds the next piece to the message.
    pub fn update(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    /// Returns the digest of all pieces.
    #[must_use]
    pub fn finish(self) -> [u8; 32] {
        array_of(self.0.finish().as_ref())
    }
}

impl Default for Sha256 {
    fn default() -> Self {
        Self::new()
    }
}

/// Whether all bytes are equal; takes the same time wherever they differ. The barrier keeps the
/// compiler from leaving the loop at the first difference.
#[inline(never)]
pub(crate) fn equal_in_constant_time(a: &[u8; 32], b: &[u8; 32]) -> bool {
    let mut difference = 0;
    for (a, b) in a.iter().zip(b) {
        difference = black_box(difference | (a ^ b));
    }
    difference == 0
}

/// Computes the keyed hash states of a key, in locked memory. Not inlined, so that [`wipe_stack`]
/// reaches the copies of the key that its frames leave. Errors: [`CryptoError::OutOfLockedMemory`]
/// without memory for keys.
#[inline(never)]
fn absorb(key: &[u8]) -> Result<Locked<hmac::Key>, CryptoError> {
    Locked::new(hmac::Key::new(hmac::HMAC_SHA256, key))
}

/// Computes the tag over the concatenation of `parts`. Not inlined: it copies the keyed states into
/// its frame, which the caller wipes.
#[inline(never)]
fn authenticate(key: &hmac::Key, parts: &[&[u8]]) -> [u8; 32] {
    let mut context = hmac::Context::with_key(key);
    for part in parts {
        context.update(part);
    }
    array_of(context.sign().as_ref())
}

/// Writes SHA-256 of `salt` and `secret` into `key`. Not inlined: the hash's state, with the secret
/// in its buffer, and the digest lie in its frames, which the caller wipes.
#[inline(never)]
fn hash_into(key: &mut [u8; 32], salt: &[u8], secret: &[u8]) {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(salt);
    context.update(secret);
    key.copy_from_slice(context.finish().as_ref());
}

/// Returns the digest as an array. Panics if its length is not 32 bytes.
fn array_of(digest: &[u8]) -> [u8; 32] {
    let mut array = [0; 32];
    // Both algorithms named in this file give 32 bytes; anything else is a programming error.
    array.copy_from_slice(digest);
    array
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_concatenated() {
        let key = MacKey::new(&SecretKey::generate().unwrap()).unwrap();
        let message: Vec<u8> = (0..=255).collect();
        let whole = key.mac(&[&message]);
        for cut in 0..=message.len() {
            let (head, tail) = message.split_at(cut);
            assert_eq!(key.mac(&[head, &[], tail]), whole);
            assert_eq!(sha256(&[head, &[], tail]), sha256(&[&message]));
            let mut pieces = Sha256::new();
            pieces.update(head);
            pieces.update(tail);
            assert_eq!(pieces.finish(), sha256(&[&message]));
        }
        assert_ne!(key.mac(&[]), whole);
    }

    #[test]
    fn every_bit_of_the_tag_counts() {
        let key = MacKey::new(&SecretKey::generate().unwrap()).unwrap();
        let tag = key.mac(&[b"header"]);
        assert!(key.verify(&[b"head", b"er"], &tag));
        assert!(!key.verify(&[b"headers"], &tag));
        for bit in 0..256 {
            let mut changed = tag;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(!key.verify(&[b"header"], &changed), "bit {bit}");
        }
    }
}
