//! The memory of an arena: slots of 16 bytes in chunks, and bytes one after the other in regions.
//!
//! Invariant: memory that was used, and only that, is overwritten when it is cleared. Must not:
//! interpret a slot.

use std::sync::Arc;

use strongroom_format::columns::envelope::ENVELOPE_PAD;

use crate::store::memory::{Memory, Region, wipe};

const SLOT: usize = 16;
const CHUNK_SLOTS: u64 = 4096;
const CHUNK: usize = 65_536;
/// The most chunks that are kept for the next statement.
const CHUNKS_KEPT: usize = 16;
/// Length of a heap's ordinary regions; a longer value has a region of its own.
const REGION: usize = 262_144;

/// The content of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Form {
    Empty = 0,
    Word = 1,
    Bytes = 2,
    Fault = 3,
    Aggregate = 4,
}

impl Form {
    /// The form with this number; an unknown number means an empty slot.
    const fn of(number: u8) -> Self {
        match number {
            1 => Self::Word,
            2 => Self::Bytes,
            3 => Self::Fault,
            4 => Self::Aggregate,
            _ => Self::Empty,
        }
    }
}

/// One slot.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    pub(super) word: u64,
    pub(super) len: u32,
    pub(super) scope: u16,
    pub(super) kind: u8,
    pub(super) form: Form,
}

impl Slot {
    pub(super) const EMPTY: Self = Self {
        word: 0,
        len: 0,
        scope: 0,
        kind: 0,
        form: Form::Empty,
    };

    /// The slot that these bytes encode; the reverse of [`Self::to_bytes`]. An unknown form reads
    /// as an empty slot.
    #[expect(clippy::cast_possible_truncation, reason = "the word is taken apart")]
    const fn of(bytes: [u8; SLOT]) -> Self {
        let whole = u128::from_le_bytes(bytes);
        Self {
            word: whole as u64,
            len: (whole >> 64) as u32,
            scope: (whole >> 96) as u16,
            kind: (whole >> 112) as u8,
            form: Form::of((whole >> 120) as u8),
        }
    }

    /// The slot as bytes: little-endian word, length, scope, kind and form.
    fn to_bytes(self) -> [u8; SLOT] {
        let whole = u128::from(self.word)
            | u128::from(self.len) << 64
            | u128::from(self.scope) << 96
            | u128::from(self.kind) << 112
            | u128::from(self.form as u8) << 120;
        whole.to_le_bytes()
    }
}

/// Slots, by number from 0.
pub(super) struct Slots {
    chunks: Vec<Region>,
    /// One more than the last slot that was set.
    len: u64,
    memory: Arc<Memory>,
}

impl Slots {
    /// No slots yet. Takes memory from `memory` as slots are set.
    pub(super) fn new(memory: &Arc<Memory>) -> Self {
        Self {
            chunks: Vec::new(),
            len: 0,
            memory: Arc::clone(memory),
        }
    }

    /// One more than the index of the last slot that was set since the last `clear`.
    pub(super) const fn len(&self) -> u64 {
        self.len
    }

    /// The slot at this index, empty if it was skipped. `None` past the last one.
    pub(super) fn get(&self, at: u64) -> Option<Slot> {
        if at >= self.len {
            return None;
        }
        let (chunk, place) = split(at)?;
        let (slots, _) = self.chunks.get(chunk)?.as_slice().as_chunks::<SLOT>();
        slots.get(place).copied().map(Slot::of)
    }

    /// Sets the slot at this index, and allocates all chunks up to it. `None`, and nothing is set,
    /// if no memory is left.
    pub(super) fn set(&mut self, at: u64, slot: Slot) -> Option<()> {
        let (chunk, place) = split(at)?;
        while self.chunks.len() <= chunk {
            self.chunks.push(Region::new(CHUNK, &self.memory)?);
        }
        let (slots, _) = self
            .chunks
            .get_mut(chunk)?
            .as_mut_slice()
            .as_chunks_mut::<SLOT>();
        *slots.get_mut(place)? = slot.to_bytes();
        self.len = self.len.max(at.saturating_add(1));
        Some(())
    }

    /// Overwrites and forgets all slots. Keeps up to 16 chunks (1 MiB) of memory for the next
    /// statement.
    pub(super) fn clear(&mut self) {
        // A region that is dropped is overwritten by its owner.
        self.chunks.truncate(CHUNKS_KEPT);
        let mut left = self.len;
        for chunk in &mut self.chunks {
            let used = usize::try_from(left.min(CHUNK_SLOTS)).unwrap_or(usize::MAX);
            if let Some(used) = chunk.as_mut_slice().get_mut(..used.saturating_mul(SLOT)) {
                wipe(used);
            }
            left = left.saturating_sub(CHUNK_SLOTS);
        }
        self.len = 0;
    }
}

/// The index of the chunk in which the slot is, and the slot's index in that chunk. `None` if one
/// does not fit in a `usize`.
fn split(at: u64) -> Option<(usize, usize)> {
    let chunk = usize::try_from(at / CHUNK_SLOTS).ok()?;
    let place = usize::try_from(at % CHUNK_SLOTS).ok()?;
    Some((chunk, place))
}

/// How many bytes of a heap a value of `len` bytes takes: the padded length of its envelope. `None`
/// if no memory can be that long.
pub(super) fn taken(len: usize) -> Option<usize> {
    len.checked_add(1)?.checked_next_multiple_of(ENVELOPE_PAD)
}

/// Bytes. A place is the number of a region above, an offset in it below.
pub(super) struct Heap {
    regions: Vec<Region>,
    /// Where the next bytes go in the last region.
    end: usize,
    used: u64,
    memory: Arc<Memory>,
}

impl Heap {
    /// An empty heap. Takes memory from `memory` as bytes are put.
    pub(super) fn new(memory: &Arc<Memory>) -> Self {
        Self {
            regions: Vec::new(),
            end: 0,
            used: 0,
            memory: Arc::clone(memory),
        }
    }

    /// How many bytes are taken, padding included.
    pub(super) const fn used(&self) -> u64 {
        self.used
    }

    /// Copies bytes in; returns their place for [`Self::get`]. `None` if no memory is left. Takes
    /// the padded length of the value's envelope, so that the memory in use says no more about a
    /// value than its envelope does.
    pub(super) fn put(&mut self, bytes: &[u8]) -> Option<u64> {
        let taken = taken(bytes.len())?;
        let room = self
            .regions
            .last()
            .map_or(0, |region| region.as_slice().len());
        if room.saturating_sub(self.end) < taken || self.regions.is_empty() {
            let len = taken.max(REGION);
            self.regions.push(Region::new(len, &self.memory)?);
            self.end = 0;
        }
        let number = u64::try_from(self.regions.len().checked_sub(1)?).ok()?;
        let place = number << 32 | u64::try_from(self.end).ok()?;
        let end = self.end.checked_add(bytes.len())?;
        let region = self.regions.last_mut()?;
        region
            .as_mut_slice()
            .get_mut(self.end..end)?
            .copy_from_slice(bytes);
        self.end = self.end.checked_add(taken)?;
        self.used = self.used.saturating_add(taken as u64);
        Some(place)
    }

    /// The `len` bytes at a place that `put` returned. `None` if they lie outside the region.
    pub(super) fn get(&self, place: u64, len: u32) -> Option<&[u8]> {
        let region = self.regions.get(usize::try_from(place >> 32).ok()?)?;
        let from = usize::try_from(place & 0xffff_ffff).ok()?;
        let to = from.checked_add(usize::try_from(len).ok()?)?;
        region.as_slice().get(from..to)
    }

    /// Overwrites and forgets all bytes. Keeps the first region's memory for the next statement,
    /// unless it is of more than the ordinary size.
    pub(super) fn clear(&mut self) {
        let only = self.regions.len() == 1;
        self.regions.truncate(1);
        if let Some(region) = self.regions.first_mut() {
            let len = region.as_slice().len();
            if len > REGION {
                self.regions.clear();
            } else {
                // With more than one region, all of the first may have been used.
                let used = if only { self.end } else { len };
                if let Some(used) = region.as_mut_slice().get_mut(..used) {
                    wipe(used);
                }
            }
        }
        self.end = 0;
        self.used = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_comes_back_whole() {
        let slot = Slot {
            word: u64::MAX - 5,
            len: u32::MAX - 6,
            scope: u16::MAX - 7,
            kind: 11,
            form: Form::Bytes,
        };
        let back = Slot::of(slot.to_bytes());
        assert_eq!((back.word, back.len), (slot.word, slot.len));
        assert_eq!(
            (back.scope, back.kind, back.form),
            (slot.scope, slot.kind, slot.form)
        );
        assert_eq!(Slot::of([0; 16]).form, Form::Empty);
    }

    #[test]
    fn what_is_cleared_is_gone_from_memory() {
        let memory = Memory::new(false);
        let mut slots = Slots::new(&memory);
        let mut heap = Heap::new(&memory);
        for round in 0..3_u64 {
            let count = 100_000 + round;
            for at in 0..count {
                let slot = Slot {
                    word: !0,
                    ..Slot::EMPTY
                };
                slots.set(at, slot).unwrap();
            }
            for _ in 0..5000 {
                heap.put(&[0xff; 100]).unwrap();
            }
            assert!(slots.get(count - 1).is_some() && slots.get(count).is_none());
            slots.clear();
            heap.clear();
            assert_eq!((slots.len(), heap.used()), (0, 0));
            assert!(slots.chunks.len() <= CHUNKS_KEPT && heap.regions.len() <= 1);
            let left = slots.chunks.iter().chain(&heap.regions);
            assert!(
                left.map(Region::as_slice)
                    .all(|bytes| bytes.iter().all(|byte| *byte == 0))
            );
        }
        let used = |length: usize| {
            let mut heap = Heap::new(&memory);
            heap.put(&vec![0xff; length]).unwrap();
            (heap.used(), heap.end)
        };
        assert_eq!((used(0), used(33)), (used(15), used(47)));
        assert_ne!(used(15), used(16));
        let mut heap = Heap::new(&memory);
        heap.put(&vec![0xff; REGION + 1]).unwrap();
        heap.clear();
        assert!(heap.regions.is_empty());
    }
}
