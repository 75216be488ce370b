//! Checkpoints: all blocks on disk, then a manifest that names them, then the freshness anchor.
//!
//! The manifest is made at one moment, between two operations; what has to wait for the disk is a
//! publication, during which the store may be used. Its state of the next checkpoint is kept apart
//! from that of the manifest under way (`published` in partitions, keys and ledgers).
//!
//! Invariants: S3 (a crash at any point leaves the last checkpoint or the new one), S4, L5 (a
//! position is acknowledged when manifest and anchor are durable), F4 (the manifest reserves
//! extents ahead). Must not: free a part of the block file that the last manifest names before the
//! next one is durable.

use std::sync::Arc;

use strongroom_format::code;
use strongroom_format::columns::manifest::{
    ColumnKeyEntry, ExtentEntry, ManifestBody, MovedEntry, PartitionEntry, QuarantineEntry,
};
use strongroom_keyring::Error;

use super::Store;
use super::durability::Published;
use super::faults::{crypto_error, no_memory};
use super::files::io_error;
use super::memory::{Buffer, NoMemory};
use super::partition::{Block, Partition};
use super::partition_table::reserve_after;
use super::publication::{Publication, Unpublished};
use super::replay::Phase;

impl Store {
    /// Makes the store durable, and waits for that: writes changed blocks and syncs them, replaces
    /// the manifest, advances the anchor. `position` is a position of the host's log that the log
    /// had reached when the host asked: every record before it was sealed by then. Returns the
    /// position before which the host may cut its log; it never goes back.
    ///
    /// # Errors
    /// SR-8015 if the disk is full, SR-8023 if something cannot be written or synced, SR-8014
    /// without memory; SR-8010 if the anchor is ahead. Nothing is acknowledged, the last checkpoint
    /// stays. After a failed sync of the blocks every checkpoint fails with SR-8023 until the store
    /// is opened anew.
    pub fn checkpoint(&mut self, position: u64) -> Result<u64, Error> {
        // A checkpoint that is being made ends first; a requested one that was not begun goes on
        // afterwards. Should the first one fail, this one makes up for it.
        if let Err(error) = self.settle(true) {
            self.end_request(error);
        }
        let done = self
            .begin_checkpoint(position)
            .and_then(|()| self.settle(true));
        done.map(|_| self.durability.position)
    }

    /// Makes a checkpoint at the position of the last one: the host has not said that its log has
    /// got further.
    ///
    /// # Errors
    /// Those of [`Self::checkpoint`].
    pub(super) fn checkpoint_in_place(&mut self) -> Result<(), Error> {
        let position = self.durability.position;
        self.checkpoint(position).map(drop)
    }

    /// Begins a checkpoint that reaches this position of the host's log: writes the changed blocks,
    /// and begins to publish a manifest, with which [`Self::settle`] ends. No publication may be
    /// going on. Fails as [`Self::checkpoint`].
    pub(super) fn begin_checkpoint(&mut self, position: u64) -> Result<(), Error> {
        if self.durability.poisoned {
            return Err(Error::new(
                &code::STORE_IO,
                "a sync failed before: start the zone anew",
            ));
        }
        let (position, timeline) = self.durability.target(position);
        self.drop_empty_blocks();
        self.forget_keys();
        self.write_dirty()?;
        // A manifest may be in place that was never acknowledged. Its counter must be two behind
        // the next one: see docs/spec/columns.md.
        if self.durability.manifest_unanchored {
            self.publish(position, timeline, false)?;
            self.settle(true)?;
        }
        self.publish(position, timeline, true)
    }

    /// Writes every block that was changed since it was last written. Does not sync. SR-8014,
    /// SR-8015 or SR-8023 for the first that cannot be written.
    fn write_dirty(&mut self) -> Result<(), Error> {
        for at in self.cache.dirty(&self.partitions) {
            self.cache.write(&mut self.partitions, at)?;
        }
        Ok(())
    }

    /// Removes blocks of earlier incarnations that have no value left, and notes that they are
    /// gone. Not while a log is replayed or followed: it may yet bring values.
    fn drop_empty_blocks(&mut self) {
        if self.replay.phase != Phase::Serving {
            return;
        }
        let had = |block: &Block| block.frame.is_some() || block.disk.is_some();
        let empty = self
            .partitions
            .blocks_where(|extent, block| !extent.own && block.live == 0 && had(block));
        for at in empty {
            self.cache.remove(&mut self.partitions, at);
            if let Some(block) = self.partitions.block_mut(at) {
                block.gone = true;
            }
        }
    }

    /// Seals a manifest with the next counter, and begins to publish it: to make the blocks
    /// durable, replace the manifest's file by it, durably, and advance the anchor. `is_last`: the
    /// parts of the block file that it does not name are free when that is done. SR-8014 without
    /// memory.
    fn publish(&mut self, position: u64, timeline: u32, is_last: bool) -> Result<(), Error> {
        let mut body = Buffer::new(&self.cache.pools.memory);
        self.write_body(position, timeline, &mut body)
            .map_err(no_memory)?;
        let counter = self.durability.counter + 1;
        let head = self
            .keys
            .seal_manifest(counter, body.as_mut_slice())
            .map_err(crypto_error)?;
        let mut manifest = head.to_bytes().to_vec();
        manifest.extend_from_slice(body.as_slice());
        // From here on the new manifest may be the last one, whatever happens.
        self.durability.manifest_unanchored = true;
        self.mark_blocks_in_manifest();
        if is_last {
            self.cache.begin_publication();
        }
        self.key_ledgers.begin_publication();
        for partition in self.partitions.iter_mut() {
            partition.begin_publication(reserve_after(partition.next_extent));
        }
        self.durability.publication = Some(Published {
            counter,
            position,
            timeline,
            is_last,
            serving: self.replay.phase == Phase::Serving,
        });
        self.cache.files.publish(Publication {
            manifest,
            counter,
            anchor: Arc::clone(&self.anchor),
        });
        Ok(())
    }

    /// Takes note of the end of the publication that is going on; with `wait`, waits for it.
    /// Returns whether none is going on any more. SR-8015 or SR-8023 if a file could not be written
    /// or synced, SR-8010 if the anchor is ahead: either manifest may be in place then.
    pub(super) fn settle(&mut self, wait: bool) -> Result<bool, Error> {
        let Some(published) = self.durability.publication else {
            return Ok(true);
        };
        let Some(result) = self.cache.files.published(wait) else {
            return Ok(false);
        };
        self.durability.publication = None;
        self.key_ledgers.end_publication(result.is_ok());
        for partition in self.partitions.iter_mut() {
            partition.end_publication(result.is_ok());
        }
        match result {
            Ok(()) => self.note_published(published),
            Err(Unpublished::Blocks(error)) => {
                self.durability.poisoned = true;
                return Err(io_error("making blocks durable", error));
            }
            Err(Unpublished::Manifest(error)) => {
                return Err(io_error("writing the manifest", error));
            }
            Err(Unpublished::Anchor(error)) => return Err(error),
        }
        Ok(true)
    }

    /// Takes note that a manifest is durable and the anchor agrees with it.
    fn note_published(&mut self, published: Published) {
        self.durability.counter = published.counter;
        if !published.is_last {
            return;
        }
        self.durability.manifest_unanchored = false;
        self.durability.position = published.position;
        self.durability.timeline = published.timeline;
        self.cache.free_old_places();
        self.cache.tidy_clock(&self.partitions);
        if published.serving {
            self.replay.forget_old_chains();
        }
        // The end of the file that is free goes back to the file system; to fail at that is no
        // failure of the checkpoint.
        let end = self.cache.free_space.end();
        if let Err(error) = self.cache.files.cut_blocks(end) {
            self.last_error = Some(io_error("cutting the block file", error));
        }
    }

    /// Notes for each block whether the manifest that is about to be written names it.
    fn mark_blocks_in_manifest(&mut self) {
        for partition in self.partitions.iter_mut() {
            for extent in partition.extents.iter_mut().flatten() {
                for block in &mut extent.blocks {
                    block.in_manifest = block.disk.is_some();
                }
            }
        }
    }

    /// Appends the manifest's body to `out`: partitions in the order of their numbers, dropped ones
    /// included, then chains, values in quarantine, keys in clear and ledgers. The caller seals it.
    /// `NoMemory` if no memory is left.
    fn write_body(&self, position: u64, timeline: u32, out: &mut Buffer) -> Result<(), NoMemory> {
        let chains = self.chain_ends();
        let partitions = &self.partitions;
        let count = partitions.iter().count() + partitions.dropped.len();
        let body = ManifestBody {
            position,
            stamp: partitions.stamp,
            sweep: self.reclamation.last_sweep,
            block_version: self.cache.block_version,
            floor: reserve_after(partitions.floor),
            partitions: u32::try_from(count).map_err(|_| NoMemory)?,
            chains: u32::try_from(chains.len()).map_err(|_| NoMemory)?,
            keys: u32::try_from(self.column_keys.len()).map_err(|_| NoMemory)?,
            former_keys: u32::try_from(self.former_keys.len()).map_err(|_| NoMemory)?,
            ledgers: u32::try_from(self.key_ledgers.len()).map_err(|_| NoMemory)?,
            quarantine: self.reclamation.quarantined_count() as u64,
            timeline,
            redo_from: self.replay.redo_from_of_manifest(),
            reached: self.durability.reached.position,
            reached_timeline: self.durability.reached.timeline,
            moved: u32::try_from(partitions.moved().len()).map_err(|_| NoMemory)?,
        };
        out.extend(&body.to_bytes())?;
        let mut dropped = partitions.dropped.iter().peekable();
        for (number, partition) in partitions.iter() {
            while let Some((number, gone)) = dropped.next_if(|(other, _)| **other < number) {
                out.extend(&gone.entry(*number, partitions.floor).to_bytes())?;
            }
            write_partition(number, partition, out)?;
        }
        for (number, gone) in dropped {
            out.extend(&gone.entry(*number, partitions.floor).to_bytes())?;
        }
        for chain in chains {
            out.extend(&chain.to_bytes())?;
        }
        for (fid, sweep) in self.reclamation.quarantined() {
            out.extend(&QuarantineEntry { sweep, fid }.to_bytes())?;
        }
        self.write_keys(out)?;
        self.key_ledgers.write(|bytes| out.extend(bytes))?;
        for (relation, partition) in partitions.moved() {
            let entry = MovedEntry {
                partition,
                relation,
            };
            out.extend(&entry.to_bytes())?;
        }
        Ok(())
    }
}

/// Appends a partition's entry, its columns' keys and its extents with their blocks to `out`.
/// `NoMemory` if no memory is left.
fn write_partition(number: u16, partition: &Partition, out: &mut Buffer) -> Result<(), NoMemory> {
    let entry = PartitionEntry {
        partition: number,
        relation: Some(partition.relation),
        first_extent: partition.first_extent,
        reserved_to: reserve_after(partition.next_extent),
        extents: u32::try_from(partition.numbers().count()).map_err(|_| NoMemory)?,
        stamp: partition.stamp,
        key: partition.key.salt(),
        column_keys: u16::try_from(partition.column_keys.len()).map_err(|_| NoMemory)?,
    };
    out.extend(&entry.to_bytes())?;
    for (column, key) in &partition.column_keys {
        let entry = ColumnKeyEntry {
            column: *column,
            key_id: key.id,
            lineage: key.lineage,
        };
        out.extend(&entry.to_bytes())?;
    }
    for extent_number in partition.numbers() {
        let Some(extent) = partition.extent(extent_number) else {
            continue;
        };
        let bits = |wanted: &dyn Fn(&Block) -> bool| {
            let blocks = extent.blocks.iter().enumerate();
            blocks
                .filter(|(_, block)| wanted(block))
                .fold(0_u64, |bits, (at, _)| bits | 1 << at)
        };
        let entry = ExtentEntry {
            extent: extent_number,
            column: extent.column,
            kind: extent.kind,
            present: bits(&|block| block.disk.is_some()),
            gone: bits(&|block| block.gone),
        };
        out.extend(&entry.to_bytes())?;
        for disk in extent.blocks.iter().filter_map(|block| block.disk) {
            out.extend(&disk.to_bytes())?;
        }
    }
    Ok(())
}
