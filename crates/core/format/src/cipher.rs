//! The cipher suites, by the numbers and names that headers, associated data and users have for
//! them.
//!
//! Must not: encrypt anything.

use crate::header::ObjectKind;

/// The cipher suite of an object's pages or chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cipher {
    /// AES-256-GCM, random 96-bit nonces (NIST SP 800-38D).
    Aes256Gcm,
    /// AES-256-CTR (NIST SP 800-38A). Does not authenticate.
    Aes256Ctr,
    /// AES-128-XTS (IEEE 1619, NIST SP 800-38E). Does not authenticate. PostgreSQL instances only.
    Aes128Xts,
    /// AES-256-XTS, likewise.
    Aes256Xts,
    /// AES-192-GCM. Families of backup sets only.
    Aes192Gcm,
    /// AES-128-GCM. Families of backup sets only.
    Aes128Gcm,
    /// Three-key Triple DES in CBC mode with HMAC-SHA256 (NIST SP 800-67 Rev. 2). Families of
    /// backup sets only, and only where the user has allowed legacy ciphers.
    TripleDesCbc,
}

impl Cipher {
    /// The number that stands for the cipher in the header and in associated data.
    #[must_use]
    pub const fn number(self) -> u16 {
        match self {
            Self::Aes256Gcm => 1,
            Self::Aes256Ctr => 2,
            Self::Aes128Xts => 3,
            Self::Aes256Xts => 4,
            Self::Aes192Gcm => 5,
            Self::Aes128Gcm => 6,
            Self::TripleDesCbc => 7,
        }
    }

    /// The cipher of this number. `None` for a number that no cipher has.
    #[must_use]
    pub fn from_number(number: u16) -> Option<Self> {
        [
            Self::Aes256Gcm,
            Self::Aes256Ctr,
            Self::Aes128Xts,
            Self::Aes256Xts,
            Self::Aes192Gcm,
            Self::Aes128Gcm,
            Self::TripleDesCbc,
        ]
        .into_iter()
        .find(|cipher| cipher.number() == number)
    }

    /// Whether a header of this kind may name this cipher: XTS is for the blocks of an instance
    /// alone, for example.
    #[must_use]
    pub const fn is_allowed_in(self, kind: ObjectKind) -> bool {
        match self {
            Self::Aes256Gcm => !matches!(kind, ObjectKind::Postgres),
            Self::Aes256Ctr => matches!(kind, ObjectKind::Sqlite | ObjectKind::Keyring),
            Self::Aes128Xts | Self::Aes256Xts => matches!(kind, ObjectKind::Postgres),
            Self::Aes192Gcm | Self::Aes128Gcm | Self::TripleDesCbc => {
                matches!(kind, ObjectKind::Backup)
            }
        }
    }

    /// Length of an XTS key, both halves together, in bytes; `None` for the other ciphers.
    #[must_use]
    pub const fn xts_key_len(self) -> Option<usize> {
        match self {
            Self::Aes256Gcm
            | Self::Aes256Ctr
            | Self::Aes192Gcm
            | Self::Aes128Gcm
            | Self::TripleDesCbc => None,
            Self::Aes128Xts => Some(32),
            Self::Aes256Xts => Some(64),
        }
    }

    /// The word used on the command line and in output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Aes256Gcm => "aes-256-gcm",
            Self::Aes256Ctr => "aes-256-ctr",
            Self::Aes128Xts => "aes-128-xts",
            Self::Aes256Xts => "aes-256-xts",
            Self::Aes192Gcm => "aes-192-gcm",
            Self::Aes128Gcm => "aes-128-gcm",
            Self::TripleDesCbc => "triple-des-3key",
        }
    }

    /// The cipher of a database's pages that a user names `gcm` or `ctr`, or by its full name.
    /// `None` for any other name.
    #[must_use]
    pub fn for_database(name: &str) -> Option<Self> {
        match name {
            "gcm" | "aes-256-gcm" => Some(Self::Aes256Gcm),
            "ctr" | "aes-256-ctr" => Some(Self::Aes256Ctr),
            _ => None,
        }
    }

    /// The cipher of an instance's blocks that a user names by its full name. `None` for any other
    /// name.
    #[must_use]
    pub fn for_instance(name: &str) -> Option<Self> {
        [Self::Aes128Xts, Self::Aes256Xts]
            .into_iter()
            .find(|cipher| cipher.name() == name)
    }
}
