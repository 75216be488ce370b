//! The two short transactions: the one that puts the new column beside the old one, and the one
//! that puts it in its place.
//!
//! Invariants: C1 (column and trigger come together), C4 (the old column goes only when every row
//! has a value in the new one, with writers locked out since before that was looked at). Must not:
//! wait for a lock longer than the session's `lock_timeout`, because all other sessions queue
//! behind the waiting.

use strongroom_keyring::Error;
use strongroom_postgres_wire::client::StatementClient;

use super::copy;
use super::database::{AttemptError, Database, refusal};
use super::plan::Plan;
use super::table::{Table, field};
use crate::server::{constant, identifier};

/// How often a lock is tried for, with the session's `lock_timeout` each.
const TRIES: u32 = 100;

/// Tries until the locks are there.
pub(super) fn until_locked(
    database: &mut Database<'_>,
    mut work: impl FnMut(&mut StatementClient) -> Result<(), AttemptError>,
) -> Result<(), Error> {
    for _ in 0..TRIES {
        if database.attempt(&mut work)?.is_some() {
            return Ok(());
        }
        database.note("another session holds a lock on the table: trying again");
        std::thread::sleep(std::time::Duration::from_millis(500));
    }
    Err(refusal(
        "other sessions hold locks on the table all the time: run the command again when they do not",
    ))
}

/// The type of the new column, when a conversion is under way.
fn new_column_type(database: &mut Database<'_>, table: &Table) -> Result<Option<String>, Error> {
    let sql = "SELECT pg_catalog.format_type(a.atttypid, a.atttypmod) FROM pg_catalog.pg_attribute a \
        WHERE a.attrelid = $1 AND a.attname = $2 AND NOT a.attisdropped";
    let answer = database.ask(sql, &[&table.oid, &table.new_column()])?;
    Ok(answer.rows.first().map(|row| field(row, 0).to_owned()))
}

/// Puts the new column and its trigger on the table, or finds them there.
pub(super) fn begin(database: &mut Database<'_>, table: &Table, plan: &Plan) -> Result<(), Error> {
    if let Some(found) = new_column_type(database, table)? {
        let confidential = found.contains("enc_");
        if confidential == table.is_confidential() {
            return Err(refusal(
                "a conversion in the other direction is under way: finish it, or give it up with --abandon",
            ));
        }
        database.note("a conversion is under way: going on");
        return Ok(());
    }
    let (name, new, trigger) = (
        table.qualified(),
        identifier(&table.new_column()),
        identifier(&table.trigger()),
    );
    let statements = [
        format!("ALTER TABLE {name} ADD COLUMN {new} {}", plan.new_type),
        format!(
            "CREATE TRIGGER {trigger} BEFORE INSERT OR UPDATE ON {name} FOR EACH ROW \
             EXECUTE FUNCTION strongroom_columns.conversion({}, {})",
            constant(&table.column.name),
            constant(&table.new_column())
        ),
        format!("ALTER TABLE {name} ENABLE ALWAYS TRIGGER {trigger}"),
    ];
    until_locked(database, |connection| {
        for statement in &statements {
            connection.run(statement)?;
        }
        Ok(())
    })
}

/// Converts the last rows and puts the new column in the old one's place.
pub(super) fn finish(database: &mut Database<'_>, table: &Table, plan: &Plan) -> Result<(), Error> {
    let (name, new) = (table.qualified(), identifier(&table.new_column()));
    let statements = swap_statements(table, plan);
    until_locked(database, |connection| {
        // Readers may go on; rows refusal be locked or written.
        connection.run(&format!("LOCK TABLE {name} IN EXCLUSIVE MODE"))?;
        connection.run("SET LOCAL synchronous_commit = on")?;
        copy::copy_rest(connection, table)?;
        copy::check_complete(connection, table)?;
        if table.column.not_null {
            // Looks at every row; from here on readers are locked out too.
            connection.run(&format!(
                "ALTER TABLE {name} ALTER COLUMN {new} SET NOT NULL"
            ))?;
        }
        for statement in &statements {
            connection.run(statement)?;
        }
        Ok(())
    })
}

fn swap_statements(table: &Table, plan: &Plan) -> Vec<String> {
    let name = table.qualified();
    let (old, new) = (
        identifier(&table.column.name),
        identifier(&table.new_column()),
    );
    let mut out = vec![format!(
        "DROP TRIGGER {} ON {name}",
        identifier(&table.trigger())
    )];
    out.push(format!("ALTER TABLE {name} DROP COLUMN {old}"));
    out.push(format!("ALTER TABLE {name} RENAME COLUMN {new} TO {old}"));
    for index in &plan.indexes {
        let temporary = index.temporary();
        out.push(match &index.constraint {
            Some((constraint, deferred)) => format!(
                "ALTER TABLE {name} ADD CONSTRAINT {} UNIQUE USING INDEX {}{deferred}",
                identifier(constraint),
                identifier(&temporary)
            ),
            None => format!(
                "ALTER INDEX {} RENAME TO {}",
                table.beside(&temporary),
                identifier(&index.name)
            ),
        });
    }
    if let Some(comment) = &table.column.comment {
        out.push(format!(
            "COMMENT ON COLUMN {name}.{old} IS {}",
            constant(comment)
        ));
    }
    out
}

/// Takes the new column away again.
pub(super) fn abandon(database: &mut Database<'_>, table: &Table) -> Result<(), Error> {
    if new_column_type(database, table)?.is_none() {
        database.note("no conversion of this column is under way");
        return Ok(());
    }
    let name = table.qualified();
    let (trigger, new) = (
        identifier(&table.trigger()),
        identifier(&table.new_column()),
    );
    until_locked(database, |connection| {
        // Its indexes go with it.
        connection.run(&format!("DROP TRIGGER IF EXISTS {trigger} ON {name}"))?;
        connection.run(&format!("ALTER TABLE {name} DROP COLUMN {new}"))?;
        Ok(())
    })?;
    database.note("given up: the old column is as it was");
    Ok(())
}
