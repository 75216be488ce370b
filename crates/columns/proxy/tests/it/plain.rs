//! Statements that touch nothing confidential reach the server as the client wrote them, whatever
//! the proxy asks the server itself in between.
//!
//! Method: the test is the client and the server of one proxy, as in `wire.rs`.
#![expect(clippy::tests_outside_test_module, reason = "an integration test")]

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::support::harness::{Wire, begin, bind, catalog, parse};

/// What a server says of a statement that was cancelled.
const CANCELLED: &[u8] = b"SERROR\0VERROR\0C57014\0Mcanceling statement due to user request\0\0";

/// A definition whose effect the proxy does not know: before the next statement it reads the
/// catalog again.
fn define(wire: &mut Wire) {
    wire.query("DROP SCHEMA elsewhere");
    wire.answer(&[]);
    wire.hears(b"CZ");
}

#[test]
fn reading_the_catalog_leaves_the_unnamed_statement_there() {
    let mut wire = Wire::start("unnamed");
    define(&mut wire);
    wire.client
        .send(b'P', &parse("SELECT id FROM plain WHERE note = $1", &[25]));
    wire.client.send(b'S', b"");
    // A simple query would drop what the client has without a name, and so would statements and
    // portals of that name.
    for (tag, name) in [
        (b'C', &b"Sstrongroom_own\0"[..]),
        (b'C', b"Pstrongroom_own\0"),
        (b'P', b"strongroom_own\0SELECT"),
        (b'B', b"strongroom_own\0strongroom_own\0"),
        (b'E', b"strongroom_own\0"),
        (b'C', b"Pstrongroom_own\0"),
        (b'C', b"Sstrongroom_own\0"),
        (b'S', b""),
    ] {
        assert!(wire.server.expect(tag).starts_with(name));
    }
    for tag in [b'3', b'3', b'1', b'2'] {
        wire.server.send(tag, b"");
    }
    for row in catalog() {
        wire.row(&row);
    }
    wire.server.send(b'C', b"SELECT 8\0");
    wire.server.send(b'3', b"");
    wire.server.send(b'3', b"");
    wire.server.send(b'Z', b"I");
    assert!(
        wire.server
            .expect(b'P')
            .starts_with(b"\0SELECT id FROM plain")
    );
}

#[test]
fn a_cancel_request_during_the_proxys_own_query_cancels_the_statement_behind_it() {
    let mut wire = Wire::start("cancelled");
    define(&mut wire);
    wire.client.send(b'Q', b"SELECT pg_sleep(20)\0");
    wire.server.own_query();
    wire.server.send(b'E', CANCELLED);
    wire.server.send(b'Z', b"I");
    // A statement that fails, in place of the one that was cancelled.
    assert_eq!(wire.server.expect(b'Q'), b"strongroom_refused\0");
    wire.fails_with("57014");
    // The next one is executed.
    wire.client.send(b'Q', b"SELECT 1\0");
    wire.server.own_query();
    wire.answer(&catalog());
    assert_eq!(wire.server.expect(b'Q'), b"SELECT 1\0");
}

/// The statement was executed although the client had cancelled it.
#[test]
fn a_cancel_request_is_one_in_every_language() {
    for (name, limit) in [("cancel", "0"), ("limit", "10ms")] {
        let mut wire = Wire::start(&format!("language-{name}"));
        define(&mut wire);
        wire.client.send(b'Q', b"SELECT pg_sleep(20)\0");
        wire.server.own_query();
        wire.server
            .send(b'E', b"SFEHLER\0VERROR\0C57014\0Mstorniere Anfrage\0\0");
        wire.server.send(b'Z', b"I");
        assert_eq!(wire.server.expect(b'Q'), b"SHOW statement_timeout\0");
        wire.row(&[limit]);
        wire.answer(&[]);
        let text = String::from_utf8_lossy(&wire.server.expect(b'Q')).into_owned();
        if name == "cancel" {
            assert_eq!(text, "strongroom_refused\0");
            wire.fails_with("57014");
        } else {
            assert!(text.starts_with("BEGIN; SET LOCAL statement_timeout = 0;"));
        }
    }
}

#[test]
fn text_of_another_encoding_is_not_changed() {
    let mut wire = Wire::start("latin");
    let text = b"INSERT INTO plain VALUES (1, 'caf\xe9')\0";
    wire.client.send(b'Q', text);
    wire.server.own_query();
    wire.answer(&catalog());
    assert_eq!(wire.server.expect(b'Q'), text);
    wire.answer(&[]);
    wire.hears(b"CZ");
    wire.client
        .send(b'Q', b"INSERT INTO p (name) VALUES ('caf\xe9')\0");
    wire.server.own_query();
    wire.answer(&catalog());
    assert_eq!(wire.server.expect(b'Q'), b"strongroom_refused\0");
    wire.fails_with("22021");
    wire.server.never_saw(b"INTO p (");
}

#[test]
fn a_prepared_text_of_another_encoding_gets_no_values_once_its_table_is_confidential() {
    let mut wire = Wire::start("latin-prepared");
    wire.client.send(
        b'P',
        b"\0UPDATE plain SET note = $1 WHERE note = 'caf\xe9'\0\0\0",
    );
    wire.client.send(b'S', b"");
    wire.server.own_query();
    wire.answer(&catalog());
    wire.prepares();
    define(&mut wire);
    wire.client.send(b'B', &bind(0, &[b"Alice"]));
    wire.client.send(b'S', b"");
    wire.server.own_query();
    let mut rows = catalog();
    rows[6][5] = "90001";
    wire.answer(&rows);
    wire.server.expect(b'P');
    wire.server.expect(b'S');
    wire.fails_with("22021");
    wire.server.never_saw(b"Alice");
}

#[test]
fn copy_of_a_table_that_is_not_there_fails_as_at_the_server() {
    let mut wire = Wire::start("nowhere");
    wire.client.send(b'Q', b"COPY nowhere TO STDOUT\0");
    wire.server.own_query();
    wire.answer(&catalog());
    assert_eq!(wire.server.expect(b'Q'), b"COPY nowhere TO STDOUT\0");
    wire.fails();
    // A server that has it all the same, and has not told of it, gets no data.
    wire.client.send(b'Q', b"COPY nowhere FROM STDIN\0");
    wire.server.own_query();
    wire.answer(&catalog());
    assert_eq!(wire.server.expect(b'Q'), b"COPY nowhere FROM STDIN\0");
    wire.copies();
    wire.client.send(b'd', b"1\tAlice\n");
    wire.client.send(b'c', b"");
    wire.server.expect(b'f');
    wire.fails_with("SR103");
    wire.server.never_saw(b"Alice");
}

#[test]
fn a_description_of_more_parameters_than_its_count_can_say_is_not_changed() {
    let mut wire = Wire::start("parameters");
    wire.client.send(b'P', &parse("SELECT 1", &[]));
    wire.client.send(b'D', b"S\0");
    wire.client.send(b'S', b"");
    for tag in [b'P', b'D', b'D', b'S'] {
        wire.server.expect(tag);
    }
    let mut described = vec![0, 0];
    described.extend_from_slice(&[0, 0, 0, 25].repeat(65_536));
    wire.server.send(b'1', b"");
    for _ in 0..2 {
        wire.server.send(b't', &described);
        wire.server.send(b'n', b"");
    }
    wire.server.send(b'Z', b"I");
    wire.client.expect(b'1');
    assert!(wire.client.expect(b't') == described);
}

#[test]
fn a_type_that_another_connection_has_made_is_known() {
    let mut wire = Wire::start("type");
    let mut rows = catalog();
    for sql in ["SELECT 'ok'::mood", "SELECT id::mood FROM plain"] {
        wire.client.send(b'Q', format!("{sql}\0").as_bytes());
        if rows.len() == catalog().len() {
            wire.server.own_query();
            rows.push(["y", "public", "mood", "80001", "80002", "", ""]);
            wire.answer(&rows);
        }
        assert_eq!(wire.server.expect(b'Q'), format!("{sql}\0").as_bytes());
        wire.answer(&[]);
        wire.hears(b"CZ");
    }
}

#[test]
fn the_clients_timeout_for_statements_does_not_end_the_proxys_own() {
    const LATE: &[u8] =
        b"SERROR\0VERROR\0C57014\0Mcanceling statement due to statement timeout\0\0";
    let mut wire = Wire::start("timeout");
    define(&mut wire);
    wire.client.send(b'Q', b"SELECT 1\0");
    wire.server.own_query();
    wire.server.send(b'E', LATE);
    wire.server.send(b'Z', b"I");
    let again = String::from_utf8_lossy(&wire.server.expect(b'Q')).into_owned();
    assert!(again.starts_with("BEGIN; SET LOCAL statement_timeout = 0; SELECT 't'"));
    assert!(again.ends_with("; COMMIT\0"));
    // Whatever happens, the transaction is not the client's.
    wire.server.send(b'E', CANCELLED);
    wire.server.send(b'Z', b"E");
    assert_eq!(wire.server.expect(b'Q'), b"ROLLBACK\0");
    wire.answer(&[]);
    assert_eq!(wire.server.expect(b'Q'), b"strongroom_refused\0");
    wire.fails_with("57014");
}

#[test]
fn a_cancel_request_is_over_when_the_server_has_done_it() {
    let (mut wire, listener) = begin("cancel", &[], None);
    wire.greet(&catalog());
    wire.client.expect(b'Z');
    let mut sockets = std::fs::read_dir(&wire.directory).unwrap().flatten();
    let socket = sockets.find(|file| file.file_name().to_string_lossy().starts_with(".s."));
    let mut client = UnixStream::connect(socket.unwrap().path()).unwrap();
    let request = [0, 0, 0, 16, 4, 210, 22, 46, 0, 0, 0, 1, 0, 0, 0, 2];
    client.write_all(&request).unwrap();
    let mut server = listener.accept().unwrap().0;
    let mut came = [0; 16];
    server.read_exact(&mut came).unwrap();
    assert_eq!(came, request);
    let short = Some(Duration::from_millis(200));
    client.set_read_timeout(short).unwrap();
    assert!(client.read(&mut [0; 1]).is_err(), "the server is not ready");
    drop(server);
    client
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    assert_eq!(client.read(&mut [0; 1]).unwrap(), 0);
}
