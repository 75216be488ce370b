//! `interval`: months, days and microseconds, which do not add up to one another
//! (src/backend/utils/adt/timestamp.c).
//!
//! Must not: know a calendar.

use core::cmp::Ordering;

use strongroom_columns_ring::Fault;

use crate::value::{Out, Value};

/// Microseconds in a day, an hour, a minute, a second.
pub(crate) const DAY: i64 = 86_400_000_000;
pub(crate) const HOUR: i64 = 3_600_000_000;
pub(crate) const MINUTE: i64 = 60_000_000;
pub(crate) const SECOND: i64 = 1_000_000;
/// Days in a month, where one is turned into the other.
pub(crate) const DAYS_PER_MONTH: i32 = 30;

/// An interval.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Interval {
    pub(crate) months: i32,
    pub(crate) days: i32,
    /// Microseconds.
    pub(crate) time: i64,
}

impl Interval {
    /// Reads the store's form, 16 bytes. `Fault::KindMismatch` for anything else.
    pub(crate) fn read(value: Value<'_>) -> Result<Self, Fault> {
        let bytes: [u8; 16] = value.bytes()?.try_into().map_err(|_| Fault::KindMismatch)?;
        let word = u128::from_le_bytes(bytes);
        #[expect(clippy::cast_possible_truncation, reason = "the parts of 128 bits")]
        let (time, days, months) = (word as u64, (word >> 64) as u32, (word >> 96) as u32);
        Ok(Self {
            months: months.cast_signed(),
            days: days.cast_signed(),
            time: time.cast_signed(),
        })
    }

    /// Sets `out` to the store's form: microseconds, days and months, little-endian.
    pub(crate) fn put(self, out: &mut Out) {
        let buf = out.begin(16);
        buf.extend(&self.time.to_le_bytes());
        buf.extend(&self.days.to_le_bytes());
        buf.extend(&self.months.to_le_bytes());
    }

    /// Its length in microseconds with months of 30 days, by which intervals are compared
    /// (`interval_cmp_value`).
    pub(crate) fn span(self) -> i128 {
        let days = i64::from(self.months) * i64::from(DAYS_PER_MONTH) + i64::from(self.days);
        i128::from(days) * i128::from(DAY) + i128::from(self.time)
    }

    /// Orders intervals by [`Self::span`] (`interval_cmp`): different ones can be equal.
    pub(crate) fn compare(self, other: Self) -> Ordering {
        self.span().cmp(&other.span())
    }

    /// The sum, part by part (`interval_pl`). `Fault::IntervalOutOfRange` if a part overflows.
    pub(crate) fn plus(self, other: Self) -> Result<Self, Fault> {
        let sum = || {
            Some(Self {
                months: self.months.checked_add(other.months)?,
                days: self.days.checked_add(other.days)?,
                time: self.time.checked_add(other.time)?,
            })
        };
        sum().ok_or(Fault::IntervalOutOfRange)
    }

    /// The difference, part by part (`interval_mi`). `Fault::IntervalOutOfRange` if a part
    /// overflows.
    pub(crate) fn minus(self, other: Self) -> Result<Self, Fault> {
        let difference = || {
            Some(Self {
                months: self.months.checked_sub(other.months)?,
                days: self.days.checked_sub(other.days)?,
                time: self.time.checked_sub(other.time)?,
            })
        };
        difference().ok_or(Fault::IntervalOutOfRange)
    }

    /// Each part negated (`interval_um`). `Fault::IntervalOutOfRange` for the least number.
    pub(crate) fn negated(self) -> Result<Self, Fault> {
        Self::default().minus(self)
    }

    /// Each part negated, the least number staying as it is, as in `timestamp_mi_interval`.
    pub(crate) const fn wrapping_negated(self) -> Self {
        Self {
            months: self.months.wrapping_neg(),
            days: self.days.wrapping_neg(),
            time: self.time.wrapping_neg(),
        }
    }

    /// The interval multiplied (`interval_mul`). `Fault::IntervalOutOfRange` if a part overflows,
    /// or for NaN.
    pub(crate) fn times(self, factor: f64) -> Result<Self, Fault> {
        self.scaled(|part| part * factor)
            .ok_or(Fault::IntervalOutOfRange)
    }

    /// The interval divided (`interval_div`). `Fault::DivisionByZero` if `divisor` is 0;
    /// `Fault::IntervalOutOfRange` if a part overflows, or for NaN.
    pub(crate) fn over(self, divisor: f64) -> Result<Self, Fault> {
        if divisor == 0.0 {
            return Err(Fault::DivisionByZero);
        }
        self.scaled(|part| part / divisor)
            .ok_or(Fault::IntervalOutOfRange)
    }

    /// Applies `scale` to each part as PostgreSQL does: fractions of months become days, those of
    /// days become time. `None` if a part overflows.
    #[expect(
        clippy::cast_precision_loss,
        reason = "PostgreSQL computes in double precision here"
    )]
    fn scaled(self, scale: impl Fn(f64) -> f64) -> Option<Self> {
        const SECONDS_PER_DAY: f64 = 86_400.0;
        let (months_exact, days_exact) =
            (scale(f64::from(self.months)), scale(f64::from(self.days)));
        let (months, days) = (cut_int4(months_exact)?, cut_int4(days_exact)?);
        let days_behind =
            microseconds_only((months_exact - f64::from(months)) * f64::from(DAYS_PER_MONTH));
        let days_cut = cut(days_behind);
        let behind =
            (days_exact - f64::from(days) + days_behind - f64::from(days_cut)) * SECONDS_PER_DAY;
        let mut seconds = microseconds_only(behind);
        let mut days = days;
        if seconds.abs() >= SECONDS_PER_DAY {
            let whole = cut(seconds / SECONDS_PER_DAY);
            days = days.checked_add(whole)?;
            seconds -= f64::from(whole) * SECONDS_PER_DAY;
        }
        let days = days.checked_add(days_cut)?;
        let time = (scale(self.time as f64) + seconds * SECOND as f64).round_ties_even();
        let time = crate::float::to_int8(time).ok()?;
        Some(Self { months, days, time })
    }

    /// Turns whole days of the time into days, with one sign for both (`interval_justify_hours`).
    /// `Fault::IntervalOutOfRange` if the days overflow.
    pub(crate) fn justified_hours(self) -> Result<Self, Fault> {
        let whole = i32::try_from(self.time / DAY).map_err(|_| Fault::IntervalOutOfRange)?;
        let mut time = self.time % DAY;
        let mut days = self
            .days
            .checked_add(whole)
            .ok_or(Fault::IntervalOutOfRange)?;
        if days > 0 && time < 0 {
            time += DAY;
            days -= 1;
        } else if days < 0 && time > 0 {
            time -= DAY;
            days += 1;
        }
        Ok(Self { days, time, ..self })
    }
}

/// Seconds, rounded to whole microseconds (`TSROUND`).
fn microseconds_only(seconds: f64) -> f64 {
    (seconds * 1_000_000.0).round_ties_even() / 1_000_000.0
}

/// The number without its fraction, which has to fit: a cast of C to `int`.
#[expect(clippy::cast_possible_truncation, reason = "what is wanted")]
const fn cut(number: f64) -> i32 {
    number as i32
}

/// The number without its fraction. `None` if it does not fit an `integer`
/// (`FLOAT8_FITS_IN_INT32`).
fn cut_int4(number: f64) -> Option<i32> {
    (-2_147_483_648.0..2_147_483_648.0)
        .contains(&number)
        .then(|| cut(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cascade_down() {
        let month = Interval {
            months: 1,
            ..Interval::default()
        };
        let half = month.times(0.5).unwrap_or_default();
        assert!((half.months, half.days, half.time) == (0, 15, 0));
        let third = Interval {
            days: 1,
            ..Interval::default()
        }
        .over(3.0)
        .unwrap_or_default();
        assert!((third.months, third.days, third.time) == (0, 0, 8 * HOUR));
        assert!(
            month.over(0.0).is_err() && month.times(f64::NAN).is_err() && month.times(3e9).is_err()
        );
    }

    #[test]
    fn the_least_number_has_no_negative() {
        let least = Interval {
            days: i32::MIN,
            ..Interval::default()
        };
        assert!(least.negated().is_err());
        assert!(least.wrapping_negated() == least);
        assert_eq!(least.compare(Interval::default()), Ordering::Less);
    }
}
