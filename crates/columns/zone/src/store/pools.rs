//! The pools that a store takes its memory from: blocks, slabs, regions.
//!
//! Must not: know partitions.

use std::sync::Arc;

use strongroom_format::columns::block::BLOCK_SLOTS;

use super::memory::{Memory, Pool};
use super::slab::Span;

/// Slots of a block.
pub(super) const SLOTS: usize = BLOCK_SLOTS as usize;
/// Bytes of a block in memory: a word of 8 bytes, a generation and a state for each slot.
pub(super) const FRAME: usize = SLOTS * 10;

/// The pools of one store.
pub(super) struct MemoryPools {
    pub(super) memory: Arc<Memory>,
    pub(super) frames: Pool<[u8; FRAME]>,
    pub(super) spans: Pool<Span>,
}

impl MemoryPools {
    /// Empty pools, which take their memory from `memory`.
    pub(super) fn new(memory: &Arc<Memory>) -> Self {
        Self {
            memory: Arc::clone(memory),
            frames: Pool::new(memory),
            spans: Pool::new(memory),
        }
    }
}
