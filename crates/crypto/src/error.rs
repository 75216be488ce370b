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
    /// libcrypto refused to do what it was built for.
    Library,
}

impl fmt::Display for CryptoError {
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

/// A sealed message was refused. It deliberately does not say why: wrong key, wrong place and
/// changed byte must look alike to whoever can make the program open forged data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenError;

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the data is not authentic under this key")
    }
}

impl std::error::Error for OpenError {}
