//! The lock of a directory that a restore fills or replaces.

use std::fs::File;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

/// How often, and after what time each, a lock is asked for that another holds.
const LOCK_TRIES: u32 = 10;
const LOCK_WAIT: Duration = Duration::from_millis(50);

/// Takes the lock of a directory that is held open; whether nobody else has it. It ends with the
/// process.
pub(crate) fn lock_directory(held: &File) -> bool {
    for _ in 0..LOCK_TRIES {
        // A file system without locks has no other holder either.
        let got = flock(held, FlockOperation::NonBlockingLockExclusive);
        if got != Err(rustix::io::Errno::WOULDBLOCK) {
            return true;
        }
        // A program that another thread begins may hold it until it runs.
        std::thread::sleep(LOCK_WAIT);
    }
    false
}
