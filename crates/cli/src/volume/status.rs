//! `strongroom volume status DEVICE_OR_NAME`.
//!
//! Must not: need a key.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use strongroom_format::hex::hex;
use strongroom_volume::kept::Kept;
use strongroom_volume::{Volume, active, tpm};

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

/// What there is to say of a volume. A stable contract: docs/reference/volume.md.
#[derive(Serialize)]
pub(super) struct State {
    pub(super) path: String,
    pub(super) uuid: String,
    pub(super) cipher: String,
    pub(super) sector_size: u32,
    pub(super) integrity: Option<String>,
    pub(super) data_offset: u64,
    pub(super) reencrypting: bool,
    pub(super) object_id: Option<String>,
    pub(super) key_id: Option<String>,
    pub(super) key_version: Option<u32>,
    pub(super) provider: Option<&'static str>,
    pub(super) servers: Vec<String>,
    pub(super) slots: Vec<SlotState>,
    pub(super) mapping: Option<String>,
    pub(super) read_only: Option<bool>,
    /// Until when a passphrase is kept for a start without key servers, in seconds since the Unix
    /// epoch.
    pub(super) kept_until: Option<u64>,
}

#[derive(Serialize)]
pub(super) struct SlotState {
    pub(super) slot: u32,
    pub(super) kind: &'static str,
    pub(super) kdf: Option<String>,
    /// Whether it opens the volume: not while it only holds the key of a re-encryption.
    pub(super) opens: bool,
    /// Of a TPM: the registers whose values it is sealed to.
    pub(super) pcrs: Option<Vec<u8>>,
}

impl StatusArgs {
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let state = state(&device_of(&self.path))?;
        if self.json {
            return context.output.json(&state);
        }
        context.output.text(&state_text(&state))
    }
}

/// The device below a mapping that is named; any other path as it is.
pub(super) fn device_of(path: &Path) -> PathBuf {
    let name = path.strip_prefix("/dev/mapper").unwrap_or(path);
    let is_name = name.components().count() == 1 && (name != path || !path.exists());
    let name = name.to_string_lossy();
    let mapping = is_name.then(|| active::mapping(&name)).flatten();
    mapping.map_or_else(|| path.to_owned(), |mapping| mapping.device)
}

/// Reads a volume's state.
pub(super) fn state(path: &Path) -> Result<State, Failure> {
    let mut volume = Volume::open(path)?;
    let metadata = volume.metadata()?;
    let token = metadata.token().ok().flatten().map(|(_, token)| token);
    let segment = metadata.segment()?;
    let bound = metadata.bound_slots();
    let tpms = tpm::tokens(&metadata);
    let registers = |slot: &u32| {
        let mut of_slot = tpms.iter().filter(|(_, token)| token.slots.contains(slot));
        of_slot.next().map(|(_, token)| token.registers())
    };
    let slot = |(slot, about): (&u32, &strongroom_volume::header::Keyslot)| SlotState {
        slot: *slot,
        kind: metadata.kind(*slot).name(),
        kdf: about.kdf.as_ref().map(|kdf| kdf.kind.clone()),
        opens: bound.contains(slot),
        pcrs: registers(slot),
    };
    let mapping = active::mapping_of(path);
    // Whoever may not read it learns nothing of it.
    let kept = token.as_ref().and_then(|token| Kept::find(token).ok()?);
    Ok(State {
        path: path.display().to_string(),
        uuid: volume.uuid()?,
        cipher: segment.encryption.clone(),
        sector_size: segment.sector_size,
        integrity: segment.integrity.as_ref().map(|mac| mac.kind.clone()),
        data_offset: volume.data_offset(),
        reencrypting: metadata.is_reencrypting(),
        object_id: token.as_ref().map(|token| hex(&token.object_id)),
        key_id: token.as_ref().map(|token| token.key_id.clone()),
        key_version: token.as_ref().map(|token| token.key_version),
        provider: token.as_ref().map(|token| token.provider.name()),
        servers: token.map(|token| token.servers).unwrap_or_default(),
        slots: metadata.keyslots.iter().map(slot).collect(),
        mapping: mapping
            .as_ref()
            .map(|mapping| mapping.path.display().to_string()),
        read_only: mapping.map(|mapping| mapping.read_only),
        kept_until: kept.map(|kept| kept.term.until),
    })
}

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
        rows.push(row("kept until", &strongroom_format::time::rfc3339(until)));
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
