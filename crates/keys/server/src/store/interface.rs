//! What every store has to do: sealed values under paths, changed by commits, and an audit log
//! that only grows.
//!
//! Invariants:
//! - S1: A commit takes effect completely or not at all, and is durable when [`Store::commit`]
//!   returns [`Outcome::Done`].
//! - S2: A commit takes effect only if every guarded path still has the revision that the caller
//!   read, and if no other commit has appended a row to the audit log in between.
//! - S3: A read that begins after a commit has returned sees that commit, whichever server made it.
//! - S4: A row of the audit log is never changed. The last row is never removed; other rows are
//!   removed only from the beginning of the log, by [`Store::forget_rows`].
//!
//! Must not: interpret a value or a row. Both are sealed before a store gets them
//! (docs/spec/keyserver.md, "Records").

use strongroom_format::code;
use strongroom_keyring::Error;

/// A value with its revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The sealed value.
    pub value: Vec<u8>,
    /// Greater than 0. Every commit that writes this path gives it a greater revision; none is used
    /// twice for one path.
    pub revision: u64,
}

/// A precondition of a commit: the record still has the revision that the caller read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    /// The record's path.
    pub path: String,
    /// The revision that was read; 0 when there was no record.
    pub revision: u64,
}

/// A change of one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Writes the value, in place of a former one.
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

/// Rows that a commit appends to the audit log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Append {
    /// Number of the first row: one more than that of the last row in the log. The first row of a
    /// log has number 1.
    pub first: u64,
    /// The sealed rows, in order. When it is empty, `first` is ignored.
    pub rows: Vec<Vec<u8>>,
}

/// The result of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The commit took effect and is durable.
    Done,
    /// The commit had no effect: a guarded record has another revision, or the audit log another
    /// last row.
    Conflict,
}

/// How much space a store uses and has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreSpace {
    /// The bytes that it uses, without free pages of a file.
    pub used_bytes: u64,
    /// The size to which it may grow, if the store knows a limit.
    pub limit_bytes: Option<u64>,
    /// The free bytes of its file system, where that is local.
    pub free_bytes: Option<u64>,
}

/// Makes the error for a caller that wants to remove the last row of the audit log (SR-9001).
pub(super) fn last_row_stays() -> Error {
    Error::new(&code::BUG, "the last row of the audit log stays")
}

/// The longest value, in bytes. etcd accepts it in one request together with the other parts of the
/// request.
pub const VALUE_MAX: usize = 768 * 1024;
/// The most guards, changes and rows of one commit. etcd's limit is 128 operations.
pub const COMMIT_MAX: usize = 96;

/// A store of records and of the audit log. Paths are ASCII without control characters; `/`
/// separates their parts.
///
/// Every call blocks, for a bounded time. Errors: SR-8435 when the store does not respond or
/// refuses the call, and what the SQLite extension reports. After an error of [`Store::commit`] it
/// is unknown whether the commit took effect.
pub trait Store: Send + Sync {
    /// Reads the record at `path`. `None` when there is none.
    ///
    /// # Errors
    /// SR-8435 when the store does not respond or refuses the call, or another error of the trait.
    fn read(&self, path: &str) -> Result<Option<Stored>, Error>;

    /// Reads at most `limit` records whose path begins with `prefix` and is greater than `after`,
    /// which is empty or a path, in order of their paths. Returns each path, with its prefix, and
    /// its record.
    ///
    /// # Errors
    /// SR-8435 when the store does not respond or refuses the call, or another error of the trait.
    fn list(&self, prefix: &str, after: &str, limit: usize)
    -> Result<Vec<(String, Stored)>, Error>;

    /// Applies the changes and appends the rows, atomically and durably, if every guard holds and
    /// the rows follow the last row of the log (S1, S2). Otherwise changes nothing and returns
    /// [`Outcome::Conflict`].
    ///
    /// # Errors
    /// SR-8435 when the store does not respond or refuses the call, or another error of the trait.
    /// It is then unknown whether the commit took effect.
    fn commit(
        &self,
        guards: &[Guard],
        changes: &[Change],
        append: &Append,
    ) -> Result<Outcome, Error>;

    /// Reads the last row of the audit log: its number and the sealed row. `None` when the log is
    /// empty.
    ///
    /// # Errors
    /// SR-8435 when the store does not respond or refuses the call, or another error of the trait.
    fn last_row(&self) -> Result<Option<(u64, Vec<u8>)>, Error>;

    /// Reads at most `limit` rows of the audit log with numbers greater than `after`, in order.
    /// Returns each number and the sealed row.
    ///
    /// # Errors
    /// SR-8435 when the store does not respond or refuses the call, or another error of the trait.
    fn rows(&self, after: u64, limit: usize) -> Result<Vec<(u64, Vec<u8>)>, Error>;

    /// Removes at most `limit` rows of the audit log, from the first row to the row with number
    /// `through`, and returns how many were removed; 0 when there were none. The caller has made
    /// the rows durable elsewhere and has recorded that. The last row of the log is never removed
    /// (S4).
    ///
    /// # Errors
    /// SR-9001 when `through` is the number of the last row, or greater; SR-8435 when the store
    /// does not respond or refuses the call, or another error of the trait.
    fn forget_rows(&self, through: u64, limit: u64) -> Result<u64, Error>;

    /// Measures how much space the store uses and has.
    ///
    /// # Errors
    /// SR-8435 when the store does not respond or refuses the call, or another error of the trait.
    fn space(&self) -> Result<StoreSpace, Error>;

    /// Erases values that were replaced or removed from the store's own files, as far as the store
    /// can. Does nothing by default.
    ///
    /// # Errors
    /// SR-8435 when the store does not respond or refuses the call, or another error of the trait.
    fn scrub(&self) -> Result<(), Error> {
        Ok(())
    }
}

/// Returns the least string that is greater than every string that begins with `prefix`, which is
/// ASCII and not empty.
#[must_use]
pub fn prefix_end(prefix: &str) -> String {
    let mut bytes = prefix.as_bytes().to_vec();
    if let Some(last) = bytes.last_mut() {
        *last = last.saturating_add(1);
    }
    String::from_utf8(bytes).unwrap_or_default()
}
