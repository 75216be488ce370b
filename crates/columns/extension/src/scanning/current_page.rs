//! The current row of a scan, and the rows that the scan has still to return of its page or batch.
//!
//! A scan of heap finds the visible rows of a page at once and returns them one by one (heapam.c,
//! "page-at-a-time mode"). Must not: change what a scan returns.

use pg_sys::{HeapScanDescData, HeapTupleData};
use pgrx::pg_sys;
use strongroom_format::columns::{Fid, Kind};

use crate::batches::rows::{self, RowBatch};
use crate::scanning::{pages, scans};
use crate::storage::partition;

/// Where the current row of a scan is, and those that it has still to return.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RowSource {
    /// A page of a scan of heap.
    Page(*mut HeapScanDescData),
    /// A batch of rows that a node has read (`batches/rows.rs`).
    Batch(*const RowBatch),
}

/// The rows that a scan returns.
pub(super) struct CurrentPage {
    pub(super) source: RowSource,
    relation: pg_sys::Relation,
}

impl CurrentPage {
    /// The rows of the scans and nodes that returned rows last, as far as they read page by page.
    fn all() -> impl Iterator<Item = Self> {
        let batches = rows::current().into_iter().map(|batch| Self {
            source: RowSource::Batch(batch),
            // SAFETY: a batch is in the list only while it exists.
            relation: unsafe { (*batch).relation() },
        });
        let pages = scans::latest().filter_map(|scan| {
            // SAFETY: a scan that is remembered lives (`scans::forget`, `scans::forget_all`).
            let base = unsafe { scan.as_ref() }?;
            let relation = base.rs_rd;
            let by_page = base.rs_flags & pg_sys::ScanOptions::SO_ALLOW_PAGEMODE != 0;
            let scan: *mut HeapScanDescData = scan.cast();
            // SAFETY: the access method's scans are heap's: heap's own routine makes them.
            let on_row = unsafe { (*scan).rs_cbuf != 0 && !(*scan).rs_ctup.t_data.is_null() };
            (by_page && on_row).then_some(Self {
                source: RowSource::Page(scan),
                relation,
            })
        });
        batches.chain(pages)
    }

    /// The rows, and the column of `kind`, of whose scan's current row `fid` is the stored value.
    /// `None` if there is no such row.
    pub(super) fn find(kind: Kind, fid: u64) -> Option<(Self, i16)> {
        if Fid::from_bits(fid).is_none_or(Fid::is_ephemeral) {
            return None;
        }
        Self::all().find_map(|page| {
            let column = page.column_of(kind, fid)?;
            Some((page, column))
        })
    }

    /// The identifier in a column of a row. `None` for NULL.
    pub(super) fn value(&self, tuple: *mut HeapTupleData, column: i16) -> Option<u64> {
        pages::value(self.relation, tuple, column)
    }

    /// The scan of heap whose next pages can be asked about ahead. `None` for a batch.
    pub(super) fn scan(&self) -> Option<*mut HeapScanDescData> {
        match self.source {
            RowSource::Page(scan) => Some(scan),
            RowSource::Batch(_) => None,
        }
    }

    /// The number of the column of `kind` that has this value in the current row. `None` if none
    /// has.
    fn column_of(&self, kind: Kind, fid: u64) -> Option<i16> {
        let table = partition::table_of(self.relation);
        let row = match self.source {
            // SAFETY: the scan lives.
            RowSource::Page(scan) => unsafe { &raw mut (*scan).rs_ctup },
            // SAFETY: the batch lives.
            RowSource::Batch(batch) => unsafe { (*batch).current() }?,
        };
        let columns = table.columns.iter().filter(|column| column.kind == kind);
        columns
            .map(|column| column.number)
            .find(|number| self.value(row, *number) == Some(fid))
    }

    /// Calls `take` with each row that the scan has not returned yet.
    pub(super) fn each_remaining(&self, mut take: impl FnMut(&mut HeapTupleData)) {
        let scan = match self.source {
            RowSource::Page(scan) => scan,
            // SAFETY: the batch lives, and keeps its pages pinned.
            RowSource::Batch(batch) => return unsafe { (*batch).each_remaining(take) },
        };
        // SAFETY: the scan lives, and keeps its current page pinned.
        let (scan, page) = unsafe { (&*scan, pg_sys::BufferGetPage((*scan).rs_cbuf)) };
        let count = usize::try_from(scan.rs_ntuples).unwrap_or(0);
        let from = usize::try_from(scan.rs_cindex).unwrap_or(usize::MAX);
        let rows = scan.rs_vistuples.get(..count).unwrap_or_default();
        for offset in rows.get(from..).unwrap_or_default() {
            // SAFETY: heap found a visible row there, and rows do not move or go while the page is
            // pinned.
            let mut tuple = unsafe {
                let item = pg_sys::PageGetItemId(page, *offset);
                HeapTupleData {
                    t_len: (*item).lp_len(),
                    t_self: scan.rs_ctup.t_self,
                    t_tableOid: scan.rs_ctup.t_tableOid,
                    t_data: page.add((*item).lp_off() as usize).cast(),
                }
            };
            take(&mut tuple);
        }
    }

    /// `first`, and then the values of `column`, other than `first`, in the rows of the page that
    /// the scan has not returned yet.
    pub(super) fn remaining_values(&self, column: i16, first: u64) -> Vec<u64> {
        let mut values = vec![first];
        self.each_remaining(|row| {
            values.extend(self.value(row, column).filter(|value| *value != first));
        });
        values
    }
}
