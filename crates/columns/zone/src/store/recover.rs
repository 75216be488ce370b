//! Redo records on their way in: what the host's log brings back.
//!
//! Invariants: L2 (a record that the chain names and that was not seen is an error), L4 (an entry that is older than what the store
//! has changes nothing, so replay may begin anywhere before the end of the last checkpoint, and be repeated). Must not: give out a FID.

use std::collections::BTreeMap;

use strongroom_columns_ring::Fault;
use strongroom_columns_values::Value;
use strongroom_crypto::GcmKey;
use strongroom_format::code;
use strongroom_format::columns::manifest::ChainEntry;
use strongroom_format::columns::redo::{Entry, Link, PartitionChange, RedoHead, redo_layout};
use strongroom_format::columns::{Fid, Kind};
use strongroom_keyring::Error;

use super::checkpoint::ahead;
use super::memory::Buffer;
use super::partition::Extent;
use super::{Store, no_memory, of_crypto};

/// Keys of incarnations that are kept at hand.
const KEYS_MAX: usize = 16;

/// What is known of the chains of rings whose records are replayed.
#[derive(Default)]
pub(super) struct Chains {
    seen: BTreeMap<([u8; 16], u32), (u64, [u8; 16])>,
    keys: Vec<(([u8; 16], u64), GcmKey)>,
    /// Highest first extent of a partition that a record has opened.
    floor: u32,
}

impl Chains {
    pub(super) fn load(&mut self, chain: ChainEntry) {
        let end = (chain.number, chain.tag);
        self.seen.insert((chain.incarnation, chain.ring), end);
    }

    /// Follows a chain by one record. False when a record before it is missing.
    fn follow(&mut self, head: &RedoHead, link: &Link) -> bool {
        let end = self
            .seen
            .entry((head.incarnation, link.ring))
            .or_insert((0, [0; 16]));
        let (number, tag) = *end;
        // A lower one: the record before was inserted, but its host ended before it could say so; or the checkpoint is further.
        let sound = link.previous < number || (link.previous == number && link.previous_tag == tag);
        if sound && head.number > number {
            *end = (head.number, head.tag);
        }
        sound
    }
}

impl Store {
    /// Object id of the store, and the random number of this start.
    #[must_use]
    pub fn identity(&self) -> ([u8; 16], [u8; 16]) {
        (self.keys.object_id(), self.incarnation)
    }

    /// Where the host's log has to be read from.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Timeline of the host's log that [`Store::position`] is of; 0 when that is not known.
    #[must_use]
    pub fn timeline(&self) -> u32 {
        self.timeline
    }

    /// Timeline that the host's log was on when the host last said so.
    #[must_use]
    pub fn host_timeline(&self) -> u32 {
        self.host_timeline
    }

    /// The host's log is on this timeline: the next position that a checkpoint reaches is of it. 0 says nothing.
    pub fn set_host_timeline(&mut self, timeline: u32) {
        if timeline != 0 {
            self.host_timeline = timeline;
        }
    }

    /// Whether the log has to be replayed before values can be used.
    #[must_use]
    pub fn is_recovering(&self) -> bool {
        self.recovering
    }

    /// Whether values may be read while the log goes on.
    #[must_use]
    pub fn is_following(&self) -> bool {
        self.following
    }

    /// Recover: carries out a redo record that was found in the host's log at `position`. Records come in the log's order; one that the
    /// store has already changes nothing.
    ///
    /// # Errors
    /// [`Fault::BadRecord`], [`Fault::LogGap`]; those of reading and writing blocks. The store stays as it is, or has part of the
    /// record: it may be given again.
    pub fn recover(&mut self, record: &[u8], position: u64) -> Result<(), Fault> {
        if !self.recovering && !self.following {
            // A record that was sealed once and never inserted must not be carried out later.
            return Err(Fault::BadRequest);
        }
        self.make_room()?;
        self.replay(record, position)
            .map_err(|error| self.report(error))
    }

    /// The log of the host, a replica, was replayed up to `position` and goes on: values may be read, and records be given on.
    ///
    /// # Errors
    /// Those of [`Store::checkpoint`]; the store is recovering still.
    pub fn follow(&mut self, position: u64) -> Result<(), Error> {
        self.following = true;
        self.recovering = false;
        let done = self.checkpoint(position);
        if done.is_err() {
            self.recovering = true;
            self.following = false;
        }
        done.map(drop)
    }

    /// The host's log was replayed up to `position`, its end: values may be used. The host vouches that no record of an earlier
    /// incarnation gets into its log any more. Ends with a checkpoint.
    ///
    /// # Errors
    /// Those of [`Store::checkpoint`]; the store is recovering still.
    pub fn recovered(&mut self, position: u64) -> Result<(), Error> {
        self.floor = self.floor.max(ahead(self.chains.floor));
        for partition in self
            .partitions
            .iter_mut()
            .flatten()
            .filter(|partition| partition.replayed)
        {
            // F4: who made these extents may have made more, and lost the records.
            partition.next_extent = ahead(partition.next_extent);
            partition.replayed = false;
        }
        for dropped in self.dropped.values_mut() {
            dropped.known = true;
        }
        // Whoever swept has lost its memory too, and perhaps the record that took a value out again: two sweeps begin anew.
        self.quarantine.clear();
        self.recovering = false;
        let followed = std::mem::replace(&mut self.following, false);
        let done = self.checkpoint(position);
        if done.is_err() {
            self.recovering = !followed;
            self.following = followed;
        }
        done.map(|_| ())
    }

    /// Whether a record is one of this store's.
    pub(super) fn opens(&self, record: &[u8]) -> bool {
        let Some(head) = RedoHead::parse(record) else {
            return false;
        };
        let mut body = Buffer::new(&self.space.memory);
        if body
            .extend(record.get(redo_layout::SIZE..).unwrap_or_default())
            .is_err()
        {
            return false;
        }
        let bound = head.bound(self.keys.object_id(), self.keys.epoch());
        let Ok(key) = self.keys.redo_run(head.incarnation, head.run()) else {
            return false;
        };
        key.open(&head.nonce, &bound, body.as_mut_slice(), &head.tag)
            .is_ok()
    }

    pub(super) fn chains_now(&self) -> Vec<ChainEntry> {
        let own = self.incarnation;
        let seen = self
            .chains
            .seen
            .iter()
            .filter(|((incarnation, _), (number, _))| *incarnation != own && *number != 0);
        let seen = seen.map(|((incarnation, ring), (number, tag))| ChainEntry {
            incarnation: *incarnation,
            ring: *ring,
            number: *number,
            tag: *tag,
        });
        seen.chain(self.rings.chains(own)).collect()
    }

    /// No record of an earlier incarnation lies behind the end of recovery, which a checkpoint has reached.
    pub(super) fn drop_old_chains(&mut self) {
        if !self.recovering && !self.following {
            self.chains.seen.clear();
            self.chains.keys.clear();
        }
    }

    fn replay(&mut self, record: &[u8], position: u64) -> Result<(), Error> {
        let empty = Buffer::new(&self.space.memory);
        let mut body = std::mem::replace(&mut self.inbox, empty);
        let done = self.replay_through(record, position, &mut body);
        body.clear();
        self.inbox = body;
        done
    }

    fn replay_through(
        &mut self,
        record: &[u8],
        position: u64,
        body: &mut Buffer,
    ) -> Result<(), Error> {
        let bad = || Error::new(&code::REDO_RECORD, format!("at position {position}"));
        let head = RedoHead::parse(record).ok_or_else(bad)?;
        body.extend(record.get(redo_layout::SIZE..).unwrap_or_default())
            .map_err(no_memory)?;
        let bound = head.bound(self.keys.object_id(), self.keys.epoch());
        let key = self.key_of((head.incarnation, head.run()))?;
        key.open(&head.nonce, &bound, body.as_mut_slice(), &head.tag)
            .map_err(|_| bad())?;
        let (link, mut rest) = Link::parse(body.as_slice()).ok_or_else(bad)?;
        // What this incarnation sealed itself is in the store; its chains are the rings'.
        if head.incarnation == self.incarnation {
            return Ok(());
        }
        if !self.chains.follow(&head, &link) {
            let what = format!(
                "at position {position}, before record {} of ring {}",
                head.number, link.ring
            );
            return Err(Error::new(&code::LOG_GAP, what));
        }
        while !rest.is_empty() {
            let (entry, tail) = Entry::parse(rest).ok_or_else(bad)?;
            self.apply(&entry, position)?;
            rest = tail;
        }
        Ok(())
    }

    fn key_of(&mut self, run: ([u8; 16], u64)) -> Result<&GcmKey, Error> {
        let known = self.chains.keys.iter().position(|(known, _)| *known == run);
        let at = match known {
            Some(at) => at,
            None => {
                let key = self.keys.redo_run(run.0, run.1).map_err(of_crypto)?;
                if self.chains.keys.len() >= KEYS_MAX {
                    self.chains.keys.remove(0);
                }
                self.chains.keys.push((run, key));
                self.chains.keys.len() - 1
            }
        };
        let found = self.chains.keys.get(at).map(|(_, key)| key);
        found.ok_or_else(|| Error::new(&code::BUG, "a key that was just made"))
    }

    fn apply(&mut self, entry: &Entry<'_>, position: u64) -> Result<(), Error> {
        match entry {
            Entry::Word {
                fid,
                column,
                kind,
                word,
            } => self.apply_put(
                *fid,
                *column,
                *kind,
                Value::Word(u64::from_le_bytes(*word)),
                position,
            ),
            Entry::Bytes {
                fid,
                column,
                kind,
                bytes,
            } => self.apply_put(*fid, *column, *kind, Value::Bytes(bytes), position),
            Entry::Freed(fid) => self.apply_freed(*fid),
            Entry::Swept(sweep, fid) => {
                self.sweep = self.sweep.max(*sweep);
                if self.live_at(*fid)? {
                    self.quarantine.insert(fid.bits(), *sweep);
                }
                Ok(())
            }
            Entry::Opened(change) => self.apply_opened(*change),
            Entry::Dropped(change) => {
                if self.is_news(change) {
                    self.remove_partition(*change);
                }
                Ok(())
            }
            Entry::Bound(binding) => self.apply_bound(binding),
            Entry::Rehomed(change) => {
                if self.is_news(change) {
                    self.move_partition(*change);
                }
                Ok(())
            }
        }
    }

    fn is_news(&self, change: &PartitionChange) -> bool {
        let known = self
            .partition(change.partition)
            .map(|partition| partition.stamp);
        let dropped = self
            .dropped
            .get(&change.partition)
            .map(|dropped| dropped.stamp);
        known.or(dropped).is_none_or(|stamp| change.stamp > stamp)
    }

    fn apply_opened(&mut self, change: PartitionChange) -> Result<(), Error> {
        if !self.is_news(&change) {
            return Ok(());
        }
        self.chains.floor = self.chains.floor.max(change.first_extent);
        if let Some(partition) = self.partition(change.partition) {
            // The same partition under a later name: a rehoming whose own record is behind.
            if partition.first_extent == change.first_extent {
                self.move_partition(change);
                return Ok(());
            }
            // A number is given out again with extents that were never used under it.
            if partition
                .numbers()
                .any(|extent| extent >= change.first_extent)
            {
                return Err(Error::new(
                    &code::REDO_RECORD,
                    "a partition opened over another",
                ));
            }
            self.remove_partition(change);
        }
        let made = self.make_partition(change);
        made.map_err(|_| {
            self.take_trouble()
                .unwrap_or_else(|| Error::new(&code::ZONE_MEMORY, ""))
        })?;
        if let Some(partition) = self.partition_mut(change.partition) {
            partition.replayed = true;
        }
        Ok(())
    }

    fn apply_put(
        &mut self,
        fid: Fid,
        column: u16,
        kind: Kind,
        value: Value<'_>,
        position: u64,
    ) -> Result<(), Error> {
        let number = fid.partition();
        let Some(partition) = self.partition_mut(number) else {
            let before = self
                .dropped
                .get(&number)
                .is_some_and(|dropped| fid.extent() < dropped.next_extent);
            let gap = || {
                Error::new(
                    &code::LOG_GAP,
                    format!("at position {position}: partition {number} was not opened"),
                )
            };
            return if before { Ok(()) } else { Err(gap()) };
        };
        if fid.extent() < partition.first_extent {
            return Ok(());
        }
        if !partition.column_keys.contains_key(&column) {
            // Whoever could leave out a binding could bind the column to a key of their own (S6).
            let what = format!(
                "at position {position}: column {column} of partition {number} was not bound"
            );
            return Err(Error::new(&code::LOG_GAP, what));
        }
        let of = partition
            .extent(fid.extent())
            .map(|extent| (extent.column, extent.kind));
        match of {
            Some(known) if known != (column, kind) => {
                return Err(Error::new(
                    &code::REDO_RECORD,
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

    /// Puts a value of just this generation, unless the slot has it or is further.
    fn put_at(&mut self, fid: Fid, value: Value<'_>) -> Result<(), Error> {
        let (number, extent, at) = (fid.partition(), fid.extent(), usize::from(fid.index()));
        let block_at = usize::from(fid.index() >> 10);
        let gone = self
            .partition(number)
            .and_then(|partition| partition.extent(extent));
        if gone.is_some_and(|extent| extent.blocks[block_at].gone) {
            return Ok(());
        }
        let present = self.present(number, extent, block_at);
        present.map_err(|_| {
            self.take_trouble()
                .unwrap_or_else(|| Error::new(&code::ZONE_MEMORY, ""))
        })?;
        let space = &self.space;
        let missing = || Error::new(&code::BUG, "a block that was just brought");
        let partition = self
            .partitions
            .get_mut(usize::from(number))
            .and_then(Option::as_deref_mut);
        let partition = partition.ok_or_else(missing)?;
        let before = partition.slabs.used();
        let (block, slabs) = partition.block_mut(extent, block_at).ok_or_else(missing)?;
        let frame = block.frame.as_mut().ok_or_else(missing)?;
        let slot = frame.slot(at);
        let same_but_used = slot.generation == fid.generation() && slot.state != 0;
        if slot.generation > fid.generation() || same_but_used {
            return Ok(());
        }
        if slot.is_live() {
            // A generation whose end the log no longer has: the checkpoint is older than the cut.
            frame.clear(at, slabs);
            block.live = block.live.saturating_sub(1);
        }
        frame
            .put(at, fid.generation(), value, slabs, space)
            .map_err(no_memory)?;
        block.dirty = true;
        block.live = block.live.saturating_add(1);
        self.strings = self.strings + partition.slabs.used() - before;
        if let Some(marks) = &mut partition.marks {
            marks.set(extent, fid.index());
        }
        Ok(())
    }

    fn apply_freed(&mut self, fid: Fid) -> Result<(), Error> {
        if self.live_at(fid)? {
            self.free_slot(fid)
                .map_err(|_| Error::new(&code::BUG, "a value that was just there"))?;
        }
        Ok(())
    }

    /// Whether this very value is in the store. Brings its block.
    pub(super) fn live_at(&mut self, fid: Fid) -> Result<bool, Error> {
        let (number, extent, block_at) = (
            fid.partition(),
            fid.extent(),
            usize::from(fid.index() >> 10),
        );
        let known = self
            .partition(number)
            .and_then(|partition| partition.extent(extent));
        let known = known.map(|extent| &extent.blocks[block_at]);
        if known.is_none_or(|block| block.frame.is_none() && block.disk.is_none()) {
            return Ok(false);
        }
        let present = self.present(number, extent, block_at);
        present.map_err(|_| {
            self.take_trouble()
                .unwrap_or_else(|| Error::new(&code::ZONE_MEMORY, ""))
        })?;
        let found = self
            .partition(number)
            .and_then(|partition| partition.extent(extent));
        let frame = found.and_then(|extent| extent.blocks[block_at].frame.as_ref());
        let slot = frame.map(|frame| frame.slot(usize::from(fid.index())));
        Ok(slot.is_some_and(|slot| slot.is_live() && slot.generation == fid.generation()))
    }
}
