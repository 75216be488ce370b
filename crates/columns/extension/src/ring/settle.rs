//! Asks the zone for the faults of posted operations, and says where they are raised (R2).
//!
//! A fault is raised before anything that depends on the operation goes out. The fault of an
//! operation that was posted before a subtransaction began is raised outside it
//! ([`deferred_fault`]), because an exception block catches the faults of its own statements and no
//! others.
//!
//! Must not: raise where a subtransaction begins or is rolled back.

use strongroom_columns_ring::{Broken, Descriptor, Op};

use crate::ring::{deferred_fault, zone};

/// Raises the first fault of the operations posted so far as an ERROR: a deferred one that is due,
/// or else the one that the zone reports. Waits for the zone only if something was posted since the
/// last answer.
pub(crate) fn raise_faults() {
    deferred_fault::raise_due();
    if zone::has_unconfirmed() {
        zone::with(|connection| connection.call(Descriptor::of(Op::Sync)).map(drop));
    }
}

/// Returns the first fault of the operations posted so far, without raising it; waits for the zone
/// for a limited time. `None` if there is none.
fn take_fault() -> Option<Broken> {
    let mut found = None;
    if zone::has_unconfirmed() {
        zone::at_transaction_end(|connection| {
            let answer = connection.call(Descriptor::of(Op::Sync)).map(drop);
            found = answer.err();
            answer
        });
    }
    found
}

/// Called when a subtransaction begins inside transaction level `level`: keeps the fault of what
/// was posted before it, to be raised later. A zone that does not answer in time counts as a fault.
pub(crate) fn before_subtransaction(level: i32) {
    if let Some(broken) = take_fault() {
        deferred_fault::defer(level, broken);
    }
}

/// Called when the subtransaction of this level was rolled back: forgets the faults of what it has
/// posted.
pub(crate) fn after_subtransaction_rollback(level: i32) {
    let _forgotten = take_fault();
    deferred_fault::forget_from(level);
}
