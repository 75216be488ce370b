//! Reclamation: delete, and mark and sweep with a quarantine.
//!
//! The host marks the values that it can still reach. A sweep puts the others into quarantine,
//! where they can still be resolved. When a second sweep has not found a value marked either, and
//! the host says that nobody can hold it, the value is freed. All of it goes by partition.
//! Invariants: F1 (a freed slot has the next generation), S1, G1 (values that are given out or
//! stored again while marks are collected are marked), G2 (only the ring that began marking may
//! sweep by its marks). Must not: free a value that was not in quarantine, but for
//! [`Store::delete`].

use strongroom_columns_ring::Fault;
use strongroom_format::code;
use strongroom_format::columns::Fid;
use strongroom_format::columns::redo::Entry;
use strongroom_keyring::Error;

use super::Store;
use super::block_address::BlockAddress;
use super::marks::Marks;
use super::partition::BLOCKS;
use super::pools::SLOTS;

/// How far beyond the last sweep that the store knows of the host's may be.
const SWEEPS_AHEAD_MAX: u64 = 1 << 32;

/// The most blocks that one call of a sweep looks at: some milliseconds when all are on disk.
const SWEEP_BLOCKS_MAX: usize = 64;

/// The result of one call of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SweepResult {
    /// Values that this call put into quarantine.
    pub found: u64,
    /// Whether the sweep has reached its end.
    pub done: bool,
}

impl Store {
    /// Frees a value that nothing refers to, at once, with an entry in the ring's next redo record.
    /// Its slot is given out again, with the next generation, when that record is in the host's
    /// log.
    ///
    /// # Errors
    /// [`Fault::StaleFid`] or [`Fault::ForgedFid`] if there is no such value; [`Fault::Recovering`]
    /// while the host's log is replayed or followed; [`Fault::BadRequest`] if the record is full or
    /// the ring unknown; those of reading and evicting blocks.
    pub fn delete(&mut self, ring: Option<u32>, fid: Fid) -> Result<(), Fault> {
        self.check_writable()?;
        self.make_room()?;
        self.get(fid)?;
        if let Some(ring) = ring {
            self.redo.append(ring, &Entry::Freed(fid))?;
        }
        self.reclamation.release(fid);
        self.free_logged(ring, fid)
    }

    /// Begins marking in a partition: values given out or stored again from now on are not swept.
    /// Earlier marks, of whatever ring, are forgotten. Returns the number of the sweep that will
    /// follow, which is greater than `after`, the last one that the host knows of: a store that was
    /// opened anew may not know it. The host may mark only after every transaction that was writing
    /// has ended: values that were given out before need not be in their tables yet.
    ///
    /// # Errors
    /// [`Fault::PartitionUnknown`] if there is no such partition; [`Fault::Recovering`] while the
    /// host's log is replayed or followed; [`Fault::BadRequest`] if `after` is 2^32 or more beyond
    /// the last sweep that the store knows of.
    pub fn mark_begin(
        &mut self,
        ring: Option<u32>,
        partition: u16,
        after: u64,
    ) -> Result<u64, Fault> {
        self.check_writable()?;
        let found = self.partitions.get_mut(partition);
        let found = found.ok_or(Fault::PartitionUnknown)?;
        // A number that is far beyond is none that the store has given out in any history.
        let ahead = after.saturating_sub(self.reclamation.last_sweep);
        (ahead < SWEEPS_AHEAD_MAX)
            .then_some(())
            .ok_or(Fault::BadRequest)?;
        let owner = ring.unwrap_or(0);
        let sweep = self.reclamation.begin_marking(partition, owner, after);
        found.marks = Some(Marks::new(sweep, owner, found.next_extent));
        Ok(sweep)
    }

    /// Forgets the marks of a ring that has ended: they will never be complete.
    pub(super) fn forget_marks(&mut self, ring: u32) {
        for number in self.reclamation.marked_by(ring) {
            self.reclamation.end_marking(number);
            if let Some(partition) = self.partitions.get_mut(number) {
                partition.marks.take_if(|marks| marks.owner == ring);
            }
        }
    }

    /// Marks a value that is stored again where it is, and takes it out of quarantine, because the
    /// statement may have read it before it was swept.
    pub(super) fn mark_reachable(&mut self, fid: Fid) {
        self.mark(&[fid]);
        self.reclamation.release(fid);
    }

    /// Marks values as reachable. Ignores identifiers of partitions where marking has not begun,
    /// and those that lead nowhere.
    pub fn mark(&mut self, fids: &[Fid]) {
        for fid in fids.iter().filter(|fid| !fid.is_ephemeral()) {
            let Some(partition) = self.partitions.get_mut(fid.partition()) else {
                continue;
            };
            let known = partition.extent(fid.extent()).is_some();
            if let Some(marks) = partition.marks.as_mut().filter(|_| known) {
                marks.set(fid.extent(), fid.index());
            }
        }
    }

    /// Puts values of a partition that are not marked into quarantine, about `limit` of them, from
    /// at most 64 blocks; to be called until it is done. Values that an earlier sweep had put there
    /// and that are marked now leave it. With a ring, its next redo record has the former.
    ///
    /// # Errors
    /// [`Fault::BadRequest`] if the ring has not begun marking there, or another has since;
    /// [`Fault::Recovering`] while the host's log is replayed or followed;
    /// [`Fault::PartitionUnknown`] if there is no such partition; [`Fault::StoreDamaged`],
    /// [`Fault::StoreIo`], [`Fault::OutOfMemory`] if a block is damaged, cannot be read, or has no
    /// room: the sweep goes on with the next call.
    pub fn sweep(
        &mut self,
        ring: Option<u32>,
        partition: u16,
        limit: u64,
    ) -> Result<SweepResult, Fault> {
        self.check_writable()?;
        let mut found = 0;
        for _ in 0..SWEEP_BLOCKS_MAX {
            match self.sweep_next_block(ring, partition)? {
                Some(more) => found += more,
                None => return Ok(SweepResult { found, done: true }),
            }
            if found >= limit {
                break;
            }
        }
        Ok(SweepResult { found, done: false })
    }

    /// Frees values of a partition that are in quarantine since sweep `since` or before, and that a
    /// later sweep has not found marked either; about `limit` of them. The host vouches that nobody
    /// holds them. With a ring, its next redo record has them. Returns how many it handled; 0 if
    /// there are no more.
    ///
    /// # Errors
    /// [`Fault::Recovering`] while the host's log is replayed or followed;
    /// [`Fault::PartitionUnknown`] if there is no such partition; [`Fault::StoreDamaged`],
    /// [`Fault::StoreIo`], [`Fault::OutOfMemory`] if a block is damaged, cannot be read, or has no
    /// room.
    pub fn free(
        &mut self,
        ring: Option<u32>,
        partition: u16,
        since: u64,
        limit: usize,
    ) -> Result<u64, Fault> {
        self.check_writable()?;
        let found = self.partitions.get(partition);
        let swept = found.ok_or(Fault::PartitionUnknown)?.swept;
        let mut freed = 0;
        for fid in self.reclamation.due(partition, since, swept, limit) {
            self.make_room()?;
            if self.is_live(fid).map_err(|error| self.report(error))? {
                if let Some(ring) = ring {
                    self.redo.append(ring, &Entry::Freed(fid))?;
                }
                self.free_logged(ring, fid)?;
            }
            self.reclamation.release(fid);
            freed += 1;
        }
        Ok(freed)
    }

    /// Sweeps the next block, and moves the cursor; returns how many values went into quarantine.
    /// `None` if the sweep has reached its end, which ends it. `Fault::BadRequest` if the marks are
    /// not this ring's.
    fn sweep_next_block(&mut self, ring: Option<u32>, number: u16) -> Result<Option<u64>, Fault> {
        let partition = self.partitions.get(number);
        let partition = partition.ok_or(Fault::PartitionUnknown)?;
        let marks = partition.marks.as_ref();
        let marks = marks.filter(|marks| marks.owner == ring.unwrap_or(0));
        let marks = marks.ok_or(Fault::BadRequest)?;
        let (sweep, cursor) = (marks.sweep, marks.cursor);
        let from = cursor.extent.max(partition.first_extent);
        let next = (from..marks.end).find(|extent| partition.extent(*extent).is_some());
        let Some(extent) = next else {
            self.end_sweep(number, sweep);
            return Ok(None);
        };
        let block = if extent > cursor.extent {
            0
        } else {
            cursor.block
        };
        let at = BlockAddress {
            partition: number,
            extent,
            block,
        };
        let found = self.sweep_block(ring, at, sweep)?;
        let next = if at.index() + 1 == BLOCKS {
            (extent + 1, 0)
        } else {
            (extent, block + 1)
        };
        let partition = self.partitions.get_mut(number);
        if let Some(marks) = partition.and_then(|partition| partition.marks.as_mut()) {
            (marks.cursor.extent, marks.cursor.block) = next;
        }
        Ok(Some(found))
    }

    /// Ends the sweep of a partition: forgets the marks, and notes that the sweep was complete.
    fn end_sweep(&mut self, number: u16, sweep: u64) {
        self.reclamation.end_marking(number);
        if let Some(partition) = self.partitions.get_mut(number) {
            partition.swept = sweep;
            partition.marks = None;
        }
    }

    /// Puts the unmarked values of a block into quarantine, with entries in the ring's next record,
    /// and takes marked ones out. Returns how many it has put there. `Fault::BadRequest` if the
    /// record is full; faults of reading and evicting blocks.
    fn sweep_block(
        &mut self,
        ring: Option<u32>,
        at: BlockAddress,
        sweep: u64,
    ) -> Result<u64, Fault> {
        self.make_room()?;
        let known = self.partitions.block(at);
        if known
            .is_none_or(|block| block.live == 0 || (block.frame.is_none() && block.disk.is_none()))
        {
            return Ok(0);
        }
        self.bring_in(at)?;
        let (mut garbage, mut rescued) = (Vec::new(), Vec::new());
        {
            let partition = self.partitions.get(at.partition);
            let partition = partition.ok_or(Fault::PartitionUnknown)?;
            let block = self.partitions.block(at);
            let frame = block.and_then(|block| block.frame.as_ref());
            let (Some(frame), Some(marks)) = (frame, &partition.marks) else {
                return Ok(0);
            };
            for slot_at in 0..SLOTS {
                let slot = frame.slot(slot_at);
                let index = at.slot_index(slot_at).ok_or(Fault::BadRequest)?;
                let Some(fid) = Fid::permanent(at.partition, slot.generation, at.extent, index)
                    .filter(|_| slot.is_live())
                else {
                    continue;
                };
                let marked = marks.counts_as_marked(at.extent, index);
                match (marked, self.reclamation.is_quarantined(fid)) {
                    (true, true) => rescued.push(fid),
                    (false, false) => garbage.push(fid),
                    _ => {}
                }
            }
        }
        for fid in rescued {
            self.reclamation.release(fid);
        }
        for fid in &garbage {
            if let Some(ring) = ring {
                self.redo.append(ring, &Entry::Swept(sweep, *fid))?;
            }
            self.reclamation.quarantine(*fid, sweep);
        }
        Ok(garbage.len() as u64)
    }

    /// Frees a slot; it may be given out again when the ring's next record is in the host's log, or
    /// never in this incarnation without a ring. The caller has added the entry. Faults of reading
    /// its block.
    fn free_logged(&mut self, ring: Option<u32>, fid: Fid) -> Result<(), Fault> {
        let reusable = self.free_slot(fid)?;
        let Some(ring) = ring else {
            return Ok(());
        };
        let extent = self.partitions.extent(fid.partition(), fid.extent());
        if let Some(column) = extent
            .filter(|extent| extent.own && reusable)
            .map(|extent| extent.column)
        {
            self.redo.note_freed(ring, column, fid);
        }
        Ok(())
    }

    /// Frees the slot of a value, whose bytes are wiped; reads its block if needed. False if the
    /// slot has no generation left, so that it cannot be used again. Faults of reading it;
    /// `Fault::PartitionUnknown` or `Fault::ForgedFid` if it leads nowhere.
    pub(super) fn free_slot(&mut self, fid: Fid) -> Result<bool, Fault> {
        let at = BlockAddress::of(fid);
        self.bring_in(at)?;
        let partition = self.partitions.get_mut(at.partition);
        let partition = partition.ok_or(Fault::PartitionUnknown)?;
        let before = partition.slabs.used();
        let found = partition.block_mut(at.extent, at.index());
        let (block, slabs) = found.ok_or(Fault::ForgedFid)?;
        let frame = block.frame.as_mut().ok_or(Fault::OutOfMemory)?;
        let reusable = frame.free(usize::from(fid.index()), slabs);
        block.dirty = true;
        block.live = block.live.saturating_sub(1);
        self.cache.out_of_line -= before - partition.slabs.used();
        Ok(reusable)
    }

    /// Takes every value out of quarantine that the store does not have any more. To be called
    /// while the log is replayed: the replicas of earlier versions left there what a record had
    /// freed. A value whose block cannot be read stays; the error is noted for the zone's log.
    pub(super) fn forget_freed_quarantine(&mut self) {
        let held: Vec<Fid> = self.reclamation.quarantined().map(|(fid, _)| fid).collect();
        for fid in held {
            let live = match self.make_room() {
                Ok(()) => self.is_live(fid),
                // The error was noted, and the checkpoint that follows meets it again.
                Err(_) => return,
            };
            match live {
                Ok(true) => {}
                Ok(false) => self.reclamation.release(fid),
                Err(error) => self.last_error = Some(error),
            }
        }
    }

    /// Puts a value into quarantine, as a manifest says. SR-8024 if it is there already, or the
    /// sweep's number is impossible.
    pub(super) fn load_quarantined(&mut self, fid: Fid, sweep: u64) -> Result<(), Error> {
        if sweep > self.reclamation.last_sweep || !self.reclamation.quarantine(fid, sweep) {
            return Err(Error::new(&code::STORE_MANIFEST, "the quarantine"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use strongroom_columns_values::Value;
    use strongroom_crypto::SecretKey;
    use strongroom_format::columns::redo::Relation;
    use strongroom_format::columns::{Class, Kind, Lineage};
    use strongroom_keyring::Opener;

    use crate::store::{ANCHOR_NAME, Binding, FileAnchor, Options, Store, create, open};

    /// What the replica of an earlier version had in its manifest: values that a record had freed.
    #[test]
    fn a_replica_that_begins_to_follow_forgets_the_quarantine_of_freed_values() {
        let directory = std::env::temp_dir().join(format!("sr-freed-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let opener = Opener::raw(SecretKey::take(&mut [7; 32]).unwrap());
        create(&directory, &opener.recipient().unwrap()).unwrap();
        let opened = || -> Store {
            let anchor = Box::new(FileAnchor::at(directory.join(ANCHOR_NAME)));
            let options = Options {
                memory_limit: 64 << 20,
                insist_on_locks: false,
                accept_restored: false,
            };
            open(&directory, &opener, anchor, options).unwrap()
        };
        let mut store = opened();
        store.finish_recovery(0).unwrap();
        let relation = Relation {
            tablespace: 1,
            database: 2,
            filenode: 3,
        };
        let table = store.open_partition(None, relation).unwrap();
        let binding = Binding {
            key: [5; 16],
            lineage: Lineage::of_column(0x40, Class::Ordered),
        };
        let key = SecretKey::take(&mut [5; 32]).unwrap();
        store.bind(table, 1, binding, &key).unwrap();
        let mut put = |word| {
            let value = Value::Word(word);
            store.put(None, table, 1, Kind::Int8, value).unwrap()
        };
        let (kept, freed, unread) = (put(1), put(2), put(3));
        store.delete(None, freed).unwrap();
        for fid in [kept, freed] {
            assert!(store.reclamation.quarantine(fid, 0));
        }
        store.checkpoint(10).unwrap();
        drop(store);
        let mut store = opened();
        assert_eq!(store.status().quarantine, 2);
        store.follow(10).unwrap();
        assert!(store.reclamation.is_quarantined(kept));
        assert_eq!(store.status().quarantine, 1);
        assert!(store.get(unread).is_ok());
        drop(store);
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
