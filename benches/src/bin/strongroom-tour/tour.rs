//! What every part of the tour has at hand: where its files are, the command, the list of checks.
//!
//! Must not: make or remove a file.

use std::path::{Path, PathBuf};

use rusqlite::Connection;
use strongroom_benches::{Failure, variant};
use strongroom_sqlite::{Cipher, KeySource};

use crate::checks::Checks;
use crate::command::Strongroom;

/// Where everything is made.
pub(crate) const OUT: &str = "demo-out";

/// TPC-H scale factor.
pub(crate) const SCALE: f64 = 0.1;

/// The keys of the tour's keyring: the database's first key, the one it gets later, and one that
/// never fits.
pub(crate) const KEY: &str = "ledger";

pub(crate) const NEXT_KEY: &str = "ledger-2027";

pub(crate) const OTHER_KEY: &str = "payroll";

/// Texts that stand in the tables: a column of few values, and words of the comments.
pub(crate) const KNOWN: [&str; 8] = [
    "DELIVER IN PERSON",
    "TAKE BACK RETURN",
    "COLLECT COD",
    "furiously",
    "carefully",
    "regular accounts",
    "pending deposits",
    "express requests",
];

/// The tour's place and its tools.
pub(crate) struct Tour {
    pub(crate) out: PathBuf,
    pub(crate) strongroom: Strongroom,
    pub(crate) checks: Checks,
    /// The plain database for everything that is timed: opened before the VFS is registered in this
    /// process, which watches the statements of connections that are opened afterwards (B1).
    pub(crate) plain: Connection,
}

impl Tour {
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.out.join(name)
    }

    pub(crate) fn plain_path(&self) -> PathBuf {
        self.path("plain.db")
    }

    pub(crate) fn sealed(&self) -> PathBuf {
        self.path("sealed.db")
    }

    /// Another connection to the plain database on stock SQLite's own VFS, for what is not timed.
    pub(crate) fn open_plain(&self) -> Result<Connection, Failure> {
        variant::stock(&self.plain_path())
    }

    /// A sealed database through the VFS.
    pub(crate) fn open_sealed(&self, path: &Path, key: &str) -> Result<Connection, Failure> {
        let source = KeySource::KeyId { id: key.to_owned() };
        variant::sealed(path, source, Some(&self.path("keyring")), Cipher::Aes256Gcm)
    }
}
