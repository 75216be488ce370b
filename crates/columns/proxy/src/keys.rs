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
    /// The column keys of every version of the keyring's key `name`; its newest active version
    /// seals.
    ///
    /// # Errors
    /// Those of the keyring: SR-2003, SR-2012; SR-5001 when the host refuses memory.
    pub fn from_keyring(keyring: &Keyring, name: &str) -> Result<Self, Error> {
        let active = keyring.key(name, None)?;
        let mut keys = Vec::new();
        for info in keyring.list().into_iter().filter(|info| info.name == name) {
            keys.push(keyring.key(name, Some(info.version))?);
        }
        keys.push(active);
        Ok(Self::from_keys(&keys)?)
    }

    /// The column keys of these keys; the last one seals.
    ///
    /// # Errors
    /// [`CryptoError::OutOfLockedMemory`]; [`CryptoError::TooLong`] when there is no key.
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

    /// The key of this id.
    pub(crate) fn find(&self, id: &[u8; 16]) -> Option<&ColumnKey> {
        self.all.get(id)
    }

    /// All keys with their ids, to be released to the zone.
    pub(crate) fn released(&self) -> Vec<([u8; 16], &SecretKey)> {
        self.all.iter().map(|(id, key)| (*id, key.key())).collect()
    }

    /// The key that new envelopes are sealed under.
    pub(crate) const fn sealing(&self) -> &ColumnKey {
        &self.sealing
    }

    /// The ids of all keys.
    pub fn ids(&self) -> impl Iterator<Item = [u8; 16]> {
        self.all.keys().copied()
    }
}

/// The column key that is derived from a key of the keyring, with its id: the data owner releases
/// both to the zone.
///
/// # Errors
/// [`CryptoError::OutOfLockedMemory`].
pub fn derive(key: &SecretKey) -> Result<([u8; 16], SecretKey), CryptoError> {
    let key = hkdf(key, &[], COLUMN_LABEL.as_bytes())?;
    Ok((id_of(&key)?, key))
}

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
