//! Reads a sealed database: whole pages, parts of pages, and the sixteen bytes of page 1 that
//! SQLite reads in each transaction.
//!
//! Must not: return a byte of a page that did not authenticate (M2).

use strongroom_format::code;
use strongroom_format::sqlite::page_offset;

use super::MainFile;
use crate::ffi::SQLITE_IOERR_SHORT_READ;
use crate::page_tail::{TAIL, parse_tail};
use crate::remote::{fetch_again, is_remote};
use crate::report::report;
use crate::seal::PageError;
use crate::sqlite_code::{SqliteCode, SqliteResult};

impl MainFile {
    /// Reads a page from the mapping of the file below, the pages read ahead, or the file, in this
    /// order, and opens it. SR-4001 if it is not authentic, SR-4002 if the file ends within it,
    /// SR-4008 if its epoch is unknown, SR-2001 without a key, `SQLITE_IOERR_SHORT_READ` past the
    /// end of the file.
    pub(super) fn read_page(&mut self, number: u64, page: &mut [u8]) -> SqliteResult<()> {
        self.require_header()?;
        let at = page_offset(number, self.page_size);
        if !self.writing && !self.keeps_freshness() && self.lower.copy_mapped(page, at)? {
            return self.open_page(number, page);
        }
        let (ahead, opened) = (&mut self.ahead, &self.opened);
        if let (Some(sealed), Some(opened)) = (ahead.take(self.lower, number, page.len()), opened) {
            if opened.current.open_to(number, sealed, page) {
                return Ok(());
            }
            page.copy_from_slice(sealed);
            return self.open_page(number, page);
        }
        if !self.lower.read_whole(page, at)? {
            return self.short_page(number, at, page);
        }
        self.open_page(number, page)
    }

    /// Returns the error for a page that is not completely in the file: SR-4002, which is reported,
    /// if the file ends within it, and `SQLITE_IOERR_SHORT_READ` if before it. `page` becomes zero.
    fn short_page(&self, number: u64, at: u64, page: &mut [u8]) -> SqliteResult<()> {
        page.fill(0);
        if self.lower.size()? > at {
            return Err(report(
                &code::PAGE_TRUNCATED,
                format!("{}: page {number}", self.path),
            ));
        }
        Err(SqliteCode(SQLITE_IOERR_SHORT_READ))
    }

    /// Opens a page in place, under the current key or that of another epoch. If a page of a remote
    /// file is forged, it is fetched once more. SR-4001 if it is not authentic, SR-4008 if its
    /// epoch is unknown.
    fn open_page(&mut self, number: u64, page: &mut [u8]) -> SqliteResult<()> {
        let opened = self.require_header()?;
        match opened.current.open(number, page) {
            Ok(()) => return Ok(()),
            Err(why) if self.fetch_again(number, page, &why)? => {
                return self.open_other_epoch(number, page);
            }
            Err(PageError::Forged) => return Err(self.page_error(number)),
            Err(PageError::Epoch(_)) => {}
        }
        self.open_other_epoch(number, page)
    }

    /// Fetches a page that was read, and that is not or may not be authentic, again into `page`,
    /// past every cache, if the file is remote and no known key opens the page (D4). Returns false
    /// when nothing was done, and `page` is as it was read. SR-2241 to SR-2247 if the server does
    /// not deliver it.
    fn fetch_again(&self, number: u64, page: &mut [u8], why: &PageError) -> SqliteResult<bool> {
        if !is_remote(self.lower) {
            return Ok(false);
        }
        if matches!(why, PageError::Epoch(_)) {
            let tail = page
                .get(page.len().saturating_sub(TAIL)..)
                .and_then(parse_tail);
            let opened = self.opened_header();
            let mut copy = page.to_vec();
            let opens = tail
                .and_then(|(_, _, epoch)| opened?.cipher(epoch))
                .is_some_and(|cipher| cipher.open(number, &mut copy).is_ok());
            copy.fill(0);
            if opens {
                return Ok(false);
            }
        }
        fetch_again(self.lower, page_offset(number, self.page_size), page)?;
        Ok(true)
    }

    /// Opens a page in place that was sealed under another epoch than this handle's current one:
    /// the previous one, or one that began since the header was read, which is then read again.
    /// SR-4008 if its epoch is unknown, SR-4001 if it is not authentic.
    fn open_other_epoch(&mut self, number: u64, page: &mut [u8]) -> SqliteResult<()> {
        let tail = page
            .get(page.len().saturating_sub(TAIL)..)
            .and_then(parse_tail);
        let Some((_, _, epoch)) = tail else {
            return Err(self.page_error(number));
        };
        let known = self
            .opened
            .as_ref()
            .is_some_and(|opened| opened.cipher(epoch).is_some());
        if !known && let Some(sealed) = &self.sealed {
            self.opened = Some(sealed.refresh(self.lower)?);
        }
        let opened = self.require_header()?;
        let Some(cipher) = opened.cipher(epoch) else {
            page.fill(0);
            // A page of zeros or noise names an epoch that never existed, and is reported as not
            // authentic.
            return Err(
                if epoch == 0 || epoch > opened.current.epoch().saturating_add(1) {
                    self.page_error(number)
                } else {
                    report(
                        &code::UNKNOWN_EPOCH,
                        format!("{}: page {number}, epoch {epoch}", self.path),
                    )
                },
            );
        };
        cipher
            .open(number, page)
            .map_err(|_| self.page_error(number))
    }

    /// Reports SR-4001 for page `number`, with its offset, and returns SQLite's code for it.
    fn page_error(&self, number: u64) -> SqliteCode {
        let at = page_offset(number, self.page_size);
        report(
            &code::PAGE,
            format!("{}: page {number}, offset {at}", self.path),
        )
    }

    /// Reads bytes 24..40 of page 1, which SQLite reads at the start of each read transaction in
    /// rollback mode. They come from memory while the page's tail in the file is unchanged;
    /// otherwise the page is read and opened. `out` is zero after an error.
    pub(super) fn read_change_counter(&mut self, out: &mut [u8]) -> SqliteResult<()> {
        let mut tail = [0; TAIL];
        let at = page_offset(1, self.page_size)
            .saturating_add(u64::from(self.page_size))
            .saturating_sub(TAIL as u64);
        let whole = self.lower.read_whole(&mut tail, at)?;
        if whole
            && let Some((known, bytes)) = &self.change_counter
            && *known == tail
        {
            out.copy_from_slice(bytes);
            return Ok(());
        }
        self.change_counter = None;
        let mut page = std::mem::take(&mut self.scratch);
        page.resize(self.page_size as usize, 0);
        let result = self.read_page(1, &mut page);
        if result.is_ok() {
            let mut bytes = [0; 16];
            bytes.copy_from_slice(&page[24..40]);
            out.copy_from_slice(&bytes);
            self.change_counter = Some((tail, bytes));
        } else {
            out.fill(0);
        }
        page.fill(0);
        self.scratch = page;
        result
    }

    /// Reads bytes that are not a whole page, also across pages, as some tools do. Opens each page
    /// that they are in. After an error the rest of `out` is zero.
    pub(super) fn read_part(&mut self, out: &mut [u8], at: u64) -> SqliteResult<()> {
        let size = u64::from(self.page_size);
        let mut page = vec![0; self.page_size as usize];
        let mut done = 0;
        while done < out.len() {
            let position = at.saturating_add(done as u64);
            let within = usize::try_from(position % size).unwrap_or(0);
            let take = (page.len() - within).min(out.len() - done);
            if let Err(rc) = self.read_page(position / size + 1, &mut page) {
                out[done..].fill(0);
                return Err(rc);
            }
            out[done..done + take].copy_from_slice(&page[within..within + take]);
            done += take;
        }
        page.fill(0);
        Ok(())
    }
}
