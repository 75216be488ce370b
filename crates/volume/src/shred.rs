//! Destroys what opens a volume, so that its data are noise.
//!
//! Order: what the key server has, then the slots, then the whole of header and key slots, overwritten with random bytes.
//! Stopped between, the token is still there and the same command goes on. What cannot be destroyed from here is named.
//!
//! Must not: claim more than was done: old blocks of flash memory, copies of the header and of keys are not in reach.

use std::os::unix::fs::FileExt as _;
use std::path::Path;

use serde::Serialize;
use strongroom_crypto::{fill_random, sha256};
use strongroom_format::hex::hex;
use strongroom_keyring::Error;

use crate::device::Volume;
use crate::escrow;
use crate::keys::Keys;
use crate::look::{check_unused, exclusively, io};
use crate::secret::slot_secret;
use crate::token::Token;

/// Bytes that are written at once.
const PIECE: usize = 1 << 20;

/// What was destroyed, and what remains. Proof of it: docs/reference/volume.md.
#[derive(Debug, Serialize)]
pub struct Record {
    /// Where the volume was.
    pub path: String,
    /// Its UUID.
    pub uuid: String,
    /// Its object id, if it had our token.
    pub object_id: Option<String>,
    /// SHA-256 of header and key slots as they were.
    pub header_sha256: String,
    /// Key slots that were destroyed.
    pub slots_destroyed: Vec<u32>,
    /// Bytes that were overwritten, from the beginning.
    pub overwritten_bytes: u64,
    /// Whether the header backup at the key server was removed; `null` where there is none.
    pub escrow_removed: Option<bool>,
    /// Whether the destruction of the key was asked for and granted.
    pub key_destroyed: bool,
    /// What is left, in words.
    pub remains: Vec<String>,
}

/// Destroys the volume on `path`. `keys` is whoever has its key, if that is to be destroyed too.
///
/// # Errors
/// SR-8320, SR-8322, SR-8324, SR-5001. What the key server cannot do is no error; it stands in the record.
pub fn shred(path: &Path, mut keys: Option<&mut dyn Keys>) -> Result<Record, Error> {
    check_unused(path)?;
    let mut volume = Volume::open(path)?;
    let metadata = volume.metadata()?;
    let token = metadata.token().ok().flatten().map(|(_, token)| token);
    let mut record = Record {
        path: path.display().to_string(),
        uuid: volume.uuid()?,
        object_id: token.as_ref().map(|token| hex(&token.object_id)),
        header_sha256: hex(&sha256(&[&escrow::header(&mut volume)?])),
        slots_destroyed: Vec::new(),
        overwritten_bytes: 0,
        escrow_removed: None,
        key_destroyed: false,
        remains: Vec::new(),
    };
    let proven = match (&token, keys.as_mut()) {
        (Some(token), Some(keys)) => opens_it(&mut volume, token, &mut **keys),
        _ => Ok(()),
    };
    if let (Some(token), Err(error)) = (&token, &proven) {
        let left = format!(
            "the key {}, which a token on the disk names, and its header backup were not touched: that key was not seen to open this volume ({error})",
            token.key_id
        );
        record.remains.push(left);
    } else if let (Some(token), Some(keys)) = (&token, keys.as_mut()) {
        if keys.keeps_headers() {
            let removed = keys.escrow(&token.object_id, None);
            record.escrow_removed = Some(removed.is_ok());
            if let Err(error) = removed {
                record
                    .remains
                    .push(format!("the header backup at the key server: {error}"));
            }
        }
        match keys.destroy(&token.key_id) {
            Ok(left) => {
                record.key_destroyed = keys.keeps_headers();
                record.remains.push(left);
            }
            Err(error) => record
                .remains
                .push(format!("the key {}: {error}", token.key_id)),
        }
    } else if let Some(token) = &token {
        let left = format!(
            "the key {} was left as it is, as was a header backup at the key server",
            token.key_id
        );
        record.remains.push(left);
    }
    for slot in metadata.key_slots() {
        volume.remove_slot(slot)?;
        record.slots_destroyed.push(slot);
    }
    record.overwritten_bytes = volume.data_offset();
    drop(volume);
    overwrite(path, record.overwritten_bytes)?;
    record.remains.push("every backup of its header that was made with other means, with the keys that opened it then".to_owned());
    record.remains.push(
        "blocks that the device moved elsewhere before (flash memory), and snapshots below it"
            .to_owned(),
    );
    Ok(record)
}

/// A token only says which key it would be, and whoever could write to the disk can have named another volume's: nothing but
/// what opens this volume is destroyed with it.
fn opens_it(volume: &mut Volume, token: &Token, keys: &mut dyn Keys) -> Result<(), Error> {
    let material = keys.fetch(&token.key_id, Some(token.key_version))?;
    let secret = slot_secret(&material.key, &token.object_id)?;
    volume.test(None, &secret).map(drop)
}

fn overwrite(path: &Path, len: u64) -> Result<(), Error> {
    let failed = |error| io(path, error);
    let device = exclusively(path, true)?;
    let mut random = vec![0; PIECE];
    let mut at = 0;
    while at < len {
        fill_random(&mut random)?;
        let left = usize::try_from(len - at).unwrap_or(PIECE).min(PIECE);
        device
            .write_all_at(random.get(..left).unwrap_or_default(), at)
            .map_err(failed)?;
        at += left as u64;
    }
    device.sync_all().map_err(failed)
}
