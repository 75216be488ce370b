//! PKCS #12 (RFC 7292) through libcrypto's own functions: the `openssl` crate copies passphrases to
//! the heap.
//!
//! Invariants: a passphrase stays in locked memory; what is written is sealed with AES-256-CBC
//! under PBKDF2 with HMAC-SHA-256 and authenticated with HMAC-SHA-256, both with [`ITERATIONS`]
//! rounds; every pointer that libcrypto returns gets an owner before anything else is done.
//!
//! Must not: judge a certificate, or a pair (see `identity.rs`).
#![expect(unsafe_code, reason = "libcrypto is a C library")]

use std::ffi::{CString, c_char, c_int};
use std::ptr;

use foreign_types::{ForeignType, ForeignTypeRef};
use openssl::error::ErrorStack;
use openssl::nid::Nid;
use openssl::pkcs12::Pkcs12;
use openssl::pkey::{PKey, Private};
use openssl::stack::Stack;
use openssl::x509::{X509, X509Ref};
use openssl_sys as ffi;

use crate::certificate::Certificate;
use crate::error::{CertificateError, CryptoError};
use crate::identity::Identity;
use crate::rsa::{PrivateKey, with_private};
use crate::secret::SecretBytes;

/// Rounds of the key derivations. Readers have limits of their own: below 300,000 in the ones that
/// are known to have one.
const ITERATIONS: c_int = 250_000;
/// "mac verify failure" (openssl/pkcs12err.h, `PKCS12_R_MAC_VERIFY_FAILURE`).
const MAC_VERIFY_FAILURE: c_int = 113;

/// Returns the bits of the certificate's key usage: all of them when it has no such extension, none
/// when the extension cannot be read.
pub(crate) fn key_usage(x509: &X509Ref) -> u32 {
    // SAFETY: a valid certificate. It is not changed but for what libcrypto remembers of it under
    // its own lock.
    unsafe { ffi::X509_get_key_usage(x509.as_ptr()) }
}

/// Makes the bytes of a PKCS #12 file, sealed under the passphrase. Errors:
/// [`CertificateError::Passphrase`] for one that is empty, is not UTF-8 or has a zero byte;
/// [`CertificateError::Subject`] for a name with a zero byte; [`CertificateError::Crypto`] when
/// certificate and key are not a pair, libcrypto fails, or there is no memory for keys.
pub(crate) fn write(
    certificate: &Certificate,
    key: &PrivateKey,
    name: &str,
    passphrase: &SecretBytes,
) -> Result<Vec<u8>, CertificateError> {
    let passphrase = terminated(passphrase)?;
    let name = CString::new(name).map_err(|_| CertificateError::Subject)?;
    let bytes = with_private(|| {
        // SAFETY: two valid C strings, a valid key and certificate; no further certificates, no key
        // type. libcrypto does not write to what it is given, and takes a count of its own on what
        // it keeps.
        let made = unsafe {
            ffi::PKCS12_create(
                passphrase.as_slice().as_ptr().cast(),
                name.as_ptr(),
                key.inner().as_ptr(),
                certificate.inner().as_ptr(),
                ptr::null_mut(),
                Nid::AES_256_CBC.as_raw(),
                Nid::AES_256_CBC.as_raw(),
                ITERATIONS,
                ITERATIONS,
                0,
            )
        };
        if made.is_null() {
            return Err(CryptoError::Library);
        }
        // SAFETY: not null, and ours alone.
        let made = unsafe { Pkcs12::from_ptr(made) };
        made.to_der().map_err(|_| CryptoError::Library)
    })?;
    Ok(bytes?)
}

/// Reads the bytes of a PKCS #12 file: the certificate, its private key if there is one, and the
/// name in the file. Further certificates are ignored. Does not check that they are a pair. Errors:
/// [`CertificateError::Passphrase`] for a wrong or unusable one; [`CertificateError::Malformed`]
/// when it cannot be read; [`CertificateError::Weak`] for another key than RSA of 2048 to 4096
/// bits, or another use; [`CertificateError::Crypto`] when libcrypto fails, or without memory for
/// keys.
pub(crate) fn read(bytes: &[u8], passphrase: &SecretBytes) -> Result<Identity, CertificateError> {
    let passphrase = terminated(passphrase)?;
    let parts = with_private(|| parts(bytes, &passphrase))??;
    let (key, x509) = parts;
    let name = x509
        .alias()
        .and_then(|alias| std::str::from_utf8(alias).ok());
    let name = name.map(str::to_owned);
    Ok(Identity {
        certificate: Certificate::of(x509)?,
        key: key.map(PrivateKey::of).transpose()?,
        name,
        was_sealed: true,
    })
}

/// Takes the private key, if any, and the certificate out of a PKCS #12 file; where none belongs to
/// the key, the first one. Errors: [`CertificateError::Passphrase`] when its authentication code
/// does not match; [`CertificateError::Malformed`] for anything else, also a file without a
/// certificate.
fn parts(
    bytes: &[u8],
    passphrase: &SecretBytes,
) -> Result<(Option<PKey<Private>>, X509), CertificateError> {
    let file = Pkcs12::from_der(bytes).map_err(|_| CertificateError::Malformed)?;
    let (mut key, mut x509, mut others) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    // SAFETY: a valid file, a C string, and three places for pointers that are null.
    let parsed = unsafe {
        ffi::PKCS12_parse(
            file.as_ptr(),
            passphrase.as_slice().as_ptr().cast::<c_char>(),
            &raw mut key,
            &raw mut x509,
            &raw mut others,
        )
    };
    // SAFETY: null, or a key that libcrypto gave away.
    let key = (!key.is_null()).then(|| unsafe { PKey::<Private>::from_ptr(key) });
    // SAFETY: null, or a certificate that libcrypto gave away.
    let x509 = (!x509.is_null()).then(|| unsafe { X509::from_ptr(x509) });
    // SAFETY: null, or a list of certificates that libcrypto gave away.
    let others = (!others.is_null()).then(|| unsafe { Stack::<X509>::from_ptr(others) });
    if parsed != 1 {
        let errors = ErrorStack::get();
        let wrong = |error: &openssl::error::Error| error.reason_code() == MAC_VERIFY_FAILURE;
        return Err(match errors.errors().iter().any(wrong) {
            true => CertificateError::Passphrase,
            false => CertificateError::Malformed,
        });
    }
    let first = others.and_then(|others| others.into_iter().next());
    let x509 = x509.or(first).ok_or(CertificateError::Malformed)?;
    Ok((key, x509))
}

/// Returns the passphrase with a zero byte at its end, in locked memory. It must be text: other
/// programs read it as such. Errors: [`CertificateError::Passphrase`] when it is empty, is not
/// UTF-8, or contains a zero byte; [`CertificateError::Crypto`] when libcrypto fails, or without
/// memory for keys.
fn terminated(passphrase: &SecretBytes) -> Result<SecretBytes, CertificateError> {
    let bytes = passphrase.as_slice();
    if bytes.is_empty() || bytes.contains(&0) || std::str::from_utf8(bytes).is_err() {
        return Err(CertificateError::Passphrase);
    }
    let mut copy = SecretBytes::with_capacity(bytes.len() + 1)?;
    copy.as_mut_slice()[..bytes.len()].copy_from_slice(bytes);
    Ok(copy)
}
