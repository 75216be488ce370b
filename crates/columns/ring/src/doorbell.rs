//! Sleeping and waking across processes: futexes in shared memory, and the zone's doorbell.
//!
//! The doorbell is one page that every backend maps: a count that a backend raises when it has work
//! for the zone, and whether the zone sleeps on it. A hostile backend can overwrite both; so every
//! sleep is bounded, and overwriting costs delay, nothing else. Must not: be relied on for anything
//! but waking up.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::SeqCst;
use core::time::Duration;
use std::time::Instant;

use rustix::thread::futex;

use crate::memory::AtomicOnly;
use crate::ring::Line;

/// The longest sleep of either side: then it asks for interrupts and whether its peer lives (R4).
pub const SLEEP_MAX: Duration = Duration::from_millis(100);

/// Polls before a side yields the processor: about 2 µs.
pub(crate) const SPINS: u32 = 64;

/// The fewest yields before it sleeps: some 20 to 50 µs when no other thread wants the processor.
const YIELDS_MIN: u32 = 48;

/// The most yields before it sleeps: some 0.5 ms.
const YIELDS_MAX: u32 = 1536;

/// A yield that takes longer has let another thread run: then sleeping is better than yielding on.
const OTHERS: Duration = Duration::from_micros(8);

/// Waking takes up to some 200 µs on a virtual machine: polling would have been better than a sleep
/// that is shorter than this.
const SHORT: Duration = Duration::from_micros(500);

/// Decides how long a side polls before it sleeps. The time grows when sleeps turn out short, and
/// shrinks when they do not, so that a pause between two operations of one statement costs no
/// sleep, and an idle connection costs nothing.
pub(crate) struct AdaptiveWait {
    yields: u32,
}

impl AdaptiveWait {
    /// A wait with the shortest polling time.
    pub(crate) const fn new() -> Self {
        Self { yields: YIELDS_MIN }
    }

    /// Waits a moment, spinning or yielding the processor; `round` counts the waits since there was
    /// work. False if it is time to sleep: the polling time is over, or another thread wants the
    /// processor.
    pub(crate) fn pause(&self, round: u32) -> bool {
        if round < SPINS {
            core::hint::spin_loop();
            return true;
        }
        if round - SPINS >= self.yields {
            return false;
        }
        let begin = Instant::now();
        std::thread::yield_now();
        begin.elapsed() < OTHERS
    }

    /// Calls `sleep`, returns its result, and adapts the polling time to how long it took: doubled
    /// below 0.5 ms, otherwise halved, within limits.
    pub(crate) fn sleep<R>(&mut self, sleep: impl FnOnce() -> R) -> R {
        let begin = Instant::now();
        let result = sleep();
        self.yields = if begin.elapsed() < SHORT {
            self.yields.saturating_mul(2).min(YIELDS_MAX)
        } else {
            (self.yields / 2).max(YIELDS_MIN)
        };
        result
    }
}

/// The zone's doorbell.
#[repr(C, align(4096))]
pub(crate) struct Doorbell {
    rings: Line,
    sleeping: Line,
}

const _: () = assert!(size_of::<Doorbell>() == 4096);

mod shared {
    #![expect(unsafe_code, reason = "marks what consists of atomics only")]
    // SAFETY: `repr(C)`, made of AtomicU32, aligned to a page.
    unsafe impl super::AtomicOnly for super::Doorbell {}
}

impl Doorbell {
    /// Counts a ring of the doorbell, and wakes the zone if the page says that it sleeps.
    pub(crate) fn ring(&self) {
        self.rings.0.fetch_add(1, SeqCst);
        if self.sleeping.0.load(SeqCst) != 0 {
            wake(&self.rings.0);
        }
    }

    /// Counts a ring of the doorbell, and wakes the zone even if the page says that it does not
    /// sleep: for rare and important events.
    pub(crate) fn ring_always(&self) {
        self.rings.0.fetch_add(1, SeqCst);
        wake(&self.rings.0);
    }

    /// Clears the zone's flag, as a hostile backend would.
    #[cfg(test)]
    pub(crate) fn scribble(&self) {
        self.sleeping.0.store(0, SeqCst);
    }

    /// How often the doorbell was rung, modulo 2^32.
    pub(crate) fn count(&self) -> u32 {
        self.rings.0.load(SeqCst)
    }

    /// Sleeps until the count is no longer `seen`, a signal arrives, or `limit` is over (`None`: no
    /// limit). Marks the zone as asleep meanwhile.
    pub(crate) fn sleep(&self, seen: u32, limit: Option<Duration>) {
        self.sleeping.0.store(1, SeqCst);
        // The kernel compares the count again: a ring of the bell since it was read ends the sleep.
        wait(&self.rings.0, seen, limit);
        self.sleeping.0.store(0, SeqCst);
    }
}

/// Sleeps while `word` is `value`, until it is woken, a signal arrives or `limit` is over (`None`:
/// no limit). Returns at once if `word` differs.
pub(crate) fn wait(word: &AtomicU32, value: u32, limit: Option<Duration>) {
    let limit = limit.and_then(|limit| futex::Timespec::try_from(limit).ok());
    // Every outcome - woken, changed before, interrupted, over - means: poll again.
    let _ = futex::wait(word, futex::Flags::empty(), value, limit.as_ref());
}

/// Wakes every thread that sleeps on `word`.
pub(crate) fn wake(word: &AtomicU32) {
    // It fails for an address that is not mapped, which a reference cannot be.
    let _ = futex::wake(word, futex::Flags::empty(), u32::MAX >> 1);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Mapping;

    #[test]
    fn a_ring_before_the_sleep_is_not_slept_through() {
        let (bell, _file) = Mapping::<Doorbell>::create("test").unwrap();
        let seen = bell.count();
        bell.ring();
        let start = Instant::now();
        bell.sleep(seen, Some(Duration::from_secs(10)));
        assert!(start.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn patience_grows_with_short_sleeps_and_goes_with_long_ones() {
        let mut wait = AdaptiveWait::new();
        assert_eq!(wait.yields, YIELDS_MIN);
        for _ in 0..20 {
            wait.sleep(|| ());
        }
        assert_eq!(wait.yields, YIELDS_MAX);
        for _ in 0..20 {
            wait.sleep(|| std::thread::sleep(2 * SHORT));
        }
        assert_eq!(wait.yields, YIELDS_MIN);
        assert!(wait.pause(0) && !wait.pause(SPINS + YIELDS_MIN));
    }

    #[test]
    fn a_sleeper_is_woken_and_a_sleep_ends() {
        let (bell, file) = Mapping::<Doorbell>::create("test").unwrap();
        let other = Mapping::<Doorbell>::open(&file).unwrap();
        let start = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| bell.sleep(0, Some(Duration::from_secs(20))));
            std::thread::sleep(Duration::from_millis(50));
            other.ring();
        });
        assert!(start.elapsed() < Duration::from_secs(10));
        let start = Instant::now();
        bell.sleep(bell.count(), Some(Duration::from_millis(30)));
        assert!(start.elapsed() >= Duration::from_millis(29));
    }
}
