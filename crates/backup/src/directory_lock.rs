//! The lock of a directory that a restore fills or replaces.

use std::fs::File;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

/// How often a lock that another holder has is asked for, and the time between.
const LOCK_TRIES: u32 = 10;
const LOCK_WAIT: Duration = Duration::from_millis(50);

/// Takes the exclusive lock of a directory that is held open, and tries for half a second. False
/// when somebody else still has it then. The lock ends when the last descriptor of this opening is
/// closed. On a file system without locks it is taken to be free.
pub(crate) fn lock_directory(held: &File) -> bool {
    for _ in 0..LOCK_TRIES {
        // On a file system without locks nobody else can hold one either.
        let got = flock(held, FlockOperation::NonBlockingLockExclusive);
        if got != Err(rustix::io::Errno::WOULDBLOCK) {
            return true;
        }
        // A program that another thread is starting may hold a copy of the descriptor until it
        // runs.
        std::thread::sleep(LOCK_WAIT);
    }
    false
}
