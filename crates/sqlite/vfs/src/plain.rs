//! A plain database and its log on this VFS. Everything passes unchanged, except that a copy of a
//! sealed database is refused.
//!
//! The backup API and VACUUM INTO copy pages as SQLite sees them, and keep the number of reserved
//! bytes. So the first page of a copy of a sealed database has the reserved bytes of a sealed one.
//! SQLite writes that page first when a transaction ends, but writes pages for which its cache has
//! no room before. A transaction of the backup API is recognised by this: no statement of the
//! connection has begun it.
//!
//! Invariants, unless the file's URI says `allow_plaintext=1`:
//! - P1. A file that was empty when it was opened never receives a first page with the reserved
//!   bytes of a sealed database. A file that existed, and its log, never receives one from the
//!   backup API.
//! - P2. While a sealed database is open in this process, no page of a copy is written before the
//!   copy's first page was examined. The page stays in SQLite's cache, or here, so a copy may need
//!   as much memory as it has pages.
//!
//! Must not: change a byte.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use strongroom_format::code::{self, Code};
use strongroom_format::sqlite::{PAGE_RESERVE, WAL_FRAME_HEADER, WAL_HEADER};

use crate::big_endian::be_u32_at;
use crate::connection_list;
use crate::ffi::{
    SQLITE_BUSY, SQLITE_IOCAP_SUBPAGE_READ, SQLITE_LOCK_RESERVED, SQLITE_SHM_EXCLUSIVE,
    SQLITE_SHM_LOCK, sqlite3_file,
};
use crate::io_methods::IoMethods;
use crate::lower::LowerFile;
use crate::report::report;
use crate::sealed::SealedDatabase;
use crate::sqlite_code::{SqliteCode, SqliteResult};

/// Where page 1 holds the number of reserved bytes (SQLite file format, section 1.3.4).
const RESERVE_AT: u64 = 20;
/// The lock in shared memory that a writer of the log holds (`WAL_WRITE_LOCK` in src/wal.c).
const WAL_WRITE_LOCK: c_int = 0;
/// Bytes of a log's header. A frame's header, of [`WAL_FRAME_HEADER`] bytes, begins with the number
/// of its page.
const LOG_HEADER: u64 = WAL_HEADER as u64;

/// What is known of copies into one plain database. Its file and its log share it.
pub(crate) struct CopyDetection {
    path: String,
    born_empty: bool,
    allow_plaintext: bool,
    /// The database's file, once SQLite has said to which connection it belongs.
    file: AtomicPtr<sqlite3_file>,
    /// The transaction that is writing the file, or the log, copies a database.
    into_file: AtomicBool,
    into_log: AtomicBool,
}

impl CopyDetection {
    /// Returns the database's file object; null before SQLite has said which connection the file
    /// belongs to.
    fn file(&self) -> *mut sqlite3_file {
        self.file.load(Ordering::Relaxed)
    }

    /// Whether the transaction that begins now copies a database into this one: no statement that
    /// may write is running, so that the backup API writes, or a VACUUM INTO makes this file. False
    /// if plaintext is allowed.
    fn is_beginning_copy(&self) -> bool {
        !self.allow_plaintext
            && (connection_list::runs_statement(self.file(), true) == Some(false)
                || self.born_empty && connection_list::runs_vacuum_into(self.file()))
    }

    /// Whether no statement is running on the file's connection, so that the backup API writes.
    /// False when the connection is not known.
    fn without_statement(&self) -> bool {
        connection_list::runs_statement(self.file(), false) == Some(false)
    }

    /// Reports SR-6003, because a plain copy of a sealed database would be made, and returns
    /// SQLite's code for it.
    fn refuse(&self) -> SqliteCode {
        report(&code::PLAINTEXT_COPY, self.path.as_str())
    }
}

/// Whether pages of a copy must be held back (P2): true while this process has a sealed database
/// open. Without one, none can be the source.
fn must_hold_copies() -> bool {
    SealedDatabase::is_any_open()
}

/// Whether `data`, which is written at offset `at`, gives the pages the reserved bytes of a sealed
/// database. `page` is the offset of the first page in the file. `None` when `data` does not
/// include the number of reserved bytes.
fn has_reserve(data: &[u8], at: u64, page: u64) -> Option<bool> {
    let index = page.checked_add(RESERVE_AT)?.checked_sub(at)?;
    let reserve = data.get(usize::try_from(index).ok()?)?;
    Some(u32::from(*reserve) == PAGE_RESERVE)
}

/// A plain database file.
pub(crate) struct PlainFile {
    lower: LowerFile,
    copies: Arc<CopyDetection>,
    /// The first page was written in this transaction.
    seen: bool,
    refused: Option<&'static Code>,
}

impl PlainFile {
    /// Wraps a plain database that was opened. `born_empty`: it had no bytes. `allow_plaintext`:
    /// copies of sealed databases are not refused.
    pub(crate) fn new(
        lower: LowerFile,
        path: String,
        born_empty: bool,
        allow_plaintext: bool,
    ) -> Self {
        Self {
            lower,
            copies: Arc::new(CopyDetection {
                path,
                born_empty,
                allow_plaintext,
                file: AtomicPtr::new(std::ptr::null_mut()),
                into_file: AtomicBool::new(false),
                into_log: AtomicBool::new(false),
            }),
            seen: false,
            refused: None,
        }
    }

    /// Returns the database's path as SQLite made it absolute.
    pub(crate) fn path(&self) -> &str {
        &self.copies.path
    }

    /// Notes the file object, `file`, once SQLite has said to which connection it belongs.
    pub(crate) fn set_file(&self, file: *mut sqlite3_file) {
        self.copies.file.store(file, Ordering::Relaxed);
    }

    /// Makes every later lock on the file fail with `code`, so that SQLite neither reads nor writes
    /// it.
    pub(crate) fn refuse(&mut self, code: &'static Code) {
        self.refused = Some(code);
    }

    /// Makes the write-ahead log of this database, whose file below is `lower`. Both share what is
    /// known of copies.
    pub(crate) fn log(&self, lower: LowerFile) -> PlainLog {
        PlainLog {
            lower,
            copies: Arc::clone(&self.copies),
            first_page: None,
            held: BTreeMap::new(),
        }
    }

    /// Whether a first page with the reserved bytes of a sealed database, which is being written,
    /// makes this file a copy of one. False if plaintext is allowed. Reads the present page 1 where
    /// that decides. Fails as the file below does.
    fn becomes_copy(&self) -> SqliteResult<bool> {
        if self.copies.allow_plaintext {
            return Ok(false);
        }
        if self.copies.born_empty || self.copies.into_file.load(Ordering::Relaxed) {
            return Ok(true);
        }
        // With `locking_mode=EXCLUSIVE` no lock shows that a transaction begins. The reserved bytes
        // that a rollback restores are in the file already.
        let mut before = [0];
        self.lower.read_whole(&mut before, RESERVE_AT)?;
        Ok(u32::from(before[0]) != PAGE_RESERVE && self.copies.without_statement())
    }
}

impl IoMethods for PlainFile {
    /// Returns the file below, which holds the same bytes.
    fn lower(&self) -> LowerFile {
        self.lower
    }

    /// Passes the write on, unless it would make a plain copy of a sealed database (SR-6003).
    /// `SQLITE_BUSY` for a page of a copy whose first page was not seen yet (P2): SQLite then keeps
    /// the page in its cache.
    fn write(&mut self, data: &[u8], at: u64) -> SqliteResult<()> {
        match has_reserve(data, at, 0) {
            Some(true) if self.becomes_copy()? => return Err(self.copies.refuse()),
            Some(_) => self.seen = true,
            // SQLite then keeps the page in its cache, which grows (`sqlite3PcacheFetchStress`).
            None if self.copies.into_file.load(Ordering::Relaxed)
                && !self.seen
                && must_hold_copies() =>
            {
                return Err(SqliteCode(SQLITE_BUSY));
            }
            None => {}
        }
        self.lower.write(data, at)
    }

    /// Takes the lock below, and notes with a reserved lock whether the transaction copies a
    /// database. After [`Self::refuse`], reports its code instead and takes no lock.
    fn lock(&mut self, level: c_int) -> SqliteResult<()> {
        if let Some(code) = self.refused {
            return Err(report(code, self.path()));
        }
        self.lower.lock(level)?;
        // Every transaction that writes takes this lock first. The playback of a hot journal, and
        // the end of a log, do not take it.
        if level == SQLITE_LOCK_RESERVED {
            self.seen = false;
            let copy = self.copies.is_beginning_copy();
            self.copies.into_file.store(copy, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Notes that no copy is being made any more, and lowers the lock below. Fails as the file
    /// below does.
    fn unlock(&mut self, level: c_int) -> SqliteResult<()> {
        self.copies.into_file.store(false, Ordering::Relaxed);
        self.lower.unlock(level)
    }

    /// Notes, as the log's write lock is taken or released, whether the transaction copies a
    /// database.
    fn shm_lock_changes(&mut self, first: c_int, flags: c_int) {
        if first == WAL_WRITE_LOCK {
            let begins = flags & SQLITE_SHM_LOCK != 0 && flags & SQLITE_SHM_EXCLUSIVE != 0;
            let copy = begins && self.copies.is_beginning_copy();
            self.copies.into_log.store(copy, Ordering::Relaxed);
        }
    }

    /// Returns the characteristics of the device below, without reads of parts of pages.
    fn device_characteristics(&self) -> c_int {
        self.lower.device_characteristics() & !SQLITE_IOCAP_SUBPAGE_READ
    }
}

/// The write-ahead log of a plain database.
pub(crate) struct PlainLog {
    lower: LowerFile,
    copies: Arc<CopyDetection>,
    /// The offset of the first page, while its frame is being written.
    first_page: Option<u64>,
    /// Writes of a copy that are held back (P2), by offset. An error, as for the file, is not
    /// possible here: SQLite has already added the frame to its running checksum.
    held: BTreeMap<u64, Vec<u8>>,
}

impl PlainLog {
    /// Whether frames of a copy must be held in memory, because the copy's first page was not seen
    /// yet.
    fn must_hold(&self) -> bool {
        !self.copies.allow_plaintext
            && self.copies.into_log.load(Ordering::Relaxed)
            && (!self.held.is_empty() || must_hold_copies())
    }

    /// Writes the frames that are kept in memory to the log's own file, in the order of their
    /// offsets, and keeps them no longer. Fails as writing to that file does; frames that were not
    /// tried stay in memory then.
    fn release(&mut self) -> SqliteResult<()> {
        while let Some((at, data)) = self.held.pop_first() {
            self.lower.write(&data, at)?;
        }
        Ok(())
    }
}

impl IoMethods for PlainLog {
    /// Returns the log's own file. It has the same bytes, except frames of a copy that are still
    /// held in memory.
    fn lower(&self) -> LowerFile {
        self.lower
    }

    /// Reads from the log, taking frames that are held back from memory.
    fn read(&mut self, out: &mut [u8], at: u64) -> SqliteResult<()> {
        // SQLite reads frames in the pieces in which it has written them.
        match self.held.get(&at).and_then(|held| held.get(..out.len())) {
            Some(held) => out.copy_from_slice(held),
            None => return self.lower.read(out, at),
        }
        Ok(())
    }

    /// Passes the write on, or holds a frame of a copy in memory until the copy's first page was
    /// examined (P2). That page releases the held frames, or, if it has the reserved bytes of a
    /// sealed database, discards them and fails with SR-6003.
    fn write(&mut self, data: &[u8], at: u64) -> SqliteResult<()> {
        if !self.copies.into_log.load(Ordering::Relaxed) {
            // The transaction of the held writes was rolled back.
            self.held.clear();
        }
        if at >= LOG_HEADER && data.len() == WAL_FRAME_HEADER {
            let is_first = be_u32_at(data, 0) == Some(1);
            self.first_page = is_first.then(|| at.saturating_add(data.len() as u64));
        }
        let reserve = self.first_page.and_then(|page| has_reserve(data, at, page));
        if let Some(has_reserve) = reserve
            && !self.copies.allow_plaintext
        {
            let copy = self.copies.into_log.load(Ordering::Relaxed)
                || self.copies.born_empty
                || has_reserve && self.copies.without_statement();
            if has_reserve && copy {
                self.held.clear();
                return Err(self.copies.refuse());
            }
            self.release()?;
            self.copies.into_log.store(false, Ordering::Relaxed);
        }
        if self.must_hold() && at >= LOG_HEADER {
            self.held.insert(at, data.to_vec());
            return Ok(());
        }
        self.lower.write(data, at)
    }

    /// Writes the frames that were held back, then syncs the log. Fails as the file below does.
    fn sync(&mut self, flags: c_int) -> SqliteResult<()> {
        self.release()?;
        self.lower.sync(flags)
    }
}
