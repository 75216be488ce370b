//! Openers whose passphrase is made of a key that a TPM has sealed.
//!
//! Form: `docs/spec/volume.md`, "The token of a TPM". The client of the TPM is the caller's.
//! Invariants: V3, the TPM's address is on the command line or in the table, never in a token; V22,
//! a token is written after the TPM has unsealed what it sealed, and the slot was opened with it.
//!
//! Must not: keep an unsealed key.

use std::path::Path;
use std::time::Duration;

use strongroom_crypto::{SecretBytes, SecretKey, random16};
use strongroom_format::code::{self, Code};
use strongroom_keyring::Error;
use strongroom_luks2::{Metadata, SEALED_LEN_MAX, TpmToken};

use crate::device::{Stretch, Volume};
use crate::openers::check_not_reencrypting;
use crate::secret::tpm_secret;

/// This machine's TPM, in the time that it was opened for.
pub trait Tpm {
    /// Returns the time of its clock, in milliseconds. The clock stops without power.
    ///
    /// # Errors
    /// What the TPM reports.
    fn clock_ms(&self) -> Result<u64, Error>;

    /// Unseals a key that was sealed without an end.
    ///
    /// # Errors
    /// What the TPM reports, for example when it is in another state than the key was sealed for.
    fn unseal(&self, sealed: &[u8]) -> Result<SecretKey, Error>;

    /// Seals a key to the TPM's present state, until its clock says `end_ms`.
    ///
    /// # Errors
    /// What the TPM reports.
    fn seal_until(self: Box<Self>, key: &SecretKey, end_ms: u64) -> Result<Vec<u8>, Error>;

    /// Unseals a key that was sealed until `end_ms` of the TPM's clock.
    ///
    /// # Errors
    /// What the TPM reports, for example when its clock is past that time.
    fn unseal_until(self: Box<Self>, sealed: &[u8], end_ms: u64) -> Result<SecretKey, Error>;
}

/// Opens the TPM at an address, or at its usual one, for as long as the time says.
pub type OpenTpm = fn(Option<&str>, Option<Duration>) -> Result<Box<dyn Tpm>, Error>;

/// Most tokens that are tried: a TPM is slow.
const TRIED_MAX: usize = 8;

/// Returns the tokens of the volume that this version can read and that name a TPM, with their
/// numbers, in the order of the numbers.
#[must_use]
pub fn tokens(metadata: &Metadata) -> Vec<(u32, TpmToken)> {
    let tokens = metadata.tokens.iter();
    let of_tpms = tokens.filter_map(|(number, token)| Some((*number, token.tpm()?.clone())));
    of_tpms.collect()
}

/// Returns whether the volume has a token that this version can read and that names a TPM. The TPM
/// is not asked, so that opening with it may still fail.
#[must_use]
pub fn opens(metadata: &Metadata) -> bool {
    !tokens(metadata).is_empty()
}

/// Makes a new key, has `seal` seal it to the TPM, adds a slot for the passphrase that it makes,
/// and a token that names the slot. `secret` opens the volume already. Returns the slot.
///
/// # Errors
/// SR-2002 when `secret` opens no slot; SR-8350 for a TPM in another state, SR-8351 for another
/// TPM, SR-8352 for one that does not answer; SR-8328 while the volume is re-encrypted; SR-8340 for
/// a cipher that is not known to be safe, SR-8307 when trying a slot would cost too much; SR-8324
/// when libcryptsetup fails.
pub fn add(
    volume: &mut Volume,
    secret: &SecretBytes,
    seal: &mut dyn FnMut(&SecretKey) -> Result<Vec<u8>, Error>,
) -> Result<u32, Error> {
    check_not_reencrypting(&volume.metadata()?)?;
    let key = SecretKey::generate()?;
    let mut token = TpmToken {
        slots: Vec::new(),
        salt: random16()?,
        sealed: seal(&key).map_err(as_volume_error)?,
    };
    if token.sealed.len() > SEALED_LEN_MAX {
        let detail = format!("it sealed {} bytes", token.sealed.len());
        return Err(Error::new(&code::VOLUME_TPM_OTHER, detail));
    }
    let new = tpm_secret(&key, &token.salt)?;
    let slot = volume.add_slot(secret, &new, Stretch::Machine)?;
    token.slots = vec![slot];
    volume.set_token(None, &token.json())?;
    Ok(slot)
}

/// Returns the passphrase that the TPM's key makes, after it was tried on the slots of its token.
///
/// # Errors
/// SR-8330 without a token of a TPM; SR-8350 for a TPM in another state, SR-8351 for another TPM,
/// SR-8352 for one that does not answer; SR-2002 when no unsealed key opens the volume.
pub fn opening(
    volume: &mut Volume,
    unseal: &dyn Fn(&[u8]) -> Result<SecretKey, Error>,
) -> Result<SecretBytes, Error> {
    let tokens = tokens(&volume.metadata()?);
    let tokens: Vec<TpmToken> = tokens.into_iter().map(|(_, token)| token).collect();
    let what = volume.path().display().to_string();
    of_any(&tokens, &what, unseal, &mut |token, secret| {
        Ok(volume.opens(&token.slots, secret)?.is_some())
    })
}

/// Returns the passphrase that the TPM's key makes, for a header that libcryptsetup has not read,
/// and the slots that its token names. The passphrase is not tried.
///
/// # Errors
/// SR-8330 without a token of a TPM; SR-8350 for a TPM in another state, SR-8351 for another TPM,
/// SR-8352 for one that does not answer.
pub fn secret_of_metadata(
    path: &Path,
    metadata: &Metadata,
    unseal: &dyn Fn(&[u8]) -> Result<SecretKey, Error>,
) -> Result<(SecretBytes, Vec<u32>), Error> {
    let tokens = tokens(metadata).into_iter();
    let tokens: Vec<TpmToken> = tokens.map(|(_, token)| token).collect();
    let what = path.display().to_string();
    let mut slots = Vec::new();
    let secret = of_any(&tokens, &what, unseal, &mut |token, _| {
        slots.clone_from(&token.slots);
        Ok(true)
    })?;
    Ok((secret, slots))
}

/// Returns the passphrase of the first of these tokens that the TPM unseals and `fits` accepts;
/// tries at most [`TRIED_MAX`] tokens. `what` names the volume in errors. A TPM that does not
/// answer is asked once.
///
/// # Errors
/// SR-8330 without a token; SR-8350 for a TPM in another state, SR-8351 for another TPM, SR-8352
/// for one that does not answer; SR-2002 when `fits` accepts none of the passphrases; what `fits`
/// reports.
pub fn of_any(
    tokens: &[TpmToken],
    what: &str,
    unseal: &dyn Fn(&[u8]) -> Result<SecretKey, Error>,
    fits: &mut dyn FnMut(&TpmToken, &SecretBytes) -> Result<bool, Error>,
) -> Result<SecretBytes, Error> {
    let mut worst = Error::new(&code::VOLUME_SLOT, format!("{what}: no token of a TPM"));
    for token in tokens.iter().take(TRIED_MAX) {
        let failed = match unseal(&token.sealed) {
            Ok(key) => {
                let secret = tpm_secret(&key, &token.salt)?;
                if fits(token, &secret)? {
                    return Ok(secret);
                }
                Error::new(&code::WRONG_KEY, what)
            }
            Err(error) => as_volume_error(error),
        };
        if failed.code() == &code::VOLUME_TPM_AWAY {
            return Err(failed);
        }
        // A TPM in another state tells the user more than a token of another TPM.
        if worst.code() != &code::VOLUME_TPM_STATE {
            worst = failed;
        }
    }
    Err(worst)
}

/// Replaces a code that a TPM reports as a keyring's provider by the one for volumes: SR-8350,
/// SR-8351 or SR-8352. Other errors stay as they are.
pub(crate) fn as_volume_error(error: Error) -> Error {
    let code: &'static Code = match error.code() {
        there if there == &code::PROVIDER_STATE => &code::VOLUME_TPM_STATE,
        there if there == &code::PROVIDER_NO_KEY || there == &code::PROVIDER_ANSWER => {
            &code::VOLUME_TPM_OTHER
        }
        there
            if [
                &code::PROVIDER_UNREACHABLE,
                &code::PROVIDER_DENIED,
                &code::PROVIDER_DISABLED,
            ]
            .contains(&there) =>
        {
            &code::VOLUME_TPM_AWAY
        }
        _ => return error,
    };
    Error::new(code, error.detail())
}

#[cfg(test)]
mod tests {
    use super::*;
    use strongroom_format::hex::hex;

    fn token() -> TpmToken {
        TpmToken {
            slots: vec![2],
            salt: [4; 16],
            sealed: vec![0x80, 8, 0, 0, 0xff],
        }
    }

    #[test]
    fn the_vector_of_the_specification() {
        let page = include_str!("../../../../docs/spec/volume.md");
        let key = SecretKey::take(&mut [3; 32]).unwrap();
        let secret = hex(tpm_secret(&key, &[4; 16]).unwrap().as_slice());
        let parts: Vec<&str> = (0..8).map(|at| &secret[16 * at..16 * (at + 1)]).collect();
        let page: String = page.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(page.contains(&parts.join(" ")), "{secret}");
    }

    /// The answers for three tokens, and the error that results.
    #[test]
    fn the_failure_that_says_most_is_told_and_a_tpm_that_is_away_is_asked_once() {
        let fails = |code: &'static Code| Err(Error::new(code, ""));
        let answers = |answers: [&'static Code; 3]| {
            let asked = std::cell::Cell::new(0);
            let unseal = |_: &[u8]| {
                let answer = answers[asked.get()];
                asked.set(asked.get() + 1);
                fails(answer)
            };
            let tokens = [token(), token(), token()];
            let error = of_any(&tokens, "v", &unseal, &mut |_, _| Ok(true)).err();
            (error.unwrap().code().number, asked.get())
        };
        let (state, other) = (&code::PROVIDER_STATE, &code::PROVIDER_NO_KEY);
        let away = &code::PROVIDER_UNREACHABLE;
        assert_eq!(answers([other, state, other]), (8350, 3));
        assert_eq!(answers([other, other, &code::PROVIDER_ANSWER]), (8351, 3));
        assert_eq!(answers([state, away, other]), (8352, 2));
        let none = of_any(&[], "v", &|_| fails(away), &mut |_, _| Ok(true));
        assert_eq!(none.err().unwrap().code(), &code::VOLUME_SLOT);
    }

    #[test]
    fn what_unseals_but_fits_no_slot_is_a_wrong_key() {
        let unseal = |_: &[u8]| Ok(SecretKey::take(&mut [1; 32])?);
        let tried = of_any(&[token()], "v", &unseal, &mut |_, _| Ok(false));
        assert_eq!(tried.err().unwrap().code(), &code::WRONG_KEY);
        let more = vec![token(); 20];
        let mut count = 0;
        let tried = of_any(&more, "v", &unseal, &mut |_, _| {
            count += 1;
            Ok(false)
        });
        assert!(tried.is_err() && count == TRIED_MAX);
    }
}
