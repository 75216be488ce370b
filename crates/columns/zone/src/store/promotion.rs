//! Promotion: values become permanent, with a redo record that has all of them; and what rings and
//! the host say of redo records.
//!
//! Invariants: L1 (a promotion's record has all of its values), L6 (slots that a record frees are
//! given out again only when the record is in the host's log). Must not: seal a record.

use strongroom_columns_ring::Fault;
use strongroom_columns_values::Value;
use strongroom_format::columns::redo::Entry;
use strongroom_format::columns::{Fid, Kind};
use strongroom_keyring::Error;

use super::block_address::BlockAddress;
use super::memory::Buffer;
use super::redo_log::{FollowUp, Record};
use super::{Store, StoredValue};

/// A value that is to become permanent.
#[derive(Clone, Copy)]
pub enum Source<'a> {
    /// An ephemeral's value.
    Value(Value<'a>),
    /// A value of the store. One of the target's partition and column keeps its identifier.
    Stored(Fid),
}

/// One value of a promotion.
#[derive(Clone, Copy)]
pub struct Promotion<'a> {
    /// The value.
    pub source: Source<'a>,
    /// Column of the target (`attnum`).
    pub column: u16,
    /// Kind of that column.
    pub kind: Kind,
}

impl Store {
    /// A number for a new ring, for its redo records. It continues the chain of a ring that has
    /// ended, if there is one.
    pub fn attach(&mut self) -> u32 {
        self.redo.attach(&self.cache.pools.memory)
    }

    /// Ends a ring. Its entries that are in no record yet are forgotten, because no host refers to
    /// their values, and so are the marks that it has set.
    pub fn detach(&mut self, ring: u32) {
        self.redo.detach(ring);
        self.forget_marks(ring);
    }

    /// `FlushLog`: seals what the ring has done since its last record, and returns this record.
    /// `None` if it has done nothing. The host has to insert it into its log before anything that
    /// refers to its values.
    ///
    /// # Errors
    /// [`Fault::BadRequest`] for a ring that is not attached; [`Fault::OutOfMemory`] if no memory
    /// is left: then the next record has it all. If the cipher itself fails, no record has it.
    pub fn flush_log(&mut self, ring: u32) -> Result<Option<Record>, Fault> {
        self.redo
            .seal(&self.keys, ring)
            .map_err(|failure| self.report_failure(failure))
    }

    /// Notes that the host has inserted the ring's record of this number into its log: slots that
    /// it freed may be given out again. Earlier records of the ring that were not inserted are
    /// given up. Nothing for an unknown number.
    pub fn confirm_inserted(&mut self, ring: u32, number: u64) {
        let Some(FollowUp {
            freed,
            opened,
            dropped,
        }) = self.redo.confirm(ring, number)
        else {
            return;
        };
        for (number, stamp) in opened {
            // A partition that was given to another relation since is not known as that one's.
            let found = self.partitions.get_mut(number);
            if let Some(partition) = found.filter(|found| found.stamp == stamp) {
                partition.announced = true;
            }
        }
        for number in dropped {
            if let Some(dropped) = self.partitions.dropped.get_mut(&number) {
                dropped.logged = true;
            }
        }
        for (column, bits) in freed {
            self.reuse_slot(column, bits);
        }
    }

    /// Notes that the host was started anew, with new shared memory. Records that were only in the
    /// old memory are lost, although the rings of its backends have confirmed them and this store
    /// has their values. Makes a checkpoint, so that this store needs no record from before; its
    /// position stays, because only the reader of the log knows how far the log is. A replica, or
    /// an older copy of this store, has no such checkpoint: so the next record of each ring names
    /// no predecessor, and records have the openings of all partitions again (L2).
    ///
    /// # Errors
    /// Those of [`Store::checkpoint`]; nothing begins anew then.
    pub fn begin_server_generation(&mut self) -> Result<(), Error> {
        self.checkpoint_in_place()?;
        self.redo.begin_links_anew();
        for partition in self.partitions.iter_mut() {
            partition.announced = false;
        }
        Ok(())
    }

    /// Lets the slot of the identifier `bits` be given out again for the column, if its partition
    /// and extent are still those that it was freed in.
    fn reuse_slot(&mut self, column: u16, bits: u64) {
        let Some(fid) = Fid::from_bits(bits) else {
            return;
        };
        let Some(partition) = self.partitions.get_mut(fid.partition()) else {
            return;
        };
        let same = partition
            .extent(fid.extent())
            .is_some_and(|extent| extent.own && extent.column == column);
        if let Some(open) = partition.open.get_mut(&column).filter(|_| same) {
            open.reusable.push(bits);
        }
    }

    /// Stores values permanently in `partition`, and returns the redo record of them, sealed with
    /// whatever else the ring had pending. `None` if there is nothing to log. `fids` gets one
    /// identifier for each item; if an item fails it is empty, and nothing was promoted.
    ///
    /// # Errors
    /// As [`Store::put`] and [`Store::get`], for example [`Fault::StaleFid`] for a value that no
    /// longer exists, [`Fault::Recovering`] while the host's log is replayed or followed;
    /// [`Fault::KindMismatch`] for a stored value of another kind; those of [`Store::flush_log`],
    /// after which the values are there, for the next record if that can have them.
    pub fn promote(
        &mut self,
        ring: u32,
        partition: u16,
        items: &[Promotion<'_>],
        fids: &mut Vec<Fid>,
    ) -> Result<Option<Record>, Fault> {
        self.check_writable()?;
        self.make_room()?;
        fids.clear();
        let before = self.redo.savepoint(ring)?;
        let mut made = Vec::new();
        let mut result = Ok(());
        for item in items {
            match self.promote_one(ring, partition, item, &mut made) {
                Ok(fid) => fids.push(fid),
                Err(fault) => {
                    result = Err(fault);
                    break;
                }
            }
        }
        if let Err(fault) = result {
            fids.clear();
            for fid in made {
                self.undo_put(fid);
            }
            self.redo.roll_back(ring, before);
            return Err(fault);
        }
        self.flush_log(ring)
    }

    /// Stores one value, adds it to the ring's next record, and appends its identifier to `made`. A
    /// stored value that is in its column already keeps its identifier, and is only marked as
    /// reachable; one of another place is copied. `Fault::KindMismatch` for a stored value of
    /// another kind; faults of reading and of storing.
    fn promote_one(
        &mut self,
        ring: u32,
        partition: u16,
        item: &Promotion<'_>,
        made: &mut Vec<Fid>,
    ) -> Result<Fid, Fault> {
        let fid = match item.source {
            Source::Value(value) => {
                self.put_logged(Some(ring), partition, item.column, item.kind, value)?
            }
            Source::Stored(fid) => {
                let held = self.get_without_evicting(fid)?;
                if held.kind != item.kind {
                    return Err(Fault::KindMismatch);
                }
                if fid.partition() == partition && held.column == item.column {
                    self.mark_reachable(fid);
                    return Ok(fid);
                }
                self.put_copy(ring, partition, item, fid)?
            }
        };
        made.push(fid);
        Ok(fid)
    }

    /// The value of `fid`, read from disk if needed. Evicts nothing, so that the blocks that a
    /// batch has read stay in memory. `Fault::StaleFid` for a value that existed earlier,
    /// `Fault::ForgedFid` for one that never did; faults of reading its block.
    fn get_without_evicting(&mut self, fid: Fid) -> Result<StoredValue<'_>, Fault> {
        if self.peek(fid)?.is_none() {
            self.bring_in(BlockAddress::of(fid))?;
        }
        self.peek(fid)?.ok_or(Fault::OutOfMemory)
    }

    /// Stores a copy of the stored value `fid` in the item's column, and adds it to the ring's next
    /// record. Faults of reading and of storing.
    fn put_copy(
        &mut self,
        ring: u32,
        partition: u16,
        item: &Promotion<'_>,
        fid: Fid,
    ) -> Result<Fid, Fault> {
        let mut copy = Buffer::new(&self.cache.pools.memory);
        let word = match self.get_without_evicting(fid)?.value {
            Value::Word(word) => Some(word),
            Value::Bytes(bytes) => {
                copy.extend(bytes).map_err(|_| Fault::OutOfMemory)?;
                None
            }
        };
        let value = word.map_or(Value::Bytes(copy.as_slice()), Value::Word);
        self.put_logged(Some(ring), partition, item.column, item.kind, value)
    }

    /// Adds a new value to the ring's next redo record, with the binding of its column, and with
    /// the opening of its partition where that is not yet known to be in the log.
    /// `Fault::BadRequest` if the record is full or the ring unknown; `Fault::PartitionUnknown` if
    /// there is no such partition, `Fault::OutOfMemory` if no memory is left.
    pub(super) fn log_put(
        &mut self,
        ring: u32,
        fid: Fid,
        column: u16,
        kind: Kind,
        value: Value<'_>,
    ) -> Result<(), Fault> {
        let number = fid.partition();
        self.log_opening(ring, number)?;
        self.log_binding(ring, number, column)?;
        let entry = match value {
            Value::Word(word) => Entry::Word {
                fid,
                column,
                kind,
                word: word.to_le_bytes(),
            },
            Value::Bytes(bytes) => Entry::Bytes {
                fid,
                column,
                kind,
                bytes,
            },
        };
        self.redo.append(ring, &entry)
    }
}
