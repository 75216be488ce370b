//! A database whose every row can be told from its number and edition, and ways to read it.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use rusqlite::Connection;
use strongroom_sqlite::{
    Cipher, Error, KeySource, OpenOptions, RemoteOptions, explain, open, open_remote,
};

/// Rows of a database made by [`publish`].
pub(crate) const ROWS: i64 = 4000;

/// A directory of this test, and the key in it.
pub(crate) struct Scratch {
    pub(crate) directory: tempfile::TempDir,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        write(&directory.path().join("key"), "5a".repeat(32).as_bytes());
        Self { directory }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn options(&self) -> OpenOptions {
        OpenOptions {
            key: Some(KeySource::File(self.path("key"))),
            ..OpenOptions::default()
        }
    }

    /// A sealed database of this edition at `name`: some 8 MiB, two tables and an index.
    pub(crate) fn publish(&self, name: &str, edition: i64) -> PathBuf {
        static FIRST: OnceLock<Vec<u8>> = OnceLock::new();
        let path = self.path(name);
        if edition != 1 || path.exists() {
            return self.publish_as(name, edition, |_| {});
        }
        let first = FIRST.get_or_init(|| {
            let scratch = Self::new();
            std::fs::read(scratch.publish_as("x.db", 1, |_| {})).unwrap()
        });
        write(&path, first);
        path
    }

    pub(crate) fn publish_as(
        &self,
        name: &str,
        edition: i64,
        change: impl FnOnce(&mut OpenOptions),
    ) -> PathBuf {
        let path = self.path(name);
        let mut options = self.options();
        options.create = true;
        change(&mut options);
        let connection = open(&path, &options).unwrap();
        connection
            .execute_batch(
                "CREATE TABLE IF NOT EXISTS book(id INTEGER PRIMARY KEY, title TEXT, body TEXT);
                 CREATE INDEX IF NOT EXISTS by_title ON book(title);
                 BEGIN; DELETE FROM book;",
            )
            .unwrap();
        {
            let mut insert = connection
                .prepare("INSERT INTO book VALUES(?1, ?2, ?3)")
                .unwrap();
            for id in 1..=ROWS {
                insert.execute((id, title(id), body(id, edition))).unwrap();
            }
        }
        connection.execute_batch("COMMIT").unwrap();
        drop(connection);
        path
    }

    /// Opens `url` with the scratch's key.
    pub(crate) fn open(&self, remote: &RemoteOptions) -> Result<Connection, Error> {
        open_remote(remote, &self.options())
    }
}

pub(crate) fn write(path: &Path, bytes: &[u8]) {
    strongroom_keyring::durable::replace(path, bytes, 0o600).unwrap();
}

pub(crate) fn title(id: i64) -> String {
    format!("title {:08}", id * 7919 % 10_007_000)
}

/// Some 2000 characters that no other row or edition has.
pub(crate) fn body(id: i64, edition: i64) -> String {
    format!("edition {edition} book {id} ").repeat(90)
}

/// Options for tests: nothing waits long.
pub(crate) fn remote(url: &str) -> RemoteOptions {
    let mut remote = RemoteOptions::new(url);
    remote.timeout = Duration::from_secs(5);
    remote
}

/// One row by its title, through the index.
pub(crate) fn point(connection: &Connection, id: i64) -> Result<String, Error> {
    connection
        .query_row(
            "SELECT body FROM book WHERE title = ?1",
            [title(id)],
            |row| row.get(0),
        )
        .map_err(explain)
}

/// Reads every row and compares it; the number of rows.
pub(crate) fn scan(connection: &Connection, edition: i64) -> Result<i64, Error> {
    let mut statement = connection
        .prepare("SELECT id, body FROM book ORDER BY id")
        .map_err(explain)?;
    let mut rows = statement.query([]).map_err(explain)?;
    let mut count = 0;
    while let Some(row) = rows.next().map_err(explain)? {
        let id: i64 = row.get(0).map_err(explain)?;
        let found: String = row.get(1).map_err(explain)?;
        assert_eq!(found, body(id, edition), "book {id}");
        count += 1;
    }
    Ok(count)
}

/// The number of the error.
pub(crate) fn code_of<T>(result: Result<T, Error>) -> u16 {
    match result {
        Ok(_) => 0,
        Err(error) => error.code().number,
    }
}

/// A database with the cipher that does not authenticate.
pub(crate) fn with_ctr(options: &mut OpenOptions) {
    options.cipher = Cipher::Aes256Ctr;
}
