//! What is known of the columns of a result: which are certainly confidential, and whose values.

use strongroom_format::columns::{Class, Lineage};

use super::lineages::{names, of};
use super::*;
use crate::sql::flow::OriginColumn;
use crate::sql::{NamedUse, Origins, QueryName};

const PATHS: [&str; 5] = [
    "other.single.name",
    "other.single.pay",
    "other.single.note",
    "public.parted.name",
    "pg_temp.draft.pay",
];

/// What the columns of the last statement's result can be values of: `-` where nothing is known,
/// `?` for any confidential value, else names of columns and `+` for what was computed.
fn results(sql: &str) -> String {
    let plans = plan(sql, &names(), 0).unwrap();
    let shown = plans
        .last()
        .unwrap()
        .expected
        .iter()
        .map(|expected| match &expected.origins {
            None => "-".to_owned(),
            Some(Origins::Any) => "?".to_owned(),
            Some(Origins::Of { columns, made }) => {
                let name = |column: &OriginColumn| {
                    let same = |path: &&str| of(path).has_name_of(column.lineage);
                    let path = PATHS.iter().find(|path| same(path)).expect("a column");
                    path.rsplit('.').next().unwrap_or_default()
                };
                let mut names: Vec<&str> = columns.iter().map(name).collect();
                names.extend(made.then_some("+"));
                names.join(",")
            }
        });
    shown.collect::<Vec<_>>().join(" ")
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn a_result_s_columns_are_values_of_columns() {
    for (sql, expected) in [
        ("SELECT id, name, pay FROM other.single", "- name pay"),
        ("SELECT * FROM other.single", "- name pay note"),
        ("SELECT s.*, pay FROM other.single s", "- name pay note pay"),
        (
            "SELECT other.single.*, other.single.pay, single.pay FROM other.single",
            "- name pay note pay pay",
        ),
        ("SELECT x FROM (SELECT pay AS x FROM other.single) y", "pay"),
        (
            "WITH w AS (SELECT * FROM other.single) SELECT note, pay FROM w",
            "note pay",
        ),
        (
            "SELECT name FROM other.single UNION SELECT note FROM other.single",
            "name,note",
        ),
        (
            "SELECT coalesce(note, name), coalesce(note, 'none') FROM other.single",
            "note,name note,+",
        ),
        (
            "SELECT CASE WHEN id > 5 THEN pay END FROM other.single",
            "pay,+",
        ),
        ("SELECT (SELECT pay FROM other.single LIMIT 1)", "pay"),
        (
            "SELECT max(pay), min(name), lag(pay) OVER (ORDER BY id) FROM other.single GROUP BY id, pay",
            "pay,+ name,+ pay,+",
        ),
        (
            "SELECT sum(pay), pay + 1, avg(pay) * 2, lower(name) FROM other.single GROUP BY pay, name",
            "+ + + +",
        ),
        (
            "SELECT count(pay), pay > 5, pay IS NULL FROM other.single GROUP BY pay",
            "- - -",
        ),
        ("SELECT pay::numeric FROM other.single", "pay,+"),
        (
            "SELECT nullif(pay, 0), nullif(5, pay), pay % 4, nullif(name, note) FROM other.single",
            "pay,+ + + name,+",
        ),
        (
            "SELECT hours & 4, hours | 4, hours # 4, hours << 2, hours >> 2, ~hours FROM (SELECT pay::int AS hours FROM other.single) s",
            "+ + + + + +",
        ),
        (
            "SELECT pay OPERATOR(pg_catalog.+) 1, pay OPERATOR(app.+) 1 FROM other.single",
            "+ -",
        ),
        (
            "SELECT name, a.pay FROM other.single a JOIN other.single b USING (name)",
            "name pay",
        ),
        (
            "SELECT * FROM other.single a NATURAL JOIN other.single b",
            "- name pay note",
        ),
        ("SELECT name FROM public.part_1", "name"),
        ("SELECT pay FROM pg_temp.draft", "pay"),
        // What a row gets may have come from anywhere, but it is confidential.
        (
            "INSERT INTO other.single VALUES (1, 'a', 5, 'x') RETURNING pay, id",
            "? -",
        ),
        ("UPDATE other.single SET pay = 5 RETURNING *", "- ? ? ?"),
        ("DELETE FROM other.single RETURNING name", "?"),
        // A name of several relations and a view: confidential all the same. Functions of users.
        ("SELECT pay FROM staff", "?"),
        ("SELECT pay FROM public.view", "?"),
        (
            "SELECT enc_function(pay), declassify(pay) FROM other.single",
            "- -",
        ),
        (
            "SELECT array_agg(pay), ARRAY[pay], ARRAY(SELECT pay FROM other.single) FROM other.single GROUP BY pay",
            "- - -",
        ),
        // Those of the named query's rows.
        ("DECLARE c CURSOR FOR SELECT pay FROM other.single", "pay"),
        ("PREPARE p AS SELECT id, pay FROM other.single", "- pay"),
        ("PREPARE p AS DELETE FROM other.single RETURNING name", "?"),
        ("EXPLAIN EXECUTE p", ""),
        // Of another statement's columns nothing is known.
        ("CREATE TABLE n AS SELECT pay FROM other.single", ""),
        ("EXPLAIN SELECT pay FROM other.single", ""),
    ] {
        assert_eq!(results(sql), expected, "{sql}");
    }
}

/// The names by which applications read the columns, where they are certain.
#[test]
fn the_names_of_a_result_s_columns_are_known() {
    for (sql, expected) in [
        ("SELECT pay, name AS who FROM other.single", "pay who"),
        ("SELECT * FROM other.single", "id name pay note"),
        (
            "SELECT s.*, s.pay AS again FROM other.single s",
            "id name pay note again",
        ),
        (
            "SELECT pay::numeric, (SELECT name FROM other.single) FROM other.single",
            "pay name",
        ),
        (
            "SELECT * FROM (SELECT pay FROM other.single) v(wage)",
            "wage",
        ),
        (
            "SELECT sum(pay), sum(pay) AS total FROM other.single",
            "sum total",
        ),
        (
            "SELECT coalesce(name, 'none'), pay + 1 FROM other.single",
            "coalesce ?column?",
        ),
        (
            "SELECT pay FROM other.single UNION SELECT pay FROM other.single",
            "?",
        ),
        (
            "SELECT (SELECT pay AS wage FROM other.single), (VALUES (pay)), x.* FROM other.single, LATERAL (VALUES (pay)) x",
            "wage column1 column1",
        ),
    ] {
        let plans = plan(sql, &names(), 0).unwrap();
        let shown = plans[0].expected.iter();
        let shown = shown.map(|column| column.label.as_deref().unwrap_or("?"));
        assert_eq!(shown.collect::<Vec<_>>().join(" "), expected, "{sql}");
    }
}

/// What the proxy writes in another way would have another name for the client, for a query around
/// it, in ORDER BY, and in a table that is made of it.
#[test]
fn what_is_changed_keeps_its_name() {
    for (sql, expected) in [
        (
            "SELECT name::varchar(3), name::char(3), age::numeric FROM p",
            "SELECT \"left\"(name, 3)::enc_text AS name, \"left\"(name, 3)::enc_text AS name, age::enc_numeric FROM p",
        ),
        (
            "SELECT char_length(name), substr(name, 2), ceiling(score), (age + age)::int FROM p",
            "SELECT length(name) AS char_length, \"substring\"(name, 2) AS substr, ceil(score) AS ceiling, (age + age)::enc_int4 AS int4 FROM p",
        ),
        (
            "SELECT char_length FROM (SELECT char_length(name) FROM p) s ORDER BY 1",
            "SELECT char_length FROM (SELECT length(name) AS char_length FROM p) s ORDER BY 1",
        ),
        (
            "CREATE TABLE n AS SELECT char_length(name) FROM p",
            "CREATE TABLE n AS SELECT length(name) AS char_length FROM p",
        ),
        (
            "UPDATE p SET id = 1 RETURNING char_length(name), substr(name, 2) AS s",
            "UPDATE p SET id = 1 RETURNING length(name) AS char_length, \"substring\"(name, 2) AS s",
        ),
        (
            "SELECT (SELECT char_length(name)), CASE WHEN id = 1 THEN name ELSE name::varchar(2) END, (CASE WHEN id = 1 THEN age END)::int FROM p",
            "SELECT (SELECT length(name) AS char_length), CASE WHEN id = 1 THEN name ELSE \"left\"(name, 2)::enc_text END AS name, (CASE WHEN id = 1 THEN age END)::enc_int4 AS int4 FROM p",
        ),
        (
            "SELECT DISTINCT char_length(name) FROM p ORDER BY char_length",
            "SELECT DISTINCT length(name) AS char_length FROM p ORDER BY char_length",
        ),
        (
            "WITH c(a, b) AS (SELECT v.*, char_length(vname) FROM v) SELECT char_length FROM c",
            "WITH c(a, b) AS (SELECT v.*, length(vname) AS char_length FROM v) SELECT char_length FROM c",
        ),
        // Nobody sees these names.
        (
            "WITH c(a, b) AS (SELECT id, char_length(name) FROM p) SELECT b FROM c",
            "WITH c(a, b) AS (SELECT id, length(name) FROM p) SELECT b FROM c",
        ),
        (
            "INSERT INTO p (age) SELECT char_length(name) FROM p",
            "INSERT INTO p (age) SELECT length(name) FROM p",
        ),
        (
            "SELECT age FROM p UNION SELECT char_length(name) FROM p",
            "SELECT age FROM p UNION SELECT length(name) FROM p",
        ),
        (
            "SELECT id FROM p WHERE age IN (SELECT char_length(name) FROM p)",
            "SELECT id FROM p WHERE age IN (SELECT length(name) FROM p)",
        ),
        (
            "SELECT ARRAY(SELECT char_length(name) FROM p)",
            "SELECT ARRAY(SELECT length(name) FROM p)",
        ),
    ] {
        becomes(sql, expected, &[]);
    }
    becomes(
        "SELECT 'a', date '2000-01-01', current_date UNION SELECT name, born, born FROM p",
        "SELECT $1::enc_text AS \"?column?\", $2::enc_date AS date, $3::enc_date AS \"current_date\" UNION SELECT name, born, born FROM p",
        &["1=a", "2=2000-01-01", "3=CURRENT_DATE"],
    );
}

#[test]
fn a_value_of_another_column_of_the_relation_is_none_of_this_one() {
    let catalog = names();
    let plans = plan("SELECT pay FROM other.single", &catalog, 0).unwrap();
    let Some(Origins::Of { columns, made }) = &plans[0].expected[0].origins else {
        panic!("a column of a table");
    };
    assert!(!made);
    let may_be = |lineage: Lineage| catalog.may_be_of(columns, lineage);
    assert!(may_be(of("other.single.pay")));
    // Of the other class: its type was changed when it had values.
    let opaque = Lineage::of_column(of("other.single.pay").number(), Class::Opaque);
    assert!(may_be(opaque));
    for other in ["other.single.name", "other.single.note"] {
        assert!(!may_be(of(other)), "{other}");
    }
    // Names that a column may have had before, or whose values may have filled it.
    for former in ["public.staff.name", "other.single.wage", "other.gone.pay"] {
        assert!(may_be(of(former)), "{former}");
    }
    assert!(!catalog.may_be_of(&[], of("other.single.pay")), "computed");
}

#[test]
fn what_a_statement_does_with_a_named_query_is_known() {
    let of = |sql: &str| plan(sql, &names(), 0).unwrap().pop().unwrap().named;
    let cursor = |name: &str| QueryName::Cursor(name.to_owned());
    let prepared = |name: &str| QueryName::Prepared(name.to_owned());
    let named = |name, is_held| NamedUse::Names { name, is_held };
    for (sql, expected) in [
        (
            "DECLARE c CURSOR FOR SELECT pay FROM other.single",
            named(cursor("c"), false),
        ),
        (
            "DECLARE C NO SCROLL CURSOR WITH HOLD FOR SELECT pay FROM other.single",
            named(cursor("c"), true),
        ),
        ("FETCH 5 FROM c", NamedUse::Runs(cursor("c"))),
        ("FETCH ALL IN \"C\"", NamedUse::Runs(cursor("C"))),
        ("CLOSE c", NamedUse::Ends(cursor("c"))),
        ("CLOSE ALL", NamedUse::EndsCursors),
        (
            "PREPARE P (int) AS SELECT pay FROM other.single WHERE id = $1",
            named(prepared("p"), true),
        ),
        ("EXECUTE p (5)", NamedUse::Runs(prepared("p"))),
        ("DEALLOCATE PREPARE p", NamedUse::Ends(prepared("p"))),
        ("DEALLOCATE ALL", NamedUse::EndsPrepared),
        ("DISCARD ALL", NamedUse::EndsAll),
    ] {
        assert_eq!(of(sql), Some(expected), "{sql}");
    }
    for sql in [
        "DISCARD PLANS",
        "DISCARD SEQUENCES",
        "DISCARD TEMP",
        "SELECT pay FROM other.single",
    ] {
        assert_eq!(of(sql), None, "{sql}");
    }
}

/// A row, and whatever else holds confidential values without being one, is of another type.
#[test]
fn of_rows_nothing_is_expected() {
    for sql in [
        "SELECT p FROM p",
        "SELECT s FROM (SELECT id, name FROM p) s",
        "SELECT ROW(id, name) FROM p",
        "SELECT (id, name) FROM p",
    ] {
        let plans = plan(sql, &shop(), 0).unwrap();
        let mut expected = plans.iter().flat_map(|plan| plan.expected.iter());
        assert!(!expected.any(|one| one.origins.is_some()), "{sql}");
    }
    // Which of the columns is the constant, the server decides.
    let sql = "SELECT o.*, '5' FROM other.p o UNION SELECT id, name, amount FROM q";
    let plans = plan(sql, &shop(), 0).unwrap();
    let plain = plans.iter().flat_map(|plan| plan.expected.iter().take(2));
    assert!(plain.clone().all(|one| one.origins.is_none()), "{plans:?}");
}
