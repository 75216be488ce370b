//! `strongroom key`: one file per verb.
//!
//! Must not: show a key. Keys are named, never printed.

mod create;
mod list;
mod report;
mod retire;
mod rotate;

use clap::{Args, Subcommand};

use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;

/// Make, list, rotate and retire keys of the keyring.
#[derive(Args)]
#[command(after_help = tail!("  strongroom key create app"))]
pub(crate) struct KeyArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Create(create::CreateArgs),
    List(list::ListArgs),
    Rotate(rotate::RotateArgs),
    Retire(retire::RetireArgs),
}

impl KeyArgs {
    /// Returns whether the verb is `list` and `--json` was given.
    pub(crate) fn wants_json(&self) -> bool {
        matches!(&self.verb, Verb::List(args) if args.json)
    }

    /// Runs the verb that was named and returns its result.
    pub(crate) fn run(self, context: &mut Context) -> Result<(), Failure> {
        match self.verb {
            Verb::Create(args) => args.run(context),
            Verb::List(args) => args.run(context),
            Verb::Rotate(args) => args.run(context),
            Verb::Retire(args) => args.run(context),
        }
    }
}
