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
    /// A passphrase, from which Argon2id derives the KEK of a slot.
    #[must_use]
    pub fn passphrase(secret: SecretBytes) -> Self {
        Self::symmetric(Material::Passphrase {
            secret,
            as_raw: None,
        })
    }

    /// A passphrase of 32 bytes that older builds took for the raw key `as_raw`: opens passphrase
    /// slots and raw slots; its recipient is sealed passphrase slots only.
    /// [`take_text_as_raw_key_warning`] tells when a raw slot was opened so.
    pub(crate) fn passphrase_or_raw(secret: SecretBytes, as_raw: SecretKey) -> Self {
        Self::symmetric(Material::Passphrase {
            secret,
            as_raw: Some(as_raw),
        })
    }

    /// A raw 32-byte key.
    #[must_use]
    pub fn raw(key: SecretKey) -> Self {
        Self::symmetric(Material::Raw(key))
    }

    /// The versions of one key of a keyring.
    pub(crate) fn keyring(id: String, versions: Vec<KeyVersion>) -> Self {
        Self::symmetric(Material::Keyring { id, versions })
    }

    /// The private keys of certificates.
    pub(crate) fn private_keys(keys: Vec<PrivateKey>) -> Self {
        Self(Key::PrivateKeys(Box::new(keys)))
    }

    fn symmetric(material: Material) -> Self {
        Self(Key::Symmetric(Arc::new(SymmetricKey::new(material))))
    }

    /// The recipient whose slots this opener opens. Both share one secret; what Argon2id derived
    /// for one of them is remembered for the other.
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

    /// `passphrase`, `raw`, `keyring`, or `certificate` for private keys.
    #[must_use]
    pub fn kind_name(&self) -> &'static str {
        match &self.0 {
            Key::Symmetric(key) => key.kind_name(),
            Key::PrivateKeys(_) => "certificate",
        }
    }

    /// The bytes that the rule of `material.rs` reads as this key or passphrase. Errors: SR-2019
    /// for another kind.
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

    /// Opens the first slot that this material fits. Errors: SR-2002; SR-2003 when a slot names a
    /// version of our key that the keyring does not hold; SR-2032 when it takes the private key of
    /// a certificate that is not here.
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

    /// The raw key, in tests of what material became.
    #[cfg(test)]
    pub(crate) fn raw_key(&self) -> Option<&SecretKey> {
        match self.material() {
            Some(Material::Raw(key)) => Some(key),
            _ => None,
        }
    }

    /// `None` for private keys.
    fn material(&self) -> Option<&Material> {
        match &self.0 {
            Key::Symmetric(key) => Some(key.material()),
            Key::PrivateKeys(_) => None,
        }
    }

    /// The KEK of a slot, or `None` when the slot is for another opener.
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

/// Which certificates would have opened the object, by id: the private key of any of them helps.
/// SR-2032, or SR-2002 when there is no slot for a certificate whose private key is missing.
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
