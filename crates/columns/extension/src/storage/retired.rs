//! Retired partitions: their relations are gone, but rows that were read before may still be used.
//!
//! A cursor declared WITH HOLD, the variables of a procedure that commits, and logical decoding
//! have identifiers of a table's values when it is dropped, emptied or rewritten. The zone then
//! keeps the partition for a relation that is none (tablespace 0), which stands in the log and the
//! store, and the launcher of the sweepers drops it when nothing from before is left. Invariants:
//! G4, G6 of docs/internals/columns.md. Must not: drop a partition that a relation has.

use std::collections::BTreeMap;

use pgrx::pg_sys;
use strongroom_columns_ring::{Descriptor, Op};

use crate::interrupts;
use crate::ring::{shared_memory, zone};
use crate::storage::{logical_slots, sweep, transaction_end};

/// The retired partitions that a process knows of.
#[derive(Default)]
pub(super) struct Retired {
    /// By its number, the sweep that came after the partition was retired: what began before that
    /// sweep has ended may read it.
    since: BTreeMap<u16, u64>,
}

impl Retired {
    /// Whether there was none when they were looked at last.
    pub(super) fn is_empty(&self) -> bool {
        self.since.is_empty()
    }

    /// Has the zone drop the retired partitions that nothing can read any more. Returns those that
    /// are left. To be called in a transaction. Raises the zone's faults as an ERROR.
    pub(super) fn drop_unread(mut self) -> Self {
        let retired = numbers();
        self.since.retain(|number, _| retired.contains(number));
        let new = retired.iter().find(|one| !self.since.contains_key(one));
        if let Some(new) = new {
            let sweep = sweep::while_no_sweep_runs(|| empty_sweep(*new));
            for number in &retired {
                self.since.entry(*number).or_insert(sweep);
            }
        }
        let freeable = shared_memory::last_freeable_sweep(logical_slots::decoded_position());
        let unread = self.since.iter().filter(|(_, since)| **since <= freeable);
        let unread: Vec<u16> = unread.map(|(number, _)| *number).collect();
        for number in &unread {
            interrupts::with_deadline(|| transaction_end::drop_retired(*number));
        }
        let left = if unread.is_empty() {
            retired
        } else {
            numbers()
        };
        self.since.retain(|number, _| left.contains(number));
        self
    }
}

/// Counts a sweep that marks nothing and finds nothing: it has a number, and separates what began
/// before it from what begins later. Raises the zone's faults as an ERROR.
fn empty_sweep(partition: u16) -> u64 {
    let begun = zone::with(|connection| {
        connection.call(Descriptor {
            a: u64::from(partition),
            b: shared_memory::last_sweep(),
            ..Descriptor::of(Op::MarkBegin)
        })
    });
    // SAFETY: asks the server.
    shared_memory::record_sweep(begun.value, unsafe { pg_sys::GetXLogInsertRecPtr() });
    begun.value
}

/// The numbers of all retired partitions, ascending. Raises the zone's faults as an ERROR.
fn numbers() -> Vec<u16> {
    let mut found = Vec::new();
    let mut after = 0;
    loop {
        let next = zone::with(|connection| {
            connection.call(Descriptor {
                a: after,
                ..Descriptor::of(Op::NextRetired)
            })
        });
        match u16::try_from(next.value) {
            Ok(number) if number != 0 && next.value > after => found.push(number),
            _ => return found,
        }
        after = next.value;
    }
}
