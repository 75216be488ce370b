//! `strongroom volume list [PATH ...]`.
//!
//! Must not: need a key; fail because one device cannot be read.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use strongroom_volume::status::{State, states};

use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;
use crate::output::columns;

/// List the volumes on this host's block devices and in the files that are named.
#[derive(Args)]
#[command(after_help = tail!("  strongroom volume list --json"))]
pub(super) struct ListArgs {
    /// Files to look at too
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Also LUKS2 volumes that have no token of Strongroom's
    #[arg(long)]
    all: bool,
    /// Write one JSON object to standard output
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Serialize)]
struct Listed {
    volumes: Vec<State>,
}

impl ListArgs {
    /// Prints the LUKS2 volumes on this host's block devices and in the files that were named, as a
    /// table or JSON; without `--all` only those with a token of Strongroom's. A device that cannot
    /// be read is left out without an error.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let mut volumes = states(&self.paths);
        volumes.retain(|state| self.all || state.key_id.is_some());
        if self.json {
            return context.output.json(&Listed { volumes });
        }
        if volumes.is_empty() {
            return context.output.line("no volume");
        }
        let head = ["volume", "open", "key", "cipher", "uuid"];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        rows.extend(volumes.iter().map(|state| {
            let version = state.key_version.unwrap_or_default();
            let key = state.key_id.as_ref().map(|key| format!("{key} v{version}"));
            vec![
                state.path.clone(),
                state.mapping.clone().unwrap_or_else(|| "-".to_owned()),
                key.unwrap_or_else(|| "-".to_owned()),
                state.cipher.clone(),
                state.uuid.clone(),
            ]
        }));
        context.output.text(&columns(&rows))
    }
}
