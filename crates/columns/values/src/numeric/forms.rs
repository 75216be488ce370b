//! NUMERIC to and from text, PostgreSQL's binary form, integers and double precision.
//!
//! `parse` accepts what `numeric_in` accepts, `receive` what `numeric_recv` accepts, with the same
//! errors. Must not: compute.
#![expect(
    clippy::big_endian_bytes,
    reason = "PostgreSQL's protocol is big-endian"
)]

use core::fmt::Write as _;

use num_bigint::{BigInt, BigUint, Sign};
use num_traits::{ToPrimitive, Zero};
use strongroom_columns_ring::Fault;
use zeroize::{Zeroize as _, Zeroizing};

use super::arithmetic::round_at;
use super::{Num, SCALE_MAX, TEN, WHOLE_DIGITS_MAX, power_of_ten, put_small, small};
use crate::input::{Unreadable, is_space, strip_prefix_ignoring_case};
use crate::value::{Buf, Out, Value};

const SIGN_POSITIVE: u16 = 0;
const SIGN_NEGATIVE: u16 = 0x4000;
const SIGN_NAN: u16 = 0xC000;
const SIGN_INFINITY: u16 = 0xD000;
const SIGN_MINUS_INFINITY: u16 = 0xF000;
/// The scale that the server sends for an infinity: bits of its header word, without a meaning.
const INFINITY_SCALE: u32 = 32;
/// Decimal digits in one digit of the binary form.
const GROUP: i64 = 4;

/// Appends the text that `numeric_out` prints. `Fault::KindMismatch` if the value is no numeric.
pub(crate) fn print(value: Value<'_>, buf: &mut Buf) -> Result<(), Fault> {
    if let Some((unscaled, scale)) = small(value) {
        let mut room = [0; 20];
        let digits = decimal(unscaled.unsigned_abs(), &mut room);
        print_digits(unscaled < 0, digits, scale, buf);
        room.zeroize();
        return Ok(());
    }
    match Num::read(value)? {
        Num::Nan => buf.extend(b"NaN"),
        Num::Inf(false) => buf.extend(b"Infinity"),
        Num::Inf(true) => buf.extend(b"-Infinity"),
        Num::Fin(unscaled, scale) => {
            let negative = unscaled.sign() == Sign::Minus;
            let digits = Zeroizing::new(unscaled.magnitude().to_string());
            print_digits(negative, digits.as_bytes(), scale, buf);
        }
    }
    Ok(())
}

/// The decimal digits of a number, written to the end of `buffer`.
fn decimal(mut number: u64, buffer: &mut [u8; 20]) -> &[u8] {
    let mut at = buffer.len();
    loop {
        at -= 1;
        buffer[at] = b'0' + u8::try_from(number % 10).unwrap_or(0);
        number /= 10;
        if number == 0 {
            return &buffer[at..];
        }
    }
}

/// Appends these decimal digits, of which `scale` are after the point, with a sign and zeros as
/// needed.
fn print_digits(negative: bool, digits: &[u8], scale: u32, buf: &mut Buf) {
    let scale = usize::try_from(scale).unwrap_or(0);
    buf.reserve(digits.len().max(scale + 1) + 2);
    if negative {
        buf.push(b'-');
    }
    let whole = digits.len().saturating_sub(scale);
    buf.extend(if whole == 0 { b"0" } else { &digits[..whole] });
    if scale > 0 {
        buf.push(b'.');
        for _ in digits.len()..scale {
            buf.push(b'0');
        }
        buf.extend(&digits[whole..]);
    }
}

/// Reads the text that `numeric_in` reads, into `out`. `Unreadable::Syntax` for a text that is no
/// number; `Unreadable::TooBig` for more digits than numerics have.
pub(crate) fn parse(text: &str, out: &mut Out) -> Result<(), Unreadable> {
    let text = text.trim_start_matches(is_space);
    static SPECIAL: [(&str, Num); 7] = [
        ("nan", Num::Nan),
        ("infinity", Num::Inf(false)),
        ("+infinity", Num::Inf(false)),
        ("-infinity", Num::Inf(true)),
        ("inf", Num::Inf(false)),
        ("+inf", Num::Inf(false)),
        ("-inf", Num::Inf(true)),
    ];
    let is_word = text
        .trim_start_matches(['+', '-'])
        .starts_with(|c: char| c.is_ascii_alphabetic());
    for (name, number) in SPECIAL.iter().filter(|_| is_word) {
        if let Some(rest) = strip_prefix_ignoring_case(text, name) {
            if !rest.trim_start_matches(is_space).is_empty() {
                return Err(Unreadable::Syntax);
            }
            return number.put(out).map_err(|_| Unreadable::TooBig);
        }
    }
    let number = parse_finite(text)?;
    number.put(out).map_err(|_| Unreadable::TooBig)
}

/// Reads a finite number and checks that only blanks follow (`set_var_from_str`).
/// `Unreadable::Syntax` for a text that is no number; `Unreadable::TooBig` for more digits than
/// numerics have.
fn parse_finite(text: &str) -> Result<Num, Unreadable> {
    let (negative, rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let split = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    let (whole, rest) = rest.split_at(split);
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(
            rest.find(|c: char| !c.is_ascii_digit())
                .unwrap_or(rest.len()),
        ),
        None => ("", rest),
    };
    if (whole.is_empty() && fraction.is_empty()) || rest.starts_with('.') {
        return Err(Unreadable::Syntax);
    }
    let (exponent, rest) = match rest.as_bytes().first() {
        Some(b'e' | b'E') => parse_exponent(&rest[1..])?,
        _ => (0, rest),
    };
    if !rest.trim_start_matches(is_space).is_empty() {
        return Err(Unreadable::Syntax);
    }
    assemble(negative, whole, fraction, exponent)
}

/// Reads the number after an `e` as C's `strtol` does (blanks and a sign before the digits);
/// returns it and the rest of the text. `Unreadable::Syntax` without a digit, `Unreadable::TooBig`
/// beyond numeric.c's limits.
fn parse_exponent(text: &str) -> Result<(i64, &str), Unreadable> {
    const LIMIT: i64 = 0x7fff_ffff / 2;
    let text = text.trim_start_matches(is_space);
    let (negative, text) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let (digits, rest) = text.split_at(
        text.find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len()),
    );
    if digits.is_empty() {
        return Err(Unreadable::Syntax);
    }
    let magnitude = digits.bytes().fold(0_i64, |sum, digit| {
        (sum * 10 + i64::from(digit - b'0')).min(LIMIT)
    });
    if magnitude >= LIMIT {
        return Err(Unreadable::TooBig);
    }
    Ok((if negative { -magnitude } else { magnitude }, rest))
}

/// The number `whole.fraction * 10^exponent`. `Unreadable::TooBig` before it is computed, if it has
/// too many digits.
fn assemble(negative: bool, whole: &str, fraction: &str, exponent: i64) -> Result<Num, Unreadable> {
    let behind = i64::try_from(fraction.len()).map_err(|_| Unreadable::TooBig)? - exponent;
    let scale = u32::try_from(behind.max(0)).map_err(|_| Unreadable::TooBig)?;
    if scale > SCALE_MAX {
        return Err(Unreadable::TooBig);
    }
    let significant = Zeroizing::new([whole, fraction].concat());
    let significant = significant.trim_start_matches('0');
    if significant.is_empty() {
        return Ok(Num::Fin(BigInt::ZERO, scale));
    }
    let place = i64::try_from(significant.len()).map_err(|_| Unreadable::TooBig)? - behind;
    if place > WHOLE_DIGITS_MAX {
        return Err(Unreadable::TooBig);
    }
    let zeros = u32::try_from(i64::from(scale) - behind).map_err(|_| Unreadable::TooBig)?;
    if zeros == 0
        && let Ok(magnitude) = significant.parse::<i64>()
    {
        return Ok(Num::Fin(
            BigInt::from(if negative { -magnitude } else { magnitude }),
            scale,
        ));
    }
    let digits = BigUint::parse_bytes(significant.as_bytes(), 10).ok_or(Unreadable::Syntax)?;
    let sign = if negative { Sign::Minus } else { Sign::Plus };
    Ok(Num::Fin(
        BigInt::from_biguint(sign, digits * power_of_ten(zeros)),
        scale,
    ))
}

/// Reads the binary form that `numeric_recv` reads, into `out`. `Unreadable::Binary` for anything
/// else, bytes left over included; `Unreadable::TooBig` for more digits than numerics have.
pub(crate) fn receive(bytes: &[u8], out: &mut Out) -> Result<(), Unreadable> {
    let mut words = bytes
        .chunks_exact(2)
        .map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
    let mut next = || words.next().ok_or(Unreadable::Binary);
    let (count, weight, sign, scale) = (next()?, next()?, next()?, next()?);
    let weight = i64::from(weight.cast_signed());
    if bytes.len() != 8 + 2 * usize::from(count) || scale & 0x3fff != scale {
        return Err(Unreadable::Binary);
    }
    if words.clone().any(|digit| digit > 9999) {
        return Err(Unreadable::Binary);
    }
    if let (0..=8, SIGN_POSITIVE | SIGN_NEGATIVE) = (count, sign) {
        let magnitude = words
            .clone()
            .fold(0_i128, |sum, digit| sum * 10_000 + i128::from(digit));
        if let Some(unscaled) = at_scale(magnitude, i64::from(count), weight, i64::from(scale)) {
            put_small(
                out,
                if sign == SIGN_NEGATIVE {
                    -unscaled
                } else {
                    unscaled
                },
                u32::from(scale),
            );
            return Ok(());
        }
    }
    let digits: Vec<u16> = words.collect();
    let number = match sign {
        SIGN_POSITIVE => from_groups(Sign::Plus, &digits, weight, u32::from(scale)),
        SIGN_NEGATIVE => from_groups(Sign::Minus, &digits, weight, u32::from(scale)),
        SIGN_NAN => Num::Nan,
        SIGN_INFINITY => Num::Inf(false),
        SIGN_MINUS_INFINITY => Num::Inf(true),
        _ => return Err(Unreadable::Binary),
    };
    number.put(out).map_err(|_| Unreadable::TooBig)
}

/// The unscaled number at that scale of `magnitude`, the value of `count` base-10000 digits, the
/// first of which has this weight. Digits after the scale are cut off. `None` if 128 bits are too
/// few.
fn at_scale(magnitude: i128, count: i64, weight: i64, scale: i64) -> Option<i128> {
    let shift = (weight + 1 - count) * GROUP + scale;
    let power = usize::try_from(shift.unsigned_abs())
        .ok()
        .and_then(|shift| TEN.get(shift));
    match power {
        Some(power) if shift >= 0 => magnitude.checked_mul(*power),
        Some(power) => Some(magnitude / power),
        None => None,
    }
}

/// The number of these base-10000 digits, the first of which has this weight; decimal digits after
/// `scale` are cut off.
fn from_groups(sign: Sign, groups: &[u16], weight: i64, scale: u32) -> Num {
    let leading = groups.iter().take_while(|group| **group == 0).count();
    let groups = &groups[leading..];
    let weight = weight - i64::try_from(leading).unwrap_or(i64::MAX);
    if groups.is_empty() {
        return Num::Fin(BigInt::ZERO, scale);
    }
    // The groups' last decimal digit is at this place, 0 for units.
    let last = (weight + 1 - i64::try_from(groups.len()).unwrap_or(i64::MAX)) * GROUP;
    let shift = last + i64::from(scale);
    // Groups beyond the scale are left out, which also keeps all powers below 10^(4 * 65536).
    if (weight + 1) * GROUP + i64::from(scale) <= 0 {
        return Num::Fin(BigInt::ZERO, scale);
    }
    let number = BigUint::from_radix_be(&decimal_digits(groups), 10).unwrap_or_default();
    let magnitude = match u32::try_from(shift) {
        Ok(more) => number * power_of_ten(more),
        Err(_) => number / power_of_ten(u32::try_from(-shift).unwrap_or(u32::MAX)),
    };
    Num::Fin(BigInt::from_biguint(sign, magnitude), scale)
}

/// The decimal digits of base-10000 digits, four of each, as numbers 0 to 9.
fn decimal_digits(groups: &[u16]) -> Vec<u8> {
    let digit = |group: u16, unit: u16| u8::try_from(group / unit % 10).unwrap_or(0);
    groups
        .iter()
        .flat_map(|group| [1000, 100, 10, 1].map(|unit| digit(*group, unit)))
        .collect()
}

/// Appends the binary form that `numeric_send` sends. `Fault::KindMismatch` if the value is no
/// numeric; `Fault::NumericOverflow` if it is too long for this form.
pub(crate) fn send(value: Value<'_>, buf: &mut Buf) -> Result<(), Fault> {
    if let Some((unscaled, scale)) = small(value)
        && send_small(unscaled, scale, buf).is_some()
    {
        return Ok(());
    }
    let (sign, unscaled, scale) = match Num::read(value)? {
        Num::Nan => (SIGN_NAN, BigUint::ZERO, 0),
        Num::Inf(false) => (SIGN_INFINITY, BigUint::ZERO, INFINITY_SCALE),
        Num::Inf(true) => (SIGN_MINUS_INFINITY, BigUint::ZERO, INFINITY_SCALE),
        Num::Fin(unscaled, scale) => {
            let (sign, magnitude) = unscaled.into_parts();
            (
                if sign == Sign::Minus {
                    SIGN_NEGATIVE
                } else {
                    SIGN_POSITIVE
                },
                magnitude,
                scale,
            )
        }
    };
    let (groups, weight) = to_groups(&unscaled, scale);
    let count = u16::try_from(groups.len()).map_err(|_| Fault::NumericOverflow)?;
    let weight = i16::try_from(weight)
        .map_err(|_| Fault::NumericOverflow)?
        .cast_unsigned();
    let scale = u16::try_from(scale).map_err(|_| Fault::NumericOverflow)?;
    for word in [count, weight, sign, scale].into_iter().chain(groups) {
        buf.extend(&word.to_be_bytes());
    }
    Ok(())
}

/// Appends the binary form of a number that is stored as a word, without allocation. `None`, and
/// nothing is appended, if 128 bits are too few.
fn send_small(unscaled: i64, scale: u32, buf: &mut Buf) -> Option<()> {
    // The last group ends where a group ends: at most three zeros more.
    let behind = i64::from(scale);
    let open = usize::try_from((-behind).rem_euclid(GROUP)).ok()?;
    let mut rest = u128::from(unscaled.unsigned_abs()) * TEN.get(open)?.unsigned_abs();
    let mut groups = [0_u16; 6];
    let mut first = groups.len();
    while rest > 0 {
        first -= 1;
        *groups.get_mut(first)? = u16::try_from(rest % 10_000).ok()?;
        rest /= 10_000;
    }
    let digits = groups.get(first..)?;
    let trailing = digits.iter().rev().take_while(|digit| **digit == 0).count();
    let last = -(behind + GROUP - 1).div_euclid(GROUP);
    let weight = if digits.is_empty() {
        0
    } else {
        last + i64::try_from(digits.len()).ok()? - 1
    };
    let digits = digits.get(..digits.len() - trailing)?;
    let sign = if unscaled < 0 {
        SIGN_NEGATIVE
    } else {
        SIGN_POSITIVE
    };
    let weight = i16::try_from(weight).ok()?.cast_unsigned();
    let head = [
        u16::try_from(digits.len()).ok()?,
        weight,
        sign,
        u16::try_from(scale).ok()?,
    ];
    buf.reserve(8 + 2 * digits.len());
    head.iter()
        .chain(digits)
        .for_each(|word| buf.extend(&word.to_be_bytes()));
    Some(())
}

/// The base-10000 digits of a number without zeros at either end, and the weight of the first.
fn to_groups(unscaled: &BigUint, scale: u32) -> (Vec<u16>, i64) {
    if unscaled.is_zero() {
        return (Vec::new(), 0);
    }
    let mut digits = unscaled.to_radix_be(10);
    let behind = i64::from(scale);
    // Trailing zeros, so that the last group is complete.
    let open = usize::try_from((-behind).rem_euclid(GROUP)).unwrap_or(0);
    digits.resize(digits.len() + open, 0);
    let open = digits.len().next_multiple_of(4) - digits.len();
    digits.splice(0..0, core::iter::repeat_n(0, open));
    let groups: Vec<u16> = digits
        .chunks(4)
        .map(|group| {
            group
                .iter()
                .fold(0, |sum, digit| sum * 10 + u16::from(*digit))
        })
        .collect();
    let weight = i64::try_from(groups.len()).unwrap_or(i64::MAX)
        - 1
        - (behind + GROUP - 1).div_euclid(GROUP);
    let leading = groups.iter().take_while(|group| **group == 0).count();
    let trailing = groups.iter().rev().take_while(|group| **group == 0).count();
    let weight = weight - i64::try_from(leading).unwrap_or(0);
    (groups[leading..groups.len() - trailing].to_vec(), weight)
}

/// The number rounded to an integer, as `numericvar_to_int64` does. `None` if it does not fit.
fn round_to_i64(unscaled: &BigInt, scale: u32) -> Option<i64> {
    match round_at(unscaled, scale, 0) {
        Num::Fin(whole, _) => whole.to_i64(),
        Num::Nan | Num::Inf(_) => None,
    }
}

/// The number rounded to an `integer` (`numeric_int4`). `Fault::Int4OutOfRange` if it does not fit;
/// NaN and infinities have faults of their own (`Fault::NumericNanToInteger`,
/// `Fault::NumericInfinityToInteger`).
pub(crate) fn to_int4(value: Value<'_>) -> Result<i32, Fault> {
    match Num::read(value)? {
        Num::Nan => Err(Fault::NumericNanToInteger),
        Num::Inf(_) => Err(Fault::NumericInfinityToInteger),
        Num::Fin(unscaled, scale) => {
            let number =
                round_to_i64(&unscaled, scale).and_then(|number| i32::try_from(number).ok());
            number.ok_or(Fault::Int4OutOfRange)
        }
    }
}

/// The number rounded to a `bigint` (`numeric_int8`). `Fault::Int8OutOfRange` if it does not fit;
/// NaN and infinities have faults of their own (`Fault::NumericNanToBigint`,
/// `Fault::NumericInfinityToBigint`).
pub(crate) fn to_int8(value: Value<'_>) -> Result<i64, Fault> {
    match Num::read(value)? {
        Num::Nan => Err(Fault::NumericNanToBigint),
        Num::Inf(_) => Err(Fault::NumericInfinityToBigint),
        Num::Fin(unscaled, scale) => round_to_i64(&unscaled, scale).ok_or(Fault::Int8OutOfRange),
    }
}

/// Sets `out` to the numeric of an integer, of scale 0 (`int8_numeric`).
pub(crate) fn of_int8(value: i64, out: &mut Out) {
    put_small(out, i128::from(value), 0);
}

/// The double nearest to the decimal (`numeric_float8`). `Fault::FloatOverflow` if it is too big
/// for a double, `Fault::FloatUnderflow` if too small, `Fault::KindMismatch` if the value is no
/// numeric.
pub(crate) fn to_float8(value: Value<'_>) -> Result<f64, Fault> {
    if let Some((unscaled, scale)) = small(value)
        && unscaled.unsigned_abs() <= 1 << 53
        && let Some(power) = usize::try_from(scale)
            .ok()
            .and_then(|scale| EXACT_POWERS.get(scale))
    {
        // Both are exact, so the one division rounds once, as reading the text does.
        #[expect(clippy::cast_precision_loss, reason = "53 bits are compared above")]
        let unscaled = unscaled as f64;
        return Ok(unscaled / power);
    }
    match Num::read(value)? {
        Num::Nan => Ok(f64::NAN),
        Num::Inf(false) => Ok(f64::INFINITY),
        Num::Inf(true) => Ok(f64::NEG_INFINITY),
        Num::Fin(unscaled, scale) => {
            let mut text = Buf::new();
            print(value, &mut text)?;
            let small = super::first_digit_place(unscaled.magnitude(), scale) < Some(0);
            let text = core::str::from_utf8(text.as_slice()).unwrap_or("");
            crate::float::parse(text).map_err(|_| {
                if small {
                    Fault::FloatUnderflow
                } else {
                    Fault::FloatOverflow
                }
            })
        }
    }
}

/// The powers of ten that a double holds exactly.
const EXACT_POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];

/// Sets `out` to the numeric of a double with 15 significant digits, as `%.15g` gives them
/// (`float8_numeric`); NaN and the infinities become those of numeric. No double has too many
/// digits; if one had, the error would be `Fault::NumericOverflow`.
pub(crate) fn of_float8(value: f64, out: &mut Out) -> Result<(), Fault> {
    if value.is_nan() {
        return Num::Nan.put(out);
    }
    if value.is_infinite() {
        return Num::Inf(value < 0.0).put(out);
    }
    let mut text = Buf::new();
    // Writing to memory does not fail.
    write!(text, "{value:.14e}").map_err(|_| Fault::OutOfMemory)?;
    let text = core::str::from_utf8(text.as_slice()).unwrap_or("");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let exponent: i64 = exponent.parse().map_err(|_| Fault::OutOfMemory)?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let negative = whole.starts_with('-');
    let fraction = fraction.trim_end_matches('0');
    let number = assemble(negative, whole.trim_start_matches('-'), fraction, exponent);
    number.map_err(|_| Fault::NumericOverflow)?.put(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(text: &str, shown: &str) {
        let mut out = Out::new();
        assert!(parse(text, &mut out).is_ok(), "{text}");
        let mut printed = Buf::new();
        print(out.value(), &mut printed).unwrap();
        assert_eq!(core::str::from_utf8(printed.as_slice()).unwrap(), shown);
        let mut sent = Buf::new();
        send(out.value(), &mut sent).unwrap();
        let mut back = Out::new();
        assert!(receive(sent.as_slice(), &mut back).is_ok(), "{text}");
        let mut again = Buf::new();
        print(back.value(), &mut again).unwrap();
        assert_eq!(core::str::from_utf8(again.as_slice()).unwrap(), shown);
    }

    #[test]
    fn text_and_binary_come_back() {
        for (text, shown) in [
            ("0", "0"),
            ("-0.00", "0.00"),
            (" 1.50 ", "1.50"),
            ("1e3", "1000"),
            ("1.500e2", "150.0"),
            ("15e-4", "0.0015"),
            ("1e 2", "100"),
            (".5", "0.5"),
            ("5.", "5"),
            ("-10000.0001", "-10000.0001"),
            ("1e40", "10000000000000000000000000000000000000000"),
            ("nan", "NaN"),
            ("-INF", "-Infinity"),
            (
                "0.00000000000000000000000000000001",
                "0.00000000000000000000000000000001",
            ),
        ] {
            round_trip(text, shown);
        }
    }

    #[test]
    fn what_is_no_number_is_refused() {
        let mut out = Out::new();
        for bad in [
            "", ".", "1..2", "1.2.3", "e5", "1e", "1e+", "--1", "1x", "nan1", "infinit", "0x1",
            "1_0",
        ] {
            assert!(
                matches!(parse(bad, &mut out), Err(Unreadable::Syntax)),
                "{bad}"
            );
        }
        for big in ["1e131072", "1e-16384", "1e999999999999999999", "0e-16384"] {
            assert!(
                matches!(parse(big, &mut out), Err(Unreadable::TooBig)),
                "{big}"
            );
        }
        assert!(parse("1e131071", &mut out).is_ok() && parse("1e-16383", &mut out).is_ok());
        assert!(parse("0e999999", &mut out).is_ok());
    }

    #[test]
    fn digits_behind_the_scale_are_cut_off() {
        let mut out = Out::new();
        // 1.2345 with scale 2
        let bytes = [0, 2, 0, 0, 0, 0, 0, 2, 0, 1, 0x09, 0x29];
        assert!(receive(&bytes, &mut out).is_ok());
        let mut text = Buf::new();
        print(out.value(), &mut text).unwrap();
        assert_eq!(text.as_slice(), b"1.23");
    }
}
