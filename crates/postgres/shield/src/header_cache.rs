//! Caches 16 bytes of the header of an open file (its nonce or file id) in the words of its
//! descriptor.
//!
//! Invariants: a value that is loaded was stored as a whole, whichever threads store at the same
//! time; if that is not certain, nothing is loaded. No lock is taken and no thread waits.
//!
//! Must not: be the only copy of a value.
#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::expect_used
)]

use std::sync::atomic::{Ordering, fence};

use crate::sealed_file::FileCache;

// The third word counts changes: 0 before the first, odd while one is under way (a sequence lock).

/// Returns the cached bytes. `None` if there are none, or another thread is storing some.
pub(crate) fn load(cache: &FileCache) -> Option<[u8; 16]> {
    let [low, high, changes, _] = cache;
    let before = changes.load(Ordering::Acquire);
    if before == 0 || before & 1 == 1 {
        return None;
    }
    let bytes =
        u128::from(low.load(Ordering::Relaxed)) | u128::from(high.load(Ordering::Relaxed)) << 64;
    fence(Ordering::Acquire);
    let unchanged = changes.load(Ordering::Relaxed) == before;
    (unchanged && bytes != 0).then(|| bytes.to_le_bytes())
}

/// Caches `bytes`; all zero means none. If another thread stores at the same time, this does
/// nothing, and that thread's value stays.
pub(crate) fn store(cache: &FileCache, bytes: &[u8; 16]) {
    let [low, high, changes, _] = cache;
    let before = changes.load(Ordering::Relaxed);
    let begun = before.wrapping_add(1);
    if before & 1 == 1
        || changes
            .compare_exchange(before, begun, Ordering::AcqRel, Ordering::Relaxed)
            .is_err()
    {
        return;
    }
    fence(Ordering::Release);
    let bytes = u128::from_le_bytes(*bytes);
    let half = |value: u128| u64::try_from(value & u128::from(u64::MAX)).unwrap_or(0);
    low.store(half(bytes), Ordering::Relaxed);
    high.store(half(bytes >> 64), Ordering::Relaxed);
    changes.store(begun.wrapping_add(1), Ordering::Release);
}

/// Empties the cache. Does nothing while another thread is storing a value.
pub(crate) fn clear(cache: &FileCache) {
    if load(cache).is_some() {
        store(cache, &[0; 16]);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn what_is_remembered_is_recalled_until_it_is_forgotten() {
        let cache: FileCache = [const { AtomicU64::new(0) }; 4];
        assert_eq!(load(&cache), None);
        for byte in 1..5 {
            store(&cache, &[byte; 16]);
            assert_eq!(load(&cache), Some([byte; 16]));
        }
        clear(&cache);
        assert_eq!(load(&cache), None);
        store(&cache, &[9; 16]);
        assert_eq!(load(&cache), Some([9; 16]));
    }

    #[test]
    fn threads_never_recall_a_mixture() {
        let cache: FileCache = [const { AtomicU64::new(0) }; 4];
        std::thread::scope(|scope| {
            for thread in 0..2_u8 {
                let cache = &cache;
                scope.spawn(move || {
                    for round in 0..20_000_u16 {
                        let [byte, _] = round.to_le_bytes();
                        store(cache, &[byte | 1 | thread << 7; 16]);
                    }
                });
                scope.spawn(move || {
                    for _ in 0..20_000 {
                        let seen = load(cache).unwrap_or([1; 16]);
                        assert!(seen.iter().all(|byte| *byte == seen[0]));
                    }
                });
            }
        });
    }
}
