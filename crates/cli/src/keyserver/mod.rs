//! `strongroom keyserver`: the key server itself, and its administration over HTTPS.
//!
//! Must not: take a token, a share or a private key from the command line.

mod init;
mod run;

use clap::{Args, Subcommand};

use crate::Context;
use crate::failure::Failure;
use crate::help::tail;

/// The key server: keeps wrapped keys and delivers them to enrolled nodes.
#[derive(Args)]
#[command(after_help = tail!("  strongroom keyserver init --store /var/lib/strongroom/keys.db --root-provider file:/etc/strongroom/root.key --name keys.example.org\n  strongroom keyserver run --config /var/lib/strongroom/server.toml"))]
pub(crate) struct KeyserverArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Init(init::InitArgs),
    Run(run::RunArgs),
}

impl KeyserverArgs {
    pub(crate) fn wants_json(&self) -> bool {
        match &self.verb {
            Verb::Init(_) | Verb::Run(_) => false,
        }
    }

    pub(crate) fn run(self, context: &mut Context) -> Result<(), Failure> {
        match self.verb {
            Verb::Init(args) => args.run(context),
            Verb::Run(args) => args.run(),
        }
    }
}
