//! NUMERIC's arithmetic: results, scales, rounding and errors of PostgreSQL's numeric.c.
//!
//! Each function has a path for two words that allocates nothing, and one for everything else. Must
//! not: keep a result.

use core::cmp::Ordering;

use num_bigint::{BigInt, BigUint, Sign};
use strongroom_columns_ring::Fault;

use super::{Num, SCALE_MAX, TEN, TEN64, first_digit_place, power_of_ten, put_small, small};
use crate::value::{Out, Value};

/// `NUMERIC_MIN_SIG_DIGITS`
const SIGNIFICANT_MIN: i64 = 16;
/// `NUMERIC_MAX_DISPLAY_SCALE`
const DISPLAY_SCALE_MAX: i64 = 1000;

/// `10^exponent`. `None` if it does not fit.
fn power(exponent: u32) -> Option<i128> {
    TEN.get(usize::try_from(exponent).ok()?).copied()
}

/// The unscaled numbers of both at the greater of their scales, and that scale. `None` if one is
/// not stored as a word, or does not fit.
fn aligned(a: Value<'_>, b: Value<'_>) -> Option<(i128, i128, u32)> {
    let ((a, a_scale), (b, b_scale)) = (small(a)?, small(b)?);
    let (a, b) = (i128::from(a), i128::from(b));
    match a_scale.cmp(&b_scale) {
        Ordering::Equal => Some((a, b, a_scale)),
        Ordering::Less => Some((a.checked_mul(power(b_scale - a_scale)?)?, b, b_scale)),
        Ordering::Greater => Some((a, b.checked_mul(power(a_scale - b_scale)?)?, a_scale)),
    }
}

/// The unscaled numbers of both at the greater of their scales, and that scale, in 64 bits, which
/// are enough for nearly all. `None` if one is not stored as a word, or does not fit.
#[inline]
fn aligned64(a: Value<'_>, b: Value<'_>) -> Option<(i64, i64, u32)> {
    align(small(a)?, small(b)?)
}

/// The same of the unscaled numbers and scales of two numerics.
#[inline]
pub(crate) fn align((a, a_scale): (i64, u32), (b, b_scale): (i64, u32)) -> Option<(i64, i64, u32)> {
    if a_scale == b_scale {
        return Some((a, b, a_scale));
    }
    let factor = *TEN64.get(usize::try_from(a_scale.abs_diff(b_scale)).ok()?)?;
    if a_scale < b_scale {
        Some((a.checked_mul(factor)?, b, b_scale))
    } else {
        Some((a, b.checked_mul(factor)?, a_scale))
    }
}

/// `a + b` (`numeric_add`), into `out`. `Fault::NumericOverflow` if the result is too long for a
/// numeric, `Fault::KindMismatch` if an argument is none.
pub(crate) fn add(a: Value<'_>, b: Value<'_>, out: &mut Out) -> Result<(), Fault> {
    if let Some((x, y, scale)) = aligned64(a, b)
        && let Some(sum) = x.checked_add(y)
    {
        put_small(out, i128::from(sum), scale);
        return Ok(());
    }
    if let Some((x, y, scale)) = aligned(a, b)
        && let Some(sum) = x.checked_add(y)
    {
        put_small(out, sum, scale);
        return Ok(());
    }
    sum(&Num::read(a)?, &Num::read(b)?).put(out)
}

/// `a - b` (`numeric_sub`), into `out`. `Fault::NumericOverflow` if the result is too long for a
/// numeric, `Fault::KindMismatch` if an argument is none.
pub(crate) fn sub(a: Value<'_>, b: Value<'_>, out: &mut Out) -> Result<(), Fault> {
    if let Some((x, y, scale)) = aligned64(a, b)
        && let Some(difference) = x.checked_sub(y)
    {
        put_small(out, i128::from(difference), scale);
        return Ok(());
    }
    if let Some((x, y, scale)) = aligned(a, b)
        && let Some(difference) = x.checked_sub(y)
    {
        put_small(out, difference, scale);
        return Ok(());
    }
    sum(&Num::read(a)?, &negated(Num::read(b)?)).put(out)
}

/// `a * b` (`numeric_mul`), into `out`. `Fault::NumericOverflow` if the result is too long for a
/// numeric, `Fault::KindMismatch` if an argument is none.
pub(crate) fn mul(a: Value<'_>, b: Value<'_>, out: &mut Out) -> Result<(), Fault> {
    if let (Some((x, x_scale)), Some((y, y_scale))) = (small(a), small(b)) {
        put_small(out, i128::from(x) * i128::from(y), x_scale + y_scale);
        return Ok(());
    }
    product(&Num::read(a)?, &Num::read(b)?).put(out)
}

/// `a / b` (`numeric_div`), into `out`, with the scale that PostgreSQL chooses.
/// `Fault::DivisionByZero` if `b` is 0 and `a` not NaN, `Fault::NumericOverflow` if the result is
/// too long for a numeric, `Fault::KindMismatch` if an argument is none.
pub(crate) fn div(a: Value<'_>, b: Value<'_>, out: &mut Out) -> Result<(), Fault> {
    if let Some((quotient, scale)) = div_small(a, b)? {
        put_small(out, quotient, scale);
        return Ok(());
    }
    quotient(&Num::read(a)?, &Num::read(b)?)?.put(out)
}

/// Divides numerics that are stored as words: unscaled quotient and scale. `None` if one is not a
/// word, or a step does not fit. `Fault::DivisionByZero` if `b` is a word and 0.
fn div_small(a: Value<'_>, b: Value<'_>) -> Result<Option<(i128, u32)>, Fault> {
    let (Some((a, a_scale)), Some((b, b_scale))) = (small(a), small(b)) else {
        return Ok(None);
    };
    if b == 0 {
        return Err(Fault::DivisionByZero);
    }
    let scale = quotient_scale(
        small_lead(a, a_scale),
        small_lead(b, b_scale),
        a_scale,
        b_scale,
    );
    // Both scales are at most 127 here, so the quotient's is not below either.
    let Some(factor) = power(scale + b_scale - a_scale) else {
        return Ok(None);
    };
    let (dividend, divisor) = (u128::from(a.unsigned_abs()), u128::from(b.unsigned_abs()));
    let Some(dividend) = dividend.checked_mul(factor.unsigned_abs()) else {
        return Ok(None);
    };
    let whole = dividend / divisor;
    let rest = dividend - whole * divisor;
    let magnitude = if rest * 2 >= divisor {
        whole + 1
    } else {
        whole
    };
    let quotient = i128::try_from(magnitude).ok();
    Ok(quotient.map(|quotient| {
        (
            if (a < 0) == (b < 0) {
                quotient
            } else {
                -quotient
            },
            scale,
        )
    }))
}

/// Weight and value of the first base-10000 digit that is not 0; (0, 0) for 0.
type Lead = (i64, u32);

/// The weight and the value of the first base-10000 digit that is not 0; both 0 for zero.
fn small_lead(unscaled: i64, scale: u32) -> Lead {
    let magnitude = unscaled.unsigned_abs();
    let Some(log) = magnitude.checked_ilog10() else {
        return (0, 0);
    };
    let place = i64::from(log) - i64::from(scale);
    let wanted = u32::try_from(place.rem_euclid(4)).unwrap_or(0);
    let digit = match log.checked_sub(wanted) {
        Some(drop) => magnitude / 10_u64.pow(drop),
        None => magnitude * 10_u64.pow(wanted - log),
    };
    (place.div_euclid(4), u32::try_from(digit).unwrap_or(0))
}

/// The weight and the value of the first base-10000 digit that is not 0; both 0 for zero. For
/// numbers of any size.
fn lead(unscaled: &BigUint, scale: u32) -> Lead {
    let Some(place) = first_digit_place(unscaled, scale) else {
        return (0, 0);
    };
    let wanted = place.rem_euclid(4) + 1;
    let count = place + 1 + i64::from(scale);
    let digit = match u32::try_from(count - wanted) {
        Ok(drop) => unscaled / power_of_ten(drop),
        Err(_) => unscaled * power_of_ten(u32::try_from(wanted - count).unwrap_or(0)),
    };
    (place.div_euclid(4), u32::try_from(&digit).unwrap_or(0))
}

/// The scale of a quotient, as PostgreSQL chooses it (`select_div_scale`).
fn quotient_scale(a: Lead, b: Lead, a_scale: u32, b_scale: u32) -> u32 {
    let weight = a.0 - b.0 - i64::from(a.1 <= b.1);
    let wanted = (SIGNIFICANT_MIN - weight * 4)
        .max(i64::from(a_scale))
        .max(i64::from(b_scale));
    u32::try_from(wanted.clamp(0, DISPLAY_SCALE_MAX)).unwrap_or(0)
}

/// The sum. Infinities of both signs, or NaN, give NaN.
fn sum(a: &Num, b: &Num) -> Num {
    match (a, b) {
        (Num::Nan, _) | (_, Num::Nan) => Num::Nan,
        (Num::Inf(a), Num::Inf(b)) => {
            if a == b {
                Num::Inf(*a)
            } else {
                Num::Nan
            }
        }
        (Num::Inf(sign), _) | (_, Num::Inf(sign)) => Num::Inf(*sign),
        (Num::Fin(a, a_scale), Num::Fin(b, b_scale)) => {
            let scale = *a_scale.max(b_scale);
            Num::Fin(
                rescaled(a, *a_scale, scale) + rescaled(b, *b_scale, scale),
                scale,
            )
        }
    }
}

/// The unscaled number at the scale `wanted`, which must not be lower than `scale`.
pub(crate) fn rescaled(unscaled: &BigInt, scale: u32, wanted: u32) -> BigInt {
    match wanted.checked_sub(scale) {
        None | Some(0) => unscaled.clone(),
        Some(more) => unscaled * BigInt::from(power_of_ten(more)),
    }
}

/// The number with the other sign; NaN stays.
pub(crate) fn negated(number: Num) -> Num {
    match number {
        Num::Nan => Num::Nan,
        Num::Inf(negative) => Num::Inf(!negative),
        Num::Fin(unscaled, scale) => Num::Fin(-unscaled, scale),
    }
}

/// The product, rounded to [`SCALE_MAX`] if its scale would exceed it. NaN for zero times infinity.
fn product(a: &Num, b: &Num) -> Num {
    match (a, b) {
        (Num::Nan, _) | (_, Num::Nan) => Num::Nan,
        (Num::Inf(_), _) | (_, Num::Inf(_)) => match a.signum() * b.signum() {
            0 => Num::Nan,
            sign => Num::Inf(sign < 0),
        },
        (Num::Fin(a, a_scale), Num::Fin(b, b_scale)) => {
            let (exact, scale) = (a * b, a_scale + b_scale);
            if scale > SCALE_MAX {
                round_at(&exact, scale, i64::from(SCALE_MAX))
            } else {
                Num::Fin(exact, scale)
            }
        }
    }
}

/// The quotient, with the scale that PostgreSQL chooses. `Fault::DivisionByZero` for a divisor of
/// zero, unless the dividend is NaN.
pub(crate) fn quotient(a: &Num, b: &Num) -> Result<Num, Fault> {
    let (a, a_scale, b, b_scale) = match (a, b) {
        (Num::Nan, _) | (_, Num::Nan) => return Ok(Num::Nan),
        (Num::Inf(_), Num::Inf(_)) => return Ok(Num::Nan),
        (Num::Inf(negative), _) => {
            return match b.signum() {
                0 => Err(Fault::DivisionByZero),
                sign => Ok(Num::Inf(*negative != (sign < 0))),
            };
        }
        (_, Num::Inf(_)) => return Ok(Num::zero()),
        (Num::Fin(a, a_scale), Num::Fin(b, b_scale)) => (a, *a_scale, b, *b_scale),
    };
    if b.sign() == Sign::NoSign {
        return Err(Fault::DivisionByZero);
    }
    let scale = quotient_scale(
        lead(a.magnitude(), a_scale),
        lead(b.magnitude(), b_scale),
        a_scale,
        b_scale,
    );
    Ok(Num::Fin(divided(a, a_scale, b, b_scale, scale), scale))
}

/// The unscaled quotient at `scale`, rounded half away from zero. `b` must not be 0.
fn divided(a: &BigInt, a_scale: u32, b: &BigInt, b_scale: u32, scale: u32) -> BigInt {
    let shift = i64::from(scale) + i64::from(b_scale) - i64::from(a_scale);
    let (a_more, b_more) = match u32::try_from(shift) {
        Ok(more) => (power_of_ten(more), BigUint::from(1_u8)),
        Err(_) => (
            BigUint::from(1_u8),
            power_of_ten(u32::try_from(-shift).unwrap_or(0)),
        ),
    };
    let negative = (a.sign() == Sign::Minus) != (b.sign() == Sign::Minus);
    let magnitude = half_away(&(a.magnitude() * a_more), &(b.magnitude() * b_more));
    BigInt::from_biguint(if negative { Sign::Minus } else { Sign::Plus }, magnitude)
}

/// `a / b`, rounded to the nearest whole number, and a half up. `b` must not be 0.
fn half_away(a: &BigUint, b: &BigUint) -> BigUint {
    let (whole, rest) = (a / b, a % b);
    if rest * 2_u8 >= *b {
        whole + 1_u8
    } else {
        whole
    }
}

/// The remainder of `a / b`, with the sign of `a` (`numeric_mod`), into `out`.
/// `Fault::DivisionByZero` if `b` is 0 and `a` not NaN, `Fault::KindMismatch` if an argument is no
/// numeric.
pub(crate) fn modulo(a: Value<'_>, b: Value<'_>, out: &mut Out) -> Result<(), Fault> {
    if let Some((x, y, scale)) = aligned(a, b) {
        let rest = x.checked_rem(y).ok_or(Fault::DivisionByZero)?;
        put_small(out, rest, scale);
        return Ok(());
    }
    let (a, b) = (Num::read(a)?, Num::read(b)?);
    let result = match (&a, &b) {
        (Num::Nan, _) | (_, Num::Nan) => Num::Nan,
        (Num::Inf(_), _) if b.signum() == 0 => return Err(Fault::DivisionByZero),
        (Num::Inf(_), _) => Num::Nan,
        (_, Num::Inf(_)) => a,
        (Num::Fin(_, _), Num::Fin(y, _)) if y.sign() == Sign::NoSign => {
            return Err(Fault::DivisionByZero);
        }
        (Num::Fin(x, x_scale), Num::Fin(y, y_scale)) => {
            let scale = *x_scale.max(y_scale);
            Num::Fin(
                rescaled(x, *x_scale, scale) % rescaled(y, *y_scale, scale),
                scale,
            )
        }
    };
    result.put(out)
}

/// The number with the other sign (`numeric_uminus`), into `out`. `Fault::KindMismatch` if it is no
/// numeric.
pub(crate) fn negate(a: Value<'_>, out: &mut Out) -> Result<(), Fault> {
    if let Some((unscaled, scale)) = small(a) {
        put_small(out, -i128::from(unscaled), scale);
        return Ok(());
    }
    negated(Num::read(a)?).put(out)
}

/// The absolute value (`numeric_abs`), into `out`. `Fault::KindMismatch` if it is no numeric.
pub(crate) fn abs(a: Value<'_>, out: &mut Out) -> Result<(), Fault> {
    if let Some((unscaled, scale)) = small(a) {
        put_small(out, i128::from(unscaled).abs(), scale);
        return Ok(());
    }
    let number = Num::read(a)?;
    if number.signum() < 0 {
        negated(number).put(out)
    } else {
        number.put(out)
    }
}

/// -1, 0 or 1; NaN for NaN (`numeric_sign`), into `out`. `Fault::KindMismatch` if it is no numeric.
pub(crate) fn sign(a: Value<'_>, out: &mut Out) -> Result<(), Fault> {
    let number = Num::read(a)?;
    if number == Num::Nan {
        return number.put(out);
    }
    put_small(out, i128::from(number.signum()), 0);
    Ok(())
}

/// A finite number rounded half away from zero at `wanted` digits after the point, which may be
/// negative for places before it (`round_var`).
pub(crate) fn round_at(unscaled: &BigInt, scale: u32, wanted: i64) -> Num {
    let shown = u32::try_from(wanted).unwrap_or(0);
    match u32::try_from(i64::from(scale) - wanted) {
        Ok(drop) if drop > 0 => {
            // More than all digits and one: the result is 0 whatever the digits are.
            if drop > super::digits(unscaled.magnitude()) + 1 {
                return Num::Fin(BigInt::ZERO, shown);
            }
            let rounded = half_away(unscaled.magnitude(), &power_of_ten(drop));
            at_place(unscaled.sign(), rounded, wanted, shown)
        }
        _ => Num::Fin(rescaled(unscaled, scale, shown), shown),
    }
}

/// A finite number cut off after `wanted` digits after the point, which may be negative for places
/// before it (`trunc_var`).
fn trunc_at(unscaled: &BigInt, scale: u32, wanted: i64) -> Num {
    let shown = u32::try_from(wanted).unwrap_or(0);
    match u32::try_from(i64::from(scale) - wanted) {
        Ok(drop) if drop > 0 => {
            if drop > super::digits(unscaled.magnitude()) {
                return Num::Fin(BigInt::ZERO, shown);
            }
            at_place(
                unscaled.sign(),
                unscaled.magnitude() / power_of_ten(drop),
                wanted,
                shown,
            )
        }
        _ => Num::Fin(rescaled(unscaled, scale, shown), shown),
    }
}

/// The number whose last digit is at place `wanted` (negative: before the point), shown with scale
/// `shown`.
fn at_place(sign: Sign, digits: BigUint, wanted: i64, shown: u32) -> Num {
    let zeros = u32::try_from(-wanted).unwrap_or(0);
    Num::Fin(
        BigInt::from_biguint(sign, digits * power_of_ten(zeros)),
        shown,
    )
}

/// Rounds or cuts off a numeric that is stored as a word at scale `wanted`, without allocation:
/// unscaled number and scale. `None` if it is no word, `wanted` is negative or a step does not fit.
fn reduce_small(value: Value<'_>, wanted: i32, round: bool) -> Option<(i128, u32)> {
    let (unscaled, scale) = small(value)?;
    let wanted = u32::try_from(wanted).ok()?;
    let unscaled = i128::from(unscaled);
    let Some(drop) = scale.checked_sub(wanted) else {
        return Some((unscaled.checked_mul(power(wanted - scale)?)?, wanted));
    };
    let factor = power(drop)?;
    let half = if round {
        unscaled.signum() * (factor / 2)
    } else {
        0
    };
    Some((
        (unscaled + if drop == 0 { 0 } else { half }) / factor,
        wanted,
    ))
}

/// Rounds half away from zero to `wanted` digits after the point, or, if negative, to that many
/// before it (`numeric_round`), into `out`. NaN and infinities stay. `Fault::NumericOverflow` if
/// the result is too long for a numeric, `Fault::KindMismatch` if an argument is none.
pub(crate) fn round(a: Value<'_>, wanted: i32, out: &mut Out) -> Result<(), Fault> {
    let wanted = i64::from(wanted).clamp(-131_073, i64::from(SCALE_MAX));
    reduce(a, wanted, true, out)
}

/// Cuts off after `wanted` digits after the point, or, if negative, that many before it become 0
/// (`numeric_trunc`), into `out`. NaN and infinities stay. `Fault::NumericOverflow` if the result
/// is too long for a numeric, `Fault::KindMismatch` if an argument is none.
pub(crate) fn trunc(a: Value<'_>, wanted: i32, out: &mut Out) -> Result<(), Fault> {
    let wanted = i64::from(wanted).clamp(-131_072, i64::from(SCALE_MAX));
    reduce(a, wanted, false, out)
}

/// Sets `out` to `a`, rounded half away from zero (`rounds`) or else cut off, to `wanted` digits
/// after the point; a negative `wanted` counts digits before it. NaN and infinities stay.
/// `Fault::NumericOverflow` if the result is too long for a numeric, `Fault::KindMismatch` if `a`
/// is none.
fn reduce(a: Value<'_>, wanted: i64, rounds: bool, out: &mut Out) -> Result<(), Fault> {
    let small = i32::try_from(wanted)
        .ok()
        .and_then(|wanted| reduce_small(a, wanted, rounds));
    if let Some((unscaled, scale)) = small {
        put_small(out, unscaled, scale);
        return Ok(());
    }
    match Num::read(a)? {
        Num::Fin(unscaled, scale) if rounds => round_at(&unscaled, scale, wanted).put(out),
        Num::Fin(unscaled, scale) => trunc_at(&unscaled, scale, wanted).put(out),
        special => special.put(out),
    }
}

/// The nearest integer not below (`numeric_ceil`, `sign` 1), or not above (`numeric_floor`, `sign`
/// -1), into `out`. NaN and infinities stay. `Fault::NumericOverflow` if the result is too long for
/// a numeric, `Fault::KindMismatch` if an argument is none.
pub(crate) fn toward(a: Value<'_>, sign: i32, out: &mut Out) -> Result<(), Fault> {
    if let Some((unscaled, scale)) = small(a)
        && let Some(factor) = power(scale)
    {
        let unscaled = i128::from(unscaled);
        let below = unscaled.div_euclid(factor);
        let exact = unscaled.rem_euclid(factor) == 0;
        put_small(out, if sign > 0 && !exact { below + 1 } else { below }, 0);
        return Ok(());
    }
    let number = Num::read(a)?;
    let Num::Fin(unscaled, scale) = &number else {
        return number.put(out);
    };
    let whole = trunc_at(unscaled, *scale, 0);
    let Num::Fin(cut, _) = &whole else {
        return whole.put(out);
    };
    let exact = rescaled(cut, 0, *scale) == *unscaled;
    if exact || number.signum() != sign {
        return whole.put(out);
    }
    Num::Fin(cut + sign, 0).put(out)
}

/// The square root (`numeric_sqrt`), with the scale that PostgreSQL chooses, into `out`.
/// `Fault::SqrtNegative` for a negative number or -Infinity, `Fault::KindMismatch` if it is no
/// numeric.
pub(crate) fn sqrt(a: Value<'_>, out: &mut Out) -> Result<(), Fault> {
    let number = Num::read(a)?;
    if number.signum() < 0 {
        return Err(Fault::SqrtNegative);
    }
    let Num::Fin(unscaled, scale) = &number else {
        return number.put(out);
    };
    let weight = lead(unscaled.magnitude(), *scale).0;
    let whole = (weight + 1) * 2 - 1;
    let wanted = (SIGNIFICANT_MIN - whole)
        .max(i64::from(*scale))
        .clamp(0, DISPLAY_SCALE_MAX);
    let wanted = u32::try_from(wanted).unwrap_or(0);
    Num::Fin(root(unscaled.magnitude(), *scale, wanted), wanted).put(out)
}

/// The unscaled square root at scale `wanted`, rounded half up (`sqrt_var`), of `magnitude /
/// 10^scale`.
pub(crate) fn root(magnitude: &BigUint, scale: u32, wanted: u32) -> BigInt {
    // One digit more than wanted, cut off, decides the rounding as all digits would.
    let shift = i64::from(2 * (wanted + 1)) - i64::from(scale);
    let radicand = match u32::try_from(shift) {
        Ok(more) => magnitude * power_of_ten(more),
        Err(_) => magnitude / power_of_ten(u32::try_from(-shift).unwrap_or(0)),
    };
    BigInt::from((radicand.sqrt() + 5_u8) / 10_u8)
}

/// The bits of a type's modifier that are precision and scale of a numeric; the bits above say the
/// column's class.
const MODIFIER_BITS: i32 = 0x0fff_ffff;
/// What PostgreSQL adds to precision and scale (VARHDRSZ).
const MODIFIER_FROM: i32 = 4;

/// Whether a type's modifier has a numeric's precision and scale.
#[must_use]
pub const fn has_precision(typmod: i32) -> bool {
    typmod >= 0 && typmod & MODIFIER_BITS >= MODIFIER_FROM
}

/// Precision and scale that a numeric's type modifier has (`numeric.c`,
/// `numeric_typmod_precision`, `numeric_typmod_scale`), the scale perhaps negative. `None` if it
/// has neither.
#[must_use]
pub const fn precision_and_scale(typmod: i32) -> Option<(i32, i32)> {
    if !has_precision(typmod) {
        return None;
    }
    let packed = (typmod & MODIFIER_BITS) - MODIFIER_FROM;
    Some(((packed >> 16) & 0xffff, ((packed & 0x7ff) ^ 1024) - 1024))
}

/// Sets `out` to the number, rounded to the precision and scale of a type modifier
/// (`numeric(numeric, typmod)`). Without them ([`has_precision`]) any number stays as it is, and
/// NaN always.
///
/// # Errors
/// [`Fault::NumericFieldOverflow`], with precision and scale, for an infinity and for too many
/// digits before the point; [`Fault::KindMismatch`] if `a` is no numeric.
pub fn coerce(a: Value<'_>, typmod: i32, out: &mut Out) -> Result<(), Fault> {
    let number = Num::read(a)?;
    let Some((precision, scale)) = precision_and_scale(typmod) else {
        return number.put(out);
    };
    let (precision, scale) = (i64::from(precision), i64::from(scale));
    let rounded = match &number {
        Num::Nan => return number.put(out),
        Num::Inf(_) => return Err(Fault::NumericFieldOverflow),
        Num::Fin(unscaled, old) => round_at(unscaled, *old, scale),
    };
    if let Num::Fin(unscaled, shown) = &rounded
        && first_digit_place(unscaled.magnitude(), *shown) >= Some(precision - scale)
    {
        return Err(Fault::NumericFieldOverflow);
    }
    rounded.put(out)
}

/// Orders numerics as PostgreSQL does (`cmp_numerics`): NaN is the greatest, and equal to itself.
/// `Fault::KindMismatch` if an argument is no numeric.
pub(crate) fn compare(a: Value<'_>, b: Value<'_>) -> Result<Ordering, Fault> {
    if let Some((x, y, _)) = aligned64(a, b) {
        return Ok(x.cmp(&y));
    }
    if let Some((x, y, _)) = aligned(a, b) {
        return Ok(x.cmp(&y));
    }
    Ok(order(&Num::read(a)?, &Num::read(b)?))
}

/// Orders numbers as PostgreSQL does: NaN is the greatest, and equal to itself.
fn order(a: &Num, b: &Num) -> Ordering {
    match (a, b) {
        (Num::Nan, Num::Nan) => Ordering::Equal,
        (Num::Nan, _) => Ordering::Greater,
        (_, Num::Nan) => Ordering::Less,
        (Num::Inf(_), _) | (_, Num::Inf(_)) => rank(a).cmp(&rank(b)),
        (Num::Fin(a, a_scale), Num::Fin(b, b_scale)) => {
            let scale = *a_scale.max(b_scale);
            rescaled(a, *a_scale, scale).cmp(&rescaled(b, *b_scale, scale))
        }
    }
}

/// A number that orders infinities around all finite numbers, which are 0.
fn rank(number: &Num) -> i32 {
    match number {
        Num::Inf(true) => -1,
        Num::Fin(..) => 0,
        Num::Inf(false) | Num::Nan => 1,
    }
}
