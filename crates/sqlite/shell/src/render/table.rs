//! Rows as an aligned table: names, a rule, rows; numbers to the right. Widths count terminal
//! columns, not bytes.
//!
//! The widths come from the first rows, which are held back; a later cell that is wider is not
//! aligned. Control characters in text are shown as escapes, so that data cannot drive the
//! terminal.

use std::fmt::Write as _;
use std::io::{self, Write};

use rusqlite::types::ValueRef;
use unicode_width::UnicodeWidthStr as _;

use super::renderer::{Renderer, Style, blob_text, real_text};

/// Rows that are held back to find the widths.
const HELD_ROWS_MAX: usize = 1000;

struct Cell {
    text: String,
    number: bool,
}

pub(crate) struct Table<'w> {
    to: &'w mut dyn Write,
    names: Vec<String>,
    headers: bool,
    null: String,
    held: Vec<Vec<Cell>>,
    /// Column widths, once they are settled.
    widths: Option<Vec<usize>>,
}

impl<'w> Table<'w> {
    /// Returns a writer of a table. Control characters in names are escaped.
    pub(crate) fn new(to: &'w mut dyn Write, names: &[String], style: &Style) -> Self {
        Self {
            to,
            names: names.iter().map(|name| escape_controls(name)).collect(),
            headers: style.headers,
            null: style.null.clone(),
            held: Vec::new(),
            widths: None,
        }
    }

    /// Returns a value as it is shown, and whether it is a number, which is aligned to the right.
    fn cell(&self, value: ValueRef<'_>) -> Cell {
        let (text, number) = match value {
            ValueRef::Null => (self.null.clone(), false),
            ValueRef::Integer(value) => (value.to_string(), true),
            ValueRef::Real(value) => (real_text(value), true),
            ValueRef::Text(text) => (escape_controls(&String::from_utf8_lossy(text)), false),
            ValueRef::Blob(bytes) => (blob_text(bytes), false),
        };
        Cell { text, number }
    }

    /// Computes the widths from the rows that are held back, writes the header, unless switched
    /// off, and these rows, and returns the widths. Fails with the output's error.
    fn settle(&mut self) -> io::Result<Vec<usize>> {
        let held = std::mem::take(&mut self.held);
        let mut widths: Vec<usize> = if self.headers {
            self.names.iter().map(|name| name.width()).collect()
        } else {
            vec![0; self.names.len()]
        };
        for row in &held {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.text.width());
            }
        }
        if self.headers {
            let cells: Vec<Cell> = self.names.iter().cloned().map(Cell::text).collect();
            write_row(self.to, &widths, &cells)?;
            let rules: Vec<String> = widths.iter().map(|&width| "-".repeat(width)).collect();
            writeln!(self.to, "{}", rules.join("-+-"))?;
        }
        for row in &held {
            write_row(self.to, &widths, row)?;
        }
        Ok(widths)
    }
}

impl Renderer for Table<'_> {
    /// Holds the row back while there are fewer than 1000, to find the widths; after that writes it
    /// at once. Fails with the output's error.
    fn row(&mut self, cells: &[ValueRef<'_>]) -> io::Result<()> {
        let row: Vec<Cell> = cells.iter().map(|&value| self.cell(value)).collect();
        if let Some(widths) = &self.widths {
            return write_row(self.to, widths, &row);
        }
        self.held.push(row);
        if self.held.len() == HELD_ROWS_MAX {
            self.widths = Some(self.settle()?);
        }
        Ok(())
    }

    /// Writes the rows that are held back. A statement without rows shows nothing, not even a
    /// header. Fails with the output's error.
    fn end(&mut self) -> io::Result<()> {
        // A statement without rows (many pragmas) shows nothing.
        if self.widths.is_none() && !self.held.is_empty() {
            self.widths = Some(self.settle()?);
        }
        Ok(())
    }
}

impl Cell {
    /// Returns a cell that is aligned to the left.
    fn text(text: String) -> Self {
        Self {
            text,
            number: false,
        }
    }
}

/// Writes a row with its cells padded to these widths. A cell that is wider is not cut. Fails with
/// the output's error.
fn write_row(to: &mut dyn Write, widths: &[usize], cells: &[Cell]) -> io::Result<()> {
    let mut line = String::new();
    for (index, (cell, width)) in cells.iter().zip(widths).enumerate() {
        if index > 0 {
            line.push_str(" | ");
        }
        let padding = " ".repeat(width.saturating_sub(cell.text.width()));
        if cell.number {
            line.push_str(&padding);
            line.push_str(&cell.text);
        } else {
            line.push_str(&cell.text);
            line.push_str(&padding);
        }
    }
    writeln!(to, "{}", line.trim_end())
}

/// Returns text with control characters as escapes, among them those that turn the writing
/// direction.
fn escape_controls(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                // Writing to a String cannot fail.
                _ = write!(out, "\\u{{{:x}}}", u32::from(c));
            }
            c if c.is_control() => {
                _ = write!(out, "\\u{{{:x}}}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out
}
