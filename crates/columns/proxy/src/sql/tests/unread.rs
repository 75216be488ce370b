//! Statements whose constants the proxy cannot place, and what statements before them in the same
//! text define.

use super::{catalog, catalog_rows, refused, shop};
use crate::sql::catalog::Catalog;
use crate::sql::{Plan, plan, plan_undecoded};

#[test]
fn what_names_nothing_confidential_is_sent_as_it_is() {
    for sql in [
        "DO $$ BEGIN UPDATE plain SET n = 'public'; END $$",
        "DO LANGUAGE plpgsql 'BEGIN PERFORM 5; END'",
        "CREATE FUNCTION g() RETURNS int LANGUAGE sql AS 'SELECT 5'",
        "CREATE FUNCTION g(a int DEFAULT 5) RETURNS int LANGUAGE sql BEGIN ATOMIC SELECT a + 1; END",
        "CREATE FUNCTION g() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.n := 5; RETURN NEW; END'",
        "CREATE RULE r AS ON INSERT TO plain DO ALSO SELECT 5",
        "CREATE DOMAIN d AS int CHECK (value > 5)",
        "CREATE PUBLICATION u FOR TABLE plain WHERE (id > 5)",
        "CREATE STATISTICS s ON (n || 'x'), id FROM plain",
        "SELECT 'x' FROM plain WITH NONSENSE",
        "MERGE INTO plain USING plain b ON 5 == 6",
        "BEGIN; DO 'BEGIN PERFORM 5; END'; INSERT INTO plain (id) VALUES (1); COMMIT",
        "CREATE TABLE z (a int, b text); INSERT INTO z VALUES (1, 'x')",
        "CREATE VIEW z AS SELECT id, n FROM plain; SELECT * FROM z WHERE n = 'x'",
        "CREATE TABLE z AS SELECT 1 AS a; UPDATE z SET a = 2",
        "SELECT n INTO z FROM plain; DELETE FROM z WHERE n = 'x'",
        "CREATE DOMAIN d AS text; CREATE TABLE z (a d); INSERT INTO z VALUES ('x')",
    ] {
        let plans = plan(sql, &shop(), 0).unwrap_or_else(|refusal| panic!("{sql}: {refusal}"));
        let stays = plans
            .iter()
            .all(|plan| !plan.changed && plan.constants.is_empty());
        assert!(
            stays && plans.iter().all(|plan| plan.confidential.is_empty()),
            "{sql}"
        );
    }
}

#[test]
fn a_text_of_another_encoding_is_sent_if_it_names_nothing_confidential() {
    let names = |names: &[&str], text: &[u8]| plan_undecoded(text, &catalog(names));
    let shop = ["plain(id, n)", "p(id, name text)"];
    let insert = names(&shop, b"INSERT INTO plain (n) VALUES ('caf\xe9')").unwrap();
    assert!(!insert.changed && !insert.effects.defines);
    let made = names(&shop, b"CREATE TABLE caf\xe9 (a int)").unwrap();
    assert!(made.effects.defines);
    // In Shift JIS the second byte of a character may be that of a letter or of a backslash.
    assert!(names(&shop, b"SELECT '\x83A', '\x95\\'").is_some());
    for text in [
        &b"INSERT INTO p (name) VALUES ('caf\xe9')"[..],
        b"UPDATE \"p\" SET name = '\xe9'",
        b"SELECT '\xe9'::enc_text",
        b"EXECUTE s('\xe9')",
        b"SELECT U&\"\\0070\", '\xe9'",
    ] {
        assert!(names(&shop, text).is_none(), "{}", text.escape_ascii());
    }
    let cafe = ["caf\u{e9}(id, name text)"];
    assert!(names(&cafe, b"SELECT 'caf\xe9'").is_none());
}

#[test]
fn what_was_defined_before_in_the_same_text_counts() {
    for sql in [
        "CREATE TABLE z (a enc_text); DO $$ BEGIN INSERT INTO z VALUES ('x'); END $$",
        "ALTER TABLE plain ADD a enc_text; DO $$ BEGIN UPDATE plain SET a = 'x'; END $$",
        "CREATE VIEW z AS SELECT * FROM p; DO $$ BEGIN INSERT INTO z VALUES (1, 'x'); END $$",
        "ALTER TABLE p RENAME TO z; DO $$ BEGIN UPDATE z SET name = 'x'; END $$",
        "CREATE DOMAIN d AS enc_text; DO $$ BEGIN PERFORM 'x'::d; END $$",
        "DO $$ BEGIN ALTER TABLE p RENAME TO z; END $$; DO $$ BEGIN UPDATE z SET name = 'x'; END $$",
        "EXECUTE s((SELECT name FROM p WHERE name = 'x'))",
        "CREATE TABLE p (id int, name text); ROLLBACK; DO $$ BEGIN UPDATE p SET name = 'x'; END $$",
    ] {
        refused(sql);
    }
    let sealed = |sql: &str| {
        let plans = plan(sql, &shop(), 0).unwrap();
        let last = plans.last().unwrap();
        assert!(
            !last.sql.contains('x') && !last.constants.is_empty(),
            "{sql}: {}",
            last.sql
        );
    };
    sealed("CREATE FUNCTION h(enc_text) RETURNS int LANGUAGE sql AS ''; SELECT h('x')");
    sealed("CREATE DOMAIN d AS enc_text; CREATE TABLE z (a d); INSERT INTO z VALUES ('x')");
    sealed("CREATE TYPE d AS (a enc_text); CREATE TABLE z (a d); INSERT INTO z (a.a) VALUES ('x')");
    sealed(
        "BEGIN; DROP TABLE p; CREATE TABLE p (id int, name text); ROLLBACK; UPDATE p SET name = 'x'",
    );
    sealed("DO $$ BEGIN ALTER TABLE p RENAME TO z; END $$; UPDATE z SET name = 'x'");
}

#[test]
fn columns_of_parents_and_of_the_statement_itself_are_known() {
    for sql in [
        "CREATE TABLE z (b int CHECK (id > 5), CHECK (n <> 'x')) INHERITS (plain)",
        "CREATE TABLE z (LIKE plain, c int DEFAULT 5, CHECK (n <> 'x'))",
        "CREATE TABLE z PARTITION OF plain (n DEFAULT 'x', CHECK (id > 5)) FOR VALUES IN (1)",
        "CREATE TABLE z OF plain (n WITH OPTIONS DEFAULT 'x')",
        "CREATE TABLE y (a int, b int) PARTITION BY LIST (a); CREATE TABLE z PARTITION OF y (b DEFAULT 5) FOR VALUES IN (1)",
        "ALTER TABLE plain ADD COLUMN c int CHECK (c > 5), ADD CHECK (c < 100)",
        "ALTER TABLE p ADD COLUMN c int CHECK (c > 5)",
        "SELECT * FROM (SELECT (f()).name, GREATEST(id, 5), EXISTS (SELECT 1) FROM plain) s WHERE name = 'x' AND \"greatest\" > 5 AND \"exists\" = true",
        "WITH RECURSIVE r(a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM r) CYCLE a SET c TO 'y' DEFAULT 'n' USING path SELECT * FROM r WHERE c = 'x'",
        "WITH RECURSIVE r(a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM r) SEARCH DEPTH FIRST BY a SET o SELECT * FROM r WHERE a > 5 ORDER BY o",
        "SELECT * FROM XMLTABLE('/a' PASSING '<a/>' COLUMNS b text PATH 'x', o FOR ORDINALITY) t WHERE b = 'x' AND o = 5",
        "SELECT '{1}'::_int4, '{a}'::_name, 5::information_schema.cardinal_number, '{1}'::_inet",
        "SELECT json_populate_record(NULL::record, '{\"x\": 5}')",
    ] {
        let plans = plan(sql, &shop(), 0).unwrap_or_else(|refusal| panic!("{sql}: {refusal}"));
        assert!(plans.iter().all(|plan| !plan.changed), "{sql}");
    }
    for sql in [
        "CREATE TABLE z (b int CHECK (name <> 'x')) INHERITS (p)",
        "CREATE TABLE z PARTITION OF p (name DEFAULT 'x') FOR VALUES IN (1)",
        "CREATE TABLE z OF p (name WITH OPTIONS DEFAULT 'x')",
        "CREATE TABLE z (LIKE p, CHECK (name <> 'x'))",
        "CREATE TABLE z (CHECK (c > 5)) INHERITS (nowhere)",
        "ALTER TABLE plain ADD COLUMN c enc_int4, ADD CHECK (c > 5)",
        "SELECT * FROM p, XMLTABLE('/a' PASSING name COLUMNS b text PATH 'x') t WHERE b = 'x'",
    ] {
        let leaks = plan(sql, &shop(), 0).is_ok_and(|plans| {
            plans
                .iter()
                .any(|plan| plan.sql.contains("'x'") || plan.sql.contains("> 5"))
        });
        assert!(!leaks, "{sql}");
    }
}

#[test]
fn plain_definitions_need_no_look_at_the_server() {
    for sql in [
        "CREATE TABLE z (a int, b text DEFAULT 'x')",
        "CREATE TABLE z (LIKE plain) INHERITS (plain)",
        "CREATE TEMP TABLE z AS SELECT id FROM plain",
        "CREATE VIEW z AS SELECT id FROM plain",
        "CREATE INDEX ON plain (id)",
        "CREATE TABLE z (a varchar(5), b timestamptz[], c information_schema.sql_identifier, d serial)",
        "CREATE FUNCTION g(a int, OUT b text) RETURNS SETOF record LANGUAGE sql AS 'SELECT 5'",
        "ALTER TABLE plain ADD c int DEFAULT 5",
        "DROP TABLE plain",
        "TRUNCATE plain",
        "SET search_path TO other, public",
        "CREATE FUNCTION g() RETURNS int LANGUAGE sql AS 'SELECT 5'",
    ] {
        let plan = plan(sql, &shop(), 0).unwrap().remove(0);
        assert!(!plan.effects.defines && plan.changes.is_empty(), "{sql}");
    }
    for sql in [
        "CREATE TABLE z (a enc_int4)",
        "CREATE TABLE p (a int)",
        "CREATE TABLE plain (a int)",
        "CREATE TABLE z (LIKE p)",
        "CREATE TABLE z (a int) INHERITS (nowhere)",
        "CREATE VIEW z AS SELECT id FROM p",
        "CREATE OR REPLACE VIEW v AS SELECT 1",
        "ALTER TABLE plain ADD c enc_text",
        "ALTER TABLE plain RENAME TO z",
        "ALTER TABLE nowhere ADD c int",
        "DROP TABLE p",
        "DROP TABLE plain, p",
        "CREATE TABLE z AS EXECUTE s",
        "CREATE TABLE z (a unheard_of)",
        "ALTER TABLE plain ADD a other.unheard_of",
        "CREATE DOMAIN d AS unheard_of",
        "DROP SCHEMA other CASCADE",
        "DROP TYPE d CASCADE",
        "DROP EXTENSION e",
        "DO $$ BEGIN END $$",
        "CREATE FUNCTION enc_function(a int) RETURNS int LANGUAGE sql AS 'SELECT a'",
    ] {
        let plan = plan(sql, &shop(), 0).unwrap().remove(0);
        assert!(plan.effects.defines, "{sql}");
    }
    // After a plain definition its names are known, and confidential ones stay what they are.
    let plans = plan(
        "DROP TABLE plain; CREATE TABLE plain (c int, d text); ALTER TABLE plain ADD e int;
         INSERT INTO plain VALUES (1, 'x', 5); UPDATE p SET name = 'y'",
        &shop(),
        0,
    );
    let plans = plans.unwrap();
    assert!(plans[..4].iter().all(|plan| !plan.changed));
    assert!(!plans[4].sql.contains('y'), "{}", plans[4].sql);
}

#[test]
fn what_would_write_an_envelope_is_refused() {
    for sql in [
        "SELECT concat(name, 'x') FROM p",
        "SELECT format('%s', age) FROM p",
        "SELECT json_agg(p) FROM p",
        "SELECT to_jsonb(name) FROM p",
        "SELECT row_to_json(p) FROM p",
        "SELECT xmlelement(name a, name) FROM p",
        "SELECT json_build_object('a', id, 'b', age) FROM p",
    ] {
        assert!(refused(sql).message.contains("envelope"), "{sql}");
    }
    for sql in [
        "SELECT concat(n, 'x'), json_agg(plain), format('%s', 5) FROM plain GROUP BY n",
        "SELECT xmlelement(name a, xmlforest(n, 5 AS b)) FROM plain WHERE n = 'x'",
        "SELECT to_json(id), concat(id, 'x') FROM p",
        "WITH RECURSIVE x(id) AS (SELECT * FROM y UNION ALL SELECT id + 1 FROM x WHERE id < 5), y(id) AS (VALUES (1)) SELECT * FROM x WHERE id > 2",
    ] {
        let plans = plan(sql, &shop(), 0).unwrap_or_else(|refusal| panic!("{sql}: {refusal}"));
        assert!(plans.iter().all(|plan| !plan.changed), "{sql}");
    }
}

/// Some functions execute a text, others get their values as names or texts in a definition.
#[test]
fn a_value_in_a_text_is_a_constant() {
    for sql in [
        "SELECT * FROM crosstab('SELECT id, note, id FROM p WHERE salary > 5000') AS c(id int, a text)",
        "SELECT query_to_xml('SELECT id FROM p WHERE salary > 5000', true, false, '')",
        "SELECT * FROM dblink('dbname=x', $$UPDATE p SET name = 'Alice'$$) AS d(id int)",
        "SELECT cron.schedule('night', '0 0 * * *', 'DELETE FROM p WHERE salary > 5000')",
        "SELECT cron.schedule('night', '0 0 * * *', 'DO $d$ BEGIN UPDATE p SET salary = 5; END $d$')",
        "CALL run('DELETE FROM p WHERE salary > 5000')",
        "EXPLAIN SELECT query_to_xml('SELECT id FROM p WHERE salary > 5000'::text, true, false, '')",
        "COPY (SELECT query_to_xml('SELECT id FROM p WHERE salary > 5000', true, false, '')) TO STDOUT",
        "CREATE VIEW w AS SELECT query_to_xml('SELECT id FROM p WHERE salary > 5000', true, false, '')",
        "CREATE TRIGGER t BEFORE INSERT ON public.p FOR EACH ROW EXECUTE FUNCTION fill('salary', '5000')",
        "CREATE AGGREGATE a (enc_int4) (sfunc = f, stype = enc_int4, initcond = '5000')",
        "CREATE AGGREGATE a (int) (sfunc = f, stype = strongroom_columns.enc_int4, initcond = 5000)",
    ] {
        assert!(refused(sql).message.contains("SR-8103"), "{sql}");
    }
    for sql in [
        "SELECT * FROM crosstab('SELECT id, note, id FROM p WHERE id > 5000') AS c(id int, a text)",
        "SELECT query_to_xml('SELECT id FROM p', true, false, ''), query_to_xml('SELECT 5 FROM plain', true, false, '')",
        "SELECT * FROM dblink('dbname=x', 'SELECT a FROM elsewhere WHERE b = 5') AS d(id int)",
        "SELECT to_char(id, 'FM name 999'), format('the name of p is %s, 5', n) FROM plain",
        "SELECT jsonb_path_query('{}', '$.name ? (@ > 5)'), set_config('p.name', 'salary 5', true)",
        "SELECT to_tsquery('name & salary'), regexp_replace(n, 'p name 5', 'salary') FROM plain",
        "CREATE TRIGGER t BEFORE INSERT ON plain FOR EACH ROW EXECUTE FUNCTION fill('n', '5000')",
        "CREATE TRIGGER t BEFORE INSERT ON p FOR EACH ROW EXECUTE FUNCTION moddatetime('at')",
        "CREATE TRIGGER t BEFORE INSERT ON p FOR EACH ROW EXECUTE FUNCTION f()",
        "CREATE AGGREGATE a (int) (sfunc = f, stype = int, initcond = '5000')",
        "CREATE AGGREGATE a (enc_int4) (sfunc = f, stype = int8, initcond = '0')",
    ] {
        let plans = plan(sql, &shop(), 0).unwrap_or_else(|refusal| panic!("{sql}: {refusal}"));
        assert!(plans.iter().all(|plan| !plan.changed), "{sql}");
    }
}

#[test]
fn texts_in_texts_are_read_as_far_as_the_stack_allows() {
    let mut text = "SELECT id FROM p WHERE salary > 5000".to_owned();
    for depth in 0.. {
        let outer = format!("SELECT f($a{depth}$ {text}$a{depth}$)");
        if outer.len() > 16 << 10 {
            break;
        }
        text = outer;
    }
    let child = std::thread::Builder::new()
        .stack_size(64 << 20)
        .spawn(move || plan(&format!("SELECT f($b$ {text}$b$)"), &shop(), 0).is_err());
    assert!(child.unwrap().join().unwrap());
}

/// In other languages than SQL and PL/pgSQL, SQL's scanner sees no strings.
#[test]
fn a_body_in_another_language_has_constants() {
    for sql in [
        "DO LANGUAGE plpython3u $$ plpy.execute(plpy.prepare(\"UPDATE p SET name = $1\", [\"text\"]), [\"Alice\"]) $$",
        "CREATE FUNCTION g() RETURNS void LANGUAGE plpython3u AS $$ plpy.execute(\"UPDATE p SET name = f(Alice)\") $$",
        "CREATE FUNCTION g() RETURNS void AS $$ spi_exec_query(q(UPDATE p SET name = q(Alice))) $$ LANGUAGE plperl",
        "CREATE PROCEDURE g() AS $$ spi_exec {UPDATE p SET name = {Alice}} $$ LANGUAGE pltcl",
    ] {
        assert!(refused(sql).message.contains("SR-8103"), "{sql}");
    }
    for sql in [
        "DO LANGUAGE plpython3u $$ plpy.execute(\"UPDATE plain SET n = f(Alice)\") $$",
        "DO $$ BEGIN UPDATE p SET name = note; END $$",
        "DO LANGUAGE plpgsql $$ BEGIN UPDATE p SET name = note; END $$",
        "CREATE FUNCTION g(a enc_text) RETURNS int LANGUAGE c AS '$libdir/lib', 'symbol'",
        "CREATE FUNCTION g(a enc_text) RETURNS enc_text LANGUAGE sql RETURN $1",
    ] {
        let plans = plan(sql, &shop(), 0).unwrap_or_else(|refusal| panic!("{sql}: {refusal}"));
        assert!(!plans[0].changed, "{sql}");
    }
}

/// Texts whose last statement has a constant `'x'` for what may be confidential by then.
const MADE_CONFIDENTIAL: &[&str] = &[
    "CREATE TABLE z (id int); ALTER TABLE z ADD COLUMN s enc_text; INSERT INTO z (id, s) VALUES (1, 'x')",
    "ALTER TABLE plain ADD COLUMN a int; ALTER TABLE plain ADD COLUMN s enc_text; UPDATE plain SET s = 'x'",
    "CREATE TABLE z AS SELECT 1 AS a; ALTER TABLE z ADD s enc_text; INSERT INTO z VALUES (1, 'x')",
    "CREATE TABLE z () INHERITS (plain); ALTER TABLE plain ADD s enc_text; INSERT INTO z (s) VALUES ('x')",
    "ALTER TABLE plain ALTER n TYPE enc_text; INSERT INTO plain (n) VALUES ('x')",
    "CREATE TABLE z (id int, s unheard_of); INSERT INTO z VALUES (1, 'x')",
    "DO $$ BEGIN CREATE DOMAIN d AS enc_text; END $$; CREATE TABLE z (s d); INSERT INTO z VALUES ('x')",
    "CREATE DOMAIN d AS enc_text; ALTER DOMAIN d RENAME TO e; CREATE TABLE z (s e); INSERT INTO z VALUES ('x')",
    "CREATE TABLE p (id int, name text); UPDATE p SET name = 'x'",
    "CREATE TABLE IF NOT EXISTS p (id int, name text); UPDATE p SET name = 'x'",
    "ALTER TABLE p RENAME COLUMN name TO n; CREATE TABLE IF NOT EXISTS p (id int, n text); UPDATE p SET n = 'x'",
    "SET search_path TO other; CREATE TABLE v (id int, vname text); UPDATE v SET vname = 'x'",
    "CREATE TABLE z AS EXECUTE s; UPDATE z SET a = 'x'",
    "DROP TABLE plain; ALTER TABLE other.only SET SCHEMA public; ALTER TABLE only RENAME TO plain; UPDATE plain SET c = 'x'",
    "CREATE TABLE only (c text); ALTER TABLE other.only SET SCHEMA public; UPDATE only SET c = 'x'",
    "ALTER FUNCTION enc_function RENAME TO g; SELECT g('x')",
    "CREATE TYPE d AS (a int); ALTER TYPE d ADD ATTRIBUTE b enc_text; CREATE TABLE z (c d); INSERT INTO z VALUES ('x')",
    "CREATE SCHEMA s CREATE TABLE plain (n enc_text); SET search_path TO s; UPDATE plain SET n = 'x'",
];

#[test]
fn what_becomes_confidential_within_a_text_gets_no_constant_in_clear() {
    for sql in MADE_CONFIDENTIAL {
        let clear = plan(sql, &shop(), 0).is_ok_and(|plans| {
            let last = plans.last().unwrap();
            last.sql.contains("'x'")
        });
        assert!(!clear, "{sql}");
    }
    for sql in [
        "DO $$ BEGIN UPDATE p SET ok = true; END $$",
        "CREATE FUNCTION g() RETURNS void LANGUAGE sql AS 'UPDATE p SET ok = false'",
    ] {
        refused(sql);
    }
    // What is dropped in another schema stays where it was.
    let plans = plan(
        "DROP TABLE IF EXISTS elsewhere.plain; INSERT INTO plain (n) VALUES ('x')",
        &shop(),
        0,
    );
    assert!(!plans.unwrap()[1].changed);
}

/// The columns after one was dropped or added, or has another name, in the same text: the value
/// that follows is for a confidential one.
#[test]
fn a_column_that_was_dropped_in_the_same_text_moves_the_others() {
    let mut rows = catalog_rows(&[
        "p(id, name text, age int4)",
        "q(id, note, name text)",
        "root(id, note, name text)",
        "part(id, note, name text)",
        "parent(id, note)",
        "child(id, note, name text)",
        "shown(id, name)",
        "two(id, name)",
        "other.two(id)",
        "lone(z)",
    ]);
    let part = ["h", "public", "part", "public", "root", ""];
    rows.push(part.iter().map(|field| Some((*field).to_owned())).collect());
    let catalog = Catalog::from_rows(&rows);
    let mut clear = Vec::new();
    for sql in [
        "ALTER TABLE p DROP COLUMN id; INSERT INTO p VALUES ('x', 5)",
        "ALTER TABLE public.p DROP id; INSERT INTO public.p SELECT 'x', 5",
        "ALTER TABLE p DROP COLUMN IF EXISTS id, ADD COLUMN id int; INSERT INTO p VALUES ('x')",
        "ALTER TABLE q DROP note; SELECT 1 FROM q AS r(a, b) WHERE b = 'x'",
        "ALTER TABLE q DROP note; SELECT * FROM q UNION SELECT 1, 'x'",
        "ALTER TABLE p DROP age; INSERT INTO q (id, note, name) SELECT p.*, 'x' FROM p",
        "CREATE TABLE z (a int, b enc_text); ALTER TABLE public.z DROP a; INSERT INTO z VALUES ('x')",
        "ALTER TABLE root DROP note; INSERT INTO part VALUES (1, 'x')",
        "ALTER TABLE root RENAME note TO b; ALTER TABLE root RENAME name TO note; INSERT INTO part (note) VALUES ('x')",
        "ALTER TABLE parent DROP note; INSERT INTO child VALUES (1, 'x')",
        // The server shows a column of the name before it is added.
        "ALTER TABLE shown ADD COLUMN name enc_text; UPDATE shown SET name = 'x'",
        "ALTER TABLE two ADD COLUMN name enc_text; UPDATE two SET name = 'x'",
        "ALTER TABLE q DROP note, ADD note enc_text; UPDATE q SET note = 'x'",
    ] {
        let plans = plan(sql, &catalog, 0);
        let last = |plans: &[Plan]| plans.last().is_some_and(|last| last.sql.contains("'x'"));
        if plans.is_ok_and(|plans| last(&plans)) {
            clear.push(sql);
        }
    }
    assert!(clear.is_empty(), "{clear:#?}");
    // What is for plain columns stays as it is.
    for sql in [
        "ALTER TABLE p DROP age; INSERT INTO q (note) VALUES ('x')",
        "ALTER TABLE root DROP id; INSERT INTO part (note) VALUES ('x')",
        "ALTER TABLE root DROP id; INSERT INTO part VALUES ('x')",
        "ALTER TABLE parent DROP id; INSERT INTO child (note) VALUES ('x')",
        "ALTER TABLE p DROP name; UPDATE q SET note = 'x' WHERE id = 5",
        "ALTER TABLE p ADD COLUMN active bool; UPDATE p SET active = true",
        "ALTER TABLE p ADD COLUMN IF NOT EXISTS n int; INSERT INTO p (id, n) VALUES (1, 5)",
        "ALTER TABLE root ADD n int DEFAULT 5; UPDATE part SET n = 6",
        "ALTER TABLE q RENAME note TO remark; UPDATE q SET remark = 'x' WHERE id = 5",
        "ALTER TABLE root RENAME note TO remark; UPDATE part SET remark = 'x'",
    ] {
        let plans = plan(sql, &catalog, 0).unwrap_or_else(|refusal| panic!("{sql}: {refusal}"));
        assert!(plans.iter().all(|plan| !plan.changed), "{sql}");
    }
    // Which relations inherit from a plain one the server is asked.
    for (sql, asks) in [
        ("ALTER TABLE parent ADD n int", true),
        ("ALTER TABLE lone ADD n int", false),
    ] {
        let plans = plan(sql, &catalog, 0).unwrap();
        assert_eq!(plans[0].effects.defines, asks, "{sql}");
    }
}
