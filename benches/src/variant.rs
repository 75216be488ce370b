//! The peers: stock SQLite, and the guard with each of its ciphers.
//!
//! Must not: give a peer a setting that the others do not get.

use std::path::Path;

use rusqlite::{Connection, OpenFlags};
use serde::Serialize;
use strongroom_sqlite::{Cipher, KeySource, OpenOptions};

use crate::Failure;

/// Who runs the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Variant {
    /// The bundled SQLite on its own VFS, "unix": nothing is sealed.
    Stock,
    /// The guard with AES-256-GCM, its default.
    Gcm,
    /// The guard with AES-256-CTR: no authentication.
    Ctr,
}

impl Variant {
    /// In the order of the tables' columns.
    pub const ALL: [Self; 3] = [Self::Stock, Self::Gcm, Self::Ctr];

    /// A word for file names and output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stock => "stock",
            Self::Gcm => "gcm",
            Self::Ctr => "ctr",
        }
    }

    /// Opens `path`, which is created if it does not exist; `key` is for the guard.
    ///
    /// # Errors
    /// SQLite's or the guard's.
    pub fn open(self, path: &Path, key: KeySource) -> Result<Connection, Failure> {
        match self {
            Self::Stock => stock(path),
            Self::Gcm => sealed(path, key, None, Cipher::Aes256Gcm),
            Self::Ctr => sealed(path, key, None, Cipher::Aes256Ctr),
        }
    }
}

/// Opens `path` on SQLite's own VFS, also when the guard is the process's default.
///
/// # Errors
/// SQLite's, or a path that is not UTF-8.
pub fn stock(path: &Path) -> Result<Connection, Failure> {
    let text = path.to_str().ok_or("the path is not UTF-8")?;
    // What SQLite's URI parser takes for syntax.
    let escaped = text.replace('%', "%25").replace('?', "%3f").replace('#', "%23");
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_URI
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Ok(Connection::open_with_flags(format!("file:{escaped}?vfs=unix"), flags)?)
}

/// Opens `path` through the guard.
///
/// # Errors
/// The guard's.
pub fn sealed(
    path: &Path,
    key: KeySource,
    keyring: Option<&Path>,
    cipher: Cipher,
) -> Result<Connection, Failure> {
    let options = OpenOptions {
        key: Some(key),
        keyring: keyring.map(Path::to_path_buf),
        cipher,
        create: true,
        ..OpenOptions::default()
    };
    Ok(strongroom_sqlite::open(path, &options)?)
}
