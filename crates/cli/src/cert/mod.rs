//! `strongroom cert`: one file per verb.
//!
//! Must not: show a private key, or write one anywhere but sealed.

mod certificate_file;
mod create;
mod export;
mod import;
mod list;
mod report;
mod restore;
mod retire;

use clap::{Args, Subcommand};

use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;

/// Make, import, list, export, restore and retire certificates: what backups are sealed for.
#[derive(Args)]
#[command(after_help = tail!("  strongroom cert create backup"))]
pub(crate) struct CertArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Create(create::CreateArgs),
    Import(import::ImportArgs),
    List(list::ListArgs),
    Export(export::ExportArgs),
    Restore(restore::RestoreArgs),
    Retire(retire::RetireArgs),
}

impl CertArgs {
    /// Returns whether the verb is `list` and `--json` was given.
    pub(crate) fn wants_json(&self) -> bool {
        matches!(&self.verb, Verb::List(args) if args.json)
    }

    /// Runs the verb that was named and returns its result.
    pub(crate) fn run(self, context: &mut Context) -> Result<(), Failure> {
        match self.verb {
            Verb::Create(args) => args.run(context),
            Verb::Import(args) => args.run(context),
            Verb::List(args) => args.run(context),
            Verb::Export(args) => args.run(context),
            Verb::Restore(args) => args.run(context),
            Verb::Retire(args) => args.run(context),
        }
    }
}
