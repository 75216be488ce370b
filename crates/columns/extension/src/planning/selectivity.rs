//! Selectivity of a comparison with a constant, for the planner: estimated from a few rows.
//!
//! A confidential column has no statistics of order, and PostgreSQL's default for a range is one
//! row in two hundred, with which it would join large tables by nested loops. So a few pages of the
//! table are read when a query is planned, and the zone compares their values with the constant in
//! one call. Without the zone, a session or a constant, the estimate is one row in three. Must not:
//! raise what the zone refuses, or keep an answer.

use pg_sys::Datum;
use pgrx::pg_sys;
use strongroom_columns_ring::{ANSWER_HALF, Broken, Descriptor, Op};

use crate::call::{Call, bits, call_postgres, sql_functions};
use crate::catalog::tuples;
use crate::ring::zone;
use crate::scanning::pages;
use crate::settings;
use crate::storage::access_method;

sql_functions! {
    /// `strongroom_range_selectivity(internal, oid, internal, integer)`
    strongroom_range_selectivity, pg_finfo_strongroom_range_selectivity => selectivity;
}

/// The estimate when the zone cannot be asked (selfuncs.h, `DEFAULT_INEQ_SEL`).
const DEFAULT: f64 = 0.333_333_333_333_333_3;
/// Most pages that are sampled.
const PAGES: u32 = 4;
/// Most values of a sample.
const VALUES: usize = 256;

/// A comparison of a column with a constant.
struct Comparison {
    table: pg_sys::Oid,
    column: i16,
    constant: u64,
    /// Whether an order of column and constant (-1, 0, 1) satisfies the comparison.
    satisfies: fn(i32) -> bool,
    /// Fraction of the rows in which the column is not NULL.
    present: f64,
}

/// The estimated fraction of rows that satisfy a comparison, from 0 to 1; one third if nothing is
/// known.
fn selectivity(call: &mut Call) -> Datum {
    let found = parse_comparison(call).and_then(|comparison| estimate(&comparison));
    let estimate: f64 = found.unwrap_or(DEFAULT);
    // A double precision is passed by value on every machine that PostgreSQL 15 builds on with 64
    // bits (Float8GetDatum).
    Datum::from(estimate.to_bits())
}

/// The comparison that the planner asks about. `None` unless it is one of a table's column with a
/// constant.
fn parse_comparison(call: &Call) -> Option<Comparison> {
    let root: *mut pg_sys::PlannerInfo = call.datum(0).cast_mut_ptr();
    let operator = pg_sys::Oid::from(u32::try_from(bits(call.datum(1))).ok()?);
    let mut found = pg_sys::VariableStatData::default();
    let mut other: *mut pg_sys::Node = std::ptr::null_mut();
    let mut on_left = false;
    // SAFETY: the planner's own arguments, in the order of a restriction estimator (selfuncs.c);
    // the results live as long as the planner.
    unsafe {
        let is_one = pg_sys::get_restriction_variable(
            root,
            call.datum(2).cast_mut_ptr(),
            call.int4(3),
            &raw mut found,
            &raw mut other,
            &raw mut on_left,
        );
        if !is_one {
            return None;
        }
        let result = column_and_constant(root, &found, other, operator, on_left);
        if let Some(free) = found.freefunc
            && !found.statsTuple.is_null()
        {
            call_postgres(|| free(found.statsTuple));
        }
        result
    }
}

/// The comparison of a variable with another operand. `None` unless these are a column of a table
/// and a constant that is not NULL, and the operator is one of order.
///
/// # Safety
///
/// `found` and `other` are results of `get_restriction_variable`.
unsafe fn column_and_constant(
    root: *mut pg_sys::PlannerInfo,
    found: &pg_sys::VariableStatData,
    other: *mut pg_sys::Node,
    operator: pg_sys::Oid,
    on_left: bool,
) -> Option<Comparison> {
    // SAFETY: nodes of the planner, cast according to their tags.
    unsafe {
        if (*other).type_ != pg_sys::NodeTag::T_Const
            || (*found.var).type_ != pg_sys::NodeTag::T_Var
        {
            return None;
        }
        let constant: *mut pg_sys::Const = other.cast();
        let var: *mut pg_sys::Var = found.var.cast();
        if (*constant).constisnull || (*var).varattno <= 0 || (*var).varlevelsup != 0 {
            return None;
        }
        let at = usize::try_from((*var).varno).ok()?;
        let entry = *(*root).simple_rte_array.add(at);
        if entry.is_null() || (*entry).rtekind != pg_sys::RTEKind::RTE_RELATION {
            return None;
        }
        let present = found.statsTuple.as_ref().map_or(1.0, |_| {
            let form: *const pg_sys::FormData_pg_statistic = tuples::fixed_part(found.statsTuple);
            1.0 - f64::from((*form).stanullfrac)
        });
        Some(Comparison {
            table: (*entry).relid,
            column: (*var).varattno,
            constant: bits((*constant).constvalue),
            satisfies: satisfying_orders(operator, on_left)?,
            present,
        })
    }
}

/// A function that says which orders of column and constant satisfy an operator. `on_left`: the
/// column is the left operand. `None` for an operator other than `<`, `<=`, `>`, `>=`.
fn satisfying_orders(operator: pg_sys::Oid, on_left: bool) -> Option<fn(i32) -> bool> {
    // SAFETY: looks the operator's name up; the copy is the memory context's.
    let name = unsafe {
        let name = pg_sys::get_opname(operator);
        if name.is_null() {
            return None;
        }
        std::ffi::CStr::from_ptr(name)
    };
    let (turned, or_equal) = match name.to_bytes() {
        b"<" => (!on_left, false),
        b"<=" => (!on_left, true),
        b">" => (on_left, false),
        b">=" => (on_left, true),
        _ => return None,
    };
    Some(match (turned, or_equal) {
        (false, false) => |order| order < 0,
        (false, true) => |order| order <= 0,
        (true, false) => |order| order > 0,
        (true, true) => |order| order >= 0,
    })
}

/// The fraction of rows that satisfy a comparison, from a sample that the zone compares. `None` if
/// estimates are off, the zone cannot be reached or refuses, or there are no values. Raises an
/// ERROR if the zone is lost meanwhile.
#[expect(clippy::cast_precision_loss, reason = "an estimate")]
fn estimate(comparison: &Comparison) -> Option<f64> {
    if !settings::are_estimates_on() || !zone::is_reachable() {
        return None;
    }
    let (kind, fids) = sample(comparison)?;
    if fids.is_empty() {
        return None;
    }
    let descriptor = Descriptor {
        flags: u16::from(kind.number()),
        n: u32::try_from(fids.len()).ok()?,
        a: comparison.constant,
        ..Descriptor::of(Op::CompareMany)
    };
    let orders = zone::with(|connection| {
        connection.write_words(0, &fids)?;
        match connection.call(descriptor) {
            Ok(_) => connection.read(ANSWER_HALF, fids.len()).map(Some),
            // The fault is raised when the query runs, if it does.
            Err(Broken::Fault(_)) => Ok(None),
            Err(broken) => Err(broken),
        }
    })?;
    let kept = orders
        .iter()
        .filter(|order| (comparison.satisfies)(i32::from(**order) - 1));
    // Never 0 and never 1: the sample is small.
    let fraction = (kept.count() as f64 + 0.5) / (orders.len() as f64 + 1.0);
    Some(fraction * comparison.present)
}

/// A sample of the column: its kind, and identifiers of values. `None` if it is no confidential
/// column of a table with the access method.
fn sample(comparison: &Comparison) -> Option<(strongroom_format::columns::Kind, Vec<u64>)> {
    // SAFETY: the planner holds a lock on every table of the query; the relation is closed again,
    // or by the resource owner.
    unsafe {
        let lock = pg_sys::NoLock.cast_signed();
        let relation = pg_sys::table_open(comparison.table, lock);
        let mut taken = None;
        if access_method::has_access_method(relation) {
            let columns = crate::storage::partition::table_of(relation).columns;
            let column = columns.iter().find(|one| one.number == comparison.column);
            taken = column.map(|column| (column.kind, sample_values(relation, column.number)));
        }
        pg_sys::table_close(relation, lock);
        taken
    }
}

/// Identifiers of up to [`VALUES`] values of a column, from [`PAGES`] pages at even distances; dead
/// rows included.
fn sample_values(relation: pg_sys::Relation, column: i16) -> Vec<u64> {
    // SAFETY: an open relation with storage.
    let blocks = unsafe {
        pg_sys::RelationGetNumberOfBlocksInFork(relation, pg_sys::ForkNumber::MAIN_FORKNUM)
    };
    let mut found = Vec::with_capacity(VALUES);
    let pages = blocks.min(PAGES);
    for number in 0..pages {
        let block = u64::from(blocks) * u64::from(2 * number + 1) / u64::from(2 * pages);
        let limit = VALUES / PAGES as usize * (number as usize + 1);
        let strategy = std::ptr::null_mut();
        let block = u32::try_from(block).unwrap_or(0);
        pages::each_row(relation, block, strategy, |row| {
            if found.len() < limit {
                found.extend(pages::value(relation, row, column));
            }
        });
    }
    found
}
