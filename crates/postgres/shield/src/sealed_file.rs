//! An open sealed file, as the functions that read and write it see it.
//!
//! Must not: know a path, or do any input or output.
#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::expect_used
)]

use std::sync::atomic::AtomicU64;

use crate::instance::Instance;
use crate::layout::{BlockKey, FileLayout};
use crate::zeros::{SECTOR_U64, Zeros};

/// What a treatment may remember of an open file, for as long as the descriptor lives: four words, zero at open, copied
/// by dup. For the header's nonce or file id, or how far a temporary file reaches. Words may be seen by several threads; a treatment orders them itself.
pub type FileCache = [AtomicU64; 4];

/// An open sealed file, as the table of descriptors describes it.
#[derive(Clone, Copy)]
pub struct SealedFile<'a> {
    /// The instance it belongs to.
    pub instance: &'a Instance,
    /// How its bytes are sealed.
    pub layout: FileLayout,
    /// The XTS key of a block file.
    pub key: BlockKey,
    /// Of a block file, the tweak of its first block; the block's number is added to the last four
    /// bytes (little-endian). Of a container, what stands for its name ([`crate::container_name`]).
    pub tweak: [u8; 16],
    /// See [`FileCache`].
    pub cache: &'a FileCache,
}

impl SealedFile<'_> {
    /// Whether this is a transaction status file, in which zeros are sealed like other bytes.
    #[must_use]
    pub fn seals_zeros(&self) -> bool {
        self.key == BlockKey::Slru
    }

    /// Whether a file of `size` bytes may be made longer by zeros that are not sealed, as the
    /// kernel adds them: not a transaction status file, and elsewhere only from the end of a sector
    /// on.
    #[must_use]
    pub fn may_grow_by_plain_zeros(&self, size: u64) -> bool {
        self.layout.is_headerless() && !self.seals_zeros() && size.is_multiple_of(SECTOR_U64)
    }

    /// Where zeros that are stored in this file read as zeros. The files of an instance whose
    /// header does not say that zeros are sealed may have been written by a version that stored
    /// them.
    pub(crate) fn zeros(&self) -> Zeros {
        match (self.instance.keys.zeros_are_sealed(), self.layout) {
            (true, _) if self.seals_zeros() => Zeros::Refused,
            (true, FileLayout::Block | FileLayout::Temporary) => Zeros::BySector,
            _ => Zeros::ByUnit,
        }
    }
}
