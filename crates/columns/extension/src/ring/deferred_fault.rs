//! The fault of a posted operation that could not be raised where it was found (R2).
//!
//! A subtransaction that begins asks for faults of what was posted before it. Nothing may be raised
//! there, and an exception block must not catch such a fault, so it is kept and raised once the
//! subtransaction is over. Must not: ask the zone.

use std::cell::Cell;

use pgrx::pg_sys;
use strongroom_columns_ring::Broken;

use crate::fault;

#[derive(Clone, Copy)]
struct Deferred {
    /// The transaction level in which the operation was posted: the fault is raised there.
    level: i32,
    broken: Broken,
}

thread_local! {
    static DEFERRED: Cell<Option<Deferred>> = const { Cell::new(None) };
}

/// Keeps the fault of an operation that was posted in transaction level `level`, until
/// [`raise_due`] raises it, once the transaction is back at that level. If a fault is kept already,
/// that one stays and this one is dropped. Raises nothing itself.
pub(super) fn defer(level: i32, broken: Broken) {
    let first = DEFERRED.get().unwrap_or(Deferred { level, broken });
    DEFERRED.set(Some(first));
}

/// Forgets the kept fault if it is of this transaction level or a deeper one.
pub(super) fn forget_from(level: i32) {
    if DEFERRED
        .get()
        .is_some_and(|deferred| deferred.level >= level)
    {
        DEFERRED.set(None);
    }
}

/// Forgets the kept fault: the transaction is over.
pub(crate) fn forget() {
    DEFERRED.set(None);
}

/// Raises the kept fault as an ERROR, and forgets it, if the subtransactions that began after it
/// are over. Nothing otherwise.
pub(super) fn raise_due() {
    let Some(Deferred { level, broken }) = DEFERRED.get() else {
        return;
    };
    // SAFETY: reads the level of the current transaction.
    if unsafe { pg_sys::GetCurrentTransactionNestLevel() } <= level {
        DEFERRED.set(None);
        fault::raise_broken(broken);
    }
}
