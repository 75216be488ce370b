//! The mapping store: from FIDs to values, in locked memory, on disk as a sealed checkpoint.
//!
//! Its five operations are those of the published design: [`Store::put`], [`Store::get`], [`Store::delete`], [`Store::flush_log`],
//! [`Store::recover`]. The log is the host's: what `flush_log` gives, the host keeps, and gives back to `recover` after a start.
//! Invariants S1 to S7, L1 to L7, F1 to F4 are in docs/internals/columns.md, the bytes in docs/spec/columns.md.
//!
//! Operations that a ring asks for answer with a [`Fault`]; what lies behind it, for the zone's log, is in [`Store::take_trouble`].
//! Must not: know what a value means, who may see it, or anything of PostgreSQL but the three numbers of a relation's files.

mod anchor;
mod census;
mod checkpoint;
mod column_keys;
mod files;
mod frame;
mod image;
mod log;
pub(crate) mod memory;
mod open;
mod paging;
mod partition;
mod partitions;
mod places;
mod reclaim;
mod recover;
mod redo;
mod seal;
mod slab;
mod space;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use strongroom_columns_ring::Fault;
use strongroom_columns_values::Value;
use strongroom_crypto::{CryptoError, GcmKey, SecretKey};
use strongroom_format::code::{self, Code};
use strongroom_format::columns::block::VALUE_MAX;
use strongroom_format::columns::redo::Relation;
use strongroom_format::columns::{Fid, Kind};
use strongroom_keyring::Error;

pub use anchor::{Anchor, FileAnchor, TpmAnchor};
pub use census::Census;
pub use column_keys::Binding;
pub use files::{ANCHOR_NAME, BLOCKS_NAME, Directory, Files, HEADER_NAME, LOG_NAME, MANIFEST_NAME};
pub use log::{LogFile, LogStorage};
pub use open::{Options, create, open};
pub use reclaim::Swept;
pub use redo::{Promotion, Record, Source};
pub use seal::Keys;

use frame::{FRAME, Frame};
use memory::{Buffer, Memory, NoMemory};
use partition::{Chosen, Extent, Partition, Refusal};
use partitions::Dropped;
use places::Places;
use redo::Rings;
use space::Space;

/// A value, and what its place says about it.
#[derive(Clone, Copy)]
pub struct Held<'a> {
    /// The value.
    pub value: Value<'a>,
    /// Kind of its column.
    pub kind: Kind,
    /// Its column (`attnum`).
    pub column: u16,
}

/// Figures of a store. No values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Partitions in use.
    pub partitions: usize,
    /// Bytes of values in memory, room included.
    pub resident: u64,
    /// Bytes mapped from the system.
    pub mapped: u64,
    /// Bytes of values that may be in memory.
    pub limit: u64,
    /// Bytes of the block file.
    pub disk: u64,
    /// Values, garbage that was not freed yet included.
    pub values: u64,
    /// Values in quarantine.
    pub quarantine: usize,
    /// The position that the last checkpoint has made durable.
    pub position: u64,
    /// What the freshness anchor stands at.
    pub counter: u64,
    /// Whether all memory is locked; if not, SR-8026 is to be shown.
    pub locked: bool,
    /// Whether the host's log is still to be replayed.
    pub recovering: bool,
}

/// The mapping store of one zone.
pub struct Store {
    keys: Keys,
    files: Box<dyn Files>,
    anchor: Box<dyn Anchor>,
    space: Space,
    limit: u64,
    /// By number. A vector, because every access to a value goes through it.
    partitions: Vec<Option<Box<Partition>>>,
    /// Partitions made by this process.
    made: u64,
    dropped: BTreeMap<u16, Dropped>,
    relations: BTreeMap<Relation, u16>,
    places: Places,
    /// Places that the last manifest names and the next one will not.
    leaving: Vec<(u64, u64)>,
    /// Blocks in memory.
    frames: u64,
    /// Bytes out of line in memory.
    strings: u64,
    /// Blocks in memory, in the order in which the clock will look at them.
    clock: VecDeque<(u16, u32, u8)>,
    scratch: Buffer,
    /// The record that is being replayed.
    inbox: Buffer,
    stamp: u64,
    block_version: u64,
    floor: u32,
    /// Keys of bound columns.
    kept: BTreeMap<[u8; 16], SecretKey>,
    sweep: u64,
    /// Partitions in which marks are collected, and the ring that does.
    marking: BTreeMap<u16, u32>,
    /// FID bits, and the sweep that found it.
    quarantine: BTreeMap<u64, u64>,
    counter: u64,
    position: u64,
    /// Timeline of the host's log that `position` is of; 0 when that is not known.
    timeline: u32,
    /// Timeline that the host's log is on now.
    host_timeline: u32,
    /// A manifest may be in place that the anchor was not advanced for.
    unsettled: bool,
    /// A sync has failed: nothing is known of what is on disk.
    poisoned: bool,
    incarnation: [u8; 16],
    /// The key of the run of records under way.
    redo_key: (u64, GcmKey),
    redo_nonces: seal::Nonces,
    number: u64,
    rings: Rings,
    chains: recover::Chains,
    recovering: bool,
    /// The log goes on, and is another's: values are read, and none is given out.
    following: bool,
    trouble: Option<Error>,
}

/// Where a FID leads.
enum Found<'a> {
    Here(&'a Partition, &'a Extent, &'a Frame),
    /// Its block is on disk.
    Away,
}

impl Store {
    /// Get: the value of `fid`. Reads its block from disk when it is not in memory.
    ///
    /// # Errors
    /// [`Fault::StaleFid`], [`Fault::ForgedFid`]; [`Fault::Recovering`]; [`Fault::StoreDamaged`], [`Fault::StoreIo`],
    /// [`Fault::OutOfMemory`] when its block cannot be read.
    #[inline]
    pub fn get(&mut self, fid: Fid) -> Result<Held<'_>, Fault> {
        if matches!(self.find(fid)?, Found::Away) {
            self.fetch(&[fid])?;
        }
        self.peek(fid)?.ok_or(Fault::OutOfMemory)
    }

    /// The value of `fid` if its block is in memory; `None` when [`Store::need`] has to bring it first.
    ///
    /// # Errors
    /// As [`Store::get`], but for those of reading.
    #[inline]
    pub fn peek(&self, fid: Fid) -> Result<Option<Held<'_>>, Fault> {
        let Found::Here(partition, extent, frame) = self.find(fid)? else {
            return Ok(None);
        };
        let at = usize::from(fid.index());
        let slot = frame.slot(at);
        if slot.generation != fid.generation() {
            let stale = slot.generation > fid.generation();
            return Err(if stale {
                Fault::StaleFid
            } else {
                Fault::ForgedFid
            });
        }
        let never = if slot.state == strongroom_format::columns::block::state::RETIRED {
            Fault::StaleFid
        } else {
            Fault::ForgedFid
        };
        let value = frame.value(at, &partition.slabs).ok_or(never)?;
        Ok(Some(Held {
            value,
            kind: extent.kind,
            column: extent.column,
        }))
    }

    /// Brings the blocks of these FIDs into memory, where they stay until the next operation that takes `&mut self`. FIDs that lead
    /// nowhere are left to [`Store::peek`].
    ///
    /// # Errors
    /// As [`Store::get`], for reading.
    pub fn need(&mut self, fids: &[Fid]) -> Result<(), Fault> {
        let away = |fid: &Fid| matches!(self.find(*fid), Ok(Found::Away));
        if !fids.iter().any(away) {
            return Ok(());
        }
        self.fetch(fids)
    }

    /// Two values at once, for comparing.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn pair(&mut self, a: Fid, b: Fid) -> Result<(Held<'_>, Held<'_>), Fault> {
        self.need(&[a, b])?;
        match (self.peek(a)?, self.peek(b)?) {
            (Some(a), Some(b)) => Ok((a, b)),
            _ => Err(Fault::OutOfMemory),
        }
    }

    /// Put: a new value of a column. It is in the ring's next redo record, unless `ring` is `None` (an unlogged table).
    ///
    /// # Errors
    /// [`Fault::PartitionUnknown`]; [`Fault::KindMismatch`] when the column has values of another kind; [`Fault::StringTooLong`];
    /// [`Fault::OutOfMemory`]; those of writing evicted blocks.
    pub fn put(
        &mut self,
        ring: Option<u32>,
        partition: u16,
        column: u16,
        kind: Kind,
        value: Value<'_>,
    ) -> Result<Fid, Fault> {
        self.admit_change()?;
        self.make_room()?;
        self.put_logged(ring, partition, column, kind, value)
    }

    /// Why the last operation failed, for the zone's own log; told once.
    pub fn take_trouble(&mut self) -> Option<Error> {
        self.trouble.take()
    }

    /// The memory that values are to be kept in, for those that are on their way here.
    pub(crate) fn memory(&self) -> &Arc<Memory> {
        &self.space.memory
    }

    /// Figures.
    #[must_use]
    pub fn status(&self) -> Status {
        Status {
            partitions: self.relations.len(),
            resident: self.resident(),
            mapped: self.space.memory.mapped(),
            limit: self.limit,
            disk: self.places.end(),
            values: self
                .numbered()
                .map(|(_, partition)| partition.values())
                .sum(),
            quarantine: self.quarantine.len(),
            position: self.position,
            counter: self.counter,
            locked: self.space.memory.is_locked(),
            recovering: self.recovering,
        }
    }

    fn resident(&self) -> u64 {
        self.frames * FRAME as u64 + self.strings
    }

    /// Refuses while the host's log is not replayed (L4).
    fn admit(&self) -> Result<(), Fault> {
        if self.recovering {
            Err(Fault::Recovering)
        } else {
            Ok(())
        }
    }

    /// Refuses to change anything while that is for the log to do.
    fn admit_change(&self) -> Result<(), Fault> {
        self.admit()?;
        if self.following {
            Err(Fault::Recovering)
        } else {
            Ok(())
        }
    }

    #[inline]
    fn find(&self, fid: Fid) -> Result<Found<'_>, Fault> {
        self.admit()?;
        self.find_any(fid)
    }

    #[inline]
    fn find_any(&self, fid: Fid) -> Result<Found<'_>, Fault> {
        if fid.is_ephemeral() {
            return Err(Fault::ForgedFid);
        }
        let Some(partition) = self.partition(fid.partition()) else {
            let known = self.dropped.contains_key(&fid.partition());
            return Err(if known {
                Fault::StaleFid
            } else {
                Fault::ForgedFid
            });
        };
        let Some(extent) = partition.extent(fid.extent()) else {
            let earlier = fid.extent() < partition.first_extent;
            return Err(if earlier {
                Fault::StaleFid
            } else {
                Fault::ForgedFid
            });
        };
        let block = &extent.blocks[usize::from(fid.index() >> 10)];
        match &block.frame {
            Some(frame) => {
                if !block.touched.load(Ordering::Relaxed) {
                    block.touched.store(true, Ordering::Relaxed);
                }
                Ok(Found::Here(partition, extent, frame))
            }
            None if block.disk.is_some() => Ok(Found::Away),
            None if block.gone => Err(Fault::StaleFid),
            None => Err(Fault::ForgedFid),
        }
    }

    #[inline]
    fn partition(&self, number: u16) -> Option<&Partition> {
        self.partitions.get(usize::from(number))?.as_deref()
    }

    fn partition_mut(&mut self, number: u16) -> Option<&mut Partition> {
        self.partitions.get_mut(usize::from(number))?.as_deref_mut()
    }

    /// Puts a value and its entry.
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
            self.unput(fid);
            return Err(fault);
        }
        Ok(fid)
    }

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
        let chosen = self.choose(number, column, kind)?;
        let block_at = usize::from(chosen.index >> 10);
        self.present(number, chosen.extent, block_at)?;
        let space = &self.space;
        let partition = self
            .partitions
            .get_mut(usize::from(number))
            .and_then(Option::as_deref_mut);
        let partition = partition.ok_or(Fault::PartitionUnknown)?;
        let before = partition.slabs.used();
        let (block, slabs) = partition
            .block_mut(chosen.extent, block_at)
            .ok_or(Fault::OutOfMemory)?;
        let frame = block.frame.as_mut().ok_or(Fault::OutOfMemory)?;
        let at = usize::from(chosen.index);
        let generation = frame.slot(at).generation;
        frame
            .put(at, generation, value, slabs, space)
            .map_err(|_| Fault::OutOfMemory)?;
        block.dirty = true;
        block.live = block.live.saturating_add(1);
        block.touched.store(true, Ordering::Relaxed);
        self.strings += partition.slabs.used() - before;
        partition.taken(column);
        if let Some(marks) = &mut partition.marks {
            marks.set(chosen.extent, chosen.index);
        }
        Fid::permanent(number, generation, chosen.extent, chosen.index)
            .ok_or(Fault::PartitionUnknown)
    }

    fn choose(&mut self, number: u16, column: u16, kind: Kind) -> Result<Chosen, Fault> {
        for _ in 0..2 {
            let partition = self.partition_mut(number).ok_or(Fault::PartitionUnknown)?;
            match partition.choose(column, kind) {
                Ok(chosen) => return Ok(chosen),
                Err(Refusal::Kind) => return Err(Fault::KindMismatch),
                Err(Refusal::Full) => return Err(self.report(Error::new(&code::EXTENTS_FULL, ""))),
                Err(Refusal::Random(error)) => return Err(self.report(error.into())),
                // F4: what is not reserved might be given out again after a crash.
                Err(Refusal::Reserve) => {
                    let position = self.position;
                    self.checkpoint(position)
                        .map_err(|error| self.report(error))?;
                }
            }
        }
        Err(Fault::PartitionsExhausted)
    }

    /// Takes a value back that nobody was told of.
    fn unput(&mut self, fid: Fid) {
        // Its slot is lost for this incarnation unless a later sweep finds it: simple, and rare.
        if self.free_slot(fid).is_err() {
            self.trouble = Some(Error::new(
                &code::BUG,
                "a value that was just put is not there",
            ));
        }
    }

    /// Remembers an error and gives the fault that the ring is told.
    pub(crate) fn report(&mut self, error: Error) -> Fault {
        let fault = fault_of(error.code());
        self.trouble = Some(error);
        fault
    }
}

/// What a ring is told of an error.
#[must_use]
pub fn fault_of(code: &Code) -> Fault {
    match code.number {
        8010 | 8011 | 8024 => Fault::StoreDamaged,
        8012 => Fault::LogGap,
        8013 => Fault::Recovering,
        8014 | 5001 => Fault::OutOfMemory,
        8015 => Fault::DiskFull,
        8016 => Fault::BadRecord,
        8017 => Fault::PartitionUnknown,
        8018 | 8028 => Fault::PartitionsExhausted,
        8019 => Fault::BadRequest,
        8030 => Fault::OtherHistory,
        _ => Fault::StoreIo,
    }
}

fn no_memory(_: NoMemory) -> Error {
    Error::new(&code::ZONE_MEMORY, "")
}

fn of_crypto(error: CryptoError) -> Error {
    error.into()
}

/// A zone's threads share the store behind a lock.
const fn shareable<T: Send>() {}
const _: () = shareable::<Store>();
