//! The sealed rollback journal. docs/spec/sqlite.md, "Rollback journal".
//!
//! Invariants:
//! J1. A slot that holds synced records, or the header of a segment that counts, is never written
//!     again.
//! J2. Buffered records reach the file before any page of the database does (`MainFile` ensures
//!     it), before a sync, and before they are read back.
//! J3. A segment's record count is durable only after its records are, whatever `synchronous` says.
//!     So a record that is missing under a valid count is damage, never the result of a crash.
//!     (`synchronous=OFF` has no count: see J7.)
//! J4. A journal rolls back only the database state for which it was made, or the one that its
//!     transaction wrote.
//! J5. The newest mark, and the segments to which it leads, say what counts, and nothing else does.
//!     Magic and counts that SQLite writes over a segment's header go into a mark, and overlay the
//!     header's bytes when SQLite reads them.
//! J6. A journal found in a file is played back only if everything that counts is there.
//! J7. Without a count, a slot on which pages of the database may depend is written again only
//!     after its former version is in the shadow: when the process is killed, one of the two is
//!     whole.
//! J8. A journal that replaces an older one leaves the older one's marks alone until its own
//!     replace them, so that the end of the older one holds until the new one is complete. A
//!     journal that was truncated begins again when the truncation is durable, and the database is
//!     not truncated before.
//! J9. A connection that reads a super-journal finds in the files of its journals what was written
//!     to them, buffered or not.
//!
//! Must not: report "no journal" for a journal that is there but damaged in what counts.

mod core;
pub(crate) mod head;
mod open_journals;
mod read;
mod record;
pub(crate) mod slot;
mod tails;

use std::sync::{Arc, Mutex};

use crate::capabilities::{sealed_characteristics, sealed_control};
use crate::ffi::SQLITE_SYNC_NORMAL;
use crate::io_methods::IoMethods;
use crate::lower::LowerFile;
use crate::sqlite_code::SqliteResult;

use self::core::lock;
pub(crate) use self::core::{JournalCore, JournalOwner};
pub(crate) use head::{JournalHead, follow_segments, segment_length};
pub(crate) use open_journals::flush_journal_at;
pub(crate) use slot::{open_shadow, open_slot};

/// A rollback journal of a sealed database.
pub(crate) struct JournalFile {
    core: Arc<Mutex<JournalCore>>,
    lower: LowerFile,
}

impl JournalFile {
    /// Makes the journal that SQLite has opened in `lower`, and adds it to the list of open
    /// journals. Reads and writes nothing. The caller gives its [`Self::core`] to the database
    /// (J2).
    pub(crate) fn new(lower: LowerFile, of: JournalOwner) -> Self {
        let core = JournalCore::new(lower, of);
        let path = core.path();
        let core = Arc::new(Mutex::new(core));
        open_journals::remember(path, &core);
        Self { core, lower }
    }

    /// Returns the journal's state, which the database file flushes before it writes a page (M4).
    pub(crate) fn core(&self) -> &Arc<Mutex<JournalCore>> {
        &self.core
    }
}

impl IoMethods for JournalFile {
    /// Returns the file below, which holds the sealed journal.
    fn lower(&self) -> LowerFile {
        self.lower
    }

    /// Reads from the plain journal at `at`, after writing what is buffered.
    /// `SQLITE_IOERR_SHORT_READ` past the end, and SR-4004 where a journal that counts is damaged
    /// or cut short. With freshness, also notes which record SQLite reads, and sets the page's tail
    /// in `out` to zero.
    fn read(&mut self, out: &mut [u8], at: u64) -> SqliteResult<()> {
        let mut core = lock(&self.core);
        core.read(out, at)?;
        core.note_read(out, at);
        Ok(())
    }

    /// Takes a write to the plain journal at `at`. Most bytes are only buffered; a record count and
    /// the end of a transaction are written at once.
    fn write(&mut self, data: &[u8], at: u64) -> SqliteResult<()> {
        lock(&self.core).write(data, at)
    }

    /// Truncates the plain journal to `size` bytes. 0 ends the transaction and discards what is
    /// buffered. Does not sync. Fails as the file below does.
    fn truncate(&mut self, size: u64) -> SqliteResult<()> {
        lock(&self.core).truncate(size)
    }

    /// Writes what is buffered, then syncs the file. Fails as the file below does.
    fn sync(&mut self, flags: std::ffi::c_int) -> SqliteResult<()> {
        let mut core = lock(&self.core);
        core.flush()?;
        self.lower.sync(flags)?;
        core.unsynced = false;
        core.truncation_unsynced = false;
        Ok(())
    }

    /// Returns the size of the plain journal in bytes. Checks a found journal first (SR-4004,
    /// SR-4007), and writes what is buffered. Fails as [`JournalCore::size`] does.
    fn size(&mut self) -> SqliteResult<u64> {
        lock(&self.core).size()
    }

    /// Passes the operation to the file below and returns its result, except the announcements of a
    /// size, which are ignored.
    fn file_control(
        &mut self,
        op: std::ffi::c_int,
        argument: *mut std::ffi::c_void,
    ) -> SqliteResult<()> {
        sealed_control(self.lower, op, argument)
    }

    /// Returns the characteristics of the device below, without those that sealed files do not
    /// have.
    fn device_characteristics(&self) -> std::ffi::c_int {
        sealed_characteristics(self.lower.device_characteristics())
    }

    /// Ends the journal's hold on page 1, then writes what is buffered. Syncs only after a
    /// truncation that is not durable yet. Fails as the file below does.
    fn before_close(&mut self) -> SqliteResult<()> {
        let mut core = lock(&self.core);
        *lock(&core.database.shared.page1) = None;
        core.database.shared.set_undo_journal([0; 16], false);
        core.flush()?;
        if std::mem::take(&mut core.truncation_unsynced) {
            // The connection that begins the next journal here cannot know that it is not durable
            // (J8).
            return self.lower.sync(SQLITE_SYNC_NORMAL);
        }
        Ok(())
    }
}
