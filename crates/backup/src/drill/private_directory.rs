//! The private directory of a restore test.
//!
//! Invariant: it and everything in it is gone when it is dropped.
//!
//! Must not: be named so that another user can guess it.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use strongroom_crypto::random16;
use strongroom_format::{code, hex};

use crate::io_error::io_error;
use crate::{Error, Result};

/// Longest path of a socket (`sun_path`, unix(7)), in bytes.
const SOCKET_MAX: usize = 107;
/// The server's port, which is only a part of the name of its socket.
pub(super) const PORT: &str = "5432";

/// A directory that only this user can enter, and that is removed when this is dropped.
pub(super) struct PrivateDirectory {
    root: PathBuf,
}

impl PrivateDirectory {
    /// Makes a directory with a random name and mode 0700 in `scratch`. SR-1001 when its path is
    /// too long for a socket; SR-5001 when the system reports an error.
    pub(super) fn create(scratch: &Path) -> Result<Self> {
        let absolute = std::path::absolute(scratch).map_err(|error| io_error(scratch, error))?;
        let random: String = hex::hex(&random16()?).chars().take(12).collect();
        let root = absolute.join(format!("strongroom-{random}"));
        let socket = root.join("run").join(format!(".s.PGSQL.{PORT}.lock"));
        if socket.as_os_str().len() > SOCKET_MAX {
            let detail = format!(
                "{}: too long a path for a socket; use --scratch",
                root.display()
            );
            return Err(Error::new(&code::USAGE, detail));
        }
        let made = DirBuilder::new().mode(0o700).create(&root);
        made.map_err(|error| io_error(&root, error))?;
        Ok(Self { root })
    }

    /// The private directory itself.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// The path of the cluster's data directory, which the restore makes.
    pub(super) fn data(&self) -> PathBuf {
        self.root.join("data")
    }
}

impl Drop for PrivateDirectory {
    /// Removes the directory with everything in it, as far as that is possible.
    fn drop(&mut self) {
        // An error cannot be reported here; no other user can read what remains.
        drop(fs::remove_dir_all(&self.root));
    }
}
