//! The rows of a page that a scan of heap has found visible, read where they are.
//!
//! A scan of heap finds the visible rows of a page at once and returns them one by one (heapam.c,
//! "page-at-a-time mode"). A batch takes those that are left without a call and without a slot for
//! each, and reads the inputs of a program where fixed columns have them. Must not: return a row
//! that the scan would not have returned, or return one twice.

use pg_sys::{Buffer, HeapScanDescData, HeapTupleData, HeapTupleHeaderData, TableScanDesc};
use pgrx::pg_sys;

use super::expressions::Source;
use super::sending::{input_word, last_column};

/// Where the inputs of a program are in rows that have no NULL.
pub(super) struct Layout {
    /// By input, where its column begins behind the row's header, and how many bytes it has.
    columns: Vec<(Source, usize, usize)>,
    /// The number of the last of these columns.
    last: u16,
}

impl Layout {
    /// The layout of a table's rows. `None` if a column before one of the inputs has no fixed
    /// length, or an input is no column.
    ///
    /// # Safety
    ///
    /// The columns of an open relation.
    pub(super) unsafe fn of(columns: pg_sys::TupleDesc, sources: &[Source]) -> Option<Self> {
        let last = u16::try_from(last_column(sources)).ok()?;
        // SAFETY: the caller's promise.
        let attributes = unsafe {
            let count = usize::try_from((*columns).natts).ok()?;
            (*columns).attrs.as_slice(count)
        };
        let mut places = Vec::new();
        let mut end = 0_usize;
        for attribute in attributes.get(..usize::from(last))? {
            let len = usize::try_from(attribute.attlen).ok()?;
            let align = match attribute.attalign.cast_unsigned() {
                pg_sys::TYPALIGN_CHAR => 1,
                pg_sys::TYPALIGN_SHORT => 2,
                pg_sys::TYPALIGN_INT => 4,
                _ => 8,
            };
            let from = end.checked_next_multiple_of(align)?;
            places.push((from, len));
            end = from.checked_add(len)?;
        }
        let place = |source: &Source| {
            let at = usize::try_from(source.column()).ok()?.checked_sub(1)?;
            let (from, len) = *places.get(at)?;
            (len <= 8).then_some((*source, from, len))
        };
        Some(Self {
            columns: sources.iter().map(place).collect::<Option<_>>()?,
            last,
        })
    }

    /// Whether a row has all of these columns, and no NULL.
    ///
    /// # Safety
    ///
    /// A row on a page that is pinned.
    unsafe fn fits(&self, row: *const HeapTupleHeaderData) -> bool {
        let has_null = u16::try_from(pg_sys::HEAP_HASNULL).unwrap_or(0);
        let columns = u16::try_from(pg_sys::HEAP_NATTS_MASK).unwrap_or(0);
        // SAFETY: the caller's promise.
        unsafe { (*row).t_infomask & has_null == 0 && (*row).t_infomask2 & columns >= self.last }
    }

    /// Adds the inputs of a row to `inputs`, which has room for them.
    ///
    /// # Safety
    ///
    /// A row on a page that is pinned, of the table that the layout is of, which
    /// [`Self::fits`].
    unsafe fn read(&self, row: *const HeapTupleHeaderData, inputs: &mut Vec<u64>) {
        // SAFETY: the caller's promise: the columns lie within the row.
        unsafe {
            let first = row.cast::<u8>().add(usize::from((*row).t_hoff));
            for (source, from, len) in &self.columns {
                let mut bytes = [0; 8];
                std::ptr::copy_nonoverlapping(first.add(*from), bytes.as_mut_ptr(), *len);
                inputs.push(input_word(*source, Some(u64::from_le_bytes(bytes))));
            }
        }
    }
}

/// Passes to `add` the visible rows of the scan's current page that the scan has not returned yet.
/// Stops at the end of the page, before a row that does not fit the layout, and when `add` returns
/// false, which means that it has not taken the row. The scan then goes on after the last row that
/// was taken. `add` gets the row, the page's buffer, and a function that appends the row's inputs
/// to a vector that has room for them.
///
/// # Safety
///
/// Within [`crate::call::call_postgres`]; a scan of heap that was begun, of the table that the
/// layout is of; nothing in `add` has a destructor.
pub(super) unsafe fn take(
    scan: TableScanDesc,
    layout: &Layout,
    mut add: impl FnMut(HeapTupleData, Buffer, &dyn Fn(&mut Vec<u64>)) -> bool,
) {
    // SAFETY: the caller's promise; the access method's scans are heap's.
    unsafe {
        let scan: *mut HeapScanDescData = scan.cast();
        let by_page = (*scan).rs_base.rs_flags & pg_sys::ScanOptions::SO_ALLOW_PAGEMODE != 0;
        if !by_page || !(*scan).rs_inited || (*scan).rs_cbuf == 0 {
            return;
        }
        let page = pg_sys::BufferGetPage((*scan).rs_cbuf);
        let before = (*scan).rs_cindex;
        while (*scan).rs_cindex + 1 < (*scan).rs_ntuples {
            let at = usize::try_from((*scan).rs_cindex + 1).unwrap_or(usize::MAX);
            let visible = &(*scan).rs_vistuples;
            let Some(offset) = visible.get(at).copied() else {
                break;
            };
            let item = pg_sys::PageGetItemId(page, offset);
            let mut row = HeapTupleData {
                t_len: (*item).lp_len(),
                t_self: (*scan).rs_ctup.t_self,
                t_tableOid: (*scan).rs_ctup.t_tableOid,
                t_data: page.add((*item).lp_off() as usize).cast(),
            };
            // On the same page as the row that was returned last.
            row.t_self.ip_posid = offset;
            if !layout.fits(row.t_data) {
                break;
            }
            let read = |inputs: &mut Vec<u64>| layout.read(row.t_data, inputs);
            if !add(row, (*scan).rs_cbuf, &read) {
                break;
            }
            (*scan).rs_cindex += 1;
        }
        // As the scan counts the rows that it returns (pgstat_count_heap_getnext).
        if let Some(counts) = (*(*scan).rs_base.rs_rd).pgstat_info.as_mut() {
            let taken = (*scan).rs_cindex - before;
            counts.t_counts.t_tuples_returned += pg_sys::PgStat_Counter::from(taken);
        }
    }
}
