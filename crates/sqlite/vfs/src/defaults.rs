//! The default key for databases that name none, in a program that `strongroom sqlite run` has
//! started. The program opens a database by its path, as it would a plain one.
//!
//! An environment variable says where the key is, and never contains it. The extension reads the
//! variable once; the Rust library does not read it.
//!
//! Invariants:
//! - F1. With a malformed variable every database is refused, because the program was meant to have
//!   a key.
//! - F2. An existing plain database is opened only where the variable says so.
//! - F3. An inherited descriptor is read only while it refers to the memory that the command made:
//!   a program may close descriptors that it does not know, and then have another file under the
//!   number.
//!
//! Must not: accept a key in the environment.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use strongroom_format::code;
use strongroom_format::run::{NEVER_PLAIN_VARIABLE, forbids_plain};
use strongroom_keyring::{Error, KeySource, Opener};

use crate::key_options::KeyOptions;

// The names of its options are those of URIs, and `KEY_FD` and `EXISTING_PLAIN`.
pub use strongroom_format::run::DEFAULT_VARIABLE;

/// The number of an inherited descriptor from which the key can be read. In this way a passphrase
/// that the command asked for reaches the program.
pub const KEY_FD: &str = "key_fd";
/// The name of the memory file behind [`KEY_FD`].
pub const KEY_FD_NAME: &str = "strongroom-key";
/// With the value 1, existing plain databases are opened as plain ones.
pub const EXISTING_PLAIN: &str = "existing_plain";

/// The content of the variable.
pub(crate) struct Defaults {
    options: KeyOptions,
    /// The path of the inherited descriptor.
    inherited: Option<PathBuf>,
    existing_plain: bool,
    /// The fetched key: one for existing databases, one for new ones. The program may open many
    /// databases, and a passphrase is stretched, or asked for, once.
    openers: [Mutex<Option<Fetched>>; 2],
}

/// A key that was fetched.
struct Fetched {
    opener: Arc<Opener>,
    /// The state of the keyring's file at that time: a key of the keyring that was rotated since
    /// has a version that this opener does not know.
    keyring: Option<KeyringState>,
}

/// Identifies a state of a file: device, inode, size in bytes, and the time of its last change in
/// seconds and nanoseconds.
type KeyringState = (u64, u64, u64, i64, i64);

/// The inner `None`: the variable was malformed.
static DEFAULTS: OnceLock<Option<Defaults>> = OnceLock::new();

/// Reads the environment variable with the defaults, if it is set, and keeps them for the process;
/// a malformed one is noted as such. Called by the extension before the first database is opened; a
/// second call changes nothing. Fetches no key.
pub fn take_default_from_environment() {
    if let Some(text) = std::env::var_os(DEFAULT_VARIABLE).filter(|text| !text.is_empty()) {
        DEFAULTS.get_or_init(|| text.to_str().and_then(Defaults::parse));
    }
}

/// Returns the defaults in force. `None` if the program was started without any.
///
/// # Errors
/// SR-6009 when the variable with the defaults is malformed (F1).
pub(crate) fn get() -> Result<Option<&'static Defaults>, Error> {
    match DEFAULTS.get() {
        None => Ok(None),
        Some(Some(defaults)) => Ok(Some(defaults)),
        Some(None) => Err(Error::new(&code::URI, DEFAULT_VARIABLE)),
    }
}

/// Whether plain databases are refused: by the environment, or because the extension was built so.
pub(crate) fn never_plain() -> bool {
    cfg!(feature = "never-plain")
        || std::env::var_os(NEVER_PLAIN_VARIABLE)
            .is_some_and(|value| forbids_plain(value.as_encoded_bytes()))
}

impl Defaults {
    /// Reads the defaults that `strongroom sqlite run` passed on, a name and a value in each line.
    /// `None` when a line is malformed or no key source is named.
    fn parse(text: &str) -> Option<Self> {
        let lines: Option<Vec<(&str, &str)>> =
            text.lines().map(|line| line.split_once(' ')).collect();
        let lines = lines?;
        let get = |name: &str| {
            let found = lines.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let mut options = KeyOptions::read(get).ok()?;
        let mut inherited = None;
        if let Some(number) = get(KEY_FD) {
            let number: u32 = number.parse().ok()?;
            // Each open of this path begins to read at the start.
            let path = PathBuf::from(format!("/proc/self/fd/{number}"));
            options.source = Some(KeySource::File(path.clone()));
            inherited = Some(path);
        }
        options.source.as_ref()?;
        Some(Self {
            options,
            inherited,
            existing_plain: get(EXISTING_PLAIN).as_deref() == Some("1"),
            openers: [Mutex::new(None), Mutex::new(None)],
        })
    }

    /// Returns the options of a new database whose URI does not give them.
    pub(crate) fn options(&self) -> &KeyOptions {
        &self.options
    }

    /// Whether an existing plain database may be opened as a plain one (F2).
    pub(crate) fn open_existing_plain(&self) -> bool {
        self.existing_plain
    }

    /// Returns the default key: for new databases if `creating`, else for existing ones. It is
    /// fetched once, and again only after the keyring's file has changed.
    ///
    /// # Errors
    /// SR-2007 when the inherited descriptor with the key is no longer the one that the command
    /// opened; SR-2001 when no source is named; otherwise those of the key's source (SR-2003 to
    /// SR-2012).
    pub(crate) fn opener(&self, creating: bool) -> Result<Arc<Opener>, Error> {
        let place = &self.openers[usize::from(creating)];
        // A panic while this was locked leaves it consistent: it is set at once.
        let mut known = place.lock().unwrap_or_else(PoisonError::into_inner);
        let keyring = self.keyring_state();
        if let Some(fetched) = &*known
            && (keyring.is_none() || fetched.keyring == keyring)
        {
            return Ok(Arc::clone(&fetched.opener));
        }
        if let Some(path) = &self.inherited {
            // The kernel shows such memory in this form (memfd_create(2)).
            let expected = format!("/memfd:{KEY_FD_NAME} (deleted)");
            let is_ours = std::fs::read_link(path).is_ok_and(|shown| shown == Path::new(&expected));
            if !is_ours {
                let detail = "the program has closed the descriptor with the passphrase";
                return Err(Error::new(&code::KEY_FILE, detail));
            }
        }
        let fetched = self.options.own_opener("", creating)?;
        let fetched = fetched.ok_or_else(|| Error::new(&code::NO_KEY, DEFAULT_VARIABLE))?;
        let opener = Arc::new(fetched);
        *known = Some(Fetched {
            opener: Arc::clone(&opener),
            keyring,
        });
        Ok(opener)
    }

    /// Returns what identifies the present state of the keyring's file, where the key is one of the
    /// keyring. `None` for another key, and where the file cannot be looked at, for instance by a
    /// program that has given up its rights.
    fn keyring_state(&self) -> Option<KeyringState> {
        let Some(KeySource::KeyId { .. }) = self.options.source else {
            return None;
        };
        let path = self.options.keyring();
        let path = path.unwrap_or_else(strongroom_keyring::Keyring::default_path);
        let about = std::fs::metadata(path).ok()?;
        Some((
            about.dev(),
            about.ino(),
            about.size(),
            about.mtime(),
            about.mtime_nsec(),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Defaults {
        Defaults::parse(text).unwrap()
    }

    #[test]
    fn a_variable_names_a_key_or_is_not_understood() {
        let said = parsed("key_file /a b\nfreshness 1\nexisting_plain 1");
        assert!(said.existing_plain && said.options.freshness);
        let Some(KeySource::File(path)) = said.options.source else {
            panic!("not a file");
        };
        assert_eq!(path, PathBuf::from("/a b"));
        let inherited = parsed("key_fd 7");
        assert_eq!(
            inherited.options.source.unwrap().describe(),
            "file:/proc/self/fd/7"
        );
        // The number is another file's by now.
        let other = parsed("key_fd 0");
        assert_eq!(other.opener(true).err().unwrap().code(), &code::KEY_FILE);
        for bad in [
            "freshness 1",
            "key_id",
            "key x",
            "key_fd seven",
            "key_id a\nkey_env b",
            "key_id a\npage_size 7",
        ] {
            assert!(Defaults::parse(bad).is_none(), "{bad}");
        }
    }
}
