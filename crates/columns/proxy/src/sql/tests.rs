//! The resolver on many statements: which constants become parameters, and what the text is then.

mod arrays;
mod benchmarks;
mod conditions;
mod kept;
mod leaks;
mod lineages;
mod nested;
mod results;
mod stars;
mod statements;
mod unread;

use super::*;

/// The catalog of a database: `table(column kind, ..)`, a column without a kind is plain.
pub(crate) fn catalog(tables: &[&str]) -> Catalog {
    Catalog::from_rows(&catalog_rows(tables))
}

/// The rows that the server gives of it.
pub(crate) fn catalog_rows(tables: &[&str]) -> Vec<Vec<Option<String>>> {
    let mut rows = Vec::new();
    let row = |fields: [&str; 6]| -> Vec<Option<String>> {
        fields
            .iter()
            .map(|field| Some((*field).to_owned()))
            .collect()
    };
    let oid = |kind: Kind| 90_000 + u32::from(kind.number());
    for kind in Kind::ALL {
        let (name, oid, array) = (
            format!("enc_{}", kind.base()),
            oid(*kind).to_string(),
            (oid(*kind) + 100).to_string(),
        );
        rows.push(row(["t", "strongroom_columns", &name, &oid, &array, ""]));
    }
    for table in tables {
        let (name, columns) = table.split_once('(').unwrap();
        let (schema, name) = name.split_once('.').unwrap_or(("public", name));
        for (at, column) in columns.trim_end_matches(')').split(',').enumerate() {
            let (column, kind) = column
                .trim()
                .split_once(' ')
                .unwrap_or_else(|| (column.trim(), ""));
            let kind = Kind::ALL.iter().find(|known| known.base() == kind);
            let type_oid = kind.map_or(25, |kind| oid(*kind)).to_string();
            rows.push(row([
                "r",
                schema,
                name,
                &format!("{at:05}"),
                column,
                &type_oid,
            ]));
        }
    }
    rows.push(row(["r", "pg_catalog", "pg_class", "", "", ""]));
    rows.push(row([
        "f",
        "public",
        "enc_function",
        "",
        "",
        &oid(Kind::Text).to_string(),
    ]));
    rows
}

fn shop() -> Catalog {
    catalog(&[
        "p(id, name text, salary numeric, age int4, born date, at timestamptz, ok bool, score float8, data bytea, note)",
        "q(id, name, amount int8)",
        "plain(id, name, n)",
        "v(id, vname text)",
        "other.p(id, name)",
        "other.only(id, c text)",
        "hours(id, opens time, badge uuid, doc jsonb)",
    ])
}

/// A confidential column of a COPY whose values are for no ordered column.
pub(super) const fn stored(kind: Kind) -> Option<CopyColumn> {
    Some(CopyColumn {
        kind,
        comparable: None,
    })
}

/// The text that the server gets and the constants, as `number=value`.
fn planned(sql: &str) -> (String, Vec<String>) {
    let mut plans = plan(sql, &shop(), 0).unwrap_or_else(|refusal| panic!("{sql}: {refusal}"));
    assert_eq!(plans.len(), 1, "{sql}");
    let plan = plans.pop().unwrap();
    let constants = plan
        .constants
        .iter()
        .map(|constant| format!("{}={}", constant.number, *constant.literal.text));
    (plan.sql, constants.collect())
}

#[track_caller]
fn becomes(sql: &str, expected: &str, constants: &[&str]) {
    let (text, found) = planned(sql);
    // Written as the parser's writer writes it; the schema is left out for the reader's sake.
    let tree = pg_query::parse(expected, pg_query::ParserOptions::default())
        .unwrap()
        .protobuf;
    let expected = tree.deparse(pg_query::DeparseOptions::default()).unwrap();
    assert_eq!(text.replace("strongroom_columns.", ""), expected, "{sql}");
    assert_eq!(found, constants, "{sql}");
}

#[track_caller]
fn stays(sql: &str) {
    let (text, constants) = planned(sql);
    assert_eq!((text.as_str(), constants.len()), (sql, 0), "{sql}");
}

#[track_caller]
fn refused(sql: &str) -> Refusal {
    match plan(sql, &shop(), 0) {
        Err(refusal) => refusal,
        Ok(plans) => panic!(
            "{sql}: {:?}",
            plans.iter().map(|plan| &plan.sql).collect::<Vec<_>>()
        ),
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn comparisons() {
    becomes(
        "SELECT id FROM p WHERE name = 'x'",
        "SELECT id FROM p WHERE name = $1",
        &["1=x"],
    );
    becomes(
        "SELECT id FROM p WHERE 'x' = name",
        "SELECT id FROM p WHERE $1 = name",
        &["1=x"],
    );
    becomes(
        "SELECT id FROM p WHERE p.name <> 'x' AND id = 5",
        "SELECT id FROM p WHERE p.name <> $1 AND id = 5",
        &["1=x"],
    );
    becomes(
        "SELECT id FROM p a WHERE a.age >= -5",
        "SELECT id FROM p a WHERE a.age >= $1",
        &["1=-5"],
    );
    becomes(
        "SELECT id FROM p WHERE age > 1.5",
        "SELECT id FROM p WHERE age > $1::enc_numeric",
        &["1=1.5"],
    );
    becomes(
        "SELECT id FROM p WHERE age > 5000000000",
        "SELECT id FROM p WHERE age > $1::enc_int8",
        &["1=5000000000"],
    );
    becomes(
        "SELECT id FROM p WHERE salary > 5",
        "SELECT id FROM p WHERE salary > $1",
        &["1=5"],
    );
    becomes(
        "SELECT id FROM p WHERE score > 5.5",
        "SELECT id FROM p WHERE score > $1",
        &["1=5.5"],
    );
    becomes(
        "SELECT id FROM p WHERE ok = true",
        "SELECT id FROM p WHERE ok = $1",
        &["1=t"],
    );
    becomes(
        "SELECT id FROM p WHERE name LIKE 'a%'",
        "SELECT id FROM p WHERE name LIKE $1",
        &["1=a%"],
    );
    becomes(
        "SELECT id FROM p WHERE name NOT ILIKE 'a%'",
        "SELECT id FROM p WHERE name NOT ILIKE $1",
        &["1=a%"],
    );
    becomes(
        "SELECT id FROM p WHERE name IS DISTINCT FROM 'a'",
        "SELECT id FROM p WHERE name IS DISTINCT FROM $1",
        &["1=a"],
    );
    becomes(
        "SELECT id FROM p WHERE age IN (1, 2)",
        "SELECT id FROM p WHERE age IN ($1, $2)",
        &["1=1", "2=2"],
    );
    becomes(
        "SELECT id FROM p WHERE age BETWEEN 1 AND 2",
        "SELECT id FROM p WHERE age BETWEEN $1 AND $2",
        &["1=1", "2=2"],
    );
    // Two parameters without a type would have nothing to get one from.
    becomes(
        "SELECT id FROM p WHERE -7 BETWEEN 2 AND age",
        "SELECT id FROM p WHERE $1::enc_int4 BETWEEN $2::enc_int4 AND age",
        &["1=-7", "2=2"],
    );
    becomes(
        "SELECT id FROM p WHERE 7 IN (age, id)",
        "SELECT id FROM p WHERE $1 IN (age, id)",
        &["1=7"],
    );
    becomes(
        "SELECT id FROM p WHERE (name, age) = ('x', 3)",
        "SELECT id FROM p WHERE (name, age) = ($1, $2)",
        &["1=x", "2=3"],
    );
    becomes(
        "SELECT id FROM p WHERE (id, name) IN ((1, 'a'), (2, 'b'))",
        "SELECT id FROM p WHERE (id, name) IN ((1, $1), (2, $2))",
        &["1=a", "2=b"],
    );
    becomes(
        "SELECT id FROM p WHERE name = ANY (ARRAY['a', 'b'])",
        "SELECT id FROM p WHERE name = ANY(ARRAY[$1::enc_text, $2::enc_text])",
        &["1=a", "2=b"],
    );
    becomes(
        "SELECT id FROM p WHERE name = ANY ('{a,b}')",
        "SELECT id FROM p WHERE name = ANY($1)",
        &["1={a,b}"],
    );
    becomes(
        "SELECT id FROM p WHERE name = NULL",
        "SELECT id FROM p WHERE name = NULL",
        &[],
    );
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn literals_in_every_spelling() {
    becomes(
        "SELECT id FROM p WHERE name = E'a\\nb'",
        "SELECT id FROM p WHERE name = $1",
        &["1=a\nb"],
    );
    becomes(
        "SELECT id FROM p WHERE name = $q$it's$q$",
        "SELECT id FROM p WHERE name = $1",
        &["1=it's"],
    );
    becomes(
        "SELECT id FROM p WHERE name = U&'\\0041'",
        "SELECT id FROM p WHERE name = $1",
        &["1=A"],
    );
    becomes(
        "SELECT id FROM p WHERE name = 'a'\n'b'",
        "SELECT id FROM p WHERE name = $1",
        &["1=ab"],
    );
    becomes(
        "SELECT id FROM p WHERE age = -(5)",
        "SELECT id FROM p WHERE age = $1",
        &["1=-5"],
    );
    becomes(
        "SELECT id FROM p WHERE age = - 5 /* 5 */ -- 5",
        "SELECT id FROM p WHERE age = $1",
        &["1=-5"],
    );
    becomes(
        "SELECT id FROM p WHERE born < date '1998-12-01'",
        "SELECT id FROM p WHERE born < $1::enc_date",
        &["1=1998-12-01"],
    );
    becomes(
        "SELECT id FROM p WHERE born < '1998-12-01'::date",
        "SELECT id FROM p WHERE born < $1::enc_date",
        &["1=1998-12-01"],
    );
    becomes(
        "SELECT id FROM p WHERE born < CAST('1998-12-01' AS date)",
        "SELECT id FROM p WHERE born < $1::enc_date",
        &["1=1998-12-01"],
    );
    becomes(
        "SELECT id FROM p WHERE born < '1998-12-01'",
        "SELECT id FROM p WHERE born < $1",
        &["1=1998-12-01"],
    );
    becomes(
        "SELECT id FROM p WHERE name = 'abcdef'::varchar(3)",
        "SELECT id FROM p WHERE name = $1::enc_text",
        &["1=abc"],
    );
    becomes(
        "SELECT id FROM p WHERE at > timestamptz '2020-01-01 00:00+00'",
        "SELECT id FROM p WHERE at > $1::enc_timestamptz",
        &["1=2020-01-01 00:00+00"],
    );
    assert!(
        refused("SELECT id FROM p WHERE name = B'101'")
            .message
            .contains("SR-8101")
    );
    assert!(
        refused("SELECT id FROM p WHERE born < interval '1:30' hour to minute + born")
            .message
            .contains("1:30")
    );
    assert!(
        refused("SELECT id FROM p WHERE name = 'x'::json")
            .message
            .contains("json")
    );
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn expressions() {
    becomes(
        "SELECT salary * 2 FROM p",
        "SELECT salary * $1 FROM p",
        &["1=2"],
    );
    becomes(
        "SELECT salary * (1 - score) FROM p",
        "SELECT salary * ($1 - score) FROM p",
        &["1=1"],
    );
    becomes(
        "SELECT id FROM p WHERE salary + 1 > 2 * 3",
        "SELECT id FROM p WHERE (salary + $1) > $2",
        &["1=1", "2=6"],
    );
    becomes(
        "SELECT born + interval '90' day FROM p",
        "SELECT born + $1::enc_interval FROM p",
        &["1=90 day"],
    );
    becomes(
        "SELECT born + 5 FROM p",
        "SELECT born + $1::enc_int4 FROM p",
        &["1=5"],
    );
    becomes(
        "SELECT name || 'x' FROM p",
        "SELECT name || $1 FROM p",
        &["1=x"],
    );
    becomes(
        "SELECT coalesce(name, 'none') FROM p",
        "SELECT COALESCE(name, $1) FROM p",
        &["1=none"],
    );
    becomes(
        "SELECT nullif(age, 0), greatest(age, 1) FROM p",
        "SELECT NULLIF(age, $1), GREATEST(age, $2) FROM p",
        &["1=0", "2=1"],
    );
    becomes(
        "SELECT replace(name, 'a', 'b') FROM p",
        "SELECT replace(name, $1, $2) FROM p",
        &["1=a", "2=b"],
    );
    becomes(
        "SELECT string_agg(name, ', ') FROM p",
        "SELECT string_agg(name, $1) FROM p",
        &["1=, "],
    );
    becomes(
        "SELECT lag(age, 1, 0) OVER (ORDER BY id) FROM p",
        "SELECT lag(age, 1, $1) OVER (ORDER BY id) FROM p",
        &["1=0"],
    );
    becomes(
        "SELECT extract(year FROM born) = 1995 FROM p",
        "SELECT \"extract\"('year', born) = $1 FROM p",
        &["1=1995"],
    );
    becomes(
        "SELECT date_trunc('day', at AT TIME ZONE 'UTC'), date_trunc('day', at, 'UTC') FROM p",
        "SELECT date_trunc('day', timezone($1::enc_text, at)), date_trunc('day', at, $1::enc_text) FROM p",
        &["1=UTC"],
    );
    becomes(
        "SELECT at < date_trunc('day', now() AT TIME ZONE 'UTC') FROM p",
        "SELECT at < date_trunc('day', timezone($1::enc_text, $2::enc_timestamptz)) FROM p",
        &["1=UTC", "2=now()"],
    );
    // Lengths and numbers of fields are no data, in any function that the extension has.
    becomes(
        "SELECT lpad(name, 5, 'x'), rpad(name, 5), split_part(name, ',', 2) FROM p",
        "SELECT lpad(name, 5, $1), rpad(name, 5), split_part(name, $2, 2) FROM p",
        &["1=x", "2=,"],
    );
    becomes(
        "SELECT substring(name FROM 1 FOR 2) FROM p",
        "SELECT \"substring\"(name, 1, 2) FROM p",
        &[],
    );
    becomes(
        "SELECT position('a' IN name) FROM p",
        "SELECT strpos(name, $1::enc_text) AS \"position\" FROM p",
        &["1=a"],
    );
    stays("SELECT round(salary, 2), left(name, 3) FROM p");
    becomes(
        "SELECT age::numeric, name::varchar(3), salary::numeric(10,2) FROM p",
        "SELECT age::enc_numeric, \"left\"(name, 3)::enc_text AS name, salary::enc_numeric(10, 2) FROM p",
        &[],
    );
}

#[test]
fn arithmetic_between_constants_is_done_here() {
    becomes(
        "SELECT id FROM p WHERE born < date '1993-07-01' + interval '3' month",
        "SELECT id FROM p WHERE born < $1::enc_date",
        &["1=1993-10-01"],
    );
    becomes(
        "SELECT id FROM p WHERE born < date '1993-07-01' + interval '3 hours'",
        "SELECT id FROM p WHERE born < $1::enc_timestamp",
        &["1=1993-07-01 03:00:00"],
    );
    becomes(
        "SELECT coalesce(born, date '1993-07-01' + interval '3' month) FROM p",
        "SELECT COALESCE(born, $1::enc_timestamp) FROM p",
        &["1=1993-10-01 00:00:00"],
    );
    becomes(
        "SELECT id FROM p WHERE salary BETWEEN .06 - 0.01 AND .06 + 0.01",
        "SELECT id FROM p WHERE salary BETWEEN $1 AND $2",
        &["1=0.05", "2=0.07"],
    );
    becomes(
        "SELECT id FROM p WHERE age < 2147483647 + 1",
        "SELECT id FROM p WHERE age < ($1::enc_int4 + $2::enc_int4)",
        &["1=2147483647", "2=1"],
    );
    stays("SELECT 1 + 2 FROM p WHERE id < 3 * 4");
}

#[test]
fn case_and_its_results() {
    becomes(
        "SELECT CASE WHEN name = 'x' THEN 'yes' ELSE 'no' END FROM p",
        "SELECT CASE WHEN name = $1 THEN 'yes' ELSE 'no' END FROM p",
        &["1=x"],
    );
    becomes(
        "SELECT CASE WHEN id = 1 THEN salary ELSE 0 END FROM p",
        "SELECT CASE WHEN id = 1 THEN salary ELSE $1 END FROM p",
        &["1=0"],
    );
    becomes(
        "SELECT CASE name WHEN 'x' THEN 1 END FROM p",
        "SELECT CASE name WHEN $1 THEN 1 END FROM p",
        &["1=x"],
    );
    becomes(
        "SELECT id FROM p WHERE name = CASE WHEN id = 1 THEN 'a' ELSE 'b' END",
        "SELECT id FROM p WHERE name = CASE WHEN id = 1 THEN $1::enc_text ELSE $2::enc_text END",
        &["1=a", "2=b"],
    );
}

#[test]
fn what_is_plain_stays() {
    for sql in [
        "SELECT id FROM plain WHERE name = 'x'",
        "SELECT note || 'x' FROM p WHERE id = 7 AND note LIKE 'a%'",
        "SELECT count(name) > 5 FROM p",
        "SELECT 'label', name FROM p ORDER BY 2 LIMIT 10 OFFSET 5",
        "SELECT name FROM p GROUP BY 1",
        "SELECT row_number() OVER (ORDER BY name) - 1 FROM p",
        "SELECT name IS NULL OR id = 4 FROM p",
        "SELECT 1 + 2",
        "SELECT relname FROM pg_class WHERE relname = 'x'",
        "SELECT q.amount FROM p, q WHERE p.id = q.id AND q.name = 'x'",
        "UPDATE p SET note = 'x' WHERE id = 3",
        "INSERT INTO p (id, note) VALUES (1, 'x')",
        "SELECT * FROM generate_series(1, 10) AS g(i) WHERE i = 3",
        "SET application_name TO 'x'",
        "BEGIN",
        "VACUUM p",
        "CREATE TABLE t2 (id int DEFAULT 5, c strongroom_columns.enc_text)",
        "CREATE INDEX ON p (name) WHERE id > 5",
        "COMMENT ON TABLE p IS 'people'",
    ] {
        stays(sql);
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn scopes() {
    becomes(
        "SELECT 1 FROM p JOIN plain ON p.id = plain.id WHERE salary > 3 AND n = 4",
        "SELECT 1 FROM p JOIN plain ON p.id = plain.id WHERE salary > $1 AND n = 4",
        &["1=3"],
    );
    becomes(
        "SELECT s.x FROM (SELECT name AS x FROM p) s WHERE s.x = 'a'",
        "SELECT s.x FROM (SELECT name AS x FROM p) s WHERE s.x = $1",
        &["1=a"],
    );
    becomes(
        "SELECT * FROM (SELECT id, name FROM p) s(a, b) WHERE b = 'a' AND a = 1",
        "SELECT * FROM (SELECT id, name FROM p) s(a, b) WHERE b = $1 AND a = 1",
        &["1=a"],
    );
    becomes(
        "SELECT * FROM (SELECT * FROM p) s WHERE age = 1",
        "SELECT * FROM (SELECT * FROM p) s WHERE age = $1",
        &["1=1"],
    );
    becomes(
        "WITH c AS (SELECT name n FROM p) SELECT * FROM c WHERE n = 'a'",
        "WITH c AS (SELECT name n FROM p) SELECT * FROM c WHERE n = $1",
        &["1=a"],
    );
    becomes(
        "WITH c(k) AS (SELECT 'a') SELECT * FROM c, p WHERE k = name",
        "WITH c(k) AS (SELECT $1::enc_text) SELECT * FROM c, p WHERE k = name",
        &["1=a"],
    );
    becomes(
        "WITH RECURSIVE r(n, d) AS (SELECT name, 0 FROM p UNION ALL SELECT n || 'x', d + 1 FROM r WHERE d < 5) SELECT * FROM r",
        "WITH RECURSIVE r(n, d) AS (SELECT name, 0 FROM p UNION ALL SELECT n || $1, d + 1 FROM r WHERE d < 5) SELECT * FROM r",
        &["1=x"],
    );
    becomes(
        "SELECT id FROM plain WHERE EXISTS (SELECT 1 FROM p WHERE p.id = plain.id AND name = 'a' AND n = 3)",
        "SELECT id FROM plain WHERE EXISTS (SELECT 1 FROM p WHERE p.id = plain.id AND name = $1 AND n = 3)",
        &["1=a"],
    );
    becomes(
        "SELECT id FROM plain WHERE 'a' = (SELECT name FROM p LIMIT 1)",
        "SELECT id FROM plain WHERE $1 = (SELECT name FROM p LIMIT 1)",
        &["1=a"],
    );
    becomes(
        "SELECT id FROM plain WHERE 'a' IN (SELECT name FROM p)",
        "SELECT id FROM plain WHERE $1 IN (SELECT name FROM p)",
        &["1=a"],
    );
    becomes(
        "SELECT 1 FROM plain, LATERAL (SELECT age + 1 AS y FROM p WHERE p.id = plain.id) l WHERE l.y = 4",
        "SELECT 1 FROM plain, LATERAL (SELECT age + $1 AS y FROM p WHERE p.id = plain.id) l WHERE l.y = $2",
        &["1=1", "2=4"],
    );
    becomes(
        "SELECT name FROM p UNION SELECT 'a'",
        "SELECT name FROM p UNION SELECT $1::enc_text",
        &["1=a"],
    );
    becomes(
        "SELECT * FROM (VALUES ('a'), ('b')) t(x), p WHERE x = name",
        "SELECT * FROM (VALUES ($1::enc_text), ($2::enc_text)) t(x), p WHERE x = name",
        &["1=a", "2=b"],
    );
    becomes(
        "SELECT vname FROM v WHERE vname = 'x'",
        "SELECT vname FROM v WHERE vname = $1",
        &["1=x"],
    );
    becomes(
        "SELECT c FROM other.only WHERE c = 'x'",
        "SELECT c FROM other.only WHERE c = $1",
        &["1=x"],
    );
    stays("SELECT name FROM other.p WHERE name = 'x'");
    becomes(
        "SELECT j.name FROM (p JOIN plain USING (id)) AS j WHERE j.salary = 1",
        "SELECT j.name FROM (p JOIN plain USING (id)) j WHERE j.salary = $1",
        &["1=1"],
    );
    becomes(
        "SELECT age % 10, count(*) FROM p GROUP BY age % 10 HAVING sum(salary) > 5 ORDER BY age % 10",
        "SELECT age % $1, count(*) FROM p GROUP BY age % $1 HAVING sum(salary) > $2 ORDER BY age % $1",
        &["1=10", "2=5"],
    );
}

#[test]
fn names_that_are_not_known_count_as_confidential() {
    let plans = plan("SELECT x FROM nowhere WHERE x = 'a'", &shop(), 0).unwrap();
    assert_eq!(plans[0].unknown, ["nowhere"]);
    assert_eq!(plans[0].sql, "SELECT x FROM nowhere WHERE x = $1");
    becomes(
        "INSERT INTO nowhere VALUES ('a', 5)",
        "INSERT INTO nowhere VALUES ($1, $2::enc_int4)",
        &["1=a", "2=5"],
    );
    becomes(
        "SELECT id FROM p WHERE nocolumn = 'a'",
        "SELECT id FROM p WHERE nocolumn = $1",
        &["1=a"],
    );
    becomes(
        "SELECT enc_function('a', 5)",
        "SELECT enc_function($1, $2::enc_int4)",
        &["1=a", "2=5"],
    );
    becomes(
        "SELECT 'a'::strongroom_columns.enc_text",
        "SELECT $1::enc_text",
        &["1=a"],
    );
}
