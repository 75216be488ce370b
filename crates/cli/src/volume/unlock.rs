//! `strongroom volume unlock --at-boot`: opens every volume of the table.
//!
//! Must not: ask anybody with --no-prompt.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use strongroom_format::code;
use strongroom_volume::boot::{TABLE, Table};
use strongroom_volume::unlock::{Outcome, Sources, unlock_all};

use super::material::ProviderOptions;
use super::messages::StandardError;
use super::tpm::open_tpm;
use crate::context::Context;
use crate::failure::{ErrorJson, Failure};
use crate::help::tail;

/// Unlock the volumes of a table, in bounded time.
#[derive(Args)]
#[command(after_help = tail!("  strongroom volume unlock --at-boot"))]
pub(super) struct UnlockArgs {
    /// As the system starts: openers are tried in the table's order, and passphrases are asked for
    #[arg(long, required_unless_present = "no_prompt")]
    at_boot: bool,
    /// Ask nobody
    #[arg(long)]
    no_prompt: bool,
    /// The table
    #[arg(long, value_name = "FILE", default_value = TABLE)]
    table: PathBuf,
    /// Only this volume or swap area of it
    #[arg(value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    provider: ProviderOptions,
    /// Write one JSON object to standard output
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Serialize)]
struct Summary {
    entries: Vec<Outcome>,
    /// Which entries are still locked, and why.
    error: Option<ErrorJson>,
}

impl UnlockArgs {
    /// Opens every volume and swap area of the table, or the one that was named, in bounded time,
    /// and prints what opened each one. With `--no-prompt`, nobody is asked. Errors: SR-1006 or
    /// SR-8335 for the table, also if the name is not in it; SR-8336 at the end if one that is not
    /// optional is still locked; SR-5001 when the system reports an error.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let mut table = Table::load(&self.table)?;
        if let Some(name) = &self.name {
            table.only(name);
            if table.names().is_empty() {
                let detail = format!("{name} is not in it");
                return Err(Failure::new(&code::VOLUME_TABLE, detail));
            }
        }
        let sources = Sources {
            asks_nobody: self.no_prompt,
            node: self.provider.node.clone(),
            keyring: context.keyring_path(),
            tpm: open_tpm,
            notices: Box::new(StandardError),
        };
        let entries = unlock_all(table, sources)?;
        let locked: Vec<String> = entries
            .iter()
            .filter(|outcome| !outcome.unlocked && !outcome.optional)
            .map(|outcome| format!("{}: {}", outcome.name, outcome.failures.join("; ")))
            .collect();
        let failure =
            (!locked.is_empty()).then(|| Failure::new(&code::VOLUME_LOCKED, locked.join(" | ")));
        let error = failure.as_ref().map(Failure::json);
        self.print(context, &Summary { entries, error })?;
        match failure {
            Some(failure) if self.json => Err(failure.reported_in_json()),
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }

    /// Prints the outcome of every entry, as text or JSON. SR-5001 if standard output cannot be
    /// written.
    fn print(&self, context: &mut Context, summary: &Summary) -> Result<(), Failure> {
        if self.json {
            return context.output.json(summary);
        }
        for outcome in &summary.entries {
            let state = match outcome.by {
                Some(by) => format!("unlocked by {by}"),
                None => "locked".to_owned(),
            };
            context.output.line(&format!("{}: {state}", outcome.name))?;
        }
        Ok(())
    }
}
