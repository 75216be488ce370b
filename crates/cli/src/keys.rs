//! From the key options of the command line to a source of key material.
//!
//! Invariant: environment variables of the command are read here and in `main`, nowhere else.
//!
//! Must not: read key material, which the source does. A typed secret is only passed on.

use std::path::PathBuf;

use strongroom_crypto::SecretBytes;
use strongroom_format::code;
use strongroom_keyring::{Error, KeySource, Keyring, SourceContext};

use crate::failure::Failure;
use crate::key_options::KeyOptions;

/// Returns `option` (`--keyring`), otherwise `STRONGROOM_KEYRING` if it is not empty, otherwise
/// `None`, which means the default path.
pub(crate) fn keyring_path(option: Option<PathBuf>) -> Option<PathBuf> {
    option.or_else(|| keyring_of_environment().filter(|path| !path.as_os_str().is_empty()))
}

/// Returns the value of `STRONGROOM_KEYRING`, which may be empty. `None` if it is not set.
pub(crate) fn keyring_of_environment() -> Option<PathBuf> {
    std::env::var_os("STRONGROOM_KEYRING").map(PathBuf::from)
}

/// Returns the key source that the options name, without fetching the key. `None` if they name
/// none. Clap has made sure that there is at most one.
pub(crate) fn source(options: KeyOptions) -> Option<KeySource> {
    let KeyOptions {
        key_id,
        key_env,
        key_file,
        key_command,
        ask,
    } = options;
    key_id
        .map(|id| KeySource::KeyId { id })
        .or_else(|| key_env.map(KeySource::Env))
        .or_else(|| key_file.map(KeySource::File))
        .or_else(|| key_command.map(KeySource::Command))
        .or_else(|| ask.then_some(KeySource::Ask))
}

/// As [`source`], but fails with SR-2041 if no key is named. The detail is "`for_what` needs one".
pub(crate) fn required(options: KeyOptions, for_what: &str) -> Result<KeySource, Failure> {
    source(options).ok_or_else(|| Failure::new(&code::KEY_NONE, format!("{for_what} needs one")))
}

/// Fetches a passphrase, a share or a token from `source`, possibly by asking at the terminal.
/// Errors are those of [`KeySource::passphrase`]; the text of SR-1004 (no terminal) also says to
/// give `instead`, which names the options that this command has for that.
pub(crate) fn passphrase(
    source: &KeySource,
    about: &SourceContext,
    instead: &str,
) -> Result<SecretBytes, Error> {
    source
        .passphrase(about)
        .map_err(|error| without_terminal(error, instead))
}

/// Returns the error, for SR-1004 (no terminal) with "give `instead`" before the detail.
pub(crate) fn without_terminal(error: Error, instead: &str) -> Error {
    if error.code() == &code::NO_TERMINAL {
        return error.with_prefix(&format!("give {instead}: "));
    }
    error
}

/// Returns `named`, or the default path of the keyring, as an absolute path. SR-5001 if there is no
/// working directory. Whether there is a keyring is not checked.
pub(crate) fn absolute_keyring_path(named: Option<PathBuf>) -> Result<PathBuf, Failure> {
    let path = named.unwrap_or_else(Keyring::default_path);
    std::path::absolute(&path).map_err(|e| Failure::io(&path, &e))
}
