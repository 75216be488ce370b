//! A block of the zone's store: 1024 slots, the unit of paging and of sealing.
//!
//! A sealed block is a nonce and the encrypted image. The image has the generation and the state of
//! every slot, then the words and short values, then the bytes that are kept out of line. Specified
//! in docs/spec/columns.md. Must not: hold a value.

use super::Kind;
use crate::aad::{AssociatedData, Role, aad_layout};
use crate::header::Cipher;
use crate::layout::layout;

/// Slots of a block.
pub const BLOCK_SLOTS: u32 = 1024;
/// Blocks of an extent.
pub const EXTENT_BLOCKS: u32 = 64;
/// A block begins at a multiple of this in the block file, in bytes.
pub const BLOCK_UNIT: u64 = 1024;
/// Label of the key that a partition's nonces are made with.
pub const BLOCK_NONCE_LABEL: &str = "strongroom/v1/block-nonce";
/// The longest value, in bytes.
pub const VALUE_MAX: usize = 1_048_576;
/// Longest text or byte string that is kept in its slot's word.
pub const INLINE_MAX: usize = 7;

/// States of a slot.
pub mod state {
    /// Nothing is in it; the generation is that of the next value.
    pub const FREE: u8 = 0;
    /// A value of fixed length, in the slot's word.
    pub const WORD: u8 = 1;
    /// Bytes that are kept out of line; the image has their length.
    pub const BYTES: u8 = 2;
    /// Never used again: its generations are used up.
    pub const RETIRED: u8 = 3;
    /// A short value in the slot's word. Its length is the state less this number, at most
    /// [`super::INLINE_MAX`].
    pub const INLINE: u8 = 8;
}

layout! {
    /// What stands before a sealed image.
    sealed_block_layout, 12, {
        NONCE @ 0, 12;
    }
}

layout! {
    /// What an image begins with.
    image_layout, 2, {
        FORM @ 0, 1;
        WIDTH @ 1, 1;
    }
}

/// Bits of an image's form.
pub mod form {
    /// All slots have one generation.
    pub const ONE_GENERATION: u8 = 1;
    /// All slots have one state.
    pub const ONE_STATE: u8 = 2;
}

/// Returns the number of bytes that a stored block has for each value of this kind, if all its
/// values fit into words: 1, 4 or 8. It is fixed for a kind, so that the length of a block says
/// nothing about its values.
#[must_use]
pub const fn word_width(kind: Kind) -> usize {
    match kind {
        Kind::Bool => 1,
        Kind::Int4 | Kind::Date => 4,
        _ => 8,
    }
}

/// The associated data of a block. Position: the bits of the identifier of its first slot with
/// generation 0 (`first`). Extra: the block's version.
#[must_use]
pub fn block_associated_data(
    object_id: [u8; 16],
    epoch: u32,
    first: u64,
    version: u64,
) -> [u8; aad_layout::SIZE] {
    let place = AssociatedData {
        role: Role::ZoneBlock,
        cipher: Cipher::Aes256Gcm.number(),
        unit_size: 0,
        epoch,
        object_id,
    };
    place.at_with(first, version)
}
