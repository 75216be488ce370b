//! What can go wrong in this crate.
//!
//! Invariant C9: no variant carries data, so no error can carry a secret. Sealing and opening fail
//! with different types; every failed opening looks the same to the caller.

use std::fmt;

/// A failure that is the host's or the caller's, never the data's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CryptoError {
    /// The kernel's random generator could not be read.
    Random,
    /// No memory for secrets could be mapped.
    OutOfLockedMemory,
    /// No memory for the Argon2 matrix could be mapped.
    OutOfMemory,
    /// Argon2 parameters outside the accepted bounds, or a salt that is too short.
    KdfParameters,
    /// An input longer than the primitive or the container allows.
    TooLong,
    /// Not a whole number of the cipher's units, or buffers of different lengths.
    Length,
    /// A key of a length that the cipher does not take, or an XTS key whose halves are equal.
    Key,
    /// libcrypto refused an operation that it should support.
    Library,
}

impl fmt::Display for CryptoError {
    /// Writes what failed and what an operator can do about it. Holds no secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Random => {
                "the system's random generator failed; check that getrandom is not blocked by a sandbox"
            }
            Self::OutOfLockedMemory => {
                "no memory for keys could be mapped; free memory or raise the process's address-space limit"
            }
            Self::OutOfMemory => {
                "not enough memory to derive a key from the passphrase; free memory or use a smaller Argon2 memory parameter"
            }
            Self::KdfParameters => {
                "Argon2 parameters are out of bounds; memory must be 8 KiB per lane to 4 GiB, passes and lanes 1 to 64, the salt at least 8 bytes"
            }
            Self::Length => {
                "the input is not a whole number of 16-byte units, or the output is of another length"
            }
            Self::Key => {
                "the key's length is not one that the cipher takes, or its two halves are equal"
            }
            Self::Library => "libcrypto could not be set up; this is a defect in Strongroom",
            Self::TooLong => "the input is longer than this operation allows; split it",
        })
    }
}

impl std::error::Error for CryptoError {}

/// Why a certificate or its private key cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CertificateError {
    /// Not a certificate, a private key or a PKCS #12 file, or one that cannot be read.
    Malformed,
    /// Not RSA of 2048 to 4096 bits with a sound exponent, or not for enciphering keys.
    Weak,
    /// The private key is not the certificate's.
    Mismatch,
    /// A passphrase is needed, or is not the right one.
    Passphrase,
    /// The subject is not one, or the number of days is out of bounds.
    Subject,
    /// The host's failure, or a defect.
    Crypto(CryptoError),
}

impl fmt::Display for CertificateError {
    /// Writes what is wrong with the file, the passphrase or the subject. Holds nothing of them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "not a certificate, a private key or a PKCS #12 file that can be read",
            Self::Weak => {
                "the key is not RSA of 2048 to 4096 bits with an exponent from 65537, or its certificate does not allow key encipherment"
            }
            Self::Mismatch => "the private key does not belong to the certificate",
            Self::Passphrase => "a passphrase is needed, or the one that was given does not open it",
            Self::Subject => "the subject or the number of days is not valid",
            Self::Crypto(error) => return error.fmt(f),
        })
    }
}

impl std::error::Error for CertificateError {}

impl From<CryptoError> for CertificateError {
    fn from(error: CryptoError) -> Self {
        Self::Crypto(error)
    }
}

/// Why a file's key cannot be used to sign, or to verify signatures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SigningKeyError {
    /// Not a key in PEM: a private key for signing, a public key or a certificate for verifying.
    Malformed,
    /// The private key needs a passphrase.
    Encrypted,
    /// A key, but not one of Ed25519.
    OtherKind,
    /// More than one public key or certificate in one file.
    Several,
    /// The host's failure, or a defect.
    Crypto(CryptoError),
}

impl fmt::Display for SigningKeyError {
    /// Writes what is wrong with the key's file, without its path.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "not a key in PEM that can be read",
            Self::Encrypted => "a passphrase protects the key",
            Self::OtherKind => "a key of another kind than Ed25519",
            Self::Several => {
                "more than one key or certificate; put each key that is trusted into a file of its own, and name each file"
            }
            Self::Crypto(error) => return error.fmt(f),
        })
    }
}

impl std::error::Error for SigningKeyError {}

impl From<CryptoError> for SigningKeyError {
    fn from(error: CryptoError) -> Self {
        Self::Crypto(error)
    }
}

/// A sealed message was refused. It deliberately does not say why: to an attacker who makes the
/// program open forged data, a wrong key, a wrong place and a changed byte must look alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenError;

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the data is not authentic under this key")
    }
}

impl std::error::Error for OpenError {}
