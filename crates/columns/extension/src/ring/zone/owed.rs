//! Faults of what was posted, and where they are raised (R2): before anything that depends on it goes out, and outside a subtransaction when it
//! was posted there, because an exception block catches those of its own statements and no others.
//!
//! Must not: raise where a subtransaction begins or is rolled back.

use std::cell::Cell;

use pgrx::pg_sys;
use strongroom_columns_ring::{Broken, Descriptor, Op};

use super::{LINK, at_end, with};
use crate::fault;

thread_local! {
    /// A fault of what was posted outside the subtransaction under way, and the level of where that was: it is raised there.
    static OWED: Cell<Option<(i32, Broken)>> = const { Cell::new(None) };
}

/// Asks for the first fault of what was posted, before anything that depends on it goes out (R2).
pub(crate) fn settle() {
    pay();
    if is_pending() {
        with(|link| link.call(Descriptor::of(Op::Sync)).map(drop));
    }
}

/// Whether something was posted whose fault nobody has asked for.
fn is_pending() -> bool {
    LINK.with(|cell| {
        let slot = cell.try_borrow();
        slot.is_ok_and(|slot| slot.as_ref().is_some_and(|link| link.posted))
    })
}

/// Asks for the first fault of what was posted, where none may be raised. `None` when there is none.
fn ask_quietly() -> Option<Broken> {
    let mut found = None;
    if is_pending() {
        at_end(|link| {
            let answer = link.call(Descriptor::of(Op::Sync)).map(drop);
            found = answer.err();
            answer
        });
    }
    found
}

/// A subtransaction begins, one inside `level`: a fault of what was posted before is not one of its own, which an exception block would catch. It is
/// raised when the subtransaction is over: here nothing may be. So is it when the zone does not say in time whether there is one.
pub(crate) fn part_begins(level: i32) {
    if let Some(broken) = ask_quietly() {
        let owed = OWED.get().unwrap_or((level, broken));
        OWED.set(Some(owed));
    }
}

/// A subtransaction of this level was rolled back, and what it has posted is forgotten with it.
pub(crate) fn part_failed(level: i32) {
    let _forgotten = ask_quietly();
    if OWED.get().is_some_and(|(owed, _)| owed >= level) {
        OWED.set(None);
    }
}

/// The transaction is over: what was owed is nobody's any more.
pub(crate) fn forget_owed() {
    OWED.set(None);
}

/// Raises the fault that is owed, once the subtransactions are over that began after it.
pub(super) fn pay() {
    let Some((level, broken)) = OWED.get() else {
        return;
    };
    // SAFETY: reads the level of the transaction under way.
    if unsafe { pg_sys::GetCurrentTransactionNestLevel() } <= level {
        OWED.set(None);
        fault::broken(broken);
    }
}
