//! The values of one batch, copied: for operations that need all of them at once.
//!
//! Invariants: the bytes are wiped when the batch is dropped; there are never more than the limit
//! of the operation. Must not: interpret a value.

use strongroom_columns_ring::Fault;
use strongroom_columns_values::{Buf, Value};
use strongroom_format::columns::envelope::ENVELOPE_PAD;

/// Values, one after the other.
#[derive(Default)]
pub(super) struct Batch {
    items: Vec<Item>,
    bytes: Buf,
    /// The most bytes of all values together, each rounded up.
    limit: usize,
    /// The bytes so far, rounded up likewise.
    counted: usize,
}

enum Item {
    Word(u64),
    Bytes(usize, usize),
}

impl Batch {
    /// An empty batch with room for `count` values; `limit` is the most bytes that they may have
    /// together, each rounded up to what an envelope tells of its length: otherwise a host could
    /// find a length by putting one value into a batch so often that it fails.
    pub(super) fn new(count: usize, limit: usize) -> Self {
        Self {
            items: Vec::with_capacity(count),
            bytes: Buf::new(),
            limit,
            counted: 0,
        }
    }

    /// Appends a copy of a value.
    ///
    /// # Errors
    /// [`Fault::StringTooLong`] if the bytes of all values would exceed the limit: the caller has
    /// to make a smaller batch.
    pub(super) fn push(&mut self, value: Value<'_>) -> Result<(), Fault> {
        let item = match value {
            Value::Word(word) => Item::Word(word),
            Value::Bytes(bytes) => {
                let from = self.bytes.as_slice().len();
                let end = from.saturating_add(bytes.len());
                let counted = self.counted.saturating_add(padded_length(bytes.len()));
                if counted > self.limit {
                    return Err(Fault::StringTooLong);
                }
                self.counted = counted;
                self.bytes.extend(bytes);
                Item::Bytes(from, end)
            }
        };
        self.items.push(item);
        Ok(())
    }

    /// The value at this index, from 0.
    ///
    /// # Errors
    /// [`Fault::BadRequest`] past the end.
    pub(super) fn get(&self, at: usize) -> Result<Value<'_>, Fault> {
        match self.items.get(at).ok_or(Fault::BadRequest)? {
            Item::Word(word) => Ok(Value::Word(*word)),
            Item::Bytes(from, to) => {
                let bytes = self.bytes.as_slice().get(*from..*to);
                bytes.map(Value::Bytes).ok_or(Fault::BadRequest)
            }
        }
    }
}

/// A length, rounded up to what an envelope tells of it.
pub(super) const fn padded_length(len: usize) -> usize {
    len / ENVELOPE_PAD * ENVELOPE_PAD + ENVELOPE_PAD
}

impl Drop for Batch {
    /// Overwrites the values that are words; the bytes are wiped by `Buf`.
    fn drop(&mut self) {
        for item in &mut self.items {
            *item = Item::Word(0);
        }
        core::hint::black_box(&self.items);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_has_an_end() {
        let mut batch = Batch::new(2, 40);
        assert_eq!(batch.push(Value::Bytes(b"0123456")), Ok(()));
        // 16 bytes and the padding's first are 32, as in an envelope.
        let two = batch.push(Value::Bytes(b"0123456789abcdef"));
        assert_eq!(two, Err(Fault::StringTooLong));
        assert_eq!(batch.push(Value::Bytes(b"0123456789abcde")), Ok(()));
        assert_eq!(batch.push(Value::Bytes(b"")), Err(Fault::StringTooLong));
        assert_eq!(batch.push(Value::Word(1)), Ok(()));
        assert_eq!(batch.get(1).unwrap().bytes().unwrap().len(), 15);
    }
}
