//! Blocks between memory and disk: reading, evicting, writing.
//!
//! Invariants: S2, S3, S5: a block is written to a part of the block file that nothing names, and
//! only memory knows that part until the next manifest. The memory limit holds at the beginning of
//! each operation: one operation may exceed it by what it needs itself. Must not: let anybody read
//! a block before it is authentic.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use strongroom_columns_ring::Fault;
use strongroom_format::code;
use strongroom_format::columns::manifest::BlockEntry;
use strongroom_keyring::Error;

use super::block_address::BlockAddress;
use super::faults::{Failure, crypto_error, no_memory};
use super::files::{Files, io_error};
use super::frame::Frame;
use super::free_space::{FreeSpace, round_up};
use super::image::{self, ImageError};
use super::memory::{Buffer, Memory};
use super::partition_table::PartitionTable;
use super::pools::{FRAME, MemoryPools};
use super::seal::NONCE;

/// The blocks of a store that are in memory, and the block file.
pub(super) struct BlockCache {
    pub(super) files: Box<dyn Files>,
    pub(super) pools: MemoryPools,
    /// Bytes of values that may be in memory.
    pub(super) limit: u64,
    /// Blocks in memory.
    frames: u64,
    /// Bytes out of line in memory.
    pub(super) out_of_line: u64,
    /// Blocks in memory, in the order in which the clock will look at them.
    clock: VecDeque<BlockAddress>,
    /// The image of a block while it is read or written.
    scratch: Buffer,
    pub(super) free_space: FreeSpace,
    /// Offset and length of the parts that the last manifest names, or the one that is being
    /// published, and the next one will not.
    free_after_manifest: Vec<(u64, u64)>,
    /// Of the parts that the manifest being published does not name any more: they are free when it
    /// is durable.
    free_after_publication: Vec<(u64, u64)>,
    /// Version of the block that was written last.
    pub(super) block_version: u64,
}

impl BlockCache {
    /// A cache without blocks, over these files. `limit` is how many bytes of values may be in
    /// memory, which is taken from `memory`.
    pub(super) fn new(files: Box<dyn Files>, limit: u64, memory: &Arc<Memory>) -> Self {
        Self {
            files,
            pools: MemoryPools::new(memory),
            limit,
            frames: 0,
            out_of_line: 0,
            clock: VecDeque::new(),
            scratch: Buffer::new(memory),
            free_space: FreeSpace::default(),
            free_after_manifest: Vec::new(),
            free_after_publication: Vec::new(),
            block_version: 0,
        }
    }

    /// Bytes that the blocks in memory take, their values out of line included.
    pub(super) fn resident(&self) -> u64 {
        self.frames * FRAME as u64 + self.out_of_line
    }

    /// The addresses of the blocks in memory that were changed since they were written.
    pub(super) fn dirty(&self, partitions: &PartitionTable) -> Vec<BlockAddress> {
        let clock = self.clock.iter().copied();
        let dirty = clock.filter(|at| partitions.block(*at).is_some_and(|block| block.dirty));
        dirty.collect()
    }

    /// Makes sure that a block is in memory: reads it from disk, or makes an empty one if it never
    /// existed. `Fault::PartitionUnknown` or `Fault::ForgedFid` if there is no such partition or
    /// extent, `Fault::OutOfMemory` if no memory is left; SR-8011 if it is damaged on disk, SR-8014
    /// or SR-8023 if it cannot be read.
    pub(super) fn bring_in(
        &mut self,
        partitions: &mut PartitionTable,
        at: BlockAddress,
    ) -> Result<(), Failure> {
        let partition = partitions.get_mut(at.partition);
        let partition = partition.ok_or(Fault::PartitionUnknown)?;
        let found = partition.block_mut(at.extent, at.index());
        let (block, _) = found.ok_or(Fault::ForgedFid)?;
        if block.frame.is_some() {
            return Ok(());
        }
        if block.disk.is_some() {
            return Ok(self.read(partitions, at)?);
        }
        let frame = Frame::new(&self.pools).map_err(|_| Fault::OutOfMemory)?;
        Ok(self.install(partitions, at, frame)?)
    }

    /// Reads a block that is on disk, authenticates it, and installs it in memory. SR-8011 if it is
    /// damaged or cut off, SR-8014 without memory, SR-8023 if the file cannot be read.
    pub(super) fn read(
        &mut self,
        partitions: &mut PartitionTable,
        at: BlockAddress,
    ) -> Result<(), Error> {
        let missing = || Error::new(&code::BUG, "a block that is nowhere");
        let partition = partitions.get_mut(at.partition).ok_or_else(missing)?;
        let disk = partition
            .block_mut(at.extent, at.index())
            .and_then(|(block, _)| block.disk)
            .ok_or_else(missing)?;
        let len = NONCE.saturating_add(usize::try_from(disk.length).unwrap_or(usize::MAX));
        let damaged = || {
            let BlockAddress {
                partition,
                extent,
                block,
            } = at;
            Error::new(
                &code::STORE_BLOCK,
                format!("partition {partition}, extent {extent}, block {block}"),
            )
        };
        self.scratch.clear();
        self.scratch.lengthen(len).map_err(no_memory)?;
        let read = self
            .files
            .read_block(disk.place, self.scratch.as_mut_slice());
        read.map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => damaged(),
            _ => io_error("reading a block", error),
        })?;
        let sealed = self.scratch.as_mut_slice();
        partition
            .key
            .open(at.first_fid(), disk.version, &disk.tag, sealed)
            .map_err(|_| damaged())?;
        let before = partition.slabs.used();
        let image = self.scratch.as_slice().get(NONCE..).unwrap_or_default();
        let frame =
            image::read(image, &mut partition.slabs, &self.pools).map_err(|error| match error {
                ImageError::NoMemory => Error::new(&code::ZONE_MEMORY, ""),
                ImageError::Malformed => damaged(),
            })?;
        self.out_of_line += partition.slabs.used() - before;
        self.scratch.clear();
        self.install(partitions, at, frame)
    }

    /// Puts a frame into its block, as one that was used just now. SR-9001 if there is no such
    /// block.
    fn install(
        &mut self,
        partitions: &mut PartitionTable,
        at: BlockAddress,
        frame: Frame,
    ) -> Result<(), Error> {
        let missing = || Error::new(&code::BUG, "a block without an extent");
        let block = partitions.block_mut(at).ok_or_else(missing)?;
        block.live = frame.live();
        block.frame = Some(frame);
        block.touched.store(true, Ordering::Relaxed);
        self.frames += 1;
        self.clock.push_back(at);
        Ok(())
    }

    /// Writes blocks that were not used lately, and drops them from memory, until the limit is kept
    /// or nothing more can go. While the disk is full, drops those that need no writing. SR-8015 if
    /// the limit is then still exceeded; SR-8014 or SR-8023 if a block cannot be written.
    pub(super) fn evict(&mut self, partitions: &mut PartitionTable) -> Result<(), Error> {
        // Two rounds of the clock: the first clears the flags of touched blocks, the second evicts.
        let mut looks = 2 * self.clock.len();
        let mut full = None;
        while self.resident() > self.limit && looks > 0 {
            looks -= 1;
            let Some(at) = self.clock.pop_front() else {
                break;
            };
            let block = partitions.block_mut(at);
            let Some(block) = block.filter(|block| block.frame.is_some()) else {
                continue;
            };
            if block.touched.swap(false, Ordering::Relaxed) {
                self.clock.push_back(at);
                continue;
            }
            if full.is_some() && block.dirty {
                self.clock.push_back(at);
                continue;
            }
            if let Err(error) = self.write(partitions, at) {
                self.clock.push_back(at);
                if error.code() != &code::ZONE_DISK {
                    return Err(error);
                }
                full = Some(error);
            } else {
                self.discard(partitions, at);
            }
        }
        match full.filter(|_| self.resident() > self.limit) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Drops a block from memory without writing it: changes are lost. Nothing if it is not there.
    pub(super) fn discard(&mut self, partitions: &mut PartitionTable, at: BlockAddress) {
        let Some(partition) = partitions.get_mut(at.partition) else {
            return;
        };
        let before = partition.slabs.used();
        let Some((block, slabs)) = partition.block_mut(at.extent, at.index()) else {
            return;
        };
        if let Some(frame) = block.frame.take() {
            frame.release(slabs);
            block.dirty = false;
            self.frames -= 1;
            self.out_of_line -= before - partition.slabs.used();
        }
    }

    /// Seals a block that was changed, and writes it to a free part of the block file, without a
    /// sync; the former part is released. Nothing if it was not changed or is not in memory.
    /// SR-8014, SR-8015 or SR-8023 if that fails; the block then remains changed.
    pub(super) fn write(
        &mut self,
        partitions: &mut PartitionTable,
        at: BlockAddress,
    ) -> Result<(), Error> {
        let Some(partition) = partitions.get_mut(at.partition) else {
            return Ok(());
        };
        let Some(kind) = partition.extent(at.extent).map(|extent| extent.kind) else {
            return Ok(());
        };
        let Some((block, slabs)) = partition.block_mut(at.extent, at.index()) else {
            return Ok(());
        };
        let Some(frame) = block.frame.as_ref().filter(|_| block.dirty) else {
            return Ok(());
        };
        self.scratch.clear();
        self.scratch.lengthen(NONCE).map_err(no_memory)?;
        image::write(frame, kind, slabs, &mut self.scratch).map_err(no_memory)?;
        let len = self.scratch.len();
        let length = u32::try_from(len - NONCE)
            .map_err(|_| Error::new(&code::BUG, "a block above 4 GiB"))?;
        let version = self.block_version + 1;
        let values = block.live;
        let sealed = self.scratch.as_mut_slice();
        let tag = partition
            .key
            .seal(at.first_fid(), version, sealed)
            .map_err(crypto_error)?;
        let place = self.free_space.allocate(len as u64);
        if let Err(error) = self.files.write_block(place, self.scratch.as_slice()) {
            self.free_space.free(place, len as u64);
            return Err(io_error("writing a block", error));
        }
        self.block_version = version;
        let entry = BlockEntry {
            place,
            length,
            version,
            tag,
            values,
        };
        if let Some(block) = partitions.block_mut(at) {
            let old = block
                .disk
                .replace(entry)
                .map(|disk| (disk, block.in_manifest));
            block.in_manifest = false;
            block.dirty = false;
            self.release(old);
        }
        self.scratch.clear();
        Ok(())
    }

    /// Drops a block from memory and releases its part of the block file: its values are gone.
    pub(super) fn remove(&mut self, partitions: &mut PartitionTable, at: BlockAddress) {
        self.discard(partitions, at);
        let block = partitions.block_mut(at);
        let old = block.and_then(|block| block.disk.take().map(|disk| (disk, block.in_manifest)));
        self.release(old);
    }

    /// Frees the part of the block file that a block was in: at once, or when the next manifest is
    /// durable if the last one names it.
    fn release(&mut self, old: Option<(BlockEntry, bool)>) {
        let Some((disk, in_manifest)) = old else {
            return;
        };
        let len = round_up(NONCE as u64 + u64::from(disk.length));
        if in_manifest {
            self.free_after_manifest.push((disk.place, len));
        } else {
            self.free_space.free(disk.place, len);
        }
    }

    /// Notes that a manifest is being published which names none of the parts that were released
    /// until now.
    pub(super) fn begin_publication(&mut self) {
        self.free_after_publication
            .append(&mut self.free_after_manifest);
    }

    /// Frees the parts of the block file that only former manifests name. To be called when the one
    /// that was being published is durable, and nobody takes a former one for the newest.
    pub(super) fn free_old_places(&mut self) {
        for (place, len) in std::mem::take(&mut self.free_after_publication) {
            self.free_space.free(place, len);
        }
    }

    /// Drops entries of the clock whose block is not in memory, if they have become many.
    pub(super) fn tidy_clock(&mut self, partitions: &PartitionTable) {
        let most = usize::try_from(2 * self.frames + 1024).unwrap_or(usize::MAX);
        if self.clock.len() <= most {
            return;
        }
        self.clock.retain(|at| {
            let block = partitions.block(*at);
            block.is_some_and(|block| block.frame.is_some())
        });
    }
}
