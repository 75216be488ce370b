//! What EXPLAIN shows of the nodes.
//!
//! Must not: change a plan.

use std::ffi::CStr;

use pg_sys::{CustomScan, ExplainState, List};
use pgrx::pg_sys;

use super::conditions;
use crate::catalog::options::items;

/// Shows the conditions that the zone is asked about, and those for the rows that are returned, as
/// SQL.
///
/// # Safety
///
/// A plan's node of ours, and the arguments of `ExplainCustomScan`.
pub(super) unsafe fn conditions(
    plan: *mut CustomScan,
    ancestors: *mut List,
    state: *mut ExplainState,
) {
    // SAFETY: the caller's promise; as show_qual does it (commands/explain.c).
    unsafe {
        let parts = [
            (c"Zone Filter", conditions::with_zone(plan)),
            (c"Row Filter", conditions::behind(plan)),
        ];
        for (label, part) in parts {
            if part.is_null() {
                continue;
            }
            let condition = pg_sys::make_ands_explicit(part);
            let cxt = (*state).deparse_cxt;
            let names = pg_sys::set_deparse_context_plan(cxt, plan.cast(), ancestors);
            let prefix = (*(*state).rtable).length > 1 || (*state).verbose;
            let text = pg_sys::deparse_expression(condition.cast(), names, prefix, false);
            pg_sys::ExplainPropertyText(label.as_ptr(), text, state);
        }
    }
}

/// Shows what a node asks the zone about its rows, and of an execution in how many batches.
///
/// # Safety
///
/// A node of ours that was begun, and the arguments of `ExplainCustomScan`.
pub(super) unsafe fn asked(
    node: *mut pg_sys::CustomScanState,
    batches: i64,
    ancestors: *mut List,
    state: *mut ExplainState,
) {
    // SAFETY: the caller's promise.
    unsafe {
        conditions((*node).ss.ps.plan.cast(), ancestors, state);
        if (*state).analyze {
            number(c"Batches", batches, state);
        }
    }
}

/// Shows a number.
///
/// # Safety
///
/// The state of an EXPLAIN.
pub(super) unsafe fn number(label: &CStr, number: i64, state: *mut ExplainState) {
    // SAFETY: the caller's promise.
    unsafe {
        pg_sys::ExplainPropertyInteger(label.as_ptr(), std::ptr::null(), number, state);
    }
}

/// Shows the first `count` columns of a node's own rows, as SQL. Nothing for none.
///
/// # Safety
///
/// A plan's node, and the arguments of `ExplainCustomScan`.
pub(super) unsafe fn expressions(
    label: &CStr,
    plan: *mut CustomScan,
    count: usize,
    ancestors: *mut List,
    state: *mut ExplainState,
) {
    if count == 0 {
        return;
    }
    // SAFETY: the caller's promise; as show_sort_group_keys does it (commands/explain.c).
    unsafe {
        let names = pg_sys::set_deparse_context_plan((*state).deparse_cxt, plan.cast(), ancestors);
        let prefix = (*(*state).rtable).length > 1 || (*state).verbose;
        let mut texts = std::ptr::null_mut();
        for entry in items::<pg_sys::TargetEntry>((*plan).custom_scan_tlist).take(count) {
            let text = pg_sys::deparse_expression((*entry).expr.cast(), names, prefix, true);
            texts = pg_sys::lappend(texts, text.cast());
        }
        pg_sys::ExplainPropertyList(label.as_ptr(), texts, state);
    }
}

/// Shows a text.
///
/// # Safety
///
/// The state of an EXPLAIN.
pub(super) unsafe fn text(label: &CStr, text: &CStr, state: *mut ExplainState) {
    // SAFETY: the caller's promise.
    unsafe { pg_sys::ExplainPropertyText(label.as_ptr(), text.as_ptr(), state) };
}
