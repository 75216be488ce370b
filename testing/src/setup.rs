//! Places and keys of a test, and the loadable extension.
//!
//! Must not: put a key on a command line.

use std::path::{Path, PathBuf};

use strongroom_sqlite::{KeySource, OpenOptions};

use crate::random::Random;

pub use strongroom_testing_support::key::raw_key;
pub use strongroom_testing_support::product::sqlite_extension as extension;

/// A directory of a test's own, with a directory for temporary files and raw keys in files.
pub struct Room {
    directory: tempfile::TempDir,
}

impl Room {
    /// A new, empty room with the keys `first` and `second`.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn new(random: &mut Random) -> std::io::Result<Self> {
        let directory = tempfile::tempdir()?;
        std::fs::create_dir(directory.path().join("tmp"))?;
        std::fs::create_dir(directory.path().join("keys"))?;
        let room = Self { directory };
        room.put("keys/first", raw_key(random).as_bytes())?;
        room.put("keys/second", raw_key(random).as_bytes())?;
        Ok(room)
    }

    /// The file `name` in the room.
    #[must_use]
    pub fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The room itself.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Writes a file.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn put(&self, name: &str, bytes: &[u8]) -> std::io::Result<()> {
        use std::io::Write as _;
        std::fs::File::create(self.at(name))?.write_all(bytes)
    }

    /// The URI of the sealed database `name`, under the key `first`; `more` begins with `&` or is
    /// empty.
    #[must_use]
    pub fn sealed_uri(&self, name: &str, more: &str) -> String {
        let (database, key) = (self.at(name), self.at("keys/first"));
        format!(
            "file:{}?key_file={}{more}",
            database.display(),
            key.display()
        )
    }

    /// The URI of the plain database `name` on SQLite's own VFS.
    #[must_use]
    pub fn plain_uri(&self, name: &str) -> String {
        format!("file:{}?vfs=unix", self.at(name).display())
    }

    /// Options with a key of the room.
    #[must_use]
    pub fn options(&self, key: &str) -> OpenOptions {
        let file = self.at("keys").join(key);
        OpenOptions {
            key: Some(KeySource::File(file)),
            create: true,
            ..OpenOptions::default()
        }
    }
}

/// A Python whose `sqlite3` module can load extensions: the distribution's. `STRONGROOM_PYTHON`
/// names another.
#[must_use]
pub fn python() -> PathBuf {
    std::env::var_os("STRONGROOM_PYTHON")
        .map_or_else(|| PathBuf::from("/usr/bin/python3"), PathBuf::from)
}
