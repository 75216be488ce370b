//! Writes the aggregates. Their state is the identifier of an accumulator in the zone.
//!
//! Each aggregate has its own SQL transition function, although all call one C function: PostgreSQL
//! lets aggregates with the same transition function share their state, and the accumulator of a
//! sum is not that of a mean. Must not: offer a combine function before accumulators of parallel
//! workers outlive the workers.

use std::fmt::Write;

use strongroom_columns_ring::function::{AGGREGATE_NAMES, Aggregate};
use strongroom_format::columns::Kind;

use crate::names::type_name;

/// Appends the SQL of every aggregate, with its transition and final functions, to `out`.
pub(crate) fn write_aggregates(out: &mut String) {
    out.push_str("\n-- aggregates\n");
    for kind in Kind::ALL {
        let name = type_name(*kind);
        if Aggregate::ALL
            .iter()
            .any(|aggregate| gives(*aggregate, *kind))
        {
            writeln!(
                out,
                "CREATE FUNCTION {name}_final(bigint) RETURNS {name}\n    \
                 AS 'MODULE_PATHNAME', 'strongroom_final' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;"
            )
            .expect("writing to a String does not fail");
        }
    }
    for (sql, aggregate) in AGGREGATE_NAMES {
        for kind in Kind::ALL {
            if let Some(gives) = aggregate.gives(*kind) {
                write_aggregate(out, sql, *aggregate, *kind, gives)
                    .expect("writing to a String does not fail");
            }
        }
    }
}

/// Whether the aggregate's result is of this kind, for values of any kind.
fn gives(aggregate: Aggregate, kind: Kind) -> bool {
    Kind::ALL
        .iter()
        .any(|from| aggregate.gives(*from) == Some(kind))
}

/// Appends the SQL of an aggregate over values of `kind`, named `sql`, whose result is of kind
/// `gives`, and of its transition function.
fn write_aggregate(
    out: &mut String,
    sql: &str,
    aggregate: Aggregate,
    kind: Kind,
    gives: Kind,
) -> std::fmt::Result {
    let of = type_name(kind);
    let args = if aggregate == Aggregate::StringAgg {
        format!("{of}, {of}")
    } else {
        of
    };
    let sort = match aggregate {
        Aggregate::Min => ", SORTOP = <",
        Aggregate::Max => ", SORTOP = >",
        _ => "",
    };
    writeln!(
        out,
        "CREATE FUNCTION {sql}_step(bigint, {args}) RETURNS bigint\n    \
         AS 'MODULE_PATHNAME', 'strongroom_step' LANGUAGE C STABLE PARALLEL RESTRICTED;\n\
         CREATE AGGREGATE {sql}({args}) (SFUNC = {sql}_step, STYPE = bigint, FINALFUNC = {}_final{sort}, PARALLEL = RESTRICTED);",
        type_name(gives)
    )
}
