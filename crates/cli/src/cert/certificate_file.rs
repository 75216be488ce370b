//! Files that hold a certificate and its private key.
//!
//! Must not: show a private key.

use std::path::Path;

use strongroom_keyring::{Identity, KeySource, SourceContext};

use crate::context::Context;
use crate::failure::Failure;
use crate::key_options::KeyOptions;
use crate::keys;

/// Reads a certificate, and its private key if there is one, from a file in PEM, DER or PKCS #12. A
/// passphrase is fetched only if the file needs one: from `key`, otherwise at the terminal.
/// Errors are those of [`strongroom_keyring::read_identity`].
pub(super) fn read(file: &Path, key: KeyOptions, context: &Context) -> Result<Identity, Failure> {
    let source = keys::source(key).unwrap_or(KeySource::Ask);
    let asking = SourceContext {
        keyring: context.keyring.clone(),
        creating: false,
        prompt: format!("Passphrase of {}", file.display()),
    };
    Ok(strongroom_keyring::read_identity(file, &source, &asking)?)
}
