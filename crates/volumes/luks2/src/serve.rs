//! From a volume's file to its mounted data: checked, locked, opened with a key, mounted.
//!
//! Must not: write to a volume whose header is not whole; go on when a volume is in use.

use std::path::Path;

use strongroom_crypto::SecretBytes;

use crate::attach::{check_mountpoint, check_not_active, open_locked};
use crate::error::LuksError;
use crate::fuse::{MountOptions, Mounted};
use crate::header::{Found, read};
use crate::unlock::{Slots, unlock};
use crate::volume::Volume;

/// Most threads that serve one volume, and the fewest.
const THREADS_MAX: usize = 8;
const THREADS_MIN: usize = 2;

/// What is mounted, and how.
pub struct Request<'a> {
    /// The volume: a path without symbolic links.
    pub path: &'a Path,
    /// The directory.
    pub mountpoint: &'a Path,
    /// Whether writes are refused; several may read one volume.
    pub read_only: bool,
    /// Whether users other than this one may use it.
    pub allow_other: bool,
}

/// Locks the volume, reads its header, opens it with the passphrase that `secret` returns, and
/// mounts its data through FUSE, as the one file `volume` in the directory. It does not mount the
/// file system in that file. Requests wait until [`Mounted::serve`] is called; the lock is held
/// until that returns, or the result is dropped.
///
/// `secret` returns the passphrase for the header that was found, and the slots to try it on.
/// `warned` is called before that when not both copies of the header are whole and alike, and
/// afterwards when the volume is read-only although writes were wanted.
///
/// # Errors
/// [`LuksError::Mountpoint`] when the mount point is no empty directory; [`LuksError::Io`] when the
/// volume cannot be opened or read; [`LuksError::InUse`] when it is in use; of the header
/// [`LuksError::NotLuks`], [`LuksError::Luks1`], [`LuksError::Damaged`], [`LuksError::Forged`],
/// [`LuksError::Reencrypting`], [`LuksError::Unsupported`]; [`LuksError::WrongKey`] when no slot
/// opens, [`LuksError::Cost`] when one is too costly to be tried; [`LuksError::Crypto`];
/// [`LuksError::Fuse`] when mounting fails; what `secret` reports.
pub fn mount<E: From<LuksError>>(
    request: &Request<'_>,
    secret: impl FnOnce(&Found) -> Result<(SecretBytes, Slots), E>,
    warned: &mut dyn FnMut(Warning),
) -> Result<Mounted, E> {
    check_mountpoint(request.mountpoint)?;
    let file = open_locked(request.path, request.read_only)?;
    let found = read(&file)?;
    check_not_active(&found.header.binary.uuid)?;
    if let Some(text) = found.warning() {
        warned(Warning::OneCopy(text));
    }
    let (passphrase, slots) = secret(&found)?;
    let key = unlock(&file, &found.header, &passphrase, &slots)?;
    drop(passphrase);
    let volume = Volume::open(file, &found, &key, request.read_only)?;
    drop(key);
    if volume.is_read_only() && !request.read_only {
        warned(Warning::ReadOnly);
    }
    let threads = std::thread::available_parallelism();
    let options = MountOptions {
        source: request.path.display().to_string(),
        threads: threads.map_or(THREADS_MIN, |count| {
            count.get().clamp(THREADS_MIN, THREADS_MAX)
        }),
        allow_other: request.allow_other,
    };
    Ok(Mounted::mount(volume, request.mountpoint, &options)?)
}

/// What the user is told, although the volume is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// Not both copies of the header are whole and alike, in words.
    OneCopy(String),
    /// The volume refuses writes.
    ReadOnly,
}
