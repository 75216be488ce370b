//! A connection to the databases of a simulated machine: runs a workload's steps, and compares what
//! is there with the model.
//!
//! Must not: keep a connection over a power cut.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rusqlite::fallible_iterator::FallibleIterator as _;
use rusqlite::{Batch, Connection, OpenFlags, params};
use strongroom_sqlite_vfs as vfs;

use super::config::{Config, Stack};
use super::machine::Machine;
use super::model::{Model, Op, Step, Transaction, body};

/// How often the digest was found unknown after a crash.
pub static UNKNOWN: AtomicU64 = AtomicU64::new(0);

/// The files of a machine, and how they are opened.
pub struct Session {
    /// The machine.
    pub machine: Arc<Machine>,
    config: Config,
    connection: Option<Connection>,
}

/// An error as a text: which statement, and what the VFS or SQLite said.
pub type Outcome<T> = Result<T, String>;

impl Session {
    /// A session that is not open yet. Keys for the databases are at hand.
    #[must_use]
    pub fn new(machine: Arc<Machine>, config: Config) -> Self {
        if config.stack == Stack::Sealed {
            for name in ["a.db", "b.db"] {
                vfs::register_key(machine.at(name), super::config::key(0));
            }
        }
        Self {
            machine,
            config,
            connection: None,
        }
    }

    fn uri(&self, name: &str) -> String {
        let path = self.machine.at(name);
        match self.config.stack {
            Stack::Sealed => format!(
                "file:{path}?vfs=strongroom&page_size={}&cipher={}&freshness={}",
                self.config.page_size,
                self.config.cipher,
                u8::from(self.config.freshness)
            ),
            Stack::Control => format!("file:{path}?vfs=sim"),
        }
    }

    /// What the digests say of the pages. `crashed`: a rollback after a crash may leave that
    /// unknown.
    ///
    /// # Errors
    /// When they do not hold.
    pub fn fresh(&self, crashed: bool) -> Outcome<()> {
        // Nobody else reads a database that a connection has to itself.
        let locked = self.config.exclusive && self.connection.is_some();
        if !self.config.freshness || self.config.stack == Stack::Control || locked {
            return Ok(());
        }
        let names: &[&str] = if self.config.two {
            &["a.db", "b.db"]
        } else {
            &["a.db"]
        };
        for name in names {
            let path = std::path::PathBuf::from(self.machine.at(name));
            let judged = vfs::freshness_of(&path, &super::config::key(0))
                .map_err(|error| format!("freshness of {name}: {error}"))?;
            match judged {
                vfs::Freshness::Holds { .. } => {}
                vfs::Freshness::Unknown if crashed => {
                    UNKNOWN.fetch_add(1, Ordering::Relaxed);
                }
                other => return Err(format!("freshness of {name}: {other:?}")),
            }
        }
        Ok(())
    }

    /// The connection, opened if it is not.
    ///
    /// # Errors
    /// What SQLite said.
    pub fn open(&mut self) -> Outcome<&Connection> {
        if self.connection.is_none() {
            self.connection = Some(self.connect()?);
        }
        self.connection.as_ref().ok_or_else(String::new)
    }

    fn connect(&self) -> Outcome<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_URI
            | OpenFlags::SQLITE_OPEN_FULL_MUTEX;
        let connection = Connection::open_with_flags(self.uri("a.db"), flags)
            .map_err(|error| said("open", error))?;
        let config = &self.config;
        let mut sql = format!(
            "PRAGMA page_size={}; PRAGMA auto_vacuum={}; PRAGMA temp_store=1; PRAGMA cache_size={};",
            config.page_size, config.auto_vacuum, config.cache
        );
        if config.two {
            let _infallible = write!(sql, "ATTACH '{}' AS other;", self.uri("b.db"));
            let _infallible = write!(
                sql,
                "PRAGMA other.page_size={}; PRAGMA other.auto_vacuum={}; PRAGMA other.cache_size={};",
                config.page_size, config.auto_vacuum, config.cache
            );
        }
        for schema in self.schemas() {
            let _infallible = write!(
                sql,
                "PRAGMA {schema}.locking_mode={}; PRAGMA {schema}.synchronous={}; PRAGMA {schema}.journal_mode={};",
                config.locking(),
                config.synchronous,
                config.journal,
            );
        }
        let _infallible = write!(sql, "PRAGMA wal_autocheckpoint={}", config.autocheckpoint);
        run(&connection, &sql)?;
        Ok(connection)
    }

    /// The names of the databases.
    #[must_use]
    pub fn schemas(&self) -> &'static [&'static str] {
        if self.config.two {
            &["main", "other"]
        } else {
            &["main"]
        }
    }

    /// Makes the tables, in a new database.
    ///
    /// # Errors
    /// What SQLite said.
    pub fn create(&mut self) -> Outcome<()> {
        let mut sql = String::from("BEGIN;");
        for schema in self.schemas() {
            let _infallible = write!(
                sql,
                "CREATE TABLE {schema}.t(id INTEGER PRIMARY KEY, k INT, body BLOB);
                 CREATE INDEX {schema}.tk ON t(k);
                 CREATE TABLE {schema}.h(b BLOB);
                 CREATE TABLE {schema}.applied(at INTEGER PRIMARY KEY, number INT);"
            );
        }
        sql.push_str("COMMIT");
        let done = run(self.open()?, &sql);
        if done.is_err() {
            self.roll_back();
        }
        done
    }

    /// Ends a transaction that failed.
    pub fn roll_back(&mut self) {
        if let Some(connection) = &self.connection
            && !connection.is_autocommit()
        {
            // What fails now fails again, louder, when the database is next looked at.
            drop(connection.execute_batch("ROLLBACK"));
        }
    }

    /// Closes the connection.
    ///
    /// # Errors
    /// What SQLite said. It is closed all the same.
    pub fn close(&mut self) -> Outcome<()> {
        match self.connection.take() {
            Some(connection) => connection
                .close()
                .map_err(|(_, error)| said("close", error)),
            None => Ok(()),
        }
    }

    /// Runs a step.
    ///
    /// # Errors
    /// What SQLite said.
    pub fn step(&mut self, step: &Step) -> Outcome<()> {
        if let Step::Reopen = step {
            self.close()?;
            return self.open().map(|_| ());
        }
        let (schemas, stack) = (self.schemas(), self.config.stack);
        let connection = self.open()?;
        let each = |sql: &dyn Fn(&str) -> String| {
            schemas
                .iter()
                .try_for_each(|schema| run(connection, &sql(schema)))
        };
        match step {
            Step::Run(transaction) => run_transaction(connection, schemas, transaction),
            Step::Checkpoint(mode) => {
                each(&|schema| format!("PRAGMA {schema}.wal_checkpoint({mode})"))
            }
            Step::Vacuum => each(&|schema| format!("VACUUM {schema}")),
            Step::Incremental => each(&|schema| format!("PRAGMA {schema}.incremental_vacuum(3)")),
            Step::Sort => each(&|schema| {
                format!(
                    "SELECT count(*) FROM (SELECT body FROM {schema}.t UNION ALL SELECT b FROM {schema}.h ORDER BY 1 LIMIT 500)"
                )
            }),
            Step::Integrity => schemas
                .iter()
                .try_for_each(|schema| integrity(connection, schema)),
            Step::Rekey if stack == Stack::Sealed => {
                // Its handle is used within the call only.
                let raw = raw_of(connection);
                schemas.iter().try_for_each(|schema| {
                    vfs::rekey(raw, schema, None, &mut |_, _| {})
                        .map(|_| ())
                        .map_err(|error| format!("rekey {schema}: {error}"))
                })
            }
            Step::Reopen | Step::Rekey => Ok(()),
        }
    }

    /// The numbers of the transactions that the databases hold, in order.
    ///
    /// # Errors
    /// What SQLite said; also when the databases do not hold the same.
    pub fn applied(&mut self) -> Outcome<Vec<u64>> {
        let schemas = self.schemas();
        let connection = self.open()?;
        let mut found: Option<Vec<u64>> = None;
        for schema in schemas {
            let sql = format!("SELECT number FROM {schema}.applied ORDER BY at");
            let mut statement = connection
                .prepare(&sql)
                .map_err(|error| said(&sql, error))?;
            let numbers = statement
                .query_map([], |row| row.get::<_, i64>(0))
                .and_then(Iterator::collect::<Result<Vec<i64>, _>>)
                .map_err(|error| said(&sql, error))?;
            let numbers: Vec<u64> = numbers.iter().map(|n| n.cast_unsigned()).collect();
            if let Some(first) = &found
                && *first != numbers
            {
                return Err(format!("main holds {first:?}, other {numbers:?}"));
            }
            found = Some(numbers);
        }
        Ok(found.unwrap_or_default())
    }

    /// Compares everything with the model, and gives the transactions that are there.
    ///
    /// # Errors
    /// What is different, or what SQLite said.
    pub fn check(&mut self, steps: &[Step]) -> Outcome<Vec<u64>> {
        let applied = self.applied()?;
        let model = Model::after(steps, &applied);
        let schemas = self.schemas();
        let connection = self.open()?;
        for schema in schemas {
            integrity(connection, schema)?;
            pages(connection, schema)?;
            compare(connection, schema, &model)
                .map_err(|wrong| format!("{schema} after {applied:?}: {wrong}"))?;
        }
        Ok(applied)
    }
}

#[expect(unsafe_code, reason = "the VFS's rekey takes the raw connection")]
fn raw_of(connection: &Connection) -> *mut vfs::sqlite3 {
    // SAFETY: used by the caller only while it has the connection.
    unsafe { connection.handle() }.cast::<vfs::sqlite3>()
}

fn said(what: &str, error: rusqlite::Error) -> String {
    let start: String = what.chars().take(60).collect();
    let plain = error.to_string();
    let guard = strongroom_sqlite::explain(error);
    format!(
        "{start}: {plain} [SR-{} {}]",
        guard.code().number,
        guard.detail()
    )
}

/// Runs statements; rows are read and dropped.
fn run(connection: &Connection, sql: &str) -> Outcome<()> {
    let all = || -> rusqlite::Result<()> {
        let mut batch = Batch::new(connection, sql);
        while let Some(mut statement) = batch.next()? {
            let mut rows = statement.raw_query();
            while rows.next()?.is_some() {}
        }
        Ok(())
    };
    all().map_err(|error| said(sql, error))
}

fn integrity(connection: &Connection, schema: &str) -> Outcome<()> {
    let sql = format!("PRAGMA {schema}.integrity_check");
    let answer: String = connection
        .query_row(&sql, [], |row| row.get(0))
        .map_err(|error| said(&sql, error))?;
    if answer == "ok" {
        Ok(())
    } else {
        Err(format!("{sql}: {answer}"))
    }
}

/// Every page can be read, those of the free list too: VACUUM and the backup API read them.
fn pages(connection: &Connection, schema: &str) -> Outcome<()> {
    let sql = "SELECT total(length(data)) FROM sqlite_dbpage(?1)";
    let read: rusqlite::Result<f64> = connection.query_row(sql, [schema], |row| row.get(0));
    read.map(|_| ()).map_err(|error| said(sql, error))
}

fn compare(connection: &Connection, schema: &str, model: &Model) -> Outcome<()> {
    let sql = format!("SELECT id, k, body FROM {schema}.t ORDER BY id");
    let mut statement = connection
        .prepare(&sql)
        .map_err(|error| said(&sql, error))?;
    let mut rows = statement.query([]).map_err(|error| said(&sql, error))?;
    let mut expected = model.rows.iter();
    while let Some(row) = rows.next().map_err(|error| said(&sql, error))? {
        let read = || -> rusqlite::Result<(i64, i64, Vec<u8>)> {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        };
        let (id, k, body) = read().map_err(|error| said(&sql, error))?;
        let same = expected.next().is_some_and(|(expected_id, expected)| {
            *expected_id == id && expected.0 == k && expected.1 == body
        });
        if !same {
            return Err(format!("row {id} is not as it should be"));
        }
    }
    if let Some((id, _)) = expected.next() {
        return Err(format!("row {id} is missing"));
    }
    let sql = format!(
        "SELECT (SELECT count(*)||' '||total(k) FROM {schema}.t INDEXED BY tk WHERE k>-1),
                (SELECT count(*)||' '||total(length(b)) FROM {schema}.h)"
    );
    let found: (String, String) = connection
        .query_row(&sql, [], |row| Ok((row.get(0)?, row.get(1)?)))
        .map_err(|error| said(&sql, error))?;
    let sum: i64 = model.rows.values().map(|(k, _)| k).sum();
    let filled: usize = model.filled.iter().sum();
    let wanted = (
        format!("{} {sum}.0", model.rows.len()),
        format!("{} {filled}.0", model.filled.len()),
    );
    if found == wanted {
        Ok(())
    } else {
        Err(format!("index and fill: {found:?}, not {wanted:?}"))
    }
}

fn run_transaction(
    connection: &Connection,
    schemas: &[&str],
    transaction: &Transaction,
) -> Outcome<()> {
    run(connection, "BEGIN")?;
    for schema in schemas {
        run_ops(connection, schema, &transaction.ops)?;
        let sql = format!("INSERT INTO {schema}.applied(number) VALUES(?1)");
        let number = transaction.number.cast_signed();
        connection
            .execute(&sql, [number])
            .map_err(|error| said(&sql, error))?;
    }
    if transaction.undone {
        run(connection, "ROLLBACK")
    } else {
        run(connection, "COMMIT")
    }
}

fn run_ops(connection: &Connection, schema: &str, ops: &[Op]) -> Outcome<()> {
    for op in ops {
        let (sql, result) = match op {
            Op::Put { id, k, len, salt } => {
                let sql = format!("INSERT OR REPLACE INTO {schema}.t VALUES(?1,?2,?3)");
                let result = connection.execute(&sql, params![id, k, body(*salt, *len)]);
                (sql, result)
            }
            Op::Add(ids, by) => {
                let sql = format!("UPDATE {schema}.t SET k=k+?1 WHERE id BETWEEN ?2 AND ?3");
                let result = connection.execute(&sql, params![by, ids.start(), ids.end()]);
                (sql, result)
            }
            Op::Delete(ids) => {
                let sql = format!("DELETE FROM {schema}.t WHERE id BETWEEN ?1 AND ?2");
                let result = connection.execute(&sql, params![ids.start(), ids.end()]);
                (sql, result)
            }
            Op::Fill(len) => {
                let sql = format!("INSERT INTO {schema}.h VALUES(zeroblob(?1))");
                let result = connection.execute(&sql, [i64::try_from(*len).unwrap_or(0)]);
                (sql, result)
            }
            Op::Clear => {
                let sql = format!("DELETE FROM {schema}.h");
                let result = connection.execute(&sql, []);
                (sql, result)
            }
            Op::Undone(ops) => {
                run(connection, "SAVEPOINT s")?;
                run_ops(connection, schema, ops)?;
                run(connection, "ROLLBACK TO s; RELEASE s")?;
                continue;
            }
            Op::Nested(ops) => {
                run(connection, "SAVEPOINT s")?;
                run_ops(connection, schema, ops)?;
                run(connection, "RELEASE s")?;
                continue;
            }
        };
        result.map_err(|error| said(&sql, error))?;
    }
    Ok(())
}
