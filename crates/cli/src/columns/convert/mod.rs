//! `strongroom columns convert`: a plain column becomes a confidential one, or the other way, while the table is used.
//!
//! The new column stands beside the old one until every row has both; then it takes the old one's place in one transaction. The
//! value goes to this command and back through the data owner's proxy, which encrypts or decrypts it. Invariants (C1 to C4 of
//! docs/internals/columns.md): all state is the table's own - the new column and its trigger - so whatever ends the command, running
//! it again goes on. Must not: print a value.

mod copy;
mod database;
mod indexes;
mod plan;
mod swap;
mod table;

use clap::Args;

use self::database::{Database, cannot};
use self::plan::Plan;
use self::table::{Direction, Table};
use super::connect::{LoginOptions, checked};
use crate::failure::{Failure, note};
use crate::help::tail;

/// Make a plain column confidential, or a confidential one plain, while the table is used.
///
/// Connects to the data owner's proxy: best the one that the table's applications use, so that it knows of the change at once. Run it
/// again if it was interrupted: it goes on where it was. Readers are locked out for the last step only, which does not depend on
/// the size of the table but for one look at each row; writers for as long, and while the last rows are converted.
#[derive(Args)]
#[command(after_help = tail!("  strongroom columns convert public.staff salary --to-confidential --proxy 127.0.0.1:6432 --user owner --database shop"))]
pub(super) struct ConvertArgs {
    /// The table, as SQL names it
    table: String,
    /// The column, as the catalog names it
    column: String,
    /// Make it confidential
    #[arg(long, required_unless_present_any = ["to_plain", "abandon"], conflicts_with_all = ["to_plain", "abandon"])]
    to_confidential: bool,
    /// Make it plain: the server sees every value of it
    #[arg(long, conflicts_with = "abandon")]
    to_plain: bool,
    /// Give up a conversion that was begun: the old column stays as it is
    #[arg(long)]
    abandon: bool,
    /// The data owner's proxy: HOST:PORT, or the path of its socket
    #[arg(long, value_name = "ADDRESS", value_parser = checked)]
    proxy: String,
    #[command(flatten)]
    login: LoginOptions,
    /// Rewrite a table that does not use the access method strongroom yet: locked for readers and writers while it lasts
    #[arg(long)]
    rewrite: bool,
    /// Seconds to wait for a lock before letting go and trying again
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..3600))]
    lock_timeout: u32,
}

/// The first half of an advisory lock's number: "SRCV".
const LOCK_CLASS: i32 = 0x5352_4356;
const LOCK_TRIES: u32 = 600;
const LOCK_PAUSE: std::time::Duration = std::time::Duration::from_millis(100);

impl ConvertArgs {
    pub(super) fn run(self) -> Result<(), Failure> {
        let mut database = Database(self.login.connect(&self.proxy)?);
        let superuser = prepare(&mut database, self.lock_timeout)?;
        let found = Table::read(&mut database, &self.table, &self.column)?;
        alone(&mut database, &found)?;
        // As it is now: the session that had the lock may just have changed it.
        let mut table = Table::read(&mut database, &self.table, &self.column)?;
        // From here on every name is qualified.
        database.run("SET search_path = pg_catalog")?;
        if self.abandon {
            return swap::abandon(&mut database, &table);
        }
        let direction = if self.to_confidential {
            Direction::Confidential
        } else {
            Direction::Plain
        };
        if table.is_done(direction) {
            note("the column is so already: nothing to be done");
            return Ok(());
        }
        let plan = Plan::of(&mut database, &table, direction, superuser)?;
        for told in &plan.notes {
            note(told);
        }
        if direction == Direction::Confidential && table.access_method != "strongroom" {
            self.change_access_method(&mut database, &mut table)?;
        }
        swap::begin(&mut database, &table, &plan)?;
        copy::check_proxy(&mut database, &table)?;
        copy::rows(&mut database, &table)?;
        indexes::build(&mut database, &table, &plan)?;
        swap::finish(&mut database, &table, &plan)?;
        tell(&table, direction);
        Ok(())
    }

    fn change_access_method(
        &self,
        database: &mut Database,
        table: &mut Table,
    ) -> Result<(), Failure> {
        if !self.rewrite {
            return Err(cannot(format!(
                "{} uses the access method {}, and confidential columns need strongroom: --rewrite changes that, \
                 with readers and writers locked out while the table is rewritten",
                table.qualified(),
                table.access_method
            )));
        }
        note("rewriting the table for the access method strongroom");
        let change = format!(
            "ALTER TABLE {} SET ACCESS METHOD strongroom",
            table.qualified()
        );
        swap::until_locked(database, |connection| {
            Ok(connection.run(&change).map(drop)?)
        })?;
        "strongroom".clone_into(&mut table.access_method);
        Ok(())
    }
}

/// Settings of the session; whether the user is a superuser.
fn prepare(database: &mut Database, lock_timeout: u32) -> Result<bool, Failure> {
    database.run(&format!(
        "SET lock_timeout = '{lock_timeout}s'; SET statement_timeout = 0; SET DateStyle = 'ISO'; SET IntervalStyle = 'postgres'; \
         SET TimeZone = 'UTC'; SET extra_float_digits = 1; SET bytea_output = 'hex'; SET row_security = off; SET synchronous_commit = off"
    ))?;
    let answer = database.run("SHOW is_superuser")?;
    let superuser = answer.rows == [[Some("on".to_owned())]];
    if superuser {
        // Triggers of the application concern changes of the application's; the conversion's own one fires always.
        database.run("SET session_replication_role = replica")?;
    }
    Ok(superuser)
}

/// Takes the advisory lock of the table's conversions. A session whose command was killed has it until the server has finished its
/// statement.
fn alone(database: &mut Database, table: &Table) -> Result<(), Failure> {
    // An OID has 32 bits without a sign, the lock's number has one.
    let number = table.oid.parse().map(u32::cast_signed).unwrap_or(0);
    let sql = format!("SELECT pg_catalog.pg_try_advisory_lock({LOCK_CLASS}, {number})");
    for _ in 0..LOCK_TRIES {
        if database.run(&sql)?.rows == [[Some("t".to_owned())]] {
            return Ok(());
        }
        std::thread::sleep(LOCK_PAUSE);
    }
    Err(cannot("another session converts a column of this table"))
}

fn tell(table: &Table, direction: Direction) {
    let (name, column) = (table.qualified(), &table.column.name);
    note(&format!(
        "converted: {name}, column {column}; it is now the table's last column"
    ));
    if direction == Direction::Confidential {
        note(&format!(
            "the old values are still in dead rows: VACUUM (FULL, ANALYZE) {name} removes them, with readers and writers locked out"
        ));
        note(
            "older than this command, and not reached by it: WAL and its archive, backups, replicas' files, free space of the disk. Make a \
             new base backup and remove the old ones with their WAL",
        );
    }
}
