//! The image of a block: the form in which it is sealed (docs/spec/columns.md, "Blocks").
//!
//! Invariants: an image's length depends on states and lengths only, never on words; an image is
//! read whole or not at all. Must not: seal, or do I/O.

use strongroom_format::columns::Kind;
use strongroom_format::columns::block::{
    INLINE_MAX, VALUE_MAX, form, image_layout, state, word_width,
};

use super::frame::{Frame, Slot};
use super::memory::{Buffer, NoMemory};
use super::pools::{MemoryPools, SLOTS};
use super::slab::Slabs;

/// Bytes of the length of a value out of line.
const LENGTH: usize = 4;
/// The longest word.
const WORD: usize = 8;

/// Why an image cannot be read.
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

/// Appends the image of a block to `out`, in clear. `kind` is the kind of all values of the block's
/// extent. `NoMemory` if no memory is left.
pub(super) fn write(
    frame: &Frame,
    kind: Kind,
    slabs: &Slabs,
    out: &mut Buffer,
) -> Result<(), NoMemory> {
    let width = width_of(frame, kind);
    let one_generation = is_one(frame, |slot| slot.generation);
    let one_state = is_one(frame, |slot| slot.state);
    let mut form = 0;
    if one_generation {
        form |= form::ONE_GENERATION;
    }
    if one_state {
        form |= form::ONE_STATE;
    }
    out.extend(&[form, u8::try_from(width).unwrap_or(8)])?;
    append(frame, one_generation, |slot| slot.generation, out)?;
    append(frame, one_state, |slot| slot.state, out)?;
    for at in 0..SLOTS {
        let word = frame.word(at);
        match frame.slot(at).state {
            state::FREE | state::RETIRED => {}
            state::WORD => out.extend(word.get(..width).unwrap_or(&word))?,
            state::BYTES => {
                let len = u32::try_from(slabs.at(word).len()).map_err(|_| NoMemory)?;
                out.extend(&len.to_le_bytes())?;
            }
            inline => {
                let len = usize::from(inline.saturating_sub(state::INLINE));
                out.extend(word.get(..len).unwrap_or(&word))?;
            }
        }
    }
    for at in 0..SLOTS {
        if frame.slot(at).state == state::BYTES {
            out.extend(slabs.at(frame.word(at)))?;
        }
    }
    Ok(())
}

/// Bytes of each word in the block's image: the width of the kind, or 8 if a word does not fit.
fn width_of(frame: &Frame, kind: Kind) -> usize {
    let width = word_width(kind);
    let fits = |at: usize| {
        let word = frame.word(at);
        let kept = word.get(..width).unwrap_or(&word);
        frame.slot(at).state != state::WORD || widened(kept) == word
    };
    if (0..SLOTS).all(fits) { width } else { WORD }
}

/// Whether the byte that `of` selects is the same in all slots.
fn is_one(frame: &Frame, of: impl Fn(Slot) -> u8) -> bool {
    let first = of(frame.slot(0));
    (1..SLOTS).all(|at| of(frame.slot(at)) == first)
}

/// Appends the byte that `of` selects of every slot, or of the first one only if `one` is set.
/// `NoMemory` if no memory is left.
fn append(
    frame: &Frame,
    one: bool,
    of: impl Fn(Slot) -> u8,
    out: &mut Buffer,
) -> Result<(), NoMemory> {
    let mut each = [0; SLOTS];
    for (at, byte) in each.iter_mut().enumerate() {
        *byte = of(frame.slot(at));
    }
    out.extend(each.get(..if one { 1 } else { SLOTS }).unwrap_or(&each))
}

/// These bytes, little-endian, extended with their sign to 8 bytes; zero for no bytes.
fn widened(bytes: &[u8]) -> [u8; WORD] {
    let negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
    let mut word = [if negative { 0xff } else { 0 }; WORD];
    for (to, from) in word.iter_mut().zip(bytes) {
        *to = *from;
    }
    word
}

/// Makes a frame from an image, which was authenticated; long values go to `slabs`.
/// `ImageError::Malformed` if it is malformed nevertheless, which is a defect;
/// `ImageError::NoMemory`. After an error nothing remains in `slabs`.
pub(super) fn read(
    image: &[u8],
    slabs: &mut Slabs,
    pools: &MemoryPools,
) -> Result<Frame, ImageError> {
    let mut frame = Frame::new(pools)?;
    match fill(&mut frame, image, slabs, pools) {
        Ok(()) => Ok(frame),
        Err(error) => {
            frame.release(slabs);
            Err(error)
        }
    }
}

/// Fills an empty frame from an image. `ImageError::Malformed` if the image has an unknown form or
/// state, or is too short or too long; the frame is then filled in part.
fn fill(
    frame: &mut Frame,
    image: &[u8],
    slabs: &mut Slabs,
    pools: &MemoryPools,
) -> Result<(), ImageError> {
    let mut rest = image;
    let [form, width] = *take(&mut rest, image_layout::SIZE)? else {
        return Err(ImageError::Malformed);
    };
    let width = usize::from(width);
    let known = form & !(form::ONE_GENERATION | form::ONE_STATE) == 0;
    if !known || ![1, 4, WORD].contains(&width) {
        return Err(ImageError::Malformed);
    }
    let generations = each(&mut rest, form & form::ONE_GENERATION != 0)?;
    let states = each(&mut rest, form & form::ONE_STATE != 0)?;
    let slots = |at: usize| Slot {
        generation: of(generations, at),
        state: of(states, at),
    };
    let short: usize = (0..SLOTS)
        .map(|at| match slots(at).state {
            state::WORD => width,
            state::BYTES => LENGTH,
            state => usize::from(state.saturating_sub(state::INLINE)),
        })
        .sum();
    let mut words = take(&mut rest, short)?;
    for at in 0..SLOTS {
        let slot = slots(at);
        let word = match slot.state {
            state::FREE | state::RETIRED => [0; WORD],
            state::WORD => widened(take(&mut words, width)?),
            state::BYTES => {
                let len = widened(take(&mut words, LENGTH)?);
                let len = usize::try_from(u64::from_le_bytes(len)).unwrap_or(usize::MAX);
                if len <= INLINE_MAX || len > VALUE_MAX {
                    return Err(ImageError::Malformed);
                }
                slabs.put(take(&mut rest, len)?, &pools.spans, &pools.memory)?
            }
            state if (state::INLINE..=state::INLINE + 7).contains(&state) => {
                let mut word = [0; WORD];
                let bytes = take(&mut words, usize::from(state - state::INLINE))?;
                for (to, from) in word.iter_mut().zip(bytes) {
                    *to = *from;
                }
                word
            }
            _ => return Err(ImageError::Malformed),
        };
        frame.set(at, slot, word);
    }
    if rest.is_empty() {
        Ok(())
    } else {
        Err(ImageError::Malformed)
    }
}

/// Removes the first `len` bytes from `from` and returns them. `ImageError::Malformed` if it has
/// fewer.
fn take<'a>(from: &mut &'a [u8], len: usize) -> Result<&'a [u8], ImageError> {
    from.split_off(..len).ok_or(ImageError::Malformed)
}

/// Removes the bytes of the slots from `from`: a single one for all if `one` is set, otherwise one
/// for each. `ImageError::Malformed` if there are fewer.
fn each<'a>(from: &mut &'a [u8], one: bool) -> Result<&'a [u8], ImageError> {
    take(from, if one { 1 } else { SLOTS })
}

/// The byte of slot `at` in what [`each`] returned.
fn of(bytes: &[u8], at: usize) -> u8 {
    let one = bytes.first().copied().unwrap_or(0);
    bytes.get(at).copied().unwrap_or(one)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::memory::Memory;
    use strongroom_columns_values::Value;

    fn shown(value: Option<Value<'_>>) -> Option<Result<u64, Vec<u8>>> {
        value.map(|value| match value {
            Value::Word(word) => Ok(word),
            Value::Bytes(bytes) => Err(bytes.to_vec()),
        })
    }

    /// Writes an image, reads it back, compares, and gives the image.
    fn there_and_back(frame: &Frame, kind: Kind, slabs: &Slabs, pools: &MemoryPools) -> Vec<u8> {
        let mut image = Buffer::new(&pools.memory);
        write(frame, kind, slabs, &mut image).unwrap();
        let mut others = Slabs::new();
        let read = read(image.as_slice(), &mut others, pools).unwrap();
        assert_eq!(read.live(), frame.live());
        for at in 0..SLOTS {
            assert!(read.slot(at) == frame.slot(at));
            assert_eq!(
                shown(read.value(at, &others)),
                shown(frame.value(at, slabs))
            );
        }
        read.release(&mut others);
        assert_eq!(others.used(), 0);
        image.as_slice().to_vec()
    }

    #[test]
    fn an_image_comes_back_and_a_changed_one_is_refused_or_another() {
        let pools = MemoryPools::new(&Memory::new(false));
        let mut slabs = Slabs::new();
        let mut frame = Frame::new(&pools).unwrap();
        let long = vec![5; 3000];
        for at in 0..900 {
            let text = "x".repeat(at % 30);
            let value = match at % 4 {
                0 => Value::Word(at as u64),
                1 => Value::Bytes(text.as_bytes()),
                2 => Value::Bytes(&long[..at]),
                _ => continue,
            };
            frame.put(at, 3, value, &mut slabs, &pools).unwrap();
        }
        for at in (0..900).step_by(12) {
            assert!(frame.free(at, &mut slabs));
        }
        let image = there_and_back(&frame, Kind::Text, &slabs, &pools);
        let mut others = Slabs::new();
        let cuts = (0..8)
            .chain((8..image.len()).step_by(991))
            .chain([image.len() - 1]);
        for cut in cuts {
            let error = read(&image[..cut], &mut others, &pools).err();
            assert_eq!(error, Some(ImageError::Malformed), "{cut}");
            assert_eq!(others.used(), 0);
        }
        let states = image_layout::SIZE + SLOTS;
        for (at, byte) in [(0, 4), (1, 0), (1, 2), (1, 9), (states, 4), (states, 16)] {
            let mut bad = image.clone();
            bad[at] = byte;
            assert!(read(&bad, &mut others, &pools).is_err(), "{at} {byte}");
            assert_eq!(others.used(), 0);
        }
        let more = [&image[..], &[0]].concat();
        assert!(read(&more, &mut others, &pools).is_err());
    }

    #[test]
    fn words_have_the_width_of_their_kind_whatever_they_are() {
        let pools = MemoryPools::new(&Memory::new(false));
        let mut slabs = Slabs::new();
        let mut lengths = Vec::new();
        for (kind, values) in [
            (Kind::Date, [0, 1, -1]),
            (Kind::Int4, [i64::from(i32::MIN), i64::from(i32::MAX), -7]),
            (Kind::Bool, [0, 1, 1]),
            (Kind::Int8, [i64::MIN, i64::MAX, 0]),
            (Kind::Int8, [0, 0, 0]),
            // No such date, but nothing may be lost.
            (Kind::Date, [1 << 40, 0, 0]),
        ] {
            let mut frame = Frame::new(&pools).unwrap();
            for at in 0..SLOTS {
                let value = Value::Word(values[at % 3].cast_unsigned());
                frame.put(at, 0, value, &mut slabs, &pools).unwrap();
            }
            lengths.push(there_and_back(&frame, kind, &slabs, &pools).len());
        }
        let of = |width: usize| image_layout::SIZE + 2 + width * SLOTS;
        assert_eq!(lengths, [of(4), of(4), of(1), of(8), of(8), of(8)]);
    }
}
