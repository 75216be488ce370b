//! PostgreSQL's text forms, as an application sees them with `DateStyle` ISO, `IntervalStyle`
//! postgres, `bytea_output` hex, `extra_float_digits` 1.
//!
//! Printing is exactly the server's. Reading accepts the usual forms of each type, with the
//! server's results; a form that only the server understands is [`Unreadable::Unsupported`], never
//! guessed. Must not: depend on the time of day.

mod moment;
mod span;

use core::fmt::Write as _;

use strongroom_columns_ring::Fault;
use strongroom_columns_ring::function::Field;
use strongroom_format::columns::Kind;
use strongroom_format::hex::hex_digit;

use crate::binary::check_text;
use crate::datetime::{Civil, EPOCH, from_julian};
use crate::float;
use crate::input::{Unreadable, is_space};
use crate::interval::{HOUR, Interval, MINUTE, SECOND};
use crate::jsonb;
use crate::numeric::forms;
use crate::time_of_day;
use crate::time_zone::TimeZone;
use crate::uuid;
use crate::value::{Buf, Out, Settings, Value};

/// Appends a value's text form to `buf`, as PostgreSQL's output function prints it.
///
/// # Errors
/// [`Fault::KindMismatch`] if the value is not of the kind's form.
pub fn print(
    kind: Kind,
    value: Value<'_>,
    settings: &Settings,
    buf: &mut Buf,
) -> Result<(), Fault> {
    match kind {
        Kind::Bool => buf.push(if value.bool()? { b't' } else { b'f' }),
        Kind::Int4 | Kind::Int8 => print_int8(value.int8()?, buf),
        Kind::Float8 => float::print(value.float8()?, buf),
        Kind::Numeric => forms::print(value, buf)?,
        Kind::Text | Kind::Jsonb => buf.extend(value.bytes()?),
        Kind::Bytea => print_bytes(value.bytes()?, buf),
        Kind::Date => print_date(value.int4()?, buf),
        Kind::Timestamp => print_timestamp(value.int8()?, None, buf),
        Kind::Timestamptz => print_timestamp(value.int8()?, Some(&settings.time_zone), buf),
        Kind::Interval => print_interval(Interval::read(value)?, buf),
        Kind::Uuid => uuid::print(&uuid::of(value)?, buf),
        Kind::Time => print_time(time_of_day::of(value)?, buf),
    }
    Ok(())
}

/// Reads a value from its text form into `out`, as PostgreSQL's input function does.
///
/// # Errors
/// [`Unreadable`] where the server's input function refuses it, or this code does not know the
/// form.
pub fn parse(kind: Kind, text: &str, settings: &Settings, out: &mut Out) -> Result<(), Unreadable> {
    let text = check_text(text.as_bytes())?;
    match kind {
        Kind::Bool => out.set(Value::of_bool(parse_bool(text)?)),
        Kind::Int4 => out.set_int4(parse_int4(text)?),
        Kind::Int8 => out.set_int8(parse_integer(text, i64::MIN)?),
        Kind::Float8 => out.set_float8(float::parse(text)?),
        Kind::Numeric => forms::parse(text, out)?,
        Kind::Text => out.set_bytes(text.as_bytes()),
        Kind::Bytea => parse_bytes(text, out)?,
        Kind::Date => out.set_int4(moment::date(text)?),
        Kind::Timestamp => out.set_int8(moment::timestamp(text)?),
        Kind::Timestamptz => out.set_int8(moment::timestamptz(text, &settings.time_zone)?),
        Kind::Interval => span::interval(text)?.put(out),
        Kind::Uuid => out.set_bytes(&uuid::parse(text)?),
        Kind::Jsonb => jsonb::parse(text, out)?,
        Kind::Time => out.set_int8(moment::time(text)?),
    }
    Ok(())
}

/// Reads an interval whose literal names one field, as `interval '90' day` does, into `out`.
///
/// # Errors
/// [`Unreadable`] where the server's input function refuses the text, or this code does not know
/// the form; [`Unreadable::Unsupported`] for a field that is not year, month, day, hour, minute or
/// second.
pub fn parse_interval(text: &str, field: Field, out: &mut Out) -> Result<(), Unreadable> {
    span::interval_of(check_text(text.as_bytes())?, field)?.put(out);
    Ok(())
}

/// Appends formatted text, which cannot fail in memory.
fn write(buf: &mut Buf, text: core::fmt::Arguments<'_>) {
    let written = buf.write_fmt(text);
    assert!(written.is_ok(), "a buffer takes what fits in memory");
}

/// Appends the text that `int8out` and `int4out` print.
pub(crate) fn print_int8(number: i64, buf: &mut Buf) {
    write(buf, format_args!("{number}"));
}

/// Appends the text that `byteaout` prints: `\x` and hexadecimal digits.
fn print_bytes(bytes: &[u8], buf: &mut Buf) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    buf.reserve(2 + 2 * bytes.len());
    buf.extend(b"\\x");
    for byte in bytes {
        buf.push(DIGITS[usize::from(byte >> 4)]);
        buf.push(DIGITS[usize::from(byte & 15)]);
    }
}

/// Appends a date as `2024-05-06`. A year before 1 is printed as its number before Christ; the
/// caller adds `BC`.
fn print_calendar(year: i32, month: i32, day: i32, buf: &mut Buf) {
    let year = if year > 0 { year } else { 1 - year };
    write(buf, format_args!("{year:04}-{month:02}-{day:02}"));
}

/// Appends the text that `date_out` prints.
pub(crate) fn print_date(date: i32, buf: &mut Buf) {
    match date {
        i32::MIN => buf.extend(b"-infinity"),
        i32::MAX => buf.extend(b"infinity"),
        _ => {
            let (year, month, day) = from_julian(date.saturating_add(EPOCH));
            print_calendar(year, month, day, buf);
            if year <= 0 {
                buf.extend(b" BC");
            }
        }
    }
}

/// Appends the text that `timestamp_out` prints, or with a zone `timestamptz_out` in that zone.
pub(crate) fn print_timestamp(timestamp: i64, zone: Option<&TimeZone>, buf: &mut Buf) {
    let parts = match (timestamp, zone) {
        (i64::MIN, _) => return buf.extend(b"-infinity"),
        (i64::MAX, _) => return buf.extend(b"infinity"),
        (_, None) => Civil::of(timestamp).map(|civil| (civil, 0)),
        (_, Some(zone)) => Civil::of_zoned(timestamp, zone),
    };
    // All functions that make timestamps refuse those before the first one.
    let (civil, offset) = parts.unwrap_or_default();
    print_calendar(civil.year, civil.month, civil.day, buf);
    write(buf, format_args!(" {:02}:{:02}:", civil.hour, civil.minute));
    print_seconds(civil.second.unsigned_abs(), civil.micro.unsigned_abs(), buf);
    if zone.is_some() {
        print_offset(offset, buf);
    }
    if civil.year <= 0 {
        buf.extend(b" BC");
    }
}

/// Appends the text that `time_out` prints.
pub(crate) fn print_time(time: i64, buf: &mut Buf) {
    let part = |unit: i64, modulus: i64| u32::try_from(time / unit % modulus).unwrap_or(0);
    // The end of the day is 24:00:00.
    let (hour, minute) = (time / HOUR, part(MINUTE, 60));
    write(buf, format_args!("{hour:02}:{minute:02}:"));
    print_seconds(part(SECOND, 60), part(1, SECOND), buf);
}

/// Appends seconds with two digits, and their fraction without zeros at its end (`AppendSeconds`).
fn print_seconds(second: u32, micro: u32, buf: &mut Buf) {
    write(buf, format_args!("{second:02}"));
    if micro != 0 {
        let fraction = format!("{micro:06}");
        write(buf, format_args!(".{}", fraction.trim_end_matches('0')));
    }
}

/// Appends an offset in seconds ahead of UTC as `+hh`, `+hh:mm` or `+hh:mm:ss` (`EncodeTimezone`).
fn print_offset(offset: i32, buf: &mut Buf) {
    let sign = if offset >= 0 { '+' } else { '-' };
    let offset = offset.unsigned_abs();
    let (hours, minutes, seconds) = (offset / 3600, offset / 60 % 60, offset % 60);
    match (minutes, seconds) {
        (0, 0) => write(buf, format_args!("{sign}{hours:02}")),
        (_, 0) => write(buf, format_args!("{sign}{hours:02}:{minutes:02}")),
        _ => write(
            buf,
            format_args!("{sign}{hours:02}:{minutes:02}:{seconds:02}"),
        ),
    }
}

/// Appends the text that `interval_out` prints: each part that is not 0, with the sign of a part
/// that follows a negative one.
pub(crate) fn print_interval(interval: Interval, buf: &mut Buf) {
    let (mut is_first, mut after_negative) = (true, false);
    let parts = [
        (interval.months / 12, "year"),
        (interval.months % 12, "mon"),
        (interval.days, "day"),
    ];
    for (number, unit) in parts {
        if number != 0 {
            let space = if is_first { "" } else { " " };
            let plus = if after_negative && number > 0 {
                "+"
            } else {
                ""
            };
            let plural = if number == 1 { "" } else { "s" };
            write(buf, format_args!("{space}{plus}{number} {unit}{plural}"));
            (is_first, after_negative) = (false, number < 0);
        }
    }
    if is_first || interval.time != 0 {
        let space = if is_first { "" } else { " " };
        let sign = if interval.time < 0 {
            "-"
        } else if after_negative {
            "+"
        } else {
            ""
        };
        let part = |unit: i64, modulus: i64| {
            u32::try_from((interval.time / unit % modulus).abs()).unwrap_or(0)
        };
        let hours = (interval.time / HOUR).abs();
        write(
            buf,
            format_args!("{space}{sign}{hours:02}:{:02}:", part(MINUTE, 60)),
        );
        print_seconds(part(SECOND, 60), part(1, SECOND), buf);
    }
}

/// Reads an integer from `least` to `-(least + 1)`, with blanks around it (`pg_strtoint32`,
/// `pg_strtoint64`). `Unreadable::OutOfRange` if it does not fit, `Unreadable::Syntax` for a text
/// that is no integer.
pub(crate) fn parse_integer(text: &str, least: i64) -> Result<i64, Unreadable> {
    let text = text.trim_start_matches(is_space);
    let (negative, text) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let (digits, rest) = text.split_at(text.bytes().take_while(u8::is_ascii_digit).count());
    if digits.is_empty() {
        return Err(Unreadable::Syntax);
    }
    let mut number = 0_i64;
    for digit in digits.bytes() {
        // Counted down, because there is one negative number more. A number that is too big is
        // found before the rest is checked.
        let more = number
            .checked_mul(10)
            .and_then(|number| number.checked_sub(i64::from(digit - b'0')));
        number = more
            .filter(|number| *number >= least)
            .ok_or(Unreadable::OutOfRange)?;
    }
    if !rest.trim_start_matches(is_space).is_empty() {
        return Err(Unreadable::Syntax);
    }
    match number {
        _ if negative => Ok(number),
        _ if number == least => Err(Unreadable::OutOfRange),
        _ => Ok(-number),
    }
}

/// Reads an `integer` (`int4in`). `Unreadable::OutOfRange` if it does not fit, `Unreadable::Syntax`
/// for a text that is no integer.
pub(crate) fn parse_int4(text: &str) -> Result<i32, Unreadable> {
    let number = parse_integer(text, i64::from(i32::MIN))?;
    i32::try_from(number).map_err(|_| Unreadable::OutOfRange)
}

/// Reads a `boolean`: a unique beginning of one of the words, or 1 or 0 (`boolin`).
/// `Unreadable::Syntax` for any other text.
fn parse_bool(text: &str) -> Result<bool, Unreadable> {
    let text = text.trim_matches(is_space).to_ascii_lowercase();
    let begins = |word: &str, least: usize| text.len() >= least && word.starts_with(&text);
    if begins("true", 1) || begins("yes", 1) || begins("on", 2) || text == "1" {
        return Ok(true);
    }
    if begins("false", 1) || begins("no", 1) || begins("off", 2) || text == "0" {
        return Ok(false);
    }
    Err(Unreadable::Syntax)
}

/// Reads a `bytea` into `out`: hexadecimal after `\x`, otherwise bytes with octal escapes
/// (`byteain`). `Unreadable::Hexadecimal` for something else than pairs of hexadecimal digits,
/// `Unreadable::Syntax` for an invalid escape.
fn parse_bytes(text: &str, out: &mut Out) -> Result<(), Unreadable> {
    let bytes = text.as_bytes();
    let buf = out.begin(bytes.len());
    if let Some(hex) = bytes.strip_prefix(b"\\x") {
        return parse_hex(hex, buf);
    }
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        at += match (byte, bytes.get(at + 1..at + 4)) {
            (b'\\', _) if bytes.get(at + 1) == Some(&b'\\') => {
                buf.push(b'\\');
                2
            }
            (b'\\', Some([a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7'])) => {
                buf.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                4
            }
            (b'\\', _) => return Err(Unreadable::Syntax),
            (byte, _) => {
                buf.push(*byte);
                1
            }
        };
    }
    Ok(())
}

/// Appends the bytes of hexadecimal digits; white space is allowed between bytes, not inside one
/// (`hex_decode`). `Unreadable::Hexadecimal` for anything else.
fn parse_hex(hex: &[u8], buf: &mut Buf) -> Result<(), Unreadable> {
    let mut rest = hex.iter();
    while let Some(high) = rest.next() {
        if matches!(high, b' ' | b'\n' | b'\t' | b'\r') {
            continue;
        }
        let low = rest.next().and_then(|low| hex_digit(*low));
        let (Some(high), Some(low)) = (hex_digit(*high), low) else {
            return Err(Unreadable::Hexadecimal);
        };
        buf.push(high << 4 | low);
    }
    Ok(())
}
