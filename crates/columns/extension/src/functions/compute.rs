//! The functions that compute on values (the list is `strongroom_columns_ring::function`).
//!
//! A function whose result is a value is posted: this backend chooses the result's identifier and
//! does not wait. A function whose result is a truth is called. Each call site finds its function
//! of the list once, from PostgreSQL's name of the function and the types of its arguments. Must
//! not: know what any function does.

use pg_sys::Datum;
use pgrx::pg_sys;
use strongroom_columns_ring::Broken;
use strongroom_columns_ring::function::{
    ALIASES, Arg, FUNCTIONS, Field, Function, Gives, by_code, by_name,
};
use strongroom_columns_ring::{Descriptor, Fault, Op};
use strongroom_format::columns::Kind;

use crate::call::{Call, Site, datum, sql_functions};
use crate::catalog::types;
use crate::fault;
use crate::ring::connection::Connection;
use crate::ring::zone;
use crate::scanning::{answers, batching};

sql_functions! {
    /// Every function whose result is a value.
    strongroom_compute, pg_finfo_strongroom_compute => compute;
    /// Every function whose result is a truth.
    strongroom_test, pg_finfo_strongroom_test => test;
}

/// OIDs of PostgreSQL's types for arguments in clear (`pg_type.dat`).
const INT4: u32 = 23;
const TEXT: u32 = 25;

/// The function of the list that PostgreSQL calls. Raises an internal ERROR if there is none.
fn function(call: &Call) -> &'static Function {
    function_and_site(call).0
}

/// The function of the list that PostgreSQL calls, and what is cached for the call site. Raises an
/// internal ERROR if there is no such function.
fn function_and_site(call: &Call) -> (&'static Function, Site) {
    let site = call.site(|call| {
        let called = types::function(call.function());
        look_up(&called).map_or(0, |function| usize::from(function.code))
    });
    let found = u16::try_from(site.number()).ok().and_then(by_code);
    let function = found.unwrap_or_else(|| {
        fault::raise_internal("a function of strongroom_columns is not in its list")
    });
    (function, site)
}

/// The function of the list with the name, or an alias, and the argument types of an SQL function.
/// `None` if there is none.
pub(crate) fn look_up(called: &types::Function) -> Option<&'static Function> {
    let arg = |oid: &pg_sys::Oid| match (types::kind_of(*oid), oid.to_u32()) {
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

/// Argument `at` of the call, in the form of a descriptor's argument; 0 if the function has fewer.
/// Raises an ERROR for the name of an unknown field.
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
            let field = Field::by_name(&name).unwrap_or_else(|| fault::raise(Fault::FieldUnknown));
            u64::from(field as u8)
        }
    }
}

/// Whether the result may depend on the session's time zone.
pub(crate) fn depends_on_time_zone(function: &Function) -> bool {
    let with_zone = Arg::Of(Kind::Timestamptz);
    function.args.contains(&with_zone) || matches!(function.gives, Gives::Value(Kind::Timestamptz))
}

/// Sends what the zone has to know before a function is called, the time zone and a third argument,
/// and returns the descriptor of the call. Fails as [`Connection::call`] does; raises an ERROR for
/// an unknown field.
fn prepare_call(
    connection: &mut Connection,
    op: Op,
    call: &Call,
    function: &Function,
) -> Result<Descriptor, Broken> {
    if depends_on_time_zone(function) {
        connection.send_time_zone()?;
    }
    if function.args.len() == 3 {
        connection.post(Descriptor {
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

/// Has the zone compute a value, without waiting, and returns the identifier of the result. A fault
/// of the computation is raised as an ERROR by a later call.
fn compute(call: &mut Call) -> Datum {
    let function = function(call);
    datum(zone::with(|connection| {
        let descriptor = prepare_call(connection, Op::Compute, call, function)?;
        let r = connection.new_identifier()?;
        connection.post(Descriptor { r, ..descriptor })?;
        Ok(r)
    }))
}

/// The boolean that a function returns: from an answer that is kept, from one call for many rows,
/// or from a call of its own. Raises the zone's faults as an ERROR.
fn test(call: &mut Call) -> Datum {
    let (function, site) = function_and_site(call);
    if let [Arg::Of(kind), Arg::Of(_)] = function.args {
        let (a, b) = (call.bits(0), call.bits(1));
        if let Some(truth) = answers::get(u32::from(function.code), a, b) {
            call.store_site(site.with_answers(0, 1));
            return Datum::from(truth != 0);
        }
        if site.should_batch()
            && let Some((truth, asked)) = batching::test(function.code, *kind, a, b)
        {
            call.store_site(site.with_answers(asked, 1));
            return Datum::from(truth);
        }
        call.store_site(site.with_single_answer());
    }
    let answer = zone::with(|connection| {
        let descriptor = prepare_call(connection, Op::Test, call, function)?;
        connection.call(descriptor)
    });
    Datum::from(answer.value != 0)
}

// A call site caches the code, and 0 means that nothing is cached.
const _: () = assert!(FUNCTIONS[0].code > 0);
