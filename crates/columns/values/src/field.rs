//! `extract`, `date_part` and `date_trunc`: the fields of dates, timestamps and intervals.
//!
//! The result of `extract` is a numeric, that of `date_part` a double; both from
//! src/backend/utils/adt/{date,timestamp}.c. Must not: know a time zone but through the civil time
//! that it is given.

use strongroom_columns_ring::Fault;
use strongroom_columns_ring::function::Field;

use crate::datetime::{Civil, UNIX_SECONDS, from_julian, julian};
use crate::interval::{DAY, Interval, SECOND};
use crate::numeric::arithmetic;
use crate::numeric::put_small;
use crate::time_zone::TimeZone;
use crate::value::{Out, Value};

/// A field's value before it becomes a numeric or a double.
enum FieldValue {
    /// An integer.
    Whole(i64),
    /// Microseconds or milliseconds: the number, how many digits of it are behind the point, the
    /// double.
    Decimal(i128, u32, f64),
    /// The Julian day, and microseconds of the day.
    Julian(i32, i64, f64),
    /// Infinity, negative when true.
    Infinite(bool),
}

/// The SQL function that a [`FieldValue`] is computed for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldFunction {
    /// `extract`
    Numeric,
    /// `date_part`
    Double,
}

/// Sets `out` to a field's value, as double precision or numeric, whichever the function returns.
/// Fails only as numeric arithmetic can, by overflow.
fn put(part: &FieldValue, function: FieldFunction, out: &mut Out) -> Result<(), Fault> {
    if function == FieldFunction::Double {
        #[expect(
            clippy::cast_precision_loss,
            reason = "PostgreSQL casts to double precision here"
        )]
        out.set_float8(match part {
            FieldValue::Whole(number) => *number as f64,
            FieldValue::Decimal(_, _, double) | FieldValue::Julian(_, _, double) => *double,
            FieldValue::Infinite(negative) => {
                if *negative {
                    f64::NEG_INFINITY
                } else {
                    f64::INFINITY
                }
            }
        });
        return Ok(());
    }
    match part {
        FieldValue::Whole(number) => put_small(out, i128::from(*number), 0),
        FieldValue::Decimal(number, scale, _) => put_small(out, *number, *scale),
        FieldValue::Julian(day, time, _) => return put_julian(*day, *time, out),
        FieldValue::Infinite(negative) => return crate::numeric::Num::Inf(*negative).put(out),
    }
    Ok(())
}

/// Sets `out` to a numeric: the Julian day and, as its fraction, `time` microseconds divided by
/// those of a day. Fails only as numeric arithmetic can, by overflow.
fn put_julian(day: i32, time: i64, out: &mut Out) -> Result<(), Fault> {
    let mut operand = [Out::new(), Out::new(), Out::new()];
    let [over, whole, fraction] = &mut operand;
    put_small(over, i128::from(time), 0);
    put_small(whole, i128::from(DAY), 0);
    arithmetic::div(over.value(), whole.value(), fraction)?;
    put_small(whole, i128::from(day), 0);
    arithmetic::add(whole.value(), fraction.value(), out)
}

/// The number of a field of a calendar date, as PostgreSQL counts it. `None` for a field that is
/// not one of a date.
fn of_calendar(field: Field, year: i32, month: i32, day: i32) -> Option<i64> {
    let number = match field {
        Field::Day => day,
        Field::Month => month,
        Field::Quarter => (month - 1) / 3 + 1,
        Field::Week => iso_week(year, month, day).1,
        // There is no year 0, decade 0 is from 1 BC on, and no century or millennium has number 0.
        Field::Year => {
            if year > 0 {
                year
            } else {
                year - 1
            }
        }
        Field::Decade => {
            if year >= 0 {
                year / 10
            } else {
                -((8 - (year - 1)) / 10)
            }
        }
        Field::Century => {
            if year > 0 {
                (year + 99) / 100
            } else {
                -((99 - (year - 1)) / 100)
            }
        }
        Field::Millennium => {
            if year > 0 {
                (year + 999) / 1000
            } else {
                -((999 - (year - 1)) / 1000)
            }
        }
        Field::Isoyear => {
            let year = iso_week(year, month, day).0;
            if year <= 0 { year - 1 } else { year }
        }
        Field::Dow => weekday(julian(year, month, day)),
        Field::Isodow => (weekday(julian(year, month, day)) + 6) % 7 + 1,
        Field::Doy => julian(year, month, day) - julian(year, 1, 1) + 1,
        _ => return None,
    };
    Some(i64::from(number))
}

/// The day of the week of a Julian day, 0 for Sunday (`j2day`).
const fn weekday(julian: i32) -> i32 {
    // In 64 bits: the last day that dates have is near the greatest number.
    #[expect(clippy::cast_possible_truncation, reason = "below seven")]
    let day = (julian as i64 + 1).rem_euclid(7) as i32;
    day
}

/// The Julian day of the Monday of a year's first ISO week.
const fn first_monday(year: i32) -> i32 {
    let fourth = julian(year, 1, 4);
    fourth - weekday(fourth - 1)
}

/// The ISO year and ISO week of a date (`date2isoyear` and `date2isoweek`).
const fn iso_week(year: i32, month: i32, day: i32) -> (i32, i32) {
    let (today, mut year) = (julian(year, month, day), year);
    let mut monday = first_monday(year);
    if today < monday {
        year -= 1;
        monday = first_monday(year);
    }
    let week = (today - monday) / 7 + 1;
    if week >= 52 {
        let next = first_monday(year + 1);
        if today >= next {
            return (year + 1, (today - next) / 7 + 1);
        }
    }
    (year, week)
}

/// A field of the infinite date or time, or of the one that is minus infinity if `negative`: year,
/// decade, century, millennium, Julian day and epoch are infinite like it. `Fault::FieldOfInfinity`
/// for the other fields, which are null in PostgreSQL; a confidential value cannot be null.
fn of_infinite(field: Field, negative: bool) -> Result<FieldValue, Fault> {
    match field {
        Field::Year
        | Field::Decade
        | Field::Century
        | Field::Millennium
        | Field::Julian
        | Field::Isoyear
        | Field::Epoch => Ok(FieldValue::Infinite(negative)),
        _ => Err(Fault::FieldOfInfinity),
    }
}

/// `extract(field from date)`, with `date` in days since 2000-01-01: sets `out` to a numeric.
/// `Fault::FieldUnsupported` for a field of a time, `Fault::FieldOfInfinity` for a field that is
/// null for an infinite date, `Fault::DateOutOfRange` for a number that is no date.
pub(crate) fn of_date(field: Field, date: i32, out: &mut Out) -> Result<(), Fault> {
    if matches!(
        field,
        Field::Microseconds | Field::Milliseconds | Field::Second | Field::Minute | Field::Hour
    ) {
        return Err(Fault::FieldUnsupported);
    }
    if crate::datetime::is_infinite_date(date) {
        return put(&of_infinite(field, date < 0)?, FieldFunction::Numeric, out);
    }
    if !crate::datetime::is_date(date) {
        return Err(Fault::DateOutOfRange);
    }
    let day = date + crate::datetime::EPOCH;
    let number = match field {
        Field::Julian => i64::from(day),
        Field::Epoch => i64::from(date) * 86_400 + UNIX_SECONDS,
        _ => {
            let (year, month, of_month) = from_julian(day);
            of_calendar(field, year, month, of_month).ok_or(Fault::FieldUnsupported)?
        }
    };
    put(&FieldValue::Whole(number), FieldFunction::Numeric, out)
}

/// `extract` or `date_part` of a timestamp, in microseconds since 2000-01-01, as the time zone
/// `zone` shows it, or `None` for a timestamp without one: sets `out` to a numeric or a double.
/// `Fault::FieldUnsupported` for a field that timestamps do not have, `Fault::FieldOfInfinity` when
/// the timestamp is infinite and the field is not infinite then (a month, for example),
/// `Fault::TimestampOutOfRange` for a timestamp outside PostgreSQL's range.
pub(crate) fn of_timestamp(
    field: Field,
    timestamp: i64,
    zone: Option<&TimeZone>,
    function: FieldFunction,
    out: &mut Out,
) -> Result<(), Fault> {
    if crate::datetime::is_infinite(timestamp) {
        return put(&of_infinite(field, timestamp < 0)?, function, out);
    }
    if field == Field::Epoch {
        return put(&epoch(timestamp), function, out);
    }
    let civil = match zone {
        Some(zone) => Civil::of_zoned(timestamp, zone).map(|(civil, _)| civil),
        None => Civil::of(timestamp),
    };
    let civil = civil.ok_or(Fault::TimestampOutOfRange)?;
    let part = match field {
        Field::Minute => FieldValue::Whole(i64::from(civil.minute)),
        Field::Hour => FieldValue::Whole(i64::from(civil.hour)),
        Field::Julian => of_julian(&civil),
        _ => match of_seconds(field, civil.second, civil.micro) {
            Some(part) => part,
            None => FieldValue::Whole(
                of_calendar(field, civil.year, civil.month, civil.day)
                    .ok_or(Fault::FieldUnsupported)?,
            ),
        },
    };
    put(&part, function, out)
}

/// The seconds since 1970 of a timestamp, rounded as PostgreSQL does.
#[expect(
    clippy::cast_precision_loss,
    reason = "PostgreSQL computes in double precision here"
)]
fn epoch(timestamp: i64) -> FieldValue {
    const UNIX: i64 = -UNIX_SECONDS * SECOND;
    let since = i128::from(timestamp) - i128::from(UNIX);
    if timestamp < i64::MAX + UNIX {
        return FieldValue::Decimal(since, 6, (timestamp - UNIX) as f64 / 1_000_000.0);
    }
    // Where the difference may not fit 64 bits, after the year 294246, PostgreSQL subtracts
    // doubles, and divides numerics: the quotient has four digits behind the point, which are then
    // shown as six.
    let rounded = (since + 50) / 100 * 100;
    FieldValue::Decimal(rounded, 6, (timestamp as f64 - UNIX as f64) / 1_000_000.0)
}

/// The Julian day of a date and time, with the time of day as its fraction.
fn of_julian(civil: &Civil) -> FieldValue {
    let seconds = (civil.hour * 60 + civil.minute) * 60 + civil.second;
    let of_day = (f64::from(seconds) + f64::from(civil.micro) / 1_000_000.0) / 86_400.0;
    FieldValue::Julian(
        civil.julian(),
        civil.time(),
        f64::from(civil.julian()) + of_day,
    )
}

/// The seconds, milliseconds or microseconds of a minute, with their fractions. `None` for any
/// other field.
fn of_seconds(field: Field, second: i32, micro: i32) -> Option<FieldValue> {
    let micros = i128::from(second) * i128::from(SECOND) + i128::from(micro);
    let (second, micro) = (f64::from(second), f64::from(micro));
    match field {
        Field::Microseconds => i64::try_from(micros).ok().map(FieldValue::Whole),
        Field::Milliseconds => Some(FieldValue::Decimal(
            micros,
            3,
            second * 1000.0 + micro / 1000.0,
        )),
        Field::Second => Some(FieldValue::Decimal(micros, 6, second + micro / 1_000_000.0)),
        _ => None,
    }
}

/// `extract` or `date_part` of an interval: sets `out` to a numeric or a double.
/// `Fault::FieldUnsupported` for a field that intervals do not have.
pub(crate) fn of_interval(
    field: Field,
    interval: Interval,
    function: FieldFunction,
    out: &mut Out,
) -> Result<(), Fault> {
    let (years, months) = (interval.months / 12, interval.months % 12);
    let part = |unit: i64, modulus: i64| interval.time / unit % modulus;
    let number = match field {
        Field::Epoch => return put_interval_epoch(interval, function, out),
        Field::Microseconds | Field::Milliseconds | Field::Second => {
            let second = i32::try_from(part(SECOND, 60)).unwrap_or(0);
            let micro = i32::try_from(part(1, SECOND)).unwrap_or(0);
            let part = of_seconds(field, second, micro).ok_or(Fault::FieldUnsupported)?;
            return put(&part, function, out);
        }
        Field::Minute => part(crate::interval::MINUTE, 60),
        Field::Hour => interval.time / crate::interval::HOUR,
        Field::Day => i64::from(interval.days),
        Field::Month => i64::from(months),
        Field::Quarter => i64::from(months / 3 + 1),
        Field::Year => i64::from(years),
        Field::Decade => i64::from(years / 10),
        Field::Century => i64::from(years / 100),
        Field::Millennium => i64::from(years / 1000),
        _ => return Err(Fault::FieldUnsupported),
    };
    put(&FieldValue::Whole(number), function, out)
}

/// `extract` or `date_part` of a time of day, in microseconds since midnight (`time_part_common`):
/// sets `out` to a numeric or a double. `Fault::FieldUnsupported` for a field that times do not
/// have.
pub(crate) fn of_time(
    field: Field,
    time: i64,
    function: FieldFunction,
    out: &mut Out,
) -> Result<(), Fault> {
    match field {
        Field::Epoch
        | Field::Microseconds
        | Field::Milliseconds
        | Field::Second
        | Field::Minute
        | Field::Hour => of_interval(field, crate::time_of_day::to_interval(time), function, out),
        _ => Err(Fault::FieldUnsupported),
    }
}

/// Sets `out` to an interval's length in seconds, with years of 365.25 days and months of 30. Never
/// fails.
fn put_interval_epoch(
    interval: Interval,
    function: FieldFunction,
    out: &mut Out,
) -> Result<(), Fault> {
    let (years, months) = (interval.months / 12, interval.months % 12);
    if function == FieldFunction::Numeric {
        let quarter_days =
            1461 * i64::from(years) + 120 * i64::from(months) + 4 * i64::from(interval.days);
        let seconds = i128::from(quarter_days) * 21_600;
        put_small(out, seconds * 1_000_000 + i128::from(interval.time), 6);
        return Ok(());
    }
    #[expect(
        clippy::cast_precision_loss,
        reason = "PostgreSQL computes in double precision here"
    )]
    let mut seconds = interval.time as f64 / 1_000_000.0;
    seconds += (365.25 * 86_400.0) * f64::from(years);
    seconds += (30.0 * 86_400.0) * f64::from(months);
    seconds += 86_400.0 * f64::from(interval.days);
    out.set_float8(seconds);
    Ok(())
}

/// `date_trunc` of a timestamp, in microseconds since 2000-01-01, as the time zone `zone` shows it,
/// or `None` for a timestamp without one. Returns microseconds likewise; an infinite timestamp
/// stays infinite. `Fault::FieldUnknown` for a field that it does not know,
/// `Fault::TimestampOutOfRange` if the result is no timestamp.
pub(crate) fn truncate(
    field: Field,
    timestamp: i64,
    zone: Option<&TimeZone>,
) -> Result<i64, Fault> {
    if crate::datetime::is_infinite(timestamp) {
        return Ok(timestamp);
    }
    let rank = rank(field).ok_or(Fault::FieldUnknown)?;
    let (mut civil, mut offset) = match zone {
        Some(zone) => Civil::of_zoned(timestamp, zone).ok_or(Fault::TimestampOutOfRange)?,
        None => (Civil::of(timestamp).ok_or(Fault::TimestampOutOfRange)?, 0),
    };
    cut(&mut civil, field, rank);
    if let Some(zone) = zone
        && rank >= DAY_RANK
    {
        offset = civil.offset_in(zone);
    }
    civil.timestamp(offset).ok_or(Fault::TimestampOutOfRange)
}

/// `date_trunc` of an interval (`interval_trunc`): the parts below the field become 0.
/// `Fault::FieldUnsupported` for weeks, of which a month has no whole number, `Fault::FieldUnknown`
/// for a field that it does not know.
pub(crate) fn truncate_interval(field: Field, interval: Interval) -> Result<Interval, Fault> {
    let Interval { months, days, time } = interval;
    let whole_months = |unit: i32| (months / unit * unit, 0, 0);
    let whole_time = |unit: i64| (months, days, time / unit * unit);
    let (months, days, time) = match field {
        Field::Microseconds => (months, days, time),
        Field::Milliseconds => whole_time(1000),
        Field::Second => whole_time(SECOND),
        Field::Minute => whole_time(crate::interval::MINUTE),
        Field::Hour => whole_time(crate::interval::HOUR),
        Field::Day => (months, days, 0),
        Field::Month => whole_months(1),
        Field::Quarter => whole_months(3),
        Field::Year => whole_months(12),
        Field::Decade => whole_months(120),
        Field::Century => whole_months(1200),
        Field::Millennium => whole_months(12_000),
        Field::Week => return Err(Fault::FieldUnsupported),
        _ => return Err(Fault::FieldUnknown),
    };
    Ok(Interval { months, days, time })
}

const DAY_RANK: u32 = 5;

/// How coarse a field is: 0 for microseconds, more for longer ones. `None` for one that
/// `date_trunc` does not know.
const fn rank(field: Field) -> Option<u32> {
    Some(match field {
        Field::Microseconds => 0,
        Field::Milliseconds => 1,
        Field::Second => 2,
        Field::Minute => 3,
        Field::Hour => 4,
        Field::Day => DAY_RANK,
        Field::Week => 6,
        Field::Month => 7,
        Field::Quarter => 8,
        Field::Year | Field::Decade | Field::Century | Field::Millennium => 9,
        _ => return None,
    })
}

/// Sets all parts of `civil` below the given field to their first value. `rank` is the field's.
fn cut(civil: &mut Civil, field: Field, rank: u32) {
    if rank == 1 {
        civil.micro = civil.micro / 1000 * 1000;
    }
    if rank >= 2 {
        civil.micro = 0;
    }
    if rank >= 3 {
        civil.second = 0;
    }
    if rank >= 4 {
        civil.minute = 0;
    }
    if rank >= DAY_RANK {
        civil.hour = 0;
    }
    if field == Field::Week {
        (civil.year, civil.month, civil.day) = from_julian(monday_of(civil));
        return;
    }
    if rank >= 7 {
        civil.day = 1;
    }
    if rank >= 8 {
        civil.month = if rank == 8 {
            (civil.month - 1) / 3 * 3 + 1
        } else {
            1
        };
    }
    civil.year = first_year(field, civil.year);
}

/// The Julian day of the Monday of the ISO week of a date, as `date2isoweek` and `isoweek2date`
/// compute it.
const fn monday_of(civil: &Civil) -> i32 {
    let (_, week) = iso_week(civil.year, civil.month, civil.day);
    let mut year = civil.year;
    if week >= 52 && civil.month == 1 {
        year -= 1;
    }
    if week <= 1 && civil.month == 12 {
        year += 1;
    }
    first_monday(year) + (week - 1) * 7
}

/// The first year of the decade, century or millennium of a year; the year itself for any other
/// field.
const fn first_year(field: Field, year: i32) -> i32 {
    let (of, shift) = match field {
        Field::Decade if year > 0 => return year / 10 * 10,
        Field::Decade => return -((8 - (year - 1)) / 10) * 10,
        Field::Century => (100, 99),
        Field::Millennium => (1000, 999),
        _ => return year,
    };
    // From a millennium's first year PostgreSQL goes on to its century's, which is the same year.
    if year > 0 {
        (year + shift) / of * of - shift
    } else {
        -((shift - (year - 1)) / of) * of + 1
    }
}

/// `date_part` of a date: sets `out` to a double, the field of the timestamp at which the date
/// begins. `Fault::FieldUnsupported` for a field that dates do not have, `Fault::FieldOfInfinity`
/// for one that is null for an infinite date, `Fault::DateOutOfRangeForTimestamp` for a date later
/// than any timestamp; `Fault::KindMismatch` for a value that is no date.
pub(crate) fn part_of_date(field: Field, date: Value<'_>, out: &mut Out) -> Result<(), Fault> {
    let timestamp = crate::datetime::date_to_timestamp(date.int4()?)?;
    of_timestamp(field, timestamp, None, FieldFunction::Double, out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weeks_at_the_turn_of_the_year() {
        assert_eq!(iso_week(2021, 1, 3), (2020, 53));
        assert_eq!(iso_week(2021, 1, 4), (2021, 1));
        assert_eq!(iso_week(2018, 12, 31), (2019, 1));
        assert_eq!(weekday(julian(2000, 1, 1)), 6);
    }

    #[test]
    fn the_field_of_infinity_that_is_null_is_a_fault() {
        let mut out = Out::new();
        assert_eq!(
            of_timestamp(Field::Day, i64::MAX, None, FieldFunction::Double, &mut out),
            Err(Fault::FieldOfInfinity)
        );
        assert!(of_timestamp(Field::Year, i64::MIN, None, FieldFunction::Double, &mut out).is_ok());
        assert!(
            out.value()
                .float8()
                .is_ok_and(|year| year == f64::NEG_INFINITY)
        );
    }
}
