//! `strongroom keyserver destroy`: has a key erased after a time, until which it can be restored.
//!
//! Must not: decide who may; the server does.

use clap::Args;
use serde_json::json;
use strongroom_keyclient::Method;

use super::admin::{ServerOptions, named, plain, time};
use crate::Context;
use crate::failure::Failure;
use crate::help::tail;

/// Have a key destroyed. Until its time comes, `restore` brings it back.
#[derive(Args)]
#[command(after_help = tail!("  strongroom keyserver destroy --node admin.toml db-7 --after-days 30"))]
pub(super) struct DestroyArgs {
    /// The key's name
    name: String,
    /// After so many days, 0 for at once [default: as the server's policy says]
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u64).range(..=366))]
    after_days: Option<u64>,
    #[command(flatten)]
    server: ServerOptions,
}

impl DestroyArgs {
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let path = format!("/v1/keys/{}/destroy", named(&self.name)?);
        let body = json!({"after_seconds": self.after_days.map(|days| days * 86_400)});
        let answer = self.server.change(&Method::POST, &path, Some(&body))?;
        let (state, at) = (plain(&answer["state"]), time(&answer["destroy_at"]));
        context.output.line(&format!("{} {state} {at}", self.name))
    }
}
