//! Functions: of values giving values, and of values giving truths.
//!
//! Must not: know what a function does.

use std::time::{Duration, Instant};

use strongroom_columns_ring::function::{Arg, Field, Function, Gives};
use strongroom_columns_ring::{Area, Descriptor, Fault};
use strongroom_columns_values::Operand;
use strongroom_format::columns::Fid;
use strongroom_format::columns::channel::right;

use super::ground::Judged;
use super::rings::Ring;
use super::{Zone, answers_of, copy_words};
use crate::arena::{Meta, ScopeId};
use crate::policy;
use crate::session::channel::Channel;

/// How long a batch of tests may go on: nobody else is served meanwhile, and who waits for it cannot cancel it.
const BATCH_TIME: Duration = Duration::from_millis(20);

/// How often a session's answer holds before it is asked again, within one statement.
const GRANTED: u16 = 1024;

impl Zone {
    /// [`strongroom_columns_ring::Op::Compute`].
    pub(super) fn compute(
        &mut self,
        ring: u16,
        descriptor: &Descriptor,
        third: Option<u64>,
    ) -> Result<(), Fault> {
        let resolved = self.functions.get(descriptor.n)?;
        let Gives::Value(kind) = resolved.function.gives else {
            return Err(Fault::BadRequest);
        };
        let computation = resolved.computation.ok_or(Fault::BadRequest)?;
        let judged = self.arguments(ring, resolved.function, descriptor, third)?;
        let scope = judged.scope()?;
        self.permit(ring, right::COMPUTE | judged.common.further(), scope)?;
        let operands = operands(&self.hands.args, resolved.function, descriptor, third)?;
        let state = self.ground.rings.get_mut(ring)?;
        let operands = operands
            .get(..resolved.function.args.len())
            .ok_or(Fault::BadRequest)?;
        computation.run(operands, &state.settings, &mut self.hands.out)?;
        let fid = Fid::from_bits(descriptor.r).ok_or(Fault::ForgedFid)?;
        state
            .arena
            .put(fid, Meta { kind, scope }, self.hands.out.value())?;
        state.computed += 1;
        Ok(())
    }

    /// [`strongroom_columns_ring::Op::Test`].
    pub(super) fn test(
        &mut self,
        ring: u16,
        descriptor: &Descriptor,
        third: Option<u64>,
    ) -> Result<u64, Fault> {
        let resolved = self.functions.get(descriptor.n)?;
        let condition = resolved.condition.ok_or(Fault::BadRequest)?;
        let judged = self.arguments(ring, resolved.function, descriptor, third)?;
        self.permit_truths(ring, right::COMPARE, &judged, 1)?;
        let operands = operands(&self.hands.args, resolved.function, descriptor, third)?;
        let operands = operands
            .get(..resolved.function.args.len())
            .ok_or(Fault::BadRequest)?;
        let truth = condition.run(operands)?;
        self.tell_positive(ring, u64::from(truth));
        Ok(u64::from(truth))
    }

    /// [`strongroom_columns_ring::Op::TestMany`].
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
            &mut self.hands.words,
        )?;
        let [Arg::Of(first), Arg::Of(second)] = resolved.function.args else {
            return Err(Fault::BadRequest);
        };
        let [each, with, _] = &mut self.hands.args;
        let mut judged = Judged::new();
        let loaded = self.ground.load_of(ring, descriptor.a, *second, with)?;
        self.ground.gather(ring, &mut judged, &loaded)?;
        let (mut truths, mut positive) = (Vec::with_capacity(self.hands.words.len()), 0);
        let begun = Instant::now();
        for bits in &self.hands.words {
            if begun.elapsed() > BATCH_TIME {
                break;
            }
            let loaded = self.ground.load_of(ring, *bits, *first, each)?;
            self.ground.gather(ring, &mut judged, &loaded)?;
            // Whether a failure is one is known only when this very value is asked about.
            let truth =
                condition.run(&[Operand::Value(each.value()), Operand::Value(with.value())]);
            positive += u64::from(truth == Ok(true));
            truths.push(truth.map_or(2, u8::from));
        }
        // Nothing has been told so far, and of what was left out nothing is.
        self.permit_truths(ring, right::COMPARE, &judged, truths.len() as u64)?;
        truths.resize(self.hands.words.len(), 2);
        let count = truths.len() as u64;
        area.write(answers_of(descriptor)?, &truths)
            .ok_or(Fault::BadRequest)?;
        self.tell_positive(ring, positive);
        Ok(count)
    }

    /// Copies the confidential arguments of a function out.
    fn arguments(
        &mut self,
        ring: u16,
        function: &Function,
        descriptor: &Descriptor,
        third: Option<u64>,
    ) -> Result<Judged, Fault> {
        let given = [Some(descriptor.a), Some(descriptor.b), third];
        let mut judged = Judged::new();
        for ((arg, bits), out) in function.args.iter().zip(given).zip(&mut self.hands.args) {
            let bits = bits.ok_or(Fault::BadRequest)?;
            if let Arg::Of(kind) = arg {
                let loaded = self.ground.load_of(ring, bits, *kind, out)?;
                self.ground.gather(ring, &mut judged, &loaded)?;
            }
        }
        Ok(judged)
    }

    /// Asks the session for rights on the keys of a scope.
    pub(super) fn permit(&mut self, ring: u16, rights: u32, scope: ScopeId) -> Result<(), Fault> {
        let state = self.ground.rings.get_mut(ring)?;
        if state.granted.holds(rights, scope) {
            return Ok(());
        }
        let session = Self::session(&mut self.channel, state).ok_or(Fault::NotAllowed)?;
        session.allow(rights, state.arena.scopes.get(scope)?.keys())?;
        state.granted.keep(rights, scope, GRANTED);
        Ok(())
    }

    /// Asks whether `count` truths may be given.
    pub(super) fn permit_truths(
        &mut self,
        ring: u16,
        wanted: u32,
        judged: &Judged,
        count: u64,
    ) -> Result<(), Fault> {
        let state = self.ground.rings.get(ring)?;
        let scope = state.arena.scopes.get(judged.scope()?)?;
        let session = Self::session(&mut self.channel, state);
        policy::truths(session, wanted, judged.common, scope, count)
    }

    /// Tells the ledger how many of the truths were positive.
    pub(super) fn tell_positive(&mut self, ring: u16, count: u64) {
        tell(
            &mut self.channel,
            self.ground.rings.get(ring).ok(),
            |ledger| {
                ledger.count_positive(count);
            },
        );
    }
}

/// Tells the ledger of a ring's session something.
pub(super) fn tell(
    channel: &mut Channel,
    ring: Option<&Ring>,
    what: impl FnOnce(&crate::session::Ledger),
) {
    if let Some(session) = ring.and_then(|ring| Zone::session(channel, ring)) {
        what(session.ledger());
    }
}

/// The arguments as the function wants them; what it has not is a plain 0.
fn operands<'a>(
    values: &'a [strongroom_columns_values::Out; 3],
    function: &Function,
    descriptor: &Descriptor,
    third: Option<u64>,
) -> Result<[Operand<'a>; 3], Fault> {
    let given = [descriptor.a, descriptor.b, third.unwrap_or_default()];
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

/// A number in clear: an `integer`, extended to 64 bits with or without its sign.
fn plain(bits: u64) -> Result<i32, Fault> {
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
