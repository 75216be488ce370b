//! Redo records on their way in: replays the records of the host's log.
//!
//! Invariants: L2 (a record that the chain names and that was not seen is an error), L4 (an entry
//! that is older than what the store has changes nothing, so replay may begin anywhere before the
//! end of the last checkpoint, and be repeated). Must not: give out a FID.

use std::cmp::Ordering;

use strongroom_columns_ring::Fault;
use strongroom_columns_values::Value;
use strongroom_format::code;
use strongroom_format::columns::manifest::ChainEntry;
use strongroom_format::columns::redo::{
    Entry, Link, PartitionChange, REDO_VERSION, RedoHead, redo_layout,
};
use strongroom_format::columns::{Fid, Kind};
use strongroom_keyring::Error;

use super::Store;
use super::block_address::BlockAddress;
use super::faults::{no_memory, not_opened};
use super::made_for::MadeFor;
use super::memory::Buffer;
use super::partition::Extent;
use super::partition_table::reserve_after;
use super::replay::Phase;

impl Store {
    /// The object id of the store, and the random number of this start, both 16 bytes.
    #[must_use]
    pub fn identity(&self) -> ([u8; 16], [u8; 16]) {
        (self.keys.object_id(), self.redo.incarnation())
    }

    /// The position from which the host's log has to be read: the position of the last checkpoint.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.durability.position
    }

    /// The timeline of the host's log that [`Store::position`] is on; 0 if that is not known.
    #[must_use]
    pub fn timeline(&self) -> u32 {
        self.durability.timeline
    }

    /// The timeline that the host's log was on when the host last said so; 0 if that is not known.
    #[must_use]
    pub fn host_timeline(&self) -> u32 {
        self.durability.host_timeline
    }

    /// Notes the timeline that the host's log is on: later positions of checkpoints count as of it.
    /// 0 changes nothing.
    pub fn set_host_timeline(&mut self, timeline: u32) {
        if timeline != 0 {
            self.durability.host_timeline = timeline;
        }
    }

    /// The highest position of the host's log at which a record ends that the store may hold, and
    /// its timeline; 0 for what is not known. A log of another timeline must not have left that one
    /// before: it lacks what the store holds.
    #[must_use]
    pub fn reached(&self) -> (u64, u32) {
        let reached = self.durability.reached;
        (reached.position, reached.timeline)
    }

    /// Notes that the host's log has a record that this start of the store has sealed, and that it
    /// ends at `position`. The next manifest says so. 0 changes nothing, and so does any position
    /// while the log is replayed or followed: then the position of the checkpoint says it.
    pub fn note_reached(&mut self, position: u64) {
        if self.replay.phase == Phase::Serving {
            self.durability.note_reached(position);
        }
    }

    /// Whether the log still has to be replayed before values can be used.
    #[must_use]
    pub fn is_recovering(&self) -> bool {
        self.replay.phase == Phase::Replaying
    }

    /// Whether the host is a replica, whose log goes on: values may be read only.
    #[must_use]
    pub fn is_following(&self) -> bool {
        self.replay.phase == Phase::Following
    }

    /// Applies a redo record that was found in the host's log at `position`. Records have to be
    /// given in the log's order; what the store has already changes nothing.
    ///
    /// # Errors
    /// [`Fault::BadRequest`] unless the store recovers or follows; [`Fault::BadRecord`] if the
    /// record is damaged, [`Fault::NewerFormat`] if a later version of Strongroom has sealed it,
    /// [`Fault::LogGap`] if one before it is missing; those of reading and writing blocks. The
    /// store stays as it is, or has part of the record: it may be given again.
    pub fn recover(&mut self, record: &[u8], position: u64) -> Result<(), Fault> {
        if self.replay.phase == Phase::Serving {
            // A record that was sealed once and never inserted must not be carried out later.
            return Err(Fault::BadRequest);
        }
        self.make_room()?;
        self.replay_record(record, position)
            .map_err(|error| self.report(error))
    }

    /// Notes that the log of the host, a replica, was replayed up to `position` and goes on: from
    /// now on values may be read while more records are replayed. Takes out of quarantine what is
    /// not there any more, and makes a checkpoint.
    ///
    /// # Errors
    /// Those of [`Store::checkpoint`]; the store is recovering still.
    pub fn follow(&mut self, position: u64) -> Result<(), Error> {
        self.forget_freed_quarantine();
        self.replay.phase = Phase::Following;
        let done = self.checkpoint(position);
        if done.is_err() {
            self.replay.phase = Phase::Replaying;
        }
        done.map(drop)
    }

    /// Ends recovery, or following: the host's log was replayed up to `position`, its end, and
    /// values may be used. The host vouches that no record of an earlier incarnation gets into its
    /// log any more. Empties the quarantine, takes back the bindings of columns without values, and
    /// makes a checkpoint.
    ///
    /// # Errors
    /// Those of [`Store::checkpoint`]; the store is recovering or following still.
    pub fn finish_recovery(&mut self, position: u64) -> Result<(), Error> {
        let floor = reserve_after(self.replay.floor);
        self.partitions.floor = self.partitions.floor.max(floor);
        for partition in self.partitions.iter_mut() {
            if partition.replayed {
                // F4: the incarnation that made these extents may have made more, and lost the
                // records.
                partition.next_extent = reserve_after(partition.next_extent);
                partition.replayed = false;
            }
        }
        for dropped in self.partitions.dropped.values_mut() {
            dropped.logged = true;
        }
        // The rings that swept have lost their marks too, and perhaps the record that took a value
        // out again: two sweeps begin anew (L7).
        self.reclamation.clear_quarantine();
        self.unbind_empty_columns();
        let before = std::mem::replace(&mut self.replay.phase, Phase::Serving);
        let done = self.checkpoint(position);
        if done.is_err() {
            self.replay.phase = match before {
                Phase::Following => Phase::Following,
                Phase::Replaying | Phase::Serving => Phase::Replaying,
            };
        }
        done.map(|_| ())
    }

    /// Whether a record, of this version or a later one, opens under a key of this store. False
    /// also if there is no memory to check it. Applies nothing.
    pub(super) fn is_authentic(&self, record: &[u8]) -> bool {
        let Some(head) = RedoHead::parse(record) else {
            return false;
        };
        let mut body = Buffer::new(&self.cache.pools.memory);
        if body
            .extend(record.get(redo_layout::SIZE..).unwrap_or_default())
            .is_err()
        {
            return false;
        }
        let bound = head.associated_data(self.keys.object_id(), self.keys.epoch());
        let Ok(key) = self.keys.redo_key(head.incarnation, head.key_number()) else {
            return false;
        };
        key.open(&head.nonce, &bound, body.as_mut_slice(), &head.tag)
            .is_ok()
    }

    /// The ends of all chains, for a manifest.
    pub(super) fn chain_ends(&self) -> Vec<ChainEntry> {
        let earlier = self.replay.chains_before(self.redo.incarnation());
        earlier.chain(self.redo.chains()).collect()
    }

    /// Opens a record of the log and applies its entries, in a buffer that is wiped afterwards.
    /// SR-8016 if it is damaged, SR-3002 if it is of a later version, SR-8012 if one before it is
    /// missing; those of applying.
    fn replay_record(&mut self, record: &[u8], position: u64) -> Result<(), Error> {
        let empty = Buffer::new(&self.cache.pools.memory);
        let mut body = std::mem::replace(&mut self.replay.record, empty);
        let done = self.replay_into(record, position, &mut body);
        body.clear();
        self.replay.record = body;
        done
    }

    /// Opens a record into `body` and applies its entries. SR-8016 if it is damaged, SR-3002 if it
    /// is of a later version, SR-8030 if it is of an earlier one than the log can have, SR-8012 if
    /// one before it is missing; those of applying. The chain goes on only from a record that was
    /// applied whole, so a refused one is missed until it was given again. A record that this
    /// process has sealed itself changes nothing.
    fn replay_into(
        &mut self,
        record: &[u8],
        position: u64,
        body: &mut Buffer,
    ) -> Result<(), Error> {
        let bad = || Error::new(&code::REDO_RECORD, format!("at position {position}"));
        let head = RedoHead::parse(record).ok_or_else(bad)?;
        body.extend(record.get(redo_layout::SIZE..).unwrap_or_default())
            .map_err(no_memory)?;
        let bound = head.associated_data(self.keys.object_id(), self.keys.epoch());
        let key = self
            .replay
            .key(&self.keys, (head.incarnation, head.key_number()))?;
        key.open(&head.nonce, &bound, body.as_mut_slice(), &head.tag)
            .map_err(|_| bad())?;
        // Only now: a host passes over what the zone did not seal, and whoever may write messages
        // into its log could name any version.
        if head.is_newer() {
            let what = format!(
                "the redo record at position {position} has version {}, this program's \
                 {REDO_VERSION}",
                head.version
            );
            return Err(Error::new(&code::NEWER_FORMAT, what));
        }
        if u32::from(head.version) < self.replay.redo_from {
            let what = format!(
                "at position {position} there is a redo record of version {}, although the store \
                 has gone on with later ones",
                head.version
            );
            return Err(Error::new(&code::STORE_HISTORY, what));
        }
        let (link, mut rest) = Link::parse(body.as_slice()).ok_or_else(bad)?;
        // The store has what this incarnation sealed itself; its chains are those of the rings.
        if head.incarnation == self.redo.incarnation() {
            return Ok(());
        }
        if !self.replay.is_sound(&head, &link) {
            let what = format!(
                "at position {position}, before record {} of ring {}",
                head.number, link.ring
            );
            return Err(Error::new(&code::LOG_GAP, what));
        }
        let mut made_for = MadeFor::new(head.version);
        while !rest.is_empty() {
            let (entry, tail) = Entry::parse(rest).ok_or_else(bad)?;
            self.apply(&entry, position, &mut made_for)?;
            rest = tail;
        }
        self.replay.follow(&head, &link);
        Ok(())
    }

    /// Applies an entry of a record found at `position`. One that was applied before, or is older
    /// than what the store has, changes nothing. `made_for` has the bindings that the record has up
    /// to here. SR-8012 or SR-8030 for an entry that does not follow from what the store has;
    /// errors of reading blocks.
    fn apply(
        &mut self,
        entry: &Entry<'_>,
        position: u64,
        made_for: &mut MadeFor,
    ) -> Result<(), Error> {
        match entry {
            Entry::Word {
                fid,
                column,
                kind,
                word,
            } => {
                let value = Value::Word(u64::from_le_bytes(*word));
                if self.is_for(*fid, *column, made_for, position)? {
                    self.apply_put(*fid, (*column, *kind), value, position)?;
                }
                Ok(())
            }
            Entry::Bytes {
                fid,
                column,
                kind,
                bytes,
            } => {
                if self.is_for(*fid, *column, made_for, position)? {
                    self.apply_put(*fid, (*column, *kind), Value::Bytes(bytes), position)?;
                }
                Ok(())
            }
            Entry::Freed(fid) => self.apply_freed(*fid),
            Entry::Swept(sweep, fid) => {
                self.reclamation.last_sweep = self.reclamation.last_sweep.max(*sweep);
                if self.is_live(*fid)? {
                    self.reclamation.quarantine(*fid, *sweep);
                }
                Ok(())
            }
            Entry::Opened(change) => self.apply_opened(*change, position),
            Entry::Dropped(change) => {
                if self.partitions.is_newer(change) {
                    self.remove_partition(*change);
                }
                Ok(())
            }
            Entry::Bound(binding) => {
                made_for.note(binding);
                self.apply_bound(binding, position)
            }
            Entry::Rehomed(change) => self.apply_rehomed(*change, position),
        }
    }

    /// Gives a partition to another relation, unless a later change of it is known. Nothing if the
    /// change is of an earlier partition of the number, or there is none. SR-8012 if it is of a
    /// later one, whose opening is missing.
    fn apply_rehomed(&mut self, change: PartitionChange, position: u64) -> Result<(), Error> {
        // Only a partition that is there has a first extent to compare with: that of a number that
        // was dropped rises with each start of a zone that follows.
        let known = self.partitions.get(change.partition);
        let order = known.map(|known| change.first_extent.cmp(&known.first_extent));
        if order == Some(Ordering::Greater) {
            return Err(not_opened(change.partition, position));
        }
        // Later changes have higher stamps than this one, whether or not it means anything here.
        self.partitions.stamp = self.partitions.stamp.max(change.stamp);
        if order == Some(Ordering::Equal) && self.partitions.is_newer(&change) {
            self.partitions.reassign(change);
        }
        Ok(())
    }

    /// Makes a partition, or gives it to another relation, unless a later change of it is known.
    /// SR-8030 if the partition that is known cannot have come before or after it.
    fn apply_opened(&mut self, change: PartitionChange, position: u64) -> Result<(), Error> {
        if !self.partitions.is_consistent(&change) {
            let what = format!(
                "at position {position}: another partition {} was opened",
                change.partition
            );
            return Err(Error::new(&code::STORE_HISTORY, what));
        }
        if !self.partitions.is_newer(&change) {
            return Ok(());
        }
        self.replay.floor = self.replay.floor.max(change.first_extent);
        if let Some(partition) = self.partitions.get(change.partition) {
            // The same partition under a later name: a rehoming whose own record comes later.
            if partition.first_extent == change.first_extent {
                self.partitions.reassign(change);
                return Ok(());
            }
            self.remove_partition(change);
        }
        let made = self.make_partition(change);
        made.map_err(|_| self.last_error_or_no_memory())?;
        if let Some(partition) = self.partitions.get_mut(change.partition) {
            partition.replayed = true;
        }
        Ok(())
    }

    /// Stores a value in the slot that the record names, which [`Self::is_for`] has allowed.
    /// SR-8030 if the extent is of another column.
    fn apply_put(
        &mut self,
        fid: Fid,
        (column, kind): (u16, Kind),
        value: Value<'_>,
        position: u64,
    ) -> Result<(), Error> {
        let Some(partition) = self.partitions.get_mut(fid.partition()) else {
            return Ok(());
        };
        let of = partition
            .extent(fid.extent())
            .map(|extent| (extent.column, extent.kind));
        match of {
            Some(known) if known != (column, kind) => {
                return Err(Error::new(
                    &code::STORE_HISTORY,
                    format!("at position {position}: an extent of another column"),
                ));
            }
            Some(_) => {}
            None => {
                partition.insert(fid.extent(), Extent::new(column, kind, false));
                partition.replayed = true;
            }
        }
        self.put_at(fid, value)
    }

    /// Stores a value in the slot of its identifier, unless the slot has this generation or a later
    /// one, or the block is gone. An older value there is freed. SR-8014 without memory; errors of
    /// reading the block.
    fn put_at(&mut self, fid: Fid, value: Value<'_>) -> Result<(), Error> {
        let (at, slot_at) = (BlockAddress::of(fid), usize::from(fid.index()));
        if self.partitions.block(at).is_some_and(|block| block.gone) {
            return Ok(());
        }
        let present = self.bring_in(at);
        present.map_err(|_| self.last_error_or_no_memory())?;
        let missing = || Error::new(&code::BUG, "a block that was just brought");
        let partition = self.partitions.get_mut(at.partition).ok_or_else(missing)?;
        let before = partition.slabs.used();
        let found = partition.block_mut(at.extent, at.index());
        let (block, slabs) = found.ok_or_else(missing)?;
        let frame = block.frame.as_mut().ok_or_else(missing)?;
        let slot = frame.slot(slot_at);
        let same_but_used = slot.generation == fid.generation() && slot.state != 0;
        if slot.generation > fid.generation() || same_but_used {
            return Ok(());
        }
        if slot.is_live() {
            // The log no longer has the record that freed this generation: the checkpoint is older
            // than where the log was cut.
            if let Some(old) = Fid::permanent(at.partition, slot.generation, at.extent, fid.index())
            {
                self.reclamation.release(old);
            }
            frame.clear(slot_at, slabs);
            block.live = block.live.saturating_sub(1);
        }
        frame
            .put(slot_at, fid.generation(), value, slabs, &self.cache.pools)
            .map_err(no_memory)?;
        block.dirty = true;
        block.live = block.live.saturating_add(1);
        self.cache.out_of_line = self.cache.out_of_line + partition.slabs.used() - before;
        if let Some(marks) = &mut partition.marks {
            marks.set(at.extent, fid.index());
        }
        Ok(())
    }

    /// Frees a value, if it is there, and takes it out of quarantine. Errors of reading its block.
    fn apply_freed(&mut self, fid: Fid) -> Result<(), Error> {
        if self.is_live(fid)? {
            self.free_slot(fid)
                .map_err(|_| Error::new(&code::BUG, "a value that was just there"))?;
        }
        // A replica's quarantine would otherwise have every value that was ever freed.
        self.reclamation.release(fid);
        Ok(())
    }

    /// Whether the store has a value of just this identifier. Brings its block into memory. Errors
    /// of reading it.
    pub(super) fn is_live(&mut self, fid: Fid) -> Result<bool, Error> {
        let at = BlockAddress::of(fid);
        let known = self.partitions.block(at);
        if known.is_none_or(|block| block.frame.is_none() && block.disk.is_none()) {
            return Ok(false);
        }
        let present = self.bring_in(at);
        present.map_err(|_| self.last_error_or_no_memory())?;
        let block = self.partitions.block(at);
        let frame = block.and_then(|block| block.frame.as_ref());
        let slot = frame.map(|frame| frame.slot(usize::from(fid.index())));
        Ok(slot.is_some_and(|slot| slot.is_live() && slot.generation == fid.generation()))
    }

    /// Takes the error of a fault that was just reported; SR-8014 if there is none.
    fn last_error_or_no_memory(&mut self) -> Error {
        self.take_last_error()
            .unwrap_or_else(|| Error::new(&code::ZONE_MEMORY, ""))
    }
}
