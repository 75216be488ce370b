//! The fleet that was read from the store last, for as long as it may be shown again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::page::model::Fleet;
use crate::page::records::Policy;

/// A fleet is cached for this many times as long as it took to read it (G2), and at most for
/// [`CACHED_MAX`].
const CACHED_FACTOR: u32 = 10;
const CACHED_MAX: Duration = Duration::from_secs(60);

/// The fleet that was read last.
#[derive(Default)]
pub(super) struct FleetCache(Mutex<Option<FleetSnapshot>>);

pub(super) struct FleetSnapshot {
    fleet: Arc<Fleet>,
    policy: Policy,
    valid_until: Instant,
}

impl FleetCache {
    /// Locks the cache, so that only one caller reads the store at a time.
    pub(super) fn lock(&self) -> MutexGuard<'_, Option<FleetSnapshot>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FleetSnapshot {
    /// Makes a snapshot of a fleet that took `took` to read. It is valid for ten times as long, at
    /// most a minute.
    pub(super) fn new(fleet: &Arc<Fleet>, policy: Policy, took: Duration) -> Self {
        let cached = took.saturating_mul(CACHED_FACTOR).min(CACHED_MAX);
        Self {
            fleet: Arc::clone(fleet),
            policy,
            valid_until: Instant::now() + cached,
        }
    }

    /// Returns the fleet, if it was judged by this policy and is still valid; otherwise `None`.
    pub(super) fn fleet_for(&self, policy: Policy) -> Option<Arc<Fleet>> {
        let is_valid = self.policy == policy && Instant::now() < self.valid_until;
        is_valid.then(|| Arc::clone(&self.fleet))
    }
}
