//! The key that an export of a keyring is sealed for.
//!
//! Must not: be a key of the keyring itself.

use strongroom_format::code;
use strongroom_keyring::KeySource;

use crate::failure::Failure;
use crate::key_options::KeyOptions;
use crate::keys;

/// Returns the key source that an export of the keyring is sealed for, without fetching the key.
/// SR-2044 if no key is named; and for `--key-id`, because a key of the keyring would be lost
/// together with the keyring.
pub(super) fn export_key(options: KeyOptions) -> Result<KeySource, Failure> {
    match keys::source(options) {
        Some(KeySource::KeyId { id }) => {
            let detail = format!("--key-id {id} names a key of the keyring");
            Err(Failure::new(&code::EXPORT_KEY, detail))
        }
        Some(source) => Ok(source),
        None => Err(Failure::new(&code::EXPORT_KEY, "")),
    }
}
