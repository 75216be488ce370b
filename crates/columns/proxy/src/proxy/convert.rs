//! Converts values between the client's forms and the server's envelopes.
//!
//! Must not: put a value into an error.

use std::sync::Arc;

use strongroom_columns_values::{Buf, Out, Unreadable, fit_numeric, has_precision};
use strongroom_format::columns::envelope::ENVELOPE_PREFIX;
use strongroom_format::columns::{EnvelopeHeader, Kind, Lineage};
use strongroom_postgres_wire::{Builder, Fields};
use zeroize::Zeroizing;

use super::messages::unexpected;
use super::settings::Settings;
use crate::envelope;
use crate::keys::ColumnKeys;
use crate::results::Results;
use crate::sql::base_array_oid;
use crate::sql::catalog::{Catalog, EncType};
use crate::sql::refusal::Refusal;
use crate::sql::{ComparableColumn, Origins};

/// The most dimensions of an array (`MAXDIM`).
const DIMENSIONS_MAX: i32 = 6;
/// Format code of text.
pub(crate) const TEXT: i16 = 0;
/// Format code of the binary form.
pub(crate) const BINARY: i16 = 1;

/// A column of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResultColumn {
    pub(crate) enc: Option<EncType>,
    /// 0 text, 1 binary; as the `RowDescription` says.
    pub(crate) format: i16,
    /// OID of the type that the server names.
    pub(crate) oid: u32,
    /// Shared, because the columns are copied for each execution.
    pub(crate) name: Arc<[u8]>,
}

/// Returns the format of field `at`: no format code means text for all, one code is for all.
pub(crate) fn format_at(formats: &[i16], at: usize) -> i16 {
    match formats {
        [] => TEXT,
        [all] => *all,
        each => each.get(at).copied().unwrap_or(TEXT),
    }
}

/// Returns the OID that the client gets for a type of the server: the base type's for a
/// confidential one, every other one as it is.
pub(crate) fn client_type_oid(catalog: &Catalog, oid: u32) -> u32 {
    match catalog.enc_type(oid) {
        Some(EncType { kind, array: false }) => kind.base_oid(),
        Some(EncType { kind, array: true }) => base_array_oid(kind),
        None => oid,
    }
}

/// Appends a `RowDescription` with base types to `shown`, and returns the columns.
///
/// # Errors
/// SR-8105 if it is malformed; SR-8106 if it says that a pinned column is plain: its values would
/// be made up by the server.
pub(crate) fn rewrite_row_description(
    catalog: &Catalog,
    body: &[u8],
    shown: &mut Vec<u8>,
) -> Result<Vec<ResultColumn>, Refusal> {
    let columns = parse_row_description(catalog, body, shown).ok_or_else(unexpected)?;
    let plain = columns.iter().find(|(column, relation, place)| {
        column.enc.is_none() && catalog.is_pinned(*relation, *place)
    });
    if plain.is_some() {
        return Err(Refusal::denied(&"a pinned column of the result"));
    }
    Ok(columns.into_iter().map(|(column, ..)| column).collect())
}

/// Appends a `RowDescription` with base types to `shown`. Returns the columns, each with the OID of
/// the relation and the number of the column that it comes from. `None` if it is malformed.
fn parse_row_description(
    catalog: &Catalog,
    body: &[u8],
    shown: &mut Vec<u8>,
) -> Option<Vec<(ResultColumn, u32, i16)>> {
    let mut fields = Fields(body);
    let count = fields.count()?;
    shown.extend_from_slice(body.get(..2)?);
    let mut columns = Vec::with_capacity(count);
    for _ in 0..count {
        let name = fields.string()?;
        let (relation, place) = (fields.oid()?, fields.int16()?);
        let oid = fields.oid()?;
        let (length, modifier) = (fields.bytes(2)?, fields.bytes(4)?);
        let format = fields.int16()?;
        let enc = catalog.enc_type(oid);
        let column = ResultColumn {
            enc,
            format,
            oid,
            name: Arc::from(name),
        };
        columns.push((column, relation, place));
        let mut message = Vec::new();
        let mut field = Builder::untagged(&mut message);
        field
            .string(name)
            .oid(relation)
            .int16(place)
            .oid(client_type_oid(catalog, oid));
        match enc {
            Some(EncType { kind, array: false }) => {
                let len = kind.fixed_len().and_then(|len| i16::try_from(len).ok());
                field.int16(len.unwrap_or(-1));
                // Precision and scale are packed as for numeric; no other confidential type has a
                // modifier.
                if kind == Kind::Numeric {
                    field.bytes(modifier)
                } else {
                    field.int32(-1)
                };
            }
            Some(EncType { array: true, .. }) => {
                field.int16(-1).int32(-1);
            }
            None => {
                field.bytes(length).bytes(modifier);
            }
        }
        field.int16(format);
        shown.extend_from_slice(message.get(4..)?);
    }
    Some(columns)
}

/// Returns the OID of the type that the server gets for a confidential parameter that the client
/// declares as `declared`. 0 leaves it to the server; `None` when no confidential type corresponds
/// to it.
pub(crate) fn server_type_oid(catalog: &Catalog, declared: u32) -> Option<u32> {
    // 0 and unknown.
    if matches!(declared, 0 | 705) || catalog.enc_type(declared).is_some() {
        return Some(if declared == 705 { 0 } else { declared });
    }
    catalog.oid(declared_type(declared)?)
}

/// Returns the confidential type that corresponds to a declared type (OIDs fixed in `pg_type.dat`).
/// `None` if there is none.
fn declared_type(oid: u32) -> Option<EncType> {
    let scalar = |oid: u32| match oid {
        // int2; float4; varchar, bpchar, name.
        21 => Some(Kind::Int4),
        700 => Some(Kind::Float8),
        1043 | 1042 | 19 => Some(Kind::Text),
        other => Kind::ALL
            .iter()
            .copied()
            .find(|kind| kind.base_oid() == other),
    };
    let array = |oid: u32| match oid {
        1005 => Some(Kind::Int4),
        1021 => Some(Kind::Float8),
        1015 | 1014 | 1003 => Some(Kind::Text),
        other => Kind::ALL
            .iter()
            .copied()
            .find(|kind| base_array_oid(*kind) == other),
    };
    let scalar = scalar(oid).map(|kind| EncType { kind, array: false });
    scalar.or_else(|| array(oid).map(|kind| EncType { kind, array: true }))
}

/// Converts values of one session.
pub(crate) struct Converter<'a> {
    pub(super) keys: &'a ColumnKeys,
    settings: &'a Settings,
    /// The comparable column that values are sealed for.
    column: Option<ComparableColumn>,
    /// Which envelopes are opened; `None`: no one.
    pub(super) results: Option<&'a Results>,
    /// What an opened value is to be, by this catalog; `None` if that is not known.
    pub(super) expected: Option<(&'a Origins, &'a Catalog)>,
}

impl<'a> Converter<'a> {
    /// Makes a converter with these keys, for values as these settings of the session write them.
    pub(crate) const fn new(keys: &'a ColumnKeys, settings: &'a Settings) -> Self {
        Self {
            keys,
            settings,
            column: None,
            results: None,
            expected: None,
        }
    }

    /// Returns the converter that opens values of these origins only, if they are known, by the
    /// names of the catalog.
    pub(crate) fn expecting(&self, origins: Option<&'a Origins>, catalog: &'a Catalog) -> Self {
        Self {
            expected: origins.map(|origins| (origins, catalog)),
            ..*self
        }
    }

    /// Returns the converter that opens the envelopes that `results` takes.
    pub(crate) const fn opening(self, results: &'a Results) -> Self {
        Self {
            results: Some(results),
            ..self
        }
    }

    /// Returns the converter that seals values for this comparable column, or for none.
    pub(crate) const fn storing_in(&self, column: Option<ComparableColumn>) -> Self {
        Self { column, ..*self }
    }

    /// Seals a parameter of the client, given in the form of the type that it declared. Returns
    /// format and bytes for the server. One that is declared with a confidential type has to be an
    /// envelope, and is returned as it is.
    ///
    /// # Errors
    /// SR-8104 if the value is not valid for its type; SR-8105 for a format that does not exist.
    pub(crate) fn seal_parameter(
        &self,
        catalog: &Arc<Catalog>,
        of: EncType,
        declared: u32,
        format: i16,
        bytes: &[u8],
    ) -> Result<(i16, Vec<u8>), Refusal> {
        if catalog.enc_type(declared).is_some() {
            // A client that knows the confidential types sends envelopes, and nothing else.
            let known = match (of.array, format) {
                (false, BINARY) => EnvelopeHeader::parse(bytes).is_some(),
                (false, TEXT) => envelope::from_text(bytes)
                    .is_ok_and(|envelope| EnvelopeHeader::parse(&envelope).is_some()),
                _ => false,
            };
            if !known {
                let what = "a parameter that is declared with a confidential type is no envelope";
                return Err(Refusal::value("22P03", what));
            }
            return Ok((format, bytes.to_vec()));
        }
        match (of.array, format) {
            (false, TEXT) => Ok((BINARY, self.seal_text(of.kind, bytes)?)),
            (false, BINARY) => Ok((
                BINARY,
                self.seal(of.kind, &widen_binary(of.kind, declared, bytes)?)?,
            )),
            (true, TEXT) => Ok((TEXT, self.seal_array(of.kind, bytes)?)),
            (true, BINARY) => {
                let oid = catalog
                    .oid(EncType {
                        kind: of.kind,
                        array: false,
                    })
                    .unwrap_or(0);
                // int2[] and float4[]: their elements are widened.
                let element = match declared {
                    1005 => 21,
                    1021 => 700,
                    _ => 0,
                };
                let sealed = map_array_elements(bytes, oid, |bytes| {
                    let value = widen_binary(of.kind, element, bytes)?;
                    Ok(Zeroizing::new(self.seal(of.kind, &value)?))
                })?;
                Ok((BINARY, sealed.to_vec()))
            }
            _ => Err(Refusal::protocol(
                "a parameter has a format that does not exist",
            )),
        }
    }

    /// Seals a value in the text form of its type. Fails with SR-8104 if it is not valid.
    pub(crate) fn seal_text(&self, kind: Kind, text: &[u8]) -> Result<Vec<u8>, Refusal> {
        refuse_envelope(text)?;
        let value = self.to_binary(kind, text)?;
        self.seal(kind, &value)
    }

    /// Seals a value in binary form, a numeric for a comparable column rounded as the column's type
    /// says. Fails with SR-8104 if it is not valid, has too many digits, or if there are no random
    /// numbers or no locked memory.
    pub(crate) fn seal(&self, kind: Kind, value: &[u8]) -> Result<Vec<u8>, Refusal> {
        if kind == Kind::Text {
            refuse_envelope(value)?;
        }
        // Bytes that no server would accept as this type's binary form are refused here: after
        // sealing the error would come too late.
        let mut read = Out::new();
        strongroom_columns_values::receive(kind, value, &mut read)
            .map_err(|why| unreadable_value(kind, why))?;
        let (lineage, modifier) = match self.column {
            Some(column) => (column.lineage, column.modifier),
            None => (Lineage::CLIENT, -1),
        };
        let mut fitted = Buf::new();
        let value = if kind == Kind::Numeric && has_precision(modifier) {
            let mut out = Out::new();
            let fits = fit_numeric(read.value(), modifier, &mut out)
                .and_then(|()| strongroom_columns_values::send(kind, out.value(), &mut fitted));
            fits.map_err(|fault| Refusal::value(fault.sqlstate(), fault.message()))?;
            fitted.as_slice()
        } else {
            value
        };
        envelope::seal(self.keys, kind, lineage, value)
            .map_err(|_| Refusal::value("58000", "the system's random number generator failed"))
    }

    /// Returns the binary form of a value's text form. Fails with SR-8104 if the text is not valid,
    /// or the session's encoding or time zone is not supported.
    fn to_binary(&self, kind: Kind, text: &[u8]) -> Result<Zeroizing<Vec<u8>>, Refusal> {
        let text =
            std::str::from_utf8(text).map_err(|_| unreadable_value(kind, Unreadable::Encoding))?;
        self.check_encoding(text.is_ascii())?;
        let (mut value, mut binary) = (Out::new(), Buf::new());
        let settings = self.value_settings(kind)?;
        strongroom_columns_values::parse(kind, text, &settings, &mut value)
            .map_err(|why| unreadable_value(kind, why))?;
        strongroom_columns_values::send(kind, value.value(), &mut binary)
            .map_err(|_| unreadable_value(kind, Unreadable::Syntax))?;
        Ok(Zeroizing::new(binary.as_slice().to_vec()))
    }

    /// Returns the text form of a value's binary form. Fails with SR-8104 if the value is not
    /// valid, or if `DateStyle`, `IntervalStyle`, encoding or time zone are not supported.
    pub(super) fn to_text(&self, kind: Kind, bytes: &[u8]) -> Result<Zeroizing<Vec<u8>>, Refusal> {
        let dated = matches!(kind, Kind::Date | Kind::Timestamp | Kind::Timestamptz);
        if dated && !self.settings.date_style.starts_with("ISO") {
            return Err(Refusal::value(
                "0A000",
                "confidential dates are written in DateStyle ISO only: SET DateStyle TO ISO",
            ));
        }
        if kind == Kind::Interval && self.settings.interval_style != "postgres" {
            return Err(Refusal::value(
                "0A000",
                "confidential intervals are written in IntervalStyle postgres only",
            ));
        }
        let invalid = || Refusal::value("22P03", "an envelope holds no value of its type");
        let (mut value, mut text) = (Out::new(), Buf::new());
        strongroom_columns_values::receive(kind, bytes, &mut value).map_err(|_| invalid())?;
        strongroom_columns_values::print(
            kind,
            value.value(),
            &self.value_settings(kind)?,
            &mut text,
        )
        .map_err(|_| invalid())?;
        self.check_encoding(text.as_slice().is_ascii())?;
        Ok(Zeroizing::new(text.as_slice().to_vec()))
    }

    /// Returns the settings that the value's forms depend on. Fails with SR-8104 for a timestamp
    /// with a time zone if the session's zone is not in the IANA database.
    pub(super) fn value_settings(
        &self,
        kind: Kind,
    ) -> Result<strongroom_columns_values::Settings, Refusal> {
        match &self.settings.time_zone {
            Some(time_zone) => Ok(strongroom_columns_values::Settings {
                time_zone: time_zone.clone(),
            }),
            None if kind != Kind::Timestamptz => Ok(strongroom_columns_values::Settings::utc()),
            None => Err(Refusal::value(
                "0A000",
                "the session's time zone is none of the IANA database's: SET TimeZone to one",
            )),
        }
    }

    /// Refuses text in other encodings than UTF-8 (SR-8104), unless `ascii`: the text is all ASCII.
    fn check_encoding(&self, ascii: bool) -> Result<(), Refusal> {
        if ascii
            || matches!(
                self.settings.client_encoding.as_str(),
                "UTF8" | "UNICODE" | "SQL_ASCII"
            )
        {
            return Ok(());
        }
        Err(Refusal::value(
            "0A000",
            "confidential text needs client_encoding UTF8",
        ))
    }

    /// Seals each element of the client's text form of an array
    /// (src/backend/utils/adt/arrayfuncs.c, `array_in`); returns the array of envelopes in text
    /// form. Fails with SR-8104 if it is malformed or an element is not valid.
    fn seal_array(&self, kind: Kind, text: &[u8]) -> Result<Vec<u8>, Refusal> {
        let malformed = || Refusal::value("22P02", "malformed array literal");
        let mut out = Vec::new();
        let text = copy_array_bounds(text.trim_ascii(), &mut out);
        if text.first() != Some(&b'{') {
            return Err(malformed());
        }
        let mut bytes = text.iter().copied().peekable();
        while let Some(byte) = bytes.next() {
            if matches!(byte, b'{' | b'}' | b',') || byte.is_ascii_whitespace() {
                out.push(byte);
                continue;
            }
            let quoted = byte == b'"';
            let mut token = Zeroizing::new(Vec::new());
            if !quoted {
                token.push(if byte == b'\\' {
                    bytes.next().ok_or_else(malformed)?
                } else {
                    byte
                });
            }
            loop {
                match bytes.peek().copied() {
                    Some(b'"') if quoted => {
                        bytes.next();
                        break;
                    }
                    Some(b'{' | b'}' | b',') if !quoted => break,
                    Some(b'\\') => {
                        bytes.next();
                        token.push(bytes.next().ok_or_else(malformed)?);
                    }
                    Some(byte) => {
                        bytes.next();
                        token.push(byte);
                    }
                    None => return Err(malformed()),
                }
            }
            let value = if quoted {
                token.as_slice()
            } else {
                token.trim_ascii_end()
            };
            if !quoted && value.eq_ignore_ascii_case(b"NULL") {
                out.extend_from_slice(b"NULL");
            } else {
                out.extend_from_slice(envelope::to_text(&self.seal_text(kind, value)?).as_bytes());
            }
        }
        Ok(out)
    }
}

/// Refuses a text that is an envelope (SR-8104), such as a dump has that was made beside the proxy:
/// it would be sealed once more, as a text.
fn refuse_envelope(text: &[u8]) -> Result<(), Refusal> {
    let sealed = text.starts_with(ENVELOPE_PREFIX.as_bytes());
    let is_whole = |sealed: Vec<u8>| EnvelopeHeader::parse(&sealed).is_some();
    if sealed && envelope::from_text(text).is_ok_and(is_whole) {
        let what = "the value is sealed already: restore a dump that was made beside the proxy \
                    beside it, too";
        return Err(Refusal::value("22P02", what));
    }
    Ok(())
}

/// Appends an element to the text form of an array, in quotes where PostgreSQL writes them
/// (src/backend/utils/adt/arrayfuncs.c, `array_out`).
pub(super) fn append_element(out: &mut Vec<u8>, element: &[u8]) {
    let special = |byte: &u8| {
        matches!(byte, b'"' | b'\\' | b'{' | b'}' | b',') || matches!(byte, b' ' | 0x09..=0x0d)
    };
    let quoted =
        element.is_empty() || element.eq_ignore_ascii_case(b"NULL") || element.iter().any(special);
    if !quoted {
        return out.extend_from_slice(element);
    }
    out.push(b'"');
    for byte in element {
        if matches!(byte, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(*byte);
    }
    out.push(b'"');
}

/// Copies the bounds that may precede an array, `[1:2]={..}`, to `out`, and returns the rest.
/// Copies nothing if there are none.
pub(super) fn copy_array_bounds<'t>(text: &'t [u8], out: &mut Vec<u8>) -> &'t [u8] {
    if text.first() != Some(&b'[') {
        return text;
    }
    let len = text
        .iter()
        .position(|byte| *byte == b'=')
        .map_or(0, |at| at.saturating_add(1));
    let is_bound = |byte: &u8| {
        matches!(byte, b'[' | b']' | b':' | b'+' | b'-' | b'=')
            || byte.is_ascii_digit()
            || byte.is_ascii_whitespace()
    };
    // Anything else is data.
    if !text
        .get(..len)
        .is_some_and(|bounds| bounds.iter().all(is_bound))
    {
        return text;
    }
    let (bounds, rest) = text.split_at_checked(len).unwrap_or((&[], text));
    out.extend_from_slice(bounds);
    rest
}

/// Returns an array in binary form with each element replaced by `each` and the elements' type by
/// `oid`. NULLs stay. Fails with SR-8104 if it is malformed, and as `each` does.
pub(super) fn map_array_elements(
    bytes: &[u8],
    oid: u32,
    mut each: impl FnMut(&[u8]) -> Result<Zeroizing<Vec<u8>>, Refusal>,
) -> Result<Zeroizing<Vec<u8>>, Refusal> {
    let malformed = || Refusal::value("22P03", "malformed array in binary form");
    let mut fields = Fields(bytes);
    let dimensions = fields
        .int32()
        .filter(|count| (0..=DIMENSIONS_MAX).contains(count))
        .ok_or_else(malformed)?;
    let flags = fields.int32().ok_or_else(malformed)?;
    fields.oid().ok_or_else(malformed)?;
    let mut framed = Vec::new();
    let mut out = Builder::untagged(&mut framed);
    out.int32(dimensions).int32(flags).oid(oid);
    let mut count = usize::from(dimensions > 0);
    for _ in 0..dimensions {
        let (len, bound) = (
            fields.int32().ok_or_else(malformed)?,
            fields.int32().ok_or_else(malformed)?,
        );
        out.int32(len).int32(bound);
        count = usize::try_from(len)
            .ok()
            .and_then(|len| count.checked_mul(len))
            .ok_or_else(malformed)?;
    }
    for _ in 0..count {
        match fields.value().ok_or_else(malformed)? {
            Some(bytes) => out.value(Some(each(bytes)?.as_slice())),
            None => out.value(None),
        };
    }
    if !fields.0.is_empty() {
        return Err(malformed());
    }
    Ok(Zeroizing::new(framed.split_off(4)))
}

/// Widens an `int2` to `int4` and a `float4` to `float8`; values of other types stay as they are,
/// unchecked. `declared` is the OID of the type that the client declared. SR-8104, which names
/// `kind`, if an `int2` does not have 2 bytes or a `float4` 4.
#[expect(
    clippy::big_endian_bytes,
    reason = "PostgreSQL's binary forms are big-endian"
)]
fn widen_binary(kind: Kind, declared: u32, bytes: &[u8]) -> Result<Zeroizing<Vec<u8>>, Refusal> {
    let malformed = || {
        Refusal::value(
            "22P03",
            &format!("incorrect binary data format for type {}", kind.base()),
        )
    };
    Ok(Zeroizing::new(match declared {
        21 => {
            let number = i16::from_be_bytes(bytes.try_into().map_err(|_| malformed())?);
            i32::from(number).to_be_bytes().to_vec()
        }
        700 => {
            let number = f32::from_be_bytes(bytes.try_into().map_err(|_| malformed())?);
            f64::from(number).to_be_bytes().to_vec()
        }
        _ => bytes.to_vec(),
    }))
}

/// Makes the error (SR-8104) for a value that is not valid for its type, with PostgreSQL's
/// SQLSTATE.
fn unreadable_value(kind: Kind, why: Unreadable) -> Refusal {
    Refusal::value(
        why.sqlstate(kind),
        &format!("{}: {}", kind.base(), why.message()),
    )
}
