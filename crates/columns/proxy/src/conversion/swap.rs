//! The two short transactions: the one that puts the new column beside the old one, and the one
//! that puts it in its place.
//!
//! Invariants: C1 (column and trigger come together), C4 (the old column goes only when every row
//! has a value in the new one, with writers locked out since before that was looked at). Must not:
//! wait for a lock longer than the session's `lock_timeout`, because all other sessions queue
//! behind the waiting.

use strongroom_keyring::Error;

use super::copy;
use super::database::{Database, refusal};
use super::plan::Plan;
use super::table::{Table, field};
use crate::server::{constant, identifier};

/// Returns the type of the new column. `None` when no conversion is under way. Fails with SR-8122
/// or SR-5001 if the query fails.
fn new_column_type(database: &mut Database<'_>, table: &Table) -> Result<Option<String>, Error> {
    let sql = "SELECT pg_catalog.format_type(a.atttypid, a.atttypmod) FROM pg_catalog.pg_attribute a \
        WHERE a.attrelid = $1 AND a.attname = $2 AND NOT a.attisdropped";
    let answer = database.ask(sql, &[&table.oid, &table.new_column()])?;
    Ok(answer.rows.first().map(|row| field(row, 0).to_owned()))
}

/// Adds the new column and its trigger to the table, in one transaction. If a conversion in the
/// same direction has added them already it does nothing but say so; if one in the other direction
/// has, it fails with SR-8121. Otherwise fails as [`Database::retry_until_locked`] does.
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
    database.retry_until_locked(|connection| {
        for statement in &statements {
            connection.run(statement)?;
        }
        Ok(())
    })
}

/// Converts the last rows and puts the new column in the old one's place, in one transaction that
/// locks writers out. The old column is dropped. Fails with SR-8121 if a row has a value in one of
/// the columns only, and as [`Database::retry_until_locked`] does.
pub(super) fn finish(database: &mut Database<'_>, table: &Table, plan: &Plan) -> Result<(), Error> {
    let (name, new) = (table.qualified(), identifier(&table.new_column()));
    let statements = swap_statements(table, plan);
    database.retry_until_locked(|connection| {
        // Readers may go on; rows cannot be locked or written.
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

/// Returns the statements, in order, that drop the trigger and the old column and give the new
/// column, its indexes and its comment the old names.
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
                table.in_same_schema(&temporary),
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

/// Drops the new column, with its indexes, and its trigger, if a conversion is under way; otherwise
/// only says so. Fails as [`Database::retry_until_locked`] does.
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
    database.retry_until_locked(|connection| {
        // Its indexes go with it.
        connection.run(&format!("DROP TRIGGER IF EXISTS {trigger} ON {name}"))?;
        connection.run(&format!("ALTER TABLE {name} DROP COLUMN {new}"))?;
        Ok(())
    })?;
    database.note("given up: the old column is as it was");
    Ok(())
}
