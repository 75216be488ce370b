//! The state of an open rollback journal. What SQLite writes is buffered and sealed in slots; marks
//! say what counts. docs/spec/sqlite.md, "Rollback journal". The invariants are in the parent
//! module.
//!
//! Must not: report "no journal" for a journal that is there but damaged in what counts.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use strongroom_crypto::fill_random;
use strongroom_format::code;
use strongroom_format::journal::{
    JOURNAL_CHUNK, JOURNAL_HEAD, JOURNAL_LINK, JOURNAL_MARKS, JOURNAL_SHADOW, JournalMark,
    JournalState, Segment, journal_slot_crosses_cache_page, journal_slot_layout,
    journal_slot_offset, link_layout,
};
use strongroom_format::layout::is_zero;
use strongroom_format::sqlite::{AuxKind, Prologue, page_offset};

use crate::ffi::SQLITE_SYNC_NORMAL;
use crate::lower::LowerFile;
use crate::page_tail::TAIL;
use crate::report::{report, report_error};
use crate::seal::{UnitKey, crypto_error};
use crate::sealed::SealedDatabase;
use crate::shared_state::{Page1Nonces, SharedState};
use crate::sqlite_code::SqliteResult;

use super::head::{UNCOUNTED, new_head, record_count, seal_mark};
use super::record::Record;
use super::slot::{open_slot, seal_slot, shadow_of};

pub(super) const CHUNK: u64 = JOURNAL_CHUNK as u64;
/// Records are buffered up to this many bytes before they are written in one piece.
const BUFFER_MAX: usize = 64 * 1024;
/// What the buffer of a new journal has room for: the records of a small transaction. Without it
/// the buffer grows in steps, each of which copies it, in every transaction.
const BUFFER_FIRST: usize = 32 * 1024;
/// In PERSIST mode SQLite ends a transaction by writing this many zeros over the journal's header
/// (pager.c, `zeroJournalHdr`).
pub(super) const JOURNAL_END_LEN: usize = 28;

/// The database of a journal.
pub(crate) struct JournalOwner {
    /// The database's shared object.
    pub sealed: Arc<SealedDatabase>,
    /// The database file below.
    pub main: LowerFile,
    /// The state that database and journal share.
    pub shared: Arc<SharedState>,
}

pub(super) struct LoadedHead {
    pub(super) key: UnitKey,
    pub(super) prologue: Prologue,
    /// The newest mark, if there is one.
    pub(super) mark: Option<JournalMark>,
}

impl LoadedHead {
    /// Whether the newest mark has this state. False if there is no mark yet.
    pub(super) fn is(&self, state: JournalState) -> bool {
        self.mark.is_some_and(|mark| mark.state == state)
    }
}

/// The journal's state, which the database file flushes before it writes a page.
pub(crate) struct JournalCore {
    pub(super) lower: LowerFile,
    pub(super) database: JournalOwner,
    pub(super) head: Option<LoadedHead>,
    /// This handle began the journal. Otherwise the journal was found, and may be stale (J4) or
    /// damaged (J6).
    pub(super) begun_here: bool,
    pub(super) checked: bool,
    /// The segments that count, by logical offset, with their record counts (J5).
    pub(super) segments: BTreeMap<u64, u32>,
    /// Offset of the header of the segment that is being written.
    pub(super) open_segment: Option<u64>,
    /// SQLite has just written a count; a header may follow.
    pub(super) just_counted: bool,
    pub(super) buffer: Vec<u8>,
    /// Logical offset of the buffer, a multiple of the chunk.
    pub(super) buffer_at: u64,
    pub(super) dirty: bool,
    pub(super) head_dirty: bool,
    /// The file held an older journal when this one began (J8).
    pub(super) replaces_older: bool,
    /// The file was truncated, and the truncation may not be durable (J8).
    pub(super) truncation_unsynced: bool,
    pub(super) unsynced: bool,
    /// Logical end of what this handle has written.
    pub(super) written: u64,
    /// Logical end of what has reached the file.
    pub(super) flushed: u64,
    pub(super) slots: Vec<u8>,
    pub(super) keeps_freshness: bool,
    pub(super) written_record: Record,
    pub(super) read_record: Record,
}

impl JournalCore {
    /// Makes the state of a journal of which nothing is read or written yet. Does no I/O.
    pub(super) fn new(lower: LowerFile, database: JournalOwner) -> Self {
        let keeps_freshness = database.sealed.opened_header().object.header().freshness;
        Self {
            keeps_freshness,
            written_record: Record::default(),
            read_record: Record::default(),
            lower,
            database,
            head: None,
            begun_here: false,
            checked: false,
            segments: BTreeMap::new(),
            open_segment: None,
            just_counted: false,
            buffer: Vec::new(),
            buffer_at: 0,
            dirty: false,
            head_dirty: false,
            replaces_older: false,
            truncation_unsynced: false,
            unsynced: false,
            written: 0,
            flushed: 0,
            slots: Vec::new(),
        }
    }

    /// Returns the path of the journal, for messages.
    pub(super) fn path(&self) -> String {
        format!("{}-journal", self.database.sealed.path())
    }

    /// Returns the page size of the journal's database in bytes.
    pub(super) fn page_size(&self) -> u32 {
        self.database
            .sealed
            .opened_header()
            .object
            .header()
            .unit_size
    }

    /// Begins the journal of a new transaction in memory: draws a new salt, derives the key, and
    /// notes the tail of page 1, which binds the journal to the database's state (J4). `header` is
    /// the header of its first segment; under `synchronous=OFF` it says at once that the journal is
    /// valid, without a count. Syncs an earlier truncation first, and makes the database's anchor
    /// name no log if it names one. The head itself is written with the first flush. SR-3010 if no
    /// anchor is valid, SR-5001 without random numbers; otherwise fails as the files below do.
    fn begin(&mut self, header: &[u8]) -> SqliteResult<()> {
        self.sync_truncation()?;
        self.replaces_older = self.lower.size()? > 0;
        let opened = self.database.sealed.refresh(self.database.main)?;
        if self
            .database
            .sealed
            .anchor(self.database.main)?
            .wal_generation
            != [0; 16]
        {
            // The database left write-ahead mode: a log that is put back later must not count as
            // valid.
            self.database
                .sealed
                .set_generation(self.database.main, [0; 16])?;
        }
        let page_size = opened.object.header().unit_size;
        let fresh = Randomness::generate()?;
        let mut page1_nonce = [0; 12];
        page1_nonce[..8].copy_from_slice(&fresh.prefix);
        let prologue = Prologue {
            kind: AuxKind::Journal,
            unit: u32::try_from(JOURNAL_CHUNK).unwrap_or(0),
            epoch: opened.object.epoch(),
            object_id: opened.object.object_id(),
            salt: fresh.salt,
            page1_before: self.page1_tail(page_size)?,
            page1_nonce,
        };
        let key = opened
            .journal_key(&prologue)
            .map_err(|error| report_error(&error))?;
        let uncounted = JournalMark {
            sequence: 1,
            state: JournalState::Uncounted,
            newest: Segment::default(),
            length: 0,
        };
        let is_uncounted = record_count(header) == Some(UNCOUNTED);
        self.database
            .shared
            .set_undo_journal(prologue.generation(), is_uncounted);
        let mark = is_uncounted.then_some(uncounted);
        self.head = Some(LoadedHead {
            key,
            prologue,
            mark,
        });
        *lock(&self.database.shared.page1) = Some(Page1Nonces {
            prefix: fresh.prefix,
            count: fresh.count,
        });
        self.begun_here = true;
        self.checked = true;
        self.head_dirty = true;
        self.segments.clear();
        self.open_segment = Some(0);
        self.buffer.clear();
        self.buffer_at = 0;
        self.written = 0;
        self.flushed = 0;
        Ok(())
    }

    /// Reads the tail of page 1 (its last 32 bytes: nonce, tag, epoch) from the database file; zero
    /// bytes when there is no page 1. Fails as the file below does.
    pub(super) fn page1_tail(&self, page_size: u32) -> SqliteResult<[u8; TAIL]> {
        let mut tail = [0; TAIL];
        let end = page_offset(2, page_size);
        if !self
            .database
            .main
            .read_whole(&mut tail, end.saturating_sub(TAIL as u64))?
        {
            tail = [0; TAIL];
        }
        Ok(tail)
    }

    /// Returns the offset in the plain journal just after the last buffered byte.
    fn end_of_buffer(&self) -> u64 {
        self.buffer_at.saturating_add(self.buffer.len() as u64)
    }

    /// Takes a write of SQLite's to the plain journal at `at`, and recognises by position and
    /// length what it is: a header, the number of records, the end of the transaction, or a part of
    /// a record. A whole sector at offset 0 begins a new journal. SR-4004 if anything else is
    /// written while there is no journal of this database. Most writes are only buffered.
    pub(super) fn write(&mut self, data: &[u8], at: u64) -> SqliteResult<()> {
        let sector = data.len() == JOURNAL_CHUNK && at.is_multiple_of(CHUNK);
        // SQLite writes a whole sector here, at first without the magic (`writeJournalHdr`).
        let begins = at == 0 && sector;
        if begins {
            self.begin(data)?;
        } else if !self.load_head()? {
            return Err(report(&code::JOURNAL, self.path()));
        }
        if at == 0 && data.len() == JOURNAL_END_LEN && is_zero(data) {
            return self.end_transaction();
        }
        let after_count = std::mem::take(&mut self.just_counted);
        if data.len() == 12
            && (self.open_segment == Some(at) || self.segments.contains_key(&at))
            && let Some(records) = record_count(data)
        {
            return self.write_count(Segment { at, records });
        }
        if after_count && sector && !begins {
            // The header of the next segment. A page image of 512 bytes never follows a count
            // directly: the page's number comes between.
            let mut header = data.to_vec();
            header[JOURNAL_LINK..JOURNAL_LINK + link_layout::SIZE]
                .copy_from_slice(&self.last_segment().to_link());
            self.open_segment = Some(at);
            return self.buffer_bytes(&header, at);
        }
        self.write_piece(data, at)
    }

    /// Returns the newest segment that counts; offset 0 with no records if none does.
    fn last_segment(&self) -> Segment {
        self.segments
            .last_key_value()
            .map_or_else(Segment::default, |(&at, &records)| Segment { at, records })
    }

    /// Puts bytes of the plain journal at `at` into the buffer, and flushes it when it has 64 KiB.
    /// A write that is neither inside nor at the end of the buffer flushes first, and reads the
    /// chunks it touches. Fails as [`Self::flush`] does.
    pub(super) fn buffer_bytes(&mut self, data: &[u8], at: u64) -> SqliteResult<()> {
        let end = self.end_of_buffer();
        let data_end = at.saturating_add(data.len() as u64);
        if at >= self.buffer_at && data_end <= end {
            let start = to_usize(at - self.buffer_at)?;
            self.buffer[start..start + data.len()].copy_from_slice(data);
        } else if at == end {
            if self.buffer.capacity() == 0 {
                self.buffer.reserve(BUFFER_FIRST);
            }
            self.buffer.extend_from_slice(data);
        } else {
            self.overwrite(data, at)?;
        }
        self.dirty = true;
        self.written = self.written.max(data_end);
        if self.buffer.len() >= BUFFER_MAX {
            self.flush()
        } else {
            Ok(())
        }
    }

    /// Handles the write of SQLite's magic and record count over the header of segment `newest`:
    /// first flushes and syncs the records, unless that is done already, as under
    /// `synchronous=FULL` (J3); then writes a mark that makes the segment count (J5). The mark
    /// itself is not synced. Fails as [`Self::flush`] and the file below do.
    fn write_count(&mut self, newest: Segment) -> SqliteResult<()> {
        if self.unsynced || self.dirty {
            self.flush()?;
            self.lower.sync(SQLITE_SYNC_NORMAL)?;
            self.unsynced = false;
        }
        self.write_mark(JournalState::Counted, newest, self.written)?;
        self.segments.insert(newest.at, newest.records);
        self.open_segment = None;
        self.just_counted = true;
        Ok(())
    }

    /// Handles the end of a transaction in PERSIST mode: page 1 no longer belongs to this journal,
    /// and no segment counts any more. Flushes the buffer and writes the mark "ended" at once:
    /// otherwise another process would roll the transaction back. Syncs before the mark only if the
    /// journal replaces an older one and was never synced, so that its own prologue is durable
    /// first (J8). Fails as [`Self::flush`] and the file below do.
    fn end_transaction(&mut self) -> SqliteResult<()> {
        *lock(&self.database.shared.page1) = None;
        self.database.shared.set_undo_journal([0; 16], false);
        self.flush()?;
        let unmarked = self.head.as_ref().is_some_and(|now| now.mark.is_none());
        if unmarked && self.replaces_older && self.unsynced {
            // The transaction was rolled back before the journal was synced: its own prologue must
            // be durable first (J8).
            self.lower.sync(SQLITE_SYNC_NORMAL)?;
            self.unsynced = false;
        }
        self.write_mark(JournalState::Ended, Segment::default(), 0)?;
        self.segments.clear();
        self.open_segment = None;
        Ok(())
    }

    /// Seals the next mark and writes both its copies into the pair of sectors that the former mark
    /// does not use. Does not sync. The former mark is durable, because SQLite syncs after each
    /// count. SR-9001 if the journal has no key yet.
    fn write_mark(
        &mut self,
        state: JournalState,
        newest: Segment,
        length: u64,
    ) -> SqliteResult<()> {
        let Some(in_force) = &mut self.head else {
            return Err(report(&code::BUG, "journal without key"));
        };
        let mark = JournalMark {
            sequence: in_force.mark.map_or(0, |mark| mark.sequence) + 1,
            state,
            newest,
            length,
        };
        let bytes = seal_mark(&in_force.key, &mark).map_err(|error| report_error(&error))?;
        self.lower
            .write(&bytes, JOURNAL_MARKS[mark.pair()] as u64)?;
        in_force.mark = Some(mark);
        Ok(())
    }

    /// Handles a write elsewhere than at the end: flushes the buffer, then fills it with the chunks
    /// that the write touches, as they are in the file, changed by the write. Chunks that cannot be
    /// opened count as zeros. The changed chunks are written with the next flush. Fails as
    /// [`Self::flush`] and the file below do.
    fn overwrite(&mut self, data: &[u8], at: u64) -> SqliteResult<()> {
        self.flush()?;
        let first = at / CHUNK;
        let data_end = at.saturating_add(data.len() as u64);
        let mut chunks = Vec::new();
        for index in first..data_end.div_ceil(CHUNK) {
            let start = to_usize((index - first) * CHUNK)?;
            chunks.resize(start, 0);
            if let Some(chunk) = self.read_chunk(index)? {
                chunks.extend_from_slice(&chunk);
            }
        }
        let start = to_usize(at - first * CHUNK)?;
        if chunks.len() < start + data.len() {
            chunks.resize(start + data.len(), 0);
        }
        chunks[start..start + data.len()].copy_from_slice(data);
        self.buffer = chunks;
        self.buffer_at = first * CHUNK;
        Ok(())
    }

    /// Seals what is buffered and writes it to the file, with the head if that was not written yet.
    /// Keeps the last, unfinished chunk in the buffer. Does nothing if nothing was buffered since
    /// the last flush. Does not sync. SR-9001 if the journal has no key yet. Otherwise fails as the
    /// file below does.
    pub(crate) fn flush(&mut self) -> SqliteResult<()> {
        if !self.dirty {
            return Ok(());
        }
        self.write_shadow(self.buffer_at / CHUNK)?;
        let Some(in_force) = &self.head else {
            return Err(report(&code::BUG, "journal without key"));
        };
        let mut out = std::mem::take(&mut self.slots);
        out.clear();
        let slots = self.buffer.len().div_ceil(JOURNAL_CHUNK);
        out.reserve(JOURNAL_HEAD + slots * journal_slot_layout::SIZE);
        let mut physical = journal_slot_offset(self.buffer_at / CHUNK);
        if self.head_dirty {
            let head = new_head(&in_force.key, &in_force.prologue, in_force.mark.as_ref());
            let head = head.map_err(|error| report_error(&error))?;
            if self.replaces_older && in_force.mark.is_none() {
                // J8: after a power cut the file holds the older journal as it ended, or none.
                self.lower.write(&head[..JOURNAL_MARKS[0]], 0)?;
            } else {
                out.extend_from_slice(&head);
                physical = 0;
            }
        }
        let first = self.buffer_at / CHUNK;
        for (index, chunk) in (first..).zip(self.buffer.chunks(JOURNAL_CHUNK)) {
            seal_slot(&in_force.key, index, chunk, &mut out)?;
        }
        let written = self.lower.write(&out, physical);
        self.slots = out;
        written?;
        self.flushed = self.flushed.max(self.end_of_buffer());
        let whole = self.buffer.len() / JOURNAL_CHUNK * JOURNAL_CHUNK;
        self.buffer.drain(..whole);
        self.buffer_at += whole as u64;
        self.dirty = false;
        self.head_dirty = false;
        self.unsynced = true;
        Ok(())
    }

    /// Syncs the journal's file if it was truncated and not synced since, so that the database is
    /// not truncated before (J8). Otherwise does nothing. Fails as the file below does.
    pub(crate) fn sync_truncation(&mut self) -> SqliteResult<()> {
        if self.truncation_unsynced {
            self.lower.sync(SQLITE_SYNC_NORMAL)?;
            self.truncation_unsynced = false;
        }
        Ok(())
    }

    /// Copies the slot `index` that is about to be written again into the shadow in the head (J7).
    /// Does nothing unless the journal has no count, the slot is in the file, and it crosses the
    /// border of a page of the page cache. The shadow lies within one such page, in the space of a
    /// mark that does not exist yet. Fails as the file below does.
    fn write_shadow(&self, index: u64) -> SqliteResult<()> {
        let uncounted = self
            .head
            .as_ref()
            .is_some_and(|in_force| in_force.is(JournalState::Uncounted));
        if !uncounted || index * CHUNK >= self.flushed || !journal_slot_crosses_cache_page(index) {
            return Ok(());
        }
        let mut former = [0; journal_slot_layout::SIZE];
        if !self
            .lower
            .read_whole(&mut former, journal_slot_offset(index))?
        {
            return Ok(());
        }
        self.lower
            .write(&shadow_of(index, &former), JOURNAL_SHADOW as u64)
    }

    /// Reads and opens chunk `index` of the journal. `None` when its slot is missing or not
    /// authentic, or no head was loaded. Fails as the file below does.
    pub(super) fn read_chunk(&mut self, index: u64) -> SqliteResult<Option<Vec<u8>>> {
        let Some(in_force) = &self.head else {
            return Ok(None);
        };
        let mut bytes = vec![0; journal_slot_layout::SIZE];
        if !self
            .lower
            .read_whole(&mut bytes, journal_slot_offset(index))?
        {
            return Ok(None);
        }
        Ok(open_slot(&in_force.key, index, &mut bytes))
    }

    /// Forgets what is known of the journal, buffered bytes included, so that it is read from the
    /// file again. Changes nothing in the file.
    pub(super) fn reset(&mut self) {
        self.head = None;
        self.begun_here = false;
        self.checked = false;
        self.segments.clear();
        self.open_segment = None;
        self.buffer.clear();
        self.buffer_at = 0;
        self.written = 0;
        self.flushed = 0;
    }

    /// Truncates the journal to `size` bytes of the plain journal. With size 0 the transaction is
    /// over: discards what is buffered, and forgets the nonces of page 1 and the undo journal that
    /// the database shares. Otherwise writes what is buffered first, and seals the last chunk again
    /// in its new length. Does not sync: see [`Self::sync_truncation`]. Fails as [`Self::flush`]
    /// and the file below do.
    pub(super) fn truncate(&mut self, size: u64) -> SqliteResult<()> {
        if size == 0 {
            // What is still buffered belongs to a journal that is no longer needed. On a full disk
            // it could not be written, and the transaction could not be rolled back.
            self.reset();
            self.dirty = false;
            self.head_dirty = false;
            self.unsynced = false;
            *lock(&self.database.shared.page1) = None;
            self.database.shared.set_undo_journal([0; 16], false);
            self.truncation_unsynced = true;
            return self.lower.truncate(0);
        }
        self.flush()?;
        self.buffer.clear();
        self.written = self.written.min(size);
        let last = (size - 1) / CHUNK;
        self.buffer_at = last * CHUNK;
        if let Some(mut chunk) = self.read_chunk(last)? {
            chunk.truncate(to_usize(size - last * CHUNK)?);
            self.buffer = chunk;
            self.dirty = true;
        }
        self.lower.truncate(journal_slot_offset(last + 1))?;
        self.flush()
    }
}

/// The random values of a journal, from one system call.
struct Randomness {
    salt: [u8; 32],
    /// Prefix of the nonces for page 1, and the first value of their count: the prefix alone would
    /// repeat too soon for a GCM nonce (2^32 journals). The count's top bit is set during recovery
    /// only.
    prefix: [u8; 8],
    count: u32,
}

impl Randomness {
    /// Takes fresh random bytes from the operating system. SR-5001 if it gives none.
    fn generate() -> SqliteResult<Self> {
        let mut bytes = [0; 44];
        fill_random(&mut bytes).map_err(|error| report_error(&crypto_error(&error)))?;
        let (mut salt, mut prefix, mut start) = ([0; 32], [0; 8], [0; 4]);
        salt.copy_from_slice(&bytes[..32]);
        prefix.copy_from_slice(&bytes[32..40]);
        start.copy_from_slice(&bytes[40..]);
        let count = u32::from_le_bytes(start) & 0x7fff_ffff;
        Ok(Self {
            salt,
            prefix,
            count,
        })
    }
}

/// Converts an offset that fits by construction. SR-9001 if it does not fit.
pub(super) fn to_usize(value: u64) -> SqliteResult<usize> {
    usize::try_from(value).map_err(|_| report(&code::BUG, "journal offset"))
}

/// Locks a mutex, waiting if another thread has it. A panic of another thread does not poison it.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
