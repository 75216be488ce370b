//! SQLite's five lock levels on one simulated file, between the handles that have it open.
//!
//! Must not: wait.

use rusqlite::ffi::{
    SQLITE_LOCK_EXCLUSIVE, SQLITE_LOCK_NONE, SQLITE_LOCK_PENDING, SQLITE_LOCK_RESERVED,
    SQLITE_LOCK_SHARED,
};
use std::collections::BTreeMap;
use std::ffi::c_int;

/// Who holds what.
#[derive(Debug, Default)]
pub(super) struct Locks {
    held: BTreeMap<u64, c_int>,
}

impl Locks {
    fn others(&self, handle: u64) -> c_int {
        self.held
            .iter()
            .filter(|(holder, _)| **holder != handle)
            .map(|(_, level)| *level)
            .max()
            .unwrap_or(SQLITE_LOCK_NONE)
    }

    /// The level of one handle.
    pub(super) fn level(&self, handle: u64) -> c_int {
        self.held.get(&handle).copied().unwrap_or(SQLITE_LOCK_NONE)
    }

    /// Raises the level of a handle. False: somebody else is in the way.
    pub(super) fn raise(&mut self, handle: u64, level: c_int) -> bool {
        if self.level(handle) >= level {
            return true;
        }
        let others = self.others(handle);
        let granted = match level {
            SQLITE_LOCK_SHARED => others < SQLITE_LOCK_PENDING,
            SQLITE_LOCK_RESERVED => others < SQLITE_LOCK_RESERVED,
            _ if others >= SQLITE_LOCK_RESERVED => false,
            SQLITE_LOCK_EXCLUSIVE if others == SQLITE_LOCK_SHARED => {
                // Readers may end, none may begin.
                self.held.insert(handle, SQLITE_LOCK_PENDING);
                false
            }
            _ => true,
        };
        if granted {
            self.held.insert(handle, level);
        }
        granted
    }

    /// Lowers the level of a handle.
    pub(super) fn lower(&mut self, handle: u64, level: c_int) {
        if level == SQLITE_LOCK_NONE {
            self.held.remove(&handle);
        } else if self.level(handle) > level {
            self.held.insert(handle, level);
        }
    }

    /// Whether anybody means to write.
    pub(super) fn reserved(&self) -> bool {
        self.held
            .values()
            .any(|level| *level >= SQLITE_LOCK_RESERVED)
    }
}
