//! The state of reclamation: partitions in which marks are collected, and values in quarantine.
//!
//! Must not: free a value.

use std::collections::BTreeMap;
use std::ops::Range;

use strongroom_format::columns::Fid;

/// Which values wait to be freed, and which partitions are being marked.
#[derive(Default)]
pub(super) struct Reclamation {
    /// The number of the last sweep that began.
    pub(super) last_sweep: u64,
    /// Partitions in which marks are collected, and the ring that collects them.
    marking: BTreeMap<u16, u32>,
    /// Bits of a FID, and the sweep that did not find it marked.
    quarantine: BTreeMap<u64, u64>,
}

impl Reclamation {
    /// Notes that the ring `owner` collects marks in a partition, in place of any ring that did.
    /// Returns the number of the sweep that will follow: one more than the last number given, for
    /// whatever partition, and than `after`.
    pub(super) fn begin_marking(&mut self, partition: u16, owner: u32, after: u64) -> u64 {
        self.last_sweep = self.last_sweep.max(after).saturating_add(1);
        self.marking.insert(partition, owner);
        self.last_sweep
    }

    /// Notes that no ring collects marks in a partition any more. Its quarantine stays as it is.
    pub(super) fn end_marking(&mut self, partition: u16) {
        self.marking.remove(&partition);
    }

    /// The partitions in which a ring collects marks.
    pub(super) fn marked_by(&self, ring: u32) -> Vec<u16> {
        let own = self.marking.iter().filter(|(_, owner)| **owner == ring);
        own.map(|(partition, _)| *partition).collect()
    }

    /// Puts a value into quarantine, as of this sweep. False if it was there already; it then
    /// counts as of this sweep.
    pub(super) fn quarantine(&mut self, fid: Fid, sweep: u64) -> bool {
        self.quarantine.insert(fid.bits(), sweep).is_none()
    }

    /// Takes a value out of quarantine, if it is there. Does not free it.
    pub(super) fn release(&mut self, fid: Fid) {
        self.quarantine.remove(&fid.bits());
    }

    /// Whether a value is in quarantine.
    pub(super) fn is_quarantined(&self, fid: Fid) -> bool {
        self.quarantine.contains_key(&fid.bits())
    }

    /// Up to `limit` values of a partition that are in quarantine since sweep `since` or before,
    /// and since before sweep `swept`. Changes nothing.
    pub(super) fn due(&self, partition: u16, since: u64, swept: u64, limit: usize) -> Vec<Fid> {
        let held = self.quarantine.range(fids_of(partition));
        let due = held.filter(|(_, sweep)| **sweep <= since && **sweep < swept);
        due.take(limit)
            .filter_map(|(bits, _)| Fid::from_bits(*bits))
            .collect()
    }

    /// Takes all values of one partition out of quarantine.
    pub(super) fn forget_partition(&mut self, partition: u16) {
        let held = self.quarantine.range(fids_of(partition));
        let held: Vec<u64> = held.map(|(bits, _)| *bits).collect();
        for bits in held {
            self.quarantine.remove(&bits);
        }
    }

    /// Takes all values out of quarantine. Frees none.
    pub(super) fn clear_quarantine(&mut self) {
        self.quarantine.clear();
    }

    /// How many values are in quarantine.
    pub(super) fn quarantined_count(&self) -> usize {
        self.quarantine.len()
    }

    /// The values in quarantine and the sweeps that put them there, in order of identifier.
    pub(super) fn quarantined(&self) -> impl Iterator<Item = (Fid, u64)> + '_ {
        let held = self.quarantine.iter();
        held.filter_map(|(bits, sweep)| Some((Fid::from_bits(*bits)?, *sweep)))
    }
}

/// The range in which the bits of all permanent identifiers of a partition are.
fn fids_of(partition: u16) -> Range<u64> {
    u64::from(partition) << 48..(u64::from(partition) + 1) << 48
}
