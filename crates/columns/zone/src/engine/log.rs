//! The host's log, checkpoints, reclamation: the requests of the host's background worker.
//!
//! Must not: do anything that is not the store's task.

use strongroom_columns_ring::op::flag;
use strongroom_columns_ring::{Answer, Area, Descriptor, Fault, Op};
use strongroom_format::columns::Fid;

use super::{Zone, copy_bytes, copy_words, len_of, offset_of};
use crate::store::Store;

/// The most values that one step of a sweep, or of freeing, handles: some milliseconds, in which no
/// other ring is served.
const STEP_VALUES_MAX: u32 = 4096;
/// Flag in `aux`: the step has to be repeated.
const MORE: u32 = 1 << 31;

impl Zone {
    /// [`Op::Inserted`].
    pub(super) fn confirm_inserted(&mut self, ring: u16, number: u64) -> Result<(), Fault> {
        let chain = self.sources.chain(ring)?;
        self.sources.store.confirm_inserted(chain, number);
        Ok(())
    }

    /// [`Op::Prefetch`]. A block that cannot be read now is an error only when its values are
    /// needed.
    pub(super) fn prefetch(&mut self, descriptor: &Descriptor) -> Result<(), Fault> {
        let first = Fid::from_bits(descriptor.a).ok_or(Fault::ForgedFid)?;
        let last = Fid::from_bits(descriptor.b).ok_or(Fault::ForgedFid)?;
        let _ignored = self.sources.store.prefetch(first, last);
        Ok(())
    }

    /// [`Op::Position`]. The ring that asks while there is a log to be read becomes the reader of
    /// the log, from that position: records of other rings are refused.
    pub(super) fn position(&mut self, ring: u16) -> Result<Answer, Fault> {
        let store = &self.sources.store;
        let state = u32::from(store.is_recovering()) | u32::from(store.is_following()) << 1;
        // PostgreSQL counts timelines from 1 by promotions: a number that does not fit is given as
        // 0, not known.
        let timeline = store.timeline().checked_mul(4).unwrap_or(0);
        if state != 0
            && self
                .reader
                .is_none_or(|reader| self.sources.rings.get(reader).is_err())
        {
            self.reader = Some(ring);
        }
        Ok(Answer {
            aux: state | timeline,
            ..Answer::of(store.position())
        })
    }

    /// [`Op::ServerGeneration`]. The end of the log of the generation before may be lost, with
    /// records that rings had confirmed: chains name them, and they may be the only ones that have
    /// an opening or a binding. After a checkpoint no record of this generation needs them (L2).
    pub(super) fn set_server_generation(&mut self, descriptor: &Descriptor) -> Result<u64, Fault> {
        let (generation, store) = (Some(descriptor.a), &mut self.sources.store);
        check_timeline(store, descriptor.n)?;
        // Recovery ends with a checkpoint, after which rings begin new chains.
        if self.server_generation != generation && !store.is_recovering() {
            store.set_host_timeline(descriptor.n);
            let done = store.checkpoint(descriptor.b);
            done.map_err(|error| store.report(error))?;
        }
        self.server_generation = generation;
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
        let store = &mut self.sources.store;
        let position = descriptor.a;
        // A host that was started anew, or does not know that the zone was, has not passed any
        // records to this incarnation.
        if store.is_recovering() && !reads {
            return Err(Fault::Recovering);
        }
        match op {
            Op::Replay => {
                let open = store.is_recovering() || store.is_following();
                if !open || !reads {
                    return Err(Fault::BadRequest);
                }
                copy_bytes(
                    area,
                    descriptor,
                    len_of(descriptor)?,
                    &mut self.scratch.bytes,
                )?;
                store.recover(&self.scratch.bytes, position)?;
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
                    let done = store.finish_recovery(position);
                    done.map_err(|error| store.report(error))?;
                    self.reader = None;
                }
            }
            // Its blocks have the records up to its position only.
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
        let chain = self.sources.chain(ring)?;
        match op {
            Op::MarkBegin => {
                let partition = u16::try_from(descriptor.a).map_err(|_| Fault::PartitionUnknown)?;
                let number = self.sources.store.mark_begin(Some(chain), partition)?;
                Ok(Answer::of(number))
            }
            Op::Mark => {
                copy_words(area, descriptor, &mut self.scratch.words)?;
                let fids = self
                    .scratch
                    .words
                    .iter()
                    .filter_map(|bits| Fid::from_bits(*bits));
                let fids: Vec<Fid> = fids.filter(|fid| !fid.is_ephemeral()).collect();
                self.sources.store.mark(&fids);
                Ok(Answer::of(fids.len() as u64))
            }
            Op::Sweep => {
                let partition = u16::try_from(descriptor.a).map_err(|_| Fault::PartitionUnknown)?;
                let limit = u64::from(STEP_VALUES_MAX);
                let swept = self.sources.store.sweep(Some(chain), partition, limit)?;
                self.flush(chain, descriptor, area, swept.found, !swept.done)
            }
            _ => {
                let limit = usize::try_from(STEP_VALUES_MAX).map_err(|_| Fault::BadRequest)?;
                let partition = u16::try_from(descriptor.n).map_err(|_| Fault::PartitionUnknown)?;
                let store = &mut self.sources.store;
                let freed = store.free(Some(chain), partition, descriptor.a, limit)?;
                self.flush(chain, descriptor, area, freed, freed != 0)
            }
        }
    }

    /// Writes the redo record of the operation to the data area; the answer is the count.
    pub(super) fn flush(
        &mut self,
        chain: u32,
        descriptor: &Descriptor,
        area: &Area,
        count: u64,
        more: bool,
    ) -> Result<Answer, Fault> {
        let record = self.sources.store.flush_log(chain)?;
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

/// Refuses a host whose log is on another timeline than before: without the zone's knowledge it
/// changes only on a host that was restored to an earlier time, or is a copy of another (L8). A
/// zone that follows or reads the log learns the new timeline when it has read it.
fn check_timeline(store: &Store, now: u32) -> Result<(), Fault> {
    let before = store.host_timeline();
    let changed = before != 0 && now != 0 && before != now;
    if changed && !store.is_recovering() && !store.is_following() {
        return Err(Fault::OtherHistory);
    }
    Ok(())
}
