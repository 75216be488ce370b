//! Statements whose constants the proxy cannot place, and what statements before them in the same
//! text define.

use super::{refused, shop};
use crate::sql::plan;

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
fn what_was_defined_before_in_the_same_text_counts() {
    for sql in [
        "CREATE TABLE z (a enc_text); DO $$ BEGIN INSERT INTO z VALUES ('x'); END $$",
        "ALTER TABLE plain ADD a enc_text; DO $$ BEGIN UPDATE plain SET a = 'x'; END $$",
        "CREATE VIEW z AS SELECT * FROM p; DO $$ BEGIN INSERT INTO z VALUES (1, 'x'); END $$",
        "ALTER TABLE p RENAME TO z; DO $$ BEGIN UPDATE z SET name = 'x'; END $$",
        "CREATE DOMAIN d AS enc_text; DO $$ BEGIN PERFORM 'x'::d; END $$",
        "DO $$ BEGIN ALTER TABLE p RENAME TO z; END $$; DO $$ BEGIN UPDATE z SET name = 'x'; END $$",
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
