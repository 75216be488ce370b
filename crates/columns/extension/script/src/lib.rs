//! Makes the SQL script of the extension `strongroom_columns` from the list of functions in
//! `strongroom-columns-ring`, so that what SQL offers and what the zone computes are stated once.
//!
//! Invariant: the committed script is what this makes (tests/committed.rs). Every identifier is
//! quoted. Must not: know how anything is computed.

mod aggregates;
mod casts;
mod functions;
mod names;
mod operators;
mod types;

/// The beginning of the script.
const HEADER: &str = "\
-- strongroom_columns: confidential columns.
-- Made by crates/columns/extension/script from crates/columns/ring/src/function.rs: change those, not this.
\\echo Use \"CREATE EXTENSION strongroom_columns\" to load this file. \\quit
";

/// The access method, and the functions of administration. These have a schema of their own, so
/// that their names do not depend on the schema of the types.
const ADMINISTRATION: &str = r#"
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

/// The whole SQL script of the extension.
#[must_use]
pub fn script() -> String {
    let mut out = String::from(HEADER);
    types::write_types(&mut out);
    operators::write_comparison(&mut out);
    operators::write_equality(&mut out);
    functions::write_functions(&mut out);
    operators::write_computing(&mut out);
    casts::write_casts(&mut out);
    aggregates::write_aggregates(&mut out);
    out.push_str(ADMINISTRATION);
    casts::write_plain_casts(&mut out);
    casts::write_constants(&mut out);
    out
}
