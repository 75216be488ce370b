//! Tails in a journal's records: in a database that keeps freshness, the last 32 bytes of a record's page, which SQLite
//! leaves zero, are those that the page has on the disk. docs/spec/sqlite.md, "Freshness".
//!
//! Must not: let SQLite see them.

use strongroom_format::sqlite::lock_byte_page;

use super::{JournalCore, JournalState};
use crate::seal::TAIL;
use crate::sealed::tail_on_disk;
use crate::sqlite_code::SqliteResult;
use crate::word::word;

/// What was last written or read of a record: SQLite handles a page's number, its image and its sum one after the other.
#[derive(Clone, Copy, Default)]
pub(super) struct Record {
    /// Where four bytes ended, and their number.
    word: Option<(u64, u32)>,
    /// Where an image ended: the next four bytes are its sum.
    image_end: Option<u64>,
}

impl Record {
    /// Takes the next piece; the page's number when it is a page image.
    fn next(&mut self, data: &[u8], at: u64, page_size: u32) -> Option<u64> {
        let end = at.saturating_add(data.len() as u64);
        let before = std::mem::take(self);
        if data.len() == 4 && before.image_end != Some(at) {
            self.word = word(data, 0).map(|number| (end, number));
        }
        let (_, page) = before.word.filter(|(word_end, _)| *word_end == at)?;
        // Such a number begins a super-journal's name.
        let is_page = data.len() == page_size as usize
            && page != 0
            && u64::from(page) != lock_byte_page(page_size);
        if is_page {
            self.image_end = Some(end);
        }
        is_page.then_some(u64::from(page))
    }
}

impl JournalCore {
    /// A piece of the journal goes into the buffer; a page image with its page's tail.
    pub(super) fn put_piece(&mut self, data: &[u8], at: u64) -> SqliteResult<()> {
        if !self.keeps_freshness {
            return self.put(data, at);
        }
        let page_size = self.page_size();
        let (Some(page), Some((image, _))) = (
            self.written_record.next(data, at, page_size),
            data.split_last_chunk::<TAIL>(),
        ) else {
            return self.put(data, at);
        };
        let tail = tail_on_disk(self.of.main, page, page_size)?;
        self.of.link.records(page);
        self.put(image, at)?;
        self.put(&tail, at.saturating_add(image.len() as u64))
    }

    /// A piece of the journal was read: `out`.
    pub(super) fn read_piece(&mut self, out: &mut [u8], at: u64) {
        if !self.keeps_freshness {
            return;
        }
        let found = !self.mine
            && self.in_force.as_ref().is_some_and(|now| {
                now.is(JournalState::Counted) || now.is(JournalState::Uncounted)
            });
        if at == 0 && out.len() == 8 && found {
            // The first header of a journal that was found: it is being played back.
            if let Some(now) = &self.in_force {
                self.of.link.plays_back(now.prologue.generation());
            }
        }
        let page_size = self.page_size();
        let Some(page) = self.read_record.next(out, at, page_size) else {
            return;
        };
        if let Some(tail) = out.last_chunk_mut::<TAIL>() {
            self.of.link.has_record(page, *tail);
            tail.fill(0);
        }
    }
}
