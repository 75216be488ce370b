//! The directories of a restore: the target, the directory beside it that is filled, and the free
//! space.
//!
//! Must not: write a file.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use strongroom_crypto::random16;
use strongroom_format::{code, hex};

use crate::mounts::mount_of;
use crate::{Error, Result};

/// Checks that the target is absent, or an empty directory that can be replaced. SR-7113 otherwise,
/// also for a mount point.
pub(crate) fn check_target(to: &Path) -> Result<()> {
    let shown = || to.display().to_string();
    let about = match fs::symlink_metadata(to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other.map_err(|error| Error::io(shown(), error))?,
    };
    let empty = about.is_dir() && {
        let entries = fs::read_dir(to).map_err(|error| Error::io(shown(), error))?;
        entries.take(1).count() == 0
    };
    if !empty {
        return Err(Error::new(&code::TARGET_NOT_EMPTY, shown()));
    }
    let parent = fs::metadata(parent_of(&absolute(to)?));
    let parent = parent.map_err(|error| Error::io(shown(), error))?;
    let mount = |path: &Path| {
        mount_of(path).map_err(|error| Error::io(path.display().to_string(), error.into()))
    };
    let above = parent_of(&absolute(to)?);
    if parent.dev() != about.dev() || mount(to)? != mount(&above)? {
        let detail = format!("{}: a mount point; name a directory below it", to.display());
        return Err(Error::new(&code::TARGET_NOT_EMPTY, detail));
    }
    Ok(())
}

/// Checks that `needed` bytes are free in the file systems of `places` together (SR-5001
/// otherwise); a place that does not exist counts as its nearest parent that does. It is not known
/// beforehand how the bytes are distributed, but more than all have together never fits.
pub(crate) fn check_space(places: impl Iterator<Item = PathBuf>, needed: u64) -> Result<()> {
    let mut free_of: BTreeMap<u64, (String, u64)> = BTreeMap::new();
    for place in places {
        let there = nearest(&place);
        let shown = there.display().to_string();
        let device = fs::metadata(&there).map_err(|error| Error::io(shown.as_str(), error))?;
        let about = rustix::fs::statvfs(&there);
        let about = about.map_err(|error| Error::io(shown.as_str(), error.into()))?;
        let free = about.f_bavail.saturating_mul(about.f_frsize);
        free_of.entry(device.dev()).or_insert((shown, free));
    }
    let free = free_of
        .values()
        .fold(0_u64, |sum, (_, free)| sum.saturating_add(*free));
    if free < needed {
        let shown: Vec<&str> = free_of.values().map(|(shown, _)| shown.as_str()).collect();
        let detail = format!(
            "{}: {free} bytes are free, {needed} are needed",
            shown.join(" and ")
        );
        return Err(Error::new(&code::IO, detail));
    }
    Ok(())
}

/// The place itself, if it is a directory, or the nearest parent directory that exists.
fn nearest(place: &Path) -> PathBuf {
    let there = place.ancestors().find(|path| path.is_dir());
    there.unwrap_or_else(|| Path::new("/")).to_path_buf()
}

/// A hidden path with a random name beside the target. Nothing is made. SR-7113 when the target has
/// no name.
pub(crate) fn partial_beside(to: &Path) -> Result<PathBuf> {
    let random = hex::hex(&random16()?);
    beside(&absolute(to)?, |name| {
        let shown: String = name.to_string_lossy().chars().take(48).collect();
        *name = OsString::from(format!(".{shown}.{random}.partial"));
    })
}

/// The path beside `to` whose name `rename` makes from its name. SR-7113 when `to` has no name,
/// such as `/`.
pub(crate) fn beside(to: &Path, rename: impl FnOnce(&mut OsString)) -> Result<PathBuf> {
    let name = to.file_name();
    let name = name.ok_or_else(|| Error::new(&code::TARGET_NOT_EMPTY, to.display().to_string()))?;
    let mut name = name.to_os_string();
    rename(&mut name);
    Ok(to.with_file_name(name))
}

/// Makes the path absolute, without following links or removing `..`. SR-5001 when the working
/// directory is not known.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|error| Error::io(path.display().to_string(), error))
}

/// Makes the path absolute, with `.` and `..` at its end resolved; a link at the end stays as it
/// is. SR-5001 when it cannot be resolved.
pub(crate) fn resolve_end(path: &Path) -> Result<PathBuf> {
    let path = absolute(path)?;
    if path.file_name().is_some() {
        return Ok(path);
    }
    fs::canonicalize(&path).map_err(|error| Error::io(path.display().to_string(), error))
}

/// The directory that a path is in; that of `/` is `/`.
pub(crate) fn parent_of(path: &Path) -> PathBuf {
    path.parent()
        .unwrap_or_else(|| Path::new("/"))
        .to_path_buf()
}

/// Gives the complete directory its name; nothing is synced. An empty directory there is replaced;
/// anything else there is an error, SR-5001 when the system reports an error.
pub(crate) fn move_into_place(partial: &Path, to: &Path) -> Result<()> {
    // A directory never replaces a directory that is not empty, nor anything else (rename(2)).
    rustix::fs::rename(partial, to)
        .map_err(|error| Error::io(to.display().to_string(), error.into()))
}
