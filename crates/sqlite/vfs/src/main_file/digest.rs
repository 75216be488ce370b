//! The digest over a database's pages while this connection writes them. docs/internals/sqlite-vfs.md, "Freshness".
//!
//! In rollback mode it goes along with each page, and is in an anchor before SQLite's sync (X3). In write-ahead mode only
//! checkpoints write pages; the digest then is worked out when one is complete, from the tails in the log's frames (X2).
//!
//! Must not: do anything in a database that does not keep freshness.

use std::sync::Arc;

use strongroom_format::code;
use strongroom_format::freshness::{Covered, FreshState};
use strongroom_keyring::Error;

use super::MainFile;
use crate::big_endian::word;
use crate::ffi::{SQLITE_LOCK_EXCLUSIVE, SQLITE_SYNC_NORMAL};
use crate::freshness::{Counted, Log, Sum, Tally};
use crate::lower::Lower;
use crate::page_tail::{Tail, tail_on_disk};
use crate::report::{report, report_error};
use crate::sealed::Sealed;
use crate::sqlite_code::SqliteResult;

impl MainFile {
    pub(super) fn keeps_freshness(&self) -> bool {
        self.on_disk
            && self
                .keys
                .as_ref()
                .is_some_and(|keys| keys.object.header().freshness)
    }

    fn sealed_object(&self) -> SqliteResult<&Arc<Sealed>> {
        self.sealed
            .as_ref()
            .ok_or_else(|| report(&code::NO_KEY, self.path.as_str()))
    }

    fn adds(&self, number: u64, tail: &Tail) -> SqliteResult<Sum> {
        Ok(self.usable()?.adds(number, tail))
    }

    fn adds_on_disk(&self, number: u64) -> SqliteResult<Sum> {
        let tail = tail_on_disk(self.lower, number, self.page_size)?;
        self.adds(number, &tail)
    }

    /// The tally of the journal that is in force, or of none.
    fn take_tally(&mut self) -> SqliteResult<Tally> {
        let undo = self.shared.undo();
        if let Some(tally) = self.tally.take()
            && tally.is_of(undo.journal, undo.playback)
        {
            return Ok(tally);
        }
        let sealed = self.sealed_object()?;
        let anchor = sealed.anchor(self.lower)?;
        let state = sealed
            .keys()
            .object
            .fresh_state(&anchor)
            .map_err(|error| report_error(&error))?;
        let is_empty = self.header_len_or_zero()? == 0;
        Ok(Tally::new(
            anchor,
            &state,
            undo.journal,
            undo.playback,
            is_empty,
        ))
    }

    fn with_tally<T>(
        &mut self,
        work: impl FnOnce(&Self, &mut Tally) -> SqliteResult<T>,
    ) -> SqliteResult<T> {
        let mut tally = self.take_tally()?;
        let result = work(self, &mut tally);
        self.tally = Some(tally);
        result
    }

    /// Before a page is written: what it is counted for. `None` when nobody counts.
    pub(super) fn count_before(&mut self, number: u64) -> SqliteResult<Option<Sum>> {
        if !self.keeps_freshness() || self.shared.log().is_some() {
            return Ok(None);
        }
        self.with_tally(|main, tally| {
            if tally.gets_loose(number) && !main.shared.has_recorded(number) {
                main.say_loose(tally)?;
            }
            main.adopt(tally, number.saturating_sub(1))?;
            let counted = match tally.counted(number) {
                Counted::As(sum) => sum,
                Counted::OnDisk => main.adds_on_disk(number)?,
                Counted::InRecord => match main.shared.undo().record {
                    Some((page, tail)) if page == number => main.adds(number, &tail)?,
                    _ => {
                        tally.doubt();
                        main.adds_on_disk(number)?
                    }
                },
            };
            Ok(Some(counted))
        })
    }

    /// After a page was written, or failed to be: `tail` is what is on the disk now, if that is known.
    pub(super) fn count_after(
        &mut self,
        number: u64,
        counted: Sum,
        data: &[u8],
        tail: Option<Tail>,
    ) -> SqliteResult<()> {
        self.with_tally(|main, tally| {
            let Some(tail) = tail else {
                tally.failed(number, counted);
                return Ok(());
            };
            tally.exchange(number, counted, main.adds(number, &tail)?);
            if number == 1 {
                tally.page1_names(word(data, 28).unwrap_or(0));
            }
            Ok(())
        })
    }

    /// Before the first page that no record brings back, durably: whoever rolls this transaction back cannot know the digest.
    fn say_loose(&self, tally: &mut Tally) -> SqliteResult<()> {
        let anchor =
            self.sealed_object()?
                .keep(self.lower, tally.anchor(), &tally.loose_state())?;
        if !self.shared.undo().unsynced {
            self.lower.sync(SQLITE_SYNC_NORMAL)?;
        }
        tally.is_loose(anchor);
        Ok(())
    }

    /// Counts the pages behind those that are counted, up to `last`, as they are.
    fn adopt(&self, tally: &mut Tally, last: u64) -> SqliteResult<()> {
        while tally.covers() < last {
            let number = tally.covers() + 1;
            tally.exchange(number, Sum::default(), self.adds_on_disk(number)?);
        }
        Ok(())
    }

    /// X3: the anchor says what the file holds, before SQLite syncs it.
    pub(super) fn keep_digest(&mut self) -> SqliteResult<()> {
        if !self.keeps_freshness() || self.shared.log().is_some() {
            return Ok(());
        }
        let undo = self.shared.undo();
        if self.tally.is_none() && !undo.playback {
            return Ok(());
        }
        self.with_tally(|main, tally| {
            if !tally.is_dirty() {
                return Ok(());
            }
            for (number, counted) in tally.unsure() {
                tally.exchange(number, counted, main.adds_on_disk(number)?);
            }
            let wanted = tally.wanted();
            main.adopt(tally, wanted)?;
            main.forget_behind(tally, wanted)?;
            let anchor = main
                .sealed_object()?
                .keep(main.lower, tally.anchor(), &tally.state())?;
            tally.kept(anchor);
            main.shared.playback_is_kept();
            Ok(())
        })
    }

    fn forget_behind(&self, tally: &mut Tally, last: u64) -> SqliteResult<()> {
        while tally.covers() > last {
            let counted = self.adds_on_disk(tally.covers())?;
            tally.drop_last(counted);
        }
        Ok(())
    }

    /// Before the file is cut behind page `last`.
    pub(super) fn count_cut(&mut self, last: u64) -> SqliteResult<()> {
        if !self.keeps_freshness() {
            return Ok(());
        }
        if let Some(log) = self.shared.log() {
            return self.checkpointed(log, last);
        }
        self.with_tally(|main, tally| main.forget_behind(tally, last))
    }

    /// Before a lock is given back: without a journal on the disk, nobody else will ever make good what is not kept.
    pub(super) fn keep_unjournaled(&mut self, level: std::ffi::c_int) {
        let kept = match &self.tally {
            Some(tally)
                if level < SQLITE_LOCK_EXCLUSIVE && tally.is_dirty() && tally.has_no_journal() =>
            {
                self.keep_digest()
            }
            _ => Ok(()),
        };
        if kept.is_err() {
            report(&code::IO, "the digest could not be kept");
        }
    }

    /// All of the log is in the file, which has `last` pages now: what the digest is without the log. SQLite syncs the
    /// file next; until then, and until the log starts again, `base` and the log's frames are what holds.
    fn checkpointed(&mut self, log: Lower, last: u64) -> SqliteResult<()> {
        let sealed = Arc::clone(self.sealed_object()?);
        let anchor = sealed.anchor(self.lower)?;
        let keys = sealed.keys();
        let failed = |error: Error| report_error(&error);
        let state = keys.object.fresh_state(&anchor).map_err(failed)?;
        let mut read = |out: &mut [u8], at: u64| {
            log.read_whole(out, at)
                .map_err(|rc| Error::new(&code::IO, format!("SQLite result code {}", rc.0)))
        };
        let known = &mut self.log;
        known
            .more(&keys, anchor.wal_generation, &mut read)
            .map_err(failed)?;
        if self.log.frames() == 0 {
            return Ok(());
        }
        let next = self.digest_of_checkpoint(&self.log, &state, last)?;
        sealed.keep(self.lower, &anchor, &next)?;
        if next.base.pages < state.base.pages {
            // The pages that are cut off are in no frame: `base` may not count them any more when they are gone.
            self.lower.sync(SQLITE_SYNC_NORMAL)?;
        }
        Ok(())
    }

    fn digest_of_checkpoint(
        &self,
        log: &Log,
        state: &FreshState,
        last: u64,
    ) -> SqliteResult<FreshState> {
        let mut base = Sum::of(&state.base.digest);
        for number in last.saturating_add(1)..=state.base.pages {
            base = base.minus(match log.before(number) {
                Some(tail) => self.adds(number, tail)?,
                None => self.adds_on_disk(number)?,
            });
        }
        let pages = state.base.pages.min(last);
        let mut now = base;
        for (number, tail) in log.pages().filter(|(number, _)| *number <= last) {
            if number <= pages {
                now = now.minus(self.adds(number, tail)?);
            }
            now = now.plus(self.adds_on_disk(number)?);
        }
        for number in pages.saturating_add(1)..=last {
            if log.before(number).is_none() {
                now = now.plus(self.adds_on_disk(number)?);
            }
        }
        let covered = |sum: Sum, pages| Covered {
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
