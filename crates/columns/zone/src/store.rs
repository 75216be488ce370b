//! The mapping store: from FIDs to values, in locked memory, on disk as a sealed checkpoint.
//!
//! Its five operations are those of the published design: [`Store::put`], [`Store::get`],
//! [`Store::delete`], [`Store::flush_log`], [`Store::recover`]. The log is the host's: the host
//! keeps what `flush_log` returns, and gives it back to `recover` after a start. Invariants S1 to
//! S7, L1 to L7, F1 to F4 are in docs/internals/columns.md, the bytes in docs/spec/columns.md.
//!
//! Operations that a ring asks for return a [`Fault`]; [`Store::take_last_error`] has the error
//! behind it, for the zone's log. Must not: know what a value means, who may see it, or anything of
//! PostgreSQL but the three numbers of a relation's files.

mod anchor;
mod block_address;
mod block_cache;
mod census;
mod checkpoint;
mod checkpoint_request;
mod column_keys;
mod durability;
mod faults;
mod files;
mod frame;
mod free_space;
mod image;
mod key_ledgers;
pub(crate) mod keyed_order;
mod log;
mod lookup;
mod made_for;
mod marks;
pub(crate) mod memory;
mod open;
mod paging;
mod partition;
mod partition_table;
mod partitions;
mod pools;
mod promotion;
mod publication;
mod reclaim;
mod reclamation;
mod recover;
mod redo_log;
mod replay;
mod seal;
mod slab;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use strongroom_columns_ring::Fault;
use strongroom_columns_values::Value;
use strongroom_crypto::SecretKey;
use strongroom_format::code;
use strongroom_format::columns::block::VALUE_MAX;
use strongroom_format::columns::{Fid, Kind};
use strongroom_keyring::Error;

pub use anchor::{Anchor, FileAnchor, TpmAnchor};
pub use census::Census;
pub use column_keys::Binding;
pub use faults::fault_of;
pub use files::{ANCHOR_NAME, BLOCKS_NAME, Directory, Files, HEADER_NAME, LOG_NAME, MANIFEST_NAME};
pub use log::{LogFile, LogStorage};
pub use lookup::StoredValue;
pub use open::{Options, create, open};
pub use promotion::{Promotion, Source};
pub use publication::{Publication, Unpublished};
pub use reclaim::SweepResult;
pub use redo_log::Record;
pub use seal::Keys;

use block_address::BlockAddress;
use block_cache::BlockCache;
use durability::Durability;
use faults::Failure;
use keyed_order::KeyedOrder;
use lookup::{Lookup, find_each, value_of};
use memory::Memory;
use partition::{Chosen, Refusal};
use partition_table::PartitionTable;
use reclamation::Reclamation;
use redo_log::RedoLog;
use replay::{Phase, Replay};

use crate::key_ledger::KeyLedgers;

/// Figures of a store. No values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Partitions in use.
    pub partitions: usize,
    /// Bytes that values take in memory, unused bytes of their slots included.
    pub resident: u64,
    /// Bytes mapped from the system.
    pub mapped: u64,
    /// Bytes of values that may be in memory.
    pub limit: u64,
    /// Bytes of the block file.
    pub disk: u64,
    /// Values, including garbage that was not freed yet.
    pub values: u64,
    /// Values in quarantine.
    pub quarantine: usize,
    /// The position that the last checkpoint has made durable.
    pub position: u64,
    /// Counter of the freshness anchor.
    pub counter: u64,
    /// Whether all memory is locked; if not, SR-8026 is to be shown.
    pub locked: bool,
    /// Whether the host's log is still to be replayed.
    pub recovering: bool,
}

/// The mapping store of one zone.
pub struct Store {
    keys: Keys,
    anchor: Arc<dyn Anchor>,
    partitions: PartitionTable,
    cache: BlockCache,
    /// Keys of bound columns, by their ids.
    column_keys: BTreeMap<[u8; 16], SecretKey>,
    /// Of column keys that were kept before, by their ids, the keys of proofs.
    former_keys: BTreeMap<[u8; 16], SecretKey>,
    keyed_order: KeyedOrder,
    key_ledgers: KeyLedgers,
    reclamation: Reclamation,
    durability: Durability,
    redo: RedoLog,
    replay: Replay,
    /// The error of the last fault.
    last_error: Option<Error>,
}

impl Store {
    /// The value of `fid`, and its kind and column. Reads its block from disk if it is not in
    /// memory, for which others may be evicted.
    ///
    /// # Errors
    /// [`Fault::StaleFid`] for what existed earlier, [`Fault::ForgedFid`] for what never did;
    /// [`Fault::Recovering`] before the host's log is replayed; [`Fault::StoreDamaged`],
    /// [`Fault::StoreIo`], [`Fault::OutOfMemory`] if its block is damaged, cannot be read, or has
    /// no room in memory.
    #[inline]
    pub fn get(&mut self, fid: Fid) -> Result<StoredValue<'_>, Fault> {
        if matches!(self.find(fid)?, Lookup::OnDisk) {
            self.fetch(&[fid])?;
        }
        self.peek(fid)?.ok_or(Fault::OutOfMemory)
    }

    /// The value of `fid` if its block is in memory. `None` if the block is on disk only, and
    /// [`Store::ensure_resident`] has to read it first.
    ///
    /// # Errors
    /// [`Fault::StaleFid`] for what existed earlier, [`Fault::ForgedFid`] for what never did;
    /// [`Fault::Recovering`] before the host's log is replayed.
    #[inline]
    pub fn peek(&self, fid: Fid) -> Result<Option<StoredValue<'_>>, Fault> {
        let Lookup::Resident(partition, extent, frame) = self.find(fid)? else {
            return Ok(None);
        };
        value_of(partition, extent, frame, fid).map(Some)
    }

    /// Calls `take` with the number and the value, or the fault, of each of these identifiers, as
    /// [`Store::get`] returns it, in this order. Reads blocks from disk as needed.
    pub(crate) fn get_each(
        &mut self,
        fids: &[(usize, Fid)],
        mut take: impl FnMut(usize, Result<StoredValue<'_>, Fault>),
    ) {
        if let Err(fault) = self.check_recovered() {
            fids.iter()
                .for_each(|(number, _)| take(*number, Err(fault)));
            return;
        }
        let mut rest = fids;
        loop {
            rest = find_each(&self.partitions, rest, &mut take);
            let Some(((number, fid), others)) = rest.split_first() else {
                return;
            };
            // Its block is on disk.
            take(*number, self.get(*fid));
            rest = others;
        }
    }

    /// Looks up where the value's block is, and marks it as used. `Fault::StaleFid` for what
    /// existed earlier, `Fault::ForgedFid` for what never did, `Fault::Recovering` before the log
    /// is replayed.
    #[inline]
    fn find(&self, fid: Fid) -> Result<Lookup<'_>, Fault> {
        self.check_recovered()?;
        lookup::find(&self.partitions, fid)
    }

    /// Reads the blocks of these identifiers into memory, where they stay until the next operation
    /// that takes `&mut self`; may evict others. Ignores identifiers that lead nowhere:
    /// [`Store::peek`] reports them.
    ///
    /// # Errors
    /// [`Fault::StoreDamaged`], [`Fault::StoreIo`], [`Fault::OutOfMemory`] if a block is damaged,
    /// cannot be read, or room cannot be made for it.
    pub fn ensure_resident(&mut self, fids: &[Fid]) -> Result<(), Fault> {
        let on_disk = |fid: &Fid| matches!(self.find(*fid), Ok(Lookup::OnDisk));
        if !fids.iter().any(on_disk) {
            return Ok(());
        }
        self.fetch(fids)
    }

    /// Two values at once, for comparing, read from disk if needed.
    ///
    /// # Errors
    /// [`Fault::StaleFid`] for what existed earlier, [`Fault::ForgedFid`] for what never did;
    /// [`Fault::Recovering`] before the host's log is replayed; [`Fault::StoreDamaged`],
    /// [`Fault::StoreIo`], [`Fault::OutOfMemory`] if a block cannot be read.
    pub fn get_pair(
        &mut self,
        a: Fid,
        b: Fid,
    ) -> Result<(StoredValue<'_>, StoredValue<'_>), Fault> {
        self.ensure_resident(&[a, b])?;
        match (self.peek(a)?, self.peek(b)?) {
            (Some(a), Some(b)) => Ok((a, b)),
            _ => Err(Fault::OutOfMemory),
        }
    }

    /// Stores a new value of a column, in memory, and returns its identifier. It is in the ring's
    /// next redo record, unless `ring` is `None` (an unlogged table). May evict blocks, or make a
    /// checkpoint, to make room.
    ///
    /// # Errors
    /// [`Fault::Recovering`] while the log is replayed or followed; [`Fault::PartitionUnknown`] if
    /// there is no such partition; [`Fault::KindMismatch`] if the column has values of another
    /// kind; [`Fault::StringTooLong`] for a value that is too long; [`Fault::OutOfMemory`] if no
    /// memory is left; [`Fault::PartitionsExhausted`] if the partition has no identifier left;
    /// [`Fault::BadRequest`] if the ring is not attached or its record is full; those of writing
    /// evicted blocks.
    pub fn put(
        &mut self,
        ring: Option<u32>,
        partition: u16,
        column: u16,
        kind: Kind,
        value: Value<'_>,
    ) -> Result<Fid, Fault> {
        self.check_writable()?;
        self.make_room()?;
        self.put_logged(ring, partition, column, kind, value)
    }

    /// Returns and forgets the error that was noted last, for the zone's own log. `None` if there
    /// is none.
    pub fn take_last_error(&mut self) -> Option<Error> {
        self.last_error.take()
    }

    /// The locked memory of the store, for values that are about to be put.
    pub(crate) fn memory(&self) -> &Arc<Memory> {
        &self.cache.pools.memory
    }

    /// Returns the store's present figures: how many partitions and values it has, how many bytes
    /// in memory and on disk, what the last checkpoint reached, whether all memory is locked, and
    /// whether the host's log is still to be replayed. Takes no lock.
    #[must_use]
    pub fn status(&self) -> Status {
        Status {
            partitions: self.partitions.len(),
            resident: self.cache.resident(),
            mapped: self.cache.pools.memory.mapped(),
            limit: self.cache.limit,
            disk: self.cache.free_space.end(),
            values: self
                .partitions
                .iter()
                .map(|(_, partition)| partition.values())
                .sum(),
            quarantine: self.reclamation.quarantined_count(),
            position: self.durability.position,
            counter: self.durability.counter,
            locked: self.cache.pools.memory.is_locked(),
            recovering: self.is_recovering(),
        }
    }

    /// Fails with `Fault::Recovering` until the host's log is replayed: before that a value may be
    /// missing (L4).
    fn check_recovered(&self) -> Result<(), Fault> {
        if self.replay.phase == Phase::Replaying {
            Err(Fault::Recovering)
        } else {
            Ok(())
        }
    }

    /// Fails with `Fault::Recovering` while only the log may change values: while it is replayed or
    /// followed.
    fn check_writable(&self) -> Result<(), Fault> {
        if self.replay.phase == Phase::Serving {
            Ok(())
        } else {
            Err(Fault::Recovering)
        }
    }

    /// Stores a value, and adds it to the ring's next redo record, unless there is no ring. If that
    /// fails, takes the value back. Fails as [`Store::put`].
    fn put_logged(
        &mut self,
        ring: Option<u32>,
        partition: u16,
        column: u16,
        kind: Kind,
        value: Value<'_>,
    ) -> Result<Fid, Fault> {
        let fid = self.put_value(partition, column, kind, value)?;
        let Some(ring) = ring else {
            return Ok(fid);
        };
        let logged = self.log_put(ring, fid, column, kind, value);
        if let Err(fault) = logged {
            self.undo_put(fid);
            return Err(fault);
        }
        Ok(fid)
    }

    /// Stores a value in a free slot of its column, in memory, and returns its identifier. The
    /// caller adds it to the redo record. `Fault::StringTooLong` for a value that is too long,
    /// `Fault::BadRequest` for a number that no column has,
    /// `Fault::PartitionUnknown` if there is no such partition, `Fault::KindMismatch` if the column
    /// has values of another kind, `Fault::PartitionsExhausted` if the partition has no identifier
    /// left, `Fault::OutOfMemory` if no memory is left; those of a checkpoint.
    fn put_value(
        &mut self,
        number: u16,
        column: u16,
        kind: Kind,
        value: Value<'_>,
    ) -> Result<Fid, Fault> {
        if matches!(value, Value::Bytes(bytes) if bytes.len() > VALUE_MAX) {
            return Err(Fault::StringTooLong);
        }
        column_keys::check_column(column)?;
        let chosen = self.choose(number, column, kind)?;
        let at = BlockAddress::at_slot(number, chosen.extent, chosen.index);
        self.bring_in(at)?;
        let partition = self.partitions.get_mut(number);
        let partition = partition.ok_or(Fault::PartitionUnknown)?;
        let before = partition.slabs.used();
        let (block, slabs) = partition
            .block_mut(at.extent, at.index())
            .ok_or(Fault::OutOfMemory)?;
        let frame = block.frame.as_mut().ok_or(Fault::OutOfMemory)?;
        let slot_at = usize::from(chosen.index);
        let generation = frame.slot(slot_at).generation;
        frame
            .put(slot_at, generation, value, slabs, &self.cache.pools)
            .map_err(|_| Fault::OutOfMemory)?;
        block.dirty = true;
        block.live = block.live.saturating_add(1);
        block.touched.store(true, Ordering::Relaxed);
        self.cache.out_of_line += partition.slabs.used() - before;
        partition.take_chosen(column);
        if let Some(marks) = &mut partition.marks {
            marks.set(chosen.extent, chosen.index);
        }
        Fid::permanent(number, generation, chosen.extent, chosen.index)
            .ok_or(Fault::PartitionUnknown)
    }

    /// Chooses a free slot for a value of this column; the slot is not taken yet. Makes a
    /// checkpoint if extents must be reserved first. `Fault::KindMismatch` if the column has values
    /// of another kind, `Fault::PartitionsExhausted` if no identifier is left; those of the
    /// checkpoint.
    fn choose(&mut self, number: u16, column: u16, kind: Kind) -> Result<Chosen, Fault> {
        for _ in 0..2 {
            let partition = self
                .partitions
                .get_mut(number)
                .ok_or(Fault::PartitionUnknown)?;
            match partition.choose(column, kind) {
                Ok(chosen) => {
                    if partition.is_reserve_low() {
                        self.request_in_place();
                    }
                    return Ok(chosen);
                }
                Err(Refusal::Kind) => return Err(Fault::KindMismatch),
                Err(Refusal::Full) => return Err(self.report(Error::new(&code::EXTENTS_FULL, ""))),
                Err(Refusal::Random(error)) => return Err(self.report(error.into())),
                // F4: extents that are not reserved might be given out again after a crash.
                Err(Refusal::Reserve) => {
                    let done = self.checkpoint_in_place();
                    done.map_err(|error| self.report(error))?;
                }
            }
        }
        Err(Fault::PartitionsExhausted)
    }

    /// Frees the slot of a value that was just put, if nobody was told its identifier. That there
    /// is no such value is a defect, which is noted for [`Self::take_last_error`].
    fn undo_put(&mut self, fid: Fid) {
        // Its slot is lost for this incarnation unless a later sweep finds it: simple, and rare.
        if self.free_slot(fid).is_err() {
            self.last_error = Some(Error::new(
                &code::BUG,
                "a value that was just put is not there",
            ));
        }
    }

    /// Notes an error for [`Self::take_last_error`], and returns the fault that a ring gets for it.
    pub(crate) fn report(&mut self, error: Error) -> Fault {
        let fault = fault_of(error.code());
        self.last_error = Some(error);
        fault
    }

    /// Returns the fault that a ring gets for a failure. If the failure is an error, notes it first
    /// for [`Self::take_last_error`].
    fn report_failure(&mut self, failure: Failure) -> Fault {
        match failure {
            Failure::Fault(fault) => fault,
            Failure::Error(error) => self.report(error),
        }
    }
}

/// Compiles only for a type that can be sent between threads: a zone's threads share the store
/// under a lock.
const fn shareable<T: Send>() {}
const _: () = shareable::<Store>();
