//! Keys and ciphers of instances, as the options name them, and what a user is told of a key.
//!
//! Must not: fetch a key.

use std::path::Path;

use strongroom_format::code;
use strongroom_format::header::Cipher;
use strongroom_postgres_instance::chosen::GivenKey;

use crate::context::Context;
use crate::failure::warn;
use crate::key_options::KeyOptions;
use crate::keys;

/// Returns the key source and the keyring that the options name, either of which may be absent. No
/// key is fetched.
pub(crate) fn given_key(options: KeyOptions, context: &Context) -> GivenKey {
    GivenKey {
        key: keys::source(options),
        keyring: context.keyring.clone(),
    }
}

/// Parses the name of a cipher for an instance. The error is the text that clap shows.
pub(crate) fn cipher(name: &str) -> Result<Cipher, String> {
    Cipher::for_instance(name).ok_or_else(|| String::from("use aes-128-xts or aes-256-xts"))
}

/// Warns with SR-7019 that the instance is lost with its key and, unless `is_unattended`, with
/// SR-7020 that the server cannot find the key by itself.
pub(crate) fn warn_about_key(is_unattended: bool, directory: &Path) {
    let shown = directory.display().to_string();
    warn(&code::PG_KEEP_KEY, &shown);
    if !is_unattended {
        warn(&code::PG_NO_SOURCE, &shown);
    }
}
