//! The functions of administration, and those through which the data owner's client exchanges
//! messages with the zone.
//!
//! `attest` and `message` carry sealed bytes, which the server passes on. Must not: interpret them.

use std::ffi::CString;

use pg_sys::Datum;
use pgrx::pg_sys;
use strongroom_columns_ring::Descriptor;
use strongroom_columns_ring::Op;

use crate::call::{Call, sql_functions};
use crate::functions::input_output;
use crate::interrupts;
use crate::ring::zone;

/// Milliseconds between two questions whether the zone has what it was asked for. A TPM signs for
/// some to some hundred.
const PAUSE_MILLISECONDS: i32 = 2;

sql_functions! {
    /// `strongroom_columns.status()`
    strongroom_status, pg_finfo_strongroom_status => status;
    /// `strongroom_columns.attest(bytea)`
    strongroom_attest, pg_finfo_strongroom_attest => attest;
    /// `strongroom_columns.message(bytea)`
    strongroom_message, pg_finfo_strongroom_message => message;
}

/// The zone's status, as json. Raises an ERROR if the zone does not answer.
fn status(_call: &mut Call) -> Datum {
    let json = zone::with(|connection| {
        let answer = connection.call(Descriptor::of(Op::Status))?;
        connection.read(0, usize::try_from(answer.value).unwrap_or(usize::MAX))
    });
    let json = CString::new(json).unwrap_or_default();
    // SAFETY: copies the string into a text, which is how json is kept (json.c).
    Datum::from(unsafe { pg_sys::cstring_to_text(json.as_ptr()) })
}

/// Returns the zone's attestation for the nonce that the client gives, both as `bytea`. Raises an
/// ERROR if the zone does not answer or refuses.
fn attest(call: &mut Call) -> Datum {
    exchange(call, Op::Attest)
}

/// Passes a client's sealed message to the zone, and returns the zone's sealed reply, both as
/// `bytea`. Raises an ERROR if the zone does not answer or refuses.
fn message(call: &mut Call) -> Datum {
    let reply = exchange(call, Op::Message);
    zone::note_client();
    reply
}

/// Passes the call's first argument, a `bytea`, to the zone as the argument of this operation, and
/// returns its answer as a `bytea`. Asks again until the operation has ended. Raises the zone's
/// faults as an ERROR.
fn exchange(call: &Call, op: Op) -> Datum {
    // SAFETY: the argument is a bytea; detoasted, it has its length in front of its bytes.
    let bytes = unsafe {
        let value = pg_sys::pg_detoast_datum_packed(call.datum(0).cast_mut_ptr());
        pgrx::varlena_to_byte_slice(value).to_vec()
    };
    loop {
        if let Some(reply) = zone::with(|connection| connection.exchange(op, &bytes)) {
            return input_output::bytea(&reply);
        }
        interrupts::pause(PAUSE_MILLISECONDS);
    }
}
