//! A partition in memory: its extents and blocks, and the choice of the next slot to give out.
//!
//! Invariants: F1 (a slot's generation rises each time it is given out again), F2 (an extent is of
//! one column and one kind), F3 (the slots of a block are given out in an order drawn at random,
//! and so are the blocks of an extent). Must not: do I/O, or know the log.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use strongroom_crypto::{CryptoError, fill_random};
use strongroom_format::columns::block::EXTENT_BLOCKS;
use strongroom_format::columns::fid::EXTENTS;
use strongroom_format::columns::manifest::{BlockEntry, EXTENT_RESERVE};
use strongroom_format::columns::redo::Relation;
use strongroom_format::columns::{Fid, Kind, Lineage};

use super::frame::Frame;
use super::marks::Marks;
use super::pools::SLOTS;
use super::seal::PartitionKey;
use super::slab::Slabs;

/// Blocks of an extent.
pub(super) const BLOCKS: usize = EXTENT_BLOCKS as usize;

/// A partition.
pub(super) struct Partition {
    pub(super) relation: Relation,
    pub(super) stamp: u64,
    pub(super) first_extent: u32,
    pub(super) next_extent: u32,
    /// Extents from here on may be used only after a checkpoint has reserved them.
    pub(super) reserved_to: u32,
    pub(super) key: PartitionKey,
    /// By number, less `first_extent`.
    pub(super) extents: Vec<Option<Box<Extent>>>,
    pub(super) slabs: Slabs,
    pub(super) open: BTreeMap<u16, Open>,
    pub(super) marks: Option<Marks>,
    /// The last sweep that went through all of it.
    pub(super) swept: u64,
    /// Whether a record with the partition's relation was inserted into the host's log since the
    /// host's shared memory was made and this process began, as the host says.
    pub(super) announced: bool,
    /// Whether a manifest has the partition's relation.
    pub(super) durable: bool,
    /// What `reserved_to` is when the manifest that is being published is durable. `None` if it
    /// does not have the partition's relation.
    pub(super) published_to: Option<u32>,
    /// By column, the key under which its values may leave the zone.
    pub(super) column_keys: BTreeMap<u16, ColumnKey>,
    /// By column, the lineage that a comparable column has by its name, as the host said last. Not
    /// kept over a restart.
    pub(super) by_name: BTreeMap<u16, Lineage>,
    /// Whether replay has added an extent since the store was opened.
    pub(super) replayed: bool,
}

/// The key that a column is bound to.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct ColumnKey {
    pub(super) id: [u8; 16],
    pub(super) lineage: Lineage,
}

/// 65536 slots of one column.
pub(super) struct Extent {
    pub(super) column: u16,
    pub(super) kind: Kind,
    /// Whether this incarnation opened it: only then are its slots given out again.
    pub(super) own: bool,
    pub(super) blocks: [Block; BLOCKS],
}

/// One block of an extent.
#[derive(Default)]
pub(super) struct Block {
    pub(super) frame: Option<Frame>,
    /// Used since the clock last passed.
    pub(super) touched: AtomicBool,
    /// Differs from the block on disk.
    pub(super) dirty: bool,
    /// Had values, all of which were freed.
    pub(super) gone: bool,
    /// Slots with a value.
    pub(super) live: u16,
    pub(super) disk: Option<BlockEntry>,
    /// Whether the last manifest, or one that may be the last, names the block's place on disk.
    pub(super) in_manifest: bool,
}

/// The slots for a column's next values.
pub(super) struct Open {
    pub(super) kind: Kind,
    pub(super) extent: u32,
    /// Blocks of the extent that were not used yet, the next one last.
    blocks: Vec<u8>,
    /// The block in use.
    pub(super) block: u8,
    /// Slots of the block in use that were never given out, the next one last.
    order: Vec<u16>,
    /// Slots that may be given out again.
    pub(super) reusable: Vec<u64>,
}

/// A slot for the next value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Chosen {
    pub(super) extent: u32,
    pub(super) index: u16,
}

/// Why no slot could be chosen.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The column is of another kind.
    Kind,
    /// A checkpoint has to reserve extents first.
    Reserve,
    /// No extent is left.
    Full,
    Random(CryptoError),
}

impl Extent {
    /// Makes an extent without values. `own`: it is new, and its slots are given out. Otherwise
    /// another start of the zone opened it: the caller fills in its values, and none of its slots
    /// is given out any more (F4).
    pub(super) fn new(column: u16, kind: Kind, own: bool) -> Box<Self> {
        Box::new(Self {
            column,
            kind,
            own,
            blocks: std::array::from_fn(|_| Block::default()),
        })
    }
}

impl Partition {
    /// A partition without extents, which begins with extent `first_extent`; `reserve` extents may
    /// be used before the next checkpoint.
    pub(super) fn new(
        relation: Relation,
        stamp: u64,
        first_extent: u32,
        reserve: u32,
        key: PartitionKey,
    ) -> Self {
        Self {
            relation,
            stamp,
            first_extent,
            next_extent: first_extent,
            reserved_to: first_extent.saturating_add(reserve).min(EXTENTS),
            key,
            extents: Vec::new(),
            slabs: Slabs::new(),
            open: BTreeMap::new(),
            marks: None,
            swept: 0,
            announced: false,
            durable: false,
            published_to: None,
            column_keys: BTreeMap::new(),
            by_name: BTreeMap::new(),
            replayed: false,
        }
    }

    /// The extent with this number. `None` if it was dropped or not made yet.
    #[inline]
    pub(super) fn extent(&self, extent: u32) -> Option<&Extent> {
        let at = extent.checked_sub(self.first_extent)?;
        self.extents.get(at as usize)?.as_deref()
    }

    /// Block `block`, modulo 64, of an extent, and the slabs that its slots refer to. `None` if
    /// there is no such extent.
    pub(super) fn block_mut(
        &mut self,
        extent: u32,
        block: usize,
    ) -> Option<(&mut Block, &mut Slabs)> {
        let at = extent.checked_sub(self.first_extent)?;
        let found = self.extents.get_mut(at as usize)?.as_deref_mut()?;
        Some((found.blocks.get_mut(block % BLOCKS)?, &mut self.slabs))
    }

    /// Puts an extent at this number, in place of any that is there, and moves `next_extent` beyond
    /// it. Returns false, and changes nothing, if the number is below `first_extent`, with which
    /// the partition begins.
    pub(super) fn insert(&mut self, number: u32, extent: Box<Extent>) -> bool {
        let Some(at) = number.checked_sub(self.first_extent) else {
            return false;
        };
        let at = at as usize;
        if self.extents.len() <= at {
            self.extents.resize_with(at + 1, || None);
        }
        self.extents[at] = Some(extent);
        self.next_extent = self.next_extent.max(number.saturating_add(1));
        true
    }

    /// Whether the column has an extent: it has, or had, values.
    pub(super) fn has_column(&self, column: u16) -> bool {
        let mut extents = self.extents.iter().flatten();
        extents.any(|extent| extent.column == column)
    }

    /// How many values are in it, garbage included, but for blocks that were not read yet and are
    /// not counted.
    pub(super) fn values(&self) -> u64 {
        let extents = self.extents.iter().flatten();
        let blocks = extents.flat_map(|extent| &extent.blocks);
        blocks.map(|block| u64::from(block.live)).sum()
    }

    /// Notes that a manifest which has the partition as it is now is being published.
    pub(super) fn begin_publication(&mut self, reserved_to: u32) {
        self.published_to = Some(reserved_to);
    }

    /// Notes that the manifest being published is durable, or with `durable` false, that it has
    /// failed.
    pub(super) fn end_publication(&mut self, durable: bool) {
        let reserved_to = self.published_to.take().filter(|_| durable);
        if let Some(reserved_to) = reserved_to {
            self.reserved_to = reserved_to;
            self.durable = true;
        }
    }

    /// Numbers of the extents that exist, in order.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        let first = self.first_extent;
        self.extents
            .iter()
            .zip(first..)
            .filter_map(|(extent, number)| extent.as_ref().map(|_| number))
    }

    /// Chooses the slot of the column's next value; [`Self::take_chosen`] takes it. Opens a new
    /// extent if the present one is full. `Refusal::Kind` if the column has values of another kind,
    /// `Refusal::Reserve` if a checkpoint is needed first, `Refusal::Full` if no extent is left.
    pub(super) fn choose(&mut self, column: u16, kind: Kind) -> Result<Chosen, Refusal> {
        if let Some(open) = self.open.get_mut(&column) {
            if open.kind != kind {
                return Err(Refusal::Kind);
            }
            if let Some(chosen) = open.next()? {
                return Ok(chosen);
            }
        }
        let extent = self.next_extent;
        if extent >= EXTENTS {
            return Err(Refusal::Full);
        }
        if extent >= self.reserved_to {
            return Err(Refusal::Reserve);
        }
        let reusable = self
            .open
            .remove(&column)
            .map(|open| open.reusable)
            .unwrap_or_default();
        let mut open = Open::new(extent, kind, reusable)?;
        let chosen = open.next()?.ok_or(Refusal::Full)?;
        self.insert(extent, Extent::new(column, kind, true));
        self.open.insert(column, open);
        Ok(chosen)
    }

    /// Whether half of the extents that the last manifest, or the one that is being published, has
    /// reserved are used.
    pub(super) fn is_reserve_low(&self) -> bool {
        let reserved_to = self.published_to.unwrap_or(self.reserved_to);
        reserved_to < EXTENTS && self.next_extent.saturating_add(EXTENT_RESERVE / 2) > reserved_to
    }

    /// Takes the slot that [`Self::choose`] has chosen for this column: the next call chooses
    /// another.
    pub(super) fn take_chosen(&mut self, column: u16) {
        if let Some(open) = self.open.get_mut(&column)
            && open.reusable.pop().is_none()
        {
            open.order.pop();
        }
    }
}

impl Open {
    /// The state of an extent that is being filled, with its blocks in random order. `reusable` are
    /// slots that became free. `Refusal::Random` if the random generator fails.
    fn new(extent: u32, kind: Kind, reusable: Vec<u64>) -> Result<Self, Refusal> {
        let blocks = shuffled(BLOCKS)?;
        let blocks = blocks
            .into_iter()
            .filter_map(|block| u8::try_from(block).ok());
        Ok(Self {
            kind,
            extent,
            blocks: blocks.collect(),
            block: 0,
            order: Vec::new(),
            reusable,
        })
    }

    /// The slot for the next value: one that became free, or the next in random order. `None` if
    /// the extent is full. The same slot until it is taken. `Refusal::Random` if the random
    /// generator fails.
    fn next(&mut self) -> Result<Option<Chosen>, Refusal> {
        if let Some(slot) = self.reusable.last() {
            let fid = Fid::from_bits(*slot);
            return Ok(fid.map(|fid| Chosen {
                extent: fid.extent(),
                index: fid.index(),
            }));
        }
        if self.order.is_empty() {
            let Some(block) = self.blocks.pop() else {
                return Ok(None);
            };
            self.block = block;
            self.order = shuffled(SLOTS)?;
        }
        let first = u16::from(self.block) * 1024;
        Ok(self.order.last().map(|slot| Chosen {
            extent: self.extent,
            index: first + slot,
        }))
    }
}

/// The numbers below `count`, which is at most 65536, in random order (Fisher and Yates).
/// `Refusal::Random` if the random generator fails.
fn shuffled(count: usize) -> Result<Vec<u16>, Refusal> {
    let mut drawn = vec![0; 4 * count];
    fill_random(&mut drawn).map_err(Refusal::Random)?;
    let mut order: Vec<u16> = (0..=u16::MAX).take(count).collect();
    let (draws, _) = drawn.as_chunks::<4>();
    for (at, draw) in (1..count).rev().zip(draws) {
        // 32 bits below 1025: the bias is below one in four million.
        let other = u64::from(u32::from_le_bytes(*draw)) % (at as u64 + 1);
        order.swap(at, usize::try_from(other).unwrap_or(at));
    }
    Ok(order)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_has_every_number_once_and_is_not_in_order() {
        let order = shuffled(1024).unwrap();
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert!(sorted.iter().copied().eq(0..1024));
        let rises = order.windows(2).filter(|pair| pair[0] < pair[1]).count();
        assert!((300..720).contains(&rises), "{rises}");
        assert_ne!(order, shuffled(1024).unwrap());
    }
}
