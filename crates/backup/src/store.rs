//! Where a medium's objects lie: create, read, list, replace, remove by name.
//!
//! Invariants: B1, an object that was reported as written is durable and whole; B2, `create_new` and the end of a
//! stream of bytes never replace an object; B18, `replace` replaces what was read.
//!
//! Must not: know what is in an object.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use strongroom_keyring::durable;

use crate::leftovers;
use crate::writeback::Writeback;

/// Which state of an object was read: what the store names it by, or nothing where a lock keeps others from replacing it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Version {
    /// Its entity tag.
    pub(crate) tag: Option<String>,
    /// Its generation, where a store goes by that (Google Cloud Storage).
    pub(crate) generation: Option<String>,
}

/// Objects by name. Names are relative, with `/` between directory and name, and are never a user's.
pub trait Store: Send + Sync {
    /// An object's bytes, at most `limit` of them; `None` when there is no such object.
    ///
    /// # Errors
    /// The system's; `FileTooLarge` above the limit.
    fn read(&self, name: &str, limit: u64) -> io::Result<Option<Vec<u8>>>;

    /// As [`Self::read`], with what [`Self::replace`] needs.
    ///
    /// # Errors
    /// As of [`Self::read`].
    fn read_version(&self, name: &str, limit: u64) -> io::Result<Option<(Vec<u8>, Version)>> {
        let read = self.read(name, limit)?;
        Ok(read.map(|bytes| (bytes, Version::default())))
    }

    /// Opens an object for reading from its start, and its length in bytes.
    ///
    /// # Errors
    /// The system's; `NotFound`.
    fn open(&self, name: &str) -> io::Result<(Box<dyn Read + Send>, u64)>;

    /// Creates an object whole. False when the name is taken; nothing is changed then.
    ///
    /// # Errors
    /// The system's.
    fn create_new(&self, name: &str, bytes: &[u8]) -> io::Result<bool>;

    /// Replaces the object that was read as `seen`. False when it is another one by now, or gone; nothing is changed then. A store
    /// whose guards keep others away need not look: the caller holds the one of [`Self::changing`] or [`Self::at_work`].
    ///
    /// # Errors
    /// The system's; the old object is then still there.
    fn replace(&self, name: &str, bytes: &[u8], seen: &Version) -> io::Result<bool>;

    /// Begins an object that is written piece by piece.
    ///
    /// # Errors
    /// The system's; `AlreadyExists`.
    fn begin(&self, name: &str) -> io::Result<Box<dyn Upload>>;

    /// Makes an object durable that another writer has created, and may have been killed or cut off before it was.
    ///
    /// # Errors
    /// The system's; `NotFound`.
    fn sync(&self, name: &str) -> io::Result<()>;

    /// Names and lengths of the objects of a directory (empty: the medium's own), sorted by name. None when it is absent.
    ///
    /// # Errors
    /// The system's.
    fn list(&self, directory: &str) -> io::Result<Vec<(String, u64)>>;

    /// Names of the objects of `data` of which no writer at work can be about to create the head. The caller holds the guard of
    /// [`Self::at_work`], alone, and reads the heads afterwards.
    ///
    /// # Errors
    /// The system's.
    fn abandoned(&self) -> io::Result<Vec<String>> {
        Ok(self
            .list("data")?
            .into_iter()
            .map(|(name, _)| name)
            .collect())
    }

    /// How long a writer may take from its first family to its head. None where guards count.
    fn writing_limit(&self) -> Option<Duration> {
        None
    }

    /// Makes sure that creating and replacing refuse what they must, by the object `name`, which is there and is not changed. Where
    /// the system's calls do that by themselves there is nothing to ask.
    ///
    /// # Errors
    /// The store's; SR-7143 when it does not refuse.
    fn refuses(&self, _name: &str) -> io::Result<()> {
        Ok(())
    }

    /// Removes an object; no error when there is none.
    ///
    /// # Errors
    /// The system's.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Removes temporary files that a writer left which was killed, if they are older than a day: the lock that the caller has is
    /// not held by every writer. A place that has no such files does nothing.
    ///
    /// # Errors
    /// The system's.
    fn collect(&self) -> io::Result<()> {
        Ok(())
    }

    /// Keeps others from removing orphans while the guard lives. With `alone`, `None` when another writer is at work.
    ///
    /// # Errors
    /// The system's.
    fn at_work(&self, alone: bool) -> io::Result<Option<Box<dyn Send>>>;

    /// Waits until nobody else replaces or removes objects of `directory`, and keeps others from it while the guard lives. Who
    /// creates objects needs no such guard.
    ///
    /// # Errors
    /// The system's; `NotFound` when the directory is absent.
    fn changing(&self, directory: &str) -> io::Result<Box<dyn Send>>;

    /// Whether the place is absent or has nothing in it, but for what a writer leaves that was killed while it made the medium.
    ///
    /// # Errors
    /// The system's.
    fn is_empty(&self) -> io::Result<bool>;

    /// Makes the place, if it is not there.
    ///
    /// # Errors
    /// The system's.
    fn prepare(&self) -> io::Result<()>;

    /// The place, for messages.
    fn shown(&self) -> String;
}

/// An object that is being written.
pub trait Upload: Write + Send {
    /// Makes it durable. Dropped without, it is of no use, and is removed if that is possible.
    ///
    /// # Errors
    /// The system's.
    fn finish(self: Box<Self>) -> io::Result<()>;
}

/// A directory.
#[derive(Clone, Debug)]
pub struct LocalStore {
    root: PathBuf,
}

const DIRECTORIES: [&str; 3] = ["sets", "data", "wal"];

impl LocalStore {
    /// The medium at `root`, which need not exist yet.
    #[must_use]
    pub fn new(root: &Path) -> Self {
        Self {
            root: root.to_path_buf(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }
}

impl Store for LocalStore {
    fn read(&self, name: &str, limit: u64) -> io::Result<Option<Vec<u8>>> {
        let file = match File::open(self.path(name)) {
            Err(error) if is_absent(&error) => return Ok(None),
            other => other?,
        };
        let mut bytes = Vec::new();
        let read = file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
        if read as u64 > limit {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(Some(bytes))
    }

    fn open(&self, name: &str) -> io::Result<(Box<dyn Read + Send>, u64)> {
        let file = File::open(self.path(name))?;
        let length = file.metadata()?.len();
        Ok((Box::new(file), length))
    }

    fn create_new(&self, name: &str, bytes: &[u8]) -> io::Result<bool> {
        match durable::create_new(&self.path(name), bytes, 0o600) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn replace(&self, name: &str, bytes: &[u8], _seen: &Version) -> io::Result<bool> {
        durable::replace(&self.path(name), bytes, 0o600)?;
        Ok(true)
    }

    fn begin(&self, name: &str) -> io::Result<Box<dyn Upload>> {
        let path = self.path(name);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        Ok(Box::new(LocalUpload {
            file,
            path,
            writeback: Writeback::default(),
            finished: false,
        }))
    }

    fn sync(&self, name: &str) -> io::Result<()> {
        let path = self.path(name);
        File::open(&path)?.sync_all()?;
        durable::sync_dir_of(&path)
    }

    fn list(&self, directory: &str) -> io::Result<Vec<(String, u64)>> {
        let entries = match fs::read_dir(self.path(directory)) {
            Err(error) if is_absent(&error) => return Ok(Vec::new()),
            other => other?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry?;
            let about = entry.metadata()?;
            // Temporary files of an interrupted `create_new` begin with a dot and are no objects.
            if let Ok(name) = entry.file_name().into_string()
                && about.is_file()
                && !name.starts_with('.')
            {
                found.push((name, about.len()));
            }
        }
        found.sort();
        Ok(found)
    }

    fn collect(&self) -> io::Result<()> {
        let directories = DIRECTORIES.iter().map(|name| self.path(name));
        for directory in directories.chain([self.root.clone()]) {
            leftovers::collect(&directory, |name| {
                name.starts_with('.') && name.ends_with(".tmp")
            })?;
        }
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let path = self.path(name);
        match fs::remove_file(&path) {
            Err(error) if is_absent(&error) => Ok(()),
            Err(error) => Err(error),
            Ok(()) => durable::sync_dir_of(&path),
        }
    }

    fn at_work(&self, alone: bool) -> io::Result<Option<Box<dyn Send>>> {
        let directory = File::open(self.path("data"))?;
        let operation = if alone {
            FlockOperation::NonBlockingLockExclusive
        } else {
            FlockOperation::LockShared
        };
        match flock(&directory, operation) {
            Ok(()) => Ok(Some(Box::new(Locked(directory)))),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn changing(&self, directory: &str) -> io::Result<Box<dyn Send>> {
        let directory = File::open(self.path(directory))?;
        flock(&directory, FlockOperation::LockExclusive)?;
        Ok(Box::new(Locked(directory)))
    }

    fn is_empty(&self) -> io::Result<bool> {
        let entries = match fs::read_dir(&self.root) {
            Err(error) if is_absent(&error) => return Ok(true),
            other => other?,
        };
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let of_a_medium = DIRECTORIES.contains(&name.as_str())
                && entry.file_type()?.is_dir()
                && fs::read_dir(entry.path())?.next().is_none();
            let begun = name.starts_with(".medium.json.") && name.ends_with(".tmp");
            if !of_a_medium && !begun {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn prepare(&self) -> io::Result<()> {
        use std::os::unix::fs::DirBuilderExt as _;
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(&self.root)?;
        for directory in DIRECTORIES {
            builder.create(self.path(directory))?;
        }
        durable::sync_dir_of(&self.path(DIRECTORIES[0]))?;
        durable::sync_dir_of(&self.root)
    }

    fn shown(&self) -> String {
        self.root.display().to_string()
    }
}

fn is_absent(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

/// A lock on a directory. It is given back by name: closing the descriptor alone would leave it held for as long as a child that
/// another thread has forked has not yet become its program.
struct Locked(File);

impl Drop for Locked {
    fn drop(&mut self) {
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

struct LocalUpload {
    file: File,
    path: PathBuf,
    writeback: Writeback,
    finished: bool,
}

impl Write for LocalUpload {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.writeback.wrote(&self.file, written);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Upload for LocalUpload {
    fn finish(mut self: Box<Self>) -> io::Result<()> {
        self.file.sync_all()?;
        durable::sync_dir_of(&self.path)?;
        self.finished = true;
        Ok(())
    }
}

impl Drop for LocalUpload {
    fn drop(&mut self) {
        if !self.finished {
            // An orphan otherwise, which the next writer removes.
            drop(fs::remove_file(&self.path));
        }
    }
}
