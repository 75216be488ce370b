//! A server that lies: what it says of itself, of statements and of results, in the middle of what
//! a client sends. Method: as `wire.rs`.
#![expect(clippy::tests_outside_test_module, reason = "an integration test")]

use std::io::Read as _;

use crate::support::harness::{
    ENC_INT4, ENC_TEXT, FAILED, Wire, begin, bind, catalog, described, ends_without, of_name, parse,
};

/// A text that the proxy refuses, because it cannot read it.
const REFUSED: &str = "INSERT INTO p (name) VALUE ($1)";
const INSERT: &str = "INSERT INTO p (name) VALUES ('Alice')";

/// Has the catalog read again, and answers with these rows.
fn reads_again(wire: &mut Wire, rows: &[[&str; 7]], sql: &str) {
    wire.query("ALTER FUNCTION one() RENAME TO two");
    wire.completes();
    wire.client.send(b'Q', format!("{sql}\0").as_bytes());
    wire.server.own_query();
    wire.answer(rows);
}

/// The values were meant for what is refused; the server has an older statement of the name.
#[test]
fn values_behind_a_refused_parse_are_not_sent() {
    let mut wire = Wire::start("refused");
    let plain = parse("SELECT id FROM plain WHERE note = $1", &[25]);
    wire.client.send(b'P', &plain);
    wire.client.send(b'S', b"");
    wire.prepares();
    wire.client.send(b'P', &parse(REFUSED, &[25]));
    wire.client.send(b'B', &bind(0, &[b"Alice"]));
    wire.client.send(b'E', &[0; 5]);
    wire.client.send(b'S', b"");
    wire.refuses_with("42601");
    wire.server.never_saw(b"Alice");
    // The next pipeline is one of its own.
    wire.client.send(b'P', &plain);
    wire.client.send(b'B', &bind(0, &[b"Bob"]));
    wire.client.send(b'S', b"");
    wire.sends(b"PDH");
    wire.server.send(b'1', b"");
    wire.describes(25);
    let sent = wire.server.expect(b'B');
    assert!(sent.windows(3).any(|window| window == b"Bob"));
    wire.server.expect(b'S');
}

#[test]
fn what_was_made_to_fail_does_not_succeed() {
    let mut wire = Wire::start("poison");
    wire.client.send(b'P', &parse(REFUSED, &[25]));
    wire.client.send(b'B', &bind(0, &[b"Alice"]));
    wire.client.send(b'S', b"");
    wire.server.expect(b'P');
    wire.server.expect(b'S');
    wire.server.send(b'1', b"");
    ends_without(&mut wire, b"Alice");
    wire.server.never_saw(b"Alice");
    // A simple query.
    let mut wire = Wire::start("poison-simple");
    wire.query(REFUSED);
    wire.hides_plain_age();
}

/// The server shows no type of the extension any more, or not the relation.
#[test]
fn what_was_confidential_stays_so_when_the_server_hides_it() {
    let plain = |row: &[&'static str; 7]| {
        let mut row = *row;
        if row[5] == "90001" || row[5] == "90002" {
            row[5] = "25";
        }
        row
    };
    let shown: Vec<[&str; 7]> = catalog()
        .iter()
        .filter(|row| row[0] != "t")
        .map(plain)
        .collect();
    let hidden: Vec<[&str; 7]> = catalog().into_iter().filter(|row| row[2] != "p").collect();
    for (name, rows) in [("hidden", &shown[..]), ("away", &hidden), ("all", &[])] {
        let mut wire = Wire::start(name);
        reads_again(&mut wire, rows, INSERT);
        // A name that is not known has the catalog read once more.
        let mut came = wire.server.message();
        while came.0 == b'C' {
            wire.server.own_query();
            wire.answer(rows);
            came = wire.server.message();
        }
        // Refused, or with the constant as a parameter whose type the server has to say first.
        let text = String::from_utf8_lossy(&came.1);
        assert!(
            !text.contains("INSERT") || text.contains("$1"),
            "{name}: {text}"
        );
        if came.0 == b'Q' {
            wire.fails();
        }
        wire.server.never_saw(b"Alice");
    }
}

#[test]
fn constants_are_not_sent_unread_for_a_relation_that_is_hidden() {
    let mut wire = Wire::start("unread");
    wire.server
        .send(b'S', b"standard_conforming_strings\0off\0");
    wire.client.expect(b'S');
    let hidden: Vec<[&str; 7]> = catalog().into_iter().filter(|row| row[2] != "p").collect();
    reads_again(&mut wire, &hidden, INSERT);
    wire.server.expect(b'Q');
    wire.fails_with("SR103");
    wire.server.never_saw(b"Alice");
}

/// The client has been told that the statement is made; the proxy was not told what it is.
#[test]
fn a_statement_stays_what_its_text_says() {
    let mut wire = Wire::start("described");
    let insert = parse("INSERT INTO p (name) VALUES ($1)", &[]);
    wire.client.send(b'P', &of_name("s1", insert));
    wire.client.send(b'S', b"");
    wire.sends(b"PDS");
    wire.server.send(b'1', b"");
    wire.client.expect(b'1');
    wire.fails();
    wire.client.send(b'B', &of_name("s1", bind(0, &[b"Alice"])));
    wire.client.send(b'S', b"");
    wire.sends(b"DH");
    wire.describes(25);
    wire.refuses_with("SR102");
    wire.server.never_saw(b"Alice");
}

#[test]
fn values_do_not_go_to_an_unknown_statement_of_sql() {
    let mut wire = Wire::start("by-sql");
    wire.client.send(b'B', &of_name("s1", bind(0, &[b"Alice"])));
    wire.client.send(b'S', b"");
    wire.sends(b"DH");
    wire.describes(25);
    // A name that is not known has the catalog read again.
    wire.server.own_query();
    wire.answer(&catalog());
    wire.refuses_with("SR103");
    wire.server.never_saw(b"Alice");
}

#[test]
fn a_parameter_has_the_type_that_the_server_was_told() {
    let mut wire = Wire::start("told");
    wire.client
        .send(b'P', &parse("SELECT id FROM p WHERE name = $1", &[25]));
    wire.client.send(b'B', &bind(0, &[b"4711"]));
    wire.client.send(b'S', b"");
    wire.sends(b"PDH");
    wire.server.send(b'1', b"");
    wire.describes(ENC_INT4);
    wire.client.expect(b'1');
    wire.refuses_with("another type than it was told");
}

#[test]
fn rows_have_the_columns_that_were_described() {
    // The proxy's own Describe is answered otherwise than the statement's.
    for (name, description) in [
        ("none", described(&[])),
        ("fewer", described(&[("id", 23)])),
    ] {
        let mut wire = Wire::start(name);
        wire.client.send(b'P', &parse("SELECT id, age FROM p", &[]));
        wire.executes();
        wire.sends(b"PDBES");
        wire.makes_query(&description);
        wire.server.send(b'2', b"");
        wire.row(&["1", "4711"]);
        ends_without(&mut wire, b"4711");
    }
    // A row that has more than its description.
    let mut wire = Wire::start("surplus-row");
    wire.query("SELECT id FROM plain");
    wire.server.send(b'T', &described(&[("id", 23)]));
    wire.row(&["1", "4711"]);
    ends_without(&mut wire, b"4711");
}

#[test]
fn a_simple_query_has_the_results_of_its_statements() {
    // One end more than statements, and then rows.
    let mut wire = Wire::start("ended");
    wire.query("SELECT age FROM p");
    wire.server.send(b'C', b"SELECT 0\0");
    wire.hides_plain_age();
    // The plain values of a statement that has a confidential column.
    let mut wire = Wire::start("plain-values");
    wire.query("SELECT id, age FROM p");
    wire.server
        .send(b'T', &described(&[("id", 23), ("age", 23)]));
    wire.row(&["1", "4711"]);
    let error = wire.client.expect(b'T');
    drop(error);
    ends_without(&mut wire, b"4711");
}

/// The server says in the middle of a transaction that it is over.
#[test]
fn a_cursor_s_rows_stay_bound_when_the_server_ends_its_transaction() {
    let mut wire = Wire::start("cursor");
    for sql in ["BEGIN", "DECLARE c CURSOR FOR SELECT age FROM p"] {
        wire.query(sql);
        wire.completes();
    }
    wire.query("FETCH 1 FROM c");
    wire.hides_plain_age();
}

#[test]
fn an_error_is_all_that_a_refusal_is_answered_with() {
    let mut wire = Wire::start("noise");
    wire.query(REFUSED);
    // What is no answer comes at any time.
    wire.server.send(b'S', b"application_name\0a\0");
    wire.client.expect(b'S');
    wire.server.send(b'E', FAILED);
    wire.server.send(b'Z', b"I");
    let error = wire.client.expect(b'E');
    assert!(String::from_utf8_lossy(&error).contains("42601"));
    wire.client.expect(b'Z');
}

/// Relations of another schema are compared with what is kept, whatever the server calls its own.
#[test]
fn no_other_schema_is_the_session_s_temporary_one() {
    let mut wire = Wire::start("temporary");
    let mut rows = catalog();
    for row in rows.iter_mut().filter(|row| row[0] == "r") {
        if row[5] == "90001" || row[5] == "90002" {
            row[5] = "25";
        }
    }
    rows.push(["s", "public", "public", "", "", "", ""]);
    reads_again(&mut wire, &rows, INSERT);
    wire.server.expect(b'Q');
    wire.fails_with("SR107");
    wire.server.never_saw(b"Alice");
}

#[test]
fn nothing_is_sent_when_the_catalog_cannot_be_read() {
    let mut wire = Wire::start("unreadable");
    wire.query("ALTER FUNCTION one() RENAME TO two");
    wire.completes();
    wire.client
        .send(b'Q', b"INSERT INTO plain (note) VALUES ('Alice')\0");
    wire.server.own_query();
    wire.server.send(b'E', FAILED);
    wire.server.send(b'Z', b"I");
    wire.server.expect(b'Q');
    wire.fails_with("58000");
    wire.server.never_saw(b"Alice");
}

/// The server has perhaps made the second statement of the name, and perhaps not.
#[test]
fn values_fit_every_statement_that_a_name_may_have() {
    let mut wire = Wire::start("two-of-a-name");
    let named = |sql: &str| of_name("s1", parse(sql, &[]));
    wire.client
        .send(b'P', &named("SELECT id FROM plain WHERE note = $1"));
    wire.client.send(b'S', b"");
    wire.prepares();
    wire.client
        .send(b'P', &named("INSERT INTO p (name) VALUES ($1)"));
    wire.client.send(b'S', b"");
    wire.sends(b"PDS");
    wire.server.send(b'1', b"");
    wire.client.expect(b'1');
    wire.fails();
    wire.client.send(b'B', &of_name("s1", bind(0, &[b"Alice"])));
    wire.client.send(b'S', b"");
    wire.refuses_with("SR102");
    wire.server.never_saw(b"Alice");
}

/// As in PostgreSQL a text that is not read ends the unnamed statement before.
#[test]
fn a_refused_parse_ends_the_unnamed_statement() {
    let mut wire = Wire::start("unnamed");
    let plain = parse("SELECT id FROM plain WHERE note = $1", &[25]);
    wire.client.send(b'P', &plain);
    wire.client.send(b'S', b"");
    wire.prepares();
    wire.client.send(b'P', &parse(REFUSED, &[25]));
    wire.client.send(b'S', b"");
    wire.client.send(b'B', &bind(0, &[b"Alice"]));
    wire.client.send(b'S', b"");
    let poison = wire.server.expect(b'P');
    assert_eq!(poison.first(), Some(&0), "the unnamed one");
    wire.server.expect(b'S');
    wire.fails_with("42601");
    // Whatever the server says that it has under the name, values do not go to it.
    while wire.server.message().0 != b'D' {}
    wire.server.expect(b'H');
    wire.describes(25);
    let mut tag = wire.server.message().0;
    if tag == b'C' {
        wire.server.own_query();
        wire.answer(&catalog());
        tag = wire.server.message().0;
    }
    assert_eq!(tag, b'P');
    wire.server.expect(b'S');
    wire.fails_with("SR103");
    wire.server.never_saw(b"Alice");
}

/// A COPY that was prepared before its column became confidential.
#[test]
fn a_prepared_copy_is_planned_again() {
    let mut wire = Wire::start("prepared-copy");
    wire.client.send(b'P', &parse("COPY plain FROM STDIN", &[]));
    wire.client.send(b'S', b"");
    wire.sends(b"PDS");
    wire.makes_statement();
    wire.server.send(b'Z', b"I");
    wire.hears(b"1Z");
    wire.query("ALTER FUNCTION one() RENAME TO two");
    wire.completes();
    wire.executes();
    wire.server.own_query();
    let mut rows = catalog();
    rows[6][5] = "90001";
    wire.answer(&rows);
    wire.refuses_with("0A000");
}

/// The server says for ever that a transaction is open, which the client has not begun.
#[test]
fn the_catalog_is_read_in_a_transaction_that_the_client_has_not_begun() {
    let mut wire = Wire::start("claimed");
    wire.query("SELECT id FROM plain");
    wire.completes_as(b"SELECT 0\0", b"T");
    // Of its own.
    let mut begun = Wire::start("begun");
    begun.query("BEGIN");
    begun.completes_as(b"BEGIN\0", b"T");
    std::thread::sleep(std::time::Duration::from_secs(11));
    // It may have to be the first statement of a transaction.
    wire.query("SET TRANSACTION READ ONLY");
    wire.completes_as(b"SET\0", b"T");
    wire.client
        .send(b'Q', b"INSERT INTO plain (note) VALUES ('Alice')\0");
    wire.server.own_query();
    let mut rows = catalog();
    rows[6][5] = "90001";
    wire.answer_in(&rows, b"T");
    wire.sends(b"PDH");
    wire.server.never_saw(b"Alice");
    begun.query("SELECT id FROM plain");
}

#[test]
fn other_connections_are_told_of_definitions_in_a_transaction_that_the_client_has_not_begun() {
    let (mut one, listener) = begin("told", &[], None);
    one.greet(&catalog());
    one.client.expect(b'Z');
    let mut other = one.another(&listener);
    // Within a transaction of its own they are told at its end.
    for (sql, status) in [
        ("BEGIN", b"T"),
        ("ALTER FUNCTION one() RENAME TO two", b"T"),
    ] {
        one.query(sql);
        one.completes_as(b"X\0", status);
    }
    other.query("SELECT id FROM plain");
    other.completes();
    one.client.send(b'Q', b"COMMIT\0");
    one.server.own_query();
    one.answer_in(&catalog(), b"T");
    one.server.expect(b'Q');
    one.completes_as(b"COMMIT\0", b"T");
    other
        .client
        .send(b'Q', b"INSERT INTO plain (note) VALUES ('Alice')\0");
    other.server.own_query();
    let mut rows = catalog();
    rows[6][5] = "90001";
    other.answer(&rows);
    other.sends(b"PDH");
    other.server.never_saw(b"Alice");
}

/// Applications read columns by their names, and values by what they were told of their types.
#[test]
fn a_result_is_named_and_formatted_as_the_proxy_was_told() {
    let mut wire = Wire::start("names");
    wire.query("SELECT age, name FROM p");
    let exchanged = described(&[("name", ENC_INT4), ("age", ENC_TEXT)]);
    wire.server.send(b'T', &exchanged);
    wire.row(&["4711", "4712"]);
    ends_without(&mut wire, b"4711");
    // The client's own Describe.
    for (name, what, second) in [
        ("type", b'S', described(&[("id", 20)])),
        ("name", b'S', described(&[("di", 23)])),
        ("none", b'P', described(&[])),
        ("format", b'P', {
            let mut binary = described(&[("id", 23)]);
            *binary.last_mut().unwrap() = 1;
            binary
        }),
    ] {
        let mut wire = Wire::start(&format!("own-{name}"));
        wire.client.send(b'P', &parse("SELECT id FROM plain", &[]));
        wire.client.send(b'B', &[0; 8]);
        wire.client.send(b'D', &[what, 0]);
        wire.client.send(b'S', b"");
        wire.sends(b"PDBDS");
        wire.makes_query(&described(&[("id", 23)]));
        wire.server.send(b'2', b"");
        if what == b'S' {
            wire.server.send(b't', &[0, 0]);
        }
        wire.server.send(b'T', &second);
        ends_without(&mut wire, b"4711");
    }
}

/// With a status that does not exist the catalog was not read again.
#[test]
fn a_transaction_has_one_of_three_states() {
    for (name, status) in [("other", &b"X"[..]), ("none", b""), ("two", b"IT")] {
        let mut wire = Wire::start(&format!("status-{name}"));
        wire.query("ALTER FUNCTION one() RENAME TO two");
        wire.server.send(b'C', b"ALTER FUNCTION\0");
        wire.server.send(b'Z', status);
        wire.client.expect(b'C');
        wire.client
            .send(b'Q', b"INSERT INTO plain (note) VALUES ('Alice')\0");
        let error = wire.client.expect(b'E');
        assert!(String::from_utf8_lossy(&error).contains("SR-8105"));
        let mut sent = Vec::new();
        wire.server.stream.read_to_end(&mut sent).unwrap();
        assert!(!sent.windows(5).any(|window| window == b"Alice"));
    }
}

/// The client writes a value of the type that it is told, and the proxy reads one of that which it
/// was told.
#[test]
fn a_parameter_has_the_type_that_the_proxy_was_told() {
    let mut wire = Wire::start("told-otherwise");
    wire.client
        .send(b'P', &parse("INSERT INTO p (age) VALUES ($1)", &[]));
    wire.client.send(b'D', b"S\0");
    wire.client.send(b'S', b"");
    wire.sends(b"PDDS");
    wire.server.send(b'1', b"");
    wire.describes(ENC_INT4);
    wire.describes(ENC_TEXT);
    ends_without(&mut wire, b"\0\x19");
}
