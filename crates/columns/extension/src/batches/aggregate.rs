//! The node that aggregates: the zone groups the rows and computes the aggregates, for hundreds of
//! rows in one operation.
//!
//! It takes the place of a hashed or plain aggregation, and reads its rows from the node below,
//! whatever that is. The zone works on one batch while the next one is read. Groups are returned in
//! the order in which their first rows came. Must not: return other groups than the aggregation
//! before would have returned.

use std::ffi::{CStr, c_int};

use pg_sys::{
    CustomExecMethods, CustomScan, CustomScanMethods, CustomScanState, EState, List, Node, NodeTag,
    TupleTableSlot,
};
use pgrx::pg_sys;

use super::aggregate_plan::{Place, compile, places};
use super::expressions::{Compiled, Source};
use super::nodes::Shared;
use super::sending::{by_input, forget_program, input_word, program_of};
use super::{nodes, output};
use crate::call::{call_postgres, guarded};
use crate::fault;
use crate::ring::batches::{BatchAnswer, rows_max};
use crate::ring::zone;

/// Name of the node in plans.
const NAME: &CStr = c"Strongroom Aggregate";
static SCAN_METHODS: Shared<CustomScanMethods> = Shared(CustomScanMethods {
    CustomName: NAME.as_ptr(),
    CreateCustomScanState: Some(create_state),
});

static EXEC_METHODS: Shared<CustomExecMethods> = Shared(CustomExecMethods {
    CustomName: NAME.as_ptr(),
    BeginCustomScan: Some(begin),
    ExecCustomScan: Some(next),
    EndCustomScan: Some(end),
    ReScanCustomScan: Some(rescan),
    MarkPosCustomScan: None,
    RestrPosCustomScan: None,
    EstimateDSMCustomScan: None,
    InitializeDSMCustomScan: None,
    ReInitializeDSMCustomScan: None,
    InitializeWorkerCustomScan: None,
    ShutdownCustomScan: None,
    ExplainCustomScan: Some(explain),
});

/// Registers the node.
pub(super) fn register() {
    // SAFETY: a static structure.
    unsafe { pg_sys::RegisterCustomScanMethods(&raw const SCAN_METHODS.0) };
}

/// The node's functions, for a plan.
pub(super) fn methods() -> *const CustomScanMethods {
    &raw const SCAN_METHODS.0
}

/// The node while it is executed.
#[repr(C)]
struct State {
    /// First, because PostgreSQL knows only this part.
    node: CustomScanState,
    grouping: *mut Grouping,
}

/// What the node keeps. Freed with the memory of its query.
struct Grouping {
    compiled: Option<Compiled>,
    /// By column of the node's rows: where its word is among those of a group.
    places: Vec<Place>,
    program: Option<(u64, u32)>,
    /// Whether all rows of the node below were sent.
    has_all: bool,
    /// Words of groups that were fetched, and the place of the next group's.
    words: Vec<u64>,
    at: usize,
    /// The number of groups that were fetched, and of all groups, if known.
    fetched: usize,
    all: Option<usize>,
    /// Batches so far, for EXPLAIN.
    sent: i64,
}

/// A batch that was sent.
struct Sent {
    ticket: u64,
    words: Vec<u64>,
    rows: usize,
}

/// Makes the node's state.
extern "C-unwind" fn create_state(_plan: *mut CustomScan) -> *mut Node {
    guarded(|| {
        // SAFETY: memory of the query, zeros; the tag and the functions are set before PostgreSQL
        // sees it.
        unsafe {
            let state: *mut State = pg_sys::palloc0(size_of::<State>()).cast();
            (*state).node.ss.ps.type_ = NodeTag::T_CustomScanState;
            (*state).node.methods = &raw const EXEC_METHODS.0;
            state.cast()
        }
    })
}

/// Begins the node and the one below, and makes the program. Asks nothing of the zone.
extern "C-unwind" fn begin(node: *mut CustomScanState, estate: *mut EState, flags: c_int) {
    guarded(|| {
        // SAFETY: PostgreSQL's own nodes, for as long as the query is executed.
        unsafe {
            let state: *mut State = node.cast();
            let plan: *mut CustomScan = (*node).ss.ps.plan.cast();
            let below = (*plan).scan.plan.lefttree;
            (*node).ss.ps.lefttree = pg_sys::ExecInitNode(below, estate, flags);
            let row = (*plan).custom_scan_tlist;
            let keys = (*(*(*plan).custom_private).elements).int_value;
            let keys = usize::try_from(keys).unwrap_or(0);
            let compiled = compile(row, keys, (*estate).es_param_list_info);
            let grouping = Grouping {
                places: places(row, keys),
                compiled,
                program: None,
                has_all: false,
                words: Vec::new(),
                at: 0,
                fetched: 0,
                all: None,
                sent: 0,
            };
            (*state).grouping = nodes::keep_until_freed((*estate).es_query_cxt, grouping);
        }
    });
}

/// The node's state.
///
/// # Safety
///
/// A node of this module that was begun; no other reference to its state.
unsafe fn grouping_of<'a>(node: *mut CustomScanState) -> &'a mut Grouping {
    // SAFETY: the caller's promise.
    unsafe { &mut *(*node.cast::<State>()).grouping }
}

/// Returns the next group for which the conditions hold; an empty slot when there are no more.
extern "C-unwind" fn next(node: *mut CustomScanState) -> *mut TupleTableSlot {
    guarded(|| {
        // SAFETY: a node that was begun; PostgreSQL calls it once at a time.
        unsafe {
            if !grouping_of(node).has_all {
                read_all(node);
                grouping_of(node).has_all = true;
            }
            let slot = (*node).ss.ss_ScanTupleSlot;
            loop {
                call_postgres(|| nodes::clear(slot));
                if !grouping_of(node).fill(slot) {
                    return slot;
                }
                let returned = call_postgres(|| {
                    let context = (*node).ss.ps.ps_ExprContext;
                    nodes::reset(context);
                    (*context).ecxt_scantuple = slot;
                    if !nodes::holds((*node).ss.ps.qual, context) {
                        return None;
                    }
                    let projection = (*node).ss.ps.ps_ProjInfo;
                    Some(if projection.is_null() {
                        slot
                    } else {
                        nodes::project(projection)
                    })
                });
                if let Some(returned) = returned {
                    return returned;
                }
            }
        }
    })
}

impl Grouping {
    /// The program. Raises an internal ERROR if there is none, though the plan has the node.
    fn compiled(&self) -> &Compiled {
        match &self.compiled {
            Some(compiled) => compiled,
            None => fault::raise_internal("an aggregation of a plan is not in a program"),
        }
    }

    /// Puts the next group into a slot. False if there is none.
    ///
    /// # Safety
    ///
    /// The node's own slot, emptied.
    unsafe fn fill(&mut self, slot: *mut TupleTableSlot) -> bool {
        let width = self.compiled().program.group_width();
        if self.at >= self.words.len() && !self.fetch() {
            return false;
        }
        let group = self.words.get(self.at..self.at + width).unwrap_or_default();
        self.at += width;
        for (at, place) in self.places.iter().enumerate() {
            let word = |at: usize| group.get(at).copied().unwrap_or(0);
            let (word, is_null) = match place {
                Place::Value(at) => (word(*at), word(*at) == 0),
                Place::Word(at) => (word(*at), at.checked_sub(1).is_some_and(|at| word(at) != 0)),
                Place::Count(at) => (word(*at), false),
            };
            // SAFETY: a virtual slot with as many columns as there are places.
            unsafe {
                *(*slot).tts_values.add(at) = crate::call::datum(word);
                *(*slot).tts_isnull.add(at) = is_null;
            }
        }
        // SAFETY: all columns were set.
        unsafe { nodes::mark_filled(slot) };
        true
    }

    /// Has the zone give the next groups. False if there are no more.
    fn fetch(&mut self) -> bool {
        if self.all.is_some_and(|all| self.fetched >= all) {
            return false;
        }
        let id = {
            let mut known = self.program;
            let id = program_of(&mut known, &self.compiled().program);
            self.program = known;
            id
        };
        let program = &self.compiled().program;
        let first = self.fetched;
        let (words, all) = zone::with(|connection| connection.groups(id, program, first));
        self.fetched += words.len() / program.group_width().max(1);
        self.words = words;
        self.at = 0;
        self.all = Some(all);
        !self.words.is_empty()
    }

    /// Sends a batch of rows, whose inputs are each together, without waiting.
    fn send(&mut self, words: Vec<u64>, rows: usize) -> Sent {
        let mut known = self.program;
        let id = program_of(&mut known, &self.compiled().program);
        self.program = known;
        let needs_zone = self.compiled().depends_on_time_zone;
        let ticket = zone::with(|connection| {
            if needs_zone {
                connection.send_time_zone()?;
            }
            connection.send_batch(id, rows, &words, false)
        });
        self.sent += 1;
        Sent {
            ticket,
            words,
            rows,
        }
    }

    /// Waits until all rows of a batch are in the groups. Raises the fault of one that cannot be.
    fn finish(&mut self, sent: Option<Sent>) {
        let mut sent = sent;
        let inputs = self.compiled().sources.len();
        while let Some(batch) = sent.take() {
            let answer = zone::with(|connection| connection.batch_answer(batch.ticket));
            let done = match answer {
                BatchAnswer::Done(rows, _) => rows,
                BatchAnswer::Failed(broken) => fault::raise_broken(broken),
            };
            if done < batch.rows {
                let rest = (0..inputs)
                    .flat_map(|input| {
                        &batch.words[input * batch.rows + done..][..batch.rows - done]
                    })
                    .copied()
                    .collect();
                sent = Some(self.send(rest, batch.rows - done));
            }
        }
    }
}

/// Reads all rows of the node below, and sends them to the zone in batches.
///
/// # Safety
///
/// A node of this module that was begun.
unsafe fn read_all(node: *mut CustomScanState) {
    // SAFETY: the caller's promise.
    let (sources, below) = unsafe {
        let sources = grouping_of(node).compiled().sources.clone();
        (sources, (*node).ss.ps.lefttree)
    };
    let size = rows_max(sources.len());
    let mut sent: Option<Sent> = None;
    loop {
        let mut words = Vec::with_capacity(size * sources.len());
        // SAFETY: the caller's promise.
        let (rows, has_ended) = unsafe { read_rows(below, &sources, size, &mut words) };
        let words = by_input(&words, sources.len());
        // SAFETY: as above; no row is read meanwhile.
        let grouping = unsafe { grouping_of(node) };
        grouping.finish(sent.take());
        if rows > 0 {
            sent = Some(grouping.send(words, rows));
        }
        if has_ended {
            grouping.finish(sent);
            return;
        }
    }
}

/// Reads at most `size` rows of the node below, and adds their inputs to `words`, which has room
/// for them. Returns how many there were, and whether there are no more.
///
/// # Safety
///
/// A node of the executor that was begun.
unsafe fn read_rows(
    below: *mut pg_sys::PlanState,
    sources: &[Source],
    size: usize,
    words: &mut Vec<u64>,
) -> (usize, bool) {
    let last = sources.iter().map(|source| source.column()).max();
    let last = last.unwrap_or(0);
    // SAFETY: the caller's promise; nothing in the closure has a destructor.
    unsafe {
        call_postgres(|| {
            let mut rows = 0;
            while rows < size {
                let slot = nodes::next_row(below);
                if nodes::is_empty(slot) {
                    return (rows, true);
                }
                nodes::read_columns(slot, last);
                for source in sources {
                    let bits = nodes::column(slot, source.column());
                    words.push(input_word(*source, bits));
                }
                rows += 1;
            }
            (rows, false)
        })
    }
}

/// Ends the node and the one below.
extern "C-unwind" fn end(node: *mut CustomScanState) {
    guarded(|| {
        // SAFETY: a node that was begun.
        unsafe {
            forget_program(&mut grouping_of(node).program);
            pg_sys::ExecEndNode((*node).ss.ps.lefttree);
        }
    });
}

/// Begins the node and the one below again.
extern "C-unwind" fn rescan(node: *mut CustomScanState) {
    guarded(|| {
        // SAFETY: a node that was begun.
        unsafe {
            let grouping = grouping_of(node);
            forget_program(&mut grouping.program);
            grouping.has_all = false;
            grouping.words.clear();
            grouping.at = 0;
            grouping.fetched = 0;
            grouping.all = None;
            let below = (*node).ss.ps.lefttree;
            // A node whose parameters have changed is begun again when it is read.
            if (*below).chgParam.is_null() {
                pg_sys::ExecReScan(below);
            }
        }
    });
}

/// Shows by what the zone groups, and how many batches it got.
extern "C-unwind" fn explain(
    node: *mut CustomScanState,
    ancestors: *mut List,
    state: *mut pg_sys::ExplainState,
) {
    guarded(|| {
        // SAFETY: PostgreSQL's own structures, for as long as the call.
        unsafe {
            let plan: *mut CustomScan = (*node).ss.ps.plan.cast();
            let keys = (*(*(*plan).custom_private).elements).int_value;
            let keys = usize::try_from(keys).unwrap_or(0);
            output::expressions(c"Zone Group Key", plan, keys, ancestors, state);
            if (*state).analyze {
                output::number(c"Batches", grouping_of(node).sent, state);
            }
        }
    });
}
