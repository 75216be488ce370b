//! `double precision`: arithmetic with PostgreSQL's overflow rules (src/include/utils/float.h), and its text.
//!
//! Text is PostgreSQL's shortest form (extra_float_digits 1, src/common/d2s.c): the shortest decimal that lies strictly between the
//! midpoints to the neighbours; a decimal on a midpoint is not used although it would be read back. Must not: use functions whose
//! result depends on the C library (exp, ln, power).

use core::fmt::Write as _;

use num_bigint::BigUint;
use strongroom_rpc::Fault;

use crate::input::{Unreadable, is_space, strip_prefix_ignoring_case};
use crate::value::Buf;

/// `float8_pl`
pub(crate) fn add(a: f64, b: f64) -> Result<f64, Fault> {
    finite_from(a + b, a, b)
}

/// `float8_mi`
pub(crate) fn sub(a: f64, b: f64) -> Result<f64, Fault> {
    finite_from(a - b, a, b)
}

fn finite_from(result: f64, a: f64, b: f64) -> Result<f64, Fault> {
    if result.is_infinite() && !a.is_infinite() && !b.is_infinite() {
        return Err(Fault::FloatOverflow);
    }
    Ok(result)
}

/// `float8_mul`
pub(crate) fn mul(a: f64, b: f64) -> Result<f64, Fault> {
    let result = finite_from(a * b, a, b)?;
    if result == 0.0 && a != 0.0 && b != 0.0 {
        return Err(Fault::FloatUnderflow);
    }
    Ok(result)
}

/// `float8_div`
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

/// `dsqrt`
pub(crate) fn sqrt(a: f64) -> Result<f64, Fault> {
    if a < 0.0 {
        return Err(Fault::SqrtNegative);
    }
    Ok(a.sqrt())
}

/// `dtoi4`: rounded half to even.
pub(crate) fn to_int4(a: f64) -> Result<i32, Fault> {
    let whole = a.round_ties_even();
    if !(-2_147_483_648.0..2_147_483_648.0).contains(&whole) {
        return Err(Fault::Int4OutOfRange);
    }
    #[expect(clippy::cast_possible_truncation, reason = "compared above")]
    Ok(whole as i32)
}

/// `dtoi8`: rounded half to even.
pub(crate) fn to_int8(a: f64) -> Result<i64, Fault> {
    let whole = a.round_ties_even();
    if !(-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&whole) {
        return Err(Fault::Int8OutOfRange);
    }
    #[expect(clippy::cast_possible_truncation, reason = "compared above")]
    Ok(whole as i64)
}

/// Reads what `float8in` reads, but for C's hexadecimal numbers and NaN with a payload.
pub(crate) fn parse(text: &str) -> Result<f64, Unreadable> {
    let text = text.trim_start_matches(is_space).trim_end_matches(is_space);
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
            let payload = name.ends_with("nan") && rest.starts_with('(');
            return if rest.is_empty() {
                Ok(value)
            } else if payload {
                Err(Unreadable::Unsupported)
            } else {
                Err(Unreadable::Syntax)
            };
        }
    }
    let unsigned = text.trim_start_matches(['+', '-']);
    if strip_prefix_ignoring_case(unsigned, "0x").is_some() {
        return Err(Unreadable::Unsupported);
    }
    // Rust's grammar is C's here, once names and hexadecimal numbers are gone.
    let value: f64 = text.parse().map_err(|_| Unreadable::Syntax)?;
    let mantissa = unsigned.split(['e', 'E']).next().unwrap_or("");
    let is_zero = !mantissa.bytes().any(|byte| matches!(byte, b'1'..=b'9'));
    if value.is_infinite() || (value == 0.0 && !is_zero) {
        return Err(Unreadable::OutOfRange);
    }
    Ok(value)
}

/// Appends what `float8out` prints.
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

/// `digits` with the first at place `exponent`: with a point when that is from -4 to 14 (`to_chars` of d2s.c).
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

/// The digits and the place of the first one, for a finite number above 0.
fn shortest(value: f64) -> (String, i32) {
    let text = format!("{value:e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let exponent: i32 = exponent.parse().unwrap_or(0);
    // Below 2^53 no decimal of 17 digits is on a midpoint.
    if value >= 9_007_199_254_740_992.0 && on_midpoint(value, &digits, exponent) {
        return strictly_between(value);
    }
    (digits, exponent)
}

/// The two midpoints around an integral double, times four; the number itself times four is between.
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

fn on_midpoint(value: f64, digits: &str, exponent: i32) -> bool {
    let zeros = usize::try_from(exponent + 1)
        .unwrap_or(0)
        .saturating_sub(digits.len());
    let Some(decimal) = BigUint::parse_bytes(digits.as_bytes(), 10) else {
        return false;
    };
    if digits.len() > usize::try_from(exponent + 1).unwrap_or(0) {
        return false;
    }
    let scaled = decimal * BigUint::from(10_u8).pow(u32::try_from(zeros).unwrap_or(0)) * 4_u8;
    let (below, _, above) = midpoints(value);
    scaled == below || scaled == above
}

/// The multiple of the greatest power of ten strictly between the midpoints that is nearest to the number, as d2s.c finds it.
fn strictly_between(value: f64) -> (String, i32) {
    let (below, number, above) = midpoints(value);
    let mut step = BigUint::from(4_u8);
    let mut found =
        nearest_multiple(&below, &number, &above, &step).unwrap_or_else(|| &number / 4_u8);
    loop {
        step *= 10_u8;
        match nearest_multiple(&below, &number, &above, &step) {
            Some(multiple) => found = multiple,
            None => break,
        }
    }
    let text = found.to_string();
    let exponent = i32::try_from(text.len()).unwrap_or(i32::MAX) - 1;
    (text.trim_end_matches('0').to_owned(), exponent)
}

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
        assert_eq!(parse("0x10"), Err(Unreadable::Unsupported));
        assert_eq!(parse("nan(1)"), Err(Unreadable::Unsupported));
        assert_eq!(parse(" 4e-324 "), Ok(f64::from_bits(1)));
        assert_eq!(parse("0e-999"), Ok(0.0));
        assert!(parse("-NaN").is_ok_and(f64::is_nan));
    }
}
