//! Envelopes: one value sealed under a column key, for the data owner's client and for the zone.
//!
//! Specified in docs/spec/columns.md, "Envelopes". Invariants:
//! - A column key seals nothing itself: each envelope is sealed under a key that is derived from it
//!   with a salt, and names the salt.
//! - Salts and nonces are random. A salt of this process serves for [`ENVELOPE_SALT_USES`]
//!   envelopes, whichever threads seal them.
//! - The column key's id, the kind, the sealer and the lineage are associated data: a value that is
//!   moved under another key, declared as another type or presented as another column's does not
//!   open, nor does a client's constant that is presented as the zone's result. A result's number
//!   and its session are, too. An envelope that is not canonical (padding, reserved bytes, a length
//!   that is not the kind's) does not open either.
//! - A derived key is kept only once it has opened an envelope: one that does not open costs a
//!   derivation and no memory.
//!
//! Must not: know what a value means, keep a value, or know where an envelope comes from.
#![forbid(unsafe_code)]

mod recent_keys;

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{PoisonError, RwLock};

use strongroom_crypto::{
    CryptoError, GcmKey, SecretKey, hkdf, hkdf_bytes, nonce12, random16, sha256,
};
use strongroom_format::columns::channel::COLUMN_ID_LABEL;
use strongroom_format::columns::envelope::{
    ENVELOPE_LABEL, ENVELOPE_SALT_USES, HeadBytes, LINEAGE_LABEL, RESULT_OVERHEAD, pad, unpadded,
};
use strongroom_format::columns::{Class, EnvelopeHeader, Kind, Lineage, Sealer};
use zeroize::Zeroize as _;

use recent_keys::RecentKeys;

const TAG: usize = 16;

/// Names a column key.
pub type KeyId = [u8; 16];

/// Why an envelope does not open. It says nothing about the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnvelopeError {
    /// A later version of Strongroom has sealed it.
    Newer,
    /// It is malformed.
    Malformed,
    /// It is sealed under an unknown key.
    UnknownKey,
    /// It is of another kind than expected.
    OtherKind,
    /// Its value is of another column than expected.
    OtherColumn,
    /// It is damaged or forged.
    NotAuthentic,
    /// No locked memory for the envelope's key.
    System,
}

impl fmt::Display for EnvelopeError {
    /// Writes what is wrong with the envelope, without any byte of it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Newer => "the envelope was sealed by a newer version of Strongroom",
            Self::Malformed => "the envelope is malformed",
            Self::UnknownKey => {
                "the envelope is sealed under a column key that the keyring does not hold"
            }
            Self::OtherKind => "the envelope holds a value of another type",
            Self::OtherColumn => "the envelope holds a value of another column",
            Self::NotAuthentic => "the envelope is damaged or forged",
            Self::System => "there is no locked memory left for the envelope's key",
        })
    }
}

impl std::error::Error for EnvelopeError {}

/// The number of a session with the zone.
pub type SessionId = [u8; 16];

/// Which end seals a value, and for whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealedBy {
    /// The data owner's client.
    Client,
    /// The zone, for nobody in particular.
    Zone,
    /// The zone, as a result of one session, in which it has this number, from 1.
    Session {
        /// The session.
        session: SessionId,
        /// The result's number.
        serial: u64,
    },
}

impl SealedBy {
    /// The end that seals.
    #[must_use]
    pub const fn sealer(self) -> Sealer {
        self.parts().0
    }

    /// The sealer, the session's number (zeros without one) and the result's (0 without one).
    const fn parts(self) -> (Sealer, SessionId, u64) {
        match self {
            Self::Client => (Sealer::Client, [0; 16], 0),
            Self::Zone => (Sealer::Zone, [0; 16], 0),
            Self::Session { session, serial } => (Sealer::Session, session, serial),
        }
    }
}

/// What an envelope says of its value in clear, authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// Type of the value.
    pub kind: Kind,
    /// Which end seals it.
    pub by: SealedBy,
    /// The column whose value it is, or is to become.
    pub lineage: Lineage,
}

/// The derived key that this process currently seals with.
struct Sealing {
    salt: [u8; 16],
    key: GcmKey,
    used: AtomicU32,
}

/// A column key, which seals and opens envelopes.
pub struct ColumnKey {
    id: KeyId,
    key: SecretKey,
    /// `None` until the first envelope.
    sealing: RwLock<Option<Sealing>>,
    opening: RwLock<RecentKeys>,
}

impl ColumnKey {
    /// Makes a column key of an id and a secret key. It does not check that the id belongs to the
    /// key; [`id_of`] computes it.
    #[must_use]
    pub const fn new(id: KeyId, key: SecretKey) -> Self {
        Self {
            id,
            key,
            sealing: RwLock::new(None),
            opening: RwLock::new(RecentKeys::new()),
        }
    }

    /// Returns the key's id, which every envelope of it names.
    #[must_use]
    pub const fn id(&self) -> &KeyId {
        &self.id
    }

    /// Returns the secret key itself. The proxy needs it to release the key to the zone.
    #[must_use]
    pub const fn key(&self) -> &SecretKey {
        &self.key
    }

    /// Seals a value, given in PostgreSQL's binary form, and appends the envelope to `out`.
    /// Afterwards `value` is wiped and empty, also after an error; after an error `out` is
    /// unchanged.
    ///
    /// # Errors
    /// The system's random number generator fails, there is no locked memory for a derived key, or
    /// the value is too long for AES-GCM (64 GiB).
    pub fn seal(
        &self,
        label: Label,
        value: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<(), CryptoError> {
        let sealed = self.seal_in_place(label, value);
        if let Ok((head, tag)) = &sealed {
            out.reserve(RESULT_OVERHEAD.saturating_add(value.len()));
            out.extend_from_slice(head);
            out.extend_from_slice(value);
            out.extend_from_slice(tag);
            // Sealed: nothing to wipe.
            value.clear();
        }
        value.zeroize();
        sealed.map(drop)
    }

    /// Pads and encrypts a value in place, under a fresh nonce. Returns the envelope's header and
    /// the tag. After [`ENVELOPE_SALT_USES`] envelopes it changes to a new salt. Fails as
    /// [`Self::seal`] does.
    fn seal_in_place(
        &self,
        label: Label,
        value: &mut Vec<u8>,
    ) -> Result<(HeadBytes, [u8; TAG]), CryptoError> {
        pad(label.kind, value);
        let nonce = nonce12()?;
        let (sealer, session, serial) = label.by.parts();
        loop {
            let sealing = self.sealing.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(sealing) = sealing.as_ref()
                && sealing.used.fetch_add(1, Ordering::Relaxed) < ENVELOPE_SALT_USES
            {
                let header = EnvelopeHeader {
                    kind: label.kind,
                    sealer,
                    key_id: self.id,
                    salt: sealing.salt,
                    nonce,
                    lineage: label.lineage,
                    serial,
                };
                let associated = header.associated_data(&session);
                let tag = sealing.key.seal(&header.nonce, &associated, value)?;
                return Ok((header.to_bytes(), tag));
            }
            drop(sealing);
            self.renew_salt()?;
        }
    }

    /// Replaces the current salt and its key if the salt is used up or there is none yet. Does
    /// nothing if another thread has replaced it meanwhile. Fails without random numbers or locked
    /// memory.
    fn renew_salt(&self) -> Result<(), CryptoError> {
        let mut sealing = self.sealing.write().unwrap_or_else(PoisonError::into_inner);
        let used_up = sealing
            .as_ref()
            .is_none_or(|now| now.used.load(Ordering::Relaxed) >= ENVELOPE_SALT_USES);
        if used_up {
            let salt = random16()?;
            *sealing = Some(Sealing {
                salt,
                key: self.derive_key(&salt)?,
                used: AtomicU32::new(0),
            });
        }
        Ok(())
    }

    /// Derives the key for the envelopes with this salt (HKDF). Fails if there is no locked memory.
    fn derive_key(&self, salt: &[u8; 16]) -> Result<GcmKey, CryptoError> {
        GcmKey::new(&hkdf(&self.key, salt, ENVELOPE_LABEL.as_bytes())?)
    }

    /// Decrypts an envelope of this kind into `value`, as PostgreSQL's binary form, and returns its
    /// header, authenticated. What `value` held before is wiped. `session` is the one whose results
    /// open; every other envelope opens with any.
    ///
    /// # Errors
    /// `value` is wiped and empty then.
    /// - [`EnvelopeError::Newer`]: the envelope is of a later version.
    /// - [`EnvelopeError::Malformed`]: the header, the padding or the value's length is not valid.
    /// - [`EnvelopeError::OtherKind`]: the envelope names another kind.
    /// - [`EnvelopeError::UnknownKey`]: it names the id of another key.
    /// - [`EnvelopeError::NotAuthentic`]: it is damaged or forged, or a result of another session.
    /// - [`EnvelopeError::System`]: there is no locked memory for its key.
    pub fn open(
        &self,
        kind: Kind,
        session: Option<&SessionId>,
        envelope: &[u8],
        value: &mut Vec<u8>,
    ) -> Result<EnvelopeHeader, EnvelopeError> {
        value.zeroize();
        let opened = self.open_into(kind, session, envelope, value);
        if opened.is_err() {
            value.zeroize();
        }
        opened
    }

    /// Decrypts an envelope into `value`, which must be empty, and removes the padding. The derived
    /// key is cached if the envelope is authentic. Fails as [`Self::open`] does, but may leave
    /// bytes in `value`.
    fn open_into(
        &self,
        kind: Kind,
        session: Option<&SessionId>,
        envelope: &[u8],
        value: &mut Vec<u8>,
    ) -> Result<EnvelopeHeader, EnvelopeError> {
        let header = parse_header(kind, envelope)?;
        if header.sealer == Sealer::Session && session.is_none() {
            return Err(EnvelopeError::NotAuthentic);
        }
        let associated = header.associated_data(session.unwrap_or(&[0; 16]));
        if header.key_id != self.id {
            return Err(EnvelopeError::UnknownKey);
        }
        let (body, tag) = envelope
            .get(header.head_len()..)
            .and_then(|rest| rest.split_last_chunk::<TAG>())
            .ok_or(EnvelopeError::Malformed)?;
        value.extend_from_slice(body);
        let mut open = |key: &GcmKey| {
            key.open(&header.nonce, &associated, value, tag)
                .map_err(|_| EnvelopeError::NotAuthentic)
        };
        let recent = self.opening.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(key) = recent.get(&header.salt) {
            open(key)?;
        } else {
            drop(recent);
            let key = self.derive_key(&header.salt);
            let key = key.map_err(|_| EnvelopeError::System)?;
            open(&key)?;
            let mut recent = self.opening.write().unwrap_or_else(PoisonError::into_inner);
            recent.insert(header.salt, key);
        }
        let len = unpadded(kind, value).ok_or(EnvelopeError::Malformed)?;
        if kind.fixed_len().is_some_and(|fixed| fixed != len) {
            return Err(EnvelopeError::Malformed);
        }
        // Vec::truncate leaves the bytes beyond the end in memory. They are only padding here, but
        // every buffer of a value is wiped.
        if let Some(rest) = value.get_mut(len..) {
            rest.zeroize();
        }
        value.truncate(len);
        Ok(header)
    }
}

/// Computes the id of a column key. The id commits to the key: no other key has it.
///
/// # Errors
/// [`CryptoError::OutOfLockedMemory`] if there is no locked memory.
pub fn id_of(key: &SecretKey) -> Result<KeyId, CryptoError> {
    let id = hkdf_bytes(key, &[], COLUMN_ID_LABEL.as_bytes(), 16)?;
    id.as_slice().try_into().map_err(|_| CryptoError::TooLong)
}

/// The lineage that a column of this class has by its name. Client and zone compute it alike, so
/// that a constant can name the column that it is for.
///
/// `path` are the names of database, schema, relation and column, none of which has a zero byte
/// (PostgreSQL allows none). Specified in docs/spec/columns.md, "Lineages".
#[must_use]
pub fn lineage_by_name(class: Class, path: [&str; 4]) -> Lineage {
    let mut parts = vec![LINEAGE_LABEL.as_bytes()];
    for name in &path {
        parts.extend([&[0][..], name.as_bytes()]);
    }
    let digest = sha256(&parts);
    let bits = digest
        .first_chunk()
        .map_or(0, |first| u64::from_le_bytes(*first));
    Lineage::of_column(bits, class)
}

/// Parses the header of an envelope that should hold a value of this kind. Nothing is authenticated
/// yet. The header's `key_id` names the column key that opens the envelope.
///
/// # Errors
/// [`EnvelopeError::Newer`] for an envelope of a later version, [`EnvelopeError::Malformed`] for an
/// invalid or short header, [`EnvelopeError::OtherKind`] if it names another kind.
pub fn parse_header(kind: Kind, envelope: &[u8]) -> Result<EnvelopeHeader, EnvelopeError> {
    if EnvelopeHeader::is_newer(envelope) {
        return Err(EnvelopeError::Newer);
    }
    let header = EnvelopeHeader::parse(envelope).ok_or(EnvelopeError::Malformed)?;
    if header.kind == kind {
        Ok(header)
    } else {
        Err(EnvelopeError::OtherKind)
    }
}

#[cfg(test)]
mod tests;
