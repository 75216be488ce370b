//! How many clients' certificates have expired or expire soon.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// How long a count may be returned again, in seconds.
const CACHED_S: u64 = 60;

/// Counts of clients' certificates by when they expire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientExpiry {
    /// All certificates that are valid, or have expired without being replaced.
    pub all: u64,
    /// Certificates that have expired.
    pub expired: u64,
    /// Certificates that are valid and expire within 7 days.
    pub within_7_days: u64,
    /// Certificates that are valid and expire within 30 days.
    pub within_30_days: u64,
}

impl ClientExpiry {
    /// Adds a certificate that is valid for `left_s` more seconds to the counts; 0 when it has
    /// expired.
    pub(super) fn count(&mut self, left_s: u64) {
        const DAY_S: u64 = 86_400;
        let add = |count: &mut u64, is: bool| *count = count.saturating_add(u64::from(is));
        add(&mut self.all, true);
        add(&mut self.expired, left_s == 0);
        add(&mut self.within_7_days, (1..=7 * DAY_S).contains(&left_s));
        add(&mut self.within_30_days, (1..=30 * DAY_S).contains(&left_s));
    }
}

/// The last count and the time when it was made, in seconds since the Unix epoch.
#[derive(Default)]
pub(super) struct ExpiryCache(Mutex<Option<(u64, ClientExpiry)>>);

impl ExpiryCache {
    /// Locks the cache, so that only one caller counts at a time.
    pub(super) fn lock(&self) -> MutexGuard<'_, Option<(u64, ClientExpiry)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the count in the cache, if it was made at most a minute before `now_s` (seconds
    /// since the Unix epoch); otherwise `None`.
    pub(super) fn recent(cached: Option<(u64, ClientExpiry)>, now_s: u64) -> Option<ClientExpiry> {
        let (at, expiry) = cached?;
        let recent = at..=at.saturating_add(CACHED_S);
        recent.contains(&now_s).then_some(expiry)
    }
}
