//! `strongroom volume status DEVICE_OR_NAME`.
//!
//! Must not: need a key.

use std::path::PathBuf;

use clap::Args;
use strongroom_volume::status::{State, device_of, state};

use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;
use crate::output::columns;

/// Show what a volume is, who opens it, and whether it is open.
#[derive(Args)]
#[command(after_help = tail!("  strongroom volume status /dev/vdb --json"))]
pub(super) struct StatusArgs {
    /// The device or file, or the name of a mapping
    #[arg(value_name = "DEVICE_OR_NAME")]
    path: PathBuf,
    /// Write one JSON object to standard output
    #[arg(long)]
    pub(super) json: bool,
}

impl StatusArgs {
    /// Prints what the header of the volume says, its key slots and whether it is open, as text or
    /// JSON. Needs no key. A mapping's name stands for its device. SR-1006 if there is no such
    /// device, SR-8322 if it is no volume.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let state = state(&device_of(&self.path))?;
        if self.json {
            return context.output.json(&state);
        }
        context.output.text(&state_text(&state))
    }
}

/// Returns the state as text for people, with one line for each key slot.
fn state_text(state: &State) -> String {
    let row = |name: &str, value: &str| vec![name.to_owned(), value.to_owned()];
    let mut rows = vec![
        row("volume", &state.path),
        row("uuid", &state.uuid),
        row("cipher", &state.cipher),
        row("sector size", &state.sector_size.to_string()),
    ];
    if let Some(mac) = &state.integrity {
        rows.push(row("authenticated", mac));
    }
    if let (Some(key), Some(version)) = (&state.key_id, state.key_version) {
        let provider = state.provider.unwrap_or_default();
        rows.push(row("key", &format!("{key} version {version}, {provider}")));
    }
    if state.reencrypting {
        rows.push(row("re-encryption", "begun, not finished"));
    }
    rows.push(row("open", state.mapping.as_deref().unwrap_or("no")));
    if let Some(until) = state.kept_until {
        rows.push(row("kept until", &strongroom_inspect::time::rfc3339(until)));
    }
    for slot in &state.slots {
        let kdf = slot.kdf.as_deref().unwrap_or("-");
        let opens = if slot.opens {
            ""
        } else {
            ", does not open it yet"
        };
        let registers = slot.pcrs.iter().map(|all| {
            let all: Vec<String> = all.iter().map(ToString::to_string).collect();
            format!(" (registers {})", all.join(","))
        });
        let registers: String = registers.collect();
        let value = format!("{}{registers}, {kdf}{opens}", slot.kind);
        rows.push(row(&format!("slot {}", slot.slot), &value));
    }
    columns(&rows)
}
