//! Several statements in one text are an implicit transaction block for PostgreSQL, and the proxy
//! sends them by the extended protocol, where they are none: some statements need one.
//! Method: as `wire.rs`.
#![expect(clippy::tests_outside_test_module, reason = "an integration test")]

use crate::support::harness::{ENC_TEXT, FAILED, Wire};

/// The proxy has a statement of its own carried out within the text.
#[track_caller]
fn carries_out(wire: &mut Wire, sql: &str) {
    wire.sends(b"CC");
    let text = wire.server.expect(b'P');
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(text.contains(&format!("\0{sql}\0")), "{text}");
    wire.sends(b"BECCH");
    for tag in [b'3', b'3', b'1', b'2'] {
        wire.server.send(tag, b"");
    }
    wire.server.send(b'C', b"X\0");
    wire.server.send(b'3', b"");
    wire.server.send(b'3', b"");
}

/// The client sends a text whose first statement needs a block; the server has carried that out.
fn begins_text(name: &str) -> Wire {
    let mut wire = Wire::start(name);
    wire.client
        .send(b'Q', b"LOCK TABLE p; UPDATE p SET name = 'Alice'\0");
    carries_out(&mut wire, "BEGIN");
    wire.sends(b"PDBDEPDH");
    wire.makes_statement();
    wire.server.send(b'2', b"");
    wire.server.send(b'n', b"");
    wire.server.send(b'C', b"LOCK TABLE\0");
    wire.client.expect(b'C');
    wire.server.send(b'1', b"");
    wire.describes(ENC_TEXT);
    wire.sends(b"BDE");
    wire
}

#[test]
fn a_text_of_several_statements_is_a_block() {
    let mut wire = begins_text("block");
    wire.server.send(b'2', b"");
    wire.server.send(b'n', b"");
    wire.server.send(b'C', b"UPDATE 1\0");
    wire.client.expect(b'C');
    carries_out(&mut wire, "COMMIT");
    wire.server.expect(b'S');
    wire.server.send(b'Z', b"I");
    wire.server.expect(b'S');
    wire.server.send(b'Z', b"I");
    wire.client.expect(b'Z');
    wire.server.never_saw(b"Alice");
}

#[test]
fn a_block_that_fails_is_over() {
    let mut wire = begins_text("block-failed");
    wire.server.send(b'E', FAILED);
    wire.client.expect(b'E');
    // The statement that would have ended the block may be on its way.
    while wire.server.message().0 != b'S' {}
    wire.server.send(b'Z', b"E");
    assert_eq!(wire.server.expect(b'Q'), b"ROLLBACK\0");
    wire.server.send(b'C', b"ROLLBACK\0");
    wire.server.send(b'Z', b"I");
    wire.server.expect(b'S');
    wire.server.send(b'Z', b"I");
    assert_eq!(wire.client.expect(b'Z'), b"I");
}

/// In a transaction of the client's, and where no statement needs it.
#[test]
fn no_block_is_begun_where_there_is_one() {
    let mut wire = Wire::start("block-none");
    wire.client
        .send(b'Q', b"SELECT 1; UPDATE p SET name = 'Alice'\0");
    wire.sends(b"PDBDEPDH");
    let mut wire = Wire::start("block-of-client");
    wire.query("BEGIN");
    wire.completes_as(b"BEGIN\0", b"T");
    wire.client
        .send(b'Q', b"LOCK TABLE p; UPDATE p SET name = 'Alice'\0");
    wire.sends(b"PDBDEPDH");
    let mut wire = Wire::start("block-in-text");
    wire.client.send(
        b'Q',
        b"BEGIN; LOCK TABLE p; UPDATE p SET name = 'Alice'; COMMIT\0",
    );
    wire.sends(b"PDBDEPDBDEPDH");
}
