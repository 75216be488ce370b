//! The resolver on statements other than queries, and on what is refused.

use super::*;

#[test]
fn what_is_stored() {
    becomes(
        "INSERT INTO p VALUES (1, 'n', 2, 3, '2000-01-01', NULL, true, 1.5, '\\x00', 'plain')",
        "INSERT INTO p VALUES (1, $1, $2, $3, $4, NULL, $5, $6, $7, 'plain')",
        &[
            "1=n",
            "2=2",
            "3=3",
            "4=2000-01-01",
            "5=t",
            "6=1.5",
            "7=\\x00",
        ],
    );
    becomes(
        "INSERT INTO p (id, name) VALUES (1, 'a'), (2, DEFAULT), (3, 'c')",
        "INSERT INTO p (id, name) VALUES (1, $1), (2, DEFAULT), (3, $2)",
        &["1=a", "2=c"],
    );
    becomes(
        "INSERT INTO p (id, name) SELECT id, 'x' FROM plain WHERE n = 5",
        "INSERT INTO p (id, name) SELECT id, $1::enc_text FROM plain WHERE n = 5",
        &["1=x"],
    );
    becomes(
        "INSERT INTO p (id, age) VALUES (1, 2 + 3)",
        "INSERT INTO p (id, age) VALUES (1, $1)",
        &["1=5"],
    );
    becomes(
        "INSERT INTO p (id, age) VALUES (1, 2) ON CONFLICT (id) DO UPDATE SET age = excluded.age + 1, note = 'n' WHERE p.age < 9 RETURNING age + 5",
        "INSERT INTO p (id, age) VALUES (1, $1) ON CONFLICT (id) DO UPDATE SET age = excluded.age + $2, note = 'n' WHERE p.age < $3 RETURNING age + $4",
        &["1=2", "2=1", "3=9", "4=5"],
    );
    becomes(
        "UPDATE p SET name = 'x', salary = salary * 1.1, note = 'y' WHERE age = 4",
        "UPDATE p SET name = $1, salary = salary * $2, note = 'y' WHERE age = $3",
        &["1=x", "2=1.1", "3=4"],
    );
    becomes(
        "UPDATE p SET (name, note) = ('x', 'y')",
        "UPDATE p SET (name, note) = ($1, 'y')",
        &["1=x"],
    );
    becomes(
        "UPDATE p SET name = plain.name FROM plain WHERE p.id = plain.id AND age = 3 AND n = 2",
        "UPDATE p SET name = plain.name FROM plain WHERE p.id = plain.id AND age = $1 AND n = 2",
        &["1=3"],
    );
    becomes(
        "DELETE FROM p USING plain WHERE p.id = plain.id AND p.name = 'x' AND plain.name = 'y'",
        "DELETE FROM p USING plain WHERE p.id = plain.id AND p.name = $1 AND plain.name = 'y'",
        &["1=x"],
    );
    becomes(
        "WITH d AS (DELETE FROM p WHERE name = 'x' RETURNING name) SELECT * FROM d WHERE name <> 'y'",
        "WITH d AS (DELETE FROM p WHERE name = $1 RETURNING name) SELECT * FROM d WHERE name <> $2",
        &["1=x", "2=y"],
    );
    becomes(
        "MERGE INTO p USING plain s ON p.id = s.id WHEN MATCHED AND p.age > 5 THEN UPDATE SET name = 'a' WHEN NOT MATCHED THEN INSERT (id, name) VALUES (1, 'b')",
        "MERGE INTO p USING plain s ON p.id = s.id WHEN MATCHED AND p.age > $1 THEN UPDATE SET name = $2 WHEN NOT MATCHED THEN INSERT (id, name) VALUES (1, $3)",
        &["1=5", "2=a", "3=b"],
    );
}

#[test]
fn the_clients_own_parameters() {
    let plans = plan(
        "SELECT id FROM p WHERE name = $2 AND id = $1 AND age > 5",
        &shop(),
        2,
    )
    .unwrap();
    assert_eq!(plans[0].confidential, [2].into());
    assert_eq!((plans[0].parameters, plans[0].constants[0].number), (2, 3));
    assert!(
        plans[0].sql.ends_with("name = $2 AND id = $1 AND age > $3"),
        "{}",
        plans[0].sql
    );
    // More declared than used: the new number is behind them all.
    let plans = plan("SELECT id FROM p WHERE age > 5 AND name = $1", &shop(), 4).unwrap();
    assert_eq!(plans[0].constants[0].number, 5);
}

#[test]
fn statements_that_hold_others() {
    becomes(
        "EXPLAIN SELECT id FROM p WHERE name = 'x'",
        "EXPLAIN SELECT id FROM p WHERE name = $1",
        &["1=x"],
    );
    becomes(
        "DECLARE c CURSOR FOR SELECT id FROM p WHERE name = 'x'",
        "DECLARE c CURSOR FOR SELECT id FROM p WHERE name = $1",
        &["1=x"],
    );
    becomes(
        "CREATE TABLE n AS SELECT id FROM p WHERE name = 'x'",
        "CREATE TABLE n AS SELECT id FROM p WHERE name = $1",
        &["1=x"],
    );
}

#[test]
fn what_cannot_be_sent_is_refused() {
    for sql in [
        "CREATE VIEW w AS SELECT id FROM p WHERE name = 'secret'",
        "CREATE MATERIALIZED VIEW w AS SELECT id FROM p WHERE name = 'secret'",
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
    assert!(
        refused("SELEC 'secret' FROM p")
            .message
            .contains("syntax error")
    );
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
fn a_parameter_in_a_statement_that_takes_none_gets_no_value() {
    for sql in [
        "EXECUTE s($1)",
        "EXPLAIN EXECUTE s(1, lower($1))",
        "CREATE TABLE n AS EXECUTE s($1)",
        "CREATE RULE r AS ON INSERT TO plain DO ALSO SELECT $1",
    ] {
        assert!(refused(sql).message.contains("SR-8102"), "{sql}");
    }
    stays("EXECUTE s");
    stays("CREATE FUNCTION g(int) RETURNS int LANGUAGE sql RETURN $1");
}

#[test]
fn copy_knows_its_columns() {
    let copy = |sql: &str| plan(sql, &shop(), 0).unwrap().remove(0).copy;
    assert!(copy("COPY plain FROM STDIN").is_none());
    let found =
        copy("COPY public.p (id, name, age) FROM STDIN WITH (FORMAT csv, HEADER, NULL 'nil')")
            .unwrap();
    assert_eq!(
        found.columns,
        Some(vec![None, stored(Kind::Text), stored(Kind::Int4)])
    );
    assert!(found.from && found.options.header && found.options.null == b"nil");
    assert_eq!(
        (found.options.format, found.options.delimiter),
        (CopyFormat::Csv, b',')
    );
    // There is another of this name, whose column is plain.
    assert_eq!(copy("COPY p (id, name) FROM STDIN").unwrap().columns, None);
    let found = copy("COPY (SELECT id, name || name FROM public.p) TO STDOUT").unwrap();
    assert_eq!(found.columns, Some(vec![None, stored(Kind::Text)]));
    assert_eq!(
        copy("COPY public.p TO STDOUT (FORMAT csv, FORCE_QUOTE *)")
            .unwrap()
            .options
            .other
            .as_deref(),
        Some("force_quote")
    );
}

#[test]
fn what_the_catalog_does_not_know_is_noted() {
    let unknown = |sql: &str| plan(sql, &shop(), 0).unwrap().remove(0).unknown;
    assert_eq!(unknown("SELECT $1::elsewhere"), ["elsewhere"]);
    let refusal = plan("SELECT 'x'::public.elsewhere", &shop(), 0).unwrap_err();
    assert!(refusal.of_unknown);
    assert_eq!(unknown("SELECT id::elsewhere FROM plain"), ["elsewhere"]);
    assert!(
        unknown("SELECT $1::int4, 'x'::text, id::regclass, $2::pg_catalog.new FROM plain")
            .is_empty()
    );
    let copy = |sql: &str| plan(sql, &shop(), 0).unwrap().remove(0).copy.unwrap();
    assert!(copy("COPY nowhere (a) FROM STDIN").unknown);
    assert!(!copy("COPY p FROM STDIN").unknown);
}

#[test]
fn deep_nesting_ends_in_an_error_or_a_plan() {
    let nest = |depth: usize| {
        format!(
            "SELECT id FROM p WHERE age = {}1{}",
            "(".repeat(depth),
            ")".repeat(depth)
        )
    };
    let chain = |depth: usize| format!("SELECT id FROM p WHERE age = 1{}", " + 1".repeat(depth));
    let child = std::thread::Builder::new()
        .stack_size(64 << 20)
        .spawn(move || {
            for depth in [10, 100, 1000, 10_000, 100_000] {
                for sql in [nest(depth), chain(depth)] {
                    let _either = plan(&sql, &shop(), 0).is_ok();
                }
            }
            plan(&chain(500), &shop(), 0).map(|plans| plans[0].constants.len())
        });
    assert_eq!(child.unwrap().join().unwrap(), Ok(2));
}

#[test]
fn a_table_made_in_the_same_query_is_known_behind_it() {
    let sql = "CREATE TABLE fresh (a int, b strongroom_columns.enc_text); INSERT INTO fresh VALUES (1, 'x')";
    let plans = plan(sql, &shop(), 0).unwrap();
    assert_eq!(plans[1].sql, "INSERT INTO fresh VALUES (1, $1)");
    assert!(plans[1].unknown.is_empty());
}

/// What the proxy knows of a function by its name holds for PostgreSQL's and the extension's own.
#[test]
fn a_user_s_function_is_not_taken_for_another_of_its_name() {
    let made = |define: &str, sql: &str| {
        let text = format!("CREATE FUNCTION {define} LANGUAGE sql AS ''; {sql}");
        let plans = plan(&text, &shop(), 0).unwrap_or_else(|refusal| panic!("{sql}: {refusal}"));
        plans[1].sql.replace("strongroom_columns.", "")
    };
    for (define, sql, expected) in [
        (
            "app.rank(enc_numeric) RETURNS enc_int4",
            "SELECT id FROM p WHERE app.rank(salary) = 3",
            "SELECT id FROM p WHERE app.rank(salary) = $1::enc_int4",
        ),
        (
            "app.count(enc_numeric) RETURNS enc_int4",
            "SELECT id FROM p WHERE count(salary) = 3",
            "SELECT id FROM p WHERE count(salary) = $1::enc_int4",
        ),
        (
            "app.round(enc_numeric, enc_int4) RETURNS enc_numeric",
            "SELECT app.round(salary, 5000) FROM p",
            "SELECT app.round(salary, $1) FROM p",
        ),
        (
            "app.generate_series(enc_int4) RETURNS SETOF q",
            "SELECT 1 FROM p, app.generate_series(age) x WHERE amount = 5000",
            "SELECT 1 FROM p, app.generate_series(age) x WHERE amount = $1::enc_int4",
        ),
        (
            "app.substr(enc_text, enc_int4) RETURNS enc_text",
            "SELECT app.substr(name, 2) FROM p",
            "SELECT app.substr(name, $1::enc_int4) FROM p",
        ),
    ] {
        assert_eq!(made(define, sql), expected, "{sql}");
    }
    // One that the catalog does not name: with plain arguments, or with any.
    for (sql, expected, constant) in [
        (
            "SELECT app.char_length(name), app.position('x', name) FROM p",
            "SELECT app.char_length(name), app.position($1, name) FROM p",
            "1=x",
        ),
        (
            "SELECT id FROM p WHERE app.rank(salary) = 3",
            "SELECT id FROM p WHERE app.rank(salary) = $1::enc_int4",
            "1=3",
        ),
        (
            "SELECT pg_catalog.substr(name, 2), strongroom_columns.lpad(name, 5, 'x') FROM p",
            "SELECT \"substring\"(name, 2) AS substr, lpad(name, 5, $1) FROM p",
            "1=x",
        ),
    ] {
        becomes(sql, expected, &[constant]);
    }
    stays("SELECT app.rank(id), app.round(id, 5) FROM p WHERE app.left(note, 3) = 'x'");
}
