//! Reports changes of a volume to the key server for its fleet page, if the volume's key is there.
//!
//! Must not: make a verb fail that has done its work; use a key.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use strongroom_keys_client::object_name;
use strongroom_volume::Volume;
use strongroom_volume::keys::{Keys, Report};
use strongroom_volume::token::Token;

use crate::failure::note;

/// What happened to the volume.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum VolumeChange {
    /// It was made, or its header put back.
    Made,
    /// It has another key.
    Rotated,
    /// Its key slots were destroyed.
    Shredded,
}

/// Reports a change of the volume; a failure is a note. The server keeps the time of creation that
/// was reported before.
pub(super) fn report_change(path: &Path, keys: &mut dyn Keys, happened: VolumeChange) {
    // A keyring takes no reports: `keyserver report` reports its volumes.
    if !keys.keeps_headers() {
        return;
    }
    note_failure(report_volume(path, keys, happened));
}

/// Tells it that a volume was shredded, of which this was read before. A failure is a note.
pub(super) fn report_shredded(path: &Path, keys: &mut dyn Keys, token: &Token, cipher: &str) {
    if keys.keeps_headers() {
        note_failure(send_report(
            path,
            keys,
            token,
            cipher,
            VolumeChange::Shredded,
        ));
    }
}

fn note_failure(told: Result<(), strongroom_volume::Error>) {
    if let Err(error) = told {
        note(&format!("the fleet page was not told: {error}"));
    }
}

fn report_volume(
    path: &Path,
    keys: &mut dyn Keys,
    happened: VolumeChange,
) -> Result<(), strongroom_volume::Error> {
    let mut volume = Volume::open(path)?;
    let token = volume.token()?;
    let cipher = volume.metadata()?.segment()?.encryption.clone();
    drop(volume);
    send_report(path, keys, &token, &cipher, happened)
}

fn send_report(
    path: &Path,
    keys: &mut dyn Keys,
    token: &Token,
    cipher: &str,
    happened: VolumeChange,
) -> Result<(), strongroom_volume::Error> {
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
            rotated: (happened == VolumeChange::Rotated).then_some(now),
            shredded: (happened == VolumeChange::Shredded).then_some(now),
        },
    )
}
