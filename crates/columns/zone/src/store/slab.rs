//! Byte strings that do not fit a slot: slabs by size class, one set per partition.
//!
//! Invariants: a reference is 8 bytes (class, length, item) and is kept in the slot's word; freed
//! items are wiped at once; a slab without items in use goes back to the pool. Must not: know which
//! slot a value belongs to.

use std::sync::Arc;

use super::memory::{Memory, NoMemory, Piece, Pool, Region, wipe};

/// Bytes of a slab.
pub(super) const SPAN: usize = 65_536;
/// A slab's bytes.
pub(super) type Span = [u8; SPAN];

/// Bytes of an item, by class.
const SIZES: [usize; 21] = [
    16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192,
    12_288, 16_384, 32_768,
];
/// The class of a byte string that has a region of its own.
const LARGE: u8 = 255;

/// The byte strings of one partition.
pub(super) struct Slabs {
    classes: [Class; SIZES.len()],
    large: Vec<Option<Region>>,
    /// Indexes of `large` that are empty.
    vacant: Vec<u32>,
    /// Sizes of all items in use, in bytes: those of their classes, not of the values.
    used: u64,
}

#[derive(Default)]
struct Class {
    slabs: Vec<Option<Slab>>,
    /// Slabs with a free item, and perhaps some without.
    open: Vec<usize>,
    /// Indexes of `slabs` that are empty.
    vacant: Vec<usize>,
}

struct Slab {
    bytes: Piece<Span>,
    free: Vec<u16>,
}

/// A reference, taken apart.
#[derive(Clone, Copy)]
struct Reference {
    class: u8,
    len: usize,
    item: u32,
}

impl Reference {
    /// The reference that the word of a slot encodes.
    fn of(word: [u8; 8]) -> Self {
        let [class, a, b, c, rest @ ..] = word;
        let len = u32::from_le_bytes([a, b, c, 0]) as usize;
        let item = u32::from_le_bytes(rest);
        Self { class, len, item }
    }

    /// The reference as the word of a slot. `None` if the value is 16 MiB long or longer.
    fn word(self) -> Option<[u8; 8]> {
        let [a, b, c, top] = u32::try_from(self.len).ok()?.to_le_bytes();
        let [d, e, f, g] = self.item.to_le_bytes();
        (top == 0).then_some([self.class, a, b, c, d, e, f, g])
    }
}

impl Slabs {
    /// No byte strings.
    pub(super) fn new() -> Self {
        Self {
            classes: std::array::from_fn(|_| Class::default()),
            large: Vec::new(),
            vacant: Vec::new(),
            used: 0,
        }
    }

    /// Bytes that all items in use take: the sizes of their classes, not of the values.
    pub(super) fn used(&self) -> u64 {
        self.used
    }

    /// Stores a copy of `bytes`; returns the word that refers to them. `NoMemory` also for 16 MiB
    /// or more.
    pub(super) fn put(
        &mut self,
        bytes: &[u8],
        pool: &Pool<Span>,
        memory: &Arc<Memory>,
    ) -> Result<[u8; 8], NoMemory> {
        let class = SIZES.partition_point(|size| *size < bytes.len());
        let len = bytes.len();
        let reference = match self.classes.get_mut(class) {
            Some(slabs) => {
                let item = slabs.put(bytes, SIZES[class], pool)?;
                let class = u8::try_from(class).map_err(|_| NoMemory)?;
                Reference { class, len, item }
            }
            None => {
                let item = self.put_large(bytes, memory)?;
                Reference {
                    class: LARGE,
                    len,
                    item,
                }
            }
        };
        let word = reference.word().ok_or(NoMemory)?;
        self.used += room(reference);
        Ok(word)
    }

    /// The bytes that `word`, from [`Self::put`], refers to. Panics if they were freed.
    pub(super) fn at(&self, word: [u8; 8]) -> &[u8] {
        let reference = Reference::of(word);
        let found = match self.classes.get(usize::from(reference.class)) {
            Some(class) => class.at(reference, SIZES[usize::from(reference.class)]),
            None => self.large_at(reference),
        };
        assert!(found.is_some(), "a reference to a freed item");
        found.unwrap_or_default()
    }

    /// Wipes and frees what `word` refers to.
    pub(super) fn free(&mut self, word: [u8; 8]) {
        let reference = Reference::of(word);
        self.used = self.used.saturating_sub(room(reference));
        match self.classes.get_mut(usize::from(reference.class)) {
            Some(class) => class.free(reference, SIZES[usize::from(reference.class)]),
            None => {
                if let Some(place) = self.large.get_mut(reference.item as usize) {
                    *place = None;
                    self.vacant.push(reference.item);
                }
            }
        }
    }

    /// Stores a copy of a value in a region of its own. Returns its number. `NoMemory` if no memory
    /// is left.
    fn put_large(&mut self, bytes: &[u8], memory: &Arc<Memory>) -> Result<u32, NoMemory> {
        let mut region = Region::new(bytes.len(), memory).ok_or(NoMemory)?;
        let to = region
            .as_mut_slice()
            .get_mut(..bytes.len())
            .ok_or(NoMemory)?;
        to.copy_from_slice(bytes);
        if let Some(item) = self.vacant.pop() {
            self.large[item as usize] = Some(region);
            return Ok(item);
        }
        let item = u32::try_from(self.large.len()).map_err(|_| NoMemory)?;
        self.large.push(Some(region));
        Ok(item)
    }

    /// The bytes of a reference to a region of its own. `None` if they were freed.
    fn large_at(&self, reference: Reference) -> Option<&[u8]> {
        let region = self.large.get(reference.item as usize)?.as_ref()?;
        region.as_slice().get(..reference.len)
    }
}

/// The bytes of memory that a value takes: the size of its class, or whole pages for a region of
/// its own.
fn room(reference: Reference) -> u64 {
    let class = SIZES.get(usize::from(reference.class));
    let room = class
        .copied()
        .unwrap_or_else(|| reference.len.next_multiple_of(4096));
    room as u64
}

impl Class {
    /// Stores a copy of a value in a slab with items of `size` bytes. Returns its number in the
    /// class. `NoMemory` if no memory is left.
    fn put(&mut self, bytes: &[u8], size: usize, pool: &Pool<Span>) -> Result<u32, NoMemory> {
        let at = self.slab_with_space(size, pool)?;
        let slab = self
            .slabs
            .get_mut(at)
            .and_then(Option::as_mut)
            .ok_or(NoMemory)?;
        let item = usize::from(slab.free.pop().ok_or(NoMemory)?);
        if slab.free.is_empty() {
            self.open.pop();
        }
        let start = item * size;
        slab.bytes[start..start + bytes.len()].copy_from_slice(bytes);
        u32::try_from(at * (SPAN / size) + item).map_err(|_| NoMemory)
    }

    /// The index of a slab with a free item; takes a new one from the pool if there is none.
    /// `NoMemory` if no memory is left.
    fn slab_with_space(&mut self, size: usize, pool: &Pool<Span>) -> Result<usize, NoMemory> {
        if let Some(at) = self.open.last() {
            return Ok(*at);
        }
        let items = u16::try_from(SPAN / size).map_err(|_| NoMemory)?;
        let slab = Slab {
            bytes: pool.take().ok_or(NoMemory)?,
            free: (0..items).rev().collect(),
        };
        let at = self.vacant.pop().unwrap_or(self.slabs.len());
        match self.slabs.get_mut(at) {
            Some(place) => *place = Some(slab),
            None => self.slabs.push(Some(slab)),
        }
        self.open.push(at);
        Ok(at)
    }

    /// The bytes that a reference of this class refers to. `None` if their slab is gone.
    fn at(&self, reference: Reference, size: usize) -> Option<&[u8]> {
        let per_slab = SPAN / size;
        let item = reference.item as usize;
        let slab = self.slabs.get(item / per_slab)?.as_ref()?;
        let start = (item % per_slab) * size;
        slab.bytes.get(start..start + reference.len)
    }

    /// Wipes an item and makes it free. A slab without items in use goes back to the pool.
    fn free(&mut self, reference: Reference, size: usize) {
        let per_slab = SPAN / size;
        let item = reference.item as usize;
        let at = item / per_slab;
        let Some(Some(slab)) = self.slabs.get_mut(at) else {
            return;
        };
        let start = (item % per_slab) * size;
        wipe(&mut slab.bytes[start..start + size]);
        let Ok(index) = u16::try_from(item % per_slab) else {
            return;
        };
        slab.free.push(index);
        match slab.free.len() {
            free if free == per_slab => {
                self.open.retain(|open| *open != at);
                self.slabs[at] = None;
                self.vacant.push(at);
            }
            1 => self.open.push(at),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_comes_back_and_room_is_reused() {
        let memory = Memory::new(false);
        let pool = Pool::new(&memory);
        let mut slabs = Slabs::new();
        let lengths = [
            8, 16, 17, 100, 1024, 1025, 20_000, 32_768, 32_769, 70_000, 1_048_576,
        ];
        for round in 0..3_u8 {
            let bytes: Vec<Vec<u8>> = lengths.iter().map(|len| vec![round + 1; *len]).collect();
            let mut words = Vec::new();
            for value in &bytes {
                for _ in 0..5 {
                    words.push((slabs.put(value, &pool, &memory).unwrap(), value));
                }
            }
            for (word, value) in &words {
                assert_eq!(slabs.at(*word), value.as_slice());
            }
            for (word, _) in words {
                slabs.free(word);
            }
            assert_eq!(slabs.used(), 0);
            // One empty chunk of the pool stays.
            assert_eq!(memory.mapped(), 1 << 20);
        }
    }

    #[test]
    fn a_freed_item_does_not_disturb_its_neighbours() {
        let memory = Memory::new(false);
        let pool = Pool::new(&memory);
        let mut slabs = Slabs::new();
        let words: Vec<_> = (0..10_000_u32)
            .map(|n| {
                slabs
                    .put(format!("value {n:0100}").as_bytes(), &pool, &memory)
                    .unwrap()
            })
            .collect();
        for word in words.iter().step_by(3) {
            slabs.free(*word);
        }
        for (n, word) in words.iter().enumerate().filter(|(n, _)| n % 3 != 0) {
            assert_eq!(slabs.at(*word), format!("value {n:0100}").as_bytes());
        }
    }

    #[test]
    #[should_panic(expected = "freed item")]
    fn what_was_freed_is_not_read_as_something_else() {
        let memory = Memory::new(false);
        let pool = Pool::new(&memory);
        let mut slabs = Slabs::new();
        let word = slabs.put(b"only one in its slab", &pool, &memory).unwrap();
        slabs.free(word);
        slabs.at(word);
    }
}
