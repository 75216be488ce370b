//! Folds arithmetic between two constants: `date '1993-07-01' + interval '3' month` is one
//! constant.
//!
//! As two parameters the zone would compute on them for every row, because the server folds
//! immutable functions only. Computed with the zone's own code. Must not: fold an operation that
//! fails: the server reports the error.

use strongroom_columns_ring::function::{Arg, by_name};
use strongroom_columns_values::{Buf, Operand, Out, Settings, compute, parse, print};
use strongroom_format::columns::Kind;
use zeroize::Zeroizing;

use super::functions;
use super::literal::{Literal, Token};

/// Computes `left operator right` and returns the result as a constant. `None` where the server has
/// to compute it: for operators and types that are not folded here, and when the computation fails.
pub(crate) fn fold_constants(operator: &str, left: &Literal, right: &Literal) -> Option<Literal> {
    let (a, b) = (foldable_kind(left)?, foldable_kind(right)?);
    let wide = functions::wider(Some(a), Some(b))?;
    let (name, kinds, result) = match (operator, a, b) {
        ("+", Kind::Date, Kind::Interval) => ("date_pl_interval", [a, b], Kind::Timestamp),
        ("-", Kind::Date, Kind::Interval) => ("date_mi_interval", [a, b], Kind::Timestamp),
        ("+", Kind::Date, Kind::Int4) => ("date_pli", [a, b], Kind::Date),
        ("-", Kind::Date, Kind::Int4) => ("date_mii", [a, b], Kind::Date),
        ("+", Kind::Timestamp, Kind::Interval) => {
            ("timestamp_pl_interval", [a, b], Kind::Timestamp)
        }
        ("-", Kind::Timestamp, Kind::Interval) => {
            ("timestamp_mi_interval", [a, b], Kind::Timestamp)
        }
        ("+", Kind::Date, Kind::Time) => ("datetime_pl", [a, b], Kind::Timestamp),
        ("+", Kind::Time, Kind::Interval) => ("time_pl_interval", [a, b], Kind::Time),
        ("-", Kind::Time, Kind::Interval) => ("time_mi_interval", [a, b], Kind::Time),
        (_, Kind::Int4 | Kind::Int8 | Kind::Numeric, Kind::Int4 | Kind::Int8 | Kind::Numeric) => {
            (arithmetic(operator, wide)?, [wide, wide], wide)
        }
        _ => return None,
    };
    let text = compute_text(name, kinds, result, &left.text, &right.text)?;
    let token = match result {
        Kind::Int4 | Kind::Int8 | Kind::Numeric => Token::Number(result),
        other => Token::Typed(other),
    };
    Some(Literal {
        token,
        text,
        location: left.location,
    })
}

/// Returns the kind of a constant whose type is certain: numbers, and literals with a type. `None`
/// for every other one.
const fn foldable_kind(literal: &Literal) -> Option<Kind> {
    match literal.token {
        Token::Number(kind) | Token::Typed(kind) => Some(kind),
        _ => None,
    }
}

/// Returns the zone's name of the function that computes the operator on two numbers of this kind.
/// `None` for an operator that is not folded.
fn arithmetic(operator: &str, kind: Kind) -> Option<&'static str> {
    Some(match (operator, kind) {
        ("+", Kind::Int4) => "int4pl",
        ("-", Kind::Int4) => "int4mi",
        ("*", Kind::Int4) => "int4mul",
        ("+", Kind::Int8) => "int8pl",
        ("-", Kind::Int8) => "int8mi",
        ("*", Kind::Int8) => "int8mul",
        ("+", Kind::Numeric) => "numeric_add",
        ("-", Kind::Numeric) => "numeric_sub",
        ("*", Kind::Numeric) => "numeric_mul",
        _ => return None,
    })
}

/// Computes a function of the zone on two values in their text form, and returns the result's text
/// form. `None` if there is no such function, a value is not valid, or the computation fails.
fn compute_text(
    name: &str,
    kinds: [Kind; 2],
    result: Kind,
    left: &str,
    right: &str,
) -> Option<Zeroizing<String>> {
    let function = by_name(name, &kinds.map(Arg::Of))?;
    // No timestamp with time zone is folded: the session's zone does not matter.
    let settings = Settings::utc();
    let (mut a, mut b, mut out, mut text) = (Out::new(), Out::new(), Out::new(), Buf::new());
    let [left_kind, right_kind] = kinds;
    parse(left_kind, left, &settings, &mut a).ok()?;
    parse(right_kind, right, &settings, &mut b).ok()?;
    let args = [Operand::Value(a.value()), Operand::Value(b.value())];
    compute(function, &args, &settings, &mut out).ok()?;
    print(result, out.value(), &settings, &mut text).ok()?;
    Some(Zeroizing::new(
        std::str::from_utf8(text.as_slice()).ok()?.to_owned(),
    ))
}

/// Turns a timestamp constant at midnight into a date: compared with a date it means that day
/// (date.c, `date_cmp_timestamp_internal`). Leaves every other constant as it is.
pub(crate) fn as_day(literal: &mut Literal) {
    const MIDNIGHT: &str = " 00:00:00";
    if literal.token == Token::Typed(Kind::Timestamp)
        && let Some(day) = literal.text.strip_suffix(MIDNIGHT)
    {
        literal.text = Zeroizing::new(day.to_owned());
        literal.token = Token::Typed(Kind::Date);
    }
}
