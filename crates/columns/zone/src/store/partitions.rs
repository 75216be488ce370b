//! Partitions: found by relation, opened, dropped, given to another relation.
//!
//! Invariants: a number is found in the explicit map, never computed; a number that was dropped is given out again only with extents
//! that were never used under it, and only when the record of the drop is in the host's log; a change of a partition has a stamp, so that
//! an older one found in a log changes nothing. Must not: know more of a relation than its three numbers.

use strongroom_columns_ring::Fault;
use strongroom_format::columns::fid::{EXTENTS, PARTITIONS};
use strongroom_format::columns::manifest::PartitionEntry;
use strongroom_format::columns::redo::{Entry, PartitionChange, Relation};

use super::checkpoint::ahead;
use super::partition::{BLOCKS, Partition};
use super::seal::PartitionKey;
use super::{Store, of_crypto};

/// A number whose partition was dropped.
#[derive(Clone, Copy)]
pub(super) struct Dropped {
    /// The first extent that was never used.
    pub(super) next_extent: u32,
    pub(super) stamp: u64,
    /// Whether the record of the drop is in the host's log.
    pub(super) known: bool,
}

impl Dropped {
    pub(super) fn entry(&self, number: u16, floor: u32) -> PartitionEntry {
        PartitionEntry {
            partition: number,
            relation: None,
            first_extent: self.next_extent,
            // The number may be in use again, and lost, before the next manifest.
            reserved_to: ahead(self.next_extent.max(floor)),
            extents: 0,
            stamp: self.stamp,
            key: [0; 32],
            column_keys: 0,
        }
    }
}

impl Store {
    /// The partition of a relation's files.
    #[must_use]
    pub fn partition_of(&self, relation: Relation) -> Option<u16> {
        self.relations.get(&relation).copied()
    }

    /// How many values a partition has, garbage included.
    #[must_use]
    pub fn values_of(&self, partition: u16) -> u64 {
        self.partition(partition).map_or(0, Partition::values)
    }

    /// Every partition and whose it is, for comparing with the host's catalog.
    pub fn partitions(&self) -> impl Iterator<Item = (u16, Relation)> + '_ {
        self.numbered()
            .map(|(number, partition)| (number, partition.relation))
    }

    /// The partition of a relation's files, made when there is none. With a ring, its next redo record says so.
    ///
    /// # Errors
    /// [`Fault::PartitionsExhausted`], [`Fault::OutOfMemory`], [`Fault::Recovering`].
    pub fn open_partition(&mut self, ring: Option<u32>, relation: Relation) -> Result<u16, Fault> {
        self.admit_change()?;
        if let Some(number) = self.partition_of(relation) {
            return Ok(number);
        }
        let (number, used) = self.free_number().ok_or(Fault::PartitionsExhausted)?;
        let change = PartitionChange {
            partition: number,
            relation,
            first_extent: used.max(self.floor),
            stamp: self.stamp + 1,
        };
        self.make_partition(change)?;
        if let Some(ring) = ring {
            self.log_entry(ring, &Entry::Opened(change))?;
            self.rings.announces(ring, number);
        }
        Ok(number)
    }

    /// Drops a partition with all that is in it. Its key goes with it: from the next checkpoint on nothing can open its blocks.
    ///
    /// # Errors
    /// [`Fault::PartitionUnknown`], [`Fault::Recovering`], [`Fault::OutOfMemory`].
    pub fn drop_partition(&mut self, ring: Option<u32>, number: u16) -> Result<(), Fault> {
        self.admit_change()?;
        let partition = self.partition(number).ok_or(Fault::PartitionUnknown)?;
        let change = PartitionChange {
            partition: number,
            relation: Relation::NONE,
            first_extent: partition.next_extent,
            stamp: self.stamp + 1,
        };
        if let Some(ring) = ring {
            self.log_entry(ring, &Entry::Dropped(change))?;
            self.rings.drops(ring, number);
        }
        self.remove_partition(change);
        if ring.is_none()
            && let Some(dropped) = self.dropped.get_mut(&number)
        {
            dropped.known = true;
        }
        Ok(())
    }

    /// Gives a partition to another relation's files; FIDs stay as they are.
    ///
    /// # Errors
    /// [`Fault::PartitionUnknown`], [`Fault::Recovering`], [`Fault::OutOfMemory`]; [`Fault::BadRequest`] when the relation has a
    /// partition.
    pub fn rehome(
        &mut self,
        ring: Option<u32>,
        number: u16,
        relation: Relation,
    ) -> Result<(), Fault> {
        self.admit_change()?;
        let partition = self.partition(number).ok_or(Fault::PartitionUnknown)?;
        match self.partition_of(relation) {
            Some(other) if other == number => return Ok(()),
            Some(_) => return Err(Fault::BadRequest),
            None => {}
        }
        let change = PartitionChange {
            partition: number,
            relation,
            first_extent: partition.first_extent,
            stamp: self.stamp + 1,
        };
        if let Some(ring) = ring {
            self.log_entry(ring, &Entry::Rehomed(change))?;
        }
        self.move_partition(change);
        Ok(())
    }

    /// A number that is free, and the first extent that was never used under it.
    fn free_number(&self) -> Option<(u16, u32)> {
        let most = u16::try_from(PARTITIONS - 1).unwrap_or(u16::MAX);
        let fresh = (1..=most)
            .find(|number| self.partition(*number).is_none() && !self.dropped.contains_key(number));
        if let Some(number) = fresh {
            return Some((number, 0));
        }
        let usable =
            |dropped: &Dropped| dropped.known && dropped.next_extent.max(self.floor) < EXTENTS;
        let again = self.dropped.iter().find(|(_, dropped)| usable(dropped));
        again.map(|(number, dropped)| (*number, dropped.next_extent))
    }

    pub(super) fn make_partition(&mut self, change: PartitionChange) -> Result<(), Fault> {
        let key = PartitionKey::new(&self.keys).map_err(|error| self.report(of_crypto(error)))?;
        let reserve = ahead(0);
        let partition = Partition::new(
            change.relation,
            change.stamp,
            change.first_extent,
            reserve,
            key,
        );
        self.dropped.remove(&change.partition);
        self.relations.insert(change.relation, change.partition);
        self.stamp = self.stamp.max(change.stamp);
        if let Some(place) = self.partitions.get_mut(usize::from(change.partition)) {
            *place = Some(Box::new(partition));
            self.made += 1;
        }
        Ok(())
    }

    pub(super) fn remove_partition(&mut self, change: PartitionChange) {
        let number = change.partition;
        self.stamp = self.stamp.max(change.stamp);
        let mut next_extent = change.first_extent;
        if let Some(partition) = self.partition(number) {
            next_extent = next_extent.max(partition.next_extent);
            let numbers: Vec<u32> = partition.numbers().collect();
            for extent in numbers {
                for at in 0..BLOCKS {
                    self.forget(number, extent, at);
                    let found = self
                        .partition_mut(number)
                        .and_then(|partition| partition.block_mut(extent, at));
                    let old = found
                        .and_then(|(block, _)| block.disk.take().map(|disk| (disk, block.kept)));
                    self.leave(old);
                }
            }
        }
        let gone = self
            .partitions
            .get_mut(usize::from(number))
            .and_then(Option::take);
        if let Some(partition) = gone {
            self.unmap(partition.relation, number);
        }
        let all = u64::from(number) << 48..(u64::from(number) + 1) << 48;
        let held: Vec<u64> = self.quarantine.range(all).map(|(bits, _)| *bits).collect();
        for bits in held {
            self.quarantine.remove(&bits);
        }
        let dropped = Dropped {
            next_extent,
            stamp: change.stamp,
            known: false,
        };
        self.dropped.insert(number, dropped);
    }

    pub(super) fn move_partition(&mut self, change: PartitionChange) {
        self.stamp = self.stamp.max(change.stamp);
        let Some(partition) = self.partition_mut(change.partition) else {
            return;
        };
        let old = std::mem::replace(&mut partition.relation, change.relation);
        partition.stamp = change.stamp;
        // Whoever finds the new relation in a log before this record must not need it: it says whose the partition is now.
        partition.announced = false;
        partition.durable = false;
        self.unmap(old, change.partition);
        self.relations.insert(change.relation, change.partition);
    }

    fn unmap(&mut self, relation: Relation, number: u16) {
        if self.relations.get(&relation) == Some(&number) {
            self.relations.remove(&relation);
        }
    }
}
