//! Values in clear, for a ticket with the right to declassify: out of the zone into plain columns,
//! and from plain columns into it.
//!
//! Must not: give or take a value in clear without asking the policy; keep a copy of one.

use strongroom_columns_ring::{Area, Descriptor, Fault};
use strongroom_columns_values::{receive, send};
use strongroom_format::columns::Fid;
use zeroize::Zeroize as _;

use super::compute::{settle, with_ledger};
use super::session::reply;
use super::{Zone, copy_bytes, kind_of, len_of};
use crate::arena::Meta;
use crate::policy;

impl Zone {
    /// [`strongroom_columns_ring::Op::Declassify`]: writes the value `a` in clear, in PostgreSQL's
    /// binary form, to the data area, and returns its length. Counts in the session's budget and
    /// ledger. `Fault::NotAllowed` without the right to declassify, `Fault::BudgetSpent` if the
    /// budget is spent; faults of loading the value.
    pub(super) fn declassify(
        &mut self,
        ring: u16,
        descriptor: &Descriptor,
        area: &Area,
    ) -> Result<u64, Fault> {
        let kind = kind_of(descriptor)?;
        let [each, ..] = &mut self.scratch.args;
        let loaded = self.sources.load_of(ring, descriptor.a, kind, each)?;
        let state = self.sources.rings.get(ring)?;
        let scope = state.arena.scopes.get(loaded.scope)?;
        policy::declassify(Self::session(&mut self.channel, state), scope)?;
        settle(
            &mut self.channel,
            &mut self.sources,
            ring,
            Some(loaded.scope),
        )?;
        let state = self.sources.rings.get(ring)?;
        self.scratch.buf.clear();
        send(kind, each.value(), &mut self.scratch.buf)?;
        let plain = self.scratch.buf.as_slice();
        with_ledger(&mut self.channel, Some(state), |ledger| {
            ledger.count_output_bytes(plain.len() as u64);
        });
        let len = reply(descriptor, area, plain);
        self.scratch.buf.clear();
        len
    }

    /// [`strongroom_columns_ring::Op::Classify`]: takes a value in clear, `n` bytes of PostgreSQL's
    /// binary form in the data area, into the slot `r`, and returns its identifier. Wipes its own
    /// copies, not the data area. Counts in the session's ledger. `Fault::NotAllowed` without the
    /// right to declassify; `Fault::BadRequest` for bytes that are no value of the kind.
    pub(super) fn classify(
        &mut self,
        ring: u16,
        descriptor: &Descriptor,
        area: &Area,
    ) -> Result<u64, Fault> {
        let kind = kind_of(descriptor)?;
        let fid = Fid::from_bits(descriptor.r).ok_or(Fault::ForgedFid)?;
        let state = self.sources.rings.get(ring)?;
        let scope = policy::classify(Self::session(&mut self.channel, state))?;
        copy_bytes(
            area,
            descriptor,
            len_of(descriptor)?,
            &mut self.scratch.plain,
        )?;
        let read = receive(kind, &self.scratch.plain, &mut self.scratch.out);
        self.scratch.plain.zeroize();
        read.map_err(|_| Fault::BadRequest)?;
        let state = self.sources.rings.get_mut(ring)?;
        let scope = state.arena.scopes.intern(scope)?;
        let value = self.scratch.out.value();
        state.arena.put(fid, Meta { kind, scope }, value)?;
        self.scratch.out.set_word(0);
        Ok(fid.bits())
    }
}
