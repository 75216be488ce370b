//! Times of day without zone, in microseconds since midnight, 24:00:00 included:
//! src/backend/utils/adt/date.c.
//!
//! Must not: print or parse.

use strongroom_columns_ring::Fault;

use crate::datetime::{Civil, date_to_timestamp, is_infinite, is_timestamp};
use crate::interval::{DAY, Interval};
use crate::time_zone::TimeZone;
use crate::value::Value;

/// Whether the number is in the range of PostgreSQL's times.
pub(crate) const fn is_time(time: i64) -> bool {
    0 <= time && time <= DAY
}

/// The time of a value of kind time. `Fault::KindMismatch` if it is none.
pub(crate) fn of(value: Value<'_>) -> Result<i64, Fault> {
    let time = value.int8()?;
    if is_time(time) {
        Ok(time)
    } else {
        Err(Fault::KindMismatch)
    }
}

/// A time and the time part of an interval added, past midnight from the day's beginning again
/// (`time_pl_interval`). Days and months of the interval have no effect.
pub(crate) const fn plus(time: i64, interval: Interval) -> i64 {
    // The sum wraps in PostgreSQL, too.
    time.wrapping_add(interval.time).rem_euclid(DAY)
}

/// The interval from `b` to `a` (`time_mi_time`).
pub(crate) fn minus(a: i64, b: i64) -> Interval {
    to_interval(a.wrapping_sub(b))
}

/// The interval of as many microseconds (`time_interval`).
pub(crate) fn to_interval(time: i64) -> Interval {
    Interval {
        time,
        ..Interval::default()
    }
}

/// The time part of an interval as a time of day (`interval_time`). Days and months have no effect.
///
/// For the least times, a day's length above the least number, PostgreSQL's computation overflows
/// and gives what is no time, such as 28:00:54; here the result is that of all other intervals.
pub(crate) const fn of_interval(interval: Interval) -> i64 {
    interval.time.rem_euclid(DAY)
}

/// The timestamp of a time on a date (`datetime_timestamp`); an infinite date is infinite.
/// `Fault::DateOutOfRangeForTimestamp` if the date is outside the range of timestamps,
/// `Fault::TimestampOutOfRange` if the result is.
pub(crate) fn on_date(date: i32, time: i64) -> Result<i64, Fault> {
    let midnight = date_to_timestamp(date)?;
    if is_infinite(midnight) {
        return Ok(midnight);
    }
    let timestamp = midnight.checked_add(time);
    timestamp
        .filter(|timestamp| is_timestamp(*timestamp))
        .ok_or(Fault::TimestampOutOfRange)
}

/// The time of day that the clocks of `zone` show at a timestamp (`timestamptz_time`), or the time
/// of a timestamp without zone (`timestamp_time`). `Fault::FieldOfInfinity` for an infinite one,
/// whose time is null in PostgreSQL; `Fault::TimestampOutOfRange` for a number that is no
/// timestamp.
pub(crate) fn of_timestamp(timestamp: i64, zone: Option<&TimeZone>) -> Result<i64, Fault> {
    if is_infinite(timestamp) {
        return Err(Fault::FieldOfInfinity);
    }
    let civil = match zone {
        Some(zone) => Civil::of_zoned(timestamp, zone).map(|(civil, _)| civil),
        None => Civil::of(timestamp),
    };
    Ok(civil.ok_or(Fault::TimestampOutOfRange)?.time())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interval::HOUR;

    #[test]
    fn a_day_begins_again_at_midnight() {
        let hours = |hours| to_interval(hours * HOUR);
        assert_eq!(plus(23 * HOUR, hours(2)), HOUR);
        assert_eq!(plus(HOUR, hours(-2)), 23 * HOUR);
        assert_eq!(plus(DAY, hours(0)), 0);
        assert_eq!(of_interval(hours(-25)), 23 * HOUR);
        assert_eq!(minus(HOUR, DAY).time, -23 * HOUR);
    }

    #[test]
    fn the_end_of_a_day_is_a_time_and_what_is_behind_it_none() {
        assert_eq!(of(Value::of_int8(DAY)), Ok(DAY));
        for other in [-1, DAY + 1, i64::MIN] {
            assert_eq!(of(Value::of_int8(other)), Err(Fault::KindMismatch));
        }
    }

    #[test]
    fn infinity_has_no_time() {
        assert_eq!(of_timestamp(i64::MAX, None), Err(Fault::FieldOfInfinity));
        assert_eq!(on_date(i32::MIN, HOUR), Ok(i64::MIN));
        assert_eq!(on_date(1, DAY), Ok(2 * DAY));
    }
}
