//! How much space a file system has left.

use std::path::Path;

use strongroom_keyring::Error;

/// The bytes that this process's user can still write to the file system of `path`.
///
/// # Errors
/// What the operating system reports.
pub(crate) fn free_bytes(path: &Path) -> Result<u64, Error> {
    let about = rustix::fs::statvfs(path)
        .map_err(|error| Error::io(path.display().to_string(), error.into()))?;
    Ok(about.f_bavail.saturating_mul(about.f_frsize))
}
