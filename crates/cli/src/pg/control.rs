//! `strongroom pg start`, `stop`, `restart` and `promote`: `pg_ctl`, with the library and the key
//! in its environment.
//!
//! A data directory of Debian's postgresql-common has no `postgresql.conf`. The server gets the
//! path of its configuration as an option, as from `pg_ctlcluster`.
//!
//! Invariant: the key is tried on the header and on the control file before `pg_ctl` runs, so that
//! the user sees here that it is wrong, and not in the server's log.
//!
//! Must not: decide whether a server is up or down, which `pg_ctl` does.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Args;
use strongroom_format::code;
use strongroom_postgres_shield::clusters::configuration_options;
use strongroom_postgres_shield::server_settings::started_with;

use super::chosen::ChosenKey;
use super::clusters;
use super::contents::check_control;
use super::directory::{Directory, DirectoryOption, refuse_root};
use super::programs::{self, BindirOption};
use super::shielded::Shielded;
use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;
use crate::key_options::KeyOptions;

/// Start the server on a sealed instance: `pg_ctl` start under the shield.
///
/// Without a key option the key comes from PGENCRYPTIONKEY, or from what strongroom.conf in the
/// data directory names. Options of `pg_ctl` itself follow `--`.
#[derive(Args)]
#[command(after_help = tail!("  strongroom pg start -D /srv/pg/data -l /srv/pg/server.log"))]
pub(super) struct StartArgs {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    key: KeyOptions,
    #[command(flatten)]
    begin: BeginArgs,
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
    #[command(flatten)]
    begin: BeginArgs,
}

/// Make a standby a primary: `pg_ctl` promote under the shield.
///
/// `pg_ctl` reads the control file first, which is sealed: without the shield it calls that file
/// corrupt. `SELECT pg_promote()` does the same and needs no shield.
#[derive(Args)]
#[command(after_help = tail!("  strongroom pg promote -D /var/lib/postgresql/15/main"))]
pub(super) struct PromoteArgs {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    key: KeyOptions,
}

/// What starting and restarting have in common.
#[derive(Args)]
struct BeginArgs {
    /// Where the server's messages go
    #[arg(short = 'l', long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// The server's postgresql.conf, where that is not in the data directory [default: that of the
    /// cluster of postgresql-common that has this data directory]
    #[arg(long, value_name = "FILE")]
    config_file: Option<PathBuf>,
}

/// What all of them have in common.
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
        let configuration = self.begin.configuration(&directory)?;
        let more = self.begin.arguments(&directory, configuration.as_deref());
        self.server
            .pg_ctl("start", &directory, self.key, &more, context)
    }
}

impl StopArgs {
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        refuse_root()?;
        let directory = self.server.directory.existing()?;
        check_runs(&directory)?;
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
        let configuration = self.configuration(&directory)?;
        let more = self.begin.arguments(&directory, configuration.as_deref());
        self.server
            .pg_ctl("restart", &directory, self.key, &more, context)
    }

    /// As for a start, unless `pg_ctl` knows it: it takes the options of the last start, if it is
    /// given none.
    fn configuration(&self, directory: &Directory) -> Result<Option<PathBuf>, Failure> {
        let options = self.server.options.iter();
        let mut options = options.map(|option| option.to_string_lossy());
        let replaced = options.any(|it| it.starts_with("-o") || it.starts_with("--options"));
        let kept = !replaced && started_with(&directory.path, "config_file");
        if kept && self.begin.config_file.is_none() {
            return Ok(None);
        }
        self.begin.configuration(directory)
    }
}

impl PromoteArgs {
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let directory = self.server.directory.sealed()?;
        check_runs(&directory)?;
        self.server
            .pg_ctl("promote", &directory, self.key, &[], context)
    }

    pub(super) fn directory(&self) -> &DirectoryOption {
        &self.server.directory
    }
}

/// An error unless a server runs on the directory.
fn check_runs(directory: &Directory) -> Result<(), Failure> {
    if directory.server().is_some() {
        return Ok(());
    }
    let left = directory.path.join("postmaster.pid").exists();
    let detail = if left {
        "postmaster.pid is left over from one that is gone"
    } else {
        "no postmaster.pid in it"
    };
    Err(directory.failure(&code::PG_NOT_RUNNING, detail))
}

impl BeginArgs {
    fn configuration(&self, directory: &Directory) -> Result<Option<PathBuf>, Failure> {
        clusters::configuration_of(directory, self.config_file.as_deref())
    }

    /// The arguments of `pg_ctl` that name the log and the configuration's file.
    fn arguments(&self, directory: &Directory, configuration: Option<&Path>) -> Vec<OsString> {
        let mut arguments = Vec::new();
        if let Some(log) = &self.log {
            arguments.extend([OsString::from("-l"), log.into()]);
        }
        if let Some(file) = configuration {
            let options = configuration_options(&directory.path, file);
            arguments.extend([OsString::from("-o"), options]);
        }
        arguments
    }
}

impl ServerArgs {
    /// `pg_ctl` under the shield, after the key was tried.
    fn shielded(
        &self,
        directory: &Directory,
        key: KeyOptions,
        context: &mut Context,
    ) -> Result<Shielded, Failure> {
        directory.check_user()?;
        if directory.is_converting() {
            return Err(directory.failure(&code::PG_CONVERTING, "strongroom.convert is there"));
        }
        let bindir = self.bindir.find(directory.major())?;
        programs::library()?;
        let chosen = ChosenKey::required(key, context, directory)?;
        check_control(directory, &chosen.instance(directory)?)?;
        context.output.flush()?;
        Shielded::new(bindir.join("pg_ctl"), &[directory], Some(&chosen))
    }

    /// Runs `pg_ctl VERB` under the shield, with these arguments and then the options that the user
    /// gave for `pg_ctl` itself.
    fn pg_ctl(
        &self,
        verb: &str,
        directory: &Directory,
        key: KeyOptions,
        arguments: &[OsString],
        context: &mut Context,
    ) -> Result<(), Failure> {
        let mut shielded = self.shielded(directory, key, context)?;
        let command = shielded.command();
        command.arg(verb).arg("-D").arg(&directory.path);
        command.args(arguments).args(&self.options);
        shielded.run()
    }
}
