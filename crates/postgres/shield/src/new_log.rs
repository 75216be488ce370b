//! Whether this process has written to a new log file (`xlogtemp.<pid>`) since it last converted
//! one.
//!
//! Must not: lock or allocate; it is called for each block of a new log file.

use std::sync::atomic::{AtomicBool, Ordering};

/// Set when anything but zeros was written to a new log file since the last conversion.
static WRITTEN: AtomicBool = AtomicBool::new(false);

/// Notes for this process that a unit that is not zero goes into a new log file.
#[inline]
pub(crate) fn note_written() {
    WRITTEN.store(true, Ordering::Relaxed);
}

/// Whether anything but zeros went into a new log file since [`clear_written`].
pub(crate) fn was_written() -> bool {
    WRITTEN.load(Ordering::Relaxed)
}

/// Forgets what was noted, after the file was converted.
pub(crate) fn clear_written() {
    WRITTEN.store(false, Ordering::Relaxed);
}
