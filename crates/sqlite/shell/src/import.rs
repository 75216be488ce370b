//! `.import`: rows of a CSV file into a table, all of them or none.
//!
//! Must not: guess. A row of another length than the table, or bytes that are not UTF-8, stop the
//! import.

use std::path::Path;

use rusqlite::{Connection, params_from_iter};
use strongroom_format::code;
use strongroom_keyring::paths;

use crate::console::Console;
use crate::error::{Error, sql_failure};
use crate::schema;
use crate::session::Session;

/// Imports all rows of the CSV file `path` into `table`, or none, after its first `skip` rows. A
/// table that does not exist is made with the column names of the next row. SR-1003 for a file that
/// the connection has open, SR-1006 or SR-1007 if there is no such file, SR-1005 for a row of
/// another length, text that is not UTF-8, and what SQLite refuses; SR-5001 if the file cannot be
/// read.
pub(crate) fn run(
    session: &mut Session<'_>,
    path: &Path,
    table: &str,
    skip: u64,
) -> Result<(), Error> {
    schema::refuse_open_file(&session.connection, path)?;
    let (file, size) = paths::open_to_read(path)?;
    let mut reader = csv::ReaderBuilder::new();
    let reader = reader.has_headers(false).flexible(true).from_reader(file);
    let connection = std::rc::Rc::clone(&session.connection);
    let failed = sql_failure;
    connection
        .execute_batch("SAVEPOINT strongroom_import")
        .map_err(failed)?;
    let import = Import {
        connection: &connection,
        path,
        size,
        table,
    };
    let outcome = import.rows(reader, skip, session.console);
    if outcome.is_err() {
        // The import's own error is the one to report; RELEASE below fails too if this did.
        drop(connection.execute_batch("ROLLBACK TO strongroom_import"));
    }
    let released = connection.execute_batch("RELEASE strongroom_import");
    outcome?;
    released.map_err(failed)
}

struct Import<'a> {
    connection: &'a Connection,
    path: &'a Path,
    size: u64,
    table: &'a str,
}

impl Import<'_> {
    /// Skips rows, makes the table if it does not exist, and inserts all other rows, with progress.
    /// The caller undoes what was done if this fails. Does nothing if the file ends within the
    /// skipped rows. Errors as [`run`].
    fn rows(
        &self,
        mut reader: csv::Reader<std::fs::File>,
        skip: u64,
        console: &dyn Console,
    ) -> Result<(), Error> {
        let mut record = csv::StringRecord::new();
        for _ in 0..skip {
            if !self.read(&mut reader, &mut record)? {
                return Ok(());
            }
        }
        let mut columns = schema::stored_columns(self.connection, self.table)?.0;
        if columns.is_empty() {
            if !self.read(&mut reader, &mut record)? {
                return Err(self.bad("the file has no row to take column names from"));
            }
            columns = record.iter().map(str::to_owned).collect();
            self.create(&columns)?;
        }
        let failed = sql_failure;
        let names: Vec<String> = columns
            .iter()
            .map(|name| schema::identifier(name))
            .collect();
        let sql = format!(
            "INSERT INTO main.{}({}) VALUES({})",
            schema::identifier(self.table),
            names.join(","),
            vec!["?"; names.len()].join(",")
        );
        let mut insert = self.connection.prepare(&sql).map_err(failed)?;
        let mut progress = console.progress("importing");
        while self.read(&mut reader, &mut record)? {
            if record.len() != columns.len() {
                let (found, wanted) = (record.len(), columns.len());
                let line = record.position().map_or(0, csv::Position::line);
                let text = format!("line {line} has {found} fields, the table has {wanted}");
                return Err(self.bad(&text));
            }
            insert
                .execute(params_from_iter(record.iter()))
                .map_err(failed)?;
            progress(reader.position().byte(), self.size);
        }
        Ok(())
    }

    /// Makes the table with these columns, all of type TEXT. If SQLite does not make it, SR-1005,
    /// SR-6010 (busy) or the VFS's error.
    fn create(&self, columns: &[String]) -> Result<(), Error> {
        let names: Vec<String> = columns
            .iter()
            .map(|name| format!("{} TEXT", schema::identifier(name)))
            .collect();
        let table = schema::identifier(self.table);
        let sql = format!("CREATE TABLE main.{table}({})", names.join(", "));
        let created = self.connection.execute_batch(&sql);
        created.map_err(sql_failure)
    }

    /// Reads the next row into `record`. False at the end of the file. SR-1005 for what is not CSV
    /// or not UTF-8; SR-5001 if the file cannot be read.
    fn read(
        &self,
        reader: &mut csv::Reader<std::fs::File>,
        record: &mut csv::StringRecord,
    ) -> Result<bool, Error> {
        reader.read_record(record).map_err(|error| {
            let line = error.position().map_or(0, csv::Position::line);
            match error.into_kind() {
                csv::ErrorKind::Io(error) => {
                    strongroom_keyring::Error::on_path(self.path, error).into()
                }
                csv::ErrorKind::Utf8 { .. } => self.bad(&format!("line {line} is not UTF-8")),
                _ => self.bad(&format!("line {line} is not CSV")),
            }
        })
    }

    /// Makes an SR-1005 error about the file, which says that nothing was imported.
    fn bad(&self, text: &str) -> Error {
        let detail = format!("{}: {text}; nothing was imported", self.path.display());
        Error::new(&code::SQL, detail)
    }
}
