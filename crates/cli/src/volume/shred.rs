//! `strongroom volume shred DEVICE --confirm UUID`.
//!
//! Must not: destroy a volume whose UUID was not said.

use std::path::PathBuf;

use clap::Args;
use strongroom_format::code;
use strongroom_volume::keys::Keys;
use strongroom_volume::{Volume, shred};

use super::material::ProviderOptions;
use super::{cache, fleet};
use crate::Context;
use crate::failure::{Failure, warn};
use crate::help::tail;
use crate::time::rfc3339;

/// Destroy a volume: its key slots, its header, and the key at the key server. Says what remains.
///
/// The key server erases a key after a delay only, seven days unless its configuration says
/// otherwise: until then the record says `destroy-pending`.
#[derive(Args)]
#[command(after_help = tail!("  strongroom volume shred /dev/vdb --confirm 5f1c9d1e-4c43-4b0e-9f2c-6b1f3f0d8a11 --json > shredded.json"))]
pub(super) struct ShredArgs {
    /// The device, or the file
    #[arg(value_name = "DEVICE")]
    path: PathBuf,
    /// The volume's UUID, as `strongroom volume status` shows it
    #[arg(long, value_name = "UUID")]
    confirm: String,
    /// Leave the key and the header backup at the key server: other volumes use the key
    #[arg(long)]
    keep_key: bool,
    #[command(flatten)]
    provider: ProviderOptions,
    /// Write one JSON object to standard output: the record
    #[arg(long)]
    pub(super) json: bool,
}

impl ShredArgs {
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let mut volume = Volume::open_to_change(&self.path)?;
        let uuid = volume.uuid()?;
        if !uuid.eq_ignore_ascii_case(&self.confirm) {
            let detail = format!("--confirm: the volume's UUID is {uuid}");
            return Err(Failure::new(&code::VOLUME_SLOT, detail));
        }
        let metadata = volume.metadata()?;
        let token = metadata.token().ok().flatten();
        let cipher = metadata
            .segment()
            .map(|segment| segment.encryption.clone())
            .unwrap_or_default();
        cache::forget_of(&mut volume);
        drop(volume);
        let mut keys: Option<Box<dyn Keys>> = match (&token, self.keep_key) {
            (Some((_, token)), false) => Some(self.provider.keys(context, Some(token.provider))?),
            _ => None,
        };
        let record = match keys.as_mut() {
            Some(keys) => shred::shred(&self.path, &self.confirm, Some(keys.as_mut()))?,
            None => shred::shred(&self.path, &self.confirm, None)?,
        };
        if let (true, Some((_, token)), Some(keys)) = (record.is_proven, &token, keys.as_mut()) {
            fleet::tell_shredded(&self.path, keys.as_mut(), token, &cipher);
        }
        if self.json {
            return context.output.json(&record);
        }
        let line = format!(
            "volume {}: {} key slots destroyed, {} bytes overwritten",
            record.uuid,
            record.slots_destroyed.len(),
            record.overwritten_bytes
        );
        context.output.line(&line)?;
        if record.key_state == "destroy-pending" {
            let until = record
                .key_destroy_at
                .map_or_else(|| "later".to_owned(), |at| format!("at {}", rfc3339(at)));
            let line = format!("its key is NOT destroyed yet: the key server erases it {until}");
            context.output.line(&line)?;
        }
        for left in &record.remains {
            warn(&code::VOLUME_WARNED, left);
        }
        Ok(())
    }
}
