//! Where the key server keeps its records: sealed values under paths, changed only as a whole, and an audit log that only grows.
//!
//! Invariants: S1, a commit happens whole or not at all, and is durable when [`Store::commit`] returns [`Outcome::Done`]; S2, a commit
//! happens only if every guarded path still has the revision that its maker saw and no row of the audit log came in between; S3, a read
//! that begins after a commit returned sees it, whichever server made it; S4, a row of the audit
//! log is never changed, the last one is never removed, and others only from the beginning on, by
//! [`Store::forget_rows`].
//!
//! Must not: know what is in a value or a row; both are sealed before they come here (docs/spec/keyserver.md, "Records").

mod etcd;
mod etcd_link;
mod sqlite;

use std::path::Path;
use std::sync::Arc;

use strongroom_crypto::SecretKey;
use strongroom_format::code;
use strongroom_keyring::Error;

use crate::config::Config;
use crate::keys::Keys;

pub use etcd::EtcdStore;
pub use sqlite::SqliteStore;
pub(crate) use sqlite::free;

/// A value and when it was last written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The sealed value.
    pub value: Vec<u8>,
    /// Raised by every commit that writes this path, never used twice for it; not 0.
    pub revision: u64,
}

/// What a commit is based upon: the revision that its maker saw, 0 for "there was nothing".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    /// The record's path.
    pub path: String,
    /// Its revision.
    pub revision: u64,
}

/// A change of one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Writes the value, whatever was there.
    Put {
        /// The record's path.
        path: String,
        /// The sealed value, at most [`VALUE_MAX`] bytes.
        value: Vec<u8>,
    },
    /// Removes the record, if there is one.
    Delete {
        /// The record's path.
        path: String,
    },
}

/// Rows to be appended to the audit log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Append {
    /// Number of the first row: one more than that of the last row there is. The first row of all has number 1.
    pub first: u64,
    /// The sealed rows, in order; may be empty, and `first` then counts for nothing.
    pub rows: Vec<Vec<u8>>,
}

/// How a commit ended, when the store answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It happened and is durable.
    Done,
    /// Nothing happened: a guarded path has another revision, or the audit log another last row.
    Conflict,
}

/// How much room a store has and uses, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// What it uses. Of a file, without pages that will be used again.
    pub used: u64,
    /// How far it may grow by itself, if that is known.
    pub limit: Option<u64>,
    /// What is free on its file system, where that is this machine's.
    pub free: Option<u64>,
}

/// That rows were to be removed of which the last must stay.
fn last_stays() -> Error {
    Error::new(&code::BUG, "the last row of the audit log stays")
}

/// The longest value, in bytes: what etcd takes in one request, with room for the rest of the request.
pub const VALUE_MAX: usize = 768 * 1024;
/// The greatest number of guards, of changes, and of rows in one commit: etcd's limit is 128 operations in all.
pub const COMMIT_MAX: usize = 96;

/// A store of records. Paths are ASCII without control characters, their parts separated by `/`.
///
/// Every call blocks, in bounded time. Errors: SR-8435 when the store does not answer or refuses, and what the SQLite extension reports.
/// After an error of [`Store::commit`] it is unknown whether the commit happened.
pub trait Store: Send + Sync {
    /// The record at `path`.
    ///
    /// # Errors
    /// As for the trait.
    fn read(&self, path: &str) -> Result<Option<Stored>, Error>;

    /// Records whose path begins with `prefix` and is greater than `after` (which is empty, or a path), in order of path, at most
    /// `limit` of them.
    ///
    /// # Errors
    /// As for the trait.
    fn list(&self, prefix: &str, after: &str, limit: usize)
    -> Result<Vec<(String, Stored)>, Error>;

    /// Applies the changes and appends the rows, if nothing that it is based upon has changed.
    ///
    /// # Errors
    /// As for the trait.
    fn commit(
        &self,
        guards: &[Guard],
        changes: &[Change],
        append: &Append,
    ) -> Result<Outcome, Error>;

    /// Number and contents of the audit log's last row.
    ///
    /// # Errors
    /// As for the trait.
    fn last_row(&self) -> Result<Option<(u64, Vec<u8>)>, Error>;

    /// Rows of the audit log with numbers greater than `after`, in order, at most `limit` of them.
    ///
    /// # Errors
    /// As for the trait.
    fn rows(&self, after: u64, limit: usize) -> Result<Vec<(u64, Vec<u8>)>, Error>;

    /// Removes rows of the audit log from the first one to the one with number `through`, at most
    /// `limit` of them, and says how many that were: 0 when none is left. The caller has made them
    /// durable elsewhere, and written down that it did. The last row of all stays.
    ///
    /// # Errors
    /// As for the trait; SR-9001 when `through` is the number of the last row, or beyond it.
    fn forget_rows(&self, through: u64, limit: u64) -> Result<u64, Error>;

    /// How much room the store has and uses.
    ///
    /// # Errors
    /// As for the trait.
    fn room(&self) -> Result<Room, Error>;

    /// Makes sure that values that were replaced or removed are gone from the store's own files, as far as it can.
    ///
    /// # Errors
    /// As for the trait.
    fn scrub(&self) -> Result<(), Error> {
        Ok(())
    }
}

/// The first string greater than every string that begins with `prefix`, which is ASCII and not empty.
#[must_use]
pub fn end_of(prefix: &str) -> String {
    let mut bytes = prefix.as_bytes().to_vec();
    if let Some(last) = bytes.last_mut() {
        *last = last.saturating_add(1);
    }
    String::from_utf8(bytes).unwrap_or_default()
}

/// Opens the store that the configuration names; makes it when `create` is set.
///
/// # Errors
/// SR-8434 when it names none that is known; what the store reports.
pub fn open(config: &Config, root: &SecretKey, create: bool) -> Result<Arc<dyn Store>, Error> {
    let Some((kind, place)) = config.store.split_once(':') else {
        return Err(Error::new(
            &code::SERVER_CONFIG,
            "store: sqlite:FILE, or etcd:URL,URL...",
        ));
    };
    match kind {
        "sqlite" => {
            let key = Keys::of_store(root, &config.server_id()?)?;
            Ok(Arc::new(SqliteStore::open(
                &config.path(Path::new(place)),
                &key,
                create,
            )?))
        }
        "etcd" => Ok(Arc::new(EtcdStore::open(config, place)?)),
        _ => Err(Error::new(
            &code::SERVER_CONFIG,
            format!("store: no kind `{kind}`"),
        )),
    }
}
