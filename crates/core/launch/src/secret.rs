//! What a program needs to find its key: paths as text, and a typed secret as a descriptor that it
//! inherits.
//!
//! Must not: give a secret a name in the file system.

use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{MemfdFlags, SealFlags};
use strongroom_format::code;
use strongroom_keyring::{Error, KeySource};

/// Makes the path of a file as source absolute, because the program that gets it may have another
/// working directory. Returns any other source unchanged.
///
/// # Errors
/// SR-5001 without a working directory.
pub fn with_absolute_path(key: KeySource) -> Result<KeySource, Error> {
    match key {
        KeySource::File(path) => {
            let absolute = std::path::absolute(&path).map_err(|e| Error::on_path(&path, e))?;
            Ok(KeySource::File(absolute))
        }
        other => Ok(other),
    }
}

/// Returns a path as text, for another program's environment.
///
/// # Errors
/// SR-2019 when it is not UTF-8.
pub fn path_text(path: &Path) -> Result<String, Error> {
    let refused = || Error::new(&code::KEY_OPTION, format!("{}: not UTF-8", path.display()));
    path.to_str().map(String::from).ok_or_else(refused)
}

/// Writes `secret` into memory of the kernel (`memfd`), and returns a descriptor that programs
/// inherit and from which they can read it; it has no name in a file system and cannot be changed.
/// It is positioned at its end.
///
/// # Errors
/// SR-5001 when the kernel refuses.
pub fn inheritable_secret(name: &str, secret: &[u8]) -> Result<OwnedFd, Error> {
    let failed = |error: std::io::Error| Error::io("memory for the passphrase", error);
    let flags = MemfdFlags::ALLOW_SEALING;
    let descriptor = rustix::fs::memfd_create(name, flags).map_err(|e| failed(e.into()))?;
    let mut file = std::fs::File::from(descriptor);
    file.write_all(secret).map_err(failed)?;
    let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&file, seals).map_err(|e| failed(e.into()))?;
    Ok(file.into())
}
