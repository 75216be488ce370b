//! Page tails in a journal's records. In a database that keeps freshness, the last 32 bytes of a
//! record's page, which SQLite leaves zero, hold the tail that the page has on the disk.
//! docs/spec/sqlite.md, "Freshness".
//!
//! Must not: let SQLite read the tails.

use strongroom_format::journal::JournalState;

use super::core::JournalCore;
use crate::page_tail::{TAIL, tail_on_disk};
use crate::sqlite_code::SqliteResult;

impl JournalCore {
    /// Buffers a piece of the journal. With freshness, the last 32 bytes of a page image are
    /// replaced by the tail that the page has on the disk, and the page is noted as recorded. Fails
    /// as the files below do.
    pub(super) fn write_piece(&mut self, data: &[u8], at: u64) -> SqliteResult<()> {
        if !self.keeps_freshness {
            return self.buffer_bytes(data, at);
        }
        let page_size = self.page_size();
        let (Some(page), Some((image, _))) = (
            self.written_record.page_of_piece(data, at, page_size),
            data.split_last_chunk::<TAIL>(),
        ) else {
            return self.buffer_bytes(data, at);
        };
        let tail = tail_on_disk(self.database.main, page, page_size)?;
        self.database.shared.add_recorded_page(page);
        self.buffer_bytes(image, at)?;
        self.buffer_bytes(&tail, at.saturating_add(image.len() as u64))
    }

    /// Notes a piece of the journal that was read into `out`. Does nothing without freshness. The
    /// first header of a found journal begins a playback; a page image makes its page the last
    /// record that was read, and its last 32 bytes in `out` become zero.
    pub(super) fn note_read(&mut self, out: &mut [u8], at: u64) {
        if !self.keeps_freshness {
            return;
        }
        let found = !self.begun_here
            && self.head.as_ref().is_some_and(|now| {
                now.is(JournalState::Counted) || now.is(JournalState::Uncounted)
            });
        if at == 0 && out.len() == 8 && found {
            // This is the first header of a found journal, which is being played back.
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
