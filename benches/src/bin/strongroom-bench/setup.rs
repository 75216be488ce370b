//! The three databases with the same rows, and their keys.
//!
//! Must not: be inside a measurement.

use std::path::{Path, PathBuf};

use rusqlite::Connection;
use strongroom_benches::Failure;
use strongroom_benches::variant::Variant;
use strongroom_sqlite::KeySource;

/// Where the databases and their keys are, and how they are opened.
pub(crate) struct Place {
    directory: PathBuf,
    cache_kib: u32,
}

impl Place {
    /// In `directory`, with a page cache of `cache_kib` for each connection.
    pub(crate) fn at(directory: PathBuf, cache_kib: u32) -> Self {
        Self {
            directory,
            cache_kib,
        }
    }

    /// The directory.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// A path in the directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// The database of `variant`.
    pub(crate) fn database(&self, variant: Variant) -> PathBuf {
        self.path(&format!("{}.db", variant.name()))
    }

    /// The raw key of the sealed databases.
    pub(crate) fn key_file(&self) -> PathBuf {
        self.path("bench.key")
    }

    /// A keyring with the key "bench".
    pub(crate) fn keyring(&self) -> PathBuf {
        self.path("keyring")
    }

    /// Opens the loaded database of `variant`.
    pub(crate) fn open(&self, variant: Variant) -> Result<Connection, Failure> {
        self.open_at(variant, &self.database(variant))
    }

    /// Opens another database as `variant`, with the same settings.
    pub(crate) fn open_at(&self, variant: Variant, path: &Path) -> Result<Connection, Failure> {
        let connection = variant.open(path, KeySource::File(self.key_file()))?;
        connection.pragma_update(None, "cache_size", -i64::from(self.cache_kib))?;
        connection.pragma_update(None, "temp_store", "FILE")?;
        Ok(connection)
    }
}
