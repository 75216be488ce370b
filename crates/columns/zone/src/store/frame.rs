//! A block in memory: 1024 words, and generation and state of each slot.
//!
//! Invariants: a slot that is free or retired has a zero word; a slot in state `BYTES` has a
//! reference into its partition's slabs in the word. Must not: know the block's place or form on
//! disk.

use strongroom_columns_values::Value;
use strongroom_format::columns::block::{INLINE_MAX, state};

use super::memory::{NoMemory, Piece};
use super::pools::{FRAME, MemoryPools, SLOTS};
use super::slab::Slabs;

/// Where generations and states begin.
const STATES: usize = SLOTS * 8;

/// A block in memory.
pub(super) struct Frame(Piece<[u8; FRAME]>);

/// Generation and state of a slot.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) generation: u8,
    pub(super) state: u8,
}

impl Slot {
    /// Whether a value is in it.
    pub(super) const fn is_live(self) -> bool {
        self.state != state::FREE && self.state != state::RETIRED
    }
}

impl Frame {
    /// A block of free slots of generation 0, all zeros. `NoMemory` if no memory is left.
    pub(super) fn new(pools: &MemoryPools) -> Result<Self, NoMemory> {
        pools.frames.take().map(Self).ok_or(NoMemory)
    }

    /// Generation and state of slot `at`, modulo 1024.
    pub(super) fn slot(&self, at: usize) -> Slot {
        let at = STATES + 2 * (at % SLOTS);
        Slot {
            generation: self.0[at],
            state: self.0[at + 1],
        }
    }

    /// The 8 bytes of slot `at`, modulo 1024.
    pub(super) fn word(&self, at: usize) -> [u8; 8] {
        let at = 8 * (at % SLOTS);
        let mut word = [0; 8];
        word.copy_from_slice(&self.0[at..at + 8]);
        word
    }

    /// The value in slot `at`; `None` when there is none.
    #[inline]
    pub(super) fn value<'a>(&'a self, at: usize, slabs: &'a Slabs) -> Option<Value<'a>> {
        match self.slot(at).state {
            state::WORD => Some(Value::Word(u64::from_le_bytes(self.word(at)))),
            state::BYTES => Some(Value::Bytes(slabs.at(self.word(at)))),
            state::FREE | state::RETIRED => None,
            inline => {
                let from = 8 * (at % SLOTS);
                let len = usize::from(inline.saturating_sub(state::INLINE)).min(INLINE_MAX);
                Some(Value::Bytes(&self.0[from..from + len]))
            }
        }
    }

    /// Stores a value in slot `at`, which has to be free: bytes up to 7 in the slot, longer ones in
    /// `slabs`. `NoMemory`, and the slot stays free, if no memory is left.
    pub(super) fn put(
        &mut self,
        at: usize,
        generation: u8,
        value: Value<'_>,
        slabs: &mut Slabs,
        pools: &MemoryPools,
    ) -> Result<(), NoMemory> {
        let (state, word) = match value {
            Value::Word(word) => (state::WORD, word.to_le_bytes()),
            Value::Bytes(bytes) if bytes.len() <= INLINE_MAX => {
                let mut word = [0; 8];
                word[..bytes.len()].copy_from_slice(bytes);
                let len = u8::try_from(bytes.len()).map_err(|_| NoMemory)?;
                (state::INLINE + len, word)
            }
            Value::Bytes(bytes) => (state::BYTES, slabs.put(bytes, &pools.spans, &pools.memory)?),
        };
        self.set(at, Slot { generation, state }, word);
        Ok(())
    }

    /// Frees slot `at` and its bytes in `slabs`: its next value gets the next generation. False,
    /// and the slot is retired for good, if it was the last generation.
    pub(super) fn free(&mut self, at: usize, slabs: &mut Slabs) -> bool {
        let slot = self.slot(at);
        if slot.state == state::BYTES {
            slabs.free(self.word(at));
        }
        let next = slot.generation.checked_add(1);
        let state = if next.is_some() {
            state::FREE
        } else {
            state::RETIRED
        };
        let generation = next.unwrap_or(slot.generation);
        self.set(at, Slot { generation, state }, [0; 8]);
        next.is_some()
    }

    /// Frees slot `at` and its bytes in `slabs`, and keeps its generation: a log has a value for
    /// it.
    pub(super) fn clear(&mut self, at: usize, slabs: &mut Slabs) {
        let generation = self.slot(at).generation;
        if self.slot(at).state == state::BYTES {
            slabs.free(self.word(at));
        }
        self.set(
            at,
            Slot {
                generation,
                state: state::FREE,
            },
            [0; 8],
        );
    }

    /// Frees the bytes that the slots have in `slabs`, and drops the frame, which is wiped.
    pub(super) fn release(self, slabs: &mut Slabs) {
        for at in 0..SLOTS {
            if self.slot(at).state == state::BYTES {
                slabs.free(self.word(at));
            }
        }
    }

    /// How many slots have a value.
    pub(super) fn live(&self) -> u16 {
        let live = (0..SLOTS).filter(|at| self.slot(*at).is_live()).count();
        u16::try_from(live).unwrap_or(u16::MAX)
    }

    /// Overwrites slot `at`, modulo 1024, with this state, generation and word. Frees nothing.
    pub(super) fn set(&mut self, at: usize, slot: Slot, word: [u8; 8]) {
        let at = at % SLOTS;
        self.0[8 * at..8 * at + 8].copy_from_slice(&word);
        self.0[STATES + 2 * at] = slot.generation;
        self.0[STATES + 2 * at + 1] = slot.state;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::memory::Memory;

    #[test]
    fn the_last_generation_retires_the_slot() {
        let pools = MemoryPools::new(&Memory::new(false));
        let mut slabs = Slabs::new();
        let mut frame = Frame::new(&pools).unwrap();
        for generation in 0..=255 {
            assert_eq!(frame.slot(5).generation, generation);
            frame
                .put(5, generation, Value::Word(1), &mut slabs, &pools)
                .unwrap();
            assert_eq!(frame.free(5, &mut slabs), generation != 255);
        }
        assert!(frame.slot(5).state == state::RETIRED);
    }
}
