//! Checkpoints: all blocks on disk, then a manifest that names them, then the freshness anchor.
//!
//! Invariants: S3 (a crash at any point leaves the last checkpoint or the new one), S4, L5 (a position is acknowledged when manifest and
//! anchor are durable), F4 (the manifest reserves extents ahead). Must not: free a place that the last manifest names before the
//! next one is durable.

use strongroom_format::code;
use strongroom_format::columns::Fid;
use strongroom_format::columns::fid::EXTENTS;
use strongroom_format::columns::manifest::{
    ColumnKeyEntry, EXTENT_RESERVE, ExtentEntry, ManifestBody, PartitionEntry, QuarantineEntry,
};
use strongroom_keyring::Error;

use super::files::about;
use super::memory::{Buffer, NoMemory};
use super::partition::{Extent, Partition};
use super::{Store, no_memory, of_crypto};

impl Store {
    /// Makes the store durable. `position` is a position of the host's log that it held when it asked: every record before it was
    /// sealed by then. Answers with the position that the log may be cut before.
    ///
    /// # Errors
    /// SR-8015, SR-8023, SR-8014: nothing is acknowledged, the last checkpoint stands. After a failed sync it fails until the
    /// store is opened anew.
    pub fn checkpoint(&mut self, position: u64) -> Result<u64, Error> {
        if self.poisoned {
            return Err(Error::new(
                &code::STORE_IO,
                "a sync failed before: start the zone anew",
            ));
        }
        // A position that stays where it is stays what it was: the log's next timeline may begin behind it (L8).
        let timeline = if position > self.position {
            self.host_timeline
        } else {
            self.timeline
        };
        let position = position.max(self.position);
        self.bury();
        self.forget_keys();
        self.write_dirty()?;
        if let Err(error) = self.files.sync_blocks() {
            self.poisoned = true;
            return Err(about("making blocks durable", error));
        }
        // A manifest may be in place that was never acknowledged. Its counter must be left behind by two: see docs/spec/columns.md.
        let rounds = if self.unsettled { 2 } else { 1 };
        for _ in 0..rounds {
            self.publish(position, timeline)?;
        }
        self.unsettled = false;
        (self.position, self.timeline) = (position, timeline);
        for (place, len) in std::mem::take(&mut self.leaving) {
            self.places.give_back(place, len);
        }
        self.tidy_clock();
        self.drop_old_chains();
        // Room behind the last place goes back to the file system; that it does not is no failure.
        let end = self.places.end();
        if let Err(error) = self.files.cut_blocks(end) {
            self.trouble = Some(about("cutting the block file", error));
        }
        Ok(position)
    }

    fn write_dirty(&mut self) -> Result<(), Error> {
        let dirty = self.blocks_that(|_, block| block.dirty);
        for (number, extent, at) in dirty {
            self.write_block(number, extent, at)?;
        }
        Ok(())
    }

    /// Blocks of earlier incarnations in which nothing is left go altogether. Not while a log is replayed: it may yet bring values.
    fn bury(&mut self) {
        if self.recovering || self.following {
            return;
        }
        let had = |block: &super::partition::Block| block.frame.is_some() || block.disk.is_some();
        let empty = self.blocks_that(|extent, block| !extent.own && block.live == 0 && had(block));
        for (number, extent, at) in empty {
            self.forget(number, extent, at);
            let found = self
                .partition_mut(number)
                .and_then(|partition| partition.block_mut(extent, at));
            let old = found.and_then(|(block, _)| {
                block.gone = true;
                block.disk.take().map(|disk| (disk, block.kept))
            });
            self.leave(old);
        }
    }

    fn blocks_that(
        &self,
        wanted: impl Fn(&Extent, &super::partition::Block) -> bool,
    ) -> Vec<(u16, u32, usize)> {
        let mut found = Vec::new();
        for (number, partition) in self.numbered() {
            for extent_number in partition.numbers() {
                let Some(extent) = partition.extent(extent_number) else {
                    continue;
                };
                let blocks = extent.blocks.iter().enumerate();
                let some = blocks.filter(|(_, block)| wanted(extent, block));
                found.extend(some.map(|(at, _)| (number, extent_number, at)));
            }
        }
        found
    }

    /// The partitions in use, in order of number.
    pub(super) fn numbered(&self) -> impl Iterator<Item = (u16, &Partition)> {
        let numbers = 0..=u16::MAX;
        let with_numbers = self.partitions.iter().zip(numbers);
        with_numbers.filter_map(|(partition, number)| Some((number, partition.as_deref()?)))
    }

    /// Writes one manifest and advances the anchor to it.
    fn publish(&mut self, position: u64, timeline: u32) -> Result<(), Error> {
        let mut body = Buffer::new(&self.space.memory);
        self.write_body(position, timeline, &mut body)
            .map_err(no_memory)?;
        let counter = self.counter + 1;
        let head = self
            .keys
            .seal_manifest(counter, body.as_mut_slice())
            .map_err(of_crypto)?;
        let mut file = head.to_bytes().to_vec();
        file.extend_from_slice(body.as_slice());
        // From here on the new manifest may be the last one, whatever happens.
        self.unsettled = true;
        self.keep_places();
        self.files
            .replace_manifest(&file)
            .map_err(|error| about("writing the manifest", error))?;
        self.anchor.advance(counter)?;
        self.counter = counter;
        for partition in self.partitions.iter_mut().flatten() {
            partition.reserved_to = ahead(partition.next_extent);
            partition.durable = true;
            for key in partition.column_keys.values_mut() {
                key.durable = true;
            }
        }
        Ok(())
    }

    fn keep_places(&mut self) {
        for partition in self.partitions.iter_mut().flatten() {
            for extent in partition.extents.iter_mut().flatten() {
                for block in &mut extent.blocks {
                    block.kept = block.disk.is_some();
                }
            }
        }
    }

    fn write_body(&self, position: u64, timeline: u32, out: &mut Buffer) -> Result<(), NoMemory> {
        let chains = self.chains_now();
        let count = self.relations_now() + self.dropped.len();
        let body = ManifestBody {
            position,
            stamp: self.stamp,
            sweep: self.sweep,
            block_version: self.block_version,
            floor: ahead(self.floor),
            partitions: u32::try_from(count).map_err(|_| NoMemory)?,
            chains: u32::try_from(chains.len()).map_err(|_| NoMemory)?,
            keys: u32::try_from(self.kept.len()).map_err(|_| NoMemory)?,
            quarantine: self.quarantine.len() as u64,
            timeline,
        };
        out.extend(&body.to_bytes())?;
        let mut dropped = self.dropped.iter().peekable();
        for (number, partition) in self.numbered() {
            while let Some((number, gone)) = dropped.next_if(|(other, _)| **other < number) {
                out.extend(&gone.entry(*number, self.floor).to_bytes())?;
            }
            write_partition(number, partition, out)?;
        }
        for (number, gone) in dropped {
            out.extend(&gone.entry(*number, self.floor).to_bytes())?;
        }
        for chain in chains {
            out.extend(&chain.to_bytes())?;
        }
        for (bits, sweep) in &self.quarantine {
            if let Some(fid) = Fid::from_bits(*bits) {
                out.extend(&QuarantineEntry { sweep: *sweep, fid }.to_bytes())?;
            }
        }
        self.write_keys(out)
    }

    fn relations_now(&self) -> usize {
        self.partitions.iter().flatten().count()
    }
}

/// The first extent that is not reserved when `next` is the next one to be used.
pub(super) fn ahead(next: u32) -> u32 {
    next.saturating_add(EXTENT_RESERVE).min(EXTENTS)
}

fn write_partition(number: u16, partition: &Partition, out: &mut Buffer) -> Result<(), NoMemory> {
    let entry = PartitionEntry {
        partition: number,
        relation: Some(partition.relation),
        first_extent: partition.first_extent,
        reserved_to: ahead(partition.next_extent),
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
        let bits = |wanted: &dyn Fn(&super::partition::Block) -> bool| {
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
