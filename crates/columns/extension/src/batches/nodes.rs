//! What both nodes need of PostgreSQL's executor: the inline functions of executor.h and
//! tuptable.h, and functions that are called for every row.
//!
//! pgrx guards each call of a function of PostgreSQL against its errors, which costs more than most
//! of these do. Here they are declared once more without a guard: they may be called only within
//! [`call_postgres`], from frames that own nothing with a destructor. Must not: know a node.

use std::ffi::{c_int, c_void};

use pg_sys::{
    Buffer, CustomScanState, ExprContext, ExprState, HeapTupleData, MemoryContext, MinimalTuple,
    PlanState, ProjectionInfo, TupleTableSlot,
};
use pgrx::pg_sys;

use crate::call::call_postgres;
use crate::ring::batches::ASK;

unsafe extern "C-unwind" {
    /// Reads the columns up to `count` of a row into its slot (executor/tuptable.h).
    fn slot_getsomeattrs_int(slot: *mut TupleTableSlot, count: c_int);
    /// Frees what was allocated in a memory context (utils/palloc.h).
    fn MemoryContextReset(context: MemoryContext);
    /// Pins a buffer that is pinned once more (storage/bufmgr.h).
    fn IncrBufferRefCount(buffer: Buffer);
    /// Gives a pin back (storage/bufmgr.h).
    fn ReleaseBuffer(buffer: Buffer);
    /// Puts a row of a table into a slot (executor/tuptable.h).
    fn ExecStoreBufferHeapTuple(
        tuple: *mut HeapTupleData,
        slot: *mut TupleTableSlot,
        buffer: Buffer,
    ) -> *mut TupleTableSlot;
    /// Executes a subplan, and keeps its result as a parameter (executor/nodeSubplan.h).
    fn ExecSetParamPlan(subplan: *mut c_void, context: *mut ExprContext);
    /// Begins a node again (executor/executor.h).
    fn ExecReScan(node: *mut PlanState);
    /// Puts a copy of a row into a slot (executor/tuptable.h).
    fn ExecStoreMinimalTuple(
        tuple: MinimalTuple,
        slot: *mut TupleTableSlot,
        frees: bool,
    ) -> *mut TupleTableSlot;
}

/// Has the columns of a row up to `count` in its slot.
///
/// # Safety
///
/// Within [`call_postgres`]; a slot with a row of at least so many columns.
pub(super) unsafe fn read_columns(slot: *mut TupleTableSlot, count: i16) {
    // SAFETY: the caller's promise.
    unsafe {
        if (*slot).tts_nvalid < count {
            slot_getsomeattrs_int(slot, c_int::from(count));
        }
    }
}

/// The bits of column `number`, from 1, of a row whose columns were read. `None` for NULL.
///
/// # Safety
///
/// A slot whose columns up to this one were read.
pub(super) unsafe fn column(slot: *mut TupleTableSlot, number: i16) -> Option<u64> {
    // SAFETY: the caller's promise.
    unsafe {
        let at = usize::try_from(number).ok()?.checked_sub(1)?;
        let is_null = *(*slot).tts_isnull.add(at);
        (!is_null).then(|| crate::call::bits(*(*slot).tts_values.add(at)))
    }
}

/// Whether a condition holds for the row of the context. An empty condition holds.
///
/// # Safety
///
/// Within [`call_postgres`]; a condition of the executor (`ExecInitQual`), or null, and its
/// context.
pub(super) unsafe fn holds(condition: *mut ExprState, context: *mut ExprContext) -> bool {
    // SAFETY: the caller's promise; as ExecQual does it.
    unsafe {
        let Some(evaluate) = condition.as_ref().and_then(|condition| condition.evalfunc) else {
            return true;
        };
        let before = pg_sys::CurrentMemoryContext;
        pg_sys::CurrentMemoryContext = (*context).ecxt_per_tuple_memory;
        let mut is_null = false;
        let result = evaluate(condition, context, &raw mut is_null);
        pg_sys::CurrentMemoryContext = before;
        result.value() != 0
    }
}

/// Frees what was allocated for the row before.
///
/// # Safety
///
/// Within [`call_postgres`]; a context of the executor.
pub(super) unsafe fn reset(context: *mut ExprContext) {
    // SAFETY: the caller's promise.
    unsafe { MemoryContextReset((*context).ecxt_per_tuple_memory) };
}

/// Conditions of a node, to be evaluated.
///
/// # Safety
///
/// A list of expressions of the node's plan, or null, and a node that is being begun.
pub(super) unsafe fn init_conditions(
    conditions: *mut pg_sys::List,
    node: *mut CustomScanState,
) -> *mut ExprState {
    // SAFETY: the caller's promise.
    unsafe { pg_sys::ExecInitQual(conditions, &raw mut (*node).ss.ps) }
}

/// The conditions that are left to be evaluated for a row, about which the zone has answered this.
pub(super) const fn open_conditions(
    answer: u8,
    asked: *mut ExprState,
    behind: *mut ExprState,
) -> [*mut ExprState; 2] {
    if answer == ASK {
        [asked, behind]
    } else {
        [std::ptr::null_mut(), behind]
    }
}

/// Counts a row for EXPLAIN that the node's first conditions have dropped.
///
/// # Safety
///
/// A node that was begun.
pub(super) unsafe fn count_dropped(node: *mut CustomScanState) {
    // SAFETY: the caller's promise; as InstrCountFiltered1 does it (executor/nodes.h).
    unsafe {
        if let Some(counts) = (*node).ss.ps.instrument.as_mut() {
            counts.nfiltered1 += 1.0;
        }
    }
}

/// What a node returns for the row in this slot: the row itself, or what the node's projection
/// makes of it. `None` if one of the conditions does not hold.
///
/// # Safety
///
/// Within [`call_postgres`]; a node that was begun, and conditions of its executor, or null.
pub(super) unsafe fn returned(
    node: *mut CustomScanState,
    slot: *mut TupleTableSlot,
    conditions: [*mut ExprState; 2],
) -> Option<*mut TupleTableSlot> {
    // SAFETY: the caller's promise.
    unsafe {
        let context = (*node).ss.ps.ps_ExprContext;
        reset(context);
        (*context).ecxt_scantuple = slot;
        for condition in conditions {
            if !holds(condition, context) {
                return None;
            }
        }
        let projection = (*node).ss.ps.ps_ProjInfo;
        Some(if projection.is_null() {
            slot
        } else {
            project(projection)
        })
    }
}

/// The row that a projection makes of the row of its context.
///
/// # Safety
///
/// Within [`call_postgres`]; a projection of the executor.
pub(super) unsafe fn project(projection: *mut ProjectionInfo) -> *mut TupleTableSlot {
    // SAFETY: the caller's promise; as ExecProject does it.
    unsafe {
        let state = &raw mut (*projection).pi_state;
        let context = (*projection).pi_exprContext;
        let slot = (*state).resultslot;
        clear(slot);
        if let Some(evaluate) = (*state).evalfunc {
            let before = pg_sys::CurrentMemoryContext;
            pg_sys::CurrentMemoryContext = (*context).ecxt_per_tuple_memory;
            let mut is_null = false;
            evaluate(state, context, &raw mut is_null);
            pg_sys::CurrentMemoryContext = before;
        }
        mark_filled(slot);
        slot
    }
}

/// Notes that all columns of a virtual row are in its slot.
///
/// # Safety
///
/// A virtual slot whose columns were set.
pub(super) unsafe fn mark_filled(slot: *mut TupleTableSlot) {
    // SAFETY: the caller's promise; as ExecStoreVirtualTuple does it.
    unsafe {
        (*slot).tts_flags &= !u16::try_from(pg_sys::TTS_FLAG_EMPTY).unwrap_or(0);
        let count = (*(*slot).tts_tupleDescriptor).natts;
        (*slot).tts_nvalid = i16::try_from(count).unwrap_or(i16::MAX);
    }
}

/// Empties a slot.
///
/// # Safety
///
/// Within [`call_postgres`]; a slot.
pub(super) unsafe fn clear(slot: *mut TupleTableSlot) {
    // SAFETY: the caller's promise; every sort of slot has the callback.
    unsafe {
        if let Some(clear) = (*(*slot).tts_ops).clear {
            clear(slot);
        }
    }
}

/// The next row of a node below; null, or an empty slot, when there are no more.
///
/// # Safety
///
/// Within [`call_postgres`]; a node of the executor that was begun.
pub(super) unsafe fn next_row(node: *mut PlanState) -> *mut TupleTableSlot {
    // SAFETY: the caller's promise; as ExecProcNode does it.
    unsafe {
        if !(*node).chgParam.is_null() {
            ExecReScan(node);
        }
        (*node)
            .ExecProcNode
            .map_or(std::ptr::null_mut(), |next| next(node))
    }
}

/// Whether there is no row in what [`next_row`] has returned.
///
/// # Safety
///
/// Null or a slot.
pub(super) unsafe fn is_empty(slot: *mut TupleTableSlot) -> bool {
    let empty = u16::try_from(pg_sys::TTS_FLAG_EMPTY).unwrap_or(0);
    // SAFETY: the caller's promise.
    slot.is_null() || unsafe { (*slot).tts_flags & empty != 0 }
}

/// Pins the page of a row once more.
///
/// # Safety
///
/// Within [`call_postgres`]; a buffer that is pinned.
pub(super) unsafe fn pin(buffer: Buffer) {
    // SAFETY: the caller's promise.
    unsafe { IncrBufferRefCount(buffer) };
}

/// Gives a pin back.
///
/// # Safety
///
/// Within [`call_postgres`]; a buffer that [`pin`] has pinned.
pub(super) unsafe fn unpin(buffer: Buffer) {
    // SAFETY: the caller's promise.
    unsafe { ReleaseBuffer(buffer) };
}

/// Puts a row of a pinned page into a slot.
///
/// # Safety
///
/// Within [`call_postgres`]; a row that stays where it is as long as it is in the slot, on a page
/// that is pinned.
pub(super) unsafe fn store(row: *mut HeapTupleData, slot: *mut TupleTableSlot, buffer: Buffer) {
    // SAFETY: the caller's promise.
    unsafe { ExecStoreBufferHeapTuple(row, slot, buffer) };
}

/// Copies the row of a slot into a memory context.
///
/// # Safety
///
/// Within [`call_postgres`]; a slot with a row.
pub(super) unsafe fn copy(slot: *mut TupleTableSlot, memory: MemoryContext) -> MinimalTuple {
    // SAFETY: the caller's promise; every sort of slot has the callback (ExecCopySlotMinimalTuple).
    unsafe {
        let before = pg_sys::CurrentMemoryContext;
        pg_sys::CurrentMemoryContext = memory;
        let copy = (*(*slot).tts_ops).copy_minimal_tuple;
        let copied = copy.map_or(std::ptr::null_mut(), |copy| copy(slot));
        pg_sys::CurrentMemoryContext = before;
        copied
    }
}

/// Puts a copy of a row into a slot.
///
/// # Safety
///
/// Within [`call_postgres`]; a copy that stays as long as it is in the slot, which is for copies.
pub(super) unsafe fn store_copy(row: MinimalTuple, slot: *mut TupleTableSlot) {
    // SAFETY: the caller's promise.
    unsafe { ExecStoreMinimalTuple(row, slot, false) };
}

/// Frees everything in a memory context.
///
/// # Safety
///
/// Within [`call_postgres`]; a context of which nothing is used any more.
pub(super) unsafe fn free_all(memory: MemoryContext) {
    // SAFETY: the caller's promise.
    unsafe { MemoryContextReset(memory) };
}

/// The next row that a node returns, with what its module has for that: `next_of_batch` returns the
/// next row of the batch that is at hand, and `advance` goes on to another batch, and returns
/// whether there is one. An empty slot when there are no more rows.
///
/// # Safety
///
/// A node that was begun, and functions of its module.
pub(super) unsafe fn next_of_batches(
    node: *mut CustomScanState,
    next_of_batch: unsafe fn(*mut CustomScanState) -> Option<*mut TupleTableSlot>,
    advance: unsafe fn(*mut CustomScanState) -> bool,
) -> *mut TupleTableSlot {
    loop {
        // SAFETY: the caller's promise; PostgreSQL calls a node once at a time.
        unsafe {
            if let Some(slot) = next_of_batch(node) {
                return slot;
            }
            if !advance(node) {
                return no_row(node);
            }
        }
    }
}

/// What a node returns when there are no more rows: an empty slot of the node's own sort.
///
/// # Safety
///
/// A node that was begun.
unsafe fn no_row(node: *mut CustomScanState) -> *mut TupleTableSlot {
    // SAFETY: the caller's promise.
    unsafe {
        let projection = (*node).ss.ps.ps_ProjInfo;
        let slot = if projection.is_null() {
            (*node).ss.ss_ScanTupleSlot
        } else {
            (*projection).pi_state.resultslot
        };
        call_postgres(|| clear(slot));
        slot
    }
}

/// Begins the node below again, unless its parameters have changed: then that is done when it is
/// read.
///
/// # Safety
///
/// A node of the executor that was begun.
pub(super) unsafe fn begin_again(below: *mut PlanState) {
    // SAFETY: the caller's promise.
    unsafe {
        if (*below).chgParam.is_null() {
            call_postgres(|| ExecReScan(below));
        }
    }
}

/// Copies an expression whose parts `mutator` replaces (`expression_tree_mutator`).
///
/// # Safety
///
/// An expression of a finished plan, and what the mutator expects.
pub(super) unsafe fn mutate(
    node: *mut pg_sys::Node,
    mutator: unsafe extern "C-unwind" fn(*mut pg_sys::Node, *mut c_void) -> *mut pg_sys::Node,
    context: *mut c_void,
) -> *mut pg_sys::Node {
    type Mutator = unsafe extern "C-unwind" fn(*mut pg_sys::Node, *mut c_void) -> *mut pg_sys::Node;
    type Untyped = unsafe extern "C-unwind" fn() -> *mut pg_sys::Node;
    // SAFETY: the caller's promise. PostgreSQL 15 declares the function without arguments, and
    // calls it with two.
    unsafe {
        let untyped = std::mem::transmute::<Mutator, Untyped>(mutator);
        pg_sys::expression_tree_mutator(node, Some(untyped), context)
    }
}

/// Executes a subplan, so that the parameter that it sets has a value.
///
/// # Safety
///
/// What the executor keeps for a parameter that was not computed yet, and a node's context.
pub(super) unsafe fn execute_subplan(subplan: *mut c_void, context: *mut ExprContext) {
    // SAFETY: the caller's promise; the closure owns nothing.
    unsafe { call_postgres(|| ExecSetParamPlan(subplan, context)) };
}

/// A node with the costs, the columns and the parameters of the one that it replaces.
///
/// # Safety
///
/// A node of a finished plan.
pub(super) unsafe fn new_node(
    replaced: *const pg_sys::Plan,
    methods: *const pg_sys::CustomScanMethods,
) -> *mut pg_sys::CustomScan {
    // SAFETY: the caller's promise; new memory, zeros.
    unsafe {
        let node: *mut pg_sys::CustomScan = pg_sys::palloc0(size_of::<pg_sys::CustomScan>()).cast();
        (*node).scan.plan = *replaced;
        (*node).scan.plan.type_ = pg_sys::NodeTag::T_CustomScan;
        (*node).methods = methods;
        node
    }
}
