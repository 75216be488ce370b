//! Changes the key that opens a volume; its data stay as they are.
//!
//! Order, each step durable before the next: a new version of the key; a slot for it, tried; the
//! token names the new version and both slots; the old slot is destroyed, and removed from the
//! token with it. Invariant V13: at every point between, the volume opens with the version that its
//! token names, and the same command finishes. It tells slots apart so: a slot of the token that
//! the token's version does not open is an old one (it may be half wiped, and open with nothing); a
//! slot without a token that a newer version opens is a new one.
//!
//! Must not: touch slots of passphrases and recovery keys.

use strongroom_crypto::SecretBytes;
use strongroom_format::code;
use strongroom_keyring::Error;

use crate::device::{By, Stretch, Volume};
use crate::keys::{Keys, Material, secret_of_token};
use crate::openers::check_not_reencrypting;
use crate::secret::slot_secret;
use strongroom_luks2::StrongroomToken;

/// The result of a rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotated {
    /// The former version of the key.
    pub from: u32,
    /// The version that opens it now.
    pub to: u32,
    /// Whether this call finished a rotation that was stopped before.
    pub finished: bool,
}

/// Makes a new version of the key open the volume, and removes the slot of the former one. Uses a
/// version that is newer than the token's when there is one, and makes one otherwise. Finishes a
/// rotation that was stopped.
///
/// # Errors
/// SR-8323 without a token; SR-8328 while the volume is re-encrypted; SR-2002 when the token's
/// version does not open the volume; SR-2003 when there is no newer version; SR-8340 for a cipher
/// that is not known to be safe, SR-8307 when trying a slot would cost too much; SR-8324 when
/// libcryptsetup fails; what the keyring or server reports.
pub fn rotate_slots(volume: &mut Volume, keys: &mut dyn Keys) -> Result<Rotated, Error> {
    let metadata = volume.metadata()?;
    check_not_reencrypting(&metadata)?;
    let token = volume.token()?;
    let from = token.key_version;
    if let Some(rotated) = finish_interrupted(volume, keys, &token)? {
        return Ok(rotated);
    }
    let secret = tried_secret(volume, keys, &token)?;
    let newest = keys.fetch(&token.key_id, None)?;
    // A newer version than the token's is used, not replaced: this command made it and was stopped
    // before it could write the token, or an administrator rotated the key at the server.
    let began = newest.version > from;
    let new = if began {
        newest
    } else {
        keys.rotate(&token.key_id)?
    };
    if new.version <= from {
        let detail = format!("{} has no version after {from}", token.key_id);
        return Err(Error::new(&code::UNKNOWN_KEY_ID, detail));
    }
    let new_secret = slot_secret(&new.key, &token.object_id)?;
    let machine = volume.metadata()?.machine_slots();
    let there = if began {
        volume.opens(&machine, &new_secret)?
    } else {
        None
    };
    let slot = match there {
        Some(slot) => slot,
        None => volume.add_slot(&secret, &new_secret, Stretch::Machine)?,
    };
    let old = machine_slots_of(volume, &secret, slot)?;
    write_token(volume, &token, &new, slot, &old)?;
    for old in old {
        volume.remove_slot(old)?;
    }
    Ok(Rotated {
        from,
        to: new.version,
        finished: began && there.is_some(),
    })
}

/// Writes the token with the new version, its slot, and the old slots that are to be removed, in
/// one change of the header. SR-8324 when libcryptsetup fails.
fn write_token(
    volume: &mut Volume,
    token: &StrongroomToken,
    new: &Material,
    slot: u32,
    old: &[u32],
) -> Result<(), Error> {
    let number = volume
        .metadata()?
        .strongroom_token()?
        .map(|(number, _)| number);
    let mut token = token.clone();
    token.slots = vec![slot];
    token.slots.extend(old);
    token.key_version = new.version;
    volume.set_token(number, &token.json())
}

/// Removes the old slots when a rotation was stopped after the token was written: the slots of the
/// token that its version does not open. `None` when there are none.
///
/// # Errors
/// SR-2002 when the token's version opens no slot: nothing is removed then. As [`rotate_slots`].
fn finish_interrupted(
    volume: &mut Volume,
    keys: &mut dyn Keys,
    token: &StrongroomToken,
) -> Result<Option<Rotated>, Error> {
    if token.slots.len() < 2 {
        return Ok(None);
    }
    // V8: the token's version must open the volume.
    let secret = tried_secret(volume, keys, token)?;
    let mut removed = false;
    for slot in &token.slots {
        if volume.opens(&[*slot], &secret)?.is_none() {
            volume.remove_slot(*slot)?;
            removed = true;
        }
    }
    Ok(removed.then_some(Rotated {
        from: token.key_version.saturating_sub(1),
        to: token.key_version,
        finished: true,
    }))
}

/// Returns the passphrase that the token's key makes, after it was tried on the token's slots.
/// SR-2002 when it opens none.
fn tried_secret(
    volume: &mut Volume,
    keys: &mut dyn Keys,
    token: &StrongroomToken,
) -> Result<SecretBytes, Error> {
    let secret = secret_of_token(keys, token)?;
    volume.try_by(By::Token, &secret)?;
    Ok(secret)
}

/// Returns the slots that `secret` opens, of those with a random passphrase (PBKDF2), without the
/// slot `but`. SR-8324 when libcryptsetup fails.
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
