//! `strongroom keyserver`: one file per verb.
//!
//! Must not: speak HTTP or TLS; those are strongroom-keyserver's and strongroom-keyclient's.

mod join;

use clap::{Args, Subcommand};

use crate::Context;
use crate::failure::Failure;
use crate::help::tail;

/// Join a key server, which delivers keys to nodes.
#[derive(Args)]
#[command(after_help = tail!("  strongroom keyserver join https://keys-a:8443 --authority authority.pem --node db-7"))]
pub(crate) struct KeyserverArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Join(join::JoinArgs),
}

impl KeyserverArgs {
    pub(crate) fn run(self, context: &mut Context) -> Result<(), Failure> {
        match self.verb {
            Verb::Join(args) => args.run(context),
        }
    }
}
