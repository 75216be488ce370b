//! A change of a volume's key with all that belongs to it: the openers that stay, the header backup
//! and the report at the key server.
//!
//! Invariants V13 to V16 of docs/internals/volumes.md.
//!
//! Must not: leave out an opener that the caller did not give up; print.

use std::path::{Path, PathBuf};

use strongroom_crypto::SecretBytes;
use strongroom_format::code;
use strongroom_keyring::{Error, KeySource, SourceContext};
use strongroom_luks2::{OpenedBy, StrongroomToken};

use crate::active;
use crate::device::Volume;
use crate::escrow::renew_backup;
use crate::host_keys::HostKeys;
use crate::keys::{Keys, secret_of_token};
use crate::notices::Notices;
use crate::outage::forget;
use crate::recovery_place::{RecoveryPlace, add_shown_recovery};
use crate::reencrypt::{check_library, resume};
use crate::report::{Change, note_unreported, report};
use crate::rotate::{Rotated, rotate_slots};
use crate::secret::recovery_key;
use crate::staying::{Given, GivenUp, begin_with};
use crate::tpm_place::TpmPlace;

/// What goes on opening a volume under its new volume key, beside the key of its token.
pub struct StayingSecrets<'a> {
    /// The TPM, when it does.
    pub tpm: Option<&'a TpmPlace>,
    /// Files that hold passphrases.
    pub passphrase_files: &'a [PathBuf],
    /// A file that holds the recovery key.
    pub recovery_file: Option<&'a Path>,
    /// Where a new recovery key is shown, which replaces the present one.
    pub new_recovery: Option<&'a dyn RecoveryPlace>,
    /// Slots that need not open it afterwards.
    pub given_up: &'a [u32],
}

/// Makes a new version of the key open the volume on `path`, as [`rotate_slots`]; then renews the
/// header backup at the key server and reports the change. A passphrase that was kept for boots is
/// removed first. What the key server does not take is told to `notices`.
///
/// # Errors
/// SR-1006 when nothing is at `path`, SR-8322 when it is no LUKS2 volume, SR-8320 when it is in
/// use; SR-8323 without a token; SR-8400 or SR-8401 when the node's configuration cannot be used;
/// SR-8328 while the volume is re-encrypted; SR-2002 when the token's version does not open the
/// volume; and the others of [`rotate_slots`].
pub fn rotate_key(path: &Path, keys: &HostKeys, notices: &dyn Notices) -> Result<Rotated, Error> {
    let (mut volume, _, mut keys) = open(path, keys, notices)?;
    let rotated = rotate_slots(&mut volume, keys.as_mut())?;
    renew_backup(path, keys.as_mut(), notices);
    note_unreported(report(path, keys.as_mut(), Change::Rotated), notices);
    Ok(rotated)
}

/// Puts all data of the volume on `path` under a new volume key: begins the re-encryption, or goes
/// on with one that was begun; `online`: while the volume is open. Renews the header backup at the
/// key server after the beginning and at the end, and reports the change. A passphrase that was
/// kept for boots is removed first. `progress` gets the size and the offset in bytes; `false` stops
/// it. What the key server does not take is told to `notices`.
///
/// # Errors
/// SR-8323 without a token; SR-8320 when the volume is in use; SR-8329 for the library's version;
/// SR-8338 when the secret of a slot is missing, SR-2002 when one does not fit; SR-8328 when it was
/// stopped; what the secrets, the key's source and the place of the recovery key report.
pub fn rotate_data(
    path: &Path,
    keys: &HostKeys,
    stays: &StayingSecrets<'_>,
    online: bool,
    mut progress: impl FnMut(u64, u64) -> bool,
    notices: &dyn Notices,
) -> Result<(), Error> {
    let (mut volume, token, mut keys) = open(path, keys, notices)?;
    check_library()?;
    let active = active::name_of_open(path, online)?;
    let secret = secret_of_token(keys.as_mut(), &token)?;
    if volume.metadata()?.is_reencrypting() {
        notices.note("a re-encryption was begun before; it goes on");
    } else {
        stays.begin(&mut volume, &secret, active.as_deref())?;
        renew_backup(path, keys.as_mut(), notices);
    }
    let done = resume(&mut volume, &secret, active.as_deref(), &mut progress)?;
    drop(volume);
    // What shows it may stand in the way of the messages.
    drop(progress);
    if !done {
        return Err(Error::new(&code::VOLUME_ROTATING, "it was stopped"));
    }
    renew_backup(path, keys.as_mut(), notices);
    note_unreported(report(path, keys.as_mut(), Change::Rotated), notices);
    Ok(())
}

/// Opens the volume on `path` to change it, and the source of the key that its token names. Removes
/// the passphrase that is kept of it. SR-1006 when nothing is at `path`, SR-8322 when it is no
/// LUKS2 volume, SR-8320 when it is in use; SR-8323 without a token; SR-8400 or SR-8401 when the
/// node's configuration cannot be used.
fn open(
    path: &Path,
    keys: &HostKeys,
    notices: &dyn Notices,
) -> Result<(Volume, StrongroomToken, Box<dyn Keys>), Error> {
    let mut volume = Volume::open_to_change(path)?;
    let token = volume.token()?;
    let keys = keys.open(Some(token.provider))?;
    forget(&token, notices);
    Ok((volume, token, keys))
}

impl StayingSecrets<'_> {
    /// Begins a re-encryption, in which no data move yet. A new recovery key is shown and gets a
    /// slot first. `secret` is that of the token's key; `active` is the name of the mapping if the
    /// volume is open.
    ///
    /// # Errors
    /// SR-8338 when the passphrase of an opener is missing; SR-2002 when one opens no slot; the
    /// others of [`begin_with`]; those of fetching the secrets and of showing the recovery key.
    fn begin(
        &self,
        volume: &mut Volume,
        secret: &SecretBytes,
        active: Option<&str>,
    ) -> Result<(), Error> {
        let mut given = self.fetch(volume)?;
        if let Some(place) = self.new_recovery {
            place.check()?;
            // The new recovery key gets a slot with the old volume key first, so that it opens the
            // volume at every moment of the re-encryption.
            let (_, secret) = add_shown_recovery(volume, secret, place)?;
            let opener = OpenedBy::Recovery;
            given.push(Given { secret, opener });
        }
        let given_up = GivenUp {
            slots: self.given_up,
            recovery_keys: self.new_recovery.is_some(),
        };
        begin_with(volume, secret, &given, &given_up, active)
    }

    /// Fetches the secrets of the openers that stay: of the TPM, of each passphrase file, and of
    /// the recovery key's file. SR-8361 when that is no recovery key; what the TPM and the files
    /// report.
    fn fetch(&self, volume: &mut Volume) -> Result<Vec<Given>, Error> {
        let mut given = Vec::new();
        if let Some(tpm) = self.tpm {
            let (secret, opener) = (tpm.secret(volume)?, OpenedBy::Tpm);
            given.push(Given { secret, opener });
        }
        for file in self.passphrase_files {
            let (secret, opener) = (passphrase_in(file)?, OpenedBy::Passphrase);
            given.push(Given { secret, opener });
        }
        if let Some(file) = self.recovery_file {
            let (secret, opener) = (recovery_key(&passphrase_in(file)?)?, OpenedBy::Recovery);
            given.push(Given { secret, opener });
        }
        Ok(given)
    }
}

/// Reads a passphrase from a file; one line end after it does not count. SR-2007 when it cannot be
/// read, SR-2042 when it is empty, too long or not text.
fn passphrase_in(file: &Path) -> Result<SecretBytes, Error> {
    KeySource::File(file.to_owned()).passphrase(&SourceContext::default())
}
