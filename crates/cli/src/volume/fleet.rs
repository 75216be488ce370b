//! What verbs of `volume` tell the key server for its fleet page, where the volume's key is there.
//!
//! Must not: fail a verb that has done its work; use a key.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use strongroom_volume::Volume;
use strongroom_volume::keys::{Keys, Report};
use strongroom_volume::token::Token;

use crate::failure::note;
use crate::keyserver::object_name::object_name;

/// What happened to the volume.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Happened {
    /// It was made, or its header put back.
    Made,
    /// It has another key.
    Rotated,
    /// Its key slots were destroyed.
    Shredded,
}

/// Tells it; a failure is a note. The server knows the time of its making, if it was told before.
pub(super) fn tell(path: &Path, keys: &mut dyn Keys, happened: Happened) {
    // A keyring takes no reports: `keyserver report` tells of its volumes.
    if !keys.keeps_headers() {
        return;
    }
    noted(told(path, keys, happened));
}

/// Tells it that a volume was shredded, of which this was read before. A failure is a note.
pub(super) fn tell_shredded(path: &Path, keys: &mut dyn Keys, token: &Token, cipher: &str) {
    if keys.keeps_headers() {
        noted(report(path, keys, token, cipher, Happened::Shredded));
    }
}

fn noted(told: Result<(), strongroom_volume::Error>) {
    if let Err(error) = told {
        note(&format!("the fleet page was not told: {error}"));
    }
}

fn told(
    path: &Path,
    keys: &mut dyn Keys,
    happened: Happened,
) -> Result<(), strongroom_volume::Error> {
    let mut volume = Volume::open(path)?;
    let token = volume.token()?;
    let cipher = volume.metadata()?.segment()?.encryption.clone();
    drop(volume);
    report(path, keys, &token, &cipher, happened)
}

fn report(
    path: &Path,
    keys: &mut dyn Keys,
    token: &Token,
    cipher: &str,
    happened: Happened,
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
            rotated: (happened == Happened::Rotated).then_some(now),
            shredded: (happened == Happened::Shredded).then_some(now),
        },
    )
}
