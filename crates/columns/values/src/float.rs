//! `double precision`: arithmetic with PostgreSQL's overflow rules (src/include/utils/float.h), and
//! its text.
//!
//! Text is PostgreSQL's shortest form (`extra_float_digits` 1, src/common/d2s.c): the shortest
//! decimal that lies strictly between the midpoints to the neighbours; a decimal on a midpoint is
//! not used although it would be read back. Must not: use functions whose result depends on the C
//! library (exp, ln, power).

use core::fmt::Write as _;

use num_bigint::BigUint;
use strongroom_columns_ring::Fault;
use zeroize::Zeroizing;

use crate::input::{Unreadable, is_space, strip_prefix_ignoring_case};
use crate::value::Buf;

/// `a + b` (`float8_pl`). `Fault::FloatOverflow` if a finite sum becomes infinite.
pub(crate) fn add(a: f64, b: f64) -> Result<f64, Fault> {
    finite_from(a + b, a, b)
}

/// `a - b` (`float8_mi`). `Fault::FloatOverflow` if a finite difference becomes infinite.
pub(crate) fn sub(a: f64, b: f64) -> Result<f64, Fault> {
    finite_from(a - b, a, b)
}

/// Returns the result of an operation on `a` and `b`. `Fault::FloatOverflow` if it is infinite and
/// neither of them is.
fn finite_from(result: f64, a: f64, b: f64) -> Result<f64, Fault> {
    if result.is_infinite() && !a.is_infinite() && !b.is_infinite() {
        return Err(Fault::FloatOverflow);
    }
    Ok(result)
}

/// `a * b` (`float8_mul`). `Fault::FloatOverflow` if finite numbers give infinity,
/// `Fault::FloatUnderflow` if they give 0 although neither is 0.
pub(crate) fn mul(a: f64, b: f64) -> Result<f64, Fault> {
    let result = finite_from(a * b, a, b)?;
    if result == 0.0 && a != 0.0 && b != 0.0 {
        return Err(Fault::FloatUnderflow);
    }
    Ok(result)
}

/// `a / b` (`float8_div`). `Fault::DivisionByZero` if `b` is 0, unless `a` is NaN;
/// `Fault::FloatOverflow` if finite numbers give infinity, `Fault::FloatUnderflow` if they give 0
/// although `a` is not 0.
pub(crate) fn div(a: f64, b: f64) -> Result<f64, Fault> {
    if b == 0.0 && !a.is_nan() {
        return Err(Fault::DivisionByZero);
    }
    let result = a / b;
    if result.is_infinite() && !a.is_infinite() {
        return Err(Fault::FloatOverflow);
    }
    if result == 0.0 && a != 0.0 && !b.is_infinite() {
        return Err(Fault::FloatUnderflow);
    }
    Ok(result)
}

/// The square root (`dsqrt`). `Fault::SqrtNegative` for a number below 0.
pub(crate) fn sqrt(a: f64) -> Result<f64, Fault> {
    if a < 0.0 {
        return Err(Fault::SqrtNegative);
    }
    Ok(a.sqrt())
}

/// -1, 0 or 1 (`dsign`); 0 for NaN and both zeros.
pub(crate) fn sign(a: f64) -> f64 {
    if a > 0.0 {
        1.0
    } else if a < 0.0 {
        -1.0
    } else {
        0.0
    }
}

/// The nearest integer, a half to the even one (`dtoi4`). `Fault::Int4OutOfRange` if it does not
/// fit, also for NaN.
pub(crate) fn to_int4(a: f64) -> Result<i32, Fault> {
    let whole = a.round_ties_even();
    if !(-2_147_483_648.0..2_147_483_648.0).contains(&whole) {
        return Err(Fault::Int4OutOfRange);
    }
    #[expect(clippy::cast_possible_truncation, reason = "compared above")]
    Ok(whole as i32)
}

/// The nearest integer, a half to the even one (`dtoi8`). `Fault::Int8OutOfRange` if it does not
/// fit, also for NaN.
pub(crate) fn to_int8(a: f64) -> Result<i64, Fault> {
    let whole = a.round_ties_even();
    if !(-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&whole) {
        return Err(Fault::Int8OutOfRange);
    }
    #[expect(clippy::cast_possible_truncation, reason = "compared above")]
    Ok(whole as i64)
}

/// Reads the text that `float8in` reads, hexadecimal and words for infinity included.
/// `Unreadable::Unsupported` for NaN with a payload or more than 1000 hexadecimal digits,
/// `Unreadable::OutOfRange` for a number that is too big for a double, or becomes 0 in one,
/// `Unreadable::Syntax` for any other text.
pub(crate) fn parse(text: &str) -> Result<f64, Unreadable> {
    let text = text.trim_start_matches(is_space);
    const SPECIAL: [(&str, f64); 9] = [
        ("nan", f64::NAN),
        ("+nan", f64::NAN),
        ("-nan", f64::NAN),
        ("infinity", f64::INFINITY),
        ("+infinity", f64::INFINITY),
        ("-infinity", f64::NEG_INFINITY),
        ("inf", f64::INFINITY),
        ("+inf", f64::INFINITY),
        ("-inf", f64::NEG_INFINITY),
    ];
    for (name, value) in SPECIAL {
        if let Some(rest) = strip_prefix_ignoring_case(text, name) {
            return match rest.trim_start_matches(is_space) {
                "" => Ok(value),
                _ if name.ends_with("nan") && rest.starts_with('(') => Err(Unreadable::Unsupported),
                _ => Err(Unreadable::Syntax),
            };
        }
    }
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if let Some(digits) = strip_prefix_ignoring_case(unsigned, "0x")
        && let Some(magnitude) = parse_hexadecimal(digits)
    {
        return magnitude.map(|magnitude| {
            if text.starts_with('-') {
                -magnitude
            } else {
                magnitude
            }
        });
    }
    let (mantissa, exponent) = extent(unsigned);
    let end = text.len() - unsigned.len() + mantissa + exponent;
    let value: f64 = text[..end].parse().map_err(|_| Unreadable::Syntax)?;
    let is_zero = !unsigned[..mantissa]
        .bytes()
        .any(|byte| matches!(byte, b'1'..=b'9'));
    // The range is looked at before what follows the number.
    if value.is_infinite() || (value == 0.0 && !is_zero) {
        return Err(Unreadable::OutOfRange);
    }
    if text[end..].trim_start_matches(is_space).is_empty() {
        Ok(value)
    } else {
        Err(Unreadable::Syntax)
    }
}

/// Hexadecimal digits that are read: turning more of them into a decimal would take longer and
/// longer.
const HEXADECIMAL_MAX: usize = 1000;

/// Reads C's hexadecimal number, after its `0x`, to the end of the text. `None` if there is no
/// digit: then the number is the 0 before the x. `Unreadable::Unsupported` for more than 1000
/// digits, `Unreadable::OutOfRange` if it overflows or underflows, `Unreadable::Syntax` if
/// something follows.
fn parse_hexadecimal(text: &str) -> Option<Result<f64, Unreadable>> {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_hexdigit).count();
    let (whole, rest) = text.split_at(digits(text));
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(digits(rest)),
        None => ("", rest),
    };
    if whole.len() + fraction.len() > HEXADECIMAL_MAX {
        return Some(Err(Unreadable::Unsupported));
    }
    let mantissa = BigUint::parse_bytes([whole, fraction].concat().as_bytes(), 16)?;
    let (exponent, rest) = binary_exponent(rest);
    let places = i64::try_from(fraction.len()).unwrap_or(i64::MAX) * 4;
    // With so few digits, beyond these shifts every number is too big or too small.
    let shift = (exponent - places).clamp(-8000, 8000);
    // Exactly, as a decimal, which is then read with one rounding.
    let steps = u32::try_from(shift.unsigned_abs()).unwrap_or(0);
    let decimal = if shift < 0 {
        format!("{}e-{steps}", &mantissa * BigUint::from(5_u8).pow(steps))
    } else {
        (&mantissa << steps).to_string()
    };
    let value: f64 = decimal.parse().ok()?;
    if value.is_infinite() || (value == 0.0 && mantissa != BigUint::ZERO) {
        return Some(Err(Unreadable::OutOfRange));
    }
    let ends = rest.trim_start_matches(is_space).is_empty();
    Some(if ends {
        Ok(value)
    } else {
        Err(Unreadable::Syntax)
    })
}

/// The exponent of a text that begins with `p`, at most a thousand million, and the text after it;
/// 0 and the whole text if it does not begin with one.
fn binary_exponent(text: &str) -> (i64, &str) {
    let Some(rest) = text.strip_prefix(['p', 'P']) else {
        return (0, text);
    };
    let unsigned = rest.strip_prefix(['+', '-']).unwrap_or(rest);
    let (digits, behind) =
        unsigned.split_at(unsigned.bytes().take_while(u8::is_ascii_digit).count());
    if digits.is_empty() {
        return (0, text);
    }
    let magnitude: i64 = digits.parse().unwrap_or(1_000_000_000).min(1_000_000_000);
    (
        if rest.starts_with('-') {
            -magnitude
        } else {
            magnitude
        },
        behind,
    )
}

/// How many bytes at the beginning of a text `strtod` takes: for the mantissa, and for the
/// exponent, which needs at least one digit.
fn extent(text: &str) -> (usize, usize) {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let whole = digits(text);
    let fraction = match text[whole..].strip_prefix('.') {
        Some(rest) => 1 + digits(rest),
        None => 0,
    };
    let rest = &text[whole + fraction..];
    let Some(exponent) = rest.strip_prefix(['e', 'E']) else {
        return (whole + fraction, 0);
    };
    let sign = exponent.len() - exponent.strip_prefix(['+', '-']).unwrap_or(exponent).len();
    let count = digits(&exponent[sign..]);
    (
        whole + fraction,
        if count == 0 { 0 } else { 1 + sign + count },
    )
}

/// Appends the text that `float8out` prints.
pub(crate) fn print(value: f64, buf: &mut Buf) {
    if value.is_nan() {
        buf.extend(b"NaN");
        return;
    }
    if value.is_sign_negative() {
        buf.push(b'-');
    }
    if value.is_infinite() {
        buf.extend(b"Infinity");
    } else if value == 0.0 {
        buf.push(b'0');
    } else {
        let (digits, exponent) = shortest(value.abs());
        print_decimal(&digits, exponent, buf);
    }
}

/// Appends these decimal digits, the first of which has the place `exponent`: with a point if that
/// is from -4 to 14, otherwise with an exponent (`to_chars` of d2s.c).
fn print_decimal(digits: &str, exponent: i32, buf: &mut Buf) {
    let (first, rest) = digits.split_at(1);
    if (-4..15).contains(&exponent) {
        let whole = usize::try_from(exponent + 1).unwrap_or(0);
        if whole == 0 {
            buf.extend(b"0.");
            (exponent..-1).for_each(|_| buf.push(b'0'));
            buf.extend(digits.as_bytes());
        } else if digits.len() <= whole {
            buf.extend(digits.as_bytes());
            (digits.len()..whole).for_each(|_| buf.push(b'0'));
        } else {
            buf.extend(&digits.as_bytes()[..whole]);
            buf.push(b'.');
            buf.extend(&digits.as_bytes()[whole..]);
        }
        return;
    }
    buf.extend(first.as_bytes());
    if !rest.is_empty() {
        buf.push(b'.');
        buf.extend(rest.as_bytes());
    }
    // Writing to memory does not fail.
    let sign = if exponent < 0 { '-' } else { '+' };
    let written = write!(buf, "e{sign}{:02}", exponent.unsigned_abs());
    assert!(written.is_ok(), "a buffer takes what fits in memory");
}

/// The shortest decimal digits that are read back as this number, and the place of the first one.
/// For a finite number above 0.
fn shortest(value: f64) -> (Zeroizing<String>, i32) {
    if value >= 9_007_199_254_740_992.0 {
        return strictly_between(value);
    }
    // Below 2^53 no decimal of 17 digits is on a midpoint, and Rust's shortest digits are d2s.c's
    // but for ties.
    let (digits, exponent) = scientific(&Zeroizing::new(format!("{value:e}")));
    even_of_tie(value, digits, exponent)
}

/// The digits, without the point, and the exponent of a text like `d.ddde-7`.
fn scientific(text: &str) -> (Zeroizing<String>, i32) {
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let digits = Zeroizing::new(
        mantissa
            .chars()
            .filter(char::is_ascii_digit)
            .collect::<String>(),
    );
    (digits, exponent.parse().unwrap_or(0))
}

/// These digits and exponent; but if the number is exactly between two decimals of that length, the
/// one with the even last digit, provided that it is read back as the number.
fn even_of_tie(value: f64, digits: Zeroizing<String>, exponent: i32) -> (Zeroizing<String>, i32) {
    // One digit more is seldom a 5, and quickly had.
    let next = Zeroizing::new(format!("{value:.*e}", digits.len()));
    if !next
        .split('e')
        .next()
        .is_some_and(|mantissa| mantissa.ends_with('5'))
    {
        return (digits, exponent);
    }
    // Thirty digits further on: a double that goes on behind so many zeros is not between decimals
    // of 17 digits.
    let (exact, place) = scientific(&Zeroizing::new(format!("{value:.*e}", digits.len() + 30)));
    let (low, behind) = exact.split_at(digits.len());
    let is_tie = behind.starts_with('5') && behind[1..].bytes().all(|digit| digit == b'0');
    let is_even = low.bytes().last().is_some_and(|digit| digit % 2 == 0);
    if !is_tie || !is_even || place != exponent {
        return (digits, exponent);
    }
    let back = format!(
        "{low}e{}",
        place + 1 - i32::try_from(low.len()).unwrap_or(0)
    );
    if back.parse() == Ok(value) {
        (Zeroizing::new(low.trim_end_matches('0').to_owned()), place)
    } else {
        (digits, exponent)
    }
}

/// The midpoint below an integral double of at least 2^53, the number itself, and the midpoint
/// above, all times four.
fn midpoints(value: f64) -> (BigUint, BigUint, BigUint) {
    let bits = value.to_bits();
    let fraction = bits & ((1 << 52) - 1);
    let exponent = (bits >> 52) & 0x7ff;
    // The number is m * 2^(exponent - 1075), and at least 2^53 here.
    let shift = exponent.saturating_sub(1075);
    let four = BigUint::from((fraction | (1 << 52)) * 4) << shift;
    let gap = BigUint::from(1_u8) << shift;
    // Below a power of two the neighbour is half as far.
    let below = if fraction == 0 {
        gap.clone()
    } else {
        &gap * 2_u8
    };
    (&four - below, four.clone(), four + gap * 2_u8)
}

/// The decimal digits, without zeros at the end, and the exponent of the multiple of the greatest
/// power of ten that lies strictly between the midpoints and is nearest to the number, as d2s.c
/// finds it.
fn strictly_between(value: f64) -> (Zeroizing<String>, i32) {
    let (below, number, above) = midpoints(value);
    // With 17 digits there is always one.
    let digits = crate::numeric::digits(&(&number >> 2));
    let mut step = crate::numeric::power_of_ten(digits.saturating_sub(17)) * 4_u8;
    let mut found = &number >> 2;
    while let Some(multiple) = nearest_multiple(&below, &number, &above, &step) {
        found = multiple;
        step *= 10_u8;
    }
    let text = Zeroizing::new(found.to_string());
    let exponent = i32::try_from(text.len()).unwrap_or(i32::MAX) - 1;
    (
        Zeroizing::new(text.trim_end_matches('0').to_owned()),
        exponent,
    )
}

/// A quarter of the multiple of `step` that is nearest to `number` and strictly between `below` and
/// `above`; of two that are as near, the even one. `None` if there is none.
fn nearest_multiple(
    below: &BigUint,
    number: &BigUint,
    above: &BigUint,
    step: &BigUint,
) -> Option<BigUint> {
    let low = number / step * step;
    let high = &low + step;
    let low_fits = low > *below;
    let high_fits = high < *above;
    let (to_low, to_high) = (number - &low, &high - number);
    let even = (&low / step) % 2_u8 == BigUint::ZERO;
    let prefers_low = to_low < to_high || (to_low == to_high && even);
    match (low_fits, high_fits) {
        (true, true) => Some(if prefers_low { low } else { high } / 4_u8),
        (true, false) => Some(low / 4_u8),
        (false, true) => Some(high / 4_u8),
        (false, false) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(value: f64) -> String {
        let mut buf = Buf::new();
        print(value, &mut buf);
        core::str::from_utf8(buf.as_slice()).unwrap().to_owned()
    }

    #[test]
    fn texts_are_postgresqls() {
        for (value, text) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-1.5, "-1.5"),
            (1e14, "100000000000000"),
            (1e15, "1e+15"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (123_456_789.125, "123456789.125"),
            (1.5e300, "1.5e+300"),
            (f64::MIN_POSITIVE, "2.2250738585072014e-308"),
            (f64::from_bits(1), "5e-324"),
            (f64::MAX, "1.7976931348623157e+308"),
            (9_007_199_254_740_992.0, "9.007199254740992e+15"),
            // On a midpoint with one digit less: float8.sql of the regression suite.
            (1_152_921_504_606_846_976.0, "1.152921504606847e+18"),
            // Between .2 and .3.
            (f64::from_bits(0x430a_9e40_da87_d59a), "936543846988467.2"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(printed(value), text);
        }
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for bad in ["", " ", "1x", "1 2", "e5", ".", "+-1", "infx", "1e"] {
            assert_eq!(parse(bad), Err(Unreadable::Syntax), "{bad}");
        }
        for big in ["1e309", "-1e400", "1e-400"] {
            assert_eq!(parse(big), Err(Unreadable::OutOfRange), "{big}");
        }
        assert_eq!(parse("-0x1.8p3"), Ok(-12.0));
        assert_eq!(parse("0x1p-1074"), Ok(f64::from_bits(1)));
        assert_eq!(
            parse("0x1p99999999999999999999"),
            Err(Unreadable::OutOfRange)
        );
        assert_eq!(parse("0x"), Err(Unreadable::Syntax));
        assert_eq!(
            parse(&format!("0x{}p-4000", "1".repeat(1000))).map(f64::is_normal),
            Ok(true)
        );
        assert_eq!(
            parse(&format!("0x{}", "1".repeat(1001))),
            Err(Unreadable::Unsupported)
        );
        assert_eq!(parse("nan(1)"), Err(Unreadable::Unsupported));
        assert_eq!(parse(" 4e-324 "), Ok(f64::from_bits(1)));
        assert_eq!(parse("0e-999"), Ok(0.0));
        assert!(parse("-NaN").is_ok_and(f64::is_nan));
    }
}
