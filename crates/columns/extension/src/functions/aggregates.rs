//! Aggregates: the state is the identifier of an accumulator in the zone.
//!
//! Must not: know what any aggregate does.

use pg_sys::Datum;
use pgrx::pg_sys;
use strongroom_columns_ring::function::{AGGREGATE_NAMES, Aggregate};
use strongroom_columns_ring::{Descriptor, Op};

use crate::call::{Call, bits, datum, sql_functions};
use crate::catalog::types;
use crate::fault;
use crate::ring::zone;

sql_functions! {
    /// Every aggregate's transition function.
    strongroom_step, pg_finfo_strongroom_step => step;
    /// Every aggregate's final function.
    strongroom_final, pg_finfo_strongroom_final => finish;
}

/// The numbers of the called aggregate and of the kind of its values, by the function's name and
/// argument types. A call site caches both: the kind in the low byte, the aggregate above it.
/// Raises an internal ERROR for a function that is not in the list.
fn aggregate_and_kind(call: &Call) -> (u16, u16) {
    let packed = call.cached(|call| {
        let called = types::function(call.function());
        let name = called.name.strip_suffix("_step").unwrap_or_default();
        let aggregate = AGGREGATE_NAMES.iter().find(|(known, _)| *known == name);
        let kind = called
            .args
            .get(1)
            .and_then(|second| types::kind_of(*second));
        match (aggregate, kind) {
            (Some((_, aggregate)), Some(kind)) => {
                (*aggregate as usize) << 8 | usize::from(kind.number())
            }
            _ => 0,
        }
    });
    let numbers = u16::try_from(packed >> 8)
        .ok()
        .zip(u16::try_from(packed & 0xff).ok());
    match numbers {
        Some((aggregate, kind)) if Aggregate::from_number(aggregate).is_some() => (aggregate, kind),
        _ => fault::raise_internal("an aggregate of strongroom_columns is not in its list"),
    }
}

/// The transition function: has the zone add a value to the accumulator, without waiting, and
/// returns the accumulator's identifier, a new one for the first value. A NULL is ignored. Raises
/// an ERROR if the zone is gone; a fault of adding is raised later.
fn step(call: &mut Call) -> Datum {
    let (aggregate, kind) = aggregate_and_kind(call);
    let state = call.arg(0);
    let Some(value) = call.arg(1) else {
        // PostgreSQL's aggregates ignore NULL; string_agg then ignores the delimiter too.
        return state.unwrap_or_else(|| call.return_null());
    };
    // With a NULL delimiter, string_agg puts nothing between two values (string_agg_transfn).
    let delimiter = if call.count() > 2 { call.arg(2) } else { None };
    datum(zone::with(|connection| {
        let r = match state {
            Some(state) => bits(state),
            None => connection.new_identifier()?,
        };
        connection.post(Descriptor {
            flags: kind,
            n: u32::from(aggregate),
            a: delimiter.map_or(0, bits),
            b: bits(value),
            r,
            ..Descriptor::of(Op::Accumulate)
        })?;
        Ok(r)
    }))
}

/// The final function: has the zone compute the result, and returns its identifier, or NULL if
/// there is no result. Raises the zone's faults as an ERROR.
fn finish(call: &mut Call) -> Datum {
    let a = call.bits(0);
    let (answer, r) = zone::with(|connection| {
        let r = connection.new_identifier()?;
        let answer = connection.call(Descriptor {
            a,
            r,
            ..Descriptor::of(Op::Final)
        })?;
        Ok((answer, r))
    });
    if answer.value == 0 {
        call.return_null()
    } else {
        datum(r)
    }
}
