//! `.dump`: the `main` schema as SQL that makes it again. The output is plaintext.
//!
//! The order is that of SQLite's own shell: tables with their rows, then indexes, triggers and
//! views, all read in one transaction. Tables of virtual tables come with their shadow tables.
//! Must not: change the database.

use std::io::Write;

use rusqlite::Connection;
use rusqlite::types::ValueRef;

use crate::error::{Error, sql_failure};
use crate::render::renderer::{blob_text, real_text};
use crate::schema;
use crate::session::{Session, write_failure};

/// Writes SQL that makes the tables LIKE `pattern` again, with their rows, indexes, triggers and
/// views, to where results go: in plaintext, and read in one transaction. If the database cannot be
/// read, SR-1005, SR-6010 (busy) or the VFS's error, such as SR-4001 for a damaged page; the errors
/// of the output. What was written before an error remains.
pub(crate) fn run(session: &mut Session<'_>, pattern: &str) -> Result<(), Error> {
    let connection = std::rc::Rc::clone(&session.connection);
    let failed = sql_failure;
    // One read transaction: the dump is one state of the database.
    connection
        .execute_batch("SAVEPOINT strongroom_dump")
        .map_err(failed)?;
    let (writer, path) = session.writer();
    let mut dump = Dump {
        connection: &connection,
        writer,
        failure: Box::new(move |e| write_failure(path.as_deref(), e)),
        schema_writable: false,
    };
    let outcome = dump.dump_matching(pattern);
    let released = connection.execute_batch("RELEASE strongroom_dump");
    outcome?;
    released.map_err(failed)
}

struct Dump<'a> {
    connection: &'a Connection,
    writer: &'a mut dyn Write,
    failure: Box<dyn Fn(std::io::Error) -> Error>,
    /// Whether the output switched `writable_schema` on.
    schema_writable: bool,
}

impl Dump<'_> {
    /// Writes the whole dump: tables with their rows, then SQLite's own tables, then indexes,
    /// triggers and views. Errors as [`run`].
    fn dump_matching(&mut self, pattern: &str) -> Result<(), Error> {
        self.line("PRAGMA foreign_keys=OFF;")?;
        self.line("BEGIN TRANSACTION;")?;
        let sql = "SELECT name FROM main.sqlite_schema WHERE type = 'table' AND sql IS NOT NULL \
                   AND name LIKE ?1 AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY rowid";
        for table in schema::texts(self.connection, sql, [pattern])? {
            self.table(&table)?;
        }
        self.internal_tables(pattern)?;
        let sql = "SELECT sql FROM main.sqlite_schema WHERE type IN ('index', 'trigger', 'view') \
                   AND sql IS NOT NULL AND tbl_name LIKE ?1 ORDER BY type = 'view', rowid";
        for definition in schema::texts(self.connection, sql, [pattern])? {
            self.line(&format!("{definition};"))?;
        }
        if self.schema_writable {
            self.line("PRAGMA writable_schema=OFF;")?;
        }
        self.line("COMMIT;")
    }

    /// Writes the definition and the rows of one table. A virtual table is written as an entry of
    /// the schema without rows, because its shadow tables are dumped themselves. Errors as [`run`].
    fn table(&mut self, name: &str) -> Result<(), Error> {
        let sql = "SELECT sql FROM main.sqlite_schema WHERE type = 'table' AND name = ?1";
        let definition = schema::texts(self.connection, sql, [name])?.concat();
        let upper = definition.to_ascii_uppercase();
        if upper.starts_with("CREATE VIRTUAL TABLE") {
            if !self.schema_writable {
                self.schema_writable = true;
                self.line("PRAGMA writable_schema=ON;")?;
            }
            let (name, definition) = (
                text_literal(name.as_bytes()),
                text_literal(definition.as_bytes()),
            );
            return self.line(&format!(
                "INSERT INTO sqlite_schema(type,name,tbl_name,rootpage,sql) \
                 VALUES('table',{name},{name},0,{definition});"
            ));
        }
        self.line(&format!("{definition};"))?;
        self.rows(name)
    }

    /// Writes the rows of AUTOINCREMENT's counters and ANALYZE's statistics, whose tables SQLite
    /// creates itself. Does nothing for a pattern other than `%`. Errors as [`run`].
    fn internal_tables(&mut self, pattern: &str) -> Result<(), Error> {
        if pattern != "%" {
            return Ok(());
        }
        let sql = "SELECT name FROM main.sqlite_schema WHERE type = 'table' \
                   AND (name = 'sqlite_sequence' OR name LIKE 'sqlite\\_stat_' ESCAPE '\\') \
                   ORDER BY name";
        let names = schema::texts(self.connection, sql, [])?;
        if names.iter().any(|name| name != "sqlite_sequence") {
            self.line("ANALYZE sqlite_schema;")?;
        }
        for name in names {
            self.line(&format!("DELETE FROM {};", schema::identifier(&name)))?;
            self.rows(&name)?;
        }
        Ok(())
    }

    /// Writes an INSERT statement for each row of the table, without generated columns. Errors as
    /// [`run`].
    fn rows(&mut self, table: &str) -> Result<(), Error> {
        let failed = sql_failure;
        let (columns, all) = schema::stored_columns(self.connection, table)?;
        let quoted: Vec<String> = columns
            .iter()
            .map(|name| schema::identifier(name))
            .collect();
        let (list, target) = (quoted.join(","), schema::identifier(table));
        let named = if all {
            String::new()
        } else {
            format!("({list})")
        };
        let mut statement = self
            .connection
            .prepare(&format!("SELECT {list} FROM main.{target}"))
            .map_err(failed)?;
        let mut rows = statement.raw_query();
        while let Some(row) = rows.next().map_err(failed)? {
            let values: rusqlite::Result<Vec<String>> = (0..columns.len())
                .map(|index| row.get_ref(index).map(sql_literal))
                .collect();
            let values = values.map_err(failed)?.join(",");
            self.line(&format!("INSERT INTO {target}{named} VALUES({values});"))?;
        }
        Ok(())
    }

    /// Writes a line of the dump. The error says where it was to go.
    fn line(&mut self, text: &str) -> Result<(), Error> {
        writeln!(self.writer, "{text}").map_err(|e| (self.failure)(e))
    }
}

/// Returns the SQL literal or expression that gives exactly this value.
fn sql_literal(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Null => "NULL".to_owned(),
        // The positive number does not exist, so the literal would become a real.
        ValueRef::Integer(i64::MIN) => "(-9223372036854775807-1)".to_owned(),
        ValueRef::Integer(value) => value.to_string(),
        ValueRef::Real(value) if value.is_infinite() => {
            if value > 0.0 { "9e999" } else { "-9e999" }.to_owned()
        }
        ValueRef::Real(value) => real_text(value),
        ValueRef::Text(text) => text_literal(text),
        ValueRef::Blob(bytes) => blob_text(bytes),
    }
}

/// Returns text as a quoted literal, or as a cast blob if a literal cannot hold it (NUL, bytes that
/// are not UTF-8).
fn text_literal(text: &[u8]) -> String {
    match std::str::from_utf8(text) {
        Ok(text) if !text.contains('\0') => format!("'{}'", text.replace('\'', "''")),
        _ => format!("CAST({} AS TEXT)", blob_text(text)),
    }
}
