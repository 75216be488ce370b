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
        self.of.shared.records(page);
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
                self.of.shared.plays_back(now.prologue.generation());
            }
        }
        let page_size = self.page_size();
        let Some(page) = self.read_record.next(out, at, page_size) else {
            return;
        };
        if let Some(tail) = out.last_chunk_mut::<TAIL>() {
            self.of.shared.has_record(page, *tail);
            tail.fill(0);
        }
    }
}
