//! Column keys, which seal envelopes, derived from keys of the keyring.
//!
//! A keyring key is never used itself: the column key's id and the column key are derived from it
//! with labels of their own (docs/spec/columns.md), so the id can be in every envelope and reveals
//! nothing about the key. Must not: print or copy a key.

use std::collections::BTreeMap;

use strongroom_columns_envelope::{ColumnKey, id_of};
use strongroom_crypto::{CryptoError, SecretKey, hkdf};
use strongroom_format::columns::channel::COLUMN_LABEL;
use strongroom_keyring::{Error, Keyring};

/// The data owner's column keys: all of them open envelopes, one of them seals.
pub struct ColumnKeys {
    all: BTreeMap<[u8; 16], ColumnKey>,
    sealing: ColumnKey,
}

impl ColumnKeys {
    /// Derives the column keys of every version of the keyring's key `name`; its newest active
    /// version seals.
    ///
    /// # Errors
    /// SR-2003 if the keyring has no such key; SR-2012 if all its versions are retired; SR-5001
    /// when the system refuses locked memory.
    pub fn from_keyring(keyring: &Keyring, name: &str) -> Result<Self, Error> {
        let active = keyring.key(name, None)?;
        let mut keys = Vec::new();
        for info in keyring.list().into_iter().filter(|info| info.name == name) {
            keys.push(keyring.key(name, Some(info.version))?);
        }
        keys.push(active);
        Ok(Self::from_keys(&keys)?)
    }

    /// Derives the column keys of these keys; the last one seals.
    ///
    /// # Errors
    /// [`CryptoError::OutOfLockedMemory`] if there is no locked memory; [`CryptoError::TooLong`]
    /// when there is no key.
    pub fn from_keys(keys: &[SecretKey]) -> Result<Self, CryptoError> {
        let last = keys.last().ok_or(CryptoError::TooLong)?;
        let sealing = column_key(last)?;
        let mut all = BTreeMap::new();
        for key in keys {
            let key = column_key(key)?;
            all.insert(*key.id(), key);
        }
        Ok(Self { all, sealing })
    }

    /// Returns the column key of this id; `None` if it is not one of these.
    pub(crate) fn find(&self, id: &[u8; 16]) -> Option<&ColumnKey> {
        self.all.get(id)
    }

    /// Returns all column keys with their ids, to be released to the zone.
    pub(crate) fn released(&self) -> Vec<([u8; 16], &SecretKey)> {
        self.all.iter().map(|(id, key)| (*id, key.key())).collect()
    }

    /// Returns the column key that new envelopes are sealed under.
    pub(crate) const fn sealing(&self) -> &ColumnKey {
        &self.sealing
    }

    /// Returns the ids of all column keys.
    pub fn ids(&self) -> impl Iterator<Item = [u8; 16]> {
        self.all.keys().copied()
    }
}

/// Derives a column key from a key of the keyring, and returns it with its id: the data owner
/// releases both to the zone.
///
/// # Errors
/// [`CryptoError::OutOfLockedMemory`] if there is no locked memory.
pub fn derive(key: &SecretKey) -> Result<([u8; 16], SecretKey), CryptoError> {
    let key = hkdf(key, &[], COLUMN_LABEL.as_bytes())?;
    Ok((id_of(&key)?, key))
}

/// Derives a column key from a key of the keyring, ready to seal and open envelopes. Fails if there
/// is no locked memory.
fn column_key(key: &SecretKey) -> Result<ColumnKey, CryptoError> {
    let (id, key) = derive(key)?;
    Ok(ColumnKey::new(id, key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_key_is_found_again_and_is_not_its_keyring_key() {
        let root = SecretKey::generate().unwrap();
        let (id, key) = derive(&root).unwrap();
        let (again_id, again) = derive(&root).unwrap();
        assert_eq!(id, again_id);
        assert!(key.ct_eq(&again) && !key.ct_eq(&root));
        let (other, _) = derive(&SecretKey::generate().unwrap()).unwrap();
        assert_ne!(id, other);
        assert!(ColumnKeys::from_keys(&[]).is_err());
    }
}
