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

    /// The time zone that `AT TIME ZONE` and `date_trunc` mean by this name: one of the IANA
    /// database, or a displacement as POSIX writes it (`+5:30`, `UTC-3`), in which west of
    /// Greenwich is positive (`timestamptz_zone` in src/backend/utils/adt/timestamp.c, `tzparse` in
    /// src/timezone/localtime.c).
    ///
    /// # Errors
    /// [`Fault::TimeZoneUnknown`] for any other name, and for abbreviations: the server has a list
    /// of its own for them, by which `CET` is an hour ahead of UTC in summer, too.
    pub(crate) fn of_expression(name: &str) -> Result<Self, Fault> {
        const ABBREVIATIONS: [&str; 7] = ["CET", "EET", "EST", "HST", "MET", "MST", "WET"];
        let is_abbreviation = |known: &&str| known.eq_ignore_ascii_case(name);
        if ABBREVIATIONS.iter().any(is_abbreviation) {
            return Err(Fault::TimeZoneUnknown);
        }
        Self::by_name(name).or_else(|unknown| {
            let west = posix_displacement(name).ok_or(unknown)?;
            let offset = Offset::from_seconds(-west).map_err(|_| Fault::TimeZoneUnknown)?;
            Ok(Self(jiff::tz::TimeZone::fixed(offset)))
        })
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

/// The seconds west of Greenwich of a time zone that POSIX writes as letters, or a name in angle
/// brackets, either of which may be missing, and `[+-]hours[:minutes[:seconds]]`. `None` for any
/// other text, rules of summer time included.
fn posix_displacement(text: &str) -> Option<i32> {
    let text = match text.strip_prefix('<') {
        Some(rest) => rest.split_once('>')?.1,
        None => text.trim_start_matches(|c: char| c.is_ascii_alphabetic()),
    };
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let mut parts = digits.split(':');
    let hours = number(parts.next()?, 24)?;
    let minutes = parts.next().map_or(Some(0), |part| number(part, 59))?;
    let seconds = parts.next().map_or(Some(0), |part| number(part, 59))?;
    if parts.next().is_some() {
        return None;
    }
    Some(sign * (hours * 3600 + minutes * 60 + seconds))
}

/// The number that the text consists of. `None` if it is more than `greatest`, or no digits.
fn number(text: &str, greatest: i32) -> Option<i32> {
    let is_number = !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    let number = text.parse().ok().filter(|_| is_number)?;
    (number <= greatest).then_some(number)
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
    fn displacements_count_to_the_west() {
        let offset = |name| TimeZone::of_expression(name).map(|zone| zone.offset_at(0));
        assert_eq!(offset("+05:30"), Ok(-19_800));
        assert_eq!(offset("UTC-3"), Ok(10_800));
        assert_eq!(offset("7:00:01"), Ok(-25_201));
        assert_eq!(offset("<+03>-3"), Ok(10_800));
        assert_eq!(offset("Asia/Kolkata"), Ok(19_800));
        for name in [
            "", "+", "cet", "X", "+25", "+1:60", "+1:", "1:1:1:1", "+1 ", "+-1", "EST5EDT4",
        ] {
            assert_eq!(offset(name), Err(Fault::TimeZoneUnknown), "{name}");
        }
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
