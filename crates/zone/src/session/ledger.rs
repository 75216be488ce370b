//! The leakage ledger: what a session's answers have told the server, in numbers.
//!
//! Must not: hold a value, an identifier of one, or anything from which one could be told.

/// Counts of one session.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    truths: u64,
    positive: u64,
    tokens: u64,
    ranks: u64,
    outputs: u64,
    output_bytes: u64,
    computed: u64,
    refusals: u64,
    declassified: u64,
    classified: u64,
}

impl Ledger {
    /// An empty one.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            truths: 0,
            positive: 0,
            tokens: 0,
            ranks: 0,
            outputs: 0,
            output_bytes: 0,
            computed: 0,
            refusals: 0,
            declassified: 0,
            classified: 0,
        }
    }

    /// Truths given: comparisons, tests, tokens, ranks.
    #[must_use]
    pub const fn truths(&self) -> u64 {
        self.truths
    }

    /// Values sealed.
    #[must_use]
    pub const fn outputs(&self) -> u64 {
        self.outputs
    }

    /// Operations refused.
    #[must_use]
    pub const fn refusals(&self) -> u64 {
        self.refusals
    }

    pub(super) const fn count_truths(&mut self, count: u64) {
        self.truths = self.truths.saturating_add(count);
    }

    pub(super) const fn count_outputs(&mut self, count: u64, bytes: u64) {
        self.outputs = self.outputs.saturating_add(count);
        self.output_bytes = self.output_bytes.saturating_add(bytes);
    }

    pub(super) const fn refuse(&mut self) {
        self.refusals = self.refusals.saturating_add(1);
    }

    /// How many of the truths were positive: with the number of truths, their selectivity.
    pub const fn count_positive(&mut self, count: u64) {
        self.positive = self.positive.saturating_add(count);
    }

    /// Equality tokens given.
    pub const fn count_tokens(&mut self, count: u64) {
        self.tokens = self.tokens.saturating_add(count);
    }

    /// Values whose rank was given.
    pub const fn count_ranks(&mut self, count: u64) {
        self.ranks = self.ranks.saturating_add(count);
    }

    /// Values computed.
    pub const fn count_computed(&mut self, count: u64) {
        self.computed = self.computed.saturating_add(count);
    }

    /// Values given in clear.
    pub const fn count_declassified(&mut self, count: u64) {
        self.declassified = self.declassified.saturating_add(count);
    }

    /// Values taken in clear.
    pub const fn count_classified(&mut self, count: u64) {
        self.classified = self.classified.saturating_add(count);
    }

    /// Adds the counts of a session that has ended.
    pub const fn add(&mut self, ended: &Self) {
        self.count_truths(ended.truths);
        self.count_positive(ended.positive);
        self.count_tokens(ended.tokens);
        self.count_ranks(ended.ranks);
        self.count_outputs(ended.outputs, ended.output_bytes);
        self.count_computed(ended.computed);
        self.refusals = self.refusals.saturating_add(ended.refusals);
        self.count_declassified(ended.declassified);
        self.count_classified(ended.classified);
    }

    /// As JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        format!(
            "{{\"truths\":{},\"positive\":{},\"tokens\":{},\"ranks\":{},\"outputs\":{},\"output_bytes\":{},\"computed\":{},\"refusals\":{},\"declassified\":{},\"classified\":{}}}",
            self.truths,
            self.positive,
            self.tokens,
            self.ranks,
            self.outputs,
            self.output_bytes,
            self.computed,
            self.refusals,
            self.declassified,
            self.classified
        )
    }
}
