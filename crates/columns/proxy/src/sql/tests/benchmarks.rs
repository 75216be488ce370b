//! The resolver on the statements of TPC-H, TPC-C and sysbench.

use super::*;

/// Every column that is no key is confidential.
fn tpch() -> Catalog {
    catalog(&[
        "region(r_regionkey, r_name text, r_comment text)",
        "nation(n_nationkey, n_name text, n_regionkey, n_comment text)",
        "part(p_partkey, p_name text, p_mfgr text, p_brand text, p_type text, p_size int4, p_container text, p_retailprice numeric, p_comment text)",
        "supplier(s_suppkey, s_name text, s_address text, s_nationkey, s_phone text, s_acctbal numeric, s_comment text)",
        "partsupp(ps_partkey, ps_suppkey, ps_availqty int4, ps_supplycost numeric, ps_comment text)",
        "customer(c_custkey, c_name text, c_address text, c_nationkey, c_phone text, c_acctbal numeric, c_mktsegment text, c_comment text)",
        "orders(o_orderkey, o_custkey, o_orderstatus text, o_totalprice numeric, o_orderdate date, o_orderpriority text, o_clerk text, o_shippriority int4, o_comment text)",
        "lineitem(l_orderkey, l_partkey, l_suppkey, l_linenumber, l_quantity numeric, l_extendedprice numeric, l_discount numeric, l_tax numeric, l_returnflag text, l_linestatus text, l_shipdate date, l_commitdate date, l_receiptdate date, l_shipinstruct text, l_shipmode text, l_comment text)",
    ])
}

#[test]
fn tpch_leaves_no_constant_but_structure() {
    // What stays: LIMIT, fields and positions, the 1 and 0 that Q12 counts with.
    let stay = [
        0, 1, 1, 0, 0, 0, 1, 1, 1, 1, 0, 4, 0, 0, 0, 0, 0, 1, 0, 0, 1, 6,
    ];
    assert_eq!(stay.len(), 22);
    for (at, stay) in stay.into_iter().enumerate() {
        let number = at + 1;
        let path = format!("{}/tests/tpch/q{number:02}.sql", env!("CARGO_MANIFEST_DIR"));
        let sql = std::fs::read_to_string(path).unwrap();
        let plan = plan(&sql, &tpch(), 0)
            .unwrap_or_else(|refusal| panic!("Q{number}: {refusal}"))
            .remove(0);
        let tree = pg_query::parse(&plan.sql, pg_query::ParserOptions::default())
            .unwrap()
            .protobuf;
        let left = serde_json::to_string(&tree)
            .unwrap()
            .matches("\"AConst\"")
            .count();
        assert!(plan.changed && plan.unknown.is_empty(), "Q{number}");
        assert_eq!(left, stay, "Q{number}: {}", plan.sql);
    }
}

/// Every column that is no key is confidential.
fn tpcc() -> Catalog {
    catalog(&[
        "warehouse(w_id, w_name text, w_street_1 text, w_city text, w_state text, w_zip text, w_tax numeric, w_ytd numeric)",
        "district(d_w_id, d_id, d_name text, d_street_1 text, d_city text, d_tax numeric, d_ytd numeric, d_next_o_id int4)",
        "customer(c_w_id, c_d_id, c_id, c_first text, c_middle text, c_last text, c_credit text, c_credit_lim numeric, c_discount numeric, c_balance numeric, c_ytd_payment numeric, c_payment_cnt int4, c_delivery_cnt int4, c_since timestamp, c_data text)",
        "history(h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, h_date timestamp, h_amount numeric, h_data text)",
        "new_order(no_w_id, no_d_id, no_o_id)",
        "orders(o_w_id, o_d_id, o_id, o_c_id, o_entry_d timestamp, o_carrier_id int4, o_ol_cnt int4, o_all_local int4)",
        "order_line(ol_w_id, ol_d_id, ol_o_id, ol_number, ol_i_id, ol_supply_w_id, ol_delivery_d timestamp, ol_quantity int4, ol_amount numeric, ol_dist_info text)",
        "item(i_id, i_im_id, i_name text, i_price numeric, i_data text)",
        "stock(s_w_id, s_i_id, s_quantity int4, s_dist_01 text, s_ytd numeric, s_order_cnt int4, s_remote_cnt int4, s_data text)",
        "sbtest1(id, k int4, c text, pad text)",
    ])
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn tpcc_and_sysbench_with_parameters() {
    // The statement, and which of its parameters are confidential.
    let statements: &[(&str, &[i32])] = &[
        (
            "SELECT c_discount, c_last, c_credit, w_tax FROM customer, warehouse WHERE w_id = $1 AND c_w_id = w_id AND c_d_id = $2 AND c_id = $3",
            &[],
        ),
        (
            "SELECT d_next_o_id, d_tax FROM district WHERE d_id = $1 AND d_w_id = $2 FOR UPDATE",
            &[],
        ),
        (
            "UPDATE district SET d_next_o_id = $1 + 1 WHERE d_id = $2 AND d_w_id = $3",
            &[1],
        ),
        (
            "INSERT INTO orders (o_id, o_d_id, o_w_id, o_c_id, o_entry_d, o_ol_cnt, o_all_local) VALUES ($1, $2, $3, $4, $5, $6, $7)",
            &[5, 6, 7],
        ),
        ("INSERT INTO new_order VALUES ($1, $2, $3)", &[]),
        (
            "UPDATE stock SET s_quantity = $1, s_ytd = s_ytd + $2, s_order_cnt = s_order_cnt + 1 WHERE s_i_id = $3 AND s_w_id = $4",
            &[1, 2],
        ),
        (
            "INSERT INTO order_line (ol_o_id, ol_d_id, ol_w_id, ol_number, ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_dist_info) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
            &[7, 8, 9],
        ),
        (
            "UPDATE warehouse SET w_ytd = w_ytd + $1 WHERE w_id = $2",
            &[1],
        ),
        (
            "SELECT c_id FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_last = $3 ORDER BY c_first",
            &[3],
        ),
        (
            "UPDATE customer SET c_balance = c_balance - $1, c_ytd_payment = c_ytd_payment + $1, c_payment_cnt = c_payment_cnt + 1, c_data = substring($2 || c_data, 1, 500) WHERE c_w_id = $3 AND c_d_id = $4 AND c_id = $5",
            &[1, 2],
        ),
        (
            "SELECT ol_i_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = $3",
            &[],
        ),
        (
            "UPDATE orders SET o_carrier_id = $1 WHERE o_id = $2 AND o_d_id = $3 AND o_w_id = $4",
            &[1],
        ),
        (
            "SELECT sum(ol_amount) FROM order_line WHERE ol_o_id = $1 AND ol_d_id = $2 AND ol_w_id = $3",
            &[],
        ),
        (
            "SELECT count(DISTINCT s_i_id) FROM order_line, stock WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id < $3 AND ol_o_id >= $3 - 20 AND s_w_id = $1 AND s_i_id = ol_i_id AND s_quantity < $4",
            &[4],
        ),
        ("SELECT c FROM sbtest1 WHERE id = $1", &[]),
        (
            "SELECT c FROM sbtest1 WHERE id BETWEEN $1 AND $2 ORDER BY c",
            &[],
        ),
        ("SELECT sum(k) FROM sbtest1 WHERE id BETWEEN $1 AND $2", &[]),
        ("UPDATE sbtest1 SET k = k + 1 WHERE id = $1", &[]),
        ("UPDATE sbtest1 SET c = $1 WHERE id = $2", &[1]),
        (
            "INSERT INTO sbtest1 (id, k, c, pad) VALUES ($1, $2, $3, $4)",
            &[2, 3, 4],
        ),
    ];
    for (sql, confidential) in statements {
        let plan = plan(sql, &tpcc(), 0)
            .unwrap_or_else(|refusal| panic!("{sql}: {refusal}"))
            .remove(0);
        assert_eq!(
            plan.confidential,
            confidential.iter().copied().collect(),
            "{sql}"
        );
    }
}
