//! Reclamation: delete, and mark and sweep with a quarantine.
//!
//! The host marks what it can still reach; a sweep puts the rest into quarantine, where it can still be resolved; when a second sweep has not
//! found it marked either, and the host says that nobody can hold it, it is freed. All of it goes by partition. Invariants: F1 (a freed
//! slot has the next generation), S1, G1 (what is given out or stored again while marks are collected is marked), G2 (only the ring that
//! began marking may sweep by its marks). Must not: free what was not in quarantine, but for [`Store::delete`].

use std::collections::BTreeMap;

use strongroom_columns_ring::Fault;
use strongroom_format::code;
use strongroom_format::columns::Fid;
use strongroom_format::columns::redo::Entry;
use strongroom_keyring::Error;

use super::Store;
use super::frame::SLOTS;
use super::partition::BLOCKS;

/// Words of an extent's marks.
const WORDS: usize = 1024;

/// The marks of one partition: a bit for each slot.
pub(super) struct Marks {
    /// The sweep's.
    number: u64,
    /// The ring that collects them; 0 for none.
    owner: u32,
    cursor: Cursor,
    extents: BTreeMap<u32, Box<[u64; WORDS]>>,
    /// Extents from here on were opened after marking began.
    upto: u32,
}

/// Blocks that one step of a sweep looks at, at most: some milliseconds when all of them are on disk.
const STEP_BLOCKS: usize = 64;

/// How far a sweep is.
#[derive(Clone, Copy)]
struct Cursor {
    extent: u32,
    block: usize,
}

/// What a step of a sweep has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Swept {
    /// Values that this step put into quarantine.
    pub found: u64,
    /// Whether the sweep is through.
    pub done: bool,
}

impl Marks {
    fn new(number: u64, owner: u32, upto: u32) -> Self {
        Self {
            number,
            owner,
            cursor: Cursor {
                extent: 0,
                block: 0,
            },
            extents: BTreeMap::new(),
            upto,
        }
    }

    pub(super) fn set(&mut self, extent: u32, index: u16) {
        let words = self
            .extents
            .entry(extent)
            .or_insert_with(|| Box::new([0; WORDS]));
        words[usize::from(index >> 6)] |= 1 << (index & 63);
    }

    fn has(&self, extent: u32, index: u16) -> bool {
        let words = self.extents.get(&extent);
        extent >= self.upto
            || words.is_some_and(|words| words[usize::from(index >> 6)] & 1 << (index & 63) != 0)
    }
}

impl Store {
    /// Delete: frees a value that nothing refers to, with an entry in the ring's next record. Its slot is given out again, with
    /// the next generation, once that record is in the host's log.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn delete(&mut self, ring: Option<u32>, fid: Fid) -> Result<(), Fault> {
        self.admit_change()?;
        self.make_room()?;
        self.get(fid)?;
        if let Some(ring) = ring {
            self.log_entry(ring, &Entry::Freed(fid))?;
        }
        self.quarantine.remove(&fid.bits());
        self.free_logged(ring, fid)
    }

    /// Begins marking in a partition: values given out or stored again from now on are not swept. Marks from before, whoever collected
    /// them, are forgotten. Answers with the number of the sweep that will follow. The host marks only after every transaction that
    /// was writing has ended: what those were given out before need not be in their tables yet.
    ///
    /// # Errors
    /// [`Fault::PartitionUnknown`], [`Fault::Recovering`].
    pub fn mark_begin(&mut self, ring: Option<u32>, partition: u16) -> Result<u64, Fault> {
        self.admit_change()?;
        let number = self.sweep + 1;
        let found = self.partition_mut(partition);
        let found = found.ok_or(Fault::PartitionUnknown)?;
        let owner = ring.unwrap_or(0);
        found.marks = Some(Marks::new(number, owner, found.next_extent));
        self.sweep = number;
        self.marking.insert(partition, owner);
        Ok(number)
    }

    /// A ring has ended: what it marked is not complete and will never be.
    pub(super) fn forget_marks(&mut self, ring: u32) {
        let of = self.marking.iter().filter(|(_, owner)| **owner == ring);
        let partitions: Vec<u16> = of.map(|(partition, _)| *partition).collect();
        for number in partitions {
            self.marking.remove(&number);
            if let Some(partition) = self.partition_mut(number) {
                partition.marks.take_if(|marks| marks.owner == ring);
            }
        }
    }

    /// A value of the store is stored again where it is: whoever did that may have had it from before it was swept.
    pub(super) fn rescue(&mut self, fid: Fid) {
        self.mark(&[fid]);
        self.quarantine.remove(&fid.bits());
    }

    /// Marks values. FIDs of partitions where marking has not begun, and those that lead nowhere, are passed over.
    pub fn mark(&mut self, fids: &[Fid]) {
        for fid in fids.iter().filter(|fid| !fid.is_ephemeral()) {
            let Some(partition) = self.partition_mut(fid.partition()) else {
                continue;
            };
            let known = partition.extent(fid.extent()).is_some();
            if let Some(marks) = partition.marks.as_mut().filter(|_| known) {
                marks.set(fid.extent(), fid.index());
            }
        }
    }

    /// Puts values of a partition that were not marked into quarantine, about `limit` of them; to be called until it is done. What an
    /// earlier sweep had put there and is marked now leaves it.
    ///
    /// # Errors
    /// [`Fault::BadRequest`] when the ring has not begun marking there, or another has since; as [`Store::get`], for reading: the sweep
    /// goes on with the next call.
    pub fn sweep(&mut self, ring: Option<u32>, partition: u16, limit: u64) -> Result<Swept, Fault> {
        self.admit_change()?;
        let mut found = 0;
        for _ in 0..STEP_BLOCKS {
            match self.sweep_step(ring, partition)? {
                Some(more) => found += more,
                None => return Ok(Swept { found, done: true }),
            }
            if found >= limit {
                break;
            }
        }
        Ok(Swept { found, done: false })
    }

    /// Frees values of a partition that are in quarantine since sweep `upto` or before, and that a later sweep has not found marked
    /// either; about `limit` of them. The host vouches that nobody holds them. Answers with their number; 0 when there are none left.
    ///
    /// # Errors
    /// As [`Store::get`], for reading.
    pub fn free(
        &mut self,
        ring: Option<u32>,
        partition: u16,
        upto: u64,
        limit: usize,
    ) -> Result<u64, Fault> {
        self.admit_change()?;
        let swept = self.partition(partition).map(|partition| partition.swept);
        let swept = swept.ok_or(Fault::PartitionUnknown)?;
        let of = u64::from(partition) << 48..(u64::from(partition) + 1) << 48;
        let held = self.quarantine.range(of);
        let due = held.filter(|(_, sweep)| **sweep <= upto && **sweep < swept);
        let due: Vec<u64> = due.map(|(bits, _)| *bits).take(limit).collect();
        let mut freed = 0;
        for fid in due.into_iter().filter_map(Fid::from_bits) {
            self.make_room()?;
            if self.live_at(fid).map_err(|error| self.report(error))? {
                if let Some(ring) = ring {
                    self.log_entry(ring, &Entry::Freed(fid))?;
                }
                self.free_logged(ring, fid)?;
            }
            self.quarantine.remove(&fid.bits());
            freed += 1;
        }
        Ok(freed)
    }

    /// One block. `None` when the sweep is through.
    fn sweep_step(&mut self, ring: Option<u32>, number: u16) -> Result<Option<u64>, Fault> {
        let partition = self.partition(number).ok_or(Fault::PartitionUnknown)?;
        let marks = partition.marks.as_ref();
        let marks = marks.filter(|marks| marks.owner == ring.unwrap_or(0));
        let marks = marks.ok_or(Fault::BadRequest)?;
        let (sweep, cursor) = (marks.number, marks.cursor);
        let from = cursor.extent.max(partition.first_extent);
        let next = (from..marks.upto).find(|extent| partition.extent(*extent).is_some());
        let Some(extent) = next else {
            self.end_sweep(number, sweep);
            return Ok(None);
        };
        let block = if extent > cursor.extent {
            0
        } else {
            cursor.block
        };
        let found = self.sweep_block(ring, number, extent, block, sweep)?;
        let next = if block + 1 == BLOCKS {
            (extent + 1, 0)
        } else {
            (extent, block + 1)
        };
        let partition = self.partition_mut(number);
        if let Some(marks) = partition.and_then(|partition| partition.marks.as_mut()) {
            (marks.cursor.extent, marks.cursor.block) = next;
        }
        Ok(Some(found))
    }

    fn end_sweep(&mut self, number: u16, sweep: u64) {
        self.marking.remove(&number);
        if let Some(partition) = self.partition_mut(number) {
            partition.swept = sweep;
            partition.marks = None;
        }
    }

    fn sweep_block(
        &mut self,
        ring: Option<u32>,
        number: u16,
        extent: u32,
        at: usize,
        sweep: u64,
    ) -> Result<u64, Fault> {
        self.make_room()?;
        let known = self
            .partition(number)
            .and_then(|partition| partition.extent(extent));
        if known.is_none_or(|extent| {
            let block = &extent.blocks[at];
            block.live == 0 || (block.frame.is_none() && block.disk.is_none())
        }) {
            return Ok(0);
        }
        self.present(number, extent, at)?;
        let (mut garbage, mut rescued) = (Vec::new(), Vec::new());
        {
            let partition = self.partition(number).ok_or(Fault::PartitionUnknown)?;
            let found = partition
                .extent(extent)
                .and_then(|extent| extent.blocks[at].frame.as_ref());
            let (Some(frame), Some(marks)) = (found, &partition.marks) else {
                return Ok(0);
            };
            for slot_at in 0..SLOTS {
                let slot = frame.slot(slot_at);
                let index = u16::try_from(at * SLOTS + slot_at).map_err(|_| Fault::BadRequest)?;
                let Some(fid) = Fid::permanent(number, slot.generation, extent, index)
                    .filter(|_| slot.is_live())
                else {
                    continue;
                };
                let held = self.quarantine.contains_key(&fid.bits());
                match (marks.has(extent, index), held) {
                    (true, true) => rescued.push(fid),
                    (false, false) => garbage.push(fid),
                    _ => {}
                }
            }
        }
        for fid in rescued {
            self.quarantine.remove(&fid.bits());
        }
        for fid in &garbage {
            if let Some(ring) = ring {
                self.log_entry(ring, &Entry::Swept(sweep, *fid))?;
            }
            self.quarantine.insert(fid.bits(), sweep);
        }
        Ok(garbage.len() as u64)
    }

    /// Frees a slot; it may be given out again when the ring's record is in the log.
    fn free_logged(&mut self, ring: Option<u32>, fid: Fid) -> Result<(), Fault> {
        let again = self.free_slot(fid)?;
        let Some(ring) = ring else {
            return Ok(());
        };
        let own = self
            .partition(fid.partition())
            .and_then(|partition| partition.extent(fid.extent()));
        if let Some(column) = own
            .filter(|extent| extent.own && again)
            .map(|extent| extent.column)
        {
            self.rings.frees(ring, column, fid);
        }
        Ok(())
    }

    /// Frees the slot of a value whose block is in memory. Gives whether it has a generation left.
    pub(super) fn free_slot(&mut self, fid: Fid) -> Result<bool, Fault> {
        self.present(
            fid.partition(),
            fid.extent(),
            usize::from(fid.index() >> 10),
        )?;
        let partition = self
            .partitions
            .get_mut(usize::from(fid.partition()))
            .and_then(Option::as_deref_mut);
        let partition = partition.ok_or(Fault::PartitionUnknown)?;
        let before = partition.slabs.used();
        let found = partition.block_mut(fid.extent(), usize::from(fid.index() >> 10));
        let (block, slabs) = found.ok_or(Fault::ForgedFid)?;
        let frame = block.frame.as_mut().ok_or(Fault::OutOfMemory)?;
        let again = frame.free(usize::from(fid.index()), slabs);
        block.dirty = true;
        block.live = block.live.saturating_sub(1);
        self.strings -= before - partition.slabs.used();
        Ok(again)
    }

    /// A quarantined value that a manifest names.
    pub(super) fn hold(&mut self, fid: Fid, sweep: u64) -> Result<(), Error> {
        if sweep > self.sweep || self.quarantine.insert(fid.bits(), sweep).is_some() {
            return Err(Error::new(&code::STORE_MANIFEST, "the quarantine"));
        }
        Ok(())
    }
}
