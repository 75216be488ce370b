//! Values of one batch, copied together: for operations that need all of them at once.
//!
//! Invariant: the bytes are wiped with the batch. Must not: interpret a value.

use strongroom_rpc::Fault;
use strongroom_values::{Buf, Value};

/// Values, one after the other.
#[derive(Default)]
pub(super) struct Batch {
    items: Vec<Item>,
    bytes: Buf,
}

enum Item {
    Word(u64),
    Bytes(usize, usize),
}

impl Batch {
    /// Room for `count` values.
    pub(super) fn new(count: usize) -> Self {
        Self {
            items: Vec::with_capacity(count),
            bytes: Buf::new(),
        }
    }

    pub(super) fn push(&mut self, value: Value<'_>) {
        let item = match value {
            Value::Word(word) => Item::Word(word),
            Value::Bytes(bytes) => {
                let from = self.bytes.as_slice().len();
                self.bytes.extend(bytes);
                Item::Bytes(from, from.saturating_add(bytes.len()))
            }
        };
        self.items.push(item);
    }

    /// # Errors
    /// [`Fault::BadRequest`] beyond the end.
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

impl Drop for Batch {
    fn drop(&mut self) {
        for item in &mut self.items {
            *item = Item::Word(0);
        }
        core::hint::black_box(&self.items);
    }
}
