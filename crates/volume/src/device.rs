//! A LUKS2 volume on a device or in a file: its header, its slots and its tokens.
//!
//! Invariants: V1, only libcryptsetup writes a header that is in place; V2, a passphrase is tried on the slots it can open,
//! before anything is changed with it.
//!
//! Must not: ask for a secret.

use std::path::{Path, PathBuf};

use libcryptsetup_rs::consts::flags::{CryptActivate, CryptPbkdf, CryptVolumeKey};
use libcryptsetup_rs::consts::vals::{CryptKdf, EncryptionFormat};
use libcryptsetup_rs::{CryptDevice, CryptInit, CryptPbkdfType, Either, TokenInput};
use rustix::io::Errno;
use serde_json::Value;
use strongroom_crypto::SecretBytes;
use strongroom_format::code;
use strongroom_keyring::Error;

use crate::error::{errno, failed, told};
use crate::ffi::prepare;
use crate::header::Metadata;
use crate::token::Token;

/// How a slot's passphrase is stretched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stretch {
    /// 512 random bits: PBKDF2 with the least that LUKS2 allows.
    Machine,
    /// What a person types: Argon2id.
    Person,
}

/// Iterations for a machine's passphrase: the least that LUKS2 allows.
const MACHINE_ITERATIONS: u32 = 1000;
/// Argon2id for people: 64 MiB, four passes (the least that libcryptsetup allows is four), four lanes.
const PERSON_KIB: u32 = 64 * 1024;
const PERSON_PASSES: u32 = 4;
const PERSON_LANES: u32 = 4;

/// A LUKS2 volume.
pub struct Volume {
    path: PathBuf,
    pub(crate) device: CryptDevice,
}

impl Volume {
    /// Reads and checks the header on `path`.
    ///
    /// # Errors
    /// SR-1006, SR-8322, SR-8324.
    pub fn open(path: &Path) -> Result<Self, Error> {
        Self::load(path, Either::Left(path))
    }

    /// A header in a file of its own, for the data on `path`.
    ///
    /// # Errors
    /// As [`Volume::open`].
    pub fn detached(header: &Path, path: &Path) -> Result<Self, Error> {
        Self::load(path, Either::Right((header, path)))
    }

    fn load(path: &Path, places: Either<&Path, (&Path, &Path)>) -> Result<Self, Error> {
        prepare();
        if let Err(error) = std::fs::metadata(path)
            && error.kind() == std::io::ErrorKind::NotFound
        {
            return Err(Error::new(&code::NOT_FOUND, path.display().to_string()));
        }
        let what = || path.display().to_string();
        let mut device =
            CryptInit::init_with_data_device(places).map_err(|error| failed(what(), &error))?;
        let loaded = device
            .context_handle()
            .load::<()>(Some(EncryptionFormat::Luks2), None);
        loaded.map_err(|error| match errno(&error) {
            Some(Errno::INVAL | Errno::NOENT) => told(&code::VOLUME_NOT_LUKS, what(), &error),
            _ => failed(what(), &error),
        })?;
        Ok(Self {
            path: path.to_owned(),
            device,
        })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What its header says.
    ///
    /// # Errors
    /// SR-8324.
    pub fn metadata(&mut self) -> Result<Metadata, Error> {
        let json = self.device.status_handle().dump_json();
        Metadata::read(json.map_err(|error| self.failed("its header", &error))?)
    }

    /// Its UUID.
    ///
    /// # Errors
    /// SR-8324.
    pub fn uuid(&mut self) -> Result<String, Error> {
        let uuid = self.device.status_handle().get_uuid();
        let uuid = uuid.map_err(|error| self.failed("its UUID", &error))?;
        Ok(uuid.to_string())
    }

    /// Length of its key in bytes.
    #[must_use]
    pub fn key_len(&mut self) -> usize {
        usize::try_from(self.device.status_handle().get_volume_key_size()).unwrap_or_default()
    }

    /// Where its data begins, in bytes.
    #[must_use]
    pub fn data_offset(&mut self) -> u64 {
        self.device.status_handle().get_data_offset() * 512
    }

    /// Our token.
    ///
    /// # Errors
    /// SR-8323 when there is none.
    pub fn token(&mut self) -> Result<Token, Error> {
        let token = self.metadata()?.token()?;
        let what = self.path.display().to_string();
        token
            .map(|(_, token)| token)
            .ok_or_else(|| Error::new(&code::VOLUME_TOKEN, what))
    }

    /// The slot that `secret` opens: `slot`, or any of those that open the volume.
    ///
    /// # Errors
    /// SR-2002 when it opens none.
    pub fn test(&mut self, slot: Option<u32>, secret: &SecretBytes) -> Result<u32, Error> {
        self.metadata()?.check_cipher()?;
        // A key of a re-encryption that is prepared is tried too when its slot is named.
        let flags = match slot {
            Some(_) => CryptActivate::ALLOW_UNBOUND_KEY,
            None => CryptActivate::empty(),
        };
        let tried = self.device.activate_handle().activate_by_passphrase(
            None,
            slot,
            secret.as_slice(),
            flags,
        );
        tried.map_err(|error| self.wrong(&error))
    }

    /// The one of `slots` that `secret` opens.
    ///
    /// # Errors
    /// As [`Volume::test`], but that none opens is `None`.
    pub fn opens(&mut self, slots: &[u32], secret: &SecretBytes) -> Result<Option<u32>, Error> {
        for slot in slots {
            match self.test(Some(*slot), secret) {
                Ok(slot) => return Ok(Some(slot)),
                Err(error) if error.code() == &code::WRONG_KEY => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Adds a slot for `new`, opened with `secret`. V2: the new slot is tried.
    ///
    /// # Errors
    /// SR-2002, SR-8324.
    pub fn add_slot(
        &mut self,
        secret: &SecretBytes,
        new: &SecretBytes,
        stretch: Stretch,
    ) -> Result<u32, Error> {
        self.stretch(stretch)?;
        let added =
            self.device
                .keyslot_handle()
                .add_by_passphrase(None, secret.as_slice(), new.as_slice());
        let slot = added.map_err(|error| self.wrong(&error))?;
        self.test(Some(slot), new)
    }

    /// Adds a slot for `new` that holds `key`. `flags` say what the key is to the volume.
    pub(crate) fn add_key(
        &mut self,
        key: Option<&SecretBytes>,
        new: &SecretBytes,
        stretch: Stretch,
        flags: CryptVolumeKey,
    ) -> Result<u32, Error> {
        self.stretch(stretch)?;
        let key = key.map(|key| Either::Left(key.as_slice()));
        let added = self
            .device
            .keyslot_handle()
            .add_by_key(None, key, new.as_slice(), flags);
        let slot = added.map_err(|error| self.failed("a new key slot", &error))?;
        self.test(Some(slot), new)
    }

    /// Destroys a slot: its area is overwritten, tokens no longer name it.
    ///
    /// # Errors
    /// SR-8324.
    pub fn remove_slot(&mut self, slot: u32) -> Result<(), Error> {
        let removed = self.device.keyslot_handle().destroy(slot);
        removed.map_err(|error| self.failed(&format!("key slot {slot}"), &error))
    }

    /// Writes a token: over number `at`, or as a new one.
    pub(crate) fn set_token(&mut self, at: Option<u32>, json: &Value) -> Result<(), Error> {
        let input = match at {
            Some(number) => TokenInput::ReplaceToken(number, json),
            None => TokenInput::AddToken(json),
        };
        let set = self.device.token_handle().json_set(input);
        set.map(|_| ())
            .map_err(|error| self.failed("its token", &error))
    }

    /// Removes a token.
    pub(crate) fn remove_token(&mut self, number: u32) -> Result<(), Error> {
        let removed = self
            .device
            .token_handle()
            .json_set(TokenInput::RemoveToken(number));
        removed
            .map(|_| ())
            .map_err(|error| self.failed("its token", &error))
    }

    /// The volume key, by the slot's passphrase.
    pub(crate) fn volume_key(
        &mut self,
        slot: Option<u32>,
        secret: &SecretBytes,
    ) -> Result<SecretBytes, Error> {
        let mut key = SecretBytes::with_capacity(self.key_len())?;
        let got =
            self.device
                .volume_key_handle()
                .get(slot, key.as_mut_slice(), Some(secret.as_slice()));
        let (_, len) = got.map_err(|error| self.wrong(&error))?;
        key.truncate(len);
        Ok(key)
    }

    /// A copy of header and key slots, in a new file at `to`.
    ///
    /// # Errors
    /// SR-8324; SR-1002 when there is something.
    pub fn back_up_header(&mut self, to: &Path) -> Result<(), Error> {
        if std::fs::symlink_metadata(to).is_ok() {
            return Err(Error::new(&code::EXISTS, to.display().to_string()));
        }
        let made = self
            .device
            .backup_handle()
            .header_backup(Some(EncryptionFormat::Luks2), to);
        made.map_err(|error| self.failed("the backup of its header", &error))
    }

    /// How the next slots' passphrases are stretched.
    pub(crate) fn stretch(&mut self, stretch: Stretch) -> Result<(), Error> {
        let set = self.device.settings_handle().set_pbkdf_type(&kdf(stretch));
        set.map_err(|error| self.failed("its key derivation", &error))
    }

    /// A failure with this volume.
    pub(crate) fn failed(&self, what: &str, error: &libcryptsetup_rs::LibcryptErr) -> Error {
        failed(format!("{}: {what}", self.path.display()), error)
    }

    /// A passphrase did not do.
    pub(crate) fn wrong(&self, error: &libcryptsetup_rs::LibcryptErr) -> Error {
        let what = self.path.display().to_string();
        match errno(error) {
            // "No usable keyslot", and a slot that does not open.
            Some(Errno::NOENT | Errno::PERM) => told(&code::WRONG_KEY, what, error),
            _ => failed(what, error),
        }
    }
}

/// How passphrases are stretched, for libcryptsetup.
pub(crate) fn kdf(stretch: Stretch) -> CryptPbkdfType {
    match stretch {
        Stretch::Machine => CryptPbkdfType {
            type_: CryptKdf::Pbkdf2,
            hash: Some("sha256".to_owned()),
            time_ms: 0,
            iterations: MACHINE_ITERATIONS,
            max_memory_kb: 0,
            parallel_threads: 0,
            flags: CryptPbkdf::NO_BENCHMARK,
        },
        Stretch::Person => CryptPbkdfType {
            type_: CryptKdf::Argon2Id,
            hash: Some("sha256".to_owned()),
            time_ms: 0,
            iterations: PERSON_PASSES,
            max_memory_kb: PERSON_KIB,
            parallel_threads: PERSON_LANES,
            flags: CryptPbkdf::NO_BENCHMARK,
        },
    }
}
