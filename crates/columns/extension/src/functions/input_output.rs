//! Input and output functions of the types: envelopes as text and as bytes.
//!
//! In SQL text an envelope is `sr1:` and base64 in the alphabet for URLs without padding
//! (docs/spec/columns.md); its binary form is the envelope itself. Invariant: no message repeats a
//! text that is not an envelope, because it may be a value in clear. Must not: make an envelope;
//! the zone does.

use std::ffi::{CStr, CString};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use pg_sys::Datum;
use pgrx::pg_sys;
use strongroom_columns_ring::Descriptor;
use strongroom_columns_ring::Op;
use strongroom_columns_ring::function::{Arg, Function, by_name};
use strongroom_format::columns::envelope::ENVELOPE_PREFIX;
use strongroom_format::columns::{EnvelopeHeader, Kind};

use crate::call::{Call, Site, datum, sql_functions};
use crate::catalog::{definitions, types};
use crate::execution::{row_sealing, statement};
use crate::fault;
use crate::functions::modifiers;
use crate::ring::zone;

sql_functions! {
    /// `enc_*_in(cstring, oid, integer)`
    strongroom_in, pg_finfo_strongroom_in => text_in;
    /// `enc_*_out(enc_*)`
    strongroom_out, pg_finfo_strongroom_out => text_out;
    /// `enc_*_recv(internal, oid, integer)`
    strongroom_recv, pg_finfo_strongroom_recv => binary_in;
    /// `enc_*_send(enc_*)`
    strongroom_send, pg_finfo_strongroom_send => binary_out;
    /// `strongroom_columns.enc_*_constant(text)`
    strongroom_constant, pg_finfo_strongroom_constant => constant;
}

/// The kind of the called function's result. Raises an internal ERROR if that is not confidential.
fn kind_of_result(call: &Call) -> Kind {
    let number =
        call.cached(|call| number_of(types::kind_of(types::function(call.function()).result)));
    kind_of_number(number)
}

/// The kind of the called function's first argument. Raises an internal ERROR if that is not
/// confidential.
pub(crate) fn kind_of_first(call: &Call) -> Kind {
    kind_and_site(call).0
}

/// The kind of the called function's first argument, and what is cached for the call site. Raises
/// an internal ERROR if the argument is not confidential.
pub(crate) fn kind_and_site(call: &Call) -> (Kind, Site) {
    let site = call.site(|call| {
        let function = types::function(call.function());
        number_of(
            function
                .args
                .first()
                .and_then(|first| types::kind_of(*first)),
        )
    });
    (kind_of_number(site.number()), site)
}

/// The number of a kind, for the cache of a call site; 0 for none.
fn number_of(kind: Option<Kind>) -> usize {
    kind.map_or(0, |kind| usize::from(kind.number()))
}

/// The kind of this number. Raises an internal ERROR for 0 or an unknown one.
fn kind_of_number(number: usize) -> Kind {
    let kind = u8::try_from(number).ok().and_then(Kind::from_number);
    kind.unwrap_or_else(|| {
        fault::raise_internal("a function of strongroom_columns has an argument of an unknown type")
    })
}

/// Has the zone open an envelope from its text form; returns the value's identifier. Raises an
/// ERROR if the text is no envelope of the type, and for the zone's faults.
fn text_in(call: &mut Call) -> Datum {
    let kind = kind_of_result(call);
    // SAFETY: the argument of an input function is a C string that lives as long as the call.
    let text = unsafe { CStr::from_ptr(call.datum(0).cast_mut_ptr()) };
    let envelope = envelope_of_text(kind, text);
    let lifetime = statement::lifetime_of_input();
    open_value(kind, &envelope, call.int4(2), lifetime)
}

/// Has the zone open an envelope that a definition keeps, such as a column's default or a check, in
/// its text form; returns the value's identifier, for this statement. Raises an ERROR if the text
/// is no envelope of the type, and for the zone's faults.
///
/// A literal of the type cannot stand there: the server would keep the identifier.
fn constant(call: &mut Call) -> Datum {
    let kind = kind_of_result(call);
    // SAFETY: the argument is a text; the copy lives in the current memory context.
    let text = unsafe { CStr::from_ptr(pg_sys::text_to_cstring(call.datum(0).cast_mut_ptr())) };
    let envelope = envelope_of_text(kind, text);
    open_value(kind, &envelope, -1, statement::Lifetime::Statement)
}

/// The envelope with this text form. Raises an ERROR if it is none.
fn envelope_of_text(kind: Kind, text: &CStr) -> Vec<u8> {
    let envelope = text
        .to_str()
        .ok()
        .and_then(|text| text.strip_prefix(ENVELOPE_PREFIX))
        .and_then(decode);
    envelope.unwrap_or_else(|| raise_malformed(kind))
}

/// Has the zone open an envelope from its binary form; returns the value's identifier. Raises an
/// ERROR if the bytes are no envelope of the type, and for the zone's faults.
fn binary_in(call: &mut Call) -> Datum {
    let kind = kind_of_result(call);
    // SAFETY: the first argument of a receive function is a StringInfo; its remaining bytes are the
    // value.
    let envelope = unsafe {
        let message: pg_sys::StringInfo = call.datum(0).cast_mut_ptr();
        let left = (*message).len - (*message).cursor;
        let bytes = pg_sys::pq_getmsgbytes(message, left);
        std::slice::from_raw_parts(bytes.cast::<u8>(), usize::try_from(left).unwrap_or(0)).to_vec()
    };
    let lifetime = statement::lifetime_of_parameter();
    open_value(kind, &envelope, call.int4(2), lifetime)
}

/// Has the zone open an envelope, and fit the value to the precision and scale of the type's
/// modifier, if it has any; returns the value's identifier. Raises an ERROR for a malformed
/// envelope, one of another kind, or a literal in a definition.
///
/// Where no client has ever had a session, as when a dump is restored beside the proxy, the value
/// stays as it is: whether it fits would be told to whoever controls the server, and what a column
/// of this type gave out fits.
fn open_value(kind: Kind, envelope: &[u8], typmod: i32, lifetime: statement::Lifetime) -> Datum {
    let Some(header) = EnvelopeHeader::parse(envelope) else {
        if EnvelopeHeader::is_newer(envelope) {
            fault::raise(strongroom_columns_ring::Fault::NewerFormat);
        }
        raise_malformed(kind)
    };
    if header.kind != kind {
        fault::raise(strongroom_columns_ring::Fault::KindMismatch);
    }
    let literal = lifetime == statement::Lifetime::Connection;
    if literal {
        definitions::refuse_literal_in_definition();
    }
    datum(zone::with(|connection| {
        let fid = connection.open_envelope(kind, envelope, literal)?;
        let packed = modifiers::precision_and_scale(typmod).filter(|_| zone::has_client());
        match (fitting_function(kind), packed) {
            (Some(function), Some(packed)) => {
                let r = connection.new_identifier()?;
                connection.post(Descriptor {
                    n: u32::from(function.code),
                    a: fid,
                    b: i64::from(packed).cast_unsigned(),
                    r,
                    ..Descriptor::of(Op::Compute)
                })?;
                Ok(r)
            }
            _ => Ok(fid),
        }
    }))
}

/// The function of the list that fits a value to its type's modifier. `None` if the kind has no
/// modifiers.
fn fitting_function(kind: Kind) -> Option<&'static Function> {
    by_name(kind.base(), &[Arg::Of(kind), Arg::Plain])
}

/// Raises the ERROR for a text or bytes that are no envelope.
fn raise_malformed(kind: Kind) -> ! {
    fault::Report::new(
        "22P02",
        &format!(
            "invalid input for type enc_{}: not an envelope",
            kind.base()
        ),
    )
    .hint("Values of confidential columns are sealed by the client: connect through the proxy.")
    .raise()
}

/// The envelope of the first argument: kept if its row was sealed, otherwise sealed by the zone
/// now. Raises the zone's faults as an ERROR.
fn seal(call: &Call) -> Vec<u8> {
    let kind = kind_of_first(call);
    let fid = call.bits(0);
    let to_client = row_sealing::is_for_client();
    row_sealing::sealed_envelope(kind, fid)
        .unwrap_or_else(|| zone::with(|connection| connection.seal(kind, fid, to_client)))
}

/// The text form of the argument's envelope, as a C string. Raises the zone's faults as an ERROR.
fn text_out(call: &mut Call) -> Datum {
    let text = encode(&seal(call));
    let text = CString::new(text).unwrap_or_default();
    // SAFETY: copies the string into the current memory context.
    Datum::from(unsafe { pg_sys::pstrdup(text.as_ptr()) })
}

/// The argument's envelope, as a `bytea`. Raises the zone's faults as an ERROR.
fn binary_out(call: &mut Call) -> Datum {
    bytea(&seal(call))
}

/// A new `bytea` of these bytes, in the current memory context. Raises an ERROR from 2 GiB on.
pub(crate) fn bytea(bytes: &[u8]) -> Datum {
    let Ok(len) = i32::try_from(bytes.len()) else {
        fault::raise(strongroom_columns_ring::Fault::StringTooLong)
    };
    // SAFETY: `cstring_to_text_with_len` makes a varlena of any bytes; `text` and `bytea` have the
    // same layout.
    Datum::from(unsafe { pg_sys::cstring_to_text_with_len(bytes.as_ptr().cast(), len) })
}

/// The text form of an envelope: `sr1:` and base64.
fn encode(bytes: &[u8]) -> String {
    let mut text = String::from(ENVELOPE_PREFIX);
    URL_SAFE_NO_PAD.encode_string(bytes, &mut text);
    text
}

/// The bytes of a text form without its prefix. `None` unless the text is canonical base64, with
/// zeros in the bits after the last byte: an envelope has only one text.
fn decode(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}
