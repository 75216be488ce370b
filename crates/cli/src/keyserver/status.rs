//! `strongroom keyserver status`: whether the server is sealed.
//!
//! Must not: change anything.

use clap::Args;

use super::admin::{ServerOptions, plain};
use crate::Context;
use crate::failure::Failure;
use crate::help::tail;

/// Say whether the server is sealed, and how many shares it waits for.
#[derive(Args)]
#[command(after_help = tail!("  strongroom keyserver status --node admin.toml"))]
pub(super) struct StatusArgs {
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    server: ServerOptions,
}

impl StatusArgs {
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let status = self.server.get("/v1/status")?;
        match self.json {
            true => context.output.json(&status),
            false => context.output.line(&in_words(&status)),
        }
    }
}

/// A status in one line.
pub(super) fn in_words(status: &serde_json::Value) -> String {
    match (status["sealed"].as_bool(), status["threshold"].as_u64()) {
        (Some(false), _) => "open".to_owned(),
        (_, Some(0)) => {
            "sealed: the provider of its root key has not answered, or it was sealed by order"
                .to_owned()
        }
        _ => {
            let (given, threshold) = (plain(&status["shares_given"]), plain(&status["threshold"]));
            format!("sealed: {given} of {threshold} shares were given")
        }
    }
}
