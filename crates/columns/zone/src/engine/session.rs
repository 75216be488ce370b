//! Sessions, parallel groups, the time zone.
//!
//! Must not: interpret a message; reveal a value.

use strongroom_columns_ring::op::MORE;
use strongroom_columns_ring::{AREA_SIZE, Answer, Area, Descriptor, Fault};
use strongroom_columns_values::{Settings, TimeZone};
use strongroom_crypto::fill_random;

use super::{Zone, copy_bytes, len_of, offset_of};
use crate::session::KeyId;
use crate::session::channel::{Channel, Unattested};

/// The longest name of a time zone or record, in bytes.
const NAME_LEN_MAX: usize = 256;

impl Zone {
    /// [`strongroom_columns_ring::Op::TimeZone`]: sets the ring's time zone to the one whose name
    /// is in the data area; returns 0. `Fault::TimeZoneUnknown` if there is none of that name.
    pub(super) fn time_zone(
        &mut self,
        ring: u16,
        descriptor: &Descriptor,
        area: &Area,
    ) -> Result<u64, Fault> {
        let len = len_of(descriptor)?;
        if len > NAME_LEN_MAX {
            return Err(Fault::TimeZoneUnknown);
        }
        copy_bytes(area, descriptor, len, &mut self.scratch.bytes)?;
        let name = core::str::from_utf8(&self.scratch.bytes).map_err(|_| Fault::TimeZoneUnknown)?;
        let time_zone = TimeZone::by_name(name)?;
        self.sources.rings.get_mut(ring)?.settings = Settings { time_zone };
        Ok(0)
    }

    /// [`strongroom_columns_ring::Op::Lead`]: makes the ring the leader of a parallel group, and
    /// returns the secret that members have to give. `Fault::BadRequest` if it is a member of one.
    pub(super) fn lead(&mut self, ring: u16) -> Result<u64, Fault> {
        let mut fresh = [0; 8];
        fill_random(&mut fresh).map_err(|_| Fault::OutOfMemory)?;
        self.sources.rings.lead(ring, u64::from_le_bytes(fresh))
    }

    /// [`strongroom_columns_ring::Op::Join`]: makes the ring a member of the group that the ring
    /// with arena `a` leads, whose secret is `b`; returns 0. `Fault::NotAllowed` for a wrong leader
    /// or secret and in a statement in which a computation has failed, `Fault::BadRequest` if it
    /// leads or is in a group already.
    pub(super) fn join(&mut self, ring: u16, descriptor: &Descriptor) -> Result<u64, Fault> {
        self.charge_for_outcome(ring)?;
        let leader = u16::try_from(descriptor.a).map_err(|_| Fault::NotAllowed)?;
        let before = self.sources.rings.get(ring)?.session();
        self.sources.rings.join(ring, leader, descriptor.b)?;
        if let Some(over) = before {
            // The leader's stands in its place.
            self.channel.end(&over);
            self.forget_keys();
        }
        Ok(0)
    }

    /// [`strongroom_columns_ring::Op::Attest`]: replaces the client's nonce in the data area by an
    /// attestation of this zone for it, and answers with its length. It begins a channel for the
    /// ring, which the client's next message has to use. Other rings are served while the evidence
    /// is made: until then `MORE` in `aux` says that the ring has to ask again, with the same
    /// nonce. `Fault::BadMessage` for a nonce of another length; faults of attesting.
    pub(super) fn attest(
        &mut self,
        ring: u16,
        descriptor: &Descriptor,
        area: &Area,
    ) -> Result<Answer, Fault> {
        let again = Answer {
            aux: MORE,
            ..Answer::of(0)
        };
        let nonce = self.message_bytes(descriptor, area)?;
        let nonce = nonce.try_into().map_err(|_| Fault::BadMessage)?;
        if self.evidence.is_busy_for(ring) {
            return Ok(again);
        }
        let begun = self.attesting.remove(&ring);
        if let Some(unattested) = begun.filter(|begun| *begun.nonce() == nonce)
            && let Some(made) = self.evidence.take(ring, unattested.binding())
        {
            let evidence = made.map_err(|_| Fault::OutOfMemory)?;
            let attestation = self.channel.finish_attestation(unattested, evidence);
            return reply(descriptor, area, &attestation).map(Answer::of);
        }
        let unattested = self.begin_attestation(ring, nonce)?;
        let asked = self.evidence.ask(ring, *unattested.binding());
        asked.map_err(|_| Fault::OutOfMemory)?;
        self.attesting.insert(ring, unattested);
        Ok(again)
    }

    /// Makes an attestation that lacks its evidence, with proofs of the column keys that the store
    /// keeps or has kept. Fails as [`Channel::begin_attestation`].
    fn begin_attestation(&self, ring: u16, nonce: [u8; 32]) -> Result<Unattested, Fault> {
        let store = &self.sources.store;
        // Not those that only a session has brought: they are forgotten with it, and a client
        // expects of every later zone what it was shown once.
        let prove = |binding: &[u8; 32], id: &KeyId| store.prove(id, binding);
        let held: Vec<KeyId> = store
            .provable_keys()
            .filter(|id| prove(&[0; 32], id).is_some())
            .copied()
            .collect();
        let provider = self.evidence.provider();
        Channel::begin_attestation(provider, (&held, &prove), store.identity(), ring, nonce)
    }

    /// [`strongroom_columns_ring::Op::Message`]: opens the data owner's message in the data area,
    /// does what it says (opens or closes the ring's session, takes column keys), replaces it by
    /// the sealed reply and returns the reply's length. Ends a session that the message replaced;
    /// gives the store keys that it lacks; forgets keys that nothing needs. `Fault::BadMessage` if
    /// it does not open, or the ring is a parallel worker's; `Fault::NotAllowed` in a statement in
    /// which a computation has failed.
    pub(super) fn message(
        &mut self,
        ring: u16,
        descriptor: &Descriptor,
        area: &Area,
    ) -> Result<u64, Fault> {
        self.count_computed(ring);
        self.charge_for_outcome(ring)?;
        let message = self.message_bytes(descriptor, area)?;
        let state = self.sources.rings.get(ring)?;
        if matches!(state.group, super::backends::Group::Member(..)) {
            // A parallel worker uses the session of its leader.
            return Err(Fault::BadMessage);
        }
        let before = state.session();
        let store = &mut self.sources.store;
        let answer = self
            .channel
            .message(&mut self.keys, store, before, &message)?;
        for state in self.sources.rings.all_mut() {
            // Grants may not hold any more; members of a group use the leader's session.
            state.granted = super::backends::GrantCache::default();
            if before.is_some() && state.session() == before {
                state.set_session(answer.session);
            }
        }
        self.sources
            .rings
            .get_mut(ring)?
            .set_session(answer.session);
        if let Some(over) = before.filter(|before| answer.session != Some(*before)) {
            // Closed, or another one was opened in its place.
            self.channel.end(&over);
        }
        self.keep_keys();
        self.forget_keys();
        reply(descriptor, area, &answer.message)
    }

    /// Charges the ring's present session for knowing whether the statement's computations have
    /// failed, if there were any (invariant A4 of docs/internals/columns.md), so that the session
    /// that follows cannot learn it in its place. Nothing without a session. The session must not
    /// be replaced on an error: `Fault::BudgetSpent` if its budget has no truth left;
    /// `Fault::NotAllowed`, after the truth was taken, if a computation has failed, because whoever
    /// reads one of the failed values until the statement's end learns that it has.
    fn charge_for_outcome(&mut self, ring: u16) -> Result<(), Fault> {
        let state = self.sources.rings.get(ring)?;
        if state.fallible {
            let computed_from = state.computed_from;
            self.charge_check(ring, computed_from)?;
        }
        self.charge_for_group(ring)?;
        if !self.sources.rings.unknown_outcomes(ring).is_empty() {
            // One of its group's has failed.
            return Err(Fault::NotAllowed);
        }
        let state = self.sources.rings.get_mut(ring)?;
        if state.failed || state.is_orphan {
            return Err(Fault::NotAllowed);
        }
        state.fallible = false;
        state.computed_from = None;
        Ok(())
    }

    /// Charges the ring's session for each other ring of its parallel group of whose computations
    /// it may learn whether they have failed (A4): their values can be read by this ring, and a
    /// value that is not there tells it. Faults as [`Self::charge_check`].
    pub(super) fn charge_for_group(&mut self, ring: u16) -> Result<(), Fault> {
        for other in self.sources.rings.unknown_outcomes(ring) {
            let theirs = self.sources.rings.get(other)?;
            let scope = match theirs.computed_from {
                Some(scope) => Some(theirs.arena.scopes.get(scope)?.clone()),
                None => None,
            };
            let arena = &mut self.sources.rings.get_mut(ring)?.arena;
            let scope = scope.map(|scope| arena.scopes.intern(scope)).transpose()?;
            self.charge_check(ring, scope)?;
            self.sources.rings.note_outcome(ring, other);
        }
        Ok(())
    }

    /// [`strongroom_columns_ring::Op::Record`]: begins to record this ring's requests under the
    /// name in the data area, or ends the record if the name is empty; returns 0.
    /// `Fault::NotRecorded` if the name is too long or not valid, or the zone records nothing.
    pub(super) fn record(
        &mut self,
        ring: u16,
        descriptor: &Descriptor,
        area: &Area,
    ) -> Result<u64, Fault> {
        let len = len_of(descriptor)?;
        if len > NAME_LEN_MAX {
            return Err(Fault::NotRecorded);
        }
        copy_bytes(area, descriptor, len, &mut self.scratch.bytes)?;
        if len == 0 {
            self.recorder.end(ring);
        } else {
            self.recorder.begin(ring, &self.scratch.bytes)?;
        }
        Ok(0)
    }

    /// Gives the store the keys of bound columns that it lacks: it may have been restored, or be a
    /// replica's. A key that cannot be stored now is tried again with the next message.
    fn keep_keys(&mut self) {
        let ids: Vec<_> = self.keys.ids().copied().collect();
        for id in ids {
            if let Some(key) = self.keys.key(&id) {
                let _kept = self.sources.store.keep_key(id, key);
            }
        }
    }

    /// Copies a message of `n` bytes out of the data area before it is parsed: the host could
    /// change it meanwhile. `Fault::BadMessage` if it is longer than the area.
    fn message_bytes(&mut self, descriptor: &Descriptor, area: &Area) -> Result<Vec<u8>, Fault> {
        let len = len_of(descriptor)?;
        if len > AREA_SIZE {
            return Err(Fault::BadMessage);
        }
        copy_bytes(area, descriptor, len, &mut self.scratch.bytes)?;
        Ok(core::mem::take(&mut self.scratch.bytes))
    }
}

/// Writes a reply to the place of the request in the data area; returns its length.
/// `Fault::StringTooLong` if it does not fit.
pub(super) fn reply(descriptor: &Descriptor, area: &Area, bytes: &[u8]) -> Result<u64, Fault> {
    area.write(offset_of(descriptor)?, bytes)
        .ok_or(Fault::StringTooLong)?;
    Ok(bytes.len() as u64)
}
