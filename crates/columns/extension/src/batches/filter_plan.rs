//! Where a filter node takes over conditions: those of an index scan or a bitmap scan, above which
//! it is put, and those of a join's inner side, which it takes over above the join.
//!
//! What the replaced node has computed of the rows that it returned is computed above the filter,
//! so that it is computed of the same rows. Must not: execute anything.

use std::ffi::{c_int, c_void};

use pg_sys::{CustomScan, List, Node, NodeTag, Plan, Var};
use pgrx::pg_sys;

use super::conditions::{self, Conditions};
use super::{filter, nodes};
use crate::catalog::options::items;
use crate::ring::zone;

/// The columns of the rows that are filtered: variables of the node below, each once.
struct Columns {
    /// The relation or the side of a join of each, and its number there, as a variable.
    known: Vec<*mut Var>,
    /// The target list of the filter that was on the inner side of the join. Null for a scan.
    inner: *mut List,
    has_failed: bool,
}

impl Columns {
    /// No columns yet.
    const fn new(inner: *mut List) -> Self {
        Self {
            known: Vec::new(),
            inner,
            has_failed: false,
        }
    }

    /// A copy of an expression, or of a list of them, in which variables are columns of the rows
    /// that are filtered. `None` if there are too many, or it has a parameter that a join sets.
    ///
    /// # Safety
    ///
    /// An expression of a finished plan.
    unsafe fn replace_in(&mut self, node: *mut Node) -> Option<*mut Node> {
        // SAFETY: the caller's promise.
        let replaced = unsafe { replace_variables(node, std::ptr::from_mut(self).cast()) };
        (!self.has_failed).then_some(replaced)
    }

    /// Copies of conditions, likewise.
    ///
    /// # Safety
    ///
    /// Conditions of a finished plan.
    unsafe fn conditions(&mut self, with_zone: *mut List, behind: *mut List) -> Option<Conditions> {
        // SAFETY: the caller's promise.
        unsafe {
            Some(Conditions {
                before: std::ptr::null_mut(),
                with_zone: self.replace_in(with_zone.cast())?.cast(),
                behind: self.replace_in(behind.cast())?.cast(),
            })
        }
    }

    /// The column of a variable of the node below.
    ///
    /// # Safety
    ///
    /// A variable of a finished plan.
    unsafe fn column_of(&mut self, varno: c_int, var: *mut Var) -> *mut Node {
        // SAFETY: the caller's promise, here and for those that are known.
        unsafe {
            let is_it = |known: &*mut Var| {
                (**known).varno == varno && (**known).varattno == (*var).varattno
            };
            let at = self.known.iter().position(is_it).unwrap_or_else(|| {
                let copy: *mut Var = pg_sys::copyObjectImpl(var.cast()).cast();
                (*copy).varno = varno;
                self.known.push(copy);
                self.known.len() - 1
            });
            let Ok(number) = i16::try_from(at + 1) else {
                self.has_failed = true;
                return var.cast();
            };
            column(pg_sys::INDEX_VAR, number, var).cast()
        }
    }

    /// The target list of the node below: all columns.
    fn below(&self) -> *mut List {
        self.entries(|_, var| var)
    }

    /// The same as the filter describes its own rows, which it has from the node below.
    fn own(&self) -> *mut List {
        // SAFETY: variables of a finished plan.
        self.entries(|number, var| unsafe { column(pg_sys::OUTER_VAR, number, var) })
    }

    /// A target list with an entry for each column, of its number and variable.
    fn entries(&self, entry: impl Fn(i16, *mut Var) -> *mut Var) -> *mut List {
        let mut list = std::ptr::null_mut();
        for (number, var) in (1..).zip(&self.known) {
            // SAFETY: makes new nodes.
            unsafe {
                let of = entry(number, *var).cast();
                let made = pg_sys::makeTargetEntry(of, number, std::ptr::null_mut(), false);
                list = pg_sys::lappend(list, made.cast());
            }
        }
        list
    }
}

/// A variable of the same type as another one.
///
/// # Safety
///
/// A variable of a finished plan.
unsafe fn column(varno: c_int, number: i16, like: *mut Var) -> *mut Var {
    // SAFETY: the caller's promise.
    unsafe {
        let (of, modifier, collation) = ((*like).vartype, (*like).vartypmod, (*like).varcollid);
        pg_sys::makeVar(varno, number, of, modifier, collation, 0)
    }
}

/// Copies an expression with its variables replaced (`expression_tree_mutator`); `context` is the
/// [`Columns`].
unsafe extern "C-unwind" fn replace_variables(node: *mut Node, context: *mut c_void) -> *mut Node {
    if node.is_null() {
        return node;
    }
    // SAFETY: an expression of the node, and the columns that `replace_in` passes.
    unsafe {
        let columns: *mut Columns = context.cast();
        let is_of_join = !(*columns).inner.is_null();
        if is_of_join && (*node).type_ == NodeTag::T_Param {
            // The join may set it for each row of its outer side.
            let kind = (*node.cast::<pg_sys::Param>()).paramkind;
            (*columns).has_failed |= kind == pg_sys::ParamKind::PARAM_EXEC;
        }
        if (*node).type_ != NodeTag::T_Var {
            return nodes::mutate(node, replace_variables, context);
        }
        let var: *mut Var = node.cast();
        match (*var).varno {
            // What the filter on the inner side has returned.
            pg_sys::INNER_VAR if is_of_join => {
                let at = usize::try_from((*var).varattno - 1).unwrap_or(usize::MAX);
                let entry = items::<pg_sys::TargetEntry>((*columns).inner).nth(at);
                match entry {
                    Some(entry) => replace_variables((*entry).expr.cast(), context),
                    None => {
                        (*columns).has_failed = true;
                        node
                    }
                }
            }
            // A row of that filter is now one of the join's inner side.
            pg_sys::INDEX_VAR => (*columns).column_of(pg_sys::INNER_VAR, var),
            varno => (*columns).column_of(varno, var),
        }
    }
}

/// The filter that takes the place of the conditions of a scan that are asked of the zone. `None`
/// if there are none, or the zone knows no programs. `is_repeated`: the scan is begun again for
/// each row of another part, with the same program. `may_end_early`: perhaps not all of its rows
/// are read.
///
/// # Safety
///
/// An index scan or a bitmap scan of a finished plan, of the relation `varno`.
pub(super) unsafe fn over_scan(
    scanned: *mut Plan,
    varno: c_int,
    (is_repeated, may_end_early): (bool, bool),
) -> Option<*mut Plan> {
    // SAFETY: the caller's promise.
    unsafe {
        let parts = Conditions::of((*scanned).qual, varno)?;
        let compiled = conditions::compile(parts.with_zone, varno, std::ptr::null_mut())?;
        if is_repeated && compiled.depends_on_subplans
            || may_end_early && parts.may_fail_before()
            || has_effects((*scanned).lefttree)
            || !zone::knows_programs()
        {
            return None;
        }
        let mut columns = Columns::new(std::ptr::null_mut());
        let conditions = columns.conditions(parts.with_zone, parts.behind)?;
        let tlist = columns.replace_in((*scanned).targetlist.cast())?;
        let node = above(scanned, &columns, tlist.cast(), &conditions);
        (*scanned).qual = parts.before;
        Some(node.cast())
    }
}

/// Moves the filter of a nested loop's inner side above the join, so that it gets the rows of many
/// scans of that side in one batch. Returns the new filter, whose node below is the join. `None`,
/// and nothing is changed, if the inner side has no filter, or if the join's result depends on rows
/// being dropped before it, as that of an outer join does.
///
/// # Safety
///
/// A nested loop of a finished plan, whose sides were rewritten.
pub(super) unsafe fn over_join(join: *mut pg_sys::NestLoop) -> Option<*mut Plan> {
    // SAFETY: the caller's promise; a node begins with its tag, which tells its structure.
    unsafe {
        let plan = &raw mut (*join).join.plan;
        let inner = (*plan).righttree;
        let is_plain = (*join).join.jointype == pg_sys::JoinType::JOIN_INNER
            && (*join).join.joinqual.is_null()
            && (*plan).qual.is_null();
        if !is_plain || (*inner).type_ != NodeTag::T_CustomScan {
            return None;
        }
        let filter: *mut CustomScan = inner.cast();
        let tlist = (*filter).scan.plan.targetlist;
        if !std::ptr::eq((*filter).methods, filter::NODE.methods())
            || pg_sys::contain_volatile_functions(tlist.cast())
            || pg_sys::contain_volatile_functions(conditions::behind(filter).cast())
        {
            return None;
        }
        // The sides are read ahead of the rows that are returned.
        if has_effects((*plan).lefttree) || has_effects((*filter).scan.plan.lefttree) {
            return None;
        }
        let mut columns = Columns::new(tlist);
        let (with_zone, behind) = (conditions::with_zone(filter), conditions::behind(filter));
        let conditions = columns.conditions(with_zone, behind)?;
        let tlist = columns.replace_in((*plan).targetlist.cast())?;
        let scanned = (*filter).scan.plan.lefttree;
        (*scanned).initPlan = (*filter).scan.plan.initPlan;
        // Perhaps only the condition that is gone made a row the only one.
        (*join).join.inner_unique = false;
        (*plan).righttree = scanned;
        Some(above(plan, &columns, tlist.cast(), &conditions).cast())
    }
}

/// Whether a part of a plan has volatile functions, or may have some that cannot be seen.
///
/// # Safety
///
/// A part of a finished plan, or null; a node begins with its tag, which tells its structure.
unsafe fn has_effects(plan: *mut Plan) -> bool {
    if plan.is_null() {
        return false;
    }
    // SAFETY: the caller's promise.
    unsafe {
        let is_volatile = |list: *mut List| pg_sys::contain_volatile_functions(list.cast());
        let of_node = match (*plan).type_ {
            NodeTag::T_SubqueryScan => {
                let of: *mut pg_sys::SubqueryScan = plan.cast();
                has_effects((*of).subplan)
            }
            NodeTag::T_NestLoop | NodeTag::T_HashJoin | NodeTag::T_MergeJoin => {
                let of: *mut pg_sys::Join = plan.cast();
                is_volatile((*of).joinqual)
            }
            NodeTag::T_CustomScan => is_volatile((*plan.cast::<CustomScan>()).custom_exprs),
            NodeTag::T_SeqScan
            | NodeTag::T_IndexScan
            | NodeTag::T_IndexOnlyScan
            | NodeTag::T_BitmapHeapScan
            | NodeTag::T_BitmapIndexScan
            | NodeTag::T_Material
            | NodeTag::T_Memoize
            | NodeTag::T_Hash
            | NodeTag::T_Sort
            | NodeTag::T_Agg
            | NodeTag::T_Group
            | NodeTag::T_Result
            | NodeTag::T_CteScan
            | NodeTag::T_Limit => false,
            _ => true,
        };
        of_node
            || is_volatile((*plan).targetlist)
            || is_volatile((*plan).qual)
            || has_effects((*plan).lefttree)
            || has_effects((*plan).righttree)
    }
}

/// A filter with these conditions above a node, which gives these columns from now on.
///
/// # Safety
///
/// A node of a finished plan; expressions of the filter.
unsafe fn above(
    below: *mut Plan,
    columns: &Columns,
    tlist: *mut List,
    conditions: &Conditions,
) -> *mut CustomScan {
    // SAFETY: the caller's promise.
    unsafe {
        let node = nodes::new_node(below, filter::NODE.methods());
        (*node).scan.plan.lefttree = below;
        (*node).scan.plan.righttree = std::ptr::null_mut();
        (*node).scan.plan.targetlist = tlist;
        (*node).scan.plan.qual = std::ptr::null_mut();
        conditions.put_into(node);
        (*node).custom_scan_tlist = columns.own();
        (*below).targetlist = columns.below();
        (*below).initPlan = std::ptr::null_mut();
        node
    }
}
