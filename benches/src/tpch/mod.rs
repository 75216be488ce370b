//! The TPC-H tables in SQLite: schema, generated rows, queries.
//!
//! Source: TPC Benchmark H, revision 3.0.1, clauses 1.4 (schema), 2.4 (queries), 4.2 (data). Not a
//! TPC-H result: a selection of the queries, with their validation parameters, on a schema with
//! indexes of our choice.
//! Must not: depend on which VFS a connection uses.

mod load;
mod queries;
mod rows;

pub use load::{create, finish, insert, load};
pub use queries::{Answer, QUERIES, Query, answer};
pub use rows::{Lines, lines, rows};

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A 64-bit integer.
    Integer,
    /// A decimal with two digits, stored as an IEEE 754 double.
    Decimal,
    /// Text; dates are text too, as YYYY-MM-DD.
    Text,
}

/// One table.
pub struct Table {
    /// Its name.
    pub name: &'static str,
    /// Its columns, in order. The first column of a table with `key` is its primary key.
    pub columns: &'static [(&'static str, Kind)],
    /// The first column is the rowid.
    pub key: bool,
    /// What makes a row's place in the table sure, for a comparison row by row.
    pub order: &'static str,
    /// Index columns; an index is named after the table and its number.
    pub indexes: &'static [&'static str],
    /// Rows at scale 1; `None` for those that do not grow with the scale.
    pub rows_at_scale_1: Option<u32>,
}

use Kind::{Decimal, Integer, Text};

/// All eight tables, small ones first.
pub const TABLES: &[Table] = &[
    Table {
        name: "region",
        columns: &[
            ("r_regionkey", Integer),
            ("r_name", Text),
            ("r_comment", Text),
        ],
        key: true,
        order: "r_regionkey",
        indexes: &[],
        rows_at_scale_1: None,
    },
    Table {
        name: "nation",
        columns: &[
            ("n_nationkey", Integer),
            ("n_name", Text),
            ("n_regionkey", Integer),
            ("n_comment", Text),
        ],
        key: true,
        order: "n_nationkey",
        indexes: &[],
        rows_at_scale_1: None,
    },
    Table {
        name: "supplier",
        columns: &[
            ("s_suppkey", Integer),
            ("s_name", Text),
            ("s_address", Text),
            ("s_nationkey", Integer),
            ("s_phone", Text),
            ("s_acctbal", Decimal),
            ("s_comment", Text),
        ],
        key: true,
        order: "s_suppkey",
        indexes: &["s_nationkey"],
        rows_at_scale_1: Some(10_000),
    },
    Table {
        name: "customer",
        columns: &[
            ("c_custkey", Integer),
            ("c_name", Text),
            ("c_address", Text),
            ("c_nationkey", Integer),
            ("c_phone", Text),
            ("c_acctbal", Decimal),
            ("c_mktsegment", Text),
            ("c_comment", Text),
        ],
        key: true,
        order: "c_custkey",
        indexes: &["c_nationkey"],
        rows_at_scale_1: Some(150_000),
    },
    Table {
        name: "part",
        columns: &[
            ("p_partkey", Integer),
            ("p_name", Text),
            ("p_mfgr", Text),
            ("p_brand", Text),
            ("p_type", Text),
            ("p_size", Integer),
            ("p_container", Text),
            ("p_retailprice", Decimal),
            ("p_comment", Text),
        ],
        key: true,
        order: "p_partkey",
        indexes: &[],
        rows_at_scale_1: Some(200_000),
    },
    Table {
        name: "partsupp",
        columns: &[
            ("ps_partkey", Integer),
            ("ps_suppkey", Integer),
            ("ps_availqty", Integer),
            ("ps_supplycost", Decimal),
            ("ps_comment", Text),
        ],
        key: false,
        order: "rowid",
        indexes: &["ps_partkey, ps_suppkey"],
        rows_at_scale_1: Some(800_000),
    },
    Table {
        name: "orders",
        columns: &[
            ("o_orderkey", Integer),
            ("o_custkey", Integer),
            ("o_orderstatus", Text),
            ("o_totalprice", Decimal),
            ("o_orderdate", Text),
            ("o_orderpriority", Text),
            ("o_clerk", Text),
            ("o_shippriority", Integer),
            ("o_comment", Text),
        ],
        key: true,
        order: "o_orderkey",
        indexes: &["o_custkey", "o_orderdate"],
        rows_at_scale_1: Some(1_500_000),
    },
    Table {
        name: "lineitem",
        columns: &[
            ("l_orderkey", Integer),
            ("l_partkey", Integer),
            ("l_suppkey", Integer),
            ("l_linenumber", Integer),
            ("l_quantity", Integer),
            ("l_extendedprice", Decimal),
            ("l_discount", Decimal),
            ("l_tax", Decimal),
            ("l_returnflag", Text),
            ("l_linestatus", Text),
            ("l_shipdate", Text),
            ("l_commitdate", Text),
            ("l_receiptdate", Text),
            ("l_shipinstruct", Text),
            ("l_shipmode", Text),
            ("l_comment", Text),
        ],
        key: false,
        order: "rowid",
        indexes: &["l_orderkey, l_linenumber", "l_shipdate"],
        // An order has 1 to 7 items: the count is not a multiple of the scale.
        rows_at_scale_1: None,
    },
];

/// The table of that name.
#[must_use]
pub fn table(name: &str) -> Option<&'static Table> {
    TABLES.iter().find(|table| table.name == name)
}
