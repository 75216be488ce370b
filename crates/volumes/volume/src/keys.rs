//! Who has the key material of volumes: a keyring of this host, or a key server.
//!
//! Invariant V3: whom to ask is configured on the node; a token selects a name and a version,
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
    /// When it was shredded; none for a volume that is there.
    pub shredded: Option<u64>,
}

/// What became of a key that was to be destroyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is as it was.
    Kept,
    /// It is destroyed at this time, in seconds since the Unix epoch, unless somebody restores it
    /// before; none: the server does not say when.
    Pending(Option<u64>),
    /// Its material is erased at the server.
    Destroyed,
}

/// What became of a key, and what is left of it in words.
pub struct Destruction {
    /// What became of it.
    pub fate: Fate,
    /// What is left of it.
    pub left: String,
}

/// Whoever has the material.
pub trait Keys {
    /// What it is called in a token.
    fn provider(&self) -> Provider;

    /// Where it is, for people.
    fn servers(&self) -> Vec<String> {
        Vec::new()
    }

    /// This version of the key, or the newest.
    ///
    /// # Errors
    /// SR-2003, SR-2012, what the keyring or the server reports.
    fn fetch(&mut self, name: &str, version: Option<u32>) -> Result<Material, Error>;

    /// The newest version of the key; a new key when there is none of that name.
    ///
    /// # Errors
    /// As [`Keys::fetch`].
    fn fetch_or_create(&mut self, name: &str) -> Result<Material, Error>;

    /// A new version of the key.
    ///
    /// # Errors
    /// As [`Keys::fetch`].
    fn rotate(&mut self, name: &str) -> Result<Material, Error>;

    /// Destroys the key, if it can be destroyed from here; says what is left of it.
    ///
    /// # Errors
    /// What the server reports.
    fn destroy(&mut self, name: &str) -> Result<Destruction, Error>;

    /// Other objects than `object_id` that need the key, in words, as far as their nodes have
    /// reported them. Empty where nobody keeps account of that.
    ///
    /// # Errors
    /// What the server reports.
    fn others_that_need(&mut self, name: &str, object_id: &[u8; 16]) -> Result<Vec<String>, Error> {
        let _ = (name, object_id);
        Ok(Vec::new())
    }

    /// Whether header backups can be left here.
    fn keeps_headers(&self) -> bool {
        false
    }

    /// Leaves a header backup, sealed, or removes it.
    ///
    /// # Errors
    /// What the server reports.
    fn escrow(&mut self, object_id: &[u8; 16], sealed: Option<&[u8]>) -> Result<(), Error> {
        let _ = (object_id, sealed);
        Ok(())
    }

    /// The header backup that was left here.
    ///
    /// # Errors
    /// What the server reports; SR-1006 when there is none.
    fn escrowed(&mut self, object_id: &[u8; 16]) -> Result<Vec<u8>, Error> {
        let _ = object_id;
        Err(Error::new(
            &code::NOT_FOUND,
            "a keyring keeps no header backups",
        ))
    }

    /// Tells the server about a volume.
    ///
    /// # Errors
    /// What the server reports.
    fn report(&mut self, object_id: &[u8; 16], report: &Report<'_>) -> Result<(), Error> {
        let _ = (object_id, report);
        Ok(())
    }
}

/// The passphrase that the key of a token makes. It is not tried on a slot.
///
/// # Errors
/// As [`Keys::fetch`].
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
    /// The keyring at `path`. It is opened when a key is asked for.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            opened: None,
        }
    }

    fn keyring(&mut self) -> Result<&mut Keyring, Error> {
        if self.opened.is_none() {
            self.opened = Some(Keyring::open(&self.path)?);
        }
        self.opened
            .as_mut()
            .ok_or_else(|| Error::new(&code::BUG, "a keyring that is open"))
    }

    /// Whether the keyring has keys that were never exported.
    #[must_use]
    pub fn unexported(&self) -> bool {
        self.opened.as_ref().is_some_and(Keyring::unexported)
    }
}

impl Keys for KeyringKeys {
    fn provider(&self) -> Provider {
        Provider::Keyring
    }

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

    fn fetch_or_create(&mut self, name: &str) -> Result<Material, Error> {
        match self.fetch(name, None) {
            Err(error) if error.code() == &code::UNKNOWN_KEY_ID => {
                let made = self.keyring()?.create_key(name)?;
                self.fetch(name, Some(made.version))
            }
            other => other,
        }
    }

    fn rotate(&mut self, name: &str) -> Result<Material, Error> {
        let made = self.keyring()?.rotate_key(name)?;
        self.fetch(name, Some(made.version))
    }

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
