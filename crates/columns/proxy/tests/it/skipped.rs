//! What the server skips after an error in a pipeline, which the client was told of: what it has
//! asked for then has not happened. Method: as `wire.rs`.
#![expect(clippy::tests_outside_test_module, reason = "an integration test")]

use crate::support::harness::{
    ENC_INT4, ENC_TEXT, Wire, bind, described, ends_without, of_name, parse,
};

const INSERT: &str = "INSERT INTO p (name) VALUES ($1)";
const PLAIN: &str = "SELECT id FROM plain WHERE note = $1";

/// The client prepares the statement of this name that stores in a confidential column.
fn prepares_insert(wire: &mut Wire, name: &str) {
    wire.client.send(b'P', &of_name(name, parse(INSERT, &[])));
    wire.client.send(b'S', b"");
    wire.prepares_with(ENC_TEXT);
}

/// The client binds the statement of this name; the value has to go out sealed.
fn binds_sealed(wire: &mut Wire, name: &str) {
    wire.client.send(b'B', &of_name(name, bind(0, &[b"Alice"])));
    wire.client.send(b'S', b"");
    // What the server says of it now does not count.
    let (mut tag, mut body) = wire.server.message();
    if tag == b'D' {
        wire.server.expect(b'H');
        wire.describes(25);
        (tag, body) = wire.server.message();
    }
    assert_eq!((tag, body.len() > 40), (b'B', true), "{body:?}");
    wire.server.expect(b'S');
    wire.server.never_saw(b"Alice");
}

/// The server has the statement still, and says otherwise what it is.
#[test]
fn a_statement_whose_end_was_skipped_is_there() {
    let mut wire = Wire::start("skipped-close");
    prepares_insert(&mut wire, "s1");
    wire.client.send(b'C', b"Ss1\0");
    wire.client.send(b'S', b"");
    wire.sends(b"CS");
    wire.fails();
    binds_sealed(&mut wire, "s1");
    let mut wire = Wire::start("skipped-close-and-parse");
    prepares_insert(&mut wire, "s1");
    wire.client.send(b'C', b"Ss1\0");
    wire.client.send(b'P', &of_name("s1", parse(PLAIN, &[])));
    wire.client.send(b'S', b"");
    wire.sends(b"CPDS");
    wire.fails();
    binds_sealed(&mut wire, "s1");
}

#[test]
fn a_statement_that_was_closed_does_not_count_for_its_name() {
    let mut wire = Wire::start("closed");
    prepares_insert(&mut wire, "s1");
    // In one pipeline.
    wire.client.send(b'C', b"Ss1\0");
    wire.client.send(b'P', &of_name("s1", parse(PLAIN, &[])));
    wire.client.send(b'B', &of_name("s1", bind(0, &[b"Bob"])));
    wire.client.send(b'S', b"");
    wire.sends(b"CPDH");
    wire.server.send(b'3', b"");
    wire.server.send(b'1', b"");
    wire.describes(25);
    let sent = wire.server.expect(b'B');
    assert!(sent.windows(3).any(|window| window == b"Bob"));
    wire.server.expect(b'S');
    wire.hears(b"31");
}

/// The error came before the Parse: the unnamed statement is the one of before.
#[test]
fn the_unnamed_statement_is_there_whose_successor_was_skipped() {
    let mut wire = Wire::start("skipped-unnamed");
    prepares_insert(&mut wire, "");
    wire.client.send(b'C', b"Pc1\0");
    wire.client.send(b'P', &parse(PLAIN, &[]));
    wire.client.send(b'S', b"");
    wire.sends(b"CPDS");
    wire.fails();
    binds_sealed(&mut wire, "");
}

/// The client binds a portal for `SELECT age FROM p`, which a savepoint behind it keeps.
fn binds_age(wire: &mut Wire) {
    wire.query("BEGIN");
    wire.completes_as(b"BEGIN\0", b"T");
    wire.client.send(b'P', &parse("SELECT age FROM p", &[]));
    wire.client.send(b'B', b"c1\0\0\0\0\0\0\0\0");
    wire.client.send(b'S', b"");
    wire.sends(b"PDBS");
    wire.makes_query(&described(&[("age", ENC_INT4)]));
    wire.server.send(b'2', b"");
    wire.server.send(b'Z', b"T");
    wire.hears(b"12Z");
    wire.query("SAVEPOINT s");
    wire.completes_as(b"SAVEPOINT\0", b"T");
}

#[test]
fn rows_of_a_portal_whose_end_was_skipped_are_checked() {
    let mut wire = Wire::start("skipped-portal");
    binds_age(&mut wire);
    wire.client.send(b'C', b"Pc1\0");
    wire.client.send(b'S', b"");
    wire.sends(b"CS");
    wire.fails();
    wire.query("ROLLBACK TO s");
    wire.completes_as(b"ROLLBACK\0", b"T");
    wire.client.send(b'E', b"c1\0\0\0\0\0");
    wire.client.send(b'S', b"");
    let tag = wire.server.message().0;
    if tag == b'D' {
        wire.sends(b"ES");
    } else {
        wire.server.expect(b'S');
    }
    wire.hides_plain_age();
}

/// The client closes its portal and binds another one of the name, and the server skips both.
#[test]
fn a_portal_whose_successor_was_skipped_is_there() {
    for is_honest in [false, true] {
        let mut wire = Wire::start(&format!("skipped-bind-{is_honest}"));
        let plain = parse("SELECT id FROM plain", &[]);
        wire.client.send(b'P', &of_name("s2", plain));
        wire.client.send(b'S', b"");
        wire.sends(b"PDS");
        wire.makes_query(&described(&[("id", 23)]));
        wire.server.send(b'Z', b"I");
        wire.hears(b"1Z");
        binds_age(&mut wire);
        wire.client.send(b'C', b"Pc1\0");
        wire.client.send(b'B', b"c1\0s2\0\0\0\0\0\0\0");
        wire.client.send(b'S', b"");
        wire.sends(b"CBS");
        wire.fails();
        wire.query("ROLLBACK TO s");
        wire.completes_as(b"ROLLBACK\0", b"T");
        wire.client.send(b'E', b"c1\0\0\0\0\0");
        wire.client.send(b'S', b"");
        wire.sends(b"ES");
        if is_honest {
            wire.server.send(b'D', &[0, 1, 255, 255, 255, 255]);
            wire.client.expect(b'D');
        } else {
            wire.row(&["4711"]);
            ends_without(&mut wire, b"4711");
        }
    }
}
