//! Parses what the bodies of a server's messages have in common: fields of errors, values of rows.

use crate::fields::Fields;

/// Returns the fields of an `ErrorResponse` or `NoticeResponse` in their order: type and text of
/// each. The iteration ends at the zero byte after the last field, and at a text that has no end.
pub fn error_fields(body: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    let mut fields = Fields(body);
    std::iter::from_fn(move || {
        let tag = fields.byte().filter(|tag| *tag != 0)?;
        Some((tag, fields.string()?))
    })
}

/// Returns the text of the first field of this type in an `ErrorResponse` or `NoticeResponse`.
/// `None` if it has no such field.
#[must_use]
pub fn error_field(body: &[u8], tag: u8) -> Option<&[u8]> {
    let mut fields = error_fields(body);
    fields
        .find(|(found, _)| *found == tag)
        .map(|(_, text)| text)
}

/// Returns a copy of the body of an `ErrorResponse` without the fields of this type.
#[must_use]
pub fn without_field(body: &[u8], tag: u8) -> Vec<u8> {
    let mut out = Vec::with_capacity(body.len());
    for (found, text) in error_fields(body) {
        if found != tag {
            out.push(found);
            out.extend_from_slice(text);
            out.push(0);
        }
    }
    out.push(0);
    out
}

/// Parses the values of a `DataRow` in text format; `None` in the row is NULL. Bytes that are not
/// UTF-8 are replaced. Returns `None` when the message is malformed.
#[must_use]
pub fn text_row(body: &[u8]) -> Option<Vec<Option<String>>> {
    let mut fields = Fields(body);
    let count = fields.count()?;
    let mut row = Vec::with_capacity(count);
    for _ in 0..count {
        row.push(
            fields
                .value()?
                .map(|bytes| String::from_utf8_lossy(bytes).into_owned()),
        );
    }
    Some(row)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_of_an_error_can_be_left_out() {
        assert_eq!(
            without_field(b"SERROR\0P12\0Mx\0\0", b'P'),
            b"SERROR\0Mx\0\0"
        );
    }

    #[test]
    fn fields_of_errors_are_found() {
        let body = b"SERROR\0C42P01\0Mno such table\0\0Hbehind the end\0";
        assert_eq!(error_field(body, b'C'), Some(&b"42P01"[..]));
        assert_eq!(error_field(body, b'H'), None);
        assert_eq!(error_field(b"Cendless", b'C'), None);
    }

    #[test]
    fn rows_that_lie_are_malformed() {
        let row = text_row(b"\0\x02\0\0\0\x01x\xff\xff\xff\xff");
        assert_eq!(row, Some(vec![Some("x".to_owned()), None]));
        assert_eq!(text_row(b"\0\x01\0\0\0\x09x"), None);
    }
}
