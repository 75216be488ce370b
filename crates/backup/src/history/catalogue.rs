//! The catalogue: a SQLite database that is sealed for a key of the keyring. Its header names the
//! key, so a run needs only the path.
//!
//! Invariants: the file appears whole, with its schema, and never replaces another one; rows are
//! only added.
//!
//! Must not: exist in clear, not even while it is made.

use std::fs::OpenOptions as FileOptions;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, Row, Transaction, TransactionBehavior, params};
use strongroom_format::code;
use strongroom_format::header::{HEADER_LEN, Header, HeaderError};
use strongroom_format::slot::SlotKind;
use strongroom_keyring::{KeySource, durable};
use strongroom_sqlite::{OpenOptions, explain};

use super::run_record::{RunRecord, SetFacts};
use crate::io_error::io_error;
use crate::{Error, Result, Store, list};

/// Stored as `user_version`.
const VERSION: i64 = 1;
/// How long a run waits while another one writes.
const PATIENCE: Duration = Duration::from_secs(20);

const SCHEMA: &str = "
    CREATE TABLE run(
        run_id INTEGER PRIMARY KEY,
        operation TEXT NOT NULL,
        outcome TEXT NOT NULL,
        begun_unix_s INTEGER NOT NULL,
        ended_unix_s INTEGER NOT NULL,
        medium TEXT NOT NULL,
        source TEXT NOT NULL,
        detail TEXT NOT NULL,
        position INTEGER,
        set_id TEXT,
        medium_id TEXT,
        kind TEXT,
        name TEXT,
        started_unix_s INTEGER,
        finished_unix_s INTEGER,
        expires_unix_s INTEGER,
        files INTEGER,
        backup_size_bytes INTEGER,
        compressed_size_bytes INTEGER,
        key_algorithm TEXT,
        encryptor TEXT,
        system_identifier TEXT,
        timeline INTEGER,
        start_lsn TEXT,
        end_lsn TEXT,
        base_set_id TEXT,
        machine_name TEXT,
        user_name TEXT,
        software TEXT
    );
    CREATE INDEX run_set ON run(set_id, medium_id);
    PRAGMA user_version = 1;";

const COLUMNS: &str = "operation, outcome, begun_unix_s, ended_unix_s, medium, source, detail, position, set_id, medium_id, kind,
    name, started_unix_s, finished_unix_s, expires_unix_s, files, backup_size_bytes, compressed_size_bytes, key_algorithm,
    encryptor, system_identifier, timeline, start_lsn, end_lsn, base_set_id, machine_name, user_name, software";

/// An open catalogue.
pub struct Catalogue {
    connection: Connection,
}

impl Catalogue {
    /// Makes a catalogue that is sealed for the key `id` of the keyring, in one step. When another
    /// run has made one at `path` meanwhile, that one stays, and there is no error.
    ///
    /// # Errors
    /// What the keyring reports; SR-1001 for a path without a name; SR-5001 when the system reports
    /// an error; errors of SQLite.
    pub fn create(path: &Path, keyring: &Path, id: &str) -> Result<()> {
        let new = NewFile::beside(path)?;
        let connection = open_database(&new.0, keyring, id, true)?;
        connection.execute_batch(SCHEMA).map_err(sql)?;
        connection.close().map_err(|(_, error)| sql(error))?;
        match durable::publish(&new.0, path) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                Err(io_error(path, error))
            }
            _ => Ok(()),
        }
    }

    /// Opens the catalogue at `path` with the key that its header names.
    ///
    /// # Errors
    /// SR-1006 when there is no file; SR-7152 for another kind of database; SR-3001 to SR-3003 for
    /// its header, SR-3002 also for a newer catalogue; what the keyring reports; SR-5001 when the
    /// system reports an error; errors of SQLite.
    pub fn open(path: &Path, keyring: &Path) -> Result<Self> {
        let id = key_of(path)?;
        let connection = open_database(path, keyring, &id, false)?;
        let version: i64 = connection
            .pragma_query_value(None, "user_version", |row| row.get(0))
            .map_err(sql)?;
        if version == VERSION {
            return Ok(Self { connection });
        }
        let about = if version > VERSION {
            &code::NEWER_FORMAT
        } else {
            &code::HISTORY_ABSENT
        };
        let detail = format!("{}: version {version}", path.display());
        Err(Error::new(about, detail))
    }

    /// Adds a run as a new row.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn add(&self, record: &RunRecord) -> Result<()> {
        let none = SetFacts::default();
        let known = record.set.is_some();
        let set = record.set.as_ref().unwrap_or(&none);
        let values = format!("INSERT INTO run({COLUMNS}) VALUES ({})", placeholders(28));
        let text = |value: &str| known.then(|| value.to_owned());
        let count = |value: u64| known.then(|| integer(value));
        self.connection
            .execute(
                &values,
                params![
                    record.operation,
                    record.outcome,
                    integer(record.begun_unix_s),
                    integer(record.ended_unix_s),
                    record.medium,
                    record.source,
                    record.detail,
                    known.then_some(set.position),
                    text(&set.set_id),
                    text(&set.medium_id),
                    text(&set.kind),
                    text(&set.name),
                    count(set.started_unix_s),
                    count(set.finished_unix_s),
                    set.expires_unix_s.map(integer),
                    count(set.files),
                    count(set.backup_size_bytes),
                    count(set.compressed_size_bytes),
                    text(&set.key_algorithm),
                    text(&set.encryptor),
                    set.system_identifier,
                    set.timeline,
                    set.start_lsn,
                    set.end_lsn,
                    set.base_set_id,
                    text(&set.machine_name),
                    text(&set.user_name),
                    text(&set.software),
                ],
            )
            .map(drop)
            .map_err(sql)
    }

    /// Adds the sets of a medium that the catalogue does not have, from their heads, which are not
    /// authenticated. Returns how many were added.
    ///
    /// # Errors
    /// What the medium reports. When a head cannot be read, the other sets are added first, and its
    /// error is returned then.
    pub fn scan(&mut self, store: &dyn Store) -> Result<u64> {
        let listing = list(store)?;
        let records: Vec<RunRecord> = listing
            .sets
            .iter()
            .map(|set| RunRecord::of_listed_set(store, set))
            .collect();
        let added = self.add_new(&records)?;
        match listing.unreadable.into_iter().next() {
            Some(unreadable) => Err(unreadable.error),
            None => Ok(added),
        }
    }

    /// Adds the records whose sets the catalogue does not have yet, in one transaction; returns how
    /// many those were. After an error of SQLite nothing is added.
    fn add_new(&mut self, records: &[RunRecord]) -> Result<u64> {
        let immediate = TransactionBehavior::Immediate;
        // Rolled back when it is dropped before the commit. `&mut self` says that there is no other
        // one.
        let transaction = Transaction::new_unchecked(&self.connection, immediate).map_err(sql)?;
        let mut added = 0;
        for record in records {
            let Some(set) = &record.set else { continue };
            let known: bool = self
                .connection
                .query_row(
                    "SELECT EXISTS (SELECT 1 FROM run WHERE set_id = ?1 AND medium_id = ?2
                     AND operation IN ('create', 'scan') AND outcome = 'done')",
                    params![set.set_id, set.medium_id],
                    |row| row.get(0),
                )
                .map_err(sql)?;
            if !known {
                self.add(record)?;
                added += 1;
            }
        }
        transaction.commit().map_err(sql)?;
        Ok(added)
    }

    /// The newest `last` runs, or all, the oldest first. `medium`: only those on this medium.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn runs(&self, medium: Option<&str>, last: Option<u32>) -> Result<Vec<RunRecord>> {
        let query = format!(
            "SELECT {COLUMNS} FROM (SELECT * FROM run WHERE ?1 IS NULL OR medium = ?1
             ORDER BY run_id DESC LIMIT ?2) ORDER BY run_id"
        );
        let mut statement = self.connection.prepare(&query).map_err(sql)?;
        let limit = last.map_or(-1, i64::from);
        let rows = statement.query_map(params![medium, limit], record_of);
        let rows = rows.map_err(sql)?;
        rows.collect::<rusqlite::Result<_>>().map_err(sql)
    }
}

/// Reads a row as a record. An error of SQLite when a column has another type.
fn record_of(row: &Row<'_>) -> rusqlite::Result<RunRecord> {
    let number = |at: usize| row.get::<_, i64>(at).map(natural);
    let mut record = RunRecord {
        operation: row.get(0)?,
        outcome: row.get(1)?,
        begun_unix_s: number(2)?,
        ended_unix_s: number(3)?,
        medium: row.get(4)?,
        source: row.get(5)?,
        detail: row.get(6)?,
        ..RunRecord::default()
    };
    if let Some(position) = row.get(7)? {
        record.set = Some(SetFacts {
            position,
            set_id: row.get(8)?,
            medium_id: row.get(9)?,
            kind: row.get(10)?,
            name: row.get(11)?,
            started_unix_s: number(12)?,
            finished_unix_s: number(13)?,
            expires_unix_s: row.get::<_, Option<i64>>(14)?.map(natural),
            files: number(15)?,
            backup_size_bytes: number(16)?,
            compressed_size_bytes: number(17)?,
            key_algorithm: row.get(18)?,
            encryptor: row.get(19)?,
            system_identifier: row.get(20)?,
            timeline: row.get(21)?,
            start_lsn: row.get(22)?,
            end_lsn: row.get(23)?,
            base_set_id: row.get(24)?,
            machine_name: row.get(25)?,
            user_name: row.get(26)?,
            software: row.get(27)?,
        });
    }
    Ok(record)
}

/// Opens the sealed database with the key `id` of the keyring, or with `create` makes it. Later
/// statements wait up to 20 seconds for other writers. Errors of the keyring, the header and
/// SQLite.
fn open_database(path: &Path, keyring: &Path, id: &str, create: bool) -> Result<Connection> {
    let options = OpenOptions {
        key: Some(KeySource::KeyId { id: id.to_owned() }),
        keyring: Some(keyring.to_path_buf()),
        create,
        ..OpenOptions::default()
    };
    let connection = strongroom_sqlite::open(path, &options)?;
    connection.busy_timeout(PATIENCE).map_err(sql)?;
    Ok(connection)
}

/// Reads the name of the key that a catalogue is sealed for from its header, which is not
/// authenticated. SR-7152 when no key of a keyring opens it; SR-1006 when there is no file; SR-3001
/// to SR-3003 when the header cannot be read.
fn key_of(path: &Path) -> Result<String> {
    let shown = || path.display().to_string();
    let file = FileOptions::new().read(true).open(path);
    let file = file.map_err(|error| Error::opening(path, error))?;
    let mut start = Vec::new();
    let read = file.take(HEADER_LEN as u64).read_to_end(&mut start);
    read.map_err(|error| io_error(path, error))?;
    let header = Header::parse(&start).map_err(|error| {
        let about = match error {
            HeaderError::NotSealed => &code::NOT_SEALED,
            HeaderError::Newer(_) => &code::NEWER_FORMAT,
            _ => &code::HEADER_DAMAGED,
        };
        Error::new(about, shown())
    })?;
    let named = header.slots.iter().find_map(|slot| match &slot.kind {
        SlotKind::Keyring { id, .. } => Some(id.clone()),
        _ => None,
    });
    named.ok_or_else(|| {
        let detail = format!("{}: not sealed for a key of the keyring", shown());
        Error::new(&code::HISTORY_ABSENT, detail)
    })
}

/// A catalogue that does not have its name yet. It is removed when this is dropped.
struct NewFile(PathBuf);

impl NewFile {
    /// Makes an empty file with a random name and mode 0600 beside `path`. SR-1001 when `path` has
    /// no name; SR-5001 when the system reports an error.
    fn beside(path: &Path) -> Result<Self> {
        let random = strongroom_crypto::random16();
        let random = random.map_err(|error| Error::new(&code::IO, error.to_string()))?;
        let name = path.file_name();
        let name = name.ok_or_else(|| Error::new(&code::USAGE, "a catalogue without a name"))?;
        let mut temporary = std::ffi::OsString::from(".");
        temporary.push(name);
        temporary.push(format!(".{:032x}.part", u128::from_le_bytes(random)));
        let temporary = path.with_file_name(temporary);
        // Made before SQLite opens it, so that no other user can ever read it.
        FileOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temporary)
            .map_err(|error| io_error(path, error))?;
        Ok(Self(temporary))
    }
}

impl Drop for NewFile {
    /// Removes the temporary file and those that SQLite put beside it; the file is gone already if
    /// the catalogue got its name.
    fn drop(&mut self) {
        for suffix in ["", "-journal", "-strongroom"] {
            let mut path = self.0.clone().into_os_string();
            path.push(suffix);
            // The file is absent if the catalogue got its name.
            drop(std::fs::remove_file(path));
        }
    }
}

/// The text `?1, ?2, ...`, up to `count`.
fn placeholders(count: usize) -> String {
    let marks: Vec<String> = (1..=count).map(|at| format!("?{at}")).collect();
    marks.join(", ")
}

/// A number as SQLite stores it; one that is too large becomes the largest.
fn integer(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// The reverse of [`integer`]; a negative number becomes 0.
fn natural(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

/// Makes an error with a stable code of an error of SQLite.
fn sql(error: rusqlite::Error) -> Error {
    explain(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use strongroom_keyring::{Keyring, Provider};

    fn record(set_id: &str) -> RunRecord {
        RunRecord {
            operation: "scan".to_owned(),
            outcome: "done".to_owned(),
            set: Some(SetFacts {
                set_id: set_id.to_owned(),
                ..SetFacts::default()
            }),
            ..RunRecord::default()
        }
    }

    #[test]
    fn a_scan_that_fails_adds_nothing_and_the_next_one_works() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        durable::replace(&at("root"), &[b'a'; 64], 0o600).unwrap();
        let provider = format!("file:{}", at("root").display());
        let provider = Provider::parse(&provider).unwrap();
        let mut keyring = Keyring::init(&at("keyring"), &provider).unwrap();
        keyring.create_key("app").unwrap();
        Catalogue::create(&at("catalogue"), &at("keyring"), "app").unwrap();
        let mut catalogue = Catalogue::open(&at("catalogue"), &at("keyring")).unwrap();
        // ABORT undoes the statement and leaves the transaction open, as most errors do.
        let trigger = "CREATE TRIGGER second BEFORE INSERT ON run WHEN NEW.set_id = 'two'
                       BEGIN SELECT RAISE(ABORT, 'refused'); END";
        catalogue.connection.execute_batch(trigger).unwrap();
        let records = [record("one"), record("two")];
        catalogue.add_new(&records).unwrap_err();
        assert_eq!(catalogue.runs(None, None).unwrap().len(), 0);
        let removed = catalogue.connection.execute_batch("DROP TRIGGER second");
        removed.unwrap();
        assert_eq!(catalogue.add_new(&records).unwrap(), 2);
        assert_eq!(catalogue.add_new(&records).unwrap(), 0);
    }
}
