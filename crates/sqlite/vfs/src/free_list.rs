//! The free list: pages that SQLite keeps for later use (SQLite file format, section 1.5). Their
//! content is not needed, so SQLite does not journal it when it takes such a page into use. An
//! interrupted write of such a page that is then rolled back leaves a page that cannot be opened.
//!
//! Must not: write, or trust a list that does not authenticate or contradicts itself.

use std::collections::BTreeSet;

use strongroom_format::sqlite::{PAGE_RESERVE, lock_byte_page};

use crate::big_endian::be_u32_at;

/// Offsets in page 1 of the number of pages, the first trunk of the list, and the number of pages
/// in the list.
const SIZE: usize = 28;
const FIRST_TRUNK: usize = 32;
const COUNT: usize = 36;

/// Returns the leaves of the free list: pages whose content SQLite neither needs nor journals.
/// (Trunks hold the list, and are journaled.) `read` reads a page as SQLite would see it into the
/// buffer; false: it does not authenticate. `None` if page 1 or a trunk does not authenticate, or
/// the list contradicts itself.
///
/// # Errors
/// Those of `read`.
pub(crate) fn free_leaves<E>(
    page_size: u32,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<bool, E>,
) -> Result<Option<BTreeSet<u64>>, E> {
    let mut page = vec![0; page_size as usize];
    if !read(1, &mut page)? {
        return Ok(None);
    }
    let (Some(pages), Some(mut trunk), Some(count)) = (
        number(&page, SIZE),
        number(&page, FIRST_TRUNK),
        number(&page, COUNT),
    ) else {
        return Ok(None);
    };
    let skip = lock_byte_page(page_size);
    let is_page = |number: u64| (2..=pages).contains(&number) && number != skip;
    let (mut trunks, mut leaves) = (BTreeSet::new(), BTreeSet::new());
    while trunk != 0 {
        if !is_page(trunk) || !trunks.insert(trunk) || !read(trunk, &mut page)? {
            return Ok(None);
        }
        let (Some(next), Some(held)) = (number(&page, 0), number(&page, 4)) else {
            return Ok(None);
        };
        let room = u64::from(page_size.saturating_sub(PAGE_RESERVE) / 4).saturating_sub(2);
        if held > room {
            return Ok(None);
        }
        for at in 0..usize::try_from(held).unwrap_or(0) {
            let leaf = number(&page, 8 + 4 * at).filter(|leaf| is_page(*leaf));
            if !leaf.is_some_and(|leaf| leaves.insert(leaf)) {
                return Ok(None);
            }
        }
        trunk = next;
    }
    let whole = trunks.is_disjoint(&leaves) && (trunks.len() + leaves.len()) as u64 == count;
    page.fill(0);
    Ok(whole.then_some(leaves))
}

/// Reads the big-endian number of four bytes at `at`. `None` past the end of the page.
fn number(page: &[u8], at: usize) -> Option<u64> {
    be_u32_at(page, at).map(u64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages of 512 bytes with a list of two trunks.
    fn pages() -> Vec<Vec<u8>> {
        let mut pages = vec![vec![0; 512]; 9];
        let mut put = |page: usize, at: usize, value: u8| pages[page - 1][at + 3] = value;
        put(1, SIZE, 9);
        put(1, FIRST_TRUNK, 4);
        put(1, COUNT, 5);
        put(4, 0, 7);
        put(4, 4, 2);
        put(4, 8, 3);
        put(4, 12, 9);
        put(7, 4, 1);
        put(7, 8, 2);
        pages
    }

    fn found(pages: &[Vec<u8>]) -> Option<Vec<u64>> {
        let read = |number: u64, out: &mut [u8]| -> Result<bool, ()> {
            let page = usize::try_from(number).ok().and_then(|n| pages.get(n - 1));
            out.copy_from_slice(page.map_or(&[0; 512], |page| page));
            Ok(page.is_some())
        };
        let leaves = free_leaves(512, read).unwrap();
        leaves.map(|leaves| leaves.into_iter().collect())
    }

    #[test]
    fn leaves_of_every_trunk_and_no_list_that_contradicts_itself() {
        assert_eq!(found(&pages()), Some(vec![2, 3, 9]));
        let none = [vec![0; 512]];
        assert_eq!(found(&none), Some(vec![]));
        // A loop, a leaf twice, the first page, a page beyond the end, a trunk that is a leaf, more
        // than there is room for, a count that is another.
        for (page, at, value) in [
            (7, 0, 4),
            (7, 8, 3),
            (4, 8, 1),
            (4, 8, 10),
            (4, 8, 7),
            (4, 4, 119),
            (1, COUNT, 4),
            (1, FIRST_TRUNK, 12),
        ] {
            let mut wrong = pages();
            wrong[page - 1][at + 3] = value;
            assert_eq!(found(&wrong), None, "page {page}, byte {at}");
        }
        // A trunk that does not authenticate.
        assert_eq!(found(&pages()[..6]), None);
    }
}
