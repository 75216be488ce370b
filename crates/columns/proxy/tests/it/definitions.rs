//! A server that lies of what a statement of the owner has defined. Method: as `wire.rs`.
#![expect(clippy::tests_outside_test_module, reason = "an integration test")]

use crate::support::harness::{FAILED, Wire, catalog, parse};

pub(super) const INSERT: &str = "INSERT INTO p (name) VALUES ('Alice')";
pub(super) const STAFF: &str = "INSERT INTO staff (name) VALUES ('Alice')";
pub(super) const CREATE: &str = "CREATE TABLE staff (id int, name enc_text)";

/// The catalog, in which the column `name` of `p` is plain, and `staff` has a plain one of the
/// name.
pub(super) fn plain() -> Vec<[&'static str; 7]> {
    let mut rows = catalog();
    for row in &mut rows {
        if row[2] == "p" && row[4] == "name" {
            row[5] = "25";
        }
    }
    rows.push(["r", "public", "staff", "1", "id", "23", ""]);
    rows.push(["r", "public", "staff", "2", "name", "25", ""]);
    rows
}

/// The catalog is read again before the statement, shows plain columns, and the statement is
/// refused.
#[track_caller]
fn is_refused(wire: &mut Wire, sql: &str) {
    wire.client.send(b'Q', format!("{sql}\0").as_bytes());
    wire.server.own_query();
    wire.answer(&plain());
    wire.server.expect(b'Q');
    wire.fails_with("SR-8107");
    wire.server.never_saw(b"Alice");
}

/// The catalog is read again before a statement about `staff`, shows a plain table of the name, and
/// the statement goes through.
#[track_caller]
fn is_sent(wire: &mut Wire) {
    wire.client.send(b'Q', format!("{STAFF}\0").as_bytes());
    wire.server.own_query();
    wire.answer(&with_plain_staff());
    wire.server.expect(b'Q');
    wire.completes();
}

/// The catalog with a plain table `staff`.
fn with_plain_staff() -> Vec<[&'static str; 7]> {
    let mut rows = catalog();
    rows.extend(plain().into_iter().filter(|row| row[2] == "staff"));
    rows
}

#[test]
fn a_statement_of_the_owner_does_not_make_other_columns_plain() {
    for (name, sql) in [
        ("add", "ALTER TABLE p ADD COLUMN more int"),
        ("drop", "ALTER TABLE p DROP COLUMN note"),
        ("other", "DROP TABLE other.p"),
    ] {
        let mut wire = Wire::start(name);
        wire.query(sql);
        wire.completes();
        is_refused(&mut wire, INSERT);
    }
}

#[test]
fn what_the_owner_has_defined_is_not_plain() {
    let mut wire = Wire::start("defined");
    wire.query(CREATE);
    wire.completes();
    is_refused(&mut wire, STAFF);
    // The same when the transaction is said to be rolled back, and nobody has asked for that.
    let mut wire = Wire::start("committed");
    wire.query("BEGIN");
    wire.completes_as(b"BEGIN\0", b"T");
    wire.query(CREATE);
    wire.completes_as(b"CREATE TABLE\0", b"T");
    wire.client.send(b'Q', b"COMMIT\0");
    wire.server.own_query();
    wire.answer_in(&catalog(), b"T");
    wire.server.expect(b'Q');
    wire.completes_as(b"ROLLBACK\0", b"I");
    is_refused(&mut wire, STAFF);
}

/// The client was told that nothing was defined.
#[test]
fn what_has_failed_defines_nothing() {
    let mut wire = Wire::start("failed");
    wire.query(CREATE);
    wire.fails();
    is_sent(&mut wire);
}

/// Migrations and restores go on in the transaction of their definitions.
#[test]
fn what_is_being_changed_is_not_plain() {
    for (name, sql, insert) in [
        ("alter", "ALTER TABLE p ADD COLUMN more int", INSERT),
        ("create", CREATE, STAFF),
    ] {
        let mut wire = Wire::start(&format!("under-way-{name}"));
        for sql in ["BEGIN", sql] {
            wire.query(sql);
            wire.completes_as(b"DONE\0", b"T");
        }
        is_refused(&mut wire, insert);
    }
}

/// An error that comes after a definition says nothing of it.
#[test]
fn what_fails_later_undoes_no_definition() {
    let mut wire = Wire::start("later");
    wire.query(CREATE);
    wire.completes();
    // A function of PostgreSQL's own, without arguments.
    wire.client.send(b'F', &[0, 0, 0, 89, 0, 0, 0, 0, 0, 0]);
    wire.server.expect(b'F');
    wire.fails();
    is_refused(&mut wire, STAFF);
}

/// The client was told that the relation is what it was.
#[test]
fn what_has_failed_leaves_a_relation_as_it_was() {
    for (name, sql) in [
        ("drop", "ALTER TABLE p DROP COLUMN name"),
        ("type", "ALTER TABLE p ALTER name TYPE text"),
    ] {
        let mut wire = Wire::start(&format!("failed-{name}"));
        wire.query(sql);
        wire.fails();
        is_refused(&mut wire, INSERT);
    }
}

/// A driver prepares a statement, and executes it when it has its description.
#[test]
fn a_definition_says_nothing_until_it_is_executed() {
    let mut wire = Wire::start("prepared");
    wire.client.send(b'P', &parse(CREATE, &[]));
    wire.client.send(b'S', b"");
    wire.sends(b"PDS");
    wire.makes_statement();
    wire.server.send(b'Z', b"I");
    wire.hears(b"1Z");
    // There is another table of the name.
    is_sent(&mut wire);
    wire.executes();
    wire.sends(b"BES");
    wire.server.send(b'2', b"");
    wire.server.send(b'C', b"CREATE TABLE\0");
    wire.server.send(b'Z', b"I");
    wire.hears(b"2CZ");
    wire.client.send(b'Q', format!("{STAFF}\0").as_bytes());
    wire.server.own_query();
    wire.answer(&with_plain_staff());
    wire.server.expect(b'Q');
    wire.fails_with("SR-8107");
}

/// What comes behind an error is ignored up to the next Sync.
#[test]
fn what_is_not_executed_defines_nothing() {
    let mut wire = Wire::start("ignored");
    wire.client.send(b'P', &parse("SELECT nothing", &[]));
    wire.client.send(b'H', b"");
    wire.sends(b"PDH");
    wire.server.send(b'E', FAILED);
    wire.client.expect(b'E');
    wire.client.send(b'P', &parse(CREATE, &[]));
    wire.executes();
    wire.server.expect(b'S');
    wire.server.send(b'Z', b"I");
    wire.client.expect(b'Z');
    is_sent(&mut wire);
}
