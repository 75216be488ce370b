//! Functions, and aggregates.
//!
//! A function that gives a value is posted: the result is the identifier that this side chose, and nobody waits. One that gives
//! a truth is called. Which function of the list it is, is found once for each place of a query from PostgreSQL's name and
//! the types of the arguments. Must not: know what any function does.

use pg_sys::Datum;
use pgrx::pg_sys;
use strongroom_columns_ring::Broken;
use strongroom_columns_ring::function::{
    AGGREGATE_NAMES, ALIASES, Aggregate, Arg, FUNCTIONS, Field, Function, Gives, by_code, by_name,
};
use strongroom_columns_ring::{Descriptor, Fault, Op};
use strongroom_format::columns::Kind;

use crate::call::{Call, Site, datum, sql_functions};
use crate::zone::Link;
use crate::{ahead, catalog, fault, zone};

sql_functions! {
    /// Every function that gives a value.
    strongroom_compute, pg_finfo_strongroom_compute => compute;
    /// Every function that gives a truth.
    strongroom_test, pg_finfo_strongroom_test => test;
    /// Every aggregate's transition.
    strongroom_step, pg_finfo_strongroom_step => step;
    /// Every aggregate's result.
    strongroom_final, pg_finfo_strongroom_final => finish;
}

/// OIDs of PostgreSQL's types for arguments in clear (`pg_type.dat`).
const INT4: u32 = 23;
const TEXT: u32 = 25;

/// The function of the list that PostgreSQL calls.
fn function(call: &Call) -> &'static Function {
    function_and_site(call).0
}

/// As [`function`], with what the place of the call remembers beside it.
fn function_and_site(call: &Call) -> (&'static Function, Site) {
    let site = call.site(|call| {
        let called = catalog::function(call.function());
        look_up(&called).map_or(0, |function| usize::from(function.code))
    });
    let found = u16::try_from(site.own()).ok().and_then(by_code);
    let function = found
        .unwrap_or_else(|| fault::internal("a function of strongroom_columns is not in its list"));
    (function, site)
}

fn look_up(called: &catalog::Function) -> Option<&'static Function> {
    let arg = |oid: &pg_sys::Oid| match (catalog::kind_of(*oid), oid.to_u32()) {
        (Some(kind), _) => Some(Arg::Of(kind)),
        (None, INT4) => Some(Arg::Plain),
        (None, TEXT) => Some(Arg::Name),
        _ => None,
    };
    let args: Vec<Arg> = called.args.iter().map(arg).collect::<Option<_>>()?;
    let aliased = ALIASES.iter().filter(|(alias, _)| *alias == called.name);
    by_name(&called.name, &args)
        .or_else(|| aliased.filter_map(|(_, name)| by_name(name, &args)).next())
}

/// An argument as a descriptor has it.
fn operand(call: &Call, function: &Function, at: usize) -> u64 {
    match function.args.get(at) {
        None => 0,
        Some(Arg::Of(_)) => call.bits(at),
        Some(Arg::Plain) => i64::from(call.int4(at)).cast_unsigned(),
        Some(Arg::Name) => {
            // SAFETY: the argument is a text; the copy lives in the current memory context.
            let name = unsafe {
                let text = pg_sys::text_to_cstring(call.datum(at).cast_mut_ptr());
                std::ffi::CStr::from_ptr(text).to_string_lossy()
            };
            let field = Field::by_name(&name).unwrap_or_else(|| fault::fault(Fault::FieldUnknown));
            u64::from(field as u8)
        }
    }
}

/// Whether the result may depend on the session's time zone.
fn has_time_zone(function: &Function) -> bool {
    let zoned = Arg::Of(Kind::Timestamptz);
    function.args.contains(&zoned) || matches!(function.gives, Gives::Value(Kind::Timestamptz))
}

/// The descriptor of a function's call, after what has to go before it.
fn prepared(
    link: &mut Link,
    op: Op,
    call: &Call,
    function: &Function,
) -> Result<Descriptor, Broken> {
    if has_time_zone(function) {
        link.tell_time_zone()?;
    }
    if function.args.len() == 3 {
        link.post(Descriptor {
            a: operand(call, function, 2),
            ..Descriptor::of(Op::ThirdArgument)
        })?;
    }
    Ok(Descriptor {
        n: u32::from(function.code),
        a: operand(call, function, 0),
        b: operand(call, function, 1),
        ..Descriptor::of(op)
    })
}

fn compute(call: &mut Call) -> Datum {
    let function = function(call);
    datum(zone::with(|link| {
        let descriptor = prepared(link, Op::Compute, call, function)?;
        let r = link.fresh()?;
        link.post(Descriptor { r, ..descriptor })?;
        Ok(r)
    }))
}

fn test(call: &mut Call) -> Datum {
    let (function, site) = function_and_site(call);
    if let [Arg::Of(kind), Arg::Of(_)] = function.args {
        let (a, b) = (call.bits(0), call.bits(1));
        if let Some(truth) = ahead::known(u32::from(function.code), a, b) {
            call.keep(site.with(0, 1));
            return Datum::from(truth != 0);
        }
        if site.is_worth_it()
            && let Some((truth, asked)) = ahead::test(function.code, *kind, a, b)
        {
            call.keep(site.with(asked, 1));
            return Datum::from(truth);
        }
        call.keep(site.less());
    }
    let answer = zone::with(|link| {
        let descriptor = prepared(link, Op::Test, call, function)?;
        link.call(descriptor)
    });
    Datum::from(answer.value != 0)
}

/// What is accumulated: the aggregate's number in the upper, the kind's in the low byte.
fn accumulated(call: &Call) -> (u16, u16) {
    let packed = call.remembered(|call| {
        let called = catalog::function(call.function());
        let name = called.name.strip_suffix("_step").unwrap_or_default();
        let aggregate = AGGREGATE_NAMES.iter().find(|(known, _)| *known == name);
        let kind = called
            .args
            .get(1)
            .and_then(|second| catalog::kind_of(*second));
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
        _ => fault::internal("an aggregate of strongroom_columns is not in its list"),
    }
}

fn step(call: &mut Call) -> Datum {
    let (aggregate, kind) = accumulated(call);
    let state = call.arg(0);
    let Some(value) = call.arg(1) else {
        // PostgreSQL's aggregates pass over NULL; string_agg passes over the delimiter with it.
        return state.unwrap_or_else(|| call.null());
    };
    // string_agg with a NULL delimiter puts nothing between (string_agg_transfn).
    let delimiter = if call.count() > 2 { call.arg(2) } else { None };
    datum(zone::with(|link| {
        let r = match state {
            Some(state) => crate::call::bits(state),
            None => link.fresh()?,
        };
        link.post(Descriptor {
            flags: kind,
            n: u32::from(aggregate),
            a: delimiter.map_or(0, crate::call::bits),
            b: crate::call::bits(value),
            r,
            ..Descriptor::of(Op::Accumulate)
        })?;
        Ok(r)
    }))
}

fn finish(call: &mut Call) -> Datum {
    let a = call.bits(0);
    let (answer, r) = zone::with(|link| {
        let r = link.fresh()?;
        let answer = link.call(Descriptor {
            a,
            r,
            ..Descriptor::of(Op::Final)
        })?;
        Ok((answer, r))
    });
    if answer.value == 0 {
        call.null()
    } else {
        datum(r)
    }
}

// A code is what a call site remembers, and 0 is nothing.
const _: () = assert!(FUNCTIONS[0].code > 0);
