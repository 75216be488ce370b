//! Where results are written: standard output, buffered.
//!
//! Invariant: a reader that closes the pipe ends the command quietly, without a panic
//! (`Failure::output`).
//!
//! Must not: be used for messages, which go to standard error through `failure`.

use std::io::{BufWriter, Stdout, Write};

use serde::Serialize;
use strongroom_format::code;

use crate::failure::Failure;

/// Buffered standard output.
pub(crate) struct Output {
    to: BufWriter<Stdout>,
}

impl Output {
    /// Returns a buffered writer of standard output. Nothing is written before a flush or a full
    /// buffer.
    pub(crate) fn stdout() -> Self {
        Self {
            to: BufWriter::new(std::io::stdout()),
        }
    }

    /// Adds `text` and a line end to the buffer of standard output, which is written when it is
    /// full or flushed. SR-5001 if standard output cannot be written.
    pub(crate) fn line(&mut self, text: &str) -> Result<(), Failure> {
        writeln!(self.to, "{text}").map_err(|e| Failure::output(&e))
    }

    /// Adds `text` to the buffer of standard output, unchanged and without a line end. It is
    /// written when the buffer is full or flushed. SR-5001 if standard output cannot be written, of
    /// which nothing is printed if the reader has closed the pipe.
    pub(crate) fn text(&mut self, text: &str) -> Result<(), Failure> {
        self.to
            .write_all(text.as_bytes())
            .map_err(|e| Failure::output(&e))
    }

    /// Adds `value` as one indented JSON document and a line end to the buffer of standard output.
    /// SR-5001 if standard output cannot be written, SR-9001 if `value` cannot be turned into JSON.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(value)
            .map_err(|e| Failure::new(&code::BUG, e.to_string()))?;
        self.line(&text)
    }

    /// Writes what is buffered to standard output. SR-5001 if that fails.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        self.to.flush().map_err(|e| Failure::output(&e))
    }
}

impl Write for Output {
    /// Adds bytes to the buffer of standard output, which is written when it is full; the error is
    /// the system's.
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.to.write(bytes)
    }

    /// Writes what is buffered to standard output; the error is the system's.
    fn flush(&mut self) -> std::io::Result<()> {
        self.to.flush()
    }
}

/// Lays out rows of cells as text: every cell is padded to the width of its column in characters,
/// columns are two spaces apart, and every row ends with a line end.
pub(crate) fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths);
        let line: Vec<String> = cells.map(|(cell, &w)| format!("{cell:<w$}")).collect();
        out.push_str(line.join("  ").trim_end());
        out.push('\n');
    }
    out
}
