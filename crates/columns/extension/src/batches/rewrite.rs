//! Replaces nodes of finished plans by those of this module.
//!
//! The planner plans as if there were none, and a finished plan says exactly what each node has to
//! do. A node is replaced if all of that has a place in a program. Left alone are plans that lock
//! or write rows or can be read backwards, and parts that run in parallel workers; of parts that
//! are begun again for each row of another part, all but conditions of index scans whose rows are
//! all read. Must not: change what a plan returns.

use std::cell::Cell;
use std::ffi::{c_char, c_int};

use pg_sys::{List, NodeTag, Plan, PlannedStmt};
use pgrx::pg_sys;

use super::conditions::Conditions;
use super::{aggregate, aggregate_plan, filter_plan, nodes, scan};
use crate::call::{call_postgres, guarded};
use crate::catalog::options::items;
use crate::ring::zone;
use crate::settings;
use crate::storage::access_method;

/// The least cost of an index scan whose conditions get a node, unless it is begun again many
/// times: for some rows a program costs more than it saves. A row that is looked up costs about 8.
const FILTER_COST_MIN: f64 = 20.0;

thread_local! {
    static PREVIOUS_HOOK: Cell<pg_sys::planner_hook_type> = const { Cell::new(None) };
}

/// Installs the planner's hook; it calls the one installed before.
pub(super) fn install() {
    // SAFETY: hooks are set while the library is loaded, before anything runs.
    unsafe {
        PREVIOUS_HOOK.set(pg_sys::planner_hook);
        pg_sys::planner_hook = Some(on_plan);
    }
}

/// The planner's hook: plans, and replaces nodes of the plan.
extern "C-unwind" fn on_plan(
    query: *mut pg_sys::Query,
    text: *const c_char,
    options: c_int,
    params: pg_sys::ParamListInfo,
) -> *mut PlannedStmt {
    guarded(|| {
        // SAFETY: the hook that was installed before, or the planner itself, with the arguments.
        let statement = unsafe {
            match PREVIOUS_HOOK.get() {
                Some(hook) => call_postgres(|| hook(query, text, options, params)),
                None => pg_sys::standard_planner(query, text, options, params),
            }
        };
        // SAFETY: the plan was just made, and nobody else has it.
        unsafe {
            if may_be_rewritten(statement, options) {
                let root = (*statement).planTree;
                let top = Above {
                    may_end_early: options & fast_plan() != 0,
                    goes_back: may_scroll(root, options),
                    ..Above::default()
                };
                (*statement).planTree = rewrite(statement, root, top);
                rewrite_subplans(statement);
            }
        }
        statement
    })
}

/// Whether nodes of a plan may be replaced.
///
/// # Safety
///
/// A finished plan.
unsafe fn may_be_rewritten(statement: *mut PlannedStmt, options: c_int) -> bool {
    let scrolls = c_int::try_from(pg_sys::CURSOR_OPT_SCROLL).unwrap_or(0);
    // SAFETY: the caller's promise.
    unsafe {
        settings::are_batches_on()
            // A record has single operations only.
            && settings::record_name().is_empty()
            && (*statement).commandType == pg_sys::CmdType::CMD_SELECT
            && (*statement).rowMarks.is_null()
            && !(*statement).hasModifyingCTE
            // The order of conditions is part of the protection by policies and barriers.
            && !(*statement).dependsOnRole
            && !items::<pg_sys::RangeTblEntry>((*statement).rtable)
                .any(|entry| (*entry).security_barrier)
            && options & scrolls == 0
            && access_method::oid() != pg_sys::Oid::INVALID
    }
}

/// Whether a plan can be read backwards by a cursor that was not told whether to scroll.
///
/// # Safety
///
/// A finished plan.
unsafe fn may_scroll(plan: *mut Plan, options: c_int) -> bool {
    let forward = c_int::try_from(pg_sys::CURSOR_OPT_NO_SCROLL).unwrap_or(0);
    // SAFETY: the caller's promise.
    options & fast_plan() != 0
        && options & forward == 0
        && unsafe { pg_sys::ExecSupportsBackwardScan(plan) }
}

/// Replaces nodes of the plan's subplans. Those with parameters are begun again for each row, and
/// perhaps not all of their rows are read: EXISTS needs one.
///
/// # Safety
///
/// A finished plan.
unsafe fn rewrite_subplans(statement: *mut PlannedStmt) {
    // SAFETY: the caller's promise.
    unsafe {
        for_each_link((*statement).subplans, |plan| {
            if plan.is_null() {
                return plan;
            }
            let has_params = !(*plan).extParam.is_null();
            let above = Above {
                is_repeated: has_params,
                may_end_early: true,
                ..Above::default()
            };
            rewrite(statement, plan, above)
        });
    }
}

/// Replaces each element of a list of plans by what `f` returns for it.
///
/// # Safety
///
/// A list of plans, or null.
unsafe fn for_each_link(list: *mut List, mut f: impl FnMut(*mut Plan) -> *mut Plan) {
    if list.is_null() {
        return;
    }
    // SAFETY: the caller's promise.
    unsafe {
        let count = usize::try_from((*list).length).unwrap_or(0);
        for at in 0..count {
            let place = (*list).elements.add(at);
            (*place).ptr_value = f((*place).ptr_value.cast()).cast();
        }
    }
}

/// What the parts of a plan above another one do with it.
#[derive(Clone, Copy, Default)]
struct Above {
    /// It is begun again for each row of another part, so that what was asked ahead of need would
    /// be asked each time.
    is_repeated: bool,
    /// Perhaps not all of its rows are read.
    may_end_early: bool,
    /// Perhaps one of its rows is read, or all: those of the outer side of a hash join, whose other
    /// side may be empty.
    may_end_at_once: bool,
    /// It may have to go back to a row (`ExecRestrPos`), or backwards, which our nodes cannot.
    goes_back: bool,
}

impl Above {
    /// Whether perhaps not all rows are read.
    const fn may_leave_rows(self) -> bool {
        self.may_end_early || self.may_end_at_once
    }
}

/// The option of a cursor whose first rows are wanted soon.
fn fast_plan() -> c_int {
    c_int::try_from(pg_sys::CURSOR_OPT_FAST_PLAN).unwrap_or(0)
}

/// Replaces nodes of a part of a plan, from below; returns what takes its place.
///
/// # Safety
///
/// A part of this finished plan.
unsafe fn rewrite(statement: *mut PlannedStmt, plan: *mut Plan, above: Above) -> *mut Plan {
    if plan.is_null() {
        return plan;
    }
    // SAFETY: the caller's promise; a node begins with its tag, which tells its structure.
    unsafe {
        let tag = (*plan).type_;
        // What is kept is computed once, unless it depends on the other part.
        let keeps = matches!(tag, NodeTag::T_Material | NodeTag::T_Hash | NodeTag::T_Sort)
            && (*plan).extParam.is_null();
        // Material reads as many rows as are asked for.
        let reads_all = keeps && tag != NodeTag::T_Material
            || tag == NodeTag::T_Agg && {
                let of: *mut pg_sys::Agg = plan.cast();
                (*of).aggstrategy != pg_sys::AggStrategy::AGG_SORTED
            };
        let here = above;
        let above = Above {
            is_repeated: above.is_repeated && !keeps,
            may_end_early: (above.may_end_early || ends_early(tag)) && !reads_all,
            may_end_at_once: (above.may_end_at_once || tag == NodeTag::T_HashJoin) && !reads_all,
            goes_back: above.goes_back && passes_back(tag),
        };
        match tag {
            // These are executed by workers, or write.
            NodeTag::T_Gather | NodeTag::T_GatherMerge | NodeTag::T_ModifyTable => return plan,
            // It knows what it has returned by the parameters of the part below.
            NodeTag::T_Memoize => return plan,
            NodeTag::T_Append => {
                let of: *mut pg_sys::Append = plan.cast();
                for_each_link((*of).appendplans, |plan| rewrite(statement, plan, above));
            }
            NodeTag::T_MergeAppend => {
                let of: *mut pg_sys::MergeAppend = plan.cast();
                for_each_link((*of).mergeplans, |plan| rewrite(statement, plan, above));
            }
            NodeTag::T_SubqueryScan => {
                let of: *mut pg_sys::SubqueryScan = plan.cast();
                (*of).subplan = rewrite(statement, (*of).subplan, above);
            }
            _ => {}
        }
        let repeats = matches!(tag, NodeTag::T_NestLoop | NodeTag::T_RecursiveUnion);
        let inner = Above {
            is_repeated: above.is_repeated || repeats,
            may_end_early: above.may_end_early || repeats && needs_one_row(plan.cast()),
            goes_back: tag == NodeTag::T_MergeJoin,
            ..above
        };
        (*plan).lefttree = rewrite(statement, (*plan).lefttree, above);
        (*plan).righttree = rewrite(statement, (*plan).righttree, inner);
        let is_repeated = above.is_repeated;
        let filters = !(here.goes_back || is_repeated && here.may_end_early);
        let replaced = match tag {
            NodeTag::T_IndexScan | NodeTag::T_BitmapHeapScan if filters => {
                replace_conditions(statement, plan.cast(), here)
            }
            NodeTag::T_NestLoop if filters => filter_plan::over_join(plan.cast()),
            _ if is_repeated || here.goes_back => None,
            NodeTag::T_SeqScan => replace_scan(statement, plan.cast(), here),
            NodeTag::T_Agg => {
                let early = here.may_leave_rows();
                aggregate_plan::replace(plan.cast(), aggregate::NODE.methods(), early)
            }
            _ => None,
        };
        replaced.unwrap_or(plan)
    }
}

/// Whether such a node may end before it has read all rows below.
const fn ends_early(tag: NodeTag) -> bool {
    // The run condition of a window function ends it.
    matches!(
        tag,
        NodeTag::T_Limit | NodeTag::T_MergeJoin | NodeTag::T_WindowAgg
    )
}

/// Whether such a node goes back by having the node below go back (execAmi.c).
const fn passes_back(tag: NodeTag) -> bool {
    matches!(
        tag,
        NodeTag::T_Result | NodeTag::T_SubqueryScan | NodeTag::T_Append | NodeTag::T_Limit
    )
}

/// Whether a nested loop, or a recursion, goes on to the next row of its outer side when it has
/// found one row of the inner side.
///
/// # Safety
///
/// A part of a finished plan.
unsafe fn needs_one_row(plan: *mut pg_sys::NestLoop) -> bool {
    // SAFETY: the caller's promise; a node begins with its tag, which tells its structure.
    unsafe {
        (*plan).join.plan.type_ != NodeTag::T_NestLoop
            || matches!(
                (*plan).join.jointype,
                pg_sys::JoinType::JOIN_SEMI | pg_sys::JoinType::JOIN_ANTI
            )
    }
}

/// Whether a table that a scan reads has this library's access method.
///
/// # Safety
///
/// A scan of this finished plan.
unsafe fn is_confidential(statement: *mut PlannedStmt, scan: *mut pg_sys::Scan) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        let at = usize::try_from((*scan).scanrelid).ok();
        let entry = at
            .and_then(|at| at.checked_sub(1))
            .and_then(|at| items::<pg_sys::RangeTblEntry>((*statement).rtable).nth(at));
        entry
            .is_some_and(|entry| access_method::of_relation((*entry).relid) == access_method::oid())
    }
}

/// The filter above an index scan or a bitmap scan, without the scan's conditions that the zone is
/// asked about. `None` if there are none.
///
/// # Safety
///
/// A scan of this finished plan.
unsafe fn replace_conditions(
    statement: *mut PlannedStmt,
    scan: *mut pg_sys::Scan,
    here: Above,
) -> Option<*mut Plan> {
    // SAFETY: the caller's promise.
    unsafe {
        let plan = &raw mut (*scan).plan;
        let varno = c_int::try_from((*scan).scanrelid).ok()?;
        let is_small = !here.is_repeated && (*plan).total_cost < FILTER_COST_MIN;
        if (*plan).qual.is_null() || (*plan).parallel_aware || is_small {
            return None;
        }
        if !is_confidential(statement, scan) {
            return None;
        }
        filter_plan::over_scan(plan, varno, (here.is_repeated, here.may_leave_rows()))
    }
}

/// The node that takes the place of a sequential scan. `None` if none of its conditions has a place
/// in a program.
///
/// # Safety
///
/// A scan of this finished plan.
unsafe fn replace_scan(
    statement: *mut PlannedStmt,
    replaced: *mut pg_sys::SeqScan,
    here: Above,
) -> Option<*mut Plan> {
    // SAFETY: the caller's promise.
    unsafe {
        let plan = &raw mut (*replaced).scan.plan;
        let scanned = &raw mut (*replaced).scan;
        if (*plan).parallel_aware || !is_confidential(statement, scanned) {
            return None;
        }
        let varno = c_int::try_from((*replaced).scan.scanrelid).ok()?;
        let conditions = Conditions::of((*plan).qual, varno)?;
        if here.may_leave_rows() && conditions.may_fail_before() || !zone::knows_programs() {
            return None;
        }
        let node = nodes::new_node(plan, scan::NODE.methods());
        (*node).scan.scanrelid = (*replaced).scan.scanrelid;
        (*node).scan.plan.qual = conditions.before;
        (*node).custom_relids = pg_sys::bms_make_singleton(varno);
        conditions.put_into(node);
        Some(node.cast())
    }
}
