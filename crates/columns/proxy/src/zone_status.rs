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

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;

    use strongroom_postgres_wire::client::{Config, Socket};
    use strongroom_postgres_wire::{Builder, append, read, read_startup};

    use super::*;

    /// A server that answers every statement with one row of this text.
    fn serve(mut socket: UnixStream, text: &str) {
        let (mut accepted, mut answer) = (Vec::new(), Vec::new());
        append(&mut accepted, b'R', &[0; 4]);
        append(&mut accepted, b'Z', b"I");
        let mut row = Builder::new(&mut answer, b'D');
        row.count(1).value(Some(text.as_bytes())).end();
        append(&mut answer, b'C', b"SELECT 1\0");
        append(&mut answer, b'Z', b"I");
        read_startup(&mut socket).unwrap();
        socket.write_all(&accepted).unwrap();
        while matches!(read(&mut socket), Ok(Some(message)) if message.tag == b'Q') {
            socket.write_all(&answer).unwrap();
        }
    }

    #[expect(clippy::unwrap_in_result, reason = "a test that panics has failed")]
    fn told(text: &str) -> Result<Value, Error> {
        let (ours, theirs) = UnixStream::pair().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| serve(theirs, text));
            let config = Config::without_tls("owner", "shop", None);
            let client = StatementClient::on_socket(Socket::Local(ours), &config);
            zone_status(&mut client.unwrap())
        })
    }

    #[test]
    fn a_status_that_is_cut_is_an_error_and_one_of_another_form_gets_no_names() {
        let whole = r#"{"partitions":[{"database":16384,"filenode":7},{}],"memory":1}"#;
        for cut in 0..whole.len() {
            assert_eq!(told(&whole[..cut]).unwrap_err().code(), &code::BUG, "{cut}");
        }
        for text in [r#"{"partitions":{"database":0}}"#, "[]", "null", "7"] {
            assert_eq!(told(text).unwrap().to_string(), text);
        }
        // The server's number is none, and the second partition has none either.
        let named = told(whole).unwrap();
        assert_eq!(named["partitions"][0].get("table"), None);
        assert_eq!(named["partitions"][1]["table"], whole);
        assert!(told("[".repeat(1 << 20).as_str()).is_err());
    }
}
