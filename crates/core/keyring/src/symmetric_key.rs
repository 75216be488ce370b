//! A secret that both opens key slots and seals them: a passphrase, a raw key, or a named key of a
//! keyring in all its versions.
//!
//! An [`crate::Opener`] and the [`crate::Recipient`] that is made of it share one such secret.
//!
//! Invariants: K1, secrets stay in locked memory; K5, Argon2 runs at most once per secret, salt and
//! cost, because the derived KEK is remembered.
//!
//! Must not: read a file or know where the secret came from.

use std::sync::{Mutex, MutexGuard, PoisonError};

use strongroom_crypto::{SecretBytes, SecretKey, argon2id};
use strongroom_format::code;
use strongroom_format::slot::{Argon2Cost, Slot, SlotKind};

use crate::error::Error;
use crate::slot::{argon2_params, slot_kek};

/// Most derived KEKs that a secret remembers; the oldest is forgotten first.
const REMEMBERED_MAX: usize = 32;

/// A secret that both opens and seals key slots, in locked memory.
pub(crate) struct SymmetricKey {
    material: Material,
    remembered: Mutex<Vec<Remembered>>,
}

/// What the secret is.
pub(crate) enum Material {
    Passphrase {
        secret: SecretBytes,
        /// The same bytes as the raw key that older builds took them for (`material.rs`). Opens
        /// slots, never seals one.
        as_raw: Option<SecretKey>,
    },
    Raw(SecretKey),
    Keyring {
        id: String,
        versions: Vec<KeyVersion>,
    },
}

/// One version of a named key of a keyring.
pub(crate) struct KeyVersion {
    pub(crate) version: u32,
    pub(crate) active: bool,
    pub(crate) key: SecretKey,
}

/// A KEK that Argon2id derived from a passphrase.
struct Remembered {
    salt: [u8; 32],
    cost: Argon2Cost,
    kek: SecretKey,
}

impl SymmetricKey {
    /// Makes a secret of this material that remembers no derived KEK yet.
    pub(crate) fn new(material: Material) -> Self {
        Self {
            material,
            remembered: Mutex::new(Vec::new()),
        }
    }

    /// Returns what the secret is.
    pub(crate) fn material(&self) -> &Material {
        &self.material
    }

    /// Returns `passphrase`, `raw` or `keyring`.
    pub(crate) fn kind_name(&self) -> &'static str {
        match self.material {
            Material::Passphrase { .. } => "passphrase",
            Material::Raw(_) => "raw",
            Material::Keyring { .. } => "keyring",
        }
    }

    /// Returns the kind of a slot that is sealed with this secret: a passphrase slot of this
    /// `cost`, a raw slot, or one for the newest active version of a keyring's key. Errors: SR-2012
    /// when no version is active.
    pub(crate) fn new_slot_kind(&self, cost: Argon2Cost) -> Result<SlotKind, Error> {
        match &self.material {
            Material::Passphrase { .. } => Ok(SlotKind::Passphrase(cost)),
            Material::Raw(_) => Ok(SlotKind::Raw),
            Material::Keyring { id, versions } => versions
                .iter()
                .filter(|version| version.active)
                .map(|version| version.version)
                .max()
                .map(|version| SlotKind::Keyring {
                    id: id.clone(),
                    version,
                })
                .ok_or_else(|| Error::new(&code::KEY_RETIRED, id.as_str())),
        }
    }

    /// Derives the KEK of a slot of this kind and salt. `None` when such a slot is not for this
    /// secret. For a passphrase slot this runs Argon2id unless the KEK is remembered. Errors:
    /// SR-5001 when there is not enough memory.
    pub(crate) fn kek_for(
        &self,
        kind: &SlotKind,
        salt: &[u8; 32],
    ) -> Result<Option<SecretKey>, Error> {
        match (&self.material, kind) {
            (Material::Passphrase { secret, .. }, SlotKind::Passphrase(cost)) => {
                self.argon2_kek(secret, salt, *cost).map(Some)
            }
            (Material::Raw(key), SlotKind::Raw)
            | (
                Material::Passphrase {
                    as_raw: Some(key), ..
                },
                SlotKind::Raw,
            ) => slot_kek(key, salt).map(Some),
            (
                Material::Keyring { id, versions },
                SlotKind::Keyring {
                    id: wanted_id,
                    version: wanted,
                },
            ) if id == wanted_id => versions
                .iter()
                .find(|version| version.version == *wanted)
                .map(|version| slot_kek(&version.key, salt))
                .transpose(),
            _ => Ok(None),
        }
    }

    /// Makes the error for slots of which none opened: SR-2003 when one names a version of our key
    /// that the keyring does not hold, else SR-2002.
    pub(crate) fn wrong_key_error(&self, slots: &[Slot]) -> Error {
        let Material::Keyring { id, versions } = &self.material else {
            return Error::new(&code::WRONG_KEY, format!("{} key", self.kind_name()));
        };
        let missing = slots.iter().find_map(|slot| match &slot.kind {
            SlotKind::Keyring {
                id: wanted,
                version,
            } if wanted == id && versions.iter().all(|known| known.version != *version) => {
                Some(*version)
            }
            _ => None,
        });
        match missing {
            Some(version) => Error::new(&code::UNKNOWN_KEY_ID, format!("{id} version {version}")),
            None => Error::new(&code::WRONG_KEY, format!("key id {id}")),
        }
    }

    /// Derives the KEK from a passphrase with Argon2id, or takes the remembered one of the same
    /// salt and cost. Remembers the last 32. Errors: SR-5001 when there is not enough memory.
    fn argon2_kek(
        &self,
        secret: &SecretBytes,
        salt: &[u8; 32],
        cost: Argon2Cost,
    ) -> Result<SecretKey, Error> {
        let same = |known: &&Remembered| known.salt == *salt && known.cost == cost;
        if let Some(found) = self.remembered().iter().find(same) {
            return Ok(found.kek.try_clone()?);
        }
        // Not under the lock: another thread with another object need not wait for this one's
        // Argon2.
        let kek = argon2id(secret, salt, argon2_params(cost))?;
        let entry = Remembered {
            salt: *salt,
            cost,
            kek: kek.try_clone()?,
        };
        let mut remembered = self.remembered();
        if remembered.len() >= REMEMBERED_MAX {
            remembered.remove(0);
        }
        remembered.push(entry);
        Ok(kek)
    }

    /// Locks and returns the remembered KEKs. A lock that a panicking thread poisoned is taken all
    /// the same: entries are pushed whole.
    fn remembered(&self) -> MutexGuard<'_, Vec<Remembered>> {
        self.remembered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
