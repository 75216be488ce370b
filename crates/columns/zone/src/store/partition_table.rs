//! The partitions of a store: found by number, and by the relation that they belong to.
//!
//! Invariants: a number is found in the explicit map, never computed; a number that was dropped is
//! given out again only with extents that were never used under it, and only when the record of the
//! drop is in the host's log; a change of a partition has a stamp, so that an older change found in
//! a log does nothing. Must not: know more of a relation than its three numbers.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use strongroom_format::columns::fid::{EXTENTS, PARTITIONS};
use strongroom_format::columns::manifest::{EXTENT_RESERVE, PartitionEntry, RESTORE_STRIDE};
use strongroom_format::columns::redo::{PartitionChange, Relation};

use super::block_address::BlockAddress;
use super::partition::{Block, Extent, Partition};
use super::seal::PartitionKey;

/// A number whose partition was dropped.
#[derive(Clone, Copy)]
pub(super) struct Dropped {
    /// The first extent that was never used.
    pub(super) next_extent: u32,
    /// Stamp of the drop.
    pub(super) stamp: u64,
    /// Whether the record of the drop is in the host's log.
    pub(super) logged: bool,
}

impl Dropped {
    /// The manifest's entry for the dropped partition `number`. `floor` is the least extent of new
    /// partitions.
    pub(super) fn entry(&self, number: u16, floor: u32) -> PartitionEntry {
        PartitionEntry {
            partition: number,
            relation: None,
            first_extent: self.next_extent,
            // The number may be in use again, and lost, before the next manifest.
            reserved_to: reserve_after(self.next_extent.max(floor)),
            extents: 0,
            stamp: self.stamp,
            key: [0; 32],
            column_keys: 0,
        }
    }
}

/// The first extent that is not reserved if `next` is the next one to be used.
pub(super) fn reserve_after(next: u32) -> u32 {
    next.saturating_add(EXTENT_RESERVE).min(EXTENTS)
}

/// The partitions of a store.
pub(super) struct PartitionTable {
    /// A vector, because every access to a value goes through it.
    by_number: Vec<Option<Box<Partition>>>,
    by_relation: BTreeMap<Relation, u16>,
    /// Relations whose partition was given to another one, as long as that may be undone.
    moved: BTreeMap<Relation, u16>,
    pub(super) dropped: BTreeMap<u16, Dropped>,
    /// Partitions made by this process.
    made: u64,
    /// Stamp of the last change of a partition.
    pub(super) stamp: u64,
    /// New partitions begin with this extent or a later one.
    pub(super) floor: u32,
}

impl PartitionTable {
    /// A table without partitions.
    pub(super) fn new() -> Self {
        let count = usize::try_from(PARTITIONS).unwrap_or_default();
        let mut by_number = Vec::new();
        by_number.resize_with(count, || None);
        Self {
            by_number,
            by_relation: BTreeMap::new(),
            moved: BTreeMap::new(),
            dropped: BTreeMap::new(),
            made: 0,
            stamp: 0,
            floor: 0,
        }
    }

    /// The partition of this number. `None` if there is none, or it was dropped.
    #[inline]
    pub(super) fn get(&self, number: u16) -> Option<&Partition> {
        self.by_number.get(usize::from(number))?.as_deref()
    }

    /// The partition of this number, to be changed. `None` if there is none, or it was dropped.
    pub(super) fn get_mut(&mut self, number: u16) -> Option<&mut Partition> {
        self.by_number.get_mut(usize::from(number))?.as_deref_mut()
    }

    /// An extent of a partition. `None` if either does not exist.
    pub(super) fn extent(&self, number: u16, extent: u32) -> Option<&Extent> {
        self.get(number)?.extent(extent)
    }

    /// The block at this address. `None` if its partition or extent does not exist.
    pub(super) fn block(&self, address: BlockAddress) -> Option<&Block> {
        let extent = self.extent(address.partition, address.extent)?;
        extent.blocks.get(address.index())
    }

    /// The block at this address, to be changed. `None` if its partition or extent does not exist.
    pub(super) fn block_mut(&mut self, address: BlockAddress) -> Option<&mut Block> {
        let partition = self.get_mut(address.partition)?;
        partition
            .block_mut(address.extent, address.index())
            .map(|(block, _)| block)
    }

    /// The number of the partition of a relation. `None` if it has none.
    pub(super) fn of(&self, relation: Relation) -> Option<u16> {
        self.by_relation.get(&relation).copied()
    }

    /// The partition that a relation had before it was given to another one, if that is not known
    /// to hold. `None` if there is none.
    pub(super) fn moved_from(&self, relation: Relation) -> Option<u16> {
        self.moved.get(&relation).copied()
    }

    /// The relations whose partition was given to another one, and its number, in order.
    pub(super) fn moved(&self) -> impl ExactSizeIterator<Item = (Relation, u16)> + '_ {
        self.moved
            .iter()
            .map(|(relation, number)| (*relation, *number))
    }

    /// Notes that the partition of this number belongs to its relation for good: those that had it
    /// before are gone.
    pub(super) fn settle_moves(&mut self, number: u16) {
        if !self.moved.is_empty() {
            self.moved.retain(|_, of| *of != number);
        }
    }

    /// Adds a relation whose partition has moved, as a manifest says. `None` if there is no such
    /// partition, or the relation has one.
    pub(super) fn load_moved(&mut self, relation: Relation, number: u16) -> Option<()> {
        let sound = self.get(number).is_some() && self.of(relation).is_none();
        let is_new = sound && self.moved.insert(relation, number).is_none();
        is_new.then_some(())
    }

    /// The number of relations that have a partition.
    pub(super) fn len(&self) -> usize {
        self.by_relation.len()
    }

    /// How many partitions this process has made, those of replay included, but not those of the
    /// manifest.
    pub(super) const fn made(&self) -> u64 {
        self.made
    }

    /// The partitions in use, in order of number.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u16, &Partition)> {
        let numbers = 0..=u16::MAX;
        let with_numbers = self.by_number.iter().zip(numbers);
        with_numbers.filter_map(|(partition, number)| Some((number, partition.as_deref()?)))
    }

    /// The partitions in use, to be changed, in order of number.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Partition> {
        self.by_number
            .iter_mut()
            .flatten()
            .map(|boxed| &mut **boxed)
    }

    /// The addresses of all blocks for which `wanted` returns true, in order of partition, extent
    /// and block.
    pub(super) fn blocks_where(
        &self,
        wanted: impl Fn(&Extent, &Block) -> bool,
    ) -> Vec<BlockAddress> {
        let mut found = Vec::new();
        for (partition, of) in self.iter() {
            for extent_number in of.numbers() {
                let Some(extent) = of.extent(extent_number) else {
                    continue;
                };
                let blocks = extent.blocks.iter().zip(0..);
                let some = blocks.filter(|(block, _)| wanted(extent, block));
                found.extend(some.map(|(_, block)| BlockAddress {
                    partition,
                    extent: extent_number,
                    block,
                }));
            }
        }
        found
    }

    /// A number for a new partition, and the first extent that was never used under it: one never
    /// used, otherwise one whose drop is in the host's log. `None` if there is none.
    pub(super) fn free_number(&self) -> Option<(u16, u32)> {
        let most = u16::try_from(PARTITIONS - 1).unwrap_or(u16::MAX);
        let fresh = (1..=most)
            .find(|number| self.get(*number).is_none() && !self.dropped.contains_key(number));
        if let Some(number) = fresh {
            return Some((number, 0));
        }
        let usable =
            |dropped: &Dropped| dropped.logged && dropped.next_extent.max(self.floor) < EXTENTS;
        let again = self.dropped.iter().find(|(_, dropped)| usable(dropped));
        again.map(|(number, dropped)| (*number, dropped.next_extent))
    }

    /// Whether the change has a higher stamp than the last change of its partition in the table.
    /// True for an unknown partition.
    pub(super) fn is_newer(&self, change: &PartitionChange) -> bool {
        let partition = self.get(change.partition);
        let dropped = self.dropped.get(&change.partition);
        let known = partition.map(|partition| partition.stamp);
        let known = known.or_else(|| dropped.map(|dropped| dropped.stamp));
        known.is_none_or(|stamp| change.stamp > stamp)
    }

    /// Whether the opening of a partition can be of one history with the partition of its number in
    /// the table: it is the same one, an earlier one, or a later one. A later partition of a number
    /// has a higher stamp and a higher first extent, above all extents of the earlier one. True for
    /// an unknown and a dropped partition.
    pub(super) fn is_consistent(&self, opening: &PartitionChange) -> bool {
        let Some(known) = self.get(opening.partition) else {
            return true;
        };
        match opening.first_extent.cmp(&known.first_extent) {
            Ordering::Less => opening.stamp < known.stamp,
            Ordering::Equal => true,
            Ordering::Greater => {
                opening.stamp > known.stamp
                    && known.numbers().all(|extent| extent < opening.first_extent)
            }
        }
    }

    /// Adds an empty partition as `change` says, over any of its number.
    pub(super) fn make(&mut self, change: PartitionChange, key: PartitionKey) {
        let partition = Partition::new(
            change.relation,
            change.stamp,
            change.first_extent,
            reserve_after(0),
            key,
        );
        self.dropped.remove(&change.partition);
        self.by_relation.insert(change.relation, change.partition);
        self.moved.remove(&change.relation);
        self.stamp = self.stamp.max(change.stamp);
        if let Some(place) = self.by_number.get_mut(usize::from(change.partition)) {
            *place = Some(Box::new(partition));
            self.made += 1;
        }
    }

    /// Adds a partition that a manifest names. `None` if no partition can have the number.
    pub(super) fn load(&mut self, number: u16, partition: Partition) -> Option<()> {
        self.by_relation.insert(partition.relation, number);
        *self.by_number.get_mut(usize::from(number))? = Some(Box::new(partition));
        Some(())
    }

    /// Removes a partition, whose blocks must not be in memory any more, and notes its number as
    /// used.
    pub(super) fn remove(&mut self, change: PartitionChange) {
        let number = change.partition;
        self.stamp = self.stamp.max(change.stamp);
        self.settle_moves(number);
        let mut next_extent = change.first_extent;
        let gone = self
            .by_number
            .get_mut(usize::from(number))
            .and_then(Option::take);
        if let Some(partition) = gone {
            next_extent = next_extent.max(partition.next_extent);
            self.unmap(partition.relation, number);
        }
        let dropped = Dropped {
            next_extent,
            stamp: change.stamp,
            logged: false,
        };
        self.dropped.insert(number, dropped);
    }

    /// Gives a partition to another relation, as `change` says. Nothing if there is no such
    /// partition.
    pub(super) fn reassign(&mut self, change: PartitionChange) {
        self.stamp = self.stamp.max(change.stamp);
        let Some(partition) = self.get_mut(change.partition) else {
            return;
        };
        let old = std::mem::replace(&mut partition.relation, change.relation);
        partition.stamp = change.stamp;
        // A reader of the log that finds the new relation before this record must not depend on the
        // record: the next records of values say again whose the partition is.
        partition.announced = false;
        partition.durable = false;
        partition.published_to = None;
        self.unmap(old, change.partition);
        self.by_relation.insert(change.relation, change.partition);
        // The host says so before its transaction commits, and may crash before that is durable:
        // then the former relation is there as before. One that is retired (tablespace 0) is gone,
        // and one that gets the partition back has undone the move.
        let is_back = self.moved.remove(&change.relation) == Some(change.partition);
        if is_back || change.relation.tablespace == 0 {
            self.settle_moves(change.partition);
        } else if old.tablespace != 0 && self.of(old).is_none() {
            self.moved.insert(old, change.partition);
        }
    }

    /// Moves the next extent of every partition, also of dropped and new ones, far beyond those
    /// that a lost history of the store can have used (F1).
    pub(super) fn skip_extents(&mut self) {
        let beyond = |extent: u32| extent.saturating_add(RESTORE_STRIDE).min(EXTENTS);
        self.floor = beyond(self.floor);
        for partition in self.iter_mut() {
            partition.next_extent = beyond(partition.next_extent);
        }
        for dropped in self.dropped.values_mut() {
            dropped.next_extent = beyond(dropped.next_extent);
        }
    }

    /// Forgets that the relation has this partition, unless it has another one by now.
    fn unmap(&mut self, relation: Relation, number: u16) {
        if self.by_relation.get(&relation) == Some(&number) {
            self.by_relation.remove(&relation);
        }
    }
}
