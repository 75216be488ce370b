//! Constants behind a `*`: how many columns that stands for is the server's word.

use super::*;

#[test]
fn a_constant_behind_a_star_is_hidden_where_a_confidential_column_may_be_meant() {
    for sql in [
        // `name` of `q` is plain. With a column less in `other.p`, the constant goes into `amount`.
        "INSERT INTO q (id, amount, name) SELECT o.*, '5' FROM other.p o",
        "INSERT INTO q (id, name, amount) SELECT o.*, '5' FROM other.p o",
        "INSERT INTO q (id, amount, name) SELECT * FROM plain JOIN (SELECT '5' AS n) s USING (n)",
        "UPDATE q SET (id, amount, name) = (SELECT o.*, '5' FROM other.p o)",
        "SELECT o.*, '5' FROM other.p o UNION SELECT id, amount, name FROM q",
        "SELECT 1 FROM (SELECT o.*, '5' FROM other.p o) s(a, b, c) JOIN q ON s.b = q.amount",
        "WITH s(a, b, c) AS (SELECT o.*, '5' FROM other.p o) SELECT 1 FROM s, q WHERE b = amount",
        "SELECT id FROM q WHERE (id, amount, name) IN (SELECT o.*, '5' FROM other.p o)",
        // Behind the columns of `q` that are kept there may be others.
        "INSERT INTO q (id, name, amount, id) SELECT v.*, '5' FROM v",
    ] {
        assert_eq!(planned(sql).1, ["1=5"], "{sql}");
    }
}

#[test]
fn what_stands_behind_a_star_stays_where_no_confidential_column_can_be_meant() {
    for sql in [
        "INSERT INTO plain (id, name, n) SELECT o.*, '5' FROM other.p o",
        "INSERT INTO q (name, id, amount) SELECT '5', o.* FROM other.p o",
        "INSERT INTO q (id, name) SELECT o.* FROM other.p o",
        "SELECT o.*, p.name, 'x' FROM other.p o, p",
        "SELECT o.*, 'x' AS x FROM other.p o ORDER BY 3",
        // What is kept of `q` begins with these columns.
        "INSERT INTO q (id, name, amount, id) SELECT q.*, '5' FROM q",
        "SELECT o.*, p.name FROM other.p o, p UNION SELECT o.*, p.name FROM other.p o, p",
    ] {
        stays(sql);
    }
}
