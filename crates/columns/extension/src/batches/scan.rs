//! The node that reads a table and has the zone say for which rows its condition is true, for
//! hundreds of rows in one operation.
//!
//! While the zone works on one batch, the next one is read. Conditions on columns in clear are
//! evaluated first, row by row. A row for which the program fails, and every row of a batch that
//! the zone refuses, is asked about by the ordinary operators (E3). Must not: return a row that the
//! scan before would not have returned, or in another order.

use std::ffi::{CStr, c_int};

use pg_sys::{CustomScan, CustomScanState, EState, ExprState, Node, TableScanDesc, TupleTableSlot};
use pgrx::pg_sys;

use super::expressions::Source;
use super::node_type::{Callbacks, NodeType};
use super::page_rows::{self, Layout};
use super::pipeline::Pipeline;
use super::rows::{self, RowBatch, Rows as _};
use super::sending::{append_inputs, last_column};
use super::{conditions, node_type, nodes, output};
use crate::call::{call_postgres, guarded};
use crate::fault;
use crate::ring::batches::rows_max;

/// Name of the node in plans.
const NAME: &CStr = c"Strongroom Scan";

/// This sort of node.
pub(super) static NODE: NodeType = NodeType::new(
    NAME,
    Callbacks {
        create,
        begin,
        next,
        end,
        rescan,
        explain,
    },
);

/// What the node keeps. Freed with the memory of its query.
struct Scan {
    /// The conditions that the zone is asked about, as ordinary expressions.
    asked: *mut ExprState,
    /// The conditions for the rows that are returned.
    behind: *mut ExprState,
    /// The scan of the table. Null before its first row.
    heap: TableScanDesc,
    /// Where the inputs are in rows without NULLs. `None` if that is not the same for all.
    layout: Option<Layout>,
    /// The slot that rows are read into.
    slot: *mut TupleTableSlot,
    pipeline: Pipeline<RowBatch>,
}

/// Makes the node's state.
extern "C-unwind" fn create(_plan: *mut CustomScan) -> *mut Node {
    guarded(|| NODE.new_state::<Scan>())
}

/// Begins the node: makes its slots, its conditions and its program. Asks nothing of the zone.
extern "C-unwind" fn begin(node: *mut CustomScanState, estate: *mut EState, _flags: c_int) {
    guarded(|| {
        // SAFETY: PostgreSQL's own nodes, for as long as the query is executed.
        unsafe {
            let plan: *mut CustomScan = (*node).ss.ps.plan.cast();
            let relation = (*node).ss.ss_currentRelation;
            let tables = &raw mut (*estate).es_tupleTable;
            // PostgreSQL has made a virtual slot (nodeCustom.c); these rows are on pages.
            let returned = pg_sys::table_slot_create(relation, tables);
            (*node).ss.ss_ScanTupleSlot = returned;
            (*node).ss.ps.scanops = (*returned).tts_ops;
            let planned = (*node).ss.ps.plan;
            (*node).ss.ps.qual = pg_sys::ExecInitQual((*planned).qual, &raw mut (*node).ss.ps);
            pg_sys::ExecAssignScanProjectionInfo(&raw mut (*node).ss);
            let asked = conditions::with_zone(plan);
            let varno = c_int::try_from((*plan).scan.scanrelid).unwrap_or(0);
            let shape = conditions::compile(asked, varno, std::ptr::null_mut());
            let sources = shape.map_or_else(Vec::new, |of| of.sources);
            let inputs = sources.len();
            let rows = rows_max(inputs);
            let batch = || RowBatch::new(relation, rows, inputs);
            let scan = Scan {
                asked: nodes::init_conditions(asked, node),
                behind: nodes::init_conditions(conditions::behind(plan), node),
                heap: std::ptr::null_mut(),
                layout: Layout::of((*relation).rd_att, &sources),
                slot: pg_sys::table_slot_create(relation, tables),
                pipeline: Pipeline::new([batch(), batch()], sources),
            };
            node_type::keep(node, estate, scan);
        }
    });
}

/// The node's state.
///
/// # Safety
///
/// A node of this module that was begun; no other reference to its state.
unsafe fn scan_of<'a>(node: *mut CustomScanState) -> &'a mut Scan {
    // SAFETY: the caller's promise.
    unsafe { node_type::kept(node) }
}

/// Returns the next row; an empty slot when there are no more.
extern "C-unwind" fn next(node: *mut CustomScanState) -> *mut TupleTableSlot {
    // SAFETY: a node that was begun.
    guarded(|| unsafe { nodes::next_of_batches(node, next_of_batch, advance) })
}

/// The next row of the current batch for which all conditions hold, as the node returns it. `None`
/// when there is none.
///
/// # Safety
///
/// A node of this module that was begun.
unsafe fn next_of_batch(node: *mut CustomScanState) -> Option<*mut TupleTableSlot> {
    loop {
        // No reference to the batch is held while an expression is evaluated, which may look for
        // the batch's other rows.
        // SAFETY: the caller's promise.
        let (asked, behind, (row, buffer, answer)) = unsafe {
            let scan = scan_of(node);
            (scan.asked, scan.behind, scan.pipeline.current()?.next()?)
        };
        // SAFETY: the row is on a page that the batch has pinned, and stays there until the batch
        // is cleared; the closure owns nothing.
        let returned = unsafe {
            call_postgres(|| {
                let slot = (*node).ss.ss_ScanTupleSlot;
                nodes::store(row, slot, buffer);
                nodes::returned(node, slot, nodes::open_conditions(answer, asked, behind))
            })
        };
        if returned.is_some() {
            return returned;
        }
    }
}

/// Goes on to the next batch. False when there is none.
///
/// # Safety
///
/// A node of this module that was begun.
unsafe fn advance(node: *mut CustomScanState) -> bool {
    // SAFETY: the caller's promise; the node's own slot may have a row of the batch that is
    // cleared. What conditions in clear execute does not know this state.
    unsafe {
        call_postgres(|| nodes::clear((*node).ss.ss_ScanTupleSlot));
        let scan = scan_of(node);
        if scan.heap.is_null() {
            scan.heap = begin_heap_scan(node);
        }
        let (heap, slot, layout) = (scan.heap, scan.slot, scan.layout.as_ref());
        let has_more = scan.pipeline.advance(
            |batch, size, sources| read_rows(node, heap, slot, size, (sources, layout), batch),
            || {
                let plan: *mut CustomScan = (*node).ss.ps.plan.cast();
                let varno = c_int::try_from((*plan).scan.scanrelid).unwrap_or(0);
                let asked = conditions::with_zone(plan);
                conditions::compile(asked, varno, (*node).ss.ps.ps_ExprContext)
            },
        );
        if has_more && let Some(batch) = scan.pipeline.current() {
            rows::enter(batch);
        }
        has_more
    }
}

/// Begins the scan of the node's table.
///
/// # Safety
///
/// A node of this module that was begun.
unsafe fn begin_heap_scan(node: *mut CustomScanState) -> TableScanDesc {
    // SAFETY: the caller's promise; as table_beginscan does it (access/tableam.h).
    unsafe {
        let relation = (*node).ss.ss_currentRelation;
        let snapshot = (*(*node).ss.ps.state).es_snapshot;
        let flags = pg_sys::ScanOptions::SO_TYPE_SEQSCAN
            | pg_sys::ScanOptions::SO_ALLOW_STRAT
            | pg_sys::ScanOptions::SO_ALLOW_SYNC
            | pg_sys::ScanOptions::SO_ALLOW_PAGEMODE;
        let (keys, parallel) = (std::ptr::null_mut(), std::ptr::null_mut());
        let begin = (*(*relation).rd_tableam).scan_begin;
        let Some(begin) = begin else {
            fault::raise_internal("a table has no scans");
        };
        call_postgres(|| begin(relation, snapshot, 0, keys, parallel, flags))
    }
}

/// Reads rows for which the conditions in clear hold into a batch, at most `size`. True if the
/// table has no more.
///
/// # Safety
///
/// A node of this module that was begun, its scan and its slot; the batch is empty.
unsafe fn read_rows(
    node: *mut CustomScanState,
    heap: TableScanDesc,
    slot: *mut TupleTableSlot,
    size: usize,
    (sources, layout): (&[Source], Option<&Layout>),
    batch: &mut RowBatch,
) -> bool {
    let last = last_column(sources);
    let forward = pg_sys::ScanDirection::ForwardScanDirection;
    // SAFETY: the caller's promise; nothing in the closure has a destructor, and the batch has room
    // for what is added to it.
    unsafe {
        let next = (*(*(*heap).rs_rd).rd_tableam).scan_getnextslot;
        let Some(next) = next else {
            fault::raise_internal("a table has no rows");
        };
        let conditions = (*node).ss.ps.qual;
        let has_room = |batch: &RowBatch| batch.len() < size && batch.has_room();
        call_postgres(|| {
            let context = (*node).ss.ps.ps_ExprContext;
            while has_room(batch) {
                if let (true, Some(layout)) = (conditions.is_null(), layout) {
                    page_rows::take(heap, layout, |row, buffer, read| {
                        let takes = has_room(batch);
                        if takes {
                            batch.push(row, buffer);
                            read(&mut batch.asked.inputs);
                        }
                        takes
                    });
                    if !has_room(batch) {
                        return false;
                    }
                }
                if !next(heap, forward, slot) {
                    return true;
                }
                if !conditions.is_null() {
                    nodes::reset(context);
                    (*context).ecxt_scantuple = slot;
                    if !nodes::holds(conditions, context) {
                        nodes::count_dropped(node);
                        continue;
                    }
                }
                let on_page: *mut pg_sys::BufferHeapTupleTableSlot = slot.cast();
                batch.push(*(*on_page).base.tuple, (*on_page).buffer);
                append_inputs(slot, (sources, last), &mut batch.asked.inputs);
            }
            false
        })
    }
}

/// Ends the node.
extern "C-unwind" fn end(node: *mut CustomScanState) {
    guarded(|| {
        // SAFETY: a node that was begun.
        unsafe {
            clear_slots(node);
            let scan = scan_of(node);
            scan.pipeline.end();
            if let (false, Some(end)) = (
                scan.heap.is_null(),
                (*(*(*node).ss.ss_currentRelation).rd_tableam).scan_end,
            ) {
                let heap = scan.heap;
                call_postgres(|| end(heap));
                scan.heap = std::ptr::null_mut();
            }
        }
    });
}

/// Begins the node again.
extern "C-unwind" fn rescan(node: *mut CustomScanState) {
    guarded(|| {
        // SAFETY: a node that was begun.
        unsafe {
            clear_slots(node);
            let scan = scan_of(node);
            scan.pipeline.restart();
            if let (false, Some(rescan)) = (
                scan.heap.is_null(),
                (*(*(*node).ss.ss_currentRelation).rd_tableam).scan_rescan,
            ) {
                let heap = scan.heap;
                call_postgres(|| {
                    rescan(heap, std::ptr::null_mut(), false, false, false, false);
                });
            }
        }
    });
}

/// Takes rows out of the node's slots.
///
/// # Safety
///
/// A node of this module that was begun.
unsafe fn clear_slots(node: *mut CustomScanState) {
    // SAFETY: the caller's promise.
    unsafe {
        let scan = scan_of(node);
        let (returned, read) = ((*node).ss.ss_ScanTupleSlot, scan.slot);
        call_postgres(|| {
            nodes::clear(returned);
            nodes::clear(read);
        });
    }
}

/// Shows what the zone is asked, and in how many batches.
extern "C-unwind" fn explain(
    node: *mut CustomScanState,
    ancestors: *mut pg_sys::List,
    state: *mut pg_sys::ExplainState,
) {
    guarded(|| {
        // SAFETY: PostgreSQL's own structures, for as long as the call.
        unsafe {
            output::asked(node, scan_of(node).pipeline.sent(), ancestors, state);
        }
    });
}
