//! `strongroom pg`: one file for each verb. What the verbs do is in strongroom-postgres-instance.
//!
//! Must not: read or write a sealed file; start a program but through the library.

mod control;
mod controldata;
mod convert;
mod decrypt;
mod directory;
mod encrypt;
pub(crate) mod given;
mod initdb;
pub(crate) mod programs;
mod rotate;
mod run;
mod service;
mod status;
pub(crate) mod verify;

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;

/// Make, run and convert sealed PostgreSQL instances.
#[derive(Args)]
#[command(after_help = tail!("  strongroom pg initdb -D /srv/pg/data --key-file /etc/strongroom/pg.key\n  strongroom pg start -D /srv/pg/data"))]
pub(crate) struct PgArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Initdb(initdb::InitdbArgs),
    /// Start the server on a sealed instance: `pg_ctl` start under the shield.
    ///
    /// Without a key option the key comes from PGENCRYPTIONKEY, or from what strongroom.conf in the
    /// data directory names. Options of `pg_ctl` itself follow `--`.
    #[command(after_help = tail!("  strongroom pg start -D /srv/pg/data -l /srv/pg/server.log"))]
    Start(control::StartArgs),
    Stop(control::StopArgs),
    /// Stop the server and start it again: `pg_ctl` restart under the shield.
    #[command(after_help = tail!("  strongroom pg restart -D /srv/pg/data"))]
    Restart(control::StartArgs),
    Promote(control::PromoteArgs),
    Status(status::StatusArgs),
    Run(run::RunArgs),
    Controldata(controldata::ControldataArgs),
    Encrypt(encrypt::EncryptArgs),
    Decrypt(decrypt::DecryptArgs),
    Rotate(rotate::RotateArgs),
    Service(service::ServiceArgs),
}

impl PgArgs {
    /// Returns the data directory or directories of the verb, whose owner root becomes before it
    /// runs. Empty for `initdb`, `start`, `stop` and `restart`, which refuse root, for `service`,
    /// whose files are root's own, and if no directory is named.
    pub(crate) fn subjects(&self) -> Vec<PathBuf> {
        let one = |directory: &directory::DirectoryOption| directory.named().into_iter().collect();
        match &self.verb {
            Verb::Status(args) => one(&args.directory),
            Verb::Promote(args) => one(args.directory()),
            Verb::Run(args) => args.named(),
            Verb::Controldata(args) => one(&args.directory),
            Verb::Encrypt(args) => one(&args.directory),
            Verb::Decrypt(args) => one(&args.directory),
            Verb::Rotate(args) => one(&args.directory),
            Verb::Initdb(_)
            | Verb::Start(_)
            | Verb::Stop(_)
            | Verb::Restart(_)
            | Verb::Service(_) => Vec::new(),
        }
    }

    /// Returns whether the verb is `status` and `--json` was given.
    pub(crate) fn wants_json(&self) -> bool {
        matches!(&self.verb, Verb::Status(args) if args.json)
    }

    /// Runs the verb that was named and returns its result.
    pub(crate) fn run(self, context: &mut Context) -> Result<(), Failure> {
        match self.verb {
            Verb::Initdb(args) => args.run(context),
            Verb::Start(args) => args.start(context),
            Verb::Stop(args) => args.run(),
            Verb::Restart(args) => args.restart(context),
            Verb::Promote(args) => args.run(context),
            Verb::Status(args) => args.run(context),
            Verb::Run(args) => args.run(context),
            Verb::Controldata(args) => args.run(context),
            Verb::Encrypt(args) => args.run(context),
            Verb::Decrypt(args) => args.run(context),
            Verb::Rotate(args) => args.run(context),
            Verb::Service(args) => args.run(context),
        }
    }
}
