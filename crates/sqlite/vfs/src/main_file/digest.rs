//! Maintains the digest over a database's pages while this connection writes them.
//! docs/internals/sqlite-vfs.md, "Freshness".
//!
//! In rollback mode the digest changes with each page, and is in an anchor before SQLite's sync
//! (X3). In write-ahead mode only checkpoints write pages, and the digest is computed when one is
//! complete, from the tails in the log's frames (X2).
//!
//! Must not: do anything in a database that does not keep freshness.

use std::sync::Arc;

use strongroom_format::code;
use strongroom_format::freshness::{Covered, FreshState};
use strongroom_keyring::Error;

use super::MainFile;
use crate::big_endian::be_u32_at;
use crate::ffi::{SQLITE_LOCK_EXCLUSIVE, SQLITE_SYNC_NORMAL};
use crate::freshness::{Contribution, DigestSum, LogTails, RunningDigest};
use crate::lower::LowerFile;
use crate::page_tail::{Tail, tail_on_disk};
use crate::report::{report, report_error};
use crate::sealed::SealedDatabase;
use crate::sqlite_code::SqliteResult;

impl MainFile {
    /// Whether the database has a header that is opened and that says that freshness is kept.
    pub(super) fn keeps_freshness(&self) -> bool {
        self.has_header
            && self
                .opened
                .as_ref()
                .is_some_and(|opened| opened.object.header().freshness)
    }

    /// Returns the state that all connections of this process to the file share. Reports SR-2001 if
    /// no key was given yet.
    fn sealed_object(&self) -> SqliteResult<&Arc<SealedDatabase>> {
        self.sealed
            .as_ref()
            .ok_or_else(|| report(&code::NO_KEY, self.path.as_str()))
    }

    /// Returns what page `number` with this tail (its last 32 bytes) adds to the digest of the
    /// database. SR-2001, reported, if no key was given yet.
    fn contribution(&self, number: u64, tail: &Tail) -> SqliteResult<DigestSum> {
        Ok(self.require_header()?.contribution(number, tail))
    }

    /// Returns what page `number` adds to the digest, by the tail (its last 32 bytes) that is in
    /// the file now. Fails as the file below does.
    fn contribution_on_disk(&self, number: u64) -> SqliteResult<DigestSum> {
        let tail = tail_on_disk(self.lower, number, self.page_size)?;
        self.contribution(number, &tail)
    }

    /// Takes the running digest out of `self` if it fits the current journal; otherwise makes one
    /// from the anchor, which is read from the file. The caller puts it back. SR-2001 without a
    /// key, SR-3010 if no anchor is valid.
    fn take_tally(&mut self) -> SqliteResult<RunningDigest> {
        let undo = self.shared.undo_journal();
        if let Some(tally) = self.tally.take()
            && tally.continues(undo.journal, undo.playback)
        {
            return Ok(tally);
        }
        let sealed = self.sealed_object()?;
        let anchor = sealed.anchor(self.lower)?;
        let state = sealed
            .opened_header()
            .object
            .fresh_state(&anchor)
            .map_err(|error| report_error(&error))?;
        let is_empty = self.body_len()? == 0;
        Ok(RunningDigest::new(
            anchor,
            &state,
            undo.journal,
            undo.playback,
            is_empty,
        ))
    }

    /// Calls `work` with the running digest, which is made from the anchor first when this handle
    /// has none. After an error of `work` it is kept as `work` left it. Fails as `work` does, or as
    /// [`Self::take_tally`] does.
    fn with_tally<T>(
        &mut self,
        work: impl FnOnce(&Self, &mut RunningDigest) -> SqliteResult<T>,
    ) -> SqliteResult<T> {
        let mut tally = self.take_tally()?;
        let result = work(self, &mut tally);
        self.tally = Some(tally);
        result
    }

    /// Returns what the page contributes to the digest before it is written. `None` when no digest
    /// is maintained: without freshness, and while there is a write-ahead log. May first write an
    /// anchor that says that the page is not in the journal. SR-3010 if no anchor is valid;
    /// otherwise fails as the file below does.
    pub(super) fn contribution_before_write(
        &mut self,
        number: u64,
    ) -> SqliteResult<Option<DigestSum>> {
        if !self.keeps_freshness() || self.shared.log_file().is_some() {
            return Ok(None);
        }
        self.with_tally(|main, tally| {
            if tally.becomes_unjournaled(number) && !main.shared.is_recorded(number) {
                main.record_unjournaled_write(tally)?;
            }
            main.include_pages_up_to(tally, number.saturating_sub(1))?;
            let counted = match tally.contribution_of(number) {
                Contribution::As(sum) => sum,
                Contribution::OnDisk => main.contribution_on_disk(number)?,
                Contribution::InRecord => match main.shared.undo_journal().record {
                    Some((page, tail)) if page == number => main.contribution(number, &tail)?,
                    _ => {
                        tally.set_doubt();
                        main.contribution_on_disk(number)?
                    }
                },
            };
            Ok(Some(counted))
        })
    }

    /// Updates the digest in memory after a page was written, or failed to be written. `counted` is
    /// what it counted for the page before, and `tail` the page's tail on the disk now; `None`
    /// after a failure.
    pub(super) fn update_digest(
        &mut self,
        number: u64,
        counted: DigestSum,
        data: &[u8],
        tail: Option<Tail>,
    ) -> SqliteResult<()> {
        self.with_tally(|main, tally| {
            let Some(tail) = tail else {
                tally.note_failed_write(number, counted);
                return Ok(());
            };
            tally.exchange(number, counted, main.contribution(number, &tail)?);
            if number == 1 {
                tally.set_page_count(be_u32_at(data, 28).unwrap_or(0));
            }
            Ok(())
        })
    }

    /// Writes an anchor that says that this transaction writes a page of which its journal has no
    /// record, and syncs the file, unless `synchronous` is OFF. Another process that rolls the
    /// transaction back cannot compute the digest. Fails as the file below does.
    fn record_unjournaled_write(&self, tally: &mut RunningDigest) -> SqliteResult<()> {
        let anchor = self.sealed_object()?.write_anchor(
            self.lower,
            tally.anchor(),
            &tally.unjournaled_state(),
        )?;
        if !self.shared.undo_journal().unsynced {
            self.lower.sync(SQLITE_SYNC_NORMAL)?;
        }
        tally.set_unjournaled(anchor);
        Ok(())
    }

    /// Adds the pages after the last counted one, up to `last`, to the running digest, by their
    /// tails in the file. Fails as the file below does.
    fn include_pages_up_to(&self, tally: &mut RunningDigest, last: u64) -> SqliteResult<()> {
        while tally.page_count() < last {
            let number = tally.page_count() + 1;
            tally.exchange(
                number,
                DigestSum::default(),
                self.contribution_on_disk(number)?,
            );
        }
        Ok(())
    }

    /// Writes the digest of what the file holds into an anchor, before SQLite syncs the file (X3).
    /// Does nothing if it has not changed, in write-ahead mode, or without freshness. Does not
    /// sync. SR-3010 if no anchor is valid; otherwise fails as the file below does.
    pub(super) fn write_digest(&mut self) -> SqliteResult<()> {
        if !self.keeps_freshness() || self.shared.log_file().is_some() {
            return Ok(());
        }
        let undo = self.shared.undo_journal();
        if self.tally.is_none() && !undo.playback {
            return Ok(());
        }
        self.with_tally(|main, tally| {
            if !tally.is_dirty() {
                return Ok(());
            }
            for (number, counted) in tally.uncertain_pages() {
                tally.exchange(number, counted, main.contribution_on_disk(number)?);
            }
            let wanted = tally.final_page_count();
            main.include_pages_up_to(tally, wanted)?;
            main.drop_pages_after(tally, wanted)?;
            let anchor =
                main.sealed_object()?
                    .write_anchor(main.lower, tally.anchor(), &tally.state())?;
            tally.set_written(anchor);
            main.shared.end_playback();
            Ok(())
        })
    }

    /// Subtracts the pages after `last` from the running digest, each by its tail in the file.
    /// Fails as the file below does.
    fn drop_pages_after(&self, tally: &mut RunningDigest, last: u64) -> SqliteResult<()> {
        while tally.page_count() > last {
            let counted = self.contribution_on_disk(tally.page_count())?;
            tally.drop_last(counted);
        }
        Ok(())
    }

    /// Removes the pages after page `last` from the digest, before the file is truncated. In
    /// write-ahead mode a checkpoint truncates: then this writes the digest after the checkpoint
    /// into an anchor. Does nothing without freshness. SR-3010 if no anchor is valid; otherwise
    /// fails as the file below does.
    pub(super) fn truncate_digest(&mut self, last: u64) -> SqliteResult<()> {
        if !self.keeps_freshness() {
            return Ok(());
        }
        if let Some(log) = self.shared.log_file() {
            return self.update_digest_after_checkpoint(log, last);
        }
        self.with_tally(|main, tally| main.drop_pages_after(tally, last))
    }

    /// Writes the changed digest before the lock is lowered to `level`, if the transaction has no
    /// journal on the disk: no other process would write it later. An error is only reported
    /// (SR-5001).
    pub(super) fn write_unjournaled_digest(&mut self, level: std::ffi::c_int) {
        let kept = match &self.tally {
            Some(tally)
                if level < SQLITE_LOCK_EXCLUSIVE && tally.is_dirty() && tally.has_no_journal() =>
            {
                self.write_digest()
            }
            _ => Ok(()),
        };
        if kept.is_err() {
            report(&code::IO, "the digest could not be kept");
        }
    }

    /// Writes an anchor with the digest that holds without the log: all of the log has been copied
    /// to the file, which has `last` pages now. SQLite syncs the file next; if pages are cut off,
    /// this syncs at once. Does nothing if the log has no finished transaction. Until the sync, and
    /// until the log starts again, the former digest (`base`) and the log's frames remain valid.
    /// SR-3010 if no anchor is valid; otherwise fails as the files below do.
    fn update_digest_after_checkpoint(&mut self, log: LowerFile, last: u64) -> SqliteResult<()> {
        let sealed = Arc::clone(self.sealed_object()?);
        let anchor = sealed.anchor(self.lower)?;
        let opened = sealed.opened_header();
        let failed = |error: Error| report_error(&error);
        let state = opened.object.fresh_state(&anchor).map_err(failed)?;
        let mut read = |out: &mut [u8], at: u64| {
            log.read_whole(out, at)
                .map_err(|rc| Error::new(&code::IO, format!("SQLite result code {}", rc.0)))
        };
        let known = &mut self.log;
        known
            .read_new_frames(&opened, anchor.wal_generation, &mut read)
            .map_err(failed)?;
        if self.log.frames() == 0 {
            return Ok(());
        }
        let next = self.digest_of_checkpoint(&self.log, &state, last)?;
        sealed.write_anchor(self.lower, &anchor, &next)?;
        if next.base.pages < state.base.pages {
            // The pages that are cut off are in no frame, so `base` must not count them once they
            // are gone.
            self.lower.sync(SQLITE_SYNC_NORMAL)?;
        }
        Ok(())
    }

    /// Computes the state of freshness after a checkpoint that left `last` pages: the former
    /// digest, in which each page that the log has is replaced by what is in the file now. Writes
    /// nothing. Fails as the file below does.
    fn digest_of_checkpoint(
        &self,
        log: &LogTails,
        state: &FreshState,
        last: u64,
    ) -> SqliteResult<FreshState> {
        let mut base = DigestSum::of(&state.base.digest);
        for number in last.saturating_add(1)..=state.base.pages {
            base = base.minus(match log.tail_before(number) {
                Some(tail) => self.contribution(number, tail)?,
                None => self.contribution_on_disk(number)?,
            });
        }
        let pages = state.base.pages.min(last);
        let mut now = base;
        for (number, tail) in log.pages().filter(|(number, _)| *number <= last) {
            if number <= pages {
                now = now.minus(self.contribution(number, tail)?);
            }
            now = now.plus(self.contribution_on_disk(number)?);
        }
        for number in pages.saturating_add(1)..=last {
            if log.tail_before(number).is_none() {
                now = now.plus(self.contribution_on_disk(number)?);
            }
        }
        let covered = |sum: DigestSum, pages| Covered {
            digest: sum.to_bytes(),
            pages,
        };
        Ok(FreshState {
            now: covered(now, last),
            base: covered(base, pages),
            ..*state
        })
    }
}
