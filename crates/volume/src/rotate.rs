//! Changes the key that opens a volume, and leaves its data as they are.
//!
//! Order, each step durable before the next: a new version of the key; a slot for it, tried; the token names it; the old slot
//! goes. Invariant V13: at every point between, the volume opens with what its token names, and the same command finishes:
//! a slot that no token names and that a version of the key opens is a step of ours, done before somebody was stopped.
//!
//! Must not: touch slots of people.

use strongroom_crypto::SecretBytes;
use strongroom_format::code;
use strongroom_keyring::Error;

use crate::device::{Stretch, Volume};
use crate::keys::{Keys, Material};
use crate::openers::check_quiet;
use crate::secret::slot_secret;
use crate::token::Token;

/// How many older versions a leftover slot is looked for under.
const OLDER_TRIED_MAX: u32 = 16;

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotated {
    /// The version before.
    pub from: u32,
    /// The version that opens it now.
    pub to: u32,
    /// Whether this finished what was begun before.
    pub finished: bool,
}

/// A new version of the key opens the volume, and the one before no longer does.
///
/// # Errors
/// SR-8323 without a token, SR-8328, what the keyring or server reports.
pub fn slots(volume: &mut Volume, keys: &mut dyn Keys) -> Result<Rotated, Error> {
    let metadata = volume.metadata()?;
    check_quiet(&metadata)?;
    let token = volume.token()?;
    let from = token.key_version;
    if let Some(rotated) = finish(volume, keys, &token)? {
        return Ok(rotated);
    }
    let secret = opening(volume, keys, &token)?;
    let newest = keys.fetch(&token.key_id, None)?;
    // A newer version that there is already was made by this command, stopped; or by somebody who wants it used.
    let began = newest.version > from;
    let new = if began { newest } else { keys.rotate(&token.key_id)? };
    if new.version <= from {
        let detail = format!("{} has no version after {from}", token.key_id);
        return Err(Error::new(&code::UNKNOWN_KEY_ID, detail));
    }
    let new_secret = slot_secret(&new.key, &token.object_id)?;
    let machine = volume.metadata()?.machine_slots();
    let there = if began { volume.opens(&machine, &new_secret)? } else { None };
    let slot = match there {
        Some(slot) => slot,
        None => volume.add_slot(&secret, &new_secret, Stretch::Machine)?,
    };
    name(volume, &token, &new, slot)?;
    for old in machine_slots_of(volume, &secret, slot)? {
        volume.remove_slot(old)?;
    }
    Ok(Rotated {
        from,
        to: new.version,
        finished: began && there.is_some(),
    })
}

/// The token names the new version and its slot: one change of the header.
fn name(volume: &mut Volume, token: &Token, new: &Material, slot: u32) -> Result<(), Error> {
    let number = volume.metadata()?.token()?.map(|(number, _)| number);
    let mut token = token.clone();
    token.slots = vec![slot];
    token.key_version = new.version;
    volume.set_token(number, &token.json()?)
}

/// Stopped after the token was written: the slot of an older version is still there. Removes it.
fn finish(
    volume: &mut Volume,
    keys: &mut dyn Keys,
    token: &Token,
) -> Result<Option<Rotated>, Error> {
    let metadata = volume.metadata()?;
    let mut stray = metadata.machine_slots();
    stray.retain(|slot| !token.slots.contains(slot));
    stray.retain(|slot| metadata.kind(*slot) == crate::header::Kind::Passphrase);
    if stray.is_empty() {
        return Ok(None);
    }
    let oldest = token.key_version.saturating_sub(OLDER_TRIED_MAX).max(1);
    for version in (oldest..token.key_version).rev() {
        let Ok(older) = keys.fetch(&token.key_id, Some(version)) else {
            continue;
        };
        let secret = slot_secret(&older.key, &token.object_id)?;
        if let Some(slot) = volume.opens(&stray, &secret)? {
            // V8: what the token names opens it.
            opening(volume, keys, token)?;
            volume.remove_slot(slot)?;
            return Ok(Some(Rotated {
                from: version,
                to: token.key_version,
                finished: true,
            }));
        }
    }
    Ok(None)
}

/// The passphrase that the token's key makes; it was tried.
fn opening(
    volume: &mut Volume,
    keys: &mut dyn Keys,
    token: &Token,
) -> Result<SecretBytes, Error> {
    let material = keys.fetch(&token.key_id, Some(token.key_version))?;
    let secret = slot_secret(&material.key, &token.object_id)?;
    volume.test(None, &secret)?;
    Ok(secret)
}

/// Slots that this passphrase opens, but for one.
fn machine_slots_of(
    volume: &mut Volume,
    secret: &SecretBytes,
    but: u32,
) -> Result<Vec<u32>, Error> {
    let mut slots = volume.metadata()?.machine_slots();
    slots.retain(|slot| *slot != but);
    let mut found = Vec::new();
    for slot in slots {
        if volume.opens(&[slot], secret)?.is_some() {
            found.push(slot);
        }
    }
    Ok(found)
}
