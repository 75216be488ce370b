//! A block of the zone's store: 1024 slots, the unit of paging and of sealing.
//!
//! Sealed, a block is a nonce and the encrypted image. The image is the state of every slot, then the words of the slots that have
//! one, then the bytes that are kept out of line. Specified in docs/spec/columns.md. Must not: hold a value.

use crate::aad::{Place, Role, aad_layout};
use crate::header::Cipher;
use crate::layout::layout;

/// Slots of a block.
pub const BLOCK_SLOTS: u32 = 1024;
/// Blocks of an extent.
pub const EXTENT_BLOCKS: u32 = 64;
/// Places in the block file begin at a multiple of this, in bytes.
pub const BLOCK_UNIT: u64 = 1024;
/// The longest value, in bytes.
pub const VALUE_MAX: usize = 1_048_576;
/// Longest text or byte string that is kept in its slot's word.
pub const INLINE_MAX: usize = 7;

/// States of a slot.
pub mod state {
    /// Nothing is in it; the generation is that of the next value.
    pub const FREE: u8 = 0;
    /// A word.
    pub const WORD: u8 = 1;
    /// Bytes out of line; the image has their length in the word's place.
    pub const BYTES: u8 = 2;
    /// Its generations are used up.
    pub const RETIRED: u8 = 3;
    /// As many bytes in the word as the state is above this, at most [`super::INLINE_MAX`].
    pub const INLINE: u8 = 8;
}

layout! {
    /// What stands before a sealed image.
    sealed_block_layout, 12, {
        NONCE @ 0, 12;
    }
}

layout! {
    /// The state of one slot in an image.
    slot_state_layout, 2, {
        GENERATION @ 0, 1;
        STATE @ 1, 1;
    }
}

/// The associated data of a block: the FID bits of its first slot, generation 0, as position; the version as extra.
#[must_use]
pub fn block_bound(
    object_id: [u8; 16],
    epoch: u32,
    first: u64,
    version: u64,
) -> [u8; aad_layout::SIZE] {
    let place = Place {
        role: Role::ZoneBlock,
        cipher: Cipher::Aes256Gcm.number(),
        unit_size: 0,
        epoch,
        object_id,
    };
    place.at_with(first, version)
}
