//! Seals and opens the units and the canary of one database under one key.
//!
//! Invariants: D1, every unit is sealed under a nonce of its own, from the system's generator. D2,
//! unused bytes of a unit are written as zero.
//!
//! Must not: distinguish a wrong key from damage; the canary does that.

use strongroom_crypto::{CtrKey, GcmIv16Key, GcmKey, SecretKey, nonce12, random16};
use strongroom_format::code;
use strongroom_format::duckdb::{
    Cipher, DUCKDB_CANARY, DUCKDB_UNIT_CLEAR, DUCKDB_UNIT_OVERHEAD, EncryptionVersion, Format,
    MainHeader, duckdb_checksum,
};
use strongroom_keyring::Error;

use crate::key::KeyText;
use crate::units::UnitFault;

/// The key of one database, expanded for all its uses.
pub(crate) struct Sealer {
    format: Format,
    derived: SecretKey,
    mode: Mode,
    /// The canary of version 1 is sealed with GCM, whatever the cipher is.
    canary: GcmKey,
}

enum Mode {
    Gcm(GcmKey),
    GcmIv16(GcmIv16Key),
    Ctr(CtrKey),
}

impl Sealer {
    /// Derives the database's key from the text and the identifier in the header, and expands it.
    /// Does not check that it is the database's key. SR-5001 when there is no memory for keys.
    pub(crate) fn new(key: &KeyText, format: Format) -> Result<Self, Error> {
        let derived = key.derive(&format.identifier)?;
        let mode = match (format.cipher, format.version) {
            (Cipher::Ctr, _) => Mode::Ctr(CtrKey::new(&derived)?),
            (Cipher::Gcm, EncryptionVersion::V0) => Mode::GcmIv16(GcmIv16Key::new(&derived)?),
            (Cipher::Gcm, EncryptionVersion::V1) => Mode::Gcm(GcmKey::new(&derived)?),
        };
        Ok(Self {
            format,
            canary: GcmKey::new(&derived)?,
            mode,
            derived,
        })
    }

    /// Returns whether both have the same key.
    pub(crate) fn is_same_key(&self, other: &Self) -> bool {
        self.derived.ct_eq(&other.derived)
    }

    /// Whether the header's canary, its known value, opens under this key; false for another key
    /// and for a damaged canary. An error (SR-9001) only when the cryptographic library fails.
    pub(crate) fn opens_canary(&self, header: &MainHeader) -> Result<bool, Error> {
        let mut canary = header.canary();
        match self.format.version {
            EncryptionVersion::V0 => Ok(self.zero_nonce(&DUCKDB_CANARY)? == canary),
            EncryptionVersion::V1 => {
                let (iv, tag) = (header.canary_iv(), header.canary_tag());
                let opened = self.canary.open(&iv, &[], &mut canary, &tag);
                Ok(opened.is_ok() && canary == DUCKDB_CANARY)
            }
        }
    }

    /// Returns a copy of the header with a canary, the known value, sealed under this key. Writes
    /// nothing. SR-5001 when there are no random bytes.
    pub(crate) fn with_canary(&self, header: &MainHeader) -> Result<MainHeader, Error> {
        let mut canary = DUCKDB_CANARY;
        match self.format.version {
            EncryptionVersion::V0 => {
                let canary = self.zero_nonce(&canary)?;
                Ok(header.with_canary(&canary, &[0; 12], &[0; 16]))
            }
            EncryptionVersion::V1 => {
                let iv = nonce12()?;
                let tag = self.canary.seal(&iv, &[], &mut canary)?;
                Ok(header.with_canary(&canary, &iv, &tag))
            }
        }
    }

    /// Seals a canary as version 0 does: under a nonce of zeros, without a tag. Nothing else is
    /// sealed under that nonce.
    fn zero_nonce(&self, canary: &[u8; 8]) -> Result<[u8; 8], Error> {
        let mut canary = *canary;
        match &self.mode {
            Mode::GcmIv16(key) => {
                key.seal(&[0; 16], &mut canary)?;
            }
            Mode::Ctr(key) => key.apply(&[0; 16], &mut canary),
            Mode::Gcm(_) => return Err(bug("a key of version 1")),
        }
        Ok(canary)
    }

    /// Decrypts the inner checksum and the data of a unit in place; the bytes before them stay. An
    /// error when the tag or the inner checksum does not match; after a failure of the tag, the
    /// decrypted part is zero.
    pub(crate) fn open(&self, unit: &mut [u8]) -> Result<(), UnitFault> {
        let (clear, sealed) = split(unit).ok_or(UnitFault::Tag)?;
        let nonce16 = first(clear).ok_or(UnitFault::Tag)?;
        match &self.mode {
            Mode::Gcm(key) => {
                let nonce = first(clear).ok_or(UnitFault::Tag)?;
                let tag = clear.get(12..).and_then(first).ok_or(UnitFault::Tag)?;
                key.open(&nonce, &[], sealed, &tag)
                    .map_err(|_| UnitFault::Tag)?;
            }
            Mode::GcmIv16(key) => {
                let tag = clear.get(16..).and_then(first).ok_or(UnitFault::Tag)?;
                key.open(&nonce16, sealed, &tag)
                    .map_err(|_| UnitFault::Tag)?;
            }
            Mode::Ctr(key) => key.apply(&self.counter(&nonce16), sealed),
        }
        let (inner, data) = sealed.split_first_chunk().ok_or(UnitFault::Checksum)?;
        if u64::from_le_bytes(*inner) == duckdb_checksum(data) {
            return Ok(());
        }
        Err(UnitFault::Checksum)
    }

    /// Encrypts a unit (a block or header) that [`Sealer::open`] decrypted, in place, under a new
    /// random nonce. SR-5001 when there are no random bytes; SR-9001 for a unit that is too short.
    pub(crate) fn seal(&self, unit: &mut [u8]) -> Result<(), Error> {
        let (clear, sealed) = split(unit).ok_or_else(|| bug("a unit shorter than its header"))?;
        clear.fill(0);
        match &self.mode {
            Mode::Gcm(key) => {
                let nonce = nonce12()?;
                let tag = key.seal(&nonce, &[], sealed)?;
                put(clear, &nonce, &tag);
            }
            Mode::GcmIv16(key) => {
                let nonce = random16()?;
                let tag = key.seal(&nonce, sealed)?;
                put(clear, &nonce, &tag);
            }
            Mode::Ctr(key) => {
                let mut nonce = [0; 16];
                match self.format.version {
                    EncryptionVersion::V0 => nonce = random16()?,
                    EncryptionVersion::V1 => put(&mut nonce, &nonce12()?, &[]),
                }
                key.apply(&nonce, sealed);
                put(clear, &nonce, &[]);
            }
        }
        Ok(())
    }

    /// Returns the first counter block: in version 1 the last 4 bytes are zero, whatever the unit
    /// has there.
    fn counter(&self, nonce: &[u8; 16]) -> [u8; 16] {
        let mut counter = *nonce;
        if self.format.version == EncryptionVersion::V1 {
            counter[12..].fill(0);
        }
        counter
    }
}

/// Returns the range of unused bytes, counted from the beginning of a unit; it may be empty.
///
/// No tag covers them, or they are in the place of a tag that does not exist.
pub(crate) fn unused(format: Format) -> std::ops::Range<usize> {
    match (format.version, format.cipher) {
        (EncryptionVersion::V0, Cipher::Gcm) => 32..32,
        (EncryptionVersion::V0, Cipher::Ctr) => 16..32,
        (EncryptionVersion::V1, Cipher::Gcm) => 28..32,
        (EncryptionVersion::V1, Cipher::Ctr) => 12..32,
    }
}

/// Divides a unit into its clear header, and its sealed rest. `None` when it is too short.
fn split(unit: &mut [u8]) -> Option<(&mut [u8], &mut [u8])> {
    (unit.len() >= DUCKDB_UNIT_OVERHEAD).then(|| unit.split_at_mut(DUCKDB_UNIT_CLEAR))
}

/// Returns a copy of the first `N` bytes. `None` when there are fewer.
fn first<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
    bytes.first_chunk().copied()
}

/// Writes the nonce and then the tag to the beginning of `clear`.
fn put(clear: &mut [u8], nonce: &[u8], tag: &[u8]) {
    for (place, byte) in clear.iter_mut().zip(nonce.iter().chain(tag)) {
        *place = *byte;
    }
}

/// Returns the error SR-9001 for a state that only a defect of Strongroom can cause.
fn bug(what: &str) -> Error {
    Error::new(&code::BUG, what)
}
