//! Where a new recovery key is shown, once.
//!
//! Invariant: nobody's volume has a recovery key that was not shown before.
//!
//! Must not: show a key itself.

use std::path::Path;

use strongroom_crypto::SecretBytes;
use strongroom_keyring::Error;

use crate::device::Volume;
use crate::openers::add_recovery;
use crate::secret::new_recovery_key;

/// A place where a recovery key is shown to a person.
pub trait RecoveryPlace {
    /// Checks that a key can be shown there. Shows nothing.
    ///
    /// # Errors
    /// SR-1002 when it is a file and exists, SR-8357 when it is a terminal and there is none;
    /// others by the place.
    fn check(&self) -> Result<(), Error>;

    /// Shows the key of the volume `of`.
    ///
    /// # Errors
    /// What the place reports, such as SR-5001.
    fn show(&self, key: &SecretBytes, of: &Path) -> Result<(), Error>;

    /// Removes a key that no volume has, as far as that can be done. Failures are ignored: another
    /// one led here.
    fn take_back(&self);
}

/// Makes a recovery key, and shows it. Call it before the volume `of` has the key.
///
/// # Errors
/// SR-5001 when there is no memory, or the system has no random bytes; as [`RecoveryPlace::show`].
pub(crate) fn shown_key(place: &dyn RecoveryPlace, of: &Path) -> Result<SecretBytes, Error> {
    let key = new_recovery_key()?;
    place.show(&key, of)?;
    Ok(key)
}

/// Makes a recovery key, shows it, and adds a slot for it; `secret` opens the volume already.
/// Returns the slot and the key.
///
/// # Errors
/// As [`RecoveryPlace::show`]; SR-2002 when `secret` opens no slot, and the others of
/// [`add_recovery`].
pub fn add_shown_recovery(
    volume: &mut Volume,
    secret: &SecretBytes,
    place: &dyn RecoveryPlace,
) -> Result<(u32, SecretBytes), Error> {
    let key = shown_key(place, volume.path())?;
    let slot = add_recovery(volume, secret, &key)?;
    Ok((slot, key))
}
