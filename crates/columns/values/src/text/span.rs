//! Intervals from text: `DecodeInterval` and the designators of `DecodeISO8601Interval` in
//! src/backend/utils/adt/datetime.c.
//!
//! Numbers with units in any order, `hours:minutes:seconds`, `years-months`, `ago`;
//! `P1Y2M3DT4H5M6S`. Must not: read a field twice.

use strongroom_columns_ring::function::Field;

use crate::input::{Unreadable, is_space};
use crate::interval::{DAY, DAYS_PER_MONTH, HOUR, Interval, MINUTE, SECOND};

/// `MAXDATEFIELDS`, and the size of the buffer that the server copies the fields to.
const FIELDS_MAX: usize = 25;
const TEXT_MAX: usize = 256;

/// A field of the text, by how it begins.
enum Token<'a> {
    /// Digits, a colon, digits.
    Time(&'a str),
    /// A number, or numbers with a delimiter; with a sign or without.
    Number(&'a str),
    /// A word.
    Word(String),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    Microsecond,
    Millisecond,
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Quarter,
    Year,
    Decade,
    Century,
    Millennium,
}

/// The words of `deltatktbl`, cut off where the server cuts them.
const UNITS: &[(&str, Unit)] = &[
    ("c", Unit::Century),
    ("cent", Unit::Century),
    ("centuries", Unit::Century),
    ("century", Unit::Century),
    ("d", Unit::Day),
    ("day", Unit::Day),
    ("days", Unit::Day),
    ("dec", Unit::Decade),
    ("decade", Unit::Decade),
    ("decades", Unit::Decade),
    ("decs", Unit::Decade),
    ("h", Unit::Hour),
    ("hour", Unit::Hour),
    ("hours", Unit::Hour),
    ("hr", Unit::Hour),
    ("hrs", Unit::Hour),
    ("m", Unit::Minute),
    ("microsecon", Unit::Microsecond),
    ("mil", Unit::Millennium),
    ("millennia", Unit::Millennium),
    ("millennium", Unit::Millennium),
    ("millisecon", Unit::Millisecond),
    ("mils", Unit::Millennium),
    ("min", Unit::Minute),
    ("mins", Unit::Minute),
    ("minute", Unit::Minute),
    ("minutes", Unit::Minute),
    ("mon", Unit::Month),
    ("mons", Unit::Month),
    ("month", Unit::Month),
    ("months", Unit::Month),
    ("ms", Unit::Millisecond),
    ("msec", Unit::Millisecond),
    ("msecond", Unit::Millisecond),
    ("mseconds", Unit::Millisecond),
    ("msecs", Unit::Millisecond),
    ("qtr", Unit::Quarter),
    ("quarter", Unit::Quarter),
    ("s", Unit::Second),
    ("sec", Unit::Second),
    ("second", Unit::Second),
    ("seconds", Unit::Second),
    ("secs", Unit::Second),
    ("us", Unit::Microsecond),
    ("usec", Unit::Microsecond),
    ("usecond", Unit::Microsecond),
    ("useconds", Unit::Microsecond),
    ("usecs", Unit::Microsecond),
    ("w", Unit::Week),
    ("week", Unit::Week),
    ("weeks", Unit::Week),
    ("y", Unit::Year),
    ("year", Unit::Year),
    ("years", Unit::Year),
    ("yr", Unit::Year),
    ("yrs", Unit::Year),
];

/// `TOKMAXLEN`
const WORD_MAX: usize = 10;

/// The unit with this name or abbreviation, in lower case. `None` for an unknown one. Only the
/// first 10 letters count, as in PostgreSQL.
fn unit(word: &str) -> Option<Unit> {
    let word = word.get(..WORD_MAX).unwrap_or(word);
    UNITS
        .iter()
        .find(|(name, _)| *name == word)
        .map(|(_, unit)| *unit)
}

/// The sum of the fields (`pg_itm_in`).
#[derive(Default)]
struct Sum {
    years: i32,
    months: i32,
    days: i32,
    micros: i64,
}

/// Reads an interval with a field as type modifier, as in `interval '90' day`: a last number
/// without a unit is of it, and what is finer is cut off (`AdjustIntervalForTypmod`).
/// `Unreadable::Unsupported` for a field that is not year, month, day, hour, minute or second;
/// other kinds for a text that the server refuses.
pub(super) fn interval_of(text: &str, field: Field) -> Result<Interval, Unreadable> {
    let (unit, finest) = match field {
        Field::Year => (Unit::Year, 0),
        Field::Month => (Unit::Month, 0),
        Field::Day => (Unit::Day, 0),
        Field::Hour => (Unit::Hour, HOUR),
        Field::Minute => (Unit::Minute, MINUTE),
        Field::Second => (Unit::Second, 1),
        _ => return Err(Unreadable::Unsupported),
    };
    let mut interval = read(text, unit)?;
    if unit == Unit::Year {
        interval.months = interval.months / 12 * 12;
    }
    if matches!(unit, Unit::Year | Unit::Month) {
        interval.days = 0;
    }
    interval.time = if finest == 0 {
        0
    } else {
        interval.time / finest * finest
    };
    Ok(interval)
}

/// Reads an interval as `interval_in` does; a last number without a unit is seconds. `Unreadable`
/// for what the server refuses, or a form that this code does not know.
pub(super) fn interval(text: &str) -> Result<Interval, Unreadable> {
    read(text, Unit::Second)
}

/// Reads an interval. `last` is the unit of a last number without one. `Unreadable` for what the
/// server refuses, a form that this code does not know, or 256 bytes and more.
fn read(text: &str, last: Unit) -> Result<Interval, Unreadable> {
    if text.len() >= TEXT_MAX {
        return Err(Unreadable::Unsupported);
    }
    let sum = match designated(text) {
        Some(sum) => sum?,
        None => decode(&tokens(text)?, last)?,
    };
    let months = i64::from(sum.years) * 12 + i64::from(sum.months);
    Ok(Interval {
        months: i32::try_from(months).map_err(|_| Unreadable::OutOfRange)?,
        days: sum.days,
        time: sum.micros,
    })
}

/// Splits the text of an interval into its fields (`ParseDateTime`). `Unreadable::Unsupported` for
/// signs that this code does not know, `Unreadable::Syntax` for more than 25 fields.
fn tokens(text: &str) -> Result<Vec<Token<'_>>, Unreadable> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start_matches(|c| is_space(c) || c == '@');
    while let Some(first) = rest.bytes().next() {
        let len = match first {
            b'0'..=b'9' | b'.' | b'+' | b'-' => {
                rest.bytes()
                    .skip(1)
                    .take_while(|byte| byte.is_ascii_digit() || b":.-".contains(byte))
                    .count()
                    + 1
            }
            b'a'..=b'z' | b'A'..=b'Z' => rest.bytes().take_while(u8::is_ascii_alphabetic).count(),
            // Other signs separate fields for the server; few would write them.
            _ => return Err(Unreadable::Unsupported),
        };
        let (field, behind) = rest.split_at(len);
        tokens.push(if first.is_ascii_alphabetic() {
            if behind.starts_with(['-', '/', '.', '+', '_', ':']) {
                return Err(Unreadable::Unsupported);
            }
            Token::Word(field.to_ascii_lowercase())
        } else if !field.bytes().any(|byte| byte.is_ascii_digit()) {
            return Err(Unreadable::Unsupported);
        } else if field.contains(':') {
            Token::Time(field)
        } else {
            Token::Number(field)
        });
        if tokens.len() > FIELDS_MAX {
            return Err(Unreadable::Syntax);
        }
        rest = behind.trim_start_matches(is_space);
    }
    Ok(tokens)
}

/// Adds up the fields of an interval, from the last to the first, because units follow their
/// numbers (`DecodeInterval`). `Unreadable::Syntax` for an unknown or repeated unit, or no field;
/// other kinds for a field that is out of range or unknown.
fn decode(tokens: &[Token<'_>], last: Unit) -> Result<Sum, Unreadable> {
    let mut sum = Sum::default();
    let (mut seen, mut ago) = (0_u32, false);
    // Without a unit the last number is of the literal's; in front of a time it is days.
    let mut current = Some(last);
    for token in tokens.iter().rev() {
        let mask = match token {
            Token::Word(word) if word == "ago" => {
                ago = true;
                current = None;
                0
            }
            Token::Word(word) => {
                current = Some(unit(word).ok_or(Unreadable::Syntax)?);
                0
            }
            Token::Time(field) => {
                time(field, &mut sum)?;
                current = Some(Unit::Day);
                HOURS | MINUTES | ALL_SECONDS
            }
            Token::Number(field) => {
                let unit = current.ok_or(Unreadable::Unsupported)?;
                let (mask, unit) = number(field, unit, &mut sum)?;
                current = Some(unit);
                mask
            }
        };
        if seen & mask != 0 {
            return Err(Unreadable::Syntax);
        }
        seen |= mask;
    }
    if seen == 0 {
        return Err(Unreadable::Syntax);
    }
    if ago {
        sum.negated().ok_or(Unreadable::FieldOutOfRange)
    } else {
        Ok(sum)
    }
}

/// Bits of fields that must not come twice.
const HOURS: u32 = 1;
const MINUTES: u32 = 2;
const SECONDS: u32 = 4;
const ALL_SECONDS: u32 = SECONDS | 8 | 16;

/// The bits of a unit, by which a second value for it is found; with a fraction, seconds include
/// milliseconds and microseconds.
const fn mask(unit: Unit, has_fraction: bool) -> u32 {
    match unit {
        Unit::Hour => HOURS,
        Unit::Minute => MINUTES,
        Unit::Second if has_fraction => ALL_SECONDS,
        Unit::Second => SECONDS,
        Unit::Millisecond => 8,
        Unit::Microsecond => 16,
        Unit::Day => 32,
        Unit::Week => 64,
        Unit::Month => 128,
        Unit::Year => 256,
        Unit::Decade => 512,
        Unit::Century => 1024,
        Unit::Millennium => 2048,
        Unit::Quarter => 4096,
    }
}

/// Adds a number of `unit`, or `years-months`, to `sum`. Returns its bits ([`mask`]) and the unit
/// of a number in front of it. `Unreadable::FieldOutOfRange` if it does not fit, other kinds for
/// other forms.
fn number(field: &str, unit: Unit, sum: &mut Sum) -> Result<(u32, Unit), Unreadable> {
    let negative = field.starts_with('-');
    let digits = field.trim_start_matches(['+', '-']);
    let (whole, rest) = digits.split_at(digits.bytes().take_while(u8::is_ascii_digit).count());
    // A field that begins with its point has no whole part at all.
    let whole: i64 = if whole.is_empty() {
        0
    } else {
        whole.parse().map_err(|_| Unreadable::FieldOutOfRange)?
    };
    let whole = if negative { -whole } else { whole };
    if let Some(months) = rest.strip_prefix('-') {
        let count = months.parse::<u8>().map_err(|_| Unreadable::Unsupported)?;
        if count >= 12 {
            return Err(Unreadable::FieldOutOfRange);
        }
        let count = if negative {
            -i64::from(count)
        } else {
            i64::from(count)
        };
        let all = whole
            .checked_mul(12)
            .and_then(|months| months.checked_add(count));
        let done = all.and_then(|all| sum.add(all, 0.0, Unit::Month));
        done.ok_or(Unreadable::FieldOutOfRange)?;
        return Ok((mask(Unit::Month, false), Unit::Month));
    }
    let fraction: f64 = match rest.strip_prefix('.') {
        None if rest.is_empty() => 0.0,
        Some("") => 0.0,
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => ["0.", digits]
            .concat()
            .parse()
            .map_err(|_| Unreadable::Syntax)?,
        _ => return Err(Unreadable::Unsupported),
    };
    let signed = if negative { -fraction } else { fraction };
    if unit == Unit::Quarter {
        return Err(Unreadable::Syntax);
    }
    sum.add(whole, signed, unit)
        .ok_or(Unreadable::FieldOutOfRange)?;
    Ok((
        mask(unit, fraction != 0.0),
        if unit == Unit::Hour { Unit::Day } else { unit },
    ))
}

/// Reads `hours:minutes[:seconds[.fraction]]`, and sets the microseconds of `sum` to it, whatever
/// they were (`DecodeTimeForInterval`). `Unreadable` for other forms, or a field out of range.
fn time(field: &str, sum: &mut Sum) -> Result<(), Unreadable> {
    let unsigned = field.strip_prefix(['+', '-']).unwrap_or(field);
    // A text that is not a time is tried as a number when it has a sign, and fails.
    let refused = if unsigned.len() < field.len() {
        Unreadable::Syntax
    } else {
        Unreadable::FieldOutOfRange
    };
    let mut parts = unsigned.split(':');
    let (hours, minutes) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
    let seconds = parts.next();
    if parts.next().is_some() || minutes.is_empty() || seconds.is_some_and(str::is_empty) {
        return Err(Unreadable::Unsupported);
    }
    let seconds = seconds.unwrap_or("0");
    let (seconds, fraction) = seconds.split_once('.').unwrap_or((seconds, ""));
    let whole = |text: &str, range: Unreadable| -> Result<i64, Unreadable> {
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(Unreadable::Unsupported);
        }
        text.parse().map_err(|_| range)
    };
    let hours = whole(hours, Unreadable::FieldOutOfRange)?;
    let (minutes, seconds) = (whole(minutes, refused)?, whole(seconds, refused)?);
    if minutes > 59 || seconds > 60 {
        return Err(refused);
    }
    let micros = i64::from(super::moment::micros(fraction)?);
    let time = hours.checked_mul(HOUR).and_then(|time| {
        time.checked_add(minutes * MINUTE)?
            .checked_add(seconds * SECOND)?
            .checked_add(micros)
    });
    let time = time.ok_or(refused)?;
    sum.micros = if field.starts_with('-') { -time } else { time };
    Ok(())
}

impl Sum {
    /// Adds a number and its fraction (of the same sign, less than one) of a unit. `None` if the
    /// sum does not fit, or the unit is a quarter, which the server does not read either.
    fn add(&mut self, whole: i64, fraction: f64, unit: Unit) -> Option<()> {
        match unit {
            Unit::Microsecond => self.add_time(whole, fraction, 1),
            Unit::Millisecond => self.add_time(whole, fraction, 1000),
            Unit::Second => self.add_time(whole, fraction, SECOND),
            Unit::Minute => self.add_time(whole, fraction, MINUTE),
            Unit::Hour => self.add_time(whole, fraction, HOUR),
            Unit::Day => {
                self.add_days(whole, 1)?;
                self.add_micros(fraction, DAY)
            }
            Unit::Week => {
                self.add_days(whole, 7)?;
                self.add_fraction_of_days(fraction, 7)
            }
            Unit::Month => {
                self.months = self.months.checked_add(i32::try_from(whole).ok()?)?;
                self.add_fraction_of_days(fraction, DAYS_PER_MONTH)
            }
            Unit::Quarter => None,
            Unit::Year => self.add_years(whole, fraction, 1),
            Unit::Decade => self.add_years(whole, fraction, 10),
            Unit::Century => self.add_years(whole, fraction, 100),
            Unit::Millennium => self.add_years(whole, fraction, 1000),
        }
    }

    /// Adds a number and its fraction of a unit that lasts `scale` microseconds
    /// (`AdjustMicroseconds`). `None` on overflow.
    fn add_time(&mut self, whole: i64, fraction: f64, scale: i64) -> Option<()> {
        self.micros = self.micros.checked_add(whole.checked_mul(scale)?)?;
        self.add_micros(fraction, scale)
    }

    /// Adds `fraction` of a unit that lasts `scale` microseconds, rounded to a whole microsecond, a
    /// half towards zero. `None` on overflow.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "a fraction of at most a day"
    )]
    fn add_micros(&mut self, fraction: f64, scale: i64) -> Option<()> {
        let exact = fraction * scale as f64;
        let whole = exact as i64;
        let behind = exact - whole as f64;
        let rounded = if behind > 0.5 {
            whole + 1
        } else if behind < -0.5 {
            whole - 1
        } else {
            whole
        };
        self.micros = self.micros.checked_add(rounded)?;
        Some(())
    }

    /// Adds a number of units that last `scale` days (`AdjustDays`). `None` on overflow.
    fn add_days(&mut self, whole: i64, scale: i32) -> Option<()> {
        self.days = self
            .days
            .checked_add(i32::try_from(whole).ok()?.checked_mul(scale)?)?;
        Some(())
    }

    /// Adds a fraction of a unit that lasts `scale` days: whole days, and the rest as microseconds
    /// (`AdjustFractDays`). `None` on overflow.
    #[expect(clippy::cast_possible_truncation, reason = "a fraction of at most 30")]
    fn add_fraction_of_days(&mut self, fraction: f64, scale: i32) -> Option<()> {
        let exact = fraction * f64::from(scale);
        let whole = exact as i32;
        self.days = self.days.checked_add(whole)?;
        self.add_micros(exact - f64::from(whole), DAY)
    }

    /// Adds a number of units that last `scale` years; the fraction becomes whole months, rounded
    /// half to even. `None` on overflow.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a fraction of at most 12000 months"
    )]
    fn add_years(&mut self, whole: i64, fraction: f64, scale: i32) -> Option<()> {
        self.years = self
            .years
            .checked_add(i32::try_from(whole).ok()?.checked_mul(scale)?)?;
        let months = (fraction * f64::from(scale) * 12.0).round_ties_even() as i32;
        self.months = self.months.checked_add(months)?;
        Some(())
    }

    /// Returns the sum with each part negated. `None` on overflow.
    fn negated(self) -> Option<Self> {
        Some(Self {
            years: self.years.checked_neg()?,
            months: self.months.checked_neg()?,
            days: self.days.checked_neg()?,
            micros: self.micros.checked_neg()?,
        })
    }
}

/// Reads an interval like `P1Y2M3DT4H5M6.7S`. `None` if the text does not begin like one; the
/// alternative formats of ISO 8601 are `Unreadable::Unsupported`.
fn designated(text: &str) -> Option<Result<Sum, Unreadable>> {
    let mut rest = text.strip_prefix('P')?;
    if !rest.starts_with(|c: char| c.is_ascii_digit() || "T-.".contains(c)) {
        return None;
    }
    let mut sum = Sum::default();
    let mut in_date = true;
    while !rest.is_empty() {
        if let Some(behind) = rest.strip_prefix('T') {
            in_date = false;
            rest = behind;
            continue;
        }
        let len = rest
            .bytes()
            .take_while(|byte| byte.is_ascii_digit() || b"-.".contains(byte))
            .count();
        let (number, behind) = rest.split_at(len);
        let Some(designator) = behind.chars().next().filter(|_| len > 0) else {
            return Some(Err(Unreadable::Unsupported));
        };
        let unit = match (in_date, designator) {
            (true, 'Y') => Unit::Year,
            (true, 'M') => Unit::Month,
            (true, 'W') => Unit::Week,
            (true, 'D') => Unit::Day,
            (false, 'H') => Unit::Hour,
            (false, 'M') => Unit::Minute,
            (false, 'S') => Unit::Second,
            _ => return Some(Err(Unreadable::Unsupported)),
        };
        if let Err(why) = add_designated(number, unit, &mut sum) {
            return Some(Err(why));
        }
        rest = &behind[1..];
    }
    Some(Ok(sum))
}

/// Reads a number through a double (`ParseISO8601Number`), and adds it, of this unit, to `sum`.
/// `Unreadable::Unsupported` for what is no number, `Unreadable::FieldOutOfRange` if it does not
/// fit.
fn add_designated(number: &str, unit: Unit, sum: &mut Sum) -> Result<(), Unreadable> {
    let number: f64 = number.parse().map_err(|_| Unreadable::Unsupported)?;
    if !(-1.0e15..=1.0e15).contains(&number) {
        return Err(Unreadable::FieldOutOfRange);
    }
    #[expect(clippy::cast_possible_truncation, reason = "compared above")]
    let whole = number.trunc() as i64;
    sum.add(whole, number - number.trunc(), unit)
        .ok_or(Unreadable::FieldOutOfRange)
}
