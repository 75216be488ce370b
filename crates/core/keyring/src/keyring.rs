//! The keyring: named, versioned keys, wrapped under its data key, which a root key opens.
//!
//! Invariants: K11, a change takes the lock, reads the file again, and writes it whole; K13, of the
//! versions of a key at most the newest is active, older ones open but do not seal; K14, a command,
//! module or server that a keyring names is asked only when nobody else may write to the file; K15,
//! a key is never removed from the keyring.
//!
//! Must not: give a key to anybody but an opener or the caller of [`Keyring::key`]; print a warning
//! (see [`Keyring::unexported`]).

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use strongroom_crypto::SecretKey;
use strongroom_format::code;
use strongroom_format::header::{Cipher, ObjectKind};
use strongroom_format::keyring::{Body, Entry, KeyState};

use crate::certificate_info::CertificateInfo;
use crate::durable;
use crate::entries::{
    KeyInfo, check_name, newest_version, push_new_version, retire_active_versions, unwrap_entry,
    wrap_entry,
};
use crate::error::Error;
use crate::newest::{self, Generation};
use crate::object::{NewObject, Object};
use crate::opener::Opener;
use crate::private_key::reseal_key;
use crate::provider::Provider;
use crate::store::{self, Lock};
use crate::symmetric_key::KeyVersion;

/// The parts of a keyring that can be read without its root key. They are checksummed, not
/// authenticated.
#[derive(Clone, Debug)]
pub struct Status {
    /// The keyring's random id.
    pub object_id: [u8; 16],
    /// When the keyring was made, in seconds since the Unix epoch.
    pub created_unix_s: u64,
    /// The provider's name: `passphrase`, `env`, `file` and others; `export` for an export,
    /// `unknown` for a number that is not known.
    pub provider: &'static str,
    /// Whether that provider, in this program, runs or loads what its argument names, or sends
    /// credentials to where it points.
    pub provider_acts: bool,
    /// The provider's argument. It is not authenticated: escape it before showing it.
    pub provider_argument: String,
    /// Raised by one at each change.
    pub generation: u64,
    /// Every version of every key, in order of creation.
    pub keys: Vec<KeyInfo>,
    /// Whether there are keys that are in no export.
    pub unexported: bool,
    /// Every certificate, in order of creation.
    pub certificates: Vec<CertificateInfo>,
}

/// An open keyring.
pub struct Keyring {
    path: PathBuf,
    pub(crate) object: Object,
    pub(crate) body: Body,
    /// Whether a newer generation of this keyring was known on this machine when it was opened.
    older: bool,
}

/// How a change affects whether all keys are in an export.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// New keys: the last export lacks them.
    NewKeys,
    /// No new keys: what was exported is still exported.
    SameKeys,
    /// Every key is in an export now.
    Exported,
}

impl Keyring {
    /// Returns the default path: `$XDG_DATA_HOME/strongroom/keyring`, else
    /// `~/.local/share/strongroom/keyring`; without a home `/var/lib/strongroom/keyring`. A
    /// variable that is not an absolute path is ignored.
    #[must_use]
    pub fn default_path() -> PathBuf {
        default_path_from(std::env::var_os("XDG_DATA_HOME"), std::env::var_os("HOME"))
    }

    /// Creates an empty keyring with mode 0600, sealed for a root key that `provider` makes or
    /// fetches, and returns it open. Directories that are missing are created with mode 0700.
    ///
    /// # Errors
    /// SR-2015 when there is something at `path`; what the provider reports; SR-5001 when the
    /// system reports an error.
    pub fn init(path: &Path, provider: &Provider) -> Result<Self, Error> {
        let exists = || Error::new(&code::KEYRING_EXISTS, path.display().to_string());
        // Checked before the provider asks for anything; creating the file checks again.
        if path.symlink_metadata().is_ok() {
            return Err(exists());
        }
        let root = provider.create()?;
        let object = Object::create(&NEW_KEYRING, &root.opener.recipient()?)?;
        let body = Body {
            generation: 1,
            exported_generation: 0,
            provider: provider.number(),
            provider_argument: root.argument,
            entries: Vec::new(),
            certificates: Vec::new(),
        };
        store::make_directory(path)?;
        durable::create_new(path, &store::file_bytes(&object, &body)?, store::MODE).map_err(
            |error| match error.kind() {
                ErrorKind::AlreadyExists => exists(),
                _ => Error::io(format!("creating {}", path.display()), error),
            },
        )?;
        Ok(Self {
            path: resolved(path)?,
            object,
            body,
            older: false,
        })
    }

    /// Opens the keyring with the root key that its provider delivers, which may ask at the
    /// terminal, run a command or call a server. When a newer generation of it is known on this
    /// machine, it is opened all the same, and noted for [`crate::take_older_keyring_warning`].
    ///
    /// # Errors
    /// SR-2004 when there is none; SR-3001 not sealed, SR-3002 newer format, SR-3007 another kind
    /// of object; SR-2005 when it is damaged; SR-2020 for a provider that is not known, or one that
    /// runs a command or calls a server, named in a file that others may write to; what the
    /// provider reports; SR-2006 when the root key does not open it; SR-5001 when the system
    /// reports an error.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let path = resolved(path)?;
        let known = newest::known(&store::lock_path(&path));
        let unproven = store::read(&path)?;
        let named = &unproven.body;
        let provider = Provider::from_stored(named.provider, &named.provider_argument)?;
        if provider.acts() && !unproven.private {
            let detail = format!(
                "{} names a command, a module or a server, but others may write to it",
                path.display()
            );
            return Err(Error::new(&code::PROVIDER, detail));
        }
        let root = provider.fetch(false)?;
        let opened =
            unproven.authenticated(|bytes| Object::open(bytes, ObjectKind::Keyring, &root));
        let (object, body) = opened.map_err(|error| match error.code().number {
            number if number == code::WRONG_KEY.number => {
                Error::new(&code::KEYRING_WRONG_ROOT, path.display().to_string())
            }
            _ => error.about(path.display()),
        })?;
        let older = generation(&object, &body).is_older_than(known);
        if older {
            newest::note_that_an_older_one_was_opened();
        }
        Ok(Self {
            path,
            object,
            body,
            older,
        })
    }

    /// Reads what can be read without the root key: nothing of it is authenticated. Asks no
    /// provider.
    ///
    /// # Errors
    /// SR-2004 when there is no keyring; SR-3001 not sealed, SR-3002 newer format, SR-3007 another
    /// kind of object; SR-2005 when it is damaged; SR-5001 when the system reports an error.
    pub fn status(path: &Path) -> Result<Status, Error> {
        let unproven = store::read(&resolved(path)?)?;
        Ok(Status {
            object_id: unproven.header.object_id,
            created_unix_s: unproven.header.created_unix_s,
            provider: Provider::name_of(unproven.body.provider),
            provider_acts: Provider::number_acts(unproven.body.provider),
            unexported: is_unexported(&unproven.body),
            generation: unproven.body.generation,
            keys: unproven.body.entries.iter().map(KeyInfo::of).collect(),
            certificates: unproven
                .body
                .certificates
                .iter()
                .map(CertificateInfo::of)
                .collect(),
            provider_argument: unproven.body.provider_argument,
        })
    }

    /// Makes version 1 of a new random key, and writes the keyring.
    ///
    /// # Errors
    /// SR-2013 for a name that is not valid; SR-2014 when it is taken; SR-2024 when the keyring is
    /// full. As for every change: SR-2016 when another process is changing the keyring for more
    /// than 10 seconds; SR-2017 when it has another root key meanwhile; SR-2039 when this is an
    /// older copy of it; SR-5001 when the system reports an error.
    pub fn create_key(&mut self, name: &str) -> Result<KeyInfo, Error> {
        check_name(name)?;
        self.change(Effect::NewKeys, |object, body| {
            if body.entries.iter().any(|entry| entry.name == name) {
                return Err(Error::new(&code::KEY_EXISTS, name));
            }
            push_new_version(object, body, name, 1)
        })
    }

    /// Makes the next version of a key, with new random bytes, and retires all older ones. A key
    /// that was retired becomes active by this. Writes the keyring.
    ///
    /// # Errors
    /// SR-2003 when there is no such key; SR-1001 when no version number is left; SR-2024 when the
    /// keyring is full; as for every change SR-2016 when another process keeps the keyring's lock
    /// for 10 seconds, SR-2017 when it has another root key meanwhile, SR-2039 when this is an
    /// older copy of it, SR-5001 when the system reports an error.
    pub fn rotate_key(&mut self, name: &str) -> Result<KeyInfo, Error> {
        self.change(Effect::NewKeys, |object, body| {
            let newest = newest_version(body, name)?;
            retire_active_versions(object, body, name)?;
            let next = newest.checked_add(1);
            push_new_version(
                object,
                body,
                name,
                next.ok_or_else(|| used_up("key versions are used up"))?,
            )
        })
    }

    /// Retires every version of a key: it still opens, and seals nothing new. Writes the keyring.
    /// Nothing changes when all are retired already.
    ///
    /// # Errors
    /// SR-2003 when there is no such key; as for every change SR-2016 when another process keeps
    /// the keyring's lock for 10 seconds, SR-2017 when it has another root key meanwhile, SR-2039
    /// when this is an older copy of it, SR-5001 when the system reports an error.
    pub fn retire_key(&mut self, name: &str) -> Result<(), Error> {
        self.change(Effect::SameKeys, |object, body| {
            newest_version(body, name)?;
            retire_active_versions(object, body, name)
        })
    }

    /// Lists every version of every key, in order of creation.
    #[must_use]
    pub fn list(&self) -> Vec<KeyInfo> {
        self.body.entries.iter().map(KeyInfo::of).collect()
    }

    /// Returns the bytes of this version of a key, retired or not, or without `version` those of
    /// its newest active version.
    ///
    /// # Errors
    /// SR-2003 when there is no such key or version; SR-2012 when no version is asked for and all
    /// are retired; SR-2005 when it does not unwrap; SR-5001 when the system reports an error.
    pub fn key(&self, name: &str, version: Option<u32>) -> Result<SecretKey, Error> {
        let newest = newest_version(&self.body, name)?;
        let wanted = |entry: &&Entry| match version {
            Some(version) => entry.version == version,
            None => entry.state == KeyState::Active,
        };
        let found = self
            .versions(name)
            .filter(wanted)
            .max_by_key(|entry| entry.version);
        match (found, version) {
            (Some(entry), _) => unwrap_entry(&self.object, entry),
            (None, Some(version)) => {
                let detail = format!("{name} version {version}; the newest is {newest}");
                Err(Error::new(&code::UNKNOWN_KEY_ID, detail))
            }
            (None, None) => Err(Error::new(&code::KEY_RETIRED, name)),
        }
    }

    /// Makes an opener of every version of a key. With `creating`, its recipient must be able to
    /// seal.
    ///
    /// # Errors
    /// SR-2003 when there is no such key; with `creating`, SR-2012 if every version is retired and
    /// SR-2039 if this is an older copy of the keyring, in which a version may be active that was
    /// retired since. SR-2005 when a version does not unwrap; SR-5001 when the system reports an
    /// error.
    pub fn opener(&self, name: &str, creating: bool) -> Result<Opener, Error> {
        newest_version(&self.body, name)?;
        if creating {
            self.refuse_older()?;
        }
        let held = |entry: &Entry| {
            let active = entry.state == KeyState::Active;
            let key = unwrap_entry(&self.object, entry)?;
            Ok(KeyVersion {
                version: entry.version,
                active,
                key,
            })
        };
        let versions: Vec<KeyVersion> = self
            .versions(name)
            .map(held)
            .collect::<Result<_, Error>>()?;
        if creating && !versions.iter().any(|version| version.active) {
            return Err(Error::new(&code::KEY_RETIRED, name));
        }
        Ok(Opener::keyring(name.to_owned(), versions))
    }

    /// Rewraps the keyring: gives it a new data key, wraps every key under it, seals it for the
    /// root key that `new_provider`, or else the present provider, delivers now, and writes it.
    /// Returns whether that is another root key than before.
    ///
    /// # Errors
    /// What the provider reports; as for every change SR-2016 when another process keeps the
    /// keyring's lock for 10 seconds, SR-2017 when it has another root key meanwhile, SR-2039 when
    /// this is an older copy of it, SR-5001 when the system reports an error.
    pub fn rotate_root(&mut self, new_provider: Option<Provider>) -> Result<bool, Error> {
        let provider = match new_provider {
            Some(provider) => provider,
            None => Provider::from_stored(self.body.provider, &self.body.provider_argument)?,
        };
        // Before the lock is taken, because a user may have to type a passphrase.
        let created = provider.create()?;
        let root = &created.opener;
        let lock = Lock::take(&self.path)?;
        self.read_again(&lock)?;
        let header = self.object.header();
        let same = root
            .open(&header.slots, header.epoch, header.object_id)
            .is_ok();
        let rekeyed = self.object.rekey_begun(&[&root.recipient()?])?;
        let object = rekeyed.rekey_finished()?;
        let mut body = self.body.clone();
        for entry in &mut body.entries {
            let key = unwrap_entry(&self.object, entry)?;
            wrap_entry(&object, entry, &key)?;
        }
        for record in &mut body.certificates {
            reseal_key(&self.object, &object, record)?;
        }
        body.provider = provider.number();
        body.provider_argument = created.argument;
        self.count_change(&mut body, Effect::SameKeys)?;
        self.write(&lock, &object, &body)?;
        (self.object, self.body) = (object, body);
        drop(lock);
        Ok(!same)
    }

    /// Whether there are keys that are in no export. Without the keyring, everything that they seal
    /// is lost.
    #[must_use]
    pub fn unexported(&self) -> bool {
        is_unexported(&self.body)
    }

    /// Returns the path of the file, with symbolic links resolved.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Takes the lock, reads the file again, runs `edit` on a copy of its contents, and writes the
    /// result. Writes nothing when `edit` fails or changes nothing; [`Effect::Exported`] is always
    /// written. Errors: those of `edit`; SR-2016 when another process keeps the lock for 10
    /// seconds; SR-2017 when the keyring has another root key meanwhile; SR-2039 when it is an
    /// older copy; SR-2005 when it is damaged; SR-5001 when the system reports an error.
    pub(crate) fn change<T>(
        &mut self,
        effect: Effect,
        edit: impl FnOnce(&Object, &mut Body) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let lock = Lock::take(&self.path)?;
        self.read_again(&lock)?;
        let mut body = self.body.clone();
        let result = edit(&self.object, &mut body)?;
        if body != self.body || effect == Effect::Exported {
            self.count_change(&mut body, effect)?;
            self.write(&lock, &self.object, &body)?;
            self.body = body;
        }
        drop(lock);
        Ok(result)
    }

    /// Makes this copy of the keyring the newest, although a newer one was known on this machine:
    /// writes it with a generation that is one higher than the newest known one, so that the other
    /// copy counts as older from now on. Returns false, and changes nothing, when no newer one is
    /// known.
    ///
    /// # Errors
    /// As for every change SR-2016 when another process keeps the keyring's lock for 10 seconds,
    /// SR-2017 when it has another root key meanwhile, SR-5001 when the system reports an error.
    pub fn accept_older(&mut self) -> Result<bool, Error> {
        let lock = Lock::take(&self.path)?;
        self.read_newest()?;
        let known = lock.newest();
        if !generation(&self.object, &self.body).is_older_than(known) {
            return Ok(false);
        }
        let mut body = self.body.clone();
        body.generation = known.map_or(body.generation, |known| known.number);
        self.count_change(&mut body, Effect::NewKeys)?;
        self.write(&lock, &self.object, &body)?;
        self.body = body;
        self.older = false;
        Ok(true)
    }

    /// Checks that no newer generation of this keyring is known on this machine. Errors: SR-2039
    /// when one is, so that this is an older copy.
    pub(crate) fn refuse_older(&self) -> Result<(), Error> {
        match self.older {
            true => Err(Error::new(
                &code::KEYRING_OLDER,
                self.path.display().to_string(),
            )),
            false => Ok(()),
        }
    }

    /// Iterates over every version of the key with this name.
    fn versions(&self, name: &str) -> impl Iterator<Item = &Entry> {
        self.body
            .entries
            .iter()
            .filter(move |entry| entry.name == name)
    }

    /// Reads the file again before a change, under the lock. Errors: SR-2039 when it is an older
    /// copy than the newest known one; SR-2017 when it has another root key meanwhile; SR-2005 when
    /// it is damaged; SR-2004 when it is gone; SR-5001 when the system reports an error.
    fn read_again(&mut self, lock: &Lock) -> Result<(), Error> {
        self.read_newest()?;
        self.older = generation(&self.object, &self.body).is_older_than(lock.newest());
        self.refuse_older()
    }

    /// Reads the file again, and opens it with what this keyring holds of its keys, without its
    /// provider. Errors: SR-2017 when another root key was given to it meanwhile; SR-2005 when it
    /// is damaged, or an older header was put back; SR-2004 when it is gone; SR-5001 when the
    /// system reports an error.
    fn read_newest(&mut self) -> Result<(), Error> {
        let unproven = store::read(&self.path)?;
        let (object, body) = unproven.authenticated(|bytes| self.object.reload(bytes))?;
        (self.object, self.body) = (object, body);
        Ok(())
    }

    /// Replaces the file durably, then notes its generation in the lock file as the newest known
    /// one. Errors: SR-5001 when one of the two cannot be written.
    fn write(&self, lock: &Lock, object: &Object, body: &Body) -> Result<(), Error> {
        let failed = |error| Error::io(format!("writing {}", self.path.display()), error);
        let bytes = store::file_bytes(object, body)?;
        durable::replace(&self.path, &bytes, store::MODE).map_err(failed)?;
        // Only now: the record must not name a generation that is not durable.
        lock.remember(generation(object, body)).map_err(failed)
    }

    /// Raises the generation of `body`, a changed copy of ours. A keyring whose keys are all in an
    /// export stays so unless the change has added keys. Errors: SR-1001 when no generation is
    /// left.
    fn count_change(&self, body: &mut Body, effect: Effect) -> Result<(), Error> {
        let next = body.generation.checked_add(1);
        body.generation = next.ok_or_else(|| used_up("generations are used up"))?;
        let still_exported = !self.unexported() && effect == Effect::SameKeys;
        if still_exported || effect == Effect::Exported {
            body.exported_generation = body.generation;
        }
        Ok(())
    }
}

/// Returns the keyring's id and generation.
fn generation(object: &Object, body: &Body) -> Generation {
    Generation {
        keyring: object.object_id(),
        number: body.generation,
    }
}

/// The header of every keyring and every export.
pub(crate) const NEW_KEYRING: NewObject = NewObject {
    kind: ObjectKind::Keyring,
    cipher: Cipher::Aes256Gcm,
    unit_size: 0,
    unit_reserve: 0,
};

/// Whether there are keys, and the last export is of an older generation.
fn is_unexported(body: &Body) -> bool {
    !body.entries.is_empty() && body.exported_generation < body.generation
}

/// Makes the error SR-1001: there is no further number of this sort.
fn used_up(detail: &str) -> Error {
    Error::new(&code::USAGE, detail)
}

/// Resolves symbolic links, so that a replacement replaces the file and not the link. Errors:
/// SR-2004 when nothing is at the path; SR-5001 when the system reports an error.
fn resolved(path: &Path) -> Result<PathBuf, Error> {
    std::fs::canonicalize(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => Error::new(&code::KEYRING_MISSING, path.display().to_string()),
        _ => Error::io(format!("finding {}", path.display()), error),
    })
}

/// Returns [`Keyring::default_path`] for these values of the variables; only absolute paths count.
fn default_path_from(data_home: Option<OsString>, home: Option<OsString>) -> PathBuf {
    let usable = |value: Option<OsString>| value.map(PathBuf::from).filter(|p| p.is_absolute());
    usable(data_home)
        .or_else(|| usable(home).map(|home| home.join(".local/share")))
        .unwrap_or_else(|| PathBuf::from("/var/lib"))
        .join("strongroom/keyring")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_path_follows_the_environment() {
        let path = |data_home: Option<&str>, home: Option<&str>| {
            default_path_from(data_home.map(OsString::from), home.map(OsString::from))
        };
        assert_eq!(
            path(Some("/d"), Some("/h")),
            Path::new("/d/strongroom/keyring")
        );
        let in_home = Path::new("/h/.local/share/strongroom/keyring");
        assert_eq!(path(None, Some("/h")), in_home);
        assert_eq!(path(Some(""), Some("/h")), in_home);
        assert_eq!(path(Some("relative"), Some("/h")), in_home);
        assert_eq!(path(None, None), Path::new("/var/lib/strongroom/keyring"));
    }
}
