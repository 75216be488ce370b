//! Which aggregations have a node of this module, and the node's plan.
//!
//! The node's own rows have the keys and then the aggregates; its target list and its conditions
//! refer to these. Must not: execute anything.

use std::ffi::{c_int, c_void};

use pg_sys::{Agg, Aggref, List, Node, NodeTag, Oid, Plan, Var};
use pgrx::pg_sys;
use strongroom_columns_ring::function::{AGGREGATE_NAMES, Aggregate};
use strongroom_columns_ring::program::{Fold, Instruction, Program, Register, Sort, Step, truths};

use strongroom_format::columns::Kind;

use super::conditions::Conditions;
use super::expressions::{Compiled, Compiler};
use super::group_order::OrderKey;
use super::nodes;
use crate::catalog::options::items;
use crate::catalog::types;
use crate::ring::zone;

/// `count(*)` and `count("any")` (`pg_proc.dat`).
const COUNT_ROWS: u32 = pg_sys::F_COUNT_;
const COUNT_VALUES: u32 = pg_sys::F_COUNT_ANY;
/// Number of `pg_aggregate.aggtransfn` (`pg_aggregate.h`).
const TRANSITION_COLUMN: i16 = 4;
/// The most groups that the planner may expect: the zone keeps all of them in memory.
const GROUPS_MAX: std::ffi::c_long = 4_000_000;

/// Where a column's word is among those of a group.
#[derive(Clone, Copy)]
pub(super) enum Place {
    /// An identifier; 0 for NULL.
    Value(usize),
    /// Bits of a type in clear; NULL if the word before is not 0.
    Word(usize),
    /// A count.
    Count(usize),
    /// Bits of a type in clear; NULL if the word behind is 0.
    Number(usize),
}

impl Place {
    /// The word that has the value.
    pub(super) const fn word(&self) -> usize {
        match self {
            Self::Value(at) | Self::Word(at) | Self::Count(at) | Self::Number(at) => *at,
        }
    }
}

/// The node that takes the place of an aggregation. `None` if a part of it has no place in a
/// program, or nothing of it is confidential. `may_end_early`: what reads the groups may not need
/// all of them.
///
/// An aggregation over rows that a sort has put in order takes the rows that the sort would have
/// got, and puts the groups in that order. Over rows that come in order by themselves, groups are
/// in the order of their first rows, which is the same.
///
/// # Safety
///
/// A node of a finished plan, whose node below was rewritten.
pub(super) unsafe fn replace(
    replaced: *mut Agg,
    methods: *const pg_sys::CustomScanMethods,
    may_end_early: bool,
) -> Option<*mut Plan> {
    // SAFETY: the caller's promise.
    unsafe {
        let plan = &raw mut (*replaced).plan;
        let whole = (*replaced).aggsplit == pg_sys::AggSplit::AGGSPLIT_SIMPLE
            && (*replaced).groupingSets.is_null()
            && (*replaced).chain.is_null();
        if !whole || (*replaced).numGroups > GROUPS_MAX {
            return None;
        }
        let mut columns = Columns::of(replaced)?;
        let below = (*plan).lefttree;
        let (below, order) = match (*replaced).aggstrategy {
            pg_sys::AggStrategy::AGG_HASHED | pg_sys::AggStrategy::AGG_PLAIN => (below, Vec::new()),
            _ if may_end_early => return None,
            // What the sort has computed once for the rows below would be lost with it.
            pg_sys::AggStrategy::AGG_SORTED
                if (*below).type_ == NodeTag::T_Sort && !(*below).initPlan.is_null() =>
            {
                return None;
            }
            pg_sys::AggStrategy::AGG_SORTED if (*below).type_ == NodeTag::T_Sort => {
                // Without a session nothing can be grouped but by its order.
                zone::has_client().then_some(())?;
                let order = order_of(below.cast(), &columns.keys)?;
                ((*below).lefttree, order)
            }
            pg_sys::AggStrategy::AGG_SORTED => (below, Vec::new()),
            _ => return None,
        };
        let tlist = columns.replace_in((*plan).targetlist.cast())?;
        let qual = columns.replace_in((*plan).qual.cast())?;
        let row = columns.row(below)?;
        let keys = columns.keys.len();
        let compiled = compile(row, keys, std::ptr::null_mut())?;
        if !order.is_empty() && depends_on_order(&compiled.program) {
            return None;
        }
        if !zone::knows_programs() {
            return None;
        }
        // Groups are asked about before they are returned, perhaps more of them than are needed.
        let having = Conditions::of(qual.cast(), pg_sys::INDEX_VAR)
            .filter(|parts| parts.before.is_null() && !may_end_early);
        let node = nodes::new_node(plan, methods);
        (*node).scan.plan.lefttree = below;
        (*node).scan.plan.targetlist = tlist.cast();
        (*node).scan.plan.qual = std::ptr::null_mut();
        match having {
            Some(parts) => parts.put_into(node),
            None => Conditions::put_behind(qual.cast(), node),
        }
        (*node).custom_scan_tlist = row;
        let is_hashed = (*replaced).aggstrategy == pg_sys::AggStrategy::AGG_HASHED;
        let mut numbers = vec![c_int::try_from(keys).ok()?, c_int::from(is_hashed)];
        numbers.extend(order);
        for number in numbers {
            (*node).custom_private = pg_sys::lappend_int((*node).custom_private, number);
        }
        Some(node.cast())
    }
}

/// Whether digits of an aggregate depend on the order in which a group's rows come: those of sums
/// of doubles, and which one is shown of equal values that look different.
fn depends_on_order(program: &Program) -> bool {
    let sorts = program.sorts().unwrap_or_default();
    let kind_of = |register: Register| match sorts.get(usize::from(register)) {
        Some(Sort::Value(kind)) => Some(*kind),
        _ => None,
    };
    let looks_different = |kind| matches!(kind, Kind::Numeric | Kind::Float8 | Kind::Interval);
    let depends = |step: &Step| match (step.fold, step.of.and_then(kind_of)) {
        (Fold::Of(Aggregate::Min | Aggregate::Max), Some(kind)) => looks_different(kind),
        (Fold::Of(_), kind) => kind == Some(Kind::Float8),
        _ => false,
    };
    program.aggregates.iter().any(depends)
}

/// The order of a sort by keys of an aggregation, three numbers for each: which key, whether the
/// greatest value comes first, whether NULLs do. `None` for an order of something else, or one that
/// the node does not know.
///
/// # Safety
///
/// A node of a finished plan.
unsafe fn order_of(sort: *mut pg_sys::Sort, keys: &[i16]) -> Option<Vec<c_int>> {
    let mut order = Vec::new();
    // SAFETY: the caller's promise.
    unsafe {
        let count = usize::try_from((*sort).numCols).ok()?;
        for at in 0..count {
            let column = *(*sort).sortColIdx.add(at);
            let key = keys.iter().position(|key| *key == column)?;
            let (mut family, mut of, mut strategy) = (Oid::INVALID, Oid::INVALID, 0_i16);
            let operator = *(*sort).sortOperators.add(at);
            let is_known = pg_sys::get_ordering_op_properties(
                operator,
                &raw mut family,
                &raw mut of,
                &raw mut strategy,
            );
            // These are compared as numbers without sign. Another operator than the type's own may
            // have an order of its own.
            let is_signed = of != pg_sys::CHAROID && of != pg_sys::OIDOID;
            let flags =
                c_int::try_from(pg_sys::TYPECACHE_LT_OPR | pg_sys::TYPECACHE_GT_OPR).ok()?;
            let own = pg_sys::lookup_type_cache(of, flags);
            let is_own = [(*own).lt_opr, (*own).gt_opr].contains(&operator);
            if !is_known || !is_signed || !is_own {
                return None;
            }
            let is_descending = u32::try_from(strategy) == Ok(pg_sys::BTGreaterStrategyNumber);
            order.push(c_int::try_from(key).ok()?);
            order.push(c_int::from(is_descending));
            order.push(c_int::from(*(*sort).nullsFirst.add(at)));
        }
    }
    Some(order)
}

/// What a node's plan has beside expressions.
pub(super) struct Kept {
    /// The number of keys.
    pub(super) keys: usize,
    /// Whether it takes the place of a hashed aggregation.
    pub(super) is_hashed: bool,
    /// The order of the groups; none if they stay in that of their first rows.
    pub(super) order: Vec<OrderKey>,
}

/// What a node's plan has beside expressions.
///
/// # Safety
///
/// A node of this module in a finished plan.
pub(super) unsafe fn kept_of(plan: *mut pg_sys::CustomScan) -> Kept {
    // SAFETY: the caller's promise.
    unsafe {
        let list = &*(*plan).custom_private;
        let count = usize::try_from(list.length).unwrap_or(0);
        let number = |at: usize| usize::try_from((*list.elements.add(at)).int_value).unwrap_or(0);
        let types: Vec<Oid> = items::<pg_sys::TargetEntry>((*plan).custom_scan_tlist)
            .map(|entry| pg_sys::exprType((*entry).expr.cast()))
            .collect();
        let order = (2..count).step_by(3).map(|at| OrderKey {
            column: number(at),
            kind: types.get(number(at)).copied().and_then(types::kind_of),
            is_descending: number(at + 1) != 0,
            nulls_first: number(at + 2) != 0,
        });
        Kept {
            keys: number(0),
            is_hashed: number(1) != 0,
            order: order.collect(),
        }
    }
}

/// The columns of the rows that the node makes: keys, and then aggregates.
struct Columns {
    /// Numbers of the columns below that are grouped by.
    keys: Vec<i16>,
    aggregates: Vec<*mut Aggref>,
    /// Whether something was found that is in no column.
    has_failed: bool,
}

impl Columns {
    /// The keys of an aggregation, and no aggregates yet.
    ///
    /// # Safety
    ///
    /// A node of a finished plan.
    unsafe fn of(replaced: *mut Agg) -> Option<Self> {
        // SAFETY: the caller's promise.
        let keys = unsafe {
            let count = usize::try_from((*replaced).numCols).ok()?;
            if count == 0 {
                Vec::new()
            } else {
                // Another operator than the type's own may find other values equal.
                let operators = std::slice::from_raw_parts((*replaced).grpOperators, count);
                let flags = c_int::try_from(pg_sys::TYPECACHE_EQ_OPR).ok()?;
                let is_own = |operator: &Oid| {
                    let (mut left, mut right) = (Oid::INVALID, Oid::INVALID);
                    pg_sys::op_input_types(*operator, &raw mut left, &raw mut right);
                    (*pg_sys::lookup_type_cache(left, flags)).eq_opr == *operator
                };
                operators.iter().all(is_own).then_some(())?;
                std::slice::from_raw_parts((*replaced).grpColIdx, count).to_vec()
            }
        };
        Some(Self {
            keys,
            aggregates: Vec::new(),
            has_failed: false,
        })
    }

    /// A copy of an expression in which keys and aggregates are columns of the node's own rows;
    /// collects the aggregates. `None` if it has a column that is neither.
    ///
    /// # Safety
    ///
    /// An expression, or a list of them, of the node.
    unsafe fn replace_in(&mut self, node: *mut Node) -> Option<*mut Node> {
        // SAFETY: the caller's promise.
        let replaced = unsafe { replace_columns(node, std::ptr::from_mut(self).cast()) };
        (!self.has_failed).then_some(replaced)
    }

    /// The target list of the node's own rows.
    ///
    /// # Safety
    ///
    /// The node below.
    unsafe fn row(&self, below: *mut Plan) -> Option<*mut List> {
        let mut row = std::ptr::null_mut();
        let mut number: i16 = 0;
        let outer = pg_sys::OUTER_VAR;
        // SAFETY: the caller's promise.
        unsafe {
            for key in &self.keys {
                let at = usize::try_from(*key).ok()?.checked_sub(1)?;
                let entry = items::<pg_sys::TargetEntry>((*below).targetlist).nth(at)?;
                let expression: *const Node = (*entry).expr.cast();
                let var = pg_sys::makeVar(
                    outer,
                    *key,
                    pg_sys::exprType(expression),
                    pg_sys::exprTypmod(expression),
                    pg_sys::exprCollation(expression),
                    0,
                );
                number += 1;
                let entry =
                    pg_sys::makeTargetEntry(var.cast(), number, std::ptr::null_mut(), false);
                row = pg_sys::lappend(row, entry.cast());
            }
            for aggregate in &self.aggregates {
                number += 1;
                let entry =
                    pg_sys::makeTargetEntry(aggregate.cast(), number, std::ptr::null_mut(), false);
                row = pg_sys::lappend(row, entry.cast());
            }
        }
        Some(row)
    }

    /// The number of an aggregate among the node's columns, from 1.
    fn number_of(&mut self, aggregate: *mut Aggref) -> usize {
        // SAFETY: expressions of the node; equal ones have one number (`preprocess_aggrefs`).
        let is_it = |known: &*mut Aggref| unsafe { (**known).aggno == (*aggregate).aggno };
        let known = self.aggregates.iter().position(is_it);
        let at = known.unwrap_or_else(|| {
            self.aggregates.push(aggregate);
            self.aggregates.len() - 1
        });
        self.keys.len() + at + 1
    }
}

/// Copies an expression with its columns replaced (`expression_tree_mutator`); `context` is the
/// [`Columns`].
unsafe extern "C-unwind" fn replace_columns(node: *mut Node, context: *mut c_void) -> *mut Node {
    if node.is_null() {
        return node;
    }
    // SAFETY: an expression of the node, and the columns that `replace_in` passes.
    unsafe {
        let columns: *mut Columns = context.cast();
        match (*node).type_ {
            NodeTag::T_Aggref => {
                let aggregate: *mut Aggref = node.cast();
                let at = (*columns).number_of(aggregate);
                let at = i16::try_from(at).unwrap_or(0);
                let (of, collation) = ((*aggregate).aggtype, (*aggregate).aggcollid);
                pg_sys::makeVar(pg_sys::INDEX_VAR, at, of, -1, collation, 0).cast()
            }
            // Only an aggregation can say what it has grouped by.
            NodeTag::T_GroupingFunc => {
                (*columns).has_failed = true;
                node
            }
            NodeTag::T_Var => {
                let var: *mut Var = node.cast();
                let mut keys = (*columns).keys.iter();
                let at = keys.position(|key| *key == (*var).varattno);
                let is_below = (*var).varno == pg_sys::OUTER_VAR;
                let Some(at) = at
                    .filter(|_| is_below)
                    .and_then(|at| i16::try_from(at + 1).ok())
                else {
                    (*columns).has_failed = true;
                    return node;
                };
                let copy: *mut Var = pg_sys::copyObjectImpl(node.cast()).cast();
                (*copy).varno = pg_sys::INDEX_VAR;
                (*copy).varattno = at;
                copy.cast()
            }
            _ => nodes::mutate(node, replace_columns, context),
        }
    }
}

/// The program of an aggregation whose rows have these columns, `keys` keys and then aggregates.
/// `None` if a part has no place in a program, or nothing is confidential.
///
/// # Safety
///
/// The target list of the node's rows, and the node's context or null.
pub(super) unsafe fn compile(
    row: *mut List,
    keys: usize,
    context: *mut pg_sys::ExprContext,
) -> Option<Compiled> {
    let mut compiler = Compiler::new(pg_sys::OUTER_VAR, context);
    let mut is_confidential = false;
    // SAFETY: the caller's promise.
    unsafe {
        for (at, entry) in items::<pg_sys::TargetEntry>(row).enumerate() {
            let expression: *mut Node = (*entry).expr.cast();
            if at < keys {
                let var: *mut Var = expression.cast();
                compiler.key((*var).varattno, (*var).vartype)?;
                is_confidential |= types::kind_of((*var).vartype).is_some();
            } else {
                let step = step(&mut compiler, expression.cast())?;
                is_confidential |= matches!(step.fold, Fold::Of(_));
                compiler.step(step);
                if !counts(step.fold) {
                    // It is NULL if there is no row.
                    compiler.step(Step {
                        fold: Fold::Count,
                        of: None,
                        ..step
                    });
                }
            }
        }
    }
    let compiled = compiler.finish()?;
    (is_confidential || compiled.computes).then_some(compiled)
}

/// Whether what is computed is its word, and never NULL, or an identifier, which is 0 for NULL.
const fn counts(fold: Fold) -> bool {
    !matches!(fold, Fold::Sum | Fold::Least | Fold::Greatest)
}

/// An aggregate of a program. `None` if it has no place in one.
///
/// # Safety
///
/// An aggregate of a finished plan.
unsafe fn step(compiler: &mut Compiler, aggregate: *mut Aggref) -> Option<Step> {
    // SAFETY: the caller's promise.
    unsafe {
        let of = &*aggregate;
        let function = of.aggfnoid.to_u32();
        let is_distinct = !of.aggdistinct.is_null();
        let is_simple = of.aggorder.is_null() && of.aggdirectargs.is_null() && of.agglevelsup == 0;
        if !is_simple || is_distinct && function != COUNT_VALUES {
            return None;
        }
        let filter = match of.aggfilter.is_null() {
            true => None,
            false => Some(compiler.truth(of.aggfilter.cast())?),
        };
        let mut args = items::<pg_sys::TargetEntry>(of.args);
        let (first, second) = (args.next(), args.next());
        if second.is_some() {
            return None;
        }
        // The argument is computed of the rows for which the filter is true.
        if let Some(filter) = filter {
            compiler.narrow(filter, truths::TRUE)?;
        }
        let argument: Option<*mut Node> = first.map(|entry| (*entry).expr.cast());
        let kind = argument.and_then(|argument| types::kind_of(pg_sys::exprType(argument)));
        let (fold, of, not_null) = match (argument, kind) {
            (None, _) if function == COUNT_ROWS => (Fold::Count, None, None),
            (Some(argument), Some(_)) if function == COUNT_VALUES && !is_distinct => {
                (Fold::Count, Some(compiler.value(argument)?), None)
            }
            (Some(argument), Some(_)) if function != COUNT_VALUES => {
                let aggregate = known_aggregate(of.aggfnoid)?;
                (Fold::Of(aggregate), Some(compiler.value(argument)?), None)
            }
            (Some(argument), None) => {
                let fold = fold_of_numbers(function, is_distinct)?;
                if fold == Fold::Count && (*argument).type_ == NodeTag::T_Var {
                    // Of any type.
                    (fold, None, Some(compiler.is_not_null(argument)?))
                } else {
                    let number = compiler.number(argument)?;
                    let of = (fold != Fold::Count).then_some(number.register);
                    (fold, of, number.not_null)
                }
            }
            _ => return None,
        };
        if filter.is_some() {
            compiler.push(Instruction::Widen)?;
        }
        let filter = match (filter, not_null) {
            (Some(filter), Some(not_null)) => Some(compiler.both(filter, not_null)?),
            (filter, not_null) => filter.or(not_null),
        };
        Some(Step { fold, of, filter })
    }
}

/// What an aggregate function computes of numbers in clear. `None` for one whose result is no such
/// number.
const fn fold_of_numbers(function: u32, is_distinct: bool) -> Option<Fold> {
    Some(match function {
        COUNT_VALUES if is_distinct => Fold::CountDistinct,
        COUNT_VALUES => Fold::Count,
        pg_sys::F_SUM_INT2 | pg_sys::F_SUM_INT4 => Fold::Sum,
        pg_sys::F_MIN_INT2
        | pg_sys::F_MIN_INT4
        | pg_sys::F_MIN_INT8
        | pg_sys::F_MIN_DATE
        | pg_sys::F_MIN_TIME
        | pg_sys::F_MIN_TIMESTAMP
        | pg_sys::F_MIN_TIMESTAMPTZ => Fold::Least,
        pg_sys::F_MAX_INT2
        | pg_sys::F_MAX_INT4
        | pg_sys::F_MAX_INT8
        | pg_sys::F_MAX_DATE
        | pg_sys::F_MAX_TIME
        | pg_sys::F_MAX_TIMESTAMP
        | pg_sys::F_MAX_TIMESTAMPTZ => Fold::Greatest,
        _ => return None,
    })
}

/// The aggregate of this library that a function is. `None` for another one.
fn known_aggregate(function: Oid) -> Option<Aggregate> {
    let cache = pg_sys::SysCacheIdentifier::AGGFNOID.cast_signed();
    // SAFETY: a search of the catalog cache; an OID is copied from the row before it is released.
    let transition = unsafe {
        let tuple = pg_sys::SearchSysCache1(cache, pg_sys::Datum::from(function));
        if tuple.is_null() {
            return None;
        }
        let mut is_null = false;
        let column = TRANSITION_COLUMN;
        let transition = pg_sys::SysCacheGetAttr(cache, tuple, column, &raw mut is_null);
        pg_sys::ReleaseSysCache(tuple);
        Oid::from(u32::try_from(transition.value()).ok()?)
    };
    if types::symbol_of(transition)? != "strongroom_step" {
        return None;
    }
    let name = types::function(function).name;
    let mut known = AGGREGATE_NAMES.iter();
    known.find(|(known, _)| *known == name).map(|(_, of)| *of)
}

/// Where the words of the node's columns are among those of a group.
///
/// # Safety
///
/// The target list of the node's rows.
pub(super) unsafe fn places(row: *mut List, keys: usize) -> Vec<Place> {
    let mut places = Vec::new();
    let mut word = 0;
    // SAFETY: the caller's promise.
    unsafe {
        for (at, entry) in items::<pg_sys::TargetEntry>(row).enumerate() {
            let expression: *mut Node = (*entry).expr.cast();
            let is_value = types::kind_of(pg_sys::exprType(expression)).is_some();
            if is_value {
                places.push(Place::Value(word));
            } else if at < keys {
                // Whether it is NULL is a key of its own, before it.
                word += 1;
                places.push(Place::Word(word));
            } else {
                let aggregate: *mut Aggref = expression.cast();
                let is_distinct = !(*aggregate).aggdistinct.is_null();
                match fold_of_numbers((*aggregate).aggfnoid.to_u32(), is_distinct) {
                    Some(fold) if !counts(fold) => {
                        places.push(Place::Number(word));
                        word += 1;
                    }
                    _ => places.push(Place::Count(word)),
                }
            }
            word += 1;
        }
    }
    places
}
