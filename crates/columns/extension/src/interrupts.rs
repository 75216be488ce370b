//! Interrupts (cancellation, shutdown) while this backend works or waits.
//!
//! Invariant X5: every wait for the zone checks for interrupts, except at the end of a transaction,
//! where nothing may be raised: there a deadline ends the wait. Must not: call the zone.

use std::cell::Cell;
use std::ffi::c_long;
use std::time::{Duration, Instant};

use pgrx::pg_sys;
use strongroom_columns_ring::Interrupted;

/// How long the end of a transaction waits for the zone.
const END_LIMIT: Duration = Duration::from_secs(2);

thread_local! {
    /// While a transaction ends: until when this backend waits for the zone.
    static DEADLINE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Handles pending interrupts, as `CHECK_FOR_INTERRUPTS` does: raises an ERROR for a cancelled
/// statement, and ends the process at a shutdown.
pub(crate) fn check() {
    // SAFETY: reads a flag that a signal handler sets.
    if unsafe { (&raw const pg_sys::InterruptPending).read_volatile() } != 0 {
        // SAFETY: called where an ERROR may be raised.
        unsafe { pg_sys::ProcessInterrupts() };
    }
}

/// Decides, for the ring, whether a wait goes on. Handles interrupts, so it may unwind; the ring
/// stays usable.
///
/// # Errors
///
/// At the end of a transaction: `Interrupted` if the deadline has passed. Interrupts are not
/// handled then.
pub(crate) fn check_while_waiting() -> Result<(), Interrupted> {
    if let Some(deadline) = DEADLINE.get() {
        return if Instant::now() < deadline {
            Ok(())
        } else {
            Err(Interrupted)
        };
    }
    check();
    Ok(())
}

/// Runs `work`, which sends the zone what the end of a transaction has for it, with a deadline of 2
/// seconds from now; within another such call, that call's deadline applies. Waits do not handle
/// interrupts meanwhile.
pub(crate) fn with_deadline(work: impl FnOnce()) {
    let outermost = DEADLINE.get().is_none();
    if outermost {
        DEADLINE.set(Instant::now().checked_add(END_LIMIT));
    }
    work();
    if outermost {
        DEADLINE.set(None);
    }
}

/// Sleeps for `milliseconds`, or until the process's latch is set; then handles pending interrupts.
/// Nothing for 0 or less.
pub(crate) fn pause(milliseconds: i32) {
    if milliseconds <= 0 {
        return;
    }
    let events = pg_sys::WL_LATCH_SET | pg_sys::WL_TIMEOUT | pg_sys::WL_EXIT_ON_PM_DEATH;
    // SAFETY: the process's own latch.
    unsafe {
        pg_sys::WaitLatch(
            pg_sys::MyLatch,
            i32::try_from(events).unwrap_or(0),
            c_long::from(milliseconds),
            pg_sys::PG_WAIT_EXTENSION,
        );
        pg_sys::ResetLatch(pg_sys::MyLatch);
    }
    check();
}
