//! The calendar, and arithmetic of dates and timestamps:
//! src/backend/utils/adt/{date,timestamp,datetime}.c.
//!
//! Dates are days, timestamps microseconds, since 2000-01-01; the least and greatest numbers are
//! the infinities. Years are astronomical here: 0 is 1 BC. Must not: print or parse.

use strongroom_columns_ring::Fault;

use crate::interval::{DAY, HOUR, Interval, MINUTE, SECOND};
use crate::time_zone::TimeZone;

/// Julian day of 2000-01-01.
pub(crate) const EPOCH: i32 = 2_451_545;
/// Julian day of 1970-01-01.
pub(crate) const UNIX_EPOCH: i32 = 2_440_588;
/// Seconds from 1970 to 2000.
pub(crate) const UNIX_SECONDS: i64 = 946_684_800;

/// The first timestamp, and the first after the last (`MIN_TIMESTAMP`, `END_TIMESTAMP`).
const TIMESTAMP_MIN: i64 = -211_813_488_000_000_000;
const TIMESTAMP_END: i64 = 9_223_371_331_200_000_000;
/// Julian day of 294277-01-01, and of 5874898-01-01.
const TIMESTAMP_END_DAY: i32 = 109_203_528;
const DATE_END_DAY: i32 = 2_147_483_494;

/// Whether the number is in the range of PostgreSQL's finite timestamps.
pub(crate) const fn is_timestamp(timestamp: i64) -> bool {
    TIMESTAMP_MIN <= timestamp && timestamp < TIMESTAMP_END
}

/// Whether a timestamp is one of the two infinities.
pub(crate) const fn is_infinite(timestamp: i64) -> bool {
    timestamp == i64::MIN || timestamp == i64::MAX
}

/// Whether the number is in the range of PostgreSQL's finite dates.
pub(crate) const fn is_date(date: i32) -> bool {
    -EPOCH <= date && date < DATE_END_DAY - EPOCH
}

/// Whether a date is one of the two infinities.
pub(crate) const fn is_infinite_date(date: i32) -> bool {
    date == i32::MIN || date == i32::MAX
}

/// A date on the calendar and a time of day.
#[derive(Clone, Copy, Default)]
pub(crate) struct Civil {
    pub(crate) year: i32,
    pub(crate) month: i32,
    pub(crate) day: i32,
    pub(crate) hour: i32,
    pub(crate) minute: i32,
    pub(crate) second: i32,
    pub(crate) micro: i32,
}

/// The Julian day of a date (`date2j`). Beyond the last date it wraps to a day before the first, as
/// PostgreSQL's does.
#[expect(
    clippy::cast_possible_truncation,
    reason = "wraps, and then is no date"
)]
pub(crate) const fn julian(year: i32, month: i32, day: i32) -> i32 {
    let (month, year) = if month > 2 {
        (month + 1, year as i64 + 4800)
    } else {
        (month + 13, year as i64 + 4799)
    };
    let century = year / 100;
    let days = year * 365 - 32167 + year / 4 - century + century / 4;
    (days + (7834 * month / 256 + day) as i64) as i32
}

/// Year, month and day of a Julian day (`j2date`).
pub(crate) const fn from_julian(day: i32) -> (i32, i32, i32) {
    let mut julian = day.cast_unsigned().wrapping_add(32044);
    let mut quad = julian / 146_097;
    let extra = (julian - quad * 146_097) * 4 + 3;
    julian += 60 + quad * 3 + extra / 146_097;
    quad = julian / 1461;
    julian -= quad * 1461;
    let mut year = julian * 4 / 1461;
    julian = if year != 0 {
        (julian + 305) % 365
    } else {
        (julian + 306) % 366
    } + 123;
    year += quad * 4;
    quad = julian * 2141 / 65536;
    let day = julian - 7834 * quad / 256;
    let month = (quad + 10) % 12 + 1;
    (
        year.cast_signed() - 4800,
        month.cast_signed(),
        day.cast_signed(),
    )
}

/// Whether a month has Julian days that PostgreSQL can compute (`IS_VALID_JULIAN`).
pub(crate) const fn is_julian(year: i32, month: i32) -> bool {
    (year > -4713 || (year == -4713 && month >= 11))
        && (year < 5_874_898 || (year == 5_874_898 && month < 6))
}

/// The number of days of a month, 1 to 12, in a year.
pub(crate) const fn days_in(year: i32, month: i32) -> i32 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

impl Civil {
    /// The calendar date and time of day of a timestamp without zone. `None` before Julian day 0.
    pub(crate) fn of(timestamp: i64) -> Option<Self> {
        (timestamp >= TIMESTAMP_MIN).then(|| Self::of_any(timestamp))
    }

    /// The calendar date and time of day of a timestamp without zone, in range or not: a local time
    /// can be one day before the first timestamp.
    fn of_any(timestamp: i64) -> Self {
        let (date, time) = (timestamp.div_euclid(DAY), timestamp.rem_euclid(DAY));
        // Days of any 64 bits of microseconds fit 32 bits.
        let (year, month, day) =
            from_julian(i32::try_from(date + i64::from(EPOCH)).unwrap_or(i32::MAX));
        let part = |of: i64, unit: i64| i32::try_from(of / unit).unwrap_or(0);
        Self {
            year,
            month,
            day,
            hour: part(time, HOUR),
            minute: part(time % HOUR, MINUTE),
            second: part(time % MINUTE, SECOND),
            micro: part(time % SECOND, 1),
        }
    }

    /// The date and time that the clocks of `zone` show at a timestamp, and the seconds that they
    /// are ahead of UTC. `None` before Julian day 0.
    pub(crate) fn of_zoned(timestamp: i64, zone: &TimeZone) -> Option<(Self, i32)> {
        if timestamp < TIMESTAMP_MIN {
            return None;
        }
        let offset = zone.offset_at(timestamp.div_euclid(SECOND) + UNIX_SECONDS);
        let local = timestamp.saturating_add(i64::from(offset) * SECOND);
        Some((Self::of_any(local), offset))
    }

    /// The timestamp at which clocks that are `offset` seconds ahead of UTC show this
    /// (`tm2timestamp`). `None` if it is out of range.
    pub(crate) fn timestamp(&self, offset: i32) -> Option<i64> {
        if !is_julian(self.year, self.month) {
            return None;
        }
        let date = i64::from(self.julian()) - i64::from(EPOCH);
        let result = date.checked_mul(DAY)?.checked_add(self.time())?;
        let result = result.checked_sub(i64::from(offset) * SECOND)?;
        is_timestamp(result).then_some(result)
    }

    /// The timestamp at which the clocks of `zone` show this. `None` if it is out of range.
    pub(crate) fn timestamp_in(&self, zone: &TimeZone) -> Option<i64> {
        self.timestamp(self.offset_in(zone))
    }

    /// The seconds that the clocks of `zone` are ahead of UTC when they show this
    /// (`DetermineTimeZoneOffset`); 0 for a date out of range.
    pub(crate) fn offset_in(&self, zone: &TimeZone) -> i32 {
        if !is_julian(self.year, self.month) {
            return 0;
        }
        let days = i64::from(self.julian()) - i64::from(UNIX_EPOCH);
        zone.offset_of_local(days * 86_400 + self.time() / SECOND)
    }

    /// Microseconds since midnight.
    pub(crate) fn time(&self) -> i64 {
        i64::from(self.hour) * HOUR
            + i64::from(self.minute) * MINUTE
            + i64::from(self.second) * SECOND
            + i64::from(self.micro)
    }

    /// The Julian day of the date, whatever the time. Wraps beyond the last date, as [`julian`].
    pub(crate) const fn julian(&self) -> i32 {
        julian(self.year, self.month, self.day)
    }

    /// The same time so many months later; the day becomes the month's last if that is earlier.
    /// `None` on overflow.
    fn plus_months(mut self, months: i32) -> Option<Self> {
        let month = self.month.checked_add(months)?;
        self.year += (month - 1).div_euclid(12);
        self.month = (month - 1).rem_euclid(12) + 1;
        self.day = self.day.min(days_in(self.year, self.month));
        Some(self)
    }

    /// The same time so many days later. `None` before Julian day `least`, or on overflow.
    fn plus_days(mut self, days: i32, least: i32) -> Option<Self> {
        let julian = self
            .julian()
            .checked_add(days)
            .filter(|julian| *julian >= least)?;
        (self.year, self.month, self.day) = from_julian(julian);
        Some(self)
    }
}

/// A timestamp and an interval added (`timestamp_pl_interval`): months, then days, then time. An
/// infinite timestamp stays. `Fault::TimestampOutOfRange` if the result is no timestamp.
pub(crate) fn timestamp_plus(timestamp: i64, interval: Interval) -> Result<i64, Fault> {
    if is_infinite(timestamp) {
        return Ok(timestamp);
    }
    let sum = || {
        let mut timestamp = timestamp;
        if interval.months != 0 {
            timestamp = Civil::of(timestamp)?
                .plus_months(interval.months)?
                .timestamp(0)?;
        }
        if interval.days != 0 {
            timestamp = Civil::of(timestamp)?
                .plus_days(interval.days, 0)?
                .timestamp(0)?;
        }
        timestamp
            .checked_add(interval.time)
            .filter(|sum| is_timestamp(*sum))
    };
    sum().ok_or(Fault::TimestampOutOfRange)
}

/// A timestamp and an interval added (`timestamptz_pl_interval`): months, then days, both by the
/// clocks of `zone`, then time. An infinite timestamp stays. `Fault::TimestampOutOfRange` if the
/// result is no timestamp.
pub(crate) fn timestamptz_plus(
    timestamp: i64,
    interval: Interval,
    zone: &TimeZone,
) -> Result<i64, Fault> {
    if is_infinite(timestamp) {
        return Ok(timestamp);
    }
    let sum = || {
        let mut timestamp = timestamp;
        if interval.months != 0 {
            let (civil, _) = Civil::of_zoned(timestamp, zone)?;
            timestamp = civil.plus_months(interval.months)?.timestamp_in(zone)?;
        }
        if interval.days != 0 {
            let (civil, _) = Civil::of_zoned(timestamp, zone)?;
            timestamp = civil.plus_days(interval.days, -1)?.timestamp_in(zone)?;
        }
        timestamp
            .checked_add(interval.time)
            .filter(|sum| is_timestamp(*sum))
    };
    sum().ok_or(Fault::TimestampOutOfRange)
}

/// The interval from `b` to `a`, in days and time (`timestamp_mi`). `Fault::InfiniteTimestamps` if
/// either is infinite, `Fault::IntervalOutOfRange` if it does not fit in 64 bits of microseconds.
pub(crate) fn timestamp_minus(a: i64, b: i64) -> Result<Interval, Fault> {
    if is_infinite(a) || is_infinite(b) {
        return Err(Fault::InfiniteTimestamps);
    }
    // Some ends of the range are further apart than 64 bits; PostgreSQL 15 lets that wrap.
    let difference = Interval {
        time: a.wrapping_sub(b),
        ..Interval::default()
    };
    difference.justified_hours()
}

/// A date so many days later (`date_pli`), or earlier for negative `days` (`date_mii`). An infinite
/// date stays. `Fault::DateOutOfRange` if the result is no date.
pub(crate) fn date_plus(date: i32, days: i64) -> Result<i32, Fault> {
    if is_infinite_date(date) {
        return Ok(date);
    }
    let sum = i32::try_from(i64::from(date) + days).map_err(|_| Fault::DateOutOfRange)?;
    if is_date(sum) {
        Ok(sum)
    } else {
        Err(Fault::DateOutOfRange)
    }
}

/// The days from `b` to `a` (`date_mi`). `Fault::InfiniteDates` if either is infinite.
pub(crate) fn date_minus(a: i32, b: i32) -> Result<i32, Fault> {
    if is_infinite_date(a) || is_infinite_date(b) {
        return Err(Fault::InfiniteDates);
    }
    Ok(a.wrapping_sub(b))
}

/// The timestamp at which a date begins (`date_timestamp`); infinite stays infinite.
/// `Fault::DateOutOfRangeForTimestamp` if the date is outside the range of timestamps.
pub(crate) fn date_to_timestamp(date: i32) -> Result<i64, Fault> {
    match date {
        i32::MIN => Ok(i64::MIN),
        i32::MAX => Ok(i64::MAX),
        _ if !(-EPOCH..TIMESTAMP_END_DAY - EPOCH).contains(&date) => {
            Err(Fault::DateOutOfRangeForTimestamp)
        }
        _ => Ok(i64::from(date) * DAY),
    }
}

/// The beginning of a date and an interval added (`date_pl_interval`). The errors of
/// [`date_to_timestamp`] and [`timestamp_plus`].
pub(crate) fn date_plus_interval(date: i32, interval: Interval) -> Result<i64, Fault> {
    timestamp_plus(date_to_timestamp(date)?, interval)
}

/// The timestamp at which a date begins by the clocks of `zone` (`date_timestamptz`); infinite
/// stays infinite. `Fault::DateOutOfRangeForTimestamp` if the date is outside the range of
/// timestamps.
pub(crate) fn date_to_timestamptz(date: i32, zone: &TimeZone) -> Result<i64, Fault> {
    let local = date_to_timestamp(date)?;
    if is_infinite(local) {
        return Ok(local);
    }
    let offset = zone.offset_of_local(local / SECOND + UNIX_SECONDS);
    let timestamp = local.checked_sub(i64::from(offset) * SECOND);
    timestamp
        .filter(|timestamp| is_timestamp(*timestamp))
        .ok_or(Fault::DateOutOfRangeForTimestamp)
}

/// The date of a timestamp without zone (`timestamp_date`); infinite stays infinite.
/// `Fault::TimestampOutOfRange` if the argument or the result is outside PostgreSQL's range.
pub(crate) fn timestamp_to_date(timestamp: i64) -> Result<i32, Fault> {
    day_of(timestamp, Civil::of)
}

/// The date that the clocks of `zone` show at a timestamp (`timestamptz_date`); infinite stays
/// infinite. `Fault::TimestampOutOfRange` if the argument or the result is outside PostgreSQL's
/// range.
pub(crate) fn timestamptz_to_date(timestamp: i64, zone: &TimeZone) -> Result<i32, Fault> {
    day_of(timestamp, |timestamp| {
        Some(Civil::of_zoned(timestamp, zone)?.0)
    })
}

/// The date of a timestamp, as `civil` takes it apart; infinite stays infinite.
/// `Fault::TimestampOutOfRange` if `civil` returns `None`.
fn day_of(timestamp: i64, civil: impl Fn(i64) -> Option<Civil>) -> Result<i32, Fault> {
    match timestamp {
        i64::MIN => Ok(i32::MIN),
        i64::MAX => Ok(i32::MAX),
        _ => Ok(civil(timestamp).ok_or(Fault::TimestampOutOfRange)?.julian() - EPOCH),
    }
}

/// The timestamp at which the clocks of `zone` show a timestamp without zone
/// (`timestamp_timestamptz`); infinite stays infinite. `Fault::TimestampOutOfRange` if the argument
/// or the result is outside PostgreSQL's range.
pub(crate) fn timestamp_to_timestamptz(timestamp: i64, zone: &TimeZone) -> Result<i64, Fault> {
    if is_infinite(timestamp) {
        return Ok(timestamp);
    }
    let civil = Civil::of(timestamp).ok_or(Fault::TimestampOutOfRange)?;
    let zoned = timestamp.checked_sub(i64::from(civil.offset_in(zone)) * SECOND);
    zoned
        .filter(|zoned| is_timestamp(*zoned))
        .ok_or(Fault::TimestampOutOfRange)
}

/// The timestamp without zone that the clocks of `zone` show at a timestamp
/// (`timestamptz_timestamp`); infinite stays infinite. `Fault::TimestampOutOfRange` if the argument
/// or the result is outside PostgreSQL's range.
pub(crate) fn timestamptz_to_timestamp(timestamp: i64, zone: &TimeZone) -> Result<i64, Fault> {
    if is_infinite(timestamp) {
        return Ok(timestamp);
    }
    let (civil, _) = Civil::of_zoned(timestamp, zone).ok_or(Fault::TimestampOutOfRange)?;
    civil.timestamp(0).ok_or(Fault::TimestampOutOfRange)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_come_back_over_the_whole_range() {
        let mut day = -1;
        while day < DATE_END_DAY - 2_000_000 {
            let (year, month, of_month) = from_julian(day);
            assert_eq!(julian(year, month, of_month), day);
            assert!((1..=12).contains(&month) && of_month >= 1 && of_month <= days_in(year, month));
            day += 12_347;
        }
        assert_eq!(from_julian(EPOCH), (2000, 1, 1));
        assert_eq!(from_julian(0), (-4713, 11, 24));
    }

    #[test]
    fn months_end_on_their_last_day() {
        let january = Civil {
            year: 2024,
            month: 1,
            day: 31,
            ..Civil::default()
        }
        .timestamp(0)
        .unwrap();
        let month = Interval {
            months: 1,
            ..Interval::default()
        };
        let february = Civil::of(timestamp_plus(january, month).unwrap()).unwrap();
        assert_eq!((february.month, february.day), (2, 29));
        assert_eq!(timestamp_plus(i64::MAX, month), Ok(i64::MAX));
        assert_eq!(
            timestamp_plus(TIMESTAMP_END - 1, month),
            Err(Fault::TimestampOutOfRange)
        );
    }
}
