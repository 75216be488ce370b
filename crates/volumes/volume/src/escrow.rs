//! Header backups at the key server. They are sealed on the node, under a key made from the
//! volume's material, before they are sent.
//!
//! Form: `docs/spec/volume.md`, "Header backups". Invariant V12: a backup is stored only after
//! libcryptsetup has read it as a header.
//!
//! Must not: write a header to a disk.

use std::os::unix::fs::FileExt as _;
use std::path::Path;

use strongroom_crypto::{GcmKey, nonce12};
use strongroom_format::code;
use strongroom_keyring::Error;

use crate::create::MemoryFile;
use crate::device::Volume;
use crate::error::io;
use crate::header::first_segment;
use crate::host_keys::HostKeys;
use crate::keys::{Keys, Material};
use crate::notices::{Notices, summary};
use crate::report::{Change, report_as};
use crate::secret::escrow_key;
use strongroom_luks2::StrongroomToken;

/// First bytes of a sealed header.
const MAGIC: &[u8; 8] = b"SRVOLHDR";
/// Version of the form.
const VERSION: u32 = 1;
/// Length of the head before the sealed bytes, and of the tag after them.
const HEAD_LEN: usize = 48;
const TAG_LEN: usize = 16;
/// Longest header that can be stored: the server takes 32 MiB.
const HEADER_MAX: u64 = (32 << 20) - (HEAD_LEN + TAG_LEN) as u64;

/// Reads header and key slots of the volume into memory, and has libcryptsetup check that copy.
///
/// # Errors
/// SR-8324 when they are longer than the key server takes, or lie apart from the data; SR-8320 when
/// the volume's UUID changed meanwhile; SR-8322 when the copy is no LUKS2 header; SR-5001 when the
/// system reports an error.
pub(crate) fn read_header(volume: &mut Volume) -> Result<Vec<u8>, Error> {
    let len = volume.data_offset();
    if len == 0 || len > HEADER_MAX {
        let detail = format!("a header of {len} bytes");
        return Err(Error::new(&code::VOLUME_LIBRARY, detail));
    }
    let path = volume.path().to_owned();
    let mut bytes = vec![0; usize::try_from(len).unwrap_or_default()];
    let device = std::fs::File::open(&path).map_err(|error| io(&path, error))?;
    device
        .read_exact_at(&mut bytes, 0)
        .map_err(|error| io(&path, error))?;
    let memory = MemoryFile::with_len(len)?;
    let failed = |error| Error::io("memory for a header", error);
    memory.file.write_all_at(&bytes, 0).map_err(failed)?;
    let mut copy = Volume::detached(&memory.path, &path)?;
    if copy.uuid()? != volume.uuid()? {
        return Err(Error::new(
            &code::VOLUME_IN_USE,
            "its header changed meanwhile",
        ));
    }
    Ok(bytes)
}

/// Seals a header for the key server, under a key derived from `material`. The result begins with a
/// head that names the version of the key.
///
/// # Errors
/// SR-5001 when there is no memory for keys, or no randomness.
pub fn seal(
    header: Vec<u8>,
    token: &StrongroomToken,
    material: &Material,
) -> Result<Vec<u8>, Error> {
    let nonce = nonce12()?;
    let mut sealed = Vec::with_capacity(header.len() + HEAD_LEN + TAG_LEN);
    sealed.extend_from_slice(MAGIC);
    sealed.extend_from_slice(&VERSION.to_le_bytes());
    sealed.extend_from_slice(&material.version.to_le_bytes());
    sealed.extend_from_slice(&token.object_id);
    sealed.extend_from_slice(&nonce);
    sealed.extend_from_slice(&[0; 4]);
    let head = sealed.clone();
    sealed.extend_from_slice(&header);
    drop(header);
    let key = GcmKey::new(&escrow_key(&material.key, &token.object_id)?)?;
    let body = sealed.get_mut(HEAD_LEN..).unwrap_or_default();
    let tag = key.seal(&nonce, &head, body)?;
    sealed.extend_from_slice(&tag);
    Ok(sealed)
}

/// Returns the version of the key that a sealed header is under. Nothing is authenticated.
///
/// # Errors
/// SR-3001 when it is no sealed header, or is cut short; SR-3002 when a newer version wrote it.
pub fn key_version(sealed: &[u8]) -> Result<u32, Error> {
    let word = |at: usize| {
        let bytes = sealed.get(at..at + 4).unwrap_or_default();
        bytes.try_into().map(u32::from_le_bytes).unwrap_or_default()
    };
    if !sealed.starts_with(MAGIC) || sealed.len() < HEAD_LEN + TAG_LEN {
        return Err(Error::new(&code::NOT_SEALED, "a header backup"));
    }
    match word(8) {
        VERSION => Ok(word(12)),
        _ => Err(Error::new(&code::NEWER_FORMAT, "a header backup")),
    }
}

/// Opens a sealed header, and returns header and key slots.
///
/// # Errors
/// SR-2002 when it was sealed under another key or version of the key, for another volume, or was
/// changed; SR-3001 when it is no sealed header, or is cut short; SR-3002 when a newer version
/// wrote it; SR-5001 when there is no memory for keys.
pub fn open(sealed: &[u8], object_id: &[u8; 16], material: &Material) -> Result<Vec<u8>, Error> {
    let wrong = || Error::new(&code::WRONG_KEY, "a header backup");
    let version = key_version(sealed)?;
    let (head, body) = sealed.split_at(HEAD_LEN);
    let (body, tag) = body.split_at(body.len() - TAG_LEN);
    let piece = |at: usize, len: usize| head.get(at..at + len).unwrap_or_default();
    if version != material.version || piece(16, 16) != object_id {
        return Err(wrong());
    }
    let nonce: [u8; 12] = piece(32, 12).try_into().map_err(|_| wrong())?;
    let tag: [u8; TAG_LEN] = tag.try_into().map_err(|_| wrong())?;
    let mut header = body.to_vec();
    let key = GcmKey::new(&escrow_key(&material.key, object_id)?)?;
    key.open(&nonce, head, &mut header, &tag)
        .map_err(|_| wrong())?;
    Ok(header)
}

/// Stores the volume's header at the key server, sealed. The server takes backups only of objects
/// that were reported to it, so the volume is reported first. Does nothing when `keys` is a
/// keyring.
///
/// # Errors
/// SR-8323 when the volume has no Strongroom token; as [`read_header`] and [`Keys::fetch`]; what
/// the key server reports, such as SR-8402 when none answers.
pub fn store_at_server(volume: &mut Volume, keys: &mut dyn Keys) -> Result<(), Error> {
    if !keys.keeps_headers() {
        return Ok(());
    }
    let token = volume.token()?;
    let material = keys.fetch(&token.key_id, Some(token.key_version))?;
    let sealed = seal(read_header(volume)?, &token, &material)?;
    let metadata = volume.metadata()?;
    let cipher = first_segment(&metadata)?.cipher().unwrap_or_default();
    report_as(volume.path(), keys, (&token, cipher), Change::Made)?;
    keys.escrow(&token.object_id, Some(&sealed))
}

/// Reports the volume on `path` to the key server, stores its sealed header there, and returns
/// whether it was stored. Does nothing when `keys` is a keyring. A failure is a warning, SR-8333.
pub fn renew_backup(path: &Path, keys: &mut dyn Keys, notices: &dyn Notices) -> bool {
    if !keys.keeps_headers() {
        return false;
    }
    let stored = Volume::open(path).and_then(|mut volume| store_at_server(&mut volume, keys));
    if let Err(error) = &stored {
        notices.warn(&code::VOLUME_NOT_ESCROWED, &error.to_string());
    }
    stored.is_ok()
}

/// Stores the sealed header backup again after a change of key slots, at the key server that the
/// volume's token names, and reports the volume there. Does nothing for a volume without a token or
/// of a keyring. That the key server cannot be used is a note; a failure to store is a warning,
/// SR-8333.
pub fn renew_backup_after_change(path: &Path, keys: &HostKeys, notices: &dyn Notices) {
    let token = Volume::open(path).and_then(|mut volume| volume.token());
    let Ok(token) = token else { return };
    match keys.open(Some(token.provider)) {
        Ok(mut keys) => {
            renew_backup(path, keys.as_mut(), notices);
        }
        Err(error) => {
            let why = summary(&error);
            notices.note(&format!("the header backup was not renewed: {why}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strongroom_crypto::SecretKey;

    #[test]
    fn sealed_headers_open_only_whole_with_their_key_and_for_their_volume() {
        let token = StrongroomToken {
            slots: vec![],
            object_id: [7; 16],
            key_id: "k".to_owned(),
            key_version: 2,
            provider: strongroom_luks2::Provider::KeyServer,
            servers: vec![],
        };
        let material = |version, byte| Material {
            version,
            key: SecretKey::take(&mut [byte; 32]).unwrap(),
        };
        let header = b"LUKS and more".to_vec();
        let sealed = seal(header.clone(), &token, &material(2, 1)).unwrap();
        assert_eq!(sealed.len(), 48 + header.len() + 16);
        assert_eq!(key_version(&sealed).unwrap(), 2);
        assert_eq!(open(&sealed, &[7; 16], &material(2, 1)).unwrap(), header);
        assert!(open(&sealed, &[8; 16], &material(2, 1)).is_err());
        assert!(open(&sealed, &[7; 16], &material(2, 2)).is_err());
        assert!(open(&sealed, &[7; 16], &material(3, 1)).is_err());
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(
                open(&changed, &[7; 16], &material(2, 1)).is_err(),
                "byte {at}"
            );
            assert!(
                open(&sealed[..at], &[7; 16], &material(2, 1)).is_err(),
                "cut at {at}"
            );
        }
    }
}
