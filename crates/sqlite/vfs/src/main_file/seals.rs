//! The count of a database's seals, as its pages are written. docs/internals/sqlite-vfs.md,
//! "Seals".
//!
//! Whoever writes a page holds a lock under which nobody else writes an anchor: SQLite's exclusive
//! lock in rollback mode, and in write-ahead mode the checkpointer's locks (B4).
//!
//! Must not: do anything for a page whose nonce stands for that page alone.

use strongroom_format::header::{Cipher, SEALS_STEP};

use super::MainFile;
use crate::seals;
use crate::sqlite_code::SqliteResult;

impl MainFile {
    /// Counts the page that is about to be sealed under `nonce`, and those that it stands for (B1).
    pub(super) fn count_seal(&mut self, nonce: &[u8; 12]) -> SqliteResult<()> {
        if !seals::stands_for_many(nonce) {
            return Ok(());
        }
        self.count_many_seals()
    }

    #[cold]
    fn count_many_seals(&mut self) -> SqliteResult<()> {
        let limited = self.require_header()?.object.header().cipher == Cipher::Aes256Gcm;
        let Some(sealed) = self.sealed.as_ref().filter(|_| limited) else {
            return Ok(());
        };
        // Whoever asked for no syncs gets none.
        let durable = !self.shared.undo_journal().unsynced;
        let written = sealed.add_seals(self.lower, SEALS_STEP, durable)?;
        if let (Some(anchor), Some(tally)) = (written, &mut self.tally) {
            tally.set_anchor(anchor);
        }
        Ok(())
    }
}
