//! A server that answers something else than what was asked. Method: as `wire.rs`.
#![expect(clippy::tests_outside_test_module, reason = "an integration test")]

use crate::support::harness::{ENC_INT4, FAILED, Wire, described, ends_without, parse};

/// Has a statement begun in a transaction: the server completes these.
fn begins(wire: &mut Wire, statements: &[&str]) {
    for sql in statements {
        wire.query(sql);
        wire.completes();
    }
}

/// Sends `SELECT age FROM p` by the extended protocol. The server has made the statement.
fn executes(wire: &mut Wire) {
    wire.client.send(b'P', &parse("SELECT age FROM p", &[]));
    wire.executes();
    wire.sends(b"PDBES");
    wire.makes_query(&described(&[("age", ENC_INT4)]));
}

/// What a client takes for the data of a COPY, it takes for the result of its statement.
#[test]
fn a_statement_is_not_answered_by_a_copy() {
    for (name, sql) in [
        ("select", "SELECT age FROM p WHERE id = 1"),
        ("setting", "SET application_name = 'a'"),
        ("in", "COPY plain FROM STDIN"),
    ] {
        let mut wire = Wire::start(&format!("copy-out-{name}"));
        wire.query(sql);
        wire.server.send(b'H', &[0, 0, 1, 0, 0]);
        wire.server.send(b'd', b"4711\n");
        ends_without(&mut wire, b"4711");
    }
    for (name, sql) in [("select", "SELECT 1"), ("out", "COPY plain TO STDOUT")] {
        let mut wire = Wire::start(&format!("copy-in-{name}"));
        wire.query(sql);
        wire.server.send(b'G', &[0, 0, 1, 0, 0]);
        ends_without(&mut wire, b"never");
        wire.client
            .send(b'd', b"INSERT INTO p (name) VALUES ('Alice');\n");
        wire.server.never_saw(b"Alice");
    }
}

#[test]
fn a_copy_begins_once() {
    let mut wire = Wire::start("copy-twice");
    wire.query("COPY plain TO STDOUT");
    wire.server.send(b'H', &[0, 0, 1, 0, 0]);
    wire.server.send(b'd', b"1\ta\n");
    wire.server.send(b'c', b"");
    wire.hears(b"Hdc");
    wire.server.send(b'H', &[0, 0, 1, 0, 0]);
    ends_without(&mut wire, b"4711");
    // Another one after the end of the only statement.
    let mut wire = Wire::start("copy-again");
    wire.query("COPY plain FROM STDIN");
    wire.copies();
    wire.client.send(b'c', b"");
    wire.server.expect(b'c');
    wire.server.send(b'C', b"COPY 0\0");
    wire.client.expect(b'C');
    wire.server.send(b'G', &[0, 0, 1, 0, 0]);
    ends_without(&mut wire, b"4711");
    // Data without a COPY.
    let mut wire = Wire::start("copy-none");
    wire.query("COPY plain TO STDOUT");
    wire.server.send(b'd', b"4711\n");
    ends_without(&mut wire, b"4711");
}

#[test]
fn rows_answer_nothing_but_an_execution() {
    // In answer to Bind, before the statement's own rows.
    let mut wire = Wire::start("rows-of-bind");
    executes(&mut wire);
    wire.hides_plain_age();
    // In answer to Sync, after them.
    let mut wire = Wire::start("rows-of-sync");
    executes(&mut wire);
    wire.server.send(b'2', b"");
    wire.server.send(b'C', b"SELECT 0\0");
    wire.row(&["4711"]);
    ends_without(&mut wire, b"4711");
    // In answer to nothing.
    let mut wire = Wire::start("rows-of-nothing");
    wire.hides_plain_age();
}

/// Clients begin a new result where a description comes: the rows would have other names for them
/// than for the proxy.
#[test]
fn an_execution_is_not_described() {
    let mut wire = Wire::start("described-again");
    executes(&mut wire);
    wire.server.send(b'2', b"");
    wire.server.send(b'T', &described(&[("bonus", ENC_INT4)]));
    ends_without(&mut wire, b"bonus");
}

#[test]
fn an_error_answers_something() {
    let mut wire = Wire::start("error-of-nothing");
    wire.server.send(b'E', FAILED);
    let error = wire.client.expect(b'E');
    assert!(String::from_utf8_lossy(&error).contains("SR-8105"));
    // One with which the server ends the connection comes at any time.
    let mut wire = Wire::start("end-of-connection");
    wire.server
        .send(b'E', b"SFATAL\0VFATAL\0C57P01\0Mterminating\0\0");
    let error = wire.client.expect(b'E');
    assert!(String::from_utf8_lossy(&error).contains("57P01"));
}

/// The client's value is not valid, and it has to hear of that.
#[test]
fn a_copy_whose_data_was_refused_does_not_succeed() {
    let mut wire = Wire::start("copy-refused");
    wire.query("COPY p (id, age) FROM STDIN");
    wire.copies();
    wire.client.send(b'd', b"1\tnonsense\n");
    wire.client.send(b'c', b"");
    wire.server.expect(b'f');
    wire.server.send(b'C', b"COPY 1\0");
    ends_without(&mut wire, b"COPY 1");
}

/// The proxy does not read the text, and the server could have told it so for that.
#[test]
fn a_fetch_that_is_not_read_is_bound_to_its_cursor() {
    let mut wire = Wire::start("unread-fetch");
    begins(
        &mut wire,
        &["BEGIN", "DECLARE c CURSOR FOR SELECT age FROM p"],
    );
    wire.server
        .send(b'S', b"standard_conforming_strings\0off\0");
    wire.client.expect(b'S');
    wire.query("FETCH 1 FROM c");
    wire.hides_plain_age();
}

#[test]
fn a_cursor_and_a_prepared_statement_are_bound_by_the_protocol_too() {
    // The portal of a cursor that SQL has made.
    let mut wire = Wire::start("portal-of-cursor");
    begins(
        &mut wire,
        &["BEGIN", "DECLARE c CURSOR FOR SELECT age FROM p"],
    );
    wire.client.send(b'E', b"c\0\0\0\0\0");
    wire.client.send(b'S', b"");
    wire.sends(b"DES");
    wire.hides_plain_age();
    // A statement that SQL has prepared.
    let mut wire = Wire::start("bind-of-prepare");
    begins(&mut wire, &["PREPARE s AS SELECT age FROM p"]);
    wire.client.send(b'B', b"\0s\0\0\0\0\0\0\0");
    wire.client.send(b'E', &[0; 5]);
    wire.client.send(b'S', b"");
    wire.server.expect(b'D');
    wire.server.expect(b'H');
    wire.server.send(b't', &[0, 0]);
    wire.server.send(b'T', &described(&[("age", 23)]));
    wire.sends(b"BDES");
    wire.server.send(b'2', b"");
    wire.hides_plain_age();
    // A name that is given again after the client has ended the transaction.
    let mut wire = Wire::start("cursor-again");
    begins(
        &mut wire,
        &[
            "BEGIN",
            "DECLARE c CURSOR FOR SELECT id, note FROM plain",
            "COMMIT",
            "BEGIN",
            "DECLARE c CURSOR FOR SELECT age FROM p",
        ],
    );
    wire.query("FETCH 1 FROM c");
    wire.hides_plain_age();
}

/// What others have made confidential since would not be known, because the catalog cannot be read.
#[test]
fn nothing_is_sent_in_a_failed_transaction_with_an_old_catalog() {
    let mut wire = Wire::start("failed-for-ever");
    wire.query("ALTER FUNCTION one() RENAME TO two");
    wire.completes_as(b"ALTER FUNCTION\0", b"E");
    // It can be ended.
    wire.query("ROLLBACK; SELECT pg_advisory_unlock_all()");
    wire.server.send(b'C', b"ROLLBACK\0");
    wire.server.send(b'C', b"SELECT 1\0");
    wire.server.send(b'Z', b"E");
    wire.hears(b"CCZ");
    wire.query("PREPARE TRANSACTION 'name'");
    wire.completes_as(b"ROLLBACK\0", b"E");
    // Drivers look with a text of no statement whether the server is there.
    for text in ["", "-- ping", " ; "] {
        wire.query(text);
        wire.server.send(b'I', b"");
        wire.server.send(b'Z', b"E");
        wire.hears(b"IZ");
    }
    wire.client
        .send(b'Q', b"INSERT INTO plain (note) VALUES ('Alice')\0");
    wire.server.expect(b'Q');
    wire.fails_with("25P02");
    wire.server.never_saw(b"Alice");
}

/// Lines of a COPY that has failed are statements for some clients.
#[test]
fn data_is_not_sent_as_a_statement() {
    let mut wire = Wire::start("data-as-sql");
    wire.query("COPY p (id, name) FROM STDIN");
    wire.fails();
    // A text that can be parsed says nothing of the next one.
    wire.query(";");
    wire.server.send(b'I', b"");
    wire.server.send(b'Z', b"I");
    wire.hears(b"IZ");
    wire.client
        .send(b'Q', b"1\tAlice\n\\.\nSELECT setval('q', 1);\0");
    wire.server.expect(b'Q');
    wire.fails_with("42601");
    wire.server.never_saw(b"Alice");
}

/// Readers of CSV and of text differ in what they make of rows that PostgreSQL never writes.
#[test]
fn copied_rows_are_as_the_server_writes_them() {
    const CSV: &str = "COPY p (id, name, age) TO STDOUT (FORMAT csv)";
    const HEADER: &str = "COPY p (id, name, age) TO STDOUT (FORMAT csv, HEADER)";
    for (name, sql, data) in [
        ("inner-quote", CSV, &b"7a\"\n8,,4711,b\",,\n"[..]),
        ("after-quote", CSV, b"\"7\"a,,\n"),
        ("return", CSV, b"7\r8,,\n"),
        ("names", HEADER, b"id,age,name\n"),
        ("twice", HEADER, b"age,name,age\n"),
        ("rows", HEADER, b"id,name,age,4711\n"),
        (
            "text",
            "COPY p (id, name, age) TO STDOUT",
            b"7\r8\t\\N\t\\N\n",
        ),
        (
            "tab",
            "COPY p (id, name, age) TO STDOUT",
            b"7\\\t8\t\\N\t\\N\n",
        ),
    ] {
        let mut wire = Wire::start(&format!("written-{name}"));
        wire.query(sql);
        wire.server.send(b'H', &[0, 0, 3, 0, 0, 0, 0, 0, 0]);
        wire.client.expect(b'H');
        wire.server.send(b'd', data);
        ends_without(&mut wire, b"4711");
    }
    let mut wire = Wire::start("written-well");
    wire.query(HEADER);
    wire.server.send(b'H', &[0, 0, 3, 0, 0, 0, 0, 0, 0]);
    wire.server.send(b'd', b"id,name,age\n\"a \"\"b\"\"\",,\n");
    wire.hears(b"Hd");
}

/// A client that reads the data in the form that the server says would find other rows than the
/// proxy has opened.
#[test]
fn a_copy_has_the_form_and_the_columns_of_its_statement() {
    const TEXT: &str = "COPY p (id, name, age) TO STDOUT";
    const BINARY: &str = "COPY p (id, name, age) TO STDOUT (FORMAT binary)";
    for (name, sql, form) in [
        ("text-of-binary", BINARY, &[0, 0, 3, 0, 0, 0, 0, 0, 0][..]),
        ("binary-of-text", TEXT, &[1, 0, 3, 0, 1, 0, 1, 0, 1]),
        ("column", BINARY, &[1, 0, 3, 0, 1, 0, 0, 0, 1]),
        ("fewer", TEXT, &[0, 0, 2, 0, 0, 0, 0]),
        ("short", TEXT, &[0, 0, 3, 0, 0]),
    ] {
        let mut wire = Wire::start(&format!("form-{name}"));
        wire.query(sql);
        wire.server.send(b'H', form);
        let error = wire.client.expect(b'E');
        assert!(String::from_utf8_lossy(&error).contains("FATAL"), "{name}");
    }
    let mut wire = Wire::start("form-binary");
    wire.query(BINARY);
    wire.server.send(b'H', &[1, 0, 3, 0, 1, 0, 1, 0, 1]);
    wire.client.expect(b'H');
}

/// Applications that make an object of a row take the first or the last of two columns of a name.
#[test]
fn no_other_column_has_the_name_of_a_confidential_one() {
    for (name, sql, columns) in [
        (
            "behind",
            "SELECT age FROM p",
            [("age", ENC_INT4), ("age", 23)],
        ),
        (
            "before",
            "SELECT id, age FROM p",
            [("age", 23), ("age", ENC_INT4)],
        ),
        (
            "computed",
            "SELECT count(*), max(age) AS age FROM p",
            [("age", 20), ("age", ENC_INT4)],
        ),
    ] {
        let mut wire = Wire::start(&format!("name-{name}"));
        wire.query(sql);
        wire.server.send(b'T', &described(&columns));
        wire.row(&["4711", "4711"]);
        ends_without(&mut wire, b"4711");
    }
    // A statement may have two columns of one name.
    let mut wire = Wire::start("name-twice");
    wire.query("SELECT p.age, plain.id AS age FROM p, plain");
    wire.server
        .send(b'T', &described(&[("age", ENC_INT4), ("age", 23)]));
    wire.server.send(b'C', b"SELECT 0\0");
    wire.hears(b"TC");
}

/// The parser of the proxy's reads strings otherwise than the server then.
#[test]
fn a_plain_copy_is_one_although_its_text_is_not_read() {
    let mut wire = Wire::start("unread-copy");
    wire.server
        .send(b'S', b"standard_conforming_strings\0off\0");
    wire.client.expect(b'S');
    wire.query("COPY plain FROM STDIN");
    wire.copies();
}
