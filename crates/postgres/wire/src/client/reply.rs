//! Parses the messages of a server for a client.
//!
//! Invariant: whatever bytes a body has, the result is a reply or [`Error::Protocol`].

use std::ops::Range;

use super::error::{Error, Result, ServerError};
use crate::fields::Fields;
use crate::response::error_fields;

/// The values of a row; `None` is NULL.
pub type Row = Vec<Option<Vec<u8>>>;

/// Characters of a server's message that are kept.
const MESSAGE_MAX: usize = 4096;

/// A message of the server.
#[derive(Debug)]
pub enum Reply {
    /// A result set begins; the OIDs of its columns' types.
    Columns(Vec<u32>),
    /// A row of it.
    Row(Row),
    /// A command, or a part of one, is done; its tag, such as `INSERT 0 1`.
    Complete(Vec<u8>),
    /// Everything that was asked for is done.
    Ready,
    /// The server expects data of a copy.
    CopyIn,
    /// The server begins to send data of a copy.
    CopyOut,
    /// Both sides send data of a copy: a stream of the log.
    CopyBoth,
    /// The range of the payload in the input: see [`Session::bytes`](super::Session::bytes).
    CopyData(Range<usize>),
    /// The server has sent all data of a copy.
    CopyDone,
    /// A step of the extended protocol is done, or there is nothing to execute: the message's type.
    Step(u8),
    /// A request of authentication: its body.
    Authentication(Vec<u8>),
    /// An error.
    Error(ServerError),
    /// A notice.
    Notice(ServerError),
    /// Name and value of a parameter that the server reports by itself.
    Parameter(String, String),
    /// A message that needs no answer.
    Nothing,
}

/// Parses a message of this type. `at` is where its body begins in the input buffer. Fails with
/// [`Error::Protocol`] if the body is malformed or longer than its content, or if the type is not
/// one that is expected.
pub(crate) fn parse(tag: u8, body: &[u8], at: usize) -> Result<Reply> {
    let mut fields = Fields(body);
    let reply = match tag {
        b'd' => return Ok(Reply::CopyData(at..at + body.len())),
        b'W' => return Ok(Reply::CopyBoth),
        b'R' => return Ok(Reply::Authentication(body.to_vec())),
        b'E' => return error(body).map(Reply::Error),
        b'N' => return error(body).map(Reply::Notice),
        b'D' => row(&mut fields).map(Reply::Row),
        b'T' => column_types(&mut fields).map(Reply::Columns),
        b'C' => fields.string().map(|tag| Reply::Complete(tag.to_vec())),
        b'Z' => fields.byte().map(|_status| Reply::Ready),
        b'c' => Some(Reply::CopyDone),
        // Their bodies say in which format the columns are, of which a backup has none.
        b'G' => formats(&mut fields).map(|()| Reply::CopyIn),
        b'H' => formats(&mut fields).map(|()| Reply::CopyOut),
        b'S' => parameter(&mut fields),
        b'K' => fields.bytes(8).map(|_process_and_secret| Reply::Nothing),
        b'A' => notification(&mut fields).map(|()| Reply::Nothing),
        // `ParseComplete`, `BindComplete`, `CloseComplete`, `NoData`, `PortalSuspended`,
        // `EmptyQueryResponse`.
        b'1' | b'2' | b'3' | b'n' | b's' | b'I' => Some(Reply::Step(tag)),
        _ => return Err(unexpected_message(tag)),
    };
    reply
        .filter(|_| fields.0.is_empty())
        .ok_or_else(|| malformed(tag))
}

/// Makes the error for a message of this type where the protocol does not allow one: an
/// [`Error::Protocol`].
#[must_use]
pub fn unexpected_message(tag: u8) -> Error {
    let tag = char::from(tag).escape_default();
    Error::protocol(format!("a message of type '{tag}' where none can be"))
}

/// Makes the [`Error::Protocol`] for a malformed message of this type.
fn malformed(tag: u8) -> Error {
    let tag = char::from(tag).escape_default();
    Error::protocol(format!("a malformed message of type '{tag}'"))
}

/// Takes the values of a `DataRow`. `None` if it is malformed.
fn row(fields: &mut Fields<'_>) -> Option<Row> {
    let count = fields.count()?;
    let mut values = Vec::new();
    for _ in 0..count {
        values.push(fields.value()?.map(<[u8]>::to_vec));
    }
    Some(values)
}

/// Takes the columns of a `RowDescription` and returns the OIDs of their types. `None` if it is
/// malformed.
fn column_types(fields: &mut Fields<'_>) -> Option<Vec<u32>> {
    let count = fields.count()?;
    let mut types = Vec::new();
    for _ in 0..count {
        fields.string()?; // name
        fields.bytes(6)?; // table, number of the column
        types.push(fields.oid()?);
        fields.bytes(8)?; // size, modifier, format
    }
    Some(types)
}

/// Takes the body of a `CopyInResponse` or `CopyOutResponse` and ignores its content. `None` if it
/// is too short.
fn formats(fields: &mut Fields<'_>) -> Option<()> {
    fields.byte()?;
    fields.count()?;
    fields.0 = &[];
    Some(())
}

/// Takes name and value of a `ParameterStatus`. `None` if it is malformed or not UTF-8.
fn parameter(fields: &mut Fields<'_>) -> Option<Reply> {
    let mut text = || str::from_utf8(fields.string()?).ok().map(String::from);
    Some(Reply::Parameter(text()?, text()?))
}

/// Takes the body of a `NotificationResponse` and ignores its content. `None` if it is malformed.
fn notification(fields: &mut Fields<'_>) -> Option<()> {
    fields.int32()?; // process
    fields.string()?; // channel
    fields.string()?; // payload
    Some(())
}

/// Parses the body of an `ErrorResponse` or `NoticeResponse`. Fields that are missing stay empty,
/// others than those of [`ServerError`] are ignored. Fails with [`Error::Protocol`] if the body has
/// no zero byte at its end, or has bytes after it.
fn error(body: &[u8]) -> Result<ServerError> {
    let mut found = ServerError::default();
    let mut localized = String::new();
    let mut length = 1; // the zero byte that ends the fields
    for (tag, text) in error_fields(body) {
        length += text.len() + 2;
        let text = printable(text);
        match tag {
            b'S' => localized = text,
            b'V' => found.severity = text,
            b'C' => found.sqlstate = text,
            b'M' => found.message = text,
            b'D' => found.detail = text,
            b'H' => found.hint = text,
            _ => {}
        }
    }
    if length != body.len() {
        return Err(malformed(b'E'));
    }
    if found.severity.is_empty() {
        found.severity = localized;
    }
    Ok(found)
}

/// Returns a server's text in a form that can be shown: bytes that are not UTF-8 are replaced,
/// because the encoding is not known before a database is; control characters become spaces; and
/// only the first 4096 characters are kept.
fn printable(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let printable = text.chars().map(|character| {
        if character.is_control() {
            ' '
        } else {
            character
        }
    });
    printable.take(MESSAGE_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(tag: u8, body: &[u8]) -> Option<Reply> {
        parse(tag, body, 0).ok()
    }

    #[test]
    fn bodies_are_parsed_to_their_end() {
        assert!(matches!(parsed(b'Z', b"I"), Some(Reply::Ready)));
        assert!(matches!(parsed(b'1', b""), Some(Reply::Step(b'1'))));
        assert!(matches!(parsed(b'G', b"\0\0\0"), Some(Reply::CopyIn)));
        assert!(matches!(parsed(b'K', &[0; 8]), Some(Reply::Nothing)));
        let row = parsed(b'D', b"\0\x02\0\0\0\x01x\xff\xff\xff\xff");
        assert!(matches!(row, Some(Reply::Row(row)) if row == [Some(b"x".to_vec()), None]));
        let body = b"\0\x01name\0\0\0\0\0\0\x01\0\0\0\x17\0\x04\xff\xff\xff\xff\0\0";
        assert!(matches!(parsed(b'T', body), Some(Reply::Columns(types)) if types == [23]));
        for (tag, body) in [
            (b'Z', &b""[..]),
            (b'Z', b"II"),
            (b'1', b"x"),
            (b'K', b"1234567"),
            (b'C', b"SELECT"),
            (b'D', b"\0\x01\0\0\0\x09x"),
            (b'D', b"\0\x01\xff\xff\xff\xff\0"),
            (b'T', b"\0\x01name\0"),
            (b'S', b"a\0b"),
            (b'S', b"a\0\xff\0"),
            (b'E', b"SERROR\0"),
            (b'E', b"SERROR\0\0x"),
            (b'v', b""),
        ] {
            assert!(parsed(tag, body).is_none(), "{}", char::from(tag));
        }
    }

    #[test]
    fn errors_are_taken_from_their_fields() {
        let body = b"SFEHLER\0VERROR\0C42P01\0Mno\x07such table\0Hhint\0\0";
        let Some(Reply::Error(error)) = parsed(b'E', body) else {
            unreachable!("an error");
        };
        assert_eq!(error.severity, "ERROR");
        assert_eq!(error.sqlstate, "42P01");
        assert_eq!(error.message, "no such table");
        assert_eq!(error.hint, "hint");
    }
}
