//! Comparison and hashing.
//!
//! Invariants: comparison of stored values needs no ticket, so that VACUUM, REINDEX and CREATE
//! INDEX work for the operator of the server. A hash is an equality token under a key of the
//! statement (X6): it is returned only during an executor run, and never where it could be stored.
//! Must not: store a token.

use pg_sys::Datum;
use pgrx::pg_sys;
use strongroom_columns_ring::op::flag;
use strongroom_columns_ring::{Broken, Descriptor, Op};
use strongroom_format::columns::{Fid, Kind};

use crate::call::{Call, sql_functions};
use crate::execution::activity;
use crate::fault;
use crate::functions::input_output::kind_and_site;
use crate::ring::connection::Connection;
use crate::ring::zone;
use crate::scanning::{answers, batching};

sql_functions! {
    /// `enc_*_lt`
    strongroom_lt, pg_finfo_strongroom_lt => less;
    /// `enc_*_le`
    strongroom_le, pg_finfo_strongroom_le => at_most;
    /// `enc_*_eq`
    strongroom_eq, pg_finfo_strongroom_eq => equal;
    /// `enc_*_ge`
    strongroom_ge, pg_finfo_strongroom_ge => at_least;
    /// `enc_*_gt`
    strongroom_gt, pg_finfo_strongroom_gt => greater;
    /// `enc_*_ne`
    strongroom_ne, pg_finfo_strongroom_ne => unequal;
    /// `enc_*_cmp`, support function 1 of B-trees
    strongroom_cmp, pg_finfo_strongroom_cmp => order;
    /// `enc_*_keyed_cmp`, support function 1 of B-trees on columns of class equality
    strongroom_keyed_cmp, pg_finfo_strongroom_keyed_cmp => keyed_order;
    /// `enc_*_hash`, support function 1 of hashing
    strongroom_hash, pg_finfo_strongroom_hash => hash;
    /// `enc_*_hash_extended`, support function 2 of hashing
    strongroom_hash_extended, pg_finfo_strongroom_hash_extended => hash_extended;
}

/// Asks the zone about two values of a kind, and waits.
type AskZone = fn(&mut Connection, Kind, u64, u64) -> Result<i32, Broken>;

/// The order of the two arguments: -1, 0 or 1. From their identifiers if these are the same, from
/// an answer of the zone that is kept, or by asking the zone, for many rows at once where that is
/// useful; `single` asks about the two only. Raises the zone's faults as an ERROR.
fn compare_arguments(call: &Call, single: AskZone) -> i32 {
    let (a, b) = (call.bits(0), call.bits(1));
    if is_one_stored_value(a, b) {
        return 0;
    }
    let (kind, site) = kind_and_site(call);
    if let Some(order) = answers::get(answers::ORDER, a, b) {
        call.store_site(site.with_answers(0, 1));
        return order;
    }
    if site.should_batch()
        && let Some((order, asked)) = batching::compare(kind, a, b)
    {
        call.store_site(site.with_answers(asked, 1));
        return order;
    }
    call.store_site(site.with_single_answer());
    let list_order = batching::compare_list(kind, a, b);
    list_order.unwrap_or_else(|| zone::with(|connection| single(connection, kind, a, b)))
}

/// Whether both are the identifier of one stored value, which is equal to itself.
fn is_one_stored_value(a: u64, b: u64) -> bool {
    a == b && Fid::from_bits(a).is_some_and(|fid| !fid.is_ephemeral())
}

/// Whether the two arguments are equal. Compares their tokens if both are kept; otherwise asks the
/// zone, whose faults it raises as an ERROR.
fn are_equal(call: &Call) -> bool {
    let known = answers::are_equal(call.bits(0), call.bits(1));
    known.unwrap_or_else(|| compare_arguments(call, call_equal) == 0)
}

/// The order of two values of a kind: -1, 0 or 1. Asks the zone, whose faults it raises as an
/// ERROR.
pub(crate) fn compare_two(kind: Kind, a: u64, b: u64) -> i32 {
    zone::with(|connection| call_compare(connection, kind, a, b))
}

/// Has the zone compare two values, and waits: -1, 0 or 1. Fails as [`Connection::call`] does.
fn call_compare(connection: &mut Connection, kind: Kind, a: u64, b: u64) -> Result<i32, Broken> {
    ask(connection, Descriptor::of(Op::Compare), kind, (a, b))
}

/// Has the zone say whether two values are equal, which it says of some that it does not order: 0
/// if they are, otherwise 1. Fails as [`Connection::call`] does.
fn call_equal(connection: &mut Connection, kind: Kind, a: u64, b: u64) -> Result<i32, Broken> {
    let equality = Descriptor {
        flags: flag::EQUALITY,
        ..Descriptor::of(Op::Compare)
    };
    ask(connection, equality, kind, (a, b))
}

/// Has the zone compare two values by the keyed order of their column, and waits: -1, 0 or 1. Fails
/// as [`Connection::call`] does.
fn call_keyed(connection: &mut Connection, kind: Kind, a: u64, b: u64) -> Result<i32, Broken> {
    ask(connection, Descriptor::of(Op::CompareKeyed), kind, (a, b))
}

/// Asks the zone `question` about two values of a kind, and waits: the sign of its answer. Fails as
/// [`Connection::call`] does.
fn ask(
    connection: &mut Connection,
    question: Descriptor,
    kind: Kind,
    (a, b): (u64, u64),
) -> Result<i32, Broken> {
    let answer = connection.call(Descriptor {
        flags: question.flags | u16::from(kind.number()),
        a,
        b,
        ..question
    })?;
    Ok(answer.value.cast_signed().signum().try_into().unwrap_or(0))
}

/// Whether the first argument is less than the second, as [`compare_arguments`] finds out. Raises
/// the zone's faults as an ERROR.
fn less(call: &mut Call) -> Datum {
    Datum::from(compare_arguments(call, call_compare) < 0)
}

/// Whether the first argument is at most the second, as [`compare_arguments`] finds out. Raises the
/// zone's faults as an ERROR.
fn at_most(call: &mut Call) -> Datum {
    Datum::from(compare_arguments(call, call_compare) <= 0)
}

/// Whether the arguments are equal. Raises the zone's faults as an ERROR.
fn equal(call: &mut Call) -> Datum {
    Datum::from(are_equal(call))
}

/// Whether the first argument is at least the second, as [`compare_arguments`] finds out. Raises
/// the zone's faults as an ERROR.
fn at_least(call: &mut Call) -> Datum {
    Datum::from(compare_arguments(call, call_compare) >= 0)
}

/// Whether the first argument is greater than the second, as [`compare_arguments`] finds out.
/// Raises the zone's faults as an ERROR.
fn greater(call: &mut Call) -> Datum {
    Datum::from(compare_arguments(call, call_compare) > 0)
}

/// Whether the arguments are not equal. Raises the zone's faults as an ERROR.
fn unequal(call: &mut Call) -> Datum {
    Datum::from(!are_equal(call))
}

/// The order of the arguments, -1, 0 or 1, for B-trees and sorts. While a query runs, has the zone
/// rank the values of a sort, and compares their ranks. Raises the zone's faults as an ERROR.
fn order(call: &mut Call) -> Datum {
    let (a, b) = (call.bits(0), call.bits(1));
    // Indexes are searched and built with single comparisons; a query that calls this function
    // sorts or merges.
    if a != b && activity::is_query_running() {
        let (kind, _) = kind_and_site(call);
        if let Some(order) = batching::compare_by_rank(kind, a, b) {
            return Datum::from(order);
        }
    }
    Datum::from(compare_arguments(call, call_compare))
}

/// The order of the arguments, -1, 0 or 1, in an index on a column of class equality: the keyed
/// order of the column that the first argument is stored in. B-trees pass the index's value first
/// (src/backend/access/nbtree/nbtsearch.c, `_bt_compare`). Raises the zone's faults as an ERROR.
fn keyed_order(call: &mut Call) -> Datum {
    let (a, b) = (call.bits(0), call.bits(1));
    if is_one_stored_value(a, b) {
        return Datum::from(0_i32);
    }
    let (kind, _) = kind_and_site(call);
    Datum::from(zone::with(|connection| call_keyed(connection, kind, a, b)))
}

/// The first half of the argument's equality token: kept, or asked of the zone, with those of the
/// page's other rows if that is useful. Raises an ERROR unless a query runs: a hash must not be
/// stored.
fn token(call: &Call) -> u64 {
    if !activity::is_query_running() {
        fault::Report::new(
            "0A000",
            "values of confidential columns are hashed only while a query runs",
        )
        .detail("A hash that is stored would show which values are equal.")
        .raise();
    }
    let fid = call.bits(0);
    let (kind, site) = kind_and_site(call);
    if let Some([token, _]) = answers::token(fid) {
        call.store_site(site.with_answers(0, 1));
        return token;
    }
    let batched = site.should_batch();
    let ([token, _], asked) = batching::token(kind, fid, batched);
    call.store_site(if batched {
        site.with_answers(asked, 1)
    } else {
        site.with_single_answer()
    });
    token
}

/// The low 32 bits of the value's equality token, which is a keyed hash of the zone's. Raises an
/// ERROR unless a query runs, and for the zone's faults.
fn hash(call: &mut Call) -> Datum {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "any part of a keyed hash is a keyed hash"
    )]
    let low = token(call) as u32;
    Datum::from(low.cast_signed())
}

/// The first half of the value's equality token, changed by the seed in the second argument;
/// unchanged for 0. Raises an ERROR unless a query runs, and for the zone's faults.
fn hash_extended(call: &mut Call) -> Datum {
    // The seed has to change the hash, and seed 0 has to give the hash in its low half
    // (hashfunc.c).
    let seed = call.datum(1).value() as u64;
    Datum::from(token(call) ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}
