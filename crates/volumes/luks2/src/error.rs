//! What can be wrong with a volume, each with its stable code.
//!
//! Must not: carry a secret, or text from a header with control characters.

use std::fmt;
use std::io;

use strongroom_crypto::CryptoError;
use strongroom_format::code::{self, Code};

/// Why a volume was not read or not opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum LuksError {
    /// There is no LUKS header.
    NotLuks,
    /// A header of version 1.
    Luks1,
    /// A header that breaks a rule; its field.
    Damaged(String),
    /// A feature that this crate does not have; which one.
    Unsupported(String),
    /// A re-encryption is under way; whether its metadata was verified.
    Reencrypting(&'static str),
    /// Re-encryption metadata that no holder of the volume keys made; what is wrong.
    Forged(String),
    /// No key slot opened; which were not tried, and why.
    WrongKey(String),
    /// The cost of a key slot is out of bounds.
    Cost(String),
    /// The volume is in use; by what.
    InUse(String),
    /// A directory where nothing can be mounted, or no volume is attached.
    Mountpoint(String),
    /// FUSE failed; the context and the system's error.
    Fuse(String, io::Error),
    /// The context and the operating system's error.
    Io(String, io::Error),
    /// A failure of the host, or a defect of this program.
    Crypto(CryptoError),
}

impl LuksError {
    /// Returns the stable code of the error.
    #[must_use]
    pub fn code(&self) -> &'static Code {
        match self {
            Self::NotLuks => &code::LUKS_NOT,
            Self::Luks1 => &code::LUKS_1,
            Self::Damaged(_) => &code::LUKS_DAMAGED,
            Self::Unsupported(_) => &code::LUKS_UNSUPPORTED,
            Self::Reencrypting(_) => &code::LUKS_REENCRYPTING,
            Self::Forged(_) => &code::LUKS_FORGED,
            Self::WrongKey(_) => &code::LUKS_KEY,
            Self::Cost(_) => &code::LUKS_COST,
            Self::InUse(_) => &code::LUKS_IN_USE,
            Self::Mountpoint(_) => &code::MOUNTPOINT,
            Self::Fuse(..) => &code::FUSE,
            Self::Io(..) | Self::Crypto(_) => &code::IO,
        }
    }

    /// Returns the detail for messages, without the text of the code; may be empty.
    #[must_use]
    pub fn detail(&self) -> String {
        match self {
            Self::NotLuks | Self::Luks1 => String::new(),
            Self::Damaged(field) => format!("field {field}"),
            Self::Reencrypting(text) => (*text).to_owned(),
            Self::Unsupported(text)
            | Self::Forged(text)
            | Self::WrongKey(text)
            | Self::Cost(text)
            | Self::InUse(text)
            | Self::Mountpoint(text) => text.clone(),
            Self::Fuse(context, error) | Self::Io(context, error) => format!("{context}: {error}"),
            Self::Crypto(error) => error.to_string(),
        }
    }

    /// Returns [`LuksError::Damaged`] for this field.
    pub(crate) fn damaged(field: impl Into<String>) -> Self {
        Self::Damaged(field.into())
    }
}

impl fmt::Display for LuksError {
    /// Writes the stable code, its text and, in brackets, the detail if there is one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code = self.code();
        write!(f, "SR-{:04}: {}", code.number, code.what)?;
        let detail = self.detail();
        if detail.is_empty() {
            return Ok(());
        }
        write!(f, " ({detail})")
    }
}

impl std::error::Error for LuksError {}

impl From<CryptoError> for LuksError {
    fn from(error: CryptoError) -> Self {
        Self::Crypto(error)
    }
}
