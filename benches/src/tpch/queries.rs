//! Nine of the 22 TPC-H queries in SQLite's dialect, with the validation parameters of clause 2.4.
//!
//! Dates are text, so intervals are written out. Q6's bounds are literals: 0.06 - 0.01 is not 0.05
//! in binary.
//! Must not: be changed without taking all figures again.

use rusqlite::Connection;
use rusqlite::types::Value;
use strongroom_format::hex::hex;

use crate::Failure;

/// One query.
pub struct Query {
    /// Its name in TPC-H.
    pub name: &'static str,
    /// TPC-H's title.
    pub title: &'static str,
    /// The statement.
    pub sql: &'static str,
}

/// What a query returned, row by row. Doubles compare by their bits: the same plan over the same
/// rows adds up alike.
#[derive(Debug, PartialEq)]
pub struct Answer {
    rows: Vec<Vec<Value>>,
}

impl Answer {
    /// Number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    /// SHA-256 over every value, its type and its place, as hexadecimal digits: for peers in other
    /// processes.
    #[must_use]
    pub fn digest(&self) -> String {
        let mut bytes = Vec::new();
        for row in &self.rows {
            for value in row {
                let (kind, data) = match value {
                    Value::Null => (0, Vec::new()),
                    Value::Integer(number) => (1, number.to_le_bytes().to_vec()),
                    Value::Real(number) => (2, number.to_bits().to_le_bytes().to_vec()),
                    Value::Text(text) => (3, text.as_bytes().to_vec()),
                    Value::Blob(blob) => (4, blob.clone()),
                };
                bytes.push(kind);
                bytes.extend((data.len() as u64).to_le_bytes());
                bytes.extend(data);
            }
            bytes.push(255);
        }
        hex(&strongroom_crypto::sha256(&[&bytes]))
    }
}

/// Runs `sql` to its end.
///
/// # Errors
/// SQLite's; the VFS's stand behind it.
pub fn answer(connection: &Connection, sql: &str) -> Result<Answer, Failure> {
    let mut statement = connection.prepare(sql)?;
    let columns = statement.column_count();
    let rows = statement
        .query_map([], |row| {
            (0..columns).map(|column| row.get(column)).collect()
        })?
        .collect::<Result<_, _>>()
        .map_err(strongroom_sqlite::explain)?;
    Ok(Answer { rows })
}

/// In TPC-H's order.
pub const QUERIES: &[Query] = &[
    Query {
        name: "Q1",
        title: "pricing summary report",
        sql: "SELECT l_returnflag, l_linestatus, sum(l_quantity), sum(l_extendedprice),
                     sum(l_extendedprice * (1 - l_discount)),
                     sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)),
                     avg(l_quantity), avg(l_extendedprice), avg(l_discount), count(*)
              FROM lineitem WHERE l_shipdate <= '1998-09-02'
              GROUP BY l_returnflag, l_linestatus ORDER BY l_returnflag, l_linestatus",
    },
    Query {
        name: "Q3",
        title: "shipping priority",
        sql: "SELECT l_orderkey, sum(l_extendedprice * (1 - l_discount)) AS revenue, o_orderdate, o_shippriority
              FROM customer, orders, lineitem
              WHERE c_mktsegment = 'BUILDING' AND c_custkey = o_custkey AND l_orderkey = o_orderkey
                AND o_orderdate < '1995-03-15' AND l_shipdate > '1995-03-15'
              GROUP BY l_orderkey, o_orderdate, o_shippriority ORDER BY revenue DESC, o_orderdate LIMIT 10",
    },
    Query {
        name: "Q4",
        title: "order priority checking",
        sql: "SELECT o_orderpriority, count(*) FROM orders
              WHERE o_orderdate >= '1993-07-01' AND o_orderdate < '1993-10-01'
                AND EXISTS (SELECT 1 FROM lineitem WHERE l_orderkey = o_orderkey AND l_commitdate < l_receiptdate)
              GROUP BY o_orderpriority ORDER BY o_orderpriority",
    },
    Query {
        name: "Q5",
        title: "local supplier volume",
        sql: "SELECT n_name, sum(l_extendedprice * (1 - l_discount)) AS revenue
              FROM customer, orders, lineitem, supplier, nation, region
              WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND l_suppkey = s_suppkey
                AND c_nationkey = s_nationkey AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey
                AND r_name = 'ASIA' AND o_orderdate >= '1994-01-01' AND o_orderdate < '1995-01-01'
              GROUP BY n_name ORDER BY revenue DESC",
    },
    Query {
        name: "Q6",
        title: "forecasting revenue change",
        sql: "SELECT sum(l_extendedprice * l_discount) FROM lineitem
              WHERE l_shipdate >= '1994-01-01' AND l_shipdate < '1995-01-01'
                AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24",
    },
    Query {
        name: "Q10",
        title: "returned item reporting",
        sql: "SELECT c_custkey, c_name, sum(l_extendedprice * (1 - l_discount)) AS revenue, c_acctbal, n_name,
                     c_address, c_phone, c_comment
              FROM customer, orders, lineitem, nation
              WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey
                AND o_orderdate >= '1993-10-01' AND o_orderdate < '1994-01-01'
                AND l_returnflag = 'R' AND c_nationkey = n_nationkey
              GROUP BY c_custkey, c_name, c_acctbal, c_phone, n_name, c_address, c_comment
              ORDER BY revenue DESC LIMIT 20",
    },
    Query {
        name: "Q12",
        title: "shipping modes and order priority",
        sql: "SELECT l_shipmode,
                     sum(CASE WHEN o_orderpriority IN ('1-URGENT', '2-HIGH') THEN 1 ELSE 0 END),
                     sum(CASE WHEN o_orderpriority NOT IN ('1-URGENT', '2-HIGH') THEN 1 ELSE 0 END)
              FROM orders, lineitem
              WHERE o_orderkey = l_orderkey AND l_shipmode IN ('MAIL', 'SHIP') AND l_commitdate < l_receiptdate
                AND l_shipdate < l_commitdate AND l_receiptdate >= '1994-01-01' AND l_receiptdate < '1995-01-01'
              GROUP BY l_shipmode ORDER BY l_shipmode",
    },
    Query {
        name: "Q14",
        title: "promotion effect",
        sql: "SELECT 100.0 * sum(CASE WHEN p_type LIKE 'PROMO%' THEN l_extendedprice * (1 - l_discount) ELSE 0 END)
                     / sum(l_extendedprice * (1 - l_discount))
              FROM lineitem, part
              WHERE l_partkey = p_partkey AND l_shipdate >= '1995-09-01' AND l_shipdate < '1995-10-01'",
    },
    Query {
        name: "Q18",
        title: "large volume customer",
        sql: "SELECT c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice, sum(l_quantity)
              FROM customer, orders, lineitem
              WHERE o_orderkey IN (SELECT l_orderkey FROM lineitem GROUP BY l_orderkey HAVING sum(l_quantity) > 300)
                AND c_custkey = o_custkey AND o_orderkey = l_orderkey
              GROUP BY c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice
              ORDER BY o_totalprice DESC, o_orderdate LIMIT 100",
    },
];

#[cfg(test)]
mod tests {
    use super::{QUERIES, answer};
    use crate::tpch::load;
    use rusqlite::Connection;

    #[test]
    fn every_query_finds_something_and_repeats() {
        let (one, other) = (
            Connection::open_in_memory().unwrap(),
            Connection::open_in_memory().unwrap(),
        );
        load(&[&one, &other], 0.01).unwrap();
        for query in QUERIES {
            let found = answer(&one, query.sql).unwrap();
            assert!(found.rows() > 0, "{}", query.name);
            assert!(
                found == answer(&other, query.sql).unwrap(),
                "{}",
                query.name
            );
        }
    }
}
