//! Reading ahead: pages that a scan will ask for next, read in one piece.
//!
//! Invariants:
//! G1. What is kept is ciphertext as it lay in the file. A page is opened when SQLite asks for it, never before.
//! G2. Nothing is kept longer than nobody else could have written: whoever takes or gives back a lock, truncates or
//!     syncs, forgets all of it, and whoever writes a page forgets that page.
//! G3. At most 256 KiB and 64 pages, and no memory at all before a scan is seen.
//! G4. An error while reading ahead is no error: the page that is wanted is then read by itself.
//!
//! Why G2 suffices: in rollback mode nobody writes to the file while this connection holds a shared lock. In WAL mode a
//! checkpoint writes only frames that every reader's snapshot has, so a page without a frame in this snapshot is not
//! written while it lasts; a page with one may be, but is read from the log. A snapshot begins and ends with a lock in
//! shared memory, unless the database is locked for one connection alone.
//!
//! Must not: open or judge a page; read beyond the file's end.

use strongroom_format::sqlite::page_offset;

use crate::lower::LowerFile;

/// Longest piece that is read at once, in bytes.
const WINDOW_MAX: usize = 256 << 10;
/// First piece.
const WINDOW_MIN: usize = 16 << 10;
/// Most pages in a piece: one bit each.
const PAGES_MAX: usize = 64;
/// As many pages in ascending order are a scan.
const RUN: u32 = 4;
/// Ascending means: not further than this from the page before. Interior pages lie between a table's leaves.
const STEP: u64 = 4;

/// What was read ahead of a scan.
#[derive(Default)]
pub(crate) struct ReadAhead {
    bytes: Vec<u8>,
    /// The first page of the piece, and how many there are.
    first: u64,
    count: usize,
    /// Which of them may be used: a bit for each.
    kept: u64,
    /// How many of them were asked for.
    used: usize,
    /// The page that was asked for last, and how many before it were in ascending order.
    last: u64,
    run: u32,
    /// Length of the next piece in bytes.
    window: usize,
    /// The file below reads ahead itself.
    is_off: bool,
}

impl ReadAhead {
    /// For a file that reads ahead itself, as one from a server does.
    pub(crate) fn disabled() -> Self {
        Self {
            is_off: true,
            ..Self::default()
        }
    }

    /// The page of `len` bytes as it lies in the file, if it was read ahead or is now. `None`: it is to be read by itself.
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
                // G4; and it is not tried again with the next page.
                self.run = 0;
                return None;
            }
        }
        self.page(number, len)
    }

    /// Somebody else may write from now on, or may have written (G2).
    pub(crate) fn forget(&mut self) {
        self.kept = 0;
        self.run = 0;
    }

    /// This page was written (G2).
    pub(crate) fn forget_page(&mut self, number: u64) {
        self.kept &= !self.bit(number);
    }

    /// The page's bit; none when it is not in the piece.
    fn bit(&self, number: u64) -> u64 {
        let place = number.wrapping_sub(self.first);
        match place < self.count as u64 {
            true => 1 << place,
            false => 0,
        }
    }

    fn page(&mut self, number: u64, len: usize) -> Option<&[u8]> {
        let bit = self.kept & self.bit(number);
        if bit == 0 {
            return None;
        }
        self.used = self.used.saturating_add(1);
        let from = bit.trailing_zeros() as usize * len;
        self.bytes.get(from..from + len)
    }

    /// Longer pieces while they are used, shorter ones when half of the last was not.
    fn adapt_window(&mut self) {
        self.window = match self.used.saturating_mul(2) >= self.count {
            true => self.window.saturating_mul(2),
            false => self.window / 2,
        }
        .clamp(WINDOW_MIN, WINDOW_MAX);
    }

    /// Reads a piece that begins with the page.
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
