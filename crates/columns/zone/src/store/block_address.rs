//! Where a block is among the partitions of a store.

use strongroom_format::columns::Fid;

use super::pools::SLOTS;

/// Partition, extent and block: the address of 1024 slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockAddress {
    pub(super) partition: u16,
    pub(super) extent: u32,
    /// Number of the block within its extent, below 64.
    pub(super) block: u8,
}

impl BlockAddress {
    /// The block that an identifier's slot is in.
    #[inline]
    pub(super) fn of(fid: Fid) -> Self {
        Self::at_slot(fid.partition(), fid.extent(), fid.index())
    }

    /// The block that slot `index` of an extent is in.
    #[inline]
    pub(super) fn at_slot(partition: u16, extent: u32, index: u16) -> Self {
        Self {
            partition,
            extent,
            // The upper six bits of the index: the lower ten number the slots of a block.
            block: index.to_le_bytes()[1] >> 2,
        }
    }

    /// The block's number within its extent, 0 to 63, for indexing.
    #[inline]
    pub(super) fn index(self) -> usize {
        usize::from(self.block)
    }

    /// The index within the extent of the block's slot number `slot`, which is below 1024. `None`
    /// on overflow.
    pub(super) fn slot_index(self, slot: usize) -> Option<u16> {
        u16::try_from(self.index() * SLOTS + slot).ok()
    }

    /// The identifier of the block's first slot in generation 0, which its seal is bound to.
    pub(super) fn first_fid(self) -> u64 {
        let index = self.slot_index(0).unwrap_or(u16::MAX);
        Fid::permanent(self.partition, 0, self.extent, index).map_or(0, Fid::bits)
    }
}
