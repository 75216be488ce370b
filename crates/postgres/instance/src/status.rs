//! What is known of an instance without a key, or with one that is at hand.
//!
//! Must not: change anything; follow the configuration of another user's directory.

use strongroom_keyring::Error;
use strongroom_postgres_shield::source;

use crate::chosen::{ChosenKey, GivenKey};
use crate::contents::has_data_checksums;
use crate::directory::Directory;

/// Returns whether pages of relations have checksums; `None` when that is not known, as where the
/// key is not at hand, or the instance is converted. A key that was given has to open the instance.
///
/// # Errors
/// Those of a key that was given or that the environment names.
pub fn data_checksums(given: GivenKey, directory: &Directory) -> Result<Option<bool>, Error> {
    if directory.major().is_none() || directory.is_converting() {
        return Ok(None);
    }
    if !directory.is_sealed() {
        return Ok(has_data_checksums(directory, None).ok());
    }
    // What strongroom.conf names was chosen by the directory's owner, and is followed for the owner
    // only.
    let is_given = given.key.is_some();
    let chosen = match ChosenKey::find(given, directory) {
        Err(failure) if is_given => return Err(failure),
        found => found.ok().flatten(),
    };
    let Some(chosen) = chosen else {
        return Ok(None);
    };
    if chosen.is_own() && !(chosen.is_at_hand() && directory.is_own()) {
        return Ok(None);
    }
    let found = chosen
        .instance(directory)
        .and_then(|instance| has_data_checksums(directory, Some(&instance)));
    match found {
        Err(failure) if !chosen.is_own() => Err(failure),
        found => Ok(found.ok()),
    }
}

/// Says where the key comes from, as the configuration names it, or why the configuration is not
/// valid. `None` when there is none.
#[must_use]
pub fn key_source(directory: &Directory) -> Option<String> {
    match source::from_configuration(&directory.path) {
        Ok(found) => found.map(|found| found.key.describe()),
        Err(error) => Some(format!("not valid: {error}")),
    }
}
