//! The keys that opened the last envelopes, by salt.
//!
//! Must not: grow beyond [`RECENT_MAX`].

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use strongroom_crypto::GcmKey;

/// The most keys that are kept. A load from a dump has one salt for some ten thousand envelopes, a
/// proxy uses one at a time.
pub(crate) const RECENT_MAX: usize = 64;

/// Keys by salt, with the number of their last use.
pub(crate) struct RecentKeys {
    keys: BTreeMap<[u8; 16], (GcmKey, AtomicU64)>,
    uses: AtomicU64,
}

impl RecentKeys {
    /// Returns an empty cache.
    pub(crate) const fn new() -> Self {
        Self {
            keys: BTreeMap::new(),
            uses: AtomicU64::new(0),
        }
    }

    /// Returns the key that is cached for a salt, and marks it as the most recently used one.
    /// `None` if none is cached.
    pub(crate) fn get(&self, salt: &[u8; 16]) -> Option<&GcmKey> {
        let (key, last) = self.keys.get(salt)?;
        last.store(self.uses.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        Some(key)
    }

    /// Adds or replaces the key of a salt. If the cache is full, the least recently used key is
    /// removed first.
    pub(crate) fn insert(&mut self, salt: [u8; 16], key: GcmKey) {
        while self.keys.len() >= RECENT_MAX && !self.keys.contains_key(&salt) {
            let last = |(_, last): &(GcmKey, AtomicU64)| last.load(Ordering::Relaxed);
            let oldest = self.keys.iter().min_by_key(|(_, kept)| last(kept));
            let Some(oldest) = oldest.map(|(salt, _)| *salt) else {
                return;
            };
            self.keys.remove(&oldest);
        }
        let now = self.uses.fetch_add(1, Ordering::Relaxed);
        self.keys.insert(salt, (key, AtomicU64::new(now)));
    }

    /// Returns how many keys are cached.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }
}
