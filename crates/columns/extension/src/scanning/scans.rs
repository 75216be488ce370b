//! The scans that returned a row last: those that an expression may concern.
//!
//! Invariant: a scan is read only while it exists; every event that may end a scan is reported
//! here. Must not: change what a scan returns.

use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering::Relaxed};

use pg_sys::{HeapScanDescData, TableScanDescData};
use pgrx::pg_sys;

use crate::scanning::prefetch;

/// The latest scans, the last one first: mostly the outer and the inner one of a join. A backend
/// has one thread.
static SCANS: [AtomicPtr<TableScanDescData>; 3] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; 3];

/// The block of the row that the first of them returned.
static BLOCK: AtomicU32 = AtomicU32::new(0);

/// Called when a scan has returned a row: notes it as the latest. For the first row of a page, asks
/// ahead about the next one; otherwise does next to nothing, because it is called for every row.
pub(crate) fn row_returned(scan: *mut TableScanDescData) {
    let [first, second, third] = &SCANS;
    let before = first.load(Relaxed);
    // SAFETY: the scan has just returned a row; the access method's scans are heap's.
    let block = unsafe { (*scan.cast::<HeapScanDescData>()).rs_cblock };
    if before == scan && BLOCK.load(Relaxed) == block {
        return;
    }
    BLOCK.store(block, Relaxed);
    prefetch::page_reached(scan);
    if before == scan {
        return;
    }
    let between = second.load(Relaxed);
    if between != scan {
        third.store(between, Relaxed);
    }
    second.store(before, Relaxed);
    first.store(scan, Relaxed);
}

/// Forgets a scan that has ended, has no more rows, or begins again: it has no current row.
pub(crate) fn forget(scan: *mut TableScanDescData) {
    prefetch::forget(scan);
    for known in &SCANS {
        if known.load(Relaxed) == scan {
            known.store(std::ptr::null_mut(), Relaxed);
        }
    }
}

/// Forgets all scans: they may have been freed without having ended, because a transaction or a
/// subtransaction has failed.
pub(crate) fn forget_all() {
    prefetch::forget_all();
    for known in &SCANS {
        known.store(std::ptr::null_mut(), Relaxed);
    }
}

/// The scans that returned rows last and still exist, the last one first; at most 3.
pub(super) fn latest() -> impl Iterator<Item = *mut TableScanDescData> {
    SCANS
        .iter()
        .map(|scan| scan.load(Relaxed))
        .filter(|scan| !scan.is_null())
}
