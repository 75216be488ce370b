//! The files of a store: the operations that it needs, and their implementation on a directory.
//!
//! Invariant: the manifest is replaced whole (`strongroom_keyring::durable`), and only after the
//! blocks that it names are durable. Must not: know what is in the files.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use strongroom_format::code;
use strongroom_keyring::{Error, Locked, durable};

use super::publication::{Publication, Publisher, Unpublished};

/// The object header.
pub const HEADER_NAME: &str = "strongroom.header";
/// The manifest.
pub const MANIFEST_NAME: &str = "strongroom.manifest";
/// The block file.
pub const BLOCKS_NAME: &str = "strongroom.blocks";
/// The freshness anchor, when it is a file.
pub const ANCHOR_NAME: &str = "strongroom.anchor";
/// The store's own log.
pub const LOG_NAME: &str = "strongroom.log";

/// The file operations of a store. Offsets and lengths are in bytes.
pub trait Files: Send {
    /// Fills `out` from the block file, beginning at offset `at`.
    ///
    /// # Errors
    /// The system's; `UnexpectedEof` if the file ends before.
    fn read_block(&mut self, at: u64, out: &mut [u8]) -> io::Result<()>;
    /// Writes all `bytes` to the block file, at offset `at`. Durable after the next publication.
    ///
    /// # Errors
    /// The system's.
    fn write_block(&mut self, at: u64, bytes: &[u8]) -> io::Result<()>;
    /// Sets the length of the block file to `len` bytes; does not sync.
    ///
    /// # Errors
    /// The system's.
    fn cut_blocks(&mut self, len: u64) -> io::Result<()>;
    /// The whole manifest; `None` if there is none.
    ///
    /// # Errors
    /// The system's.
    fn read_manifest(&mut self) -> io::Result<Option<Vec<u8>>>;
    /// Begins to carry out this publication, and returns at once. The block file may be read and
    /// written meanwhile. The one before must have ended.
    fn publish(&mut self, publication: Publication);
    /// How the publication has ended, once. `None` if it goes on, or there is none; with `wait`,
    /// waits for its end.
    fn published(&mut self, wait: bool) -> Option<Result<(), Unpublished>>;
}

/// The files of a store in a directory of the operating system.
pub struct Directory {
    blocks: Arc<File>,
    manifest: PathBuf,
    publisher: Publisher,
    /// Held until the store is closed.
    #[expect(dead_code, reason = "held for the lock that it is")]
    lock: Locked,
}

impl Directory {
    /// Opens the files in `path`, whose header has to exist, and locks the header until the store
    /// is closed; makes an empty block file, durably, if there is none.
    ///
    /// # Errors
    /// SR-8025 if another process has it open; SR-8015 if the disk is full; SR-8023 if a file
    /// cannot be opened or made.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let header = path.join(HEADER_NAME);
        let lock = File::open(&header).map_err(|error| path_error(&header, error))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => {
                return Err(Error::new(&code::STORE_IN_USE, path.display().to_string()));
            }
            Err(std::fs::TryLockError::Error(error)) => return Err(path_error(&header, error)),
        }
        let blocks = path.join(BLOCKS_NAME);
        let made = !blocks.exists();
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&blocks)
            .map_err(|error| path_error(&blocks, error))?;
        if made {
            durable::sync_dir_of(&blocks).map_err(|error| path_error(&blocks, error))?;
        }
        Ok(Self {
            blocks: Arc::new(file),
            manifest: path.join(MANIFEST_NAME),
            publisher: Publisher::default(),
            lock: Locked::from(lock),
        })
    }
}

impl Files for Directory {
    /// Fills `out` from the block file, beginning at offset `at`. `UnexpectedEof` if the file ends
    /// before.
    fn read_block(&mut self, at: u64, out: &mut [u8]) -> io::Result<()> {
        self.blocks.read_exact_at(out, at)
    }

    /// Writes at this offset, without a sync. Fails as the system does.
    fn write_block(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.blocks.write_all_at(bytes, at)
    }

    /// Sets the block file's length, without a sync; a longer one would be filled with zeros. Fails
    /// as the system does.
    fn cut_blocks(&mut self, len: u64) -> io::Result<()> {
        self.blocks.set_len(len)
    }

    /// Reads the whole manifest; `None` if the file does not exist. Fails as the system does.
    fn read_manifest(&mut self) -> io::Result<Option<Vec<u8>>> {
        match std::fs::read(&self.manifest) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Carries the publication out on another thread, or on this one if the system gives none.
    fn publish(&mut self, publication: Publication) {
        let (blocks, manifest) = (Arc::clone(&self.blocks), self.manifest.clone());
        self.publisher.start(move || {
            publication.carry_out(
                || blocks.sync_data(),
                |bytes| durable::replace(&manifest, bytes, 0o600),
            )
        });
    }

    /// How the publication has ended, once; with `wait`, waits for its end.
    fn published(&mut self, wait: bool) -> Option<Result<(), Unpublished>> {
        self.publisher.ended(wait)
    }
}

impl Drop for Directory {
    /// Waits for a publication that goes on: nothing may be written when the lock is given back.
    fn drop(&mut self) {
        drop(self.publisher.ended(true));
    }
}

/// The error of a failed call on the file `path`: SR-8015 if the disk or quota is full, otherwise
/// SR-8023.
pub(super) fn path_error(path: &Path, error: io::Error) -> Error {
    io_error(path.display().to_string(), error)
}

/// The error of a failed call, described by `what`: SR-8015 if the disk or quota is full, otherwise
/// SR-8023.
pub(super) fn io_error(what: impl Into<String>, error: io::Error) -> Error {
    let full = matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    );
    let code = if full {
        &code::ZONE_DISK
    } else {
        &code::STORE_IO
    };
    Error::caused(code, what, error)
}
