//! Making, copying, changing and reading test databases.
//!
//! Must not: read a database's file while a connection of this process that matters has it open:
//! closing the file drops SQLite's locks.

use std::path::{Path, PathBuf};

use rusqlite::Connection;
use strongroom_crypto::SecretBytes;
use strongroom_keyring::durable;
use strongroom_sqlite::{Cipher, Error, KeySource, OpenOptions, explain, open, ops};

/// A raw key.
pub(crate) const RAW: &str = "1111111111111111111111111111111111111111111111111111111111111111";
/// Another raw key.
pub(crate) const OTHER: &str = "2222222222222222222222222222222222222222222222222222222222222222";
/// Where pages begin.
pub(crate) const HEADER: usize = 4096;
/// Size of most test databases' pages.
pub(crate) const PAGE: usize = 1024;

/// Key material as an application gives it.
pub(crate) fn given(text: &str) -> KeySource {
    KeySource::Given(SecretBytes::take(&mut text.as_bytes().to_vec()).unwrap())
}

/// Options with a key; a missing file is created.
pub(crate) fn options(text: &str) -> OpenOptions {
    OpenOptions {
        key: Some(given(text)),
        create: true,
        page_size: PAGE as u32,
        ..OpenOptions::default()
    }
}

/// A connection with the key.
pub(crate) fn connect(path: &Path) -> Connection {
    open(path, &options(RAW)).unwrap()
}

/// Executes, and fails the test with the sealing VFS's text.
pub(crate) fn run(connection: &Connection, sql: &str) {
    if let Err(error) = connection.execute_batch(sql) {
        panic!("{sql}: {}", explain(error));
    }
}

/// A database with `rows` rows in t(a, b), closed.
pub(crate) fn make(path: &Path, cipher: Cipher, rows: u32) {
    let connection = open(
        path,
        &OpenOptions {
            cipher,
            ..options(RAW)
        },
    )
    .unwrap();
    run(
        &connection,
        "CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT); CREATE INDEX i ON t(b)",
    );
    run(
        &connection,
        &format!(
            "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n WHERE x<{rows})
             INSERT INTO t SELECT x, printf('%d-%s', x, hex(randomblob(60))) FROM n"
        ),
    );
}

/// Every row, by both of the table's b-trees, after an integrity check. The code of the first error
/// otherwise.
pub(crate) fn rows(path: &Path) -> Result<Vec<(i64, String)>, Error> {
    rows_with(path, RAW)
}

/// As [`rows`], with another key.
pub(crate) fn rows_with(path: &Path, key: &str) -> Result<Vec<(i64, String)>, Error> {
    let connection = open(
        path,
        &OpenOptions {
            create: false,
            page_size: 0,
            ..options(key)
        },
    )?;
    let found = scan(&connection, "SELECT a, b FROM t NOT INDEXED ORDER BY a")?;
    let mut by_index = scan(&connection, "SELECT a, b FROM t INDEXED BY i ORDER BY b")?;
    by_index.sort_unstable();
    assert_eq!(by_index, found, "table and index disagree");
    let check: String = connection
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .map_err(explain)?;
    if check.contains("unable to get the page") {
        // The check goes on after an error and reports it in words; the sealing VFS has the code.
        return Err(explain(rusqlite::Error::QueryReturnedNoRows));
    }
    assert_eq!(check, "ok", "what was served is not whole");
    Ok(found)
}

fn scan(connection: &Connection, sql: &str) -> Result<Vec<(i64, String)>, Error> {
    let mut statement = connection.prepare(sql).map_err(explain)?;
    let found = statement
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .and_then(Iterator::collect::<rusqlite::Result<Vec<_>>>);
    found.map_err(explain)
}

/// The SR number of an error, 0 for success.
pub(crate) fn number<T>(result: &Result<T, Error>) -> u16 {
    result.as_ref().err().map_or(0, |error| error.code().number)
}

/// A file's bytes.
pub(crate) fn bytes(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap()
}

/// Replaces a file.
pub(crate) fn put(path: &Path, bytes: &[u8]) {
    durable::replace(path, bytes, 0o600).unwrap();
}

/// Overwrites bytes of a file in place, as an attacker does under a live database.
pub(crate) fn patch(path: &Path, at: u64, bytes: &[u8]) {
    use std::os::unix::fs::FileExt as _;
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(bytes, at).unwrap();
}

/// `path` with `suffix` added to its name.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Removes a database and what stands beside it.
pub(crate) fn clear(path: &Path) {
    for suffix in ["", "-wal", "-shm", "-journal", "-strongroom"] {
        let gone = std::fs::remove_file(beside(path, suffix));
        assert!(gone.is_ok() || !beside(path, suffix).exists());
    }
}

/// A database's files as they stood at one moment.
pub(crate) struct Snapshot {
    /// The database.
    pub(crate) main: Vec<u8>,
    /// Its log, if any.
    pub(crate) wal: Option<Vec<u8>>,
    /// Its journal, if any.
    pub(crate) journal: Option<Vec<u8>>,
}

impl Snapshot {
    /// Reads the files at `path`.
    pub(crate) fn take(path: &Path) -> Self {
        let read = |suffix| {
            std::fs::read(beside(path, suffix))
                .ok()
                .filter(|bytes| !bytes.is_empty())
        };
        Self {
            main: bytes(path),
            wal: read("-wal"),
            journal: read("-journal"),
        }
    }

    /// Puts the files at `path`, in place of whatever was there.
    pub(crate) fn place(&self, path: &Path) {
        clear(path);
        put(path, &self.main);
        if let Some(wal) = &self.wal {
            put(&beside(path, "-wal"), wal);
        }
        if let Some(journal) = &self.journal {
            put(&beside(path, "-journal"), journal);
        }
    }
}

/// What `verify` finds bad, as (kind, index, code).
pub(crate) fn bad(path: &Path) -> Vec<(ops::UnitKind, u64, u16)> {
    let report = ops::verify(path, &options(RAW), &mut |_, _| {}).unwrap();
    report
        .bad
        .iter()
        .map(|bad| (bad.kind, bad.index, bad.code.number))
        .collect()
}

/// The file range of page `number`.
pub(crate) fn page(number: usize) -> std::ops::Range<usize> {
    HEADER + (number - 1) * PAGE..HEADER + number * PAGE
}
