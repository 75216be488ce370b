//! Strongroom's cryptographic core: the only crate that names a primitive.
//!
//! It offers one authenticated cipher ([`GcmKey`], [`AnyGcmKey`] for shorter keys, and
//! [`GcmIv16Key`] for longer nonces), two unauthenticated ([`CtrKey`], [`XtsKey`]), one legacy
//! cipher ([`TripleDes`]), one MAC ([`MacKey`]), three key agreements ([`KeyAgreement`],
//! [`kdfe_p256`] for TPMs, [`ecmr_provision`] for Tang), keys encrypted for certificates
//! ([`Certificate`], [`PrivateKey`]), one signature that is made and verified ([`SigningKey`],
//! [`VerifyingKey`]), verification of others' signatures ([`verify_p256`], [`verify_p256_der`],
//! [`verify_p384`], [`verify_p521`], [`verify_rsa`], [`verify_rsa_pss`]), two key derivations
//! ([`hkdf`] for keys, [`argon2id`] for passphrases) and those of LUKS2 ([`pbkdf2()`],
//! [`argon2()`]), a nonce source that survives `fork` ([`nonce12`]), and memory that is locked,
//! kept out of core dumps and wiped when freed ([`SecretKey`], [`SecretBytes`], [`Locked`]).
//!
//! Invariants C1 to C12 are listed in `docs/internals/crypto.md`; the comments cite them by number.
//! In short: a key is never outside locked memory longer than the call that needs it, no key type
//! can be printed, cloned by accident or serialised, and a failed opening leaves no plaintext.
//!
//! This crate must not know a file format, do file I/O, log, or read configuration. Every failure
//! is an error value that carries no secret; nothing here panics on input from outside.

mod aead;
mod agree;
mod arena;
mod certificate;
mod ctr;
mod ed25519;
mod error;
mod gcm192;
mod gcm_iv16;
mod harden;
mod identity;
mod kdf;
mod libcrypto;
mod luks;
mod mac;
mod mapping;
mod matrix;
mod nonce;
mod p521;
mod pkcs12;
mod random;
mod rsa;
mod secret;
mod sender;
mod signature;
mod tdes;
#[cfg(all(feature = "wide-gcm", target_arch = "x86_64"))]
mod wide_gcm;
mod xts;

#[cfg(test)]
mod vectors;

pub use aead::{AesLength, AnyGcmKey, GcmKey};
pub use agree::KeyAgreement;
pub use certificate::{CERTIFICATE_BITS, Certificate};
pub use ctr::CtrKey;
pub use ed25519::{SigningKey, VerifyingKey};
pub use error::{CertificateError, CryptoError, OpenError, SigningKeyError};
pub use gcm_iv16::GcmIv16Key;
pub use harden::{forbid_core_dumps, wipe_stack};
pub use identity::Identity;
pub use kdf::{Argon2Params, argon2id, hkdf, hkdf_bytes};
pub use luks::{AfMerge, Argon2Kind, LuksHash, argon2, pbkdf2, pbkdf2_matches};
pub use mac::{MacKey, Sha256, sha256, sha256_key};
pub use nonce::nonce12;
pub use p521::{P521Point, ecmr_blind, ecmr_provision, ecmr_recover, verify_p521};
pub use random::{fill_random, random16, random32};
pub use rsa::PrivateKey;
pub use secret::{Locked, SecretBytes, SecretKey, memory_is_locked, relock_after_fork};
pub use sender::kdfe_p256;
pub use signature::{verify_p256, verify_p256_der, verify_p384, verify_rsa, verify_rsa_pss};
pub use tdes::TripleDes;
pub use xts::XtsKey;

/// Fails to compile for a type that is not `Send + Sync`: programs share keys between threads. Does
/// nothing.
const fn shareable<T: Send + Sync>() {}
const _: () = {
    shareable::<SecretKey>();
    shareable::<SecretBytes>();
    shareable::<GcmKey>();
    shareable::<AnyGcmKey>();
    shareable::<GcmIv16Key>();
    shareable::<CtrKey>();
    shareable::<MacKey>();
    shareable::<XtsKey>();
    shareable::<PrivateKey>();
    shareable::<Certificate>();
    shareable::<SigningKey>();
    shareable::<VerifyingKey>();
};
