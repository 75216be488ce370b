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

/// State of an open file that lives as long as its descriptor: four words, zero at open, copied by
/// dup. They hold the nonce or file id of its header, or the known length of a temporary file, and
/// whether damage was reported. Several threads may use them; each layout orders its own accesses.
pub type FileCache = [AtomicU64; 4];

/// An open sealed file, as an entry of the table of descriptors describes it.
#[derive(Clone, Copy)]
pub struct SealedFile<'a> {
    /// The instance it belongs to.
    pub instance: &'a Instance,
    /// How its bytes are sealed.
    pub layout: FileLayout,
    /// The XTS key of a block file.
    pub key: BlockKey,
    /// Of a block file, the tweak of its first block; the block's number is added to the last four
    /// bytes (little-endian). Of a container, the digest of its name ([`crate::container_name`]).
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

    /// Whether the kernel may extend the file, of `size` bytes, by zeros that are not sealed: not a
    /// transaction status file, and other files only from the end of a sector on.
    #[must_use]
    pub fn may_grow_by_plain_zeros(&self, size: u64) -> bool {
        self.layout.is_headerless() && !self.seals_zeros() && size.is_multiple_of(SECTOR_U64)
    }

    /// Says where zeros that are stored in this file read as zeros. If the header of the instance
    /// does not say that zeros are sealed, an older version may have stored them anywhere.
    pub(crate) fn zeros(&self) -> Zeros {
        match (self.instance.keys.zeros_are_sealed(), self.layout) {
            (true, _) if self.seals_zeros() => Zeros::Refused,
            (true, FileLayout::Block | FileLayout::Temporary) => Zeros::BySector,
            _ => Zeros::ByUnit,
        }
    }
}
