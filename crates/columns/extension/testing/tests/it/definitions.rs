//! Goal: what a definition may not be is refused with a reason and without a zone, and what it may
//! be is made (X3).
//! Method: a server of its own whose zone is not there; statements beside what has to be said.

use std::path::Path;

use strongroom_columns_testing::Server;

/// Nobody listens here.
const NO_ZONE: &str = "/nonexistent/zone.sock";

/// Statement, and the SQLSTATE and a part of the message that it must be refused with.
const REFUSED: &[(&str, &str, &str)] = &[
    (
        "CREATE TABLE x (a enc_int4)",
        "0A000",
        "must use the access method strongroom",
    ),
    (
        "CREATE TABLE x USING heap AS SELECT * FROM t",
        "0A000",
        "must use the access method strongroom",
    ),
    (
        "CREATE MATERIALIZED VIEW x USING heap AS SELECT * FROM t",
        "0A000",
        "must use the access method",
    ),
    (
        "SELECT * INTO x FROM t",
        "0A000",
        "must use the access method strongroom",
    ),
    (
        "ALTER TABLE plain ADD COLUMN c enc_text",
        "0A000",
        "must use the access method strongroom",
    ),
    (
        "ALTER TABLE plain ALTER COLUMN a TYPE enc_int4 USING NULL",
        "0A000",
        "must use the access method",
    ),
    (
        "ALTER TABLE t SET ACCESS METHOD heap",
        "0A000",
        "must use the access method strongroom",
    ),
    (
        "CREATE TABLE x (a enc_int4[]) USING strongroom",
        "0A000",
        "cannot be inside an array",
    ),
    (
        "CREATE TABLE x (a pair) USING strongroom",
        "0A000",
        "cannot be inside an array, a composite",
    ),
    (
        "CREATE TABLE x (a pair[]) USING strongroom",
        "0A000",
        "cannot be inside an array, a composite",
    ),
    (
        "CREATE TABLE x (a t) USING strongroom",
        "0A000",
        "cannot be inside an array, a composite",
    ),
    (
        "ALTER TABLE t ADD COLUMN c enc_int4[]",
        "0A000",
        "cannot be inside an array",
    ),
    (
        "CREATE DOMAIN x AS enc_int4",
        "0A000",
        "a domain over a confidential type",
    ),
    (
        "CREATE DOMAIN x AS enc_int4[]",
        "0A000",
        "a domain over a confidential type",
    ),
    (
        "CREATE TYPE x AS RANGE (SUBTYPE = enc_date)",
        "0A000",
        "a range cannot be of a confidential type",
    ),
    (
        "CREATE TABLE x (a enc_interval(ordered)) USING strongroom",
        "22023",
        "a confidential interval cannot be ordered",
    ),
    (
        "CREATE INDEX ON t USING hash (a)",
        "0A000",
        "a hash index on a confidential column",
    ),
    (
        "CREATE TABLE x (a enc_int4(ordered), EXCLUDE USING btree (a WITH =)) USING strongroom",
        "0A000",
        "an exclusion constraint",
    ),
    (
        "CREATE TABLE x (a enc_int4) PARTITION BY RANGE (a)",
        "0A000",
        "cannot be a partition key",
    ),
    (
        "CREATE TABLE x (a enc_int4) PARTITION BY LIST (a)",
        "0A000",
        "cannot be a partition key",
    ),
    (
        "CREATE TABLE x (a enc_int4) PARTITION BY HASH (a)",
        "0A000",
        "cannot be a partition key",
    ),
    (
        "CREATE STATISTICS x ON a, b FROM t",
        "0A000",
        "extended statistics on a confidential column",
    ),
    (
        "CREATE FOREIGN TABLE x (a enc_int4) SERVER nowhere",
        "0A000",
        "a foreign table cannot have",
    ),
    (
        "CREATE INDEX ON t ((a + a))",
        "42P17",
        "must be marked IMMUTABLE",
    ),
    (
        "SELECT '42'::enc_int4",
        "22P02",
        "invalid input for type enc_int4: not an envelope",
    ),
    (
        "SELECT 'sr1:AAAA'::enc_text",
        "22P02",
        "invalid input for type enc_text: not an envelope",
    ),
    ("SELECT 42::enc_int4", "08001", "the zone cannot be reached"),
    (
        "SELECT NULL::enc_int4::date",
        "42846",
        "cannot cast type enc_int4 to date",
    ),
    (
        "SELECT a = 42 FROM t",
        "42883",
        "operator does not exist: enc_int4 = integer",
    ),
    (
        "SELECT strongroom_columns.status()",
        "08001",
        "the zone cannot be reached (SR-8003)",
    ),
];

/// Statements that work, and the last one's rows.
const MADE: &[(&str, &str)] = &[
    (
        "CREATE TABLE y (id int PRIMARY KEY, a enc_int8(ordered) UNIQUE, b enc_text NOT NULL) USING strongroom",
        "",
    ),
    (
        "CREATE TABLE y2 (a enc_int8 REFERENCES y (a), b enc_numeric(12,2)) USING strongroom",
        "",
    ),
    (
        "CREATE INDEX ON t (a, b); CREATE INDEX CONCURRENTLY ON t (b); REINDEX TABLE t",
        "",
    ),
    (
        "INSERT INTO t VALUES (1), (2); SELECT count(*), count(a) FROM t",
        "2|0",
    ),
    (
        "UPDATE t SET a = a + a, b = upper(b) WHERE id = 1; SELECT id FROM t WHERE a IS NULL ORDER BY id",
        "1\n2",
    ),
    (
        "SELECT sum(a), avg(a), min(b), string_agg(b, b), count(DISTINCT a) FROM t",
        "||||0",
    ),
    (
        "CREATE TABLE y3 USING strongroom AS SELECT * FROM t; SELECT count(*) FROM y3",
        "2",
    ),
    (
        "CREATE VIEW v AS SELECT id, a + a AS twice FROM t WHERE a < a; SELECT count(*) FROM v",
        "0",
    ),
    (
        "VACUUM t; ANALYZE t; SELECT stanullfrac, stawidth FROM pg_statistic WHERE starelid = 't'::regclass AND staattnum = 2",
        "1|8",
    ),
    (
        "CREATE TABLE z (a int, b enc_int4) PARTITION BY RANGE (a); CREATE TABLE z1 PARTITION OF z DEFAULT USING strongroom",
        "",
    ),
    (
        "INSERT INTO z VALUES (1, NULL); SELECT count(*) FROM z1",
        "1",
    ),
    (
        "SET default_table_access_method = 'strongroom'; CREATE TABLE y4 (a enc_bool, b text); SELECT amname FROM pg_class c JOIN pg_am a ON a.oid = c.relam WHERE relname = 'y4'",
        "strongroom",
    ),
    (
        "SELECT amname FROM pg_class c JOIN pg_class t ON t.oid = c.reltoastrelid JOIN pg_am a ON a.oid = t.relam WHERE c.relname = 'y4'",
        "heap",
    ),
    (
        "BEGIN; CREATE TABLE y5 (a enc_date) USING strongroom; SAVEPOINT s; TRUNCATE y5; ROLLBACK TO s; DROP TABLE y5; ROLLBACK",
        "",
    ),
    (
        "CREATE TABLE p (a int[], b int4range, c pg_catalog.text) USING strongroom; CREATE INDEX ON p USING hash (c)",
        "",
    ),
    (
        "BEGIN; INSERT INTO t VALUES (3); PREPARE TRANSACTION 'x'; COMMIT PREPARED 'x'; SELECT count(*) FROM t",
        "3",
    ),
    (
        "DROP TABLE y3; SELECT count(*) FROM pg_class WHERE relname = 'y3'",
        "0",
    ),
];

#[test]
fn definitions_are_refused_with_a_reason_or_made() {
    let server = Server::start(Path::new(NO_ZONE), "");
    let _none = server.rows(
        "CREATE EXTENSION strongroom_columns;
         CREATE TABLE t (id int, a enc_int4(ordered), b enc_text(ordered)) USING strongroom;
         CREATE TABLE plain (a int);
         CREATE TYPE pair AS (x int, y enc_int4);
         CREATE FOREIGN DATA WRAPPER w; CREATE SERVER nowhere FOREIGN DATA WRAPPER w;",
    );
    for (statement, state, message) in REFUSED {
        let said = server.run(statement);
        let expected = format!("ERROR:  {state}: ");
        assert!(
            said.messages.contains(&expected) && said.messages.contains(message),
            "{statement}\n{}",
            said.messages
        );
        assert!(
            !said.messages.contains("panicked"),
            "{statement}\n{}",
            said.messages
        );
    }
    for (statement, rows) in MADE {
        assert_eq!(server.rows(statement), *rows, "{statement}");
    }
    // Nothing of what was refused is there.
    assert_eq!(
        server.rows("SELECT count(*) FROM pg_class WHERE relname = 'x'"),
        "0"
    );
    assert_eq!(
        server.rows("SELECT count(*) FROM pg_type WHERE typname = 'x'"),
        "0"
    );
    // What was given as a value is not repeated.
    let said = server.run("SELECT 'the secret'::enc_text");
    assert!(
        !said
            .messages
            .lines()
            .any(|line| line.starts_with("ERROR") && line.contains("the secret"))
    );
    let said = server.run("SELECT current_setting('strongroom.zone'); CREATE ROLE somebody; SET ROLE somebody; SHOW strongroom.zone; SET strongroom.zone = ''");
    assert_eq!(said.rows, NO_ZONE);
    assert_eq!(
        said.messages.matches("ERROR:  42501").count(),
        2,
        "{}",
        said.messages
    );
}

#[test]
fn the_extension_wants_to_be_there_from_the_start() {
    let server = Server::start(Path::new(NO_ZONE), "shared_preload_libraries = ''");
    let said = server.run("CREATE EXTENSION strongroom_columns");
    assert!(
        said.messages
            .contains("ERROR:  55000: strongroom_columns must be loaded"),
        "{}",
        said.messages
    );
    assert!(
        said.messages.contains("shared_preload_libraries"),
        "{}",
        said.messages
    );
}
