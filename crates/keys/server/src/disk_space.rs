//! How much space a file system has left.

use std::path::Path;

use strongroom_keyring::Error;

/// Returns the bytes that an ordinary user can still write to the file system of `path`.
///
/// # Errors
/// SR-5001 when the file system cannot be examined, such as for a path that does not exist.
pub(crate) fn free_bytes(path: &Path) -> Result<u64, Error> {
    let about = rustix::fs::statvfs(path)
        .map_err(|error| Error::io(path.display().to_string(), error.into()))?;
    Ok(about.f_bavail.saturating_mul(about.f_frsize))
}
