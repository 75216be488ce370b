//! The store of a medium's objects: create, read, list, replace and remove them by name.
//!
//! Invariants: B1: an object that was reported as written is complete and durable; B2: `create_new`
//! and `begin` never replace an object; B18: `replace` replaces only the version that was read.
//!
//! Must not: interpret an object.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, OFlags, flock};
use strongroom_keyring::{Link, Locked, durable, is_not_regular, open_regular};

use crate::leftovers;
use crate::writeback::Writeback;

/// The version of an object that was read, as the store names it. It is empty if a lock prevents
/// others from replacing the object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Version {
    /// Its entity tag.
    pub(crate) tag: Option<String>,
    /// Its generation, if the store uses that (Google Cloud Storage).
    pub(crate) generation: Option<String>,
}

/// Objects by name. Names are relative, with `/` between directory and name, and are never chosen
/// by users.
pub trait Store: Send + Sync {
    /// An object's bytes; `None` when there is no such object.
    ///
    /// # Errors
    /// The system's; `FileTooLarge` when it has more than `limit` bytes.
    fn read(&self, name: &str, limit: u64) -> io::Result<Option<Vec<u8>>>;

    /// Reads an object's bytes, and the version of it that [`Self::replace`] requires; `None` when
    /// there is no such object.
    ///
    /// # Errors
    /// The system's; `FileTooLarge` when it has more than `limit` bytes.
    fn read_version(&self, name: &str, limit: u64) -> io::Result<Option<(Vec<u8>, Version)>> {
        let read = self.read(name, limit)?;
        Ok(read.map(|bytes| (bytes, Version::default())))
    }

    /// Opens an object for reading from its start; returns its length in bytes too.
    ///
    /// # Errors
    /// The system's; `NotFound`.
    fn open(&self, name: &str) -> io::Result<(Box<dyn Read + Send>, u64)>;

    /// Creates an object in one step. False when the name is taken; nothing is changed then.
    ///
    /// # Errors
    /// The system's.
    fn create_new(&self, name: &str, bytes: &[u8]) -> io::Result<bool>;

    /// Replaces the object that was read as `seen`. False when it was changed or removed since;
    /// nothing is changed then. A store with locks need not check that, because the caller holds
    /// [`Self::lock_changes`] or [`Self::lock_writers`].
    ///
    /// # Errors
    /// The system's; the old object is then still there.
    fn replace(&self, name: &str, bytes: &[u8], seen: &Version) -> io::Result<bool>;

    /// Begins an object that is written piece by piece.
    ///
    /// # Errors
    /// The system's; `AlreadyExists`.
    fn begin(&self, name: &str) -> io::Result<Box<dyn Upload>>;

    /// Makes an object durable that another writer has created, who may have been killed before it
    /// did so.
    ///
    /// # Errors
    /// The system's; `NotFound`.
    fn sync(&self, name: &str) -> io::Result<()>;

    /// Names and lengths in bytes of the objects of a directory (the empty name is the medium's
    /// own), sorted by name. Empty when the directory is absent. Anything but a regular file is
    /// listed with length 0: reading it is an error.
    ///
    /// # Errors
    /// The system's.
    fn list(&self, directory: &str) -> io::Result<Vec<(String, u64)>>;

    /// Names of the objects of `data` whose head no active writer can still create. The caller
    /// holds [`Self::lock_writers`] alone, and reads the heads afterwards.
    ///
    /// # Errors
    /// The system's.
    fn orphan_candidates(&self) -> io::Result<Vec<String>> {
        Ok(self
            .list("data")?
            .into_iter()
            .map(|(name, _)| name)
            .collect())
    }

    /// How long a writer may take from its first family to its head. `None` for a store with locks.
    fn writing_limit(&self) -> Option<Duration> {
        None
    }

    /// Checks that the store refuses to create an object that exists, and to replace one that was
    /// changed. The existing object `name` is used for it, and not changed. Nothing has to be
    /// checked if the operating system guarantees it.
    ///
    /// # Errors
    /// The store's; SR-7143 when it does not refuse.
    fn check_exclusive_create(&self, _name: &str) -> io::Result<()> {
        Ok(())
    }

    /// Removes an object; no error when there is none.
    ///
    /// # Errors
    /// The system's.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Removes temporary files of killed writers that are older than a day; younger ones may belong
    /// to a writer that does not take the caller's lock. Does nothing in a store without such
    /// files.
    ///
    /// # Errors
    /// The system's.
    fn collect(&self) -> io::Result<()> {
        Ok(())
    }

    /// Keeps others from removing orphans until the result is dropped: a shared lock, for which the
    /// call waits. With `alone` the lock is exclusive, and `None` is returned at once when another
    /// writer is at work. A store without locks always succeeds.
    ///
    /// # Errors
    /// The system's.
    fn lock_writers(&self, alone: bool) -> io::Result<Option<Box<dyn Send>>>;

    /// Waits until nobody else replaces or removes objects of `directory`, and keeps others from it
    /// until the result is dropped. Creating objects does not need this lock. A store without locks
    /// returns at once.
    ///
    /// # Errors
    /// The system's; `NotFound` when the directory is absent.
    fn lock_changes(&self, directory: &str) -> io::Result<Box<dyn Send>>;

    /// Whether the place is absent or empty, apart from what a writer leaves that is killed while
    /// it makes the medium.
    ///
    /// # Errors
    /// The system's.
    fn is_empty(&self) -> io::Result<bool>;

    /// Makes the place, if it does not exist.
    ///
    /// # Errors
    /// The system's.
    fn prepare(&self) -> io::Result<()>;

    /// Returns the place for messages: a path, or a URL, which never has a user or password in it.
    fn shown(&self) -> String;
}

/// An object that is being written.
pub trait Upload: Write + Send {
    /// Makes the object durable. If it is dropped without this call, it is removed as far as that
    /// is possible.
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

    /// The path of an object below the medium's directory.
    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// The entries of `directory` with their metadata, in order of name; empty when it is absent.
    /// Temporary files of writers, whose names begin with a dot, are left out, because they come
    /// and go meanwhile; so are names that are not UTF-8.
    fn entries(&self, directory: &str) -> io::Result<Vec<(String, fs::Metadata)>> {
        let entries = match fs::read_dir(self.path(directory)) {
            Err(error) if is_absent(&error) => return Ok(Vec::new()),
            other => other?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            if name.starts_with('.') {
                continue;
            }
            match entry.metadata() {
                // Another process has removed it meanwhile.
                Err(error) if is_absent(&error) => {}
                about => found.push((name, about?)),
            }
        }
        found.sort_by(|one, other| one.0.cmp(&other.0));
        Ok(found)
    }
}

impl Store for LocalStore {
    /// Reads a file; links are followed. `None` when it is absent; `FileTooLarge` when it has more
    /// than `limit` bytes; an error for anything but a regular file.
    fn read(&self, name: &str, limit: u64) -> io::Result<Option<Vec<u8>>> {
        let file = match open_regular(&self.path(name), Link::Followed) {
            Err(error) if is_absent(&error) => return Ok(None),
            other => other?.0,
        };
        let mut bytes = Vec::new();
        let read = file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
        if read as u64 > limit {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(Some(bytes))
    }

    /// Opens a regular file, also through a link, and returns its length in bytes too. `NotFound`
    /// when it is absent; an error for anything but a regular file.
    fn open(&self, name: &str) -> io::Result<(Box<dyn Read + Send>, u64)> {
        let (file, about) = open_regular(&self.path(name), Link::Followed)?;
        Ok((Box::new(file), about.len()))
    }

    /// Creates the file durably with mode 0600. False, and nothing is changed, when the name is
    /// taken.
    fn create_new(&self, name: &str, bytes: &[u8]) -> io::Result<bool> {
        match durable::create_new(&self.path(name), bytes, 0o600) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Replaces the file durably, or creates it, and always returns true: the caller's lock keeps
    /// others out.
    fn replace(&self, name: &str, bytes: &[u8], _seen: &Version) -> io::Result<bool> {
        durable::replace(&self.path(name), bytes, 0o600)?;
        Ok(true)
    }

    /// Creates the file with mode 0600, to be written piece by piece. `AlreadyExists` when the name
    /// is taken.
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

    /// Syncs the file and its directory. `NotFound` when it is absent; an error for anything but a
    /// regular file.
    fn sync(&self, name: &str) -> io::Result<()> {
        let path = self.path(name);
        open_regular(&path, Link::Followed)?.0.sync_all()?;
        durable::sync_dir_of(&path)
    }

    /// Names and lengths in bytes of the entries, sorted by name, without those that begin with a
    /// dot; 0 for anything but a regular file. Empty when the directory is absent.
    fn list(&self, directory: &str) -> io::Result<Vec<(String, u64)>> {
        let found = self.entries(directory)?.into_iter();
        Ok(found
            .map(|(name, about)| (name, if about.is_file() { about.len() } else { 0 }))
            .collect())
    }

    /// Names of the regular files of `data`, sorted: nothing else there was made by a writer of
    /// this program.
    fn orphan_candidates(&self) -> io::Result<Vec<String>> {
        let families = self.entries("data")?.into_iter();
        Ok(families
            .filter(|(_, about)| about.is_file())
            .map(|(name, _)| name)
            .collect())
    }

    /// Removes temporary files (`.NAME.tmp`) of the medium's directories that were not changed for
    /// a day.
    fn collect(&self) -> io::Result<()> {
        let directories = DIRECTORIES.iter().map(|name| self.path(name));
        for directory in directories.chain([self.root.clone()]) {
            leftovers::collect(&directory, |name| {
                name.starts_with('.') && name.ends_with(".tmp")
            })?;
        }
        Ok(())
    }

    /// Removes the file, and syncs its directory. No error when it is absent.
    fn remove(&self, name: &str) -> io::Result<()> {
        let path = self.path(name);
        match fs::remove_file(&path) {
            Err(error) if is_absent(&error) => Ok(()),
            Err(error) => Err(error),
            Ok(()) => durable::sync_dir_of(&path),
        }
    }

    /// Locks the directory `data` until the result is dropped: shared, and waits for it, or with
    /// `alone` exclusively, and returns `None` when somebody has the lock.
    fn lock_writers(&self, alone: bool) -> io::Result<Option<Box<dyn Send>>> {
        let directory = open_directory(&self.path("data"))?;
        let operation = if alone {
            FlockOperation::NonBlockingLockExclusive
        } else {
            FlockOperation::LockShared
        };
        match flock(&directory, operation) {
            Ok(()) => Ok(Some(Box::new(Locked::from(directory)))),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Locks `directory` exclusively, and waits for it. `NotFound` when it is absent.
    fn lock_changes(&self, directory: &str) -> io::Result<Box<dyn Send>> {
        let directory = open_directory(&self.path(directory))?;
        flock(&directory, FlockOperation::LockExclusive)?;
        Ok(Box::new(Locked::from(directory)))
    }

    /// Whether the directory is absent, or has nothing but empty directories of a medium and an
    /// unfinished `medium.json`.
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

    /// Makes the directory of the medium and those in it with mode 0700, where they are absent, and
    /// syncs them.
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

    /// The path, for messages.
    fn shown(&self) -> String {
        self.root.display().to_string()
    }
}

/// Opens a directory for reading. It does not wait if a named pipe is in its place, and fails then.
fn open_directory(path: &Path) -> io::Result<File> {
    let flags = OFlags::DIRECTORY | OFlags::NONBLOCK | OFlags::RDONLY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, rustix::fs::Mode::empty());
    Ok(File::from(opened?))
}

/// Whether an error of [`Store::read`] means that what was found cannot be an object of a medium:
/// it is too long, or no regular file.
pub(crate) fn is_misfit(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::FileTooLarge || is_not_regular(error)
}

/// Whether an error means that the file or directory does not exist.
fn is_absent(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

struct LocalUpload {
    file: File,
    path: PathBuf,
    writeback: Writeback,
    finished: bool,
}

impl Write for LocalUpload {
    /// Writes to the file, and lets the kernel begin to write it to disk; nothing is synced.
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
    /// Syncs the file and its directory. After this call, dropping it no longer removes the file.
    fn finish(mut self: Box<Self>) -> io::Result<()> {
        self.file.sync_all()?;
        durable::sync_dir_of(&self.path)?;
        self.finished = true;
        Ok(())
    }
}

impl Drop for LocalUpload {
    /// Removes the file, unless it was finished.
    fn drop(&mut self) {
        if !self.finished {
            // If it cannot be removed, it is an orphan, which the next writer removes.
            drop(fs::remove_file(&self.path));
        }
    }
}
