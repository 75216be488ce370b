//! The keys of a set: those that a new set is sealed for, and the one that opens a set.
//!
//! Must not: fetch a key before a set needs one.

use std::path::{Path, PathBuf};

use strongroom_format::code;
use strongroom_keyring::{KeySource, Keyring, Opener, Recipient, SourceContext};

use crate::failure::{Failure, warn};
use crate::key_options::KeyOptions;
use crate::keys;

/// The key, fetched. Asked for twice when something is sealed with it.
pub(super) fn opener(
    source: &KeySource,
    keyring: Option<PathBuf>,
    creating: bool,
) -> Result<Opener, Failure> {
    let about = SourceContext {
        keyring,
        creating,
        prompt: String::from("Passphrase of the backup"),
    };
    Ok(source.opener(&about)?)
}

/// Whom a set is sealed for: the certificates that are named, then the key. Warns of certificates
/// whose private key was never exported, every time.
pub(super) fn set_recipients(
    key: Option<&KeySource>,
    certificates: &[String],
    keyring: &Path,
) -> Result<Vec<Recipient>, Failure> {
    let mut recipients = Vec::new();
    if !certificates.is_empty() {
        let keys = Keyring::open(keyring)?;
        for name in certificates {
            recipients.push(keys.recipient(name)?);
            let about = keys.certificate(name)?;
            if let Some((code, detail)) = about.export_warning() {
                warn(code, &detail);
            }
            if !about.is_valid_now() {
                warn(&code::CERT_DATES, name);
            }
        }
    }
    if let Some(key) = key {
        let opener = opener(key, Some(keyring.to_path_buf()), true)?;
        recipients.push(opener.recipient()?);
    }
    Ok(recipients)
}

/// Does something that needs a set's key: with the key that is named, else without any, else with
/// the private keys of the keyring's certificates.
pub(super) fn with_key<T>(
    key: KeyOptions,
    keyring: &Path,
    open: impl FnMut(Option<&Opener>) -> strongroom_backup::Result<T>,
) -> Result<T, Failure> {
    with_kept_key(key, keyring, open).map(|(done, _)| done)
}

/// As [`with_key`]; gives back the key that served, for what is opened later.
pub(super) fn with_kept_key<T>(
    key: KeyOptions,
    keyring: &Path,
    mut open: impl FnMut(Option<&Opener>) -> strongroom_backup::Result<T>,
) -> Result<(T, Option<Opener>), Failure> {
    if let Some(source) = keys::source(key) {
        let opener = opener(&source, Some(keyring.to_path_buf()), false)?;
        return Ok((open(Some(&opener))?, Some(opener)));
    }
    let needed = match open(None) {
        Err(error) if error.code() == &code::NO_KEY => error,
        other => return Ok((other?, None)),
    };
    if !keyring.exists() {
        return Err(needed.into());
    }
    let private = Keyring::open(keyring)?.private_keys()?;
    match open(Some(&private)) {
        // It has no slot for a certificate at all.
        Err(error) if error.code() == &code::WRONG_KEY => Err(needed.into()),
        other => Ok((other?, Some(private))),
    }
}
