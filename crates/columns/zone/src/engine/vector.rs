//! What a register holds for the rows of a chunk.
//!
//! Invariant: the contents are overwritten when a vector is cleared or dropped. Must not: know what
//! a value means.

use strongroom_columns_values::{Buf, Value};
use zeroize::Zeroize as _;

use crate::arena::ScopeId;
use crate::policy::ColumnAddress;

/// Bytes of a vector from which on it gets no more rows. The last row may have made them more.
pub(super) const BYTES_MAX: usize = 1 << 20;

/// Bytes of a vector from which on its values count as long.
const LONG_BYTES: usize = 1 << 16;

/// What there is for a row.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tag {
    /// Nothing, or NULL.
    Null,
    /// A word: a value that is one, a truth or a number.
    Word,
    /// Bytes: where they begin in the upper half of the word, their length in the lower one.
    Bytes,
}

/// A vector: for each row a value, a truth, a number or NULL.
pub(super) struct Vector {
    tags: Vec<Tag>,
    words: Vec<u64>,
    bytes: Buf,
    /// Where the values are from, each once: their scopes in the ring's arena, and where they are
    /// stored, if they are.
    origins: Vec<Origin>,
    /// Whether all rows have the first one's.
    is_same: bool,
}

/// Scope of a value, and the column in which it is stored, if it is.
pub(super) type Origin = (ScopeId, Option<ColumnAddress>);

impl Vector {
    /// A vector without rows.
    pub(super) const fn new() -> Self {
        Self {
            tags: Vec::new(),
            words: Vec::new(),
            bytes: Buf::new(),
            origins: Vec::new(),
            is_same: false,
        }
    }

    /// Overwrites the contents, and makes it a vector of so many rows, all of them NULL.
    pub(super) fn begin(&mut self, rows: usize) {
        self.wipe();
        self.tags.resize(rows, Tag::Null);
        self.words.resize(rows, 0);
    }

    /// Overwrites the contents. No rows are left.
    pub(super) fn wipe(&mut self) {
        self.words.as_mut_slice().zeroize();
        self.words.clear();
        self.tags.clear();
        self.bytes.clear();
        self.origins.clear();
        self.is_same = false;
    }

    /// Makes what the first row has that of all rows.
    pub(super) fn repeat_first(&mut self) {
        self.is_same = true;
    }

    /// The index at which a row's contents are.
    const fn at(&self, row: usize) -> usize {
        if self.is_same { 0 } else { row }
    }

    /// The value of a row. `None` for NULL.
    #[inline]
    pub(super) fn get(&self, row: usize) -> Option<Value<'_>> {
        let at = self.at(row);
        let word = *self.words.get(at)?;
        match self.tags.get(at)? {
            Tag::Null => None,
            Tag::Word => Some(Value::Word(word)),
            Tag::Bytes => {
                let (from, len) = (to_usize(word >> 32), to_usize(word & u64::from(u32::MAX)));
                let bytes = self.bytes.as_slice().get(from..from.saturating_add(len));
                bytes.map(Value::Bytes)
            }
        }
    }

    /// The value of a row if it is a word. `None` for bytes and NULL.
    #[inline]
    pub(super) fn word(&self, row: usize) -> Option<u64> {
        let at = self.at(row);
        let is_word = *self.tags.get(at)? == Tag::Word;
        is_word.then_some(*self.words.get(at)?)
    }

    /// The truth of a row. `None` for NULL.
    pub(super) fn truth(&self, row: usize) -> Option<bool> {
        match self.get(row)? {
            Value::Word(word) => Some(word != 0),
            Value::Bytes(_) => None,
        }
    }

    /// Sets the value of a row. False, and the row stays as it is, if the vector's bytes would be 4
    /// GiB or more.
    #[must_use]
    #[inline]
    pub(super) fn set(&mut self, row: usize, value: Value<'_>) -> bool {
        let (tag, word) = match value {
            Value::Word(word) => (Tag::Word, word),
            Value::Bytes(bytes) => {
                let from = u32::try_from(self.bytes.as_slice().len());
                let len = u32::try_from(bytes.len());
                let (Ok(from), Ok(len)) = (from, len) else {
                    return false;
                };
                self.bytes.extend(bytes);
                (Tag::Bytes, u64::from(from) << 32 | u64::from(len))
            }
        };
        self.set_word(row, tag, word);
        true
    }

    /// Sets the truth of a row; `None` is NULL.
    pub(super) fn set_truth(&mut self, row: usize, truth: Option<bool>) {
        match truth {
            Some(truth) => self.set_word(row, Tag::Word, u64::from(truth)),
            None => self.set_word(row, Tag::Null, 0),
        }
    }

    /// Sets tag and word of a row.
    fn set_word(&mut self, row: usize, tag: Tag, word: u64) {
        if let (Some(tags), Some(words)) = (self.tags.get_mut(row), self.words.get_mut(row)) {
            (*tags, *words) = (tag, word);
        }
    }

    /// Whether a value in it may be bytes.
    pub(super) fn has_bytes(&self) -> bool {
        !self.bytes.as_slice().is_empty()
    }

    /// Whether its values are so long that what is done with one of them may take a while.
    pub(super) fn is_long(&self) -> bool {
        self.bytes.as_slice().len() > LONG_BYTES
    }

    /// Whether its bytes are so many that no more rows are to be added to those that it has.
    pub(super) fn is_full(&self) -> bool {
        self.bytes.as_slice().len() > BYTES_MAX
    }

    /// Notes where a value of the vector is from.
    #[inline]
    pub(super) fn add_origin(&mut self, origin: Origin) {
        if self.origins.last() != Some(&origin) && !self.origins.contains(&origin) {
            self.origins.push(origin);
        }
    }

    /// Where the values are from, each once.
    pub(super) fn origins(&self) -> &[Origin] {
        &self.origins
    }
}

/// Half of a word as an index.
fn to_usize(half: u64) -> usize {
    usize::try_from(half).unwrap_or(usize::MAX)
}

impl Drop for Vector {
    /// Overwrites the contents.
    fn drop(&mut self) {
        self.wipe();
    }
}
