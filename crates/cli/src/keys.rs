//! From the key options of the command line to a source of key material.
//!
//! Invariant: environment variables of the command are read here and in `main`, nowhere else.
//! Must not: read any key material; that is the source's work.

use std::path::PathBuf;

use strongroom_format::code;
use strongroom_keyring::KeySource;

use crate::args::KeyOptions;
use crate::failure::Failure;

/// `--keyring`, else `STRONGROOM_KEYRING` if it is set to anything, else `None`: the default path.
pub(crate) fn keyring_path(option: Option<PathBuf>) -> Option<PathBuf> {
    option.or_else(|| {
        let value = std::env::var_os("STRONGROOM_KEYRING")?;
        (!value.is_empty()).then(|| value.into())
    })
}

/// The source that the options name; `None` when they name none. Clap has made sure that there is at most one.
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

/// As [`source`], where a key is needed. `for_what` completes "... needs one".
pub(crate) fn required(options: KeyOptions, for_what: &str) -> Result<KeySource, Failure> {
    source(options).ok_or_else(|| Failure::new(&code::KEY_NONE, format!("{for_what} needs one")))
}
