//! Aggregates: the state is the identifier of an accumulator in the zone.
//!
//! Each has a transition function of its own, although all are one C function: PostgreSQL lets aggregates with the same
//! transition function share their state, and a sum's accumulator is not a mean's. Must not: offer a combine function before
//! accumulators of parallel workers outlive them.

use std::fmt::Write;

use strongroom_columns_ring::function::{AGGREGATE_NAMES, Aggregate};
use strongroom_format::columns::Kind;

use crate::type_name;

/// Writes every aggregate.
pub(crate) fn write(out: &mut String) {
    out.push_str("\n-- aggregates\n");
    for kind in Kind::ALL {
        let name = type_name(*kind);
        if Aggregate::ALL
            .iter()
            .any(|aggregate| aggregated(*aggregate, *kind))
        {
            writeln!(
                out,
                "CREATE FUNCTION {name}_final(bigint) RETURNS {name}\n    \
                 AS 'MODULE_PATHNAME', 'strongroom_final' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;"
            )
            .expect("a String takes everything");
        }
    }
    for (sql, aggregate) in AGGREGATE_NAMES {
        for kind in Kind::ALL {
            if let Some(gives) = aggregate.gives(*kind) {
                one(out, sql, *aggregate, *kind, gives).expect("a String takes everything");
            }
        }
    }
}

/// Whether an aggregate gives values of this kind.
fn aggregated(aggregate: Aggregate, kind: Kind) -> bool {
    Kind::ALL
        .iter()
        .any(|from| aggregate.gives(*from) == Some(kind))
}

fn one(
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
