//! `strongroom volume unenroll DEVICE SLOT|KIND`.
//!
//! Must not: remove the last opener (V8).

use std::path::PathBuf;

use clap::Args;
use strongroom_luks2::OpenedBy;
use strongroom_volume::Volume;
use strongroom_volume::escrow::renew_backup_after_change;
use strongroom_volume::openers::{Which, remove};
use strongroom_volume::outage::forget_volume;

use super::material::ProviderOptions;
use super::messages::StandardError;
use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;

/// Take a way to open a volume back. A header backup from before still opens with it: change the
/// volume key, too.
#[derive(Args)]
#[command(after_help = tail!("  strongroom volume unenroll /dev/vdb 3"))]
pub(super) struct UnenrollArgs {
    /// The device, or the file
    #[arg(value_name = "DEVICE")]
    path: PathBuf,
    /// A key slot's number, or `passphrase`, `recovery`, `strongroom`, `tpm` for all of that kind
    #[arg(value_name = "SLOT|KIND", value_parser = parse_target)]
    which: Which,
    /// Remove the last recovery key, too
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    provider: ProviderOptions,
}

impl UnenrollArgs {
    /// Removes the key slot, or all of a kind, renews the header backup at the key server, and
    /// prints each slot. A passphrase that was kept for boots is removed too. SR-8330 if there is
    /// no such slot, SR-8325 for the last opener, or the last recovery key without `--force`;
    /// SR-8320 if the volume is attached elsewhere.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let mut volume = Volume::open_to_change(&self.path)?;
        forget_volume(&mut volume, &StandardError);
        let removed = remove(&mut volume, self.which, self.force)?;
        drop(volume);
        let keys = self.provider.host_keys(context);
        renew_backup_after_change(&self.path, &keys, &StandardError);
        for slot in removed {
            context.output.line(&format!("key slot {slot} removed"))?;
        }
        Ok(())
    }
}

/// Parses a slot's number, or the name of a kind of opener. The error is the text that clap shows.
fn parse_target(text: &str) -> Result<Which, String> {
    if let Ok(slot) = text.parse() {
        return Ok(Which::Slot(slot));
    }
    let openers = [
        OpenedBy::Passphrase,
        OpenedBy::Recovery,
        OpenedBy::Strongroom,
        OpenedBy::Tpm,
    ];
    let opener = openers.into_iter().find(|opener| opener.name() == text);
    opener
        .map(Which::OpenedBy)
        .ok_or_else(|| "a slot's number, or passphrase, recovery, strongroom, tpm".to_owned())
}
