//! The entries of a keyring: versions of named keys, each wrapped under a key of the keyring.
//!
//! Invariants: K13, of the versions of a key at most the newest is active; K15, an entry is never
//! removed.
//!
//! Must not: read or write the keyring's file.

use strongroom_crypto::SecretKey;
use strongroom_format::aad::{Role, aad_layout};
use strongroom_format::code;
use strongroom_format::header::WrappedKey;
use strongroom_format::keyring::{Body, ENTRIES_MAX, Entry, KeyState, NAME_MAX, PURPOSE_WRAP};

use crate::error::Error;
use crate::fresh::{Fresh, System};
use crate::object::Object;
use crate::purpose::Purpose;
use crate::wrap::{key_aad, unwrap, wrap};

/// One version of one key, without its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyInfo {
    /// The key's name.
    pub name: String,
    /// From 1, one more at each rotation.
    pub version: u32,
    /// Whether it seals and opens, or only opens.
    pub state: KeyState,
    /// When this version was made, in seconds since the Unix epoch.
    pub created_unix_s: u64,
}

impl KeyInfo {
    /// Copies all of a keyring entry but its key.
    pub(crate) fn of(entry: &Entry) -> Self {
        Self {
            name: entry.name.clone(),
            version: entry.version,
            state: entry.state,
            created_unix_s: entry.created_unix_s,
        }
    }
}

/// Whether a key or certificate may have this name: 1 to 128 characters of `a-z A-Z 0-9 . _ -`.
pub(crate) fn name_is_valid(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(allowed)
}

/// Unwraps the key of an entry. Errors: SR-2005 when it does not authenticate; SR-5001 when the
/// system reports an error.
pub(crate) fn unwrap_entry(object: &Object, entry: &Entry) -> Result<SecretKey, Error> {
    let key = entry_key(object, &entry.name)?;
    unwrap(&key, &entry_aad(object, entry), &entry.wrapped)?.ok_or_else(|| {
        Error::damaged_keyring(&format!("key {} version {}", entry.name, entry.version))
    })
}

/// Wraps `key` into `entry` under a fresh nonce, bound to the entry's present name, version, state
/// and purpose. Errors: SR-5001 without randomness or memory for keys.
pub(crate) fn wrap_entry(object: &Object, entry: &mut Entry, key: &SecretKey) -> Result<(), Error> {
    let wrapping = entry_key(object, &entry.name)?;
    entry.wrapped = wrap(&wrapping, System.nonce()?, &entry_aad(object, entry), key)?;
    Ok(())
}

/// Marks an entry as retired, and wraps its key again, bound to the new state. Errors: SR-2005 when
/// the key does not unwrap; SR-5001 when the system reports an error.
pub(crate) fn retire_entry(object: &Object, entry: &mut Entry) -> Result<(), Error> {
    let key = unwrap_entry(object, entry)?;
    entry.state = KeyState::Retired;
    wrap_entry(object, entry, &key)
}

/// Checks that the keyring has room for another version of a key. Errors: SR-2024 when it has
/// 65536.
pub(crate) fn check_room(body: &Body) -> Result<(), Error> {
    match body.entries.len() < ENTRIES_MAX {
        true => Ok(()),
        false => Err(Error::new(&code::KEYRING_FULL, "")),
    }
}

/// Derives the key that wraps the entries of this name. Each name has its own, because a name does
/// not fit into the associated data. Errors: SR-5001 without memory for keys.
fn entry_key(object: &Object, name: &str) -> Result<SecretKey, Error> {
    object.derive(
        object.epoch(),
        Purpose::KeyringEntries,
        &[0; 32],
        name.as_bytes(),
    )
}

/// Returns the associated data of an entry's wrapped key. Position = version, extra = purpose *
/// 65536 + state (docs/spec/keyring.md, "Entries").
fn entry_aad(object: &Object, entry: &Entry) -> [u8; aad_layout::SIZE] {
    let extra = u64::from(entry.purpose) << 16 | u64::from(entry.state.number());
    key_aad(Role::KeyringEntry, object.epoch(), object.object_id())
        .at_with(u64::from(entry.version), extra)
}

/// Makes a random key and adds it to `body` as this version of `name`, active. Errors: SR-2024 when
/// the keyring is full; SR-5001 when the system reports an error.
pub(crate) fn push_new_version(
    object: &Object,
    body: &mut Body,
    name: &str,
    version: u32,
) -> Result<KeyInfo, Error> {
    check_room(body)?;
    let mut entry = Entry {
        name: name.to_owned(),
        version,
        state: KeyState::Active,
        purpose: PURPOSE_WRAP,
        created_unix_s: System.now_unix_s(),
        wrapped: WrappedKey::NONE,
    };
    wrap_entry(object, &mut entry, &SecretKey::generate()?)?;
    let info = KeyInfo::of(&entry);
    body.entries.push(entry);
    Ok(info)
}

/// Retires every active version of a key in `body`; does nothing when there is none. Errors:
/// SR-2005 when a key does not unwrap; SR-5001 when the system reports an error.
pub(crate) fn retire_active_versions(
    object: &Object,
    body: &mut Body,
    name: &str,
) -> Result<(), Error> {
    let active = |entry: &&mut Entry| entry.name == name && entry.state == KeyState::Active;
    body.entries
        .iter_mut()
        .filter(active)
        .try_for_each(|entry| retire_entry(object, entry))
}

/// Returns the highest version number of a key, retired or not. Errors: SR-2003 when there is no
/// such key.
pub(crate) fn newest_version(body: &Body, name: &str) -> Result<u32, Error> {
    let versions = body.entries.iter().filter(|entry| entry.name == name);
    let newest = versions.map(|entry| entry.version).max();
    newest.ok_or_else(|| {
        // An invalid name is not repeated: it may be a secret in the wrong place (K2).
        let shown = if name_is_valid(name) {
            name
        } else {
            "not a key name"
        };
        Error::new(&code::UNKNOWN_KEY_ID, shown)
    })
}

/// Checks that a key or certificate may have this name. Errors: SR-2013 when it may not.
pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    match name_is_valid(name) {
        true => Ok(()),
        false => Err(Error::new(&code::KEY_NAME, "")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_names() {
        for name in ["a", "app-1.prod_eu", &"x".repeat(128)] {
            assert!(name_is_valid(name), "{name}");
        }
        for name in ["", "a b", "a/b", "é", "a\n", "a:b", &"x".repeat(129)] {
            assert!(!name_is_valid(name), "{name:?}");
        }
    }
}
