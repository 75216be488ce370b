//! `strongroom pg start`, `stop`, `restart` and `promote`: `pg_ctl`, with the library and the key
//! in its environment.
//!
//! Must not: decide whether a server is up or down, which `pg_ctl` does.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use strongroom_keyring::Error;
use strongroom_postgres_instance::chosen::GivenKey;
use strongroom_postgres_instance::directory::{Directory, refuse_root};
use strongroom_postgres_instance::server::Server;
use strongroom_postgres_instance::shielded::Shielded;

use super::directory::DirectoryOption;
use super::given::given_key;
use super::programs::BindirOption;
use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;
use crate::key_options::KeyOptions;

// No comment of this type's own: that of the verb is its help.
#[derive(Args)]
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
    /// Runs `pg_ctl start` under the shield to its end, after the key was tried. SR-7015 for root;
    /// SR-7003 or SR-7004 if the instance is being converted or is not sealed; SR-7008 if a server
    /// runs; SR-7018 if `pg_ctl` fails; the errors of the key.
    pub(super) fn start(self, context: &mut Context) -> Result<(), Failure> {
        self.with_server(context, |server, key| server.start(key))
    }

    /// Runs `pg_ctl restart` under the shield to its end, after the key was tried. Errors as
    /// [`Self::start`], without SR-7008.
    pub(super) fn restart(self, context: &mut Context) -> Result<(), Failure> {
        self.with_server(context, |server, key| server.restart(key))
    }

    /// Refuses root (SR-7015), checks that the directory holds a sealed instance, and runs the
    /// program that `begin` returns for it to its end. `begin` gets the server and the key that the
    /// options name.
    fn with_server(
        self,
        context: &Context,
        begin: impl FnOnce(&Server<'_>, GivenKey) -> Result<Shielded, Error>,
    ) -> Result<(), Failure> {
        refuse_root()?;
        let directory = self.server.directory.sealed()?;
        let key = given_key(self.key, context);
        let server = self.server.on(&directory, Some(self.begin));
        Ok(begin(&server, key)?.run()?)
    }
}

impl StopArgs {
    /// Runs `pg_ctl stop` to its end; no key is needed. SR-7015 for root, SR-7011 if the directory
    /// holds no instance, SR-7027 if no server runs, SR-7018 if `pg_ctl` fails.
    pub(super) fn run(self) -> Result<(), Failure> {
        refuse_root()?;
        let directory = self.server.directory.existing()?;
        Ok(self.server.on(&directory, None).stop()?.run()?)
    }
}

impl PromoteArgs {
    /// Runs `pg_ctl promote` under the shield to its end, after the key was tried. SR-7003 or
    /// SR-7004 if the instance is being converted or is not sealed, SR-7015 for root, SR-7027 if no
    /// server runs, SR-7018 if `pg_ctl` fails; the errors of the key.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let directory = self.server.directory.sealed()?;
        let key = given_key(self.key, context);
        Ok(self.server.on(&directory, None).promote(key)?.run()?)
    }

    /// Returns the `-D` option.
    pub(super) fn directory(&self) -> &DirectoryOption {
        &self.server.directory
    }
}

impl ServerArgs {
    /// Returns the server on this directory, with the log file and the configuration of `begin` if
    /// there is one. Starts nothing.
    fn on<'a>(&'a self, directory: &'a Directory, begin: Option<BeginArgs>) -> Server<'a> {
        let (log, config_file) = begin.map(|it| (it.log, it.config_file)).unzip();
        Server {
            directory,
            bindir: self.bindir.named(),
            log: log.flatten(),
            config_file: config_file.flatten(),
            options: &self.options,
        }
    }
}
