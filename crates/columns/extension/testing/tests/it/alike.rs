//! A confidential table behind the owner's proxy, and the same table with plain columns at another
//! server: what both have to say alike.
//!
//! Must not: make the tables.

use strongroom_benches_oltp::wire::Client;
use strongroom_columns_testing::Server;
use strongroom_columns_testing::owner::Owner;

/// Asserts that these statements have the same rows on both, one after the other.
#[track_caller]
pub(crate) fn answers(owner: &Owner, plain: &Server, statements: &[&str]) {
    for sql in statements {
        assert_eq!(owner.rows(sql), plain.rows(sql), "{sql}");
    }
}

/// Asserts that these statements fail on both with the SQLSTATE that stands beside each, or one
/// that begins so.
#[track_caller]
pub(crate) fn errors(owner: &Owner, plain: &Server, statements: &[(&str, &str)]) {
    for (sql, state) in statements {
        for said in [plain.run(sql), owner.run(sql)] {
            let found = said.messages.contains(&format!("ERROR:  {state}"));
            assert!(found, "{sql}: {}", said.messages);
        }
    }
}

/// Asserts how many rows of a table a condition finds, with `$1` as a parameter: condition, value
/// and number each.
#[track_caller]
pub(crate) fn counts(client: &mut Client, table: &str, conditions: &[(&str, &str, &str)]) {
    for (condition, value, count) in conditions {
        let sql = format!("select count(*) from {table} where {condition}");
        let found = client.execute(&sql, &[Some(value)]).expect(&sql);
        assert_eq!(found.text(0, 0), *count, "{sql}");
    }
}
