//! The consistency conditions of clause 3.3.2. Each is two queries that must return the same rows:
//! they are compared here, because SQL cannot compare a plain count with a confidential sum.
//! Condition 11 holds of the initial state only and is left out.

use crate::wire::{Client, Failure, Field};

/// A condition: clause, and the two queries.
const CONDITIONS: &[(&str, &str, &str)] = &[
    (
        "3.3.2.1",
        "SELECT w_id, w_ytd FROM warehouse ORDER BY 1",
        "SELECT d_w_id, sum(d_ytd) FROM district GROUP BY 1 ORDER BY 1",
    ),
    (
        "3.3.2.2",
        "SELECT d_w_id, d_id, d_next_o_id - 1 FROM district ORDER BY 1, 2",
        "SELECT o_w_id, o_d_id, max(o_id) FROM orders GROUP BY 1, 2 ORDER BY 1, 2",
    ),
    (
        // A district all of whose orders are delivered has no row there.
        "3.3.2.2, new orders",
        "SELECT d_w_id, d_id, d_next_o_id - 1 FROM district
         WHERE EXISTS (SELECT FROM new_order WHERE no_w_id = d_w_id AND no_d_id = d_id) ORDER BY 1, 2",
        "SELECT no_w_id, no_d_id, max(no_o_id) FROM new_order GROUP BY 1, 2 ORDER BY 1, 2",
    ),
    (
        "3.3.2.3",
        "SELECT no_w_id, no_d_id, max(no_o_id) - min(no_o_id) + 1 FROM new_order GROUP BY 1, 2 ORDER BY 1, 2",
        "SELECT no_w_id, no_d_id, count(*) FROM new_order GROUP BY 1, 2 ORDER BY 1, 2",
    ),
    (
        "3.3.2.4",
        "SELECT o_w_id, o_d_id, sum(o_ol_cnt) FROM orders GROUP BY 1, 2 ORDER BY 1, 2",
        "SELECT ol_w_id, ol_d_id, count(*) FROM order_line GROUP BY 1, 2 ORDER BY 1, 2",
    ),
    (
        "3.3.2.5",
        "SELECT o_w_id, o_d_id, o_id FROM orders WHERE o_carrier_id IS NULL ORDER BY 1, 2, 3",
        "SELECT no_w_id, no_d_id, no_o_id FROM new_order ORDER BY 1, 2, 3",
    ),
    (
        "3.3.2.6",
        "SELECT o_w_id, o_d_id, o_id, o_ol_cnt FROM orders ORDER BY 1, 2, 3",
        "SELECT ol_w_id, ol_d_id, ol_o_id, count(*) FROM order_line GROUP BY 1, 2, 3 ORDER BY 1, 2, 3",
    ),
    (
        "3.3.2.7",
        "SELECT ol_w_id, ol_d_id, ol_o_id, ol_number FROM order_line WHERE ol_delivery_d IS NULL ORDER BY 1, 2, 3, 4",
        "SELECT ol_w_id, ol_d_id, ol_o_id, ol_number FROM order_line JOIN orders ON o_w_id = ol_w_id AND o_d_id = ol_d_id
         AND o_id = ol_o_id WHERE o_carrier_id IS NULL ORDER BY 1, 2, 3, 4",
    ),
    (
        "3.3.2.8",
        "SELECT w_id, w_ytd FROM warehouse ORDER BY 1",
        "SELECT h_w_id, sum(h_amount) FROM history GROUP BY 1 ORDER BY 1",
    ),
    (
        "3.3.2.9",
        "SELECT d_w_id, d_id, d_ytd FROM district ORDER BY 1, 2",
        "SELECT h_w_id, h_d_id, sum(h_amount) FROM history GROUP BY 1, 2 ORDER BY 1, 2",
    ),
    (
        "3.3.2.10",
        "SELECT c_w_id, c_d_id, c_id, c_balance FROM customer ORDER BY 1, 2, 3",
        "SELECT c_w_id, c_d_id, c_id, coalesce((SELECT sum(ol_amount) FROM orders JOIN order_line ON ol_w_id = o_w_id AND ol_d_id = o_d_id
             AND ol_o_id = o_id WHERE o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id AND ol_delivery_d IS NOT NULL), 0.00)
         - (SELECT sum(h_amount) FROM history WHERE h_c_w_id = c_w_id AND h_c_d_id = c_d_id AND h_c_id = c_id)
         FROM customer ORDER BY 1, 2, 3",
    ),
    (
        "3.3.2.12",
        "SELECT c_w_id, c_d_id, c_id, c_balance + c_ytd_payment FROM customer ORDER BY 1, 2, 3",
        "SELECT c_w_id, c_d_id, c_id, coalesce((SELECT sum(ol_amount) FROM orders JOIN order_line ON ol_w_id = o_w_id AND ol_d_id = o_d_id
             AND ol_o_id = o_id WHERE o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id AND ol_delivery_d IS NOT NULL), 0.00)
         FROM customer ORDER BY 1, 2, 3",
    ),
];

/// The conditions that do not hold: for each the clause, and the first rows that differ.
///
/// # Errors
/// The server's.
pub fn broken(client: &mut Client) -> Result<Vec<String>, Failure> {
    let mut broken = Vec::new();
    let _begun = client.query("BEGIN ISOLATION LEVEL REPEATABLE READ")?;
    for (clause, one, two) in CONDITIONS {
        let (one, two) = (client.rows(one)?, client.rows(two)?);
        if one != two {
            broken.push(format!("{clause}: {}", difference(&one, &two)));
        }
    }
    let _done = client.query("COMMIT")?;
    Ok(broken)
}

fn difference(one: &[Vec<Field>], two: &[Vec<Field>]) -> String {
    let pair = one.iter().zip(two).find(|(one, two)| one != two);
    match pair {
        Some((one, two)) => format!("{} beside {}", text(one), text(two)),
        None => format!("{} rows beside {}", one.len(), two.len()),
    }
}

fn text(row: &[Field]) -> String {
    let fields = row.iter().map(|field| field.as_deref().unwrap_or("NULL"));
    fields.collect::<Vec<_>>().join("|")
}
