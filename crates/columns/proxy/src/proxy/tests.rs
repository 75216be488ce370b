//! Values through the converter and through COPY, forth and back, cut into pieces anywhere.

use std::sync::Arc;

use strongroom_columns_envelope::SealedBy;
use strongroom_crypto::SecretKey;
use strongroom_format::columns::Kind;

use super::convert::{BINARY, Converter, TEXT};
use super::copy::{Incoming, Outgoing, Transform};
use super::settings::Settings;
use crate::envelope;
use crate::keys::ColumnKeys;
use crate::results::Results;
use crate::sql::catalog::{Catalog, EncType};
use crate::sql::{Copy, CopyColumn, CopyFormat, CopyOptions, ExpectedColumns};

/// Keys; what this test seals passes for the zone's results.
fn keys() -> Arc<ColumnKeys> {
    envelope::SEALS_AS.set(SealedBy::Zone);
    Arc::new(ColumnKeys::from_keys(&[SecretKey::generate().unwrap()]).unwrap())
}

fn catalog() -> Arc<Catalog> {
    Arc::new(crate::sql::tests::catalog(&[]))
}

const fn scalar(kind: Kind) -> EncType {
    EncType { kind, array: false }
}

#[test]
fn text_comes_back_as_postgresql_writes_it() {
    let (keys, settings, catalog) = (keys(), Settings::default(), catalog());
    let results = Results::of_anybody();
    let converter = Converter::new(&keys, &settings).opening(&results);
    let cases: &[(Kind, &str, &str)] = &[
        (Kind::Bool, "true", "t"),
        (Kind::Int4, " -5 ", "-5"),
        (Kind::Int8, "9223372036854775807", "9223372036854775807"),
        (Kind::Float8, "1e3", "1000"),
        (Kind::Numeric, "0001.50", "1.50"),
        (Kind::Numeric, ".06", "0.06"),
        (Kind::Text, "it's \u{e9}", "it's \u{e9}"),
        (Kind::Text, "", ""),
        (Kind::Bytea, "\\x00ff", "\\x00ff"),
        (Kind::Date, "1998-12-01", "1998-12-01"),
        (Kind::Time, "8:05", "08:05:00"),
        (Kind::Time, "24:00:00", "24:00:00"),
        (Kind::Timestamp, "1998-12-01", "1998-12-01 00:00:00"),
        (
            Kind::Timestamptz,
            "1998-12-01 01:00:00+01",
            "1998-12-01 00:00:00+00",
        ),
        (Kind::Interval, "90 day", "90 days"),
        (
            Kind::Uuid,
            "{A0EEBC999C0B4EF8BB6D6BB9BD380A11}",
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        ),
        (
            Kind::Jsonb,
            r#"{"bb":[1.0,1e2],"a":1,"a":"\u00e9"}"#,
            "{\"a\": \"\u{e9}\", \"bb\": [1.0, 100]}",
        ),
    ];
    for (kind, given, shown) in cases {
        let (format, sealed) = converter
            .seal_parameter(&catalog, scalar(*kind), 0, TEXT, given.as_bytes())
            .unwrap();
        assert_eq!(format, BINARY);
        let binary = converter
            .open_result(scalar(*kind), BINARY, &sealed)
            .unwrap();
        assert_eq!(binary.len(), kind.fixed_len().unwrap_or(binary.len()));
        let text = converter
            .open_result(scalar(*kind), TEXT, envelope::to_text(&sealed).as_bytes())
            .unwrap();
        assert_eq!(text.as_slice(), shown.as_bytes(), "{kind:?}");
    }
}

#[test]
fn what_is_no_value_is_refused_without_being_shown() {
    let (keys, settings, catalog) = (keys(), Settings::default(), catalog());
    let results = Results::of_anybody();
    let converter = Converter::new(&keys, &settings).opening(&results);
    let cases: &[(Kind, i16, &[u8], &str)] = &[
        (Kind::Int4, TEXT, b"secret", "22P02"),
        (Kind::Int4, TEXT, b"99999999999", "22003"),
        (Kind::Int4, BINARY, &[0, 1], "22P03"),
        (Kind::Date, TEXT, b"1998-13-01", "22008"),
        (Kind::Time, TEXT, b"24:00:01", "22008"),
        (Kind::Time, BINARY, &[0xff; 8], "22008"),
        (Kind::Text, TEXT, b"secret\xff", "22021"),
        (Kind::Bool, BINARY, &[], "22P03"),
        (Kind::Uuid, TEXT, b"secret", "22P02"),
        (Kind::Jsonb, TEXT, b"{\"secret\"", "22P02"),
        (Kind::Jsonb, TEXT, b"\"\\u0000\"", "22P05"),
        (Kind::Jsonb, BINARY, b"{}", "22P03"),
        (Kind::Jsonb, BINARY, b"\x01{", "22P02"),
        (Kind::Uuid, BINARY, &[7; 15], "22P03"),
    ];
    for (kind, format, bytes, state) in cases {
        let refusal = converter
            .seal_parameter(&catalog, scalar(*kind), 0, *format, bytes)
            .unwrap_err();
        assert_eq!(refusal.sqlstate, *state, "{refusal}");
        assert!(!refusal.message.contains("secret"));
    }
    // What is sealed already is not sealed once more; what only looks so is a text.
    let sealed = envelope::to_text(&converter.seal(Kind::Int4, &[0; 4]).unwrap());
    for kind in [Kind::Text, Kind::Int4] {
        let refusal = converter.seal_text(kind, sealed.as_bytes()).unwrap_err();
        assert!(refusal.message.contains("beside the proxy"), "{refusal}");
    }
    let text = scalar(Kind::Text);
    for format in [TEXT, BINARY] {
        let seal = |bytes| converter.seal_parameter(&catalog, text, 0, format, bytes);
        assert!(seal(sealed.as_bytes()).is_err());
        assert!(seal(b"sr1:AAAA").is_ok());
    }
    for bad in [&b"plain text"[..], b"sr1:", b"sr1:AAAA"] {
        assert!(
            converter
                .open_result(scalar(Kind::Text), TEXT, bad)
                .is_err()
        );
        assert!(
            converter
                .open_result(scalar(Kind::Text), BINARY, bad)
                .is_err()
        );
    }
}

#[test]
#[expect(
    clippy::big_endian_bytes,
    reason = "PostgreSQL's binary forms are big-endian"
)]
fn narrow_types_are_widened() {
    let (keys, settings, catalog) = (keys(), Settings::default(), catalog());
    let results = Results::of_anybody();
    let converter = Converter::new(&keys, &settings).opening(&results);
    let (_, sealed) = converter
        .seal_parameter(
            &catalog,
            scalar(Kind::Int4),
            21,
            BINARY,
            &(-7_i16).to_be_bytes(),
        )
        .unwrap();
    assert_eq!(
        *converter
            .open_result(scalar(Kind::Int4), BINARY, &sealed)
            .unwrap(),
        (-7_i32).to_be_bytes()
    );
    let (_, sealed) = converter
        .seal_parameter(
            &catalog,
            scalar(Kind::Float8),
            700,
            BINARY,
            &1.5_f32.to_be_bytes(),
        )
        .unwrap();
    assert_eq!(
        *converter
            .open_result(scalar(Kind::Float8), BINARY, &sealed)
            .unwrap(),
        1.5_f64.to_be_bytes()
    );
}

#[test]
fn arrays_in_both_forms() {
    let (keys, settings, catalog) = (keys(), Settings::default(), catalog());
    let results = Results::of_anybody();
    let converter = Converter::new(&keys, &settings).opening(&results);
    let of = EncType {
        kind: Kind::Text,
        array: true,
    };
    let given = br#"{a,"b \"c\", {d}",NULL,"NULL",{e\\f}}"#;
    let (format, sealed) = converter
        .seal_parameter(&catalog, of, 0, TEXT, given)
        .unwrap();
    assert_eq!(
        (format, sealed.windows(3).any(|part| part == b"b \"")),
        (TEXT, false)
    );
    let shown = converter.open_result(of, TEXT, &sealed).unwrap();
    assert_eq!(
        shown.as_slice(),
        br#"{a,"b \"c\", {d}",NULL,"NULL",{"e\\f"}}"#
    );
    assert!(
        converter
            .seal_parameter(&catalog, of, 0, TEXT, br#"{"a"#)
            .is_err()
    );

    let of = EncType {
        kind: Kind::Int4,
        array: true,
    };
    // One dimension, nulls, int4, two elements from 1: 7 and NULL.
    let given = [
        0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 23, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0, 7, 255,
        255, 255, 255,
    ];
    let (format, sealed) = converter
        .seal_parameter(&catalog, of, 1007, BINARY, &given)
        .unwrap();
    assert!(format == BINARY && sealed.len() > given.len());
    assert_eq!(
        converter
            .open_result(of, BINARY, &sealed)
            .unwrap()
            .as_slice(),
        given
    );
    for len in 0..given.len() {
        assert!(
            converter
                .seal_parameter(&catalog, of, 1007, BINARY, &given[..len])
                .is_err(),
            "{len}"
        );
    }
}

fn transform(format: CopyFormat, header: bool) -> Arc<Transform> {
    let csv = format == CopyFormat::Csv;
    let options = CopyOptions {
        format,
        delimiter: if csv { b',' } else { b'\t' },
        null: if csv { Vec::new() } else { b"\\N".to_vec() },
        quote: b'"',
        escape: b'"',
        header,
        other: None,
    };
    let copy = Copy {
        from: true,
        columns: Some(vec![None, column(Kind::Text), column(Kind::Int4)]),
        unknown: false,
        expected: ExpectedColumns::default(),
        options,
    };
    Transform::of(&copy).unwrap().unwrap()
}

/// A confidential column of a COPY whose values are for no ordered column.
const fn column(kind: Kind) -> Option<CopyColumn> {
    Some(CopyColumn {
        kind,
        comparable: None,
    })
}

/// Encrypts and decrypts, each in pieces of `size` bytes.
fn there_and_back(transform: &Arc<Transform>, data: &[u8], size: usize) -> (Vec<u8>, Vec<u8>) {
    let keys = keys();
    let mut incoming = Incoming::new(
        Arc::clone(transform),
        Arc::clone(&keys),
        Settings::default(),
    );
    let mut sealed = Vec::new();
    for piece in data.chunks(size) {
        incoming.push(piece, &mut sealed).unwrap();
    }
    incoming.finish(&mut sealed).unwrap();
    let results = Arc::new(Results::of_anybody());
    let mut outgoing = Outgoing::new(
        Arc::clone(transform),
        keys,
        Settings::default(),
        (results, Arc::default()),
    );
    let mut shown = Vec::new();
    for piece in sealed.chunks(size) {
        outgoing.push(piece, &mut shown).unwrap();
    }
    (sealed, shown)
}

#[test]
fn copy_in_every_format_and_in_pieces() {
    let binary = [
        b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0".as_slice(),
        b"\0\x03\0\0\0\x04\0\0\0\x01\0\0\0\x06canary\0\0\0\x04\0\0\0\x07",
        b"\0\x03\0\0\0\x04\0\0\0\x02\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\xff\xff",
    ]
    .concat();
    let cases = [
        (
            transform(CopyFormat::Text, false),
            b"1\tcanary\t7\n2\t\\N\t\\N\n3\ta\\tb\\\\c\\nd\t-1\n\\.\n".to_vec(),
        ),
        (
            transform(CopyFormat::Text, true),
            b"id\tname\tn\n1\tcanary\t7\n".to_vec(),
        ),
        (
            transform(CopyFormat::Csv, false),
            b"1,canary,7\n2,,\n3,\"a,\"\"b\"\"\nc\",-1\n4,\"\",5\n".to_vec(),
        ),
        (
            transform(CopyFormat::Csv, true),
            b"id,name,n\n1,canary,7\n".to_vec(),
        ),
        (transform(CopyFormat::Binary, false), binary),
    ];
    for (transform, data) in cases {
        for size in [1, 2, 3, 7, 1000] {
            let (sealed, shown) = there_and_back(&transform, &data, size);
            assert!(!sealed.windows(6).any(|part| part == b"canary"), "in clear");
            let shown = String::from_utf8_lossy(&shown).into_owned();
            // An empty string that is not NULL keeps its quotes, because it would be NULL without.
            assert_eq!(shown, String::from_utf8_lossy(&data), "pieces of {size}");
        }
    }
}

#[test]
fn copy_refuses_rows_that_do_not_fit() {
    for (format, row) in [
        (CopyFormat::Text, &b"1\ta\n"[..]),
        (CopyFormat::Text, b"1\ta\t7\t8\n"),
        (CopyFormat::Text, b"1\ta\tseven\n"),
        (CopyFormat::Csv, b"1,a\n"),
        (CopyFormat::Binary, b"PGCOPX\n\xff\r\n\0\0\0\0\0\0\0\0\0"),
        (
            CopyFormat::Binary,
            b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\x01a",
        ),
    ] {
        let mut incoming = Incoming::new(transform(format, false), keys(), Settings::default());
        let mut out = Vec::new();
        assert!(incoming.push(row, &mut out).is_err(), "{format:?}");
    }
}
