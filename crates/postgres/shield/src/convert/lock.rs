//! Locks an instance against other conversions.
//!
//! Invariants: the lock is on the data directory itself, so that no file remains; the kernel
//! releases it when the process ends. It excludes other conversions, not servers: a server with the
//! shield is refused by the state of the conversion, one without it by the sealed control file.
//!
//! Must not: be taken by a server.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use strongroom_format::code;
use strongroom_format::postgres::{CONFIG_FILE, HEADER_FILE};
use strongroom_keyring::{Error, Locked};

use super::checks::{Owner, check_no_server, read_major};

/// A data directory, locked against other conversions.
pub(super) struct ConversionLock {
    directory: PathBuf,
    owner: Owner,
    major: u32,
    handle: Locked,
}

impl ConversionLock {
    /// Locks a directory for a conversion by the caller, until the value is dropped. No server may
    /// be running on it, and nobody else may hold this lock. Does not wait; makes no file.
    ///
    /// # Errors
    /// SR-7011 when it is no data directory of a supported version; SR-7008 when a server runs;
    /// SR-7003 when the lock is held already; SR-5001 when the system reports an error.
    pub(super) fn new(directory: &Path) -> Result<Self, Error> {
        let lock = Self::while_server_may_run(directory)?;
        check_no_server(&lock.directory)?;
        Ok(lock)
    }

    /// Takes the same lock as [`Self::new`], on which conversions and changes of the header exclude
    /// one another, until the value is dropped; but a server may be running. Does not wait.
    ///
    /// # Errors
    /// SR-7011 when it is no data directory of a supported version; SR-7003 when the lock is held
    /// already; SR-5001 when the system reports an error.
    pub(super) fn while_server_may_run(directory: &Path) -> Result<Self, Error> {
        let major = read_major(directory)?;
        let io = |error| Error::io(directory.display().to_string(), error);
        let directory = directory.canonicalize().map_err(io)?;
        let handle = File::open(&directory).map_err(io)?;
        match flock(&handle, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let detail = "another process is converting it";
                return Err(Error::new(&code::PG_CONVERTING, detail));
            }
            Err(error) => return Err(io(error.into())),
        }
        let owner = Owner::of(&handle, &directory)?;
        Ok(Self {
            directory,
            owner,
            major,
            handle: Locked::from(handle),
        })
    }

    /// Returns the canonical path of the data directory.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the owner of the data directory, to whom new files are given.
    pub(super) const fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Returns PostgreSQL's major version.
    pub(super) const fn major(&self) -> u32 {
        self.major
    }

    /// Syncs the data directory, so that its entries are durable. SR-5001 if that fails.
    pub(super) fn sync(&self) -> Result<(), Error> {
        let synced = self.handle.sync_all();
        synced.map_err(|error| Error::io(self.directory.display().to_string(), error))
    }

    /// Removes header and configuration of an instance that is plain again, durably. They need not
    /// exist. SR-5001 if that fails.
    pub(super) fn remove_header(&self) -> Result<(), Error> {
        for name in [HEADER_FILE, CONFIG_FILE] {
            remove(&self.directory.join(name))?;
        }
        self.sync()
    }
}

/// Removes a file; no error when it does not exist. Does not sync. SR-5001 if that fails.
pub(super) fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(Error::io(path.display().to_string(), error))
        }
        _ => Ok(()),
    }
}
