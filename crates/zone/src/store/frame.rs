//! A block in memory: 1024 words, and generation and state of each slot.
//!
//! Invariants: a slot that is free or retired has a zero word; a slot in state `BYTES` has a reference into its partition's slabs in
//! the word. Must not: know where the block is on disk.

use strongroom_format::columns::block::{BLOCK_SLOTS, INLINE_MAX, VALUE_MAX, state};
use strongroom_values::Value;

use super::memory::{Buffer, NoMemory, Piece};
use super::slab::Slabs;
use super::space::Space;

/// Slots of a block.
pub(super) const SLOTS: usize = BLOCK_SLOTS as usize;
/// Bytes of a block in memory.
pub(super) const FRAME: usize = SLOTS * 10;

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

/// Why an image is not one.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ImageError {
    NoMemory,
    Malformed,
}

impl From<NoMemory> for ImageError {
    fn from(_: NoMemory) -> Self {
        Self::NoMemory
    }
}

impl Frame {
    /// A block of free slots of generation 0.
    pub(super) fn new(space: &Space) -> Result<Self, NoMemory> {
        space.frames.take().map(Self).ok_or(NoMemory)
    }

    /// Slot `at`, modulo 1024.
    pub(super) fn slot(&self, at: usize) -> Slot {
        let at = STATES + 2 * (at % SLOTS);
        Slot {
            generation: self.0[at],
            state: self.0[at + 1],
        }
    }

    fn word(&self, at: usize) -> [u8; 8] {
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

    /// Puts a value into slot `at`, which is free.
    pub(super) fn put(
        &mut self,
        at: usize,
        generation: u8,
        value: Value<'_>,
        slabs: &mut Slabs,
        space: &Space,
    ) -> Result<(), NoMemory> {
        let (state, word) = match value {
            Value::Word(word) => (state::WORD, word.to_le_bytes()),
            Value::Bytes(bytes) if bytes.len() <= INLINE_MAX => {
                let mut word = [0; 8];
                word[..bytes.len()].copy_from_slice(bytes);
                let len = u8::try_from(bytes.len()).map_err(|_| NoMemory)?;
                (state::INLINE + len, word)
            }
            Value::Bytes(bytes) => (state::BYTES, slabs.put(bytes, &space.spans, &space.memory)?),
        };
        self.set(at, Slot { generation, state }, word);
        Ok(())
    }

    /// Frees slot `at`: the next value has the next generation, or there is none. Gives whether the slot can be used again.
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

    /// Frees slot `at` for a value of just this generation, which a log brings.
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

    /// Frees what the slots keep in `slabs`; the frame is dropped with that.
    pub(super) fn give_up(self, slabs: &mut Slabs) {
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

    fn set(&mut self, at: usize, slot: Slot, word: [u8; 8]) {
        let at = at % SLOTS;
        self.0[8 * at..8 * at + 8].copy_from_slice(&word);
        self.0[STATES + 2 * at] = slot.generation;
        self.0[STATES + 2 * at + 1] = slot.state;
    }

    /// Appends the image: docs/spec/columns.md, "Blocks".
    pub(super) fn write_image(&self, slabs: &Slabs, out: &mut Buffer) -> Result<(), NoMemory> {
        out.extend(&self.0[STATES..])?;
        for at in 0..SLOTS {
            match self.slot(at).state {
                state::FREE | state::RETIRED => {}
                state::BYTES => {
                    out.extend(&(slabs.at(self.word(at)).len() as u64).to_le_bytes())?;
                }
                _ => out.extend(&self.word(at))?,
            }
        }
        for at in 0..SLOTS {
            if self.slot(at).state == state::BYTES {
                out.extend(slabs.at(self.word(at)))?;
            }
        }
        Ok(())
    }

    /// Reads an image, which was authentic: what is malformed nevertheless is a defect, and refused.
    pub(super) fn of_image(
        image: &[u8],
        slabs: &mut Slabs,
        space: &Space,
    ) -> Result<Self, ImageError> {
        let mut frame = Self::new(space)?;
        match frame.read_image(image, slabs, space) {
            Ok(()) => Ok(frame),
            Err(error) => {
                frame.give_up(slabs);
                Err(error)
            }
        }
    }

    fn read_image(
        &mut self,
        image: &[u8],
        slabs: &mut Slabs,
        space: &Space,
    ) -> Result<(), ImageError> {
        let bad = ImageError::Malformed;
        let Some((states, rest)) = image.split_at_checked(2 * SLOTS) else {
            return Err(bad);
        };
        let (states, _) = states.as_chunks::<2>();
        let live = |state: u8| state != state::FREE && state != state::RETIRED;
        let words = states.iter().filter(|[_, state]| live(*state)).count();
        let Some((words, mut bytes)) = rest.split_at_checked(8 * words) else {
            return Err(bad);
        };
        let mut words = words.as_chunks::<8>().0.iter();
        for (at, [generation, state]) in states.iter().enumerate() {
            let slot = Slot {
                generation: *generation,
                state: *state,
            };
            match *state {
                state::FREE | state::RETIRED => self.set(at, slot, [0; 8]),
                state::BYTES => {
                    let len = u64::from_le_bytes(*words.next().ok_or(ImageError::Malformed)?);
                    let len = usize::try_from(len).map_err(|_| ImageError::Malformed)?;
                    let fits = len > INLINE_MAX && len <= VALUE_MAX;
                    let (value, tail) = bytes
                        .split_at_checked(len)
                        .filter(|_| fits)
                        .ok_or(ImageError::Malformed)?;
                    let word = slabs.put(value, &space.spans, &space.memory)?;
                    self.set(at, slot, word);
                    bytes = tail;
                }
                state::WORD => self.set(at, slot, *words.next().ok_or(ImageError::Malformed)?),
                state if (state::INLINE..=state::INLINE + 7).contains(&state) => {
                    let word = *words.next().ok_or(ImageError::Malformed)?;
                    let len = usize::from(state - state::INLINE);
                    if word[len..].iter().any(|byte| *byte != 0) {
                        return Err(bad);
                    }
                    self.set(at, slot, word);
                }
                _ => return Err(bad),
            }
        }
        if bytes.is_empty() { Ok(()) } else { Err(bad) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::memory::Memory;

    fn shown(value: Option<Value<'_>>) -> Option<Result<u64, Vec<u8>>> {
        value.map(|value| match value {
            Value::Word(word) => Ok(word),
            Value::Bytes(bytes) => Err(bytes.to_vec()),
        })
    }

    #[test]
    fn an_image_comes_back_and_a_changed_one_is_refused_or_another() {
        let space = Space::new(&Memory::new(false));
        let mut slabs = Slabs::new();
        let mut frame = Frame::new(&space).unwrap();
        let long = vec![5; 3000];
        for at in 0..900 {
            let text = "x".repeat(at % 30);
            let value = match at % 4 {
                0 => Value::Word(at as u64),
                1 => Value::Bytes(text.as_bytes()),
                2 => Value::Bytes(&long[..at]),
                _ => continue,
            };
            frame.put(at, 3, value, &mut slabs, &space).unwrap();
        }
        for at in (0..900).step_by(12) {
            assert!(frame.free(at, &mut slabs));
        }
        let mut image = Buffer::new(&space.memory);
        frame.write_image(&slabs, &mut image).unwrap();
        let mut others = Slabs::new();
        let read = Frame::of_image(image.as_slice(), &mut others, &space).unwrap();
        assert_eq!(read.live(), frame.live());
        for at in 0..SLOTS {
            assert!(read.slot(at) == frame.slot(at));
            assert_eq!(
                shown(read.value(at, &others)),
                shown(frame.value(at, &slabs))
            );
        }
        read.give_up(&mut others);
        assert_eq!(others.used(), 0);
        for cut in [0, 1, 2047, 2048, 2060, image.len() - 1] {
            let error = Frame::of_image(&image.as_slice()[..cut], &mut others, &space).err();
            assert_eq!(error, Some(ImageError::Malformed), "{cut}");
            assert_eq!(others.used(), 0);
        }
        for (at, byte) in [(1, 4), (1, 7), (1, 16), (7, 1)] {
            let mut bad = image.as_slice().to_vec();
            bad[at] = byte;
            assert!(
                Frame::of_image(&bad, &mut others, &space).is_err(),
                "{at} {byte}"
            );
            assert_eq!(others.used(), 0);
        }
    }

    #[test]
    fn the_last_generation_retires_the_slot() {
        let space = Space::new(&Memory::new(false));
        let mut slabs = Slabs::new();
        let mut frame = Frame::new(&space).unwrap();
        for generation in 0..=255 {
            assert_eq!(frame.slot(5).generation, generation);
            frame
                .put(5, generation, Value::Word(1), &mut slabs, &space)
                .unwrap();
            assert_eq!(frame.free(5, &mut slabs), generation != 255);
        }
        assert!(frame.slot(5).state == state::RETIRED);
    }
}
