//! Destroys a volume's keys, so that its data can never be decrypted.
//!
//! Order: everything that can refuse, then the passphrase that is kept of the volume, header backup
//! and key at the key server, the slots, header and key slot areas, overwritten with random bytes.
//! Stopped in between, the token is still there and the same command continues. What cannot be
//! destroyed from here is named.
//!
//! Invariant V20: the device is opened once, for sole use, and its UUID is compared with the one
//! that was confirmed; everything is destroyed through that opening, whatever its path leads to
//! meanwhile.
//!
//! Must not: claim more than was done: old blocks of flash memory, and copies of the header and of
//! keys, are out of reach.

use std::fs::File;
use std::path::Path;

use serde::Serialize;
use strongroom_crypto::sha256;
use strongroom_format::code;
use strongroom_format::hex::hex;
use strongroom_keyring::Error;

use crate::contents::{check_unused, open_exclusively};
use crate::create::overwrite;
use crate::device::{By, Volume};
use crate::error::io;
use crate::escrow;
use crate::header::first_segment;
use crate::keys::{Destruction, Fate, Keys, secret_of_token};
use crate::notices::Notices;
use crate::outage::forget;
use crate::report::{Change, note_unreported, report_as};
use strongroom_luks2::{Provider, Segment, StrongroomToken};

/// What was destroyed, and what remains. A stable contract: docs/reference/volume.md.
#[derive(Debug, Serialize)]
pub struct Record {
    /// Where the volume was.
    pub path: String,
    /// Its UUID.
    pub uuid: String,
    /// Its object id, if it had a Strongroom token.
    pub object_id: Option<String>,
    /// SHA-256 of header and key slots as they were.
    pub header_sha256: String,
    /// Key slots that were destroyed.
    pub slots_destroyed: Vec<u32>,
    /// Bytes that were overwritten, from the beginning.
    pub overwritten_bytes: u64,
    /// Whether the header backup at the key server was removed; `null` where there is none.
    pub escrow_removed: Option<bool>,
    /// The key's state: `kept`, `destroy-pending` (it still exists, and is erased at
    /// `key_destroy_at` unless somebody restores it before), or `destroyed`.
    pub key_state: &'static str,
    /// Whether the key's material is erased at the key server already.
    pub key_destroyed: bool,
    /// When the key server erases it, in seconds since the Unix epoch.
    pub key_destroy_at: Option<u64>,
    /// Whether the token's key has opened this volume, which proves that the token belongs to it.
    #[serde(skip)]
    pub is_proven: bool,
    /// In words, what was to be destroyed at the key server and still exists; empty where all of it
    /// was destroyed, or has a time at which it will be.
    pub not_done: Vec<String>,
    /// In words, what remains and was not to be destroyed.
    pub remains: Vec<String>,
}

impl Record {
    /// Does with the key and its header backup at the server what was asked for, and records what
    /// was done and what remains. `proven` says whether `keys` opens the volume; `keeps_key` leaves
    /// both. Refuses nothing: a failure is recorded in `not_done`.
    fn settle_key(
        &mut self,
        token: &StrongroomToken,
        keys: Option<&mut dyn Keys>,
        proven: Result<(), Error>,
        keeps_key: bool,
    ) {
        let key = &token.key_id;
        match (proven, keys) {
            (proven, keys) if keeps_key => {
                self.is_proven = keys.is_some() && proven.is_ok();
                self.remains.push(format!(
                    "the key {key} was left as it is, as was a header backup at the key server"
                ));
            }
            (Err(error), _) if error.code() == &code::SERVER_DESTROYED => {
                // No key opens the header backup any more.
                self.set_key_state(Fate::Destroyed);
                self.remains.push(format!(
                    "the key {key} was erased at the key server before; the header backup there was not touched"
                ));
            }
            (Err(error), _) => self.not_done.push(format!(
                "the key {key}, which a token on the disk names, and its header backup were not touched: that key was not seen to open this volume ({error})"
            )),
            (Ok(()), Some(keys)) => {
                self.is_proven = true;
                self.destroy_at_server(token, keys);
            }
            (Ok(()), None) => {}
        }
    }

    /// Removes the header backup at the key server and asks for the destruction of the key, and
    /// records what was done and what remains. A failure is recorded in `not_done`; a keyring keeps
    /// its key, which is recorded in `remains`.
    fn destroy_at_server(&mut self, token: &StrongroomToken, keys: &mut dyn Keys) {
        if keys.keeps_headers() {
            let removed = keys.escrow(&token.object_id, None);
            self.escrow_removed = Some(removed.is_ok());
            if let Err(error) = removed {
                self.not_done
                    .push(format!("the header backup at the key server: {error}"));
            }
        }
        match keys.destroy(&token.key_id) {
            // A keyring destroys no key, which is not a failure; a key server that keeps one has
            // refused.
            Ok(Destruction { fate, left }) if fate == Fate::Kept && keys.keeps_headers() => {
                self.not_done.push(left);
            }
            Ok(Destruction { fate, left }) => {
                self.set_key_state(fate);
                self.remains.push(left);
            }
            Err(error) => self
                .not_done
                .push(format!("the key {}: {error}", token.key_id)),
        }
    }

    /// Records the state of the key.
    fn set_key_state(&mut self, fate: Fate) {
        (self.key_state, self.key_destroy_at) = match fate {
            Fate::Kept => ("kept", None),
            Fate::Pending(at) => ("destroy-pending", at),
            Fate::Destroyed => ("destroyed", None),
        };
        self.key_destroyed = fate == Fate::Destroyed;
    }
}

/// A volume that is to be destroyed.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// The device or file.
    pub path: &'a Path,
    /// The UUID that the user has confirmed.
    pub confirmed: &'a str,
    /// Whether the key and the header backup at the key server stay.
    pub keeps_key: bool,
}

/// Destroys the volume as [`shred`], and reports that to the key server when the token's key has
/// opened the volume. `keys` opens the source of the key that the token names. A report that fails
/// is a note.
///
/// # Errors
/// SR-8320 when the device is in use, SR-8322 when it is no LUKS2 volume, SR-8359 for another UUID,
/// SR-8362 when other objects need the key; SR-8324 or SR-5001 when destroying fails; what `keys`
/// reports, unless `keeps_key` is set.
pub fn shred_and_report<E: From<Error>>(
    request: Request<'_>,
    keys: impl FnOnce(Provider) -> Result<Box<dyn Keys>, E>,
    notices: &dyn Notices,
) -> Result<Record, E> {
    let (path, confirmed) = (request.path, request.confirmed);
    let mut volume = Volume::open_to_change(path)?;
    check_confirmed(path, &volume.uuid()?, confirmed)?;
    let metadata = volume.metadata()?;
    let token = metadata.strongroom_token().ok().flatten();
    let segment = first_segment(&metadata).ok();
    let cipher = segment.and_then(Segment::cipher).unwrap_or_default();
    drop(volume);
    let keys = token.as_ref().map(|(_, token)| keys(token.provider));
    let mut keys = match request.keeps_key {
        true => keys.and_then(Result::ok),
        false => keys.transpose()?,
    };
    let record = match keys.as_mut() {
        Some(keys) => shred(request, Some(keys.as_mut()), notices)?,
        None => shred(request, None, notices)?,
    };
    if let (true, Some((_, token)), Some(keys)) = (record.is_proven, &token, keys.as_mut()) {
        let reported = report_as(path, keys.as_mut(), (token, cipher), Change::Shredded);
        note_unreported(reported, notices);
    }
    Ok(record)
}

/// Refuses a volume with another UUID than the one that the user has confirmed: SR-8359.
fn check_confirmed(path: &Path, uuid: &str, confirmed: &str) -> Result<(), Error> {
    if uuid.eq_ignore_ascii_case(confirmed) {
        return Ok(());
    }
    let detail = format!("{}: its UUID is {uuid}", path.display());
    Err(Error::new(&code::VOLUME_CONFIRM, detail))
}

/// Destroys the volume of the request, when its UUID is the one that was confirmed: the passphrase
/// that is kept of it, key and header backup at the key server (not with `keeps_key`), all key
/// slots, then header and key slot areas, which are overwritten with random bytes. `keys` is the
/// source of its key, which is destroyed only when it opens the volume. A kept passphrase that
/// cannot be removed is a warning.
///
/// # Errors
/// SR-8320 when the device is in use; SR-8322 when it is no LUKS2 volume; SR-8359 for another UUID;
/// SR-8362 when other objects need the key; nothing was changed after any of these. SR-8324 when
/// libcryptsetup fails; SR-5001 when the system reports an error. A failure of the key server is
/// none of this function: it is in `not_done` of the record, and the volume is destroyed
/// nevertheless.
pub fn shred(
    request: Request<'_>,
    mut keys: Option<&mut dyn Keys>,
    notices: &dyn Notices,
) -> Result<Record, Error> {
    let Request {
        path,
        confirmed,
        keeps_key,
    } = request;
    check_unused(path)?;
    let device = open_exclusively(path, true)?;
    let mut volume = Volume::on_open_file(&device, path)?;
    let uuid = volume.uuid()?;
    check_confirmed(path, &uuid, confirmed)?;
    let metadata = volume.metadata()?;
    let token = metadata
        .strongroom_token()
        .ok()
        .flatten()
        .map(|(_, token)| token);
    let mut record = Record {
        path: path.display().to_string(),
        uuid,
        object_id: token.as_ref().map(|token| hex(&token.object_id)),
        header_sha256: hex(&sha256(&[&escrow::read_header(&mut volume)?])),
        slots_destroyed: Vec::new(),
        overwritten_bytes: 0,
        escrow_removed: None,
        key_state: "kept",
        key_destroyed: false,
        key_destroy_at: None,
        is_proven: false,
        not_done: Vec::new(),
        remains: Vec::new(),
    };
    let proven = match (&token, keys.as_mut()) {
        (Some(token), Some(keys)) => check_key_opens(&mut volume, token, &mut **keys),
        _ => Ok(()),
    };
    if let (Some(token), Some(keys), Ok(()), false) = (&token, keys.as_mut(), &proven, keeps_key) {
        check_not_shared(token, &mut **keys)?;
    }
    // Nothing is refused from here on. What is kept opens the volume: it goes first.
    if let Some(token) = &token {
        forget(token, notices);
        record.settle_key(token, keys, proven, keeps_key);
    }
    for slot in metadata.key_slots() {
        volume.remove_slot(slot)?;
        record.slots_destroyed.push(slot);
    }
    record.overwritten_bytes = volume.data_offset();
    drop(volume);
    overwrite_header(&device, record.overwritten_bytes).map_err(|error| io(path, error))?;
    record.remains.push("every backup of its header that was made with other means, with the keys that opened it then".to_owned());
    record.remains.push(
        "blocks that the device moved elsewhere before (flash memory), and snapshots below it"
            .to_owned(),
    );
    Ok(record)
}

/// Checks that the token's key opens the volume. A token is a hint, and an attacker with write
/// access to the disk can have named another volume's key: only a key that opens this volume is
/// destroyed with it.
///
/// # Errors
/// SR-2002 when it does not; what `keys` reports.
fn check_key_opens(
    volume: &mut Volume,
    token: &StrongroomToken,
    keys: &mut dyn Keys,
) -> Result<(), Error> {
    let secret = secret_of_token(keys, token)?;
    volume.try_by(By::Token, &secret).map(drop)
}

/// Refuses to destroy a key that other objects need: SR-8362. Succeeds when the server does not say
/// what needs the key; it does not destroy it then either.
fn check_not_shared(token: &StrongroomToken, keys: &mut dyn Keys) -> Result<(), Error> {
    let others = keys.others_that_need(&token.key_id, &token.object_id);
    let others = others.unwrap_or_default();
    if others.is_empty() {
        return Ok(());
    }
    let detail = format!("the key {} opens {} too", token.key_id, others.join(", "));
    Err(Error::new(&code::VOLUME_KEY_SHARED, detail))
}

/// Overwrites the first `len` bytes, header and key slots, with random bytes, and syncs. The
/// system's errors; a part may then be overwritten.
fn overwrite_header(device: &File, len: u64) -> std::io::Result<()> {
    overwrite(device, 0..len, &mut |_, _| true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    use strongroom_crypto::SecretKey;

    use crate::create::DATA_OFFSET;
    use crate::keys::Material;
    use crate::testing::{KEY, Told, made};
    use strongroom_luks2::Provider;

    /// A source of keys that, when it is asked to destroy one, swaps two files: as paths change
    /// when a disk is plugged in again.
    struct Meanwhile {
        from: PathBuf,
        to: PathBuf,
        other: PathBuf,
    }

    #[expect(clippy::disallowed_methods, reason = "files of a test")]
    impl Keys for Meanwhile {
        fn provider(&self) -> Provider {
            Provider::Keyring
        }
        fn fetch(&mut self, _: &str, _: Option<u32>) -> Result<Material, Error> {
            let key = SecretKey::take(&mut { KEY })?;
            Ok(Material { version: 1, key })
        }
        fn fetch_or_create(&mut self, name: &str) -> Result<Material, Error> {
            self.fetch(name, None)
        }
        fn rotate(&mut self, name: &str) -> Result<Material, Error> {
            self.fetch(name, None)
        }
        fn destroy(&mut self, _: &str) -> Result<Destruction, Error> {
            std::fs::rename(&self.from, &self.to).map_err(|error| io(&self.from, error))?;
            std::fs::rename(&self.other, &self.from).map_err(|error| io(&self.from, error))?;
            Ok(Destruction {
                fate: Fate::Kept,
                left: "nothing".to_owned(),
            })
        }
    }

    fn request<'a>(path: &'a Path, confirmed: &'a str) -> Request<'a> {
        Request {
            path,
            confirmed,
            keeps_key: false,
        }
    }

    #[test]
    fn what_was_confirmed_is_destroyed_though_its_path_leads_elsewhere_meanwhile() {
        let room = tempfile::tempdir().unwrap();
        let at = |name: &str| room.path().join(name);
        let (uuid, other) = (made(&at("v"), None), made(&at("other"), None));
        let untouched = std::fs::read(at("other")).unwrap();
        let mut keys = Meanwhile {
            from: at("v"),
            to: at("moved"),
            other: at("other"),
        };
        let (path, told) = (at("v"), Told::default());
        let record = shred(request(&path, &uuid), Some(&mut keys), &told).unwrap();
        assert_eq!(
            (record.uuid, record.path),
            (uuid, at("v").display().to_string())
        );
        assert_eq!(record.slots_destroyed, [0]);
        assert!(
            std::fs::read(at("v")).unwrap() == untouched,
            "another volume was changed"
        );
        assert_eq!(Volume::open(&at("v")).unwrap().uuid().unwrap(), other);
        let error = Volume::open(&at("moved")).err().unwrap();
        assert_eq!(error.code(), &code::VOLUME_NOT_LUKS);
        let destroyed = std::fs::read(at("moved")).unwrap();
        let begin = usize::try_from(DATA_OFFSET).unwrap();
        let zeros = destroyed[..begin].iter().filter(|byte| **byte == 0).count();
        assert!(zeros < begin / 128, "{zeros} zeros are left");
    }

    #[test]
    fn another_uuid_than_the_one_confirmed_is_refused() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("v");
        made(&path, None);
        let before = std::fs::read(&path).unwrap();
        let confirmed = "00000000-0000-4000-8000-000000000000";
        let told = Told::default();
        let error = shred(request(&path, confirmed), None, &told).unwrap_err();
        assert_eq!(error.code(), &code::VOLUME_CONFIRM);
        assert!(std::fs::read(&path).unwrap() == before);
    }
}
