//! Where the tour's files are, and how its databases are opened.

use std::path::{Path, PathBuf};

use rusqlite::Connection;
use strongroom_benches::{Failure, variant};
use strongroom_sqlite::{Cipher, KeySource};

/// The directory of everything that the tour makes.
pub const OUT: &str = "demo-out";

/// TPC-H scale factor.
pub const SCALE: f64 = 0.1;

/// Texts in the tables: a column of few values, and words of the comments.
pub const KNOWN: [&str; 8] = [
    "DELIVER IN PERSON",
    "TAKE BACK RETURN",
    "COLLECT COD",
    "furiously",
    "carefully",
    "regular accounts",
    "pending deposits",
    "express requests",
];

/// The directory of the tour.
#[derive(Clone, Debug)]
pub struct Place {
    out: PathBuf,
}

impl Place {
    /// The directory as earlier parts of the tour left it. Creates it when it is missing.
    ///
    /// # Errors
    /// The operating system's.
    pub fn as_left() -> Result<Self, Failure> {
        let out = PathBuf::from(OUT);
        std::fs::create_dir_all(&out)?;
        Ok(Self { out })
    }

    /// A new, empty directory. Whatever an earlier tour left is removed.
    ///
    /// # Errors
    /// The operating system's.
    pub fn emptied() -> Result<Self, Failure> {
        match std::fs::remove_dir_all(OUT) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Self::as_left(),
        }
    }

    /// The directory itself.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.out
    }

    /// The path of a file in the directory.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.out.join(name)
    }

    /// The plain database.
    #[must_use]
    pub fn plain(&self) -> PathBuf {
        self.path("plain.db")
    }

    /// The sealed database.
    #[must_use]
    pub fn sealed(&self) -> PathBuf {
        self.path("sealed.db")
    }

    /// The file with the key that the sealed database is made with.
    #[must_use]
    pub fn key_file(&self) -> PathBuf {
        self.path("sealed.key")
    }

    /// Opens the plain database on stock SQLite's own VFS.
    ///
    /// # Errors
    /// SQLite's.
    pub fn open_plain(&self) -> Result<Connection, Failure> {
        variant::stock(&self.plain())
    }

    /// Opens a sealed database with the key in the file; creates it when it is missing.
    ///
    /// # Errors
    /// The VFS's.
    pub fn open_sealed(&self, path: &Path, key: &Path) -> Result<Connection, Failure> {
        let key = KeySource::File(key.to_path_buf());
        variant::sealed(path, key, None, Cipher::Aes256Gcm)
    }
}
