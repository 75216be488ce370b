//! NUMERIC as the zone keeps it, and the parts of it that PostgreSQL's rules speak of.
//!
//! A finite numeric is an unscaled integer and a display scale: the value is `unscaled / 10^scale`,
//! and 1.0 is not 1.00. The form is a word when the unscaled number fits 56 bits and the scale 7;
//! otherwise bytes: a tag, the scale (2 bytes), and the magnitude without leading zeros,
//! little-endian. Each value with its scale has exactly one form. PostgreSQL keeps base-10000
//! digits (src/backend/utils/adt/numeric.c); where its rules depend on them (scale of a quotient,
//! overflow) the digits are derived. Must not: round anything (see `arithmetic.rs`). Big
//! intermediate integers live on the heap and are freed, not zeroised.

pub(crate) mod arithmetic;
pub(crate) mod forms;

use num_bigint::{BigInt, BigUint, Sign};
use strongroom_columns_ring::Fault;

use crate::value::{Out, Value};

/// The greatest display scale (`NUMERIC_DSCALE_MAX`).
pub(crate) const SCALE_MAX: u32 = 16383;
/// Digits that can stand before the decimal point: (`NUMERIC_WEIGHT_MAX` + 1) * `DEC_DIGITS`.
pub(crate) const WHOLE_DIGITS_MAX: i64 = 131_072;

/// Limits of what fits a word.
const WORD_SCALE_MAX: u32 = 127;
const WORD_LIMIT: i128 = 1 << 55;

const TAG_POSITIVE: u8 = 0;
const TAG_NEGATIVE: u8 = 1;
const TAG_NAN: u8 = 2;
const TAG_INFINITY: u8 = 3;
const TAG_MINUS_INFINITY: u8 = 4;

/// The powers of ten that an `i128` holds.
pub(crate) const TEN: [i128; 39] = {
    let mut powers = [1_i128; 39];
    let mut at = 1;
    while at < 39 {
        powers[at] = powers[at - 1] * 10;
        at += 1;
    }
    powers
};

/// The powers of ten that an `i64` holds.
pub(crate) const TEN64: [i64; 19] = {
    let mut powers = [1_i64; 19];
    let mut at = 1;
    while at < 19 {
        powers[at] = powers[at - 1] * 10;
        at += 1;
    }
    powers
};

/// A numeric taken apart.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Num {
    /// Not a number: equal to itself, greater than everything.
    Nan,
    /// Infinity; negative when true.
    Inf(bool),
    /// `0` unscaled, `1` the scale.
    Fin(BigInt, u32),
}

/// The unscaled number and the scale of a numeric that is stored as a word. `None` for bytes.
pub(crate) const fn small(value: Value<'_>) -> Option<(i64, u32)> {
    match value {
        Value::Word(word) => Some(parts(word)),
        Value::Bytes(_) => None,
    }
}

/// The unscaled number and the scale of a numeric in a word.
pub(crate) const fn parts(word: u64) -> (i64, u32) {
    (word.cast_signed() >> 8, (word & 0x7f) as u32)
}

/// The word of a finite numeric, `unscaled / 10^scale`. `None` if it does not fit.
#[inline]
pub(crate) fn word_of(unscaled: i128, scale: u32) -> Option<u64> {
    if scale > WORD_SCALE_MAX || !(-WORD_LIMIT..WORD_LIMIT).contains(&unscaled) {
        return None;
    }
    #[expect(
        clippy::cast_possible_truncation,
        reason = "56 bits are compared above"
    )]
    let shifted = (unscaled as i64) << 8;
    Some(shifted.cast_unsigned() | u64::from(scale))
}

/// Sets `out` to a finite numeric, `unscaled / 10^scale`. `scale` must not be above [`SCALE_MAX`].
pub(crate) fn put_small(out: &mut Out, unscaled: i128, scale: u32) {
    if let Some(word) = word_of(unscaled, scale) {
        out.set_word(word);
    } else {
        put_magnitude(
            out,
            unscaled < 0,
            scale,
            &unscaled.unsigned_abs().to_le_bytes(),
        );
    }
}

/// Sets `out` to the form in bytes of a finite number, with this little-endian magnitude less its
/// zeros at the end.
fn put_magnitude(out: &mut Out, negative: bool, scale: u32, magnitude: &[u8]) {
    let len = magnitude
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |at| at + 1);
    let buf = out.begin(3 + len);
    buf.push(if negative { TAG_NEGATIVE } else { TAG_POSITIVE });
    let scale = u16::try_from(scale).unwrap_or(u16::MAX);
    buf.extend(&scale.to_le_bytes());
    buf.extend(&magnitude[..len]);
}

impl Num {
    /// Zero of scale 0.
    pub(crate) fn zero() -> Self {
        Self::Fin(BigInt::ZERO, 0)
    }

    /// Reads a numeric in the store's form. `Fault::KindMismatch` for bytes that are none.
    pub(crate) fn read(value: Value<'_>) -> Result<Self, Fault> {
        let bytes = match value {
            Value::Word(_) => {
                let (unscaled, scale) = small(value).ok_or(Fault::KindMismatch)?;
                return Ok(Self::Fin(BigInt::from(unscaled), scale));
            }
            Value::Bytes(bytes) => bytes,
        };
        let sign = match bytes {
            [TAG_NAN] => return Ok(Self::Nan),
            [TAG_INFINITY] => return Ok(Self::Inf(false)),
            [TAG_MINUS_INFINITY] => return Ok(Self::Inf(true)),
            [TAG_POSITIVE, ..] => Sign::Plus,
            [TAG_NEGATIVE, ..] => Sign::Minus,
            _ => return Err(Fault::KindMismatch),
        };
        let [_, low, high, magnitude @ ..] = bytes else {
            return Err(Fault::KindMismatch);
        };
        let scale = u32::from(u16::from_le_bytes([*low, *high]));
        Ok(Self::Fin(BigInt::from_bytes_le(sign, magnitude), scale))
    }

    /// Sets `out` to the numeric in the store's form.
    ///
    /// # Errors
    /// [`Fault::NumericOverflow`] where `make_result` has it: the scale or the digits before the
    /// point are too many.
    pub(crate) fn put(&self, out: &mut Out) -> Result<(), Fault> {
        match self {
            Self::Nan => out.set_bytes(&[TAG_NAN]),
            Self::Inf(false) => out.set_bytes(&[TAG_INFINITY]),
            Self::Inf(true) => out.set_bytes(&[TAG_MINUS_INFINITY]),
            Self::Fin(unscaled, scale) => {
                if *scale > SCALE_MAX || is_too_long(unscaled.magnitude(), *scale) {
                    return Err(Fault::NumericOverflow);
                }
                match i128::try_from(unscaled) {
                    Ok(unscaled) => put_small(out, unscaled, *scale),
                    Err(_) => put_magnitude(
                        out,
                        unscaled.sign() == Sign::Minus,
                        *scale,
                        &unscaled.magnitude().to_bytes_le(),
                    ),
                }
            }
        }
        Ok(())
    }

    /// The sign: -1, 0 or 1; 0 for NaN.
    pub(crate) fn signum(&self) -> i32 {
        match self {
            Self::Nan => 0,
            Self::Inf(negative) => {
                if *negative {
                    -1
                } else {
                    1
                }
            }
            Self::Fin(unscaled, _) => match unscaled.sign() {
                Sign::Minus => -1,
                Sign::NoSign => 0,
                Sign::Plus => 1,
            },
        }
    }
}

/// Whether the number has more digits before the point than a numeric may have.
fn is_too_long(unscaled: &BigUint, scale: u32) -> bool {
    const BITS_OF_FEWER_DIGITS: u64 = 435_000;
    unscaled.bits() > BITS_OF_FEWER_DIGITS
        && first_digit_place(unscaled, scale) >= Some(WHOLE_DIGITS_MAX)
}

/// `10^exponent`.
pub(crate) fn power_of_ten(exponent: u32) -> BigUint {
    BigUint::from(10_u8).pow(exponent)
}

/// How many decimal digits a number has; none for 0.
pub(crate) fn digits(number: &BigUint) -> u32 {
    let bits = number.bits();
    if bits == 0 {
        return 0;
    }
    // floor((bits - 1) * log10(2)) + 1 digits at least, one more at most: 30103/100000 is above
    // log10(2) by 4e-10 of it, which matters from 10^7 bits on. Numerics have fewer than 500 000.
    let least = u32::try_from((bits - 1) * 30_103 / 100_000)
        .unwrap_or(u32::MAX)
        .saturating_add(1);
    let power = power_of_ten(least - 1);
    if *number < power {
        return least - 1;
    }
    if *number >= power * 10_u8 {
        least + 1
    } else {
        least
    }
}

/// The place of the first digit that is not 0: 0 for units, 1 for tens, -1 for tenths. `None` for
/// 0.
pub(crate) fn first_digit_place(unscaled: &BigUint, scale: u32) -> Option<i64> {
    let count = digits(unscaled);
    (count > 0).then(|| i64::from(count) - 1 - i64::from(scale))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_has_one_form_and_comes_back() {
        let edge = BigInt::from(WORD_LIMIT);
        let cases: Vec<(BigInt, u32)> = vec![
            (BigInt::ZERO, 0),
            (BigInt::ZERO, 127),
            (BigInt::ZERO, 128),
            (edge.clone() - 1, 127),
            (edge.clone(), 0),
            (-edge.clone(), 0),
            (-edge - 1, 2),
            (BigInt::from(u128::MAX), 3),
            (-BigInt::from(power_of_ten(500)), SCALE_MAX),
        ];
        let mut out = Out::new();
        for (unscaled, scale) in cases {
            let number = Num::Fin(unscaled.clone(), scale);
            assert!(number.put(&mut out).is_ok());
            assert!(
                Num::read(out.value()).is_ok_and(|back| back == number),
                "{unscaled} {scale}"
            );
            let fits = unscaled < BigInt::from(WORD_LIMIT)
                && unscaled >= BigInt::from(-WORD_LIMIT)
                && scale <= 127;
            assert_eq!(out.value().word().is_ok(), fits, "{unscaled} {scale}");
        }
        for special in [Num::Nan, Num::Inf(true), Num::Inf(false)] {
            assert!(special.put(&mut out).is_ok());
            assert!(Num::read(out.value()).is_ok_and(|back| back == special));
        }
    }

    #[test]
    fn digits_are_counted_at_the_powers_of_ten() {
        for exponent in 1..400 {
            let power = power_of_ten(exponent);
            assert_eq!(digits(&power), exponent + 1);
            assert_eq!(digits(&(power - 1_u8)), exponent);
        }
        assert_eq!(digits(&BigUint::ZERO), 0);
        assert_eq!(first_digit_place(&BigUint::from(5_u8), 2), Some(-2));
    }

    #[test]
    fn what_is_no_numeric_is_refused() {
        for bad in [&[][..], &[0], &[1, 0], &[5, 0, 0, 1], &[2, 0]] {
            assert!(Num::read(Value::Bytes(bad)).is_err());
        }
        let mut out = Out::new();
        let widest = Num::Fin(BigInt::from(power_of_ten(131_071)), 0);
        assert!(widest.put(&mut out).is_ok());
        let wider = Num::Fin(BigInt::from(power_of_ten(131_072)), 0);
        assert_eq!(wider.put(&mut out), Err(Fault::NumericOverflow));
        assert_eq!(
            Num::Fin(BigInt::ZERO, 16384).put(&mut out),
            Err(Fault::NumericOverflow)
        );
    }
}
