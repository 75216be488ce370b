//! The node that reads a table and has the zone say for which rows its condition is true, for
//! hundreds of rows in one operation.
//!
//! While the zone works on one batch, the next one is read. Conditions on columns in clear are
//! evaluated first, row by row. A row for which the program fails, and every row of a batch that
//! the zone refuses, is asked about by the ordinary operators (E3). Must not: return a row that the
//! scan before would not have returned, or in another order.

use std::ffi::{CStr, c_int};

use pg_sys::{
    CustomExecMethods, CustomScan, CustomScanMethods, CustomScanState, EState, ExprState, Node,
    TableScanDesc, TupleTableSlot,
};
use pgrx::pg_sys;

use super::expressions::{Compiled, Compiler, Source};
use super::nodes::{Callbacks, Shared};
use super::rows::{self, ASK, Found, RowBatch};
use super::sending::{SentProgram, by_input, input_word};
use super::{nodes, output};
use crate::call::{call_postgres, guarded};
use crate::catalog::options::items;
use crate::fault;
use crate::ring::batches::{BatchAnswer, rows_max};

/// Name of the node in plans.
const NAME: &CStr = c"Strongroom Scan";
/// Rows of the first batch: a query that needs only some rows has asked about no more.
const FIRST_ROWS: usize = 64;
/// By which factor batches grow.
const GROWTH: usize = 4;

static SCAN_METHODS: Shared<CustomScanMethods> = Shared(CustomScanMethods {
    CustomName: NAME.as_ptr(),
    CreateCustomScanState: Some(create_state),
});

static EXEC_METHODS: Shared<CustomExecMethods> = nodes::exec_methods(
    NAME,
    Callbacks {
        begin,
        next,
        end,
        rescan,
        explain,
    },
);

/// Registers the node.
pub(super) fn register() {
    // SAFETY: a static structure.
    unsafe { pg_sys::RegisterCustomScanMethods(&raw const SCAN_METHODS.0) };
}

/// The node's functions, for a plan.
pub(super) fn methods() -> *const CustomScanMethods {
    &raw const SCAN_METHODS.0
}

/// What the node keeps. Freed with the memory of its query.
struct Scan {
    /// The conditions that the zone is asked about, as ordinary expressions.
    conditions: *mut ExprState,
    /// Made when the first row is read: then the results of subplans are known.
    program: Option<SentProgram>,
    /// The scan of the table. Null before its first row.
    heap: TableScanDesc,
    /// The slot that rows are read into.
    slot: *mut TupleTableSlot,
    /// The batch whose rows are returned, and the next one.
    batches: [Batch; 2],
    /// Which of these is returned.
    current: usize,
    /// The most rows of the next batch.
    size: usize,
    has_ended: bool,
    /// Batches so far, for EXPLAIN.
    sent: i64,
}

/// Rows, and the ticket of what the zone was asked about them.
struct Batch {
    rows: RowBatch,
    ticket: Option<u64>,
}

/// Makes the node's state.
extern "C-unwind" fn create_state(_plan: *mut CustomScan) -> *mut Node {
    guarded(|| nodes::new_state::<Scan>(&EXEC_METHODS))
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
            let conditions = (*plan).custom_exprs;
            let varno = c_int::try_from((*plan).scan.scanrelid).unwrap_or(0);
            let shape = compile(conditions, varno, std::ptr::null_mut());
            let inputs = shape.map_or(0, |of| of.sources.len());
            let rows = rows_max(inputs);
            let batch = || Batch {
                rows: RowBatch::new(relation, rows, inputs),
                ticket: None,
            };
            let scan = Scan {
                conditions: pg_sys::ExecInitQual(conditions, &raw mut (*node).ss.ps),
                program: None,
                heap: std::ptr::null_mut(),
                slot: pg_sys::table_slot_create(relation, tables),
                batches: [batch(), batch()],
                current: 0,
                size: FIRST_ROWS,
                has_ended: false,
                sent: 0,
            };
            nodes::keep(node, estate, scan);
        }
    });
}

/// The program of a list of conditions, all of which have to hold. `None` if one has no place in a
/// program.
///
/// # Safety
///
/// A list of expressions of a finished plan, and the node's context or null.
pub(super) unsafe fn compile(
    conditions: *mut pg_sys::List,
    varno: c_int,
    context: *mut pg_sys::ExprContext,
) -> Option<Compiled> {
    let mut compiler = Compiler::new(varno, context);
    // SAFETY: the caller's promise.
    for condition in unsafe { items::<Node>(conditions) } {
        // SAFETY: as above.
        unsafe { compiler.keep(condition) }?;
    }
    compiler.finish()
}

/// Splits conditions, all of which have to hold, into those that a program can have and the others.
///
/// # Safety
///
/// A list of expressions of a finished plan.
pub(super) unsafe fn split(
    conditions: *mut pg_sys::List,
    varno: c_int,
) -> (*mut pg_sys::List, *mut pg_sys::List) {
    let none = std::ptr::null_mut();
    let (mut with_zone, mut others) = (none, none);
    // SAFETY: the caller's promise.
    unsafe {
        for condition in items::<Node>(conditions) {
            let one = pg_sys::lappend(std::ptr::null_mut(), condition.cast());
            let compiled = compile(one, varno, std::ptr::null_mut());
            // What concerns no row is not asked of the zone for each.
            if compiled.is_some_and(|compiled| !compiled.sources.is_empty()) {
                with_zone = pg_sys::lappend(with_zone, condition.cast());
            } else {
                others = pg_sys::lappend(others, condition.cast());
            }
        }
        // Together they have to fit, too.
        if compile(with_zone, varno, std::ptr::null_mut()).is_none() {
            return (std::ptr::null_mut(), conditions);
        }
    }
    (with_zone, others)
}

/// The node's state.
///
/// # Safety
///
/// A node of this module that was begun; no other reference to its state.
unsafe fn scan_of<'a>(node: *mut CustomScanState) -> &'a mut Scan {
    // SAFETY: the caller's promise.
    unsafe { nodes::kept(node) }
}

/// Returns the next row; an empty slot when there are no more.
extern "C-unwind" fn next(node: *mut CustomScanState) -> *mut TupleTableSlot {
    guarded(|| {
        loop {
            // SAFETY: a node that was begun; PostgreSQL calls it once at a time.
            if let Some(slot) = unsafe { next_of_batch(node) } {
                return slot;
            }
            // SAFETY: as above.
            if !unsafe { scan_of(node).advance(node) } {
                // SAFETY: an empty row of the node's own sort.
                return unsafe {
                    let projection = (*node).ss.ps.ps_ProjInfo;
                    let slot = if projection.is_null() {
                        (*node).ss.ss_ScanTupleSlot
                    } else {
                        (*projection).pi_state.resultslot
                    };
                    call_postgres(|| nodes::clear(slot));
                    slot
                };
            }
        }
    })
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
        let (conditions, (row, buffer, answer)) = unsafe { scan_of(node).next_row() }?;
        // SAFETY: the row is on a page that the batch has pinned, and stays there until the batch
        // is cleared; the closure owns nothing.
        let returned = unsafe {
            call_postgres(|| {
                let slot = (*node).ss.ss_ScanTupleSlot;
                nodes::store(row, slot, buffer);
                let asked = (answer == ASK).then_some(conditions);
                nodes::returned(node, slot, asked.as_slice())
            })
        };
        if returned.is_some() {
            return returned;
        }
    }
}

impl Scan {
    /// The conditions, and the next row of the current batch for which the program is true or not
    /// known. `None` when there is none.
    fn next_row(&mut self) -> Option<(*mut ExprState, Found)> {
        let batch = self.batches.get_mut(self.current)?;
        Some((self.conditions, batch.rows.next()?))
    }

    /// Goes on to the next batch, and has the one after it read and asked about. False when there
    /// is none.
    ///
    /// # Safety
    ///
    /// The node of this state.
    unsafe fn advance(&mut self, node: *mut CustomScanState) -> bool {
        // SAFETY: the node's own slot, which may have a row of the batch that is cleared.
        unsafe { call_postgres(|| nodes::clear((*node).ss.ss_ScanTupleSlot)) };
        let finished = self.current;
        if let Some(batch) = self.batches.get_mut(finished) {
            batch.rows.clear();
        }
        // SAFETY: the caller's promise.
        unsafe {
            let other = other_of(finished);
            if self
                .batches
                .get(other)
                .is_some_and(|other| other.rows.len() == 0)
            {
                self.fill(node, other);
            }
            self.current = other;
            if self
                .batches
                .get(other)
                .is_none_or(|other| other.rows.len() == 0)
            {
                return false;
            }
            // The zone works on one batch while the next one is read.
            self.fill(node, finished);
        }
        self.take_answers(self.current);
        if let Some(batch) = self.batches.get(self.current) {
            rows::enter(&batch.rows);
        }
        true
    }

    /// Reads rows into a batch, which is empty, and sends it to the zone.
    ///
    /// # Safety
    ///
    /// The node of this state.
    unsafe fn fill(&mut self, node: *mut CustomScanState, at: usize) {
        if self.has_ended {
            return;
        }
        if self.heap.is_null() {
            // SAFETY: the caller's promise.
            self.heap = unsafe { begin_heap_scan(node) };
        }
        if self.program.is_none() {
            // SAFETY: the caller's promise.
            let compiled = unsafe {
                let plan: *mut CustomScan = (*node).ss.ps.plan.cast();
                let varno = c_int::try_from((*plan).scan.scanrelid).unwrap_or(0);
                compile((*plan).custom_exprs, varno, (*node).ss.ps.ps_ExprContext)
            };
            self.program = compiled.map(SentProgram::new);
        }
        let Some(program) = &self.program else {
            fault::raise_internal("a condition of a plan is not in a program");
        };
        let sources = &program.compiled.sources;
        let (heap, slot, size) = (self.heap, self.slot, self.size);
        let Some(batch) = self.batches.get_mut(at) else {
            return;
        };
        // SAFETY: the caller's promise.
        let ended = unsafe { read_rows(node, heap, slot, size, sources, &mut batch.rows) };
        self.has_ended = ended;
        self.size = (size * GROWTH).min(rows_max(sources.len()));
        self.send(at);
    }

    /// Sends a batch to the zone, without waiting.
    fn send(&mut self, at: usize) {
        let (Some(program), Some(batch)) = (&mut self.program, self.batches.get_mut(at)) else {
            return;
        };
        let rows = batch.rows.len();
        if rows == 0 {
            return;
        }
        let words = by_input(&batch.rows.inputs, program.compiled.sources.len());
        batch.ticket = Some(program.send_batch(rows, &words, true));
        self.sent += 1;
    }

    /// Waits for the zone's answers about a batch. Rows that it has not answered for are to be
    /// asked about by the ordinary operators.
    fn take_answers(&mut self, at: usize) {
        let Some(batch) = self.batches.get_mut(at) else {
            return;
        };
        if let (Some(ticket), Some(program)) = (batch.ticket.take(), &self.program)
            && let BatchAnswer::Done(_, bytes) = program.answer(ticket)
        {
            batch.rows.answers.extend_from_slice(&bytes);
        }
        let rows = batch.rows.len();
        batch.rows.answers.resize(rows, ASK);
    }
}

/// The other one of two batches.
const fn other_of(at: usize) -> usize {
    1 - at
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
    sources: &[Source],
    batch: &mut RowBatch,
) -> bool {
    let last = sources.iter().map(|source| source.column()).max();
    let last = last.unwrap_or(0);
    let forward = pg_sys::ScanDirection::ForwardScanDirection;
    // SAFETY: the caller's promise; nothing in the closure has a destructor, and the batch has room
    // for what is added to it.
    unsafe {
        let next = (*(*(*heap).rs_rd).rd_tableam).scan_getnextslot;
        let Some(next) = next else {
            fault::raise_internal("a table has no rows");
        };
        call_postgres(|| {
            let context = (*node).ss.ps.ps_ExprContext;
            let conditions = (*node).ss.ps.qual;
            while batch.len() < size && batch.has_room() {
                if !next(heap, forward, slot) {
                    return true;
                }
                if !conditions.is_null() {
                    nodes::reset(context);
                    (*context).ecxt_scantuple = slot;
                    if !nodes::holds(conditions, context) {
                        continue;
                    }
                }
                nodes::read_columns(slot, last);
                let on_page: *mut pg_sys::BufferHeapTupleTableSlot = slot.cast();
                batch.push(*(*on_page).base.tuple, (*on_page).buffer);
                for source in sources {
                    let bits = nodes::column(slot, source.column());
                    batch.inputs.push(input_word(*source, bits));
                }
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
            stop(node);
            let scan = scan_of(node);
            drop(scan.program.take());
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
            stop(node);
            let scan = scan_of(node);
            scan.has_ended = false;
            scan.size = FIRST_ROWS;
            let depends = |known: &mut SentProgram| known.compiled.depends_on_subplans;
            drop(scan.program.take_if(depends));
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

/// Forgets the rows that were read and not returned.
///
/// # Safety
///
/// A node of this module that was begun.
unsafe fn stop(node: *mut CustomScanState) {
    // SAFETY: the caller's promise.
    unsafe {
        let scan = scan_of(node);
        let (returned, read) = ((*node).ss.ss_ScanTupleSlot, scan.slot);
        call_postgres(|| {
            nodes::clear(returned);
            nodes::clear(read);
        });
        for batch in &mut scan.batches {
            batch.rows.clear();
            batch.ticket = None;
        }
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
            let plan: *mut CustomScan = (*node).ss.ps.plan.cast();
            output::conditions(plan, (*plan).custom_exprs, ancestors, state);
            if (*state).analyze {
                output::number(c"Batches", scan_of(node).sent, state);
            }
        }
    });
}
