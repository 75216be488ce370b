//! What a sealed database shares with its journal, and what both answer where SQLite asks before it can be told.
//!
//! Must not: do I/O of its own.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, Weak};

use crate::ffi::{
    IOCAP_ATOMIC_ANY, SQLITE_FCNTL_CHUNK_SIZE, SQLITE_FCNTL_SIZE_HINT, SQLITE_IOCAP_BATCH_ATOMIC,
    SQLITE_IOCAP_POWERSAFE_OVERWRITE, SQLITE_IOCAP_SAFE_APPEND, SQLITE_IOCAP_SUBPAGE_READ,
};
use crate::journal::JournalCore;
use crate::lower::{Lower, RcResult};

/// The nonces that the running transaction gives page 1: eight bytes that its journal names, and a count.
#[derive(Clone, Copy)]
pub(crate) struct Page1Nonces {
    /// First 8 bytes, random per journal.
    pub prefix: [u8; 8],
    /// Next value of the last 4 bytes; begins at random, so that the whole nonce is. The top bit is recovery's.
    pub count: u32,
}

/// What a database and its journal share.
#[derive(Default)]
pub(crate) struct Link {
    /// Nonces for page 1 while a journal is in force.
    pub page1: Mutex<Option<Page1Nonces>>,
    /// The open journal, to be flushed before a page is written (M4).
    pub journal: Mutex<Weak<Mutex<JournalCore>>>,
    /// A journal that was found is being played back (M9).
    played_back: AtomicBool,
}

impl Link {
    /// A journal that was found is about to be played back: somebody else's transaction was interrupted.
    pub(crate) fn played_back(&self) {
        self.played_back.store(true, Ordering::Relaxed);
    }

    /// Whether that is so, and forgets it.
    pub(crate) fn take_played_back(&self) -> bool {
        self.played_back.swap(false, Ordering::Relaxed)
    }

    /// The next nonce of page 1, while a journal is in force.
    pub(crate) fn next_page1_nonce(&self) -> Option<[u8; 12]> {
        let mut page1 = self.page1.lock().unwrap_or_else(PoisonError::into_inner);
        let nonces = page1.as_mut()?;
        let mut nonce = [0; 12];
        nonce[..8].copy_from_slice(&nonces.prefix);
        nonce[8..].copy_from_slice(&nonces.count.to_le_bytes());
        nonces.count = nonces.count.wrapping_add(1);
        Some(nonce)
    }
}

/// A file control of a sealed file. Sizes that SQLite announces are not the file's, and extending the file with zeros
/// would make units that were never sealed.
pub(crate) fn sealed_control(lower: Lower, op: c_int, argument: *mut c_void) -> RcResult<()> {
    match op {
        SQLITE_FCNTL_SIZE_HINT | SQLITE_FCNTL_CHUNK_SIZE => Ok(()),
        _ => lower.file_control(op, argument),
    }
}

/// Device characteristics for sealed files: a sealed unit is not a device's atomic unit, an append is not safe before
/// its size is, and part of a page cannot be authenticated; a seal unit does survive a power loss in its neighbour.
pub(crate) fn sealed_characteristics(lower: c_int) -> c_int {
    let cleared = IOCAP_ATOMIC_ANY
        | SQLITE_IOCAP_SAFE_APPEND
        | SQLITE_IOCAP_BATCH_ATOMIC
        | SQLITE_IOCAP_SUBPAGE_READ;
    (lower & !cleared) | SQLITE_IOCAP_POWERSAFE_OVERWRITE
}

/// The first 100 bytes of a database as SQLite reads them before a key can be known: page size and reserved bytes.
pub(crate) fn synthetic_header(page_size: u32) -> [u8; 100] {
    let mut out = [0; 100];
    out[..16].copy_from_slice(b"SQLite format 3\0");
    // SQLite's own format: 65536 is written as 1, the other sizes as a big-endian number.
    let size = u16::try_from(page_size).unwrap_or(1);
    out[16] = u8::try_from(size >> 8).unwrap_or(0);
    out[17] = u8::try_from(size & 0xff).unwrap_or(0);
    out[18..24].copy_from_slice(&[1, 1, 32, 64, 32, 32]);
    out
}
