//! Directories that root makes, and what is at a path.
//!
//! Invariant: a directory gets its name when its owner and mode are right, and never takes the
//! place of anything.
//!
//! Must not: follow a link at the end of a path; be used where another user decides on the path.

use std::fs::{self, File, Metadata, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, RenameFlags, openat, renameat_with};
use strongroom_format::code;
use strongroom_keyring::{Error, durable};

/// The numbers of a user and of its group.
pub(crate) type UserAndGroup = (u32, u32);

/// Makes the directories of a path that are missing, which everybody may enter and only root may
/// change, whatever this process's umask is. SR-5001.
pub(crate) fn make_directories(path: &Path) -> Result<(), Error> {
    let missing = path.ancestors().take_while(|part| !part.is_dir());
    let missing: Vec<PathBuf> = missing.map(Path::to_path_buf).collect();
    missing
        .iter()
        .rev()
        .try_for_each(|part| make_directory(part, 0o755, None))
}

/// Makes a directory with this mode for its owner, durably, and gives it its name last. SR-5001
/// when something has the name, and for any other error of the system.
pub(crate) fn make_directory(
    path: &Path,
    mode: u32,
    owner: Option<UserAndGroup>,
) -> Result<(), Error> {
    let failed = |error: std::io::Error| Error::on_path(path, error);
    let random = strongroom_crypto::random16();
    let random = random.map_err(|error| failed(std::io::Error::other(error)))?;
    let temp = above(path).join(format!(".strongroom.{:032x}", u128::from_le_bytes(random)));
    fs::DirBuilder::new()
        .mode(0o700)
        .create(&temp)
        .map_err(failed)?;
    let made = || {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = File::from(openat(CWD, &temp, flags, Mode::empty())?);
        if let Some((user, group)) = owner {
            fchown(&directory, Some(user), Some(group))?;
        }
        directory.set_permissions(Permissions::from_mode(mode))?;
        directory.sync_all()?;
        renameat_with(CWD, &temp, CWD, path, RenameFlags::NOREPLACE)?;
        durable::sync_dir_of(path)
    };
    made().map_err(|error| {
        // The failure that brought us here is the one to report.
        drop(fs::remove_dir(&temp));
        failed(error)
    })
}

/// Returns the directory that a path is in.
pub(crate) fn above(path: &Path) -> &Path {
    path.parent().unwrap_or_else(|| Path::new("/"))
}

/// Returns what is at a path, of a link the link itself; `None` when nothing is. SR-5001.
pub(crate) fn about(path: &Path) -> Result<Option<Metadata>, Error> {
    match fs::symlink_metadata(path) {
        Ok(about) => Ok(Some(about)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::on_path(path, error)),
    }
}

/// Makes the error SR-8126 about a path.
pub(crate) fn in_the_way(path: &Path, why: &str) -> Error {
    Error::new(&code::COLUMN_SETUP, format!("{} {why}", path.display()))
}
