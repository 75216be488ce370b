//! The error of this crate and of the products above it: a stable code, a detail, and the system's
//! error.
//!
//! Invariant K2: `detail` names files, variables, key ids and exit codes, never key material.

use std::path::Path;
use std::{fmt, io};

use strongroom_crypto::{CertificateError, CryptoError};
use strongroom_format::code::{self, Code};

/// A failure with a stable code. Shown as `SR-2002: <what happened> (<detail>)`.
#[derive(Debug)]
pub struct Error {
    code: &'static Code,
    detail: String,
    source: Option<io::Error>,
}

impl Error {
    /// Makes an error of this code. `detail` must not hold a secret; it may be empty.
    #[must_use]
    pub fn new(code: &'static Code, detail: impl Into<String>) -> Self {
        Self {
            code,
            detail: detail.into(),
            source: None,
        }
    }

    /// Makes an error with the system's error in it. Its code is SR-5001, unless `error` was made
    /// by [`Fault::io`], which carries a code of its own. `context` says what was being done, such
    /// as `reading FILE`.
    #[must_use]
    pub fn io(context: impl Into<String>, error: io::Error) -> Self {
        let fault = error.get_ref().and_then(|inner| inner.downcast_ref());
        let code = fault.map_or(&code::IO, |fault: &Fault| fault.code);
        Self::caused(code, context, error)
    }

    /// Makes an error with the system's error on `path`: its code is SR-5001, or the one that
    /// `error` carries ([`Fault::io`]).
    #[must_use]
    pub fn on_path(path: &Path, error: io::Error) -> Self {
        Self::io(path.display().to_string(), error)
    }

    /// Makes an error with the system's error on `path`: SR-1006 when nothing is there, else
    /// SR-5001 or the code that `error` carries ([`Fault::io`]).
    #[must_use]
    pub fn opening(path: &Path, error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::new(&code::NOT_FOUND, path.display().to_string()),
            _ => Self::on_path(path, error),
        }
    }

    /// Makes an error of this code, with `context` and the system's error as its detail.
    #[must_use]
    pub fn caused(code: &'static Code, context: impl Into<String>, error: io::Error) -> Self {
        Self {
            code,
            detail: format!("{}: {error}", context.into()),
            source: Some(error),
        }
    }

    /// The stable code.
    #[must_use]
    pub fn code(&self) -> &'static Code {
        self.code
    }

    /// What the error is about, such as a file. Never a secret; may be empty.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// Returns the same failure with `prefix` directly before the detail.
    #[must_use]
    pub fn with_prefix(self, prefix: &str) -> Self {
        let detail = format!("{prefix}{}", self.detail);
        Self { detail, ..self }
    }

    /// Makes the error SR-2005: this part of a keyring's file is damaged.
    pub(crate) fn damaged_keyring(part: &str) -> Self {
        Self::new(&code::KEYRING_DAMAGED, part)
    }

    /// Returns the same failure under another code. The text of the first one, with its code,
    /// becomes the detail.
    pub(crate) fn recoded(self, code: &'static Code) -> Self {
        let detail = format!("{self}");
        Self {
            code,
            detail,
            source: self.source,
        }
    }

    /// Returns the same failure with `subject` in front of the detail, and a colon between.
    pub(crate) fn about(self, subject: impl fmt::Display) -> Self {
        let detail = match self.detail.as_str() {
            "" => subject.to_string(),
            detail => format!("{subject}: {detail}"),
        };
        Self {
            code: self.code,
            detail,
            source: self.source,
        }
    }
}

/// A failure with a code of its own inside an `io::Error`, for storage that is reached like a file
/// and is not one. [`Error::io`] takes the code out again.
#[derive(Debug)]
pub struct Fault {
    code: &'static Code,
    text: String,
}

impl Fault {
    /// Makes an `io::Error` of this kind that carries `code` through functions that return system
    /// errors; [`Error::io`] takes it out again. `text` must not hold a secret.
    #[must_use]
    pub fn io(kind: io::ErrorKind, code: &'static Code, text: impl Into<String>) -> io::Error {
        let text = text.into();
        io::Error::new(kind, Self { code, text })
    }
}

impl fmt::Display for Fault {
    /// Writes the text that was given, without the code.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Fault {}

impl fmt::Display for Error {
    /// As `SR-2002: <what happened> (<detail>)`; without the brackets if there is no detail.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SR-{:04}: {}", self.code.number, self.code.what)?;
        if self.detail.is_empty() {
            return Ok(());
        }
        write!(f, " ({})", self.detail)
    }
}

impl std::error::Error for Error {
    /// The error that caused this one, such as the system's. `None` if there is none.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|error| {
            let error: &(dyn std::error::Error + 'static) = error;
            error
        })
    }
}

impl From<CryptoError> for Error {
    /// Gives SR-5001 to what the operating system refused (randomness, memory); SR-9001 to what
    /// this crate should have checked before.
    fn from(error: CryptoError) -> Self {
        let code = match error {
            CryptoError::Random | CryptoError::OutOfLockedMemory | CryptoError::OutOfMemory => {
                &code::IO
            }
            _ => &code::BUG,
        };
        Self::new(code, error.to_string())
    }
}

impl From<CertificateError> for Error {
    /// Gives each error a code: SR-2029 for a file that cannot be read, SR-2027 weak, SR-2028
    /// mismatch, SR-2030 passphrase, SR-2037 subject; as [`CryptoError`] for one inside; SR-9001
    /// for any other.
    fn from(error: CertificateError) -> Self {
        let code = match error {
            CertificateError::Malformed => &code::CERT_FILE,
            CertificateError::Weak => &code::CERT_WEAK,
            CertificateError::Mismatch => &code::CERT_MISMATCH,
            CertificateError::Passphrase => &code::CERT_PASSPHRASE,
            CertificateError::Subject => &code::CERT_SUBJECT,
            CertificateError::Crypto(error) => return Self::from(error),
            _ => &code::BUG,
        };
        Self::new(code, "")
    }
}
