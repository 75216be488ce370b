//! Names that are given again: of cursors, of prepared statements, and of what the catalog calls
//! otherwise than before. Method: as `wire.rs`.
#![expect(clippy::tests_outside_test_module, reason = "an integration test")]

use crate::support::harness::{
    ENC_TEXT, FAILED, Wire, bind, catalog, described, ends_without, of_name, parse,
};

const INSERT: &str = "INSERT INTO p (name) VALUES ($1)";
const PLAIN: &str = "SELECT id FROM plain WHERE note = $1";

/// The client prepares a statement of this name by the protocol, with one parameter, whose type the
/// server calls so.
#[track_caller]
fn prepares(wire: &mut Wire, name: &str, sql: &str, oid: u32) {
    wire.client.send(b'P', &of_name(name, parse(sql, &[])));
    wire.client.send(b'S', b"");
    wire.prepares_with(oid);
}

/// The column `note` of the table `plain` becomes confidential, and the proxy has read that.
fn becomes_confidential(wire: &mut Wire) {
    wire.query("ALTER FUNCTION one() RENAME TO two");
    wire.completes();
    wire.client.send(b'Q', b"SELECT id FROM plain\0");
    wire.server.own_query();
    let mut rows = catalog();
    rows[6][5] = "90001";
    wire.answer(&rows);
    wire.server.expect(b'Q');
    wire.completes();
}

#[test]
fn discarding_plans_ends_no_query_with_a_name() {
    for what in ["PLANS", "SEQUENCES", "TEMP"] {
        let mut wire = Wire::start(&format!("discard-{what}"));
        wire.query("PREPARE s AS SELECT age FROM p");
        wire.completes();
        wire.query(&format!("DISCARD {what}"));
        wire.completes();
        wire.query("EXECUTE s");
        wire.hides_plain_age();
    }
}

#[test]
fn what_failed_to_end_a_query_has_not_ended_it() {
    for (names, ends, runs) in [
        (
            "DECLARE c CURSOR WITH HOLD FOR SELECT age FROM p",
            "CLOSE c",
            "FETCH 1 FROM c",
        ),
        (
            "DECLARE c CURSOR WITH HOLD FOR SELECT age FROM p",
            "CLOSE ALL",
            "FETCH 1 FROM c",
        ),
        (
            "PREPARE s AS SELECT age FROM p",
            "DEALLOCATE s",
            "EXECUTE s",
        ),
        ("PREPARE s AS SELECT age FROM p", "DISCARD ALL", "EXECUTE s"),
    ] {
        let mut wire = Wire::start(&ends.replace(' ', "-"));
        wire.query(names);
        wire.completes();
        wire.query(ends);
        wire.fails();
        wire.query(runs);
        wire.hides_plain_age();
    }
}

#[test]
fn a_cursor_s_name_is_free_after_a_transaction_that_another_one_follows() {
    let mut wire = Wire::start("chain");
    for sql in [
        "BEGIN",
        "DECLARE c CURSOR FOR SELECT id, note FROM plain",
        "COMMIT AND CHAIN",
        "DECLARE c CURSOR FOR SELECT age FROM p",
    ] {
        wire.query(sql);
        wire.completes_as(b"X\0", b"T");
    }
    wire.query("FETCH 1 FROM c");
    wire.hides_plain_age();
}

/// Drivers give their names again after SQL has ended their statements.
#[test]
fn a_statement_that_sql_has_ended_does_not_count_for_its_name() {
    for (name, sql) in [
        ("one", "DEALLOCATE s1"),
        ("all", "DEALLOCATE ALL"),
        ("discard", "DISCARD ALL"),
        ("several", "SET application_name = 'a'; DEALLOCATE s1"),
    ] {
        let mut wire = Wire::start(&format!("ended-{name}"));
        prepares(&mut wire, "s1", INSERT, ENC_TEXT);
        wire.query(sql);
        if name == "several" {
            wire.server.send(b'C', b"SET\0");
            wire.client.expect(b'C');
        }
        wire.completes();
        prepares(&mut wire, "s1", PLAIN, 25);
        wire.client.send(b'B', &of_name("s1", bind(0, &[b"Bob"])));
        wire.client.send(b'S', b"");
        wire.sends(b"BS");
    }
    // By the extended protocol.
    let mut wire = Wire::start("ended-extended");
    prepares(&mut wire, "s1", INSERT, ENC_TEXT);
    wire.client.send(b'P', &parse("DEALLOCATE s1", &[]));
    wire.executes();
    wire.sends(b"PDBES");
    wire.makes_statement();
    wire.server.send(b'2', b"");
    wire.server.send(b'C', b"DEALLOCATE\0");
    wire.server.send(b'Z', b"I");
    wire.hears(b"12CZ");
    prepares(&mut wire, "s1", PLAIN, 25);
    wire.client.send(b'B', &of_name("s1", bind(0, &[b"Bob"])));
    wire.client.send(b'S', b"");
    wire.sends(b"BS");
    // SQL gives the name again, and has a constant in clear.
    let mut wire = Wire::start("ended-for-sql");
    prepares(&mut wire, "s1", INSERT, ENC_TEXT);
    wire.query("DEALLOCATE s1; PREPARE s1 (text) AS SELECT id FROM plain WHERE note = $1");
    wire.server.send(b'C', b"DEALLOCATE\0");
    wire.client.expect(b'C');
    wire.completes();
    wire.query("EXECUTE s1('Bob')");
}

/// The client knows that, and means by the name what it has meant before.
#[test]
fn a_statement_that_sql_has_failed_to_end_counts_for_its_name() {
    for (name, sql) in [("other", "DEALLOCATE s2"), ("failed", "DEALLOCATE s1")] {
        let mut wire = Wire::start(&format!("not-ended-{name}"));
        prepares(&mut wire, "s1", INSERT, ENC_TEXT);
        wire.query(sql);
        if name == "failed" {
            wire.fails();
        } else {
            wire.completes();
        }
        prepares(&mut wire, "s1", PLAIN, 25);
        wire.client.send(b'B', &of_name("s1", bind(0, &[b"Alice"])));
        wire.client.send(b'S', b"");
        wire.refuses_with("SR102");
        wire.server.never_saw(b"Alice");
    }
}

/// What the client is told is compared with the rows.
#[test]
fn a_statement_of_a_name_that_was_given_again_is_described_as_the_proxy_was_told() {
    let mut wire = Wire::start("described-again-by-name");
    prepares(&mut wire, "s1", PLAIN, 25);
    wire.query("DEALLOCATE s1");
    wire.completes();
    wire.client.send(
        b'P',
        &of_name("s1", parse("SELECT id, note FROM plain", &[])),
    );
    wire.client.send(b'D', b"Ss1\0");
    wire.client.send(b'S', b"");
    wire.sends(b"PDDS");
    wire.server.send(b'1', b"");
    for columns in [[("id", 23), ("note", 25)], [("note", 25), ("id", 23)]] {
        wire.server.send(b't', &[0, 0]);
        wire.server.send(b'T', &described(&columns));
    }
    wire.hears(b"1tE");
}

/// The client reads the rows as it was told, and the proxy opens them as it was.
#[test]
fn a_fetch_is_described_alike_each_time() {
    let told = || described(&[("id", 23)]);
    let in_binary = || {
        let mut columns = told();
        if let Some(last) = columns.last_mut() {
            *last = 1;
        }
        columns
    };
    for (name, first, second) in [
        ("alike", told(), told()),
        ("format", in_binary(), told()),
        ("later-format", told(), in_binary()),
        ("name", described(&[("di", 23)]), told()),
    ] {
        let mut wire = Wire::start(&format!("fetch-{name}"));
        wire.query("BEGIN");
        wire.completes_as(b"BEGIN\0", b"T");
        wire.query("DECLARE c CURSOR FOR SELECT id FROM plain");
        wire.completes_as(b"DECLARE CURSOR\0", b"T");
        wire.client.send(b'P', &parse("FETCH 1 FROM c", &[]));
        wire.client.send(b'B', &[0; 8]);
        wire.client.send(b'D', b"P\0");
        wire.client.send(b'E', &[0; 5]);
        wire.client.send(b'S', b"");
        wire.sends(b"PDBDDES");
        wire.makes_query(&told());
        wire.server.send(b'2', b"");
        wire.server.send(b'T', &first);
        wire.server.send(b'T', &second);
        wire.row(&["4711"]);
        wire.server.send(b'C', b"FETCH 1\0");
        wire.server.send(b'Z', b"T");
        if name == "alike" {
            wire.hears(b"12TDCZ");
        } else {
            ends_without(&mut wire, b"4711");
        }
    }
}

/// The portal is a cursor that SQL has made.
#[test]
fn a_cursor_is_described_alike_by_the_protocol() {
    let mut wire = Wire::start("cursor-described");
    for sql in ["BEGIN", "DECLARE c CURSOR FOR SELECT id, note FROM plain"] {
        wire.query(sql);
        wire.completes_as(b"X\0", b"T");
    }
    for (columns, is_over) in [
        ([("id", 23), ("note", 25)], false),
        ([("id", 23), ("note", 25)], false),
        ([("note", 25), ("id", 23)], true),
    ] {
        wire.client.send(b'D', b"Pc\0");
        wire.client.send(b'S', b"");
        wire.sends(b"DS");
        wire.server.send(b'T', &described(&columns));
        wire.client.expect(if is_over { b'E' } else { b'T' });
        wire.server.send(b'Z', b"T");
        if !is_over {
            wire.client.expect(b'Z');
        }
    }
}

/// A statement without parameters that was prepared before its column became confidential.
#[test]
fn a_prepared_statement_without_parameters_is_planned_again() {
    let mut wire = Wire::start("planned-again");
    wire.client
        .send(b'P', &of_name("s1", parse("SELECT note FROM plain", &[])));
    wire.client.send(b'S', b"");
    wire.sends(b"PDS");
    wire.makes_query(&described(&[("note", 25)]));
    wire.server.send(b'Z', b"I");
    wire.hears(b"1Z");
    becomes_confidential(&mut wire);
    wire.client.send(b'B', &of_name("s1", vec![0; 8]));
    wire.client.send(b'E', &[0; 5]);
    wire.client.send(b'S', b"");
    wire.sends(b"BES");
    wire.server.send(b'2', b"");
    wire.row(&["4711"]);
    ends_without(&mut wire, b"4711");
    // One that ends a failed transaction goes through.
    let mut wire = Wire::start("planned-again-rollback");
    wire.client
        .send(b'P', &of_name("s1", parse("ROLLBACK", &[])));
    wire.client.send(b'S', b"");
    wire.sends(b"PDS");
    wire.makes_statement();
    wire.server.send(b'Z', b"I");
    wire.hears(b"1Z");
    becomes_confidential(&mut wire);
    wire.query("BEGIN; ALTER FUNCTION one() RENAME TO two");
    wire.server.send(b'C', b"BEGIN\0");
    wire.server.send(b'E', FAILED);
    wire.server.send(b'Z', b"E");
    wire.hears(b"CEZ");
    wire.client.send(b'B', &of_name("s1", vec![0; 8]));
    wire.client.send(b'S', b"");
    wire.sends(b"BS");
}

#[test]
fn a_statement_that_sql_has_prepared_is_planned_again() {
    let mut wire = Wire::start("planned-again-sql");
    wire.query("PREPARE s AS SELECT note FROM plain");
    wire.completes();
    becomes_confidential(&mut wire);
    wire.query("EXECUTE s");
    wire.server.send(b'T', &described(&[("note", 25)]));
    wire.row(&["4711"]);
    ends_without(&mut wire, b"4711");
}

/// Names of columns are in the client's encoding, which may change.
#[test]
fn a_column_has_its_name_in_every_encoding() {
    let mut wire = Wire::start("encoded-name");
    let named = |name: &[u8]| {
        let mut body = described(&[("", 23)]);
        body.splice(2..2, name.iter().copied());
        body
    };
    wire.client.send(
        b'P',
        &of_name("s1", parse("SELECT id AS \"größe\" FROM plain", &[])),
    );
    wire.client.send(b'S', b"");
    wire.sends(b"PDS");
    wire.makes_query(&named("größe".as_bytes()));
    wire.server.send(b'Z', b"I");
    wire.hears(b"1Z");
    wire.query("SET client_encoding = 'LATIN1'");
    wire.server.send(b'C', b"SET\0");
    wire.server.send(b'S', b"client_encoding\0LATIN1\0");
    wire.server.send(b'Z', b"I");
    wire.hears(b"CSZ");
    wire.client.send(b'D', b"Ss1\0");
    wire.client.send(b'S', b"");
    wire.sends(b"DS");
    wire.server.send(b't', &[0, 0]);
    wire.server.send(b'T', &named(b"gr\xf6\xdfe"));
    wire.server.send(b'Z', b"I");
    wire.hears(b"tTZ");
}
