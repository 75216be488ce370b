//! A cache of the zone's answers, kept until the statement is over, so that nothing is asked twice.
//!
//! An identifier stands for one value as long as it is valid (F1), so the order of two identifiers
//! does not change. Invariant: nothing is kept beyond the statement, because ephemerals and tokens
//! are the statement's, or beyond the connection that answered. Must not: ask the zone.

/// Most answers that are kept: enough for the rows of two pages and all conditions on them, with
/// lists of constants. A power of two.
const ANSWERS: usize = 1 << 14;
/// Statements are numbered modulo this, to tell one statement's answers from another's.
const ROUNDS: u32 = 1 << 24;
/// Most tokens that are kept; then all are forgotten at once. A power of two.
const TOKENS_MAX: usize = 1 << 17;
/// Size of the table of tokens at first. A power of two.
const TOKENS_MIN: usize = 1 << 9;

/// The answer to a question about two values.
#[derive(Clone, Copy, Default)]
struct Answer {
    a: u64,
    b: u64,
    /// The question: 0 for the order, otherwise the code of a function.
    question: u32,
    /// The answer plus 2 in the lowest 8 bits, the round above them.
    packed: u32,
}

impl Answer {
    /// Whether this is the answer to that question about these two values, from this round.
    const fn is_about(&self, a: u64, b: u64, question: u32, round: u32) -> bool {
        self.a == a && self.b == b && self.question == question && self.packed >> 8 == round
    }
}

/// An equality token: 128 bits that are equal for equal values within a statement, and differ for
/// others.
pub(crate) type Token = [u64; 2];

#[derive(Clone, Copy, Default)]
struct KnownToken {
    /// The identifier; 0 for an empty entry.
    fid: u64,
    token: Token,
}

/// The answers and tokens that are kept.
#[derive(Default)]
pub(crate) struct Memo {
    answers: Vec<Answer>,
    tokens: Vec<KnownToken>,
    tokens_used: usize,
    used: bool,
    /// Number of the statement; empty entries have 0, which is no statement's.
    round: u32,
    connection: u32,
    hits: Hits,
}

/// Which answers were used since the last [`Memo::take_hits`].
#[derive(Clone, Copy, Default)]
pub(crate) struct Hits {
    /// A set of hashes of 6 bits: enough to tell which questions are useless.
    answers: u64,
    tokens: bool,
}

impl Hits {
    /// Whether an answer to this question may have been used. `with` is the value that others were
    /// compared with, 0 for pairs. Can be true by chance.
    pub(crate) const fn answer(self, question: u32, with: u64) -> bool {
        self.answers & Self::bit(question, with) != 0
    }

    /// Whether a token was used.
    pub(crate) const fn token(self) -> bool {
        self.tokens
    }

    /// The bit for a question and its second value. Several may have the same one.
    const fn bit(question: u32, with: u64) -> u64 {
        let mixed = (with ^ (question as u64) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        1 << (mixed >> 58)
    }
}

impl Memo {
    /// An empty memo.
    pub(crate) const fn new() -> Self {
        Self {
            answers: Vec::new(),
            tokens: Vec::new(),
            tokens_used: 0,
            used: false,
            round: 1,
            connection: 0,
            hits: Hits {
                answers: 0,
                tokens: false,
            },
        }
    }

    /// Which answers were used since the last call; forgets that.
    pub(crate) fn take_hits(&mut self) -> Hits {
        std::mem::take(&mut self.hits)
    }

    /// Forgets all answers and tokens: the statement is over, or there is another connection.
    pub(crate) fn forget(&mut self) {
        if self.used {
            self.round = (self.round + 1) % ROUNDS;
            if self.round == 0 {
                self.answers.fill(Answer::default());
                self.round = 1;
            }
            self.tokens = Vec::new();
            self.tokens_used = 0;
            self.used = false;
        }
    }

    /// Forgets the answers of any other connection than this one, whose answers are kept from now
    /// on.
    fn use_connection(&mut self, connection: u32) {
        if self.connection != connection {
            self.forget();
            self.connection = connection;
        }
        self.used = true;
    }

    /// The kept answer over this connection: the order of `a` and `b` for `question` 0, otherwise
    /// the boolean that the function of that code returns for them. `None` if none is kept. Counts
    /// as a use.
    pub(crate) fn answer(&mut self, connection: u32, question: u32, a: u64, b: u64) -> Option<i32> {
        if self.connection != connection {
            return None;
        }
        let first = place_of(a, b, question);
        let round = self.round;
        let mut both = [first, first ^ 1]
            .into_iter()
            .filter_map(|at| self.answers.get(at));
        let found = both.find(|found| found.is_about(a, b, question, round))?;
        let number = i32::try_from(found.packed & 0xff).ok()?;
        self.hits.answers |=
            Hits::bit(question, a) | Hits::bit(question, b) | Hits::bit(question, 0);
        Some(number - 2)
    }

    /// Keeps an answer: -1, 0 or 1. May replace another one.
    pub(crate) fn keep(&mut self, connection: u32, question: u32, a: u64, b: u64, answer: i32) {
        self.use_connection(connection);
        if self.answers.is_empty() {
            self.answers = vec![Answer::default(); ANSWERS];
        }
        let packed = self.round << 8 | (answer + 2).unsigned_abs() & 0xff;
        let first = place_of(a, b, question);
        let round = self.round;
        let taken = |at: usize| {
            let other = |known: &Answer| {
                known.packed >> 8 == round && !known.is_about(a, b, question, round)
            };
            self.answers.get(at).is_some_and(other)
        };
        // If the second place is taken too, the answer there is replaced.
        let at = if taken(first) { first ^ 1 } else { first };
        if let Some(at) = self.answers.get_mut(at) {
            *at = Answer {
                a,
                b,
                question,
                packed,
            };
        }
    }

    /// The kept token of a value over this connection. `None` if none is kept. Counts as a use.
    pub(crate) fn token(&mut self, connection: u32, fid: u64) -> Option<Token> {
        if self.tokens_used == 0 || self.connection != connection {
            return None;
        }
        let found = self.tokens.get(self.slot(fid))?;
        if found.fid != fid {
            return None;
        }
        self.hits.tokens = true;
        Some(found.token)
    }

    /// Keeps a token.
    pub(crate) fn keep_token(&mut self, connection: u32, fid: u64, token: Token) {
        self.use_connection(connection);
        if self.tokens_used.saturating_mul(2) >= self.tokens.len() {
            self.grow();
        }
        let slot = self.slot(fid);
        if let Some(at) = self.tokens.get_mut(slot) {
            self.tokens_used += usize::from(at.fid != fid);
            *at = KnownToken { fid, token };
        }
    }

    /// Doubles the table of tokens, or empties it at its largest size.
    fn grow(&mut self) {
        let size = self.tokens.len().saturating_mul(2).max(TOKENS_MIN);
        if size > TOKENS_MAX {
            self.tokens.fill(KnownToken::default());
            self.tokens_used = 0;
            return;
        }
        let old = std::mem::replace(&mut self.tokens, vec![KnownToken::default(); size]);
        for one in old.iter().filter(|one| one.fid != 0) {
            let slot = self.slot(one.fid);
            if let Some(at) = self.tokens.get_mut(slot) {
                *at = *one;
            }
        }
    }

    /// The index of the entry of the value `fid`, or of the empty entry where it belongs. At least
    /// half of the entries are empty.
    fn slot(&self, fid: u64) -> usize {
        let mask = self.tokens.len().wrapping_sub(1);
        let mut at = hash(fid) & mask;
        while self
            .tokens
            .get(at)
            .is_some_and(|one| one.fid != 0 && one.fid != fid)
        {
            at = at.wrapping_add(1) & mask;
        }
        at
    }
}

/// A hash of an identifier, whose bits are regular.
fn hash(bits: u64) -> usize {
    let mixed = bits.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    usize::try_from(mixed >> 40).unwrap_or(0)
}

/// The index at which the answer about `a` and `b` is kept first; its neighbour is the second
/// choice.
fn place_of(a: u64, b: u64, question: u32) -> usize {
    hash(a ^ b.rotate_left(29) ^ u64::from(question) << 17) % ANSWERS
}

/// Identifiers that a sort has compared, and their ranks. All are ranked in one call when there are
/// twice as many as were ranked before, or when unknown ranks have cost enough single comparisons.
#[derive(Default)]
pub(crate) struct Ranks {
    /// Rank and round of each identifier; round 0 for one that is not ranked yet.
    ranks: std::collections::BTreeMap<u64, (u64, u32)>,
    round: u32,
    /// How many identifiers the last round ranked.
    ranked: usize,
    /// Number of pairs since the last round whose order was not known.
    missed: usize,
    connection: u32,
    /// No ranks are asked for in this statement any more.
    refused: bool,
}

/// Fewest identifiers that are worth a call.
const RANKED_MIN: usize = 64;
/// Most identifiers that fit into one call.
pub(crate) const RANKED_MAX: usize = 1 << 16;

impl Ranks {
    /// The order of two identifiers (-1, 0 or 1). `None` unless both were ranked in the same round,
    /// over this connection.
    pub(crate) fn order(&self, connection: u32, a: u64, b: u64) -> Option<i32> {
        if self.connection != connection {
            return None;
        }
        let (a, b) = (self.ranks.get(&a)?, self.ranks.get(&b)?);
        (a.1 != 0 && a.1 == b.1).then(|| a.0.cmp(&b.0) as i32)
    }

    /// Forgets the identifiers of another connection than this one.
    fn use_connection(&mut self, connection: u32) {
        if self.connection != connection {
            *self = Self {
                connection,
                ..Self::default()
            };
        }
    }

    /// Keeps the ranks of identifiers that were ranked together over this connection, in case a
    /// sort needs them; `ranks` has one for each of `fids`. They are kept apart from other ranks,
    /// with which they cannot be compared. Does nothing if more than 65536 would then be kept.
    pub(crate) fn keep_apart(&mut self, connection: u32, fids: &[u64], ranks: &[u64]) {
        self.use_connection(connection);
        if self.refused || self.ranks.len() + fids.len() > RANKED_MAX {
            return;
        }
        self.round += 1;
        let round = self.round;
        let ranked = fids.iter().zip(ranks);
        self.ranks
            .extend(ranked.map(|(fid, rank)| (*fid, (*rank, round))));
        self.ranked = self.ranks.len();
        self.missed = 0;
    }

    /// Adds two identifiers that a sort compares. Returns all identifiers if it is time to rank
    /// them. Forgets those of another connection, and gives up beyond 65536.
    pub(crate) fn add(&mut self, connection: u32, a: u64, b: u64) -> Option<Vec<u64>> {
        self.use_connection(connection);
        if self.refused {
            return None;
        }
        for fid in [a, b] {
            self.ranks.entry(fid).or_insert((0, 0));
        }
        self.missed += 1;
        let known = self.ranks.len();
        let doubled = known >= self.ranked.saturating_mul(2);
        // The last values of a sort would never double the number.
        let worth_it = known > self.ranked && self.missed >= known / 4;
        if known < RANKED_MIN || !(doubled || worth_it) {
            return None;
        }
        if self.ranks.len() > RANKED_MAX {
            self.refuse();
            return None;
        }
        Some(self.ranks.keys().copied().collect())
    }

    /// Keeps the ranks of the identifiers that [`Self::add`] returned, in its order.
    pub(crate) fn keep(&mut self, ranks: &[u64]) {
        self.round += 1;
        self.ranked = ranks.len();
        self.missed = 0;
        for (known, rank) in self.ranks.values_mut().zip(ranks) {
            *known = (*rank, self.round);
        }
    }

    /// Gives up ranking in this statement: the zone refuses, or there are too many identifiers.
    pub(crate) fn refuse(&mut self) {
        self.refused = true;
        self.ranks.clear();
    }
}

/// The constants of a list that one value after the other is compared with: the elements of `IN
/// (...)`.
#[derive(Default)]
pub(crate) struct ListComparisons {
    value: u64,
    constants: Vec<u64>,
}

/// Most constants of a list that are compared in one call.
const LIST_MAX: usize = 64;

impl ListComparisons {
    /// No list yet.
    pub(crate) const fn new() -> Self {
        Self {
            value: 0,
            constants: Vec::new(),
        }
    }

    /// Notes that `value` is compared with `constant`. Returns the constants that it will probably
    /// be compared with, those that the value before was compared with, if this is the first
    /// comparison of `value`; otherwise `None`.
    pub(crate) fn next(&mut self, value: u64, constant: u64) -> Option<&[u64]> {
        if self.value == value {
            if !self.constants.contains(&constant) && self.constants.len() < LIST_MAX {
                self.constants.push(constant);
            }
            return None;
        }
        self.value = value;
        if self.constants.first() != Some(&constant) {
            self.constants.clear();
            self.constants.push(constant);
            return None;
        }
        (self.constants.len() > 1).then_some(self.constants.as_slice())
    }

    /// Forgets the list: the statement is over.
    pub(crate) fn forget(&mut self) {
        self.value = 0;
        self.constants.clear();
    }
}
