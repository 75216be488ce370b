//! Replaces nodes of finished plans by those of this module.
//!
//! The planner plans as if there were none, and a finished plan says exactly what each node has to
//! do. A node is replaced if all of that has a place in a program. Left alone are plans that lock
//! or write rows or can be read backwards, parts that are begun again for each row of another part,
//! and parts that run in parallel workers. Must not: change what a plan returns.

use std::cell::Cell;
use std::ffi::{c_char, c_int};

use pg_sys::{List, NodeTag, Plan, PlannedStmt};
use pgrx::pg_sys;

use super::{aggregate, aggregate_plan, nodes, scan};
use crate::call::{call_postgres, guarded};
use crate::catalog::options::items;
use crate::ring::zone;
use crate::settings;
use crate::storage::access_method;

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
                    is_repeated: false,
                    may_end_early: options & fast_plan() != 0,
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

/// Replaces nodes of the plan's subplans, but for those that are begun again for each row.
///
/// # Safety
///
/// A finished plan.
unsafe fn rewrite_subplans(statement: *mut PlannedStmt) {
    // SAFETY: the caller's promise.
    unsafe {
        for_each_link((*statement).subplans, |plan| {
            if plan.is_null() || !(*plan).extParam.is_null() {
                plan
            } else {
                rewrite(statement, plan, Above::default())
            }
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
        let reads_all = keeps
            || tag == NodeTag::T_Agg && {
                let of: *mut pg_sys::Agg = plan.cast();
                (*of).aggstrategy != pg_sys::AggStrategy::AGG_SORTED
            };
        let here = above;
        let above = Above {
            is_repeated: above.is_repeated && !keeps,
            may_end_early: (above.may_end_early || tag == NodeTag::T_Limit) && !reads_all,
        };
        match tag {
            // These are executed by workers, or write.
            NodeTag::T_Gather | NodeTag::T_GatherMerge | NodeTag::T_ModifyTable => return plan,
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
            ..above
        };
        (*plan).lefttree = rewrite(statement, (*plan).lefttree, above);
        (*plan).righttree = rewrite(statement, (*plan).righttree, inner);
        let replaced = match tag {
            _ if above.is_repeated => None,
            NodeTag::T_SeqScan => replace_scan(statement, plan.cast()),
            NodeTag::T_Agg => {
                let early = here.may_end_early;
                aggregate_plan::replace(plan.cast(), aggregate::methods(), early)
            }
            _ => None,
        };
        replaced.unwrap_or(plan)
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
) -> Option<*mut Plan> {
    // SAFETY: the caller's promise.
    unsafe {
        let plan = &raw mut (*replaced).scan.plan;
        let varno = (*replaced).scan.scanrelid;
        let at = usize::try_from(varno).ok()?.checked_sub(1)?;
        let entry = items::<pg_sys::RangeTblEntry>((*statement).rtable).nth(at)?;
        let is_confidential = access_method::of_relation((*entry).relid) == access_method::oid();
        if (*plan).parallel_aware || !is_confidential {
            return None;
        }
        let varno = c_int::try_from(varno).ok()?;
        let (with_zone, others) = scan::split((*plan).qual, varno);
        if with_zone.is_null() || !zone::knows_programs() {
            return None;
        }
        let node = nodes::new_node(plan, scan::methods());
        (*node).scan.scanrelid = (*replaced).scan.scanrelid;
        (*node).scan.plan.qual = others;
        (*node).custom_exprs = with_zone;
        Some(node.cast())
    }
}
