//! Messages as they are on the wire: a type byte, a length, a body (PostgreSQL's documentation,
//! "Message Formats"; src/backend/libpq/pqcomm.c for the limits).
//!
//! Invariants: a length is checked before anything is allocated for it, and memory grows with the
//! bytes that have arrived. Must not: know what a message means.
#![expect(
    clippy::big_endian_bytes,
    reason = "the protocol's integers are big-endian"
)]

use std::io::{self, Read};

/// Longest body of a message, as in the server (`PQ_LARGE_MESSAGE_LIMIT`).
pub const MESSAGE_MAX: usize = 0x3fff_ffff;
/// Longest startup packet (`MAX_STARTUP_PACKET_LENGTH`).
const STARTUP_MAX: usize = 10_000;
/// Size of the length field, which counts itself.
pub(crate) const LENGTH: usize = 4;

/// A message: its type byte and its body.
#[derive(Clone, PartialEq, Eq)]
pub struct Message {
    /// The type byte.
    pub tag: u8,
    /// The bytes after the length.
    pub body: Vec<u8>,
}

/// Makes an `InvalidData` error with this text, for a message that is malformed.
#[must_use]
pub fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Returns the length of a message's body, computed from the message's length field, which counts
/// its own 4 bytes. `None` if the field is less than 4 or the body would be longer than `max`.
#[inline]
#[must_use]
pub fn body_length(field: [u8; LENGTH], max: usize) -> Option<usize> {
    let length = usize::try_from(u32::from_be_bytes(field)).unwrap_or(usize::MAX);
    length.checked_sub(LENGTH).filter(|length| *length <= max)
}

/// Reads one message with its body. `None` at the end of the stream between two messages.
///
/// # Errors
/// Those of the reader; `InvalidData` for an impossible length; `UnexpectedEof` for a stream that
/// ends within a message.
#[inline]
pub fn read(from: &mut impl Read) -> io::Result<Option<Message>> {
    let mut tag = [0];
    // A signal that the process handles, such as a child's end, interrupts a read; it is no end of
    // the stream. `read_exact` and `read_to_end` go on by themselves.
    let read = loop {
        match from.read(&mut tag) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => break other?,
        }
    };
    if read == 0 {
        return Ok(None);
    }
    let [tag] = tag;
    let body = read_body(from, MESSAGE_MAX)?;
    Ok(Some(Message { tag, body }))
}

/// Reads a startup packet, which has no type byte, and returns what follows its length field. It
/// may have at most 10,000 bytes.
///
/// # Errors
/// Those of the reader; `InvalidData` for an impossible length; `UnexpectedEof` when the stream
/// ends before, even at once.
pub fn read_startup(from: &mut impl Read) -> io::Result<Vec<u8>> {
    read_body(from, STARTUP_MAX)
}

/// Reads a length field and the body after it. Fails with `InvalidData` if the body would be longer
/// than `max` or the field is less than 4, with `UnexpectedEof` if the stream ends before, and with
/// the reader's errors.
#[inline]
fn read_body(from: &mut impl Read, max: usize) -> io::Result<Vec<u8>> {
    let mut field = [0; LENGTH];
    from.read_exact(&mut field)?;
    let length = body_length(field, max);
    let length = length.ok_or_else(|| invalid("impossible length of a message"))?;
    let mut body = Vec::new();
    let limit = u64::try_from(length).unwrap_or(u64::MAX);
    if from.take(limit).read_to_end(&mut body)? < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::Builder;

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

    /// A reader that is interrupted before each of its bytes.
    struct Interrupted<'a> {
        bytes: &'a [u8],
        interrupted: bool,
    }

    impl Read for Interrupted<'_> {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            self.interrupted = !self.interrupted;
            if self.interrupted {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let len = buf.len().min(1);
            self.bytes.read(buf.get_mut(..len).unwrap_or_default())
        }
    }

    #[test]
    fn an_interrupted_read_is_made_again() {
        let mut out = Vec::new();
        Builder::new(&mut out, b'Q').string(b"select 1").end();
        let mut from = Interrupted {
            bytes: &out,
            interrupted: false,
        };
        let message = read(&mut from).unwrap().unwrap();
        assert_eq!(message.body, b"select 1\0");
        assert!(read(&mut from).unwrap().is_none());
    }
}
