//! Tests of documents that need no server; tests/postgres compares with one.

use strongroom_format::columns::Kind;

use super::*;

fn shown(text: &str) -> Result<String, Unreadable> {
    let mut out = Out::new();
    parse(text, &mut out)?;
    let text = out.value().text().map(str::to_owned);
    text.map_err(|_| Unreadable::Encoding)
}

#[test]
fn a_document_has_the_text_that_the_server_prints() {
    for (given, printed) in [
        (" null ", "null"),
        ("[]", "[]"),
        ("{ }", "{}"),
        (
            r#"{"bb":1,"a":[1,true , false,{}],"c":{"x":null},"a":2.50}"#,
            r#"{"a": 2.50, "c": {"x": null}, "bb": 1}"#,
        ),
        (
            "[1E+2,-0,-0.00,1.5e-3,12.0]",
            "[100, 0, 0.00, 0.0015, 12.0]",
        ),
        (
            r#""\u00e9\ud83d\ude00\/\b\f\n\r\t\u001f\u007f\"\\""#,
            "\"\u{e9}\u{1f600}/\\b\\f\\n\\r\\t\\u001f\u{7f}\\\"\\\\\"",
        ),
    ] {
        assert_eq!(shown(given).as_deref(), Ok(printed), "{given}");
    }
}

#[test]
fn what_is_no_document_is_refused() {
    let syntax = [
        "",
        " ",
        "{",
        "[",
        "]",
        "}",
        "[1,]",
        "[,1]",
        "{1:2}",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{\"a\" 1}",
        "nul",
        "True",
        "truex",
        "01",
        "1.",
        ".5",
        "+1",
        "1e",
        "1x",
        "-",
        "\"",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\ud83d\"",
        "\"\\ude00\"",
        "\"\\ud83dx\"",
        "\"\n\"",
        "1 2",
        "[1}",
        "[1 2]",
        "'a'",
        "\u{a0}1",
        "1\u{e9}",
        "{\"a\":1]",
        "\"a\" \"b\"",
    ];
    for text in syntax {
        assert_eq!(shown(text), Err(Unreadable::Syntax), "{text}");
    }
    assert_eq!(shown("[\"\\u0000\"]"), Err(Unreadable::ZeroCharacter));
    assert_eq!(shown("1e131072"), Err(Unreadable::TooBig));
    // The first error in the order of reading counts.
    assert_eq!(shown("[1e131072 x"), Err(Unreadable::Syntax));
    assert_eq!(shown("[1e131072 , x"), Err(Unreadable::TooBig));
}

#[test]
fn depth_and_length_are_limited() {
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    let deepest = nested(DEPTH_MAX);
    assert_eq!(shown(&deepest), Ok(deepest.clone()));
    assert_eq!(shown(&nested(DEPTH_MAX + 1)), Err(Unreadable::TooDeep));
    assert_eq!(shown(&"[".repeat(1 << 20)), Err(Unreadable::TooDeep));
    let objects = "{\"a\":".repeat(DEPTH_MAX) + "1" + &"}".repeat(DEPTH_MAX);
    assert!(shown(&objects).is_ok());
    let (one, other) = (Value::Bytes(deepest.as_bytes()), nested(DEPTH_MAX - 1));
    assert!(compare(one, Value::Bytes(other.as_bytes())).is_ok());

    let quoted = |len: usize| format!("\"{}\"", "x".repeat(len));
    assert!(shown(&quoted(VALUE_MAX - 2)).is_ok());
    assert_eq!(shown(&quoted(VALUE_MAX - 1)), Err(Unreadable::TooLong));
    // A number of a few characters has a hundred thousand digits.
    let numbers = format!("[{}1]", "1e131071,".repeat(50_000));
    assert_eq!(shown(&numbers), Err(Unreadable::TooLong));
}

#[test]
fn the_binary_form_has_a_version() {
    let mut out = Out::new();
    assert_eq!(receive(b"\x01[1,2]", &mut out), Ok(()));
    let mut sent = Buf::new();
    send(out.value(), &mut sent).unwrap();
    assert_eq!(sent.as_slice(), b"\x01[1, 2]");
    for (bytes, why) in [
        (&b""[..], Unreadable::Binary),
        (b"\x02[1]", Unreadable::Binary),
        (b"[1]", Unreadable::Binary),
        (b"\x01", Unreadable::Syntax),
        (b"\x01\"\xff\"", Unreadable::Encoding),
        (b"\x01\"a\0\"", Unreadable::Encoding),
    ] {
        assert_eq!(receive(bytes, &mut out), Err(why), "{bytes:?}");
    }
}

#[test]
fn what_is_no_document_in_the_store_is_a_fault() {
    let (word, bad) = (Value::Word(1), Value::Bytes(b"{"));
    for value in [word, bad] {
        let good = Value::Bytes(b"{}");
        assert_eq!(compare(value, good), Err(Fault::KindMismatch));
        let mut token = Buf::new();
        assert_eq!(token_bytes(value, &mut token), Err(Fault::KindMismatch));
    }
    assert_eq!(send(word, &mut Buf::new()), Err(Fault::KindMismatch));
}

#[test]
fn a_search_has_an_end() {
    let numbers = |from: u32| {
        let numbers: Vec<String> = (from..from + 90_000).map(|n| n.to_string()).collect();
        format!("[{}]", numbers.join(", "))
    };
    let (whole, part) = (numbers(100_000), numbers(900_000));
    let of = |text: &str| -> Result<bool, Fault> {
        contains(
            Value::Bytes(whole.as_bytes()),
            Value::Bytes(text.as_bytes()),
        )
    };
    assert_eq!(of("[100000, 189999]"), Ok(true));
    assert_eq!(of(&part), Ok(false));
    assert_eq!(of(&numbers(100_001)), Err(Fault::StringTooLong));
}

#[test]
fn a_part_that_is_not_there_is_a_fault() {
    let mut out = Out::new();
    let of = Value::Bytes(br#"{"a": null, "b": "x"}"#);
    assert_eq!(member(of, "b", Form::Text, &mut out), Ok(()));
    assert_eq!(out.value().text(), Ok("x"));
    assert_eq!(member(of, "a", Form::Document, &mut out), Ok(()));
    assert_eq!(out.value().text(), Ok("null"));
    for (name, form) in [("a", Form::Text), ("c", Form::Text), ("c", Form::Document)] {
        assert_eq!(member(of, name, form, &mut out), Err(Fault::NoSuchPart));
    }
    let of = Value::Bytes(b"[1]");
    for place in [1, -2, i32::MIN, i32::MAX] {
        let found = element(of, place, Form::Document, &mut out);
        assert_eq!(found, Err(Fault::NoSuchPart), "{place}");
    }
}

/// Memory for a document is limited by how long a value can be, not by how long the text is.
#[test]
fn a_text_of_more_values_than_a_document_can_have_is_refused() {
    let values = |count: usize| format!("[{}1]", "1,".repeat(count - 2));
    assert!(parser::document(&values(VALUE_MAX / 2)).is_ok());
    let refused = parser::document(&values(VALUE_MAX / 2 + 2)).map(|_| ());
    assert_eq!(refused, Err(Unreadable::TooLong));
}

#[test]
fn documents_that_are_read_once_have_the_same_order() {
    use crate::compare::{Prepared, compare};
    let texts = [
        "null",
        "1",
        "1.0",
        "[]",
        "[1, 2]",
        "{}",
        r#"{"a": 1}"#,
        "true",
        r#""x""#,
    ];
    for a in texts {
        for b in texts {
            let (a, b) = (Value::Bytes(a.as_bytes()), Value::Bytes(b.as_bytes()));
            let prepared = Prepared::new(Kind::Jsonb, a).and_then(|a| {
                let b = Prepared::new(Kind::Jsonb, b)?;
                a.compare(&b)
            });
            assert_eq!(prepared, compare(Kind::Jsonb, a, b));
        }
    }
}
