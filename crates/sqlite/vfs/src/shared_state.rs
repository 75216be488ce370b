//! The state that a sealed database shares with its journal and its write-ahead log.
//!
//! Must not: do I/O.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::lower::LowerFile;
use crate::page_tail::Tail;

/// The nonces that the running transaction gives to page 1: eight bytes that its journal names, and
/// a count.
#[derive(Clone, Copy)]
pub(crate) struct Page1Nonces {
    /// First 8 bytes of each nonce, random per journal.
    pub prefix: [u8; 8],
    /// Next value of the last 4 bytes. It begins at random, so that the whole nonce is random. The
    /// top bit is set during recovery only.
    pub count: u32,
}

/// The journal that can undo the running transaction, as far as freshness needs to know it.
#[derive(Clone, Copy, Default)]
pub(crate) struct UndoJournal {
    /// First 16 bytes of its salt; zero when no journal is on the disk.
    pub journal: [u8; 16],
    /// The journal was found in a file, and is being played back.
    pub playback: bool,
    /// The record that SQLite has read last: the page, and the tail that the page had.
    pub record: Option<(u64, Tail)>,
    /// The journal need not survive a power cut (`synchronous=OFF`).
    pub unsynced: bool,
}

/// The state that a database shares with its journal or log.
#[derive(Default)]
pub(crate) struct SharedState {
    /// Nonces for page 1 while a journal is in force.
    pub page1: Mutex<Option<Page1Nonces>>,
    /// A found journal is being played back (M9).
    played_back: AtomicBool,
    undo_journal: Mutex<UndoJournal>,
    /// Pages that have a record in the journal: bit `page % 64` of number `page / 64`.
    recorded: Mutex<Vec<u64>>,
    /// The open write-ahead log's file.
    log_file: Mutex<Option<LowerFile>>,
}

/// Locks a mutex, waiting if another thread has it. A panic of another thread does not poison it.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SharedState {
    /// Notes in memory that a found journal is about to be played back, because the transaction of
    /// another process was interrupted.
    pub(crate) fn mark_played_back(&self) {
        self.played_back.store(true, Ordering::Relaxed);
    }

    /// Returns whether a playback was noted since the last call, and forgets it.
    pub(crate) fn take_played_back(&self) -> bool {
        self.played_back.swap(false, Ordering::Relaxed)
    }

    /// Returns the next nonce for page 1, and counts it as used. `None` while no journal is in
    /// force.
    pub(crate) fn next_page1_nonce(&self) -> Option<[u8; 12]> {
        let mut page1 = self.page1.lock().unwrap_or_else(PoisonError::into_inner);
        let nonces = page1.as_mut()?;
        let mut nonce = [0; 12];
        nonce[..8].copy_from_slice(&nonces.prefix);
        nonce[8..].copy_from_slice(&nonces.count.to_le_bytes());
        nonces.count = nonces.count.wrapping_add(1);
        Some(nonce)
    }

    /// Returns what is noted of the journal that can undo the running transaction.
    pub(crate) fn undo_journal(&self) -> UndoJournal {
        *locked(&self.undo_journal)
    }

    /// Notes the first 16 bytes of the salt of the journal that a transaction has begun, or, with
    /// zero bytes, that there is none any more. Forgets the recorded pages and a playback.
    /// `unsynced`: the journal need not survive a power cut.
    pub(crate) fn set_undo_journal(&self, journal: [u8; 16], unsynced: bool) {
        locked(&self.recorded).clear();
        *locked(&self.undo_journal) = UndoJournal {
            journal,
            unsynced,
            ..UndoJournal::default()
        };
    }

    /// Notes that SQLite has written a record of `page`.
    pub(crate) fn add_recorded_page(&self, page: u64) {
        let mut recorded = locked(&self.recorded);
        let Ok(index) = usize::try_from(page / 64) else {
            return;
        };
        if recorded.len() <= index {
            recorded.resize(index + 1, 0);
        }
        recorded[index] |= 1 << (page % 64);
    }

    /// Whether the journal has a record of `page`.
    pub(crate) fn is_recorded(&self, page: u64) -> bool {
        let recorded = locked(&self.recorded);
        let bits = usize::try_from(page / 64)
            .ok()
            .and_then(|index| recorded.get(index));
        bits.is_some_and(|bits| bits >> (page % 64) & 1 == 1)
    }

    /// Notes that a found journal is played back from its beginning.
    pub(crate) fn begin_playback(&self, journal: [u8; 16]) {
        *locked(&self.undo_journal) = UndoJournal {
            journal,
            playback: true,
            ..UndoJournal::default()
        };
    }

    /// Notes the record that SQLite has read.
    pub(crate) fn set_last_record(&self, page: u64, tail: Tail) {
        locked(&self.undo_journal).record = Some((page, tail));
    }

    /// Notes that an anchor holds the digest of what was played back.
    pub(crate) fn end_playback(&self) {
        locked(&self.undo_journal).playback = false;
    }

    /// Returns the open write-ahead log's file; `None` if no log is open. While one is, only a
    /// checkpoint writes the database.
    pub(crate) fn log_file(&self) -> Option<LowerFile> {
        *locked(&self.log_file)
    }

    /// Notes that a write-ahead log was opened, or (`None`) is about to be closed.
    pub(crate) fn set_log_file(&self, log: Option<LowerFile>) {
        *locked(&self.log_file) = log;
    }
}
