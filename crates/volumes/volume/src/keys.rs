//! The source of volumes' key material: a keyring of this host, or a key server.
//!
//! Invariant V3: the source is configured on the node; a token selects a name and a version,
//! nothing else.
//!
//! Must not: keep material beyond the call that asked for it.

use std::path::{Path, PathBuf};

use strongroom_crypto::{SecretBytes, SecretKey};
use strongroom_format::code;
use strongroom_format::keyring::KeyState;
use strongroom_keyring::{Error, KeyInfo, Keyring};
use strongroom_luks2::{Provider, StrongroomToken};

use crate::secret::slot_secret;

/// One version of a key.
pub struct Material {
    /// Its version, from 1.
    pub version: u32,
    /// The key itself.
    pub key: SecretKey,
}

/// A report about a volume, for the fleet page.
#[derive(Clone, Debug)]
pub struct Report<'a> {
    /// The volume's name: its label, or its device.
    pub name: &'a str,
    /// As `aes-xts-plain64`.
    pub cipher: &'a str,
    /// Name of the key.
    pub key_id: &'a str,
    /// Version of the key.
    pub key_version: u32,
    /// When it was made, in seconds since the Unix epoch; 0 when that is not known.
    pub created: u64,
    /// When its key was last changed.
    pub rotated: Option<u64>,
    /// When it was shredded; `None` for a volume that exists.
    pub shredded: Option<u64>,
}

/// The state of a key after its destruction was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is not destroyed.
    Kept,
    /// It will be destroyed at this time, in seconds since the Unix epoch, unless somebody restores
    /// it before; `None` when the server does not say when.
    Pending(Option<u64>),
    /// Its material is erased at the server.
    Destroyed,
}

/// The result of asking for a key's destruction.
pub struct Destruction {
    /// The key's state.
    pub fate: Fate,
    /// What is left of the key, in words.
    pub left: String,
}

/// A source of key material.
pub trait Keys {
    /// Returns its name in a token.
    fn provider(&self) -> Provider;

    /// Returns the servers' addresses, for people; none for a keyring.
    fn servers(&self) -> Vec<String> {
        Vec::new()
    }

    /// Fetches this version of the key, or the newest that is active.
    ///
    /// # Errors
    /// SR-2003 when there is no such key or version; SR-2012 when no version is given and all are
    /// retired; what the keyring or the key server reports, such as SR-2004 without a keyring or
    /// SR-8402 when no server answers.
    fn fetch(&mut self, name: &str, version: Option<u32>) -> Result<Material, Error>;

    /// Fetches the newest version of the key; makes a key when there is none of that name.
    ///
    /// # Errors
    /// SR-2012 when all versions of the key are retired; what the keyring or the key server
    /// reports, such as SR-2004 without a keyring or SR-8402 when no server answers.
    fn fetch_or_create(&mut self, name: &str) -> Result<Material, Error>;

    /// Makes a new version of the key, and fetches it.
    ///
    /// # Errors
    /// SR-2003 when there is no such key; what the keyring or the key server reports, such as
    /// SR-2004 without a keyring or SR-8402 when no server answers.
    fn rotate(&mut self, name: &str) -> Result<Material, Error>;

    /// Asks for the key's destruction. A keyring destroys none, and the result is that it was kept.
    ///
    /// # Errors
    /// What the key server reports, such as SR-8402 when none answers.
    fn destroy(&mut self, name: &str) -> Result<Destruction, Error>;

    /// Returns the objects other than `object_id` that need the key, in words, as far as their
    /// nodes have reported them. Always empty with a keyring, which keeps no account of that.
    ///
    /// # Errors
    /// What the key server reports, such as SR-8402 when none answers.
    fn others_that_need(&mut self, name: &str, object_id: &[u8; 16]) -> Result<Vec<String>, Error> {
        let _ = (name, object_id);
        Ok(Vec::new())
    }

    /// Returns whether header backups can be stored here, and volumes reported: true for a key
    /// server, false for a keyring.
    fn keeps_headers(&self) -> bool {
        false
    }

    /// Stores a sealed header backup, or removes it when `sealed` is `None`. A keyring does
    /// nothing.
    ///
    /// # Errors
    /// What the key server reports, such as SR-8402 when none answers.
    fn escrow(&mut self, object_id: &[u8; 16], sealed: Option<&[u8]>) -> Result<(), Error> {
        let _ = (object_id, sealed);
        Ok(())
    }

    /// Fetches the sealed header backup that was stored here.
    ///
    /// # Errors
    /// What the key server reports, such as SR-8402 when none answers; SR-1006 with a keyring.
    fn escrowed(&mut self, object_id: &[u8; 16]) -> Result<Vec<u8>, Error> {
        let _ = object_id;
        Err(Error::new(
            &code::NOT_FOUND,
            "a keyring keeps no header backups",
        ))
    }

    /// Reports a volume to the server. A keyring does nothing.
    ///
    /// # Errors
    /// What the key server reports, such as SR-8402 when none answers.
    fn report(&mut self, object_id: &[u8; 16], report: &Report<'_>) -> Result<(), Error> {
        let _ = (object_id, report);
        Ok(())
    }
}

/// Fetches the key of a token, and returns the passphrase that it makes. The caller tries it on a
/// slot.
///
/// # Errors
/// SR-2003 when there is no such key or version; SR-5001 when there is no memory for keys; what the
/// keyring or the key server reports, such as SR-2004 without a keyring or SR-8402 when no server
/// answers.
pub fn secret_of_token(keys: &mut dyn Keys, token: &StrongroomToken) -> Result<SecretBytes, Error> {
    let material = keys.fetch(&token.key_id, Some(token.key_version))?;
    slot_secret(&material.key, &token.object_id)
}

/// Keys of a keyring of this host.
pub struct KeyringKeys {
    path: PathBuf,
    opened: Option<Keyring>,
}

impl KeyringKeys {
    /// Returns the keys of the keyring at `path`. It is opened when a key is first asked for.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            opened: None,
        }
    }

    /// Returns the keyring, which the first call opens. As [`Keyring::open`] when that fails.
    fn keyring(&mut self) -> Result<&mut Keyring, Error> {
        if self.opened.is_none() {
            self.opened = Some(Keyring::open(&self.path)?);
        }
        self.opened
            .as_mut()
            .ok_or_else(|| Error::new(&code::BUG, "a keyring that is open"))
    }

    /// Returns whether the keyring has keys that were never exported. False when no key was asked
    /// for yet.
    #[must_use]
    pub fn unexported(&self) -> bool {
        self.opened.as_ref().is_some_and(Keyring::unexported)
    }
}

impl Keys for KeyringKeys {
    /// Returns [`Provider::Keyring`].
    fn provider(&self) -> Provider {
        Provider::Keyring
    }

    /// Returns this version of the key from the keyring, or the newest that is active. Opens the
    /// keyring if it is not open. SR-2003 when there is no such key or version, SR-2012 when none
    /// is given and all are retired; as [`Keyring::open`].
    fn fetch(&mut self, name: &str, version: Option<u32>) -> Result<Material, Error> {
        let keyring = self.keyring()?;
        let key = keyring.key(name, version)?;
        let ours = |key: &KeyInfo| key.name == name && key.state == KeyState::Active;
        let newest = keyring.list().into_iter().filter(ours);
        let newest = newest.map(|key| key.version).max();
        let version = version
            .or(newest)
            .ok_or_else(|| Error::new(&code::UNKNOWN_KEY_ID, name))?;
        Ok(Material { version, key })
    }

    /// Returns the newest active version of the key from the keyring, and makes the key when there
    /// is none of that name. SR-2012 when all its versions are retired; the errors of opening the
    /// keyring and of writing it.
    fn fetch_or_create(&mut self, name: &str) -> Result<Material, Error> {
        match self.fetch(name, None) {
            Err(error) if error.code() == &code::UNKNOWN_KEY_ID => {
                let made = self.keyring()?.create_key(name)?;
                self.fetch(name, Some(made.version))
            }
            other => other,
        }
    }

    /// Makes a new version of the key in the keyring, and returns it. Older versions are retired.
    /// Fails as [`Keyring::rotate_key`].
    fn rotate(&mut self, name: &str) -> Result<Material, Error> {
        let made = self.keyring()?.rotate_key(name)?;
        self.fetch(name, Some(made.version))
    }

    /// Does nothing, and returns [`Fate::Kept`]: a keyring destroys no key. Never fails.
    fn destroy(&mut self, name: &str) -> Result<Destruction, Error> {
        Ok(Destruction {
            fate: Fate::Kept,
            left: format!(
                "the keyring {} keeps the key {name}, and so do its exports",
                self.path.display()
            ),
        })
    }
}
