//! Where the catalogue of a keyring is, and whether it can be opened without asking for a
//! passphrase.
//!
//! Must not: open it.

use std::path::{Path, PathBuf};

use strongroom_keyring::Keyring;

/// The path of the catalogue that was named, else KEYRING`.history` beside the keyring. It need not
/// exist.
#[must_use]
pub fn catalogue_path(named: Option<&Path>, keyring: &Path) -> PathBuf {
    if let Some(named) = named {
        return named.to_path_buf();
    }
    let mut beside = keyring.as_os_str().to_os_string();
    beside.push(".history");
    beside.into()
}

/// Whether there is a keyring whose root key does not have to be typed: its provider is not
/// `passphrase`. False when it cannot be read.
pub(super) fn can_be_opened_unasked(keyring: &Path) -> bool {
    let status = Keyring::status(keyring);
    status.is_ok_and(|status| status.provider != "passphrase")
}
