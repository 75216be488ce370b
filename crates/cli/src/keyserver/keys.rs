//! `strongroom keyserver keys`: the keys that the client may know of.
//!
//! Must not: fetch a key.

use clap::Args;
use serde_json::{Value, json};

use super::admin::{ServerOptions, plain, time};
use super::destroy;
use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;
use crate::output::columns;

/// List keys: of a node those granted to it, for others all.
#[derive(Args)]
#[command(after_help = tail!("  strongroom keyserver keys --node admin.toml"))]
pub(super) struct KeysArgs {
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    server: ServerOptions,
}

impl KeysArgs {
    /// Requests the keys that this client may see and prints them as a table or JSON, and in the
    /// table which of them wait for a second administrator to be destroyed. Errors: SR-8400 or
    /// SR-8401 if the node's configuration or one of its files cannot be used; SR-8402 if no server
    /// answers; what the server refuses.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let keys = self.server.all("/v1/keys", "keys", "name")?;
        if self.json {
            return context.output.json(&json!({"keys": keys}));
        }
        let heads = ["NAME", "STATE", "VERSION", "ROTATED", "DESTROY"].map(str::to_owned);
        let mut rows = vec![heads.to_vec()];
        rows.extend(keys.iter().map(|key| {
            let last = key["versions"].as_array().and_then(|all| all.last());
            let last = last.unwrap_or(&Value::Null);
            vec![
                plain(&key["name"]),
                plain(&key["state"]),
                plain(&last["version"]),
                time(&last["created"]),
                time(&key["destroy_at"]),
            ]
        }));
        let mut text = columns(&rows);
        for key in &keys {
            if let Some(asked) = destroy::request(key) {
                let name = plain(&key["name"]);
                text += &format!("{name} waits for a second administrator: {asked}\n");
            }
        }
        context.output.text(&text)
    }
}
