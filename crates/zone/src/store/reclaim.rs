//! Reclamation: delete, and mark and sweep with a quarantine.
//!
//! The host marks what it can still reach; a sweep puts the rest into quarantine, where it can still be resolved; when a second sweep has not
//! found it marked either, and the host says that nobody can hold it, it is freed. Values that are given out while marks are
//! collected are marked. Invariants: F1 (a freed slot has the next generation), S1. Must not: free what was not in quarantine, but for
//! [`Store::delete`].

use std::collections::BTreeMap;

use strongroom_format::code;
use strongroom_format::columns::Fid;
use strongroom_format::columns::redo::Entry;
use strongroom_keyring::Error;
use strongroom_rpc::Fault;

use super::Store;
use super::frame::SLOTS;
use super::partition::BLOCKS;

/// Words of an extent's marks.
const WORDS: usize = 1024;

/// The marks of one partition: a bit for each slot.
pub(super) struct Marks {
    extents: BTreeMap<u32, Box<[u64; WORDS]>>,
    /// Extents from here on were opened after marking began.
    upto: u32,
}

/// How far a sweep is.
pub(super) struct Cursor {
    number: u64,
    partitions: Vec<u16>,
    extent: u32,
    block: usize,
}

/// What a step of a sweep has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Swept {
    /// Number of the sweep, for [`Store::free`].
    pub sweep: u64,
    /// Values that this step put into quarantine.
    pub found: u64,
    /// Whether the sweep is through.
    pub done: bool,
}

impl Marks {
    fn new(upto: u32) -> Self {
        Self {
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
        self.make_room()?;
        self.get(fid)?;
        if let Some(ring) = ring {
            self.log_entry(ring, &Entry::Freed(fid))?;
        }
        self.quarantine.remove(&fid.bits());
        self.free_logged(ring, fid)
    }

    /// Begins marking in one partition, or in all: values given out from now on are not swept. Marks from before are forgotten. Answers with
    /// the number of the sweep that will follow. The host marks only after every transaction that was under way has ended.
    ///
    /// # Errors
    /// [`Fault::PartitionUnknown`], [`Fault::Recovering`]; [`Fault::BadRequest`] while a sweep is under way.
    pub fn mark_begin(&mut self, partition: Option<u16>) -> Result<u64, Fault> {
        self.admit()?;
        if self.sweeping.is_some() {
            return Err(Fault::BadRequest);
        }
        if let Some(number) = partition {
            let partition = self.partition_mut(number).ok_or(Fault::PartitionUnknown)?;
            partition.marks = Some(Marks::new(partition.next_extent));
        } else {
            for partition in self.partitions.iter_mut().flatten() {
                partition.marks = Some(Marks::new(partition.next_extent));
            }
        }
        Ok(self.sweep + 1)
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

    /// Puts values that were not marked into quarantine, about `limit` of them; to be called until it is done. What an earlier sweep had
    /// put there and is marked now leaves it.
    ///
    /// # Errors
    /// As [`Store::get`], for reading; the sweep goes on with the next call.
    pub fn sweep(&mut self, ring: Option<u32>, limit: u64) -> Result<Swept, Fault> {
        self.admit()?;
        if self.sweeping.is_none() {
            let marked = self
                .numbered()
                .filter(|(_, partition)| partition.marks.is_some());
            let partitions: Vec<u16> = marked.map(|(number, _)| number).collect();
            self.sweep += 1;
            self.sweeping = Some(Cursor {
                number: self.sweep,
                partitions,
                extent: 0,
                block: 0,
            });
        }
        let mut cursor = self.sweeping.take().ok_or(Fault::BadRequest)?;
        let mut found = 0;
        let stepped = loop {
            if found >= limit {
                break Ok(false);
            }
            match self.sweep_step(ring, &mut cursor) {
                Ok(Some(more)) => found += more,
                Ok(None) => break Ok(true),
                Err(fault) => break Err(fault),
            }
        };
        let sweep = cursor.number;
        if stepped != Ok(true) {
            self.sweeping = Some(cursor);
        }
        stepped.map(|done| Swept { sweep, found, done })
    }

    /// Frees values that are in quarantine since sweep `upto` or before, and that a later sweep has not found marked either; about `limit`
    /// of them. The host vouches that nobody holds them. Answers with their number; 0 when there are none left.
    ///
    /// # Errors
    /// As [`Store::get`], for reading.
    pub fn free(&mut self, ring: Option<u32>, upto: u64, limit: usize) -> Result<u64, Fault> {
        self.admit()?;
        let due = self.quarantine.iter().filter(|(bits, sweep)| {
            let partition = Fid::from_bits(**bits).and_then(|fid| self.partition(fid.partition()));
            **sweep <= upto && partition.is_some_and(|partition| partition.swept > **sweep)
        });
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
    fn sweep_step(&mut self, ring: Option<u32>, cursor: &mut Cursor) -> Result<Option<u64>, Fault> {
        let Some(number) = cursor.partitions.last().copied() else {
            return Ok(None);
        };
        let next = self.partition(number).and_then(|partition| {
            let marks = partition.marks.as_ref()?;
            partition
                .numbers()
                .find(|extent| *extent >= cursor.extent && *extent < marks.upto)
        });
        let Some(extent) = next else {
            self.end_partition(number, cursor.number);
            cursor.partitions.pop();
            (cursor.extent, cursor.block) = (0, 0);
            return Ok(Some(0));
        };
        if extent > cursor.extent {
            (cursor.extent, cursor.block) = (extent, 0);
        }
        let found = self.sweep_block(ring, number, extent, cursor.block, cursor.number)?;
        cursor.block += 1;
        if cursor.block == BLOCKS {
            (cursor.extent, cursor.block) = (extent + 1, 0);
        }
        Ok(Some(found))
    }

    fn end_partition(&mut self, number: u16, sweep: u64) {
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
            extent.blocks[at].frame.is_none() && extent.blocks[at].disk.is_none()
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
