//! Writes messages of either side into a buffer. The `postgres-protocol` crate writes only those
//! of a client; a proxy writes those of a server too.
#![expect(
    clippy::big_endian_bytes,
    reason = "the protocol's integers are big-endian"
)]

use crate::message::LENGTH;

/// A message that is being written; [`Self::end`] fills in its length.
#[derive(Debug)]
pub struct Builder<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
}

impl<'a> Builder<'a> {
    /// Begins a message of this type at the end of `out`: appends the type byte and room for the
    /// length.
    #[inline]
    #[must_use]
    pub fn new(out: &'a mut Vec<u8>, tag: u8) -> Self {
        out.push(tag);
        Self::untagged(out)
    }

    /// Begins a packet without a type byte, such as a startup packet, at the end of `out`: appends
    /// room for the length.
    #[inline]
    #[must_use]
    pub fn untagged(out: &'a mut Vec<u8>) -> Self {
        let start = out.len();
        out.extend_from_slice(&[0; LENGTH]);
        Self { out, start }
    }

    /// Appends bytes as they are.
    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.out.extend_from_slice(bytes);
        self
    }

    /// Appends one byte.
    #[inline]
    pub fn byte(&mut self, byte: u8) -> &mut Self {
        self.bytes(&[byte])
    }

    /// Appends a signed number of 16 bits.
    #[inline]
    pub fn int16(&mut self, number: i16) -> &mut Self {
        self.bytes(&number.to_be_bytes())
    }

    /// Appends a signed number of 32 bits.
    #[inline]
    pub fn int32(&mut self, number: i32) -> &mut Self {
        self.bytes(&number.to_be_bytes())
    }

    /// Appends an object identifier, an unsigned number of 32 bits.
    #[inline]
    pub fn oid(&mut self, number: u32) -> &mut Self {
        self.bytes(&number.to_be_bytes())
    }

    /// Appends a string and the zero byte that ends it. Zero bytes inside would end it early: they
    /// are left out.
    #[inline]
    pub fn string(&mut self, text: &[u8]) -> &mut Self {
        self.out.extend(text.iter().filter(|byte| **byte != 0));
        self.byte(0)
    }

    /// Appends an unsigned count of 16 bits. A count above 65535 is the caller's error: 65535 is
    /// written, and the server refuses the message.
    #[inline]
    pub fn count(&mut self, count: usize) -> &mut Self {
        self.bytes(&u16::try_from(count).unwrap_or(u16::MAX).to_be_bytes())
    }

    /// Appends a value with its length, or -1 for NULL.
    #[inline]
    pub fn value(&mut self, value: Option<&[u8]>) -> &mut Self {
        match value {
            None => self.int32(-1),
            Some(bytes) => self
                .int32(i32::try_from(bytes.len()).unwrap_or(i32::MAX))
                .bytes(bytes),
        }
    }

    /// Ends the message: writes the length of what was appended, itself included, into the room
    /// that was left for it. A message of 4 GiB or more is the caller's error: 2^32 - 1 is written.
    #[inline]
    pub fn end(&mut self) {
        let length = self.out.len().saturating_sub(self.start);
        let length = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
        let end = self.start.saturating_add(LENGTH);
        if let Some(field) = self.out.get_mut(self.start..end) {
            field.copy_from_slice(&length);
        }
    }
}

/// Appends a whole message with this type and body to `out`.
#[inline]
pub fn append(out: &mut Vec<u8>, tag: u8, body: &[u8]) {
    Builder::new(out, tag).bytes(body).end();
}
