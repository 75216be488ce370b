//! The keys of sets, from their sources: those that a new set is sealed for, and the one that opens
//! a set.
//!
//! Must not: fetch a key before a set needs one.

use std::path::{Path, PathBuf};

use strongroom_format::code::{self, Code};
use strongroom_keyring::{KeySource, Keyring, Opener, Recipient, SourceContext};

use crate::Result;

/// Fetches a key of sets from its source. A passphrase is asked for at the terminal, twice when
/// something is to be sealed with it (`creating`).
///
/// # Errors
/// SR-2003 when the keyring has no such key, SR-2004 without a keyring; SR-2007 for a key file that
/// cannot be read; SR-1004 without a terminal for a passphrase; other codes by the source.
pub fn fetch_opener(
    source: &KeySource,
    keyring: Option<PathBuf>,
    creating: bool,
) -> Result<Opener> {
    source.opener(&SourceContext {
        keyring,
        creating,
        prompt: String::from("Passphrase of the backup"),
    })
}

/// Returns the recipients of a set: the certificates of the keyring that are named, then `key`,
/// which is fetched. `warn` is told, with SR-2033 and SR-2035, of a certificate whose private key
/// was never exported or that is not valid today.
///
/// # Errors
/// SR-2026 or SR-2036 when there is no such certificate or it is retired, SR-2012 for a retired
/// key; those of the keyring and of the key's source.
pub fn set_recipients(
    key: Option<&KeySource>,
    certificates: &[String],
    keyring: &Path,
    warn: &mut dyn FnMut(&'static Code, &str),
) -> Result<Vec<Recipient>> {
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
        let opener = fetch_opener(key, Some(keyring.to_path_buf()), true)?;
        recipients.push(opener.recipient()?);
    }
    Ok(recipients)
}

/// Calls `open` with the key of this source and returns its result. Without one, calls it without a
/// key and, when that fails with SR-2001, again with the private keys of the keyring's
/// certificates.
///
/// # Errors
/// Those of `open`, of the key's source and of the keyring.
pub fn with_key<T>(
    key: Option<&KeySource>,
    keyring: &Path,
    open: impl FnMut(Option<&Opener>) -> Result<T>,
) -> Result<T> {
    with_kept_key(key, keyring, open).map(|(done, _)| done)
}

/// Calls `open` as [`with_key`] does, and returns with its result the key with which it succeeded,
/// for what is opened later; `None` when none was needed.
///
/// # Errors
/// As [`with_key`].
pub fn with_kept_key<T>(
    key: Option<&KeySource>,
    keyring: &Path,
    mut open: impl FnMut(Option<&Opener>) -> Result<T>,
) -> Result<(T, Option<Opener>)> {
    if let Some(source) = key {
        let opener = fetch_opener(source, Some(keyring.to_path_buf()), false)?;
        return Ok((open(Some(&opener))?, Some(opener)));
    }
    let needed = match open(None) {
        Err(error) if error.code() == &code::NO_KEY => error,
        other => return Ok((other?, None)),
    };
    if !keyring.exists() {
        return Err(needed);
    }
    let private = Keyring::open(keyring)?.private_keys()?;
    match open(Some(&private)) {
        // It has no slot for a certificate at all.
        Err(error) if error.code() == &code::WRONG_KEY => Err(needed),
        other => Ok((other?, Some(private))),
    }
}
