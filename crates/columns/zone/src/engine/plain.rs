//! Values in clear, for a ticket with the right to declassify: out of the zone into plain columns, and into it from them.
//!
//! Must not: give or take a value in clear that the policy was not asked for; keep a copy of one.

use strongroom_columns_ring::{Area, Descriptor, Fault};
use strongroom_columns_values::{receive, send};
use strongroom_format::columns::Fid;
use zeroize::Zeroize as _;

use super::session::reply;
use super::{Zone, copy_bytes, kind_of, len_of};
use crate::arena::Meta;
use crate::policy;

impl Zone {
    /// [`strongroom_columns_ring::Op::Declassify`].
    pub(super) fn declassify(
        &mut self,
        ring: u16,
        descriptor: &Descriptor,
        area: &Area,
    ) -> Result<u64, Fault> {
        let kind = kind_of(descriptor)?;
        let [each, ..] = &mut self.hands.args;
        let loaded = self.ground.load_of(ring, descriptor.a, kind, each)?;
        self.hands.buf.clear();
        send(kind, each.value(), &mut self.hands.buf)?;
        let plain = self.hands.buf.as_slice();
        let state = self.ground.rings.get(ring)?;
        let scope = state.arena.scopes.get(loaded.scope)?;
        let session = Self::session(&mut self.channel, state);
        policy::declassify(session, scope, plain.len() as u64)?;
        let len = reply(descriptor, area, plain);
        self.hands.buf.clear();
        len
    }

    /// [`strongroom_columns_ring::Op::Classify`].
    pub(super) fn classify(
        &mut self,
        ring: u16,
        descriptor: &Descriptor,
        area: &Area,
    ) -> Result<u64, Fault> {
        let kind = kind_of(descriptor)?;
        let fid = Fid::from_bits(descriptor.r).ok_or(Fault::ForgedFid)?;
        let state = self.ground.rings.get(ring)?;
        let scope = policy::classify(Self::session(&mut self.channel, state))?;
        copy_bytes(area, descriptor, len_of(descriptor)?, &mut self.hands.plain)?;
        let read = receive(kind, &self.hands.plain, &mut self.hands.out);
        self.hands.plain.zeroize();
        read.map_err(|_| Fault::BadRequest)?;
        let state = self.ground.rings.get_mut(ring)?;
        let scope = state.arena.scopes.intern(scope)?;
        let value = self.hands.out.value();
        state.arena.put(fid, Meta { kind, scope }, value)?;
        self.hands.out.set_word(0);
        Ok(fid.bits())
    }
}
