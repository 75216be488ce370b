//! Messages in the orders that drivers avoid: the test is the client and the server of one proxy,
//! and says each message itself.
//!
//! Method: bytes that come to the server are kept; values of confidential columns must not be among
//! them, wherever an error, a refusal or the next statement falls.
#![expect(
    clippy::unwrap_used,
    reason = "a test that panics has failed, which is what it is for"
)]
#![expect(
    clippy::big_endian_bytes,
    reason = "the protocol's integers are big-endian"
)]
#![expect(clippy::tests_outside_test_module, reason = "an integration test")]

use crate::support::harness;

use std::io::Read as _;
use std::sync::Arc;
use std::time::Duration;

use harness::{ENC_INT4, ENC_TEXT, FAILED, FORGOTTEN, P, Wire, Zone, begin, bind, catalog, parse};
use strongroom_columns_proxy::channel::AttestationPolicy;
use strongroom_columns_proxy::proxy::TicketTerms;
use strongroom_columns_proxy::zones::KnownZones;
use strongroom_columns_zone::session::attest::ProcessAttester;
use strongroom_format::columns::channel::right;

#[test]
fn data_does_not_go_by_the_rules_of_a_copy_that_failed() {
    let mut wire = Wire::start("after");
    wire.query("COPY plain FROM STDIN");
    wire.copies();
    wire.client.send(b'd', b"1\tin clear\n");
    assert_eq!(wire.server.expect(b'd'), b"1\tin clear\n");
    // The client stops sending without CopyDone, as the protocol allows.
    wire.fails();
    wire.query("COPY p (id, name) FROM STDIN");
    wire.copies();
    wire.client.send(b'd', b"1\tAlice\n");
    wire.client.send(b'c', b"");
    let row = wire.server.expect(b'd');
    assert!(row.starts_with(b"1\t") && row.len() > 40);
    wire.server.expect(b'c');
    wire.server.never_saw(b"Alice");
}

#[test]
fn data_belongs_to_the_last_request() {
    let mut wire = Wire::start("last");
    // The client does not wait: the second COPY is on its way when the server begins the first.
    wire.query("COPY plain FROM STDIN");
    wire.query("COPY p (id, name) FROM STDIN");
    wire.client.send(b'd', b"1\tAlice\n");
    wire.copies();
    wire.fails();
    wire.copies();
    assert!(wire.server.expect(b'd').starts_with(b"1\t"));
    wire.server.never_saw(b"Alice");
}

#[test]
fn a_sync_behind_a_failed_copy_is_answered() {
    let mut wire = Wire::start("sync");
    wire.query("COPY p (id, name) FROM STDIN");
    wire.copies();
    wire.client.send(b'd', b"1\tAlice\n");
    wire.server.expect(b'd');
    wire.fails();
    wire.client.send(b'S', b"");
    wire.server.expect(b'S');
    wire.server.send(b'Z', b"I");
    wire.client.expect(b'Z');
    wire.server.never_saw(b"Alice");
}

#[test]
fn a_copy_whose_data_is_refused_does_not_swallow_the_next() {
    let mut wire = Wire::start("refused");
    wire.query("COPY p (id, age) FROM STDIN");
    wire.copies();
    wire.client.send(b'd', b"1\tAlice\n");
    wire.server.expect(b'f');
    wire.client.send(b'd', b"2\tAlice\n");
    wire.server.send(b'E', FAILED);
    wire.server.send(b'Z', b"I");
    let error = wire.client.expect(b'E');
    assert!(String::from_utf8_lossy(&error).contains("SR-8104"));
    wire.client.expect(b'Z');
    wire.query("COPY p (id, name) FROM STDIN");
    wire.copies();
    wire.client.send(b'd', b"3\tAlice\n");
    wire.client.send(b'c', b"");
    assert!(wire.server.expect(b'd').starts_with(b"3\t"));
    wire.server.expect(b'c');
    wire.server.never_saw(b"Alice");
}

#[test]
fn rows_behind_the_end_marker_are_not_sent() {
    let mut wire = Wire::start("marker");
    wire.query("COPY p (id, name) FROM STDIN");
    wire.copies();
    wire.client.send(b'd', b"1\tBob\n\\.\n2\tAlice\n");
    wire.client.send(b'd', b"3\tAlice\n");
    wire.client.send(b'c', b"");
    let rows = wire.server.expect(b'd');
    assert!(rows.starts_with(b"1\t") && rows.ends_with(b"\n\\.\n"));
    wire.server.expect(b'c');
    wire.server.never_saw(b"Alice");
}

#[test]
fn copy_in_the_extended_protocol_is_encrypted() {
    let mut wire = Wire::start("extended");
    wire.client
        .send(b'P', &parse("COPY p (id, name) FROM STDIN", &[]));
    wire.executes();
    for tag in [b'P', b'D', b'B', b'E', b'S'] {
        wire.server.expect(tag);
    }
    wire.makes_statement();
    wire.server.send(b'2', b"");
    wire.server.send(b'G', &[0, 0, 0]);
    wire.hears(b"12G");
    wire.client.send(b'd', b"1\tAlice\n");
    wire.client.send(b'c', b"");
    wire.client.send(b'S', b"");
    assert!(wire.server.expect(b'd').starts_with(b"1\t"));
    wire.server.expect(b'c');
    wire.server.expect(b'S');
    wire.server.send(b'C', b"COPY 1\0");
    wire.server.send(b'Z', b"I");
    wire.hears(b"CZ");
    wire.server.never_saw(b"Alice");
}

/// A statement whose parameters the server gives these types, and values for them: the error that
/// the client gets.
fn bound(
    name: &str,
    sql: &str,
    declared: &[u32],
    types: &[u32],
    format: u16,
    values: &[&[u8]],
) -> (Wire, String) {
    let mut wire = Wire::start(name);
    wire.client.send(b'P', &parse(sql, declared));
    wire.client.send(b'B', &bind(format, values));
    wire.client.send(b'S', b"");
    wire.server.expect(b'P');
    wire.server.expect(b'D');
    wire.server.expect(b'H');
    wire.server.send(b'1', b"");
    let mut described = u16::try_from(types.len()).unwrap().to_be_bytes().to_vec();
    for oid in types {
        described.extend_from_slice(&oid.to_be_bytes());
    }
    wire.server.send(b't', &described);
    wire.server.send(b'n', b"");
    wire.client.expect(b'1');
    // The values, or a statement that fails in their place.
    let (tag, _) = wire.server.message();
    wire.server.expect(b'S');
    wire.server.send(
        if tag == b'B' { b'2' } else { b'E' },
        if tag == b'B' { b"" } else { FAILED },
    );
    wire.server.send(b'Z', b"I");
    let (_, answer) = wire.client.message();
    (wire, String::from_utf8_lossy(&answer).into_owned())
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn values_without_a_place_of_their_own_are_not_sent() {
    for (name, sql, declared, types, values, code) in [
        (
            "surplus",
            "SELECT id FROM p",
            &[][..],
            &[][..],
            &[&b"Alice"[..]][..],
            "08P01",
        ),
        (
            "more",
            "SELECT id FROM p WHERE name = $1",
            &[],
            &[ENC_TEXT],
            &[b"Bob", b"Alice"],
            "08P01",
        ),
        (
            "own",
            "SELECT id FROM p WHERE name = $1 AND age > 5",
            &[],
            &[ENC_TEXT, ENC_INT4],
            &[b"Bob", b"Alice"],
            "08P01",
        ),
        (
            "enc",
            "SELECT id FROM p WHERE name = $1",
            &[ENC_TEXT],
            &[ENC_TEXT],
            &[b"Alice"],
            "22P03",
        ),
        (
            "prefix",
            "SELECT id FROM p WHERE name = $1",
            &[ENC_TEXT],
            &[ENC_TEXT],
            &[b"srv1:Alice"],
            "22P03",
        ),
        (
            "left",
            "SELECT left(name, $1) FROM p",
            &[],
            &[25],
            &[b"Alice"],
            "SR102",
        ),
        (
            "liar",
            "SELECT left(name, $1) FROM p",
            &[],
            &[23],
            &[b"Alice"],
            "SR102",
        ),
        (
            "pattern",
            "SELECT substring(name FROM $1) FROM p",
            &[25],
            &[25],
            &[b"Alice"],
            "SR102",
        ),
        (
            "subquery",
            "SELECT id FROM p WHERE EXISTS (SELECT 1 FROM pg_class WHERE name = $1)",
            &[],
            &[25],
            &[b"Alice"],
            "SR102",
        ),
        (
            "unnest",
            "INSERT INTO p (name) SELECT * FROM unnest($1)",
            &[],
            &[1009],
            &[b"{Alice}"],
            "SR102",
        ),
        (
            "bounds",
            "SELECT id FROM p WHERE name = ANY ($1)",
            &[],
            &[90_101],
            &[b"[Alice]={a}"],
            "SR-8104",
        ),
    ] {
        let (wire, answer) = bound(name, sql, declared, types, 0, values);
        assert!(answer.contains(code), "{name}: {answer}");
        wire.server.never_saw(b"Alice");
    }
    let (wire, answer) = bound(
        "binary",
        "SELECT left(name, $1) FROM p",
        &[25],
        &[20],
        1,
        &[b"Alice123"],
    );
    assert!(answer.contains("SR102"), "{answer}");
    wire.server.never_saw(b"Alice");
    // What it is for goes through.
    let (wire, answer) = bound(
        "number",
        "SELECT left(name, $1) FROM p",
        &[],
        &[23],
        0,
        &[b"3"],
    );
    assert_eq!(answer, "");
    assert!(
        wire.server
            .came
            .windows(5)
            .any(|window| window == [0, 0, 0, 1, b'3'])
    );
}

#[test]
fn a_statement_prepared_before_its_column_became_confidential_gets_no_more_values() {
    let mut wire = Wire::start("prepared");
    wire.client
        .send(b'P', &parse("SELECT id FROM plain WHERE note = $1", &[25]));
    wire.client.send(b'S', b"");
    wire.prepares();
    // A definition whose effect the proxy does not know has the catalog read again.
    wire.query("DROP SCHEMA elsewhere");
    wire.completes();
    wire.client.send(b'B', &bind(0, &[b"Alice"]));
    wire.client.send(b'S', b"");
    wire.server.own_query();
    let mut rows = catalog();
    rows[6][5] = "90001";
    wire.answer(&rows);
    // A statement that fails, in place of the values.
    wire.server.expect(b'P');
    wire.server.expect(b'S');
    wire.server.send(b'E', FAILED);
    wire.server.send(b'Z', b"I");
    let error = wire.client.expect(b'E');
    assert!(String::from_utf8_lossy(&error).contains("0A000"));
    wire.server.never_saw(b"Alice");
}

#[test]
fn what_a_pipeline_defines_is_known_in_the_same_pipeline() {
    let mut wire = Wire::start("pipeline");
    wire.client.send(
        b'P',
        &parse(
            "ALTER TABLE plain ALTER note TYPE s.enc_text USING strongroom_columns.classify(note)",
            &[],
        ),
    );
    wire.client.send(
        b'P',
        &parse("INSERT INTO plain (note) VALUES ('Alice')", &[]),
    );
    wire.client.send(b'S', b"");
    for tag in [b'P', b'D', b'P', b'D', b'S'] {
        wire.server.expect(tag);
    }
    wire.server.never_saw(b"Alice");
}

#[test]
fn pinned_columns_are_in_every_catalog() {
    let plain: Vec<[&str; 7]> = catalog()
        .into_iter()
        .map(|mut row| {
            if row[4] == "name" {
                row[5] = "25";
            }
            row
        })
        .collect();
    let other = [
        ["t", "s", "enc_text", "90001", "90101", "", ""],
        ["r", "other", "p", "00001", "name", "25", "70002"],
    ];
    for (name, rows) in [("plain", &plain[..]), ("missing", &other), ("empty", &[])] {
        let (mut wire, _listener) = begin(name, &["public.p.name"], None);
        wire.greet(rows);
        let error = wire.client.expect(b'E');
        assert!(String::from_utf8_lossy(&error).contains("SR106"), "{name}");
    }
}

#[test]
fn a_pinned_column_does_not_come_back_plain() {
    let (mut wire, _listener) = begin("result", &["public.p.age"], None);
    wire.greet(&catalog());
    wire.client.expect(b'Z');
    wire.query("SELECT id, age FROM p");
    let mut columns = vec![0, 2];
    for (name, place, oid) in [(&b"id\0"[..], 1_u16, 23_u32), (b"age\0", 3, 23)] {
        columns.extend_from_slice(name);
        columns.extend_from_slice(&P.to_be_bytes());
        columns.extend_from_slice(&place.to_be_bytes());
        columns.extend_from_slice(&oid.to_be_bytes());
        columns.extend_from_slice(&[0, 4, 255, 255, 255, 255, 0, 0]);
    }
    wire.server.send(b'T', &columns);
    wire.row(&["1", "4711"]);
    let error = wire.client.expect(b'E');
    assert!(String::from_utf8_lossy(&error).contains("SR106"));
    wire.client.never_saw(b"4711");
}

fn terms(truths: Option<u64>) -> TicketTerms {
    TicketTerms {
        accepted: AttestationPolicy {
            process: true,
            ..AttestationPolicy::default()
        },
        zones: Arc::new(KnownZones::in_memory()),
        lifetime: Duration::from_secs(600),
        truths,
        rights: right::ORDINARY,
    }
}

#[test]
fn a_session_that_the_zone_has_forgotten_is_opened_anew() {
    let attester = ProcessAttester::new().unwrap();
    let (mut wire, _listener) = begin("forgotten", &[], Some(terms(None)));
    wire.greet(&catalog());
    Zone::default().serve(&mut wire, &attester);
    wire.client.expect(b'Z');
    std::thread::sleep(Duration::from_millis(1_100));
    // Within a transaction nothing of the proxy's own is sent.
    wire.query("BEGIN");
    wire.server.send(b'C', b"BEGIN\0");
    wire.server.send(b'Z', b"T");
    wire.hears(b"CZ");
    wire.query("SELECT id FROM p");
    wire.server.send(b'E', FORGOTTEN);
    wire.server.send(b'Z', b"E");
    wire.hears(b"EZ");
    wire.query("ROLLBACK");
    wire.completes();
    // The zone that was started anew gets the keys, before the statement.
    let mut zone = Zone::default();
    wire.client.send(b'Q', b"SELECT id FROM p\0");
    zone.serve(&mut wire, &attester);
    assert_eq!(zone.sessions, 1);
    assert_eq!(wire.server.expect(b'Q'), b"SELECT id FROM p\0");
    wire.completes();
}

#[test]
fn a_budget_is_not_renewed_by_a_server_that_says_that_the_session_is_lost() {
    let attester = ProcessAttester::new().unwrap();
    let (mut wire, _listener) = begin("budget", &[], Some(terms(Some(5))));
    wire.greet(&catalog());
    Zone::default().serve(&mut wire, &attester);
    wire.client.expect(b'Z');
    std::thread::sleep(Duration::from_millis(1_100));
    wire.query("SELECT id FROM p");
    wire.server.send(b'E', FORGOTTEN);
    wire.server.send(b'Z', b"I");
    wire.hears(b"EZ");
    wire.client.send(b'Q', b"SELECT id FROM p\0");
    let mut rest = Vec::new();
    wire.client.stream.read_to_end(&mut rest).unwrap();
    let mut sent = Vec::new();
    wire.server.stream.read_to_end(&mut sent).unwrap();
    assert!(!String::from_utf8_lossy(&sent).contains("attest"));
}

#[test]
fn a_client_that_leaves_takes_its_session_along() {
    let attester = ProcessAttester::new().unwrap();
    // With and without a word, between transactions and in one.
    for (terminate, begun) in [(true, false), (false, false), (true, true)] {
        let (mut wire, _listener) = begin("leaves", &[], Some(terms(Some(5))));
        wire.greet(&catalog());
        let mut zone = Zone::default();
        zone.serve(&mut wire, &attester);
        wire.client.expect(b'Z');
        if begun {
            wire.query("BEGIN");
            wire.server.send(b'C', b"BEGIN\0");
            wire.server.send(b'Z', b"T");
            wire.hears(b"CZ");
        }
        assert_eq!(zone.channel.sessions().count(), 1);
        if terminate {
            wire.client.send(b'X', &[]);
        } else {
            let ended = wire.client.stream.shutdown(std::net::Shutdown::Write);
            ended.unwrap();
        }
        zone.answer(&mut wire, &attester);
        assert_eq!(zone.channel.sessions().count(), 0);
        let mut rest = Vec::new();
        wire.server.stream.read_to_end(&mut rest).unwrap();
        assert_eq!(rest, if terminate { &b"X\0\0\0\x04"[..] } else { b"" });
    }
}

#[test]
fn a_ticket_is_renewed_while_its_connection_is_used() {
    let attester = ProcessAttester::new().unwrap();
    let short = TicketTerms {
        lifetime: Duration::from_secs(4),
        ..terms(Some(5))
    };
    let (mut wire, _listener) = begin("renewed", &[], Some(short));
    wire.greet(&catalog());
    let mut zone = Zone::default();
    zone.serve(&mut wire, &attester);
    wire.client.expect(b'Z');
    let session = zone.current.unwrap();
    let ticket = zone.channel.session(&session).unwrap().ticket().clone();
    zone.channel
        .session(&session)
        .unwrap()
        .spend_truths(3)
        .unwrap();
    // Not at once, and in a transaction not before it has to be.
    wire.query("BEGIN");
    wire.server.send(b'C', b"BEGIN\0");
    wire.server.send(b'Z', b"T");
    wire.hears(b"CZ");
    std::thread::sleep(Duration::from_millis(2_200));
    wire.query("SELECT id FROM p");
    wire.completes();
    wire.client.send(b'Q', b"SELECT id FROM p\0");
    zone.answer(&mut wire, &attester);
    assert_eq!(wire.server.expect(b'Q'), b"SELECT id FROM p\0");
    wire.completes();
    assert_eq!(zone.current, Some(session), "the same session");
    let renewed = zone.channel.session(&session).unwrap();
    assert!(renewed.ticket().not_after > ticket.not_after);
    assert_eq!(renewed.ticket().ticket_id, ticket.ticket_id);
    // What was spent stays spent.
    assert!(renewed.spend_truths(3).is_err() && renewed.spend_truths(2).is_ok());
}
