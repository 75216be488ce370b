//! Where files are: the one edge between this crate's files and the system, so that a test can put
//! a simulated disk there that fails, or forgets what was not made durable.
//!
//! Invariant K20: without [`mount`], which no program of the product calls, every path is the
//! system's.
//! Must not: decide anything. Order and meaning of the calls belong to [`crate::durable`],
//! [`crate::redo`] and the store.

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
    /// Whether the file is this user's or root's, and nobody else may write to it. What it names
    /// may then be run (K14).
    #[must_use]
    pub fn is_private(&self) -> bool {
        let user = rustix::process::geteuid().as_raw();
        self.mode & 0o022 == 0 && (self.uid == user || self.uid == 0)
    }

    /// Whether other users may read a key in the file: any, or a group's when root does not own it.
    /// A group that root has let in is how a server's user gets a key that it may not change.
    #[must_use]
    pub fn is_readable_by_others(&self) -> bool {
        self.mode & 0o007 != 0 || (self.mode & 0o070 != 0 && self.uid != 0)
    }
}

/// A new file that is open for writing.
pub trait NewFile {
    /// Appends.
    ///
    /// # Errors
    /// The system's error; a part may be written.
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Sets the permission bits.
    ///
    /// # Errors
    /// The system's error.
    fn set_mode(&mut self, mode: u32) -> io::Result<()>;

    /// Gives it to a user and a group.
    ///
    /// # Errors
    /// The system's error.
    fn set_owner(&mut self, uid: u32, gid: u32) -> io::Result<()>;

    /// Makes bytes and length durable; not the name.
    ///
    /// # Errors
    /// The system's error.
    fn sync(&mut self) -> io::Result<()>;
}

/// Files by path. Errors are the system's.
#[expect(clippy::missing_errors_doc, reason = "the system's, all of them")]
pub trait Storage: Send + Sync {
    /// Makes a file that was not there, for its owner alone.
    fn create_new(&self, path: &Path) -> io::Result<Box<dyn NewFile>>;
    /// At most `limit` bytes from a file's beginning.
    fn read(&self, path: &Path, limit: u64) -> io::Result<Vec<u8>>;
    /// As [`Self::read`], and what is known of the file that was read: of that one, whatever has
    /// its name by then.
    fn read_known(&self, path: &Path, limit: u64) -> io::Result<(Vec<u8>, About)> {
        Ok((self.read(path, limit)?, self.about(path)?))
    }
    /// What is known of the file; links are followed.
    fn about(&self, path: &Path) -> io::Result<About>;
    /// Gives the file another owner and group.
    fn set_owner(&self, path: &Path, uid: u32, gid: u32) -> io::Result<()>;
    /// Sets a file's permission bits.
    fn set_mode(&self, path: &Path, mode: u32) -> io::Result<()>;
    /// The file's one name, without links.
    fn canonical(&self, path: &Path) -> io::Result<PathBuf>;
    /// Whether anything has the name, be it a link that leads nowhere.
    fn is_taken(&self, path: &Path) -> bool;
    /// Makes a file, or the names in a directory, durable.
    fn sync(&self, path: &Path) -> io::Result<()>;
    /// Renames, over what has the name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Renames, unless something has the name.
    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes the name.
    fn remove(&self, path: &Path) -> io::Result<()>;
}

static MOUNTED: OnceLock<(PathBuf, Box<dyn Storage>)> = OnceLock::new();

/// For tests: everything below `root` is `storage`'s from now on. Once in a process; false when
/// there is one already.
#[doc(hidden)]
#[must_use]
pub fn mount(root: PathBuf, storage: Box<dyn Storage>) -> bool {
    MOUNTED.set((root, storage)).is_ok()
}

/// The files that `path` is among.
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
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        Write::write_all(self, bytes)
    }

    fn set_mode(&mut self, mode: u32) -> io::Result<()> {
        self.set_permissions(Permissions::from_mode(mode))
    }

    fn set_owner(&mut self, uid: u32, gid: u32) -> io::Result<()> {
        std::os::unix::fs::fchown(&*self, Some(uid), Some(gid))
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}

impl Storage for System {
    fn create_new(&self, path: &Path) -> io::Result<Box<dyn NewFile>> {
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        Ok(Box::new(file))
    }

    fn read(&self, path: &Path, limit: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(path)?.take(limit).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn read_known(&self, path: &Path, limit: u64) -> io::Result<(Vec<u8>, About)> {
        let mut bytes = Vec::new();
        let mut file = File::open(path)?;
        let about = About::from(&file.metadata()?);
        Read::by_ref(&mut file)
            .take(limit)
            .read_to_end(&mut bytes)?;
        Ok((bytes, about))
    }

    fn about(&self, path: &Path) -> io::Result<About> {
        Ok(About::from(&std::fs::metadata(path)?))
    }

    fn set_owner(&self, path: &Path, uid: u32, gid: u32) -> io::Result<()> {
        std::os::unix::fs::fchown(File::open(path)?, Some(uid), Some(gid))
    }

    fn set_mode(&self, path: &Path, mode: u32) -> io::Result<()> {
        std::fs::set_permissions(path, Permissions::from_mode(mode))
    }

    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        path.canonicalize()
    }

    fn is_taken(&self, path: &Path) -> bool {
        path.symlink_metadata().is_ok()
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        rustix::fs::rename(from, to).map_err(io::Error::from)
    }

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

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }
}
