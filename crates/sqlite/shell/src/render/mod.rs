//! How result rows are written: table, CSV or JSON.
//!
//! Must not: hold more rows than a table needs to find its column widths.

mod csv;
mod json;
pub(crate) mod renderer;
mod table;

use std::io::Write;

use rusqlite::Row;
use rusqlite::types::ValueRef;

use self::renderer::{Renderer, Style};
use super::mode::Mode;

/// Returns the renderer that writes one statement's rows to `to`, in the style's mode. The columns
/// have these names.
pub(crate) fn renderer_of<'w>(
    style: &Style,
    to: &'w mut dyn Write,
    names: &[String],
) -> Box<dyn Renderer + 'w> {
    match style.mode {
        Mode::Table => Box::new(table::Table::new(to, names, style)),
        Mode::Csv => Box::new(csv::Csv::new(to, names, style.headers)),
        Mode::Json => Box::new(json::Json::new(to, names)),
    }
}

/// Returns the first `count` cells of a row, borrowed from SQLite until the next step. Fails if a
/// row has fewer.
pub(crate) fn cells<'r>(row: &'r Row<'_>, count: usize) -> rusqlite::Result<Vec<ValueRef<'r>>> {
    (0..count).map(|index| row.get_ref(index)).collect()
}
