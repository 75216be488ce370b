//! What a server may show while statements of the owner are under way, after they have failed, and
//! when the extension or a relation is hidden. Method: as `wire.rs`.
#![expect(clippy::tests_outside_test_module, reason = "an integration test")]

use std::io::Write as _;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::definitions::{CREATE, INSERT, STAFF, plain};
use crate::support::harness::{End, FAILED, Wire, begin, bind, catalog, described, parse};

/// What comes at the server instead of queries of the proxy's own, which get these rows.
fn next_of_client(wire: &mut Wire, rows: &[[&str; 7]], status: &[u8]) -> (u8, String) {
    loop {
        let (tag, body) = wire.server.message();
        if tag != b'C' {
            return (tag, String::from_utf8_lossy(&body).into_owned());
        }
        wire.server.own_query();
        wire.answer_in(rows, status);
    }
}

#[test]
fn the_database_stays_confidential_while_its_only_relation_changes() {
    let hidden: Vec<[&str; 7]> = catalog().into_iter().filter(|row| row[0] != "t").collect();
    for (name, sql) in [
        ("add", "ALTER TABLE p ADD COLUMN more int"),
        ("drop", "ALTER TABLE public.p DROP COLUMN age"),
        ("rename", "ALTER TABLE p RENAME COLUMN id TO number"),
    ] {
        let mut wire = Wire::start(&format!("only-{name}"));
        wire.query(sql);
        wire.completes();
        wire.client.send(b'Q', format!("{INSERT}\0").as_bytes());
        let came = next_of_client(&mut wire, &hidden, b"I");
        assert!(!came.1.contains("Alice"), "{sql}: {came:?}");
    }
}

#[test]
fn the_first_table_makes_the_database_confidential() {
    let before: Vec<[&str; 7]> = catalog().into_iter().filter(|row| row[2] != "p").collect();
    let mut after: Vec<[&str; 7]> = before.iter().copied().filter(|row| row[0] != "t").collect();
    after.push(["r", "public", "staff", "1", "id", "23", "70002"]);
    after.push(["r", "public", "staff", "2", "name", "90001", "70002"]);
    let (mut wire, _listener) = begin("first", &[], None);
    wire.greet(&before);
    wire.client.expect(b'Z');
    wire.query("CREATE TABLE public.staff (id int, name enc_text)");
    wire.completes();
    wire.client.send(b'Q', format!("{STAFF}\0").as_bytes());
    let came = next_of_client(&mut wire, &after, b"I");
    assert!(!came.1.contains("Alice"), "{came:?}");
}

#[test]
fn the_extension_is_hidden_before_the_first_table() {
    let mut rows: Vec<[&str; 7]> = catalog()
        .into_iter()
        .filter(|row| row[0] != "t" && row[2] != "p")
        .collect();
    let (mut wire, _listener) = begin("none", &[], None);
    wire.greet(&rows);
    wire.client.expect(b'Z');
    wire.client.send(b'Q', format!("{CREATE}\0").as_bytes());
    let came = next_of_client(&mut wire, &rows, b"I");
    if came.1.contains("enc_text") {
        wire.completes();
        rows.push(["r", "public", "staff", "1", "id", "23", "70002"]);
        rows.push(["r", "public", "staff", "2", "name", "90001", "70002"]);
        wire.client.send(b'Q', format!("{STAFF}\0").as_bytes());
        let came = next_of_client(&mut wire, &rows, b"I");
        assert!(!came.1.contains("Alice"), "{came:?}");
    }
}

#[test]
fn a_commit_that_is_not_read_ends_the_transaction() {
    let mut wire = Wire::start("commit");
    wire.query("BEGIN");
    wire.completes_as(b"BEGIN\0", b"T");
    wire.query(CREATE);
    wire.completes_as(b"CREATE TABLE\0", b"T");
    wire.server
        .send(b'S', b"standard_conforming_strings\0off\0");
    wire.client.expect(b'S');
    wire.client.send(b'Q', b"COMMIT\0");
    let came = next_of_client(&mut wire, &catalog(), b"T");
    assert!(came.1.contains("COMMIT"), "{came:?}");
    wire.server.send(b'S', b"standard_conforming_strings\0on\0");
    wire.client.expect(b'S');
    wire.completes_as(b"COMMIT\0", b"T");
    wire.client.send(b'Q', b"SELECT id FROM plain\0");
    let came = next_of_client(&mut wire, &catalog(), b"T");
    assert!(came.1.contains("SELECT"), "{came:?}");
    wire.server.send(b'E', FAILED);
    wire.server.send(b'Z', b"T");
    wire.hears(b"EZ");
    wire.client.send(b'Q', format!("{STAFF}\0").as_bytes());
    let came = next_of_client(&mut wire, &plain(), b"T");
    assert!(!came.1.contains("Alice"), "{came:?}");
}

#[test]
fn a_table_of_the_transaction_has_its_columns() {
    for (name, begin) in [("begun", true), ("alone", false)] {
        let mut wire = Wire::start(&format!("own-{name}"));
        if begin {
            wire.query("BEGIN");
            wire.completes_as(b"BEGIN\0", b"T");
        }
        wire.query("CREATE TABLE public.staff (id int, name enc_text)");
        wire.completes_as(b"CREATE TABLE\0", b"T");
        let mut rows = catalog();
        rows.push(["r", "public", "staff", "1", "id", "23", "70002"]);
        rows.push(["r", "public", "staff", "2", "nom", "25", "70002"]);
        wire.client
            .send(b'Q', b"INSERT INTO public.staff VALUES (1, 'Alice')\0");
        let came = next_of_client(&mut wire, &rows, b"T");
        assert!(!came.1.contains("Alice"), "{came:?}");
    }
}

#[test]
fn rows_of_a_relation_that_is_hidden_or_has_no_oid_are_checked() {
    let hidden: Vec<[&str; 7]> = catalog().into_iter().filter(|row| row[2] != "p").collect();
    let mut zero = catalog();
    for row in &mut zero {
        if row[2] == "p" {
            row[6] = "0";
        }
    }
    let mut shown = Vec::new();
    for (name, rows) in [("hidden", hidden), ("zero", zero)] {
        let mut wire = Wire::start(&format!("rows-{name}"));
        wire.query("ALTER FUNCTION one() RENAME TO two");
        wire.completes();
        wire.client.send(b'Q', b"SELECT age FROM p\0");
        let came = next_of_client(&mut wire, &rows, b"I");
        assert!(came.1.contains("SELECT"), "{came:?}");
        wire.server.send(b'T', &described(&[("age", 23)]));
        wire.row(&["4711"]);
        wire.server.send(b'C', b"SELECT 1\0");
        wire.server.send(b'Z', b"I");
        loop {
            let (tag, body) = wire.client.message();
            if tag == b'D' {
                shown.push((name, String::from_utf8_lossy(&body).into_owned()));
            }
            if matches!(tag, b'E' | b'Z') {
                break;
            }
        }
    }
    assert!(shown.is_empty(), "{shown:?}");
}

/// An honest server: what it shows is what it was.
#[test]
fn a_prepared_definition_that_fails_defines_nothing() {
    let mut wire = Wire::start("prepared");
    wire.client
        .send(b'P', &parse("ALTER TABLE p ADD COLUMN more enc_text", &[]));
    wire.client.send(b'S', b"");
    wire.sends(b"PDS");
    wire.makes_statement();
    wire.server.send(b'Z', b"I");
    wire.hears(b"1Z");
    wire.executes();
    wire.sends(b"BES");
    wire.server.send(b'2', b"");
    wire.server.send(b'E', FAILED);
    wire.server.send(b'Z', b"I");
    wire.hears(b"2EZ");
    wire.client.send(b'Q', b"SELECT id FROM p\0");
    let came = next_of_client(&mut wire, &catalog(), b"I");
    assert!(came.1.contains("SELECT"), "{came:?}");
}

/// An honest server that crashes.
#[test]
fn a_definition_whose_answer_never_came_defines_nothing() {
    let (mut wire, listener) = begin("crash", &[], None);
    wire.greet(&catalog());
    wire.client.expect(b'Z');
    wire.query("ALTER TABLE p ADD COLUMN more enc_text");
    wire.server.stream.shutdown(Shutdown::Both).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    let mut sockets = std::fs::read_dir(&wire.directory).unwrap();
    let socket = sockets
        .find_map(|entry| {
            let path = entry.unwrap().path();
            path.to_string_lossy().contains(".s.PGSQL.").then_some(path)
        })
        .unwrap();
    let mut client = UnixStream::connect(socket).unwrap();
    client.write_all(&[0, 0, 0, 16, 0, 3, 0, 0]).unwrap();
    client.write_all(b"user\0u\0\0").unwrap();
    wire.client = End::new(client);
    wire.server = End::new(listener.accept().unwrap().0);
    wire.greet(&catalog());
    wire.client.expect(b'Z');
    wire.client.send(b'Q', b"SELECT id FROM p\0");
    let came = next_of_client(&mut wire, &catalog(), b"I");
    assert!(came.1.contains("SELECT"), "{came:?}");
}

/// A BEGIN that the server ignores, because it is behind an error in a pipeline, begins nothing: an
/// error that comes after a later definition says nothing of that.
#[test]
fn a_transaction_that_has_not_begun_undoes_nothing() {
    let mut wire = Wire::start("ignored-begin");
    for sql in ["SELECT nothing", "BEGIN"] {
        wire.client.send(b'P', &parse(sql, &[]));
        wire.client.send(b'B', &bind(0, &[]));
        wire.client.send(b'E', &[0; 5]);
    }
    wire.client.send(b'S', b"");
    wire.sends(b"PDBEPDBDES");
    wire.server.send(b'E', FAILED);
    wire.server.send(b'Z', b"I");
    wire.hears(b"EZ");
    wire.query(CREATE);
    wire.completes();
    wire.client.send(b'Q', b"SELECT id FROM plain\0");
    let came = next_of_client(&mut wire, &catalog(), b"I");
    assert!(came.1.contains("SELECT"), "{came:?}");
    wire.fails();
    wire.client.send(b'Q', format!("{STAFF}\0").as_bytes());
    let came = next_of_client(&mut wire, &plain(), b"I");
    assert!(!came.1.contains("Alice"), "{came:?}");
}

/// Whether its transaction is open is the client's word: it rolls back what the server says to have
/// carried out already.
#[test]
fn a_transaction_does_not_end_by_the_server_s_word() {
    let mut wire = Wire::start("ended");
    wire.query("BEGIN");
    wire.completes_as(b"BEGIN\0", b"T");
    wire.query("ALTER TABLE p DROP COLUMN name");
    wire.completes_as(b"ALTER TABLE\0", b"I");
    wire.client.send(b'Q', b"SELECT id FROM plain\0");
    let came = next_of_client(&mut wire, &catalog(), b"I");
    assert!(came.1.contains("SELECT"), "{came:?}");
    wire.completes();
    wire.client.send(b'Q', b"ROLLBACK\0");
    let came = next_of_client(&mut wire, &catalog(), b"I");
    assert!(came.1.contains("ROLLBACK"), "{came:?}");
    wire.completes_as(b"ROLLBACK\0", b"I");
    wire.client.send(b'Q', format!("{INSERT}\0").as_bytes());
    let came = next_of_client(&mut wire, &plain(), b"I");
    assert!(!came.1.contains("Alice"), "{came:?}");
}

/// A migration goes on in the transaction of its definition, statement by statement.
#[test]
fn the_catalog_is_read_once_after_a_definition_in_a_transaction() {
    let mut wire = Wire::start("once");
    for sql in ["BEGIN", "ALTER TABLE p ADD COLUMN more int"] {
        wire.query(sql);
        wire.completes_as(b"DONE\0", b"T");
    }
    let reads = |wire: &mut Wire, sql: &str, status: &[u8]| {
        wire.client.send(b'Q', format!("{sql}\0").as_bytes());
        wire.server.own_query();
        wire.answer_in(&catalog(), status);
        wire.server.expect(b'Q');
        wire.completes_as(b"DONE\0", status);
    };
    reads(&mut wire, "SELECT id FROM plain", b"T");
    wire.query("SELECT id FROM plain");
    wire.completes_as(b"SELECT 1\0", b"T");
    // After another definition it is read again, and when the transaction is over.
    wire.query("ALTER TABLE p ADD COLUMN other int");
    wire.completes_as(b"ALTER TABLE\0", b"T");
    reads(&mut wire, "SELECT id FROM plain", b"T");
    wire.query("COMMIT");
    wire.completes_as(b"COMMIT\0", b"I");
    reads(&mut wire, "SELECT id FROM plain", b"I");
    wire.query("SELECT id FROM plain");
}
