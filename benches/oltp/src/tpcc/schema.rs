//! The nine tables (clause 1.3). Must not: make a key confidential, or leave a value in clear that
//! is none.

use crate::Schema;
use crate::wire::{Client, Failure};

/// A table: name, key columns with their types, other columns with theirs, the primary key.
struct Table {
    name: &'static str,
    keys: &'static str,
    values: &'static [(&'static str, &'static str)],
    primary: &'static str,
}

const TABLES: &[Table] = &[
    Table {
        name: "warehouse",
        keys: "w_id int",
        values: &[
            ("w_name", "text"),
            ("w_street_1", "text"),
            ("w_street_2", "text"),
            ("w_city", "text"),
            ("w_state", "text"),
            ("w_zip", "text"),
            ("w_tax", "numeric(4,4)"),
            ("w_ytd", "numeric(12,2)"),
        ],
        primary: "w_id",
    },
    Table {
        name: "district",
        keys: "d_w_id int, d_id int, d_next_o_id int",
        values: &[
            ("d_name", "text"),
            ("d_street_1", "text"),
            ("d_street_2", "text"),
            ("d_city", "text"),
            ("d_state", "text"),
            ("d_zip", "text"),
            ("d_tax", "numeric(4,4)"),
            ("d_ytd", "numeric(12,2)"),
        ],
        primary: "d_w_id, d_id",
    },
    Table {
        name: "customer",
        keys: "c_w_id int, c_d_id int, c_id int",
        values: &[
            ("c_first", "text"),
            ("c_middle", "text"),
            ("c_last", "text"),
            ("c_street_1", "text"),
            ("c_street_2", "text"),
            ("c_city", "text"),
            ("c_state", "text"),
            ("c_zip", "text"),
            ("c_phone", "text"),
            ("c_since", "timestamp"),
            ("c_credit", "text"),
            ("c_credit_lim", "numeric(12,2)"),
            ("c_discount", "numeric(4,4)"),
            ("c_balance", "numeric(12,2)"),
            ("c_ytd_payment", "numeric(12,2)"),
            ("c_payment_cnt", "int4"),
            ("c_delivery_cnt", "int4"),
            ("c_data", "text"),
        ],
        primary: "c_w_id, c_d_id, c_id",
    },
    Table {
        name: "history",
        keys: "h_c_id int, h_c_d_id int, h_c_w_id int, h_d_id int, h_w_id int",
        values: &[
            ("h_date", "timestamp"),
            ("h_amount", "numeric(6,2)"),
            ("h_data", "text"),
        ],
        primary: "",
    },
    Table {
        name: "new_order",
        keys: "no_w_id int, no_d_id int, no_o_id int",
        values: &[],
        primary: "no_w_id, no_d_id, no_o_id",
    },
    Table {
        name: "orders",
        keys: "o_w_id int, o_d_id int, o_id int, o_c_id int",
        values: &[
            ("o_entry_d", "timestamp"),
            ("o_carrier_id", "int4"),
            ("o_ol_cnt", "int4"),
            ("o_all_local", "int4"),
        ],
        primary: "o_w_id, o_d_id, o_id",
    },
    Table {
        name: "order_line",
        keys: "ol_w_id int, ol_d_id int, ol_o_id int, ol_number int, ol_i_id int, ol_supply_w_id int",
        values: &[
            ("ol_delivery_d", "timestamp"),
            ("ol_quantity", "int4"),
            ("ol_amount", "numeric(6,2)"),
            ("ol_dist_info", "text"),
        ],
        primary: "ol_w_id, ol_d_id, ol_o_id, ol_number",
    },
    Table {
        name: "item",
        keys: "i_id int",
        values: &[
            ("i_im_id", "int4"),
            ("i_name", "text"),
            ("i_price", "numeric(5,2)"),
            ("i_data", "text"),
        ],
        primary: "i_id",
    },
    Table {
        name: "stock",
        keys: "s_w_id int, s_i_id int",
        values: &[
            ("s_quantity", "int4"),
            ("s_dist_01", "text"),
            ("s_dist_02", "text"),
            ("s_dist_03", "text"),
            ("s_dist_04", "text"),
            ("s_dist_05", "text"),
            ("s_dist_06", "text"),
            ("s_dist_07", "text"),
            ("s_dist_08", "text"),
            ("s_dist_09", "text"),
            ("s_dist_10", "text"),
            ("s_ytd", "int4"),
            ("s_order_cnt", "int4"),
            ("s_remote_cnt", "int4"),
            ("s_data", "text"),
        ],
        primary: "s_w_id, s_i_id",
    },
];

/// Indexes that are made when the tables are full. The second one is on a confidential column,
/// [`INDEXED`].
const INDEXES: &[&str] = &[
    "CREATE INDEX orders_customer ON orders (o_w_id, o_d_id, o_c_id, o_id)",
    "CREATE INDEX customer_name ON customer (c_w_id, c_d_id, c_last)",
];

/// The column of [`Table::values`] that has an index.
const INDEXED: &str = "c_last";

/// Names of the tables.
pub fn tables() -> impl Iterator<Item = &'static str> {
    TABLES.iter().map(|table| table.name)
}

/// Makes the tables, empty, with no key yet.
///
/// # Errors
/// The server's.
pub fn create(client: &mut Client, schema: Schema) -> Result<(), Failure> {
    for table in TABLES {
        let values = table.values.iter();
        let values: String = values
            .map(|(name, base)| {
                let of = if *name == INDEXED {
                    schema.of_indexed(base)
                } else {
                    schema.of(base)
                };
                format!(", {name} {of}")
            })
            .collect();
        // A table without a confidential column is a plain one.
        let method = if table.values.is_empty() {
            ""
        } else {
            schema.method()
        };
        let sql = format!(
            "CREATE TABLE {} ({}{values}){method}",
            table.name, table.keys
        );
        let _done = client.query(&sql)?;
    }
    Ok(())
}

/// Makes keys and indexes, and has the tables analysed.
///
/// # Errors
/// The server's.
pub fn finish(client: &mut Client) -> Result<(), Failure> {
    for table in TABLES.iter().filter(|table| !table.primary.is_empty()) {
        let sql = format!(
            "ALTER TABLE {} ADD PRIMARY KEY ({})",
            table.name, table.primary
        );
        let _done = client.query(&sql)?;
    }
    for sql in INDEXES.iter().chain(&["VACUUM ANALYZE"]) {
        let _done = client.query(sql)?;
    }
    Ok(())
}

/// The columns of a table in the order of its definition, for COPY.
pub(super) fn columns(name: &str) -> String {
    let Some(table) = TABLES.iter().find(|table| table.name == name) else {
        return String::new();
    };
    let keys = table.keys.split(", ");
    let keys = keys.filter_map(|key| key.split(' ').next());
    let values = table.values.iter().map(|(name, _)| *name);
    keys.chain(values).collect::<Vec<_>>().join(", ")
}
