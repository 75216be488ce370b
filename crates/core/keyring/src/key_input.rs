//! Key material from files and from environment variables.
//!
//! Invariants: K1, what is read goes straight into locked memory; K22, a key file that other users
//! may read is read, and remembered for a warning.
//!
//! Must not: tell what was read in an error.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use strongroom_crypto::{CryptoError, SecretBytes};
use strongroom_format::code;

use crate::error::Error;
use crate::material::interpret;
use crate::material_buffer::{MaterialBuffer, too_long};
use crate::opener::Opener;
use crate::storage::About;

/// Key files that were read and that other users may read.
static OPEN_FILES: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Returns the key files that other users may read too, of those that this process has read since
/// the last call, and forgets them. They are worth a warning, but are not refused, because a server
/// whose key file has had such a mode for years would no longer start.
#[must_use]
pub fn take_open_files() -> BTreeSet<PathBuf> {
    std::mem::take(&mut *OPEN_FILES.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Reads a key file of at most 64 KiB into locked memory. A regular file that other users may read
/// is read all the same, and remembered for [`take_open_files`].
///
/// # Errors
/// SR-2007 when it cannot be read or is a directory; SR-2011 when it is longer than 64 KiB; SR-5001
/// when there is no memory for keys.
pub fn key_file(path: &Path) -> Result<SecretBytes, Error> {
    let (key, about) = read_with_metadata(path)?;
    // Neither a pipe nor memory without a name, which nobody else can open.
    if about.is_file() && about.nlink() > 0 && About::from(&about).is_readable_by_others() {
        let mut open = OPEN_FILES.lock().unwrap_or_else(PoisonError::into_inner);
        open.insert(path.to_path_buf());
    }
    Ok(key)
}

/// Reads a file of at most 64 KiB into locked memory, and does not look at who may read it. Errors:
/// SR-2007 when it cannot be read or is a directory; SR-2011 when it is longer; SR-5001 when there
/// is no memory for keys.
pub(crate) fn read_file(path: &Path) -> Result<SecretBytes, Error> {
    read_with_metadata(path).map(|(bytes, _)| bytes)
}

/// Reads a file into locked memory, and returns it with the metadata of the open file. It may be a
/// pipe. Errors: SR-2007 when it cannot be read or is a directory; SR-2011 when it is longer than
/// 64 KiB; SR-5001 when there is no memory for keys.
fn read_with_metadata(path: &Path) -> Result<(SecretBytes, Metadata), Error> {
    let failed = |error| Error::caused(&code::KEY_FILE, path.display().to_string(), error);
    let file = File::open(path).map_err(failed)?;
    let about = file.metadata().map_err(failed)?;
    if about.is_dir() {
        let detail = format!("{} is a directory", path.display());
        return Err(Error::new(&code::KEY_FILE, detail));
    }
    let mut buffer = MaterialBuffer::new()?;
    // `File` does not buffer: the kernel writes into locked memory. Reading ends at the limit at
    // the latest.
    while buffer.read_from(&file).map_err(failed)? {
        if buffer.is_too_long() {
            return Err(too_long());
        }
    }
    Ok((buffer.finish()?, about))
}

/// Copies the value of an environment variable into locked memory; the variable stays set. Errors:
/// SR-2008 when there is no such variable; SR-2011 when the value is longer than 64 KiB; SR-5001
/// when there is no memory for keys.
pub(crate) fn from_env(variable: &str) -> Result<SecretBytes, Error> {
    let usable = !variable.is_empty() && !variable.contains(['=', '\0']);
    let value = usable.then(|| std::env::var_os(variable)).flatten();
    let mut bytes = value
        .map(OsString::into_vec)
        .ok_or_else(|| Error::new(&code::KEY_ENV, variable))?;
    SecretBytes::take(&mut bytes).map_err(not_taken)
}

/// Makes the error of bytes that could not be copied into locked memory: SR-2011 when they are too
/// many, SR-5001 when there is no memory for keys.
fn not_taken(error: CryptoError) -> Error {
    match error {
        CryptoError::TooLong => too_long(),
        other => other.into(),
    }
}

/// Makes an opener of an environment variable's value, by the rule of `material.rs`. Errors:
/// SR-2008 when there is no such variable; SR-2011, which then names the variable, when the value
/// is too long or malformed; SR-5001 when the system reports an error.
pub(crate) fn opener_from_env(variable: &str) -> Result<Opener, Error> {
    let opener = from_env(variable).and_then(|value| interpret(&value));
    opener.map_err(|error| malformed_in(&format!("env:{variable}"), error))
}

/// Makes an opener of a file's contents, read as by [`key_file`], by the rule of `material.rs`.
/// Errors: SR-2007 when it cannot be read; SR-2011, which then names the file, when the contents
/// are too long or malformed; SR-5001 when the system reports an error.
pub(crate) fn opener_from_file(path: &Path) -> Result<Opener, Error> {
    let opener = key_file(path).and_then(|contents| interpret(&contents));
    opener.map_err(|error| malformed_in(&format!("file:{}", path.display()), error))
}

/// Puts `source` in front of the detail of an SR-2011; returns any other error unchanged.
fn malformed_in(source: &str, error: Error) -> Error {
    match error.code() == &code::KEY_MALFORMED {
        true => error.about(source),
        false => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_too_long_is_called_malformed() {
        assert_eq!(not_taken(CryptoError::TooLong).code(), &code::KEY_MALFORMED);
        for error in [CryptoError::OutOfLockedMemory, CryptoError::OutOfMemory] {
            assert_eq!(not_taken(error).code(), &code::IO, "{error}");
        }
    }
}
