//! What statements of the owner leave of a relation, and what they say of it.

use std::sync::atomic::{AtomicU64, Ordering};

use super::tests::{DATABASE, known as nothing, sees};
use super::*;
use crate::sql::tests::catalog;

/// Tells the connection of a statement with this text, before which the catalog had these tables.
/// Nothing goes wrong with it.
pub(super) fn sends(changer: &Changer, tables: &[&str], sql: &str) {
    tells(changer, (tables, &Fate::begin(&Arc::default())), sql);
}

/// The same of a statement with this fate.
pub(super) fn tells(changer: &Changer, (tables, fate): (&[&str], &Arc<Fate>), sql: &str) {
    let mut catalog = catalog(tables);
    changer
        .check(DATABASE, (Standing::Open, Instant::now()), &mut catalog)
        .unwrap();
    for plan in crate::sql::plan(sql, &catalog, 0).unwrap() {
        changer.begin_change(DATABASE, &plan.changes, fate).unwrap();
    }
}

pub(super) const STAFF: &str = "t(id, name text, city)";

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn a_statement_changes_only_the_columns_that_it_names() {
    for (sql, allowed, refused) in [
        (
            "ALTER TABLE t ADD COLUMN n int",
            vec!["t(id, name text, city, n)", STAFF],
            vec![
                "t(id, name, city, n)",
                "t(id, city, name text, n)",
                "t(id, n, name text, city)",
            ],
        ),
        (
            "ALTER TABLE public.t DROP COLUMN city",
            // A new column may have the name of the one that was dropped.
            vec!["t(id, name text)", STAFF, "t(id, name text, n)"],
            vec!["t(id, name)", "t(id)", "t(name text)"],
        ),
        (
            "ALTER TABLE t DROP COLUMN id",
            vec!["t(name text, city)"],
            vec![STAFF, "t(name text)", "t(city, name text)"],
        ),
        (
            "ALTER TABLE t RENAME COLUMN id TO number",
            vec!["t(number, name text, city)"],
            vec![
                STAFF,
                "t(number, name, city)",
                "t(name text, city, number, n)",
                "t(number, city)",
            ],
        ),
        (
            "ALTER TABLE t ALTER city TYPE int USING 1, ADD PRIMARY KEY (id)",
            vec![STAFF],
            vec!["t(id, name, city)", "t(id, name text, city int4)"],
        ),
        (
            "ALTER TABLE t ALTER id TYPE int, ALTER city TYPE int",
            vec![STAFF],
            vec!["t(city, name text, id)"],
        ),
        (
            "ALTER TABLE t RENAME id TO n; ALTER TABLE public.t DROP n",
            vec!["t(name text, city)"],
            vec![STAFF, "t(n, name text, city)", "t(city, name text)"],
        ),
        (
            "ALTER TABLE t ALTER city SET DEFAULT 'x'",
            vec![STAFF],
            vec!["t(id, name, city)"],
        ),
    ] {
        for (shown, is_allowed) in allowed
            .iter()
            .map(|shown| (shown, true))
            .chain(refused.iter().map(|shown| (shown, false)))
        {
            let known = nothing();
            let one = known.connection("server".to_owned());
            assert_eq!(sees(&one, true, &[STAFF]), Ok(()));
            sends(&one, &[STAFF], sql);
            let other = known.connection("server".to_owned());
            assert_eq!(sees(&other, true, &[STAFF]), Ok(()), "{sql}: under way");
            let seen = sees(&one, true, &[shown]);
            assert_eq!(seen.is_ok(), is_allowed, "{sql}: {shown}: {seen:?}");
            // So it is for whoever comes later.
            let later = known.connection("server".to_owned());
            assert_eq!(
                sees(&later, true, &[shown]).is_ok(),
                is_allowed,
                "{sql}: {shown}"
            );
            // What has been seen is known whole again.
            if is_allowed {
                assert!(sees(&later, true, &["t(n, name text)"]).is_err());
            }
        }
    }
}

/// Before, statement, after, and what the server may not say instead.
const SAID: &[(&str, &str, &str, &[&str])] = &[
    (
        "u(a)",
        "CREATE TABLE t (id int, name enc_text, pay enc_numeric)",
        "t(id, name text, pay numeric)",
        &[
            "t(id, name, pay)",
            "t(name text, id, pay numeric)",
            "t(id, name text, pay)",
        ],
    ),
    (
        "u(a)",
        "CREATE TABLE IF NOT EXISTS public.t (id int, name enc_text)",
        "t(id, name text)",
        &["t(id, name)", "t(id, name int4)"],
    ),
    (
        "u(a)",
        "CREATE TABLE t (LIKE u, name enc_text)",
        "t(a, name text)",
        &["t(a, name)", "t(a)"],
    ),
    (
        "t(id)",
        "ALTER TABLE t ADD COLUMN name strongroom_columns.enc_text",
        "t(id, more, name text)",
        &["t(id, name)", "t(id)"],
    ),
    (
        "t(id, name text, pay numeric)",
        "ALTER TABLE public.t ALTER name TYPE enc_int4",
        "t(id, name int4, pay numeric)",
        &["t(id, name, pay numeric)", "t(id, name int4, pay)"],
    ),
    (
        "t(id, title text)",
        "ALTER TABLE t RENAME title TO name",
        "t(id, name text)",
        &["t(id, name)", "t(id, title)", "t(id, title text)"],
    ),
    (
        "u(id, name text)",
        "ALTER TABLE u RENAME TO t",
        "t(id, name text)",
        &["t(id, name)", "t(name text, id)"],
    ),
    (
        "s.t(id, name text)",
        "ALTER TABLE s.t SET SCHEMA public",
        "t(id, name text)",
        &["t(id, name)"],
    ),
    (
        "u(a)",
        "CREATE TABLE t (id int); ALTER TABLE t ADD name enc_text",
        "t(id, name text)",
        &["t(id, name)"],
    ),
];

#[test]
fn what_a_statement_says_of_columns_holds_when_it_is_done() {
    for (before, sql, allowed, refused) in SAID {
        let all = std::iter::once((allowed, true)).chain(refused.iter().map(|at| (at, false)));
        for (shown, is_allowed) in all {
            for leaves in [false, true] {
                let known = nothing();
                let mut one = known.connection("server".to_owned());
                assert_eq!(sees(&one, true, &[before]), Ok(()));
                sends(&one, &[before], sql);
                if leaves {
                    one.leave(true, false);
                    drop(one);
                    one = known.connection("server".to_owned());
                }
                let seen = sees(&one, true, &[shown]);
                assert_eq!(seen.is_ok(), is_allowed, "{sql}: {shown}: {seen:?}");
                let later = known.connection("server".to_owned());
                let seen = sees(&later, true, &[shown]);
                assert_eq!(seen.is_ok(), is_allowed, "{sql}: {shown}: {seen:?}, later");
            }
        }
    }
}

/// What becomes of statements.
type End<'e> = &'e dyn Fn(&Arc<Fate>);

#[test]
fn what_was_undone_leaves_a_relation_as_it_was() {
    for sql in [
        "ALTER TABLE t DROP COLUMN name",
        "ALTER TABLE t ALTER name TYPE text",
        "ALTER TABLE t RENAME TO u; CREATE TABLE t (id int, name text)",
        "DROP TABLE t",
    ] {
        let undone = Arc::new(AtomicU64::new(0));
        let seen_after = |end: End<'_>, leaves: bool, shown: &str| {
            let known = nothing();
            let mut one = known.connection("server".to_owned());
            assert_eq!(sees(&one, true, &[STAFF]), Ok(()));
            let fate = Fate::begin(&undone);
            tells(&one, (&[STAFF], &fate), sql);
            end(&fate);
            if leaves {
                one.leave(true, true);
                drop(one);
                one = known.connection("server".to_owned());
            }
            sees(&one, true, &[shown])
        };
        let fails = |_: &Arc<Fate>| {
            undone.fetch_add(1, Ordering::AcqRel);
        };
        let fails_in_part = |fate: &Arc<Fate>| {
            fate.note_statement(false, true);
            undone.fetch_add(1, Ordering::AcqRel);
        };
        let fails_afterwards = |fate: &Arc<Fate>| {
            fate.note_statement(true, false);
            fate.note_statement(false, false);
            undone.fetch_add(1, Ordering::AcqRel);
        };
        for leaves in [false, true] {
            assert_eq!(seen_after(&fails, leaves, STAFF), Ok(()), "{sql}");
            let seen = seen_after(&fails, leaves, "t(id, name, city)");
            assert!(seen.is_err(), "{sql}");
        }
        // What is left of it is the server's word.
        let ends: [End<'_>; 2] = [&fails_in_part, &fails_afterwards];
        for end in ends {
            for shown in [STAFF, "t(id, name, city)"] {
                assert_eq!(seen_after(end, false, shown), Ok(()), "{sql}: {shown}");
            }
        }
    }
}

#[test]
fn what_was_not_carried_out_says_nothing() {
    let create = "CREATE TABLE t (id int, name enc_text)";
    // An error before the transaction is over, and one after that.
    for (is_over, plain) in [(false, true), (true, false)] {
        let known = nothing();
        let one = known.connection("server".to_owned());
        let undone = Arc::new(AtomicU64::new(5));
        let fate = Fate::begin(&undone);
        tells(&one, (&["u(a)"], &fate), create);
        if is_over {
            fate.decide();
        }
        undone.fetch_add(1, Ordering::AcqRel);
        assert_eq!(sees(&one, true, &["t(id, name)"]).is_ok(), plain);
    }
    // A client that leaves in the middle of a transaction has it rolled back.
    for (is_open, plain) in [(true, true), (false, false)] {
        let known = nothing();
        let mut one = known.connection("server".to_owned());
        sends(&one, &["u(a)"], create);
        one.leave(true, is_open);
        drop(one);
        let later = known.connection("server".to_owned());
        assert_eq!(sees(&later, true, &["t(id, name)"]).is_ok(), plain);
    }
    // A later statement takes it back.
    let known = nothing();
    let one = known.connection("server".to_owned());
    sends(&one, &["u(a)"], create);
    sends(&one, &["t(id, name text)"], "DROP TABLE t");
    assert_eq!(sees(&one, true, &["t(id, name)"]), Ok(()));
    // So does one that makes a plain relation in its place, after it was never there.
    sends(&one, &["u(a)"], create);
    assert_eq!(sees(&one, true, &["u(a)"]), Ok(()));
    sends(&one, &["u(a)"], "CREATE TABLE t (id int, name text)");
    assert_eq!(sees(&one, true, &["t(id, name)"]), Ok(()));
    // So does the owner.
    sends(&one, &["u(a)"], create);
    let why = "column \"name\" of t was defined as enc_text, and is plain";
    assert_eq!(sees(&one, true, &["t(id, name)"]), Err(why.to_owned()));
    assert_eq!(known.forget(|name| name.relation == "t").unwrap(), 1);
    assert_eq!(sees(&one, true, &["t(id, name)"]), Ok(()));
}

#[test]
fn a_statement_changes_no_relation_of_its_name_in_another_schema() {
    let known = nothing();
    let one = known.connection("server".to_owned());
    assert_eq!(sees(&one, true, &[STAFF]), Ok(()));
    for sql in [
        "CREATE TABLE tenant.t (id int, name enc_text)",
        "CREATE TEMP TABLE t (a int)",
        "DROP TABLE tenant.t",
        "DROP TYPE mood",
        "ALTER TABLE tenant.t DROP COLUMN name",
    ] {
        sends(&one, &[STAFF], sql);
        assert!(sees(&one, true, &["t(id, name, city)"]).is_err(), "{sql}");
    }
}

#[test]
fn what_statements_say_is_kept_in_the_file() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("pins");
    let open = || Arc::new(KnownRelations::at(path.clone()).unwrap());
    let known = open();
    let one = known.connection("s".to_owned());
    assert_eq!(sees(&one, true, &[STAFF, "u(a)"]), Ok(()));
    sends(
        &one,
        &[STAFF],
        "ALTER TABLE t DROP id, ADD more enc_int4, ALTER city TYPE int",
    );
    sends(&one, &[STAFF], "CREATE TABLE v (a enc_text)");
    assert!(sees(&one, true, &["t(name text, city)"]).is_err());
    let one = open().connection("s".to_owned());
    assert!(sees(&one, true, &["t(name text, city)"]).is_err());
    assert!(sees(&one, true, &["t(name, more int4)"]).is_err());
    assert_eq!(sees(&one, true, &["t(name text, city, more int4)"]), Ok(()));
}

#[test]
fn what_is_under_way_is_compared() {
    let known = nothing();
    let (one, other) = (
        known.connection("server".to_owned()),
        known.connection("server".to_owned()),
    );
    assert_eq!(sees(&one, true, &[STAFF]), Ok(()));
    sends(&one, &[STAFF], "ALTER TABLE t ADD COLUMN note int");
    sends(&one, &[STAFF], "CREATE TABLE v (a enc_text)");
    for connection in [&one, &other] {
        for shown in [STAFF, "t(id, name text, city, note)"] {
            assert_eq!(sees(connection, false, &[shown]), Ok(()), "{shown}");
        }
        for shown in ["t(id, name, city)", "t(id, city, name text)", "u(name)"] {
            let mut catalog = catalog(&[shown, "s.t(id, name, city)"]);
            connection
                .check(DATABASE, (Standing::Open, Instant::now()), &mut catalog)
                .unwrap();
            let mut found = catalog.relations("public", "t");
            assert!(found.any(|relation| relation.differs.is_some()), "{shown}");
        }
    }
    // What another connection defines is there, or not yet.
    let is_refused = |shown: &[&str]| {
        let mut catalog = catalog(shown);
        other
            .check(DATABASE, (Standing::Settled, Instant::now()), &mut catalog)
            .unwrap();
        let mut found = catalog.relations("", "v");
        found.any(|relation| relation.differs.is_some())
    };
    assert!(!is_refused(&[STAFF]) && !is_refused(&[STAFF, "v(a text)"]));
    assert!(is_refused(&[STAFF, "v(b)"]) && is_refused(&[STAFF, "v(a)"]));
}

#[test]
fn a_name_without_its_schema_changes_no_other_relation() {
    let both = &["t(id, name text)", "archive.t(id, name text)"];
    let known = nothing();
    let one = known.connection("server".to_owned());
    assert_eq!(sees(&one, true, both), Ok(()));
    sends(&one, both, "ALTER TABLE t RENAME COLUMN name TO title");
    let after = &["t(id, title text)", "archive.t(id, name text)"];
    assert_eq!(sees(&one, true, after), Ok(()));
    sends(
        &one,
        after,
        "CREATE TABLE IF NOT EXISTS app.t (name enc_text)",
    );
    let after = &[
        "t(id, title text)",
        "archive.t(id, name text)",
        "app.t(name)",
    ];
    let mut catalog = catalog(after);
    one.check(DATABASE, (Standing::Settled, Instant::now()), &mut catalog)
        .unwrap();
    let mut found = catalog.relations("app", "t");
    assert!(found.any(|relation| relation.differs.is_some()));
}

#[test]
fn a_table_without_its_schema_is_in_any_that_had_none() {
    let create = "CREATE TABLE t (id int, name enc_text)";
    let archived = "archive.t(id, name)";
    let refused = |shown: &[&str], schema: &str| {
        let known = nothing();
        let one = known.connection("server".to_owned());
        sends(&one, &[archived], create);
        let mut catalog = catalog(shown);
        one.check(DATABASE, (Standing::Settled, Instant::now()), &mut catalog)
            .unwrap();
        let mut found = catalog.relations(schema, "t");
        found.any(|relation| relation.differs.is_some())
    };
    assert!(!refused(&[archived, "t(id, name text)"], ""));
    assert!(!refused(&[archived, "tenant.t(id, name text)"], ""));
    // One that was not there before is the one that was made.
    assert!(refused(
        &[archived, "tenant.t(id, name text)", "t(id, name)"],
        "public"
    ));
    // What has been changed is the only one of its name.
    let known = nothing();
    let one = known.connection("server".to_owned());
    sends(&one, &["t(id)"], "ALTER TABLE t ADD name enc_text");
    let shown = ["t(id, name)", "tenant.t(id, name text)"];
    let mut catalog = catalog(&shown);
    one.check(DATABASE, (Standing::Settled, Instant::now()), &mut catalog)
        .unwrap();
    let mut found = catalog.relations("public", "t");
    assert!(found.any(|relation| relation.differs.is_some()));
}
