//! The resolver on many statements: which constants become parameters, and what the text is then.

use super::*;

/// The catalog of a database: `table(column kind, ..)`, a column without a kind is plain.
pub(crate) fn catalog(tables: &[&str]) -> Catalog {
    let mut rows = Vec::new();
    let row = |fields: [&str; 6]| -> Vec<Option<String>> {
        fields.iter().map(|field| Some((*field).to_owned())).collect()
    };
    let oid = |kind: Kind| 90_000 + u32::from(kind.number());
    for kind in Kind::ALL {
        let (name, oid, array) = (format!("enc_{}", kind.base()), oid(*kind).to_string(), (oid(*kind) + 100).to_string());
        rows.push(row(["t", "strongroom_columns", &name, &oid, &array, ""]));
    }
    for table in tables {
        let (name, columns) = table.split_once('(').unwrap();
        let (schema, name) = name.split_once('.').unwrap_or(("public", name));
        for (at, column) in columns.trim_end_matches(')').split(',').enumerate() {
            let (column, kind) = column.trim().split_once(' ').unwrap_or((column.trim(), ""));
            let kind = Kind::ALL.iter().find(|known| known.base() == kind);
            let type_oid = kind.map_or(25, |kind| oid(*kind)).to_string();
            rows.push(row(["r", schema, name, &format!("{at:05}"), column, &type_oid]));
        }
    }
    rows.push(row(["r", "pg_catalog", "pg_class", "", "", ""]));
    rows.push(row(["f", "public", "enc_function", "", "", &oid(Kind::Text).to_string()]));
    Catalog::from_rows(&rows)
}

fn shop() -> Catalog {
    catalog(&[
        "p(id, name text, salary numeric, age int4, born date, at timestamptz, ok bool, score float8, data bytea, note)",
        "q(id, name, amount int8)",
        "plain(id, name, n)",
        "v(id, vname text)",
        "other.p(id, name)",
        "other.only(id, c text)",
    ])
}

/// The text that the server gets and the constants, as `number=value`.
fn planned(sql: &str) -> (String, Vec<String>) {
    let mut plans = plan(sql, &shop(), 0).unwrap_or_else(|refusal| panic!("{sql}: {refusal}"));
    assert_eq!(plans.len(), 1, "{sql}");
    let plan = plans.pop().unwrap();
    let constants = plan.constants.iter().map(|constant| format!("{}={}", constant.number, *constant.literal.text));
    (plan.sql, constants.collect())
}

#[track_caller]
fn becomes(sql: &str, expected: &str, constants: &[&str]) {
    let (text, found) = planned(sql);
    // Written as the parser's writer writes it; the schema is left out for the reader's sake.
    let tree = pg_query::parse(expected, pg_query::ParserOptions::default()).unwrap().protobuf;
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
        Ok(plans) => panic!("{sql}: {:?}", plans.iter().map(|plan| &plan.sql).collect::<Vec<_>>()),
    }
}

#[test]
fn comparisons() {
    becomes("SELECT id FROM p WHERE name = 'x'", "SELECT id FROM p WHERE name = $1", &["1=x"]);
    becomes("SELECT id FROM p WHERE 'x' = name", "SELECT id FROM p WHERE $1 = name", &["1=x"]);
    becomes("SELECT id FROM p WHERE p.name <> 'x' AND id = 5", "SELECT id FROM p WHERE p.name <> $1 AND id = 5", &["1=x"]);
    becomes("SELECT id FROM p a WHERE a.age >= -5", "SELECT id FROM p a WHERE a.age >= $1", &["1=-5"]);
    becomes("SELECT id FROM p WHERE age > 1.5", "SELECT id FROM p WHERE age > $1::enc_numeric", &["1=1.5"]);
    becomes("SELECT id FROM p WHERE age > 5000000000", "SELECT id FROM p WHERE age > $1::enc_int8", &["1=5000000000"]);
    becomes("SELECT id FROM p WHERE salary > 5", "SELECT id FROM p WHERE salary > $1", &["1=5"]);
    becomes("SELECT id FROM p WHERE score > 5.5", "SELECT id FROM p WHERE score > $1", &["1=5.5"]);
    becomes("SELECT id FROM p WHERE ok = true", "SELECT id FROM p WHERE ok = $1", &["1=t"]);
    becomes("SELECT id FROM p WHERE name LIKE 'a%'", "SELECT id FROM p WHERE name LIKE $1", &["1=a%"]);
    becomes("SELECT id FROM p WHERE name NOT ILIKE 'a%'", "SELECT id FROM p WHERE name NOT ILIKE $1", &["1=a%"]);
    becomes("SELECT id FROM p WHERE name IS DISTINCT FROM 'a'", "SELECT id FROM p WHERE name IS DISTINCT FROM $1", &["1=a"]);
    becomes("SELECT id FROM p WHERE age IN (1, 2)", "SELECT id FROM p WHERE age IN ($1, $2)", &["1=1", "2=2"]);
    becomes("SELECT id FROM p WHERE age BETWEEN 1 AND 2", "SELECT id FROM p WHERE age BETWEEN $1 AND $2", &["1=1", "2=2"]);
    becomes("SELECT id FROM p WHERE 7 IN (age, id)", "SELECT id FROM p WHERE $1 IN (age, id)", &["1=7"]);
    becomes("SELECT id FROM p WHERE (name, age) = ('x', 3)", "SELECT id FROM p WHERE (name, age) = ($1, $2)", &["1=x", "2=3"]);
    becomes("SELECT id FROM p WHERE (id, name) IN ((1, 'a'), (2, 'b'))", "SELECT id FROM p WHERE (id, name) IN ((1, $1), (2, $2))", &["1=a", "2=b"]);
    becomes("SELECT id FROM p WHERE name = ANY (ARRAY['a', 'b'])", "SELECT id FROM p WHERE name = ANY(ARRAY[$1::enc_text, $2::enc_text])", &["1=a", "2=b"]);
    becomes("SELECT id FROM p WHERE name = ANY ('{a,b}')", "SELECT id FROM p WHERE name = ANY($1)", &["1={a,b}"]);
    becomes("SELECT id FROM p WHERE name = NULL", "SELECT id FROM p WHERE name = NULL", &[]);
}

#[test]
fn literals_in_every_spelling() {
    becomes("SELECT id FROM p WHERE name = E'a\\nb'", "SELECT id FROM p WHERE name = $1", &["1=a\nb"]);
    becomes("SELECT id FROM p WHERE name = $q$it's$q$", "SELECT id FROM p WHERE name = $1", &["1=it's"]);
    becomes("SELECT id FROM p WHERE name = U&'\\0041'", "SELECT id FROM p WHERE name = $1", &["1=A"]);
    becomes("SELECT id FROM p WHERE name = 'a'\n'b'", "SELECT id FROM p WHERE name = $1", &["1=ab"]);
    becomes("SELECT id FROM p WHERE age = -(5)", "SELECT id FROM p WHERE age = $1", &["1=-5"]);
    becomes("SELECT id FROM p WHERE age = - 5 /* 5 */ -- 5", "SELECT id FROM p WHERE age = $1", &["1=-5"]);
    becomes("SELECT id FROM p WHERE born < date '1998-12-01'", "SELECT id FROM p WHERE born < $1::enc_date", &["1=1998-12-01"]);
    becomes("SELECT id FROM p WHERE born < '1998-12-01'::date", "SELECT id FROM p WHERE born < $1::enc_date", &["1=1998-12-01"]);
    becomes("SELECT id FROM p WHERE born < CAST('1998-12-01' AS date)", "SELECT id FROM p WHERE born < $1::enc_date", &["1=1998-12-01"]);
    becomes("SELECT id FROM p WHERE born < '1998-12-01'", "SELECT id FROM p WHERE born < $1", &["1=1998-12-01"]);
    becomes("SELECT id FROM p WHERE name = 'abcdef'::varchar(3)", "SELECT id FROM p WHERE name = $1::enc_text", &["1=abc"]);
    becomes("SELECT id FROM p WHERE at > timestamptz '2020-01-01 00:00+00'", "SELECT id FROM p WHERE at > $1::enc_timestamptz", &["1=2020-01-01 00:00+00"]);
    assert!(refused("SELECT id FROM p WHERE name = B'101'").message.contains("SR-8101"));
    assert!(refused("SELECT id FROM p WHERE born < interval '1:30' hour to minute + born").message.contains("1:30"));
    assert!(refused("SELECT id FROM p WHERE name = 'x'::json").message.contains("json"));
}

#[test]
fn expressions() {
    becomes("SELECT salary * 2 FROM p", "SELECT salary * $1 FROM p", &["1=2"]);
    becomes("SELECT salary * (1 - score) FROM p", "SELECT salary * ($1 - score) FROM p", &["1=1"]);
    becomes("SELECT id FROM p WHERE salary + 1 > 2 * 3", "SELECT id FROM p WHERE (salary + $1) > $2", &["1=1", "2=6"]);
    becomes("SELECT born + interval '90' day FROM p", "SELECT born + $1::enc_interval FROM p", &["1=90 day"]);
    becomes("SELECT born + 5 FROM p", "SELECT born + $1::enc_int4 FROM p", &["1=5"]);
    becomes("SELECT name || 'x' FROM p", "SELECT name || $1 FROM p", &["1=x"]);
    becomes("SELECT coalesce(name, 'none') FROM p", "SELECT COALESCE(name, $1) FROM p", &["1=none"]);
    becomes("SELECT nullif(age, 0), greatest(age, 1) FROM p", "SELECT NULLIF(age, $1), GREATEST(age, $2) FROM p", &["1=0", "2=1"]);
    becomes("SELECT replace(name, 'a', 'b') FROM p", "SELECT replace(name, $1, $2) FROM p", &["1=a", "2=b"]);
    becomes("SELECT string_agg(name, ', ') FROM p", "SELECT string_agg(name, $1) FROM p", &["1=, "]);
    becomes("SELECT lag(age, 1, 0) OVER (ORDER BY id) FROM p", "SELECT lag(age, 1, $1) OVER (ORDER BY id) FROM p", &["1=0"]);
    becomes("SELECT extract(year FROM born) = 1995 FROM p", "SELECT \"extract\"('year', born) = $1 FROM p", &["1=1995"]);
    becomes("SELECT substring(name FROM 1 FOR 2) FROM p", "SELECT \"substring\"(name, 1, 2) FROM p", &[]);
    becomes("SELECT position('a' IN name) FROM p", "SELECT strpos(name, $1) FROM p", &["1=a"]);
    stays("SELECT round(salary, 2), left(name, 3) FROM p");
    becomes("SELECT age::numeric, name::varchar(3), salary::numeric(10,2) FROM p", "SELECT age::enc_numeric, \"left\"(name, 3)::enc_text, salary::enc_numeric(10, 2) FROM p", &[]);
}

#[test]
fn arithmetic_between_constants_is_done_here() {
    becomes("SELECT id FROM p WHERE born < date '1993-07-01' + interval '3' month", "SELECT id FROM p WHERE born < $1::enc_date", &["1=1993-10-01"]);
    becomes("SELECT id FROM p WHERE born < date '1993-07-01' + interval '3 hours'", "SELECT id FROM p WHERE born < $1::enc_timestamp", &["1=1993-07-01 03:00:00"]);
    becomes("SELECT coalesce(born, date '1993-07-01' + interval '3' month) FROM p", "SELECT COALESCE(born, $1::enc_timestamp) FROM p", &["1=1993-10-01 00:00:00"]);
    becomes("SELECT id FROM p WHERE salary BETWEEN .06 - 0.01 AND .06 + 0.01", "SELECT id FROM p WHERE salary BETWEEN $1 AND $2", &["1=0.05", "2=0.07"]);
    becomes("SELECT id FROM p WHERE age < 2147483647 + 1", "SELECT id FROM p WHERE age < ($1::enc_int4 + $2::enc_int4)", &["1=2147483647", "2=1"]);
    stays("SELECT 1 + 2 FROM p WHERE id < 3 * 4");
}

#[test]
fn case_and_its_results() {
    becomes("SELECT CASE WHEN name = 'x' THEN 'yes' ELSE 'no' END FROM p", "SELECT CASE WHEN name = $1 THEN 'yes' ELSE 'no' END FROM p", &["1=x"]);
    becomes("SELECT CASE WHEN id = 1 THEN salary ELSE 0 END FROM p", "SELECT CASE WHEN id = 1 THEN salary ELSE $1 END FROM p", &["1=0"]);
    becomes("SELECT CASE name WHEN 'x' THEN 1 END FROM p", "SELECT CASE name WHEN $1 THEN 1 END FROM p", &["1=x"]);
    becomes("SELECT id FROM p WHERE name = CASE WHEN id = 1 THEN 'a' ELSE 'b' END", "SELECT id FROM p WHERE name = CASE WHEN id = 1 THEN $1::enc_text ELSE $2::enc_text END", &["1=a", "2=b"]);
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
fn scopes() {
    becomes("SELECT 1 FROM p JOIN plain ON p.id = plain.id WHERE salary > 3 AND n = 4", "SELECT 1 FROM p JOIN plain ON p.id = plain.id WHERE salary > $1 AND n = 4", &["1=3"]);
    becomes("SELECT s.x FROM (SELECT name AS x FROM p) s WHERE s.x = 'a'", "SELECT s.x FROM (SELECT name AS x FROM p) s WHERE s.x = $1", &["1=a"]);
    becomes("SELECT * FROM (SELECT id, name FROM p) s(a, b) WHERE b = 'a' AND a = 1", "SELECT * FROM (SELECT id, name FROM p) s(a, b) WHERE b = $1 AND a = 1", &["1=a"]);
    becomes("SELECT * FROM (SELECT * FROM p) s WHERE age = 1", "SELECT * FROM (SELECT * FROM p) s WHERE age = $1", &["1=1"]);
    becomes("WITH c AS (SELECT name n FROM p) SELECT * FROM c WHERE n = 'a'", "WITH c AS (SELECT name n FROM p) SELECT * FROM c WHERE n = $1", &["1=a"]);
    becomes("WITH c(k) AS (SELECT 'a') SELECT * FROM c, p WHERE k = name", "WITH c(k) AS (SELECT $1::enc_text) SELECT * FROM c, p WHERE k = name", &["1=a"]);
    becomes("WITH RECURSIVE r(n, d) AS (SELECT name, 0 FROM p UNION ALL SELECT n || 'x', d + 1 FROM r WHERE d < 5) SELECT * FROM r", "WITH RECURSIVE r(n, d) AS (SELECT name, 0 FROM p UNION ALL SELECT n || $1, d + 1 FROM r WHERE d < 5) SELECT * FROM r", &["1=x"]);
    becomes("SELECT id FROM plain WHERE EXISTS (SELECT 1 FROM p WHERE p.id = plain.id AND name = 'a' AND n = 3)", "SELECT id FROM plain WHERE EXISTS (SELECT 1 FROM p WHERE p.id = plain.id AND name = $1 AND n = 3)", &["1=a"]);
    becomes("SELECT id FROM plain WHERE 'a' = (SELECT name FROM p LIMIT 1)", "SELECT id FROM plain WHERE $1 = (SELECT name FROM p LIMIT 1)", &["1=a"]);
    becomes("SELECT id FROM plain WHERE 'a' IN (SELECT name FROM p)", "SELECT id FROM plain WHERE $1 IN (SELECT name FROM p)", &["1=a"]);
    becomes("SELECT 1 FROM plain, LATERAL (SELECT age + 1 AS y FROM p WHERE p.id = plain.id) l WHERE l.y = 4", "SELECT 1 FROM plain, LATERAL (SELECT age + $1 AS y FROM p WHERE p.id = plain.id) l WHERE l.y = $2", &["1=1", "2=4"]);
    becomes("SELECT name FROM p UNION SELECT 'a'", "SELECT name FROM p UNION SELECT $1::enc_text", &["1=a"]);
    becomes("SELECT * FROM (VALUES ('a'), ('b')) t(x), p WHERE x = name", "SELECT * FROM (VALUES ($1::enc_text), ($2::enc_text)) t(x), p WHERE x = name", &["1=a", "2=b"]);
    becomes("SELECT vname FROM v WHERE vname = 'x'", "SELECT vname FROM v WHERE vname = $1", &["1=x"]);
    becomes("SELECT c FROM other.only WHERE c = 'x'", "SELECT c FROM other.only WHERE c = $1", &["1=x"]);
    stays("SELECT name FROM other.p WHERE name = 'x'");
    becomes("SELECT j.name FROM (p JOIN plain USING (id)) AS j WHERE j.salary = 1", "SELECT j.name FROM (p JOIN plain USING (id)) j WHERE j.salary = $1", &["1=1"]);
    becomes("SELECT age % 10, count(*) FROM p GROUP BY age % 10 HAVING sum(salary) > 5 ORDER BY age % 10", "SELECT age % $1, count(*) FROM p GROUP BY age % $1 HAVING sum(salary) > $2 ORDER BY age % $1", &["1=10", "2=5"]);
}

#[test]
fn names_that_are_not_known_count_as_confidential() {
    let plans = plan("SELECT x FROM nowhere WHERE x = 'a' AND y = 5", &shop(), 0).unwrap();
    assert_eq!(plans[0].unknown, ["nowhere"]);
    becomes("SELECT x FROM nowhere WHERE x = 'a'", "SELECT x FROM nowhere WHERE x = $1", &["1=a"]);
    becomes("INSERT INTO nowhere VALUES ('a', 5)", "INSERT INTO nowhere VALUES ($1, $2::enc_int4)", &["1=a", "2=5"]);
    becomes("SELECT id FROM p WHERE nocolumn = 'a'", "SELECT id FROM p WHERE nocolumn = $1", &["1=a"]);
    becomes("SELECT enc_function('a', 5)", "SELECT enc_function($1, $2::enc_int4)", &["1=a", "2=5"]);
    becomes("SELECT 'a'::strongroom_columns.enc_text", "SELECT $1::enc_text", &["1=a"]);
}

#[test]
fn what_is_stored() {
    becomes("INSERT INTO p VALUES (1, 'n', 2, 3, '2000-01-01', NULL, true, 1.5, '\\x00', 'plain')", "INSERT INTO p VALUES (1, $1, $2, $3, $4, NULL, $5, $6, $7, 'plain')", &["1=n", "2=2", "3=3", "4=2000-01-01", "5=t", "6=1.5", "7=\\x00"]);
    becomes("INSERT INTO p (id, name) VALUES (1, 'a'), (2, DEFAULT), (3, 'c')", "INSERT INTO p (id, name) VALUES (1, $1), (2, DEFAULT), (3, $2)", &["1=a", "2=c"]);
    becomes("INSERT INTO p (id, name) SELECT id, 'x' FROM plain WHERE n = 5", "INSERT INTO p (id, name) SELECT id, $1::enc_text FROM plain WHERE n = 5", &["1=x"]);
    becomes("INSERT INTO p (id, age) VALUES (1, 2 + 3)", "INSERT INTO p (id, age) VALUES (1, $1)", &["1=5"]);
    becomes("INSERT INTO p (id, age) VALUES (1, 2) ON CONFLICT (id) DO UPDATE SET age = excluded.age + 1, note = 'n' WHERE p.age < 9 RETURNING age + 5", "INSERT INTO p (id, age) VALUES (1, $1) ON CONFLICT (id) DO UPDATE SET age = excluded.age + $2, note = 'n' WHERE p.age < $3 RETURNING age + $4", &["1=2", "2=1", "3=9", "4=5"]);
    becomes("UPDATE p SET name = 'x', salary = salary * 1.1, note = 'y' WHERE age = 4", "UPDATE p SET name = $1, salary = salary * $2, note = 'y' WHERE age = $3", &["1=x", "2=1.1", "3=4"]);
    becomes("UPDATE p SET (name, note) = ('x', 'y')", "UPDATE p SET (name, note) = ($1, 'y')", &["1=x"]);
    becomes("UPDATE p SET name = plain.name FROM plain WHERE p.id = plain.id AND age = 3 AND n = 2", "UPDATE p SET name = plain.name FROM plain WHERE p.id = plain.id AND age = $1 AND n = 2", &["1=3"]);
    becomes("DELETE FROM p USING plain WHERE p.id = plain.id AND p.name = 'x' AND plain.name = 'y'", "DELETE FROM p USING plain WHERE p.id = plain.id AND p.name = $1 AND plain.name = 'y'", &["1=x"]);
    becomes("WITH d AS (DELETE FROM p WHERE name = 'x' RETURNING name) SELECT * FROM d WHERE name <> 'y'", "WITH d AS (DELETE FROM p WHERE name = $1 RETURNING name) SELECT * FROM d WHERE name <> $2", &["1=x", "2=y"]);
    becomes("MERGE INTO p USING plain s ON p.id = s.id WHEN MATCHED AND p.age > 5 THEN UPDATE SET name = 'a' WHEN NOT MATCHED THEN INSERT (id, name) VALUES (1, 'b')", "MERGE INTO p USING plain s ON p.id = s.id WHEN MATCHED AND p.age > $1 THEN UPDATE SET name = $2 WHEN NOT MATCHED THEN INSERT (id, name) VALUES (1, $3)", &["1=5", "2=a", "3=b"]);
}

#[test]
fn the_clients_own_parameters() {
    let plans = plan("SELECT id FROM p WHERE name = $2 AND id = $1 AND age > 5", &shop(), 2).unwrap();
    assert_eq!(plans[0].confidential, [2].into());
    assert_eq!((plans[0].parameters, plans[0].constants[0].number), (2, 3));
    assert!(plans[0].sql.ends_with("name = $2 AND id = $1 AND age > $3"), "{}", plans[0].sql);
    // More declared than used: the new number is behind them all.
    let plans = plan("SELECT id FROM p WHERE age > 5 AND name = $1", &shop(), 4).unwrap();
    assert_eq!(plans[0].constants[0].number, 5);
}

#[test]
fn statements_that_hold_others() {
    becomes("EXPLAIN SELECT id FROM p WHERE name = 'x'", "EXPLAIN SELECT id FROM p WHERE name = $1", &["1=x"]);
    becomes("DECLARE c CURSOR FOR SELECT id FROM p WHERE name = 'x'", "DECLARE c CURSOR FOR SELECT id FROM p WHERE name = $1", &["1=x"]);
    becomes("CREATE TABLE n AS SELECT id FROM p WHERE name = 'x'", "CREATE TABLE n AS SELECT id FROM p WHERE name = $1", &["1=x"]);
}

#[test]
fn what_cannot_be_sent_is_refused() {
    for sql in [
        "CREATE VIEW w AS SELECT id FROM p WHERE name = 'secret'",
        "CREATE MATERIALIZED VIEW w AS SELECT id FROM p WHERE name = 'secret'",
        "CREATE TABLE t2 (id int, c strongroom_columns.enc_text DEFAULT 'secret')",
        "CREATE TABLE t2 (id int, c enc_text, CHECK (c <> 'secret'))",
        "ALTER TABLE p ADD CHECK (name <> 'secret')",
        "ALTER TABLE p ALTER name SET DEFAULT 'secret'",
        "ALTER TABLE plain ADD COLUMN c enc_text DEFAULT 'secret'",
        "CREATE INDEX ON p (id) WHERE name = 'secret'",
        "CREATE POLICY y ON p USING (name = 'secret')",
        "CREATE TRIGGER g AFTER UPDATE ON p FOR EACH ROW WHEN (new.name = 'secret') EXECUTE FUNCTION f()",
        "CREATE RULE r AS ON INSERT TO plain DO ALSO INSERT INTO p (name) VALUES ('secret')",
        "PREPARE s AS SELECT id FROM p WHERE name = 'secret'",
        "PREPARE s AS SELECT id FROM p WHERE name = $1",
        "DO $$ BEGIN UPDATE p SET name = 'secret'; END $$",
        "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS $$ SELECT 1 FROM p WHERE name = 'secret' $$",
        "CREATE PUBLICATION u FOR TABLE p WHERE (name = 'secret')",
        "COPY (SELECT id FROM p WHERE name = 'secret') TO STDOUT",
        "COPY p TO '/tmp/secret'",
        "SELECT xmlelement(name secret, xmlattributes('secret' AS a), name) FROM p",
    ] {
        refused(sql);
    }
    assert!(refused("SELEC 'secret'").message.contains("syntax error"));
    let refusal = refused("SELECT id FROM p WHERE id = 1 AND name = B'1'");
    assert_eq!(refusal.position, Some(42));
}

#[test]
fn execute_with_constants_is_noticed() {
    let plans = plan("EXECUTE s('x')", &shop(), 0).unwrap();
    assert_eq!(plans[0].executes.as_deref(), Some("s"));
    assert!(plan("EXECUTE s", &shop(), 0).unwrap()[0].executes.is_none());
}

#[test]
fn copy_knows_its_columns() {
    let copy = |sql: &str| plan(sql, &shop(), 0).unwrap().remove(0).copy;
    assert!(copy("COPY plain FROM STDIN").is_none());
    let found = copy("COPY p (id, name, age) FROM STDIN WITH (FORMAT csv, HEADER, NULL 'nil')").unwrap();
    assert_eq!(found.columns, Some(vec![None, Some(Kind::Text), Some(Kind::Int4)]));
    assert!(found.from && found.options.header && found.options.null == b"nil");
    assert_eq!((found.options.format, found.options.delimiter), (CopyFormat::Csv, b','));
    let found = copy("COPY (SELECT id, name || name FROM p) TO STDOUT").unwrap();
    assert_eq!(found.columns, Some(vec![None, Some(Kind::Text)]));
    assert_eq!(copy("COPY p TO STDOUT (FORMAT csv, FORCE_QUOTE *)").unwrap().options.other.as_deref(), Some("force_quote"));
}

/// Every column that is no key is confidential.
pub(crate) fn tpch() -> Catalog {
    catalog(&[
        "region(r_regionkey, r_name text, r_comment text)",
        "nation(n_nationkey, n_name text, n_regionkey, n_comment text)",
        "part(p_partkey, p_name text, p_mfgr text, p_brand text, p_type text, p_size int4, p_container text, p_retailprice numeric, p_comment text)",
        "supplier(s_suppkey, s_name text, s_address text, s_nationkey, s_phone text, s_acctbal numeric, s_comment text)",
        "partsupp(ps_partkey, ps_suppkey, ps_availqty int4, ps_supplycost numeric, ps_comment text)",
        "customer(c_custkey, c_name text, c_address text, c_nationkey, c_phone text, c_acctbal numeric, c_mktsegment text, c_comment text)",
        "orders(o_orderkey, o_custkey, o_orderstatus text, o_totalprice numeric, o_orderdate date, o_orderpriority text, o_clerk text, o_shippriority int4, o_comment text)",
        "lineitem(l_orderkey, l_partkey, l_suppkey, l_linenumber, l_quantity numeric, l_extendedprice numeric, l_discount numeric, l_tax numeric, l_returnflag text, l_linestatus text, l_shipdate date, l_commitdate date, l_receiptdate date, l_shipinstruct text, l_shipmode text, l_comment text)",
    ])
}

#[test]
fn tpch_leaves_no_constant_but_structure() {
    // What stays: LIMIT, fields and positions, the 1 and 0 that Q12 counts with.
    let stay = [0, 1, 1, 0, 0, 0, 1, 1, 1, 1, 0, 4, 0, 0, 0, 0, 0, 1, 0, 0, 1, 6];
    assert_eq!(stay.len(), 22);
    for (at, stay) in stay.into_iter().enumerate() {
        let number = at + 1;
        let path = format!("{}/tests/tpch/q{number:02}.sql", env!("CARGO_MANIFEST_DIR"));
        let sql = std::fs::read_to_string(path).unwrap();
        let plan = plan(&sql, &tpch(), 0).unwrap_or_else(|refusal| panic!("Q{number}: {refusal}")).remove(0);
        let tree = pg_query::parse(&plan.sql, pg_query::ParserOptions::default()).unwrap().protobuf;
        let left = serde_json::to_string(&tree).unwrap().matches("\"AConst\"").count();
        assert!(plan.changed && plan.unknown.is_empty(), "Q{number}");
        assert_eq!(left, stay, "Q{number}: {}", plan.sql);
    }
}

#[test]
fn deep_nesting_ends_in_an_error_or_a_plan() {
    let nest = |depth: usize| format!("SELECT id FROM p WHERE age = {}1{}", "(".repeat(depth), ")".repeat(depth));
    let chain = |depth: usize| format!("SELECT id FROM p WHERE age = 1{}", " + 1".repeat(depth));
    let child = std::thread::Builder::new().stack_size(64 << 20).spawn(move || {
        for depth in [10, 100, 1000, 10_000, 100_000] {
            for sql in [nest(depth), chain(depth)] {
                let _either = plan(&sql, &shop(), 0).is_ok();
            }
        }
        plan(&chain(500), &shop(), 0).map(|plans| plans[0].constants.len())
    });
    assert_eq!(child.unwrap().join().unwrap(), Ok(2));
}

/// Every column that is no key is confidential.
fn tpcc() -> Catalog {
    catalog(&[
        "warehouse(w_id, w_name text, w_street_1 text, w_city text, w_state text, w_zip text, w_tax numeric, w_ytd numeric)",
        "district(d_w_id, d_id, d_name text, d_street_1 text, d_city text, d_tax numeric, d_ytd numeric, d_next_o_id int4)",
        "customer(c_w_id, c_d_id, c_id, c_first text, c_middle text, c_last text, c_credit text, c_credit_lim numeric, c_discount numeric, c_balance numeric, c_ytd_payment numeric, c_payment_cnt int4, c_delivery_cnt int4, c_since timestamp, c_data text)",
        "history(h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, h_date timestamp, h_amount numeric, h_data text)",
        "new_order(no_w_id, no_d_id, no_o_id)",
        "orders(o_w_id, o_d_id, o_id, o_c_id, o_entry_d timestamp, o_carrier_id int4, o_ol_cnt int4, o_all_local int4)",
        "order_line(ol_w_id, ol_d_id, ol_o_id, ol_number, ol_i_id, ol_supply_w_id, ol_delivery_d timestamp, ol_quantity int4, ol_amount numeric, ol_dist_info text)",
        "item(i_id, i_im_id, i_name text, i_price numeric, i_data text)",
        "stock(s_w_id, s_i_id, s_quantity int4, s_dist_01 text, s_ytd numeric, s_order_cnt int4, s_remote_cnt int4, s_data text)",
        "sbtest1(id, k int4, c text, pad text)",
    ])
}

#[test]
fn tpcc_and_sysbench_with_parameters() {
    // The statement, and which of its parameters are confidential.
    let statements: &[(&str, &[i32])] = &[
        ("SELECT c_discount, c_last, c_credit, w_tax FROM customer, warehouse WHERE w_id = $1 AND c_w_id = w_id AND c_d_id = $2 AND c_id = $3", &[]),
        ("SELECT d_next_o_id, d_tax FROM district WHERE d_id = $1 AND d_w_id = $2 FOR UPDATE", &[]),
        ("UPDATE district SET d_next_o_id = $1 + 1 WHERE d_id = $2 AND d_w_id = $3", &[1]),
        ("INSERT INTO orders (o_id, o_d_id, o_w_id, o_c_id, o_entry_d, o_ol_cnt, o_all_local) VALUES ($1, $2, $3, $4, $5, $6, $7)", &[5, 6, 7]),
        ("INSERT INTO new_order VALUES ($1, $2, $3)", &[]),
        ("UPDATE stock SET s_quantity = $1, s_ytd = s_ytd + $2, s_order_cnt = s_order_cnt + 1 WHERE s_i_id = $3 AND s_w_id = $4", &[1, 2]),
        ("INSERT INTO order_line (ol_o_id, ol_d_id, ol_w_id, ol_number, ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_dist_info) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)", &[7, 8, 9]),
        ("UPDATE warehouse SET w_ytd = w_ytd + $1 WHERE w_id = $2", &[1]),
        ("SELECT c_id FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_last = $3 ORDER BY c_first", &[3]),
        ("UPDATE customer SET c_balance = c_balance - $1, c_ytd_payment = c_ytd_payment + $1, c_payment_cnt = c_payment_cnt + 1, c_data = substring($2 || c_data, 1, 500) WHERE c_w_id = $3 AND c_d_id = $4 AND c_id = $5", &[1, 2]),
        ("SELECT ol_i_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = $3", &[]),
        ("UPDATE orders SET o_carrier_id = $1 WHERE o_id = $2 AND o_d_id = $3 AND o_w_id = $4", &[1]),
        ("SELECT sum(ol_amount) FROM order_line WHERE ol_o_id = $1 AND ol_d_id = $2 AND ol_w_id = $3", &[]),
        ("SELECT count(DISTINCT s_i_id) FROM order_line, stock WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id < $3 AND ol_o_id >= $3 - 20 AND s_w_id = $1 AND s_i_id = ol_i_id AND s_quantity < $4", &[4]),
        ("SELECT c FROM sbtest1 WHERE id = $1", &[]),
        ("SELECT c FROM sbtest1 WHERE id BETWEEN $1 AND $2 ORDER BY c", &[]),
        ("SELECT sum(k) FROM sbtest1 WHERE id BETWEEN $1 AND $2", &[]),
        ("UPDATE sbtest1 SET k = k + 1 WHERE id = $1", &[]),
        ("UPDATE sbtest1 SET c = $1 WHERE id = $2", &[1]),
        ("INSERT INTO sbtest1 (id, k, c, pad) VALUES ($1, $2, $3, $4)", &[2, 3, 4]),
    ];
    for (sql, confidential) in statements {
        let plan = plan(sql, &tpcc(), 0).unwrap_or_else(|refusal| panic!("{sql}: {refusal}")).remove(0);
        assert_eq!(plan.confidential, confidential.iter().copied().collect(), "{sql}");
    }
}

#[test]
fn a_table_made_in_the_same_query_is_known_behind_it() {
    let sql = "CREATE TABLE fresh (a int, b strongroom_columns.enc_text); INSERT INTO fresh VALUES (1, 'x')";
    let plans = plan(sql, &shop(), 0).unwrap();
    assert_eq!(plans[1].sql, "INSERT INTO fresh VALUES (1, $1)");
    assert!(plans[1].unknown.is_empty());
}
