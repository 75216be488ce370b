//! Blocks between memory and disk: reading, evicting, writing.
//!
//! Invariants: S2, S3, S5: a block is written to a place that nothing names, and known there to memory only until the next
//! manifest. The memory limit is kept at the beginning of each operation: one operation may exceed it by what it needs itself.
//! Must not: give a block to anyone before it is authentic.

use std::sync::atomic::Ordering;

use strongroom_columns_ring::Fault;
use strongroom_format::code;
use strongroom_format::columns::Fid;
use strongroom_format::columns::manifest::BlockEntry;
use strongroom_keyring::Error;

use super::files::about;
use super::frame::Frame;
use super::image::{self, ImageError};
use super::partition::{BLOCKS, Block};
use super::places::rounded;
use super::seal::NONCE;
use super::{Found, Store, no_memory, of_crypto};

/// Blocks that one prefetch brings at most.
const PREFETCH_MAX: usize = 1024;

impl Store {
    /// Prefetch by partition: brings blocks from `first`'s to `last`'s into memory, as far as there is room without evicting.
    ///
    /// # Errors
    /// [`Fault::PartitionUnknown`]; those of reading.
    pub fn prefetch(&mut self, first: Fid, last: Fid) -> Result<(), Fault> {
        self.admit()?;
        let number = first.partition();
        let partition = self.partition(number).ok_or(Fault::PartitionUnknown)?;
        let from = (first.extent(), usize::from(first.index() >> 10));
        let to = (last.extent(), usize::from(last.index() >> 10));
        let away: Vec<(u32, usize)> = partition
            .numbers()
            .filter(|extent| (from.0..=to.0).contains(extent))
            .flat_map(|extent| (0..BLOCKS).map(move |block| (extent, block)))
            .filter(|at| (from..=to).contains(at))
            .filter(|(extent, block)| {
                let found = partition
                    .extent(*extent)
                    .map(|extent| &extent.blocks[*block]);
                found.is_some_and(|block| block.frame.is_none() && block.disk.is_some())
            })
            .take(PREFETCH_MAX)
            .collect();
        for (extent, block) in away {
            if self.resident() >= self.limit {
                break;
            }
            self.read_block(number, extent, block)
                .map_err(|error| self.report(error))?;
        }
        Ok(())
    }

    /// Writes up to `blocks` dirty blocks, so that the next checkpoint has less to do.
    ///
    /// # Errors
    /// SR-8015, SR-8023.
    pub fn write_ahead(&mut self, blocks: usize) -> Result<(), Error> {
        let dirty: Vec<_> = self
            .clock
            .iter()
            .copied()
            .filter(|(partition, extent, block)| {
                let extent = self
                    .partition(*partition)
                    .and_then(|partition| partition.extent(*extent));
                extent.is_some_and(|extent| extent.blocks[usize::from(*block)].dirty)
            })
            .take(blocks)
            .collect();
        for (partition, extent, block) in dirty {
            self.write_block(partition, extent, usize::from(block))?;
        }
        Ok(())
    }

    /// Reads the blocks of these FIDs that are away.
    pub(super) fn fetch(&mut self, fids: &[Fid]) -> Result<(), Fault> {
        self.make_room()?;
        for fid in fids {
            if matches!(self.find(*fid), Ok(Found::Away)) {
                let block = usize::from(fid.index() >> 10);
                self.read_block(fid.partition(), fid.extent(), block)
                    .map_err(|error| self.report(error))?;
            }
        }
        Ok(())
    }

    /// Makes sure that the block is in memory: reads it, or makes it when it never was.
    pub(super) fn present(&mut self, number: u16, extent: u32, at: usize) -> Result<(), Fault> {
        let partition = self.partition_mut(number).ok_or(Fault::PartitionUnknown)?;
        let (block, _) = partition.block_mut(extent, at).ok_or(Fault::ForgedFid)?;
        if block.frame.is_some() {
            return Ok(());
        }
        if block.disk.is_some() {
            return self
                .read_block(number, extent, at)
                .map_err(|error| self.report(error));
        }
        let frame = Frame::new(&self.space).map_err(|_| Fault::OutOfMemory)?;
        self.placed(number, extent, at, frame)
            .map_err(|error| self.report(error))
    }

    fn read_block(&mut self, number: u16, extent: u32, at: usize) -> Result<(), Error> {
        let missing = || Error::new(&code::BUG, "a block that is nowhere");
        let partition = self
            .partitions
            .get_mut(usize::from(number))
            .and_then(Option::as_deref_mut);
        let partition = partition.ok_or_else(missing)?;
        let disk = partition
            .block_mut(extent, at)
            .and_then(|(block, _)| block.disk)
            .ok_or_else(missing)?;
        let len = NONCE.saturating_add(usize::try_from(disk.length).unwrap_or(usize::MAX));
        let damaged = || {
            Error::new(
                &code::STORE_BLOCK,
                format!("partition {number}, extent {extent}, block {at}"),
            )
        };
        self.scratch.clear();
        self.scratch.lengthen(len).map_err(no_memory)?;
        let read = self
            .files
            .read_block(disk.place, self.scratch.as_mut_slice());
        read.map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => damaged(),
            _ => about("reading a block", error),
        })?;
        let first = first_fid(number, extent, at);
        let sealed = self.scratch.as_mut_slice();
        partition
            .key
            .open(first, disk.version, &disk.tag, sealed)
            .map_err(|_| damaged())?;
        let before = partition.slabs.used();
        let image = self.scratch.as_slice().get(NONCE..).unwrap_or_default();
        let frame =
            image::read(image, &mut partition.slabs, &self.space).map_err(|error| match error {
                ImageError::NoMemory => Error::new(&code::ZONE_MEMORY, ""),
                ImageError::Malformed => damaged(),
            })?;
        self.strings += partition.slabs.used() - before;
        self.scratch.clear();
        self.placed(number, extent, at, frame)
    }

    fn placed(&mut self, number: u16, extent: u32, at: usize, frame: Frame) -> Result<(), Error> {
        let missing = || Error::new(&code::BUG, "a block without an extent");
        let partition = self.partition_mut(number).ok_or_else(missing)?;
        let (block, _) = partition.block_mut(extent, at).ok_or_else(missing)?;
        block.live = frame.live();
        block.frame = Some(frame);
        block.touched.store(true, Ordering::Relaxed);
        self.frames += 1;
        self.clock
            .push_back((number, extent, u8::try_from(at).unwrap_or(0)));
        Ok(())
    }

    /// Evicts until the limit is kept, or nothing more can go. While the disk is full, blocks that are on it already go.
    pub(super) fn make_room(&mut self) -> Result<(), Fault> {
        if self.resident() <= self.limit {
            return Ok(());
        }
        // Twice around: once to see who was touched, once to evict.
        let mut looks = 2 * self.clock.len();
        let mut full = None;
        while self.resident() > self.limit && looks > 0 {
            looks -= 1;
            let Some((number, extent, at)) = self.clock.pop_front() else {
                break;
            };
            let block = self
                .partition_mut(number)
                .and_then(|partition| partition.block_mut(extent, usize::from(at)))
                .map(|(block, _)| block);
            let Some(block) = block.filter(|block| block.frame.is_some()) else {
                continue;
            };
            if block.touched.swap(false, Ordering::Relaxed) {
                self.clock.push_back((number, extent, at));
                continue;
            }
            if full.is_some() && block.dirty {
                self.clock.push_back((number, extent, at));
                continue;
            }
            if let Err(error) = self.evict(number, extent, usize::from(at)) {
                self.clock.push_back((number, extent, at));
                if error.code() != &code::ZONE_DISK {
                    return Err(self.report(error));
                }
                full = Some(error);
            }
        }
        match full.filter(|_| self.resident() > self.limit) {
            Some(error) => Err(self.report(error)),
            None => Ok(()),
        }
    }

    fn evict(&mut self, number: u16, extent: u32, at: usize) -> Result<(), Error> {
        self.write_block(number, extent, at)?;
        self.forget(number, extent, at);
        Ok(())
    }

    /// Takes a block out of memory.
    pub(super) fn forget(&mut self, number: u16, extent: u32, at: usize) {
        let Some(partition) = self
            .partitions
            .get_mut(usize::from(number))
            .and_then(Option::as_deref_mut)
        else {
            return;
        };
        let before = partition.slabs.used();
        let Some((block, slabs)) = partition.block_mut(extent, at) else {
            return;
        };
        if let Some(frame) = block.frame.take() {
            frame.give_up(slabs);
            block.dirty = false;
            self.frames -= 1;
            self.strings -= before - partition.slabs.used();
        }
    }

    /// Writes a block if it is dirty, to a new place.
    pub(super) fn write_block(&mut self, number: u16, extent: u32, at: usize) -> Result<(), Error> {
        let Some(partition) = self
            .partitions
            .get_mut(usize::from(number))
            .and_then(Option::as_deref_mut)
        else {
            return Ok(());
        };
        let Some(kind) = partition.extent(extent).map(|extent| extent.kind) else {
            return Ok(());
        };
        let Some((block, slabs)) = partition.block_mut(extent, at) else {
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
        let first = first_fid(number, extent, at);
        let sealed = self.scratch.as_mut_slice();
        let tag = partition
            .key
            .seal(first, version, sealed)
            .map_err(of_crypto)?;
        let place = self.places.take(len as u64);
        if let Err(error) = self.files.write_block(place, self.scratch.as_slice()) {
            self.places.give_back(place, len as u64);
            return Err(about("writing a block", error));
        }
        self.block_version = version;
        let entry = BlockEntry {
            place,
            length,
            version,
            tag,
            values,
        };
        if let Some((block, _)) = self
            .partition_mut(number)
            .and_then(|partition| partition.block_mut(extent, at))
        {
            let old = block.disk.replace(entry).map(|disk| (disk, block.kept));
            block.kept = false;
            block.dirty = false;
            self.leave(old);
        }
        self.scratch.clear();
        Ok(())
    }

    /// Gives a block's old place back: at once, or when the next manifest is durable.
    pub(super) fn leave(&mut self, old: Option<(BlockEntry, bool)>) {
        let Some((disk, kept)) = old else {
            return;
        };
        let len = rounded(NONCE as u64 + u64::from(disk.length));
        if kept {
            self.leaving.push((disk.place, len));
        } else {
            self.places.give_back(disk.place, len);
        }
    }

    /// Forgets entries of the clock that lead to nothing, when they have become many.
    pub(super) fn tidy_clock(&mut self) {
        let most = usize::try_from(2 * self.frames + 1024).unwrap_or(usize::MAX);
        if self.clock.len() <= most {
            return;
        }
        let mut clock = std::mem::take(&mut self.clock);
        clock.retain(|(number, extent, at)| {
            let extent = self
                .partition(*number)
                .and_then(|partition| partition.extent(*extent));
            extent.is_some_and(|extent| is_here(&extent.blocks[usize::from(*at)]))
        });
        self.clock = clock;
    }
}

fn is_here(block: &Block) -> bool {
    block.frame.is_some()
}

/// The FID of a block's first slot, generation 0: what its seal is bound to.
fn first_fid(number: u16, extent: u32, at: usize) -> u64 {
    let index = u16::try_from(at * super::frame::SLOTS).unwrap_or(u16::MAX);
    Fid::permanent(number, 0, extent, index).map_or(0, Fid::bits)
}
