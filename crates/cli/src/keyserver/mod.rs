//! `strongroom keyserver`: the key server itself, its administration over HTTPS, and what nodes tell it. One file per verb.
//!
//! Must not: take a token, a share or a private key from the command line; speak HTTP or TLS, which are strongroom-keyserver's and
//! strongroom-keyclient's.

mod init;
mod join;
mod report;
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
    Join(join::JoinArgs),
    Report(report::ReportArgs),
}

impl KeyserverArgs {
    pub(crate) fn wants_json(&self) -> bool {
        match &self.verb {
            Verb::Init(_) | Verb::Run(_) | Verb::Join(_) => false,
            Verb::Report(args) => args.json,
        }
    }

    pub(crate) fn run(self, context: &mut Context) -> Result<(), Failure> {
        match self.verb {
            Verb::Init(args) => args.run(context),
            Verb::Run(args) => args.run(),
            Verb::Join(args) => args.run(context),
            Verb::Report(args) => args.run(context),
        }
    }
}
