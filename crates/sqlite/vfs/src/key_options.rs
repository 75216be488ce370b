//! The options of a database in its URI: the source of its key, and the layout of a new database.
//!
//! Must not: keep key material anywhere but in an `Opener` (locked memory), or put any into a
//! message.

use std::path::PathBuf;

use strongroom_format::code;
use strongroom_format::header::Cipher;
use strongroom_keyring::{Error, KeySource, Opener, SourceContext};

use crate::foreign_words;
use crate::new_database::NewDatabase;

/// The URI parameters that this VFS reads.
#[derive(Default)]
pub(crate) struct KeyOptions {
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

impl KeyOptions {
    /// Reads the parameters; `get` returns a parameter's value if the URI has it. Every one may be
    /// missing, the key too. `freshness` and `allow_plaintext` are on for `1`, `on`, `true` and
    /// `yes`, and off for any other value. Fetches no key. Errors: SR-2280 for a parameter of
    /// another product, or a misspelt one; SR-2019 for more than one key; SR-6009 for an invalid
    /// cipher or page size.
    pub(crate) fn read(get: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        if let Some(instead) = foreign_words::advice_for_parameter(&get) {
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
            .map(|name| Cipher::for_database(&name).ok_or_else(|| invalid("cipher")))
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

    /// Returns the settings of a database created with these options: AES-256-GCM where the URI
    /// gives no cipher, and `page_size` where it gives no page size.
    pub(crate) fn new_database(&self, page_size: u32) -> NewDatabase {
        NewDatabase {
            cipher: self.cipher.unwrap_or(Cipher::Aes256Gcm),
            page_size: self.page_size.unwrap_or(page_size),
            freshness: self.freshness,
        }
    }

    /// Returns the path of the keyring named by the URI, or by `STRONGROOM_KEYRING`; `None` for the
    /// default one.
    pub(crate) fn keyring(&self) -> Option<PathBuf> {
        self.keyring.clone().or_else(keyring_from_environment)
    }

    /// Fetches the key that the parameters name. `None` when they name none. `prompt` names the
    /// database in messages; `creating` says that it is new. Errors are those of
    /// `KeySource::opener`, the keyring's provider's among them.
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
}

/// Returns the value of the variable `STRONGROOM_KEYRING`; `None` if it is not set or empty.
#[must_use]
pub fn keyring_from_environment() -> Option<PathBuf> {
    std::env::var_os("STRONGROOM_KEYRING")
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
}

/// Returns `size` if it is a page size that SQLite allows, a power of two from 512 to 65536; else
/// `None`.
#[must_use]
pub fn valid_page_size(size: u32) -> Option<u32> {
    (size.is_power_of_two() && (512..=65536).contains(&size)).then_some(size)
}
