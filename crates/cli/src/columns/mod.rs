//! `strongroom columns`: one file per verb.
//!
//! Must not: see a value, except where the proxy shows it to the application.

mod connect;
mod convert;
mod ledger;
mod pins;
mod proxy;
mod replay;
mod reports;
mod setup;
mod status;
mod trust;
mod zone;

use clap::{Args, Subcommand};

use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;

/// Confidential columns: the zone that holds their values, and the proxy that applications connect
/// to.
#[derive(Args)]
#[command(after_help = tail!("  strongroom columns zone --state /srv/zone --socket /run/strongroom/zone --key-file /etc/strongroom/zone.key"))]
pub(crate) struct ColumnsArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Setup(setup::SetupArgs),
    Zone(zone::ZoneArgs),
    Proxy(proxy::ProxyArgs),
    Status(status::StatusArgs),
    Ledger(ledger::LedgerArgs),
    Replay(replay::ReplayArgs),
    Convert(convert::ConvertArgs),
    Pins(pins::PinsArgs),
}

impl ColumnsArgs {
    /// Returns whether the verb is `status`, `ledger` or `pins` and `--json` was given.
    pub(crate) const fn wants_json(&self) -> bool {
        match &self.verb {
            Verb::Status(args) => args.json,
            Verb::Pins(args) => args.json,
            Verb::Ledger(args) => args.json,
            Verb::Setup(_)
            | Verb::Zone(_)
            | Verb::Proxy(_)
            | Verb::Convert(_)
            | Verb::Replay(_) => false,
        }
    }

    /// Runs the verb that was named and returns its result.
    pub(crate) fn run(self, context: &mut Context) -> Result<(), Failure> {
        match self.verb {
            Verb::Setup(args) => args.run(context),
            Verb::Zone(args) => args.run(context),
            Verb::Proxy(args) => args.run(context),
            Verb::Status(args) => args.run(context),
            Verb::Ledger(args) => args.run(context),
            Verb::Replay(args) => args.run(context),
            Verb::Convert(args) => args.run(),
            Verb::Pins(args) => args.run(context),
        }
    }
}
