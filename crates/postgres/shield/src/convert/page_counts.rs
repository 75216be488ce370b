//! Counts how many pages of relations look like pages, which distinguishes decrypted relations from
//! noise.
//!
//! Must not: compute page checksums. Damage that was there before a conversion is no failure of the
//! conversion.

/// The field of a page with its size and layout (`pd_pagesize_version`), and its value.
const PAGE_VERSION: std::ops::Range<usize> = 18..20;
const PAGE_VERSION_VALUE: [u8; 2] = [4, 0x20];
/// PostgreSQL's block, in bytes.
const BLOCK: usize = 8192;

/// How many pages look like pages.
#[derive(Default)]
pub(super) struct PageCounts {
    sound: u64,
    odd: u64,
}

impl PageCounts {
    /// Counts the pages of a piece of a relation by whether they look like pages; pages of zeros do
    /// not count.
    pub(super) fn count(&mut self, piece: &[u8]) {
        for page in piece.chunks_exact(BLOCK) {
            if page.get(PAGE_VERSION) == Some(&PAGE_VERSION_VALUE) {
                self.sound = self.sound.saturating_add(1);
            } else if page.iter().any(|&byte| byte != 0) {
                self.odd = self.odd.saturating_add(1);
            }
        }
    }

    /// Adds the counts of `other`.
    pub(super) const fn add(&mut self, other: &Self) {
        self.sound = self.sound.saturating_add(other.sound);
        self.odd = self.odd.saturating_add(other.odd);
    }

    /// Whether more of the counted pages do not look like pages than do. A few may be damaged;
    /// under a wrong key nearly all look so.
    pub(super) const fn is_noise(&self) -> bool {
        self.odd > self.sound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_told_from_pages() {
        let mut page = vec![0_u8; BLOCK];
        page[..8].fill(7);
        page[PAGE_VERSION].copy_from_slice(&PAGE_VERSION_VALUE);
        let mut pages = PageCounts::default();
        pages.count(&[page.clone(), vec![0; BLOCK], vec![0x55; BLOCK], page].concat());
        assert!(!pages.is_noise());
        pages.count(&[0xaa; 2 * BLOCK]);
        assert!(pages.is_noise());
        assert!(!PageCounts::default().is_noise());
    }
}
