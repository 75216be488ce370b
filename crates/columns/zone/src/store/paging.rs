//! The store's use of its block cache: it brings blocks into memory when an operation needs them,
//! and keeps the memory limit.

use strongroom_columns_ring::Fault;
use strongroom_format::columns::Fid;

use super::block_address::BlockAddress;
use super::partition::BLOCKS;
use super::{Lookup, Store};

/// The most blocks that one prefetch reads.
const PREFETCH_MAX: usize = 1024;

impl Store {
    /// Reads into memory the blocks from the one with `first` to the one with `last`, two
    /// identifiers of one partition: at most 1024, and only as far as there is room without
    /// evicting.
    ///
    /// # Errors
    /// [`Fault::PartitionUnknown`] if there is no such partition; [`Fault::Recovering`] before the
    /// host's log is replayed; those of reading.
    pub fn prefetch(&mut self, first: Fid, last: Fid) -> Result<(), Fault> {
        self.check_recovered()?;
        let number = first.partition();
        let partition = self.partitions.get(number);
        let partition = partition.ok_or(Fault::PartitionUnknown)?;
        let (first, last) = (BlockAddress::of(first), BlockAddress::of(last));
        let range = (first.extent, first.index())..=(last.extent, last.index());
        let on_disk: Vec<BlockAddress> = partition
            .numbers()
            .filter(|extent| (first.extent..=last.extent).contains(extent))
            .flat_map(|extent| (0_u8..).take(BLOCKS).map(move |block| (extent, block)))
            .filter(|(extent, block)| range.contains(&(*extent, usize::from(*block))))
            .map(|(extent, block)| BlockAddress {
                partition: number,
                extent,
                block,
            })
            .filter(|at| {
                let block = self.partitions.block(*at);
                block.is_some_and(|block| block.frame.is_none() && block.disk.is_some())
            })
            .take(PREFETCH_MAX)
            .collect();
        for at in on_disk {
            if self.cache.resident() >= self.cache.limit {
                break;
            }
            self.read_block(at)?;
        }
        Ok(())
    }

    /// Reads those blocks of these identifiers into memory that are on disk only; evicts others
    /// first if the limit is exceeded. Ignores identifiers that lead nowhere.
    /// `Fault::StoreDamaged`, `Fault::StoreIo` or `Fault::OutOfMemory` if one cannot be read, or
    /// room cannot be made.
    pub(super) fn fetch(&mut self, fids: &[Fid]) -> Result<(), Fault> {
        self.make_room()?;
        for fid in fids {
            if matches!(self.find(*fid), Ok(Lookup::OnDisk)) {
                self.read_block(BlockAddress::of(*fid))?;
            }
        }
        Ok(())
    }

    /// Makes sure that a block is in memory: reads it, or makes an empty one if it never existed.
    /// An error is noted, and becomes a fault.
    pub(super) fn bring_in(&mut self, at: BlockAddress) -> Result<(), Fault> {
        self.cache
            .bring_in(&mut self.partitions, at)
            .map_err(|failure| self.report_failure(failure))
    }

    /// Reads a block from disk into memory. An error is noted, and becomes a fault.
    fn read_block(&mut self, at: BlockAddress) -> Result<(), Fault> {
        self.cache
            .read(&mut self.partitions, at)
            .map_err(|error| self.report(error))
    }

    /// Writes and evicts blocks until the memory limit is kept, as far as that is possible. An
    /// error is noted, and becomes a fault.
    pub(super) fn make_room(&mut self) -> Result<(), Fault> {
        if self.cache.resident() <= self.cache.limit {
            return Ok(());
        }
        self.cache
            .evict(&mut self.partitions)
            .map_err(|error| self.report(error))
    }
}
