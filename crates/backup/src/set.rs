//! The protection of one set: the keys of its families and the seal of its head, or digests where nothing is sealed.
//!
//! Invariants: B3, a family's key is drawn for one writing of one family; B4, the description is not acted upon before
//! its seal has been verified, when there is a key.
//!
//! Must not: do I/O.

use strongroom_crypto::{AesLength, AnyGcmKey, MacKey, fill_random, random16, random32, sha256};
use strongroom_format::backup::{FamilyHeader, RecordError, SegmentHead, SetRecord};
use strongroom_format::code;
use strongroom_format::header;
use strongroom_format::slot::SlotKind;
use strongroom_keyring::{NewObject, Object, Opener, Purpose};

use crate::{Error, Result};

/// The epoch of a set's only data key.
const EPOCH: u32 = 1;
/// Bytes of the trailer of a segment at most: a SHA-256.
pub(crate) const TRAILER_MAX: usize = 32;

/// What the families of a sealed set are sealed with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cipher {
    /// AES-256-GCM.
    #[default]
    Aes256,
    /// AES-192-GCM.
    Aes192,
    /// AES-128-GCM.
    Aes128,
}

impl Cipher {
    /// The word on the command line and in descriptions.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Aes256 => "aes-256",
            Self::Aes192 => "aes-192",
            Self::Aes128 => "aes-128",
        }
    }

    const fn in_header(self) -> header::Cipher {
        match self {
            Self::Aes256 => header::Cipher::Aes256Gcm,
            Self::Aes192 => header::Cipher::Aes192Gcm,
            Self::Aes128 => header::Cipher::Aes128Gcm,
        }
    }

    const fn length(self) -> AesLength {
        match self {
            Self::Aes256 => AesLength::Aes256,
            Self::Aes192 => AesLength::Aes192,
            Self::Aes128 => AesLength::Aes128,
        }
    }
}

/// The cipher that a header names.
pub(crate) fn cipher_of(found: header::Cipher) -> Result<Cipher> {
    [Cipher::Aes256, Cipher::Aes192, Cipher::Aes128]
        .into_iter()
        .find(|cipher| cipher.in_header() == found)
        .ok_or_else(|| Error::new(&code::HEADER_DAMAGED, "cipher"))
}

/// What guards one set.
pub(crate) enum Guard {
    Sealed { object: Box<Object>, cipher: Cipher },
    Plain { set_id: [u8; 16] },
}

impl Guard {
    /// A new sealed set that each of `openers` can open.
    pub(crate) fn sealed(cipher: Cipher, openers: &[&Opener]) -> Result<Self> {
        let Some((first, more)) = openers.split_first() else {
            return Err(Error::new(&code::NO_KEY, "a sealed set needs a key"));
        };
        let mut object = Object::create(&NewObject::backup(cipher.in_header()), first)?;
        if !more.is_empty() {
            object = object.rewrapped(openers)?;
        }
        let object = Box::new(object);
        Ok(Self::Sealed { object, cipher })
    }

    /// A new set that is not sealed.
    pub(crate) fn plain() -> Result<Self> {
        let set_id = random16()?;
        Ok(Self::Plain { set_id })
    }

    /// What that it opened says nothing about.
    pub(crate) fn not_proved(&self) -> Option<&'static str> {
        match self {
            Self::Plain { .. } => {
                Some("whether someone has changed the set on purpose: it is not sealed")
            }
            Self::Sealed { object, .. } => match object.opened_by() {
                SlotKind::Certificate { .. } => Some(
                    "who made the set: anyone who has the public certificate can make one that opens with its private key",
                ),
                _ => None,
            },
        }
    }

    pub(crate) fn set_id(&self) -> [u8; 16] {
        match self {
            Self::Sealed { object, .. } => object.object_id(),
            Self::Plain { set_id } => *set_id,
        }
    }

    /// The number in records and family headers.
    pub(crate) fn number(&self) -> u16 {
        match self {
            Self::Sealed { cipher, .. } => cipher.in_header().number(),
            Self::Plain { .. } => 0,
        }
    }

    pub(crate) fn algorithm(&self) -> &'static str {
        match self {
            Self::Sealed { cipher, .. } => cipher.name(),
            Self::Plain { .. } => "none",
        }
    }

    /// The seal over the first part of a record and the description.
    pub(crate) fn seal(&self, covered: &[u8], description: &[u8]) -> Result<[u8; 32]> {
        match self {
            Self::Sealed { object, .. } => {
                let key = MacKey::new(&object.subkey(EPOCH, Purpose::BackupSet)?)?;
                Ok(key.mac(&[covered, description]))
            }
            Self::Plain { .. } => Ok(sha256(&[covered, description])),
        }
    }

    /// Whether the seal of a record holds.
    pub(crate) fn seal_holds(&self, record: &SetRecord, description: &[u8]) -> Result<bool> {
        let bytes = record.to_bytes();
        let covered = SetRecord::covered(&bytes);
        match self {
            Self::Sealed { object, .. } => {
                let key = MacKey::new(&object.subkey(EPOCH, Purpose::BackupSet)?)?;
                Ok(key.verify(&[covered, description], &record.seal))
            }
            Self::Plain { .. } => Ok(sha256(&[covered, description]) == record.seal),
        }
    }

    /// A key for one new family. Salt and prefix are drawn here, so each call gives another key (B3).
    pub(crate) fn new_family(&self, family: u16, families: u16) -> Result<FamilyKey> {
        let mut header = FamilyHeader {
            cipher: self.number(),
            family,
            families,
            set_id: self.set_id(),
            salt: [0; 32],
            prefix: [0; 7],
        };
        if matches!(self, Self::Sealed { .. }) {
            header.salt = random32()?;
            fill_random(&mut header.prefix)?;
        }
        self.family_key(header)
    }

    /// The key of a family that was read: structure, then whether it is the one that is expected.
    pub(crate) fn family(&self, bytes: &[u8], family: u16, families: u16) -> Result<FamilyKey> {
        let bad = |why: &str| Error::new(&code::SEGMENT, format!("family {family}: {why}"));
        let header = FamilyHeader::parse(bytes).map_err(|error| match error {
            RecordError::Newer(version) => Error::new(
                &code::NEWER_FORMAT,
                format!("family {family}: format version {version}"),
            ),
            _ => bad("its header"),
        })?;
        if header.set_id != self.set_id() || header.cipher != self.number() {
            return Err(bad("of another set"));
        }
        if (header.family, header.families) != (family, families) {
            return Err(bad("another one is in its place"));
        }
        self.family_key(header)
    }

    fn family_key(&self, header: FamilyHeader) -> Result<FamilyKey> {
        let bytes = header.to_bytes();
        let key = match self {
            Self::Sealed { object, cipher } => {
                let key = object.derive(EPOCH, Purpose::BackupFamily, &header.salt, &bytes)?;
                Some(AnyGcmKey::new(cipher.length(), &key)?)
            }
            Self::Plain { .. } => None,
        };
        Ok(FamilyKey { header, bytes, key })
    }
}

/// Seals or opens the segments of one family. Shared by threads.
pub(crate) struct FamilyKey {
    header: FamilyHeader,
    bytes: [u8; 80],
    key: Option<AnyGcmKey>,
}

/// What stands behind a segment's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trailer {
    bytes: [u8; TRAILER_MAX],
    length: usize,
}

impl Trailer {
    pub(crate) fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    /// A trailer as it was read. Longer than any: cut.
    pub(crate) fn from_slice(found: &[u8]) -> Self {
        let mut bytes = [0; TRAILER_MAX];
        let length = found.len().min(TRAILER_MAX);
        for (to, from) in bytes.iter_mut().zip(found) {
            *to = *from;
        }
        Self { bytes, length }
    }
}

impl FamilyKey {
    /// The family header's bytes.
    pub(crate) fn header_bytes(&self) -> &[u8; 80] {
        &self.bytes
    }

    pub(crate) fn family(&self) -> u16 {
        self.header.family
    }

    /// Bytes of every trailer.
    pub(crate) fn trailer_length(&self) -> usize {
        if self.key.is_some() { 16 } else { TRAILER_MAX }
    }

    /// Seals `data` in place as segment `number`. **The caller's duty**: a number is used once in a family, the last
    /// one with `head.last` and no other.
    pub(crate) fn seal(&self, number: u32, head: SegmentHead, data: &mut [u8]) -> Result<Trailer> {
        let head_bytes = head.to_bytes();
        let Some(key) = &self.key else {
            return Ok(self.digest(number, &head_bytes, data));
        };
        let tag = key.seal(&self.nonce(number, head.last), &head_bytes, data)?;
        Ok(Trailer::from_slice(&tag))
    }

    /// Opens `data` in place. False when anything is not as it was sealed; the data is then of no use.
    pub(crate) fn open(
        &self,
        number: u32,
        head: SegmentHead,
        data: &mut [u8],
        trailer: &Trailer,
    ) -> bool {
        let head_bytes = head.to_bytes();
        let Some(key) = &self.key else {
            return self.digest(number, &head_bytes, data) == *trailer;
        };
        let Ok(tag) = <&[u8; 16]>::try_from(trailer.as_slice()) else {
            return false;
        };
        key.open(&self.nonce(number, head.last), &head_bytes, data, tag)
            .is_ok()
    }

    fn digest(&self, number: u32, head: &[u8], data: &[u8]) -> Trailer {
        Trailer::from_slice(&sha256(&[&self.bytes, &ordered(number), head, data]))
    }

    fn nonce(&self, number: u32, last: bool) -> [u8; 12] {
        let mut nonce = [0; 12];
        let parts = [&self.header.prefix[..], &ordered(number), &[u8::from(last)]];
        for (to, from) in nonce.iter_mut().zip(parts.concat()) {
            *to = from;
        }
        nonce
    }
}

/// A segment's number in a nonce.
#[expect(
    clippy::big_endian_bytes,
    reason = "the order of AES-GCM-HKDF streaming, which docs/spec/backup.md follows"
)]
fn ordered(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}
