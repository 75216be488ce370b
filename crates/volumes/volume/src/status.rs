//! The state of a volume, as its header and the kernel show it: what it is, what opens it, whether
//! it is open.
//!
//! Must not: need a key.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::Serialize;
use strongroom_format::hex::hex;
use strongroom_keyring::Error;
use strongroom_luks2::{Keyslot, KeyslotKind, Metadata, begins_as_luks};

use crate::device::Volume;
use crate::header::first_segment;
use crate::kept::KeptPassphrase;
use crate::probe::block_devices;
use crate::{active, tpm};

/// A volume's state. A stable contract: docs/reference/volume.md.
#[derive(Serialize)]
pub struct State {
    /// The device or file.
    pub path: String,
    /// Its UUID.
    pub uuid: String,
    /// As `aes-xts-plain64`.
    pub cipher: String,
    /// Bytes of its unit of encryption.
    pub sector_size: u32,
    /// As `hmac(sha256)`, when its sectors are authenticated.
    pub integrity: Option<String>,
    /// Where data begin, in bytes.
    pub data_offset: u64,
    /// Whether a re-encryption was begun and is not finished.
    pub reencrypting: bool,
    /// The volume's object id, when it has a Strongroom token, as the following members.
    pub object_id: Option<String>,
    /// The key's name.
    pub key_id: Option<String>,
    /// Its version.
    pub key_version: Option<u32>,
    /// `keyserver` or `keyring`.
    pub provider: Option<&'static str>,
    /// The key servers when the token was written.
    pub servers: Vec<String>,
    /// Its key slots.
    pub slots: Vec<SlotState>,
    /// Where it is open.
    pub mapping: Option<String>,
    /// Whether it is open for reading only; `None` when it is not open.
    pub read_only: Option<bool>,
    /// Until when a passphrase is kept for a start without key servers, in seconds since the Unix
    /// epoch.
    pub kept_until: Option<u64>,
}

/// A key slot.
#[derive(Serialize)]
pub struct SlotState {
    /// Its number.
    pub slot: u32,
    /// What opens it.
    pub kind: &'static str,
    /// Its key derivation.
    pub kdf: Option<String>,
    /// Whether it opens the volume: not while it only holds the key of a re-encryption.
    pub opens: bool,
    /// Of a TPM: the registers whose values it is sealed to.
    pub pcrs: Option<Vec<u8>>,
}

/// Returns the device below the mapping that `path` names, by its name or as a path in /dev/mapper;
/// any other path as it is.
#[must_use]
pub fn device_of(path: &Path) -> PathBuf {
    let name = path.strip_prefix("/dev/mapper").unwrap_or(path);
    let is_name = name.components().count() == 1 && (name != path || !path.exists());
    let name = name.to_string_lossy();
    let mapping = is_name.then(|| active::mapping(&name)).flatten();
    mapping.map_or_else(|| path.to_owned(), |mapping| mapping.device)
}

/// Reads the states of the LUKS2 volumes on this host's block devices and in the files `more`,
/// without a key, in the order of their paths. One that cannot be read is left out.
#[must_use]
pub fn states(more: &[PathBuf]) -> Vec<State> {
    let mut paths: BTreeSet<PathBuf> = more.iter().cloned().collect();
    paths.extend(block_devices());
    let is_luks = |path: &&PathBuf| begins_as_luks(path).unwrap_or_default();
    let volumes = paths.iter().filter(is_luks);
    volumes.filter_map(|path| state(path).ok()).collect()
}

/// Reads the state of the volume on `path`, without a key. A token that cannot be read is left out,
/// as is a passphrase that is kept where the caller may not read it.
///
/// # Errors
/// SR-1006 when nothing is at `path`; SR-8322 when it is no LUKS2 volume; SR-8320 when another
/// process has it locked for writing; SR-8324 when libcryptsetup fails; SR-5001 when the system
/// reports an error.
pub fn state(path: &Path) -> Result<State, Error> {
    let mut volume = Volume::open(path)?;
    let metadata = volume.metadata()?;
    let token = metadata.strongroom_token().ok().flatten();
    let token = token.map(|(_, token)| token);
    let segment = first_segment(&metadata)?;
    let mapping = active::mapping_of(path);
    let kept = token
        .as_ref()
        .and_then(|token| KeptPassphrase::find(token).ok()?);
    Ok(State {
        path: path.display().to_string(),
        uuid: volume.uuid()?,
        cipher: segment.cipher().unwrap_or_default().to_owned(),
        sector_size: segment.sector_size().unwrap_or_default(),
        integrity: segment.integrity().map(str::to_owned),
        data_offset: volume.data_offset(),
        reencrypting: metadata.is_reencrypting(),
        object_id: token.as_ref().map(|token| hex(&token.object_id)),
        key_id: token.as_ref().map(|token| token.key_id.clone()),
        key_version: token.as_ref().map(|token| token.key_version),
        provider: token.as_ref().map(|token| token.provider.name()),
        servers: token.map(|token| token.servers).unwrap_or_default(),
        slots: slots(&metadata),
        mapping: mapping
            .as_ref()
            .map(|mapping| mapping.path.display().to_string()),
        read_only: mapping.map(|mapping| mapping.read_only),
        kept_until: kept.map(|kept| kept.term.until),
    })
}

/// Returns the state of every key slot, in the order of their numbers.
fn slots(metadata: &Metadata) -> Vec<SlotState> {
    let bound = metadata.bound_slots();
    let tpms = tpm::tokens(metadata);
    let state = |(slot, about): (&u32, &Keyslot)| {
        let mut of_slot = tpms.iter().filter(|(_, token)| token.slots.contains(slot));
        SlotState {
            slot: *slot,
            kind: metadata.opened_by(*slot).name(),
            kdf: match &about.kind {
                KeyslotKind::Luks2(about) => Some(about.kdf.name().to_owned()),
                _ => None,
            },
            opens: bound.contains(slot),
            pcrs: of_slot.next().map(|(_, token)| token.registers()),
        }
    };
    metadata.keyslots.iter().map(state).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::new_recovery_key;
    use crate::testing::{OBJECT, made};

    #[test]
    fn a_new_volume_shows_its_key_and_both_slots() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("v");
        let uuid = made(&path, Some(&new_recovery_key().unwrap()));
        let state = state(&path).unwrap();
        assert_eq!(
            (state.uuid, state.cipher.as_str()),
            (uuid, "aes-xts-plain64")
        );
        assert_eq!(state.object_id, Some(hex(&OBJECT)));
        assert_eq!(
            (state.provider, state.key_version),
            (Some("keyring"), Some(1))
        );
        let slots = state.slots.iter();
        let slots: Vec<_> = slots
            .map(|slot| (slot.slot, slot.kind, slot.kdf.as_deref(), slot.opens))
            .collect();
        let expected = [
            (0, "strongroom", Some("pbkdf2"), true),
            (1, "recovery", Some("argon2id"), true),
        ];
        assert_eq!(slots, expected);
        assert!(!state.reencrypting && state.mapping.is_none() && state.read_only.is_none());
        // A path that exists is no mapping's name.
        assert_eq!(device_of(&path), path);
    }
}
