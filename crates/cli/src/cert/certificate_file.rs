//! Files that hold a certificate and its private key.
//!
//! Must not: show a private key.

use std::path::Path;

use strongroom_keyring::{Identity, KeySource, SourceContext};

use crate::context::Context;
use crate::failure::Failure;
use crate::key_options::KeyOptions;
use crate::keys;

/// Reads a certificate's file; the passphrase is fetched only when the file needs one.
pub(super) fn read(file: &Path, key: KeyOptions, context: &Context) -> Result<Identity, Failure> {
    let source = keys::source(key).unwrap_or(KeySource::Ask);
    let asking = SourceContext {
        keyring: context.keyring.clone(),
        creating: false,
        prompt: format!("Passphrase of {}", file.display()),
    };
    Ok(strongroom_keyring::read_identity(file, &source, &asking)?)
}
