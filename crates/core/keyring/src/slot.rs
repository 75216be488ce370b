//! Key slots: one copy of an object's data key, wrapped under a KEK.
//!
//! Invariant K6: Argon2 costs that a header names are bounded before anything is derived.
//!
//! Must not: know whose KEK it is.

use strongroom_crypto::{Argon2Params, SecretKey, hkdf};
use strongroom_format::aad::Role;
use strongroom_format::header::WrappedKey;
use strongroom_format::slot::{Argon2Cost, Slot, SlotKind};

use crate::error::Error;
use crate::fresh::Fresh;
use crate::purpose::Label;
use crate::wrap::{key_aad, unwrap, wrap};

/// A data key that a slot yielded, and what is needed to follow a rekey (K8).
pub(crate) struct Opened {
    pub(crate) data_key: SecretKey,
    pub(crate) held: HeldSlot,
}

/// The slot that opened an object, or was sealed first, and its KEK.
pub(crate) struct HeldSlot {
    pub(crate) kind: SlotKind,
    pub(crate) salt: [u8; 32],
    pub(crate) kek: SecretKey,
}

impl HeldSlot {
    /// Seals a slot of the same kind, salt and KEK around `data_key`, under a fresh nonce. Errors:
    /// SR-5001 without randomness or memory for keys.
    pub(crate) fn seal(
        &self,
        fresh: &mut dyn Fresh,
        epoch: u32,
        object_id: [u8; 16],
        data_key: &SecretKey,
    ) -> Result<Slot, Error> {
        let nonce = fresh.nonce()?;
        let aad = key_aad(Role::Slot, epoch, object_id).at(u64::from(self.kind.number()));
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

    /// Copies it, the KEK in locked memory too. Errors: SR-5001 when there is no memory for keys.
    pub(crate) fn try_clone(&self) -> Result<Self, Error> {
        Ok(Self {
            kind: self.kind.clone(),
            salt: self.salt,
            kek: self.kek.try_clone()?,
        })
    }
}

/// Unwraps the data key of one slot with its KEK. `None` when the slot does not authenticate under
/// this KEK, epoch and object id. Errors: SR-5001 when there is no memory for keys.
pub(crate) fn open_slot(
    slot: &Slot,
    kek: &SecretKey,
    epoch: u32,
    object_id: [u8; 16],
) -> Result<Option<SecretKey>, Error> {
    let aad = key_aad(Role::Slot, epoch, object_id).at(u64::from(slot.kind.number()));
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

/// Derives the KEK of a slot from a key of 32 bytes, with HKDF-SHA256 and the slot's salt. Errors:
/// SR-5001 when there is no memory for keys.
pub(crate) fn slot_kek(key: &SecretKey, salt: &[u8; 32]) -> Result<SecretKey, Error> {
    Ok(hkdf(key, salt, Label::Slot.info())?)
}

/// Whether the Argon2 costs of the passphrase slots are within bounds, each of them and all
/// together (K6): a header from outside must not cost unbounded memory or time.
pub(crate) fn costs_are_bounded(slots: &[Slot]) -> bool {
    costs(slots).all(|cost| cost.check().is_ok())
        && costs(slots).map(|cost| cost.work()).sum::<u64>() <= Argon2Params::WORK_MAX
}

/// Returns what opening an object with a passphrase costs at most, for a program that reads headers
/// from untrusted servers: the largest memory of a key slot in KiB, and the work of all slots
/// together, in KiB that are filled. Both are zero without a passphrase slot.
#[must_use]
pub fn passphrase_cost(slots: &[Slot]) -> (u32, u64) {
    let largest = costs(slots).map(|cost| cost.m_kib).max().unwrap_or(0);
    (largest, costs(slots).map(|cost| cost.work()).sum())
}

/// Iterates over the Argon2 costs of the passphrase slots; other slots are left out.
fn costs(slots: &[Slot]) -> impl Iterator<Item = Argon2Params> + '_ {
    slots.iter().filter_map(|slot| match slot.kind {
        SlotKind::Passphrase(cost) => Some(argon2_params(cost)),
        _ => None,
    })
}

/// Converts an Argon2 cost from the form of the header to that of the crypto crate. Checks nothing.
pub(crate) fn argon2_params(cost: Argon2Cost) -> Argon2Params {
    Argon2Params {
        m_kib: cost.m_kib,
        t: cost.t,
        p: cost.p,
    }
}
