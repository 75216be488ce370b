//! The sealed database file: a header, followed by pages that are sealed in place.
//! docs/spec/sqlite.md, "Database file".
//!
//! Invariants:
//! M1. Every byte written past the header is part of a whole sealed page whose reserved bytes
//!     SQLite left zero.
//! M2. No byte of a page that did not authenticate reaches SQLite.
//! M3. A new database's header is on the disk, durably, before its first page.
//! M4. The journal's buffered records reach the kernel before any page does.
//! M5. Without a key, or once the file was refused, no lock can be taken, so SQLite reads, writes
//!     and deletes nothing.
//! M6. Every page up to the file's end is sealed. SQLite never writes a page that was freed in the
//!     transaction that allocated it, but may write a page after it, and later reads both.
//! M8. The bytes of page 1 that are kept come from a page that authenticated or was sealed here,
//!     and are returned only while the page's tail in the file is the one that the page had then.
//! M9. When a rollback is over, every leaf of the free list can be opened (`repair.rs`).
//!
//! Must not: keep a copy of a decrypted page longer than a call, except the 16 bytes of page 1 that
//! SQLite reads in each transaction.

use std::collections::BTreeSet;
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use strongroom_crypto::nonce12;
use strongroom_format::code::{self, Code};
use strongroom_format::header::{Cipher, HEADER_LEN, ObjectKind};
use strongroom_format::sqlite::{PAGE_RESERVE, lock_byte_page, page_offset};
use strongroom_keyring::{NewObject, Object, Opener};

use crate::capabilities::{sealed_characteristics, sealed_control};
use crate::ffi::{
    SQLITE_FCNTL_BEGIN_ATOMIC_WRITE, SQLITE_FCNTL_COMMIT_ATOMIC_WRITE,
    SQLITE_FCNTL_ROLLBACK_ATOMIC_WRITE, SQLITE_FCNTL_SYNC, SQLITE_IOERR_SHORT_READ,
    SQLITE_IOERR_WRITE, SQLITE_LOCK_SHARED, SQLITE_NOTFOUND,
};
use crate::freshness::{LogTails, RunningDigest};
use crate::header_creation;
use crate::io_methods::IoMethods;
use crate::journal::{JournalCore, JournalFile};
use crate::lower::LowerFile;
use crate::new_database::NewDatabase;
use crate::page_tail::TAIL;
use crate::read_ahead::ReadAhead;
use crate::remote::is_remote;
use crate::report::{report, report_error, warn};
use crate::seal::crypto_error;
use crate::sealed::{OpenedHeader, SealedDatabase};
use crate::shared_state::SharedState;
use crate::sqlite_code::{SqliteCode, SqliteResult};
use crate::synthetic_header::synthetic_header;

mod create;
mod digest;
mod read;
mod repair;
mod seals;

/// A database file that is sealed, or is to become sealed.
pub(crate) struct MainFile {
    lower: LowerFile,
    path: String,
    /// The opener for which the header of a new database will be made.
    opener: Option<Arc<Opener>>,
    sealed: Option<Arc<SealedDatabase>>,
    opened: Option<Arc<OpenedHeader>>,
    page_size: u32,
    /// The header is in the file. False for a database that is still to be created.
    has_header: bool,
    /// SQLite chooses the page size itself, as for the target of VACUUM INTO. It is told that the
    /// file is empty.
    page_size_is_free: bool,
    refused: Option<&'static Code>,
    /// The header's sequence was read since the last lock or sync (O2).
    fresh: bool,
    /// Pages that the file had at that time, or that this file has written since.
    pages: u64,
    /// Bytes 24..40 of page 1, valid while the page's tail is this.
    change_counter: Option<([u8; TAIL], [u8; 16])>,
    scratch: Vec<u8>,
    /// Pages whose last write failed (M9).
    torn: BTreeSet<u64>,
    ahead: ReadAhead,
    /// This connection may write the file, or may be about to play a journal back, so nothing is
    /// read from a mapping (L4).
    writing: bool,
    shared: Arc<SharedState>,
    /// The open journal, which is flushed before a page is written (M4).
    journal: Weak<Mutex<JournalCore>>,
    /// The digest over the pages while this connection writes them. No other connection can change
    /// the pages meanwhile (X3).
    tally: Option<RunningDigest>,
    /// What was read of the write-ahead log for the digest.
    log: LogTails,
}

impl MainFile {
    /// Makes the state of a file that begins with the sealed magic. With `opener`, the header is
    /// opened at once, and its errors are returned. Without one, the file stays locked (M5) until
    /// [`Self::open_header`].
    pub(crate) fn existing(
        lower: LowerFile,
        path: String,
        page_size: u32,
        opener: Option<Arc<Opener>>,
    ) -> SqliteResult<Self> {
        let mut file = Self::new(lower, path, page_size);
        file.has_header = true;
        if let Some(opener) = opener {
            file.open_header(&opener)?;
        }
        Ok(file)
    }

    /// Makes the state of an empty file that becomes a sealed database with its first page: draws
    /// its data key and seals it for `opener`, in memory only. Nothing is written. Reports the
    /// warning SR-6008 for AES-256-CTR. SR-2012 for a retired key.
    pub(crate) fn create(
        lower: LowerFile,
        path: String,
        wanted: NewDatabase,
        opener: Arc<Opener>,
        page_size_is_free: bool,
    ) -> SqliteResult<Self> {
        let new = NewObject {
            kind: ObjectKind::Sqlite,
            cipher: wanted.cipher,
            unit_size: wanted.page_size,
            unit_reserve: PAGE_RESERVE,
        };
        let recipient = opener.recipient();
        let object = recipient.and_then(|recipient| Object::create(&new, &recipient));
        let object = object.and_then(|object| match wanted.freshness {
            true => object.keeping_freshness(),
            false => Ok(object),
        });
        let object = object.map_err(|error| report_error(&error))?;
        let mut file = Self::new(lower, path, wanted.page_size);
        file.page_size_is_free = page_size_is_free;
        file.opener = Some(opener);
        // Not shared with other connections yet: another one may be creating the same file, and
        // only one of them will succeed.
        let opened = Arc::new(OpenedHeader::new(object).map_err(|error| report_error(&error))?);
        file.opened = Some(opened);
        file.warn_of_ctr();
        Ok(file)
    }

    /// Changes the page size of a database that is still to be created (`PRAGMA page_size`), by
    /// making its data key and header anew in memory. Does nothing to a database that has a header,
    /// or whose layout is fixed. Fails as [`Self::create`] does.
    pub(crate) fn set_page_size(&mut self, page_size: u32) -> SqliteResult<()> {
        let (false, true, Some(opener)) = (self.has_header, self.page_size_is_free, &self.opener)
        else {
            return Ok(());
        };
        if page_size == self.page_size {
            return Ok(());
        }
        let header = self.require_header()?.object.header();
        let wanted = NewDatabase {
            cipher: header.cipher,
            page_size,
            freshness: header.freshness,
        };
        let shared = Arc::clone(&self.shared);
        let journal = Weak::clone(&self.journal);
        *self = Self::create(
            self.lower,
            self.path.clone(),
            wanted,
            Arc::clone(opener),
            true,
        )?;
        self.shared = shared;
        self.journal = journal;
        Ok(())
    }

    /// Makes the state of a file whose header is not opened yet. Remote files are read without
    /// reading ahead.
    fn new(lower: LowerFile, path: String, page_size: u32) -> Self {
        Self {
            lower,
            path,
            opener: None,
            sealed: None,
            opened: None,
            page_size,
            has_header: false,
            page_size_is_free: false,
            refused: None,
            fresh: false,
            pages: 0,
            change_counter: None,
            scratch: Vec::new(),
            torn: BTreeSet::new(),
            ahead: match is_remote(lower) {
                true => ReadAhead::disabled(),
                false => ReadAhead::default(),
            },
            writing: false,
            shared: Arc::default(),
            journal: Weak::new(),
            tally: None,
            log: LogTails::default(),
        }
    }

    /// Reads the header from the file and opens it with `opener`, which unlocks the file. SR-2002
    /// for a wrong key, SR-3001 to SR-3007 for a header that is not valid. Reports the warning
    /// SR-6008 for AES-256-CTR.
    pub(crate) fn open_header(&mut self, opener: &Opener) -> SqliteResult<()> {
        let sealed = SealedDatabase::open(&self.path, self.lower, opener)?;
        let opened = sealed.opened_header();
        self.page_size = opened.object.header().unit_size;
        self.opened = Some(opened);
        self.sealed = Some(sealed);
        // The opened header keeps what it needs of the opener; the user's secret is wiped with the
        // last reference.
        self.opener = None;
        self.has_header = true;
        self.change_counter = None;
        self.warn_of_ctr();
        Ok(())
    }

    /// Reports the warning SR-6008 if the cipher is AES-256-CTR, which authenticates nothing.
    fn warn_of_ctr(&self) {
        if self
            .opened
            .as_ref()
            .is_some_and(|opened| opened.object.header().cipher == Cipher::Aes256Ctr)
        {
            warn(&code::CTR_WARNING, &self.path);
        }
    }

    /// Makes every later lock, read and write on the file fail with `code` (M5), except reads of
    /// the synthetic first 100 bytes.
    pub(crate) fn refuse(&mut self, code: &'static Code) {
        self.refused = Some(code);
    }

    /// Returns the opened header: once a key has opened it, or when it is about to be created.
    /// `None` while the file is locked.
    pub(crate) fn opened_header(&self) -> Option<&Arc<OpenedHeader>> {
        self.opened.as_ref()
    }

    /// Returns the state that this process's connections to the file share. `None` while the file
    /// is locked, and before the header of a new database is written.
    pub(crate) fn sealed(&self) -> Option<&Arc<SealedDatabase>> {
        self.sealed.as_ref()
    }

    /// Returns the file below, which holds the header and the sealed pages.
    pub(crate) fn lower(&self) -> LowerFile {
        self.lower
    }

    /// Returns the database's path as SQLite made it absolute.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Returns the page size in bytes.
    pub(crate) fn page_size(&self) -> u32 {
        self.page_size
    }

    /// Whether the file has a header on the disk. False for a database that is still to be created.
    pub(crate) fn has_header(&self) -> bool {
        self.has_header
    }

    /// Whether this connection holds a lock with which it may write.
    pub(crate) fn is_writing(&self) -> bool {
        self.writing
    }

    /// Returns the state that this file shares with its journal and log.
    pub(crate) fn shared(&self) -> &Arc<SharedState> {
        &self.shared
    }

    /// Notes the journal that was opened for this database, so that it is flushed before a page is
    /// written (J2). Does not keep it alive.
    pub(crate) fn set_journal(&mut self, journal: &JournalFile) {
        self.journal = Arc::downgrade(journal.core());
    }

    /// Reads the header and the file's size again, after this connection changed the header.
    /// SR-2017 or SR-3004 if the header does not open; otherwise fails as the file below does.
    pub(crate) fn reload_header(&mut self) -> SqliteResult<()> {
        self.fresh = false;
        self.refresh_header()
    }

    /// Returns the shared state, for a log or journal of this database. Writes the header first,
    /// durably, if the database is new, so that nothing can be sealed for an object that will not
    /// exist. SR-2001 if no key was given.
    pub(crate) fn sealed_for_auxiliary(&mut self) -> SqliteResult<Arc<SealedDatabase>> {
        self.require_header()?;
        self.ensure_header()?;
        self.sealed
            .clone()
            .ok_or_else(|| report(&code::NO_KEY, self.path.as_str()))
    }

    /// Returns the opened header. Reports the code with which the file was refused, or SR-2001 when
    /// no key was given yet.
    fn require_header(&self) -> SqliteResult<&Arc<OpenedHeader>> {
        if let Some(code) = self.refused {
            return Err(report(code, self.path.as_str()));
        }
        self.opened
            .as_ref()
            .ok_or_else(|| report(&code::NO_KEY, self.path.as_str()))
    }

    /// Reads the header again, if another process has changed it, and counts the file's pages,
    /// unless both were done since another connection could last have written. Does nothing before
    /// there is a header. SR-2017 if the keys do not open it, SR-3004 for an older one; otherwise
    /// fails as the file below does.
    fn refresh_header(&mut self) -> SqliteResult<()> {
        if self.fresh || !self.has_header {
            return Ok(());
        }
        if let Some(sealed) = &self.sealed {
            self.opened = Some(sealed.refresh(self.lower)?);
        }
        self.pages = self.body_len()? / u64::from(self.page_size);
        self.fresh = true;
        Ok(())
    }

    /// Draws the nonce for a page: random, except that page 1 gets the next nonce of the
    /// transaction's journal, if there is one, which marks the page as that transaction's. SR-5001
    /// without random numbers.
    fn nonce_for(&self, number: u64) -> SqliteResult<[u8; 12]> {
        if number == 1
            && let Some(nonce) = self.shared.next_page1_nonce()
        {
            return Ok(nonce);
        }
        nonce12().map_err(|error| report_error(&crypto_error(&error)))
    }

    /// Checks a page that SQLite writes (M1). SR-6001 if SQLite has not left the reserved bytes
    /// zero, or page 1 gives another number of them; SR-6002 if page 1 has another page size than
    /// the header.
    fn check_page(&self, number: u64, page: &[u8]) -> SqliteResult<()> {
        let tail_is_zero = page[page.len() - TAIL..].iter().all(|&byte| byte == 0);
        let synthetic = synthetic_header(self.page_size);
        let sizes_agree = number != 1 || page[16..18] == synthetic[16..18];
        if !sizes_agree {
            return Err(report(&code::PAGE_SIZE, self.path.as_str()));
        }
        if !tail_is_zero || (number == 1 && u32::from(page[20]) != PAGE_RESERVE) {
            return Err(report(
                &code::RESERVE,
                format!("{}: page {number}", self.path),
            ));
        }
        Ok(())
    }

    /// Writes sealed zeros as each page between the file's end and page `number` (M6), except the
    /// page of SQLite's lock bytes. Fails as [`Self::write_page`] does.
    fn seal_gap(&mut self, number: u64) -> SqliteResult<()> {
        let first = self.pages.saturating_add(1);
        if first < number {
            let zeros = vec![0; self.page_size as usize];
            let skip = lock_byte_page(self.page_size);
            (first..number)
                .filter(|gap| *gap != skip)
                .try_for_each(|gap| self.write_page(gap, &zeros))?;
        }
        Ok(())
    }

    /// Seals a page under a fresh nonce and writes it. A page whose write failed, or that could not
    /// be counted, counts as torn until it is written again. Updates the count of seals and the
    /// digest, which may write an anchor. Does not sync the page. SR-5001 if it cannot be sealed;
    /// otherwise fails as the file below does.
    fn write_page(&mut self, number: u64, data: &[u8]) -> SqliteResult<()> {
        let counted = self.contribution_before_write(number)?;
        let nonce = self.nonce_for(number)?;
        let counted_seal = self.count_seal(&nonce);
        let mut page = std::mem::take(&mut self.scratch);
        data.clone_into(&mut page);
        let sealed = self
            .require_header()?
            .current
            .seal(number, &nonce, &mut page)
            .map_err(|error| report_error(&error))
            .and(counted_seal);
        self.ahead.forget_page(number);
        if number > self.pages {
            // The mapping would not grow with the file.
            self.lower.unmap()?;
        }
        let result =
            sealed.and_then(|()| self.lower.write(&page, page_offset(number, self.page_size)));
        if number == 1 {
            self.change_counter = result.is_ok().then(|| change_counter_of(data, &page));
        }
        let tail = page.last_chunk::<TAIL>().copied();
        self.scratch = page;
        match result {
            Ok(()) => self.torn.remove(&number),
            Err(_) => self.torn.insert(number),
        };
        if let Some(counted) = counted {
            self.update_digest(number, counted, data, tail.filter(|_| result.is_ok()))?;
        }
        result
    }

    /// Makes later calls read header, size, digest and pages from the file again, because another
    /// connection may have written, or may write from now on (O2, G2).
    fn forget_file_state(&mut self) {
        self.tally = None;
        self.forget_cached_pages();
    }

    /// Makes later calls read header, size and pages from the file again. The digest that this
    /// connection has counted stays (X3).
    fn forget_cached_pages(&mut self) {
        self.fresh = false;
        self.ahead.forget();
    }

    /// Writes what the rollback journal of this database still buffers. Does not sync. Fails as the
    /// journal's file does.
    fn flush_journal(&self) -> SqliteResult<()> {
        self.with_journal(JournalCore::flush)
    }

    /// Locks the rollback journal that is open for this database and calls `work` on it. Does
    /// nothing when none is open. Fails as `work` does.
    fn with_journal(
        &self,
        work: impl FnOnce(&mut JournalCore) -> SqliteResult<()>,
    ) -> SqliteResult<()> {
        match self.journal.upgrade() {
            Some(core) => work(&mut core.lock().unwrap_or_else(PoisonError::into_inner)),
            None => Ok(()),
        }
    }

    /// Returns the length of the file after Strongroom's header, in bytes; 0 if it is shorter.
    /// Fails as the file below does.
    fn body_len(&self) -> SqliteResult<u64> {
        Ok(self.lower.size()?.saturating_sub(HEADER_LEN as u64))
    }
}

/// Returns what is kept of page 1: its tail (last 32 bytes) as it is sealed, and bytes 24..40 of
/// its plaintext, which SQLite reads in each transaction (M8).
fn change_counter_of(plain: &[u8], sealed: &[u8]) -> ([u8; TAIL], [u8; 16]) {
    let (mut tail, mut bytes) = ([0; TAIL], [0; 16]);
    tail.copy_from_slice(&sealed[sealed.len() - TAIL..]);
    bytes.copy_from_slice(&plain[24..40]);
    (tail, bytes)
}

impl IoMethods for MainFile {
    /// Returns the file below, which holds the header and the sealed pages.
    fn lower(&self) -> LowerFile {
        self.lower
    }

    /// Reads at `at`, an offset without Strongroom's header, and opens the pages. The first 100
    /// bytes are synthetic, and need no key. Otherwise SR-2001 without a key, SR-4001 for a page
    /// that is not authentic, SR-4002 for one in which the file ends, SR-4008 for one of an unknown
    /// epoch, and `SQLITE_IOERR_SHORT_READ` past the end; `out` holds no plaintext then.
    fn read(&mut self, out: &mut [u8], at: u64) -> SqliteResult<()> {
        let before_pages = self.page_size_is_free && !self.has_header;
        if at == 0 && out.len() == 100 && !before_pages {
            out.copy_from_slice(&synthetic_header(self.page_size));
            return Ok(());
        }
        if let Err(rc) = self.require_header() {
            out.fill(0);
            return Err(rc);
        }
        if !self.has_header {
            out.fill(0);
            return Err(SqliteCode(SQLITE_IOERR_SHORT_READ));
        }
        let size = u64::from(self.page_size);
        if out.len() == self.page_size as usize && at.is_multiple_of(size) {
            return self.read_page(at / size + 1, out);
        }
        if at == 24 && out.len() == 16 {
            return self.read_change_counter(out);
        }
        self.read_part(out, at)
    }

    /// Seals and writes one whole page; SR-6002 for anything else, SR-6001 without the reserved
    /// bytes. First writes the journal's buffer, the header of a new database, and the pages that
    /// are missing before this one. Does not sync the page.
    fn write(&mut self, data: &[u8], at: u64) -> SqliteResult<()> {
        self.require_header()?;
        let size = u64::from(self.page_size);
        if data.len() != self.page_size as usize || !at.is_multiple_of(size) {
            return Err(report(&code::PAGE_SIZE, self.path.as_str()));
        }
        let number = at / size + 1;
        self.check_page(number, data)?;
        self.flush_journal()?;
        self.ensure_header()?;
        self.refresh_header()?;
        self.seal_gap(number)?;
        self.write_page(number, data)?;
        self.pages = self.pages.max(number);
        Ok(())
    }

    /// Truncates the file to `size` bytes of plain pages. First writes the journal's buffer, syncs
    /// an earlier truncation of the journal, and removes the pages from the digest.
    /// `SQLITE_IOERR_WRITE` if `size` is not whole pages. Does nothing before there is a header.
    fn truncate(&mut self, size: u64) -> SqliteResult<()> {
        self.require_header()?;
        if !self.has_header {
            return Ok(());
        }
        if !size.is_multiple_of(u64::from(self.page_size)) {
            return Err(SqliteCode(SQLITE_IOERR_WRITE));
        }
        self.flush_journal()?;
        // SQLite truncates the database when its journal is finished, and the journal has no record
        // of the pages that are cut off.
        self.with_journal(JournalCore::sync_truncation)?;
        self.truncate_digest(size / u64::from(self.page_size))?;
        self.forget_cached_pages();
        self.lower.truncate(size.saturating_add(HEADER_LEN as u64))
    }

    /// Writes the digest into an anchor if it has changed, and syncs the file. Fails as the file
    /// below does.
    fn sync(&mut self, flags: c_int) -> SqliteResult<()> {
        self.write_digest()?;
        self.forget_file_state();
        self.lower.sync(flags)
    }

    /// Returns the file's length without Strongroom's header, in bytes. Fails as the file below
    /// does.
    fn size(&mut self) -> SqliteResult<u64> {
        self.body_len()
    }

    /// Takes the lock below, and makes later calls read the file again. Refused without a key
    /// (SR-2001), or once the file was refused. If another connection has created the database
    /// meanwhile, a shared lock also opens its header; the lock is released again if that fails.
    fn lock(&mut self, level: c_int) -> SqliteResult<()> {
        self.require_header()?;
        if level > SQLITE_LOCK_SHARED {
            self.lower.unmap()?;
        }
        self.lower.lock(level)?;
        self.writing |= level > SQLITE_LOCK_SHARED;
        self.forget_file_state();
        if level != SQLITE_LOCK_SHARED || self.has_header {
            return Ok(());
        }
        let joined = match header_creation::has_header(self.lower) {
            Ok(true) => self.join_created(),
            other => other.map(|_| ()),
        };
        if joined.is_err() {
            // SQLite will not release the lock after an error.
            self.lower.unlock(0)?;
        }
        joined
    }

    /// Lowers the lock below, after writing the digest of a transaction without a journal. An error
    /// of the digest is only reported.
    fn unlock(&mut self, level: c_int) -> SqliteResult<()> {
        self.write_unjournaled_digest(level);
        self.forget_file_state();
        self.writing &= level > SQLITE_LOCK_SHARED;
        self.lower.unlock(level)
    }

    /// Answers a file control: refuses atomic writes; before SQLite's sync (`SQLITE_FCNTL_SYNC`)
    /// repairs the free list after a rollback and writes the digest; ignores announcements of a
    /// size. Passes all others to the file below.
    fn file_control(&mut self, op: c_int, argument: *mut c_void) -> SqliteResult<()> {
        match op {
            SQLITE_FCNTL_BEGIN_ATOMIC_WRITE
            | SQLITE_FCNTL_COMMIT_ATOMIC_WRITE
            | SQLITE_FCNTL_ROLLBACK_ATOMIC_WRITE => Err(SqliteCode(SQLITE_NOTFOUND)),
            // SQLite sends this before each sync of a rollback or commit, whatever `synchronous`
            // says (pager.c, `sqlite3PagerSync`).
            SQLITE_FCNTL_SYNC => {
                self.repair_after_rollback()?;
                self.write_digest()?;
                sealed_control(self.lower, op, argument)
            }
            _ => sealed_control(self.lower, op, argument),
        }
    }

    /// Returns the characteristics of the device below, without those that sealed files do not
    /// have.
    fn device_characteristics(&self) -> c_int {
        sealed_characteristics(self.lower.device_characteristics())
    }

    /// Makes later calls read the file again, because a lock in shared memory begins or ends.
    fn shm_lock_changes(&mut self, _first: c_int, _flags: c_int) {
        self.forget_file_state();
    }
}
