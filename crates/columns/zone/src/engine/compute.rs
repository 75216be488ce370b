//! Operations that apply functions: to compute values, and to test them.
//!
//! Must not: know what a function does.

use core::cmp::Ordering;
use std::time::{Duration, Instant};

use strongroom_columns_ring::function::{Arg, Field, Function, Gives};
use strongroom_columns_ring::{Area, Descriptor, Fault};
use strongroom_columns_values::{Condition, Operand, compare, has_precision};
use strongroom_format::columns::channel::right;
use strongroom_format::columns::{Fid, Kind};

use super::backends::Ring;
use super::value_sources::{PolicyInput, ValueSources};
use super::{Zone, answers_of, copy_words};
use crate::arena::{Meta, Origin, ScopeId};
use crate::key_ledger::{To, Told};
use crate::policy::{self, Truth};
use crate::session::channel::Channel;

/// The longest time of a batch of tests or of rows: no other ring is served meanwhile, and the
/// backend that waits cannot cancel it.
pub(super) const BATCH_TIME_MAX: Duration = Duration::from_millis(20);

/// How often a grant of the session is used, within one statement, before the session is asked
/// again.
const GRANT_USES: u16 = 1024;

impl Zone {
    /// [`strongroom_columns_ring::Op::Compute`]: computes function `n` of up to three arguments,
    /// and puts the result into the slot `r`. `Fault::BadRequest` for an unknown function, one that
    /// returns a boolean, or a missing argument; faults if the session does not allow computing
    /// with these keys; those of loading the arguments and of the function.
    pub(super) fn compute(
        &mut self,
        ring: u16,
        descriptor: &Descriptor,
        third_argument: Option<u64>,
    ) -> Result<(), Fault> {
        let resolved = self.functions.get(descriptor.n)?;
        let Gives::Value(kind) = resolved.function.gives else {
            return Err(Fault::BadRequest);
        };
        let computation = resolved.computation.ok_or(Fault::BadRequest)?;
        let policy_input = self.arguments(ring, resolved.function, descriptor, third_argument)?;
        let scope = policy_input.scope()?;
        self.permit(
            ring,
            right::COMPUTE | policy_input.common.extra_rights(),
            scope,
        )?;
        let operands = operands(
            &self.scratch.args,
            resolved.function,
            descriptor,
            third_argument,
        )?;
        let state = self.sources.rings.get_mut(ring)?;
        let operands = operands
            .get(..resolved.function.args.len())
            .ok_or(Fault::BadRequest)?;
        self.computed.add(1);
        state.note_computed_from(scope)?;
        computation.run(operands, &state.settings, &mut self.scratch.out)?;
        let fid = Fid::from_bits(descriptor.r).ok_or(Fault::ForgedFid)?;
        let same = self.stays_what_it_was(ring, resolved.function, descriptor, &policy_input)?;
        let scope = if same {
            policy_input.last_scope().ok_or(Fault::BadRequest)?
        } else {
            scope
        };
        let state = self.sources.rings.get_mut(ring)?;
        state
            .arena
            .put(fid, Meta { kind, scope }, self.scratch.out.value())
    }

    /// [`strongroom_columns_ring::Op::Test`]: computes function `n`, which returns a boolean, and
    /// returns 0 or 1. Counts in the session's budget and ledger. `Fault::BadRequest` for an
    /// unknown function, one that gives a value, or a missing argument; faults of loading, of the
    /// policy and of the function.
    pub(super) fn test(
        &mut self,
        ring: u16,
        descriptor: &Descriptor,
        third_argument: Option<u64>,
    ) -> Result<u64, Fault> {
        let resolved = self.functions.get(descriptor.n)?;
        let condition = resolved.condition.ok_or(Fault::BadRequest)?;
        let mut policy_input =
            self.arguments(ring, resolved.function, descriptor, third_argument)?;
        self.permit_truth(ring, Truth::Condition, &mut policy_input)?;
        let operands = operands(
            &self.scratch.args,
            resolved.function,
            descriptor,
            third_argument,
        )?;
        let operands = operands
            .get(..resolved.function.args.len())
            .ok_or(Fault::BadRequest)?;
        self.computed.add(1);
        let truth = condition.run(operands)?;
        self.count_positive_truths(ring, u64::from(truth));
        Ok(u64::from(truth))
    }

    /// [`strongroom_columns_ring::Op::TestMany`]: computes function `n`, which returns a boolean,
    /// for each of `r` identifiers in the data area and of `a`. Writes a byte for each into the
    /// answer half: 0, 1, or 2 where the function fails, and for all that are left after 20 ms.
    /// Returns their number. Faults of loading and of the policy; then no answer is written.
    pub(super) fn test_many(
        &mut self,
        ring: u16,
        descriptor: &Descriptor,
        area: &Area,
    ) -> Result<u64, Fault> {
        let resolved = self.functions.get(descriptor.n)?;
        let condition = resolved.condition.ok_or(Fault::BadRequest)?;
        let n = u32::try_from(descriptor.r).map_err(|_| Fault::BadRequest)?;
        copy_words(
            area,
            &Descriptor { n, ..*descriptor },
            &mut self.scratch.words,
        )?;
        let [Arg::Of(first), Arg::Of(second)] = resolved.function.args else {
            return Err(Fault::BadRequest);
        };
        let kinds = (*first, *second);
        self.check_budget(ring, self.scratch.words.len() as u64)?;
        let mut truths = Vec::with_capacity(self.scratch.words.len());
        let mut input = PolicyInput::new();
        input.wanted = self.scratch.words.len() as u64;
        let with = descriptor.a;
        let tested = self.test_each(ring, condition, kinds, with, (&mut input, &mut truths));
        let positive = truths.iter().filter(|truth| **truth == 1).count() as u64;
        self.charge(ring, truths.len() as u64, &input)?;
        tested?;
        truths.resize(self.scratch.words.len(), 2);
        let count = truths.len() as u64;
        area.write(answers_of(descriptor)?, &truths)
            .ok_or(Fault::BadRequest)?;
        self.count_positive_truths(ring, positive);
        Ok(count)
    }

    /// Tests each value of the identifiers in `scratch.words`, of the first of `kinds`, with the
    /// value of `with`, of the second. `truths` gets a byte for each: 0, 1, or 2 where the function
    /// fails; fewer than there are identifiers after 20 ms, or if a fault ends it. `policy_input`
    /// gets the values. Faults of loading; of the policy, before anything is computed that it does
    /// not allow.
    fn test_each(
        &mut self,
        ring: u16,
        condition: Condition,
        kinds: (Kind, Kind),
        with: u64,
        (policy_input, truths): (&mut PolicyInput, &mut Vec<u8>),
    ) -> Result<(), Fault> {
        let [each, second, _] = &mut self.scratch.args;
        let loaded = self.sources.load_of(ring, with, kinds.1, second)?;
        self.sources.add_operand(ring, policy_input, &loaded)?;
        let begun = Instant::now();
        for bits in &self.scratch.words {
            if begun.elapsed() > BATCH_TIME_MAX {
                break;
            }
            let loaded = self.sources.load_of(ring, *bits, kinds.0, each)?;
            self.sources.add_operand(ring, policy_input, &loaded)?;
            let sources = &self.sources;
            judge(
                &mut self.channel,
                sources,
                ring,
                Truth::Condition,
                policy_input,
            )?;
            self.computed.add(1);
            // A failure is reported only when this very value is asked about: here its answer is 2.
            let truth =
                condition.run(&[Operand::Value(each.value()), Operand::Value(second.value())]);
            truths.push(truth.map_or(2, u8::from));
        }
        Ok(())
    }

    /// Whether the result of a cast is what the argument was: the same number, of the same column
    /// or sealed by its owner for the same column. The result is in `scratch.out`. A numeric
    /// without precision and scale stays what it is; where they change a constant it is another
    /// number, and whether they did shows when it is stored, so it is charged as an answer.
    /// `Fault::BudgetSpent` if the budget has none left.
    fn stays_what_it_was(
        &mut self,
        ring: u16,
        function: &Function,
        descriptor: &Descriptor,
        input: &PolicyInput,
    ) -> Result<bool, Fault> {
        let fits = matches!(function.args, [Arg::Of(_), Arg::Plain]);
        if fits && function.keeps_value() && !has_precision(plain(descriptor.b)?) {
            return Ok(true);
        }
        let state = self.sources.rings.get(ring)?;
        let scope = input.last_scope().ok_or(Fault::BadRequest)?;
        let scope = state.arena.scopes.get(scope)?;
        let for_column = scope.origin() == Origin::Constant && scope.lineage().is_column();
        if !for_column || !function.keeps_value() {
            return Ok(false);
        }
        let [Arg::Of(kind), Arg::Plain] = function.args else {
            return Ok(true);
        };
        self.charge_check(ring, input.scope)?;
        let [given, ..] = &self.scratch.args;
        Ok(compare(*kind, given.value(), self.scratch.out.value())? == Ordering::Equal)
    }

    /// Copies the confidential arguments of a function to `scratch.args`, each at its position, and
    /// returns what the policy needs to know about them. `Fault::BadRequest` if one is missing;
    /// faults of loading the values.
    fn arguments(
        &mut self,
        ring: u16,
        function: &Function,
        descriptor: &Descriptor,
        third_argument: Option<u64>,
    ) -> Result<PolicyInput, Fault> {
        let given = [Some(descriptor.a), Some(descriptor.b), third_argument];
        let mut policy_input = PolicyInput::new();
        for ((arg, bits), out) in function.args.iter().zip(given).zip(&mut self.scratch.args) {
            let bits = bits.ok_or(Fault::BadRequest)?;
            if let Arg::Of(kind) = arg {
                let loaded = self.sources.load_of(ring, bits, *kind, out)?;
                self.sources.add_operand(ring, &mut policy_input, &loaded)?;
            }
        }
        Ok(policy_input)
    }

    /// Checks that the ring's session has these rights on all keys of a scope; `Fault::NotAllowed`
    /// if not. A grant is kept for 1024 further uses in the statement, without asking the session.
    pub(super) fn permit(&mut self, ring: u16, rights: u32, scope: ScopeId) -> Result<(), Fault> {
        let state = self.sources.rings.get_mut(ring)?;
        if state.granted.take(rights, scope) {
            return Ok(());
        }
        self.allow(ring, rights, scope)?;
        let state = self.sources.rings.get_mut(ring)?;
        state.granted.insert(rights, scope, GRANT_USES);
        Ok(())
    }

    /// Checks the same as [`Self::permit`], by asking the session each time: for operations of many
    /// rows.
    pub(super) fn allow(&mut self, ring: u16, rights: u32, scope: ScopeId) -> Result<(), Fault> {
        let state = self.sources.rings.get(ring)?;
        let session = Self::session(&mut self.channel, state).ok_or(Fault::NotAllowed)?;
        session.allow(rights, state.arena.scopes.get(scope)?.keys())
    }

    /// Asks the policy whether one such answer may be given about these values, and takes it from
    /// the session's budget. `Fault::NotAllowed` or `Fault::BudgetSpent` if not.
    pub(super) fn permit_truth(
        &mut self,
        ring: u16,
        truth: Truth,
        policy_input: &mut PolicyInput,
    ) -> Result<(), Fault> {
        policy_input.wanted = 1;
        judge(&mut self.channel, &self.sources, ring, truth, policy_input)?;
        self.charge(ring, 1, policy_input)
    }

    /// Checks that the session, if there is one, has so many truths left, before any of a batch is
    /// computed. `Fault::BudgetSpent` if not.
    pub(super) fn check_budget(&mut self, ring: u16, count: u64) -> Result<(), Fault> {
        let state = self.sources.rings.get(ring)?;
        Self::session(&mut self.channel, state)
            .map_or(Ok(()), |session| session.check_budget(count))
    }

    /// Takes so many truths from the budget of the session, if there is one, and counts them in its
    /// ledger and in those of the keys of `input`. With a session order counts, too, though
    /// everybody gets that of one column: the ledgers have all answers. Those that were computed
    /// count even if they are not given, because the server sees how long the zone computes.
    /// `Fault::BudgetSpent` if fewer are left; faults of making the counts durable.
    pub(super) fn charge(
        &mut self,
        ring: u16,
        count: u64,
        input: &PolicyInput,
    ) -> Result<(), Fault> {
        let state = self.sources.rings.get(ring)?;
        let Some(session) = Self::session(&mut self.channel, state) else {
            let Some(scope) = input.scope else {
                return Ok(());
            };
            let keys = state.arena.scopes.get(scope)?.keys();
            let told = Told::truths(count);
            return self.sources.store.charge(keys, To::NoSession, told);
        };
        session.spend_truths(count)?;
        settle(&mut self.channel, &mut self.sources, ring, input.scope)
    }

    /// Charges the ring's session, if there is one, for knowing whether what it has computed since
    /// the last call has failed (A4). `Fault::BudgetSpent` if no answer is left; faults of making
    /// the counts durable.
    pub(super) fn charge_check(&mut self, ring: u16, scope: Option<ScopeId>) -> Result<(), Fault> {
        let state = self.sources.rings.get(ring)?;
        if let Some(session) = Self::session(&mut self.channel, state) {
            session.spend_check()?;
        }
        settle(&mut self.channel, &mut self.sources, ring, scope)
    }

    /// Adds to the session's ledger how many of the answers that were given were true. Nothing
    /// without a session.
    pub(super) fn count_positive_truths(&mut self, ring: u16, count: u64) {
        with_ledger(
            &mut self.channel,
            self.sources.rings.get(ring).ok(),
            |ledger| {
                ledger.count_positive(count);
            },
        );
    }
}

/// Asks the policy whether such answers may be given about the values in the input, and the ledgers
/// of their keys whether as many are left as the operation may give, unless it was allowed already.
/// `Fault::NotAllowed` or `Fault::BudgetSpent` if not, `Fault::BadRequest` without any value.
pub(super) fn judge(
    channel: &mut Channel,
    sources: &ValueSources,
    ring: u16,
    truth: Truth,
    input: &mut PolicyInput,
) -> Result<(), Fault> {
    if !input.judged {
        let state = sources.rings.get(ring)?;
        let scope = state.arena.scopes.get(input.scope()?)?;
        let mut session = Zone::session(channel, state);
        policy::judge(session.as_deref_mut(), truth, input.common, scope)?;
        if let Some(session) = session {
            let left = sources.store.key_ledgers();
            let named = scope.keys().iter().filter(|key| session.names(key));
            let left = left.check(named, input.wanted, crate::clock::now);
            left.inspect_err(|_| session.count_refusal())?;
        }
        input.judged = true;
    }
    Ok(())
}

/// Counts what the ring's session was told since the last call in the ledgers of the keys of
/// `scope`; without one, of all keys that the ticket names. Nothing without a session. Of a key
/// that the ticket does not name, everybody is told as much: it does not count as told to the
/// session. `Fault::BudgetSpent` if one of the keys has less left; faults of making the counts
/// durable. Then nothing may be told.
pub(super) fn settle(
    channel: &mut Channel,
    sources: &mut ValueSources,
    ring: u16,
    scope: Option<ScopeId>,
) -> Result<(), Fault> {
    let state = sources.rings.get(ring)?;
    let Some(session) = Zone::session(channel, state) else {
        return Ok(());
    };
    let told = session.take_told();
    // Most values that are stored tell nothing.
    if told == Told::default() {
        return Ok(());
    }
    let keys = match scope {
        Some(scope) => state.arena.scopes.get(scope)?.keys(),
        None => &session.ticket().keys,
    };
    let to = To::Session(session.name());
    let done = if keys.iter().all(|key| session.names(key)) {
        sources.store.charge(keys, to, told)
    } else {
        let (named, others): (Vec<_>, Vec<_>) = keys.iter().partition(|key| session.names(key));
        let done = sources.store.charge(&named, to, told);
        done.and_then(|()| sources.store.charge(&others, To::NoSession, told))
    };
    if done == Err(Fault::BudgetSpent) {
        session.count_refusal();
    }
    done
}

/// Calls `what` with the ledger of the ring's session, if there is a ring and it has one.
pub(super) fn with_ledger(
    channel: &mut Channel,
    ring: Option<&Ring>,
    what: impl FnOnce(&crate::session::Ledger),
) {
    if let Some(session) = ring.and_then(|ring| Zone::session(channel, ring)) {
        what(session.ledger());
    }
}

/// The function's arguments in the form that it takes: confidential ones from `values`, plain ones
/// and fields from the descriptor. Those beyond the function's are a plain 0. `Fault::FieldUnknown`
/// for an unknown field, `Fault::BadRequest` for a plain number that is no `integer`.
fn operands<'a>(
    values: &'a [strongroom_columns_values::Out; 3],
    function: &Function,
    descriptor: &Descriptor,
    third_argument: Option<u64>,
) -> Result<[Operand<'a>; 3], Fault> {
    let given = [
        descriptor.a,
        descriptor.b,
        third_argument.unwrap_or_default(),
    ];
    let mut operands = [Operand::Plain(0); 3];
    let places = operands.iter_mut().zip(values).zip(given);
    for (arg, ((operand, value), bits)) in function.args.iter().zip(places) {
        *operand = match arg {
            Arg::Of(_) => Operand::Value(value.value()),
            Arg::Plain => Operand::Plain(plain(bits)?),
            Arg::Name => {
                let number = u8::try_from(bits).map_err(|_| Fault::FieldUnknown)?;
                Operand::Field(Field::from_number(number).ok_or(Fault::FieldUnknown)?)
            }
        };
    }
    Ok(operands)
}

/// An `integer` in clear, from a word to which it was extended with or without its sign.
/// `Fault::BadRequest` if the word holds more than 32 bits.
pub(super) fn plain(bits: u64) -> Result<i32, Fault> {
    if let Ok(unsigned) = u32::try_from(bits) {
        return Ok(unsigned.cast_signed());
    }
    i32::try_from(bits.cast_signed()).map_err(|_| Fault::BadRequest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_clear_come_with_and_without_sign() {
        assert_eq!(plain(5), Ok(5));
        assert_eq!(plain(0xffff_ffff), Ok(-1));
        assert_eq!(plain(u64::MAX), Ok(-1));
        assert_eq!(plain((-7_i64).cast_unsigned()), Ok(-7));
        assert_eq!(plain(1 << 32), Err(Fault::BadRequest));
        assert_eq!(plain(1 << 63), Err(Fault::BadRequest));
    }
}
