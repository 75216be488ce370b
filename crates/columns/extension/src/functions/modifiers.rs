//! Modifiers of the types: the class of a column, and precision and scale of a numeric.
//!
//! `enc_int4(ordered)` says that the order of the column's values is no secret,
//! `enc_int4(equality)` that it is none which of them are equal; without either a column is opaque.
//! A modifier is a number: the class in bits 28 and 29, below it for `enc_numeric` what
//! PostgreSQL's own `numerictypmodin` makes (src/backend/utils/adt/numeric.c). Must not: decide
//! what a class allows; the zone does.

use std::ffi::{CStr, CString};

use pg_sys::Datum;
use pgrx::pg_sys;
use strongroom_format::columns::{Class, Kind};

use crate::call::{Call, sql_functions};
use crate::catalog::types;
use crate::fault;

sql_functions! {
    /// `enc_*_typmod_in(cstring[])`
    strongroom_typmod_in, pg_finfo_strongroom_typmod_in => typmod_in;
    /// `enc_*_typmod_out(integer)`
    strongroom_typmod_out, pg_finfo_strongroom_typmod_out => typmod_out;
}

/// What PostgreSQL adds to precision and scale (VARHDRSZ).
const PACKED_FROM: i32 = 4;
/// Bounds of precision and scale (numeric.h, `NUMERIC_MAX_PRECISION`, `NUMERIC_MAX_SCALE`).
const DIGITS_MAX: i32 = 1000;

/// What a modifier says of a numeric's precision and scale, as `numerictypmodin` packs them. `None`
/// without them.
pub(crate) fn precision_and_scale(modifier: i32) -> Option<i32> {
    let low = modifier & !Class::of_modifier(modifier).modifier();
    (low >= PACKED_FROM).then_some(low)
}

/// Raises the ERROR for a modifier that the type does not have.
fn refuse(message: &str) -> ! {
    fault::Report::new("22023", message)
        .hint(
            "Write the type as enc_text, enc_text(equality), enc_text(ordered) or \
             enc_numeric(12, 2, ordered).",
        )
        .raise()
}

/// The kind of values that the called function is about, by its name: `enc_int4_typmod_in`.
fn kind_by_name(call: &Call) -> Kind {
    let name = types::function(call.function()).name;
    let base = name
        .strip_prefix("enc_")
        .and_then(|rest| rest.split('_').next());
    let kind = base.and_then(|base| Kind::ALL.iter().copied().find(|kind| kind.base() == base));
    kind.unwrap_or_else(|| fault::raise_internal("a modifier of an unknown type"))
}

/// The modifier that a list of words makes. Raises an ERROR for words that the type does not have,
/// and for a boolean, an interval or a document that is to be compared without a session: both
/// values of a boolean would be known.
fn typmod_in(call: &mut Call) -> Datum {
    let kind = kind_by_name(call);
    let words = words_of(call.datum(0));
    let (mut class, mut numbers) = (None, Vec::new());
    for word in &words {
        match (Class::from_name(word), word.parse::<i32>()) {
            (Some(named), _) if class.is_none() => class = Some(named),
            (None, Ok(number)) if kind == Kind::Numeric && class.is_none() => numbers.push(number),
            _ => refuse("invalid type modifier of a confidential type"),
        }
    }
    let class = class.unwrap_or_default();
    if !class.is_possible_for(kind) {
        refuse(match (kind, class) {
            (Kind::Jsonb, Class::Ordered) => {
                "a confidential document cannot be ordered: the order tells its size"
            }
            (Kind::Jsonb, _) => "a confidential document cannot have the class equality",
            (Kind::Interval, Class::Ordered) => {
                "a confidential interval cannot be ordered: its spans are few"
            }
            (Kind::Interval, _) => {
                "a confidential interval cannot have the class equality: its spans are few"
            }
            (_, Class::Ordered) => {
                "a confidential boolean cannot be ordered: its order tells its values"
            }
            _ => "a confidential boolean cannot have the class equality: it tells its values",
        });
    }
    let packed = match numbers.as_slice() {
        [] => 0,
        [precision] => pack(*precision, 0),
        [precision, scale] => pack(*precision, *scale),
        _ => refuse("invalid NUMERIC type modifier"),
    };
    Datum::from(class.modifier() | packed)
}

/// Precision and scale as PostgreSQL packs them. Raises its ERRORs for numbers out of bounds.
fn pack(precision: i32, scale: i32) -> i32 {
    if !(1..=DIGITS_MAX).contains(&precision) {
        refuse(&format!(
            "NUMERIC precision {precision} must be between 1 and {DIGITS_MAX}"
        ));
    }
    if !(-DIGITS_MAX..=DIGITS_MAX).contains(&scale) {
        refuse(&format!(
            "NUMERIC scale {scale} must be between -{DIGITS_MAX} and {DIGITS_MAX}"
        ));
    }
    (precision << 16 | scale & 0x7ff) + PACKED_FROM
}

/// The words of a `cstring[]`.
fn words_of(array: Datum) -> Vec<String> {
    let (mut elements, mut count) = (std::ptr::null_mut(), 0);
    let align = i8::try_from(pg_sys::TYPALIGN_CHAR).unwrap_or_default();
    // SAFETY: PostgreSQL passes an array of C strings without NULLs (typenameTypeMod of
    // src/backend/parser/parse_type.c); -2 is the length of the type cstring.
    unsafe {
        pg_sys::deconstruct_array(
            array.cast_mut_ptr(),
            pg_sys::CSTRINGOID,
            -2,
            false,
            align,
            &raw mut elements,
            std::ptr::null_mut(),
            &raw mut count,
        );
        (0..usize::try_from(count).unwrap_or(0))
            .map(|at| {
                let text: *const std::ffi::c_char = (*elements.add(at)).cast_mut_ptr();
                CStr::from_ptr(text).to_string_lossy().into_owned()
            })
            .collect()
    }
}

/// The text of a modifier, in parentheses, as a C string.
fn typmod_out(call: &mut Call) -> Datum {
    let modifier = call.int4(0);
    let mut words = Vec::new();
    if let Some(packed) = precision_and_scale(modifier) {
        let packed = packed - PACKED_FROM;
        let scale = ((packed & 0x7ff) ^ 1024) - 1024;
        words.push(format!("{},{scale}", (packed >> 16) & 0xffff));
    }
    let class = Class::of_modifier(modifier);
    if class != Class::Opaque || words.is_empty() {
        words.push(class.name().to_owned());
    }
    let text = CString::new(format!("({})", words.join(","))).unwrap_or_default();
    // SAFETY: copies the string into the current memory context.
    Datum::from(unsafe { pg_sys::pstrdup(text.as_ptr()) })
}
