//! Medians and spreads.
//!
//! Must not: leave out a round.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::Failure;

/// The middle one of some values, or the mean of the two in the middle. 0 of none.
#[must_use]
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let at = |index: usize| sorted.get(index).copied().unwrap_or(0.0);
    if sorted.len() % 2 == 1 {
        at(middle)
    } else {
        f64::midpoint(at(middle.saturating_sub(1)), at(middle))
    }
}

/// How much more than `plain` is `sealed`, in per cent of it, rounded up to a tenth. "-" without a
/// measurement.
#[must_use]
pub fn penalty(plain: f64, sealed: f64) -> String {
    if plain <= 0.0 || sealed <= 0.0 {
        return "-".to_owned();
    }
    let per_cent = (sealed / plain - 1.0) * 100.0;
    // What the division adds in the last places is not to be rounded up.
    let tenths = (per_cent * 10.0 - 1e-6).ceil();
    // No negative zero.
    let tenths = if tenths == 0.0 { 0.0 } else { tenths };
    format!("{:+.1} %", tenths / 10.0)
}

/// Durations of one piece of work, one per round.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct Samples {
    seconds: Vec<f64>,
}

impl Samples {
    /// Adds a round.
    pub fn push(&mut self, duration: Duration) {
        self.seconds.push(duration.as_secs_f64());
    }

    /// Number of rounds.
    #[must_use]
    pub fn rounds(&self) -> usize {
        self.seconds.len()
    }

    /// The middle one, or the mean of the two in the middle, in seconds. 0 without rounds.
    #[must_use]
    pub fn median(&self) -> f64 {
        median(&self.seconds)
    }

    /// The shortest round, in seconds.
    #[must_use]
    pub fn min(&self) -> f64 {
        self.seconds.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// The longest round, in seconds.
    #[must_use]
    pub fn max(&self) -> f64 {
        self.seconds.iter().copied().fold(0.0, f64::max)
    }

    /// From the shortest to the longest round, as a share of the median.
    #[must_use]
    pub fn spread(&self) -> f64 {
        let median = self.median();
        if median > 0.0 {
            (self.max() - self.min()) / median
        } else {
            0.0
        }
    }
}

/// Runs `work` and says how long it took.
///
/// # Errors
/// Those of `work`.
pub fn timed<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<(Duration, T), Failure> {
    let begin = Instant::now();
    let result = work()?;
    Ok((begin.elapsed(), result))
}

/// Even pseudo-random numbers from a seed: `SplitMix64` (Steele, Lea, Flood 2014). For choosing
/// rows, not for keys.
pub struct Numbers(u64);

impl Numbers {
    /// From `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number in `1..=last`.
    pub fn up_to(&mut self, last: i64) -> i64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let positive = i64::try_from((z ^ (z >> 31)) >> 1).unwrap_or(0);
        positive % last.max(1) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::{Numbers, Samples};
    use std::time::Duration;

    #[test]
    fn medians_of_odd_and_even_counts() {
        let mut samples = Samples::default();
        for seconds in [5, 1, 3] {
            samples.push(Duration::from_secs(seconds));
        }
        assert!((samples.median() - 3.0).abs() < 1e-9);
        samples.push(Duration::from_secs(100));
        assert!((samples.median() - 4.0).abs() < 1e-9);
        assert!((samples.min() - 1.0).abs() < 1e-9 && (samples.max() - 100.0).abs() < 1e-9);
        assert!((samples.spread() - 99.0 / 4.0).abs() < 1e-9);
    }

    #[test]
    fn numbers_stay_in_range_and_repeat() {
        let draw = |seed| -> Vec<i64> {
            let mut numbers = Numbers::new(seed);
            (0..1000).map(|_| numbers.up_to(10)).collect()
        };
        assert!(draw(1).iter().all(|number| (1..=10).contains(number)));
        assert!((1..=10).all(|number| draw(1).contains(&number)));
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }
}
