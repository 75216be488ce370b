//! Repairs the free list after a rollback: seals its torn pages again, as zeros.
//!
//! SQLite does not journal the content of a page that it takes from the free list
//! ([`crate::free_list`]). When the write of such a page is interrupted and the transaction is
//! rolled back, the page is free again and stays torn. SQLite does not read it, but it cannot be
//! opened, and VACUUM, the backup API and a rekey read it.
//!
//! Invariant M9: when a rollback is over, and before its journal is removed, every leaf of the free
//! list can be opened.
//! Must not: write a page that authenticates, or one that is not a leaf of a free list that does.

use strongroom_format::header::Cipher;
use strongroom_format::sqlite::page_offset;

use super::MainFile;
use crate::free_list::free_leaves;
use crate::page_tail::{TAIL, parse_tail};
use crate::sqlite_code::SqliteResult;
use crate::wal::has_log;

impl MainFile {
    /// Writes zeros over the torn leaves of the free list, if a journal was played back or a write
    /// failed since the last call. If this fails, the next call tries again. Called when SQLite is
    /// about to sync the database: the file is then in the state that is valid if the sync
    /// succeeds, and no other connection writes.
    pub(super) fn repair_after_rollback(&mut self) -> SqliteResult<()> {
        let played_back = self.shared.take_played_back();
        if !self.has_header || (!played_back && self.torn.is_empty()) {
            return Ok(());
        }
        let torn = std::mem::take(&mut self.torn);
        let healed = self.reseal_torn_leaves(|leaf| played_back || torn.contains(&leaf));
        if healed.is_err() {
            // The rollback has failed; SQLite will try it again.
            self.torn.extend(torn);
            self.shared.mark_played_back();
        }
        healed.map(|_| ())
    }

    /// Writes sealed zeros over those leaves of the free list that are `wanted` and cannot be
    /// opened, and returns their number. 0, and nothing is written, under AES-256-CTR, while the
    /// write-ahead log holds anything, or if the list is not authentic. The caller holds the write
    /// lock.
    pub(crate) fn reseal_torn_leaves(&mut self, wanted: impl Fn(u64) -> bool) -> SqliteResult<u64> {
        // A list that does not authenticate is not used, and with a log the file alone is not the
        // database.
        if self.require_header()?.object.header().cipher == Cipher::Aes256Ctr
            || has_log(&self.path)?
        {
            return Ok(0);
        }
        self.flush_journal()?;
        self.forget_cached_pages();
        self.refresh_header()?;
        let Some(leaves) = free_leaves(self.page_size, |number, page| {
            self.read_page_quietly(number, page)
        })?
        else {
            return Ok(0);
        };
        let mut page = vec![0; self.page_size as usize];
        let zeros = page.clone();
        let mut healed = 0;
        for leaf in leaves.into_iter().filter(|leaf| wanted(*leaf)) {
            // Pages after the file's end are sealed when the file grows (M6).
            if leaf <= self.pages && !self.read_page_quietly(leaf, &mut page)? {
                self.write_page(leaf, &zeros)?;
                healed += 1;
            }
        }
        page.fill(0);
        Ok(healed)
    }

    /// Reads and opens a page. Returns false, and reports nothing, also without a key, if it is not
    /// completely in the file or does not authenticate. Fails as the file below does.
    fn read_page_quietly(&self, number: u64, page: &mut [u8]) -> SqliteResult<bool> {
        if !self
            .lower
            .read_whole(page, page_offset(number, self.page_size))?
        {
            return Ok(false);
        }
        let tail = page
            .get(page.len().saturating_sub(TAIL)..)
            .and_then(parse_tail);
        let cipher = tail.and_then(|(_, _, epoch)| self.require_header().ok()?.cipher(epoch));
        let opened = cipher.is_some_and(|cipher| cipher.open(number, page).is_ok());
        if !opened {
            page.fill(0);
        }
        Ok(opened)
    }
}
