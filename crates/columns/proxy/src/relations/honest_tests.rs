//! What an honest server shows after ordinary definitions: nothing of it is refused.

use std::sync::atomic::{AtomicU64, Ordering};

use super::definition_tests::{sends, tells};
use super::tests::{DATABASE, known as nothing, standing};
use super::*;
use crate::sql::tests::catalog;

/// In what the relations of the catalog with these tables differ from what is known.
fn differences(changer: &Changer, settled: bool, tables: &[&str]) -> Vec<String> {
    let mut catalog = catalog(tables);
    changer
        .check(DATABASE, (standing(settled), Instant::now()), &mut catalog)
        .unwrap();
    let all = catalog.relations_mut();
    all.filter_map(|(_, relation)| relation.differs.clone())
        .collect()
}

/// Each tenant has a schema of its own, whose tables are not all of one version. In the transaction
/// of one tenant's migration, the others' are what they were.
#[test]
fn a_table_of_another_tenant_is_what_it_was() {
    let mut refused = Vec::new();
    for (before, sql, after) in [
        (
            ["t(id, name text)", "tenant.t(id, name text)"],
            "ALTER TABLE t ALTER name TYPE enc_int4",
            "t(id, name int4)",
        ),
        (
            ["t(id, name text)", "tenant.t(id, name text, pay numeric)"],
            "ALTER TABLE t ADD COLUMN pay enc_int8",
            "t(id, name text, pay int8)",
        ),
    ] {
        let known = nothing();
        let one = known.connection("server".to_owned());
        assert!(differences(&one, true, &before).is_empty());
        sends(&one, &before, sql);
        for settled in [false, true] {
            refused.extend(differences(&one, settled, &[after, before[1]]));
        }
    }
    assert!(refused.is_empty(), "{refused:#?}");
}

/// Another schema has a table of the name, which statements before in the same text may have
/// changed, or have made.
#[test]
fn a_table_that_is_made_is_not_one_of_another_schema() {
    let mut refused = Vec::new();
    let made = "CREATE TABLE t (id int, name enc_text)";
    for (before, sql, other) in [
        (
            &["t(a text)", "hr.t(id, name)"][..],
            format!("DROP TABLE IF EXISTS t; {made}"),
            "hr.t(id, name)",
        ),
        (
            &["hr.t(id, name)"],
            format!("DROP TYPE mood; {made}"),
            "hr.t(id, name)",
        ),
        (
            &["u(a)"],
            format!("CREATE TABLE hr.t (id int, name text); {made}"),
            "hr.t(id, name)",
        ),
        (
            &["u(a)"],
            format!("{made}; CREATE TABLE hr.t (id int, name text)"),
            "hr.t(id, name)",
        ),
        (
            &["u(a)"],
            format!("CREATE TABLE hr.t (id int, mail enc_text); {made}"),
            "hr.t(id, mail text)",
        ),
        (
            &["v(b text)"],
            format!("CREATE TABLE hr.t (id int); ALTER TABLE v ADD c enc_text; {made}"),
            "hr.t(id)",
        ),
    ] {
        let known = nothing();
        let one = known.connection("server".to_owned());
        assert!(differences(&one, true, before).is_empty());
        sends(&one, before, &sql);
        let seen = differences(&one, true, &["t(id, name text)", other]);
        refused.extend(seen.into_iter().map(|why| (sql.clone(), why)));
    }
    assert!(refused.is_empty(), "{refused:#?}");
}

/// A migration that is tried, rolled back, and tried again in another form.
#[test]
fn what_was_seen_in_a_transaction_that_was_rolled_back_is_not_kept() {
    for (first, second) in [
        (
            "CREATE TABLE IF NOT EXISTS t (id int, name enc_text)",
            "CREATE TABLE IF NOT EXISTS t (id int, mail enc_text)",
        ),
        (
            "CREATE TABLE IF NOT EXISTS t (LIKE u)",
            "CREATE TABLE IF NOT EXISTS t (LIKE v)",
        ),
        ("ALTER TABLE s.t SET SCHEMA public", "SELECT 1"),
    ] {
        let known = nothing();
        let one = known.connection("server".to_owned());
        let undone: Arc<AtomicU64> = Arc::default();
        let fate = Fate::begin(&undone);
        assert!(differences(&one, true, &["w(a)"]).is_empty());
        tells(&one, (&["w(a)"], &fate), first);
        assert!(differences(&one, false, &["t(id, name text)"]).is_empty());
        // It stays what it is while the transaction goes on.
        assert!(!differences(&one, false, &["t(id, name)"]).is_empty());
        undone.fetch_add(1, Ordering::AcqRel);
        fate.decide();
        one.end_transaction();
        assert!(differences(&one, true, &["w(a)"]).is_empty());
        sends(&one, &["w(a)"], second);
        let seen = differences(&one, true, &["t(id, mail text)"]);
        assert!(seen.is_empty(), "{first}: {seen:?}");
    }
}

/// A report in a transaction of isolation level REPEATABLE READ reads the catalog of its snapshot.
#[test]
fn what_an_older_snapshot_shows_is_not_learned() {
    for (before, sql, after) in [
        (
            "t(id, name text, city)",
            "ALTER TABLE t DROP COLUMN city",
            "t(id, name text)",
        ),
        ("t(id, name text)", "DROP TABLE t", "u(a)"),
    ] {
        let known = nothing();
        let (one, report) = (
            known.connection("server".to_owned()),
            known.connection("server".to_owned()),
        );
        assert!(differences(&one, true, &[before]).is_empty());
        let fate = Fate::begin(&Arc::default());
        tells(&one, (&[before], &fate), sql);
        fate.decide();
        drop(differences(&report, false, &[before]));
        let seen = differences(&one, true, &[after]);
        assert!(seen.is_empty(), "{sql}: {seen:?}");
        let of_t = |name: &RelationName| name.relation == "t";
        let is_kept = known.known().unwrap().relations.keys().any(of_t);
        assert_eq!(is_kept, after.starts_with('t'), "{sql}");
    }
    // Nor does it decide what has become of a statement whose connection was lost.
    let known = nothing();
    let (mut lost, report) = (
        known.connection("server".to_owned()),
        known.connection("server".to_owned()),
    );
    assert!(differences(&lost, true, &["t(id, name text)"]).is_empty());
    sends(
        &lost,
        &["t(id, name text)"],
        "ALTER TABLE t RENAME name TO title",
    );
    lost.leave(false, false);
    drop(lost);
    let ended = Instant::now().checked_sub(LEFT_LIMIT).unwrap();
    for (since, _) in &mut known.state().left {
        *since = ended;
    }
    drop(differences(&report, false, &["t(id, name text)"]));
    let later = known.connection("server".to_owned());
    assert!(differences(&later, true, &["t(id, title text)"]).is_empty());
}

/// Two connections change one relation, or make one of a name: migrations of several instances of
/// an application, or of several applications.
#[test]
fn what_two_connections_change_at_once_is_learned() {
    let old = "t(id, name text, city)";
    let rename = "ALTER TABLE t RENAME name TO title";
    for (first, second, is_undone, shown) in [
        (
            rename,
            "ALTER TABLE t DROP COLUMN city",
            false,
            "t(id, title text)",
        ),
        (rename, rename, true, "t(id, title text, city)"),
        (
            "ALTER TABLE t DROP COLUMN name",
            "ALTER TABLE t ADD n enc_int4",
            true,
            "t(id, name text, city, n int4)",
        ),
        (
            "ALTER TABLE t ADD n enc_int4",
            "DROP TABLE t",
            false,
            "u(a)",
        ),
    ] {
        for turned in [false, true] {
            let known = nothing();
            let (one, other) = (
                known.connection("server".to_owned()),
                known.connection("server".to_owned()),
            );
            let (one, other) = if turned { (other, one) } else { (one, other) };
            assert!(differences(&one, true, &[old]).is_empty());
            let undone: Arc<AtomicU64> = Arc::default();
            let (fate, later) = (Fate::begin(&undone), Fate::begin(&Arc::default()));
            tells(&one, (&[old], &fate), first);
            tells(&other, (&[old], &later), second);
            if is_undone {
                undone.fetch_add(1, Ordering::AcqRel);
            }
            fate.decide();
            let mut seen = differences(&other, false, &[shown]);
            later.decide();
            seen.extend(differences(&other, true, &[shown]));
            seen.extend(differences(&one, true, &[shown]));
            assert!(seen.is_empty(), "{first}; {second}: {seen:?}");
            // What has been seen is known again.
            let is_there = shown.starts_with('t');
            let plain = differences(&one, true, &["t(id, x)"]);
            assert_eq!(plain.is_empty(), !is_there, "{first}; {second}");
        }
    }
}

#[test]
fn two_connections_make_tables_of_one_name_in_two_schemas() {
    for exists in ["", "IF NOT EXISTS "] {
        let known = nothing();
        let (one, other) = (
            known.connection("server".to_owned()),
            known.connection("server".to_owned()),
        );
        assert!(differences(&one, true, &["u(a)"]).is_empty());
        let fates = [(); 2].map(|()| Fate::begin(&Arc::default()));
        let create = |column: &str| format!("CREATE TABLE {exists}t (id int, {column} enc_text)");
        tells(&one, (&["u(a)"], &fates[0]), &create("name"));
        tells(&other, (&["u(a)"], &fates[1]), &create("mail"));
        fates[0].decide();
        let both = &["crm.t(id, name text)", "shop.t(id, mail text)"];
        let mut seen = differences(&one, true, &both[..1]);
        seen.extend(differences(&other, false, both));
        fates[1].decide();
        seen.extend(differences(&other, true, both));
        seen.extend(differences(&one, true, both));
        assert!(seen.is_empty(), "{exists}: {seen:?}");
    }
}

/// A restore makes all tables in one transaction: to follow a statement takes no longer, by orders
/// of magnitude, than to plan it.
#[test]
fn a_transaction_may_make_thousands_of_tables() {
    let known = nothing();
    let one = known.connection("server".to_owned());
    let fate = Fate::begin(&Arc::default());
    let mut empty = catalog(&["u(a)"]);
    one.check(DATABASE, (Standing::Settled, Instant::now()), &mut empty)
        .unwrap();
    let begun = Instant::now();
    let of = |at: usize| {
        let sql = format!("CREATE TABLE public.t{at} (id int, a int, b int, name enc_text)");
        crate::sql::plan(&sql, &empty, 0).unwrap().remove(0)
    };
    let plans: Vec<_> = (0..1600).map(of).collect();
    let planned = begun.elapsed();
    let shown: Vec<String> = (0..1600)
        .map(|at| format!("t{at}(id, a, b, name text)"))
        .collect();
    let shown: Vec<&str> = shown.iter().map(String::as_str).collect();
    let begun = Instant::now();
    for plan in &plans {
        one.begin_change(DATABASE, &plan.changes, &fate).unwrap();
    }
    assert!(differences(&one, false, &shown).is_empty());
    let followed = begun.elapsed();
    assert!(followed < planned * 20, "{planned:?} {followed:?}");
}

/// A table becomes a partition, and the table that it is a part of is changed, in one transaction.
#[test]
fn what_is_attached_changes_with_its_table() {
    let root = "CREATE TABLE root (id int, name enc_text) PARTITION BY RANGE (id)";
    let makes = "CREATE TABLE t (id int, name enc_text)";
    for (before, first, sql, after) in [
        ("u(a)", makes, "RENAME COLUMN name TO title", "title text"),
        ("u(a)", makes, "ALTER name TYPE enc_int4", "name int4"),
        (
            "t(id, name text)",
            "SELECT 1",
            "RENAME COLUMN name TO title",
            "title text",
        ),
        (
            "t(id, name text)",
            "SELECT 1",
            "ALTER name TYPE enc_int4",
            "name int4",
        ),
    ] {
        let known = nothing();
        let one = known.connection("server".to_owned());
        assert!(differences(&one, true, &[before]).is_empty());
        sends(&one, &[before], root);
        sends(&one, &[before, "root(id, name text)"], first);
        let both = &["root(id, name text)", "t(id, name text)"];
        sends(&one, both, "ALTER TABLE root ATTACH PARTITION t DEFAULT");
        sends(&one, both, &format!("ALTER TABLE root {sql}"));
        let shown = [format!("root(id, {after})"), format!("t(id, {after})")];
        let shown = shown.each_ref().map(String::as_str);
        let mut seen = differences(&one, false, &shown);
        seen.extend(differences(&one, true, &shown));
        assert!(seen.is_empty(), "{first}; {sql}: {seen:?}");
    }
}
