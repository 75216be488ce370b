//! Ways in which a constant of a confidential expression could stay in the text.
//!
//! Method: the canaries stand where they meet a confidential value. Each statement is refused, or
//! what is sent has none of them. Beside each way stands one like it that meets plain values only
//! and has to stay as it is, so that refusing everything is no solution.

use super::*;

const CANARIES: &[&str] = &["Alice", "4711", "2001-02-03"];

#[track_caller]
fn hidden_in(catalog: &Catalog, sql: &str) {
    let Ok(plans) = plan(sql, catalog, 0) else {
        return;
    };
    for plan in plans {
        for canary in CANARIES {
            assert!(
                !plan.sql.contains(canary),
                "{sql}\nwas sent as\n{}",
                plan.sql
            );
        }
    }
}

#[track_caller]
fn hidden(sql: &str) {
    assert!(CANARIES.iter().any(|canary| sql.contains(canary)), "{sql}");
    hidden_in(&shop(), sql);
}

#[test]
fn outer_columns_behind_functions_and_system_relations() {
    becomes(
        "SELECT id FROM p WHERE EXISTS (SELECT 1 FROM unnest(ARRAY['Alice%']) u(pat) WHERE name LIKE pat)",
        "SELECT id FROM p WHERE EXISTS (SELECT 1 FROM unnest(ARRAY[$1::enc_text]) u(pat) WHERE name LIKE pat)",
        &["1=Alice%"],
    );
    becomes(
        "SELECT id FROM p WHERE EXISTS (SELECT 1 FROM generate_series(1,1) g WHERE name = 'Alice')",
        "SELECT id FROM p WHERE EXISTS (SELECT 1 FROM generate_series(1,1) g WHERE name = $1)",
        &["1=Alice"],
    );
    becomes(
        "SELECT id FROM p WHERE EXISTS (SELECT 1 FROM pg_class WHERE name = 'Alice' AND relname = 'r')",
        "SELECT id FROM p WHERE EXISTS (SELECT 1 FROM pg_class WHERE name = $1 AND relname = 'r')",
        &["1=Alice"],
    );
    for sql in [
        "SELECT id FROM p, LATERAL (SELECT 1 FROM generate_series(1, 2) g WHERE name = 'Alice') l",
        "SELECT id FROM p, LATERAL (SELECT 1 FROM pg_class c WHERE name = 'Alice') l",
        "SELECT id FROM p WHERE EXISTS (SELECT 1 FROM some_function(1) WHERE name = 'Alice')",
        "SELECT id FROM p WHERE EXISTS (SELECT 1 FROM ROWS FROM (f(1), g(2)) WHERE name = 'Alice')",
        "SELECT id FROM p WHERE EXISTS (SELECT 1 FROM information_schema.tables WHERE name = 'Alice')",
        "SELECT id FROM p WHERE EXISTS (SELECT 1 FROM pg_class c JOIN pg_attribute ON true WHERE (SELECT name = 'Alice' FROM pg_type))",
        "SELECT (SELECT max(age + 4711) FROM pg_class) FROM p",
        "SELECT id FROM p a WHERE EXISTS (SELECT 1 FROM f() a(x) WHERE name = 'Alice')",
        "SELECT id FROM p WHERE EXISTS (SELECT 1 FROM jsonb_each('{\"Alice\": 1}') e WHERE e.key = name)",
    ] {
        hidden(sql);
    }
    stays("SELECT id FROM p WHERE EXISTS (SELECT 1 FROM pg_class WHERE relname = 'x')");
    stays(
        "SELECT id FROM plain WHERE EXISTS (SELECT 1 FROM generate_series(1,1) g WHERE name = 'x')",
    );
    stays("SELECT id FROM p, generate_series(1, 3) g WHERE g = 2 AND note = 'x'");
}

#[test]
fn sources_without_known_columns_that_are_stored() {
    for sql in [
        "INSERT INTO p (name) SELECT * FROM unnest(ARRAY['Alice'])",
        "INSERT INTO p (id, name) SELECT 1, f.* FROM f('Alice') f",
        "INSERT INTO p SELECT * FROM json_populate_recordset(NULL::p, '[{\"name\": \"Alice\"}]')",
        "INSERT INTO p SELECT (json_populate_record(NULL::p, '{\"name\": \"Alice\"}')).*",
        "INSERT INTO p (id, name) SELECT f.* FROM json_to_record('{\"name\": \"Alice\"}') f(id int, name text)",
        "INSERT INTO p (id, name) SELECT f.id, f.name FROM json_to_record('{\"name\": \"Alice\"}') f(id int, name text)",
        "INSERT INTO p (id, name) SELECT * FROM json_to_recordset('[{\"name\": \"Alice\"}]') AS f(id int, name enc_text)",
        "INSERT INTO p (id, name) SELECT f.*, 'x' FROM some(1) f, (SELECT 'Alice') s",
        "INSERT INTO p (id, name, note) SELECT f.*, 'Alice' FROM f(1) f",
        "INSERT INTO p SELECT ('(1,Alice)'::p).*",
        "INSERT INTO p SELECT (ROW(1, 'Alice', 1, 1, NULL, NULL, true, 1, NULL, 'n')::p).*",
        "INSERT INTO p SELECT * FROM XMLTABLE('/a' PASSING '<a>Alice</a>' COLUMNS i int, a text)",
        "INSERT INTO p SELECT * FROM JSON_TABLE('[\"Alice\"]', '$[*]' COLUMNS (name text PATH '$'))",
        "UPDATE p SET (id, name) = (SELECT * FROM f(1), unnest(ARRAY['Alice']))",
        "UPDATE p SET (id, name) = (SELECT f.*, 'Alice' FROM f(1) f)",
        "UPDATE p SET (id, name) = ROW(1, 'Alice')",
        "UPDATE p SET name = (SELECT u FROM unnest(ARRAY['Alice']) u)",
        "UPDATE p SET name = x.v FROM (VALUES (1, 'Alice')) x(id, v) WHERE x.id = p.id",
        "MERGE INTO p USING (SELECT * FROM unnest(ARRAY['Alice']) u(n)) s ON name = s.n WHEN MATCHED THEN DELETE",
        "MERGE INTO p USING plain s ON p.id = s.id WHEN NOT MATCHED THEN INSERT VALUES (1, 'Alice')",
        "INSERT INTO p (id, name) VALUES (1, 'b') ON CONFLICT (id) DO UPDATE SET (name, note) = (SELECT u, 'n' FROM unnest(ARRAY['Alice']) u)",
    ] {
        hidden(sql);
    }
    becomes(
        "INSERT INTO p (id, note) SELECT * FROM (VALUES (1, 'n')) v(a, b)",
        "INSERT INTO p (id, note) SELECT * FROM (VALUES (1, 'n')) v(a, b)",
        &[],
    );
    stays("INSERT INTO p (id, note) SELECT f.id, f.n FROM json_to_record('{}') f(id int, n text)");
    stays("INSERT INTO plain SELECT * FROM unnest(ARRAY['x'])");
    let plans = plan(
        "INSERT INTO p SELECT * FROM json_populate_recordset(NULL::p, $1)",
        &shop(),
        1,
    );
    assert_eq!(plans.unwrap()[0].confidential, [1].into());
}

#[test]
fn joins_by_name() {
    becomes(
        "SELECT 1 FROM p JOIN (VALUES ('Alice')) v(name) USING (name)",
        "SELECT 1 FROM p JOIN (VALUES ($1::enc_text)) v(name) USING (name)",
        &["1=Alice"],
    );
    becomes(
        "SELECT 1 FROM p NATURAL JOIN (VALUES ('Alice')) v(name)",
        "SELECT 1 FROM p NATURAL JOIN (VALUES ($1::enc_text)) v(name)",
        &["1=Alice"],
    );
    for sql in [
        "SELECT 1 FROM (VALUES ('Alice')) v(name) NATURAL LEFT JOIN p",
        "SELECT 1 FROM (SELECT 'Alice' AS name) v FULL JOIN p USING (name)",
        "SELECT 1 FROM json_to_record('{\"name\": \"Alice\"}') AS f(name text) JOIN p USING (name)",
        "SELECT 1 FROM f('Alice') NATURAL JOIN p",
        "SELECT 1 FROM (plain JOIN (VALUES (1, 'Alice')) v(id, age) USING (id)) JOIN p USING (age)",
        "DELETE FROM plain USING p NATURAL JOIN (VALUES ('Alice')) v(name)",
        // The merged column stands first: the others move.
        "INSERT INTO p (id, name) SELECT * FROM (VALUES (1)) a(id) JOIN (VALUES ('Alice', 1)) b(n, id) USING (id)",
        "SELECT id, name FROM p UNION SELECT * FROM (VALUES (1)) a(id) JOIN (VALUES ('Alice', 1)) b(n, id) USING (id)",
    ] {
        hidden(sql);
    }
    stays("SELECT salary FROM p JOIN plain USING (id) WHERE n = 4 AND id = 3");
    becomes(
        "SELECT * FROM (SELECT * FROM p JOIN plain USING (id)) s WHERE n = 4 AND salary = 5",
        "SELECT * FROM (SELECT * FROM p JOIN plain USING (id)) s WHERE n = 4 AND salary = $1",
        &["1=5"],
    );
}

#[test]
fn set_operations_with_columns_that_are_not_known() {
    for sql in [
        "SELECT * FROM unnest(ARRAY['Alice']) UNION SELECT name FROM p",
        "SELECT name FROM p EXCEPT SELECT * FROM unnest(ARRAY['Alice'])",
        "SELECT * FROM f('Alice') UNION ALL SELECT id, name FROM p",
        "SELECT id, name FROM p UNION SELECT f.*, 'Alice' FROM f(1) f",
        "SELECT f.*, 1, 'Alice' FROM f(1) f UNION SELECT id, name, age, note FROM p",
        "(SELECT 1, 'Alice' INTERSECT SELECT 2, 'x') UNION SELECT id, name FROM p",
        "SELECT * FROM (SELECT f.*, name FROM f() f, p) s(a, b, c) WHERE c = 'Alice'",
        "SELECT * FROM (SELECT f.*, name FROM f() f, p) s(a, b, c) WHERE a = 'Alice'",
    ] {
        hidden(sql);
    }
    stays("SELECT * FROM unnest(ARRAY['x']) UNION SELECT note FROM p");
}

#[test]
fn structure_is_known_by_its_token() {
    for sql in [
        "SELECT substring(name FROM 'Alice') FROM p",
        "SELECT substring(name FROM 'A#\"Alice#\"' FOR '#') FROM p",
        "SELECT left(name, 'Alice') FROM p",
        "SELECT round(salary, '4711') FROM p",
        "SELECT round(salary, 4711.5) FROM p",
        "SELECT lag(name, length('Alice')) OVER () FROM p",
        "SELECT lag(\"default\" => 'Alice', value => name, \"offset\" => 1) OVER () FROM p",
        "SELECT date_part('Alice', born) FROM p",
        "SELECT extract(\"Alice\" FROM born) FROM p",
        "SELECT (ARRAY[name])['Alice'] FROM p",
        "SELECT left(x, 'Alice') FROM (VALUES ('a')) v(x), p WHERE x = name",
        "SELECT sum(age) OVER (ORDER BY age RANGE BETWEEN 4711 PRECEDING AND CURRENT ROW) FROM p",
        "SELECT sum(age) OVER w FROM p WINDOW w AS (ORDER BY born RANGE BETWEEN '4711 days' PRECEDING AND CURRENT ROW)",
        "SELECT sum(age) OVER (w RANGE BETWEEN 4711 PRECEDING AND CURRENT ROW) FROM p WINDOW w AS (ORDER BY age)",
    ] {
        hidden(sql);
    }
    stays("SELECT sum(age) OVER (ORDER BY id RANGE BETWEEN 3 PRECEDING AND CURRENT ROW) FROM p");
    stays("SELECT sum(age) OVER (ORDER BY age ROWS BETWEEN 3 PRECEDING AND CURRENT ROW) FROM p");
    stays("SELECT substring(note FROM 'x'), left(name, 2), (ARRAY[name])[1] FROM p");
    let plans = plan(
        "SELECT left(name, $1), date_trunc($2, born), left(note, $3) FROM p",
        &shop(),
        3,
    )
    .unwrap();
    assert_eq!(plans[0].confidential, BTreeSet::new());
    assert_eq!(
        plans[0].structural,
        [(1, Structure::Integer), (2, Structure::Field)].into()
    );
    assert!(Structure::Integer.has("-12") && !Structure::Integer.has("Alice"));
    assert!(Structure::Field.has("YEARS") && !Structure::Field.has("Alice"));
}

#[test]
fn common_table_expressions_are_no_targets_and_shadow_tables() {
    for sql in [
        "WITH p AS (SELECT 1 AS id, 'n' AS name) UPDATE p SET name = 'Alice'",
        "WITH p AS (SELECT 1 AS id, 'n' AS name) DELETE FROM p WHERE name = 'Alice'",
        "WITH p AS (SELECT 1 AS id, 'n' AS name) INSERT INTO p (id, name) VALUES (1, 'Alice')",
        "WITH p AS (SELECT 1 AS id, 'n' AS name) MERGE INTO p USING plain s ON p.id = s.id WHEN MATCHED THEN UPDATE SET name = 'Alice'",
        "WITH plain AS (SELECT name FROM p) SELECT 1 FROM plain WHERE name = 'Alice'",
        // A recursive WITH may name what stands behind.
        "WITH RECURSIVE a AS (SELECT 1 FROM plain WHERE name = 'Alice'), plain AS (SELECT name FROM p) SELECT * FROM a",
        // The second branch makes the column confidential; the constant stands before that is
        // known.
        "WITH RECURSIVE r(n) AS (SELECT 'x' UNION ALL SELECT p.name FROM r, p WHERE r.n = 'Alice') SELECT * FROM r",
        "WITH RECURSIVE r(n) AS (SELECT 'Alice' UNION ALL SELECT p.name FROM r, p) SELECT * FROM r",
        "WITH RECURSIVE r AS (SELECT 'x' AS n UNION ALL SELECT p.name FROM r, p) SELECT * FROM r WHERE n = 'Alice'",
        "WITH a AS MATERIALIZED (INSERT INTO p (name) SELECT u FROM unnest(ARRAY['Alice']) u RETURNING *) SELECT 1 FROM a WHERE name = 'Alice'",
    ] {
        hidden(sql);
    }
    stays("WITH p AS (SELECT 1 AS id, 'n' AS name) SELECT * FROM p WHERE name = 'x'");
    stays(
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT * FROM r, p WHERE n = 3",
    );
}

#[test]
fn constants_meet_through_others() {
    for sql in [
        "SELECT 1 FROM (VALUES ('x')) t(x), p WHERE x = 'Alice' AND x = name",
        "SELECT 1 FROM (VALUES ('x')) t(x), p WHERE x = name AND x = 'Alice'",
        "SELECT x || 'Alice' FROM (VALUES ('x')) t(x), p WHERE x = name",
        "SELECT 1 FROM (VALUES ('x')) t(x), p WHERE length(x) = 4711 AND x = name",
        "SELECT 1 FROM p WHERE (1, 'x') IN ((id, name), (2, 'Alice'))",
        "SELECT 1 FROM p WHERE $1 = 'Alice' AND name = $1",
        "SELECT 1 FROM (VALUES ('Alice')) t(x), p WHERE x = $1 AND name = $1",
        "SELECT CASE x WHEN 'Alice' THEN 1 END FROM (SELECT 'a' AS x) t, p WHERE p.name = x",
        "SELECT 1 FROM (VALUES ('x')) t(x), p WHERE x::text = 'Alice' AND x = name",
        "SELECT 1 FROM p WHERE ROW(p.*) = ROW(1, 'Alice')",
        "SELECT 1 FROM p WHERE p = ROW(1, 'Alice')",
        "SELECT 1 FROM p WHERE (SELECT name, 4711) = (SELECT 'Alice', age)",
        "SELECT 1 FROM p WHERE (note, name) = ANY (SELECT 'n', 'Alice')",
        "SELECT 1 FROM p WHERE name = ALL (VALUES ('Alice'))",
    ] {
        hidden(sql);
    }
    stays("SELECT 1 FROM (VALUES ('x')) t(x), p WHERE x = 'y' AND x = note");
}

#[test]
fn one_name_in_several_schemas() {
    let tenants = catalog(&["a1.acct(id, name text)", "b1.acct(name text, id)"]);
    hidden_in(&tenants, "INSERT INTO acct VALUES ('Alice', 5)");
    hidden_in(&tenants, "INSERT INTO acct VALUES (5, 'Alice')");
    hidden_in(&tenants, "SELECT * FROM acct WHERE name = 'Alice'");
    hidden_in(&tenants, "SELECT * FROM acct a(x, y) WHERE y = 'Alice'");
    hidden_in(
        &tenants,
        "MERGE INTO acct USING v ON true WHEN NOT MATCHED THEN INSERT VALUES ('Alice', 1)",
    );
    let copied = |sql: &str| {
        plan(sql, &tenants, 0)
            .unwrap()
            .remove(0)
            .copy
            .unwrap()
            .columns
    };
    assert_eq!(copied("COPY acct FROM STDIN"), None);
    assert_eq!(
        copied("COPY acct (id, name) FROM STDIN"),
        Some(vec![None, stored(Kind::Text)])
    );
    assert_eq!(
        copied("COPY b1.acct FROM STDIN"),
        Some(vec![stored(Kind::Text), None])
    );
    // Plain in one of them, or of another kind: nobody knows whether to encrypt.
    let differ = catalog(&["a1.acct(id, name text)", "b1.acct(id, name)"]);
    let of = |sql: &str| {
        plan(sql, &differ, 0)
            .unwrap()
            .remove(0)
            .copy
            .unwrap()
            .columns
    };
    assert_eq!(of("COPY acct (id, name) FROM STDIN"), None);
    hidden_in(&differ, "INSERT INTO acct (id, name) VALUES (1, 'Alice')");
    hidden_in(
        &differ,
        "SELECT 1 FROM a1.acct, b1.acct WHERE acct.name = 'Alice'",
    );
    // The same everywhere: one schema for each tenant.
    let equal = catalog(&["a1.acct(id, name text)", "b1.acct(id, name text)"]);
    let plans = plan("INSERT INTO acct VALUES (5, 'Alice')", &equal, 0).unwrap();
    assert_eq!(plans[0].sql, "INSERT INTO acct VALUES (5, $1)");
}

#[test]
fn types_that_hold_confidential_values() {
    let mut rows = catalog_rows(&["p(id, name text)", "m(id, d, r)"]);
    let mut add = |fields: [&str; 7]| {
        let row = fields.iter().map(|field| Some((*field).to_owned()));
        rows.push(row.collect());
    };
    let text = (90_000 + u32::from(Kind::Text.number())).to_string();
    add(["y", "public", "d", "1000", "1001", &text, "0"]);
    add(["y", "public", "dd", "1002", "1003", "1000", "0"]);
    add(["y", "public", "pair", "1004", "1005", "0", "2000"]);
    add(["y", "public", "mood", "1006", "1007", "0", "0"]);
    add(["r", "public", "pair", "00001", "a", "25", "2000"]);
    add(["r", "public", "pair", "00002", "b", "1003", "2000"]);
    add(["r", "public", "w", "00001", "id", "23", "2001"]);
    add(["r", "public", "w", "00002", "c", "1002", "2001"]);
    add(["r", "public", "w", "00003", "e", "1005", "2001"]);
    add(["f", "public", "people", "", "", "1004", ""]);
    let catalog = Catalog::from_rows(&rows);
    for sql in [
        "SELECT 1 FROM w WHERE c = 'Alice'",
        "INSERT INTO w VALUES (1, 'Alice')",
        "SELECT 1 FROM w WHERE (e[1]).b = 'Alice'",
        "SELECT 1 FROM p WHERE name = 'Alice'::d",
        "SELECT d('Alice')",
        "SELECT enc_text('Alice')",
        "SELECT 'Alice'::dd",
        "SELECT '(1,Alice)'::pair",
        "SELECT '{Alice}'::dd[]",
        "SELECT ROW('a', 'Alice')::pair",
        "SELECT 'Alice'::never_heard_of",
        "SELECT 1 FROM people(1) WHERE b = 'Alice'",
        "CREATE TABLE n (c d DEFAULT 'Alice')",
        "CREATE TABLE n OF pair (b DEFAULT 'Alice')",
        "CREATE TABLE n OF pair (CHECK (b <> 'Alice'))",
        "CREATE TABLE n PARTITION OF p (name DEFAULT 'Alice') FOR VALUES FROM (1) TO (10)",
        "SELECT 'srv1:Alice'::enc_text",
    ] {
        hidden_in(&catalog, sql);
    }
    for sql in [
        "SELECT 'x'::mood, 'y'::json, 5::int8 FROM p",
        "SELECT 1 FROM w WHERE id = 4",
    ] {
        assert_eq!(plan(sql, &catalog, 0).unwrap()[0].sql, sql);
    }
    let sql = "CREATE TYPE moods AS ENUM ('a'); SELECT 'a'::moods";
    assert!(!plan(sql, &catalog, 0).unwrap()[1].changed);
}

#[test]
fn definitions_with_constants_in_odd_places() {
    for sql in [
        "CREATE TABLE n (c enc_text, EXCLUDE USING btree ((c || 'Alice') WITH =))",
        "CREATE INDEX ON p ((name || 'Alice'))",
        "CREATE STATISTICS s ON (coalesce(name, 'Alice')), id FROM p",
        "ALTER TABLE p ALTER name TYPE text USING coalesce(name, 'Alice')",
        "ALTER TABLE p ADD CONSTRAINT c EXCLUDE USING btree ((name || 'Alice') WITH =)",
        "CREATE DOMAIN d AS enc_text CHECK (value <> 'Alice')",
        "CREATE VIEW w AS SELECT 1 FROM p NATURAL JOIN (VALUES ('Alice')) v(name)",
        "CREATE TABLE n AS SELECT id FROM p JOIN unnest(ARRAY['Alice']) u(name) USING (name)",
        "SELECT id INTO n FROM p WHERE name = 'Alice'",
        "EXPLAIN ANALYZE SELECT 1 FROM p NATURAL JOIN (VALUES ('Alice')) v(name)",
        "DECLARE c CURSOR FOR SELECT * FROM unnest(ARRAY['Alice']) UNION SELECT name FROM p",
        "COPY (SELECT 1 FROM p NATURAL JOIN (VALUES ('Alice')) v(name)) TO STDOUT",
        "COPY p (name) FROM STDIN WHERE name <> 'Alice'",
        "PREPARE s AS INSERT INTO p (name) SELECT * FROM unnest(ARRAY['Alice'])",
        "EXPLAIN EXECUTE s('Alice')",
    ] {
        let Ok(plans) = plan(sql, &shop(), 0) else {
            continue;
        };
        assert!(
            plans[0].executes.is_some() || !plans[0].sql.contains("Alice"),
            "{sql}"
        );
    }
    stays("CREATE TABLE p1 PARTITION OF other.p FOR VALUES FROM (1) TO (10)");
    stays("ALTER TABLE p ATTACH PARTITION p1 FOR VALUES IN ('x')");
}

#[test]
fn spellings_and_the_header_of_copy() {
    for sql in [
        "SELECT 1 FROM p WHERE name = E'\\x41lice' OR name = 'Alice'",
        "SELECT 1 FROM p WHERE name = $$Alice$$ AND name <> $a$Alice$a$",
        "SELECT 1 FROM p WHERE name = U&'\\0041lice' OR name = U&'d!0061tAlice' UESCAPE '!'",
        "SELECT 1 FROM p WHERE name = 'Al' || 'Alice'",
        "SELECT /* Alice */ 1 FROM p WHERE name = 'x' -- Alice",
        "SELECT 1 FROM p WHERE born = date '2001-02-03' AND at > timestamptz '2001-02-03 01:02'",
        "SELECT 1 FROM p WHERE at > now() - interval '4711 days'",
        "SELECT 1 FROM p GROUP BY GROUPING SETS ((name), (name || 'Alice')) HAVING min(name) > 'Alice'",
        "SELECT count(*) FILTER (WHERE name = 'Alice'), rank('Alice') WITHIN GROUP (ORDER BY name) FROM p",
        "SELECT max(name) OVER (PARTITION BY name = 'Alice' ORDER BY name || 'Alice') FROM p",
        "SELECT 1 FROM p LIMIT (SELECT count(*) FROM p WHERE age = 4711)",
        "SELECT DISTINCT ON (name || 'Alice') 1 FROM p",
        "SELECT 1 FROM p WHERE JSON_VALUE(note::jsonb, '$.a') = 'Alice' AND name IS NOT NULL",
        "SELECT 1 FROM p WHERE name SIMILAR TO 'Alice' ESCAPE '#'",
        "SELECT 1 FROM p WHERE (born, born) OVERLAPS (date '2001-02-03', date '2001-02-03')",
        "SELECT GREATEST(name, 'Alice'), NULLIF('Alice', name), name COLLATE \"C\" = 'Alice' FROM p",
        "CALL enc_function('Alice')",
    ] {
        hidden(sql);
    }
    stays("SELECT name FROM p WHERE current_date = '2001-02-03' AND current_user = 'Alice'");
    let header = |value: &str| {
        let sql = format!("COPY p (name) FROM STDIN (FORMAT csv, HEADER {value})");
        let options = plan(&sql, &shop(), 0)
            .unwrap()
            .remove(0)
            .copy
            .unwrap()
            .options;
        (options.header, options.other.is_some())
    };
    for (value, expected) in [
        ("'OFF'", (false, false)),
        ("'False'", (false, false)),
        ("ON", (true, false)),
        ("'maybe'", (false, true)),
    ] {
        assert_eq!(header(value), expected, "{value}");
    }
}

#[test]
fn what_a_statement_changes_is_not_known_to_the_next() {
    for sql in [
        "ALTER TABLE plain ALTER name TYPE enc_text; INSERT INTO plain (name) VALUES ('Alice')",
        "ALTER TABLE p RENAME TO gone; ALTER TABLE plain RENAME TO p; SELECT 1 FROM gone WHERE name = 'Alice'",
        "ALTER TABLE p RENAME name TO note2; SELECT 1 FROM p WHERE note2 = 'Alice'",
        "CREATE OR REPLACE VIEW plain AS SELECT name FROM p; SELECT 1 FROM plain WHERE name = 'Alice'",
        "CREATE TABLE plain AS SELECT name FROM p; SELECT 1 FROM plain WHERE name = 'Alice'",
        "SELECT name INTO plain FROM p; SELECT 1 FROM plain WHERE name = 'Alice'",
        "CREATE TEMP TABLE plain (LIKE p); INSERT INTO plain (name) VALUES ('Alice')",
        "CREATE TEMP TABLE plain OF pair; INSERT INTO plain (b) VALUES ('Alice')",
        "CREATE FOREIGN TABLE plain (name enc_text) SERVER s; SELECT 1 FROM plain WHERE name = 'Alice'",
        "ALTER SCHEMA public RENAME TO x; ALTER SCHEMA other RENAME TO public; SELECT 1 FROM public.only WHERE c = 'Alice'",
        "CREATE TEMP TABLE plain (name enc_text); SELECT 1 FROM plain WHERE name = 'Alice'",
    ] {
        hidden(sql);
    }
    let sql = "ALTER TABLE plain ADD COLUMN x int; UPDATE plain SET x = 5 WHERE name = 'a'";
    let plans = plan(sql, &shop(), 0).unwrap();
    assert!(plans.iter().all(|plan| !plan.changed));
}

fn catalog_of_plain() -> Catalog {
    catalog(&["o(id, p, name)", "q(id, name text)"])
}

/// The server can add a plain column to a relation, or say so: what is meant may be further out.
#[test]
fn a_plain_column_captures_no_confidential_one() {
    let catalog = catalog(&["p(id, name text, age int4)", "o(id, p, name)"]);
    for sql in [
        "SELECT id FROM p WHERE EXISTS (SELECT 1 FROM o WHERE o.p = p.id AND name = 'Alice')",
        "SELECT id FROM p WHERE EXISTS (SELECT 1 FROM o JOIN o q ON name = 'Alice')",
        "SELECT id FROM p age WHERE EXISTS (SELECT 1 FROM o WHERE name = 'Alice')",
    ] {
        hidden_in(&catalog, sql);
    }
    // The server does not show the outer relation at all.
    let hidden = catalog_of_plain();
    for sql in [
        "SELECT * FROM gone WHERE EXISTS (SELECT 1 FROM o WHERE name = 'Alice')",
        "SELECT * FROM enc_function() WHERE EXISTS (SELECT 1 FROM o WHERE name = 'Alice')",
    ] {
        hidden_in(&hidden, sql);
    }
    for sql in [
        "SELECT id FROM p WHERE EXISTS (SELECT 1 FROM o WHERE o.name = 'Alice')",
        "SELECT id FROM o WHERE EXISTS (SELECT 1 FROM o WHERE name = 'Alice')",
        "SELECT name FROM o UNION SELECT name FROM o WHERE name = 'Alice'",
    ] {
        let plans = plan(sql, &catalog, 0).unwrap();
        assert!(plans[0].sql.contains("Alice"), "{sql}");
    }
}

/// A name with a schema means the relation without an alias, also where something nearer has the
/// same name; ON of a join sees nothing but the join's own sides.
#[test]
fn a_name_with_its_relation_means_that_relation_also_further_out() {
    for sql in [
        "SELECT 1 FROM public.p WHERE EXISTS (SELECT 1 FROM other.p WHERE other.p.id = public.p.id AND public.p.name = 'Alice')",
        "SELECT 1 FROM public.p WHERE EXISTS (SELECT 1 FROM plain p WHERE public.p.name = 'Alice')",
        "SELECT 1 FROM public.p WHERE EXISTS (SELECT 1 FROM plain p WHERE db.public.p.name = 'Alice')",
        "SELECT 1 FROM public.p WHERE EXISTS (WITH p AS (SELECT 'x' AS name) SELECT 1 FROM p WHERE public.p.name = 'Alice')",
        "SELECT 1 FROM public.p WHERE EXISTS (SELECT 1 FROM (SELECT 'x' AS name) p WHERE public.p.name = 'Alice')",
        "SELECT 1 FROM public.p WHERE EXISTS (SELECT 1 FROM other.p WHERE ROW(public.p.*) = ROW(1, 'Alice'))",
        "SELECT 1 FROM public.p, LATERAL (SELECT public.p.name = 'Alice' FROM other.p) l",
        "UPDATE public.p SET note = 'x' WHERE EXISTS (SELECT 1 FROM other.p WHERE public.p.name = 'Alice')",
        "DELETE FROM public.p WHERE EXISTS (SELECT 1 FROM other.p WHERE public.p.name = 'Alice')",
        "CREATE POLICY y ON public.p USING (EXISTS (SELECT 1 FROM other.p WHERE public.p.name = 'Alice'))",
        "SELECT 1 FROM p t WHERE EXISTS (SELECT 1 FROM plain t, q b JOIN q c ON t.name = 'Alice')",
        "SELECT 1 FROM p t WHERE EXISTS (SELECT 1 FROM plain t, q b JOIN q c ON t = ROW(1, 'Alice'))",
        "SELECT 1 FROM p t WHERE EXISTS (SELECT 1 FROM plain t, q b JOIN q c ON ROW(t.*) = ROW(1, 'Alice'))",
    ] {
        hidden(sql);
    }
    becomes(
        "SELECT 1 FROM public.p WHERE EXISTS (SELECT 1 FROM other.p WHERE other.p.id = 3 AND public.p.name = 'Alice')",
        "SELECT 1 FROM public.p WHERE EXISTS (SELECT 1 FROM other.p WHERE other.p.id = 3 AND public.p.name = $1)",
        &["1=Alice"],
    );
    for sql in [
        "SELECT 1 FROM public.p WHERE EXISTS (SELECT 1 FROM other.p WHERE other.p.name = 'Alice')",
        "SELECT 1 FROM p a WHERE EXISTS (SELECT 1 FROM other.p b WHERE a.id = b.id AND b.name = 'Alice')",
        "SELECT 1 FROM p WHERE EXISTS (SELECT 1 FROM plain WHERE plain.name = 'Alice' AND plain.id = p.id)",
        "SELECT 1 FROM public.p a WHERE EXISTS (SELECT 1 FROM other.p WHERE other.p.name = 'Alice')",
        "UPDATE other.p SET name = 'x' WHERE other.p.name = 'Alice'",
    ] {
        stays(sql);
    }
}

/// The parser is PostgreSQL 18's; the server may be older.
#[test]
fn a_word_that_an_older_server_does_not_reserve_is_a_name() {
    let logins = catalog(&["logins(id, system_user text)", "plain(id, n)"]);
    for sql in [
        "SELECT id FROM logins WHERE system_user = 'Alice'",
        "SELECT id FROM plain \"system_user\", logins WHERE system_user = 'Alice'",
        "SELECT id FROM logins WHERE EXISTS (SELECT 1 FROM plain WHERE system_user = 'Alice')",
    ] {
        hidden_in(&logins, sql);
        assert!(plan(sql, &logins, 0).is_ok(), "{sql}");
    }
    for sql in [
        "CREATE FUNCTION json_value(enc_text, enc_text) RETURNS int LANGUAGE sql AS ''; SELECT JSON_VALUE('Alice', 'x')",
        "CREATE FUNCTION json_object(enc_text, enc_text) RETURNS int LANGUAGE sql AS ''; SELECT JSON_OBJECT('Alice', 'x')",
        "CREATE FUNCTION json_scalar(enc_text) RETURNS int LANGUAGE sql AS ''; SELECT JSON_SCALAR('Alice')",
    ] {
        hidden(sql);
    }
    stays("SELECT id FROM p WHERE system_user = 'Alice' AND id = 3");
    stays("SELECT id, JSON_VALUE('{\"a\": 1}', '$.a') FROM plain WHERE system_user = 'x'");
}

/// An operator of another schema is not the one that the proxy knows by its name.
#[test]
fn the_result_of_a_user_s_operator_is_not_taken_for_plain() {
    hidden("SELECT id FROM p WHERE (salary OPERATOR(app.=) 3) = 4711");
    hidden("SELECT id FROM p WHERE (name OPERATOR(app.~~) 'Alice') = 'Alice'");
    becomes(
        "SELECT id FROM p WHERE name OPERATOR(pg_catalog.=) 'Alice' AND name OPERATOR(app.=) 'Alice' AND id = 3",
        "SELECT id FROM p WHERE name OPERATOR(pg_catalog.=) $1 AND name OPERATOR(app.=) $2 AND id = 3",
        &["1=Alice", "2=Alice"],
    );
}
