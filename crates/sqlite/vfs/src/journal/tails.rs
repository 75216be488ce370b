//! Tails in a journal's records: in a database that keeps freshness, the last 32 bytes of a record's page, which SQLite
//! leaves zero, are those that the page has on the disk. docs/spec/sqlite.md, "Freshness".
//!
//! Must not: let SQLite see them.

use strongroom_format::journal::JournalState;

use super::core::JournalCore;
use crate::page_tail::{TAIL, tail_on_disk};
use crate::sqlite_code::SqliteResult;

impl JournalCore {
    /// A piece of the journal goes into the buffer; a page image with its page's tail.
    pub(super) fn write_piece(&mut self, data: &[u8], at: u64) -> SqliteResult<()> {
        if !self.keeps_freshness {
            return self.append(data, at);
        }
        let page_size = self.page_size();
        let (Some(page), Some((image, _))) = (
            self.written_record.page_of_piece(data, at, page_size),
            data.split_last_chunk::<TAIL>(),
        ) else {
            return self.append(data, at);
        };
        let tail = tail_on_disk(self.database.main, page, page_size)?;
        self.database.shared.add_recorded_page(page);
        self.append(image, at)?;
        self.append(&tail, at.saturating_add(image.len() as u64))
    }

    /// A piece of the journal was read: `out`.
    pub(super) fn note_read(&mut self, out: &mut [u8], at: u64) {
        if !self.keeps_freshness {
            return;
        }
        let found = !self.begun_here
            && self.head.as_ref().is_some_and(|now| {
                now.is(JournalState::Counted) || now.is(JournalState::Uncounted)
            });
        if at == 0 && out.len() == 8 && found {
            // The first header of a journal that was found: it is being played back.
            if let Some(now) = &self.head {
                self.database
                    .shared
                    .begin_playback(now.prologue.generation());
            }
        }
        let page_size = self.page_size();
        let Some(page) = self.read_record.page_of_piece(out, at, page_size) else {
            return;
        };
        if let Some(tail) = out.last_chunk_mut::<TAIL>() {
            self.database.shared.set_last_record(page, *tail);
            tail.fill(0);
        }
    }
}
