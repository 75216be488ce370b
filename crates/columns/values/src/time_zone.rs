//! A time zone: what its clocks show, by the rules of PostgreSQL's src/timezone and
//! `DetermineTimeZoneOffset`.
//!
//! The rules come from the time zone database that is compiled in, not from the machine. Invariant:
//! beyond year 9999 the rules repeat every 400 years, as in PostgreSQL. Must not: read files or the
//! environment.

use jiff::Timestamp;
use jiff::tz::{AmbiguousOffset, Offset, TimeZoneDatabase};
use strongroom_columns_ring::Fault;

/// Seconds in 400 Gregorian years.
const CYCLE: i64 = 146_097 * 86_400;
/// Seconds since 1970 that are later than this are folded back by whole cycles: in the year 9900,
/// before the calendar of `jiff` ends.
const FOLD: i64 = 250_000_000_000;

/// A time zone.
#[derive(Clone)]
pub struct TimeZone(jiff::tz::TimeZone);

impl TimeZone {
    /// UTC.
    #[must_use]
    pub const fn utc() -> Self {
        Self(jiff::tz::TimeZone::UTC)
    }

    /// The time zone of this name in the IANA database, upper or lower case; `UTC`, `GMT` and so on
    /// are among them.
    ///
    /// # Errors
    /// [`Fault::TimeZoneUnknown`] for any other name: abbreviations and POSIX rules are not
    /// understood.
    pub fn by_name(name: &str) -> Result<Self, Fault> {
        let zone = TimeZoneDatabase::bundled()
            .get(name)
            .map_err(|_| Fault::TimeZoneUnknown)?;
        Ok(Self(zone))
    }

    /// The seconds that the zone's clocks are ahead of UTC at `moment`, in seconds since 1970 UTC;
    /// 0 if that is before the calendar begins.
    pub(crate) fn offset_at(&self, moment: i64) -> i32 {
        Timestamp::from_second(fold_cycles(moment))
            .map_or(0, |moment| self.0.to_offset(moment).seconds())
    }

    /// The seconds that the zone's clocks are ahead of UTC when they show `local` (as if it were
    /// UTC, in seconds since 1970): for a time that is skipped the offset before, for a time that
    /// comes twice the offset after.
    pub(crate) fn offset_of_local(&self, local: i64) -> i32 {
        let Ok(local) = Timestamp::from_second(fold_cycles(local)) else {
            return 0;
        };
        let shown = Offset::UTC.to_datetime(local);
        let offset = match self.0.to_ambiguous_timestamp(shown).offset() {
            AmbiguousOffset::Unambiguous { offset } => offset,
            AmbiguousOffset::Gap { before, .. } => before,
            AmbiguousOffset::Fold { after, .. } => after,
        };
        offset.seconds()
    }
}

/// Moves a far time back by whole cycles of 400 years, after which the calendar repeats.
fn fold_cycles(seconds: i64) -> i64 {
    if seconds <= FOLD {
        return seconds;
    }
    seconds - ((seconds - FOLD) / CYCLE + 1) * CYCLE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_and_repeated_hours() {
        let zone = TimeZone::by_name("america/new_york").unwrap_or(TimeZone::utc());
        // 2021-03-14 02:30 does not exist, 2021-11-07 01:30 comes twice.
        assert_eq!(zone.offset_of_local(1_615_689_000), -18_000);
        assert_eq!(zone.offset_of_local(1_636_248_600), -18_000);
        // The summer of 2421 and of 12421.
        assert_eq!(zone.offset_at(14_248_224_000), -14_400);
        assert_eq!(zone.offset_at(14_248_224_000 + 25 * CYCLE), -14_400);
    }

    #[test]
    fn other_names_are_refused() {
        for name in ["", "Nowhere/Town", "EST5EDT4", "+02", "UTC\0"] {
            assert!(
                matches!(TimeZone::by_name(name), Err(Fault::TimeZoneUnknown)),
                "{name}"
            );
        }
    }
}
