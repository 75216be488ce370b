//! Answers of the zone that this backend keeps until the statement is over, so that it does not ask twice.
//!
//! An identifier is one value as long as it is valid (F1), so the order of two of them does not change. Invariant: nothing is kept beyond
//! the statement, or beyond the connection that answered: ephemerals and tokens are the statement's. Must not: ask the zone.

/// Answers that are kept at a time: enough for the rows of two pages and all conditions on them, lists of constants among them. A power of two.
const ANSWERS: usize = 1 << 14;
/// What tells one statement's answers from another's: modulo this.
const ROUNDS: u32 = 1 << 24;
/// Tokens that are kept at a time; then they are forgotten all at once. A power of two.
const TOKENS_MAX: usize = 1 << 17;
/// Room for tokens at first. A power of two.
const TOKENS_MIN: usize = 1 << 9;

/// The answer to what was asked of two values.
#[derive(Clone, Copy, Default)]
struct Answer {
    a: u64,
    b: u64,
    /// What was asked (0: the order, otherwise the code of a function).
    what: u32,
    /// The answer plus 2 in the lowest 8 bits, the round above.
    told: u32,
}

impl Answer {
    const fn is(&self, a: u64, b: u64, what: u32, round: u32) -> bool {
        self.a == a && self.b == b && self.what == what && self.told >> 8 == round
    }
}

/// 128 bits that are equal for equal values of a statement, and for no others.
pub(crate) type Token = [u64; 2];

#[derive(Clone, Copy, Default)]
struct Tokened {
    /// The identifier; 0 is none.
    fid: u64,
    token: Token,
}

/// What is known.
#[derive(Default)]
pub(crate) struct Memo {
    answers: Vec<Answer>,
    tokens: Vec<Tokened>,
    tokens_used: usize,
    used: bool,
    /// Number of the statement; 0 is none's, and that of empty places.
    round: u32,
    connection: u32,
    hits: Hits,
}

/// Which answers were used since it was last asked.
#[derive(Clone, Copy, Default)]
pub(crate) struct Hits {
    /// One bit for each that falls on it: enough to tell what is of no use.
    answers: u64,
    tokens: bool,
}

impl Hits {
    /// Whether an answer about this may have been used: `with` is the value that others were compared with, 0 for pairs.
    pub(crate) const fn answer(self, what: u32, with: u64) -> bool {
        self.answers & Self::bit(what, with) != 0
    }

    pub(crate) const fn token(self) -> bool {
        self.tokens
    }

    const fn bit(what: u32, with: u64) -> u64 {
        let mixed = (with ^ (what as u64) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        1 << (mixed >> 58)
    }
}

impl Memo {
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

    /// Which answers were used since the last time.
    pub(crate) fn take_hits(&mut self) -> Hits {
        std::mem::take(&mut self.hits)
    }

    /// Forgets what another connection, or an earlier statement, has answered.
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

    /// Everything below is of this connection.
    fn of(&mut self, connection: u32) {
        if self.connection != connection {
            self.forget();
            self.connection = connection;
        }
        self.used = true;
    }

    /// The order of `a` and `b` (`what` 0), or what function `what` says of them.
    pub(crate) fn answer(&mut self, connection: u32, what: u32, a: u64, b: u64) -> Option<i32> {
        if self.connection != connection {
            return None;
        }
        let first = place(a, b, what);
        let round = self.round;
        let mut both = [first, first ^ 1]
            .into_iter()
            .filter_map(|at| self.answers.get(at));
        let found = both.find(|found| found.is(a, b, what, round))?;
        let number = i32::try_from(found.told & 0xff).ok()?;
        self.hits.answers |= Hits::bit(what, a) | Hits::bit(what, b) | Hits::bit(what, 0);
        Some(number - 2)
    }

    /// Keeps an answer: -1, 0 or 1.
    pub(crate) fn keep(&mut self, connection: u32, what: u32, a: u64, b: u64, answer: i32) {
        self.of(connection);
        if self.answers.is_empty() {
            self.answers = vec![Answer::default(); ANSWERS];
        }
        let told = self.round << 8 | (answer + 2).unsigned_abs() & 0xff;
        let first = place(a, b, what);
        let round = self.round;
        let taken = |at: usize| {
            let other = |known: &Answer| known.told >> 8 == round && !known.is(a, b, what, round);
            self.answers.get(at).is_some_and(other)
        };
        // Where the second place is taken as well, what was there before goes.
        let at = if taken(first) { first ^ 1 } else { first };
        if let Some(at) = self.answers.get_mut(at) {
            *at = Answer { a, b, what, told };
        }
    }

    /// The token of a value.
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
        self.of(connection);
        if self.tokens_used.saturating_mul(2) >= self.tokens.len() {
            self.grow();
        }
        let slot = self.slot(fid);
        if let Some(at) = self.tokens.get_mut(slot) {
            self.tokens_used += usize::from(at.fid != fid);
            *at = Tokened { fid, token };
        }
    }

    fn grow(&mut self) {
        let size = self.tokens.len().saturating_mul(2).max(TOKENS_MIN);
        if size > TOKENS_MAX {
            self.tokens.fill(Tokened::default());
            self.tokens_used = 0;
            return;
        }
        let old = std::mem::replace(&mut self.tokens, vec![Tokened::default(); size]);
        for one in old.iter().filter(|one| one.fid != 0) {
            let slot = self.slot(one.fid);
            if let Some(at) = self.tokens.get_mut(slot) {
                *at = *one;
            }
        }
    }

    /// Where `fid` is, or would be: at least half of the places are empty.
    fn slot(&self, fid: u64) -> usize {
        let mask = self.tokens.len().wrapping_sub(1);
        let mut at = scatter(fid) & mask;
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

/// Spreads identifiers, whose bits are regular, over the places.
fn scatter(bits: u64) -> usize {
    let mixed = bits.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    usize::try_from(mixed >> 40).unwrap_or(0)
}

fn place(a: u64, b: u64, what: u32) -> usize {
    scatter(a ^ b.rotate_left(29) ^ u64::from(what) << 17) % ANSWERS
}

/// Identifiers that a sort has shown, and their ranks: asked for together when twice as many are known as were ranked, or when not knowing has
/// cost enough.
#[derive(Default)]
pub(crate) struct Ranks {
    /// Rank and round of each identifier; round 0 is not ranked yet.
    ranks: std::collections::BTreeMap<u64, (u64, u32)>,
    round: u32,
    ranked: usize,
    /// Pairs since the last round whose order was not known.
    missed: usize,
    connection: u32,
    refused: bool,
}

/// Fewer are not worth a call of their own.
const RANKED_MIN: usize = 64;
/// More do not fit into one call.
pub(crate) const RANKED_MAX: usize = 1 << 16;

impl Ranks {
    /// -1, 0 or 1, when both were ranked in one round.
    pub(crate) fn order(&self, connection: u32, a: u64, b: u64) -> Option<i32> {
        if self.connection != connection {
            return None;
        }
        let (a, b) = (self.ranks.get(&a)?, self.ranks.get(&b)?);
        (a.1 != 0 && a.1 == b.1).then(|| a.0.cmp(&b.0) as i32)
    }

    /// Takes note of two values; gives all, when it is time to rank them.
    pub(crate) fn show(&mut self, connection: u32, a: u64, b: u64) -> Option<Vec<u64>> {
        if self.connection != connection {
            *self = Self {
                connection,
                ..Self::default()
            };
        }
        if self.refused {
            return None;
        }
        for fid in [a, b] {
            self.ranks.entry(fid).or_insert((0, 0));
        }
        self.missed += 1;
        let known = self.ranks.len();
        let doubled = known >= self.ranked.saturating_mul(2);
        // The last ones of a sort would never double what is known.
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

    /// Keeps the ranks of what [`Self::show`] gave.
    pub(crate) fn keep(&mut self, ranks: &[u64]) {
        self.round += 1;
        self.ranked = ranks.len();
        self.missed = 0;
        for (known, rank) in self.ranks.values_mut().zip(ranks) {
            *known = (*rank, self.round);
        }
    }

    /// There are no ranks to be had, or too many.
    pub(crate) fn refuse(&mut self) {
        self.refused = true;
        self.ranks.clear();
    }
}

/// Constants that one value after the other is compared with: the elements of `IN (...)`.
#[derive(Default)]
pub(crate) struct Run {
    value: u64,
    constants: Vec<u64>,
}

/// Longer lists are compared one by one.
const RUN_MAX: usize = 64;

impl Run {
    pub(crate) const fn new() -> Self {
        Self {
            value: 0,
            constants: Vec::new(),
        }
    }

    /// `value` is compared with `constant`. Gives the constants that it will be compared with most likely, when the value before was.
    pub(crate) fn next(&mut self, value: u64, constant: u64) -> Option<&[u64]> {
        if self.value == value {
            if !self.constants.contains(&constant) && self.constants.len() < RUN_MAX {
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

    pub(crate) fn forget(&mut self) {
        self.value = 0;
        self.constants.clear();
    }
}
