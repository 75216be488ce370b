//! The zone's clock.
//!
//! Invariant A6 of docs/internals/columns.md: it never goes back. Must not: wait.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Seconds since 1970, by which tickets and periods begin and end. By the machine's clock, but not
/// earlier than its first time and what has passed since then: setting the clock back makes no
/// ticket last longer. A clock that is set forward ends tickets early. A clock before 1970 counts
/// as 1970.
pub(crate) fn now() -> u64 {
    static FIRST: OnceLock<(u64, Instant)> = OnceLock::new();
    let clock = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let (first, begun) = FIRST.get_or_init(|| (clock, Instant::now()));
    not_before(clock, *first, begun.elapsed())
}

/// `clock`, or what a clock would show that was right at `first` and has run for `passed` since, if
/// that is later; all in seconds since 1970.
fn not_before(clock: u64, first: u64, passed: Duration) -> u64 {
    clock.max(first.saturating_add(passed.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_back_makes_no_time_pass_again() {
        let hour = Duration::from_secs(3600);
        assert_eq!(not_before(13_600, 10_000, hour), 13_600);
        assert_eq!(not_before(10_001, 10_000, hour), 13_600, "set back");
        assert_eq!(not_before(0, 10_000, hour), 13_600, "before 1970");
        assert_eq!(not_before(99_999, 10_000, hour), 99_999, "set forward");
        // A clock that was right again after it had been ahead is followed.
        assert_eq!(not_before(13_700, 10_000, hour), 13_700);
    }
}
