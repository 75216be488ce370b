//! Makes a volume with all that belongs to it: its key, a recovery key that was shown, the header
//! backup and the report at the key server.
//!
//! Invariants: V6; what can be refused is refused before a key is made; the recovery key is shown
//! before the device changes.
//!
//! Must not: ask for anything; print.

use serde::Serialize;
use strongroom_format::code;
use strongroom_format::hex::hex;
use strongroom_keyring::Error;
use strongroom_luks2::key_name_is_valid;

use crate::contents::has_old_data;
use crate::create::{NewVolume, Openers, check, create, new_token};
use crate::escrow::renew_backup;
use crate::host_keys::HostKeys;
use crate::notices::Notices;
use crate::recovery_place::{RecoveryPlace, shown_key};
use crate::report::{Change, note_unreported, report};
use crate::secret::slot_secret;

/// A volume that was made. A stable contract: docs/reference/volume.md.
#[derive(Serialize)]
pub struct MadeVolume {
    /// The device or file.
    pub path: String,
    /// Its UUID.
    pub uuid: String,
    /// Its object id, in hexadecimal digits.
    pub object_id: String,
    /// The key's name.
    pub key_id: String,
    /// Its version.
    pub key_version: u32,
    /// Who has the key: `keyserver` or `keyring`.
    pub provider: &'static str,
    /// Whether a recovery key opens it.
    pub recovery_key: bool,
    /// Whether the key server has a header backup.
    pub header_escrowed: bool,
    /// Whether the device held something that was not overwritten.
    pub old_data_left: bool,
}

/// Makes the volume `new`, which the newest version of the key `key_id` opens, and the recovery key
/// that is shown at `recovery`, if there is one. The key is made when there is none of that name.
/// Then stores a header backup at the key server and reports the volume to it. `progress` gets the
/// size and the offset of the wiping in bytes; `false` ends it, and there is no volume then.
///
/// Tells `notices` with SR-8332 that there is no recovery key, with SR-8341 that former data are
/// left, and what the key server did not take.
///
/// # Errors
/// SR-2013 for the key's name; as [`check`], [`RecoveryPlace::check`] and [`HostKeys::open`],
/// before a key is made; what the key's source and the place of the recovery key report; as
/// [`create`]. When a new file was wanted and is not there, the recovery key is taken back.
pub fn make(
    new: &NewVolume<'_>,
    key_id: &str,
    keys: &HostKeys,
    recovery: Option<&dyn RecoveryPlace>,
    mut progress: impl FnMut(u64, u64) -> bool,
    notices: &dyn Notices,
) -> Result<MadeVolume, Error> {
    if !key_name_is_valid(key_id) {
        return Err(Error::new(&code::KEY_NAME, key_id));
    }
    check(new)?;
    // The format of an authenticated volume overwrites every sector.
    let keeps = new.size.is_none() && !new.wipe && !new.integrity;
    let old_data_left = keeps && has_old_data(new.path)?;
    if let Some(place) = recovery {
        place.check()?;
    }
    let mut keys = keys.open(None)?;
    let material = keys.fetch_or_create(key_id)?;
    let token = new_token(keys.as_ref(), key_id, material.version)?;
    let secret = slot_secret(&material.key, &token.object_id)?;
    let recovery_key = recovery.map(|place| shown_key(place, new.path));
    let recovery_key = recovery_key.transpose()?;
    let openers = Openers {
        token: &token,
        secret: &secret,
        recovery: recovery_key.as_ref(),
    };
    let uuid = create(new, &openers, &mut progress);
    // What shows it may stand in the way of the messages.
    drop(progress);
    let uuid = uuid.inspect_err(|_| take_back(new, recovery))?;
    let path = new.path.display().to_string();
    if recovery.is_none() {
        notices.warn(&code::VOLUME_NO_RECOVERY, &path);
    }
    if old_data_left {
        notices.warn(&code::VOLUME_OLD_DATA, &path);
    }
    let header_escrowed = renew_backup(new.path, keys.as_mut(), notices);
    note_unreported(report(new.path, keys.as_mut(), Change::Made), notices);
    Ok(MadeVolume {
        path,
        uuid,
        object_id: hex(&token.object_id),
        key_id: token.key_id,
        key_version: token.key_version,
        provider: keys.provider().name(),
        recovery_key: recovery.is_some(),
        header_escrowed,
        old_data_left,
    })
}

/// Takes the recovery key back after a failure, but only when the volume's own file was not made,
/// so that the key opens nothing. A device may be partly written and have a header that the key
/// opens.
fn take_back(new: &NewVolume<'_>, recovery: Option<&dyn RecoveryPlace>) {
    let nothing_made = new.size.is_some() && new.path.symlink_metadata().is_err();
    if let Some(place) = recovery.filter(|_| nothing_made) {
        place.take_back();
    }
}
