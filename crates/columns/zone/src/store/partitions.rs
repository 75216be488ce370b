//! Operations on partitions: opened, dropped, given to another relation.
//!
//! Invariants are those of [`super::partition_table`]. Must not: know more of a relation than its
//! three numbers.

use strongroom_columns_ring::Fault;
use strongroom_format::columns::fid::EXTENTS;
use strongroom_format::columns::redo::{Entry, PartitionChange, Relation};

use super::Store;
use super::block_address::BlockAddress;
use super::faults::crypto_error;
use super::partition::{BLOCKS, Partition};
use super::seal::PartitionKey;

impl Store {
    /// The number of the partition of a relation's files. `None` if it has none.
    #[must_use]
    pub fn partition_of(&self, relation: Relation) -> Option<u16> {
        self.partitions.of(relation)
    }

    /// The number of the partition that a relation's files had before it was given to other files,
    /// until [`Self::settle_moves`] says that this holds. `None` if there is none, and while the
    /// host's log is replayed or followed.
    #[must_use]
    pub fn moved_from(&self, relation: Relation) -> Option<u16> {
        let number = self.partitions.moved_from(relation)?;
        self.check_writable().is_ok().then_some(number)
    }

    /// Notes that a partition belongs to its relation for good: the transaction that has moved it
    /// there has committed.
    pub fn settle_moves(&mut self, partition: u16) {
        self.partitions.settle_moves(partition);
    }

    /// How many values a partition has, garbage included; 0 for an unknown one.
    #[must_use]
    pub fn values_of(&self, partition: u16) -> u64 {
        self.partitions.get(partition).map_or(0, Partition::values)
    }

    /// The number of every partition and the relation that it belongs to, for comparing with the
    /// host's catalog.
    pub fn partitions(&self) -> impl Iterator<Item = (u16, Relation)> + '_ {
        self.partitions
            .iter()
            .map(|(number, partition)| (number, partition.relation))
    }

    /// Returns the number of the partition of a relation's files, which is made if there is none;
    /// one that was given to other files, if that is not known to hold, is given back. With a ring,
    /// its next redo record says so.
    ///
    /// # Errors
    /// [`Fault::PartitionsExhausted`] if no number is free; [`Fault::Recovering`] while the host's
    /// log is replayed or followed; [`Fault::OutOfMemory`] if no memory is left;
    /// [`Fault::BadRequest`] if the ring is not attached or its record is full: the partition is
    /// there then, but in no record.
    pub fn open_partition(&mut self, ring: Option<u32>, relation: Relation) -> Result<u16, Fault> {
        self.check_writable()?;
        if let Some(number) = self.partition_of(relation) {
            return Ok(number);
        }
        if let Some(number) = self.moved_from(relation) {
            self.reassign_partition(ring, number, relation)?;
            return Ok(number);
        }
        let free = self.partitions.free_number();
        let (number, used) = free.ok_or(Fault::PartitionsExhausted)?;
        let change = PartitionChange {
            partition: number,
            relation,
            first_extent: used.max(self.partitions.floor),
            stamp: self.partitions.stamp + 1,
        };
        self.make_partition(change)?;
        if let Some(ring) = ring {
            self.redo.append_opening(ring, change)?;
        }
        Ok(number)
    }

    /// Drops a partition with all that is in it; with a ring, its next redo record says so. Its key
    /// goes with it: from the next checkpoint on nothing can open its blocks.
    ///
    /// # Errors
    /// [`Fault::PartitionUnknown`] if there is no such partition; [`Fault::Recovering`] while the
    /// host's log is replayed or followed; [`Fault::BadRequest`] if the ring is not attached or its
    /// record is full; [`Fault::OutOfMemory`] if no memory is left. It is not dropped then.
    pub fn drop_partition(&mut self, ring: Option<u32>, number: u16) -> Result<(), Fault> {
        self.check_writable()?;
        let partition = self.partitions.get(number);
        let partition = partition.ok_or(Fault::PartitionUnknown)?;
        let change = PartitionChange {
            partition: number,
            relation: Relation::NONE,
            // Even of a number that no value was stored under, every partition has another first
            // extent: bindings in records name it.
            first_extent: partition
                .next_extent
                .max(partition.first_extent.saturating_add(1))
                .min(EXTENTS),
            stamp: self.partitions.stamp + 1,
        };
        if let Some(ring) = ring {
            self.redo.append(ring, &Entry::Dropped(change))?;
            self.redo.note_drop(ring, number);
        }
        self.remove_partition(change);
        if ring.is_none()
            && let Some(dropped) = self.partitions.dropped.get_mut(&number)
        {
            dropped.logged = true;
        }
        Ok(())
    }

    /// Gives a partition to another relation's files; identifiers stay as they are. With a ring,
    /// its next redo record says so.
    ///
    /// # Errors
    /// [`Fault::PartitionUnknown`] if there is no such partition; [`Fault::Recovering`] while the
    /// host's log is replayed or followed; [`Fault::BadRequest`] if the relation has another
    /// partition, the ring is not attached or its record is full; [`Fault::OutOfMemory`] if no
    /// memory is left.
    pub fn reassign_partition(
        &mut self,
        ring: Option<u32>,
        number: u16,
        relation: Relation,
    ) -> Result<(), Fault> {
        self.check_writable()?;
        let partition = self.partitions.get(number);
        let partition = partition.ok_or(Fault::PartitionUnknown)?;
        match self.partition_of(relation) {
            Some(other) if other == number => return Ok(()),
            Some(_) => return Err(Fault::BadRequest),
            None => {}
        }
        let change = PartitionChange {
            partition: number,
            relation,
            first_extent: partition.first_extent,
            stamp: self.partitions.stamp + 1,
        };
        if let Some(ring) = ring {
            self.log_opening(ring, number)?;
            self.redo.append(ring, &Entry::Rehomed(change))?;
        }
        self.partitions.reassign(change);
        Ok(())
    }

    /// Adds the opening of a partition to the ring's next record, unless it is known to be in the
    /// log: another ring's record may get there before that of the ring that opened it.
    /// `Fault::PartitionUnknown` if there is no such partition; `Fault::BadRequest` if the record
    /// is full or the ring unknown; `Fault::OutOfMemory` if no memory is left.
    pub(super) fn log_opening(&mut self, ring: u32, number: u16) -> Result<(), Fault> {
        let partition = self.partitions.get(number);
        let partition = partition.ok_or(Fault::PartitionUnknown)?;
        if partition.announced && partition.durable {
            return Ok(());
        }
        let opening = PartitionChange {
            partition: number,
            relation: partition.relation,
            first_extent: partition.first_extent,
            stamp: partition.stamp,
        };
        self.redo.append_opening(ring, opening)
    }

    /// Makes an empty partition as `change` says, under a new random key. Adds nothing to a redo
    /// record. `Fault::OutOfMemory` if the key cannot be made.
    pub(super) fn make_partition(&mut self, change: PartitionChange) -> Result<(), Fault> {
        let key = PartitionKey::new(&self.keys);
        let key = key.map_err(|error| self.report(crypto_error(error)))?;
        self.partitions.make(change, key);
        Ok(())
    }

    /// Removes a partition, its blocks in memory and on disk, and its values from quarantine. Adds
    /// nothing to a redo record.
    pub(super) fn remove_partition(&mut self, change: PartitionChange) {
        let number = change.partition;
        let partition = self.partitions.get(number);
        let extents: Vec<u32> = partition.map_or_else(Vec::new, |found| found.numbers().collect());
        for extent in extents {
            for block in (0_u8..).take(BLOCKS) {
                let at = BlockAddress {
                    partition: number,
                    extent,
                    block,
                };
                self.cache.remove(&mut self.partitions, at);
            }
        }
        self.partitions.remove(change);
        self.reclamation.forget_partition(number);
    }
}
