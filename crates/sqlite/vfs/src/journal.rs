//! The sealed rollback journal. docs/spec/sqlite.md, "Rollback journal".
//!
//! Invariants:
//! J1. A slot that holds synced records is never written again; a segment's header slot is, once, before any page of
//!     that segment is in the database.
//! J2. Buffered records reach the file before any page of the database does (`MainFile` sees to it), before a sync,
//!     and before they are read back.
//! J3. A segment's record count is durable only after its records are, whatever `synchronous` says, so that a record
//!     missing under a valid count is damage and never the trace of a crash. (`synchronous=OFF` has no count.)
//! J4. A journal rolls back only the database state that it was made for, or the one that its transaction wrote.
//!
//! Must not: report "no journal" for a journal that is there but damaged in its records.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use strongroom_crypto::{fill_random, nonce12, random32};
use strongroom_format::aad::Role;
use strongroom_format::code;
use strongroom_format::layout::{array, put, u16_at, zero_at};
use strongroom_format::sqlite::{
    AuxKind, JOURNAL_CHUNK, Prologue, journal_slot_layout as slot, journal_slot_offset,
    journal_slots, page_offset, prologue_layout,
};
use strongroom_keyring::Purpose;

use crate::body::Body;
use crate::ffi::{SQLITE_IOERR_SHORT_READ, SQLITE_SYNC_NORMAL};
use crate::link::{Link, Page1Nonces, sealed_characteristics, sealed_control};
use crate::lower::{Lower, Rc, RcResult};
use crate::report::{report, report_error};
use crate::seal::{TAIL, UnitKey, crypto, unit_key};
use crate::sealed::Sealed;

const CHUNK: u64 = JOURNAL_CHUNK as u64;
/// Records are gathered up to this many bytes before they go down in one write.
const BUFFER_MAX: usize = 64 * 1024;
/// First bytes of every journal segment (SQLite's `aJournalMagic`).
const SEGMENT_MAGIC: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];

/// What a journal needs to know of its database.
pub(crate) struct JournalOf {
    /// The database's shared object.
    pub sealed: Arc<Sealed>,
    /// The database file below.
    pub main: Lower,
    /// What database and journal share.
    pub link: Arc<Link>,
}

struct InForce {
    key: UnitKey,
    prologue: Prologue,
}

/// The journal's state; the database file reaches it through its link to flush it.
pub(crate) struct JournalCore {
    lower: Lower,
    of: JournalOf,
    in_force: Option<InForce>,
    /// This handle began the journal; otherwise it was found, and may be stale (J4).
    mine: bool,
    checked: bool,
    buffer: Vec<u8>,
    /// Logical offset of the buffer, a multiple of the chunk.
    buffer_at: u64,
    dirty: bool,
    prologue_dirty: bool,
    unsynced: bool,
    probed_at: Option<u64>,
    /// The segment being read has no record count (`synchronous=OFF`): its end is wherever it stops.
    uncounted: bool,
    slots: Vec<u8>,
}

impl JournalCore {
    fn new(lower: Lower, of: JournalOf) -> Self {
        Self {
            lower,
            of,
            in_force: None,
            mine: false,
            checked: false,
            buffer: Vec::new(),
            buffer_at: 0,
            dirty: false,
            prologue_dirty: false,
            unsynced: false,
            probed_at: None,
            uncounted: false,
            slots: Vec::new(),
        }
    }

    fn path(&self) -> String {
        format!("{}-journal", self.of.sealed.path())
    }

    /// A new transaction's journal: new salt, so new key, and the marks that tie it to the database's state (J4).
    fn begin(&mut self) -> RcResult<()> {
        let keys = self.of.sealed.refresh(self.of.main)?;
        if self.of.sealed.anchor(self.of.main)?.wal_generation != [0; 16] {
            // The database left write-ahead mode: a log put back later must not be taken for a valid one.
            self.of.sealed.set_generation(self.of.main, [0; 16])?;
        }
        let page_size = keys.object.header().unit_size;
        let mut prefix = [0; 8];
        fill_random(&mut prefix).map_err(|error| report_error(&crypto(&error)))?;
        let mut page1_nonce = [0; 12];
        page1_nonce[..8].copy_from_slice(&prefix);
        let prologue = Prologue {
            kind: AuxKind::Journal,
            unit: u32::try_from(JOURNAL_CHUNK).unwrap_or(0),
            epoch: keys.object.epoch(),
            object_id: keys.object.object_id(),
            salt: random32().map_err(|error| report_error(&crypto(&error)))?,
            page1_before: self.page1_tail(page_size)?,
            page1_nonce,
        };
        // A random start: the prefix alone would repeat too soon (2^32 journals) for a GCM nonce.
        let mut start = [0; 4];
        fill_random(&mut start).map_err(|error| report_error(&crypto(&error)))?;
        let count = u32::from_le_bytes(start) & 0x7fff_ffff;
        self.in_force = Some(self.derive(prologue)?);
        *lock(&self.of.link.page1) = Some(Page1Nonces { prefix, count });
        self.mine = true;
        self.checked = true;
        self.prologue_dirty = true;
        self.buffer.clear();
        self.buffer_at = 0;
        self.uncounted = false;
        Ok(())
    }

    fn derive(&self, prologue: Prologue) -> RcResult<InForce> {
        let key = unit_key(
            &self.of.sealed.keys().object,
            &prologue,
            Role::Journal,
            Purpose::Journal,
        )
        .map_err(|error| report_error(&error))?;
        Ok(InForce { key, prologue })
    }

    /// The reserved bytes of page 1 as they are on the disk; zero when there is no page 1.
    fn page1_tail(&self, page_size: u32) -> RcResult<[u8; TAIL]> {
        let mut tail = [0; TAIL];
        let end = page_offset(2, page_size);
        if !self
            .of
            .main
            .read_whole(&mut tail, end.saturating_sub(TAIL as u64))?
        {
            tail = [0; TAIL];
        }
        Ok(tail)
    }

    /// Reads the prologue of a journal that was found. False when there is none that this database can open.
    fn load(&mut self) -> RcResult<bool> {
        if self.in_force.is_some() {
            return Ok(true);
        }
        let mut bytes = [0; prologue_layout::SIZE];
        if !self.lower.read_whole(&mut bytes, 0)? {
            return Ok(false);
        }
        let keys = self.of.sealed.refresh(self.of.main)?;
        let Some(prologue) = Prologue::parse(&bytes) else {
            return Ok(false);
        };
        let ours = prologue.kind == AuxKind::Journal
            && prologue.object_id == keys.object.object_id()
            && keys.cipher(prologue.epoch).is_some();
        if ours {
            self.in_force = Some(self.derive(prologue)?);
        }
        Ok(ours)
    }

    /// J4, at the moment a found journal is about to be played back.
    fn check_state(&mut self) -> RcResult<()> {
        if self.checked {
            return Ok(());
        }
        let Some(in_force) = &self.in_force else {
            return Ok(());
        };
        let page_size = self.of.sealed.keys().object.header().unit_size;
        let now = self.page1_tail(page_size)?;
        let prefix: [u8; 8] = array(&in_force.prologue.page1_nonce, PREFIX).unwrap_or_default();
        if now != in_force.prologue.page1_before && now[..8] != prefix {
            return Err(report(&code::JOURNAL_STALE, self.path()));
        }
        let mut count = [0; 4];
        fill_random(&mut count).map_err(|error| report_error(&crypto(&error)))?;
        let count = u32::from_le_bytes(count) | 0x8000_0000;
        *lock(&self.of.link.page1) = Some(Page1Nonces { prefix, count });
        self.checked = true;
        Ok(())
    }

    fn end_of_buffer(&self) -> u64 {
        self.buffer_at.saturating_add(self.buffer.len() as u64)
    }

    fn write(&mut self, data: &[u8], at: u64) -> RcResult<()> {
        // SQLite writes a whole sector here, at first without the magic (`writeJournalHdr`); the 28 zeros that end a
        // transaction in PERSIST mode are no new journal.
        if at == 0 && data.len() == JOURNAL_CHUNK {
            self.begin()?;
        } else if !self.load()? {
            return Err(report(&code::JOURNAL, self.path()));
        }
        let ends_here = at == 0 && data.len() < JOURNAL_CHUNK && data.iter().all(|&byte| byte == 0);
        if ends_here {
            // PERSIST mode ends a transaction so: page 1 is no longer this journal's.
            *lock(&self.of.link.page1) = None;
        }
        let patches_count = data.len() == 12 && at.is_multiple_of(CHUNK);
        if patches_count && (self.unsynced || self.dirty) {
            // J3. With synchronous=FULL SQLite has just done this itself, and nothing is left to do.
            self.flush()?;
            self.lower.sync(SQLITE_SYNC_NORMAL)?;
            self.unsynced = false;
        }
        let end = self.end_of_buffer();
        let data_end = at.saturating_add(data.len() as u64);
        if at >= self.buffer_at && data_end <= end {
            let start = usize_of(at - self.buffer_at)?;
            self.buffer[start..start + data.len()].copy_from_slice(data);
        } else if at == end {
            self.buffer.extend_from_slice(data);
        } else {
            self.splice(data, at)?;
        }
        self.dirty = true;
        // What ends a transaction may not wait: another process would roll it back, and no sync need follow.
        if ends_here || self.buffer.len() >= BUFFER_MAX {
            self.flush()
        } else {
            Ok(())
        }
    }

    /// A write elsewhere than at the end: the buffer moves to the chunks that it touches.
    fn splice(&mut self, data: &[u8], at: u64) -> RcResult<()> {
        self.flush()?;
        let first = at / CHUNK;
        let data_end = at.saturating_add(data.len() as u64);
        let mut chunks = Vec::new();
        for index in first..data_end.div_ceil(CHUNK) {
            let start = usize_of((index - first) * CHUNK)?;
            chunks.resize(start, 0);
            if let Some(chunk) = self.read_chunk(index)? {
                chunks.extend_from_slice(&chunk);
            }
        }
        let start = usize_of(at - first * CHUNK)?;
        if chunks.len() < start + data.len() {
            chunks.resize(start + data.len(), 0);
        }
        chunks[start..start + data.len()].copy_from_slice(data);
        self.buffer = chunks;
        self.buffer_at = first * CHUNK;
        Ok(())
    }

    /// Seals what is buffered and writes it; keeps the last, unfinished chunk to go on from.
    pub(crate) fn flush(&mut self) -> RcResult<()> {
        if !self.dirty {
            return Ok(());
        }
        let Some(in_force) = &self.in_force else {
            return Err(report(&code::BUG, "journal without key"));
        };
        let mut out = std::mem::take(&mut self.slots);
        out.clear();
        let mut physical = journal_slot_offset(self.buffer_at / CHUNK);
        if self.prologue_dirty {
            out.extend_from_slice(&in_force.prologue.to_bytes());
            physical = 0;
        }
        let first = self.buffer_at / CHUNK;
        for (index, chunk) in (first..).zip(self.buffer.chunks(JOURNAL_CHUNK)) {
            seal_slot(&in_force.key, index, chunk, &mut out)?;
        }
        let written = self.lower.write(&out, physical);
        self.slots = out;
        written?;
        let whole = self.buffer.len() / JOURNAL_CHUNK * JOURNAL_CHUNK;
        self.buffer.drain(..whole);
        self.buffer_at += whole as u64;
        self.dirty = false;
        self.prologue_dirty = false;
        self.unsynced = true;
        Ok(())
    }

    /// A chunk from the file. `None` when its slot is not there or not authentic.
    fn read_chunk(&mut self, index: u64) -> RcResult<Option<Vec<u8>>> {
        let Some(in_force) = &self.in_force else {
            return Ok(None);
        };
        let mut bytes = vec![0; slot::SIZE];
        if !self
            .lower
            .read_whole(&mut bytes, journal_slot_offset(index))?
        {
            return Ok(None);
        }
        Ok(open_slot(&in_force.key, index, &mut bytes))
    }

    fn size(&mut self) -> RcResult<u64> {
        self.flush()?;
        let slots = journal_slots(self.lower.size()?);
        let Some(last) = slots.checked_sub(1) else {
            return Ok(0);
        };
        let mut length = [0; 2];
        self.lower.read(
            &mut length,
            journal_slot_offset(last) + slot::LENGTH.offset as u64,
        )?;
        Ok(last * CHUNK + u64::from(u16::from_le_bytes(length)).min(CHUNK))
    }

    fn read(&mut self, out: &mut [u8], at: u64) -> RcResult<()> {
        self.flush()?;
        out.fill(0);
        let size = self.size()?;
        let end = at.saturating_add(out.len() as u64);
        // The look at a segment's header: SQLite expects "nothing there" for whatever is not a header.
        let header_probe =
            (out.len() == 8 && at.is_multiple_of(CHUNK)) || (out.len() == 1 && at == 0);
        let loaded = self.load()?;
        if end > size {
            let may_end_here = header_probe || self.uncounted || size == 0;
            return Err(if may_end_here {
                Rc(SQLITE_IOERR_SHORT_READ)
            } else {
                self.damaged(at, "cut short")
            });
        }
        if header_probe && at == 0 && out.len() == 8 && loaded {
            self.check_state()?;
        }
        // The look for a super-journal's name at the file's end (`readSuperJournal`). Where there is one, SQLite cut the
        // file behind it; in PERSIST mode older transactions' chunks may stand there, under keys that are gone.
        let name_probe = matches!((size - at, out.len()), (16 | 12, 4) | (8, 8));
        let lenient = self.uncounted || header_probe || name_probe;
        self.read_chunks(out, at, lenient, loaded)?;
        self.note_header(out, at);
        Ok(())
    }

    fn read_chunks(
        &mut self,
        out: &mut [u8],
        at: u64,
        lenient: bool,
        loaded: bool,
    ) -> RcResult<()> {
        let first = at / CHUNK;
        let end = at.saturating_add(out.len() as u64);
        let count = usize_of(end.div_ceil(CHUNK) - first)?;
        let mut slots = std::mem::take(&mut self.slots);
        slots.clear();
        slots.resize(count * slot::SIZE, 0);
        self.lower
            .read_whole(&mut slots, journal_slot_offset(first))?;
        let mut failed = None;
        for (index, bytes) in (first..).zip(slots.chunks_exact_mut(slot::SIZE)) {
            let chunk = match &self.in_force {
                Some(in_force) if loaded => open_slot(&in_force.key, index, bytes),
                _ => None,
            };
            match chunk {
                Some(chunk) => copy_overlap(out, at, &chunk, index * CHUNK),
                None if lenient => {}
                None => failed = failed.or(Some(index)),
            }
        }
        slots.fill(0);
        self.slots = slots;
        match failed {
            None => Ok(()),
            Some(index) => {
                out.fill(0);
                Err(self.damaged(index * CHUNK, "not authentic"))
            }
        }
    }

    /// Follows SQLite's reading of segment headers: magic, then the record count.
    fn note_header(&mut self, out: &[u8], at: u64) {
        if out.len() == 8 && at.is_multiple_of(CHUNK) {
            self.probed_at = (*out == SEGMENT_MAGIC).then_some(at);
        } else if out.len() == 4
            && self.probed_at.and_then(|probe| probe.checked_add(8)) == Some(at)
        {
            self.uncounted = *out == [0xff; 4];
        }
    }

    fn damaged(&self, at: u64, how: &str) -> Rc {
        report(
            &code::JOURNAL,
            format!("{}: {how} at byte {at}", self.path()),
        )
    }

    fn truncate(&mut self, size: u64) -> RcResult<()> {
        self.flush()?;
        self.buffer.clear();
        if size == 0 {
            self.in_force = None;
            self.mine = false;
            self.checked = false;
            self.buffer_at = 0;
            *lock(&self.of.link.page1) = None;
            return self.lower.truncate(0);
        }
        let last = (size - 1) / CHUNK;
        self.buffer_at = last * CHUNK;
        if let Some(mut chunk) = self.read_chunk(last)? {
            chunk.truncate(usize_of(size - last * CHUNK)?);
            self.buffer = chunk;
            self.dirty = true;
        }
        self.lower.truncate(journal_slot_offset(last + 1))?;
        self.flush()
    }
}

const PREFIX: strongroom_format::layout::Field = strongroom_format::layout::Field {
    name: "PREFIX",
    offset: 0,
    len: 8,
};

/// Appends the slot of one chunk: its length in clear but authenticated, its data padded with zeros.
fn seal_slot(key: &UnitKey, index: u64, chunk: &[u8], out: &mut Vec<u8>) -> RcResult<()> {
    let mut bytes = [0; slot::SIZE];
    let nonce = nonce12().map_err(|error| report_error(&crypto(&error)))?;
    let length = u16::try_from(chunk.len()).map_err(|_| report(&code::BUG, "journal chunk"))?;
    let start = slot::DATA.offset;
    bytes[start..start + chunk.len()].copy_from_slice(chunk);
    let data = &mut bytes[start..start + slot::DATA.len];
    let tag = key
        .seal_raw(&nonce, Role::Journal, index, u64::from(length), data)
        .map_err(|error| report_error(&error))?;
    let done = [
        put(&mut bytes, slot::NONCE, &nonce),
        put(&mut bytes, slot::LENGTH, &length.to_le_bytes()),
        put(&mut bytes, slot::TAG, &tag),
    ];
    assert!(done.iter().all(Option::is_some), "journal slot layout");
    out.extend_from_slice(&bytes);
    Ok(())
}

/// The chunk in a slot, without its padding. `None`: not authentic.
pub(crate) fn open_slot(key: &UnitKey, index: u64, bytes: &mut [u8]) -> Option<Vec<u8>> {
    let nonce = array(bytes, slot::NONCE)?;
    let tag = array(bytes, slot::TAG)?;
    let length = u16_at(bytes, slot::LENGTH)?;
    if !zero_at(bytes, slot::RESERVED) || usize::from(length) > JOURNAL_CHUNK {
        return None;
    }
    let data = bytes.get_mut(slot::DATA.offset..slot::DATA.offset + slot::DATA.len)?;
    key.open_raw(&nonce, Role::Journal, index, u64::from(length), data, &tag)?;
    Some(data[..usize::from(length)].to_vec())
}

/// Copies the part of `chunk`, which lies at logical `chunk_at`, that `out` at logical `at` asks for.
fn copy_overlap(out: &mut [u8], at: u64, chunk: &[u8], chunk_at: u64) {
    let start = at.max(chunk_at);
    let end = (at + out.len() as u64).min(chunk_at + chunk.len() as u64);
    if let (Ok(to), Ok(from), Some(len)) = (
        usize::try_from(start - at),
        usize::try_from(start - chunk_at),
        end.checked_sub(start),
    ) && let Ok(len) = usize::try_from(len)
    {
        out[to..to + len].copy_from_slice(&chunk[from..from + len]);
    }
}

fn usize_of(value: u64) -> RcResult<usize> {
    usize::try_from(value).map_err(|_| report(&code::BUG, "journal offset"))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A rollback journal of a sealed database.
pub(crate) struct JournalFile {
    core: Arc<Mutex<JournalCore>>,
    lower: Lower,
}

impl JournalFile {
    /// A journal as opened; registers itself with its database (J2).
    pub(crate) fn new(lower: Lower, of: JournalOf) -> Self {
        let link = Arc::clone(&of.link);
        let core = Arc::new(Mutex::new(JournalCore::new(lower, of)));
        *lock(&link.journal) = Arc::downgrade(&core);
        Self { core, lower }
    }
}

impl Body for JournalFile {
    fn lower(&self) -> Lower {
        self.lower
    }

    fn read(&mut self, out: &mut [u8], at: u64) -> RcResult<()> {
        lock(&self.core).read(out, at)
    }

    fn write(&mut self, data: &[u8], at: u64) -> RcResult<()> {
        lock(&self.core).write(data, at)
    }

    fn truncate(&mut self, size: u64) -> RcResult<()> {
        lock(&self.core).truncate(size)
    }

    fn sync(&mut self, flags: std::ffi::c_int) -> RcResult<()> {
        let mut core = lock(&self.core);
        core.flush()?;
        self.lower.sync(flags)?;
        core.unsynced = false;
        Ok(())
    }

    fn size(&mut self) -> RcResult<u64> {
        lock(&self.core).size()
    }

    fn file_control(
        &mut self,
        op: std::ffi::c_int,
        argument: *mut std::ffi::c_void,
    ) -> RcResult<()> {
        sealed_control(self.lower, op, argument)
    }

    fn device_characteristics(&self) -> std::ffi::c_int {
        sealed_characteristics(self.lower.device_characteristics())
    }

    fn before_close(&mut self) -> RcResult<()> {
        let mut core = lock(&self.core);
        *lock(&core.of.link.page1) = None;
        core.flush()
    }
}
