//! The three databases with the same rows, and their keys.
//!
//! Must not: be inside a measurement.

use std::path::PathBuf;

use rusqlite::Connection;
use strongroom_benches::Failure;
use strongroom_benches::hex::new_key_file;
use strongroom_benches::tpch;
use strongroom_benches::variant::Variant;
use strongroom_keyring::{Keyring, Provider};
use strongroom_sqlite::KeySource;
use tempfile::TempDir;

use crate::{Options, note};

/// A directory with one loaded database per peer, gone when dropped.
pub(crate) struct Databases {
    directory: TempDir,
    cache_kib: u32,
    /// File sizes in bytes: stock, GCM, CTR.
    pub(crate) sizes: [u64; 3],
}

impl Databases {
    /// Makes and loads them.
    pub(crate) fn make(options: &Options) -> Result<Self, Failure> {
        let directory =
            tempfile::Builder::new().prefix("strongroom-bench-").tempdir_in(&options.directory)?;
        let mut databases = Self { directory, cache_kib: options.cache_kib, sizes: [0; 3] };
        new_key_file(&databases.key_file())?;
        databases.make_keyring()?;
        note(&format!("loading TPC-H at scale {}", options.scale));
        let connections = Variant::ALL
            .iter()
            .map(|variant| databases.open(*variant))
            .collect::<Result<Vec<_>, _>>()?;
        let borrowed: Vec<&Connection> = connections.iter().collect();
        tpch::load(&borrowed, options.scale)?;
        drop(connections);
        for (size, variant) in databases.sizes.iter_mut().zip(Variant::ALL) {
            *size = std::fs::metadata(databases.directory.path().join(file_name(variant)))?.len();
        }
        Ok(databases)
    }

    fn make_keyring(&self) -> Result<(), Failure> {
        let root = self.directory.path().join("root.key");
        new_key_file(&root)?;
        let provider = Provider::parse(&format!("file:{}", root.display()))?;
        Keyring::init(&self.keyring(), &provider)?;
        Keyring::open(&self.keyring())?.create_key("bench")?;
        Ok(())
    }

    /// A path in the directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The database of `variant`.
    pub(crate) fn database(&self, variant: Variant) -> PathBuf {
        self.path(file_name(variant))
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
    pub(crate) fn open_at(&self, variant: Variant, path: &std::path::Path) -> Result<Connection, Failure> {
        let connection = variant.open(path, KeySource::File(self.key_file()))?;
        connection.pragma_update(None, "cache_size", -i64::from(self.cache_kib))?;
        connection.pragma_update(None, "temp_store", "FILE")?;
        Ok(connection)
    }
}

fn file_name(variant: Variant) -> &'static str {
    match variant {
        Variant::Stock => "stock.db",
        Variant::Gcm => "gcm.db",
        Variant::Ctr => "ctr.db",
    }
}
