//! Creates the header of a new database.
//!
//! Must not: write a page.

use strongroom_format::code;
use strongroom_format::freshness::FreshState;
use strongroom_format::header::header_layout;
use strongroom_format::layout::put;

use super::MainFile;
use crate::header_creation;
use crate::report::{report, report_error};
use crate::sealed::SealedDatabase;
use crate::sqlite_code::SqliteResult;

impl MainFile {
    /// Writes the header of a new database, with both anchors, and syncs it, or opens the one that
    /// another connection wrote first (M3). Does nothing if the header is there. The caller holds
    /// SQLite's reserved lock or a higher one, which only one connection can. SR-2001 without a
    /// key; otherwise fails as [`Self::join_created`] and the file below do.
    pub(super) fn ensure_header(&mut self) -> SqliteResult<()> {
        if self.has_header {
            return Ok(());
        }
        if header_creation::has_header(self.lower)? {
            return self.join_created();
        }
        let opened = self.require_header()?;
        let mut bytes = opened.object.initial_bytes();
        // Both anchors are written from the start: damage to one sector must not be damage to the
        // database.
        let state = FreshState::default();
        let state = opened.object.header().freshness.then_some(&state);
        let second = opened.object.seal_anchor(2, [0; 16], state, 0);
        let second = second.map_err(|error| report_error(&error))?;
        put(&mut bytes, header_layout::ANCHOR_B, &second.to_bytes())
            .ok_or_else(|| report(&code::BUG, "header layout"))?;
        header_creation::write_header(self.lower, &bytes)?;
        let opener = self
            .opener
            .clone()
            .ok_or_else(|| report(&code::BUG, "new database without a key"))?;
        self.sealed = Some(SealedDatabase::open(&self.path, self.lower, &opener)?);
        self.opened = self.sealed.as_ref().map(|sealed| sealed.opened_header());
        self.has_header = true;
        self.opener = None;
        Ok(())
    }

    /// Opens the header that another connection wrote since this one opened the empty file. SR-2002
    /// if that one used another key, SR-6010 if it has another page size and SQLite already knows
    /// this one.
    pub(super) fn join_created(&mut self) -> SqliteResult<()> {
        let opener = self
            .opener
            .clone()
            .ok_or_else(|| report(&code::NO_KEY, self.path.as_str()))?;
        let mine = self.page_size;
        self.open_header(&opener)?;
        // Where SQLite chose the layout itself, it reads it again from page 1.
        if self.page_size != mine && !self.page_size_is_free {
            return Err(report(
                &code::BUSY,
                "another connection created it with another page size",
            ));
        }
        Ok(())
    }
}
