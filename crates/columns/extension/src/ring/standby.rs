//! A standby's statements wait until the zone knows every value that they can see.
//!
//! The background worker reads the log to the zone up to where the standby has replayed it. A row
//! is visible once the record of its commit is replayed, and the redo record of its values stands
//! before that one (L1). So a statement that waits until the worker has read up to the position
//! that was replayed when its snapshot was taken finds every value. Values that the primary frees
//! are freed by a record behind those that remove their rows, and the standby replays those only
//! when no snapshot sees the rows. Must not: wait on a primary.

use std::time::{Duration, Instant};

use pg_sys::{CopyStmt, Oid, QueryDesc};
use pgrx::pg_sys;

use crate::ring::{shared_memory, zone};
use crate::storage::access_method;
use crate::{interrupts, settings};

/// How long a statement waits at most; then it runs, and the zone says what is missing.
const LIMIT: Duration = Duration::from_secs(10);
/// How often it looks, in milliseconds.
const PAUSE_MILLISECONDS: i32 = 5;

/// Whether the server is in recovery: a standby, or not yet started completely.
pub(crate) fn in_recovery() -> bool {
    // SAFETY: asks the server.
    unsafe { pg_sys::RecoveryInProgress() }
}

/// On a standby, waits until the zone has every value that the query can see, if it reads a table
/// with confidential columns. To be called when it has its snapshot.
///
/// # Safety
///
/// A query of PostgreSQL's that has been planned.
pub(crate) unsafe fn wait_for_values_of(query: *const QueryDesc) {
    // SAFETY: the caller's promise.
    if in_recovery() && unsafe { reads_confidential((*query).plannedstmt) } {
        wait_for_values();
    }
}

/// On a standby, waits until the zone has every value that can be seen now, if a COPY reads a table
/// with confidential columns itself. One of a query is a query's matter.
///
/// # Safety
///
/// A parse tree of PostgreSQL's.
pub(crate) unsafe fn wait_for_values_of_copy(command: *const CopyStmt) {
    // SAFETY: the caller's promise; a table that is not there is reported by PostgreSQL.
    let table = || unsafe {
        pg_sys::RangeVarGetRelidExtended(
            (*command).relation,
            pg_sys::NoLock.cast_signed(),
            pg_sys::RVROption::RVR_MISSING_OK,
            None,
            std::ptr::null_mut(),
        )
    };
    // SAFETY: as above.
    let of_table = unsafe { !(*command).relation.is_null() };
    let ours = access_method::oid;
    if in_recovery()
        && of_table
        && access_method::of_relation(table()) == ours()
        && ours() != Oid::INVALID
    {
        wait_for_values();
    }
}

/// Waits until the zone of this standby has every value that can be seen now. Handles interrupts.
fn wait_for_values() {
    if settings::zone_socket().is_none() {
        return;
    }
    // SAFETY: asks the server; the timeline is not wanted.
    let visible = unsafe { pg_sys::GetXLogReplayRecPtr(std::ptr::null_mut()) };
    let begun = Instant::now();
    while shared_memory::followed_to() < visible && begun.elapsed() < LIMIT {
        if !zone::is_reachable() {
            return;
        }
        shared_memory::wake_follower();
        interrupts::pause(PAUSE_MILLISECONDS);
    }
}

/// Whether a plan reads a table of the access method.
///
/// # Safety
///
/// A plan of PostgreSQL's.
unsafe fn reads_confidential(plan: *const pg_sys::PlannedStmt) -> bool {
    let ours = access_method::oid();
    // SAFETY: the caller's promise: a list of OIDs, or none.
    let relations = unsafe { (*plan).relationOids };
    if ours == Oid::INVALID || relations.is_null() {
        return false;
    }
    // SAFETY: a list of OIDs has as many elements as it says.
    let oids = unsafe {
        let count = usize::try_from((*relations).length).unwrap_or(0);
        std::slice::from_raw_parts((*relations).elements, count)
    };
    // SAFETY: the elements of a list of OIDs.
    oids.iter()
        .any(|oid| access_method::of_relation(unsafe { oid.oid_value }) == ours)
}
