//! What a store's memory is handed out from: blocks, slabs, regions.
//!
//! Must not: know partitions.

use std::sync::Arc;

use super::frame::FRAME;
use super::memory::{Memory, Pool};
use super::slab::Span;

/// The pools of one store.
pub(super) struct Space {
    pub(super) memory: Arc<Memory>,
    pub(super) frames: Pool<[u8; FRAME]>,
    pub(super) spans: Pool<Span>,
}

impl Space {
    pub(super) fn new(memory: &Arc<Memory>) -> Self {
        Self {
            memory: Arc::clone(memory),
            frames: Pool::new(memory),
            spans: Pool::new(memory),
        }
    }
}
