//! All rows of one block of a table, outside of any scan.
//!
//! Every row of the page is returned, visible or not: this is for prefetching and estimating, never
//! for the result of a query. Must not: change a page, or keep it pinned.

use pg_sys::HeapTupleData;
use pgrx::pg_sys;

use crate::call::bits;

/// Calls `take` with every row of a block, visible or not. `take` must only read the row: the page
/// is locked meanwhile.
pub(crate) fn each_row(
    relation: pg_sys::Relation,
    block: u32,
    strategy: pg_sys::BufferAccessStrategy,
    mut take: impl FnMut(*mut HeapTupleData),
) {
    // SAFETY: an open relation and a block of it; PostgreSQL's protocol of reading a page: pinned,
    // locked in share mode, released. When something is raised in between, the resource owner and
    // the end of the transaction release both.
    unsafe {
        let main = pg_sys::ForkNumber::MAIN_FORKNUM;
        let normal = pg_sys::ReadBufferMode::RBM_NORMAL;
        let buffer = pg_sys::ReadBufferExtended(relation, main, block, normal, strategy);
        pg_sys::LockBuffer(buffer, pg_sys::BUFFER_LOCK_SHARE.cast_signed());
        let page = pg_sys::BufferGetPage(buffer);
        let header: *const pg_sys::PageHeaderData = page.cast();
        let items = usize::from((*header).pd_lower)
            .saturating_sub(std::mem::offset_of!(pg_sys::PageHeaderData, pd_linp))
            / size_of::<pg_sys::ItemIdData>();
        for offset in 1..=u16::try_from(items).unwrap_or(0) {
            let item = pg_sys::PageGetItemId(page, offset);
            if (*item).lp_flags() != pg_sys::LP_NORMAL {
                continue;
            }
            let mut row = HeapTupleData {
                t_len: (*item).lp_len(),
                t_tableOid: (*relation).rd_id,
                t_data: page.add((*item).lp_off() as usize).cast(),
                ..HeapTupleData::default()
            };
            take(&raw mut row);
        }
        pg_sys::UnlockReleaseBuffer(buffer);
    }
}

/// The identifier in a column of a row. `None` for NULL.
pub(crate) fn value(
    relation: pg_sys::Relation,
    row: *mut HeapTupleData,
    column: i16,
) -> Option<u64> {
    let mut is_null = false;
    // SAFETY: a row of this relation on a pinned page, and a column of it.
    let value =
        unsafe { pg_sys::heap_getattr(row, i32::from(column), (*relation).rd_att, &mut is_null) };
    (!is_null).then(|| bits(value))
}
