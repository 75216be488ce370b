//! The fields of COPY data in its three forms: where a row and a field end, and how values are
//! quoted.
//!
//! The forms are those of src/backend/commands/copyfromparse.c and copyto.c. Must not: seal or open
//! a value.

use strongroom_postgres_wire::Fields;
use zeroize::Zeroizing;

use crate::sql::refusal::Refusal;
use crate::sql::{CopyFormat, CopyOptions};

/// The first bytes of binary COPY data.
const SIGNATURE: &[u8] = b"PGCOPY\n\xff\r\n\0";

/// Makes the error (22P04, SR-8104) for malformed binary data.
pub(super) fn malformed() -> Refusal {
    Refusal::value("22P04", "malformed binary COPY data")
}

/// Splits a row into the line without its end, and the end.
pub(super) fn split_line_end(row: &[u8]) -> (&[u8], &[u8]) {
    let len = match row {
        [rest @ .., b'\r', b'\n'] => rest.len(),
        [rest @ .., b'\n' | b'\r'] => rest.len(),
        all => all.len(),
    };
    row.split_at_checked(len).unwrap_or((row, &[]))
}

/// How far a row has been looked at whose end has not come yet.
#[derive(Clone, Copy, Default)]
pub(super) struct RowScan {
    /// Bytes that were looked at.
    at: usize,
    /// Whether they end within quotes.
    inside: bool,
    /// Whether the next byte is data, whatever it is.
    escaped: bool,
}

impl RowScan {
    /// Returns the length of the first row in text format with its newline. `None` if it has none
    /// yet: the next call goes on behind these bytes.
    pub(super) fn text_row_len(&mut self, bytes: &[u8]) -> Option<usize> {
        // A backslash before the newline makes it data (copyfromparse.c, CopyReadLineText).
        for (at, byte) in bytes.iter().enumerate().skip(self.at) {
            match byte {
                b'\n' if !self.escaped => {
                    *self = Self::default();
                    return Some(at.saturating_add(1));
                }
                b'\\' => self.escaped = !self.escaped,
                _ => self.escaped = false,
            }
        }
        self.at = bytes.len();
        None
    }

    /// Returns the length of the first CSV row with its newline; one within quotes does not end it.
    /// `None` if it has no end yet: the next call goes on behind these bytes.
    pub(super) fn csv_row_len(&mut self, bytes: &[u8], options: &CopyOptions) -> Option<usize> {
        for (at, byte) in bytes.iter().enumerate().skip(self.at) {
            if self.inside {
                // With escape = quote, two quotes end the quoted part and begin it again, which has
                // the same effect.
                if self.escaped {
                    self.escaped = false;
                } else if *byte == options.escape && options.escape != options.quote {
                    self.escaped = true;
                } else if *byte == options.quote {
                    self.inside = false;
                }
            } else if *byte == options.quote {
                self.inside = true;
            } else if *byte == b'\n' {
                *self = Self::default();
                return Some(at.saturating_add(1));
            }
        }
        self.at = bytes.len();
        None
    }
}

/// A field of a row in text format or CSV.
pub(super) struct LineField<'f> {
    /// The field as it stands in the row.
    pub(super) raw: &'f [u8],
    /// In CSV its value, and whether it is quoted.
    csv: Option<(Zeroizing<Vec<u8>>, bool)>,
}

impl<'f> LineField<'f> {
    /// Returns the first field of a line, and the rest of the line behind its delimiter; `None` if
    /// it is the last one.
    pub(super) fn first(line: &'f [u8], options: &CopyOptions) -> (Self, Option<&'f [u8]>) {
        let (len, csv) = match options.format {
            CopyFormat::Csv => {
                let (len, value, quoted) = csv_field(line, options);
                (len, Some((value, quoted)))
            }
            _ => (text_field_len(line, options.delimiter), None),
        };
        let (raw, after) = line.split_at_checked(len).unwrap_or((line, &[]));
        let rest = after.split_first().map(|(_, rest)| rest);
        (Self { raw, csv }, rest)
    }

    /// Whether the field stands for NULL.
    pub(super) fn is_null(&self, options: &CopyOptions) -> bool {
        match &self.csv {
            Some((value, quoted)) => !quoted && **value == options.null,
            None => self.raw == options.null,
        }
    }

    /// Returns the value, without quotes and backslashes.
    pub(super) fn value(self) -> Zeroizing<Vec<u8>> {
        match self.csv {
            Some((value, _)) => value,
            None => Zeroizing::new(unescape_text(self.raw)),
        }
    }

    /// Whether the field is as the server writes it: readers differ in what they make of others.
    pub(super) fn is_written(&self, options: &CopyOptions) -> bool {
        match &self.csv {
            Some((value, quoted)) => is_written_csv(self.raw, value, *quoted, options),
            None => is_written_text(self.raw, options.delimiter),
        }
    }
}

/// Appends a value as the server writes a field in text format or CSV.
pub(super) fn write_field(value: &[u8], options: &CopyOptions, out: &mut Vec<u8>) {
    match options.format {
        CopyFormat::Csv => quote_csv(value, options, out),
        _ => escape_text(value, options.delimiter, out),
    }
}

/// Returns whether a line from the client has a carriage return that PostgreSQL takes for the end
/// of a row, or refuses (copyfromparse.c, `CopyReadLineText`). `end` is the line's end.
pub(super) fn has_return(line: &[u8], end: &[u8], options: &CopyOptions) -> bool {
    let is_csv = options.format == CopyFormat::Csv;
    if !line.contains(&b'\r') {
        // A backslash makes the carriage return before the newline data.
        let backslashes = line.iter().rev().take_while(|byte| **byte == b'\\');
        return !is_csv && end.len() > 1 && backslashes.count() % 2 == 1;
    }
    let mut rest = Some(line).filter(|_| is_csv);
    while let Some(line) = rest {
        let (field, after) = LineField::first(line, options);
        if matches!(field.csv, Some((_, false))) && field.raw.contains(&b'\r') {
            return true;
        }
        rest = after;
    }
    !is_csv
}

/// Returns whether a field in text format is as the server writes it (copyto.c,
/// `CopyAttributeOutText`).
fn is_written_text(field: &[u8], delimiter: u8) -> bool {
    let mut bytes = field.iter();
    while let Some(byte) = bytes.next() {
        let is_good = match byte {
            b'\\' => bytes.next().is_some_and(|next| {
                let is_control = matches!(delimiter, 8..=13);
                b"bfnrtv\\".contains(next) || (*next == delimiter && !is_control)
            }),
            8..=13 => false,
            _ => true,
        };
        if !is_good {
            return false;
        }
    }
    true
}

/// Returns whether a CSV field with this value is as the server writes it (copyto.c,
/// `CopyAttributeOutCSV`): in quotes from its first byte to its last, or without any.
fn is_written_csv(field: &[u8], value: &[u8], quoted: bool, options: &CopyOptions) -> bool {
    if !quoted {
        return !field
            .iter()
            .any(|byte| *byte == options.quote || matches!(byte, b'\n' | b'\r'));
    }
    let mut written = Zeroizing::new(Vec::with_capacity(field.len()));
    in_quotes(value, options, &mut written);
    written.as_slice() == field
}

/// Returns the length of the first field in text format, without the delimiter after it.
fn text_field_len(bytes: &[u8], delimiter: u8) -> usize {
    let mut escaped = false;
    for (at, byte) in bytes.iter().enumerate() {
        if *byte == delimiter && !escaped {
            return at;
        }
        escaped = *byte == b'\\' && !escaped;
    }
    bytes.len()
}

/// Undoes COPY's backslashes in a field (copyfromparse.c, `CopyReadAttributesText`).
fn unescape_text(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut bytes = field.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        match bytes.next() {
            None => out.push(b'\\'),
            Some(b'b') => out.push(8),
            Some(b'f') => out.push(12),
            Some(b'n') => out.push(b'\n'),
            Some(b'r') => out.push(b'\r'),
            Some(b't') => out.push(b'\t'),
            Some(b'v') => out.push(11),
            Some(first @ b'0'..=b'7') => {
                let mut number = u32::from(first - b'0');
                for _ in 0..2 {
                    match bytes.peek() {
                        Some(digit @ b'0'..=b'7') => {
                            number = (number << 3) | u32::from(*digit - b'0');
                            bytes.next();
                        }
                        _ => break,
                    }
                }
                out.push(low_byte(number));
            }
            Some(b'x') => {
                let mut number = None;
                for _ in 0..2 {
                    let digit = bytes.peek().and_then(|byte| char::from(*byte).to_digit(16));
                    let Some(digit) = digit else {
                        break;
                    };
                    number = Some((number.unwrap_or(0) << 4) | digit);
                    bytes.next();
                }
                out.push(number.map_or(b'x', low_byte));
            }
            Some(other) => out.push(other),
        }
    }
    out
}

/// Returns the lowest 8 bits.
fn low_byte(number: u32) -> u8 {
    u8::try_from(number & 0xff).unwrap_or(0)
}

/// Appends a value as the server writes a field in text format (copyto.c, `CopyAttributeOutText`).
fn escape_text(value: &[u8], delimiter: u8, out: &mut Vec<u8>) {
    for byte in value {
        let letter = match byte {
            8 => b'b',
            12 => b'f',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            11 => b'v',
            b'\\' => b'\\',
            other if *other == delimiter => *other,
            other => {
                out.push(*other);
                continue;
            }
        };
        out.push(b'\\');
        out.push(letter);
    }
}

/// Returns the first field of a CSV line: its length in the line, its value, and whether it was
/// quoted.
fn csv_field(bytes: &[u8], options: &CopyOptions) -> (usize, Zeroizing<Vec<u8>>, bool) {
    let mut value = Zeroizing::new(Vec::new());
    let mut quoted = false;
    let mut inside = false;
    let mut at = 0;
    while let Some(byte) = bytes.get(at).copied() {
        let next = bytes.get(usize::saturating_add(at, 1)).copied();
        if inside {
            let escapes = byte == options.escape
                && matches!(next, Some(next) if next == options.quote || next == options.escape);
            if escapes {
                value.extend(next);
                at = at.saturating_add(1);
            } else if byte == options.quote {
                inside = false;
            } else {
                value.push(byte);
            }
        } else if byte == options.delimiter {
            break;
        } else if byte == options.quote {
            inside = true;
            quoted = true;
        } else {
            value.push(byte);
        }
        at = at.saturating_add(1);
    }
    (at, value, quoted)
}

/// Appends a value as the server writes a field in CSV, quoted where that is necessary (copyto.c,
/// `CopyAttributeOutCSV`).
fn quote_csv(value: &[u8], options: &CopyOptions, out: &mut Vec<u8>) {
    let special = |byte: &u8| {
        *byte == options.delimiter || *byte == options.quote || matches!(byte, b'\n' | b'\r')
    };
    // `\.` alone on a line would end the data; quoting it never harms.
    let must = value == options.null || value == b"\\." || value.iter().any(special);
    if !must {
        out.extend_from_slice(value);
        return;
    }
    in_quotes(value, options, out);
}

/// Appends a value in quotes.
fn in_quotes(value: &[u8], options: &CopyOptions, out: &mut Vec<u8>) {
    out.push(options.quote);
    for byte in value {
        if *byte == options.quote || *byte == options.escape {
            out.push(options.escape);
        }
        out.push(*byte);
    }
    out.push(options.quote);
}

/// Returns the length of the header, with `header`, or else of a row. `None` if not all of it has
/// come. Fails with SR-8104 if it is malformed.
pub(super) fn binary_row_len(bytes: &[u8], header: bool) -> Result<Option<usize>, Refusal> {
    let mut fields = Fields(bytes);
    if header {
        let seen = bytes.len().min(SIGNATURE.len());
        if bytes.get(..seen) != SIGNATURE.get(..seen) {
            return Err(malformed());
        }
        let Some(flags) = fields.bytes(SIGNATURE.len()).and_then(|_| fields.int32()) else {
            return Ok(None);
        };
        // Bit 16, OIDs, was last written by PostgreSQL 11; the bits above say that a reader must
        // understand them.
        if flags != 0 {
            return Err(malformed());
        }
        let Some(extension) = fields.int32() else {
            return Ok(None);
        };
        let extension = usize::try_from(extension).map_err(|_| malformed())?;
        let taken = fields
            .bytes(extension)
            .map(|_| bytes.len().saturating_sub(fields.0.len()));
        return Ok(taken);
    }
    let Some(count) = fields.int16() else {
        return Ok(None);
    };
    for _ in 0..count.max(0) {
        let Some(len) = fields.int32() else {
            return Ok(None);
        };
        if len < -1 {
            return Err(malformed());
        }
        if fields.bytes(usize::try_from(len).unwrap_or(0)).is_none() {
            return Ok(None);
        }
    }
    Ok(Some(bytes.len().saturating_sub(fields.0.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(format: CopyFormat) -> CopyOptions {
        CopyOptions {
            format,
            delimiter: if format == CopyFormat::Csv {
                b','
            } else {
                b'\t'
            },
            null: Vec::new(),
            quote: b'"',
            escape: b'"',
            header: false,
            other: None,
        }
    }

    /// Files whose lines end in carriage returns alone are one line for the proxy, and many rows
    /// for PostgreSQL.
    #[test]
    fn carriage_returns_that_end_rows_are_found() {
        let found = |format, row: &[u8]| {
            let (line, end) = split_line_end(row);
            has_return(line, end, &options(format))
        };
        for row in [&b"a\rb\n"[..], b"a\rb\r\n", b"a\\\r\n", b"\ra\n"] {
            assert!(found(CopyFormat::Text, row), "{row:?}");
        }
        for row in [&b"a\r\n"[..], b"a\n", b"a\\\\\r\n", b"a\\r\n"] {
            assert!(!found(CopyFormat::Text, row), "{row:?}");
        }
        for row in [&b"a\rb\n"[..], b"\"a\",b\rc\n"] {
            assert!(found(CopyFormat::Csv, row), "{row:?}");
        }
        for row in [&b"a\r\n"[..], b"\"a\rb\",c\n", b"a\\\r\n"] {
            assert!(!found(CopyFormat::Csv, row), "{row:?}");
        }
    }
}
