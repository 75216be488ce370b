//! The keys of one set: those of its families and that of its head's seal. A plain set has digests
//! instead.
//!
//! Invariants: B3: a family's key is made for writing one family once; B4: with a key, the
//! description is used only after its seal was verified.
//!
//! Must not: do I/O.

use strongroom_crypto::{
    AesLength, AnyGcmKey, CryptoError, MacKey, SecretKey, TripleDes, fill_random, random16,
    random32, sha256,
};
use strongroom_format::backup::{FamilyHeader, RecordError, SegmentHead, SetRecord};
use strongroom_format::code;
use strongroom_format::header;
use strongroom_format::slot::SlotKind;
use strongroom_keyring::{NewObject, Object, Purpose, Recipient};

use crate::{Error, Result};

/// The epoch of a set's only data key.
const EPOCH: u32 = 1;
/// The most bytes of a segment's trailer: those of Triple DES.
pub(crate) const TRAILER_MAX: usize = TripleDes::TRAILER_LEN;
/// Bytes of a segment's trailer in a plain set, a SHA-256, and of one under GCM.
const DIGEST: usize = 32;
const TAG: usize = 16;

/// The cipher of the families of a sealed set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cipher {
    /// AES-256-GCM.
    #[default]
    Aes256,
    /// AES-192-GCM.
    Aes192,
    /// AES-128-GCM.
    Aes128,
    /// Three-key Triple DES. See [`Cipher::is_legacy`].
    TripleDes,
}

impl Cipher {
    /// All of them, the best one first.
    pub const ALL: [Self; 4] = [Self::Aes256, Self::Aes192, Self::Aes128, Self::TripleDes];

    /// Whether the cipher is a legacy one, Triple DES, for use only where a regulation requires it
    /// (NIST SP 800-131A Rev. 2).
    #[must_use]
    pub const fn is_legacy(self) -> bool {
        matches!(self, Self::TripleDes)
    }

    /// The word on the command line and in descriptions.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Aes256 => "aes-256",
            Self::Aes192 => "aes-192",
            Self::Aes128 => "aes-128",
            Self::TripleDes => "triple-des-3key",
        }
    }

    /// The cipher as headers and records name it.
    const fn in_header(self) -> header::Cipher {
        match self {
            Self::Aes256 => header::Cipher::Aes256Gcm,
            Self::Aes192 => header::Cipher::Aes192Gcm,
            Self::Aes128 => header::Cipher::Aes128Gcm,
            Self::TripleDes => header::Cipher::TripleDesCbc,
        }
    }

    /// The length of the AES key; `None` for Triple DES.
    const fn length(self) -> Option<AesLength> {
        match self {
            Self::Aes256 => Some(AesLength::Aes256),
            Self::Aes192 => Some(AesLength::Aes192),
            Self::Aes128 => Some(AesLength::Aes128),
            Self::TripleDes => None,
        }
    }
}

/// The cipher that a header names. SR-3003 for one that no set has.
pub(crate) fn cipher_of(found: header::Cipher) -> Result<Cipher> {
    Cipher::ALL
        .into_iter()
        .find(|cipher| cipher.in_header() == found)
        .ok_or_else(|| Error::new(&code::HEADER_DAMAGED, "cipher"))
}

/// The keys of one set, or its id when it is not sealed.
pub(crate) enum SetKeys {
    Sealed { object: Box<Object>, cipher: Cipher },
    Plain { set_id: [u8; 16] },
}

impl SetKeys {
    /// The keys of a new sealed set that each of `recipients` can open. SR-2001 without a
    /// recipient.
    pub(crate) fn sealed(cipher: Cipher, recipients: &[Recipient]) -> Result<Self> {
        let Some((first, more)) = recipients.split_first() else {
            return Err(Error::new(&code::NO_KEY, "a sealed set needs a key"));
        };
        let mut object = Object::create(&NewObject::backup(cipher.in_header()), first)?;
        if !more.is_empty() {
            object = object.rewrapped(&recipients.iter().collect::<Vec<_>>())?;
        }
        let object = Box::new(object);
        Ok(Self::Sealed { object, cipher })
    }

    /// Draws the id of a new set that is not sealed. An error only when the system has no random
    /// bytes.
    pub(crate) fn plain() -> Result<Self> {
        let set_id = random16()?;
        Ok(Self::Plain { set_id })
    }

    /// What a successful open does not prove, as text; `None` when it proves everything.
    pub(crate) fn unproven(&self) -> Option<&'static str> {
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

    /// The id of the set: that of its object header, or a random one.
    pub(crate) fn set_id(&self) -> [u8; 16] {
        match self {
            Self::Sealed { object, .. } => object.object_id(),
            Self::Plain { set_id } => *set_id,
        }
    }

    /// The number of the cipher in records and family headers; 0 for a plain set.
    pub(crate) fn number(&self) -> u16 {
        match self {
            Self::Sealed { cipher, .. } => cipher.in_header().number(),
            Self::Plain { .. } => 0,
        }
    }

    /// The name of the cipher in descriptions; `none` for a plain set.
    pub(crate) fn algorithm(&self) -> &'static str {
        match self {
            Self::Sealed { cipher, .. } => cipher.name(),
            Self::Plain { .. } => "none",
        }
    }

    /// Computes the seal over the first part of a record and the description: a MAC under the set's
    /// key, or in a plain set a SHA-256 digest. SR-5001 when there is no memory for the key.
    pub(crate) fn seal(&self, covered: &[u8], description: &[u8]) -> Result<[u8; 32]> {
        match self {
            Self::Sealed { object, .. } => {
                let key = MacKey::new(&object.subkey(EPOCH, Purpose::BackupSet)?)?;
                Ok(key.mac(&[covered, description]))
            }
            Self::Plain { .. } => Ok(sha256(&[covered, description])),
        }
    }

    /// Whether the seal in the record is that of record and description; of a plain set, whether
    /// the digest is. False after any change. SR-5001 when there is no memory for the key.
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

    /// Makes the key of a new family, the one with number `family`, from 0, of `families`. In a
    /// sealed set its salt and nonce prefix are random, so that each call gives another key; in a
    /// plain one they are zero. SR-5001 when there are no random bytes, or no memory for the key.
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

    /// Derives the key of the family whose header is `bytes`. SR-7109 when the header is malformed
    /// or belongs to another set or family; SR-3002 when it is newer.
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

    /// Derives the key that belongs to this header; a plain set has none. Errors of libcrypto.
    fn family_key(&self, header: FamilyHeader) -> Result<FamilyKey> {
        let bytes = header.to_bytes();
        let key = match self {
            Self::Sealed { object, cipher } => {
                let key = object.derive(EPOCH, Purpose::BackupFamily, &header.salt, &bytes)?;
                match cipher.length() {
                    Some(length) => Segments::Gcm(AnyGcmKey::new(length, &key)?),
                    None => Segments::TripleDes(key),
                }
            }
            Self::Plain { .. } => Segments::Plain,
        };
        Ok(FamilyKey { header, bytes, key })
    }
}

/// Seals or opens the segments of one family. Shared by threads.
pub(crate) struct FamilyKey {
    header: FamilyHeader,
    bytes: [u8; 80],
    key: Segments,
}

/// How segments are sealed.
enum Segments {
    Plain,
    Gcm(AnyGcmKey),
    /// The key from which the keys of each segment are derived.
    TripleDes(SecretKey),
}

/// The trailer of a segment: the bytes after its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trailer {
    bytes: [u8; TRAILER_MAX],
    length: usize,
}

impl Trailer {
    /// The trailer's bytes, without the unused rest.
    pub(crate) fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    /// A trailer with these bytes, cut at the length that the longest can have.
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

    /// The number of the family in its set, from 0.
    pub(crate) fn family(&self) -> u16 {
        self.header.family
    }

    /// Bytes of every trailer.
    pub(crate) fn trailer_length(&self) -> usize {
        match self.key {
            Segments::Plain => DIGEST,
            Segments::Gcm(_) => TAG,
            Segments::TripleDes(_) => TripleDes::TRAILER_LEN,
        }
    }

    /// Seals `data` in place as segment `number`, and returns its trailer; data of a plain set stay
    /// as they are and get a digest. **The caller's duty**: each number is used once in a family,
    /// and `head.last` is set for the last number only. Errors of libcrypto.
    pub(crate) fn seal(&self, number: u32, head: SegmentHead, data: &mut [u8]) -> Result<Trailer> {
        let head_bytes = head.to_bytes();
        let nonce = self.nonce(number, head.last);
        match &self.key {
            Segments::Plain => Ok(self.digest(number, &head_bytes, data)),
            Segments::Gcm(key) => {
                let tag = key.seal(&nonce, &head_bytes, data)?;
                Ok(Trailer::from_slice(&tag))
            }
            Segments::TripleDes(key) => {
                let keys = TripleDes::derive(key, &self.header.salt, &nonce)?;
                Ok(Trailer::from_slice(&keys.seal(&head_bytes, data)?))
            }
        }
    }

    /// Authenticates and decrypts `data` in place. False when it does not authenticate; `data` must
    /// not be used then.
    ///
    /// # Errors
    /// SR-7172 when libcrypto has no Triple DES; SR-5001 or SR-9001 when memory or libcrypto fails.
    /// It is then not known whether the data is authentic.
    pub(crate) fn open(
        &self,
        number: u32,
        head: SegmentHead,
        data: &mut [u8],
        trailer: &Trailer,
    ) -> Result<bool> {
        let head_bytes = head.to_bytes();
        let nonce = self.nonce(number, head.last);
        match &self.key {
            Segments::Plain => Ok(self.digest(number, &head_bytes, data) == *trailer),
            Segments::Gcm(key) => {
                let tag = <&[u8; TAG]>::try_from(trailer.as_slice());
                Ok(tag.is_ok_and(|tag| key.open(&nonce, &head_bytes, data, tag).is_ok()))
            }
            Segments::TripleDes(key) => {
                let trailer = <&[u8; TripleDes::TRAILER_LEN]>::try_from(trailer.as_slice());
                let Ok(trailer) = trailer else {
                    return Ok(false);
                };
                let keys = TripleDes::derive(key, &self.header.salt, &nonce)?;
                let opened = keys.open(&head_bytes, data, trailer);
                opened.map_err(|error| match error {
                    CryptoError::Library | CryptoError::Key => {
                        Error::new(&code::NO_TRIPLE_DES, "DES-EDE3-CBC")
                    }
                    other => other.into(),
                })
            }
        }
    }

    /// The digest of a plain set's segment: SHA-256 of the family's header, the number, the head
    /// and the data.
    fn digest(&self, number: u32, head: &[u8], data: &[u8]) -> Trailer {
        Trailer::from_slice(&sha256(&[&self.bytes, &to_big_endian(number), head, data]))
    }

    /// The nonce of a segment: the family's prefix, the number, and whether it is the last one.
    fn nonce(&self, number: u32, last: bool) -> [u8; 12] {
        let mut nonce = [0; 12];
        let parts = [
            &self.header.prefix[..],
            &to_big_endian(number),
            &[u8::from(last)],
        ];
        for (to, from) in nonce.iter_mut().zip(parts.concat()) {
            *to = from;
        }
        nonce
    }
}

/// Returns a segment's number as it is in a nonce: four bytes, most significant first.
#[expect(
    clippy::big_endian_bytes,
    reason = "the order of AES-GCM-HKDF streaming, which docs/spec/backup.md follows"
)]
fn to_big_endian(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}
