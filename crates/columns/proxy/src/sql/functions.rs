//! The functions that the resolver knows: which arguments are structure and not data, which results
//! are plain, and the kind of each result.
//!
//! A function that is not listed here counts as one that combines all its arguments and whose
//! result is a value of their type. Must not: resolve overloads as PostgreSQL does; the server does
//! that.

use strongroom_columns_ring::function::{Aggregate, Arg, FUNCTIONS, Field, Function, Gives};
use strongroom_format::columns::Kind;

/// The form of an argument that is structure and not data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Structure {
    /// A position, a length, a number of digits, rows or parts.
    Integer,
    /// The name of a field of a date.
    Field,
}

impl Structure {
    /// Returns whether the text, of a constant or of a parameter's value, has this form: a whole
    /// number of 64 bits, or the name of a field of a date in any case, also with an `s` at its
    /// end.
    pub(crate) fn has(self, text: &str) -> bool {
        match self {
            Self::Integer => text.parse::<i64>().is_ok(),
            Self::Field => {
                let name = text.to_ascii_lowercase();
                let known =
                    |name: &str| Field::by_name(name).is_some() || ZONE_FIELDS.contains(&name);
                known(&name) || name.strip_suffix('s').is_some_and(known)
            }
        }
    }
}

/// Fields of a time zone, which the zone does not compute and the server refuses.
const ZONE_FIELDS: &[&str] = &["timezone", "timezone_hour", "timezone_minute"];

/// Returns the form that argument number `place`, from 0, of this function must have if it is
/// structure and not data, such as a length or the name of a date's field. `None` if it is data, or
/// the function is not known.
pub(crate) fn structure_of_argument(name: &str, place: usize) -> Option<Structure> {
    match (name, place) {
        ("substring" | "substr", 1 | 2)
        | ("left" | "right" | "round" | "trunc" | "lag" | "lead" | "nth_value", 1)
        | ("ntile", 0) => Some(Structure::Integer),
        ("extract" | "date_part" | "date_trunc", 0) => Some(Structure::Field),
        _ => {
            let ours = extension_name(name).unwrap_or(name);
            let mut named = FUNCTIONS.iter().filter(|function| function.name == ours);
            named.find_map(|function| match function.args.get(place) {
                Some(Arg::Plain) => Some(Structure::Integer),
                Some(Arg::Name) => Some(Structure::Field),
                _ => None,
            })
        }
    }
}

/// Returns the kind of argument number `place`, from 0, of the extension's function `name`, if all
/// of its overloads that have such an argument take the same kind there and none of these overloads
/// returns that kind. The time zone of `timezone` is one. `None` otherwise.
pub(crate) fn other_kind_of_argument(name: &str, place: usize) -> Option<Kind> {
    let ours = extension_name(name)?;
    let mut named = FUNCTIONS
        .iter()
        .filter(|function| function.name == ours && function.args.len() > place);
    let kind_in = |function: &Function| match (function.args.get(place), function.gives) {
        (Some(Arg::Of(kind)), Gives::Value(result)) if result != *kind => Some(*kind),
        _ => None,
    };
    let first = kind_in(named.next()?)?;
    named
        .all(|function| kind_in(function) == Some(first))
        .then_some(first)
}

/// Returns whether a function of `pg_catalog` that is called in FROM returns one column of scalars,
/// which has the call's alias as its name.
pub(crate) fn gives_one_column(name: &str) -> bool {
    matches!(
        name,
        "generate_series"
            | "generate_subscripts"
            | "regexp_split_to_table"
            | "string_to_table"
            | "json_object_keys"
            | "jsonb_object_keys"
    )
}

/// Returns whether the function writes values of any type as text, JSON or XML, so that it would
/// write the envelope of a confidential one.
pub(crate) fn renders(name: &str) -> bool {
    matches!(
        name,
        "concat"
            | "concat_ws"
            | "format"
            | "quote_literal"
            | "quote_nullable"
            | "to_json"
            | "to_jsonb"
            | "row_to_json"
            | "array_to_json"
            | "array_to_string"
            | "json_build_array"
            | "json_build_object"
            | "jsonb_build_array"
            | "jsonb_build_object"
            | "json_agg"
            | "jsonb_agg"
            | "json_object_agg"
            | "jsonb_object_agg"
            | "xmlconcat2"
    )
}

/// Returns whether the function's result is a plain value although arguments are confidential:
/// counts, ranks, types, and functions of the zone that return a boolean.
pub(crate) fn is_plain(name: &str) -> bool {
    const PLAIN: &[&str] = &[
        "count",
        "row_number",
        "rank",
        "dense_rank",
        "percent_rank",
        "cume_dist",
        "ntile",
        "pg_typeof",
        "num_nulls",
        "num_nonnulls",
        "grouping",
    ];
    let truth = |name: &str| {
        let mut named = FUNCTIONS.iter().filter(|function| function.name == name);
        named
            .next()
            .is_some_and(|function| function.gives == Gives::Truth)
    };
    PLAIN.contains(&name) || truth(name)
}

/// Returns the kind of a function's result when its first confidential argument is of kind `of`.
/// `None` if that is not known, or if `of` is `None`.
pub(crate) fn result_kind(name: &str, of: Option<Kind>) -> Option<Kind> {
    let of = of?;
    if let Some(aggregate) = aggregate(name) {
        return aggregate.gives(of).or_else(|| as_interval(name, of));
    }
    let takes = |arg: &Arg| *arg == Arg::Of(of);
    let found = FUNCTIONS
        .iter()
        .find(|function| function.name == name && function.args.iter().any(takes));
    match found.map(|function| function.gives) {
        Some(Gives::Value(kind)) => Some(kind),
        _ => matches!(
            name,
            "lag" | "lead" | "first_value" | "last_value" | "nth_value"
        )
        .then_some(of)
        .or_else(|| as_interval(name, of)),
    }
}

/// Returns the kind of the result of a function that PostgreSQL has for intervals and not for times
/// of day: it makes an interval of a time. `None` for values of other kinds than `time`.
fn as_interval(name: &str, of: Kind) -> Option<Kind> {
    match of {
        Kind::Time => result_kind(name, Some(Kind::Interval)),
        _ => None,
    }
}

/// Returns the aggregate of this name that the zone computes; `None` for every other function.
fn aggregate(name: &str) -> Option<Aggregate> {
    Some(match name {
        "sum" => Aggregate::Sum,
        "avg" => Aggregate::Avg,
        "min" => Aggregate::Min,
        "max" => Aggregate::Max,
        "stddev" | "stddev_samp" => Aggregate::StddevSamp,
        "stddev_pop" => Aggregate::StddevPop,
        "variance" | "var_samp" => Aggregate::VarSamp,
        "var_pop" => Aggregate::VarPop,
        "string_agg" => Aggregate::StringAgg,
        "bool_and" | "every" => Aggregate::BoolAnd,
        "bool_or" => Aggregate::BoolOr,
        _ => return None,
    })
}

/// Returns the extension's name of a function, which PostgreSQL's grammar, or usage, may call by
/// another name. `None` if the extension has no such function.
///
/// `SUBSTRING(x FROM 1)`, `EXTRACT(..)`, `TRIM(..)` are written by the grammar as functions of
/// `pg_catalog`, where the extension has none.
pub(crate) fn extension_name(name: &str) -> Option<&'static str> {
    let name = match name {
        "position" => "strpos",
        "char_length" | "character_length" => "length",
        "substr" => "substring",
        "ceiling" => "ceil",
        other => other,
    };
    FUNCTIONS
        .iter()
        .find(|function| function.name == name)
        .map(|function| function.name)
}

/// Returns the kind of a base type's values, by the name that PostgreSQL's grammar gives the type.
/// `None` if no confidential type corresponds to it.
pub(crate) fn kind_of_type(name: &str) -> Option<Kind> {
    Some(match name {
        "int2" => Kind::Int4,
        "float4" => Kind::Float8,
        "varchar" | "bpchar" | "name" => Kind::Text,
        "decimal" => Kind::Numeric,
        other => return Kind::ALL.iter().copied().find(|kind| kind.base() == other),
    })
}

/// Returns the kind of the elements of an array type that is named by itself (`_int4`). `None` if
/// no confidential type corresponds to them.
pub(crate) fn kind_of_array_type(name: &str) -> Option<Kind> {
    kind_of_type(name.strip_prefix('_')?)
}

/// PostgreSQL's own types without a confidential counterpart (`pg_type.dat`).
const SYSTEM_TYPES: &[&str] = &[
    "aclitem",
    "gtsvector",
    "pg_attribute",
    "pg_class",
    "pg_dependencies",
    "pg_mcv_list",
    "pg_ndistinct",
    "pg_node_tree",
    "pg_proc",
    "pg_type",
    "bit",
    "box",
    "char",
    "cid",
    "cidr",
    "circle",
    "cstring",
    "daterange",
    "datemultirange",
    "inet",
    "int2vector",
    "int4range",
    "int4multirange",
    "int8range",
    "int8multirange",
    "json",
    "jsonpath",
    "line",
    "lseg",
    "macaddr",
    "macaddr8",
    "money",
    "numrange",
    "nummultirange",
    "oid",
    "oidvector",
    "path",
    "pg_lsn",
    "pg_snapshot",
    "point",
    "polygon",
    "refcursor",
    "regclass",
    "regcollation",
    "regconfig",
    "regdictionary",
    "regnamespace",
    "regoper",
    "regoperator",
    "regproc",
    "regprocedure",
    "regrole",
    "regtype",
    "tid",
    "timetz",
    "tsmultirange",
    "tsquery",
    "tsrange",
    "tstzmultirange",
    "tstzrange",
    "tsvector",
    "txid_snapshot",
    "unknown",
    "varbit",
    "void",
    "xid",
    "xid8",
    "xml",
];

/// Returns whether it is one of PostgreSQL's own types without a confidential counterpart
/// (`pg_type.dat`), or an array of one.
pub(crate) fn is_system_type(name: &str) -> bool {
    let name = name.strip_prefix('_').unwrap_or(name);
    SYSTEM_TYPES.contains(&name)
}

/// Returns whether the type's values are known to be no rows: base types that have a confidential
/// counterpart, the extension's, and PostgreSQL's own but for its catalogs' row types.
pub(crate) fn is_scalar_type(name: &str) -> bool {
    kind_of_type(name).is_some()
        || confidential_type(name).is_some()
        || is_system_type(name) && !name.starts_with("pg_")
}

/// Returns the kind of one of the extension's types, by its name, such as `enc_text`. `None` for
/// every other name.
pub(crate) fn confidential_type(name: &str) -> Option<Kind> {
    let base = name.strip_prefix("enc_")?;
    Kind::ALL.iter().copied().find(|kind| kind.base() == base)
}

/// Returns whether the operator compares or matches, so that its result is a plain boolean.
pub(crate) fn compares(operator: &str) -> bool {
    matches!(
        operator,
        "=" | "<>"
            | "!="
            | "<"
            | ">"
            | "<="
            | ">="
            | "~~"
            | "!~~"
            | "~~*"
            | "!~~*"
            | "~"
            | "!~"
            | "~*"
            | "!~*"
            | "^@"
            | "@>"
            | "<@"
            | "&&"
            | "?"
    )
}

/// Returns whether the operator, which does not compare, computes a value of its operands; with a
/// confidential one that is one, too. These are the operators of the extension's script.
pub(crate) fn computes(operator: &str) -> bool {
    matches!(
        operator,
        "+" | "-" | "*" | "/" | "%" | "||" | "->" | "->>" | "&" | "|" | "#" | "<<" | ">>" | "~"
    )
}

/// Returns the kind of what an operator takes out of a document. `None` for every other operator.
pub(crate) fn taken_from_document(operator: &str) -> Option<Kind> {
    match operator {
        "->" => Some(Kind::Jsonb),
        "->>" => Some(Kind::Text),
        _ => None,
    }
}

/// Returns whether the function returns one of its arguments' values, of one row or another.
pub(crate) fn picks(name: &str) -> bool {
    matches!(
        name,
        "min" | "max" | "lag" | "lead" | "first_value" | "last_value" | "nth_value"
    )
}

/// Returns the rank of a kind of number in the order in which PostgreSQL widens numbers, 0 for the
/// narrowest. `None` for a kind that is no number.
const fn width(kind: Kind) -> Option<u8> {
    match kind {
        Kind::Int4 => Some(0),
        Kind::Int8 => Some(1),
        Kind::Numeric => Some(2),
        Kind::Float8 => Some(3),
        _ => None,
    }
}

/// Returns the wider of two kinds of numbers. If not both are numbers it returns the first one; if
/// only one is known, that one.
pub(crate) fn wider(a: Option<Kind>, b: Option<Kind>) -> Option<Kind> {
    let (Some(left), Some(right)) = (a, b) else {
        return a.or(b);
    };
    match (width(left), width(right)) {
        (Some(one), Some(other)) if other > one => Some(right),
        _ => Some(left),
    }
}

/// Returns the kind of the result of an operator that computes. `None` unless both kinds are known.
pub(crate) fn operator_kind(operator: &str, a: Option<Kind>, b: Option<Kind>) -> Option<Kind> {
    match (operator, a?, b?) {
        ("-", Kind::Date, Kind::Date) => Some(Kind::Int4),
        ("-", Kind::Timestamp, Kind::Timestamp) | ("-", Kind::Timestamptz, Kind::Timestamptz) => {
            Some(Kind::Interval)
        }
        ("-", Kind::Time, Kind::Time) => Some(Kind::Interval),
        (_, Kind::Date, Kind::Time) | (_, Kind::Time, Kind::Date) => Some(Kind::Timestamp),
        (_, Kind::Date, Kind::Interval) | (_, Kind::Interval, Kind::Date) => Some(Kind::Timestamp),
        (_, Kind::Interval, other) | (_, other, Kind::Interval) if other != Kind::Interval => {
            match width(other) {
                Some(_) => Some(Kind::Interval),
                None => Some(other),
            }
        }
        (_, one, other) => wider(Some(one), Some(other)),
    }
}

/// Returns whether PostgreSQL widens a number of kind `own` to kind `to`, or `to` is the same kind:
/// then a number literal and an untyped parameter mean the same beside a value of kind `to`.
/// `false` if either is no number.
pub(crate) fn widens(own: Kind, to: Kind) -> bool {
    matches!((width(own), width(to)), (Some(own), Some(to)) if own <= to)
}

/// Returns the OID of the array type of a kind's base type, which is fixed in `pg_type.dat`.
#[must_use]
pub(crate) const fn base_array_oid(kind: Kind) -> u32 {
    match kind {
        Kind::Bool => 1000,
        Kind::Bytea => 1001,
        Kind::Int4 => 1007,
        Kind::Int8 => 1016,
        Kind::Text => 1009,
        Kind::Float8 => 1022,
        Kind::Date => 1182,
        Kind::Time => 1183,
        Kind::Timestamp => 1115,
        Kind::Timestamptz => 1185,
        Kind::Interval => 1187,
        Kind::Numeric => 1231,
        Kind::Uuid => 2951,
        Kind::Jsonb => 3807,
    }
}
