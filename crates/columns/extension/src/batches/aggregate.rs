//! The node that aggregates: the zone groups the rows and computes the aggregates, for hundreds of
//! rows in one operation.
//!
//! It takes the place of a hashed or plain aggregation, and reads its rows from the node below,
//! whatever that is. The zone works on one batch while the next one is read. Groups are returned in
//! the order in which their first rows came. Must not: return other groups than the aggregation
//! before would have returned.

use std::ffi::{CStr, c_int};

use pg_sys::{CustomScan, CustomScanState, EState, List, Node, TupleTableSlot};
use pgrx::pg_sys;

use super::aggregate_plan::{Kept, Place, compile, kept_of, places};
use super::expressions::Source;
use super::group_order::{self, OrderKey};
use super::node_type::{Callbacks, NodeType};
use super::sending::{SentProgram, append_inputs, by_input, last_column};
use super::{conditions, node_type, nodes, output};
use crate::call::{call_postgres, guarded};
use crate::fault;
use crate::ring::batches::{ASK, BatchAnswer, IS_TRUE, rows_max};

/// Name of the node in plans.
const NAME: &CStr = c"Strongroom Aggregate";

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
struct Grouping {
    /// Made when the first row is read: then the results of subplans are known.
    program: Option<SentProgram>,
    /// The order in which groups are returned; empty for that of their first rows.
    order: Vec<OrderKey>,
    /// The conditions on groups that the zone is asked about, as ordinary expressions, and the
    /// others.
    asked: *mut pg_sys::ExprState,
    behind: *mut pg_sys::ExprState,
    /// The program of the former; made when there is a group.
    having: Option<SentProgram>,
    /// By column of the node's rows: where its word is among those of a group.
    places: Vec<Place>,
    /// Whether all rows of the node below were sent.
    has_all: bool,
    /// Words of groups that were fetched, and by group what is known of the conditions.
    words: Vec<u64>,
    answers: Vec<u8>,
    /// The numbers, among those, of the groups that are to be returned, and the place of the next.
    groups: Vec<usize>,
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
extern "C-unwind" fn create(_plan: *mut CustomScan) -> *mut Node {
    guarded(|| NODE.new_state::<Grouping>())
}

/// Begins the node and the one below. Asks nothing of the zone.
extern "C-unwind" fn begin(node: *mut CustomScanState, estate: *mut EState, flags: c_int) {
    guarded(|| {
        // SAFETY: PostgreSQL's own nodes, for as long as the query is executed.
        unsafe {
            let plan: *mut CustomScan = (*node).ss.ps.plan.cast();
            let below = (*plan).scan.plan.lefttree;
            (*node).ss.ps.lefttree = pg_sys::ExecInitNode(below, estate, flags);
            let row = (*plan).custom_scan_tlist;
            let Kept { keys, order, .. } = kept_of(plan);
            let grouping = Grouping {
                places: places(row, keys),
                order,
                program: None,
                asked: nodes::init_conditions(conditions::with_zone(plan), node),
                behind: nodes::init_conditions(conditions::behind(plan), node),
                having: None,
                has_all: false,
                words: Vec::new(),
                answers: Vec::new(),
                groups: Vec::new(),
                at: 0,
                fetched: 0,
                all: None,
                sent: 0,
            };
            node_type::keep(node, estate, grouping);
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
    unsafe { node_type::kept(node) }
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
                let grouping = grouping_of(node);
                let Some(answer) = grouping.fill(slot) else {
                    return slot;
                };
                let open = nodes::open_conditions(answer, grouping.asked, grouping.behind);
                let returned = call_postgres(|| nodes::returned(node, slot, open));
                if let Some(returned) = returned {
                    return returned;
                }
            }
        }
    })
}

impl Grouping {
    /// The program. Raises an internal ERROR if there is none, though the plan has the node.
    fn program(&mut self) -> &mut SentProgram {
        match &mut self.program {
            Some(program) => program,
            None => fault::raise_internal("an aggregation of a plan is not in a program"),
        }
    }

    /// The number of words of a group.
    fn width(&mut self) -> usize {
        self.program().compiled.program.group_width()
    }

    /// Puts the next group into a slot; returns what is known of the conditions on it. `None` if
    /// there is no group.
    ///
    /// # Safety
    ///
    /// The node's own slot, emptied.
    unsafe fn fill(&mut self, slot: *mut TupleTableSlot) -> Option<u8> {
        while self.at >= self.groups.len() {
            if !self.fetch() {
                return None;
            }
        }
        let number = *self.groups.get(self.at)?;
        self.at += 1;
        let width = self.width();
        let group = self.words.get(number * width..(number + 1) * width)?;
        for (at, place) in self.places.iter().enumerate() {
            let word = |at: usize| group.get(at).copied().unwrap_or(0);
            let (word, is_null) = match place {
                Place::Value(at) => (word(*at), word(*at) == 0),
                Place::Word(at) => (word(*at), at.checked_sub(1).is_some_and(|at| word(at) != 0)),
                Place::Count(at) => (word(*at), false),
                Place::Number(at) => (word(*at), word(*at + 1) == 0),
            };
            // SAFETY: a virtual slot with as many columns as there are places.
            unsafe {
                *(*slot).tts_values.add(at) = crate::call::datum(word);
                *(*slot).tts_isnull.add(at) = is_null;
            }
        }
        // SAFETY: all columns were set.
        unsafe { nodes::mark_filled(slot) };
        self.answers.get(number).copied()
    }

    /// Has the zone give the next groups, all of them if they are to be sorted. False if there are
    /// no more.
    fn fetch(&mut self) -> bool {
        self.words.clear();
        self.answers.clear();
        self.groups.clear();
        self.at = 0;
        let width = self.width();
        while self.all.is_none_or(|all| self.fetched < all) {
            let first = self.fetched;
            let (words, all) = self.program().groups(first);
            self.all = Some(all);
            if words.is_empty() {
                break;
            }
            self.fetched += words.len() / width.max(1);
            self.judge(&words, width);
            self.words.extend(words);
            if self.order.is_empty() {
                break;
            }
        }
        let answers = self.answers.iter().enumerate();
        let kept = answers.filter(|(_, answer)| **answer != 0);
        self.groups = kept.map(|(number, _)| number).collect();
        if !self.order.is_empty() {
            let words = &self.words;
            let word =
                |group: usize, at: usize| words.get(group * width + at).copied().unwrap_or(0);
            group_order::sort(&mut self.groups, &self.order, &self.places, word);
        }
        !self.answers.is_empty()
    }

    /// Has the zone say for which of these groups the conditions are true.
    fn judge(&mut self, words: &[u64], width: usize) {
        let groups = words.len() / width.max(1);
        let Some(having) = &mut self.having else {
            let answer = if self.asked.is_null() { IS_TRUE } else { ASK };
            self.answers.resize(self.answers.len() + groups, answer);
            return;
        };
        let place = |source: &Source| {
            let at = usize::try_from(source.column())
                .ok()
                .and_then(|at| at.checked_sub(1));
            at.and_then(|at| self.places.get(at)).map_or(0, Place::word)
        };
        let columns: Vec<usize> = having.compiled.sources.iter().map(place).collect();
        for rows in words.chunks(width * rows_max(columns.len())) {
            let count = rows.len() / width;
            let of_column = |at: &usize| rows.iter().skip(*at).step_by(width).copied();
            let inputs: Vec<u64> = columns.iter().flat_map(of_column).collect();
            let end = self.answers.len() + count;
            let ticket = having.send_batch(count, &inputs, true);
            if let BatchAnswer::Done(_, bytes) = having.answer(ticket) {
                self.answers.extend(bytes.into_iter().take(count));
            }
            self.answers.resize(end, ASK);
        }
    }

    /// Sends a batch of rows, whose inputs are each together, without waiting.
    fn send(&mut self, words: Vec<u64>, rows: usize) -> Sent {
        let ticket = self.program().send_batch(rows, &words, false);
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
        let inputs = self.program().compiled.sources.len();
        while let Some(batch) = sent.take() {
            let done = match self.program().answer(batch.ticket) {
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

/// Reads all rows of the node below, and sends them to the zone in batches. The program is made
/// when there is a row, because a subplan whose result it has is executed for rows only; so is that
/// of the conditions when there is a group.
///
/// # Safety
///
/// A node of this module that was begun.
unsafe fn read_all(node: *mut CustomScanState) {
    // SAFETY: the caller's promise. A subplan may be executed while a program is made, so that no
    // reference to the state is held meanwhile.
    unsafe {
        let plan: *mut CustomScan = (*node).ss.ps.plan.cast();
        let (below, context) = ((*node).ss.ps.lefttree, (*node).ss.ps.ps_ExprContext);
        let keys = kept_of(plan).keys;
        let compiled = |context| compile((*plan).custom_scan_tlist, keys, context);
        let Some(shape) = compiled(std::ptr::null_mut()) else {
            fault::raise_internal("an aggregation of a plan is not in a program");
        };
        let sources = shape.sources.clone();
        let mut shape = Some(shape);
        let size = rows_max(sources.len());
        let mut sent: Option<Sent> = None;
        loop {
            let mut words = Vec::with_capacity(size * sources.len());
            let (rows, has_ended) = read_rows(below, &sources, size, &mut words);
            let words = by_input(&words, sources.len());
            if let Some(shape) = shape.take() {
                let program = if rows > 0 {
                    compiled(context)
                } else {
                    Some(shape)
                };
                let has_groups = rows > 0 || keys == 0;
                let asked = conditions::with_zone(plan);
                let having = (has_groups && !asked.is_null())
                    .then(|| conditions::compile(asked, pg_sys::INDEX_VAR, context));
                let grouping = grouping_of(node);
                grouping.program = program.map(SentProgram::new);
                grouping.having = having.flatten().map(SentProgram::new);
            }
            let grouping = grouping_of(node);
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
    let last = last_column(sources);
    // SAFETY: the caller's promise; nothing in the closure has a destructor.
    unsafe {
        call_postgres(|| {
            let mut rows = 0;
            while rows < size {
                let slot = nodes::next_row(below);
                if nodes::is_empty(slot) {
                    return (rows, true);
                }
                append_inputs(slot, (sources, last), words);
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
            drop(grouping_of(node).program.take());
            drop(grouping_of(node).having.take());
            pg_sys::ExecEndNode((*node).ss.ps.lefttree);
        }
    });
}

/// Begins the node and the one below again.
extern "C-unwind" fn rescan(node: *mut CustomScanState) {
    guarded(|| {
        // SAFETY: a node that was begun.
        unsafe {
            let plan: *mut CustomScan = (*node).ss.ps.plan.cast();
            let below = (*node).ss.ps.lefttree;
            let is_same = (*node).ss.ps.chgParam.is_null() && (*below).chgParam.is_null();
            let grouping = grouping_of(node);
            // A hashed aggregation gives its groups again (nodeAgg.c).
            if !(is_same && kept_of(plan).is_hashed) {
                drop(grouping.program.take());
                drop(grouping.having.take());
                grouping.has_all = false;
            }
            grouping.words.clear();
            grouping.answers.clear();
            grouping.groups.clear();
            grouping.at = 0;
            grouping.fetched = 0;
            grouping.all = None;
            if !grouping.has_all {
                nodes::begin_again(below);
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
            let Kept { keys, order, .. } = kept_of(plan);
            output::expressions(c"Zone Group Key", plan, keys, ancestors, state);
            output::conditions(plan, ancestors, state);
            if !order.is_empty() {
                output::text(c"Group Order", c"sorted", state);
            }
            if (*state).analyze {
                output::number(c"Batches", grouping_of(node).sent, state);
            }
        }
    });
}
