//! Starts writeback of a file while it is being written, so that the disk works in parallel and the
//! final sync has little left to write.
//!
//! Must not: change data, or be relied on for durability.

use std::fs::File;
use std::num::NonZeroU64;

use rustix::fs::{Advice, fadvise};

/// The number of bytes after which writeback begins. A smaller one would cause many small writes, a
/// larger one would leave the disk idle at first.
const WINDOW: u64 = 8 << 20;

/// How far a file that is written from its start has come.
#[derive(Debug, Default)]
pub(crate) struct Writeback {
    written: u64,
    begun: u64,
}

impl Writeback {
    /// Counts `length` more bytes as written to `file`. Once 8 MiB are waiting, it tells the kernel
    /// to begin to write them to disk; an error of that is ignored.
    pub(crate) fn wrote(&mut self, file: &File, length: usize) {
        self.written = self.written.saturating_add(length as u64);
        let waiting = self.written.saturating_sub(self.begun);
        let Some(window) = NonZeroU64::new(waiting).filter(|_| waiting >= WINDOW) else {
            return;
        };
        // With this advice, Linux begins to write dirty pages, and keeps them until they are
        // written (posix_fadvise(2), mm/fadvise.c). An error does no harm: the advice is given
        // again later.
        if fadvise(file, self.begun, Some(window), Advice::DontNeed).is_ok() {
            self.begun = self.written;
        }
    }
}
