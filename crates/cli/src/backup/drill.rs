//! `strongroom backup verify --restore-test`: the options of a restore test.
//!
//! Must not: restore or start anything; that is strongroom-backup's.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use clap::Args;
use strongroom_backup::drill::{self, DrillQuestions, DrillReport, RestoredCluster};
use strongroom_backup::{ArchivedLog, Chain, Owners};
use strongroom_format::code;
use strongroom_launch::owner;

use super::progress::{ProgressOptions, ProgressReporter};
use crate::failure::Failure;
use crate::pg::programs::BindirOption;
use crate::signals;

/// The user that packages of PostgreSQL make for its servers.
const SERVER_USER: &str = "postgres";

/// Variables of this process that PostgreSQL's programs get.
const VARIABLES: [&str; 2] = ["PATH", "LD_LIBRARY_PATH"];

/// Set by a signal.
static STOP: AtomicBool = AtomicBool::new(false);

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

impl DrillOptions {
    /// Returns whether `--restore-test` was given.
    pub(super) fn is_wanted(&self) -> bool {
        self.restore_test
    }

    /// Restores the chain to a private directory, starts a PostgreSQL server there, replays the log
    /// in `archive` if there is any, and has PostgreSQL's programs check it. Shows progress; a
    /// signal stops it.
    /// Errors: SR-1001 for a set of no PostgreSQL cluster, SR-7016 without PostgreSQL's programs,
    /// SR-7163 if a check fails, SR-7175 if the log is not replayed to its end, SR-7164 if a
    /// program cannot be run or root has no user for the server; the errors of the restore.
    pub(super) fn run(
        &self,
        chain: &Chain<'_>,
        archive: Option<&ArchivedLog<'_>>,
        threads: usize,
        progress: ProgressOptions,
    ) -> Result<DrillReport, Failure> {
        let facts = chain.newest()?.description().postgres.clone();
        let facts = facts
            .ok_or_else(|| Failure::usage("--restore-test is for sets of PostgreSQL clusters"))?;
        signals::stop_on_signals(&STOP)?;
        let variable = |name: &str| Some((name.to_owned(), std::env::var_os(name)?));
        let options = drill::DrillOptions {
            programs: self.programs.find(Some(facts.server_version / 10_000))?,
            scratch: self.scratch.clone().unwrap_or_else(std::env::temp_dir),
            server_version: facts.server_version,
            owners: server_owner()?,
            environment: VARIABLES.into_iter().filter_map(variable).collect(),
            threads,
            stop: &STOP,
        };
        let mut progress =
            ProgressReporter::new("restore-test", progress).with_total(chain.size_bytes());
        let restored = RestoredCluster::restore(chain, &options, &mut |bytes| {
            progress.update(bytes);
        })?;
        progress.finish();
        let questions = DrillQuestions {
            query: self.query.clone(),
            database: self.database.clone(),
            superuser: self.superuser.clone(),
        };
        Ok(restored.check(&options, archive, &questions)?)
    }
}

/// Returns the owner of the restored files, as whom the server runs: this user, but for root the
/// user `postgres`. Never a user that the set names, because whoever made the set could choose it.
/// SR-7164 for root if there is no such user.
fn server_owner() -> Result<Owners, Failure> {
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
