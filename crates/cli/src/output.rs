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
    pub(crate) fn stdout() -> Self {
        Self {
            to: BufWriter::new(std::io::stdout()),
        }
    }

    /// One line of text.
    pub(crate) fn line(&mut self, text: &str) -> Result<(), Failure> {
        writeln!(self.to, "{text}").map_err(|e| Failure::output(&e))
    }

    /// Text as it is.
    pub(crate) fn text(&mut self, text: &str) -> Result<(), Failure> {
        self.to
            .write_all(text.as_bytes())
            .map_err(|e| Failure::output(&e))
    }

    /// One JSON object, indented, and a line end.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(value)
            .map_err(|e| Failure::new(&code::BUG, e.to_string()))?;
        self.line(&text)
    }

    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        self.to.flush().map_err(|e| Failure::output(&e))
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.to.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.to.flush()
    }
}

/// Rows of text cells, padded to columns two spaces apart.
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
