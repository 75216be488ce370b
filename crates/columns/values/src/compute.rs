//! The functions of `strongroom_columns_ring::function::FUNCTIONS`, each by its code.
//!
//! A code is resolved once, to a function pointer; calling it takes its arguments by position and
//! checks that each is what the function takes. Must not: compute more than one line itself.

use strongroom_columns_ring::Fault;
use strongroom_columns_ring::function::Function;

use crate::field::{self, FieldFunction};
use crate::float;
use crate::jsonb::{self, Form};
use crate::numeric::{arithmetic, forms};
use crate::text;
use crate::textual;
use crate::uuid;
use crate::value::{Operand, Out, Settings, Value};
use crate::words::{self, WordFunction};
use crate::{Unreadable, datetime, like, regular_expression};

mod instants;
mod integers;
mod routine;
mod times;

use routine::{
    Args, Predicate, Routine, put_date, put_double, put_int4, put_int8, put_interval, put_timestamp,
};

/// A function whose result is a value, resolved.
#[derive(Clone, Copy)]
pub struct Computation {
    routine: Routine,
    on_words: Option<WordFunction>,
}

impl Computation {
    /// The computation of `function`, found by its code. `None` if its result is a boolean, or the
    /// code is unknown.
    #[must_use]
    pub fn of(function: &Function) -> Option<Self> {
        let code = function.code;
        let routine = match code {
            100..120 => integers::arithmetic(code),
            120..140 => double(code),
            140..160 => numeric(code),
            160..200 => string(code),
            200..230 => instants::arithmetic(code)
                .or_else(|| instants::field(code))
                .or_else(|| instants::in_zone(code)),
            230..260 => swapped(code)
                .or_else(|| span(code))
                .or_else(|| times::routine(code)),
            260..280 => integers::bits(code),
            280..300 => document(code),
            300..330 => cast(code).or_else(|| times::cast(code)),
            330.. => textual_cast(code),
            _ => None,
        };
        routine.map(|routine| Self {
            routine,
            on_words: words::function(code),
        })
    }

    /// The function for two arguments that are words. `None` if there is none.
    #[must_use]
    pub const fn on_words(self) -> Option<WordFunction> {
        self.on_words
    }

    /// Calls the function; its result is in `out`.
    ///
    /// # Errors
    /// The fault that stands for the error of PostgreSQL's function, such as an overflow;
    /// [`Fault::KindMismatch`] for arguments that are not the function's.
    pub fn run(
        self,
        args: &[Operand<'_>],
        settings: &Settings,
        out: &mut Out,
    ) -> Result<(), Fault> {
        (self.routine)(Args(args), settings, out)
    }
}

/// A function whose result is a truth, resolved.
#[derive(Clone, Copy)]
pub struct Condition(Predicate);

impl Condition {
    /// The condition of `function`, found by its code: LIKE, ILIKE, regular expressions, their
    /// negations, `starts_with`, and those of documents. `None` if its result is a value, or the
    /// code is unknown.
    #[must_use]
    pub fn of(function: &Function) -> Option<Self> {
        let predicate: Predicate = match function.code {
            174 => |a| like::matches(a.bytes(0)?, a.bytes(1)?, false),
            175 => |a| Ok(!like::matches(a.bytes(0)?, a.bytes(1)?, false)?),
            176 => |a| like::matches(a.bytes(0)?, a.bytes(1)?, true),
            177 => |a| Ok(!like::matches(a.bytes(0)?, a.bytes(1)?, true)?),
            179 => |a| Ok(a.bytes(0)?.starts_with(a.bytes(1)?)),
            194 => |a| regular_expression::matches(a.text(0)?, a.text(1)?, false),
            195 => |a| Ok(!regular_expression::matches(a.text(0)?, a.text(1)?, false)?),
            196 => |a| regular_expression::matches(a.text(0)?, a.text(1)?, true),
            197 => |a| Ok(!regular_expression::matches(a.text(0)?, a.text(1)?, true)?),
            284 => |a| jsonb::contains(a.value(0)?, a.value(1)?),
            285 => |a| jsonb::contains(a.value(1)?, a.value(0)?),
            286 => |a| jsonb::exists(a.value(0)?, a.text(1)?),
            _ => return None,
        };
        Some(Self(predicate))
    }

    /// Calls the function and returns its boolean result. NULL is no [`Operand`], so that there is
    /// always a result.
    ///
    /// # Errors
    /// The fault that stands for the error of PostgreSQL's function, such as a pattern that ends
    /// with an escape; [`Fault::KindMismatch`] for arguments that are not the function's.
    pub fn run(self, args: &[Operand<'_>]) -> Result<bool, Fault> {
        (self.0)(Args(args))
    }
}

/// Computes `function`, whose result is a value, into `out`.
///
/// # Errors
/// The fault that stands for the error of PostgreSQL's function, such as an overflow;
/// [`Fault::KindMismatch`] for arguments that are not the function's; [`Fault::BadRequest`] if its
/// result is a boolean.
pub fn compute(
    function: &Function,
    args: &[Operand<'_>],
    settings: &Settings,
    out: &mut Out,
) -> Result<(), Fault> {
    Computation::of(function)
        .ok_or(Fault::BadRequest)?
        .run(args, settings, out)
}

/// Computes `function`, whose result is a boolean (such as LIKE), and returns it. NULL is no
/// [`Operand`], so that there is always a result.
///
/// # Errors
/// The fault that stands for the error of PostgreSQL's function; [`Fault::KindMismatch`] for
/// arguments that are not the function's; [`Fault::BadRequest`] if its result is a value, or its
/// code unknown.
pub fn test(function: &Function, args: &[Operand<'_>]) -> Result<bool, Fault> {
    Condition::of(function).ok_or(Fault::BadRequest)?.run(args)
}

/// The result of a function that cannot fail.
macro_rules! surely {
    ($run:expr) => {{
        $run;
        Ok(())
    }};
}

/// The function with this code whose operands another function takes the other way round. `None`
/// for an unknown code.
fn swapped(code: u16) -> Option<Routine> {
    let routine: Routine = match code {
        237 => |a, _, out| put_date(datetime::date_plus(a.int4(1)?, i64::from(a.int4(0)?))?, out),
        238 => |a, _, out| {
            put_timestamp(
                datetime::date_plus_interval(a.int4(1)?, a.interval(0)?)?,
                out,
            )
        },
        239 => {
            |a, _, out| put_timestamp(datetime::timestamp_plus(a.int8(1)?, a.interval(0)?)?, out)
        }
        240 => |a, settings, out| {
            put_timestamp(
                datetime::timestamptz_plus(a.int8(1)?, a.interval(0)?, &settings.time_zone)?,
                out,
            )
        },
        241 => |a, _, out| put_interval(a.interval(1)?.times(a.float8(0)?)?, out),
        _ => return None,
    };
    Some(routine)
}

/// The function on `double precision` with this code. `None` for an unknown code.
fn double(code: u16) -> Option<Routine> {
    let routine: Routine = match code {
        120 => |a, _, out| put_double(float::add(a.float8(0)?, a.float8(1)?)?, out),
        121 => |a, _, out| put_double(float::sub(a.float8(0)?, a.float8(1)?)?, out),
        122 => |a, _, out| put_double(float::mul(a.float8(0)?, a.float8(1)?)?, out),
        123 => |a, _, out| put_double(float::div(a.float8(0)?, a.float8(1)?)?, out),
        124 => |a, _, out| put_double(-a.float8(0)?, out),
        125 => |a, _, out| put_double(a.float8(0)?.abs(), out),
        126 => |a, _, out| put_double(float::sqrt(a.float8(0)?)?, out),
        127 => |a, _, out| put_double(a.float8(0)?.round_ties_even(), out),
        128 => |a, _, out| put_double(a.float8(0)?.trunc(), out),
        129 => |a, _, out| put_double(a.float8(0)?.ceil(), out),
        130 => |a, _, out| put_double(a.float8(0)?.floor(), out),
        131 => |a, _, out| put_double(float::sign(a.float8(0)?), out),
        _ => return None,
    };
    Some(routine)
}

/// The function on `numeric` with this code. `None` for a code that is not of these functions.
fn numeric(code: u16) -> Option<Routine> {
    let routine: Routine = match code {
        140 => |a, _, out| arithmetic::add(a.value(0)?, a.value(1)?, out),
        141 => |a, _, out| arithmetic::sub(a.value(0)?, a.value(1)?, out),
        142 => |a, _, out| arithmetic::mul(a.value(0)?, a.value(1)?, out),
        143 => |a, _, out| arithmetic::div(a.value(0)?, a.value(1)?, out),
        144 => |a, _, out| arithmetic::modulo(a.value(0)?, a.value(1)?, out),
        145 => |a, _, out| arithmetic::negate(a.value(0)?, out),
        146 => |a, _, out| arithmetic::abs(a.value(0)?, out),
        147 => |a, _, out| arithmetic::round(a.value(0)?, a.plain(1)?, out),
        148 => |a, _, out| arithmetic::round(a.value(0)?, 0, out),
        149 => |a, _, out| arithmetic::trunc(a.value(0)?, a.plain(1)?, out),
        150 => |a, _, out| arithmetic::trunc(a.value(0)?, 0, out),
        151 => |a, _, out| arithmetic::toward(a.value(0)?, 1, out),
        152 => |a, _, out| arithmetic::toward(a.value(0)?, -1, out),
        153 => |a, _, out| arithmetic::sqrt(a.value(0)?, out),
        154 => |a, _, out| arithmetic::sign(a.value(0)?, out),
        _ => return None,
    };
    Some(routine)
}

/// The function on `text` or `bytea` with this code that gives a value. `None` for an unknown code.
fn string(code: u16) -> Option<Routine> {
    let routine: Routine = match code {
        160 | 190 => |a, _, out| textual::concatenate(a.bytes(0)?, a.bytes(1)?, out),
        161 => |a, _, out| surely!(textual::map_case(a.bytes(0)?, u8::to_ascii_uppercase, out)),
        162 => |a, _, out| surely!(textual::map_case(a.bytes(0)?, u8::to_ascii_lowercase, out)),
        163 => |a, _, out| put_int4(Some(textual::characters(a.bytes(0)?)), out),
        164 => |a, _, out| textual::substring(a.bytes(0)?, a.plain(1)?, None, out),
        165 => |a, _, out| textual::substring(a.bytes(0)?, a.plain(1)?, Some(a.plain(2)?), out),
        166 => |a, _, out| surely!(textual::left(a.bytes(0)?, a.plain(1)?, out)),
        167 => |a, _, out| surely!(textual::right(a.bytes(0)?, a.plain(1)?, out)),
        168 => |a, _, out| surely!(out.set_bytes(a.text(0)?.trim_matches(' ').as_bytes())),
        169 => |a, _, out| surely!(out.set_bytes(a.text(0)?.trim_start_matches(' ').as_bytes())),
        170 => |a, _, out| surely!(out.set_bytes(a.text(0)?.trim_end_matches(' ').as_bytes())),
        171 => |a, _, out| put_int4(Some(textual::position(a.text(0)?, a.text(1)?)), out),
        172 => |a, _, out| textual::replace(a.text(0)?, a.text(1)?, a.text(2)?, out),
        173 | 191 => |a, _, out| put_int4(i32::try_from(a.bytes(0)?.len()).ok(), out),
        178 => |a, _, out| like::escape(a.text(0)?, a.text(1)?, out),
        180 => |a, _, out| surely!(textual::trim(a.text(0)?, a.text(1)?, (true, true), out)),
        181 => |a, _, out| surely!(textual::trim(a.text(0)?, a.text(1)?, (true, false), out)),
        182 => |a, _, out| surely!(textual::trim(a.text(0)?, a.text(1)?, (false, true), out)),
        183 => |a, _, out| textual::pad(a.text(0)?, a.plain(1)?, a.text(2)?, true, out),
        184 => |a, _, out| textual::pad(a.text(0)?, a.plain(1)?, a.text(2)?, false, out),
        185 => |a, _, out| textual::split_part(a.text(0)?, a.text(1)?, a.plain(2)?, out),
        186 => |a, _, out| surely!(textual::reverse(a.text(0)?, out)),
        187 => |a, _, out| put_int4(Some(textual::first_character(a.text(0)?)), out),
        192 => |a, _, out| textual::bytes_substring(a.bytes(0)?, a.plain(1)?, None, out),
        193 => {
            |a, _, out| textual::bytes_substring(a.bytes(0)?, a.plain(1)?, Some(a.plain(2)?), out)
        }
        _ => return None,
    };
    Some(routine)
}

/// The function on `interval` with this code. `None` for an unknown code.
fn span(code: u16) -> Option<Routine> {
    let routine: Routine = match code {
        230 => |a, _, out| put_interval(a.interval(0)?.plus(a.interval(1)?)?, out),
        231 => |a, _, out| put_interval(a.interval(0)?.minus(a.interval(1)?)?, out),
        232 => |a, _, out| put_interval(a.interval(0)?.negated()?, out),
        233 => |a, _, out| put_interval(a.interval(0)?.times(a.float8(1)?)?, out),
        234 => {
            |a, _, out| field::of_interval(a.field()?, a.interval(1)?, FieldFunction::Double, out)
        }
        235 => {
            |a, _, out| field::of_interval(a.field()?, a.interval(1)?, FieldFunction::Numeric, out)
        }
        236 => |a, _, out| put_interval(a.interval(0)?.over(a.float8(1)?)?, out),
        _ => return None,
    };
    Some(routine)
}

/// The cast between types other than text with this code. `None` for an unknown code.
#[expect(
    clippy::cast_precision_loss,
    reason = "what the cast of a bigint to double precision is"
)]
fn cast(code: u16) -> Option<Routine> {
    let routine: Routine = match code {
        300 => |a, _, out| put_int8(Some(i64::from(a.int4(0)?)), out),
        301 => |a, _, out| put_double(f64::from(a.int4(0)?), out),
        302 => |a, _, out| surely!(forms::of_int8(i64::from(a.int4(0)?), out)),
        303 => |a, _, out| put_int4(i32::try_from(a.int8(0)?).ok(), out),
        304 => |a, _, out| put_double(a.int8(0)? as f64, out),
        305 => |a, _, out| surely!(forms::of_int8(a.int8(0)?, out)),
        306 => |a, _, out| put_int4(Some(float::to_int4(a.float8(0)?)?), out),
        307 => |a, _, out| put_int8(Some(float::to_int8(a.float8(0)?)?), out),
        308 => |a, _, out| forms::of_float8(a.float8(0)?, out),
        309 => |a, _, out| put_int4(Some(forms::to_int4(a.value(0)?)?), out),
        310 => |a, _, out| put_int8(Some(forms::to_int8(a.value(0)?)?), out),
        311 => |a, _, out| put_double(forms::to_float8(a.value(0)?)?, out),
        312 => |a, _, out| arithmetic::coerce(a.value(0)?, a.plain(1)?, out),
        313 => |a, _, out| put_int4(Some(i32::from(a.value(0)?.bool()?)), out),
        314 => |a, _, out| surely!(out.set(Value::of_bool(a.int4(0)? != 0))),
        315 => |a, _, out| put_date(datetime::timestamp_to_date(a.int8(0)?)?, out),
        316 => |a, _, out| put_timestamp(datetime::date_to_timestamp(a.int4(0)?)?, out),
        317 => |a, settings, out| {
            put_timestamp(
                datetime::date_to_timestamptz(a.int4(0)?, &settings.time_zone)?,
                out,
            )
        },
        318 => |a, settings, out| {
            put_timestamp(
                datetime::timestamp_to_timestamptz(a.int8(0)?, &settings.time_zone)?,
                out,
            )
        },
        319 => |a, settings, out| {
            put_timestamp(
                datetime::timestamptz_to_timestamp(a.int8(0)?, &settings.time_zone)?,
                out,
            )
        },
        320 => |a, settings, out| {
            put_date(
                datetime::timestamptz_to_date(a.int8(0)?, &settings.time_zone)?,
                out,
            )
        },
        _ => return None,
    };
    Some(routine)
}

/// The function of documents with this code. `None` for an unknown code.
fn document(code: u16) -> Option<Routine> {
    let routine: Routine = match code {
        280 => |a, _, out| jsonb::member(a.value(0)?, a.text(1)?, Form::Document, out),
        281 => |a, _, out| jsonb::member(a.value(0)?, a.text(1)?, Form::Text, out),
        282 => |a, _, out| jsonb::element(a.value(0)?, a.int4(1)?, Form::Document, out),
        283 => |a, _, out| jsonb::element(a.value(0)?, a.int4(1)?, Form::Text, out),
        _ => return None,
    };
    Some(routine)
}

/// The cast to text or from text with this code. `None` for an unknown code.
fn textual_cast(code: u16) -> Option<Routine> {
    let routine: Routine =
        match code {
            330 => |a, _, out| {
                surely!(out.set_bytes(if a.value(0)?.bool()? {
                    b"true"
                } else {
                    b"false"
                }))
            },
            331 | 332 => |a, _, out| surely!(text::print_int8(a.int8(0)?, out.begin(20))),
            333 => |a, _, out| surely!(float::print(a.float8(0)?, out.begin(32))),
            334 => |a, _, out| forms::print(a.value(0)?, out.begin(0)),
            335 => |a, _, out| surely!(text::print_date(a.int4(0)?, out.begin(16))),
            336 => |a, _, out| surely!(text::print_timestamp(a.int8(0)?, None, out.begin(32))),
            337 => |a, settings, out| {
                surely!(text::print_timestamp(
                    a.int8(0)?,
                    Some(&settings.time_zone),
                    out.begin(40),
                ))
            },
            338 => |a, _, out| {
                uuid::print(&uuid::of(a.value(0)?)?, out.begin(uuid::TEXT_LEN));
                Ok(())
            },
            339 => |a, _, out| surely!(text::print_time(a.time(0)?, out.begin(16))),
            340 => |a, _, out| {
                let number = text::parse_int4(a.text(0)?);
                put_int4(
                    Some(number.map_err(|why| {
                        text_fault(why, Fault::InvalidInteger, Fault::Int4OutOfRange)
                    })?),
                    out,
                )
            },
            341 => |a, _, out| {
                let number = text::parse_integer(a.text(0)?, i64::MIN);
                put_int8(
                    Some(number.map_err(|why| {
                        text_fault(why, Fault::InvalidBigint, Fault::Int8OutOfRange)
                    })?),
                    out,
                )
            },
            342 => |a, _, out| {
                let parsed = forms::parse(a.text(0)?, out);
                parsed.map_err(|why| text_fault(why, Fault::InvalidNumeric, Fault::NumericOverflow))
            },
            343 => |a, _, out| {
                let parsed = float::parse(a.text(0)?);
                let number = parsed
                    .map_err(|why| text_fault(why, Fault::InvalidFloat8, Fault::FloatOverflow))?;
                put_double(number, out)
            },
            344 => |a, _, out| {
                let parsed = uuid::parse(a.text(0)?).map_err(|_| Fault::InvalidUuid)?;
                surely!(out.set_bytes(&parsed))
            },
            345 => |a, _, out| surely!(out.set_bytes(a.text(0)?.as_bytes())),
            346 => |a, _, out| jsonb::parse(a.text(0)?, out).map_err(jsonb::fault),
            347 => |a, _, out| surely!(text::print_interval(a.interval(0)?, out.begin(64))),
            _ => return None,
        };
    Some(routine)
}

/// The fault of a cast for a text that is not a number: `range` for one that is too big, otherwise
/// `syntax`.
const fn text_fault(why: Unreadable, syntax: Fault, range: Fault) -> Fault {
    match why {
        Unreadable::OutOfRange | Unreadable::TooBig => range,
        _ => syntax,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strongroom_columns_ring::function::{FUNCTIONS, Gives};

    #[test]
    fn every_function_of_the_list_is_computed() {
        for function in FUNCTIONS {
            let is_value = Computation::of(function).is_some();
            let is_truth = Condition::of(function).is_some();
            assert_eq!(
                is_value,
                matches!(function.gives, Gives::Value(_)),
                "{} {}",
                function.code,
                function.name
            );
            assert_eq!(
                is_truth,
                function.gives == Gives::Truth,
                "{} {}",
                function.code,
                function.name
            );
        }
    }

    #[test]
    fn arguments_of_another_kind_are_a_fault() {
        let mut out = Out::new();
        for function in FUNCTIONS
            .iter()
            .filter(|function| function.gives != Gives::Truth)
        {
            let none = compute(function, &[], &Settings::utc(), &mut out);
            assert_eq!(none, Err(Fault::KindMismatch), "{}", function.name);
            let args = [Operand::Plain(1); 3];
            let plain = compute(function, &args, &Settings::utc(), &mut out);
            assert_eq!(plain, Err(Fault::KindMismatch), "{}", function.name);
        }
    }
}
