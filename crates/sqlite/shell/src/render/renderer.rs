//! What the three renderers have in common: their trait, the settings, and numbers and blobs as
//! text.
//!
//! Must not: choose a renderer.

use std::io;

use rusqlite::types::ValueRef;
use strongroom_format::hex::hex;

use crate::mode::Mode;

/// The settings that decide how results look.
#[derive(Clone)]
pub(crate) struct Style {
    pub(crate) mode: Mode,
    /// Whether table and CSV begin with the column names.
    pub(crate) headers: bool,
    /// The text of NULL in a table.
    pub(crate) null: String,
}

impl Style {
    /// Returns the usual settings for this mode: with headers, and NULL as "NULL".
    pub(crate) fn new(mode: Mode) -> Self {
        Self {
            mode,
            headers: true,
            null: "NULL".to_owned(),
        }
    }
}

/// Writes the rows of one statement.
pub(crate) trait Renderer {
    /// Takes the next row and writes it, now or at the end. Fails with the output's error.
    fn row(&mut self, cells: &[ValueRef<'_>]) -> io::Result<()>;
    /// Writes what remains after the last row. Called once, also without any row. Fails with the
    /// output's error.
    fn end(&mut self) -> io::Result<()>;
}

/// Returns the shortest decimal that reads back as the same number; "Inf" or "-Inf" for infinities,
/// as SQLite writes them.
pub(crate) fn real_text(value: f64) -> String {
    if value.is_infinite() {
        return if value > 0.0 { "Inf" } else { "-Inf" }.to_owned();
    }
    // SQLite has no NaN, so the fallback is never used.
    serde_json::Number::from_f64(value).map_or_else(|| "NULL".to_owned(), |n| n.to_string())
}

/// Returns a blob as a literal of SQL.
pub(crate) fn blob_text(bytes: &[u8]) -> String {
    format!("x'{}'", hex(bytes))
}
