//! Reads ahead of a scan: the pages that a scan will read next are read from the file in one piece.
//!
//! Invariants:
//! G1. The buffer holds ciphertext as it is in the file. A page is opened when SQLite reads it,
//!     never before.
//! G2. The buffer is used only while no other connection can have written. It is dropped when a
//!     lock is taken or released, and on truncate and sync; a page is dropped from it when it is
//!     written.
//! G3. It has at most 256 KiB and 64 pages, and no memory is allocated before a scan is seen.
//! G4. An error while reading ahead is ignored; the wanted page is then read by itself.
//!
//! Why G2 suffices: in rollback mode no connection writes to the file while this one holds a shared
//! lock. In WAL mode a checkpoint writes only frames that every reader's snapshot has. So a page
//! without a frame in this snapshot is not written while the snapshot lasts; a page with one may
//! be, but is read from the log. A snapshot begins and ends with a lock in shared memory, unless
//! the database is locked for one connection alone.
//!
//! Must not: open or judge a page, or read beyond the file's end.

use strongroom_format::sqlite::page_offset;

use crate::lower::LowerFile;

/// Longest piece that is read at once, in bytes.
const WINDOW_MAX: usize = 256 << 10;
/// Length of the first piece in bytes.
const WINDOW_MIN: usize = 16 << 10;
/// Most pages in a piece; each has one bit.
const PAGES_MAX: usize = 64;
/// This many pages in ascending order are a scan.
const RUN: u32 = 4;
/// Largest distance from one page of a scan to the next. Interior pages lie between a table's
/// leaves.
const STEP: u64 = 4;

/// Pages that were read ahead of a scan.
#[derive(Default)]
pub(crate) struct ReadAhead {
    bytes: Vec<u8>,
    /// The first page of the piece, and the number of its pages.
    first: u64,
    count: usize,
    /// The pages that may be used: one bit each.
    kept: u64,
    /// How many of them were read by SQLite.
    used: usize,
    /// The page that was read last, and how many before it were in ascending order.
    last: u64,
    run: u32,
    /// Length of the next piece in bytes.
    window: usize,
    /// The file below reads ahead itself.
    is_off: bool,
}

impl ReadAhead {
    /// Returns a value that never reads ahead, for a file that reads ahead itself, as a remote file
    /// does.
    pub(crate) fn disabled() -> Self {
        Self {
            is_off: true,
            ..Self::default()
        }
    }

    /// Returns page `number`, of `len` bytes, sealed as it is in the file, if it was read ahead. If
    /// it was not, and the last reads were a scan, first reads a piece that begins with it. `None`:
    /// the caller reads the page by itself. Errors of reading ahead are ignored (G4).
    pub(crate) fn take(&mut self, lower: LowerFile, number: u64, len: usize) -> Option<&[u8]> {
        let step = number.wrapping_sub(self.last);
        self.run = match (1..=STEP).contains(&step) {
            true => self.run.saturating_add(1),
            false => 0,
        };
        self.last = number;
        if self.kept & self.bit(number) == 0 {
            if self.is_off || self.run < RUN {
                return None;
            }
            self.adapt_window();
            if !self.fill(lower, number, len) {
                // G4. The next page does not try again.
                self.run = 0;
                return None;
            }
        }
        self.page(number, len)
    }

    /// Drops all pages, because another connection may write or may have written (G2). A scan is
    /// recognised anew.
    pub(crate) fn forget(&mut self) {
        self.kept = 0;
        self.run = 0;
    }

    /// Drops page `number`, because it is being written (G2).
    pub(crate) fn forget_page(&mut self, number: u64) {
        self.kept &= !self.bit(number);
    }

    /// Returns the bit that page `number` has in the field `kept`; 0 when the page is not in the
    /// piece.
    fn bit(&self, number: u64) -> u64 {
        let place = number.wrapping_sub(self.first);
        match place < self.count as u64 {
            true => 1 << place,
            false => 0,
        }
    }

    /// Returns a page that was read ahead, in its sealed form, and counts that it was of use.
    /// `None` when it is not there.
    fn page(&mut self, number: u64, len: usize) -> Option<&[u8]> {
        let bit = self.kept & self.bit(number);
        if bit == 0 {
            return None;
        }
        self.used = self.used.saturating_add(1);
        let from = bit.trailing_zeros() as usize * len;
        self.bytes.get(from..from + len)
    }

    /// Sets the length of the next piece: twice as long if at least half of the last one was used,
    /// else half as long, within 16 KiB and 256 KiB.
    fn adapt_window(&mut self) {
        self.window = match self.used.saturating_mul(2) >= self.count {
            true => self.window.saturating_mul(2),
            false => self.window / 2,
        }
        .clamp(WINDOW_MIN, WINDOW_MAX);
    }

    /// Reads a piece of the file that begins with page `number`, in place of the former one.
    /// Returns false, and keeps no page, if fewer than two pages are there or the read fails.
    fn fill(&mut self, lower: LowerFile, number: u64, page_size: usize) -> bool {
        self.kept = 0;
        let at = page_offset(number, u32::try_from(page_size).unwrap_or(0));
        let there = lower.size().unwrap_or(0).saturating_sub(at);
        let there = usize::try_from(there).unwrap_or(usize::MAX) / page_size;
        let count = (self.window / page_size).min(PAGES_MAX).min(there);
        if count < 2 {
            return false;
        }
        let len = count * page_size;
        if self.bytes.len() < len {
            self.bytes.resize(len, 0);
        }
        let piece = self.bytes.get_mut(..len);
        if !piece.is_some_and(|piece| lower.read_whole(piece, at).unwrap_or(false)) {
            return false;
        }
        self.first = number;
        self.count = count;
        self.kept = u64::MAX >> (PAGES_MAX - count);
        self.used = 0;
        true
    }
}
