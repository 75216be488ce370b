//! Openers whose passphrase is made of what a TPM sealed.
//!
//! Form: `docs/spec/volume.md`, "The token of a TPM". The TPM itself is somebody else's: whoever
//! calls brings what seals and unseals. Invariants: V3, where the TPM is stands on the command line
//! or in the table, never in a token; V22, a slot gets its token after the TPM gave back what it
//! had sealed, and the slot was opened with it.
//!
//! Must not: keep what was unsealed.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use strongroom_crypto::{SecretBytes, SecretKey, random16};
use strongroom_format::code::{self, Code};
use strongroom_format::hex::{from_hex, hex};
use strongroom_keyring::Error;

use crate::device::{Stretch, Volume};
use crate::header::Metadata;
use crate::openers::check_quiet;
use crate::secret::tpm_secret;
use crate::token::slots;

/// The type of these tokens.
pub const TYPE: &str = "strongroom-tpm";
/// The version of the token's form.
const VERSION: u32 = 1;
/// Longest sealed object.
const SEALED_MAX: usize = 2048;
/// Most tokens that are tried: a TPM takes its time.
const TRIED_MAX: usize = 8;

/// A token of a TPM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TpmToken {
    /// Key slots that it opens.
    pub slots: Vec<u32>,
    /// The salt of their passphrase.
    pub salt: [u8; 16],
    /// What the TPM sealed.
    pub sealed: Vec<u8>,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    #[serde(rename = "type")]
    kind: String,
    keyslots: Vec<String>,
    version: u32,
    salt: String,
    sealed: String,
}

impl TpmToken {
    /// Reads a token's JSON.
    ///
    /// # Errors
    /// SR-3002 for a newer form, SR-8323 for one that is not as the specification says.
    pub fn read(json: &Value) -> Result<Self, Error> {
        let bad = |what: &str| Error::new(&code::VOLUME_TOKEN, format!("member {what}"));
        let version = json.get("version").and_then(Value::as_u64);
        if version.is_some_and(|version| version > u64::from(VERSION)) {
            return Err(Error::new(&code::NEWER_FORMAT, "LUKS2 token of a TPM"));
        }
        let stored: Stored =
            serde_json::from_value(json.clone()).map_err(|error| bad(&error.to_string()))?;
        if stored.kind != TYPE || stored.version != VERSION {
            return Err(bad("type or version"));
        }
        let sealed = from_hex(&stored.sealed);
        let fits = |sealed: &Vec<u8>| (1..=SEALED_MAX).contains(&sealed.len());
        let salt = from_hex(&stored.salt).and_then(|salt| salt.try_into().ok());
        Ok(Self {
            slots: slots(&stored.keyslots)?,
            salt: salt.ok_or_else(|| bad("salt"))?,
            sealed: sealed.filter(fits).ok_or_else(|| bad("sealed"))?,
        })
    }

    /// That of a header which libcryptsetup has not read.
    #[must_use]
    pub fn of(token: &strongroom_luks2::Token) -> Option<Self> {
        let tpm = token.tpm.as_ref()?;
        Some(Self {
            slots: token.keyslots.clone(),
            salt: tpm.salt,
            sealed: tpm.sealed.clone(),
        })
    }

    /// As JSON.
    ///
    /// # Errors
    /// SR-9001 only.
    pub fn json(&self) -> Result<Value, Error> {
        let stored = Stored {
            kind: TYPE.to_owned(),
            keyslots: self.slots.iter().map(ToString::to_string).collect(),
            version: VERSION,
            salt: hex(&self.salt),
            sealed: hex(&self.sealed),
        };
        serde_json::to_value(stored).map_err(|error| Error::new(&code::BUG, error.to_string()))
    }

    /// The registers to whose values it is sealed, as the blob's mask has them.
    #[must_use]
    pub fn registers(&self) -> Vec<u8> {
        let mask = self.sealed.first_chunk::<4>();
        let mask = mask.map_or(0, |mask| u32::from_le_bytes(*mask));
        (0..32).filter(|number| mask >> number & 1 != 0).collect()
    }
}

/// Tokens of TPMs that can be read, by number.
#[must_use]
pub fn tokens(metadata: &Metadata) -> Vec<(u32, TpmToken)> {
    let read = |(number, json): (&u32, &Value)| Some((*number, TpmToken::read(json).ok()?));
    metadata.tokens.iter().filter_map(read).collect()
}

/// Whether a TPM opens the volume, so far as its tokens say.
#[must_use]
pub fn opens(metadata: &Metadata) -> bool {
    !tokens(metadata).is_empty()
}

/// Adds a slot for what `seal` seals. `secret` opens the volume already. Returns the slot.
///
/// # Errors
/// SR-2002, SR-8324; SR-8350 to SR-8352.
pub fn add(
    volume: &mut Volume,
    secret: &SecretBytes,
    seal: &mut dyn FnMut(&SecretKey) -> Result<Vec<u8>, Error>,
) -> Result<u32, Error> {
    check_quiet(&volume.metadata()?)?;
    let key = SecretKey::generate()?;
    let mut token = TpmToken {
        slots: Vec::new(),
        salt: random16()?,
        sealed: seal(&key).map_err(told)?,
    };
    if token.sealed.len() > SEALED_MAX {
        let detail = format!("it sealed {} bytes", token.sealed.len());
        return Err(Error::new(&code::VOLUME_TPM_OTHER, detail));
    }
    let new = tpm_secret(&key, &token.salt)?;
    let slot = volume.add_slot(secret, &new, Stretch::Machine)?;
    token.slots = vec![slot];
    volume.set_token(None, &token.json()?)?;
    Ok(slot)
}

/// The passphrase that the TPM's part makes; it was tried on the slots of its token.
///
/// # Errors
/// SR-8330 when no token is of a TPM; SR-8350 to SR-8352; SR-2002 when what was unsealed opens
/// nothing.
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

/// The passphrase that the first of these tokens makes that the TPM unseals and `fits` takes.
/// `what` is the volume, for errors.
///
/// # Errors
/// As [`opening`].
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
            Err(error) => told(error),
        };
        if failed.code() == &code::VOLUME_TPM_AWAY {
            return Err(failed);
        }
        // That its state is another says more than that some other token is of another TPM.
        if worst.code() != &code::VOLUME_TPM_STATE {
            worst = failed;
        }
    }
    Err(worst)
}

/// The provider's codes speak of keyrings.
pub(crate) fn told(error: Error) -> Error {
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
    use serde_json::json;

    fn token() -> TpmToken {
        TpmToken {
            slots: vec![2],
            salt: [4; 16],
            sealed: vec![0x80, 8, 0, 0, 0xff],
        }
    }

    #[test]
    fn as_the_specification_shows_it() {
        let json = json!({
            "type": "strongroom-tpm", "keyslots": ["2"], "version": 1,
            "salt": "04040404040404040404040404040404", "sealed": "80080000ff",
        });
        assert_eq!(token().json().unwrap(), json);
        assert_eq!(TpmToken::read(&json).unwrap(), token());
        assert_eq!(token().registers(), [7, 11]);
        let page = include_str!("../../../../docs/spec/volume.md");
        for member in json.as_object().unwrap().keys() {
            let named = format!("\"{member}\":");
            assert!(page.contains(&named), "{member}");
        }
        // The vector of the same page.
        let key = SecretKey::take(&mut [3; 32]).unwrap();
        let secret = hex(tpm_secret(&key, &[4; 16]).unwrap().as_slice());
        let parts: Vec<&str> = (0..8).map(|at| &secret[16 * at..16 * (at + 1)]).collect();
        let page: String = page.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(page.contains(&parts.join(" ")), "{secret}");
    }

    #[test]
    fn what_is_not_in_form_is_refused() {
        let good = token().json().unwrap();
        let wrong = [
            ("type", json!("strongroom")),
            ("keyslots", json!(["32"])),
            ("version", json!(0)),
            ("salt", json!("04")),
            ("salt", json!("0404040404040404040404040404040A")),
            ("sealed", json!("")),
            ("sealed", json!("8")),
            ("sealed", json!("00".repeat(2049))),
            ("sealed", json!(["80"])),
        ];
        for (member, value) in wrong {
            let mut json = good.clone();
            json[member] = value.clone();
            let error = TpmToken::read(&json).unwrap_err();
            assert_eq!(error.code(), &code::VOLUME_TOKEN, "{member} {value}");
        }
        let mut newer = good;
        newer["version"] = json!(2);
        let error = TpmToken::read(&newer).unwrap_err();
        assert_eq!(error.code(), &code::NEWER_FORMAT);
    }

    /// What each of three tokens answers, and what becomes of it.
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
