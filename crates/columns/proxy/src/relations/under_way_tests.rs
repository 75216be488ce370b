//! What is compared while statements of the owner are under way, and what a chain of them leaves.

use std::sync::atomic::{AtomicU64, Ordering};

use super::definition_tests::{STAFF, sends, tells};
use super::tests::{DATABASE, known as nothing, sees};
use super::*;
use crate::sql::tests::catalog;

fn shown_after(before: &[&str], sql: &str, shown: &[&str]) -> Result<(), String> {
    let known = nothing();
    let one = known.connection("server".to_owned());
    assert_eq!(sees(&one, true, before), Ok(()));
    sends(&one, before, sql);
    sees(&one, true, shown)
}

#[test]
fn a_chain_of_definitions_in_one_transaction_is_kept() {
    let mut lost = Vec::new();
    for (before, sql, shown) in [
        (
            &["u(a)"][..],
            "CREATE TABLE t (id int, name enc_text); ALTER TABLE t RENAME COLUMN name TO title",
            "t(id, title)",
        ),
        (
            &["t(id, name text)"],
            "CREATE TABLE n (id int, name enc_text); DROP TABLE t; ALTER TABLE n RENAME TO t",
            "t(id, name)",
        ),
        (
            &["t(id, name)"],
            "ALTER TABLE t ADD COLUMN x enc_text; ALTER TABLE t DROP COLUMN name; ALTER TABLE t RENAME COLUMN x TO name",
            "t(id, name)",
        ),
        (
            &["t(id, name text)"],
            "ALTER TABLE t RENAME TO m; ALTER TABLE m RENAME TO t",
            "t(id, name)",
        ),
        (
            &["t(id, name text)"],
            "ALTER TABLE t RENAME COLUMN name TO b; ALTER TABLE t RENAME COLUMN b TO c",
            "t(id, c)",
        ),
        (
            &["s.t(id, name text)"],
            "ALTER TABLE s.t RENAME COLUMN name TO b; ALTER TABLE s.t SET SCHEMA public",
            "t(id, b)",
        ),
    ] {
        if shown_after(before, sql, &[shown]).is_ok() {
            lost.push((sql, shown));
        }
    }
    assert!(lost.is_empty(), "{lost:#?}");
}

#[test]
fn a_renamed_column_stays_in_its_place() {
    let mut lost = Vec::new();
    for (sql, shown) in [
        (
            "ALTER TABLE t RENAME COLUMN name TO title",
            "t(id, junk, title text, city)",
        ),
        (
            "ALTER TABLE t RENAME COLUMN name TO title",
            "t(id, name, city, title text)",
        ),
        (
            "ALTER TABLE t ALTER name TYPE enc_int4",
            "t(id, junk, city, name int4)",
        ),
    ] {
        if shown_after(&[STAFF], sql, &[shown]).is_ok() {
            lost.push((sql, shown));
        }
    }
    assert!(lost.is_empty(), "{lost:#?}");
}

#[test]
fn what_is_under_way_or_failed_is_what_it_was() {
    let mut lost = Vec::new();
    for sql in [
        "ALTER TABLE t RENAME TO people",
        "ALTER TABLE t SET SCHEMA s",
        "DROP TABLE t",
        "CREATE TABLE t (id int, name enc_text, city text)",
        "ALTER TABLE t RENAME COLUMN name TO title",
        "ALTER TABLE t ALTER name TYPE enc_numeric(12, 2)",
    ] {
        let known = nothing();
        let (one, other) = (
            known.connection("server".to_owned()),
            known.connection("server".to_owned()),
        );
        assert_eq!(sees(&one, true, &[STAFF]), Ok(()));
        let undone = Arc::new(AtomicU64::new(0));
        let fate = Fate::begin(&undone);
        tells(&one, (&[STAFF], &fate), sql);
        // Another connection, while the statement is under way.
        if sees(&other, true, &["t(id, name, city)"]).is_ok() {
            lost.push((sql, "under way"));
        }
        undone.fetch_add(1, Ordering::AcqRel);
        fate.decide();
        if sees(&one, true, &["t(id, name, city)"]).is_ok() {
            lost.push((sql, "failed"));
        }
    }
    assert!(lost.is_empty(), "{lost:#?}");
}

#[test]
fn what_is_decided_holds_for_others_although_its_connection_is_idle() {
    let mut lost = Vec::new();
    for (sql, shown) in [
        (
            "CREATE TABLE public.t (id int, name enc_text)",
            "t(id, other)",
        ),
        ("CREATE TABLE t (id int, name enc_text)", "t(id, other)"),
    ] {
        let known = nothing();
        let (one, other) = (
            known.connection("server".to_owned()),
            known.connection("server".to_owned()),
        );
        assert_eq!(sees(&one, true, &["u(a)"]), Ok(()));
        let fate = Fate::begin(&Arc::default());
        tells(&one, (&["u(a)"], &fate), sql);
        if sees(&one, false, &[shown]).is_ok() {
            lost.push((sql, "own, in the transaction"));
        }
        fate.decide();
        if sees(&one, false, &[shown]).is_ok() {
            lost.push((sql, "own, after it, the server says it is not over"));
        }
        if sees(&other, true, &[shown]).is_ok() {
            lost.push((sql, "another, after it"));
        }
    }
    // After any change, nothing is learned by others until the connection speaks again.
    let known = nothing();
    let (one, other) = (
        known.connection("server".to_owned()),
        known.connection("server".to_owned()),
    );
    assert_eq!(sees(&one, true, &[STAFF]), Ok(()));
    let fate = Fate::begin(&Arc::default());
    tells(&one, (&[STAFF], &fate), "DROP SCHEMA scratch CASCADE");
    fate.decide();
    assert_eq!(sees(&other, true, &[STAFF]), Ok(()));
    if sees(&other, true, &["t(id, name, city)"]).is_ok() {
        lost.push(("DROP SCHEMA scratch CASCADE", "shown, and changed"));
    }
    assert!(lost.is_empty(), "{lost:#?}");
}

#[test]
fn what_is_said_with_if_exists_and_on_commit_drop_counts() {
    let mut lost = Vec::new();
    for (before, sql, shown) in [
        (
            "t(id, x text)",
            "ALTER TABLE t ADD COLUMN IF NOT EXISTS name enc_text",
            "t(id, x text, name)",
        ),
        (
            "t(id, x text)",
            "ALTER TABLE IF EXISTS t ADD COLUMN name enc_text",
            "t(id, x text, name)",
        ),
        (
            "t(id, x text)",
            "ALTER TABLE t RENAME x TO y; ALTER TABLE t ADD IF NOT EXISTS name enc_text",
            "t(id, y text, name)",
        ),
        (
            "t(id, x text)",
            "DROP TYPE mood; ALTER TABLE IF EXISTS t ADD COLUMN name enc_text",
            "t(id, x text, name)",
        ),
        (
            "u(a)",
            "CREATE SCHEMA s CREATE TABLE t (id int, name enc_text)",
            "s.t(id, name)",
        ),
        (
            STAFF,
            "CREATE TABLE IF NOT EXISTS t AS SELECT 1",
            "t(id, name, city)",
        ),
        (
            STAFF,
            "CREATE MATERIALIZED VIEW IF NOT EXISTS t AS SELECT 1",
            "t(id, name, city)",
        ),
    ] {
        if shown_after(&[before], sql, &[shown]).is_ok() {
            lost.push((sql, shown));
        }
    }
    let known = nothing();
    let one = known.connection("server".to_owned());
    assert_eq!(sees(&one, true, &["u(a)"]), Ok(()));
    sends(
        &one,
        &["u(a)"],
        "CREATE TEMP TABLE t (name enc_text) ON COMMIT DROP",
    );
    let mut shown = catalog(&["pg_temp_3.t(name)"]);
    "pg_temp_3".clone_into(&mut shown.temporary_schema);
    one.check(DATABASE, (Standing::Open, Instant::now()), &mut shown)
        .unwrap();
    let mut found = shown.relations("", "t");
    if !found.any(|relation| relation.differs.is_some()) {
        lost.push((
            "CREATE TEMP TABLE t (name enc_text) ON COMMIT DROP",
            "pg_temp_3.t(name)",
        ));
    }
    assert!(lost.is_empty(), "{lost:#?}");
}

/// An honest server: another connection sees what was there before.
#[test]
fn others_may_see_what_a_relation_was() {
    let mut refused = Vec::new();
    for (before, sql) in [
        (STAFF, "ALTER TABLE t ALTER name TYPE enc_int4"),
        (
            "t(id, name numeric)",
            "ALTER TABLE t ALTER name TYPE enc_numeric(14, 2)",
        ),
    ] {
        let known = nothing();
        let (one, other) = (
            known.connection("server".to_owned()),
            known.connection("server".to_owned()),
        );
        assert_eq!(sees(&one, true, &[before]), Ok(()));
        sends(&one, &[before], sql);
        if let Err(why) = sees(&other, true, &[before]) {
            refused.push((sql, why));
        }
    }
    assert!(refused.is_empty(), "{refused:#?}");
}

/// A connection that ends before the server's answer: what was, and what its statement leaves, are
/// both shown by an honest server.
#[test]
fn what_a_connection_has_left_is_one_of_two() {
    let longer = "t(id, name text, city, more text)";
    for (shown, other) in [(STAFF, longer), (longer, "t(id, name text)")] {
        let known = nothing();
        let one = known.connection("server".to_owned());
        assert_eq!(sees(&one, true, &[STAFF]), Ok(()));
        let mut left = known.connection("server".to_owned());
        sends(&left, &[STAFF], "ALTER TABLE t ADD COLUMN more enc_text");
        left.leave(false, false);
        drop(left);
        for may_be in [STAFF, longer] {
            assert_eq!(sees(&one, true, &[may_be]), Ok(()));
        }
        assert!(sees(&one, true, &["t(id, name, city)"]).is_err());
        assert!(sees(&one, true, &["t(id, name text, city, more)"]).is_err());
        // After the time in which the server may still be working on it.
        let ended = Instant::now().checked_sub(LEFT_LIMIT).unwrap();
        for (since, _) in &mut known.state().left {
            *since = ended;
        }
        assert_eq!(sees(&one, true, &[shown]), Ok(()));
        assert_eq!(sees(&one, true, &[other]).is_ok(), other == longer);
        assert!(sees(&one, true, &["t(id, name, city)"]).is_err());
    }
}

#[test]
fn a_temporary_table_of_another_session_is_not_meant() {
    let mut shown = catalog(&["pg_temp_3.t(k int4)", "pg_temp_4.t(k)", "t(a)"]);
    let schemas = |catalog: &Catalog, schema: &str| {
        let found = catalog.relations(schema, "t");
        found.map(|found| found.schema.clone()).collect::<Vec<_>>()
    };
    assert_eq!(schemas(&shown, "pg_temp"), ["pg_temp_3", "pg_temp_4"]);
    "pg_temp_3".clone_into(&mut shown.temporary_schema);
    assert_eq!(schemas(&shown, "pg_temp"), ["pg_temp_3"]);
    assert_eq!(schemas(&shown, ""), ["pg_temp_3", "public"]);
}

/// A column that is dropped and that nobody knows leaves the others in their places.
#[test]
fn an_unknown_column_that_is_dropped_frees_no_other() {
    let before = "t(id, name text, pay numeric)";
    let drops = "ALTER TABLE t DROP COLUMN IF EXISTS junk";
    for (sql, is_done, refused) in [
        (
            format!("{drops}, ALTER name TYPE enc_int4"),
            false,
            "t(id, name, pay numeric)",
        ),
        (
            format!("{drops}; ALTER TABLE public.t RENAME name TO title"),
            true,
            "t(id, x, pay numeric, title text)",
        ),
        (
            format!("{drops}; ALTER TABLE public.t RENAME name TO title"),
            false,
            "t(id, name, pay numeric)",
        ),
    ] {
        let known = nothing();
        let one = known.connection("server".to_owned());
        assert_eq!(sees(&one, true, &[before]), Ok(()));
        let undone = Arc::new(AtomicU64::new(0));
        let fate = Fate::begin(&undone);
        tells(&one, (&[before], &fate), &sql);
        if !is_done {
            undone.fetch_add(1, Ordering::AcqRel);
        }
        fate.decide();
        assert!(sees(&one, true, &[refused]).is_err(), "{sql}");
    }
}

/// What a client leaves open behind a transaction that it has ended says nothing of that one.
#[test]
fn a_client_that_leaves_in_its_next_transaction_undoes_nothing() {
    let sql = "ALTER TABLE t RENAME name TO title";
    for (ends, allowed) in [(true, "t(id, title text, city)"), (false, STAFF)] {
        let known = nothing();
        let mut one = known.connection("server".to_owned());
        assert_eq!(sees(&one, true, &[STAFF]), Ok(()));
        let fate = Fate::begin(&Arc::default());
        tells(&one, (&[STAFF], &fate), sql);
        if ends {
            // COMMIT AND CHAIN.
            fate.note_statement(true, false);
            fate.note_message(true);
        }
        one.leave(true, true);
        drop(one);
        let later = known.connection("server".to_owned());
        assert_eq!(sees(&later, true, &[allowed]), Ok(()), "{ends}");
    }
}

/// A statement that names a session's temporary table without its schema says its columns.
#[test]
fn a_temporary_table_that_is_altered_has_its_columns() {
    let known = nothing();
    let one = known.connection("server".to_owned());
    let is_refused = |shown: &str| {
        let mut shown = catalog(&[shown]);
        "pg_temp_3".clone_into(&mut shown.temporary_schema);
        one.check(DATABASE, (Standing::Open, Instant::now()), &mut shown)
            .unwrap();
        let mut found = shown.relations("", "t");
        found.any(|relation| relation.differs.is_some())
    };
    assert!(!is_refused("u(a)"));
    sends(&one, &["u(a)"], "CREATE TEMP TABLE t (id int)");
    let sql = "ALTER TABLE t ADD COLUMN name enc_text";
    sends(&one, &["pg_temp_3.t(id)"], sql);
    assert!(is_refused("pg_temp_3.t(id, name)"));
    assert!(!is_refused("pg_temp_3.t(id, name text)"));
}

/// What a later statement of the same text says of a table does not take from what an earlier one
/// has said: each table of the name that is new is like that.
#[test]
fn a_table_that_is_made_and_altered_is_new_in_every_schema() {
    let known = nothing();
    let one = known.connection("server".to_owned());
    assert_eq!(sees(&one, true, &["hr.t(a)"]), Ok(()));
    let sql = "CREATE TABLE t (id int, name enc_text); ALTER TABLE t ADD COLUMN x enc_text";
    sends(&one, &["hr.t(a)"], sql);
    let like = "evil.t(id, name text, x text)";
    assert_eq!(sees(&one, false, &["hr.t(a)", like]), Ok(()));
    let shown = &["hr.t(a)", like, "t(id, name, x)"];
    assert!(sees(&one, true, shown).is_err());
    let other = known.connection("server".to_owned());
    assert!(sees(&other, true, shown).is_err());
}

/// What statements say of functions, and what becomes of those that they name.
#[test]
fn a_function_keeps_its_confidential_values_until_it_is_dropped() {
    let makes = "CREATE FUNCTION f(a enc_text) RETURNS int LANGUAGE c AS 'x', 'y'";
    let returns = "CREATE FUNCTION f(a int) RETURNS SETOF enc_text LANGUAGE c AS 'x', 'y'";
    let replaces = "CREATE OR REPLACE FUNCTION f(a int) RETURNS int LANGUAGE c AS 'x', 'y'";
    let anew = format!("DROP FUNCTION f; {replaces}");
    for (was, sql, is_done, left) in [
        (true, "DROP FUNCTION f(enc_text)", false, &["f"][..]),
        (true, "DROP FUNCTION f(enc_text)", true, &[]),
        (false, makes, true, &["f"]),
        (false, makes, false, &[]),
        (false, returns, true, &["f"]),
        // One with other arguments stays beside it.
        (true, replaces, true, &["f"]),
        (true, "ALTER FUNCTION f RENAME TO g", true, &["g"]),
        (true, "ALTER FUNCTION f RENAME TO g", false, &["f"]),
        (true, anew.as_str(), true, &[]),
        (true, "DROP SCHEMA s CASCADE", false, &["f"]),
    ] {
        let known = nothing();
        let (one, other) = (
            known.connection("server".to_owned()),
            known.connection("server".to_owned()),
        );
        let counting = |of: &Changer, standing: Standing, shown: &[&str]| {
            let mut catalog = catalog(&["u(a)"]);
            let shown = shown.iter().map(|name| (*name).to_owned());
            *catalog.functions_mut() = shown.collect();
            of.check(DATABASE, (standing, Instant::now()), &mut catalog)
                .unwrap();
            let all = ["f", "g"].into_iter();
            all.filter(|name| catalog.has_function(name))
                .collect::<Vec<_>>()
        };
        let before = &["f"][..usize::from(was)];
        assert_eq!(counting(&one, Standing::Settled, before), before);
        let undone = Arc::new(AtomicU64::new(0));
        let fate = Fate::begin(&undone);
        tells(&one, (&["u(a)"], &fate), sql);
        if !is_done {
            undone.fetch_add(1, Ordering::AcqRel);
        }
        // The server shows none, while the statement is under way and afterwards.
        assert_eq!(counting(&one, Standing::Open, &[]), left, "{sql}: own");
        let seen = counting(&other, Standing::Settled, &[]);
        let both = before.iter().chain(left);
        assert!(
            both.clone().all(|name| seen.contains(name)),
            "{sql}: {seen:?}"
        );
        fate.decide();
        assert_eq!(counting(&other, Standing::Settled, &[]), left, "{sql}");
        assert_eq!(counting(&one, Standing::Settled, &[]), left, "{sql}");
    }
}
