//! Which constants and parameters are sealed for which ordered column, so that the zone stores them
//! there and nowhere else.

use std::sync::Arc;

use strongroom_columns_envelope::lineage_by_name;
use strongroom_format::columns::{Class, Lineage};

use super::*;
use crate::sql::comparable::{Names, parse_adopted, parse_adopted_database};

/// A database `shop` with a table whose columns `name` and `pay` are ordered, a partition of a
/// partitioned table, and two tables of one name.
pub(super) fn names() -> Catalog {
    let mut rows = catalog_rows(&[]);
    let ordered = Class::Ordered.modifier().to_string();
    let kind = |kind: Kind| (90_000 + u32::from(kind.number())).to_string();
    let mut add = |schema: &str, table: &str, columns: &[(&str, Option<Kind>, &str)]| {
        for (at, (column, of, modifier)) in (1..).zip(columns) {
            let place = format!("{at:05}");
            let oid = of.map_or("25".to_owned(), kind);
            let relkind = if table == "view" { "v" } else { "own" };
            let relation = (schema.len() * 100 + table.len()).to_string();
            let fields = [
                "r", schema, table, &place, column, &oid, &relation, modifier, relkind,
            ];
            rows.push(fields.map(|field| Some(field.to_owned())).to_vec());
        }
    };
    let columns = [
        ("id", None, "-1"),
        ("name", Some(Kind::Text), &*ordered),
        ("pay", Some(Kind::Int8), &*ordered),
        ("note", Some(Kind::Text), "-1"),
    ];
    add("public", "staff", &columns);
    add("other", "staff", &columns);
    add("other", "single", &columns);
    add("pg_temp_3", "draft", &columns);
    add("public", "part_1", &columns);
    add("public", "view", &columns);
    add(
        "public",
        "changing",
        &[
            ("id", None, "-1"),
            ("pay", None, "-1"),
            ("strongroom~2", Some(Kind::Int8), &ordered),
        ],
    );
    let mut row =
        |fields: [&str; 5]| rows.push(fields.map(|field| Some(field.to_owned())).to_vec());
    row(["h", "public", "part_1", "public", "parted"]);
    row(["s", "", "public", "", ""]);
    let mut catalog = Catalog::from_rows(&rows);
    catalog.set_names(Arc::new(Names {
        database: "shop".to_owned(),
        ..Names::default()
    }));
    catalog
}

/// The lineage of a column by its name, `schema.relation.column`.
pub(super) fn of(path: &str) -> Lineage {
    of_database("shop", path)
}

/// The lineage of a column of another database by its name.
fn of_database(database: &str, path: &str) -> Lineage {
    let parts: Vec<&str> = path.split('.').collect();
    lineage_by_name(Class::Ordered, [database, parts[0], parts[1], parts[2]])
}

/// What the last statement's constants and parameters are sealed for: `value -> column`, in order.
#[track_caller]
fn sealed_for(catalog: &Catalog, sql: &str) -> Vec<(String, Lineage)> {
    let plans = plan(sql, catalog, 0).unwrap_or_else(|refusal| panic!("{sql}: {refusal}"));
    let plan = plans.last().unwrap();
    let constants = plan.constants.iter().map(|constant| {
        let lineage = constant.column.map(|column| column.lineage);
        let lineage = lineage.unwrap_or(Lineage::CLIENT);
        ((*constant.literal.text).clone(), lineage)
    });
    let parameters = plan.confidential.iter().map(|number| {
        let lineage = plan.stored.get(number).map(|column| column.lineage);
        (format!("${number}"), lineage.unwrap_or(Lineage::CLIENT))
    });
    constants.chain(parameters).collect()
}

#[track_caller]
fn seals(sql: &str, expected: &[(&str, &str)]) {
    let expected: Vec<(String, Lineage)> = expected
        .iter()
        .map(|(value, path)| {
            let lineage = match *path {
                "" => Lineage::CLIENT,
                path => of(path),
            };
            ((*value).to_owned(), lineage)
        })
        .collect();
    assert_eq!(sealed_for(&names(), sql), expected, "{sql}");
}

/// As many rows as a driver may have parameters for. What is done for each does not grow with those
/// before it: this would not end.
#[test]
fn as_many_values_as_a_statement_may_have() {
    let row = |number: usize| format!("(${number})");
    let rows: Vec<String> = (1..=65_535).map(row).collect();
    let rows = rows.join(", ");
    for sql in [
        format!("VALUES {rows}"),
        format!("INSERT INTO public.staff (pay) VALUES {rows}"),
        format!("SELECT coalesce({})", rows),
    ] {
        let plans = plan(&sql, &names(), 0).unwrap();
        let stores = sql.starts_with("INSERT");
        assert_eq!(plans[0].stored.len(), if stores { 65_535 } else { 0 });
    }
}

/// What a value is compared with before it is stored is no value of the column.
#[test]
fn what_is_only_compared_is_not_sealed_for_the_column() {
    seals(
        "INSERT INTO public.staff (pay) SELECT 7 WHERE 7 BETWEEN 1000 AND 20000",
        &[("7", PAY)],
    );
    seals(
        "INSERT INTO public.staff (pay) SELECT $1 WHERE $1 BETWEEN 1000 AND 20000",
        &[("1000", ""), ("20000", ""), ("$1", PAY)],
    );
    seals(
        "MERGE INTO public.staff USING (VALUES (5000)) m(k) ON pay = k WHEN MATCHED AND k > 100 THEN UPDATE SET pay = k",
        &[("5000", PAY), ("100", "")],
    );
    // What is stored as it is, or not at all.
    seals(
        "INSERT INTO public.staff (pay) VALUES (nullif($1, 0)), (7)",
        &[("0", ""), ("7", PAY), ("$1", PAY)],
    );
    seals(
        "INSERT INTO public.staff (pay) SELECT unnest($1::int[])",
        &[("$1", PAY)],
    );
    // What is computed is none of its operands; one of several is each of them.
    seals(
        "UPDATE public.staff SET pay = 5 + $1",
        &[("5", ""), ("$1", "")],
    );
    seals(
        "UPDATE public.staff SET pay = CASE WHEN id > 5 THEN 5 ELSE coalesce($1, 6) END",
        &[("5", PAY), ("6", PAY), ("$1", PAY)],
    );
}

const NAME: &str = "public.staff.name";
const PAY: &str = "public.staff.pay";

#[test]
fn what_is_stored_names_its_column_and_what_is_compared_does_not() {
    for insert in [
        "INSERT INTO public.staff VALUES (1, 'a', 5, 'x')",
        "INSERT INTO public.staff AS s (id, name, pay, note) VALUES (1, 'a', 5, 'x')",
        "INSERT INTO public.staff SELECT 1, 'a', 5, 'x'",
        "MERGE INTO public.staff USING (SELECT 1 AS k) m ON id = k WHEN NOT MATCHED THEN INSERT VALUES (1, 'a', 5, 'x')",
    ] {
        seals(insert, &[("a", NAME), ("5", PAY), ("x", "")]);
    }
    seals(
        "INSERT INTO public.staff (pay, id, name) VALUES ($1, $2, $3)",
        &[("$1", PAY), ("$3", NAME)],
    );
    seals(
        "UPDATE public.staff SET name = 'b', note = 'y' WHERE name = 'a' AND pay < 7",
        &[("b", NAME), ("y", ""), ("a", ""), ("7", "")],
    );
    seals(
        "UPDATE public.staff SET (name, pay) = ('b', $1) WHERE pay = $2",
        &[("b", NAME), ("$1", PAY), ("$2", "")],
    );
    seals(
        "INSERT INTO public.staff VALUES (1, 'a', 5, 'x') ON CONFLICT (id) DO UPDATE SET name = 'c' WHERE staff.pay > 9",
        &[("a", NAME), ("5", PAY), ("x", ""), ("c", NAME), ("9", "")],
    );
    seals(
        "INSERT INTO public.staff SELECT 1, p0, p1 FROM (VALUES ($1, $2)) AS v(p0, p1)",
        &[("$1", NAME), ("$2", PAY)],
    );
    seals(
        "UPDATE public.staff SET name = CASE WHEN id = 1 THEN 'b' ELSE coalesce(name, 'c') END, pay = greatest(pay, $1)",
        &[("b", NAME), ("c", NAME), ("$1", PAY)],
    );
    seals(
        "INSERT INTO public.staff VALUES (1, 'a'::enc_text, 5, 'x'::enc_text(ordered))",
        &[("a", NAME), ("5", PAY), ("x", "")],
    );
    seals(
        "INSERT INTO public.staff (name, pay) SELECT * FROM unnest('{a}'::enc_text[], $1::enc_int8[])",
        &[("{a}", NAME), ("$1", PAY)],
    );
    seals(
        "INSERT INTO public.staff (name) SELECT p0::enc_text FROM (VALUES ($1), ($2)) AS v(p0)",
        &[("$1", NAME), ("$2", NAME)],
    );
    seals(
        "UPDATE public.staff SET pay = pay + 5, name = name || 'x'",
        &[("5", ""), ("x", "")],
    );
    seals("SELECT 1 FROM public.staff WHERE name = 'a'", &[("a", "")]);
    seals("DELETE FROM public.staff WHERE name = $1", &[("$1", "")]);
}

/// Sealed for one of several columns, it could not be stored in the others.
#[test]
fn what_is_stored_in_several_columns_names_none() {
    seals(
        "INSERT INTO public.staff (name, note) VALUES ($1, $1)",
        &[("$1", NAME)],
    );
    seals(
        "UPDATE public.staff SET pay = $1 FROM other.single o WHERE o.pay = $1",
        &[("$1", PAY)],
    );
    let with = "WITH a AS (INSERT INTO public.staff (pay) VALUES ($1)) INSERT INTO other.single (pay) VALUES ($1)";
    seals(with, &[("$1", "")]);
    // Two constants that are written alike are two.
    seals(
        "WITH a AS (INSERT INTO public.staff (pay) VALUES (5)) INSERT INTO other.single (pay) VALUES (5)",
        &[("5", PAY), ("5", "other.single.pay")],
    );
}

#[test]
fn the_name_is_that_of_the_table_that_is_meant() {
    seals(
        "UPDATE other.staff SET pay = 5",
        &[("5", "other.staff.pay")],
    );
    seals("UPDATE single SET pay = 5", &[("5", "other.single.pay")]);
    seals("UPDATE draft SET pay = 5", &[("5", "pg_temp.draft.pay")]);
    seals("UPDATE part_1 SET pay = 5", &[("5", "public.parted.pay")]);
    seals("UPDATE public.view SET pay = 5", &[("5", "")]);
    // A conversion fills the column that replaces another one.
    seals(
        "UPDATE changing SET \"strongroom~2\" = $1",
        &[("$1", "public.changing.pay")],
    );
    // As the server makes it in the same query.
    seals(
        "CREATE TABLE fresh (v enc_int8(ordered), w enc_int8, x enc_text('ordered')); INSERT INTO fresh VALUES (5, 6, 'x')",
        &[("5", "public.fresh.v"), ("6", ""), ("x", "public.fresh.x")],
    );
    seals(
        "DROP TABLE single; CREATE TABLE other.single (pay enc_int8(ordered)); INSERT INTO single VALUES (5)",
        &[("5", "other.single.pay")],
    );
    seals(
        "CREATE TABLE IF NOT EXISTS other.single (pay enc_int8(ordered)); INSERT INTO single VALUES (5)",
        &[("5", "")],
    );
    seals(
        "CREATE TEMP TABLE fresh (v enc_numeric(12, 2, ordered)); INSERT INTO fresh VALUES (5)",
        &[("5", "pg_temp.fresh.v")],
    );
}

#[test]
fn copy_seals_for_the_columns_of_its_table() {
    let lineages = |sql: &str| -> Vec<Option<Lineage>> {
        let plans = plan(sql, &names(), 0).unwrap();
        let copy = plans[0].copy.clone().unwrap();
        let columns = copy.columns.unwrap();
        columns
            .iter()
            .map(|column| Some(column.as_ref()?.comparable?.lineage))
            .collect()
    };
    assert_eq!(
        lineages("COPY public.staff FROM STDIN"),
        [None, Some(of(NAME)), Some(of(PAY)), None]
    );
    assert_eq!(
        lineages("COPY public.staff (note, pay) FROM STDIN"),
        [None, Some(of(PAY))]
    );
}

#[test]
fn a_renamed_column_keeps_the_lineage_that_its_owner_says() {
    let mut catalog = names();
    let adopted = [
        "public.staff.pay=public.people.salary",
        "public.parted.pay=archive.old.t.c",
    ];
    let adopted = adopted.map(|text| parse_adopted(text).unwrap()).into();
    let none = BTreeMap::new();
    catalog.set_names(Arc::new(Names::new("shop".to_owned(), &none, &adopted)));
    let stored = "UPDATE public.staff SET pay = 5, name = 'a'";
    let found = sealed_for(&catalog, stored);
    assert_eq!(found[0].1, of("public.people.salary"));
    assert_eq!(found[1].1, of(NAME));
    let found = sealed_for(&catalog, "UPDATE part_1 SET pay = 5");
    assert_eq!(found[0].1, of_database("archive", "old.t.c"));
    // The database had another name, too.
    let databases = [parse_adopted_database("shop=store").unwrap()].into();
    let names = Names::new("shop".to_owned(), &databases, &adopted);
    catalog.set_names(Arc::new(names));
    let found = sealed_for(&catalog, stored);
    assert_eq!(found[0].1, of_database("store", "public.people.salary"));
    assert_eq!(found[1].1, of_database("store", NAME));
    let found = sealed_for(&catalog, "UPDATE part_1 SET pay = 5");
    assert_eq!(found[0].1, of_database("archive", "old.t.c"));
    for bad in ["a", "=a", "a=", "="] {
        assert_eq!(parse_adopted_database(bad), None, "{bad}");
    }
    for bad in [
        "a.b.c",
        "a.b=a.b.c",
        "a.b.c=a.b",
        "a.b.c.d=a.b.c",
        "a.b.c=a.b.c.d.e",
        "a.b.c=.a.b.c",
        "a..c=a.b.c",
        "=",
        "",
    ] {
        assert_eq!(parse_adopted(bad), None, "{bad}");
    }
}
