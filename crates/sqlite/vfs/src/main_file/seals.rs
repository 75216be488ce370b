//! Counts a database's seals as its pages are written. docs/internals/sqlite-vfs.md, "Seals".
//!
//! A connection that writes a page holds a lock under which no other connection writes an anchor:
//! SQLite's exclusive lock in rollback mode, and the checkpointer's locks in write-ahead mode (B4).
//!
//! Must not: do anything for a page whose nonce counts for that page alone.

use strongroom_format::header::{Cipher, SEALS_STEP};

use super::MainFile;
use crate::seals;
use crate::sqlite_code::SqliteResult;

impl MainFile {
    /// Counts the page that is about to be sealed under `nonce` (B1): for one nonce in 65536,
    /// writes an anchor with a count that is 65536 higher. For any other nonce does nothing.
    /// SR-2001 without a key; otherwise fails as the file below does.
    pub(super) fn count_seal(&mut self, nonce: &[u8; 12]) -> SqliteResult<()> {
        if !seals::stands_for_many(nonce) {
            return Ok(());
        }
        self.count_many_seals()
    }

    /// Adds 65536 to the count of seals in the anchor and writes it, with syncs unless
    /// `synchronous` is OFF. Does nothing for ciphers other than AES-256-GCM, which have no limit.
    /// SR-2001 without a key; otherwise fails as the file below does.
    #[cold]
    fn count_many_seals(&mut self) -> SqliteResult<()> {
        let limited = self.require_header()?.object.header().cipher == Cipher::Aes256Gcm;
        let Some(sealed) = self.sealed.as_ref().filter(|_| limited) else {
            return Ok(());
        };
        // With `synchronous=OFF` there are no syncs.
        let durable = !self.shared.undo_journal().unsynced;
        let written = sealed.add_seals(self.lower, SEALS_STEP, durable)?;
        if let (Some(anchor), Some(tally)) = (written, &mut self.tally) {
            tally.set_anchor(anchor);
        }
        Ok(())
    }
}
