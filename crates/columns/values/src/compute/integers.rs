//! The functions on `integer` and `bigint` of the list.
//!
//! Must not: compute more than one line itself.

use strongroom_columns_ring::Fault;

use super::routine::{Routine, put_int4, put_int8};

/// Returns the divisor. `Fault::DivisionByZero` if it is 0.
fn divisor<T: PartialEq + Default>(b: T) -> Result<T, Fault> {
    if b == T::default() {
        Err(Fault::DivisionByZero)
    } else {
        Ok(b)
    }
}

/// The function on `integer` or `bigint` with this code. `None` for an unknown code.
pub(super) fn arithmetic(code: u16) -> Option<Routine> {
    let routine: Routine = match code {
        100 => |a, _, out| put_int4(a.int4(0)?.checked_add(a.int4(1)?), out),
        101 => |a, _, out| put_int4(a.int4(0)?.checked_sub(a.int4(1)?), out),
        102 => |a, _, out| put_int4(a.int4(0)?.checked_mul(a.int4(1)?), out),
        103 => |a, _, out| put_int4(a.int4(0)?.checked_div(divisor(a.int4(1)?)?), out),
        104 => |a, _, out| put_int4(Some(a.int4(0)?.wrapping_rem(divisor(a.int4(1)?)?)), out),
        105 => |a, _, out| put_int4(a.int4(0)?.checked_neg(), out),
        106 => |a, _, out| put_int4(a.int4(0)?.checked_abs(), out),
        110 => |a, _, out| put_int8(a.int8(0)?.checked_add(a.int8(1)?), out),
        111 => |a, _, out| put_int8(a.int8(0)?.checked_sub(a.int8(1)?), out),
        112 => |a, _, out| put_int8(a.int8(0)?.checked_mul(a.int8(1)?), out),
        113 => |a, _, out| put_int8(a.int8(0)?.checked_div(divisor(a.int8(1)?)?), out),
        114 => |a, _, out| put_int8(Some(a.int8(0)?.wrapping_rem(divisor(a.int8(1)?)?)), out),
        115 => |a, _, out| put_int8(a.int8(0)?.checked_neg(), out),
        116 => |a, _, out| put_int8(a.int8(0)?.checked_abs(), out),
        _ => return None,
    };
    Some(routine)
}

/// The function on the bits of `integer` or `bigint` with this code. `None` for an unknown code.
///
/// A shift by more than the number's bits is one by the rest, as the processors do it that
/// PostgreSQL runs on.
pub(super) fn bits(code: u16) -> Option<Routine> {
    let routine: Routine = match code {
        260 => |a, _, out| put_int4(Some(a.int4(0)? & a.int4(1)?), out),
        261 => |a, _, out| put_int4(Some(a.int4(0)? | a.int4(1)?), out),
        262 => |a, _, out| put_int4(Some(a.int4(0)? ^ a.int4(1)?), out),
        263 => |a, _, out| put_int4(Some(!a.int4(0)?), out),
        264 => |a, _, out| put_int4(Some(a.int4(0)?.wrapping_shl(a.places()?)), out),
        265 => |a, _, out| put_int4(Some(a.int4(0)?.wrapping_shr(a.places()?)), out),
        270 => |a, _, out| put_int8(Some(a.int8(0)? & a.int8(1)?), out),
        271 => |a, _, out| put_int8(Some(a.int8(0)? | a.int8(1)?), out),
        272 => |a, _, out| put_int8(Some(a.int8(0)? ^ a.int8(1)?), out),
        273 => |a, _, out| put_int8(Some(!a.int8(0)?), out),
        274 => |a, _, out| put_int8(Some(a.int8(0)?.wrapping_shl(a.places()?)), out),
        275 => |a, _, out| put_int8(Some(a.int8(0)?.wrapping_shr(a.places()?)), out),
        _ => return None,
    };
    Some(routine)
}
