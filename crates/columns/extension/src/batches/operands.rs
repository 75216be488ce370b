//! What expressions are made of: constants, and the types and functions that a program knows.
//!
//! Must not: make an instruction.

use pg_sys::{NodeTag, Oid};
use pgrx::pg_sys;
use strongroom_columns_ring::program::orders;
use strongroom_format::columns::Kind;

use crate::call::bits;
use crate::catalog::types;

/// The identifiers in a constant array; 0 for NULL. `None` for another expression.
///
/// # Safety
///
/// An expression of a finished plan, whose type is an array of a confidential one if it is a
/// constant.
pub(super) unsafe fn array_constant(node: *mut pg_sys::Node) -> Option<Vec<u64>> {
    // SAFETY: the caller's promise; such types have 8 bytes, by value, and `double` alignment.
    unsafe {
        if (*node).type_ != NodeTag::T_Const {
            return None;
        }
        let of: *mut pg_sys::Const = node.cast();
        if (*of).constisnull {
            return None;
        }
        let array: *mut pg_sys::ArrayType =
            pg_sys::pg_detoast_datum((*of).constvalue.cast_mut_ptr()).cast();
        let (mut values, mut nulls) = (std::ptr::null_mut(), std::ptr::null_mut());
        let mut count = 0;
        let element = (*array).elemtype;
        kind_of(element)?;
        pg_sys::deconstruct_array(
            array,
            element,
            8,
            true,
            i8::try_from(pg_sys::TYPALIGN_DOUBLE).ok()?,
            &raw mut values,
            &raw mut nulls,
            &raw mut count,
        );
        let count = usize::try_from(count).ok()?;
        let element = |at: usize| {
            if *nulls.add(at) {
                0
            } else {
                bits(*values.add(at))
            }
        };
        Some((0..count).map(element).collect())
    }
}

/// The value of a constant of a type in clear. `None` for another expression, and for NULL.
///
/// # Safety
///
/// An expression of a finished plan.
pub(super) unsafe fn plain_constant(node: *mut pg_sys::Node) -> Option<pg_sys::Datum> {
    // SAFETY: the caller's promise.
    unsafe {
        if (*node).type_ != NodeTag::T_Const {
            return None;
        }
        let of: *mut pg_sys::Const = node.cast();
        (!(*of).constisnull).then_some((*of).constvalue)
    }
}

/// The kind of a confidential type whose values a program takes. `None` for documents, of which one
/// operation reads few (R7).
pub(super) fn kind_of(type_oid: Oid) -> Option<Kind> {
    types::kind_of(type_oid).filter(|kind| *kind != Kind::Jsonb)
}

/// The symbol of a function of this library. `None` for a function of PostgreSQL's own.
pub(super) fn symbol_of(function: Oid) -> Option<String> {
    if !types::may_be_confidential(function) {
        return None;
    }
    types::symbol_of(function)
}

/// The orders for which a comparison function is true. `None` for another function.
pub(super) fn orders_of(symbol: &str) -> Option<u8> {
    Some(match symbol {
        "strongroom_lt" => orders::LESS,
        "strongroom_le" => orders::LESS | orders::EQUAL,
        "strongroom_eq" => orders::EQUAL,
        "strongroom_ge" => orders::GREATER | orders::EQUAL,
        "strongroom_gt" => orders::GREATER,
        "strongroom_ne" => orders::LESS | orders::GREATER,
        _ => return None,
    })
}

/// The number of bytes of a type in clear of PostgreSQL's own whose values are equal exactly when
/// their bits are: whole numbers, OIDs, dates, times and booleans. `None` for another type.
pub(super) const fn plain_width(type_oid: Oid) -> Option<u8> {
    match type_oid {
        pg_sys::BOOLOID | pg_sys::CHAROID => Some(1),
        pg_sys::INT2OID => Some(2),
        pg_sys::INT4OID | pg_sys::OIDOID | pg_sys::DATEOID => Some(4),
        pg_sys::INT8OID | pg_sys::TIMEOID | pg_sys::TIMESTAMPOID | pg_sys::TIMESTAMPTZOID => {
            Some(8)
        }
        _ => None,
    }
}
