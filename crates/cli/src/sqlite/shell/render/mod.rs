//! How result rows are written: table, CSV or JSON.
//!
//! Must not: hold more rows than a table needs to find its column widths.

mod csv;
mod json;
mod table;

use std::io::{self, Write};

use rusqlite::Row;
use rusqlite::types::ValueRef;

use super::Mode;
use crate::output::hex;

/// The settings that decide how results look.
#[derive(Clone)]
pub(in crate::sqlite::shell) struct Style {
    pub(in crate::sqlite::shell) mode: Mode,
    /// Whether table and CSV begin with the column names.
    pub(in crate::sqlite::shell) headers: bool,
    /// What stands for NULL in a table.
    pub(in crate::sqlite::shell) null: String,
}

/// Writes the rows of one statement.
pub(in crate::sqlite::shell) trait Renderer {
    fn row(&mut self, cells: &[ValueRef<'_>]) -> io::Result<()>;
    /// After the last row.
    fn end(&mut self) -> io::Result<()>;
}

impl Style {
    pub(in crate::sqlite::shell) fn new(mode: Mode) -> Self {
        Self {
            mode,
            headers: true,
            null: "NULL".to_owned(),
        }
    }

    /// A renderer for one statement's rows.
    pub(in crate::sqlite::shell) fn renderer<'w>(
        &self,
        to: &'w mut dyn Write,
        names: &[String],
    ) -> Box<dyn Renderer + 'w> {
        match self.mode {
            Mode::Table => Box::new(table::Table::new(to, names, self)),
            Mode::Csv => Box::new(csv::Csv::new(to, names, self.headers)),
            Mode::Json => Box::new(json::Json::new(to, names)),
        }
    }
}

/// The cells of a row, borrowed from SQLite until the next step.
pub(in crate::sqlite::shell) fn cells<'r>(
    row: &'r Row<'_>,
    count: usize,
) -> rusqlite::Result<Vec<ValueRef<'r>>> {
    (0..count).map(|index| row.get_ref(index)).collect()
}

/// The shortest decimal that reads back as the same number; infinities in SQLite's words.
pub(in crate::sqlite::shell) fn real_text(value: f64) -> String {
    if value.is_infinite() {
        return if value > 0.0 { "Inf" } else { "-Inf" }.to_owned();
    }
    // SQLite has no NaN, so the fallback is never used.
    serde_json::Number::from_f64(value).map_or_else(|| "NULL".to_owned(), |n| n.to_string())
}

/// A blob as SQL writes it.
pub(in crate::sqlite::shell) fn blob_text(bytes: &[u8]) -> String {
    format!("x'{}'", hex(bytes))
}
