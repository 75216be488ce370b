//! The store in one sealed SQLite database, whose key is derived from the root key.
//!
//! Invariants: those of [`Store`]. Commits are durable because SQLite syncs the write-ahead log
//! before each of them returns (`synchronous=FULL`). Triggers refuse changes of the audit log.
//! Replaced values are overwritten (`secure_delete`), and [`Store::scrub`] truncates the
//! write-ahead log.
//!
//! Must not: keep a copy of the database's key after the connections were opened.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior, params};
use strongroom_crypto::SecretKey;
use strongroom_format::code;
use strongroom_keyring::{Error, KeySource, secret_hex};
use strongroom_sqlite::{OpenOptions, explain};

use crate::disk_space::free_bytes;

use super::interface::{
    Append, Change, Guard, Outcome, Store, StoreSpace, Stored, last_row_stays, prefix_end,
};

/// Connections for concurrent readers.
const READERS: usize = 4;
/// How long a connection waits for another process, in milliseconds.
const BUSY_MS: u32 = 20_000;

/// Room that opening the database takes, in bytes: the index and the log that SQLite makes.
const ROOM_TO_OPEN: u64 = 64 * 1024;

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS record(path TEXT PRIMARY KEY, revision INTEGER NOT NULL, value BLOB NOT NULL) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS revision(only INTEGER PRIMARY KEY CHECK (only = 1), last INTEGER NOT NULL);
    INSERT OR IGNORE INTO revision VALUES (1, 0);
    CREATE TABLE IF NOT EXISTS audit(n INTEGER PRIMARY KEY, row BLOB NOT NULL);
    CREATE TRIGGER IF NOT EXISTS audit_stays BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'the audit log only grows'); END;
    CREATE TABLE IF NOT EXISTS audit_cut(only INTEGER PRIMARY KEY CHECK (only = 1), through INTEGER NOT NULL);
    INSERT OR IGNORE INTO audit_cut VALUES (1, 0);
    DROP TRIGGER IF EXISTS audit_remains;
    CREATE TRIGGER IF NOT EXISTS audit_remains_after_cut BEFORE DELETE ON audit
        WHEN OLD.n > (SELECT through FROM audit_cut) BEGIN SELECT RAISE(ABORT, 'the audit log only grows'); END;
    CREATE TRIGGER IF NOT EXISTS audit_cut_rises BEFORE UPDATE ON audit_cut
        WHEN NEW.through < OLD.through OR NEW.through >= (SELECT COALESCE(MAX(n), 0) FROM audit)
        BEGIN SELECT RAISE(ABORT, 'the last row of the audit log stays'); END;
    CREATE TRIGGER IF NOT EXISTS audit_in_order BEFORE INSERT ON audit
        WHEN NEW.n <> (SELECT COALESCE(MAX(n), 0) + 1 FROM audit) BEGIN SELECT RAISE(ABORT, 'the audit log only grows'); END;
";

/// A sealed SQLite database as a store.
pub struct SqliteStore {
    path: PathBuf,
    writer: Mutex<Connection>,
    readers: [Mutex<Connection>; READERS],
}

impl SqliteStore {
    /// Opens the database with one connection for writing and four for reading, and creates it if
    /// `create` is set and there is none. Removes permissions of other users from the file, and
    /// creates tables and triggers that are missing.
    ///
    /// # Errors
    /// SR-1006 when there is none; SR-2002 for another key; SR-8435 when the file system fails or
    /// is full; what the SQLite extension reports as damaged.
    pub fn open(path: &Path, key: &SecretKey, create: bool) -> Result<Self, Error> {
        Self::open_at(path, key, create).map_err(|error| match free_bytes(path) {
            // SQLite says "disk I/O error" where its index finds no room.
            Ok(bytes) if bytes < ROOM_TO_OPEN && error.code() == &code::SERVER_STORE => {
                let detail = format!(
                    "{}; the file system of {} has {bytes} bytes free",
                    error.detail(),
                    path.display()
                );
                Error::new(error.code(), detail)
            }
            _ => error,
        })
    }

    /// Opens the connections, makes the file private, and creates tables and triggers that are
    /// missing. SR-1006 when there is no file and `create` is false; SR-2002 for another key;
    /// SR-8435 when SQLite or the file system fails.
    fn open_at(path: &Path, key: &SecretKey, create: bool) -> Result<Self, Error> {
        let writer = connect(path, key, create)?;
        make_private(path)?;
        writer
            .execute_batch("PRAGMA journal_mode=WAL;")
            .and_then(|()| writer.execute_batch(SCHEMA))
            .map_err(store_error)?;
        let reader = || connect(path, key, false).map(Mutex::new);
        Ok(Self {
            path: path.to_owned(),
            writer: Mutex::new(writer),
            readers: [reader()?, reader()?, reader()?, reader()?],
        })
    }

    /// Locks a connection for reading that is free, or else waits for the first one.
    fn reader(&self) -> MutexGuard<'_, Connection> {
        let [first, others @ ..] = &self.readers;
        for one in others {
            if let Ok(free) = one.try_lock() {
                return free;
            }
        }
        first.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the connection for writing, and waits until it is free.
    fn writer(&self) -> MutexGuard<'_, Connection> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes all permissions of other users from the database (mode 0600). SQLite gives the
/// write-ahead log and its index the permissions of the database. SR-8435 when SQLite or the file
/// system fails.
fn make_private(path: &Path) -> Result<(), Error> {
    let failed = |error: std::io::Error| {
        Error::new(&code::SERVER_STORE, format!("{}: {error}", path.display()))
    };
    let about = std::fs::metadata(path).map_err(failed)?;
    if about.permissions().mode() & 0o077 != 0 {
        std::fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(failed)?;
    }
    Ok(())
}

/// Opens one connection, with synchronous commits and erasure of deleted content. It waits up to 20
/// seconds for another process. SR-1006 when there is no file and `create` is false; SR-2002 for
/// another key; SR-8435 when SQLite or the file system fails.
fn connect(path: &Path, key: &SecretKey, create: bool) -> Result<Connection, Error> {
    let options = OpenOptions {
        key: Some(KeySource::Given(secret_hex(key.expose())?)),
        create,
        ..OpenOptions::default()
    };
    let connection = strongroom_sqlite::open(path, &options).map_err(with_store_code)?;
    connection
        .execute_batch(&format!(
            "PRAGMA busy_timeout={BUSY_MS}; PRAGMA synchronous=FULL; PRAGMA secure_delete=ON;"
        ))
        .map_err(store_error)?;
    Ok(connection)
}

/// Converts an error of SQLite: SR-8435, or the SQLite extension's own code for damage or a key.
fn store_error(error: rusqlite::Error) -> Error {
    with_store_code(explain(error))
}

/// Gives an error of SQL, of a busy database or of the operating system the code SR-8435, as
/// [`Store`] documents it. An error of the SQLite extension about damage or a key keeps its own
/// code.
fn with_store_code(error: Error) -> Error {
    match error.code() {
        code if [&code::SQL, &code::BUSY, &code::IO].contains(&code) => {
            Error::new(&code::SERVER_STORE, error.detail())
        }
        _ => error,
    }
}

/// Converts a number for SQL. SR-8435 if it is greater than SQLite's largest integer.
fn to_sql(value: u64) -> Result<i64, Error> {
    i64::try_from(value).map_err(|_| Error::new(&code::SERVER_STORE, "a number is too large"))
}

/// Converts a number from SQL. SR-8435 if it is negative.
fn from_sql(value: i64) -> Result<u64, Error> {
    u64::try_from(value).map_err(|_| Error::new(&code::SERVER_STORE, "a number is negative"))
}

impl Store for SqliteStore {
    /// Reads the record at `path`; `None` when there is none. SR-8435, or the SQLite extension's
    /// code for damage.
    fn read(&self, path: &str) -> Result<Option<Stored>, Error> {
        let reader = self.reader();
        let mut statement = reader
            .prepare_cached("SELECT value, revision FROM record WHERE path = ?1")
            .map_err(store_error)?;
        let found = statement.query_row([path], |row| Ok((row.get(0)?, row.get(1)?)));
        let Some((value, revision)) = found.optional().map_err(store_error)? else {
            return Ok(None);
        };
        let revision = from_sql(revision)?;
        Ok(Some(Stored { value, revision }))
    }

    /// Reads at most `limit` records whose path begins with `prefix` and is greater than `after`,
    /// in order. SR-8435, or the SQLite extension's code for damage.
    fn list(
        &self,
        prefix: &str,
        after: &str,
        limit: usize,
    ) -> Result<Vec<(String, Stored)>, Error> {
        let reader = self.reader();
        let mut statement = reader
            .prepare_cached(
                "SELECT path, value, revision FROM record WHERE path >= ?1 AND path > ?2 AND path < ?3 ORDER BY path LIMIT ?4",
            )
            .map_err(store_error)?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut rows = statement
            .query(params![prefix, after, prefix_end(prefix), limit])
            .map_err(store_error)?;
        let mut found = Vec::new();
        while let Some(row) = rows.next().map_err(store_error)? {
            let value = row.get(1).map_err(store_error)?;
            let revision = from_sql(row.get(2).map_err(store_error)?)?;
            found.push((row.get(0).map_err(store_error)?, Stored { value, revision }));
        }
        Ok(found)
    }

    /// Commits in one SQLite transaction. [`Outcome::Conflict`], without an effect, if a guard does
    /// not hold or the rows do not follow the last row. Waits for the writer. SR-8435 when SQLite
    /// or the file system fails.
    fn commit(
        &self,
        guards: &[Guard],
        changes: &[Change],
        append: &Append,
    ) -> Result<Outcome, Error> {
        let mut writer = self.writer();
        let transaction = writer
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(store_error)?;
        if !guards_hold(&transaction, guards, append)? {
            return Ok(Outcome::Conflict);
        }
        apply_changes(&transaction, changes)?;
        for (n, row) in (append.first..).zip(&append.rows) {
            let mut statement = transaction
                .prepare_cached("INSERT INTO audit VALUES (?1, ?2)")
                .map_err(store_error)?;
            statement
                .execute(params![to_sql(n)?, row])
                .map_err(store_error)?;
        }
        transaction.commit().map_err(store_error)?;
        Ok(Outcome::Done)
    }

    /// Reads the number of the last row and the sealed row; `None` when the log is empty. SR-8435
    /// when SQLite or the file system fails.
    fn last_row(&self) -> Result<Option<(u64, Vec<u8>)>, Error> {
        let reader = self.reader();
        let last = reader
            .query_row(
                "SELECT n, row FROM audit ORDER BY n DESC LIMIT 1",
                [],
                |row| Ok((row.get(0)?, row.get(1)?)),
            )
            .optional()
            .map_err(store_error)?;
        last.map(|(n, row)| Ok((from_sql(n)?, row))).transpose()
    }

    /// Reads at most `limit` sealed rows with numbers greater than `after`, in order. SR-8435 when
    /// SQLite or the file system fails.
    fn rows(&self, after: u64, limit: usize) -> Result<Vec<(u64, Vec<u8>)>, Error> {
        let reader = self.reader();
        let mut statement = reader
            .prepare_cached("SELECT n, row FROM audit WHERE n > ?1 ORDER BY n LIMIT ?2")
            .map_err(store_error)?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut rows = statement
            .query(params![to_sql(after)?, limit])
            .map_err(store_error)?;
        let mut found = Vec::new();
        while let Some(row) = rows.next().map_err(store_error)? {
            found.push((
                from_sql(row.get(0).map_err(store_error)?)?,
                row.get(1).map_err(store_error)?,
            ));
        }
        Ok(found)
    }

    /// Deletes at most `limit` rows from the first one to `through` in one transaction, and returns
    /// how many; 0 when there are none. SR-9001 when `through` is the last row or beyond; SR-8435
    /// when SQLite or the file system fails.
    fn forget_rows(&self, through: u64, limit: u64) -> Result<u64, Error> {
        let mut writer = self.writer();
        let transaction = writer
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(store_error)?;
        let (first, last): (i64, i64) = transaction
            .query_row(
                // Two searches in the index. MIN and MAX in one SELECT would read every row.
                "SELECT COALESCE((SELECT MIN(n) FROM audit), 0),
                        COALESCE((SELECT MAX(n) FROM audit), 0)",
                [],
                |row| Ok((row.get(0)?, row.get(1)?)),
            )
            .map_err(store_error)?;
        let (first, through, limit) = (first, to_sql(through)?, to_sql(limit)?);
        if through >= last {
            return Err(last_row_stays());
        }
        let to = first.saturating_add(limit).saturating_sub(1).min(through);
        if first > through {
            return Ok(0);
        }
        let removed = transaction
            .execute("UPDATE audit_cut SET through = MAX(through, ?1)", [through])
            .and_then(|_| transaction.execute("DELETE FROM audit WHERE n <= ?1", [to]))
            .map_err(store_error)?;
        transaction.commit().map_err(store_error)?;
        Ok(u64::try_from(removed).unwrap_or(u64::MAX))
    }

    /// Returns the bytes of the pages in use and of the write-ahead log, and the free bytes of the
    /// file system. There is no limit. SR-8435 when SQLite or the file system fails.
    fn space(&self) -> Result<StoreSpace, Error> {
        let reader = self.reader();
        let pragma = |name: &str| -> Result<u64, Error> {
            let value = reader.query_row(&format!("PRAGMA {name}"), [], |row| row.get(0));
            from_sql(value.map_err(store_error)?)
        };
        let pages = pragma("page_count")?.saturating_sub(pragma("freelist_count")?);
        let wal = std::fs::metadata(format!("{}-wal", self.path.display()));
        let wal = wal.map_or(0, |about| about.len());
        Ok(StoreSpace {
            used_bytes: pages
                .saturating_mul(pragma("page_size")?)
                .saturating_add(wal),
            limit_bytes: None,
            free_bytes: Some(free_bytes(&self.path).map_err(with_store_code)?),
        })
    }

    /// Checkpoints and truncates the write-ahead log. A reader in the middle of a statement
    /// prevents the truncation, which is no error. SR-8435 when SQLite or the file system fails.
    fn scrub(&self) -> Result<(), Error> {
        let writer = self.writer();
        // A reader in the middle of a statement prevents the truncation. The next call repeats it.
        writer
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_row| Ok(()))
            .map_err(store_error)
    }
}

/// Whether every guarded record has its revision still, and the rows follow the last row of the
/// log. Changes nothing. SR-8435 when SQLite or the file system fails.
fn guards_hold(on: &Connection, guards: &[Guard], append: &Append) -> Result<bool, Error> {
    let mut statement = on
        .prepare_cached("SELECT revision FROM record WHERE path = ?1")
        .map_err(store_error)?;
    for guard in guards {
        let found = statement
            .query_row([&guard.path], |row| row.get(0))
            .optional()
            .map_err(store_error)?;
        if from_sql(found.unwrap_or(0))? != guard.revision {
            return Ok(false);
        }
    }
    if append.rows.is_empty() {
        return Ok(true);
    }
    let last: i64 = on
        .query_row("SELECT COALESCE(MAX(n), 0) FROM audit", [], |row| {
            row.get(0)
        })
        .map_err(store_error)?;
    Ok(from_sql(last)?.checked_add(1) == Some(append.first))
}

/// Writes and deletes records within the caller's transaction; all get one new revision. Does
/// nothing without changes. SR-8435 when SQLite or the file system fails.
fn apply_changes(on: &Connection, changes: &[Change]) -> Result<(), Error> {
    if changes.is_empty() {
        return Ok(());
    }
    let revision: i64 = on
        .query_row(
            "UPDATE revision SET last = last + 1 RETURNING last",
            [],
            |row| row.get(0),
        )
        .map_err(store_error)?;
    for change in changes {
        let done = match change {
            Change::Put { path, value } => on
                .prepare_cached("INSERT OR REPLACE INTO record VALUES (?1, ?2, ?3)")
                .and_then(|mut statement| statement.execute(params![path, revision, value])),
            Change::Delete { path } => on
                .prepare_cached("DELETE FROM record WHERE path = ?1")
                .and_then(|mut statement| statement.execute([path])),
        };
        done.map_err(store_error)?;
    }
    Ok(())
}
