//! The leakage ledger: counts of the answers that the server was given under a ticket.
//!
//! A handle: sessions under one ticket count in one ledger (A3). Counts are raised by one thread,
//! so that reading and writing one is no race. Must not: hold a value, an identifier of one, or
//! anything that reveals one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The names of the counts in the status.
const NAMES: [&str; 11] = [
    "truths",
    "positive",
    "tokens",
    "ranks",
    "outputs",
    "output_bytes",
    "computed",
    "checks",
    "refusals",
    "declassified",
    "classified",
];

/// Indexes into [`NAMES`].
#[derive(Clone, Copy)]
enum Count {
    Truths,
    Positive,
    Tokens,
    Ranks,
    Outputs,
    OutputBytes,
    Computed,
    Checks,
    Refusals,
    Declassified,
    Classified,
}

/// Counts of one ticket.
#[derive(Clone, Debug, Default)]
pub struct Ledger(Arc<[AtomicU64; NAMES.len()]>);

impl Ledger {
    /// A ledger whose counts are all 0.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The value of one count.
    fn count(&self, of: Count) -> u64 {
        self.0
            .get(of as usize)
            .map_or(0, |count| count.load(Relaxed))
    }

    /// Adds to a count, which stops at the highest value rather than begin at zero again.
    fn raise(&self, of: Count, by: u64) {
        if let Some(count) = self.0.get(of as usize) {
            count.store(count.load(Relaxed).saturating_add(by), Relaxed);
        }
    }

    /// How many truths were given: comparisons, tests, tokens, ranks.
    #[must_use]
    pub fn truths(&self) -> u64 {
        self.count(Count::Truths)
    }

    /// How many answers showed whether a computation has failed.
    #[must_use]
    pub fn checks(&self) -> u64 {
        self.count(Count::Checks)
    }

    /// How many values were sealed or given in clear.
    #[must_use]
    pub fn outputs(&self) -> u64 {
        self.count(Count::Outputs)
    }

    /// How many operations were refused.
    #[must_use]
    pub fn refusals(&self) -> u64 {
        self.count(Count::Refusals)
    }

    /// Adds truths given.
    pub(super) fn count_truths(&self, count: u64) {
        self.raise(Count::Truths, count);
    }

    /// Adds one answer that shows whether a computation has failed.
    pub(super) fn count_check(&self) {
        self.raise(Count::Checks, 1);
    }

    /// Adds one value that is sealed or given in clear.
    pub(super) fn count_output(&self) {
        self.raise(Count::Outputs, 1);
    }

    /// Adds bytes of values that were sealed or given in clear.
    pub fn count_output_bytes(&self, bytes: u64) {
        self.raise(Count::OutputBytes, bytes);
    }

    /// Adds one refusal.
    pub(super) fn count_refusal(&self) {
        self.raise(Count::Refusals, 1);
    }

    /// Adds truths that were positive, out of those that [`Self::count_truths`] has counted.
    pub fn count_positive(&self, count: u64) {
        self.raise(Count::Positive, count);
    }

    /// Adds equality tokens given.
    pub fn count_tokens(&self, count: u64) {
        self.raise(Count::Tokens, count);
    }

    /// Adds values whose rank was given.
    pub fn count_ranks(&self, count: u64) {
        self.raise(Count::Ranks, count);
    }

    /// Adds computations asked for, whether or not they have failed.
    pub fn count_computed(&self, count: u64) {
        self.raise(Count::Computed, count);
    }

    /// Adds values given in clear.
    pub(super) fn count_declassified(&self, count: u64) {
        self.raise(Count::Declassified, count);
    }

    /// Adds values taken in clear.
    pub fn count_classified(&self, count: u64) {
        self.raise(Count::Classified, count);
    }

    /// Adds the counts of `other` to these, each up to the highest value. Not atomic: only for the
    /// one thread that counts.
    pub fn add(&self, other: &Self) {
        for (own, theirs) in self.0.iter().zip(other.0.iter()) {
            own.store(
                own.load(Relaxed).saturating_add(theirs.load(Relaxed)),
                Relaxed,
            );
        }
    }

    /// The counts as a JSON object, each under its name.
    #[must_use]
    pub fn to_json(&self) -> String {
        let counts = NAMES.iter().zip(self.0.iter());
        let fields: Vec<String> = counts
            .map(|(name, count)| format!("\"{name}\":{}", count.load(Relaxed)))
            .collect();
        format!("{{{}}}", fields.join(","))
    }
}
