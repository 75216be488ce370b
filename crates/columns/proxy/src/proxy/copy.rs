//! The data of COPY: seals the fields of confidential columns on the way in, and opens them on the
//! way out.
//!
//! The formats are those of src/backend/commands/copyfromparse.c and copyto.c. A message may end
//! anywhere in a row, so rows are collected first. Must not: guess: a form that is not understood
//! exactly is refused when the statement is planned.

use std::sync::Arc;

use strongroom_postgres_wire::{Builder, Fields};
use zeroize::Zeroizing;

use super::convert::{BINARY, Converter};
use super::copy_fields::{
    LineField, RowScan, binary_row_len, has_return, malformed, split_line_end, write_field,
};
use super::rows::check_names;
use super::settings::Settings;
use crate::envelope;
use crate::keys::ColumnKeys;
use crate::results::Results;
use crate::sql::catalog::{Catalog, EncType};
use crate::sql::refusal::Refusal;
use crate::sql::{Copy, CopyColumn, CopyFormat, CopyOptions, ExpectedColumns, Origins};

/// Longest row, as in PostgreSQL.
const ROW_MAX: usize = 0x3fff_ffff;

/// Which columns are confidential, and how the stream is written.
pub(crate) struct Transform {
    columns: Vec<Option<CopyColumn>>,
    /// What each of the columns is to be that are sent to the client.
    expected: ExpectedColumns,
    options: CopyOptions,
    /// Whether the columns are known. If not, the server is to say that there is no such relation;
    /// if it has one all the same, no data passes.
    known: bool,
}

/// Makes the refusal (SR-8103) of a COPY of which it is not known what to convert.
fn untold() -> Refusal {
    const HINT: &str = "Use INSERT, or another form of COPY.";
    Refusal::statement("COPY of columns whose types the proxy cannot tell", HINT)
}

impl Transform {
    /// Returns the transformation for a planned COPY. `None` when no column is confidential.
    ///
    /// # Errors
    /// SR-8103 if the columns' types are not known although the relation is, or the statement uses
    /// an option that cannot be handled exactly.
    pub(crate) fn of(copy: &Copy) -> Result<Option<Arc<Self>>, Refusal> {
        const HINT: &str = "Use INSERT, or another form of COPY.";
        let known = copy.columns.is_some();
        if !known && !copy.unknown {
            return Err(untold());
        }
        let columns = copy.columns.clone().unwrap_or_default();
        if known && columns.iter().all(Option::is_none) {
            return Ok(None);
        }
        if let Some(option) = &copy.options.other {
            let message = format!(
                "COPY with the option {} and confidential columns",
                option.to_uppercase()
            );
            return Err(Refusal::statement(&message, HINT));
        }
        Ok(Some(Arc::new(Self {
            columns,
            expected: Arc::clone(&copy.expected),
            options: copy.options.clone(),
            known,
        })))
    }

    /// Returns whether the data are in binary form.
    pub(crate) fn is_binary(&self) -> bool {
        self.options.format == CopyFormat::Binary
    }

    /// Returns how many columns there are; `None` if that is not known.
    pub(crate) fn columns_count(&self) -> Option<usize> {
        self.known.then_some(self.columns.len())
    }

    /// Checks that data can be converted. Fails with SR-8103 if the columns are not known.
    fn check_known(&self) -> Result<(), Refusal> {
        if self.known { Ok(()) } else { Err(untold()) }
    }
}

/// Makes the error (22P04, SR-8104) for a carriage return that ends a row, or would be refused.
fn carriage_return() -> Refusal {
    Refusal::value(
        "22P04",
        "a carriage return in COPY data that does not stand before a newline",
    )
}

/// Refuses (22P04, SR-8104) a row for the client that is not as the server writes one: a reader
/// could find other fields in it, or other rows.
fn check_written(is_written: bool) -> Result<(), Refusal> {
    if is_written {
        return Ok(());
    }
    Err(Refusal::value(
        "22P04",
        "a row of COPY is not as PostgreSQL writes one",
    ))
}

/// One direction of one COPY.
struct CopyStream {
    transform: Arc<Transform>,
    keys: Arc<ColumnKeys>,
    settings: Settings,
    /// Which envelopes are opened on the way out.
    results: Arc<Results>,
    /// By whose names columns are known.
    catalog: Arc<Catalog>,
    pending: Zeroizing<Vec<u8>>,
    scan: RowScan,
    /// Header row or binary header are still to come.
    header: bool,
    sealing: bool,
    /// The end marker has come; further data is ignored, or refused in binary form.
    ended: bool,
}

/// Data from the client to the server.
pub(crate) struct Incoming(CopyStream);
/// Data from the server to the client.
pub(crate) struct Outgoing(CopyStream);

impl Incoming {
    /// Makes the converter of a COPY from the client.
    pub(crate) fn new(
        transform: Arc<Transform>,
        keys: Arc<ColumnKeys>,
        settings: Settings,
    ) -> Self {
        let none = (Arc::default(), Arc::default());
        Self(CopyStream::new(transform, keys, settings, (true, none)))
    }

    /// Adds a piece of data, and appends the rows that are complete to `out`, sealed. Fails with
    /// SR-8104 if a row is malformed or too long, or a value is not valid.
    pub(crate) fn push(&mut self, piece: &[u8], out: &mut Vec<u8>) -> Result<(), Refusal> {
        self.0.push(piece, out)
    }

    /// Ends the data: appends a last row without a newline to `out`. Fails with SR-8104 if it is
    /// malformed or a value is not valid; binary data must have ended with a whole row.
    pub(crate) fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), Refusal> {
        self.0.finish(out)
    }
}

impl Outgoing {
    /// Makes the converter of a COPY to the client, which opens the envelopes that `results` takes.
    /// The names of columns are the catalog's.
    pub(crate) fn new(
        transform: Arc<Transform>,
        keys: Arc<ColumnKeys>,
        settings: Settings,
        taken: (Arc<Results>, Arc<Catalog>),
    ) -> Self {
        Self(CopyStream::new(transform, keys, settings, (false, taken)))
    }

    /// Adds a piece of data, and appends the rows that are complete to `out`, opened. Fails with
    /// SR-8104 if a row is malformed or too long, or an envelope does not open.
    pub(crate) fn push(&mut self, piece: &[u8], out: &mut Vec<u8>) -> Result<(), Refusal> {
        self.0.push(piece, out)
    }
}

impl CopyStream {
    /// Makes the converter of either direction; `sealing`: from the client. `results` says which
    /// envelopes are opened.
    fn new(
        transform: Arc<Transform>,
        keys: Arc<ColumnKeys>,
        settings: Settings,
        (sealing, (results, catalog)): (bool, (Arc<Results>, Arc<Catalog>)),
    ) -> Self {
        let header = transform.options.header || transform.options.format == CopyFormat::Binary;
        Self {
            transform,
            keys,
            settings,
            results,
            catalog,
            pending: Zeroizing::new(Vec::new()),
            scan: RowScan::default(),
            header,
            sealing,
            ended: false,
        }
    }

    /// Adds a piece of data, and appends the rows that are complete to `out`, converted. Data after
    /// the end marker is ignored, or refused in binary form. Fails with SR-8104, and with SR-8103
    /// if the columns are not known.
    fn push(&mut self, piece: &[u8], out: &mut Vec<u8>) -> Result<(), Refusal> {
        self.transform.check_known()?;
        if self.ended {
            return self.check_after_end(piece);
        }
        self.pending.extend_from_slice(piece);
        let mut pending = std::mem::take(&mut self.pending);
        let mut rest = pending.as_slice();
        while let Some(len) = self.row_len(rest)? {
            let (row, after) = rest.split_at_checked(len).unwrap_or((rest, &[]));
            self.row(row, out)?;
            if self.ended {
                return self.check_after_end(after);
            }
            rest = after;
        }
        if rest.len() > ROW_MAX {
            return Err(Refusal::value("54000", "a row of COPY is longer than 1 GB"));
        }
        let done = pending.len().saturating_sub(rest.len());
        pending.drain(..done);
        self.pending = pending;
        Ok(())
    }

    /// Checks data after the end marker. As in the server (copyfromparse.c), it is ignored in text
    /// and CSV, and refused in binary form unless it is empty: SR-8104 with SQLSTATE 22P04.
    fn check_after_end(&self, bytes: &[u8]) -> Result<(), Refusal> {
        if self.transform.options.format == CopyFormat::Binary && !bytes.is_empty() {
            return Err(Refusal::value(
                "22P04",
                "received copy data after EOF marker",
            ));
        }
        Ok(())
    }

    /// Converts a last row without a newline. Fails with SR-8104, and with SR-8103 if the columns
    /// are not known; binary data must have ended with a whole row.
    fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), Refusal> {
        self.transform.check_known()?;
        let rest = std::mem::take(&mut self.pending);
        if rest.is_empty() || self.ended {
            return Ok(());
        }
        if self.transform.options.format == CopyFormat::Binary {
            return Err(Refusal::value("22P04", "unexpected EOF in COPY data"));
        }
        self.row(&rest, out)
    }

    /// Returns the length of the first row with its end, or `None` when more has to come. Fails
    /// with SR-8104 for malformed binary data.
    fn row_len(&mut self, bytes: &[u8]) -> Result<Option<usize>, Refusal> {
        if bytes.is_empty() {
            return Ok(None);
        }
        match self.transform.options.format {
            CopyFormat::Text => Ok(self.scan.text_row_len(bytes)),
            CopyFormat::Csv => Ok(self.scan.csv_row_len(bytes, &self.transform.options)),
            CopyFormat::Binary => binary_row_len(bytes, self.header),
        }
    }

    /// Appends one row to `out`, converted. The header, and the end marker, which ends the data,
    /// stay as they are. Fails with SR-8104.
    fn row(&mut self, row: &[u8], out: &mut Vec<u8>) -> Result<(), Refusal> {
        let end_marker =
            self.transform.options.format != CopyFormat::Binary && split_line_end(row).0 == b"\\.";
        if end_marker {
            self.ended = true;
            out.extend_from_slice(row);
            return Ok(());
        }
        if std::mem::take(&mut self.header) {
            if !self.sealing && self.transform.options.format != CopyFormat::Binary {
                self.check_header(split_line_end(row).0)?;
            }
            out.extend_from_slice(row);
            return Ok(());
        }
        match self.transform.options.format {
            CopyFormat::Text | CopyFormat::Csv => self.line_row(row, out),
            CopyFormat::Binary => self.binary_row(row, out),
        }
    }

    /// Appends one row in text format or CSV to `out`, converted. Fails with SR-8104 if a value is
    /// not valid, the number of fields is another, or the row is not as PostgreSQL reads or writes
    /// one.
    fn line_row(&self, row: &[u8], out: &mut Vec<u8>) -> Result<(), Refusal> {
        let options = &self.transform.options;
        let (line, end) = split_line_end(row);
        if self.sealing && has_return(line, end, options) {
            return Err(carriage_return());
        }
        let mut rest = Some(line);
        let mut at = 0;
        while let Some(line) = rest {
            let (field, after) = LineField::first(line, options);
            let is_null = field.is_null(options);
            match self.column(at) {
                Some(column) if !is_null => {
                    let converted = self.convert_field(column, at, &field.value())?;
                    write_field(&converted, options, out);
                }
                _ => {
                    check_written(self.sealing || is_null || field.is_written(options))?;
                    out.extend_from_slice(field.raw);
                }
            }
            at = usize::saturating_add(at, 1);
            if after.is_some() {
                out.push(options.delimiter);
            }
            rest = after;
        }
        out.extend_from_slice(end);
        self.check_field_count(at)
    }

    /// Checks the header that goes to the client: applications read columns by these names. Fails
    /// with SR-8108 where a confidential column has the name of another one, or another one its
    /// name; with SR-8104 if it is not as the server writes one.
    fn check_header(&self, line: &[u8]) -> Result<(), Refusal> {
        let options = &self.transform.options;
        let mut names = Vec::new();
        let mut rest = Some(line);
        while let Some(line) = rest {
            let (field, after) = LineField::first(line, options);
            check_written(field.is_written(options))?;
            names.push(field.value());
            rest = after;
        }
        self.check_field_count(names.len())?;
        check_names(
            names.iter().map(|name| name.as_slice()),
            &self.transform.expected,
        )
    }

    /// Appends one row in binary format to `out`, converted; the end marker ends the data. Fails
    /// with SR-8104 if it is malformed, a value is not valid, or the number of fields is another.
    fn binary_row(&mut self, row: &[u8], out: &mut Vec<u8>) -> Result<(), Refusal> {
        let mut fields = Fields(row);
        let count = fields.int16().ok_or_else(malformed)?;
        if count == -1 {
            self.ended = true;
            out.extend_from_slice(row);
            return Ok(());
        }
        let count = usize::try_from(count).map_err(|_| malformed())?;
        self.check_field_count(count)?;
        let converter = self.converter();
        let mut framed = Vec::new();
        let mut message = Builder::untagged(&mut framed);
        message.count(count);
        for at in 0..count {
            let value = fields.value().ok_or_else(malformed)?;
            match (value, self.column(at)) {
                (Some(bytes), Some(column)) if self.sealing => {
                    let converter = converter.storing_in(column.comparable);
                    message.value(Some(converter.seal(column.kind, bytes)?.as_slice()));
                }
                (Some(bytes), Some(column)) => {
                    let of = EncType {
                        kind: column.kind,
                        array: false,
                    };
                    let expected = self.expected(at);
                    let converter = converter.expecting(expected, &self.catalog);
                    let value = converter.open_result(of, BINARY, bytes)?;
                    message.value(Some(value.as_slice()));
                }
                (value, _) => {
                    message.value(value);
                }
            }
        }
        out.extend_from_slice(framed.get(4..).unwrap_or_default());
        Ok(())
    }

    /// Returns the converter of the stream's values.
    fn converter(&self) -> Converter<'_> {
        Converter::new(&self.keys, &self.settings).opening(&self.results)
    }

    /// Returns what is known of the column at this place; `None` if it is not confidential.
    fn column(&self, at: usize) -> Option<CopyColumn> {
        self.transform.columns.get(at).copied().flatten()
    }

    /// Refuses a row with another number of fields (SR-8104): which of them are confidential is not
    /// certain.
    fn check_field_count(&self, fields: usize) -> Result<(), Refusal> {
        if fields == self.transform.columns.len() {
            return Ok(());
        }
        Err(Refusal::value(
            "22P04",
            "a row of COPY has another number of fields than there are columns",
        ))
    }

    /// Returns the text form of the field at place `at`, sealed or opened as the direction says.
    /// Fails with SR-8104 if the value is not valid or the envelope does not open.
    fn convert_field(
        &self,
        column: CopyColumn,
        at: usize,
        text: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, Refusal> {
        let converter = self.converter().storing_in(column.comparable);
        if self.sealing {
            let sealed = converter.seal_text(column.kind, text)?;
            return Ok(Zeroizing::new(envelope::to_text(&sealed).into_bytes()));
        }
        let converter = converter.expecting(self.expected(at), &self.catalog);
        converter.open_text(column.kind, text)
    }

    /// Returns what a value of the column at this place is to be; `None` if that is not known.
    fn expected(&self, at: usize) -> Option<&Origins> {
        self.transform.expected.get(at)?.origins.as_ref()
    }
}
