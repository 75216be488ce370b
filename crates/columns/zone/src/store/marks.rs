//! The marks of one partition: a bit for each slot, and how far the sweep by them is.
//!
//! Must not: know what a mark means for a value.

use std::collections::BTreeMap;

/// Words of an extent's marks: 64 slots each.
const WORDS: usize = 1024;

/// The marks that one sweep collects in one partition.
pub(super) struct Marks {
    /// The number of the sweep.
    pub(super) sweep: u64,
    /// The ring that collects them; 0 for none.
    pub(super) owner: u32,
    pub(super) cursor: Cursor,
    /// Extents from here on were opened after marking began: all their slots count as marked.
    pub(super) end: u32,
    extents: BTreeMap<u32, Box<[u64; WORDS]>>,
}

/// The next block that a sweep looks at.
#[derive(Clone, Copy)]
pub(super) struct Cursor {
    pub(super) extent: u32,
    pub(super) block: u8,
}

impl Marks {
    /// No marks yet. `sweep` is the number of the sweep that will use them, `owner` the ring that
    /// sets them; extents from `end` on count as marked.
    pub(super) const fn new(sweep: u64, owner: u32, end: u32) -> Self {
        Self {
            sweep,
            owner,
            cursor: Cursor {
                extent: 0,
                block: 0,
            },
            end,
            extents: BTreeMap::new(),
        }
    }

    /// Marks a slot.
    pub(super) fn set(&mut self, extent: u32, index: u16) {
        let words = self
            .extents
            .entry(extent)
            .or_insert_with(|| Box::new([0; WORDS]));
        words[usize::from(index >> 6)] |= 1 << (index & 63);
    }

    /// Whether a slot is marked, or its extent was opened after marking began, which counts as
    /// marked.
    pub(super) fn counts_as_marked(&self, extent: u32, index: u16) -> bool {
        let words = self.extents.get(&extent);
        extent >= self.end
            || words.is_some_and(|words| words[usize::from(index >> 6)] & 1 << (index & 63) != 0)
    }
}
