//! The tests' only source of randomness: `SplitMix64` (Steele, Lea, Flood 2014) from a printed
//! seed.
//!
//! Must not: be used for anything secret.

use std::time::{SystemTime, UNIX_EPOCH};

/// A reproducible stream of numbers.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The stream of `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 bits.
    pub const fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`, which is not 0. The slight bias of the remainder does not matter
    /// here.
    pub const fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// True once in `times`.
    pub const fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// One of `items`, which are not empty.
    pub fn one_of<T: Copy>(&mut self, items: &[T]) -> T {
        let index = usize::try_from(self.below(items.len() as u64)).unwrap_or(0);
        items[index]
    }

    /// A text of `len` letters and digits.
    pub fn text(&mut self, len: usize) -> String {
        const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789";
        (0..len).map(|_| char::from(self.one_of(LETTERS))).collect()
    }
}

/// The seed of a test run: `STRONGROOM_SEED`, or the clock. Print it.
#[must_use]
pub fn seed() -> u64 {
    let given = std::env::var("STRONGROOM_SEED")
        .ok()
        .and_then(|text| text.parse().ok());
    given.unwrap_or_else(|| {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        u64::try_from(now.as_nanos() % 1_000_000_007).unwrap_or(1)
    })
}

/// How often something is to be done: the number in the environment variable `name`, or `default`.
#[must_use]
pub fn times(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}
