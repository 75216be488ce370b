//! `strongroom keyserver nodes`: the clients of the server.
//!
//! Must not: change anything.

use clap::Args;
use serde_json::json;

use super::admin::{ServerOptions, plain, time};
use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;
use crate::output::columns;

/// List the clients that are enrolled.
#[derive(Args)]
#[command(after_help = tail!("  strongroom keyserver nodes --node admin.toml"))]
pub(super) struct NodesArgs {
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    server: ServerOptions,
}

impl NodesArgs {
    /// Requests the clients that are enrolled and prints them as a table or JSON. Errors: SR-8400
    /// or SR-8401 if the node's configuration or one of its files cannot be used; SR-8402 if no
    /// server answers; what the server refuses.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let nodes = self.server.all("/v1/nodes", "nodes", "name")?;
        if self.json {
            return context.output.json(&json!({"nodes": nodes}));
        }
        let heads = ["NAME", "ROLE", "CREATE", "DESTROY", "ENROLLED", "EXPIRES"];
        let mut rows = vec![heads.map(str::to_owned).to_vec()];
        rows.extend(nodes.iter().map(|node| {
            let mut row = ["name", "role", "may_create", "may_destroy"]
                .map(|m| plain(&node[m]))
                .to_vec();
            row.extend(["enrolled", "expires"].map(|member| time(&node[member])));
            row
        }));
        context.output.text(&columns(&rows))
    }
}
