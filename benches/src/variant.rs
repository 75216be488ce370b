//! The peers: stock SQLite, and the VFS with each of its ciphers.
//!
//! Must not: give a peer a setting that the others do not get.

use std::path::Path;

use rusqlite::{Connection, OpenFlags};
use strongroom_sqlite::{Cipher, KeySource, OpenOptions};

use crate::Failure;

/// Who runs the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// The bundled SQLite on its own VFS, "unix": nothing is sealed.
    Stock,
    /// The VFS with AES-256-GCM, its default.
    Gcm,
    /// The VFS with AES-256-CTR: no authentication.
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

    /// The peer of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|variant| variant.name() == name)
    }

    /// Opens `path`, which is created if it does not exist; `key` is for the VFS.
    ///
    /// # Errors
    /// SQLite's or the VFS's.
    pub fn open(self, path: &Path, key: KeySource) -> Result<Connection, Failure> {
        match self {
            Self::Stock => stock(path),
            Self::Gcm => sealed(path, key, None, Cipher::Aes256Gcm),
            Self::Ctr => sealed(path, key, None, Cipher::Aes256Ctr),
        }
    }
}

/// Opens `path` on SQLite's own VFS, also when the VFS is the process's default. See
/// [`vfs_is_registered`].
///
/// # Errors
/// SQLite's, or a path that is not UTF-8.
pub fn stock(path: &Path) -> Result<Connection, Failure> {
    let text = path.to_str().ok_or("the path is not UTF-8")?;
    // What SQLite's URI parser takes for syntax.
    let escaped = text
        .replace('%', "%25")
        .replace('?', "%3f")
        .replace('#', "%23");
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_URI
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Ok(Connection::open_with_flags(
        format!("file:{escaped}?vfs=unix"),
        flags,
    )?)
}

/// Whether this process has registered the VFS. It then watches the statements of stock connections
/// too (for `ATTACH ... KEY`), which costs them time: a stock peer is measured where this is false.
#[must_use]
pub fn vfs_is_registered() -> bool {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_URI;
    // SQLite refuses a VFS that it does not know.
    Connection::open_with_flags("file::memory:?vfs=strongroom", flags).is_ok()
}

/// Opens `path` through the VFS.
///
/// # Errors
/// The VFS's.
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

#[cfg(test)]
mod tests {
    use super::{Variant, vfs_is_registered};
    use strongroom_sqlite::KeySource;

    #[test]
    fn stock_leaves_the_guard_out_of_the_process_and_a_sealed_peer_brings_it_in() {
        let directory = tempfile::tempdir().unwrap();
        let key = directory.path().join("key");
        crate::key_files::new_key_file(&key).unwrap();
        let open = |variant: Variant| {
            variant
                .open(
                    &directory.path().join(variant.name()),
                    KeySource::File(key.clone()),
                )
                .unwrap()
        };
        // Only this test of the crate opens a sealed database.
        drop(open(Variant::Stock));
        assert!(!vfs_is_registered());
        drop(open(Variant::Gcm));
        assert!(vfs_is_registered());
    }
}
