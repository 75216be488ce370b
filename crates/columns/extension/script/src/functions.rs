//! Writes the functions of the list, each under PostgreSQL's name and under PostgreSQL's other
//! names for it.
//!
//! PostgreSQL searches functions of SQL's own syntax (`extract(year from x)`, `substring(x from
//! 1)`) in `pg_catalog` only, so those are defined there; all others are in the extension's schema.
//! Must not: declare a function IMMUTABLE, because a constant that the planner folded would be an
//! ephemeral in a plan.

use std::fmt::Write;

use strongroom_columns_ring::function::{ALIASES, FUNCTIONS, Function, Gives};

use crate::names::{COST, arguments, result_type};

/// Names that the grammar of PostgreSQL qualifies with `pg_catalog` (gram.y, `SystemFuncName`).
const BY_SYNTAX: &[&str] = &[
    "extract",
    "substring",
    "btrim",
    "ltrim",
    "rtrim",
    "position",
    "like_escape",
];

/// Appends the SQL of every function, under its name and its aliases, to `out`.
pub(crate) fn write_functions(out: &mut String) {
    out.push_str("\n-- functions\n");
    for function in FUNCTIONS {
        write_function(out, function.name, function);
        for (alias, name) in ALIASES {
            if *name == function.name {
                write_function(out, alias, function);
            }
        }
    }
}

/// Appends the SQL of a function under this name: in `pg_catalog` if SQL's own syntax calls it,
/// otherwise in the extension's schema.
fn write_function(out: &mut String, name: &str, function: &Function) {
    let schema = if BY_SYNTAX.contains(&name) {
        "pg_catalog."
    } else {
        ""
    };
    let symbol = match function.gives {
        Gives::Value(_) => "strongroom_compute",
        Gives::Truth => "strongroom_test",
    };
    writeln!(
        out,
        "CREATE FUNCTION {schema}\"{name}\"({}) RETURNS {}\n    \
         AS 'MODULE_PATHNAME', '{symbol}' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST {COST};",
        arguments(function),
        result_type(function)
    )
    .expect("writing to a String does not fail");
}
