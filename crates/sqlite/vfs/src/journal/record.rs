//! Recognises the records of a rollback journal in the pieces that SQLite writes and reads.
//!
//! Must not: do I/O.

use strongroom_format::sqlite::lock_byte_page;

use crate::big_endian::be_u32_at;

/// The last piece that was written or read of a record. SQLite handles a page's number, its image
/// and its checksum one after the other.
#[derive(Clone, Copy, Default)]
pub(super) struct Record {
    /// Where the last four bytes ended, and their value.
    word: Option<(u64, u32)>,
    /// Where a page image ended; the next four bytes are its checksum.
    image_end: Option<u64>,
}

impl Record {
    /// Takes the next piece that is written or read, at logical offset `at`. Returns the page's
    /// number when the piece is a page image that directly follows its number, and `None` for any
    /// other piece. Notes the piece for the next call.
    pub(super) fn page_of_piece(&mut self, data: &[u8], at: u64, page_size: u32) -> Option<u64> {
        let end = at.saturating_add(data.len() as u64);
        let before = std::mem::take(self);
        if data.len() == 4 && before.image_end != Some(at) {
            self.word = be_u32_at(data, 0).map(|number| (end, number));
        }
        let (_, page) = before.word.filter(|(word_end, _)| *word_end == at)?;
        // The number of the lock-byte page begins a super-journal's name.
        let is_page = data.len() == page_size as usize
            && page != 0
            && u64::from(page) != lock_byte_page(page_size);
        if is_page {
            self.image_end = Some(end);
        }
        is_page.then_some(u64::from(page))
    }
}
