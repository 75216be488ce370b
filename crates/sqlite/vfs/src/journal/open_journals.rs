//! The journals that are open in this process, by path. What is buffered of one must be in the file
//! when another connection reads the file instead of asking the connection that writes it.
//!
//! SQLite does so in one place: when the first of several databases is rolled back, it looks which
//! journals of the others exist and name the super-journal, and removes the super-journal if none
//! does (`pager_delsuper`). A journal that was still in the buffer would then have lost its
//! super-journal, and would not be played back.
//!
//! Must not: keep a journal alive.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::core::{JournalCore, lock};
use crate::sqlite_code::SqliteResult;

type OpenJournals = Vec<(String, Weak<Mutex<JournalCore>>)>;
static OPEN: Mutex<OpenJournals> = Mutex::new(Vec::new());

/// Locks the list of open journals, calls `with` on it, and returns its result.
fn live<T>(with: impl FnOnce(&mut OpenJournals) -> T) -> T {
    // A panic while the list was locked leaves it whole: it is changed by single calls.
    with(&mut OPEN.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Adds a journal to the list, without keeping it alive, and removes those that no longer live.
pub(super) fn remember(path: String, core: &Arc<Mutex<JournalCore>>) {
    live(|list| {
        list.retain(|(_, core)| core.strong_count() > 0);
        list.push((path, Arc::downgrade(core)));
    });
}

/// Writes what is buffered of the open journals at `path` to the file (J9). Does nothing if this
/// process has none open there. Does not sync.
///
/// # Errors
/// The error of the first journal that cannot be written; later ones are not tried. The caller must
/// not take the journal for absent then.
pub(crate) fn flush_journal_at(path: &str) -> SqliteResult<()> {
    let cores: Vec<Arc<Mutex<JournalCore>>> = live(|list| {
        let here = list.iter().filter(|(known, _)| known == path);
        here.filter_map(|(_, core)| core.upgrade()).collect()
    });
    cores.iter().try_for_each(|core| lock(core).flush())
}
