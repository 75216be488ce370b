//! Which openers stay when the volume key is changed, and the beginning of that change with them.
//!
//! Must not: leave out an opener that the user did not give up.

use strongroom_crypto::SecretBytes;
use strongroom_format::code;
use strongroom_keyring::Error;
use strongroom_luks2::{Metadata, OpenedBy};

use crate::device::{Stretch, Volume};
use crate::reencrypt::{StayingOpener, begin, bound_slots_without};

/// A passphrase that was given for slots which this opens.
pub struct Given {
    /// The passphrase.
    pub secret: SecretBytes,
    /// What it opens.
    pub opener: OpenedBy,
}

impl Given {
    /// Returns how this passphrase is stretched: a TPM's is random, all others are a person's.
    fn stretch(&self) -> Stretch {
        match self.opener {
            OpenedBy::Tpm => Stretch::Machine,
            _ => Stretch::Person,
        }
    }
}

/// Which openers need not open the volume afterwards.
pub struct GivenUp<'a> {
    /// These slots.
    pub slots: &'a [u32],
    /// Recovery keys that were not given: a new one replaces them.
    pub recovery_keys: bool,
}

/// Begins a re-encryption under a new volume key, with the openers that stay; no data move yet.
/// `of_token` is the passphrase that the token's key makes; each other opener that is not given up
/// must have its passphrase in `given`.
///
/// # Errors
/// SR-8338 with the openers whose passphrase is missing; SR-2002 when `of_token` opens no slot; as
/// [`begin`].
pub fn begin_with(
    volume: &mut Volume,
    of_token: &SecretBytes,
    given: &[Given],
    given_up: &GivenUp<'_>,
    active: Option<&str>,
) -> Result<(), Error> {
    let metadata = volume.metadata()?;
    let machine = metadata.machine_slots();
    let mut stays = Vec::new();
    let mut by_key = false;
    // What is given up goes with the old key: it gets no slot with the new one.
    for slot in bound_slots_without(&metadata, given_up.slots) {
        let opener = metadata.opened_by(slot);
        // Not tried on slots of people, whose key derivation takes long.
        let of_machine = opener == OpenedBy::Strongroom || machine.contains(&slot);
        if of_machine && volume.opens(&[slot], of_token)?.is_some() {
            let stretch = Stretch::Machine;
            stays.insert(
                0,
                StayingOpener {
                    slot,
                    secret: of_token,
                    stretch,
                },
            );
            by_key = true;
            continue;
        }
        for given in given.iter().filter(|given| given.opener == opener) {
            if let Some(slot) = volume.opens(&[slot], &given.secret)? {
                let (secret, stretch) = (&given.secret, given.stretch());
                stays.push(StayingOpener {
                    slot,
                    secret,
                    stretch,
                });
                break;
            }
        }
    }
    check_complete(&metadata, &stays, given_up)?;
    if !by_key {
        return Err(Error::new(&code::WRONG_KEY, "the token's key"));
    }
    begin(volume, &stays, active)
}

/// Refuses when an opener neither stays nor is given up: SR-8338.
fn check_complete(
    metadata: &Metadata,
    stays: &[StayingOpener<'_>],
    given_up: &GivenUp<'_>,
) -> Result<(), Error> {
    let mut known: Vec<u32> = stays.iter().map(|stay| stay.slot).collect();
    known.extend(given_up.slots);
    let mut missing = bound_slots_without(metadata, &known);
    missing.retain(|slot| {
        !(given_up.recovery_keys && metadata.opened_by(*slot) == OpenedBy::Recovery)
    });
    if missing.is_empty() {
        return Ok(());
    }
    let name = |slot: &u32| format!("slot {slot} ({})", metadata.opened_by(*slot).name());
    let names: Vec<String> = missing.iter().map(name).collect();
    Err(Error::new(&code::VOLUME_OPENERS, names.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::new_recovery_key;
    use crate::testing::{made, secret};

    #[test]
    fn an_opener_that_was_neither_given_nor_given_up_stops_the_change() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("v");
        let recovery = new_recovery_key().unwrap();
        made(&path, Some(&recovery));
        let mut volume = Volume::open(&path).unwrap();
        let nothing = GivenUp {
            slots: &[],
            recovery_keys: false,
        };
        let mut begin = |given: &[Given], given_up: &GivenUp<'_>, of_token: &SecretBytes| {
            begin_with(&mut volume, of_token, given, given_up, None)
        };
        let error = begin(&[], &nothing, &secret()).unwrap_err();
        assert_eq!(error.code(), &code::VOLUME_OPENERS);
        assert_eq!(error.detail(), "slot 1 (recovery)");
        // The token's key is an opener, too, and cannot be given up by giving another secret.
        let without_key = GivenUp {
            slots: &[0],
            recovery_keys: true,
        };
        let error = begin(&[], &without_key, &recovery).unwrap_err();
        assert_eq!(error.code(), &code::WRONG_KEY);
        // The recovery key as a passphrase is not what slot 1 is known for.
        let given = |opener| Given {
            secret: SecretBytes::take(&mut recovery.as_slice().to_vec()).unwrap(),
            opener,
        };
        let wrong = [given(OpenedBy::Passphrase)];
        assert!(begin(&wrong, &nothing, &secret()).is_err());
        begin(&[given(OpenedBy::Recovery)], &nothing, &secret()).unwrap();
        assert!(volume.metadata().unwrap().is_reencrypting());
    }
}
