//! Makes a volume.
//!
//! Invariants: V6, the key is in hand, and the header is complete and tried (every slot with its
//! passphrase, the token read back), before the first byte of the device changes. V7, the header is
//! made in memory and goes onto the device last: key slots, then the second header, then the first,
//! each durable before the next. Killed at any point, the device holds no LUKS2 header or a whole
//! one. A new file gets its name when it is complete.
//!
//! Must not: ask for anything; print a recovery key.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use libcryptsetup_rs::consts::flags::{CryptActivate, CryptDeactivate, CryptVolumeKey, CryptWipe};
use libcryptsetup_rs::consts::vals::{CryptWipePattern, EncryptionFormat};
use libcryptsetup_rs::{CryptDevice, CryptInit, CryptParamsLuks2, CryptParamsLuks2Ref, Either};
use rustix::fs::MemfdFlags;
use strongroom_crypto::{SecretBytes, random16};
use strongroom_format::code;
use strongroom_keyring::{Error, durable};

use crate::contents::{check_unused, contents, open_exclusively};
use crate::device::{Stretch, Volume, kdf};
use crate::error::{failed, io};
use crate::ffi::{Progress, on_progress, prepare};
use crate::keys::Keys;
use crate::secret::new_volume_key;
use strongroom_luks2::{StrongroomToken, recovery_token};

/// Where the data begins: what LUKS2 reserves for its headers and key slots.
pub const DATA_OFFSET: u64 = 16 << 20;
/// Offset of the secondary header, which is the length of each.
const HEADER_LEN: usize = 16 << 10;
/// Bytes that are zeroed at the end of a device that held something: second copies of partition
/// tables lie there.
const END_WIPED: u64 = 1 << 20;
/// Bytes that are overwritten at once.
const PIECE: usize = 1 << 20;
/// Bytes of the volume key that are for the authentication of sectors: HMAC-SHA256.
const HMAC_KEY_LEN: usize = 32;

/// The volume to make.
pub struct NewVolume<'a> {
    /// The device, or the file.
    pub path: &'a Path,
    /// Length of a new file to make, in bytes; `None` for a device or file that exists.
    pub size: Option<u64>,
    /// As `aes-xts-plain64`.
    pub cipher: &'a str,
    /// Bytes of the cipher's key.
    pub key_len: usize,
    /// Whether each sector is authenticated, with HMAC-SHA256.
    pub integrity: bool,
    /// The volume's label.
    pub label: Option<&'a str>,
    /// Bytes of a unit of encryption; `None` lets libcryptsetup choose by the device.
    pub sector_size: Option<u32>,
    /// Whether the present contents of the device may be destroyed.
    pub overwrite: bool,
    /// Whether the whole device is overwritten with random bytes first, so that none of its former
    /// contents can be read.
    pub wipe: bool,
}

/// The first openers of a new volume.
pub struct Openers<'a> {
    /// The token, without slots: they are filled in.
    pub token: &'a StrongroomToken,
    /// The passphrase of the token's slot.
    pub secret: &'a SecretBytes,
    /// The recovery key.
    pub recovery: Option<&'a SecretBytes>,
}

/// Returns the token of a volume that this version of the key opens, with a new random object id.
/// Its slots are not known yet. Writes nothing.
///
/// # Errors
/// SR-5001 when there is no memory, or the system has no random bytes.
pub fn new_token(keys: &dyn Keys, key_id: &str, version: u32) -> Result<StrongroomToken, Error> {
    Ok(StrongroomToken {
        slots: Vec::new(),
        object_id: random16()?,
        key_id: key_id.to_owned(),
        key_version: version,
        provider: keys.provider(),
        servers: keys.servers(),
    })
}

/// Checks everything that can be checked before a key is made: label, size, contents and use of the
/// device. Changes nothing.
///
/// # Errors
/// SR-8337 for the label; SR-1002 when a new file is wanted and something is at its path; SR-1006
/// when nothing is at the path of a device or file; SR-8320 when it is in use; SR-8321 when it is
/// not empty and may not be overwritten; SR-8322 when it is neither a device nor a file; SR-8326
/// for its size or the sector size; SR-5001 when the system reports an error.
pub fn check(new: &NewVolume<'_>) -> Result<(), Error> {
    if new.label.is_some_and(|label| !label_is_valid(label)) {
        return Err(Error::new(&code::VOLUME_NAME, "label"));
    }
    if let Some(size) = new.size {
        if std::fs::symlink_metadata(new.path).is_ok() {
            return Err(Error::new(&code::EXISTS, new.path.display().to_string()));
        }
        return check_len(new, size);
    }
    let found = contents(new.path).map_err(|error| match error.code() == &code::NOT_FOUND {
        true => Error::new(
            &code::NOT_FOUND,
            format!("{}; --size SIZE makes a new file", new.path.display()),
        ),
        false => error,
    })?;
    check_unused(new.path)?;
    check_len(new, found.len)?;
    match found.holds {
        Some(what) if !new.overwrite => {
            let detail = format!("{}: {what}", new.path.display());
            Err(Error::new(&code::VOLUME_NOT_EMPTY, detail))
        }
        _ => Ok(()),
    }
}

/// Makes the volume, and returns its UUID. `progress` gets the size and the offset of the wiping in
/// bytes, which an authenticated volume always needs; `false` ends it, and there is no volume then.
///
/// # Errors
/// As [`check`]; SR-8324 when libcryptsetup fails; SR-8327 for `integrity` without device-mapper;
/// SR-5001 when the system reports an error.
pub fn create(
    new: &NewVolume<'_>,
    openers: &Openers<'_>,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<String, Error> {
    check(new)?;
    let fresh = new
        .size
        .map(|size| UnpublishedFile::create(new.path, size))
        .transpose()?;
    let place = fresh.as_ref().map_or(new.path, |fresh| &fresh.temp);
    let header = MemoryFile::with_len(DATA_OFFSET)?;
    let uuid = format(new, openers, &header, place, progress)?;
    verify_openers(openers, &header, place)?;
    write_header(&header, place, new, progress)?;
    if let Some(fresh) = fresh {
        fresh.publish()?;
    }
    Ok(uuid)
}

/// Formats the header in memory, adds every slot and token, and returns the UUID. With `integrity`
/// it also writes every sector of `place`; `progress` gets the size and the offset reached, in
/// bytes, and ends that by returning false (SR-8324).
///
/// # Errors
/// SR-8324 when libcryptsetup fails; SR-8327 for `integrity` without device-mapper; SR-5001 when
/// the system reports an error.
fn format(
    new: &NewVolume<'_>,
    openers: &Openers<'_>,
    header: &MemoryFile,
    place: &Path,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<String, Error> {
    prepare();
    let what = || place.display().to_string();
    let places = Either::Right((header.path.as_path(), place));
    let mut device =
        CryptInit::init_with_data_device(places).map_err(|error| failed(what(), &error))?;
    device
        .set_data_offset(DATA_OFFSET / 512)
        .map_err(|error| failed(what(), &error))?;
    let len = new.key_len + if new.integrity { HMAC_KEY_LEN } else { 0 };
    let key = new_volume_key(len)?;
    let (cipher, mode) = new.cipher.split_once('-').unwrap_or((new.cipher, ""));
    let params = CryptParamsLuks2 {
        pbkdf: Some(kdf(Stretch::Machine)),
        integrity: new.integrity.then(|| "hmac(sha256)".to_owned()),
        integrity_params: None,
        data_alignment: 0,
        data_device: Some(place.to_owned()),
        sector_size: new.sector_size.unwrap_or(0),
        label: new.label.map(str::to_owned),
        subsystem: None,
    };
    let mut params: CryptParamsLuks2Ref<'_> = (&params)
        .try_into()
        .map_err(|error| failed(what(), &error))?;
    device
        .context_handle()
        .format(
            EncryptionFormat::Luks2,
            (cipher, mode),
            None,
            Either::Left(key.as_slice()),
            Some(&mut params),
        )
        .map_err(|error| failed(what(), &error))?;
    if new.integrity {
        if new.overwrite {
            // Before the tags are written, which go to the device's end: a sector whose tag is
            // overwritten with zeros cannot be read.
            let end = open_exclusively(place, true)?;
            wipe_end(&end, contents(place)?.len).map_err(|error| io(place, error))?;
        }
        wipe(&mut device, &key, place, progress)?;
    }
    drop(device);
    add_openers(openers, header, place, &key)
}

/// Adds the key slots and their tokens to the header in memory. `place` is the device or file for
/// the volume's data. Returns the volume's UUID.
///
/// # Errors
/// SR-1006 when nothing is at `place`; SR-8324 when libcryptsetup fails.
fn add_openers(
    openers: &Openers<'_>,
    header: &MemoryFile,
    place: &Path,
    key: &SecretBytes,
) -> Result<String, Error> {
    let mut volume = Volume::detached(&header.path, place)?;
    let bound = CryptVolumeKey::empty();
    let slot = volume.add_key(Some(key), openers.secret, Stretch::Machine, bound)?;
    let mut token = openers.token.clone();
    token.slots = vec![slot];
    volume.set_token(None, &token.json())?;
    if let Some(recovery) = openers.recovery {
        let bound = CryptVolumeKey::empty();
        let slot = volume.add_key(Some(key), recovery, Stretch::Person, bound)?;
        volume.set_token(None, &recovery_token(&[slot]))?;
    }
    volume.uuid()
}

/// Reads the header in memory again, tries the token's passphrase on its slots, and compares its
/// token with that of `openers`. `place` is the device or file for the volume's data. Writes
/// nothing.
///
/// # Errors
/// SR-2002 when the passphrase opens no slot; SR-9001 when the token differs; SR-8323 when there
/// is none; SR-1006 when nothing is at `place`; SR-8324 when libcryptsetup fails.
fn verify_openers(openers: &Openers<'_>, header: &MemoryFile, place: &Path) -> Result<(), Error> {
    let mut volume = Volume::detached(&header.path, place)?;
    let slot = volume.try_secret(None, openers.secret)?;
    let mut token = openers.token.clone();
    token.slots = vec![slot];
    if volume.token()? != token {
        return Err(Error::new(
            &code::BUG,
            "the token differs when it is read back",
        ));
    }
    Ok(())
}

/// Writes zeros to every sector through a temporary mapping, which is closed at the end: a sector
/// of an authenticated volume cannot be read before it was written once, with its tag. `progress`
/// gets the size and what is done of it, in bytes. `place` is named in errors.
///
/// # Errors
/// SR-8327 without device-mapper; SR-8320 when the device is in use; SR-5001 when the system
/// reports an error, such as a sector that cannot be written; SR-8324 when libcryptsetup fails
/// otherwise, or `progress` has ended it by returning false.
fn wipe(
    device: &mut CryptDevice,
    key: &SecretBytes,
    place: &Path,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<(), Error> {
    let what = || format!("{}: writing the tags", place.display());
    let random = random16()?;
    let name = format!("strongroom-new-{:08x}", u128::from_le_bytes(random) >> 96);
    let flags = CryptActivate::PRIVATE | CryptActivate::NO_JOURNAL;
    device
        .activate_handle()
        .activate_by_volume_key(Some(&name), Some(key.as_slice()), flags)
        .map_err(|error| failed(what(), &error))?;
    let mapped = PathBuf::from("/dev/mapper").join(&name);
    let mut told = Progress(progress);
    let wiped = device.wipe_handle().wipe(
        &mapped,
        CryptWipePattern::Zero,
        0,
        0,
        1 << 20,
        CryptWipe::empty(),
        Some(on_progress),
        Some(&mut told),
    );
    let closed = device
        .activate_handle()
        .deactivate(&name, CryptDeactivate::empty());
    wiped.map_err(|error| failed(what(), &error))?;
    closed.map_err(|error| failed(what(), &error))
}

/// Writes the header onto the device, its beginning last, each part durable before the next, so
/// that an interrupted run leaves no volume. Before that it overwrites the places of both headers
/// with zeros, and, unless the volume is authenticated, what `new` asks for: the whole device with
/// random bytes, or its end with zeros.
///
/// # Errors
/// SR-8320 when the device is in use; SR-5001 when the system reports an error, or `progress` has
/// ended the wiping by returning false.
fn write_header(
    header: &MemoryFile,
    place: &Path,
    new: &NewVolume<'_>,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<(), Error> {
    let failed = |error| io(place, error);
    let device = open_exclusively(place, true)?;
    let len = contents(place)?.len;
    let offset = usize::try_from(DATA_OFFSET).unwrap_or_default();
    let mut bytes = vec![0; offset];
    header.file.read_exact_at(&mut bytes, 0).map_err(failed)?;
    let (first, rest) = bytes.split_at(HEADER_LEN);
    let (second, slots) = rest.split_at(HEADER_LEN);
    // The former contents must not look like a volume while they are written over.
    let zeros = vec![0; 2 * HEADER_LEN];
    write(&device, &zeros, 0).map_err(failed)?;
    if new.wipe && !new.integrity {
        // The tags of an authenticated volume, and its sectors, are written already.
        overwrite(&device, 2 * HEADER_LEN as u64..len, progress).map_err(failed)?;
    } else if new.overwrite && !new.integrity {
        wipe_end(&device, len).map_err(failed)?;
    }
    write(&device, slots, 2 * HEADER_LEN as u64).map_err(failed)?;
    write(&device, second, HEADER_LEN as u64).map_err(failed)?;
    write(&device, first, 0).map_err(failed)
}

/// Writes zeros over the last MiB of a device of `len` bytes, and syncs; does nothing if it has no
/// room for that after the header. The system's errors.
fn wipe_end(device: &File, len: u64) -> std::io::Result<()> {
    if len < DATA_OFFSET + END_WIPED {
        return Ok(());
    }
    let zeros = vec![0; usize::try_from(END_WIPED).unwrap_or_default()];
    write(device, &zeros, len - END_WIPED)
}

/// Writes random bytes over all of `range`, and syncs: afterwards sectors that the volume has not
/// written look like those that it has. `progress` gets the end of the range and the offset
/// reached.
///
/// # Errors
/// The system's; `Interrupted` when `progress` has returned false.
pub(crate) fn overwrite(
    device: &File,
    range: std::ops::Range<u64>,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> std::io::Result<()> {
    let mut random = vec![0; PIECE];
    let mut at = range.start;
    while at < range.end {
        strongroom_crypto::fill_random(&mut random).map_err(std::io::Error::other)?;
        let left = usize::try_from(range.end - at).unwrap_or(PIECE).min(PIECE);
        device.write_all_at(random.get(..left).unwrap_or_default(), at)?;
        at += left as u64;
        if !progress(range.end, at) {
            return Err(std::io::ErrorKind::Interrupted.into());
        }
    }
    device.sync_all()
}

/// Writes all of `bytes` at offset `at`, and syncs.
fn write(device: &File, bytes: &[u8], at: u64) -> std::io::Result<()> {
    device.write_all_at(bytes, at)?;
    device.sync_all()
}

/// Checks that `len` bytes are a whole number of sectors and more than the header needs. SR-8326
/// when they are not, or for another sector size than 512, 1024, 2048 or 4096.
fn check_len(new: &NewVolume<'_>, len: u64) -> Result<(), Error> {
    let unit = u64::from(new.sector_size.unwrap_or(512));
    let valid = [512, 1024, 2048, 4096].contains(&unit) && len.is_multiple_of(unit);
    if !valid || len <= DATA_OFFSET {
        let detail = format!("{}: {len} bytes, sectors of {unit}", new.path.display());
        return Err(Error::new(&code::VOLUME_SIZE, detail));
    }
    Ok(())
}

/// Returns whether a label may be used: 1 to 47 characters of `a-z A-Z 0-9 . _ -`. Labels are shown
/// on terminals and used in file names.
fn label_is_valid(label: &str) -> bool {
    (1..=47).contains(&label.len())
        && label
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}

/// A file in memory (memfd) that has a path as long as it is open. Nothing of it is left when the
/// process is killed.
pub(crate) struct MemoryFile {
    pub(crate) file: File,
    pub(crate) path: PathBuf,
}

impl MemoryFile {
    /// Makes a file of `len` zero bytes in memory. SR-5001 when that fails.
    pub(crate) fn with_len(len: u64) -> Result<Self, Error> {
        let made = rustix::fs::memfd_create("strongroom-header", MemfdFlags::CLOEXEC);
        let failed = |error| Error::io("memory for a header", error);
        let file = File::from(made.map_err(|error| failed(error.into()))?);
        file.set_len(len).map_err(failed)?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        Ok(Self { file, path })
    }
}

/// A new file under a temporary name, until it is complete.
struct UnpublishedFile<'a> {
    temp: PathBuf,
    target: &'a Path,
}

impl<'a> UnpublishedFile<'a> {
    /// Makes a file of `size` zero bytes beside `target`, under a temporary name and readable by
    /// its owner only. It is removed when the result is dropped before `publish`. SR-5001 when the
    /// system reports an error.
    fn create(target: &'a Path, size: u64) -> Result<Self, Error> {
        use std::os::unix::fs::OpenOptionsExt as _;
        let random = u128::from_le_bytes(random16()?);
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        let name: String = name.chars().take(48).collect();
        let temp = target.with_file_name(format!(".{name}.{random:032x}.tmp"));
        let mut options = std::fs::OpenOptions::new();
        let made = options.write(true).create_new(true).mode(0o600).open(&temp);
        let file = made.map_err(|error| io(&temp, error))?;
        let fresh = Self { temp, target };
        file.set_len(size).map_err(|error| io(&fresh.temp, error))?;
        Ok(fresh)
    }

    /// Gives the file its name, durably. SR-1002 when something has that name by now; SR-5001 when
    /// the system reports an error.
    fn publish(self) -> Result<(), Error> {
        durable::publish(&self.temp, self.target).map_err(|error| {
            if error.kind() == std::io::ErrorKind::AlreadyExists {
                Error::new(&code::EXISTS, self.target.display().to_string())
            } else {
                io(self.target, error)
            }
        })
    }
}

impl Drop for UnpublishedFile<'_> {
    /// Removes the file under its temporary name. After `publish` there is none.
    fn drop(&mut self) {
        // After `publish` there is no file of this name any more.
        drop(std::fs::remove_file(&self.temp));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{KEY, made_as, new, secret};

    /// Makes a volume over the contents of `path`.
    fn over(
        path: &Path,
        wipe: bool,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<String, Error> {
        let over = NewVolume {
            size: None,
            overwrite: true,
            wipe,
            ..new(path)
        };
        made_as(&over, None, progress)
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "files of a test")]
    fn wiping_leaves_nothing_of_what_was_there_and_is_stopped_without_a_volume() {
        let old: Vec<u8> = KEY.repeat((20 << 20) / KEY.len());
        let count = |bytes: &[u8]| {
            let blocks = bytes.chunks_exact(KEY.len());
            blocks.filter(|block| *block == KEY).count()
        };
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("v");
        std::fs::write(&path, &old).unwrap();
        over(&path, false, &mut |_, _| true).unwrap();
        // It is this that is said when it is not wiped.
        assert!(count(&std::fs::read(&path).unwrap()) > 1000);
        std::fs::write(&path, &old).unwrap();
        let stopped = over(&path, true, &mut |_, at| at < 10 << 20);
        assert!(stopped.is_err() && Volume::open(&path).is_err());
        let mut last = (0, 0);
        over(&path, true, &mut |size, at| {
            last = (size, at);
            true
        })
        .unwrap();
        assert_eq!(last, (20 << 20, 20 << 20));
        assert_eq!(count(&std::fs::read(&path).unwrap()), 0);
        assert_eq!(
            Volume::open(&path)
                .unwrap()
                .try_secret(None, &secret())
                .unwrap(),
            0
        );
    }
}
