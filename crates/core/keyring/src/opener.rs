//! An opener: key material that opens key slots and makes new ones.
//!
//! Invariants: K1, secrets stay in locked memory; K5, Argon2 runs at most once per opener, salt and
//! cost, because the derived KEK is remembered, and only under costs within bounds (K6).
//!
//! Must not: read a file or know where the material came from.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use strongroom_crypto::{Argon2Params, Certificate, SecretBytes, SecretKey, argon2id, hkdf};
use strongroom_format::aad::Role;
use strongroom_format::code;
use strongroom_format::hex::hex;
use strongroom_format::slot::{Argon2Cost, Slot, SlotKind};

use crate::error::Error;
use crate::fresh::Fresh;
use crate::purpose::Label;
use crate::recipient::{Public, Recipient, label};
use crate::wrap::{place, unwrap, wrap};
use strongroom_format::header::WrappedKey;

/// Whether a passphrase has opened a slot that an older build made of it without Argon2id.
static TEXT_AS_RAW_KEY: AtomicBool = AtomicBool::new(false);

/// Whether, since the last call, something was opened in this process by a passphrase of 32 bytes
/// that an older build took for a raw key. Whoever opens objects for a user says
/// [`code::TEXT_AS_RAW_KEY`] then.
#[must_use]
pub fn take_text_as_raw_key_warning() -> bool {
    TEXT_AS_RAW_KEY.swap(false, Ordering::Relaxed)
}

/// Most derived keys that an opener remembers; the oldest goes first.
const REMEMBERED_MAX: usize = 32;

/// Key material that opens key slots. Holds its secrets in locked memory.
pub struct Opener {
    material: Material,
    remembered: Mutex<Vec<Remembered>>,
}

enum Material {
    Passphrase {
        secret: SecretBytes,
        cost: Argon2Cost,
        /// The same bytes as the raw key that older builds took them for (`material.rs`). Opens,
        /// never seals.
        as_raw: Option<SecretKey>,
    },
    Raw(SecretKey),
    Keyring {
        id: String,
        versions: Vec<KeyVersion>,
    },
    Certificate(Arc<dyn Recipient>),
}

/// One version of a keyring's key, in an opener.
pub(crate) struct KeyVersion {
    pub(crate) version: u32,
    pub(crate) active: bool,
    pub(crate) key: SecretKey,
}

/// A KEK that was stretched from a passphrase.
struct Remembered {
    salt: [u8; 32],
    cost: Argon2Cost,
    kek: SecretKey,
}

/// A data key that a slot gave up, and what is needed to follow a rekey (K8).
pub(crate) struct Opened {
    pub(crate) data_key: SecretKey,
    pub(crate) held: HeldSlot,
}

/// The slot that opened an object, and its KEK.
pub(crate) struct HeldSlot {
    pub(crate) kind: SlotKind,
    pub(crate) salt: [u8; 32],
    pub(crate) kek: SecretKey,
}

impl Opener {
    /// A passphrase, stretched with Argon2id at the recommended cost (RFC 9106, second choice).
    #[must_use]
    pub fn passphrase(secret: SecretBytes) -> Self {
        Self::passphrase_with(secret, None)
    }

    /// A passphrase of 32 bytes that older builds took for the raw key `as_raw`: makes passphrase
    /// slots, and opens slots of both kinds. [`take_text_as_raw_key_warning`] tells when a raw slot
    /// was opened so.
    pub(crate) fn passphrase_or_raw(secret: SecretBytes, as_raw: SecretKey) -> Self {
        Self::passphrase_with(secret, Some(as_raw))
    }

    fn passphrase_with(secret: SecretBytes, as_raw: Option<SecretKey>) -> Self {
        let cost = Argon2Params::RECOMMENDED;
        let cost = Argon2Cost {
            m_kib: cost.m_kib,
            t: cost.t,
            p: cost.p,
        };
        Self::new(Material::Passphrase {
            secret,
            cost,
            as_raw,
        })
    }

    /// A raw 32-byte key.
    #[must_use]
    pub fn raw(key: SecretKey) -> Self {
        Self::new(Material::Raw(key))
    }

    /// A certificate. Makes slots, for which the public key is enough; opens none: see
    /// [`crate::Keyring::private_keys`].
    #[must_use]
    pub fn certificate(certificate: Certificate) -> Self {
        Self::recipient(Arc::new(Public(certificate)))
    }

    pub(crate) fn recipient(recipient: Arc<dyn Recipient>) -> Self {
        Self::new(Material::Certificate(recipient))
    }

    /// The versions of one key of a keyring.
    pub(crate) fn keyring(id: String, versions: Vec<KeyVersion>) -> Self {
        Self::new(Material::Keyring { id, versions })
    }

    /// The Argon2id cost of the slots that this opener makes. No effect unless it is a passphrase.
    ///
    /// # Errors
    /// SR-2019 when the cost is out of bounds.
    pub fn with_argon2(mut self, params: Argon2Params) -> Result<Self, Error> {
        params
            .check()
            .map_err(|error| Error::new(&code::KEY_OPTION, error.to_string()))?;
        if let Material::Passphrase { cost, .. } = &mut self.material {
            *cost = Argon2Cost {
                m_kib: params.m_kib,
                t: params.t,
                p: params.p,
            };
        }
        Ok(self)
    }

    /// `passphrase`, `raw`, `keyring` or `certificate`.
    #[must_use]
    pub fn kind_name(&self) -> &'static str {
        match self.material {
            Material::Passphrase { .. } => "passphrase",
            Material::Raw(_) => "raw",
            Material::Keyring { .. } => "keyring",
            Material::Certificate(_) => "certificate",
        }
    }

    /// The bytes that the rule of `material.rs` reads as this key or passphrase. Errors: SR-2019
    /// for another kind.
    pub(crate) fn as_material(&self) -> Result<SecretBytes, Error> {
        let (parts, digits);
        let parts: &[&[u8]] = match &self.material {
            Material::Raw(key) => {
                digits = hex_digits(key)?;
                parts = [digits.as_slice(), b""];
                &parts
            }
            // One end of line would be dropped. With it the whole must not have the 32 bytes of a
            // raw key.
            Material::Passphrase { secret, .. } => {
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

    /// A second opener with the same material, also in locked memory.
    ///
    /// # Errors
    /// SR-5001 when there is no memory for keys.
    pub fn try_clone(&self) -> Result<Self, Error> {
        let material = match &self.material {
            Material::Passphrase {
                secret,
                cost,
                as_raw,
            } => {
                let mut copy = SecretBytes::with_capacity(secret.len())?;
                copy.as_mut_slice().copy_from_slice(secret.as_slice());
                let as_raw = as_raw.as_ref().map(SecretKey::try_clone).transpose()?;
                Material::Passphrase {
                    secret: copy,
                    cost: *cost,
                    as_raw,
                }
            }
            Material::Raw(key) => Material::Raw(key.try_clone()?),
            Material::Keyring { id, versions } => Material::Keyring {
                id: id.clone(),
                versions: versions
                    .iter()
                    .map(KeyVersion::try_clone)
                    .collect::<Result<_, _>>()?,
            },
            Material::Certificate(recipient) => Material::Certificate(Arc::clone(recipient)),
        };
        let copy = Self::new(material);
        for known in self.remembered().iter() {
            copy.remember(known.salt, known.cost, &known.kek)?;
        }
        Ok(copy)
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
            let Some(kek) = self.kek_for(&slot.kind, &slot.salt, object_id)? else {
                continue;
            };
            if let Some(data_key) = open_slot(slot, &kek, epoch, object_id)? {
                if matches!(self.material, Material::Passphrase { .. })
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
        Err(self.why_none_opened(slots))
    }

    /// Makes a slot for `data_key`. Errors: SR-2012 when the key is retired.
    pub(crate) fn seal(
        &self,
        fresh: &mut dyn Fresh,
        epoch: u32,
        object_id: [u8; 16],
        data_key: &SecretKey,
    ) -> Result<(Slot, HeldSlot), Error> {
        let salt = fresh.salt()?;
        let (kind, kek) = match &self.material {
            Material::Certificate(recipient) => {
                let secret = fresh.key()?;
                let (id, encrypted) = recipient.encrypted(&secret, &label(object_id))?;
                let kind = SlotKind::Certificate {
                    id,
                    secret: encrypted,
                };
                (kind, expanded(&secret, &salt)?)
            }
            _ => {
                let kind = self.new_slot_kind()?;
                let kek = self.kek_for(&kind, &salt, object_id)?;
                (kind, kek.ok_or_else(|| Error::new(&code::BUG, "no KEK"))?)
            }
        };
        let held = HeldSlot { kind, salt, kek };
        let slot = held.slot(fresh, epoch, object_id, data_key)?;
        Ok((slot, held))
    }

    /// The raw key, in tests of what material became.
    #[cfg(test)]
    pub(crate) fn raw_key(&self) -> Option<&SecretKey> {
        match &self.material {
            Material::Raw(key) => Some(key),
            _ => None,
        }
    }

    fn new(material: Material) -> Self {
        Self {
            material,
            remembered: Mutex::new(Vec::new()),
        }
    }

    fn new_slot_kind(&self) -> Result<SlotKind, Error> {
        match &self.material {
            Material::Passphrase { cost, .. } => Ok(SlotKind::Passphrase(*cost)),
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
            // Its slots hold more than a kind: see `seal`.
            Material::Certificate(_) => Err(Error::new(&code::BUG, "a slot without its secret")),
        }
    }

    /// The KEK for a slot of this kind, or `None` when the slot is for another kind of opener.
    fn kek_for(
        &self,
        kind: &SlotKind,
        salt: &[u8; 32],
        object_id: [u8; 16],
    ) -> Result<Option<SecretKey>, Error> {
        match (&self.material, kind) {
            (Material::Passphrase { secret, .. }, SlotKind::Passphrase(cost)) => {
                self.stretched(secret, salt, *cost).map(Some)
            }
            (Material::Raw(key), SlotKind::Raw)
            | (
                Material::Passphrase {
                    as_raw: Some(key), ..
                },
                SlotKind::Raw,
            ) => expanded(key, salt).map(Some),
            (
                Material::Keyring { id, versions },
                SlotKind::Keyring {
                    id: wanted_id,
                    version: wanted,
                },
            ) if id == wanted_id => versions
                .iter()
                .find(|version| version.version == *wanted)
                .map(|version| expanded(&version.key, salt))
                .transpose(),
            (Material::Certificate(recipient), SlotKind::Certificate { id, secret }) => recipient
                .opened(id, secret, &label(object_id))
                .map(|secret| expanded(&secret, salt))
                .transpose(),
            _ => Ok(None),
        }
    }

    fn stretched(
        &self,
        secret: &SecretBytes,
        salt: &[u8; 32],
        cost: Argon2Cost,
    ) -> Result<SecretKey, Error> {
        let known = |known: &&Remembered| known.salt == *salt && known.cost == cost;
        if let Some(found) = self.remembered().iter().find(known) {
            return Ok(found.kek.try_clone()?);
        }
        // Not under the lock: another thread with another object need not wait for this one's
        // Argon2.
        let kek = argon2id(secret, salt, params(cost))?;
        self.remember(*salt, cost, &kek)?;
        Ok(kek)
    }

    fn remember(&self, salt: [u8; 32], cost: Argon2Cost, kek: &SecretKey) -> Result<(), Error> {
        let entry = Remembered {
            salt,
            cost,
            kek: kek.try_clone()?,
        };
        let mut remembered = self.remembered();
        if remembered.len() >= REMEMBERED_MAX {
            remembered.remove(0);
        }
        remembered.push(entry);
        Ok(())
    }

    fn remembered(&self) -> MutexGuard<'_, Vec<Remembered>> {
        // Entries are pushed whole: a thread that panicked left nothing half done.
        self.remembered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn why_none_opened(&self, slots: &[Slot]) -> Error {
        if let Material::Keyring { id, versions } = &self.material {
            let missing = slots.iter().find_map(|slot| match &slot.kind {
                SlotKind::Keyring {
                    id: wanted,
                    version,
                } if wanted == id && versions.iter().all(|known| known.version != *version) => {
                    Some(*version)
                }
                _ => None,
            });
            return match missing {
                Some(version) => {
                    Error::new(&code::UNKNOWN_KEY_ID, format!("{id} version {version}"))
                }
                None => Error::new(&code::WRONG_KEY, format!("key id {id}")),
            };
        }
        if let Material::Certificate(recipient) = &self.material {
            return certificates_wanted(slots, &**recipient);
        }
        Error::new(&code::WRONG_KEY, format!("{} key", self.kind_name()))
    }
}

/// Which certificates would have opened it, by id: the private key of any of them helps.
fn certificates_wanted(slots: &[Slot], ours: &dyn Recipient) -> Error {
    let id = |slot: &Slot| match &slot.kind {
        SlotKind::Certificate { id, .. } if !ours.holds(id) => Some(hex(id)),
        _ => None,
    };
    let ids: Vec<String> = slots.iter().filter_map(id).collect();
    match ids.as_slice() {
        [] => Error::new(&code::WRONG_KEY, "certificates"),
        ids => Error::new(&code::CERT_NEEDED, format!("one of {}", ids.join(", "))),
    }
}

impl HeldSlot {
    /// A slot of the same kind, salt and KEK around `data_key`, under a fresh nonce.
    pub(crate) fn slot(
        &self,
        fresh: &mut dyn Fresh,
        epoch: u32,
        object_id: [u8; 16],
        data_key: &SecretKey,
    ) -> Result<Slot, Error> {
        let nonce = fresh.nonce()?;
        let aad = place(Role::Slot, epoch, object_id).at(u64::from(self.kind.number()));
        let wrapped = wrap(&self.kek, nonce, &aad, data_key)?;
        let mut joined = [0; 48];
        let (key, tag) = joined.split_at_mut(wrapped.key.len());
        key.copy_from_slice(&wrapped.key);
        tag.copy_from_slice(&wrapped.tag);
        Ok(Slot {
            kind: self.kind.clone(),
            salt: self.salt,
            nonce,
            wrapped: joined,
        })
    }

    pub(crate) fn try_clone(&self) -> Result<Self, Error> {
        Ok(Self {
            kind: self.kind.clone(),
            salt: self.salt,
            kek: self.kek.try_clone()?,
        })
    }
}

impl KeyVersion {
    fn try_clone(&self) -> Result<Self, Error> {
        Ok(Self {
            version: self.version,
            active: self.active,
            key: self.key.try_clone()?,
        })
    }
}

/// Opens one slot with its KEK. `None` when it does not authenticate.
pub(crate) fn open_slot(
    slot: &Slot,
    kek: &SecretKey,
    epoch: u32,
    object_id: [u8; 16],
) -> Result<Option<SecretKey>, Error> {
    let aad = place(Role::Slot, epoch, object_id).at(u64::from(slot.kind.number()));
    let (mut key, mut tag) = ([0; 32], [0; 16]);
    let (wrapped_key, wrapped_tag) = slot.wrapped.split_at(key.len());
    key.copy_from_slice(wrapped_key);
    tag.copy_from_slice(wrapped_tag);
    unwrap(
        kek,
        &aad,
        &WrappedKey {
            nonce: slot.nonce,
            key,
            tag,
        },
    )
}

/// A key as hexadecimal digits, in locked memory.
fn hex_digits(key: &SecretKey) -> Result<SecretBytes, Error> {
    let mut digits = SecretBytes::with_capacity(64)?;
    let pairs = digits.as_mut_slice().chunks_exact_mut(2);
    for (pair, byte) in pairs.zip(key.expose()) {
        for (digit, nibble) in pair.iter_mut().zip([byte >> 4, byte & 0xf]) {
            let base = if nibble < 10 {
                b'0'
            } else {
                b'a'.wrapping_sub(10)
            };
            *digit = base.wrapping_add(nibble);
        }
    }
    Ok(digits)
}

/// Whether the Argon2 costs are within bounds, each of them and all together (K6): a header from
/// outside must not cost unbounded memory or time.
pub(crate) fn costs_are_bounded(slots: &[Slot]) -> bool {
    costs(slots).all(|cost| cost.check().is_ok())
        && costs(slots).map(|cost| cost.work()).sum::<u64>() <= Argon2Params::WORK_MAX
}

/// What opening an object with a passphrase costs at most, for one that reads headers of strangers:
/// the largest memory of a key slot in KiB, and the work of all slots in KiB that are filled.
#[must_use]
pub fn passphrase_cost(slots: &[Slot]) -> (u32, u64) {
    let largest = costs(slots).map(|cost| cost.m_kib).max().unwrap_or(0);
    (largest, costs(slots).map(|cost| cost.work()).sum())
}

fn costs(slots: &[Slot]) -> impl Iterator<Item = Argon2Params> + '_ {
    slots.iter().filter_map(|slot| match slot.kind {
        SlotKind::Passphrase(cost) => Some(params(cost)),
        _ => None,
    })
}

fn expanded(key: &SecretKey, salt: &[u8; 32]) -> Result<SecretKey, Error> {
    Ok(hkdf(key, salt, Label::Slot.info())?)
}

fn params(cost: Argon2Cost) -> Argon2Params {
    Argon2Params {
        m_kib: cost.m_kib,
        t: cost.t,
        p: cost.p,
    }
}
