//! The messages of a connection: read without copying their bodies, and with time limits.
//!
//! Invariants:
//! - Q7: no body is longer than the caller accepts, and no memory is allocated for one before its
//!   bytes arrive: the buffer grows only to the length that a message needs.
//! - Q8: a body stays in the buffer that it was read into; it is not copied here.
//! - Q5: a time limit that is reached in the middle of a message loses nothing.
//! - Q1: sent bytes are overwritten, because they may hold a password.

#![expect(
    clippy::big_endian_bytes,
    reason = "the protocol's integers are big-endian"
)]

use std::io;
use std::ops::Range;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use zeroize::Zeroize as _;

use super::error::{Error, Result};
use super::socket::time_left;
use super::transport::Transport;
use crate::message::body_length;

/// Bytes of a message's type and length.
const HEADER: usize = 5;

/// The buffer's initial size, and the most that one read asks for, in bytes.
const INPUT: usize = 256 * 1024;

/// A message in the buffer. [`MessageStream::bytes`] has its body until the next one is read.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) tag: u8,
    pub(crate) body: Range<usize>,
}

/// How long a read may take.
#[derive(Clone, Copy, Debug)]
pub enum WaitLimit {
    /// At most this long without a byte.
    Silence(Option<Duration>),
    /// Until then.
    Until(Instant),
}

impl WaitLimit {
    /// Returns a deadline that lies this long after now; no limit if the clock cannot represent it.
    #[must_use]
    pub fn of(wait: Duration) -> Self {
        // A deadline that the clock cannot represent is none.
        let deadline = Instant::now().checked_add(wait);
        deadline.map_or(Self::Silence(None), Self::Until)
    }

    /// Returns whether a deadline has passed. Always false for a limit on silence.
    #[must_use]
    pub fn has_passed(self) -> bool {
        match self {
            Self::Silence(_) => false,
            Self::Until(deadline) => Instant::now() >= deadline,
        }
    }
}

/// Reads messages from a transport, and sends those that were put into `output`.
#[derive(Debug)]
pub(crate) struct MessageStream {
    transport: Transport,
    body_max: usize,
    input: Vec<u8>,
    /// The bytes of `input` that were read and are not part of a returned message.
    unread: Range<usize>,
    /// The messages that [`Self::send`] sends next.
    pub(crate) output: BytesMut,
}

impl MessageStream {
    /// Makes a stream of messages whose bodies have at most `body_max` bytes. Nothing is read or
    /// sent.
    pub(crate) fn new(transport: Transport, body_max: usize) -> Self {
        Self {
            transport,
            body_max,
            input: vec![0; INPUT],
            unread: 0..0,
            output: BytesMut::with_capacity(4096),
        }
    }

    /// Returns the connection below.
    pub(crate) fn transport(&self) -> &Transport {
        &self.transport
    }

    /// Waits for the next message and returns its type and where its body is. `None` when the limit
    /// was reached before it was complete; what has arrived of it is not lost. Fails with
    /// [`Error::EndedEarly`] at the end of the stream, with [`Error::Protocol`] for a body longer
    /// than allowed, and with the errors of reading; they name `during`.
    pub(crate) fn frame(
        &mut self,
        limit: WaitLimit,
        during: &'static str,
    ) -> Result<Option<Frame>> {
        let mut tried = false;
        loop {
            if let Some(frame) = self.whole_frame()? {
                return Ok(Some(frame));
            }
            // A peer that sends a byte now and then must not outlast a deadline.
            if tried && limit.has_passed() {
                return Ok(None);
            }
            let wait = match limit {
                WaitLimit::Silence(wait) => wait,
                WaitLimit::Until(deadline) => Some(time_left(deadline)),
            };
            match self.fill(wait) {
                Ok(0) => return Err(Error::EndedEarly(during)),
                Ok(_) => {}
                Err(error) if is_timeout(&error) => return Ok(None),
                Err(error) => return Err(Error::transfer(error, during)),
            }
            tried = true;
        }
    }

    /// Returns the bytes of a range in the last message; those of earlier messages may be
    /// overwritten. Empty for a range outside the buffer.
    pub(crate) fn bytes(&self, range: Range<usize>) -> &[u8] {
        self.input.get(range).unwrap_or_default()
    }

    /// Takes the next message from the buffer. `None` if the buffer does not have all of it yet.
    /// Fails with [`Error::Protocol`] if its body would be longer than allowed.
    fn whole_frame(&mut self) -> Result<Option<Frame>> {
        let Some(length) = self.frame_length()? else {
            return Ok(None);
        };
        if self.unread.len() < length {
            return Ok(None);
        }
        let start = self.unread.start;
        self.unread.start = start + length;
        Ok(Some(Frame {
            tag: self.input.get(start).copied().unwrap_or_default(),
            body: start + HEADER..start + length,
        }))
    }

    /// Returns the length of the next message with its header. `None` until the header has arrived.
    /// Fails with [`Error::Protocol`] if the body would be longer than allowed.
    fn frame_length(&self) -> Result<Option<usize>> {
        let Some(header) = self.bytes(self.unread.clone()).first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let [_, field @ ..] = *header;
        match body_length(field, self.body_max) {
            Some(length) => Ok(Some(HEADER + length)),
            None => {
                let length = u32::from_be_bytes(field);
                Err(Error::protocol(format!("a message of {length} bytes")))
            }
        }
    }

    /// Reads more bytes into the buffer, at most 256 KiB, and returns how many; 0 at the end of the
    /// stream. Fails as [`Transport::read`] does.
    fn fill(&mut self, wait: Option<Duration>) -> io::Result<usize> {
        self.make_room();
        let end = self.unread.end;
        let until = self.input.len().min(end + INPUT);
        let into = self.input.get_mut(end..until).unwrap_or_default();
        let got = self.transport.read(into, wait)?;
        self.unread.end = end + got;
        Ok(got)
    }

    /// Makes room after the unread bytes for the rest of the message that they begin with: moves
    /// them to the start of the buffer, and enlarges the buffer, where that is needed.
    fn make_room(&mut self) {
        if self.unread.is_empty() {
            self.unread = 0..0;
            return;
        }
        // A length that is refused was refused before a read is asked for.
        let needed = self.frame_length().ok().flatten().unwrap_or(HEADER);
        if self.unread.start + needed > self.input.len() {
            self.input.copy_within(self.unread.clone(), 0);
            self.unread = 0..self.unread.len();
        }
        if needed > self.input.len() {
            // It doubles only once it is full, so that an announced length alone takes no memory.
            let grown = needed.min(self.input.len().max(self.unread.len()) * 2);
            if self.unread.end == self.input.len() {
                self.input.resize(grown, 0);
            }
        }
    }

    /// Sends the messages in `output`, each part within `wait`. Overwrites and removes them, also
    /// after an error. Fails with [`Error::TimedOut`] or another error of the connection; they name
    /// `during`.
    pub(crate) fn send(&mut self, wait: Option<Duration>, during: &'static str) -> Result<()> {
        let sent = self.transport.write(&self.output, wait);
        self.output.zeroize_and_clear();
        sent.map_err(|error| Error::transfer(error, during))
    }

    /// Ends TLS on the connection: see [`Transport::close`].
    pub(crate) fn close(&mut self) {
        self.transport.close();
    }
}

trait ZeroizeAndClear {
    /// Overwrites the content with zeros and makes the buffer empty.
    fn zeroize_and_clear(&mut self);
}

impl ZeroizeAndClear for BytesMut {
    /// Overwrites the content with zeros and makes the buffer empty.
    fn zeroize_and_clear(&mut self) {
        self.as_mut().zeroize();
        self.clear();
    }
}

/// Returns whether a read failed because its timeout was reached.
pub(crate) fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock
    )
}
