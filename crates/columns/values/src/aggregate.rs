//! Aggregates: the state that values are added to, and the result.
//!
//! Sums of integers and numerics are exact, whatever the order; sums of doubles depend on it, as in
//! PostgreSQL (src/backend/utils/adt/ numeric.c, float.c, timestamp.c). `finish` keeps the state,
//! because a window's frame is read while it grows. Must not: count NULLs, which are never passed.

mod exact;

use core::cmp::Ordering;

use strongroom_columns_ring::Fault;
use strongroom_columns_ring::function::Aggregate;
use strongroom_format::columns::Kind;
use zeroize::Zeroize;

use crate::compare::compare;
use crate::float;
use crate::interval::Interval;
use crate::value::{Buf, Out, Value};
use exact::Exact;

/// The longest text that is computed.
const TEXT_MAX: usize = crate::textual::LEN_MAX;

/// The state of one aggregate.
pub struct Accumulator {
    aggregate: Aggregate,
    kind: Kind,
    state: State,
}

enum State {
    /// Sums of int4, int8, numeric.
    Exact(Exact),
    /// `sum` of float8.
    Total(Option<f64>),
    /// The others of float8.
    Moments(Moments),
    /// Sum and number of intervals.
    Span(Interval, u32),
    /// `min`, `max`; whether there was a value.
    Extreme(Out, bool),
    /// `string_agg`: delimiters and values in turn, beginning with a delimiter; the length of that
    /// one.
    Text(Buf, Option<usize>),
    /// `bool_and`, `bool_or`.
    Truth(Option<bool>),
}

impl Accumulator {
    /// An empty state for values of `kind`. `None` if there is no such aggregate of this kind.
    #[must_use]
    pub fn new(aggregate: Aggregate, kind: Kind) -> Option<Self> {
        aggregate.gives(kind)?;
        let state = match (aggregate, kind) {
            (Aggregate::Min | Aggregate::Max, _) => State::Extreme(Out::new(), false),
            (Aggregate::StringAgg, _) => State::Text(Buf::new(), None),
            (Aggregate::BoolAnd | Aggregate::BoolOr, _) => State::Truth(None),
            (_, Kind::Interval) => State::Span(Interval::default(), 0),
            (Aggregate::Sum, Kind::Float8) => State::Total(None),
            (_, Kind::Float8) => State::Moments(Moments::default()),
            (Aggregate::Sum | Aggregate::Avg, _) => State::Exact(Exact::new(false)),
            _ => State::Exact(Exact::new(true)),
        };
        Some(Self {
            aggregate,
            kind,
            state,
        })
    }

    /// Whether adding values of this kind fails for some of them: those of a sum that overflows.
    #[must_use]
    pub const fn can_fail(aggregate: Aggregate, kind: Kind) -> bool {
        match aggregate {
            Aggregate::Min | Aggregate::Max | Aggregate::BoolAnd | Aggregate::BoolOr => false,
            Aggregate::StringAgg => true,
            _ => matches!(kind, Kind::Float8 | Kind::Interval),
        }
    }

    /// Number of bytes of the value that it keeps, for aggregates that keep one.
    #[must_use]
    pub fn kept_bytes(&self) -> usize {
        match &self.state {
            State::Extreme(best, _) => best.value().bytes().map_or(0, <[u8]>::len),
            State::Text(text, _) => text.as_slice().len(),
            _ => 0,
        }
    }

    /// The aggregate and the kind of values that it was made for.
    #[must_use]
    pub const fn aggregate_and_kind(&self) -> (Aggregate, Kind) {
        (self.aggregate, self.kind)
    }

    /// Adds a value, which is not NULL. `delimiter` is the second argument of `string_agg`, and
    /// unused by others.
    ///
    /// # Errors
    /// The overflow that PostgreSQL's transition function has; [`Fault::StringTooLong`] if the text
    /// would exceed 64 MiB; [`Fault::KindMismatch`] for a value that is not of the kind's form, or
    /// a missing delimiter.
    pub fn add(&mut self, value: Value<'_>, delimiter: Option<Value<'_>>) -> Result<(), Fault> {
        match &mut self.state {
            State::Exact(exact) if self.kind == Kind::Numeric => exact.add(value)?,
            State::Exact(exact) => exact.add_integer(value.int8()?),
            State::Total(total) => {
                let number = value.float8()?;
                *total = Some(match *total {
                    Some(before) => float::add(before, number)?,
                    None => number,
                });
            }
            State::Moments(moments) => *moments = moments.with(value.float8()?)?,
            State::Span(sum, count) => {
                *sum = sum.plus(Interval::read(value)?)?;
                *count = count.saturating_add(1);
            }
            State::Extreme(best, any) => {
                if !*any || !keeps_earlier(self.aggregate, compare(self.kind, best.value(), value)?)
                {
                    best.set(value);
                    *any = true;
                }
            }
            State::Text(text, first) => {
                let delimiter = delimiter.ok_or(Fault::KindMismatch)?.bytes()?;
                append(text, &[delimiter, value.bytes()?])?;
                first.get_or_insert(delimiter.len());
            }
            State::Truth(truth) => {
                let value = value.bool()?;
                *truth = Some(combine_bools(self.aggregate, *truth, value));
            }
        }
        Ok(())
    }

    /// Adds the state of another accumulator of the same aggregate and kind, whose values came
    /// later; `other` is not changed.
    ///
    /// # Errors
    /// The overflow that PostgreSQL's combine function has; [`Fault::StringTooLong`] above 64 MiB
    /// of text; [`Fault::NotAnAccumulator`] if the other is of another aggregate or kind.
    pub fn combine(&mut self, other: &Self) -> Result<(), Fault> {
        if self.aggregate_and_kind() != other.aggregate_and_kind() {
            return Err(Fault::NotAnAccumulator);
        }
        match (&mut self.state, &other.state) {
            (State::Exact(exact), State::Exact(other)) => exact.combine(other),
            (State::Total(total), State::Total(Some(other))) => {
                *total = Some(match *total {
                    Some(total) => float::add(total, *other)?,
                    None => *other,
                });
            }
            (State::Moments(moments), State::Moments(other)) => *moments = moments.and(*other)?,
            (State::Span(sum, count), State::Span(other, more)) => {
                *sum = sum.plus(*other)?;
                *count = count.saturating_add(*more);
            }
            (State::Extreme(..), State::Extreme(best, true)) => self.add(best.value(), None)?,
            (State::Text(text, first), State::Text(other, Some(len))) => {
                append(text, &[other.as_slice()])?;
                first.get_or_insert(*len);
            }
            (State::Truth(truth), State::Truth(Some(other))) => {
                *truth = Some(combine_bools(self.aggregate, *truth, *other));
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns the result; `None` for NULL. Keeps the state, so that more values can be added.
    ///
    /// # Errors
    /// The overflow that PostgreSQL's final function has.
    pub fn finish(&self) -> Result<Option<Out>, Fault> {
        let mut out = Out::new();
        let some = match &self.state {
            State::Exact(exact) => exact.finish(self.aggregate, self.kind, &mut out)?,
            State::Total(total) => put_double(*total, &mut out),
            State::Moments(moments) => put_double(moments.finish(self.aggregate), &mut out),
            State::Span(_, 0) => false,
            State::Span(sum, count) => {
                let result = if self.aggregate == Aggregate::Avg {
                    sum.over(f64::from(*count))?
                } else {
                    *sum
                };
                result.put(&mut out);
                true
            }
            State::Extreme(best, any) => {
                out.set(best.value());
                *any
            }
            State::Text(_, None) => false,
            State::Text(text, Some(len)) => {
                out.set_bytes(text.as_slice().get(*len..).unwrap_or(&[]));
                true
            }
            State::Truth(truth) => {
                out.set(Value::of_bool(*truth == Some(true)));
                truth.is_some()
            }
        };
        Ok(some.then_some(out))
    }
}

/// Sets `out` to the number, or to 0 for none. Returns whether there is a number; none is NULL in
/// SQL.
fn put_double(number: Option<f64>, out: &mut Out) -> bool {
    out.set_float8(number.unwrap_or(0.0));
    number.is_some()
}

/// Whether `min` or `max` keeps the earlier value, given its order relative to the new one: of
/// equal values the new one is taken, as in `numeric_larger`.
fn keeps_earlier(aggregate: Aggregate, order: Ordering) -> bool {
    order
        == if aggregate == Aggregate::Min {
            Ordering::Less
        } else {
            Ordering::Greater
        }
}

/// Combines a boolean with the result so far, if any: by `bool_and`, or otherwise `bool_or`.
fn combine_bools(aggregate: Aggregate, before: Option<bool>, value: bool) -> bool {
    match (before, aggregate) {
        (None, _) => value,
        (Some(before), Aggregate::BoolAnd) => before && value,
        (Some(before), _) => before || value,
    }
}

/// Appends all parts to the text of an aggregate. `Fault::StringTooLong`, and nothing is appended,
/// if it would become longer than 64 MiB.
fn append(text: &mut Buf, parts: &[&[u8]]) -> Result<(), Fault> {
    let more: usize = parts.iter().map(|part| part.len()).sum();
    if text.as_slice().len() + more > TEXT_MAX {
        return Err(Fault::StringTooLong);
    }
    parts.iter().for_each(|part| text.extend(part));
    Ok(())
}

/// Number, sum, and sum of squares of differences from the mean: the algorithm of Youngs and Cramer
/// (`float8_accum`).
#[derive(Clone, Copy, Default)]
struct Moments {
    count: f64,
    sum: f64,
    squares: f64,
}

impl Moments {
    /// The moments with one more value, as PostgreSQL computes them (`float8_accum`).
    /// `Fault::FloatOverflow` if a finite sum becomes infinite.
    fn with(self, value: f64) -> Result<Self, Fault> {
        let count = self.count + 1.0;
        let sum = self.sum + value;
        let mut squares = self.squares;
        if self.count > 0.0 {
            let difference = value * count - sum;
            squares += difference * difference / (count * self.count);
            if sum.is_infinite() || squares.is_infinite() {
                if !self.sum.is_infinite() && !value.is_infinite() {
                    return Err(Fault::FloatOverflow);
                }
                squares = f64::NAN;
            }
        } else if !value.is_finite() {
            squares = f64::NAN;
        }
        Ok(Self {
            count,
            sum,
            squares,
        })
    }

    /// The moments of the values of both, as PostgreSQL computes them (`float8_combine`).
    /// `Fault::FloatOverflow` if a finite sum becomes infinite.
    fn and(self, other: Self) -> Result<Self, Fault> {
        if self.count == 0.0 {
            return Ok(other);
        }
        if other.count == 0.0 {
            return Ok(self);
        }
        let count = self.count + other.count;
        let sum = float::add(self.sum, other.sum)?;
        let difference = self.sum / self.count - other.sum / other.count;
        let between = self.count * other.count * difference * difference / count;
        let squares = self.squares + other.squares + between;
        if squares.is_infinite() && !self.squares.is_infinite() && !other.squares.is_infinite() {
            return Err(Fault::FloatOverflow);
        }
        Ok(Self {
            count,
            sum,
            squares,
        })
    }

    /// The average, variance or standard deviation. `None`, which is NULL, for too few values:
    /// none, or fewer than two for those of a sample.
    fn finish(self, aggregate: Aggregate) -> Option<f64> {
        let sample = matches!(aggregate, Aggregate::StddevSamp | Aggregate::VarSamp);
        if self.count < if sample { 2.0 } else { 1.0 } {
            return None;
        }
        let variance = self.squares / if sample { self.count - 1.0 } else { self.count };
        Some(match aggregate {
            Aggregate::Avg => self.sum / self.count,
            Aggregate::StddevSamp | Aggregate::StddevPop => variance.sqrt(),
            _ => variance,
        })
    }
}

impl Drop for Accumulator {
    /// Overwrites the values that the state holds, but for big integers.
    fn drop(&mut self) {
        match &mut self.state {
            State::Exact(exact) => exact.zeroize(),
            State::Total(total) => total.zeroize(),
            State::Moments(moments) => {
                moments.sum.zeroize();
                moments.squares.zeroize();
            }
            State::Span(sum, _) => {
                sum.months.zeroize();
                sum.days.zeroize();
                sum.time.zeroize();
            }
            State::Truth(truth) => truth.zeroize(),
            // These zeroise themselves.
            State::Extreme(..) | State::Text(..) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host can have sums added to themselves as often as it likes.
    #[test]
    fn counts_of_sums_that_are_added_to_themselves_do_not_wrap() {
        let (integer, numeric) = (Value::of_int8(1), Value::Word(1 << 8));
        for (kind, value) in [(Kind::Int8, integer), (Kind::Numeric, numeric)] {
            let new = || Accumulator::new(Aggregate::VarSamp, kind).unwrap();
            let mut sum = new();
            sum.add(value, None).unwrap();
            for _ in 0..70 {
                let mut same = new();
                same.combine(&sum).unwrap();
                sum.combine(&same).unwrap();
            }
            assert!(sum.finish().unwrap().is_some(), "there are values");
        }
    }

    #[test]
    fn aggregates_of_nothing_are_null_and_of_other_kinds_are_none() {
        for aggregate in Aggregate::ALL {
            for kind in Kind::ALL {
                let Some(accumulator) = Accumulator::new(*aggregate, *kind) else {
                    assert!(aggregate.gives(*kind).is_none());
                    continue;
                };
                assert!(accumulator.finish().is_ok_and(|result| result.is_none()));
            }
        }
    }

    #[test]
    fn texts_combined_are_texts_in_order() {
        let mut parts = ["a", "b", "c", "d"].map(|text| {
            let mut part = Accumulator::new(Aggregate::StringAgg, Kind::Text).unwrap();
            part.add(Value::Bytes(text.as_bytes()), Some(Value::Bytes(b", ")))
                .unwrap();
            part
        });
        let (first, rest) = parts.split_first_mut().unwrap();
        rest.iter().for_each(|part| first.combine(part).unwrap());
        let result = first.finish().unwrap().unwrap();
        assert_eq!(result.value().text(), Ok("a, b, c, d"));
        let other = Accumulator::new(Aggregate::Max, Kind::Text).unwrap();
        assert_eq!(first.combine(&other), Err(Fault::NotAnAccumulator));
    }
}
