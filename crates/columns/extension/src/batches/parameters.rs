//! What a program has of the statement's parameters, and of the results of subplans.
//!
//! Must not: make an instruction.

use pgrx::pg_sys;

use super::expressions::Compiler;
use super::nodes;
use crate::call::{bits, call_postgres};

impl Compiler {
    /// The identifier that a subplan has returned, 0 for NULL; executes the subplan if that was not
    /// done yet. `None` where the result is not needed for every row: then the subplan is not to be
    /// executed unless a row needs it, and may fail.
    ///
    /// # Safety
    ///
    /// A node of a finished plan.
    pub(super) unsafe fn result_of_subplan(&mut self, param: *mut pg_sys::Param) -> Option<u64> {
        self.depends_on_subplans = true;
        if self.depth > 0 {
            return None;
        }
        if self.context.is_null() {
            return Some(0);
        }
        // SAFETY: the caller's promise; as `ExecEvalParamExec` does it (execExprInterp.c).
        unsafe {
            let at = usize::try_from((*param).paramid).unwrap_or(0);
            let known = (*self.context).ecxt_param_exec_vals.add(at);
            if !(*known).execPlan.is_null() {
                nodes::execute_subplan((*known).execPlan, self.context);
            }
            Some(if (*known).isnull {
                0
            } else {
                bits((*known).value)
            })
        }
    }

    /// The identifier that a parameter of the statement has, 0 for NULL. `None` for one that is not
    /// there.
    ///
    /// # Safety
    ///
    /// A node of a finished plan.
    pub(super) unsafe fn parameter(&self, param: *mut pg_sys::Param) -> Option<u64> {
        if self.context.is_null() {
            return Some(0);
        }
        // SAFETY: the executor's list of parameters, and the caller's promise; a hook of it is
        // called as the executor calls it (execExprInterp.c, `ExecEvalParamExtern`).
        unsafe {
            let params = (*self.context).ecxt_param_list_info;
            let list = params.as_ref()?;
            let at = usize::try_from((*param).paramid).ok()?.checked_sub(1)?;
            let count = usize::try_from(list.numParams).ok()?;
            let mut space = pg_sys::ParamExternData::default();
            let found = match list.paramFetch {
                Some(fetch) => {
                    let id = (*param).paramid;
                    *call_postgres(|| fetch(params, id, false, &raw mut space))
                }
                None => *list.params.as_slice(count).get(at)?,
            };
            (found.ptype == (*param).paramtype)
                .then(|| if found.isnull { 0 } else { bits(found.value) })
        }
    }
}
