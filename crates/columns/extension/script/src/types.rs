//! Writes the types: eight bytes passed by value, with envelopes as their text and binary forms.
//!
//! Categories mirror PostgreSQL's (`pg_type.dat`), so that operators of mixed types resolve as they
//! do for the base types. They are lower-case letters because PostgreSQL reserves the upper-case
//! ones. Must not: make a cast from or to a plain type.

use std::fmt::Write;

use strongroom_format::columns::Kind;

use crate::names::type_name;

/// The letter of a type's category, and whether it is the category's preferred type.
const fn category(kind: Kind) -> (char, bool) {
    match kind {
        Kind::Bool => ('b', true),
        Kind::Int4 | Kind::Int8 | Kind::Numeric => ('n', false),
        Kind::Float8 => ('n', true),
        Kind::Text => ('s', true),
        Kind::Bytea | Kind::Uuid | Kind::Jsonb => ('u', false),
        Kind::Date | Kind::Time | Kind::Timestamp => ('d', false),
        Kind::Timestamptz => ('d', true),
        Kind::Interval => ('t', true),
    }
}

/// Appends the SQL of every type and its input and output functions to `out`.
pub(crate) fn write_types(out: &mut String) {
    out.push_str(
        "\n-- statistics without values\n\
         CREATE FUNCTION strongroom_typanalyze(internal) RETURNS boolean\n    \
         AS 'MODULE_PATHNAME', 'strongroom_typanalyze' LANGUAGE C STABLE STRICT;\n",
    );
    for kind in Kind::ALL {
        write_type(out, *kind).expect("writing to a String does not fail");
    }
}

/// Appends the SQL of one type, its input and output functions, and those of its modifiers.
fn write_type(out: &mut String, kind: Kind) -> std::fmt::Result {
    let name = type_name(kind);
    writeln!(out, "\n-- {name}\nCREATE TYPE {name};")?;
    let forms = [
        (
            "in",
            "cstring, oid, integer",
            name.as_str(),
            "strongroom_in",
        ),
        ("out", name.as_str(), "cstring", "strongroom_out"),
        (
            "recv",
            "internal, oid, integer",
            name.as_str(),
            "strongroom_recv",
        ),
        ("send", name.as_str(), "bytea", "strongroom_send"),
    ];
    for (suffix, args, result, symbol) in forms {
        writeln!(
            out,
            "CREATE FUNCTION {name}_{suffix}({args}) RETURNS {result}\n    \
             AS 'MODULE_PATHNAME', '{symbol}' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;"
        )?;
    }
    for (suffix, args, result) in [
        ("in", "cstring[]", "integer"),
        ("out", "integer", "cstring"),
    ] {
        writeln!(
            out,
            "CREATE FUNCTION {name}_typmod_{suffix}({args}) RETURNS {result}\n    \
             AS 'MODULE_PATHNAME', 'strongroom_typmod_{suffix}' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;"
        )?;
    }
    let (category, preferred) = category(kind);
    writeln!(
        out,
        "CREATE TYPE {name} (\n    INPUT = {name}_in, OUTPUT = {name}_out, RECEIVE = {name}_recv, SEND = {name}_send,"
    )?;
    writeln!(
        out,
        "    TYPMOD_IN = {name}_typmod_in, TYPMOD_OUT = {name}_typmod_out,"
    )?;
    writeln!(
        out,
        "    ANALYZE = strongroom_typanalyze, INTERNALLENGTH = 8, PASSEDBYVALUE, ALIGNMENT = double, STORAGE = plain,\n    \
         CATEGORY = '{category}', PREFERRED = {preferred}\n);"
    )?;
    writeln!(
        out,
        "COMMENT ON TYPE {name} IS 'confidential {}: kept outside of the server';",
        kind.base()
    )
}
