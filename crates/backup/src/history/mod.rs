//! The history of backups: a catalogue beside the keyring that notes which sets were made, verified
//! and restored, when, and how each run ended.
//!
//! Invariant: an error of the catalogue does not change a run's outcome; callers turn an error of
//! [`note_run`] into a warning.
//!
//! Must not: ask for a passphrase, unless the catalogue was named.

mod catalogue;
mod catalogue_path;
mod past;
mod run_record;

use std::path::Path;

use strongroom_format::code;

pub use self::catalogue::Catalogue;
pub use self::catalogue_path::catalogue_path;
pub use self::past::{PastRuns, past_runs};
pub use self::run_record::{RunRecord, SetFacts, absolute_name};

use self::catalogue_path::can_be_opened_unasked;
use crate::{Error, Result};

/// Adds a run to the catalogue that was named, or to the one beside the keyring. If there is none,
/// a run that made a set with the key `key_id` of the keyring makes it, and other runs are not
/// noted. Nothing is noted either when no catalogue was named and the keyring would ask for its
/// root key.
///
/// # Errors
/// SR-7152 when the named catalogue does not exist and this run does not make it; those of the
/// catalogue.
pub fn note_run(
    named: Option<&Path>,
    keyring: &Path,
    key_id: Option<&str>,
    record: &RunRecord,
) -> Result<()> {
    let path = catalogue_path(named, keyring);
    if named.is_none() && !can_be_opened_unasked(keyring) {
        return Ok(());
    }
    if !path.exists() {
        let Some(id) = key_id.filter(|_| record.operation() == "create" && record.is_done()) else {
            let absent = || Error::new(&code::HISTORY_ABSENT, path.display().to_string());
            return named.map_or(Ok(()), |_| Err(absent()));
        };
        Catalogue::create(&path, keyring, id)?;
    }
    Catalogue::open(&path, keyring)?.add(record)
}
