//! Values in clear, for sessions whose ticket has the right to declassify:
//! `strongroom_columns.declassify` and `strongroom_columns.classify`, which the explicit casts from
//! and to plain types call.
//!
//! The server sees such a value: the right permits that. Must not: keep a value; be called by an
//! implicit cast.

use std::ffi::{CStr, CString, c_char};

use pg_sys::{Datum, Oid};
use pgrx::pg_sys;
use strongroom_columns_ring::Fault;
use strongroom_format::columns::Kind;

use crate::call::{Call, datum, sql_functions};
use crate::catalog::types;
use crate::fault;
use crate::ring::zone;

/// The first byte of the binary form of `jsonb`.
const JSONB_VERSION: u8 = 1;

sql_functions! {
    /// `strongroom_columns.declassify(enc_*)`
    strongroom_declassify, pg_finfo_strongroom_declassify => declassify;
    /// `strongroom_columns.classify(*)`
    strongroom_classify, pg_finfo_strongroom_classify => classify;
}

/// The kind and the plain type of the called function; `confidential` returns its confidential type
/// and its plain one. A call site caches both: the kind's number in the low byte, the plain type
/// above it. Raises an internal ERROR for a function that is not in the list.
fn kind_and_plain_type(
    call: &Call,
    confidential: impl Fn(&types::Function) -> (Option<Oid>, Oid),
) -> (Kind, Oid) {
    let packed = call.cached(|call| {
        let called = types::function(call.function());
        let (confidential, plain) = confidential(&called);
        let kind = confidential.and_then(types::kind_of);
        kind.map_or(0, |kind| {
            (plain.to_u32() as usize) << 8 | usize::from(kind.number())
        })
    });
    let kind = u8::try_from(packed & 0xff).ok().and_then(Kind::from_number);
    let plain = u32::try_from(packed >> 8).map(Oid::from);
    match (kind, plain) {
        (Some(kind), Ok(plain)) => (kind, plain),
        _ => fault::raise_internal("a function of strongroom_columns is not in its list"),
    }
}

/// The argument's value in clear, as a value of the plain type. Raises an ERROR if the session's
/// ticket does not allow that.
fn declassify(call: &mut Call) -> Datum {
    let (kind, plain) =
        kind_and_plain_type(call, |called| (called.args.first().copied(), called.result));
    let fid = call.bits(0);
    let bytes = zone::with(|connection| connection.declassify(kind, fid));
    match kind {
        Kind::Text => text_datum(&bytes),
        Kind::Jsonb => document(&bytes),
        _ => receive(plain, &bytes),
    }
}

/// The identifier of a confidential value made from the argument, which the server saw in clear.
/// Raises an ERROR if the session's ticket does not allow that.
fn classify(call: &mut Call) -> Datum {
    let (kind, plain) = kind_and_plain_type(call, |called| {
        let first = called.args.first().copied();
        (Some(called.result), first.unwrap_or(Oid::INVALID))
    });
    let value = call.datum(0);
    let bytes = match kind {
        Kind::Text => utf8_bytes(value),
        Kind::Jsonb => document_bytes(value),
        _ => send(plain, value),
    };
    datum(zone::with(|connection| connection.classify(kind, &bytes)))
}

/// Makes a value of a plain type from its binary form. Raises an ERROR if the bytes are malformed
/// or more than 2 GiB.
fn receive(plain: Oid, bytes: &[u8]) -> Datum {
    let len = i32::try_from(bytes.len()).unwrap_or_else(|_| fault::raise(Fault::StringTooLong));
    let (mut function, mut param) = (Oid::INVALID, Oid::INVALID);
    // SAFETY: the receive function reads `len` bytes from the buffer, which it neither grows nor
    // keeps.
    unsafe {
        pg_sys::getTypeBinaryInputInfo(plain, &raw mut function, &raw mut param);
        let mut message = pg_sys::StringInfoData {
            data: bytes.as_ptr().cast_mut().cast(),
            len,
            maxlen: len,
            cursor: 0,
        };
        pg_sys::OidReceiveFunctionCall(function, &raw mut message, param, -1)
    }
}

/// The binary form of a value of a plain type, from PostgreSQL's own function.
fn send(plain: Oid, value: Datum) -> Vec<u8> {
    let (mut function, mut varlena) = (Oid::INVALID, false);
    // SAFETY: the send function returns a bytea, which is copied.
    unsafe {
        pg_sys::getTypeBinaryOutputInfo(plain, &raw mut function, &raw mut varlena);
        let bytes = pg_sys::OidSendFunctionCall(function, value);
        pgrx::varlena_to_byte_slice(bytes.cast()).to_vec()
    }
}

/// A `jsonb` from its binary form, whose text is UTF-8; `jsonb_recv` would expect the client's
/// encoding. Raises an ERROR for another version of the form, and those of [`text_datum`].
fn document(bytes: &[u8]) -> Datum {
    let Some((&JSONB_VERSION, text)) = bytes.split_first() else {
        fault::raise(Fault::BadRequest)
    };
    let (mut function, mut param) = (Oid::INVALID, Oid::INVALID);
    let text = text_datum(text);
    // SAFETY: the input function reads the C string, which is a copy of the text.
    unsafe {
        let text = pg_sys::text_to_cstring(text.cast_mut_ptr());
        pg_sys::getTypeInputInfo(pg_sys::JSONBOID, &raw mut function, &raw mut param);
        pg_sys::OidInputFunctionCall(function, text, param, -1)
    }
}

/// The binary form of a `jsonb`, with its text in UTF-8. Raises the ERRORs of [`utf8_bytes`].
fn document_bytes(value: Datum) -> Vec<u8> {
    let (mut function, mut varlena) = (Oid::INVALID, false);
    // SAFETY: the output function returns a C string in the current memory context, of which the
    // text is a copy.
    let text = unsafe {
        pg_sys::getTypeOutputInfo(pg_sys::JSONBOID, &raw mut function, &raw mut varlena);
        let text = pg_sys::OidOutputFunctionCall(function, value);
        Datum::from(pg_sys::cstring_to_text(text))
    };
    let mut bytes = vec![JSONB_VERSION];
    bytes.extend(utf8_bytes(text));
    bytes
}

/// A text in the database's encoding, from UTF-8; `textrecv` would expect the client's encoding.
/// Raises an ERROR for a zero byte, or a character that the encoding lacks.
fn text_datum(bytes: &[u8]) -> Datum {
    let len = i32::try_from(bytes.len()).unwrap_or_else(|_| fault::raise(Fault::StringTooLong));
    let from = CString::new(bytes).unwrap_or_else(|_| fault::raise(Fault::BadRequest));
    // SAFETY: the converted text is a new one of PostgreSQL's or the given one; it is copied while
    // it lives.
    unsafe {
        let encoding = pg_sys::pg_enc::PG_UTF8.cast_signed();
        let text = pg_sys::pg_any_to_server(from.as_ptr(), len, encoding);
        Datum::from(pg_sys::cstring_to_text(text))
    }
}

/// The bytes of a text, converted to UTF-8 from the database's encoding. Raises an ERROR above 2
/// GiB.
fn utf8_bytes(value: Datum) -> Vec<u8> {
    // SAFETY: the argument is a text; the C string is a copy of it in the current memory context,
    // and so is its conversion.
    unsafe {
        let text: *mut c_char = pg_sys::text_to_cstring(value.cast_mut_ptr());
        let len = CStr::from_ptr(text).to_bytes().len();
        let len = i32::try_from(len).unwrap_or_else(|_| fault::raise(Fault::StringTooLong));
        let encoding = pg_sys::pg_enc::PG_UTF8.cast_signed();
        let converted = pg_sys::pg_server_to_any(text, len, encoding);
        CStr::from_ptr(converted).to_bytes().to_vec()
    }
}
