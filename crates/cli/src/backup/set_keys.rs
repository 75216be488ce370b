//! The keys of a set: those that a new set is sealed for, and the one that opens a set.
//!
//! Must not: fetch a key before a set needs one.

use std::path::{Path, PathBuf};

use strongroom_format::code;
use strongroom_keyring::{KeySource, Keyring, Opener, Recipient, SourceContext};

use crate::failure::{Failure, warn};
use crate::key_options::KeyOptions;
use crate::keys;

/// Fetches the key. A passphrase is asked for at the terminal, twice if something is to be sealed
/// with it (`creating`). Errors are those of the source.
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

/// Returns the recipients of a set: the certificates that are named, then `key`, which is fetched;
/// a passphrase is asked for twice. Warns with SR-2033 and SR-2035 of a certificate whose private
/// key was never exported or that is not valid today.
/// Errors: SR-2026 or SR-2036 if there is no such certificate or it is retired, SR-2012 for a
/// retired key; the errors of the keyring and of the key.
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

/// Calls `open` with the key that the options name and returns its result. Without one, calls it
/// without a key and, if that fails with SR-2001, again with the private keys of the keyring's
/// certificates. Errors: those of `open`, the key and the keyring.
pub(super) fn with_key<T>(
    key: KeyOptions,
    keyring: &Path,
    open: impl FnMut(Option<&Opener>) -> strongroom_backup::Result<T>,
) -> Result<T, Failure> {
    with_kept_key(key, keyring, open).map(|(done, _)| done)
}

/// As [`with_key`], and also returns the key with which `open` succeeded, for what is opened later;
/// `None` if none was needed.
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
