//! The new column's indexes, made while the table is used, before it takes the old one's place.
//!
//! Must not: keep an index that was not finished: a command that is killed leaves it invalid, and it is made again.

use strongroom_columns_proxy::server::identifier;

use super::super::connect::refused;
use super::database::{Database, cannot, is_passing};
use super::plan::{Index, Plan};
use super::table::{Table, field};
use crate::failure::{Failure, note};

const TRIES: u32 = 20;

/// Makes those that are not there.
pub(super) fn build(database: &mut Database, table: &Table, plan: &Plan) -> Result<(), Failure> {
    for index in &plan.indexes {
        one(database, table, index)?;
    }
    Ok(())
}

fn one(database: &mut Database, table: &Table, index: &Index) -> Result<(), Failure> {
    let name = table.beside(&index.temporary());
    for _ in 0..TRIES {
        let sql = "SELECT i.indisvalid FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid \
            WHERE i.indrelid = $1 AND c.relname = $2";
        let answer = database.ask(sql, &[&table.oid, &index.temporary()])?;
        match answer.rows.first().map(|row| field(row, 0) == "t") {
            Some(true) => return Ok(()),
            Some(false) => {
                let dropped = database
                    .0
                    .run(&format!("DROP INDEX CONCURRENTLY IF EXISTS {name}"));
                passed(dropped)?;
                continue;
            }
            None => {}
        }
        note(&format!("building the index {}", index.name));
        let unique = if index.unique { "UNIQUE " } else { "" };
        let made = database.0.run(&format!(
            "CREATE {unique}INDEX CONCURRENTLY {} ON {} USING btree ({})",
            identifier(&index.temporary()),
            table.qualified(),
            index.keys
        ));
        passed(made)?;
    }
    Err(cannot(format!(
        "the index {} could not be built: its locks are always taken",
        index.name
    )))
}

/// An error that another try may not meet is none.
fn passed<T>(done: Result<T, strongroom_columns_proxy::server::Error>) -> Result<(), Failure> {
    match done {
        Ok(_) => Ok(()),
        Err(error) if is_passing(&error) => Ok(()),
        Err(error) => Err(refused(&error)),
    }
}
