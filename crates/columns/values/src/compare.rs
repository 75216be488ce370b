//! Order and equality of values, as the B-tree operator classes of their types have them.
//!
//! Invariant: two values compare equal if and only if their token bytes are the same. Must not:
//! hash.

use core::cmp::Ordering;

use num_bigint::BigInt;
use strongroom_columns_ring::Fault;
use strongroom_format::columns::Kind;

use crate::interval::Interval;
use crate::jsonb;
use crate::numeric::{Num, TEN, arithmetic, put_small, small};
use crate::value::{Buf, Out, Value};

/// The bits that stand for every NaN: the quiet one of IEEE 754 without a sign or payload.
const NAN_BITS: u64 = 0x7ff8_0000_0000_0000;

/// Compares two values of one kind, as its B-tree operator class does. NaN is equal to itself and
/// above everything else; text is ordered by its bytes.
///
/// # Errors
/// [`Fault::KindMismatch`] if a value is not of the kind's form.
pub fn compare(kind: Kind, a: Value<'_>, b: Value<'_>) -> Result<Ordering, Fault> {
    match kind {
        Kind::Bool
        | Kind::Int4
        | Kind::Int8
        | Kind::Date
        | Kind::Time
        | Kind::Timestamp
        | Kind::Timestamptz => Ok(a.int8()?.cmp(&b.int8()?)),
        Kind::Float8 => Ok(doubles(a.float8()?, b.float8()?)),
        Kind::Numeric => arithmetic::compare(a, b),
        Kind::Text | Kind::Bytea | Kind::Uuid => Ok(a.bytes()?.cmp(b.bytes()?)),
        Kind::Interval => Ok(Interval::read(a)?.compare(Interval::read(b)?)),
        Kind::Jsonb => jsonb::compare(a, b),
    }
}

/// A value that is compared with many others of its kind: what has to be read of it for that is
/// read once.
pub struct Prepared<'a>(Kind, Form<'a>);

enum Form<'a> {
    Value(Value<'a>),
    Document(jsonb::Document),
}

impl Drop for Prepared<'_> {
    /// Overwrites a value of eight bytes.
    fn drop(&mut self) {
        if let Form::Value(value) = &mut self.1 {
            *value = Value::Word(0);
            core::hint::black_box(&*value);
        }
    }
}

impl<'a> Prepared<'a> {
    /// A value of this kind.
    ///
    /// # Errors
    /// [`Fault::KindMismatch`] if it is not of the kind's form.
    pub fn new(kind: Kind, value: Value<'a>) -> Result<Self, Fault> {
        Ok(Self(
            kind,
            match kind {
                Kind::Jsonb => Form::Document(jsonb::Document::of(value)?),
                _ => Form::Value(value),
            },
        ))
    }

    /// Compares it with another value of its kind, as [`compare`] does.
    ///
    /// # Errors
    /// [`Fault::KindMismatch`] if a value is not of the kind's form, or of another kind.
    pub fn compare(&self, other: &Self) -> Result<Ordering, Fault> {
        match (&self.1, &other.1) {
            (Form::Value(a), Form::Value(b)) => compare(self.0, *a, *b),
            (Form::Document(a), Form::Document(b)) => a.compare(b),
            _ => Err(Fault::KindMismatch),
        }
    }
}

/// Compares doubles as PostgreSQL does (`float8_cmp_internal`): NaN is equal to itself and above
/// everything else.
fn doubles(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b)
        .unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

/// Appends bytes to `token` that are the same for values of a kind that compare equal, and only for
/// those. Between kinds they mean nothing. They must not change from version to version: indexes on
/// disk are in an order that is made from them (docs/spec/columns.md, "Keyed order").
///
/// # Errors
/// [`Fault::KindMismatch`] if the value is not of the kind's form.
pub fn token_bytes(kind: Kind, value: Value<'_>, token: &mut Buf) -> Result<(), Fault> {
    match kind {
        Kind::Bool
        | Kind::Int4
        | Kind::Int8
        | Kind::Date
        | Kind::Time
        | Kind::Timestamp
        | Kind::Timestamptz => {
            token.extend(&value.word()?.to_le_bytes());
        }
        Kind::Float8 => {
            let number = value.float8()?;
            let bits = if number.is_nan() {
                NAN_BITS
            } else if number == 0.0 {
                0
            } else {
                number.to_bits()
            };
            token.extend(&bits.to_le_bytes());
        }
        Kind::Numeric => numeric_token(value, token)?,
        Kind::Text | Kind::Bytea | Kind::Uuid => token.extend(value.bytes()?),
        Kind::Interval => token.extend(&Interval::read(value)?.span().to_le_bytes()),
        Kind::Jsonb => jsonb::token_bytes(value, token)?,
    }
    Ok(())
}

/// Appends the form of the same numeric with the least scale, so that 1.0 and 1.00 give the same
/// bytes. `Fault::KindMismatch` for bytes that are no numeric.
fn numeric_token(value: Value<'_>, token: &mut Buf) -> Result<(), Fault> {
    let mut least = Out::new();
    if let Some((unscaled, scale)) = small(value) {
        let (mut unscaled, mut scale) =
            (i128::from(unscaled), if unscaled == 0 { 0 } else { scale });
        while scale > 0 && unscaled % TEN[1] == 0 {
            unscaled /= TEN[1];
            scale -= 1;
        }
        put_small(&mut least, unscaled, scale);
    } else if let Num::Fin(unscaled, scale) = Num::read(value)? {
        // Of 0 every digit is a zero at the end.
        let text = unscaled.magnitude().to_string();
        let zeros = u32::try_from(text.len() - text.trim_end_matches('0').len()).unwrap_or(0);
        let drop = if unscaled == BigInt::ZERO {
            scale
        } else {
            zeros.min(scale)
        };
        let unscaled = unscaled / BigInt::from(crate::numeric::power_of_ten(drop));
        Num::Fin(unscaled, scale - drop).put(&mut least)?;
    } else {
        least.set(value);
    }
    match least.value() {
        Value::Word(word) => token.extend(&word.to_le_bytes()),
        Value::Bytes(bytes) => {
            // Longer than a word, so that no form of bytes is taken for one.
            token.extend(bytes);
            token.extend(&[0; 8]);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numeric::forms;

    fn token(kind: Kind, value: Value<'_>) -> Vec<u8> {
        let mut token = Buf::new();
        token_bytes(kind, value, &mut token).unwrap();
        token.as_slice().to_vec()
    }

    #[test]
    fn equal_numerics_have_one_token_and_others_have_others() {
        let texts = [
            "0", "0.000", "1", "1.0", "1.00000", "10", "1e1", "1e40", "1e40", "NaN", "inf", "-inf",
            "0.1", "-1",
        ];
        let parsed = texts.map(|text| {
            let mut out = Out::new();
            assert!(forms::parse(text, &mut out).is_ok());
            out
        });
        let mut long = Out::new();
        assert!(forms::parse("0.0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000", &mut long).is_ok());
        assert_eq!(
            token(Kind::Numeric, long.value()),
            token(Kind::Numeric, parsed[0].value())
        );
        for a in &parsed {
            for b in &parsed {
                let equal = compare(Kind::Numeric, a.value(), b.value()) == Ok(Ordering::Equal);
                assert_eq!(
                    equal,
                    token(Kind::Numeric, a.value()) == token(Kind::Numeric, b.value())
                );
            }
        }
    }

    #[test]
    fn zeros_and_nans_of_doubles_are_equal() {
        let (zero, minus) = (Value::of_float8(0.0), Value::of_float8(-0.0));
        assert_eq!(compare(Kind::Float8, zero, minus), Ok(Ordering::Equal));
        assert_eq!(token(Kind::Float8, zero), token(Kind::Float8, minus));
        let (nan, other) = (Value::of_float8(f64::NAN), Value::of_float8(-f64::NAN));
        assert_eq!(compare(Kind::Float8, nan, other), Ok(Ordering::Equal));
        assert_eq!(token(Kind::Float8, nan), token(Kind::Float8, other));
        assert_eq!(
            compare(Kind::Float8, nan, Value::of_float8(f64::INFINITY)),
            Ok(Ordering::Greater)
        );
    }

    /// The bytes of a value, in hexadecimal.
    fn bytes_of(kind: Kind, value: Value<'_>) -> String {
        let bytes = token(kind, value);
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn numeric(unscaled: i128, scale: u32) -> Out {
        let mut out = Out::new();
        put_small(&mut out, unscaled, scale);
        out
    }

    /// Written by hand from docs/spec/columns.md, "Keyed order". If one of these changes, indexes
    /// on columns of class equality are out of order.
    #[test]
    fn the_bytes_that_indexes_depend_on_stay_as_they_are() {
        for (kind, word, bytes) in [
            (Kind::Int4, -2_i64, "feffffffffffffff"),
            (Kind::Int8, 0x0102_0304_0506_0708, "0807060504030201"),
            (Kind::Date, 8_000, "401f000000000000"),
            (Kind::Time, 1, "0100000000000000"),
            (Kind::Timestamp, -1, "ffffffffffffffff"),
            (Kind::Timestamptz, 256, "0001000000000000"),
        ] {
            assert_eq!(bytes_of(kind, Value::Word(word.cast_unsigned())), bytes);
        }
        for (number, bytes) in [
            (1.5, "000000000000f83f"),
            (0.0, "0000000000000000"),
            (-0.0, "0000000000000000"),
            (f64::NAN, "000000000000f87f"),
            (-f64::NAN, "000000000000f87f"),
            (f64::from_bits(0x7ff0_0000_0000_0001), "000000000000f87f"),
            (f64::NEG_INFINITY, "000000000000f0ff"),
        ] {
            assert_eq!(bytes_of(Kind::Float8, Value::of_float8(number)), bytes);
        }
        for kind in [Kind::Text, Kind::Bytea, Kind::Uuid] {
            assert_eq!(bytes_of(kind, Value::Bytes(b"Ada")), "416461");
            assert_eq!(bytes_of(kind, Value::Bytes(b"")), "");
        }
    }

    #[test]
    fn a_numeric_has_the_bytes_of_its_least_scale() {
        for (unscaled, scale, bytes) in [
            (15, 1, "010f000000000000"),
            (1500, 3, "010f000000000000"),
            (-15, 1, "01f1ffffffffffff"),
            (0, 5, "0000000000000000"),
            // Longer than a word: tag, scale, magnitude, and eight zeros.
            (1_i128 << 55, 0, "000000000000000000800000000000000000"),
            (
                -(1_i128 << 55) - 1,
                2,
                "010200010000000000800000000000000000",
            ),
        ] {
            let found = bytes_of(Kind::Numeric, numeric(unscaled, scale).value());
            assert_eq!(found, bytes, "{unscaled} / 10^{scale}");
        }
        // NaN, infinity and minus infinity.
        for tag in [2, 3, 4] {
            let found = bytes_of(Kind::Numeric, Value::Bytes(&[tag]));
            assert_eq!(found, format!("{tag:02x}0000000000000000"));
        }
    }
}
