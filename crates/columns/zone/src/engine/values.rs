//! Values in and out: envelopes opened into ephemerals, values sealed into envelopes.
//!
//! Must not: leave a value in clear anywhere but in an arena and in the scratch buffers.

use strongroom_columns_envelope::SealedBy;
use strongroom_columns_ring::op::flag;
use strongroom_columns_ring::{AREA_SIZE, Area, Descriptor, Fault};
use strongroom_columns_values::{receive, send};
use strongroom_crypto::sha256;
use strongroom_format::columns::Fid;
use zeroize::Zeroize as _;

use super::compute::{settle, with_ledger};
use super::{KIND_BITS, Zone, copy_bytes, copy_words, kind_of, len_of, offset_of};
use crate::arena::{Meta, Scope};
use crate::policy;

impl Zone {
    /// [`strongroom_columns_ring::Op::OpenEnvelope`]: opens the envelope in the data area into the
    /// slot `r`, and returns its identifier. With the flag `LITERAL`, the value lives as long as
    /// the connection, and an envelope that was opened before answers with its former identifier.
    /// Needs no session. `Fault::NoColumnKey` if the key is not known, `Fault::BadEnvelope` if it
    /// does not open or holds no value of the kind; faults of the arena.
    pub(super) fn open_envelope(
        &mut self,
        ring: u16,
        descriptor: &Descriptor,
        area: &Area,
    ) -> Result<u64, Fault> {
        let kind = kind_of(descriptor)?;
        let fid = Fid::from_bits(descriptor.r).ok_or(Fault::ForgedFid)?;
        copy_bytes(
            area,
            descriptor,
            len_of(descriptor)?,
            &mut self.scratch.bytes,
        )?;
        let digest =
            (descriptor.flags & flag::LITERAL != 0).then(|| sha256(&[&self.scratch.bytes]));
        let state = self.sources.rings.get_mut(ring)?;
        if let Some(known) = digest.and_then(|digest| state.arena.literal(&digest)) {
            return Ok(known.bits());
        }
        let (of, sealer) = self
            .keys
            .open(kind, &self.scratch.bytes, &mut self.scratch.plain)?;
        let read = receive(kind, &self.scratch.plain, &mut self.scratch.out);
        self.scratch.plain.zeroize();
        read.map_err(|_| Fault::BadEnvelope)?;
        let scope = state.arena.scopes.intern(Scope::envelope(of, sealer))?;
        let meta = Meta { kind, scope };
        let value = self.scratch.out.value();
        match digest {
            Some(digest) => state.arena.put_literal(fid, digest, meta, value)?,
            None => state.arena.put(fid, meta, value)?,
        }
        self.scratch.out.set_word(0);
        Ok(fid.bits())
    }

    /// [`strongroom_columns_ring::Op::PostEnvelope`]: opens the envelope in the data area into the
    /// slot `r`; there is no answer. `Fault::BadRequest` for a literal; `Fault::NoColumnKey` if the
    /// key is not known, `Fault::BadEnvelope` if it does not open; faults of the arena.
    pub(super) fn post_envelope(
        &mut self,
        ring: u16,
        descriptor: &Descriptor,
        area: &Area,
    ) -> Result<(), Fault> {
        // A literal may get another identifier than the backend chose, and a posted operation has
        // no answer to say so.
        if descriptor.flags & flag::LITERAL != 0 {
            return Err(Fault::BadRequest);
        }
        self.open_envelope(ring, descriptor, area).map(drop)
    }

    /// [`strongroom_columns_ring::Op::Output`]: seals the values of `n` identifiers in the data
    /// area and writes over them, for each, a length of 4 bytes and the envelope; returns the
    /// number of bytes. With the flag `RESULT` they are results of the ring's session, if it has
    /// one, numbered in this order. If several do not fit together, returns 0 and writes nothing;
    /// `Fault::StringTooLong` for a single one. Counts each value in the session's budget.
    /// `Fault::KindMismatch` for another kind than the flags name, if any; faults of loading and of
    /// the policy.
    pub(super) fn output(
        &mut self,
        ring: u16,
        descriptor: &Descriptor,
        area: &Area,
    ) -> Result<u64, Fault> {
        let wanted = (descriptor.flags & KIND_BITS != 0).then(|| kind_of(descriptor));
        let wanted = wanted.transpose()?;
        let offset = offset_of(descriptor)?;
        copy_words(area, descriptor, &mut self.scratch.words)?;
        self.scratch.bytes.clear();
        let [each, ..] = &mut self.scratch.args;
        for bits in &self.scratch.words {
            let loaded = self.sources.load(ring, *bits, each)?;
            let kind = loaded.kind;
            if wanted.is_some_and(|wanted| wanted != kind) {
                return Err(Fault::KindMismatch);
            }
            let state = self.sources.rings.get(ring)?;
            let scope = state.arena.scopes.get(loaded.scope)?;
            let mut session = Self::session(&mut self.channel, state);
            let of = policy::output(session.as_deref_mut(), scope)?;
            let by = match session.filter(|_| descriptor.flags & flag::RESULT != 0) {
                Some(session) => session.next_result(),
                None => SealedBy::Zone,
            };
            settle(
                &mut self.channel,
                &mut self.sources,
                ring,
                Some(loaded.scope),
            )?;
            self.scratch.buf.clear();
            send(kind, each.value(), &mut self.scratch.buf)?;
            let plain = self.scratch.buf.as_slice();
            // Reserves the padding: a vector that grows would leave a copy of the value behind.
            self.scratch.plain.reserve(plain.len().saturating_add(32));
            self.scratch.plain.extend_from_slice(plain);
            let out = &mut self.scratch.bytes;
            let head = out.len();
            out.extend_from_slice(&[0; 4]);
            let sealed = self.keys.seal((of, by), kind, &mut self.scratch.plain, out);
            self.scratch.plain.zeroize();
            sealed?;
            let len = out.len().checked_sub(head.saturating_add(4));
            let len = len
                .and_then(|len| u32::try_from(len).ok())
                .ok_or(Fault::StringTooLong)?;
            let place = out
                .get_mut(head..)
                .and_then(|rest| rest.first_chunk_mut::<4>());
            *place.ok_or(Fault::BadRequest)? = len.to_le_bytes();
            // The envelope's, which the host sees, and not the value's: everybody sees the counts.
            let state = self.sources.rings.get(ring).ok();
            with_ledger(&mut self.channel, state, |ledger| {
                ledger.count_output_bytes(u64::from(len));
            });
            if out.len() > AREA_SIZE.saturating_sub(offset) {
                let alone = self.scratch.words.len() == 1;
                return if alone {
                    Err(Fault::StringTooLong)
                } else {
                    Ok(0)
                };
            }
        }
        self.scratch.buf.clear();
        let sealed = &self.scratch.bytes;
        area.write(offset, sealed).ok_or(Fault::StringTooLong)?;
        Ok(sealed.len() as u64)
    }
}
