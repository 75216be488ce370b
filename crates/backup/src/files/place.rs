//! Directories that a restore fills, which are held open, and paths below them.
//!
//! Invariants: B11, B23.
//!
//! Must not: write a file.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, openat, unlinkat};
use rustix::io::Errno;
use strongroom_format::backup::Member;
use strongroom_format::code;

use crate::{Error, Result};

/// A directory that is held open while it is filled.
pub(super) struct HeldDirectory {
    pub(super) path: PathBuf,
    pub(super) held: File,
}

/// A tablespace: its path in the stream, its directory, and the owner, mode and times that the
/// directory gets at the end.
pub(super) struct Tablespace {
    pub(super) stored: Vec<u8>,
    pub(super) base: HeldDirectory,
    pub(super) member: Member,
}

/// The place of a member: a path below a directory that is held open, and the path for messages.
pub(super) struct EntryPath<'a> {
    pub(super) held: &'a File,
    pub(super) below: &'a OsStr,
    pub(super) shown: PathBuf,
}

impl HeldDirectory {
    /// Opens a directory that was just made at `path`, not through a link. SR-7150 when it belongs
    /// to another user.
    pub(super) fn open(
        within: impl std::os::fd::AsFd,
        name: &OsStr,
        path: PathBuf,
    ) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let held = openat(within, name, flags, Mode::empty());
        let held = held.map_err(|error| Error::io(path.display().to_string(), error.into()))?;
        let held = File::from(held);
        let about = held
            .metadata()
            .map_err(|error| Error::io(path.display().to_string(), error))?;
        // The owner of the parent directory may have replaced it by one of theirs, in order to
        // exchange its contents later.
        if about.uid() != rustix::process::geteuid().as_raw() {
            return Err(directory_exchanged_error(&path));
        }
        Ok(Self { path, held })
    }

    /// Whether `path` is this directory.
    pub(super) fn is_at(&self, path: &Path) -> bool {
        let named = fs::symlink_metadata(path);
        let held = self.held.metadata();
        match (named, held) {
            (Ok(named), Ok(held)) => (named.dev(), named.ino()) == (held.dev(), held.ino()),
            _ => false,
        }
    }

    /// Returns the place of the directory itself, for what is done with an entry.
    pub(super) fn entry_path(&self) -> EntryPath<'_> {
        EntryPath {
            held: &self.held,
            below: OsStr::new("."),
            shown: self.path.clone(),
        }
    }

    /// The place of an entry at `path` below the directory.
    pub(super) fn below<'a>(&'a self, path: &'a [u8]) -> EntryPath<'a> {
        let below = OsStr::from_bytes(path);
        EntryPath {
            held: &self.held,
            below,
            shown: self.path.join(below),
        }
    }
}

impl Tablespace {
    /// Whether the directory is still at its path.
    pub(super) fn is_in_place(&self) -> bool {
        self.base.is_at(&self.base.path)
    }
}

impl EntryPath<'_> {
    /// Makes SR-5001 for this entry.
    pub(super) fn failed(&self, error: Errno) -> Error {
        Error::io(self.shown.display().to_string(), error.into())
    }

    /// Makes a new file, open for writing, and for reading, which sealing needs. SR-7111 when the
    /// stream has named it before.
    pub(super) fn create(&self) -> Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let made = openat(self.held, self.below, flags, Mode::from_raw_mode(0o600));
        made.map(File::from)
            .map_err(|error| create_error(self, error))
    }

    /// Opens a file that this restore has made, for reading and writing; never through a link.
    /// SR-5001 when that fails.
    pub(super) fn reopen(&self) -> Result<File> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = openat(self.held, self.below, flags, Mode::empty());
        opened.map(File::from).map_err(|error| self.failed(error))
    }

    /// Removes a file or a link, or with `directory` an empty directory. SR-5001 when that fails.
    pub(super) fn remove(&self, directory: bool) -> Result<()> {
        let flags = if directory {
            AtFlags::REMOVEDIR
        } else {
            AtFlags::empty()
        };
        unlinkat(self.held, self.below, flags).map_err(|error| self.failed(error))
    }
}

/// Makes the error for an entry that cannot be made. If it exists, the stream has named it before,
/// because the directory was empty: SR-7111; otherwise SR-5001.
pub(super) fn create_error(spot: &EntryPath<'_>, error: Errno) -> Error {
    match error {
        Errno::EXIST => named_twice_error(),
        error => spot.failed(error),
    }
}

/// Makes SR-7111 for a path that the stream names twice.
pub(super) fn named_twice_error() -> Error {
    Error::new(&code::STREAM, "a path that is named twice")
}

/// Makes SR-7150 for this directory.
pub(super) fn directory_exchanged_error(path: &Path) -> Error {
    Error::new(&code::RESTORE_EXCHANGED, path.display().to_string())
}
