//! Rows as CSV, RFC 4180: CRLF line ends, quotes where needed. NULL is an empty field, text keeps
//! its bytes.

use std::io::{self, Write};

use csv::{Terminator, WriterBuilder};
use rusqlite::types::ValueRef;

use super::renderer::{Renderer, blob_text, real_text};

pub(crate) struct Csv<'w> {
    writer: csv::Writer<&'w mut dyn Write>,
    /// The header row, until it has been written.
    header: Option<Vec<String>>,
}

impl<'w> Csv<'w> {
    /// Returns a writer of CSV; `headers`: the names are written first.
    pub(crate) fn new(to: &'w mut dyn Write, names: &[String], headers: bool) -> Self {
        let mut builder = WriterBuilder::new();
        Self {
            writer: builder.terminator(Terminator::CRLF).from_writer(to),
            header: headers.then(|| names.to_vec()),
        }
    }

    /// Writes the header row if it is wanted and was not yet written. Fails with the output's
    /// error.
    fn write_header(&mut self) -> io::Result<()> {
        match self.header.take() {
            Some(names) => self.writer.write_record(names).map_err(io_error),
            None => Ok(()),
        }
    }
}

impl Renderer for Csv<'_> {
    /// Writes a row, the first time after the header. Fails with the output's error.
    fn row(&mut self, cells: &[ValueRef<'_>]) -> io::Result<()> {
        self.write_header()?;
        for cell in cells {
            let written = match cell {
                ValueRef::Null => self.writer.write_field(""),
                ValueRef::Integer(value) => self.writer.write_field(value.to_string()),
                ValueRef::Real(value) => self.writer.write_field(real_text(*value)),
                ValueRef::Text(text) => self.writer.write_field(text),
                ValueRef::Blob(bytes) => self.writer.write_field(blob_text(bytes)),
            };
            written.map_err(io_error)?;
        }
        let end: [&[u8]; 0] = [];
        self.writer.write_record(end).map_err(io_error)
    }

    /// Writes the header if there was no row, and flushes. Fails with the output's error.
    fn end(&mut self) -> io::Result<()> {
        self.write_header()?;
        self.writer.flush()
    }
}

/// Returns the I/O error in an error of the CSV writer, so that a closed standard output can be
/// recognised.
fn io_error(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        _ => io::Error::other("CSV record of unequal length"),
    }
}
