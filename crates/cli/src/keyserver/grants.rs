//! `strongroom keyserver grants`: which node may have which key.
//!
//! Must not: change anything.

use clap::Args;
use serde_json::json;

use super::admin::{ServerOptions, named, plain, time};
use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;
use crate::output::columns;

/// List which node is granted which key: all grants, those of one node, or those of one key.
#[derive(Args)]
#[command(after_help = tail!("  strongroom keyserver grants --node admin.toml --key db-7"))]
pub(super) struct GrantsArgs {
    /// Only what this node is granted
    #[arg(value_name = "NODE")]
    of: Option<String>,
    /// Only who is granted this key
    #[arg(long, value_name = "NAME")]
    key: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    server: ServerOptions,
}

impl GrantsArgs {
    /// Requests the grants and prints those of the node and of the key that were named, or all, as
    /// a table or JSON. SR-2013 for an invalid name; SR-8400 or SR-8401 if the node's configuration
    /// or one of its files cannot be used; SR-8402 if no server answers; what the server refuses.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let node = self.of.as_deref().map(named).transpose()?;
        let key = self.key.as_deref().map(named).transpose()?;
        // Grants are in order of `node/key`, so those of one node stand together.
        let begin = node.map_or_else(String::new, |node| format!("{node}/"));
        let place = |grant: &serde_json::Value| {
            format!("{}/{}", plain(&grant["node"]), plain(&grant["key"]))
        };
        let mut grants = Vec::new();
        self.server
            .pages("/v1/grants", "grants", begin, place, |grant| {
                if node.is_some_and(|node| grant["node"] != node) {
                    return Ok(false);
                }
                if key.is_none_or(|key| grant["key"] == key) {
                    grants.push(grant);
                }
                Ok(true)
            })?;
        if self.json {
            return context.output.json(&json!({"grants": grants}));
        }
        let heads = ["NODE", "KEY", "GRANTED", "DESTROY"].map(str::to_owned);
        let mut rows = vec![heads.to_vec()];
        rows.extend(grants.iter().map(|grant| {
            vec![
                plain(&grant["node"]),
                plain(&grant["key"]),
                time(&grant["granted"]),
                plain(&grant["may_destroy"]),
            ]
        }));
        context.output.text(&columns(&rows))
    }
}
