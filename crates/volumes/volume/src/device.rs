//! A LUKS2 volume on a device or in a file: its header, its slots and its tokens.
//!
//! Invariants: V1, only libcryptsetup writes a header that is in place; V2, a passphrase is tried
//! on the slots it can open, before anything is changed with it.
//!
//! Must not: ask for a secret.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use libcryptsetup_rs::consts::flags::{CryptActivate, CryptPbkdf, CryptVolumeKey};
use libcryptsetup_rs::consts::vals::{CryptKdf, EncryptionFormat};
use libcryptsetup_rs::{CryptDevice, CryptInit, CryptPbkdfType, Either, TokenInput};
use rustix::io::Errno;
use serde_json::Value;
use strongroom_crypto::SecretBytes;
use strongroom_format::code;
use strongroom_keyring::Error;
use strongroom_luks2::{HEADER_SIZES, MACHINE_ITERATIONS, Metadata, StrongroomToken};

use crate::error::{errno, failed, failed_as};
use crate::ffi::{prepare, take_messages};
use crate::header::{self, check_before_trying, check_cipher};
use crate::locked::{Purpose, check_not_locked};

/// How a key slot derives its key from the passphrase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stretch {
    /// For 512 random bits: PBKDF2 with the fewest iterations that LUKS2 allows.
    Machine,
    /// For passphrases that a person types: Argon2id.
    Person,
}

/// Where a secret is from, which decides on which slots it is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Made of the token's key: tried on the slots that the token names.
    Token,
    /// A person's, or of another kind: tried on every slot that opens the volume.
    Person,
}

/// Length of the shortest copy of a LUKS2 header, in bytes.
const HEADER_LEN_MIN: u64 = HEADER_SIZES[0];
/// Costs of Argon2id: 64 MiB, four passes (libcryptsetup allows no fewer), four lanes.
const PERSON_KIB: u32 = 64 * 1024;
const PERSON_PASSES: u32 = 4;
const PERSON_LANES: u32 = 4;

/// A LUKS2 volume.
pub struct Volume {
    /// The path through which it is read and written.
    path: PathBuf,
    /// The path for messages.
    shown: PathBuf,
    pub(crate) device: CryptDevice,
}

/// Refuses pipes, sockets and character devices, SR-8322: opening a named pipe would wait for a
/// writer. A path that does not exist passes.
fn check_file_type(path: &Path) -> Result<(), Error> {
    match std::fs::metadata(path) {
        Ok(about)
            if about.file_type().is_fifo()
                || about.file_type().is_char_device()
                || about.file_type().is_socket() =>
        {
            let detail = format!("{} is neither a file nor a block device", path.display());
            Err(Error::new(&code::VOLUME_NOT_LUKS, detail))
        }
        _ => Ok(()),
    }
}

impl Volume {
    /// Reads and checks the header on `path` through libcryptsetup, which repairs a damaged copy of
    /// it from the other. Waits some seconds while another process changes the header.
    ///
    /// # Errors
    /// SR-1006 when nothing is at `path`; SR-8322 when it is no LUKS2 volume; SR-8320 when another
    /// process has it locked for writing; SR-8324 when libcryptsetup fails; SR-5001 when the system
    /// reports an error.
    pub fn open(path: &Path) -> Result<Self, Error> {
        check_file_type(path)?;
        check_not_locked(path, Purpose::Read)?;
        Self::load(path, Either::Left(path))
    }

    /// Reads and checks the header on `path`, as [`Volume::open`] does, before it is changed or
    /// destroyed: refused while another process has the volume attached, even for reading only.
    ///
    /// # Errors
    /// As [`Volume::open`]; SR-8320 while another process has the volume attached.
    pub fn open_to_change(path: &Path) -> Result<Self, Error> {
        check_file_type(path)?;
        check_not_locked(path, Purpose::Change)?;
        Self::load(path, Either::Left(path))
    }

    /// Reads and checks the header in the file `header`, of the volume whose data are on `path`.
    ///
    /// # Errors
    /// SR-1006 when nothing is at `path`; SR-8322 when the file has no LUKS2 header; SR-8324 when
    /// libcryptsetup fails. Locks of other processes are not looked at.
    pub fn detached(header: &Path, path: &Path) -> Result<Self, Error> {
        Self::load(path, Either::Right((header, path)))
    }

    /// Reads and checks the header in an open file, whatever its path leads to meanwhile; `shown`
    /// is the path for messages. The caller keeps `file` open. Fails as [`Volume::open`].
    pub(crate) fn on_open_file(file: &File, shown: &Path) -> Result<Self, Error> {
        let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let mut volume = Self::load(&path, Either::Left(&path))?;
        volume.shown = shown.to_owned();
        Ok(volume)
    }

    /// Reads and checks a header through libcryptsetup, on the device itself or in a file of its
    /// own. Fails as [`Volume::open`], but locks are not looked at.
    fn load(path: &Path, places: Either<&Path, (&Path, &Path)>) -> Result<Self, Error> {
        prepare();
        let has_own_header = matches!(places, Either::Left(_));
        match std::fs::metadata(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(Error::new(&code::NOT_FOUND, path.display().to_string()));
            }
            // For these libcryptsetup reports only that the device is not compatible, or that
            // reading failed.
            Ok(about) if about.is_dir() && has_own_header => {
                let detail = format!("{} is a directory", path.display());
                return Err(Error::new(&code::VOLUME_NOT_LUKS, detail));
            }
            Ok(about) if about.is_file() && about.len() < HEADER_LEN_MIN && has_own_header => {
                let detail = format!("{} has {} bytes", path.display(), about.len());
                return Err(Error::new(&code::VOLUME_NOT_LUKS, detail));
            }
            _ => {}
        }
        let what = || path.display().to_string();
        let mut device =
            CryptInit::init_with_data_device(places).map_err(|error| failed(what(), &error))?;
        let loaded = device
            .context_handle()
            .load::<()>(Some(EncryptionFormat::Luks2), None);
        loaded.map_err(|error| match errno(&error) {
            // Both numbers mean that there is no valid header; the message tells more.
            Some(Errno::INVAL | Errno::NOENT) => {
                let said = take_messages();
                let detail = match said.as_str() {
                    "" => what(),
                    said => format!("{}: {said}", what()),
                };
                Error::new(&code::VOLUME_NOT_LUKS, detail)
            }
            _ => failed(what(), &error),
        })?;
        Ok(Self {
            path: path.to_owned(),
            shown: path.to_owned(),
            device,
        })
    }

    /// Returns the path through which it is read and written.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the header's metadata, as libcryptsetup shows it.
    ///
    /// # Errors
    /// SR-8324 when libcryptsetup fails.
    pub fn metadata(&mut self) -> Result<Metadata, Error> {
        let json = self.device.status_handle().dump_json();
        header::read(&json.map_err(|error| self.failed("its header", &error))?)
    }

    /// Returns its UUID.
    ///
    /// # Errors
    /// SR-8324 when libcryptsetup fails.
    pub fn uuid(&mut self) -> Result<String, Error> {
        let uuid = self.device.status_handle().get_uuid();
        let uuid = uuid.map_err(|error| self.failed("its UUID", &error))?;
        Ok(uuid.to_string())
    }

    /// Returns the length of its volume key in bytes.
    #[must_use]
    pub fn key_len(&mut self) -> usize {
        usize::try_from(self.device.status_handle().get_volume_key_size()).unwrap_or_default()
    }

    /// Returns where its data begin, in bytes.
    #[must_use]
    pub fn data_offset(&mut self) -> u64 {
        self.device.status_handle().get_data_offset() * 512
    }

    /// Returns the Strongroom token.
    ///
    /// # Errors
    /// SR-8323 when there is none, there are several, or it is damaged; SR-3002 when a newer
    /// version wrote it; SR-8324 when libcryptsetup fails.
    pub fn token(&mut self) -> Result<StrongroomToken, Error> {
        let token = self.metadata()?.strongroom_token()?;
        let what = self.shown.display().to_string();
        token
            .map(|(_, token)| token)
            .ok_or_else(|| Error::new(&code::VOLUME_TOKEN, what))
    }

    /// Tries `secret` on `slot`, or on every slot that opens the volume, without mapping anything.
    /// Returns the slot that it opens.
    ///
    /// # Errors
    /// SR-2002 when it opens none; SR-8340 for a cipher that is not known to be safe, SR-8307 when
    /// trying a slot would cost too much; SR-8324 when libcryptsetup fails.
    pub fn try_secret(&mut self, slot: Option<u32>, secret: &SecretBytes) -> Result<u32, Error> {
        self.check_tried(slot)?;
        // A named slot may also hold the key of a re-encryption that is prepared and has not begun.
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
        tried.map_err(|error| self.passphrase_error(&error))
    }

    /// Tries `secret` on the slots that `by` says, the token's or all, without mapping anything.
    /// Returns the slot that it opens.
    ///
    /// # Errors
    /// SR-2002 when it opens none; SR-8323 when there is no token that names a slot, or it is
    /// damaged; SR-3002 for a token of a newer version; SR-8340 for a cipher that is not known to
    /// be safe, SR-8307 when trying a slot would cost too much; SR-8324 when libcryptsetup fails.
    pub fn try_by(&mut self, by: By, secret: &SecretBytes) -> Result<u32, Error> {
        let mut tried = Err(Error::new(
            &code::WRONG_KEY,
            self.shown.display().to_string(),
        ));
        for slot in self.slots_to_try(by)? {
            tried = self.try_secret(slot, secret);
            match &tried {
                Err(error) if error.code() == &code::WRONG_KEY => {}
                _ => break,
            }
        }
        tried
    }

    /// Returns the slots to try, one after another; `None` leaves the choice to libcryptsetup.
    ///
    /// # Errors
    /// SR-8340 for a cipher that is not known to be safe, SR-8307 when trying a slot would cost too
    /// much; with [`By::Token`], SR-8323 when no token names a slot, SR-3002 for one of a newer
    /// version.
    pub(crate) fn slots_to_try(&mut self, by: By) -> Result<Vec<Option<u32>>, Error> {
        let metadata = self.metadata()?;
        // During a re-encryption, two slots are needed, one of each key: only libcryptsetup finds
        // the pair.
        if by == By::Person || metadata.is_reencrypting() {
            check_before_trying(&metadata, &metadata.key_slots())?;
            return Ok(vec![None]);
        }
        let slots = metadata.token_slots()?;
        check_before_trying(&metadata, &slots)?;
        Ok(slots.into_iter().map(Some).collect())
    }

    /// Checks the header before a secret is tried on this slot, or on any: SR-8340 for a cipher
    /// that is not known to be safe, SR-8307 when trying the slots would cost too much.
    fn check_tried(&mut self, slot: Option<u32>) -> Result<(), Error> {
        let metadata = self.metadata()?;
        let all = || metadata.key_slots();
        check_before_trying(&metadata, &slot.map_or_else(all, |slot| vec![slot]))
    }

    /// Returns the first of `slots` that `secret` opens. `None` when it opens none of them.
    ///
    /// # Errors
    /// As [`Volume::try_secret`], but without SR-2002.
    pub fn opens(&mut self, slots: &[u32], secret: &SecretBytes) -> Result<Option<u32>, Error> {
        for slot in slots {
            match self.try_secret(Some(*slot), secret) {
                Ok(slot) => return Ok(Some(slot)),
                Err(error) if error.code() == &code::WRONG_KEY => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Adds a slot for the passphrase `new`; `secret` opens the volume already. Returns the slot,
    /// after `new` was tried on it.
    ///
    /// # Errors
    /// SR-2002 when `secret` opens no slot; SR-8340 for a cipher that is not known to be safe,
    /// SR-8307 when trying a slot would cost too much; SR-8324 when libcryptsetup fails.
    pub fn add_slot(
        &mut self,
        secret: &SecretBytes,
        new: &SecretBytes,
        stretch: Stretch,
    ) -> Result<u32, Error> {
        self.check_tried(None)?;
        self.stretch(stretch)?;
        let added =
            self.device
                .keyslot_handle()
                .add_by_passphrase(None, secret.as_slice(), new.as_slice());
        let slot = added.map_err(|error| self.passphrase_error(&error))?;
        self.try_secret(Some(slot), new)
    }

    /// Adds a slot for the passphrase `new` that holds `key`, or the volume key when that is
    /// `None`. `flags` say whether the key is the volume's. Returns the slot, after `new` was tried
    /// on it. SR-8340 for a cipher that is not known to be safe; SR-8324 when libcryptsetup fails.
    pub(crate) fn add_key(
        &mut self,
        key: Option<&SecretBytes>,
        new: &SecretBytes,
        stretch: Stretch,
        flags: CryptVolumeKey,
    ) -> Result<u32, Error> {
        check_cipher(&self.metadata()?)?;
        self.stretch(stretch)?;
        let key = key.map(|key| Either::Left(key.as_slice()));
        let added = self
            .device
            .keyslot_handle()
            .add_by_key(None, key, new.as_slice(), flags);
        let slot = added.map_err(|error| self.failed("a new key slot", &error))?;
        self.try_secret(Some(slot), new)
    }

    /// Destroys a slot: libcryptsetup overwrites its area and removes it from all tokens.
    ///
    /// # Errors
    /// SR-8324 when libcryptsetup fails.
    pub fn remove_slot(&mut self, slot: u32) -> Result<(), Error> {
        let removed = self.device.keyslot_handle().destroy(slot);
        removed.map_err(|error| self.failed(&format!("key slot {slot}"), &error))
    }

    /// Replaces token number `at` in the header, or adds a token when that is `None`. SR-8324 when
    /// libcryptsetup fails.
    pub(crate) fn set_token(&mut self, at: Option<u32>, json: &Value) -> Result<(), Error> {
        let input = match at {
            Some(number) => TokenInput::ReplaceToken(number, json),
            None => TokenInput::AddToken(json),
        };
        let set = self.device.token_handle().json_set(input);
        set.map(|_| ())
            .map_err(|error| self.failed("its token", &error))
    }

    /// Removes a token from the header. SR-8324 when libcryptsetup fails.
    pub(crate) fn remove_token(&mut self, number: u32) -> Result<(), Error> {
        let removed = self
            .device
            .token_handle()
            .json_set(TokenInput::RemoveToken(number));
        removed
            .map(|_| ())
            .map_err(|error| self.failed("its token", &error))
    }

    /// Returns the volume key that the passphrase opens in this slot, or in any. SR-2002 when it
    /// opens none; SR-8340 for a cipher that is not known to be safe, SR-8307 when trying a slot
    /// would cost too much; SR-5001 when there is no memory for keys; SR-8324 when libcryptsetup
    /// fails.
    pub(crate) fn volume_key(
        &mut self,
        slot: Option<u32>,
        secret: &SecretBytes,
    ) -> Result<SecretBytes, Error> {
        self.check_tried(slot)?;
        let mut key = SecretBytes::with_capacity(self.key_len())?;
        let got =
            self.device
                .volume_key_handle()
                .get(slot, key.as_mut_slice(), Some(secret.as_slice()));
        let (_, len) = got.map_err(|error| self.passphrase_error(&error))?;
        key.truncate(len);
        Ok(key)
    }

    /// Writes a copy of header and key slots into a new file at `to`.
    ///
    /// # Errors
    /// SR-8324 when libcryptsetup fails; SR-1002 when `to` exists.
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

    /// Sets how the passphrases of the next new slots are stretched. Nothing is written. SR-8324
    /// when libcryptsetup fails.
    pub(crate) fn stretch(&mut self, stretch: Stretch) -> Result<(), Error> {
        let set = self.device.settings_handle().set_pbkdf_type(&kdf(stretch));
        set.map_err(|error| self.failed("its key derivation", &error))
    }

    /// Makes the error for a call to libcryptsetup that failed on this volume: SR-2002, SR-8320,
    /// SR-8327 or SR-5001 where the error's number says a wrong key, a busy device, no
    /// device-mapper or an error of the system, otherwise SR-8324. The detail has the volume's path
    /// and `what`, the part that the call was for.
    pub(crate) fn failed(&self, what: &str, error: &libcryptsetup_rs::LibcryptErr) -> Error {
        failed(format!("{}: {what}", self.shown.display()), error)
    }

    /// Makes the error for a passphrase that libcryptsetup did not accept: SR-2002 (wrong key) when
    /// no key slot opens with it, or there is none to try; otherwise, by the error's number,
    /// SR-8320 (busy), SR-8327 (no device-mapper), SR-5001 (the system) or SR-8324. The detail
    /// begins with the volume's path.
    pub(crate) fn passphrase_error(&self, error: &libcryptsetup_rs::LibcryptErr) -> Error {
        let what = self.shown.display().to_string();
        match errno(error) {
            // No usable key slot, and a slot that does not open.
            Some(Errno::NOENT | Errno::PERM) => failed_as(&code::WRONG_KEY, what, error),
            _ => failed(what, error),
        }
    }
}

/// Returns the parameters of a key derivation, in libcryptsetup's form.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::new_recovery_key;
    use crate::testing::{forge, made, secret};

    #[test]
    fn a_pipe_is_refused_without_waiting_for_a_writer() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pipe");
        let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
        rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, 0).unwrap();
        for opened in [Volume::open(&path), Volume::open_to_change(&path)] {
            let error = opened.err().unwrap();
            assert_eq!(error.code(), &code::VOLUME_NOT_LUKS);
        }
    }

    /// With the iterations of one slot set to four thousand millions, opening took hours; as the
    /// system starts nobody ends it.
    #[test]
    fn a_header_that_asks_for_hours_is_refused_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("v");
        made(&path, None);
        let forgeries = [
            // Of the key slot, and of the digest, which every key that is tried has to meet.
            (
                "\"hash\":\"sha256\",\"iterations\":1000,\"salt\"",
                "\"hash\":\"sha256\",\"iterations\":4000000000,\"salt\"",
            ),
            ("\"iterations\":1000", "\"iterations\":4000000000"),
        ];
        for (from, to) in forgeries {
            forge(&path, from, to);
            let began = std::time::Instant::now();
            let open = || Volume::open(&path).unwrap();
            for tried in [
                open().try_secret(None, &secret()),
                open().try_secret(Some(0), &secret()),
                open().try_by(By::Token, &secret()),
                open().opens(&[0], &secret()).map(|_| 0),
                open().add_slot(&secret(), &secret(), Stretch::Machine),
            ] {
                assert_eq!(tried.unwrap_err().code(), &code::LUKS_COST, "{to}");
            }
            assert!(began.elapsed() < std::time::Duration::from_secs(10));
            forge(&path, to, from);
        }
        assert_eq!(
            Volume::open(&path)
                .unwrap()
                .try_secret(None, &secret())
                .unwrap(),
            0
        );
    }

    /// What somebody wrote into other slots does not keep the token's key out, nor cost it time.
    #[test]
    fn the_key_of_the_token_is_tried_on_the_slots_of_the_token_only() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("v");
        let recovery = new_recovery_key().unwrap();
        made(&path, Some(&recovery));
        forge(&path, "\"time\":4,", "\"time\":4000000,");
        let open = || Volume::open(&path).unwrap();
        assert_eq!(open().try_by(By::Token, &secret()).unwrap(), 0);
        let by_person = open().try_by(By::Person, &secret());
        assert_eq!(by_person.unwrap_err().code(), &code::LUKS_COST);
        forge(&path, "\"time\":4000000,", "\"time\":4,");
        assert_eq!(open().try_by(By::Person, &recovery).unwrap(), 1);
        // The recovery key is no key of the token's.
        let by_token = open().try_by(By::Token, &recovery);
        assert_eq!(by_token.unwrap_err().code(), &code::WRONG_KEY);
    }
}
