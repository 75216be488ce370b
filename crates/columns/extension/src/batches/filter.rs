//! The node that has the zone say for which rows of the node below its condition is true, for
//! hundreds of rows in one operation: above an index scan, or above a join whose inner side had the
//! condition.
//!
//! It copies the rows that it has read and not returned yet. A row for which the program fails, and
//! every row of a batch that the zone refuses, is asked about by the ordinary operators (E3). Must
//! not: return a row that the plan before would not have returned, or in another order.

use std::ffi::{CStr, c_int};

use pg_sys::{
    CustomScan, CustomScanState, EState, ExprState, MemoryContext, MinimalTuple, Node,
    TupleTableSlot,
};
use pgrx::pg_sys;

use super::expressions::Source;
use super::node_type::{Callbacks, NodeType};
use super::pipeline::Pipeline;
use super::rows::{Asked, Rows};
use super::sending::{append_inputs, last_column};
use super::{conditions, node_type, nodes, output};
use crate::call::{call_postgres, guarded};

/// Name of the node in plans.
const NAME: &CStr = c"Strongroom Filter";

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
struct Filter {
    /// The conditions that the zone is asked about, as ordinary expressions.
    asked: *mut ExprState,
    /// The conditions for the rows that are returned.
    behind: *mut ExprState,
    pipeline: Pipeline<Copies>,
}

/// Copies of rows.
struct Copies {
    /// The memory of the copies, which is freed with the query's.
    memory: MemoryContext,
    rows: Vec<MinimalTuple>,
    asked: Asked,
}

impl Copies {
    /// No rows. Their memory is a part of `parent`.
    ///
    /// # Safety
    ///
    /// A memory context that lives as long as this.
    unsafe fn new(parent: MemoryContext) -> Self {
        let size = |bytes: u32| usize::try_from(bytes).unwrap_or(0);
        // SAFETY: the caller's promise; a constant name.
        let memory = unsafe {
            pg_sys::AllocSetContextCreateInternal(
                parent,
                NAME.as_ptr(),
                size(pg_sys::ALLOCSET_DEFAULT_MINSIZE),
                size(pg_sys::ALLOCSET_DEFAULT_INITSIZE),
                size(pg_sys::ALLOCSET_DEFAULT_MAXSIZE),
            )
        };
        Self {
            memory,
            rows: Vec::new(),
            asked: Asked::default(),
        }
    }

    /// Has room for so many rows of so many inputs.
    fn reserve(&mut self, rows: usize, inputs: usize) {
        self.rows.reserve(rows);
        self.asked.inputs.reserve(rows.saturating_mul(inputs));
    }

    /// The next row for which the condition is true or not known yet, and the answer. `None` after
    /// the last one. The row stays where it is until [`Rows::clear`].
    fn next(&mut self) -> Option<(MinimalTuple, u8)> {
        let (at, answer) = self.asked.next()?;
        Some((*self.rows.get(at)?, answer))
    }
}

impl Rows for Copies {
    fn len(&self) -> usize {
        self.rows.len()
    }

    fn asked(&mut self) -> &mut Asked {
        &mut self.asked
    }

    fn clear(&mut self) {
        if self.rows.is_empty() {
            return;
        }
        self.rows.clear();
        self.asked.clear();
        let memory = self.memory;
        // SAFETY: a context of its own; no slot has one of its rows.
        unsafe { call_postgres(|| nodes::free_all(memory)) };
    }
}

/// Makes the node's state.
extern "C-unwind" fn create(_plan: *mut CustomScan) -> *mut Node {
    guarded(|| NODE.new_state::<Filter>())
}

/// Begins the node and the one below: makes its slot and its conditions. Asks nothing of the zone.
extern "C-unwind" fn begin(node: *mut CustomScanState, estate: *mut EState, flags: c_int) {
    guarded(|| {
        // SAFETY: PostgreSQL's own nodes, for as long as the query is executed.
        unsafe {
            let plan: *mut CustomScan = (*node).ss.ps.plan.cast();
            let below = (*plan).scan.plan.lefttree;
            (*node).ss.ps.lefttree = pg_sys::ExecInitNode(below, estate, flags);
            // PostgreSQL has made a virtual slot (nodeCustom.c); these rows are copies.
            let columns = (*(*node).ss.ss_ScanTupleSlot).tts_tupleDescriptor;
            let tables = &raw mut (*estate).es_tupleTable;
            let of_copies = &raw const pg_sys::TTSOpsMinimalTuple;
            let slot = pg_sys::ExecAllocTableSlot(tables, columns, of_copies);
            (*node).ss.ss_ScanTupleSlot = slot;
            (*node).ss.ps.scanops = (*slot).tts_ops;
            let own = &raw mut (*node).ss;
            pg_sys::ExecAssignScanProjectionInfoWithVarno(own, pg_sys::INDEX_VAR);
            let memory = (*estate).es_query_cxt;
            let asked = conditions::with_zone(plan);
            let shape = conditions::compile(asked, pg_sys::INDEX_VAR, std::ptr::null_mut());
            let sources = shape.map_or_else(Vec::new, |of| of.sources);
            let batches = [Copies::new(memory), Copies::new(memory)];
            let filter = Filter {
                asked: nodes::init_conditions(asked, node),
                behind: nodes::init_conditions(conditions::behind(plan), node),
                pipeline: Pipeline::new(batches, sources),
            };
            node_type::keep(node, estate, filter);
        }
    });
}

/// The node's state.
///
/// # Safety
///
/// A node of this module that was begun; no other reference to its state.
unsafe fn filter_of<'a>(node: *mut CustomScanState) -> &'a mut Filter {
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
        // No reference to the state is held while an expression is evaluated.
        // SAFETY: the caller's promise.
        let (asked, behind, (row, answer)) = unsafe {
            let filter = filter_of(node);
            (
                filter.asked,
                filter.behind,
                filter.pipeline.current()?.next()?,
            )
        };
        // SAFETY: the copy stays until the batch is cleared; the closure owns nothing.
        let returned = unsafe {
            call_postgres(|| {
                let slot = (*node).ss.ss_ScanTupleSlot;
                nodes::store_copy(row, slot);
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
    // SAFETY: the caller's promise. The nodes below do not know this state.
    unsafe {
        call_postgres(|| nodes::clear((*node).ss.ss_ScanTupleSlot));
        let below = (*node).ss.ps.lefttree;
        let pipeline = &mut filter_of(node).pipeline;
        pipeline.advance(
            |copies, size, sources| read_rows(below, copies, size, sources),
            || {
                let plan: *mut CustomScan = (*node).ss.ps.plan.cast();
                let context = (*node).ss.ps.ps_ExprContext;
                conditions::compile(conditions::with_zone(plan), pg_sys::INDEX_VAR, context)
            },
        )
    }
}

/// Copies rows of the node below into a batch, at most `size`. True if there are no more.
///
/// # Safety
///
/// A node of the executor that was begun; the batch is empty.
unsafe fn read_rows(
    below: *mut pg_sys::PlanState,
    copies: &mut Copies,
    size: usize,
    sources: &[Source],
) -> bool {
    copies.reserve(size, sources.len());
    let last = last_column(sources);
    // SAFETY: the caller's promise; nothing in the closure has a destructor, and the batch has room
    // for what is added to it.
    unsafe {
        call_postgres(|| {
            while copies.rows.len() < size {
                let slot = nodes::next_row(below);
                if nodes::is_empty(slot) {
                    return true;
                }
                append_inputs(slot, (sources, last), &mut copies.asked.inputs);
                copies.rows.push(nodes::copy(slot, copies.memory));
            }
            false
        })
    }
}

/// Ends the node and the one below.
extern "C-unwind" fn end(node: *mut CustomScanState) {
    guarded(|| {
        // SAFETY: a node that was begun.
        unsafe {
            call_postgres(|| nodes::clear((*node).ss.ss_ScanTupleSlot));
            filter_of(node).pipeline.end();
            pg_sys::ExecEndNode((*node).ss.ps.lefttree);
        }
    });
}

/// Begins the node and the one below again.
extern "C-unwind" fn rescan(node: *mut CustomScanState) {
    guarded(|| {
        // SAFETY: a node that was begun.
        unsafe {
            call_postgres(|| nodes::clear((*node).ss.ss_ScanTupleSlot));
            filter_of(node).pipeline.restart();
            nodes::begin_again((*node).ss.ps.lefttree);
        }
    });
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
            output::asked(node, filter_of(node).pipeline.sent(), ancestors, state);
        }
    });
}
