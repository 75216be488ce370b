//! `strongroom pg`: one file per verb. What the verbs share is in `directory`, `programs`, `chosen`
//! and `shielded`.
//!
//! Invariants:
//! 1. Keys are tried before anything is started or written, so a refusal leaves everything
//!    unchanged.
//! 2. A program that is started gets the name of the key's source or, for a key that was typed, an
//!    inherited descriptor; never the key as an argument.
//!
//! Must not: read or write a sealed file but through strongroom-postgres-shield or a program under
//! the shield.

mod chosen;
mod clusters;
mod contents;
mod control;
mod controldata;
mod convert;
mod decrypt;
mod directory;
mod encrypt;
mod facts;
mod initdb;
pub(crate) mod log;
mod outside;
mod plaintext;
pub(crate) mod programs;
pub(crate) mod restored;
mod rotate;
mod run;
mod service;
mod shielded;
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
    Start(control::StartArgs),
    Stop(control::StopArgs),
    Restart(control::RestartArgs),
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
    /// The data directories that root may be pointed at. What starts PostgreSQL's server refuses
    /// root before it looks; a service is root's own file, and made by descriptors.
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

    pub(crate) fn wants_json(&self) -> bool {
        matches!(&self.verb, Verb::Status(args) if args.json)
    }

    pub(crate) fn run(self, context: &mut Context) -> Result<(), Failure> {
        match self.verb {
            Verb::Initdb(args) => args.run(context),
            Verb::Start(args) => args.run(context),
            Verb::Stop(args) => args.run(context),
            Verb::Restart(args) => args.run(context),
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
