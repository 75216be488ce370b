//! Why a TPM did not do what it was asked, as this crate's callers need it: as an error of the
//! keyring with a stable code, or as an error of the operating system.
//!
//! Must not: hold a secret.

use std::fmt;
use std::io;
use std::time::Duration;

use strongroom_crypto::CryptoError;
use strongroom_format::code::{self, Code};
use strongroom_keyring::Error;

/// Why the TPM did not do what it was asked.
#[derive(Debug)]
pub enum Failure {
    /// The operating system's error, and during what.
    System(String, io::Error),
    /// No response came within this time.
    TimedOut(Duration),
    /// An earlier command was left without a response, so the next response could be that one's.
    OutOfStep,
    /// The response is not one that the specification allows.
    Malformed,
    /// The HMAC of the response does not verify: something on the bus has changed it.
    NotAuthentic,
    /// The TPM refuses with this response code.
    Refused(u32),
    /// The TPM does not load the sealed object, with this response code.
    NotLoaded(u32),
    /// The bytes are not a sealed object.
    NotSealedObject,
    /// The object was sealed by another TPM, or by this one before it was cleared.
    OtherTpm,
    /// The TPM has no SHA-256 bank of registers.
    NoRegisterBank,
    /// The index is not a counter that can be used.
    NotCounter,
    /// This host failed: no memory, no random numbers.
    Host(CryptoError),
}

impl Failure {
    /// Makes the failure for an error of the operating system; `during` says what was done.
    pub(crate) fn system(during: &str, error: io::Error) -> Self {
        Self::System(during.to_owned(), error)
    }
}

impl fmt::Display for Failure {
    /// Writes what the TPM or the system did, for an operator; never a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System(during, error) => write!(f, "TPM, {during}: {error}"),
            Self::TimedOut(limit) => write!(f, "no answer within {} s", limit.as_secs()),
            Self::OutOfStep => f.write_str("the TPM left a command without an answer before"),
            Self::Malformed => f.write_str("the TPM's response is malformed"),
            Self::NotAuthentic => {
                f.write_str("the TPM's answer is not authentic: something between this host and the TPM changed it")
            }
            Self::Refused(number) => {
                write!(f, "the TPM answers with response code {number:#x}")
            }
            Self::NotLoaded(number) => write!(
                f,
                "the TPM does not take the sealed object, response code {number:#x}"
            ),
            Self::NotSealedObject => f.write_str("the sealed object is malformed"),
            Self::OtherTpm => {
                f.write_str("it was sealed by another TPM, or by this one before it was cleared")
            }
            Self::NoRegisterBank => f.write_str("the TPM has no SHA-256 bank of registers"),
            Self::NotCounter => f.write_str(
                "the index is not a counter that its own empty authorization may read and \
                 increment, or it is an orderly one",
            ),
            Self::Host(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Failure {}

impl From<CryptoError> for Failure {
    fn from(error: CryptoError) -> Self {
        Self::Host(error)
    }
}

impl From<Failure> for io::Error {
    /// Returns the operating system's error itself for [`Failure::System`]; for any other an error
    /// with the failure inside, of a kind that fits, such as `TimedOut` or `InvalidData`.
    fn from(failure: Failure) -> Self {
        use io::ErrorKind as Kind;
        let kind = match &failure {
            Failure::System(_, error) => error.kind(),
            Failure::TimedOut(_) => Kind::TimedOut,
            Failure::OutOfStep => Kind::BrokenPipe,
            Failure::Malformed | Failure::NotAuthentic | Failure::NotSealedObject => {
                Kind::InvalidData
            }
            Failure::NotCounter => Kind::InvalidInput,
            _ => Kind::Other,
        };
        match failure {
            Failure::System(_, error) => error,
            other => Self::new(kind, other),
        }
    }
}

/// SR-2101 to SR-2106; what the host's failure is for [`Failure::Host`].
impl From<Failure> for Error {
    /// Gives the failure a code: SR-2101 for a TPM that cannot be reached, or does not answer in
    /// time; SR-2105 for an answer or a sealed object that is malformed or not authentic; SR-2103
    /// for another TPM, or no counter; SR-2106 without a register bank; by the response code for a
    /// refusal; SR-5001 or SR-9001 for [`Failure::Host`].
    fn from(failure: Failure) -> Self {
        let code: &'static Code = match failure {
            Failure::System(during, error) => {
                let detail = format!("TPM, {during}");
                return Self::caused(&code::PROVIDER_UNREACHABLE, detail, error);
            }
            Failure::Host(error) => return error.into(),
            Failure::Refused(number) => return refused(number),
            Failure::TimedOut(_) | Failure::OutOfStep => &code::PROVIDER_UNREACHABLE,
            Failure::Malformed
            | Failure::NotAuthentic
            | Failure::NotSealedObject
            | Failure::NotLoaded(_) => &code::PROVIDER_ANSWER,
            Failure::OtherTpm | Failure::NotCounter => &code::PROVIDER_NO_KEY,
            Failure::NoRegisterBank => &code::PROVIDER_STATE,
        };
        Self::new(code, failure.to_string())
    }
}

/// Whether a response code is of format one (part 2, section 6.6): such a code names a parameter,
/// handle or session of the command. The other codes are about the TPM's state at the time.
pub(crate) fn is_format_one(number: u32) -> bool {
    number & 0x80 != 0
}

/// Makes the error that a response code means: SR-2102 wrong PIN, or locked after wrong PINs;
/// SR-2106 registers or time have changed; SR-2104 owner hierarchy switched off; SR-2101 any other.
fn refused(number: u32) -> Error {
    // The number of a format-one code (part 2, section 6.6) without the parameter, handle or
    // session that it is about.
    let plain = match is_format_one(number) {
        true => number & 0xbf,
        false => number,
    };
    let (code, what): (&'static Code, &str) = match plain {
        // TPM_RC_AUTH_FAIL, TPM_RC_BAD_AUTH.
        0x8e | 0xa2 => (
            &code::PROVIDER_DENIED,
            "wrong PIN, or the owner hierarchy has an authorization",
        ),
        // TPM_RC_LOCKOUT.
        0x921 => (
            &code::PROVIDER_DENIED,
            "locked after wrong PINs; it unlocks itself after a while",
        ),
        // TPM_RC_POLICY_FAIL, TPM_RC_PCR_CHANGED.
        0x9d | 0x128 => (
            &code::PROVIDER_STATE,
            "registers are not what they were, or a PIN is wanted",
        ),
        // TPM_RC_POLICY: of a comparison that did not hold.
        0x126 => (
            &code::PROVIDER_STATE,
            "the time that it was sealed for is over",
        ),
        // TPM_RC_HIERARCHY, TPM_RC_DISABLED.
        0x85 | 0x120 => (
            &code::PROVIDER_DISABLED,
            "its owner hierarchy is switched off",
        ),
        _ => (&code::PROVIDER_UNREACHABLE, "it refuses"),
    };
    Error::new(code, format!("TPM: {what}; response code {number:#x}"))
}
