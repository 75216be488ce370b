//! A server that ends statements without having answered them, or answers them after their end.
//! Method: as `wire.rs`.
#![expect(clippy::tests_outside_test_module, reason = "an integration test")]

use crate::support::harness::{ENC_INT4, FAILED, Wire, described, ends_without, parse};

/// Data that some clients send as a statement when their COPY has ended before its data.
const DATA: &[u8] = b"1\tAlice\n\\.\nSELECT setval('q', 1);\0";

/// The server describes a plain column `age`, sends a row of it, and ends the statement.
fn answers_plainly(wire: &mut Wire) {
    wire.server.send(b'T', &described(&[("age", 23)]));
    wire.row(&["4711"]);
    wire.server.send(b'C', b"SELECT 1\0");
}

/// Executes a COPY from the client by the extended protocol; the server has bound it.
fn executes_copy(wire: &mut Wire) {
    wire.client
        .send(b'P', &parse("COPY p (id, name) FROM STDIN", &[]));
    wire.executes();
    wire.sends(b"PDBES");
    wire.makes_statement();
    wire.server.send(b'2', b"");
    wire.hears(b"12");
}

/// The client sends its data as statements then.
#[test]
fn a_copy_that_never_began_does_not_succeed() {
    let mut wire = Wire::start("copy-never");
    wire.query("COPY p (id, name) FROM STDIN");
    wire.server.send(b'C', b"COPY 1\0");
    ends_without(&mut wire, b"COPY 1");
    // By the extended protocol.
    let mut wire = Wire::start("copy-never-extended");
    executes_copy(&mut wire);
    wire.server.send(b'C', b"COPY 1\0");
    ends_without(&mut wire, b"COPY 1");
    // One that has failed.
    let mut wire = Wire::start("copy-never-failed");
    wire.query("COPY p (id, name) FROM STDIN");
    wire.server.send(b'E', FAILED);
    wire.client.expect(b'E');
    wire.server.send(b'C', b"COPY 1\0");
    ends_without(&mut wire, b"COPY 1");
    wire.client.send(b'Q', DATA);
    wire.server.never_saw(b"Alice");
}

#[test]
fn a_copy_does_not_succeed_before_its_data_have_come() {
    let mut wire = Wire::start("copy-early");
    wire.query("COPY p (id, name) FROM STDIN");
    wire.copies();
    wire.client.send(b'd', b"1\tBob\n");
    wire.server.expect(b'd');
    wire.server.send(b'C', b"COPY 1\0");
    ends_without(&mut wire, b"COPY 1");
    // The second COPY of one text is another one.
    let mut wire = Wire::start("copy-early-second");
    wire.query("COPY plain FROM STDIN; COPY plain FROM STDIN");
    wire.copies();
    wire.client.send(b'c', b"");
    wire.server.expect(b'c');
    wire.server.send(b'C', b"COPY 0\0");
    wire.client.expect(b'C');
    wire.copies();
    wire.server.send(b'C', b"COPY 4711\0");
    ends_without(&mut wire, b"4711");
    // One that the client breaks off.
    let mut wire = Wire::start("copy-broken-off");
    wire.query("COPY p (id, name) FROM STDIN");
    wire.copies();
    wire.client.send(b'f', b"no\0");
    wire.server.expect(b'f');
    wire.server.send(b'C', b"COPY 1\0");
    ends_without(&mut wire, b"COPY 1");
}

/// A statement that was prepared before may fail when it is executed once more.
#[test]
fn data_of_a_copy_that_is_executed_again_is_not_sent_as_a_statement() {
    let mut wire = Wire::start("copy-again-prepared");
    executes_copy(&mut wire);
    wire.copies();
    wire.client.send(b'c', b"");
    wire.client.send(b'S', b"");
    wire.sends(b"cS");
    wire.server.send(b'C', b"COPY 0\0");
    wire.server.send(b'Z', b"I");
    wire.hears(b"CZ");
    wire.executes();
    wire.sends(b"BES");
    wire.server.send(b'2', b"");
    wire.client.expect(b'2');
    wire.fails();
    wire.client.send(b'Q', DATA);
    wire.server.expect(b'Q');
    wire.fails_with("42601");
    wire.server.never_saw(b"Alice");
}

#[test]
fn nothing_but_the_end_of_a_query_follows_its_error() {
    for (name, sql) in [
        ("refused", "INSERT INTO p (name) VALUE ('x')"),
        ("one", "SELECT age FROM p"),
        ("several", "SET application_name = 'a'; SELECT age FROM p"),
    ] {
        let mut wire = Wire::start(&format!("after-error-{name}"));
        wire.query(sql);
        wire.server.send(b'E', FAILED);
        wire.client.expect(b'E');
        // These come at any time.
        wire.server.send(b'N', b"SNOTICE\0\0");
        wire.client.expect(b'N');
        answers_plainly(&mut wire);
        ends_without(&mut wire, b"4711");
    }
    // The client has been told that its data were refused.
    let mut wire = Wire::start("after-error-copy");
    wire.query("COPY p (id, age) FROM STDIN");
    wire.copies();
    wire.client.send(b'd', b"1\tnonsense\n");
    wire.client.send(b'c', b"");
    wire.server.expect(b'f');
    wire.server.send(b'E', FAILED);
    wire.client.expect(b'E');
    wire.server.send(b'C', b"COPY 1\0");
    ends_without(&mut wire, b"COPY 1");
}

/// The rows of the first statement would be those of the second one for the client.
#[test]
fn a_query_ends_when_every_statement_is_answered() {
    for (name, sql) in [
        ("setting", "SET application_name = 'a'; SELECT age FROM p"),
        ("select", "SELECT id FROM plain; SELECT age FROM p"),
        ("empty", "SELECT id FROM plain; ; SELECT age FROM p;"),
    ] {
        let mut wire = Wire::start(&format!("unanswered-{name}"));
        wire.query(sql);
        answers_plainly(&mut wire);
        wire.hears(b"TDC");
        wire.server.send(b'Z', b"I");
        ends_without(&mut wire, b"ReadyForQuery");
    }
    let mut wire = Wire::start("unanswered-one");
    wire.query("SELECT age FROM p");
    wire.server.send(b'Z', b"I");
    ends_without(&mut wire, b"4711");
}

#[test]
fn an_honest_server_answers_each_statement_once() {
    for (name, sql, answers) in [
        ("nothing", "", "I"),
        ("comment", "-- nothing", "I"),
        ("semicolons", " ; ;; ", "I"),
        ("several", "BEGIN; ; COMMIT;", "CC"),
        ("failed", "BEGIN; SELECT id FROM plain; COMMIT", "CE"),
        ("first", "SELECT id FROM plain; COMMIT", "E"),
    ] {
        let mut wire = Wire::start(&format!("answered-{name}"));
        wire.query(sql);
        for tag in answers.bytes() {
            let body = if tag == b'E' { FAILED } else { b"X\0" };
            wire.server.send(tag, if tag == b'I' { b"" } else { body });
            wire.client.expect(tag);
        }
        wire.server.send(b'Z', b"I");
        wire.client.expect(b'Z');
    }
    // Where backslashes escape, what are two statements for the proxy may be one.
    let mut wire = Wire::start("answered-backslash");
    wire.server
        .send(b'S', b"standard_conforming_strings\0off\0");
    wire.client.expect(b'S');
    wire.query("SET standard_conforming_strings = on; SELECT 'a\\', '; SELECT 1'");
    wire.server.send(b'C', b"SET\0");
    wire.server.send(b'C', b"SELECT 1\0");
    wire.hears(b"CC");
    wire.server.send(b'Z', b"I");
    wire.client.expect(b'Z');
}

/// The second result of a statement is that of the next one for the client.
#[test]
fn a_statement_has_one_result_where_confidential_columns_are_read() {
    for (name, sql) in [
        ("before", "SELECT count(*) FROM plain; SELECT age FROM p"),
        ("behind", "SELECT age FROM p; SELECT count(*) FROM plain"),
    ] {
        let mut wire = Wire::start(&format!("two-results-{name}"));
        wire.query(sql);
        if name == "behind" {
            wire.server.send(b'T', &described(&[("age", ENC_INT4)]));
            wire.server.send(b'C', b"SELECT 0\0");
        }
        wire.server.send(b'T', &described(&[("count", 20)]));
        wire.row(&["1"]);
        answers_plainly(&mut wire);
        ends_without(&mut wire, b"4711");
    }
    // Rules have two results sent, in the place of the rows of `RETURNING` too.
    let mut wire = Wire::start("two-results-of-rules");
    wire.query("DELETE FROM plain");
    for _ in 0..2 {
        wire.server.send(b'T', &described(&[("id", 23)]));
        wire.row(&["1"]);
        wire.hears(b"TD");
    }
    wire.server.send(b'C', b"DELETE 1\0");
    wire.server.send(b'Z', b"I");
    wire.hears(b"CZ");
}

/// A COPY that fails before the server has read any data: a trigger of the statement, say.
#[test]
fn a_sync_behind_a_copy_that_read_nothing_is_answered() {
    let mut wire = Wire::start("copy-unread");
    executes_copy(&mut wire);
    wire.server.send(b'G', &[0, 0, 2, 0, 0, 0, 0]);
    wire.server.send(b'E', FAILED);
    wire.server.send(b'Z', b"I");
    wire.hears(b"GEZ");
    // What comes next is of the next pipeline.
    wire.client
        .send(b'P', &parse("SELECT id FROM plain WHERE note = $1", &[25]));
    wire.client.send(b'S', b"");
    wire.prepares();
    // The Sync comes when the client has been told that the COPY has begun.
    let mut wire = Wire::start("copy-unread-behind");
    wire.client
        .send(b'P', &parse("COPY p (id, name) FROM STDIN", &[]));
    wire.client.send(b'B', &[0; 8]);
    wire.client.send(b'E', &[0; 5]);
    wire.client.send(b'H', b"");
    wire.sends(b"PDBEH");
    wire.makes_statement();
    wire.server.send(b'2', b"");
    wire.server.send(b'G', &[0, 0, 2, 0, 0, 0, 0]);
    wire.hears(b"12G");
    wire.client.send(b'S', b"");
    wire.server.expect(b'S');
    wire.server.send(b'E', FAILED);
    wire.server.send(b'Z', b"I");
    wire.hears(b"EZ");
    // The client ends its data before it knows: both Syncs are answered.
    let mut wire = Wire::start("copy-unread-twice");
    executes_copy(&mut wire);
    wire.copies();
    wire.client.send(b'c', b"");
    wire.client.send(b'S', b"");
    wire.sends(b"cS");
    wire.server.send(b'E', FAILED);
    wire.client.expect(b'E');
    for _ in 0..2 {
        wire.server.send(b'Z', b"I");
        wire.client.expect(b'Z');
    }
    // And none besides.
    wire.server.send(b'Z', b"I");
    ends_without(&mut wire, b"4711");
    // Nor when the client has begun something else.
    let mut wire = Wire::start("copy-unread-late");
    executes_copy(&mut wire);
    wire.copies();
    wire.server.send(b'E', FAILED);
    wire.client.expect(b'E');
    wire.client.send(b'S', b"");
    wire.server.expect(b'S');
    wire.server.send(b'Z', b"I");
    wire.client.expect(b'Z');
    wire.query("SELECT age FROM p");
    wire.server.send(b'Z', b"I");
    ends_without(&mut wire, b"4711");
}

/// `statement_timeout` goes on while the server waits for the rest of a pipeline.
#[test]
fn an_error_may_come_before_the_sync_of_a_pipeline() {
    const LATE: &[u8] =
        b"SERROR\0VERROR\0C57014\0Mcanceling statement due to statement timeout\0\0";
    let mut wire = Wire::start("timeout-in-pipeline");
    wire.client.send(b'P', &parse("SELECT id FROM plain", &[]));
    wire.client.send(b'H', b"");
    wire.sends(b"PDH");
    wire.makes_query(&described(&[("id", 23)]));
    wire.client.expect(b'1');
    wire.server.send(b'E', LATE);
    let error = wire.client.expect(b'E');
    assert!(String::from_utf8_lossy(&error).contains("57014"));
    wire.client.send(b'B', &[0; 8]);
    wire.client.send(b'S', b"");
    wire.server.expect(b'S');
    wire.server.send(b'Z', b"I");
    wire.client.expect(b'Z');
    // The pipeline is over.
    wire.server.send(b'E', LATE);
    let error = wire.client.expect(b'E');
    assert!(String::from_utf8_lossy(&error).contains("SR-8105"));
}
