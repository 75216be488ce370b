//! The host's log, checkpoints, reclamation: what the host's worker asks for.
//!
//! Must not: do anything that is not the store's.

use strongroom_columns_ring::op::flag;
use strongroom_columns_ring::{Answer, Area, Descriptor, Fault, Op};
use strongroom_format::columns::Fid;

use super::{Zone, copy_bytes, copy_words, len_of, offset_of};
use crate::store::Store;

/// Values that one step of a sweep, or of freeing, looks for: some milliseconds, in which nobody else is served.
const STEP: u32 = 4096;
/// In `aux`: there is more to be done.
const MORE: u32 = 1 << 31;

impl Zone {
    /// [`Op::Inserted`].
    pub(super) fn inserted(&mut self, ring: u16, number: u64) -> Result<(), Fault> {
        let chain = self.ground.chain(ring)?;
        self.ground.store.inserted(chain, number);
        Ok(())
    }

    /// [`Op::Prefetch`]. A wish: what cannot be read now is an error when it is needed.
    pub(super) fn prefetch(&mut self, descriptor: &Descriptor) -> Result<(), Fault> {
        let first = Fid::from_bits(descriptor.a).ok_or(Fault::ForgedFid)?;
        let last = Fid::from_bits(descriptor.b).ok_or(Fault::ForgedFid)?;
        let _wished = self.ground.store.prefetch(first, last);
        Ok(())
    }

    /// [`Op::Position`]. Who asks while there is a log to be read is who reads it, from there: nobody else's records are taken.
    pub(super) fn position(&mut self, ring: u16) -> Result<Answer, Fault> {
        let store = &self.ground.store;
        let state = u32::from(store.is_recovering()) | u32::from(store.is_following()) << 1;
        // PostgreSQL counts timelines from 1 by promotions: one that does not fit is not known.
        let timeline = store.timeline().checked_mul(4).unwrap_or(0);
        if state != 0
            && self
                .reader
                .is_none_or(|reader| self.ground.rings.get(reader).is_err())
        {
            self.reader = Some(ring);
        }
        Ok(Answer {
            aux: state | timeline,
            ..Answer::of(store.position())
        })
    }

    /// [`Op::Life`]. The end of the log of the life before may be lost with the records in it that rings said were inserted: chains that
    /// name them, openings and bindings that stand nowhere else. After a checkpoint no record of this life needs them (L2).
    pub(super) fn life(&mut self, descriptor: &Descriptor) -> Result<u64, Fault> {
        let (life, store) = (Some(descriptor.a), &mut self.ground.store);
        check_timeline(store, descriptor.n)?;
        // A store that is recovering ends that with a checkpoint, and its rings with it begin chains of their own.
        if self.life != life && !store.is_recovering() {
            store.set_host_timeline(descriptor.n);
            let done = store.checkpoint(descriptor.b);
            done.map_err(|error| store.report(error))?;
        }
        self.life = life;
        Ok(0)
    }

    /// [`Op::Replay`], [`Op::Replayed`], [`Op::Checkpoint`].
    pub(super) fn log(
        &mut self,
        ring: u16,
        op: Op,
        descriptor: &Descriptor,
        area: &Area,
    ) -> Result<u64, Fault> {
        let reads = self.reader == Some(ring);
        let store = &mut self.ground.store;
        let position = descriptor.a;
        // A host that was started anew, or never was told that the zone was, has read nothing to this incarnation.
        if store.is_recovering() && !reads {
            return Err(Fault::Recovering);
        }
        match op {
            Op::Replay => {
                let open = store.is_recovering() || store.is_following();
                if !open || !reads {
                    return Err(Fault::BadRequest);
                }
                copy_bytes(area, descriptor, len_of(descriptor)?, &mut self.hands.bytes)?;
                store.recover(&self.hands.bytes, position)?;
                return Ok(0);
            }
            _ if position < store.position() => return Err(Fault::BadRequest),
            Op::Replayed => store.set_host_timeline(descriptor.n),
            Op::Checkpoint => {
                check_timeline(store, descriptor.n)?;
                store.set_host_timeline(descriptor.n);
            }
            _ => return Err(Fault::BadRequest),
        }
        match op {
            Op::Replayed if descriptor.flags & flag::FOLLOWS != 0 => {
                if store.is_recovering() {
                    let done = store.follow(position);
                    done.map_err(|error| store.report(error))?;
                }
            }
            Op::Replayed => {
                if store.is_recovering() || store.is_following() {
                    let done = store.recovered(position);
                    done.map_err(|error| store.report(error))?;
                    self.reader = None;
                }
            }
            // Its blocks are what the records up to its position have made, and no more of them is known yet.
            _ if store.is_recovering() => return Err(Fault::Recovering),
            _ => {
                let done = store.checkpoint(position);
                done.map_err(|error| store.report(error))?;
            }
        }
        Ok(store.position())
    }

    /// [`Op::MarkBegin`], [`Op::Mark`], [`Op::Sweep`], [`Op::Free`].
    pub(super) fn reclaim(
        &mut self,
        ring: u16,
        op: Op,
        descriptor: &Descriptor,
        area: &Area,
    ) -> Result<Answer, Fault> {
        let chain = self.ground.chain(ring)?;
        match op {
            Op::MarkBegin => {
                let partition = u16::try_from(descriptor.a).map_err(|_| Fault::PartitionUnknown)?;
                let number = self.ground.store.mark_begin(Some(chain), partition)?;
                Ok(Answer::of(number))
            }
            Op::Mark => {
                copy_words(area, descriptor, &mut self.hands.words)?;
                let fids = self
                    .hands
                    .words
                    .iter()
                    .filter_map(|bits| Fid::from_bits(*bits));
                let fids: Vec<Fid> = fids.filter(|fid| !fid.is_ephemeral()).collect();
                self.ground.store.mark(&fids);
                Ok(Answer::of(fids.len() as u64))
            }
            Op::Sweep => {
                let partition = u16::try_from(descriptor.a).map_err(|_| Fault::PartitionUnknown)?;
                let limit = u64::from(STEP);
                let swept = self.ground.store.sweep(Some(chain), partition, limit)?;
                self.flush(chain, descriptor, area, swept.found, !swept.done)
            }
            _ => {
                let limit = usize::try_from(STEP).map_err(|_| Fault::BadRequest)?;
                let partition = u16::try_from(descriptor.n).map_err(|_| Fault::PartitionUnknown)?;
                let store = &mut self.ground.store;
                let freed = store.free(Some(chain), partition, descriptor.a, limit)?;
                self.flush(chain, descriptor, area, freed, freed != 0)
            }
        }
    }

    /// Puts the redo record of what was done into the data area, and answers with the count.
    pub(super) fn flush(
        &mut self,
        chain: u32,
        descriptor: &Descriptor,
        area: &Area,
        count: u64,
        more: bool,
    ) -> Result<Answer, Fault> {
        let record = self.ground.store.flush_log(chain)?;
        let len = match &record {
            Some(record) => {
                let offset = offset_of(descriptor)?;
                area.write(offset, &record.bytes)
                    .ok_or(Fault::StringTooLong)?;
                u32::try_from(record.bytes.len()).map_err(|_| Fault::StringTooLong)?
            }
            None => 0,
        };
        Ok(Answer {
            aux: len | if more { MORE } else { 0 },
            ..Answer::of(count)
        })
    }
}

/// Refuses a host whose log is on another timeline than it was: only one that was put back to an earlier time, or made a copy of another one,
/// changes it behind the zone's back (L8). A zone that follows or reads the log is told where that led when it has read it.
fn check_timeline(store: &Store, now: u32) -> Result<(), Fault> {
    let before = store.host_timeline();
    let changed = before != 0 && now != 0 && before != now;
    if changed && !store.is_recovering() && !store.is_following() {
        return Err(Fault::OtherHistory);
    }
    Ok(())
}
