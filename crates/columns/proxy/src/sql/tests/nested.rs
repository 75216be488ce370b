//! Constants in expressions of constants that meet a confidential value.
//!
//! Method: each way to make a value of others is put into each other one. The result is compared
//! with a confidential column, computed with it, stored in it. Whatever way it is made, no constant
//! stays in the text unless the statement is refused.

use super::*;

/// Ways to make a number of two others, `{a}` and `{b}`. A sum of constants would be computed while
/// planning, and the constants could not be recognized.
const WAYS: &[&str] = &[
    "abs({a}) + abs({b})",
    "-abs({a}) * {b}",
    "abs({a}) - {b}",
    "greatest({a}, {b})",
    "least({a}, {b})",
    "coalesce({a}, {b})",
    "nullif({a}, {b})",
    "CASE WHEN true THEN {a} ELSE {b} END",
    "CASE 1 WHEN 2 THEN {a} ELSE {b} END",
    "CASE WHEN 1 < 2 THEN {b} END",
    "{a}::int8 + {b}::int8",
    "{a}::int8",
    "CAST({b} AS numeric)",
    "(SELECT {a})",
    "(SELECT x FROM (VALUES ({a}), ({b})) v(x) LIMIT 1)",
    "(SELECT {a} UNION SELECT {b})",
    "(WITH w AS (SELECT {a} x) SELECT w.x + {b} FROM w)",
    "(SELECT max(x) FROM unnest(ARRAY[{a}, {b}]) x)",
    "(ARRAY[{a}, {b}])[1]",
];

/// Places where such a number meets a confidential column.
const PLACES: &[&str] = &[
    "SELECT id FROM p WHERE age = {e}",
    "SELECT id FROM p WHERE {e} < age",
    "SELECT id FROM p WHERE age BETWEEN {e} AND {e}",
    "SELECT id FROM p WHERE age IN (1, {e})",
    "SELECT id FROM p WHERE age = ANY (ARRAY[{e}, 1])",
    "SELECT id FROM p WHERE (age, id) = ({e}, 1)",
    "SELECT id FROM p WHERE age IS DISTINCT FROM {e}",
    "SELECT age + {e} FROM p",
    "SELECT coalesce(age, {e}) FROM p",
    "SELECT nullif(age, {e}) FROM p",
    "SELECT greatest({e}, age) FROM p",
    "SELECT CASE age WHEN {e} THEN 1 END FROM p",
    "SELECT CASE WHEN id = 1 THEN {e} ELSE age END FROM p",
    "SELECT age FROM p UNION SELECT {e}",
    "SELECT id FROM p, (SELECT {e} AS x) s WHERE s.x = p.age",
    "SELECT id FROM p JOIN (VALUES ({e})) v(x) ON v.x > p.age",
    "WITH w(x) AS (SELECT {e}) SELECT id FROM p, w WHERE age = w.x",
    "UPDATE p SET age = {e}",
    "UPDATE p SET (age, id) = (SELECT {e}, 1)",
    "INSERT INTO p (age) VALUES ({e})",
    "INSERT INTO p (age) SELECT {e}",
    "INSERT INTO p (age) SELECT x FROM (VALUES ({e})) v(x)",
    "SELECT count(*) FILTER (WHERE age = {e}) FROM p",
    "SELECT sum(age) FROM p HAVING sum(age) > {e}",
];

#[test]
fn constants_are_hidden_however_they_are_nested() {
    const CANARY: &str = "4711";
    let shop = shop();
    let mut sent = 0;
    let mut refused = 0;
    let of = |way: &str, a: &str, b: &str| format!("({})", way.replace("{a}", a).replace("{b}", b));
    for (outer, inner) in WAYS
        .iter()
        .flat_map(|outer| WAYS.iter().map(move |inner| (outer, inner)))
    {
        let value = of(outer, &of(inner, CANARY, CANARY), "abs(4711)");
        let statements = PLACES.iter().map(|place| place.replace("{e}", &value));
        for sql in statements {
            let Ok(plans) = plan(&sql, &shop, 0) else {
                refused += 1;
                continue;
            };
            sent += 1;
            for plan in plans {
                let hidden = !plan.sql.contains(CANARY);
                assert!(hidden, "{sql}\nwas sent as\n{}", plan.sql);
            }
        }
    }
    println!("{sent} sent, {refused} refused");
    assert!(sent > refused, "{sent} sent, {refused} refused");
}
