//! An opener: key material that opens key slots.
//!
//! Invariant K1: secrets stay in locked memory.
//!
//! Must not: seal a slot (see [`Opener::recipient`]); read a file or know where the material came
//! from.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use strongroom_crypto::{PrivateKey, SecretBytes, SecretKey};
use strongroom_format::code;
use strongroom_format::hex::hex;
use strongroom_format::slot::{Slot, SlotKind};

use crate::certificate_slot::{DecryptSecret, oaep_label};
use crate::error::Error;
use crate::recipient::Recipient;
use crate::secret_hex::secret_hex;
use crate::slot::{HeldSlot, Opened, open_slot, slot_kek};
use crate::symmetric_key::{KeyVersion, Material, SymmetricKey};

/// Whether a passphrase has opened a slot that an older build made of it without Argon2id.
static TEXT_AS_RAW_KEY: AtomicBool = AtomicBool::new(false);

/// Whether, since the last call, something was opened in this process by a passphrase of 32 bytes
/// that an older build took for a raw key. The next call returns false unless that happens again.
/// A program that opens objects for a user then shows the warning [`code::TEXT_AS_RAW_KEY`].
#[must_use]
pub fn take_text_as_raw_key_warning() -> bool {
    TEXT_AS_RAW_KEY.swap(false, Ordering::Relaxed)
}

/// Key material that opens key slots. Holds its secrets in locked memory.
pub struct Opener(Key);

enum Key {
    Symmetric(Arc<SymmetricKey>),
    PrivateKeys(Box<dyn DecryptSecret>),
}

impl Opener {
    /// Makes an opener of a passphrase, from which Argon2id derives the KEK of a slot.
    #[must_use]
    pub fn passphrase(secret: SecretBytes) -> Self {
        Self::symmetric(Material::Passphrase {
            secret,
            as_raw: None,
        })
    }

    /// Makes an opener of a passphrase of 32 bytes that older builds took for the raw key `as_raw`:
    /// it opens passphrase slots and raw slots, but its recipient is sealed passphrase slots only.
    /// After it has opened a raw slot, [`take_text_as_raw_key_warning`] returns true.
    pub(crate) fn passphrase_or_raw(secret: SecretBytes, as_raw: SecretKey) -> Self {
        Self::symmetric(Material::Passphrase {
            secret,
            as_raw: Some(as_raw),
        })
    }

    /// Makes an opener of a raw 32-byte key.
    #[must_use]
    pub fn raw(key: SecretKey) -> Self {
        Self::symmetric(Material::Raw(key))
    }

    /// Makes an opener of the versions of the keyring's key `id`.
    pub(crate) fn keyring(id: String, versions: Vec<KeyVersion>) -> Self {
        Self::symmetric(Material::Keyring { id, versions })
    }

    /// Makes an opener of the private keys of certificates.
    pub(crate) fn private_keys(keys: Vec<PrivateKey>) -> Self {
        Self(Key::PrivateKeys(Box::new(keys)))
    }

    /// Makes an opener of a secret that can both open and seal key slots.
    fn symmetric(material: Material) -> Self {
        Self(Key::Symmetric(Arc::new(SymmetricKey::new(material))))
    }

    /// Returns the recipient whose slots this opener opens. Both share one secret, and the keys
    /// that Argon2id has derived from it for slots, which takes long.
    ///
    /// # Errors
    /// SR-2019 for private keys: a slot is sealed for a certificate, which must be named.
    pub fn recipient(&self) -> Result<Recipient, Error> {
        match &self.0 {
            Key::Symmetric(key) => Ok(Recipient::symmetric(Arc::clone(key))),
            Key::PrivateKeys(_) => {
                let detail = "private keys open; name the certificate to seal for";
                Err(Error::new(&code::KEY_OPTION, detail))
            }
        }
    }

    /// Returns `passphrase`, `raw`, `keyring`, or `certificate` for private keys.
    #[must_use]
    pub fn kind_name(&self) -> &'static str {
        match &self.0 {
            Key::Symmetric(key) => key.kind_name(),
            Key::PrivateKeys(_) => "certificate",
        }
    }

    /// Returns bytes of which [`interpret`](crate::material::interpret) makes this raw key or
    /// passphrase again: 64 hexadecimal digits, or the passphrase, with a line end after it where
    /// its own would be dropped. Errors: SR-2019 for a keyring's key and for private keys; SR-5001
    /// when the system reports an error.
    pub(crate) fn as_material(&self) -> Result<SecretBytes, Error> {
        let (parts, digits);
        let parts: &[&[u8]] = match self.material() {
            Some(Material::Raw(key)) => {
                digits = secret_hex(key.expose())?;
                parts = [digits.as_slice(), b""];
                &parts
            }
            // One end of line would be dropped. With it the whole must not have the 32 bytes of a
            // raw key.
            Some(Material::Passphrase { secret, .. }) => {
                let end: &[u8] = match secret.as_slice() {
                    bytes if !bytes.ends_with(b"\n") => b"",
                    bytes if bytes.len() == 31 => b"\r\n",
                    _ => b"\n",
                };
                parts = [secret.as_slice(), end];
                &parts
            }
            _ => {
                let detail = "a root key is a raw key or a passphrase";
                return Err(Error::new(&code::KEY_OPTION, detail));
            }
        };
        let len = parts
            .iter()
            .map(|part| part.len())
            .fold(0, usize::saturating_add);
        let mut material = SecretBytes::with_capacity(len)?;
        let bytes = parts.iter().flat_map(|part| part.iter());
        for (to, from) in material.as_mut_slice().iter_mut().zip(bytes) {
            *to = *from;
        }
        Ok(material)
    }

    /// Tries the slots in order, and returns the data key of the first one that opens. May run
    /// Argon2id for each passphrase slot. Sets the flag of [`take_text_as_raw_key_warning`] when a
    /// passphrase opened a raw slot. Errors when none opens: SR-2003 if a slot names a version of
    /// our key that the keyring does not hold; SR-2032 if one is for a certificate whose private
    /// key is not here; else SR-2002. SR-5001 when there is not enough memory.
    pub(crate) fn open(
        &self,
        slots: &[Slot],
        epoch: u32,
        object_id: [u8; 16],
    ) -> Result<Opened, Error> {
        for slot in slots {
            let Some(kek) = self.kek_for(slot, object_id)? else {
                continue;
            };
            if let Some(data_key) = open_slot(slot, &kek, epoch, object_id)? {
                if matches!(self.material(), Some(Material::Passphrase { .. }))
                    && slot.kind == SlotKind::Raw
                {
                    TEXT_AS_RAW_KEY.store(true, Ordering::Relaxed);
                }
                let held = HeldSlot {
                    kind: slot.kind.clone(),
                    salt: slot.salt,
                    kek,
                };
                return Ok(Opened { data_key, held });
            }
        }
        Err(match &self.0 {
            Key::Symmetric(key) => key.wrong_key_error(slots),
            Key::PrivateKeys(keys) => certificate_needed_error(slots, &**keys),
        })
    }

    /// Returns the raw key, for tests of what material became. `None` for any other opener.
    #[cfg(test)]
    pub(crate) fn raw_key(&self) -> Option<&SecretKey> {
        match self.material() {
            Some(Material::Raw(key)) => Some(key),
            _ => None,
        }
    }

    /// Returns the secret of this opener; `None` for private keys.
    fn material(&self) -> Option<&Material> {
        match &self.0 {
            Key::Symmetric(key) => Some(key.material()),
            Key::PrivateKeys(_) => None,
        }
    }

    /// Derives the key that unwraps a slot (KEK). `None` when the slot is for another opener, or a
    /// private key does not decrypt its secret. Runs Argon2id for a passphrase slot. Errors:
    /// SR-5001 when there is not enough memory.
    fn kek_for(&self, slot: &Slot, object_id: [u8; 16]) -> Result<Option<SecretKey>, Error> {
        match (&self.0, &slot.kind) {
            (Key::Symmetric(key), kind) => key.kek_for(kind, &slot.salt),
            (Key::PrivateKeys(keys), SlotKind::Certificate { id, secret }) => keys
                .decrypt(id, secret, &oaep_label(object_id))
                .map(|secret| slot_kek(&secret, &slot.salt))
                .transpose(),
            (Key::PrivateKeys(_), _) => Ok(None),
        }
    }
}

/// Makes the error for private keys of which none opened a slot: SR-2032 with the ids of the
/// certificates whose private keys are missing here; SR-2002 when no slot is for such a
/// certificate.
fn certificate_needed_error(slots: &[Slot], keys: &dyn DecryptSecret) -> Error {
    let id = |slot: &Slot| match &slot.kind {
        SlotKind::Certificate { id, .. } if !keys.holds(id) => Some(hex(id)),
        _ => None,
    };
    let ids: Vec<String> = slots.iter().filter_map(id).collect();
    match ids.as_slice() {
        [] => Error::new(&code::WRONG_KEY, "certificates"),
        ids => Error::new(&code::CERT_NEEDED, format!("one of {}", ids.join(", "))),
    }
}
