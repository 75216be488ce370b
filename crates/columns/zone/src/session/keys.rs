//! The column keys of the zone: they seal and open envelopes, and authenticate tickets.
//!
//! Invariants: a key is in locked memory only; the id of a key is computed from the key, so that no
//! other key can be given under it. Must not: give a key away.

use std::collections::BTreeMap;

use strongroom_columns_envelope::{ColumnKey, EnvelopeError, Label, SealedBy, id_of, parse_header};
use strongroom_columns_ring::Fault;
use strongroom_crypto::{CryptoError, MacKey, SecretKey, hkdf};
use strongroom_format::columns::channel::TICKET_LABEL;
use strongroom_format::columns::{Kind, Sealer};
use zeroize::Zeroize as _;

use crate::store::Binding;

pub use strongroom_columns_envelope::KeyId;

struct HeldKey {
    column: ColumnKey,
    ticket: MacKey,
}

/// The column keys that were released to this zone.
#[derive(Default)]
pub struct ColumnKeys(BTreeMap<KeyId, HeldKey>);

/// Why a key was not accepted.
#[derive(Debug, PartialEq, Eq)]
pub enum KeyError {
    /// The id is not the key's.
    Differs,
    /// No locked memory.
    Memory,
}

impl From<CryptoError> for KeyError {
    /// Computing a key's id fails only without locked memory.
    fn from(_: CryptoError) -> Self {
        Self::Memory
    }
}

impl ColumnKeys {
    /// Adds a key, whose id is computed and compared. A key that is there already changes nothing.
    ///
    /// # Errors
    /// [`KeyError::Differs`] if the id is not the key's, [`KeyError::Memory`] if there is no locked
    /// memory.
    pub fn take(&mut self, id: KeyId, key: SecretKey) -> Result<(), KeyError> {
        if id_of(&key)? != id {
            return Err(KeyError::Differs);
        }
        if self.has(&id) {
            return Ok(());
        }
        let ticket = MacKey::new(&hkdf(&key, &id, TICKET_LABEL.as_bytes())?)?;
        let column = ColumnKey::new(id, key);
        let held = HeldKey { column, ticket };
        self.0.insert(id, held);
        Ok(())
    }

    /// Adds those keys of `others` that are not there yet.
    pub(crate) fn absorb(&mut self, others: Self) {
        for (id, held) in others.0 {
            self.0.entry(id).or_insert(held);
        }
    }

    /// Forgets the keys for whose ids `wanted` is false.
    pub(crate) fn retain(&mut self, wanted: impl Fn(&KeyId) -> bool) {
        self.0.retain(|id, _| wanted(id));
    }

    /// Whether there is a key of this id.
    #[must_use]
    pub fn has(&self, id: &KeyId) -> bool {
        self.0.contains_key(id)
    }

    /// The ids.
    pub fn ids(&self) -> impl Iterator<Item = &KeyId> {
        self.0.keys()
    }

    /// The column key of this id, for the store to keep. `None` if the zone does not hold it.
    #[must_use]
    pub(crate) fn key(&self, id: &KeyId) -> Option<&SecretKey> {
        self.0.get(id).map(|known| known.column.key())
    }

    /// Whether `mac` is the MAC of the bytes `covered` under the key of this id. False if the zone
    /// does not hold the key.
    #[must_use]
    pub fn authenticates(&self, id: &KeyId, covered: &[u8], mac: &[u8; 32]) -> bool {
        self.0
            .get(id)
            .is_some_and(|known| known.ticket.verify(&[covered], mac))
    }

    /// Appends the envelope of a value, given in PostgreSQL's binary form, to `out`, as a result of
    /// a session or for nobody in particular. `value` is wiped.
    ///
    /// # Errors
    /// [`Fault::NoColumnKey`] if the key is not held; [`Fault::StringTooLong`] for a value that is
    /// too long; [`Fault::OutOfMemory`] if there is no memory, or no random number, for it.
    pub fn seal(
        &self,
        (of, by): (Binding, SealedBy),
        kind: Kind,
        value: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        let Some(known) = self.0.get(&of.key) else {
            value.zeroize();
            return Err(Fault::NoColumnKey);
        };
        let label = Label {
            kind,
            by,
            lineage: of.lineage,
        };
        known
            .column
            .seal(label, value, out)
            .map_err(|error| match error {
                CryptoError::TooLong => Fault::StringTooLong,
                _ => Fault::OutOfMemory,
            })
    }

    /// Opens an envelope of this kind into `value`, in PostgreSQL's binary form, which replaces
    /// what was there. Returns the key's id, the lineage and the sealer that the envelope names.
    ///
    /// # Errors
    /// [`Fault::NewerFormat`] if it is of a later version; [`Fault::BadEnvelope`] if it is damaged,
    /// of another kind, or the result of a session; [`Fault::NoColumnKey`] if its key is not held;
    /// [`Fault::OutOfMemory`] if there is no memory for it. `value` is empty then.
    pub fn open(
        &self,
        kind: Kind,
        sealed: &[u8],
        value: &mut Vec<u8>,
    ) -> Result<(Binding, Sealer), Fault> {
        value.zeroize();
        let header = parse_header(kind, sealed).map_err(|error| match error {
            EnvelopeError::Newer => Fault::NewerFormat,
            _ => Fault::BadEnvelope,
        })?;
        let known = self.0.get(&header.key_id).ok_or(Fault::NoColumnKey)?;
        match known.column.open(kind, None, sealed, value) {
            Ok(_) => {
                let of = Binding {
                    key: header.key_id,
                    lineage: header.lineage,
                };
                Ok((of, header.sealer))
            }
            Err(EnvelopeError::System) => Err(Fault::OutOfMemory),
            Err(_) => Err(Fault::BadEnvelope),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strongroom_format::columns::Lineage;

    fn keys() -> (ColumnKeys, [KeyId; 2]) {
        let mut keys = ColumnKeys::default();
        let ids = [1, 2].map(|byte| {
            let key = SecretKey::take(&mut [byte; 32]).unwrap();
            let id = id_of(&key).unwrap();
            keys.take(id, key).unwrap();
            id
        });
        (keys, ids)
    }

    #[test]
    fn an_envelope_opens_under_its_key_and_kind_only() {
        let (keys, [one, another]) = keys();
        let mut sealed = Vec::new();
        let of = Binding {
            key: one,
            lineage: Lineage::of(6),
        };
        let by = SealedBy::Zone;
        keys.seal((of, by), Kind::Text, &mut b"a secret".to_vec(), &mut sealed)
            .unwrap();
        let mut value = Vec::new();
        let opened = keys.open(Kind::Text, &sealed, &mut value);
        assert_eq!(opened, Ok((of, Sealer::Zone)));
        assert_eq!(value, b"a secret");
        assert_eq!(
            keys.open(Kind::Bytea, &sealed, &mut value),
            Err(Fault::BadEnvelope)
        );
        for at in 0..sealed.len() {
            let mut bad = sealed.clone();
            bad[at] ^= 1;
            assert!(
                keys.open(Kind::Text, &bad, &mut value).is_err(),
                "byte {at}"
            );
            assert!(value.is_empty());
        }
        let mut other = sealed.clone();
        other[4..20].copy_from_slice(&another);
        assert_eq!(
            keys.open(Kind::Text, &other, &mut value),
            Err(Fault::BadEnvelope),
            "another key's id"
        );
        other[4..20].fill(3);
        assert_eq!(
            keys.open(Kind::Text, &other, &mut value),
            Err(Fault::NoColumnKey)
        );
        for cut in 0..sealed.len() {
            assert!(keys.open(Kind::Text, &sealed[..cut], &mut value).is_err());
        }
        // A result is for the client that asked, and does not come back as a constant.
        let by = SealedBy::Session {
            session: [9; 16],
            serial: 1,
        };
        let mut result = Vec::new();
        keys.seal((of, by), Kind::Text, &mut b"a secret".to_vec(), &mut result)
            .unwrap();
        let answer = keys.open(Kind::Text, &result, &mut value);
        assert_eq!(answer, Err(Fault::BadEnvelope));
    }

    #[test]
    fn an_id_is_its_key_s() {
        let (mut keys, [one, another]) = keys();
        let again = SecretKey::take(&mut [1; 32]).unwrap();
        assert_eq!(keys.take(one, again), Ok(()));
        // Neither where the id is known, nor where it is not yet.
        for id in [one, another, [3; 16]] {
            let other = SecretKey::generate().unwrap();
            assert_eq!(keys.take(id, other), Err(KeyError::Differs));
        }
        keys.retain(|id| *id == another);
        assert_eq!((keys.has(&one), keys.has(&another)), (false, true));
        let late = SecretKey::generate().unwrap();
        assert_eq!(keys.take(one, late), Err(KeyError::Differs));
    }
}
