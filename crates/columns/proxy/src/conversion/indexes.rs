//! The new column's indexes, made while the table is used, before it takes the old one's place.
//!
//! Must not: keep an index that was not finished: a command that is killed leaves it invalid, and
//! it is made again.

use strongroom_keyring::Error;
use strongroom_postgres_wire::client::Error as ServerError;

use super::database::{Database, is_transient, refusal, server_error};
use super::plan::{Index, Plan};
use super::table::{Table, field};
use crate::server::identifier;

const TRIES: u32 = 20;

/// Builds those of the plan's indexes that are not there yet, while the table is used. Fails as
/// [`build_index`] does.
pub(super) fn build(database: &mut Database<'_>, table: &Table, plan: &Plan) -> Result<(), Error> {
    for index in &plan.indexes {
        build_index(database, table, index)?;
    }
    Ok(())
}

/// Builds one index under its temporary name (CREATE INDEX CONCURRENTLY), unless a valid one is
/// there; an invalid one is dropped first. Fails with SR-8121 after [`TRIES`] attempts that met
/// locks, with SR-8122 for another error of the server, or with SR-5001.
fn build_index(database: &mut Database<'_>, table: &Table, index: &Index) -> Result<(), Error> {
    let name = table.in_same_schema(&index.temporary());
    for _ in 0..TRIES {
        let sql = "SELECT i.indisvalid FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid \
            WHERE i.indrelid = $1 AND c.relname = $2";
        let answer = database.ask(sql, &[&table.oid, &index.temporary()])?;
        match answer.rows.first().map(|row| field(row, 0) == "t") {
            Some(true) => return Ok(()),
            Some(false) => {
                let dropped = database
                    .connection
                    .run(&format!("DROP INDEX CONCURRENTLY IF EXISTS {name}"));
                ignore_transient(dropped)?;
                continue;
            }
            None => {}
        }
        database.note(&format!("building the index {}", index.name));
        let unique = if index.unique { "UNIQUE " } else { "" };
        let made = database.connection.run(&format!(
            "CREATE {unique}INDEX CONCURRENTLY {} ON {} USING btree ({})",
            identifier(&index.temporary()),
            table.qualified(),
            index.keys
        ));
        ignore_transient(made)?;
    }
    Err(refusal(format!(
        "the index {} could not be built: its locks are always taken",
        index.name
    )))
}

/// Ignores an error that another attempt may not meet; returns every other one as SR-8122 or
/// SR-5001.
fn ignore_transient<T>(done: Result<T, ServerError>) -> Result<(), Error> {
    match done {
        Ok(_) => Ok(()),
        Err(error) if is_transient(&error) => Ok(()),
        Err(error) => Err(server_error(&error)),
    }
}
