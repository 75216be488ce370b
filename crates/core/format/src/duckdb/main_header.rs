//! The main header: the first 4096 bytes of a DuckDB database, in clear.
//!
//! Must not: trust it. Its checksum has no key, so that anybody who can write to the file can
//! change any field.

use alloc::string::String;
use alloc::vec::Vec;

use super::{DUCKDB_HEADER_LEN, duckdb_checksum, is_duckdb};
use crate::layout::{Field, array, bytes, is_zero, layout, put, u32_at, u64_at};

layout! {
    /// Layout of the main header.
    duckdb_main_layout, 4096, {
        CHECKSUM @ 0, 8;
        MAGIC @ 8, 4;
        STORAGE_VERSION @ 12, 8;
        FLAGS @ 20, 32;
        LIBRARY @ 52, 32;
        SOURCE_ID @ 84, 32;
        KDF @ 116, 1;
        AAD @ 117, 1;
        CIPHER @ 118, 1;
        ENCRYPTION_VERSION @ 119, 1;
        KEY_LENGTH @ 120, 4;
        IDENTIFIER @ 124, 16;
        CANARY @ 140, 8;
        CANARY_IV @ 148, 12;
        CANARY_TAG @ 160, 16;
        REST @ 176, 3920;
    }
}

use duckdb_main_layout as at;

/// The cipher that a header names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cipher {
    /// AES-256-GCM.
    Gcm,
    /// AES-256-CTR: only the inner checksum tells of damage.
    Ctr,
}

impl Cipher {
    /// Its name, as in this product's other reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gcm => "aes-256-gcm",
            Self::Ctr => "aes-256-ctr",
        }
    }
}

/// How units and the canary are sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncryptionVersion {
    /// DuckDB 1.4: nonces of 16 bytes, a canary without a tag.
    V0,
    /// DuckDB 1.5 and later: nonces of 12 bytes, a canary with a tag.
    V1,
}

impl EncryptionVersion {
    /// The number in the header.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::V0 => 0,
            Self::V1 => 1,
        }
    }
}

/// What has to be known to read an encrypted database, besides the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// The cipher of the units.
    pub cipher: Cipher,
    /// How they are sealed.
    pub version: EncryptionVersion,
    /// The database's identifier, which is also the salt of its key.
    pub identifier: [u8; 16],
}

/// Why a database is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is not encrypted.
    Plain,
    /// A field has a value that is not known.
    Unknown(&'static str, u64),
}

/// Whether the checksum is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderState {
    /// It is right.
    Whole,
    /// Every bit of it is inverted: Strongroom is changing the key, and DuckDB is not to open the
    /// file.
    Rekeying,
    /// Anything else.
    Damaged,
}

/// A main header, kept byte for byte.
#[derive(Clone, PartialEq, Eq)]
pub struct MainHeader(Vec<u8>);

impl MainHeader {
    /// The first 4096 bytes of `head`; `None` when there are fewer, or they are not those of a
    /// DuckDB database.
    #[must_use]
    pub fn parse(head: &[u8]) -> Option<Self> {
        let whole = head.get(..DUCKDB_HEADER_LEN)?;
        is_duckdb(whole).then(|| Self(whole.into()))
    }

    /// A copy of the header's 4096 bytes, as they are in the file.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.clone()
    }

    /// The header's 4096 bytes, as they are in the file.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the cipher, encryption version and identifier of the database, if this code can read
    /// it. The checksum is not verified.
    ///
    /// # Errors
    /// [`Refusal::Plain`] when the database is not encrypted; [`Refusal::Unknown`], with the
    /// field's name and value, when a field has a value that is not known.
    pub fn supported_format(&self) -> Result<Format, Refusal> {
        let flags = self.byte_field(at::FLAGS);
        if flags.first().is_none_or(|first| first & 1 == 0) {
            return Err(Refusal::Plain);
        }
        let others = flags.split_first().is_some_and(|(_, rest)| !is_zero(rest));
        if others || flags.first() != Some(&1) {
            let number = self.u64_field(at::FLAGS);
            return Err(Refusal::Unknown("flags", number));
        }
        let storage = self.storage_version();
        if !matches!(storage, 67 | 68 | 999) {
            return Err(Refusal::Unknown("storage version", storage));
        }
        let version = match self.encryption_version() {
            0 => EncryptionVersion::V0,
            1 => EncryptionVersion::V1,
            other => return Err(Refusal::Unknown("encryption version", other.into())),
        };
        match self.byte(at::KDF) {
            1 => {}
            other => return Err(Refusal::Unknown("key derivation", other.into())),
        }
        match self.byte(at::AAD) {
            0 => {}
            other => return Err(Refusal::Unknown("associated data", other.into())),
        }
        let cipher = match self.byte(at::CIPHER) {
            1 => Cipher::Gcm,
            2 => Cipher::Ctr,
            other => return Err(Refusal::Unknown("cipher", other.into())),
        };
        match self.key_length() {
            32 => {}
            other => return Err(Refusal::Unknown("key length", other.into())),
        }
        Ok(Format {
            cipher,
            version,
            identifier: self.identifier(),
        })
    }

    /// Says whether the stored checksum is right (`Whole`), has every bit of the right one inverted
    /// (`Rekeying`: a rekey is not finished), or is neither (`Damaged`).
    #[must_use]
    pub fn state(&self) -> HeaderState {
        let stored = self.u64_field(at::CHECKSUM);
        let right = self.right_checksum();
        if stored == right {
            HeaderState::Whole
        } else if stored == !right {
            HeaderState::Rekeying
        } else {
            HeaderState::Damaged
        }
    }

    /// Returns the same header with a right checksum, or, with `rekeying`, with every bit of the
    /// right one inverted, which marks a rekey that is not finished.
    #[must_use]
    pub fn in_state(&self, rekeying: bool) -> Self {
        let right = self.right_checksum();
        let stored = if rekeying { !right } else { right };
        self.with(at::CHECKSUM, &stored.to_le_bytes())
    }

    /// The same header with another canary, and the checksum that belongs to it.
    #[must_use]
    pub fn with_canary(&self, canary: &[u8; 8], iv: &[u8; 12], tag: &[u8; 16]) -> Self {
        self.with(at::CANARY, canary)
            .with(at::CANARY_IV, iv)
            .with(at::CANARY_TAG, tag)
            .in_state(false)
    }

    /// Whether `other` differs from this one in nothing but checksum and canary.
    #[must_use]
    pub fn is_same_database(&self, other: &Self) -> bool {
        let kept = |header: &Self| header.with_canary(&[0; 8], &[0; 12], &[0; 16]);
        kept(self) == kept(other)
    }

    /// DuckDB's number of the storage version: 67 for 1.4, 68 for 1.5, 999 where the database
    /// header says it.
    #[must_use]
    pub fn storage_version(&self) -> u64 {
        self.u64_field(at::STORAGE_VERSION)
    }

    /// Number of the encryption version.
    #[must_use]
    pub fn encryption_version(&self) -> u8 {
        self.byte(at::ENCRYPTION_VERSION)
    }

    /// Number of the cipher.
    #[must_use]
    pub fn cipher_number(&self) -> u8 {
        self.byte(at::CIPHER)
    }

    /// Whether the flag of an encrypted database is set.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.byte_field(at::FLAGS)
            .first()
            .is_some_and(|first| first & 1 == 1)
    }

    /// Length of the key, in bytes.
    #[must_use]
    pub fn key_length(&self) -> u32 {
        u32_at(&self.0, at::KEY_LENGTH).unwrap_or_default()
    }

    /// The version of DuckDB that wrote the header: its characters up to the first blank or other
    /// byte that is not printable ASCII.
    #[must_use]
    pub fn library(&self) -> String {
        text(self.byte_field(at::LIBRARY))
    }

    /// The commit of DuckDB that wrote the header: its characters up to the first blank or other
    /// byte that is not printable ASCII.
    #[must_use]
    pub fn source_id(&self) -> String {
        text(self.byte_field(at::SOURCE_ID))
    }

    /// The database's identifier, which is also the salt of its key.
    #[must_use]
    pub fn identifier(&self) -> [u8; 16] {
        array(&self.0, at::IDENTIFIER).unwrap_or_default()
    }

    /// The canary, encrypted.
    #[must_use]
    pub fn canary(&self) -> [u8; 8] {
        array(&self.0, at::CANARY).unwrap_or_default()
    }

    /// Returns the canary's nonce; zeros in encryption version 0, which has none.
    #[must_use]
    pub fn canary_iv(&self) -> [u8; 12] {
        array(&self.0, at::CANARY_IV).unwrap_or_default()
    }

    /// Returns the canary's tag; zeros in encryption version 0, which has none.
    #[must_use]
    pub fn canary_tag(&self) -> [u8; 16] {
        array(&self.0, at::CANARY_TAG).unwrap_or_default()
    }

    /// Computes the checksum that the header should have.
    fn right_checksum(&self) -> u64 {
        duckdb_checksum(self.0.get(at::MAGIC.offset..).unwrap_or_default())
    }

    /// The bytes of a field of the header.
    fn byte_field(&self, field: Field) -> &[u8] {
        bytes(&self.0, field).unwrap_or_default()
    }

    /// The first byte of a field of the header.
    fn byte(&self, field: Field) -> u8 {
        self.byte_field(field).first().copied().unwrap_or_default()
    }

    /// Reads 8 bytes from where the field begins, as a little-endian number, whatever the field's
    /// length.
    fn u64_field(&self, field: Field) -> u64 {
        u64_at(&self.0, Field { len: 8, ..field }).unwrap_or_default()
    }

    /// A copy of the header with another value in this field.
    fn with(&self, field: Field, value: &[u8]) -> Self {
        let mut header = self.clone();
        // The lengths are those of the layout; `put` does nothing otherwise.
        let _ = put(&mut header.0, field, value);
        header
    }
}

/// The printable ASCII characters at the beginning, without blanks, for messages.
fn text(bytes: &[u8]) -> String {
    let printable = bytes.iter().take_while(|byte| byte.is_ascii_graphic());
    printable.map(|&byte| char::from(byte)).collect()
}
