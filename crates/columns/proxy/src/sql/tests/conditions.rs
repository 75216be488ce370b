//! Confidential booleans where the server needs a boolean in clear.

use super::{becomes, refused, stays};

#[test]
fn a_confidential_boolean_is_compared_with_true() {
    becomes(
        "SELECT CASE WHEN ok THEN 'x' END FROM p WHERE NOT ok AND (ok IS TRUE OR coalesce(ok, false))",
        "SELECT CASE WHEN ok = $1 THEN 'x' END FROM p WHERE NOT ok = $1 AND (ok = $1 IS TRUE OR coalesce(ok, $2) = $1)",
        &["1=t", "2=f"],
    );
    becomes(
        "SELECT count(*) FILTER (WHERE ok) FROM p JOIN q ON p.ok GROUP BY p.id HAVING bool_or(ok)",
        "SELECT count(*) FILTER (WHERE ok = $1) FROM p JOIN q ON p.ok = $1 GROUP BY p.id HAVING bool_or(ok) = $1",
        &["1=t"],
    );
    becomes(
        "UPDATE p SET note = 'x' WHERE (SELECT ok FROM p LIMIT 1) AND ok::boolean",
        "UPDATE p SET note = 'x' WHERE (SELECT ok FROM p LIMIT 1) = $1 AND ok::enc_bool = $1",
        &["1=t"],
    );
    becomes(
        "DELETE FROM p WHERE ok",
        "DELETE FROM p WHERE ok = $1",
        &["1=t"],
    );
    becomes(
        "MERGE INTO p USING q ON p.id = q.id AND p.ok WHEN MATCHED AND NOT p.ok THEN DELETE",
        "MERGE INTO p USING q ON p.id = q.id AND p.ok = $1 WHEN MATCHED AND NOT p.ok = $1 THEN DELETE",
        &["1=t"],
    );
}

#[test]
fn other_booleans_stay() {
    stays("SELECT ok, ok IS NULL FROM p WHERE id = 1 AND note = 'x' AND EXISTS (SELECT 1 FROM q)");
    stays("SELECT id FROM plain WHERE n::boolean AND coalesce(n::boolean, true)");
    // The signs of comparisons before one operand compute.
    becomes(
        "SELECT ~ age = 5 FROM p WHERE name ~ 'a'",
        "SELECT ~ age = $2 FROM p WHERE name ~ $1",
        &["1=a", "2=5"],
    );
    // A value that is stored or compared stays what it is.
    stays("INSERT INTO p (id, ok) SELECT id, ok FROM p ORDER BY ok");
    becomes(
        "SELECT CASE ok WHEN true THEN 1 END FROM p WHERE ok = false",
        "SELECT CASE ok WHEN $2 THEN 1 END FROM p WHERE ok = $1",
        &["1=f", "2=t"],
    );
    // A definition has no parameters.
    refused("CREATE VIEW w AS SELECT id FROM p WHERE ok");
}
