//! Warnings about opened databases, kept for programs that show warnings elsewhere than in SQLite's
//! log. The command-line program is one: its user does not see that log.
//!
//! Must not: keep the same warning twice, or grow without limit in a program that never takes them.

use std::sync::{Mutex, MutexGuard, PoisonError};

use strongroom_format::code::{self, Code};

use crate::report;

/// Most warnings that are kept; later ones are only in SQLite's log.
const PENDING_MAX: usize = 64;

/// A warning's code and its detail.
type Warning = (&'static Code, String);

/// Locks and returns the list of pending warnings.
fn pending() -> MutexGuard<'static, Vec<Warning>> {
    static PENDING: Mutex<Vec<Warning>> = Mutex::new(Vec::new());
    // It is changed by single insertions and removals, so a panic leaves it consistent.
    PENDING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reports a warning in SQLite's log, and on standard error if that is on, and keeps it for
/// [`take_warnings`], unless the same one is kept already or 64 are.
pub(crate) fn warn(code: &'static Code, detail: &str) {
    report::warn(code, detail);
    let mut pending = pending();
    let is_known = |known: &Warning| known.0.number == code.number && known.1 == detail;
    if pending.len() < PENDING_MAX && !pending.iter().any(is_known) {
        pending.push((code, detail.to_owned()));
    }
}

/// Removes and returns the warnings about databases that this process has opened, each with its
/// detail, in the order in which they appeared: an older keyring (SR-2040), a passphrase that an
/// older build took for a raw key (SR-2038), and a data key that has sealed many pages (SR-6012,
/// SR-6013).
#[must_use]
pub fn take_warnings() -> Vec<Warning> {
    std::mem::take(&mut *pending())
}

/// Removes the pending warnings SR-6012 and SR-6013, about data keys that have sealed many pages,
/// because their databases have new data keys.
pub fn forget_seals_warnings() {
    let of_seals = [code::SEALS_MANY.number, code::SEALS_PASSED.number];
    pending().retain(|(code, _)| !of_seals.contains(&code.number));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test, because the warnings are the process's.
    #[test]
    fn each_warning_is_kept_once_and_not_without_limit() {
        for _ in 0..2 {
            warn(&code::SEALS_MANY, "/a.db");
            warn(&code::SEALS_PASSED, "/b.db");
            warn(&code::KEYRING_OLDER_USED, "/a.db");
            warn(&code::KEYRING_OLDER_USED, "/b.db");
        }
        let taken: Vec<_> = take_warnings().into_iter().map(|(_, path)| path).collect();
        assert_eq!(taken, ["/a.db", "/b.db", "/a.db", "/b.db"]);
        assert_eq!(take_warnings(), []);
        warn(&code::SEALS_MANY, "/a.db");
        warn(&code::KEYRING_OLDER_USED, "/a.db");
        forget_seals_warnings();
        assert_eq!(
            take_warnings(),
            [(&code::KEYRING_OLDER_USED, "/a.db".to_owned())]
        );
        for number in 0..1000 {
            warn(&code::KEYRING_OLDER_USED, &format!("/{number}"));
        }
        assert_eq!(take_warnings().len(), PENDING_MAX);
    }
}
