//! The key derivations of LUKS2: PBKDF2-HMAC over SHA-256 and SHA-512, Argon2i and Argon2id with
//! outputs of any length, and the diffusion of its anti-forensic stripes.
//!
//! Standards: RFC 8018 section 5.2; RFC 9106; "LUKS1 On-Disk Format Specification" section 2.4 for
//! the diffusion, which LUKS2 kept.
//!
//! Invariants: derived keys are written straight into locked memory; costs that come from a header
//! are checked before they cost anything (C10).
//!
//! Must not: be used for anything of Strongroom's own, whose passphrases go through
//! [`crate::argon2id`]; offer SHA-1.

use std::num::NonZeroU32;

use argon2::Algorithm;
use ring::{digest, pbkdf2};

use crate::error::CryptoError;
use crate::harden::{wipe_stack, wipe_stack_short};
use crate::kdf::{Argon2Params, argon2_into};
use crate::secret::SecretBytes;

/// A hash that LUKS2 names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LuksHash {
    /// `sha256`.
    Sha256,
    /// `sha512`.
    Sha512,
}

impl LuksHash {
    /// Returns the hash with the name that LUKS2 writes; `None` for every other name, `sha1` among
    /// them.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "sha256" => Some(Self::Sha256),
            "sha512" => Some(Self::Sha512),
            _ => None,
        }
    }

    /// Returns the length of a digest, in bytes.
    #[must_use]
    pub fn len(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha512 => 64,
        }
    }

    /// Returns false: a digest always has bytes. Clippy wants it beside `len`.
    #[must_use]
    pub fn is_empty(self) -> bool {
        false
    }

    /// Returns ring's algorithm of this hash.
    fn digest(self) -> &'static digest::Algorithm {
        match self {
            Self::Sha256 => &digest::SHA256,
            Self::Sha512 => &digest::SHA512,
        }
    }

    /// Returns ring's PBKDF2 with HMAC of this hash.
    fn pbkdf2(self) -> pbkdf2::Algorithm {
        match self {
            Self::Sha256 => pbkdf2::PBKDF2_HMAC_SHA256,
            Self::Sha512 => pbkdf2::PBKDF2_HMAC_SHA512,
        }
    }

    /// Computes the digest of the concatenation of `parts`, for checksums of headers.
    #[must_use]
    pub fn digest_of(self, parts: &[&[u8]]) -> Vec<u8> {
        hash(self.digest(), parts).as_ref().to_vec()
    }
}

/// Derives a key of `len` bytes from a secret with PBKDF2-HMAC, in locked memory, and wipes the
/// stack.
///
/// # Errors
/// [`CryptoError::TooLong`] for more than 64 KiB, [`CryptoError::OutOfLockedMemory`] without memory
/// for keys.
pub fn pbkdf2(
    hash: LuksHash,
    secret: &SecretBytes,
    salt: &[u8],
    iterations: NonZeroU32,
    len: usize,
) -> Result<SecretBytes, CryptoError> {
    let mut out = SecretBytes::with_capacity(len)?;
    derive(
        hash,
        secret.as_slice(),
        salt,
        iterations,
        out.as_mut_slice(),
    );
    wipe_stack();
    Ok(out)
}

/// Whether PBKDF2-HMAC of `secret` equals `expected`, compared in constant time. False for an empty
/// `expected`.
#[must_use]
pub fn pbkdf2_matches(
    hash: LuksHash,
    secret: &SecretBytes,
    salt: &[u8],
    iterations: NonZeroU32,
    expected: &[u8],
) -> bool {
    let matches = compare(hash, secret.as_slice(), salt, iterations, expected);
    wipe_stack();
    matches
}

/// Which Argon2 a key slot names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argon2Kind {
    /// Argon2i.
    I,
    /// Argon2id.
    Id,
}

/// Derives a key of `len` bytes from a passphrase with Argon2 version 0x13, in locked memory.
///
/// # Errors
/// [`CryptoError::KdfParameters`] for parameters that [`Argon2Params::check_work`] refuses, or a
/// salt shorter than 8 bytes; [`CryptoError::OutOfMemory`]; [`CryptoError::TooLong`] for more than
/// 64 KiB; [`CryptoError::OutOfLockedMemory`] without memory for keys.
pub fn argon2(
    kind: Argon2Kind,
    pass: &SecretBytes,
    salt: &[u8],
    params: Argon2Params,
    len: usize,
) -> Result<SecretBytes, CryptoError> {
    let algorithm = match kind {
        Argon2Kind::I => Algorithm::Argon2i,
        Argon2Kind::Id => Algorithm::Argon2id,
    };
    params.check_work()?;
    let mut out = SecretBytes::with_capacity(len)?;
    argon2_into(algorithm, pass.as_slice(), salt, params, out.as_mut_slice())?;
    Ok(out)
}

/// Merges the anti-forensic stripes of a key slot, in order, to the key: the stripes are combined
/// by XOR, and the hash diffuses the result after each stripe but the last.
pub struct AfMerge {
    hash: LuksHash,
    block: SecretBytes,
    left: u32,
}

impl AfMerge {
    /// Begins to merge `stripes` stripes of `len` bytes into a key of `len` bytes: LUKS stores a
    /// key split into stripes, all of which are needed.
    ///
    /// # Errors
    /// [`CryptoError::Length`] when one of them is zero; [`CryptoError::TooLong`] for stripes above
    /// 64 KiB; [`CryptoError::OutOfLockedMemory`] without memory for keys.
    pub fn new(hash: LuksHash, len: usize, stripes: u32) -> Result<Self, CryptoError> {
        if len == 0 || stripes == 0 {
            return Err(CryptoError::Length);
        }
        Ok(Self {
            hash,
            block: SecretBytes::with_capacity(len)?,
            left: stripes,
        })
    }

    /// Returns how many stripes are still to be added.
    #[must_use]
    pub fn left(&self) -> u32 {
        self.left
    }

    /// Merges the next stripe into the key.
    ///
    /// # Errors
    /// [`CryptoError::Length`] when it has another length, or when there is one too many.
    pub fn add(&mut self, stripe: &[u8]) -> Result<(), CryptoError> {
        if stripe.len() != self.block.len() || self.left == 0 {
            return Err(CryptoError::Length);
        }
        let block = self.block.as_mut_slice();
        for (byte, &with) in block.iter_mut().zip(stripe) {
            *byte ^= with;
        }
        self.left -= 1;
        if self.left > 0 {
            diffuse(self.hash, block);
            wipe_stack_short();
        }
        Ok(())
    }

    /// Returns the merged key, in locked memory, and wipes the stack.
    ///
    /// # Errors
    /// [`CryptoError::Length`] when stripes are missing.
    pub fn finish(self) -> Result<SecretBytes, CryptoError> {
        wipe_stack();
        if self.left > 0 {
            return Err(CryptoError::Length);
        }
        Ok(self.block)
    }
}

/// Replaces each piece of `block` that is as long as a digest by the digest of its number
/// (big-endian) and itself; the last one, if it is shorter, by the beginning of such a digest. Not
/// inlined, so that the wipe of the stack reaches its frames.
#[inline(never)]
#[expect(clippy::big_endian_bytes, reason = "LUKS is big-endian")]
fn diffuse(hash_name: LuksHash, block: &mut [u8]) {
    for (number, piece) in (0_u32..).zip(block.chunks_mut(hash_name.len())) {
        let digest = hash(hash_name.digest(), &[&number.to_be_bytes(), piece]);
        for (byte, &new) in piece.iter_mut().zip(digest.as_ref()) {
            *byte = new;
        }
    }
}

/// Computes the digest of the concatenation of `parts`. Not inlined, as [`diffuse`].
#[inline(never)]
fn hash(algorithm: &'static digest::Algorithm, parts: &[&[u8]]) -> digest::Digest {
    let mut context = digest::Context::new(algorithm);
    for part in parts {
        context.update(part);
    }
    context.finish()
}

/// Writes PBKDF2 of `secret` into `out`. Not inlined, so that [`wipe_stack`] reaches its frames.
#[inline(never)]
fn derive(hash: LuksHash, secret: &[u8], salt: &[u8], iterations: NonZeroU32, out: &mut [u8]) {
    pbkdf2::derive(hash.pbkdf2(), iterations, salt, secret, out);
}

/// Whether PBKDF2 of `secret` equals `expected`, compared in constant time. Not inlined, as
/// [`derive()`].
#[inline(never)]
fn compare(
    hash: LuksHash,
    secret: &[u8],
    salt: &[u8],
    iterations: NonZeroU32,
    expected: &[u8],
) -> bool {
    pbkdf2::verify(hash.pbkdf2(), iterations, salt, secret, expected).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(bytes: &[u8]) -> SecretBytes {
        SecretBytes::take(&mut bytes.to_vec()).unwrap()
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// RFC 7914, section 11; for SHA-512, Python's `hashlib.pbkdf2_hmac`.
    #[test]
    fn pbkdf2_gives_what_others_publish() {
        let vectors = [
            (
                LuksHash::Sha256,
                "passwd",
                "salt",
                1,
                "55ac046e56e3089fec1691c22544b605f94185216dde0465e68b9d57c20dacbc\
                 49ca9cccf179b645991664b39d77ef317c71b845b1e30bd509112041d3a19783",
            ),
            (
                LuksHash::Sha256,
                "Password",
                "NaCl",
                80_000,
                "4ddcd8f60b98be21830cee5ef22701f9641a4418d04c0414aeff08876b34ab56\
                 a1d425a1225833549adb841b51c9b3176a272bdebba1d078478f62b397f33c8d",
            ),
            (
                LuksHash::Sha512,
                "password",
                "salt",
                1,
                "867f70cf1ade02cff3752599a3a53dc4af34c7a669815ae5d513554e1c8cf252\
                 c02d470a285a0501bad999bfe943c08f050235d7d68b1da55e63f73b60a57fce",
            ),
        ];
        for (hash, pass, salt, iterations, expected) in vectors {
            let iterations = NonZeroU32::new(iterations).unwrap();
            let key = pbkdf2(
                hash,
                &secret(pass.as_bytes()),
                salt.as_bytes(),
                iterations,
                64,
            );
            let key = key.unwrap();
            assert_eq!(hex(key.as_slice()), expected, "{pass}");
            let matches = |expected: &[u8]| {
                let salt = salt.as_bytes();
                pbkdf2_matches(hash, &secret(pass.as_bytes()), salt, iterations, expected)
            };
            assert!(matches(key.as_slice()));
            assert!(matches(&key.as_slice()[..32]));
            assert!(!matches(&[]));
            let mut other = key.as_slice().to_vec();
            other[63] ^= 1;
            assert!(!matches(&other));
        }
    }

    #[test]
    fn stripes_that_were_split_merge_and_no_others() {
        for hash in [LuksHash::Sha256, LuksHash::Sha512] {
            for len in [16, 32, 33, 64, 96] {
                let key: Vec<u8> = (0..=255).cycle().take(len).collect();
                let stripes = split(hash, &key, 7);
                let merged = |stripes: &[Vec<u8>]| {
                    let mut merge = AfMerge::new(hash, len, 7).unwrap();
                    for stripe in stripes {
                        merge.add(stripe).unwrap();
                    }
                    merge.finish().map(|key| key.as_slice().to_vec())
                };
                assert_eq!(merged(&stripes).unwrap(), key);
                assert_eq!(merged(&stripes[..6]), Err(CryptoError::Length));
                for changed in 0..7 {
                    let mut stripes = stripes.clone();
                    stripes[changed][len / 2] ^= 1;
                    assert_ne!(merged(&stripes).unwrap(), key, "stripe {changed}");
                }
            }
        }
    }

    /// Splitting as the specification says, with the diffusion under test and without a merge.
    fn split(hash: LuksHash, key: &[u8], stripes: usize) -> Vec<Vec<u8>> {
        let mut block = vec![0; key.len()];
        let mut out = Vec::new();
        for _ in 1..stripes {
            let mut stripe = vec![0; key.len()];
            crate::fill_random(&mut stripe).unwrap();
            for (byte, with) in block.iter_mut().zip(&stripe) {
                *byte ^= with;
            }
            diffuse(hash, &mut block);
            out.push(stripe);
        }
        out.push(block.iter().zip(key).map(|(a, b)| a ^ b).collect());
        out
    }

    #[test]
    fn a_stripe_too_many_or_of_another_length_is_refused() {
        let mut merge = AfMerge::new(LuksHash::Sha256, 32, 1).unwrap();
        assert_eq!(merge.add(&[0; 31]), Err(CryptoError::Length));
        merge.add(&[1; 32]).unwrap();
        assert_eq!(merge.left(), 0);
        assert_eq!(merge.add(&[0; 32]), Err(CryptoError::Length));
        assert!(AfMerge::new(LuksHash::Sha256, 0, 1).is_err());
        assert!(AfMerge::new(LuksHash::Sha256, 1, 0).is_err());
    }

    #[test]
    fn the_two_argon2_differ_and_the_length_matters() {
        let params = Argon2Params {
            m_kib: 64,
            t: 2,
            p: 2,
        };
        let derive = |kind, len| argon2(kind, &secret(b"pass"), &[1; 32], params, len).unwrap();
        let id = derive(Argon2Kind::Id, 32);
        let known = crate::argon2id(&secret(b"pass"), &[1; 32], params).unwrap();
        assert_eq!(id.as_slice(), known.expose());
        assert_ne!(derive(Argon2Kind::I, 32).as_slice(), id.as_slice());
        assert_ne!(&derive(Argon2Kind::Id, 64).as_slice()[..32], id.as_slice());
    }

    #[test]
    fn names_are_those_of_luks() {
        assert_eq!(LuksHash::named("sha256"), Some(LuksHash::Sha256));
        assert_eq!(LuksHash::named("sha512"), Some(LuksHash::Sha512));
        for name in ["sha1", "SHA256", "", "sha256\0", "ripemd160"] {
            assert_eq!(LuksHash::named(name), None, "{name}");
        }
    }
}
