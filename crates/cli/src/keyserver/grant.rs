//! `strongroom keyserver grant`, `ungrant`: which node may have which key.
//!
//! Must not: decide who may; the server does.

use clap::Args;
use serde_json::json;
use strongroom_keys_client::Method;

use super::admin::{ServerOptions, named};
use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;

/// Grant a key to a node.
#[derive(Args)]
#[command(after_help = tail!("  strongroom keyserver grant --node admin.toml db-host-7 db-7"))]
pub(super) struct GrantArgs {
    /// The node's name
    #[arg(value_name = "NODE")]
    to: String,
    /// The key's name
    key: String,
    /// Let it have the key destroyed, too
    #[arg(long)]
    may_destroy: bool,
    #[command(flatten)]
    server: ServerOptions,
}

/// Take a granted key back from a node.
#[derive(Args)]
#[command(after_help = tail!("  strongroom keyserver ungrant --node admin.toml db-host-7 db-7"))]
pub(super) struct UngrantArgs {
    /// The node's name
    #[arg(value_name = "NODE")]
    from: String,
    /// The key's name
    key: String,
    #[command(flatten)]
    server: ServerOptions,
}

impl GrantArgs {
    /// Has the server grant the key to the node, and prints that. SR-2013 for an invalid name;
    /// SR-8400 or SR-8401 if the node's configuration or one of its files cannot be used; SR-8402
    /// if no server answers; what the server refuses.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let (node, key) = (named(&self.to)?, named(&self.key)?);
        let body = json!({"node": node, "key": key, "may_destroy": self.may_destroy});
        self.server
            .change(&Method::POST, "/v1/grants", Some(&body))?;
        context.output.line(&format!("granted {key} to {node}"))
    }
}

impl UngrantArgs {
    /// Has the server take the key from the node, and prints that. SR-2013 for an invalid name;
    /// SR-8400 or SR-8401 if the node's configuration or one of its files cannot be used; SR-8402
    /// if no server answers; what the server refuses.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let (node, key) = (named(&self.from)?, named(&self.key)?);
        let body = json!({"node": node, "key": key});
        self.server
            .change(&Method::DELETE, "/v1/grants", Some(&body))?;
        context.output.line(&format!("took {key} from {node}"))
    }
}
