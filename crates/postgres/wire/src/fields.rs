//! Parses the fields of a message's body.
//!
//! Invariant: a field that is not there completely is `None`, never a panic.
#![expect(
    clippy::big_endian_bytes,
    reason = "the protocol's integers are big-endian"
)]

/// Takes fields one after the other from the bytes that it holds, which are those not yet taken.
#[derive(Debug)]
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    /// Takes that many bytes. `None` if fewer are left.
    #[inline]
    pub fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    /// Takes `N` bytes. `None` if fewer are left.
    #[inline]
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    /// Takes one byte. `None` if none is left.
    #[inline]
    pub fn byte(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// Takes a signed number of 16 bits. `None` if fewer than 2 bytes are left.
    #[inline]
    pub fn int16(&mut self) -> Option<i16> {
        self.array().map(i16::from_be_bytes)
    }

    /// Takes a signed number of 32 bits. `None` if fewer than 4 bytes are left.
    #[inline]
    pub fn int32(&mut self) -> Option<i32> {
        self.array().map(i32::from_be_bytes)
    }

    /// Takes an unsigned number of 64 bits, as replication messages have them. `None` if fewer than
    /// 8 bytes are left.
    #[inline]
    pub fn uint64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// Takes an object identifier, an unsigned number of 32 bits. `None` if fewer than 4 bytes are
    /// left.
    #[inline]
    pub fn oid(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// Takes a string and the zero byte that ends it, and returns it without that byte. `None` if
    /// no zero byte follows.
    #[inline]
    pub fn string(&mut self) -> Option<&'a [u8]> {
        let length = self.0.iter().position(|byte| *byte == 0)?;
        let taken = self.bytes(length)?;
        self.byte()?;
        Some(taken)
    }

    /// Takes a count, which has 16 bits and no sign. `None` if fewer than 2 bytes are left.
    #[inline]
    pub fn count(&mut self) -> Option<usize> {
        // Since counts go to 65535 the field is read without sign (pqformat.c, pq_getmsgint).
        self.array()
            .map(|bytes| usize::from(u16::from_be_bytes(bytes)))
    }

    /// Takes a value: its length, then its bytes. `Some(None)` is NULL. `None` if the length is
    /// invalid or fewer bytes are left.
    #[inline]
    pub fn value(&mut self) -> Option<Option<&'a [u8]>> {
        match self.int32()? {
            -1 => Some(None),
            length => Some(Some(self.bytes(usize::try_from(length).ok()?)?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
