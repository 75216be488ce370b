//! Changes the volume key: every sector is read under the old key and written under the new one,
//! while the volume is open or closed.
//!
//! Order: every opener that stays gets a slot with the new key, under the same passphrase as its
//! old slot, and tokens name both; then libcryptsetup writes the beginning of the re-encryption
//! into the header, the header goes to the key server, and data move, eight MiB at a time; at last
//! libcryptsetup destroys the slots of the old key. Invariants: V14, every opener that stays opens
//! the volume at every moment between (but for the state that `repair` mends); V15, the same
//! command continues after it was stopped anywhere.
//!
//! Must not: begin with a version of libcryptsetup that is known to lose data (V16).

use libcryptsetup_rs::consts::flags::{CryptReencrypt, CryptVolumeKey};
use libcryptsetup_rs::consts::vals::{
    CryptReencryptDirectionInfo, CryptReencryptInfo, CryptReencryptModeInfo,
};
use libcryptsetup_rs::{CryptParamsLuks2, CryptParamsReencrypt};
use strongroom_crypto::SecretBytes;
use strongroom_format::code;
use strongroom_keyring::Error;
use strongroom_luks2::{Metadata, recovery_token};

use crate::device::{Stretch, Volume};
use crate::ffi::{Progress, library_version, on_progress};
use crate::header::{check_before_trying, first_segment};
use crate::openers::remove_empty_tokens;
use crate::repair::{all_data_moved, finish};
use crate::secret::new_volume_key;
use crate::tpm;

/// How much is re-encrypted at once, in sectors of 512 bytes: 8 MiB. I/O to this part waits
/// meanwhile.
const HOTZONE_SECTORS: u64 = (8 << 20) / 512;

/// An opener that stays, with its passphrase.
pub struct StayingOpener<'a> {
    /// Its slot with the old key.
    pub slot: u32,
    /// Its passphrase.
    pub secret: &'a SecretBytes,
    /// How it is stretched.
    pub stretch: Stretch,
}

/// Checks that the version of the loaded libcryptsetup may re-encrypt: 2.4.3 or later, but not
/// 2.7.0 to 2.7.4.
///
/// # Errors
/// SR-8329 when it may not, or is not known.
pub fn check_library() -> Result<(), Error> {
    check_version(library_version())
}

/// Checks this version: SR-8329 before 2.4.3, from 2.7.0 to 2.7.4, and for one that is not known.
fn check_version(version: Option<(u32, u32, u32)>) -> Result<(), Error> {
    let Some(version) = version else {
        return Err(Error::new(
            &code::VOLUME_LIBRARY_VERSION,
            "its version is not known",
        ));
    };
    if version < (2, 4, 3) || ((2, 7, 0)..(2, 7, 5)).contains(&version) {
        let (major, minor, patch) = version;
        let detail = format!("{major}.{minor}.{patch}");
        return Err(Error::new(&code::VOLUME_LIBRARY_VERSION, detail));
    }
    Ok(())
}

/// Returns the slots that open the volume, without those in `stays`.
#[must_use]
pub fn bound_slots_without(metadata: &Metadata, stays: &[u32]) -> Vec<u32> {
    let mut slots = metadata.bound_slots();
    slots.retain(|slot| !stays.contains(slot));
    slots
}

/// Prepares and begins a re-encryption under a new volume key: adds a slot with the new key for
/// each opener that stays, names it in the tokens, and writes the beginning into the header. No
/// data move yet. The first of `stays` opens the volume; `active` is the name of its mapping when
/// it is open.
///
/// # Errors
/// SR-8328 when one is under way; SR-8329 for libcryptsetup's version; SR-2002 when a passphrase
/// does not open its slot; SR-8340 for a cipher that is not known to be safe, SR-8307 when trying a
/// slot would cost too much; SR-8324 when libcryptsetup fails; SR-8320 when the volume is open and
/// `active` is `None`.
pub fn begin(
    volume: &mut Volume,
    stays: &[StayingOpener<'_>],
    active: Option<&str>,
) -> Result<(), Error> {
    check_library()?;
    let metadata = volume.metadata()?;
    crate::openers::check_not_reencrypting(&metadata)?;
    let first = stays
        .first()
        .ok_or_else(|| Error::new(&code::BUG, "nobody opens the volume"))?;
    // V2: each passphrase is tried on its slot before anything changes.
    for stay in stays {
        volume.try_secret(Some(stay.slot), stay.secret)?;
    }
    discard_prepared(volume, stays)?;
    let key = new_volume_key(volume.key_len())?;
    let mut added = Vec::new();
    for stay in stays {
        let flags = if added.is_empty() {
            CryptVolumeKey::NO_SEGMENT
        } else {
            CryptVolumeKey::NO_SEGMENT | CryptVolumeKey::DIGEST_REUSE
        };
        let slot = volume.add_key(Some(&key), stay.secret, stay.stretch, flags)?;
        added.push((stay.slot, slot));
    }
    drop(key);
    add_new_slots_to_tokens(volume, &added)?;
    let new = added.first().map(|(_, new)| *new);
    start(
        volume,
        active,
        first.secret,
        Some(first.slot),
        new,
        CryptReencrypt::INITIALIZE_ONLY,
    )
}

/// Moves the data, from where the last run has stopped; at the end the slots of the old key are
/// destroyed, and removed from the tokens. `progress` gets size and offset in bytes; `false` ends
/// the work, which can be continued later. Returns whether the re-encryption is finished.
///
/// # Errors
/// SR-2002 when `secret` does not open the volume; SR-8340 for a cipher that is not known to be
/// safe, SR-8307 when trying a slot would cost too much; SR-8329 for libcryptsetup's version;
/// SR-8324 when libcryptsetup fails; SR-5001 when the system reports an error.
pub fn resume(
    volume: &mut Volume,
    secret: &SecretBytes,
    active: Option<&str>,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<bool, Error> {
    check_library()?;
    let metadata = volume.metadata()?;
    check_before_trying(&metadata, &metadata.key_slots())?;
    let path = volume.path().to_owned();
    if has_crashed(volume)? {
        // The part that was moving is recovered first, from what the header has of it.
        start(volume, active, secret, None, None, CryptReencrypt::RECOVERY)?;
        *volume = Volume::open(&path)?;
    }
    let metadata = volume.metadata()?;
    if metadata.is_reencrypting() && all_data_moved(&metadata) {
        // libcryptsetup must not finish it: it may begin again at data that are under the new key
        // already. See `repair`.
        finish(volume, secret, active.is_some())?;
    } else if metadata.is_reencrypting() {
        start(
            volume,
            active,
            secret,
            None,
            None,
            CryptReencrypt::RESUME_ONLY,
        )?;
        let mut told = Progress(progress);
        let ran = volume
            .device
            .reencrypt_handle()
            .reencrypt2(Some(on_progress), Some(&mut told));
        ran.map_err(|error| volume.failed("re-encryption", &error))?;
        *volume = Volume::open(&path)?;
    }
    if volume.metadata()?.is_reencrypting() {
        return Ok(false);
    }
    remove_old_slots_from_tokens(volume)?;
    Ok(true)
}

/// Returns whether the process was killed while data moved. SR-8324 when the state is not valid.
fn has_crashed(volume: &mut Volume) -> Result<bool, Error> {
    let params = CryptParamsReencrypt {
        mode: CryptReencryptModeInfo::Reencrypt,
        direction: CryptReencryptDirectionInfo::Forward,
        resilience: String::new(),
        hash: String::new(),
        data_shift: 0,
        max_hotzone_size: 0,
        device_size: 0,
        luks2: None,
        flags: CryptReencrypt::empty(),
    };
    let status = volume.device.reencrypt_handle().status(params);
    match status.map_err(|error| volume.failed("re-encryption", &error))? {
        CryptReencryptInfo::Crash => Ok(true),
        CryptReencryptInfo::None | CryptReencryptInfo::Clean => Ok(false),
        CryptReencryptInfo::Invalid => Err(Error::new(
            &code::VOLUME_LIBRARY,
            "what the header says of the re-encryption is not valid",
        )),
    }
}

/// Removes slots that no longer exist from tokens, and tokens that then name none, at the end of a
/// re-encryption. SR-8324 when libcryptsetup fails; SR-8322 or SR-8323 when the metadata or a token
/// is not valid.
fn remove_old_slots_from_tokens(volume: &mut Volume) -> Result<(), Error> {
    let metadata = volume.metadata()?;
    let there = metadata.key_slots();
    if let Some((number, mut token)) = metadata.strongroom_token()? {
        let before = token.slots.len();
        token.slots.retain(|slot| there.contains(slot));
        if token.slots.len() != before {
            volume.set_token(Some(number), &token.json())?;
        }
    }
    if let Some((number, mut slots)) = metadata.recovery_token() {
        let before = slots.len();
        slots.retain(|slot| there.contains(slot));
        if slots.len() != before {
            volume.set_token(Some(number), &recovery_token(&slots))?;
        }
    }
    for (number, mut token) in tpm::tokens(&metadata) {
        let before = token.slots.len();
        token.slots.retain(|slot| there.contains(slot));
        if token.slots.len() != before {
            volume.set_token(Some(number), &token.json())?;
        }
    }
    remove_empty_tokens(volume)
}

/// Destroys the slots of a preparation that was stopped before the re-encryption began: they hold a
/// key that no segment is under, and one of the given passphrases opens them. Other slots of that
/// kind are keys for another use, and stay. SR-8324 when libcryptsetup fails.
fn discard_prepared(volume: &mut Volume, stays: &[StayingOpener<'_>]) -> Result<(), Error> {
    for slot in volume.metadata()?.unbound_slots() {
        for stay in stays {
            if volume.opens(&[slot], stay.secret)?.is_some() {
                volume.remove_slot(slot)?;
                break;
            }
        }
    }
    Ok(())
}

/// Adds each new slot to the tokens that name the old one, so that what opens it is known at all
/// times. `added` has pairs of an old and a new slot. SR-8324 when libcryptsetup fails.
fn add_new_slots_to_tokens(volume: &mut Volume, added: &[(u32, u32)]) -> Result<(), Error> {
    let metadata = volume.metadata()?;
    let with_new = |slots: &[u32]| -> Vec<u32> {
        let mut all = slots.to_vec();
        let new = added.iter().filter(|(old, _)| slots.contains(old));
        all.extend(new.map(|(_, new)| *new));
        all.sort_unstable();
        all.dedup();
        all
    };
    if let Some((number, mut token)) = metadata.strongroom_token()? {
        token.slots = with_new(&token.slots);
        volume.set_token(Some(number), &token.json())?;
    }
    if let Some((number, slots)) = metadata.recovery_token() {
        volume.set_token(Some(number), &recovery_token(&with_new(&slots)))?;
    }
    for (number, mut token) in tpm::tokens(&metadata) {
        token.slots = with_new(&token.slots);
        volume.set_token(Some(number), &token.json())?;
    }
    Ok(())
}

/// Has libcryptsetup begin, recover or continue a re-encryption, as `flags` say; no data move but
/// those of a recovery. `old` and `new` are the slots for a beginning, and `None` otherwise.
/// SR-2002 when `secret` does not open it; SR-8324 when libcryptsetup fails.
fn start(
    volume: &mut Volume,
    active: Option<&str>,
    secret: &SecretBytes,
    old: Option<u32>,
    new: Option<u32>,
    flags: CryptReencrypt,
) -> Result<(), Error> {
    let metadata = volume.metadata()?;
    let segment = first_segment(&metadata)?;
    let encryption = segment.cipher().unwrap_or_default();
    let (cipher, mode) = encryption.split_once('-').unwrap_or((encryption, ""));
    let luks2 = CryptParamsLuks2 {
        pbkdf: None,
        integrity: None,
        integrity_params: None,
        data_alignment: 0,
        data_device: None,
        sector_size: segment.sector_size().unwrap_or_default(),
        label: None,
        subsystem: None,
    };
    let params = CryptParamsReencrypt {
        mode: CryptReencryptModeInfo::Reencrypt,
        direction: CryptReencryptDirectionInfo::Forward,
        resilience: "checksum".to_owned(),
        hash: "sha256".to_owned(),
        data_shift: 0,
        max_hotzone_size: HOTZONE_SECTORS,
        device_size: 0,
        luks2: Some(luks2),
        flags,
    };
    // A continuation takes slots and cipher from the header.
    let how = new.is_some().then_some((cipher, mode));
    let begun = volume
        .device
        .reencrypt_handle()
        .reencrypt_init_by_passphrase(active, secret.as_slice(), old, new, how, params);
    begun
        .map(|_| ())
        .map_err(|error| volume.failed("re-encryption", &error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::create::DATA_OFFSET;
    use crate::device::By;
    use crate::testing::{forge, made, secret};

    /// A volume whose re-encryption was begun, in a file, and its passphrase.
    fn begun(directory: &std::path::Path) -> (std::path::PathBuf, SecretBytes) {
        let path = directory.join("v");
        made(&path, None);
        let secret = secret();
        let mut volume = Volume::open(&path).unwrap();
        let stays = [StayingOpener {
            slot: 0,
            secret: &secret,
            stretch: Stretch::Machine,
        }];
        begin(&mut volume, &stays, None).unwrap();
        (path, secret)
    }

    /// CVE-2021-4122: with write access to the disk, an attacker could make the owner decrypt it.
    #[test]
    fn a_forged_re_encryption_is_refused_and_moves_nothing() {
        let forgeries = [
            ("\"mode\":\"reencrypt\"", "\"mode\":\"decrypt\""),
            ("\"direction\":\"forward\"", "\"direction\":\"backward\""),
            ("online-reencrypt-v2", "online-reencrypt"),
        ];
        for (from, to) in forgeries {
            let directory = tempfile::tempdir().unwrap();
            let (path, secret) = begun(directory.path());
            let data = |path: &std::path::Path| {
                std::fs::read(path)
                    .unwrap()
                    .split_off(usize::try_from(DATA_OFFSET).unwrap())
            };
            let before = data(&path);
            forge(&path, from, to);
            let went_on = Volume::open(&path)
                .and_then(|mut volume| resume(&mut volume, &secret, None, &mut |_, _| true));
            assert!(went_on.is_err(), "{to}");
            assert!(data(&path) == before, "{to}: data moved");
            // With the header as it was, the re-encryption continues: nothing but the forgery was
            // wrong.
            forge(&path, to, from);
            let mut volume = Volume::open(&path).unwrap();
            assert!(
                resume(&mut volume, &secret, None, &mut |_, _| true).unwrap(),
                "{to}"
            );
            assert!(data(&path) != before);
        }
    }

    /// The right key must not open a disk that is in clear from then on.
    #[test]
    fn a_forged_cipher_is_refused_whatever_opens_the_slot() {
        let directory = tempfile::tempdir().unwrap();
        let (path, secret) = begun(directory.path());
        let real = "\"encryption\":\"aes-xts-plain64\",\"sector_size\"";
        for cipher in ["cipher_null-ecb", "aes-ecb", "capi:ecb(cipher_null)-plain"] {
            let forged = format!("\"encryption\":\"{cipher}\",\"sector_size\"");
            forge(&path, real, &forged);
            let tried = Volume::open(&path).and_then(|mut volume| volume.try_secret(None, &secret));
            assert_eq!(tried.unwrap_err().code(), &code::VOLUME_CIPHER, "{cipher}");
            // No other function that takes a key accepts the header either.
            let open = || Volume::open(&path).unwrap();
            let by_token = open().try_by(By::Token, &secret);
            assert_eq!(by_token.unwrap_err().code(), &code::VOLUME_CIPHER);
            let went_on = resume(&mut open(), &secret, None, &mut |_, _| true);
            assert_eq!(went_on.unwrap_err().code(), &code::VOLUME_CIPHER);
            let added = open().add_slot(&secret, &secret, Stretch::Machine);
            assert_eq!(added.unwrap_err().code(), &code::VOLUME_CIPHER);
            let key = open().volume_key(None, &secret).err().unwrap();
            assert_eq!(key.code(), &code::VOLUME_CIPHER);
            forge(&path, &forged, real);
        }
        assert!(
            Volume::open(&path)
                .unwrap()
                .try_secret(None, &secret)
                .is_ok()
        );
    }

    #[test]
    fn libraries_that_lose_data_or_believe_forged_headers_are_refused() {
        for good in [(2, 4, 3), (2, 6, 1), (2, 7, 5), (2, 8, 0), (3, 0, 0)] {
            assert!(check_version(Some(good)).is_ok(), "{good:?}");
        }
        for bad in [(2, 3, 0), (2, 4, 2), (2, 7, 0), (2, 7, 4)] {
            let error = check_version(Some(bad)).unwrap_err();
            assert_eq!(error.code(), &code::VOLUME_LIBRARY_VERSION, "{bad:?}");
        }
        assert!(check_version(None).is_err());
    }
}
