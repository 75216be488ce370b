//! The openers of a volume: key slots added, removed, and told apart.
//!
//! Invariants: V8, the last slot that opens the volume is never removed, nor the last recovery key
//! unless the caller insists; V9, a token names a slot only after the slot was tried, and is
//! removed when it names none.
//!
//! Must not: ask for a secret.

use strongroom_crypto::SecretBytes;
use strongroom_format::code;
use strongroom_keyring::Error;
use strongroom_luks2::{
    Metadata, OpenedBy, RECOVERY_TYPE, STRONGROOM_TYPE, StrongroomToken, TPM_TYPE, recovery_token,
};

use crate::create::new_token;
use crate::device::{Stretch, Volume};
use crate::keys::Keys;
use crate::secret::slot_secret;

/// Which slots are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// This one.
    Slot(u32),
    /// All slots with this opener.
    OpenedBy(OpenedBy),
}

/// Adds a slot for the passphrase `new`; `secret` opens the volume already. Returns the slot.
///
/// # Errors
/// SR-2002 when `secret` opens no slot; SR-8328 while the volume is re-encrypted; SR-8340 for a
/// cipher that is not known to be safe, SR-8307 when trying a slot would cost too much; SR-8324
/// when libcryptsetup fails.
pub fn add_passphrase(
    volume: &mut Volume,
    secret: &SecretBytes,
    new: &SecretBytes,
) -> Result<u32, Error> {
    check_not_reencrypting(&volume.metadata()?)?;
    volume.add_slot(secret, new, Stretch::Person)
}

/// Adds a slot for the recovery key `new`, and names it in the token of recovery keys. Returns the
/// slot.
///
/// # Errors
/// SR-2002 when `secret` opens no slot; SR-8328 while the volume is re-encrypted; SR-8340 for a
/// cipher that is not known to be safe, SR-8307 when trying a slot would cost too much; SR-8324
/// when libcryptsetup fails.
pub fn add_recovery(
    volume: &mut Volume,
    secret: &SecretBytes,
    new: &SecretBytes,
) -> Result<u32, Error> {
    check_not_reencrypting(&volume.metadata()?)?;
    let slot = volume.add_slot(secret, new, Stretch::Person)?;
    name_recovery(volume, slot)?;
    Ok(slot)
}

/// Adds a slot for the passphrase `new` that a key makes, and has the Strongroom token name this
/// key and this slot only. Slots of another key keep opening the volume, but no token names them.
/// Returns the slot.
///
/// # Errors
/// SR-2002 when `secret` opens no slot; SR-8328 while the volume is re-encrypted; SR-8340 for a
/// cipher that is not known to be safe, SR-8307 when trying a slot would cost too much; SR-8324
/// when libcryptsetup fails.
pub fn add_material(
    volume: &mut Volume,
    secret: &SecretBytes,
    new: &SecretBytes,
    token: &StrongroomToken,
) -> Result<u32, Error> {
    let metadata = volume.metadata()?;
    check_not_reencrypting(&metadata)?;
    // A damaged Strongroom token is written over: it named nothing that works.
    let mut tokens = metadata.tokens.iter();
    let number = tokens.find(|(_, token)| token.kind == STRONGROOM_TYPE);
    let number = number.map(|(number, _)| *number);
    let slot = volume.add_slot(secret, new, Stretch::Machine)?;
    let mut token = token.clone();
    token.slots = vec![slot];
    volume.set_token(number, &token.json())?;
    Ok(slot)
}

/// Adds a slot for the newest version of the key `key_id`, which is made when there is none of that
/// name, and has the Strongroom token name it, as [`add_material`]. The volume keeps its object id,
/// if it has a Strongroom token that can be read. Returns the slot.
///
/// # Errors
/// SR-2012 when all versions of the key are retired; what the key's source reports, such as SR-2004
/// without a keyring or SR-8402 when no key server answers; SR-2002 when `secret` opens no slot,
/// and the others of [`add_material`].
pub fn add_key(
    volume: &mut Volume,
    secret: &SecretBytes,
    keys: &mut dyn Keys,
    key_id: &str,
) -> Result<u32, Error> {
    let before = volume.metadata()?.strongroom_token().ok().flatten();
    let material = keys.fetch_or_create(key_id)?;
    let mut token = new_token(keys, key_id, material.version)?;
    if let Some((_, before)) = before {
        token.object_id = before.object_id;
    }
    let new = slot_secret(&material.key, &token.object_id)?;
    add_material(volume, secret, &new, &token)
}

/// Returns whether no recovery key opens the volume: when the TPM's state changes, or its board
/// breaks, nothing might.
///
/// # Errors
/// SR-8324 when libcryptsetup fails.
pub fn lacks_recovery_key(volume: &mut Volume) -> Result<bool, Error> {
    let metadata = volume.metadata()?;
    let slots = metadata.bound_slots();
    let mut openers = slots.iter().map(|slot| metadata.opened_by(*slot));
    Ok(!openers.any(|opener| opener == OpenedBy::Recovery))
}

/// Adds `slot` to the token of recovery keys, and makes that token when there is none. SR-8324 when
/// libcryptsetup fails.
pub(crate) fn name_recovery(volume: &mut Volume, slot: u32) -> Result<(), Error> {
    let (number, mut slots) = match volume.metadata()?.recovery_token() {
        Some((number, slots)) => (Some(number), slots),
        None => (None, Vec::new()),
    };
    if !slots.contains(&slot) {
        slots.push(slot);
    }
    volume.set_token(number, &recovery_token(&slots))
}

/// Destroys slots, and removes tokens that then name none. Returns the removed slots. `force` lets
/// the last recovery key be removed.
///
/// # Errors
/// SR-8330 when there is no such slot; SR-8325 when no slot that opens the volume would be left, or
/// no recovery key without `force`; SR-8328 while the volume is re-encrypted; SR-8324 when
/// libcryptsetup fails.
pub fn remove(volume: &mut Volume, which: Which, force: bool) -> Result<Vec<u32>, Error> {
    let metadata = volume.metadata()?;
    check_not_reencrypting(&metadata)?;
    let all = metadata.key_slots();
    let going: Vec<u32> = all
        .iter()
        .copied()
        .filter(|slot| match which {
            Which::Slot(wanted) => *slot == wanted,
            Which::OpenedBy(opener) => metadata.opened_by(*slot) == opener,
        })
        .collect();
    if going.is_empty() {
        let detail = match which {
            Which::Slot(slot) => format!("slot {slot}"),
            Which::OpenedBy(opener) => opener.name().to_owned(),
        };
        return Err(Error::new(&code::VOLUME_SLOT, detail));
    }
    let left = |opener: Option<OpenedBy>| {
        metadata.bound_slots().iter().any(|slot| {
            let is_meant = opener.is_none_or(|opener| metadata.opened_by(*slot) == opener);
            is_meant && !going.contains(slot)
        })
    };
    if !left(None) {
        return Err(Error::new(
            &code::VOLUME_LAST_OPENER,
            "no key slot would be left",
        ));
    }
    let takes_recovery = going
        .iter()
        .any(|slot| metadata.opened_by(*slot) == OpenedBy::Recovery);
    if takes_recovery && !left(Some(OpenedBy::Recovery)) && !force {
        return Err(Error::new(
            &code::VOLUME_LAST_OPENER,
            "no recovery key would be left",
        ));
    }
    for slot in &going {
        volume.remove_slot(*slot)?;
    }
    remove_empty_tokens(volume)?;
    Ok(going)
}

/// Removes Strongroom tokens, also those of TPMs, and tokens of recovery keys that name no slot.
/// SR-8324 when libcryptsetup fails.
pub(crate) fn remove_empty_tokens(volume: &mut Volume) -> Result<(), Error> {
    let metadata = volume.metadata()?;
    for (number, token) in &metadata.tokens {
        let types = [STRONGROOM_TYPE, RECOVERY_TYPE, TPM_TYPE];
        if types.contains(&token.kind.as_str()) && token.keyslots.is_empty() {
            volume.remove_token(*number)?;
        }
    }
    Ok(())
}

/// Refuses a change of slots while the volume is re-encrypted: SR-8328.
pub(crate) fn check_not_reencrypting(metadata: &Metadata) -> Result<(), Error> {
    if metadata.is_reencrypting() {
        return Err(Error::new(&code::VOLUME_ROTATING, "its header says so"));
    }
    Ok(())
}
