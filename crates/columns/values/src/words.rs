//! Functions of two values that are words, for programs of many rows: without buffers, and without
//! looking at the arguments' sorts each time.
//!
//! Invariant: a result is the one that the function itself has. What is no word, or fails, is left
//! to the function. Must not: fail.

use crate::numeric::arithmetic::align;
use crate::numeric::{parts, word_of};

/// A function of two words. `None` if the result is no word, or the function fails.
pub type WordFunction = fn(u64, u64) -> Option<u64>;

/// The function with this code on words. `None` if there is none.
pub(crate) fn function(code: u16) -> Option<WordFunction> {
    Some(match code {
        100 => |a, b| int4(int4_of(a)?.checked_add(int4_of(b)?)),
        101 => |a, b| int4(int4_of(a)?.checked_sub(int4_of(b)?)),
        102 => |a, b| int4(int4_of(a)?.checked_mul(int4_of(b)?)),
        110 => |a, b| {
            Some(
                a.cast_signed()
                    .checked_add(b.cast_signed())?
                    .cast_unsigned(),
            )
        },
        111 => |a, b| {
            Some(
                a.cast_signed()
                    .checked_sub(b.cast_signed())?
                    .cast_unsigned(),
            )
        },
        112 => |a, b| {
            Some(
                a.cast_signed()
                    .checked_mul(b.cast_signed())?
                    .cast_unsigned(),
            )
        },
        140 => |a, b| {
            let (a, b, scale) = align(parts(a), parts(b))?;
            word_of(i128::from(a.checked_add(b)?), scale)
        },
        141 => |a, b| {
            let (a, b, scale) = align(parts(a), parts(b))?;
            word_of(i128::from(a.checked_sub(b)?), scale)
        },
        142 => |a, b| {
            let ((a, a_scale), (b, b_scale)) = (parts(a), parts(b));
            word_of(i128::from(a.checked_mul(b)?), a_scale + b_scale)
        },
        _ => return None,
    })
}

/// The `integer` in a word.
fn int4_of(word: u64) -> Option<i32> {
    i32::try_from(word.cast_signed()).ok()
}

/// The word of an `integer`.
fn int4(value: Option<i32>) -> Option<u64> {
    Some(i64::from(value?).cast_unsigned())
}

#[cfg(test)]
mod tests {
    use strongroom_columns_ring::function::{Arg, FUNCTIONS};
    use strongroom_format::columns::Kind;

    use super::*;
    use crate::Computation;
    use crate::value::{Operand, Out, Settings, Value};

    /// Words on both sides of every limit, some of them with scales.
    fn words() -> Vec<u64> {
        let mut words = vec![];
        let edges = [0, 1, 7, 99, 1 << 30, i64::from(i32::MAX), 1 << 54, i64::MAX];
        for edge in edges {
            for number in [
                edge,
                edge.wrapping_neg(),
                edge.wrapping_neg().wrapping_sub(1),
            ] {
                words.push(number.cast_unsigned());
                for scale in [0_u64, 2, 18, 19, 64, 127] {
                    words.push(number.wrapping_shl(8).cast_unsigned() | scale);
                }
            }
        }
        words
    }

    #[test]
    fn results_are_those_of_the_functions_themselves() {
        let settings = Settings::utc();
        let (mut known, mut left) = (0, 0);
        for of in FUNCTIONS {
            let Some(on_words) = function(of.code) else {
                continue;
            };
            let whole = Computation::of(of).unwrap();
            for (a, b) in words()
                .iter()
                .flat_map(|a| words().into_iter().map(move |b| (*a, b)))
            {
                // Words of this kind: whole numbers of 4 bytes, or numerics with a valid scale.
                let is_int4 = of.args.first() == Some(&Arg::Of(Kind::Int4));
                if is_int4 && (int4_of(a).is_none() || int4_of(b).is_none()) {
                    continue;
                }
                let mut out = Out::new();
                let operands = [a, b].map(|word| Operand::Value(Value::Word(word)));
                let expected = whole.run(&operands, &settings, &mut out);
                match on_words(a, b) {
                    Some(word) => {
                        assert_eq!(expected, Ok(()), "{} {a:x} {b:x}", of.name);
                        assert_eq!(out.value().word(), Ok(word), "{} {a:x} {b:x}", of.name);
                        known += 1;
                    }
                    None => left += 1,
                }
            }
        }
        assert!(known > 10_000 && left > 1000, "{known} {left}");
    }
}
