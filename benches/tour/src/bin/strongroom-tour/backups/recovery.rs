//! A PostgreSQL server that archives its log, and is brought back to a point between two
//! transactions.
//!
//! Must not: leave a server running.

use strongroom_benches::Failure;
use strongroom_benches::postgres::{Cluster, Server, Tools};

use crate::postgres::instances::{Workplace, succeeded};
use crate::tour::Tour;
use strongroom_tour::checks::{Checks, found};

/// The whole part.
pub(super) fn run(tour: &mut Tour) -> Result<(), Failure> {
    tour.checks
        .heading("Backups: a PostgreSQL server, and a point of its log")?;
    let (checks, out) = (&mut tour.checks, tour.place.directory());
    let begun = Tools::find().and_then(|tools| Workplace::prepare(out, &tools));
    let workplace = match begun {
        Ok(workplace) => workplace,
        Err(error) => return checks.check("PostgreSQL can be run", || Err(error)),
    };
    let key = workplace.key_file("backup-key")?.display().to_string();
    let medium = workplace.path("pg-medium").display().to_string();
    let command = workplace.strongroom().display().to_string();
    let archive = format!("{command} backup wal-push \"%p\" --to {medium} --key-file {key}");
    let settings = [
        ("archive_mode", "on"),
        ("archive_command", archive.as_str()),
        ("wal_level", "replica"),
    ];
    let cluster = Cluster::initdb(
        workplace.place(),
        &workplace.path("archived"),
        None,
        &[],
        &settings,
    )?;
    let (server, _) = Server::start(&cluster)?;
    let position = changes(&cluster, &medium, &key, checks);
    server.stop()?;
    let Some(position) = position? else {
        return Ok(());
    };
    checks.check("backup restore --until-lsn", || {
        std::fs::remove_dir_all(cluster.data())?;
        let to = cluster.data().display().to_string();
        let from = ["backup", "restore", medium.as_str(), "--to", to.as_str()];
        let how = ["--until-lsn", position.as_str(), "--key-file", key.as_str()];
        let mut command = cluster.strongroom(&from);
        command.args(how);
        succeeded(command)?;
        let (server, _) = Server::start(&cluster)?;
        let rows = cluster.psql(
            "postgres",
            "SELECT string_agg(what, ', ' ORDER BY id) FROM t",
        );
        server.stop()?;
        let rows = rows?;
        found(rows == "first, second", format!("rows: {rows}"))
    })
}

/// A set, a row after it, a position, and a row too many; the position.
fn changes(
    cluster: &Cluster<'_>,
    medium: &str,
    key: &str,
    checks: &mut Checks,
) -> Result<Option<String>, Failure> {
    let sql = |script: &str| cluster.psql("postgres", script);
    let mut position = None;
    checks.check("backup create, while the server runs", || {
        sql("CREATE TABLE t (id serial, what text); INSERT INTO t(what) VALUES ('first')")?;
        let mut create = cluster.strongroom(&["backup", "create", "user=postgres", "--to"]);
        create.arg(medium).args(["--key-file", key]);
        succeeded(create)?;
        let mut verify = cluster.strongroom(&["backup", "verify", medium, "--key-file", key]);
        verify.env_remove("PGHOST");
        let ran = succeeded(verify)?;
        found(ran.code == Some(0), "with the log that it needs; verified")
    })?;
    checks.check("two more rows; the log is archived", || {
        sql("INSERT INTO t(what) VALUES ('second')")?;
        let at = sql("SELECT pg_current_wal_lsn()")?;
        sql("INSERT INTO t(what) VALUES ('by mistake'); SELECT pg_switch_wal()")?;
        let mut archived = String::new();
        for _ in 0..200 {
            archived = sql("SELECT archived_count > 0 AND last_archived_wal >= pg_walfile_name($1) FROM pg_stat_archiver".replace("$1", &format!("'{at}'::pg_lsn")).as_str())?;
            if archived == "t" {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        position = Some(at.clone());
        found(archived == "t", format!("'second', then {at}, then 'by mistake'"))
    })?;
    Ok(position)
}
