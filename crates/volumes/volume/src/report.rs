//! Reports of a volume to the key server, for its fleet page. A keyring takes no reports.
//!
//! Must not: use a key.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use strongroom_keyring::Error;
use strongroom_keys_client::object_name;
use strongroom_luks2::StrongroomToken;

use crate::device::Volume;
use crate::header::first_segment;
use crate::keys::{Keys, Report};
use crate::notices::Notices;

/// What happened to the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It was made, or its header put back.
    Made,
    /// It has another key.
    Rotated,
    /// Its key slots were destroyed.
    Shredded,
}

/// Reports a change of the volume on `path` to the key server. The server keeps the time of
/// creation that was reported before. Does nothing when `keys` is a keyring.
///
/// # Errors
/// SR-8323 without a token; as [`Volume::open`]; what the key server reports, such as SR-8402 when
/// none answers.
pub fn report(path: &Path, keys: &mut dyn Keys, change: Change) -> Result<(), Error> {
    if !keys.keeps_headers() {
        return Ok(());
    }
    let mut volume = Volume::open(path)?;
    let token = volume.token()?;
    let metadata = volume.metadata()?;
    drop(volume);
    let cipher = first_segment(&metadata)?.cipher().unwrap_or_default();
    report_as(path, keys, (&token, cipher), change)
}

/// Turns a report that failed into a note: the command has done its work.
pub fn note_unreported(reported: Result<(), Error>, notices: &dyn Notices) {
    if let Err(error) = reported {
        notices.note(&format!("the fleet page was not told: {error}"));
    }
}

/// Reports a change of a volume to the key server, with the token and cipher that were read before:
/// the volume is not opened. Does nothing when `keys` is a keyring.
///
/// # Errors
/// What the key server reports, such as SR-8402 when none answers.
pub fn report_as(
    path: &Path,
    keys: &mut dyn Keys,
    (token, cipher): (&StrongroomToken, &str),
    change: Change,
) -> Result<(), Error> {
    if !keys.keeps_headers() {
        return Ok(());
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |passed| passed.as_secs());
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    keys.report(
        &token.object_id,
        &Report {
            name: &object_name(&path),
            cipher,
            key_id: &token.key_id,
            key_version: token.key_version,
            created: 0,
            rotated: (change == Change::Rotated).then_some(now),
            shredded: (change == Change::Shredded).then_some(now),
        },
    )
}
