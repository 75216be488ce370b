//! Dates, timestamps and times of day from text: ISO forms, `infinity`, `epoch`.
//!
//! Forms that only the server's `DecodeDateTime` accepts (names of months, two-digit years, day
//! before month, abbreviations of time zones, `now`) are refused as unsupported. Must not: guess an
//! order of fields.

use crate::datetime::{Civil, EPOCH, days_in, is_date, is_julian};
use crate::input::{Unreadable, is_space};
use crate::time_of_day::is_time;
use crate::time_zone::TimeZone;

/// The content of a text.
enum Moment {
    /// Infinity, negative when true.
    Infinite(bool),
    At(Civil, Option<Displacement>),
}

/// The time zone or offset that a text names.
enum Displacement {
    /// Seconds ahead of UTC.
    Offset(i32),
    Zone(TimeZone),
}

/// Reads a date as `date_in` does; a time and a zone are read and have no effect. `Unreadable` for
/// other forms than ISO, or a date out of range.
pub(super) fn date(text: &str) -> Result<i32, Unreadable> {
    let civil = match moment(text)? {
        Moment::Infinite(negative) => return Ok(if negative { i32::MIN } else { i32::MAX }),
        Moment::At(civil, _) => civil,
    };
    if !is_julian(civil.year, civil.month) {
        return Err(Unreadable::OutOfRange);
    }
    let date = civil.julian().wrapping_sub(EPOCH);
    if is_date(date) {
        Ok(date)
    } else {
        Err(Unreadable::OutOfRange)
    }
}

/// Reads a timestamp without zone as `timestamp_in` does; a zone is read and has no effect.
/// `Unreadable` for other forms than ISO, or one out of range.
pub(super) fn timestamp(text: &str) -> Result<i64, Unreadable> {
    match moment(text)? {
        Moment::Infinite(negative) => Ok(if negative { i64::MIN } else { i64::MAX }),
        Moment::At(civil, _) => civil.timestamp(0).ok_or(Unreadable::OutOfRange),
    }
}

/// Reads a timestamp as `timestamptz_in` does; without a zone in the text it is one of `session`.
/// `Unreadable` for other forms than ISO, or one out of range.
pub(super) fn timestamptz(text: &str, session: &TimeZone) -> Result<i64, Unreadable> {
    let (civil, place) = match moment(text)? {
        Moment::Infinite(negative) => return Ok(if negative { i64::MIN } else { i64::MAX }),
        Moment::At(civil, place) => (civil, place),
    };
    let timestamp = match place {
        Some(Displacement::Offset(offset)) => civil.timestamp(offset),
        Some(Displacement::Zone(zone)) => civil.timestamp_in(&zone),
        None => civil.timestamp_in(session),
    };
    timestamp.ok_or(Unreadable::OutOfRange)
}

/// Reads a time of day as `time_in` does: `hours:minutes[:seconds[.fraction]]`. An offset is read
/// and has no effect. `Unreadable` for other forms, such as one with a date or `PM`, or a time out
/// of range.
pub(super) fn time(text: &str) -> Result<i64, Unreadable> {
    let text = text.trim_matches(is_space);
    if text.is_empty() {
        return Err(Unreadable::Syntax);
    }
    let mut civil = Civil::default();
    let rest = hours_and_minutes(text, &mut civil)?;
    if let Some(Displacement::Zone(_)) = displacement(rest.trim_start_matches(is_space))? {
        // The server wants a date with the name of a zone.
        return Err(Unreadable::Unsupported);
    }
    let sound = civil.minute <= 59 && civil.second <= 60;
    let time = Some(civil.time()).filter(|time| sound && is_time(*time));
    time.ok_or(Unreadable::OutOfRange)
}

/// Reads a date or timestamp in ISO form, or one of the words `infinity`, `-infinity`, `epoch`.
/// `Unreadable` for anything else, or a field out of range.
fn moment(text: &str) -> Result<Moment, Unreadable> {
    let text = text.trim_matches(is_space);
    if text.eq_ignore_ascii_case("infinity") {
        return Ok(Moment::Infinite(false));
    }
    if text.eq_ignore_ascii_case("-infinity") {
        return Ok(Moment::Infinite(true));
    }
    if text.eq_ignore_ascii_case("epoch") {
        let civil = Civil {
            year: 1970,
            month: 1,
            day: 1,
            ..Civil::default()
        };
        return Ok(Moment::At(civil, Some(Displacement::Offset(0))));
    }
    if text.is_empty() {
        return Err(Unreadable::Syntax);
    }
    let (text, is_bc) = era(text);
    let (mut civil, rest) = calendar(text)?;
    let rest = clock(rest, &mut civil)?;
    let place = match rest {
        None => None,
        Some(rest) => displacement(rest.trim_start_matches(is_space))?,
    };
    check(&mut civil, is_bc)?;
    Ok(Moment::At(civil, place))
}

/// Removes `BC` or `AD` from the end; returns the rest, and whether it was `BC`.
fn era(text: &str) -> (&str, bool) {
    let Some((rest, last)) = text.rsplit_once(is_space) else {
        return (text, false);
    };
    if last.eq_ignore_ascii_case("bc") {
        (rest.trim_end_matches(is_space), true)
    } else if last.eq_ignore_ascii_case("ad") {
        (rest.trim_end_matches(is_space), false)
    } else {
        (text, false)
    }
}

/// Reads the digits at the beginning: returns their number, how many they are, and the rest of the
/// text. `Unreadable::Unsupported` if there is no digit, or if there are more than `most`, which is
/// at most 9 for every caller: so many always fit.
fn number(text: &str, most: usize) -> Result<(i32, usize, &str), Unreadable> {
    let len = text.bytes().take_while(u8::is_ascii_digit).count();
    if len == 0 || len > most {
        return Err(Unreadable::Unsupported);
    }
    let (digits, rest) = text.split_at(len);
    Ok((
        digits.parse().map_err(|_| Unreadable::OutOfRange)?,
        len,
        rest,
    ))
}

/// Reads `year-month-day` with a year of three digits or more, the same with slashes, or eight
/// digits; returns the date, unchecked, and the rest of the text. `Unreadable::Unsupported` for
/// other forms.
fn calendar(text: &str) -> Result<(Civil, &str), Unreadable> {
    let (year, len, rest) = number(text, 9)?;
    let delimiter = rest.bytes().next();
    if len == 8 && !matches!(delimiter, Some(b'-' | b'/' | b'.' | b':')) {
        let civil = Civil {
            year: year / 10_000,
            month: year / 100 % 100,
            day: year % 100,
            ..Civil::default()
        };
        return Ok((civil, rest));
    }
    let Some(delimiter @ (b'-' | b'/')) = delimiter else {
        return Err(Unreadable::Unsupported);
    };
    let delimiter = char::from(delimiter);
    let (month, _, rest) = number(rest.strip_prefix(delimiter).unwrap_or(rest), 2)?;
    let (day, _, rest) = number(
        rest.strip_prefix(delimiter)
            .ok_or(Unreadable::Unsupported)?,
        2,
    )?;
    if len < 3 {
        return Err(Unreadable::Unsupported);
    }
    let civil = Civil {
        year,
        month,
        day,
        ..Civil::default()
    };
    Ok((civil, rest))
}

/// Reads `hours:minutes[:seconds[.fraction]]` after blanks or a T into `civil`; returns the rest of
/// the text, or `None` if `text` is empty. Does not check ranges: 99:99 is accepted.
/// `Unreadable::Unsupported` for other forms.
fn clock<'a>(text: &'a str, civil: &mut Civil) -> Result<Option<&'a str>, Unreadable> {
    if text.is_empty() {
        return Ok(None);
    }
    let begin = match text.strip_prefix(['T', 't']) {
        Some(begin) => begin,
        None => text
            .strip_prefix(is_space)
            .ok_or(Unreadable::Unsupported)?
            .trim_start_matches(is_space),
    };
    hours_and_minutes(begin, civil).map(Some)
}

/// Reads `hours:minutes[:seconds[.fraction]]` into `civil`; returns the rest of the text. Does not
/// check ranges. `Unreadable::Unsupported` for other forms.
fn hours_and_minutes<'a>(text: &'a str, civil: &mut Civil) -> Result<&'a str, Unreadable> {
    let (hour, _, rest) = number(text, 2)?;
    let (minute, _, rest) = number(rest.strip_prefix(':').ok_or(Unreadable::Unsupported)?, 2)?;
    (civil.hour, civil.minute) = (hour, minute);
    let Some(rest) = rest.strip_prefix(':') else {
        return if rest.starts_with('.') {
            Err(Unreadable::Unsupported)
        } else {
            Ok(rest)
        };
    };
    let (second, _, rest) = number(rest, 2)?;
    civil.second = second;
    let Some(fraction) = rest.strip_prefix('.') else {
        return Ok(rest);
    };
    let (fraction, rest) =
        fraction.split_at(fraction.bytes().take_while(u8::is_ascii_digit).count());
    civil.micro = micros(fraction)?;
    Ok(rest)
}

/// The microseconds of the digits after a point, rounded through a double as in
/// `ParseFractionalSecond`; a million if that rounds up to a second. 0 for no digits.
/// `Unreadable::Syntax` for what is no number.
pub(super) fn micros(fraction: &str) -> Result<i32, Unreadable> {
    if fraction.is_empty() {
        return Ok(0);
    }
    let fraction: f64 = ["0.", fraction]
        .concat()
        .parse()
        .map_err(|_| Unreadable::Syntax)?;
    crate::float::to_int4(fraction * 1_000_000.0).map_err(|_| Unreadable::Syntax)
}

/// Reads `Z`, `±hours[:minutes[:seconds]]`, `±hhmm`, or the name of a zone. `None` for an empty
/// text; `Unreadable::Unsupported` for anything else, abbreviations of zones included.
fn displacement(text: &str) -> Result<Option<Displacement>, Unreadable> {
    if text.is_empty() {
        return Ok(None);
    }
    if text.eq_ignore_ascii_case("z") || text.eq_ignore_ascii_case("zulu") {
        return Ok(Some(Displacement::Offset(0)));
    }
    if let Some(rest) = text.strip_prefix(['+', '-']) {
        let ahead = offset(rest)?;
        return Ok(Some(Displacement::Offset(if text.starts_with('-') {
            -ahead
        } else {
            ahead
        })));
    }
    // A short name is an abbreviation for the server, which its own list explains.
    let is_known = text.contains('/')
        || ["UTC", "GMT"]
            .iter()
            .any(|name| text.eq_ignore_ascii_case(name));
    if !is_known {
        return Err(Unreadable::Unsupported);
    }
    Ok(Some(Displacement::Zone(
        TimeZone::by_name(text).map_err(|_| Unreadable::Unsupported)?,
    )))
}

/// Reads an offset without its sign, in seconds (`DecodeTimezone`). `Unreadable::Unsupported` for
/// other forms, and beyond 15:59:59: the server has an error of its own for that.
fn offset(text: &str) -> Result<i32, Unreadable> {
    let (first, len, rest) = number(text, 4)?;
    let (hours, minutes, seconds) = if rest.is_empty() {
        if len > 2 {
            (first / 100, first % 100, 0)
        } else {
            (first, 0, 0)
        }
    } else {
        let (minutes, _, rest) = number(rest.strip_prefix(':').ok_or(Unreadable::Unsupported)?, 2)?;
        if rest.is_empty() {
            (first, minutes, 0)
        } else {
            let (seconds, _, rest) =
                number(rest.strip_prefix(':').ok_or(Unreadable::Unsupported)?, 2)?;
            if !rest.is_empty() {
                return Err(Unreadable::Unsupported);
            }
            (first, minutes, seconds)
        }
    };
    if hours > 15 || minutes > 59 || seconds > 59 {
        return Err(Unreadable::Unsupported);
    }
    Ok(hours * 3600 + minutes * 60 + seconds)
}

/// Checks that all fields are in range (`ValidateDate`, `DecodeTime`): `Unreadable::OutOfRange` if
/// not. Makes the year astronomical if it is before Christ.
fn check(civil: &mut Civil, is_bc: bool) -> Result<(), Unreadable> {
    if civil.year <= 0 {
        return Err(Unreadable::OutOfRange);
    }
    if is_bc {
        civil.year = 1 - civil.year;
    }
    let after = civil.minute > 0 || civil.second > 0 || civil.micro > 0;
    let sound = (1..=12).contains(&civil.month)
        && civil.day >= 1
        && civil.day <= days_in(civil.year, civil.month)
        && civil.minute <= 59
        && civil.second <= 60
        && (civil.hour < 24 || (civil.hour == 24 && !after));
    if sound {
        Ok(())
    } else {
        Err(Unreadable::OutOfRange)
    }
}
