//! `strongroom sqlite`: one file per verb; the shell has a directory.
//!
//! Must not: read or write a database but through the guard.

mod decrypt;
mod encrypt;
mod rekey;
mod shell;

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::Context;
use crate::failure::Failure;
use crate::help::tail;

/// Seal, open, rekey and query SQLite databases.
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
}

impl SqliteArgs {
    /// The databases that are read and written.
    pub(crate) fn subjects(&self) -> Vec<PathBuf> {
        match &self.verb {
            Verb::Encrypt(args) => vec![args.plain.clone(), args.sealed.clone()],
            Verb::Decrypt(args) => vec![args.sealed.clone(), args.plain.clone()],
            Verb::Rekey(args) => vec![args.sealed.clone()],
            Verb::Shell(args) => args.subject().into_iter().collect(),
        }
    }

    pub(crate) fn run(self, context: &mut Context) -> Result<(), Failure> {
        match self.verb {
            Verb::Encrypt(args) => args.run(context),
            Verb::Decrypt(args) => args.run(context),
            Verb::Rekey(args) => args.run(context),
            Verb::Shell(args) => args.run(context),
        }
    }
}
