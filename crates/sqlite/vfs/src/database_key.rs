//! The key of a database: the one that its URI names, one that was registered for its path, or the
//! default of a program that `strongroom sqlite run` has started.
//!
//! Must not: keep key material anywhere but in an `Opener` (locked memory), or put any into a
//! message.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use strongroom_keyring::{Error, KeySource, Opener, SourceContext};

use crate::defaults;
use crate::key_options::{KeyOptions, keyring_from_environment};

/// Whether the URI names a key for the database at `path`, or one was registered for that path.
pub(crate) fn names_a_key(options: &KeyOptions, path: &str) -> bool {
    options.source.is_some() || registered().contains_key(path)
}

/// Fetches the key of the database at `path`: from the URI, else from a registered key, else,
/// unless the URI allows plaintext, the default of a program that `strongroom sqlite run` has
/// started. `None`: no key is given. `creating` says that the database is new. Errors are those of
/// `KeySource::opener`, the keyring's provider's among them; SR-6009 for a malformed default.
pub(crate) fn opener_for(
    options: &KeyOptions,
    path: &str,
    creating: bool,
) -> Result<Option<Arc<Opener>>, Error> {
    if let Some(own) = options.own_opener(path, creating)? {
        return Ok(Some(Arc::new(own)));
    }
    let known = registered().get(path).map(RegisteredKey::share);
    match known {
        Some(RegisteredKey::Opener(opener)) => Ok(Some(opener)),
        Some(RegisteredKey::KeyId(id)) => {
            key_of_keyring(id, path, creating).map(Arc::new).map(Some)
        }
        // The URI asked for a copy that may be plain.
        None if options.allow_plaintext => Ok(None),
        None => match defaults::get()? {
            Some(defaults) => defaults.opener(creating).map(Some),
            None => Ok(None),
        },
    }
}

/// Fetches the key `id` from the keyring that the environment names, or from the default one.
/// SR-2003 if the keyring has no such key, SR-2004 if there is no keyring, SR-2005 if it is
/// damaged, SR-2006 if its root key does not open it, SR-2012 if the key is retired and `creating`;
/// the errors of the root key's provider. `prompt` names the database.
fn key_of_keyring(id: String, prompt: &str, creating: bool) -> Result<Opener, Error> {
    let context = SourceContext {
        keyring: keyring_from_environment(),
        creating,
        prompt: prompt.to_owned(),
    };
    KeySource::KeyId { id }.opener(&context)
}

/// A key that was registered for a path.
enum RegisteredKey {
    /// The key itself.
    Opener(Arc<Opener>),
    /// A key of the keyring. It is looked up at each open, so that a new version of it is found.
    KeyId(String),
}

impl RegisteredKey {
    /// Returns a second reference to the same key.
    fn share(&self) -> Self {
        match self {
            Self::Opener(opener) => Self::Opener(Arc::clone(opener)),
            Self::KeyId(id) => Self::KeyId(id.clone()),
        }
    }
}

type Registered = BTreeMap<String, RegisteredKey>;
static REGISTERED: Mutex<Registered> = Mutex::new(BTreeMap::new());

/// Locks and returns the registered keys, by path. A panic of another thread does not poison them.
fn registered() -> MutexGuard<'static, Registered> {
    REGISTERED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Registers `opener` for every later open of `path` in this process, in place of an earlier key.
/// `path` is absolute, as SQLite makes it.
pub fn register(path: String, opener: Arc<Opener>) {
    registered().insert(path, RegisteredKey::Opener(opener));
}

/// Looks the keyring's key `id` up once, and registers its name for every later open of `path` in
/// this process, in place of an earlier key. `path` is absolute, as SQLite makes it.
///
/// # Errors
/// Why the keyring or the key cannot be used now: SR-2003 if it has no such key, SR-2004 if there
/// is no keyring, SR-2005 if it is damaged, SR-2006 if its root key does not open it; the errors of
/// the root key's provider. Nothing is registered then.
pub(crate) fn register_key_id(path: String, id: String) -> Result<(), Error> {
    key_of_keyring(id.clone(), &path, false)?;
    registered().insert(path, RegisteredKey::KeyId(id));
    Ok(())
}

/// Forgets the key registered for `path`. Returns whether there was one.
#[must_use]
pub fn unregister(path: &str) -> bool {
    registered().remove(path).is_some()
}
