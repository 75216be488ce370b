//! The memory Argon2 fills: fallible to allocate, kept out of core dumps, wiped after use.
//!
//! Invariants: the blocks start as zeros and are zeros again before they go back to the system
//! (C3); an allocation the system refuses is an error, not an abort.
//!
//! Must not: be locked. It is as large as the passphrase parameters say, 64 MiB by default, which
//! no ordinary lock limit allows.
#![expect(unsafe_code, reason = "gives a mapping the type Argon2 wants")]

use argon2::Block;

use crate::error::CryptoError;
use crate::mapping::Mapping;

/// The blocks of one Argon2 computation.
pub(crate) struct Matrix {
    pages: Mapping,
    blocks: usize,
}

const _: () = assert!(size_of::<Block>() == Block::SIZE && align_of::<Block>() <= 4096);

impl Matrix {
    /// Maps so many blocks of zeros, which are not locked. Errors: [`CryptoError::OutOfMemory`].
    pub(crate) fn new(blocks: usize) -> Result<Self, CryptoError> {
        let len = blocks
            .checked_mul(Block::SIZE)
            .ok_or(CryptoError::OutOfMemory)?;
        let pages = Mapping::new(len).ok_or(CryptoError::OutOfMemory)?;
        Ok(Self { pages, blocks })
    }

    /// Returns the blocks, for Argon2 to fill.
    pub(crate) fn blocks(&mut self) -> &mut [Block] {
        // SAFETY: the mapping is page-aligned and holds `blocks` blocks; a block is an array of
        // integers, so zeros are a valid one; `&mut self` makes the view exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.pages.base().cast().as_ptr(), self.blocks) }
    }

    /// Overwrites the blocks with zeros.
    fn wipe(&mut self) {
        // SAFETY: the range is owned and writable.
        unsafe { self.pages.base().as_ptr().write_bytes(0, self.pages.len()) };
        // Without the barrier the compiler could leave the stores out, because the pages are
        // unmapped next. A volatile loop over 64 MiB would be several times slower.
        zeroize::optimization_barrier(self.blocks());
    }
}

impl Drop for Matrix {
    /// Wipes the blocks, and unmaps them.
    fn drop(&mut self) {
        self.wipe();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_start_as_zeros_and_can_be_wiped_to_the_end() {
        let mut matrix = Matrix::new(37).unwrap();
        assert_eq!(matrix.blocks().len(), 37);
        for block in matrix.blocks() {
            assert!(block.as_ref().iter().all(|word| *word == 0));
            block.as_mut().fill(u64::MAX);
        }
        matrix.wipe();
        assert!(
            matrix
                .blocks()
                .iter()
                .all(|block| block.as_ref().iter().all(|word| *word == 0))
        );
    }

    #[test]
    fn a_refused_allocation_is_an_error() {
        assert_eq!(
            Matrix::new(usize::MAX).err(),
            Some(CryptoError::OutOfMemory)
        );
        // 2^57 bytes: more address space than any user process has.
        assert_eq!(Matrix::new(1 << 47).err(), Some(CryptoError::OutOfMemory));
    }
}
