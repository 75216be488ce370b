//! `strongroom duckdb`: DuckDB's encrypted database files, without DuckDB; one file per verb.
//!
//! Must not: know a byte of the format; that is strongroom-duckdb's.

mod header_backup;
mod header_restore;
mod key;
mod keys;
mod rekey;
mod scrub;
pub(crate) mod verify;

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;

/// Change the key of DuckDB's encrypted databases, and look after them.
///
/// A key is the text that DuckDB gets as `ENCRYPTION_KEY`. `strongroom inspect` and `strongroom
/// verify` know these files too.
#[derive(Args)]
#[command(after_help = tail!("  strongroom duckdb rekey app.db --key-file old --new-key-file new"))]
pub(crate) struct DuckdbArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Rekey(rekey::RekeyArgs),
    Scrub(scrub::ScrubArgs),
    HeaderBackup(header_backup::HeaderBackupArgs),
    HeaderRestore(header_restore::HeaderRestoreArgs),
    Key(key::KeyArgs),
}

impl DuckdbArgs {
    /// Returns the database, and the file that a copy of its header goes to or comes from, whose
    /// owner root becomes before the verb runs.
    pub(crate) fn subjects(&self) -> Vec<PathBuf> {
        match &self.verb {
            Verb::Rekey(args) => vec![args.file.clone()],
            Verb::Scrub(args) => vec![args.file.clone()],
            Verb::HeaderBackup(args) => vec![args.file.clone(), args.out.clone()],
            Verb::HeaderRestore(args) => vec![args.file.clone(), args.copy.clone()],
            Verb::Key(_) => Vec::new(),
        }
    }

    /// Runs the verb that was named and returns its result.
    pub(crate) fn run(self, context: &mut Context) -> Result<(), Failure> {
        match self.verb {
            Verb::Rekey(args) => args.run(context),
            Verb::Scrub(args) => args.run(context),
            Verb::HeaderBackup(args) => args.run(context),
            Verb::HeaderRestore(args) => args.run(context),
            Verb::Key(args) => args.run(context),
        }
    }
}
