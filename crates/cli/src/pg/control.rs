//! `strongroom pg start`, `stop` and `restart`: `pg_ctl`, with the library and the key in its environment.
//!
//! Invariant: the key is tried before `pg_ctl` runs, on the header and on the control file, so that a wrong one is told
//! here and not in the server's log.
//!
//! Must not: replace `pg_ctl`'s judgement of when a server is up or down.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use strongroom_format::code;

use super::chosen::Chosen;
use super::contents::check_control;
use super::directory::{Directory, DirectoryOption, refuse_root};
use super::programs::{self, BindirOption};
use super::shielded::Shielded;
use crate::Context;
use crate::args::KeyOptions;
use crate::failure::Failure;
use crate::help::tail;

/// Start the server on a sealed instance: `pg_ctl` start under the shield.
///
/// Without a key option the key comes from PGENCRYPTIONKEY, or from what strongroom.conf in the data directory names.
/// Options of `pg_ctl` itself follow `--`.
#[derive(Args)]
#[command(after_help = tail!("  strongroom pg start -D /srv/pg/data -l /srv/pg/server.log"))]
pub(super) struct StartArgs {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    key: KeyOptions,
    /// Where the server's messages go
    #[arg(short = 'l', long, value_name = "FILE")]
    log: Option<PathBuf>,
}

/// Stop the server: `pg_ctl` stop. No key is needed. Fails when none is running, as `pg_ctl` does.
#[derive(Args)]
#[command(after_help = tail!("  strongroom pg stop -D /srv/pg/data"))]
pub(super) struct StopArgs {
    #[command(flatten)]
    server: ServerArgs,
}

/// Stop the server and start it again: `pg_ctl` restart under the shield.
#[derive(Args)]
#[command(after_help = tail!("  strongroom pg restart -D /srv/pg/data"))]
pub(super) struct RestartArgs {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    key: KeyOptions,
    /// Where the server's messages go
    #[arg(short = 'l', long, value_name = "FILE")]
    log: Option<PathBuf>,
}

/// What the three have in common.
#[derive(Args)]
struct ServerArgs {
    #[command(flatten)]
    directory: DirectoryOption,
    #[command(flatten)]
    bindir: BindirOption,
    /// Options of `pg_ctl`
    #[arg(last = true, value_name = "PG_CTL OPTION")]
    options: Vec<OsString>,
}

impl StartArgs {
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        refuse_root()?;
        let directory = self.server.directory.sealed()?;
        if let Some(pid) = directory.server() {
            return Err(directory.failure(&code::PG_RUNNING, &format!("process {pid}")));
        }
        self.server
            .begin("start", &directory, self.key, self.log, context)
    }
}

impl StopArgs {
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        refuse_root()?;
        let directory = self.server.directory.existing()?;
        if directory.server().is_none() {
            let left = directory.path.join("postmaster.pid").exists();
            let detail = if left {
                "postmaster.pid is left over from one that is gone"
            } else {
                "no postmaster.pid in it"
            };
            return Err(directory.failure(&code::PG_NOT_RUNNING, detail));
        }
        let program = self.server.bindir.find(directory.major())?.join("pg_ctl");
        context.output.flush()?;
        let mut bare = Shielded::bare(program);
        let command = bare.command();
        command.args(["stop", "-D"]).arg(&directory.path);
        command.args(&self.server.options);
        bare.run()
    }
}

impl RestartArgs {
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        refuse_root()?;
        let directory = self.server.directory.sealed()?;
        self.server
            .begin("restart", &directory, self.key, self.log, context)
    }
}

impl ServerArgs {
    fn begin(
        &self,
        verb: &str,
        directory: &Directory,
        key: KeyOptions,
        log: Option<PathBuf>,
        context: &mut Context,
    ) -> Result<(), Failure> {
        directory.check_user()?;
        if directory.is_converting() {
            return Err(directory.failure(&code::PG_CONVERTING, "strongroom.convert is there"));
        }
        let bindir = self.bindir.find(directory.major())?;
        programs::library()?;
        let chosen = Chosen::required(key, context, directory)?;
        check_control(directory, &chosen.instance(directory)?)?;
        context.output.flush()?;
        let program = bindir.join("pg_ctl");
        let mut shielded = Shielded::new(program, &[directory], Some(&chosen))?;
        let command = shielded.command();
        command.arg(verb).arg("-D").arg(&directory.path);
        if let Some(log) = log {
            command.arg("-l").arg(log);
        }
        command.args(&self.options);
        shielded.run()
    }
}
