//! The host's log, checkpoints, reclamation: the requests of the host's background worker.
//!
//! Must not: do anything that is not the store's task.

use strongroom_columns_ring::op::{MORE, flag};
use strongroom_columns_ring::{Answer, Area, Descriptor, Fault, Op};
use strongroom_format::columns::Fid;

use super::{Zone, copy_bytes, copy_words, len_of, offset_of};
use crate::store::Store;

/// The most values that one step of a sweep, or of freeing, handles: some milliseconds, in which no
/// other ring is served.
const STEP_VALUES_MAX: u32 = 4096;

impl Zone {
    /// [`Op::Inserted`]: notes that the host's log has the ring's redo record of this number, and
    /// where it ends. `Fault::BadRequest` for an unknown ring.
    pub(super) fn confirm_inserted(
        &mut self,
        ring: u16,
        descriptor: &Descriptor,
    ) -> Result<(), Fault> {
        let chain = self.sources.chain(ring)?;
        self.sources.store.confirm_inserted(chain, descriptor.a);
        self.sources.store.note_reached(descriptor.b);
        Ok(())
    }

    /// [`Op::Prefetch`]: has the store read the blocks of the values from `a` to `b` ahead. A block
    /// that cannot be read now is an error only when its values are needed. `Fault::ForgedFid` if
    /// `a` or `b` is no identifier.
    pub(super) fn prefetch(&mut self, descriptor: &Descriptor) -> Result<(), Fault> {
        let first = Fid::from_bits(descriptor.a).ok_or(Fault::ForgedFid)?;
        let last = Fid::from_bits(descriptor.b).ok_or(Fault::ForgedFid)?;
        let _ignored = self.sources.store.prefetch(first, last);
        Ok(())
    }

    /// [`Op::Position`]: answers with the position from which the host's log has to be replayed,
    /// and the state and timeline in `aux`; with the flag `REACHED`, with the position up to which
    /// the log has what the store may hold, and the timeline of that. If no ring is the log's
    /// reader, this ring becomes it, until it closes: what other rings say of the log is refused
    /// (L5). Never fails.
    pub(super) fn position(&mut self, ring: u16, flags: u16) -> Result<Answer, Fault> {
        let store = &self.sources.store;
        let state = u32::from(store.is_recovering()) | u32::from(store.is_following()) << 1;
        let (position, timeline) = match flags & flag::REACHED {
            0 => (store.position(), store.timeline()),
            _ => store.reached(),
        };
        // PostgreSQL counts timelines from 1 by promotions: a number that does not fit is given as
        // 0, not known.
        let timeline = timeline.checked_mul(4).unwrap_or(0);
        self.reader.get_or_insert(ring);
        Ok(Answer {
            aux: state | timeline,
            ..Answer::of(position)
        })
    }

    /// [`Op::ServerGeneration`]: notes the generation of the host's shared memory. If it is another
    /// than before, and the zone is not recovering, makes a checkpoint, and returns 0. The
    /// checkpoint's position stays the one before: every backend sends this, and only the log's
    /// reader says how far the log is (L5). `Fault::OtherHistory` if the log is on another timeline
    /// than before; the fault of the checkpoint.
    ///
    /// The end of the log of the generation before may be lost, with records that rings had
    /// confirmed: chains name them, and they may be the only ones that have an opening. After the
    /// checkpoint this store needs none of them. Replicas and older copies do not have it, so the
    /// records of this generation name none from before it, and repeat the openings (L2).
    pub(super) fn set_server_generation(&mut self, descriptor: &Descriptor) -> Result<u64, Fault> {
        let (generation, store) = (Some(descriptor.a), &mut self.sources.store);
        check_timeline(store, descriptor.n)?;
        // Recovery ends with a checkpoint, after which rings begin new chains.
        if self.server_generation != generation && !store.is_recovering() {
            store.set_host_timeline(descriptor.n);
            let done = store.begin_server_generation();
            done.map_err(|error| store.report(error))?;
        }
        self.server_generation = generation;
        Ok(0)
    }

    /// Runs [`Op::Replay`], [`Op::Replayed`] or [`Op::Checkpoint`]: applies a redo record of the
    /// host's log; ends recovery, or begins to follow a replica's log; makes a checkpoint. Answers
    /// with 0 for a record, otherwise with the position before which the log may be cut. A
    /// checkpoint is made while other rings are served: until it has ended, bit 31 in `aux` says
    /// that the host has to ask again. `Fault::Recovering`
    /// during recovery for a ring that does not read the log, and for a checkpoint;
    /// `Fault::BadRequest` from any other ring that does not read the log, and for a position
    /// before the store's; `Fault::OtherHistory` for another timeline; faults of the store.
    pub(super) fn log(
        &mut self,
        ring: u16,
        op: Op,
        descriptor: &Descriptor,
        area: &Area,
    ) -> Result<Answer, Fault> {
        let reads = self.reader == Some(ring);
        let store = &mut self.sources.store;
        let position = descriptor.a;
        // A host that was started anew, or does not know that the zone was, has not passed any
        // records to this incarnation.
        if store.is_recovering() && !reads {
            return Err(Fault::Recovering);
        }
        if !reads {
            return Err(Fault::BadRequest);
        }
        match op {
            Op::Replay => {
                if !store.is_recovering() && !store.is_following() {
                    return Err(Fault::BadRequest);
                }
                copy_bytes(
                    area,
                    descriptor,
                    len_of(descriptor)?,
                    &mut self.scratch.bytes,
                )?;
                store.recover(&self.scratch.bytes, position)?;
                return Ok(Answer::of(0));
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
                }
            }
            // Its blocks have the records up to its position only.
            _ if store.is_recovering() => return Err(Fault::Recovering),
            _ => {
                let done = store.request_checkpoint(position);
                let reached = done.map_err(|error| store.report(error))?;
                let aux = if reached.is_none() { MORE } else { 0 };
                return Ok(Answer {
                    aux,
                    ..Answer::of(store.position())
                });
            }
        }
        Ok(Answer::of(store.position()))
    }

    /// Runs one step of [`Op::MarkBegin`], [`Op::Mark`], [`Op::Sweep`] or [`Op::Free`]. The last
    /// two handle at most 4096 values, write their redo record to the data area, and say in `aux`
    /// whether they have to be repeated. `Fault::PartitionUnknown` for a number that is none;
    /// faults of the store.
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
                let number = self
                    .sources
                    .store
                    .mark_begin(Some(chain), partition, descriptor.b)?;
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
                self.answer_with_record(chain, descriptor, area, swept.found, !swept.done)
            }
            _ => {
                let limit = usize::try_from(STEP_VALUES_MAX).map_err(|_| Fault::BadRequest)?;
                let partition = u16::try_from(descriptor.n).map_err(|_| Fault::PartitionUnknown)?;
                let store = &mut self.sources.store;
                let freed = store.free(Some(chain), partition, descriptor.a, limit)?;
                self.answer_with_record(chain, descriptor, area, freed, freed != 0)
            }
        }
    }

    /// Takes the redo record that the chain's operation has made, if any, and writes it to the data
    /// area. Returns an answer whose value is `count`; in `aux` are the record's length (0 for
    /// none) and, for `more`, bit 31: the operation has to be repeated. `Fault::StringTooLong` if
    /// it does not fit.
    pub(super) fn answer_with_record(
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

/// Fails with `Fault::OtherHistory` if the host's log is on another timeline (`now`) than before.
/// Passes if either is unknown (0), or the zone is reading the log: it then learns the new timeline
/// from it. Without the zone's knowledge the timeline changes only on a host that was restored to
/// an earlier time, or is a copy of another (L8).
fn check_timeline(store: &Store, now: u32) -> Result<(), Fault> {
    let before = store.host_timeline();
    let changed = before != 0 && now != 0 && before != now;
    if changed && !store.is_recovering() && !store.is_following() {
        return Err(Fault::OtherHistory);
    }
    Ok(())
}
