//! The protocol's frames: a type byte, a length, a body. Frontend/backend protocol 3.0, "Message
//! Formats".
//!
//! Invariants:
//! - Q7: no frame is longer than [`FRAME_MAX`], and no memory is allocated for one before its bytes
//!   arrive: the buffer grows only to the length that a frame needs.
//! - Q8: a body is returned where it was read; it is not copied here.
//! - Q5: running out of time in the middle of a frame loses nothing.
//! - Q1: what was sent is overwritten after a password.

use std::io;
use std::ops::Range;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use zeroize::Zeroize as _;

use crate::error::{Error, Result};
use crate::transport::{Transport, left};

/// Longest frame that is taken, type and length included, in bytes. The server's longest are 128
/// KiB of the log and 32 KiB of a backup; history files and lists of tablespaces are far below.
pub(crate) const FRAME_MAX: usize = 1 << 20;

/// Type and length.
const HEADER: usize = 5;

/// The buffer to begin with, in bytes; at most this much is asked for in one read.
const INPUT: usize = 256 * 1024;

/// A message; its body is read with [`Wire::bytes`] before the next one is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) tag: u8,
    pub(crate) body: Range<usize>,
}

/// How long a read may take.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    /// At most this long without a byte.
    Silence(Option<Duration>),
    /// Until then.
    Until(Instant),
}

impl Patience {
    /// At most this long from now.
    pub(crate) fn of(wait: Duration) -> Self {
        // What no clock can hold is for ever.
        let deadline = Instant::now().checked_add(wait);
        deadline.map_or(Self::Silence(None), Self::Until)
    }

    /// Whether a deadline has passed.
    pub(crate) fn is_over(self) -> bool {
        match self {
            Self::Silence(_) => false,
            Self::Until(deadline) => Instant::now() >= deadline,
        }
    }
}

/// Frames in, bytes out.
#[derive(Debug)]
pub(crate) struct Wire {
    transport: Transport,
    input: Vec<u8>,
    /// What was read and not yet handed out.
    unread: Range<usize>,
    /// What is sent next, by [`Self::send`].
    pub(crate) output: BytesMut,
}

impl Wire {
    pub(crate) fn new(transport: Transport) -> Self {
        Self {
            transport,
            input: vec![0; INPUT],
            unread: 0..0,
            output: BytesMut::with_capacity(4096),
        }
    }

    pub(crate) fn transport(&self) -> &Transport {
        &self.transport
    }

    /// The next frame. `None` when the patience ended before it was whole.
    pub(crate) fn frame(
        &mut self,
        patience: Patience,
        during: &'static str,
    ) -> Result<Option<Frame>> {
        let mut tried = false;
        loop {
            if let Some(frame) = self.whole_frame()? {
                return Ok(Some(frame));
            }
            // A peer that sends a byte now and then must not outlast a deadline.
            if tried && patience.is_over() {
                return Ok(None);
            }
            let wait = match patience {
                Patience::Silence(wait) => wait,
                Patience::Until(deadline) => Some(left(deadline)),
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

    /// The bytes of a frame's part. Those of an earlier frame are gone.
    pub(crate) fn bytes(&self, range: Range<usize>) -> &[u8] {
        self.input.get(range).unwrap_or_default()
    }

    /// A frame that is in the buffer as a whole.
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

    /// The length of the frame that the buffer begins with, once its header is there.
    fn frame_length(&self) -> Result<Option<usize>> {
        let Some(header) = self.bytes(self.unread.clone()).first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let [_, length @ ..] = *header;
        let length = length
            .iter()
            .fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
        // The length counts itself and not the type.
        match usize::try_from(length) {
            Ok(length) if (4..FRAME_MAX).contains(&length) => Ok(Some(length + 1)),
            _ => Err(Error::protocol(format!("a message of {length} bytes"))),
        }
    }

    fn fill(&mut self, wait: Option<Duration>) -> io::Result<usize> {
        self.make_room();
        let end = self.unread.end;
        let until = self.input.len().min(end + INPUT);
        let into = self.input.get_mut(end..until).unwrap_or_default();
        let got = self.transport.read(into, wait)?;
        self.unread.end = end + got;
        Ok(got)
    }

    /// Room behind what is unread for the rest of the frame that it begins with.
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
            // Twice what is there, so that a length alone takes no memory.
            let grown = needed.min(self.input.len().max(self.unread.len()) * 2);
            if self.unread.end == self.input.len() {
                self.input.resize(grown, 0);
            }
        }
    }

    /// Sends what is in `output`, and forgets it.
    pub(crate) fn send(&mut self, wait: Option<Duration>, during: &'static str) -> Result<()> {
        let sent = self.transport.write(&self.output, wait);
        self.output.zeroize_and_clear();
        sent.map_err(|error| Error::transfer(error, during))
    }

    pub(crate) fn close(&mut self) {
        self.transport.close();
    }
}

trait ZeroizeAndClear {
    fn zeroize_and_clear(&mut self);
}

impl ZeroizeAndClear for BytesMut {
    fn zeroize_and_clear(&mut self) {
        self.as_mut().zeroize();
        self.clear();
    }
}

pub(crate) fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock
    )
}

/// A reader of a body's fields, most significant byte first, as the protocol has them.
#[derive(Debug)]
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    pub(crate) fn number(&mut self) -> Option<u64> {
        let (bytes, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(
            bytes
                .iter()
                .fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
        )
    }

    /// Text up to a zero byte.
    pub(crate) fn text(&mut self) -> Option<&'a [u8]> {
        let end = self.0.iter().position(|byte| *byte == 0)?;
        let text = self.0.get(..end)?;
        self.0 = self.0.get(end + 1..)?;
        Some(text)
    }
}
