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
use crate::catalog::tuples;
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
                (*statement).planTree = rewrite(statement, root, false);
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
                rewrite(statement, plan, false)
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

/// Replaces nodes of a part of a plan, from below; returns what takes its place. `is_repeated`: it
/// is begun again for each row of another part, so that what was asked ahead of need would be
/// asked each time.
///
/// # Safety
///
/// A part of this finished plan.
unsafe fn rewrite(statement: *mut PlannedStmt, plan: *mut Plan, is_repeated: bool) -> *mut Plan {
    if plan.is_null() {
        return plan;
    }
    // SAFETY: the caller's promise; a node begins with its tag, which tells its structure.
    unsafe {
        let tag = (*plan).type_;
        // What is kept is computed once, unless it depends on the other part.
        let keeps = matches!(
            tag,
            NodeTag::T_Material | NodeTag::T_Hash | NodeTag::T_Sort | NodeTag::T_Agg
        ) && (*plan).extParam.is_null();
        let is_repeated = is_repeated && !keeps;
        match tag {
            // These are executed by workers, or write.
            NodeTag::T_Gather | NodeTag::T_GatherMerge | NodeTag::T_ModifyTable => return plan,
            NodeTag::T_Append => {
                let of: *mut pg_sys::Append = plan.cast();
                for_each_link((*of).appendplans, |plan| {
                    rewrite(statement, plan, is_repeated)
                });
            }
            NodeTag::T_MergeAppend => {
                let of: *mut pg_sys::MergeAppend = plan.cast();
                for_each_link((*of).mergeplans, |plan| {
                    rewrite(statement, plan, is_repeated)
                });
            }
            NodeTag::T_SubqueryScan => {
                let of: *mut pg_sys::SubqueryScan = plan.cast();
                (*of).subplan = rewrite(statement, (*of).subplan, is_repeated);
            }
            _ => {}
        }
        let inner_is_repeated = is_repeated || tag == NodeTag::T_NestLoop;
        (*plan).lefttree = rewrite(statement, (*plan).lefttree, is_repeated);
        (*plan).righttree = rewrite(statement, (*plan).righttree, inner_is_repeated);
        let replaced = match tag {
            _ if is_repeated => None,
            NodeTag::T_SeqScan => replace_scan(statement, plan.cast()),
            NodeTag::T_Agg => aggregate_plan::replace(plan.cast(), aggregate::methods()),
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
        if (*plan).parallel_aware || !has_access_method((*entry).relid) {
            return None;
        }
        let varno = c_int::try_from(varno).ok()?;
        let (mut with_zone, mut others) = (std::ptr::null_mut(), std::ptr::null_mut());
        for condition in items::<pg_sys::Node>((*plan).qual) {
            let one = pg_sys::lappend(std::ptr::null_mut(), condition.cast());
            let compiled = scan::compile(one, varno, std::ptr::null_mut());
            // What concerns no row is not asked of the zone for each.
            if compiled.is_some_and(|compiled| !compiled.sources.is_empty()) {
                with_zone = pg_sys::lappend(with_zone, condition.cast());
            } else {
                others = pg_sys::lappend(others, condition.cast());
            }
        }
        // Together they have to fit, too.
        if with_zone.is_null() || scan::compile(with_zone, varno, std::ptr::null_mut()).is_none() {
            return None;
        }
        let node = nodes::new_node(plan, scan::methods());
        (*node).scan.scanrelid = (*replaced).scan.scanrelid;
        (*node).scan.plan.qual = others;
        (*node).custom_exprs = with_zone;
        Some(node.cast())
    }
}

/// Whether a table has this library's access method.
fn has_access_method(table: pg_sys::Oid) -> bool {
    let cache = pg_sys::SysCacheIdentifier::RELOID.cast_signed();
    // SAFETY: a search of the catalog cache; the row is a FormData_pg_class, from which an OID is
    // copied before it is released.
    let method = unsafe {
        let tuple = pg_sys::SearchSysCache1(cache, pg_sys::Datum::from(table));
        if tuple.is_null() {
            return false;
        }
        let form = tuples::fixed_part::<pg_sys::FormData_pg_class>(tuple);
        let method = (*form).relam;
        pg_sys::ReleaseSysCache(tuple);
        method
    };
    method == access_method::oid()
}
