//! Golden stores: what released versions have written is opened, read and written on by this one,
//! and what another version has written is told from damage.
//!
//! Each directory of testing/vectors/columns is a store as one version left it, with a list of what
//! it holds, `contents.txt`. They are never changed: docs/internals/columns-versions.md.

mod contents;
mod make;
mod open;
mod versions;

use std::path::{Path, PathBuf};

use strongroom_columns_zone::store::{ANCHOR_NAME, FileAnchor, LOG_NAME, LogFile, Options, Store};
use strongroom_crypto::SecretKey;
use strongroom_format::columns::envelope::ENVELOPE_VERSION;
use strongroom_format::columns::manifest::MANIFEST_VERSION;
use strongroom_format::columns::redo::REDO_VERSION;
use strongroom_keyring::{Error, Opener};

/// The list of what a golden store holds.
const CONTENTS: &str = "contents.txt";

/// The directory of all golden stores.
fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../testing/vectors/columns")
}

/// The directories of the golden stores, in order of their names.
fn golden_stores() -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = std::fs::read_dir(golden())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    all.sort();
    all
}

/// The directory of the golden store of the versions that this build writes.
fn present() -> PathBuf {
    golden().join(format!(
        "manifest{MANIFEST_VERSION}-redo{REDO_VERSION}-envelope{ENVELOPE_VERSION}"
    ))
}

/// The key that opens every golden store. It is public.
fn opener() -> Opener {
    let mut key = *b"golden stores have a public key.";
    Opener::raw(SecretKey::take(&mut key).unwrap())
}

/// A copy of a golden store, which is removed with this.
struct Place(PathBuf);

impl Place {
    /// Copies the store in `from` for the test of this name.
    fn copy_of(from: &Path, test: &str) -> Self {
        let name = format!("strongroom-golden-{test}-{}", std::process::id());
        let place = Self(std::env::temp_dir().join(name));
        std::fs::create_dir(&place.0).unwrap();
        for entry in std::fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), place.0.join(entry.file_name())).unwrap();
        }
        place
    }

    /// The path of a file in it.
    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The bytes of a file in it.
    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.file(name)).unwrap()
    }

    /// Replaces a file in it.
    fn write(&self, name: &str, bytes: &[u8]) {
        strongroom_keyring::durable::replace(&self.file(name), bytes, 0o600).unwrap();
    }

    /// The names and bytes of all its files.
    fn files(&self) -> Vec<(std::ffi::OsString, Vec<u8>)> {
        let mut all: Vec<_> = std::fs::read_dir(&self.0)
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                (entry.file_name(), std::fs::read(entry.path()).unwrap())
            })
            .collect();
        all.sort();
        all
    }

    /// Opens the store in it, which is recovering then.
    fn open(&self) -> Result<Store, Error> {
        open_store(&self.0)
    }

    /// Replays the store's own log into it.
    fn open_log(&self, store: &mut Store) -> Result<LogFile, Error> {
        LogFile::open(&self.file(LOG_NAME), store)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

/// Opens the store in a directory.
fn open_store(directory: &Path) -> Result<Store, Error> {
    let anchor = Box::new(FileAnchor::at(directory.join(ANCHOR_NAME)));
    let options = Options {
        memory_limit: 1 << 20,
        insist_on_locks: false,
        accept_restored: false,
    };
    strongroom_columns_zone::store::open(directory, &opener(), anchor, options)
}
