//! The only place where this crate reaches the system's files, so that a test can substitute a
//! simulated disk that fails, or loses what was not made durable.
//!
//! Invariant K20: without [`mount`], which no program of the product calls, every path is the
//! system's.
//!
//! Must not: decide in which order files are written: [`crate::durable`], [`crate::redo`] and the
//! store do.

use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

/// What is known of a file without opening it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct About {
    /// Length in bytes.
    pub len: u64,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

impl From<&Metadata> for About {
    fn from(about: &Metadata) -> Self {
        Self {
            len: about.len(),
            mode: about.mode() & 0o777,
            uid: about.uid(),
            gid: about.gid(),
        }
    }
}

impl About {
    /// Whether the file belongs to this user or to root, and nobody else may write to it. A program
    /// that it names may then be run (K14).
    #[must_use]
    pub fn is_private(&self) -> bool {
        let user = rustix::process::geteuid().as_raw();
        self.mode & 0o022 == 0 && (self.uid == user || self.uid == 0)
    }

    /// Whether users may read the file who should not read a key: everybody, or the group of a file
    /// that root does not own. A group that may read root's file is allowed, because this is how a
    /// server's user gets a key that it may not change.
    #[must_use]
    pub fn is_readable_by_others(&self) -> bool {
        self.mode & 0o007 != 0 || (self.mode & 0o070 != 0 && self.uid != 0)
    }
}

/// A new file that is open for writing.
pub trait NewFile {
    /// Appends the bytes to the file.
    ///
    /// # Errors
    /// The system's error; a part may be written.
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Sets the permission bits of the open file.
    ///
    /// # Errors
    /// The system's error.
    fn set_mode(&mut self, mode: u32) -> io::Result<()>;

    /// Gives the open file to a user and a group.
    ///
    /// # Errors
    /// The system's error.
    fn set_owner(&mut self, uid: u32, gid: u32) -> io::Result<()>;

    /// Makes the contents durable, but not the name.
    ///
    /// # Errors
    /// The system's error.
    fn sync(&mut self) -> io::Result<()>;
}

/// Files by path. Errors are the system's.
#[expect(clippy::missing_errors_doc, reason = "the system's, all of them")]
pub trait Storage: Send + Sync {
    /// Creates a file with mode 0600. Fails when something has the name.
    fn create_new(&self, path: &Path) -> io::Result<Box<dyn NewFile>>;
    /// Reads at most `limit` bytes from the beginning of a file. A longer file is no error.
    fn read(&self, path: &Path, limit: u64) -> io::Result<Vec<u8>>;
    /// Reads at most `limit` bytes from the beginning of a file, and returns them with its
    /// metadata. Both are of one open file, because others may replace it between two look-ups.
    fn read_known(&self, path: &Path, limit: u64) -> io::Result<(Vec<u8>, About)>;
    /// Returns the file's metadata. Follows symbolic links.
    fn about(&self, path: &Path) -> io::Result<About>;
    /// Gives the file another owner and group.
    fn set_owner(&self, path: &Path, uid: u32, gid: u32) -> io::Result<()>;
    /// Sets a file's permission bits.
    fn set_mode(&self, path: &Path, mode: u32) -> io::Result<()>;
    /// Returns the path without symbolic links.
    fn canonical(&self, path: &Path) -> io::Result<PathBuf>;
    /// Whether something has the name, also a symbolic link to nothing.
    fn is_taken(&self, path: &Path) -> bool;
    /// Makes a file, or the names in a directory, durable.
    fn sync(&self, path: &Path) -> io::Result<()>;
    /// Renames, and replaces a file that has the new name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Renames, but fails when something has the new name.
    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes the name. Fails when nothing has it.
    fn remove(&self, path: &Path) -> io::Result<()>;
}

static MOUNTED: OnceLock<(PathBuf, Box<dyn Storage>)> = OnceLock::new();

/// Makes `storage` the storage of all paths below `root` from now on, for tests. Once in a process;
/// false when one is mounted already.
#[doc(hidden)]
#[must_use]
pub fn mount(root: PathBuf, storage: Box<dyn Storage>) -> bool {
    MOUNTED.set((root, storage)).is_ok()
}

/// Returns the storage that a path belongs to: the mounted one for a path below its root, else the
/// operating system's files.
#[must_use]
pub fn of(path: &Path) -> &'static dyn Storage {
    match MOUNTED.get() {
        Some((root, storage)) if path.starts_with(root) => storage.as_ref(),
        _ => &System,
    }
}

/// The operating system's files.
struct System;

impl NewFile for File {
    /// Appends the bytes. After an error a part may be written.
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        Write::write_all(self, bytes)
    }

    /// Sets the permission bits of the open file.
    fn set_mode(&mut self, mode: u32) -> io::Result<()> {
        self.set_permissions(Permissions::from_mode(mode))
    }

    /// Gives the open file to a user and a group.
    fn set_owner(&mut self, uid: u32, gid: u32) -> io::Result<()> {
        std::os::unix::fs::fchown(&*self, Some(uid), Some(gid))
    }

    /// Makes the contents of the open file durable (`fsync`), but not its name.
    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}

impl Storage for System {
    /// Creates a file with mode 0600, open for writing. Fails when something has the name.
    fn create_new(&self, path: &Path) -> io::Result<Box<dyn NewFile>> {
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        Ok(Box::new(file))
    }

    /// Reads at most `limit` bytes from the beginning of a file. A longer file is no error.
    fn read(&self, path: &Path, limit: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(path)?.take(limit).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Reads at most `limit` bytes from the beginning of a file, and the metadata of the same open
    /// file.
    fn read_known(&self, path: &Path, limit: u64) -> io::Result<(Vec<u8>, About)> {
        let mut bytes = Vec::new();
        let mut file = File::open(path)?;
        let about = About::from(&file.metadata()?);
        Read::by_ref(&mut file)
            .take(limit)
            .read_to_end(&mut bytes)?;
        Ok((bytes, about))
    }

    /// Returns the file's metadata. Follows symbolic links.
    fn about(&self, path: &Path) -> io::Result<About> {
        Ok(About::from(&std::fs::metadata(path)?))
    }

    /// Gives the file another owner and group. Follows symbolic links, and opens the file for
    /// reading.
    fn set_owner(&self, path: &Path, uid: u32, gid: u32) -> io::Result<()> {
        std::os::unix::fs::fchown(File::open(path)?, Some(uid), Some(gid))
    }

    /// Sets a file's permission bits. Follows symbolic links.
    fn set_mode(&self, path: &Path, mode: u32) -> io::Result<()> {
        std::fs::set_permissions(path, Permissions::from_mode(mode))
    }

    /// Resolves every symbolic link. Fails when nothing is at the path.
    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        path.canonicalize()
    }

    /// Whether something has the name, also a symbolic link to nothing. False also on an error.
    fn is_taken(&self, path: &Path) -> bool {
        path.symlink_metadata().is_ok()
    }

    /// Makes a file's contents, or the names in a directory, durable (`fsync`).
    fn sync(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    /// Renames, and replaces a file that has the new name. Does not make the change durable.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        rustix::fs::rename(from, to).map_err(io::Error::from)
    }

    /// Renames, but fails with `AlreadyExists` when something has the new name. Where the file
    /// system cannot do so in one step, makes a hard link and removes the old name.
    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
            // File systems without RENAME_NOREPLACE: a hard link does not overwrite either.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                std::fs::hard_link(from, to)?;
                std::fs::remove_file(from)
            }
            other => other.map_err(io::Error::from),
        }
    }

    /// Removes the name of a file. Fails when there is none.
    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }
}
