//! AES-GCM with separate tags, in place: AES-256 everywhere, AES-192 and AES-128 where a format
//! lets its user choose.
//!
//! Standard: NIST SP 800-38D with 96-bit nonces and 128-bit tags; no other size is offered.
//!
//! Invariants:
//! - C8: after a failed opening the buffer holds zeros, never plaintext that was not authenticated.
//! - The expanded key and the GHASH table, from which the key follows, live in locked memory.
//!
//! Must not: choose nonces or count messages. That is the duty of whoever owns the key.

use ring::aead::{AES_128_GCM, AES_256_GCM, Aad, Algorithm, LessSafeKey, Nonce, Tag, UnboundKey};
use zeroize::Zeroize;

use crate::error::{CryptoError, OpenError};
use crate::gcm192;
#[cfg(all(feature = "wide-gcm", target_arch = "x86_64"))]
use crate::harden::wipe_after_wide;
use crate::harden::wipe_stack;
use crate::kdf::extract_and_expand;
use crate::secret::{Locked, SecretKey};
#[cfg(all(feature = "wide-gcm", target_arch = "x86_64"))]
use crate::wide_gcm::WideGcm;

/// Longest message in bytes: 2^39 - 256 bits (NIST SP 800-38D, section 5.2.1.1).
const MESSAGE_LEN_MAX: u64 = (1 << 36) - 32;

/// An AES-256-GCM key, expanded. Make it once per file or epoch and keep it.
pub struct GcmKey(Expanded);

/// The expanded key, of the library that is faster on this processor.
enum Expanded {
    Ring(Locked<LessSafeKey>),
    #[cfg(all(feature = "wide-gcm", target_arch = "x86_64"))]
    Wide(WideGcm),
}

impl GcmKey {
    /// Expands `key`, and wipes the stack.
    ///
    /// # Errors
    /// [`CryptoError::OutOfLockedMemory`] without memory for keys; [`CryptoError::Library`] when
    /// AWS-LC fails.
    pub fn new(key: &SecretKey) -> Result<Self, CryptoError> {
        let expanded = expand_for_long(key.expose());
        wipe_stack();
        expanded.map(Self)
    }

    /// Derives a key from `ikm`, `salt` and `info` as [`crate::hkdf()`] does, expands it, and wipes
    /// the stack. For keys that are used for nothing else.
    ///
    /// # Errors
    /// [`CryptoError::OutOfLockedMemory`] without memory for keys; [`CryptoError::Library`] when
    /// AWS-LC fails.
    pub fn derive(ikm: &SecretKey, salt: &[u8], info: &[u8]) -> Result<Self, CryptoError> {
        let expanded = derive_and_expand(expand_for_long, ikm, salt, info);
        wipe_stack();
        expanded.map(Self)
    }

    /// Derives a key from `ikm`, `salt` and `info` with HKDF, and expands it, for messages of some
    /// hundred bytes: always with the library whose set-up is quick.
    ///
    /// # Errors
    /// [`CryptoError::OutOfLockedMemory`] if no memory for keys can be mapped.
    pub fn derive_for_short(
        ikm: &SecretKey,
        salt: &[u8],
        info: &[u8],
    ) -> Result<Self, CryptoError> {
        let expanded = derive_and_expand(expand_for_short, ikm, salt, info);
        wipe_stack();
        expanded.map(Self)
    }

    /// Encrypts `in_out` in place and returns the tag over it and `aad`.
    ///
    /// **The caller's duty:** never use one nonce twice under one key. Two messages under one nonce
    /// reveal the difference of the plaintexts and the key that authenticates. Take nonces from
    /// [`crate::nonce12`], and change the key before 2^32 messages (NIST SP 800-38D, 8.3).
    ///
    /// # Errors
    /// [`CryptoError::TooLong`] for a message of more than 64 GiB - 32 bytes; `in_out` is then
    /// unchanged. [`CryptoError::Library`] when AWS-LC fails.
    pub fn seal(
        &self,
        nonce: &[u8; 12],
        aad: &[u8],
        in_out: &mut [u8],
    ) -> Result<[u8; 16], CryptoError> {
        match &self.0 {
            Expanded::Ring(key) => seal(key, nonce, aad, in_out),
            #[cfg(all(feature = "wide-gcm", target_arch = "x86_64"))]
            Expanded::Wide(key) => {
                check_length(in_out)?;
                key.seal(nonce, aad, in_out)
            }
        }
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
        match &self.0 {
            Expanded::Ring(key) => open(key, nonce, aad, in_out, tag),
            #[cfg(all(feature = "wide-gcm", target_arch = "x86_64"))]
            Expanded::Wide(key) => key
                .open(nonce, aad, in_out, tag)
                .inspect_err(|_| in_out.zeroize()),
        }
    }

    /// Verifies `tag` over `from` and `aad`, and decrypts `from` into `to`. Spares a copy where the
    /// library can do it.
    ///
    /// # Errors
    /// [`OpenError`] if anything differs from what was sealed, or the lengths of `from` and `to`
    /// differ; `to` is then all zeros.
    pub fn open_to(
        &self,
        nonce: &[u8; 12],
        aad: &[u8],
        from: &[u8],
        to: &mut [u8],
        tag: &[u8; 16],
    ) -> Result<(), OpenError> {
        if from.len() != to.len() {
            to.zeroize();
            return Err(OpenError);
        }
        match &self.0 {
            Expanded::Ring(key) => {
                to.copy_from_slice(from);
                open(key, nonce, aad, to, tag)
            }
            #[cfg(all(feature = "wide-gcm", target_arch = "x86_64"))]
            Expanded::Wide(key) => key
                .open_to(nonce, aad, from, to, tag)
                .inspect_err(|_| to.zeroize()),
        }
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

/// The library that has AES of the key's length.
enum Supplier {
    Ring(Locked<LessSafeKey>),
    /// AES-192, which ring does not have. The key schedule is made anew for each message; messages
    /// are large.
    Libcrypto(SecretKey),
}

impl AnyGcmKey {
    /// Expands the first 16, 24 or 32 bytes of `key`, as `length` says. The rest is not used.
    ///
    /// # Errors
    /// [`CryptoError::OutOfLockedMemory`] if no memory for keys can be mapped.
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

    /// As [`GcmKey::seal`]: encrypts `in_out` in place and returns the tag over it and `aad`, with
    /// the same duty of the caller never to use a nonce twice.
    ///
    /// # Errors
    /// [`CryptoError::TooLong`] above 2 GiB for AES-192, above 64 GiB - 32 bytes for the others;
    /// for AES-192 also [`CryptoError::OutOfLockedMemory`], and [`CryptoError::Library`] if
    /// libcrypto fails. The contents of `in_out` are then undefined.
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

    /// As [`GcmKey::open`]: verifies `tag` over `in_out` and `aad`, and decrypts `in_out` in place.
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

/// Checks that a message is not longer than GCM allows, 64 GiB - 32 bytes. Errors:
/// [`CryptoError::TooLong`].
fn check_length(message: &[u8]) -> Result<(), CryptoError> {
    match u64::try_from(message.len()) {
        Ok(..=MESSAGE_LEN_MAX) => Ok(()),
        _ => Err(CryptoError::TooLong),
    }
}

/// Encrypts in place with ring, and returns the tag. Errors: [`CryptoError::TooLong`] above 64 GiB
/// - 32 bytes; `in_out` is then unchanged.
fn seal(
    key: &LessSafeKey,
    nonce: &[u8; 12],
    aad: &[u8],
    in_out: &mut [u8],
) -> Result<[u8; 16], CryptoError> {
    check_length(in_out)?;
    let nonce = Nonce::assume_unique_for_key(*nonce);
    let tag = key
        .seal_in_place_separate_tag(nonce, Aad::from(aad), in_out)
        .map_err(|_| CryptoError::TooLong)?;
    tag.as_ref().try_into().map_err(|_| CryptoError::TooLong)
}

/// Verifies and decrypts in place with ring. Errors: [`OpenError`] if anything differs from what
/// was sealed; `in_out` is then all zeros.
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

/// Expands an AES-256 key with the library that is faster for long messages on this processor. The
/// caller wipes the stack. Errors: [`CryptoError::OutOfLockedMemory`] without memory for keys;
/// [`CryptoError::Library`] when AWS-LC fails.
#[inline(never)]
fn expand_for_long(key: &[u8]) -> Result<Expanded, CryptoError> {
    #[cfg(all(feature = "wide-gcm", target_arch = "x86_64"))]
    if WideGcm::is_for_this_processor() {
        let expanded = WideGcm::new(key);
        // Its kernels leave a power of the hash's key in a register that the wipe of the stack does
        // not reach.
        wipe_after_wide();
        return expanded.map(Expanded::Wide);
    }
    expand(&AES_256_GCM, key).map(Expanded::Ring)
}

/// Expands an AES-256 key with ring, whose set-up is quick. The caller wipes the stack. Errors:
/// [`CryptoError::OutOfLockedMemory`] without memory for keys.
#[inline(never)]
fn expand_for_short(key: &[u8]) -> Result<Expanded, CryptoError> {
    expand(&AES_256_GCM, key).map(Expanded::Ring)
}

/// Expands a key with ring, into locked memory. Not inlined, so that [`wipe_stack`] reaches the
/// copies of the key in its frames. Errors: [`CryptoError::TooLong`] for another length than the
/// algorithm's; [`CryptoError::OutOfLockedMemory`] without memory for keys.
#[inline(never)]
fn expand(algorithm: &'static Algorithm, key: &[u8]) -> Result<Locked<LessSafeKey>, CryptoError> {
    let unbound = UnboundKey::new(algorithm, key).map_err(|_| CryptoError::TooLong)?;
    Locked::new(LessSafeKey::new(unbound))
}

/// Derives a key with HKDF and expands it with `expander`. Not inlined, as [`expand`]. Errors:
/// [`CryptoError::OutOfLockedMemory`] without memory for keys; those of `expander`.
#[inline(never)]
fn derive_and_expand(
    expander: fn(&[u8]) -> Result<Expanded, CryptoError>,
    ikm: &SecretKey,
    salt: &[u8],
    info: &[u8],
) -> Result<Expanded, CryptoError> {
    let key = SecretKey::filled_by(|out| extract_and_expand(ikm.expose(), salt, info, out))?;
    expander(key.expose())
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
        for derive in [GcmKey::derive, GcmKey::derive_for_short] {
            let derived = derive(&ikm, b"salt", b"use").unwrap();
            let same = GcmKey::new(&crate::hkdf(&ikm, b"salt", b"use").unwrap()).unwrap();
            let mut bytes = *b"some message";
            let tag = derived.seal(&[1; 12], b"place", &mut bytes).unwrap();
            same.open(&[1; 12], b"place", &mut bytes, &tag).unwrap();
            assert_eq!(&bytes, b"some message");
            let other = derive(&ikm, b"salt", b"another use").unwrap();
            let tag = derived.seal(&[2; 12], b"place", &mut bytes).unwrap();
            assert_eq!(
                other.open(&[2; 12], b"place", &mut bytes, &tag),
                Err(OpenError)
            );
        }
    }

    /// Both libraries, where there are two, whichever is the faster one.
    fn suppliers(key: &SecretKey) -> Vec<GcmKey> {
        let mut all = vec![GcmKey(
            expand(&AES_256_GCM, key.expose())
                .map(Expanded::Ring)
                .unwrap(),
        )];
        #[cfg(all(feature = "wide-gcm", target_arch = "x86_64"))]
        if WideGcm::is_for_this_processor() {
            all.push(GcmKey(
                WideGcm::new(key.expose()).map(Expanded::Wide).unwrap(),
            ));
        }
        all
    }

    #[test]
    fn libraries_agree_and_refuse_alike() {
        let key = SecretKey::generate().unwrap();
        let all = suppliers(&key);
        let lengths = (0..=130).chain([255, 256, 257, 511, 512, 767, 768, 769, 4064, 4120, 65_504]);
        for len in lengths {
            let (mut plain, mut aad) = (vec![0; len], vec![0; len % 67]);
            crate::fill_random(&mut plain).unwrap();
            crate::fill_random(&mut aad).unwrap();
            let mut sealed = plain.clone();
            let tag = all[0].seal(&[9; 12], &aad, &mut sealed).unwrap();
            for one in &all {
                let mut bytes = plain.clone();
                assert_eq!(one.seal(&[9; 12], &aad, &mut bytes).unwrap(), tag);
                assert_eq!(bytes, sealed, "length {len}");
                one.open(&[9; 12], &aad, &mut bytes, &tag).unwrap();
                assert_eq!(bytes, plain, "length {len}");
                let mut opened = vec![1; len];
                one.open_to(&[9; 12], &aad, &sealed, &mut opened, &tag)
                    .unwrap();
                assert_eq!(opened, plain, "length {len}");
                for bit in [0, 63, 64, 127] {
                    let mut changed = tag;
                    changed[bit / 8] ^= 1 << (bit % 8);
                    let mut bytes = sealed.clone();
                    let refused = one.open(&[9; 12], &aad, &mut bytes, &changed);
                    assert_eq!(refused, Err(OpenError));
                    let mut opened = vec![1; len];
                    let refused = one.open_to(&[9; 12], &aad, &sealed, &mut opened, &changed);
                    assert_eq!(refused, Err(OpenError));
                    assert!(bytes.iter().chain(&opened).all(|byte| *byte == 0));
                }
            }
        }
    }

    #[test]
    fn buffers_of_different_lengths_are_refused() {
        let (key, _, bytes, tag) = sealed(64);
        for len in [0, 63, 65] {
            let mut out = vec![1; len];
            let refused = key.open_to(&[1; 12], b"place", &bytes, &mut out, &tag);
            assert_eq!(refused, Err(OpenError));
            assert!(out.iter().all(|byte| *byte == 0));
        }
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

    /// One message under the three key lengths: test cases 4, 10 and 16 of the GCM specification,
    /// appendix B.
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
