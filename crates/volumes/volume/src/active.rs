//! Volumes that the kernel maps (device-mapper): opened, closed, listed; encrypted swap.
//!
//! Invariants: V10, a volume's key reaches the kernel only from libcryptsetup, never through a
//! file; V11, the key of swap is random, is given to the kernel once, and exists nowhere else.
//!
//! Must not: decide where a key comes from. Everything here needs device-mapper; code that needs
//! none is in other modules.

use std::path::{Path, PathBuf};

use libcryptsetup_rs::consts::flags::{CryptActivate, CryptDeactivate};
use libcryptsetup_rs::consts::vals::{CryptStatusInfo, EncryptionFormat};
use libcryptsetup_rs::{CryptInit, CryptParamsPlain, CryptParamsPlainRef, Either};
use rustix::io::Errno;
use strongroom_crypto::SecretBytes;
use strongroom_format::code;
use strongroom_keyring::Error;

use crate::contents::{check_unused, contents};
use crate::device::{By, Volume};
use crate::error::{errno, failed, failed_as};
use crate::ffi::prepare;
use crate::reencrypt::check_library;
use crate::repair::{all_data_moved, finish};
use crate::secret::new_volume_key;

/// Where mappings appear.
const MAPPER: &str = "/dev/mapper";
/// Key of encrypted swap, in bytes: AES-256-XTS.
const SWAP_KEY_LEN: usize = 64;

/// A mapping of an encrypted device that exists.
#[derive(Clone, Debug)]
pub struct Mapping {
    /// Its name.
    pub name: String,
    /// Its path below /dev/mapper.
    pub path: PathBuf,
    /// The device that it is made of.
    pub device: PathBuf,
    /// As `aes-xts-plain64`.
    pub cipher: String,
    /// Length in bytes.
    pub len: u64,
    /// Whether it cannot be written to.
    pub read_only: bool,
    /// Whether it is in use: mounted, swapped to, or part of another mapping.
    pub busy: bool,
    /// Whether it is a LUKS2 volume.
    pub is_luks: bool,
}

/// Returns the path of the mapping with this name, whether or not it exists.
#[must_use]
pub fn path_of(name: &str) -> PathBuf {
    Path::new(MAPPER).join(name)
}

/// Returns a name for the mapping of the device or file at `path`: its name without its extension
/// and without characters other than ASCII letters, digits and `._-`, at most 47 characters. It may
/// be empty.
#[must_use]
pub fn name_for(path: &Path) -> String {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let fine = |c: &char| c.is_ascii_alphanumeric() || "._-".contains(*c);
    name.chars().filter(fine).take(47).collect()
}

/// Checks that a text can be the name of a mapping: 1 to 47 characters of `a-z A-Z 0-9 . _ -`, not
/// beginning with a full stop, and not `control`.
///
/// # Errors
/// SR-8337 when it cannot.
pub fn check_name(name: &str) -> Result<(), Error> {
    let fine = (1..=47).contains(&name.len())
        && !name.starts_with('.')
        && name != "control"
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
    if fine {
        Ok(())
    } else {
        Err(Error::new(&code::VOLUME_NAME, "mapping"))
    }
}

/// Maps the volume as `name`, with the secret of the token's key or of a person. A re-encryption
/// whose data have all moved is finished first, unless `read_only`. Returns the slot that the
/// secret opened.
///
/// # Errors
/// SR-2002 when it opens none; SR-8337 when the name is not valid or taken; SR-8340 for a cipher
/// that is not known to be safe, SR-8307 when trying a slot would cost too much; SR-8323 when the
/// token's slots are to be tried and it names none; SR-8327 without device-mapper; SR-8329 for a
/// volume under re-encryption, when libcryptsetup must not continue it; SR-8320 when the device is
/// in use; SR-8324 when libcryptsetup fails; SR-5001 when the system reports an error.
pub fn open(
    volume: &mut Volume,
    name: &str,
    (by, secret): (By, &SecretBytes),
    read_only: bool,
) -> Result<u32, Error> {
    check_name(name)?;
    check_kernel()?;
    let mut slots = volume.slots_to_try(by)?;
    let metadata = volume.metadata()?;
    if metadata.is_reencrypting() {
        // libcryptsetup continues by what the header says of the re-encryption, and an old version
        // believes it even when it is forged (V16).
        check_library()?;
        if !read_only && all_data_moved(&metadata) {
            // In this state perhaps nothing else opens the volume: see `repair`.
            finish(volume, secret, false)?;
            slots = volume.slots_to_try(by)?;
        }
    }
    let mut opened = Err(Error::new(&code::WRONG_KEY, name));
    for slot in slots {
        let flags = if read_only {
            CryptActivate::READONLY
        } else {
            CryptActivate::empty()
        };
        let mut handle = volume.device.activate_handle();
        let activated = handle.activate_by_passphrase(Some(name), slot, secret.as_slice(), flags);
        opened = activated.map_err(|error| match errno(&error) {
            Some(Errno::EXIST) => failed_as(&code::VOLUME_NAME, format!("{name} is taken"), &error),
            Some(Errno::NOENT | Errno::PERM) => volume.passphrase_error(&error),
            _ => volume.failed(name, &error),
        });
        match &opened {
            Err(error) if error.code() == &code::WRONG_KEY => {}
            _ => break,
        }
    }
    opened
}

/// Closes the mapping `name`.
///
/// # Errors
/// SR-8320 when somebody uses it; SR-1006 when there is none; SR-8337 when the name is not valid.
pub fn close(name: &str) -> Result<(), Error> {
    check_name(name)?;
    prepare();
    let absent = || {
        let path = path_of(name);
        let detail = format!(
            "{}: nothing is open under that name; `strongroom volume list` shows the names",
            path.display()
        );
        Error::new(&code::NOT_FOUND, detail)
    };
    let mut device =
        CryptInit::init_by_name_and_header(name, None).map_err(|error| match errno(&error) {
            Some(Errno::NODEV | Errno::NOENT | Errno::NOTSUP) => absent(),
            _ => failed(name, &error),
        })?;
    let closed = device
        .activate_handle()
        .deactivate(name, CryptDeactivate::empty());
    closed.map_err(|error| match errno(&error) {
        Some(Errno::NODEV) => absent(),
        _ => failed(name, &error),
    })
}

/// Returns the mapping `name`. `None` when there is none, or none of a kind that libcryptsetup
/// knows.
#[must_use]
pub fn mapping(name: &str) -> Option<Mapping> {
    prepare();
    let mut device = CryptInit::init_by_name_and_header(name, None).ok()?;
    let state = libcryptsetup_rs::status(Some(&mut device), name).ok()?;
    let below = device.status_handle().get_device_path().ok()?.to_owned();
    let cipher = device.status_handle().get_cipher().unwrap_or_default();
    let mode = device.status_handle().get_cipher_mode().unwrap_or_default();
    let kind = device.format_handle().get_type().ok();
    let about = device.runtime_handle(name).get_active_device().ok()?;
    let found = Mapping {
        name: name.to_owned(),
        path: path_of(name),
        device: below,
        cipher: format!("{cipher}-{mode}"),
        len: about.size * 512,
        read_only: about.flags.contains(CryptActivate::READONLY),
        busy: state == CryptStatusInfo::Busy,
        is_luks: kind == Some(EncryptionFormat::Luks2),
    };
    drop(crate::ffi::take_messages());
    Some(found)
}

/// Returns all mappings of encrypted devices, sorted by name.
#[must_use]
pub fn mappings() -> Vec<Mapping> {
    let Ok(entries) = std::fs::read_dir(MAPPER) else {
        return Vec::new();
    };
    let names = entries.flatten().map(|entry| entry.file_name());
    let mut names: Vec<String> = names
        .filter_map(|name| name.into_string().ok())
        .filter(|name| name != "control")
        .collect();
    names.sort();
    names.iter().filter_map(|name| mapping(name)).collect()
}

/// Returns the mapping of the volume on `device`. `None` when it is not open.
#[must_use]
pub fn mapping_of(device: &Path) -> Option<Mapping> {
    use std::os::unix::fs::MetadataExt as _;
    let wanted = std::fs::metadata(device).ok()?;
    mappings().into_iter().find(|mapping| {
        std::fs::metadata(&mapping.device).is_ok_and(|there| {
            there.rdev() == wanted.rdev() && (wanted.rdev() != 0 || there.ino() == wanted.ino())
        })
    })
}

/// Returns the name of the mapping of the volume on `path`, `None` when it is closed. Its state
/// must be as the caller says: open (`online`) or closed.
///
/// # Errors
/// SR-8320 for a volume that is open, and `online` is false; SR-1001 for one that is closed, and
/// `online` is true.
pub fn name_of_open(path: &Path, online: bool) -> Result<Option<String>, Error> {
    match (mapping_of(path), online) {
        (Some(mapping), true) => Ok(Some(mapping.name)),
        (None, false) => Ok(None),
        (Some(mapping), false) => {
            let detail = format!("it is open as {}: close it, or give --online", mapping.name);
            Err(Error::new(&code::VOLUME_IN_USE, detail))
        }
        (None, true) => {
            let detail = "--online: the volume is not open";
            Err(Error::new(&code::USAGE, detail))
        }
    }
}

/// Returns a name for the mapping of a swap area that is made of its device, so that several areas
/// have different names: `swap-` and the last part of the path, or a digest of the path where that
/// is no valid name.
#[must_use]
pub fn swap_name(device: &Path) -> String {
    let last = device.file_name().unwrap_or_default().to_string_lossy();
    let name = format!("swap-{last}");
    if check_name(&name).is_ok() && !last.is_empty() {
        return name;
    }
    let digest = strongroom_crypto::sha256(&[device.as_os_str().as_encoded_bytes()]);
    let digest = strongroom_format::hex::hex(digest.get(..8).unwrap_or_default());
    format!("swap-{digest}")
}

/// Maps `device` as `name` under a random key that is not kept. The mapping reads as noise until
/// mkswap(8) has written to it.
///
/// # Errors
/// SR-8321 when the device holds anything but a swap area; SR-8320 when it is in use; SR-8327
/// without device-mapper; SR-8337 when the name is not valid or taken; SR-1006 when there is no
/// such file, SR-5001 when the system reports an error.
pub fn open_swap(device: &Path, name: &str) -> Result<(), Error> {
    check_name(name)?;
    let found = contents(device)?;
    if let Some(what) = &found.holds
        && !found.is_swap()
    {
        let detail = format!("{}: {what}", device.display());
        return Err(Error::new(&code::VOLUME_NOT_EMPTY, detail));
    }
    check_unused(device)?;
    check_kernel()?;
    prepare();
    let what = || device.display().to_string();
    let mut plain = CryptInit::init_with_data_device(Either::Left(device))
        .map_err(|error| failed(what(), &error))?;
    let params = CryptParamsPlain {
        // No hash: the key is used without derivation.
        hash: "plain".to_owned(),
        offset: 0,
        sector_size: 512,
        size: 0,
        skip: 0,
    };
    let mut params: CryptParamsPlainRef<'_> = (&params)
        .try_into()
        .map_err(|error| failed(what(), &error))?;
    plain
        .context_handle()
        .format(
            EncryptionFormat::Plain,
            ("aes", "xts-plain64"),
            None,
            Either::Right(SWAP_KEY_LEN),
            Some(&mut params),
        )
        .map_err(|error| failed(what(), &error))?;
    let key = new_volume_key(SWAP_KEY_LEN)?;
    let flags = CryptActivate::empty();
    let opened =
        plain
            .activate_handle()
            .activate_by_volume_key(Some(name), Some(key.as_slice()), flags);
    opened.map_err(|error| match errno(&error) {
        Some(Errno::EXIST) => failed_as(&code::VOLUME_NAME, format!("{name} is taken"), &error),
        _ => failed(what(), &error),
    })
}

/// Checks that the kernel has device-mapper; loads the module `dm-crypt` if it is not there.
///
/// # Errors
/// SR-8327 when it cannot be loaded.
pub fn check_kernel() -> Result<(), Error> {
    if Path::new(MAPPER).join("control").exists() {
        return Ok(());
    }
    // Without /dev/mapper/control device-mapper may still be there: /proc/misc lists it.
    let known = std::fs::read_to_string("/proc/misc").unwrap_or_default();
    if known.lines().any(|line| line.ends_with(" device-mapper")) {
        return Ok(());
    }
    let loaded = std::process::Command::new("modprobe")
        .args(["-q", "dm-crypt"])
        .stdout(std::process::Stdio::null())
        .status();
    if loaded.is_ok_and(|status| status.success()) {
        return Ok(());
    }
    Err(Error::new(&code::VOLUME_KERNEL, "device-mapper"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_swap_area_gets_a_name_of_its_own() {
        let by = |id: &str| swap_name(&Path::new("/dev/disk/by-partuuid").join(id));
        assert_eq!(swap_name(Path::new("/dev/vdc")), "swap-vdc");
        let long = by("0f0e0d0c-1111-4222-8333-444455556666");
        assert_eq!(long, "swap-0f0e0d0c-1111-4222-8333-444455556666");
        let names = [by("a b"), by(&"x".repeat(60)), by("a c"), long];
        for (index, name) in names.iter().enumerate() {
            check_name(name).unwrap();
            assert!(!names[..index].contains(name), "{name}");
        }
    }
}
