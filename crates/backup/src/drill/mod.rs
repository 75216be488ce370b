//! A restore test: a set is restored to a private directory, a server is started there, and
//! PostgreSQL's own programs check it.
//!
//! Invariants:
//! - The server listens on a socket in the private directory and nowhere else, archives nothing and
//!   follows no publisher. It runs as the owner of its files, which is never root.
//! - The private directory belongs to this process's user. Only the cluster, its tablespaces and
//!   the directory of the socket belong to the server's user, and once that user can reach them,
//!   root opens nothing in them but the server's report that it is ready.
//! - The server gets the archived log from this process, file by file, and no key (`requests.rs`).
//! - The server and the directory are removed when the test ends, after a signal too, unless this
//!   process is killed.
//! - The report lists what was not checked; a check that fails is an error.
//!
//! Must not: use the settings of the restored cluster, which are for the original server.

mod options;
mod private_directory;
mod programs;
mod requests;
mod server;
mod server_user;

use serde::Serialize;
use strongroom_format::code;

pub use self::options::{DrillOptions, DrillQuestions};
use self::private_directory::PrivateDirectory;
use self::programs::{check_status, check_stop};
use self::server::Server;
use crate::{ArchivedLog, Chain, Error, Kept, RestoreOptions, Result, restore_newest};

/// What a test found good.
#[derive(Debug, Serialize)]
pub struct DrillReport {
    /// What was checked and found good.
    pub checked: Vec<String>,
    /// What was not checked.
    pub not_checked: Vec<String>,
    /// How far the archived log was replayed; null when nothing is archived.
    pub replayed: Option<ReplayedLog>,
    /// What the query answered.
    pub answer: Option<String>,
}

/// The end of what was replayed of the archived log.
#[derive(Debug, Serialize)]
pub struct ReplayedLog {
    /// Where the last record begins.
    pub lsn: String,
    /// When the last transaction ended, as the server prints it; null if none ended after the
    /// backup.
    pub last_transaction: Option<String>,
}

/// A cluster that was restored for a test. It is removed when this is dropped.
pub struct RestoredCluster {
    directory: PrivateDirectory,
}

impl RestoredCluster {
    /// Restores the chain, every set of which is read to its end, into a new private directory.
    /// `progress` gets the bytes of files so far.
    ///
    /// # Errors
    /// SR-1001 when the path of the private directory is too long for a socket; those of the
    /// restore; SR-5001 when the system reports an error.
    pub fn restore(
        chain: &Chain<'_>,
        options: &DrillOptions,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Self> {
        let directory = PrivateDirectory::create(&options.scratch)?;
        let restore_options = RestoreOptions {
            to: directory.data(),
            tablespaces: None,
            threads: options.threads,
            recovery: None,
            kept: Kept {
                owners: options.owners,
                special_bits: false,
            },
            sealing: None,
            delta: None,
            stop: Some(options.stop),
        };
        let programs = |_| Ok(options.programs.clone());
        restore_newest(chain, &restore_options, &programs, progress)?;
        Ok(Self { directory })
    }

    /// Starts a server on the cluster, with the log in `archive` if there is any, lets PostgreSQL's
    /// programs check it, stops the server, and removes the cluster. Programs that are not
    /// installed are listed as checks that were not made, except psql when there is a query.
    ///
    /// # Errors
    /// SR-7163 when a check fails; SR-7175 when the archived log is not replayed to its end;
    /// SR-7164 when a program cannot be run; SR-5001, also when the test is to stop; those of the
    /// archive.
    pub fn check(
        self,
        options: &DrillOptions,
        archive: Option<&ArchivedLog<'_>>,
        questions: &DrillQuestions,
    ) -> Result<DrillReport> {
        check_stop(options.stop)?;
        let mut server = Server::new(self.directory, options, archive)?;
        let mut out = DrillReport {
            checked: vec![String::from("restored, with the digest of every file")],
            not_checked: Vec::new(),
            replayed: None,
            answer: None,
        };
        server.start(archive)?;
        out.checked.push(match archive {
            None => String::from("recovered by PostgreSQL to the end of the backup"),
            Some(archive) => {
                let replayed = archive.check_replayed(&server.log_text()?)?;
                let lsn = replayed.lsn.to_string();
                let until = replayed.time.as_deref().map_or_else(
                    || String::from("no transaction has ended behind the backup"),
                    |time| format!("the last transaction ended at {time}"),
                );
                out.replayed = Some(ReplayedLog {
                    lsn: lsn.clone(),
                    last_transaction: replayed.time,
                });
                format!(
                    "recovered by PostgreSQL to the end of the archived log: the last record is at {lsn}, {until}"
                )
            }
        });
        check_structures(&server, questions, &mut out)?;
        if let Some(query) = &questions.query {
            let answer = sql(&server, questions, &questions.database, query)?;
            let answer = answer.ok_or_else(|| {
                Error::new(&code::TEST_PROGRAM, "psql: not found; --query needs it")
            })?;
            out.checked.push(String::from("the query was answered"));
            out.answer = Some(answer.trim_end().to_owned());
        } else {
            out.not_checked
                .push(String::from("what the tables hold: no query was given"));
        }
        server.stop()?;
        // After a clean shutdown: the program refuses a cluster that still has to recover.
        check_checksums(&server, &mut out)?;
        for what in [
            "the cluster's own settings, and what needs libraries to be preloaded",
            "subscriptions: none was followed",
        ] {
            out.not_checked.push(String::from(what));
        }
        Ok(out)
    }
}

/// Checks tables and indexes with `pg_amcheck`, which installs the extension amcheck in each
/// database; without it, psql or the extension, notes that they were not checked. SR-7163 when
/// something is wrong.
fn check_structures(
    server: &Server,
    questions: &DrillQuestions,
    out: &mut DrillReport,
) -> Result<()> {
    let lacking = |what: &str| format!("the structure of tables and indexes: {what}");
    let Some(mut amcheck) = server.program("pg_amcheck") else {
        out.not_checked.push(lacking("pg_amcheck is not installed"));
        return Ok(());
    };
    let available = "SELECT count(*) FROM pg_available_extensions WHERE name = 'amcheck'";
    match sql(server, questions, "postgres", available)?
        .as_deref()
        .map(str::trim)
    {
        Some("1") => {}
        Some(_) => {
            out.not_checked
                .push(lacking("the extension amcheck is not installed"));
            return Ok(());
        }
        None => {
            out.not_checked.push(lacking("psql is not installed"));
            return Ok(());
        }
    }
    server.connect_as(&mut amcheck, &questions.superuser);
    amcheck.args(["--all", "--heapallindexed", "--install-missing"]);
    let output = server.run("pg_amcheck", amcheck)?;
    // What it finds is on its standard output: names and places, no values.
    let said = [output.stdout.as_slice(), &output.stderr].concat();
    check_status("pg_amcheck", output.status, &said)?;
    out.checked
        .push(String::from("tables and B-tree indexes, by pg_amcheck"));
    out.not_checked.push(String::from(
        "other indexes, indexes that are invalid, and databases that allow no connections",
    ));
    Ok(())
}

/// Runs a statement with psql in this database, as the superuser of `questions`, and returns the
/// rows that it prints, unaligned and without a heading; `None` when psql is not installed.
/// SR-7163, with psql's message, when it cannot connect or the statement fails; SR-7164 when psql
/// cannot be run; SR-5001, also when the test is to stop, for which psql is killed.
fn sql(
    server: &Server,
    questions: &DrillQuestions,
    database: &str,
    statement: &str,
) -> Result<Option<String>> {
    let Some(mut psql) = server.program("psql") else {
        return Ok(None);
    };
    server.connect_as(&mut psql, &questions.superuser);
    // Terse, because an error must not contain a row's values.
    psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"]);
    psql.args(["-v", "VERBOSITY=terse"]);
    psql.arg("-d").arg(database).arg("-c").arg(statement);
    let output = server.run("psql", psql)?;
    // The rows that were printed before the error are left out too.
    check_status("psql", output.status, &output.stderr)?;
    Ok(Some(String::from_utf8_lossy(&output.stdout).into_owned()))
}

/// Checks the checksum of every page with `pg_checksums`, on a server that was stopped; without it,
/// or without checksums, notes that they were not checked. SR-7163 when one is wrong.
fn check_checksums(server: &Server, out: &mut DrillReport) -> Result<()> {
    let Some(mut program) = server.program("pg_checksums") else {
        let text = "page checksums: pg_checksums is not installed";
        out.not_checked.push(String::from(text));
        return Ok(());
    };
    program.arg("--check").arg("-D").arg(&server.data);
    let output = server.run("pg_checksums", program)?;
    // The program's own words for a cluster without (src/bin/pg_checksums/pg_checksums.c); LC_ALL
    // is C.
    if String::from_utf8_lossy(&output.stderr).contains("data checksums are not enabled") {
        let text = "page checksums: the cluster has none";
        out.not_checked.push(String::from(text));
        return Ok(());
    }
    check_status("pg_checksums", output.status, &output.stderr)?;
    out.checked
        .push(String::from("the checksum of every page, by pg_checksums"));
    Ok(())
}
