//! Parses the messages of the server.
//!
//! Invariant: whatever bytes a body has, the result is a reply or [`Error::Protocol`].

use bytes::{BufMut as _, BytesMut};
use fallible_iterator::FallibleIterator as _;
use postgres_protocol::message::backend::{DataRowBody, ErrorFields, Message};
use std::ops::Range;

use crate::error::{Error, Result, ServerError};
use crate::wire::{Frame, Wire};

/// The values of a row; `None` is NULL.
pub(crate) type Row = Vec<Option<Vec<u8>>>;

/// Characters of a server's message that are kept.
const MESSAGE_MAX: usize = 4096;

/// One message.
pub(crate) enum Reply {
    /// A result set begins.
    Columns,
    Row(Row),
    /// A command, or a part of one, is done.
    Complete,
    /// All of what was asked for is done.
    Ready,
    CopyIn,
    CopyOut,
    CopyBoth,
    /// The place of the payload; see [`Wire::bytes`].
    CopyData(Range<usize>),
    CopyDone,
    Error(ServerError),
    Notice(ServerError),
    Parameter(String, String),
    /// A request of authentication.
    Authentication(Box<Message>),
    /// What needs no answer.
    Nothing,
}

/// Reads one frame.
pub(crate) fn read(wire: &Wire, frame: &Frame) -> Result<Reply> {
    match frame.tag {
        b'd' => return Ok(Reply::CopyData(frame.body.clone())),
        // postgres-protocol does not know it. Its body says how columns are written, and there are
        // none.
        b'W' => return Ok(Reply::CopyBoth),
        _ => {}
    }
    let wrong = |error: std::io::Error| Error::protocol(error.to_string());
    Ok(match message(wire, frame)? {
        Message::RowDescription(_) => Reply::Columns,
        Message::DataRow(body) => Reply::Row(row(&body)?),
        Message::CommandComplete(_) => Reply::Complete,
        Message::ReadyForQuery(_) => Reply::Ready,
        Message::CopyInResponse(_) => Reply::CopyIn,
        Message::CopyOutResponse(_) => Reply::CopyOut,
        Message::CopyDone => Reply::CopyDone,
        Message::ErrorResponse(body) => Reply::Error(error(body.fields())?),
        Message::NoticeResponse(body) => Reply::Notice(error(body.fields())?),
        Message::ParameterStatus(body) => {
            let text = |value: std::io::Result<&str>| value.map(String::from).map_err(wrong);
            Reply::Parameter(text(body.name())?, text(body.value())?)
        }
        Message::BackendKeyData(_) | Message::NotificationResponse(_) => Reply::Nothing,
        message @ (Message::AuthenticationOk
        | Message::AuthenticationCleartextPassword
        | Message::AuthenticationMd5Password(_)
        | Message::AuthenticationSasl(_)
        | Message::AuthenticationSaslContinue(_)
        | Message::AuthenticationSaslFinal(_)
        | Message::AuthenticationGss
        | Message::AuthenticationGssContinue(_)
        | Message::AuthenticationKerberosV5
        | Message::AuthenticationSspi
        | Message::AuthenticationScmCredential) => Reply::Authentication(Box::new(message)),
        _ => return Err(unexpected_message(frame)),
    })
}

pub(crate) fn unexpected_message(frame: &Frame) -> Error {
    let tag = char::from(frame.tag).escape_default();
    Error::protocol(format!("a message of type '{tag}' where none can be"))
}

fn message(wire: &Wire, frame: &Frame) -> Result<Message> {
    let body = wire.bytes(frame.body.clone());
    let length = u32::try_from(body.len() + 4).unwrap_or(u32::MAX);
    let mut whole = BytesMut::with_capacity(body.len() + 5);
    whole.put_u8(frame.tag);
    whole.put_u32(length);
    whole.put_slice(body);
    let parsed = Message::parse(&mut whole).map_err(|error| Error::protocol(error.to_string()))?;
    parsed.ok_or_else(|| unexpected_message(frame))
}

fn row(body: &DataRowBody) -> Result<Row> {
    let mut values = Vec::new();
    let mut ranges = body.ranges();
    let wrong = |error: std::io::Error| Error::protocol(error.to_string());
    while let Some(range) = ranges.next().map_err(wrong)? {
        let bytes = range.map(|range| body.buffer().get(range).map(<[u8]>::to_vec));
        values.push(match bytes {
            None => None,
            Some(Some(bytes)) => Some(bytes),
            Some(None) => return Err(Error::protocol("a row that ends in a value")),
        });
    }
    Ok(values)
}

fn error(mut fields: ErrorFields<'_>) -> Result<ServerError> {
    let mut told = ServerError::default();
    let mut localized = String::new();
    let wrong = |error: std::io::Error| Error::protocol(error.to_string());
    while let Some(field) = fields.next().map_err(wrong)? {
        // Before a database is known, its encoding is not; and a terminal is no place for a
        // server's control characters.
        let text: String = String::from_utf8_lossy(field.value_bytes())
            .chars()
            .map(|character| {
                if character.is_control() {
                    ' '
                } else {
                    character
                }
            })
            .take(MESSAGE_MAX)
            .collect();
        match field.type_() {
            b'S' => localized = text,
            b'V' => told.severity = text,
            b'C' => told.sqlstate = text,
            b'M' => told.message = text,
            b'D' => told.detail = text,
            b'H' => told.hint = text,
            _ => {}
        }
    }
    if told.severity.is_empty() {
        told.severity = localized;
    }
    Ok(told)
}
