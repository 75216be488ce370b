//! The functions on times of day of the list.
//!
//! Must not: compute more than one line itself.

use super::routine::{Args, Routine, put_interval, put_timestamp};
use crate::field::{self as fields, FieldFunction};
use crate::time_of_day;
use crate::value::{Out, Settings};
use strongroom_columns_ring::Fault;

/// Sets `out` to the result, microseconds since midnight. Never fails: a `Result` as the others.
fn put_time(result: i64, out: &mut Out) -> Result<(), Fault> {
    out.set_int8(result);
    Ok(())
}

/// The time and the interval at these indexes, added. `Fault::KindMismatch` if they are none.
fn sum(a: Args<'_>, time: usize, interval: usize, out: &mut Out) -> Result<(), Fault> {
    put_time(time_of_day::plus(a.time(time)?, a.interval(interval)?), out)
}

/// The function on times of day with this code. `None` for an unknown code.
pub(super) fn routine(code: u16) -> Option<Routine> {
    let routine: Routine = match code {
        242 => |a, _, out| sum(a, 0, 1, out),
        243 => |a, _, out| {
            let earlier = a.interval(1)?.wrapping_negated();
            put_time(time_of_day::plus(a.time(0)?, earlier), out)
        },
        244 => |a, _, out| sum(a, 1, 0, out),
        245 => |a, _, out| put_interval(time_of_day::minus(a.time(0)?, a.time(1)?), out),
        246 => |a, _, out| put_timestamp(time_of_day::on_date(a.int4(0)?, a.time(1)?)?, out),
        247 => |a, _, out| put_timestamp(time_of_day::on_date(a.int4(1)?, a.time(0)?)?, out),
        248 => |a, _, out| fields::of_time(a.field()?, a.time(1)?, FieldFunction::Double, out),
        249 => |a, _, out| fields::of_time(a.field()?, a.time(1)?, FieldFunction::Numeric, out),
        250 => {
            |a, _, out| put_interval(fields::truncate_interval(a.field()?, a.interval(1)?)?, out)
        }
        _ => return None,
    };
    Some(routine)
}

/// The cast from or to a time of day with this code. `None` for an unknown code.
pub(super) fn cast(code: u16) -> Option<Routine> {
    let routine: Routine = match code {
        321 => |a, _, out| put_time(time_of_day::of_timestamp(a.int8(0)?, None)?, out),
        322 => |a, settings: &Settings, out| {
            let zone = Some(&settings.time_zone);
            put_time(time_of_day::of_timestamp(a.int8(0)?, zone)?, out)
        },
        323 => |a, _, out| put_time(time_of_day::of_interval(a.interval(0)?), out),
        324 => |a, _, out| put_interval(time_of_day::to_interval(a.time(0)?), out),
        _ => return None,
    };
    Some(routine)
}
