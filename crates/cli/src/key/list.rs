//! `strongroom key list`: every version of every key, without the root key.
//!
//! Must not: show a key, or ask for the root key. What is shown is checksummed, not authenticated.

use clap::Args;
use serde::Serialize;
use strongroom_format::text::printable;
use strongroom_inspect::time::rfc3339;
use strongroom_keyring::Keyring;

use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;
use crate::keyring::status::KeyJson;
use crate::output::columns;

/// List the keys and their versions.
#[derive(Args)]
#[command(after_help = tail!("  strongroom key list --json"))]
pub(super) struct ListArgs {
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

/// The JSON result: docs/reference/exit-codes.md.
#[derive(Serialize)]
struct ListJson {
    keys: Vec<KeyJson>,
}

impl ListArgs {
    /// Prints name, version, state and creation time of every version of every key, as a table or
    /// JSON. Needs no root key, so nothing is authenticated. SR-2004 if there is no keyring.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let status = Keyring::status(&context.keyring_path())?;
        if self.json {
            let keys = status.keys.iter().map(KeyJson::of).collect();
            return context.output.json(&ListJson { keys });
        }
        let mut rows = vec![
            ["NAME", "VERSION", "STATE", "CREATED"]
                .map(str::to_owned)
                .to_vec(),
        ];
        rows.extend(status.keys.iter().map(|key| {
            vec![
                printable(&key.name),
                key.version.to_string(),
                key.state.name().to_owned(),
                rfc3339(key.created_unix_s),
            ]
        }));
        context.output.text(&columns(&rows))
    }
}
