//! Where a database's key comes from: URI parameters, a key registered for a path, PRAGMA key, or
//! the default of a program that `strongroom sqlite run` has started (`defaults.rs`).
//!
//! Must not: keep key material elsewhere than in an `Opener` (locked memory), or put any into a message.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use strongroom_format::code;
use strongroom_format::header::Cipher;
use strongroom_format::run::{NEVER_PLAIN_VARIABLE, forbids_plain};
use strongroom_keyring::{Error, KeySource, Opener, SourceContext};

use crate::defaults;
use crate::main_file::Wanted;
use crate::others;

/// The URI parameters that the guard reads.
#[derive(Default)]
pub(crate) struct Parameters {
    /// `key_id`, `key_env`, `key_file` or `key_command`.
    pub source: Option<KeySource>,
    /// `keyring`.
    pub keyring: Option<PathBuf>,
    /// `cipher`.
    pub cipher: Option<Cipher>,
    /// `page_size`.
    pub page_size: Option<u32>,
    /// `freshness=1`.
    pub freshness: bool,
    /// `allow_plaintext=1`.
    pub allow_plaintext: bool,
}

impl Parameters {
    /// Reads the parameters through `get`, which answers with a parameter's value if the URI has it.
    pub(crate) fn read(get: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        if let Some(instead) = others::parameter(&get) {
            return Err(Error::new(&code::FOREIGN_WORD, instead));
        }
        let sources = [
            get("key_id").map(|id| KeySource::KeyId { id }),
            get("key_env").map(KeySource::Env),
            get("key_file").map(|path| KeySource::File(PathBuf::from(path))),
            get("key_command").map(KeySource::Command),
        ];
        let mut sources = sources.into_iter().flatten();
        let source = sources.next();
        if sources.next().is_some() {
            return Err(Error::new(&code::KEY_OPTION, "URI"));
        }
        let invalid = |name: &str| Error::new(&code::URI, name);
        let cipher = get("cipher")
            .map(|name| Cipher::from_name(&name).ok_or_else(|| invalid("cipher")))
            .transpose()?;
        let page_size = get("page_size")
            .map(|text| {
                text.parse()
                    .ok()
                    .and_then(valid_page_size)
                    .ok_or_else(|| invalid("page_size"))
            })
            .transpose()?;
        let is_on = |name| matches!(get(name).as_deref(), Some("1" | "on" | "true" | "yes"));
        let (freshness, allow_plaintext) = (is_on("freshness"), is_on("allow_plaintext"));
        Ok(Self {
            source,
            keyring: get("keyring").map(PathBuf::from),
            cipher,
            page_size,
            freshness,
            allow_plaintext,
        })
    }

    /// What a database created with these parameters is to be like; `page_size` where the URI has none.
    pub(crate) fn wanted(&self, page_size: u32) -> Wanted {
        Wanted {
            cipher: self.cipher.unwrap_or(Cipher::Aes256Gcm),
            page_size: self.page_size.unwrap_or(page_size),
            freshness: self.freshness,
        }
    }

    /// The keyring named by the URI, by `STRONGROOM_KEYRING`, or `None` for the default one.
    pub(crate) fn keyring(&self) -> Option<PathBuf> {
        self.keyring.clone().or_else(keyring_from_environment)
    }

    /// Fetches the key that the parameters name. `None` when they name none.
    pub(crate) fn own_opener(&self, prompt: &str, creating: bool) -> Result<Option<Opener>, Error> {
        let Some(source) = &self.source else {
            return Ok(None);
        };
        let context = SourceContext {
            keyring: self.keyring(),
            creating,
            prompt: prompt.to_owned(),
        };
        source.opener(&context).map(Some)
    }

    /// Whether the URI names a key for the database at `path`, or one was registered for it.
    pub(crate) fn name_a_key(&self, path: &str) -> bool {
        self.source.is_some() || registered().contains_key(path)
    }

    /// The opener for the database at `path`: from the URI, else from a registered key, else the
    /// default of a program that `strongroom sqlite run` has started. `None`: no key given.
    pub(crate) fn opener(&self, path: &str, creating: bool) -> Result<Option<Arc<Opener>>, Error> {
        if let Some(own) = self.own_opener(path, creating)? {
            return Ok(Some(Arc::new(own)));
        }
        let known = registered().get(path).map(Known::share);
        match known {
            Some(Known::Opener(opener)) => Ok(Some(opener)),
            Some(Known::KeyId(id)) => key_of_keyring(id, path, creating).map(Arc::new).map(Some),
            // A copy that may be plain was asked for by name.
            None if self.allow_plaintext => Ok(None),
            None => match defaults::get()? {
                Some(defaults) => defaults.opener(creating).map(Some),
                None => Ok(None),
            },
        }
    }
}

/// Fetches a key of the keyring that the environment names, or of the default one.
fn key_of_keyring(id: String, prompt: &str, creating: bool) -> Result<Opener, Error> {
    let context = SourceContext {
        keyring: keyring_from_environment(),
        creating,
        prompt: prompt.to_owned(),
    };
    KeySource::KeyId { id }.opener(&context)
}

/// `STRONGROOM_KEYRING`, unless it is empty.
#[must_use]
pub fn keyring_from_environment() -> Option<PathBuf> {
    std::env::var_os("STRONGROOM_KEYRING")
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
}

/// `size` if SQLite allows it as a page size and 32 bytes of it can be reserved.
#[must_use]
pub fn valid_page_size(size: u32) -> Option<u32> {
    (size.is_power_of_two() && (512..=65536).contains(&size)).then_some(size)
}

/// Whether plain databases are refused: by the environment, or because the guard was built so.
pub(crate) fn never_plain() -> bool {
    cfg!(feature = "never-plain")
        || std::env::var_os(NEVER_PLAIN_VARIABLE)
            .is_some_and(|value| forbids_plain(value.as_encoded_bytes()))
}

/// A key that was registered for a path.
enum Known {
    /// The key itself.
    Opener(Arc<Opener>),
    /// A key of the keyring, which is looked up at each open, so that a new version of it is found.
    KeyId(String),
}

impl Known {
    fn share(&self) -> Self {
        match self {
            Self::Opener(opener) => Self::Opener(Arc::clone(opener)),
            Self::KeyId(id) => Self::KeyId(id.clone()),
        }
    }
}

type Registered = BTreeMap<String, Known>;
static REGISTERED: Mutex<Registered> = Mutex::new(BTreeMap::new());

fn registered() -> MutexGuard<'static, Registered> {
    REGISTERED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Registers `opener` for every later open of `path` in this process. `path` is absolute, as SQLite makes it.
pub fn register(path: String, opener: Arc<Opener>) {
    registered().insert(path, Known::Opener(opener));
}

/// Registers the keyring's key `id` for every later open of `path` in this process. `path` is
/// absolute, as SQLite makes it.
///
/// # Errors
/// What keeps the keyring or the key from being used now: SR-2003, SR-2004 and others.
pub(crate) fn register_key_id(path: String, id: String) -> Result<(), Error> {
    key_of_keyring(id.clone(), &path, false)?;
    registered().insert(path, Known::KeyId(id));
    Ok(())
}

/// Forgets the key registered for `path`. True if there was one.
#[must_use]
pub fn unregister(path: &str) -> bool {
    registered().remove(path).is_some()
}
