//! Retired partitions: their relations are gone, but rows that were read before may still be used.
//!
//! A cursor declared WITH HOLD, the variables of a procedure that commits, and logical decoding
//! have identifiers of a table's values when it is dropped, emptied or rewritten. The zone then
//! keeps the partition for a relation that is none (tablespace 0), which stands in the log and the
//! store, and the launcher of the sweepers drops it when nothing from before is left. Invariants:
//! G4, G6 of docs/internals/columns.md. Must not: drop a partition that a relation has.

use std::collections::BTreeMap;

use pgrx::pg_sys;
use strongroom_columns_ring::{Broken, Descriptor, Fault, Op};

use crate::interrupts;
use crate::ring::{shared_memory, zone};
use crate::storage::{logical_slots, sweep, transaction_end};

/// A retired partition: its number, and what tells it from later ones of that number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RetiredPartition {
    pub(super) number: u16,
    pub(super) mark: u32,
}

/// A moment after a partition was retired: only what began before it can read the partition.
#[derive(Clone, Copy)]
struct Since {
    /// An empty sweep that ended then.
    sweep: u64,
    /// The end of the log then.
    position: u64,
}

/// The retired partitions that a process knows of.
#[derive(Default)]
pub(super) struct Retired {
    /// `None` while there was no such moment yet.
    known: BTreeMap<RetiredPartition, Option<Since>>,
    /// Whether these are all that there were when the zone was asked last.
    is_complete: bool,
}

impl Retired {
    /// Whether there was none when the zone was asked last.
    pub(super) fn is_empty(&self) -> bool {
        self.is_complete && self.known.is_empty()
    }

    /// How many are known.
    pub(super) fn count(&self) -> u64 {
        self.known.len() as u64
    }

    /// Has the zone drop the retired partitions that nothing can read any more. Asks it which there
    /// are if some may be `new`. Returns those that are left. To be called in a transaction. Raises
    /// the zone's faults as an ERROR, but for those of a zone that is not ready.
    pub(super) fn drop_unread(mut self, new: bool) -> Self {
        if new || !self.is_complete {
            self.list();
        }
        self.find_moment();
        let held = shared_memory::last_freeable_sweep(None);
        let decoded = logical_slots::decoded_position();
        let is_unread = |since: &Since| {
            since.sweep <= held && decoded.is_none_or(|decoded| since.position <= decoded)
        };
        let unread = self.known.iter().filter_map(|(retired, since)| {
            let since = since.as_ref()?;
            is_unread(since).then_some(*retired)
        });
        let unread: Vec<RetiredPartition> = unread.collect();
        for retired in &unread {
            interrupts::with_deadline(|| transaction_end::drop_retired(*retired));
        }
        // Whether all of them are gone is the zone's word.
        self.is_complete &= unread.is_empty();
        self
    }

    /// Learns from the zone which ones there are.
    fn list(&mut self) {
        let listed = listed();
        self.is_complete = listed.is_some();
        if let Some(listed) = listed {
            self.known.retain(|retired, _| listed.contains(retired));
            for retired in listed {
                self.known.entry(retired).or_insert(None);
            }
        }
    }

    /// Notes this moment for those that have none yet, unless a sweep is running.
    fn find_moment(&mut self) {
        let first = self.known.iter().find(|(_, since)| since.is_none());
        let Some(number) = first.map(|(retired, _)| retired.number) else {
            return;
        };
        let moment = sweep::with_sweep_lock(false, || empty_sweep(number)).flatten();
        if let Some(moment) = moment {
            for since in self.known.values_mut() {
                since.get_or_insert(moment);
            }
        }
    }
}

/// Counts a sweep that marks nothing and finds nothing: it has a number, and separates what began
/// before it from what begins later. `None` if the zone is not ready, or the partition is gone by
/// now. Raises the zone's other faults as an ERROR.
fn empty_sweep(partition: u16) -> Option<Since> {
    let begun = when_ready(sweep::marking_of(u64::from(partition)))?;
    shared_memory::record_empty_sweep(begun.value);
    Some(Since {
        sweep: begun.value,
        // SAFETY: asks the server.
        position: unsafe { pg_sys::GetXLogInsertRecPtr() },
    })
}

/// All retired partitions, in ascending order of number. `None` if the zone is not ready. Raises
/// its other faults as an ERROR.
fn listed() -> Option<Vec<RetiredPartition>> {
    let mut found = Vec::new();
    let mut after = 0;
    loop {
        let next = when_ready(Descriptor {
            a: after,
            ..Descriptor::of(Op::NextRetired)
        })?;
        match u16::try_from(next.value) {
            Ok(number) if next.value > after => found.push(RetiredPartition {
                number,
                mark: next.aux,
            }),
            _ => return Some(found),
        }
        after = next.value;
    }
}

/// Calls an operation of the zone. `None` if it has not read the log yet, or the partition is gone.
/// Raises other faults as an ERROR.
fn when_ready(descriptor: Descriptor) -> Option<strongroom_columns_ring::Answer> {
    zone::with(|connection| match connection.call(descriptor) {
        Err(Broken::Fault(Fault::Recovering | Fault::PartitionUnknown)) => Ok(None),
        answer => answer.map(Some),
    })
}
