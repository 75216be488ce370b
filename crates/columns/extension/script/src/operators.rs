//! Writes the operators: comparison with its operator classes, and the operators of computing.
//!
//! Estimators are PostgreSQL's: with the statistics that this extension keeps (no values) they call
//! no operator, and return their defaults or what follows from the number of distinct values. The
//! estimator of ranges is the extension's own. Must not: offer an operator class for a stored index
//! other than B-tree; the hash class is for execution, and the extension refuses hash indexes.

use std::fmt::Write;

use strongroom_columns_ring::function::{Arg, FUNCTIONS, Function};
use strongroom_format::columns::{Class, Kind};

use crate::names::{COST, arg_type, type_name};

/// A comparison operator; the fields are clauses of its definitions.
struct Comparison {
    suffix: &'static str,
    symbol: &'static str,
    commutator: &'static str,
    negator: &'static str,
    restrict: &'static str,
    join: &'static str,
    more: &'static str,
    /// B-tree strategy; 0 for none.
    strategy: u8,
}

const COMPARISONS: &[Comparison] = &[
    Comparison {
        suffix: "lt",
        symbol: "<",
        commutator: ">",
        negator: ">=",
        restrict: "strongroom_range_selectivity",
        join: "scalarltjoinsel",
        more: "",
        strategy: 1,
    },
    Comparison {
        suffix: "le",
        symbol: "<=",
        commutator: ">=",
        negator: ">",
        restrict: "strongroom_range_selectivity",
        join: "scalarlejoinsel",
        more: "",
        strategy: 2,
    },
    Comparison {
        suffix: "eq",
        symbol: "=",
        commutator: "=",
        negator: "<>",
        restrict: "eqsel",
        join: "eqjoinsel",
        more: ", HASHES, MERGES",
        strategy: 3,
    },
    Comparison {
        suffix: "ge",
        symbol: ">=",
        commutator: "<=",
        negator: "<",
        restrict: "strongroom_range_selectivity",
        join: "scalargejoinsel",
        more: "",
        strategy: 4,
    },
    Comparison {
        suffix: "gt",
        symbol: ">",
        commutator: "<",
        negator: "<=",
        restrict: "strongroom_range_selectivity",
        join: "scalargtjoinsel",
        more: "",
        strategy: 5,
    },
    Comparison {
        suffix: "ne",
        symbol: "<>",
        commutator: "<>",
        negator: "=",
        restrict: "neqsel",
        join: "neqjoinsel",
        more: "",
        strategy: 0,
    },
];

/// Appends the SQL of the comparison of every type to `out`: functions, operators and operator
/// classes. It is IMMUTABLE, as an index requires.
pub(crate) fn write_comparison(out: &mut String) {
    out.push_str(
        "\n-- comparison\n\
         CREATE FUNCTION strongroom_range_selectivity(internal, oid, internal, integer) RETURNS double precision\n    \
         AS 'MODULE_PATHNAME', 'strongroom_range_selectivity' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;\n",
    );
    for kind in Kind::ALL {
        write_comparison_of(out, &type_name(*kind)).expect("writing to a String does not fail");
    }
}

/// Appends the SQL of the comparison of the type of this name, with its B-tree and hash operator
/// classes.
fn write_comparison_of(out: &mut String, name: &str) -> std::fmt::Result {
    for one in COMPARISONS {
        writeln!(
            out,
            "CREATE FUNCTION {name}_{0}({name}, {name}) RETURNS boolean\n    \
             AS 'MODULE_PATHNAME', 'strongroom_{0}' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST {COST};",
            one.suffix
        )?;
        writeln!(
            out,
            "CREATE OPERATOR {} (LEFTARG = {name}, RIGHTARG = {name}, FUNCTION = {name}_{}, COMMUTATOR = {}, NEGATOR = {},\n    \
             RESTRICT = {}, JOIN = {}{});",
            one.symbol, one.suffix, one.commutator, one.negator, one.restrict, one.join, one.more
        )?;
    }
    writeln!(
        out,
        "CREATE FUNCTION {name}_cmp({name}, {name}) RETURNS integer\n    \
         AS 'MODULE_PATHNAME', 'strongroom_cmp' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST {COST};\n\
         CREATE FUNCTION {name}_hash({name}) RETURNS integer\n    \
         AS 'MODULE_PATHNAME', 'strongroom_hash' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST {COST};\n\
         CREATE FUNCTION {name}_hash_extended({name}, bigint) RETURNS bigint\n    \
         AS 'MODULE_PATHNAME', 'strongroom_hash_extended' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST {COST};"
    )?;
    writeln!(
        out,
        "CREATE OPERATOR CLASS {name}_ops DEFAULT FOR TYPE {name} USING btree AS"
    )?;
    for one in COMPARISONS.iter().filter(|one| one.strategy > 0) {
        writeln!(out, "    OPERATOR {} {},", one.strategy, one.symbol)?;
    }
    writeln!(out, "    FUNCTION 1 {name}_cmp({name}, {name});")?;
    writeln!(
        out,
        "CREATE OPERATOR CLASS {name}_ops DEFAULT FOR TYPE {name} USING hash AS\n    \
         OPERATOR 1 =, FUNCTION 1 {name}_hash({name}), FUNCTION 2 {name}_hash_extended({name}, bigint);"
    )
}

/// Appends the SQL of what indexes on columns of class equality need: for each type that can have
/// the class a B-tree operator class that has the keyed order of the zone's, and `=` alone.
///
/// The operators `==` and their family are for the planner only, which asks each index for the
/// equality operator of its order. No query has `==`, so that the planner never takes the keyed
/// order for one that a query needs (src/planning/indexes.rs).
///
/// The families have to be made after the types' default ones: of the B-tree families of `=` the
/// planner sorts by the one with the least OID.
pub(crate) fn write_equality(out: &mut String) {
    out.push_str(
        "\n-- indexes on columns of class equality\n\
         CREATE OPERATOR FAMILY enc_unsorted_ops USING btree;\n",
    );
    for kind in Kind::ALL {
        if Class::Equality.is_possible_for(*kind) {
            write_equality_of(out, &type_name(*kind)).expect("writing to a String does not fail");
        }
    }
}

/// Appends the SQL of the operator class for columns of class equality of the type of this name.
fn write_equality_of(out: &mut String, name: &str) -> std::fmt::Result {
    writeln!(
        out,
        "CREATE FUNCTION {name}_keyed_cmp({name}, {name}) RETURNS integer\n    \
         AS 'MODULE_PATHNAME', 'strongroom_keyed_cmp' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST {COST};\n\
         CREATE OPERATOR CLASS {name}_equality_ops FOR TYPE {name} USING btree AS\n    \
         OPERATOR 3 =,\n    \
         FUNCTION 1 {name}_keyed_cmp({name}, {name});\n\
         CREATE OPERATOR == (LEFTARG = {name}, RIGHTARG = {name}, FUNCTION = {name}_eq, COMMUTATOR = ==,\n    \
         RESTRICT = eqsel, JOIN = eqjoinsel);\n\
         ALTER OPERATOR FAMILY enc_unsorted_ops USING btree ADD OPERATOR 3 == ({name}, {name});"
    )
}

/// Operators of computing: symbol, function, further clauses (as in PostgreSQL's
/// `pg_operator.dat`).
const COMPUTING: &[(&str, &str, &str)] = &[
    ("+", "int4pl", ", COMMUTATOR = +"),
    ("-", "int4mi", ""),
    ("*", "int4mul", ", COMMUTATOR = *"),
    ("/", "int4div", ""),
    ("%", "int4mod", ""),
    ("-", "int4um", ""),
    ("+", "int8pl", ", COMMUTATOR = +"),
    ("-", "int8mi", ""),
    ("*", "int8mul", ", COMMUTATOR = *"),
    ("/", "int8div", ""),
    ("%", "int8mod", ""),
    ("-", "int8um", ""),
    ("+", "float8pl", ", COMMUTATOR = +"),
    ("-", "float8mi", ""),
    ("*", "float8mul", ", COMMUTATOR = *"),
    ("/", "float8div", ""),
    ("-", "float8um", ""),
    ("+", "numeric_add", ", COMMUTATOR = +"),
    ("-", "numeric_sub", ""),
    ("*", "numeric_mul", ", COMMUTATOR = *"),
    ("/", "numeric_div", ""),
    ("%", "numeric_mod", ""),
    ("-", "numeric_uminus", ""),
    ("||", "textcat", ""),
    (
        "~~",
        "textlike",
        ", NEGATOR = !~~, RESTRICT = likesel, JOIN = likejoinsel",
    ),
    (
        "!~~",
        "textnlike",
        ", NEGATOR = ~~, RESTRICT = nlikesel, JOIN = nlikejoinsel",
    ),
    (
        "~~*",
        "texticlike",
        ", NEGATOR = !~~*, RESTRICT = iclikesel, JOIN = iclikejoinsel",
    ),
    (
        "!~~*",
        "texticnlike",
        ", NEGATOR = ~~*, RESTRICT = icnlikesel, JOIN = icnlikejoinsel",
    ),
    (
        "~",
        "textregexeq",
        ", NEGATOR = !~, RESTRICT = regexeqsel, JOIN = regexeqjoinsel",
    ),
    (
        "!~",
        "textregexne",
        ", NEGATOR = ~, RESTRICT = regexnesel, JOIN = regexnejoinsel",
    ),
    (
        "~*",
        "texticregexeq",
        ", NEGATOR = !~*, RESTRICT = icregexeqsel, JOIN = icregexeqjoinsel",
    ),
    (
        "!~*",
        "texticregexne",
        ", NEGATOR = ~*, RESTRICT = icregexnesel, JOIN = icregexnejoinsel",
    ),
    (
        "^@",
        "starts_with",
        ", RESTRICT = prefixsel, JOIN = prefixjoinsel",
    ),
    ("||", "byteacat", ""),
    ("+", "date_pli", ", COMMUTATOR = +"),
    ("-", "date_mii", ""),
    ("-", "date_mi", ""),
    ("+", "date_pl_interval", ", COMMUTATOR = +"),
    ("-", "date_mi_interval", ""),
    ("+", "timestamp_pl_interval", ", COMMUTATOR = +"),
    ("-", "timestamp_mi_interval", ""),
    ("-", "timestamp_mi", ""),
    ("+", "timestamptz_pl_interval", ", COMMUTATOR = +"),
    ("-", "timestamptz_mi_interval", ""),
    ("-", "timestamptz_mi", ""),
    ("+", "interval_pl", ", COMMUTATOR = +"),
    ("-", "interval_mi", ""),
    ("-", "interval_um", ""),
    ("*", "interval_mul", ", COMMUTATOR = *"),
    ("/", "interval_div", ""),
    ("+", "integer_pl_date", ", COMMUTATOR = +"),
    ("+", "interval_pl_date", ", COMMUTATOR = +"),
    ("+", "interval_pl_timestamp", ", COMMUTATOR = +"),
    ("+", "interval_pl_timestamptz", ", COMMUTATOR = +"),
    ("*", "mul_d_interval", ", COMMUTATOR = *"),
    ("+", "time_pl_interval", ", COMMUTATOR = +"),
    ("-", "time_mi_interval", ""),
    ("+", "interval_pl_time", ", COMMUTATOR = +"),
    ("-", "time_mi_time", ""),
    ("+", "datetime_pl", ", COMMUTATOR = +"),
    ("+", "timedate_pl", ", COMMUTATOR = +"),
    ("&", "int4and", ", COMMUTATOR = &"),
    ("|", "int4or", ", COMMUTATOR = |"),
    ("#", "int4xor", ", COMMUTATOR = #"),
    ("~", "int4not", ""),
    ("<<", "int4shl", ""),
    (">>", "int4shr", ""),
    ("&", "int8and", ", COMMUTATOR = &"),
    ("|", "int8or", ", COMMUTATOR = |"),
    ("#", "int8xor", ", COMMUTATOR = #"),
    ("~", "int8not", ""),
    ("<<", "int8shl", ""),
    (">>", "int8shr", ""),
    ("->", "jsonb_object_field", ""),
    ("->>", "jsonb_object_field_text", ""),
    ("->", "jsonb_array_element", ""),
    ("->>", "jsonb_array_element_text", ""),
    (
        "@>",
        "jsonb_contains",
        ", COMMUTATOR = <@, RESTRICT = matchingsel, JOIN = matchingjoinsel",
    ),
    (
        "<@",
        "jsonb_contained",
        ", COMMUTATOR = @>, RESTRICT = matchingsel, JOIN = matchingjoinsel",
    ),
    (
        "?",
        "jsonb_exists",
        ", RESTRICT = matchingsel, JOIN = matchingjoinsel",
    ),
];

/// Appends the SQL of the operators that compute to `out`. Panics if one names a function that is
/// not in the list.
pub(crate) fn write_computing(out: &mut String) {
    out.push_str("\n-- operators\n");
    for (symbol, name, more) in COMPUTING {
        let found = FUNCTIONS.iter().find(|function| function.name == *name);
        let function = found.expect("tests/committed.rs makes the whole script");
        writeln!(
            out,
            "CREATE OPERATOR {symbol} ({}, FUNCTION = \"{name}\"{more});",
            operands(function)
        )
        .expect("writing to a String does not fail");
    }
}

/// The clauses of `CREATE OPERATOR` for a function's operands: one on the right, or left and right.
fn operands(function: &Function) -> String {
    let operand = |side: &str, arg: Arg| format!("{side} = {}", arg_type(arg));
    match function.args {
        [only] => operand("RIGHTARG", *only),
        [left, right, ..] => format!(
            "{}, {}",
            operand("LEFTARG", *left),
            operand("RIGHTARG", *right)
        ),
        [] => String::new(),
    }
}
