//! `strongroom keyring`: one file per verb.
//!
//! Must not: touch a keyring but through strongroom-keyring.

mod accept_older;
mod export;
mod export_key;
mod import;
mod init;
mod rotate_root;
pub(crate) mod status;

use clap::{Args, Subcommand};

use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;

/// Make, show, rotate, export and import a keyring.
#[derive(Args)]
#[command(after_help = tail!("  strongroom keyring init --provider file:/etc/strongroom/root.key"))]
pub(crate) struct KeyringArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Init(init::InitArgs),
    Status(status::StatusArgs),
    RotateRoot(rotate_root::RotateRootArgs),
    Export(export::ExportArgs),
    Import(import::ImportArgs),
    AcceptOlder(accept_older::AcceptOlderArgs),
}

impl KeyringArgs {
    /// Returns whether the verb is `status` and `--json` was given.
    pub(crate) fn wants_json(&self) -> bool {
        matches!(&self.verb, Verb::Status(args) if args.json)
    }

    /// Runs the verb that was named and returns its result.
    pub(crate) fn run(self, context: &mut Context) -> Result<(), Failure> {
        match self.verb {
            Verb::Init(args) => args.run(context),
            Verb::Status(args) => args.run(context),
            Verb::RotateRoot(args) => args.run(context),
            Verb::Export(args) => args.run(context),
            Verb::Import(args) => args.run(context),
            Verb::AcceptOlder(args) => args.run(context),
        }
    }
}
