//! The table access method `strongroom`: heap, with promotion of values before a row is written.
//!
//! It is a copy of heap's routine in which the callbacks that write rows or change storage are
//! replaced. Invariant X4: index builds run with heap's own routine in the relation, because
//! `heap_getnext` requires it (heapam.c). Must not: change how rows are stored or which rows are
//! visible.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use pg_sys::{
    BulkInsertStateData, CommandId, Datum, IndexBuildCallback, IndexInfo, MultiXactId, RelFileNode,
    Relation, Snapshot, TM_FailureData, TM_Result, TableAmRoutine, TableScanDesc, TransactionId,
    TupleTableSlot,
};
use pgrx::pg_sys;

use crate::call::{Call, call_postgres, guarded, sql_functions};
use crate::catalog::tuples;
use crate::fault;
use crate::scanning::scans;
use crate::storage::storage_id::StorageId;
use crate::storage::{pending, promotion};

/// Name of the access method.
const NAME: &CStr = c"strongroom";

sql_functions! {
    /// `strongroom_am_handler(internal)`
    strongroom_am_handler, pg_finfo_strongroom_am_handler => handler;
}

/// Heap's routine, and this access method's.
struct Routines {
    heap: *const TableAmRoutine,
    ours: TableAmRoutine,
}

// SAFETY: function pointers that never change.
unsafe impl Send for Routines {}
// SAFETY: as above.
unsafe impl Sync for Routines {}

/// Heap's routine, and this access method's: a copy of heap's in which the callbacks are replaced
/// that return or write rows or change storage. Made at the first call.
fn routines() -> &'static Routines {
    static ROUTINES: OnceLock<Routines> = OnceLock::new();
    ROUTINES.get_or_init(|| {
        // SAFETY: a static structure of the server.
        let heap = unsafe { pg_sys::GetHeapamTableAmRoutine() };
        // SAFETY: as above.
        let mut ours = unsafe { *heap };
        ours.scan_getnextslot = Some(scan_getnextslot);
        ours.scan_bitmap_next_tuple = Some(scan_bitmap_next_tuple);
        ours.scan_end = Some(scan_end);
        ours.scan_rescan = Some(scan_rescan);
        ours.tuple_insert = Some(tuple_insert);
        ours.tuple_insert_speculative = Some(tuple_insert_speculative);
        ours.multi_insert = Some(multi_insert);
        ours.tuple_update = Some(tuple_update);
        ours.relation_set_new_filenode = Some(relation_set_new_filenode);
        ours.relation_copy_data = Some(relation_copy_data);
        ours.relation_copy_for_cluster = Some(relation_copy_for_cluster);
        ours.relation_toast_am = Some(relation_toast_am);
        ours.index_build_range_scan = Some(index_build_range_scan);
        ours.index_validate_scan = Some(index_validate_scan);
        Routines { heap, ours }
    })
}

/// Whether an open relation is a table with this access method.
pub(crate) fn has_access_method(relation: Relation) -> bool {
    // SAFETY: an open relation.
    std::ptr::eq(
        unsafe { (*relation).rd_tableam },
        &raw const routines().ours,
    )
}

/// The OID of the access method; invalid if this database does not have the extension.
pub(crate) fn oid() -> pg_sys::Oid {
    // SAFETY: a search of the catalog cache.
    unsafe { pg_sys::get_table_am_oid(NAME.as_ptr(), true) }
}

/// The OID of a relation's access method; invalid for none.
pub(crate) fn of_relation(relation: pg_sys::Oid) -> pg_sys::Oid {
    let cache = pg_sys::SysCacheIdentifier::RELOID.cast_signed();
    // SAFETY: a search of the catalog cache; the row is a FormData_pg_class, and is released.
    unsafe {
        let tuple = pg_sys::SearchSysCache1(cache, Datum::from(relation));
        if tuple.is_null() {
            return pg_sys::Oid::INVALID;
        }
        let found = (*tuples::fixed_part::<pg_sys::FormData_pg_class>(tuple)).relam;
        pg_sys::ReleaseSysCache(tuple);
        found
    }
}

/// The handler of the access method: returns its routine.
fn handler(_call: &mut Call) -> Datum {
    Datum::from(&raw const routines().ours)
}

/// A callback of heap's; heap has all of them.
macro_rules! heap {
    ($callback:ident) => {{
        // SAFETY: a static structure of the server.
        let callback = unsafe { (*routines().heap).$callback };
        callback.unwrap_or_else(|| fault::raise_internal("heap has lost a callback"))
    }};
}

/// The callback that returns the next row of a scan: heap's, and notes the row for batches and
/// prefetching, or that the scan has no more rows (false).
///
/// Callbacks of scans are called for every row, so they are not inside [`guarded`]: an ERROR of
/// PostgreSQL's passes through their frames, which have nothing to drop.
extern "C-unwind" fn scan_getnextslot(
    scan: TableScanDesc,
    direction: pg_sys::ScanDirection::Type,
    slot: *mut TupleTableSlot,
) -> bool {
    let heap = heap!(scan_getnextslot);
    // SAFETY: heap's own callback with PostgreSQL's arguments.
    let found = unsafe { heap(scan, direction, slot) };
    if found {
        scans::row_returned(scan);
    } else {
        scans::forget(scan);
    }
    found
}

/// The callback that returns the next row of a bitmap scan: heap's, and notes the row for batches
/// and prefetching, or that the page has no more rows (false).
extern "C-unwind" fn scan_bitmap_next_tuple(
    scan: TableScanDesc,
    blocks: *mut pg_sys::TBMIterateResult,
    slot: *mut TupleTableSlot,
) -> bool {
    let heap = heap!(scan_bitmap_next_tuple);
    // SAFETY: heap's own callback with PostgreSQL's arguments.
    let found = unsafe { heap(scan, blocks, slot) };
    if found {
        scans::row_returned(scan);
    } else {
        scans::forget(scan);
    }
    found
}

/// The callback that ends a scan: forgets the scan, then heap's.
extern "C-unwind" fn scan_end(scan: TableScanDesc) {
    scans::forget(scan);
    let heap = heap!(scan_end);
    // SAFETY: heap's own callback with PostgreSQL's argument.
    unsafe { heap(scan) };
}

/// The callback that begins a scan again: forgets the scan, then heap's.
extern "C-unwind" fn scan_rescan(
    scan: TableScanDesc,
    key: *mut pg_sys::ScanKeyData,
    set_params: bool,
    allow_strategy: bool,
    allow_sync: bool,
    allow_pagemode: bool,
) {
    scans::forget(scan);
    let heap = heap!(scan_rescan);
    // SAFETY: heap's own callback with PostgreSQL's arguments.
    unsafe {
        heap(
            scan,
            key,
            set_params,
            allow_strategy,
            allow_sync,
            allow_pagemode,
        );
    };
}

/// The callback that inserts a row: promotes its values, then heap's.
extern "C-unwind" fn tuple_insert(
    relation: Relation,
    slot: *mut TupleTableSlot,
    command: CommandId,
    options: c_int,
    bulk: *mut BulkInsertStateData,
) {
    guarded(|| {
        promotion::promote_rows(relation, &[slot]);
        let heap = heap!(tuple_insert);
        // SAFETY: heap's own callback with PostgreSQL's arguments.
        unsafe { call_postgres(|| heap(relation, slot, command, options, bulk)) };
    });
}

/// The callback that inserts a row for INSERT ... ON CONFLICT: promotes its values, then heap's.
extern "C-unwind" fn tuple_insert_speculative(
    relation: Relation,
    slot: *mut TupleTableSlot,
    command: CommandId,
    options: c_int,
    bulk: *mut BulkInsertStateData,
    token: u32,
) {
    guarded(|| {
        promotion::promote_rows(relation, &[slot]);
        let heap = heap!(tuple_insert_speculative);
        // SAFETY: heap's own callback with PostgreSQL's arguments.
        unsafe { call_postgres(|| heap(relation, slot, command, options, bulk, token)) };
    });
}

/// The callback that inserts several rows: promotes their values, then heap's.
extern "C-unwind" fn multi_insert(
    relation: Relation,
    slots: *mut *mut TupleTableSlot,
    count: c_int,
    command: CommandId,
    options: c_int,
    bulk: *mut BulkInsertStateData,
) {
    guarded(|| {
        let length = usize::try_from(count).unwrap_or(0);
        // SAFETY: PostgreSQL passes `count` slots.
        promotion::promote_rows(relation, unsafe {
            std::slice::from_raw_parts(slots, length)
        });
        let heap = heap!(multi_insert);
        // SAFETY: heap's own callback with PostgreSQL's arguments.
        unsafe { call_postgres(|| heap(relation, slots, count, command, options, bulk)) };
    });
}

/// The callback that updates a row: promotes the new row's values, then heap's, whose result it
/// returns.
extern "C-unwind" fn tuple_update(
    relation: Relation,
    old: pg_sys::ItemPointer,
    slot: *mut TupleTableSlot,
    command: CommandId,
    snapshot: Snapshot,
    crosscheck: Snapshot,
    wait: bool,
    failure: *mut TM_FailureData,
    mode: *mut pg_sys::LockTupleMode::Type,
    indexes: *mut bool,
) -> TM_Result::Type {
    guarded(|| {
        promotion::promote_rows(relation, &[slot]);
        let heap = heap!(tuple_update);
        // SAFETY: heap's own callback with PostgreSQL's arguments.
        unsafe {
            call_postgres(|| {
                heap(
                    relation, old, slot, command, snapshot, crosscheck, wait, failure, mode,
                    indexes,
                )
            })
        }
    })
}

/// The callback that gives a relation new storage: notes that the new storage is created and, for
/// TRUNCATE and similar commands, the old one dropped; then heap's.
extern "C-unwind" fn relation_set_new_filenode(
    relation: Relation,
    node: *const RelFileNode,
    persistence: c_char,
    freeze: *mut TransactionId,
    multi: *mut MultiXactId,
) {
    guarded(|| {
        // SAFETY: PostgreSQL's argument.
        let new = unsafe { StorageId::of_new(relation, node) };
        let old = StorageId::of(relation);
        pending::add_created(new);
        if old != new {
            // TRUNCATE and similar commands: the relation still has its old storage, which is
            // dropped at commit (RelationSetNewRelfilenode).
            pending::add_dropped(old);
        }
        let heap = heap!(relation_set_new_filenode);
        // SAFETY: heap's own callback with PostgreSQL's arguments.
        unsafe { call_postgres(|| heap(relation, node, persistence, freeze, multi)) };
    });
}

/// The callback that copies a relation's files, as for SET TABLESPACE: notes the copy, to which the
/// partition moves at commit; then heap's.
extern "C-unwind" fn relation_copy_data(relation: Relation, node: *const RelFileNode) {
    guarded(|| {
        // SAFETY: PostgreSQL's argument.
        pending::add_copied(StorageId::of(relation), unsafe {
            StorageId::of_new(relation, node)
        });
        let heap = heap!(relation_copy_data);
        // SAFETY: heap's own callback with PostgreSQL's arguments.
        unsafe { call_postgres(|| heap(relation, node)) };
    });
}

/// The callback that copies rows for CLUSTER and VACUUM FULL: notes the copy, to which the
/// partition moves at commit; then heap's.
extern "C-unwind" fn relation_copy_for_cluster(
    old: Relation,
    new: Relation,
    index: Relation,
    sort: bool,
    oldest: TransactionId,
    xid_cutoff: *mut TransactionId,
    multi_cutoff: *mut MultiXactId,
    tuples: *mut f64,
    vacuumed: *mut f64,
    recently_dead: *mut f64,
) {
    guarded(|| {
        pending::add_copied(StorageId::of(old), StorageId::of(new));
        let heap = heap!(relation_copy_for_cluster);
        // SAFETY: heap's own callback with PostgreSQL's arguments.
        unsafe {
            call_postgres(|| {
                heap(
                    old,
                    new,
                    index,
                    sort,
                    oldest,
                    xid_cutoff,
                    multi_cutoff,
                    tuples,
                    vacuumed,
                    recently_dead,
                );
            });
        }
    });
}

/// The callback that names the access method of TOAST tables: heap, because they never hold
/// confidential values.
extern "C-unwind" fn relation_toast_am(_relation: Relation) -> pg_sys::Oid {
    pg_sys::HEAP_TABLE_AM_OID
}

/// A relation has heap's routine, until this is dropped.
struct AsHeap(Relation, *const TableAmRoutine);

impl AsHeap {
    /// Gives the open relation heap's routine, until the result is dropped.
    fn new(relation: Relation) -> Self {
        // SAFETY: an open relation; the routine it has is static, so it can be put back whatever
        // happens.
        unsafe {
            let had = (*relation).rd_tableam;
            (*relation).rd_tableam = routines().heap;
            Self(relation, had)
        }
    }
}

impl Drop for AsHeap {
    /// Gives the relation back the routine that it had.
    fn drop(&mut self) {
        // SAFETY: the relation is open as long as the callback that made this runs.
        unsafe { (*self.0).rd_tableam = self.1 };
    }
}

/// The callback that scans a table to build an index: heap's, with heap's routine in the relation,
/// which `heap_getnext` requires. Returns the number of rows.
extern "C-unwind" fn index_build_range_scan(
    table: Relation,
    index: Relation,
    info: *mut IndexInfo,
    allow_sync: bool,
    any_visible: bool,
    progress: bool,
    start: pg_sys::BlockNumber,
    blocks: pg_sys::BlockNumber,
    callback: IndexBuildCallback,
    state: *mut c_void,
    scan: TableScanDesc,
) -> f64 {
    guarded(|| {
        let heap = heap!(index_build_range_scan);
        let as_heap = AsHeap::new(table);
        // SAFETY: heap's own callback with PostgreSQL's arguments; an error unwinds through
        // `as_heap`.
        let rows = unsafe {
            call_postgres(|| {
                heap(
                    table,
                    index,
                    info,
                    allow_sync,
                    any_visible,
                    progress,
                    start,
                    blocks,
                    callback,
                    state,
                    scan,
                )
            })
        };
        drop(as_heap);
        rows
    })
}

/// The callback that completes an index that is built concurrently: heap's, with heap's routine in
/// the relation.
extern "C-unwind" fn index_validate_scan(
    table: Relation,
    index: Relation,
    info: *mut IndexInfo,
    snapshot: Snapshot,
    state: *mut pg_sys::ValidateIndexState,
) {
    guarded(|| {
        let heap = heap!(index_validate_scan);
        let as_heap = AsHeap::new(table);
        // SAFETY: heap's own callback with PostgreSQL's arguments; an error unwinds through
        // `as_heap`.
        unsafe { call_postgres(|| heap(table, index, info, snapshot, state)) };
        drop(as_heap);
    });
}
