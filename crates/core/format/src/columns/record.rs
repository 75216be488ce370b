//! Recordings that an operator makes: what one backend asked the zone, and what the zone answered.
//!
//! Specified in docs/spec/columns-record.md. Must not: seal anything, or know what an operation
//! means.

use alloc::vec::Vec;

use crate::layout::{array, layout, put, u32_at, u64_at};

/// First bytes of a piece.
pub const RECORD_MAGIC: [u8; 4] = *b"SRZR";
/// Most bytes of a piece that are sealed.
pub const RECORD_PIECE_MAX: usize = 1 << 17;
/// Most bytes of a record.
pub const RECORD_MAX: u64 = 64 << 20;

layout! {
    /// Layout of a piece's head; SIZE sealed bytes and a tag follow.
    record_piece_layout, 24, {
        MAGIC @ 0, 4;
        LAST @ 4, 4;
        SEQUENCE @ 8, 8;
        SIZE_SEALED @ 16, 8;
    }
}

layout! {
    /// Layout of a call; INPUT and OUTPUT bytes follow.
    record_call_layout, 56, {
        OP @ 0, 2;
        FLAGS @ 2, 2;
        N @ 4, 4;
        A @ 8, 8;
        B @ 16, 8;
        R @ 24, 8;
        STATUS @ 32, 4;
        AUX @ 36, 4;
        VALUE @ 40, 8;
        INPUT @ 48, 4;
        OUTPUT @ 52, 4;
    }
}

/// The head of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PieceHead {
    /// Whether it is the last one.
    pub last: bool,
    /// Its number, from 0.
    pub sequence: u64,
    /// Bytes that are sealed.
    pub size: usize,
}

impl PieceHead {
    /// Parses a head from the first 24 bytes. `None` when there are fewer, the magic is another,
    /// the mark of the last piece is neither 0 nor 1, or the size is more than
    /// [`RECORD_PIECE_MAX`].
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        use record_piece_layout as at;
        let magic: [u8; 4] = array(bytes, at::MAGIC)?;
        let last = match u32_at(bytes, at::LAST)? {
            0 => false,
            1 => true,
            _ => return None,
        };
        let size = usize::try_from(u64_at(bytes, at::SIZE_SEALED)?).ok()?;
        let head = Self {
            last,
            sequence: u64_at(bytes, at::SEQUENCE)?,
            size,
        };
        (magic == RECORD_MAGIC && size <= RECORD_PIECE_MAX).then_some(head)
    }

    /// Returns the head's bytes, as they are written.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; record_piece_layout::SIZE] {
        use record_piece_layout as at;
        let mut out = [0; record_piece_layout::SIZE];
        let fields = [
            put(&mut out, at::MAGIC, &RECORD_MAGIC),
            put(&mut out, at::LAST, &u32::from(self.last).to_le_bytes()),
            put(&mut out, at::SEQUENCE, &self.sequence.to_le_bytes()),
            put(&mut out, at::SIZE_SEALED, &(self.size as u64).to_le_bytes()),
        ];
        assert!(fields.iter().all(Option::is_some), "record piece layout");
        out
    }

    /// The nonce of the piece: four zero bytes and its number, little-endian.
    #[must_use]
    pub fn nonce(&self) -> [u8; 12] {
        let mut nonce = [0; 12];
        if let Some(number) = nonce.last_chunk_mut::<8>() {
            *number = self.sequence.to_le_bytes();
        }
        nonce
    }
}

/// One call: its descriptor, the answer, and the contents of the data area before and after.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordedCall {
    /// The operation.
    pub op: u16,
    /// Its flags.
    pub flags: u16,
    /// Its count.
    pub n: u32,
    /// Its arguments and its result.
    pub words: [u64; 3],
    /// The answer's status.
    pub status: u32,
    /// The answer's further bits.
    pub aux: u32,
    /// The answer.
    pub value: u64,
    /// Arguments in the data area.
    pub input: Vec<u8>,
    /// Answer in the data area.
    pub output: Vec<u8>,
}

impl RecordedCall {
    /// Parses a call; returns it and the bytes after it. `None` when it is cut short.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        use record_call_layout as at;
        let input = usize::try_from(u32_at(bytes, at::INPUT)?).ok()?;
        let output = usize::try_from(u32_at(bytes, at::OUTPUT)?).ok()?;
        let rest = bytes.get(record_call_layout::SIZE..)?;
        let (input, rest) = rest.split_at_checked(input)?;
        let (output, rest) = rest.split_at_checked(output)?;
        let call = Self {
            op: u16::from_le_bytes(array(bytes, at::OP)?),
            flags: u16::from_le_bytes(array(bytes, at::FLAGS)?),
            n: u32_at(bytes, at::N)?,
            words: [
                u64_at(bytes, at::A)?,
                u64_at(bytes, at::B)?,
                u64_at(bytes, at::R)?,
            ],
            status: u32_at(bytes, at::STATUS)?,
            aux: u32_at(bytes, at::AUX)?,
            value: u64_at(bytes, at::VALUE)?,
            input: input.to_vec(),
            output: output.to_vec(),
        };
        Some((call, rest))
    }

    /// Appends the call's bytes to `out`. `None`, without appending, when its arguments or its
    /// answer are longer than a field can say.
    #[must_use]
    pub fn append(&self, out: &mut Vec<u8>) -> Option<()> {
        use record_call_layout as at;
        let [a, b, r] = self.words;
        let input = u32::try_from(self.input.len()).ok()?;
        let output = u32::try_from(self.output.len()).ok()?;
        let mut head = [0; record_call_layout::SIZE];
        let parts: [(_, &[u8]); 11] = [
            (at::OP, &self.op.to_le_bytes()),
            (at::FLAGS, &self.flags.to_le_bytes()),
            (at::N, &self.n.to_le_bytes()),
            (at::A, &a.to_le_bytes()),
            (at::B, &b.to_le_bytes()),
            (at::R, &r.to_le_bytes()),
            (at::STATUS, &self.status.to_le_bytes()),
            (at::AUX, &self.aux.to_le_bytes()),
            (at::VALUE, &self.value.to_le_bytes()),
            (at::INPUT, &input.to_le_bytes()),
            (at::OUTPUT, &output.to_le_bytes()),
        ];
        for (field, bytes) in parts {
            put(&mut head, field, bytes)?;
        }
        out.extend_from_slice(&head);
        out.extend_from_slice(&self.input);
        out.extend_from_slice(&self.output);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn heads_and_calls_come_back_and_nothing_else_is_one() {
        let head = PieceHead {
            last: true,
            sequence: 7,
            size: RECORD_PIECE_MAX,
        };
        assert_eq!(PieceHead::parse(&head.to_bytes()), Some(head));
        for (at, byte) in [(0, 0), (4, 2), (23, 1)] {
            let mut bytes = head.to_bytes();
            bytes[at] = byte;
            assert_eq!(PieceHead::parse(&bytes), None, "byte {at}");
        }
        let call = RecordedCall {
            op: 1,
            flags: 2,
            n: 3,
            words: [4, 5, u64::MAX],
            status: 7,
            aux: 8,
            value: 9,
            input: vec![1; 5],
            output: vec![2; 3],
        };
        let mut bytes = Vec::new();
        call.append(&mut bytes).unwrap();
        call.append(&mut bytes).unwrap();
        let (first, rest) = RecordedCall::parse(&bytes).unwrap();
        assert_eq!(first, call);
        assert_eq!(RecordedCall::parse(rest).unwrap(), (call, &[][..]));
        for len in 0..rest.len() {
            assert_eq!(RecordedCall::parse(&rest[..len]), None, "{len} bytes");
        }
    }
}
