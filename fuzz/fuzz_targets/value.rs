//! Values in text and in binary form, of the kind that the first byte says: what is read is
//! written, and what was written is read as an equal value.
#![no_main]

use std::cmp::Ordering;

use strongroom_columns_values::{
    Buf, Out, Settings, Value, compare, parse, print, receive, send, token_bytes,
};
use strongroom_format::columns::Kind;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((first, form)) = bytes.split_first() else {
        return;
    };
    let kind = Kind::ALL[usize::from(*first) % Kind::ALL.len()];
    let mut out = Out::new();
    if receive(kind, form, &mut out).is_ok() {
        check(kind, out.value());
    }
    if let Ok(text) = std::str::from_utf8(form) {
        let mut out = Out::new();
        if parse(kind, text, &Settings::utc(), &mut out).is_ok() {
            check(kind, out.value());
        }
    }
});

/// Writes a value in both forms, and reads them again.
fn check(kind: Kind, value: Value<'_>) {
    let (mut sent, mut received) = (Buf::new(), Out::new());
    send(kind, value, &mut sent).expect("a value has a binary form");
    receive(kind, sent.as_slice(), &mut received).expect("what was sent is received");
    are_equal(kind, value, received.value());
    let (mut printed, mut parsed) = (Buf::new(), Out::new());
    if print(kind, value, &Settings::utc(), &mut printed).is_err() {
        return;
    }
    let text = std::str::from_utf8(printed.as_slice()).expect("text");
    match parse(kind, text, &Settings::utc(), &mut parsed) {
        Ok(()) => are_equal(kind, value, parsed.value()),
        // PostgreSQL prints intervals that it does not read.
        Err(why) => assert!(kind == Kind::Interval, "{text}: {why:?}"),
    }
}

/// Asserts that two values are equal for comparisons and for hashing.
fn are_equal(kind: Kind, a: Value<'_>, b: Value<'_>) {
    assert_eq!(compare(kind, a, b), Ok(Ordering::Equal));
    let (mut one, mut other) = (Buf::new(), Buf::new());
    token_bytes(kind, a, &mut one).expect("a value has a token");
    token_bytes(kind, b, &mut other).expect("a value has a token");
    assert_eq!(one.as_slice(), other.as_slice());
}
