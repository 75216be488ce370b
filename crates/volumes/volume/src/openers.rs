//! Who may open a volume: slots added, removed, and told apart.
//!
//! Invariants: V8, the last slot that opens the volume is never removed, nor the last recovery key
//! unless that is insisted on;
//! V9, a slot gets its token after it was tried, and loses it with the slot.
//!
//! Must not: ask for a secret.

use strongroom_crypto::SecretBytes;
use strongroom_format::code;
use strongroom_keyring::Error;

use crate::device::{Stretch, Volume};
use crate::header::{Kind, Metadata};
use crate::token::{Token, recovery_json};

/// Which slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// This one.
    Slot(u32),
    /// All of this kind.
    Kind(Kind),
}

/// Adds a passphrase. `secret` opens the volume already. Returns the slot.
///
/// # Errors
/// SR-2002, SR-8324.
pub fn add_passphrase(
    volume: &mut Volume,
    secret: &SecretBytes,
    new: &SecretBytes,
) -> Result<u32, Error> {
    check_quiet(&volume.metadata()?)?;
    volume.add_slot(secret, new, Stretch::Person)
}

/// Adds a recovery key.
///
/// # Errors
/// As [`add_passphrase`].
pub fn add_recovery(
    volume: &mut Volume,
    secret: &SecretBytes,
    new: &SecretBytes,
) -> Result<u32, Error> {
    check_quiet(&volume.metadata()?)?;
    let slot = volume.add_slot(secret, new, Stretch::Person)?;
    name_recovery(volume, slot)?;
    Ok(slot)
}

/// Adds a slot for key material, and the token, which then names this key; slots of another key
/// lose theirs.
///
/// # Errors
/// As [`add_passphrase`].
pub fn add_material(
    volume: &mut Volume,
    secret: &SecretBytes,
    new: &SecretBytes,
    token: &Token,
) -> Result<u32, Error> {
    let metadata = volume.metadata()?;
    check_quiet(&metadata)?;
    // A damaged token of ours is written over; it named nothing that works.
    let number = metadata.tokens.iter().find(|(_, json)| {
        json.get("type").and_then(|kind| kind.as_str()) == Some(crate::token::TYPE)
    });
    let number = number.map(|(number, _)| *number);
    let slot = volume.add_slot(secret, new, Stretch::Machine)?;
    let mut token = token.clone();
    token.slots = vec![slot];
    volume.set_token(number, &token.json()?)?;
    Ok(slot)
}

/// Writes the token of recovery keys so that it names `slot` too.
pub(crate) fn name_recovery(volume: &mut Volume, slot: u32) -> Result<(), Error> {
    let (number, mut slots) = match volume.metadata()?.recovery_token() {
        Some((number, slots)) => (Some(number), slots),
        None => (None, Vec::new()),
    };
    if !slots.contains(&slot) {
        slots.push(slot);
    }
    volume.set_token(number, &recovery_json(&slots))
}

/// Removes slots. Returns which.
///
/// # Errors
/// SR-8330 when there is none; SR-8325 (V8).
pub fn remove(volume: &mut Volume, which: Which, force: bool) -> Result<Vec<u32>, Error> {
    let metadata = volume.metadata()?;
    check_quiet(&metadata)?;
    let all = metadata.key_slots();
    let going: Vec<u32> = all
        .iter()
        .copied()
        .filter(|slot| match which {
            Which::Slot(wanted) => *slot == wanted,
            Which::Kind(kind) => metadata.kind(*slot) == kind,
        })
        .collect();
    if going.is_empty() {
        let detail = match which {
            Which::Slot(slot) => format!("slot {slot}"),
            Which::Kind(kind) => kind.name().to_owned(),
        };
        return Err(Error::new(&code::VOLUME_SLOT, detail));
    }
    let left = |kind: Option<Kind>| {
        metadata.bound_slots().iter().any(|slot| {
            !going.contains(slot) && kind.is_none_or(|kind| metadata.kind(*slot) == kind)
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
        .any(|slot| metadata.kind(*slot) == Kind::Recovery);
    if takes_recovery && !left(Some(Kind::Recovery)) && !force {
        return Err(Error::new(
            &code::VOLUME_LAST_OPENER,
            "no recovery key would be left",
        ));
    }
    for slot in &going {
        volume.remove_slot(*slot)?;
    }
    tidy_tokens(volume)?;
    Ok(going)
}

/// V9: removes tokens, ours and of recovery keys, that name no slot any more.
pub(crate) fn tidy_tokens(volume: &mut Volume) -> Result<(), Error> {
    let metadata = volume.metadata()?;
    for (number, token) in &metadata.tokens {
        let kind = token.get("type").and_then(|kind| kind.as_str());
        let types = [
            crate::token::TYPE,
            crate::token::RECOVERY_TYPE,
            crate::tpm::TYPE,
        ];
        let ours = kind.is_some_and(|kind| types.contains(&kind));
        let slots = token.get("keyslots").and_then(|slots| slots.as_array());
        if ours && slots.is_some_and(Vec::is_empty) {
            volume.remove_token(*number)?;
        }
    }
    Ok(())
}

/// Slots do not change while the volume is re-encrypted.
pub(crate) fn check_quiet(metadata: &Metadata) -> Result<(), Error> {
    if metadata.is_reencrypting() {
        return Err(Error::new(&code::VOLUME_ROTATING, "its header says so"));
    }
    Ok(())
}
