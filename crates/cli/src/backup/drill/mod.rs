//! `strongroom backup verify --restore-test`: a set restored to a private place, a server started
//! there, PostgreSQL's own checks.
//!
//! Invariants:
//! - The server listens on a socket in the private place and nowhere else, archives nothing,
//!   follows no publisher, and runs as the owner of its files: whoever runs this, or the user
//!   `postgres` when that is root.
//! - The place itself stays ours: of another user are only the cluster, its tablespaces and the
//!   directory of the socket, and nothing in them is opened by root once that user can reach it,
//!   but the server's own word that it is ready.
//! - The server gets the archived log from this process, file by file, and no key (`requests.rs`).
//! - Server and place are gone when this ends, after a signal too, unless it is killed.
//! - What was not checked is said; what was checked and failed is an error.
//!
//! Must not: take a setting of the restored cluster: they are for another place.

mod programs;
mod requests;
mod server;

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use strongroom_backup::{ArchivedLog, Chain, Kept, Owners, RestoreOptions};
use strongroom_format::code;

use self::programs::{STOP, not_stopped, run, succeeded};
use self::server::{Place, Server};
use super::progress::{ProgressOptions, Watch};
use super::restore::restored;
use crate::failure::Failure;
use crate::pg::programs::BindirOption;
use crate::{owner, signals};

/// The user that packages of PostgreSQL make for its servers.
const SERVER_USER: &str = "postgres";

/// How a set is tested.
#[derive(Args)]
pub(super) struct DrillOptions {
    /// Of a PostgreSQL cluster: restore it to a private place, start a server there and let
    /// PostgreSQL's programs check it
    #[arg(long)]
    restore_test: bool,
    /// With --restore-test: where the private place is made [default: the directory for temporary
    /// files]
    #[arg(long, value_name = "DIR", requires = "restore_test")]
    scratch: Option<PathBuf>,
    /// With --restore-test: a query that the restored server has to answer
    #[arg(long, value_name = "SQL", requires = "restore_test")]
    query: Option<String>,
    /// With --restore-test: the database of the query
    #[arg(long, value_name = "NAME", default_value = "postgres")]
    database: String,
    /// With --restore-test: a superuser of the restored cluster
    #[arg(long, value_name = "NAME", default_value = "postgres")]
    superuser: String,
    #[command(flatten)]
    programs: BindirOption,
}

/// What a test found good.
#[derive(Serialize)]
pub(super) struct Drilled {
    pub(super) checked: Vec<String>,
    pub(super) not_checked: Vec<String>,
    /// How far the archived log was replayed; null when nothing is archived.
    replayed: Option<Replayed>,
    /// What the query answered.
    pub(super) answer: Option<String>,
}

/// The end of what was replayed of the archived log.
#[derive(Serialize)]
struct Replayed {
    /// Where the last record begins.
    lsn: String,
    /// When the last transaction ended, as the server prints it; null if none did behind the
    /// backup.
    last_transaction: Option<String>,
}

impl DrillOptions {
    /// Whether a restore test is asked for.
    pub(super) fn is_wanted(&self) -> bool {
        self.restore_test
    }

    /// Tests the chain, with the log in `archive` if there is any: every set is read to its end.
    pub(super) fn run(
        &self,
        chain: &Chain<'_>,
        archive: Option<&ArchivedLog<'_>>,
        threads: usize,
        progress: ProgressOptions,
    ) -> Result<Drilled, Failure> {
        let facts = chain.newest()?.description().postgres.clone();
        let facts = facts
            .ok_or_else(|| Failure::usage("--restore-test is for sets of PostgreSQL clusters"))?;
        signals::set(&STOP)?;
        let bin = self.programs.find(Some(facts.server_version / 10_000))?;
        let place = Place::new(self.scratch.as_deref(), &bin)?;
        let options = RestoreOptions {
            to: place.data(),
            tablespaces: None,
            threads,
            recovery: None,
            kept: Kept {
                owners: of_the_server()?,
                special_bits: false,
            },
            sealing: None,
            delta: None,
            stop: Some(&STOP),
        };
        let mut progress = Watch::new("restore-test", progress).of(chain.size_bytes());
        restored(chain, &options, &self.programs, &mut |bytes| {
            progress.update(bytes);
        })?;
        progress.finish();
        not_stopped()?;
        let mut server = place.settled(facts.server_version, archive)?;
        self.checked(&mut server, archive)
    }

    fn checked(
        &self,
        server: &mut Server,
        archive: Option<&ArchivedLog<'_>>,
    ) -> Result<Drilled, Failure> {
        let mut out = Drilled {
            checked: vec![String::from("restored, with the digest of every file")],
            not_checked: Vec::new(),
            replayed: None,
            answer: None,
        };
        server.start(archive)?;
        out.checked.push(match archive {
            None => String::from("recovered by PostgreSQL to the end of the backup"),
            Some(archive) => {
                let replayed = archive.check_replayed(&server.said()?)?;
                let lsn = replayed.lsn.to_string();
                let until = replayed.time.as_deref().map_or_else(
                    || String::from("no transaction has ended behind the backup"),
                    |time| format!("the last transaction ended at {time}"),
                );
                out.replayed = Some(Replayed {
                    lsn: lsn.clone(),
                    last_transaction: replayed.time,
                });
                format!(
                    "recovered by PostgreSQL to the end of the archived log: the last record is at {lsn}, {until}"
                )
            }
        });
        self.structures(server, &mut out)?;
        if let Some(query) = &self.query {
            let answer = self.sql(server, &self.database, query)?;
            let answer = answer.ok_or_else(|| {
                Failure::new(&code::TEST_PROGRAM, "psql: not found; --query needs it")
            })?;
            out.checked.push(String::from("the query was answered"));
            out.answer = Some(answer.trim_end().to_owned());
        } else {
            out.not_checked
                .push(String::from("what the tables hold: no query was given"));
        }
        server.stop()?;
        // After a clean shutdown: the program refuses a cluster that still has to recover.
        checksums(server, &mut out)?;
        for what in [
            "the cluster's own settings, and what needs libraries to be preloaded",
            "subscriptions: none was followed",
        ] {
            out.not_checked.push(String::from(what));
        }
        Ok(out)
    }

    /// Tables and indexes, by `pg_amcheck`.
    fn structures(&self, server: &Server, out: &mut Drilled) -> Result<(), Failure> {
        let lacking = |what: &str| format!("the structure of tables and indexes: {what}");
        let Some(mut amcheck) = server.program("pg_amcheck") else {
            out.not_checked.push(lacking("pg_amcheck is not installed"));
            return Ok(());
        };
        let available = "SELECT count(*) FROM pg_available_extensions WHERE name = 'amcheck'";
        match self
            .sql(server, "postgres", available)?
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
        server.reached_by(&mut amcheck, &self.superuser);
        amcheck.args(["--all", "--heapallindexed", "--install-missing"]);
        let output = run("pg_amcheck", amcheck)?;
        // What it finds is on its standard output: names and places, no values.
        let said = [output.stdout.as_slice(), &output.stderr].concat();
        succeeded("pg_amcheck", output.status, &said)?;
        out.checked
            .push(String::from("tables and B-tree indexes, by pg_amcheck"));
        out.not_checked.push(String::from(
            "other indexes, indexes that are invalid, and databases that allow no connections",
        ));
        Ok(())
    }

    /// What psql prints; `None` when there is no psql.
    fn sql(
        &self,
        server: &Server,
        database: &str,
        statement: &str,
    ) -> Result<Option<String>, Failure> {
        let Some(mut psql) = server.program("psql") else {
            return Ok(None);
        };
        server.reached_by(&mut psql, &self.superuser);
        // Terse: what a row holds has no place in an error.
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"]);
        psql.args(["-v", "VERBOSITY=terse"]);
        psql.arg("-d").arg(database).arg("-c").arg(statement);
        let output = run("psql", psql)?;
        // Nor have the rows that came before it.
        succeeded("psql", output.status, &output.stderr)?;
        Ok(Some(String::from_utf8_lossy(&output.stdout).into_owned()))
    }
}

fn checksums(server: &Server, out: &mut Drilled) -> Result<(), Failure> {
    let Some(mut program) = server.program("pg_checksums") else {
        let text = "page checksums: pg_checksums is not installed";
        out.not_checked.push(String::from(text));
        return Ok(());
    };
    program.arg("--check").arg("-D").arg(&server.data);
    let output = run("pg_checksums", program)?;
    // The program's own words for a cluster without (src/bin/pg_checksums/pg_checksums.c); LC_ALL
    // is C.
    if String::from_utf8_lossy(&output.stderr).contains("data checksums are not enabled") {
        let text = "page checksums: the cluster has none";
        out.not_checked.push(String::from(text));
        return Ok(());
    }
    succeeded("pg_checksums", output.status, &output.stderr)?;
    out.checked
        .push(String::from("the checksum of every page, by pg_checksums"));
    Ok(())
}

/// As whom a server is started: never as root, and not as a user whom the set names: whoever made
/// it could choose.
fn of_the_server() -> Result<Owners, Failure> {
    if !rustix::process::geteuid().is_root() {
        return Ok(Owners::Mine);
    }
    let found = owner::user_and_group(SERVER_USER).filter(|(user, _)| *user != 0);
    let (user, group) = found.ok_or_else(|| {
        let text = format!(
            "no server runs as root, and there is no user {SERVER_USER}: run the test as another user"
        );
        Failure::new(&code::TEST_PROGRAM, text)
    })?;
    Ok(Owners::Given { user, group })
}
