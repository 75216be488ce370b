//! Comparison, by value and by the keyed order of a column; equality tokens, ranks.
//!
//! A token is the beginning of HMAC-SHA256 of the value's canonical bytes under a key of the
//! statement and its session (X6): equal for equal values of one statement, unrelated from one
//! statement to the next, and from one session to the next within a statement. Must not: give a
//! truth without asking the policy.

use core::cell::Cell;
use core::cmp::Ordering;
use std::collections::BTreeMap;

use strongroom_columns_ring::op::flag;
use strongroom_columns_ring::{ANSWER_HALF, Area, Descriptor, Fault};
use strongroom_columns_values::{Prepared, Value, compare, token_bytes};
use strongroom_format::columns::Kind;

use super::batch::{Batch, padded_length};
use super::compute::{judge, with_ledger};
use super::value_sources::{Loaded, PolicyInput};
use super::{Zone, answers_of, copy_words, kind_of, offset_of};
use crate::policy::Truth;
use crate::store::keyed_order::compare_under;

/// The byte in a batch's answer for two values that are equal.
const EQUAL: u8 = 1;

/// The most bytes of values that are ranked together: more are compared pair by pair.
const RANKED_BYTES_MAX: usize = 64 << 20;
/// The most bytes of documents that one request reads: some ten milliseconds, and some ten
/// megabytes of memory. More are read one by one.
const DOCUMENT_BYTES_MAX: usize = 512 << 10;

impl Zone {
    /// [`strongroom_columns_ring::Op::Compare`]: compares the values `a` and `b`. Returns -1, 0 or
    /// 1 (two's complement) for less, equal, greater; with the flag `EQUALITY` 0 for equal and 1
    /// for others. Counts in the session's budget and ledger. Faults if a value cannot be loaded or
    /// has another kind, or the policy does not allow the answer.
    pub(super) fn compare(&mut self, ring: u16, descriptor: &Descriptor) -> Result<u64, Fault> {
        let kind = kind_of(descriptor)?;
        let equality = descriptor.flags & flag::EQUALITY != 0;
        self.permitted_pair(
            ring,
            descriptor,
            if equality {
                Truth::Equality
            } else {
                Truth::Order
            },
        )?;
        let [a, b, _] = &self.scratch.args;
        let order = compare(kind, a.value(), b.value())?;
        self.count_positive_truths(ring, u64::from(order == Ordering::Equal));
        let answer = if equality {
            i64::from(order != Ordering::Equal)
        } else {
            i64::from(order as i8)
        };
        Ok(answer.cast_unsigned())
    }

    /// [`strongroom_columns_ring::Op::CompareKeyed`]: compares the values `a` and `b` in the keyed
    /// order of the column in which `a` is stored; if `a` is not stored, of that of `b`; and if
    /// neither is, in an order of the statement's. Returns -1, 0 or 1 (two's complement). Counts in
    /// the session's budget and ledger. Faults as [`Self::compare`] does.
    pub(super) fn compare_keyed(
        &mut self,
        ring: u16,
        descriptor: &Descriptor,
    ) -> Result<u64, Fault> {
        let kind = kind_of(descriptor)?;
        let loaded = self.permitted_pair(ring, descriptor, Truth::Equality)?;
        let stored = loaded.iter().find_map(|loaded| loaded.place);
        let key = match stored {
            Some(place) => {
                let of = self.sources.binding_of(place)?;
                self.sources.store.order_key(of)?
            }
            None => self.sources.rings.token_key(ring)?,
        };
        let [a, b, _] = &self.scratch.args;
        let order = compare_under(key, kind, [a.value(), b.value()])?;
        self.count_positive_truths(ring, u64::from(order == Ordering::Equal));
        Ok(i64::from(order as i8).cast_unsigned())
    }

    /// Loads the values `a` and `b` into the first two of `scratch.args`, and asks the policy
    /// whether such an answer may be given about them, which counts in the session's budget and
    /// ledger. Faults if a value cannot be loaded or has another kind, or the answer is not
    /// allowed.
    fn permitted_pair(
        &mut self,
        ring: u16,
        descriptor: &Descriptor,
        truth: Truth,
    ) -> Result<[Loaded; 2], Fault> {
        let kind = kind_of(descriptor)?;
        let mut policy_input = PolicyInput::new();
        let [a, b, _] = &mut self.scratch.args;
        let mut load = |bits, out| {
            let loaded = self.sources.load_of(ring, bits, kind, out)?;
            self.sources.add_operand(ring, &mut policy_input, &loaded)?;
            Ok::<_, Fault>(loaded)
        };
        let loaded = [load(descriptor.a, a)?, load(descriptor.b, b)?];
        self.permit_truth(ring, truth, &mut policy_input)?;
        self.computed.add(1);
        Ok(loaded)
    }

    /// [`strongroom_columns_ring::Op::CompareMany`]: compares each of `n` identifiers in the data
    /// area with `a`, or `n` pairs with the flag `PAIRS`. Writes a byte for each into the answer
    /// half (0 less, 1 equal, 2 greater), and returns their number. All or nothing: any fault, of
    /// loading or of the policy, writes no answer. Counts in the session's budget and ledger.
    /// `Fault::BadRequest` for too many; `Fault::NotAllowed` without the right,
    /// `Fault::BudgetSpent` if the budget is too small.
    pub(super) fn compare_many(
        &mut self,
        ring: u16,
        descriptor: &Descriptor,
        area: &Area,
    ) -> Result<u64, Fault> {
        let kind = kind_of(descriptor)?;
        let pairs = descriptor.flags & flag::PAIRS != 0;
        let (width, count) = if pairs {
            (2, descriptor.n.checked_mul(2))
        } else {
            (1, Some(descriptor.n))
        };
        let n = count.ok_or(Fault::BadRequest)?;
        copy_words(
            area,
            &Descriptor { n, ..*descriptor },
            &mut self.scratch.words,
        )?;
        let count = self.scratch.words.len() / width;
        if count > ANSWER_HALF {
            return Err(Fault::BadRequest);
        }
        self.check_budget(ring, count as u64)?;
        let mut orders = Vec::with_capacity(count);
        let with = (!pairs).then_some(descriptor.a);
        let mut input = PolicyInput::new();
        input.wanted = count as u64;
        let compared = self.compare_each(ring, kind, with, (&mut input, &mut orders));
        let count = orders.len() as u64;
        self.charge(ring, count, &input)?;
        compared?;
        if count == 0 {
            return Ok(0);
        }
        area.write(answers_of(descriptor)?, &orders)
            .ok_or(Fault::BadRequest)?;
        let equal = orders.iter().filter(|order| **order == EQUAL).count();
        self.count_positive_truths(ring, equal as u64);
        Ok(count)
    }

    /// Compares each value of the identifiers in `scratch.words` with that of `with`; without
    /// `with`, the first of each two identifiers with the second. `orders` gets a byte for each: 0
    /// less, 1 equal, 2 greater; fewer if a fault ends it. `policy_input` gets the values. Faults
    /// of loading; of the policy, before anything is compared that it does not allow.
    fn compare_each(
        &mut self,
        ring: u16,
        kind: Kind,
        with: Option<u64>,
        (policy_input, orders): (&mut PolicyInput, &mut Vec<u8>),
    ) -> Result<(), Fault> {
        let [second, each, _] = &mut self.scratch.args;
        if let Some(bits) = with {
            let loaded = self.sources.load_of(ring, bits, kind, second)?;
            self.sources.add_operand(ring, policy_input, &loaded)?;
        }
        let width = if with.is_some() { 1 } else { 2 };
        let mut documents = DocumentLimit::new(kind);
        for bits in self.scratch.words.chunks_exact(width) {
            let [first, rest @ ..] = bits else { break };
            let loaded = self.sources.load_of(ring, *first, kind, each)?;
            self.sources.add_operand(ring, policy_input, &loaded)?;
            if let [other] = rest {
                let loaded = self.sources.load_of(ring, *other, kind, second)?;
                self.sources.add_operand(ring, policy_input, &loaded)?;
            }
            let sources = &self.sources;
            judge(&mut self.channel, sources, ring, Truth::Order, policy_input)?;
            documents.add(&[each.value(), second.value()])?;
            self.computed.add(1);
            orders.push(match compare(kind, each.value(), second.value())? {
                Ordering::Less => 0,
                Ordering::Equal => EQUAL,
                Ordering::Greater => 2,
            });
        }
        Ok(())
    }

    /// [`strongroom_columns_ring::Op::Token`]: returns the first 8 bytes of the equality token of
    /// the value `a`. Counts in the session's budget and ledger. Faults if the value cannot be
    /// loaded or has another kind, or the policy does not allow tokens.
    pub(super) fn token(&mut self, ring: u16, descriptor: &Descriptor) -> Result<u64, Fault> {
        self.scratch.words.clear();
        self.scratch.words.push(descriptor.a);
        let tokens = self.tokens(ring, kind_of(descriptor)?)?;
        tokens.first().copied().ok_or(Fault::BadRequest)
    }

    /// [`strongroom_columns_ring::Op::TokenMany`]: writes the equality tokens, 16 bytes each, of
    /// `n` identifiers in the data area into its answer half, and returns `n`. Counts in the
    /// session's budget and ledger. Faults, and writes none, if a value cannot be loaded or has
    /// another kind, or the policy does not allow tokens.
    pub(super) fn token_many(
        &mut self,
        ring: u16,
        descriptor: &Descriptor,
        area: &Area,
    ) -> Result<u64, Fault> {
        copy_words(area, descriptor, &mut self.scratch.words)?;
        let tokens = self.tokens(ring, kind_of(descriptor)?)?;
        area.write_words(answers_of(descriptor)?, &tokens)
            .ok_or(Fault::BadRequest)?;
        Ok(self.scratch.words.len() as u64)
    }

    /// The equality tokens of the identifiers in `scratch.words`, two words each, in this order.
    /// Equal values of one kind have equal tokens within a statement. Takes them from the session's
    /// budget and counts them in its ledger. Faults if a value cannot be loaded or has another
    /// kind, or the policy does not allow tokens.
    fn tokens(&mut self, ring: u16, kind: Kind) -> Result<Vec<u64>, Fault> {
        let count = self.scratch.words.len();
        self.check_budget(ring, count as u64)?;
        let mut tokens = Vec::with_capacity(2 * count);
        let mut input = PolicyInput::new();
        input.wanted = count as u64;
        let made = self.token_each(ring, kind, &mut input, &mut tokens);
        self.scratch.buf.clear();
        let count = (tokens.len() / 2) as u64;
        self.charge(ring, count, &input)?;
        made?;
        with_ledger(
            &mut self.channel,
            self.sources.rings.get(ring).ok(),
            |ledger| {
                ledger.count_tokens(count);
            },
        );
        Ok(tokens)
    }

    /// Appends the two words of the token of each identifier in `scratch.words` to `tokens`; of
    /// fewer if a fault ends it. `policy_input` gets the values. Faults of loading; of the policy,
    /// before anything is computed that it does not allow.
    fn token_each(
        &mut self,
        ring: u16,
        kind: Kind,
        policy_input: &mut PolicyInput,
        tokens: &mut Vec<u64>,
    ) -> Result<(), Fault> {
        let [each, ..] = &mut self.scratch.args;
        let mut documents = DocumentLimit::new(kind);
        for bits in &self.scratch.words {
            let loaded = self.sources.load_of(ring, *bits, kind, each)?;
            self.sources.add_operand(ring, policy_input, &loaded)?;
            let sources = &self.sources;
            judge(&mut self.channel, sources, ring, Truth::Token, policy_input)?;
            documents.add(&[each.value()])?;
            self.computed.add(1);
            self.scratch.buf.clear();
            token_bytes(kind, each.value(), &mut self.scratch.buf)?;
            let key = self.sources.rings.token_key(ring)?;
            // The kind is part of the input: tokens of an integer and of a bigint cannot be
            // compared.
            let mac = key.mac(&[&[kind.number()], self.scratch.buf.as_slice()]);
            let (halves, _) = mac.as_chunks::<8>();
            tokens.extend(halves.iter().take(2).map(|half| u64::from_le_bytes(*half)));
        }
        Ok(())
    }

    /// [`strongroom_columns_ring::Op::RankMany`]: replaces each of `n` identifiers in the data area
    /// by its dense rank (0 for the least value, equal values alike), or with the flag `EQUALITY`
    /// by a number that equal values have in common, and returns `n`. Counts in the session's
    /// budget and ledger. `Fault::StringTooLong` if the values have more than 64 MiB, documents
    /// more than 512 KiB; faults of loading and of the policy.
    pub(super) fn rank_many(
        &mut self,
        ring: u16,
        descriptor: &Descriptor,
        area: &Area,
    ) -> Result<u64, Fault> {
        let kind = kind_of(descriptor)?;
        let equality = descriptor.flags & flag::EQUALITY != 0;
        let truth = if equality {
            Truth::Equality
        } else {
            Truth::Rank
        };
        copy_words(area, descriptor, &mut self.scratch.words)?;
        let [each, ..] = &mut self.scratch.args;
        let mut policy_input = PolicyInput::new();
        policy_input.wanted = self.scratch.words.len() as u64;
        let limit = match kind {
            Kind::Jsonb => DOCUMENT_BYTES_MAX,
            _ => RANKED_BYTES_MAX,
        };
        let mut batch = Batch::new(self.scratch.words.len(), limit);
        for bits in &self.scratch.words {
            let loaded = self.sources.load_of(ring, *bits, kind, each)?;
            self.sources.add_operand(ring, &mut policy_input, &loaded)?;
            let sources = &self.sources;
            judge(&mut self.channel, sources, ring, truth, &mut policy_input)?;
            batch.push(each.value())?;
        }
        let count = self.scratch.words.len() as u64;
        if count == 0 {
            return Ok(0);
        }
        self.charge(ring, count, &policy_input)?;
        self.computed.add(count);
        rank(kind, &batch, &mut self.scratch.words)?;
        if equality {
            number_as_they_come(&mut self.scratch.words);
        }
        let words = &self.scratch.words;
        area.write_words(offset_of(descriptor)?, words)
            .ok_or(Fault::BadRequest)?;
        with_ledger(
            &mut self.channel,
            self.sources.rings.get(ring).ok(),
            |ledger| {
                ledger.count_ranks(count);
            },
        );
        Ok(count)
    }
}

/// How many bytes of documents one request may still read (R7).
struct DocumentLimit {
    /// `None` for values of another kind.
    left: Option<usize>,
    /// Whether none was read yet: one by one they are read however long they are.
    is_first: bool,
}

impl DocumentLimit {
    /// The limit of a request on values of this kind.
    fn new(kind: Kind) -> Self {
        Self {
            left: (kind == Kind::Jsonb).then_some(DOCUMENT_BYTES_MAX),
            is_first: true,
        }
    }

    /// Counts the values that are read for one answer; their lengths count as an envelope tells
    /// them. `Fault::StringTooLong` if they are too many together with those before.
    fn add(&mut self, values: &[Value<'_>]) -> Result<(), Fault> {
        let Some(left) = &mut self.left else {
            return Ok(());
        };
        let mut together = 0_usize;
        for value in values {
            together = together.saturating_add(padded_length(value.bytes()?.len()));
        }
        let is_first = std::mem::take(&mut self.is_first);
        match left.checked_sub(together) {
            Some(rest) => *left = rest,
            None if is_first => *left = 0,
            None => return Err(Fault::StringTooLong),
        }
        Ok(())
    }
}

/// Replaces dense ranks by numbers in the order in which they come, from 0: equal ones stay equal,
/// and which is less is lost.
fn number_as_they_come(ranks: &mut [u64]) {
    let mut numbers = BTreeMap::new();
    for rank in ranks {
        let next = numbers.len() as u64;
        *rank = *numbers.entry(*rank).or_insert(next);
    }
}

/// Replaces each element of `ranks` by the dense rank, from 0, of the batch's value at the same
/// index. Fails if two of the values cannot be compared; `ranks` is then undefined.
fn rank(kind: Kind, batch: &Batch, ranks: &mut [u64]) -> Result<(), Fault> {
    let mut order: Vec<usize> = (0..ranks.len()).collect();
    // With room for all: a list that grows would leave values behind.
    let mut values = Vec::with_capacity(order.len());
    for at in &order {
        values.push(Prepared::new(kind, batch.get(*at)?)?);
    }
    let failed = Cell::new(None);
    let ordering = |a: usize, b: usize| {
        let compared = match (values.get(a), values.get(b)) {
            (Some(a), Some(b)) => a.compare(b),
            _ => Err(Fault::BadRequest),
        };
        compared.unwrap_or_else(|fault| {
            failed.set(Some(fault));
            Ordering::Equal
        })
    };
    order.sort_unstable_by(|a, b| ordering(*a, *b));
    let (mut rank, mut before) = (0, None);
    for at in order {
        if before.is_some_and(|before| ordering(before, at) != Ordering::Equal) {
            rank += 1;
        }
        before = Some(at);
        *ranks.get_mut(at).ok_or(Fault::BadRequest)? = rank;
    }
    failed.take().map_or(Ok(()), Err)
}
