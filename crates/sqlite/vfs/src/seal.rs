//! Seals and opens pages and units. No other module encrypts a byte of a database.
//!
//! Invariants:
//! S1. Every nonce is fresh: it is random, or a counter under a key that one handle made for
//!     itself.
//! S2. The associated data name role, object, epoch and position. Nothing is sealed without them.
//! S3. When opening fails, the buffer holds no plaintext.
//!
//! Must not: do I/O, or decide what an error means.

use strongroom_crypto::{CtrKey, GcmKey, MacKey, SecretKey, nonce12};
use strongroom_format::aad::{AssociatedData, Role};
use strongroom_format::header::Cipher;
use strongroom_format::layout::put;
use strongroom_format::sqlite::{Prologue, tail_layout};
use strongroom_keyring::{Error, Object, Purpose};

use crate::freshness::DigestSum;
use crate::page_tail::Tail;
use crate::page_tail::{TAIL, parse_tail};

/// Why a page did not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageError {
    /// The tail names another epoch than this cipher's.
    Epoch(u32),
    /// The tag does not verify, or the tail is not canonical.
    Forged,
}

enum PageKeys {
    Gcm(GcmKey),
    /// AES-256-CTR: the counter begins at a PRF of nonce and position, so that a page that was
    /// moved decrypts to noise.
    Ctr {
        key: CtrKey,
        iv: MacKey,
    },
}

/// The page cipher of one object under one key epoch.
pub(crate) struct PageCipher {
    keys: PageKeys,
    place: AssociatedData,
    /// The key of a page's contribution to the digest, in a database that keeps freshness.
    freshness: Option<MacKey>,
}

impl PageCipher {
    /// Derives the keys of `object`'s pages under `epoch`, by the header's cipher. SR-5001 if the
    /// cryptographic library fails.
    pub(crate) fn new(object: &Object, epoch: u32) -> Result<Self, Error> {
        let header = object.header();
        let page_key = object.subkey(epoch, Purpose::Page)?;
        let keys = match header.cipher {
            Cipher::Aes256Ctr => PageKeys::Ctr {
                key: CtrKey::new(&page_key).map_err(|error| crypto_error(&error))?,
                iv: MacKey::new(&object.subkey(epoch, Purpose::PageIv)?)
                    .map_err(|error| crypto_error(&error))?,
            },
            _ => PageKeys::Gcm(GcmKey::new(&page_key).map_err(|error| crypto_error(&error))?),
        };
        let place = AssociatedData {
            role: Role::Page,
            cipher: header.cipher.number(),
            unit_size: header.unit_size,
            epoch,
            object_id: object.object_id(),
        };
        let freshness = match header.freshness {
            true => Some(
                MacKey::new(&object.subkey(epoch, Purpose::Freshness)?)
                    .map_err(|error| crypto_error(&error))?,
            ),
            false => None,
        };
        Ok(Self {
            keys,
            place,
            freshness,
        })
    }

    /// Returns the key epoch of this cipher.
    pub(crate) fn epoch(&self) -> u32 {
        self.place.epoch
    }

    /// Returns what page `number` with this tail (its last 32 bytes) adds to the digest of the
    /// database, by which freshness is checked (X1). Zero when no freshness is kept.
    pub(crate) fn contribution(&self, number: u64, tail: &Tail) -> DigestSum {
        self.freshness
            .as_ref()
            .map_or_else(DigestSum::default, |key| {
                DigestSum::of(&key.mac(&[&number.to_le_bytes(), tail]))
            })
    }

    /// Opens page `number` in place; its tail becomes zero, as SQLite wrote it. `Epoch` if it was
    /// sealed under another epoch, and `Forged` if it is not authentic. Under AES-256-CTR, changed
    /// data go unnoticed.
    pub(crate) fn open(&self, number: u64, page: &mut [u8]) -> Result<(), PageError> {
        let at = page.len().checked_sub(TAIL).ok_or(PageError::Forged)?;
        let (data, tail) = page.split_at_mut(at);
        let (nonce, tag, epoch) = parse_tail(tail).ok_or(PageError::Forged)?;
        if epoch != self.place.epoch {
            return Err(PageError::Epoch(epoch));
        }
        let aad = self.place.at(number);
        match &self.keys {
            PageKeys::Gcm(key) => key
                .open(&nonce, &aad, data, &tag)
                .map_err(|_| PageError::Forged)?,
            PageKeys::Ctr { key, iv } => {
                // A CTR page has no tag; a tail that is not canonical is the only detectable
                // damage.
                if tag != [0; 16] {
                    return Err(PageError::Forged);
                }
                key.apply(&counter(iv, &aad, &nonce), data);
            }
        }
        tail.fill(0);
        Ok(())
    }

    /// Opens page `number` from `sealed` into `page`, where that is faster than copying and opening
    /// in place. Returns false under AES-256-CTR, for a page of another epoch, or if the page does
    /// not open; `page` then holds no plaintext.
    pub(crate) fn open_to(&self, number: u64, sealed: &[u8], page: &mut [u8]) -> bool {
        let (PageKeys::Gcm(key), true) = (&self.keys, sealed.len() == page.len()) else {
            return false;
        };
        let Some((data, tail)) = sealed.split_at_checked(sealed.len().saturating_sub(TAIL)) else {
            return false;
        };
        let Some((nonce, tag, epoch)) = parse_tail(tail) else {
            return false;
        };
        let (plain, zeros) = page.split_at_mut(data.len());
        if epoch != self.place.epoch {
            return false;
        }
        zeros.fill(0);
        key.open_to(&nonce, &self.place.at(number), data, plain, &tag)
            .is_ok()
    }

    /// Seals page `number` in place: the last 32 bytes become nonce, tag and epoch. The caller
    /// never gives the same nonce twice under this key (S1). SR-9001 if the page is shorter than 32
    /// bytes, SR-5001 if the cryptography fails.
    pub(crate) fn seal(&self, number: u64, nonce: &[u8; 12], page: &mut [u8]) -> Result<(), Error> {
        let at = page
            .len()
            .checked_sub(TAIL)
            .ok_or_else(|| bug_error("page shorter than its tail"))?;
        let (data, tail) = page.split_at_mut(at);
        let aad = self.place.at(number);
        let tag = match &self.keys {
            PageKeys::Gcm(key) => key
                .seal(nonce, &aad, data)
                .map_err(|error| crypto_error(&error))?,
            PageKeys::Ctr { key, iv } => {
                key.apply(&counter(iv, &aad, nonce), data);
                [0; 16]
            }
        };
        let done = [
            put(tail, tail_layout::NONCE, nonce),
            put(tail, tail_layout::TAG, &tag),
            put(tail, tail_layout::EPOCH, &self.place.epoch.to_le_bytes()),
        ];
        assert!(done.iter().all(Option::is_some), "page tail layout");
        Ok(())
    }
}

/// Computes the first counter block of AES-256-CTR for a page, from its place and its nonce.
fn counter(iv: &MacKey, aad: &[u8], nonce: &[u8; 12]) -> [u8; 16] {
    let prf = iv.mac(&[aad, nonce]);
    let mut out = [0; 16];
    out.copy_from_slice(&prf[..16]);
    out
}

/// Seals units of a log, journal or temporary file: nonce 12, ciphertext, tag 16.
pub(crate) struct UnitKey {
    key: GcmKey,
    place: AssociatedData,
}

impl UnitKey {
    /// Makes the key of a file's units from `key`. `place` says what the units belong to. SR-5001
    /// if the cryptographic library fails.
    pub(crate) fn new(key: &SecretKey, place: AssociatedData) -> Result<Self, Error> {
        Ok(Self {
            key: GcmKey::new(key).map_err(|error| crypto_error(&error))?,
            place,
        })
    }

    /// Returns the associated data for units of `role` in the same file.
    fn with_role(&self, role: Role) -> AssociatedData {
        AssociatedData { role, ..self.place }
    }

    /// Seals `plain`, the parts joined, as unit `position` of `role`, under a random nonce (S1),
    /// and appends nonce, ciphertext and tag to `out`. SR-5001 if the cryptography fails: `out` may
    /// then hold `plain`, and must not be written.
    pub(crate) fn seal(
        &self,
        role: Role,
        position: u64,
        plain: &[&[u8]],
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let nonce = nonce12().map_err(|error| crypto_error(&error))?;
        self.seal_with(&nonce, role, position, plain, out)
    }

    /// Seals `plain`, the parts joined, as unit `position` of `role`, under a nonce that the caller
    /// never repeats for this key, and appends nonce, ciphertext and tag to `out`. SR-5001 if the
    /// cryptography fails: `out` may then hold `plain`, and must not be written.
    pub(crate) fn seal_with(
        &self,
        nonce: &[u8; 12],
        role: Role,
        position: u64,
        plain: &[&[u8]],
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        out.extend_from_slice(nonce);
        let start = out.len();
        for part in plain {
            out.extend_from_slice(part);
        }
        let body = out
            .get_mut(start..)
            .ok_or_else(|| bug_error("unit buffer"))?;
        let aad = self.with_role(role).at(position);
        let tag = self
            .key
            .seal(nonce, &aad, body)
            .map_err(|error| crypto_error(&error))?;
        out.extend_from_slice(&tag);
        Ok(())
    }

    /// Encrypts `data` in place under a fresh `nonce`, and returns the tag. `extra` is
    /// authenticated but not encrypted. SR-5001 if the cryptography fails.
    pub(crate) fn seal_raw(
        &self,
        nonce: &[u8; 12],
        role: Role,
        position: u64,
        extra: u64,
        data: &mut [u8],
    ) -> Result<[u8; 16], Error> {
        let aad = self.with_role(role).at_with(position, extra);
        self.key
            .seal(nonce, &aad, data)
            .map_err(|error| crypto_error(&error))
    }

    /// Decrypts `data`, which [`Self::seal_raw`] sealed, in place. `None`: not authentic; `data`
    /// then holds no plaintext.
    pub(crate) fn open_raw(
        &self,
        nonce: &[u8; 12],
        role: Role,
        position: u64,
        extra: u64,
        data: &mut [u8],
        tag: &[u8; 16],
    ) -> Option<()> {
        let aad = self.with_role(role).at_with(position, extra);
        self.key.open(nonce, &aad, data, tag).ok()
    }

    /// Opens a sealed unit in place and returns its plaintext, a part of `unit`. `None`: not
    /// authentic, or too short.
    pub(crate) fn open<'unit>(
        &self,
        role: Role,
        position: u64,
        unit: &'unit mut [u8],
    ) -> Option<&'unit mut [u8]> {
        let (nonce, rest) = unit.split_first_chunk_mut::<12>()?;
        let (body, tag) = rest.split_last_chunk_mut::<16>()?;
        let aad = self.with_role(role).at(position);
        self.key.open(nonce, &aad, body, tag).ok()?;
        Some(body)
    }
}

/// Derives the key of the units of a log or journal from the data key of the prologue's epoch, the
/// file's salt and its whole prologue. SR-4008 if the object does not have that epoch.
pub(crate) fn unit_key(
    object: &Object,
    prologue: &Prologue,
    role: Role,
    purpose: Purpose,
) -> Result<UnitKey, Error> {
    unit_key_from(&object.subkey(prologue.epoch, purpose)?, prologue, role)
}

/// Derives the key of the units of a log or journal from the sub-key of the prologue's epoch, the
/// file's salt and its whole prologue. SR-5001 if the cryptography fails.
pub(crate) fn unit_key_from(
    subkey: &SecretKey,
    prologue: &Prologue,
    role: Role,
) -> Result<UnitKey, Error> {
    // A journal's slots have 512 bytes, and a log's frames a page each.
    let derive = match role {
        Role::Journal => GcmKey::derive_for_short,
        _ => GcmKey::derive,
    };
    let key = derive(subkey, &prologue.salt, &prologue.to_bytes())
        .map_err(|error| crypto_error(&error))?;
    let place = AssociatedData {
        role,
        cipher: Cipher::Aes256Gcm.number(),
        unit_size: prologue.unit,
        epoch: prologue.epoch,
        object_id: prologue.object_id,
    };
    Ok(UnitKey { key, place })
}

/// Makes the error SR-5001 of an error of the crypto crate. Reports nothing.
pub(crate) fn crypto_error(error: &strongroom_crypto::CryptoError) -> Error {
    Error::new(
        &strongroom_format::code::IO,
        format!("cryptographic library: {error}"),
    )
}

/// Makes the error SR-9001, for a state that only a defect of Strongroom can cause.
fn bug_error(detail: &'static str) -> Error {
    Error::new(&strongroom_format::code::BUG, detail)
}
