//! A database file that is opened for reading through the VFS below, without SQLite and without a
//! key.
//!
//! POSIX locks belong to a process: closing any descriptor of a file drops all of them. The VFS
//! below keeps account of that, and `std::fs::File` does not. So a database that a connection of
//! this process may have open is read through this type only.
//!
//! Must not: write.
#![expect(unsafe_code, reason = "opens a C object")]

use std::ffi::c_int;
use std::path::Path;
use std::time::Duration;

use strongroom_format::code;
use strongroom_keyring::{Error, storage};

use crate::bypass;
use crate::ffi::{
    SQLITE_BUSY, SQLITE_LOCK_SHARED, SQLITE_OPEN_MAIN_DB, SQLITE_OPEN_READONLY, sqlite3_file,
};
use crate::lower::LowerFile;
use crate::registration;
use crate::sqlite_code::SqliteCode;

/// How often the shared lock is tried, 50 ms apart.
const TRIES: u32 = 100;

/// A file open for reading; closed on drop.
pub(crate) struct ReadOnlyFile {
    lower: LowerFile,
    path: String,
    /// The file object's memory, at an address that does not move.
    _memory: Vec<u64>,
    /// The name, to which the VFS below keeps a pointer.
    _name: Vec<u8>,
    /// The file was opened here, and is closed here.
    own: bool,
}

impl ReadOnlyFile {
    /// Opens the database file at `path` for reading, through the VFS below. Takes no lock.
    ///
    /// # Errors
    /// SR-1006 when it does not exist or SQLite cannot make its path absolute; SR-6009 when the
    /// path is not UTF-8; SR-5001 when the VFS below does not open it; SR-9001 when the sealing VFS
    /// is not registered.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let text = path
            .to_str()
            .ok_or_else(|| Error::new(&code::URI, "the path is not UTF-8"))?;
        if storage::of(path).about(path).is_err() {
            return Err(Error::new(&code::NOT_FOUND, text));
        }
        let absolute =
            registration::absolute(text).ok_or_else(|| Error::new(&code::NOT_FOUND, text))?;
        let below = registration::below()
            .ok_or_else(|| Error::new(&code::BUG, "the sealing VFS is not registered"))?;
        // SQLite's form of a file name: four zero bytes before it, and an empty list of parameters
        // behind it.
        let mut name = vec![0; 4];
        name.extend_from_slice(absolute.as_bytes());
        name.extend_from_slice(&[0; 4]);
        // SAFETY: a registered VFS.
        let size = unsafe { (*below).os_file_size };
        let words = usize::try_from(size).unwrap_or(0).div_ceil(8).max(8);
        let mut memory = vec![0_u64; words];
        let file = memory.as_mut_ptr().cast::<sqlite3_file>();
        let open = bypass::original_open(below);
        let open = open.ok_or_else(|| Error::new(&code::BUG, "VFS without xOpen"))?;
        let flags = SQLITE_OPEN_MAIN_DB | SQLITE_OPEN_READONLY;
        let mut granted: c_int = 0;
        // SAFETY: `file` has the size that the VFS asks for; the name is in SQLite's form and
        // outlives the file.
        let rc = unsafe {
            open(
                below,
                name.as_ptr().add(4).cast(),
                file,
                flags,
                &raw mut granted,
            )
        };
        if rc != 0 {
            let error = std::io::Error::last_os_error();
            return Err(Error::io(absolute, error));
        }
        // SAFETY: opened just now; closed in `drop`, before its memory goes.
        let lower = unsafe { LowerFile::new(file) };
        Ok(Self {
            lower,
            path: absolute,
            _memory: memory,
            _name: name,
            own: true,
        })
    }

    /// Wraps the file below of a database that stays open as long as this value is used. The file
    /// is not locked, and `drop` does not close it.
    pub(crate) fn borrowed(lower: LowerFile, path: &str) -> Self {
        Self {
            lower,
            path: path.to_owned(),
            _memory: Vec::new(),
            _name: Vec::new(),
            own: false,
        }
    }

    /// Takes SQLite's shared lock, so that no writer changes pages meanwhile. Tries for up to 5
    /// seconds, and sleeps in between. The lock is released on drop.
    ///
    /// # Errors
    /// SR-6010 when a writer keeps it all the time; SR-5001 for any other error of locking.
    pub(crate) fn lock(&self) -> Result<(), Error> {
        for _ in 0..TRIES {
            match self.lower.lock(SQLITE_LOCK_SHARED) {
                Ok(()) => return Ok(()),
                Err(SqliteCode(rc)) if rc & 0xff == SQLITE_BUSY => {
                    std::thread::sleep(Duration::from_millis(50));
                }
                Err(rc) => return Err(self.failed(rc)),
            }
        }
        Err(Error::new(&code::BUSY, self.path.as_str()))
    }

    /// Returns the file's length in bytes.
    ///
    /// # Errors
    /// SR-5001 when the system reports an error.
    pub(crate) fn size(&self) -> Result<u64, Error> {
        self.lower.size().map_err(|rc| self.failed(rc))
    }

    /// Reads exactly `out.len()` bytes at `at`.
    ///
    /// # Errors
    /// SR-5001, also when the file is shorter.
    pub(crate) fn read(&self, out: &mut [u8], at: u64) -> Result<(), Error> {
        self.lower.read(out, at).map_err(|rc| self.failed(rc))
    }

    /// Reads `out.len()` bytes at `at`. Returns false when the file is shorter; the missing bytes
    /// are zero then.
    ///
    /// # Errors
    /// SR-5001 when the system reports an error.
    pub(crate) fn read_whole(&self, out: &mut [u8], at: u64) -> Result<bool, Error> {
        self.lower.read_whole(out, at).map_err(|rc| self.failed(rc))
    }

    /// Returns the first `len` bytes of the file, or fewer when it is shorter.
    ///
    /// # Errors
    /// SR-5001 when the system reports an error.
    pub(crate) fn head(&self, len: usize) -> Result<Vec<u8>, Error> {
        let mut head = vec![0; len];
        if !self
            .lower
            .read_whole(&mut head, 0)
            .map_err(|rc| self.failed(rc))?
        {
            head.truncate(usize::try_from(self.size()?).unwrap_or(len));
        }
        Ok(head)
    }

    /// Makes the error SR-5001 for a result code of SQLite's, with the path of this file. Reports
    /// nothing.
    fn failed(&self, rc: SqliteCode) -> Error {
        Error::new(
            &code::IO,
            format!("{}: SQLite result code {}", self.path, rc.0),
        )
    }
}

impl Drop for ReadOnlyFile {
    /// Releases the lock and closes the file, both only if it was opened here; a borrowed file is
    /// left as it is. An error is reported (SR-5001), and has no other effect.
    fn drop(&mut self) {
        if !self.own {
            return;
        }
        // Nothing was written, so there is nothing that a failure could lose.
        let closed = self.lower.unlock(0).and_then(|()| self.lower.close());
        if closed.is_err() {
            crate::report::report(&code::IO, self.path.as_str());
        }
    }
}

/// Opens the database file at `path` for reading, without a lock, and returns its first `len`
/// bytes, or fewer when it is shorter.
///
/// # Errors
/// SR-1006 when it does not exist; SR-6009 when the path is not UTF-8; SR-5001 when it cannot be
/// read; SR-9001 when the sealing VFS is not registered.
pub fn head(path: &Path, len: usize) -> Result<Vec<u8>, Error> {
    ReadOnlyFile::open(path)?.head(len)
}
