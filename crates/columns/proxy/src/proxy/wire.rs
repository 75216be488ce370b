//! PostgreSQL's frontend/backend protocol, version 3: messages as they are on the wire.
//!
//! Source: PostgreSQL's documentation, "Frontend/Backend Protocol", "Message Formats";
//! src/backend/libpq/pqcomm.c for the limits. Invariants: a length is checked before anything is
//! allocated for it, and memory grows with what has arrived; a field that is not there is an error,
//! never a panic. Must not: know what a message means.
#![expect(
    clippy::big_endian_bytes,
    reason = "the protocol's integers are big-endian"
)]

use std::io::{self, Read};

use crate::sql::refusal::Refusal;

/// Longest message, as in the server (`PQ_LARGE_MESSAGE_LIMIT`).
const MESSAGE_MAX: usize = 0x3fff_ffff;
/// Longest startup packet (`MAX_STARTUP_PACKET_LENGTH`).
const STARTUP_MAX: usize = 10_000;
/// The length field counts itself.
const LENGTH: usize = 4;

/// A message: its type byte and its body.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) tag: u8,
    pub(crate) body: Vec<u8>,
}

/// The error for a malformed message.
pub(crate) fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Reads a message. `None` at the end of the stream between two messages.
pub(crate) fn read(from: &mut impl Read) -> io::Result<Option<Message>> {
    let mut tag = [0];
    if from.read(&mut tag)? == 0 {
        return Ok(None);
    }
    let [tag] = tag;
    let body = read_body(from, MESSAGE_MAX)?;
    Ok(Some(Message { tag, body }))
}

/// Reads a startup packet, which has no type byte.
pub(crate) fn read_startup(from: &mut impl Read) -> io::Result<Vec<u8>> {
    read_body(from, STARTUP_MAX)
}

fn read_body(from: &mut impl Read, max: usize) -> io::Result<Vec<u8>> {
    let mut length = [0; LENGTH];
    from.read_exact(&mut length)?;
    let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
    let len = length.checked_sub(LENGTH).filter(|len| *len <= max);
    let len = len.ok_or_else(|| invalid("impossible length of a message"))?;
    let mut body = Vec::new();
    let limit = u64::try_from(len).unwrap_or(u64::MAX);
    if from.take(limit).read_to_end(&mut body)? < len {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(body)
}

/// Reads fields one after the other; each is `None` when it is not there completely.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn int16(&mut self) -> Option<i16> {
        self.array().map(i16::from_be_bytes)
    }

    pub(crate) fn int32(&mut self) -> Option<i32> {
        self.array().map(i32::from_be_bytes)
    }

    pub(crate) fn oid(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// A string that ends in a zero byte, without it.
    pub(crate) fn string(&mut self) -> Option<&'a [u8]> {
        let len = self.0.iter().position(|byte| *byte == 0)?;
        let taken = self.bytes(len)?;
        self.byte()?;
        Some(taken)
    }

    /// A count of 16 bits, as the protocol has them: never negative.
    pub(crate) fn count(&mut self) -> Option<usize> {
        // Since counts go to 65535 the field is read without sign (pqformat.c, pq_getmsgint).
        self.array()
            .map(|bytes| usize::from(u16::from_be_bytes(bytes)))
    }

    /// A value: length and bytes; `Some(None)` is NULL.
    #[expect(
        clippy::option_option,
        reason = "the outer one is for a field that is not there"
    )]
    pub(crate) fn value(&mut self) -> Option<Option<&'a [u8]>> {
        match self.int32()? {
            -1 => Some(None),
            len => Some(Some(self.bytes(usize::try_from(len).ok()?)?)),
        }
    }
}

/// Writes a message into a buffer.
pub(crate) struct Builder<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
}

impl<'a> Builder<'a> {
    /// Begins a message of this type.
    pub(crate) fn new(out: &'a mut Vec<u8>, tag: u8) -> Self {
        out.push(tag);
        Self::untagged(out)
    }

    /// Begins a packet without a type.
    pub(crate) fn untagged(out: &'a mut Vec<u8>) -> Self {
        let start = out.len();
        out.extend_from_slice(&[0; LENGTH]);
        Self { out, start }
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.out.extend_from_slice(bytes);
        self
    }

    pub(crate) fn byte(&mut self, byte: u8) -> &mut Self {
        self.bytes(&[byte])
    }

    pub(crate) fn int16(&mut self, number: i16) -> &mut Self {
        self.bytes(&number.to_be_bytes())
    }

    pub(crate) fn int32(&mut self, number: i32) -> &mut Self {
        self.bytes(&number.to_be_bytes())
    }

    pub(crate) fn oid(&mut self, number: u32) -> &mut Self {
        self.bytes(&number.to_be_bytes())
    }

    /// A string with its zero byte. Zero bytes inside would end it: they are left out.
    pub(crate) fn string(&mut self, text: &[u8]) -> &mut Self {
        self.out.extend(text.iter().filter(|byte| **byte != 0));
        self.byte(0)
    }

    /// A count of 16 bits. A larger one is the caller's error: it is cut, and the server refuses
    /// the message.
    pub(crate) fn count(&mut self, count: usize) -> &mut Self {
        self.bytes(&u16::try_from(count).unwrap_or(u16::MAX).to_be_bytes())
    }

    /// A value, or NULL.
    pub(crate) fn value(&mut self, value: Option<&[u8]>) -> &mut Self {
        match value {
            None => self.int32(-1),
            Some(bytes) => self
                .int32(i32::try_from(bytes.len()).unwrap_or(i32::MAX))
                .bytes(bytes),
        }
    }

    /// Fills in the length.
    pub(crate) fn end(&mut self) {
        let len = self.out.len().saturating_sub(self.start);
        let len = u32::try_from(len).unwrap_or(u32::MAX).to_be_bytes();
        let end = self.start.saturating_add(LENGTH);
        if let Some(field) = self.out.get_mut(self.start..end) {
            field.copy_from_slice(&len);
        }
    }
}

/// Appends a message as it is.
pub(crate) fn append(out: &mut Vec<u8>, tag: u8, body: &[u8]) {
    Builder::new(out, tag).bytes(body).end();
}

/// Appends an `ErrorResponse` or `NoticeResponse`.
pub(crate) fn append_error(out: &mut Vec<u8>, severity: &str, refusal: &Refusal) {
    let mut message = Builder::new(out, b'E');
    message.byte(b'S').string(severity.as_bytes());
    message.byte(b'V').string(severity.as_bytes());
    message.byte(b'C').string(refusal.sqlstate.as_bytes());
    message.byte(b'M').string(refusal.message.as_bytes());
    if let Some(hint) = refusal.hint {
        message.byte(b'H').string(hint.as_bytes());
    }
    if let Some(position) = refusal.position {
        message.byte(b'P').string(position.to_string().as_bytes());
    }
    message.byte(0).end();
}

/// The `ErrorResponse` without the field of this type.
pub(crate) fn without_field(body: &[u8], field: u8) -> Vec<u8> {
    let mut fields = Fields(body);
    let mut out = Vec::with_capacity(body.len());
    while let Some(tag) = fields.byte().filter(|tag| *tag != 0) {
        let Some(text) = fields.string() else {
            break;
        };
        if tag != field {
            out.push(tag);
            out.extend_from_slice(text);
            out.push(0);
        }
    }
    out.push(0);
    out
}

/// The error for an answer of the server that does not belong there.
pub(crate) fn unexpected() -> Refusal {
    Refusal::protocol("the server's answer is not the one that was expected")
}

/// The fields of a `DataRow` in text format. `None` when it is malformed.
pub(crate) fn parse_text_row(body: &[u8]) -> Option<Vec<Option<String>>> {
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
    fn messages_come_back_and_lengths_are_checked() {
        let mut out = Vec::new();
        Builder::new(&mut out, b'Q').string(b"select 1").end();
        let message = read(&mut out.as_slice()).unwrap().unwrap();
        assert_eq!(
            (message.tag, message.body.as_slice()),
            (b'Q', &b"select 1\0"[..])
        );
        assert!(read(&mut &[][..]).unwrap().is_none());
        for bad in [
            &b"Q"[..],
            b"Q\0\0",
            b"Q\0\0\0\x03",
            b"Q\x7f\0\0\0",
            b"Q\xff\xff\xff\xff",
            b"Q\0\0\0\x09ab",
        ] {
            assert!(read(&mut &*bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn fields_end_where_the_message_ends() {
        let mut fields = Fields(b"ab\0\0\x01\0\0\0\x02xy\xff\xff\xff\xff");
        assert_eq!(fields.string(), Some(&b"ab"[..]));
        assert_eq!(fields.count(), Some(1));
        assert_eq!(fields.value(), Some(Some(&b"xy"[..])));
        assert_eq!(fields.value(), Some(None));
        assert_eq!(fields.byte(), None);
        assert_eq!(Fields(b"ab").string(), None);
        assert_eq!(Fields(b"\0\0\0\x05xy").value(), None);
        assert_eq!(Fields(b"\x80\0\0\0").value(), None);
    }

    #[test]
    fn a_field_of_an_error_can_be_left_out() {
        assert_eq!(
            without_field(b"SERROR\0P12\0Mx\0\0", b'P'),
            b"SERROR\0Mx\0\0"
        );
    }
}
