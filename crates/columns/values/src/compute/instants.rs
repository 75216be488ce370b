//! The functions on dates and timestamps of the list.
//!
//! Must not: compute more than one line itself.

use super::routine::{Args, Routine, put_date, put_interval, put_timestamp};
use crate::datetime;
use crate::field::{self as fields, FieldFunction};
use crate::time_zone::TimeZone;
use strongroom_columns_ring::Fault;

/// The arithmetic function on dates or timestamps with this code. `None` for an unknown code.
pub(super) fn arithmetic(code: u16) -> Option<Routine> {
    let routine: Routine = match code {
        200 => |a, _, out| put_date(datetime::date_plus(a.int4(0)?, i64::from(a.int4(1)?))?, out),
        201 => |a, _, out| {
            put_date(
                datetime::date_plus(a.int4(0)?, -i64::from(a.int4(1)?))?,
                out,
            )
        },
        202 => |a, _, out| put_date(datetime::date_minus(a.int4(0)?, a.int4(1)?)?, out),
        203 => |a, _, out| {
            put_timestamp(
                datetime::date_plus_interval(a.int4(0)?, a.interval(1)?)?,
                out,
            )
        },
        204 => |a, _, out| {
            let earlier = a.interval(1)?.wrapping_negated();
            put_timestamp(datetime::date_plus_interval(a.int4(0)?, earlier)?, out)
        },
        210 => {
            |a, _, out| put_timestamp(datetime::timestamp_plus(a.int8(0)?, a.interval(1)?)?, out)
        }
        211 => |a, _, out| {
            put_timestamp(
                datetime::timestamp_plus(a.int8(0)?, a.interval(1)?.wrapping_negated())?,
                out,
            )
        },
        212 | 222 => {
            |a, _, out| put_interval(datetime::timestamp_minus(a.int8(0)?, a.int8(1)?)?, out)
        }
        220 => |a, settings, out| {
            put_timestamp(
                datetime::timestamptz_plus(a.int8(0)?, a.interval(1)?, &settings.time_zone)?,
                out,
            )
        },
        221 => |a, settings, out| {
            put_timestamp(
                datetime::timestamptz_plus(
                    a.int8(0)?,
                    a.interval(1)?.wrapping_negated(),
                    &settings.time_zone,
                )?,
                out,
            )
        },
        _ => return None,
    };
    Some(routine)
}

/// The function with this code that returns a field of a date or timestamp, or cuts one off below a
/// field. `None` for an unknown code.
pub(super) fn field(code: u16) -> Option<Routine> {
    let routine: Routine = match code {
        205 => |a, _, out| fields::part_of_date(a.field()?, a.value(1)?, out),
        206 => |a, _, out| fields::of_date(a.field()?, a.int4(1)?, out),
        213 => |a, _, out| {
            fields::of_timestamp(a.field()?, a.int8(1)?, None, FieldFunction::Double, out)
        },
        214 => |a, _, out| {
            fields::of_timestamp(a.field()?, a.int8(1)?, None, FieldFunction::Numeric, out)
        },
        215 => |a, _, out| put_timestamp(fields::truncate(a.field()?, a.int8(1)?, None)?, out),
        223 => |a, settings, out| {
            fields::of_timestamp(
                a.field()?,
                a.int8(1)?,
                Some(&settings.time_zone),
                FieldFunction::Double,
                out,
            )
        },
        224 => |a, settings, out| {
            fields::of_timestamp(
                a.field()?,
                a.int8(1)?,
                Some(&settings.time_zone),
                FieldFunction::Numeric,
                out,
            )
        },
        225 => |a, settings, out| {
            put_timestamp(
                fields::truncate(a.field()?, a.int8(1)?, Some(&settings.time_zone))?,
                out,
            )
        },
        _ => return None,
    };
    Some(routine)
}

/// The function with this code that takes the name of a time zone. `None` for an unknown code.
///
/// Infinity is the same in every time zone, so its name is not looked at then, as in PostgreSQL.
pub(super) fn in_zone(code: u16) -> Option<Routine> {
    let routine: Routine = match code {
        226 => |a, _, out| {
            let timestamp = a.int8(1)?;
            let zone = zone_for(a, 2, timestamp)?;
            put_timestamp(fields::truncate(a.field()?, timestamp, Some(&zone))?, out)
        },
        227 => |a, _, out| {
            let timestamp = a.int8(1)?;
            let zone = zone_for(a, 0, timestamp)?;
            put_timestamp(datetime::timestamptz_to_timestamp(timestamp, &zone)?, out)
        },
        228 => |a, _, out| {
            let timestamp = a.int8(1)?;
            let zone = zone_for(a, 0, timestamp)?;
            put_timestamp(datetime::timestamp_to_timestamptz(timestamp, &zone)?, out)
        },
        _ => return None,
    };
    Some(routine)
}

/// The time zone whose name is the argument at this index; UTC, without a look at the name, for an
/// infinite timestamp. `Fault::TimeZoneUnknown` if there is none of the name,
/// `Fault::KindMismatch` if the argument is no text.
fn zone_for(args: Args<'_>, at: usize, timestamp: i64) -> Result<TimeZone, Fault> {
    let name = args.text(at)?;
    if datetime::is_infinite(timestamp) {
        return Ok(TimeZone::utc());
    }
    TimeZone::of_expression(name)
}
