//! From identifiers to values in memory.
//!
//! Must not: change a value.

use std::sync::atomic::Ordering;

use strongroom_columns_ring::Fault;
use strongroom_columns_values::Value;
use strongroom_format::columns::block::state;
use strongroom_format::columns::{Fid, Kind};

use super::frame::Frame;
use super::partition::{Extent, Partition};
use super::partition_table::PartitionTable;

/// A value, and what its extent says about it.
#[derive(Clone, Copy)]
pub struct StoredValue<'a> {
    /// The value.
    pub value: Value<'a>,
    /// Kind of its column.
    pub kind: Kind,
    /// Its column (`attnum`).
    pub column: u16,
}

/// The extent of an identifier, and its partition.
type Place<'a> = (&'a Partition, &'a Extent);

/// Where a FID leads.
pub(super) enum Lookup<'a> {
    Resident(&'a Partition, &'a Extent, &'a Frame),
    /// Its block is on disk only.
    OnDisk,
}

/// Finds the block of an identifier, and marks it as used. `Fault::StaleFid` for what existed
/// earlier, `Fault::ForgedFid` for what never did.
#[inline]
pub(super) fn find(partitions: &PartitionTable, fid: Fid) -> Result<Lookup<'_>, Fault> {
    let (partition, extent) = find_extent(partitions, fid)?;
    find_block(partition, extent, fid)
}

/// Finds the extent of an identifier. Faults as [`find`].
fn find_extent(partitions: &PartitionTable, fid: Fid) -> Result<Place<'_>, Fault> {
    if fid.is_ephemeral() {
        return Err(Fault::ForgedFid);
    }
    let Some(partition) = partitions.get(fid.partition()) else {
        let known = partitions.dropped.contains_key(&fid.partition());
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

/// Calls `take` with the number and the value, or the fault, of each of these identifiers, in this
/// order, up to the first whose block is on disk only; returns that one and those behind it.
/// Neighbours in one extent are found together.
pub(super) fn find_each<'a>(
    partitions: &PartitionTable,
    fids: &'a [(usize, Fid)],
    take: &mut impl FnMut(usize, Result<StoredValue<'_>, Fault>),
) -> &'a [(usize, Fid)] {
    let mut last: Option<((u16, u32), Place<'_>)> = None;
    for (at, (number, fid)) in fids.iter().enumerate() {
        let address = (fid.partition(), fid.extent());
        let found = match last {
            Some((known, found)) if known == address && !fid.is_ephemeral() => Ok(found),
            _ => find_extent(partitions, *fid),
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
