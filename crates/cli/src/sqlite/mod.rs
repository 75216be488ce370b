//! `strongroom sqlite`: one file per verb; the shell has a directory.
//!
//! Must not: read or write a database but through the SQLite extension.

mod decrypt;
mod encrypt;
mod format_options;
mod rekey;
mod run;
mod shell;

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;

/// Seal, open, rekey and query SQLite databases, and run other programs on them.
#[derive(Args)]
#[command(after_help = tail!("  strongroom sqlite encrypt plain.db sealed.db --key-id app"))]
pub(crate) struct SqliteArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Encrypt(encrypt::EncryptArgs),
    Decrypt(decrypt::DecryptArgs),
    Rekey(rekey::RekeyArgs),
    Shell(shell::ShellArgs),
    Run(run::RunArgs),
}

impl SqliteArgs {
    /// Returns the databases that the verb reads and writes, whose owner root becomes before it
    /// runs. Empty for `run`, because the program is to have the caller's rights.
    pub(crate) fn subjects(&self) -> Vec<PathBuf> {
        match &self.verb {
            Verb::Encrypt(args) => vec![args.plain.clone(), args.sealed.clone()],
            Verb::Decrypt(args) => vec![args.sealed.clone(), args.plain.clone()],
            Verb::Rekey(args) => vec![args.sealed.clone()],
            Verb::Shell(args) => args.subject().into_iter().collect(),
            // The program is run with the caller's rights, as if it had been started without this
            // command.
            Verb::Run(_) => Vec::new(),
        }
    }

    /// Runs the verb that was named and returns its result.
    pub(crate) fn run(self, context: &mut Context) -> Result<(), Failure> {
        match self.verb {
            Verb::Encrypt(args) => args.run(context),
            Verb::Decrypt(args) => args.run(context),
            Verb::Rekey(args) => args.run(context),
            Verb::Shell(args) => args.run(context),
            Verb::Run(args) => args.run(context),
        }
    }
}
