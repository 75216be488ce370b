//! The conditions of a node, of which all have to hold.
//!
//! A finished plan has them in the order in which they are evaluated for a row: what comes behind
//! another one is evaluated for the rows only for which that one is true, which matters where it
//! may fail, costs much or has effects. So the zone is asked about those that follow one another;
//! what comes before them is evaluated first, and what comes behind them last. Must not: evaluate
//! one.

use std::ffi::c_int;

use pg_sys::{CustomScan, List, Node};
use pgrx::pg_sys;

use super::expressions::{Compiled, Compiler};
use crate::catalog::options::items;

/// Conditions in three parts, each a list or null.
pub(super) struct Conditions {
    /// Those that are evaluated by PostgreSQL while rows are read.
    pub(super) before: *mut List,
    /// Those that the zone is asked about, at least one.
    pub(super) with_zone: *mut List,
    /// Those that are evaluated by PostgreSQL, for the rows that are returned.
    pub(super) behind: *mut List,
}

impl Conditions {
    /// Splits a list of conditions into those for the zone and those that PostgreSQL evaluates.
    /// `None` if none can go to the zone, or if a condition before the first that can is volatile:
    /// rows are read ahead, so that it would also be evaluated for rows that are never returned.
    ///
    /// # Safety
    ///
    /// A list of expressions of a finished plan, on columns of `varno`.
    pub(super) unsafe fn of(conditions: *mut List, varno: c_int) -> Option<Self> {
        let none = std::ptr::null_mut();
        let mut parts = Self {
            before: none,
            with_zone: none,
            behind: none,
        };
        // SAFETY: the caller's promise.
        unsafe {
            for condition in items::<Node>(conditions) {
                let all = pg_sys::list_copy(parts.with_zone);
                let all = pg_sys::lappend(all, condition.cast());
                // What concerns no row is not asked of the zone for each.
                let is_asked = parts.behind.is_null()
                    && compile(pg_sys::lappend(none, condition.cast()), varno, none.cast())
                        .is_some_and(|one| !one.sources.is_empty())
                    && compile(all, varno, none.cast()).is_some();
                let part = if is_asked {
                    &mut parts.with_zone
                } else if parts.with_zone.is_null() {
                    &mut parts.before
                } else {
                    &mut parts.behind
                };
                *part = pg_sys::lappend(*part, condition.cast());
            }
            let is_volatile = pg_sys::contain_volatile_functions(parts.before.cast());
            (!parts.with_zone.is_null() && !is_volatile).then_some(parts)
        }
    }

    /// Whether a condition that is evaluated while rows are read may fail, or cannot be told: it
    /// would fail for rows that are never returned if not all of them are read.
    pub(super) fn may_fail_before(&self) -> bool {
        // A function that is leakproof does not fail because of its arguments.
        // SAFETY: a list of expressions of a finished plan, or null.
        unsafe { pg_sys::contain_leaked_vars(self.before.cast()) }
    }

    /// Makes the last two parts those of a node.
    ///
    /// # Safety
    ///
    /// A node of ours.
    pub(super) unsafe fn put_into(&self, node: *mut CustomScan) {
        // SAFETY: the caller's promise.
        unsafe {
            let list = pg_sys::lappend(std::ptr::null_mut(), self.with_zone.cast());
            (*node).custom_exprs = pg_sys::lappend(list, self.behind.cast());
        }
    }

    /// Has a node evaluate all of its conditions for the rows that are returned.
    ///
    /// # Safety
    ///
    /// A node of ours, and a list of expressions on the columns of its rows.
    pub(super) unsafe fn put_behind(conditions: *mut List, node: *mut CustomScan) {
        let none = std::ptr::null_mut();
        let parts = Self {
            before: none,
            with_zone: none,
            behind: conditions,
        };
        // SAFETY: the caller's promise.
        unsafe { parts.put_into(node) };
    }
}

/// The conditions of a node that the zone is asked about; null for none.
///
/// # Safety
///
/// A node of ours in a finished plan.
pub(super) unsafe fn with_zone(node: *mut CustomScan) -> *mut List {
    // SAFETY: the caller's promise.
    unsafe { items::<List>((*node).custom_exprs).next() }.unwrap_or(std::ptr::null_mut())
}

/// The conditions of a node that are evaluated by PostgreSQL for the rows that are returned; null
/// for none.
///
/// # Safety
///
/// A node of ours in a finished plan.
pub(super) unsafe fn behind(node: *mut CustomScan) -> *mut List {
    // SAFETY: the caller's promise.
    unsafe { items::<List>((*node).custom_exprs).nth(1) }.unwrap_or(std::ptr::null_mut())
}

/// The program of a list of conditions, all of which have to hold. `None` if one has no place in a
/// program.
///
/// # Safety
///
/// A list of expressions of a finished plan, and the node's context or null.
pub(super) unsafe fn compile(
    conditions: *mut List,
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
