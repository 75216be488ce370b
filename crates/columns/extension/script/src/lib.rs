//! The SQL script of the extension `strongroom_columns`, made from the list of functions in `strongroom-columns-ring`, so that what SQL
//! offers and what the zone computes are stated once.
//!
//! Invariant: the committed script is what this makes (tests/committed.rs). Every identifier is quoted. Must not: know
//! how anything is computed.

mod aggregates;
mod casts;
mod functions;
mod operators;
mod types;

use strongroom_columns_ring::function::{Arg, Function, Gives};
use strongroom_format::columns::Kind;

/// What a function costs in the planner's eyes, in units of a cheap built-in function: one that asks the zone takes some hundred
/// nanoseconds, so that conditions on plain columns are to be looked at first.
pub(crate) const COST: u32 = 10;

/// What the script begins with.
const HEAD: &str = "\
-- strongroom_columns: confidential columns.
-- Made by crates/columns/extension/script from crates/columns/ring/src/function.rs: change those, not this.
\\echo Use \"CREATE EXTENSION strongroom_columns\" to load this file. \\quit
";

/// The functions of administration and the access method. They have a schema of their own, so that they are called the same
/// wherever the types are.
const TAIL: &str = r#"
-- the access method
CREATE FUNCTION strongroom_am_handler(internal) RETURNS table_am_handler
    AS 'MODULE_PATHNAME', 'strongroom_am_handler' LANGUAGE C STRICT;
CREATE ACCESS METHOD strongroom TYPE TABLE HANDLER strongroom_am_handler;
COMMENT ON ACCESS METHOD strongroom IS 'heap, with promotion of confidential values';

-- administration
CREATE SCHEMA strongroom_columns;
GRANT USAGE ON SCHEMA strongroom_columns TO PUBLIC;
CREATE FUNCTION strongroom_columns.status() RETURNS json
    AS 'MODULE_PATHNAME', 'strongroom_status' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
REVOKE ALL ON FUNCTION strongroom_columns.status() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION strongroom_columns.status() TO pg_monitor;
CREATE FUNCTION strongroom_columns.sweep(regclass) RETURNS json
    AS 'MODULE_PATHNAME', 'strongroom_sweep' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
CREATE FUNCTION strongroom_columns.attest(bytea) RETURNS bytea
    AS 'MODULE_PATHNAME', 'strongroom_attest' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION strongroom_columns.conversion() RETURNS trigger
    AS 'MODULE_PATHNAME', 'strongroom_conversion' LANGUAGE C;
CREATE FUNCTION strongroom_columns.message(bytea) RETURNS bytea
    AS 'MODULE_PATHNAME', 'strongroom_message' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
"#;

/// The whole script.
#[must_use]
pub fn script() -> String {
    let mut out = String::from(HEAD);
    types::write(&mut out);
    operators::comparison(&mut out);
    functions::write(&mut out);
    operators::computing(&mut out);
    casts::write(&mut out);
    aggregates::write(&mut out);
    out.push_str(TAIL);
    casts::write_plain(&mut out);
    out
}

/// The extension's type for values of this kind.
#[must_use]
pub fn type_name(kind: Kind) -> String {
    format!("enc_{}", kind.base())
}

/// The SQL type of an argument.
fn arg_type(arg: Arg) -> String {
    match arg {
        Arg::Of(kind) => type_name(kind),
        Arg::Plain => "integer".to_owned(),
        Arg::Name => "text".to_owned(),
    }
}

/// A function's arguments, without the parentheses.
fn arguments(function: &Function) -> String {
    let types: Vec<String> = function.args.iter().map(|arg| arg_type(*arg)).collect();
    types.join(", ")
}

/// The SQL type of a function's result.
fn result_type(function: &Function) -> String {
    match function.gives {
        Gives::Value(kind) => type_name(kind),
        Gives::Truth => "boolean".to_owned(),
    }
}
