//! AES-GCM with separate tags, in place: AES-256 everywhere, AES-192 and AES-128 where a format lets its user choose.
//!
//! Standard: NIST SP 800-38D with 96-bit nonces and 128-bit tags; no other size is offered.
//!
//! Invariants:
//! - C8: after a failed opening the buffer holds zeros, never plaintext nobody vouches for.
//! - The expanded key and the GHASH table live in locked memory; they are as good as the key.
//!
//! Must not: choose nonces or count messages. That is the duty of whoever owns the key.

use ring::aead::{AES_128_GCM, AES_256_GCM, Aad, Algorithm, LessSafeKey, Nonce, Tag, UnboundKey};
use zeroize::Zeroize;

use crate::error::{CryptoError, OpenError};
use crate::gcm192;
use crate::harden::wipe_stack;
use crate::kdf::extract_and_expand;
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
        let expanded = expand(&AES_256_GCM, key.expose());
        wipe_stack();
        expanded.map(Self)
    }

    /// The key that [`crate::hkdf()`] makes of `ikm`, `salt` and `info`, expanded: for keys of which nothing else is needed.
    ///
    /// # Errors
    /// [`CryptoError::OutOfLockedMemory`].
    pub fn derive(ikm: &SecretKey, salt: &[u8], info: &[u8]) -> Result<Self, CryptoError> {
        let expanded = derive_and_expand(ikm, salt, info);
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
        seal(&self.0, nonce, aad, in_out)
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
        open(&self.0, nonce, aad, in_out, tag)
    }
}

/// Length of an AES key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AesLength {
    /// 16 bytes.
    Aes128,
    /// 24 bytes.
    Aes192,
    /// 32 bytes.
    Aes256,
}

/// An AES-GCM key of any length, expanded.
pub struct AnyGcmKey(Supplier);

enum Supplier {
    Ring(Locked<LessSafeKey>),
    /// ring has no AES-192. The key schedule is made for each message, which is large.
    Libcrypto(SecretKey),
}

impl AnyGcmKey {
    /// Expands the first 16, 24 or 32 bytes of `key`. The rest is not used.
    ///
    /// # Errors
    /// [`CryptoError::OutOfLockedMemory`].
    pub fn new(length: AesLength, key: &SecretKey) -> Result<Self, CryptoError> {
        let supplier = match length {
            AesLength::Aes256 => expand(&AES_256_GCM, key.expose()).map(Supplier::Ring),
            AesLength::Aes128 => {
                let (half, _) = key.expose().split_at(AES_128_GCM.key_len());
                expand(&AES_128_GCM, half).map(Supplier::Ring)
            }
            AesLength::Aes192 => key.try_clone().map(Supplier::Libcrypto),
        };
        wipe_stack();
        supplier.map(Self)
    }

    /// As [`GcmKey::seal`], with the same duty of the caller.
    ///
    /// # Errors
    /// [`CryptoError::TooLong`]; [`CryptoError::OutOfLockedMemory`]; [`CryptoError::Library`]. `in_out` is then of no use.
    pub fn seal(
        &self,
        nonce: &[u8; 12],
        aad: &[u8],
        in_out: &mut [u8],
    ) -> Result<[u8; 16], CryptoError> {
        match &self.0 {
            Supplier::Ring(key) => seal(key, nonce, aad, in_out),
            Supplier::Libcrypto(key) => gcm192::seal(key, nonce, aad, in_out),
        }
    }

    /// As [`GcmKey::open`].
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
        match &self.0 {
            Supplier::Ring(key) => open(key, nonce, aad, in_out, tag),
            Supplier::Libcrypto(key) => {
                let opened = gcm192::open(key, nonce, aad, in_out, tag);
                if opened.is_err() {
                    in_out.zeroize();
                }
                opened
            }
        }
    }
}

fn seal(
    key: &LessSafeKey,
    nonce: &[u8; 12],
    aad: &[u8],
    in_out: &mut [u8],
) -> Result<[u8; 16], CryptoError> {
    if u64::try_from(in_out.len()).map_or(true, |len| len > MESSAGE_LEN_MAX) {
        return Err(CryptoError::TooLong);
    }
    let nonce = Nonce::assume_unique_for_key(*nonce);
    let tag = key
        .seal_in_place_separate_tag(nonce, Aad::from(aad), in_out)
        .map_err(|_| CryptoError::TooLong)?;
    tag.as_ref().try_into().map_err(|_| CryptoError::TooLong)
}

fn open(
    key: &LessSafeKey,
    nonce: &[u8; 12],
    aad: &[u8],
    in_out: &mut [u8],
    tag: &[u8; 16],
) -> Result<(), OpenError> {
    let nonce = Nonce::assume_unique_for_key(*nonce);
    let opened = key
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

/// Not inlined, so that [`wipe_stack`] reaches the copies of the key its frames leave behind.
#[inline(never)]
fn expand(algorithm: &'static Algorithm, key: &[u8]) -> Result<Locked<LessSafeKey>, CryptoError> {
    let unbound = UnboundKey::new(algorithm, key).map_err(|_| CryptoError::TooLong)?;
    Locked::new(LessSafeKey::new(unbound))
}

/// Not inlined, as above.
#[inline(never)]
fn derive_and_expand(
    ikm: &SecretKey,
    salt: &[u8],
    info: &[u8],
) -> Result<Locked<LessSafeKey>, CryptoError> {
    let key = SecretKey::filled_by(|out| extract_and_expand(ikm.expose(), salt, info, out))?;
    expand(&AES_256_GCM, key.expose())
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
    fn a_derived_key_is_hkdfs() {
        let ikm = SecretKey::generate().unwrap();
        let derived = GcmKey::derive(&ikm, b"salt", b"use").unwrap();
        let same = GcmKey::new(&crate::hkdf(&ikm, b"salt", b"use").unwrap()).unwrap();
        let mut bytes = *b"some message";
        let tag = derived.seal(&[1; 12], b"place", &mut bytes).unwrap();
        same.open(&[1; 12], b"place", &mut bytes, &tag).unwrap();
        assert_eq!(&bytes, b"some message");
        let other = GcmKey::derive(&ikm, b"salt", b"another use").unwrap();
        let tag = derived.seal(&[2; 12], b"place", &mut bytes).unwrap();
        assert_eq!(
            other.open(&[2; 12], b"place", &mut bytes, &tag),
            Err(OpenError)
        );
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

    fn every_length() -> [AesLength; 3] {
        [AesLength::Aes128, AesLength::Aes192, AesLength::Aes256]
    }

    #[test]
    fn keys_of_every_length_open_what_they_sealed_and_nothing_else() {
        let material = SecretKey::generate().unwrap();
        for length in every_length() {
            let key = AnyGcmKey::new(length, &material).unwrap();
            for size in [0, 1, 16, 257, 65_537] {
                let plain: Vec<u8> = (0..=250).cycle().take(size).collect();
                let mut sealed = plain.clone();
                let tag = key.seal(&[1; 12], b"place", &mut sealed).unwrap();
                let mut opened = sealed.clone();
                key.open(&[1; 12], b"place", &mut opened, &tag).unwrap();
                assert_eq!(opened, plain, "{length:?} {size}");
                for bit in 0..128 {
                    let mut changed = tag;
                    changed[bit / 8] ^= 1 << (bit % 8);
                    let mut bytes = sealed.clone();
                    let refused = key.open(&[1; 12], b"place", &mut bytes, &changed);
                    assert_eq!(refused, Err(OpenError));
                    assert!(bytes.iter().all(|byte| *byte == 0));
                }
                let mut bytes = sealed.clone();
                let elsewhere = key.open(&[1; 12], b"elsewhere", &mut bytes, &tag);
                assert_eq!(elsewhere, Err(OpenError));
            }
        }
    }

    /// One message under the three key lengths: test cases 4, 10 and 16 of the GCM specification, appendix B.
    #[test]
    fn the_specifications_messages() {
        let unhex = |text: &str| -> Vec<u8> {
            (0..text.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
                .collect()
        };
        let key = "feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308";
        let mut material: [u8; 32] = unhex(key).try_into().unwrap();
        let material = SecretKey::take(&mut material).unwrap();
        let nonce: [u8; 12] = unhex("cafebabefacedbaddecaf888").try_into().unwrap();
        let aad = unhex("feedfacedeadbeeffeedfacedeadbeefabaddad2");
        let plain = unhex(
            "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39",
        );
        for (length, tag) in [
            (AesLength::Aes128, "5bc94fbc3221a5db94fae95ae7121a47"),
            (AesLength::Aes192, "2519498e80f1478f37ba55bd6d27618c"),
            (AesLength::Aes256, "76fc6ece0f4e1768cddf8853bb2d551b"),
        ] {
            let key = AnyGcmKey::new(length, &material).unwrap();
            let mut bytes = plain.clone();
            let found = key.seal(&nonce, &aad, &mut bytes).unwrap();
            assert_eq!(found.as_slice(), unhex(tag), "{length:?}");
        }
    }
}
