//! A data directory: its version, whether it is sealed, being converted or in use, and whose it is.
//!
//! Must not: need a key; change anything.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use strongroom_format::code;
use strongroom_format::postgres::{CONFIG_FILE, CONVERT_FILE, HEADER_FILE};
use strongroom_keyring::Error;
use strongroom_postgres_shield::data_directory::{is_own, major_version, running_server};
use strongroom_postgres_shield::instance;

/// A data directory.
pub struct Directory {
    /// Absolute, with links resolved: programs may be started in another working directory.
    pub path: PathBuf,
    /// As it was named, for messages.
    named: PathBuf,
}

impl Directory {
    /// Returns the directory at `path`, which has to hold an instance.
    ///
    /// # Errors
    /// SR-7011 when it holds none; as [`Self::at`].
    pub fn existing(path: &Path) -> Result<Self, Error> {
        let directory = Self::at(path)?;
        if directory.major().is_none() && !directory.is_sealed() {
            return Err(directory.failure(&code::PG_NOT_INSTANCE, "no PG_VERSION in it"));
        }
        Ok(directory)
    }

    /// Returns the directory at `path`, which has to hold a sealed instance.
    ///
    /// # Errors
    /// SR-1006 when nothing is there, SR-7011 when it holds no instance; SR-7003 while it is
    /// converted and has no header, SR-7004 when it is not sealed; SR-5001 when the system reports
    /// an error.
    pub fn sealed(path: &Path) -> Result<Self, Error> {
        let directory = Self::existing(path)?;
        directory.check_sealed()?;
        Ok(directory)
    }

    /// Returns the directory at `path`, whatever it holds.
    ///
    /// # Errors
    /// SR-1006 when nothing is there, SR-7011 when it is no directory; SR-5001 when the system
    /// reports an error.
    pub fn at(path: &Path) -> Result<Self, Error> {
        let resolved = path.canonicalize().map_err(|e| Error::opening(path, e))?;
        if !resolved.is_dir() {
            let detail = format!("{}: not a directory", path.display());
            return Err(Error::new(&code::PG_NOT_INSTANCE, detail));
        }
        Ok(Self {
            path: resolved,
            named: path.to_path_buf(),
        })
    }

    /// Returns an error of this code about this directory.
    #[must_use]
    pub fn failure(&self, code: &'static code::Code, detail: &str) -> Error {
        Error::new(code, format!("{}: {detail}", self.named.display()))
    }

    /// Looks on disk whether the directory has a file of the header's name. The file is not read,
    /// and may be damaged. False also if the system reports an error.
    #[must_use]
    pub fn is_sealed(&self) -> bool {
        instance::is_sealed(&self.path)
    }

    /// Checks that the instance is sealed: that the directory has a header.
    ///
    /// # Errors
    /// SR-7003 while it is converted and has no header, SR-7004 when it is not sealed.
    pub fn check_sealed(&self) -> Result<(), Error> {
        if self.is_sealed() {
            return Ok(());
        }
        // The first thing that sealing makes, and the last that opening removes: the header is not
        // there yet, or no more.
        if self.is_converting() {
            return Err(self.failure(&code::PG_CONVERTING, "strongroom.convert is there"));
        }
        let detail = if self.path.join(CONFIG_FILE).exists() {
            format!(
                "{CONFIG_FILE} is there, {HEADER_FILE} is not: run `strongroom pg encrypt` again if it was interrupted, else restore the header from a backup"
            )
        } else {
            format!("no {HEADER_FILE} in it")
        };
        Err(self.failure(&code::PG_NOT_SEALED, &detail))
    }

    /// Looks on disk whether a conversion was begun and not finished. False also if the system
    /// reports an error.
    #[must_use]
    pub fn is_converting(&self) -> bool {
        self.path.join(CONVERT_FILE).symlink_metadata().is_ok()
    }

    /// Reads PostgreSQL's major version from `PG_VERSION`; it need not be a supported one. `None`
    /// when the file is missing or malformed, or cannot be read.
    #[must_use]
    pub fn major(&self) -> Option<u32> {
        major_version(&self.path)
    }

    /// Returns the process id of the server that runs on the directory now: the one that
    /// `postmaster.pid` names, if it exists. `None` when none does, or the file cannot be read.
    #[must_use]
    pub fn server(&self) -> Option<u32> {
        running_server(&self.path)
    }

    /// Checks that no server runs on it: SR-7008 while one does.
    pub(crate) fn check_stopped(&self) -> Result<(), Error> {
        match self.server() {
            Some(pid) => Err(self.failure(&code::PG_RUNNING, &format!("process {pid}"))),
            None => Ok(()),
        }
    }

    /// Returns whether the data directory belongs to the effective user of this process. False also
    /// if it cannot be examined.
    #[must_use]
    pub fn is_own(&self) -> bool {
        is_own(&self.path)
    }

    /// Refuses root and everybody but the data directory's owner, as PostgreSQL does, by the
    /// effective user of the process.
    ///
    /// # Errors
    /// SR-7015 for root; SR-5001 for another user, or when the directory's owner cannot be read.
    pub fn check_user(&self) -> Result<(), Error> {
        refuse_root()?;
        let about = std::fs::metadata(&self.path).map_err(|e| Error::on_path(&self.path, e))?;
        let me = rustix::process::geteuid().as_raw();
        if about.uid() == me {
            return Ok(());
        }
        let detail = format!("it belongs to user {}, this is user {me}", about.uid());
        Err(self.failure(&code::IO, &detail))
    }

    /// Returns the path for messages, as it was named.
    #[must_use]
    pub fn shown(&self) -> String {
        self.named.display().to_string()
    }
}

/// Refuses to run as root, by the effective user, as PostgreSQL's programs do.
///
/// # Errors
/// SR-7015 for root.
pub fn refuse_root() -> Result<(), Error> {
    if rustix::process::geteuid().is_root() {
        return Err(Error::new(&code::PG_ROOT, ""));
    }
    Ok(())
}
