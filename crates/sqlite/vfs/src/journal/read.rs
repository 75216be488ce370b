//! Reads a rollback journal for SQLite: one of this handle, or one that was found in a file.
//!
//! SQLite reads a found journal without a lock when it looks whether there is one to play back. The
//! journal is checked (J4, J6) when SQLite asks for its size or reads its first header: then no
//! other connection has the database.
//!
//! Must not: write.

use strongroom_crypto::fill_random;
use strongroom_format::code;
use strongroom_format::journal::{
    JOURNAL_HEAD, JOURNAL_SHADOW, JournalMark, JournalState, journal_shadow_layout,
    journal_slot_layout, journal_slot_offset, journal_slots,
};
use strongroom_format::layout::{Field, array};

use super::core::{CHUNK, JOURNAL_END_LEN, JournalCore, LoadedHead, lock, to_usize};
use super::head::{JournalHead, UNCOUNTED, follow_segments, segment_length, segment_start};
use super::slot::{copy_overlap, open_shadow, open_slot};
use crate::ffi::SQLITE_IOERR_SHORT_READ;
use crate::report::{report, report_error};
use crate::seal::crypto_error;
use crate::shared_state::Page1Nonces;
use crate::sqlite_code::{SqliteCode, SqliteResult};

/// The part of a page-1 nonce that names its journal.
const PREFIX: Field = Field {
    name: "PREFIX",
    offset: 0,
    len: 8,
};

impl JournalCore {
    /// Reads the head of a found journal, unless a head is loaded already. False when the file does
    /// not begin with a head that this database can open. Does not check what follows. SR-2017 or
    /// SR-3004 if the database's header cannot be read again; otherwise fails as the files below
    /// do.
    pub(super) fn load_head(&mut self) -> SqliteResult<bool> {
        if self.head.is_some() {
            return Ok(true);
        }
        let Some(head) = self.read_head()? else {
            return Ok(false);
        };
        self.head = Some(LoadedHead {
            key: head.key,
            prologue: head.prologue,
            mark: head.mark,
        });
        Ok(true)
    }

    /// Reads the head from the file, and parses it with the newest header of the database. `None`
    /// when the file does not begin with a head of this database. SR-2017 or SR-3004 if that cannot
    /// be read again; otherwise fails as the files below do.
    fn read_head(&self) -> SqliteResult<Option<JournalHead>> {
        let mut bytes = [0; JOURNAL_HEAD];
        self.lower.read_whole(&mut bytes, 0)?;
        let opened = self.database.sealed.refresh(self.database.main)?;
        JournalHead::parse(&bytes, &opened).map_err(|error| report_error(&error))
    }

    /// Checks a found journal that is about to be played back (J4, J6), once for each handle. Does
    /// nothing for a journal that this handle began, for one without a head or mark, and for one
    /// that has ended. SR-4004 if a part of what counts is damaged, SR-4007 if the journal is of
    /// another state of the database; otherwise fails as [`Self::read_head`] does. Notes that a
    /// playback begins once it has passed. SQLite has the database to itself then.
    pub(super) fn check_found(&mut self) -> SqliteResult<()> {
        if self.begun_here || self.checked {
            return Ok(());
        }
        let Some(head) = self.read_head()? else {
            return Ok(());
        };
        let (mark, lost) = (head.mark, head.mark_lost);
        self.head = Some(LoadedHead {
            key: head.key,
            prologue: head.prologue,
            mark,
        });
        match mark {
            Some(_) if lost => return Err(self.damage_error(0, "a mark is gone")),
            Some(mark) if mark.state == JournalState::Counted => self.check_counted(&mark)?,
            Some(mark) if mark.state == JournalState::Uncounted => {}
            _ => return Ok(()),
        }
        self.check_state()
    }

    /// Checks that every segment that counts is there and authentic (J6), and that the file is as
    /// long as the mark says; SR-4004 if not. Sets `self.segments`.
    fn check_counted(&mut self, mark: &JournalMark) -> SqliteResult<()> {
        let found = follow_segments(mark.newest, |index| self.read_chunk(index))?;
        self.segments =
            found.map_err(|at| self.damage_error(at, "segment missing or not authentic"))?;
        let size = self.logical_size()?;
        let records = segment_length(mark.newest.records, self.page_size());
        let counted = mark.newest.at.saturating_add(records);
        // A super-journal's name may follow the records: SQLite looks for it at the very end.
        let named = mark.length > counted;
        if size < counted.max(mark.length) || (named && size != mark.length) {
            return Err(self.damage_error(size, "cut short, or something appended"));
        }
        Ok(())
    }

    /// Checks that the journal belongs to this state of the database (J4), by the tail of page 1;
    /// SR-4007 if not. Notes that a playback begins, and sets nonces for page 1 by which a later
    /// playback recognises the state if this one is interrupted.
    fn check_state(&mut self) -> SqliteResult<()> {
        let Some(in_force) = &self.head else {
            return Ok(());
        };
        let now = self.page1_tail(self.page_size())?;
        let prefix: [u8; 8] = array(&in_force.prologue.page1_nonce, PREFIX).unwrap_or_default();
        // An interrupted write may have left the beginning of the new nonce followed by the rest of
        // the old tail.
        let before = in_force.prologue.page1_before;
        let is_known = (0..prefix.len())
            .any(|at| now[..at] == prefix[..at] && now[at..] == before[at..])
            || now[..8] == prefix;
        if !is_known {
            return Err(report(&code::JOURNAL_STALE, self.path()));
        }
        let mut count = [0; 4];
        fill_random(&mut count).map_err(|error| report_error(&crypto_error(&error)))?;
        let count = u32::from_le_bytes(count) | 0x8000_0000;
        *lock(&self.database.shared.page1) = Some(Page1Nonces { prefix, count });
        self.database.shared.mark_played_back();
        self.checked = true;
        Ok(())
    }

    /// Returns the size of the plain journal in bytes, as SQLite sees it, and writes what is
    /// buffered. SQLite asks for it before it plays a found journal back, so first checks such a
    /// journal, until it has passed once, and then notes for the database that a playback begins.
    /// SR-4004 if what counts in it is damaged; SR-4007 if it is of another state of the database;
    /// SR-2017 or SR-3004 if the header cannot be read again; or as the files below fail.
    pub(super) fn size(&mut self) -> SqliteResult<u64> {
        self.check_found()?;
        self.logical_size()
    }

    /// Returns the length of the plain journal in bytes, by the length field of its last slot; 0 if
    /// there is no whole slot. Writes what is buffered first. Fails as the file below does.
    pub(super) fn logical_size(&mut self) -> SqliteResult<u64> {
        self.flush()?;
        let Some(last) = journal_slots(self.lower.size()?).checked_sub(1) else {
            return Ok(0);
        };
        let mut length = [0; 2];
        let at = journal_slot_offset(last) + journal_slot_layout::LENGTH.offset as u64;
        if !self.lower.read_whole(&mut length, at)? {
            // The journal was truncated just now: this was a look without a lock.
            return Ok(0);
        }
        Ok(last * CHUNK + u64::from(u16::from_le_bytes(length)).min(CHUNK))
    }

    /// Reads from the plain journal at `at`, after writing what is buffered. A journal that SQLite
    /// must not play back reads as empty or as one without a header. `SQLITE_IOERR_SHORT_READ` past
    /// the end, where the journal may end; SR-4004 where a journal that counts is damaged or cut
    /// short. Also checks a found journal ([`Self::check_found`]) when SQLite reads its first
    /// header.
    pub(super) fn read(&mut self, out: &mut [u8], at: u64) -> SqliteResult<()> {
        self.flush()?;
        out.fill(0);
        // SQLite looks whether there is a journal to be played back: without a lock, while another
        // connection may be writing it.
        let hot_probe = out.len() == 1 && at == 0;
        let header_probe = hot_probe || (out.len() == 8 && at.is_multiple_of(CHUNK));
        if hot_probe && (!self.begun_here || self.head.as_ref().is_some_and(has_ended)) {
            self.reset();
        }
        let counts = self.load_head()?
            && (self.begun_here || self.head.as_ref().is_some_and(is_to_be_played_back));
        if header_probe && !hot_probe && at == 0 {
            self.check_found()?;
        }
        let size = self.logical_size()?;
        if hot_probe && counts && size == 0 && self.is_cut_to_its_head()? {
            // SQLite then takes the journal for hot, locks the database, asks for the size and gets
            // an error.
            self.overlay_headers(out, at);
            return Ok(());
        }
        let uncounted = self
            .head
            .as_ref()
            .is_some_and(|in_force| in_force.is(JournalState::Uncounted));
        if at.saturating_add(out.len() as u64) > size {
            let may_end_here = header_probe || uncounted || size == 0 || !counts;
            return Err(if may_end_here {
                SqliteCode(SQLITE_IOERR_SHORT_READ)
            } else {
                self.damage_error(at, "cut short")
            });
        }
        if counts && !header_probe {
            let lenient = uncounted || self.is_name_probe(at, out.len(), size);
            self.read_chunks(out, at, lenient)?;
        }
        self.overlay_headers(out, at);
        Ok(())
    }

    /// Whether the marks say that records count although the file, which was truncated, has no
    /// whole slot. Forgets what is known of the journal and reads the marks again, because another
    /// connection may have ended and truncated it meanwhile; a mark that counts records is written
    /// after their slots. Fails as [`Self::load_head`] does.
    fn is_cut_to_its_head(&mut self) -> SqliteResult<bool> {
        self.reset();
        Ok(self.load_head()?
            && !self.begun_here
            && self
                .head
                .as_ref()
                .is_some_and(|in_force| in_force.is(JournalState::Counted) && !has_ended(in_force)))
    }

    /// Whether this read is SQLite's look for a super-journal's name at the file's end
    /// (`readSuperJournal`) in a journal whose mark says that it has none. The bytes may then be
    /// old chunks under keys that no longer exist, or a slot that a crash tore.
    fn is_name_probe(&self, at: u64, len: usize, size: u64) -> bool {
        let named = self
            .head
            .as_ref()
            .and_then(|in_force| in_force.mark)
            .is_some_and(|mark| {
                let records = segment_length(mark.newest.records, self.page_size());
                mark.state == JournalState::Counted && mark.length > mark.newest.at + records
            });
        !named && matches!((size - at, len), (16 | 12, 4) | (8, 8))
    }

    /// Writes into `out`, which holds bytes from `at` on, what SQLite must see at the start of the
    /// segments' headers, by the marks: magic and record count, or zeros for a journal that has
    /// ended (J5).
    fn overlay_headers(&self, out: &mut [u8], at: u64) {
        let Some(in_force) = &self.head else {
            return;
        };
        match in_force.mark.map(|mark| mark.state) {
            Some(JournalState::Uncounted) => copy_overlap(out, at, &segment_start(UNCOUNTED), 0),
            Some(JournalState::Ended) => copy_overlap(out, at, &[0; JOURNAL_END_LEN], 0),
            // SQLite reads one byte before it asks for the size.
            Some(JournalState::Counted) if self.segments.is_empty() => {
                copy_overlap(out, at, &segment_start(0)[..1], 0);
            }
            _ => {
                let end = at.saturating_add(out.len() as u64);
                for (&header, &records) in self.segments.range(at.saturating_sub(11)..end) {
                    copy_overlap(out, at, &segment_start(records), header);
                }
            }
        }
    }

    /// Reads and opens the slots that the bytes at `at` are in, and copies the bytes into `out`.
    /// With `lenient`, a slot that does not open is taken from its shadow, or its bytes of `out`
    /// stay as they are. Without it, that is so only after the end of what this connection has
    /// written; any other such slot is SR-4004, and `out` becomes zero.
    pub(super) fn read_chunks(
        &mut self,
        out: &mut [u8],
        at: u64,
        lenient: bool,
    ) -> SqliteResult<()> {
        let first = at / CHUNK;
        let end = at.saturating_add(out.len() as u64);
        let count = to_usize(end.div_ceil(CHUNK) - first)?;
        let mut slots = std::mem::take(&mut self.slots);
        slots.clear();
        slots.resize(count * journal_slot_layout::SIZE, 0);
        self.lower
            .read_whole(&mut slots, journal_slot_offset(first))?;
        let mut failed = None;
        for (index, bytes) in (first..).zip(slots.chunks_exact_mut(journal_slot_layout::SIZE)) {
            let chunk = match &self.head {
                Some(in_force) => open_slot(&in_force.key, index, bytes),
                None => None,
            };
            match chunk {
                Some(chunk) => copy_overlap(out, at, &chunk, index * CHUNK),
                None if lenient => {
                    if let Some(chunk) = self.read_shadow(index)? {
                        copy_overlap(out, at, &chunk, index * CHUNK);
                    }
                }
                // In PERSIST mode an older transaction's slots follow. SQLite reads its own journal
                // until a record ends it.
                None if self.begun_here && index * CHUNK >= self.written => {}
                None => failed = failed.or(Some(index)),
            }
        }
        slots.fill(0);
        self.slots = slots;
        match failed {
            None => Ok(()),
            Some(index) => {
                out.fill(0);
                Err(self.damage_error(index * CHUNK, "not authentic"))
            }
        }
    }

    /// Reads and opens the former version of slot `index`, which was being written again when its
    /// process was killed (J7). `None` unless the journal has no count and its shadow is of this
    /// slot and authentic. Fails as the file below does.
    fn read_shadow(&self, index: u64) -> SqliteResult<Option<Vec<u8>>> {
        let Some(in_force) = &self.head else {
            return Ok(None);
        };
        let mut bytes = [0; journal_shadow_layout::SIZE];
        if !in_force.is(JournalState::Uncounted)
            || !self.lower.read_whole(&mut bytes, JOURNAL_SHADOW as u64)?
        {
            return Ok(None);
        }
        Ok(open_shadow(&in_force.key, index, &bytes))
    }

    /// Reports SR-4004 with `how` and the position in the plain journal, and returns SQLite's code
    /// for it.
    pub(super) fn damage_error(&self, at: u64, how: &str) -> SqliteCode {
        report(
            &code::JOURNAL,
            format!("{}: {how} at byte {at}", self.path()),
        )
    }
}

/// Whether the newest mark says that the transaction of this journal has ended.
fn has_ended(in_force: &LoadedHead) -> bool {
    in_force.is(JournalState::Ended)
}

/// Whether SQLite is to play this found journal back: it has a mark, which does not say that the
/// transaction has ended.
fn is_to_be_played_back(in_force: &LoadedHead) -> bool {
    in_force.mark.is_some() && !has_ended(in_force)
}
