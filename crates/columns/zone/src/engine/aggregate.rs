//! Aggregates: accumulators in the arena, values added by posted operations.
//!
//! Must not: know how an aggregate is computed.

use strongroom_columns_ring::{Descriptor, Fault};
use strongroom_columns_values::Accumulator;
use strongroom_format::columns::Fid;
use strongroom_format::columns::channel::right;

use super::value_sources::PolicyInput;
use super::{Zone, aggregate_of, kind_of};
use crate::arena::{Meta, RunningAggregate};

impl Zone {
    /// [`strongroom_columns_ring::Op::Accumulate`]: adds value `b` to the accumulator `r`, which is
    /// made if the slot is empty; `a` is a delimiter, or 0. The accumulator's scope comes to
    /// include the value's. Faults if the session does not allow aggregates of these values, or `r`
    /// is of another aggregate or kind; those of loading and adding.
    pub(super) fn accumulate(&mut self, ring: u16, descriptor: &Descriptor) -> Result<(), Fault> {
        let kind = kind_of(descriptor)?;
        let aggregate = aggregate_of(descriptor)?;
        let fid = Fid::from_bits(descriptor.r).ok_or(Fault::ForgedFid)?;
        let mut policy_input = PolicyInput::new();
        let [value, delimiter, _] = &mut self.scratch.args;
        let loaded = self.sources.load_of(ring, descriptor.b, kind, value)?;
        self.sources.add_operand(ring, &mut policy_input, &loaded)?;
        if descriptor.a != 0 {
            let loaded = self.sources.load_of(ring, descriptor.a, kind, delimiter)?;
            self.sources.add_operand(ring, &mut policy_input, &loaded)?;
        }
        let scope = policy_input.scope()?;
        self.permit(
            ring,
            right::AGGREGATE | policy_input.common.extra_rights(),
            scope,
        )?;
        self.computed.add(1);
        let [value, delimiter, _] = &self.scratch.args;
        let delimiter = (descriptor.a != 0).then(|| delimiter.value());
        let state = self.sources.rings.get_mut(ring)?;
        state.note_computed_from(scope)?;
        let arena = &mut state.arena;
        if let Some((total, scopes)) = arena.aggregate_mut(fid)? {
            if total.accumulator.aggregate_and_kind() != (aggregate, kind) {
                return Err(Fault::NotAnAccumulator);
            }
            if total.scope != scope {
                total.scope = scopes.join_cached(total.scope, scope)?;
            }
            return total.accumulator.add(value.value(), delimiter);
        }
        let mut accumulator = Accumulator::new(aggregate, kind).ok_or(Fault::BadRequest)?;
        accumulator.add(value.value(), delimiter)?;
        arena.put_aggregate(fid, RunningAggregate { accumulator, scope })
    }

    /// [`strongroom_columns_ring::Op::Combine`]: adds the accumulator `b`, of this ring or one in
    /// its parallel group, to the accumulator `r`, which is made if the slot is empty. `b` is not
    /// changed. `Fault::ForgedFid` if `b` is of another group or empty; `Fault::NotAnAccumulator`
    /// if either is of another aggregate or kind; `Fault::NotAllowed` without the right.
    pub(super) fn combine(&mut self, ring: u16, descriptor: &Descriptor) -> Result<(), Fault> {
        let kind = kind_of(descriptor)?;
        let aggregate = aggregate_of(descriptor)?;
        let from = Fid::from_bits(descriptor.b).ok_or(Fault::ForgedFid)?;
        let fid = Fid::from_bits(descriptor.r).ok_or(Fault::ForgedFid)?;
        let theirs = from.partition();
        if !self.sources.rings.same_group(ring, theirs) {
            return Err(Fault::ForgedFid);
        }
        let other = &self.sources.rings.get(theirs)?.arena;
        let total = other.aggregate(from)?.ok_or(Fault::ForgedFid)?;
        if total.accumulator.aggregate_and_kind() != (aggregate, kind) {
            return Err(Fault::NotAnAccumulator);
        }
        let scope = other.scopes.get(total.scope)?.clone();
        let arena = &mut self.sources.rings.get_mut(ring)?.arena;
        let scope = arena.scopes.intern(scope)?;
        self.permit(ring, right::AGGREGATE, scope)?;
        self.computed.add(1);
        // A copy: the other one may be in another arena, or this very one.
        let mut added = Accumulator::new(aggregate, kind).ok_or(Fault::BadRequest)?;
        let other = &self.sources.rings.get(theirs)?.arena;
        let total = other.aggregate(from)?.ok_or(Fault::ForgedFid)?;
        added.combine(&total.accumulator)?;
        let state = self.sources.rings.get_mut(ring)?;
        state.note_computed_from(scope)?;
        let arena = &mut state.arena;
        if let Some((total, scopes)) = arena.aggregate_mut(fid)? {
            if total.accumulator.aggregate_and_kind() != (aggregate, kind) {
                return Err(Fault::NotAnAccumulator);
            }
            total.scope = scopes.join_cached(total.scope, scope)?;
            return total.accumulator.combine(&added);
        }
        let total = RunningAggregate {
            accumulator: added,
            scope,
        };
        arena.put_aggregate(fid, total)
    }

    /// [`strongroom_columns_ring::Op::Final`]: puts the result of the accumulator `a`, of this ring
    /// or one in its parallel group, into the slot `r`, and returns 1. Returns 0, and fills no
    /// slot, if the result is NULL. `Fault::ForgedFid` if `a` is of another group or empty;
    /// `Fault::NotAllowed` without the right; faults of computing.
    pub(super) fn finish(&mut self, ring: u16, descriptor: &Descriptor) -> Result<u64, Fault> {
        let from = Fid::from_bits(descriptor.a).ok_or(Fault::ForgedFid)?;
        let fid = Fid::from_bits(descriptor.r).ok_or(Fault::ForgedFid)?;
        let theirs = from.partition();
        if !self.sources.rings.same_group(ring, theirs) {
            return Err(Fault::ForgedFid);
        }
        let other = &self.sources.rings.get(theirs)?.arena;
        let total = other.aggregate(from)?.ok_or(Fault::ForgedFid)?;
        let scope = other.scopes.get(total.scope)?.clone();
        let arena = &mut self.sources.rings.get_mut(ring)?.arena;
        let scope = arena.scopes.intern(scope)?;
        self.permit(ring, right::AGGREGATE, scope)?;
        let other = &self.sources.rings.get(theirs)?.arena;
        let total = other.aggregate(from)?.ok_or(Fault::ForgedFid)?;
        let (aggregate, kind) = total.accumulator.aggregate_and_kind();
        let kind = aggregate.gives(kind).ok_or(Fault::BadRequest)?;
        let Some(result) = total.accumulator.finish()? else {
            return Ok(0);
        };
        let arena = &mut self.sources.rings.get_mut(ring)?.arena;
        arena.put(fid, Meta { kind, scope }, result.value())?;
        Ok(1)
    }
}
