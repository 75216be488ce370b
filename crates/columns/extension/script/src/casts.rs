//! Writes the casts between the confidential types, in the contexts in which PostgreSQL casts their
//! base types (`pg_cast.dat`). Where PostgreSQL casts through text, the cast to text is an
//! assignment cast and the cast from text is explicit.
//!
//! From and to plain types there are explicit casts only; the function of each checks that the
//! ticket has the right to declassify. Must not: make one of those an implicit or assignment cast,
//! so that no value leaves protection unless a query says so.

use std::fmt::Write;

use strongroom_columns_ring::function::{Arg, FUNCTIONS, Function, Gives};
use strongroom_format::columns::Kind;

use crate::names::{arguments, type_name};

/// The first and the last code of casts in the list of functions.
const CASTS: std::ops::RangeInclusive<u16> = 300..=399;

/// Appends the SQL of every cast between confidential types to `out`.
pub(crate) fn write_casts(out: &mut String) {
    out.push_str("\n-- casts\n");
    for function in FUNCTIONS
        .iter()
        .filter(|function| CASTS.contains(&function.code))
    {
        if let ([Arg::Of(from), ..], Gives::Value(to)) = (function.args, function.gives) {
            write_cast(out, function, *from, to).expect("writing to a String does not fail");
        }
    }
}

/// Appends the SQL of a cast by this function from one confidential type to another.
fn write_cast(out: &mut String, function: &Function, from: Kind, to: Kind) -> std::fmt::Result {
    writeln!(
        out,
        "CREATE CAST ({} AS {}) WITH FUNCTION \"{}\"({}){};",
        type_name(from),
        type_name(to),
        function.name,
        arguments(function),
        context(from, to)
    )
}

/// Appends the SQL of the functions `declassify` and `classify` of each confidential type, and of
/// the explicit casts to and from its plain type, to `out`.
pub(crate) fn write_plain_casts(out: &mut String) {
    out.push_str("\n-- values in clear, for a ticket with the right to declassify\n");
    for kind in Kind::ALL {
        let (confidential, plain) = (type_name(*kind), kind.base());
        for (name, from, to) in [
            ("declassify", confidential.as_str(), plain),
            ("classify", plain, confidential.as_str()),
        ] {
            writeln!(
                out,
                "CREATE FUNCTION strongroom_columns.{name}({from}) RETURNS {to}\n    \
                 AS 'MODULE_PATHNAME', 'strongroom_{name}' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;\n\
                 CREATE CAST ({from} AS {to}) WITH FUNCTION strongroom_columns.{name}({from});"
            )
            .expect("writing to a String does not fail");
        }
    }
}

/// Appends the SQL of the functions that open an envelope which a definition keeps, such as
/// `enc_text_constant`, to `out`. They are volatile so that no plan keeps a result, and no table
/// one in place of a default.
pub(crate) fn write_constants(out: &mut String) {
    out.push_str("\n-- constants of definitions\n");
    for kind in Kind::ALL {
        let name = type_name(*kind);
        writeln!(
            out,
            "CREATE FUNCTION strongroom_columns.{name}_constant(text) RETURNS {name}\n    \
             AS 'MODULE_PATHNAME', 'strongroom_constant' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;"
        )
        .expect("writing to a String does not fail");
    }
}

/// The clause of `CREATE CAST` that says where a cast is applied without being written; empty for
/// an explicit cast.
const fn context(from: Kind, to: Kind) -> &'static str {
    match (from, to) {
        (Kind::Int4, Kind::Int8)
        | (Kind::Int4 | Kind::Int8 | Kind::Numeric, Kind::Float8)
        | (Kind::Int4 | Kind::Int8 | Kind::Numeric, Kind::Numeric)
        | (Kind::Date, Kind::Timestamp | Kind::Timestamptz)
        | (Kind::Timestamp, Kind::Timestamptz)
        | (Kind::Time, Kind::Interval) => " AS IMPLICIT",
        (Kind::Bool, Kind::Int4) | (Kind::Int4, Kind::Bool) | (Kind::Text, _) => "",
        _ => " AS ASSIGNMENT",
    }
}
