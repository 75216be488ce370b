//! Sessions, parallel groups, the time zone.
//!
//! Must not: know what a message says; tell a value.

use strongroom_columns_ring::{AREA_SIZE, Area, Descriptor, Fault};
use strongroom_columns_values::{Settings, Zone as TimeZone};
use strongroom_crypto::fill_random;

use super::{Zone, copy_bytes, len_of, offset_of};

/// Longer names are no time zone's.
const NAME_MAX: usize = 256;

impl Zone {
    /// [`strongroom_columns_ring::Op::TimeZone`].
    pub(super) fn time_zone(
        &mut self,
        ring: u16,
        descriptor: &Descriptor,
        area: &Area,
    ) -> Result<u64, Fault> {
        let len = len_of(descriptor)?;
        if len > NAME_MAX {
            return Err(Fault::TimeZoneUnknown);
        }
        copy_bytes(area, descriptor, len, &mut self.hands.bytes)?;
        let name = core::str::from_utf8(&self.hands.bytes).map_err(|_| Fault::TimeZoneUnknown)?;
        let zone = TimeZone::by_name(name)?;
        self.ground.rings.get_mut(ring)?.settings = Settings { zone };
        Ok(0)
    }

    /// [`strongroom_columns_ring::Op::Lead`].
    pub(super) fn lead(&mut self, ring: u16) -> Result<u64, Fault> {
        let mut fresh = [0; 8];
        fill_random(&mut fresh).map_err(|_| Fault::OutOfMemory)?;
        self.ground.rings.lead(ring, u64::from_le_bytes(fresh))
    }

    /// [`strongroom_columns_ring::Op::Join`].
    pub(super) fn join(&mut self, ring: u16, descriptor: &Descriptor) -> Result<u64, Fault> {
        let leader = u16::try_from(descriptor.a).map_err(|_| Fault::NotAllowed)?;
        self.ground.rings.join(ring, leader, descriptor.b)?;
        Ok(0)
    }

    /// [`strongroom_columns_ring::Op::Attest`].
    pub(super) fn attest(
        &mut self,
        ring: u16,
        descriptor: &Descriptor,
        area: &Area,
    ) -> Result<u64, Fault> {
        let nonce = self.message_bytes(descriptor, area)?;
        let nonce = nonce.try_into().map_err(|_| Fault::BadMessage)?;
        let attester = self.attester.as_ref();
        let (store, incarnation) = self.ground.store.identity();
        let attestation = self
            .channel
            .attest(attester, (store, incarnation), ring, nonce)?;
        reply(descriptor, area, &attestation)
    }

    /// [`strongroom_columns_ring::Op::Message`].
    pub(super) fn message(
        &mut self,
        ring: u16,
        descriptor: &Descriptor,
        area: &Area,
    ) -> Result<u64, Fault> {
        self.tell_computed(ring);
        let message = self.message_bytes(descriptor, area)?;
        let state = self.ground.rings.get(ring)?;
        if matches!(state.group, super::rings::Group::Member(..)) {
            // A worker has its leader's session and none of its own.
            return Err(Fault::BadMessage);
        }
        let before = state.session;
        let answer = self.channel.message(&mut self.keys, before, &message)?;
        for state in self.ground.rings.all_mut() {
            // What the session was asked before may no longer hold; members have the leader's.
            state.granted = super::rings::Granted::default();
            if before.is_some() && state.session == before {
                state.session = answer.session;
            }
        }
        self.ground.rings.get_mut(ring)?.session = answer.session;
        if let Some(over) = before.filter(|before| answer.session != Some(*before)) {
            // Closed, or another one was opened in its place.
            self.channel.end(&over);
        }
        self.keep_keys();
        self.forget_keys();
        reply(descriptor, area, &answer.message)
    }

    /// [`strongroom_columns_ring::Op::Record`].
    pub(super) fn record(
        &mut self,
        ring: u16,
        descriptor: &Descriptor,
        area: &Area,
    ) -> Result<u64, Fault> {
        let len = len_of(descriptor)?;
        if len > NAME_MAX {
            return Err(Fault::NotRecorded);
        }
        copy_bytes(area, descriptor, len, &mut self.hands.bytes)?;
        if len == 0 {
            self.recorder.end(ring);
        } else {
            self.recorder.begin(ring, &self.hands.bytes)?;
        }
        Ok(0)
    }

    /// Has the store keep the keys of bound columns that it lacks: it may be one that was restored, or a replica. One that cannot be kept
    /// now is tried again with the next message.
    fn keep_keys(&mut self) {
        let ids: Vec<_> = self.keys.ids().copied().collect();
        for id in ids {
            if let Some(key) = self.keys.key(&id) {
                let _kept = self.ground.store.keep_key(id, key);
            }
        }
    }

    fn message_bytes(&mut self, descriptor: &Descriptor, area: &Area) -> Result<Vec<u8>, Fault> {
        let len = len_of(descriptor)?;
        if len > AREA_SIZE {
            return Err(Fault::BadMessage);
        }
        copy_bytes(area, descriptor, len, &mut self.hands.bytes)?;
        Ok(core::mem::take(&mut self.hands.bytes))
    }
}

/// Writes a reply where the request stood.
pub(super) fn reply(descriptor: &Descriptor, area: &Area, bytes: &[u8]) -> Result<u64, Fault> {
    area.write(offset_of(descriptor)?, bytes)
        .ok_or(Fault::StringTooLong)?;
    Ok(bytes.len() as u64)
}
