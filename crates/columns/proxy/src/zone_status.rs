//! The status of the zone, as a server tells it, with the names of the tables.
//!
//! Must not: ask for anything but counts and names.

use serde_json::Value;
use strongroom_format::code;
use strongroom_keyring::Error;

use crate::conversion::server_error;
use crate::server::StatementClient;

/// Requests the zone's status through the server. Adds to each partition of the connected database
/// the name of its table, or null if there is none that this session can see: then it waits to be
/// dropped, or the table is not committed. Partitions of other databases get no name.
///
/// # Errors
/// SR-8122 if the server refuses, SR-5001 if the connection fails, SR-9001 if the status is not
/// JSON.
pub fn zone_status(connection: &mut StatementClient) -> Result<Value, Error> {
    let text = one_text(connection, "SELECT strongroom_columns.status()")?.unwrap_or_default();
    let mut status = serde_json::from_str(&text)
        .map_err(|error| Error::new(&code::BUG, format!("the zone's status: {error}")))?;
    name_tables(connection, &mut status)?;
    Ok(status)
}

/// Runs a statement and returns the first column of its first row; `None` if that is null or there
/// is no row. SR-8122 if the server refuses it, SR-5001 if the connection fails.
fn one_text(connection: &mut StatementClient, sql: &str) -> Result<Option<String>, Error> {
    let answer = connection.run(sql).map_err(|error| server_error(&error))?;
    Ok(answer.rows.into_iter().flatten().next().flatten())
}

/// Adds the names of tables, as [`zone_status`] says.
fn name_tables(connection: &mut StatementClient, status: &mut Value) -> Result<(), Error> {
    let sql =
        "SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()";
    let own: u64 = one_text(connection, sql)?
        .and_then(|text| text.parse().ok())
        .unwrap_or(0);
    let Some(partitions) = status.get_mut("partitions").and_then(Value::as_array_mut) else {
        return Ok(());
    };
    let number = |of: &Value, name: &str| of.get(name).and_then(Value::as_u64).unwrap_or(0);
    for partition in partitions {
        if number(partition, "database") != own {
            continue;
        }
        let (tablespace, filenode) = (
            number(partition, "tablespace"),
            number(partition, "filenode"),
        );
        // Partitions of tables that exist in transactions that are not committed have no name here.
        let sql = format!(
            "SELECT pg_catalog.pg_filenode_relation({tablespace}, {filenode})::pg_catalog.text"
        );
        let name = one_text(connection, &sql)?.map_or(Value::Null, Value::String);
        if let Some(fields) = partition.as_object_mut() {
            fields.insert("table".to_owned(), name);
        }
    }
    Ok(())
}
