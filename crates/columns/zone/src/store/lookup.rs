//! From identifiers to values in memory.
//!
//! Must not: change a value.

use std::sync::atomic::Ordering;

use strongroom_columns_ring::Fault;
use strongroom_format::columns::Fid;
use strongroom_format::columns::block::state;

use super::frame::Frame;
use super::partition::{Extent, Partition};
use super::{Store, StoredValue};

/// The extent of an identifier, and its partition.
type Place<'a> = (&'a Partition, &'a Extent);

/// Where a FID leads.
pub(super) enum Lookup<'a> {
    Resident(&'a Partition, &'a Extent, &'a Frame),
    /// Its block is on disk only.
    OnDisk,
}

impl Store {
    /// Finds the block of an identifier, and marks it as used. `Fault::StaleFid` for what existed
    /// earlier, `Fault::ForgedFid` for what never did; `Fault::Recovering` before the host's log is
    /// replayed.
    #[inline]
    pub(super) fn find(&self, fid: Fid) -> Result<Lookup<'_>, Fault> {
        let (partition, extent) = self.find_extent(fid)?;
        find_block(partition, extent, fid)
    }

    /// Finds the extent of an identifier. Faults as [`Self::find`].
    fn find_extent(&self, fid: Fid) -> Result<Place<'_>, Fault> {
        self.check_recovered()?;
        if fid.is_ephemeral() {
            return Err(Fault::ForgedFid);
        }
        let Some(partition) = self.partitions.get(fid.partition()) else {
            let known = self.partitions.dropped.contains_key(&fid.partition());
            return Err(if known {
                Fault::StaleFid
            } else {
                Fault::ForgedFid
            });
        };
        let Some(extent) = partition.extent(fid.extent()) else {
            let earlier = fid.extent() < partition.first_extent;
            return Err(if earlier {
                Fault::StaleFid
            } else {
                Fault::ForgedFid
            });
        };
        Ok((partition, extent))
    }

    /// Calls `take` with the number and the value, or the fault, of each of these identifiers, as
    /// [`Store::get`] returns it, in this order. Reads blocks from disk as needed.
    pub(crate) fn get_each(
        &mut self,
        fids: &[(usize, Fid)],
        mut take: impl FnMut(usize, Result<StoredValue<'_>, Fault>),
    ) {
        let mut rest = fids;
        loop {
            rest = self.peek_each(rest, &mut take);
            let Some(((number, fid), others)) = rest.split_first() else {
                return;
            };
            // Its block is on disk.
            take(*number, self.get(*fid));
            rest = others;
        }
    }

    /// Calls `take` as [`Self::get_each`] does, up to the first identifier whose block is on disk
    /// only; returns that one and those behind it. Neighbours in one extent are found together.
    fn peek_each<'a>(
        &self,
        fids: &'a [(usize, Fid)],
        take: &mut impl FnMut(usize, Result<StoredValue<'_>, Fault>),
    ) -> &'a [(usize, Fid)] {
        let mut last: Option<((u16, u32), Place<'_>)> = None;
        for (at, (number, fid)) in fids.iter().enumerate() {
            let address = (fid.partition(), fid.extent());
            let found = match last {
                Some((known, found)) if known == address && !fid.is_ephemeral() => Ok(found),
                _ => self.find_extent(*fid),
            };
            last = found.ok().map(|found| (address, found));
            let block = found.and_then(|(partition, extent)| find_block(partition, extent, *fid));
            match block {
                Ok(Lookup::Resident(partition, extent, frame)) => {
                    take(*number, value_of(partition, extent, frame, *fid));
                }
                Ok(Lookup::OnDisk) => return fids.get(at..).unwrap_or_default(),
                Err(fault) => take(*number, Err(fault)),
            }
        }
        &[]
    }
}

/// Finds the block of an identifier in its extent, and marks it as used. `Fault::StaleFid` or
/// `Fault::ForgedFid` if there is none.
#[inline]
fn find_block<'a>(
    partition: &'a Partition,
    extent: &'a Extent,
    fid: Fid,
) -> Result<Lookup<'a>, Fault> {
    let block = &extent.blocks[usize::from(fid.index() >> 10)];
    match &block.frame {
        Some(frame) => {
            if !block.touched.load(Ordering::Relaxed) {
                block.touched.store(true, Ordering::Relaxed);
            }
            Ok(Lookup::Resident(partition, extent, frame))
        }
        None if block.disk.is_some() => Ok(Lookup::OnDisk),
        None if block.gone => Err(Fault::StaleFid),
        None => Err(Fault::ForgedFid),
    }
}

/// The value of an identifier in its block. `Fault::StaleFid` for what existed earlier,
/// `Fault::ForgedFid` for what never did.
#[inline]
pub(super) fn value_of<'a>(
    partition: &'a Partition,
    extent: &'a Extent,
    frame: &'a Frame,
    fid: Fid,
) -> Result<StoredValue<'a>, Fault> {
    let at = usize::from(fid.index());
    let slot = frame.slot(at);
    if slot.generation != fid.generation() {
        let stale = slot.generation > fid.generation();
        return Err(if stale {
            Fault::StaleFid
        } else {
            Fault::ForgedFid
        });
    }
    let never = if slot.state == state::RETIRED {
        Fault::StaleFid
    } else {
        Fault::ForgedFid
    };
    let value = frame.value(at, &partition.slabs).ok_or(never)?;
    Ok(StoredValue {
        value,
        kind: extent.kind,
        column: extent.column,
    })
}
