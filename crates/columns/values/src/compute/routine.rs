//! The arguments and the results of the functions of the list.
//!
//! Must not: compute.

use strongroom_columns_ring::Fault;
use strongroom_columns_ring::function::Field;

use crate::interval::Interval;
use crate::time_of_day;
use crate::value::{Operand, Out, Settings, Value};

/// The arguments of one call.
#[derive(Clone, Copy)]
pub(super) struct Args<'a>(pub(super) &'a [Operand<'a>]);

impl<'a> Args<'a> {
    /// The confidential argument at this index. `Fault::KindMismatch` if there is none, or another
    /// sort.
    pub(super) fn value(self, at: usize) -> Result<Value<'a>, Fault> {
        match self.0.get(at) {
            Some(Operand::Value(value)) => Ok(*value),
            _ => Err(Fault::KindMismatch),
        }
    }

    /// The integer in clear at this index, such as a precision. `Fault::KindMismatch` if there is
    /// none, or another sort of argument.
    pub(super) fn plain(self, at: usize) -> Result<i32, Fault> {
        match self.0.get(at) {
            Some(Operand::Plain(plain)) => Ok(*plain),
            _ => Err(Fault::KindMismatch),
        }
    }

    /// The field, which is the first argument. `Fault::KindMismatch` if it is another sort of
    /// argument.
    pub(super) fn field(self) -> Result<Field, Fault> {
        match self.0.first() {
            Some(Operand::Field(field)) => Ok(*field),
            _ => Err(Fault::KindMismatch),
        }
    }

    /// The confidential `integer` or `date` at this index. `Fault::KindMismatch` if it is none.
    pub(super) fn int4(self, at: usize) -> Result<i32, Fault> {
        self.value(at)?.int4()
    }

    /// By how many places a shift moves: the `integer` that is its second argument. A negative one
    /// counts as the unsigned number of the same bits. `Fault::KindMismatch` if it is none.
    pub(super) fn places(self) -> Result<u32, Fault> {
        Ok(self.int4(1)?.cast_unsigned())
    }

    /// The confidential `bigint` or timestamp at this index. `Fault::KindMismatch` if it is none.
    pub(super) fn int8(self, at: usize) -> Result<i64, Fault> {
        self.value(at)?.int8()
    }

    /// The confidential `time` at this index. `Fault::KindMismatch` if it is none.
    pub(super) fn time(self, at: usize) -> Result<i64, Fault> {
        time_of_day::of(self.value(at)?)
    }

    /// The confidential `double precision` at this index. `Fault::KindMismatch` if it is none.
    pub(super) fn float8(self, at: usize) -> Result<f64, Fault> {
        self.value(at)?.float8()
    }

    /// The confidential `text` at this index. `Fault::KindMismatch` if it is not UTF-8 bytes.
    pub(super) fn text(self, at: usize) -> Result<&'a str, Fault> {
        self.value(at)?.text()
    }

    /// The bytes of the confidential `bytea` or `text` at this index. `Fault::KindMismatch` if
    /// there is no argument, if it is not confidential, or if its value is kept as a number and not
    /// as bytes.
    pub(super) fn bytes(self, at: usize) -> Result<&'a [u8], Fault> {
        self.value(at)?.bytes()
    }

    /// The confidential `interval` at this index. `Fault::KindMismatch` if it is none.
    pub(super) fn interval(self, at: usize) -> Result<Interval, Fault> {
        Interval::read(self.value(at)?)
    }
}

pub(super) type Routine = fn(Args<'_>, &Settings, &mut Out) -> Result<(), Fault>;
pub(super) type Predicate = fn(Args<'_>) -> Result<bool, Fault>;

/// Sets `out` to the result. `Fault::Int4OutOfRange` if there is none, because it does not fit.
pub(super) fn put_int4(result: Option<i32>, out: &mut Out) -> Result<(), Fault> {
    out.set_int4(result.ok_or(Fault::Int4OutOfRange)?);
    Ok(())
}

/// Sets `out` to the result. `Fault::Int8OutOfRange` if there is none, because it does not fit.
pub(super) fn put_int8(result: Option<i64>, out: &mut Out) -> Result<(), Fault> {
    out.set_int8(result.ok_or(Fault::Int8OutOfRange)?);
    Ok(())
}

/// Sets `out` to the result. Never fails: a `Result` as the others.
pub(super) fn put_double(result: f64, out: &mut Out) -> Result<(), Fault> {
    out.set_float8(result);
    Ok(())
}

/// Sets `out` to the result, microseconds since 2000-01-01. Never fails: a `Result` as the others.
pub(super) fn put_timestamp(result: i64, out: &mut Out) -> Result<(), Fault> {
    out.set_int8(result);
    Ok(())
}

/// Sets `out` to the result as 4 bytes: a date in days since 2000-01-01, or a number of days. Never
/// fails: a `Result` as the others.
pub(super) fn put_date(result: i32, out: &mut Out) -> Result<(), Fault> {
    out.set_int4(result);
    Ok(())
}

/// Sets `out` to the result. Never fails: a `Result` as the others.
pub(super) fn put_interval(result: Interval, out: &mut Out) -> Result<(), Fault> {
    result.put(out);
    Ok(())
}
