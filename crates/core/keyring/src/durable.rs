//! Durable files: the only place that renames or replaces a file. It reaches the disk through
//! [`crate::storage`].
//!
//! Invariant K9: under `path` there is, at any time and after any crash, the whole old file or the
//! whole new one.
//!
//! Order: write to a temporary file in the same directory, set its mode, fsync it,
//! rename, fsync the directory. When the last step fails, the new file is in place but may not
//! survive a power cut: the call returns an error, and its caller must not go on as if the file
//! were durable.
//!
//! Must not: know what is in the files. A temporary file is private (0600) until it is complete,
//! and is removed on every failure.

use std::io;
use std::path::{Path, PathBuf};

use crate::storage;

/// Replaces `path`, or creates it, with `bytes` and permission bits `mode`, durably and in one
/// step.
///
/// # Errors
/// The system's error; `path` is then as it was, except after a failed fsync of the directory, when
/// the new file is in place but may not survive a power cut.
pub fn replace(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    replace_owned(path, bytes, mode, None)
}

/// As [`replace`]: replaces `path`, or creates it, durably and in one step. Gives the file to the
/// user and group `owner` before it gets its name: afterwards the name could lead to another file.
///
/// # Errors
/// The system's error; `path` is then as it was, except after a failed fsync of the directory, when
/// the new file is in place but may not survive a power cut.
pub fn replace_owned(
    path: &Path,
    bytes: &[u8],
    mode: u32,
    owner: Option<(u32, u32)>,
) -> io::Result<()> {
    let temp = Temp::written(path, bytes, mode, owner)?;
    storage::of(path).rename(&temp.0, path)?;
    temp.moved();
    sync_dir_of(path)
}

/// Creates `path` durably with `bytes` and permission bits `mode`; never overwrites.
///
/// # Errors
/// `AlreadyExists` when there is a file (or anything else) at `path`, which is then untouched; any
/// other is the system's.
pub fn create_new(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    create_new_owned(path, bytes, mode, None)
}

/// As [`create_new`]: creates `path` durably, and never overwrites. Gives the file to the user and
/// group `owner` before it gets its name.
///
/// # Errors
/// `AlreadyExists` when there is anything at `path`, which is then untouched; any other is the
/// system's.
pub fn create_new_owned(
    path: &Path,
    bytes: &[u8],
    mode: u32,
    owner: Option<(u32, u32)>,
) -> io::Result<()> {
    let temp = Temp::written(path, bytes, mode, owner)?;
    let target = path.to_owned();
    Pending { temp, target }.publish()
}

/// Syncs the finished file `temp` and moves it to `target`, durably and without overwriting. Both
/// must be on one file system.
///
/// # Errors
/// `AlreadyExists` when there is something at `target`; any other is the system's. `temp` then
/// remains, for the caller to remove, unless only the last step, the fsync of the directory,
/// failed.
pub fn publish(temp: &Path, target: &Path) -> io::Result<()> {
    storage::of(temp).sync(temp)?;
    storage::of(target).rename_new(temp, target)?;
    sync_dir_of(target)
}

/// Makes the directory entry of `path` durable (fsync of its directory).
///
/// # Errors
/// The system's error.
pub fn sync_dir_of(path: &Path) -> io::Result<()> {
    storage::of(path).sync(directory_of(path))
}

/// Returns the directory that a path is in; `.` for a name alone.
fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// A new file under a temporary name: its contents can be checked before it gets its name. It is
/// removed when it is dropped without one.
pub struct Pending {
    temp: Temp,
    target: PathBuf,
}

impl Pending {
    /// Writes `bytes` to a new temporary file beside `path`, durably, with permission bits `mode`.
    ///
    /// # Errors
    /// The system's error.
    pub fn written(path: &Path, bytes: &[u8], mode: u32) -> io::Result<Self> {
        Ok(Self {
            temp: Temp::written(path, bytes, mode, None)?,
            target: path.to_owned(),
        })
    }

    /// Returns the temporary path, where the file is until [`Self::publish`].
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.temp.0
    }

    /// Gives the file its name, durably; never overwrites.
    ///
    /// # Errors
    /// `AlreadyExists` when there is something of that name; any other is the system's. The
    /// temporary file is then removed, unless only the last step failed, the fsync of the
    /// directory: then it has its name.
    pub fn publish(self) -> io::Result<()> {
        publish(&self.temp.0, &self.target)?;
        self.temp.moved();
        Ok(())
    }
}

/// A temporary file that is removed unless it was moved away.
struct Temp(PathBuf);

impl Temp {
    /// Writes a new file beside `target` under a random name, with these permission bits and owner,
    /// and syncs it. It is removed when a step fails. Errors: the system's; `InvalidInput` when
    /// `target` has no file name.
    fn written(
        target: &Path,
        bytes: &[u8],
        mode: u32,
        owner: Option<(u32, u32)>,
    ) -> io::Result<Self> {
        let name = target.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let random = strongroom_crypto::random16().map_err(io::Error::other)?;
        let mut temp_name = std::ffi::OsString::from(".");
        // Room for the suffix within the 255 bytes that file systems allow.
        let shown: String = name.to_string_lossy().chars().take(48).collect();
        temp_name.push(format!("{shown}.{:032x}.tmp", u128::from_le_bytes(random)));
        let path = directory_of(target).join(temp_name);
        let mut file = storage::of(&path).create_new(&path)?;
        let temp = Self(path);
        file.write_all(bytes)?;
        if let Some((user, group)) = owner {
            file.set_owner(user, group)?;
        }
        file.set_mode(mode)?;
        file.sync()?;
        Ok(temp)
    }

    /// Notes that the file has another name now, so that dropping this removes nothing.
    fn moved(mut self) {
        self.0 = PathBuf::new();
    }
}

impl Drop for Temp {
    /// Removes the file unless it was moved. Ignores errors.
    fn drop(&mut self) {
        if !self.0.as_os_str().is_empty() {
            // The failure that brought us here is the one to report.
            drop(storage::of(&self.0).remove(&self.0));
        }
    }
}
